// However many threads read a recording, the answer is the same.
#include <gtest/gtest.h>

#include <fstream>

#include "binary.hpp"
#include "random_recording.hpp"

namespace ringside::jobs_test {
namespace {

struct Jobs : test::BinaryTest {
  void expect_the_same(const std::string& command) const {
    const test::Outcome one = ringside(command + " --jobs 1");
    EXPECT_FALSE(one.out.empty()) << command << one.err;
    for (const char* jobs : {"2", "5"}) {
      const test::Outcome several = ringside(command + " --jobs " + jobs);
      EXPECT_EQ(several.code, one.code) << command;
      EXPECT_EQ(several.out, one.out) << command;
      EXPECT_EQ(several.err, one.err) << command;
    }
  }
};

TEST_F(Jobs, TheSameAnswer) {
  test::random_recording(dir + "/both", ClockInfo{}, 9, 4096, test::Of::both);
  test::random_recording(dir + "/program", ClockInfo{}, 5, 8192);
  for (const char* command : {"report both", "report program --json", "report both --time +1s..+100s", "report program -e app:state -f 'state > 0'", "report both -f 'task == task3'",
                              "top both", "top program --by name --json", "hist state.hex both", "hist app:numbers/a.log2 -v c program", "hist task program both", "hist cpu both",
                              "top both -f 'cpu == 1'"})
    expect_the_same(command);
}

// A compressed recording says what the other one says, at one place or all of it.
TEST_F(Jobs, Compressed) {
  test::random_recording(dir + "/r", ClockInfo{}, 9, 4096, test::Of::both);
  test::random_recording(dir + "/c", ClockInfo{}, 9, 4096, test::Of::both, 50, true);
  for (const std::string command : {"report ", "report --json ", "report --time +1s..+100s ", "top ", "hist task ",
                                    "latency app:state app:numbers --slowest 3 "}) {
    EXPECT_EQ(ringside(command + "c").out, ringside(command + "r").out) << command;
    expect_the_same(command + "c");
  }
}

// What stands behind a damaged sub-buffer is not read, wherever the cuts are.
TEST_F(Jobs, ADamagedRing) {
  test::random_recording(dir + "/r", ClockInfo{}, 3, 4096);
  const u64 huge = 0xFFFFF;
  std::fstream(dir + "/r/ring2.raw", std::ios::in | std::ios::out | std::ios::binary).seekp(2 * 4096 + 8).write(reinterpret_cast<const char*>(&huge), 8);
  for (const char* command : {"report r", "top r", "hist a r"}) expect_the_same(command);
}

TEST_F(Jobs, AReaderThatGoes) {
  test::random_recording(dir + "/r", ClockInfo{}, 3, 4096);
  EXPECT_EQ(ringside("report r --jobs 3 | head -n 1 | wc -l").out, "1\n");
}

}  // namespace
}  // namespace ringside::jobs_test
