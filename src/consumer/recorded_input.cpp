#include "consumer/recorded_input.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "convert/ctf.hpp"
#include "consumer/trace.hpp"
#include "convert/unpacked.hpp"
#include "text/units.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {

// Some MiB, which most commands do not need.
void RecordedInput::load_names(Trace& trace, const std::string& dir) const {
  const auto at = std::make_shared<sys::Fd>(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!*at || faccessat(at->get(), "kallsyms", F_OK, AT_SYMLINK_NOFOLLOW) != 0) return;
  trace.formats.symbols(origin.ids).load_later([at] { return sys::read_beneath(at->get(), "kallsyms").value_or(""); });
}

result<void> RecordedInput::open_in(Trace& trace, const std::string& dir) {
  auto meta = RS_TRY(RecordingMeta::read(dir));
  dir_ = dir;
  doubts = meta.account.doubts;
  std::vector<std::string> problems;
  auto rings = RS_TRY(open_recording(dir, meta, &problems));
  for (std::string& problem : problems) trace.timeline.add_problem(std::move(problem));
  if (!meta.complete) doubts.push_back(why_incomplete(dir));
  for (std::string& doubt : doubts) trace.notices.push_back(doubt = where + ": " + doubt);
  if (const Removed gone = meta.removed(); gone.events != 0)
    trace.notices.push_back(where + " begins later than its recording did: " + format_count(gone.events) +
                            " older events went, as --max-size " + format_size(meta.max_size) + " wanted");
  world = meta.world;
  boot = meta.boot;
  if (world.kernel_counts_apart()) trace.tasks.kernel_counts_apart(origin.ids);
  add_events(trace, *this, meta.events);
  if (auto texts = read_kept(dir, "printk_formats")) trace.formats.add_strings(*texts, origin.ids);
  if (names_idle()) trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  for (const RecordedRing& ring : meta.rings) {
    if (!ring.name.kernel) trace.tasks.add_recorded(ring.name, origin.ids);
  }
  for (const RingName& thread : meta.threads) trace.tasks.add_recorded(thread, origin.ids);
  load_names(trace, dir);
  sources = std::move(rings);
  clock = to_string(meta.clock.kind);
  meta_ = std::move(meta);
  return {};
}

// No two recordings begin in the same nanosecond with the same counts.
bool RecordedInput::is_copy_of(const Input& other) const {
  const RecordingMeta* const theirs = other.recording();
  return meta_ && theirs != nullptr && meta_->start_ns != 0 && meta_->start_ns == theirs->start_ns &&
         meta_->text() == theirs->text();
}

// What it has not read itself is what the other one has, to the event.
bool RecordedInput::goes_on_from(const Input& earlier) const {
  const RecordingMeta* const theirs = earlier.recording();
  return meta_ && theirs != nullptr && meta_->account.earlier != 0 && boot == earlier.boot &&
         theirs->start_ns < meta_->start_ns && meta_->account.earlier == theirs->account.written() - theirs->account.unread;
}

bool RecordedInput::is_apart_from(const Input& other) const {
  const RecordingMeta* const theirs = other.recording();
  const auto ended = [](const RecordingMeta* meta) { return meta != nullptr && meta->start_ns != 0 && meta->stop_ns != 0; };
  return meta_ && ended(&*meta_) && ended(theirs) && (meta_->stop_ns < theirs->start_ns || theirs->stop_ns < meta_->start_ns) &&
         !goes_on_from(other) && !other.goes_on_from(*this);
}

std::optional<u64> RecordedInput::recorded_events() const {
  if (!meta_ || !meta_->keeps_all()) return std::nullopt;
  u64 events = 0;
  for (const RecordedRing& ring : meta_->rings) events += ring.events;
  return events;
}

std::vector<NameChange> RecordedInput::take_names() {
  if (!meta_) return {};
  const auto from = static_cast<std::ptrdiff_t>(std::min(names_taken_, meta_->names.size()));
  names_taken_ = meta_->names.size();
  return {meta_->names.begin() + from, meta_->names.end()};
}

