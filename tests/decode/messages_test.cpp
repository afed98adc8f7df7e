// trace_printk: a format of the kernel with arguments in binary.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cli/hand_made.hpp"
#include "decode/formats.hpp"
#include "printed.hpp"

namespace ringside::messages_test {
namespace {

using test::format;
using test::Payload;
using test::printed;

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

TEST(Messages, TracePrintkPrintsEachConversion) {
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
      {message("%pe", packed(u64{0} - 35)), "0xffffffffffffffdd"},  // architectures differ, and this is of none
      {message("[%9ps] [%-9pS]", packed(u64{0xffffffff81000110}, u64{0xffffffff81000100})), "[  do_work] [do_work+0x0]"},
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
TEST(Messages, TracePrintkInItsOtherShapes) {
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

TEST(Messages, TracePrintkWithoutItsFormat) {
  Formats f;
  ASSERT_TRUE(test::add(f, 6, "ftrace", "bprint", bprint_format()));
  EXPECT_EQ(printed(f, 6, Payload(6, 2).put(u64{0x10}).put(u64{0x20}).put(u16{0x2211})), "0x10: [no format at 0x20] 11 22");
  EXPECT_EQ(printed(f, 6, Payload(6, 2).put(u64{0x10})), "0x10: [no format at (nil)] ");
}

}  // namespace
}  // namespace ringside::messages_test
