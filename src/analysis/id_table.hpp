// Something for every event id, of which few occur: memory for those alone, and whatever stands within the same 512. A cache: a copy
// begins anew.
#pragma once
#include <memory>
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside {

template <class T>
class IdTable {
 public:
  IdTable() = default;
  IdTable(const IdTable&) {}
  IdTable(IdTable&&) noexcept = default;
  IdTable& operator=(const IdTable&) { return *this = IdTable(); }
  IdTable& operator=(IdTable&&) noexcept = default;
  ~IdTable() = default;

  // A T{} for an id that is new.
  T& operator[](u32 id) {
    const u32 page = id / page_size;
    if (page >= pages_.size() || pages_[page] == nullptr) [[unlikely]] make(page);
    return pages_[page][id % page_size];
  }

 private:
  static constexpr u32 page_size = 512;
  void make(u32 page) {
    if (page >= pages_.size()) pages_.resize(page + 1);
    pages_[page] = std::make_unique<T[]>(page_size);
  }
  std::vector<std::unique_ptr<T[]>> pages_;
};

}  // namespace ringside
