// A line as literals with values of a payload between them. Nearly all parts of a line are a short literal and a whole number;
// print() writes these two without asking for room each time.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "decode/append.hpp"

namespace ringside {

class LineTemplate {
 public:
  // A whole number of 1, 2, 4 or 8 bytes. `kept` of its bytes are printed (the length modifier of a printf), as a signed number
  // or not. Beyond the payload it is 0.
  struct Number {
    enum class Form : u8 { decimal, hex, pointer };  // pointer: 0x and hexadecimal, or (nil)
    u32 offset = 0;
    u8 size = 8, kept = 8;
    bool is_signed = false, prints_signed = false;
    Form form = Form::decimal;
    u8 zeros = 0;  // hex: the least number of digits, 16 at most; 0: no zeros in front
  };
  void literal(std::string_view text) {
    part().literal_size += static_cast<u32>(text.size());
    texts_.insert(texts_.size() - CopiedText::step, text);
    bound_ += text.size();
  }
  void number(const Number& number) {
    part().kind = Kind::number;
    parts_.back().number = number;
    bound_ += detail::most_digits;
  }
  // print() asks for it by its index.
  void other(u32 index) {
    part().kind = Kind::other;
    parts_.back().index = index;
  }

  // other(index, out) appends what is no whole number.
  template <class Other>
  void print(Bytes payload, Appender& out, const Other& other) const {
    const char* from = texts_.data();
    char* to = out.room(bound_);
    for (const Part& part : parts_) {
      to = CopiedText::put(to, from, part.literal_size);
      from += part.literal_size;
      switch (part.kind) {
        case Kind::none:
          break;
        case Kind::number:
          to = put(to, part.number, read(part.number, payload));
          break;
        case Kind::other:
          out.end_at(to);
          other(part.index, out);
          to = out.room(bound_);
          break;
      }
    }
    out.end_at(to);
  }

 private:
  enum class Kind : u8 { none, number, other };
  struct Part {
    u32 literal_size = 0;
    Kind kind = Kind::none;
    Number number{};
    u32 index = 0;
  };
  // The part whose value is not yet known.
  Part& part() {
    if (parts_.empty() || parts_.back().kind != Kind::none) parts_.emplace_back();
    return parts_.back();
  }
  static char* put(char* to, const Number& number, u64 value) {
    using Form = Number::Form;
    if (number.form == Form::decimal) return detail::put_decimal(to, value, number.prints_signed);
    if (number.form == Form::hex && number.zeros != 0) return detail::put_hex_padded(to, value, number.zeros);
    if (number.form == Form::hex) return detail::put_hex(to, value);
    return detail::put_pointer(to, value);
  }
  static u64 cut(u64 value, u32 size, bool is_signed) {
    const u32 spare = 64 - 8 * size;
    return is_signed ? static_cast<u64>(static_cast<i64>(value << spare) >> spare) : value << spare >> spare;
  }
  static u64 read(const Number& number, Bytes payload) {
    u64 value = 0;
    if (u64{number.offset} + number.size > payload.size) return 0;
    if (payload.size >= sizeof value) [[likely]] {  // eight bytes that are there, with the number in them
      const u32 from = std::min(number.offset, static_cast<u32>(payload.size) - 8);
      __builtin_memcpy(&value, payload.data + from, sizeof value);
      value >>= 8 * (number.offset - from);
    } else {
      __builtin_memcpy(&value, payload.data + number.offset, number.size);
    }
    return cut(cut(value, number.size, number.is_signed), number.kept, number.prints_signed);
  }

  std::vector<Part> parts_;
  std::string texts_ = std::string(CopiedText::step, ' ');  // the literals, and what is copied after the last one
  size_t bound_ = 2 * CopiedText::step;
};

}  // namespace ringside
