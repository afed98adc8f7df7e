// How many bytes each process holds over time, and each call site of it. Fed by Unfreed.
//
//   Heap heap(200'000);
//   unfreed.tell(heap);
//   heap.finish(last_ns);
//   for (const Heap::Process& p : heap.processes()) ... heap.curve(p) ...
//   for (const Heap::Site& site : heap.sites(p, texts)) ...
//
// A process's curve has its value after each change; its highest one is that of HeapPeak. A realloc is one change. A call site
// is the `site_depth` innermost functions of an allocation's stack; its values are those at the ends of columns of equal width
// (StackCounts), so between two of them it may have held more.
// Memory: 3 * `most` values, and `most_stacks` different stacks.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/heap_changes.hpp"
#include "decode/stack_texts.hpp"
#include "plot/curves.hpp"
#include "plot/stack_table.hpp"

namespace ringside::plot {

class Heap final : public HeapChanges {
 public:
  static constexpr size_t site_depth = 3, most_sites = 8, most_stacks = 65'536;

  explicit Heap(u64 most) : curves_(most), by_stack_(most) {}

  void add(i64 process, u64 time, u32 root, u32 stack, u64 bytes) override;
  void free(i64 process, u64 time, u32 root, u32 stack, u64 bytes) override;
  void finish();

  struct Process {
    i64 key;
    u64 held = 0;
    bool waits = false;  // its last change, a free, is not in its curve
    u64 time = 0;        // of it
  };
  const std::vector<Process>& processes() const { return processes_; }
  // After finish():
  const Curves& curves() const { return curves_; }  // by place in processes()
  struct Site {
    std::string functions;
    u64 most = 0;                             // bytes
    std::vector<std::pair<u64, u64>> values;  // the end of a column in ns, bytes
  };
  // Of the process at this place: those that held the most, at most `most_sites`, each a hundredth of its highest point at
  // least.
  std::vector<Site> sites(size_t place, StackTexts& texts, u64 last_ns) const;
  u64 column_ns() const { return u64{1} << by_stack_.shift(); }
  u64 left_out() const { return left_out_; }  // changes of stacks beyond `most_stacks`: no call site has them

 private:
  u32 place_of(i64 process);
  void count(u32 place, u64 time, u32 stack, u64 bytes);
  void flush(u32 place);

  std::vector<Process> processes_;
  std::unordered_map<i64, u32> places_;
  Curves curves_;
  StackCounts by_stack_;                              // bytes more, modulo 2^64
  std::unordered_map<u64, u32> rows_;                 // of by_stack_, by place and stack
  std::vector<std::pair<u32, u32>> place_and_stack_;  // by row
  u64 left_out_ = 0;
};

}  // namespace ringside::plot
