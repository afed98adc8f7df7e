// Bounds what the rings' files of a recording take on the disk: where there is no room for the next sub-buffer, the oldest ones
// of all rings give theirs back to the file system (a hole at the beginning of a file). What they held is counted.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sys/sys.hpp"

namespace ringside {

struct Removed {
  u64 events = 0, bytes = 0;
};

// Shared by the writers of one recording, which may be in several threads: each holds the lock while it appends.
class SizeLimit {
 public:
  // An error if the file system cannot free a part of a file; `probe` is a file in the directory, which is changed.
  static result<std::shared_ptr<SizeLimit>> create(std::shared_ptr<const sys::Fd> folder, const std::string& dir, u64 most,
                                                   int probe);

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // With the lock held:
  result<void> make_room(u64 bytes);  // for this many more
  void add_ring(u32 ring, const std::string& file, u64 device, u64 inode, u32 subbuf_size) {
    rings_[ring] = {file, device, inode, subbuf_size};
  }
  void wrote(u32 ring, u64 offset, u64 bytes, u64 events);  // a new sub-buffer
  void grew(u32 ring, u64 bytes, u64 events);               // the newest one of this ring
  bool newest_is_gone(u32 ring) const;
  Removed removed(u32 ring) const;

 private:
  struct Piece {
    u32 ring = 0;
    u64 offset = 0, bytes = 0, events = 0;
  };
  struct Ring {
    std::string file;
    u64 device = 0, inode = 0;
    u32 subbuf_size = 0;
    u64 newest = 0;  // the number of its last piece
    Removed removed{};
  };

  SizeLimit(std::shared_ptr<const sys::Fd> folder, std::string dir, u64 most)
      : folder_(std::move(folder)), dir_(std::move(dir)), most_(most) {}
  result<void> remove_oldest();

  const std::shared_ptr<const sys::Fd> folder_;
  const std::string dir_;
  const u64 most_;
  mutable std::mutex mutex_;
  u64 total_ = 0, first_ = 0;  // what all take; the number of the front of pieces_
  std::deque<Piece> pieces_;   // in the order in which they were written
  std::map<u32, Ring> rings_;
};

}  // namespace ringside
