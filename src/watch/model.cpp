#include "watch/model.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

bool names(const std::vector<WatchOnly>& only, std::initializer_list<std::string_view> columns) {
  return std::any_of(only.begin(), only.end(),
                     [&](const WatchOnly& o) { return std::find(columns.begin(), columns.end(), o.column) != columns.end(); });
}

// In a heat map, which begins at 0.
u64 height(const Quantity& value) {
  if (value.kind == Quantity::Kind::of_unsigned) return static_cast<u64>(value.whole);
  const i64 whole = value.kind == Quantity::Kind::whole ? value.whole : std::llround(std::clamp(value.real, 0., 0x1p62));
  return whole < 0 ? 0 : static_cast<u64>(whole);
}

bool is_number(const Field& field) { return field.kind == FieldKind::integer || field.kind == FieldKind::floating; }

}  // namespace

bool WatchQuery::asks_for_stacks() const {
  const auto asks = [](const std::string& text) { return text.find("stack") != std::string::npos; };
  return asks(by) || asks(filter) || asks(value) ||
         std::any_of(only.begin(), only.end(), [&](const WatchOnly& o) { return asks(o.column); });
}

void WatchPicture::sort(WatchSort by, bool descending) {
  const auto order = [by](const WatchRow& r) -> double {
    switch (by) {
      case WatchSort::name:
        return 0;
      case WatchSort::count:
        return static_cast<double>(r.count);
      case WatchSort::rate:
        return r.rate;
      case WatchSort::mean:
        return r.mean;
      case WatchSort::p50:
        return r.p50;
      case WatchSort::p99:
        return r.p99;
      case WatchSort::max:
        return r.max;
    }
    return 0;
  };
  // Numbers as numbers, also in ids of rows.
  const auto by_name = [](const WatchRow& a, const WatchRow& b) {
    if (a.names == b.names) return a.id < b.id;
    const auto digits = [](const std::string& s) {
      return !s.empty() && s.size() < 19 && s.find_first_not_of("0123456789") == std::string::npos;
    };
    if (digits(a.names[0]) && digits(b.names[0]) && a.names[0] != b.names[0])
      return std::stoull(a.names[0]) < std::stoull(b.names[0]);
    return a.names < b.names;
  };
  std::sort(rows.begin(), rows.end(), [&](const WatchRow& a, const WatchRow& b) {
    if (by == WatchSort::name) return descending ? by_name(b, a) : by_name(a, b);
    const double x = order(a), y = order(b);
    if (x != y) return descending ? x > y : x < y;
    return a.count != b.count ? a.count > b.count : by_name(a, b);
  });
}

result<WatchModel> WatchModel::make(const WatchQuery& query, const Options& options, const Formats& formats,
                                    const Tasks& tasks) {
  WatchModel model(query, options, formats);
  if (!query.filter.empty() && !query.latency) {
    auto filter = RS_TRY(Filter::compile(query.filter, formats, tasks));
    model.filter_ = std::move(filter);
  }
  if (query.latency) {
    Pairs::Options pairs = *query.latency;
    pairs.slowest = pairs.context = 0;
    pairs.by.clear();
    // Both: what the command line asks, and F4.
    if (!query.filter.empty())
      pairs.filter = pairs.filter.empty() ? query.filter : "(" + pairs.filter + ") && (" + query.filter + ")";
    auto made = RS_TRY(Pairs::make(pairs, formats, tasks));
    model.pairs_.emplace(std::move(made));
  }
  for (const WatchOnly& only : query.only) {
    auto column = RS_TRY(Column::compile(only.column, formats, tasks));
    column.use_names();  // as the rows, of which it is one
    model.only_.push_back({std::move(column), only.id, static_cast<i64>(std::strtoull(only.id.c_str(), nullptr, 10))});
  }
  if (query.fields) {
    const EventType* type = model.event_of(model.event_name(""));
    if (type == nullptr) return mistyped(std::errc::invalid_argument, "no single event is chosen whose fields could be shown");
    for (const Field& field : type->fields()) {
      auto column = Column::compile(type->full + "/" + field.name, formats, tasks);
      if (column) model.fields_.push_back({std::move(*column), field.name, {}});  // arrays have no column
    }
    if (model.fields_.empty()) return mistyped(std::errc::invalid_argument, type->full + " has no fields");
    return model;
  }
  model.groups_.emplace(RS_TRY(Groups<Cell>::make(split_columns(query.by), options.most_keys, formats, tasks)));
  if (!query.value.empty() && !query.latency) {
    auto column = RS_TRY(Column::compile(query.value, formats, tasks));
    if (column.kind() == Column::Kind::text)
      return mistyped(std::errc::invalid_argument, in_quotes(query.value) + " is a text, and has no histogram");
    model.value_ = std::move(column);
  }
  return model;
}

