// Which processes are there: those that write to an instance, consume it or made it. PIDs and start times do not decide that,
// because they mean nothing in another PID or time namespace: the kernel does.
//
// A process takes an entry of the process table by a lock on one byte of the `instance` file. The lock belongs to an open file
// description (F_OFD_SETLK), and only a mapping of one page refers to that: the descriptor is closed, and the child of a fork
// does not get the mapping (MADV_DONTFORK). So the kernel releases the lock at the death or the exec of the process and at no
// other time; any process that may open the file can ask (F_OFD_GETLK). The next owner of an entry increments its generation,
// so a noted name of the previous owner stays dead.
#pragma once
#include <memory>

#include "writer/layout.hpp"
#include "sys/sys.hpp"

namespace ringside {

// Holds an entry until this process ends or calls exec; a family's entry, until the process and all its forked children have
// done so. Signal-safe; one call at a time.
class Seat {
 public:
  explicit Seat(bool of_family = false) noexcept : of_family_(of_family) {}
  // Takes an entry, if this process has none here; from then on it has this role, too. nobody: none is available, because the
  // file system's locks are unreliable, or the table is full. Other threads may ask for the member meanwhile.
  Member take(int dir, const InstanceWords& words, u32 role) noexcept;
  void leave() noexcept;
  // nobody also in the child of a fork, unless the seat is a family's.
  Member member() const noexcept {
    const u64 of = __atomic_load_n(&of_, __ATOMIC_ACQUIRE);
    return of != 0 && (of_family_ || of == sys::this_process()) ? member_ : nobody;
  }

 private:
  bool of_family_;
  Member member_ = nobody;
  u64 of_ = 0;  // the process that took it
  void* held_ = nullptr;
};

// Says which members are dead, by the instance's process table and its file. Signal-safe.
class Judge {
 public:
  // file: `instance`, open to read.
  Judge(int file, const InstanceWords& words) noexcept;
  bool can_tell() const noexcept { return local_; }  // false: no member is known to be dead
  // True: certainly dead. False also if it is unknown.
  bool dead(Member member) const noexcept;
  // The same for the thread that writes to the ring; false for a CPU's ring, which has none.
  bool dead(const RingEntry& entry) const noexcept;
  // Retires a ring whose thread is dead, or whose claimer died before it was done. Returns the state after that.
  RingState settle(RingEntry& entry) const noexcept;
  // A process that has one of these roles lives, or it is unknown.
  bool any(u32 roles) const noexcept;

 private:
  bool has_seat(Member member) const noexcept;
  bool thread_gone(const ProcessEntry& owner, const RingEntry& entry) const noexcept;
  int file_;
  bool local_;  // its locks are reliable
  InstanceWords words_;
};

// The process table as a reader uses it: judges, and has a seat of its own from its first lock on. For one thread at a time.
class Members {
 public:
  // For the instance in this directory.
  static result<std::shared_ptr<Members>> open(int dir);
  ~Members() { seat_.leave(); }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  Member join(u32 role) noexcept { return seat_.take(dir_.get(), words_, role); }
  // The value of reader_lock while this process holds it.
  u64 lock_word() noexcept;
  bool has(u64 word) const noexcept;  // does this process hold the lock with this word?
  const Judge& judge() const noexcept { return judge_; }

 private:
  Members(sys::Fd dir, sys::Fd file, sys::Region region)
      : dir_(std::move(dir)),
        file_(std::move(file)),
        region_(std::move(region)),
        words_{reinterpret_cast<InstanceControl*>(region_.data())},
        judge_(file_.get(), words_) {}
  sys::Fd dir_, file_;
  sys::Region region_;
  InstanceWords words_;
  Judge judge_;
  Seat seat_;
};

}  // namespace ringside
