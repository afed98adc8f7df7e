#include "cli/record_names.hpp"

#include <unistd.h>

#include <algorithm>

#include "cli/command.hpp"
#include "source/recording_sender.hpp"
#include "text/units.hpp"
#include "sys/thread.hpp"

namespace ringside::cli {
namespace {

void say_kept(const NamesKept& kept, const std::string& whose, bool quiet) {
  say_first(kept.problems);
  if (!kept.all) say("not all names of " + whose + " are kept: that would take too long, or too much room");
  if (kept.addresses != 0 && !quiet)
    say("kept the names of " + counted(kept.addresses, "address", "addresses") + " of " + whose + " (" +
        format_size(kept.bytes) + ")");
}

}  // namespace

bool has_stacks(RecordingRun& run) { return run.events() != 0 && ringside::has_stacks(run.meta()); }

void keep_stack_names(const std::string& dir, HandedFiles* files, bool quiet) {
  const auto kept = keep_names(dir, NamesToKeep::of(files));
  if (!kept) return say("the names of its stacks are not kept: " + kept.error().sentence);
  say_kept(*kept, "its stacks", quiet);
}

void send_stack_names(RecordingSender& line, HandedFiles* files, bool quiet) {
  if (line.asked().empty()) return;
  std::string names;
  const NamesKept kept = answer_names(line.asked(), NamesToKeep::of(files), names);
  if (const auto sent = line.replace(kept_names, names); !sent)
    return say("the names of its stacks are not kept: " + sent.error().sentence);
  say_kept(kept, "its stacks", quiet);
}

void NamesOfParts::add(const std::string& dir, HandedFiles* files) {
  const std::lock_guard held(mutex_);
  files_ = files;
  waiting_.push_back(dir);
  changed_.notify_one();
  if (thread_.joinable()) return;
  if (auto started = sys::start_thread("that keeps names", [this] { run(); })) thread_ = std::move(*started);
}

void NamesOfParts::run() {
  for (;;) {
    std::unique_lock held(mutex_);
    changed_.wait(held, [this] { return ended_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::string dir = std::move(waiting_.front());
    waiting_.pop_front();
    held.unlock();
    keep(dir);
  }
}

void NamesOfParts::keep(const std::string& dir) {
  NamesToKeep how = NamesToKeep::of(files_);
  how.over = [this] {
    const std::lock_guard held(mutex_);
    return sys::now_ns() > until_;
  };
  const auto kept = keep_names(dir, how);
  if (!kept && access(dir.c_str(), F_OK) != 0) return;  // --keep has removed it
  const std::lock_guard held(mutex_);
  if (!kept) {
    ++result_.without;
    result_.why = kept.error().sentence;
    return;
  }
  result_.sum.addresses += kept->addresses;
  result_.sum.bytes += kept->bytes;
  result_.sum.all = result_.sum.all && kept->all;
  auto& problems = result_.sum.problems;
  for (const std::string& problem : kept->problems)
    if (std::find(problems.begin(), problems.end(), problem) == problems.end()) problems.push_back(problem);
}

NamesOfParts::Result NamesOfParts::finish() {
  {
    const std::lock_guard held(mutex_);
    ended_ = true;
    until_ = sys::now_ns() + NamesToKeep().most_ns;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  for (; !waiting_.empty(); waiting_.pop_front()) keep(waiting_.front());  // there was no thread
  return result_;
}

void say_names_of_parts(NamesOfParts& names, bool quiet) {
  const NamesOfParts::Result kept = names.finish();
  if (kept.without != 0) say("the names of the stacks of " + counted(kept.without, "part") + " are not kept: " + kept.why);
  say_kept(kept.sum, "the stacks of the earlier parts", quiet);
}

}  // namespace ringside::cli
