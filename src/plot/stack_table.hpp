// The stacks of a page, as a tree of calls: stacks with the same callers share them. And how often each stack came, over time.
#pragma once
#include <ringside/base/types.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/stack_texts.hpp"

namespace ringside::plot {

// A call's number means the stack that ends there: the call, its caller, and so on.
class StackTable {
 public:
  static constexpr size_t most = 262'144;  // calls

  struct Call {
    u32 function, caller;  // place in functions(); the caller's number, 0: there is none
  };

  explicit StackTable(StackTexts* texts) : texts_(texts) {}

  // From 1 on; 0: it is none, or there was no room for it.
  u32 number(u32 stack);
  bool full() const { return full_; }
  const std::vector<Call>& calls() const { return calls_; }  // number 1 first; a caller comes before its calls
  const std::vector<const std::string*>& functions() const { return functions_; }

 private:
  StackTexts* texts_;
  std::unordered_map<u32, u32> numbers_;  // by stack
  std::vector<Call> calls_;
  std::unordered_map<u64, u32> known_;  // calls by function and caller
  std::unordered_map<std::string, u32> function_numbers_;
  std::vector<const std::string*> functions_;
  bool full_ = false;
};

// Counts over time in columns of 2^shift ns that begin at multiples of their width. When there are more than `most` of them,
// the columns become wider, so the counts do not depend on the order of adding.
class StackCounts {
 public:
  struct Count {
    u64 column, count;
  };

  explicit StackCounts(u64 most) : most_(most) {}

  void add(u64 time, u32 row, u64 count);
  u32 rows() const { return static_cast<u32>(rows_.size()); }
  const std::vector<Count>& row(u32 n) const { return rows_[n]; }  // by column
  u32 shift() const { return shift_; }

 private:
  void widen();

  u64 most_, held_ = 0;
  u32 shift_ = 10;
  std::vector<std::vector<Count>> rows_;
};

}  // namespace ringside::plot
