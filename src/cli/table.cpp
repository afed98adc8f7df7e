#include "cli/table.hpp"

#include <algorithm>

#include "sys/text.hpp"

namespace ringside::cli {

size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Table::render(bool colour) const {
  std::vector<size_t> widths;
  for (const Column& c : columns_) widths.push_back(text_width(c.title));
  for (const auto& cells : rows_) {
    for (size_t i = 0; i < cells.size() && i < widths.size(); ++i) widths[i] = std::max(widths[i], text_width(cells[i]));
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = i < cells.size() ? sys::printable(cells[i]) : "";
      const std::string space(widths[i] - std::min(widths[i], text_width(cell)), ' ');
      if (i != 0) text += "  ";
      text += columns_[i].align == right ? space + cell : cell + space;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::vector<std::string> titles;
  for (const Column& c : columns_) titles.push_back(c.title);
  out += colour ? "\033[1m" + line(titles) + "\033[0m\n" : line(titles) + "\n";
  for (const auto& cells : rows_) out += line(cells) + "\n";
  return out;
}

}  // namespace ringside::cli
