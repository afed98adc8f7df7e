#include "cli/preload.hpp"

#include <unistd.h>

#include <cstdlib>

namespace ringside::cli {
namespace {

std::string directory_of_binary() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return ".";
  std::string text(path, static_cast<size_t>(n));
  return text.substr(0, text.rfind('/'));
}

// `name` beside the binary or below a directory of libraries; empty: it is not there. beside, below: in these directories there.
std::string find_file(const std::string& name, const std::string& beside, const std::vector<std::string>& below) {
  const std::string here = directory_of_binary();
  std::vector<std::string> places{here + beside};
  for (const std::string& in : below) {
#ifdef RINGSIDE_LIBDIR
    places.push_back(here + "/" RINGSIDE_LIBDIR + in);  // installed, wherever that is
#endif
    for (const char* const lib : {"/../lib", "/../lib/x86_64-linux-gnu", "/../lib/aarch64-linux-gnu", "/../lib64"}) places.push_back(here + lib + in);
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

}  // namespace

result<std::string> find_preload() {
  const std::string name = "libringside-libc.so", found = find_file(name, "", {"", "/ringside"});
  if (found.empty())
    return refuse(std::errc::no_such_file_or_directory, "cannot find " + name + " for --libc: it is neither beside the ringside binary (" + directory_of_binary() +
                                                            ") nor in ../lib; build or install it");
  if (found.find_first_of(": ") != std::string::npos)
    return refuse(std::errc::invalid_argument, "cannot preload " + found + ": LD_PRELOAD takes no path with a space or a colon; install ringside elsewhere");
  return found;
}

result<std::string> find_babeltrace_plugin() {
  const std::string name = "babeltrace-plugin-ringside.so", found = find_file(name, "/babeltrace2", {"/babeltrace2/plugins"});
  if (found.empty())
    return refuse(std::errc::no_such_file_or_directory, "cannot find " + name + " for CTF: it is built where libbabeltrace2-dev is installed");
  return found.substr(0, found.rfind('/'));
}

}  // namespace ringside::cli
