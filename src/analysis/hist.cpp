#include "analysis/hist.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "sys/try.hpp"

namespace ringside {

result<Hist> Hist::make(const Options& options, const Formats& formats, const Tasks& tasks) {
  Hist hist(RS_TRY(Groups<Cell>::make(options.keys, options.most_keys, formats, tasks)), options.precision);
  for (const std::string& text : options.values) {
    auto column = RS_TRY(Column::compile(text, formats, tasks));
    if (column.kind() == Column::Kind::text)
      return mistyped(std::errc::invalid_argument, in_quotes(text) + " is a text, and texts do not add up");
    hist.values_.push_back(std::move(column));
  }
  hist.read_.resize(hist.values_.size());
  hist.without_values_.resize(hist.values_.size());
  return hist;
}

void Hist::Cell::add(const Cell& other) {
  count += other.count;
  if (other.values == nullptr) return;
  if (values == nullptr) {
    values = std::make_unique<std::vector<Histogram>>(*other.values);
    return;
  }
  for (size_t i = 0; i < values->size(); ++i) (*values)[i].merge((*other.values)[i]);
}

bool Hist::add_values(const TraceRecord& record, const RingName& ring) {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!read_[i].read(values_[i], record, ring)) {
      // What lacks a key, too, counts as without the key.
      if (groups_.has(record, ring)) {
        ++without_values_[i];
        misfits_ += values_[i].is_misfit(record);
      } else {
        groups_.at(record, ring);
      }
      return false;
    }
  }
  Cell* cell = groups_.at(record, ring);
  if (cell == nullptr) return false;
  ++count_;
  if (cell->count == 0) cell->values = std::make_unique<std::vector<Histogram>>(values_.size(), Histogram(precision_));
  ++cell->count;
  for (size_t i = 0; i < values_.size(); ++i) read_[i].add_to((*cell->values)[i]);
  return true;
}

std::vector<Hist::Row> Hist::rows(const Sort& sort) const {
  std::vector<Row> rows;
  rows.reserve(groups_.size());
  groups_.each([&](const KeyWords& key, const Cell& cell) {
    rows.push_back({key, cell.count, cell.values != nullptr ? cell.values->data() : nullptr});
  });
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    if (sort.by == By::key) return sort.descending ? groups_.before(b.key, a.key) : groups_.before(a.key, b.key);
    const auto order = [&](const auto& x, const auto& y) {
      return x < y || y < x ? (sort.descending ? y < x : x < y) : groups_.before(a.key, b.key);
    };
    if (sort.by == By::count) return order(a.count, b.count);
    const Histogram &x = a.values[sort.value], &y = b.values[sort.value];
    if (x.reals() == nullptr) return order(x.whole_sum(), y.whole_sum());
    const auto place = [](double sum) { return std::isnan(sum) ? -std::numeric_limits<double>::infinity() : sum; };
    return order(place(x.sum()), place(y.sum()));
  });
  return rows;
}

}  // namespace ringside
