#include "cli/options.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <thread>

#include "analysis/names.hpp"
#include "text/units.hpp"
#include "kernel/tracefs_instance.hpp"
#include "probe/probes.hpp"
#include "sys/beneath.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

// Events of perf's that are none of the kernel's tracepoints, and what is like them.
constexpr std::pair<std::string_view, const char*> events_of_perf[] = {{"cycles", "--sample 999"},
                                                                       {"cpu-cycles", "--sample 999"},
                                                                       {"cpu-clock", "--sample 999"},
                                                                       {"task-clock", "--sample 999"},
                                                                       {"context-switches", "-e sched:sched_switch"},
                                                                       {"cs", "-e sched:sched_switch"},
                                                                       {"cpu-migrations", "-e sched:sched_migrate_task"},
                                                                       {"page-faults", "-e exceptions:page_fault_user"},
                                                                       {"faults", "-e exceptions:page_fault_user"}};

// "0,2-3"
std::optional<std::vector<u32>> parse_cpus(std::string_view list) {
  constexpr u32 most = 65536;
  std::vector<u32> cpus;
  const auto number = [](std::string_view text, u32& value) {
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc() && end == text.data() + text.size() && value < most;
  };
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string_view one = list.substr(at, end - at);
    const size_t dash = std::min(one.find('-'), one.size());
    u32 first = 0, last = 0;
    if (!number(one.substr(0, dash), first)) return std::nullopt;
    last = first;
    if (dash != one.size() && (!number(one.substr(dash + 1), last) || last < first)) return std::nullopt;
    for (u32 cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = end + 1;
  }
  return cpus;
}

}  // namespace

