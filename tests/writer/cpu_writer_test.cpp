// The writer of CPU rings against the writer of a thread's ring: the same events at the same times give the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <ringside/ring/iterate.hpp>
#include <ringside/ring/writer.hpp>

#include "cpu_rings.hpp"
#include "writer/ring_pages.hpp"

#if RS_TEST_RSEQ

namespace ringside::test::cpu_writer_test {
namespace {

// A clock that the sequences cannot read: they are given its time.
struct GivenClock {
  u64* time;
  bool in_sequence() const noexcept { return false; }
  u64 now() noexcept { return *time; }
};

// The outcome of the tries.
struct Tries {
  u64 usual, timed, append, enter;  // the successful ones
  u64 not_usual, moved, aborted, late;
};
Tries tries;

struct Counted {
  static u32 cpu(i64 area) noexcept { return Rseq::cpu(area); }
  template <u32 known>
  static Sequence append_usual(i64 area, const CpuRings& rings, const Shape& shape, const void* payload) noexcept {
    const Sequence s = Rseq::append_usual<known>(area, rings, shape, payload);
    ++(s == Sequence::done ? tries.usual : s == Sequence::moved ? tries.not_usual : tries.aborted);
    return s;
  }
  template <class C>
  static Sequence append_timed(i64 area, const CpuRings& rings, const Shape& shape, const void* payload, C& clock, bool watch) noexcept {
    const Sequence s = Rseq::append_timed(area, rings, shape, payload, clock, watch);
    ++(s == Sequence::done ? tries.timed : s == Sequence::moved ? tries.not_usual : tries.aborted);
    return s;
  }
  static Guard arm(i64 area, bool watch) noexcept { return Rseq::arm(area, watch); }
  static void disarm(i64 area) noexcept { Rseq::disarm(area); }
  static Sequence append(i64 area, const Append& a, const Guard& guard) noexcept { return count(Rseq::append(area, a, guard), tries.append); }
  static Sequence refuse(i64 area, const Refuse& a) noexcept { return Rseq::refuse(area, a); }
  static Sequence enter(i64 area, const Enter& a) noexcept { return count(Rseq::enter(area, a), tries.enter); }

 private:
  static Sequence count(Sequence s, u64& done) {
    ++(s == Sequence::done ? done : s == Sequence::moved ? tries.moved : s == Sequence::late ? tries.late : tries.aborted);
    return s;
  }
};

// This thread stays on one CPU, so its events are in one ring.
class OnOneCpu {
 public:
  OnOneCpu() : allowed_(allowed_cpus()), cpu(allowed_.front()) { pin(0, cpu); }
  ~OnOneCpu() {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (u32 c : allowed_) CPU_SET(c, &set);
    sched_setaffinity(0, sizeof set, &set);
  }

 private:
  std::vector<u32> allowed_;

 public:
  const u32 cpu;
};

// Two rings with the same stale bytes in them: one for a CPU's writer, one for a thread's.
class Pair {
 public:
  explicit Pair(u32 nr_subbufs = 4, bool discard = false, u32 subbuf_size = 4096, bool usual = false)
      : set(subbuf_size, nr_subbufs, discard, usual),
        ring(set[here.cpu]),
        other(shared_ring(subbuf_size, nr_subbufs, discard)),
        writer(other, SetClock{&time}),
        reader(ring),
        other_reader(other) {
    std::memset(ring.data + subbuf_size, 0x5A, ring.geometry.data_size() - subbuf_size);
    std::memset(other.data + subbuf_size, 0x5A, ring.geometry.data_size() - subbuf_size);
    for (const Ring& r : {ring, other})
      for (u32 id = 0; id < nr_subbufs; ++id) r.header(id) = {};
    tries = {};
  }
  ~Pair() { unmap(other); }

