// trace_printk's messages: a format of the kernel, and its arguments in binary.
#pragma once
#include <string_view>

#include "decode/append.hpp"
#include "decode/symbols.hpp"

namespace ringside {

// An argument that is missing leaves its conversion in the text.
void append_message(std::string_view format, Bytes arguments, const Symbols& symbols, Appender& out);

}  // namespace ringside
