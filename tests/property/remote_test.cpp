// Random sequences of operations of an external writer, in C++ and in plain C, and its reader, in both layouts, against a model
// made only of lists.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/remote.h>
#include <sys/mman.h>

#include <cstring>
#include <deque>

#include "remote/buffer.hpp"
#include "ticks.hpp"

namespace ringside::test::remote_test {
namespace {

using namespace remote;

using Counting = Ticks<5>;

// The sub-buffers in order; the reader's is separate.
struct Lists {
  struct SubBuffer {
    std::vector<u64> events;
    u32 used = 0;
  };
  u32 capacity, slots;
  std::deque<SubBuffer> ring{1};
  std::optional<SubBuffer> reader{};
  bool tail_is_readers = false;
  u64 consumed = 0;  // events of the reader's sub-buffer
  u64 overrun = 0, read = 0, pending = 0;

  SubBuffer& tail() { return tail_is_readers ? *reader : ring.back(); }
  void room(u32 size) {
    if (tail().used + size <= capacity) return;
    tail().used = capacity;
    if (tail_is_readers) {
      tail_is_readers = false;
    } else if (ring.size() == slots) {
      overrun += ring.front().events.size();
      pending += ring.front().events.size();
      ring.pop_front();
    }
    ring.emplace_back();
  }
  void put(u64 number, u32 size) {
    room(size);
    tail().used += size;
    tail().events.push_back(number);
  }
  // All events that can be read now, and the number missing in front of them.
  std::pair<std::vector<u64>, u64> drain() {
    std::vector<u64> out;
    u64 lost = 0;
    const auto rest = [&] {
      for (; consumed < reader->events.size(); ++consumed) out.push_back(reader->events[consumed]);
    };
    if (reader) rest();
    while (!tail_is_readers && !ring.empty()) {
      const bool is_tail = ring.size() == 1;
      if (is_tail && ring.front().events.empty()) break;
      reader = std::move(ring.front());
      ring.pop_front();
      consumed = 0;
      tail_is_readers = is_tail;
      if (!reader->events.empty()) lost += std::exchange(pending, 0);
      rest();
    }
    read += out.size();
    return {out, lost};
  }
};

// ringside/remote.h with the names of RemoteWriter.
class PlainC {
 public:
  static u64 private_bytes(const RingLayout& r) { return u64{r.nr_pages} * sizeof(ringside_page); }
  PlainC(const Descriptor& d, const RingLayout&, void* region, void* memory, Counting clock, const std::vector<u64>& blob)
      : clock_(clock) {
    RC_ASSERT((ringside_descriptor_check(blob.data(), blob.size() * 8, d.region_bytes()) == nullptr) == true);
    RC_ASSERT(ringside_ring_pages(blob.data(), 0) == d.ring(0).nr_pages);
    ringside_ring_init(
        &ring_, blob.data(), 0, region, static_cast<ringside_page*>(memory),
        [](void* c) { return static_cast<Counting*>(c)->now(); }, &clock_);
  }
  PlainC(const PlainC&) = delete;
  PlainC& operator=(const PlainC&) = delete;
  void enable() { ringside_ring_enable(&ring_); }
  void disable() {
    ringside_ring_disable(&ring_);
    RC_ASSERT(!write(8, [](u8*) {}));
  }
  void reset() {
    ringside_ring_reset(&ring_);
    nested_ = 0;
    RC_ASSERT(refused() == 0u);
  }
  u64 refused() const { return ringside_ring_refused(&ring_); }
  void update_footers() { ringside_ring_update(&ring_); }
  template <class Fill>
  bool write(u32 size, Fill fill) {
    void* const to = ringside_ring_reserve(&ring_, size);
    if (to == nullptr) return false;
    RC_ASSERT((ringside_ring_reserve(&ring_, 8) == nullptr) == true);  // nested
    ++nested_;
    fill(static_cast<u8*>(to));
    ringside_ring_commit_event(&ring_);
    RC_ASSERT(ring_.nested == nested_);
    return true;
  }
  Swapped swap_reader(u32 read) {
    u32 id = 0;
    const auto what = static_cast<Swap>(ringside_ring_swap(&ring_, read, &id));
    return {what, id};
  }

