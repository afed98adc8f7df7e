// The columns of the table of `watch` that fit a width, the most important first.
#pragma once
#include <array>

#include "watch/picture.hpp"
#include "watch/model.hpp"

namespace ringside {

struct TableColumns {
  enum Which : size_t { count, rate, mean, p50, p99, max, share };
  struct Number {
    const char* title;
    size_t width;
    WatchSort sort;
    bool shown = false;
  };
  std::array<Number, 7> numbers{{{"COUNT", 13, WatchSort::count},
                                 {"RATE", 9, WatchSort::rate},
                                 {"MEAN", 10, WatchSort::mean},
                                 {"P50", 10, WatchSort::p50},
                                 {"P99", 10, WatchSort::p99},
                                 {"MAX", 10, WatchSort::max},
                                 {"SHARE", 8, WatchSort::count}}};
  size_t names = 0, curve = 0, rest = 0;  // widths: of the names, of the curve (0: none), and what is left

  // longest: of the rows' names. values: the rows have a field's quantiles.
  TableColumns(size_t width, size_t longest, bool values);
};

}  // namespace ringside
