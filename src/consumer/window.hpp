// A part of a trace: a range of time, and CPUs.
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string_view>
#include <vector>

#include "source/wall.hpp"

namespace ringside {

// A time of the trace, or one after its first event.
struct Moment {
  u64 ns = 0;
  bool given = false, relative = false;
  bool of_day = false, of_date = false;  // ns is a time of day, or one since 1970: Window::resolve
  bool in_us = false;                    // written with six digits below the second, as report prints times
  std::optional<u64> number{};           // it was written as one: ticks, where a clock has them
  u64 at(u64 first) const { return relative ? (ns > ~first ? ~u64{0} : first + ns) : ns; }
  // "12.5s", or "+300ms" after the first event; "14:05:02.5" or "2026-11-28T14:05:02.5", a time of day.
  static result<Moment> parse(std::string_view text);
};

// These CPUs (none: all; rings of threads have none), from one time to another, both included. A gap is in it if a part of it
// may be: it begins after its ring's last event before, and ends at the first one after it; that of a thread's ring may be of
// any CPU.
struct Window {
  std::vector<u32> cpus{};
  Moment from{}, until{};
  bool whole() const { return cpus.empty() && !of_time(); }
  bool of_time() const { return from.given || until.given; }
  // "12.5s..13s", "+0.5s..+1s", "12.5s..", "..+1s"; also with a comma, as perf takes it: "12.5,13"
  // "14:05:02.5..+10s", "2026-11-28T14:05..2026-11-28T14:06": times of day; after one, +10s is from there.
  // A time with six digits below the second is one that report prints, rounded: it is all times that are printed so, from
  // 500 ns before to 499 ns after it. With any other number of digits it is that time, to the ns.
  result<void> parse_time(std::string_view text);
  bool asks_day() const { return from.of_day || from.of_date || until.of_day || until.of_date; }
  // Makes times of day those of a trace that begins at `begin`.
  void resolve(const WallClock& wall, u64 begin);
  result<void> count_ticks();  // of a trace whose clock counts no seconds
};

}  // namespace ringside
