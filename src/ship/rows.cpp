#include "ship/rows.hpp"

#include <cstring>

#include "shipped/columns.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

using clickhouse::ColumnOut;

// The size of a batch: a server takes some thousand times as long for small ones. A server makes one part of at most 1,048,576
// rows.
constexpr u64 most_rows = 1'000'000, batch_bytes = 64 << 20, most_bytes_of_all = 256 << 20;
constexpr i64 day_ns = i64{86'400} * 1'000'000'000;

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

i64 floor_day(i64 ns) { return ns / day_ns - (ns % day_ns < 0 ? 1 : 0); }

std::string label_of(const RingName& ring) {
  if (ring.kernel) return "kernel cpu" + std::to_string(ring.ring);
  return ring.cpu >= 0 ? "cpu" + std::to_string(ring.cpu) : "ring" + std::to_string(ring.ring) + " " + ring.task;
}

u32 number_of(const RingName& ring) { return ring.ring + (ring.kernel ? RecordingWriter::kernel_rings : 0); }

}  // namespace

// The rows of one type of events that are not flushed yet.
struct PartRows::Table {
  const EventType* type = nullptr;
  std::string name;
  u64 rows = 0;
  i64 day = 0, from_ns = 0, to_ns = 0;
  ColumnOut time_ns, mono_ns, ring, number, cpu, tid, task, flags, payload;
  std::vector<ColumnOut> fields;

  void add(const TraceRecord& record, const RingName& from, i64 at_ns, u32 place, i32 thread,
           const std::string& name_of_thread) {
    if (rows == 0) day = floor_day(at_ns), from_ns = to_ns = at_ns;
    from_ns = std::min(from_ns, at_ns);
    to_ns = std::max(to_ns, at_ns);
    ++rows;
    clickhouse::put_number(time_ns.data, at_ns);
    clickhouse::put_number(mono_ns.data, record.time);
    clickhouse::put_number(ring.data, number_of(from));
    clickhouse::put_number(number.data, place);
    clickhouse::put_number(cpu.data, record.cpu_in(from));
    clickhouse::put_number(tid.data, thread);
    clickhouse::put_text(task.data, name_of_thread);
    u16 common_flags = 0;
    if (record.payload.size >= 4) std::memcpy(&common_flags, record.payload.data + 2, sizeof common_flags);
    clickhouse::put_number(flags.data, common_flags);
    put(record.payload);
  }
  void clear() {
    rows = 0;
    time_ns = {"time_ns", "Int64"};
    mono_ns = {"mono_ns", "UInt64"};
    ring = {"ring", "UInt32"};
    number = {"number", "UInt32"};
    cpu = {"cpu", "Int32"};
    tid = {"tid", "Int32"};
    task = {"task", "String"};
    flags = {"flags", "UInt16"};
    payload = {"payload", "String"};
    fields.clear();
    if (type == nullptr || !type->parsed()) return;
    const std::vector<std::string> names = columns_of(*type);
    for (size_t n = 0; n < names.size(); ++n) fields.push_back({names[n], type_of(type->fields()[n])});
  }
  size_t bytes() const {
    size_t all = rows * 44 + task.bytes() + payload.bytes();
    for (const ColumnOut& field : fields) all += field.bytes();
    return all;
  }
  static void put_integer(std::string& out, Bytes payload_bytes, const Field& field) {
    const bool usual = field.size == 1 || field.size == 2 || field.size == 4 || field.size == 8;
    if (usual && u64{field.offset} + field.size <= payload_bytes.size) {
      out.append(reinterpret_cast<const char*>(payload_bytes.data) + field.offset, field.size);
      return;
    }
    const i64 value = read_integer(payload_bytes, field);
    out.append(reinterpret_cast<const char*>(&value), usual ? field.size : 8);
  }
  void put(Bytes bytes) {
    if (type == nullptr || !type->parsed())
      return clickhouse::put_text(payload.data, {reinterpret_cast<const char*>(bytes.data), bytes.size});
    for (size_t n = 0; n < fields.size(); ++n) {
      const Field& field = type->fields()[n];
      ColumnOut& column = fields[n];
      switch (field.kind) {
        case FieldKind::integer:
          put_integer(column.data, bytes, field);
          break;
        case FieldKind::floating: {
          const double value = read_floating(bytes, field);
          if (field.size == 4) clickhouse::put_number(column.data, static_cast<float>(value));
          else clickhouse::put_number(column.data, value);
          break;
        }
        case FieldKind::text:
        case FieldKind::loc_text:
          clickhouse::put_text(column.data, read_text(bytes, field));
          break;
        case FieldKind::array:
        case FieldKind::loc_array: {
          const Bytes array = read_array(bytes, field);
          const u32 size = field.element == 0 ? 1 : field.element;
          const bool usual = size == 1 || size == 2 || size == 4 || size == 8;
          if (usual) column.data.append(reinterpret_cast<const char*>(array.data), array.size);
          column.end_array(usual ? array.size / size : 0);
          break;
        }
      }
    }
  }
};

