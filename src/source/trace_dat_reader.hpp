// Takes a block of a trace.dat apart.
#pragma once
#include <cstring>
#include <ringside/base/types.hpp>
#include <string_view>

namespace ringside::trace_dat {

// Where the data of a CPU lie in the file.
struct CpuData {
  u32 cpu = 0;
  u64 offset = 0, size = 0;
};

// Missing bytes read as nothing and leave ok false.
struct Reader {
  const u8* at;
  const u8* end;
  bool ok = true, big = false;  // big: the byte order of its numbers

  explicit Reader(Bytes bytes, bool big_endian = false) : at(bytes.data), end(bytes.data + bytes.size), big(big_endian) {}
  u64 left() const { return static_cast<u64>(end - at); }
  Bytes take(u64 size) {
    if (size > left()) ok = false;
    if (!ok) return {at, 0};
    at += size;
    return {at - size, size};
  }
  template <class T>
  T number() {
    T value{};
    const Bytes b = take(sizeof value);
    for (size_t i = 0; ok && i < sizeof value; ++i)
      value = static_cast<T>(value | T{b.data[i]} << 8 * (big ? sizeof value - 1 - i : i));
    return value;
  }
  template <class Size>
  std::string_view text() {
    const Bytes b = take(number<Size>());
    return {reinterpret_cast<const char*>(b.data), b.size};
  }
  std::string_view name() {  // up to its NUL
    const auto* const zero = left() == 0 ? nullptr : static_cast<const u8*>(std::memchr(at, 0, left()));
    if (zero == nullptr) ok = false;
    if (!ok) return {};
    const Bytes b = take(static_cast<u64>(zero - at) + 1);
    return {reinterpret_cast<const char*>(b.data), b.size - 1};
  }
  CpuData cpu_data(u32 cpu) { return {cpu, number<u64>(), number<u64>()}; }
};

}  // namespace ringside::trace_dat
