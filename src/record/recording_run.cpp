#include "record/recording_run.hpp"

#include <algorithm>
#include <ringside/base/check.hpp>
#include <set>

#include "text/units.hpp"
#include "sys/as_memory_allows.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {

void Feed::add_unknown(RecordingMeta& meta, const std::map<i32, RingName>& threads) {
  std::set<std::pair<i32, bool>> known;  // in a container the kernel's numbers are others
  for (const RingName& thread : meta.threads) known.emplace(thread.tid, thread.kernel);
  for (const auto& [tid, name] : threads)
    if (known.emplace(tid, name.kernel).second) meta.threads.push_back(name);
}

Account Feed::accounted() const {
  Account all = told_;
  all.overrun += taken_.account.overrun;
  all.refused = taken_.account.refused;
  return all;
}

void Feed::begin_account(bool told) {
  const u64 earlier = told ? taken_.account.written() : taken_.account.earlier;
  if (told) told_ = accounted();
  taken_ = {};
  taken_.account.earlier = earlier;
}

Account Feed::settled(const Counters& totals, bool failed, bool rest_is_kept) const {
  Account all = taken_.account;
  const u64 overrun = totals.overrun - std::min(told_.overrun, totals.overrun);
  if (!failed && !hands_over()) all.overrun = std::max(all.overrun, overrun);
  all.refused -= told_.refused;
  const u64 rest = totals.written - std::min(totals.written, all.written());
  ((failed && !rest_is_kept) || complete_ ? all.unrecorded : all.unread) += rest;
  return all;
}

RecordingRun::RecordingRun(RecordingWriter writer) : writer_(std::move(writer)), start_ns_(sys::now_ns()) {}

RecordingRun::~RecordingRun() {
  if (finished_) return;
  // A run that never began takes nothing: the events in the rings are left to the next recorder.
  // Without memory it stays as a killed recorder leaves one: not complete, and readable.
  sys::as_memory_allows([this] {
    if (!polled_)
      faults_.full({std::make_error_code(std::errc::operation_canceled), "the recording was given up before it began"});
    if (std::uncaught_exceptions() != 0) faults_.problem("the recorder could not go on; the recording ends there");
    (void)finish();
  });
}

result<std::unique_ptr<RecordingRun>> RecordingRun::create(const std::string& dir, const ClockInfo& clock, u64 max_size,
                                                           bool compress) {
  return of(RS_TRY(RecordingWriter::create(dir, clock, max_size, compress)));
}

std::unique_ptr<RecordingRun> RecordingRun::of(RecordingWriter writer) {
  return std::unique_ptr<RecordingRun>(new RecordingRun(std::move(writer)));
}

void RecordingRun::keep_wall() {
  if (meta().clock.kind != ClockKind::counter) meta().wall = WallClock::measure();
}

result<void> RecordingRun::add(Feed& feed) {
  RINGSIDE_CHECK(!finished_, "feeds come before a recording's end");
  RS_TRY(feed.begin(*this));
  feeds_.push_back(&feed);
  lost_before_ += feed.lost_so_far();
  describe();
  auto saved = writer_.save();
  if (!saved) feeds_.pop_back();
  return saved;
}

void RecordingRun::describe() {
  meta().events.clear();
  meta().threads.clear();
  meta().names.clear();
  for (Feed* feed : feeds_) feed->describe(meta());
}

void RecordingRun::know_events() {
  if (failed()) return;
  describe();
  if (auto saved = writer_.save(); !saved) faults_.full(saved.error());
}

void RecordingRun::keep_kernel_symbols(const std::function<void(const std::string&)>& notice) {
  if (std::exchange(has_symbols_, true)) return;
  const auto text = sys::read_file("/proc/kallsyms");
  if (!text) return;
  if (text->starts_with("0000000000000000 ")) {
    if (notice)
      notice("the kernel's functions have no names: /proc/kallsyms hides their addresses from this user (only " +
             sys::as_root() + ", or after sysctl kernel.kptr_restrict=0)");
    return;
  }
  const bool same = !earlier_.empty() && read_kept(earlier_, "kallsyms").value_or("") == *text;
  if (same && writer_.keep_as_in(earlier_, "kallsyms")) return;
  if (auto kept = writer_.keep("kallsyms", *text); !kept && notice)
    notice(kept.error().sentence + "; addresses in the kernel stay numbers");
}

const RecordingMeta& RecordingRun::described() {
  if (unsaved_ && !finished_) describe();
  return meta();
}

// A program with thousands of threads has a long meta.json: writing it takes at most a twentieth of the recorder's time.
void RecordingRun::save_now_and_then() {
  const u64 start = sys::now_ns();
  if (!unsaved_ || start < save_again_ns_) return;
  know_events();
  const u64 end = sys::now_ns();
  save_again_ns_ = end + std::max(20 * (end - start), writer_.least_pause_ns());
  unsaved_ = false;
}

void RecordingRun::poll() {
  polled_ = true;
  for (Feed* feed : feeds_) unsaved_ = feed->poll(*this) || unsaved_;
  if (clock_watch_ && clock_watch_->is_due(sys::now_ns()))
    if (const auto jump = clock_watch_->look(ticks_and_ns())) faults_.problem(*jump);
  if (!failed()) save_now_and_then();
}

u64 RecordingRun::events() const {
  u64 sum = 0;
  for (const Feed* feed : feeds_) sum += feed->events_so_far();
  return sum;
}

u64 RecordingRun::bytes() const {
  u64 sum = 0;
  for (const Feed* feed : feeds_) sum += feed->bytes_so_far();
  return sum;
}

u64 RecordingRun::lost() const {
  u64 sum = 0;
  for (const Feed* feed : feeds_) sum += feed->lost_so_far();
  return sum - std::min(sum, lost_before_);
}

u64 RecordingRun::taken_until() const {
  u64 until = ~u64{0};
  for (const Feed* feed : feeds_) until = std::min(until, feed->taken_until());
  return until;
}

result<void> RecordingRun::finish() { return finish(sys::now_ns() - start_ns_); }

result<void> RecordingRun::finish(u64 duration_ns) {
  if (finished_) return {};
  finished_ = true;
  // More than once: a round may find new rings, and may leave a backlog beyond its budget.
  for (int round = 0; round < 3; ++round) poll();
  Account& account = meta().account = {};
  std::vector<Counters> all;
  for (Feed* feed : feeds_) {
    all.push_back(feed->close(*this));
    account += feed->settled(all.back(), failed(), another_follows_ && feed->keeps_the_rest());
  }
  describe();
  meta().totals = sum(all);
  if (meta().wall) meta().wall_set_ns = WallClock::measure().offset_ns - meta().wall->offset_ns;
  const auto of_faults = faults_.doubts();
  account.doubts.insert(account.doubts.end(), of_faults.begin(), of_faults.end());
  if (!adds_up(totals())) account.doubts.push_back(identity(totals()));
  auto finished = writer_.finish(duration_ns);
  kept_ = finished.has_value();
  for (Feed* feed : feeds_)
    if (kept_) feed->books_are_kept();
  return failed() ? tl::unexpected<Error>(*faults_.failure()) : finished;
}

}  // namespace ringside
