#include "stacks/demangle.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "stacks/rust_v0.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

// Where the name of "*f(int)" or "A::*f(int)" begins, which a function has that returns a pointer to a function or to an array,
// or a reference; 0: the text is none of these.
size_t begin_of_declared(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (depth == 0 && (c == '*' || c == '&'))
      return i == 0 || text.substr(0, i).ends_with("::") ? std::min(text.find_first_not_of("*& ", i), text.size()) : 0;
    if (depth == 0 && (c == ' ' || c == '(' || c == ',')) return 0;
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
  }
  return 0;
}

// "f(int) const" -> "f", "void (*f(int))()" -> "f(int)"; only the second may be shortened again: true.
bool drop_parameters(std::string& name) {
  const auto drop_suffixes = [&] {
    for (bool again = true; again;) {
      again = false;
      for (const std::string_view suffix : {" const", " volatile", " &&", " &"}) {
        if (!name.ends_with(suffix)) continue;
        name.erase(name.size() - suffix.size());
        again = true;
      }
    }
  };
  const auto opening = [&] {  // of the last bracket
    size_t at = name.size(), depth = 0;
    while (name.ends_with(")") && at-- != 0) {
      if (name[at] == ')') ++depth;
      if (name[at] == '(' && --depth == 0) break;
    }
    return at;
  };
  const auto unwrap = [&](size_t at) {
    const size_t begin = at < name.size() ? begin_of_declared(std::string_view(name).substr(at + 1)) : 0;
    if (begin != 0) name = name.substr(at + 1 + begin, name.size() - at - begin - 2);
    return begin != 0;
  };
  drop_suffixes();
  if (const size_t array = name.rfind(") ["); array != name.npos && name.ends_with("]")) {
    name.erase(array + 1);
    return unwrap(opening());
  }
  const size_t at = opening();
  if (at == 0 || at >= name.size() || name.ends_with("(anonymous namespace)")) return at == 0 && unwrap(at);
  name.erase(at);
  return unwrap(opening());
}

// "int n::f<char>(int) const" -> "n::f<char>": without parameters and type, as debuggers and profilers show it.
std::string short_name(std::string name) {
  std::string clone;
  if (const size_t at = name.find(" [clone"); at != std::string::npos) {
    clone = name.substr(at);
    name.erase(at);
  }
  while (drop_parameters(name)) {
  }
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth == 0 && name.compare(i, 8, "operator") == 0 && (i == 0 || name[i - 1] == ':' || name[i - 1] == ' ')) break;
    if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
    if (c == '>' || c == ')' || c == '}' || c == ']') --depth;
    if (c == ' ' && depth == 0) begin = i + 1;
  }
  return begin < name.size() ? name.substr(begin) + clone : name + clone;
}

constexpr size_t rust_hash = 16;  // digits after an h