  Refused write(const void* payload, u32 size) { return cpu_writer.write(set.rings(), rseq_area(), payload, size); }
  void both(const void* payload, u32 size, u64 at) {
    time = at;
    const Reservation slot = writer.reserve(size);
    if (slot) {
      if (size != 0) std::memcpy(slot.payload, payload, size);
      writer.commit(slot);
    }
    ASSERT_EQ(write(payload, size), slot.why) << "size " << size;
  }
  // All bytes, and all numbers.
  void expect_same() {
    for (u32 id = 0; id < ring.geometry.nr_subbufs(); ++id) {
      ASSERT_EQ(0, std::memcmp(ring.subbuf(id) + 16, other.subbuf(id) + 16, ring.geometry.capacity()))
          << "sub-buffer " << id << "\n" << hex(ring.subbuf(id), 256) << "\n\n" << hex(other.subbuf(id), 256);
    }
    const RingCounters n = counters<>(ring), m = counters<>(other);
    EXPECT_EQ(n.written, m.written);
    EXPECT_EQ(n.read, m.read);
    EXPECT_EQ(n.overrun, m.overrun);
    EXPECT_EQ(n.unread, m.unread);
    EXPECT_EQ(n.dropped, m.dropped);
    EXPECT_EQ(n.pages_touched, m.pages_touched);
    EXPECT_EQ(broken<>(ring), nullptr);
  }
  // The bytes for a reader, from the header and its flags to the last byte.
  bool read_both(bool meta = true) {
    const Got got = reader.get_reader(meta), other_got = other_reader.get_reader(meta);
    EXPECT_EQ(got, other_got);
    if (got != Got::data || other_got != Got::data) return false;
    const ReaderView &v = reader.view(), &w = other_reader.view();
    EXPECT_EQ(v.id, w.id);
    EXPECT_EQ(v.begin, w.begin);
    EXPECT_EQ(v.end, w.end);
    EXPECT_EQ(v.events, w.events);
    EXPECT_EQ(v.lost_before, w.lost_before);
    EXPECT_EQ(v.first_index, w.first_index);
    EXPECT_EQ(v.left, w.left);
    EXPECT_EQ(ring.header(v.id).commit, other.header(w.id).commit);
    EXPECT_EQ(ring.header(v.id).time_stamp, other.header(w.id).time_stamp);
    EXPECT_EQ(0, std::memcmp(ring.subbuf(v.id), other.subbuf(w.id), ring.geometry.subbuf_size()))
        << hex(ring.subbuf(v.id), 64) << "\n\n" << hex(other.subbuf(w.id), 64);
    if (meta) {
      EXPECT_EQ(0, std::memcmp(ring.data, other.data, sizeof(abi::MetaPage)));
    }
    return true;
  }
  void read_all(bool meta = true) {
    while (read_both(meta) && !testing::Test::HasFailure()) {
    }
    expect_same();
  }

