// The `format` text of an event, as tracefs has it: fields, and the print fmt.
#pragma once
#include "decode/formats.hpp"

namespace ringside {

struct FormatFile {
  std::vector<Field> common, fields;
  std::string_view print_fmt;  // empty: there is none
  bool has_tid = false;
  std::string wrong;  // empty: it was understood
};
// What the values of a field of the type ringside_level are called.
const std::vector<std::pair<i64, std::string>>& level_names();

FormatFile read_format_file(std::string_view text, const World& world = {});  // of the machine that wrote the events

}  // namespace ringside
