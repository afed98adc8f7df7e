// A bounded table of cells by key. Every table of an analysis is one.
//
//   KeyTable<Cell> table(10000);          // Cell: default-constructible, movable, with `u64 count`, 0 while unused
//   Cell& cell = table.at({tid, prio});   // made if it is new; valid until the next at()
//   ++cell.count;                         // at once: a cell that counts 0 does not stay
//
// A full table evicts the half of its cells that counts least, and counts the evicted keys: a key that comes back begins anew.
// So memory is bounded, a heavy key survives, and the table is exact as long as evicted().keys is 0.
// The entries lie side by side, in the order in which they came; an index with open addressing and linear probing has their
// places, 4 bytes each, so that both stay in a core's own cache. The hash is seeded, so that nobody can choose keys that collide.
// Small keys of one word have an index of their own: the key is the place.
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

  explicit KeyTable(size_t most) : most_(std::clamp<size_t>(most, 2, u64{1} << 31)), index_(64), entries_(1) { reseed(); }

  Cell& at(const KeyWords& key) {
    if (Cell* const cell = known(key)) return *cell;
    return make(key);
  }
  // at() for a key that is there; null: it is not.
  RINGSIDE_INLINE Cell* known(const KeyWords& key) {
    if (key[1] == 0 && key[0] < small_keys_) [[likely]] {
      const u32 n = small_.data()[key[0]];
      if (n != none) [[likely]] return &entries_.data()[n].cell;
      return nullptr;
    }
    // The same key often comes several times in a row.
    if (Entry& last = entries_[last_]; same_key(last.key, key) && last_ != none) return &last.cell;
    last_ = index_[place(key)];
    return last_ != none ? &entries_[last_].cell : nullptr;
  }
  // Null: no such key.
  const Cell* find(const KeyWords& key) const {
    const u32 n = key[1] == 0 && key[0] < small_keys_ ? small_[key[0]] : index_[place(key)];
    return n == none ? nullptr : &entries_[n].cell;
  }
  template <class Use>
  void each(const Use& use) const {
    for (size_t n = 1; n < entries_.size(); ++n) {
      if (entries_[n].cell.count != 0) use(entries_[n].key, entries_[n].cell);
    }
  }
  template <class Use>
  void each(const Use& use) {
    for (size_t n = 1; n < entries_.size(); ++n) {
      if (entries_[n].cell.count != 0) use(entries_[n].key, entries_[n].cell);
    }
  }
  // Every key becomes change(key); two must not become the same.
  template <class Change>
  void rekey(const Change& change) {
    for (size_t n = 1; n < entries_.size(); ++n) entries_[n].key = change(entries_[n].key);
    rebuild(index_.size());
  }
  size_t size() const { return entries_.size() - 1; }
  const Evicted& evicted() const { return evicted_; }

 private:
  static constexpr u32 none = 0;  // of entries_: no key's

  [[gnu::noinline]] Cell& make(const KeyWords& key) {
    if (size() == most_) evict();
    if (2 * entries_.size() > index_.size()) rebuild(index_.size() * 2);
    entries_.push_back({key, Cell{}});
    enter(static_cast<u32>(entries_.size() - 1));
    return entries_.back().cell;
  }
  void enter(u32 n) {
    const KeyWords& key = entries_[n].key;
    const u64 most_small = std::min<u64>(1 << 16, 16 * most_);  // so that the costs of an eviction are in proportion
    if (key[1] != 0 || key[0] >= most_small) {
      index_[place(key)] = n;
      return;
    }
    if (small_.empty()) small_.assign(most_small, none);
    small_keys_ = most_small;
    small_[key[0]] = n;
  }
  // Where the index has this key, or has room for it. Folds both halves of a product of twice the width (wyhash's mixing step).
  RINGSIDE_INLINE size_t place(const KeyWords& key) const {
    const auto mixed = static_cast<unsigned __int128>(key[0] ^ seed_) * (key[1] * 0x9E3779B97F4A7C15 + 0xA0761D6478BD642F);
    size_t i = (static_cast<u64>(mixed) ^ static_cast<u64>(mixed >> 64)) & (index_.size() - 1);
    while (index_[i] != none && !same_key(entries_[index_[i]].key, key)) i = (i + 1) & (index_.size() - 1);
    return i;
  }
  void reseed() {
    std::random_device random;
    seed_ = (u64{random()} << 32 | random()) | 1;
  }
  void rebuild(size_t places) {
    index_.assign(places, none);
    std::fill(small_.begin(), small_.end(), none);
    for (size_t n = 1; n < entries_.size(); ++n) enter(static_cast<u32>(n));
    last_ = none;
  }
  void evict() {
    std::vector<u64> counts;
    counts.reserve(size());
    for (size_t n = 1; n < entries_.size(); ++n) counts.push_back(entries_[n].cell.count);
    const auto middle = counts.begin() + static_cast<std::ptrdiff_t>((counts.size() - 1) / 2);
    std::nth_element(counts.begin(), middle, counts.end());
    const u64 limit = *middle;
    size_t to_go = (counts.size() + 1) / 2;
    for (const bool equal : {false, true}) {  // cells that count as much as the middle one go until the half is complete
      const auto goes = [&](const Entry& entry) {
        if (to_go == 0) return false;
        if (equal ? entry.cell.count != limit : entry.cell.count >= limit) return false;
        --to_go;
        ++evicted_.keys;
        evicted_.count += entry.cell.count;
        return true;
      };
      size_t kept = 1;
      for (size_t n = 1; n < entries_.size(); ++n) {
        if (goes(entries_[n])) continue;
        if (kept != n) entries_[kept] = std::move(entries_[n]);
        ++kept;
      }
      entries_.resize(kept);
    }
    rebuild(index_.size());
  }

  size_t most_;
  u32 last_ = none;  // the entry that the last known() or make() found
  std::vector<u32> index_;
  std::vector<u32> small_;  // the same for {key, 0} with small keys, by key; empty: none has come
  u64 small_keys_ = 0;      // its size
  std::vector<Entry> entries_;
  u64 seed_ = 0;
  Evicted evicted_;
};

}  // namespace ringside
