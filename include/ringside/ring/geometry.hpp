// The sizes of one ring, checked once. Ids and offsets from shared memory are checked against these sizes, never against others
// that are in shared memory.
#pragma once
#include <ringside/abi/event_header.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <ringside/base/types.hpp>

namespace ringside {

inline constexpr u32 fewest_subbufs = 3;             // two in the ring, and the reader page
inline constexpr u32 most_subbufs = (1u << 20) - 1;  // an id has 20 bits

class Geometry {
 public:
  constexpr Geometry() = default;  // invalid

  // subbuf_size: a power of two, 4 KiB to 256 KiB. nr_subbufs: all, the reader page and the spares included. spares:
  // sub-buffers that start outside the ring, for Reader::give_back. footer: bytes at the end of each that hold no events. Sizes
  // that do not fit leave it invalid.
  constexpr Geometry(u32 subbuf_size, u32 nr_subbufs, u32 spares = 0, u32 footer = 0) noexcept {
    const bool good = footer <= abi::smallest_subbuf / 2 && footer % 4 == 0 && is_power_of_two(subbuf_size) &&
                      subbuf_size >= abi::smallest_subbuf && subbuf_size <= abi::largest_subbuf && nr_subbufs <= most_subbufs &&
                      spares < nr_subbufs && nr_subbufs - spares >= fewest_subbufs;
    if (!good) return;
    subbuf_size_ = subbuf_size;
    nr_subbufs_ = nr_subbufs;
    nr_slots_ = nr_subbufs - spares - 1;
    capacity_ = subbuf_size - abi::header_size - footer;
  }

  constexpr bool valid() const noexcept { return nr_slots_ != 0; }
  constexpr u32 subbuf_size() const noexcept { return subbuf_size_; }
  constexpr u32 capacity() const noexcept { return capacity_; }
  constexpr u32 nr_subbufs() const noexcept { return nr_subbufs_; }
  constexpr u32 nr_slots() const noexcept { return nr_slots_; }  // places in the ring
  constexpr u32 first_spare() const noexcept { return nr_slots_ + 1; }
  constexpr u32 largest_payload() const noexcept { return abi::largest_payload(capacity()); }

  // The data region: the meta-page (one sub-buffer long), then the sub-buffers by id.
  constexpr u64 data_size() const noexcept { return u64{subbuf_size_} * (u64{nr_subbufs_} + 1); }
  constexpr u64 offset_of(u32 id) const noexcept { return u64{subbuf_size_} * (u64{id} + 1); }

  constexpr bool holds(u32 id) const noexcept { return id < nr_subbufs_; }

  friend constexpr bool operator==(const Geometry& a, const Geometry& b) noexcept {
    return a.subbuf_size_ == b.subbuf_size_ && a.nr_subbufs_ == b.nr_subbufs_ && a.nr_slots_ == b.nr_slots_ &&
           a.capacity_ == b.capacity_;
  }

 private:
  u32 subbuf_size_ = 0, nr_subbufs_ = 0, nr_slots_ = 0, capacity_ = 0;
};

// The number of sub-buffers for a ring that holds `bytes` of events, as the kernel counts: at least 2, and the reader page. If
// more than most_subbufs are needed, the answer is most_subbufs + 1, of which no valid Geometry can be made.
constexpr u32 subbufs_for(u64 bytes, u32 subbuf_size) noexcept {
  const u64 capacity = subbuf_size - abi::header_size;
  const u64 n = (bytes + capacity - 1) / capacity;
  return static_cast<u32>(n < 2 ? 3 : n >= most_subbufs ? most_subbufs + 1 : n + 1);
}

}  // namespace ringside
