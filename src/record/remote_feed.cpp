#include "record/remote_feed.hpp"

#include <algorithm>

#include "sys/try.hpp"

namespace ringside {

result<void> RemoteFeed::connect() {
  found_ = RS_TRY(remote::Process::attach(options_.socket, options_.attach));
  if (!RS_TRY(found_->choose(options_.events)) && options_.notice)
    options_.notice(options_.socket + " switches all its events together, so all are recorded; report -e chooses among them");
  return {};
}

result<void> RemoteFeed::arm() {
  armed_ = true;
  return (attached() ? process_ : found_)->enable(true);
}

// The next part of a recording goes on with the rings of this life.
result<void> RemoteFeed::begin(RecordingRun& run) {
  if (std::exchange(handing_over_, false)) begin_account(true);
  for (const Ring& ring : rings_) RS_TRY(run.writer().add_ring(ring.name, buffer().plan().subbuf_size));
  return {};
}

result<void> RemoteFeed::attach(RecordingRun& run) {
  if (attached()) return {};
  if (found_ == nullptr) RS_TRY(connect());
  auto process = std::move(found_);
  const remote::Plan& made = process->buffer().plan();
  rings_.clear();
  for (u32 number = 0; number < made.nr_rings; ++number) {
    auto source = RS_TRY(process->buffer().source(number));
    RingName name = source->name();
    name.ring = next_++;
    name.apart = options_.number;
    RS_TRY(run.writer().add_ring(name, made.subbuf_size));
    rings_.push_back({std::move(source), std::move(name)});
  }
  for (RingName& thread : process->threads()) threads_.push_back(std::move(thread));
  for (const EventInfo& e : process->events()) {
    const auto same = std::find_if(events_.begin(), events_.end(), [&](const EventInfo& k) { return k.id == e.id; });
    if (same == events_.end())
      events_.push_back(e), events_.back().apart = options_.number;
    else if (same->format != e.format || same->name != e.name)
      run.faults().problem("event " + std::to_string(e.id) + " was " + same->name + " before and is " + e.name +
                           " now; it is shown as before");
  }
  run.know_events();
  // Attached from here on: a writer that does not answer may write all the same.
  process_ = std::move(process);
  alive_ = true;
  if (armed_) return {};
  RS_TRY(process_->enable(true));
  return buffer().poll_every(options_.poll_every);
}

bool RemoteFeed::poll(RecordingRun& run) {
  if (!attached()) return false;
  alive_ = false;
  for (Ring& ring : rings_) {
    if (ring.failed || run.failed()) continue;
    const u64 before = taken_.account.read;
    const Drained drained = run.take(*ring.source, ring.name.ring, 2 * u64{buffer().plan().nr_pages} + 2, taken_);
    ring.failed = drained == Drained::ended;
    if (taken_.account.read != before) ring.silence.clear();
    if (drained == Drained::silent && ring.silence != run.faults().silence()) {
      ring.silence = run.faults().silence();
      if (options_.notice) options_.notice(ring.silence);
    }
    alive_ = alive_ || (!ring.failed && !(drained == Drained::all && ring.source->ended()));
  }
  return false;  // attach() has saved its news
}

void RemoteFeed::describe(RecordingMeta& meta) {
  meta.events.insert(meta.events.end(), events_.begin(), events_.end());
  meta.threads.insert(meta.threads.end(), threads_.begin(), threads_.end());
}

// Of this life.
Counters RemoteFeed::take_counters(RecordingRun& run) {
  std::vector<Counters> all;
  for (const Ring& ring : rings_) {
    all.push_back(run.writer().ring(ring.name.ring).counters = ring.source->counters());
    run.writer().release(ring.name.ring);
  }
  return sum(all);
}

void RemoteFeed::end_life(RecordingRun& run) {
  if (!attached()) return;
  process_->add_not_brought(taken_.account);
  all_.push_back(take_counters(run));
  rings_.clear();
  process_ = nullptr;
  ++lives_;
}

Counters RemoteFeed::close(RecordingRun& run) {
  if (attached() && !hands_over()) {
    if (auto off = process_->enable(false); !off && !buffer().is_gone()) run.faults().problem(off.error().sentence);
    buffer().ask_again();
    for (int round = 0; round < 3 && !run.failed(); ++round) (void)poll(run);
    end_life(run);
  }
  std::vector<Counters> all = all_;
  if (attached()) all.push_back(take_counters(run));
  const Counters totals = sum(all);
  add_refused(totals);
  return totals;
}

}  // namespace ringside
