// libtraceevent's parser takes a - b - c for a - (b - c), and a * (b + c) for a * b + c. A print fmt is written anew so that it
// cannot.
#pragma once
#include <string>
#include <string_view>

namespace ringside {

// A cast that keeps the value and its type: the parser does not look for operators behind one.
inline constexpr std::string_view kept_type = "ringside_kept";

// The text of a format; unchanged where its print fmt has no such operators, or is not understood.
std::string with_parentheses(std::string_view format);

}  // namespace ringside
