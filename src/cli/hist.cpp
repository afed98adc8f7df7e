// ringside hist: how a field of an event is distributed: count, sum, quantiles; of all events, or for each thread, task, value.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "cli/histogram.hpp"
#include "cli/table.hpp"
#include "cli/trace.hpp"
#include "cli/units.hpp"
#include "export/json.hpp"

namespace ringside::cli {
namespace {

struct Options {
  std::string event, field, by, filter;
  std::vector<std::string> where;
  u64 count = 20;
  bool json = false;
};

// What the events are grouped by: the thread, something of it, or a field.
std::string group_of(const Options& options, const Trace& trace, const TraceRecord& record, const EventType& type) {
  const std::string& by = options.by;
  if (by.empty()) return type.full;
  const RingName& ring = trace.timeline.name(record.source);
  const i32 tid = thread_of(&type, read_common(record.payload));
  const Task* task = trace.tasks.find(tid);
  const std::string name(trace.tasks.name(tid, ring));
  if (by == "thread") return fmt::format("{}-{}", name, tid);
  if (by == "task") return name;
  if (by == "tid") return std::to_string(tid);
  if (by == "process") return task != nullptr ? fmt::format("{}-{}", task->process, task->pid) : ring.process;
  if (by == "ring") return std::to_string(ring.ring);
  if (by == "event") return type.full;
  const Field* field = type.field(by);
  if (field == nullptr) return "";
  if (field->kind == FieldKind::text || field->kind == FieldKind::loc_text)
    return std::string(read_text(record.payload, *field));
  if (field->kind == FieldKind::floating) return fmt::format("{}", read_floating(record.payload, *field));
  const i64 value = read_integer(record.payload, *field);
  for (const auto& [number, symbol] : field->symbols) {
    if (number == value) return symbol;
  }
  return field->is_signed ? std::to_string(value) : std::to_string(static_cast<u64>(value));
}

// Nanoseconds and bytes by the field's name; everything else is a plain number.
std::string show(const std::string& field, double value) {
  if (field.size() > 3 && field.compare(field.size() - 3, 3, "_ns") == 0) return format_time(value);
  if (field == "size" || field == "bytes" || (field.size() > 6 && field.compare(field.size() - 6, 6, "_bytes") == 0))
    return value < 0 ? fmt::format("{:.0f} B", value) : format_size(static_cast<u64>(value));
  // Quantiles are the middles of buckets: from a thousand on, their fractions mean nothing.
  if (value >= 1000 && value < 1e18) return format_count(static_cast<u64>(std::llround(value)));
  return fmt::format("{:.6g}", value);
}

std::string sentence_without_field(const Options& options, const Trace& trace) {
  for (const auto& type : trace.formats.all()) {
    if (!EventFilter::matches(options.event, *type)) continue;
    std::string fields;
    for (const Field& f : type->fields) fields += (fields.empty() ? "" : ", ") + f.name;
    return fmt::format("{} has no numeric field \"{}\"; its fields: {}", type->full, options.field, fields);
  }
  std::string events;
  for (const auto& type : trace.formats.all()) events += (events.empty() ? "" : ", ") + type->full;
  return fmt::format("no event matches \"{}\" in {}; there are: {}", options.event, trace.where,
                     events.empty() ? "none" : events);
}

using Groups = std::vector<std::pair<std::string, Histogram>>;

std::string as_json(const Groups& groups) {
  fmt::memory_buffer out;
  for (const auto& [name, h] : groups) {
    append(out, "{\"key\":");
    append_json_text(name, out);
    fmt::format_to(std::back_inserter(out),
                   ",\"count\":{},\"sum\":{},\"p50\":{},\"p90\":{},\"p99\":{},\"p999\":{},\"max\":{}}}\n", h.count(), h.sum(),
                   h.quantile(.5), h.quantile(.9), h.quantile(.99), h.quantile(.999), h.max());
  }
  return {out.data(), out.size()};
}

int run(const Options& options) {
  auto opened = open_traces(options.where);
  if (!opened) return failed(opened.error());
  Trace& trace = *opened;
  std::vector<const Field*> fields(trace.formats.numbers());
  bool any = false;
  for (const auto& type : trace.formats.all()) {
    const Field* field = EventFilter::matches(options.event, *type) ? type->field(options.field) : nullptr;
    if (field == nullptr || (field->kind != FieldKind::integer && field->kind != FieldKind::floating)) continue;
    fields[type->id] = field;
    any = true;
  }
  if (!any) {
    say(sentence_without_field(options, trace));
    return exit_failure;
  }
  auto condition = RecordFilter::make(options.filter, trace);
  if (!condition) return failed(condition.error());
  std::unordered_map<std::string, Histogram> groups;
  TraceRecord record;
  u64 lost = 0;
  while (trace.next(record)) {
    lost += record.lost;
    if (record.lost != 0) continue;
    const u32 id = record.ids + read_common(record.payload).id;
    if (fields[id] == nullptr || !condition->wants(record)) continue;
    groups[group_of(options, trace, record, *trace.formats.find(id))].add(read_number(record.payload, *fields[id]));
  }
  Groups sorted(groups.begin(), groups.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.sum() != b.second.sum() ? a.second.sum() > b.second.sum() : a.first < b.first;
  });
  const size_t all = sorted.size();
  if (sorted.size() > options.count) sorted.resize(options.count);
  if (options.json) {
    put(as_json(sorted));
  } else {
    Table table({{options.by.empty() ? "event" : options.by},
                 {"count", Table::right},
                 {"sum", Table::right},
                 {"p50", Table::right},
                 {"p90", Table::right},
                 {"p99", Table::right},
                 {"p99.9", Table::right},
                 {"max", Table::right}});
    for (const auto& [name, h] : sorted) {
      const auto cell = [&](double v) { return show(options.field, v); };
      table.row({name, format_count(h.count()), cell(h.sum()), cell(h.quantile(.5)), cell(h.quantile(.9)),
                 cell(h.quantile(.99)), cell(h.quantile(.999)), cell(h.max())});
    }
    put(table.render(colours()));
  }
  if (all > sorted.size()) say(fmt::format("the {} largest of {}; more with -n", sorted.size(), all));
  if (lost != 0) say(format_count(lost) + " events were lost and are not counted");
  return report_problems(trace.timeline) ? exit_failure : exit_ok;
}

}  // namespace

Command add_hist(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("hist", "count, sum and quantiles of an event's field");
  c->add_option("EVENT", options->event, "SYSTEM:EVENT or EVENT, a glob")->required();
  c->add_option("WHERE", options->where, "recording (a directory), trace.dat or instance; several are merged (default: ringside.data)");
  c->add_option("--field,-f", options->field, "which field")->required();
  c->add_option("--by", options->by, "one line for each: thread, task, tid, process, ring, event, or a field's name");
  add_filter(*c, options->filter);
  c->add_option("-n,--count", options->count, "lines at most, the largest sums first")->capture_default_str();
  c->add_flag("--json", options->json, "one JSON object a line");
  c->footer(
      "Examples:\n"
      "  ringside hist libc:read --field duration_ns               how long reads take\n"
      "  ringside hist libc:malloc -f size --by thread -n 10       the ten largest allocators\n"
      "  ringside hist libc:read -f duration_ns -F 'bytes == 4096 && duration_ns > 5us'\n"
      "  ringside hist 'libc:*' -f duration_ns --by event          all of the C library");
  return {c, [options] { return run(*options); }};
}

}  // namespace ringside::cli
