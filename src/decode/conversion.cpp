#include "decode/conversion.hpp"

#include <algorithm>
#include <bit>

#include "decode/syscalls.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class ConversionReader {
 public:
  explicit ConversionReader(std::string_view text) : text_(text) {}
  char here() const { return at < text_.size() ? text_[at] : '\0'; }
  bool take(char c) {
    const bool there = here() == c && at < text_.size();
    at += there;
    return there;
  }
  u32 number() {
    u32 value = 0;
    for (; is_digit(here()); ++at) value = std::min<u32>(value * 10 + static_cast<u32>(here() - '0'), PrintForm::largest);
    return value;
  }
  std::string_view letters() {
    const size_t from = at;
    while (is_alnum(here())) ++at;
    return text_.substr(from, at - from);
  }
  size_t at = 0;

 private:
  std::string_view text_;
};

u32 decimal_digits(u64 value) {
  u32 n = 1;
  for (; value >= 100; value /= 100) n += 2;
  return n + (value >= 10);
}
u32 octal_digits(u64 value) { return static_cast<u32>(std::bit_width(value | 1) + 2) / 3; }
u32 hex_digits(u64 value) { return static_cast<u32>(std::bit_width(value | 1) + 3) / 4; }

}  // namespace

Conversion read_conversion(std::string_view text) {
  Conversion out;
  PrintForm& form = out.form;
  ConversionReader in(text);
  for (;; ++in.at) {
    const char c = in.here();
    if (c == '-')
      form.left = true;
    else if (c == '0')
      form.zeros = true;
    else if (c == '#')
      form.sharp = true;
    else if (c == '+')
      form.plus = true;
    else if (c == ' ')
      form.blank = true;
    else
      break;
  }
  if (in.take('*'))
    out.star_width = true;
  else
    form.width = static_cast<u8>(in.number());
  if (in.take('.')) {
    if (in.take('*'))
      out.star_precision = true;
    else
      form.precision = static_cast<int16_t>(in.number());
  }
  for (;; ++in.at) {
    const char c = in.here();
    if (c == 'h')
      out.size = out.size == 2 ? 1 : 2;
    else if (c == 'l' || c == 'L' || c == 'z' || c == 'Z' || c == 't' || c == 'j' || c == 'q')
      out.is_word = out.size != 8 && c != 'L' && c != 'j' && c != 'q', out.size = 8;
    else
      break;
  }
  const char letter = in.here();
  if (letter != '\0' && std::string_view("diuxXocspfFgGeE%").find(letter) != std::string_view::npos) {
    ++in.at;
    out.letter = letter == 'i' ? 'd' : letter;
    form.base = letter == 'x' || letter == 'X' ? 16 : letter == 'o' ? 8 : 10;
    form.upper = letter == 'X';
    if (letter == 'p') out.extension = in.letters();
  }
  out.length = in.at;
  return out;
}

bool Conversion::names_function() const {
  return letter == 'p' && !extension.empty() && std::string_view("sSfFB").find(extension[0]) != std::string_view::npos;
}

void append_number(const PrintForm& form, bool is_signed, u64 value, Appender& out) {
  const bool negative = is_signed && form.base == 10 && static_cast<i64>(value) < 0;
  const u64 amount = negative ? 0 - value : value;
  const bool number = form.base == 10 && is_signed;
  const std::string_view sign = negative ? "-" : number && form.plus ? "+" : number && form.blank ? " " : "";
  const std::string_view base = !form.sharp || form.base == 10 ? ""
                                : form.base == 8               ? amount != 0 ? "0" : ""
                                : form.upper                   ? "0X"
                                                               : "0x";
  const u32 digits = form.base == 16 ? hex_digits(amount) : form.base == 8 ? octal_digits(amount) : decimal_digits(amount);
  const u32 zeros = form.precision > static_cast<i32>(digits) ? static_cast<u32>(form.precision) - digits : 0;
  const size_t size = sign.size() + base.size() + zeros + digits, fill = form.width > size ? form.width - size : 0;
  if (!form.left && !form.zeros) out.fill(' ', fill);
  append(out, sign);
  append(out, base);
  out.fill('0', zeros + (form.zeros && !form.left ? fill : 0));
  if (form.base == 10) {
    append_decimal(static_cast<i64>(amount), false, out);
  } else {
    char* const text = out.room(digits);
    const u32 shift = form.base == 16 ? 4 : 3;
    u64 rest = amount;
    for (u32 n = digits; n-- != 0; rest >>= shift) {
      const u32 digit = static_cast<u32>(rest) & (form.base - 1U);
      text[n] = static_cast<char>(digit < 10 ? '0' + digit : (form.upper ? 'A' : 'a') + digit - 10);
    }
    out.end_at(text + digits);
  }
  if (form.left) out.fill(' ', fill);
}

void append_text(std::string_view text, Appender& out) {
  if (!sys::has_control(text)) [[likely]]
    return append(out, text);
  for (const char c : text) {
    if (sys::is_control(c))
      append(out, fmt::format("\\x{:02x}", static_cast<unsigned char>(c)));
    else
      out.push_back(c);
  }
}

void append_sized(const PrintForm& form, std::string_view text, Appender& out) {
  if (form.precision >= 0) text = text.substr(0, static_cast<size_t>(form.precision));
  const size_t fill = form.width > text.size() ? form.width - text.size() : 0;
  if (!form.left) out.fill(' ', fill);
  append_text(text, out);
  if (form.left) out.fill(' ', fill);
}

void append_address(u64 address, bool distance, bool returns, const Symbols& symbols, Appender& out) {
  const bool usual = distance && !returns;
  if (const CopiedText* const known = usual ? symbols.texts().find(address) : nullptr; known != nullptr)
    return append(out, *known);
  const size_t begin = out.size();
  const Symbols::Symbol* const symbol = symbols.find(returns && address != 0 ? address - 1 : address);
  if (symbol != nullptr) append(out, symbol->name);
  if (symbol != nullptr && !distance) return;
  append(out, symbol != nullptr ? "+0x" : "0x");
  append_base16(symbol != nullptr ? address - symbol->address : address, out);
  if (usual && symbol != nullptr) symbols.texts().add(address, out.since(begin));
}

std::string error_of_pointer(u64 pointer, Architecture of) {
  const std::string_view name = error_name(static_cast<i64>(pointer), of);
  return name.empty() ? std::string() : "-" + std::string(name);
}

}  // namespace ringside
