// Times of day in what the commands print and take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <ringside/base/types.hpp>

#include "binary.hpp"

namespace ringside::wall_cli_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr const char* program = RINGSIDE_BUILD_DIR "/tests/names_writer";

struct WallCli : test::BinaryTest {
  i64 before = 0, after = 0;  // seconds since 1970, around the recording
  void record() {
    setenv("TZ", "UTC", 1);
    before = time(nullptr);
    ASSERT_EQ(ringside(std::string("record -q --libc malloc env A=1 ") + program + " 4242").code, 0);
    after = time(nullptr);
  }
  i64 seconds_of(const std::string& text) const {
    tm parts{};
    const char* const rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
    return rest == nullptr ? -1 : timegm(&parts);
  }
};

TEST_F(WallCli, LinesHaveIt) {
  record();
  const std::string text = ringside("report --wall -n 1").out;
  const size_t at = text.find("20");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_GE(seconds_of(text.substr(text.find("] ") + 2)), before) << text;
  EXPECT_LE(seconds_of(text.substr(text.find("] ") + 2)), after) << text;
  for (const json& e : events("--wall")) {
    EXPECT_GE(seconds_of(e.at("wall")), before);
    EXPECT_LE(seconds_of(e.at("wall")), after);
    EXPECT_THAT(e.at("wall").get<std::string>(), testing::EndsWith("+00:00"));
  }
  EXPECT_FALSE(events("").at(0).contains("wall"));
  EXPECT_THAT(ringside("export --wall --format csv -o -").out, testing::StartsWith("ts_ns,wall,buffer,"));
  EXPECT_THAT(ringside("export --wall --format json -o -").out, HasSubstr("\"wall\":\"20"));
  EXPECT_THAT(ringside("latency --wall libc:malloc libc:free -k ptr").out, HasSubstr("T"));
}

TEST_F(WallCli, ARangeIsOfTheDay) {
  record();
  const auto all = events("--wall");
  ASSERT_GT(all.size(), 4u);
  const json& first = all.at(2);
  const std::string wall = first.at("wall"), day = wall.substr(11, 18);  // 14:05:02.123456789
  const auto from = events("--time " + day + "..");
  ASSERT_EQ(from.size(), all.size() - 2) << day;
  EXPECT_EQ(from.at(0).at("ts"), first.at("ts"));
  EXPECT_EQ(events("--time " + wall + "..").size(), all.size() - 2);
  EXPECT_EQ(events("--time " + day + "..+10s").size(), all.size() - 2);
  EXPECT_EQ(events("--time .." + wall).size(), 3u);
}

TEST_F(WallCli, WithoutOneItIsRefused) {
  record();
  json meta = json::parse(test::slurp(dir + "/ringside.data/meta.json"));
  meta.erase("wall");
  std::ofstream(dir + "/ringside.data/meta.json") << meta;
  EXPECT_THAT(ringside("report --wall").err, HasSubstr("does not say its time of day"));
  EXPECT_THAT(ringside("report --time 14:05..").err, HasSubstr("does not say its time of day"));
}

}  // namespace
}  // namespace ringside::wall_cli_test