  OnOneCpu here;
  CpuRingSet set;
  const Ring ring, other;
  u64 time = 1000;
  CpuWriter<GivenClock, Counted> cpu_writer{GivenClock{&time}};
  Writer<SetClock> writer;
  Reader<> reader, other_reader;
};

struct CpuWriterTest : testing::Test {
  void SetUp() override {
    if (!rseq_registered()) GTEST_SKIP() << "this thread has no rseq area";
    for (size_t i = 0; i < sizeof payload; ++i) payload[i] = static_cast<u8>(i * 7 + i / 256 + 1);
  }
  u8 payload[8192];
};

TEST_F(CpuWriterTest, EverySizeGivesTheSameBytes) {
  Pair p(200);
  for (u32 size = 0; size <= 600 && !HasFatalFailure(); ++size) p.both(payload + size % 5, size, 1000 + size * 37);
  p.expect_same();
  EXPECT_EQ(tries.usual, 0u);
  EXPECT_GT(tries.timed, 400u);
  EXPECT_EQ(tries.timed + tries.append, 601u);
  p.read_all();
  EXPECT_EQ(counters<>(p.ring).read, 601u);
}

// The usual sequence reads the time stamp counter itself: the thread's ring gets the times of the CPU's ring.
TEST_F(CpuWriterTest, TheUsualSequenceGivesTheSameBytes) {
  Pair p(200, false, 4096, true);
  const CpuWriter<TickClock, Counted> usual{TickClock{}};
  for (u32 size = 0; size <= 600; ++size)
    ASSERT_EQ(usual.write(p.set.rings(), rseq_area(), payload + size % 5, size), Refused::no);
  EXPECT_GT(tries.usual, 400u);
  Reader<> reader(p.ring);
  u32 size = 0;
  std::vector<u64> times;
  while (reader.get_reader(false) == Got::data) {
    abi::EventCursor c(reader.data(), reader.view().begin, reader.view().end, p.ring.header(reader.view().id).time_stamp);
    while (c.next()) times.push_back(c.time());
  }
  ASSERT_EQ(times.size(), 601u);
  for (u64 at : times) {
    p.time = at;
    p.writer.write(payload + size % 5, size);
    ++size;
  }
  Reader<> other(p.other);
  while (other.get_reader(false) == Got::data) {
  }
  for (u32 id = 0; id < 200; ++id)
    ASSERT_EQ(0, std::memcmp(p.ring.subbuf(id), p.other.subbuf(id), 4096)) << id << "\n" << hex(p.ring.subbuf(id), 256);
}

// A size that is known at compile time gives the same bytes, however little room there is.
template <u32 known>
void known_sizes(const CpuRingSet& set, const u8* payload, std::vector<u32>& sizes) {
  const CpuWriter<TickClock, Counted> usual{TickClock{}};
  for (int i = 0; i < 300; ++i, sizes.push_back(known))
    ASSERT_EQ(usual.write<known>(set.rings(), rseq_area(), payload + i % 5, known), Refused::no);
  if constexpr (known < most_known) known_sizes<known + 4>(set, payload, sizes);
}
TEST_F(CpuWriterTest, SizesKnownWhenCompiledGiveTheSameBytes) {
  Pair p(100, false, 4096, true);
  std::vector<u32> sizes;
  known_sizes<4>(p.set, payload, sizes);
  EXPECT_GT(tries.usual, sizes.size() * 9 / 10);
  Reader<> reader(p.ring);
  size_t n = 0;
  while (reader.get_reader(false) == Got::data) {
    abi::EventCursor c(reader.data(), reader.view().begin, reader.view().end, p.ring.header(reader.view().id).time_stamp);
    for (; c.next(); ++n) {
      ASSERT_LT(n, sizes.size());
      const u8* const from = payload + n % 300 % 5;
      ASSERT_EQ(c.payload().size, abi::event_size(sizes[n]) - 4) << n;
      ASSERT_TRUE(std::equal(from, from + sizes[n], c.payload().data)) << n;
      for (u32 b = sizes[n]; b < c.payload().size; ++b) ASSERT_EQ(c.payload().data[b], 0) << n;
    }
    ASSERT_EQ(c.malformed(), abi::Malformed::no);
  }
  EXPECT_EQ(n, sizes.size());
  for (u32 size = 1; size <= 200; ++size) {
    EXPECT_TRUE(known_size(size) == 0 ? size > 60 : known_size(size) >= size && known_size(size) < size + 4);
    if (known_size(size) != 0) {
      EXPECT_EQ(abi::event_size(known_size(size)), abi::event_size(size));
    }
  }
}

TEST_F(CpuWriterTest, TheUsualSequenceGivesTheSameBytesAfterAnyEvent) {
  // An event begins at a multiple of 4: its payload may lie across words of 8 bytes.
  Pair p(4, false, 4096, true);
  const CpuWriter<TickClock, Counted> usual{TickClock{}};
  Reader<> reader(p.ring);
  std::mt19937 random(1);
  std::vector<u8> bytes(700);
  for (int i = 0; i < 20000; ++i) {
    const u32 size = static_cast<u32>(random() % 300);
    for (u32 b = 0; b < size; ++b) bytes[b] = static_cast<u8>(random());
    ASSERT_EQ(usual.write(p.set.rings(), rseq_area(), bytes.data(), size), Refused::no);
    // It may be alone after consumed events, or on a sub-buffer of its own after padding.
    bool found = false;
    while (reader.get_reader(false) == Got::data) {
      abi::EventCursor c(reader.data(), reader.view().begin, reader.view().end, 0);
      while (c.next()) {
        ASSERT_FALSE(found);
        found = true;
        ASSERT_GE(c.payload().size, size);
        ASSERT_TRUE(std::equal(bytes.begin(), bytes.begin() + size, c.payload().data)) << size;
        for (u32 b = size; b < c.payload().size; ++b) ASSERT_EQ(c.payload().data[b], 0) << size;
      }
      ASSERT_EQ(c.malformed(), abi::Malformed::no);
    }
    ASSERT_TRUE(found);
  }
  EXPECT_GT(tries.usual, 15000u);
}

TEST_F(CpuWriterTest, TimeExtends) {
  Pair p(30);
  u64 at = 5000;
  u32 size = 0;
  for (const u64 delta : {u64{0}, u64{1}, abi::delta_limit - 1, abi::delta_limit, abi::delta_limit + 1, u64{1} << 31,
                          (u64{1} << 32) - 1, u64{1} << 32, u64{0x123456789ABC}, (u64{1} << 46) + 3, u64{7}})
    for (int i = 0; i < 70 && !HasFatalFailure(); ++i) {
      p.both(payload, size, at += i % 7 == 3 ? delta : 1);
      size = (size + 11) % 200;
    }
  p.expect_same();
  p.read_all();
}

// The widest delta that a time extend holds.
TEST_F(CpuWriterTest, WidestTimeExtend) {
  Pair p;
  p.time = 1000;
  ASSERT_EQ(p.write(payload, 8), Refused::no);
  p.time += (u64{1} << 59) - 1;
  ASSERT_EQ(p.write(payload, 8), Refused::no);
  ASSERT_EQ(p.reader.get_reader(), Got::data);
  abi::EventCursor c(p.reader.data(), 0, p.reader.view().end, 1000);
  ASSERT_TRUE(c.next());
  ASSERT_TRUE(c.next());
  EXPECT_EQ(c.time(), p.time);
}

// An event with a wider delta begins another sub-buffer, and is written.
TEST_F(CpuWriterTest, ADeltaWiderThanATimeExtendBeginsASubBuffer) {
  Pair p;
  std::vector<u64> at;
  for (const u64 step : {u64{1000}, u64{1} << 59, u64{5}, u64{1} << 62, u64{7}}) {
    at.push_back(p.time += step);
    ASSERT_EQ(p.write(payload, 8), Refused::no);
  }
  size_t n = 0;
  while (p.reader.get_reader() == Got::data) {
    abi::EventCursor c(p.reader.data(), p.reader.view().begin, p.reader.view().end,
                       p.ring.header(p.reader.view().id).time_stamp);
    for (; c.next(); ++n) EXPECT_EQ(c.time(), at.at(n));
  }
  EXPECT_EQ(n, at.size());
}

TEST_F(CpuWriterTest, ClockGoesBack) {
  Pair p(30);
  u64 at = 1'000'000;
  std::mt19937 random(3);
  for (int i = 0; i < 2000 && !HasFatalFailure(); ++i) {
    const u32 what = static_cast<u32>(random() % 8);
    const u64 step = random() % 1000;
    at = what == 0 ? at - step : what == 1 ? at - 100 * step % at / 2 : what == 2 ? at + (step << 18) : at + step;
    p.both(payload, static_cast<u32>(random() % 150), at);
  }
  p.expect_same();
  // A repeated try reads the clock again.
  EXPECT_GE(p.ring.control->backwards, p.other.control->backwards);
  EXPECT_LE(p.ring.control->backwards, p.other.control->backwards + tries.aborted + tries.moved);
  EXPECT_GT(p.other.control->backwards, 0u);
  p.read_all();
}

// Every number of bytes that may be left over at the end of a sub-buffer, read without and after a loss.
TEST_F(CpuWriterTest, LeftOverBytes) {
  for (u32 subbuf_size : {4096u, 8192u})
    for (u32 left = 0; left <= 64; left += 4)
      for (bool lost : {false, true}) {
        SCOPED_TRACE(testing::Message() << subbuf_size << " left " << left << (lost ? " lost" : ""));
        Pair p(4, false, subbuf_size);
        const u32 capacity = p.ring.geometry.capacity();
        for (u32 lap = 0; lap < (lost ? 9u : 3u); ++lap) {
          // Two halves that leave `left`, then one that does not fit.
          const u32 half = capacity / 2 / 8 * 8;
          p.both(payload, half - 8, p.time + 10);
          p.both(payload + 3, capacity - half - left - 8, p.time + 10);
          p.both(payload + 5, 1 + left, p.time + 10);
          if (HasFatalFailure()) return;
        }
        p.expect_same();
        p.read_all();
        if (HasFailure()) return;
      }
}

TEST_F(CpuWriterTest, RandomEventsAtRandomTimesGiveTheSameBytes) {
  for (u32 seed = 0; seed < 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const bool meta = seed % 3 != 0;
    Pair p(3 + seed % 5, false, seed % 7 == 0 ? 16384 : 4096);
    for (int i = 0; i < 3000 && !HasFatalFailure(); ++i) {
      const u64 r = random();
      const u32 size = r % 50 == 0  ? r / 64 % (p.ring.geometry.largest_payload() + 20) % 8000
                       : r % 50 < 5 ? r / 64 % 600
                                    : r / 64 % 60;
      const u64 at = r % 61 == 7   ? p.time - r / 512 % 50000 % p.time
                     : r % 61 == 8 ? p.time + (r >> 30)
                                   : p.time + r / 512 % 100;
      p.both(payload + r % 4, size, at);
      if (random() % 40 == 0) p.read_both(meta);
      if (random() % 400 == 0) p.read_all(meta);
    }
    p.expect_same();
    p.read_all(meta);
  }
}

TEST_F(CpuWriterTest, TooLargeEventsAreRefused) {
  Pair p;
  const u32 largest = p.ring.geometry.largest_payload();
  p.both(payload, largest, 2000);
  for (u32 size = largest + 1; size < largest + 20; ++size) EXPECT_EQ(p.write(payload, size), Refused::too_big) << size;
  EXPECT_EQ(p.write(payload, sizeof payload), Refused::too_big);
  p.both(payload, largest, 3000);
  p.both(payload, 1, 4000);
  p.expect_same();
  p.read_all();
}

// A full ring refuses and counts. The rest of the last sub-buffer still takes an event that fits, and old events stay.
TEST_F(CpuWriterTest, DiscardModeRefusesAndCounts) {
  Pair p(4, true);
  u64 written = 0, refused = 0, read = 0;
  std::mt19937 random(5);
  for (int i = 0; i < 5000; ++i) {
    const u32 size = static_cast<u32>(random() % (random() % 8 == 0 ? 4000 : 200));
    p.time += 5;
    const Refused why = p.write(payload, size);
    ASSERT_TRUE(why == Refused::no || why == Refused::full);
    ++(why == Refused::no ? written : refused);
    if (why == Refused::full) {
      EXPECT_EQ(place_of(p.ring.control->commit).position + 1 - reader_of(p.reader.state().page).next, 3u);
      const std::vector<u8> before(p.ring.data, p.ring.data + p.ring.geometry.data_size());
      EXPECT_EQ(p.write(payload, size), Refused::full);
      ++refused;
      EXPECT_EQ(0, std::memcmp(before.data(), p.ring.data, before.size()));
    }
    if (random() % 100 != 0) continue;
    for (u64 n = random() % 4; n != 0 && p.reader.get_reader() == Got::data; --n) {
      read += p.reader.view().events;
      EXPECT_EQ(p.reader.view().lost_before, 0u);
      abi::EventCursor c(p.reader.data(), p.reader.view().begin, p.reader.view().end, 0);
      u32 events = 0;
      while (c.next()) ++events;
      EXPECT_EQ(events, p.reader.view().events);
    }
  }
  const RingCounters n = counters<>(p.ring);
  EXPECT_GT(refused, 300u);
  EXPECT_EQ(n.dropped, refused);
  EXPECT_EQ(n.written, written);
  EXPECT_EQ(n.read, read);
  EXPECT_EQ(n.overrun, 0u);
  EXPECT_EQ(n.unread, written - read);
}

TEST_F(CpuWriterTest, AShutGateGivesTheReason) {
  Pair p;
  p.both(payload, 20, 2000);
  for (const auto& [gate, why] : {std::pair{gate_cpu_open | gate_off, Refused::disabled},
                                  {gate_off, Refused::disabled},
                                  {u64{0}, Refused::moved},
                                  {gate_cpu_open | gate_moved, Refused::moved},
                                  {gate_cpu_open | gate_corrupt, Refused::corrupt}}) {
    p.ring.control->gate = gate;
    for (u32 size : {0u, 20u, 500u}) EXPECT_EQ(p.write(payload, size), why) << std::hex << gate;
    p.expect_same();
    p.ring.control->gate = gate_cpu_open;
    p.both(payload, 20, p.time + 10);
    p.expect_same();
  }
  p.read_all();
}

// The same by the usual sequence, which checks the gate itself.
TEST_F(CpuWriterTest, TheUsualSequenceRespectsTheGate) {
  Pair p(4, false, 4096, true);
  const CpuWriter<TickClock, Counted> usual{TickClock{}};
  for (int i = 0; i < 5; ++i) ASSERT_EQ(usual.write(p.set.rings(), rseq_area(), payload, 40), Refused::no);
  const u64 done = tries.usual;
  EXPECT_GT(done, 0u);
  for (u64 gate :
       {u64{0}, gate_cpu_open | gate_off, gate_cpu_open | gate_moved, gate_cpu_open | gate_corrupt, u64{1} << 32 | 1}) {
    p.ring.control->gate = gate;
    EXPECT_NE(usual.write(p.set.rings(), rseq_area(), payload, 40), Refused::no) << std::hex << gate;
  }
  EXPECT_EQ(tries.usual, done);
  EXPECT_EQ(counters<>(p.ring).written, 5u);
}

// A ring between inaccessible pages.
class Fenced {
 public:
  explicit Fenced(u32 nr_subbufs) {
    Ring ring{Geometry(4096, nr_subbufs)};
    ring.kind = RingKind::cpu;
    ring.control = reinterpret_cast<Control*>(map(control_size(ring.geometry), control_map_));
    ring.data = map(ring.geometry.data_size(), data_map_);
    place_ = {ring.control, ring.subbuf(0), 4096, nr_subbufs, ring.geometry.capacity(), ring};
    CpuRings& all = rings_in(words_, possible_cpus(), possible_cpus());
    for (u32 cpu = 0; cpu < all.nr; ++cpu) put_place(all, cpu, place_);
    clear();
  }
  ~Fenced() {
    for (const Map& m : {control_map_, data_map_}) munmap(m.at, m.size);
  }

