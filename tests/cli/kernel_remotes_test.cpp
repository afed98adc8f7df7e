// The kernel's own remotes, on a kernel that has them with its test module's events (Linux 7, CONFIG_TRACE_REMOTE_TEST).
// RINGSIDE_REMOTES_KERNEL names a directory with such a kernel, as scripts/kernel makes one: then these tests run in it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>

#include "binary.hpp"
#include "source/recording.hpp"

namespace ringside::kernel_remotes_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::slurp;

const std::string remote = "/sys/kernel/tracing/remotes/test";
bool is_there() { return access((remote + "/write_event").c_str(), W_OK) == 0; }

TEST(KernelRemotesBooted, InAKernelThatHasThem) {
  const char* const kernel = getenv("RINGSIDE_REMOTES_KERNEL");
  if (is_there()) GTEST_SKIP() << "this is that kernel";
  if (kernel == nullptr)
    GTEST_SKIP() << "RINGSIDE_REMOTES_KERNEL names no directory with the vmlinuz and initramfs.gz of a kernel that has "
                    "remotes/test";
  const std::string command = std::string(RINGSIDE_SOURCE_DIR "/scripts/guest ") + kernel +
                              " " RINGSIDE_BUILD_DIR "/tests/test_cli --gtest_filter='KernelRemotes.*' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

struct KernelRemotes : test::BinaryTest {
  void SetUp() override {
    if (!is_there())
      GTEST_SKIP() << "this kernel has no remotes/test (Linux 7 with its test module has; cli.KernelRemotesBooted boots one)";
    BinaryTest::SetUp();
  }
  // A shell's words: `events FROM TO` writes those, `ready` waits until the recorder records.
  const std::string words = "events() { for i in $(seq $1 $2); do echo $i >" + remote + "/write_event; done; }; " +
                            "ready() { until grep -q 1 " + remote + "/tracing_on; do sleep 0.05; done; }; " +
                            "parts() { until [ $(ls -d ringside.data* | wc -l) -ge $1 ]; do sleep 0.05; done; }; " +
                            "tool=" RINGSIDE_BUILD_DIR "/ringside; ";
  static u64 id_of(const json& event) { return event.at("fields").at("id").get<u64>(); }
};

TEST_F(KernelRemotes, EachEventIsRecordedWithItsFieldsAndItsCpu) {
  const Outcome o = run(words +
                        "$tool record -e remotes/test:selftest --duration 60s & R=$!; ready; "
                        "taskset -c 0 sh -c 'for i in $(seq 1 700); do echo $i >" +
                        remote +
                        "/write_event; done'; "
                        "taskset -c 1 sh -c 'for i in $(seq 701 1000); do echo $i >" +
                        remote +
                        "/write_event; done'; "
                        "kill -TERM $R; wait $R");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("1,000 events"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("lost 0"), std::string::npos) << o.err;
  u64 last = 0, expected = 0;
  for (const json& e : events()) {
    EXPECT_EQ(e.at("event"), "test:selftest");
    EXPECT_EQ(id_of(e), ++expected);
    EXPECT_EQ(e.at("cpu"), expected <= 700 ? 0 : 1);
    EXPECT_FALSE(e.contains("tid"));
    EXPECT_GE(e.at("ts").get<u64>(), last);
    last = e.at("ts").get<u64>();
  }
  EXPECT_EQ(expected, 1000u);
  const Outcome r = ringside("report -e remotes/test:selftest --filter 'id > 998'");
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 2) << r.out << r.err;
  EXPECT_NE(r.out.find("selftest: id=1000"), std::string::npos) << r.out;
}

// Each write() of an event is a system call of the host: it lies between its beginning and its end.
TEST_F(KernelRemotes, TheyStandWithTheHostsEventsOnOneTimeline) {
  const Outcome o = run(words +
                        "$tool record -e remotes/test:selftest -e 'raw_syscalls:*' -- sh -c 'for i in $(seq 1 200); do echo "
                        "$i >" +
                        remote + "/write_event; done'");
  ASSERT_EQ(o.code, 0) << o.err;
  std::map<int, std::pair<u64, u64>> write;          // of a CPU: begun, ended
  constexpr u64 write_number = 1, slack_ns = 5'000;  // the remote's lines show microseconds
  std::vector<std::pair<int, u64>> self;
  std::map<int, std::vector<std::pair<u64, u64>>> writes;
  std::map<int, u64> begun;
  for (const json& e : events()) {
    const int cpu = e.at("cpu");
    const u64 ts = e.at("ts");
    if (e.at("event") == "test:selftest") self.emplace_back(cpu, ts);
    if (e.at("event") == "raw_syscalls:sys_enter" && e.at("fields").at("id") == write_number) begun[cpu] = ts;
    if (e.at("event") == "raw_syscalls:sys_exit" && e.at("fields").at("id") == write_number)
      writes[cpu].emplace_back(begun[cpu], ts);
  }
  ASSERT_EQ(self.size(), 200u) << o.err;
  for (const auto& [cpu, ts] : self) {
    const bool inside = std::any_of(writes[cpu].begin(), writes[cpu].end(), [&, at = ts](const auto& w) {
      return w.first <= at + slack_ns && at <= w.second + slack_ns;
    });
    EXPECT_TRUE(inside) << "the event at " << ts << " on CPU " << cpu << " is in no write()";
  }
}

