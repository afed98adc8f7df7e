// Tests of the ringside binary itself: run in a directory of their own, with a root of their own.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sys/json.hpp"

namespace ringside::test {

struct Outcome {
  int code = 0;  // 128 + N after signal N
  std::string out, err;
};

inline std::string slurp(const std::string& path) {
  std::stringstream s;
  s << std::ifstream(path, std::ios::binary).rdbuf();
  return s.str();
}

struct BinaryTest : testing::Test {
  std::string dir = (std::filesystem::temp_directory_path() / ("ringside-binary-" + std::to_string(getpid()))).string();
  void SetUp() override {
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir + "/root");
  }
  void TearDown() override { std::filesystem::remove_all(dir); }

  // A shell's command, in `dir`.
  Outcome run(const std::string& command) const {
    const std::string all =
        "cd " + dir + " && export RINGSIDE_ROOT=" + dir + "/root && { " + command + "; } >" + dir + "/out 2>" + dir + "/err";
    const int status = std::system(all.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(dir + "/out"), slurp(dir + "/err")};
  }
  Outcome ringside(const std::string& arguments) const { return run(RINGSIDE_BUILD_DIR "/ringside " + arguments); }
  // What `report --json` says, a line each: events and losses.
  std::vector<nlohmann::json> report(const std::string& arguments = "") const {
    const Outcome o = ringside("report --json " + arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    std::vector<nlohmann::json> all;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  // The events alone.
  std::vector<nlohmann::json> events(const std::string& arguments = "") const {
    std::vector<nlohmann::json> all = report(arguments);
    std::erase_if(all, [](const nlohmann::json& line) { return !line.contains("event"); });
    return all;
  }
  // A command that kills process $P of the shell's and waits until that has ended, reaped or not.
  const std::string kill_and_wait = "sh -c \"kill $P; while grep -qs '^State:.[^Z]' /proc/$P/status; do :; done\"";
};

}  // namespace ringside::test
