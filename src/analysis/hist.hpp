// Counts and sums of values by key: the kernel's histogram triggers, over any source.
//
//   auto hist = Hist::make({{"sched:sched_switch/prev_comm", "prev_state"}, {"size"}}, formats, tasks);
//   while (timeline.next(record)) hist->add(record, ring);
//   for (const Hist::Row& row : hist->rows({})) use(hist->show(row, 0), row.count, row.values[0].sum());
//
// A record counts if it has all of the keys and all of the values; the others are counted in without(). Memory: at most
// Options::most_keys keys; evicted ones are counted in evicted() (KeyTable), and nothing else is inexact.
#pragma once
#include <memory>
#include <numeric>
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "analysis/groups.hpp"
#include "analysis/quantity.hpp"
#include <ringside/histogram.hpp>

namespace ringside {

class Hist {
 public:
  struct Options {
    std::vector<std::string> keys;    // 1 or 2 columns
    std::vector<std::string> values;  // whole numbers or reals
    size_t most_keys = 100'000;
    u32 precision = 5;  // the values' quantiles are right within 2^-(precision + 1)
  };
  struct Row {
    KeyWords key{};
    u64 count = 0;
    const Histogram* values = nullptr;  // one for each of Options::values
  };
  enum class By : u8 { count, key, value };
  struct Sort {
    By by = By::count;
    u32 value = 0;
    bool descending = true;
  };

  static result<Hist> make(const Options& options, const Formats& formats, const Tasks& tasks);

  // False: the record lacks a key or a value.
  bool add(const TraceRecord& record, const RingName& ring) {
    if (!values_.empty()) return add_values(record, ring);
    Cell* cell = groups_.at(record, ring);
    if (cell == nullptr) return false;
    ++count_;
    ++cell->count;
    return true;
  }

  // Adds another one of the same options over the same trace.
  void merge(const Hist& other) {
    groups_.merge(other.groups_);
    count_ += other.count_;
    misfits_ += other.misfits_;
    for (size_t i = 0; i < without_values_.size(); ++i) without_values_[i] += other.without_values_[i];
  }

  std::vector<Row> rows(const Sort& sort) const;
  const std::vector<Column>& keys() const { return groups_.columns(); }
  const std::vector<Column>& values() const { return values_; }
  std::string show(const Row& row, size_t key) const { return groups_.show(row.key, key); }
  nlohmann::ordered_json json(const Row& row, size_t key) const { return groups_.json(row.key, key); }
  u64 count() const { return count_; }
  u64 without() const { return std::accumulate(without_values_.begin(), without_values_.end(), without_key()); }
  u64 without_key() const { return groups_.without(); }
  // Events that have the keys, but not this value; the first missing one counts.
  u64 without_value(size_t value) const { return without_values_[value]; }
  // Of without(), those that have fields of these names: arrays, or of another kind (Column::is_misfit()).
  u64 misfits() const { return groups_.misfits() + misfits_; }
  size_t size() const { return groups_.size(); }
  const auto& evicted() const { return groups_.evicted(); }

 private:
  struct Cell {
    u64 count = 0;
    std::unique_ptr<std::vector<Histogram>> values;
    void add(const Cell& other);
  };
  Hist(Groups<Cell> groups, u32 precision) : groups_(std::move(groups)), precision_(precision) {}
  bool add_values(const TraceRecord& record, const RingName& ring);

  Groups<Cell> groups_;
  std::vector<Column> values_;
  u32 precision_;
  std::vector<Quantity> read_;  // the values of the record being added
  u64 count_ = 0, misfits_ = 0;
  std::vector<u64> without_values_;
};

}  // namespace ringside
