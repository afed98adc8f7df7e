// A print fmt, part by part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cli/hand_made.hpp"
#include "decode/formats.hpp"
#include "printed.hpp"

namespace ringside::print_fmt_test {
namespace {

using test::format;
using test::Payload;
using test::printed;

// 32 bits without a sign, as C has them.
TEST(PrintFmt, ValuesAreThoseOfC) {
  const std::string fields =
      "\tfield:u32 a;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 b;\toffset:12;\tsize:4;\tsigned:0;\n"
      "\tfield:int c;\toffset:16;\tsize:4;\tsigned:1;\n";
  const struct {
    const char *print, *line;
    u32 a, b;
  } all[] = {
      {R"("%u %lld", REC->a - REC->b, (long long)(REC->a - REC->b))", "4294967295 4294967295", 1, 2},
      {R"("%s", REC->a - REC->b > 5 ? "big" : "small")", "big", 1, 2},
      {R"("%u", (REC->a - REC->b) / 2)", "2147483647", 1, 2},
      {R"("%u", (~REC->a) >> 28)", "15", 0, 0},
      {R"("%llu", (unsigned long long)(REC->a * REC->b))", "65536", 65537, 65536},
      {R"("%llx", (u64)(REC->a << 4))", "10", 0xF0000001, 0},
      {R"("%s", REC->a > REC->c ? "gt" : "le")", "le", 1, 0},
      {R"("%s", REC->a == -1 ? "all" : "some")", "all", ~u32{0}, 0},
      {R"("%s", REC->a == -1U ? "all" : "some")", "all", ~u32{0}, 0},
      {R"("%s", REC->a == (u32)-1 ? "all" : "some")", "all", ~u32{0}, 0},
      {R"("%u of %llu", REC->a, 18446744073709551615ULL)", "5 of 18446744073709551615", 5, 0},
      {R"("n=%d/%d", ({ int __UNIQUE_ID_x_1 = (REC->a); int __UNIQUE_ID_y_2 = (128); ((__UNIQUE_ID_x_1) < )"
       R"((__UNIQUE_ID_y_2) ? (__UNIQUE_ID_x_1) : (__UNIQUE_ID_y_2)); }), REC->a)", "n=128/300", 300, 0},
      {R"("t=%u µs", REC->a)", "t=5 µs", 5, 0},
  };
  for (const auto& [print, line, a, b] : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    EXPECT_EQ(printed(f, 1, Payload(1, 2).put(a).put(b).put(i32{-1})), line) << print;
  }
}

TEST(PrintFmt, AddressesAndTextsInArraysOfBytes) {
  const std::string fields =
      "\tfield:void * p;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u8 a[8];\toffset:16;\tsize:8;\tsigned:0;\n"
      "\tfield:__data_loc u8[] d;\toffset:24;\tsize:4;\tsigned:0;\n"
      "\tfield:__rel_loc __u8[] s;\toffset:28;\tsize:4;\tsigned:0;\n";
  const std::pair<const char*, const char*> all[] = {
      {R"("[%9ps] [%-14pS]", REC->p, REC->p)", "[  startup] [startup+0x10  ]"},
      {R"("%px %pK %p", REC->p, REC->p, REC->p)", "0xffffffff81000010 0xffffffff81000010 0xffffffff81000010"},
      {R"("%pB|%pSR|%pSb|%ps", REC->p, REC->p, REC->p, REC->p)", "startup+0x10|startup+0x10|startup+0x10|startup"},
      {R"("%pB|%pS", (void *)0xffffffff81000100, (void *)0xffffffff81000100)", "startup+0x100|work+0x0"},
      {R"("%s|%s|%.2s|", REC->a, (char *)REC->a, REC->a)", "abc|abc|ab|"},
      {R"("%.*s|", (int)__get_dynamic_array_len(d), (char *)__get_dynamic_array(d))", "xyz|"},
      {R"("%s|%s", __get_str(d), REC->a[1] == 'b' ? "b" : "?")", "xyz|b"},
      {R"("%pISpc", __get_rel_sockaddr(s))", "10.1.2.3:8080"},
  };
  for (const auto& [print, line] : all) {
    Formats f;
    f.symbols().load("ffffffff81000000 T startup\nffffffff81000100 T work\nffffffff81000300 T end\n");
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    Payload p(1, 2);
    p.put(u64{0xffffffff81000010}).text(std::string_view("abc\0\0\0\0\0", 8)).put(u32{32 | 3 << 16}).put(u32{4 | 16 << 16});
    p.text(std::string_view("xyz\0", 4)).put(u16{2}).put(u16{0x901F}).put(u32{0x0302010A}).put(u64{0});
    EXPECT_EQ(printed(f, 1, p), line) << print;
  }
}

// Whatever a format says: it is parsed in time, and its line has an end.
TEST(PrintFmt, AHugePrintFormatCostsLittle) {
  const std::string field =
      "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:u8 b[8];\toffset:12;\tsize:8;\tsigned:0;\n";
  const auto repeated = [](const std::string& one, size_t bytes) {
    std::string out;
    while (out.size() + one.size() < bytes) out += one;
    return out;
  };
  std::string doubled = "({ long v0 = f(REC->a); ", chosen = "({ const char *v0 = REC->a ? \"x\" : \"y\"; ";
  for (int i = 1; i < 60; ++i) {
    const std::string before = "v" + std::to_string(i - 1), now = "v" + std::to_string(i);
    doubled += "long " + now + " = " + before + " + " + before + "; ";
    chosen += "const char *" + now + " = REC->a ? " + before + " : " + before + "; ";
  }
  std::string summed = doubled;
  summed.replace(summed.find("f(REC->a)"), 9, "REC->a");
  std::string variables = "({ ";
  for (int i = 0; i < 2000; ++i) variables += "int v" + std::to_string(i) + " = 1; ";
  const std::string all[] = {
      "\"%d\", " + doubled + "v59; })",
      "\"%d\", " + summed + "v59; })",
      "\"%s\", " + chosen + "v59; })",
      "\"%d\", " + variables + "1; })",
      "\"" + repeated("%d", 20'000) + "\"" + repeated(", " + std::string("REC->a+REC->a"), 40'000),
      "\"" + repeated("%s", 5'000) + "\"" + repeated(", __print_hex(REC->b, 8)", 55'000),
      "\"%d\", REC" + repeated("->a", 60'000),
      "\"%d\", REC->a" + repeated("[1]", 60'000),
      "\"%d\", " + repeated("f(", 60'000),
      "\"%d\", " + repeated("({", 60'000),
      "\"%d\", REC->a" + repeated("(", 30'000) + repeated(")", 30'000),
      "\"%d\", 1" + repeated("+1", 60'000),
      "\"%d\", REC->a" + repeated(" ? 1 : 2", 60'000),
      "\"%s\", __print_flags(REC->a, \"|\"" + repeated(", {1, \"a\"}", 60'000) + ")",
      "\"" + repeated("%255d", 50'000) + "\"" + repeated(", 1", 10'000),
  };
  for (const std::string& print : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", field, print)));
    EXPECT_LT(printed(f, 1, Payload(1, 2).put(i32{1}).put(u64{7})).size(), 100'000u) << print.substr(0, 60);
    size_t steps = 0, code = 0;
    for (const PrintStep& step : f.find(1)->format().steps) ++steps, code += step.code.size();
    EXPECT_LT(steps + code, 60'000u) << print.substr(0, 60);
  }
}

// What only the kernel knows costs one argument.
TEST(PrintFmt, UnknownPartsAreSpelled) {
  const std::string fields =
      "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:u16 b[2];\toffset:12;\tsize:4;\tsigned:0;\n"
      "\tfield:__data_loc char[] s;\toffset:16;\tsize:4;\tsigned:0;\n";
  const std::pair<const char*, const char*> all[] = {
      {"unknown(REC->a + 1, \"x\", REC->b[1])", "unknown(-6, \"x\", 4)"},
      {"unknown()", "unknown()"},
      {"unknown(struct x *, int)", "unknown(struct x *, int)"},
      {"unknown(p, __get_str(s), REC->b)", "unknown(p, \"hi\", {3,4})"},
      {"REC->a ? 1 : unknown(1)", "1"},
      {"REC->a < -8 ? 1 : unknown(2)", "unknown(2)"},
      {"1 + unknown(2) * 3", "1 + (unknown(2) * 3)"},
      {"SOME_NAME", "SOME_NAME"},
      {"(unsigned long)vmemmap_base + REC->a", "vmemmap_base + -7"},
      {"sizeof(struct x)", "sizeof(struct x)"},
      {"sizeof(REC->a)", "4"},
      {"REC->b[1][2]", "REC->b[1][2]"},
      {"1[1]", "1[1]"},
      {"REC->a->a", "REC->a->a"},
      {"REC->b[REC->b[0] - 2]", "4"},
      {"unknown(1)[2]", "unknown(1)[2]"},
      {"({ union x y; y.z = REC->a; y.w; })", "({...})"},
      {"__print_symbolic(unknown(1), { 1, \"x\" })", "__print_symbolic(unknown(1))"},
      {"unknown(1) ? __print_symbolic(REC->a, { -7, \"x\" }) : 0", "unknown(1) ? x : 0"},
  };
  for (const auto& [argument, text] : all) {
    for (const std::string letter : {"d", "s", "x", "p"}) {
      if (std::string_view(text).find_first_not_of("-0123456789") == std::string_view::npos && letter != "d") continue;
      Formats f;
      const std::string print = "\"a=%d [%" + letter + "] a=%d\", REC->a, " + argument + ", REC->a";
      ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print.c_str()))) << print;
      Payload p(1, 2);
      p.put(i32{-7}).put(u16{3}).put(u16{4}).put(u32{20 | 3 << 16}).text("hi").put(u8{0});
      EXPECT_EQ(printed(f, 1, p), "a=-7 [" + std::string(text) + "] a=-7") << print;
      EXPECT_TRUE(f.take_failed().empty()) << print;
    }
  }
}

// What programs and old kernels write.
TEST(PrintFmt, OddFormatTexts) {
  const auto line = [](const std::string& text, const Payload& payload) {
    Formats f;
    EXPECT_TRUE(test::add(f, 1, "app", "mark", text)) << text;
    for (const FailedFormat& failed : f.take_failed()) ADD_FAILURE() << failed.sentence;
    return printed(f, 1, payload);
  };
  const std::string field = "\tfield:int x;\toffset:8;\tsize:4;\tsigned:1;\n";
  const std::string plain = format(1, "mark", field, R"("x=%d", REC->x)");
  const Payload five = Payload(1, 2).put(i32{5});
  std::string crlf;
  for (const char c : plain) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_EQ(line(crlf, five), "x=5");
  EXPECT_EQ(line(plain.substr(0, plain.size() - 1), five), "x=5") << "no line end";
  EXPECT_EQ(line(plain + "\n\n", five), "x=5");
  EXPECT_EQ(line(format(1, "mark", "field:int x;offset:8;size:4;\n", R"("x=%d", REC->x)"), five), "x=5");
  EXPECT_EQ(line(format(1, "mark", "\tfield special:int x;\toffset:8;\tsize:4;\n", R"("x=%d",
      REC->x)"), five), "x=5") << "two lines";
  EXPECT_EQ(line(plain.substr(0, plain.find("\nprint fmt")), five), "x=5") << "no print fmt";
  EXPECT_EQ(line(format(1, "mark", field, R"("x=%d\n", REC->x)"), five), "x=5");
  EXPECT_EQ(line(format(1, "mark", field, R"("\tx=%d\t", REC->x)"), five), " x=5 ");
  EXPECT_EQ(line(format(1, "mark", field, R"("x" "=" "%" "d", REC->x)"), five), "x=5");
  EXPECT_EQ(line(format(1, "mark", field, R"("x=%d %d", REC->x)"), five), "x=5 %d");
  EXPECT_EQ(line(format(1, "mark", field, R"("x=%d", REC->x, 7)"), five), "x=5");
  EXPECT_EQ(line(format(1, "mark", field, R"("%d %d %d", REC->common_pid, REC->common_type, REC->x)"), five), "2 1 5");
  EXPECT_EQ(line(format(1, "mark", field, R"("%d %d", __event_in_irq() ? 1 : 0, REC->ent.pid)"), five), "0 2");
  EXPECT_EQ(line(format(1, "mark", field, R"(""x" is %d", REC->x)"), five), R"("x" is 5)") << "kernels keep such quotes";
  EXPECT_EQ(line(format(1, "mark", field, R"("x "%d"", REC->x)"), five), R"(x "5")");
  EXPECT_EQ(line(format(1, "mark", field, "\"x\ty=%d\n\", REC->x"), five), "x y=5") << "and tabs and line ends";
  EXPECT_EQ(line(format(1, "mark", field, R"("",)"), five), "");
  EXPECT_EQ(line(format(1, "mark", field, R"("%lld", (long long)(((ktime_t) { .tv64 = REC->x }).tv64))"), five), "5");
  EXPECT_EQ(line(format(1, "mark", field, R"("%zu", sizeof(struct { int:(-!!(0)); }) ? sizeof(REC->x) : 1)"), five),
            "sizeof(struct { int:(-!!(0)); }) ? 4 : 1");
  // Arrays of arrays, of pointers, of what is no number; a function.
  const std::string matrix =
      "\tfield:u8 m[2][3];\toffset:8;\tsize:6;\tsigned:0;\n\tfield:int x;\toffset:16;\tsize:4;\tsigned:1;\n";
  Payload m(1, 2);
  m.text(std::string_view("\1\2\3\4\5\6\0\0", 8)).put(i32{5});
  EXPECT_EQ(line(format(1, "mark", matrix, R"("x=%d %d %d %d", REC->x, REC->m[0][2], REC->m[1][0], REC->m[REC->x - 4][1])"), m),
            "x=5 3 4 5");
  EXPECT_EQ(line(format(1, "mark", matrix, R"("%s %zu", __print_hex(REC->m, 6), sizeof(REC->m))"), m), "01 02 03 04 05 06 6");
  EXPECT_EQ(line(format(1, "mark", "\tfield:void (*f)(int);\toffset:8;\tsize:8;\tsigned:0;\n", R"("f=%p", REC->f)"),
                 Payload(1, 2).put(u64{16})), "f=0x10");
  EXPECT_EQ(line(format(1, "mark", "\tfield:char comm[TASK_COMM_LEN];\toffset:8;\tsize:16;\tsigned:1;\n", R"("%s", REC->comm)"),
                 Payload(1, 2).put(u64{0x6968}).put(u64{0})), "hi");
  const std::string point = "\tfield:struct point p;\toffset:8;\tsize:12;\tsigned:0;\n";
  EXPECT_EQ(line(format(1, "mark", point, R"("%s", __print_hex(&REC->p, 2))"),
                 Payload(1, 2).put(u64{0x0201}).put(u32{0})), "01 02");
}

// char names[3][8] holds three texts; a field without "signed:" has the sign of its type.
TEST(PrintFmt, ArraysOfTextsAndFieldsOfOldKernels) {
  const std::string fields =
      "\tfield:char names[3][8];\toffset:8;\tsize:24;\tsigned:0;\n\tfield:u32 m[2][2][2];\toffset:32;\tsize:32;\tsigned:0;\n"
      "\tfield:int x;\toffset:64;\tsize:4;\n\tfield:unsigned u;\toffset:68;\tsize:4;\n"
      "\tfield:unsigned char a[2*2];\toffset:72;\tsize:4;\n\tfield:s16 s;\toffset:76;\tsize:2;\n";
  Payload payload(1, 2);
  payload.put(u64{0x656E6F}).put(u64{0x6F7774}).put(u64{0x6565726874});
  for (const u32 n : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U}) payload.put(n);
  payload.put(i32{-5}).put(~u32{0}).put(u32{0x04030201}).put(int16_t{-2});
  const std::pair<const char*, const char*> all[] = {
      {R"("%s %s %s|%.2s", REC->names[0], REC->names[1], REC->names[REC->x + 7], REC->names[1])", "one two three|tw"},
      {R"("%c %s", REC->names[1][1], REC->names)", "w one"},
      {R"("%d %d", REC->m[1][0][1], REC->m[0][1][1])", "6 4"},
      {R"("%s %s", __print_array(REC->m[1][1], 2, 4), __print_array(REC->m[1], 4, 4))", "7 8 5 6 7 8"},
      {R"("%s|", REC->names[9])", "|"},
  };
  for (const auto& [print, line] : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    EXPECT_EQ(printed(f, 1, payload), line) << print;
  }
  Formats f;
  ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, R"("")")));
  const EventType& type = *f.find(1);
  const Bytes bytes = payload;
  EXPECT_EQ(read_integer(bytes, *type.field("x")), -5);
  EXPECT_EQ(read_integer(bytes, *type.field("u")), 0xFFFFFFFF);
  EXPECT_EQ(read_integer(bytes, *type.field("s")), -2);
  EXPECT_EQ(type.field("a")->element, 1u);
  EXPECT_EQ(read_text(bytes, *type.field("names")), "one,two,three");
}

// As the kernel has it: a width is that of the whole text, and a bitmap has as many bits as the format says.
TEST(PrintFmt, WidthsOfWholeTexts) {
  const std::string fields =
      "\tfield:int n;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:u8 b[4];\toffset:12;\tsize:4;\tsigned:0;\n"
      "\tfield:u64 p;\toffset:16;\tsize:8;\tsigned:0;\n";
  const std::pair<const char*, const char*> all[] = {
      {R"("[%12s]", __print_flags(REC->n, "|", { 1, "one" }, { 2, "two" }))", "[     one|two]"},
      {R"("[%-6s]", __print_symbolic(REC->n, { 1, "one" }))", "[0x3   ]"},
      {R"("[%.3s]", __print_hex(REC->b, 4))", "[ff ]"},
      {R"("[%13s]", __print_hex_str(REC->b, 4))", "[     ff0a0000]"},
      {R"("%*pb %*pbl %*pbl", 12, REC->b, 12, REC->b, 10, REC->b)", "aff 0-7,9,11 0-7,9"},
      {R"("%pa %pap", &REC->p, &REC->p)", "0x0000000000001234 0x0000000000001234"},
      {R"("[%16p] [%-10px]", REC->p, REC->p)", "[          0x1234] [0x1234    ]"},
      {R"("0x%p 0x%px", REC->p, REC->p)", "0x1234 0x1234"},
      {R"("%#x %#x %#o %.0d", REC->n, REC->n - 3, REC->n - 3, REC->n - 3)", "0x3 0x0 0 0"},
      {R"("%pe %pe", ERR_PTR(-2), ERR_PTR(REC->n))", "-ENOENT 0x3"},
      {R"("%p", (((struct page *)vmemmap_base) + (REC->n)))", "0x3"},  // as trace-cmd
      {R"("%p", REC->n != -1UL ? (((struct page *)vmemmap_base) + (REC->n)) : ((void *)0))", "0x3"},
      {R"("%p", REC->n == 3 ? ((void *)0) : (((struct page *)vmemmap_base) + (REC->n)))", "(nil)"},
      {R"("[%c%c]", 0, 'a')", "[a]"},
      {R"("%p4cc", &REC->p)", "4... little-endian (0x00001234)"},
      {R"("%*pE", 2, REC->b)", "\\377\\n"},
      {R"("%s", (const char *)0)", "(null)"},
  };
  for (const auto& [print, line] : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    EXPECT_EQ(printed(f, 1, Payload(1, 2).put(i32{3}).put(u32{0x0AFF}).put(u64{0x1234})), line) << print;
  }
}

// The functions of the kernel that compute a number.
TEST(PrintFmt, FunctionsOfTheKernel) {
  const std::string fields =
      "\tfield:u64 t;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u32 n;\toffset:16;\tsize:4;\tsigned:0;\n"
      "\tfield:u8 b[4];\toffset:20;\tsize:4;\tsigned:0;\n";
  const std::pair<const char*, const char*> all[] = {
      {R"("%llu.%09u", __print_ns_to_secs(REC->t), __print_ns_without_secs(REC->t))", "1234.000000123"},
      {R"("%lld %lld", ktime_to_ns(REC->t), ktime_to_us(REC->t))", "1234000000123 1234000000"},
      {R"("%lld", ktime_to_ms(REC->t))", "1234000"},
      {R"("%x %x", __fswab32(REC->n), be16_to_cpu(REC->n))", "4030201 403"},
      {R"("%x %x", __le16_to_cpup((__le16 *)REC->b), be32_to_cpup((__be32 *)REC->b))", "605 5060708"},
      {R"("%d %d %d", fls(REC->n), __ilog2_u64(REC->t), hweight32(REC->n))", "25 40 5"},
      {R"("%u %u", jiffies_to_msecs(REC->n & 255), jiffies_to_usecs(1))", "16 4000"},
      {R"("%d", HZ)", "250"},
      {R"("%s", __print_flags_u64(REC->n, "|", { 4ULL, "four" }))", "four|0x1020300"},
      {R"("%s", __print_symbolic_u64(REC->n, { 0x01020304, "all" }))", "all"},
      {R"("%s", __print_array(REC->b, 2, sizeof(u16)))", "1541 2055"},
      {R"("%s", __print_dynamic_array(b, 1))", "5 6 7 8"},
      {R"("%s", __print_hex_dump("", DUMP_PREFIX_NONE, 16, 1, REC->b, 4, false))", "05 06 07 08"},
      {R"("%u", __builtin_choose_expr(((!!(sizeof((typeof(4) *)1 == (typeof(REC->n) *)1))) && 1), 4, 5))", "4"},
      {R"("%u", ({ typeof(REC->n) _x = (REC->n & 7); typeof(3) _y = (3); (void) (&_x == &_y); _x > _y ? _x : _y; }))", "4"},
      {R"("%u", ({ __auto_type x = (REC->n); do { if (!(1)) fail(); } while (0); x & 15; }))", "4"},
      {R"("%d %d", __builtin_expect(!!(REC->n > 1), 0) ? 1 : 2, __builtin_constant_p(REC->n))", "1 0"},
  };
  for (const auto& [print, line] : all) {
    Formats f;
    f.use_ticks(250);
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    EXPECT_EQ(printed(f, 1, Payload(1, 2).put(u64{1234000000123}).put(u32{0x01020304}).put(u32{0x08070605})), line) << print;
  }
  Formats f;  // of another machine
  ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, R"("wait %u ok", jiffies_to_msecs(REC->n & 255))")));
  EXPECT_EQ(printed(f, 1, Payload(1, 2).put(u64{1}).put(u32{4})), "wait jiffies_to_msecs(4) ok");
}

}  // namespace
}  // namespace ringside::print_fmt_test
