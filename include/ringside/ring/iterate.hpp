// Looks at a ring without consuming, while the writer may overwrite it. Each sub-buffer is copied; the copy is valid only if
// the slot still says the same afterwards.
//
//   Iterator<> it(ring, buffer);                   // buffer: one sub-buffer's size
//   while (it.next() == Got::data) walk(it.view(), buffer)
//
// Any number of iterators at a time, in any process that maps the ring for reading. Each call hands out at most one sub-buffer,
// and is bounded by the number of sub-buffers. The first call starts with the unread rest of the reader page. Got::nothing:
// nothing now. The page that the writer is on, whether in its slot or taken by a reader, is looked at again from where its last
// copy ended. If the writer overwrites every sub-buffer during its copy, the view has no events, and lost_before counts those
// that were missed.
#pragma once
#include <ringside/ring/reader.hpp>

namespace ringside {

template <Memory M = Hardware, Orders O = Orders{}>
class Iterator {
 public:
  Iterator(const Ring& ring, u8* buffer) noexcept : ring_(ring), buffer_(buffer) {}

  Got next() noexcept {
    const Geometry& g = ring_.geometry;
    u32 tries = 8;  // then the reader page is left to a reader that moves on all the time
    u64 away = 0;   // distance from the oldest position, which is overwritten first; grows each time that the writer is faster
    for (u32 budget = 4 * g.nr_subbufs() + 64; budget != 0; --budget) {
      // Load the commit position first: pages before it are complete, so a later copy of them is stable.
      const Place commit = place_of(M::load(&ring_.control->commit, O.advance_observe));
      Got got;
      if (!fresh_ && position_ > commit.position + 1) start_over();  // a reset
      if (!fresh_) catch_up(commit);  // the reader page may be the one before
      if (tries != 0 && !reader_page(got)) {
        --tries;
        continue;
      }
      fresh_ = false;
      if (tries != 0 && got != Got::nothing) return got;
      catch_up(commit, away);
      if (position_ > commit.position) return Got::nothing;
      const bool left = position_ < commit.position;
      const u32 k = static_cast<u32>(position_ % g.nr_slots());
      const u64 slot = M::load(&ring_.record(k).slot, O.slot_observe);
      const u32 id = slot_id(k, slot);
      if (!g.holds(id)) return Got::corrupt;
      if (slot_lap(slot) != position_ / g.nr_slots()) {
        ++position_;
        continue;
      }
      const bool again = seen_position_ == position_;
      got = copy(id, again ? seen_ : ReaderState{});
      // The copy's loads come before the second look at the slot.
      fence_of<M, O.enter_observe>();  // pairs: ENTER
      if (M::load(&ring_.record(k).slot, O.slot_observe) != slot) {
        away = away < g.nr_slots() / 2 ? 2 * away + 1 : g.nr_slots() - 1;
        continue;
      }
      if (again && stamp_ != seen_stamp_) {
        start_over();
        continue;
      }
      if (got == Got::data) saw(position_);
      if (left) ++position_;
      if (got != Got::nothing || !left) return got;
    }
    return overtaken();
  }

  // begin, end and header of the copy in the buffer.
  const ReaderView& view() const noexcept { return view_; }
  // Index of the next event; at first, of the first one that no reader has consumed.
  u64 expected() const noexcept { return fresh_ ? Reader<M, O>(ring_).state().expected : expected_; }

 private:
  void catch_up(Place commit, u64 away = 0) noexcept {
    const u64 n = ring_.geometry.nr_slots() - away;
    if (commit.position >= n && position_ + n <= commit.position) position_ = commit.position - n + 1;
  }

