// A column's number in a record, as a histogram takes it.
#pragma once
#include <cmath>
#include <ringside/histogram.hpp>

#include "analysis/column.hpp"

namespace ringside {

struct Quantity {
  enum class Kind : u8 { whole, of_unsigned, real };  // of_unsigned: `whole` has the bits of a number from 2^63 on
  Kind kind = Kind::whole;
  i64 whole = 0;
  double real = 0;

  // False: the record has none, or it is NaN.
  bool read(Column& column, const TraceRecord& record, const RingName& ring) {
    if (column.kind() == Column::Kind::whole) {
      const bool is = column.number(record, ring, whole);
      kind = is && whole < 0 && column.is_unsigned(record) ? Kind::of_unsigned : Kind::whole;
      return is;
    }
    kind = Kind::real;
    return column.kind() == Column::Kind::real && column.real(record, ring, real) && !std::isnan(real);
  }
  void add_to(Histogram& histogram) const {
    switch (kind) {
      case Kind::whole: return histogram.add(whole);
      case Kind::of_unsigned: return histogram.add_unsigned(static_cast<u64>(whole));
      case Kind::real: return histogram.add_real(real);
    }
  }
};

}  // namespace ringside
