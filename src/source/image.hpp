// A sub-buffer as read() of trace_pipe_raw gives it: what its header says about the data behind it.
#pragma once
#include <cstring>
#include <ringside/abi/sub_buffer.hpp>

#include "source/source.hpp"

namespace ringside {

// image: `have` bytes of a sub-buffer, the room behind them up to `subbuf_size` readable; 8-byte aligned. False: the header
// claims more data than there is (view.end says how much).
inline bool view_image(const u8* image, u64 have, u32 subbuf_size, SubBufferView& view) noexcept {
  abi::SubBufferHeader header{};
  std::memcpy(&header, image, sizeof header);
  view = {};
  view.sub_buffer = image;
  view.end = abi::commit_size(header.commit);
  view.time = header.time_stamp;
  if (view.end > subbuf_size - abi::header_size || abi::header_size + view.end > have) return false;
  if (!abi::commit_missed(header.commit)) return true;
  view.lost_before = 1;  // at least
  if (!abi::commit_stored(header.commit) || view.end + 8 > subbuf_size - abi::header_size) return true;
  u64 lost = 0;
  std::memcpy(&lost, image + abi::header_size + view.end, sizeof lost);
  if (lost != 0) view.lost_before = lost;
  return true;
}

}  // namespace ringside
