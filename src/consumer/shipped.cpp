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
#include <ringside/abi/sub_buffer.hpp>
#include <set>
#include <tuple>

#include "consumer/shipped_columns.hpp"
#include "decode/formats.hpp"
#include "export/units.hpp"
#include "source/packer.hpp"
#include "source/recording.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using clickhouse::BlockIn;
using clickhouse::ColumnIn;
using clickhouse::quoted_name;
using clickhouse::quoted_text;

constexpr u32 subbuf_size = 262144;  // the largest event that was shipped is shorter

result<i64> parse_when(const std::string& text) {
  const auto bad = [&] { return refuse(std::errc::invalid_argument, "\"" + text + "\" is no time; write seconds since 1970, 2026-11-24T10:00:00 (UTC) or -10m"); };
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (text.size() > 1 && text[0] == '-') {
    const auto ago = parse_time(text.substr(1));
    if (!ago || *ago > u64{INT64_MAX} / 2) return bad();
    return now.tv_sec * 1'000'000'000 + now.tv_nsec - static_cast<i64>(*ago);
  }
  tm date{};
  const char* const rest = text.size() > 10 ? strptime(text.c_str(), text[10] == 'T' ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &date) : nullptr;
  if (rest != nullptr && (*rest == 0 || std::strcmp(rest, "Z") == 0)) return i64{timegm(&date)} * 1'000'000'000;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0 && seconds < 9e9)) return bad();
  return static_cast<i64>(std::llround(seconds * 1e9));
}

// A block's column of this kind, or an error: what a server answers is not to be trusted.
result<const ColumnIn*> wanted(const BlockIn& block, std::string_view name, bool text) {
  const ColumnIn* const column = block.column(name);
  if (column == nullptr || column->is_array || (column->kind == ColumnIn::Kind::text) != text || column->kind == ColumnIn::Kind::real)
    return refuse(std::errc::bad_message, "the server's table has no column " + std::string(name) + " as `ringside ship` makes it");
  return column;
}

std::string in_range(const ShippedAsRecording::Place& place) {
  std::string out;
  if (place.from_ns != INT64_MIN) out += fmt::format(" AND time_ns >= {}", place.from_ns);
  if (place.to_ns != INT64_MAX) out += fmt::format(" AND time_ns < {}", place.to_ns);
  return out;
}

// Of parts: they begin before the range's end, and end behind its begin.
std::string parts_in_range(const ShippedAsRecording::Place& place) {
  std::string out;
  if (place.from_ns != INT64_MIN) out += fmt::format(" AND time_ns + toInt64(duration_ns) >= {}", place.from_ns);
  if (place.to_ns != INT64_MAX) out += fmt::format(" AND time_ns < {}", place.to_ns);
  return out;
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
void put_field(const Field& field, const ColumnIn& column, u64 row, std::vector<u8>& payload) {
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
      if (field.kind == FieldKind::array) put(field.offset, bytes.substr(0, field.size));
      else put_behind(bytes, false);
      break;
    }
  }
}

bool fits(const Field& field, const ColumnIn& column) {
  const bool array = field.kind == FieldKind::array || field.kind == FieldKind::loc_array, text = field.kind == FieldKind::text || field.kind == FieldKind::loc_text;
  const u32 size = array ? std::max(field.element, 1u) : field.size;
  return column.type == type_of(field) && column.is_array == array && (column.kind == ColumnIn::Kind::text) == text && (text || column.size == size || size > 8);
}

// Makes the recording of one machine out of its rows.
class Maker {
 public:
  using Place = ShippedAsRecording::Place;
  using Machine = ShippedAsRecording::Machine;
  Maker(const Place& place, const Machine& machine, ShippedAsRecording::Times times, clickhouse::Server& server) : place_(place), machine_(machine), times_(times), server_(server) {}

  result<void> make(const std::string& dir, u64& filtered) {
    RS_TRY(read_parts(dir, filtered));
    std::string answer;
    std::vector<std::string> tables;
    for (const BlockIn& block : RS_TRY(server_.select("SELECT name FROM system.tables WHERE database = " + quoted_text(place_.address.database) + " AND position(name, ':') != 0", answer))) {
      const ColumnIn* const name = RS_TRY(wanted(block, "name", true));
      for (const auto& one : name->texts)
        if (names_.count(std::string(one)) != 0) tables.emplace_back(one);
    }
    for (const std::string& table : tables) RS_TRY(read_table(table));
    RS_TRY(read_gaps());
    return write(dir);
  }

