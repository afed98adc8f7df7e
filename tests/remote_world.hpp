// A buffer for an external writer, and its writer in this process, which shares nothing with the buffer but its region.
#pragma once
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "remote/buffer.hpp"
#include "ticks.hpp"

namespace ringside::test {

class RemoteWorld {
 public:
  using TestWriter = remote::RemoteWriter<Ticks<>>;

  explicit RemoteWorld(remote::Layout layout, u64 size = 4096 * 3, u32 rings = 1, u32 subbuf_size = 4096) {
    using namespace remote;
    Buffer::Options options;
    options.size = size;
    options.rings = rings;
    options.layout = layout;
    options.subbuf_size = subbuf_size;
    options.clock.kind = ClockKind::counter;
    options.who = "tester";
    Callbacks callbacks;
    callbacks.swap_reader = [this](u32 ring, u32 read) -> result<SwapAnswer> {
      ++swaps;
      if (answer) return answer(ring, read);
      const Swapped did = writers[ring]->swap_reader(read);
      return SwapAnswer{did, static_cast<u32>(writers[ring]->refused()), true};
    };
    callbacks.update_footers = [this](u32 ring) -> result<void> {
      writers[ring]->update_footers();
      return {};
    };
    callbacks.reset = [this](u32 ring) -> result<void> {
      if (answer_to_reset) return answer_to_reset(ring);
      empty(ring);
      return {};
    };
    buffer = must(Buffer::create(options, std::move(callbacks)));
    bytes = buffer->region_bytes();
    region = static_cast<u8*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd(), 0));
    Descriptor d;
    const auto& blob = buffer->descriptor();
    EXPECT_TRUE(WildDescriptor(blob.data(), blob.size() * 8).check(bytes, d).good());
    for (u32 k = 0; k < rings; ++k) {
      const u64 room = TestWriter::private_bytes(d.ring(k));
      memory.emplace_back(std::aligned_alloc(64, room), std::free);
      std::memset(memory.back().get(), 0, room);
      writers.push_back(std::make_unique<TestWriter>(d, d.ring(k), region, memory.back().get(), Ticks<>{&time}));
      writers.back()->enable();
    }
  }
  ~RemoteWorld() {
    buffer->poll_every(std::chrono::nanoseconds(0));
    munmap(region, bytes);
  }
  RemoteWorld(const RemoteWorld&) = delete;
  RemoteWorld& operator=(const RemoteWorld&) = delete;

  bool write(u64 number, u32 size = 16, u32 ring = 0) {
    return writers[ring]->write(size, [&](u8* to) { std::memcpy(to, &number, 8); });
  }
  void empty(u32 ring) {
    writers[ring]->disable();
    writers[ring]->reset();
    writers[ring]->enable();
  }
  u8* page(u32 id, u32 ring = 0) {
    return region + ring * buffer->plan().ring_bytes() + (id + 1) * u64{buffer->plan().subbuf_size};
  }
  abi::PageFooter& footer(u32 id, u32 ring = 0) {
    return *reinterpret_cast<abi::PageFooter*>(page(id, ring) + buffer->plan().subbuf_size - abi::footer_size);
  }

  std::shared_ptr<remote::Buffer> buffer;
  u8* region = nullptr;
  u64 bytes = 0, time = 0, swaps = 0;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory;
  std::vector<std::unique_ptr<TestWriter>> writers;
  std::function<result<remote::SwapAnswer>(u32, u32)> answer;
  std::function<result<void>(u32)> answer_to_reset;
};

}  // namespace ringside::test
