// Makes an instance: its directory, its words, and the rings of its CPUs.
#pragma once
#include <functional>

#include "writer/members.hpp"
#include "writer/place.hpp"

namespace ringside {

// The rings of an instance: one for each CPU, which all its processes share, or one for each thread (a process that may corrupt
// memory damages only its own). automatic: of CPUs, where this machine can have them.
enum class Rings { automatic, cpu, thread };

struct InstanceOptions {
  std::string name;             // 1 to 63 of letters, digits, '-', '_', '.', or a path
  u64 buffer_size = 1 << 20;    // bytes of events that each ring holds
  u32 subbuf_size = 16384;      // a power of two, 4 KiB to 256 KiB; a page of the kernel at least
  bool overwrite = true;        // false: a full ring refuses new events
  ClockKind clock = best_clock();
  Rings rings = Rings::automatic;  // or as RINGSIDE_RINGS says: cpu, thread
  u64 budget = 0;               // bytes that all rings may take; 0: a quarter of the machine's memory
  std::vector<std::string> events{"*:*"};  // the enabled events: patterns (schema/event_pattern.hpp)
  bool one_command = false;     // it goes with the command that makes it
};

// EEXIST if it exists; EINVAL for bad names and sizes; ENOTSUP if rings of CPUs are asked for and not available. whole: called
// when all of it is made, before it has its name; if that fails, nothing is left of it. The members have this process as the
// instance's maker.
using WholeInstance = std::function<result<void>(const std::string& path, sys::Fd dir, std::shared_ptr<Members> members)>;
result<void> make_instance(const InstanceOptions& options, const WholeInstance& whole = nullptr);

// A sub-buffer has at least the size of the kernel's page, as in the kernel: smaller sizes are rounded up. EINVAL: impossible
// sizes.
result<Geometry> geometry_for(u64 buffer_size, u32 subbuf_size, u32 spares, u64 kernel_page = sys::page_bytes());
// Makes a new ring for this CPU in this folder of `dir`. False: errno says why not.
bool make_cpu_ring(int dir, const std::string& folder, u32 cpu, const InstanceControl& c, const Geometry& geometry);
void describe_cpu_ring(RingEntry& entry, u32 cpu, u32 before, const Geometry& geometry);
void introduce_cpu_ring(RingEntry& entry, RingState state);
// A number for one more ring: that of a ring that gave its memory back, or a new one; most_rings: there is none.
u32 claim_number(const InstanceWords& words, Member who);

}  // namespace ringside
