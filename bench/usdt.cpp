// The events of bench.hpp as USDT probes, too.
#define RINGSIDE_USDT
#include <ringside/trace.hpp>

#include "bench.hpp"

RINGSIDE_EVENT(bench, probed_pair, (u64, a), (u64, b));
RINGSIDE_EVENT(bench, never_probed, (u64, a));

namespace bench {

void write_probed(u64 n) {
  for (u64 k = 0; k < n; ++k) ::bench::probed_pair(k, 1);
}

void never_write_probed(u64 n) {
  for (u64 k = 0; k < n; ++k) ::bench::never_probed(k);
}

}  // namespace bench
