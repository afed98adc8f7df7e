// A listening Unix socket at a path, with the right mode and group from the start.
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>

#include "sys/beneath.hpp"

namespace ringside {

struct Listening {
  sys::Fd socket;  // non-blocking
  sys::Entry at;   // its name
  u64 inode = 0;
};

// Replaces a socket at which no process listens; EADDRINUSE if one does, EEXIST if it is no socket. The mode and the group go
// to the socket that was made, even if others change names in its directory.
result<Listening> listen_at(const std::string& path, u32 mode, std::optional<u32> gid);

}  // namespace ringside