// A part of this boot is of this machine, whatever its recorder's container is called; one of another boot may be of another.
void PartRows::know_machine(const RecordingMeta& meta) {
  const bool abroad = !meta.boot.empty() && meta.boot != sys::boot_id() && !meta.world.host.empty();
  host_ = !identity_.host.empty() ? identity_.host : abroad ? meta.world.host : World::own().host;
  wall_ = WallOffset::of(dir_);
  boot_ = meta.boot.empty() ? 0 : sys::hash(meta.boot);
}

void PartRows::add_common(Batch& batch) {
  const u64 rows = batch.rows;
  batch.columns.push_back(clickhouse::constant("error_ns", "UInt32", bytes_of(wall_.error_ns), rows));
  batch.columns.push_back(clickhouse::constant("host", "String", host_, rows));
  batch.columns.push_back(clickhouse::constant("boot", "UInt64", bytes_of(boot_), rows));
  batch.columns.push_back(clickhouse::constant("agent", "String", identity_.agent, rows));
  batch.columns.push_back(clickhouse::constant("batch", "UInt64", bytes_of(next_), rows));
}

result<bool> PartRows::give(Batch&& batch, const Use& use) {
  if (batch.rows == 0 && batch.table != "losses") return true;
  add_common(batch);
  if (batch.rows == 0) return use(std::move(batch), next_);  // questions about losses need the table
  const u64 number = next_++;
  return use(std::move(batch), number);
}

result<void> PartRows::flush(Table& table, const Use& use) {
  Batch batch{table.name, table.rows, table.from_ns, table.to_ns, true, {}};
  for (ColumnOut* column :
       {&table.time_ns, &table.mono_ns, &table.ring, &table.number, &table.cpu, &table.tid, &table.task, &table.flags})
    batch.columns.push_back(std::move(*column));
  for (ColumnOut& field : table.fields) batch.columns.push_back(std::move(field));
  if (table.type == nullptr || !table.type->parsed()) batch.columns.push_back(std::move(table.payload));
  table.clear();
  Loss if_refused{0, "", why::refused_by_server, batch.from_ns, batch.to_ns, batch.rows};
  if (RS_TRY(give(std::move(batch), use))) {
    counted_.shipped += if_refused.count;
    return {};
  }
  counted_.refused += if_refused.count;
  losses_.push_back(std::move(if_refused));
  return {};
}

// The name of the thread of the event before: most are of the same one.
class PartRows::LastName {
 public:
  explicit LastName(const Tasks& tasks) : tasks_(tasks) {}
  const std::string& of(i32 tid, u32 source, const RingName& ring) {
    if (tid != tid_ || source != source_ || tasks_.renamed() != renamed_) {
      name_ = tasks_.name(tid, ring);
      tid_ = tid;
      source_ = source;
      renamed_ = tasks_.renamed();
    }
    return name_;
  }

