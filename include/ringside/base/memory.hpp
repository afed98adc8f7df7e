// All access to shared words goes through a Memory. The words stay plain integers, so one layout serves the writer, a read-only
// mapper, a guest, and the explorer of interleavings (tests/model).
//
//   load, store           any word, with an order
//   cas                   compare-and-swap against another thread or process; acq_rel on success, acquire on failure
//   cas_local, add_local  against this thread's own signal handlers only: one instruction, no lock prefix
//   fence_light           the cheap half of an asymmetric fence: orders this thread's store before its load only if the
//                         other side issues fence_heavy (membarrier) between its store and its load
//   program_order         keeps the compiler from swapping two accesses that a signal handler may come between; no instruction
//   fence_release         all before it is seen by a side that loads a store after it, relaxed or plain, and then issues
//   fence_acquire         this one. For bytes that are copied while they may be overwritten; free on x86-64
//   copy_in               copies bytes that a writer may be overwriting; the copy is invalid until something validates it
//   pause                 a hint inside a bounded spin
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

enum class Order { relaxed, acquire, release };

#if __cpp_concepts
namespace detail {
template <class T>
concept IsBool = __is_same(T, bool);
template <class T>
concept IsU64 = __is_same(T, u64);
}

template <class M>
concept Memory = requires(u64* word, const u64* cword, u32* half, const u32* chalf, u64& expected, void* to, const void* from) {
  M::load(cword, Order::acquire);
  M::load(chalf, Order::acquire);
  M::store(word, u64{}, Order::release);
  M::store(half, u32{}, Order::release);
  { M::cas(word, expected, u64{}) } -> detail::IsBool;
  { M::cas_local(word, u64{}, u64{}) } -> detail::IsBool;
  M::add_local(word, u64{});
  M::fence_light();
  M::program_order();
  M::fence_release();
  M::fence_acquire();
  M::copy_in(to, from, size_t{});
  M::pause();
};
#endif

}  // namespace ringside
