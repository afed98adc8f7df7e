#include "cli/presets.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.hpp"
#include "text/units.hpp"

namespace ringside::cli {
namespace {

const std::vector<Preset> presets{
    {"wakeup", "a thread is woken, until it runs", "sched:sched_waking,sched:sched_wakeup_new", "sched:sched_switch",
     "pid=next_pid", "start/comm", nullptr, nullptr, "sched:sched_wakeup"},
    {"preempted", "a thread that could run is taken off its CPU, until it runs again",
     "sched:sched_switch if prev_pid != 0 && !(prev_state & 0xff)", "sched:sched_switch", "prev_pid=next_pid",
     "start/prev_comm"},
    {"sleep", "a thread goes to sleep, until it is woken", "sched:sched_switch if prev_pid != 0 && prev_state & 0xff",
     "sched:sched_waking", "prev_pid=pid", "start/prev_comm"},
    {"syscalls", "system calls", "raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "common_pid", "end/syscall",
     "syscalls:sys_enter_*", "syscalls:sys_exit_*"},
    {"irq", "interrupt handlers", "irq:irq_handler_entry", "irq:irq_handler_exit", "irq,cpu", "start/name"},
    {"softirq", "soft interrupts", "irq:softirq_entry", "irq:softirq_exit", "vec,cpu", "end/vec"},
    {"softirq-raise", "a soft interrupt is raised, until it runs", "irq:softirq_raise", "irq:softirq_entry", "vec,cpu",
     "end/vec"},
    {"timer", "callbacks of timers", "timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit", "hrtimer.hex,cpu",
     "start/function.sym"},
    {"workqueue", "work is queued, until it begins", "workqueue:workqueue_queue_work", "workqueue:workqueue_execute_start",
     "work.hex", "end/function.sym"},
    {"block", "requests of block devices, issued until complete", "block:block_rq_issue", "block:block_rq_complete",
     "dev,sector", "start/rwbs"},
    {"span", "spans of a program, from begin to end", "ringside:span if track_event_type == 'B'",
     "ringside:span if track_event_type == 'E'", "common_pid,slice_name", "start/slice_name"},
    {"async", "spans of a program that may end on another thread", "ringside:async_span if track_event_type == 'B'",
     "ringside:async_span if track_event_type == 'E'", "slice_name,async_id,process", "start/slice_name"},
    {"functions", "calls of the kernel's functions (record --graph, trace-cmd record -p function_graph)",
     "ftrace:funcgraph_entry", "ftrace:funcgraph_exit", "common_pid,func", "start/func.sym"},
    {"malloc", "memory, from malloc to free (record --libc malloc)", "libc:malloc,libc:calloc,libc:realloc if ptr != 0",
     "libc:free,libc:realloc if libc:free/ptr != 0 || libc:realloc/old != 0 && (ptr != 0 || size == 0)",
     "ptr.hex=old|ptr.hex,process", "start/event", "libc:malloc,libc:calloc,libc:realloc if ptr != 0", "libc:free if ptr != 0"},
};

}  // namespace

const std::vector<Preset>& all_presets() { return presets; }

const Preset* find_preset(const std::string& name) {
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const Preset& p) { return name == p.name; });
  return found == presets.end() ? nullptr : &*found;
}

const Preset* preset_of(const std::string& start, const std::string& end) {
  const auto among = [](const std::string& typed, const std::string& events) {
    const auto words = split_at(Pairs::split(typed).first, ','), all = split_at(events, ',');
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return std::any_of(all.begin(), all.end(),
                         [&](const std::string& event) { return word == event || word == event.substr(event.find(':') + 1); });
    });
  };
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const Preset& p) {
    return std::string_view(p.keys) != "common_pid" && among(start, Pairs::split(p.start).first + "," + p.akin) &&
           among(end, Pairs::split(p.end).first);
  });
  return found == presets.end() ? nullptr : &*found;
}

std::string preset_list() {
  std::string names;
  for (const Preset& p : presets)
    names += fmt::format("  {:<14} {}\n{:17}{} -> {}, {}\n", p.name, p.what, "", p.start, p.end, p.keys);
  return names;
}

