// A recording that another process keeps: record --to tcp:HOST:PORT, --to -, and ringside collect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <ringside/base/types.hpp>

#include "binary.hpp"

namespace ringside::collect_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;

struct Collect : test::BinaryTest {
  const std::string tool = RINGSIDE_BUILD_DIR "/ringside ";
  // Writes events net:err until the file stop is there, then their number into the file counts.
  const std::string service = RINGSIDE_BUILD_DIR "/tests/counted_writer stop counts";
  // A command of bash that has a collector, $C, beside it; $AT is its address. Its exit code is in the file `code`.
  Outcome beside(const std::string& options, const std::string& command) const {
    std::ofstream(dir + "/script")
        << "(" + tool + "collect 0 " + options + " 2>log & C=$!; echo $C >pid; wait $C; echo $? >code) & W=$!\n"
        << "until AT=localhost:$(sed -n 's/.*listening at [^ ]*:\\([0-9]*\\),.*/\\1/p' log 2>/dev/null) && "
           "[ \"$AT\" != localhost: ]; do sleep 0.02; done\nC=$(cat pid)\n"
        << command << "\nR=$?; wait $W; cat log >&2; exit $R\n";
    return run("bash script");
  }
  int code() const { return std::stoi(test::slurp(dir + "/code")); }
  u64 written() const { return std::stoull(test::slurp(dir + "/counts")); }  // of net:err
  u64 all_written() const {
    const std::string counts = test::slurp(dir + "/counts");
    return written() + std::stoull(counts.substr(counts.find(' ')));
  }
  json meta(const std::string& of) const { return json::parse(test::slurp(dir + "/" + of + "/meta.json")); }
};

TEST_F(Collect, TheRecordingIsThatOfALocalRecorder) {
  const Outcome o = beside("-o there", tool + "record --to tcp:$AT sh -c '" + service + " & sleep 0.3; touch stop; wait'");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(code(), 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("for this machine alone"));
  EXPECT_THAT(o.err, HasSubstr("tcp:localhost:"));
  const auto all = events("there -e net:err");
  ASSERT_GT(written(), 0u);
  ASSERT_EQ(all.size(), written());
  for (u64 n = 0; n < all.size(); ++n) ASSERT_EQ(all[n].at("fields").at("n"), n);
  EXPECT_TRUE(meta("there").at("complete"));
  EXPECT_EQ(meta("there").at("account").at("read"), all_written());
  EXPECT_EQ(ringside("export -q there --to a.dat && " + tool + "report a.dat").code, 0);
}

TEST_F(Collect, AnOlderRecordingIsKept) {
  ASSERT_EQ(ringside("record -q -o there true").code, 0);
  const Outcome o = beside("-o there", tool + "record -q --to tcp:$AT true");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(fs::exists(dir + "/there.old/meta.json"));
  EXPECT_TRUE(fs::exists(dir + "/there/meta.json"));
}

// The line is standard output; what the command prints is not in it.
TEST_F(Collect, ThroughAPipe) {
  const Outcome o = run("touch stop; { " + tool + "record -q --to - sh -c '" + service +
                        "; echo printed'; echo $? >recorder; } | " + tool + "collect - -o there");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(test::slurp(dir + "/recorder"), "0\n");
  EXPECT_THAT(o.err, HasSubstr("printed\n"));
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(meta("there").at("account").at("read"), all_written());
  const Outcome nothing = run("true | " + tool + "collect - -o none");
  EXPECT_EQ(nothing.code, 1);
  EXPECT_FALSE(fs::exists(dir + "/none"));
}

// The collector says which addresses the stacks have, and the recorder, where the files are, what is there.
TEST_F(Collect, StacksHaveTheNamesThatTheRecorderFinds) {
  const Outcome o = beside("-o there", "cp " RINGSIDE_BUILD_DIR "/tests/names_writer b; " + tool +
                                           "record --libc malloc --stack --to tcp:$AT ./b 4321 ./b");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(code(), 0);
  EXPECT_FALSE(fs::exists(dir + "/b"));  // it removes itself
  EXPECT_THAT(o.err, HasSubstr("kept the names of"));
  EXPECT_THAT(ringside("flame --folded -e libc:malloc -f 'size == 4321' there").out,
              testing::AllOf(HasSubstr("main"), HasSubstr("inside")));
}

TEST_F(Collect, ARecorderThatIsKilledLeavesWhatCame) {
  const Outcome o = beside("-o there", "(exec " + tool + "record -q --to tcp:$AT " + service + ") & R=$!; until " + tool +
                                           "report there 2>/dev/null | grep -q n=20; do sleep 0.05; done; "
                                           "kill -9 $R; wait $R; R=$?; touch stop; (exit $R)");
  EXPECT_EQ(o.code, 137) << o.err;
  EXPECT_EQ(code(), 1);
  EXPECT_THAT(o.err, HasSubstr("did not end it: the line was cut; what came before is in there"));
  EXPECT_FALSE(meta("there").at("complete"));
  EXPECT_THAT(ringside("report there | tail -n 1").err, HasSubstr("the recorder did not finish"));
  EXPECT_GT(events("there").size(), 10u);
}

