#include "decode/format_file.hpp"

#include <algorithm>
#include <charconv>

#include "decode/c_type.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

constexpr size_t longest_format = 65536;  // several times the kernel's longest
constexpr u32 largest_offset = 65536;     // a payload fits a sub-buffer of at most 256 KiB, its located data 16 bits
constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

bool in_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <class Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

// The size of one element by the type's name.
u32 element_size(std::string_view type, u32 word_size) {
  if (has(type, "*")) return word_size;
  if (has(type, "struct ") || has(type, "union ")) return 1;
  const std::string_view last = type.substr(type.find_last_of(' ') + 1);
  if (last == "size_t" || last == "ssize_t") return word_size;
  if (const CType* const named = named_type(last); named != nullptr) return named->size();
  if (has(type, "64") || has(type, "long long") || has(type, "double")) return 8;
  if (has(type, "long")) return word_size;
  if (has(type, "32") || has(type, "int") || has(type, "float") || has(type, "unsigned"))
    return has(type, "char") ? 1 : has(type, "short") ? 2 : 4;
  return has(type, "16") || has(type, "short") ? 2 : 1;
}

// Arrays of u8 are no texts.
bool is_char(std::string_view type) {
  return has(type, "char") && !has(type, "unsigned") && !has(type, "signed") && !has(type, "*") && !has(type, "u_char");
}

// "char comm[16]", "__data_loc char[] msg", "u8 m[2][3]", "void (*f)(int)": the type, the name, and the number of elements (0:
// unknown).
struct Declaration {
  std::string_view type, name;
  bool is_array = false;
  u64 elements = 1;
  u32 dimensions = 0, row = 0;
};

