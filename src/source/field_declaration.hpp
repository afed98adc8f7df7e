// A line of an event's format that declares a field, as tracefs has it:
//
//   field:unsigned long args[6];  offset:16;  size:48;  signed:0;
//
// This is the one place that knows what the numbers in a field are: those who convert an event's bytes and those who read them
// agree.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string_view>
#include <vector>

namespace ringside {

struct FieldDeclaration {
  static constexpr u32 largest = 65536;  // of an offset and a size: a payload fits a sub-buffer, its located data 16 bits

  std::string_view type, name;             // the type: of an element, without __data_loc and dimensions
  bool is_array = false;                   // it has dimensions, or is located
  bool located = false, relative = false;  // __data_loc or __rel_loc; __rel_loc
  bool is_signed = false;                  // where the line does not say it, as its type of C
  u32 offset = 0, size = 0;                // in bytes, as the line says; at most `largest`
  u32 element = 1;                         // bytes of each number: 1, 2, 4 or 8; 1: it holds bytes, or a struct
  std::vector<u32> strides;                // arrays of arrays: elements of one array at each level, outermost first
  bool is_text() const { return is_array && is_character(); }
  bool is_character() const;  // it is of plain characters; u8 is none
};

// Empty: `line` declares no field, or one beyond all events (`beyond` is true then). word_size: bytes of a long where the
// events come from; 0: 8.
std::optional<FieldDeclaration> read_field(std::string_view line, u32 word_size, bool& beyond);

}  // namespace ringside
