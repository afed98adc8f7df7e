// The condition of `ringside trigger`: its text, and whether an event meets it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "analysis/filter.hpp"
#include "analysis/names.hpp"
#include "analysis/pairs.hpp"
#include "consumer/reading.hpp"
#include "consumer/trace.hpp"

namespace ringside::cli {

inline constexpr const char* which_pair =
    "the latency of which pair? Name one of ringside latency, as in 'latency wakeup > 1ms', or two events: 'latency START END "
    "> 1ms'";

// The condition: an event among `events` that meets `filter`; or the end of a pair, which has a condition of its own.
struct Wanted {
  EventPatterns events;  // none: any that can meet the filter
  std::string filter;
  std::optional<Pairs::Options> pair;
};

// latency: the pair of --latency, or none: the condition may name it. Throws UsageError.
Wanted wanted_by(std::string condition, std::vector<std::string> latency, const std::string& keys);

// Checks every record against the condition. A program's events are known only when it runs: until then nothing can be
// compiled, and pending() says why.
class Condition {
 public:
  Condition(Wanted wanted, const Trace& trace, bool may_wait)
      : wanted_(std::move(wanted)), trace_(trace), may_wait_(may_wait), named_(wanted_.events) {}

  // To be called at first, and whenever events may have appeared.
  result<void> compile();
  // Drops all that was seen so far: none of it belongs to later events.
  result<void> forget() { return wanted_.pair && ready_ ? make() : result<void>(); }

  bool met(const TraceRecord& record, const RingName& ring) {
    if (!ready_) return false;
    if (pairs_) return pairs_->take(record, ring);
    return record.lost == 0 && named_.wants(record.number(), trace_.formats) && passes(record, ring);
  }
  std::optional<u64> latency() const { return pairs_ ? std::optional<u64>(pairs_->latency()) : std::nullopt; }
  const std::string& pending() const { return pending_; }
  // Threads whose names it compares are looked up by the reading.
  void look_up_in(Reading& reading) const {
    if (filter_) reading.look_up_for(*filter_);
    if (pairs_) reading.look_up_for(*pairs_);
  }

 private:
  result<void> make();
  bool has_wildcards() const;
  bool passes(const TraceRecord& record, const RingName& ring) { return !filter_ || filter_->matches(record, ring); }

  const Wanted wanted_;
  const Trace& trace_;
  const bool may_wait_;
  std::optional<Filter> filter_;
  std::optional<Pairs> pairs_;
  EventFilter named_;
  std::string pending_{};
  const EventPattern* missing_ = nullptr;  // of wanted_
  size_t types_ = 0;
  bool ready_ = false;
};

}  // namespace ringside::cli
