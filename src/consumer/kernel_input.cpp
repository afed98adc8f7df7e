#include <unistd.h>

#include "consumer/input.hpp"
#include "consumer/trace.hpp"
#include "kernel/clock_check.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// The kernel's live events, from an instance made for them.
class KernelInput : public Input {
 public:
  KernelInput(EventPatterns patterns, const KernelChoice& choice, const TracefsOptions& make)
      : Input("the kernel"), patterns_(std::move(patterns)), choice_(choice), make_(make) {}
  result<void> open(Trace& trace) override;
  std::unique_ptr<Input> another() const override { return kernel_input(patterns_, choice_, make_); }
  ClockInfo own_clock() const override { return clock_info_; }
  TracefsInstance* tracefs() const override { return kernel_.get(); }
  bool live() const override { return true; }
  bool begins_when_opened() const override { return true; }
  void add_missing(Missing& all) const override;

 private:
  EventPatterns patterns_;
  KernelChoice choice_;
  TracefsOptions make_;
  std::unique_ptr<TracefsInstance> kernel_;
  ClockInfo clock_info_{};
};

result<void> KernelInput::open(Trace& trace) {
  make_.clock = best_clock();
  kernel_ = std::make_unique<TracefsInstance>(RS_TRY(TracefsInstance::create(make_)));
  if (!make_.own_events) (void)kernel_->ignore(sys::gettid());
  if (make_.only_followed) RS_TRY(kernel_->write("set_event_pid", std::to_string(getpid())));  // this one is ignored
  where = kernel_->dir();
  world = World::own();
  add_events(trace, *this, kernel_internal_events());
  for (const EventPattern& pattern : patterns_) {
    auto enabled = RS_TRY(kernel_->enable(pattern));
    if (enabled.empty())
      return refuse(std::errc::no_such_file_or_directory, "the kernel has no event that matches \"" + pattern.text() +
                                                              "\" (ringside list -e PATTERN shows its events)");
    add_events(trace, *this, enabled);
  }
  trace.formats.symbols().load_later([] { return sys::read_file("/proc/kallsyms").value_or(""); });
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  clock_info_ = calibrate(make_.clock);
  auto rings = RS_TRY(open_kernel_rings(kernel_->dir(), kernel_->cpus(), clock_info_, choice_));
  if (!rings.notice.empty()) trace.notices.push_back(rings.notice);
  for (auto& source : rings.sources) sources.push_back(std::move(source));
  clock = to_string(make_.clock);
  boot = sys::boot_id();
  trace.tasks.are_here();
  return kernel_->tracing(true);
}

void KernelInput::add_missing(Missing& all) const {
  Input::add_missing(all);
  for (const u32 cpu : kernel_->cpus()) {
    const auto counters = kernel_counters({kernel_->dir(), cpu});
    if (counters) all.refused += counters->dropped + counters->commit_overrun;
    else all.doubts.push_back(counters.error().sentence);
  }
}

}  // namespace

std::unique_ptr<Input> kernel_input(EventPatterns patterns, const KernelChoice& choice, const TracefsOptions& make) {
  return std::make_unique<KernelInput>(std::move(patterns), choice, make);
}

}  // namespace ringside
