// ringside guest: runs a guest in a small virtual machine and records its events, beside this program's and the kernel's events
// about it, on one timeline.
#include <fmt/format.h>
#include <ringside/ringside.h>
#include <unistd.h>

#include "cli/options.hpp"
#include "cli/progress.hpp"
#include "cli/recording.hpp"
#include "guest/guest.hpp"
#include "record/instance_feed.hpp"
#include "record/kernel_feed.hpp"
#include "record/source_feed.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

using std::chrono::nanoseconds;

constexpr u32 first_ring = 1000;  // in the recording; this program's own rings come before

struct GuestOptions : RecordingOptions {
  std::string image, layout = "meta";
  std::vector<std::string> events;
  std::vector<u64> arguments;
  u64 buffer_size = 4 << 20, subbuf_size = 16384, tick_ns = 1000000, memory = 32 << 20, patience_ns = 10000000000;
};

struct OwnInstance {
  std::unique_ptr<Instance> instance;
  ~OwnInstance() {
    if (instance == nullptr) return;
    ringside_close();
    const std::string path = instance->path();
    instance.reset();
    (void)Instance::remove(path, true);
  }
};

void check(const GuestOptions& options) {
  check_subbuf_size(options.subbuf_size);
  if (options.tick_ns != 0 && options.tick_ns < 20000) throw UsageError{"--tick must be at least 20us, or 0 for no interrupts"};
  if (options.arguments.size() > 4) throw UsageError{"a guest takes at most 4 arguments"};
}

// The monitor's own events go into an instance of this process.
result<void> open_own(OwnInstance& own) {
  InstanceOptions make;
  make.name = "guest-" + std::to_string(getpid());
  make.buffer_size = 1 << 20;
  make.clock = ClockKind::tsc;
  make.events = {"monitor:*"};
  (void)Instance::remove(make.name);  // left by an earlier process with this pid
  own.instance = RS_TRY(Instance::create(make));
  if (const int error = ringside_open(own.instance->path().c_str()); error != 0)
    return fail(-error, "cannot open the instance " + own.instance->path());
  return {};
}

result<std::unique_ptr<guest::Guest>> start_guest(const GuestOptions& options, const ClockInfo& clock) {
  guest::Guest::Options make;
  if (!options.image.empty() && options.image != "demo") {
    const std::string bytes = RS_TRY(sys::read_file(options.image));
    make.image.assign(bytes.begin(), bytes.end());
  }
  make.buffer.size = options.buffer_size;
  make.buffer.subbuf_size = static_cast<u32>(options.subbuf_size);
  make.buffer.layout = options.layout == "meta" ? remote::Layout::meta_page : remote::Layout::footers;
  make.buffer.clock = clock;
  make.vm.tick = nanoseconds(options.tick_ns);
  make.vm.memory = options.memory;
  make.vm.patience = nanoseconds(options.patience_ns);
  std::copy(options.arguments.begin(), options.arguments.end(), make.vm.arguments);
  return guest::Guest::start(std::move(make));
}

// Null: no events of the kernel are wanted.
result<std::unique_ptr<KernelFeed>> kernel_part(const GuestOptions& options, const ClockInfo& clock) {
  if (options.events.empty()) return nullptr;
  KernelFeed::Options make;
  make.events = parse_events(options.events);
  make.buffer_size = options.buffer_size;
  make.subbuf_size = static_cast<u32>(options.subbuf_size);
  make.notice = say;
  auto kernel = RS_TRY(KernelFeed::create(make, clock));
  if (kernel == nullptr) throw UsageError{"no event of the kernel matches -e (ringside list -e PATTERN shows them)"};
  return kernel;
}

// Until the guest's program ends, or the recording does.
void follow(const GuestOptions& options, guest::Guest& guest, const SourceFeed& of_guest, RecordingRun& run) {
  const u64 start = sys::now_ns();
  Progress progress(options.quiet);
  double shown_s = 0;
  u64 shown = 0;
  while (guest.vm().running() && !of_guest.ended() && !run.failed()) {
    if (asked_to_stop() || (options.duration_ns != 0 && sys::now_ns() - start >= options.duration_ns)) break;
    progress.update([&](double seconds) {
      const Counters c = of_guest.counters();
      const double rate = static_cast<double>(c.written - shown) / (seconds - shown_s);
      shown = c.written, shown_s = seconds;
      return fmt::format("{:6.1f} s  {} events/s, {} written, {} lost, {} interrupts", seconds,
                         format_count(static_cast<u64>(rate)), format_count(c.written), format_count(c.overrun),
                         format_count(guest.vm().ticks()));
    });
    (void)guest.buffer().wait(wake_percent, std::chrono::milliseconds(20));
    run.poll();
  }
  progress.clear();
}

