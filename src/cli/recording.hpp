// The words of the commands that record: problems as they come, the summary, the exit code.
#pragma once
#include <set>

#include "cli/command.hpp"
#include "record/recording_run.hpp"

namespace ringside::cli {

// What there is to say of a run, each sentence once.
class Told {
 public:
  void problems(const RecordingRun& run);  // those that came since
  void doubts(const RecordingRun& run);    // after finish()

 private:
  std::set<std::string> told_;
  size_t problems_ = 0;
};

// "1,234 events, 12.0 KiB in 1.5 s from 3 rings; lost 0; DIR", and the books.
void say_summary(const RecordingRun& run, const std::string& where);

// Of a finished recording: failure where its books prove nothing, exit_loss where events are missing and that was asked for.
int exit_code(const RecordingRun& run, bool fail_on_loss);

// "cannot be started" has codes of its own, as in a shell.
int failed_to_start(const Error& error);

}  // namespace ringside::cli
