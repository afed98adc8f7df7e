// A memory dump of any content: rings found in it lie inside it, their order is consistent, and reading them ends. The input is
// patched over the dump of a good writer, in pieces of {u16 place, u8 how, u8 length, bytes}.
#include <ringside/abi/event_cursor.hpp>
#include <ringside/remote/remote_writer.hpp>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "remote/dump.hpp"
#include "ticks.hpp"

using namespace ringside;
using namespace ringside::remote;

namespace {

constexpr Plan plan{Layout::footers, 2, 4096, 2, 4};
constexpr u64 size = plan.region_bytes();

void fill(u8* region) {
  alignas(8) u8 blob[plan.descriptor_bytes()];
  pack(plan, blob);
  Descriptor d;
  if (!WildDescriptor(blob, sizeof blob).check(size, d).good()) std::abort();
  alignas(64) static u8 memory[2][1024];
  std::memset(memory, 0, sizeof memory);
  const u64 payload[2] = {1, 2};
  for (u32 ring = 0; ring < 2; ++ring) {
    u64 time = 0;
    RemoteWriter<test::Ticks<>> w(d, d.ring(ring), region, memory[ring], {&time});
    w.enable();
    for (int k = 0; k < (ring == 0 ? 1000 : 50); ++k) (void)w.write(payload, 16);
    if (ring == 0) (void)w.swap_reader(0);
    w.update_footers();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* in, size_t left) {
  static const std::vector<u64> good = [] {
    std::vector<u64> words(size / 8);
    fill(reinterpret_cast<u8*>(words.data()));
    return words;
  }();
  std::vector<u64> words = good;
  auto* const region = reinterpret_cast<u8*>(words.data());
  while (left >= 4) {
    u16 place;
    std::memcpy(&place, in, 2);
    const u64 page = place / 64 % (size / page_size) * page_size;
    const u64 at = in[2] % 3 == 0 ? page + page_size - 64 + place % 64 : in[2] % 3 == 1 ? page + place % 64 : place % size;
    const u64 n = std::min<u64>({in[3], left - 4, size - at});
    std::memcpy(region + at, in + 4, n);
    in += 4 + n;
    left -= 4 + n;
  }
  for (const DumpedRing& ring : find_rings({Bytes{region, size}})) {
    u64 next = 0, position = 0;
    bool first = true;
    for (const PageSeen& p : ring.survey.pages) {
      if (p.sub_buffer < region || p.sub_buffer + ring.subbuf_size > region + size || p.end > ring.subbuf_size - 48)
        std::abort();
      if (p.base < next || (!first && p.position <= position)) std::abort();
      next = p.base + p.events;
      position = p.position;
      first = false;
    }
    DumpSource source(ring, ClockInfo{});
    while (auto view = *source.next()) {
      abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
      while (c.next()) {
        if (c.payload().data < region || c.payload().data + c.payload().size > region + size) std::abort();
      }
    }
    const Counters c = source.counters();
    if (c.written != c.read + c.unread + c.overrun) std::abort();
  }
  return 0;
}
