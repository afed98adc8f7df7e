// The messages of the commands that record: problems as they come, the summary, the exit code.
#pragma once
#include <set>

#include "cli/command.hpp"
#include "record/recording_run.hpp"

namespace ringside::cli {

// The messages about a run, each once.
class Told {
 public:
  void problems(const RecordingRun& run);  // the new ones
  void doubts(const RecordingRun& run);    // after finish()

 private:
  std::set<std::string> told_;
  size_t problems_ = 0;
};

// "1,234 events, 12.0 KiB in 1.5 s from 3 rings; lost 0; DIR", and the books.
void say_summary(const RecordingRun& run, const std::string& where);

// For a finished recording: failure if its books prove nothing, exit_loss if events are missing and the option is on.
int exit_code(const RecordingRun& run, bool fail_on_loss);

// "cannot be started" has codes of its own, as in a shell.
int failed_to_start(const Error& error);

}  // namespace ringside::cli
