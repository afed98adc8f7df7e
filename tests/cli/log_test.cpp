// The messages of a program's logger, from the program to each reader.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "binary.hpp"

namespace ringside::log_cli_test {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string writer = RINGSIDE_BUILD_DIR "/tests/log_writer ";

struct LogCli : test::BinaryTest {
  void SetUp() override {
    BinaryTest::SetUp();
    const auto o = ringside("record -q -o rec " + writer + "8");
    ASSERT_EQ(o.code, 0) << o.err;
  }
  static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  // Of 8 jobs: debug 8, info 4, warn 2, error 2, trace 3, fatal 1.
  static constexpr size_t messages = 20;
};

TEST_F(LogCli, AMessageIsALine) {
  const auto o = ringside("log rec");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto all = lines(o.out);
  ASSERT_EQ(all.size(), messages) << o.out;
  EXPECT_THAT(all[0], ContainsRegex("^20[0-9-]+ [0-9:]+\\.[0-9][0-9][0-9][0-9][0-9][0-9] DEBUG log_writer-[0-9]+ "
                                    "log_writer.cpp:[0-9]+: job 0 begins$"));
  EXPECT_THAT(all.back(), ContainsRegex(" FATAL log_writer-[0-9]+ log_writer.cpp:[0-9]+: the end$"));
  EXPECT_THAT(o.out, HasSubstr(": job 2 \"j2\" is 12.2 % done\n"));
  EXPECT_THAT(o.out, HasSubstr(": 0.1|   2.5|4     |    j4|0xff|-0042|false\n"));
  EXPECT_THAT(o.out, HasSubstr(": job 1 failed: no room\\x0afor it\n"));
  EXPECT_THAT(o.out, Not(HasSubstr("\033"))) << "no colours but on a terminal";
  EXPECT_EQ(o.err, "");
}

TEST_F(LogCli, LevelsAreChosen) {
  for (const char* const arguments :
       {"-l warn", "-f 'level >= warn'", "-f 'level >= 3'", "-f 'level > info'", "-e log:warn,log:error,log:fatal"})
    EXPECT_EQ(lines(ringside(std::string("log rec ") + arguments).out).size(), 5u) << arguments;
  EXPECT_EQ(lines(ringside("log rec -f 'level == error && number == 1'").out).size(), 1u);
  EXPECT_EQ(lines(ringside("report rec -f 'level < info'").out).size(), 11u);
  const auto wrong = ringside("log rec -l warning");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("there are trace, debug, info, warn, error and fatal"));
}

TEST_F(LogCli, TheLastOnes) {
  const auto all = lines(ringside("log rec").out), last = lines(ringside("log rec -n 3").out);
  ASSERT_EQ(last.size(), 3u);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - 3));
}

TEST_F(LogCli, AsJson) {
  const auto all = lines(ringside("log rec --json").out);
  ASSERT_EQ(all.size(), messages);
  const json one = json::parse(all[1]);
  EXPECT_EQ(one.at("event"), "log:info");
  EXPECT_EQ(one.at("file"), "log_writer.cpp");
  EXPECT_TRUE(one.at("line").is_number());
  EXPECT_EQ(one.at("message"), "job 0 \"j0\" is 12.2 % done");
  EXPECT_EQ(one.at("fields").at("level"), "info");
  EXPECT_EQ(one.at("fields").at("name"), "j0");
  EXPECT_EQ(one.at("fields").at("number"), 0);
  EXPECT_EQ(one.at("task"), "log_writer");
  EXPECT_TRUE(one.contains("wall"));
}

TEST_F(LogCli, EveryReaderShowsTheText) {
  EXPECT_THAT(ringside("report rec").out, ContainsRegex("info: log_writer.cpp:[0-9]+: job 2 \"j2\" is 12.2 % done\n"));
  ASSERT_EQ(ringside("export rec -o rec.csv").code, 0);
  EXPECT_THAT(test::slurp(dir + "/rec.csv"), HasSubstr(": job 2 \"\"j2\"\" is 12.2 % done\"\r\n"));
  ASSERT_EQ(ringside("export rec --uncompressed -o rec.pftrace").code, 0);
  EXPECT_THAT(test::slurp(dir + "/rec.pftrace"), HasSubstr(": job 2 \"j2\" is 12.2 % done"));
  ASSERT_EQ(ringside("plot rec -o rec.html").code, 0);
  ASSERT_EQ(ringside("export rec -o rec.dat").code, 0);
  EXPECT_EQ(lines(ringside("log rec.dat").out).size(), messages);
  EXPECT_THAT(ringside("hist log:debug/number rec").out, HasSubstr("8 events"));
}

TEST_F(LogCli, WhatIsThereOfAnInstanceIsFollowed) {
  ASSERT_EQ(run("RINGSIDE_INSTANCE=live " + writer + "4").code, 0);
  const auto there = lines(ringside("log live").out);
  const auto o = ringside("log live --follow --duration 300ms -n 2");
  EXPECT_EQ(o.code, 0) << o.err;
  const auto followed = lines(o.out);
  ASSERT_EQ(followed.size(), 2u) << o.out;
  EXPECT_TRUE(std::equal(followed.begin(), followed.end(), there.end() - 2));
  EXPECT_THAT(o.err, HasSubstr("no process writes to live now"));
  // One that begins to write later.
  const auto later = run(RINGSIDE_BUILD_DIR "/ringside log live --follow -l fatal >followed & P=$!; RINGSIDE_INSTANCE=live " +
                         writer + "4; until [ $(grep -c FATAL followed) = 2 ]; do sleep 0.01; done; kill -INT $P; wait $P");
  EXPECT_EQ(later.code, 0) << later.err;
  EXPECT_EQ(lines(test::slurp(dir + "/followed")).size(), 2u);
  EXPECT_EQ(ringside("log rec --follow").code, 2);
}

TEST_F(LogCli, LossesAreSaid) {
  const auto saved = run("PATH=" RINGSIDE_BUILD_DIR ":$PATH " + writer + "own 100000");
  ASSERT_EQ(saved.code, 0) << saved.out << saved.err;
  const auto o = ringside("log own.data --fail-on-loss");
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_THAT(o.err, ContainsRegex("events were lost.*messages may be among them"));
  // A full ring loses its oldest events: the line stands where they were.
  ASSERT_EQ(run("RINGSIDE_INSTANCE=full RINGSIDE_RINGS=thread " + writer + "100000").code, 0);
  const auto overwritten = lines(ringside("log full -l fatal").out);
  ASSERT_EQ(overwritten.size(), 2u);
  EXPECT_THAT(overwritten[0], ContainsRegex("-- [0-9,]+ events were lost here --$"));
  EXPECT_THAT(overwritten[1], HasSubstr("the end"));
}

TEST_F(LogCli, AProgramSavesItsRings) {
  const auto o = run("PATH=" RINGSIDE_BUILD_DIR ":$PATH " + writer + "own 6 log:debug");
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  const auto all = lines(ringside("log own.data").out);
  EXPECT_EQ(all.size(), 9u) << "no debug, and no end: info 3, warn 2, error 2, trace 2";
  EXPECT_EQ(lines(ringside("log own").out).size(), 1u) << "the end";
}

TEST_F(LogCli, WithoutMessages) {
  ASSERT_EQ(ringside("record -q -o none " RINGSIDE_BUILD_DIR "/tests/spans_writer 3").code, 0);
  const auto o = ringside("log none");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, HasSubstr("no message in none"));
}

}  // namespace
}  // namespace ringside::log_cli_test
