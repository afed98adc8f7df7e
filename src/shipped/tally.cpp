#include "shipped/tally.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/names.hpp"
#include "analysis/thread_names.hpp"
#include "shipped/columns.hpp"
#include "shipped/query.hpp"
#include "sys/try.hpp"

namespace ringside::shipped {

using clickhouse::BlockIn;
using clickhouse::ColumnIn;
using clickhouse::quoted_name;
using clickhouse::quoted_text;

namespace {

// A value of the same bucket, so that there are few of them (SQL).
std::string begin_of_bucket(const Column& column, const std::string& value, const std::string& type, bool is_signed) {
  std::string begin;
  if (column.bucket_width() != 0) {
    begin = fmt::format("{0} - {0} % {1}", value, column.bucket_width());
  } else {
    begin = fmt::format("multiIf({0} < 256, toUInt64({0})", value);
    for (u32 bits = 8; bits < 64; bits += 8) {
      const std::string kept = fmt::format("bitAnd(toUInt64({}), {})", value, ~((u64{1} << bits) - 1));
      begin += bits == 56 ? fmt::format(", {})", kept) : fmt::format(", {} < {}, {}", value, u64{1} << (bits + 8), kept);
    }
  }
  begin = fmt::format("to{}({})", type, begin);
  return is_signed ? fmt::format("if({0} < 0, {0}, {1})", value, begin) : begin;
}

}  // namespace

bool Tally::can() {
  bool kernel = false, threads = false;
  for (const RecordedRing& ring : parts_.rings()) {
    kernel = kernel || ring.name.kernel;
    threads = threads || ring.name.of_a_thread();
  }
  const auto in_order = [&](std::string_view name) {
    if (name == "stack") return true;
    if (name == "cpu" || name == "CPU") return kernel && threads;
    return kernel && is_told(name);
  };
  for (const std::string& text : tallied_.columns) {
    auto column = Column::compile(text, parts_.formats(), tasks_);
    if (!column || column->of_stacks() || column->shows_names()) return false;
    if (!column->of_fields() && (in_order(column->field()) || (column->field() == "ts" && column->bucket_width() == 0)))
      return false;
    columns_.push_back(std::move(*column));
  }
  if (!tallied_.filter.empty()) {
    auto filter = Filter::compile(tallied_.filter, parts_.formats(), tasks_);
    if (!filter) return false;
    filter_.emplace(std::move(*filter));
    for (const std::string_view name : {"ts", "stack", "cpu", "CPU", "comm", "COMM", "task", "cgroup"})
      if (filter_->names(name) && (name == "ts" || in_order(name))) return false;
  }
  const auto asks = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
      return (filter_ && filter_->names(name)) ||
             std::any_of(columns_.begin(), columns_.end(), [&](const Column& column) { return column.field() == name; });
    });
  };
  needs_thread_ = asks({"tid", "pid", "common_pid", "thread", "process", "cgroup", "task", "comm", "COMM"});
  needs_ring_ = needs_thread_ || asks({"cpu", "CPU", "ring"});
  needs_flags_ = asks({"common_flags", "common_preempt_count"});
  if (!find_inside()) return false;
  // The number of a ring says which one it is, if it does in all parts.
  std::map<u32, u32> rings;
  for (const Part& part : parts_.all())
    for (const auto& [there, here] : part.rings)
      needs_part_ = rings.try_emplace(there, here).first->second != here || needs_part_;
  needs_part_ = needs_part_ && needs_ring_;
  return parts_.complete();
}

bool Tally::find_inside() {
  constexpr size_t most_ranges = 500;
  std::map<std::string, std::map<u64, u64>> ranges;  // of each agent: first and last batch
  size_t all = 0;
  for (const auto& [key, n] : parts_.by_batch()) {
    auto& of_agent = ranges[key.first];
    if (!of_agent.empty() && of_agent.rbegin()->second + 1 == parts_.all()[n].first)
      of_agent.rbegin()->second = key.second;
    else
      of_agent[parts_.all()[n].first] = key.second, ++all;
  }
  for (const auto& [agent, of_agent] : ranges)
    for (const auto& [first, last] : of_agent)
      inside_ += fmt::format("{}(agent = {} AND batch >= {} AND batch <= {})", inside_.empty() ? "" : " OR ",
                             quoted_text(agent), first, last);
  return all != 0 && all <= most_ranges;
}

result<void> Tally::read_columns() {
  std::string answer;
  for (const BlockIn& block : RS_TRY(server_.select(
           "SELECT table, name, type FROM system.columns WHERE database = " + quoted_text(place_.address.database), answer))) {
    const ColumnIn *table = RS_TRY(wanted(block, "table", true)), *name = RS_TRY(wanted(block, "name", true)),
                   *type = RS_TRY(wanted(block, "type", true));
    for (u64 row = 0; row < block.rows; ++row)
      types_[std::string(table->texts[row])][std::string(name->texts[row])] = type->texts[row];
  }
  return {};
}