result<int> run_guest(const GuestOptions& options) {
  check(options);
  catch_signals();
  OwnInstance own;
  RS_TRY(open_own(own));
  const auto started = RS_TRY(start_guest(options, own.instance->clock()));
  guest::Guest& guest = *started;
  const std::unique_ptr<KernelFeed> kernel = RS_TRY(kernel_part(options, own.instance->clock()));
  InstanceFeed monitor(*own.instance);
  std::vector<EventInfo> events = guest.vm().events();
  for (EventInfo& e : events) e.apart = 1;
  RingName vcpu{first_ring, getpid(), guest.vm().task(), "guest-cpu0", "ringside"};
  SourceFeed of_guest(std::move(events), {vcpu});
  auto source = RS_TRY(guest.buffer().source(0));
  vcpu.apart = 1;
  of_guest.add({std::move(source), vcpu, static_cast<u64>(guest.tsc_offset().ahead)});
  const auto made = RS_TRY(new_recording(options.out, own.instance->clock(), options.compress));
  RecordingRun& run = *made;
  run.meta().command = {"guest", options.image};
  RS_TRY(run.add(monitor));
  RS_TRY(run.add(of_guest));
  if (kernel != nullptr) {
    RS_TRY(run.add(*kernel));
    RS_TRY(kernel->on());
  }
  RS_TRY(guest.enable(true));
  RS_TRY(guest.buffer().poll_every(std::chrono::milliseconds(5)));
  guest.vm().go();
  follow(options, guest, of_guest, run);
  guest.vm().request_stop();
  int code = exit_ok;
  const auto complain = [&](const std::string& sentence) {
    say(sentence);
    code = exit_failure;
  };
  if (!guest.vm().wait_end(nanoseconds(options.patience_ns)))
    complain("the guest's program does not end; what it wrote until now is recorded");
  else if (guest.vm().status() < 0) complain("the guest has ended before its time: " + guest.vm().why());
  guest.buffer().ask_again();
  auto finished = run.finish();
  Told().doubts(run);
  if (!finished && !run.failed()) failed(finished.error());
  if (!options.quiet) {
    const auto offset = guest.tsc_offset();
    say_summary(run, options.out);
    say(fmt::format("{} interrupts; the guest's ring: {}", format_count(guest.vm().ticks()), identity(of_guest.counters())));
    say(offset.ahead == 0 && offset.error == 0
            ? "its time stamp counter is ours"
            : fmt::format("its time stamp counter is {} ticks ahead of this machine's, at most {} wrong; shown in our time",
                          offset.ahead, offset.error));
  }
  if (code != exit_ok || !finished) return exit_failure;
  if (!run.account().proved()) return exit_failure;
  const int status = guest.vm().status();
  if (status > 255) say(fmt::format("the guest's exit status is {}: the exit code is 255", status));
  return status > 0 ? std::min(status, 255) : exit_code(run, options.fail_on_loss);
}

}  // namespace

Command add_guest(CLI::App& app) {
  auto options = std::make_shared<GuestOptions>();
  CLI::App* c = app.add_subcommand("guest", "run a guest in a virtual machine and record what it writes");
  c->add_option("IMAGE", options->image, "a static ELF file with ringside/guest/guest.hpp, or demo, the one that comes along")
      ->required();
  c->add_option(
       "ARGUMENT", options->arguments,
       "up to 4 numbers for the guest; demo: how many steps (0: until it is stopped), and 1 for steps that compute nothing")
      ->type_name("");
  add_events(*c, options->events, "events of the kernel beside");
  add_size(*c, "-b,--buffer-size", options->buffer_size, "size of the guest's ring (default 4M)");
  add_size(*c, "--subbuf-size", options->subbuf_size, "size of a sub-buffer, 4k to 256k (default 16k)");
  c->add_option("--layout", options->layout, "how the guest describes its ring: a meta-page, or footers in each sub-buffer")
      ->check(CLI::IsMember({"meta", "footers"}))
      ->capture_default_str();
  add_time(*c, "--tick", options->tick_ns, "period of the guest's timer interrupts, 0: none (default 1ms)");
  add_size(*c, "--memory", options->memory, "the guest's memory, a multiple of 2M (default 32M)");
  add_time(*c, "--patience", options->patience_ns, "how long the guest may take to answer (default 10s)");
  options->add_options(*c, "stop after this time (default: when the guest ends, or at Ctrl-C)", "no progress, no summary");
  c->footer(
      "Examples:\n"
      "  ringside guest demo --duration 2s               it computes, and takes 1,000 interrupts a second\n"
      "  ringside report | grep -A2 timer:               events of interrupts, nested in those of the computation\n"
      "  ringside guest demo 100000 -e 'kvm:*'           until 100,000 steps are done, with what the kernel saw of it\n"
      "  ringside guest ./my_guest.elf --layout footers  one of your own (docs/remote-writers.md)\n"
      "The guest shares nothing with the reader but its ring; a swap is an exit of its second processor. Needs /dev/kvm.\n"
      "The exit code is the guest's, 255 for each above; 1 if it crashed or stopped answering.");
  return {c, [options] { return run_guest(*options); }};
}

}  // namespace ringside::cli
