// Bytes as hexadecimal digits: how build ids are written.
#pragma once
#include <ringside/base/types.hpp>
#include <string>

namespace ringside::sys {

inline std::string hex(Bytes bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < bytes.size; ++i) {
    out += digits[bytes.data[i] >> 4];
    out += digits[bytes.data[i] & 15];
  }
  return out;
}

}  // namespace ringside::sys
