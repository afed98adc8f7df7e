#include "probe/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "sys/try.hpp"
#include "text/words.hpp"

namespace ringside {
namespace {

constexpr size_t longest_field = 31, longest_fetch = 63, most_arguments = 128;  // the kernel's
constexpr const char* argument_forms =
    "arguments are VARIABLE, VARIABLE->MEMBER, .MEMBER, [N], *VARIABLE, $ret at %return, $argN, $params or $vars; NAME= may "
    "come "
    "first, :TYPE last (u32, s64, x8, string)";

tl::unexpected<Error> malformed(std::string_view text) {
  return refuse(std::errc::invalid_argument, in_quotes(text) + " is no argument of a probe: " + argument_forms);
}

bool is_letter(char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_'; }
bool is_word(std::string_view text) {
  return !text.empty() && (text[0] < '0' || text[0] > '9') && std::all_of(text.begin(), text.end(), is_letter);
}
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}
std::string_view take_word(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_letter);
  const std::string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}
bool take(std::string_view& text, std::string_view mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// "**req->peers[2].name"
bool parse_path(std::string_view text, VariablePath& path) {
  size_t stars = 0;
  while (take(text, "*")) ++stars;
  if (take(text, "$retval") || take(text, "$ret"))
    path.variable = "$ret";
  else
    path.variable = take_word(text);
  if (path.variable != "$ret" && !is_word(path.variable)) return false;
  while (!text.empty()) {
    VariablePath::Step step{VariablePath::Step::dot};
    if (take(text, "[")) {
      step.kind = VariablePath::Step::index;
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), step.number);
      if (code != std::errc()) return false;
      text.remove_prefix(static_cast<size_t>(end - text.data()));
      if (!take(text, "]")) return false;
    } else {
      if (take(text, "->"))
        step.kind = VariablePath::Step::arrow;
      else if (!take(text, "."))
        return false;
      step.member = take_word(text);
      if (!is_word(step.member)) return false;
    }
    path.steps.push_back(std::move(step));
  }
  for (; stars != 0; --stars) path.steps.push_back({VariablePath::Step::star});
  return true;
}

// What the kernel gets unread: marks that would end the argument, or the line, are none of it.
bool is_raw(std::string_view text) {
  constexpr std::string_view begins = "%$@+-\\", marks = "%$@+-\\()_:";
  return !text.empty() && begins.find(text[0]) != begins.npos &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || marks.find(c) != marks.npos; });
}

bool is_type(std::string_view text) {
  constexpr std::string_view marks = "@/[]";
  return is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || marks.find(c) != marks.npos; });
}

// "$arg2" -> "%si"; empty: it is none.
std::string passed_in(std::string_view text) {
  if (!take(text, "$arg") || text.size() != 1 || text[0] < '1') return "";
  const auto n = static_cast<size_t>(text[0] - '1');
#if defined(__aarch64__)
  return n < 8 ? fmt::format("%x{}", n) : "";
#else
  constexpr const char* order[] = {"%di", "%si", "%dx", "%cx", "%r8", "%r9"};
  return n < std::size(order) ? order[n] : "";
#endif
}

result<ProbeArgument> parse_argument(std::string_view text) {
  ProbeArgument out;
  out.text = text;
  if (text == "$params" || text == "$vars") {
    out.kind = text == "$vars" ? ProbeArgument::Kind::variables : ProbeArgument::Kind::parameters;
    return out;
  }
  std::string_view rest = text;
  if (const size_t equal = rest.find('='); equal != rest.npos) {
    out.name = trimmed(rest.substr(0, equal));
    rest = trimmed(rest.substr(equal + 1));
    if (!is_word(out.name) || out.name.size() > longest_field || out.name.starts_with("common_") || out.name.starts_with("__"))
      return refuse(std::errc::invalid_argument, in_quotes(out.name) +
                                                     " cannot be a field's name: at most 31 letters, digits and _, beginning "
                                                     "with a letter, not with common_ or __");
  }
  if (const size_t colon = rest.rfind(':'); colon != rest.npos) {
    out.type = rest.substr(colon + 1);
    rest = trimmed(rest.substr(0, colon));
    if (out.type.empty() || !is_type(out.type)) return malformed(text);
  }
  const std::string passed = passed_in(rest);
  if (parse_path(rest, out.path)) {
    if (out.name.empty()) {  // the last member, as perf probe names it
      out.name = out.path.variable == "$ret" ? "ret" : out.path.variable;
      for (const VariablePath::Step& step : out.path.steps)
        if (!step.member.empty()) out.name = step.member;
    }
    return out;
  }
  if (passed.empty() && !is_raw(rest)) return malformed(text);
  out.kind = ProbeArgument::Kind::raw;
  out.raw = passed.empty() ? std::string(rest) : passed;
  if (out.name.empty() && rest[0] == '$') out.name = rest.substr(1);
  const bool is_address = out.type == "string" || out.type == "ustring";
  if (is_address && (out.raw[0] == '%' || out.raw == "$retval")) out.raw = "+0(" + out.raw + ")";
  return out;
}