TEST_F(Collect, ACollectorThatIsKilledEndsTheRecordingAndNotTheCommand) {
  const Outcome o = beside("-o there", tool + "record --to tcp:$AT sh -c '" + service +
                                           " & sleep 0.2; kill -9 $(cat pid); sleep 0.2; "
                                           "touch stop; wait; echo done >finished'");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err,
              HasSubstr("the collector has ended, or the connection is cut; the recording ends here, the command goes on"));
  EXPECT_EQ(test::slurp(dir + "/finished"), "done\n");
  EXPECT_TRUE(fs::exists(dir + "/there/meta.json"));
}

TEST_F(Collect, ManyRecordersHaveDirectoriesOfTheirOwn) {
  const Outcome o =
      beside("--keep-going -o boards", "touch stop; for n in 1 2 3; do " + tool + "record -q --to tcp:$AT sh -c '" + service +
                                           "' & R=\"$R $!\"; done; wait $R; kill -INT $C");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(code(), 0);
  const std::string host =
      json::parse(test::slurp((*fs::directory_iterator(dir + "/boards")).path() / "meta.json")).at("world").at("host");
  for (const std::string ending : {"", "-2", "-3"})
    EXPECT_TRUE(fs::exists(dir + "/boards/" + host + ending + "/meta.json")) << ending;
  EXPECT_EQ(std::distance(fs::directory_iterator(dir + "/boards"), {}), 3);
}

// A second recorder, a stranger, and one that says nothing: the first one's recording goes on.
TEST_F(Collect, OneIsOneAndStrangersAreNoRecorders) {
  const Outcome o = beside("-o there",
                           "exec 9<>/dev/tcp/localhost/${AT#*:}; "
                           "echo 'GET / HTTP/1.1, and some more of it' >/dev/tcp/localhost/${AT#*:}; "
                           "(" +
                               tool + "record -q --to tcp:$AT " + service +
                               "; echo $? >first) & R=$!; "
                               "until [ -e there/meta.json ]; do sleep 0.05; done; " +
                               tool + "record -q --to tcp:$AT true; echo $? >second; touch stop; wait $R");
  EXPECT_EQ(code(), 0) << o.err;
  EXPECT_EQ(test::slurp(dir + "/first"), "0\n") << o.err;
  EXPECT_EQ(test::slurp(dir + "/second"), "1\n");
  EXPECT_THAT(o.err, HasSubstr("refuses: this collector takes one recorder, and has one"));
  EXPECT_THAT(o.err, HasSubstr("this is no recording of ringside record --to"));
}

TEST_F(Collect, ASilentPeerDoesNotKeepItFromEnding) {
  const Outcome o =
      beside("-o there", "exec 9<>/dev/tcp/localhost/${AT#*:}; printf '\\001\\000\\000\\000' >&9; sleep 0.3; kill -INT $C");
  EXPECT_EQ(code(), 1);
  EXPECT_THAT(o.err, HasSubstr("no recorder came"));
  EXPECT_FALSE(fs::exists(dir + "/there"));
}

TEST_F(Collect, WhatCannotBeIsSaidFirst) {
  const auto says = [&](const std::string& arguments, int code, const std::string& sentence) {
    const Outcome o = ringside("record -q " + arguments + " sh -c 'touch ran'");
    EXPECT_EQ(o.code, code) << arguments << o.err;
    EXPECT_THAT(o.err, HasSubstr(sentence)) << arguments;
    EXPECT_FALSE(fs::exists(dir + "/ran"));
  };
  says("--to tcp:localhost:1", 1, "where no ringside collect listens");
  says("--to tcp:localhost", 2, "--to takes tcp:HOST:PORT");
  says("--to tcp::5555", 2, "--to takes tcp:HOST:PORT");
  says("--to tcp:localhost:70000", 2, "--to takes tcp:HOST:PORT");
  says("--to tcp:no-such-host.invalid:5555", 1, "cannot find the machine no-such-host.invalid");
  says("--to tcp:localhost:5555 --rotate 1s", 2, "--rotate is about files here");
  says("--to tcp:localhost:5555 --max-size 4M", 2, "--max-size is about files here");
  says("--to tcp:localhost:5555 --compress", 2, "--compress is about files here");
  EXPECT_EQ(ringside("collect").code, 2);
  for (const char* const at : {"here", "1.2.3.4:", ":::5555", "fe80::1:5555", "5555x", "70000"})
    EXPECT_EQ(ringside(std::string("collect ") + at).code, 2) << at;
  EXPECT_THAT(ringside("collect - --keep-going </dev/null").err, HasSubstr("one recorder's"));
}

}  // namespace
}  // namespace ringside::collect_test
