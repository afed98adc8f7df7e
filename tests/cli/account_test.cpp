// Every event that anybody tried to write has one place: what two layouts of one name, a recorder's own events, a killed
// recorder and files without counters come to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::account_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;

struct Account : test::BinaryTest {
  const std::string writer = RINGSIDE_BUILD_DIR "/tests/namesakes_writer ";
  static bool says(const Outcome& o, const std::string& words) { return o.err.find(words) != std::string::npos; }
  // The events of shop:order by their fields: without a price, and with one.
  static void expect_both(const std::vector<json>& events, size_t older, size_t newer, const char* where) {
    size_t without = 0, with = 0;
    for (const json& e : events) {
      ASSERT_EQ(e.at("event"), "shop:order") << where << e;
      const json& fields = e.at("fields");
      const bool newer_one = fields.contains("price");
      EXPECT_EQ(newer_one ? fields.at("price").get<u64>() : 0, newer_one ? 100 * fields.at("id").get<u64>() : 0) << where << e;
      ++(newer_one ? with : without);
    }
    EXPECT_EQ(without, older) << where;
    EXPECT_EQ(with, newer) << where;
  }
};

// A new version of a service is traced beside the old one, and after it: each in its own layout, under one name.
TEST_F(Account, TwoLayoutsOfOneNameLiveSideBySide) {
  const Outcome o =
      ringside("record -o rec -- sh -c '" + writer + "0 10; " + writer + "1 20; " + writer + "0 5; " + writer + "1 1'");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(says(o, "lost 0;") && !says(o, "is not traced")) << o.err;
  expect_both(events("rec"), 15, 21, "recording");
  expect_both(events("rec -f 'id == 4'"), 2, 1, "a filter over both");
  expect_both(events("rec -f 'price > 1500'"), 0, 4, "a filter over one");
  EXPECT_NE(ringside("hist shop:order/id rec").out.find("15"), std::string::npos);
  const json hist = json::parse(ringside("hist shop:order/id rec --json").out);
  u64 counted = 0;
  for (const json& row : hist.at("rows")) counted += row.at("count").get<u64>();
  EXPECT_EQ(counted, 36u) << hist;
  ASSERT_EQ(ringside("export rec -o rec.dat").code, 0);
  expect_both(events("rec.dat"), 15, 21, "trace.dat");
  if (run("which babeltrace2").code == 0) {
    ASSERT_EQ(ringside("export rec -o rec.ctf").code, 0);
    expect_both(events("rec.ctf"), 15, 21, "CTF");
  }
}

TEST_F(Account, TwoLayoutsOfOneNameInAnInstance) {
  ASSERT_EQ(ringside("record -q -i shop -o made --duration 1ms").code, 0);
  ASSERT_EQ(run("export RINGSIDE_INSTANCE=shop; " + writer + "1 3; " + writer + "0 2").code, 0);
  expect_both(events("shop"), 2, 3, "instance");
  const Outcome list = ringside("list -i shop");
  EXPECT_EQ(list.code, 0) << list.err;
  const std::string system = dir + "/root/shop/events/shop";
  EXPECT_TRUE(fs::exists(system + "/order/format"));
  u32 folders = 0;
  for (const auto& entry : fs::directory_iterator(system)) folders += entry.is_directory();
  EXPECT_EQ(folders, 2u);
  const Outcome recorded = ringside("record -i shop -o rec --duration 100ms");
  EXPECT_EQ(recorded.code, 0) << recorded.err;
  expect_both(events("rec"), 2, 3, "recorded from the instance");
}

// What the recorder's own threads do is left out when it is read, and counted; interrupts and the scheduler are not.
TEST_F(Account, ARecordersOwnEventsAreLeftOutAndCounted) {
  if (!tracefs_dir()) GTEST_SKIP() << "no tracefs here";
  const Outcome o = run(RINGSIDE_BUILD_DIR
                        "/ringside record -a -o rec -e raw_syscalls,sched:sched_switch --duration 100ms & P=$!; "
                        "wait $P && echo $P");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string pid = o.out.substr(0, o.out.find('\n'));
  EXPECT_TRUE(says(o, "left out: ")) << o.err;
  const json meta = json::parse(test::slurp(dir + "/rec/meta.json"));
  const json& account = meta.at("account");
  EXPECT_GT(account.at("own").get<u64>(), 0u);
  EXPECT_EQ(account.at("unrecorded"), 0u) << account;
  EXPECT_EQ(account.at("written").get<u64>(),
            account.at("read").get<u64>() + account.at("own").get<u64>() + account.at("overrun").get<u64>())
      << account;
  EXPECT_TRUE(says(o, "lost 0;")) << o.err;
  EXPECT_FALSE(events("rec -e sched_switch -f 'next_comm == \"ringside\"'").empty()) << "the switches to the recorder are here";
  EXPECT_EQ(events("rec -e raw_syscalls -f 'pid == " + pid + "'").size(), 0u);
}

// A recorder that is killed leaves no counters: none are made up.
TEST_F(Account, AKilledRecordersCountersAreNotKnown) {
  const Outcome o = run(RINGSIDE_BUILD_DIR
                        "/ringside record -q -o rec -i shop & P=$!; until [ -e rec/meta.json ]; do sleep 0.02; done; "
                        "RINGSIDE_INSTANCE=shop " +
                        writer + "0 50; sleep 0.3; kill -9 $P; wait $P; true");
  ASSERT_EQ(o.code, 0) << o.err;
  const size_t here = events("rec").size();
  const Outcome table = ringside("stat rec");
  EXPECT_EQ(table.out.find("written"), std::string::npos) << table.out;
  EXPECT_TRUE(says(table, "the recorder did not finish") && says(table, "is not known")) << table.err;
  const json stat = json::parse(ringside("stat rec --json").out);
  EXPECT_EQ(stat.at("total"), json({{"events", here}})) << stat;
  EXPECT_TRUE(stat.at("adds_up").is_null()) << stat;
}

// At the first loss, not at the end of the night.
TEST_F(Account, ARecordingThatLosesSaysSoWhileItGoesOn) {
  ASSERT_EQ(ringside("record -q -i shop -b 64k --subbuf-size 4096 --mode discard -o made --duration 1ms").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=shop " + writer + "1 1").code, 0);
  const Outcome o =
      run(RINGSIDE_BUILD_DIR
          "/ringside record -i shop -o rec 2> log & P=$!; until [ -s rec/ring0.raw ] || [ -s rec/ring1.raw ] || ! kill -0 $P; "
          "do sleep 0.02; done; "
          "kill -STOP $P; RINGSIDE_INSTANCE=shop " +
          writer +
          "1 9000; kill -CONT $P; "
          "for i in $(seq 3000); do grep -q 'lost already' log && break; sleep 0.02; done; kill -INT $P; wait $P; cat log >&2");
  EXPECT_TRUE(says(o, " lost already (")) << o.err;
}

}  // namespace
}  // namespace ringside::account_test
