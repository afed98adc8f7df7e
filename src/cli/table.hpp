// The one table: typed values in rows, printed as text or as JSON. The kind of a column says how its values are printed.
//
//   constexpr Members members = {{"event", Kind::text, "its name", "event"},
//                                {"total_ns", Kind::time, "of its spans", "total"}};
//   Table table;
//   table.add(members);
//   table.row({"libc:malloc", 1'230'000});
//   put(table.render(colours()));  // columns as wide as needed, numbers to the right, the header bold: 1.23 ms
//   table.objects();               // [{"event":"libc:malloc","total_ns":1230000}]
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/json.hpp"

namespace ringside::cli {

enum class Kind : u8 {
  text,
  flag,        // yes, no
  number,      // 4711: it names something
  count,       // 1,234
  bytes,       // 16.0 KiB
  time,        // 1.23 ms; whole nanoseconds in JSON, or ticks
  mean,        // a time; one digit after the point in JSON
  share,       // 12.3 %; two digits in JSON
  rate,        // 1.2M/s; one digit in JSON
  throughput,  // 16.0 KiB/s
  array,
  object,
};

const char* type_of(Kind kind);  // in JSON: "ns"

struct Member;
using Members = std::initializer_list<Member>;
// The declaration of a value.
struct Member {
  const char* key;  // in JSON; empty: it is in the text alone
  Kind kind;
  const char* about = "";       // what docs/json.md says of it
  const char* title = nullptr;  // of its column in the text; null: it is in JSON alone
  Members inner{};              // of an object, or of the objects of an array
};

// null: not known, and empty in the text.
struct Cell {
  Cell() = default;
  template <class Value, class = std::enable_if_t<!std::is_same_v<std::decay_t<Value>, Cell>>>
  Cell(Value&& in_json) : value(std::forward<Value>(in_json)) {}
  // text: instead of the one by kind.
  Cell(Json in_json, std::string in_text) : value(std::move(in_json)), text(std::move(in_text)) {}
  static Cell absent(std::string in_text = "") { return {Json(Json::value_t::discarded), std::move(in_text)}; }  // from JSON

  Json value;
  std::optional<std::string> text{};
};
using Cells = std::vector<Cell>;

class Table {
 public:
  struct Column {
    std::string title;
    Kind kind = Kind::text;
    std::string key{};  // in JSON; empty: it is in the text alone
    bool in_text = true;
    std::string object{};  // in JSON: the inner object that has it
  };
  enum class Only : u8 { none, text, json };

  explicit Table(std::vector<Column> columns = {}, TimeUnit unit = TimeUnit::ns) : columns_(std::move(columns)), unit_(unit) {}
  void add(Column column) { columns_.push_back(std::move(column)); }
  void add(Members members) {
    for (const Member& m : members) add(Column{m.title != nullptr ? m.title : "", m.kind, m.key, m.title != nullptr});
  }

  // A row may end early.
  void row(Cells cells, const Cells& more = {}, Only only = Only::none) {
    cells.insert(cells.end(), more.begin(), more.end());
    if (cells.size() > columns_.size()) throw std::logic_error("a row has more values than the table has columns");
    rows_.push_back({std::move(cells), only});
  }
  void line(Cells cells, const Cells& more = {}) { row(std::move(cells), more, Only::text); }
  void line_of_more(u64 rows, u64 shown) {
    if (rows > shown) line({fmt::format("({} more)", rows - shown)});
  }
  bool empty() const { return rows_.empty(); }

  std::string render(bool colour) const;
  Json objects() const;
  // Of one row.
  static Json object(Members members, Cells cells) {
    Table one;
    one.add(members);
    one.row(std::move(cells));
    return one.objects()[0];
  }

 private:
  struct Row {
    Cells cells;
    Only only;
  };
  std::string shown(const Cell& cell, Kind kind) const;

  std::vector<Column> columns_;
  TimeUnit unit_;
  std::vector<Row> rows_;
};

}  // namespace ringside::cli
