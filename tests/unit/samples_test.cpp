// The kernel's ring of samples made by hand, and events packed into sub-buffers.
#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <cstring>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>

#include "kernel/perf_ring.hpp"
#include "record/sample_feed.hpp"
#include "source/packer.hpp"

namespace ringside::samples_test {
namespace {

struct RingBytes {
  std::vector<u8> bytes = std::vector<u8>(256);
  u64 head = 0;

  void put(const void* from, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes[(head + i) % bytes.size()] = static_cast<const u8*>(from)[i];
    head += size;
  }
  template <class... Values>
  void record(u32 type, u16 misc, Values... values) {
    const perf_event_header header{type, misc, static_cast<u16>(sizeof(perf_event_header) + (sizeof values + ... + 0))};
    put(&header, sizeof header);
    (put(&values, sizeof values), ...);
  }
  PerfRecords from(u64 tail) const { return {bytes.data(), bytes.size(), tail, head}; }
};

struct Text8 {
  char text[8];
};
constexpr i32 pid = 70, tid = 71;

TEST(PerfRing, RecordsAreReadAlsoAcrossItsEnd) {
  RingBytes ring;
  for (u64 start = 0; start < 256; start += 8) {
    ring.head = start;
    ring.record(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, pid, tid, Text8{"server"}, pid, tid, u64{1000});
    ring.record(PERF_RECORD_SAMPLE, 0, pid, tid, u64{2000}, u64{2}, u64{0x10}, u64{0x20});
    ring.record(PERF_RECORD_FORK, 0, i32{80}, pid, i32{81}, tid, u64{3000}, i32{80}, i32{81}, u64{3000});
    ring.record(PERF_RECORD_LOST, 0, u64{1}, u64{17}, pid, tid, u64{4000});
    PerfRecords records = ring.from(start);
    auto r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->kind, PerfRecord::Kind::name);
    EXPECT_TRUE(r->exec);
    EXPECT_EQ(r->text, "server");
    EXPECT_EQ(r->tid, tid);
    EXPECT_EQ(r->time, 1000u);
    r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->kind, PerfRecord::Kind::sample);
    EXPECT_EQ(r->time, 2000u);
    ASSERT_EQ(r->chain.size, 16u);
    u64 second = 0;
    std::memcpy(&second, r->chain.data + 8, 8);
    EXPECT_EQ(second, 0x20u);
    r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->kind, PerfRecord::Kind::fork);
    EXPECT_EQ(r->pid, 80);
    EXPECT_EQ(r->maker, pid);
    r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->lost, 17u);
    EXPECT_FALSE(records.next());
    EXPECT_FALSE(records.malformed());
    EXPECT_EQ(records.tail(), ring.head);
  }
}

TEST(PerfRing, MapsHaveTheirBuildIds) {
  RingBytes ring;
  struct BuildId {
    u8 size = 20, reserved[3] = {}, id[20] = {0xAB, 1};
  };
  ring.record(PERF_RECORD_MMAP2, PERF_RECORD_MISC_MMAP_BUILD_ID, pid, tid, u64{0x1000}, u64{0x2000}, u64{0x3000}, BuildId{}, u32{5}, u32{2}, Text8{"/bin/x"}, pid, tid, u64{9});
  const auto r = ring.from(0).next();
  ASSERT_TRUE(r);
  EXPECT_EQ(r->kind, PerfRecord::Kind::map);
  EXPECT_EQ(r->start, 0x1000u);
  EXPECT_EQ(r->size, 0x2000u);
  EXPECT_EQ(r->offset, 0x3000u);
  EXPECT_EQ(r->text, "/bin/x");
  ASSERT_EQ(r->build_id.size, 20u);
  EXPECT_EQ(r->build_id.data[0], 0xAB);
}

TEST(PerfRing, WhatDoesNotAddUpIsCounted) {
  for (const u16 size : {0, 4, 9, 248, 65528}) {  // of a record that says so
    RingBytes ring;
    const perf_event_header header{PERF_RECORD_SAMPLE, 0, size};
    ring.put(&header, sizeof header);
    PerfRecords records = ring.from(0);
    EXPECT_FALSE(records.next()) << size;
    EXPECT_TRUE(records.malformed()) << size;
    EXPECT_EQ(records.tail(), ring.head) << size;
  }
  RingBytes ring;
  ring.record(PERF_RECORD_SAMPLE, 0, pid, tid, u64{1}, u64{1} << 61);  // more frames than bytes
  ring.record(PERF_RECORD_COMM, 0);
  PerfRecords records = ring.from(0);
  EXPECT_EQ(records.next()->kind, PerfRecord::Kind::other);
  EXPECT_EQ(records.next()->kind, PerfRecord::Kind::other);
  EXPECT_TRUE(records.malformed());
  EXPECT_EQ(records.tail(), ring.head);
  PerfRecords beyond(ring.bytes.data(), ring.bytes.size(), 0, 1000);
  EXPECT_FALSE(beyond.next());
  EXPECT_TRUE(beyond.malformed());
}

TEST(Packing, EventsComeBackWithTheirTimes) {
  Packer packer(4096);
  std::vector<std::pair<u64, std::vector<u8>>> in, out;
  u64 time = u64{1} << 60;
  std::vector<u64> ends;
  for (u32 i = 0; i < 300; ++i) {
    time += i % 7 == 0 ? u64{1} << 33 : i;
    const std::vector<u8> payload(8 + i * 11 % 900, static_cast<u8>(i));
    const Bytes bytes{payload.data(), payload.size()};
    const auto read = [&] {
      const SubBufferView view = packer.take();
      abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
      while (c.next()) out.push_back({c.time(), std::vector<u8>(c.payload().data, c.payload().data + payload.size())});
      EXPECT_EQ(c.malformed(), abi::Malformed::no);
      return view.begin;
    };
    if (!packer.add(time, bytes)) {
      packer.restart();
      ASSERT_TRUE(packer.add(time, bytes));
    }
    read();
    in.push_back({time, payload});
  }
  EXPECT_EQ(in.size(), out.size());
  EXPECT_TRUE(in == out);
  const std::vector<u8> large(4100);
  EXPECT_FALSE(packer.holds(large.size()));
  packer.restart();
  EXPECT_FALSE(packer.add(time, {large.data(), large.size()}));
  ASSERT_TRUE(packer.add(time, {large.data(), 8}));
  packer.take();
  packer.lost(5);
  ASSERT_TRUE(packer.add(time - 100, {large.data(), 8}));  // a time that goes back is the last one's
  const SubBufferView view = packer.take();
  EXPECT_EQ(view.lost_before, 5u);
  abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
  ASSERT_TRUE(c.next());
  EXPECT_EQ(c.time(), time);
  EXPECT_FALSE(packer.pending());
}

// Whatever the rate: what was read between two readings of the ticks lies between them.
TEST(RawTime, BecomesTicksOfThatMoment) {
  RawToTicks clock;
  for (int i = 0; i < 100; ++i) {
    timespec t{};
    const u64 before = read_ticks();
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    const u64 after = read_ticks();
    clock.now();
    const u64 ticks = clock.ticks(static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec));
    constexpr u64 slack = 10'000;  // of ticks: some microseconds
    EXPECT_GT(ticks + slack, before);
    EXPECT_LT(ticks, after + slack);
  }
}

}  // namespace
}  // namespace ringside::samples_test