 private:
  const Tasks& tasks_;
  std::string name_;
  i32 tid_ = -1;
  u32 source_ = 0;
  u64 renamed_ = ~u64{0};
};

// The rows that are not flushed yet, by the type of their events.
class PartRows::Tables {
 public:
  Table& of(u32 number, const EventType* type) {
    if (latest_ != nullptr && number == latest_number_) return *latest_;
    const auto [at, fresh] = all_.try_emplace(number);
    latest_ = &at->second;
    latest_number_ = number;
    if (fresh) {
      latest_->type = type;
      latest_->name = type != nullptr ? type->full : "unknown:unknown";
      latest_->clear();
    }
    return *latest_;
  }
  const EventType* type_of(u32 number, const Formats& formats) const {
    return latest_ != nullptr && number == latest_number_ ? latest_->type : formats.find(number);
  }
  // The largest table, if all of them take too much memory; else null.
  Table* too_large() {
    size_t sum = 0;
    Table* largest = nullptr;
    for (auto& [number, one] : all_) {
      sum += one.bytes();
      if (largest == nullptr || one.bytes() > largest->bytes()) largest = &one;
    }
    return sum > most_bytes_of_all ? largest : nullptr;
  }
  std::map<u32, Table>& all() { return all_; }

 private:
  std::map<u32, Table> all_;
  Table* latest_ = nullptr;
  u32 latest_number_ = 0;
};

// With the choice's filter.
result<std::unique_ptr<Reading>> PartRows::open(const RecordingMeta& meta) {
  Reading::Options options;
  options.where = {dir_};
  options.notices = [](const auto&) {};
  options.filter = sending_.choice.filter;
  auto opened = Reading::open(options);
  if (!opened && !options.filter.empty() && opened.error().code == std::errc::no_such_file_or_directory) {
    // No event of this part has such a field: nothing meets the filter.
    options.filter.clear();
    opened = Reading::open(options);
    if (opened) sending_.choice.keep_one_of = 0;
  }
  if (!opened && !options.filter.empty() && opened.error().code == std::errc::invalid_argument) {
    options.filter.clear();
    if (Reading::open(options))
      return refuse(std::errc::state_not_recoverable, "-F does not suit the events of " + dir_ + ": " +
                                                          opened.error().sentence +
                                                          "; they stay in the spool until ship runs with another -F");
  }
  if (opened && !(*opened)->trace().timeline.problems().empty()) {
    // A ring that cannot be opened now may be opened later: a missing descriptor is no reason to give its events up.
    const auto again = open_recording(dir_, meta);
    if (!again && again.error().code != std::errc::bad_message) return tl::unexpected<Error>(again.error());
  }
  return opened;
}

result<void> PartRows::read_events(Reading& reading, const Use& use) {
  Tables tables;
  LastName names(reading.trace().tasks);
  std::vector<i64> last_ns;  // by source; of its last event
  TraceRecord record;
  u64 since_look = 0;
  u32 place = 0;
  i32 last_tid = 0;
  for (Reading::Got got = reading.next(record); got != Reading::Got::nothing; got = reading.next(record)) {
    const i64 time_ns = static_cast<i64>(record.time) + wall_.offset_ns;
    ++place;
    const RingName& ring = reading.ring(record);
    if (got == Reading::Got::gap) {
      losses_.push_back({number_of(ring), label_of(ring), "gap",
                         record.source < last_ns.size() ? last_ns[record.source] : start_ns_, time_ns, record.lost, place});
      continue;
    }
    if (record.source >= last_ns.size()) last_ns.resize(record.source + 1, start_ns_);
    last_ns[record.source] = time_ns;
    const u32 number = record.number();
    const EventType* const type = tables.type_of(number, reading.trace().formats);
    const i32 tid = thread_of(type, read_common(record.payload));
    if (tid != last_tid) threads_.insert(last_tid = tid);
    const u64 one_of = sending_.choice.keep_one_of;
    if (got == Reading::Got::other || one_of == 0 || (one_of > 1 && sys::hash(bytes_of(tid)) % one_of != 0)) {
      ++counted_.filtered;
      continue;
    }
    Table& table = tables.of(number, type);
    if (table.rows != 0 && (floor_day(time_ns) != table.day || table.rows >= most_rows)) RS_TRY(flush(table, use));
    table.add(record, ring, time_ns, place, tid, names.of(tid, record.source, ring));
    if (++since_look < 4096) continue;
    since_look = 0;
    if (table.bytes() > batch_bytes) RS_TRY(flush(table, use));
    if (Table* const large = tables.too_large()) RS_TRY(flush(*large, use));
  }
  for (auto& [number, table] : tables.all()) RS_TRY(flush(table, use));
  return {};
}