u64 parse_rate(const std::string& text) {
  size_t end = 0;
  u64 rate = 0;
  while (end < text.size() && end < 6 && text[end] >= '0' && text[end] <= '9')
    rate = rate * 10 + static_cast<u64>(text[end++] - '0');
  std::string unit = text.substr(end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (unit == "khz" || unit == "k") rate *= 1000, unit = "hz";
  if (end == 0 || (!unit.empty() && unit != "hz") || rate == 0 || rate > 20'000)
    throw UsageError{"--sample takes a rate of 1 to 20000 in Hz, not " + text + ": 999 is a usual one"};
  return rate;
}

void add_source(CLI::App& app, std::optional<KernelWay>& forced) {
  app.add_option_function<std::string>(
         "--source",
         [&forced](const std::string& text) {
           forced.reset();
           if (text != "auto") forced = text == "map" ? KernelWay::map : KernelWay::read;
         },
         "how the kernel's rings are read: auto, map (in place, Linux 6.10) or read")
      ->check(CLI::IsMember({"auto", "map", "read"}))
      ->type_name("WAY");
}

void add_events(CLI::App& app, std::vector<std::string>& lists, const std::string& words, const std::string& names,
                bool probes) {
  app.add_option(
         names, lists,
         words + ": SYSTEM:EVENT, SYSTEM or EVENT, with * and ? as wildcards; commas between several, or more of these options")
      ->check([probes](const std::string& list) {
        if (probes && Probe::is(list)) {
          auto probe = Probe::parse(list);
          return probe ? std::string() : probe.error().sentence;
        }
        auto parsed = EventPatterns::parse(list);
        return parsed ? std::string() : parsed.error().sentence;
      })
      ->type_name("PATTERN")
      ->allow_extra_args(false);
}

result<void> check_kernel_events(const EventPatterns& patterns, bool of_recorder) {
  const auto known = RS_TRY(kernel_events());
  for (const EventPattern& pattern : patterns) {
    if (names_some(pattern, known)) continue;
    std::vector<std::string> all;
    for (const KernelEvent& e : known) all.push_back(e.shown());
    const std::string nowhere = "-e " + pattern.text() + ": the kernel has no such event";
    const std::string name = pattern.text().substr(0, pattern.text().find(':'));
    const auto* const perf =
        std::find_if(std::begin(events_of_perf), std::end(events_of_perf), [&](const auto& e) { return e.first == name; });
    if (of_recorder && perf != std::end(events_of_perf)) throw UsageError{nowhere + did_you_mean({perf->second})};
    throw UsageError{nowhere + near_events(pattern, all) + (of_recorder ? "; -u names events of programs" : "")};
  }
  return {};
}

EventPatterns parse_events(const std::vector<std::string>& lists) {
  auto parsed = EventPatterns::parse(lists);
  if (!parsed) throw UsageError{parsed.error().sentence};
  return std::move(*parsed);
}

std::string shown_where(const Trace& trace) { return trace.inputs.size() == 1 ? trace.first().where : "all of these"; }

namespace {

// As report prints it.
std::string moment_in(const Trace& trace, u64 ns) {
  return trace.raw_times() ? std::to_string(ns) : fmt::format("{}.{:06} s", ns / 1'000'000'000, ns % 1'000'000'000 / 1000);
}

// The time of a recording's last event; 0: it has none that can be read.
u64 end_of(const Trace& trace) {
  Reading::Options open;
  for (const auto& input : trace.inputs) open.where.push_back(input->where);
  open.same = &trace;
  open.notices = [](const auto&) {};
  auto last = Reading::open(open);
  if (!last) return 0;
  if (const u64 near = (*last)->trace().timeline.last_sub_buffer(); near != 0) {
    open.window.from = {near, true};
    last = Reading::open(std::move(open));
    if (!last) return 0;
  }
  (*last)->take_rest([](const TraceRecord&, const RingName&, Reading::Got) {});
  return (*last)->totals().last_ns;
}

}  // namespace

std::optional<WallClock> wall_of(const Trace& trace, bool asked) {
  if (!asked) return std::nullopt;
  auto wall = trace.wall();
  if (!wall) throw UsageError{"--wall: " + shown_where(trace) + " does not say its time of day"};
  return wall;
}

void say_wall(const Trace& trace) {
  constexpr u64 much = 10'000'000;
  const auto wall = trace.wall();
  if (wall && wall->error_ns >= WallClock::unknown_error)
    say("times of day are those of the machine's clock, which was not synchronized: how far they are off is unknown");
  else if (wall && wall->error_ns > much)
    say("times of day may be " + format_time(static_cast<double>(wall->error_ns)) + " off, as the machine's clock said");
  for (const auto& input : trace.inputs) {
    const RecordingMeta* const meta = input->recording();
    if (meta != nullptr && static_cast<u64>(std::abs(meta->wall_set_ns)) > much)
      say(fmt::format("the clock of {} was set by {} while it was recorded: times of day follow the one before", input->where,
                      format_time(static_cast<double>(std::abs(meta->wall_set_ns)))));
  }
}

std::string none_within(const Window& asked, Reading& reading) {
  const Window& window = asked.asks_day() || reading.trace().raw_times() ? reading.window() : asked;
  if (window.whole() || reading.trace().live() || reading.totals().seen() + reading.totals().account.overrun != 0) return "";
  const u64 begin = reading.begin();
  if (begin == Timeline::forever) return "";
  std::string out = "no event in " + shown_where(reading.trace()) + " is";
  if (window.of_time()) out += " in the range of --time";
  if (!window.cpus.empty()) out += std::string(window.of_time() ? " and" : "") + " of the CPUs of --cpu";
  out += "; its first one is at " + moment_in(reading.trace(), begin);
  if (const u64 end = end_of(reading.trace()); end != 0) out += ", its last one at " + moment_in(reading.trace(), end);
  if (!window.of_time()) return out;
  return out + (reading.trace().raw_times() ? "; --time +5.. is counted from the first"
                                            : "; --time +0.5s.. is counted from the first");
}

void check_wanted(const EventPatterns& patterns, const Window& asked, Reading& reading) {
  const Window& window = asked.asks_day() || reading.trace().raw_times() ? reading.window() : asked;
  const Trace& trace = reading.trace();
  const std::string where = shown_where(trace);
  if (std::string sentence = unmatched(patterns, trace.formats, where); !sentence.empty()) throw UsageError{sentence};
  if (window.until.given && !window.until.relative && !trace.live()) {
    const u64 begin = reading.begin(), end = window.until.ns;
    if (begin != Timeline::forever && end < begin)
      throw UsageError{where + " begins at " + moment_in(trace, begin) + ", after this range; --time ..+" +
                       (trace.raw_times() ? std::to_string(end) : fmt::format("{}s", static_cast<double>(end) / 1e9)) +
                       " is counted from there"};
  }
  if (window.cpus.empty()) return;
  std::set<u32> known;
  for (u32 n = 0; n < trace.timeline.size(); ++n) {
    if (const i32 cpu = trace.timeline.name(n).its_cpu(); cpu >= 0) known.insert(static_cast<u32>(cpu));
  }
  if (std::any_of(window.cpus.begin(), window.cpus.end(), [&](u32 cpu) { return known.count(cpu) != 0; })) return;
  std::vector<std::string> names;
  for (const u32 cpu : known) names.push_back(std::to_string(cpu));
  throw UsageError{
      "no event in " + where + " is known to be of such a CPU; " +
      (names.empty() ? "its rings are those of threads, and nothing says their CPUs" : "there are " + short_list(names))};
}

void add_input(CLI::App& app, std::vector<std::string>& inputs) {
  app.add_option("-i,--input", inputs, "the same as WHERE")->type_name("WHERE")->allow_extra_args(false);
}

void add_key(CLI::App& app, std::string& keys) {
  app.add_option(
         "-k,--key", keys,
         "what START and END have in common: FIELD, or FIELD=FIELD; up to three with commas (default: the thread that ran)")
      ->type_name("FIELD");
}

void add_task(CLI::App& app, std::string& task) {
  app.add_option(
         "--task", task,
         "only pairs in which the thread of this name waited, whatever its event calls it: the one that was woken, or left "
         "its CPU; else the start's; * and ? in it")
      ->type_name("NAME");
}

void add_window(CLI::App& app, Window& window) {
  app.add_option_function<std::vector<std::string>>(
         "-C,--cpu",
         [&window](const std::vector<std::string>& lists) {
           for (const std::string& list : lists) {
             const auto cpus = parse_cpus(list);
             if (!cpus) throw CLI::ValidationError("--cpu", "\"" + list + "\" is no list of CPUs; write 0,2-3");
             window.cpus.insert(window.cpus.end(), cpus->begin(), cpus->end());
           }
         },
         "only events of these CPUs; events whose CPU is not known are left out")
      ->type_name("LIST")
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
         "--time",
         [&window](const std::string& text) {
           if (auto done = window.parse_time(text); !done) throw CLI::ValidationError("--time", done.error().sentence);
         },
         "only this part: seconds as report prints them, +0.5s after the first event, or a time of day (14:05:02.5..+10s, "
         "2026-11-28T14:05..); either side may be left out, and a comma may replace ..; six digits below the second, as in "
         "1.000212, are all times that report prints so, and other numbers of digits that time to the ns")
      ->type_name("FROM..TO");
}

CLI::Option* add_count(CLI::App& app, u64& count, const std::string& words, u64 least) {
  return app.add_option("-n,--max-count,--count", count, words)->check([least](const std::string& text) {
    u64 number = 0;
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool good = wrong == std::errc() && end == text.data() + text.size() && number >= least;
    return good ? "" : in_quotes(text) + " is no " + (least == 0 ? "" : "positive ") + "number";
  });
}

void add_jobs(CLI::App& app, u32& jobs) {
  app.add_option("-j,--jobs", jobs,
                 "threads that read a recording in parts, with the same result (default: as many as there are CPUs, but one)")
      ->check(CLI::Range(1u, 1024u))
      ->type_name("N");
}

void add_compress(CLI::App& app, bool& compress) {
  app.add_flag("-z,--compress", compress,
               "with zstd, while it is recorded; all commands read it, and a range of time is found as fast");
}

u32 jobs_of(Reading& reading, u32 wanted) {
  constexpr u64 enough = 32 << 20, most_mappings = 16384;  // bytes of a part; the kernel's bound is 65,530
  const u64 cores = std::thread::hardware_concurrency(), rings = std::max(reading.trace().timeline.size(), 1u);
  const u64 some = wanted != 0 ? wanted : std::min(cores - std::min<u64>(cores, 1), reading.bytes() / enough);
  return static_cast<u32>(std::clamp<u64>(some, 1, std::max<u64>(most_mappings / rings, 1)));
}

std::vector<u64> seams_for(Reading& reading, u32 jobs, u64 bytes) {
  if (jobs < 2) return {};
  const u64 each_ring = 2 * reading.trace().timeline.size() * u64{65536};
  return reading.seams(static_cast<u32>(std::clamp<u64>(reading.bytes() / std::max(bytes, each_ring), 4 * jobs, 1 << 20)));
}

CLI::Option* add_filter(CLI::App& app, std::string& text) {
  return app
      .add_option_function<std::vector<std::string>>(
          "-f,-F,--filter",
          [&text](const std::vector<std::string>& all) {
            text.clear();
            for (const std::string& one : all) text += (text.empty() ? "" : "; ") + one;
          },
          "only events that meet it, as in the kernel: 'prev_prio < 100 && comm ~ \"cc1*\"'; "
          "'sched_switch: prev_prio < 100' is for these events, and all others pass; of several, each must hold")
      ->allow_extra_args(false)
      ->type_name("TEXT");
}

Reading::Options reading_of(std::vector<std::string> where, std::string filter) {
  Reading::Options options;
  options.where = std::move(where);
  options.filter = std::move(filter);
  options.notices = say_first;
  options.time = {sys::now_ns, sleep_ns, asked_to_stop};
  return options;
}

result<void> write_file(const std::string& path, const std::string& data, const std::string& option) {
  const auto write = [&]() -> result<void> {
    auto file = RS_TRY(sys::NewFile::into(path, 0644));
    RS_TRY(sys::write_text(file.fd(), path, data));
    return file.put_in_place();
  };
  const result<void> done = write();
  if (done) return done;
  return tl::unexpected<Error>(
      Error{done.error().code, path + " cannot be written: " + done.error().code.message() + "; name another with " + option});
}

bool say_new_problems(Reading& reading) {
  return reading.each_new_problem([](const std::string& problem) { say(problem); }) != 0;
}

bool say_problems(Reading& reading) {
  (void)reading.complete();
  return say_new_problems(reading);
}

std::string how_rings_are_made(const Instance& instance) {
  const Geometry sizes = geometry_of(instance.control());
  return fmt::format("its rings are made with -b {}k --subbuf-size {}k --mode {} --rings {} --clock {}",
                     u64{sizes.nr_slots()} * sizes.capacity() / 1024, sizes.subbuf_size() / 1024,
                     instance.control().mode == 0 ? "overwrite" : "discard", instance.cpu_rings() != 0 ? "cpu" : "thread",
                     to_string(instance.clock().kind));
}

}  // namespace ringside::cli
