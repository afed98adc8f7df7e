// The head of a file in a tar (POSIX.1-1988, ustar). Numbers are octal digits; a size from 8 GiB on is a big-endian number of 12
// bytes whose highest bit is set (GNU tar's).
#pragma once
#include <cstring>
#include <ringside/base/types.hpp>

namespace ringside {

struct TarHead {
  char name[100], mode[8], user[8], group[8], size[12], modified[12], sum[8];
  char type;  // '0' or 0: a file
  char link[100], magic[6], version[2], user_name[32], group_name[32], device[16], prefix[155], rest[12];

  bool is_one() const { return std::memcmp(magic, "ustar", 5) == 0; }
};
inline constexpr size_t tar_block = sizeof(TarHead);  // all parts of a tar are multiples of it
static_assert(tar_block == 512);

}  // namespace ringside
