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
  bool is_cleared() const noexcept;  // its words are no longer those of the ring that was opened: cleared, or of other sizes
  bool cut() const noexcept { return control_.cut() || data_.cut(); }

  // Is the writer in the middle of an event? One that begins just now may be seen late. For a CPU's ring nothing shows this.
  bool writing() const noexcept { return __atomic_load_n(&ring_.control->nest, __ATOMIC_ACQUIRE) != 0; }
  bool of_cpu() const noexcept { return ring_.kind == RingKind::cpu; }

  bool lock() noexcept;  // the reader's lock; taken over from a dead process. Fails if the ring was cleared since view_ring().
  // The last lock() found it empty, or with other sizes: its memory was given back since view_ring(), and a writer may have
  // taken it.
  bool is_another() const noexcept { return another_; }
  void unlock() noexcept;  // does nothing in the child of a fork, whose parent has it
  bool locked() const noexcept { return locked_as_ != 0 && members_->has(locked_as_); }

  void gate(u64 bits) noexcept;  // of gate_of_instance
  void give_up() noexcept;  // the writer takes another ring at its next event
  bool mapped() const noexcept { return __atomic_load_n(&ring_.control->mapped, __ATOMIC_ACQUIRE) != 0; }
  result<void> reset(const InstanceWords& of, u32 n);  // this one is ring n
  // Runs `copy` while no writer is inside, then empties the ring. The caller holds the reader's lock.
  result<void> freeze(const InstanceWords& of, u32 n, const std::function<result<void>()>& copy);
  // To be called before its words are cleared.
  void note_cleared(InstanceControl& of) const noexcept;
  // Gives back the memory of an idle ring whose events are all read: a thread's current sub-buffer; for a CPU's ring, all but
  // the tail's. Returns the bytes given back.
  u64 park() noexcept;

 private:
  u64 park_cpu() noexcept;
  void freeze_gate(bool frozen) noexcept;
  bool quiet() noexcept;  // with the gate closed: true if no writer is inside
  Ring ring_;
  Reader<> reader_;
  sys::Region control_, data_;  // and no descriptors: there may be thousands of rings
  std::shared_ptr<Members> members_;
  u64 locked_as_ = 0;
  bool another_ = false;
};

RingName name_of(u32 ring, const RingEntry& entry);

// ENOENT: its memory has just been given back, after all events in it were read.
result<RingView> view_ring(int dir, u32 n, const std::shared_ptr<Members>& members);
// The same in the ring's folder, from open_ring: files opened through it belong to one ring.
result<RingView> look_in(const sys::Fd& folder, u32 n, const std::shared_ptr<Members>& members);

// consume: a consuming source (holds the reader's lock while it lives); else it only peeks.
result<std::unique_ptr<Source>> open_ring(Instance& instance, int dir, const InstanceWords& words, u32 n,
                                          const std::shared_ptr<Members>& members, bool consume);

}  // namespace ringside