  void clear() {
    const Ring& r = ring();
    std::memset(reinterpret_cast<void*>(r.control), 0, control_size(r.geometry));
    std::memset(r.data, 0, r.geometry.data_size());
    r.control->gate = gate_cpu_open;
  }
  const Ring& ring() const { return place_.ring; }
  const CpuRings& rings() const { return *reinterpret_cast<const CpuRings*>(words_.data()); }
  std::vector<u8> data() const { return {ring().data, ring().data + ring().geometry.data_size()}; }

 private:
  struct Map {
    u8* at = nullptr;
    u64 size = 0;
  };
  static constexpr u64 fence = 1 << 20;
  static u8* map(u64 size, Map& m) {
    m.size = align_up<u64>(size, 4096) + 2 * fence;
    m.at = static_cast<u8*>(mmap(nullptr, m.size, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    mprotect(m.at + fence, m.size - 2 * fence, PROT_READ | PROT_WRITE);
    return m.at + fence;
  }
  Map control_map_, data_map_;
  CpuPlace place_;
  std::vector<u64> words_;
};

struct CpuWriterCorrupt : CpuWriterTest {
  OnOneCpu here;
  Fenced f{4};
  const CpuWriter<TickClock, Counted> writer{TickClock{}};

  Refused write(u32 size) { return writer.write(f.rings(), rseq_area(), payload, size); }
  void start(u32 events, u32 size = 100) {
    f.clear();
    for (u32 i = 0; i < events; ++i) ASSERT_EQ(write(size), Refused::no);
  }
  Place tail() { return place_of(f.ring().control->commit); }
  // Refuses permanently, and has changed nothing.
  void expect_corrupt(u32 size = 100) {
    const std::vector<u8> before = f.data();
    EXPECT_EQ(write(size), Refused::corrupt);
    EXPECT_NE(f.ring().control->corrupt, 0u);
    EXPECT_EQ(f.ring().control->gate, gate_cpu_open | gate_corrupt);
    EXPECT_EQ(write(size), Refused::corrupt);
    EXPECT_EQ(write(0), Refused::corrupt);
    EXPECT_EQ(f.data(), before);
  }
};

TEST_F(CpuWriterCorrupt, TailNamesNoSubBuffer) {
  for (u32 id : {4u, 5u, 100u, static_cast<u32>(id_mask)})
    for (u32 events : {0u, 5u, 60u}) {
      start(events);
      f.ring().control->commit = pack_place({tail().position, id});
      expect_corrupt();
    }
}

TEST_F(CpuWriterCorrupt, CommitOutside) {
  const u32 capacity = f.ring().geometry.capacity();
  for (u64 commit : {u64{capacity} + 4, u64{4096}, u64{1} << 20, u64{0xFFFFFFF0}, u64{1} << 32, ~u64{0}, ~u64{3}, u64{1} << 63,
                     u64{2}, u64{101}, u64{capacity} - 1})
    for (u32 size : {0u, 8u, 100u, 600u}) {
      SCOPED_TRACE(testing::Message() << std::hex << commit << " size " << std::dec << size);
      start(5);
      f.ring().header(tail().id).commit = commit;
      expect_corrupt(size);
    }
}

// Both words are wrong alike. A value within the sub-buffer cannot be detected; nothing is ever stored outside.
TEST_F(CpuWriterCorrupt, CommitAndCommittedWrongAlike) {
  const u32 capacity = f.ring().geometry.capacity();
  for (u32 bytes : {capacity + 4, 4096u, u32{1} << 20, 0x7FFFFFF0u, 0x80000000u, 0xFFFFF000u, 0xFFFFFF80u, 0xFFFFFFE0u,
                    0xFFFFFFF0u, 0xFFFFFFF8u, 0xFFFFFFFCu})
    for (u32 size : {0u, 8u, 20u, 100u, 600u}) {
      SCOPED_TRACE(testing::Message() << std::hex << bytes << " size " << std::dec << size);
      start(5);
      f.ring().header(tail().id).commit = bytes;
      f.ring().record(tail().id).committed = pack_cpu_committed({5, bytes});
      expect_corrupt(size);
    }
}

TEST_F(CpuWriterCorrupt, CommittedWrongAlone) {
  // Only `commit` publishes: any `committed` is taken for an event that was cut off.
  for (u64 committed : {u64{0}, ~u64{0}, pack_cpu_committed({7, 4}), pack_cpu_committed({0xFFFFFFFF, 5000}), u64{1} << 63}) {
    start(5);
    const u64 commit = f.ring().header(tail().id).commit;
    f.ring().record(tail().id).committed = committed;
    EXPECT_EQ(write(100), Refused::no);
    EXPECT_EQ(f.ring().header(tail().id).commit, commit + abi::event_size(100));
    EXPECT_EQ(f.ring().control->corrupt, 0u);
  }
}

TEST_F(CpuWriterCorrupt, WrongTimes) {
  for (u64 time : {u64{0}, ~u64{0}, u64{1} << 63, u64{1} << 62, u64{5}}) {
    start(5);
    for (u64 slot : {0, 1}) times(f.ring().record(tail().id))[slot] = time;
    const std::vector<u8> before = f.data();
    const Refused why = write(100);
    EXPECT_TRUE(why == Refused::no || why == Refused::interrupted) << static_cast<int>(why);
    EXPECT_EQ(f.ring().control->corrupt, 0u);
  }
}

TEST_F(CpuWriterCorrupt, WrongSlotOfTheNextPosition) {
  for (u32 lap = 0; lap < 3; ++lap) {
    // Just before the sub-buffer is full.
    const auto full = [&] {
      start(1, 4000);
      for (u32 i = 0; i < lap * 3 + 1; ++i) ASSERT_EQ(write(4000), Refused::no);
    };
    full();
    const u64 position = tail().position + 1;
    const u32 slots = f.ring().geometry.nr_slots(), k = static_cast<u32>(position % slots);
    const u64 at = position / slots;
    const u64 good = f.ring().record(k).slot;
    const u32 id = slot_id(k, good);
    for (u64 bad : {pack_slot(k, at, 4), pack_slot(k, at, static_cast<u32>(id_mask)), pack_slot(k, at, tail().id),
                    pack_slot(k, at + 1, id), pack_slot(k, at + 100, id), pack_slot(k, at - 2, id),
                    pack_slot(k, (u64{1} << 44) - 1, id), ~u64{0}}) {
      if (at < 2 && bad == pack_slot(k, at - 2, id) && slot_lap(bad) + 1 == at) continue;
      SCOPED_TRACE(testing::Message() << "lap " << lap << " slot " << std::hex << bad);
      full();
      f.ring().record(k).slot = bad;
      expect_corrupt(4000);
    }
  }
}

// Random words and random events: nothing is stored outside the ring.
TEST_F(CpuWriterCorrupt, RandomWordsNeverLeadOutsideTheRing) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20000; ++round) {
    start(static_cast<u32>(random() % 90));
    const Ring& ring = f.ring();
    for (u64 n = 1 + random() % 4; n != 0; --n) {
      const u32 id = static_cast<u32>(random() % 4);
      const u64 wild = random() >> random() % 64, near = 0 - (random() % 64) * 4,
                value = random() % 3 == 0 ? near & 0xFFFFFFFF : wild;
      switch (random() % 8) {
        case 0: ring.control->commit = value; break;
        case 1: ring.header(id).commit = value; break;
        case 2: ring.record(id).committed = value; break;
        case 3: ring.record(id).slot = value; break;
        case 4: times(ring.record(id))[random() % 2] = value; break;
        case 5: ring.record(id).base = value; break;
        case 6:
          ring.header(tail().id < 4 ? tail().id : 0).commit = ring.record(tail().id < 4 ? tail().id : 0).committed = value;
          break;
        default: ring.control->commit = pack_place({value & 0xFFFF, id}); break;
      }
    }
    for (int i = 0; i < 60; ++i) write(static_cast<u32>(random() % 400));
  }
}

// A thread that is not registered, or on a CPU without a ring, according to its area. The area here is one that is never
// updated.
TEST_F(CpuWriterTest, AnUnregisteredThreadHasNoRing) {
  Pair p(4, false, 4096, true);
  struct alignas(32) {
    u32 cpu_id_start = 0, cpu_id = 0;
    u64 rseq_cs = 0, flags = 0;
  } dummy;
  const i64 area = reinterpret_cast<i64>(&dummy) - reinterpret_cast<i64>(__builtin_thread_pointer());
  const CpuWriter<TickClock, Counted> usual{TickClock{}};
  const std::vector<u8> before(p.ring.data, p.ring.data + p.ring.geometry.data_size());
  for (u32 cpu : {~u32{0}, ~u32{0} - 1, u32{1} << 31, p.set.nr(), p.set.nr() + 5, 8192u}) {
    dummy.cpu_id = cpu;
    for (u32 size : {0u, 8u, 300u, 5000u}) {
      EXPECT_EQ(usual.write(p.set.rings(), area, payload, size), Refused::no_ring) << cpu;
      EXPECT_EQ(p.cpu_writer.write(p.set.rings(), area, payload, size), Refused::no_ring) << cpu;
    }
  }
  EXPECT_EQ(tries.usual + tries.append + tries.enter, 0u);
  EXPECT_EQ(0, std::memcmp(before.data(), p.ring.data, before.size()));
  EXPECT_EQ(counters<>(p.ring).written, 0u);
  EXPECT_EQ(usual.write(p.set.rings(), rseq_area(), payload, 8), Refused::no);
}

// How the maker of an instance asks the kernel: a change from before the sequence says nothing. The kernel does not know the
// area here, so it aborts nothing.
TEST_F(CpuWriterTest, ASpinSeesWhatChangesMeanwhile) {
  struct alignas(32) {
    u32 cpu_id_start = 0, cpu_id = 0;
    u64 rseq_cs = 0, flags = 0;
  } dummy;
  const i64 area = reinterpret_cast<i64>(&dummy) - reinterpret_cast<i64>(__builtin_thread_pointer());
  u32 word = 2, seen = 1;
  EXPECT_EQ(Rseq::spin(area, &word, seen, 1000), Sequence::late);
  EXPECT_EQ(seen, 2u);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) __atomic_fetch_add(&word, 1u, __ATOMIC_RELAXED);
  });
  while (Rseq::spin(area, &word, seen, 1u << 20) != Sequence::moved) {
  }
  over = true;
  other.join();
}

