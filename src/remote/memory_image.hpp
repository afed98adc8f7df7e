// The memory in a dump file, whatever its format:
//
//   raw       the file is the memory: pages at page boundaries of the file
//   ELF core  of a process or a machine (qemu's dump-guest-memory, gcore): the segments PT_LOAD
//   kdump     compressed page by page (qemu's dump-guest-memory -z, makedumpfile), also in the form for pipes; by zlib and zstd
//
// Every byte may be hostile: each offset and length is checked against the file, and nothing grows beyond the file's size, but
// for pages that hold sub-buffers of rings.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ringside/base/result.hpp"
#include "source/source.hpp"

namespace ringside::remote {

class MemoryImage {
 public:
  // file: aligned to 8, and it outlives this.
  static result<MemoryImage> of(Bytes file);
  const char* format() const { return format_; }
  // The pieces of memory in which a ring may be, aligned to 8: those of the file, and copies.
  const std::vector<Bytes>& pieces() const { return pieces_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  result<void> read_elf(Bytes file);
  result<void> read_kdump(Bytes file);
  void add(Bytes piece);
  const char* format_ = "raw";
  std::vector<Bytes> pieces_;
  std::vector<std::vector<u64>> copies_;
  std::vector<std::string> problems_;
};

// Does this page of memory end in the footer of a sub-buffer? Its size; 0: no.
u64 sub_buffer_ending_in(const u8* page_end);

}  // namespace ringside::remote
