// The one table: columns as wide as needed, numbers to the right, the header bold on a terminal.
//
//   Table table({{"event"}, {"count", Table::right}});
//   table.row({"libc:malloc", "1,234"});
//   put(table.render(colours()));
#pragma once
#include <string>
#include <vector>

namespace ringside::cli {

class Table {
 public:
  enum Align { left, right };
  struct Column {
    std::string title;
    Align align = left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string render(bool colour) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// The number of characters in a UTF-8 text (one column each: good enough for names).
size_t text_width(const std::string& text);

}  // namespace ringside::cli
