// An event's text, as its format prints it.
#pragma once
#include <fmt/format.h>

#include <string>

#include "decode/formats.hpp"

namespace ringside::test {

inline std::string printed(const Formats& formats, u16 id, Bytes payload) {
  fmt::memory_buffer out;
  formats.print(*formats.find(id), payload, out);
  return {out.data(), out.size()};
}

}  // namespace ringside::test
