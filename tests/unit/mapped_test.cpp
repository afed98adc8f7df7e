// MappedSource over a real ring in a memfd, advanced by the ring's own reader as by the kernel's ioctl; and over false data.
#include "source/mapped.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <ringside/ring/counters.hpp>
#include <ringside/ring/writer.hpp>

namespace ringside::mapped_test {
namespace {

struct Ticks {
  u64* at;
  u64 now() noexcept { return *at += 10; }
};

// Writable memory in a file, which a source maps a second time, read-only.
struct TestRing {
  explicit TestRing(u32 subbufs = 4, u32 subbuf_size = 4096) {
    ring.geometry = Geometry(subbuf_size, subbufs);
    fd = sys::Fd(memfd_create("ring", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(ring.geometry.data_size())), 0);
    data = must(sys::Region::map(fd.get(), ring.geometry.data_size(), true, "ring"));
    control.resize((control_size(ring.geometry) + 63) / 64);
    ring.control = reinterpret_cast<Control*>(control.data());
    ring.data = data.data();
    reader = std::make_unique<Reader<>>(ring);
    writer = std::make_unique<Writer<Ticks>>(ring, Ticks{&time});
    reader->update_meta();
  }
  // 28 bytes on the sub-buffer: 20 are left at its end, room for the number of missed events.
  void write(u64 value) {
    if (Slot s = writer->reserve(24)) {
      std::memcpy(s.payload, &value, 8);
      writer->commit(s);
    }
  }
  abi::MetaPage& meta() { return *reinterpret_cast<abi::MetaPage*>(ring.data); }
  sys::Region map() { return must(sys::Region::map(fd.get(), ring.geometry.data_size(), false, "ring")); }

