// Compressed recordings: all events are there at any moment, also after a kill, in order and once; ranges of time are found;
// damage is told.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "cli/hand_made.hpp"
#include "source/recording.hpp"
#include "timeline/merge.hpp"

namespace ringside::compressed_recording_test {
namespace {

namespace fs = std::filesystem;
using test::SubBuffer;

constexpr u32 size = 4096, per_group = group_size / size;
constexpr u64 step = 10;

struct CompressedRecording : testing::Test {
  std::string dir = (fs::temp_directory_path() / ("ringside-compressed-" + std::to_string(getpid()))).string();
  void SetUp() override { fs::remove_all(dir); }
  void TearDown() override { fs::remove_all(dir); }

  std::optional<RecordingWriter> create() const {
    auto w = RecordingWriter::create(dir, ClockInfo{}, 0, true);
    if (!w) return std::nullopt;
    EXPECT_TRUE(w->add_ring({2, 10, 11, "task", "process"}, size));
    return std::move(*w);
  }
  // The next sub-buffer, of events at the times step, 2 * step, ...; in two parts, the second of which grows the first.
  static void append(RecordingWriter& w, u64& time, u32 events, u64 lost = 0) {
    SubBuffer s(time + step, size);
    u32 middle = 0;
    for (u32 n = 0; n < events; ++n) {
      if (n == events / 2) middle = s.end();
      time += step;
      s.event(time, test::Payload(1, 11).put(time));
    }
    SubBufferView first = s.view(lost), second = s.view();
    first.end = second.begin = middle;
    second.time = time - step * (events - events / 2);
    ASSERT_TRUE(w.append(2, first));
    ASSERT_TRUE(w.append(2, second));
  }
  std::vector<std::unique_ptr<Source>> sources() const {
    const auto meta = RecordingMeta::read(dir);
    EXPECT_TRUE(meta) << meta.error().sentence;
    auto opened = open_recording(dir, *meta);
    EXPECT_TRUE(opened) << opened.error().sentence;
    return opened ? std::move(*opened) : std::vector<std::unique_ptr<Source>>();
  }
  struct Read {
    std::vector<u64> times{};
    u64 lost = 0;
    std::vector<std::string> problems{};
  };
  static Read read(Timeline& timeline) {
    Read out;
    for (TraceRecord r; timeline.next(r);) {
      if (r.lost != 0)
        out.lost += r.lost;
      else
        out.times.push_back(r.time);
    }
    out.problems = timeline.problems();
    return out;
  }
  Read read() const {
    Timeline timeline(sources());
    return read(timeline);
  }
  static void expect_all(const Read& got, u64 time) {
    EXPECT_TRUE(got.problems.empty()) << got.problems.front();
    ASSERT_EQ(got.times.size(), time / step);
    for (size_t i = 0; i < got.times.size(); ++i) ASSERT_EQ(got.times[i], (i + 1) * step);
  }
};

TEST_F(CompressedRecording, AllOfItIsThereAtAnyMoment) {
  auto w = create();
  if (!w) GTEST_SKIP() << "this file system frees no parts of files";
  std::mt19937 random(1);
  u64 time = 0, lost = 0;
  for (u32 n = 0; n < 20 * per_group; ++n) {
    const u64 gap = random() % 50 == 0 ? 3 : 0;
    append(*w, time, 2 + random() % 100, gap);
    lost += gap;
    if (n % 101 != 0) continue;
    const Read got = read();  // while the other thread moves what is read
    expect_all(got, time);
    EXPECT_EQ(got.lost, lost);
  }
  ASSERT_TRUE(w->finish(0));
  EXPECT_FALSE(fs::exists(dir + "/ring2.raw"));
  EXPECT_LT(w->compressed_bytes() * 4, w->meta().rings[0].bytes);
  EXPECT_EQ(fs::file_size(dir + "/ring2.zst"), w->compressed_bytes());
  const Read got = read();
  expect_all(got, time);
  EXPECT_EQ(got.lost, lost);
  for (int n = 0; n < 100; ++n) {
    const u64 from = random() % time, until = from + random() % (time / 20);
    Timeline timeline(sources());
    ASSERT_NE(timeline.source(0).sub_buffers(), 0u);
    timeline.narrow(from, until);
    const Read part = read(timeline);
    ASSERT_LT(part.times.size(), got.times.size() / 4);
    const auto wanted = [&](const std::vector<u64>& times) {
      return std::vector<u64>(std::lower_bound(times.begin(), times.end(), from),
                              std::upper_bound(times.begin(), times.end(), until));
    };
    ASSERT_EQ(wanted(part.times), wanted(got.times));
  }
  const auto seams = Timeline(sources()).seams(4, 0, ~u64{0});
  ASSERT_EQ(seams.size(), 3u);
  EXPECT_NEAR(static_cast<double>(seams[1]), static_cast<double>(time) / 2, static_cast<double>(time) / 8);
}

TEST_F(CompressedRecording, AKilledRecorder) {
  if (!create()) GTEST_SKIP() << "this file system frees no parts of files";
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto w = create();
      for (u64 time = 0;;) {
        append(*w, time, 100);
        if (::write(told[1], &time, sizeof time) != sizeof time) _exit(1);
      }
    }
    ::close(told[1]);
    u64 time = 0, next = 0;
    for (u32 n = per_group / 2 + random() % (6 * per_group); n > 0 && ::read(told[0], &next, sizeof next) == sizeof next; --n)
      time = next;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (::read(told[0], &next, sizeof next) == sizeof next) time = next;
    ::close(told[0]);
    const Read got = read();
    ASSERT_GE(got.times.size() * step, time);  // it may have died between an event and its word
    expect_all(got, got.times.size() * step);
  }
}

TEST_F(CompressedRecording, Damage) {
  auto w = create();
  if (!w) GTEST_SKIP() << "this file system frees no parts of files";
  u64 time = 0;
  for (u32 n = 0; n < 3 * per_group; ++n) append(*w, time, 100);
  ASSERT_TRUE(w->finish(0));
  const std::string file = dir + "/ring2.zst";
  const u64 whole = fs::file_size(file);
  std::mt19937 random(3);
  for (int n = 0; n < 200; ++n) {
    const u64 at = random() % whole;
    std::fstream change(file, std::ios::in | std::ios::out | std::ios::binary);
    const int was = change.seekg(static_cast<std::streamoff>(at)).get();
    change.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(was ^ (1 << (random() % 8)))).flush();
    const Read got = read();
    if (got.problems.empty()) expect_all(got, time);  // it hit what fills up a group
    for (size_t i = 0; i < got.times.size(); ++i) ASSERT_EQ(got.times[i], (i + 1) * step);
    for (const u64 from : {u64{0}, time / 2, time}) {
      Timeline timeline(sources());
      timeline.narrow(from, from + 100);
      (void)read(timeline);
    }
    change.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(was));
  }
  expect_all(read(), time);
  fs::resize_file(file, whole / 2);
  const Read got = read();
  ASSERT_EQ(got.problems.size(), 1u);
  EXPECT_NE(got.problems[0].find("no sequence of groups"), std::string::npos) << got.problems[0];
  EXPECT_LT(got.times.size(), time / step);
}

}  // namespace
}  // namespace ringside::compressed_recording_test
