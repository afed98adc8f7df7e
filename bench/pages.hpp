// A ring's sub-buffers as a recording shows them, for analyses of events that stand in memory.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "bench.hpp"
#include "source/recording.hpp"
#include "source/source.hpp"

namespace bench {

struct Given {  // a clock that says what it was told
  u64 time = 0;
  u64 now() const noexcept { return time; }
};

using Pages = std::vector<std::pair<std::vector<u64>, u32>>;  // of each its bytes, and the data's end

inline Pages pages_of(const LocalRing& ring) {
  Pages pages;
  Reader<> reader(ring.ring);
  while (reader.get_reader(false) == Got::data) {
    const ReaderView& view = reader.view();
    auto& page = pages.emplace_back(std::vector<u64>(ring.ring.geometry.subbuf_size() / 8), view.end);
    __builtin_memcpy(page.first.data(), ring.ring.subbuf(view.id), ring.ring.geometry.subbuf_size());
  }
  return pages;
}

class PagesSource final : public Source {  // from the start; the pages must outlive it
 public:
  explicit PagesSource(const Pages& pages) : Source({}, clock()), pages_(pages) {}
  result<std::optional<SubBufferView>> next() override {
    if (at_ == pages_.size()) return std::nullopt;
    const auto& [bytes, end] = pages_[at_++];
    return SubBufferView{reinterpret_cast<const u8*>(bytes.data()), 0, end, 0, bytes[0]};
  }
  Counters counters() const override { return {}; }
  bool ended() const override { return true; }

 private:
  // Ticks of Given begin at 0: before the base of a clock of this machine they could be before time 0.
  static ClockInfo clock() {
    ClockInfo clock = calibrate(best_clock());
    clock.base_ticks = clock.base_ns = 0;
    return clock;
  }

  const Pages& pages_;
  size_t at_ = 0;
};

// CPU time of this thread: what one core does in it, independent of other threads on that core.
u64 cpu_ns();

// A recording's rings, one for each CPU.
inline void add_rings(RecordingWriter& writer, u32 rings, u32 subbuf_size) {
  for (u32 ring = 0; ring < rings; ++ring) {
    RingName name;
    name.ring = ring;
    name.cpu = static_cast<i32>(ring);
    must(writer.add_ring(name, subbuf_size));
  }
}

}  // namespace bench
