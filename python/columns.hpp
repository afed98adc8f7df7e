// Columns of a trace as arrays of Python's: whole numbers as int64 (uint64 for unsigned fields of 64 bits), reals as float64, texts and
// enums as codes (int32) with their values.
#pragma once
#include <pybind11/numpy.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/column.hpp"
#include "pass.hpp"

namespace ringside::python {

// The vector's memory becomes the array's.
template <class T>
py::array_t<T> array_of(std::vector<T>&& from) {
  auto* const kept = new std::vector<T>(std::move(from));
  const py::capsule owner(kept, [](void* at) { delete static_cast<std::vector<T>*>(at); });
  return py::array_t<T>(static_cast<py::ssize_t>(kept->size()), kept->data(), owner);
}

// Texts as codes.
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
  std::vector<i32> codes_;
  i32 last_ = -1;
};

// One column of the chosen events. A loss has the value 0, NaN or -1 (no text) where the column has none for it.
class ColumnOf {
 public:
  // name: a field of each of the events, or a column that every event has. Errors: an event without it, an array.
  static result<std::unique_ptr<ColumnOf>> make(const std::string& name, const EventPatterns& events, const Trace& trace);
  void add(const TraceRecord& record, const RingName& ring) {
    if (how_ == How::time) return whole_.push_back(static_cast<i64>(record.time));
    if (how_ == How::whole && record.lost == 0) [[likely]] {
      i64 value = 0;
      if (!column_->number(record, ring, value)) value = -1;
      return whole_.push_back(value);
    }
    add_other(record, ring);
  }
  py::object take();

 private:
  enum class How : u8 { whole, time, cpu, ring, lost, unsigned_whole, boolean, real, text, symbol };
  void add_other(const TraceRecord& record, const RingName& ring);

  How how_ = How::whole;
  std::optional<Column> column_;
  std::vector<std::pair<i64, std::string>> symbols_;
  std::vector<i64> whole_;
  std::vector<double> real_;
  Codes codes_;
};

}  // namespace ringside::python
