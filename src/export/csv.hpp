// Events as CSV (RFC 4180, in UTF-8: a text with a quote, a comma or a line break is quoted): a line for each, a column for
// each field.
//
//   ts_ns,buffer,cpu,ring,pid,tid,task,event,lost,size,ptr,...,more
//
// ts_ticks instead of ts_ns: ticks of a clock whose rate is unknown. buffer: which of several inputs or buffers the event is
// of. Events share the column of a field that they both have; a field with the name of a column before them is
// fields.NAME. more: fields that have no column, as text, because their event was declared when the first line was written, or
// because there are more than most_columns.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/tasks.hpp"
#include "source/account.hpp"
#include "source/wall.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class CsvLines {
 public:
  static constexpr size_t most_columns = 1000;  // of fields

  CsvLines(const Formats& formats, const Tasks& tasks, bool raw_times = false)
      : formats_(formats), tasks_(tasks), raw_times_(raw_times) {}
  // A column `wall` with the time of day. Before the first line.
  void show_wall(const std::optional<WallClock>& wall) { wall_ = wall; }
  // The first line: fields of these types.
  void begin(const std::function<bool(const EventType&)>& wanted, fmt::memory_buffer& out);
  void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out);
  // A loss that nobody can place; `more` has the reasons.
  void print_missing(u64 time, const Account& account, fmt::memory_buffer& out) const;

 private:
  struct Event {
    bool known = false, rest = false;  // rest: some fields have no column
    const EventType* type = nullptr;
    std::vector<std::pair<u32, u32>> fields{};  // column and field
  };
  Event& of(u32 id);
  static void cell(std::string_view bytes, fmt::memory_buffer& out);
  void value(Bytes payload, const Field& field, fmt::memory_buffer& out);

  void place(u64 time, i32 cpu, const RingName& ring, const std::string& buffer, fmt::memory_buffer& out) const;

  const Formats& formats_;
  const Tasks& tasks_;
  const bool raw_times_;
  std::optional<WallClock> wall_{};
  std::unordered_map<std::string, u32> columns_;
  std::unordered_map<u32, Event> events_;
  u64 version_ = 0;  // of the formats that events_ knows
  fmt::memory_buffer text_;
};

}  // namespace ringside
