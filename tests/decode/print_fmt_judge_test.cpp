// Random print fmts over random payloads, judged by a compiler of C: it compiles the same text with the fields' types.
//
// RINGSIDE_JUDGE_ROUNDS=N: N million lines, each million of 1,000 other formats.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "cli/hand_made.hpp"
#include "decode/formats.hpp"
#include "own_root.hpp"

namespace ringside::print_fmt_judge_test {
namespace {

struct JudgedField {
  const char *type, *name;
  u32 size, elements;
  bool is_signed;
};
constexpr JudgedField fields[] = {
    {"u8", "a", 1, 0, false},   {"s8", "b", 1, 0, true},  {"u16", "c", 2, 0, false},  {"short", "d", 2, 0, true},
    {"u32", "e", 4, 0, false},  {"int", "f", 4, 0, true}, {"u64", "g", 8, 0, false},  {"long", "h", 8, 0, true},
    {"u32", "i", 4, 0, false},  {"int", "j", 4, 0, true}, {"bool", "k", 1, 0, false}, {"u8", "l", 8, 8, false},
    {"u32", "m", 16, 4, false}, {"s16", "n", 8, 4, true}, {"char", "s", 8, 8, true},
};
constexpr u32 payload_size = 8 + 1 + 1 + 2 + 2 + 4 + 4 + 8 + 8 + 4 + 4 + 1 + 8 + 16 + 8 + 8;

// What the kernel's headers define for a print fmt.
const char* const prelude = R"(#include <stdbool.h>
#include <stdio.h>
#include <string.h>
typedef unsigned char u8; typedef signed char s8; typedef unsigned short u16; typedef short s16; typedef unsigned u32;
typedef int s32; typedef unsigned long long u64; typedef long long s64; typedef unsigned gfp_t; typedef long loff_t;
struct name { unsigned long value; const char *text; };
static char texts[8][1024];
static int turn;
static const char *flags(unsigned long v, const char *between, const struct name *n) {
  char *out = texts[turn++ % 8], *to = out;
  *to = 0;
  for (; n->text && v; ++n) {
    if ((v & n->value) != n->value) continue;
    to += sprintf(to, "%s%s", to != out ? between : "", n->text);
    v &= ~n->value;
  }
  if (v) sprintf(to, "%s0x%lx", to != out ? between : "", v);
  return out;
}
static const char *symbol(unsigned long v, const struct name *n) {
  char *out = texts[turn++ % 8];
  for (; n->text; ++n)
    if (n->value == v) return n->text;
  sprintf(out, "0x%lx", v);
  return out;
}
static const char *hex(const unsigned char *b, int n, const char *between) {
  char *out = texts[turn++ % 8], *to = out;
  *to = 0;
  for (int i = 0; i < n; ++i) to += sprintf(to, "%s%02x", i ? between : "", b[i]);
  return out;
}
#define __print_flags(v, between, ...) ({ static const struct name n[] = { __VA_ARGS__, { 0, 0 } }; flags(v, between, n); })
#define __print_symbolic(v, ...) ({ static const struct name n[] = { __VA_ARGS__, { 0, 0 } }; symbol(v, n); })
#define __print_hex(b, n) hex(b, n, " ")
#define __print_hex_str(b, n) hex(b, n, "")
#define REC (&r)
)";

class Generator {
 public:
  explicit Generator(u64 seed) : random_(seed) {}
  u64 below(u64 n) { return random_() % n; }

  std::string print_fmt() {
    std::string format, arguments;
    const u64 conversions = 1 + below(4);
    for (u64 i = 0; i < conversions; ++i) {
      format += i != 0 ? "|" : "";
      conversion(format, arguments);
    }
    return "\"" + format + "\"" + arguments;
  }
  std::vector<u8> payload() {
    std::vector<u8> bytes(payload_size);
    bytes[0] = 1;
    size_t at = 8;
    for (const JudgedField& field : fields) {
      const u32 each = field.elements != 0 ? field.size / field.elements : field.size;
      for (u32 i = 0; i < field.size; i += each) {
        const u64 shape = below(6), value = shape == 0   ? 0
                                            : shape == 1 ? ~u64{0}
                                            : shape == 2 ? below(16)
                                            : shape == 3 ? u64{1} << below(64)
                                            : shape == 4 ? 0 - below(16)
                                                         : random_();
        std::memcpy(&bytes[at + i], &value, each);
        if (field.name == std::string_view("s"))
          bytes[at + i] = i + 1 < field.size && below(6) != 0 ? static_cast<u8>('a' + below(26)) : 0;
        if (field.type == std::string_view("bool")) bytes[at] &= 1;
      }
      at += field.size;
    }
    return bytes;
  }

