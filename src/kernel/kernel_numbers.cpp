#include "kernel/kernel_numbers.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "kernel/kernel_source.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr const char* generated = "events/signal/signal_generate";
constexpr size_t most_at_once = 256;  // events of the signals sent here that the instance's rings hold for certain

u64 mask_in(const std::string& status, const char* line) {
  const size_t at = status.find(line);
  return at == std::string::npos ? 0 : std::strtoull(status.c_str() + at + std::string_view(line).size(), nullptr, 16);
}
constexpr u64 bit(int signal) { return u64{1} << (signal - 1); }

// A child between fork and exec: what it inherited.
u64 dropped_by_own_child() {
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, nullptr, &blocked);
  u64 all = 0;
  for (const int signal : {SIGURG, SIGWINCH, SIGCHLD}) {
    struct sigaction is {};
    sigaction(signal, nullptr, &is);
    if (sigismember(&blocked, signal) == 0 && (is.sa_handler == SIG_DFL || is.sa_handler == SIG_IGN)) all |= bit(signal);
  }
  return all;
}

// A signal that the kernel drops at this thread: neither blocked nor caught, and ignored. 0: there is none. A thread that is
// traced shows each signal to its tracer. Those that stop and continue processes do so even where they are ignored.
int dropped_signal(i32 pid, i32 tid) {
  u64 dropped = 0;
  if (sys::proc_is_ours()) {
    const auto status = sys::read_file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/status");
    if (!status || status->find("\nTracerPid:\t0\n") == std::string::npos) return 0;
    const u64 ignored = mask_in(*status, "\nSigIgn:\t") | bit(SIGURG) | bit(SIGWINCH) | bit(SIGCHLD);
    dropped = ignored & ~(mask_in(*status, "\nSigBlk:\t") | mask_in(*status, "\nSigCgt:\t"));
  } else {
    dropped = dropped_by_own_child();
  }
  dropped &= ~(bit(SIGCONT) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU) | bit(SIGSTOP) | bit(SIGKILL));
  for (const int signal : {SIGURG, SIGWINCH, SIGCHLD})
    if ((dropped & bit(signal)) != 0) return signal;
  for (int signal = 1; signal <= 64; ++signal)
    if ((dropped & bit(signal)) != 0) return signal;
  return 0;
}

bool send_dropped(i32 pid, i32 tid, i32 number) {
  const int signal = dropped_signal(pid, tid);
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = SI_QUEUE;
  info.si_errno = number;
  info.si_pid = getpid();
  info.si_uid = getuid();
  return signal != 0 && syscall(SYS_rt_tgsigqueueinfo, pid, tid, signal, &info) == 0;
}

// The number after the last occurrence of `name` in the text; 0: there is none.
i32 number_behind(std::string_view text, std::string_view name) {
  const size_t at = text.rfind(name);
  return at == text.npos ? 0 : std::atoi(std::string(text.substr(at + name.size(), 12)).c_str());
}

}  // namespace

// The instance sees the signals of all processes, so also those of recorders in other PID namespaces.
KernelNumbers::KernelNumbers(TracefsInstance instance)
    : instance_(std::move(instance)), mark_(static_cast<i32>(0x40000000 | (std::random_device()() & 0x3fffff00))) {}

bool KernelNumbers::differ() { return !sys::pids_are_the_kernels(); }

result<std::shared_ptr<KernelNumbers>> KernelNumbers::shared() {
  static std::mutex making;
  static std::weak_ptr<KernelNumbers> made;
  const std::lock_guard alone(making);
  if (auto there = made.lock()) return there;
  TracefsOptions make;
  make.prefix = "ringside-numbers-";
  make.buffer_size = 1 << 17;
  make.clock = ClockKind::mono;
  std::shared_ptr<KernelNumbers> numbers(new KernelNumbers(RS_TRY(TracefsInstance::create(make))));
  TracefsInstance& instance = numbers->instance_;
  const std::string from = std::to_string(numbers->mark_), to = std::to_string(numbers->mark_ + static_cast<i32>(most_at_once));
  RS_TRY(instance.write((std::string(generated) + "/filter").c_str(), "errno >= " + from + " && errno < " + to));
  RS_TRY(instance.write((std::string(generated) + "/enable").c_str(), "1"));
  RS_TRY(instance.tracing(true));
  numbers->exits_.open();
  made = numbers;
  return numbers;
}

