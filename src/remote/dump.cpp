#include "remote/dump.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "remote/memory_image.hpp"

namespace ringside::remote {

u64 DumpedRing::lost_before(size_t page) const noexcept {
  if (page == 0) {
    const u64 base = survey.pages[0].base;
    return survey.saw_reader && !survey.has_reader && base > survey.reader_base ? base - survey.reader_base : 0;
  }
  const PageSeen &before = survey.pages[page - 1], &now = survey.pages[page];
  const u64 end = before.base + before.events;
  return now.base > end ? now.base - end : 0;
}

std::vector<DumpedRing> find_rings(const std::vector<Bytes>& pieces) {
  std::map<std::pair<u32, u32>, std::vector<const u8*>> found;  // ring and sub-buffer size
  for (const Bytes& piece : pieces) {
    for (u64 end = page_size; end <= piece.size; end += page_size) {
      const u64 size = sub_buffer_ending_in(piece.data + end);
      if (size == 0 || size > end) continue;
      abi::PageFooter f{};
      std::memcpy(&f, piece.data + end - abi::footer_size, sizeof f);
      found[{f.reader_status >> 8, static_cast<u32>(size)}].push_back(piece.data + end - size);
    }
  }
  std::vector<DumpedRing> rings;
  for (auto& [key, pages] : found) {
    DumpedRing ring{key.first, key.second, survey_footers(pages, key.second, key.first)};
    const auto same = [&](const DumpedRing& r) { return r.ring == ring.ring; };
    if (std::any_of(rings.begin(), rings.end(), same))
      ring.survey.problems.push_back("ring " + std::to_string(ring.ring) +
                                     " was found with sub-buffers of two sizes; each is taken for a ring");
    rings.push_back(std::move(ring));
  }
  return rings;
}

DumpSource::DumpSource(const DumpedRing& ring, const ClockInfo& clock) : Source({}, clock), ring_(ring) {
  name_.ring = ring.ring;
}

result<std::optional<SubBufferView>> DumpSource::next() {
  if (next_ == ring_.survey.pages.size()) return std::nullopt;
  const PageSeen& p = ring_.survey.pages[next_];
  const u64 lost = ring_.lost_before(next_++);
  read_ += p.events;
  lost_ += lost;
  return SubBufferView{p.sub_buffer, 0, p.end, lost, p.time};
}

Counters DumpSource::counters() const {
  Counters n;
  n.subbuf_size = ring_.subbuf_size;
  n.nr_subbufs = ring_.survey.pages.size();
  n.read = read_;
  for (size_t k = next_; k < ring_.survey.pages.size(); ++k) n.unread += ring_.survey.pages[k].events;
  for (size_t k = 0; k < ring_.survey.pages.size(); ++k) n.overrun += ring_.lost_before(k);
  if (ring_.survey.has_reader) n.overrun += ring_.survey.reader_overrun;
  // Events before the oldest sub-buffer are gone: read while the writer lived, or overwritten.
  n.written = n.read + n.unread + n.overrun;
  return n;
}

}  // namespace ringside::remote
