#include "writer/patterns.hpp"

#include <stdio.h>

#include <algorithm>
#include <cerrno>

#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end != at) all.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

std::string with_pattern(const std::string& text, const std::string& pattern, bool on) {
  std::string kept;
  for (const std::string& one : lines_of(text))
    if (one.rfind("depth=", 0) == 0 || (pattern != "*:*" && one.substr(one[0] == '!' ? 1 : 0) != pattern)) kept += one + "\n";
  return kept + (on ? "" : "!") + pattern + "\n";
}

std::string with_patterns(std::string text, const EventPatterns& patterns, bool on, bool in_full) {
  for (const EventPattern& one : patterns)
    for (const std::string& line : in_full ? one.in_full() : std::vector<std::string>{one.text()})
      text = with_pattern(text, line, on);
  return text;
}

result<void> can_be_lines(const EventPatterns& patterns) {
  for (const EventPattern& one : patterns)
    if (one.text().front() == '!' || one.text().find('\n') != std::string::npos)
      return refuse(std::errc::invalid_argument,
                    "an event whose name begins with ! or has a line break in it cannot be switched");
  return {};
}

result<void> replace_file(int dir, const std::string& file, const std::string& text) {
  RS_TRY(sys::write_owned(dir, file + ".new", text));
  if (renameat(dir, (file + ".new").c_str(), dir, file.c_str()) != 0) return fail(errno, "cannot replace " + file);
  return {};
}

}  // namespace ringside
