// The memory of a process that writes into a reader's rings. A child of fork, however it was made, has nothing of it, and no
// handler has to run for that: the kernel wipes some words, and copies no piece of the region.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <ringside/base/types.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ringside::remote::detail {

inline u64 page_bytes() noexcept { return static_cast<u64>(sysconf(_SC_PAGESIZE)); }

// Zeros. In a child of fork the kernel makes the first `wiped` bytes zeros again.
class Zeros {
 public:
  Zeros(u64 wiped, u64 kept) noexcept : bytes_(align_up(wiped, page_bytes()) + align_up(kept, page_bytes())) {
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    at_ = static_cast<u8*>(at);
    if (madvise(at, align_up(wiped, page_bytes()), MADV_WIPEONFORK) == 0)
      start_ = at_ + align_up(wiped, page_bytes()) - wiped;
  }
  ~Zeros() {
    if (at_ != nullptr) munmap(at_, bytes_);
  }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  u8* get() const noexcept { return start_; }  // `wiped` bytes, and `kept` after them; null if there is no memory

 private:
  u64 bytes_;
  u8 *at_ = nullptr, *start_ = nullptr;
};

// The region as it is mapped: pieces, with a page after each that grows downwards. Children of fork get no piece
// (MADV_DONTFORK). Where an event that is open in the child touches a piece, a page of zeros of the child's own appears, as
// below a stack. As below a stack, the kernel keeps other mappings out up to 1 MiB; so a piece is no longer than that, except
// in regions beyond 4 GiB.
class MappedRegion {
 public:
  explicit MappedRegion(u64 bytes) noexcept : bytes_(bytes), page_(page_bytes()) {
    while (bytes_ / (u64{1} << shift_) > 4096) ++shift_;
  }
  ~MappedRegion() { (void)give_up(); }
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  u64 bytes() const noexcept { return bytes_; }
  u8* at(u64 offset) const noexcept { return start_ + page_ + place(offset); }
  // The files, back to back, each time at the same addresses. Answers an errno.
  int map(const int* fds, size_t n) noexcept {
    const int error = reserve();
    if (error != 0) return error;
    kept_ = false;
    return put(fds, n);
  }
  // The memory goes, and the addresses stay.
  void unmap() noexcept { (void)reserve(); }
  void keep() noexcept { kept_ = true; }  // mapped until the next map(): an event is still open in there
  bool has_addresses() const noexcept { return start_ != nullptr; }
  // The addresses of an unmapped region go, too, and it is never mapped again. False: there are none to give.
  bool give_up() noexcept {
    if (start_ == nullptr || kept_ || munmap(start_, mapped_bytes()) != 0) return false;
    start_ = nullptr;
    return true;
  }

 private:
  u64 mapped_bytes() const noexcept { return page_ + place(bytes_ - 1) + 1 + page_; }
  int reserve() noexcept {
    const int fixed = start_ != nullptr ? MAP_FIXED : 0;
    void* const all =
        mmap(start_, mapped_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
    if (all == MAP_FAILED) return errno;
    start_ = static_cast<u8*>(all);
    return 0;
  }
  u64 piece() const noexcept { return u64{1} << shift_; }
  u64 place(u64 offset) const noexcept { return offset + (offset >> shift_) * page_; }
  int put(const int* fds, size_t n) noexcept {
    u64 offset = 0;
    for (size_t k = 0; k < n; ++k) {
      struct stat st {};
      if (fstat(fds[k], &st) != 0) return errno;
      for (u64 from = 0, size = static_cast<u64>(st.st_size); from < size;) {
        const u64 part = std::min(size - from, piece() - offset % piece());
        constexpr int both = PROT_READ | PROT_WRITE;
        if (mmap(at(offset), part, both, MAP_SHARED | MAP_FIXED, fds[k], static_cast<off_t>(from)) == MAP_FAILED ||
            madvise(at(offset), part, MADV_DONTFORK) != 0)
          return errno;
        from += part;
        offset += part;
        if ((offset % piece() == 0 || offset == bytes_) &&
            mmap(at(offset - 1) + 1, page_, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED | MAP_NORESERVE, -1,
                 0) == MAP_FAILED)
          return errno;
      }
    }
    return 0;
  }
  u64 bytes_, page_;
  u32 shift_ = 20;
  u8* start_ = nullptr;
  bool kept_ = false;
};

}  // namespace ringside::remote::detail
