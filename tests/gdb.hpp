// The debugger as the judge of stacks: what it shows in `bt` where tests/stacks/walker.cpp stops.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ringside/base/types.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace ringside::test {

inline std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

struct GdbLine {
  std::string function;
  u32 line = 0;     // 0: there is no debugging information
  u64 address = 0;  // 0: an inlined function
  bool library = false;  // of a library that the debugger has no debugging information for
};

inline bool has_gdb() { return std::system("gdb --version >/dev/null 2>&1") == 0; }

// The frames of each stop, innermost first. The debugger follows children, and the programs that they become.
inline std::vector<std::vector<GdbLine>> by_gdb(const std::string& program, const std::string& arguments, u32 stops = 1) {
  std::string command =
      "gdb -nx -batch -ex 'set width 0' -ex 'set print frame-arguments none' -ex 'handle SIGUSR1 nostop noprint' -ex 'set "
      "follow-fork-mode child' -ex 'run " +
      arguments + " >/dev/null' -ex 'bt'";
  for (u32 n = 1; n < stops; ++n) command += " -ex continue -ex bt";
  const std::string text = output_of(command + " " + program + " 2>&1 </dev/null");
  std::vector<std::vector<GdbLine>> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("#0 ", 0) == 0) all.emplace_back();
    if (line.empty() || line[0] != '#' || all.empty()) continue;
    GdbLine found;
    std::string rest = line.substr(line.find(' '));
    rest.erase(0, rest.find_first_not_of(' '));
    if (rest.rfind("0x", 0) == 0) {
      found.address = std::strtoull(rest.c_str(), nullptr, 16);
      rest.erase(0, rest.find(" in ") + 4);
    }
    found.library = rest.find(") from ") != std::string::npos;
    found.function = rest.substr(0, rest.find(" ("));
    if (const size_t parameters = found.function.find_first_of("([", 1); parameters != std::string::npos)
      found.function.resize(parameters);  // without debugging information
    if (const size_t at = rest.rfind(".cpp:"); at != std::string::npos)
      found.line = static_cast<u32>(std::atoi(rest.c_str() + at + 5));
    all.back().push_back(found);
  }
  EXPECT_EQ(all.size(), stops) << text;
  return all;
}

// The walker's own frames from `capture` to `main`: a signal and its handler have others between.
inline std::vector<GdbLine> from_capture_to_main(const std::vector<GdbLine>& all) {
  std::vector<GdbLine> out;
  for (const GdbLine& line : all) {
    const bool own = line.function.rfind("main", 0) == 0 || line.function.rfind("walker::", 0) == 0;
    if (line.function == "walker::capture" || (own && !out.empty()))
      out.push_back({line.function.substr(0, line.function.find(".cold")), line.line, line.address});
    if (line.function.rfind("main", 0) == 0) break;
  }
  return out;
}

}  // namespace ringside::test
