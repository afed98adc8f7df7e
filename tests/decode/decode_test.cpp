#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "cli/hand_made.hpp"
#include "decode/formats.hpp"
#include "hostile_formats.hpp"
#include "printed.hpp"

namespace ringside::decode_test {
namespace {

using test::format;
using test::Payload;
using test::printed;

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

// As printf: six digits.
TEST(Formats, AFloatWithALetterAndNoPrecisionHasThatOfPrintf) {
  Formats f;
  ASSERT_TRUE(
      test::add(f, 1, "s", "f",
                format(1, "f",
                       "\tfield:double d;\toffset:8;\tsize:8;\tsigned:0;\n"
                       "\tfield:double t;\toffset:16;\tsize:8;\tsigned:0;\n"
                       "\tfield:float e;\toffset:24;\tsize:4;\tsigned:0;\n",
                       R"("%f %e %E %F %g %G|%G|%f", REC->d, REC->d, REC->d, REC->d, REC->d, REC->d, REC->t, REC->e)")));
  EXPECT_EQ(printed(f, 1, Payload(1, 2).put(123456789.125).put(1e-7).put(0.5F)),
            "123456789.125000 1.234568e+08 1.234568E+08 123456789.125000 1.23457e+08 1.23457E+08|1E-07|0.500000");
}

// A probe's text that the kernel could not read has no bytes at all; an empty one has its NUL.
TEST(Formats, AProbesTextThatCouldNotBeReadIsAFault) {
  Formats f;
  const std::string text = "\tfield:__data_loc char[] s;\toffset:16;\tsize:4;\tsigned:1;\n";
  ASSERT_TRUE(test::add(f, 1, "probe_a", "f",
                        format(1, "f", "\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n" + text,
                               R"("(%lx) s=\"%s\" end", REC->__probe_ip, __get_str(s))")));
  ASSERT_TRUE(test::add(f, 2, "app", "f",
                        format(2, "f", "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n" + text,
                               R"("(%lx) s=\"%s\" end", REC->ip, __get_str(s))")));
  const auto payload = [](u16 id, std::string_view bytes) {
    return Payload(id, 2).put(u64{8}).put(static_cast<u32>(20 | bytes.size() << 16)).text(bytes);
  };
  const std::string_view empty("\0", 1), abc("abc\0", 4);
  EXPECT_EQ(printed(f, 1, payload(1, "")), "(8) s=(fault) end");
  EXPECT_EQ(printed(f, 1, payload(1, empty)), "(8) s=\"\" end");
  EXPECT_EQ(printed(f, 1, payload(1, abc)), "(8) s=\"abc\" end");
  EXPECT_EQ(printed(f, 2, payload(2, "")), "(8) s=\"\" end");
  EXPECT_EQ(read_text(payload(1, ""), *f.find(1)->field("s")), "(fault)");
  EXPECT_EQ(read_text(payload(1, empty), *f.find(1)->field("s")), "");
  EXPECT_EQ(read_text(payload(2, ""), *f.find(2)->field("s")), "");
  EXPECT_EQ(read_text(Payload(1, 2).put(u64{8}), *f.find(1)->field("s")), "");  // it ends too early
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

// An event of 16 bytes must not show kilobytes: its fields may share bytes, as those of a union do, but not by the hundred.
TEST(Formats, FieldsThatShareTheirBytesAreFew) {
  const auto fields = [](u32 count, u32 apart) {
    std::string text;
    for (u32 n = 0; n < count; ++n)
      text += "\tfield:u64 f" + std::to_string(n) + ";\toffset:" + std::to_string(8 + n * apart) + ";\tsize:8;\tsigned:0;\n";
    return text;
  };
  const std::string far = "\tfield:char far[8];\toffset:65000;\tsize:8;\tsigned:0;\n";
  Formats f;
  EXPECT_TRUE(test::add(f, 1, "s", "union", format(1, "union", fields(4, 0), R"("x")")));
  EXPECT_TRUE(test::add(f, 2, "s", "long", format(2, "long", fields(1000, 8), R"("x")")));
  EXPECT_FALSE(test::add(f, 3, "s", "shared", format(3, "shared", fields(1000, 0), R"("x")")));
  EXPECT_FALSE(test::add(f, 4, "s", "behind", format(4, "behind", fields(1000, 0) + far, R"("x")"))) << "no event is so long";
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
