#include "analysis/groups.hpp"

namespace ringside {

std::vector<std::string> split_columns(std::string_view text) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth <= 0)
      out.emplace_back();
    else
      out.back() += c;
  }
  // An event before the first column applies to all of them: EVENT/A,B.
  const size_t slash = out[0].rfind('/');
  for (size_t i = 1; i < out.size() && slash != std::string::npos; ++i) {
    if (out[i].find('/') == std::string::npos) out[i] = out[0].substr(0, slash + 1) + out[i];
  }
  return out;
}

}  // namespace ringside
