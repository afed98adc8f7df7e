// ringside stat: the counters of every ring, the sums that must agree, the memory behind the rings and the writers.
#include <fmt/format.h>

#include <set>

#include "cli/command_file.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/table.hpp"
#include "convert/unpacked.hpp"
#include "export/units.hpp"
#include "kernel/clock_check.hpp"
#include "kernel/kernel_source.hpp"
#include "remote/process.hpp"
#include "source/get_reader_served.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "writer/cpu_rings.hpp"

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
  u64 events = 0;              // where there are no counters: those that are here
  std::string source{};          // for the kernel's: how it is or was read, if at all
  std::vector<i32> readers{};  // the processes that read it
};

nlohmann::json counters_json(const Counters& c) {
  nlohmann::json j{{"written", c.written},
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
  if (c.refusals != Refusals::by_reason) j["refusals"] = to_string(c.refusals);
  return j;
}

// For the table: no number where none is known.
std::string dropped_of(const Counters& c) {
  if (c.refusals != Refusals::at_least) return format_count(c.dropped);
  return c.dropped == 0 ? "not known" : format_count(c.dropped) + " or more";
}
std::string nested_of(const Counters& c) {
  return c.refusals == Refusals::by_reason || c.commit_overrun != 0 ? format_count(c.commit_overrun) : "-";
}

// All that stat says of a WHERE.
struct Stat {
  std::vector<Ring> rings;
  nlohmann::json facts = nlohmann::json::object();
  std::vector<std::string> remarks, problems;
  Counters past;                    // of rings that gave their memory back
  std::optional<Counters> closing;  // a recording's own sums include rings that were given back
  bool has_counters = true;         // false: nothing tells how many events were written or lost
};

u64 events_in(Source& source) {
  u64 events = 0;
  for (auto view = source.next(); view && *view; view = source.next()) {
    abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
    while (c.next()) ++events;
  }
  return events;
}
// The rings of a file whose recorder has left no counters.
void count_rings(Stat& s, const std::vector<std::unique_ptr<Source>>& sources) {
  s.has_counters = false;
  for (const auto& source : sources) {
    const auto is_its = [&](const Ring& ring) {
      return ring.name.ring == source->name().ring && ring.name.kernel == source->name().kernel &&
             ring.name.buffer == source->name().buffer;
    };
    const auto ring = std::find_if(s.rings.begin(), s.rings.end(), is_its);
    if (ring != s.rings.end()) ring->events += events_in(*source);
  }
}

// named: as it was given; the directory of a tar is elsewhere, for a moment.
result<Stat> stat_recording(const std::string& dir, const std::string& named) {
  Stat s;
  auto meta = RS_TRY(RecordingMeta::read(dir));
  for (const RecordedRing& ring : meta.rings) s.rings.push_back({ring.name, "recorded", ring.counters, 0, ring.way});
  if (meta.complete) s.closing = meta.totals;
  if (!meta.complete) {
    count_rings(s, RS_TRY(open_recording(dir, meta, &s.problems)));
    s.remarks.push_back(std::string(is_being_recorded(dir) ? "it is still being recorded" : "the recorder did not finish") +
                        ": these are the events in the files; how many were written, and how many of them were lost, is not "
                        "known");
  }
  for (const std::string& doubt : meta.account.doubts) s.remarks.push_back(doubt);
  if (const u64 late = meta.account.unrecorded; late != 0)
    s.remarks.push_back(counted(late, "event was", "events were") + " written when they could no longer be recorded");
  if (const Removed gone = meta.removed(); gone.events != 0) {
    s.remarks.push_back(counted(gone.events, "event") + ", the oldest ones, went again, as --max-size " +
                        format_size(meta.max_size) + " wanted");
    s.facts["removed"] = {{"events", gone.events}, {"bytes", gone.bytes}};
  }
  if (meta.trigger) {
    const RecordedTrigger& t = *meta.trigger;
    s.remarks.push_back("triggered by: " + t.event +
                        (t.latency_ns ? "; latency " + format_time(static_cast<double>(*t.latency_ns)) : "") + " (" +
                        t.condition + ")");
    s.facts["trigger"] = {{"condition", t.condition}, {"event", t.event}, {"time_ns", t.time_ns}};
    if (t.latency_ns) s.facts["trigger"]["latency_ns"] = *t.latency_ns;
  }
  s.facts["recording"] = named;
  return s;
}

// An external writer counts only while a reader has given it rings, and a query gives none.
result<Stat> stat_writer(const std::string& socket) {
  Stat s;
  const auto offer = RS_TRY(remote::Process::offer_at(socket, std::chrono::seconds(2)));
  s.facts = {{"remote", socket}, {"events", nlohmann::json::array()}};
  for (const EventInfo& e : offer.events) s.facts["events"].push_back(e.system + ":" + e.name);
  s.remarks.push_back(
      fmt::format("{}: an external writer with {}; it has rings and counters only while a reader has it: ringside remote {}",
                  socket, counted(offer.events.size(), "event"), socket));
  return s;
}

result<Stat> stat_served(const std::string& socket) {
  Stat s;
  const auto served = RS_TRY(open_served(socket));
  for (const auto& source : served.sources) s.rings.push_back({source->name(), "served", source->counters()});
  s.problems = served.problems;
  s.past = RS_TRY(served.connection->counters(std::nullopt));
  s.remarks.push_back(fmt::format("{}: the instance {}, served; clock {}", socket, served.name, to_string(served.clock.kind)));
  s.facts = {{"instance", served.name}, {"socket", socket}, {"past", counters_json(s.past)}};
  return s;
}

result<Stat> stat_file(const std::string& file) {
  const auto unpacked = RS_TRY(Unpacked::of(file));
  if (unpacked != nullptr && unpacked->is_recording()) return stat_recording(unpacked->path(), file);
  Stat s;
  auto dat = RS_TRY(open_trace_dat(unpacked != nullptr ? unpacked->path() : file, file));
  for (const std::string& problem : dat.problems) say(problem);
  for (const auto& source : dat.rings) s.rings.push_back({source->name(), "recorded", source->counters()});
  const auto is_counted = [](const Ring& ring) { return ring.counters.written != 0; };
  if (!dat.rings.empty() && std::none_of(s.rings.begin(), s.rings.end(), is_counted)) {
    count_rings(s, dat.rings);
    s.remarks.emplace_back(
        "the file has no counters: these are the events in it; how many were written, and how many of them were lost, is not "
        "known");
  }
  s.remarks.push_back(fmt::format("{}: trace.dat of version {}; clock {}", file, dat.version, to_string(dat.clock.kind)));
  s.facts["recording"] = file;
  return s;
}

result<Stat> stat_kernel(const std::string& dir) {
  Stat s;
  for (const u32 cpu : kernel_cpus(dir)) {
    RingName name;
    name.ring = cpu;
    name.kernel = true;
    const Counters counters = RS_TRY(kernel_counters({dir, cpu}));
    s.rings.push_back({name, "live", counters});
  }
  std::set<std::pair<i32, std::string>> consumers;
  for (const KernelConsumer& c : kernel_consumers(dir)) {
    for (Ring& ring : s.rings) {
      if (ring.name.ring != c.cpu) continue;
      ring.readers.push_back(c.pid);
      ring.source = to_string(c.way);
    }
    consumers.emplace(c.pid, fmt::format("{}-{} consumes it, source: {}", c.task, c.pid, to_string(c.way)));
  }
  for (const auto& [pid, remark] : consumers) s.remarks.push_back(remark);
  const auto on = sys::read_file(dir + "/tracing_on");
  const bool tracing = on && on->front() == '1';
  s.remarks.push_back(
      fmt::format("{}: of the kernel; tracing is {}; clock {}", dir, tracing ? "on" : "off", kernel_clock_of(dir)));
  s.facts = {{"instance", dir}, {"kernel", true}, {"tracing_on", tracing}};
  return s;
}

result<Stat> stat_instance(const std::string& name) {
  Stat s;
  auto opened = RS_TRY(Instance::open(name));
  Instance& instance = *opened;
  for (const RingInfo& info : instance.rings()) {
    s.rings.push_back({info.name, info.live ? "live" : "ended", info.counters});
    if (!info.problem.empty()) s.problems.push_back(info.problem + "; its counters are not in the sums");
    if (info.corrupt)
      s.remarks.push_back(fmt::format(
          "ring {}: its words contradict each other, and it takes no more events; a resize makes a fresh one", info.name.ring));
  }
  const Presence writers = instance.writers();
  const std::string_view clock = to_string(instance.clock().kind);
  const char* alive = writers == Presence::some   ? "owner alive"
                      : writers == Presence::none ? "no writer (stale)"
                                                  : "nothing can tell whether some of its writers live";
  s.remarks.push_back(
      fmt::format("{}: {}; tracing is {}; clock {}", instance.path(), alive, instance.tracing_on() ? "on" : "off", clock));
  const PastTotals p = instance.past();
  s.past = counters_of(p);
  if (p.rings != 0)
    s.remarks.push_back(fmt::format("{} back; their counts are in the sums",
                                    counted(p.rings, "ring gave its memory", "rings gave their memory")));
  const bool cpus = instance.cpu_rings() != 0;
  s.remarks.push_back(fmt::format("{}, {}", cpus ? "rings of CPUs" : "rings of threads", to_string(instance.rings_because())));
  s.remarks.push_back(how_rings_are_made(instance));
  if (std::string untraced = instance.untraced(); !untraced.empty()) s.remarks.push_back(std::move(untraced));
  const u64 off = instance.refused_off(), homeless = instance.refused_without_ring();
  if (off != 0)
    s.remarks.push_back(counted(off, "event was", "events were") +
                        " refused while recording was off, or while a ring stood still for a snapshot");
  if (homeless != 0)
    s.remarks.push_back(counted(homeless, "event") +
                        " came into no ring (budget, no room for another ring, a ring that was given up, an event that a signal "
                        "handler left by longjmp, or a program in a sandbox)");
  s.facts = {{"instance", instance.path()},
             {"live", writers != Presence::none},
             {"tracing_on", instance.tracing_on()},
             {"rings_of", cpus ? "cpu" : "thread"},
             {"rings_because", to_string(instance.rings_because())},
             {"refused_without_ring", homeless},
             {"refused_off", off},
             {"clock", clock},
             {"subbuf_size", geometry_of(instance.control()).subbuf_size()},
             {"mode", instance.control().mode == 0 ? "overwrite" : "discard"},
             {"processes_without_clock", instance.without_clock()},
             {"past", counters_json(s.past)}};
  return s;
}

result<Stat> stat_of(const std::string& name) {
  const Where where = Where::of(name);
  if (where.is_served()) return stat_served(name);
  if (where.is_recording()) return stat_recording(name, name);
  if (where.is_writer()) return stat_writer(where.socket);
  if (where.is_file()) return stat_file(name);
  if (where.is_kernel()) return stat_kernel(where.dir);
  if (where.has_no_rings())
    return refuse(std::errc::invalid_argument,
                  name + " is " + where.what() +
                      ", which has events, but no counters of rings; ringside report reads them and says what is lost");
  if (where.is_nothing() && name.find('/') == std::string::npos && find_command(name))
    return refuse(std::errc::no_such_file_or_directory,
                  "there is no instance or recording " + name + ", but a command: ringside record " + name +
                      " records it, ringside syscalls " + name + " counts its system calls");
  return stat_instance(name);
}

nlohmann::json json_of(const Ring& ring, bool has_counters) {
  nlohmann::json r = has_counters ? counters_json(ring.counters) : nlohmann::json{{"events", ring.events}};
  const Elsewhere& e = ring.name.elsewhere;
  r.update({{"ring", ring.name.ring},
            {"pid", e.seen_pid(ring.name.pid)},
            {"tid", e.seen_tid(ring.name.tid)},
            {"task", ring.name.task},
            {"process", ring.name.process},
            {"state", ring.state}});
  if (e.tid != 0) r.update({{"ns_pid", e.pid}, {"ns_tid", e.tid}, {"pid_namespace", e.pid_namespace}});
  if (ring.name.cpu >= 0) r["cpu"] = ring.name.cpu;
  if (ring.name.kernel) r.update({{"kernel", true}, {"source", ring.source}, {"readers", ring.readers}});
  return r;
}

std::string of_ring(const Ring& ring) {
  if (!ring.name.buffer.empty()) return ring.name.buffer;
  if (ring.name.kernel) return "kernel";
  return ring.name.cpu >= 0 ? ring.name.task : ring.name.task + "-" + ring.name.show_tid();
}

void show_events(const Stat& s, u64 total) {
  Table table({{"ring", Kind::number}, {"of"}, {"state"}, {"events", Kind::number}});
  for (const Ring& ring : s.rings)
    table.row({(ring.name.kernel ? "cpu" : "") + std::to_string(ring.name.ring), of_ring(ring), ring.state,
               format_count(ring.events)});
  table.row({"all", "", "", format_count(total)});
  put(table.render(colours()));
  for (const std::string& remark : s.remarks) say(remark);
}

void show_table(const Stat& s, const Counters& total) {
  Table table({{"ring", Kind::number},
               {"of"},
               {"state"},
               {"written", Kind::number},
               {"read", Kind::number},
               {"unread", Kind::number},
               {"overrun", Kind::number},
               {"dropped", Kind::number},
               {"nested", Kind::number},
               {"unfinished", Kind::number},
               {"resident", Kind::number}});
  const auto row = [&](const std::string& ring, const std::string& thread, const std::string& state, const Counters& c) {
    table.row({ring, thread, state, format_count(c.written), format_count(c.read), format_count(c.unread),
               format_count(c.overrun), dropped_of(c), nested_of(c), format_size(c.unfinished_bytes),
               format_size(c.resident_bytes)});
  };
  // Rings that nobody wrote to have one row together.
  const auto is_bare = [](const Ring& ring) {
    const Counters& c = ring.counters;
    return c.written + c.read + c.unread + c.overrun + c.dropped + c.commit_overrun + c.unfinished_bytes == 0;
  };
  const auto bare = std::count_if(s.rings.begin(), s.rings.end(), is_bare);
  Counters of_bare;
  for (const Ring& ring : s.rings) {
    if (bare > 1 && is_bare(ring)) {
      of_bare.resident_bytes += ring.counters.resident_bytes;
      of_bare.refusals = std::max(of_bare.refusals, ring.counters.refusals);
      continue;
    }
    row((ring.name.kernel ? "cpu" : "") + std::to_string(ring.name.ring), of_ring(ring),
        ring.source.empty() ? ring.state : ring.state + ", " + ring.source, ring.counters);
  }
  if (bare > 1) row(std::to_string(bare), "rings", "no event", of_bare);
  row("all", "", "", total);
  if (!s.facts.contains("remote")) put(table.render(colours()) + identity(total) + "\n");
  for (const std::string& remark : s.remarks) say(remark);
}

result<int> run_stat(const StatOptions& options) {
  Stat s = RS_TRY(stat_of(options.where));
  std::vector<Counters> all{s.past};
  for (const Ring& ring : s.rings) all.push_back(ring.counters);
  const Counters total = s.closing.value_or(sum(all));
  u64 events = 0;
  for (const Ring& ring : s.rings) events += ring.events;
  for (const std::string& problem : s.problems) say(problem);
  if (options.json) {
    nlohmann::json& j = s.facts;
    j["rings"] = nlohmann::json::array();
    for (const Ring& ring : s.rings) j["rings"].push_back(json_of(ring, s.has_counters));
    j["total"] = s.has_counters ? counters_json(total) : nlohmann::json{{"events", events}};
    j["adds_up"] = s.has_counters ? nlohmann::json(adds_up(total)) : nlohmann::json();
    if (!s.problems.empty()) j["problems"] = s.problems;
    put(line_of(j));
  } else if (s.has_counters) {
    show_table(s, total);
  } else {
    show_events(s, events);
  }
  return s.problems.empty() ? exit_ok : exit_failure;
}

}  // namespace

Command add_stat(CLI::App& app) {
  auto options = std::make_shared<StatOptions>();
  CLI::App* c = app.add_subcommand("stat", "counters and memory of every ring");
  c->add_option("WHERE", options->where,
                "instance, recording, trace.dat, an instance of the kernel's, a socket of ringside serve, or an external "
                "writer's socket (its events)")
      ->required();
  add_json(*c, options->json, "one JSON object");
  c->footer(
      "Examples:\n"
      "  ringside stat web                           a live or stale instance\n"
      "  ringside stat web --json | jq .total.overrun\n"
      "  ringside stat ringside-4711                 the kernel's side of a running record or top; no event is taken away\n"
      "Rings that nobody wrote to share a row; --json has each of them.\n"
      "The kernel's rings show their source: \"read\" or \"map\", as their consumer reads them or the recorder did.\n"
      "What must hold: written = read + unread + overrun. Refused events are those dropped (ring full in discard mode) and\n"
      "nested (handlers filled the ring within one event).");
  return {c, [options] { return run_stat(*options); }};
}

}  // namespace ringside::cli
