#include "consumer/shipped.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <ringside/abi/sub_buffer.hpp>
#include <set>
#include <tuple>

#include "analysis/column.hpp"
#include "analysis/filter.hpp"
#include "analysis/names.hpp"
#include "analysis/thread_names.hpp"
#include "consumer/shipped_columns.hpp"
#include "decode/formats.hpp"
#include "export/units.hpp"
#include "source/packer.hpp"
#include "source/recording.hpp"
#include "source/sample_rings.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using clickhouse::BlockIn;
using clickhouse::ColumnIn;
using clickhouse::quoted_name;
using clickhouse::quoted_text;

constexpr u32 subbuf_size = 262144;  // the largest event that was shipped is shorter

result<i64> parse_when(const std::string& text) {
  const auto bad = [&] {
    return refuse(std::errc::invalid_argument,
                  "\"" + text + "\" is no time; write seconds since 1970, 2026-11-24T10:00:00 (UTC) or -10m");
  };
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (text.size() > 1 && text[0] == '-') {
    const auto ago = parse_time(text.substr(1));
    if (!ago || *ago > u64{INT64_MAX} / 2) return bad();
    return now.tv_sec * 1'000'000'000 + now.tv_nsec - static_cast<i64>(*ago);
  }
  tm date{};
  const char* const rest =
      text.size() > 10 ? strptime(text.c_str(), text[10] == 'T' ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &date) : nullptr;
  if (rest != nullptr && (*rest == 0 || std::strcmp(rest, "Z") == 0)) return i64{timegm(&date)} * 1'000'000'000;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0 && seconds < 9e9)) return bad();
  return static_cast<i64>(std::llround(seconds * 1e9));
}

// A block's column of this kind, or an error: what a server answers is not to be trusted.
result<const ColumnIn*> wanted(const BlockIn& block, std::string_view name, bool text) {
  const ColumnIn* const column = block.column(name);
  if (column == nullptr || column->is_array || (column->kind == ColumnIn::Kind::text) != text ||
      column->kind == ColumnIn::Kind::real)
    return refuse(std::errc::bad_message,
                  "the server's table has no column " + std::string(name) + " as `ringside ship` makes it");
  return column;
}

bool has_range(const ShippedAsRecording::Place& place) { return place.from_ns != INT64_MIN || place.to_ns != INT64_MAX; }