result<bool> Tally::take(const std::string& table) {
  std::set<u32> numbers;
  for (const Part& part : parts_.all())
    for (const bool kernel : {false, true})
      if (const auto at = part.events.find({kernel, table}); at != part.events.end()) numbers.insert(at->second);
  const EventType* const type = numbers.size() == 1 ? parts_.formats().find(*numbers.begin()) : nullptr;
  if (type == nullptr || !type->parsed()) return false;
  if (!tallied_.only.empty() && !matches(tallied_.only, *type)) return true;
  const bool kernel = *numbers.begin() >= kernel_ids && *numbers.begin() < apart_ids;
  const auto& types = types_[table];
  std::string what = "toUInt8(" + inside_ + ") AS inside, count() AS times", by = "inside";
  const auto add = [&](const std::string& value, const std::string& name) {
    what += ", " + value + " AS " + name;
    by += ", " + name;
  };
  if (needs_part_) add("agent", "of_agent"), add("batch", "of_batch");
  if (needs_ring_) add("ring", "of_ring");
  if (needs_thread_) add("tid", "of_tid");
  if (needs_flags_) add("flags", "of_flags");
  const std::vector<std::string> names = columns_of(*type);
  for (size_t n = 0; n < names.size(); ++n) {
    const Field& field = type->fields()[n];
    u32 uses = filter_ && filter_->names(field.name) ? 2 : 0;
    const Column* user = nullptr;
    for (const Column& column : columns_)
      if (column.field_in(*type) == &field) ++uses, user = &column;
    if (uses == 0) continue;
    std::string name = names[n];
    auto known = types.find(name);
    if (known == types.end() || known->second != type_of(field))
      known = types.find(name = clickhouse::name_with_type(name, type_of(field)));
    if (known == types.end()) continue;
    const bool usual =
        field.kind == FieldKind::integer && (field.size == 1 || field.size == 2 || field.size == 4 || field.size == 8);
    name = quoted_name(name);
    add(uses == 1 && usual && user->buckets() ? begin_of_bucket(*user, name, type_of(field), field.is_signed) : name,
        "field" + std::to_string(n));
  }
  std::string times;
  for (const Column& column : columns_) {
    if (column.field() != "ts" || column.field_in(*type) != nullptr || !column.in(*type)) continue;
    if (!times.empty()) return false;
    times = begin_of_bucket(column, times_ == ShippedAsRecording::Times::mono ? "mono_ns" : "time_ns", "UInt64", false);
  }
  if (!times.empty()) add(times, "of_time");
  std::string answer;
  const auto blocks = RS_TRY(server_.select(fmt::format("SELECT {} FROM {} WHERE {} AND {} GROUP BY {}", what,
                                                        quoted_name(table), of_machine(machine_), in_range(place_), by),
                                            answer));
  for (const BlockIn& block : blocks) RS_TRY(take(block, table, *type, *numbers.begin(), kernel));
  return true;
}

result<void> Tally::take(const BlockIn& block, const std::string& table, const EventType& type, u32 number, bool kernel) {
  const auto column = [&](bool needed, const char* name, bool text = false) -> result<const ColumnIn*> {
    if (!needed) return nullptr;
    return wanted(block, name, text);
  };
  const ColumnIn *inside = RS_TRY(wanted(block, "inside", false)), *times = RS_TRY(wanted(block, "times", false)),
                 *agent = RS_TRY(column(needs_part_, "of_agent", true)), *batch = RS_TRY(column(needs_part_, "of_batch")),
                 *ring = RS_TRY(column(needs_ring_, "of_ring")), *tid = RS_TRY(column(needs_thread_, "of_tid")),
                 *flags = RS_TRY(column(needs_flags_, "of_flags")),
                 *time = RS_TRY(column(block.column("of_time") != nullptr, "of_time"));
  std::vector<const ColumnIn*> fields;
  for (size_t n = 0; n < type.fields().size(); ++n) {
    const ColumnIn* const field = block.column("field" + std::to_string(n));
    fields.push_back(field != nullptr && fits(type.fields()[n], *field) ? field : nullptr);
  }
  std::vector<u8> payload;
  for (u64 row = 0; row < block.rows; ++row) {
    const auto alike = static_cast<u64>(times->whole(row));
    Part* const part = inside->whole(row) == 0 ? nullptr
                       : needs_part_           ? parts_.of(agent->texts[row], static_cast<u64>(batch->whole(row)))
                                               : &parts_.all().front();
    if (part == nullptr) {
      early_ += alike;
      continue;
    }
    payload.assign(8, 0);
    put_common(type, number, static_cast<u32>(flags != nullptr ? flags->whole(row) : 0),
               static_cast<i32>(tid != nullptr ? tid->whole(row) : 0), payload);
    RS_TRY(put_fields(type, fields, row, payload));
    u32 own = 0;
    if (ring != nullptr)
      own = ring_here(*part, static_cast<u32>(ring->whole(row)));
    else
      own = any_ring(kernel);
    RS_TRY(rows_.add({own, 0, 0, time != nullptr ? static_cast<u64>(time->whole(row)) : 1}, table, payload, alike));
  }
  return {};
}

// Of any part: a ring's number means the same in all.
u32 Tally::ring_here(Part& part, u32 number) {
  if (!needs_part_)
    for (const Part& one : parts_.all())
      if (const auto at = one.rings.find(number); at != one.rings.end()) return at->second;
  return parts_.ring_of(part, number);
}

u32 Tally::any_ring(bool kernel) {
  for (const RecordedRing& ring : parts_.rings())
    if (ring.name.kernel == kernel) return ring.name.ring + (kernel ? RecordingWriter::kernel_rings : 0);
  return parts_.ring_of(parts_.all().front(), kernel ? RecordingWriter::kernel_rings : 0);
}

}  // namespace ringside::shipped
