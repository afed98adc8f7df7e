// What this machine's kernel can do, asked of the kernel and not of ringside: tests of what it lacks are skipped.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "sys/sys.hpp"

namespace ringside::test {

inline constexpr const char* no_mapping = "this kernel does not map its rings (Linux 6.10 does)";
inline constexpr const char* no_larger_sub_buffers = "this kernel's sub-buffers have 4 KiB (Linux 6.8 has larger ones)";

// instance: a directory of tracefs.
inline bool kernel_maps(const std::string& instance) {
  const sys::Fd raw(open((instance + "/per_cpu/cpu0/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  void* const at = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, raw.get(), 0);
  if (at == MAP_FAILED) return errno != ENODEV;
  munmap(at, 4096);
  return true;
}

inline bool kernel_has_larger_sub_buffers(const std::string& instance) {
  return access((instance + "/buffer_subbuf_size_kb").c_str(), F_OK) == 0;
}

}  // namespace ringside::test
