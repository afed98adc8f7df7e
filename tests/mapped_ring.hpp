// A ring in a file, which a MappedSource maps a second time, read-only; the ring's own reader moves it on as the kernel's ioctl
// would.
#pragma once
#include <gtest/gtest.h>
#include <ringside/ring/reader.hpp>
#include <ringside/ring/writer.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "source/mapped.hpp"
#include "ticks.hpp"

namespace ringside::test {

struct MappedRing {
  explicit MappedRing(u32 subbufs = 4, u32 subbuf_size = 4096) {
    ring.geometry = Geometry(subbuf_size, subbufs);
    fd = sys::Fd(memfd_create("ring", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(ring.geometry.data_size())), 0);
    data = must(sys::Region::map(fd.get(), ring.geometry.data_size(), true, "ring"));
    control.resize((control_size(ring.geometry) + 63) / 64);
    ring.control = reinterpret_cast<Control*>(control.data());
    ring.data = data.data();
    reader = std::make_unique<Reader<>>(ring);
    writer = std::make_unique<Writer<Ticks<10>>>(ring, Ticks<10>{&time});
    reader->update_meta();
  }
  // By default 28 bytes on the sub-buffer: 20 are left at its end, room for the number of missed events.
  void write(u64 value, u32 size = 24) {
    if (Reservation s = writer->reserve(size)) {
      std::memcpy(s.payload, &value, 8);
      writer->commit(s);
    }
  }
  abi::MetaPage& meta() { return *reinterpret_cast<abi::MetaPage*>(ring.data); }
  sys::Region map() { return must(sys::Region::map(fd.get(), ring.geometry.data_size(), false, "ring")); }

  struct alignas(64) Line {
    u8 bytes[64] = {};
  };
  Ring ring;
  sys::Fd fd;
  sys::Region data;
  std::vector<Line> control;
  u64 time = 1000;
  std::unique_ptr<Reader<>> reader;
  std::unique_ptr<Writer<Ticks<10>>> writer;
};

// The kernel's way: nothing is said but what stands in the meta-page.
struct ByMetaPage {
  MappedRing* ring;
  result<ReaderStep> get_reader() {
    ring->reader->get_reader();
    return ReaderStep{};
  }
  result<bool> wait(int, std::chrono::nanoseconds) { return false; }
};
using MetaPageSource = MappedSource<ByMetaPage>;

inline MetaPageSource source_of(MappedRing& ring, bool copies = false) {
  MetaPageSource::Options options;
  options.copies = copies;
  return MetaPageSource(ring.map(), ring.ring.geometry, ByMetaPage{&ring}, options);
}

}  // namespace ringside::test
