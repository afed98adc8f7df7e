#include "watch/table_columns.hpp"

#include <algorithm>

namespace ringside {

TableColumns::TableColumns(size_t width, size_t longest, bool values) {
  names = std::min(longest, std::max<size_t>(std::min<size_t>(width, 24), width / 3));
  rest = width > names + 1 ? width - names - 1 : 0;
  const auto take = [&](Which which) {
    if (rest < numbers[which].width) return;
    numbers[which].shown = true;
    rest -= numbers[which].width;
  };
  take(count);
  take(rate);
  if (values) take(p99);
  if (rest >= 9) rest -= curve = 9;
  if (values)
    for (const Which which : {p50, max}) take(which);
  take(share);
  if (values && width >= 110) take(mean);
  const size_t more_names = std::min(longest - names, curve == 0 || rest < 8 ? rest : rest / 2);
  names += more_names;
  rest -= more_names;
  if (curve != 0) {
    const size_t more = std::min(rest, WatchModel::slots - curve);
    curve += more;
    rest -= more;
  } else {
    names += rest;
  }
  names = std::min(names, width);
}

}  // namespace ringside
