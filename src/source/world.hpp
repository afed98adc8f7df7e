// The machine that a trace was recorded on, as far as its numbers depend on it. Never this machine because it is the one that
// reads: each input says whose its numbers are, and what it does not say is unknown.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

#include "clock/clock.hpp"

namespace ringside {

// The interface of its kernel. A program of 32 bits on a kernel of 64 has another one, which no event shows.
enum class Architecture : u8 {
  unknown,
  x86_64,
  i386,
  arm64,
  arm,
  riscv64,
  riscv32,
  ppc64le,
  ppc64,
  ppc,
  s390x,
  s390,
  loongarch64
};
inline constexpr u32 architectures = static_cast<u32>(Architecture::loongarch64) + 1;

std::string_view machine_of(Architecture architecture);    // as uname -m has it; empty: unknown
Architecture architecture_from(std::string_view machine);  // of uname -m

struct World {
  Architecture architecture = Architecture::unknown;
  bool big_endian = false;  // of the events' bytes in its files
  u32 word_size = 0;        // bytes of a `long` in its kernel; 0: unknown
  u64 pid_namespace = 0;    // the recorder's, by its inode; 0: unknown
  u32 page_size = 0;        // of its kernel; 0: unknown
  std::string release{};    // of its kernel: "6.1.0-18-amd64"; empty: unknown
  std::string host{};       // its name; empty: unknown
  std::optional<u64> suspended_ns{};           // CLOCK_BOOTTIME less CLOCK_MONOTONIC, when the recording began
  bool operator==(const World& other) const {  // machines of one kind
    return architecture == other.architecture && big_endian == other.big_endian && word_size == other.word_size;
  }

  static constexpr u64 first_pid_namespace = 0xEFFFFFFC;  // the kernel's events have its numbers, in all namespaces
  bool kernel_counts_apart() const { return pid_namespace != 0 && pid_namespace != first_pid_namespace; }

  static World own();  // of this machine's kernel
  static World of(Architecture architecture);
  // Of a trace whose recorder did not write it: an instruction was its clock, which one architecture has. Readers and recorders
  // are programs of 64 bits.
  static World told_by(ClockKind clock);
};

}  // namespace ringside
