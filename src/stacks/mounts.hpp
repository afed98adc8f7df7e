// The mounts of processes, as procfs lists them. No file system is asked, so one that never answers holds nobody up.
//
//   Mounts mounts;
//   const Mount* mount = RS_TRY(mounts.find(77, id, &budget));   // null: neither process 77 nor this one lists it
//
// A list is read once, and again when the kernel says that it has changed (poll) or the process has entered another mount
// namespace: the kernel gives a number that is free to the next mount. Another process's list is as long as its user wants, so
// it is read to a most size, and taken from the budget.
#pragma once
#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sys/budget.hpp"
#include "sys/sys.hpp"

namespace ringside {

struct Mount {
  u64 id = 0, parent = 0;
  std::string place, type;  // type empty: it is not listed, as the root of a chroot is not
  uid_t user = 0;           // of FUSE: the user that mounted it, as seen in the user namespace where that happened
  bool trusted = false;     // only those who may mount where this process is can have put it there

  bool is_fuse() const { return type == "fuse" || type == "fuseblk" || type.rfind("fuse.", 0) == 0; }
};

class Mounts {
 public:
  static constexpr u64 most_bytes = u64{4} << 20;  // of another process's list: some 30,000 mounts

  explicit Mounts(u64 most = most_bytes) : most_(most) {}

  // pid 0: in this process's list alone. An error: the budget has no room for a list (EAGAIN), or there is none.
  result<const Mount*> find(i32 pid, u64 id, Budget* budget);
  // Whether `place` is a mount on the mount `parent`, in the lists that were read.
  bool has(u64 parent, std::string_view place) const;
  // Lets the lists of other processes go. Their files keep mounts busy.
  void forget() { others_.clear(); }
  u64 read() const { return read_; }  // lists, so far

 private:
  struct List {
    sys::Fd file;   // mountinfo
    u64 space = 0;  // the inode of the mount namespace
    bool trusted = false;
    std::vector<Mount> mounts{};  // by id
  };
  result<void> refresh(List& list, i32 pid, Budget* budget);
  result<void> read(List& list, i32 pid, Budget* budget);
  static const Mount* find(const List& list, u64 id);

  u64 most_;
  List own_;
  std::map<i32, List> others_;
  u64 read_ = 0;
};

}  // namespace ringside