// The caller has applied the filter.
bool WatchModel::wanted(const TraceRecord& record, const RingName& ring) {
  for (Restriction& only : only_) {
    if (only.column.is_whole_stack()) {
      if (formats_->stacks() == nullptr || formats_->stacks()->text(record.stack) != only.text) return false;
      continue;
    }
    switch (only.column.kind()) {
      case Column::Kind::whole: {
        i64 value = 0;
        if (!only.column.number(record, ring, value) || value != only.number) return false;
        break;
      }
      case Column::Kind::real: {
        double value = 0;
        if (!only.column.real(record, ring, value) || std::memcmp(&value, &only.number, sizeof value) != 0) return false;
        break;
      }
      case Column::Kind::text: {
        std::string_view text;
        // A thread's text has more than a row shows.
        if (!only.column.text(record, ring, text) || text.substr(0, text.find('\0')) != only.text) return false;
        break;
      }
    }
  }
  return true;
}

template <class Use>
void WatchModel::each_cell(const Use& use) {
  if (groups_) groups_->each([&](const KeyWords&, Cell& cell) { use(cell); });
  for (FieldRow& field : fields_) use(field.cell);
  use(all_);
}

// For a recording: the column of the curve for this time. Records may come a little out of order.
void WatchModel::place(u64 time_ns) {
  if (all_.count == 0) origin_ = time_ns;
  const u64 since = time_ns > origin_ ? time_ns - origin_ : 0;
  while (since >> shift_ >= slots) {
    ++shift_;
    each_cell([](Cell& cell) {
      if (!cell.slot) return;
      auto& slot = *cell.slot;
      for (size_t i = 0; i < slots; ++i) slot[i] = i < slots / 2 ? slot[2 * i] + slot[2 * i + 1] : 0;
    });
  }
  slot_ = since >> shift_;
}

void WatchModel::count(Cell& cell, u64 time_ns, const Quantity* value) {
  if (!cell.slot) [[unlikely]]
    cell.slot = std::make_unique<std::array<u64, slots>>();
  ++cell.count;
  ++(time_ns < began_ns_ ? cell.earlier : (*cell.slot)[slot_]);
  if (value == nullptr) return;
  if (!cell.values) {
    cell.values = std::make_unique<Values>();
    if (heats_ < most_heats || &cell == &all_) {
      ++heats_;
      cell.values->heat = std::make_unique<HeatMap>(HeatMap::Options{.most_columns = 128});
    }
  }
  value->add_to(cell.values->histogram);
  if (cell.values->heat) cell.values->heat->add(time_ns, height(*value));
}

void WatchModel::take(const TraceRecord& record, const RingName& ring) {
  if (record.time >= began_ns_) lost_ += record.lost;
  if (record.lost == 0 && filter_ && !filter_->matches(record, ring)) return;
  if (pairs_ && !pairs_->take(record, ring)) return;
  if (record.lost != 0 || !wanted(record, ring)) return;
  if (!options_.live) place(record.time);
  first_ns_ = std::min(first_ns_, record.time);
  last_ns_ = std::max(last_ns_, record.time);
  Quantity value;
  if (!groups_) {
    for (FieldRow& field : fields_) {
      std::string_view text;
      if (value.read(field.column, record, ring))
        count(field.cell, record.time, &value);
      else if (field.column.kind() == Column::Kind::text && field.column.text(record, ring, text))
        count(field.cell, record.time, nullptr);
    }
    count(all_, record.time, nullptr);
    return;
  }
  const bool has = pairs_ || (value_ && value.read(*value_, record, ring));
  if (pairs_) value.whole = static_cast<i64>(std::min<u64>(pairs_->latency(), INT64_MAX));
  if (Cell* cell = groups_->at(record, ring); cell != nullptr)
    count(*cell, record.time, has ? &value : nullptr);
  else
    ++without_;
  count(all_, record.time, has ? &value : nullptr);
}

