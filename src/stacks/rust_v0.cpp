#include "stacks/rust_v0.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ringside/base/types.hpp>
#include <utility>
#include <vector>

namespace ringside {
namespace {

constexpr u32 deepest = 256;
constexpr size_t longest = size_t{1} << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

std::string_view basic_type(char c) {
  constexpr std::string_view names[] = {"i8",    "bool", "char", "f64", "str",  "f32",  "",    "u8", "isize",
                                        "usize", "",     "i32",  "u32", "i128", "u128", "_",   "",   "",
                                        "i16",   "u16",  "()",   "...", "",     "i64",  "u64", "!"};
  return is_lower(c) ? names[c - 'a'] : "";
}

// RFC 3492, with the letters and digits of Rust's names. False: it is none.
bool decode_punycode(std::string_view plain, std::string_view coded, std::string& out) {
  std::vector<u32> letters(plain.begin(), plain.end());
  u32 at = 0, letter = 0x80, bias = 72;
  bool first = true;
  for (size_t i = 0; i < coded.size(); ++at) {
    const u32 from = at;
    u64 weight = 1, sum = at;
    for (u32 k = 36;; k += 36) {
      if (i == coded.size()) return false;
      const char c = coded[i++];
      if (!is_lower(c) && !is_digit(c)) return false;
      const u32 digit = static_cast<u32>(is_lower(c) ? c - 'a' : c - '0' + 26);
      sum += digit * weight;
      if (sum > 0x7FFFFFFF) return false;
      const u32 least = k <= bias ? 1 : std::min<u32>(k - bias, 26);
      if (digit < least) break;
      weight *= 36 - least;
      if (weight > 0x7FFFFFFF) return false;
    }
    const auto count = static_cast<u32>(letters.size() + 1);
    u32 delta = (static_cast<u32>(sum) - from) / (std::exchange(first, false) ? 700 : 2), k = 0;
    for (delta += delta / count; delta > 35 * 26 / 2; k += 36) delta /= 35;
    bias = k + 36 * delta / (delta + 38);
    letter += static_cast<u32>(sum) / count;
    at = static_cast<u32>(sum) % count;
    if (letter > 0x10FFFF || (letter >= 0xD800 && letter < 0xE000)) return false;
    letters.insert(letters.begin() + at, letter);
  }
  for (const u32 c : letters) append_utf8(c, out);
  return true;
}

class Demangler {
 public:
  Demangler(std::string_view name, Budget& budget) : name_(name), budget_(budget) {}

  std::string run(bool& full) {
    path(true);
    if (at_ < name_.size()) {  // the crate that made this copy
      hidden_ = true;
      path(false);
    }
    full = full_;
    return wrong_ || at_ != name_.size() ? "" : std::move(out_);
  }

 private:
  struct Word {
    std::string_view plain, coded;
    bool empty() const { return plain.empty() && coded.empty(); }
  };

  void fail() { wrong_ = true; }
  char peek() const { return at_ < name_.size() ? name_[at_] : '\0'; }
  char next() {
    if (at_ == name_.size()) fail();
    return wrong_ ? '\0' : name_[at_++];
  }
  bool eat(char c) {
    if (wrong_ || peek() != c) return false;
    ++at_;
    return true;
  }
  // Each step of the grammar costs, also one that prints nothing.
  bool enter() {
    if (!wrong_ && (depth_ >= deepest || !budget_.step(1))) full_ = true, fail();
    return !wrong_;
  }
  void print(std::string_view text) {
    if (hidden_ || wrong_) return;
    if (out_.size() + text.size() > longest || !budget_.step(text.size())) return full_ = true, fail();
    out_ += text;
  }

  u64 number_62() {
    if (eat('_')) return 0;
    u64 value = 0;
    while (!wrong_ && !eat('_')) {
      const char c = next();
      const u64 digit = is_digit(c)   ? static_cast<u64>(c - '0')
                        : is_lower(c) ? static_cast<u64>(c - 'a') + 10
                        : is_upper(c) ? static_cast<u64>(c - 'A') + 36
                                      : 62;
      if (digit == 62 || value > (~u64{0} - digit) / 62)
        fail();
      else
        value = value * 62 + digit;
    }
    if (value == ~u64{0}) fail();
    return value + 1;
  }
  u64 optional_62(char tag) {
    if (!eat(tag)) return 0;
    const u64 value = number_62();
    if (value == ~u64{0}) fail();
    return value + 1;
  }