result<Counted> PartRows::read(const Use& use) {
  next_ = sending_.first_batch;
  counted_ = {};
  losses_.clear();
  threads_.clear();
  const RecordingMeta meta = RS_TRY(RecordingMeta::read(dir_));
  know_machine(meta);
  start_ns_ = static_cast<i64>(meta.start_ns);
  const auto reading = RS_TRY(open(meta));
  RS_TRY(read_events(*reading, use));
  RS_TRY(tell_losses(*reading, use));
  std::vector<i32> processes;
  for (const RingName& thread : meta.threads)
    if (threads_.count(thread.tid) != 0) processes.push_back(thread.pid);
  threads_.insert(processes.begin(), processes.end());
  RS_TRY(tell_threads(meta, use));
  RS_TRY(tell_part(meta, use));
  return counted_;
}

result<std::optional<Batch>> PartRows::symbols(u64& hash) {
  constexpr size_t most_bytes = size_t{64} << 20;  // several times the number in a kernel with all its modules
  const auto text = read_kept(dir_, "kallsyms");
  if (!text || text->empty() || text->size() > most_bytes) return std::nullopt;
  const RecordingMeta meta = RS_TRY(RecordingMeta::read(dir_));
  hash = sys::hash(*text);
  know_machine(meta);
  next_ = 0;
  const auto at = static_cast<i64>(meta.start_ns);
  Batch batch{"kernel_symbols", 1, at, at, false, {}};
  batch.columns = {clickhouse::constant("time_ns", "Int64", bytes_of(at), 1),
                   clickhouse::constant("hash", "UInt64", bytes_of(hash), 1), clickhouse::constant("text", "String", *text, 1)};
  add_common(batch);
  return batch;
}

result<void> PartRows::tell_losses(const Reading& reading, const Use& use) {
  const Account account = reading.account();
  const RecordingMeta& meta = *reading.trace().first().recording();
  const i64 from = start_ns_, to = static_cast<i64>(std::max(meta.stop_ns, meta.start_ns));
  const u64 off = account.refused[Refusal::off], refused = account.refused.sum() - off;
  if (refused != 0) losses_.push_back({0, "", "refused", from, to, refused});
  if (off != 0) losses_.push_back({0, "", "recording off", from, to, off});
  if (account.unrecorded != 0) losses_.push_back({0, "", "unrecorded", from, to, account.unrecorded});
  for (const std::string& doubt : account.doubts) losses_.push_back({0, "", "perhaps: " + doubt, from, to, 0});
  for (const Sending::Dropped& one : sending_.dropped) {
    const auto tell = [&](const std::string& why, u64 count) {
      losses_.push_back({0, "", why, static_cast<i64>(one.from_ns), static_cast<i64>(one.to_ns), count});
    };
    if (one.events != 0) tell(one.why, one.events);
    if (one.lost != 0) tell(why::lost_in_dropped, one.lost);
    if (!one.proved) tell(why::dropped_unproved, 0);
  }
  std::stable_sort(losses_.begin(), losses_.end(), [](const Loss& a, const Loss& b) { return a.to_ns < b.to_ns; });
  for (size_t at = 0; at == 0 || at < losses_.size();) {
    const i64 first = losses_.empty() ? from : losses_[at].to_ns;
    Batch batch{"losses", 0, first, first, false, {}};
    ColumnOut time_ns{"time_ns", "Int64"}, from_ns{"from_ns", "Int64"}, ring{"ring", "UInt32"}, name{"ring_name", "String"},
        why{"why", "String"}, count{"count", "UInt64"}, number{"number", "UInt32"};
    for (const i64 day = floor_day(first); at < losses_.size() && floor_day(losses_[at].to_ns) == day && batch.rows < most_rows;
         ++at, ++batch.rows) {
      const Loss& loss = losses_[at];
      batch.to_ns = loss.to_ns;
      clickhouse::put_number(time_ns.data, loss.to_ns);
      clickhouse::put_number(from_ns.data, loss.from_ns);
      clickhouse::put_number(ring.data, loss.ring);
      clickhouse::put_text(name.data, loss.name);
      clickhouse::put_text(why.data, loss.why);
      clickhouse::put_number(count.data, loss.count);
      clickhouse::put_number(number.data, loss.place);
    }
    batch.columns = {std::move(time_ns), std::move(from_ns), std::move(ring),  std::move(name),
                     std::move(why),     std::move(count),   std::move(number)};
    RS_TRY(give(std::move(batch), use));
    if (losses_.empty()) break;
  }
  return {};
}

