// Any payload, printed by lines that take lengths, indices, divisors and widths from it. The input is the number of a line and
// the payload; from 128 on, characters and tokens of a line of its own, for a parser that trusts them; from 192 on, a format of
// trace_printk and its arguments; from 224 on, the whole text of a format.
#include <cstdlib>
#include <iterator>

#include "hostile_formats.hpp"

using namespace ringside;

namespace {

struct Subject {
  Formats formats;
  Subject() {
    u16 id = 0;
    for (const char* const print : test::hostile_formats) formats.add(id, "s", "x", test::hostile_format(id, print)), ++id;
  }
};

const char* const tokens[] = {
    "REC->len", "REC->id", "REC->", "REC", "buf", "(", ")", "[", "]", "{", "}", ",", "1", "0", "'c'", "\"x\"", "\"|\"",
    "->", ".", "-", "*", "+", "/", "%", "?", ":", "!", "~", "&", "&&", "|", "<<", ">=", "==", "=", "(u8)", "(u32 *)",
    "(unsigned long)", "sizeof(", "REC->id[1]", "[1]", "((", "))", ", 1)", "__print_flags(", "__print_symbolic(",
    "__print_array(", "__print_hex(", "__print_hex_str(", "__print_hex_dump(", "__get_str(", "__get_str(buf)",
    "__get_dynamic_array(", "__get_dynamic_array(buf)", "__get_dynamic_array_len(", "__get_bitmask(", "__get_cpumask(",
    "__get_sockaddr(", "__get_rel_str(", "__builtin_expect(", "{ 1, \"a\" }", "REC->len, \"|\", ",
    "({ ", " })", "int a = ", "long b = a + a; ", "typeof(", "a", "b; ", "__auto_type c = ", "do { } while (0);", "REC->common_pid",
    "unknown(", "__print_symbolic_u64(", "__print_dynamic_array(", "__builtin_choose_expr(", "be32_to_cpup(", "1.5", "18446744073709551615",
    "__get_dynamic_array(buf)[1]", "REC->id[REC->len][2]", "(struct x *)", "&REC->len", "*(u64 *)", "\"%pISpc%*pbl%.*s\"", "0x80000000"};

void read_line(const uint8_t* bytes, size_t size) {
  std::string print = "\"%d %s %c\", ";
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] < 128)
      print += static_cast<char>(bytes[i]);
    else
      print += tokens[bytes[i] % std::size(tokens)];
  }
  Formats formats;
  formats.add(1, "s", "x", test::hostile_format(1, print.c_str()));
  const std::vector<u8> payload(64);
  fmt::memory_buffer line;
  formats.print(*formats.find(1), {payload.data(), payload.size()}, line);
}

// What is parsed and printed must end, and be small.
void print_format(const std::string& text, const std::vector<u8>& payload) {
  Formats formats;
  formats.add_strings("0x20 : \"%d %s %*.*lld %pS %pM %c%hhx\\n\"\n");
  formats.add(1, "ftrace", "x", text);
  fmt::memory_buffer line;
  formats.print(*formats.find(1), {payload.data(), payload.size()}, line);
  for (const Field& field : formats.find(1)->fields()) (void)read_text({payload.data(), payload.size()}, field);
  if (line.size() > 300'000) std::abort();
}

void read_message(const uint8_t* bytes, size_t size) {
  const size_t half = size / 2;
  Formats formats;
  formats.add_strings("0x20 : \"" + std::string(bytes, bytes + half) + "\"\n");
  formats.add(1, "ftrace", "bprint",
              test::format(1, "bprint",
                           "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n"
                           "\tfield:const char * fmt;\toffset:16;\tsize:8;\tsigned:0;\n"
                           "\tfield:u32 buf[];\toffset:24;\tsize:0;\tsigned:0;\n",
                           "\"%ps: %s\", (void *)REC->ip, REC->fmt"));
  std::vector<u8> payload(24);
  payload[16] = 0x20;
  payload.insert(payload.end(), bytes + half, bytes + size);
  fmt::memory_buffer line;
  formats.print(*formats.find(1), {payload.data(), payload.size()}, line);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const Subject world;
  if (size == 0) return 0;
  if (bytes[0] >= 224) return print_format(std::string(bytes + 1, bytes + size), std::vector<u8>(bytes + 1, bytes + size)), 0;
  if (bytes[0] >= 192) return read_message(bytes + 1, size - 1), 0;
  if (bytes[0] >= 128) return read_line(bytes + 1, size - 1), 0;
  const std::vector<u8> payload(bytes + 1, bytes + size);  // a sanitizer checks its end
  fmt::memory_buffer line;
  world.formats.print(*world.formats.find(static_cast<u32>(bytes[0] % std::size(test::hostile_formats))),
                      {payload.data(), payload.size()}, line);
  if (line.size() > 4096 + 32 * size) std::abort();  // text from nowhere
  return 0;
}
