// ringside crash: what a program did last. All threads of a dead (or living) instance merged, the last N events.
#include <fmt/format.h>

#include <deque>

#include "cli/options.hpp"
#include "export/units.hpp"
#include "export/json.hpp"
#include "export/text.hpp"

namespace ringside::cli {
namespace {

struct CrashOptions {
  std::string where;
  u64 count = 50;
  bool json = false;
};

// A record with a payload of its own: the source's bytes are gone when we know that it was among the last.
struct Kept {
  TraceRecord record;
  std::vector<u8> payload;
};

int run_crash(const CrashOptions& options) {
  auto opened = open_trace(options.where);
  if (!opened) return failed(opened.error());
  Trace& trace = *opened;
  say_notices(trace);
  std::deque<Kept> last;
  u64 events = 0;
  TraceRecord record;
  while (trace.next(record)) {
    if (record.lost == 0) ++events;
    if (options.count == 0) continue;
    Kept kept;
    if (last.size() >= options.count) {
      kept = std::move(last.front());
      last.pop_front();
    }
    kept.record = record;
    if (record.payload.data != nullptr) kept.payload.assign(record.payload.data, record.payload.data + record.payload.size);
    kept.record.payload = {kept.payload.data(), record.payload.data != nullptr ? record.payload.size : 0};
    last.push_back(std::move(kept));
  }
  TextLines text(trace.formats, trace.tasks, trace.raw_times());
  JsonLines json(trace.formats, trace.tasks);
  fmt::memory_buffer out;
  for (const Kept& kept : last) {
    const RingName& ring = trace.timeline.source(kept.record.source).name();
    if (options.json)
      json.print(kept.record, ring, out);
    else
      text.print(kept.record, ring, out);
  }
  if (!put({out.data(), out.size()})) return exit_failure;
  say(fmt::format("{} events in {} rings{}", format_count(events), trace.timeline.size(),
                  events > last.size() ? fmt::format(", the last {} shown", last.size()) : ""));
  if (trace.instance != nullptr) {
    for (const RingInfo& info : trace.instance->rings()) {
      if (info.counters.unfinished_bytes == 0) continue;
      say(fmt::format("ring {} ({}-{}): {} were reserved and never committed; nothing of that is shown", info.name.ring,
                      info.name.task, info.name.show_tid(), format_size(info.counters.unfinished_bytes)));
    }
    if (trace.instance->has_writers()) say(options.where + " still has a living writer");
  }
  return report_problems(trace.timeline) != 0 ? exit_failure : exit_ok;
}

}  // namespace

Command add_crash(CLI::App& app) {
  auto options = std::make_shared<CrashOptions>();
  CLI::App* c = app.add_subcommand("crash", "print the last events of a dead instance, all threads merged");
  c->add_option("WHERE", options->where, "instance (or recording)")->required();
  c->add_option("-n,--count", options->count, "how many")->capture_default_str();
  c->add_flag("--json", options->json, "one JSON object a line");
  c->footer(
      "Examples:\n"
      "  ringside crash web -n 200      the 200 events before its death\n"
      "  ringside list                  which instances are stale\n"
      "  ringside rm web                when it has been understood");
  return {c, [options] { return run_crash(*options); }};
}

}  // namespace ringside::cli
