// A sub-buffer: 16 bytes of header, then events back to back. The ring's writer writes it; the reader that hands it out sets
// the missed-events flags.
//
//   offset  size  field
//   0       8     time_stamp   absolute time of the first event
//   8       8     commit       low 20 bits: committed bytes of data; bit 31: events were missed before this sub-buffer;
//                              bit 30: their number is a u64 right after the data (if 8 bytes are left)
//   16      ...   data
//
// The kernel sets bit 31 by adding a negative constant, so the upper half of `commit` is then all ones; readers use the low
// half. A sub-buffer that was left for the next one ends in padding: a padding event, inside commit, if at least 8 bytes are
// free; a padding word, outside commit, if 4 are.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::abi {

struct SubBufferHeader {
  u64 time_stamp;
  u64 commit;
};
inline constexpr u32 header_size = 16;
static_assert(sizeof(SubBufferHeader) == header_size);

inline constexpr u32 smallest_subbuf = 4096;
inline constexpr u32 largest_subbuf = 256 * 1024;  // an offset / 4 fits 16 bits with room for "closed"

inline constexpr u64 commit_mask = 0xFFFFF;
inline constexpr u64 missed_stored = u64{1} << 30;
inline constexpr u64 missed_events = ~u64{0} << 31;  // sign-extended, as the kernel stores it

constexpr u32 commit_size(u64 commit) noexcept { return static_cast<u32>(commit & commit_mask); }
constexpr bool commit_missed(u64 commit) noexcept { return (commit >> 31 & 1) != 0; }
constexpr bool commit_stored(u64 commit) noexcept { return (commit >> 30 & 1) != 0; }

// The commit of a sub-buffer that was left when its data ended at `real_end`.
constexpr u32 final_commit(u32 real_end, u32 capacity) noexcept { return capacity - real_end >= 8 ? capacity : real_end; }

}  // namespace ringside::abi