  Word word() {
    const bool coded = eat('u');
    const char first = next();
    if (!is_digit(first)) return fail(), Word{};
    size_t size = static_cast<size_t>(first - '0');
    while (first != '0' && is_digit(peek()) && size < name_.size()) size = size * 10 + static_cast<size_t>(next() - '0');
    eat('_');
    if (wrong_ || size > name_.size() - at_) return fail(), Word{};
    Word word{name_.substr(at_, size), {}};
    at_ += size;
    if (!coded) return word;
    const size_t line = word.plain.rfind('_');
    word.coded = line == word.plain.npos ? word.plain : word.plain.substr(line + 1);
    word.plain = line == word.plain.npos ? "" : word.plain.substr(0, line);
    if (word.coded.empty()) fail();
    return word;
  }
  void print(const Word& word) {
    if (hidden_ || wrong_) return;
    if (word.coded.empty()) return print(word.plain);
    std::string text;
    // Letters are put between others.
    if (!budget_.step(word.coded.size() * (word.plain.size() + word.coded.size()) / 8)) return full_ = true, fail();
    if (!decode_punycode(word.plain, word.coded, text)) return fail();
    print(text);
  }

  // what(): what is at an earlier place.
  template <class What>
  void repeat(const What& what) {
    const size_t here = at_ - 1;
    const u64 there = number_62();
    if (wrong_ || hidden_) return;
    if (there >= here) return fail();
    const size_t behind = std::exchange(at_, static_cast<size_t>(there));
    what();
    at_ = behind;
  }
  template <class One>
  u32 list(std::string_view between, const One& one) {
    u32 count = 0;
    for (; !wrong_ && !eat('E'); ++count) {
      if (count != 0) print(between);
      one();
    }
    return count;
  }
  struct Deeper {
    explicit Deeper(u32& depth) : depth_(depth) { ++depth_; }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    u32& depth_;
  };

  void path(bool in_value) {
    if (!enter()) return;
    const Deeper deeper(depth_);
    const char tag = next();
    switch (tag) {
      case 'C':
        optional_62('s');
        return print(word());
      case 'N':
        return nested(in_value);
      case 'M':
      case 'X': {
        optional_62('s');
        const bool hidden = std::exchange(hidden_, true);
        path(in_value);
        hidden_ = hidden;
        [[fallthrough]];
      }
      case 'Y':
        print("<");
        type();
        if (tag != 'M') {
          print(" as ");
          path(false);
        }
        return print(">");
      case 'I':
        path(in_value);
        print(in_value ? "::<" : "<");
        list(", ", [this] { argument(); });
        return print(">");
      case 'B':
        return repeat([&] { path(in_value); });
      default:
        return fail();
    }
  }
  void nested(bool in_value) {
    const char space = next();
    if (!is_lower(space) && !is_upper(space)) return fail();
    path(in_value);
    const u64 which = optional_62('s');
    const Word name = word();
    if (is_upper(space)) {
      print("::{");
      print(space == 'C' ? "closure" : space == 'S' ? "shim" : std::string_view(&space, 1));
      if (!name.empty()) {
        print(":");
        print(name);
      }
      print(fmt::format("#{}}}", which));
    } else if (!name.empty()) {
      print("::");
      print(name);
    }
  }
  void argument() {
    if (eat('L')) return lifetime(number_62());
    if (eat('K')) return constant();
    type();
  }
  void lifetime(u64 index) {
    if (index > lifetimes_) return fail();
    const u64 depth = lifetimes_ - index;
    if (index == 0)
      print("'_");
    else
      print(depth < 26 ? fmt::format("'{}", static_cast<char>('a' + depth)) : fmt::format("'_{}", depth));
  }
  void binder() {
    const u64 count = optional_62('G');
    if (count == 0) return;
    print("for<");
    for (u64 i = 0; i < count && enter(); ++i) {
      if (i != 0) print(", ");
      ++lifetimes_;
      lifetime(1);
    }
    print("> ");
  }

