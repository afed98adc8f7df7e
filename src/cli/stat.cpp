// ringside stat: the counters of every ring, the sums that must agree, the memory behind the rings and the writers.
#include <fmt/format.h>

#include <set>

#include "writer/cpu_rings.hpp"
#include "cli/json.hpp"
#include "cli/table.hpp"
#include "cli/options.hpp"
#include "kernel/clock_check.hpp"
#include "kernel/kernel_source.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "export/units.hpp"

namespace ringside::cli {
namespace {

struct StatOptions {
  std::string where;
  bool json = false;
};

struct Ring {
  RingName name;
  std::string state;
  Counters counters;
  std::string source{};          // for the kernel's: how it is or was read, if at all
  std::vector<i32> readers{};  // the processes that read it
};

nlohmann::json counters_json(const Counters& c) {
  return {{"written", c.written},
          {"read", c.read},
          {"unread", c.unread},
          {"overrun", c.overrun},
          {"dropped", c.dropped},
          {"commit_overrun", c.commit_overrun},
          {"bytes", c.bytes},
          {"unfinished_bytes", c.unfinished_bytes},
          {"resident_bytes", c.resident_bytes},
          {"subbuf_size", c.subbuf_size},
          {"nr_subbufs", c.nr_subbufs}};
}

result<int> run_stat(const StatOptions& options) {
  std::vector<Ring> rings;
  nlohmann::json j;
  std::vector<std::string> remarks, problems;
  Counters past;
  std::optional<Counters> closing;  // a recording's own sums include rings that were given back
  const Where where = Where::of(options.where);
  if (where.is(Where::Kind::served)) return tl::unexpected<Error>(where.not_to_be_read());
  if (where.is(Where::Kind::recording)) {
    auto meta = RS_TRY(RecordingMeta::read(options.where));
    for (const RecordedRing& ring : meta.rings) rings.push_back({ring.name, "recorded", ring.counters, ring.way});
    if (meta.complete) closing = meta.totals;
    if (!meta.complete) remarks.push_back("the recorder did not finish: these counters are not final");
    for (const std::string& doubt : meta.missing.doubts) remarks.push_back(doubt);
    if (const u64 late = meta.missing.unrecorded; late != 0) remarks.push_back(format_count(late) + " events were written when they could not be recorded any more");
    if (const Removed gone = meta.removed(); gone.events != 0) {
      remarks.push_back(format_count(gone.events) + " events, the oldest ones, went again, as --max-size " + format_size(meta.max_size) + " wanted");
      j["removed"] = {{"events", gone.events}, {"bytes", gone.bytes}};
    }
    if (meta.trigger) {
      const RecordedTrigger& t = *meta.trigger;
      remarks.push_back("triggered by: " + t.event + (t.latency_ns ? "; latency " + format_time(static_cast<double>(*t.latency_ns)) : "") + " (" + t.condition + ")");
      j["trigger"] = {{"condition", t.condition}, {"event", t.event}, {"time_ns", t.time_ns}};
      if (t.latency_ns) j["trigger"]["latency_ns"] = *t.latency_ns;
    }
    j["recording"] = options.where;
  } else if (where.is(Where::Kind::writer)) {
    auto opened = RS_TRY(Reading::open({.where = {options.where}}));
    Reading& reading = *opened;
    reading.follow(std::nullopt, 1'000'000'000);
    reading.run([](const TraceRecord&, const RingName&, Reading::Got) {});
    remote::Process& writer = *reading.trace().first().remote;
    if (auto off = writer.enable(false); !off) remarks.push_back(off.error().sentence);
    const Source& source = reading.trace().timeline.source(0);
    rings.push_back({source.name(), writer.buffer().is_gone() ? "ended" : "live", source.counters()});
    remarks.push_back(fmt::format("{}: what the external writer wrote within a second; process {}", options.where, writer.pid()));
    j["remote"] = options.where;
  } else if (where.is(Where::Kind::trace_dat)) {
    auto dat = RS_TRY(open_trace_dat(options.where));
    for (const std::string& problem : dat.problems) say(problem);
    for (const auto& source : dat.rings) rings.push_back({source->name(), "recorded", source->counters()});
    remarks.push_back(fmt::format("{}: trace.dat of version {}; clock {}", options.where, dat.version, to_string(dat.clock.kind)));
    j["recording"] = options.where;
  } else if (where.is(Where::Kind::kernel)) {
    const std::string& dir = where.dir;
    for (const u32 cpu : kernel_cpus(dir)) {
      const Counters counters = RS_TRY(kernel_counters({dir, cpu}));
      RingName name;
      name.ring = cpu;
      name.kernel = true;
      rings.push_back({name, "live", counters, ""});
    }
    std::set<std::pair<i32, std::string>> consumers;
    for (const KernelConsumer& c : kernel_consumers(dir)) {
      for (Ring& ring : rings) {
        if (ring.name.ring != c.cpu) continue;
        ring.readers.push_back(c.pid);
        ring.source = to_string(c.way);
      }
      consumers.emplace(c.pid, fmt::format("{}-{} consumes it, source: {}", c.task, c.pid, to_string(c.way)));
    }
    for (const auto& [pid, remark] : consumers) remarks.push_back(remark);
    const auto on = sys::read_file(dir + "/tracing_on");
    const bool tracing = on && on->front() == '1';
    remarks.push_back(fmt::format("{}: of the kernel; tracing is {}; clock {}", dir, tracing ? "on" : "off", kernel_clock_of(dir)));
    j["instance"] = dir;
    j["kernel"] = true;
    j["tracing_on"] = tracing;
  } else {
    auto opened = RS_TRY(Instance::open(options.where));
    Instance& instance = *opened;
    for (const RingInfo& info : instance.rings()) {
      rings.push_back({info.name, info.live ? "live" : "ended", info.counters, ""});
      if (!info.problem.empty()) problems.push_back(info.problem + "; its counters are not in the sums");
      if (info.corrupt) remarks.push_back(fmt::format("ring {}: its words contradict each other, and nobody writes to it any more; a resize makes a fresh one", info.name.ring));
    }
    const Presence writers = instance.writers();
    remarks.push_back(fmt::format("{}: {}; tracing is {}; clock {}", instance.path(),
                                  writers == Presence::some   ? "owner alive"
                                  : writers == Presence::none ? "no writer (stale)"
                                                              : "of some that wrote nobody can tell whether they live",
                                  instance.tracing_on() ? "on" : "off",
                                  to_string(instance.clock().kind)));
    const PastTotals p = instance.past();
    past = counters_of(p);
    if (p.rings != 0) remarks.push_back(fmt::format("{} rings gave their memory back; their counts are in the sums", p.rings));
    remarks.push_back(fmt::format("{}, {}", instance.cpu_rings() != 0 ? "rings of CPUs" : "rings of threads", to_string(instance.rings_because())));
    if (instance.without_clock() != 0)
      remarks.push_back(fmt::format("{} processes are not traced, because their processor does not have the clock {}; an instance of the clock mono is for all",
                                    instance.without_clock(), to_string(instance.clock().kind)));
    if (instance.refused() != 0)
      remarks.push_back(format_count(instance.refused()) + " events found no ring (budget, no room for another ring, or a ring that was given up)");
    j["rings_of"] = instance.cpu_rings() != 0 ? "cpu" : "thread";
    j["rings_because"] = to_string(instance.rings_because());
    j["instance"] = instance.path();
    j["live"] = writers != Presence::none;
    j["tracing_on"] = instance.tracing_on();
    j["refused_without_ring"] = instance.refused();
    j["processes_without_clock"] = instance.without_clock();
    j["past"] = counters_json(past);
  }
  std::vector<Counters> all{past};
  for (const Ring& ring : rings) all.push_back(ring.counters);
  const Counters total = closing.value_or(sum(all));
  for (const std::string& problem : problems) say(problem);
  const int code = problems.empty() ? exit_ok : exit_failure;
  if (options.json) {
    j["rings"] = nlohmann::json::array();
    for (const Ring& ring : rings) {
      nlohmann::json r = counters_json(ring.counters);
      r.update({{"ring", ring.name.ring},
                {"pid", ring.name.elsewhere.seen_pid(ring.name.pid)},
                {"tid", ring.name.elsewhere.seen_tid(ring.name.tid)},
                {"task", ring.name.task},
                {"process", ring.name.process},
                {"state", ring.state}});
      if (const Elsewhere& e = ring.name.elsewhere; e.tid != 0) r.update({{"ns_pid", e.pid}, {"ns_tid", e.tid}, {"pid_namespace", e.pid_namespace}});
      if (ring.name.cpu >= 0) r["cpu"] = ring.name.cpu;
      if (ring.name.kernel) r.update({{"kernel", true}, {"source", ring.source}, {"readers", ring.readers}});
      j["rings"].push_back(std::move(r));
    }
    j["total"] = counters_json(total);
    j["adds_up"] = adds_up(total);
    if (!problems.empty()) j["problems"] = problems;
    put(line_of(j));
    return code;
  }
  Table table({{"ring", Table::right},
               {"of"},
               {"state"},
               {"written", Table::right},
               {"read", Table::right},
               {"unread", Table::right},
               {"overrun", Table::right},
               {"dropped", Table::right},
               {"nested", Table::right},
               {"unfinished", Table::right},
               {"resident", Table::right}});
  const auto row = [&](const std::string& ring, const std::string& thread, const std::string& state, const Counters& c) {
    table.row({ring, thread, state, format_count(c.written), format_count(c.read), format_count(c.unread),
               format_count(c.overrun), format_count(c.dropped), format_count(c.commit_overrun),
               format_size(c.unfinished_bytes), format_size(c.resident_bytes)});
  };
  for (const Ring& ring : rings)
    row((ring.name.kernel ? "cpu" : "") + std::to_string(ring.name.ring),
        !ring.name.buffer.empty() ? ring.name.buffer
        : ring.name.kernel        ? "kernel"
        : ring.name.cpu >= 0      ? ring.name.task
                                  : ring.name.task + "-" + ring.name.show_tid(),
        ring.source.empty() ? ring.state : ring.state + ", " + ring.source, ring.counters);
  row("all", "", "", total);
  put(table.render(colours()));
  put(identity(total) + "\n");
  for (const std::string& remark : remarks) say(remark);
  return code;
}

}  // namespace

Command add_stat(CLI::App& app) {
  auto options = std::make_shared<StatOptions>();
  CLI::App* c = app.add_subcommand("stat", "counters and memory of every ring");
  c->add_option("WHERE", options->where, "instance, recording, trace.dat, an instance of the kernel's, or an external writer's socket")->required();
  add_json(*c, options->json, "one JSON object");
  c->footer(
      "Examples:\n"
      "  ringside stat web                           a live or stale instance\n"
      "  ringside stat web --json | jq .total.overrun\n"
      "  ringside stat ringside-4711                 the kernel's side of a running record or top; no event is taken away\n"
      "The kernel's rings show their source: \"read\" or \"map\", as their consumer reads them or the recorder did.\n"
      "What must hold: written = read + unread + overrun. Refused events are those dropped (ring full in discard mode) and\n"
      "nested (handlers filled the ring within one event).");
  return {c, [options] { return run_stat(*options); }};
}

}  // namespace ringside::cli
