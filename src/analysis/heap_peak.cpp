#include "analysis/heap_peak.hpp"

#include <algorithm>
#include <tuple>

namespace ringside {

void HeapPeak::tidy(Process& p) {
  const auto of = [](const Change& c) { return std::tuple(c.root, c.stack); };
  std::sort(p.since.begin(), p.since.end(), [&](const Change& a, const Change& b) { return of(a) < of(b); });
  size_t kept = 0;
  for (const Change& c : p.since) {
    if (kept != 0 && of(p.since[kept - 1]) == of(c)) {
      p.since[kept - 1].bytes += c.bytes;
      p.since[kept - 1].blocks += c.blocks;
    } else {
      p.since[kept++] = c;
    }
  }
  p.since.resize(kept);
  p.tidy_at = std::max<size_t>(1 << 20, 2 * kept);
}

HeapPeak::Highest HeapPeak::highest() const {
  Highest h;
  for (const auto& [process, p] : processes_) {
    h.others += p.peak != 0;
    if (p.peak > h.bytes || (p.peak == h.bytes && process < h.process)) h = {process, p.peak, p.peak_blocks, p.time, h.others};
  }
  h.others -= h.others != 0;
  return h;
}

void HeapPeak::undo(i64 process, Fold& fold) const {
  const auto at = processes_.find(process);
  if (at == processes_.end()) return;
  for (const Change& c : at->second.since) {  // modulo 2^64: sums of all are never below 0
    fold.change(c.root, c.stack, 0 - static_cast<u64>(c.bytes), 0 - static_cast<u64>(c.blocks));
  }
}

}  // namespace ringside
