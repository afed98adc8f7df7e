#include "shipped/columns.hpp"

#include <algorithm>
#include <set>

namespace ringside {

bool is_own_column(const std::string& name) {
  static constexpr std::string_view own[] = {"time", "time_ns", "error_ns", "host", "boot", "agent", "batch",  "mono_ns",
                                             "ring", "number",  "cpu",      "tid",  "task", "flags", "payload"};
  return std::find(std::begin(own), std::end(own), name) != std::end(own);
}

std::vector<std::string> columns_of(const EventType& type) {
  std::vector<std::string> columns;
  std::set<std::string> taken;
  for (const Field& field : type.fields()) {
    std::string name = field.name;
    while (is_own_column(name) || !taken.insert(name).second) name += "_";
    columns.push_back(std::move(name));
  }
  return columns;
}

std::string type_of(const Field& field) {
  const auto number = [](u32 size, bool is_signed, bool is_float) -> std::string {
    if (is_float) return size == 4 ? "Float32" : "Float64";
    const u32 bits = size == 1 || size == 2 || size == 4 || size == 8 ? 8 * size : 64;
    return (is_signed ? "Int" : "UInt") + std::to_string(bits);
  };
  switch (field.kind) {
    case FieldKind::integer:
      return number(field.size, field.is_signed, false);
    case FieldKind::floating:
      return number(field.size, true, true);
    case FieldKind::text:
    case FieldKind::loc_text:
      return "String";
    case FieldKind::array:
    case FieldKind::loc_array:
      break;
  }
  return "Array(" +
         number(field.element == 0 ? 1 : field.element, field.is_signed,
                field.is_float && (field.element == 4 || field.element == 8)) +
         ")";
}

bool is_of_dropped_events(std::string_view why) {
  return why == why::spool_full || why == why::not_readable || why == why::gone || why == why::refused_by_server ||
         why == why::lost_in_dropped;
}

}  // namespace ringside
