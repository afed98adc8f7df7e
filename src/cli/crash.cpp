// ringside crash: what a program did last. Merges all threads of a dead (or living) instance, and prints the last N events.
#include <fmt/format.h>

#include <deque>

#include "analysis/names.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "export/json.hpp"
#include "export/text.hpp"
#include "text/units.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct CrashOptions {
  std::string where;
  u64 count = 50;
  bool json = false;
};

// A record with a payload of its own: when it turns out to be among the last, the source's bytes are gone.
struct Kept {
  TraceRecord record;
  std::vector<u8> payload;
};

// Without WHERE: the only instance whose writers are gone.
std::string the_stale_one() {
  std::vector<std::string> stale;
  for (const std::string& name : Instance::list()) {
    if (const auto instance = Instance::open(name); instance && (*instance)->writers() == Presence::none) stale.push_back(name);
  }
  if (stale.size() == 1) return stale.front();
  throw UsageError{"of which instance? " + (stale.empty() ? "None here is without a writer" : short_list(stale))};
}

result<int> run_crash(CrashOptions options) {
  if (options.where.empty()) options.where = the_stale_one();
  auto opened = RS_TRY(Reading::open(reading_of({options.where})));
  Reading& reading = *opened;
  const Trace& trace = reading.trace();
  std::deque<Kept> last;
  reading.run([&](const TraceRecord& record, const RingName&, Reading::Got) {
    if (options.count == 0) return;
    Kept kept;
    if (last.size() >= options.count) {
      kept = std::move(last.front());
      last.pop_front();
    }
    kept.record = record;
    if (record.payload.data != nullptr) kept.payload.assign(record.payload.data, record.payload.data + record.payload.size);
    kept.record.payload = {kept.payload.data(), record.payload.data != nullptr ? record.payload.size : 0};
    last.push_back(std::move(kept));
  });
  TextLines text(trace.formats, trace.tasks, trace.raw_times());
  JsonLines json(trace.formats, trace.tasks);
  fmt::memory_buffer out;
  for (const Kept& kept : last) {
    const RingName& ring = reading.ring(kept.record);
    if (options.json)
      json.print(kept.record, ring, out);
    else
      text.print(kept.record, ring, out);
  }
  if (!put({out.data(), out.size()})) return exit_failure;
  const u64 events = reading.totals().seen();
  say(fmt::format("{} in {}{}", counted(events, "event"), counted(trace.timeline.size(), "ring"),
                  events > last.size() ? fmt::format(", the last {} shown", last.size()) : ""));
  if (Instance* const instance = trace.first().instance()) {
    for (const RingInfo& info : instance->rings()) {
      if (info.counters.unfinished_bytes == 0) continue;
      say(fmt::format("ring {} ({}-{}): {} were reserved and never committed; nothing of that is shown", info.name.ring,
                      info.name.task, info.name.show_tid(), format_size(info.counters.unfinished_bytes)));
    }
    if (instance->has_writers()) say(options.where + " still has a living writer");
  }
  return say_problems(reading) ? exit_failure : exit_ok;
}

}  // namespace

Command add_crash(CLI::App& app) {
  auto options = std::make_shared<CrashOptions>();
  CLI::App* c = app.add_subcommand("crash", "print the last events of a dead instance, all threads merged");
  c->add_option("WHERE", options->where, "instance, or recording (default: the only instance whose writers are gone)");
  add_count(*c, options->count, "how many")->capture_default_str();
  add_json(*c, options->json, "one JSON object a line");
  c->footer(
      "Examples:\n"
      "  ringside crash web -n 200      the 200 events before its death\n"
      "  ringside list                  which instances are stale\n"
      "  ringside rm web                when it has been understood");
  return {c, [options] { return run_crash(*options); }};
}

}  // namespace ringside::cli
