// A filter's clauses: "sched_switch: prev_prio < 100; sched_waking: prio < 100". Before a ":" and a space come the events
// that the clause is asked of; without them it is asked of all. Used where the kernel filters and where we do.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "schema/event_pattern.hpp"

namespace ringside {

struct FilterClause {
  EventPatterns events;   // none: all
  std::string_view text;  // of the filter's text, which must outlive it
};
// At least one. Errors: those of EventPatterns.
result<std::vector<FilterClause>> filter_clauses(std::string_view text);

// What the clauses ask of an event, as one text; empty: nothing.
std::string filter_of(const std::vector<FilterClause>& clauses, std::string_view system, std::string_view name);

}  // namespace ringside
