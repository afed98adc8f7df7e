#include "ship/recorder.hpp"

#include <chrono>
#include <thread>

#include "export/units.hpp"
#include "ship/wall.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

constexpr auto tick = std::chrono::milliseconds(20);

}  // namespace

result<std::unique_ptr<Recorder>> Recorder::create(Spool& spool, Options options) {
  std::unique_ptr<Recorder> recorder(new Recorder(spool, std::move(options)));
  InstanceOptions make;
  make.name = recorder->options_.instance;
  make.buffer_size = recorder->options_.buffer_size;
  ClockInfo& clock = recorder->clock_;
  if (make.name.empty()) {
    clock = calibrate(best_clock());
  } else {
    auto existing = Instance::open(make.name);
    if (!existing && existing.error().code == std::errc::no_such_file_or_directory) {
      existing = Instance::create(make);
      if (!existing && existing.error().code == std::errc::file_exists) existing = Instance::open(make.name);
    }
    recorder->instance_ = RS_TRY(std::move(existing));
    clock = recorder->instance_->clock();
    if (clock.kind == ClockKind::counter) return refuse(std::errc::not_supported, "the instance " + make.name + " has a clock that tells no time: its events stand at no time of day");
    if (!recorder->options_.user.empty()) RS_TRY(recorder->instance_->enable(recorder->options_.user, true));
    recorder->program_ = std::make_unique<InstanceFeed>(*recorder->instance_, recorder->options_.user);
  }
  if (recorder->options_.kernel) recorder->kernel_ = RS_TRY(KernelFeed::create(*recorder->options_.kernel, clock));
  RS_TRY(recorder->begin());
  return recorder;
}

Recorder::~Recorder() = default;

result<void> Recorder::begin() {
  run_ = RS_TRY(RecordingRun::create(spool_.now(), clock_));
  RS_TRY(run_->writer().keep(WallOffset::file, WallOffset::measure().text()));
  if (program_ != nullptr) RS_TRY(run_->add(*program_));
  if (kernel_ != nullptr) {
    RS_TRY(run_->add(*kernel_));
    RS_TRY(kernel_->on());
  }
  begun_ns_ = sys::now_ns();
  return {};
}

result<void> Recorder::complete() {
  const auto finished = run_->finish();
  if (!finished && !run_->failed()) return finished;
  const Missing& missing = run_->missing();
  const u64 lost = missing.count();
  const bool proved = missing.proved();
  const u64 events = run_->events();
  run_ = nullptr;
  if (events == 0 && lost == 0 && proved) return spool_.discard();
  const u64 dropped = RS_TRY(spool_.add(events, lost));
  if (dropped != 0 && !std::exchange(said_full_, true) && options_.say)
    options_.say("the spool is full: its oldest part was dropped, with " + format_count(dropped) + " events; further ones are counted");
  if (dropped == 0) said_full_ = false;
  return {};
}

u64 Recorder::events() const { return run_ != nullptr ? run_->events() : 0; }

std::vector<RingFill> Recorder::fills() const {
  const std::lock_guard held(fills_mutex_);
  return fills_;
}

void Recorder::look_at_fills() {
  if (sys::now_ns() - looked_at_fills_ns_ < 1'000'000'000) return;
  looked_at_fills_ns_ = sys::now_ns();
  std::vector<RingFill> fills;
  const auto add = [&](const std::string& name, const Counters& c, u64 capacity) {
    if (capacity != 0) fills.push_back({name, static_cast<double>(c.bytes) / static_cast<double>(capacity)});
  };
  if (instance_ != nullptr) {
    for (const RingInfo& ring : instance_->rings())
      add(ring.name.cpu >= 0 ? "cpu" + std::to_string(ring.name.cpu) : "ring" + std::to_string(ring.name.ring), ring.counters, ring.counters.capacity_bytes);
  }
  if (kernel_ != nullptr) {
    for (const auto& [cpu, counters] : kernel_->counters()) add("kernel cpu" + std::to_string(cpu), counters, options_.kernel->buffer_size);
  }
  const std::lock_guard held(fills_mutex_);
  fills_ = std::move(fills);
}

result<void> Recorder::poll() {
  look_at_fills();
  run_->poll();
  const bool due = run_->failed() || run_->bytes() >= options_.part_bytes || sys::now_ns() - begun_ns_ >= options_.part_ns;
  if (due && run_->events() + run_->faults().problems().size() == 0 && !run_->failed()) {
    begun_ns_ = sys::now_ns();  // an empty part tells nothing
  } else if (due) {
    const bool failed = run_->failed();
    if (failed) {
      if (options_.say) options_.say(run_->faults().failure()->sentence);
      std::this_thread::sleep_for(std::chrono::seconds(1));  // there may be room, and if not, no log is to be filled
    }
    if (program_ != nullptr) program_->hand_over();
    if (kernel_ != nullptr) kernel_->hand_over();
    RS_TRY(complete());
    if (program_ != nullptr) {
      const Accounted accounted = program_->accounted();
      program_ = std::make_unique<InstanceFeed>(*instance_, options_.user);
      program_->go_on_from(accounted);
    }
    if (failed && kernel_ != nullptr) {  // it has given its rings up
      kernel_ = nullptr;
      kernel_ = RS_TRY(KernelFeed::create(*options_.kernel, clock_));
    }
    RS_TRY(begin());
  }
  if (instance_ != nullptr) {
    auto woken = instance_->wait(wake_percent, tick);
    if (!woken && woken.error().code != std::errc::interrupted) return tl::unexpected<Error>(woken.error());
  } else {
    std::this_thread::sleep_for(tick);
  }
  return {};
}

result<void> Recorder::finish() { return run_ != nullptr ? complete() : result<void>(); }

}  // namespace ringside::ship
