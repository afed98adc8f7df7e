#include "instance/ring_entry.hpp"

#include <unistd.h>

#include "sys/sys.hpp"

namespace ringside {
namespace {

bool can_judge(const InstanceControl& c) noexcept {
  const u64 here = sys::pid_namespace();
  return here != 0 && c.pid_namespace == here && (__atomic_load_n(&c.impaired, __ATOMIC_ACQUIRE) & lacks::namespace_of_creator) == 0;
}

}  // namespace

bool surely_dead(const InstanceControl& c, i32 pid, u64 start) noexcept { return sys::start_time(pid) != start && can_judge(c); }

bool surely_dead(const InstanceControl& c, const RingEntry& entry) noexcept {
  if (is_of_cpu(entry)) return false;
  const u64 start = sys::start_time(static_cast<i32>(entry.pid), static_cast<i32>(entry.tid));
  return (start == 0 || start != entry.tid_start) && can_judge(c);
}

RingState settle(const InstanceControl& c, RingEntry& entry) noexcept {
  u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
  const auto tid = static_cast<i32>(state >> 32 & 0x7FFFFFFF);
  if (names_cpu(state) && state_of(state) != RingState::busy) return state_of(state);
  const bool dead = state_of(state) == RingState::live   ? surely_dead(c, entry)
                    : state_of(state) == RingState::busy ? sys::start_time(tid) == 0 && can_judge(c)
                                                         : false;
  const RingState left = state >> 63 != 0 ? RingState::empty : RingState::retired;
  if (dead && __atomic_compare_exchange_n(&entry.state, &state, pack_state(left, static_cast<u32>(tid)), false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE))
    return left;
  return state_of(state);
}

}  // namespace ringside
