// The options of `ringside record`.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.hpp"
#include "cli/recording.hpp"
#include "cli/rotation.hpp"
#include "probe/probes.hpp"

namespace ringside::cli {

struct RecordOptions {
  std::string instance, libc, mode = "overwrite", clock, out = default_recording, to, filter, stack, kstack;
  std::vector<std::string> remotes;  // external writers: their sockets
  std::vector<std::string> kernel_events, user_events, command;
  EventPatterns kernel{}, user{};  // for both
  EventPatterns kernel_remotes{};  // of -e: the kernel's own remotes
  std::vector<ProbePoint> probes{};
  bool wants_nothing() const {  // but events of the kernel
    return command.empty() && instance.empty() && remotes.empty();
  }
  FunctionChoice functions{};
  bool names_kernel() const { return !kernel_events.empty() || !functions.functions.empty(); }
  bool wants_kernel() const { return !kernel.empty() || !probes.empty() || !functions.functions.empty(); }
  std::vector<i32> pids;
  bool probes_libc() const { return !libc.empty() && command.empty() && !pids.empty(); }  // instead of preloading
  std::optional<KernelWay> source;
  bool all_processes = false;
  u64 buffer_size = 4 << 20, subbuf_size = 16384, duration_ns = 0, max_size = 0;
  Rotation rotation{};
  std::string rings = "auto";
  std::map<std::string, std::string> of_rings;  // of the options that say how rings are made: those given, with their values
  u32 depth = 64;
  std::string sample;  // the rate
  u64 sample_hz = 0;
  std::string call_graph;
  u32 stack_bytes = 0;  // of the user's stack in a sample of the kernel's
  bool kernel_samples() const {
    return sample_hz != 0 && (all_processes || !pids.empty());
  }  // by the kernel, not by the program's own timers
  EventPatterns stacks{}, kernel_stacks{};
  bool calls = false, files = false, compress = false, fail_on_loss = false, quiet = false, wait = true;
};

void add_options(CLI::App& app, RecordOptions& options);
// Everything that can be known before anything is made, run or replaced; fills what follows from the texts. Throws UsageError.
result<void> check(RecordOptions& options);

// `record --to tcp:HOST:PORT` and `--to -`: another process keeps the recording.
inline constexpr std::string_view tcp_prefix = "tcp:";
inline bool goes_elsewhere(const RecordOptions& options) { return options.to == "-" || options.to.starts_with(tcp_prefix); }

// The parts of `record --to FILE`, beside it: a complete recording, in case this process is killed.
inline std::string parts_of(const std::string& file) { return file + ".parts"; }

}  // namespace ringside::cli
