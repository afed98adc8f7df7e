// A descriptor of any bytes. C++ and C say the same of it, but for rings that are too large for the writer in C. An accepted
// one names memory inside the region, no sub-buffers overlap, and a writer can be built on it. The checksum is corrected, so
// that the code after its check is reached; every 8th input keeps its own.
#include <ringside/remote.h>
#include <ringside/remote/remote_writer.hpp>

#include <cstdlib>
#include <cstring>
#include <vector>

using namespace ringside;
using namespace ringside::remote;

// Does a ring have more sub-buffers than a writer in C takes? Walks as far as the rings are whole.
static bool too_large_in_c(const u8* blob, size_t bytes) {
  for (size_t at = sizeof(DescriptorHeader); at <= bytes && bytes - at >= sizeof(RingHeader);) {
    const u32 pages = ringside_get32(blob, at + 4);
    if (pages > RINGSIDE_SLOT_IDS) return true;
    at += sizeof(RingHeader) + size_t{pages} * 8;
  }
  return false;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* in, size_t size) {
  if (size < 1) return 0;
  std::vector<u64> blob((size + 6) / 8);  // of exactly the claimed length
  const size_t bytes = blob.size() * 8 < size - 1 ? blob.size() * 8 : size - 1;
  if (bytes != 0) std::memcpy(blob.data(), in + 1, bytes);
  auto* const at = reinterpret_cast<u8*>(blob.data());
  if (in[0] % 8 != 0 && bytes >= sizeof(DescriptorHeader)) {
    auto& h = *reinterpret_cast<DescriptorHeader*>(at);
    h.magic = descriptor_magic;
    h.version = descriptor_version;
    h.bytes = static_cast<u32>(bytes & ~size_t{7});
    h.checksum = checksum_of(at, h.bytes);
  }
  constexpr u64 region = 64 * 4096;
  Descriptor d;
  const Verdict v = WildDescriptor(at, bytes).check(region, d);
  const char* const in_c = ringside_descriptor_check(at, bytes, region);
  const bool differ = std::strcmp(in_c != nullptr ? in_c : to_string(Wrong::no), to_string(v.wrong)) != 0;
  if (differ && (in_c == nullptr || std::strcmp(in_c, to_string(Wrong::many_pages)) != 0 || !too_large_in_c(at, bytes)))
    std::abort();
  if (!v.good()) return d.nr_rings() == 0 ? 0 : (std::abort(), 0);
  std::vector<bool> used(64);
  for (u32 k = 0; k < d.nr_rings(); ++k) {
    const RingLayout r = d.ring(k);
    if (r.nr_pages < 3 || !d.geometry(r.nr_pages).valid()) std::abort();
    for (u32 n = 0; n <= r.nr_pages; ++n) {
      const u64 from = n == 0 ? r.meta : r.pages[n - 1];
      if (from + d.subbuf_size() > region) std::abort();
      for (u64 page = from / 4096; page < (from + d.subbuf_size()) / 4096; ++page) {
        if (used[page]) std::abort();
        used[page] = true;
      }
    }
  }
  return 0;
}
