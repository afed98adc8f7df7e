// Compresses a recording while it is made. The sub-buffers of a ring go into ringN.raw as in any recording; a thread moves the
// older ones, in groups (groups.hpp), into ringN.zst, and gives their blocks in ringN.raw back to the file system. The recorder
// never waits for it: where it is slower than the events, more of them are in ringN.raw meanwhile. A group is whole in
// ringN.zst before its hole is made, and says where in ringN.raw it was. So after a kill at any moment every sub-buffer is in
// one of the two files, and one that is in both is read once.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sys/sys.hpp"

namespace ringside {

// Shared by the writers of one recording, which may be in several threads.
class Compressor {
 public:
  // An error if the file system cannot free a part of a file; `probe` is a file in the directory, which is changed.
  static result<std::shared_ptr<Compressor>> create(std::shared_ptr<const sys::Fd> folder, const std::string& dir, int probe);
  ~Compressor();

  struct Ring {
    std::string raw, packed;    // its files in the directory
    u64 device = 0, inode = 0;  // of the first
    u32 subbuf_size = 0;
    u64 done = 0, ready = 0;  // up to these places in ringN.raw: compressed; complete
    u64 size = 0;             // of ringN.zst
    bool closed = false, waits = false;
  };
  void add_ring(u32 number, Ring ring);
  void ready(u32 ring, u64 end);  // its sub-buffers before `end` will not change
  void close(u32 ring, u64 end);  // its file ends there, for now
  // Waits until all is compressed, and removes the files ringN.raw. An error: what is not compressed stays there; nothing is
  // lost.
  result<void> finish();
  u64 bytes() const;  // of all ringN.zst

 private:
  Compressor(std::shared_ptr<const sys::Fd> folder, std::string dir) : folder_(std::move(folder)), dir_(std::move(dir)) {}
  void wake(u32 number, Ring& ring);
  void work();
  result<u64> compress(const Ring& ring, u64 end);  // returns the size of the group
  result<u64> compress_or_fail(const Ring& ring, u64 end);
  result<sys::Fd> open(const Ring& ring) const;

  const std::shared_ptr<const sys::Fd> folder_;
  const std::string dir_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::map<u32, Ring> rings_;
  std::deque<u32> queue_;
  std::optional<Error> failure_{};
  bool ending_ = false;
  std::thread thread_;
  std::vector<u8> raw_{}, group_{};  // the thread's
};

}  // namespace ringside
