// The system calls that say which file a descriptor is, with the texts of their paths, as ringside:file_call
// (src/decode/call_files.hpp): for `record --files` and `syscalls --files`.
//
//   auto calls = must(FileCalls::open({.pids = {4711}}, clock));   // from here on they are noted
//   ... each of take_sources() ...
//   calls->off();   // the source hands out the rest
//
// A BPF program at raw_syscalls:sys_enter copies the texts into a ring (Linux 5.8, with BPF and perf events): nothing is done
// in the process, whether it is static or not. Of calls that are none of these, it costs a look-up. A path that is
// not in memory when its call begins is copied at its end. All calls of all CPUs are in one order, so a loss is in one place.
//
// Not thread-safe.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "source/packer.hpp"
#include "sys/sys.hpp"

namespace ringside {

struct NotedCall;

class FileCalls {
 public:
  struct Options {
    std::vector<i32> pids{};    // of the first PID namespace; with what they start
    bool all = false;           // the whole machine
    u64 buffer_size = 4 << 20;  // of the ring
  };
  // clock: mono, the one that BPF programs can read. Errors: no privileges, a kernel without it.
  static result<std::unique_ptr<FileCalls>> open(const Options& options, const ClockInfo& clock);
  ~FileCalls();
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;

  static EventInfo event();
  result<void> follow(i32 pid);                         // this process, too, and what /proc says of its descriptors
  std::vector<std::unique_ptr<Source>> take_sources();  // one; it must not outlive this object
  void off();

 private:
  class Ring;
  explicit FileCalls(const ClockInfo& clock);
  result<void> make_maps(const Options& options);
  result<void> attach(const std::string& event, const std::vector<u64>& program);
  void know(i32 pid);
  void pump(bool all = false);  // what the programs have noted; not all: until the rings have enough
  void take(const u8* noted, u64 size);
  void write(const NotedCall& noted, std::string_view text);
  void begin_another();
  void lose(u64 lost);

  ClockInfo clock_;
  sys::Fd followed_, wanted_, scratch_, losses_, ring_, later_;
  sys::Region positions_, data_, counted_;
  std::vector<sys::Fd> programs_, events_;
  u64 ring_size_ = 0;
  bool over_ = false;
  Packer packer_;
  std::deque<Packer> ready_{};
  std::optional<Packer> shown_{};
  std::vector<u8> payload_;
  u64 last_ = 0, lost_ = 0, taken_ = 0;
};

}  // namespace ringside
