// record --rotate: a recording in parts. Each part is a recording; DIR is the one in the making, DIR.0001, DIR.0002, ... are
// finished.
#pragma once
#include <deque>
#include <string>

#include "cli/command.hpp"
#include "record/recording_run.hpp"

namespace ringside::cli {

class Rotation {
 public:
  void add_options(CLI::App& app);
  bool wanted() const { return bytes_ != 0 || ns_ != 0; }
  void check() const;  // a UsageError if the options contradict each other
  // Is it time for the next part? `age_ns`: of this one.
  bool due(u64 bytes, u64 age_ns) const { return (bytes_ != 0 && bytes >= bytes_) || (ns_ != 0 && age_ns >= ns_); }
  // Gives the finished part its name, and removes the oldest one of this run if there are too many. Returns the name.
  result<std::string> put_aside(const std::string& dir);

 private:
  u64 bytes_ = 0, ns_ = 0, keep_ = 0;
  std::deque<std::string> parts_;
  u64 next_ = 0;
};

}  // namespace ringside::cli
