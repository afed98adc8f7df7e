// A condition on pairs, in the syntax of filters: each comparison is of the start, of the end, or of the pair.
//
//   start/FIELD · end/FIELD    that side's event, its fields and the names that every event has
//   EVENT/FIELD                the side that has such an event
//   latency                    the time between them: latency > 5ms
//   stack, stack[N]            the start's, which waited (end/stack: the end's)
//   key                        what start and end have in common, if it is one field
//   FIELD                      of the side that has it, in all of its events if both sides do; of both, where the key makes it
//   the same in both
//
// A bare name that both sides have and that may differ is refused. What is about one side alone becomes one filter. The start
// is asked when it comes, and its answers wait with it: bits. So no payload is kept.
#pragma once
#include "analysis/filter.hpp"

namespace ringside {

class PairCondition {
 public:
  static constexpr size_t most_of_start = 32;  // filters
  struct Key {
    std::string start, end;  // columns
  };
  struct Sides {
    std::string start, end;  // the events, as patterns
    const std::vector<Key>& keys;
    bool one_thread, one_cpu, one_ring;  // the key has both events' thread, CPU, ring
  };

  // Formats and tasks must outlive it.
  static result<PairCondition> compile(const std::string& text, const Sides& sides, const Formats& formats, const Tasks& tasks);

  // Not inline, so that pairs without a condition do not pay for it.
  [[gnu::noinline]] u32 of_start(const TraceRecord& record, const RingName& ring);
  // Of a pair with this end.
  [[gnu::noinline]] bool met(u32 of_start, u64 latency, const TraceRecord& end, const RingName& ring);
  std::vector<const Filter*> filters() const;

 private:
  enum class Of : u8 { start, end, latency };
  struct Test {
    Of of = Of::start;
    u32 at = 0;  // in starts_ or ends_
    Filter::Compare compare = Filter::Compare::equal;
    u64 ns = 0;
  };

  bool met(const Filter::Node& node, u32 of_start, u64 latency, const TraceRecord& end, const RingName& ring);
  bool is(const Test& test, u32 of_start, u64 latency, const TraceRecord& end, const RingName& ring);

  class Compiler;

  Filter::Node tree_;
  std::vector<Test> tests_;  // its leaves
  std::vector<Filter> starts_, ends_;
};

}  // namespace ringside