 private:
  Counting clock_;
  ringside_ring ring_;
  u32 nested_ = 0;
};

template <class W>
void check(Layout layout) {
  constexpr bool plain = std::is_same_v<W, PlainC>;
  u64 clock = 0;
  std::unique_ptr<W> writer;
  Buffer::Options options;
  options.size = *rc::gen::inRange<u64>(1, 20000);
  options.subbuf_size = *rc::gen::element(4096u, 8192u);
  options.layout = layout;
  Callbacks callbacks;
  callbacks.swap_reader = [&](u32, u32 read) -> result<SwapAnswer> { return SwapAnswer{writer->swap_reader(read)}; };
  callbacks.update_footers = [&](u32) -> result<void> { return writer->update_footers(), result<void>{}; };
  callbacks.reset = [&](u32) -> result<void> { return writer->disable(), writer->reset(), writer->enable(), result<void>{}; };
  const auto buffer = must(Buffer::create(options, std::move(callbacks)));
  Descriptor d;
  RC_ASSERT(
      WildDescriptor(buffer->descriptor().data(), buffer->descriptor().size() * 8).check(buffer->region_bytes(), d).good());
  void* const region = mmap(nullptr, buffer->region_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd(), 0);
  const std::unique_ptr<void, void (*)(void*)> memory(
      std::aligned_alloc(64, align_up(size_t{W::private_bytes(d.ring(0))}, size_t{64})), std::free);
  std::memset(memory.get(), 0, W::private_bytes(d.ring(0)));
  if constexpr (plain)
    writer = std::make_unique<W>(d, d.ring(0), region, memory.get(), Counting{&clock}, buffer->descriptor());
  else
    writer = std::make_unique<W>(d, d.ring(0), region, memory.get(), Counting{&clock});
  writer->enable();
  auto source = must(buffer->source(0));
  const auto fresh = [&] { return Lists{d.geometry(3).capacity(), buffer->plan().nr_pages - 1}; };
  Lists model = fresh();
  u64 next = 0, written = 0;

  const auto put = [&](u32 size) {
    const u64 number = next++;
    RC_ASSERT(writer->write(size, [&](u8* to) { std::memcpy(to, &number, 8); }));
    model.put(number, abi::event_size(size));
    ++written;
  };
  const auto drain = [&] {
    std::vector<u64> numbers;
    u64 lost = 0;
    for (auto view = must(source->next()); view; view = must(source->next())) {
      lost += view->lost_before;
      abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
      while (c.next()) {
        u64 n;
        std::memcpy(&n, c.payload().data, 8);
        numbers.push_back(n);
        RC_ASSERT(c.time() <= clock);
      }
      RC_ASSERT(c.malformed() == abi::Malformed::no);
    }
    const auto [expected, expected_lost] = model.drain();
    RC_ASSERT(numbers == expected);
    RC_ASSERT(lost == expected_lost);
  };
  const auto steps = *rc::gen::container<std::vector<std::pair<int, u32>>>(
      rc::gen::pair(rc::gen::inRange(0, 12), rc::gen::inRange(8u, 1500u)));
  for (const auto& [what, size] : steps) {
    switch (what) {
      case 0:
      case 1: drain(); break;
      case 2:
        if constexpr (!plain) {
          if (const Reservation slot = writer->reserve(size)) {
            model.room(abi::event_size(size));
            RC_ASSERT(writer->discard(slot));
          }
        }
        break;
      case 3:
        for (u32 i = 0; i < size / 4; ++i) put(8 + i % 50);
        break;
      case 4: (void)must(buffer->poke(0)); break;
      case 5:
        if (size % 4 != 0) break;
        source = nullptr;
        must(buffer->reset(0));
        RC_ASSERT(writer->refused() == 0u);
        model = fresh();
        written = 0;
        source = must(buffer->source(0));
        break;
      default: put(size);
    }
    const Counters c = source->counters();
    RC_ASSERT(c.written == written);
    RC_ASSERT(c.overrun == model.overrun);
    RC_ASSERT(c.read == model.read);
    RC_ASSERT(c.written == c.read + c.unread + c.overrun);
  }
  if (*rc::gen::arbitrary<bool>()) buffer->gone("it died");  // makes no difference
  drain();
  const Counters c = source->counters();
  RC_ASSERT(c.read + c.overrun == written);
  RC_ASSERT(c.unread == 0u);
  munmap(region, buffer->region_bytes());
}

RC_GTEST_PROP(Property, RemoteFootersAgainstLists, ()) { check<RemoteWriter<Counting>>(Layout::footers); }
RC_GTEST_PROP(Property, RemoteMetaPageAgainstLists, ()) { check<RemoteWriter<Counting>>(Layout::meta_page); }
RC_GTEST_PROP(Property, RemoteFootersInCAgainstLists, ()) { check<PlainC>(Layout::footers); }
RC_GTEST_PROP(Property, RemoteMetaPageInCAgainstLists, ()) { check<PlainC>(Layout::meta_page); }

}  // namespace
}  // namespace ringside::test::remote_test
