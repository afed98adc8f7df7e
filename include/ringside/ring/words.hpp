// The packed words of the control region. All zeros is a new ring: each encoding is chosen so that its initial value is 0,
// which keeps untouched control pages unallocated and makes a ring O(1) to create.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

inline constexpr u32 id_bits = 20;
inline constexpr u64 id_mask = (u64{1} << id_bits) - 1;

// A position and the sub-buffer that stands there. 44 bits of position: two years of 1 GB/s in 4 KiB sub-buffers.
struct Place {
  u64 position;
  u32 id;
  friend constexpr bool operator==(Place, Place) = default;
};

// tail, commit: initially position 0, sub-buffer 1.
constexpr u64 pack_place(Place p) noexcept { return p.position << id_bits | (p.id ^ 1u); }
constexpr Place place_of(u64 word) noexcept { return {word >> id_bits, static_cast<u32>(word & id_mask) ^ 1u}; }

// slot[k]: initially position k, sub-buffer k + 1. Stored as {lap, id ^ (k + 1)}; position = k + lap * n.
constexpr u64 pack_slot(u32 k, u64 lap, u32 id) noexcept { return lap << id_bits | (id ^ (k + 1)); }
// The writers of a CPU's ring say that they are about to enter the place: the reader leaves the sub-buffer there alone.
inline constexpr u64 entered_bit = u64{1} << 63;
constexpr bool slot_entered(u64 word) noexcept { return (word & entered_bit) != 0; }
constexpr u64 slot_lap(u64 word) noexcept { return (word & ~entered_bit) >> id_bits; }
constexpr u32 slot_id(u32 k, u64 word) noexcept { return static_cast<u32>(word & id_mask) ^ (k + 1); }

// reader page: initially sub-buffer 0, which stood nowhere. `next` = the position behind the one it was taken from.
struct ReaderPlace {
  u64 next;
  u32 id;
};
constexpr u64 pack_reader(ReaderPlace r) noexcept { return r.next << id_bits | r.id; }
constexpr ReaderPlace reader_of(u64 word) noexcept { return {word >> id_bits, static_cast<u32>(word & id_mask)}; }
// The intent to exchange the spare sub-buffer for `id`, which stands in slot k. Never 0.
constexpr u64 pack_exchange(u32 k, u32 id) noexcept { return u64{1} << 63 | u64{k} << id_bits | id; }
constexpr Place exchange_of(u64 word) noexcept { return {(word & ~(u64{1} << 63)) >> id_bits, static_cast<u32>(word & id_mask)}; }

// The reserve word of a sub-buffer: low 48 bits of the last event's time, offset / 4. See docs/design.md 3.2.
inline constexpr u64 closed = 0xFFFF;
constexpr u64 pack_reserve(u64 time, u64 offset) noexcept { return time << 16 | offset >> 2; }
constexpr u64 close_reserve(u64 word) noexcept { return word | closed; }
constexpr bool is_closed(u64 word) noexcept { return (word & closed) == closed; }
constexpr u32 reserve_offset(u64 word) noexcept { return static_cast<u32>(word & closed) << 2; }
// The full time of the word, given any full time less than 2^47 ticks away from it.
constexpr u64 reserve_time(u64 word, u64 near) noexcept {
  return near + static_cast<u64>(static_cast<i64>(((word >> 16) - near) << 16) >> 16);
}
static_assert(reserve_time(pack_reserve(u64{1} << 50, 0), (u64{1} << 50) - 5) == u64{1} << 50);
static_assert(reserve_time(pack_reserve((u64{1} << 50) - 5, 0), u64{1} << 50) == (u64{1} << 50) - 5);

// Events of a sub-buffer that are committed and not published, tagged with its position, so that a late reset fails.
constexpr u64 pack_count(u64 position, u32 count) noexcept { return position << 32 | count; }
constexpr u32 count_of(u64 word) noexcept { return static_cast<u32>(word); }

// What is published of a sub-buffer: events and bytes / 4, always as a pair.
struct Committed {
  u32 events, bytes;
};
constexpr u64 pack_committed(Committed c) noexcept { return u64{c.events} << 32 | c.bytes >> 2; }
constexpr Committed committed_of(u64 word) noexcept { return {static_cast<u32>(word >> 32), static_cast<u32>(word) << 2}; }

}  // namespace ringside
