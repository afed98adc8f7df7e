// SIGKILL at random instants: committed events are read, uncommitted ones are not shown, and the ring goes on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "ring_memory.hpp"
#include "writer/ring_pages.hpp"

namespace ringside::test::kill_test {
namespace {

struct Progress {
  u64 outer;   // outer events whose commit has returned
  u64 begun;   // outer events that were begun
  u64 nested;  // events of handlers, ever begun
};

Writer<MonoClock>* killed_writer;
Progress* killed_progress;

struct Event {
  u64 kind, sequence, fill[10], check;
};

bool put(Writer<MonoClock>& writer, u64 kind, u64 sequence, u32 fill) {
  const Reservation slot = writer.reserve(static_cast<u32>(sizeof(u64) * (3 + fill)));
  if (!slot) return false;
  const u64 head[] = {kind, sequence};
  std::memcpy(slot.payload, head, sizeof head);
  for (u32 i = 0; i < fill; ++i) std::memcpy(slot.payload + 16 + 8 * i, &sequence, 8);
  const u64 check = sequence * 31 + kind + fill;
  std::memcpy(slot.payload + 16 + 8 * fill, &check, 8);
  writer.commit(slot);
  return true;
}

void nested(int) {
  const u64 sequence = killed_progress->nested++;
  put(*killed_writer, 2, sequence, static_cast<u32>(sequence % 3));
}

[[noreturn]] void write_for_ever(const Ring& ring, Progress& progress, u64 start) {
  Writer<MonoClock> writer(ring, MonoClock{});
  killed_writer = &writer;
  killed_progress = &progress;
  signal(SIGALRM, nested);
  const itimerval often{{0, 50}, {0, 50}};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (u64 i = start;; ++i) {
    progress.begun = i + 1;
    put(writer, 1, i, static_cast<u32>(i % 11));
    progress.outer = i + 1;
  }
}

struct Read {
  u64 outer_first = ~u64{0}, outer_next = 0, events = 0, lost = 0, bad = 0;
};

void read_rest(const Ring& ring, Read& r) {
  Reader<> reader(ring);
  for (Got got; (got = reader.get_reader(false)) != Got::nothing;) {
    if (got == Got::corrupt) {
      ++r.bad;
      return;
    }
    const ReaderView& v = reader.view();
    r.lost += v.lost_before;
    abi::EventCursor c(reader.data(), v.begin, v.end, 0);
    u64 events = 0;
    while (c.next()) {
      ++events;
      u64 head[2];
      std::memcpy(head, c.payload().data, sizeof head);
      const u64 fill = head[0] == 1 ? head[1] % 11 : head[1] % 3;
      u64 check = 0;
      std::memcpy(&check, c.payload().data + 16 + 8 * fill, 8);
      if ((head[0] != 1 && head[0] != 2) || check != head[1] * 31 + head[0] + fill) ++r.bad;
      if (head[0] != 1) continue;
      if (r.outer_first == ~u64{0}) r.outer_first = head[1];
      if (head[1] < r.outer_next) ++r.bad;
      r.outer_next = head[1] + 1;
    }
    if (events != v.events || c.malformed() != abi::Malformed::no) ++r.bad;
    r.events += events;
  }
}

TEST(Kill, Writer) {
  const int rounds = test_seconds(60) < 30 ? 150 : 1000;
  std::mt19937 random(20261120);
  auto* progress = static_cast<Progress*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  u64 unfinished = 0, in_event = 0;
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const Ring ring = shared_ring(4096, 3 + static_cast<u32>(random() % 6), round % 3 == 2);
    *progress = {};
    Read read;
    u64 start = 0;
    // Twice on one ring: the second writer finds the first one's remains.
    for (int life = 0; life < 2; ++life) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) write_for_ever(ring, *progress, start);
      const auto wait_us = random() % 2500;
      while (__atomic_load_n(&progress->begun, __ATOMIC_RELAXED) == start) usleep(10);
      if (life == 1 && round % 2 == 0) read_rest(ring, read);
      usleep(static_cast<useconds_t>(wait_us));
      kill(child, SIGKILL);
      int status = 0;
      waitpid(child, &status, 0);
      in_event += ring.control->nest != 0;
      const Recovered recovered = recover<>(ring);
      ASSERT_FALSE(recovered.corrupt) << "round " << round;
      unfinished += recovered.unfinished_bytes != 0;
      start = progress->begun;
    }
    read_rest(ring, read);
    const RingCounters n = counters<>(ring);
    EXPECT_EQ(read.bad, 0u) << "round " << round;
    EXPECT_EQ(n.written, read.events + n.overrun) << "round " << round;
    EXPECT_EQ(n.read, read.events);
    EXPECT_EQ(n.overrun, read.lost) << "round " << round;
    EXPECT_EQ(n.unread, 0u);
    // The last outer event whose commit returned must be there (it is never overwritten: nothing came after it), in overwrite
    // mode.
    if (round % 3 != 2) {
      EXPECT_GE(read.outer_next, progress->outer) << "round " << round;
    }
    EXPECT_LE(read.outer_next, progress->begun) << "round " << round;
    unmap(ring);
  }
  std::printf("%d rounds, killed in mid-event %llu times, unfinished bytes %llu times\n", rounds * 2,
              static_cast<unsigned long long>(in_event), static_cast<unsigned long long>(unfinished));
}

