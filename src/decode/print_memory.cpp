#include "decode/print_memory.hpp"

#include <algorithm>
#include <cstring>

namespace ringside {
namespace {

constexpr size_t ip4_size = 4, ip6_size = 16, mac_size = 6, uuid_size = 16;
constexpr u16 family_ip4 = 2, family_ip6 = 10;           // AF_INET, AF_INET6 of Linux
constexpr size_t socket_ip4_size = 16, socket_ip6_size = 28;  // sockaddr_in, sockaddr_in6

void append_byte(u8 byte, const char* digits, fmt::memory_buffer& out) {
  out.push_back(digits[byte >> 4]);
  out.push_back(digits[byte & 15]);
}

constexpr char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";

void append_uuid(std::string_view form, const u8* bytes, fmt::memory_buffer& out) {
  static constexpr u8 little[uuid_size] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
  const char kind = form.size() > 1 ? form[1] : 'b';
  for (u8 i = 0; i < uuid_size; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out.push_back('-');
    append_byte(bytes[kind == 'l' || kind == 'L' ? little[i] : i], kind == 'L' || kind == 'B' ? upper : lower, out);
  }
}

void append_mac(std::string_view form, const u8* bytes, fmt::memory_buffer& out) {
  const bool reversed = form.ends_with('R');
  for (size_t i = 0; i < mac_size; ++i) {
    if (i != 0 && form[0] == 'M') out.push_back(form.ends_with('F') ? '-' : ':');
    append_byte(bytes[reversed ? mac_size - 1 - i : i], lower, out);
  }
}

// order: its letter; h is the machine's, l that of a little-endian number.
void append_ip4(bool zeros, char order, bool big_endian, const u8* bytes, fmt::memory_buffer& out) {
  const bool reversed = (order == 'h' && !big_endian) || order == 'l';
  for (size_t i = 0; i < ip4_size; ++i) {
    if (i != 0) out.push_back('.');
    const u8 byte = bytes[reversed ? ip4_size - 1 - i : i];
    if (zeros && byte < 100) append(out, byte < 10 ? "00" : "0");
    append_decimal(byte, false, out);
  }
}

void append_ip6(bool colons, const u8* bytes, fmt::memory_buffer& out) {
  for (size_t i = 0; i < ip6_size; ++i) {
    if (colons && i != 0 && i % 2 == 0) out.push_back(':');
    append_byte(bytes[i], lower, out);
  }
}

// The longest run of zero words becomes "::"; addresses that hold one of IPv4 end with it.
void append_short_ip6(const u8* bytes, fmt::memory_buffer& out) {
  const auto word = [&](size_t i) { return static_cast<u32>(bytes[2 * i] << 8 | bytes[2 * i + 1]); };
  const bool mapped = word(0) == 0 && word(1) == 0 && word(2) == 0 && word(3) == 0 && word(4) == 0 && word(5) == 0xFFFF;
  const bool isatap = (word(4) | 0x0200) == 0x0200 && word(5) == 0x5EFE;
  const size_t words = mapped || isatap ? 6 : 8;
  size_t run_at = words, run = 1;
  for (size_t i = 0; i < words; ++i) {
    size_t end = i;
    while (end < words && word(end) == 0) ++end;
    if (end - i > run) run = end - i, run_at = i;
  }
  bool colon = false;
  for (size_t i = 0; i < words; ++i) {
    if (i == run_at) {
      append(out, colon || i == 0 ? "::" : ":");
      colon = false;
      i += run - 1;
      continue;
    }
    if (colon) out.push_back(':');
    append_base16(word(i), out);
    colon = true;
  }
  if (words == 8) return;
  if (colon) out.push_back(':');
  append_ip4(false, 'b', false, bytes + 12, out);
}

void append_socket(std::string_view form, const u8* bytes, size_t size, bool big_endian, fmt::memory_buffer& out) {
  const bool capital = form[0] == 'I', port = capital && form.find('p') != form.npos, shortened = form.find('c') != form.npos;
  const u32 family = static_cast<u32>(bytes[big_endian] | bytes[!big_endian] << 8),
            number = static_cast<u32>(bytes[2] << 8 | bytes[3]);
  if (family == family_ip4) {
    if (size < socket_ip4_size) return append(out, "INVALIDIPv4");
    append_ip4(!capital, form.back(), big_endian, bytes + 4, out);
  } else if (family == family_ip6) {
    if (size < socket_ip6_size) return append(out, "INVALIDIPv6");
    if (port) out.push_back('[');
    if (shortened && capital)
      append_short_ip6(bytes + 8, out);
    else
      append_ip6(capital, bytes + 8, out);
    if (port) out.push_back(']');
  } else {
    return;
  }
  if (!port) return;
  out.push_back(':');
  append_decimal(number, false, out);
}

// Printable ASCII as it is, others in octal.
void append_escaped(Bytes bytes, fmt::memory_buffer& out) {
  constexpr std::string_view controls = "\a\b\x1b\f\n\r\t\v\"\\", letters = "abefnrtv\"\\";
  for (size_t i = 0; i < bytes.size; ++i) {
    const u8 byte = bytes.data[i];
    const size_t letter = controls.find(static_cast<char>(byte));
    if (letter != controls.npos) {
      out.push_back('\\');
      out.push_back(letters[letter]);
    } else if (byte >= 0x20 && byte < 0x7F) {
      out.push_back(static_cast<char>(byte));
    } else {
      out.push_back('\\');
      for (const u32 shift : {6U, 3U, 0U}) out.push_back(static_cast<char>('0' + (byte >> shift & 7)));
    }
  }
}

// A physical address, with all of its digits.
void append_physical(const u8* bytes, size_t size, bool big_endian, fmt::memory_buffer& out) {
  append(out, "0x");
  const size_t digits = size == 4 ? 4 : 8;
  for (size_t i = 0; i < digits; ++i) append_byte(bytes[big_endian ? i : digits - 1 - i], lower, out);
}

// A pixel format: NV12 little-endian (0x3231564e)
void append_four_characters(const u8* bytes, bool big_endian, fmt::memory_buffer& out) {
  u32 number;
  std::memcpy(&number, bytes, sizeof number);
  if (big_endian) number = __builtin_bswap32(number);
  constexpr u32 big = 1U << 31;
  for (u32 i = 0; i < 4; ++i) {
    const u8 c = static_cast<u8>((number & ~big) >> 8 * i);
    out.push_back(c >= 0x20 && c < 0x7F ? static_cast<char>(c) : '.');
  }
  append(out, (number & big) != 0 ? " big-endian (0x" : " little-endian (0x");
  for (u32 i = 4; i-- != 0;) append_byte(static_cast<u8>(number >> 8 * i), lower, out);
  append(out, ")");
}

std::string_view between_bytes(char letter) { return letter == 'C' ? ":" : letter == 'D' ? "-" : letter == 'N' ? "" : " "; }

// How many of the characters at the beginning of `text` are in `set`, of at most `most`.
size_t run_of(std::string_view text, std::string_view set, size_t most) {
  const size_t end = std::min(text.find_first_not_of(set), text.size());
  return std::min(end, most);
}

}  // namespace

std::string_view memory_form(std::string_view text) {
  const char first = text.empty() ? '\0' : text[0], second = text.size() < 2 ? '\0' : text[1];
  const auto with = [&](size_t letters, std::string_view set, size_t most = 1) {
    return text.substr(0, letters + run_of(text.substr(letters), set, most));
  };
  switch (first) {
    case 'U': return with(1, "LlBb");
    case 'M':
    case 'm': return with(1, "RF");
    case 'h': return with(1, "CDN");
    case 'b': return with(1, "l");
    case 'E': return with(1, "achnops", 7);
    case 'a': return with(1, "dp");
    case '4': return text.starts_with("4cc") ? text.substr(0, 3) : std::string_view();
    case 'I':
    case 'i':
      if (second == '4') return with(2, "hnlb");
      if (second == '6') return with(2, "c");
      if (second != 'S') return {};
      return with(with(2, "pfsc", 4).size(), "hnlb");
    default: return {};
  }
}

void append_memory(std::string_view form, const PrintedMemory& of, fmt::memory_buffer& out) {
  const auto& [bytes, size, bits, big_endian] = of;
  u8 whole[32] = {};
  if (bytes.size != 0) std::memcpy(whole, bytes.data, std::min(bytes.size, sizeof whole));
  switch (form[0]) {
    case 'U': return size == uuid_size ? append_uuid(form, whole, out) : append(out, "INVALIDUUID");
    case 'M':
    case 'm': return size == mac_size ? append_mac(form, whole, out) : append(out, "INVALIDMAC");
    case 'h': return append_hex(bytes, between_bytes(form.back()), out);
    case 'b': return form.ends_with('l') ? append_bit_ranges(bytes, bits, out) : append_bitmap(bytes, bits, out);
    case 'E': return append_escaped(bytes, out);
    case 'a':
      return append_physical(whole, size, big_endian, out);
    case '4':
      return append_four_characters(whole, big_endian, out);
    default: break;
  }
  if (form[1] == 'S') return append_socket(form, whole, size, big_endian, out);
  if (form[1] == '4') {
    if (size != ip4_size) return append(out, "INVALIDIPv4");
    return append_ip4(form[0] == 'i', form.back(), big_endian, whole, out);
  }
  if (size != ip6_size) return append(out, "INVALIDIPv6");
  if (form == "I6c") return append_short_ip6(whole, out);
  append_ip6(form[0] == 'I', whole, out);
}

void append_bitmap(Bytes bytes, size_t most, fmt::memory_buffer& out) {
  const size_t bits = std::min(most, bytes.size * 8);
  for (size_t digit = (bits + 3) / 4; digit-- != 0;) {  // of four bits
    const size_t left = bits - digit * 4;
    const u32 value = static_cast<u32>(bytes.data[digit / 2] >> digit % 2 * 4) & (left >= 4 ? 15U : (1U << left) - 1U);
    out.push_back(lower[value]);
    if (digit != 0 && digit % 8 == 0) out.push_back(',');
  }
}

void append_bit_ranges(Bytes bytes, size_t most, fmt::memory_buffer& out) {
  const size_t bits = std::min(most, bytes.size * 8);
  const auto is_set = [&](size_t bit) { return (bytes.data[bit / 8] >> bit % 8 & 1) != 0; };
  bool first = true;
  for (size_t bit = 0; bit < bits; ++bit) {
    if (!is_set(bit)) continue;
    const size_t begin = bit;
    while (bit + 1 < bits && is_set(bit + 1)) ++bit;
    if (!first) out.push_back(',');
    first = false;
    append_decimal(static_cast<i64>(begin), false, out);
    if (bit == begin) continue;
    out.push_back('-');
    append_decimal(static_cast<i64>(bit), false, out);
  }
}

}  // namespace ringside