bool read_declaration(std::string_view text, Declaration& out) {
  text = trimmed(text);
  if (text.find_first_of("\"'\\;") != text.npos) return false;
  while (text.ends_with(']')) {
    const size_t open = text.rfind('[');
    if (open == text.npos) return false;
    u64 elements = 0;
    read_number(trimmed(text.substr(open + 1, text.size() - open - 2)), elements);
    out.elements = elements > largest_offset ? 0 : std::min<u64>(out.elements * elements, largest_offset + 1);
    if (out.dimensions++ == 0) out.row = static_cast<u32>(std::min<u64>(elements, largest_offset));
    out.is_array = true;
    text = trimmed(text.substr(0, open));
  }
  if (const size_t star = text.find("(*"); text.ends_with(')') && star != text.npos) {
    out.name = text.substr(star + 2, text.find(')', star) - star - 2);
    out.type = "void *";
    return !out.name.empty() && std::all_of(out.name.begin(), out.name.end(), in_word);
  }
  size_t begin = text.size();
  while (begin > 0 && in_word(text[begin - 1])) --begin;
  out.name = text.substr(begin);
  out.type = trimmed(text.substr(0, begin));
  return !out.name.empty() && !out.type.empty();
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

void fill(const Declaration& declared, u32 offset, u32 size, bool is_signed, u32 word_size, Field& to) {
  std::string_view type = declared.type;
  to.relative = has(type, "__rel_loc");
  const bool dynamic = to.relative || has(type, "__data_loc");
  if (dynamic) type = trimmed(type.substr(type.find("_loc") + 4));
  const bool array = dynamic || declared.is_array;
  to.name = declared.name;
  to.offset = offset;
  to.size = size;
  to.is_signed = is_signed;
  to.is_float = !has(type, "*") && (has(type, "float") || has(type, "double"));
  to.is_char = !array && size == 1 && is_char(type);
  to.is_stack = !array && size == 8 && type == "ringside_stack";
  to.is_level = !array && size == 1 && type == "ringside_level";
  if (to.is_level) to.symbols = level_names();
  to.is_bool = !array && size == 1 && has(type, "bool");
  if (dynamic && type.ends_with("[]")) type = trimmed(type.substr(0, type.size() - 2));
  if (array) {
    const u64 each = !dynamic && declared.elements != 0 && size % declared.elements == 0 ? size / declared.elements : 0;
    const bool of_a_number = each == 1 || each == 2 || each == 4 || each == 8;
    to.element = of_a_number ? static_cast<u32>(each) : each == 0 ? element_size(type, word_size) : 1;
    if (!dynamic && declared.dimensions == 2) to.row = declared.row;
    if (is_char(type))
      to.kind = dynamic ? FieldKind::loc_text : FieldKind::text, to.element = 1;
    else
      to.kind = dynamic ? FieldKind::loc_array : FieldKind::array;
  } else if (to.is_float && (size == 4 || size == 8)) {
    to.kind = FieldKind::floating;
  } else if (size != 1 && size != 2 && size != 4 && size != 8) {
    to.kind = FieldKind::array, to.element = 1;  // a struct: its bytes
  }
}

class FormatReader {
 public:
  FormatReader(std::string_view text, u32 word_size) : text_(text), word_size_(word_size) {}
  FormatFile read() {
    if (text_.empty() || text_.size() > longest_format) return failed(text_.empty() ? "it is empty" : "it is too long");
    bool named = false;
    for (size_t at = 0, number = 1; at < text_.size(); ++number) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      const std::string_view line = trimmed(text_.substr(at, end - at));
      const auto is_odd = [](char c) { return static_cast<u8>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r'; };
      constexpr std::string_view print = "print fmt:";
      const bool prints = line.starts_with(print);
      const std::string_view part = prints ? text_.substr(at) : line;
      if (std::any_of(part.begin(), part.end(), is_odd)) return failed_at(number, line, "has control characters");
      if (prints) {
        std::string_view rest = text_.substr(static_cast<size_t>(line.data() - text_.data()) + print.size());
        rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
        out_.print_fmt = rest.substr(0, rest.find_last_not_of(" \t\r\n") + 1);
        break;
      }
      named = named || line.starts_with("name:");
      behind_common_ = behind_common_ || (line.empty() && !out_.common.empty());
      const bool other = line.empty() || line.starts_with("name:") || line.starts_with("ID:") || line.starts_with("format:");
      if (!other && !read_field(line)) return failed_at(number, line, "is no field");
      at = end + 1;
    }
    if (!named) return failed("it has no name");
    if (shows_too_much()) return failed("its fields share the bytes of an event");
    return std::move(out_);
  }

 private:
  static FormatFile failed(std::string why) {
    FormatFile out;
    out.wrong = std::move(why);
    return out;
  }
  static FormatFile failed_at(size_t number, std::string_view line, const char* why) {
    constexpr size_t longest = 60;
    return failed("line " + std::to_string(number) + " (" + sys::printable(line.substr(0, longest)) + ") " + why);
  }
  bool read_field(std::string_view line) {
    constexpr std::string_view plain = "field:", special = "field special:";
    if (!line.starts_with(plain) && !line.starts_with(special)) return false;
    line.remove_prefix(line.starts_with(plain) ? plain.size() : special.size());
    const size_t semicolon = line.find(';');
    Declaration declared;
    i64 offset = 0, size = 0;
    bool is_signed = false;
    if (semicolon == line.npos || !read_declaration(line.substr(0, semicolon), declared) ||
        !read_place(line.substr(semicolon + 1), offset, size, is_signed))
      return false;
    if (offset < 0 || size < 0 || offset > largest_offset || size > largest_offset) return true;  // nothing is there
    Field field;
    fill(declared, static_cast<u32>(offset), static_cast<u32>(size), is_signed, word_size_, field);
    shown_.push_back({field.offset + field.size, field.size});
    out_.has_tid = out_.has_tid || (field.name == "common_pid" && offset == 4 && size == 4);
    names_ += field.name.size();
    located_ += field.kind == FieldKind::loc_text || field.kind == FieldKind::loc_array ? 1 : 0;
    (!behind_common_ && field.name.starts_with("common_") ? out_.common : out_.fields).push_back(std::move(field));
    return true;
  }
  // Whether an event would show far more than it holds, whatever its size is: thousands of fields have the same bytes of a
  // payload, or long names.
  bool shows_too_much() {
    constexpr u32 most_located = 64;
    constexpr u64 most_of_names = 8192;
    std::sort(shown_.begin(), shown_.end(), [](const Shown& a, const Shown& b) { return a.end < b.end; });
    u64 bytes = 0;
    const auto is_too_much = [&](const Shown& one) { return (bytes += one.size) > 4 * u64{one.end}; };
    return located_ > most_located || names_ > most_of_names || std::any_of(shown_.begin(), shown_.end(), is_too_much);
  }

  std::string_view text_;
  u32 word_size_;
  FormatFile out_;
  struct Shown {
    u32 end, size;
  };
  std::vector<Shown> shown_;  // a field each
  u64 names_ = 0;
  bool behind_common_ = false;  // an empty line separates an event's own fields, which may have such names, too
  u32 located_ = 0;
};

}  // namespace

const std::vector<std::pair<i64, std::string>>& level_names() {
  static const std::vector<std::pair<i64, std::string>> all{{0, "trace"}, {1, "debug"}, {2, "info"},
                                                            {3, "warn"},  {4, "error"}, {5, "fatal"}};
  return all;
}

FormatFile read_format_file(std::string_view text, u32 word_size) { return FormatReader(text, word_size).read(); }

}  // namespace ringside
