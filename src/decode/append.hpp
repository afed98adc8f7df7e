// Parts of a line of text. Digits come eight at a time, by arithmetic on the bytes of a word: no branch depends on their
// number, and no load waits for bytes that were stored one by one.
#pragma once
#include <fmt/format.h>

#include <bit>
#include <ringside/base/types.hpp>
#include <string_view>

#if FMT_VERSION < 100000
// All of fmt's formatting, which fmt before 10 instantiates in each unit that calls format_to: four seconds each. fields.cpp
// has it once.
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view, fmt::format_args,
                                                   fmt::detail::locale_ref);
#endif

namespace ringside {

typedef u8 Sixteen [[gnu::vector_size(16)]];  // a register

// Appends to a buffer, and knows its end better than that meanwhile: fmt's buffer calls a function for each part. The text is
// in the buffer when this ends.
class Appender {
 public:
  explicit Appender(fmt::memory_buffer& out) : out_(out) { resume(); }
  Appender(const Appender&) = delete;
  Appender& operator=(const Appender&) = delete;
  ~Appender() { settle(); }
  // Where `bytes` bytes may be written, or more; end_at(): where the text ends then.
  RINGSIDE_INLINE char* room(size_t bytes) {
    if (static_cast<size_t>(limit_ - end_) < bytes) [[unlikely]] grow(bytes);
    return end_;
  }
  void end_at(char* end) { end_ = end; }
  size_t size() const { return static_cast<size_t>(end_ - out_.data()); }
  // What was appended when size() was `begin`, and since then.
  std::string_view since(size_t begin) const { return {out_.data() + begin, size() - begin}; }
  void push_back(char c) {
    *room(1) = c;
    ++end_;
  }
  void fill(char c, size_t count) {
    __builtin_memset(room(count), c, count);
    end_ += count;
  }
  // use(buffer) may append to the buffer itself, and throw where memory is short.
  template <class Use>
  void to_buffer(const Use& use) {
    settle();
    struct Then {
      ~Then() { of.resume(); }
      Appender& of;
    } const then{*this};
    use(out_);
  }

 private:
  void settle() { out_.resize(static_cast<size_t>(end_ - out_.data())); }
  void resume() {
    end_ = out_.end();
    limit_ = out_.data() + out_.capacity();
  }
  [[gnu::noinline]] void grow(size_t bytes) {
    to_buffer([bytes](fmt::memory_buffer& out) { out.reserve(out.size() + bytes); });
  }
  fmt::memory_buffer& out_;
  char *end_, *limit_;
};

// Inline, and by words that overlap, because most parts of a line are a few bytes long.
RINGSIDE_INLINE void append(Appender& out, std::string_view s) {
  const size_t size = s.size();
  char* const to = out.room(size);
  out.end_at(to + size);
  const auto ends = [to, from = s.data(), size]<class Word>(Word first) __attribute__((always_inline)) {
    Word last;
    __builtin_memcpy(&first, from, sizeof first);
    __builtin_memcpy(&last, from + size - sizeof last, sizeof last);
    __builtin_memcpy(to, &first, sizeof first);
    __builtin_memcpy(to + size - sizeof last, &last, sizeof last);
  };
  if (size > 32)
    __builtin_memcpy(to, s.data(), size);
  else if (size > 16)
    ends(Sixteen{});
  else if (size >= 8)
    ends(u64{});
  else if (size >= 4)
    ends(u32{});
  else if (size >= 2)
    ends(u16{});
  else if (size == 1)
    *to = s.front();
}
inline void append(fmt::memory_buffer& out, std::string_view s) {
  Appender to(out);
  append(to, s);
}

// A text that is copied often: by sixteen bytes, of which some lie beyond its end.
class CopiedText {
 public:
  static constexpr size_t step = 16;
  CopiedText() = default;
  explicit CopiedText(std::string_view text) : text_(text), size_(text.size()) { text_.append(step, ' '); }
  std::string_view view() const { return {text_.data(), size_}; }
  bool empty() const { return size_ == 0; }
  size_t room() const { return size_ + step; }
  // Up to room() bytes change there. Returns the end of the text.
  char* put(char* to) const { return put(to, text_.data(), size_); }
  static char* put(char* to, const char* from, size_t size) {
    for (size_t at = 0; at < size; at += step) __builtin_memcpy(to + at, from + at, step);
    return to + size;
  }

