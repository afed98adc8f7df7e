// Memory on real hardware: the compiler's atomics. On x86-64 the local operations have no lock prefix. Under ThreadSanitizer
// and on other machines they are ordinary relaxed atomics.
#pragma once
#include <ringside/base/memory.hpp>
#include <ringside/base/sanitizers.hpp>

namespace ringside {

struct Hardware {
  template <class T>
  RINGSIDE_INLINE static T load(const T* p, Order o) noexcept {
    return o == Order::relaxed ? __atomic_load_n(p, __ATOMIC_RELAXED) : __atomic_load_n(p, __ATOMIC_ACQUIRE);
  }

  template <class T>
  RINGSIDE_INLINE static void store(T* p, T v, Order o) noexcept {
    if (o == Order::relaxed)
      __atomic_store_n(p, v, __ATOMIC_RELAXED);
    else
      __atomic_store_n(p, v, __ATOMIC_RELEASE);
  }

  RINGSIDE_INLINE static bool cas(u64* p, u64& expected, u64 desired) noexcept {
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }

  RINGSIDE_INLINE static bool cas_local(u64* p, u64 expected, u64 desired) noexcept {
#if defined(__x86_64__) && !RINGSIDE_TSAN
    bool done;
    asm volatile("cmpxchgq %[desired], %[word]"
                 : "=@ccz"(done), [word] "+m"(*p), "+a"(expected)
                 : [desired] "r"(desired)
                 : "memory");
    return done;
#else
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
  }

  RINGSIDE_INLINE static void add_local(u64* p, u64 delta) noexcept {
#if defined(__x86_64__) && !RINGSIDE_TSAN
    asm volatile("addq %[delta], %[word]" : [word] "+m"(*p) : [delta] "er"(delta) : "cc");
#else
    __atomic_fetch_add(p, delta, __ATOMIC_RELAXED);
#endif
  }

  RINGSIDE_INLINE static void fence_light() noexcept { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
  RINGSIDE_INLINE static void program_order() noexcept { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
  RINGSIDE_INLINE static void fence_release() noexcept { __atomic_thread_fence(__ATOMIC_RELEASE); }
  RINGSIDE_INLINE static void fence_acquire() noexcept { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

  // The writer's payload stores are plain. This copy races with them by design, and is validated afterwards.
  __attribute__((no_sanitize("thread"), noinline)) static void copy_in(void* to, const void* from, size_t size) noexcept {
    auto* out = static_cast<u32*>(to);
    auto* in = static_cast<const volatile u32*>(from);
    for (size_t i = 0; i < size / 4; ++i) out[i] = in[i];
  }

  RINGSIDE_INLINE static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
  }
};

#if __cpp_concepts
static_assert(Memory<Hardware>);
#endif

}  // namespace ringside
