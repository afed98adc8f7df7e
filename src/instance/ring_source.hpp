// One ring of an instance, seen from a reading or controlling process.
#pragma once
#include <ringside/ring/clear.hpp>
#include <ringside/ring/iterate.hpp>
#include <ringside/ring/recover.hpp>

#include <functional>

#include "writer/members.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"

namespace ringside {

class Instance;

class RingView {
 public:
  RingView(Ring ring, sys::Region control, sys::Region data, std::shared_ptr<Members> members) noexcept
      : ring_(ring), reader_(ring), control_(std::move(control)), data_(std::move(data)), members_(std::move(members)) {}

  Counters counters() const noexcept;
  Reader<>& reader() noexcept { return reader_; }
  const Ring& ring() const noexcept { return ring_; }
  bool cut() const noexcept { return control_.cut() || data_.cut(); }

  // The writer is in the middle of an event, or so it looks: one that sets out just now may be seen late.
  // Of a CPU's ring nobody sees that.
  bool writing() const noexcept { return __atomic_load_n(&ring_.control->nest, __ATOMIC_ACQUIRE) != 0; }
  bool of_cpu() const noexcept { return ring_.kind == RingKind::cpu; }

  bool lock() noexcept;  // the reader's lock; taken over from a dead process. Never of a ring that has been cleared since it was looked at.
  // The last lock() found it empty, or of other sizes: somebody gave its memory back since the look, and a writer may have taken it.
  bool is_another() const noexcept { return another_; }
  void unlock() noexcept;  // nothing in the child of a fork, whose parent has it
  bool locked() const noexcept { return locked_as_ != 0 && members_->has(locked_as_); }

  void gate(bool open) noexcept;
  void give_up() noexcept;  // the writer takes another ring at its next event
  bool mapped() const noexcept { return __atomic_load_n(&ring_.control->mapped, __ATOMIC_ACQUIRE) != 0; }
  result<void> reset();
  // Runs `copy` while nobody writes, then empties the ring. The reader's lock is ours.
  result<void> freeze(const std::function<result<void>()>& copy);
  // Gives back what an idle ring holds and all have read: the sub-buffer that a thread stands on; all but the tail's of a CPU's ring.
  // Answers bytes given back.
  u64 park() noexcept;

 private:
  u64 park_cpu() noexcept;
  void freeze_gate(bool frozen) noexcept;
  bool is_cleared() const noexcept;  // or of other sizes
  bool quiet() noexcept;  // the gate being closed: true if no writer is inside
  Ring ring_;
  Reader<> reader_;
  sys::Region control_, data_;  // and no descriptors: there may be thousands of rings
  std::shared_ptr<Members> members_;
  u64 locked_as_ = 0;
  bool another_ = false;
};

RingName name_of(u32 ring, const RingEntry& entry);

// ENOENT: its memory has just been given back, all that was in it having been read.
result<RingView> look_at(int dir, u32 n, const std::shared_ptr<Members>& members);
// The same in the ring's folder, as open_ring has just answered: who opens several of its files has those of one ring.
result<RingView> look_in(const sys::Fd& folder, u32 n, const std::shared_ptr<Members>& members);

// consume: a consuming source (holds the reader's lock while it lives); else it looks and leaves.
result<std::unique_ptr<Source>> open_ring(Instance& instance, int dir, const InstanceWords& words, u32 n,
                                          const std::shared_ptr<Members>& members, bool consume);

}  // namespace ringside