// A CPU whose ring this process has not mapped.
TEST_F(CpuWriterTest, AnUnmappedCpuHasNoRing) {
  Pair p(4, false, 4096, true);
  Control shut{};
  const CpuPlace nowhere{&shut, nullptr, 0, 0, 0, Ring{}};
  std::vector<u64> words;
  CpuRings& all = rings_in(words, p.set.nr(), p.set.nr());
  for (u32 cpu = 0; cpu < all.nr; ++cpu) put_place(all, cpu, nowhere);
  const CpuWriter<TickClock, Counted> usual{TickClock{}};
  for (u32 size : {0u, 8u, 300u, 5000u}) EXPECT_EQ(usual.write(all, rseq_area(), payload, size), Refused::no_ring);
}

// Sequences that never succeed: the tries end.
template <Sequence answer>
struct Never {
  static inline u32 asked;
  static u32 cpu(i64) noexcept { return 0; }
  template <u32 known>
  static Sequence append_usual(i64, const CpuRings&, const Shape&, const void*) noexcept { return answer; }
  template <class C>
  static Sequence append_timed(i64, const CpuRings&, const Shape&, const void*, C&, bool) noexcept { return answer; }
  static Guard arm(i64, bool) noexcept { return {}; }
  static void disarm(i64) noexcept {}
  static Sequence append(i64, const Append&, const Guard&) noexcept {
    ++asked;
    return answer;
  }
  static Sequence refuse(i64, const Refuse&) noexcept {
    ++asked;
    return answer;
  }
  static Sequence enter(i64, const Enter&) noexcept {
    ++asked;
    return answer;
  }
};
template <Sequence answer>
void expect_interrupted() {
  CpuRingSet set(4096, 4, false);
  const u8 payload[100] = {};
  using S = Never<answer>;
  S::asked = 0;
  const CpuWriter<TickClock, S> writer{TickClock{}};
  EXPECT_EQ(writer.write(set.rings(), 0, payload, sizeof payload), Refused::interrupted);
  EXPECT_EQ(S::asked, (CpuWriter<TickClock, S>::most_tries));
  set[0].header(1).commit = 4080;
  S::asked = 0;
  EXPECT_EQ(writer.write(set.rings(), 0, payload, sizeof payload), Refused::interrupted);
  EXPECT_EQ(S::asked, (CpuWriter<TickClock, S>::most_tries));
  EXPECT_EQ(set[0].control->corrupt, 0u);
}
TEST_F(CpuWriterTest, TriesThatNeverSucceedEnd) {
  expect_interrupted<Sequence::aborted>();
  expect_interrupted<Sequence::moved>();
  expect_interrupted<Sequence::late>();
}