  // Copies the reader page. False: the reader has moved meanwhile.
  bool reader_page(Got& got) noexcept {
    got = Got::nothing;
    const u64 generation = M::load(&ring_.control->reader_generation, O.state_observe);
    const Reader<M, O> reader(ring_);
    const ReaderState at = reader.state();
    const ReaderPlace own = reader_of(at.page);
    if (fresh_) {
      position_ = own.next;
      expected_ = at.expected;
    }
    if (own.next != position_ || seen_position_ == position_) return true;  // it is not the next page
    if (own.next == 0 || at.bytes > ring_.geometry.capacity()) return true;
    if (!ring_.geometry.holds(own.id)) {
      got = Got::corrupt;
      return true;
    }
    // What the reader has consumed may be gone: RingView::park gives its memory back.
    const bool again = seen_position_ == own.next - 1 && seen_.bytes > at.bytes;
    got = copy(own.id, again ? seen_ : at);
    fence_of<M, O.enter_observe>();  // pairs: ENTER
    // Ask the intent before the generation: it finds a reader that has given the page back, and whose note of that is not seen
    // yet.
    ReaderPlace wanted;
    if (reader.swapped(own, wanted)) return false;
    if (got == Got::data) {
      const u32 now = !is_of_cpu<O>(ring_)
                          ? committed_of(M::load(&ring_.record(own.id).committed, unordered)).bytes
                          : abi::commit_size(M::load(&ring_.header(own.id).commit, unordered));
      if (now < view_.end) return false;  // flagged
    }
    if (M::load(&ring_.control->reader_generation, O.state_observe) != generation) return false;
    if (again && stamp_ != seen_stamp_) {
      start_over();
      return false;
    }
    if (got == Got::data) saw(own.next - 1);
    return true;
  }

  // No copy was valid. Counts what the writer has passed; the next call begins where the writer is.
  Got overtaken() noexcept {
    const Place commit = place_of(M::load(&ring_.control->commit, O.advance_observe));
    if (!ring_.geometry.holds(commit.id)) return Got::corrupt;
    const u64 base = M::load(&ring_.record(commit.id).base, unordered);
    if (base <= expected_) return Got::nothing;
    const u64 stamp = M::load(&ring_.header(commit.id).time_stamp, unordered);
    __builtin_memcpy(buffer_, &stamp, sizeof stamp);
    view_ = {commit.id, 0, 0, 0, base - expected_, base, false};
    position_ = commit.position;
    expected_ = base;
    seen_position_ = ~u64{0};
    return Got::data;
  }

  // The ring was reset: nothing that is known of it holds.
  void start_over() noexcept {
    fresh_ = true;
    seen_position_ = ~u64{0};
  }

  // The view goes to the caller: the next call begins after it.
  void saw(u64 position) noexcept {
    seen_.events = view_.first_index - base_ + view_.events;
    seen_.bytes = view_.end;
    seen_position_ = position;
    seen_stamp_ = stamp_;
    expected_ = view_.first_index + view_.events;
  }

  Got copy(u32 id, const ReaderState& from) noexcept {
    const Committed now = published<M, O>(ring_, id, false, {static_cast<u32>(from.events), static_cast<u32>(from.bytes)});
    if (now.bytes > ring_.geometry.capacity() || now.bytes % 4 != 0 || from.bytes % 4 != 0) return Got::corrupt;
    stamp_ = M::load(&ring_.header(id).time_stamp, unordered);
    if (now.bytes <= from.bytes || now.events <= from.events) return Got::nothing;
    base_ = M::load(&ring_.record(id).base, unordered);
    const u64 first = base_ + from.events;
    if (first < expected_) return Got::nothing;  // a page older than what was seen: a reader has taken it
    M::copy_in(buffer_, ring_.subbuf(id), abi::header_size + now.bytes);
    view_ = {id,
             static_cast<u32>(from.bytes),
             now.bytes,
             now.events - static_cast<u32>(from.events),
             first > expected_ ? first - expected_ : 0,
             first,
             false};
    return Got::data;
  }

  Ring ring_;
  u8* buffer_;
  ReaderView view_;
  u64 position_ = 0, expected_ = 0;
  u64 base_ = 0;                    // index of the first event of the page in the view
  ReaderState seen_{};              // bytes and events of the page at
  u64 seen_position_ = ~u64{0};     // this position
  u64 stamp_ = 0, seen_stamp_ = 0;  // time of the page's first event; it differs after a reset
  bool fresh_ = true;
};

}  // namespace ringside
