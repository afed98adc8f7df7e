// Something for every event id, of which few occur: memory only where it was touched. All bytes zero until then, which must mean
// "not known yet": a cache. A copy begins anew.
#pragma once
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "decode/formats.hpp"

namespace ringside {

template <class T>
class IdTable {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  IdTable() : entries_(static_cast<T*>(std::calloc(Formats::most_ids, sizeof(T)))) {  // fresh pages, zero by themselves
    if (entries_ == nullptr) throw std::bad_alloc();
  }
  IdTable(const IdTable&) : IdTable() {}
  IdTable(IdTable&&) noexcept = default;
  IdTable& operator=(const IdTable&) { return *this = IdTable(); }
  IdTable& operator=(IdTable&&) noexcept = default;
  ~IdTable() = default;

  T& operator[](u32 id) { return entries_.get()[id]; }  // below Formats::most_ids

 private:
  struct Free {
    void operator()(T* entries) const { std::free(entries); }
  };
  std::unique_ptr<T, Free> entries_;
};

}  // namespace ringside
