// A socket of `ringside serve` as WHERE: what is read there, once, and which user may.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "binary.hpp"
#include "instance/instance.hpp"
#include "sys/json.hpp"
#include "tick_writer.hpp"

namespace ringside::serve_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;
using testing::Not;

struct ServeCli : test::BinaryTest {
  const std::string web = dir + "/root/web";
  void SetUp() override {
    BinaryTest::SetUp();
    InstanceOptions o;
    o.name = web;
    o.buffer_size = 64 << 10;
    o.subbuf_size = 4096;
    o.clock = ClockKind::mono;
    must(Instance::create(o));
  }
  void write(u64 ticks) const {
    int status = -1;
    waitpid(test::start_tick_writer(web, ticks), &status, 0);
    ASSERT_EQ(status, 0);
  }
  // A shell's command beside `ringside serve web --socket ./s OPTIONS` that answers.
  Outcome beside(const std::string& command, const std::string& options = "") const {
    return run(tool + "serve web --socket s " + options +
               " 2>log & S=$!; until " + tool +
               "stat s >/dev/null 2>&1; do kill -0 $S || break; sleep 0.02; done; " + command +
               "; C=$?; kill -INT $S; wait $S || cat log >&2; exit $C");
  }
  const std::string tool = RINGSIDE_BUILD_DIR "/ringside ";
};

size_t ticks(const std::string& text) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(": tick: number=", at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST_F(ServeCli, EachEventGoesToOneReader) {
  write(100);
  const Outcome o = beside(tool + "stat s --json >before; " + tool + "report s >first; " + tool + "report s >second; " + tool +
                           "stat s --json >after");
  EXPECT_EQ(o.code, 0) << o.err;
  const std::string first = test::slurp(dir + "/first");
  EXPECT_EQ(ticks(first), 100u) << first;
  EXPECT_THAT(first, HasSubstr("number=99"));
  EXPECT_EQ(ticks(test::slurp(dir + "/second")), 0u);
  EXPECT_THAT(o.err, HasSubstr("s has no events"));
  const json before = json::parse(test::slurp(dir + "/before")), after = json::parse(test::slurp(dir + "/after"));
  EXPECT_EQ(before["total"]["written"], 100);
  EXPECT_EQ(before["total"]["unread"], 100);
  EXPECT_EQ(after["total"]["read"], 100);
  EXPECT_EQ(after["adds_up"], true);
  EXPECT_EQ(after["instance"], "web");
}

// The ring is smaller than what is written: the reader learns how many events are gone.
TEST_F(ServeCli, LossesAreCounted) {
  write(20'000);
  const Outcome o = beside(tool + "hist event s --once --json");
  EXPECT_EQ(o.code, 0) << o.err;
  const json all = json::parse(o.out);
  EXPECT_GT(all["count"].get<u64>(), 0u) << o.out;
  EXPECT_EQ(all["count"].get<u64>() + all["lost"].get<u64>(), 20'000u) << o.out;
}

// Events and rings that appear while the socket is read.
TEST_F(ServeCli, FollowsWhatAppears) {
  const Outcome o =
      beside(tool +
             "top s --by event --json --interval 20ms >seen 2>said & T=$!; until [ -s seen ]; do sleep 0.02; done; "
             "RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR
             "/example_01_write; "
             "until grep -q net:packet_in seen; do sleep 0.02; done; kill -INT $T; wait $T; C=$?; cat said >&2; exit $C");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(test::slurp(dir + "/seen"), HasSubstr("net:idle"));
}

TEST_F(ServeCli, BesideARecording) {
  write(10);
  ASSERT_EQ(ringside("record -q -o r.data " RINGSIDE_BUILD_DIR "/example_01_write").code, 0);
  const Outcome o = beside(tool + "report s r.data");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(ticks(o.out), 10u);
  EXPECT_THAT(o.out, HasSubstr("packet_in"));
}

// A user that may not open the instance reads it here.
TEST_F(ServeCli, AnotherUser) {
  const std::string nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups ";
  if (run(nobody + tool + "--version").code != 0) GTEST_SKIP() << "not root, or another user cannot run " << tool;
  write(100);
  EXPECT_NE(run(nobody + tool + "report " + web).code, 0);
  // It sets the mode itself before it answers.
  Outcome o = beside("until " + tool + "stat s >/dev/null 2>&1; do sleep 0.02; done; chmod 666 s; " + nobody + tool + "report s");
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(ticks(o.out), 0u);
  EXPECT_THAT(o.err, HasSubstr("this user may not read these rings"));
  o = beside(nobody + tool + "report s", "--allow-user 65534");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(ticks(o.out), 100u);
}

TEST_F(ServeCli, AServerThatIsGone) {
  const Outcome dead = run(tool + "serve web & S=$!; until [ -S root/web/socket ]; do sleep 0.02; done; kill -9 $S; wait $S; " +
                           tool + "report root/web/socket");
  EXPECT_EQ(dead.code, 1);
  EXPECT_THAT(dead.err, HasSubstr("nobody serves at root/web/socket"));
}

}  // namespace
}  // namespace ringside::serve_cli_test
