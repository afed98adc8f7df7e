#include "shipped/query.hpp"

#include <fmt/format.h>

#include "sys/try.hpp"

namespace ringside::shipped {

using clickhouse::BlockIn;
using clickhouse::ColumnIn;
using clickhouse::quoted_text;

result<const ColumnIn*> wanted(const BlockIn& block, std::string_view name, bool text) {
  const ColumnIn* const column = block.column(name);
  if (column == nullptr || column->is_array || (column->kind == ColumnIn::Kind::text) != text ||
      column->kind == ColumnIn::Kind::real)
    return refuse(std::errc::bad_message,
                  "the server's table has no column " + std::string(name) + " as `ringside ship` makes it");
  return column;
}

bool has_range(const ShippedAsRecording::Place& place) { return place.from_ns != INT64_MIN || place.to_ns != INT64_MAX; }

std::string in_range(const ShippedAsRecording::Place& place, const char* from, const char* to) {
  std::string out = "1";
  if (place.from_ns != INT64_MIN) out += fmt::format(" AND {} >= {}", to, place.from_ns);
  if (place.to_ns != INT64_MAX) out += fmt::format(" AND {} < {}", from, place.to_ns);
  return out;
}

std::string parts_in_range(const ShippedAsRecording::Place& place) {
  return in_range(place, "time_ns", "time_ns + toInt64(duration_ns)");
}

result<std::vector<std::string>> tables_of_events(clickhouse::Server& server) {
  std::string answer;
  std::vector<std::string> tables;
  for (const BlockIn& block :
       RS_TRY(server.select("SELECT name FROM system.tables WHERE database = " + quoted_text(server.address().database) +
                                " AND position(name, ':') != 0 ORDER BY name",
                            answer))) {
    const ColumnIn* const name = RS_TRY(wanted(block, "name", true));
    for (const auto& one : name->texts) tables.emplace_back(one);
  }
  return tables;
}

std::string of_machine(const ShippedAsRecording::Machine& machine) {
  return fmt::format("host = {} AND boot = {}", quoted_text(machine.host), machine.boot);
}

}  // namespace ringside::shipped
