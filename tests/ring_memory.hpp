// A ring in anonymous shared memory, for tests that fork.
#pragma once
#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace ringside::test {

inline Ring shared_ring(u32 subbuf_size, u32 nr_subbufs, bool discard = false) {
  Ring ring{Geometry(subbuf_size, nr_subbufs)};
  const auto map = [](u64 size) { return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); };
  ring.control = static_cast<Control*>(map(control_size(ring.geometry)));
  ring.data = static_cast<u8*>(map(ring.geometry.data_size()));
  ring.control->mode = discard ? 1 : 0;
  return ring;
}

inline void unmap(const Ring& ring) {
  munmap(ring.data, ring.geometry.data_size());
  munmap(ring.control, control_size(ring.geometry));
}

struct MonoClock {
  u64 now() noexcept {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<u64>(t.tv_sec) * 1000000000 + static_cast<u64>(t.tv_nsec);
  }
};

inline double test_seconds(double by_default) {
  const char* text = std::getenv("RINGSIDE_TEST_SECONDS");
  return text != nullptr ? std::atof(text) : by_default;
}

}  // namespace ringside::test
