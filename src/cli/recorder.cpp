#include "cli/recorder.hpp"

#include <algorithm>
#include <cstring>

#include "cli/options.hpp"
#include "instance/ring_source.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

bool same(const RingName& a, const RingName& b) {
  return a.pid == b.pid && a.tid == b.tid && a.task == b.task && a.process == b.process;
}

}  // namespace

Recorder::Recorder(Instance& instance, RecordingWriter writer, KernelRecorder* kernel)
    : instance_(instance), kernel_(kernel), writer_(std::move(writer)) {
  // Looked at many times a second, so the table itself and not Instance::rings(), which opens every ring for its counters.
  words_.control = const_cast<InstanceControl*>(&instance.control());
  list_events();
  for (const RingInfo& info : instance.rings()) gone_ += info.counters.read + info.counters.overrun;
  gone_ += instance.past().read + instance.past().overrun;
}

void Recorder::list_events() {
  writer_.meta().events = instance_.events();
  unnamed_.clear();
  for (const EventInfo& e : writer_.meta().events)
    if (e.format.empty()) unnamed_ = e.system + ":" + e.name;
  auto& all = writer_.meta().events;
  all.insert(all.end(), other_events_.begin(), other_events_.end());
  if (kernel_ == nullptr) return;
  all.insert(all.end(), kernel_->events().begin(), kernel_->events().end());
}

void Recorder::also(std::vector<EventInfo> events) {
  other_events_ = std::move(events);
  list_events();
  unsaved_ = true;
}

void Recorder::account(const Counters& counters, u64 events, u64 bytes) {
  other_counters_.push_back(counters);
  events_ += events;
  bytes_ += bytes;
  lost_ += counters.overrun;
}

// Answers whether something of it is new. Where it is, and in which cgroup, is found out while it lives, and kept.
bool Recorder::know(RingName thread) {
  const auto [at, fresh] = threads_.try_emplace(thread.tid, thread);
  RingName& known = at->second;
  if (!fresh && same(known, thread)) return false;
  instance_.locate(thread);
  const Elsewhere& e = thread.elsewhere;
  if (e.tid == 0 || e.here_tid != 0) thread.cgroup = sys::cgroup_of(e.seen_tid(thread.tid));
  if (thread.cgroup.empty() && (e.tid == 0 || e.here_pid != 0)) thread.cgroup = sys::cgroup_of(e.seen_pid(thread.pid));  // the thread has ended
  known = std::move(thread);
  return true;
}

void Recorder::list_threads() {
  writer_.meta().threads.clear();
  for (const RingName& thread : instance_.threads()) know(thread);
  for (const auto& [tid, name] : threads_) writer_.meta().threads.push_back(name);
}

bool Recorder::look_for_events() {
  const u64 count = __atomic_load_n(&words_.control->nr_events, __ATOMIC_ACQUIRE);
  if (count == known_events_ && unnamed_.empty()) return false;
  known_events_ = count;
  list_events();
  return true;
}

result<void> Recorder::open(const RingName& name, Ring& ring) {
  auto source = instance_.source(name.ring);
  if (!source) {
    // Its memory may have been given back between the look at the table and now; whatever lasts is told at the end.
    ring.failed = source.error().code != std::errc::no_such_file_or_directory;
    if (ring.failed) problems_.push_back(source.error().sentence);
    return {};
  }
  // A fresh ring of a CPU is another one; a thread's that gave its memory back may be of other sizes now.
  const Counters counters = (*source)->counters();
  RingName recorded = name;
  while (writer_.has_ring(recorded.ring) && (name.cpu >= 0 || writer_.ring(recorded.ring).subbuf_size != counters.subbuf_size)) recorded.ring = most_rings + moved_++;
  if (!writer_.has_ring(recorded.ring)) {
    if (auto added = writer_.add_ring(recorded, static_cast<u32>(counters.subbuf_size)); !added) return added;
  }
  ring.as = recorded.ring;
  ring.round = counters.nr_subbufs;
  ring.source = std::move(*source);
  return {};
}

