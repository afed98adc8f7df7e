// A slice of a trace is what a filter of the whole by time leaves, whatever the index skips.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "cli/hand_made.hpp"
#include "consumer/reading.hpp"
#include "export/recording_as_dat.hpp"
#include "own_root.hpp"
#include "property/rounds.hpp"

namespace ringside::slice_test {
namespace {

using test::Payload;
using test::SubBuffer;

struct Record {
  u64 time = 0, lost = 0;
  u32 source = 0;
  std::vector<u8> payload{};
  bool operator==(const Record&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Record& r) {
  return out << r.time << " ns, ring " << r.source << ", lost " << r.lost;
}

std::unique_ptr<Reading> opened(const std::string& where, const Window& window) {
  Reading::Options options;
  options.where = {where};
  options.window = window;
  return must(Reading::open(std::move(options)));
}

void append(Reading& reading, std::vector<Record>& out) {
  reading.take_rest([&](const TraceRecord& r, const RingName&, Reading::Got) {
    out.push_back({r.time, r.lost, r.source, {r.payload.data, r.payload.data + r.payload.size}});
  });
  EXPECT_TRUE(reading.trace().timeline.problems().empty());
}

std::vector<Record> records(const std::string& where, const Window& window) {
  std::vector<Record> out;
  append(*opened(where, window), out);
  return out;
}

// The definition.
std::vector<Record> filtered(const std::vector<Record>& whole, const Window& window) {
  const u64 begin = whole.empty() ? 0 : whole.front().time;
  const u64 from = window.from.given ? window.from.at(begin) : 0, until = window.until.given ? window.until.at(begin) : ~u64{0};
  std::map<u32, u64> last;
  std::vector<Record> out;
  if (from > until) return out;
  for (Record r : whole) {
    const u64 before = std::exchange(last[r.source], r.time);
    if (r.time < from || (r.time > until && (r.lost == 0 || before >= until))) continue;
    r.time = std::min(r.time, until);
    out.push_back(std::move(r));
  }
  return out;
}

// Rings of small sub-buffers, some without events, with equal times at their seams. backwards: the times of some rings go back.
void random_rings(const std::string& dir, std::mt19937_64& random, bool backwards) {
  auto w = must(RecordingWriter::create(dir, ClockInfo{}));
  w.meta().events.push_back({61441, "app", "malloc", test::malloc_format(61441), true});
  w.meta().events.push_back({1, "kern", "malloc", test::malloc_format(1), true, true});
  for (u32 ring = 0, rings = 1 + random() % 4; ring < rings; ++ring) {
    const bool kernel = random() % 2 == 0;
    const auto tid = static_cast<i32>(kernel ? 0 : 100 + ring);
    must(w.add_ring({ring, tid, tid, "t", "p", kernel}, 4096));
    u64 time = 1000 + random() % 2000;
    for (u64 page = 0, pages = random() % 40; page < pages; ++page) {
      if (backwards && random() % 20 == 0) time -= random() % 500;
      SubBuffer s(time);
      for (u64 n = random() % 8; n > 0; --n)
        s.event(time += random() % 4 == 0 ? 0 : random() % 60, Payload(kernel ? 1 : 61441, tid).put(random()).put(page));
      must(w.append(ring + (kernel ? RecordingWriter::kernel_rings : 0), s.view(random() % 4 == 0 ? 1 + random() % 9 : 0)));
      time += random() % 5 == 0 ? random() % 300 : 0;
    }
  }
  must(w.finish(1));
}

Window random_window(const std::vector<Record>& whole, std::mt19937_64& random) {
  const auto moment = [&] {
    const u64 time = whole.empty() ? random() % 5000 : whole[random() % whole.size()].time + random() % 3 - 1;
    const u64 begin = whole.empty() ? 0 : whole.front().time;
    const bool relative = random() % 2 == 0 && time >= begin;
    return Moment{relative ? time - begin : time, random() % 5 != 0, relative};
  };
  return {{}, moment(), moment()};
}

struct SliceTest : testing::Test {
  test::OwnRoot root;
  const std::string dir = root.path() + "/r", dat = root.path() + "/r.dat";
};

TEST_F(SliceTest, IsAFilterOfTheWhole) {
  for (u64 seed = 0; seed < test::rounds(150) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const bool backwards = seed % 3 == 0;
    random_rings(dir, random, backwards);
    if (!backwards) must(export_recording(dir, dat, ""));  // a trace.dat does not say that times go back
    for (const std::string& where : backwards ? std::vector{dir} : std::vector{dir, dat}) {
      const auto whole = records(where, {});
      for (int i = 0; i < 10; ++i) {
        const Window window = random_window(whole, random);
        auto slice = records(where, window), filter = filtered(whole, window);
        // A merge of rings whose times go back has no one order.
        for (auto* one : {&slice, &filter})
          if (backwards)
            std::stable_sort(one->begin(), one->end(), [](const Record& a, const Record& b) { return a.source < b.source; });
        ASSERT_EQ(slice, filter) << where << ", " << window.from.ns << " to " << window.until.ns;
      }
    }
  }
}

// By the run or one by one: the same records, marked as late alike.
TEST_F(SliceTest, RunsAreTheSameRecords) {
  for (u64 seed = 0; seed < test::rounds(100) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    random_rings(dir, random, seed % 3 == 0);
    const auto one_by_one = opened(dir, {}), by_runs = opened(dir, {});
    std::vector<Record> expected, seen;
    TraceRecord r;
    while (one_by_one->next(r) != Reading::Got::nothing)
      expected.push_back({r.time, r.lost, r.source, {r.payload.data, r.payload.data + r.payload.size}});
    append(*by_runs, seen);
    ASSERT_EQ(seen, expected);
    EXPECT_EQ(by_runs->totals().seen(), one_by_one->totals().seen());
    EXPECT_EQ(by_runs->totals().late, one_by_one->totals().late);
    EXPECT_EQ(by_runs->trace().timeline.late(), one_by_one->trace().timeline.late());
  }
}

// However it is cut, and whether each part has a reading of its own or some have one together.
TEST_F(SliceTest, PartsMakeTheWhole) {
  for (u64 seed = 0; seed < test::rounds(100) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    random_rings(dir, random, false);
    const Window window = seed % 2 == 0 ? Window{} : random_window(records(dir, {}), random);
    const auto whole = records(dir, window);
    std::vector<u64> ends;
    if (seed % 3 == 0)
      ends = opened(dir, window)->seams(2 + static_cast<u32>(random() % 6));
    else
      for (u64 n = random() % 6; n > 0; --n)
        ends.push_back(whole.empty() ? random() : whole[random() % whole.size()].time + random() % 2);
    std::sort(ends.begin(), ends.end());
    ends.push_back(Timeline::forever);
    for (const bool ordered : {false, true}) {
      std::unique_ptr<Reading> readings[3];
      const auto sum = opened(dir, window);
      std::vector<Record> parts;
      for (size_t n = 0; n < ends.size(); ++n) {
        auto& reading = readings[random() % std::size(readings)];
        if (reading == nullptr) reading = opened(dir, window);
        reading->go_to(n == 0 ? 0 : ends[n - 1], ends[n], ordered);
        append(*reading, parts);
      }
      for (const auto& reading : readings)
        if (reading != nullptr) sum->add(*reading);
      ASSERT_EQ(parts, whole) << "ordered: " << ordered;
      u64 lost = 0, seen = 0;
      for (const Record& r : whole) lost += r.lost, seen += r.lost == 0;
      EXPECT_EQ(sum->totals().account.overrun, lost);
      EXPECT_EQ(sum->totals().seen(), seen);
    }
  }
}

// What lies far away is not looked at.
TEST_F(SliceTest, SkipsTheRest) {
  {
    auto w = must(RecordingWriter::create(dir, ClockInfo{}));
    must(w.add_ring({0, 100, 100, "t", "p"}, 4096));
    for (u64 page = 0; page < 1000; ++page) {
      SubBuffer s(page * 100);
      for (u64 n = 0; n < 10; ++n) s.event(page * 100 + n * 10, Payload(61441, 100).put(page).put(n));
      must(w.append(0, s.view()));
    }
    must(w.finish(1));
  }
  std::fstream file(dir + "/ring0.raw", std::ios::in | std::ios::out | std::ios::binary);
  for (const u64 page : {u64{3}, u64{997}}) {
    const u64 huge = 0xFFFFF;
    file.seekp(static_cast<std::streamoff>(page * 4096 + 8)).write(reinterpret_cast<const char*>(&huge), 8);
  }
  file.close();
  const auto slice = records(dir, {{}, {50'000, true, false}, {50'199, true, false}});
  ASSERT_EQ(slice.size(), 20u);
  EXPECT_EQ(slice.front().time, 50'000u);
  EXPECT_EQ(slice.back().time, 50'190u);
}

}  // namespace
}  // namespace ringside::slice_test
