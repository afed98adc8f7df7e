#include "cli/table.hpp"

#include <algorithm>

#include "sys/text.hpp"

namespace ringside::cli {
namespace {

// Characters of a UTF-8 text (one column each: good enough for names).
size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// By Kind. digits: after the point in JSON; -1: as they come.
constexpr struct {
  const char* type;
  bool right;
  int digits = -1;
} prints[] = {
    {"text", false},  {"true, false", false}, {"number", true},     {"number", true},        {"bytes", true},
    {"ns", true, 0},  {"ns", true, 1},        {"percent", true, 2}, {"per second", true, 1}, {"bytes per second", true, 1},
    {"array", false}, {"object", false}};

}  // namespace

const char* type_of(Kind kind) { return prints[static_cast<size_t>(kind)].type; }

std::string Table::shown(const Cell& cell, Kind kind) const {
  const Json& v = cell.value;
  if (cell.text || v.is_null() || v.is_discarded()) return cell.text.value_or("");
  if (v.is_string()) return v.get<std::string>();
  if (kind == Kind::flag) return v.get<bool>() ? "yes" : "no";
  if (kind == Kind::count) return format_count(v.get<u64>());
  if (kind == Kind::bytes) return format_size(v.get<u64>());
  if (kind == Kind::time || kind == Kind::mean) return format_time(v.get<double>(), unit_);
  if (kind == Kind::share) return fmt::format("{:.1f} %", v.get<double>());
  if (kind == Kind::rate) return format_rate(v.get<double>(), "");
  if (kind == Kind::throughput) return format_size(static_cast<u64>(v.get<double>())) + "/s";
  return v.dump();
}

std::string Table::render(bool colour) const {
  std::vector<std::vector<std::string>> lines(1);
  std::vector<bool> right;
  std::vector<size_t> widths;
  for (const Column& c : columns_) {
    if (!c.in_text) continue;
    right.push_back(prints[static_cast<size_t>(c.kind)].right);
    lines[0].push_back(c.title);
  }
  for (const Row& row : rows_) {
    if (row.only == Only::json) continue;
    auto& line = lines.emplace_back();
    for (size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].in_text) line.push_back(i < row.cells.size() ? shown(row.cells[i], columns_[i].kind) : "");
  }
  for (size_t i = 0; i < right.size(); ++i) {
    size_t width = 0;
    for (const auto& line : lines) width = std::max(width, text_width(line[i]));
    widths.push_back(width);
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string cell = sys::printable(line[i]);
      const std::string space(widths[i] - std::min(widths[i], text_width(cell)), ' ');
      text += (i != 0 ? "  " : "") + (right[i] ? space + cell : cell + space);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += colour && &line == lines.data() ? "\033[1m" + text + "\033[0m\n" : text + "\n";
  }
  return out;
}

Json Table::objects() const {
  Json all = Json::array();
  for (const Row& row : rows_) {
    if (row.only == Only::text) continue;
    Json& object = all.emplace_back(Json::object());
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const Column& c = columns_[i];
      if (c.key.empty() || row.cells[i].value.is_discarded()) continue;
      Json& in = c.object.empty() ? object : object[c.object];
      if (!in.is_object()) in = Json::object();
      const Json& value = row.cells[i].value;
      const int digits = prints[static_cast<size_t>(c.kind)].digits;
      in[c.key] = digits >= 0 && value.is_number_float() ? rounded(value, digits) : value;
    }
  }
  return all;
}

}  // namespace ringside::cli