// The lines of the instance's `trace`: "... signal_generate: sig=23 errno=E code=-1 comm=NAME pid=NUMBER grp=0 res=1". A name
// may hold anything, but is shorter than what begins the next line.
void KernelNumbers::ask(std::vector<Asked>& threads) {
  for (size_t from = 0; from < threads.size(); from += most_at_once) {
    const size_t count = std::min(most_at_once, threads.size() - from);
    if (!instance_.write("trace", "")) return;
    for (size_t i = 0; i < count; ++i)
      (void)send_dropped(threads[from + i].thread.pid, threads[from + i].thread.tid, mark_ + static_cast<i32>(i));
    const auto text = sys::read_file(instance_.dir() + "/trace");
    constexpr std::string_view begin = "signal_generate: sig=";
    for (size_t at = text ? text->find(begin) : std::string::npos, next; at != std::string::npos; at = next) {
      next = text->find(begin, at + begin.size());
      const std::string_view line = std::string_view(*text).substr(at, next - at);
      const i32 which = number_behind(line.substr(0, line.find(" code=")), " errno=") - mark_;
      if (which >= 0 && static_cast<size_t>(which) < count)
        threads[from + static_cast<size_t>(which)].kernel = number_behind(line, " pid=");
    }
  }
}

void KernelNumbers::note(i32 kernel, Thread thread) { by_kernel_[kernel] = thread; }

result<i32> KernelNumbers::of(i32 pid, i32 tid) {
  const std::lock_guard alone(mutex_);
  const u64 start = sys::proc_is_ours() ? sys::start_time(pid, tid) : 0;
  const auto at = by_tid_.find(tid);
  if (start != 0 && at != by_tid_.end() && at->second.second == start) return at->second.first;
  std::vector<Asked> one{{{pid, tid}}};
  ask(one);
  const i32 kernel = one.front().kernel;
  if (kernel == 0)
    return refuse(std::errc::not_supported,
                  "the kernel's events have the numbers of the first PID namespace, and that of thread " + std::to_string(tid) +
                      " cannot be found from inside this one: the thread has ended, is traced, or catches or blocks every "
                      "signal that others ignore; record it from outside");
  by_tid_[tid] = {kernel, start};
  note(kernel, {pid, tid});
  return kernel;
}

void KernelNumbers::look() {
  constexpr u64 every_ns = 100'000'000;
  const std::lock_guard alone(mutex_);
  exits_.take([&](i32 kernel, i32 pid, i32 tid) { note(kernel, {pid, tid}); });
  const u64 now = sys::now_ns();
  if (!sys::proc_is_ours() || (looked_ns_ != 0 && now - looked_ns_ < every_ns)) return;
  looked_ns_ = now;
  std::vector<Asked> fresh;
  std::map<i32, std::pair<i32, u64>> living;
  for (const i32 pid : numbers_in("/proc")) {
    for (const i32 tid : numbers_in("/proc/" + std::to_string(pid) + "/task")) {
      const auto at = by_tid_.find(tid);
      const u64 start = sys::start_time(pid, tid);
      if (at != by_tid_.end() && at->second.second == start)
        living.insert(*at);
      else if (start != 0)
        fresh.push_back({{pid, tid}});
    }
  }
  ask(fresh);
  for (const Asked& one : fresh) {
    if (one.kernel == 0) continue;
    note(one.kernel, one.thread);
    living[one.thread.tid] = {one.kernel, sys::start_time(one.thread.pid, one.thread.tid)};
  }
  by_tid_ = std::move(living);
}

std::map<i32, KernelNumbers::Thread> KernelNumbers::known() {
  const std::lock_guard alone(mutex_);
  return by_kernel_;
}

KernelNumbers::Thread KernelNumbers::here(i32 kernel) {
  const std::lock_guard alone(mutex_);
  const auto at = by_kernel_.find(kernel);
  return at != by_kernel_.end() ? at->second : Thread();
}

}  // namespace ringside
