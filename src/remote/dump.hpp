// Finds external writers' rings with page footers in a memory dump: a guest's, a firmware's, a shared region's. Nothing else
// from the writer or the reader is needed. Every byte may be hostile.
#pragma once
#include "remote/survey.hpp"
#include "source/source.hpp"

namespace ringside::remote {

struct DumpedRing {
  u32 ring = 0, subbuf_size = 0;
  Survey survey;
  // Events lost between survey.pages[page] and the one before it; before the first one those that were overwritten, if the
  // reader had taken none.
  u64 lost_before(size_t page) const noexcept;
};

// All rings, by id. The pieces of memory (memory_image.hpp) must be 8-byte aligned; the result keeps pointers into them.
std::vector<DumpedRing> find_rings(const std::vector<Bytes>& pieces);

// A dumped ring as a source that has ended.
class DumpSource final : public Source {
 public:
  DumpSource(const DumpedRing& ring, const ClockInfo& clock);
  result<std::optional<SubBufferView>> next() override;
  Counters counters() const override;
  bool ended() const override { return true; }

 private:
  DumpedRing ring_;
  size_t next_ = 0;
  u64 read_ = 0, lost_ = 0;
};

}  // namespace ringside::remote
