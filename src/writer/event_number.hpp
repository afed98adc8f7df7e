// The numbers of events, which are one for all instances of a directory, as the kernel's are one for all its instances: a
// reader may decode any of them by the formats of another. An event that a neighbour has keeps its number; a new one gets a
// number that no neighbour uses.
//
// Two events share a number, and a mount decodes each by its own instance's format, only where neighbours do not count or were
// not seen: all numbers are in use; others than the owner may write to the directory, or it is not the instance's real parent;
// another process held its lock too long; the process has no descriptors left.
#pragma once
#include <vector>

#include "sys/sys.hpp"
#include "writer/layout.hpp"

namespace ringside {

// Chooses numbers for one instance, whose lock the caller holds. While this lives, no other process chooses in the directory. A
// process waits two seconds for that, once in its life: another one that is stopped must not stop it. Not thread-safe: what was
// read of the neighbours is kept for the process's next events.
class EventNumbers {
 public:
  explicit EventNumbers(int instance);
  ~EventNumbers();
  EventNumbers(const EventNumbers&) = delete;
  EventNumbers& operator=(const EventNumbers&) = delete;
  // 0: the instance has no number left.
  u32 choose(const InstanceWords& words, const EventEntry& event) const;

 private:
  struct Numbered {
    u64 event;  // the hash of its names and format
    u32 number;
  };
  struct Neighbour {
    u64 device, inode, made_by, made_ns;  // another instance may have the inode of one that was removed
    u64 events = 0;                       // its word when they were read
    std::vector<Numbered> all{};
    bool is(const Neighbour& other) const noexcept {
      return device == other.device && inode == other.inode && made_by == other.made_by && made_ns == other.made_ns;
    }
  };
  static u64 hash_of(const EventEntry& event);
  static bool read(int fd, u64 events, std::vector<Numbered>& all);
  void see(int dir, u64 device, u64 inode);

  static std::vector<Neighbour>& known();  // by this process
  sys::Fd beside_;
  std::vector<const Neighbour*> neighbours_;
};

}  // namespace ringside
