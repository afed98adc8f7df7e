#include "cli/latency_job.hpp"

#include <unistd.h>

#include <algorithm>

#include "analysis/names.hpp"
#include "cli/presets.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

// START_EVENT,START_MATCH[,START_PID]/END_EVENT,END_MATCH[,FLAGS], the syntax of trace-cmd profile.
void parse_hook(const std::string& text, Pairs::Options& pairs) {
  const auto wrong = [&](const std::string& why) {
    return UsageError{"-H " + ringside::in_quotes(text) + ": " + why +
                      "; it takes [SYSTEM:]EVENT,FIELD[,PID]/[SYSTEM:]EVENT,FIELD[,FLAGS]"};
  };
  const auto sides = split_at(text, '/');
  if (sides.size() != 2) throw wrong("there must be one / between start and end");
  const auto start = split_at(sides[0], ','), end = split_at(sides[1], ',');
  if (start.size() < 2 || start.size() > 3 || end.size() < 2 || end.size() > 3)
    throw wrong("an event and its field on both sides");
  for (const auto* side : {&start, &end}) {
    for (const std::string& part : *side) {
      if (part.empty()) throw wrong("nothing between two commas");
    }
  }
  bool cpu = false, global = false;
  for (const char c : end.size() == 3 ? end[2] : std::string()) {
    switch (c) {
      case 'p': case 'P': cpu = true; break;
      case 'g': case 'G': global = true; break;
      case 's': case 'S': say("-H: no stacks are recorded; the flag s does nothing"); break;
      default: throw wrong("flags are p (on one CPU), g (of no task) and s");
    }
  }
  pairs.start = start[0];
  pairs.end = end[0];
  pairs.keys = {{start[1], end[1]}};
  // Without a PID both events belong to one task.
  if (!global && start.size() == 2) pairs.keys.push_back({"common_pid", "common_pid"});
  if (cpu) pairs.keys.push_back({"cpu", "cpu"});
  if (start.size() == 3) pairs.by = "start/" + start[2];
}

}  // namespace

LatencyJob job_of(const LatencyOptions& options) {
  LatencyJob job;
  Pairs::Options& pairs = job.pairs;
  size_t used = 0;
  const auto& words = options.words;
  const Preset* preset = words.empty() || !options.hook.empty() ? nullptr : find_preset(words[0]);
  // One word, or a word and a file: it was to be a name.
  const bool no_name = preset == nullptr && options.hook.empty(),
             one_and_where =
                 no_name && words.size() > 1 && (access(words[1].c_str(), F_OK) == 0 || is_recorded(words[1]));
  if (no_name && (words.size() == 1 || one_and_where)) {
    std::vector<std::string> names;
    for (const Preset& p : all_presets()) names.emplace_back(p.name);
    if (const auto near = nearest(words[0], names); !near.empty())
      throw UsageError{"no pair of events has the name " + in_quotes(words[0]) + did_you_mean(near)};
    if (one_and_where)
      throw UsageError{in_quotes(words[1]) +
                       " is a recording or a file; latency takes START END, or the NAME of a pair, before it, and " +
                       in_quotes(words[0]) + " is no name: there are " + short_list(names)};
  }
  if (!options.hook.empty()) {
    parse_hook(options.hook, pairs);
  } else {
    used = preset != nullptr ? 1 : 2;
    if (words.size() < used)
      throw UsageError{"what from and what to: START END, as SYSTEM:EVENT, or one of the names that --help lists"};
    job.pair.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(used));
    pairs = pair_of(job.pair, "");
    if (preset != nullptr) pairs.by = preset->by;
  }
  job.where.assign(words.begin() + static_cast<std::ptrdiff_t>(used), words.end());
  if (!options.keys.empty()) pairs.keys = parse_keys(options.keys);
  if (!options.by.empty()) pairs.by = options.by == "none" ? "" : options.by;
  pairs.most_waiting = options.most_waiting;
  pairs.most_groups = options.most_groups;
  pairs.slowest = options.slowest;
  pairs.context = options.context;
  pairs.first = options.first;
  pairs.sure = options.sure;
  choose_pairs(pairs, options.run.filter, options.task);
  job.events = events_of(pairs);
  return job;
}

result<RunOptions> where_of(const LatencyJob& job, RunOptions run) {
  run.where = job.where;
  run.where.insert(run.where.end(), run.inputs.begin(), run.inputs.end());
  run.inputs.clear();
  run.filter.clear();  // it chooses pairs, not events
  if (run.events.empty() && !run.where.empty()) return run;
  std::vector<std::string> lists = job.events;
  lists.insert(lists.end(), run.events.begin(), run.events.end());
  if (run.where.empty()) {
    const EventPatterns patterns = parse_events(lists);
    const auto all = kernel_events();
    const bool of_libc =
        std::any_of(patterns.begin(), patterns.end(), [](const EventPattern& p) { return p.text().rfind("libc:", 0) == 0; });
    if (!all && !of_libc && !is_recording(default_recording)) return tl::unexpected<Error>(all.error());
    const bool of_kernel = all && !of_libc && std::any_of(patterns.begin(), patterns.end(), [&](const EventPattern& p) {
                             return means_kernel(p, *all);
                           });
    if (of_kernel && is_recording(default_recording))
      say("the kernel, live, until Ctrl-C or --duration; the recording in this directory takes its name: " +
          std::string(default_recording));
    if (!of_kernel) {
      run.where = {default_recording};
      say_of_default();
    }
    if (!of_kernel && run.events.empty()) return run;
  }
  run.events = lists;
  return run;
}

std::string keys_of(const std::vector<Pairs::Key>& keys, const char* between) {
  std::string text;
  for (const Pairs::Key& key : keys)
    text += (text.empty() ? "" : between) + key.start + (key.end == key.start ? "" : "=" + key.end);
  return text;
}

}  // namespace ringside::cli
