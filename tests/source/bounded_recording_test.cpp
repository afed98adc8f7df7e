// Recordings of a bounded size: the oldest sub-buffers of all rings go, each is counted, and what stays is readable at any
// moment.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "cli/hand_made.hpp"
#include "source/recording.hpp"
#include "timeline/merge.hpp"

namespace ringside::bounded_recording_test {
namespace {

namespace fs = std::filesystem;
using test::SubBuffer;

struct BoundedRecording : testing::Test {
  std::string dir = (fs::temp_directory_path() / ("ringside-bounded-" + std::to_string(getpid()))).string();
  void SetUp() override { fs::remove_all(dir); }
  void TearDown() override { fs::remove_all(dir); }

  // The times of a ring's events; `problems` are added up.
  std::map<u32, std::vector<u64>> read(u64& lost, std::vector<std::string>& problems) const {
    std::map<u32, std::vector<u64>> times;
    const auto meta = RecordingMeta::read(dir);
    EXPECT_TRUE(meta) << meta.error().sentence;
    auto sources = open_recording(dir, *meta);
    EXPECT_TRUE(sources) << sources.error().sentence;
    for (auto& source : *sources) {
      const u32 ring = source->name().ring;
      std::vector<std::unique_ptr<Source>> one;
      one.push_back(std::move(source));
      Timeline timeline(std::move(one));
      for (TraceRecord r; timeline.next(r);) {
        if (r.lost != 0) lost += r.lost;
        else times[ring].push_back(r.time);
      }
      problems.insert(problems.end(), timeline.problems().begin(), timeline.problems().end());
    }
    return times;
  }
  u64 blocks() const {
    u64 sum = 0;
    for (const char* file : {"/ring2.raw", "/ring3.raw"}) {
      struct stat st {};
      EXPECT_EQ(::stat((dir + file).c_str(), &st), 0);
      sum += static_cast<u64>(st.st_blocks) * 512;
    }
    return sum;
  }
};

TEST_F(BoundedRecording, KeepsTheNewestAndCountsTheRest) {
  constexpr u64 most = 65536;
  auto w = RecordingWriter::create(dir, ClockInfo{}, most);
  if (!w && w.error().code == std::errc::operation_not_supported) GTEST_SKIP() << w.error().sentence;
  ASSERT_TRUE(w) << w.error().sentence;
  ASSERT_TRUE(w->add_ring({2, 10, 11, "task", "process"}, 4096));
  ASSERT_TRUE(w->add_ring({3, 10, 12, "other", "process"}, 4096));
  std::mt19937 random(1);
  std::map<u32, std::vector<u64>> written;
  u64 time = 100;
  for (int round = 0; round < 300; ++round) {
    // Ring 2 is busy; ring 3's sub-buffers grow bit by bit.
    const u32 ring = random() % 4 == 0 ? 3 : 2;
    SubBuffer s(time);
    u32 seen = 0;
    u64 last = time;  // of the event in front of a part
    for (int part = 0; part < (ring == 3 ? 3 : 1); ++part) {
      const u64 front = last;
      for (u32 n = 1 + random() % 40; n > 0; --n, time += 10) {
        s.event(last = time, {1, 1});
        written[ring].push_back(time);
      }
      SubBufferView view = s.view();
      view.begin = seen;
      if (part != 0) view.time = front;
      seen = view.end;
      ASSERT_TRUE(w->append(ring, view));
    }
    if (round % 7 != 0) continue;
    ASSERT_TRUE(w->save());
    EXPECT_LE(blocks(), most);
    u64 lost = 0;
    std::vector<std::string> problems;
    const auto kept = read(lost, problems);
    EXPECT_EQ(lost, 0u);
    EXPECT_TRUE(problems.empty()) << problems.front();
    u64 all = 0, here = 0;
    for (const auto& [number, times] : written) {
      all += times.size();
      const auto found = kept.find(number);
      if (found == kept.end()) continue;
      here += found->second.size();
      ASSERT_LE(found->second.size(), times.size());
      EXPECT_TRUE(std::equal(found->second.rbegin(), found->second.rend(), times.rbegin()))
          << "ring " << number << " does not hold its newest events";
    }
    EXPECT_EQ(here + w->meta().removed().events, all);
  }
  ASSERT_TRUE(w->finish(0));
  EXPECT_GT(w->meta().removed().events, 1000u);
  const auto meta = RecordingMeta::read(dir);
  EXPECT_EQ(meta->removed().events, w->meta().removed().events);
  EXPECT_EQ(meta->max_size, most);
}

}  // namespace
}  // namespace ringside::bounded_recording_test