// Calls an observer after each store of a reader.
struct LookedAt : Hardware {
  static inline std::function<void()> after;
  template <class T>
  static void store(T* at, T value, Order order) noexcept {
    Hardware::store(at, value, order);
    if (after) after();
  }
};
static_assert(Memory<LookedAt>);

// A reader hands its page out after a loss, and puts the number of lost events over the padding. An iterator shows whole events
// meanwhile.
TEST_F(CpuWriterTest, AnIteratorReadsWholeEventsWhileAPageIsFlagged) {
  for (const bool peeked : {false, true}) {
    Pair p;
    for (int i = 0; i < 200; ++i) p.both(payload, 100, p.time + 5);
    std::vector<u64> buffer(4096 / 8);
    u8* const bytes = reinterpret_cast<u8*>(buffer.data());
    u32 looked = 0, bad = 0;
    const auto look = [&] {
      Iterator<> it(p.ring, bytes);
      ++looked;
      while (it.next() == Got::data) {
        abi::EventCursor c(bytes + abi::header_size, it.view().begin, it.view().end, 0);
        u32 events = 0;
        while (c.next()) {
          ++events;
          bad += c.payload().size < 100 || std::memcmp(c.payload().data, payload, 100) != 0;
        }
        bad += events != it.view().events || c.malformed() != abi::Malformed::no;
      }
    };
    Reader<LookedAt> reader(p.ring);
    if (peeked) {
      ASSERT_EQ(reader.peek(), Got::data);
    }
    LookedAt::after = look;
    const Got got = reader.get_reader();
    LookedAt::after = nullptr;
    ASSERT_EQ(got, Got::data);
    ASSERT_TRUE(reader.view().left);
    EXPECT_NE(reader.view().lost_before, 0u);
    EXPECT_TRUE(abi::commit_stored(p.ring.header(reader.view().id).commit));
    EXPECT_GT(looked, 5u);
    EXPECT_EQ(bad, 0u) << (peeked ? "peeked" : "at once");
  }
}

