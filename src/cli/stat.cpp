// ringside stat: the counters of every ring, the sums that must agree, the memory of the rings and the writers.
#include <fmt/format.h>

#include <set>

#include "cli/command_file.hpp"
#include "cli/options.hpp"
#include "cli/result.hpp"
#include "convert/unpacked.hpp"
#include "text/units.hpp"
#include "kernel/clock_check.hpp"
#include "kernel/kernel_source.hpp"
#include "remote/process.hpp"
#include "source/get_reader_served.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"
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

constexpr Members counter_members = {
    {"written", Kind::count, "events that were written: `read` + `unread` + `overrun`", "written"},
    {"read", Kind::count, "those that were read", "read"},
    {"unread", Kind::count, "those that are still in the ring", "unread"},
    {"overrun", Kind::count, "those that were overwritten", "overrun"},
    {"dropped", Kind::count, "events that were never stored: the ring was full; see `refusals`", "dropped"},
    {"commit_overrun", Kind::count, "the same: handlers filled the ring within one event", "nested"},
    {"unfinished_bytes", Kind::bytes, "reserved and not published", "unfinished"},
    {"resident_bytes", Kind::bytes, "resident in memory", "resident"},
    {"bytes", Kind::bytes, "of unread events"},
    {"subbuf_size", Kind::bytes, "of its sub-buffers"},
    {"nr_subbufs", Kind::count, "how many there are"},
    {"refusals", Kind::text,
     "of an external writer, a guest or a line only: `in sum`, `dropped` has all refused events; `at least`, there may be "
     "more"}};
constexpr Members events_member = {
    {"events", Kind::count, "instead of these counters, where there are none: events that are here", "events"}};
constexpr Members ring_members = {{"ring", Kind::number, "its number", "ring"},
                                  {"", Kind::text, "", "of"},
                                  {"state", Kind::text, "live, ended, recorded, served", "state"}};
constexpr Members owner_members = {{"pid", Kind::number, "its owner's process"},
                                   {"tid", Kind::number, "its owner"},
                                   {"task", Kind::text, "the name of its owner"},
                                   {"process", Kind::text, "the name of its owner's process"},
                                   {"ns_pid", Kind::number, "of report, as are `ns_tid` and `pid_namespace`"},
                                   {"ns_tid", Kind::number},
                                   {"pid_namespace", Kind::number},
                                   {"cpu", Kind::number, "its CPU, if it is a program's ring of a CPU"},
                                   {"kernel", Kind::flag, "true, of the kernel's rings only"},
                                   {"source", Kind::text, "of those: how it is read"},
                                   {"readers", Kind::array, "of those: the PIDs of those that read it"}};
constexpr Members stat_result = {
    {"rings", Kind::array, "an object for each ring:", nullptr, ring_members},
    {"rings[]", Kind::object, "", nullptr, counter_members},
    {"rings[]", Kind::object, "", nullptr, events_member},
    {"rings[]", Kind::object, "", nullptr, owner_members},
    {"total", Kind::object, "the same counters summed up: of all rings"},
    {"past", Kind::object, "the same: of rings that gave their memory back"},
    {"adds_up", Kind::flag, "whether `written` is the sum; null where there are no counters"},
    {"problems", Kind::array, "sentences: what could not be read"},
    {"recording", Kind::text, "the path of the recording"},
    {"remote", Kind::text, "the socket of an external writer"},
    {"socket", Kind::text, "the socket of `ringside serve`"},
    {"events", Kind::array, "of an external writer: the names of its events; it has no rings without a reader"},
    {"removed", Kind::object, "a recording with `--max-size`: the `events` and `bytes` that were removed again"},
    {"trigger", Kind::object, "a recording by `ringside trigger`: `condition`, `event`, `time_ns`, `latency_ns`"},
    {"instance", Kind::text, "the path of an instance, or the name of one that is served"},
    {"kernel", Kind::flag, "true, of an instance of the kernel's"},
    {"live", Kind::flag, "whether it has writers"},
    {"tracing_on", Kind::flag, "the switch"},
    {"rings_of", Kind::text, "`cpu` or `thread`"},
    {"rings_because", Kind::text, "the reason"},
    {"refused_without_ring", Kind::count, "events that came into no ring"},
    {"refused_off", Kind::count,
     "enabled events that came while recording was off, or while a ring was stopped for a snapshot"},
    {"clock", Kind::text, "how an instance's rings are made: the clock"},
    {"mode", Kind::text, "the same: `overwrite` or `discard`"},
    {"subbuf_size", Kind::bytes, "the same"},
    {"processes_without_clock", Kind::count,
     "processes that are not traced, because their processor does not have the instance's clock"}};

// Of refused events no number where none is known.
Cells cells_of(const Counters& c) {
  const bool at_least = c.refusals == Refusals::at_least;
  return {c.written,
          c.read,
          c.unread,
          c.overrun,
          {c.dropped, at_least && c.dropped == 0 ? "not known" : format_count(c.dropped) + (at_least ? " or more" : "")},
          {c.commit_overrun, c.refusals == Refusals::by_reason || c.commit_overrun != 0 ? format_count(c.commit_overrun) : "-"},
          c.unfinished_bytes,
          c.resident_bytes,
          c.bytes,
          c.subbuf_size,
          c.nr_subbufs,
          c.refusals != Refusals::by_reason ? Cell(to_string(c.refusals)) : Cell::absent()};
}
Json counters_json(const Counters& c) { return Table::object(counter_members, cells_of(c)); }

