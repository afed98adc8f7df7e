// An address in a process: the key of what is known about a block of memory, or about a lock.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

struct ProcessAddress {
  i64 process;
  u64 address;
  bool operator==(const ProcessAddress& o) const { return process == o.process && address == o.address; }
};
struct ProcessAddressHash {
  size_t operator()(const ProcessAddress& key) const {
    return (key.address ^ static_cast<u64>(key.process) << 32) * 0x9E3779B97F4A7C15 >> 7;
  }
};

}  // namespace ringside
