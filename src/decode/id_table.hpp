// A cache by event id, valid as long as the formats stay the same (Formats::version). A copy begins empty.
//
//   Access& access = table.at(id, formats.version());   // all zeros: nothing is known yet
//
// Ids are far apart and few of them occur: most of the zeros are pages that are never touched.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <new>
#include <ringside/base/types.hpp>
#include <type_traits>
#include <utility>

namespace ringside {

template <class T>
class IdTable {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  IdTable() = default;
  IdTable(const IdTable&) {}
  IdTable(IdTable&& other) noexcept { swap(other); }
  IdTable& operator=(IdTable other) noexcept {
    swap(other);
    return *this;
  }
  ~IdTable() { release(); }

  T& at(u32 id, u64 version) {
    if (!knows(id, version)) [[unlikely]]
      renew(id, version);
    return at_[id];
  }
  bool knows(u32 id, u64 version) const { return id < size_ && version == version_; }
  const T& operator[](u32 id) const { return at_[id]; }  // if it knows it

 private:
  static constexpr u32 step = 1u << 17;  // a source's ids
  [[gnu::noinline]] void renew(u32 id, u64 version) {
    const u32 size = std::max(size_, (id / step + 1) * step);
    // Not calloc: it clears reused memory by hand, each time.
    void* const zeros =
        mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) throw std::bad_alloc();
    release();
    at_ = static_cast<T*>(zeros);
    size_ = size;
    version_ = version;
  }
  void release() noexcept {
    if (at_ != nullptr) munmap(at_, size_ * sizeof(T));
  }
  void swap(IdTable& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
    std::swap(version_, other.version_);
  }
  T* at_ = nullptr;
  u32 size_ = 0;
  u64 version_ = 0;
};

// The same for objects, which are made at the first question about their id.
template <class T>
class IdObjects {
 public:
  template <class Make>
  const T& at(u32 id, u64 version, const Make& make) {
    if (!table_.knows(id, version)) [[unlikely]]
      made_.clear();  // no pointer leads there now
    const T*& known = table_.at(id, version);
    if (known == nullptr) [[unlikely]]
      known = &made_.emplace_back(make());
    return *known;
  }

 private:
  IdTable<const T*> table_;
  std::deque<T> made_;
};

}  // namespace ringside
