// Rings of CPUs as users see them: record, report, stat, list; the alternative; programs in namespaces of their own.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "binary.hpp"
#include "clock/clock.hpp"
#include "sys/json.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside::cpu_rings_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;

struct CpuRingsCli : test::BinaryTest {
  void SetUp() override {
    test::BinaryTest::SetUp();
    if (why_not_cpu_rings() != RingsBecause::can)
      GTEST_SKIP() << "no rings of CPUs here, " << to_string(why_not_cpu_rings());
  }
};

TEST_F(CpuRingsCli, ARecordingHasTheCpuAndTheThreadOfEachEvent) {
  const Outcome o = ringside("record --libc io -o r -- sh -c 'taskset -c 0 cat /etc/hostname; taskset -c 0 cat /etc/hostname'");
  ASSERT_EQ(o.code, 0) << o.err;
  u64 cats = 0;
  for (const json& e : events("r")) {
    ASSERT_TRUE(e.contains("cpu")) << e;
    if (e["task"] != "cat") continue;
    ++cats;
    EXPECT_EQ(e["cpu"], 0);
    EXPECT_GT(e["tid"], 0);
  }
  EXPECT_GE(cats, 4u);
  EXPECT_NE(ringside("report r").out.find("[000]"), std::string::npos);
  const json meta = json::parse(ringside("stat r --json").out);
  EXPECT_EQ(meta["rings"].size(), possible_cpus());
  EXPECT_EQ(meta["rings"][0]["cpu"], 0);
  EXPECT_TRUE(meta["adds_up"]);
}

TEST_F(CpuRingsCli, RingsOfThreadsOnRequest) {
  ASSERT_EQ(ringside("record --rings thread --libc io -o r -- cat /etc/hostname").code, 0);
  for (const json& e : events("r")) EXPECT_TRUE(e.at("cpu").is_null()) << e;
  EXPECT_EQ(ringside("record --rings both -- true").code, 2);
}

TEST_F(CpuRingsCli, ListAndStatSayWhoseTheyAre) {
  const Outcome o = ringside("record -i web --libc io -o r -- cat /etc/hostname");
  ASSERT_EQ(o.code, 0) << o.err;
  const json stat = json::parse(ringside("stat web --json").out);
  EXPECT_EQ(stat["rings_of"], "cpu");
  EXPECT_EQ(stat["rings_because"], "as this machine has restartable sequences");
  EXPECT_NE(ringside("stat web").err.find("rings of CPUs, as this machine has restartable sequences"), std::string::npos);
  EXPECT_EQ(json::parse(ringside("list --json").out)[0]["rings_of"], "cpu");
  EXPECT_NE(ringside("doctor").out.find("of CPUs"), std::string::npos);
}

// adversary.md, 1 and 3: programs with the same pid on one instance, and with another start time: these do not decide who owns
// a ring.
TEST_F(CpuRingsCli, ProgramsInOtherNamespacesLoseNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "wants root, for unshare";
  if (run("unshare -p -f --mount-proc true").code != 0) GTEST_SKIP() << "unshare does not work here";
  ASSERT_EQ(ringside("record -i shared --libc io -o r0 -- true").code, 0);
  const std::string cat =
      "env RINGSIDE_INSTANCE=$RINGSIDE_ROOT/shared LD_PRELOAD=" + std::string(RINGSIDE_BUILD_DIR "/libringside-libc.so") +
      " RINGSIDE_LIBC=io sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do cat /etc/hostname; done' > /dev/null";
  const Outcome both = run("unshare -p -f --mount-proc " + cat + " & unshare -p -f --mount-proc " + cat +
                           " & unshare -T --boottime 100000 --fork " + cat + " & " +
                           std::string(RINGSIDE_BUILD_DIR "/ringside") + " stat shared > /dev/null 2>&1; wait");
  ASSERT_EQ(both.code, 0) << both.err;
  ASSERT_EQ(ringside("record -i shared -o r1 --duration 200ms").code, 0);
  u64 opens = 0;
  for (const json& e : events("r1")) opens += e["event"] == "libc:open" && e["fields"]["path"] == "/etc/hostname";
  EXPECT_EQ(opens, 30u);
  const json stat = json::parse(ringside("stat shared --json").out);
  EXPECT_TRUE(stat["adds_up"]);
  EXPECT_EQ(stat["refused_without_ring"], 0);
}

TEST_F(CpuRingsCli, ARecordingGoesOnOverAResize) {
  if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "wants root and /dev/fuse";
  ASSERT_EQ(ringside("record -i web --libc io -o r0 -- true").code, 0);
  ASSERT_EQ(run("mkdir m; " RINGSIDE_BUILD_DIR "/ringside mount m > log 2>&1 & M=$!; until [ -e m/instances/web/trace ] || ! "
                                               "kill -0 $M 2>/dev/null; do sleep 0.1; done; " RINGSIDE_BUILD_DIR
                "/ringside record -i web --libc io -o r1 -- sh -c 'cat /etc/hostname > /dev/null; echo 8 > "
                "m/instances/web/buffer_subbuf_size_kb; cat /etc/hostname > /dev/null'; "
                "umount m && wait $M")
                .code,
            0)
      << test::slurp(dir + "/err") << test::slurp(dir + "/log");
  u64 opens = 0;
  for (const json& e : events("r1")) opens += e["event"] == "libc:open" && e["fields"]["path"] == "/etc/hostname";
  EXPECT_EQ(opens, 2u);
  std::set<u64> sizes;
  const json stat = json::parse(ringside("stat r1 --json").out);
  for (const json& ring : stat["rings"]) sizes.insert(ring["subbuf_size"].get<u64>());
  EXPECT_EQ(sizes.size(), 2u);
  EXPECT_TRUE(stat["adds_up"]);
  // A trace.dat has one CPU for both.
  ASSERT_EQ(ringside("export --to r1.dat r1").code, 0) << test::slurp(dir + "/err");
  const auto ours = events("r1"), theirs = events("r1.dat");
  ASSERT_EQ(theirs.size(), ours.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(theirs[i]["ts"], ours[i]["ts"]);
    EXPECT_EQ(theirs[i]["cpu"], ours[i]["cpu"]);
  }
  if (run("trace-cmd --help").code == 127) GTEST_SKIP() << "there is no trace-cmd";
  const Outcome o = run("trace-cmd report -i r1.dat 2>/dev/null | grep -c 'path=/etc/hostname '");
  EXPECT_EQ(o.out, "2\n") << o.err;
}

TEST_F(CpuRingsCli, WithoutRseqThreadsGetRingsOfTheirOwn) {
  const Outcome o = run("GLIBC_TUNABLES=glibc.pthread.rseq=0 " + std::string(RINGSIDE_BUILD_DIR "/ringside") +
                        " record --libc io -o r -- cat /etc/hostname");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto all = events("r");
  EXPECT_GE(all.size(), 2u);
  for (const json& e : all) EXPECT_TRUE(e.at("cpu").is_null()) << e;
  EXPECT_NE(run("GLIBC_TUNABLES=glibc.pthread.rseq=0 " + std::string(RINGSIDE_BUILD_DIR "/ringside") + " doctor")
                .out.find("of threads, as the C library or the kernel has no restartable sequences"),
            std::string::npos);
}

}  // namespace
}  // namespace ringside::cpu_rings_cli_test
