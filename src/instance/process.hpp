// This process as a writer of one instance.
#pragma once
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>
#include <ringside/ringside.h>
#include <ringside/thread.hpp>
#include <signal.h>
#include <sys/types.h>

#include "clock/clock.hpp"
#include "instance/layout.hpp"
#include "instance/ring_file.hpp"
#include "sys/sys.hpp"

namespace ringside {

struct Process {
  InstanceWords words;       // null: no instance open
  ClockInfo clock;
  i32 pid = 0;
  bool fenced = false;       // membarrier is at hand
  u32 image = 0;             // RingEntry::image
  char comm[16] = {};
  u64 epochs = 0;            // the newest value of detail::epoch
  ThreadEntry* threads = nullptr;  // the table of who writes; null: the instance has no such file
  bool other_kernel = false;  // than the one that the instance was made under
  u64 pid_namespace = 0;     // 0: unknown, or of another kernel than the creator's
  bool foreign = false;      // that is not the creator's: its threads have numbers of the instance's
  u32 number = 0;            // then its own; 0: none of its threads has one yet
  i32 introduced = 0;        // the pid that the process table knows
  char path[4096] = {};      // the instance's directory: absolute, and which one it was
  dev_t device = 0;
  ino_t inode = 0;
};
extern constinit Process process;

// While it lives, this thread is in calls of our own; tracing them would go on for ever.
class Inside {
 public:
  Inside() noexcept : before_(detail::this_thread.inside) { detail::this_thread.inside = true; }
  ~Inside() { detail::this_thread.inside = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool before_;
};

// While it lives, no signal handler runs in this thread.
class SignalsOff {
 public:
  SignalsOff() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old_);
  }
  ~SignalsOff() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
  SignalsOff(const SignalsOff&) = delete;
  SignalsOff& operator=(const SignalsOff&) = delete;

 private:
  sigset_t old_;
};

// write.cpp
InstanceWords open_words() noexcept;
Doorbell bell_of(const InstanceWords& words) noexcept;  // rings for whoever waits at the instance

// thread_ring.cpp
// Gives this thread a ring of its own, if it has none that it may write to. Signals are off. False: there is none to be had.
bool attach_to_own_ring() noexcept;
// What the child of a vfork has made is given back by its parent.
const void* newest_own_ring() noexcept;
void release_own_rings_above(const void* newest) noexcept;
void retire_this_thread() noexcept;
void copy_open_events() noexcept;  // before a fork
void drop_copy() noexcept;         // in the parent
void forget_thread_after_fork(u64 epoch) noexcept;  // in the child; epoch: the one to come

// introduce.cpp
struct Numbers {
  i32 tid, pid;
};
// Says who this thread is, and answers what its events call it and its process: TID and PID, or numbers of the instance's. Signals are off.
// on_cpus: no entry of a ring will tell its names.
Numbers introduce_thread(const InstanceWords& words, bool on_cpus) noexcept;
// The same for a thread of another process in this one's PID namespace, for which this one writes.
i32 introduce_other(const InstanceWords& words, i32 tid, const char* task) noexcept;

// registry.cpp
void register_all() noexcept;
// Those that were declared so far are not made known to an instance that is opened from now on.
void forget_events() noexcept;
void become_child_if_forked() noexcept;  // a child that no fork handler ran in; signal-safe
// The instance's directory, opened anew: a descriptor that is kept would be the program's to close, to count and to reuse.
// Empty if it is no longer the one that was opened. Signal-safe.
sys::Fd open_directory() noexcept;
void save_names(int dir, i32 tid, i32 pid, const char* task) noexcept;  // appends to saved_cmdlines, saved_tgids; signal-safe

}  // namespace ringside