// All that stat says of a WHERE.
struct Stat {
  std::vector<Ring> rings;
  nlohmann::json facts = nlohmann::json::object();
  std::vector<std::string> remarks, problems;
  Counters past;                    // of rings that gave their memory back
  std::optional<Counters> closing;  // a recording's own sums include rings that were given back
  bool has_counters = true;         // false: nothing says how many events were written or lost
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
  s.remarks.push_back(fmt::format("{}: trace.dat of version {}; clock {}", file, dat.version,
                                  dat.clock_name.empty() ? "unknown" : sys::printable(dat.clock_name)));
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
                                                  : "nothing shows whether some of its writers live";
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
                        " refused while recording was off, or while a ring was stopped for a snapshot");
  if (homeless != 0)
    s.remarks.push_back(counted(homeless, "event") +
                        " came into no ring (budget, no room for another ring, a ring that was given up, an event that a signal "
                        "handler left by longjmp, a value that does not fit its field, or a program in a sandbox)");
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

std::string of_ring(const Ring& ring) {
  if (!ring.name.buffer.empty()) return ring.name.buffer;
  if (ring.name.kernel) return "kernel";
  return ring.name.cpu >= 0 ? ring.name.task : ring.name.task + "-" + ring.name.show_tid();
}

// Rings that nobody wrote to have one line of the text together.
Table table_of(const Stat& s, const Counters& total, u64 events) {
  Table table;
  table.add(ring_members);
  table.add(s.has_counters ? counter_members : events_member);
  table.add(owner_members);
  const auto is_bare = [&](const Ring& ring) {
    const Counters& c = ring.counters;
    return s.has_counters && c.written + c.read + c.unread + c.overrun + c.dropped + c.commit_overrun + c.unfinished_bytes == 0;
  };
  const auto bare = std::count_if(s.rings.begin(), s.rings.end(), is_bare);
  Counters of_bare;
  for (const Ring& ring : s.rings) {
    const bool hidden = bare > 1 && is_bare(ring), kernel = ring.name.kernel;
    if (hidden) of_bare.resident_bytes += ring.counters.resident_bytes;
    if (hidden) of_bare.refusals = std::max(of_bare.refusals, ring.counters.refusals);
    const Elsewhere& e = ring.name.elsewhere;
    const auto only_if = [](bool is, Json value) { return is ? Cell(std::move(value)) : Cell::absent(); };
    Cells cells{{ring.name.ring, (kernel ? "cpu" : "") + std::to_string(ring.name.ring)},
                Cell::absent(of_ring(ring)),
                {ring.state, ring.state + (s.has_counters && !ring.source.empty() ? ", " + ring.source : "")}};
    const Cells counters = s.has_counters ? cells_of(ring.counters) : Cells{ring.events};
    cells.insert(cells.end(), counters.begin(), counters.end());
    table.row(
        std::move(cells),
        {e.seen_pid(ring.name.pid), e.seen_tid(ring.name.tid), ring.name.task, ring.name.process, only_if(e.tid != 0, e.pid),
         only_if(e.tid != 0, e.tid), only_if(e.tid != 0, e.pid_namespace), only_if(ring.name.cpu >= 0, ring.name.cpu),
         only_if(kernel, true), only_if(kernel, ring.source), only_if(kernel, ring.readers)},
        hidden ? Table::Only::json : Table::Only::none);
  }
  if (bare > 1) table.line({std::to_string(bare), "rings", "no event"}, cells_of(of_bare));
  table.line({"all", "", ""}, s.has_counters ? cells_of(total) : Cells{events});
  return table;
}

result<int> run_stat(const StatOptions& options) {
  Stat s = RS_TRY(stat_of(options.where));
  std::vector<Counters> all{s.past};
  for (const Ring& ring : s.rings) all.push_back(ring.counters);
  const Counters total = s.closing.value_or(sum(all));
  u64 events = 0;
  for (const Ring& ring : s.rings) events += ring.events;
  for (const std::string& problem : s.problems) say(problem);
  const Table table = table_of(s, total, events);
  if (options.json) {
    nlohmann::json& j = s.facts;
    j["rings"] = table.objects();
    j["total"] = s.has_counters ? counters_json(total) : Json{{"events", events}};
    j["adds_up"] = s.has_counters ? nlohmann::json(adds_up(total)) : nlohmann::json();
    if (!s.problems.empty()) j["problems"] = s.problems;
    put(line_of(j));
  } else {
    if (!s.facts.contains("remote")) put(table.render(colours()) + (s.has_counters ? identity(total) + "\n" : ""));
    for (const std::string& remark : s.remarks) say(remark);
  }
  return s.problems.empty() ? exit_ok : exit_failure;
}

}  // namespace

Members stat_members() { return stat_result; }

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
