// Events of any origin, packed into the sub-buffers of a recording.
//
//   if (!packer.add(time, payload)) { append(ring, packer.take()); packer.restart(); ... }
//   append(ring, packer.take());   // what was added since; it grows the sub-buffer that is there
#pragma once
#include <vector>

#include "source/source.hpp"

namespace ringside {

class Packer {
 public:
  explicit Packer(u32 subbuf_size) : words_(subbuf_size / sizeof(u64)), room_(subbuf_size) {}

  // False: the sub-buffer has no room for it; an empty one has none if !holds(size). A time that goes back is that of the last
  // event.
  bool add(u64 time, Bytes payload);
  bool holds(size_t payload) const;
  void lost(u64 events) { lost_ += events; }  // before the next event; to be called after take()
  bool pending() const { return end_ != taken_ || lost_ != 0; }
  // The events since the last call; valid until the next one.
  SubBufferView take();
  void restart();  // the next event begins a sub-buffer; to be called after take()

 private:
  std::vector<u64> words_;
  u32 room_;
  u32 taken_ = 0, end_ = 0;
  u64 taken_time_ = 0, last_ = 0, lost_ = 0;
};

}  // namespace ringside
