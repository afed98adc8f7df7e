// A trace.dat file, as trace-cmd (or `ringside export`) wrote it: versions 6 and 7, compressed or not, any number of buffers.
//
//   auto dat = must(open_trace_dat("trace.dat"));
//   for (auto& ring : dat.rings) timeline.add(std::move(ring));
//   for (const std::string& p : dat.problems) ...    // what could not be read; the rest is good
//
// The file is mapped and its sub-buffers are shown in place; compressed ones are decompressed a chunk at a time. It may be
// hostile: every offset, size and number is checked against the file before it is believed or used to allocate. Sub-buffers of
// kernels of 32 bits and of big-endian machines are converted one by one into those of a little-endian kernel of 64 bits
// (foreign_sub_buffers.hpp): above this file nothing differs.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "source/account.hpp"
#include "source/source.hpp"
#include "source/world.hpp"
#include "sys/budget.hpp"
#include "sys/sys.hpp"

namespace ringside {

// The bytes of a file: mapped, or (in tests) anywhere.
struct TraceDatBytes {
  std::string path;
  sys::Region region;
  const u8* data = nullptr;
  u64 size = 0;
  std::atomic<u64> decompressed{0};  // bytes that its rings hold now
  std::atomic<u64> unpacked{0};      // that were made so far: 16 MiB of zeros take 500 bytes of a file
  u64 most_decompressed() const { return budget().bytes(); }
  u64 most_unpacked() const { return budget().steps() * of_a_step; }

  static constexpr u64 of_a_step = 32;  // bytes that decompress in 10 ns

 private:
  Budget budget() const {
    Budget budget;
    budget.grow(size);
    return budget;
  }
};

struct TraceDatFile {
  u32 version = 0;
  std::string compression;  // "none", "zlib", "zstd"
  World world;
  ClockInfo clock;         // one that counts no nanoseconds, and has no rate, is a counter
  std::string clock_name;  // the kernel's name for it
  std::vector<EventInfo> events;
  std::vector<RingName> threads;
  std::string kallsyms, printk_formats;
  std::vector<std::unique_ptr<Source>> rings;
  bool of_day = false;     // its times are times of day: trace-cmd record --date
  bool of_guest = false;   // its machine is a guest, whose host it does not name
  bool unshifted = false;  // some of its times are of a guest's clock; others of a guest's are shifted to its host's
  Account account;         // as far as the file says it
  std::vector<std::string> problems;
};

// name: of the file in messages, if it is another one.
result<TraceDatFile> open_trace_dat(const std::string& path, const std::string& name = "");
result<TraceDatFile> read_trace_dat(std::shared_ptr<TraceDatBytes> bytes);

}  // namespace ringside
