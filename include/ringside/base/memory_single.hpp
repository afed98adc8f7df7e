// Memory for a writer whose interrupt handlers do not write (firmware, a guest whose handlers do not trace). Accesses to words
// that a writer elsewhere shares with its handlers are plain here. Towards the reader's side, on another processor, it is
// Hardware.
#pragma once
#include <ringside/base/memory_hardware.hpp>

namespace ringside {

struct SingleContext : Hardware {
  RINGSIDE_INLINE static bool cas_local(u64* p, u64 expected, u64 desired) noexcept {
    if (load(p, Order::relaxed) != expected) return false;
    store(p, desired, Order::relaxed);
    return true;
  }
  RINGSIDE_INLINE static void add_local(u64* p, u64 delta) noexcept {
    store(p, load(p, Order::relaxed) + delta, Order::relaxed);
  }
};

static_assert(Memory<SingleContext>);

}  // namespace ringside