void WatchModel::tick(double seconds) {
  seconds_[slot_] = seconds;
  elapsed_ += seconds;
  ++ticks_;
  slot_ = (slot_ + 1) % slots;
  each_cell([&](Cell& cell) {
    if (cell.slot) (*cell.slot)[slot_] = 0;
  });
}

double WatchModel::seconds() const {
  if (options_.live) return elapsed_;
  return last_ns_ > first_ns_ ? static_cast<double>(last_ns_ - first_ns_) / 1e9 : 0;
}

std::vector<double> WatchModel::rates(const Cell& cell) const {
  std::vector<double> out;
  if (!cell.slot) return out;
  if (options_.live) {
    for (u64 i = std::min<u64>(ticks_, slots - 1); i-- != 0;) {
      const size_t at = (slot_ + slots - 1 - i) % slots;
      out.push_back(seconds_[at] > 0 ? static_cast<double>((*cell.slot)[at]) / seconds_[at] : 0);
    }
    return out;
  }
  const u64 used = std::min<u64>(slots, ((last_ns_ - origin_) >> shift_) + 1);
  for (u64 i = 0; i < used; ++i)
    out.push_back(static_cast<double>((*cell.slot)[i]) * 1e9 / static_cast<double>(u64{1} << shift_));
  return out;
}

void WatchModel::describe(const Cell& cell, WatchRow& row, double of) const {
  row.count = cell.count;
  row.share = of > 0 ? static_cast<double>(cell.count) / of : 0;
  row.rates = rates(cell);
  row.mean_rate = seconds() > 0 ? static_cast<double>(cell.count - cell.earlier) / seconds() : 0;
  row.rate = !options_.live ? row.mean_rate : row.rates.empty() ? 0 : row.rates.back();
  if (!cell.values) return;
  const Histogram& h = cell.values->histogram;
  row.values = h.count();
  row.mean = h.mean();
  row.p50 = h.quantile(.5);
  row.p99 = h.quantile(.99);
  row.max = h.most();
  if (h.reals() == nullptr) row.whole_max = h.whole_max();
}

// Numbers and texts as they are: both have the same meaning in every model. A stack's number has not: its functions are its id.
std::string WatchModel::id_of(const KeyWords& key, size_t column) const {
  const Column& c = groups_->columns()[column];
  if (c.is_whole_stack()) return std::string(formats_->stacks()->text(static_cast<u32>(key[column])));
  return c.kind() == Column::Kind::text ? groups_->show(key, column) : std::to_string(key[column]);
}
std::string WatchModel::id_of(const KeyWords& key) const {
  std::string id;
  for (size_t i = 0; i < groups_->columns().size(); ++i) id += (i == 0 ? "" : std::string(1, '\0')) + id_of(key, i);
  return id;
}

const WatchModel::Cell* WatchModel::find(const std::string& id, KeyWords* key) const {
  const Cell* found = nullptr;
  for (const FieldRow& field : fields_) {
    if (field.name == id) return &field.cell;
  }
  if (!groups_) return nullptr;
  groups_->each([&](const KeyWords& k, const Cell& cell) {
    if (found != nullptr || id_of(k) != id) return;
    found = &cell;
    if (key != nullptr) *key = k;
  });
  return found;
}

