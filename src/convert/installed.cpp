#include "convert/installed.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace ringside {

std::string directory_of_program() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return ".";
  std::string text(path, static_cast<size_t>(n));
  return text.substr(0, text.rfind('/'));
}

std::string find_installed(const std::string& name, const std::string& beside, const std::vector<std::string>& below) {
  const std::string here = directory_of_program();
  std::vector<std::string> places{here + beside};
  for (const std::string& in : below) {
    places.push_back(here + "/" RINGSIDE_LIBDIR_OF_BINARY + in);  // installed, wherever that is
    places.push_back(RINGSIDE_LIBDIR + in);
    for (const char* const lib : {"/../lib", "/../lib/x86_64-linux-gnu", "/../lib/aarch64-linux-gnu", "/../lib64"})
      places.push_back(here + lib + in);
  }
  for (const std::string& place : places) {
    if (access((place + "/" + name).c_str(), R_OK) != 0) continue;
    char* real = realpath((place + "/" + name).c_str(), nullptr);
    std::string found = real != nullptr ? real : place + "/" + name;
    std::free(real);
    return found;
  }
  return "";
}

// In the plugin itself, the program is babeltrace2.
std::string find_babeltrace_plugin() {
  const std::string name = "babeltrace-plugin-ringside.so";
  std::string found;
  Dl_info code{};
  if (dladdr(reinterpret_cast<const void*>(&find_babeltrace_plugin), &code) != 0 && code.dli_fname != nullptr) {
    const std::string path = code.dli_fname;
    if (const size_t at = path.rfind('/'); at != std::string::npos && path.substr(at + 1) == name) found = path;
  }
  if (found.empty()) found = find_installed(name, "/babeltrace2", {"/babeltrace2/plugins"});
  return found.substr(0, found.rfind('/') + 1);
}

}  // namespace ringside
