#include "decode/format_file.hpp"

#include <algorithm>
#include <optional>

#include "source/field_declaration.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

constexpr size_t longest_format = 65536;  // several times the kernel's longest
constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

void fill(const FieldDeclaration& declared, bool big_endian, Field& to) {
  const std::string_view type = declared.type;
  const bool array = declared.is_array;
  to.name = declared.name;
  to.offset = declared.offset;
  to.size = declared.size;
  to.is_signed = declared.is_signed;
  to.relative = declared.relative;
  to.is_float = !has(type, "*") && (has(type, "float") || has(type, "double"));
  to.is_char = !array && to.size == 1 && declared.is_character();
  to.is_stack = !array && to.size == 8 && type == "ringside_stack";
  to.is_level = !array && to.size == 1 && type == "ringside_level";
  if (to.is_level) to.symbols = level_names();
  to.is_bool = !array && to.size == 1 && has(type, "bool");
  if (big_endian) to.turned = static_cast<u8>(declared.element);
  to.strides = declared.strides;
  if (array) {
    to.element = declared.element;
    if (declared.is_text())
      to.kind = declared.located ? FieldKind::loc_text : FieldKind::text, to.is_composed = !to.strides.empty();
    else
      to.kind = declared.located ? FieldKind::loc_array : FieldKind::array;
  } else if (to.is_float && (to.size == 4 || to.size == 8)) {
    to.kind = FieldKind::floating;
  } else if (to.size != 1 && to.size != 2 && to.size != 4 && to.size != 8) {
    to.kind = FieldKind::array, to.element = 1;  // a struct: its bytes
  }
}

class FormatReader {
 public:
  FormatReader(std::string_view text, const World& world) : text_(text), world_(world) {}
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
      if (!other && !read_line(line)) return failed_at(number, line, "is no field");
      at = end + 1;
    }
    if (!named) return failed("it has no name");
    if (shows_too_much()) return failed("its fields share the bytes of an event");
    const bool of_probe = std::any_of(out_.fields.begin(), out_.fields.end(),
                                      [](const Field& field) { return field.name.starts_with("__probe_"); });
    for (Field& field : out_.fields) field.is_probed = of_probe && field.kind == FieldKind::loc_text && !field.is_composed;
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
  bool read_line(std::string_view line) {
    bool beyond = false;
    const std::optional<FieldDeclaration> declared = read_field(line, world_.word_size, beyond);
    if (!declared) return beyond;  // nothing is there
    Field field;
    fill(*declared, world_.big_endian, field);
    shown_.push_back({field.offset + field.size, field.size});
    out_.has_tid = out_.has_tid || (field.name == "common_pid" && field.offset == 4 && field.size == 4);
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
  const World& world_;
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

FormatFile read_format_file(std::string_view text, const World& world) { return FormatReader(text, world).read(); }

}  // namespace ringside
