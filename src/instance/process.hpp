// This process as a writer of one instance.
#pragma once
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>
#include <ringside/ringside.h>

#include "clock/clock.hpp"
#include "instance/layout.hpp"
#include "instance/ring_file.hpp"

namespace ringside {

struct Process {
  InstanceWords words;       // null: no instance open
  int dir = -1;              // the instance's directory
  ClockInfo clock;
  i32 pid = 0;
  u64 pid_start = 0;
  char comm[16] = {};
  u64 epochs = 0;  // the newest value of detail::epoch
  char path[4096] = {};
};
extern constinit Process process;

// thread_ring.cpp
void prepare_threads() noexcept;
void retire_this_thread() noexcept;
void copy_open_events() noexcept;  // before a fork
void drop_copy() noexcept;         // in the parent
void forget_thread_after_fork(u64 epoch) noexcept;  // in the child; epoch: the one to come

// registry.cpp
void register_all() noexcept;
void become_child_if_forked() noexcept;  // a child that no fork handler ran in; signal-safe
void save_names(i32 tid, i32 pid, const char* task) noexcept;  // appends to saved_cmdlines, saved_tgids; signal-safe

}  // namespace ringside
