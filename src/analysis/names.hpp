// The names that every record has besides the fields of its event, and the events that patterns name.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "decode/formats.hpp"
#include "schema/event_pattern.hpp"
#include "text/words.hpp"

namespace ringside {

// stack · ts · cpu, CPU, ring · source · comm, COMM, task · pid, tid, common_pid · cgroup · file · event · system ·
// common_type, common_flags, common_preempt_count
bool is_builtin(std::string_view name);

// Two of the events for which `asked` holds, if `name` is a field of one, and built in for the other. Null: it means the same
// in all.
struct Mixture {
  const EventType *with = nullptr, *without = nullptr;
  bool of_thread = false;  // in `without` it means the thread that ran
  const char* rest() const { return of_thread ? "the thread that ran" : "that of the event itself"; }
  explicit operator bool() const { return with != nullptr && without != nullptr; }
};
template <class Asked>
Mixture find_mixture(std::string_view name, const Formats& formats, Asked asked) {
  Mixture found;
  if (!is_builtin(name) || name == "event" || name == "stack") return found;
  found.of_thread = name == "pid" || name == "tid" || name == "comm";
  for (const auto& type : formats.all()) {
    if (asked(*type)) (type->field(name) != nullptr ? found.with : found.without) = type.get();
  }
  return found;
}

// "; did you mean prio or prev_prio?"; empty if nothing is near.
std::string near_names(std::string_view wanted, const Formats& formats);

// Suggestions for a pattern that matches none of `all` ("SYSTEM:EVENT" each): "; did you mean ...?", or the events of its
// system.
std::string near_events(const EventPattern& pattern, const std::vector<std::string>& all);
// A sentence about the first pattern that matches none of the events; empty if there is no such pattern.
std::string unmatched(const EventPatterns& patterns, const Formats& formats, const std::string& where);

// The list of --libc that has this call of the C library; empty: no list has it.
std::string libc_list(std::string_view call);
// Whether --libc LIST records this call.
bool libc_traces(const std::string& lists, std::string_view call);

// "no event here matches ...", with near names, what there is, or how such events are recorded.
std::string none_matches(std::string_view events, const Formats& formats);

// "sched:sched_switch, irq:irq_handler_entry, ...": the first twenty; "none".
std::string event_list(const Formats& formats);

// Parses a pattern where an error cannot be reported: an invalid text matches nothing.
EventPatterns patterns_or_none(std::string_view text);
inline bool matches(const EventPatterns& patterns, const EventType& type) { return patterns.matches(type.system, type.name); }

// Which events patterns name, asked once for each number. No patterns: every event.
class EventFilter {
 public:
  explicit EventFilter(EventPatterns patterns = {}) : patterns_(std::move(patterns)) {}
  bool wants(u32 number, const Formats& formats) {
    if (patterns_.empty()) return true;
    if (number >= known_.size()) known_.resize(((number >> 16) + 1) << 16);
    if (known_[number] == Known::no_idea) {
      const EventType* type = formats.find(number);
      known_[number] = type != nullptr && matches(patterns_, *type) ? Known::yes : Known::no;
    }
    return known_[number] == Known::yes;
  }

 private:
  enum class Known : u8 { no_idea, no, yes };
  EventPatterns patterns_;
  std::vector<Known> known_{};
};

}  // namespace ringside
