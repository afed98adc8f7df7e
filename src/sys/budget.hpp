// What reading a stranger's bytes may take: bytes of memory, and steps of work. One goes through a reading, and is asked before
// anything expands; what does not fit is left out, and the end of the reading counts it.
//
//   Budget budget;
//   budget.grow(st);                              // by fstat: a larger input may take more
//   if (!budget.take(inflated)) ...               // nothing is taken: leave it out, and count it
//   if (!budget.step(visited)) ...
//
// It asks no clock, so the same input shows the same on every day.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ringside/base/types.hpp>
#include <set>
#include <utility>

namespace ringside {

class Budget {
 public:
  // Whatever the input is. A step takes some 10 ns.
  static constexpr u64 least_bytes = u64{96} << 20, least_steps = u64{1} << 27;
  // For each byte of input: compilers' tables become 5 times as large.
  static constexpr u64 bytes_for_each = 16, steps_for_each = 64;

  // Of these, what a reading has: RINGSIDE_BUDGET. Set before the first one.
  static inline u64 percent = 100;
  static constexpr u64 most_percent = 10'000;

  Budget() noexcept : Budget(share(least_bytes), share(least_steps)) {}
  Budget(u64 bytes, u64 steps) noexcept : bytes_(bytes), steps_(steps) {}

  // By a file, once, however many names it has. What is a hole in it was written by nobody.
  void grow(const struct stat& file) {
    if (files_.emplace(file.st_dev, file.st_ino).second) grow(size_of(file));
  }
  void grow(u64 input) noexcept {
    input = std::min(input, largest_input);
    const u64 quarter = std::max(static_cast<u64>(sysconf(_SC_PHYS_PAGES)) * page_size / 4, share(least_bytes));
    bytes_ = std::max(bytes_, std::min(bytes_ + share(input * bytes_for_each), quarter));
    steps_ += share(input * steps_for_each);
  }
  [[nodiscard]] bool take(u64 bytes) noexcept { return take(bytes_, bytes); }
  void give_back(u64 bytes) noexcept { bytes_ += bytes; }
  [[nodiscard]] bool step(u64 steps = 1) noexcept {
    if (take(steps_, steps)) return true;
    steps_ = 0;  // so that what is too long is tried once
    return false;
  }
  u64 bytes() const noexcept { return bytes_; }  // that are left
  u64 steps() const noexcept { return steps_; }

  // A file's size without its holes; some file systems count no blocks.
  static u64 size_of(const struct stat& file) noexcept {
    const u64 size = static_cast<u64>(file.st_size), blocks = static_cast<u64>(file.st_blocks) * 512;
    return blocks == 0 ? size : std::min(size, blocks);
  }

 private:
  static constexpr u64 largest_input = u64{1} << 44;
  static u64 share(u64 of) noexcept { return of / 100 * percent + of % 100 * percent / 100; }
  static bool take(u64& left, u64 wanted) noexcept {
    if (wanted > left) return false;
    left -= wanted;
    return true;
  }
  u64 bytes_, steps_;
  std::set<std::pair<dev_t, ino_t>> files_;
};

}  // namespace ringside
