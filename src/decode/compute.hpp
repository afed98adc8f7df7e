// The arithmetic of a print fmt: values of 64 bits, each of them as its type of C has it.
#pragma once
#include <bit>

#include "decode/formats.hpp"
#include "source/c_type.hpp"

namespace ringside {

// A value's lowest bits, with a sign or without.
inline u64 cut(u64 value, u32 bits, bool is_signed) {
  const u32 spare = 64 - bits;
  return is_signed ? static_cast<u64>(static_cast<i64>(value << spare) >> spare) : value << spare >> spare;
}

inline u64 converted(u64 value, const CType& type) {
  const CType to = type.value();
  return to.is_bool ? value != 0 : to.bits == 0 ? value : cut(value, to.bits, to.is_signed);
}

// Of one value; `bits`: its own, where they count.
inline u64 computed(ValueOp::Op op, u64 value, i64 bits = 64) {
  using enum ValueOp::Op;
  switch (op) {
    case negate:
      return 0 - value;
    case invert:
      return ~value;
    case boolean_not:
      return value == 0;
    case swap:
      return __builtin_bswap64(value) >> (64 - bits);
    case bit_length:
      return static_cast<u64>(std::bit_width(value));
    case ones:
      return static_cast<u64>(std::popcount(value));
    default:
      return value;
  }
}

// Of two. A division by 0 is 0; a shift counts as x86 does it.
inline u64 computed(ValueOp::Op op, i64 form, u64 a, u64 b) {
  using enum ValueOp::Op;
  const bool is_unsigned = (form & ValueOp::is_unsigned) != 0, narrow = (form & ValueOp::is_narrow) != 0;
  const auto x = static_cast<i64>(a), y = static_cast<i64>(b);
  const auto within = [&](u64 value) { return narrow ? cut(value, 32, !is_unsigned) : value; };
  const u32 places = static_cast<u32>(b) & (narrow ? 31 : 63);
  switch (op) {
    case add:
      return within(a + b);
    case subtract:
      return within(a - b);
    case multiply:
      return within(a * b);
    case divide:
      return b == 0 ? 0 : is_unsigned ? a / b : y == -1 ? within(0 - a) : static_cast<u64>(x / y);
    case remainder:
      return b == 0 ? 0 : is_unsigned ? a % b : y == -1 ? 0 : static_cast<u64>(x % y);
    case shift_left:
      return within(a << places);
    case shift_right:
      return is_unsigned ? a >> places : static_cast<u64>(x >> places);
    case bit_and:
      return a & b;
    case bit_or:
      return a | b;
    case bit_xor:
      return a ^ b;
    case both:
      return a != 0 && b != 0;
    case either:
      return a != 0 || b != 0;
    case equal:
      return a == b;
    case unequal:
      return a != b;
    case less:
      return is_unsigned ? a < b : x < y;
    case less_equal:
      return is_unsigned ? a <= b : x <= y;
    case greater:
      return is_unsigned ? a > b : x > y;
    case greater_equal:
      return is_unsigned ? a >= b : x >= y;
    default:
      return 0;
  }
}

}  // namespace ringside
