// The content of `ringside watch`, computed from records: no terminal in here, and no clock except the ticks passed in.
//
//   auto model = WatchModel::make({.by = "event", .value = "duration_ns"}, {.live = true}, formats, tasks);
//   model->take(record, ring);             // every record in its order, losses too
//   model->tick(seconds);                  // live: an interval is over
//   WatchPicture now = model->picture("");
//
// A table by one column or two; for each row its count, its rate, the rates of the last intervals and, if a value is chosen (a
// numeric column, or the latency of pairs), a histogram of it and a heat map over time. Drilling down makes another model for a
// narrower query. A recording has no intervals: its time is cut into slices, which double when it does not fit.
//
// Memory: Options::most_keys rows of a KiB, histograms of the values (some KiB each), heat maps for the first `most_heats`
// keys. picture() costs a pass over the keys, and the work for `most_rows` of them. Thread-safety: none.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/histogram.hpp>
#include <string>
#include <vector>

#include "analysis/filter.hpp"
#include "analysis/groups.hpp"
#include "analysis/heat_map.hpp"
#include "analysis/pairs.hpp"
#include "analysis/quantity.hpp"
#include "source/account.hpp"

namespace ringside {

// A column that must have a value: the row that was drilled into.
struct WatchOnly {
  std::string column, id, shown;  // id: the number or the text itself
};

struct WatchQuery {
  std::string by = "event";       // a column, or two with a comma
  std::string filter{}, value{};  // filter: of events; with latency, of pairs
  std::vector<WatchOnly> only{};
  bool fields = false;                      // instead of `by`: a row for each field of the event that `only` names
  std::optional<Pairs::Options> latency{};  // only events that end a pair count, and the pair's duration is the value
  bool asks_for_stacks() const;             // records must come with their stacks
};

// The values of one row, or of all rows.
struct WatchValues {
  Histogram histogram{5};
  HeatMap heat{{.most_columns = 128}};
  bool heat_of_all = false;  // the row has no heat map of its own (most_heats)
};

struct WatchRow {
  std::string id;                  // identifies the row from picture to picture
  KeyWords key{};                  // valid until the model takes a record
  std::vector<std::string> names;  // a cell for each column
  std::vector<std::string> stack;  // the functions of the chosen row, innermost first, if it is a stack's
  u64 count = 0;
  double rate = 0;            // per second: in the last interval; in recordings: in all of its time
  double mean_rate = 0;       // in all of its time
  double share = 0;           // of all rows' counts
  std::vector<double> rates;  // the oldest interval first
  u64 values = 0;             // the number of values that the following sum up
  double mean = 0, p50 = 0, p99 = 0, max = 0;
  std::optional<Histogram::Whole> whole_max{};  // exact; none: of reals
  Column::Unit unit = Column::Unit::none;
};

enum class WatchSort : u8 { name, count, rate, mean, p50, p99, max };

struct WatchPicture {
  WatchQuery query;
  std::vector<std::string> columns;
  std::string value;           // its name; empty: none
  std::vector<WatchRow> rows;  // the most_rows largest
  WatchRow all;
  u64 keys = 0, without = 0, evicted_keys = 0, evicted_events = 0;
  Account account;          // the gaps, and losses that the watcher knows of besides
  double seconds = 0;       // since counting began; in recordings: from the first record to the last
  double slot_seconds = 0;  // the length of one of `rates`
  std::map<std::string, std::shared_ptr<const WatchValues>> values;  // by id, for the requested rows that have values

  void sort(WatchSort by, bool descending);
};

class WatchModel {
 public:
  static constexpr size_t slots = 128, most_rows = 1000, most_heats = 200;
  struct Options {
    size_t most_keys = 10'000;
    bool live = false;
  };

  // Both must outlive it. Errors: those of columns and filters; a value that is a text; fields of an unknown event.
  static result<WatchModel> make(const WatchQuery& query, const Options& options, const Formats& formats, const Tasks& tasks);

  void take(const TraceRecord& record, const RingName& ring);
  void tick(double seconds);
  // Live: earlier events and losses are in no rate, and losses not in the picture. In the trace's ns.
  void began(u64 ns) { began_ns_ = ns; }

  // With the values of the chosen row, or of all of them.
  WatchPicture picture(const std::string& chosen, bool everything = false) const;
  // The query after Enter on a row: for an event its tasks, for a task its events, for both the fields, for a field its values.
  std::optional<WatchQuery> deeper(const std::string& id) const;
  // Fields to choose a column or a value from: those of the event that `id` is or belongs to, else of all events.
  std::vector<std::string> fields(const std::string& id, bool numbers) const;
  const WatchQuery& query() const { return query_; }
  const std::optional<Pairs>& pairs() const { return pairs_; }
  std::vector<Column> keys() const { return groups_ ? groups_->columns() : std::vector<Column>(); }
  u64 events() const { return all_.count; }
  u64 lost() const { return lost_; }

  // {"task":"cc1","event":"libc:malloc"}, of a row of the last picture.
  nlohmann::ordered_json json(const WatchRow& row) const { return groups_->json(row.key); }

 private:
  struct Values {
    Histogram histogram{5};
    std::unique_ptr<HeatMap> heat;
  };
  struct Cell {
    u64 count = 0, earlier = 0;  // earlier: of these, before it began
    std::unique_ptr<std::array<u64, slots>>
        slot{};  // null while nothing was counted; held by pointer because the table moves cells
    std::unique_ptr<Values> values;
  };
  struct Restriction {
    Column column;
    std::string text;
    i64 number = 0;
  };
  struct FieldRow {
    Column column;
    std::string name;
    Cell cell;
  };

  WatchModel(const WatchQuery& query, const Options& options, const Formats& formats)
      : query_(query), options_(options), formats_(&formats) {}
  bool wanted(const TraceRecord& record, const RingName& ring);
  void count(Cell& cell, u64 time_ns, const Quantity* value);
  void place(u64 time_ns);
  template <class Use>
  void each_cell(const Use& use);
  std::vector<double> rates(const Cell& cell) const;
  void describe(const Cell& cell, WatchRow& row, double of) const;
  std::string id_of(const KeyWords& key, size_t column) const;
  std::string id_of(const KeyWords& key) const;
  const Cell* find(const std::string& id, KeyWords* key = nullptr) const;
  double seconds() const;
  const EventType* event_of(const std::string& full) const;
  std::string event_name(const std::string& id) const;

  WatchQuery query_;
  Options options_;
  const Formats* formats_;
  std::optional<Filter> filter_;
  std::optional<Pairs> pairs_;
  std::vector<Restriction> only_;
  std::optional<Groups<Cell>> groups_;
  std::vector<FieldRow> fields_;
  std::optional<Column> value_;
  Cell all_;
  size_t heats_ = 0;
  u64 without_ = 0, lost_ = 0, began_ns_ = 0;
  u64 first_ns_ = ~u64{0}, last_ns_ = 0;
  // Live: the point of this interval, and each point's duration. Recordings: points of 2^shift_ ns from the first record on.
  u64 ticks_ = 0;
  double elapsed_ = 0;
  size_t slot_ = 0;
  std::array<double, slots> seconds_{};
  u32 shift_ = 16;
  u64 origin_ = 0;
};

}  // namespace ringside
