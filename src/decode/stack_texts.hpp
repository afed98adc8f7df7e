// What an event's stack says, for all code that prints, filters and groups by it. The room `stacks` implements it. A stack has
// a number (TraceRecord::stack); 0: the event has none.
#pragma once
#include <fmt/format.h>

#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

class StackTexts {
 public:
  virtual ~StackTexts() = default;
  // The names of its functions, innermost first. Valid until the next call.
  virtual const std::vector<std::string>& functions(u32 stack) = 0;
  // The same in one text, with ; between them.
  virtual std::string_view text(u32 stack) = 0;
  // The number of the first stack that has these names: stacks of several processes may have the same.
  virtual u32 same_names(u32 stack) = 0;
  // " => function+0x1d/0x40" and a line end for each function, as in the kernel's file `trace`.
  virtual void append_lines(u32 stack, fmt::memory_buffer& out) = 0;
};

}  // namespace ringside
