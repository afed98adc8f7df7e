#include "kernel/remote_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace ringside {
namespace {

constexpr u32 common_bytes = 2;  // common_type alone
constexpr u32 place_bytes = 4;   // of a text: where it is, and how long
constexpr u64 most_cpus = 1 << 16;

bool take_number(std::string_view& text, u64& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool take_cpu(std::string_view& text, u32& cpu) {
  u64 number = 0;
  if (!take_number(text, number) || number >= most_cpus) return false;
  cpu = static_cast<u32>(number);
  return true;
}

// "CPU:0 [LOST 17 EVENTS]"
bool is_loss(std::string_view text, RemoteLine& line) {
  return take(text, "CPU:") && take_cpu(text, line.cpu) && take(text, " [LOST ") && take_number(text, line.lost) &&
         text == " EVENTS]";
}

// "[001]<tab>    1.461460: "
bool take_head(std::string_view& text, RemoteLine& line) {
  u64 seconds = 0, rest = 0;
  if (!take(text, "[") || !take_cpu(text, line.cpu) || !take(text, "]\t")) return false;
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (!take_number(text, seconds) || !take(text, ".")) return false;
  const size_t digits = text.find_first_not_of("0123456789");
  if (digits != 6 || !take_number(text, rest) || !take(text, ": ")) return false;
  constexpr u64 most = ~u64{0} / 1'000'000'000;  // seconds, as ns
  if (seconds >= most) return false;
  line.time_us = seconds * 1'000'000 + rest;
  return true;
}

bool begins_another(std::string_view text) {
  RemoteLine another;
  return is_loss(text, another) || take_head(text, another);
}

std::string_view line_of(std::string_view text) { return text.substr(0, text.find('\n')); }

// A string of C, with those that follow it, without quotes and escapes.
bool take_string(std::string_view& text, std::string& out) {
  bool any = false;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n"), text.size()));
    if (!take(text, "\"")) return any;
    any = true;
    while (!text.empty() && text.front() != '"') {
      char c = text.front();
      text.remove_prefix(1);
      if (c == '\\' && !text.empty()) {
        c = text.front();
        text.remove_prefix(1);
        if (c == 'n')
          c = '\n';
        else if (c == 't')
          c = '\t';
        else if (c != '"' && c != '\\')
          return false;
      }
      out += c;
    }
    if (!take(text, "\"")) return false;
  }
}

std::string_view without_spaces(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

// ", REC->a, f(REC->b, 1)": what is between commas that are in no parentheses and no string.
std::vector<std::string_view> arguments_of(std::string_view text) {
  std::vector<std::string_view> all;
  size_t from = 0;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
      continue;
    }
    if (c == '"')
      quoted = true;
    else if (c == '(' || c == '{' || c == '[')
      ++depth;
    else if (c == ')' || c == '}' || c == ']')
      --depth;
    else if (c == ',' && (depth == 0 || i == text.size())) {
      if (from != 0) all.push_back(without_spaces(text.substr(from, i - from)));
      from = i + 1;
    }
  }
  if (!all.empty() && all.back().empty()) all.pop_back();  // a print fmt without arguments ends with a comma
  return all;
}

bool of_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// The field that an expression is about: "REC->a" itself, or the only one in "f(REC->a)".
std::string_view field_in(std::string_view expression, bool& alone) {
  std::string_view found;
  for (size_t at = 0; (at = expression.find("REC->", at)) != expression.npos;) {
    at += 5;
    size_t end = at;
    while (end < expression.size() && of_name(expression[end])) ++end;
    const std::string_view name = expression.substr(at, end - at);
    if (!found.empty() && name != found) return {};
    found = name;
    alone = expression.size() == 5 + name.size();
  }
  return found;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '%')
      out += "%%";
    else if (c == '"' || c == '\\')
      out += {'\\', c};
    else
      out += c;
  }
  return out;
}

std::string declaration(std::string_view type_and_name, u32 offset, u32 size, bool is_signed) {
  return "\tfield:" + std::string(type_and_name) + ";\toffset:" + std::to_string(offset) + ";\tsize:" + std::to_string(size) +
         ";\tsigned:" + (is_signed ? "1" : "0") + ";\n";
}

u64 value_behind(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  u64 value = 0;
  if (at == line.npos) return 0;
  line.remove_prefix(at + key.size());
  return take_number(line, value) ? value : 0;
}

}  // namespace

