// A record as one JSON object on a line:
//
//   {"ts":1234567890123,"ring":3,"pid":4700,"tid":4711,"task":"cc1plus","event":"libc:malloc","fields":{"size":32,"ptr":94...}}
//   {"ts":1234567890123,"ring":3,"lost":1234}
//
// Times are nanoseconds. Enums appear by name; texts that are no UTF-8 keep what is, the rest becomes U+FFFD; numbers that JSON
// has no word for (NaN, infinities) are null.
#pragma once
#include "decode/formats.hpp"
#include "export/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class JsonLines {
 public:
  JsonLines(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks) {}
  void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) const;

 private:
  const Formats& formats_;
  const Tasks& tasks_;
};

void append_json_text(std::string_view text, fmt::memory_buffer& out);  // with its quotes

}  // namespace ringside
