// A type of C, as far as a print fmt needs it.
#pragma once
#include <ringside/base/types.hpp>
#include <string_view>

namespace ringside {

struct CType {
  enum class Kind : u8 { nothing, integer, floating, unknown };  // unknown: a struct, or a name that only the kernel knows
  Kind kind = Kind::integer;
  u8 bits = 32;
  bool is_signed = true;
  bool is_char = false;  // plain char: %s of its arrays is a text
  bool is_bool = false;
  u8 stars = 0;  // levels of pointers to it
  u8 word = 8;   // bytes of a pointer

  static constexpr CType integer(u32 bits, bool is_signed) {
    return {Kind::integer, static_cast<u8>(bits), is_signed, false, false, 0, 8};
  }
  static constexpr CType character() { return {Kind::integer, 8, true, true, false, 0, 8}; }
  static constexpr CType text() { return character().pointer(); }
  static constexpr CType none() { return {Kind::unknown, 0, false, false, false, 0, 8}; }
  constexpr CType pointer() const {
    CType to = *this;
    ++to.stars;
    return to;
  }
  constexpr CType pointee() const {
    CType of = *this;
    --of.stars;
    return of;
  }
  constexpr bool is_pointer() const { return stars != 0; }
  constexpr bool is_number() const { return stars == 0 && kind == Kind::integer; }
  constexpr bool is_text() const { return stars == 1 && kind == Kind::integer && bits == 8; }
  // 0: only the kernel's compiler knows. GCC gives void a size of 1.
  constexpr u32 size() const {
    return stars != 0 ? word : kind == Kind::nothing ? 1 : kind == Kind::unknown ? 0 : is_bool ? 1 : bits / 8;
  }
  // As a value of 64 bits it is a number of these bits.
  constexpr CType value() const { return stars != 0 ? integer(8u * word, false) : *this; }
  // Whether each value of `other` is a value of this type.
  constexpr bool holds(const CType& other) const {
    const CType to = value(), from = other.value();
    if (to.is_bool || from.is_bool) return from.is_bool;
    return to.bits == 64 || (to.bits == from.bits && to.is_signed == from.is_signed) ||
           (to.bits > from.bits && (to.is_signed || !from.is_signed));
  }
};

// Integer promotion, and the type in which C computes with both.
constexpr CType promoted(const CType& type) {
  const CType of = type.value();
  return of.bits < 32 || of.is_bool ? CType::integer(32, true) : CType::integer(of.bits, of.is_signed);
}
constexpr CType common_type(const CType& left, const CType& right) {
  const CType a = promoted(left), b = promoted(right);
  return CType::integer(a.bits > b.bits ? a.bits : b.bits, a.bits == b.bits  ? a.is_signed && b.is_signed
                                                           : a.bits > b.bits ? a.is_signed
                                                                             : b.is_signed);
}

// A name of one word (u32, gfp_t, int); null: it is none of the kernel's for a number. `long int` and its kin are several
// words. word_size: bytes of a long. Types whose size depends on more than that (phys_addr_t) have 8 bytes.
const CType* named_type(std::string_view name, u32 word_size);

}  // namespace ringside
