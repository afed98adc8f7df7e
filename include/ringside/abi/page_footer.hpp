// The last 32 bytes of each sub-buffer of an external writer that shares nothing but its sub-buffers. The footers of a ring
// alone show its order, its reader page and its losses, live or in a memory dump.
//
//   offset  size  field
//   -32     4     writer_status   bit 2: COMMIT, the sub-buffer of the newest published event; bits 8..11: sub-buffer size,
//                                 4 KiB << order; bits 16..31: 0x5253, which marks a footer in a dump
//   -28     4     reader_status   bit 0: HEAD, the oldest in the ring; bit 1: READER, outside it, the reader's; bits 8..31: the
//                                 ring's id
//   -24     8     entries         index of the sub-buffer's first event: events published before it
//   -16     8     pages_touched   its position: sub-buffers entered before it
//   -8      8     overrun         events lost before it in all, when it became the reader's
//
// The writer clears READER when it enters a sub-buffer, and stores entries and pages_touched when its commit position gets
// there. The writer's side of a swap stores overrun and READER in the new page, then clears READER in the old one.
// update_footers stores HEAD and COMMIT, which are hints. So while `commit` of a sub-buffer is not 0, entries and pages_touched
// belong to the events in it; and READER is right at any moment at which the writer may die.
#pragma once
#include <ringside/abi/sub_buffer.hpp>

namespace ringside::abi {

struct PageFooter {
  u32 writer_status;
  u32 reader_status;
  u64 entries;
  u64 pages_touched;
  u64 overrun;
};
inline constexpr u32 footer_size = 32;
static_assert(sizeof(PageFooter) == footer_size && offsetof(PageFooter, overrun) == 24);

inline constexpr u32 footer_head = 1, footer_reader = 2,
                     footer_commit = 4;  // the bits of the first external-writer form (2023)
inline constexpr u32 footer_magic = 0x52530000, footer_magic_mask = 0xFFFF0000;
inline constexpr u32 footer_rings = 1u << 24;  // ids are below this

constexpr u32 footer_order(u32 subbuf_size) noexcept {
  u32 order = 0;
  while (smallest_subbuf << order < subbuf_size) ++order;
  return order;
}
constexpr u32 writer_status(u32 subbuf_size, u32 bits) noexcept { return footer_magic | footer_order(subbuf_size) << 8 | bits; }
constexpr u32 reader_status(u32 ring, u32 bits) noexcept { return ring << 8 | bits; }

}  // namespace ringside::abi