result<bool> Recorder::look_for_rings() {
  bool changed = false;
  const u64 count = std::min<u64>(__atomic_load_n(&words_.control->nr_rings, __ATOMIC_ACQUIRE), most_rings);
  for (u32 number = 0; number < count; ++number) {
    const RingEntry& entry = words_.ring(number);
    const u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
    if (state_of(state) != RingState::live && state_of(state) != RingState::retired) continue;
    Ring& ring = rings_[number];
    if (ring.failed || ring.state == state) continue;
    RingName name = name_of(number, entry);
    if (name.cpu >= 0) {
      // One that was moved aside is read to its end as what it was.
      if (const Ring& was = rings_[static_cast<u32>(name.cpu)]; state_of(state) == RingState::retired && was.source != nullptr && was.source->name().tid == name.tid) continue;
      ring.state = state;
      if (ring.source != nullptr) continue;
      ring.opened = state;
      if (auto opened = open(name, ring); !opened) return tl::unexpected<Error>(opened.error());
      changed = true;
      continue;
    }
    changed = know(name) || changed;
    name = threads_.at(name.tid);
    name.ring = number;
    ring.state = state;
    if (ring.source != nullptr) continue;  // the same ring, retired or with its next thread
    if (auto opened = open(name, ring); !opened) return tl::unexpected<Error>(opened.error());
  }
  return changed;
}

// At most two rounds of the ring: a writer that is faster than we are must not keep us from the others.
result<void> Recorder::drain(u32 number, Ring& ring) {
  // Asking whether a thread lives costs system calls: only when the table says that something happened, or once in a while.
  const bool ask = ring.source->name().cpu >= 0 || state_of(ring.state) != RingState::live || (polls_ + number) % 32 == 0;
  const bool ended = ask && ring.source->ended();
  RecordedRing& entry = writer_.ring(ring.as);
  const RecordedRing before = entry;
  result<void> written;
  for (u64 budget = 2 * ring.round + 2; budget > 0; --budget) {
    auto view = ring.source->next();
    if (!view) {
      problems_.push_back(view.error().sentence);
      ring.failed = true;
      break;
    }
    if (!*view) {
      if (ended) {
        entry.counters = ring.source->counters();
        if (ring.source->name().cpu >= 0) ring.state = ring.opened;  // a fresh one may stand in its place already
        ring.source = nullptr;  // used again? Then its state changes and look_for_rings opens it again.
        writer_.release(ring.as);
      }
      break;
    }
    written = writer_.append(ring.as, **view);
    if (written) {
      ring.source->consume();
      continue;
    }
    ring.source->put_back();
    if (written.error().code == std::errc::bad_message) {
      problems_.push_back(written.error().sentence);
      written = {};
      ring.failed = true;
    }
    break;
  }
  if (ring.failed) ring.source = nullptr;
  recorded_ += entry.events - before.events;
  events_ += entry.events - before.events;
  bytes_ += entry.bytes - before.bytes;
  lost_ += entry.lost - before.lost;
  return written;
}

// A program with thousands of threads has a long meta.json: writing it takes at most a twentieth of our time.
result<void> Recorder::save_now_and_then() {
  const u64 start = sys::now_ns();
  if (!unsaved_ || start < save_again_ns_) return {};
  list_threads();
  auto saved = writer_.save();
  const u64 end = sys::now_ns();
  save_again_ns_ = end + 20 * (end - start);
  unsaved_ = false;
  return saved;
}

result<void> Recorder::poll() {
  if (failure_) return {};
  auto taken = take();
  if (!taken) failure_ = taken.error();
  return taken;
}