 private:
  std::string of_machine() const { return fmt::format("host = {} AND boot = {}", quoted_text(machine_.host), machine_.boot); }

  result<void> read_parts(const std::string& dir, u64& filtered) {
    std::string answer;
    const auto blocks = RS_TRY(server_.select("SELECT agent, first_batch, batch, filtered, description, printk_formats FROM parts WHERE " + of_machine() + parts_in_range(place_) + " ORDER BY time_ns, agent, batch", answer));
    meta_.complete = true;
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *description = RS_TRY(wanted(block, "description", true)), *texts = RS_TRY(wanted(block, "printk_formats", true));
      const ColumnIn *first = RS_TRY(wanted(block, "first_batch", false)), *last = RS_TRY(wanted(block, "batch", false)), *left_out = RS_TRY(wanted(block, "filtered", false));
      for (u64 row = 0; row < block.rows; ++row) {
        filtered += static_cast<u64>(left_out->whole(row));
        if (printk_formats_.size() < texts->texts[row].size()) printk_formats_ = texts->texts[row];
        const std::string file = dir + "/described";
        std::filesystem::create_directories(file);
        RS_TRY(write_file(file + "/meta.json", description->texts[row]));
        RS_TRY(add_part({std::string(agent->texts[row]), static_cast<u64>(first->whole(row)), static_cast<u64>(last->whole(row)), static_cast<u32>(parts_.size())}, RS_TRY(RecordingMeta::read(file))));
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
    for (std::string& doubt : meta.missing.doubts) meta_.missing.doubts.push_back(std::move(doubt));
    for (EventInfo& event : meta.events) {
      const std::string full = event.system + ":" + event.name;
      const auto [at, fresh] = ids_.try_emplace({event.kernel, full, event.format.substr(std::min(event.format.find("\nformat:"), event.format.size()))}, 0);
      if (fresh) {
        u32& next = next_id_[event.kernel];
        // Its own number, unless another one has it.
        u32 id = event.id;
        if (!taken_.insert({event.kernel, id}).second) {
          while (next < 65536 && !taken_.insert({event.kernel, next}).second) ++next;
          if (next >= 65536) return refuse(std::errc::value_too_large, "there are more than 65,535 types of events; ask for a shorter time");
          id = next;
        }
        event.id = static_cast<u16>(id);
        at->second = event.number();
        formats_.add(at->second, event.system, event.name, event.format);
        meta_.events.push_back(event);
        names_.insert(full);
      }
      part.events[full] = at->second;
    }
    for (const RecordedRing& ring : meta.rings) {
      const RingName& n = ring.name;
      const auto [at, fresh] = ring_numbers_.try_emplace({n.kernel, n.kernel ? static_cast<i32>(n.ring) : n.cpu, n.kernel || n.cpu >= 0 ? 0 : n.pid, n.kernel || n.cpu >= 0 ? 0 : n.tid, n.kernel || n.cpu >= 0 ? "" : part.agent + n.task}, 0);
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
      part.rings[n.ring + (n.kernel ? RecordingWriter::kernel_rings : 0)] = at->second;
    }
    for (RingName& thread : meta.threads) threads_[{thread.tid, thread.elsewhere.pid_namespace}] = std::move(thread);
    parts_.push_back(std::move(part));
    return {};
  }

  const Part* part_of(std::string_view agent, u64 batch) {
    if (last_part_ != nullptr && last_part_->first <= batch && batch <= last_part_->last && last_part_->agent == agent) return last_part_;
    const auto at = by_batch_.lower_bound({std::string(agent), batch});
    if (at == by_batch_.end() || at->first.first != agent || parts_[at->second].first > batch) return nullptr;
    return last_part_ = &parts_[at->second];
  }

  result<void> read_table(const std::string& table) {
    std::string answer;
    const auto blocks = RS_TRY(server_.select("SELECT * FROM " + quoted_name(table) + " WHERE " + of_machine() + in_range(place_), answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *batch = RS_TRY(wanted(block, "batch", false)), *ring = RS_TRY(wanted(block, "ring", false)), *number = RS_TRY(wanted(block, "number", false)),
                     *tid = RS_TRY(wanted(block, "tid", false)), *flags = RS_TRY(wanted(block, "flags", false)), *time = RS_TRY(wanted(block, times_ == ShippedAsRecording::Times::mono ? "mono_ns" : "time_ns", false));
      const ColumnIn* const whole = block.column("payload");
      std::map<u32, std::vector<const ColumnIn*>> columns;  // of each type, in the order of its fields
      std::vector<u8> payload;
      for (u64 row = 0; row < block.rows; ++row) {
        const Part* const part = part_of(agent->texts[row], static_cast<u64>(batch->whole(row)));
        if (part == nullptr) continue;  // its part is not complete yet
        const auto event = part->events.find(table);
        const auto own_ring = part->rings.find(static_cast<u32>(ring->whole(row)));
        if (event == part->events.end() || own_ring == part->rings.end()) return refuse(std::errc::bad_message, "the rows of " + table + " and the description of their part do not agree");
        const EventType* const type = formats_.find(event->second);
        const u16 id = static_cast<u16>(event->second);
        payload.assign(8, 0);
        if (type == nullptr || !type->parsed) {
          if (whole != nullptr && whole->kind == ColumnIn::Kind::text && !whole->is_array) payload.assign(whole->texts[row].begin(), whole->texts[row].end());
          if (payload.size() < 8) payload.resize(8);
        } else {
          auto [own, fresh] = columns.try_emplace(event->second);
          if (fresh) {
            for (const Field& field : type->fields) {
              const ColumnIn* column = block.column(column_of(field.name));
              if (column == nullptr || !fits(field, *column)) column = block.column(clickhouse::name_with_type(column_of(field.name), type_of(field)));
              own->second.push_back(column != nullptr && fits(field, *column) ? column : nullptr);
            }
          }
          const u16 common_flags = static_cast<u16>(flags->whole(row));
          const i32 common_pid = static_cast<i32>(tid->whole(row));
          std::memcpy(payload.data() + 2, &common_flags, 2);
          if (type->has_tid) std::memcpy(payload.data() + 4, &common_pid, 4);
          // All fixed ones first: the others lie behind them.
          size_t fixed = 8;
          for (const Field& field : type->fields) fixed = std::max<size_t>(fixed, field.offset + field.size);
          if (fixed > subbuf_size / 2) return refuse(std::errc::bad_message, "the format of " + table + " has an event of " + format_size(fixed));
          payload.resize(fixed);
          for (size_t n = 0; n < type->fields.size(); ++n)
            if (own->second[n] != nullptr) put_field(type->fields[n], *own->second[n], row, payload);
        }
        std::memcpy(payload.data(), &id, 2);
        if (payload.size() > subbuf_size / 2) return refuse(std::errc::bad_message, "an event of " + table + " has " + format_size(payload.size()));
        rows_.push_back({own_ring->second, part->order, static_cast<u32>(number->whole(row)), static_cast<u32>(payload.size()), static_cast<u64>(time->whole(row)), 0, payloads_.size()});
        payloads_.insert(payloads_.end(), payload.begin(), payload.end());
      }
    }
    return {};
  }

  result<void> read_gaps() {
    std::string answer;
    const auto blocks = RS_TRY(server_.select("SELECT agent, batch, ring, number, count, why FROM losses WHERE " + of_machine() + in_range(place_), answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *why = RS_TRY(wanted(block, "why", true)), *batch = RS_TRY(wanted(block, "batch", false)), *ring = RS_TRY(wanted(block, "ring", false)),
                     *number = RS_TRY(wanted(block, "number", false)), *count = RS_TRY(wanted(block, "count", false));
      for (u64 row = 0; row < block.rows; ++row) {
        const auto lost = static_cast<u64>(count->whole(row));
        if (why->texts[row] == "spool full") meta_.missing.unrecorded += lost;
        const Part* const part = why->texts[row] == "gap" ? part_of(agent->texts[row], static_cast<u64>(batch->whole(row))) : nullptr;
        if (part == nullptr) continue;
        const auto own_ring = part->rings.find(static_cast<u32>(ring->whole(row)));
        if (own_ring != part->rings.end()) rows_.push_back({own_ring->second, part->order, static_cast<u32>(number->whole(row)), 0, 0, lost, 0});
      }
    }
    return {};
  }

  result<void> write(const std::string& dir) {
    std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return std::tie(a.ring, a.part, a.number) < std::tie(b.ring, b.part, b.number); });
    auto writer = RS_TRY(RecordingWriter::create(dir + "/recording", {}));
    RecordingMeta& meta = writer.meta();
    const u64 duration = meta_.duration_ns;
    meta.boot = machine_.boot_id;
    meta.command = meta_.command;
    meta.events = meta_.events;
    for (auto& [key, thread] : threads_) meta.threads.push_back(thread);
    meta.missing = meta_.missing;
    if (!printk_formats_.empty()) RS_TRY(writer.keep("printk_formats", printk_formats_));
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
        if (!packer.add(row.time, payload)) return refuse(std::errc::bad_message, "an event of " + format_size(row.size) + " has no place in a recording");
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
  clickhouse::Server& server_;
  RecordingMeta meta_;
  std::string printk_formats_;
  Formats formats_;
  std::vector<Part> parts_;
  const Part* last_part_ = nullptr;
  std::map<std::pair<std::string, u64>, u32> by_batch_;  // agent and last batch
  std::map<std::tuple<bool, std::string, std::string>, u32> ids_;
  std::set<std::pair<bool, u32>> taken_;
  std::map<bool, u32> next_id_{{false, 1}, {true, 1}};
  std::set<std::string> names_;
  std::map<std::tuple<bool, i32, i32, i32, std::string>, u32> ring_numbers_;
  std::set<u32> ring_taken_;
  std::vector<RecordedRing> rings_;
  std::map<std::pair<i32, u64>, RingName> threads_;
  std::vector<Row> rows_;
  std::vector<u8> payloads_;
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
      return refuse(std::errc::invalid_argument, place.address.show() + ": behind the ? stand hosts=, from=, to= and config=, not " + name + "=");
    }
  }
  return place;
}

