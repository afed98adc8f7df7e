// A mapped ring whose other side is hostile: meta-page and sub-buffers change between the calls, and GetReader gives the
// input's answers. Every view lies inside the sub-buffer it names, and walking it ends.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "source/mapped.hpp"

using namespace ringside;

namespace {

constexpr u32 subbufs = 4, subbuf_size = 4096;

struct Input {
  const uint8_t* at;
  size_t left;
  template <class T>
  T take() {
    T value{};
    const size_t n = left < sizeof value ? left : sizeof value;
    if (n != 0) std::memcpy(&value, at, n);
    at += n;
    left -= n;
    return value;
  }
};

struct Liar {
  Input* input;
  u8* memory;
  result<ReaderStep> get_reader() {
    // A few writes anywhere in the mapping, near the interesting words more often than not.
    for (u32 n = input->take<u8>() % 8; n != 0; --n) {
      const u32 where = input->take<u16>();
      const u32 size = subbuf_size * (subbufs + 1);
      const u32 offset = where % 4 == 0   ? where / 4 % 80
                         : where % 4 == 1 ? subbuf_size * (1 + where / 4 % subbufs) + where / 16 % 64
                                          : where % size;
      const u64 value = input->take<u64>();
      std::memcpy(memory + (offset & ~3u), &value, size - (offset & ~3u) < 8 ? 4 : 8);
    }
    const u8 how = input->take<u8>();
    if (how == 0xFF) return refuse(std::errc::io_error, "no");
    ReaderStep step;
    step.placed = (how & 1) != 0;
    step.id = (how & 2) != 0 ? input->take<u32>() : how / 4 % subbufs;
    step.read = (how & 4) != 0 ? input->take<u32>() : input->take<u16>();
    step.lost = (how & 8) != 0 ? input->take<u64>() : 0;
    step.ended = (how & 16) != 0;
    return step;
  }
  result<bool> wait(int, std::chrono::nanoseconds) { return false; }
};

struct SharedBytes {
  sys::Fd fd;
  sys::Region region;
  SharedBytes() : fd(memfd_create("ring", MFD_CLOEXEC)) {
    if (ftruncate(fd.get(), subbuf_size * (subbufs + 1)) != 0) std::abort();
    region = must(sys::Region::map(fd.get(), subbuf_size * (subbufs + 1), true, "ring"));
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static SharedBytes memory;
  u8* const base = memory.region.data();
  std::memset(base, 0, memory.region.size());
  Input input{bytes, size};
  const bool copies = (input.take<u8>() & 1) != 0;
  const Geometry geometry(subbuf_size, subbufs);
  MappedSource<Liar>::Options options;
  options.copies = copies;
  MappedSource<Liar> source(must(sys::Region::map(memory.fd.get(), geometry.data_size(), false, "ring")), geometry,
                            Liar{&input, base}, options);
  u64 sum = 0;
  for (int calls = 0; input.left != 0 && calls < 64; ++calls) {
    auto view = source.next();
    if (!view || !*view) continue;
    const SubBufferView& v = **view;
    if (v.begin >= v.end || v.end > geometry.capacity() || v.begin % 4 != 0 || v.end % 4 != 0) std::abort();
    if (!copies) {
      const auto* const mapped = reinterpret_cast<const u8*>(&source.meta());
      const u64 offset = static_cast<u64>(v.sub_buffer - mapped);
      if (v.sub_buffer < mapped || offset % subbuf_size != 0 || offset == 0 || offset > u64{subbuf_size} * subbufs)
        std::abort();
    }
    abi::EventCursor c(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
    while (c.next())
      for (size_t i = 0; i < c.payload().size; ++i) sum += c.payload().data[i];
    sum += source.counters().unread;
  }
  return sum == 1 ? 1 : 0;
}