result<void> Recorder::take() {
  ++polls_;
  const bool events = look_for_events();
  if (const u64 threads = instance_.threads_seen(); threads != known_threads_) {
    known_threads_ = threads;
    unsaved_ = true;
  }
  auto rings = look_for_rings();
  if (!rings) return tl::unexpected<Error>(rings.error());
  unsaved_ = unsaved_ || events || *rings;
  if (auto saved = save_now_and_then(); !saved) return saved;
  for (auto& [number, ring] : rings_) {
    if (ring.source == nullptr) continue;
    if (auto done = drain(number, ring); !done) return done;
  }
  return {};
}

// A ring that one thread used twice between two looks looks as if nothing had happened.
result<void> Recorder::take_unnoticed() {
  for (const RingInfo& info : instance_.rings()) {
    Ring& ring = rings_[info.name.ring];
    if (info.counters.unread == 0 || ring.source != nullptr || ring.failed) continue;
    if (auto opened = open(info.name, ring); !opened) return opened;
    if (ring.source == nullptr) continue;
    if (auto done = drain(info.name.ring, ring); !done) return done;
  }
  return {};
}

result<void> Recorder::finish(u64 duration_ns) {
  // More than once: a round may find rings and leave a backlog behind its budget.
  for (int round = 0; round < 3; ++round) (void)poll();
  if (!failure_) {
    if (auto taken = take_unnoticed(); !taken) failure_ = taken.error();
  }
  Missing& missing = writer_.meta().missing;
  missing = {};
  const bool quiet = !instance_.has_writers();
  if (!unnamed_.empty())
    problems_.push_back("cannot read the format of " + unnamed_ + " in " + instance_.path() + "/events: its events are recorded, and cannot be shown");
  std::vector<Counters> all;
  for (const RingInfo& info : instance_.rings()) {
    all.push_back(info.counters);
    if (!info.problem.empty()) missing.doubts.push_back(info.problem);
    if (!failure_ && quiet && info.counters.unread != 0)
      missing.doubts.push_back(std::to_string(info.counters.unread) + " events of ring " + std::to_string(info.name.ring) + " were not read");
    const u32 as = rings_[info.name.ring].as;
    if (as == 0 && info.name.ring != 0) continue;  // it was never opened
    if (writer_.has_ring(as) && (info.name.cpu < 0 || writer_.ring(as).name.tid == info.name.tid)) writer_.ring(as).counters = info.counters;
  }
  all.push_back(counters_of(instance_.past()));
  missing.gaps = lost_;
  if (failure_) {
    missing.doubts.push_back(failure_->sentence + "; the recording ends there");
    const u64 written = sum(all).written, here = gone_ + recorded_ + lost_;
    missing.unrecorded = written - std::min(written, here);
  }
  all.insert(all.end(), other_counters_.begin(), other_counters_.end());
  totals_ = sum(all);
  if (!failure_) missing.gaps = std::max(missing.gaps, totals_.overrun);
  if (kernel_ != nullptr) {
    auto stopped = kernel_->stop(writer_);
    const Counters kernel = kernel_->totals();
    totals_ = sum({totals_, kernel});
    events_ += kernel_->recorded();
    bytes_ += kernel_->bytes();
    missing.gaps += kernel_->lost();
    missing.unrecorded += kernel.written - std::min(kernel.written, kernel_->recorded() + kernel_->lost());
    if (!stopped) {
      missing.doubts.push_back(stopped.error().sentence + "; the kernel's part of the recording ends there");
      if (!failure_) failure_ = stopped.error();
    }
    for (const auto& [tid, name] : kernel_->threads()) threads_.emplace(tid, name);
    for (const std::string& problem : kernel_->problems()) problems_.push_back(problem);
  }
  missing.refused = totals_.dropped + totals_.commit_overrun + instance_.refused();
  missing.doubts.insert(missing.doubts.end(), problems_.begin(), problems_.end());
  if (!adds_up(totals_)) missing.doubts.push_back(identity(totals_));
  writer_.meta().totals = totals_;
  list_threads();
  auto finished = writer_.finish(duration_ns);
  return failure_ ? tl::unexpected<Error>(*failure_) : finished;
}

}  // namespace ringside::cli
