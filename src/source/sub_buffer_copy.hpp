// A sub-buffer in the format of read() of trace_pipe_raw: header, data, the number of missed events where it has room, zeros.
#pragma once
#include <cstring>
#include <ringside/abi/sub_buffer.hpp>

#include "source/source.hpp"

namespace ringside {

// copy: `have` bytes of a sub-buffer; 8-byte aligned, and readable up to `subbuf_size`. False: the header claims more data
// than there is (view.end says how much).
inline bool view_copy(const u8* copy, u64 have, u32 subbuf_size, SubBufferView& view) noexcept {
  abi::SubBufferHeader header{};
  std::memcpy(&header, copy, sizeof header);
  view = {};
  view.sub_buffer = copy;
  view.end = abi::commit_size(header.commit);
  view.time = header.time_stamp;
  view.lost_at_least = abi::commit_missed(header.commit);
  view.lost_before = view.lost_at_least ? 1 : 0;
  if (view.end > subbuf_size - abi::header_size || abi::header_size + view.end > have) return false;
  if (view.lost_before == 0) return true;
  if (!abi::commit_stored(header.commit) || view.end + 8 > subbuf_size - abi::header_size) return true;
  u64 lost = 0;
  std::memcpy(&lost, copy + abi::header_size + view.end, sizeof lost);
  if (lost != 0) view.lost_before = lost, view.lost_at_least = false;
  return true;
}

// Of a sub-buffer that was removed or overwritten with zeros: one that was recorded has events or a gap.
inline bool is_zeros(const abi::SubBufferHeader& header) noexcept { return header.time_stamp == 0 && header.commit == 0; }

// The header for a copy of a view. With missed_stored, view.lost_before, which is their number then, comes right after the
// data.
inline abi::SubBufferHeader header_of_copy(const SubBufferView& view, u32 subbuf_size) noexcept {
  abi::SubBufferHeader header{view.time, view.end - view.begin};
  if (view.lost_before == 0) return header;
  const bool counted = !view.lost_at_least && view.end - view.begin + 8 <= subbuf_size - abi::header_size;
  header.commit |= abi::missed_events | (counted ? abi::missed_stored : 0);
  return header;
}

}  // namespace ringside
