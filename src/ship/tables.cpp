#include "ship/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "shipped/columns.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

using clickhouse::quoted_name;
using clickhouse::quoted_text;

// The server's numbers if another agent was faster. That a table to be made has a column twice has one of them, too.
constexpr int exists_already = 57, has_column_already = 44, duplicate_column = 15;

// Rows of one host lie together, in the order of time; a day's can be dropped at once.
constexpr const char* engine = "ENGINE = MergeTree PARTITION BY toDate(time, 'UTC') ORDER BY (host, time_ns)";

bool is_of_field(const Batch& batch, const std::string& column) { return batch.events && !is_own_column(column); }

std::string definition(const Batch& batch) {
  std::string out = "(time DateTime DEFAULT toDateTime(intDiv(time_ns, 1000000000))";
  for (const auto& column : batch.columns) out += ", " + quoted_name(column.name) + " " + column.type;
  return out + ")";
}

}  // namespace

std::string Tables::own_name(const std::string& table) const {
  return quoted_name(cluster_.empty() ? table : table + "_local");
}

std::string Tables::changed_column(const Batch& batch) const {
  const auto known = known_.find(batch.table);
  for (const auto& column : batch.columns) {
    if (known == known_.end() || is_of_field(batch, column.name)) continue;
    if (const auto at = known->second.find(column.name); at != known->second.end() && at->second != column.type)
      return fmt::format(
          "the column {} of the table {} has the type {} there and needs {}; ALTER TABLE ... MODIFY COLUMN changes it",
          column.name, batch.table, at->second, column.type);
  }
  return "";
}

result<Tables::Columns> Tables::columns_of(clickhouse::Server& server, const std::string& table) {
  std::string answer;
  const auto blocks =
      RS_TRY(server.select(fmt::format("SELECT name, type FROM system.columns WHERE database = {} AND table = {}",
                                       quoted_text(server.address().database), quoted_text(table)),
                           answer));
  Columns columns;
  for (const clickhouse::BlockIn& block : blocks) {
    const auto* name = block.column("name");
    const auto* type = block.column("type");
    if (name == nullptr || type == nullptr || name->texts.size() != block.rows || type->texts.size() != block.rows)
      return refuse(std::errc::bad_message, "the server describes the table " + table + " in a way that is not read here");
    for (u64 row = 0; row < block.rows; ++row) columns[std::string(name->texts[row])] = type->texts[row];
  }
  return columns;
}

// A server of the cluster that does not answer learns it later: the agent's own one goes on. done_already: errors that say that
// there is nothing to do.
result<void> Tables::ask(clickhouse::Server& server, const std::string& sql, std::initializer_list<int> done_already) {
  const auto done = server.ask(sql);
  const int code = server.code();
  if (done || std::find(done_already.begin(), done_already.end(), code) != done_already.end()) return {};
  if (&server == all_.front() || code != 0) return tl::unexpected<Error>(done.error());
  pending_.push_back({&server, sql});
  return {};
}

void Tables::ask_pending() {
  constexpr u64 every_ns = 5'000'000'000;
  if (pending_.empty() || sys::now_ns() - asked_pending_ns_ < every_ns) return;
  asked_pending_ns_ = sys::now_ns();
  while (!pending_.empty()) {
    const auto done = pending_.front().server->ask(pending_.front().sql);
    if (!done && pending_.front().server->code() == 0) return;
    pending_.erase(pending_.begin());
  }
}

result<bool> Tables::make(clickhouse::Server& server, const std::string& table, const Batch& batch) {
  const std::string own = own_name(table);
  RS_TRY(ask(server, "CREATE TABLE " + own + " " + definition(batch) + " " + engine, {exists_already}));
  const bool made = server.code() != exists_already;
  if (cluster_.empty()) return made;
  RS_TRY(ask(server,
             fmt::format("CREATE TABLE IF NOT EXISTS {} {} ENGINE = Distributed({}, {}, {})", quoted_name(table),
                         definition(batch), quoted_name(cluster_), quoted_name(server.address().database), own),
             {exists_already}));
  return made;
}

// A server shows a table shortly before it can take rows, and Debian's (18.16) ends when it gets some then.
result<void> Tables::wait_until_ready(const std::string& table) {
  clickhouse::Server& server = *all_.front();
  const std::string young = fmt::format(
      "SELECT count() FROM system.tables WHERE database = {} AND name = {} AND metadata_modification_time > now() - 3",
      quoted_text(server.address().database), quoted_text(table));
  for (int tries = 0; tries < 50 && RS_TRY(server.count(young)) != 0; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return {};
}

result<void> Tables::fit(Batch& batch) {
  ask_pending();
  const std::string local = cluster_.empty() ? batch.table : batch.table + "_local";
  Columns& known = known_[batch.table];
  if (known.empty()) {
    Columns there = RS_TRY(columns_of(*all_.front(), local));
    bool ours = false;
    if (there.empty() || all_.size() > 1) {
      for (clickhouse::Server* server : all_) {
        const bool made = RS_TRY(make(*server, batch.table, batch));
        ours |= made && server == all_.front();
      }
      there = RS_TRY(columns_of(*all_.front(), local));
    }
    if (there.empty())
      return refuse(std::errc::bad_message, all_.front()->who() + " has no table " + local +
                                                " after it made it, so nothing is sent there: is it a ClickHouse server?");
    if (!ours) RS_TRY(wait_until_ready(local));
    known = std::move(there);
  }
  for (auto& column : batch.columns) {
    if (const auto at = known.find(column.name);
        at != known.end() && at->second != column.type && is_of_field(batch, column.name))
      column.name = clickhouse::name_with_type(column.name, column.type);
    if (known.count(column.name) != 0) continue;
    const std::string add = " ADD COLUMN " + quoted_name(column.name) + " " + column.type;
    for (clickhouse::Server* server : all_) {
      RS_TRY(ask(*server, "ALTER TABLE " + own_name(batch.table) + add, {has_column_already, duplicate_column}));
      if (!cluster_.empty())
        RS_TRY(ask(*server, "ALTER TABLE " + quoted_name(batch.table) + add, {has_column_already, duplicate_column}));
    }
    known[column.name] = column.type;
  }
  return {};
}

}  // namespace ringside::ship
