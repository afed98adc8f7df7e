// Shared by the test and the program that finds no memory (memory.cpp).
#pragma once
#include <atomic>
#include <cstdint>

namespace ringside::test {

struct ShortMemory {
  char role[64];                       // the name of the programs
  std::uint64_t fails_at;              // the call, from 0
  std::atomic<std::int64_t> left;      // bytes that there are after it
  std::atomic<std::uint64_t> calls;
  std::atomic<bool> failed;
};

}  // namespace ringside::test
