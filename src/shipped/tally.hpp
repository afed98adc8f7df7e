// Tables of counts by the server's own sums: rows that are alike in what is asked for come as one event, which says how many
// there are (ShippedAsRecording::times_of).
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/column.hpp"
#include "analysis/filter.hpp"
#include "shipped/parts.hpp"
#include "shipped/rows.hpp"

namespace ringside::shipped {

class Tally {
 public:
  Tally(const ShippedAsRecording::Place& place, const ShippedAsRecording::Machine& machine, ShippedAsRecording::Times times,
        const Tallied& tallied, clickhouse::Server& server, Parts& parts, Rows& rows)
      : place_(place), machine_(machine), times_(times), tallied_(tallied), server_(server), parts_(parts), rows_(rows) {}

  // Whether events that are alike in what is asked for are alike in the answer: nothing of it depends on what was before.
  bool can();
  // The types of the server's columns. Before take(), if it can.
  result<void> read_columns();
  // Adds the sums of a table. False: its rows are to be read one by one.
  result<bool> take(const std::string& table);
  u64 early() const { return early_; }  // events whose part has not arrived

 private:
  // Whether a row's part is here (SQL). False: that would be too long.
  bool find_inside();
  result<void> take(const clickhouse::BlockIn& block, const std::string& table, const EventType& type, u32 number, bool kernel);
  u32 ring_here(Part& part, u32 number);
  u32 any_ring(bool kernel);

  const ShippedAsRecording::Place& place_;
  const ShippedAsRecording::Machine& machine_;
  ShippedAsRecording::Times times_;
  const Tallied& tallied_;
  clickhouse::Server& server_;
  Parts& parts_;
  Rows& rows_;
  Tasks tasks_;
  std::vector<Column> columns_;
  std::optional<Filter> filter_;
  std::map<std::string, std::map<std::string, std::string>> types_;  // table, column, type
  std::string inside_;
  u64 early_ = 0;
  bool needs_thread_ = false, needs_ring_ = false, needs_flags_ = false, needs_part_ = false;
};

}  // namespace ringside::shipped
