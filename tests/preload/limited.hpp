// For the tests of programs that limit themselves, or fork.
#pragma once
#include <ringside/base/types.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "binary.hpp"

namespace ringside::limited_test {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;

struct Limited : test::BinaryTest {
  const std::string linked = RINGSIDE_BUILD_DIR "/tests/linked ", limited = RINGSIDE_BUILD_DIR "/tests/preload_limited ";

  // The events of the recording, by its books; all were read.
  u64 recorded(const std::string& recording) const {
    const json stat = json::parse(ringside("stat " + recording + " --json").out);
    EXPECT_EQ(stat["adds_up"], true);
    EXPECT_EQ(stat["total"]["written"], stat["total"]["read"]) << stat.dump();
    return stat["total"]["written"];
  }
  static std::pair<long, long> two_numbers(const std::string& text) {
    std::pair<long, long> two{-1, -1};
    std::istringstream(text) >> two.first >> two.second;
    return two;
  }
};

// "NAME1,234" in the summary of a recording.
inline long counted(const std::string& summary, const std::string& name) {
  std::string digits;
  for (size_t at = summary.find(name) + name.size(); at < summary.size() && (isdigit(summary[at]) || summary[at] == ','); ++at)
    if (summary[at] != ',') digits += summary[at];
  return digits.empty() ? -1 : std::stol(digits);
}

}  // namespace ringside::limited_test
