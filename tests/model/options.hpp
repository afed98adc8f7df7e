// What a search is told, and what it tells.
#pragma once
#include <ostream>
#include <string>

#include "choices.hpp"

namespace ringside::model {

// Budgets are per execution. Small ones, searched completely, find more than large ones at random.
struct Options {
  u32 preemptions = 2;         // switches that nobody asked for
  u32 stale = 2;               // loads that yield an old value
  u32 depth = 3;               // how far back a load may look: the newest message and depth - 1 older ones
  u32 signals = 2;             // handler runs, of all handlers together
  u32 nesting = 2;             // handlers in handlers
  u32 deaths = 1;              // only of contexts with may_die
  u32 max_steps = 20000;       // accesses before we call it an endless loop
  u32 idle_pauses = 200;       // pauses with no store in between before we call it stuck
  bool stuck_allowed = false;  // a stuck execution ends and is counted, instead of failing
  u64 max_executions = ~u64{0};
  double seconds = 60;
  Mode mode = Mode::enumerate;
  u64 seed = 1;
  std::string replay = {};  // for Mode::replay
};

struct Result {
  u64 executions = 0, accesses = 0, deaths = 0, stuck = 0;
  double seconds = 0;
  bool complete = false;  // every execution within the budgets was seen
  std::string failure;    // empty: none
  std::string choices;    // of the failing execution
  std::string trace;      // of the failing execution, or of the one that was to be replayed

  bool passed() const { return failure.empty(); }
  bool proved() const { return passed() && complete; }
};

inline std::ostream& operator<<(std::ostream& out, const Result& r) {
  out << r.executions << " executions" << (r.complete ? ", complete" : "") << ", " << r.deaths << " deaths, " << r.accesses
      << " accesses, " << r.seconds << " s\n";
  if (!r.passed()) out << "failure: " << r.failure << "\nRINGSIDE_REPLAY=\"" << r.choices << "\"\n";
  return out << r.trace;
}

}  // namespace ringside::model
