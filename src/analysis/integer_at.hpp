// A whole number at a known place of payloads, whatever its width and sign: one load of the eight bytes that hold it, a shift,
// a mask, and no branch on its width or sign.
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
        reach_(at_ + 8),
        bits_(~u64{0} >> (64 - 8 * size)),
        down_(static_cast<u8>(offset + size > 8 ? 64 - 8 * size : 8 * offset)),
        sign_(is_signed ? u64{1} << (8 * size - 1) : 0) {}

  RINGSIDE_INLINE i64 operator()(Bytes payload) const {
    if (!within(payload)) [[unlikely]] return of_few(payload);
    return quick(payload);
  }
  // The usual case, for callers that go another way in the others.
  RINGSIDE_INLINE bool within(Bytes payload) const { return reach_ <= payload.size; }
  RINGSIDE_INLINE i64 quick(Bytes payload) const {
    u64 word = 0;
    std::memcpy(&word, payload.data + at_, sizeof word);
    return extend(word);
  }
  u64 reach() const { return reach_; }  // within() holds for payloads of this size

 private:
  friend class IntegerTest;
  static_assert(std::endian::native == std::endian::little);
  RINGSIDE_INLINE i64 extend(u64 word) const { return static_cast<i64>(((word >> down_ & bits_) ^ sign_) - sign_); }
  // A payload of less than eight bytes may hold it, too.
  [[gnu::noinline]] i64 of_few(Bytes payload) const {
    u64 word = 0;
    if (at_ != 0 || size_t{(down_ + std::bit_width(bits_)) / 8u} > payload.size) return 0;
    std::memcpy(&word, payload.data, payload.size);
    return extend(word);
  }

  u64 at_ = ~u64{0} >> 1;  // offset of the eight bytes: they end with the number, or are the first
  u64 reach_ = at_ + 8;    // the size of a payload that has them all
  u64 bits_ = ~u64{0};     // of the number
  u8 down_ = 0;
  u64 sign_ = 0;
};

// low <= (number & mask) <= low + span, modulo 2^64, in as few operations as it takes, for payloads within reach.
class IntegerTest {
 public:
  static bool can(const IntegerAt& number, u64 mask) {  // not the bits to which a signed number is extended
    return mask == ~u64{0} || number.sign_ == 0 || (mask & ~number.bits_) == 0;
  }
  IntegerTest() = default;
  IntegerTest(const IntegerAt& number, u64 mask, u64 low, u64 span)
      : at_(number.at_),
        bits_(number.bits_ & mask),
        sign_(mask == ~u64{0} ? number.sign_ : 0),
        from_(sign_ + low),
        span_(span),
        down_(number.down_) {}
  RINGSIDE_INLINE bool operator()(Bytes payload) const {
    u64 word = 0;
    std::memcpy(&word, payload.data + at_, sizeof word);
    return ((word >> down_ & bits_) ^ sign_) - from_ <= span_;
  }

 private:
  u64 at_ = 0, bits_ = 0, sign_ = 0, from_ = 0, span_ = 0;
  u8 down_ = 0;
};

}  // namespace ringside