std::optional<RemoteLine> take_remote_line(std::string_view& text) {
  if (text.empty()) return std::nullopt;
  RemoteLine line;
  const std::string_view whole = text;
  std::string_view first = line_of(text);
  text.remove_prefix(std::min(first.size() + 1, text.size()));
  if (is_loss(first, line)) return line;
  line.lost = 0;
  line.event = take_head(first, line);
  while (!text.empty() && !begins_another(line_of(text))) text.remove_prefix(std::min(line_of(text).size() + 1, text.size()));
  const char* const begin = line.event ? first.data() : whole.data();
  line.text = {begin, static_cast<size_t>(whole.data() + whole.size() - text.size() - begin)};
  if (line.text.ends_with('\n')) line.text.remove_suffix(1);
  return line;
}

RemoteEventText RemoteEventText::of_lines(u16 id) {
  RemoteEventText all("name: line\n");
  all.id_ = id;
  return all;
}

RemoteEventText::RemoteEventText(std::string_view format) {
  constexpr std::string_view print = "\nprint fmt:";
  const size_t printed = std::min(format.find(print), format.size());
  for (std::string_view rest = format.substr(0, printed); !rest.empty();) {
    std::string_view line = line_of(rest);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (take(line, "name: "))
      name_ = line;
    else if (line.starts_with("ID: "))
      id_ = static_cast<u16>(value_behind(line, "ID: "));
  }
  const std::string_view behind = format.substr(std::min(printed + print.size(), format.size()));
  if (!plan(format.substr(0, printed), behind)) show_whole();
}

void RemoteEventText::show_whole() {
  fields_ = {{"__data_loc char[]", "text", Kind::text, place_bytes, false}};
  conversions_ = {{"", "%s", 0, 0}};
  behind_.clear();
}

// False: its texts cannot be read back.
bool RemoteEventText::plan(std::string_view format, std::string_view print) {
  std::vector<Field> known;
  while (!format.empty()) {
    const std::string_view line = line_of(format);
    format.remove_prefix(std::min(line.size() + 1, format.size()));
    const size_t at = line.find("field:"), end = line.find(';');
    if (at == line.npos || end == line.npos || end < at) continue;
    const std::string_view declared = line.substr(at + 6, end - at - 6);
    const size_t space = declared.rfind(' ');
    if (space == declared.npos) continue;
    known.push_back({std::string(declared.substr(0, space)), std::string(declared.substr(space + 1)), Kind::integer,
                     static_cast<u32>(value_behind(line, "size:")), value_behind(line, "signed:") != 0});
  }
  std::string text;
  if (!take_string(print, text)) return false;
  const auto arguments = arguments_of(print);
  if (arguments.empty()) {  // the kernel copies such a text as it is
    behind_ = text;
    return true;
  }
  std::string before;
  size_t used = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      before += text[i];
      continue;
    }
    const size_t from = i++;
    i = std::min(text.find_first_not_of("-+ #0123456789.lhzjt", i), text.size());
    if (i < text.size() && text[i] == '%' && i == from + 1) {
      before += '%';
      continue;
    }
    if (i == text.size() || used == arguments.size()) return false;
    while (text[i] == 'p' && i + 1 < text.size() && of_name(text[i + 1])) ++i;  // "%pS"
    const std::string_view how = std::string_view(text).substr(from, i + 1 - from);
    const bool ends_somewhere =
        conversions_.empty() || !before.empty() || fields_[conversions_.back().field].kind != Kind::text;
    if (!ends_somewhere || !add_conversion(how, arguments[used++], known)) return false;
    conversions_.back().before = std::exchange(before, {});
  }
  behind_ = before;
  return used == arguments.size();
}

bool RemoteEventText::add_conversion(std::string_view how, std::string_view argument, const std::vector<Field>& known) {
  constexpr u32 most_fields = 64;
  if (fields_.size() == most_fields) return false;
  const bool pointer = how.find('p') != how.npos;
  const char conversion = pointer ? 's' : how.back();
  const bool is_text = conversion == 's' || conversion == 'c';
  if (!is_text && std::string_view("diuxXo").find(conversion) == std::string_view::npos) return false;
  bool alone = false;
  const std::string_view about = field_in(argument, alone);
  const auto named = [&](const auto& all) {
    return std::find_if(all.begin(), all.end(), [&](const Field& f) { return f.name == about; });
  };
  const bool is_signed = conversion == 'd' || conversion == 'i';
  Conversion added{"", is_text ? "%s" : std::string(how),
                   conversion == 'o'                        ? 8u
                   : conversion == 'x' || conversion == 'X' ? 16u
                                                            : 10u,
                   fields_.size()};
  Field field{is_text     ? "__data_loc char[]"
              : is_signed ? "s64"
                          : "u64",
              "arg" + std::to_string(fields_.size() + 1), is_text ? Kind::text : Kind::integer, is_text ? place_bytes : 8,
              is_signed};
  const auto own = named(known);
  if (!is_text && alone && own != known.end()) {
    if (own->size != 1 && own->size != 2 && own->size != 4 && own->size != 8) return false;
    if (const auto shown = named(fields_); shown != fields_.end() && shown->kind == Kind::integer) {
      added.field = static_cast<size_t>(shown - fields_.begin());  // it is shown twice
      conversions_.push_back(std::move(added));
      return true;
    }
    field = *own;
  } else if (is_text && !about.empty() && named(fields_) == fields_.end()) {
    field.name = about;
  }
  // Its number was not known to be shown when its text took the name.
  if (const auto same = std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.name == field.name; });
      same != fields_.end())
    same->name += "_text";
  fields_.push_back(std::move(field));
  conversions_.push_back(std::move(added));
  return true;
}