// What is from one time to another one (SQL).
std::string in_range(const ShippedAsRecording::Place& place, const char* from = "time_ns", const char* to = "time_ns") {
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

struct Part {
  std::string agent;
  u64 first = 0, last = 0;  // batches
  u32 order = 0;
  std::map<u32, u32> rings{};                 // number there (plus kernel_rings), and here
  std::map<std::string, u32> events{};        // full name, number here (plus kernel_ids)
};

// A row as an event, until all are in order.
struct Row {
  u32 ring = 0, part = 0, number = 0, size = 0;
  u64 time = 0, lost = 0;
  size_t at = 0;  // of its payload
};

// The bytes of a field, from its column.
void put_field(const EventType& type, const Field& field, const ColumnIn& column, u64 row, std::vector<u8>& payload) {
  const auto put = [&](size_t at, std::string_view bytes) {
    if (at + bytes.size() > payload.size()) payload.resize(at + bytes.size());
    std::memcpy(payload.data() + at, bytes.data(), bytes.size());
  };
  // Behind all fixed ones; its place and length in front.
  const auto put_behind = [&](std::string_view bytes, bool ended) {
    const size_t at = payload.size(), length = std::min<size_t>(bytes.size() + (ended ? 1 : 0), 65535);
    if (at > 65535) return;
    payload.resize((at + length + 3) & ~size_t{3});
    std::memcpy(payload.data() + at, bytes.data(), std::min(bytes.size(), length));
    const u32 word = static_cast<u32>(at - (field.relative ? field.offset + 4 : 0)) | static_cast<u32>(length) << 16;
    put(field.offset, {reinterpret_cast<const char*>(&word), sizeof word});
  };
  switch (field.kind) {
    case FieldKind::integer:
      put(field.offset, column.raw(row).substr(0, field.size));
      break;
    case FieldKind::floating:
      put(field.offset, column.raw(row));
      break;
    case FieldKind::text: {
      std::string_view text = column.texts[row];
      if (field.size != 0) text = text.substr(0, field.size);
      put(field.offset, text);
      if (field.size == 0) payload.push_back(0);
      break;
    }
    case FieldKind::loc_text:
      put_behind(column.texts[row], true);
      break;
    case FieldKind::array:
    case FieldKind::loc_array: {
      const u64 begin = column.begin_of(row), count = column.ends[row] - begin;
      const std::string_view bytes = column.raw(begin, count);
      if (is_rest(type, field)) put(field.offset, bytes);
      else if (field.kind == FieldKind::array) put(field.offset, bytes.substr(0, field.size));
      else put_behind(bytes, false);
      break;
    }
  }
}

bool fits(const Field& field, const ColumnIn& column) {
  const bool array = field.kind == FieldKind::array || field.kind == FieldKind::loc_array,
             text = field.kind == FieldKind::text || field.kind == FieldKind::loc_text;
  const u32 size = array ? std::max(field.element, 1u) : field.size;
  return column.type == type_of(field) && column.is_array == array && (column.kind == ColumnIn::Kind::text) == text &&
         (text || column.size == size || size > 8);
}

// Makes the recording of one machine out of its rows.
class Maker {
 public:
  using Place = ShippedAsRecording::Place;
  using Machine = ShippedAsRecording::Machine;
  Maker(const Place& place, const Machine& machine, ShippedAsRecording::Times times, const Tallied* tallied,
        clickhouse::Server& server)
      : place_(place), machine_(machine), times_(times), tallied_(tallied), server_(server) {}

  result<void> make(const std::string& dir) {
    RS_TRY(read_parts(dir));
    const bool tally = tallied_ != nullptr && can_tally();
    if (tally) RS_TRY(read_columns());
    for (const std::string& table : RS_TRY(tables_of_events(server_))) {
      if (names_.count(table) == 0 && table != unknown_events) continue;
      if (!tally || !RS_TRY(tally_table(table))) RS_TRY(read_table(table));
    }
    RS_TRY(read_gaps());
    RS_TRY(read_symbols());
    return write(dir);
  }

  std::vector<std::string> remarks() const {
    std::vector<std::string> out;
    if (filtered_ != 0) out.push_back(counted(filtered_, "event") + " of these recordings not shipped (ship -F, --keep)");
    if (early_ != 0)
      out.push_back(counted(early_, "event is", "events are") + " left out: the rest of their recordings has not arrived yet");
    if (strange_ != 0)
      out.push_back(counted(strange_, "event is", "events are") +
                    " left out: their recordings' description does not name them");
    return out;
  }

 private:
  static constexpr const char* unknown_events = "unknown:unknown";  // of types that no format describes: the payload as a whole

  std::string of_machine() const { return fmt::format("host = {} AND boot = {}", quoted_text(machine_.host), machine_.boot); }

  // Those that reach into the range, and those that have events in it: these may be older than the recording.
  std::string parts_wanted() const {
    std::string out = parts_in_range(place_);
    for (const auto& [agent, batches] : machine_.batches)
      out += fmt::format(" OR (agent = {} AND batch >= {} AND first_batch <= {})", quoted_text(agent), *batches.begin(),
                         *batches.rbegin());
    return "(" + out + ")";
  }
  bool has_events(std::string_view agent, u64 first, u64 last) const {
    const auto of = machine_.batches.find(std::string(agent));
    if (of == machine_.batches.end()) return false;
    const auto batch = of->second.lower_bound(first);
    return batch != of->second.end() && *batch <= last;
  }

  result<void> read_parts(const std::string& dir) {
    std::string answer;
    const auto blocks =
        RS_TRY(server_.select(fmt::format("SELECT agent, first_batch, batch, filtered, description, printk_formats, {} AS "
                                          "reaches FROM parts WHERE {} AND {} ORDER BY time_ns, agent, batch",
                                          parts_in_range(place_), of_machine(), parts_wanted()),
                              answer));
    meta_.complete = true;
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *description = RS_TRY(wanted(block, "description", true)),
                     *texts = RS_TRY(wanted(block, "printk_formats", true));
      const ColumnIn *first = RS_TRY(wanted(block, "first_batch", false)), *last = RS_TRY(wanted(block, "batch", false)),
                     *left_out = RS_TRY(wanted(block, "filtered", false)), *reaches = RS_TRY(wanted(block, "reaches", false));
      for (u64 row = 0; row < block.rows; ++row) {
        Part part{std::string(agent->texts[row]), static_cast<u64>(first->whole(row)), static_cast<u64>(last->whole(row)),
                  static_cast<u32>(parts_.size())};
        if (reaches->whole(row) == 0 && !has_events(part.agent, part.first, part.last)) continue;
        filtered_ += static_cast<u64>(left_out->whole(row));
        if (printk_formats_.size() < texts->texts[row].size()) printk_formats_ = texts->texts[row];
        const std::string file = dir + "/described";
        std::filesystem::create_directories(file);
        RS_TRY(write_file(file + "/meta.json", description->texts[row]));
        RS_TRY(add_part(std::move(part), RS_TRY(RecordingMeta::read(file))));
      }
    }
    for (u32 n = 0; n < parts_.size(); ++n) by_batch_[{parts_[n].agent, parts_[n].last}] = n;
    return {};
  }

  static result<void> write_file(const std::string& path, std::string_view text) {
    const sys::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd) return fail(errno, "cannot write " + path);
    return sys::write_text(fd.get(), path, std::string(text));
  }

  result<void> add_part(Part part, RecordingMeta meta) {
    if (parts_.empty()) {
      meta_.clock = {};
      meta_.start_ns = meta.start_ns;
      meta_.command = meta.command;
    }
    meta_.stop_ns = std::max(meta_.stop_ns, meta.stop_ns);
    meta_.duration_ns += meta.duration_ns;
    meta_.missing.refused += meta.missing.refused;
    meta_.missing.unrecorded += meta.missing.unrecorded;
    complete_ = complete_ && meta.complete;
    if (!meta.complete)
      meta.missing.doubts.push_back("a recorder did not finish; the closing counters are missing, the events are here");
    for (std::string& doubt : meta.missing.doubts)
      if (doubts_.insert(doubt).second) meta_.missing.doubts.push_back(std::move(doubt));
    for (EventInfo& event : meta.events) {
      const std::string full = event.system + ":" + event.name;
      const auto [at, fresh] = ids_.try_emplace(
          {event.kernel, full, event.format.substr(std::min(event.format.find("\nformat:"), event.format.size()))}, 0);
      if (fresh) {
        const auto id = free_id(event.kernel, event.id);
        if (!id)
          return refuse(std::errc::value_too_large, "there are more than 65,535 types of events; ask for a shorter time");
        event.id = *id;
        at->second = event.number();
        formats_.add(at->second, event.system, event.name, event.format);
        meta_.events.push_back(event);
        names_.insert(full);
      }
      part.events[full] = at->second;
    }
    for (const RecordedRing& ring : meta.rings) {
      const RingName& n = ring.name;
      const bool of_cpu = n.kernel || n.cpu >= 0;
      add_ring(part, ring,
               {n.kernel, n.kernel ? static_cast<i32>(n.ring) : n.cpu, of_cpu ? 0 : n.pid, of_cpu ? 0 : n.tid,
                !of_cpu                                    ? part.agent + n.task
                : !n.kernel && n.ring >= first_sample_ring ? "samples"
                                                           : ""});
    }
    for (RingName& thread : meta.threads) threads_[{thread.tid, thread.elsewhere.pid_namespace}] = std::move(thread);
    parts_.push_back(std::move(part));
    return {};
  }

  using RingKey = std::tuple<bool, i32, i32, i32, std::string>;
  u32 add_ring(Part& part, const RecordedRing& ring, const RingKey& key) {
    const RingName& n = ring.name;
    const auto [at, fresh] = ring_numbers_.try_emplace(key, 0);
    if (fresh) {
      RecordedRing own;
      own.name = n;
      own.way = ring.way;
      if (!n.kernel) {
        while (!ring_taken_.insert(own.name.ring).second) ++own.name.ring;
      }
      own.subbuf_size = subbuf_size;
      at->second = own.name.ring + (n.kernel ? RecordingWriter::kernel_rings : 0);
      rings_.push_back(own);
    }
    return part.rings[n.ring + (n.kernel ? RecordingWriter::kernel_rings : 0)] = at->second;
  }
  // The recorder may have been killed before it listed a ring: then this has a number, and no name.
  u32 ring_of(Part& part, u32 number) {
    if (const auto at = part.rings.find(number); at != part.rings.end()) return at->second;
    RecordedRing ring;
    ring.name.kernel = number >= RecordingWriter::kernel_rings;
    ring.name.ring = number - (ring.name.kernel ? RecordingWriter::kernel_rings : 0);
    return add_ring(
        part, ring,
        {ring.name.kernel, static_cast<i32>(ring.name.ring), 0, 0, ring.name.kernel ? "" : part.agent + "/unlisted"});
  }
  // The number of an event that no format describes, here; none: too many types.
  std::optional<u32> number_of_unknown(bool kernel, std::string_view payload) {
    u16 id = 0;
    if (payload.size() >= sizeof id) std::memcpy(&id, payload.data(), sizeof id);
    const auto [at, fresh] = ids_.try_emplace({kernel, unknown_events, std::to_string(id)}, 0);
    if (fresh) {
      const auto own = free_id(kernel, id);
      if (!own) return std::nullopt;
      at->second = *own + (kernel ? kernel_ids : 0);
    }
    return at->second;
  }
  // Its own number, unless another type has it.
  std::optional<u16> free_id(bool kernel, u32 id) {
    u32& next = next_id_[kernel];
    if (!taken_.insert({kernel, id}).second) {
      while (next < 65536 && !taken_.insert({kernel, next}).second) ++next;
      if (next >= 65536) return std::nullopt;
      id = next;
    }
    return static_cast<u16>(id);
  }

  Part* part_of(std::string_view agent, u64 batch) {
    if (last_part_ != nullptr && last_part_->first <= batch && batch <= last_part_->last && last_part_->agent == agent)
      return last_part_;
    const auto at = by_batch_.lower_bound({std::string(agent), batch});
    if (at == by_batch_.end() || at->first.first != agent || parts_[at->second].first > batch) return nullptr;
    return last_part_ = &parts_[at->second];
  }

  result<void> read_table(const std::string& table) {
    std::string answer;
    const auto blocks = RS_TRY(
        server_.select("SELECT * FROM " + quoted_name(table) + " WHERE " + of_machine() + " AND " + in_range(place_), answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *batch = RS_TRY(wanted(block, "batch", false)),
                     *ring = RS_TRY(wanted(block, "ring", false)), *number = RS_TRY(wanted(block, "number", false)),
                     *tid = RS_TRY(wanted(block, "tid", false)), *flags = RS_TRY(wanted(block, "flags", false)),
                     *time = RS_TRY(wanted(block, times_ == ShippedAsRecording::Times::mono ? "mono_ns" : "time_ns", false));
      const ColumnIn* const whole = block.column("payload");
      std::map<u32, std::vector<const ColumnIn*>> columns;  // of each type, in the order of its fields
      std::vector<u8> payload;
      for (u64 row = 0; row < block.rows; ++row) {
        Part* const part = part_of(agent->texts[row], static_cast<u64>(batch->whole(row)));
        if (part == nullptr) {
          ++early_;
          continue;
        }
        const auto place = static_cast<u32>(ring->whole(row));
        std::optional<u32> event;
        if (const auto known = part->events.find(table); known != part->events.end()) event = known->second;
        else if (table == unknown_events && whole != nullptr && whole->kind == ColumnIn::Kind::text && !whole->is_array)
          event = number_of_unknown(place >= RecordingWriter::kernel_rings, whole->texts[row]);
        if (!event) {
          ++strange_;
          continue;
        }
        const u32 own_ring = ring_of(*part, place);
        const EventType* const type = formats_.find(*event);
        const u16 id = static_cast<u16>(*event);
        payload.assign(8, 0);
        if (type == nullptr || !type->parsed()) {
          if (whole != nullptr && whole->kind == ColumnIn::Kind::text && !whole->is_array)
            payload.assign(whole->texts[row].begin(), whole->texts[row].end());
          if (payload.size() < 8) payload.resize(8);
        } else {
          auto [own, fresh] = columns.try_emplace(*event);
          if (fresh) {
            for (const Field& field : type->fields()) {
              const ColumnIn* column = block.column(column_of(field.name));
              if (column == nullptr || !fits(field, *column))
                column = block.column(clickhouse::name_with_type(column_of(field.name), type_of(field)));
              own->second.push_back(column != nullptr && fits(field, *column) ? column : nullptr);
            }
          }
          const u16 common_flags = static_cast<u16>(flags->whole(row));
          const i32 common_pid = static_cast<i32>(tid->whole(row));
          std::memcpy(payload.data() + 2, &common_flags, 2);
          if (type->has_tid()) std::memcpy(payload.data() + 4, &common_pid, 4);
          RS_TRY(put_fields(*type, own->second, row, payload));
        }
        std::memcpy(payload.data(), &id, 2);
        RS_TRY(
            add_row({own_ring, part->order, static_cast<u32>(number->whole(row)), 0, static_cast<u64>(time->whole(row)), 0, 0},
                    table, payload, 1));
      }
    }
    return {};
  }

  static result<void> put_fields(const EventType& type, const std::vector<const ColumnIn*>& columns, u64 row,
                                 std::vector<u8>& payload) {
    // All fixed ones first: the others lie behind them.
    size_t fixed = 8;
    for (const Field& field : type.fields())
      fixed = std::max<size_t>(fixed, field.offset + (is_rest(type, field) ? 0 : field.size));
    if (fixed > subbuf_size / 2)
      return refuse(std::errc::bad_message, "the format of " + type.full + " has an event of " + format_size(fixed));
    payload.resize(fixed);
    for (size_t n = 0; n < type.fields().size(); ++n)
      if (columns[n] != nullptr) put_field(type, type.fields()[n], *columns[n], row, payload);
    return {};
  }

  result<void> add_row(Row row, const std::string& table, std::vector<u8>& payload, u64 times) {
    if (tallied_ != nullptr) {
      payload.resize((payload.size() + 3) & ~size_t{3});
      payload.resize(payload.size() + sizeof times);
      std::memcpy(payload.data() + payload.size() - sizeof times, &times, sizeof times);
      row.part = row.number = 0;  // no order matters, but that of times
    }
    if (payload.size() > subbuf_size / 2)
      return refuse(std::errc::bad_message, "an event of " + table + " has " + format_size(payload.size()));
    row.size = static_cast<u32>(payload.size());
    row.at = payloads_.size();
    rows_.push_back(row);
    payloads_.insert(payloads_.end(), payload.begin(), payload.end());
    return {};
  }

  // Whether events that are alike in what is asked for are alike in the answer: nothing of it depends on what was before.
  bool can_tally() {
    bool kernel = false, threads = false;
    for (const RecordedRing& ring : rings_) {
      kernel = kernel || ring.name.kernel;
      threads = threads || ring.name.of_a_thread();
    }
    const auto in_order = [&](std::string_view name) {
      if (name == "stack") return true;
      if (name == "cpu" || name == "CPU") return kernel && threads;
      return kernel && std::find(std::begin(told_by_events), std::end(told_by_events), name) != std::end(told_by_events);
    };
    for (const std::string& text : tallied_->columns) {
      auto column = Column::compile(text, formats_, tasks_);
      if (!column || column->of_stacks() || column->shows_names()) return false;
      if (!column->of_fields() && (in_order(column->field()) || (column->field() == "ts" && column->bucket_width() == 0)))
        return false;
      columns_.push_back(std::move(*column));
    }
    if (!tallied_->filter.empty()) {
      auto filter = Filter::compile(tallied_->filter, formats_, tasks_);
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
    for (const Part& part : parts_)
      for (const auto& [there, here] : part.rings)
        needs_part_ = rings.try_emplace(there, here).first->second != here || needs_part_;
    needs_part_ = needs_part_ && needs_ring_;
    return complete_;
  }

  // Whether a row's part is here (SQL). False: that would be too long.
  bool find_inside() {
    constexpr size_t most_ranges = 500;
    std::map<std::string, std::map<u64, u64>> ranges;  // of each agent: first and last batch
    size_t all = 0;
    for (const auto& [key, n] : by_batch_) {
      auto& of_agent = ranges[key.first];
      if (!of_agent.empty() && of_agent.rbegin()->second + 1 == parts_[n].first) of_agent.rbegin()->second = key.second;
      else of_agent[parts_[n].first] = key.second, ++all;
    }
    for (const auto& [agent, of_agent] : ranges)
      for (const auto& [first, last] : of_agent)
        inside_ += fmt::format("{}(agent = {} AND batch >= {} AND batch <= {})", inside_.empty() ? "" : " OR ",
                               quoted_text(agent), first, last);
    return all != 0 && all <= most_ranges;
  }

  result<void> read_columns() {
    std::string answer;
    for (const BlockIn& block : RS_TRY(server_.select(
             "SELECT table, name, type FROM system.columns WHERE database = " + quoted_text(place_.address.database),
             answer))) {
      const ColumnIn *table = RS_TRY(wanted(block, "table", true)), *name = RS_TRY(wanted(block, "name", true)),
                     *type = RS_TRY(wanted(block, "type", true));
      for (u64 row = 0; row < block.rows; ++row)
        types_[std::string(table->texts[row])][std::string(name->texts[row])] = type->texts[row];
    }
    return {};
  }

  // A value of the same bucket, so that there are few of them (SQL).
  static std::string begin_of_bucket(const Column& column, const std::string& value, const std::string& type, bool is_signed) {
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

  // False: its rows are read one by one.
  result<bool> tally_table(const std::string& table) {
    std::set<u32> numbers;
    for (const Part& part : parts_)
      if (const auto at = part.events.find(table); at != part.events.end()) numbers.insert(at->second);
    const EventType* const type = numbers.size() == 1 ? formats_.find(*numbers.begin()) : nullptr;
    if (type == nullptr || !type->parsed()) return false;
    if (!tallied_->only.empty() && !matches(tallied_->only, *type)) return true;
    const bool kernel = *numbers.begin() >= kernel_ids;
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
    for (size_t n = 0; n < type->fields().size(); ++n) {
      const Field& field = type->fields()[n];
      u32 uses = filter_ && filter_->names(field.name) ? 2 : 0;
      const Column* user = nullptr;
      for (const Column& column : columns_)
        if (column.field_in(*type) == &field) ++uses, user = &column;
      if (uses == 0) continue;
      std::string name = column_of(field.name);
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
                                                          quoted_name(table), of_machine(), in_range(place_), by),
                                              answer));
    for (const BlockIn& block : blocks) RS_TRY(take_tally(block, table, *type, *numbers.begin(), kernel));
    return true;
  }

  result<void> take_tally(const BlockIn& block, const std::string& table, const EventType& type, u32 number, bool kernel) {
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
                         : needs_part_           ? part_of(agent->texts[row], static_cast<u64>(batch->whole(row)))
                                                 : &parts_.front();
      if (part == nullptr) {
        early_ += alike;
        continue;
      }
      payload.assign(8, 0);
      const auto id = static_cast<u16>(number);
      const auto common_flags = static_cast<u16>(flags != nullptr ? flags->whole(row) : 0);
      const auto common_pid = static_cast<i32>(tid != nullptr ? tid->whole(row) : 0);
      std::memcpy(payload.data(), &id, 2);
      std::memcpy(payload.data() + 2, &common_flags, 2);
      if (type.has_tid()) std::memcpy(payload.data() + 4, &common_pid, 4);
      RS_TRY(put_fields(type, fields, row, payload));
      u32 own = 0;
      if (ring != nullptr) own = ring_here(*part, static_cast<u32>(ring->whole(row)));
      else own = any_ring(kernel);
      RS_TRY(add_row({own, 0, 0, 0, time != nullptr ? static_cast<u64>(time->whole(row)) : 1, 0, 0}, table, payload, alike));
    }
    return {};
  }

  // Of any part: a ring's number means the same in all.
  u32 ring_here(Part& part, u32 number) {
    if (!needs_part_)
      for (const Part& one : parts_)
        if (const auto at = one.rings.find(number); at != one.rings.end()) return at->second;
    return ring_of(part, number);
  }
  u32 any_ring(bool kernel) {
    for (const RecordedRing& ring : rings_)
      if (ring.name.kernel == kernel) return ring.name.ring + (kernel ? RecordingWriter::kernel_rings : 0);
    return ring_of(parts_.front(), kernel ? RecordingWriter::kernel_rings : 0);
  }

  result<void> read_gaps() {
    std::string answer;
    const auto blocks = RS_TRY(server_.select("SELECT agent, batch, ring, number, count, why FROM losses WHERE " +
                                                  of_machine() + " AND " + in_range(place_, "from_ns", "time_ns"),
                                              answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *why = RS_TRY(wanted(block, "why", true)),
                     *batch = RS_TRY(wanted(block, "batch", false)), *ring = RS_TRY(wanted(block, "ring", false)),
                     *number = RS_TRY(wanted(block, "number", false)), *count = RS_TRY(wanted(block, "count", false));
      for (u64 row = 0; row < block.rows; ++row) {
        const auto lost = static_cast<u64>(count->whole(row));
        if (why->texts[row] == "spool full") meta_.missing.unrecorded += lost;
        Part* const part = why->texts[row] == "gap" ? part_of(agent->texts[row], static_cast<u64>(batch->whole(row))) : nullptr;
        if (part == nullptr) continue;
        const u32 own_ring = ring_of(*part, static_cast<u32>(ring->whole(row)));
        if (tallied_ != nullptr) rows_.push_back({own_ring, 0, 0, 0, 0, lost, 0});
        else rows_.push_back({own_ring, part->order, static_cast<u32>(number->whole(row)), 0, 0, lost, 0});
      }
    }
    return {};
  }

  // The newest ones of this boot.
  result<void> read_symbols() {
    if (RS_TRY(server_.count("SELECT count() FROM system.tables WHERE database = " + quoted_text(place_.address.database) +
                             " AND name = 'kernel_symbols'")) == 0)
      return {};
    std::string answer;
    for (const BlockIn& block : RS_TRY(server_.select(
             "SELECT text FROM kernel_symbols WHERE " + of_machine() + " ORDER BY time_ns DESC LIMIT 1", answer))) {
      const ColumnIn* const text = RS_TRY(wanted(block, "text", true));
      if (block.rows != 0) symbols_ = text->texts[0];
    }
    return {};
  }

  result<void> write(const std::string& dir) {
    std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
      return std::tie(a.ring, a.part, a.number, a.time) < std::tie(b.ring, b.part, b.number, b.time);
    });
    auto writer = RS_TRY(RecordingWriter::create(dir + "/recording", {}));
    RecordingMeta& meta = writer.meta();
    const u64 duration = meta_.duration_ns;
    meta.boot = machine_.boot_id;
    meta.command = meta_.command;
    meta.events = meta_.events;
    for (auto& [key, thread] : threads_) meta.threads.push_back(thread);
    meta.missing = meta_.missing;
    if (!printk_formats_.empty()) RS_TRY(writer.keep("printk_formats", printk_formats_));
    if (!symbols_.empty()) RS_TRY(writer.keep("kallsyms", symbols_));
    for (const RecordedRing& ring : rings_) RS_TRY(writer.add_ring(ring.name, subbuf_size));
    for (size_t at = 0; at < rows_.size();) {
      const u32 ring = rows_[at].ring;
      Packer packer(subbuf_size);
      u64 lost_at_end = 0;
      for (; at < rows_.size() && rows_[at].ring == ring; ++at) {
        const Row& row = rows_[at];
        if (row.lost != 0) {
          lost_at_end += row.lost;
          continue;
        }
        const Bytes payload{payloads_.data() + row.at, row.size};
        if (lost_at_end != 0 && packer.pending()) RS_TRY(writer.append(ring, packer.take()));
        if (lost_at_end != 0) {
          packer.restart();
          packer.lost(std::exchange(lost_at_end, 0));
        }
        if (packer.add(row.time, payload)) continue;
        if (packer.pending()) RS_TRY(writer.append(ring, packer.take()));
        packer.restart();
        if (!packer.add(row.time, payload))
          return refuse(std::errc::bad_message, "an event of " + format_size(row.size) + " has no place in a recording");
      }
      if (packer.pending()) RS_TRY(writer.append(ring, packer.take()));
      meta.missing.unrecorded += lost_at_end;
    }
    RS_TRY(writer.finish(duration));
    meta.start_ns = meta_.start_ns;
    return writer.save();
  }

  const Place& place_;
  const Machine& machine_;
  ShippedAsRecording::Times times_;
  const Tallied* tallied_;
  clickhouse::Server& server_;
  RecordingMeta meta_;
  std::string printk_formats_, symbols_;
  Formats formats_;
  std::vector<Part> parts_;
  Part* last_part_ = nullptr;
  std::map<std::pair<std::string, u64>, u32> by_batch_;  // agent and last batch
  std::map<std::tuple<bool, std::string, std::string>, u32> ids_;
  std::set<std::pair<bool, u32>> taken_;
  std::map<bool, u32> next_id_{{false, 1}, {true, 1}};
  std::set<std::string> names_;
  std::map<RingKey, u32> ring_numbers_;
  std::set<u32> ring_taken_;
  std::vector<RecordedRing> rings_;
  std::map<std::pair<i32, u64>, RingName> threads_;
  std::vector<Row> rows_;
  std::vector<u8> payloads_;
  std::set<std::string> doubts_;  // that were told
  u64 filtered_ = 0, early_ = 0, strange_ = 0;
  // What the server adds up.
  Tasks tasks_;
  std::vector<Column> columns_;
  std::optional<Filter> filter_;
  std::map<std::string, std::map<std::string, std::string>> types_;  // table, column, type
  std::string inside_;
  bool needs_thread_ = false, needs_ring_ = false, needs_flags_ = false, needs_part_ = false, complete_ = true;
};

}  // namespace

