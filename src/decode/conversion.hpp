// One %-conversion of the kernel's printf, in a print fmt and in trace_printk's formats.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "decode/append.hpp"
#include "decode/formats.hpp"

namespace ringside {

struct Conversion {
  PrintForm form;  // width and precision: the constants
  bool star_width = false, star_precision = false;
  u8 size = 4;                 // of the argument, in bytes, by the length modifier
  bool is_word = false;        // the size is that of a long; it is 8 only where that has 8 bytes
  char letter = 0;             // d and i are d; 0: there is none
  std::string_view extension;  // the letters after p
  size_t length = 0;           // of the conversion, after the %

  bool is_signed() const { return letter == 'd'; }
  // %ps and %pS, and their kin: a function's name. %pB looks one byte earlier, as for a return address.
  bool names_function() const;
  bool with_distance() const { return extension[0] == 'S' || extension[0] == 'F' || extension[0] == 'B'; }
};

// After a %.
Conversion read_conversion(std::string_view text);

// What * means; a negative width is one with the flag -, a negative precision is none.
inline void set_width(PrintForm& form, i32 width) {
  form.left = form.left || width < 0;
  form.width = static_cast<u8>(std::min<i64>(width < 0 ? -i64{width} : width, PrintForm::largest));
}
inline void set_precision(PrintForm& form, i32 precision) {
  form.precision = static_cast<int16_t>(std::clamp<i32>(precision, -1, PrintForm::largest));
}

// A number as this form prints it. It differs from C's printf in #, whose 0 is 0x0, and in a precision of 0, which keeps the 0.
void append_number(const PrintForm& form, bool is_signed, u64 value, Appender& out);
// With width and precision.
void append_sized(const PrintForm& form, std::string_view text, Appender& out);
// A text of the traced program is printed within one line and often on a terminal: no control characters.
void append_text(std::string_view text, Appender& out);
void append_address(u64 address, bool distance, bool returns, const Symbols& symbols, Appender& out);
// %pe: the name of an error that a pointer holds; empty: it is a pointer.
std::string error_of_pointer(u64 pointer, Architecture of);

}  // namespace ringside
