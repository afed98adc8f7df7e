// A small virtual machine on /dev/kvm that runs a guest of ringside (ringside/guest/abi.hpp): two processors, a thread each,
// memory of its own and the shared region of its rings. The guest is hostile: it can corrupt its own memory and the region, and
// stop answering; each question has a time-out, and each answer is checked.
#pragma once
#include <linux/kvm.h>
#include <ringside/guest/abi.hpp>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "source/source.hpp"
#include "sys/sys.hpp"

namespace ringside::guest {

struct VmOptions {
  u64 memory = 32 << 20;                        // bytes of the guest's own
  std::chrono::nanoseconds tick{1'000'000};     // the period of timer interrupts; 0: none
  std::chrono::nanoseconds patience{10'000'000'000};  // how long to wait for an answer
  u64 arguments[4] = {};                        // for the program
};

struct Answer {
  i32 error = 0;
  u32 id = 0;
  u64 value = 0, refused = 0;
  bool counts_refused = false;
};

class Vm {
 public:
  // Starts the image (a static ELF file) and returns when its rings are set up; processor 0 then waits for go(). region: a
  // descriptor of `region_bytes` of shared memory. Errors: no /dev/kvm (ENOENT, EACCES), an invalid image, a guest that does
  // not start properly.
  static result<std::unique_ptr<Vm>> start(std::span<const u8> elf, int region, u64 region_bytes,
                                           std::span<const u64> descriptor, const VmOptions& options);
  ~Vm();
  void go();

  // Asks processor 1. Any thread may ask; the questions run one after the other.
  result<Answer> ask(Ask what, u32 ring, u64 argument);
  // The same while processor 0 is stopped.
  result<Answer> ask_alone(Ask what, u32 ring, u64 argument);
  // How far the guest's time stamp counter is ahead of the host's, and the error of that; ticks.
  struct TscOffset {
    i64 ahead = 0;
    u64 error = 0;
  };
  result<TscOffset> tsc_offset();

  const std::vector<EventInfo>& events() const noexcept { return events_; }
  u64 result_of(u32 n) const noexcept { return __atomic_load_n(&boot()->results[n & 7], __ATOMIC_ACQUIRE); }
  i32 task() const noexcept { return static_cast<i32>(boot()->task); }  // the thread that is processor 0
  u64 ticks() const noexcept { return __atomic_load_n(&ticks_, __ATOMIC_RELAXED); }

  // Asks the program to end. running() is false when it has ended, or when the guest failed: why() then has a sentence.
  void request_stop() noexcept;
  bool running() const;
  bool wait_end(std::chrono::nanoseconds timeout);
  std::string why() const;
  int status() const;

 private:
  struct Processor {
    sys::Fd fd;
    kvm_run* run = nullptr;
    u64 run_bytes = 0;
    std::thread thread;
    std::atomic<bool> finished{false};
  };
  Vm() = default;
  result<void> build(std::span<const u8> elf, int region, u64 region_bytes, std::span<const u64> descriptor);
  result<u64> load(std::span<const u8> elf);  // the entry
  result<void> set_up(Processor& p, u32 number, u64 entry, u64 stack);
  void run_program();
  void run_service();
  // Runs until the next `out`, EINTR or the end; false: the end, with the reason in why_.
  bool run_once(Processor& p, u16& call, u32& value, bool& interrupted);
  void upcall();
  result<void> take_event(u32 at);
  std::string text(u64 at, u64 room) const;
  void end(const std::string& why, int status);
  Boot* boot() const noexcept { return reinterpret_cast<Boot*>(memory_ + boot_at); }
  result<Answer> ask_locked(Ask what, u32 ring, u64 argument);

  VmOptions options_;
  sys::Fd kvm_, vm_;
  u8* memory_ = nullptr;
  sys::Region region_;
  Processor cpu_[2];
  std::vector<EventInfo> events_;
  u64 ticks_ = 0;

  std::mutex asking_;  // one question at a time
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false, going_ = false, ended_ = false, quit_ = false;
  bool asked_ = false, answered_ = false, serving_ = false;
  bool pause_ = false, paused_ = false;
  std::string why_;
  int status_ = 0;
};

}  // namespace ringside::guest
