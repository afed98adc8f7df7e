// What an event's stack says, for all code that prints, filters and groups by it. The room `stacks` implements it. A stack has
// a number (TraceRecord::stack); 0: the event has none.
#pragma once
#include <fmt/format.h>

#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sys/budget.hpp"

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

  // Asked before the names of an event's stack are written, with their bytes: a reading's, and 16 KiB for each event. Events of
  // a few bytes may all have one stack of a thousand long names. False: `no_room` replaces them, and it is counted.
  bool may_write(u64 bytes) {
    room_ += of_an_event;
    beyond_ += bytes > room_ ? 1 : 0;
    if (bytes > room_) return false;
    room_ -= bytes;
    return true;
  }
  static constexpr std::string_view no_room = "[beyond the reading's budget]";

 protected:
  u64 beyond() const { return beyond_; }

 private:
  static constexpr u64 of_an_event = u64{16} << 10;
  u64 room_ = Budget().bytes(), beyond_ = 0;
};

}  // namespace ringside
