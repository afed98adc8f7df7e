// A process whose one thread writes `app:tick` events {u64 number} to an instance, until it has written `count` or is killed.
#pragma once
#include <ringside/base/types.hpp>
#include <ringside/ringside.h>
#include <unistd.h>

#include <string>

namespace ringside::test {

[[noreturn]] inline void write_ticks(const char* instance, u64 count, u32 pause_us) {
  static ringside_event event{"app",
                              "tick",
                              "\tfield:u64 number;\toffset:8;\tsize:8;\tsigned:0;\n",
                              "\"number=%llu\", REC->number",
                              nullptr,
                              0,
                              nullptr,
                              nullptr};
  if (ringside_open(instance) != 0 || ringside_register(&event) != 0) _exit(1);
  for (u64 i = 0; i < count; ++i) {
    if (pause_us != 0) usleep(pause_us);
    if (!ringside_wanted(&event)) continue;
    u64 payload[] = {0, i};
    ringside_write(&event, payload, sizeof payload);
  }
  _exit(0);
}

inline pid_t start_tick_writer(const std::string& instance, u64 count, u32 pause_us = 0) {
  const pid_t child = fork();
  if (child != 0) return child;
  write_ticks(instance.c_str(), count, pause_us);
}

}  // namespace ringside::test
