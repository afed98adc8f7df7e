// Debugging information that is compressed by zstd, which libdw reads only where it was built with it (Debian 12's is not).
#pragma once
#include <ringside/base/result.hpp>
#include <string>

#include "sys/budget.hpp"
#include "sys/sys.hpp"

namespace ringside {

bool has_zstd_sections(int fd);
// Of a file that judge_elf has found to fit: if it has such sections, `fd` becomes a copy in memory that has them plain.
result<void> unpack_zstd_sections(sys::Fd& fd, const std::string& path, Budget& budget);

}  // namespace ringside
