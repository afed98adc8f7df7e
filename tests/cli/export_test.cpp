// trace.dat files: trace-cmd is the judge. Its lines must be ours, white space and the words for a gap aside.
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"

namespace ringside {
namespace {

using test::Outcome;
using test::Payload;
using test::SubBuffer;

struct Export : test::BinaryTest {
  void SetUp() override {
    BinaryTest::SetUp();
    if (run("trace-cmd --version").code == 127) GTEST_SKIP() << "trace-cmd is not installed";
  }

  static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line.rfind("cpus=", 0) == 0) continue;
      std::string plain;
      for (const char c : line) {
        if (c != ' ' || (!plain.empty() && plain.back() != ' ')) plain += c;
      }
      while (!plain.empty() && plain.back() == ' ') plain.pop_back();
      all.push_back(std::regex_replace(plain, std::regex(R"(^CPU:(\d+) \[(\d+) EVENTS DROPPED\]$)"), "CPU:$1 [LOST $2 EVENTS]"));
    }
    return all;
  }
  void expect_equal(const std::string& from, u64 events) {
    const Outcome made = ringside("export " + from + " --to out.dat");
    ASSERT_EQ(made.code, 0) << made.err;
    const auto ours = lines(ringside("report " + from).out);
    const Outcome judge = run("trace-cmd report -N out.dat");  // without its plugins, which print otherwise than the formats say
    EXPECT_EQ(judge.code, 0);
    EXPECT_EQ(judge.err, "");
    const auto theirs = lines(judge.out);
    EXPECT_GE(ours.size(), events);
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) ASSERT_EQ(ours[i], theirs[i]) << "line " << i;
  }

  // Random events of every type of field in `rings` rings, with gaps and long pauses.
  u64 make(const ClockInfo& clock, u32 rings, u32 subbuf_size) {
    std::mt19937_64 random(rings);
    auto w = must(RecordingWriter::create(dir + "/data", clock));
    w.meta().events.push_back(
        {1, "app", "numbers",
         test::format(1, "numbers",
                      "\tfield:u8 a;\toffset:8;\tsize:1;\tsigned:0;\n\tfield:s16 b;\toffset:10;\tsize:2;\tsigned:1;\n"
                      "\tfield:u32 c;\toffset:12;\tsize:4;\tsigned:0;\n\tfield:s64 d;\toffset:16;\tsize:8;\tsigned:1;\n",
                      R"("a=%u b=%hd c=0x%x d=%lld", REC->a, REC->b, REC->c, REC->d)"),
         true});
    w.meta().events.push_back(
        {2, "app", "texts",
         test::format(2, "texts",
                      "\tfield:char name[8];\toffset:8;\tsize:8;\tsigned:0;\n"
                      "\tfield:__data_loc char[] more;\toffset:16;\tsize:4;\tsigned:0;\n",
                      R"("name=%s more=%s", REC->name, __get_str(more))"),
         true});
    w.meta().events.push_back(
        {3, "other", "state",
         test::format(3, "state", "\tfield:u32 state;\toffset:8;\tsize:4;\tsigned:0;\n",
                      R"("state=%s", __print_symbolic(REC->state, { 0, "idle" }, { 1, "busy" }))"),
         true});
    u64 events = 0;
    for (u32 ring = 0; ring < rings; ++ring) {
      const auto tid = static_cast<i32>(1000 + ring);
      must(w.add_ring({ring * 2, tid, tid, "task" + std::to_string(ring), "app"}, subbuf_size));
      u64 time = clock.base_ticks + 1'000'000'000 + ring;
      for (u32 page = 0; page < 4; ++page) {
        SubBuffer s(time, subbuf_size);
        for (u32 i = 0; i < 50; ++i, ++events) {
          time += random() % 100 == 0 ? 3'000'000'000 + random() % 1000 : 1 + random() % 100'000;
          switch (random() % 3) {
            case 0:
              s.event(time, Payload(1, tid).put(static_cast<u8>(random())).put(u8{0}).put(static_cast<int16_t>(random()))
                                .put(static_cast<u32>(random())).put(random()));
              break;
            case 1:
              s.event(time, Payload(2, tid).text({"short\0\0\0", 8}).put(u32{20 | 5 << 16}).text({"four\0", 5}));
              break;
            default:
              s.event(time, Payload(3, tid).put(static_cast<u32>(random() % 4)));
          }
        }
        must(w.append(ring * 2, s.view(page == 2 ? 77 : 0)));
        time += 10;
      }
    }
    must(w.finish(1));
    return events;
  }
};

TEST_F(Export, MonotonicClock) { expect_equal("data", make(ClockInfo{}, 2, 4096)); }
TEST_F(Export, MoreRingsThanProcessorsAndLargeSubBuffers) { expect_equal("data", make(ClockInfo{}, 40, 16384)); }
TEST_F(Export, Ticks) { expect_equal("data", make(calibrate(ClockKind::tsc), 3, 8192)); }

TEST_F(Export, TheKernels) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  const Outcome o = ringside("record -b 16M -o data -a -e 'syscalls:*' -e 'sched:*' -e 'timer:*' -e 'kmem:*' -e 'rcu:*' -- ls -la /");
  ASSERT_EQ(o.code, 0) << o.err;
  expect_equal("data", 1000);
}

TEST_F(Export, OneOfTheTwo) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  ASSERT_EQ(ringside("record --libc io -o data -e 'libc:*' -e 'syscalls:*' -- dd if=/dev/zero of=/dev/null count=10").code, 0);
  const Outcome both = ringside("export data --to out.dat");
  EXPECT_EQ(both.code, 1);
  EXPECT_NE(both.err.find("--only"), std::string::npos) << both.err;
  for (const char* only : {"kernel", "program"}) {
    ASSERT_EQ(ringside(std::string("export data --to out.dat --only ") + only).code, 0);
    const Outcome judge = run("trace-cmd report -N out.dat");
    EXPECT_EQ(judge.err, "");
    EXPECT_NE(judge.out.find(only[0] == 'k' ? "sys_enter_read:" : "read: "), std::string::npos);
  }
}

TEST_F(Export, WrongUse) {
  EXPECT_EQ(ringside("export data").code, 2);
  EXPECT_EQ(ringside("export nothing --to out.dat").code, 1);
  make(ClockInfo{}, 1, 4096);
  EXPECT_EQ(ringside("export data --to nowhere/out.dat").code, 1);
  EXPECT_FALSE(std::filesystem::exists(dir + "/out.dat"));
}

}  // namespace
}  // namespace ringside
