// What readers of shipped events ask of a server, in words of SQL, and the columns of its answers.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "clickhouse/server.hpp"
#include "shipped/shipped.hpp"

namespace ringside::shipped {

// The table of types that no format describes: it has the payload as a whole.
constexpr const char* unknown_events = "unknown:unknown";

// A block's column of this kind, or an error: what a server answers is not to be trusted.
result<const clickhouse::ColumnIn*> wanted(const clickhouse::BlockIn& block, std::string_view name, bool text);

bool has_range(const ShippedAsRecording::Place& place);
// What is from one time to another one (SQL).
std::string in_range(const ShippedAsRecording::Place& place, const char* from = "time_ns", const char* to = "time_ns");
std::string parts_in_range(const ShippedAsRecording::Place& place);
std::string of_machine(const ShippedAsRecording::Machine& machine);

result<std::vector<std::string>> tables_of_events(clickhouse::Server& server);

}  // namespace ringside::shipped