 private:
  template <size_t n>
  const char* any(const char* const (&all)[n]) {
    return all[below(n)];
  }
  std::string type() {
    static const char* const all[] = {"u8",
                                      "s8",
                                      "u16",
                                      "s16",
                                      "u32",
                                      "s32",
                                      "u64",
                                      "s64",
                                      "int",
                                      "unsigned int",
                                      "unsigned",
                                      "long",
                                      "unsigned long",
                                      "long long",
                                      "unsigned long long",
                                      "short",
                                      "unsigned short",
                                      "char",
                                      "signed char",
                                      "unsigned char",
                                      "bool",
                                      "gfp_t",
                                      "loff_t",
                                      "short int",
                                      "long unsigned int"};
    return any(all);
  }
  std::string constant() {
    static const char* const suffixes[] = {"", "", "", "U", "L", "UL", "ULL", "LL", "u", "ul"};
    static const char* const odd[] = {"2147483647",
                                      "2147483648",
                                      "0x7fffffff",
                                      "0x80000000",
                                      "0xffffffff",
                                      "4294967295",
                                      "4294967296",
                                      "0x7fffffffffffffff",
                                      "0x8000000000000000",
                                      "0xffffffffffffffff",
                                      "18446744073709551615ULL",
                                      "'a'",
                                      "'\\n'",
                                      "'\\\\'",
                                      "017",
                                      "0",
                                      "1",
                                      "-1",
                                      "(-1)",
                                      "~0",
                                      "-1U",
                                      "~0UL"};
    if (below(3) == 0) return any(odd);
    const u64 value = below(4) != 0 ? below(100) : below(100'000);
    char text[40];
    std::snprintf(text, sizeof text, below(3) == 0 ? "0x%lx%s" : "%lu%s", value, any(suffixes));
    return text;
  }
  std::string field() {
    static const char* const all[] = {"a", "b", "c", "d", "e", "e", "f", "f", "g", "h", "i", "i", "j", "k"};
    return std::string("REC->") + any(all);
  }
  std::string text(u32 depth) {
    switch (depth == 0 ? below(3) : below(7)) {
      case 0:
        return "\"one\"";
      case 1:
        return "\"t\" \"wo\"";
      case 2:
        return "REC->s";
      case 3:
        return value(depth - 1) + " ? " + text(depth - 1) + " : " + text(depth - 1);
      case 4:
        return "__print_symbolic(" + value(depth - 1) +
               ", { 0, \"none\" }, { 1, \"one\" }, { -1, \"all\" }, { (1 << 3) | 1, \"nine\" })";
      case 5:  // zero has no name in the kernel's flags
        return "__print_flags(" + value(depth - 1) +
               ", \"|\", { 1, \"A\" }, { 1UL << 1, \"B\" }, { 0x80000000U, \"H\" }, { ~0xffUL, \"T\" })";
      default:
        return below(2) == 0 ? "__print_hex(REC->l, " + std::to_string(below(9)) + ")" : "__print_hex_str(REC->l, REC->a & 7)";
    }
  }
  std::string value(u32 depth) {
    if (depth == 0) return below(3) != 0 ? field() : constant();
    static const char* const plain[] = {"+", "-", "*", "&", "|", "^", "&&", "||", "==", "!=", "<", "<=", ">", ">="};
    const std::string left = value(depth - 1);
    switch (below(15)) {
      case 0:
        return "(" + type() + ")" + in_brackets(left);
      case 1:
        return "(" + type() + ")" + field();
      case 2:
        return std::string(below(3) == 0 ? "!" : below(2) == 0 ? "~" : "-") + in_brackets(left);
      case 3:
        return in_brackets(left) + (below(2) == 0 ? " / " : " % ") + "((" + in_brackets(value(depth - 1)) + " & 15) + 1)";
      case 4:
        return in_brackets(in_brackets(left) + (below(2) == 0 ? " << " : " >> ") + "(" + in_brackets(value(depth - 1)) +
                           " & 31)");
      case 5:
        return in_brackets(in_brackets(left) + (below(2) == 0 ? " << " : " >> ") + std::to_string(below(32)));
      case 6:
        return "(" + left + " ? " + value(depth - 1) + " : " + value(depth - 1) + ")";
      case 7:
        return below(2) == 0 ? "REC->m[" + in_brackets(left) + " & 3]" : "REC->n[" + in_brackets(left) + " & 3]";
      case 8:
        return "REC->l[" + std::to_string(below(8)) + "]";
      case 9:
        return "sizeof(" + (below(2) == 0 ? type() : left) + ")";
      case 10: {
        const std::string of = type(), x = "__UNIQUE_ID_x_" + std::to_string(++unique_),
                          y = "__UNIQUE_ID_y_" + std::to_string(unique_);
        return "({ " + of + " " + x + " = (" + left + "); " + of + " " + y + " = (" + value(depth - 1) + "); ((" + x + ") < (" +
               y + ") ? (" + x + ") : (" + y + ")); })";
      }
      case 11:
        return "__builtin_expect(!!(" + left + "), 0)";
      default: {  // as C groups them
        std::string right = value(depth - 1);
        if (right[0] == '-') right = " " + right;
        return below(2) == 0 ? left + " " + any(plain) + " " + right : "(" + left + ") " + any(plain) + " (" + right + ")";
      }
    }
  }
  static std::string in_brackets(const std::string& of) { return "(" + of + ")"; }

  void conversion(std::string& format, std::string& arguments) {
    const u32 depth = static_cast<u32>(below(4));
    const u64 kind = below(10);
    if (kind == 0) {
      static const char* const all[] = {"%s", "%8s", "%-8s", "%.2s", "%-6.3s"};
      format += any(all);
      arguments += ", " + text(depth);
      return;
    }
    if (kind == 1) {
      static const char* const all[] = {"%*d", "%-*d", "%.*d", "%*x"};
      const std::string letter = any(all);
      format += letter;
      arguments += ", (int)((" + value(1) + ") & 15) + 1, " + value(depth);
      return;
    }
    if (kind == 2) {
      format += below(2) == 0 ? "%c" : "%3c";
      arguments += ", ((" + value(depth) + ") & 15) + 'A'";
      return;
    }
    const bool is_signed = below(3) == 0;
    static const char* const sizes[] = {"hh", "h", "", "", "", "l", "ll", "z"};
    const std::string size = any(sizes);
    const std::string letter = is_signed ? "d" : below(3) == 0 ? "u" : below(6) == 0 ? "o" : below(6) == 0 ? "X" : "x";
    std::string flags;
    const bool sharp = !is_signed && letter != "u" && below(6) == 0;
    if (sharp) flags += "#";
    if (is_signed && below(6) == 0) flags += below(2) == 0 ? "+" : " ";
    switch (below(8)) {
      case 0:
        flags += "-" + std::to_string(1 + below(20));
        break;
      case 1:
        flags += "0" + std::to_string(1 + below(20));
        break;
      case 2:
        flags += std::to_string(1 + below(20));
        break;
      case 3:  // the kernel counts the 0 of %#o beside the precision
        if (!sharp || letter != "o") flags += std::to_string(1 + below(20)) + "." + std::to_string(1 + below(10));
        break;
      default:
        break;
    }
    format += "%" + flags + size + letter;
    std::string argument = value(depth);
    // printf takes as many bytes as the conversion says, whatever the type; the kernel's %#x has 0x in front of 0, too.
    const bool wide = size == "l" || size == "ll" || size == "z";
    if (sharp) argument = "(" + argument + ") | 1";
    if (wide) argument = std::string(is_signed ? "(long)(" : "(unsigned long)(") + argument + ")";
    arguments += ", " + argument;
  }

  std::mt19937_64 random_;
  u32 unique_ = 0;
};

std::string format_text(u16 id, const std::string& print) {
  std::string lines;
  u32 offset = 8;
  for (const JudgedField& field : fields) {
    lines += std::string("\tfield:") + field.type + " " + field.name +
             (field.elements != 0 ? "[" + std::to_string(field.elements) + "]" : "") + ";\toffset:" + std::to_string(offset) +
             ";\tsize:" + std::to_string(field.size) + ";\tsigned:" + (field.is_signed ? "1" : "0") + ";\n";
    offset += field.size;
  }
  return test::format(id, "x", lines, print);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

// Returns how many lines were compared.
u64 judge(u64 seed, u32 formats, u32 payloads, const std::string& dir) {
  Generator generator(seed);
  std::vector<std::string> prints;
  std::vector<std::vector<u8>> bytes;
  for (u32 i = 0; i < formats; ++i) prints.push_back(generator.print_fmt());
  for (u32 i = 0; i < payloads; ++i) bytes.push_back(generator.payload());
  {
    std::ofstream c(dir + "/judge.c");
    c << prelude << "struct record { char common[8];";
    for (const JudgedField& field : fields)
      c << " " << (field.type == std::string_view("char") ? "char" : field.type) << " " << field.name
        << (field.elements != 0 ? "[" + std::to_string(field.elements) + "]" : "") << ";";
    c << " } __attribute__((packed));\n";
    for (u32 i = 0; i < formats; ++i)
      c << "static void f" << i << "(struct record r) { printf(" << prints[i] << "); putchar('\\n'); }\n";
    c << "static void (*const all[])(struct record) = {";
    for (u32 i = 0; i < formats; ++i) c << " f" << i << ",";
    c << "};\nint main(void) { struct record r; while (fread(&r, sizeof r, 1, stdin) == 1)\n"
         "  for (unsigned i = 0; i < sizeof all / sizeof all[0]; ++i) all[i](r);\nreturn 0; }\n";
    std::ofstream in(dir + "/payloads", std::ios::binary);
    for (const auto& one : bytes) in.write(reinterpret_cast<const char*>(one.data()), static_cast<std::streamsize>(one.size()));
  }
  const std::string run = "gcc -std=gnu11 -O0 -w -fwrapv -o " + dir + "/judge " + dir + "/judge.c 2>" + dir + "/errors && " +
                          dir + "/judge <" + dir + "/payloads >" + dir + "/right";
  if (std::system(run.c_str()) != 0) {
    ADD_FAILURE() << "seed " << seed << ": " << read_file(dir + "/errors");
    return 0;
  }
  Formats ours;
  for (u32 i = 0; i < formats; ++i) ours.add(i, "s", "x", format_text(static_cast<u16>(i), prints[i]));
  std::ifstream right(dir + "/right");
  u64 different = 0;
  fmt::memory_buffer out;
  for (u32 p = 0; p < payloads; ++p) {
    for (u32 i = 0; i < formats; ++i) {
      std::string line;
      if (!std::getline(right, line)) ADD_FAILURE() << "the compiled program ended early";
      out.clear();
      ours.print(*ours.find(i), {bytes[p].data(), bytes[p].size()}, out);
      const std::string_view text(out.data(), out.size());
      if (text != line && ++different <= 10)
        ADD_FAILURE() << "seed " << seed << ": " << prints[i] << "\nours:  " << text << "\nright: " << line;
    }
  }
  for (const FailedFormat& failed : ours.take_failed()) ADD_FAILURE() << failed.sentence << "\n" << prints[failed.type->id];
  EXPECT_EQ(different, 0u);
  return u64{formats} * payloads;
}

TEST(PrintFmtJudge, ACompilerPrintsTheSame) {
#ifndef __x86_64__
  GTEST_SKIP() << "shifts beyond a type's width, and arguments of other sizes, are those of x86-64";
#endif
  if (std::system("gcc --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "gcc is not installed: nothing can judge";
  const test::OwnRoot root;
  const char* const rounds = std::getenv("RINGSIDE_JUDGE_ROUNDS");
  const u64 count = rounds != nullptr ? std::strtoull(rounds, nullptr, 10) : 1;
  u64 compared = 0;
  for (u64 seed = 1; seed <= count && !HasFailure(); ++seed)
    compared += rounds != nullptr ? judge(seed, 1000, 1000, root.path()) / 100 : judge(seed, 500, 20, root.path());
  EXPECT_GE(compared, 10'000u);
  std::printf("%lu lines compared\n", rounds != nullptr ? compared * 100 : compared);
}

}  // namespace
}  // namespace ringside::print_fmt_judge_test
