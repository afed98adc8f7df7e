#include "convert/installed.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "sys/sys.hpp"

namespace ringside {

std::string directory_of_program() {
  const std::string path = sys::link_text("/proc/self/exe");
  return path.empty() ? "." : path.substr(0, path.rfind('/'));
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
