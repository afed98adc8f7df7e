// trace_printk's messages: a format of the kernel, and its arguments in binary.
#pragma once
#include <string_view>

#include "decode/append.hpp"
#include "decode/symbols.hpp"
#include "source/world.hpp"

namespace ringside {

// The arguments as their kernel packed them.
struct PackedArguments {
  Bytes bytes{};
  u32 word_size = 8;  // of a long
  bool big_endian = false;
  Architecture architecture = Architecture::unknown;
};

// An argument that is missing leaves its conversion in the text.
void append_message(std::string_view format, const PackedArguments& arguments, const Symbols& symbols, Appender& out);

}  // namespace ringside