  void type() {
    if (!enter()) return;
    const Deeper deeper(depth_);
    const char tag = next();
    if (const std::string_view basic = basic_type(tag); !basic.empty()) return print(basic);
    switch (tag) {
      case 'R':
      case 'Q':
        print("&");
        if (eat('L')) {
          if (const u64 index = number_62(); index != 0) {
            lifetime(index);
            print(" ");
          }
        }
        if (tag == 'Q') print("mut ");
        return type();
      case 'P':
      case 'O':
        print(tag == 'P' ? "*const " : "*mut ");
        return type();
      case 'A':
      case 'S':
        print("[");
        type();
        if (tag == 'A') {
          print("; ");
          constant();
        }
        return print("]");
      case 'T': {
        print("(");
        const u32 count = list(", ", [this] { type(); });
        return print(count == 1 ? ",)" : ")");
      }
      case 'F':
        return function();
      case 'D':
        return dynamic();
      case 'B':
        return repeat([this] { type(); });
      default:
        --at_;
        return path(false);
    }
  }
  void function() {
    const u64 lifetimes = lifetimes_;
    binder();
    if (eat('U')) print("unsafe ");
    if (eat('K')) {
      const Word convention = eat('C') ? Word{"C", {}} : word();
      if (convention.plain.empty() || !convention.coded.empty()) return fail();
      std::string text(convention.plain);
      std::replace(text.begin(), text.end(), '_', '-');
      print("extern \"" + text + "\" ");
    }
    print("fn(");
    list(", ", [this] { type(); });
    print(")");
    if (!eat('u')) {
      print(" -> ");
      type();
    }
    lifetimes_ = lifetimes;
  }
  void dynamic() {
    const u64 lifetimes = lifetimes_;
    print("dyn ");
    binder();
    list(" + ", [this] {
      bool open = open_path();
      while (eat('p')) {
        print(std::exchange(open, true) ? ", " : "<");
        print(word());
        print(" = ");
        type();
      }
      if (open) print(">");
    });
    lifetimes_ = lifetimes;
    if (!eat('L')) return fail();
    if (const u64 index = number_62(); index != 0) {
      print(" + ");
      lifetime(index);
    }
  }
  // A path whose arguments may go on. Returns whether they do.
  bool open_path() {
    if (!enter()) return false;
    const Deeper deeper(depth_);
    bool open = false;
    if (eat('B')) {
      repeat([&] { open = open_path(); });
    } else if (eat('I')) {
      path(false);
      print("<");
      list(", ", [this] { argument(); });
      open = true;
    } else {
      path(false);
    }
    return open;
  }

  // "1f_"
  std::string_view digits() {
    const size_t begin = at_;
    while (is_digit(peek()) || (peek() >= 'a' && peek() <= 'f')) ++at_;
    const std::string_view digits = name_.substr(begin, at_ - begin);
    if (!eat('_') || digits.empty()) fail();
    return digits;
  }
  static u64 value_of(std::string_view digits) {
    u64 value = 0;
    for (const char c : digits) value = value << 4 | static_cast<u64>(is_digit(c) ? c - '0' : c - 'a' + 10);
    return value;
  }
  void constant() {
    if (!enter()) return;
    const Deeper deeper(depth_);
    const char tag = next();
    if (tag == 'B') return repeat([this] { constant(); });
    if (tag == 'p') return print("_");
    if (std::string_view("htmyojaslxnibc").find(tag) == std::string_view::npos || wrong_) return fail();
    if (std::string_view("aslxni").find(tag) != std::string_view::npos && eat('n')) print("-");
    const std::string_view hex = digits();
    const u64 value = value_of(hex);
    if (tag == 'b') return hex.size() != 1 || value > 1 ? fail() : print(value == 1 ? "true" : "false");
    if (tag != 'c') return hex.size() > 16 ? print("0x" + std::string(hex)) : print(fmt::format("{}", value));
    if (hex.size() > 8) return fail();
    print(value == '\t'                ? "'\\t'"
          : value == '\r'              ? "'\\r'"
          : value == '\n'              ? "'\\n'"
          : value > ' ' && value < '~' ? fmt::format("'{}'", static_cast<char>(value))
                                       : fmt::format("'\\u{{{:x}}}'", value));
  }

  std::string_view name_;
  Budget& budget_;
  std::string out_;
  size_t at_ = 0;
  u64 lifetimes_ = 0;
  u32 depth_ = 0;
  bool hidden_ = false, wrong_ = false, full_ = false;
};

}  // namespace

void append_utf8(u32 c, std::string& out) {
  const auto put = [&](u32 byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 63));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
}

std::string rust_v0_name(std::string_view mangled, Budget& budget, bool& full) {
  full = false;
  if (!mangled.starts_with("_R") || mangled.size() < 3 || !is_upper(mangled[2])) return "";
  mangled.remove_prefix(2);
  mangled = mangled.substr(0, mangled.find('.'));  // after it: what a compiler made of the function
  const auto in_name = [](char c) { return is_digit(c) || is_lower(c) || is_upper(c) || c == '_'; };
  return std::all_of(mangled.begin(), mangled.end(), in_name) ? Demangler(mangled, budget).run(full) : "";
}

}  // namespace ringside
