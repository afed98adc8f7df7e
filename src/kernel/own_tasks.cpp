#include "kernel/own_tasks.hpp"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <system_error>

#include "kernel/kernel_numbers.hpp"
#include "sys/sys.hpp"

namespace ringside {

void OwnTasks::add_events(const std::vector<EventInfo>& events) {
  for (const EventInfo& e : events)
    if (e.system == "sched") kept_.push_back(e.id);
  std::sort(kept_.begin(), kept_.end());
}

void OwnTasks::add(i32 tid) {
  if (tid > 0 && KernelNumbers::differ()) {
    if (numbers_ == nullptr) numbers_ = KernelNumbers::shared().value_or(nullptr);
    tid = numbers_ != nullptr ? numbers_->of(getpid(), tid).value_or(0) : 0;
  }
  const auto at = std::lower_bound(tids_.begin(), tids_.end(), tid);
  if (tid > 0 && (at == tids_.end() || *at != tid)) tids_.insert(at, tid);
}

void OwnTasks::add_all_threads() {
  constexpr u64 every_ns = 100'000'000;
  const u64 now = sys::now_ns();
  if (looked_ns_ != 0 && now - looked_ns_ < every_ns) return;
  looked_ns_ = now;
  std::error_code none;
  tids_.clear();
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", none)) {
    const std::string name = entry.path().filename().string();
    i32 tid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), tid).ec == std::errc()) add(tid);
  }
}

}  // namespace ringside
