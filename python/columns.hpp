// Columns of a trace as arrays of Python's: whole numbers as int64, uint64 (unsigned fields of 64 bits), or int32, uint32
// (fields of up to 32 bits, CPUs, threads), reals as float64, texts and enums as codes (int32) with their values.
#pragma once
#include <pybind11/numpy.h>
#include <sys/mman.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/column.hpp"
#include "pass.hpp"

namespace ringside::python {

// Numbers that become an array. Their place is reserved once, and filled with large pages: to copy what has grown, and to touch
// small pages one by one, would take a third of the time.
template <class T>
class Grown {
 public:
  Grown() = default;
  Grown(Grown&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), size_(std::exchange(other.size_, 0)), room_(std::exchange(other.room_, 0)) {}
  Grown& operator=(Grown&&) = delete;
  ~Grown() {
    if (at_ != nullptr) munmap(at_, room_ * sizeof(T));
  }
  void push_back(T value) {
    if (size_ == room_) [[unlikely]] grow();
    at_[size_++] = value;
  }
  template <class Use>
  void each(const Use& use) {
    for (size_t i = 0; i < size_; ++i) use(at_[i]);
  }
  py::array_t<T> take() {
    auto* const kept = new Grown(std::move(*this));
    const py::capsule owner(kept, [](void* at) { delete static_cast<Grown*>(at); });
    return py::array_t<T>(static_cast<py::ssize_t>(kept->size_), kept->at_, owner);
  }

 private:
  [[gnu::noinline]] void grow() {
    constexpr u64 most = u64{16} << 30, least = 64 << 10, large = 2 << 20;
    if (at_ != nullptr) {  // address space is limited
      void* const more = mremap(at_, room_ * sizeof(T), room_ * 2 * sizeof(T), MREMAP_MAYMOVE);
      if (more == MAP_FAILED) throw std::bad_alloc();
      at_ = static_cast<T*>(more);
      room_ *= 2;
      return;
    }
    void* reserved = MAP_FAILED;
    u64 bytes = most * 2;
    while (reserved == MAP_FAILED && bytes > least)
      reserved = mmap(nullptr, bytes /= 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) throw std::bad_alloc();
    if (bytes == most)
      (void)madvise(static_cast<u8*>(reserved) + large, bytes - large, MADV_HUGEPAGE);  // what is small has small pages
    at_ = static_cast<T*>(reserved);
    room_ = bytes / sizeof(T);
  }
  T* at_ = nullptr;
  size_t size_ = 0, room_ = 0;
};

// The vector's memory becomes the array's.
template <class T>
py::array_t<T> array_of(std::vector<T>&& from) {
  auto* const kept = new std::vector<T>(std::move(from));
  const py::capsule owner(kept, [](void* at) { delete static_cast<std::vector<T>*>(at); });
  return py::array_t<T>(static_cast<py::ssize_t>(kept->size()), kept->data(), owner);
}

// Texts as codes. Texts that differ in bytes which are no UTF-8 become one.
class Codes {
 public:
  void add(std::string_view text) {
    if (last_ >= 0 && text == texts_.text(static_cast<u64>(last_))) return codes_.push_back(last_);
    codes_.push_back(last_ = static_cast<i32>(texts_.number(text)));
  }
  void add_none() { codes_.push_back(-1); }
  py::object take();  // ringside.Category

 private:
  Texts texts_;
  Grown<i32> codes_;
  i32 last_ = -1;
};

// One column of the chosen events. A loss has the value 0, NaN or -1 (no text) where the column has none for it.
class ColumnOf {
 public:
  using Chosen = std::function<bool(const EventType&)>;
  // name: a field of each of the events, or a column that every event has. Errors: an event without it, an array.
  static result<std::unique_ptr<ColumnOf>> make(const std::string& name, const Chosen& chosen, const Trace& trace);
  static std::unique_ptr<ColumnOf> of_losses();
  const std::optional<Column>& column() const { return column_; }
  RINGSIDE_INLINE void add(const TraceRecord& record, const RingName& ring) {
    if (how_ == How::time) return whole_.push_back(static_cast<i64>(record.time));
    if (how_ == How::cpu) return narrow_.push_back(record.lost != 0 ? ring.its_cpu() : record.cpu_in(ring));
    how_ == How::whole ? add_whole(record, ring) : add_other(record, ring);
  }
  py::object take();

 private:
  enum class How : u8 { whole, time, cpu, ring, lost, boolean, real, text, stack, symbol };
  void add_whole(const TraceRecord& record, const RingName& ring);
  void add_other(const TraceRecord& record, const RingName& ring);

  How how_ = How::whole;
  bool is_narrow_ = false, is_signed_ = true;
  std::optional<Column> column_;
  std::vector<std::pair<i64, std::string>> symbols_;
  const Formats* stacks_ = nullptr;
  Grown<i64> whole_;
  Grown<i32> narrow_;  // cpu, and whole numbers if is_narrow_
  Grown<double> real_;
  Codes codes_;
};

}  // namespace ringside::python
