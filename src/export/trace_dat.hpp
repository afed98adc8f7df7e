// A recording as a trace.dat file: what trace-cmd and KernelShark read. Of one buffer it is of version 6, of several of version 7.
//
//   TraceDat dat;
//   dat.clock = meta.clock, dat.events = ..., dat.buffers = {{"", must(open_recording(dir, meta))}};
//   must(write_trace_dat("trace.dat", dat));
//
// Sub-buffers go in as they are; no event is rewritten. A file has one space of event ids, and those of the kernel and of programs
// do not meet (abi::event_id). A thread's ring's number becomes the number of the CPU that trace-cmd shows.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside {

struct TraceDatBuffer {
  std::string name;  // said in front of each line by trace-cmd, where there are several
  std::vector<std::unique_ptr<Source>> rings;
};

struct TraceDat {
  ClockInfo clock;
  std::vector<EventInfo> events;
  std::map<i32, std::string> tasks;  // comm by tid
  std::string kallsyms, printk_formats;  // may be empty
  std::vector<TraceDatBuffer> buffers;
};

struct TraceDatSize {
  u64 bytes = 0, sub_buffers = 0;
};

// Consumes the rings. The file appears whole or not at all; one that was there is replaced.
result<TraceDatSize> write_trace_dat(const std::string& path, TraceDat& dat);

}  // namespace ringside
