// A recording as a trace.dat file, version 6: what trace-cmd and KernelShark read.
//
//   TraceDat dat;
//   dat.clock = meta.clock, dat.events = ..., dat.rings = must(open_recording(dir, meta));
//   must(write_trace_dat("trace.dat", dat));
//
// Sub-buffers go in as they are; no event is rewritten. A file has one space of event ids, so it takes either the rings of a
// program or those of the kernel. A ring's number becomes the number of the CPU that trace-cmd shows.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside {

struct TraceDat {
  ClockInfo clock;
  std::vector<EventInfo> events;
  std::map<i32, std::string> tasks;  // comm by tid
  std::string kallsyms, printk_formats;  // may be empty
  std::vector<std::unique_ptr<Source>> rings;
};

struct TraceDatSize {
  u64 bytes = 0, sub_buffers = 0;
};

// Consumes the rings. The file appears whole or not at all; one that was there is replaced.
result<TraceDatSize> write_trace_dat(const std::string& path, TraceDat& dat);

}  // namespace ringside