  struct alignas(64) Line {
    u8 bytes[64] = {};
  };
  Ring ring;
  sys::Fd fd;
  sys::Region data;
  std::vector<Line> control;
  u64 time = 1000;
  std::unique_ptr<Reader<>> reader;
  std::unique_ptr<Writer<Ticks>> writer;
};

// The kernel's way: the meta-page is the only information.
struct ByMetaPage {
  TestRing* ring;
  result<ReaderStep> get_reader() {
    ring->reader->get_reader();
    return ReaderStep{};
  }
  result<bool> wait(int, std::chrono::nanoseconds) { return false; }
};
using TestSource = MappedSource<ByMetaPage>;

TestSource source_of(TestRing& ring, bool copies = false) {
  TestSource::Options options;
  options.copies = copies;
  return TestSource(ring.map(), ring.ring.geometry, ByMetaPage{&ring}, options);
}

struct Seen {
  std::vector<u64> values, times;
  u64 lost = 0;
  std::string gaps;  // "12@3": 12 lost before the value 3
};
void read_all(Source& source, Seen& seen) {
  for (;;) {
    auto view = source.next();
    ASSERT_TRUE(view) << view.error().sentence;
    if (!*view) return;
    seen.lost += (*view)->lost_before;
    bool first = true;
    abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
    while (c.next()) {
      u64 value = 0;
      std::memcpy(&value, c.payload().data, 8);
      if (first && (*view)->lost_before != 0)
        seen.gaps += std::to_string((*view)->lost_before) + "@" + std::to_string(value) + " ";
      first = false;
      seen.values.push_back(value);
      seen.times.push_back(c.time());
    }
    ASSERT_EQ(c.malformed(), abi::Malformed::no);
  }
}

// kernel-facts, "What the kernel's own tests check": map_test.c.
TEST(Mapped, StepsMatchTheKernels) {
  TestRing t;
  TestSource source = source_of(t);
  const abi::MetaPage& m = source.meta();
  EXPECT_EQ(m.meta_page_size, 4096u);
  EXPECT_EQ(m.meta_struct_len, 80u);
  EXPECT_EQ(m.nr_subbufs, 4u);
  ASSERT_FALSE(must(source.next()));
  EXPECT_EQ(m.entries, 0u);
  EXPECT_EQ(m.reader.id, 0u);
  for (u64 i = 0; i < 16; ++i) t.write(i);
  EXPECT_EQ(m.entries, 0u);  // not updated by every write
  auto view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(m.entries, 16u);
  EXPECT_EQ(m.overrun, 0u);
  EXPECT_EQ(m.read, 16u);
  EXPECT_EQ(m.reader.id, 1u);
  EXPECT_EQ(m.reader.lost_events, 0u);
  EXPECT_EQ(m.reader.read, view->end);
  EXPECT_EQ(view->begin, 0u);
  ASSERT_FALSE(must(source.next()));
  EXPECT_EQ(m.read, 16u);
  EXPECT_EQ(m.reader.id, 1u);
  t.write(16);  // the same sub-buffer, further on
  const u32 before = view->end;
  view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->begin, before);
  EXPECT_EQ(m.reader.id, 1u);
  EXPECT_EQ(m.read, 17u);
}

TEST(Mapped, EveryWayOfReadingGivesEachEventAndItsTime) {
  for (const bool copies : {false, true}) {
    TestRing t(5);
    TestSource source = source_of(t, copies);
    Seen seen;
    u64 value = 0;
    for (u32 round = 0; round < 300; ++round) {
      for (u32 i = 0; i < round % 97; ++i) t.write(value++);
      read_all(source, seen);
    }
    ASSERT_EQ(seen.values.size(), value);
    EXPECT_EQ(seen.lost, 0u);
    for (u64 i = 0; i < value; ++i) ASSERT_EQ(seen.values[i], i);
    for (u64 i = 1; i < value; ++i) ASSERT_GT(seen.times[i], seen.times[i - 1]);
    EXPECT_EQ(source.counters().read, value);
    EXPECT_EQ(source.counters().unread, 0u);
  }
}

TEST(Mapped, LossesAreReportedWhereTheyHappened) {
  TestRing t(4);
  TestSource source = source_of(t);
  Seen seen;
  u64 value = 0;
  for (u32 round = 0; round < 5; ++round) {
    for (u32 i = 0; i < 2500; ++i) t.write(value++);
    read_all(source, seen);
  }
  EXPECT_NE(seen.lost, 0u);
  EXPECT_EQ(seen.values.size() + seen.lost, value);
  u64 expected = 0;
  for (u64 i = 0; i < seen.values.size(); ++i) {
    const std::string at = "@" + std::to_string(seen.values[i]) + " ";
    if (seen.values[i] != expected) {
      EXPECT_NE(seen.gaps.find(std::to_string(seen.values[i] - expected) + at), std::string::npos) << i << seen.gaps;
    }
    expected = seen.values[i] + 1;
  }
}

TEST(Mapped, EventsReadByOthersAreNotShownAgain) {
  TestRing t;
  for (u64 i = 0; i < 10; ++i) t.write(i);
  ASSERT_EQ(t.reader->get_reader(), Got::data);
  t.write(10);
  const u64 time = t.time;
  for (u64 i = 11; i < 20; ++i) t.write(i);
  TestSource source = source_of(t);
  Seen seen;
  read_all(source, seen);
  ASSERT_EQ(seen.values.size(), 10u);
  EXPECT_EQ(seen.values[0], 10u);
  EXPECT_EQ(seen.times[0], time);
}

TEST(Mapped, TwoMappersOfOneRingSeeEverythingBetweenThem) {
  TestRing t(6);
  TestSource a = source_of(t), b = source_of(t);
  std::vector<u32> seen(4000);
  u64 value = 0;
  while (value < seen.size()) {
    for (u32 i = 0; i < 50; ++i) t.write(value++);
    for (TestSource* s : {&a, &b}) {
      Seen got;
      read_all(*s, got);
      ASSERT_EQ(got.lost, 0u);
      for (const u64 v : got.values) ++seen[v];
    }
  }
  for (u32 v = 0; v < seen.size(); ++v) ASSERT_GE(seen[v], 1u) << v;
}

TEST(Mapped, WrongNumbersInTheMetaPageAreErrorsOrClamped) {
  TestRing t;
  for (u64 i = 0; i < 10; ++i) t.write(i);
  struct Liar {
    ReaderStep step;
    result<ReaderStep> get_reader() { return step; }
    result<bool> wait(int, std::chrono::nanoseconds) { return false; }
  };
  MappedSource<Liar> source(t.map(), t.ring.geometry, Liar{{true, 1, 0, 0, false}}, {});
  for (const u32 id : {4u, 5u, 0x7FFFFFFFu, ~0u}) {
    source.get().step.id = id;
    auto view = source.next();
    ASSERT_FALSE(view);
    EXPECT_NE(view.error().sentence.find("names sub-buffer"), std::string::npos);
  }
  source.get().step = {true, 1, ~0u, 0, false};  // beyond the commit: only committed data counts
  auto view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->end, 10u * 28);
  t.ring.header(2).commit = 0xFFFFF;  // a commit beyond the sub-buffer
  source.get().step = {true, 2, ~3u, 0, false};
  view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->end, 4080u);
  // Missed events whose number would lie outside.
  for (const u64 data : {4080u, 4076u, 0xFFFFCu, 4074u}) {
    t.ring.header(3).time_stamp = data;
    t.ring.header(3).commit = data | abi::missed_events | abi::missed_stored;
    source.get().step = {true, 3, ~0u, 0, false};
    view = must(source.next());
    ASSERT_TRUE(view);
    EXPECT_EQ(view->lost_before, 1u) << data;
  }
}

TEST(Mapped, ATruncatedFileIsAnError) {
  sys::guard_mappings();
  struct Still {
    result<ReaderStep> get_reader() { return ReaderStep{}; }
    result<bool> wait(int, std::chrono::nanoseconds) { return false; }
  };
  TestRing cut;
  MappedSource<Still> still(cut.map(), cut.ring.geometry, Still{}, {});
  ASSERT_EQ(ftruncate(cut.fd.get(), 0), 0);
  (void)still.meta().reader.id;
  auto first = still.next();   // the first look reaches the hole, and reads zeros
  auto second = still.next();  // from then on it is known
  EXPECT_TRUE(!first || !*first);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().sentence.find("truncated"), std::string::npos);
}

}  // namespace
}  // namespace ringside::mapped_test
