// The 32-bit word before every event, and the length rules of the kernel's ring buffer.
//
//    31                              5 4        0
//   +---------------------------------+----------+
//   |  time_delta (27 bits)           | type_len |     little endian
//   +---------------------------------+----------+
//
//   type_len   meaning                                             whole size in bytes
//   1..28      data, payload of type_len * 4 bytes at +4           4 + 4 * type_len
//   0          data, array[0] = payload + 4, payload at +8         4 + array[0]
//   29         padding, delta != 0: array[0] counts                4 + array[0]
//   29         padding, delta == 0: nothing more here              the rest
//   30         time extend: (array[0] << 27) + delta, added        8
//   31         time stamp: the same split, absolute, low 59 bits   8
//
// Length of a data event: the payload, where 0 counts as 1; 4 more if it is over 112 bytes; 4 for the header; rounded up to 4.
// 12 becomes 16, so that a discarded event after a time extend never leaves a gap that is too small for padding.
// Source: Linux events/header_event, measured on 6.18.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::abi {

inline constexpr u32 type_data_max = 28;
inline constexpr u32 type_padding = 29;
inline constexpr u32 type_time_extend = 30;
inline constexpr u32 type_time_stamp = 31;

inline constexpr u32 delta_bits = 27;
inline constexpr u64 delta_limit = u64{1} << delta_bits;  // a delta must be below this, or a time extend goes in front
inline constexpr u32 small_payload_max = type_data_max * 4;
inline constexpr u32 stamp_size = 8;  // a time extend or a time stamp
inline constexpr u64 stamp_mask = (u64{1} << 59) - 1;

constexpr u32 event_word(u32 type_len, u32 delta) noexcept { return type_len | delta << 5; }
constexpr u32 word_type(u32 word) noexcept { return word & 31; }
constexpr u32 word_delta(u32 word) noexcept { return word >> 5; }

// The bytes that a data event takes on a sub-buffer. payload: below 2^30.
constexpr u32 event_size(u32 payload) noexcept {
  u32 n = payload != 0 ? payload : 1;
  if (n > small_payload_max) n += 4;
  n = align_up(n + 4, 4u);
  return n == 12 ? 16 : n;
}

// Offset of the payload in a data event of this whole size.
constexpr u32 payload_offset(u32 size) noexcept { return size - 4 > small_payload_max ? 8 : 4; }

// The largest payload on a sub-buffer with room for `capacity` bytes of data.
constexpr u32 largest_payload(u32 capacity) noexcept { return capacity - 8; }

// The id that payloads of an instance's event carry. number: 1 to 4,095. The kernel numbers its own events from 1 up and has a
// few thousand, and a file may hold both.
constexpr u32 event_id(u32 number) noexcept { return 0xF000 | number; }

static_assert(event_size(0) == 8 && event_size(4) == 8 && event_size(5) == 16 && event_size(12) == 16);
static_assert(event_size(13) == 20 && event_size(112) == 116 && event_size(113) == 124 && event_size(117) == 128);
static_assert(event_size(largest_payload(4080)) == 4080);

}  // namespace ringside::abi
