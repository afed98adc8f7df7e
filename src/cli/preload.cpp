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

}  // namespace

result<std::string> find_preload() {
  const std::string here = directory_of_binary();
  const std::string name = "libringside-libc.so";
  const std::string places[] = {here, here + "/" RINGSIDE_LIBDIR "/ringside"};  // in the build; installed, wherever that is
  for (const std::string& place : places) {
    if (access((place + "/" + name).c_str(), R_OK) != 0) continue;
    char* real = realpath((place + "/" + name).c_str(), nullptr);
    const std::string found = real != nullptr ? real : place + "/" + name;
    std::free(real);
    if (found.find_first_of(": ") != std::string::npos)
      return refuse(std::errc::invalid_argument, "cannot preload " + found + ": LD_PRELOAD takes no path with a space or a colon; install ringside elsewhere");
    return found;
  }
  return refuse(std::errc::no_such_file_or_directory, "cannot find " + name +
                                                          " for --libc: it is neither beside the ringside binary (" + here +
                                                          ") nor in " RINGSIDE_LIBDIR "/ringside from there; build or install it");
}

}  // namespace ringside::cli
