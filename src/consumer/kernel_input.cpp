#include <unistd.h>

#include "consumer/input.hpp"
#include "consumer/trace.hpp"
#include "kernel/clock_check.hpp"
#include "kernel/own_tasks.hpp"
#include "probe/file_calls.hpp"
#include "source/selection.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// A CPU's ring without what this process's own threads do.
class WithoutOwn : public Source {
 public:
  WithoutOwn(std::unique_ptr<Source> ring, std::shared_ptr<OwnTasks> own)
      : Source(ring->name(), ring->clock()), ring_(std::move(ring)), own_(std::move(own)) {}
  result<std::optional<SubBufferView>> next() override {
    for (;;) {
      auto view = RS_TRY(ring_->next());
      if (!view) return view;
      const SubBufferView kept = selection_.keep(*view, [this](Bytes payload) { return !own_->has(payload); });
      if (kept.begin != kept.end || kept.lost_before != 0) return kept;
      // Each read may cause events, which the next read finds: it has come to its own, and the rest is for the next call.
      if (own_->causes_events) return std::nullopt;
    }
  }
  void consume() override { ring_->consume(); }
  void put_back() override { ring_->put_back(); }
  Counters counters() const override { return ring_->counters(); }
  bool ended() const override { return ring_->ended(); }
  u64 lag_ns() const override { return ring_->lag_ns(); }

 private:
  std::unique_ptr<Source> ring_;
  std::shared_ptr<OwnTasks> own_;
  Selection selection_;
};

// The kernel's live events, from an instance made for them.
class KernelInput : public Input {
 public:
  KernelInput(EventPatterns patterns, const KernelChoice& choice, const TracefsOptions& make)
      : Input("the kernel"), patterns_(std::move(patterns)), choice_(choice), make_(make) {}
  result<void> open(Trace& trace) override;
  std::unique_ptr<Input> another() const override { return kernel_input(patterns_, choice_, make_); }
  ClockInfo own_clock() const override { return clock_info_; }
  TracefsInstance* tracefs() const override { return kernel_.get(); }
  FileCalls* files() const override { return files_.get(); }
  bool live() const override { return true; }
  bool begins_when_opened() const override { return true; }
  void leave_out(i32 tid) override {
    if (own_ != nullptr) own_->add(tid);
  }
  void stop() override {
    (void)kernel_->tracing(false);
    if (own_ != nullptr) own_->causes_events = false;
    if (files_ != nullptr) files_->off();
  }
  Account account() const override;

 private:
  EventPatterns patterns_;
  KernelChoice choice_;
  TracefsOptions make_;
  std::unique_ptr<TracefsInstance> kernel_;
  std::shared_ptr<OwnTasks> own_;
  ClockInfo clock_info_{};
  std::unique_ptr<FileCalls> files_;
};

result<void> KernelInput::open(Trace& trace) {
  make_.clock = make_.files ? ClockKind::mono : best_clock();
  clock_info_ = calibrate(make_.clock);
  if (make_.files) {  // first: what they note of a call comes before its event
    files_ = RS_TRY(FileCalls::open({{}, !make_.only_followed}, clock_info_));
    sources = files_->take_sources();
  }
  kernel_ = std::make_unique<TracefsInstance>(RS_TRY(TracefsInstance::create(make_)));
  (void)kernel_->numbers();  // from here on threads that end are reported, in another PID namespace
  const bool all_but_own = !make_.own_events && !make_.only_followed;
  if (all_but_own) own_ = std::make_shared<OwnTasks>(), own_->add(sys::gettid());
  if (make_.only_followed) RS_TRY(kernel_->follow_none());
  where = kernel_->dir();
  world = World::own();
  boot = sys::boot_id();
  if (world.kernel_counts_apart()) trace.tasks.kernel_counts_apart(origin.ids);
  add_events(trace, *this, kernel_internal_events());
  if (make_.files) add_events(trace, *this, {FileCalls::event()});
  for (const EventPattern& pattern : patterns_) {
    auto enabled = RS_TRY(kernel_->enable(pattern));
    if (enabled.empty())
      return refuse(std::errc::no_such_file_or_directory, "the kernel has no event that matches \"" + pattern.text() +
                                                              "\" (ringside list -e PATTERN shows its events)");
    add_events(trace, *this, enabled);
    if (own_ != nullptr) own_->add_events(enabled);
  }
  trace.formats.symbols(origin.ids).load_later([] { return sys::read_file("/proc/kallsyms").value_or(""); });
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  auto rings = RS_TRY(open_kernel_rings(kernel_->dir(), kernel_->cpus(), clock_info_, choice_));
  if (!rings.notice.empty()) trace.notices.push_back(rings.notice);
  for (auto& source : rings.sources) {
    if (own_ != nullptr) sources.push_back(std::make_unique<WithoutOwn>(std::move(source), own_));
    else sources.push_back(std::move(source));
  }
  clock = to_string(make_.clock);
  trace.tasks.are_here();
  return kernel_->tracing(true);
}

Account KernelInput::account() const {
  Account of = doubtful();
  for (const u32 cpu : kernel_->cpus()) {
    const auto counters = kernel_counters({kernel_->dir(), cpu});
    if (counters)
      of.refused += refused_of(*counters);
    else
      of.doubts.push_back(counters.error().sentence);
  }
  return of;
}

}  // namespace

std::unique_ptr<Input> kernel_input(EventPatterns patterns, const KernelChoice& choice, const TracefsOptions& make) {
  return std::make_unique<KernelInput>(std::move(patterns), choice, make);
}

}  // namespace ringside