result<ShippedAsRecording::Place> ShippedAsRecording::Place::parse(const std::string& where) {
  Place place;
  place.address = RS_TRY(clickhouse::Address::parse(where));
  for (const auto& [name, value] : std::exchange(place.address.more, {})) {
    if (name == "from") {
      place.from_ns = RS_TRY(parse_when(value));
    } else if (name == "to") {
      place.to_ns = RS_TRY(parse_when(value));
    } else if (name == "config") {
      place.login = RS_TRY(clickhouse::Login::read(value));
    } else if (name == "hosts") {
      for (size_t at = 0; at <= value.size();) {
        const size_t end = std::min(value.find(',', at), value.size());
        if (end > at) place.hosts.push_back(value.substr(at, end - at));
        at = end + 1;
      }
    } else {
      return refuse(std::errc::invalid_argument,
                    place.address.show() + ": behind the ? stand hosts=, from=, to= and config=, not " + name + "=");
    }
  }
  return place;
}

result<std::vector<ShippedAsRecording::Machine>> ShippedAsRecording::machines(const Place& place) {
  const auto server = RS_TRY(clickhouse::Server::open(place.address, place.login));
  server->most_answer(u64{4} << 30);
  std::string hosts, answer;
  for (const std::string& host : place.hosts) hosts += (hosts.empty() ? "" : ", ") + quoted_text(host);
  if (!hosts.empty()) hosts = " AND host IN (" + hosts + ")";
  // An event may be older than the part that holds it, so the events themselves tell which parts are wanted.
  std::map<std::pair<std::string, u64>, Machine> with_events;  // host, boot
  std::set<u64> boots;
  for (const std::string& table : has_range(place) ? RS_TRY(tables_of_events(*server)) : std::vector<std::string>{}) {
    const auto blocks =
        RS_TRY(server->select("SELECT host, boot, agent, batch, max(error_ns) AS error FROM " + quoted_name(table) + " WHERE " +
                                  in_range(place) + hosts + " GROUP BY host, boot, agent, batch",
                              answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *host = RS_TRY(wanted(block, "host", true)), *agent = RS_TRY(wanted(block, "agent", true)),
                     *boot = RS_TRY(wanted(block, "boot", false)), *batch = RS_TRY(wanted(block, "batch", false)),
                     *error = RS_TRY(wanted(block, "error", false));
      for (u64 row = 0; row < block.rows; ++row) {
        Machine& machine = with_events[{std::string(host->texts[row]), static_cast<u64>(boot->whole(row))}];
        machine.error_ns = std::max(machine.error_ns, static_cast<u64>(error->whole(row)));
        machine.batches[std::string(agent->texts[row])].insert(static_cast<u64>(batch->whole(row)));
        boots.insert(static_cast<u64>(boot->whole(row)));
      }
    }
  }
  const std::string reaches = parts_in_range(place);
  const auto blocks = RS_TRY(
      server->select(fmt::format("SELECT host, boot, boot_id, max({0}) AS any_reaches, max(({0}) * error_ns) AS error FROM "
                                 "parts WHERE ({0}{1}){2} GROUP BY host, boot, boot_id ORDER BY host, min(time_ns)",
                                 reaches, boots.empty() ? "" : fmt::format(" OR boot IN ({})", fmt::join(boots, ", ")), hosts),
                     answer));
  std::vector<Machine> machines;
  for (const BlockIn& block : blocks) {
    const ColumnIn *host = RS_TRY(wanted(block, "host", true)), *boot_id = RS_TRY(wanted(block, "boot_id", true)),
                   *boot = RS_TRY(wanted(block, "boot", false)), *error = RS_TRY(wanted(block, "error", false)),
                   *any = RS_TRY(wanted(block, "any_reaches", false));
    for (u64 row = 0; row < block.rows; ++row) {
      Machine machine{std::string(host->texts[row]), std::string(boot_id->texts[row]), static_cast<u64>(boot->whole(row)),
                      static_cast<u64>(error->whole(row))};
      if (const auto at = with_events.find({machine.host, machine.boot}); at != with_events.end()) {
        machine.error_ns = std::max(machine.error_ns, at->second.error_ns);
        machine.batches = std::move(at->second.batches);
      } else if (any->whole(row) == 0) {
        continue;
      }
      machines.push_back(std::move(machine));
    }
  }
  if (machines.empty())
    return refuse(std::errc::no_such_file_or_directory,
                  place.address.show() +
                      " has nothing of these machines in this time; SELECT DISTINCT host FROM parts lists the machines");
  return machines;
}

result<std::unique_ptr<ShippedAsRecording>> ShippedAsRecording::read(const Place& place, const Machine& machine, Times times,
                                                                     const Tallied* tallied) {
  const char* const tmp = std::getenv("TMPDIR");
  std::string dir = std::string(tmp != nullptr && *tmp != 0 ? tmp : "/tmp") + "/ringside-shipped-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr)
    return fail(errno,
                "cannot make a directory for the events of " + machine.host + " (" + dir + "; TMPDIR names another place)");
  std::unique_ptr<ShippedAsRecording> made(new ShippedAsRecording(dir));
  const auto server = RS_TRY(clickhouse::Server::open(place.address, place.login));
  server->most_answer(u64{4} << 30);
  Maker maker(place, machine, times, tallied, *server);
  made->tallied_ = tallied != nullptr;
  RS_TRY(maker.make(dir));
  made->remarks_ = maker.remarks();
  return made;
}

ShippedAsRecording::~ShippedAsRecording() {
  std::error_code none;
  std::filesystem::remove_all(dir_, none);
}

}  // namespace ringside
