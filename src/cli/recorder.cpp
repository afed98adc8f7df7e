#include "cli/recorder.hpp"

#include <algorithm>

#include "cli/trace.hpp"

namespace ringside::cli {
namespace {

bool same(const RingName& a, const RingName& b) {
  return a.pid == b.pid && a.tid == b.tid && a.task == b.task && a.process == b.process;
}

}  // namespace

result<bool> Recorder::look_for_rings() {
  RecordingMeta& meta = writer_.meta();
  bool changed = false;
  auto events = instance_.events();
  if (events.size() != known_events_) {
    known_events_ = events.size();
    meta.events = std::move(events);
    changed = true;
  }
  for (const RingInfo& info : instance_.rings()) {
    const u32 number = info.name.ring;
    auto [thread, fresh] = threads_.try_emplace(info.name.tid, info.name);
    if (fresh || !same(thread->second, info.name)) {
      thread->second = info.name;
      changed = true;
    }
    Ring& ring = rings_[number];
    if (ring.failed || ring.source != nullptr) continue;
    // A ring that ended and was emptied has nothing for us until it is used again.
    if (writer_.has_ring(number) && !info.live && info.counters.unread == 0) continue;
    auto source = instance_.source(number);
    if (!source) {
      // Its memory may have been given back between the list and now; whatever lasts is told at the end.
      ring.failed = source.error().code != std::errc::no_such_file_or_directory;
      if (ring.failed) problems_.push_back(source.error().sentence);
      continue;
    }
    ring.source = std::move(*source);
    if (writer_.has_ring(number)) continue;
    if (auto added = writer_.add_ring(info.name, static_cast<u32>(ring.source->counters().subbuf_size)); !added)
      return tl::unexpected<Error>(added.error());
  }
  if (changed) {
    meta.threads.clear();
    for (const auto& [tid, name] : threads_) meta.threads.push_back(name);
  }
  return changed;
}

// At most two rounds of the ring: a writer that is faster than we are must not keep us from the others.
result<void> Recorder::drain(u32 number, Ring& ring) {
  const bool ended = ring.source->ended();
  RecordedRing& entry = writer_.ring(number);
  const RecordedRing before = entry;
  result<void> written;
  for (u64 budget = 2 * ring.source->counters().nr_subbufs + 2; budget > 0; --budget) {
    auto view = ring.source->next();
    if (!view) {
      problems_.push_back(view.error().sentence);
      ring.failed = true;
      break;
    }
    if (!*view) {
      if (ended) {
        entry.counters = ring.source->counters();
        ring.source = nullptr;  // reused later? Then look_for_rings opens it again.
      }
      break;
    }
    written = writer_.append(number, **view);
    if (!written) {
      if (written.error().code != std::errc::bad_message) break;
      problems_.push_back(written.error().sentence);
      written = {};
      ring.failed = true;
      break;
    }
  }
  if (ring.failed) ring.source = nullptr;
  events_ += entry.events - before.events;
  bytes_ += entry.bytes - before.bytes;
  lost_ += entry.lost - before.lost;
  return written;
}

result<void> Recorder::poll() {
  auto changed = look_for_rings();
  if (!changed) return tl::unexpected<Error>(changed.error());
  if (*changed) {
    if (auto saved = writer_.save(); !saved) return saved;
  }
  for (auto& [number, ring] : rings_) {
    if (ring.source == nullptr) continue;
    if (auto done = drain(number, ring); !done) return done;
  }
  return {};
}

u64 Recorder::lost() const { return std::max(lost_, totals_.overrun) + totals_.dropped + totals_.commit_overrun + instance_.refused(); }

result<void> Recorder::finish(u64 duration_ns) {
  // Twice: the first round may find rings and leave a backlog behind its budget.
  for (int round = 0; round < 3; ++round) {
    if (auto done = poll(); !done) return done;
  }
  std::vector<Counters> all;
  for (const RingInfo& info : instance_.rings()) {
    all.push_back(info.counters);
    if (writer_.has_ring(info.name.ring)) writer_.ring(info.name.ring).counters = info.counters;
  }
  totals_ = sum(all);
  const PastTotals past = instance_.past();
  totals_.written += past.written;
  totals_.read += past.read;
  totals_.overrun += past.overrun;
  totals_.dropped += past.dropped;
  totals_.commit_overrun += past.commit_overrun;
  totals_.unfinished_bytes += past.unfinished_bytes;
  writer_.meta().totals = totals_;
  return writer_.finish(duration_ns);
}

}  // namespace ringside::cli
