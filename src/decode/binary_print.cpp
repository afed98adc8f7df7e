#include "decode/binary_print.hpp"

#include <cstring>
#include <optional>

#include "decode/compute.hpp"
#include "decode/conversion.hpp"

namespace ringside {
namespace {

// As the kernel packs them: numbers aligned to their size, of which 4 is the largest alignment; texts with their NUL, and those
// of most %p, which the kernel has printed already.
class Arguments {
 public:
  explicit Arguments(const PackedArguments& all)
      : bytes_(all.bytes), word_(all.word_size), big_endian_(all.big_endian), architecture_(all.architecture) {}
  u32 word() const { return word_; }
  Architecture architecture() const { return architecture_; }
  std::optional<u64> number(u32 size, bool is_signed) {
    const u32 alignment = size < 4 ? size : 4;
    const size_t at = (at_ + alignment - 1) / alignment * alignment;
    at_ = at + size;
    if (at_ > bytes_.size) return std::nullopt;
    u64 value = 0;
    std::memcpy(&value, bytes_.data + at, size);
    if (big_endian_) value = __builtin_bswap64(value) >> (64 - 8 * size);
    return cut(value, 8 * size, is_signed);
  }
  std::optional<std::string_view> text() {
    if (at_ >= bytes_.size) return std::nullopt;
    const auto* const s = reinterpret_cast<const char*>(bytes_.data + at_);
    const std::string_view text(s, strnlen(s, bytes_.size - at_));
    at_ += text.size() + 1;
    return text;
  }

 private:
  Bytes bytes_;
  u32 word_;
  bool big_endian_;
  Architecture architecture_;
  size_t at_ = 0;
};

// Whether the kernel keeps a pointer for later; it prints what others point to at once.
bool keeps_pointer(std::string_view extension) {
  return extension.empty() || std::string_view("SsxKe").find(extension[0]) != std::string_view::npos;
}

bool append_pointer_argument(const Conversion& conversion, Arguments& arguments, const Symbols& symbols, Appender& out) {
  if (!keeps_pointer(conversion.extension)) {
    const auto text = arguments.text();
    if (text) append_text(*text, out);
    return text.has_value();
  }
  const auto pointer = arguments.number(arguments.word(), false);
  if (!pointer) return false;
  if (conversion.names_function()) {
    fmt::memory_buffer name;
    {
      Appender to(name);
      append_address(*pointer, conversion.with_distance(), false, symbols, to);
    }
    append_sized(conversion.form, {name.data(), name.size()}, out);
    return true;
  }
  const std::string error = conversion.extension == "e"
                                ? error_of_pointer(cut(*pointer, 8 * arguments.word(), true), arguments.architecture())
                                : std::string();
  char text[detail::most_digits];
  append_sized(conversion.form,
               error.empty() ? std::string_view(text, static_cast<size_t>(detail::put_pointer(text, *pointer) - text)) : error,
               out);
  return true;
}

// False: an argument is missing.
bool append_argument(Conversion conversion, Arguments& arguments, const Symbols& symbols, Appender& out) {
  for (const bool width : {true, false}) {
    if (width ? !conversion.star_width : !conversion.star_precision) continue;
    const auto star = arguments.number(4, true);
    if (!star) return false;
    (width ? set_width : set_precision)(conversion.form, static_cast<i32>(*star));
  }
  if (conversion.letter == 'p') return append_pointer_argument(conversion, arguments, symbols, out);
  if (conversion.letter == 's') {
    const auto text = arguments.text();
    if (text) append_sized(conversion.form, *text, out);
    return text.has_value();
  }
  const bool character = conversion.letter == 'c';
  const auto value = arguments.number(character            ? 1
                                      : conversion.is_word ? arguments.word()
                                                           : conversion.size,
                                      conversion.is_signed());
  if (!value) return false;
  const char c = static_cast<char>(*value);
  if (character)
    append_sized(conversion.form, {&c, c != 0}, out);
  else
    append_number(conversion.form, conversion.is_signed(), *value, out);
  return true;
}

}  // namespace

void append_message(std::string_view format, const PackedArguments& arguments, const Symbols& symbols, Appender& out) {
  while (format.ends_with('\n')) format.remove_suffix(1);
  Arguments in(arguments);
  while (!format.empty()) {
    const size_t percent = std::min(format.find('%'), format.size());
    for (const char c : format.substr(0, percent)) out.push_back(static_cast<u8>(c) < 0x20 ? ' ' : c);
    format.remove_prefix(percent);
    if (format.empty()) return;
    const Conversion conversion = read_conversion(format.substr(1));
    const std::string_view source = format.substr(0, conversion.length + 1);
    format.remove_prefix(source.size());
    if (conversion.letter == '%')
      out.push_back('%');
    else if (conversion.letter == 0 || std::string_view("fFgGeE").find(conversion.letter) != std::string_view::npos ||
             !append_argument(conversion, in, symbols, out))
      append_text(source, out);
  }
}

}  // namespace ringside
