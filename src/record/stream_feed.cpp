#include "record/stream_feed.hpp"

namespace ringside {

result<void> StreamFeed::hear(const remote::Frame& frame) {
  auto view = content_.take(frame);
  ring_ = frame.head.ring;
  view_ = view ? *view : std::nullopt;
  if (view) return {};
  if (view.error().code != std::errc::bad_message) return tl::unexpected<Error>(view.error());
  unheard_.problem(view.error().sentence);
  return {};
}

result<void> StreamFeed::begin(RecordingRun& run) {
  run.meta().boot.clear();  // another machine's clock
  run.meta().world = {};
  return {};
}

bool StreamFeed::poll(RecordingRun& run) {
  run.faults().add(std::exchange(unheard_, {}));
  bool fresh = false;
  if (!view_ || run.failed()) return fresh;
  if (!run.writer().has_ring(ring_)) {
    RingName name{ring_, 0, 0, "", ""};
    name.apart = 1;
    if (auto added = run.writer().add_ring(name, content_.subbuf_size()); !added) {
      run.faults().full(added.error());
      return fresh;
    }
    fresh = true;
  }
  if (std::exchange(known_events_, content_.events().size()) != content_.events().size()) run.know_events();
  put(*view_, run.writer(), ring_, run.faults(), taken_);
  view_.reset();
  return fresh;
}

void StreamFeed::describe(RecordingMeta& meta) {
  for (EventInfo event : content_.events()) {
    event.apart = 1;
    meta.events.push_back(std::move(event));
  }
}

Counters StreamFeed::close(RecordingRun& run) {
  std::vector<Counters> all;
  for (const auto& [number, ring] : content_.rings()) {
    Counters counters = ring.counters;
    counters.refusals = content_.counts_refused() ? Refusals::in_sum : Refusals::at_least;
    all.push_back(counters);
    if (run.writer().has_ring(number)) run.writer().ring(number).counters = counters;
  }
  Counters totals = sum(all);
  totals.dropped += content_.refused_elsewhere();
  add_refused(totals);
  return totals;
}

}  // namespace ringside
