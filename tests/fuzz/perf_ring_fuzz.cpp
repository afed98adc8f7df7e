// A ring of perf records of any content: no access outside it, the walk ends, and the texts and chains lie in what was read.
// The first byte is the tail's place, the second the head's distance; the lowest bit of the first: samples have stacks. The
// rest is the ring.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernel/perf_ring.hpp"

using namespace ringside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size < 2) return 0;
  constexpr u64 ring_size = 1024;
  u8* const ring = static_cast<u8*>(std::calloc(1, ring_size));  // exactly so much: reads beyond it are seen
  std::memcpy(ring, input + 2, std::min<size_t>(size - 2, ring_size));
  const u64 tail = (input[0] >> 1) * u64{8}, head = tail + input[1] * u64{8};
  PerfRecords records(ring, ring_size, tail, head, (input[0] & 1) != 0);
  volatile u64 sum = 0;
  u64 at = records.tail();
  while (const auto r = records.next()) {
    if (records.tail() <= at || records.tail() > head) std::abort();
    at = records.tail();
    for (const Bytes part :
         {r->chain, r->stack, r->build_id, Bytes{reinterpret_cast<const u8*>(r->text.data()), r->text.size()}}) {
      for (size_t i = 0; i < part.size; ++i) sum = sum + part.data[i];
    }
  }
  if (records.tail() != head) std::abort();
  std::free(ring);
  return 0;
}
