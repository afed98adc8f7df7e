// The numbers of events, which are one for all instances of a directory, as the kernel's are one for all its instances: a
// reader may decode any of them by the formats of another. An event that a neighbour has keeps its number; a new one gets a
// number that no neighbour uses. Only when all are in use do two events share one.
#pragma once
#include <vector>

#include "sys/sys.hpp"
#include "writer/layout.hpp"

namespace ringside {

// Chooses numbers for one instance, whose lock the caller holds. While this lives, no other process chooses in the directory
// (for two seconds: a process that is stopped must not stop all others).
class EventNumbers {
 public:
  explicit EventNumbers(int instance);
  // 0: the instance has no number left.
  u32 choose(const InstanceWords& words, const EventEntry& event) const;

 private:
  sys::Fd beside_;
  std::vector<EventEntry> others_;  // the neighbours' events
  std::vector<u32> numbers_;        // theirs
};

}  // namespace ringside
