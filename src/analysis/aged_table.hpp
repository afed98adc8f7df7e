// A bounded table by key: when it is full, it evicts the oldest entry. For entries that wait for something that may never come.
//
//   AgedTable<Start> table(100'000);
//   const u32 hash = table.hash(key);
//   u32 at = table.find(key, hash);                       // AgedTable::none: not there
//   if (at == table.none) at = table.insert(key, hash);   // the youngest now; may have evicted the oldest: evicted()
//   use(table[at]);
//   table.erase(at);
//
// A place (`at`) belongs to its key until the key is erased or evicted. A key may be inserted again while it is there: find()
// then finds the youngest, and the older one when that is erased, as in a stack for each key. Chained hashing over one pool of
// entries, linked by age; the hash is seeded, so that nobody can choose keys that collide. Memory: a few dozen bytes for each
// entry, at their largest number.
#pragma once
#include <algorithm>
#include <array>
#include <random>
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside {

template <class Value>
class AgedTable {
 public:
  using Key = std::array<u64, 3>;
  static constexpr u32 none = ~u32{0};

  explicit AgedTable(size_t most) : most_(std::clamp<size_t>(most, 1, none - 1)), buckets_(64, none) {
    std::random_device random;
    for (u64& seed : seeds_) seed = (u64{random()} << 32 | random()) | 1;
  }

  // Folds both halves of a product of twice the width (wyhash's mixing step).
  u32 hash(const Key& key) const {
    const u64 rest = key[1] + key[2] * seeds_[1];
    const auto mixed = static_cast<unsigned __int128>(key[0] ^ seeds_[0]) * (rest * 0x9E3779B97F4A7C15 + seeds_[2]);
    return static_cast<u32>(static_cast<u64>(mixed) ^ static_cast<u64>(mixed >> 64));
  }
  // words: how many words of the table's keys are not always 0.
  template <size_t words = 3>
  RINGSIDE_INLINE u32 find(const Key& key, u32 hash) const {
    u32 at = buckets_[hash & (buckets_.size() - 1)];
    while (at != none && !same<words>(entries_[at].key, key)) at = entries_[at].next;
    return at;
  }
  u32 insert(const Key& key, u32 hash) {
    if (size_ == most_) {
      ++evicted_;
      erase(oldest_);
    }
    if (free_ == none) {
      entries_.emplace_back();
      free_ = static_cast<u32>(entries_.size() - 1);
      if (4 * entries_.size() > buckets_.size()) grow();  // most are empty, so that the processor foresees it
    }
    const u32 at = free_;
    Entry& entry = entries_[at];
    free_ = entry.next;
    entry.key = key;
    entry.hash = hash;
    put_into_bucket(at);
    ++size_;
    append(at);
    return at;
  }
  void erase(u32 at) {
    Entry& entry = entries_[at];
    (entry.before == none ? bucket(entry) : entries_[entry.before].next) = entry.next;
    if (entry.next != none) entries_[entry.next].before = entry.before;
    detach(at);
    entry.next = free_;
    free_ = at;
    --size_;
  }
  // Makes it the youngest.
  void renew(u32 at) {
    detach(at);
    append(at);
  }

  Value& operator[](u32 at) { return entries_[at].value; }
  const Value& operator[](u32 at) const { return entries_[at].value; }
  const Key& key(u32 at) const { return entries_[at].key; }
  size_t size() const { return size_; }
  u64 evicted() const { return evicted_; }
  // Their places, from the oldest to the youngest.
  template <class Use>
  void each(const Use& use) const {
    for (u32 at = oldest_; at != none; at = entries_[at].younger) use(at);
  }

 private:
  struct Entry {
    Key key{};
    u32 next = none, before = none;  // in its bucket; next: in the list of free entries, too
    u32 older = none, younger = none;
    u32 hash = 0;
    Value value{};
  };

  // Like array's ==, without its call of memcmp.
  template <size_t words>
  static bool same(const Key& a, const Key& b) {
    if constexpr (words == 1) return a[0] == b[0];
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2])) == 0;
  }
  // Before an older one of its key.
  void put_into_bucket(u32 at) {
    Entry& entry = entries_[at];
    u32& head = bucket(entry);
    entry.before = none;
    entry.next = head;
    if (head != none) entries_[head].before = at;
    head = at;
  }
  u32& bucket(const Entry& entry) { return buckets_[entry.hash & (buckets_.size() - 1)]; }
  void append(u32 at) {
    entries_[at].older = youngest_;
    entries_[at].younger = none;
    (youngest_ == none ? oldest_ : entries_[youngest_].younger) = at;
    youngest_ = at;
  }
  void detach(u32 at) {
    const Entry& entry = entries_[at];
    (entry.older == none ? oldest_ : entries_[entry.older].younger) = entry.younger;
    (entry.younger == none ? youngest_ : entries_[entry.younger].older) = entry.older;
  }
  void grow() {
    buckets_.assign(buckets_.size() * 2, none);
    each([&](u32 at) { put_into_bucket(at); });
  }

  size_t most_, size_ = 0;
  std::vector<u32> buckets_;
  std::vector<Entry> entries_;
  u32 free_ = none, oldest_ = none, youngest_ = none;
  std::array<u64, 3> seeds_{};
  u64 evicted_ = 0;
};

}  // namespace ringside
