// Slices whose end has not come: spans and calls of functions, paired as `latency span` and `latency functions` pair them.
//
//   OpenSlices open;
//   open.begin(OpenSlices::span(thread, track, name), {time, gaps, name_number});
//   if (auto begun = open.end(OpenSlices::span(thread, track, name))) draw(begun->begin, end_time);
//
// An end takes the innermost begin of its thread, track and name. A span's end without a name takes the innermost one of its
// thread and track. At most most_open are open, of all threads and depths; one more drops the oldest. Thread-safety: none.
#pragma once
#include <functional>
#include <optional>
#include <string_view>

#include "analysis/aged_table.hpp"

namespace ringside::plot {

class OpenSlices {
 public:
  static constexpr size_t most_open = 100'000;  // as Pairs::Options::most_waiting
  struct Slice {
    u64 begin = 0, gaps = 0;
    u32 name = 0;
    u32 twin = 0;  // the place of its other key
  };
  using Key = AgedTable<Slice>::Key;

  static Key span(u32 thread, std::string_view track, std::string_view name) {
    return {thread, hash(track), name.empty() ? 0 : hash(name) | 1};
  }
  // `cpu`: of the idle thread, of which each processor has one; else 0.
  static Key call(u32 thread, u32 cpu, u64 function) { return {u64{cpu} << 32 | thread, function, of_calls}; }

  void begin(const Key& key, Slice slice) {
    const u32 named = table_.insert(key, table_.hash(key));
    const Key any = {key[0], key[1], 0};
    const u32 unnamed = table_.insert(any, table_.hash(any));
    slice.twin = unnamed;
    table_[named] = slice;
    slice.twin = named;
    table_[unnamed] = slice;
  }
  std::optional<Slice> end(const Key& key) {
    const u32 at = table_.find(key, table_.hash(key));
    if (at == table_.none) return std::nullopt;
    const Slice slice = table_[at];
    table_.erase(slice.twin);
    table_.erase(at);
    return slice;
  }
  // Those without an end, dropped ones with them.
  u64 left() const { return (table_.size() + table_.evicted()) / 2; }

 private:
  static constexpr u64 of_calls = 2;  // even: no span's
  static u64 hash(std::string_view text) { return std::hash<std::string_view>()(text); }

  // Each slice is in it twice, one after the other, so that both are dropped together: by its name, and without it.
  AgedTable<Slice> table_{2 * most_open};
};

}  // namespace ringside::plot
