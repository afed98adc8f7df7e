#include "remote/survey.hpp"

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/base/memory_hardware.hpp>

namespace ringside::remote {
namespace {

const abi::PageFooter& footer_of(const u8* page, u32 subbuf_size) {
  return *reinterpret_cast<const abi::PageFooter*>(page + subbuf_size - abi::footer_size);
}

std::string page_of(u32 ring, u32 id) { return "ring " + std::to_string(ring) + ", sub-buffer " + std::to_string(id); }

// Reads time stamp and end of the data; false: the sub-buffer is empty or invalid.
bool check_page(const u8* page, u32 capacity, u32 ring, PageSeen& seen, Survey& out) {
  const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(page);
  seen.end = abi::commit_size(Hardware::load(&header.commit, Order::acquire));  // pairs: COMMIT
  seen.time = Hardware::load(&header.time_stamp, Order::relaxed);
  seen.sub_buffer = page;
  if (seen.end > capacity || seen.end % 4 != 0) {
    out.problems.push_back(page_of(ring, seen.id) + ": it claims " + std::to_string(seen.end) + " bytes of data, of " +
                           std::to_string(capacity) + "; it is left out");
    return false;
  }
  if (seen.end == 0) return false;
  seen.events = count_events(page, seen.end);
  return true;
}

// Whether a swap that was interrupted left both as reader pages: the newer one goes on where the older one ends. The first
// reader page is empty, and has no position.
bool goes_on(const u8* older, const u8* newer, u32 subbuf_size) {
  const abi::PageFooter &a = footer_of(older, subbuf_size), &b = footer_of(newer, subbuf_size);
  const auto get = [](const u64& word) { return Hardware::load(&word, Order::relaxed); };
  const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(older);
  const u32 end = abi::commit_size(Hardware::load(&header.commit, Order::acquire));  // pairs: COMMIT
  const u32 capacity = subbuf_size - abi::header_size - abi::footer_size;
  const u64 events = end <= capacity ? count_events(older, end) : 0;
  return (end == 0 || get(a.pages_touched) < get(b.pages_touched)) &&
         get(b.entries) - get(a.entries) - events == get(b.overrun) - get(a.overrun);
}

// Has one of them all that the other one has? Then they are one sub-buffer at two moments.
bool is_copy(const u8* a, const u8* b, u32 subbuf_size) {
  const auto end = [](const u8* page) {
    return abi::commit_size(
        Hardware::load(&reinterpret_cast<const abi::SubBufferHeader*>(page)->commit, Order::acquire));  // pairs: COMMIT
  };
  const abi::PageFooter &f = footer_of(a, subbuf_size), &g = footer_of(b, subbuf_size);
  const u32 both = std::min(end(a), end(b));
  return both <= subbuf_size - abi::header_size - abi::footer_size && std::memcmp(a, b, sizeof(u64)) == 0 &&
         f.entries == g.entries && f.pages_touched == g.pages_touched &&
         std::memcmp(a + abi::header_size, b + abi::header_size, both) == 0;
}

}  // namespace

u64 count_events(const u8* sub_buffer, u32 end) noexcept {
  u64 n = 0;
  abi::EventCursor c(sub_buffer + abi::header_size, 0, end, 0);
  while (c.next()) ++n;
  return n;
}

Survey survey_footers(const std::vector<const u8*>& pages, u32 subbuf_size, u32 ring) {
  Survey out;
  const u32 capacity = subbuf_size - abi::header_size - abi::footer_size;
  u64 reader_position = 0;
  u32 reader = ~0u;
  // An interrupted swap leaves two reader pages: the one with the later position is the new one.
  for (u32 id = 0; id < pages.size(); ++id) {
    if (pages[id] == nullptr) continue;
    const abi::PageFooter& f = footer_of(pages[id], subbuf_size);
    if ((Hardware::load(&f.reader_status, Order::acquire) & abi::footer_reader) == 0) continue;  // pairs: PLACE
    const u64 position = Hardware::load(&f.pages_touched, Order::relaxed);
    const bool older = reader != ~0u && position < reader_position;
    if (reader != ~0u && is_copy(pages[reader], pages[id], subbuf_size)) continue;
    if (reader != ~0u && !goes_on(pages[older ? id : reader], pages[older ? reader : id], subbuf_size))
      out.problems.push_back("two reader pages for ring " + std::to_string(ring) + ", sub-buffers " + std::to_string(reader) +
                             " and " + std::to_string(id) +
                             ": two writers have rings of this number, and events of the one that wrote less are left out");
    if (older) continue;
    reader = id;
    reader_position = position;
    out.reader_base = Hardware::load(&f.entries, Order::relaxed);
    out.reader_overrun = Hardware::load(&f.overrun, Order::relaxed);
  }
  out.saw_reader = reader != ~0u;
  const bool stood =
      reader != ~0u && abi::commit_size(Hardware::load(&reinterpret_cast<const abi::SubBufferHeader*>(pages[reader])->commit,
                                                       Order::acquire)) != 0;
  for (u32 id = 0; id < pages.size(); ++id) {
    if (pages[id] == nullptr) continue;
    PageSeen seen;
    seen.id = id;
    if (!check_page(pages[id], capacity, ring, seen, out)) continue;
    const abi::PageFooter& f = footer_of(pages[id], subbuf_size);
    seen.position = Hardware::load(&f.pages_touched, Order::relaxed);
    seen.base = Hardware::load(&f.entries, Order::relaxed);
    if (stood && id != reader && seen.position < reader_position) continue;  // read and given back before
    out.pages.push_back(seen);
  }
  std::stable_sort(out.pages.begin(), out.pages.end(),
                   [](const PageSeen& a, const PageSeen& b) { return a.position < b.position; });
  std::vector<PageSeen> good;
  for (const PageSeen& p : out.pages) {
    if (!good.empty() && p.position == good.back().position && is_copy(good.back().sub_buffer, p.sub_buffer, subbuf_size)) {
      // A machine may have a page twice, one of them older.
      if (p.end > good.back().end) good.back() = p;
      continue;
    }
    if (!good.empty() && p.position == good.back().position) {
      out.problems.push_back(page_of(ring, p.id) + " and " + std::to_string(good.back().id) + " both claim position " +
                             std::to_string(p.position) + "; the second is left out");
      continue;
    }
    if (!good.empty() && p.base < good.back().base + good.back().events) {
      out.problems.push_back(page_of(ring, p.id) + ": its first event is number " + std::to_string(p.base) +
                             ", but the sub-buffer before it goes on to " +
                             std::to_string(good.back().base + good.back().events) + "; it is left out");
      continue;
    }
    good.push_back(p);
  }
  out.pages = std::move(good);
  out.has_reader = stood && !out.pages.empty() && out.pages.front().id == reader;
  return out;
}

Survey survey_stamps(const std::vector<const u8*>& pages, const Geometry& geometry, u32 reader, u32 ring) {
  Survey out;
  PageSeen own;
  own.id = reader;
  const bool stood = reader < pages.size() && check_page(pages[reader], geometry.capacity(), ring, own, out);
  for (u32 id = 0; id < pages.size(); ++id) {
    PageSeen seen;
    seen.id = id;
    if (id == reader || !check_page(pages[id], geometry.capacity(), ring, seen, out)) continue;
    if (stood && seen.time <= own.time) continue;
    out.pages.push_back(seen);
  }
  std::stable_sort(out.pages.begin(), out.pages.end(), [](const PageSeen& a, const PageSeen& b) { return a.time < b.time; });
  if (stood) out.pages.insert(out.pages.begin(), own);
  out.has_reader = stood;
  return out;
}

}  // namespace ringside::remote
