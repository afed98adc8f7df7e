// Something for every event id, of which few occur: memory for those alone, and whatever stands within the same 512.
#pragma once
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside {

template <class T>
class IdTable {
 public:
  // A T{} for an id that is new.
  T& operator[](u32 id) {
    const u32 page = id / page_size;
    if (page >= pages_.size() || pages_[page].empty()) [[unlikely]] make(page);
    return pages_[page][id % page_size];
  }

 private:
  static constexpr u32 page_size = 512;
  void make(u32 page) {
    if (page >= pages_.size()) pages_.resize(page + 1);
    pages_[page].resize(page_size);
  }
  std::vector<std::vector<T>> pages_;
};

}  // namespace ringside
