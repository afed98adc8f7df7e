// A whole number at a known place of payloads, whatever its width and sign: one load of the eight bytes that hold it, two shifts,
// and no branch on its width or sign.
//
//   const IntegerAt prio(field->offset, field->size, field->is_signed);
//   i64 value = prio(record.payload);     // a number outside the payload reads as 0
#pragma once
#include <algorithm>
#include <bit>
#include <cstring>
#include <ringside/base/types.hpp>

namespace ringside {

class IntegerAt {
 public:
  IntegerAt() = default;  // always 0
  IntegerAt(u64 offset, u32 size, bool is_signed)  // size: 1, 2, 4 or 8
      : at_(std::max<u64>(offset + size, 8) - 8),
        up_(static_cast<u8>(64 - std::min<u64>(8 * (offset + size), 64))),
        down_(static_cast<u8>(64 - 8 * size)),
        sign_(is_signed ? u64{1} << (8 * size - 1) : 0) {}

  RS_INLINE i64 operator()(Bytes payload) const {
    u64 word = 0;
    if (at_ + sizeof word > payload.size) [[unlikely]] return of_few(payload);
    std::memcpy(&word, payload.data + at_, sizeof word);
    return extend(word);
  }

 private:
  static_assert(std::endian::native == std::endian::little);
  RS_INLINE i64 extend(u64 word) const { return static_cast<i64>(((word << up_ >> down_) ^ sign_) - sign_); }
  // A payload of less than eight bytes may hold it, too.
  [[gnu::noinline]] i64 of_few(Bytes payload) const {
    u64 word = 0;
    if (at_ != 0 || sizeof word - up_ / 8 > payload.size) return 0;
    std::memcpy(&word, payload.data, payload.size);
    return extend(word);
  }

  u64 at_ = ~u64{0} >> 1;  // offset of the eight bytes: they end with the number, or are the first
  u8 up_ = 0, down_ = 0;
  u64 sign_ = 0;
};

}  // namespace ringside