WatchPicture WatchModel::picture(const std::string& chosen, bool everything) const {
  WatchPicture out;
  out.query = query_;
  out.account.overrun = lost_;
  out.without = without_;
  out.seconds = seconds();
  out.slot_seconds =
      options_.live ? (ticks_ == 0 ? 0 : seconds_[(slot_ + slots - 1) % slots]) : static_cast<double>(u64{1} << shift_) / 1e9;
  out.value = pairs_ ? "latency" : value_ ? value_->name() : "";
  const auto values = [&](const Cell& cell, const std::string& id) {
    if (!cell.values || (!everything && id != chosen)) return;
    auto copy = std::make_shared<WatchValues>();
    copy->histogram = cell.values->histogram;
    const HeatMap* heat = cell.values->heat.get();
    copy->heat_of_all = heat == nullptr;
    if (heat == nullptr && all_.values) heat = all_.values->heat.get();
    if (heat != nullptr) copy->heat = *heat;
    out.values[id] = std::move(copy);
  };
  const double of = static_cast<double>(all_.count - without_);
  describe(all_, out.all, static_cast<double>(all_.count));
  out.all.unit = pairs_ ? Column::Unit::ns : value_ ? value_->unit() : Column::Unit::none;
  if (groups_) {
    for (const Column& column : groups_->columns()) out.columns.push_back(column.name());
    out.keys = groups_->size();
    out.evicted_keys = groups_->evicted().keys;
    out.evicted_events = groups_->evicted().count;
    std::vector<std::pair<KeyWords, const Cell*>> cells;
    groups_->each([&](const KeyWords& key, const Cell& cell) { cells.emplace_back(key, &cell); });
    if (cells.size() > most_rows) {
      std::nth_element(cells.begin(), cells.begin() + most_rows, cells.end(),
                       [](const auto& a, const auto& b) { return a.second->count > b.second->count; });
      cells.resize(most_rows);
    }
    for (const auto& [key, cell] : cells) {
      WatchRow& row = out.rows.emplace_back();
      row.id = id_of(key);
      row.key = key;
      for (size_t i = 0; i < groups_->columns().size(); ++i) {
        row.names.push_back(groups_->show(key, i));
        if (groups_->columns()[i].is_whole_stack() && (everything || row.id == chosen))
          row.stack = formats_->stacks()->functions(static_cast<u32>(key[i]));
      }
      describe(*cell, row, of);
      row.unit = out.all.unit;
      values(*cell, row.id);
    }
  } else {
    out.columns = {"field"};
    out.keys = fields_.size();
    out.value = "value";
    for (const FieldRow& field : fields_) {
      WatchRow& row = out.rows.emplace_back();
      row.id = field.name;
      row.names = {field.name};
      describe(field.cell, row, static_cast<double>(all_.count));
      row.unit = field.column.unit();
      values(field.cell, row.id);
    }
  }
  return out;
}

const EventType* WatchModel::event_of(const std::string& full) const {
  for (const auto& type : formats_->all()) {
    if (type->full == full) return type.get();
  }
  return nullptr;
}

// The event that a row belongs to, if there is one.
std::string WatchModel::event_name(const std::string& id) const {
  for (const WatchOnly& only : query_.only) {
    if (only.column == "event") return only.shown;
  }
  KeyWords key{};
  if (groups_ && find(id, &key) != nullptr) {
    for (size_t i = 0; i < groups_->columns().size(); ++i) {
      if (groups_->columns()[i].name() == "event") return groups_->show(key, i);
    }
  }
  return "";
}

std::optional<WatchQuery> WatchModel::deeper(const std::string& id) const {
  if (find(id) == nullptr || query_.only.size() >= 8) return std::nullopt;
  WatchQuery next = query_;
  if (query_.fields) {
    next.fields = false;
    next.by = event_name("") + "/" + id;
    return next;
  }
  KeyWords key{};
  find(id, &key);
  for (size_t i = 0; i < groups_->columns().size(); ++i) {
    const Column& column = groups_->columns()[i];
    next.only.push_back({column.name(), id_of(key, i), groups_->show(key, i)});
  }
  if (!names(next.only, {"event"})) {
    next.by = "event";
  } else if (!names(next.only, {"task", "comm", "COMM", "thread", "tid", "common_pid", "process"})) {
    next.by = "task";
  } else {
    next.fields = true;
  }
  return next;
}

std::vector<std::string> WatchModel::fields(const std::string& id, bool numbers) const {
  std::vector<std::string> out;
  const std::string event = event_name(id);
  for (const auto& type : formats_->all()) {
    if (!event.empty() && type->full != event) continue;
    for (const Field& field : type->fields()) {
      const bool text = field.kind == FieldKind::text || field.kind == FieldKind::loc_text;
      if (!is_number(field) && (numbers || !text)) continue;
      std::string name = event.empty() ? field.name : type->full + "/" + field.name;
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(std::move(name));
    }
  }
  if (event.empty()) std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ringside
