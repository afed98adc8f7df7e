// A bounded table of cells by key. Every table of an analysis is one.
//
//   KeyTable<Cell> table(10000);          // Cell: default-constructible, movable, with `u64 count`, 0 while unused
//   Cell& cell = table.at({tid, prio});   // made if it is new; valid until the next at()
//   ++cell.count;                         // at once: a cell that counts 0 does not stay
//
// A full table evicts the half of its cells that counts least, and counts the evicted keys: a key that comes back begins anew.
// So memory is bounded, a heavy key survives, and the table is exact as long as evicted().keys is 0.
// Open addressing with linear probing; the hash is seeded, so that nobody can choose keys that collide.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside {

using KeyWords = std::array<u64, 2>;

// Word by word: std::array's own comparison is a call of memcmp.
template <size_t n>
inline bool same_key(const std::array<u64, n>& a, const std::array<u64, n>& b) {
  u64 differ = 0;
  for (size_t i = 0; i < n; ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

template <class Cell>
class KeyTable {
 public:
  struct Entry {
    KeyWords key{};
    Cell cell{};
  };
  struct Evicted {
    u64 keys = 0, count = 0;
  };

  explicit KeyTable(size_t most) : most_(std::max<size_t>(most, 2)), entries_(64) { reseed(); }

  Cell& at(const KeyWords& key) {
    if (Cell* const cell = known(key)) return *cell;
    return make(key);
  }
  // at() for a key that is there; null: it is not.
  RINGSIDE_INLINE Cell* known(const KeyWords& key) {
    Entry* entry = entries_.data() + last_;
    if (same_key(entry->key, key) && entry->cell.count != 0) return &entry->cell;  // the same key often comes several times in a row
    last_ = place(key);
    entry = entries_.data() + last_;
    return entry->cell.count != 0 ? &entry->cell : nullptr;
  }
  // Null: no such key.
  const Cell* find(const KeyWords& key) const {
    const Entry& entry = entries_[place(key)];
    return entry.cell.count == 0 ? nullptr : &entry.cell;
  }
  template <class Use>
  void each(const Use& use) const {
    for (const Entry& entry : entries_) {
      if (entry.cell.count != 0) use(entry.key, entry.cell);
    }
  }
  template <class Use>
  void each(const Use& use) {
    for (Entry& entry : entries_) {
      if (entry.cell.count != 0) use(entry.key, entry.cell);
    }
  }
  // Every key becomes change(key); two must not become the same.
  template <class Change>
  void rekey(const Change& change) {
    for (Entry& entry : entries_) {
      if (entry.cell.count != 0) entry.key = change(entry.key);
    }
    rebuild(entries_.size());
  }
  size_t size() const { return used_; }
  const Evicted& evicted() const { return evicted_; }

 private:
  // At last_, where known() has looked for it.
  [[gnu::noinline]] Cell& make(const KeyWords& key) {
    if (used_ == most_) {
      evict();
      last_ = place(key);
    } else if (2 * (used_ + 1) > entries_.size()) {
      rebuild(entries_.size() * 2);
      last_ = place(key);
    }
    Entry& entry = entries_[last_];
    entry.key = key;
    entry.cell = Cell{};
    ++used_;
    return entry.cell;
  }
  // Folds both halves of a product of twice the width (wyhash's mixing step).
  size_t place(const KeyWords& key) const {
    const auto mixed = static_cast<unsigned __int128>(key[0] ^ seed_) * (key[1] * 0x9E3779B97F4A7C15 + 0xA0761D6478BD642F);
    size_t i = (static_cast<u64>(mixed) ^ static_cast<u64>(mixed >> 64)) & (entries_.size() - 1);
    while (entries_[i].cell.count != 0 && !same_key(entries_[i].key, key)) i = (i + 1) & (entries_.size() - 1);
    return i;
  }
  void reseed() {
    std::random_device random;
    seed_ = (u64{random()} << 32 | random()) | 1;
  }
  void rebuild(size_t entries) {
    std::vector<Entry> old(entries);
    old.swap(entries_);
    for (Entry& entry : old) {
      if (entry.cell.count == 0) continue;
      const size_t i = place(entry.key);
      entries_[i] = std::move(entry);
    }
  }
  void evict() {
    std::vector<u64> counts;
    counts.reserve(used_);
    each([&](const KeyWords&, const Cell& cell) { counts.push_back(cell.count); });
    const auto middle = counts.begin() + static_cast<std::ptrdiff_t>((counts.size() - 1) / 2);
    std::nth_element(counts.begin(), middle, counts.end());
    const u64 limit = *middle;
    size_t to_go = (counts.size() + 1) / 2;
    for (const bool equal : {false, true}) {  // cells that count as much as the middle one go until the half is complete
      for (Entry& entry : entries_) {
        if (entry.cell.count == 0 || to_go == 0 || (equal ? entry.cell.count != limit : entry.cell.count >= limit)) continue;
        --to_go;
        --used_;
        ++evicted_.keys;
        evicted_.count += entry.cell.count;
        entry.cell.count = 0;
      }
    }
    rebuild(entries_.size());
  }

  size_t most_, used_ = 0, last_ = 0;  // last_: the index that the last at() found
  std::vector<Entry> entries_;
  u64 seed_ = 0;
  Evicted evicted_;
};

}  // namespace ringside
