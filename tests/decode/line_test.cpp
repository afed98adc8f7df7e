// The parts of a line: digits by arithmetic on words, and templates, both against the plain way.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <random>

#include "decode/formats.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

std::vector<u64> numbers() {
  std::vector<u64> all{0};
  for (u64 ten = 1; ten <= ~u64{0} / 10; ten *= 10)
    for (const u64 n : {ten - 1, ten, ten + 1, 5 * ten, 10 * ten - 1}) all.push_back(n);
  for (u32 bit = 0; bit < 64; ++bit)
    for (const u64 n : {(u64{1} << bit) - 1, u64{1} << bit, ~u64{0} << bit, ~u64{0} >> bit}) all.push_back(n);
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) all.push_back(random() >> (random() % 64));
  return all;
}

TEST(Line, DigitsAreThoseOfPrintf) {
  fmt::memory_buffer out;
  const auto text = [&](const auto& append_number) {
    out.clear();
    append(out, "=");
    append_number(out);
    return std::string(out.data(), out.size());
  };
  for (const u64 n : numbers()) {
    const auto as_signed = static_cast<i64>(n);
    ASSERT_EQ(text([&](auto& to) { append_decimal(as_signed, false, to); }), "=" + std::to_string(n));
    ASSERT_EQ(text([&](auto& to) { append_decimal(as_signed, true, to); }), "=" + std::to_string(as_signed));
    ASSERT_EQ(text([&](auto& to) { append_base16(n, to); }), fmt::format("={:x}", n));
    char room[64];
    const u32 least = static_cast<u32>(n % 16) + 1;
    ASSERT_EQ(std::string(room, detail::put_hex_padded(room, n, least)), fmt::format("{:0{}x}", n, least));
    ASSERT_EQ(std::string(room, detail::put_six_digits(room, n % 1'000'000)), fmt::format("{:06}", n % 1'000'000));
  }
}

TEST(Line, TextsOfEachLengthAreCopied) {
  std::string text;
  for (int n = 0; n < 100; ++n, text.push_back(static_cast<char>('a' + n % 26))) {
    fmt::memory_buffer out;
    append(out, "[");
    append(out, text);
    append(out, "]");
    ASSERT_EQ(std::string(out.data(), out.size()), "[" + text + "]");
    const CopiedText copied(text);
    std::vector<char> room(copied.room());
    ASSERT_EQ(std::string(room.data(), copied.put(room.data())), text);
  }
}

TEST(Line, AFailureLeavesThePartsBefore) {
  fmt::memory_buffer out;
  EXPECT_THROW(
      {
        Appender to(out);
        append(to, "a");
        to.to_buffer([](fmt::memory_buffer& buffer) {
          buffer.resize(100'000);  // it moves
          std::fill(buffer.begin() + 1, buffer.end(), 'b');
          throw std::bad_alloc();
        });
      },
      std::bad_alloc);
  EXPECT_EQ(std::string(out.data(), out.size()), "a" + std::string(99'999, 'b'));
}

TEST(Line, EachControlCharacterIsFoundAtEachPlace) {
  for (size_t size = 0; size < 20; ++size)
    for (size_t at = 0; at < size; ++at)
      for (int c = 0; c < 256; ++c)
        for (const char other : {' ', '~', '\xFF', '\x80', '\xA0'}) {
          std::string text(size, other);
          ASSERT_FALSE(sys::has_control(text));
          text[at] = static_cast<char>(c);
          ASSERT_EQ(sys::has_control(text), c < 0x20 || c == 0x7F) << size << " " << at << " " << c;
        }
}

// Any payload, of any length: what lies beyond it reads as 0, and nothing beyond it is read (ASan checks).
TEST(Line, TemplatesPrintWhatFieldsSay) {
  std::mt19937 random(2);
  const auto below = [&](u32 n) { return static_cast<u32>(random() % n); };
  for (int round = 0; round < 20'000; ++round) {
    const size_t size = below(40);
    const auto bytes = std::make_unique<u8[]>(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<u8>(below(3) == 0 ? 0 : random());
    const Bytes payload{bytes.get(), size};
    LineTemplate line;
    std::string expected;
    for (u32 part = below(6); part != 0; --part) {
      const std::string literal(below(50), static_cast<char>('a' + below(26)));
      line.literal(literal);
      expected += literal;
      if (below(4) == 0) {
        line.other(part);
        expected += "<" + std::to_string(part) + std::string(part * 100, '>');
        continue;
      }
      Field field;
      field.offset = below(40);
      field.size = 1u << below(4);
      field.is_signed = below(2) == 0;
      LineTemplate::Number number{field.offset, static_cast<u8>(field.size), static_cast<u8>(1u << below(4)), field.is_signed};
      using Form = LineTemplate::Number::Form;
      number.form = static_cast<Form>(below(3));
      number.prints_signed = number.form == Form::decimal && below(2) == 0;
      number.zeros = number.form == Form::hex && below(2) == 0 ? static_cast<u8>(1 + below(16)) : 0;
      line.number(number);
      const i64 value = read_integer(payload, field);
      const i64 kept = element_integer(reinterpret_cast<const u8*>(&value), number.kept, number.prints_signed);
      const auto bits = static_cast<u64>(kept);
      if (number.form == Form::hex)
        expected += fmt::format("{:0{}x}", bits, number.zeros);
      else if (number.form == Form::pointer)
        expected += bits != 0 ? fmt::format("{:#x}", bits) : "(nil)";
      else
        expected += number.prints_signed ? std::to_string(kept) : std::to_string(bits);
    }
    fmt::memory_buffer out;
    {
      Appender to(out);
      line.print(payload, to, [](u32 index, Appender& into) {
        append(into, "<" + std::to_string(index) + std::string(index * 100, '>'));
      });
    }
    ASSERT_EQ(std::string(out.data(), out.size()), expected);
  }
}

}  // namespace
}  // namespace ringside
