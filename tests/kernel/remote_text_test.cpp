// The lines of the kernel's own remotes become events again: what is printed of them is what the kernel printed.
#include "kernel/remote_text.hpp"

#include <gtest/gtest.h>

#include "decode/formats.hpp"

namespace ringside::test::remote_text_test {
namespace {

std::string format(const std::string& fields, const std::string& print) {
  return "name: e\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n" + fields +
         "\nprint fmt: " + print + "\n";
}
std::string field(const std::string& declared, u32 offset, u32 size, bool is_signed = false) {
  return "\tfield:" + declared + ";\toffset:" + std::to_string(offset) + ";\tsize:" + std::to_string(size) +
         ";\tsigned:" + (is_signed ? "1" : "0") + ";\n";
}

// What ringside prints of what was read; "no": it was not.
std::string back(const RemoteEventText& text, const std::string& line) {
  std::vector<u8> payload;
  if (!text.read(line, payload)) return "no";
  Formats formats;
  formats.add(7, "r", "e", text.format());
  fmt::memory_buffer out;
  formats.print(*formats.find(7), {payload.data(), payload.size()}, out);
  return fmt::to_string(out);
}
const Field* field_of(Formats& formats, const RemoteEventText& text, const char* name) {
  formats.add(7, "r", "e", text.format());
  return formats.find(7)->field(name);
}

TEST(RemoteText, TheSelfTestsEvent) {
  const RemoteEventText text(format(field("u64 id", 2, 8), R"("id=%llu", REC->id)"));
  EXPECT_EQ(text.name(), "e");
  EXPECT_EQ(text.id(), 7u);
  EXPECT_EQ(back(text, "id=42"), "id=42");
  EXPECT_EQ(back(text, "id=18446744073709551615"), "id=18446744073709551615");
  for (const char* wrong : {"", "id=", "id=x", "id=42 ", "id=-1", "id=18446744073709551616", "iD=42", "id=4 2"})
    EXPECT_EQ(back(text, wrong), "no") << wrong;
  Formats formats;
  EXPECT_NE(field_of(formats, text, "id"), nullptr);
}

TEST(RemoteText, NumbersOfEachSizeAndKind) {
  const RemoteEventText text(
      format(field("u8 a", 2, 1) + field("s8 b", 3, 1, true) + field("u16 c", 4, 2) + field("int d", 6, 4, true) +
                 field("u32 e", 10, 4) + field("long f", 14, 8, true) + field("u64 g", 22, 8),
             R"("%u,%d,%04x,%5d,%#x,%ld,0x%016llx end", REC->a, REC->b, REC->c, REC->d, REC->e, REC->f, REC->g)"));
  const std::string line = "255,-128,00ff,   -1,0xffffffff,-9223372036854775808,0xffffffffffffffff end";
  EXPECT_EQ(back(text, line), line);
  EXPECT_EQ(back(text, "256,0,0000,    0,0,0,0x0000000000000000 end"), "no");
  EXPECT_EQ(back(text, "0,-129,0000,    0,0,0,0x0000000000000000 end"), "no");
  EXPECT_EQ(back(text, "0,128,0000,    0,0,0,0x0000000000000000 end"), "no");
  EXPECT_EQ(back(text, "0,0,10000,    0,0,0,0x0000000000000000 end"), "no");
  EXPECT_EQ(back(text, "0,0,0000,    0,0,9223372036854775808,0x0000000000000000 end"), "no");
}

// As pKVM's hyp_enter: a name of the number is all that the line shows, so that is the field.
TEST(RemoteText, WhatAFunctionPrintsIsAText) {
  const RemoteEventText text(format(field("u8 reason", 2, 1) + field("pid_t vcpu", 3, 4, true),
                                    R"("reason=%s vcpu=%d", __hyp_enter_exit_reason_str(REC->reason), REC->vcpu)"));
  EXPECT_EQ(back(text, "reason=host_smc vcpu=-12"), "reason=host_smc vcpu=-12");
  EXPECT_EQ(back(text, "reason= vcpu=0"), "reason= vcpu=0");
  EXPECT_EQ(back(text, "reason=a vcpu=b"), "no");
  Formats formats;
  ASSERT_NE(field_of(formats, text, "reason"), nullptr);
  EXPECT_NE(text.format().find("char[] reason"), std::string::npos) << text.format();
  EXPECT_NE(text.format().find("pid_t vcpu"), std::string::npos) << text.format();
}

// A value that the line does not show is in no field: a 0 there would be a wrong number.
TEST(RemoteText, WhatIsNotShownIsNoField) {
  const RemoteEventText text(format(field("u64 shown", 2, 8) + field("u64 hidden", 10, 8) + field("u64 page", 18, 8),
                                    R"("%llu at %llu", REC->shown, REC->page >> 12)"));
  EXPECT_EQ(back(text, "5 at 6"), "5 at 6");
  Formats formats;
  EXPECT_NE(field_of(formats, text, "shown"), nullptr);
  EXPECT_EQ(formats.find(7)->field("hidden"), nullptr);
  EXPECT_EQ(formats.find(7)->field("page"), nullptr);
  EXPECT_NE(formats.find(7)->field("arg2"), nullptr);
}

TEST(RemoteText, ANumberThatIsShownTwiceIsOne) {
  const RemoteEventText text(format(field("u32 n", 2, 4), R"("%u is %#x", REC->n, REC->n)"));
  EXPECT_EQ(back(text, "17 is 0x11"), "17 is 0x11");
  EXPECT_EQ(back(text, "17 is 0x12"), "no");
}

TEST(RemoteText, TextsAreReadWhole) {
  const RemoteEventText pointer(format(field("u64 ip", 2, 8), R"("from %pS%%", (void *)REC->ip)"));
  EXPECT_EQ(back(pointer, "from vcpu_run+0x12/0x40%"), "from vcpu_run+0x12/0x40%");
  const RemoteEventText star(format(field("u32 n", 2, 4), R"("%*u", 5, REC->n)"));
  EXPECT_EQ(back(star, "    5 of any \"kind\" 100%"), "    5 of any \"kind\" 100%");
  const RemoteEventText two(format(field("u32 n", 2, 4), R"("%s%s", f(REC->n), g(REC->n))"));
  EXPECT_EQ(back(two, "where the first ends, nobody can tell"), "where the first ends, nobody can tell");
  const RemoteEventText none(format("", R"("booted", )"));
  EXPECT_EQ(back(none, "booted"), "booted");
  EXPECT_EQ(back(none, "bootet"), "no");
  EXPECT_EQ(back(RemoteEventText("garbage"), "anything"), "anything");
}

struct Read {
  std::string all;
  explicit Read(std::string_view text) {
    while (const auto line = take_remote_line(text))
      all += line->event       ? std::to_string(line->time_us) + "|" + std::string(line->text) + ";"
             : line->lost != 0 ? "lost " + std::to_string(line->lost) + ";"
                               : "?" + std::string(line->text) + ";";
  }
};

TEST(RemoteText, Lines) {
  EXPECT_EQ(Read("[001]\t    1.461460: selftest id=42\n[001]\t12345678.000001: booted\n").all,
            "1461460|selftest id=42;12345678000001|booted;");
  EXPECT_EQ(Read("CPU:0 [LOST 1700 EVENTS]\n[000]\t    2.000000: selftest id=1701\n").all,
            "lost 1700;2000000|selftest id=1701;");
  EXPECT_EQ(Read("[000]\t    2.000000: two\nlines\n[000]\t    2.000001: b\n").all, "2000000|two\nlines;2000001|b;");
  EXPECT_EQ(Read("[000]\t    2.000000: UNKNOWN id=9\n").all, "2000000|UNKNOWN id=9;");
  EXPECT_EQ(Read("").all, "");
  for (const char* wrong : {"nonsense\n", "[000] 1.000000: a\n", "[000]\t    1.00000: a\n", "[0x1]\t    1.000000: a\n",
                            "CPU:0 [LOST many EVENTS]\n", "[000]\t    99999999999999999999.000000: a\n", "\n"})
    EXPECT_EQ(Read(wrong).all.front(), '?') << wrong;
}

}  // namespace
}  // namespace ringside::test::remote_text_test