std::string word_of_path(const VariablePath& path) {
  std::string out = path.variable == "$ret" ? "ret" : path.variable;
  for (const VariablePath::Step& step : path.steps) {
    if (step.kind == VariablePath::Step::index) out += fmt::format("_{}", step.number);
    if (!step.member.empty()) out += "_" + step.member;
  }
  return out;
}

// Fields that are there already have the longer name of their path, then numbers.
class Fields {
 public:
  // text: as it was given.
  result<void> add(std::string name, const std::string& longer, const std::string& fetch, const std::string& text) {
    name = name.substr(0, longest_field);
    if (names_.contains(name) && !longer.empty()) name = longer.substr(0, longest_field);
    const std::string first = name.substr(0, longest_field - 4);
    for (u32 n = 2; names_.contains(name); ++n) name = fmt::format("{}_{}", first, n);
    const std::string one = name + "=" + fetch;
    if (one.size() > longest_fetch)
      return refuse(std::errc::invalid_argument, text + " becomes \"" + one +
                                                     "\", and the kernel takes at most 63 characters: give it a shorter name "
                                                     "with NAME=");
    if (names_.size() == most_arguments)
      return refuse(std::errc::invalid_argument, "the kernel takes at most 128 arguments of a probe");
    names_.insert(name);
    text_ += (text_.empty() ? "" : " ") + one;
    return {};
  }
  const std::string& text() const { return text_; }

 private:
  std::set<std::string> names_;
  std::string text_;
};

}  // namespace

result<std::vector<ProbeArgument>> parse_arguments(std::string_view list) {
  std::vector<ProbeArgument> out;
  if (trimmed(list).empty()) return out;
  i32 depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && (list[i] == '(' || list[i] == '[')) ++depth;
    if (i < list.size() && (list[i] == ')' || list[i] == ']')) --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    out.push_back(RS_TRY(parse_argument(trimmed(list.substr(begin, i - begin)))));
    begin = i + 1;
  }
  return out;
}

result<std::string> fetch_of(const std::vector<ProbeArgument>& arguments, Variables* variables, const std::string& why,
                             std::vector<std::string>& notices) {
  Fields fields;
  u32 number = 0;
  for (const ProbeArgument& one : arguments) {
    ++number;
    if (one.kind == ProbeArgument::Kind::raw) {
      const std::string name = one.name.empty() ? fmt::format("arg{}", number) : one.name;
      RS_TRY(fields.add(name, "", one.raw + (one.type.empty() ? "" : ":" + one.type), one.text));
      continue;
    }
    if (variables == nullptr) {
      const bool is_whole_result = one.path.variable == "$ret" && one.path.steps.empty();
      if (!is_whole_result) return refuse(std::errc::not_supported, why);
      const bool is_text = one.type == "string" || one.type == "ustring";
      RS_TRY(fields.add(one.name, "", (is_text ? "+0($retval)" : "$retval") + (":" + (one.type.empty() ? "s64" : one.type)),
                        one.text));
      continue;
    }
    if (one.kind == ProbeArgument::Kind::path) {
      const std::string fetch = RS_TRY(variables->fetch(one.path, one.type));
      RS_TRY(fields.add(one.name, word_of_path(one.path), fetch, one.text));
      continue;
    }
    std::vector<std::string> left_out;
    for (const Variables::Known& known : variables->all()) {
      if (one.kind == ProbeArgument::Kind::parameters && !known.is_parameter) continue;
      if (known.fetch.empty())
        left_out.push_back(known.why);
      else
        RS_TRY(fields.add(known.name, "", known.fetch, known.name));
    }
    if (!left_out.empty()) notices.push_back(one.text + " leaves out: " + short_list(left_out));
  }
  return fields.text();
}

}  // namespace ringside
