#include "cli/preload.hpp"

#include "convert/installed.hpp"

namespace ringside::cli {

result<std::string> find_preload() {
  const std::string name = "libringside-libc.so", found = find_installed(name, "", {"", "/ringside"});
  if (found.empty())
    return refuse(std::errc::no_such_file_or_directory, "cannot find " + name +
                                                            " for --libc: it is neither beside the ringside binary (" +
                                                            directory_of_program() + ") nor in ../lib; build or install it");
  if (found.find_first_of(": ") != std::string::npos)
    return refuse(std::errc::invalid_argument,
                  "cannot preload " + found + ": LD_PRELOAD takes no path with a space or a colon; install ringside elsewhere");
  return found;
}

}  // namespace ringside::cli
