// The result of ringside latency.
#pragma once
#include "analysis/heat_map.hpp"
#include "analysis/pairs.hpp"
#include "cli/latency_job.hpp"
#include "cli/options.hpp"
#include "cli/result.hpp"
#include "text/units.hpp"

namespace ringside::cli {

class LatencyReport {
 public:
  // All of them must outlive it.
  LatencyReport(const LatencyOptions& options, const LatencyJob& job, Trace& trace, const Pairs& pairs, const HeatMap& heat,
                const Account& account, const std::vector<std::string>& notes)
      : options_(options),
        job_(job),
        notes_(notes),
        trace_(trace),
        pairs_(pairs),
        heat_(heat),
        counts_(pairs.counts()),
        account_(account),
        groups_(groups()),
        wall_(wall_of(trace, options.wall)) {}

  Result result(bool last) const;
  // What is to be known about these numbers, beside their losses.
  std::vector<std::string> notes(bool last) const;

 private:
  struct Row {
    u64 key = 0;
    const Pairs::Group* group = nullptr;
    double order = 0;
  };

  std::vector<Row> groups() const;
  Table table() const;
  void slowest(Result& out) const;
  // The fate of every start and every end, and what the numbers are worth.
  std::string closing() const;
  bool exact() const { return counts_.exact() && pairs_.evicted_groups().keys == 0 && account_.none_lost(); }

  std::string shown(double time) const { return format_time(time, trace_.unit()); }
  Cells numbers_of(const Histogram& h) const;
  const EventType* type_of(const Pairs::Copy& copy) const { return trace_.formats.find(copy.record().number()); }
  std::string event_of(const Pairs::Copy& copy) const;
  i32 tid_of(const Pairs::Copy& copy) const;
  std::optional<i32> switched_to(const Pairs::Copy& copy) const;  // the thread that runs from this sched_switch on
  std::string time_of(const Pairs::Copy& copy) const;

  const LatencyOptions& options_;
  const LatencyJob& job_;
  const std::vector<std::string>& notes_;
  Trace& trace_;
  const Pairs& pairs_;
  const HeatMap& heat_;
  const Pairs::Counts counts_;
  const Account& account_;
  const std::vector<Row> groups_;
  const std::optional<WallClock> wall_;  // to show times of day
};

}  // namespace ringside::cli
