// A bounded table of cells by key. Every table of an analysis is one.
//
//   KeyTable<Cell> table(10000);          // Cell: default-constructible, movable, with `u64 count`, by which it is evicted
//   Cell& cell = table.at({tid, prio});   // made if it is new; valid until the next at()
//   ++cell.count;
//
// A full table evicts the half of its cells that counts least, and counts the evicted keys: a key that comes back begins anew.
// So memory is bounded, a heavy key survives, and the table is exact as long as evicted().keys is 0.
// Cells stand one behind the other. A sparse index of their numbers leads to them, by open addressing with linear probing: a
// collision is rare, so the processor foresees that there is none. The hash is seeded, so that nobody can choose keys that
// collide.
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

  explicit KeyTable(size_t most) : most_(std::max<size_t>(most, 2)) {
    std::random_device random;
    seed_ = (u64{random()} << 32 | random()) | 1;
    index(64);
  }

  Cell& at(const KeyWords& key) {
    if (Cell* const cell = known(key)) return *cell;
    return make(key);
  }
  // at() for a key that is there; null: it is not.
  RINGSIDE_INLINE Cell* known(const KeyWords& key) {
    Entry* const entries = entries_.data();
    // The same key often comes several times in a row.
    if (last_ != none && same_key(entries[last_].key, key)) return &entries[last_].cell;
    last_ = index_[place(key)];
    return last_ != none ? &entries[last_].cell : nullptr;
  }
  // Null: no such key.
  const Cell* find(const KeyWords& key) const {
    const u32 at = index_[place(key)];
    return at != none ? &entries_[at].cell : nullptr;
  }
  template <class Use>
  void each(const Use& use) const {
    for (const Entry& entry : entries_) use(entry.key, entry.cell);
  }
  template <class Use>
  void each(const Use& use) {
    for (Entry& entry : entries_) use(entry.key, entry.cell);
  }
  // Every key becomes change(key); two must not become the same.
  template <class Change>
  void rekey(const Change& change) {
    for (Entry& entry : entries_) entry.key = change(entry.key);
    index(index_.size());
  }
  size_t size() const { return entries_.size(); }
  const Evicted& evicted() const { return evicted_; }

 private:
  static constexpr u32 none = ~u32{0};
  [[gnu::noinline]] Cell& make(const KeyWords& key) {
    if (entries_.size() == most_) evict();
    entries_.push_back({key, Cell{}});
    if (4 * entries_.size() > index_.size()) index(index_.size() * 2);
    last_ = static_cast<u32>(entries_.size() - 1);
    index_[place(key)] = last_;
    return entries_.back().cell;
  }
  // Where the key's number is, or would be. Folds both halves of a product of twice the width (wyhash's mixing step).
  RINGSIDE_INLINE size_t place(const KeyWords& key) const {
    const auto mixed = static_cast<unsigned __int128>(key[0] ^ seed_) * (key[1] * 0x9E3779B97F4A7C15 + 0xA0761D6478BD642F);
    size_t i = (static_cast<u64>(mixed) ^ static_cast<u64>(mixed >> 64)) & mask_;
    while (index_[i] != none && !same_key(entries_[index_[i]].key, key)) i = (i + 1) & mask_;
    return i;
  }
  // Makes the index anew.
  void index(size_t size) {
    index_.assign(size, none);
    mask_ = size - 1;
    last_ = none;
    for (u32 n = 0; const Entry& entry : entries_) index_[place(entry.key)] = n++;
  }
  void evict() {
    std::vector<u64> counts;
    counts.reserve(entries_.size());
    each([&](const KeyWords&, const Cell& cell) { counts.push_back(cell.count); });
    const auto middle = counts.begin() + static_cast<std::ptrdiff_t>((counts.size() - 1) / 2);
    std::nth_element(counts.begin(), middle, counts.end());
    const u64 limit = *middle;
    size_t to_go = (counts.size() + 1) / 2;
    for (const bool equal : {false, true}) {  // cells that count as much as the middle one go until the half is complete
      std::erase_if(entries_, [&](const Entry& entry) {
        if (to_go == 0 || (equal ? entry.cell.count != limit : entry.cell.count >= limit)) return false;
        --to_go;
        ++evicted_.keys;
        evicted_.count += entry.cell.count;
        return true;
      });
    }
    index(index_.size());
  }

  size_t most_;
  std::vector<Entry> entries_;
  std::vector<u32> index_;  // numbers of entries, by hash
  size_t mask_ = 0;         // of a place in it
  u32 last_ = none;         // the entry that the last at() found
  u64 seed_ = 0;
  Evicted evicted_;
};

}  // namespace ringside
