#include "record/instance_feed.hpp"

#include <algorithm>

#include "text/units.hpp"
#include "instance/ring_source.hpp"
#include "sys/sys.hpp"

namespace ringside {
namespace {

bool same(const RingName& a, const RingName& b) {
  return a.pid == b.pid && a.tid == b.tid && a.task == b.task && a.process == b.process;
}

}  // namespace

InstanceFeed::InstanceFeed(Instance& instance, EventPatterns only) : instance_(instance), only_(std::move(only)) {
  // Read many times a second, so map the table instead of calling Instance::rings(), which opens every ring for its counters.
  words_ = instance.words();
}

result<void> InstanceFeed::begin(RecordingRun& run) {
  (void)read_events();
  untraced_at_begin_ = instance_.without_clock();
  want_stacks_again();
  // Losses that are in the books of former readers. Memory is given back only of rings that were read to their end.
  u64 told = instance_.past().overrun, before = instance_.past().read + instance_.past().overrun;
  for (const RingInfo& info : instance_.rings()) {
    told += info.told;
    before += info.counters.read + info.told;
    unread_at_begin_ += info.counters.unread;
  }
  taken_.account.earlier = before;
  told_.overrun = std::max(told_.overrun, told);
  for (const Refusal why : counted_refusals)
    told_.refused[why] = std::max(told_.refused[why], __atomic_load_n(&told_word(*words_.control, why), __ATOMIC_RELAXED));
  look_for_rings(run);  // those of hundreds of CPUs take a while: before the command starts
  return {};
}

// Writers write each stack once more, as the next recording lacks those that this one and earlier readers have taken. Relaxed:
// a writer that sees it late may leave a stack in the recording before.
void InstanceFeed::want_stacks_again() { __atomic_fetch_add(&words_.control->stacks_again, u64{1}, __ATOMIC_RELAXED); }

// Returns whether anything about the thread is new. Its namespace and cgroup are looked up while it lives, and kept.
bool InstanceFeed::know(RingName thread) {
  const auto [at, fresh] = threads_.try_emplace(thread.tid, thread);
  RingName& known = at->second;
  if (!fresh && same(known, thread)) return false;
  instance_.locate(thread);
  const Elsewhere& e = thread.elsewhere;
  if (e.tid == 0 || e.here_tid != 0) thread.cgroup = sys::cgroup_of(e.seen_tid(thread.tid));
  if (thread.cgroup.empty() && (e.tid == 0 || e.here_pid != 0))
    thread.cgroup = sys::cgroup_of(e.seen_pid(thread.pid));  // the thread has ended
  known = std::move(thread);
  return true;
}

void InstanceFeed::describe(RecordingMeta& meta) {
  meta.events.insert(meta.events.end(), events_.begin(), events_.end());
  for (const RingName& thread : instance_.threads()) know(thread);
  for (const auto& [tid, name] : threads_) meta.threads.push_back(name);
  for (NameChange& change : instance_.names(names_seen_)) names_.push_back(std::move(change));
  meta.names.insert(meta.names.end(), names_.begin(), names_.end());
}

InstanceFeed::News InstanceFeed::read_events() {
  const size_t now = words_.nr_events();
  const bool more = std::exchange(known_events_, now) != now;
  if (!more && unnamed_.empty()) return News::none;
  events_ = instance_.events();
  if (!only_.empty()) {
    for (const EventInfo& e : events_) wanted_[e.id] = only_.matches(e.system, e.name) || is_about_stacks(e);
    std::erase_if(events_, [&](const EventInfo& e) { return !wanted_[e.id]; });
  }
  unnamed_.clear();
  for (const EventInfo& e : events_)
    if (e.format.empty()) unnamed_ = e.system + ":" + e.name;
  return more ? News::events : News::a_format;
}

bool InstanceFeed::look_for_events(RecordingRun& run) {
  const News news = read_events();
  if (news == News::events) run.know_events();
  return news == News::a_format;
}

// An event that was declared since is looked up.
bool InstanceFeed::wants(RecordingRun& run, u16 id) {
  auto at = wanted_.find(id);
  if (at == wanted_.end()) {
    look_for_events(run);
    at = wanted_.find(id);
  }
  return at == wanted_.end() || at->second;
}

void InstanceFeed::open(RecordingRun& run, const RingName& name, Ring& ring) {
  auto source = instance_.source(name.ring);
  if (!source) {
    // Its memory may have been given back since the table was read; a lasting failure is reported at the end.
    ring.failed = source.error().code != std::errc::no_such_file_or_directory;
    if (ring.failed) run.faults().problem(source.error().sentence);
    return;
  }
  // A CPU's fresh ring is a new ring; a thread's ring that gave its memory back may have other sizes now.
  RecordingWriter& writer = run.writer();
  const Counters counters = (*source)->counters();
  RingName recorded = name;
  while (writer.has_ring(recorded.ring) && (name.cpu >= 0 || writer.ring(recorded.ring).subbuf_size != counters.subbuf_size))
    recorded.ring = most_rings + moved_++;
  if (!writer.has_ring(recorded.ring)) {
    if (auto added = writer.add_ring(recorded, static_cast<u32>(counters.subbuf_size)); !added) {
      ring.failed = added.error().code == std::errc::invalid_argument;  // the ring's fault, not the disk's
      return ring.failed ? run.faults().problem(added.error().sentence) : run.faults().full(added.error());
    }
  }
  ring.as = recorded.ring;
  ring.round = counters.nr_subbufs;
  ring.selection.restart();
  ring.source = std::move(*source);
}

bool InstanceFeed::look_for_rings(RecordingRun& run) {
  bool changed = false;
  const u32 count = words_.nr_rings();
  for (u32 number = 0; number < count && !run.failed(); ++number) {
    const RingEntry& entry = words_.ring(number);
    const u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
    if (state_of(state) != RingState::live && state_of(state) != RingState::retired) continue;
    Ring& ring = rings_[number];
    if (ring.failed || ring.state == state) continue;
    RingName name = name_of(number, entry);
    if (name.cpu >= 0) {
      // A ring that was moved aside is read to its end under its old name.
      if (const Ring& was = rings_[static_cast<u32>(name.cpu)];
          state_of(state) == RingState::retired && was.source != nullptr && was.source->name().tid == name.tid)
        continue;
      ring.state = state;
      if (ring.source != nullptr) continue;
      ring.opened = state;
      open(run, name, ring);
      changed = true;
      continue;
    }
    changed = know(name) || changed;
    name = threads_.at(name.tid);
    name.ring = number;
    ring.state = state;
    if (ring.source == nullptr) open(run, name, ring);  // else it is the same ring, retired or with its next thread
  }
  return changed;
}

// At most two rounds of the ring: a writer that is faster than the reader must not keep it from the other rings.
Drained InstanceFeed::take(RecordingRun& run, u32 number, Ring& ring) {
  // To ask whether a thread lives costs system calls: ask only when the table has changed, or once in a while.
  const bool of_cpu = ring.source->name().cpu >= 0;
  const bool ask = of_cpu || state_of(ring.state) != RingState::live || (polls_ + number) % 32 == 0;
  const bool ended = ask && ring.source->ended();
  const Select select = [&](const SubBufferView& view) {
    if (has_more_events()) look_for_events(run);  // declared since the poll began
    return only_.empty() ? view : ring.selection.keep(view, [&](Bytes payload) { return wants(run, event_id(payload)); });
  };
  const Drained drained = run.take(*ring.source, ring.as, 2 * ring.round + 2, taken_, 0, select);
  ring.failed = drained == Drained::ended;
  if (ring.failed) ring.source = nullptr;
  if (drained != Drained::all || !ended) return drained;
  run.writer().ring(ring.as).counters = ring.source->counters();
  if (of_cpu) ring.state = ring.opened;  // a fresh ring may already be in its place
  ring.source = nullptr;                 // If it is used again, its state changes and look_for_rings opens it again.
  run.writer().release(ring.as);
  return drained;
}

bool InstanceFeed::poll(RecordingRun& run) {
  ++polls_;
  const u64 began = sys::now_ns();
  bool changed = look_for_events(run);
  if (const u64 threads = instance_.threads_seen(); threads != known_threads_) {
    known_threads_ = threads;
    changed = true;
  }
  changed = look_for_rings(run) || changed;
  bool all = true;
  for (auto& [number, ring] : rings_) {
    if (ring.source != nullptr && !run.failed()) all = take(run, number, ring) != Drained::some && all;
  }
  if (all) taken_until_ = began;
  return changed;
}

// A ring that one thread used twice between two polls shows no change in the table.
void InstanceFeed::take_unnoticed(RecordingRun& run) {
  for (const RingInfo& info : instance_.rings()) {
    Ring& ring = rings_[info.name.ring];
    if (info.counters.unread == 0 || ring.source != nullptr || ring.failed || run.failed()) continue;
    open(run, info.name, ring);
    if (ring.source != nullptr) (void)take(run, info.name.ring, ring);
  }
}

u64 InstanceFeed::lost_so_far() const {
  u64 lost = taken_.account.overrun + instance_.refused_without_ring();
  for (const auto& [number, ring] : rings_)
    if (ring.source != nullptr) lost += refused_of(ring.source->counters()).sum();
  return lost;
}

Counters InstanceFeed::close(RecordingRun& run) {
  if (handing_over_) want_stacks_again();  // at once: what is written until the next one begins is in that one alone
  take_unnoticed(run);
  const bool quiet = !instance_.has_writers();
  if (!unnamed_.empty())
    run.faults().problem("cannot read the format of " + unnamed_ + " in " + instance_.path() +
                         "/events: its events are recorded, but cannot be shown");
  std::vector<Counters> all;
  for (const RingInfo& info : instance_.rings()) {
    all.push_back(info.counters);
    if (!info.problem.empty()) taken_.account.doubts.push_back(info.problem);
    if (!run.failed() && quiet && !handing_over_ && info.counters.unread != 0)
      taken_.account.doubts.push_back("ring " + std::to_string(info.name.ring) + ": " +
                                      counted(info.counters.unread, "event was", "events were") + " not read");
    const u32 as = rings_[info.name.ring].as;
    if (as == 0 && info.name.ring != 0) continue;  // it was never opened
    RecordingWriter& writer = run.writer();
    if (writer.has_ring(as) && (info.name.cpu < 0 || writer.ring(as).name.tid == info.name.tid))
      writer.ring(as).counters = info.counters;
  }
  all.push_back(counters_of(instance_.past()));
  if (std::string untraced = instance_.untraced(untraced_at_begin_); !untraced.empty())
    taken_.account.doubts.push_back(std::move(untraced));
  const Counters totals = sum(all);
  taken_.account.refused = refused_of(totals);
  taken_.account.refused += instance_.refused_elsewhere();
  for (const auto& [number, ring] : rings_) taken_.account.left_out += ring.selection.left_out();
  return totals;
}

void InstanceFeed::books_are_kept() {
  const auto raise = [](u64& word, u64 to) {
    for (u64 was = __atomic_load_n(&word, __ATOMIC_RELAXED); was < to;)
      if (__atomic_compare_exchange_n(&word, &was, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
  };
  for (const Refusal why : counted_refusals) raise(told_word(*words_.control, why), taken_.account.refused[why]);
}

}  // namespace ringside
