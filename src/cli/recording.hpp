// The messages of the commands that record: problems as they come, the summary, the exit code.
#pragma once
#include <set>

#include "cli/command.hpp"
#include "consumer/where.hpp"
#include "record/recording_run.hpp"

namespace ringside::cli {

// The options of commands that record what others write.
struct RecordingOptions {
  std::string out = default_recording;
  bool compress = false, fail_on_loss = false, quiet = false;
  u64 duration_ns = 0;

  void add_options(CLI::App& app, const std::string& duration, const std::string& quietly = "no summary");
};

// A recording in `dir`; an older one there becomes DIR.old.
result<std::unique_ptr<RecordingRun>> new_recording(const std::string& dir, const ClockInfo& clock, bool compress = false);

// The messages about a run, each once.
class Told {
 public:
  void problems(const RecordingRun& run);  // the new ones
  void doubts(const RecordingRun& run);    // after finish()

 private:
  std::set<std::string> told_;
  size_t problems_ = 0;
};

// "compressed to 1.2 MiB, 1/5.0"; empty: nothing is.
std::string compressed_to(const RecordingRun& run);

// "1,234 events, 12.0 KiB in 1.5 s from 3 rings; lost 0; DIR", and the books.
// books: what comes before the books, if these are of more than the recording.
void say_summary(const RecordingRun& run, const std::string& where, const std::string& books = "");

// For a finished recording: failure if its books prove nothing, exit_loss if events are missing and the option is on.
int exit_code(const RecordingRun& run, bool fail_on_loss);

// "cannot be started" has codes of its own, as in a shell.
int failed_to_start(const Error& error);

}  // namespace ringside::cli
