// The output of parts that several threads make, in the order of the parts.
#pragma once
#include <condition_variable>
#include <fmt/format.h>
#include <map>
#include <mutex>

#include "cli/command.hpp"

namespace ringside::cli {

class InOrder {
 public:
  // ahead: how many parts may wait for their turn.
  explicit InOrder(size_t ahead) : ahead_(ahead) {}

  // Part n. Waits while too many do. False: this part, and those behind it, are not wanted.
  bool add(size_t n, fmt::memory_buffer text) {
    std::unique_lock held(mutex_);
    turn_.wait(held, [&] { return n < next_ + ahead_ || n >= end_; });
    if (n >= end_) return false;
    waiting_.emplace(n, std::move(text));
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_ && next_ < end_; first = waiting_.erase(first), ++next_) {
      gone_ = gone_ || !put({first->second.data(), first->second.size()});
      if (gone_) end_ = 0;
    }
    turn_.notify_all();
    return n < end_;
  }
  // Nothing of part n, nor of a later one, is put.
  void end_before(size_t n) {
    const std::lock_guard held(mutex_);
    end_ = std::min(end_, n);
    turn_.notify_all();
  }
  // Once all have ended:
  size_t end() const { return end_; }   // the first part that was not put
  bool gone() const { return gone_; }  // stdout takes no more

 private:
  const size_t ahead_;
  std::mutex mutex_;
  std::condition_variable turn_;
  std::map<size_t, fmt::memory_buffer> waiting_;
  size_t next_ = 0, end_ = ~size_t{0};
  bool gone_ = false;
};

}  // namespace ringside::cli