TEST_F(KernelRemotes, LossesAreCountedWhereTheyAre) {
  const Outcome o =
      run(words +
          "$tool record -b 16k --subbuf-size 4k -e remotes/test:selftest --duration 600s & R=$!; ready; kill -STOP $R; "
          "taskset -c 0 sh -c 'for i in $(seq 1 5000); do echo $i >" +
          remote +
          "/write_event; done'; "
          "kill -CONT $R; kill -TERM $R; wait $R");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto meta = must(RecordingMeta::read(dir + "/ringside.data"));
  EXPECT_EQ(meta.account.read + meta.account.overrun, 5000u) << o.err;
  EXPECT_GT(meta.account.overrun, 0u);
  EXPECT_TRUE(meta.account.exact()) << o.err;
  u64 next = 1;
  for (const json& line : report()) {
    if (line.contains("event"))
      EXPECT_EQ(id_of(line), next++);
    else if (line.contains("lost"))
      next += line.at("lost").get<u64>();
  }
  EXPECT_EQ(next, 5001u);
}

TEST_F(KernelRemotes, WhatWasSwitchedIsPutBack) {
  const std::string state =
      "cat " + remote + "/tracing_on " + remote + "/buffer_size_kb " + remote + "/events/test/selftest/enable";
  const std::string before = run(state).out;
  const Outcome o = run(words + "$tool record -e 'remotes/*' -b 64k --duration 600s & R=$!; ready; cat " + remote +
                        "/buffer_size_kb; kill -TERM $R; wait $R");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("64 (loaded)"), std::string::npos) << o.out;
  EXPECT_EQ(run(state).out, before);
}

TEST_F(KernelRemotes, ListLiveAndRefusals) {
  EXPECT_NE(ringside("list 'remotes/*'").out.find("remotes/test:selftest"), std::string::npos);
  EXPECT_EQ(ringside("list 'sched:*'").out.find("selftest"), std::string::npos);
  Outcome o = ringside("record -e remotes/test:selftset --duration 1s");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("did you mean remotes/test:"), std::string::npos) << o.err;
  o = run(
      words +
      "$tool record -e 'remotes/*' --duration 600s & R=$!; ready; $tool record -e 'remotes/*' -o second --duration 1s; C=$?; "
      "kill -TERM $R; wait $R; exit $C");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("another ringside reads"), std::string::npos) << o.err;
  for (const std::string command : {"hist id -e remotes/test:selftest", "top -e remotes/test:selftest"}) {
    o = run(words + "$tool " + command +
            " --json --duration 600s >live & R=$!; ready; events 1 50; sleep 1; kill -INT $R; wait $R; cat live");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("50"), std::string::npos) << command << o.out << o.err;
  }
}

TEST_F(KernelRemotes, LatencyBetweenTheHostAndARemote) {
  const Outcome o = run(
      words + "$tool record -e remotes/test:selftest -e raw_syscalls:sys_exit -- sh -c 'for i in $(seq 1 50); do echo $i >" +
      remote + "/write_event; done'; $tool latency test:selftest raw_syscalls:sys_exit --key cpu --json -i ringside.data");
  EXPECT_EQ(o.code, 0) << o.err << o.out;
  EXPECT_NE(o.out.find("50"), std::string::npos) << o.out;
}

TEST_F(KernelRemotes, PartsOfARecordingLoseNothing) {
  const Outcome o = run(words +
                        "$tool record -e remotes/test:selftest --rotate 300ms --keep 1000 --duration 600s & R=$!; ready; "
                        "events 1 1000; parts 2; events 1001 2000; parts 4; events 2001 3000; "
                        "kill -TERM $R; wait $R; ls -d ringside.data* | wc -l; cat $(ls -d ringside.data*) 2>/dev/null; true");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(std::atoi(o.out.c_str()), 1) << o.out;
  std::set<u64> ids;
  for (const json& e : events("ringside.data*")) ids.insert(id_of(e));
  EXPECT_EQ(ids.size(), 3000u) << o.err;
}

}  // namespace
}  // namespace ringside::kernel_remotes_test