// The reading counts what it reads, and the gaps; what the recorder left out is the recording's affair.
Account RecordedInput::account() const {
  Account of = doubtful();
  if (!meta_) return of;
  const Account& recorded = meta_->account;
  of.refused = recorded.refused;
  of.refused_at_least = recorded.refused_at_least;
  of.unrecorded = recorded.unrecorded;
  of.unread = recorded.unread;
  return of;
}

std::vector<std::unique_ptr<Source>> RecordedInput::open_again_in(const std::string& dir) const {
  auto again = meta_ ? open_recording(dir, *meta_) : result<std::vector<std::unique_ptr<Source>>>();
  return again ? std::move(*again) : std::vector<std::unique_ptr<Source>>();
}

namespace {

class CtfInput : public RecordedInput {
 public:
  explicit CtfInput(const std::string& dir, std::shared_ptr<CtfAsRecording> converted = nullptr)
      : RecordedInput(dir), converted_(std::move(converted)) {}
  result<void> open(Trace& trace) override {
    if (converted_ == nullptr) converted_ = RS_TRY(CtfAsRecording::convert(where));
    return open_in(trace, converted_->recording());
  }
  std::unique_ptr<Input> another() const override { return std::make_unique<CtfInput>(where, converted_); }
  std::optional<u64> recorded_events() const override { return std::nullopt; }
  std::vector<std::unique_ptr<Source>> open_again() const override {
    return converted_ == nullptr ? std::vector<std::unique_ptr<Source>>{} : open_again_in(converted_->recording());
  }

 private:
  bool names_idle() const override { return false; }
  std::shared_ptr<CtfAsRecording> converted_;
};

class UnpackedInput : public RecordedInput {
 public:
  UnpackedInput(const std::string& place, std::shared_ptr<const Unpacked> unpacked)
      : RecordedInput(place), unpacked_(std::move(unpacked)) {}
  result<void> open(Trace& trace) override { return open_in(trace, unpacked_->path()); }
  std::unique_ptr<Input> another() const override { return std::make_unique<UnpackedInput>(where, unpacked_); }
  std::vector<std::unique_ptr<Source>> open_again() const override { return open_again_in(unpacked_->path()); }

 private:
  std::shared_ptr<const Unpacked> unpacked_;
};

class GrowingInput : public RecordedInput {
 public:
  using RecordedInput::RecordedInput;
  result<void> open(Trace& trace) override {
    if (auto texts = read_kept(where, "printk_formats")) trace.formats.add_strings(*texts);
    load_names(trace, where);
    trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
    return {};
  }
  void grow(Trace& trace, const RecordingMeta& now) override;

 private:
  std::set<std::pair<u32, bool>> rings_;  // those that have a source: number, the kernel's
};

void GrowingInput::grow(Trace& trace, const RecordingMeta& now) {
  const bool same = meta_ && meta_->events.size() == now.events.size() && meta_->threads.size() == now.threads.size() &&
                    meta_->names.size() == now.names.size() && meta_->rings.size() == now.rings.size() &&
                    meta_->complete == now.complete;
  if (same) return;
  clock = to_string(now.clock.kind);
  boot = now.boot;
  world = now.world;
  if (world.kernel_counts_apart()) trace.tasks.kernel_counts_apart(origin.ids);
  add_events(trace, *this, now.events);
  for (const RecordedRing& ring : now.rings) {
    if (!ring.name.kernel) trace.tasks.add_recorded(ring.name, origin.ids);
    if (rings_.insert({ring.name.ring, ring.name.kernel}).second)
      trace.timeline.add(std::make_unique<GrowingSource>(where, ring, now.clock));
  }
  for (const RingName& thread : now.threads) trace.tasks.add_recorded(thread, origin.ids);
  doubts = now.account.doubts;
  meta_ = now;
}

}  // namespace

std::unique_ptr<Input> recording_input(const std::string& dir) { return std::make_unique<RecordedInput>(dir); }
std::unique_ptr<Input> unpacked_input(const std::string& where, std::shared_ptr<const Unpacked> recording) {
  return std::make_unique<UnpackedInput>(where, std::move(recording));
}
std::unique_ptr<Input> ctf_input(const std::string& dir) { return std::make_unique<CtfInput>(dir); }
std::unique_ptr<Input> growing_input(const std::string& dir) { return std::make_unique<GrowingInput>(dir); }

}  // namespace ringside
