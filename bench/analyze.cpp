// Analysis of recorded events that stand in memory: one row, one function. Each figure is that of the fastest of some rounds.
#include <sched.h>

#include <algorithm>
#include <random>

#include "analysis/filter.hpp"
#include "analysis/hist.hpp"
#include "bench.hpp"
#include "pages.hpp"
#include "timeline/merge.hpp"

namespace bench {
namespace {

// `events` of 16 bytes in `sources` rings, a tick apart, in turns that `turn` makes: the next writer, and its number of events.
template <class Turn>
std::vector<Pages> interleaved(u32 sources, u64 events, const Turn& turn) {
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
  std::vector<Pages> all;
  for (const auto& ring : rings) all.push_back(pages_of(*ring));
  return all;
}

double merged_per_second(const std::vector<Pages>& all, u64 events) {
  Timeline timeline;
  for (const Pages& pages : all) timeline.add(std::make_unique<PagesSource>(pages));
  u64 n = 0, sum = 0;
  const u64 from = cpu_ns();
  const auto use = [&](const TraceRecord& record) {
    ++n;
    sum += record.payload.data[8];
    return true;
  };
  while (timeline.next_run(use)) continue;
  const u64 took = cpu_ns() - from;
  return n == events && sum != 1 ? static_cast<double>(n) * 1e9 / static_cast<double>(took) : 0;
}

void merge_row() {
  constexpr u32 sources = 8;
  constexpr u64 events = 1'000'000;
  std::mt19937 random(1);
  u32 next = 0;
  // Threads take turns: runs of 1 to 63 events. Then one event each, in turn; then one event of a random thread.
  const auto runs =
      interleaved(sources, events, [&] { return std::pair(static_cast<u32>(random() % sources), u64{1 + random() % 63}); });
  const auto alternating = interleaved(sources, events, [&] { return std::pair(next++ % sources, u64{1}); });
  const auto chance = interleaved(sources, events, [&] { return std::pair(static_cast<u32>(random() % sources), u64{1}); });
  std::vector<double> a, b, c;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    a.push_back(merged_per_second(runs, events));
    b.push_back(merged_per_second(alternating, events));
    c.push_back(merged_per_second(chance, events));
  }
  row("analyze.merge8_events_per_s", fastest(a), "1/s",
      text("8 rings in one order, of CPU time; runs of 1 to 63 events; one event each in turn: %.0f M/s, at random: %.0f M/s",
           fastest(b) / 1e6, fastest(c) / 1e6));
}

// One ring of events with a key of 10,000 values and a number, through one analysis; events a second of CPU time.
template <class Make>
void single_row(const char* name, const std::string& detail, const Make& make) {
  constexpr u64 events = 1'000'000;
  constexpr u32 values = 10'000;
  static const Pages pages = [] {
    LocalRing ring(65536, static_cast<u32>(events * 24 / 65000 + 2));
    Writer<Given> writer(ring.ring, Given{});
    std::mt19937_64 random(1);
    for (u64 k = 0; k < events; ++k) {
      writer.clock().time += 16;
      writer.write(16, [&](u8* payload) {
        const u32 words[4] = {1, 4711, static_cast<u32>(random() % values), static_cast<u32>(random())};
        __builtin_memcpy(payload, words, sizeof words);
      });
    }
    return pages_of(ring);
  }();
  Formats formats;
  formats.add(
      1, "bench", "event",
      "name: event\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
      "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\tfield:unsigned char "
      "common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
      "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:u32 key;\toffset:8;\tsize:4;\tsigned:0;\n"
      "\tfield:u32 number;\toffset:12;\tsize:4;\tsigned:0;\n\nprint fmt: \"key=%u number=%u\", REC->key, REC->number\n");
  const Tasks tasks;
  std::vector<double> rates;
  for (int round = 0; round < (quick ? 5 : 15); ++round) {
    auto use = make(formats, tasks);
    Timeline timeline;
    timeline.add(std::make_unique<PagesSource>(pages));
    const RingName& ring = timeline.name(0);
    u64 n = 0;
    const u64 from = cpu_ns();
    const auto one = [&](const TraceRecord& record) {
      n += use(record, ring);
      return true;
    };
    while (timeline.next_run(one)) continue;
    rates.push_back(n == 0 ? 0 : static_cast<double>(events) * 1e9 / static_cast<double>(cpu_ns() - from));
  }
  row(name, fastest(rates), "1/s", detail);
}

void single_rows() {
  const auto groups = [](const char* key) {
    return [key](const Formats& formats, const Tasks& tasks) {
      Hist::Options options;
      options.keys = {key};
      return [hist = must(Hist::make(options, formats, tasks))](const TraceRecord& record, const RingName& ring) mutable {
        return hist.add(record, ring);
      };
    };
  };
  single_row("analyze.count_events_per_s", "how many there are of each event (top), one ring, of CPU time", groups("event"));
  single_row("analyze.hist_events_per_s", "one integer key, 10,000 values", groups("key"));
  single_row("analyze.filter3_events_per_s", "three comparisons: key < 9000 && number & 0xff && common_pid == 4711",
             [](const Formats& formats, const Tasks& tasks) {
               return [filter = must(Filter::compile("key < 9000 && number & 0xff && common_pid == 4711", formats, tasks))](
                          const TraceRecord& record, const RingName& ring) mutable { return filter.matches(record, ring); };
             });
}

}  // namespace

u64 cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

void analyze_rows() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(sched_getcpu());
  single_rows();
  merge_row();
  latency_row();
  states_row();
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace bench
