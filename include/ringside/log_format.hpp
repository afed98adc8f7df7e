// A log message in fmt's syntax, as far as printf has the same: RINGSIDE_LOG checks it while it compiles, and the library makes
// a print format of it, which every reader of a trace knows.
//
//   replacement = "{" [ NUMBER ] [ ":" SPEC ] "}"     SPEC = [ "<" | ">" ] [ "+" | "-" | " " ] [ "#" ] [ "0" ] [ WIDTH ]
//                                                            [ "." PRECISION ] [ TYPE ]
//   TYPE: d x X o of integers, bool, char and enums; c of char; s of texts, bool and enums with names; p of addresses;
//         e E f F g G of floating numbers
#pragma once
#include <ringside/ringside.h>

#include <ringside/base/types.hpp>

namespace ringside::log_format {

enum class Fault : u8 { none, brace, few, many, mixed, syntax, type };

struct Spec {
  u32 argument = 0;
  char align = 0, sign = 0, type = 0;  // 0: it has none
  bool sharp = false, zeros = false;
  i32 width = -1, precision = -1;  // -1: it has none
  constexpr bool plain() const {
    return align == 0 && sign == 0 && type == 0 && !sharp && !zeros && width < 0 && precision < 0;
  }
};

// Whether values of a field can be written so.
constexpr bool fits(const Spec& s, const ringside_field& f) {
  const auto is_one_of = [&](const char* types) {
    for (; *types != 0; ++types)
      if (s.type == *types) return true;
    return false;
  };
  const bool number_form = s.sign != 0 || s.sharp || s.zeros;
  if (s.plain()) return true;
  if (f.count != 0) return false;
  switch (f.kind) {
    case RINGSIDE_STRING:
      return (s.type == 0 || s.type == 's') && !number_form;
    case RINGSIDE_FLOAT:
      return s.type == 0 ? !number_form && s.precision < 0 : is_one_of("eEfFgG");
    case RINGSIDE_POINTER:
      return s.type == 'p' && !number_form && s.width < 0 && s.precision < 0;
    case RINGSIDE_BOOL:
    case RINGSIDE_CHAR:
    case RINGSIDE_SIGNED:
    case RINGSIDE_UNSIGNED: {
      const bool is_text = f.kind == RINGSIDE_CHAR   ? s.type == 0 || s.type == 'c'
                           : f.kind == RINGSIDE_BOOL ? s.type == 0 || s.type == 's'
                                                     : f.symbols != nullptr && (s.type == 0 || s.type == 's');
      return s.precision < 0 && (is_text ? !number_form : s.type == 0 || is_one_of("dxXo"));
    }
    default:
      return false;
  }
}

// Reads a message piece by piece.
class Reader {
 public:
  enum class Piece : u8 { end, character, replacement, fault };
  constexpr explicit Reader(const char* message) : at_(message) {}

  constexpr Piece next() {
    if (*at_ == 0) return Piece::end;
    character = *at_++;
    if (character != '{' && character != '}') return Piece::character;
    if (*at_ == character) return ++at_, Piece::character;
    if (character == '}') return failed(Fault::brace);
    spec = {};
    if (!argument()) return failed(Fault::mixed);
    if (*at_ == ':') ++at_, read_spec();
    if (*at_ == '}') return ++at_, Piece::replacement;
    return failed(*at_ == 0 ? Fault::brace : Fault::syntax);
  }

  char character = 0;  // of the last piece
  Spec spec{};
  Fault fault = Fault::none;

 private:
  constexpr Piece failed(Fault why) { return fault = why, Piece::fault; }
  constexpr bool is_digit() const { return *at_ >= '0' && *at_ <= '9'; }
  constexpr i32 number() {
    i32 value = 0;
    for (; is_digit(); ++at_) value = value < 100'000 ? value * 10 + (*at_ - '0') : value;
    return value;
  }
  constexpr bool argument() {
    const bool numbered = is_digit();
    if (next_ != 0 && numbered != numbered_) return false;
    numbered_ = numbered;
    spec.argument = numbered ? static_cast<u32>(number()) : next_;
    ++next_;
    return true;
  }
  constexpr bool take(char c) { return *at_ == c && (++at_, true); }
  constexpr void read_spec() {
    if (*at_ == '<' || *at_ == '>') spec.align = *at_++;
    if (*at_ == '+' || *at_ == '-' || *at_ == ' ') spec.sign = *at_++;
    spec.sharp = take('#');
    spec.zeros = take('0');
    if (is_digit()) spec.width = number();
    if (*at_ == '.' && at_[1] >= '0' && at_[1] <= '9') ++at_, spec.precision = number();
    for (const char* type = "dxXoscpeEfFgG"; *type != 0 && spec.type == 0; ++type)
      if (*at_ == *type) spec.type = *at_++;
    constexpr i32 widest = 255;  // readers pad no further
    if (spec.width > widest || spec.precision > widest) spec.width = -1, at_ = "?";
  }

  const char* at_;
  u32 next_ = 0;
  bool numbered_ = false;
};

// What is wrong with a message for these arguments: `n` fields.
constexpr Fault fault_of(const char* message, const ringside_field* fields, u32 n) {
  u64 shown = 0;
  for (Reader reader(message);;) {
    switch (reader.next()) {
      case Reader::Piece::character:
        continue;
      case Reader::Piece::fault:
        return reader.fault;
      case Reader::Piece::end:
        return shown == (u64{1} << n) - 1 ? Fault::none : Fault::many;
      case Reader::Piece::replacement:
        break;
    }
    const u32 i = reader.spec.argument;
    if (i >= n) return Fault::few;
    if (!fits(reader.spec, fields[i])) return Fault::type;
    shown |= u64{1} << i;
  }
}

// The message of an event's print_fmt "FILE\nLINE\nMESSAGE".
constexpr const char* message_of(const char* print) {
  for (int lines = 2; lines != 0; ++print) lines -= *print == '\n';
  return print;
}

}  // namespace ringside::log_format
