// Random sequences of operations on a ring, against a model made only of lists.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <ringside/ring/iterate.hpp>

#include <algorithm>
#include <deque>
#include <vector>

#include "ring_memory.hpp"
#include "single.hpp"
#include "ticks.hpp"

namespace ringside::test::ring_test {
namespace {

using Counting = Ticks<5>;

// The ring as lists: sub-buffers in order, each with its events' numbers and the bytes they take.
struct Model {
  struct SubBuffer {
    std::vector<u64> events;
    u32 used = 0;
    u32 consumed = 0;      // events
    bool padding = false;  // after the last event, not consumed
  };
  Geometry geometry;
  bool discard_mode;
  std::deque<SubBuffer> ring{1};      // oldest first; the last one is the tail
  std::optional<SubBuffer> reader{};  // the reader page, when the writer has left it
  bool tail_is_readers = false;       // the reader took the page that the writer is on: it is not in `ring`
  u64 overrun = 0, dropped = 0, read = 0, pending_lost = 0;

  SubBuffer& tail() { return tail_is_readers ? *reader : ring.back(); }

  // Makes room for `size` bytes, on a new sub-buffer if necessary. False: refused.
  bool room(u32 size) {
    if (tail().used + size <= geometry.capacity()) return true;
    tail().padding |= tail().used + 8 <= geometry.capacity();
    tail().used = geometry.capacity();  // closed in any case
    if (tail_is_readers) {
      tail_is_readers = false;
    } else if (ring.size() == geometry.nr_slots()) {
      if (discard_mode) {
        ++dropped;
        return false;
      }
      overrun += ring.front().events.size();
      pending_lost += ring.front().events.size();
      ring.pop_front();
    }
    ring.emplace_back();
    return true;
  }

