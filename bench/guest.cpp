// A guest: an event inside it against an rdtsc inside it, and what a swap costs beside a bare exit.
#include "bench.hpp"

#if defined(__x86_64__)
#include <unistd.h>

#include "guest/guest.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

result<void> measure() {
  std::vector<double> over, event, exits, swaps;
  for (int round = 0; round < (quick ? 3 : 7); ++round) {
    guest::Guest::Options options;
    options.buffer.size = 16 << 20;
    options.buffer.subbuf_size = 65536;
    options.vm.tick = {};
    options.vm.arguments[1] = 2;
    auto made = guest::Guest::start(std::move(options));
    if (!made) return tl::unexpected<Error>(made.error());
    guest::Guest& g = **made;
    if (auto on = g.enable(true); !on) return on;
    g.vm().go();
    if (!g.vm().wait_end(std::chrono::seconds(20)) || g.vm().status() != 0)
      return refuse(std::errc::timed_out, "the guest did not measure: " + g.vm().why());
    const auto of = [&](u32 n) { return static_cast<double>(g.vm().result_of(n)); };
    over.push_back(of(2) / of(1));
    const ClockInfo clock = calibrate(ClockKind::tsc);
    const double ns = static_cast<double>(clock.to_ns(clock.base_ticks + 1'000'000'000) - clock.base_ns) / 1e9;
    event.push_back(of(2) / of(0) * ns);
    exits.push_back(of(3) / of(4) * ns / 1000);
    for (int k = 0; k < 50; ++k) {
      const u64 from = sys::now_ns();
      if (auto answer = g.vm().ask(guest::Ask::swap, 0, ~0u); !answer) return tl::unexpected<Error>(answer.error());
      swaps.push_back(static_cast<double>(sys::now_ns() - from) / 1000);
    }
  }
  row("guest.event16_over_rdtsc", median(over), "x", text("%.1f ns an event, inside the guest", median(event)));
  row("guest.swap_p50_us", quantile(swaps, 0.5), "us",
      text("asked of the guest's second processor; a bare exit: %.1f us", median(exits)));
  return {};
}

}  // namespace

void guest_rows() {
  if (auto done = measure(); !done) row("guest.event16_over_rdtsc", std::nullopt, "x", done.error().sentence);
}

}  // namespace bench
#else
void bench::guest_rows() { row("guest.event16_over_rdtsc", std::nullopt, "x", "guests run on x86-64 only"); }
#endif
