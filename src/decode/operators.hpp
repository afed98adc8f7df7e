// libtraceevent's parser takes a - b - c for a - (b - c), and a * (b + c) for a * b + c. A print fmt is written anew so that it
// cannot. The parser trusts a print fmt, so it gets only one that is understood here.
#pragma once
#include <string>
#include <string_view>

namespace ringside {

// A cast that keeps the value and its type: the parser does not look for operators behind one.
inline constexpr std::string_view kept_type = "ringside_kept";

struct ReadableFormat {
  std::string text;         // for the parser; empty: the lines of the fields are none
  bool understood = false;  // else the text's print fmt is empty
};
ReadableFormat with_parentheses(std::string_view format);

}  // namespace ringside
