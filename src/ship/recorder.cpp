#include "ship/recorder.hpp"

#include <chrono>
#include <thread>

#include "text/units.hpp"
#include "ship/wall.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

constexpr auto tick = std::chrono::milliseconds(
    100);  // for rings that are less full than wake_percent: to read them takes unfinished sub-buffers

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
    if (clock.kind == ClockKind::counter)
      return refuse(std::errc::not_supported,
                    "the instance " + make.name + " has a clock without a rate: its events have no time of day");
    recorder->borrowed_ = RS_TRY(Borrowed::take(*recorder->instance_, "ringside ship"));
    if (!recorder->options_.user.empty()) RS_TRY(recorder->borrowed_->enable(recorder->options_.user));
    recorder->files_ = HandedFiles::listen(*recorder->instance_);
    recorder->make_program_feed();
  }
  if (recorder->options_.kernel) recorder->kernel_ = RS_TRY(KernelFeed::create(*recorder->options_.kernel, clock));
  RS_TRY(recorder->begin());
  return recorder;
}

Recorder::~Recorder() = default;

void Recorder::make_program_feed() {
  program_ = std::make_unique<InstanceFeed>(*instance_, options_.user);
  program_->go_on_from(told_);
}

// The next part; none, as long as the disk is full.
result<void> Recorder::begin() {
  const auto begun = begin_part();
  if (begun || !no_room(begun.error())) return begun;
  if (kernel_ != nullptr) kernel_->hand_over();
  run_ = nullptr;
  if (program_ != nullptr) make_program_feed();
  RS_TRY(spool_.discard());
  return no_room_for(begun.error());
}

result<void> Recorder::no_room_for(const Error& error) {
  full_ = true;
  constexpr u64 say_again_ns = 600'000'000'000;  // on a disk that stays full this happens every few parts
  if (const u64 now = sys::now_ns(); options_.say && (said_disk_full_ns_ == 0 || now - said_disk_full_ns_ > say_again_ns)) {
    said_disk_full_ns_ = now;
    says_room_ = true;
    options_.say(error.sentence +
                 ": the spool's oldest parts are dropped, and what the rings cannot keep is lost until there is room; all of "
                 "it is counted");
  }
  const auto dropped = RS_TRY(spool_.drop_oldest());
  begin_again_ns_ = sys::now_ns() + (dropped ? 0 : 1'000'000'000);
  return {};
}

result<void> Recorder::begin_part() {
  run_ = RS_TRY(RecordingRun::create(spool_.now(), clock_));
  run_->keep_wall();
  run_->watch_clock();
  run_->another_follows();
  RS_TRY(run_->writer().keep(WallOffset::file, WallOffset::measure().text()));
  if (program_ != nullptr) RS_TRY(run_->add(*program_));
  if (kernel_ != nullptr) {
    RS_TRY(run_->add(*kernel_));
    RS_TRY(kernel_->on());
  }
  begun_ns_ = sys::now_ns();
  return {};
}

// Returns why the recording failed, if it did; the part keeps the events so far.
result<std::optional<Error>> Recorder::complete() {
  const auto finished = run_->finish();
  const std::optional<Error> failure = finished ? run_->faults().failure() : finished.error();
  if (failure && !run_->failed() && !no_room(*failure)) return tl::unexpected<Error>(*failure);
  const Account& account = run_->account();
  u64 lost = account.lost();
  const bool proved = account.exact() && run_->books_are_kept();
  if (program_ != nullptr) {
    const Account now = program_->accounted();
    if (run_->books_are_kept())
      told_ = now;
    else
      lost -= std::min(lost, now.lost() - told_.lost());  // the next part reports them
  }
  const u64 events = run_->events();
  run_ = nullptr;
  if (events == 0 && lost == 0 && (proved || failure)) {
    RS_TRY(spool_.discard());
    return failure;
  }
  const u64 dropped = RS_TRY(spool_.add(events, lost, proved));
  if (dropped != 0 && !std::exchange(said_full_, true) && options_.say)
    options_.say("the spool is full: its oldest part was dropped, with " + format_count(dropped) +
                 " events; further ones are counted");
  if (dropped == 0) said_full_ = false;
  return failure;
}

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
      add(ring.name.cpu >= 0 ? "cpu" + std::to_string(ring.name.cpu) : "ring" + std::to_string(ring.name.ring), ring.counters,
          ring.counters.capacity_bytes);
  }
  if (kernel_ != nullptr) {
    for (const auto& [cpu, counters] : kernel_->counters())
      add("kernel cpu" + std::to_string(cpu), counters, options_.kernel->buffer_size);
  }
  const std::lock_guard held(fills_mutex_);
  fills_ = std::move(fills);
}

result<void> Recorder::end_part() {
  if (program_ != nullptr) program_->hand_over();
  if (kernel_ != nullptr) kernel_->hand_over();
  const std::optional<Error> failure = RS_TRY(complete());
  if (program_ != nullptr) make_program_feed();
  if (failure && no_room(*failure)) return no_room_for(*failure);
  if (failure) {
    if (options_.say) options_.say(failure->sentence);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the fault may pass; if not, it must not fill a log
  } else if (full_.exchange(false) && std::exchange(says_room_, false) && options_.say) {
    options_.say("there is room for the spool again");
  }
  return begin();
}

result<void> Recorder::poll() {
  look_at_fills();
  if (run_ == nullptr && sys::now_ns() >= begin_again_ns_) RS_TRY(begin());
  if (run_ != nullptr) {
    run_->poll();
    const bool due = run_->failed() || run_->bytes() >= options_.part_bytes || sys::now_ns() - begun_ns_ >= options_.part_ns;
    if (due && run_->events() + run_->faults().problems().size() == 0 && !run_->failed())
      begun_ns_ = sys::now_ns();  // an empty part says nothing
    else if (due) RS_TRY(end_part());
  }
  if (run_ == nullptr) {
    std::this_thread::sleep_for(tick);
    return {};
  }
  if (instance_ != nullptr) {
    auto woken = instance_->wait(wake_percent, tick);
    if (!woken && woken.error().code != std::errc::interrupted) return tl::unexpected<Error>(woken.error());
  } else {
    std::this_thread::sleep_for(tick);
  }
  return {};
}

// Programs' events that found no room on the disk: the next agent takes them.
std::string Recorder::rest_in_rings() const {
  if (instance_ == nullptr) return "";
  u64 unread = 0;
  for (const RingInfo& ring : instance_->rings()) unread += ring.counters.unread;
  return counted(unread, "event stays", "events stay") + " in the rings of " + options_.instance + " for the next agent";
}

result<void> Recorder::finish() {
  if (run_ == nullptr) RS_TRY(begin());
  if (run_ == nullptr) {
    const std::string rest = rest_in_rings();
    return refuse(std::errc::no_space_on_device,
                  "the disk of the spool is full, so the last events are not recorded" + (rest.empty() ? "" : ": " + rest) +
                      (kernel_ != nullptr ? "; those in the kernel's rings are lost, and not counted" : ""));
  }
  const std::optional<Error> failure = RS_TRY(complete());
  if (failure && options_.say)
    options_.say(failure->sentence + (instance_ != nullptr ? "; " + rest_in_rings() : "; the last part ends there"));
  return {};
}

}  // namespace ringside::ship
