// A dump file of any content: what is found in it lies inside it or in copies, and reading it ends in bounded memory. The first
// byte chooses a good file (raw, ELF core, kdump, kdump for pipes) or none; the rest is patched over it in pieces of {u16
// place, u8 length, bytes}, or is the file.
#include <cstdlib>
#include <cstring>
#include <ringside/remote/remote_writer.hpp>
#include <vector>

#include "dump_files.hpp"
#include "remote/dump.hpp"
#include "remote/memory_image.hpp"
#include "ticks.hpp"

using namespace ringside;
using namespace ringside::remote;

namespace {

constexpr Plan plan{Layout::footers, 2, 4096, 1, 4};

std::vector<std::string> good_files() {
  alignas(8) u8 blob[plan.descriptor_bytes()];
  pack(plan, blob);
  Descriptor d;
  if (!WildDescriptor(blob, sizeof blob).check(plan.region_bytes(), d).good()) std::abort();
  std::vector<u64> region(plan.region_bytes() / 8);
  alignas(64) static u8 memory[1024];
  u64 time = 0;
  RemoteWriter<test::Ticks<>> w(d, d.ring(0), reinterpret_cast<u8*>(region.data()), memory, {&time});
  w.enable();
  const u64 payload[2] = {1, 2};
  for (int k = 0; k < 600; ++k) (void)w.write(payload, 16);
  const Bytes all{reinterpret_cast<const u8*>(region.data()), plan.region_bytes()};
  const std::string compressed = test::kdump(all, true);
  return {"", std::string(reinterpret_cast<const char*>(all.data), all.size), test::elf_core(all, 4096, 0x3E8), compressed,
          test::flattened(compressed)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* in, size_t left) {
  static const std::vector<std::string> good = good_files();
  if (left == 0) return 0;
  std::string file = good[*in % good.size()];
  ++in, --left;
  if (file.empty()) {
    file.assign(reinterpret_cast<const char*>(in), left);
    left = 0;
  }
  while (left >= 3) {
    u16 place;
    std::memcpy(&place, in, 2);
    const size_t at = place % file.size(), n = std::min({size_t{in[2]}, left - 3, file.size() - at});
    std::memcpy(file.data() + at, in + 3, n);
    in += 3 + n;
    left -= 3 + n;
  }
  std::vector<u64> words(file.size() / 8 + 1);
  std::memcpy(words.data(), file.data(), file.size());
  const auto image = MemoryImage::of({reinterpret_cast<const u8*>(words.data()), file.size()});
  if (!image) return 0;
  for (const DumpedRing& ring : find_rings(image->pieces())) {
    DumpSource source(ring, ClockInfo{});
    for (auto view = source.next(); view && *view; view = source.next())
      if ((*view)->end > ring.subbuf_size) std::abort();
    (void)source.counters();
  }
  return 0;
}