std::vector<std::string> split_at(std::string_view text, char c) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(c, at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<Pairs::Key> parse_keys(const std::string& text) {
  std::vector<Pairs::Key> keys;
  for (const std::string& one : split_at(text, ',')) {
    const size_t equal = one.find('=');
    Pairs::Key key{one.substr(0, equal), equal == std::string::npos ? one : one.substr(equal + 1)};
    if (key.start.empty() || key.end.empty())
      throw UsageError{"--key takes FIELD, or START_FIELD=END_FIELD; up to " + std::to_string(Pairs::most_keys) +
                       " with commas"};
    keys.push_back(std::move(key));
  }
  if (keys.size() > Pairs::most_keys) throw UsageError{"--key takes " + std::to_string(Pairs::most_keys) + " fields at most"};
  return keys;
}

Pairs::Options pair_of(const std::vector<std::string>& latency, const std::string& keys) {
  const Preset* preset = find_preset(latency[0]);
  if (latency.size() == 1 && preset == nullptr)
    throw UsageError{"--latency takes START END, as SYSTEM:EVENT, or one of the names that ringside latency --help lists"};
  if (latency.size() == 2 && preset != nullptr)
    throw UsageError{"--latency " + latency[0] +
                     " is the name of a pair and takes no second word; put other arguments before --latency"};
  Pairs::Options pair;
  pair.start = preset != nullptr ? preset->start : latency[0];
  pair.end = preset != nullptr ? preset->end : latency[1];
  if (preset != nullptr && preset->other_start != nullptr)
    pair.otherwise = Pairs::Sides{preset->other_start, preset->other_end};
  if (preset != nullptr || !keys.empty()) pair.keys = parse_keys(keys.empty() ? preset->keys : keys);
  return pair;
}

void choose_pairs(Pairs::Options& pair, const std::string& filter, const std::string& task) {
  pair.filter = filter;
  if (task.empty()) return;
  if (task.find_first_of("\"'") != std::string::npos)
    throw UsageError{"--task takes the name of a thread, without quotes in it"};
  const auto preset = std::find_if(presets.begin(), presets.end(), [&](const Preset& p) { return pair.start == p.start; });
  const Preset* const like = preset != presets.end() ? &*preset : preset_of(pair.start, pair.end);
  // The start is about the thread that will wait: it is woken, or leaves its CPU. Others come from it.
  const std::string_view by = like != nullptr ? like->by : "";
  const std::string of_name = std::string(by.ends_with("comm") ? by : "start/task") +
                              (task.find_first_of("*?[") != std::string::npos ? " ~ \"" : " == \"") + task + "\"";
  pair.filter = filter.empty() ? of_name : "(" + filter + ") && " + of_name;
}

std::vector<std::string> unpaired(const Pairs& pairs) {
  const Pairs::Counts c = pairs.counts();
  std::vector<std::string> out;
  if (c.waiting != 0) out.push_back(counted(c.waiting, "start has", "starts have") + " no end here");
  if (c.unmatched != 0) out.push_back(counted(c.unmatched, "end has", "ends have") + " no start here");
  if (c.passed != 0)
    out.push_back(
        counted(c.passed, "start is", "starts are") +
        " still open though an end of the same key came later: a call that lasts on, or one whose end was taken by a call "
        "inside that left without an end (longjmp); its time is then too short, and the numbers are not exact");
  if (c.repeated != 0)
    out.push_back(counted(c.repeated, "start repeats", "starts repeat") + " within the key before an end came: " +
                  (pairs.options().first ? "the first one counts" : "the last one counts (--first: the first)") +
                  ", and which one the end belongs to is not certain");
  if (c.late != 0)
    out.push_back(counted(c.late, "start or end", "starts or ends") +
                  " came after later events: their pairs may be wrong, or missing");
  return out;
}

std::string accounted(const Unfreed& unfreed, bool none_lost) {
  const Unfreed::Counts& c = unfreed.counts();
  return fmt::format(
      "allocations {} = freed {} + replaced {} + left {}; frees of what was allocated before the trace or elsewhere: {}{}",
      format_count(c.allocations), format_count(c.frees), format_count(c.replaced), format_count(unfreed.left()),
      format_count(c.unmatched), none_lost ? "" : "; lost events may have freed what is left, or allocated more");
}

std::vector<std::string> events_of(const Pairs::Options& pair) {
  return {Pairs::split(pair.start).first, Pairs::split(pair.end).first};
}

}  // namespace ringside::cli
