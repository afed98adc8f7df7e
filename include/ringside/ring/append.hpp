// The usual event of a CPU's ring, as a call site writes it: the part of CpuWriter (cpu_writer.hpp) that is inline everywhere.
#pragma once
#include <ringside/base/memory_hardware.hpp>
#include <ringside/ring/rseq.hpp>

namespace ringside {

// size: 0 to the largest payload of any ring. Of `payload`, only the bytes after the last multiple of 8 are read.
RINGSIDE_INLINE Shape shape_of(const void* payload, u32 size) noexcept {
  const u32 data_size = abi::event_size(size);
  const u32 at = abi::payload_offset(data_size), rest = size % 8;
  Shape s{u64{1} << 32 | data_size, abi::event_word(at == 4 ? (data_size - 4) / 4 : 0, 0), at, size - rest, 0};
  if (at == 8) s.head |= u64{data_size - 4} << 32;
  if (rest != 0) {
    u64 bytes = 0;
    if (size > 8) {
      __builtin_memcpy(&bytes, static_cast<const u8*>(payload) + size - 8, 8);
      s.tail_bytes = bytes >> (64 - 8 * rest) << (8 * (8 + at + s.size - data_size));
    } else {
      for (u32 i = 0; i < rest; ++i) bytes |= u64{static_cast<const u8*>(payload)[i]} << (8 * i);
      s.head |= bytes << 32;
      s.tail_bytes = size > 4 ? bytes >> 32 : 0;  // the event is 16 bytes then
    }
  }
  return s;
}

// For CpuWriter::write: the size of a payload that is known at compile time, rounded up to 4 bytes; the payload must have zeros
// up to there. 0: too large to make a difference.
constexpr u32 known_size(u32 size) noexcept { return align_up(size, 4u) <= most_known ? align_up(size, 4u) : 0; }

template <class M>
RINGSIDE_INLINE void ring_bell(const CpuRings& rings) noexcept {
  M::fence_light();  // pairs: WAKE
  if (RINGSIDE_UNLIKELY(M::load(rings.bell.any, unordered) != 0)) rings.bell.ring(rings.bell.context);
}

// False: it is no usual event, and nothing of it can be seen. known: 0, or known_size(size).
template <class S, class M, u32 known>
RINGSIDE_INLINE bool append_usually(const CpuRings& rings, i64 area, const void* payload, u32 size) noexcept {
  const Shape shape = shape_of(payload, known != 0 ? known : size);
  if (RINGSIDE_UNLIKELY((S::template append_usual<known>(area, rings, shape, payload)) != Sequence::done)) return false;
  ring_bell<M>(rings);
  return true;
}

}  // namespace ringside