bool is_rust_hash(std::string_view text) {
  return text.size() == rust_hash && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// What a compiler adds after a name of Rust's older mangling, ".llvm.123", no demangler takes: "_ZN1a1b17h0123456789abcdefE".
std::string_view without_suffix(std::string_view mangled) {
  const size_t dot = mangled.find("E.");
  const bool rust = dot != mangled.npos && dot >= rust_hash + 3 && mangled.substr(dot - rust_hash - 3, 3) == "17h" &&
                    is_rust_hash(mangled.substr(dot - rust_hash, rust_hash));
  return rust ? mangled.substr(0, dot + 1) : mangled;
}

// Rust's older mangling is C++'s, with a hash after the name and escapes in it: "core..ops$LT$T$GT$::f::h0123456789abcdef".
// Empty: the name is none of these.
std::string rust_name(std::string_view text) {
  const size_t end = text.rfind("::h");
  if (end == text.npos || !is_rust_hash(text.substr(end + 3))) return "";
  static constexpr std::pair<std::string_view, char> escapes[] = {{"SP", '@'}, {"BP", '*'}, {"RF", '&'}, {"LT", '<'},
                                                                  {"GT", '>'}, {"LP", '('}, {"RP", ')'}, {"C", ','}};
  // The character of an escape; 0: it is none.
  const auto escaped = [](std::string_view word) -> u32 {
    for (const auto& [known, c] : escapes)
      if (word == known) return static_cast<u8>(c);
    u32 code = 0;
    const char* const past = word.data() + word.size();
    const bool is_number = word.size() > 1 && word[0] == 'u' && std::from_chars(word.data() + 1, past, code, 16).ptr == past;
    return is_number && code >= 0x20 && code != 0x7F && code < 0x110000 ? code : 0;
  };
  std::string out;
  for (size_t i = 0; i < end;) {
    const bool begins = i == 0 || (i >= 2 && text.compare(i - 2, 2, "::") == 0);
    if (begins && text.compare(i, 2, "_$") == 0) ++i;
    const size_t close = text[i] == '$' ? text.find('$', i + 1) : text.npos;
    if (const u32 c = close < end ? escaped(text.substr(i + 1, close - i - 1)) : 0; c != 0) {
      append_utf8(c, out);
      i = close + 1;
    } else if (text.compare(i, 2, "..") == 0) {
      out += "::";
      i += 2;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// ---- How large a name can become.

constexpr u64 most_expanded = u64{1} << 22;  // of one name
constexpr size_t longest_mangled = 16384;    // a demangler takes 64 times as much from the stack
constexpr size_t most_repeated = 128;        // different parts
constexpr size_t most_of_each = 64;          // different template parameters; compilers' names have fewer than ten

constexpr u64 add(u64 a, u64 b) { return a + b < a ? ~u64{0} : a + b; }
constexpr u64 times(u64 a, u64 b) { return a != 0 && b > ~u64{0} / a ? ~u64{0} : a * b; }

// A part of a name: its size, and how often it names each template parameter.
struct Part {
  u64 size = 0;
  std::array<u64, most_of_each> parameters{};
  void operator+=(const Part& other) {
    size = add(size, other.size);
    for (size_t i = 0; i < most_of_each; ++i) parameters[i] = add(parameters[i], other.parameters[i]);
  }
};

// "S12_", "T_": the number after the letter; `at` moves past its end. "S_" has the number 0, "S0_" has 1. Those of T are
// decimal.
bool read_reference(std::string_view name, size_t& at, u32 base, u64& number) {
  size_t end = at + 1;
  number = 0;
  for (; end < name.size() && name[end] != '_'; ++end) {
    const char c = name[end];
    const u32 digit = c >= '0' && c <= '9'   ? static_cast<u32>(c - '0')
                      : c >= 'A' && c <= 'Z' ? static_cast<u32>(c - 'A') + 10
                                             : 99;
    if (digit >= base || number > 1'000'000) return false;
    number = number * base + digit;
  }
  if (end == name.size()) return false;
  number += end == at + 1 ? 0 : 1;
  at = end + 1;
  return true;
}

// "T_", or "DpOT_" and "spT_", which repeat no more than that: each element of a pack once, with what is put around it. uses:
// how often it is as long as the parameter.
bool read_parameter(std::string_view name, size_t& at, u64& number, u64& uses) {
  size_t end = at;
  const std::string_view two = name.substr(at, 2);
  if (two == "Dp" || two == "sp") {
    end = std::min(name.find_first_not_of("ORPKV", at + 2), name.size());
    uses = 2 + 2 * (end - at - 2);  // an element has a letter or more
  }
  if (end == name.size() || name[end] != 'T' || !read_reference(name, end, 10, number)) return false;
  at = end;
  return true;
}

// "Lm10E", a value of a built-in type; 0: it is none.
size_t literal_size(std::string_view name) {
  if (!name.starts_with('L')) return 0;
  size_t at = name.substr(1, 1) == "D" ? 2 : 1;
  if (at >= name.size() || name[at] < 'a' || name[at] > 'z') return 0;
  at = name.find_first_not_of("0123456789abcdef", at + (name.substr(at + 1, 1) == "n" ? 2 : 1));
  return at < name.size() && name[at] == 'E' ? at + 1 : 0;
}

}  // namespace

// The grammar is not needed. "S<number>_" repeats a part that was complete when the number, or a larger one, was first used: it
// is no longer than what comes before that. "T<number>_" is an argument, which is no longer than all of the name. What is
// after "Dp" or "sp" is repeated for each element of a pack, which begins with "J"; of a parameter alone that is once.
u64 demangled_size(std::string_view name) noexcept {
  constexpr u64 of_a_letter = 8;  // "Sa" is std::allocator
  Part all;
  std::vector<std::pair<u64, Part>> first;  // by the number of its first use, in the name's order
  u64 elements = 1, expansions = 0, conversions = 0;
  bool in_pack = false;
  for (size_t at = 0; at < name.size();) {
    if (all.size > most_expanded) return ~u64{0};
    elements += in_pack ? 1 : 0;
    const char c = name[at];
    u64 number = 0;
    if (size_t behind = at; c == 'S' && read_reference(name, behind, 36, number)) {
      const auto used = std::find_if(first.begin(), first.end(), [&](const auto& one) { return one.first == number; });
      if (used == first.end()) {
        const auto later = std::find_if(first.begin(), first.end(), [&](const auto& one) { return one.first > number; });
        if (first.size() == most_repeated) return ~u64{0};
        first.emplace_back(number, later != first.end() && later->second.size < all.size ? later->second : all);
        all += Part(first.back().second);
      } else {
        all += Part(used->second);
      }
      at = behind;
    } else if (u64 uses = 1; behind = at, read_parameter(name, behind, number, uses)) {
      if (number >= most_of_each) return ~u64{0};
      all.parameters[number] = add(all.parameters[number], uses);
      all.size = add(all.size, uses * of_a_letter);
      at = behind;
    } else if (const size_t literal = literal_size(name.substr(at)); literal != 0) {
      all.size = add(all.size, 3 * of_a_letter + literal);  // "(unsigned long long)"
      at += literal;
    } else if (c >= '0' && c <= '9') {
      size_t length = 0;
      const auto [end, code] = std::from_chars(name.data() + at, name.data() + name.size(), length);
      const auto digits = static_cast<size_t>(end - (name.data() + at));
      if (code != std::errc() || length > name.size() - at - digits) length = 0;
      all.size = add(all.size, digits + length);
      at += digits + length;
    } else {
      const std::string_view two = name.substr(at, 2);
      if (two == "TL") return ~u64{0};  // a parameter of an enclosing template
      in_pack = in_pack || c == 'J';
      expansions += two == "Dp" || two == "sp" ? 1 : 0;
      conversions += two == "cv" ? 1 : 0;
      all.size = add(all.size, of_a_letter);
      ++at;
    }
  }
  u64 size = all.size;
  for (const u64 uses : all.parameters) size = times(size, 1 + uses);
  for (u64 i = 0; i < expansions; ++i) size = times(size, 1 + elements);
  return conversions > 60 ? ~u64{0} : times(size, u64{1} << conversions);  // a demangler may read what follows "cv" twice
}

std::string demangled(std::string_view name, Budget& budget, bool* left_out) {
  std::string out;
  if (name.starts_with("_Z")) {
    const std::string_view known = without_suffix(name);
    const bool may_look = known.size() <= longest_mangled && budget.step(8 * known.size());
    const u64 size = may_look ? demangled_size(known) : ~u64{0};
    const bool fits = size <= most_expanded && budget.step(size);
    const std::string mangled(fits ? known : "");
    if (left_out != nullptr) *left_out = !fits;
    int status = -1;
    char* const text = fits ? abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status) : nullptr;
    if (status == 0 && text != nullptr) out = rust_name(text);
    if (status == 0 && text != nullptr && out.empty()) out = short_name(text);
    std::free(text);
  } else if (name.starts_with("_R")) {
    bool full = false;
    out = rust_v0_name(name, budget, full);
    if (left_out != nullptr) *left_out = full;
  }
  return sys::shown_name(out.empty() ? name : out);
}

}  // namespace ringside
