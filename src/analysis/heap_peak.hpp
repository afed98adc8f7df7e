// What each process held of memory at its highest point. Fed by Unfreed.
//
// Only what changed since that point is kept: what is held at the end, less those changes, was held there.
// Thread-safety: none.
#pragma once
#include <unordered_map>
#include <vector>

#include "analysis/heap_changes.hpp"
#include "stacks/fold.hpp"

namespace ringside {

class HeapPeak final : public HeapChanges {
 public:
  void add(i64 process, u64 time, u32 root, u32 stack, u64 bytes) override {
    Process& p = processes_[process];
    p.held += bytes;
    ++p.blocks;
    change(p, {root, stack, static_cast<i64>(bytes), 1});
    if (p.held <= p.peak) return;
    p.peak = p.held;
    p.peak_blocks = p.blocks;
    p.time = time;
    p.since.clear();
  }
  void free(i64 process, u64 /*time*/, u32 root, u32 stack, u64 bytes) override {
    Process& p = processes_[process];
    p.held -= bytes;
    --p.blocks;
    change(p, {root, stack, -static_cast<i64>(bytes), -1});
  }

  struct Highest {
    i64 process = 0;
    u64 bytes = 0, blocks = 0, time = 0;
    size_t others = 0;  // processes that held something
  };
  Highest highest() const;  // of the process that held the most
  // Takes the changes since the peak of this process back: `fold` has what it holds at the end.
  void undo(i64 process, Fold& fold) const;

 private:
  struct Change {
    u32 root = 0, stack = 0;
    i64 bytes = 0, blocks = 0;
  };
  struct Process {
    u64 held = 0, blocks = 0, peak = 0, peak_blocks = 0, time = 0;
    std::vector<Change> since{};
    size_t tidy_at = 1 << 20;
  };
  static void change(Process& p, const Change& c) {
    p.since.push_back(c);
    if (p.since.size() >= p.tidy_at) tidy(p);
  }
  static void tidy(Process& p);  // one change for each stack

  std::unordered_map<i64, Process> processes_;
};

}  // namespace ringside
