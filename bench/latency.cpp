// Pairs of events that stand in memory: from the walk over their ring to the histogram.
#include <time.h>

#include <algorithm>
#include <random>

#include "analysis/pairs.hpp"
#include "bench.hpp"
#include "pages.hpp"
#include "timeline/merge.hpp"

namespace bench {
namespace {

constexpr u32 open_at_once = 1000;

// Starts and ends of 16 bytes, common fields included, with a key; which of those that are open ends next is chance.
Pages pairs_of_events(u64 pairs) {
  LocalRing ring(65536, static_cast<u32>(pairs * 2 * 20 / 65000 + 2));
  Writer<Given> writer(ring.ring, Given{});
  std::mt19937_64 random(1);
  const auto write = [&](u16 id, u64 key) {
    writer.clock().time += 40;
    writer.write(16, [&](u8* payload) {
      const u64 common = id;
      __builtin_memcpy(payload, &common, sizeof common);
      __builtin_memcpy(payload + 8, &key, sizeof key);
    });
  };
  std::vector<u64> open;
  for (u64 begun = 0, ended = 0; ended < pairs;) {
    if (begun < pairs && open.size() < open_at_once && (open.empty() || random() % 2 == 0)) {
      open.push_back(begun * 0x9E3779B97F4A7C15);
      write(1, open.back());
      ++begun;
    } else {
      std::swap(open[random() % open.size()], open.back());
      write(2, open.back());
      open.pop_back();
      ++ended;
    }
  }
  return pages_of(ring);
}

}  // namespace

void latency_row() {
  const u64 pairs = quick ? 200'000 : 1'000'000;
  const auto pages = pairs_of_events(pairs);
  const std::string format =
      "format:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:unsigned char "
      "common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
      "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\tfield:int "
      "common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
      "\tfield:u64 request;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"request=%llu\", REC->request\n";
  Formats formats;
  formats.add(1, "bench", "begin", "name: begin\nID: 1\n" + format);
  formats.add(2, "bench", "end", "name: end\nID: 2\n" + format);
  const Tasks tasks;
  std::vector<double> rates;
  for (int round = 0; round < (quick ? 7 : 15); ++round) {
    Pairs::Options options;
    options.start = "bench:begin";
    options.end = "bench:end";
    options.keys = {{"request", "request"}};
    Pairs analysis = must(Pairs::make(options, formats, tasks));
    Timeline timeline;
    timeline.add(std::make_unique<PagesSource>(pages));
    const RingName& ring = timeline.source(0).name();
    const u64 start = cpu_ns();
    const auto one = [&](const TraceRecord& record) {
      analysis.take(record, ring);
      return true;
    };
    while (timeline.next_run(one)) continue;
    const auto ns = static_cast<double>(cpu_ns() - start);
    if (analysis.counts().pairs != pairs)
      throw std::runtime_error("latency_pairs: " + std::to_string(analysis.counts().pairs) + " pairs");
    rates.push_back(static_cast<double>(pairs) * 1e9 / ns);
  }
  row("analyze.latency_pairs_per_s", fastest(rates), "1/s",
      bench::text("%llu pairs, one ring, up to %u open at a time, a key of 64 bits", static_cast<unsigned long long>(pairs),
                  open_at_once));
}

}  // namespace bench