 private:
  std::string text_;
  size_t size_ = 0;
};
inline void append(Appender& out, const CopiedText& text) { out.end_at(text.put(out.room(text.room()))); }

// The eight decimal digits of a number below 100,000,000, a byte each, the first in the lowest byte. The divisions are
// multiplications by inverses, two and four at once (Paul Khuong, "How to print integers really fast", 2017).
inline u64 eight_digits(u64 value) {
  const u64 fours = value / 10000 | (value % 10000) << 32;
  const u64 hundreds = ((fours * 10486) >> 20) & 0x0000007F0000007F, twos = hundreds | (fours - 100 * hundreds) << 16;
  const u64 tens = ((twos * 103) >> 10) & 0x000F000F000F000F;
  return tens | (twos - 10 * tens) << 8;
}
// The eight hexadecimal digits of 32 bits, as text, the first in the lowest byte; the second: which of them are not 0.
struct HexDigits {
  u64 text, values;
};
inline HexDigits eight_hex_digits(u32 value) {
  u64 x = value;
  x = (x | x << 16) & 0x0000FFFF0000FFFF;
  x = (x | x << 8) & 0x00FF00FF00FF00FF;
  x = __builtin_bswap64((x | x << 4) & 0x0F0F0F0F0F0F0F0F);
  const u64 letters = (x + 0x0606060606060606) >> 4 & 0x0101010101010101;
  return {x + 0x3030303030303030 + letters * ('a' - '9' - 1), x};
}

namespace detail {
constexpr u64 zeros = 0x3030303030303030;  // "00000000"

// Stores the digits without leading zeros, but at least one. Returns the end; bytes after it may change, too.
inline char* put_without_zeros(char* to, u64 text, u64 digits) {
  const auto skipped = static_cast<u32>(std::countr_zero(digits | u64{1} << 56)) & 56;
  text >>= skipped;
  __builtin_memcpy(to, &text, sizeof text);
  return to + (8 - skipped / 8);
}
inline char* put_eight(char* to, u64 text) {
  __builtin_memcpy(to, &text, sizeof text);
  return to + sizeof text;
}
inline char* put_decimal(char* to, u64 value) {
  constexpr u64 e8 = 100'000'000;
  if (value < e8) {
    const u64 digits = eight_digits(value);
    return put_without_zeros(to, digits + zeros, digits);
  }
  return put_eight(put_decimal(to, value / e8), eight_digits(value % e8) + zeros);
}
inline char* put_hex(char* to, u64 value) {
  const HexDigits low = eight_hex_digits(static_cast<u32>(value));
  if (value >> 32 == 0) return put_without_zeros(to, low.text, low.values);
  const HexDigits high = eight_hex_digits(static_cast<u32>(value >> 32));
  return put_eight(put_without_zeros(to, high.text, high.values), low.text);
}
// At least `least` digits, of 16 at most, with zeros in front.
inline char* put_hex_padded(char* to, u64 value, u32 least) {
  if (least < 16 && value >> 4 * least != 0) return put_hex(to, value);
  char all[16];
  put_eight(all, eight_hex_digits(static_cast<u32>(value >> 32)).text);
  put_eight(all + 8, eight_hex_digits(static_cast<u32>(value)).text);
  __builtin_memcpy(to, all + 16 - least, least);
  return to + least;
}
// The six digits of a number below 1,000,000. Two bytes after them change, too.
inline char* put_six_digits(char* to, u64 value) {
  const u64 text = (eight_digits(value) + zeros) >> 16;
  __builtin_memcpy(to, &text, sizeof text);
  return to + 6;
}
inline char* put_decimal(char* to, u64 value, bool is_signed) {
  const bool negative = is_signed && static_cast<i64>(value) < 0;
  *to = '-';
  return put_decimal(to + negative, negative ? 0 - value : value);
}
// As printf's %p: 0x1f, or (nil).
inline char* put_pointer(char* to, u64 value) {
  const std::string_view prefix = value != 0 ? "0x" : "(nil)";
  __builtin_memcpy(to, prefix.data(), prefix.size());
  return value != 0 ? put_hex(to + prefix.size(), value) : to + prefix.size();
}
constexpr size_t most_digits = 32;  // with what put_without_zeros writes past the end

}  // namespace detail

inline void append_decimal(i64 value, bool is_signed, Appender& out) {
  out.end_at(detail::put_decimal(out.room(detail::most_digits), static_cast<u64>(value), is_signed));
}
// 1f, without 0x.
inline void append_base16(u64 value, Appender& out) { out.end_at(detail::put_hex(out.room(detail::most_digits), value)); }
inline void append_pointer(u64 value, Appender& out) { out.end_at(detail::put_pointer(out.room(detail::most_digits), value)); }
inline void append_decimal(i64 value, bool is_signed, fmt::memory_buffer& out) {
  Appender to(out);
  append_decimal(value, is_signed, to);
}
inline void append_base16(u64 value, fmt::memory_buffer& out) {
  Appender to(out);
  append_base16(value, to);
}

// The shortest decimal that reads back as the same float or double of `size` bytes.
void append_floating(double value, u32 size, fmt::memory_buffer& out);
// The bytes in hexadecimal.
void append_hex(Bytes bytes, std::string_view between, fmt::memory_buffer& out);

}  // namespace ringside