  // The result of get_reader now: numbers and the loss before them.
  std::pair<std::vector<u64>, u64> get_reader() {
    const auto rest = [&]() -> std::vector<u64> {
      std::vector<u64> out(reader->events.begin() + reader->consumed, reader->events.end());
      reader->consumed = static_cast<u32>(reader->events.size());
      read += out.size();
      if (!out.empty()) reader->padding = false;
      return out;
    };
    if (reader) {
      auto out = rest();
      if (!out.empty()) return {out, 0};
      const auto has_events = [](const SubBuffer& s) { return !s.events.empty(); };
      if (std::any_of(ring.begin(), ring.end(), has_events) && std::exchange(reader->padding, false)) return {{}, 0};
      if (tail_is_readers) return {{}, 0};
    }
    while (!ring.empty()) {
      const bool is_tail = ring.size() == 1;
      if (is_tail && ring.front().events.empty()) return {{}, 0};
      reader = std::move(ring.front());
      ring.pop_front();
      tail_is_readers = is_tail;
      auto out = rest();
      if (out.empty() && !is_tail) continue;
      return {out, std::exchange(pending_lost, 0)};
    }
    return {{}, 0};
  }
};

RC_GTEST_PROP(Property, RingAgainstLists, ()) {
  const u32 nr = *rc::gen::inRange(3u, 7u);
  const bool discard_mode = *rc::gen::arbitrary<bool>();
  const Ring ring = shared_ring(4096, nr, discard_mode);
  u64 clock = 0;
  Writer<Counting, Single> writer(ring, Counting{&clock});
  Reader<Single> reader(ring);
  Model model{ring.geometry, discard_mode};
  u64 next = 0, written = 0;

  const auto begin = [&](u32 size) -> std::optional<Reservation> {
    const Reservation slot = writer.reserve(size);
    RC_ASSERT(static_cast<bool>(slot) == model.room(abi::event_size(size)));
    if (!slot) return std::nullopt;
    std::memcpy(slot.payload, &next, 8);
    return slot;
  };
  const auto keep = [&](const Reservation& slot, u32 size) {
    model.tail().used += abi::event_size(size);
    model.tail().events.push_back(next++);
    ++written;
    writer.commit(slot);
  };
  const auto compare = [&](const std::vector<u64>& numbers, u64 lost) {
    const auto [expected, expected_lost] = model.get_reader();
    RC_ASSERT(numbers == expected);
    RC_ASSERT(lost == expected_lost);
  };
  const auto look = [&] {
    std::vector<u64> numbers;
    u64 lost = 0;
    const Got got = reader.get_reader();
    RC_ASSERT(got != Got::corrupt);
    if (got == Got::data) {
      const ReaderView& v = reader.view();
      lost = v.lost_before;
      abi::EventCursor c(reader.data(), v.begin, v.end, 0);
      while (c.next()) {
        u64 n;
        std::memcpy(&n, c.payload().data, 8);
        numbers.push_back(n);
      }
      RC_ASSERT(c.malformed() == abi::Malformed::no);
      RC_ASSERT(numbers.size() == v.events);
    }
    compare(numbers, lost);
  };

  // An iterator that looks after every step and consumes nothing sees every event once, or counts it.
  std::vector<u64> page(4096 / 8);
  Iterator<> follower(ring, reinterpret_cast<u8*>(page.data()));
  u64 followed = 0, missed = 0, newest = 0;
  const auto follow = [&] {
    while (follower.next() == Got::data) {
      missed += follower.view().lost_before;
      abi::EventCursor c(reinterpret_cast<u8*>(page.data()) + 16, follower.view().begin, follower.view().end, 0);
      while (c.next()) {
        u64 n;
        std::memcpy(&n, c.payload().data, 8);
        RC_ASSERT(followed == 0 || n > newest);
        newest = n;
        ++followed;
      }
    }
    RC_ASSERT(followed + missed <= written);
    if (model.overrun == 0) RC_ASSERT(followed == written && missed == 0u);
  };

  const auto steps = *rc::gen::container<std::vector<std::pair<int, u32>>>(
      rc::gen::pair(rc::gen::inRange(0, 10), rc::gen::inRange(8u, 1500u)));
  for (const auto& [what, size] : steps) {
    switch (what) {
      case 0:
      case 1: look(); break;
      case 2:  // reserved and taken back
        if (const auto slot = begin(size)) {
          const bool freed = writer.discard(*slot);
          RC_ASSERT(freed);  // no event came after it
        }
        break;
      case 3:  // many small ones
        for (u32 i = 0; i < size / 8; ++i)
          if (const auto slot = begin(8 + i % 40)) keep(*slot, 8 + i % 40);
        break;
      case 4:  // an event inside another, as a handler writes it
        if (const auto outer = begin(16)) {
          const u64 outer_number = next++;
          model.tail().used += 20;
          if (model.tail().used + abi::event_size(size) <= ring.geometry.capacity()) {
            const Reservation inner = writer.reserve(size);
            RC_ASSERT(static_cast<bool>(inner));
            std::memcpy(inner.payload, &next, 8);
            model.tail().events.push_back(outer_number);
            model.tail().used += abi::event_size(size);
            model.tail().events.push_back(next++);
            writer.commit(inner);
            RC_ASSERT(counters<>(ring).written == written);  // nothing is visible before the outermost commit
            written += 2;
          } else {
            model.tail().events.push_back(outer_number);
            ++written;
          }
          writer.commit(*outer);
        }
        break;
      default:
        if (const auto slot = begin(size)) keep(*slot, size);
    }
    follow();
    const RingCounters n = counters<>(ring);
    RC_ASSERT(n.written == written);
    RC_ASSERT(n.overrun == model.overrun);
    RC_ASSERT(n.dropped == model.dropped);
    RC_ASSERT(n.read == model.read);
    RC_ASSERT(n.written == n.read + n.overrun + n.unread);
    RC_ASSERT(n.unfinished_bytes == 0u);
  }
  // The rest: first looked at without consuming, then read.
  std::vector<u64> seen;
  std::vector<u64> buffer(4096 / 8);
  Iterator<> it(ring, reinterpret_cast<u8*>(buffer.data()));
  while (it.next() == Got::data) {
    abi::EventCursor c(reinterpret_cast<u8*>(buffer.data()) + 16, it.view().begin, it.view().end, 0);
    while (c.next()) {
      u64 n;
      std::memcpy(&n, c.payload().data, 8);
      seen.push_back(n);
    }
  }
  RC_ASSERT(seen.size() == written - model.read - model.overrun);
  for (u64 before = ~u64{0}; before != model.read;) {
    before = model.read;
    for (int i = 0; i < 2; ++i) look();  // the first may find only padding
  }
  RC_ASSERT(model.read + model.overrun == written);
  unmap(ring);
}

}  // namespace
}  // namespace ringside::test::ring_test
