// Writes to trace_marker and trace_marker_raw. The library writes to one instance in a process, so the mount starts a process
// as the writer for each instance that gets any. It ends with the mount, however that ends.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>

#include "sys/sys.hpp"

namespace ringside::mount {

inline constexpr u32 longest_marker = 3968;  // bytes of text in one event

class Marker {
 public:
  explicit Marker(std::string instance) : instance_(std::move(instance)) {}
  ~Marker() { stop(); }

  // Writes one event of ftrace:print (text) or ftrace:raw_data (a u32, then bytes), as if by the thread `tid`, which waits, on
  // the CPU that it ran on; at most longest_marker bytes. EBADF, as in the kernel: recording is off, or the ring is full and
  // refuses events; EIO: the process is gone.
  result<void> write(bool raw, std::string_view bytes, i32 tid);
  bool started() const { return pid_ > 0; }
  // Registers both events with the instance; the first write does so, too.
  result<void> start();
  void stop();

 private:
  std::string instance_;
  sys::Fd socket_;
  pid_t pid_ = -1;
};

}  // namespace ringside::mount
