#include "record/source_feed.hpp"
#include "sys/try.hpp"

namespace ringside {

void SourceFeed::add(Ring ring, std::vector<std::string> doubts) {
  rings_.push_back({std::move(ring)});
  taken_.account.doubts.insert(taken_.account.doubts.end(), std::make_move_iterator(doubts.begin()),
                               std::make_move_iterator(doubts.end()));
}

Counters SourceFeed::counters() const {
  std::vector<Counters> all;
  for (const Fed& ring : rings_) all.push_back(ring.source->counters());
  return sum(all);
}

result<void> SourceFeed::begin(RecordingRun& run) {
  if (std::exchange(handing_over_, false)) begin_account(true);
  u32 other = 1U << 16;
  for (Fed& ring : rings_) {
    while (run.writer().has_ring(ring.name.ring)) ring.name.ring = other++;
    RS_TRY(run.writer().add_ring(ring.name, static_cast<u32>(ring.source->counters().subbuf_size)));
  }
  return {};
}

bool SourceFeed::poll(RecordingRun& run) {
  ended_ = true;
  for (Fed& ring : rings_) {
    if (ring.failed || run.failed()) continue;
    const Drained drained =
        run.take(*ring.source, ring.name.ring, 2 * ring.source->counters().nr_subbufs + 2, taken_, ring.earlier);
    if (drained == Drained::silent) run.faults().problem(run.faults().silence());
    ring.failed = drained == Drained::ended || drained == Drained::silent;
    ended_ = ended_ && (ring.failed || (drained == Drained::all && ring.source->ended()));
  }
  return false;
}

void SourceFeed::describe(RecordingMeta& meta) {
  meta.events.insert(meta.events.end(), events_.begin(), events_.end());
  meta.threads.insert(meta.threads.end(), threads_.begin(), threads_.end());
}

Counters SourceFeed::close(RecordingRun& run) {
  for (const Fed& ring : rings_) run.writer().ring(ring.name.ring).counters = ring.source->counters();
  const Counters totals = counters();
  add_refused(totals);
  return totals;
}

}  // namespace ringside
