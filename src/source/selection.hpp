// Leaves some of a ring's events out: their sub-buffers are copied without them, and the times of the others stay.
#pragma once
#include <functional>
#include <vector>

#include "source/source.hpp"

namespace ringside {

class Selection {
 public:
  using Wants = std::function<bool(Bytes payload)>;

  // The wanted events of this view, in memory that is valid until the next call. A view that continues the previous one
  // continues its copy, so it grows in a recording, too. A malformed view is returned unchanged, and so is one of which
  // nothing is left out, unless it continues a copy.
  SubBufferView keep(const SubBufferView& view, const Wants& wants);
  void restart() { source_end_ = 0; }  // the next view is of another source
  u64 left_out() const { return left_out_; }  // events, up to now

 private:
  std::vector<u32> copy_{};
  u32 source_end_ = 0, end_ = 0;  // of the previous view, and of its copy
  u64 time_ = 0;                  // of the copy's last event
  u64 left_out_ = 0;
};

}  // namespace ringside
