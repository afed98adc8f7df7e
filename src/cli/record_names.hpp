// What recorders keep so that the stacks of their recordings have names later.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "cli/keep_names.hpp"
#include "record/handed_files.hpp"
#include "record/recording_run.hpp"

namespace ringside {
class RecordingSender;
}

namespace ringside::cli {

bool has_stacks(RecordingRun& run);

// Of a finished recording that has stacks: the names of their addresses, as long as the files can be found. files: null: none
// was handed over. Says what was kept.
void keep_stack_names(const std::string& dir, HandedFiles* files, bool quiet);

// The same for one that a collector keeps.
void send_stack_names(RecordingSender& line, HandedFiles* files, bool quiet);

// The same for finished parts, in a thread: what is recorded meanwhile does not wait.
class NamesOfParts {
 public:
  NamesOfParts() = default;
  ~NamesOfParts() { (void)finish(); }
  NamesOfParts(const NamesOfParts&) = delete;
  NamesOfParts& operator=(const NamesOfParts&) = delete;
  // files must outlive it.
  void add(const std::string& dir, HandedFiles* files);
  // Waits for the parts that were added, within the time that one recording has.
  struct Result {
    NamesKept sum{};
    u64 without = 0;  // parts
    std::string why{};
  };
  Result finish();

 private:
  void keep(const std::string& dir);
  void run();

  HandedFiles* files_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  bool ended_ = false;
  u64 until_ = ~u64{0};
  Result result_;
  std::thread thread_;
};
void say_names_of_parts(NamesOfParts& names, bool quiet);

}  // namespace ringside::cli
