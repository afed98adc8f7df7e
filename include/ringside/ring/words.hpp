// The packed words of the control region. Each encoding is chosen so that its initial value is 0: all zeros is a new ring. So
// untouched pages of control stay unallocated, and making a ring takes O(1).
//
//            63                                           20 19                   0
//           +-----------------------------------------------+----------------------+
//   Place   |  position (44 bits)                           |  id ^ 1              |   tail, commit
//           +-----------------------------------------------+----------------------+
//   reader  |  next (44 bits)                               |  id                  |   ReaderState::page, intent
//           +--+--------------------------------------------+----------------------+
//   slot[k] |E |  lap (43 bits)                             |  id ^ (k + 1)        |   E: entered_bit
//           +--+--------------------------------------------+----------------------+
//   exchange|1 |  k (43 bits)                               |  id                  |   0: none is under way
//           +--+--------------------------------------------+----------------------+
//
//            63                                                        16 15        0
//           +------------------------------------------------------------+------------+
//   reserve |  time, low 48 bits                                         | offset / 4 |   0xFFFF: closed
//           +------------------------------------------------------------+------------+
//
//            63                             32 31 30        20 19                   0
//           +---------------------------------+--+------------+----------------------+
//   count   |  position, low 32 bits          |  events                              |
//           +---------------------------------+--------------------------------------+
//   commit- |  events                         |  bytes / 4 (ring of a CPU: bytes)    |
//   ted     +---------------------------------+--+------------+----------------------+
//   real_end|  position, low 32 bits          |U |  0         |  end of the data     |   U: unpadded (control.hpp)
//           +---------------------------------+--+------------+----------------------+
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

inline constexpr u32 id_bits = 20;
inline constexpr u64 id_mask = (u64{1} << id_bits) - 1;

// A position and the sub-buffer that is there. 44 bits of position last two years at 1 GB/s in 4 KiB sub-buffers.
struct Place {
  u64 position;
  u32 id;
  friend constexpr bool operator==(Place a, Place b) noexcept { return a.position == b.position && a.id == b.id; }
};

// tail, commit. Initially position 0, sub-buffer 1.
constexpr u64 pack_place(Place p) noexcept { return p.position << id_bits | (p.id ^ 1u); }
constexpr Place place_of(u64 word) noexcept { return {word >> id_bits, static_cast<u32>(word & id_mask) ^ 1u}; }

// slot[k]. Initially position k, sub-buffer k + 1. The position is k + lap * n, where n is the number of slots.
constexpr u64 pack_slot(u32 k, u64 lap, u32 id) noexcept { return lap << id_bits | (id ^ (k + 1)); }
// A writer of a CPU's ring sets this bit before it enters the place. The reader then leaves the sub-buffer there alone.
inline constexpr u64 entered_bit = u64{1} << 63;
constexpr bool slot_entered(u64 word) noexcept { return (word & entered_bit) != 0; }
constexpr u64 slot_lap(u64 word) noexcept { return (word & ~entered_bit) >> id_bits; }
constexpr u32 slot_id(u32 k, u64 word) noexcept { return static_cast<u32>(word & id_mask) ^ (k + 1); }

// The reader page. Initially sub-buffer 0, which had no place. next: the position after the one that the page was taken from.
struct ReaderPlace {
  u64 next;
  u32 id;
};
constexpr u64 pack_reader(ReaderPlace r) noexcept { return r.next << id_bits | r.id; }
constexpr ReaderPlace reader_of(u64 word) noexcept { return {word >> id_bits, static_cast<u32>(word & id_mask)}; }
// The intent to exchange the spare sub-buffer for `id`, which is in slot k. Never 0. Answered as a Place whose position is
// k.
constexpr u64 pack_exchange(u32 k, u32 id) noexcept { return u64{1} << 63 | u64{k} << id_bits | id; }
constexpr Place exchange_of(u64 word) noexcept {
  return {(word & ~(u64{1} << 63)) >> id_bits, static_cast<u32>(word & id_mask)};
}

// The reserve word of a sub-buffer: low 48 bits of the last event's time, offset / 4. See docs/design/ring.md.
inline constexpr u64 closed = 0xFFFF;
constexpr u64 pack_reserve(u64 time, u64 offset) noexcept { return time << 16 | offset >> 2; }
constexpr u64 close_reserve(u64 word) noexcept { return word | closed; }
constexpr bool is_closed(u64 word) noexcept { return (word & closed) == closed; }
constexpr u32 reserve_offset(u64 word) noexcept { return static_cast<u32>(word & closed) << 2; }
// The full time of the word. near: any full time less than 2^47 ticks away from it.
constexpr u64 reserve_time(u64 word, u64 near) noexcept {
  return near + static_cast<u64>(static_cast<i64>(((word >> 16) - near) << 16) >> 16);
}
static_assert(reserve_time(pack_reserve(u64{1} << 50, 0), (u64{1} << 50) - 5) == u64{1} << 50);
static_assert(reserve_time(pack_reserve((u64{1} << 50) - 5, 0), u64{1} << 50) == (u64{1} << 50) - 5);

// Events of a sub-buffer that are committed and not yet published. The tag, its position, makes a late reset fail.
constexpr u64 pack_count(u64 position, u32 count) noexcept { return position << 32 | count; }
constexpr u32 count_of(u64 word) noexcept { return static_cast<u32>(word); }

// What is published of a sub-buffer: events and bytes, always as a pair. The word holds bytes / 4.
struct Committed {
  u32 events, bytes;
};
constexpr u64 pack_committed(Committed c) noexcept { return u64{c.events} << 32 | c.bytes >> 2; }
constexpr Committed committed_of(u64 word) noexcept { return {static_cast<u32>(word >> 32), static_cast<u32>(word) << 2}; }

}  // namespace ringside
