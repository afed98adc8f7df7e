// One job at a time on a thread of its own, for calls that may never return: a file system that does not answer holds up that
// thread, and not the one that waits for its events.
//
//   Aside aside([] { ... });                    // what it does after a tenth of a second without a job
//   if (!aside.run([state] { ... }, 2'000'000'000)) ...
//
// A job that takes too long goes on, also after the end of the object: it owns all that it uses.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "sys/thread.hpp"

namespace ringside::sys {

class Aside {
 public:
  explicit Aside(std::function<void()> when_idle) { state_->when_idle = std::move(when_idle); }
  ~Aside() {
    std::unique_lock lock(state_->mutex);
    state_->over = true;
    state_->changed.notify_all();
    const bool stuck = static_cast<bool>(state_->job);
    lock.unlock();
    if (!thread_.joinable()) return;
    if (stuck)
      thread_.detach();
    else
      thread_.join();
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // False: it was not done in `ns`, or was not begun, as an earlier one has not ended.
  bool run(std::function<void()> job, u64 ns) {
    if (!thread_.joinable()) {
      auto started = quiet_thread("that looks at files", [state = state_] { work(*state); });
      if (!started) return false;
      thread_ = std::move(*started);
    }
    std::unique_lock lock(state_->mutex);
    if (state_->job) return false;
    state_->job = std::move(job);
    state_->changed.notify_all();
    return state_->changed.wait_for(lock, std::chrono::nanoseconds(ns), [&] { return !state_->job; });
  }
  bool busy() const {
    const std::lock_guard lock(state_->mutex);
    return static_cast<bool>(state_->job);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> job, when_idle;
    bool over = false;
  };
  static void work(State& state) {
    bool rested = true;
    std::unique_lock lock(state.mutex);
    for (;;) {
      const auto wanted = [&] { return state.over || state.job; };
      if (rested)
        state.changed.wait(lock, wanted);
      else if (!state.changed.wait_for(lock, std::chrono::milliseconds(100), wanted))
        state.when_idle(), rested = true;
      if (state.over) return;
      if (!state.job) continue;
      lock.unlock();
      state.job();
      lock.lock();
      state.job = nullptr;
      rested = false;
      state.changed.notify_all();
    }
  }
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace ringside::sys
