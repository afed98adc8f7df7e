// The columns of the tables that `ringside ship` fills and clickhouse:// reads.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "decode/formats.hpp"

namespace ringside {

// Of every table: time, which the server computes, and these. time_ns is the time of day; error_ns says how far that may be
// off.
//   time_ns Int64 · error_ns UInt32 · host String · boot UInt64 · agent String · batch UInt64
// Of tables of events also these, before the fields'. number: the record's in its part, losses counted in.
//   mono_ns UInt64 · ring UInt32 · number UInt32 · cpu Int32 · tid Int32 · task String · flags UInt16
// An event whose format is not understood has the column `payload` instead of its fields.

bool is_own_column(const std::string& name);  // one of these
// The names of the fields' columns, in their order. Each name is there once, and those above stay theirs: a field gets a _
// after its name until that is free.
std::vector<std::string> columns_of(const EventType& type);
// The type of a field's column: Int32, String, Array(UInt64), ...
std::string type_of(const Field& field);

// `why` of the rows of `losses` whose events are in no table and no gap of one; beside these there are "gap", "refused",
// "unrecorded" and "perhaps: ...".
namespace why {
inline constexpr const char *spool_full = "spool full", *not_readable = "not readable", *gone = "gone from the spool",
                            *refused_by_server = "refused by server", *lost_in_dropped = "lost in a dropped part";
// With the count 0: a dropped part may have lost more than it says.
inline constexpr const char* dropped_unproved = "perhaps: a dropped part lost more";
}  // namespace why
bool is_of_dropped_events(std::string_view why);  // one of the first five

}  // namespace ringside
