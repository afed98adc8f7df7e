// The meta-page before the mapped sub-buffers: Linux `struct trace_buffer_meta`, merged in 6.10. The mapping is the
// meta-page (meta_page_size bytes), then all sub-buffers by id: offset(id) = meta_page_size + id * subbuf_size. The fields
// change when get_reader runs, not with every write. A mapper checks every field against what it knows, because the other side
// owns the page.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::abi {

struct MetaPage {
  u32 meta_page_size;  // == subbuf_size
  u32 meta_struct_len;
  u32 subbuf_size;  // header included
  u32 nr_subbufs;   // the reader page included
  struct {
    u64 lost_events;  // external writers: lost at the last swap; otherwise 0, because the loss is noted on the sub-buffer
    u32 id;           // the sub-buffer to read
    u32 read;         // data bytes of it counted as read
  } reader;
  u64 flags;
  u64 entries;  // events committed, cumulative
  u64 overrun;  // events overwritten, cumulative
  u64 read;     // events counted as read, cumulative
  u64 pages_lost;
  u64 pages_touched;
};
static_assert(sizeof(MetaPage) == 80);
static_assert(offsetof(MetaPage, nr_subbufs) == 12 && offsetof(MetaPage, reader.lost_events) == 16);
static_assert(offsetof(MetaPage, reader.id) == 24 && offsetof(MetaPage, reader.read) == 28);
static_assert(offsetof(MetaPage, flags) == 32 && offsetof(MetaPage, entries) == 40 && offsetof(MetaPage, overrun) == 48);
static_assert(offsetof(MetaPage, read) == 56 && offsetof(MetaPage, pages_touched) == 72);

inline constexpr u32 get_reader_ioctl = 0x5220;  // _IO('R', 0x20)

}  // namespace ringside::abi
