// A recording as a trace.dat file for trace-cmd and KernelShark. A file with one buffer has version 6, with several version 7.
//
//   TraceDat dat;
//   dat.clock = meta.clock, dat.events = ..., dat.buffers = {{"", must(open_recording(dir, meta))}};
//   must(write_trace_dat("trace.dat", dat));
//
// Sub-buffers are stored unchanged, but for the ids of a program's events: a file has one space of ids, and KernelShark reads
// none above 32,767. The number of a thread's ring becomes the CPU number that trace-cmd shows. The first of several buffers
// has no name: it is the file's own, and KernelShark opens no file without one.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "source/account.hpp"
#include "source/source.hpp"
#include "source/world.hpp"

namespace ringside {

struct TraceDatBuffer {
  std::string name;  // trace-cmd prints it before each line, where there are several
  std::vector<std::unique_ptr<Source>> rings;
};

struct TraceDat {
  ClockInfo clock;
  World world{};
  std::vector<EventInfo> events;
  std::map<i32, std::string> tasks;  // comm by tid
  std::string kallsyms, printk_formats;  // may be empty
  std::vector<TraceDatBuffer> buffers;
  Account account{};       // listed among the statistics: trace-cmd report --stat shows it
  bool unordered = false;  // the times of some ring go back
  std::function<bool()> stop{};  // true: the file is not wanted
};

struct TraceDatSize {
  u64 bytes = 0, sub_buffers = 0;
};

// Consumes the rings. The file appears whole or not at all; an existing file is replaced.
result<TraceDatSize> write_trace_dat(const std::string& path, TraceDat& dat);

}  // namespace ringside
