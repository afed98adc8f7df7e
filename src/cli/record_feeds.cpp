#include "cli/record_feeds.hpp"

#include "cli/program.hpp"
#include "cli/record_remarks.hpp"
#include "cli/writers.hpp"
#include "source/sample_rings.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

// Null: no events of the kernel are wanted.
result<std::unique_ptr<KernelFeed>> make_kernel(const RecordOptions& options, const ClockInfo& clock) {
  if (!options.wants_kernel()) return nullptr;
  KernelFeed::Options make;
  make.events = options.kernel;
  make.probes = options.probes;
  make.functions = options.functions;
  make.filter = options.filter;
  make.stacks = options.kernel_stacks;
  make.buffer_size = options.buffer_size;
  make.subbuf_size = static_cast<u32>(options.subbuf_size);
  make.overwrite = options.mode == "overwrite";
  make.pids = options.pids;
  make.source.forced = options.source;
  make.will_follow = follows_command(options);
  make.notice = say;
  auto feed = KernelFeed::create(make, clock);
  if (!feed && !options.filter.empty() && feed.error().code == std::errc::invalid_argument)
    throw UsageError{feed.error().sentence};
  return feed;
}

// The kernel's own remotes that -e names.
result<void> add_kernel_remotes(Others& others, const RecordOptions& options, const ClockInfo& clock) {
  if (options.kernel_remotes.empty()) return {};
  KernelRemote::Options make;
  make.buffer_size = options.buffer_size;
  make.clock = clock;
  make.first = static_cast<u8>(1 + others.remotes.size());
  make.notice = say;
  others.kernel_remotes = RS_TRY(KernelRemote::all(options.kernel_remotes, make));
  std::vector<EventInfo> events;
  for (const auto& remote : others.kernel_remotes)
    events.insert(events.end(), remote->events().begin(), remote->events().end());
  others.of_kernel_remotes = std::make_unique<SourceFeed>(std::move(events));
  for (const auto& remote : others.kernel_remotes)
    for (auto& source : remote->sources) {
      RingName name = source->name();
      name.ring += first_apart_ring(name.apart);
      others.of_kernel_remotes->add({std::move(source), std::move(name)});
    }
  return {};
}

// Calls of the C library in processes that run already.
result<void> add_libc(Others& others, const RecordOptions& options, const ClockInfo& clock) {
  LibcCalls::Options make;
  make.pids = options.pids;
  make.groups = libc_groups(options.libc);
  make.buffer_size = options.buffer_size;
  make.subbuf_size = static_cast<u32>(options.subbuf_size);
  if (!options.quiet) make.notice = say;
  others.libc = RS_TRY(LibcCalls::open(make, clock));
  others.of_libc = std::make_unique<SourceFeed>(others.libc->events(), others.libc->threads());
  for (auto& source : others.libc->take_sources()) {
    RingName name = source->name();
    others.of_libc->add({std::move(source), std::move(name)});
  }
  return {};
}

}  // namespace

namespace {

// Which file each descriptor is, before the events of the calls: what it notes of a call comes first.
result<void> add_files(Others& others, const RecordOptions& options, const ClockInfo& clock) {
  FileCalls::Options make;
  make.pids = options.pids;
  make.all = options.pids.empty() && !follows_command(options);
  make.buffer_size = options.buffer_size;
  others.files = RS_TRY(FileCalls::open(make, clock));
  others.of_files = std::make_unique<SourceFeed>(std::vector<EventInfo>{FileCalls::event()});
  for (auto& source : others.files->take_sources()) {
    RingName name = source->name();
    others.of_files->add({std::move(source), std::move(name)});
  }
  return {};
}

}  // namespace

result<std::unique_ptr<SampleFeed>> make_samples(const RecordOptions& options, const ClockInfo& clock,
                                                 const std::vector<i32>& pids) {
  SampleFeed::Options make;
  make.sampler.hz = options.kernel_samples() ? options.sample_hz : 0;
  make.sampler.depth = options.depth;
  make.sampler.pids = pids;
  make.sampler.ring_size = options.buffer_size;
  make.sampler.stack_bytes = options.stack_bytes;
  make.max_size = options.max_size;
  make.notice = say;
  auto feed = SampleFeed::create(std::move(make), clock);
  if (feed || options.kernel_samples()) return feed;
  say("the stacks of programs have no names: " + feed.error().sentence);
  return nullptr;
}

result<Others> make_others(const RecordOptions& options, const Instance& instance) {
  Others others;
  if (options.files) RS_TRY(add_files(others, options, instance.clock()));
  others.kernel = RS_TRY(make_kernel(options, instance.clock()));
  const bool names = !options.kernel_stacks.empty() && !follows_command(options);
  if (options.kernel_samples() || names) others.samples = RS_TRY(make_samples(options, instance.clock(), options.pids));
  others.remotes =
      RS_TRY(connect_writers(options.remotes, {options.buffer_size, options.subbuf_size, instance.clock(), options.user}));
  RS_TRY(add_kernel_remotes(others, options, instance.clock()));
  if (options.probes_libc()) RS_TRY(add_libc(others, options, instance.clock()));
  if (options.kernel_samples() && !others.samples->sampler().sees_kernel())
    say("samples are of the program's functions alone: those of the kernel are taken " + sys::as_root() +
        ", or after sysctl kernel.perf_event_paranoid=1");
  return others;
}

}  // namespace ringside::cli
