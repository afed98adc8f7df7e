// A record as the kernel's own text line, so that grep and existing scripts work:
//
//                cc1plus-4711    [003]  1234.567890: malloc: size=32 ptr=0x55d0c0ffee duration_ns=41
//   CPU:3 [LOST 1234 EVENTS]
//
// The task is 16 wide and right-aligned, then -tid, the ring where the kernel has its CPU, seconds.microseconds, the event and
// its fields. The part in front of the time is kept per ring: it changes only when the thread does.
#pragma once
#include <vector>

#include "decode/formats.hpp"
#include "export/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class TextLines {
 public:
  // raw_times: of a clock that counts no seconds, as the numbers that they are.
  TextLines(const Formats& formats, const Tasks& tasks, bool raw_times = false)
      : formats_(formats), tasks_(tasks), raw_times_(raw_times) {}

  void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out);

 private:
  struct Prefix {
    i32 tid = -1;
    std::string text;
  };
  const std::string& prefix(u32 source, i32 tid, const RingName& ring);

  const Formats& formats_;
  const Tasks& tasks_;
  bool raw_times_;
  std::vector<Prefix> prefixes_;
};

}  // namespace ringside
