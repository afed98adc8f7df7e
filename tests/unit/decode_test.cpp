#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "cli/hand_made.hpp"
#include "decode/formats.hpp"
#include "hostile_formats.hpp"

namespace ringside::decode_test {
namespace {

using test::format;
using test::Payload;

std::string printed(const Formats& formats, u16 id, Bytes payload) {
  fmt::memory_buffer out;
  formats.print(*formats.find(id), payload, out);
  return {out.data(), out.size()};
}

TEST(Formats, FieldsBecomeOffsets) {
  Formats f;
  ASSERT_TRUE(test::add(f, 1, "libc", "malloc", test::malloc_format()));
  const EventType* type = f.find(1);
  ASSERT_NE(type, nullptr);
  EXPECT_EQ(type->full, "libc:malloc");
  ASSERT_EQ(type->fields().size(), 2u);
  EXPECT_EQ(type->field("ptr")->offset, 16u);
  EXPECT_EQ(type->field("ptr")->size, 8u);
  EXPECT_EQ(type->field("nothing"), nullptr);
  EXPECT_EQ(f.find(2), nullptr);
}

TEST(Formats, PrintsByThePrintFormat) {
  Formats f;
  f.add(1, "libc", "malloc", test::malloc_format());
  EXPECT_EQ(printed(f, 1, Payload(1, 2).put(u64{32}).put(u64{0xC0FFEE})), "size=32 ptr=0xc0ffee");
}

TEST(Formats, ModifiersNarrowAsPrintfDoes) {
  Formats f;
  ASSERT_TRUE(test::add(f, 1, "s", "n",
                        format(1, "n",
                               "\tfield:s32 a;\toffset:8;\tsize:4;\tsigned:1;\n"
                               "\tfield:u64 b;\toffset:16;\tsize:8;\tsigned:0;\n"
                               "\tfield:s8 c;\toffset:24;\tsize:1;\tsigned:1;\n",
                               R"("a=%d x=%x b=%u c=%hhd w=%08llx 100%%", REC->a, REC->a, REC->b, REC->c, REC->b)")));
  const Payload p = Payload(1, 2).put(i32{-5}).put(u32{0}).put(u64{0x1'0000'0002}).put(int8_t{-3});
  EXPECT_EQ(printed(f, 1, p), "a=-5 x=fffffffb b=2 c=-3 w=100000002 100%");
}

TEST(Formats, FloatsAreNumbersAlthoughTheFormatSaysBits) {
  Formats f;
  ASSERT_TRUE(test::add(f, 1, "s", "f",
                        format(1, "f",
                               "\tfield:double d;\toffset:8;\tsize:8;\tsigned:0;\n"
                               "\tfield:float e;\toffset:16;\tsize:4;\tsigned:0;\n",
                               R"("d=0x%llx e=0x%x", REC->d, REC->e)")));
  EXPECT_EQ(printed(f, 1, Payload(1, 2).put(1.5).put(0.1F)), "d=1.5 e=0.1");
  EXPECT_EQ(read_number(Payload(1, 2).put(1.5).put(0.1F), *f.find(1)->field("d")), 1.5);
}

TEST(Formats, TextsArraysAndCharacters) {
  Formats f;
  ASSERT_TRUE(test::add(f, 1, "s", "t",
                        format(1, "t",
                               "\tfield:char name[8];\toffset:8;\tsize:8;\tsigned:1;\n"
                               "\tfield:__data_loc char[] path;\toffset:16;\tsize:4;\tsigned:0;\n"
                               "\tfield:u8 mac[4];\toffset:20;\tsize:4;\tsigned:0;\n"
                               "\tfield:s32 v[2];\toffset:24;\tsize:8;\tsigned:1;\n"
                               "\tfield:char c;\toffset:32;\tsize:1;\tsigned:1;\n",
                               R"("name=%s path=%s mac=%s v=%s c=%s", REC->name, __get_str(path), )"
                               R"(__print_hex(REC->mac, 4), __print_array(REC->v, 2, 4), REC->c)")));
  Payload p(1, 2);
  p.text(std::string_view("abc\0\0\0\0\0", 8)).put(u32{33 | 6 << 16}).put(u32{0x04030201}).put(i32{1}).put(i32{-2}).put('q');
  p.text(std::string_view("/etc\n\0", 6));
  EXPECT_EQ(printed(f, 1, p), "name=abc path=/etc\\x0a mac=01 02 03 04 v=1 -2 c=q");
}

// Located texts without bytes have no address to copy from; the sanitizers check this.
TEST(Formats, LocatedTextsOutsideThePayloadAreEmpty) {
  Formats f;
  ASSERT_TRUE(test::add(
      f, 1, "s", "t",
      format(1, "t", "\tfield:__data_loc char[] path;\toffset:8;\tsize:4;\tsigned:0;\n",
             R"("path=%s hex=%s", __get_str(path), __print_hex(__get_dynamic_array(path), __get_dynamic_array_len(path)))")));
  const std::string empty = printed(f, 1, Payload(1, 2).put(u32{12}));
  for (const u32 located : {u32{0}, 12U | 1U << 16, 0xFFFFU, ~u32{0}, 4U | 0xFFFFU << 16})
    EXPECT_EQ(printed(f, 1, Payload(1, 2).put(located)), empty) << located;
  EXPECT_EQ(printed(f, 1, Payload(1, 2)), empty);
  EXPECT_EQ(printed(f, 1, Bytes{}), empty);
}

TEST(Formats, EnumsShowTheirNames) {
  Formats f;
  ASSERT_TRUE(test::add(f, 1, "s", "e",
                        format(1, "e", "\tfield:u32 state;\toffset:8;\tsize:4;\tsigned:0;\n",
                               R"("state=%s", __print_symbolic(REC->state, { 0, "idle" }, { 1, "busy" }))")));
  EXPECT_EQ(printed(f, 1, Payload(1, 2).put(u32{1})), "state=busy");
  EXPECT_EQ(printed(f, 1, Payload(1, 2).put(u32{9})), "state=0x9");
  EXPECT_EQ(f.find(1)->field("state")->symbols.size(), 2u);
}

// The memory at an address is a field's.
TEST(Formats, PointersPrintTheFieldsBytes) {
  const std::string fields =
      "\tfield:u8 id[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:u8 mac[6];\toffset:24;\tsize:6;\tsigned:0;\n"
      "\tfield:__data_loc u8[] sa;\toffset:32;\tsize:4;\tsigned:0;\n\tfield:u8 a[4];\toffset:36;\tsize:4;\tsigned:0;\n"
      "\tfield:int n;\toffset:40;\tsize:4;\tsigned:1;\n";
  const std::pair<const char*, const char*> all[] = {
      {R"("%pU %pUb %pUB", REC->id, REC->id, REC->id)",
       "00010000-0000-0000-0000-0000000000ab 00010000-0000-0000-0000-0000000000ab 00010000-0000-0000-0000-0000000000AB"},
      {R"("%pUl %pUL", REC->id, REC->id)", "00000100-0000-0000-0000-0000000000ab 00000100-0000-0000-0000-0000000000AB"},
      {R"("%pM %pMR %pMF %pm %pmR", REC->mac, REC->mac, REC->mac, REC->mac, REC->mac)",
       "01:02:03:04:05:06 06:05:04:03:02:01 01-02-03-04-05-06 010203040506 060504030201"},
      {R"("%pI4 %pi4 %pI4h %pI4n.", REC->a, REC->a, REC->a, REC->a)", "10.0.0.1 010.000.000.001 1.0.0.10 10.0.0.1."},
      {R"("%pI6 %pi6 %pI6c", REC->id, REC->id, REC->id)",
       "0001:0000:0000:0000:0000:0000:0000:00ab 000100000000000000000000000000ab 1::ab"},
      {R"("%pISpc %pIS", __get_dynamic_array(sa), __get_dynamic_array(sa))", "127.0.0.1:8080 127.0.0.1"},
      {R"("%*ph %*phC %*phN", 3, REC->mac, 2, REC->mac, 99, REC->mac)", "01 02 03 01:02 010203040506"},
      {R"("%*pbl %*pb", 32, REC->a, 32, REC->a)", "1,3,24 0100000a"},
      {R"("%pI4 %pM %pU", REC->id, REC->id, REC->mac)", "INVALIDIPv4 INVALIDMAC INVALIDUUID"},
      {R"("%s", __print_hex(REC->mac, REC->n))", "01 02 03"},
      {R"("%s", __print_hex_str(REC->mac, 60))", "010203040506"},
      {R"("%s %s", __print_array(REC->mac, 2, 1), __print_array(REC->mac, 9, 2))", "1 2 513 1027 1541"},
      {R"("%d %d %d", REC->mac[1], REC->mac[REC->n], REC->mac[6])", "2 4 0"},
      {R"("[%*d] [%-*d] [%.*d]", REC->n, 7, REC->n, 7, REC->n, 7)", "[  7] [7  ] [007]"},
      {R"("[%-6s] [%5s] [%.2s]", __print_symbolic(REC->n, { 3, "abc" }), "x", "xyz")", "[abc   ] [    x] [xy]"},
      {R"("[%*s]", REC->n, "")", "[   ]"},
      {R"("[%c%c]", REC->n ? 'F' : ' ', REC->n > 3 ? 'A' : '.')", "[F.]"},
  };
  for (const auto& [print, line] : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    Payload p(1, 2);
    p.put(u64{0x100}).put(u64{0xAB00'0000'0000'0000}).text("\1\2\3\4\5\6").put(u16{0}).put(u32{44 | 16 << 16});
    p.put(u32{0x0100'000A}).put(i32{3}).put(u16{2}).put(u16{0x901F}).put(u32{0x0100'007F}).put(u64{0});
    EXPECT_EQ(printed(f, 1, p), line) << print;
  }
}

// The payload chooses lengths, indices, divisors and widths; a sanitizer checks every read.
TEST(Formats, HostileLinesAreBounded) {
  std::mt19937_64 random(3);
  const u32 lengths[] = {0, 1, 2, 15, 16, 17, 255, 620'000, 0x7FFF'FFFF, 0x8000'0000, 0xFFFF'FFFF};
  for (const char* const print : test::hostile_formats) {
    Formats f;
    f.add(1, "s", "x", test::hostile_format(1, print));
    for (int round = 0; round < 300; ++round) {
      std::vector<u8> bytes(8 + random() % 90);
      for (u8& byte : bytes) byte = static_cast<u8>(random());
      if (bytes.size() >= 32) {
        const u32 inside = 32 | static_cast<u32>(bytes.size() - 32) << 16;
        const u32 located = round % 2 == 0 ? inside : static_cast<u32>(random());
        std::memcpy(&bytes[24], &lengths[static_cast<size_t>(round) % std::size(lengths)], 4);
        std::memcpy(&bytes[28], &located, 4);
        if (round % 3 == 0) bytes[8] = round % 2 == 0 ? 2 : 10, bytes[9] = 0;
      }
      EXPECT_LT(printed(f, 1, {bytes.data(), bytes.size()}).size(), 3000u) << print;
    }
  }
}

// The parser calls itself at each operator.
TEST(Formats, ADeepPrintFormatIsNotParsed) {
  const std::string field = "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n";
  for (const std::string one : {"(", "!", "~", "-", "(u8)", "REC->a+", "REC->a?1:", "(REC->a*"}) {
    std::string deep;
    for (int i = 0; i < 200'000; ++i) deep += one;
    for (const std::string begin : {R"("%d", )", R"("%c%d", '"', )"}) {
      Formats f;
      EXPECT_FALSE(test::add(f, 1, "s", "deep", format(1, "deep", field, begin + deep + "REC->a"))) << begin << one;
    }
  }
}

// Each is told once, by name, with the place in the print fmt.
TEST(Formats, WhatIsNoExpressionIsPrintedFieldByField) {
  const std::string fields =
      "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:u16 b[2];\toffset:12;\tsize:4;\tsigned:0;\n";
  const std::pair<const char*, const char*> all[] = {
      {"sizeof(", "at character 14, its end: a value is missing"},
      {"sizeof(int", "at character 17, its end: ')' is missing"},
      {"sizeof(int) sizeof(", "at character 19 (sizeof(): here is no argument and no end"},
      {"REC->c", "at character 12 (c): the event has no field c"},
      {"REC->1", "at character 12 (1): a name is missing"},
      {"REC->", "at character 12, its end: a name is missing"},
      {"REC", "at character 10, its end: '->' is missing"},
      {"REC->a REC->a", "at character 14 (REC->a): here is no argument and no end"},
      {"REC->b[", "at character 14, its end: a value is missing"},
      {"__get_str(b", "at character 18, its end: ')' is missing"},
      {"__get_str(1)", "at character 17 (1)): a name is missing"},
      {"__print_flags(REC->a)", "at character 27 ()): ',' is missing"},
      {"__print_flags(REC->a, { 1, \"x\" })", "at character 29 ({ 1, \"x\" })): a value is missing"},
      {"__print_symbolic(REC->a, { 1, \"x\" }", "at character 42, its end: ')' is missing"},
      {"__print_symbolic(REC->a, { REC->a, \"x\" })", "a name's value is not constant"},
      {"__print_array(REC->b, 2)", "at character 30 ()): ',' is missing"},
      {"REC->a ? 1", "at character 17, its end: ':' is missing"},
      {"'c", "a quotation has no end"},
      {"\"x", "a quotation has no end"},
      {"(", "a value is missing"},
      {")", "at character 7 ()): a value is missing"},
      {"{ 1, 2 }", "a value is missing"},
      {"REC->a--1", "at character 13 (--1): here is no argument and no end"},
      {"REC->a +", "a value is missing"},
      {", 1", "a value is missing"},
      {"a b", "at character 9 (b): here is no argument and no end"},
      {"REC->a\n1", "at character 14 (1): here is no argument and no end"},
      {"1x", "this is no number"},
  };
  for (const auto& [arguments, why] : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, ("\"%d\", " + std::string(arguments)).c_str()))) << arguments;
    EXPECT_EQ(printed(f, 1, Payload(1, 2).put(i32{-7}).put(u16{3}).put(u16{4})), "a=-7 b={3,4}") << arguments;
    const std::vector<FailedFormat> failed = f.take_failed();
    ASSERT_EQ(failed.size(), 1u) << arguments;
    EXPECT_EQ(failed[0].sentence.find("the print fmt of s:x cannot be understood at character "), 0u) << failed[0].sentence;
    EXPECT_NE(failed[0].sentence.find(why), std::string::npos) << failed[0].sentence << "\n" << why;
    EXPECT_TRUE(f.take_failed().empty());
  }
  for (const std::string line : {"print  fmt : \"%d\", sizeof(", "\tfield:int \"c;\toffset:8;\tsize:4;\tsigned:1;\" d", "x"}) {
    Formats f;
    EXPECT_FALSE(test::add(f, 1, "s", "x", format(1, "x", fields + line + "\n", "\"%d\", REC->a"))) << line;
    EXPECT_NE(f.take_failed().at(0).sentence.find("line 11 ("), std::string::npos) << line;
  }
}

// Whatever a format says: it is parsed in time, and its line has an end.
TEST(Formats, AHugePrintFormatCostsLittle) {
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
TEST(Formats, UnknownPartsAreSpelled) {
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

const char* const bprint_fields =
    "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:const char * fmt;\toffset:16;\tsize:8;\tsigned:0;\n"
    "\tfield:u32 buf[];\toffset:24;\tsize:0;\tsigned:0;\n";
constexpr u64 bprint_address = 0xffffffff82000000;
std::string bprint_format() { return format(6, "bprint", bprint_fields, "\"%ps: %s\", (void *)REC->ip, REC->fmt"); }

// The text of one message; `arguments`: as the kernel packs them.
std::string message(const std::string& string, const std::string& arguments) {
  Formats f;
  f.symbols().load("ffffffff81000000 T startup_64\nffffffff81000100 T do_work\nffffffff81000300 T end\n");
  f.add_strings("0xffffffff82000000 : \"" + string + "\"\n");
  EXPECT_TRUE(test::add(f, 6, "ftrace", "bprint", bprint_format()));
  const std::vector<u8> exact = [&] {  // a sanitizer checks its end
    Payload p(6, 2);
    p.put(u64{0xffffffff81000110}).put(bprint_address).text(arguments);
    const Bytes bytes = p;
    return std::vector<u8>(bytes.data, bytes.data + bytes.size);
  }();
  const std::string line = printed(f, 6, {exact.data(), exact.size()});
  const std::string text(read_text({exact.data(), exact.size()}, *f.find(6)->field("buf")));
  EXPECT_EQ(line, "do_work: " + text);
  return text;
}

template <class... Numbers>
std::string packed(Numbers... numbers) {
  std::string out;
  const auto one = [&](auto number) {
    const size_t alignment = std::min<size_t>(sizeof number, 4);
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  (one(numbers), ...);
  return out;
}

TEST(Formats, TracePrintkPrintsEachConversion) {
  const std::string abc("abc\0", 4), ab("ab\0", 3);
  const std::pair<std::string, std::string> all[] = {
      {message("count %d\\n", packed(i32{-1})), "count -1"},
      {message("%s", abc), "abc"},
      {message("%d", packed(i32{3})), "3"},
      {message("ab", ""), "ab"},
      {message("", ""), ""},
      {message("%", ""), "%"},
      {message("100%% %d", packed(i32{1})), "100% 1"},
      {message("[%-5d|%5d|%05d|%+d|% d|%x|%X|%#x|%o|%#o|%u]", packed(5, 5, -5, 5, 5, -1, 0xab, 0xab, 8, 8, -1)),
       "[5    |    5|-0005|+5| 5|ffffffff|AB|0xab|10|010|4294967295]"},
      {message("%hhu %hhd %hd %hu %ld %lu %lld %zu %Lx",
               packed(u8{255}, int8_t{-1}, int16_t{-2}, u16{65534}, i64{-3}, ~u64{0}, i64{1} << 40, u64{7}, ~u64{0})),
       "255 -1 -2 65534 -3 18446744073709551615 1099511627776 7 ffffffffffffffff"},
      {message("%c%c %5c|%-3c|", packed('A', 'B', 'C', 'D')), "AB     C|D  |"},
      {message("%5s|%-5s|%.2s|", ab + ab + abc), "   ab|ab   |ab|"},
      {message("%*d|%-*d|%.*d|%*.*d", packed(4, 7, 4, 7, 3, 7, 5, 3, 7)), "   7|7   |007|  007"},
      {message("%*d|", packed(-4, 7)), "7   |"},
      {message("%.*s|", packed(2) + abc), "ab|"},
      {message("%.3d|%8.3x|%-8.3x|", packed(7, 10, 10)), "007|     00a|00a     |"},
      {message("%#x %#x %.0d", packed(0, 1, 0)), "0x0 0x1 0"},  // as the kernel
      {message("%pS %ps %p %px %pK", packed(u64{0xffffffff81000110}, u64{0xffffffff81000110}, u64{16}, u64{16}, u64{16})),
       "do_work+0x10 do_work 0x10 0x10 0x10"},
      {message("%pM %d", std::string("00:11:22:33:44:55\0\0\0", 20) + packed(9)), "00:11:22:33:44:55 9"},
      {message("%pe %pe", packed(u64{0} - 2, u64{0x1000})), "-ENOENT 0x1000"},
      {message("%d %s %d", packed(1) + ab + std::string(1, '\0') + packed(2)), "1 ab 2"},
      {message("%c %d", packed('x', 5)), "x 5"},
      {message("tab\\tquote\\\"%d", packed(1)), "tab quote\"1"},
      {message("é %d µs", packed(5)), "é 5 µs"},
      {message("%d %d", packed(1)), "1 %d"},
      {message("%s", ""), "%s"},
      {message("%s|", "ab"), "ab|"},
      {message("%lld", packed(1)), "%lld"},
      {message("%s", std::string("a\nb\0", 4)), "a\\x0ab"},
      {message("%y %d", packed(4)), "%y 4"},
      {message("%999999999d|", packed(4)).substr(250), "    4|"},
  };
  for (const auto& [ours, right] : all) EXPECT_EQ(ours, right);
}

// A message without conversions is named by its address alone; old kernels call the arguments u32, not an array.
TEST(Formats, TracePrintkInItsOtherShapes) {
  Formats f;
  f.add_strings("0xffffffff82000000 : \"100% \\\"done\\\"\\n\"\n");
  const std::string print = "\"%ps: %s\", (void *)REC->ip, REC->str";
  const std::string ip = "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n";
  const std::string str = "\tfield:const char * str;\toffset:16;\tsize:8;\tsigned:0;\n";
  ASSERT_TRUE(test::add(f, 5, "ftrace", "bputs", format(5, "bputs", ip + str, print)));
  const Payload p = Payload(5, 2).put(u64{0x10}).put(bprint_address);
  EXPECT_EQ(printed(f, 5, p), "0x10: 100% \"done\"");
  EXPECT_EQ(read_text(p, *f.find(5)->field("str")), "100% \"done\"");
  Formats old;
  old.add_strings("0xffffffff82000000 : \"%d ok\"\n");
  std::string fields = bprint_fields;
  fields.replace(fields.find("buf[]"), 5, "buf");
  ASSERT_TRUE(test::add(old, 6, "ftrace", "bprint",
                        format(6, "bprint", fields, "\"%pf: %s\", (void *)REC->ip, REC->fmt")));
  EXPECT_EQ(printed(old, 6, Payload(6, 2).put(u64{0x10}).put(bprint_address).put(i32{7})), "0x10: 7 ok");
}

TEST(Formats, TracePrintkWithoutItsFormat) {
  Formats f;
  ASSERT_TRUE(test::add(f, 6, "ftrace", "bprint", bprint_format()));
  EXPECT_EQ(printed(f, 6, Payload(6, 2).put(u64{0x10}).put(u64{0x20}).put(u16{0x2211})), "0x10: [no format at 0x20] 11 22");
  EXPECT_EQ(printed(f, 6, Payload(6, 2).put(u64{0x10})), "0x10: [no format at (nil)] ");
}

TEST(Formats, SizesAndConstants) {
  const std::string fields =
      "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:u16 b[2];\toffset:12;\tsize:4;\tsigned:0;\n";
  const std::pair<const char*, const char*> all[] = {
      {R"("%d %d", REC->a / sizeof(u32), (sizeof(unsigned long) + 1))", "5 9"},
      {R"("%d %d %d", 1 / 0, 7 % (2 - 2), 'c' / "x")", "0 0 99 / \"x\""},
      {R"("%d", REC->a ? REC->b[0] : REC->b[1])", "3"},
      {R"("%d", !REC->a ? REC->b[0] : REC->b[1] + 1)", "5"},
      {R"("%d", !REC->a ? 1 : (u8)REC->b[1])", "4"},
      {R"("%s", __print_symbolic(REC->a, { 20, "twen" "ty" }, { -1, ((void *)0) }))", "twenty"},
  };
  for (const auto& [print, line] : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    EXPECT_EQ(printed(f, 1, Payload(1, 2).put(i32{20}).put(u16{3}).put(u16{4})), line) << print;
  }
}

TEST(Formats, Calculations) {
  const std::string fields =
      "\tfield:u32 a;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:int b;\toffset:12;\tsize:4;\tsigned:1;\n"
      "\tfield:u64 c;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:long d;\toffset:24;\tsize:8;\tsigned:1;\n";
  const std::pair<const char*, const char*> all[] = {
      {R"("%d", REC->a + 1)", "8"},
      {R"("%u", REC->a & 0x3)", "3"},
      {R"("%d", (REC->a << 4) | 1)", "113"},
      {R"("%llu", REC->c >> 60)", "15"},
      {R"("%lld", REC->d / 2)", "-5"},
      {R"("%llu", REC->c % 10)", "5"},
      {R"("%d", REC->a > 3 ? REC->a : 9)", "7"},
      {R"("%d", REC->a < 3 ? REC->a : 9)", "9"},
      {R"("%d", REC->a == 7 && REC->b != 0)", "1"},
      {R"("%d", !REC->a)", "0"},
      {R"("%d", (u16)(REC->c - 1))", "65534"},
      {R"("%u", ((unsigned int) ((REC->a) >> 1)))", "3"},
      {R"("%lld", (s8)(REC->a - 8))", "-1"},
      {R"("%lld", ((long)REC->d * 2))", "-20"},
      {R"("%s%s", REC->a ? "yes" : "no", REC->a & 8 ? "+" : "")", "yes"},
      {R"("%s", (REC->a & 6) ? __print_flags(REC->a & 6, "|", { 2, "two" }, { 4, "four" }) : "none")", "two|four"},
      {R"("%s", __print_symbolic(REC->a & 3, { 3, "three" }))", "three"},
      {R"("%03d|%5d|%05d|%08lx", REC->a, REC->a, REC->b, REC->c)", "007|    7|-0009|ffffffffffffffff"},
      {R"("%d", ((((0x0 | 0x1) + 1) << 1) - 1))", "3"},
      {R"("%d", REC->a - 1 - 1)", "5"},
      {R"("%d", REC->a - REC->b * 2 - 1 + 3)", "27"},
      {R"("%d", 10 - (REC->a - 3) - 1)", "5"},
      {R"("%d", REC->a / 2 * 2)", "6"},
      {R"("%d", (REC->a + 1) * (REC->a - 4))", "24"},
      {R"("%d", REC->a * -2)", "-14"},
      {R"("%x", REC->a & (4 | 1))", "5"},
      {R"("%d", 9 < (REC->b < REC->a ? 3 : 10))", "1"},  // without signs
      {R"("f=%s", __print_flags(REC->a & (4 | 8), "|", { 4, "four" }, { 8, "eight" }))", "f=four"},
  };
  for (const auto& [print, line] : all) {
    Formats f;
    ASSERT_TRUE(test::add(f, 1, "s", "x", format(1, "x", fields, print))) << print;
    EXPECT_EQ(printed(f, 1, Payload(1, 2).put(u32{7}).put(i32{-9}).put(~u64{0}).put(i64{-10})), line) << print;
    EXPECT_EQ(printed(f, 1, Payload(1, 2)).empty(), std::string(line).empty()) << "no bytes read as 0";
  }
}

TEST(Formats, AnInvalidFormatLeavesHex) {
  Formats f;
  EXPECT_FALSE(test::add(f, 1, "s", "broken", "name: broken\nrubbish"));
  EXPECT_FALSE(test::add(f, 2, "s", "empty", ""));
  EXPECT_EQ(printed(f, 1, Payload(1, 2).put(u16{0x2211})), "11 22");
}

// A rest of the event that begins behind its end, and a text that printf takes for a wide one.
TEST(Formats, WhatAPrintfWouldTrust) {
  Formats f;
  ASSERT_TRUE(test::add(f, 1, "s", "rest",
                        format(1, "rest", "\tfield:char b[];\toffset:40;\tsize:0;\tsigned:0;\n", R"("b=%5s", REC->b)")));
  for (const u32 size : {0u, 1u, 3u, 7u, 12u, 31u, 32u, 33u, 40u}) {
    Payload payload(1, 2);
    for (u32 n = 0; n < size; ++n) payload.put(u8{'x'});
    EXPECT_EQ(printed(f, 1, payload), size == 40 ? "b=xxxxxxxx" : size == 33 ? "b=    x" : "b=     ") << size;
  }
  ASSERT_TRUE(test::add(f, 2, "s", "wide",
                        format(2, "wide", "\tfield:u32 a;\toffset:8;\tsize:4;\tsigned:0;\n",
                               R"("a=%5lls", __print_flags(REC->a, "|", { 1, "ONE" }, { 2, "TWO" }))")));
  EXPECT_EQ(printed(f, 2, Payload(2, 2).put(u32{3})), "a=ONE|TWO");
}

// 32 bits without a sign, as C has them.
TEST(Formats, ValuesAreThoseOfC) {
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

TEST(Formats, AddressesAndTextsInArraysOfBytes) {
  const std::string fields =
      "\tfield:void * p;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u8 a[8];\toffset:16;\tsize:8;\tsigned:0;\n"
      "\tfield:__data_loc u8[] d;\toffset:24;\tsize:4;\tsigned:0;\n"
      "\tfield:__rel_loc __u8[] s;\toffset:28;\tsize:4;\tsigned:0;\n";
  const std::pair<const char*, const char*> all[] = {
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

// What programs and old kernels write.
TEST(Formats, OddFormatTexts) {
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

// As the kernel has it: a width is that of the whole text, and a bitmap has as many bits as the format says.
TEST(Formats, WidthsOfWholeTexts) {
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
TEST(Formats, FunctionsOfTheKernel) {
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

// A kernel has 700 events; a recording, a few dozen.
TEST(Formats, AFormatIsParsedAtTheFirstQuestion) {
  Formats f;
  f.add(1, "s", "broken", "name: broken\nrubbish");
  f.add(2, "libc", "malloc", test::malloc_format());
  f.add(f.numbers(), "s", "beyond", test::malloc_format());
  EXPECT_EQ(f.all().size(), 2u);
  EXPECT_EQ(f.find(1)->full, "s:broken");
  EXPECT_EQ(f.find(1)->stack(), nullptr);
  EXPECT_TRUE(f.take_failed().empty()) << "nobody has asked";
  EXPECT_TRUE(f.find(1)->fields().empty());
  EXPECT_EQ(f.find(2)->fields().size(), 2u);
  const std::vector<FailedFormat> failed = f.take_failed();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].type, f.find(1));
  EXPECT_EQ(failed[0].sentence,
            "the format of s:broken cannot be understood: line 2 (rubbish) is no field; its fields appear as hex");
  EXPECT_FALSE(f.find(1)->has_tid());
  EXPECT_TRUE(f.take_failed().empty()) << "each is told once";
}

TEST(Formats, AnEventCanBeDescribedAnew) {
  Formats f;
  f.add(1, "libc", "malloc", test::malloc_format());
  f.add(1, "s", "n", format(1, "n", "\tfield:u32 a;\toffset:8;\tsize:4;\tsigned:0;\n", R"("a=%u", REC->a)"));
  EXPECT_EQ(f.find(1)->full, "s:n");
}

// A hostile payload: every length, every located text; nothing may be read beyond its end (asan checks).
TEST(Formats, ShortPayloadsReadAsZeros) {
  Formats f;
  f.add(1, "s", "t",
        format(1, "t",
               "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n"
               "\tfield:__data_loc char[] path;\toffset:16;\tsize:4;\tsigned:0;\n"
               "\tfield:__data_loc u16[] list;\toffset:20;\tsize:4;\tsigned:0;\n"
               "\tfield:char tail[64];\toffset:24;\tsize:64;\tsigned:1;\n",
               R"("n=%llu path=%s tail=%s", REC->n, __get_str(path), REC->tail)"));
  std::mt19937 random(3);
  for (size_t size = 0; size <= 96; ++size) {
    for (int round = 0; round < 50; ++round) {
      const auto bytes = std::make_unique<u8[]>(size);
      for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<u8>(random());
      const Bytes payload{bytes.get(), size};
      printed(f, 1, payload);
      for (const Field& field : f.find(1)->fields()) {
        read_text(payload, field);
        read_array(payload, field);
        read_number(payload, field);
      }
    }
  }
  EXPECT_EQ(printed(f, 1, Payload(1, 2)), "n=0 path= tail=");
}

}  // namespace
}  // namespace ringside::decode_test