// A waiter for an event is called after each event; a waiter for fullness, after the sub-buffer that reaches it.
TEST_F(CpuWriterTest, WaitersAreCalledForEventsAndForFullness) {
  Pair p(11, false, 4096, true);
  struct Rung {
    u64 any = 0, percent = 0;
    u32 times = 0;
  } rung;
  const Doorbell bell{&rung.any, &rung.percent, [](void* r) noexcept { ++static_cast<Rung*>(r)->times; }, &rung};
  p.set.rings().bell = bell;
  const CpuWriter<TickClock, Counted> writer{TickClock{}};
  const auto write = [&](u32 size) { ASSERT_EQ(writer.write(p.set.rings(), rseq_area(), payload, size), Refused::no); };
  write(10);
  write(10);
  EXPECT_EQ(rung.times, 0u);
  rung.any = 1;
  write(10);
  EXPECT_EQ(rung.times, 1u);
  write(4000);  // in the next sub-buffer
  EXPECT_EQ(rung.times, 2u);
  rung.any = 0;
  rung.percent = 50 + 1;
  u32 full_after = 0;
  while (rung.times == 2 && full_after < 20) {
    write(4000);
    ++full_after;
  }
  EXPECT_EQ(rung.times, 3u);
  EXPECT_GE(full_after, 3u);
  EXPECT_LE(full_after, 5u);
}

}  // namespace
}  // namespace ringside::test::cpu_writer_test

#endif  // RS_TEST_RSEQ