// A reader killed anywhere: the next one takes over the lock, finishes the swap, and the ids are still a permutation.
TEST(Kill, Reader) {
  const int rounds = test_seconds(60) < 30 ? 100 : 500;
  std::mt19937 random(7);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const Ring ring = shared_ring(4096, 3 + static_cast<u32>(random() % 4));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Reader<> reader(ring);
      reader.try_lock(static_cast<u64>(getpid()));
      for (;;) reader.get_reader();
    }
    Writer<MonoClock> writer(ring, MonoClock{});
    const u64 end = MonoClock{}.now() + random() % 1500000;
    u64 written = 0;
    do written += put(writer, 1, written, static_cast<u32>(written % 11));
    while (MonoClock{}.now() < end);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    Reader<> heir(ring);
    const u64 holder = heir.try_lock(1);
    if (holder != 0) {
      ASSERT_TRUE(heir.steal(holder, 1));
    }
    std::vector<int> seen(ring.geometry.nr_subbufs());
    ++seen[reader_of(heir.state().page).id];
    for (u32 k = 0; k < ring.geometry.nr_slots(); ++k) ++seen[slot_id(k, ring.record(k).slot)];
    for (int times : seen) EXPECT_EQ(times, 1) << "round " << round;
    for (int i = 0; i < 200; ++i) written += put(writer, 1, written, static_cast<u32>(written % 11));
    Read read;
    read_rest(ring, read);
    const RingCounters n = counters<>(ring);
    EXPECT_EQ(read.bad, 0u) << "round " << round;
    EXPECT_EQ(n.written, written);
    EXPECT_EQ(n.written, n.read + n.overrun + n.unread) << "round " << round;
    EXPECT_EQ(n.unread, 0u);
    unmap(ring);
  }
}

// The tail can be a whole lap ahead of the commit position, and no further: handlers fill a ring whose reader has the commit
// page. The next owner has all places again.
TEST(Kill, WriterInAFullRingWhoseReaderHasTheCommitPage) {
  for (const u32 slots : {2u, 3u, 7u}) {
    TestRing t(slots + 1);
    const Control& c = *t.ring.control;
    ASSERT_TRUE(t.number(0));
    ASSERT_EQ(t.reader.get_reader(), Got::data);
    ASSERT_TRUE(t.writer.reserve(8));
    while (t.number(99, 4000)) {
    }
    ASSERT_EQ(c.commit_overrun, 1u);
    ASSERT_EQ(place_of(c.tail).position - place_of(c.commit).position, slots);
    ASSERT_FALSE(recover<Single>(t.ring).corrupt);
    ASSERT_EQ(c.tail, c.commit);
    Writer<SetClock, Single> next(t.ring, SetClock{&t.time});
    u64 last = 0;
    for (const u32 count : {slots, 3 * slots}) {
      u8 payload[4000] = {};
      for (u32 i = 0; i < count; ++i) {
        std::memcpy(payload, &++last, sizeof last);
        ASSERT_TRUE(next.write(payload, sizeof payload));
      }
      std::vector<u64> read;
      u64 lost = 0;
      while (t.reader.get_reader() == Got::data) {
        lost += t.reader.view().lost_before;
        for (const u64 n : numbers(t.reader)) read.push_back(n);
      }
      EXPECT_EQ(read, range(last + 1 - slots, last + 1));
      EXPECT_EQ(lost, count - slots);
    }
    const RingCounters n = counters<Single>(t.ring);
    EXPECT_EQ(n.written, 1 + last);
    EXPECT_EQ(n.read, 1 + 2 * slots);
    EXPECT_EQ(n.overrun, 2 * slots);
  }
}

}  // namespace
}  // namespace ringside::test::kill_test