std::string RemoteEventText::format() const {
  std::string out = "name: " + name_ + "\nID: " + std::to_string(id_) + "\nformat:\n" +
                    declaration("unsigned short common_type", 0, common_bytes, false) + "\n";
  u32 offset = common_bytes;
  for (const Field& field : fields_) {
    out += declaration(field.type + " " + field.name, offset, field.size, field.is_signed);
    offset += field.size;
  }
  std::string print, arguments;
  for (const Conversion& conversion : conversions_) {
    const Field& field = fields_[conversion.field];
    print += escaped(conversion.before) + conversion.how;
    arguments += field.kind == Kind::text ? ", __get_str(" + field.name + ")" : ", REC->" + field.name;
  }
  return out + "\nprint fmt: \"" + print + escaped(behind_) + "\"" + arguments + "\n";
}

bool RemoteEventText::read_integer(const Conversion& conversion, std::string_view text, size_t& at, u64& value) const {
  const Field& field = fields_[conversion.field];
  std::string_view rest = text.substr(at);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const bool negative = (conversion.how.back() == 'd' || conversion.how.back() == 'i') && take(rest, "-");
  if (!negative) (void)take(rest, "+");
  if (conversion.base == 16) (void)(take(rest, "0x") || take(rest, "0X"));
  u64 size = 0;
  if (!take_number(rest, size, static_cast<int>(conversion.base))) return false;
  at = text.size() - rest.size();
  const u32 bits = field.size * 8;
  const u64 sign = u64{1} << (bits - 1), most = sign - 1 + (negative || (field.is_signed && conversion.base == 10) ? 0 : sign);
  if (size > most + (negative ? 1 : 0)) return false;
  value = negative ? ~size + 1 : size;
  if (bits < 64) value &= (u64{1} << bits) - 1;
  return true;
}

bool RemoteEventText::read(std::string_view text, std::vector<u8>& payload) const {
  std::vector<u32> places;
  u32 end = common_bytes;
  for (const Field& field : fields_) {
    places.push_back(end);
    end += field.size;
  }
  payload.assign(end, 0);
  std::memcpy(payload.data(), &id_, sizeof id_);
  std::vector<bool> has(fields_.size(), false);
  size_t at = 0;
  for (size_t i = 0; i < conversions_.size(); ++i) {
    const Conversion& conversion = conversions_[i];
    const Field& field = fields_[conversion.field];
    u8* const place = payload.data() + places[conversion.field];
    if (!text.substr(at).starts_with(conversion.before)) return false;
    at += conversion.before.size();
    if (field.kind == Kind::integer) {
      u64 value = 0, there = 0;
      if (!read_integer(conversion, text, at, value)) return false;
      std::memcpy(&there, place, field.size);
      if (has[conversion.field] && there != value) return false;
      std::memcpy(place, &value, field.size);
      has[conversion.field] = true;
      continue;
    }
    const bool last = i + 1 == conversions_.size();
    const std::string& next = last ? behind_ : conversions_[i + 1].before;
    const size_t until = last && text.size() >= at + next.size() && text.ends_with(next) ? text.size() - next.size()
                         : last                                                          ? text.npos
                                                                                         : text.find(next, at);
    if (until == text.npos || until - at >= 0xFFFF || payload.size() + until - at >= 0xFFFF) return false;
    const u32 where = static_cast<u32>(payload.size()) | static_cast<u32>(until - at + 1) << 16;
    std::memcpy(place, &where, sizeof where);
    payload.insert(payload.end(), text.begin() + static_cast<std::ptrdiff_t>(at),
                   text.begin() + static_cast<std::ptrdiff_t>(until));
    payload.push_back(0);
    at = until;
  }
  return text.substr(at) == behind_;
}

}  // namespace ringside
