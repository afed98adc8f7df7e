// Calls of the kernel's functions, as its tracer function_graph records them: what trace-cmd record -p function_graph makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "binary.hpp"
#include "foreign_dat.hpp"
#include "kernel/tracefs_instance.hpp"
#include "perfetto_reader.hpp"
#include "plot_page.hpp"

namespace ringside::function_graph_test {
namespace {

using nlohmann::json;
using test::ForeignDat;
using testing::HasSubstr;

struct FunctionGraph : test::BinaryTest {
  static constexpr u64 vfs_read = 0xffffffff81000000, verify = vfs_read + 0x1000, walk = vfs_read + 0x2000;
  void SetUp() override {
    BinaryTest::SetUp();
    ForeignDat dat;
    dat.uname = "Linux host 6.12.0 x86_64";
    dat.cmdlines = "42 prog\n";
    dat.kallsyms =
        "ffffffff81000000 T vfs_read\nffffffff81001000 T rw_verify_area\nffffffff81002000 T walk\nffffffff81003000 T end\n";
    const std::string of_both = ForeignDat::field("unsigned long func", 8, 8) + ForeignDat::field("int depth", 16, 4, true);
    dat.ftrace = {
        {"ftrace", ForeignDat::format("funcgraph_entry", 11, of_both, "\"--> %ps (%d)\", (void *)REC->func, REC->depth")},
        {"ftrace", ForeignDat::format("funcgraph_exit", 10,
                                      of_both + ForeignDat::field("unsigned int overrun", 20, 4) +
                                          ForeignDat::field("unsigned long long calltime", 24, 8) +
                                          ForeignDat::field("unsigned long long rettime", 32, 8),
                                      "\"<-- %ps (%d)\", (void *)REC->func, REC->depth")},
        {"ftrace",
         ForeignDat::format("function", 1,
                            ForeignDat::field("unsigned long ip", 8, 8) + ForeignDat::field("unsigned long parent_ip", 16, 8),
                            "\" %ps <-- %ps\", (void *)REC->ip, (void *)REC->parent_ip")}};
    std::string data;
    const auto call = [&](u32 delta, u64 function) {
      data += dat.event(delta, dat.head(11, 42) + dat.number(function) + dat.number(i32{0}));
    };
    const auto back = [&](u32 delta, u64 function) {
      data += dat.event(delta, dat.head(10, 42) + dat.number(function) + dat.number(i32{0}) + dat.number(u32{0}) +
                                   dat.number(u64{0}) + dat.number(u64{0}));
    };
    back(0, vfs_read);  // it was called before
    call(1000, vfs_read);
    call(1000, verify);
    back(2000, verify);
    back(6000, vfs_read);
    call(1000, walk);
    call(1000, walk);
    call(1000, verify);  // its exit is missing
    back(1000, walk);
    back(1000, walk);
    dat.pages = {dat.sub_buffer(1'000'000'000, data)};
    std::ofstream(dir + "/calls.dat", std::ios::binary) << dat.bytes();
    std::string plain;
    for (const u64 from : {vfs_read, vfs_read, walk})
      plain += dat.event(1000, dat.head(1, 42) + dat.number(verify) + dat.number(from + 0x10));
    dat.pages = {dat.sub_buffer(1'000'000'000, plain)};
    std::ofstream(dir + "/plain.dat", std::ios::binary) << dat.bytes();
  }
};

TEST_F(FunctionGraph, CallsNestByThread) {
  const test::Outcome o = ringside("latency functions --json calls.dat");
  ASSERT_EQ(o.code, 0) << o.err;
  const json all = json::parse(o.out);
  EXPECT_EQ(all.at("pairs"), 4u) << o.out;
  std::map<std::string, std::pair<u64, u64>> of;  // count, sum
  for (const json& group : all.at("groups")) of[group.at("key")] = {group.at("count"), group.at("sum")};
  EXPECT_EQ(all.at("groups").size(), 3u) << o.out;
  EXPECT_EQ(of["vfs_read+0x0"], (std::pair<u64, u64>(1, 9000)));
  EXPECT_EQ(of["rw_verify_area+0x0"], (std::pair<u64, u64>(1, 2000)));
  EXPECT_EQ(of["walk+0x0"], (std::pair<u64, u64>(2, 6000)));
}

TEST_F(FunctionGraph, CallsAreSlices) {
  ASSERT_EQ(ringside("export -q --to calls.pftrace calls.dat").code, 0);
  const test::PerfettoFile f(test::slurp(dir + "/calls.pftrace"));
  EXPECT_EQ(f.dropped, 0u);
  std::multiset<std::pair<std::string, i64>> slices;
  for (const test::PerfettoSlice& slice : f.slices()) {
    EXPECT_EQ(f.tracks.at(slice.track).tid, 42);
    slices.emplace(slice.name, slice.duration);
  }
  // The last one ends with the call that it was in.
  EXPECT_EQ(slices,
            (std::multiset<std::pair<std::string, i64>>{
                {"vfs_read", 9000}, {"rw_verify_area", 2000}, {"walk", 4000}, {"walk", 2000}, {"rw_verify_area", 1000}}));
  const test::Outcome plot = ringside("plot -o page.html calls.dat");
  ASSERT_EQ(plot.code, 0) << plot.err;
  const std::string page = test::page_json(test::slurp(dir + "/page.html")).dump();
  for (const char* name : {"vfs_read", "rw_verify_area", "walk"}) EXPECT_THAT(page, HasSubstr(name));
  EXPECT_THAT(plot.err + page, HasSubstr("begins or ends of system calls, spans and functions"));  // two are alone
}

// The width is the total time, and what is not below another function its own: the sums are those of the outermost calls.
TEST_F(FunctionGraph, FlameGraphsByOwnAndTotalTime) {
  const test::Outcome o = ringside("flame --calls --folded calls.dat");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "prog;vfs_read 7000\nprog;vfs_read;rw_verify_area 2000\nprog;walk 2000\nprog;walk;walk 2000\n");
  EXPECT_THAT(o.err, HasSubstr("4 calls by 4 different paths"));
  EXPECT_THAT(o.err, HasSubstr("1 call has no exit here, and no time"));
  EXPECT_THAT(o.err, HasSubstr("1 exit has no entry here"));
  EXPECT_EQ(ringside("flame --calls --folded --root none calls.dat -f 'func == 0xffffffff81001000'").out,
            "vfs_read;rw_verify_area 2000\n");
  const test::Outcome plain = ringside("flame --calls --folded plain.dat");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.out, "prog;vfs_read;rw_verify_area 2\nprog;walk;rw_verify_area 1\n");
  EXPECT_EQ(ringside("flame --calls -o f.html calls.dat").code, 0);
  for (const char* wrong : {"--calls --leaks", "--calls --pprof", "--calls --by func", "--calls --latency functions"})
    EXPECT_EQ(ringside(std::string("flame calls.dat --folded ") + wrong).code, 2) << wrong;
}

// The kernel of this machine may have no such tracer; ./test --kernel runs it on one that does.
TEST_F(FunctionGraph, RecordedFromTheKernel) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  const test::Outcome o = ringside("record -q --graph 'vfs_read' -o rec cat /etc/hostname /etc/hostname");
  if (o.err.find("have no tracer function_graph") != std::string::npos) {
    EXPECT_EQ(o.code, 1);
    EXPECT_THAT(o.err, HasSubstr("Linux 6.11 and later"));
    GTEST_SKIP() << o.err;
  }
  ASSERT_EQ(o.code, 0) << o.err;
  const json all = json::parse(ringside("latency functions --json rec").out);
  ASSERT_EQ(all.at("groups").size(), 1u) << all;
  std::ifstream symbols("/proc/kallsyms");
  std::string address;
  symbols >> address;
  if (address.find_first_not_of('0') != std::string::npos) {  // else they are hidden
    EXPECT_EQ(all.at("groups")[0].at("key"), "vfs_read+0x0");
  }
  EXPECT_GE(all.at("groups")[0].at("count"), 3u);
  for (const json& e : events("-e ftrace:funcgraph_entry rec")) EXPECT_EQ(e.at("task"), "cat");
  const test::Outcome none = ringside("record -q --graph no_such_function -o none true");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("the kernel has no function that matches no_such_function"));
  const test::Outcome plain = ringside("record -q --graph 'vfs_read' --tracer function -o plain cat /etc/hostname");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_GE(events("-e ftrace:function plain").size(), 1u);
}

TEST_F(FunctionGraph, WrongWords) {
  EXPECT_EQ(ringside("record --tracer function true").code, 2);
  EXPECT_EQ(ringside("record --graph x --tracer other true").code, 2);
}

}  // namespace
}  // namespace ringside::function_graph_test
