// Looks at a ring without consuming, while the writer may overwrite it: each sub-buffer is copied and the copy is worth something
// only if the slot still says the same afterwards.
//
//   Iterator<> it(ring, buffer);                   // buffer: one sub-buffer's size
//   while (it.next() == Got::data) walk(it.view(), buffer)
//
// Any number at a time, in any process with a mapping that can read. Each call copies at most one sub-buffer and is bounded by the
// number of sub-buffers. Starts with what is left on the reader page.
#pragma once
#include <ringside/ring/reader.hpp>

namespace ringside {

template <Memory M = Hardware, Orders O = Orders{}>
class Iterator {
 public:
  Iterator(const Ring& ring, u8* buffer) noexcept : ring_(ring), buffer_(buffer) {}

  Got next() noexcept {
    if (!started_) {
      started_ = true;
      const Got got = reader_page();
      if (got != Got::nothing) return got;
    }
    const Geometry& g = ring_.geometry;
    for (u32 budget = 4 * g.nr_subbufs() + 64; budget != 0; --budget) {
      const Place commit = place_of(M::load(&ring_.control->commit, O.advance_observe));
      if (commit.position >= g.nr_slots() && position_ + g.nr_slots() <= commit.position)
        position_ = commit.position - g.nr_slots() + 1;
      if (position_ > commit.position) return Got::nothing;
      const u32 k = static_cast<u32>(position_ % g.nr_slots());
      const u64 slot = M::load(&ring_.record(k).slot, Order::acquire);
      const u32 id = slot_id(k, slot);
      if (!g.holds(id)) return Got::corrupt;
      if (slot_lap(slot) != position_ / g.nr_slots()) {
        ++position_;
        continue;
      }
      const Got got = copy(id, ReaderState{});
      // The copy's loads before the look at the slot.
      if constexpr (O.enter_observe == Order::acquire) M::fence_acquire();  // pairs: ENTER
      if (M::load(&ring_.record(k).slot, Order::acquire) != slot) continue;
      ++position_;
      if (got == Got::data) expected_ = view_.first_index + view_.events;
      if (got != Got::nothing) return got;
    }
    return Got::nothing;
  }

  // begin, end and header of the copy in the buffer.
  const ReaderView& view() const noexcept { return view_; }

 private:
  Got reader_page() noexcept {
    const u64 generation = M::load(&ring_.control->reader_generation, Order::acquire);
    const ReaderState at = Reader<M, O>(ring_).state();
    const ReaderPlace own = reader_of(at.page);
    position_ = own.next;
    expected_ = at.expected;
    if (own.next == 0 || at.bytes > ring_.geometry.capacity()) return Got::nothing;
    if (!ring_.geometry.holds(own.id)) return Got::corrupt;
    const Got got = copy(own.id, at);
    if (got == Got::data) expected_ = view_.first_index + view_.events;
    if constexpr (O.enter_observe == Order::acquire) M::fence_acquire();  // pairs: ENTER
    return M::load(&ring_.control->reader_generation, Order::acquire) == generation ? got : Got::nothing;
  }

  Got copy(u32 id, const ReaderState& from) noexcept {
    const Committed now = committed_of(M::load(&ring_.record(id).committed, O.commit_observe));  // pairs: COMMIT
    if (now.bytes > ring_.geometry.capacity() || now.bytes % 4 != 0) return Got::corrupt;
    if (now.bytes <= from.bytes || now.events <= from.events) return Got::nothing;
    const u64 first = M::load(&ring_.record(id).base, Order::relaxed) + from.events;
    M::copy_in(buffer_, ring_.subbuf(id), abi::header_size + now.bytes);
    view_ = {id,    static_cast<u32>(from.bytes), now.bytes, now.events - static_cast<u32>(from.events),
             first > expected_ ? first - expected_ : 0, first, false};
    return Got::data;
  }

  Ring ring_;
  u8* buffer_;
  ReaderView view_;
  u64 position_ = 0, expected_ = 0;
  bool started_ = false;
};

}  // namespace ringside
