// What several threads make of parts, used in the order of the parts.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <ringside/base/types.hpp>

namespace ringside::cli {

template <class Part>
class InOrder {
 public:
  // ahead: how many parts may wait for their turn. use: of one at a time; false: it takes no more.
  InOrder(size_t ahead, std::function<bool(Part&)> use) : ahead_(ahead), use_(std::move(use)) {}

  // Part n. Waits while too many do. False: this part, or those after it, are not wanted.
  bool add(size_t n, Part part) {
    std::unique_lock held(mutex_);
    turn_.wait(held, [&] { return n < next_ + ahead_ || n >= end_; });
    if (n >= end_) return false;
    waiting_.emplace(n, std::move(part));
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_ && next_ < end_;
         first = waiting_.erase(first), ++next_) {
      gone_ = gone_ || !use_(first->second);
      if (gone_) end_ = 0;
    }
    turn_.notify_all();
    return n < end_;
  }
  // Neither part n nor a later one is used.
  void end_before(size_t n) {
    const std::lock_guard held(mutex_);
    end_ = std::min(end_, n);
    turn_.notify_all();
  }
  // Once all have ended:
  size_t end() const { return end_; }  // the first part that was not used
  bool gone() const { return gone_; }  // use took no more

 private:
  const size_t ahead_;
  const std::function<bool(Part&)> use_;
  std::mutex mutex_;
  std::condition_variable turn_;
  std::map<size_t, Part> waiting_;
  size_t next_ = 0, end_ = ~size_t{0};
  bool gone_ = false;
};

}  // namespace ringside::cli
