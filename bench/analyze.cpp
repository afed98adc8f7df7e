// Analysis of recorded events that stand in memory: one row, one function.
#include <sched.h>

#include <algorithm>
#include <random>

#include "bench.hpp"
#include "timeline/merge.hpp"

namespace bench {
namespace {

// A ring's sub-buffers, as a recording shows them.
class Pages final : public Source {
 public:
  explicit Pages(const LocalRing& ring) : geometry_(ring.ring.geometry) {
    Reader<> reader(ring.ring);
    while (reader.get_reader(false) == Got::data) {
      const ReaderView& v = reader.view();
      auto& page = pages_.emplace_back(geometry_.subbuf_size() / 8);
      __builtin_memcpy(page.data(), ring.ring.subbuf(v.id), geometry_.subbuf_size());
      ends_.push_back(v.end);
    }
  }
  result<std::optional<SubBufferView>> next() override {
    if (at_ == pages_.size()) return std::nullopt;
    const auto& page = pages_[at_];
    return SubBufferView{reinterpret_cast<const u8*>(page.data()), 0, ends_[at_++], 0, page[0]};
  }
  void again() { at_ = 0; }
  Counters counters() const override { return {}; }
  const RingName& name() const override { return name_; }
  const ClockInfo& clock() const override { return clock_; }
  bool ended() const override { return true; }

 private:
  Geometry geometry_;
  std::vector<std::vector<u64>> pages_;
  std::vector<u32> ends_;
  size_t at_ = 0;
  RingName name_;
  ClockInfo clock_ = calibrate(best_clock());
};

struct Borrowed final : Source {  // the timeline's; the pages stay
  explicit Borrowed(Pages& from) : pages(from) { pages.again(); }
  result<std::optional<SubBufferView>> next() override { return pages.next(); }
  Counters counters() const override { return {}; }
  const RingName& name() const override { return pages.name(); }
  const ClockInfo& clock() const override { return pages.clock(); }
  bool ended() const override { return true; }
  Pages& pages;
};

struct Given {
  u64 time = 0;
  u64 now() const noexcept { return time; }
};

// `events` of 16 bytes in `sources` rings, a tick apart, in turns that `turn` makes: who writes next, and how many.
template <class Turn>
std::vector<std::unique_ptr<Pages>> interleaved(u32 sources, u64 events, const Turn& turn) {
  std::vector<std::unique_ptr<LocalRing>> rings;
  std::vector<std::unique_ptr<Writer<Given>>> writers;
  for (u32 i = 0; i < sources; ++i) {
    rings.push_back(std::make_unique<LocalRing>(16384, static_cast<u32>(events * 24 / 16000)));
    writers.push_back(std::make_unique<Writer<Given>>(rings.back()->ring, Given{}));
  }
  for (u64 k = 0; k < events;) {
    const auto [who, n] = turn();
    for (u64 end = std::min(events, k + n); k < end; ++k) {
      writers[who]->clock().time = 1'000'000 + k * 16;
      write_pair(*writers[who], k, who);
    }
  }
  std::vector<std::unique_ptr<Pages>> all;
  for (const auto& ring : rings) all.push_back(std::make_unique<Pages>(*ring));
  return all;
}

// Of this thread: what one core does in it, whoever else wants that core.
u64 cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

double merged_per_second(const std::vector<std::unique_ptr<Pages>>& all, u64 events) {
  Timeline timeline;
  for (const auto& pages : all) timeline.add(std::make_unique<Borrowed>(*pages));
  TraceRecord record;
  u64 n = 0, sum = 0;
  const u64 from = cpu_ns();
  while (timeline.next(record)) {
    ++n;
    sum += record.payload.data[8];
  }
  const u64 took = cpu_ns() - from;
  return n == events && sum != 1 ? static_cast<double>(n) * 1e9 / static_cast<double>(took) : 0;
}

void merge_row() {
  constexpr u32 sources = 8;
  constexpr u64 events = 1'000'000;
  std::mt19937 random(1);
  u32 next = 0;
  // Threads take turns: runs of 1 to 63 events. Then one event each, round and round; then one of whomever chance picks.
  const auto runs = interleaved(sources, events, [&] { return std::pair(static_cast<u32>(random() % sources), u64{1 + random() % 63}); });
  const auto alternating = interleaved(sources, events, [&] { return std::pair(next++ % sources, u64{1}); });
  const auto chance = interleaved(sources, events, [&] { return std::pair(static_cast<u32>(random() % sources), u64{1}); });
  std::vector<double> a, b, c;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    a.push_back(merged_per_second(runs, events));
    b.push_back(merged_per_second(alternating, events));
    c.push_back(merged_per_second(chance, events));
  }
  row("analyze.merge8_events_per_s", median(a), "1/s",
      text("8 rings in one order, of CPU time; runs of 1 to 63 events; one event each in turn: %.0f M/s, at random: %.0f M/s", median(b) / 1e6, median(c) / 1e6));
}

}  // namespace

void analyze_rows() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(sched_getcpu());
  merge_row();
  latency_row();
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace bench