result<std::vector<ShippedAsRecording::Machine>> ShippedAsRecording::machines(const Place& place) {
  const auto server = RS_TRY(clickhouse::Server::open(place.address, place.login));
  server->most_answer(u64{4} << 30);
  std::string hosts, answer;
  for (const std::string& host : place.hosts) hosts += (hosts.empty() ? "" : ", ") + quoted_text(host);
  const auto blocks = RS_TRY(server->select("SELECT host, boot, boot_id, max(error_ns) AS error FROM parts WHERE 1" + (hosts.empty() ? "" : " AND host IN (" + hosts + ")") + parts_in_range(place) + " GROUP BY host, boot, boot_id ORDER BY host, min(time_ns)", answer));
  std::vector<Machine> machines;
  for (const BlockIn& block : blocks) {
    const ColumnIn *host = RS_TRY(wanted(block, "host", true)), *boot_id = RS_TRY(wanted(block, "boot_id", true)), *boot = RS_TRY(wanted(block, "boot", false)), *error = RS_TRY(wanted(block, "error", false));
    for (u64 row = 0; row < block.rows; ++row)
      machines.push_back({std::string(host->texts[row]), std::string(boot_id->texts[row]), static_cast<u64>(boot->whole(row)), static_cast<u64>(error->whole(row))});
  }
  if (machines.empty()) return refuse(std::errc::no_such_file_or_directory, place.address.show() + " has nothing of these machines in this time; SELECT DISTINCT host FROM parts lists the machines");
  return machines;
}

result<std::unique_ptr<ShippedAsRecording>> ShippedAsRecording::read(const Place& place, const Machine& machine, Times times) {
  const char* const tmp = std::getenv("TMPDIR");
  std::string dir = std::string(tmp != nullptr && *tmp != 0 ? tmp : "/tmp") + "/ringside-shipped-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) return fail(errno, "cannot make a directory for the events of " + machine.host + " (" + dir + "; TMPDIR names another place)");
  std::unique_ptr<ShippedAsRecording> made(new ShippedAsRecording(dir));
  const auto server = RS_TRY(clickhouse::Server::open(place.address, place.login));
  server->most_answer(u64{4} << 30);
  RS_TRY(Maker(place, machine, times, *server).make(dir, made->filtered_));
  return made;
}

ShippedAsRecording::~ShippedAsRecording() {
  std::error_code none;
  std::filesystem::remove_all(dir_, none);
}

}  // namespace ringside
