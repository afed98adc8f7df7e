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
  char path[4096] = {};
};
extern constinit Process process;

// thread_ring.cpp
void prepare_threads() noexcept;
void retire_this_thread() noexcept;
void forget_thread_after_fork() noexcept;

// registry.cpp
void register_all() noexcept;
void save_names(i32 tid, i32 pid, const char* task) noexcept;  // appends to saved_cmdlines, saved_tgids; signal-safe

}  // namespace ringside
