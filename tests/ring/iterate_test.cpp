// An iterator that looks again: at pages that were appended to, consumed and given back, or made new by a reset.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/clear.hpp>
#include <ringside/ring/iterate.hpp>
#include <ringside/ring/writer.hpp>
#include <vector>

#include "ring_memory.hpp"
#include "single.hpp"
#include "ticks.hpp"

namespace ringside::test::iterate_test {
namespace {

struct Iterate : testing::Test {
  using Clock = Ticks<5>;
  u64 clock = 0, n = 0;
  std::vector<u64> page = std::vector<u64>(4096 / 8);
  u8* const bytes = reinterpret_cast<u8*>(page.data());

  void put(Writer<Clock, Single>& writer, u32 size) {
    std::vector<u8> b(size, 0x41);
    ++n;
    std::memcpy(b.data(), &n, sizeof n);
    writer.write(b.data(), size);
  }
  // The numbers of the events up to now, a -N for N lost ones.
  std::vector<i64> look(Iterator<>& it) const {
    std::vector<i64> seen;
    while (it.next() == Got::data) {
      const ReaderView& v = it.view();
      if (v.lost_before != 0) seen.push_back(-static_cast<i64>(v.lost_before));
      abi::EventCursor c(bytes + abi::header_size, v.begin, v.end, 0);
      while (c.next()) {
        u64 number = 0;
        std::memcpy(&number, c.payload().data, sizeof number);
        seen.push_back(static_cast<i64>(number));
      }
    }
    return seen;
  }
  using Seen = std::vector<i64>;
};

TEST_F(Iterate, AppendedEventsAreSeenOnce) {
  const Ring ring = shared_ring(4096, 5);
  Writer<Clock, Single> writer(ring, {&clock});
  Iterator<> it(ring, bytes);
  Seen all, expected;
  for (int i = 1; i <= 100; ++i) {
    put(writer, 100);
    expected.push_back(i);
    const Seen now = look(it);
    all.insert(all.end(), now.begin(), now.end());
  }
  EXPECT_EQ(all, expected);
}

TEST_F(Iterate, StartsAtTheReaderPageOnlyOnce) {
  const Ring ring = shared_ring(4096, 6);
  Writer<Clock, Single> writer(ring, {&clock});
  Reader<Single> reader(ring);
  for (int i = 0; i < 4; ++i) put(writer, 2040);
  (void)reader.peek();
  Iterator<> it(ring, bytes);
  EXPECT_EQ(look(it), (Seen{1, 2, 3, 4}));
  Iterator<> slow(ring, bytes);
  ASSERT_EQ(slow.next(), Got::data);  // 1; then the reader goes on
  for (int i = 0; i < 4; ++i) (void)reader.get_reader();
  put(writer, 2040), put(writer, 100);
  const Seen seen = look(slow);
  i64 sum = 0;
  for (const i64 number : seen) sum += number < 0 ? -number : 1;
  EXPECT_EQ(sum, 5);  // 2 to 6, seen or counted
}

TEST_F(Iterate, TheMemoryOfAConsumedPageMayBeGone) {
  const Ring ring = shared_ring(4096, 4);
  Writer<Clock, Single> writer(ring, {&clock});
  Reader<Single> reader(ring);
  Iterator<> it(ring, bytes);
  put(writer, 100);
  EXPECT_EQ(look(it), Seen{1});
  put(writer, 100), put(writer, 100);
  while (reader.get_reader() == Got::data) {
  }
  std::memset(ring.subbuf(reader_of(reader.state().page).id), 0, 4096);  // as if its memory was given back
  EXPECT_EQ(look(it), Seen{});
  put(writer, 100);
  EXPECT_EQ(look(it), (Seen{-2, 4}));
}

TEST_F(Iterate, AResetRingIsReadFromItsStart) {
  const Ring ring = shared_ring(4096, 4);
  Iterator<> it(ring, bytes);
  {
    Writer<Clock, Single> writer(ring, {&clock});
    for (int i = 0; i < 3; ++i) put(writer, 100);
    EXPECT_EQ(look(it), (Seen{1, 2, 3}));
  }
  clear_words(ring);
  Writer<Clock, Single> writer(ring, {&clock});
  Seen expected;
  for (int i = 4; i < 16; ++i) put(writer, 40), expected.push_back(i);
  EXPECT_EQ(look(it), expected);
}

// An iterator that copies slower than the writer laps it sees nothing; all events are counted.
struct Racing : Hardware {
  static inline std::function<void()> meanwhile;
  static void copy_in(void* to, const void* from, size_t size) noexcept {
    Hardware::copy_in(to, from, size);
    if (meanwhile) meanwhile();
  }
};

TEST_F(Iterate, EventsOverwrittenDuringACopyAreCounted) {
  const Ring ring = shared_ring(4096, 5);
  Writer<Clock, Single> writer(ring, {&clock});
  Iterator<Racing> it(ring, bytes);
  u64 seen = 0, lost = 0;
  const auto look = [&] {
    Got got;
    while ((got = it.next()) == Got::data) {
      lost += it.view().lost_before;
      seen += it.view().events;
    }
    EXPECT_EQ(got, Got::nothing);
  };
  for (int i = 0; i < 10; ++i) put(writer, 1000);
  Racing::meanwhile = [&] {
    for (int i = 0; i < 40; ++i) put(writer, 1000);
  };
  ASSERT_EQ(it.next(), Got::data);
  EXPECT_EQ(it.view().events, 0u);
  lost = it.view().lost_before;
  EXPECT_GT(lost, 100u);
  Racing::meanwhile = nullptr;
  look();
  EXPECT_GT(seen, 0u);
  EXPECT_EQ(seen + lost, n);
}

// A slightly slower iterator keeps away from the place where the writer overwrites, and sees the newest events.
TEST_F(Iterate, ASlowLookSeesTheNewestEvents) {
  const Ring ring = shared_ring(4096, 16);
  Writer<Clock, Single> writer(ring, {&clock});
  Iterator<Racing> it(ring, bytes);
  for (int i = 0; i < 100; ++i) put(writer, 1000);
  Racing::meanwhile = [&] {
    for (int i = 0; i < 12; ++i) put(writer, 1000);  // four sub-buffers for each copy
  };
  ASSERT_EQ(it.next(), Got::data);
  EXPECT_GT(it.view().events, 0u);
  EXPECT_EQ(it.view().lost_before, it.view().first_index);
  Racing::meanwhile = nullptr;
}

TEST_F(Iterate, TheReaderPageIsNotSkippedAfterALap) {
  const Ring ring = shared_ring(4096, 4);  // three slots
  Writer<Clock, Single> writer(ring, {&clock});
  Reader<Single> reader(ring);
  Iterator<> it(ring, bytes);
  put(writer, 2040);
  EXPECT_EQ(look(it), Seen{1});
  put(writer, 2040), put(writer, 2040);
  (void)reader.get_reader();
  put(writer, 2040);
  (void)reader.get_reader();
  (void)reader.peek();
  put(writer, 2040), put(writer, 2040);
  const Seen followed = look(it);
  Iterator<> fresh(ring, bytes);
  const Seen anew = look(fresh);
  ASSERT_FALSE(anew.empty());
  // It sees all that a new iterator sees.
  EXPECT_TRUE(std::includes(followed.begin() + (followed[0] < 0), followed.end(), anew.begin() + (anew[0] < 0), anew.end()));
  i64 sum = 0;
  for (const i64 number : followed) sum += number < 0 ? -number : 1;
  EXPECT_EQ(sum, static_cast<i64>(n) - 1);
}

}  // namespace
}  // namespace ringside::test::iterate_test
