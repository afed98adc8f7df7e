// A ring's two files: make, map, check, recycle. Everything here may be called in a signal handler: system calls only.
#pragma once
#include <ringside/ring/control.hpp>

#include "sys/sys.hpp"
#include "writer/layout.hpp"

namespace ringside {

// What a process knows of the memory of a ring's sub-buffers: where there is memory, a store does not fault, and is no
// SIGBUS on a full file system. known: for this number of sub-buffers; for those beyond, it asks the kernel each time.
// Signal-safe, and for all threads.
template <u32 known>
class Backing {
 public:
  // True: sub-buffer `id` has memory now.
  bool back(const Ring& ring, u32 id) noexcept {
    const auto now = static_cast<u16>(__atomic_load_n(&ring.control->punched, __ATOMIC_ACQUIRE) + 1);
    if (id < known && now != 0 && __atomic_load_n(&since_[id], __ATOMIC_RELAXED) == now) return true;
    if (now != 0 && __atomic_load_n(&all_since_, __ATOMIC_RELAXED) == now) return true;
    if (!sys::populate(ring.subbuf(id), ring.geometry.subbuf_size())) return false;
    if (id < known) __atomic_store_n(&since_[id], now, __ATOMIC_RELAXED);
    return true;
  }
  // The same for all of them.
  bool back_all(const Ring& ring) noexcept {
    const auto now = static_cast<u16>(__atomic_load_n(&ring.control->punched, __ATOMIC_ACQUIRE) + 1);
    if (now == 0 || !sys::populate(ring.subbuf(0), u64{ring.geometry.nr_subbufs()} * ring.geometry.subbuf_size())) return false;
    __atomic_store_n(&all_since_, now, __ATOMIC_RELEASE);
    return true;
  }

 private:
  u16 all_since_ = 0;      // the same, for all
  u16 since_[known] = {};  // Control::punched + 1, before the memory was certainly there
};

struct MappedRing {
  Ring ring;
  u64 control_bytes = 0, data_bytes = 0;
  explicit operator bool() const noexcept { return ring.control != nullptr; }
};

// ours: no other process makes or sizes them now, because the ring is claimed or in a folder that no other knows. They are made
// and extended as needed.
enum class Files : u8 { there, ours };
// Maps ring `n` below the directory `dir` (an open descriptor of the instance) read-write. Its control
// words have memory. Empty on failure, errno says why.
MappedRing map_ring(int dir, u32 n, const Geometry& geometry, Files files) noexcept;
// The same in a folder below `dir`, of at most 63 bytes with its slash at the end.
MappedRing map_ring_in(int dir, const char* folder, const Geometry& geometry, Files files) noexcept;
// A file can contain anything: a wrong value here leads to wrong numbers only.
inline RingKind kind_of(const Control& control) noexcept {
  return control.kind == static_cast<u64>(RingKind::cpu) ? RingKind::cpu : RingKind::thread;
}
// Writes its sizes and kind into its control words. The caller owns it (RingState::busy).
void label_ring(const Ring& ring) noexcept;
// The sizes of ring `n`, from its own words; `fresh` if it is new. Invalid if they are damaged. Reading a file costs less than
// mapping it.
Geometry ring_geometry(int dir, u32 n, const Geometry& fresh) noexcept;
// The folder of ring `n`, to read files that belong together: a CPU's folder may be moved aside, and another one put in its
// place.
sys::Fd open_ring(int dir, u32 n) noexcept;
// The same by its folder. Invalid, errno 0: damaged; else errno says why it could not be read.
Geometry ring_geometry_in(int folder, const Geometry& fresh) noexcept;
// Both files of an existing ring. Empty on failure.
MappedRing map_whole_ring(int dir, u32 n) noexcept;
// May all of it be read already? Checked without a lock: the ring's next owner checks again.
bool seems_read(int dir, u32 n) noexcept;
void unmap_ring(MappedRing& ring) noexcept;
// Puts private zeros in the place of `at`: a new ring that nobody reads.
void forget_ring(MappedRing& at) noexcept;

// Switches recording off or on; all other bits of the gate stay.
void switch_gate(Control& control, u64 gate) noexcept;  // to these bits of gate_of_instance
// Claims a new ring number (claim_of); most_rings: there is none, or no memory. Signal-safe. If a process dies after the claim,
// the claim stays visible.
u32 claim_new_ring(const InstanceWords& words, u64 claim) noexcept;

// Gives the memory of both files back; the ring is new afterwards. The caller owns it (RingState::busy).
bool clear_ring(int dir, u32 n) noexcept;

// Bytes of memory of both files.
u64 resident_bytes(int dir, u32 n) noexcept;

// "per_cpu/cpuN/NAME"; out holds 64 bytes.
void ring_path(u32 n, const char* name, char* out) noexcept;

}  // namespace ringside
