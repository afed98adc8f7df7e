#include "export/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "decode/print_steps.hpp"
#include "export/json.hpp"
#include "export/line_exporter.hpp"
#include "export/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr std::array<std::string_view, 12> of_all{"ts_ns", "ts_ticks", "buffer", "cpu",  "ring", "pid",
                                                  "tid",   "task",     "event",  "lost", "more", "wall"};

std::string column_name(const std::string& field) {
  return (std::find(of_all.begin(), of_all.end(), field) != of_all.end() ? "fields." : "") + field;
}

void commas(size_t count, fmt::memory_buffer& out) {
  for (; count != 0; --count) out.push_back(',');
}

}  // namespace

// The CPU is empty where it is not known.
void CsvLines::place(u64 time, i32 cpu, const RingName& ring, const std::string& buffer, fmt::memory_buffer& out) const {
  fmt::format_to(std::back_inserter(out), "{},", time);
  if (wall_) fmt::format_to(std::back_inserter(out), "{},", wall_text(wall_->of(time)));
  fmt::format_to(std::back_inserter(out), "{},", buffer);
  if (cpu >= 0) fmt::format_to(std::back_inserter(out), "{}", cpu);
  fmt::format_to(std::back_inserter(out), ",{},", ring.ring);
}

void CsvLines::begin(const std::function<bool(const EventType&)>& wanted, fmt::memory_buffer& out) {
  append(out, raw_times_ ? "ts_ticks," : "ts_ns,");
  append(out, wall_ ? "wall,buffer,cpu,ring,pid,tid,task,event,lost," : "buffer,cpu,ring,pid,tid,task,event,lost,");
  for (const auto& type : formats_.all()) {
    if (!wanted(*type)) continue;
    for (const Field& field : type->fields()) {
      if (columns_.size() == most_columns) break;
      const std::string name = column_name(field.name);
      if (!columns_.try_emplace(name, static_cast<u32>(columns_.size())).second) continue;
      cell(name, out);
      out.push_back(',');
    }
  }
  append(out, "more\r\n");
}

CsvLines::Event& CsvLines::of(u32 id) {
  if (version_ != formats_.version()) events_.clear();
  version_ = formats_.version();
  Event& event = events_[id];
  if (event.known) return event;
  event.known = true;
  event.type = formats_.find(id);
  if (event.type == nullptr) return event;
  event.rest = event.type->level() != nullptr;  // the text of a message
  const auto& fields = event.type->fields();
  for (u32 i = 0; i < fields.size(); ++i) {
    const auto column = columns_.find(column_name(fields[i].name));
    if (column == columns_.end())
      event.rest = true;
    else
      event.fields.emplace_back(column->second, i);
  }
  std::sort(event.fields.begin(), event.fields.end());
  // Of two fields with one name the first one has the column.
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  event.fields.erase(std::unique(event.fields.begin(), event.fields.end(), same), event.fields.end());
  return event;
}

void CsvLines::cell(std::string_view bytes, fmt::memory_buffer& out) {
  const std::string text = as_utf8(bytes);
  if (text.find_first_of("\",\r\n") == std::string::npos) return append(out, text);
  out.push_back('"');
  for (const char c : text) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  out.push_back('"');
}

void CsvLines::value(Bytes payload, const Field& field, fmt::memory_buffer& out) {
  if (field.kind == FieldKind::text || field.kind == FieldKind::loc_text) return cell(read_text(payload, field), out);
  if (field.kind == FieldKind::integer) {
    const i64 number = read_integer(payload, field);
    if (const std::string* name = symbol_of(field.symbols, number)) return cell(*name, out);
    const char c = static_cast<char>(number);
    if (field.is_char) return cell(c == 0 ? std::string_view() : std::string_view(&c, 1), out);
  }
  text_.clear();
  if (const double real = field.kind == FieldKind::floating ? read_floating(payload, field) : 0; !std::isfinite(real))
    append(text_, std::isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
  else
    append_json_value(payload, field, text_);
  cell({text_.data(), text_.size()}, out);
}

void CsvLines::print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) {
  fmt::memory_buffer buffer;
  cell(ring.buffer, buffer);
  const std::string of(buffer.data(), buffer.size());
  if (record.lost != 0) {
    place(record.time, ring.its_cpu(), ring, of, out);
    fmt::format_to(std::back_inserter(out), ",,,,{},", record.lost);
    commas(columns_.size(), out);
    return append(out, "\r\n");
  }
  const Event& event = this->of(record.number());
  const Common common = read_common(record.payload);
  const i32 tid = thread_of(event.type, common);
  place(record.time, record.cpu_in(ring), ring, of, out);
  if (tells_no_thread(event.type)) {
    append(out, ",,,");
  } else {
    fmt::format_to(std::back_inserter(out), "{},{},", tasks_.seen_process(tid, ring), tasks_.seen(tid, ring));
    cell(tasks_.name(tid, ring), out);
    out.push_back(',');
  }
  cell(event.type != nullptr ? event.type->full : fmt::format("unknown:{}", common.id), out);
  append(out, ",,");
  u32 at = 0;
  for (const auto& [column, field] : event.fields) {
    commas(column - at, out);
    at = column;
    value(record.payload, event.type->fields()[field], out);
  }
  commas(columns_.size() - at, out);
  if (event.type == nullptr || event.rest) {
    text_.clear();
    if (TextLines::is_stack(event.type))
      TextLines::append_addresses(formats_, *event.type, record, text_);
    else if (event.type != nullptr)
      formats_.print(*event.type, record.payload, text_);
    else
      append_hex(record.payload, " ", text_);
    if (text_.size() != 0 && text_[text_.size() - 1] == '\n') text_.resize(text_.size() - 1);
    cell({text_.data(), text_.size()}, out);
  }
  append(out, "\r\n");
}

void CsvLines::print_missing(u64 time, const Account& account, fmt::memory_buffer& out) const {
  fmt::format_to(std::back_inserter(out), "{},{},,,,,,,{},", time, wall_ ? wall_text(wall_->of(time)) + "," : "",
                 account.elsewhere());
  commas(columns_.size(), out);
  cell(fmt::format("{}", fmt::join(account.reasons(), "; ")), out);
  append(out, "\r\n");
}

namespace {
class CsvExporter final : public LineExporter {
 public:
  CsvExporter(const Exported& of, Put put)
      : LineExporter(std::move(put)), only_(of.only), lines_(of.formats, of.tasks, of.raw_times) {
    lines_.show_wall(of.shown_wall());
  }
  // What the recorder says of itself (stacks, maps, names) has no columns, unless it is asked for.
  result<void> begin(u64) override {
    begun_ = true;
    const auto wanted = [&](const EventType& type) {
      return only_.empty() ? type.system != "ftrace" && type.system != "ringside" : only_.matches(type.system, type.name);
    };
    lines_.begin(wanted, out_);
    return {};
  }
  result<void> finish() override {
    if (!begun_) RS_TRY(begin(0));  // of no events the first line alone
    return put_out();
  }

 private:
  void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) override {
    lines_.print(record, ring, out);
  }
  void print_missing(u64 time, const Account& account, fmt::memory_buffer& out) override {
    lines_.print_missing(time, account, out);
  }
  const EventPatterns only_;
  CsvLines lines_;
  bool begun_ = false;
};
}  // namespace

std::unique_ptr<Exporter> csv_exporter(const Exported& of, Exporter::Put put) {
  return std::make_unique<CsvExporter>(of, std::move(put));
}

}  // namespace ringside
