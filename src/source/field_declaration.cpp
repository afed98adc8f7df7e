#include "source/field_declaration.hpp"

#include <algorithm>
#include <charconv>

#include "source/c_type.hpp"

namespace ringside {
namespace {

constexpr size_t most_dimensions = 16;
constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

bool in_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool is_whole_number(u64 size) { return size == 1 || size == 2 || size == 4 || size == 8; }

template <class Number>
bool read_number(std::string_view text, Number& out) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole) out = number;
  return whole;
}

// By the type's name, where the sizes do not say it.
u32 size_of(std::string_view type, u32 word_size) {
  if (has(type, "*")) return word_size;
  if (has(type, "struct ") || has(type, "union ")) return 1;
  if (has(type, "enum ")) return 4;
  const std::string_view last = type.substr(type.find_last_of(' ') + 1);
  if (const CType* const named = named_type(last, word_size); named != nullptr) return named->size();
  if (has(type, "64") || has(type, "long long") || has(type, "double")) return 8;
  if (has(type, "long")) return word_size;
  if (has(type, "char")) return 1;
  if (has(type, "short") || has(type, "16")) return 2;
  return has(type, "32") || has(type, "int") || has(type, "float") || has(type, "unsigned") ? 4 : 1;
}

// As x86 has it: a plain char has a sign.
bool has_sign(std::string_view type) {
  if (has(type, "*") || has(type, "struct ") || has(type, "union ") || has(type, "enum ") || has(type, "unsigned"))
    return false;
  const std::string_view last = type.substr(type.find_last_of(' ') + 1);
  if (const CType* const named = named_type(last, 8); named != nullptr) return named->is_signed;
  return last == "int" || last == "long" || last == "short" || last == "char" || last == "signed" || last == "float" ||
         last == "double";
}

// "char comm[16]", "__data_loc char[] msg", "u8 m[2][3]", "void (*f)(int)". counts: of the dimensions, outermost first; 0: only
// the kernel's compiler knows it (a constant's name, sizeof).
bool read_type(std::string_view text, FieldDeclaration& out, std::vector<u64>& counts) {
  text = trimmed(text);
  if (text.find_first_of("\"'\\;") != text.npos) return false;
  const auto take_dimensions = [&] {
    while (text.ends_with(']')) {
      const size_t open = text.rfind('[');
      if (open == text.npos || counts.size() == most_dimensions) return false;
      u64 count = 0;
      read_number(trimmed(text.substr(open + 1, text.size() - open - 2)), count);
      counts.insert(counts.begin(), count);
      out.is_array = true;
      text = trimmed(text.substr(0, open));
    }
    return true;
  };
  if (!take_dimensions()) return false;
  if (const size_t star = text.find("(*"); text.ends_with(')') && star != text.npos) {
    out.name = text.substr(star + 2, text.find(')', star) - star - 2);
    out.type = "void *";
    return !out.name.empty() && std::all_of(out.name.begin(), out.name.end(), in_word);
  }
  size_t begin = text.size();
  while (begin > 0 && in_word(text[begin - 1])) --begin;
  out.name = text.substr(begin);
  text = trimmed(text.substr(0, begin));
  out.relative = has(text, "__rel_loc");
  out.located = out.relative || has(text, "__data_loc");
  if (out.located) {
    text = trimmed(text.substr(text.find("_loc") + 4));
    if (!take_dimensions()) return false;
    out.is_array = true;
  }
  out.type = text;
  return !out.name.empty() && (out.located || !text.empty());
}

// offset:8; size:4; signed:0; False: one of the first two is missing.
bool read_place(std::string_view text, i64& offset, i64& size, bool& is_signed) {
  bool has_offset = false, has_size = false;
  while (!(text = trimmed(text)).empty()) {
    const std::string_view one = trimmed(text.substr(0, text.find(';')));
    text.remove_prefix(std::min(text.size(), text.find(';') == text.npos ? text.size() : text.find(';') + 1));
    const size_t colon = std::min(one.find(':'), one.size());
    const std::string_view key = one.substr(0, colon), value = trimmed(one.substr(std::min(colon + 1, one.size())));
    i64 number = 0;
    if (key == "offset")
      has_offset = read_number(value, offset);
    else if (key == "size")
      has_size = read_number(value, size);
    else if (key == "signed" && read_number(value, number))
      is_signed = number != 0;
  }
  return has_offset && has_size;
}

void find_element(std::vector<u64> counts, u32 word_size, FieldDeclaration& out) {
  if (!out.is_array) {
    out.element = is_whole_number(out.size) ? out.size : 1;
    return;
  }
  const auto unknown = std::count(counts.begin(), counts.end(), u64{0});
  constexpr u64 beyond_all = FieldDeclaration::largest + 1;
  u64 known = 1;  // elements, as far as the dimensions are numbers
  for (const u64 count : counts)
    if (count != 0) known = std::min<u64>(known * std::min<u64>(count, beyond_all), beyond_all);
  const bool counted = !out.located && unknown == 0 && out.size % known == 0;
  const u64 each = counted ? out.size / known : 0;
  out.element = out.is_character()      ? 1
                : is_whole_number(each) ? static_cast<u32>(each)
                : each == 0             ? size_of(out.type, word_size)
                                        : 1;
  if (counts.size() < 2 || out.located || unknown > 1) return;
  const u64 elements = out.size / out.element;
  for (u64& count : counts)
    if (count == 0) count = elements / known;
  u64 stride = 1;
  for (size_t i = counts.size(); i-- > 0;) {
    stride *= counts[i];
    if (stride == 0 || stride > elements) return out.strides.clear();
    if (i != 0) out.strides.insert(out.strides.begin(), static_cast<u32>(stride));
  }
  if (stride * out.element != out.size) out.strides.clear();  // of structs
}

}  // namespace

bool FieldDeclaration::is_character() const {
  return has(type, "char") && !has(type, "unsigned") && !has(type, "signed") && !has(type, "*") && !has(type, "u_char");
}

std::optional<FieldDeclaration> read_field(std::string_view line, u32 word_size, bool& beyond) {
  constexpr std::string_view plain = "field:", special = "field special:";
  beyond = false;
  line = trimmed(line);
  if (!line.starts_with(plain) && !line.starts_with(special)) return std::nullopt;
  line.remove_prefix(line.starts_with(plain) ? plain.size() : special.size());
  const size_t semicolon = line.find(';');
  FieldDeclaration out;
  std::vector<u64> counts;
  i64 offset = 0, size = 0;
  if (semicolon == line.npos || !read_type(line.substr(0, semicolon), out, counts)) return std::nullopt;
  out.is_signed = has_sign(out.type);
  if (!read_place(line.substr(semicolon + 1), offset, size, out.is_signed)) return std::nullopt;
  beyond = offset < 0 || size < 0 || offset > FieldDeclaration::largest || size > FieldDeclaration::largest;
  if (beyond) return std::nullopt;
  out.offset = static_cast<u32>(offset);
  out.size = static_cast<u32>(size);
  find_element(std::move(counts), word_size == 4 ? 4 : 8, out);
  return out;
}

}  // namespace ringside
