// Groups records by one column or two; each group has a cell of its own. Tables are made of groups.
//
//   auto groups = Groups<Cell>::make({"task", "event"}, 10000, formats, tasks);
//   if (Cell* cell = groups->at(record, ring)) ++cell->count;     // null: the record lacks a column
//
// Memory is bounded like KeyTable's, texts of keys included.
#pragma once
#include <algorithm>
#include <ringside/base/result.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/column.hpp"
#include "analysis/key_table.hpp"
#include "analysis/mistyped.hpp"
#include "sys/try.hpp"

namespace ringside {

// "EVENT/A,B" as columns: EVENT/A and EVENT/B. A comma within [] or {} does not separate them.
std::vector<std::string> split_columns(std::string_view text);

template <class Cell>
class Groups {
 public:
  static result<Groups> make(const std::vector<std::string>& keys, size_t most, const Formats& formats, const Tasks& tasks) {
    Groups groups(most);
    if (keys.empty() || keys.size() > std::tuple_size_v<KeyWords>)
      return mistyped(std::errc::invalid_argument, "a table has one key or two, not " + std::to_string(keys.size()));
    for (const std::string& text : keys) {
      auto column = RS_TRY(Column::compile(text, formats, tasks));
      column.use_names();
      groups.columns_.push_back(std::move(column));
    }
    groups.two_ = keys.size() == 2;
    return groups;
  }

  Cell* at(const TraceRecord& record, const RingName& ring) {
    KeyWords key{};
    if (!two_ && table_.evicted().keys == forgotten_ && columns_.data()->quick_key(record, key[0])) [[likely]] {
      if (Cell* const cell = table_.known(key)) [[likely]] return cell;
    }
    return at_any(record, ring);
  }
  bool has(const TraceRecord& record, const RingName& ring) {
    return std::all_of(columns_.begin(), columns_.end(), [&](Column& column) { return column.has(record, ring); });
  }
  // Adds the groups of another table of the same keys over the same trace. Cell::add(const Cell&).
  void merge(const Groups& other) {
    other.table_.each([&](KeyWords key, const Cell& cell) {
      for (size_t i = 0; i < columns_.size(); ++i) {
        if (columns_[i].kind() == Column::Kind::text) key[i] = texts_.number(other.texts_.text(key[i]));
      }
      table_.at(key).add(cell);
    });
    without_ += other.without_;
    misfits_ += other.misfits_;
  }

  template <class Use>
  void each(const Use& use) const { table_.each(use); }
  template <class Use>
  void each(const Use& use) { table_.each(use); }

  const std::vector<Column>& columns() const { return columns_; }
  size_t size() const { return table_.size(); }
  u64 without() const { return without_; }  // records that lacked a column
  u64 misfits() const { return misfits_; }  // of them, those with a field of that name: Column::is_misfit()
  const auto& evicted() const { return table_.evicted(); }

  std::string show(const KeyWords& key, size_t column) const { return columns_[column].show(key[column], texts_); }
  nlohmann::ordered_json json(const KeyWords& key, size_t column) const { return columns_[column].json(key[column], texts_); }
  // {"task":"cc1","event":"libc:malloc"}
  nlohmann::ordered_json json(const KeyWords& key) const {
    auto out = nlohmann::ordered_json::object();
    for (size_t i = 0; i < columns_.size(); ++i) out[columns_[i].name()] = json(key, i);
    return out;
  }
  bool before(const KeyWords& a, const KeyWords& b) const {
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (a[i] != b[i]) return columns_[i].before(a[i], b[i], texts_);
    }
    return false;
  }

 private:
  explicit Groups(size_t most) : table_(most) {}
  [[gnu::noinline]] Cell* at_any(const TraceRecord& record, const RingName& ring) {
    if (table_.evicted().keys != forgotten_) [[unlikely]] forget_texts();
    KeyWords key{};
    if (!columns_[0].key(record, ring, texts_, key[0]) || (two_ && !columns_[1].key(record, ring, texts_, key[1]))) {
      ++without_;
      misfits_ += std::any_of(columns_.begin(), columns_.end(), [&](Column& column) { return column.is_misfit(record); });
      return nullptr;
    }
    return &table_.at(key);
  }
  // Drops the texts of evicted keys.
  void forget_texts() {
    forgotten_ = table_.evicted().keys;
    Texts kept;
    table_.rekey([&](KeyWords key) {
      for (size_t i = 0; i < columns_.size(); ++i) {
        if (columns_[i].kind() == Column::Kind::text) key[i] = kept.number(texts_.text(key[i]));
      }
      return key;
    });
    texts_ = std::move(kept);
  }

  std::vector<Column> columns_;
  bool two_ = false;  // of them
  KeyTable<Cell> table_;
  Texts texts_;
  u64 without_ = 0, misfits_ = 0, forgotten_ = 0;
};

}  // namespace ringside