result<void> PartRows::tell_threads(const RecordingMeta& meta, const Use& use) {
  Batch batch{"threads", 0, start_ns_, start_ns_, false, {}};
  ColumnOut tid{"tid", "Int32"}, pid{"pid", "Int32"}, task{"task", "String"}, process{"process", "String"};
  for (const RingName& thread : meta.threads) {
    if (threads_.count(thread.tid) == 0 && threads_.count(thread.pid) == 0) continue;
    clickhouse::put_number(tid.data, thread.tid);
    clickhouse::put_number(pid.data, thread.pid);
    clickhouse::put_text(task.data, thread.task);
    clickhouse::put_text(process.data, thread.process);
    if (++batch.rows == most_rows) break;
  }
  batch.columns = {clickhouse::constant("time_ns", "Int64", bytes_of(start_ns_), batch.rows), std::move(tid), std::move(pid),
                   std::move(task), std::move(process)};
  RS_TRY(give(std::move(batch), use));
  return {};
}

result<void> PartRows::tell_part(const RecordingMeta& meta, const Use& use) {
  const auto kept = [&](const char* file) {
    const auto text = read_kept(dir_, file);
    return text ? *text : std::string();
  };
  // Without the thousands of threads that did nothing here, and without keys that no recorder writes.
  RecordingMeta described = meta;
  std::erase_if(described.threads,
                [&](const RingName& thread) { return threads_.count(thread.tid) == 0 && threads_.count(thread.pid) == 0; });
  std::erase_if(described.names, [&](const NameChange& change) { return threads_.count(change.tid) == 0; });
  Batch batch{"parts", 1, start_ns_, start_ns_, false, {}};
  const auto text = [&](const char* name, const std::string& value) {
    batch.columns.push_back(clickhouse::constant(name, "String", value, 1));
  };
  const auto number = [&](const char* name, u64 value) {
    batch.columns.push_back(clickhouse::constant(name, "UInt64", bytes_of(value), 1));
  };
  batch.columns.push_back(clickhouse::constant("time_ns", "Int64", bytes_of(start_ns_), 1));
  batch.columns.push_back(clickhouse::constant("offset_ns", "Int64", bytes_of(wall_.offset_ns), 1));
  number("duration_ns", meta.duration_ns);
  number("first_batch", sending_.first_batch);
  number("shipped", counted_.shipped);
  number("filtered", counted_.filtered);
  text("boot_id", meta.boot);
  text("filter", sending_.choice.filter);
  number("keep_one_of", sending_.choice.keep_one_of);
  text("description", described.text());
  text("printk_formats", kept("printk_formats"));
  text("names", kept(kept_names));
  RS_TRY(give(std::move(batch), use));
  return {};
}

}  // namespace ringside::ship
