// An external writer's ring under the explorer: swaps beside writes, what the sub-buffers alone say after a death, and the
// order in which a new reader page is shown. The reader here sees the shared words only, as one in another process does.
#include <ringside/remote/remote_writer.hpp>

#include "ring_model.hpp"

// ringside/remote.h under the explorer: its orders, and the mutants of them.
namespace ringside::model::remote_test {
struct PlainOrders {
  Order load = Order::acquire, store = Order::release;
  bool missed_moved = false;  // goes on when the other side has changed the slot
};
inline PlainOrders plain_orders;
}  // namespace ringside::model::remote_test
using ringside::model::Explored;
static inline uint32_t ringside_load(const uint32_t* at) {
  return Explored::load(at, ringside::model::remote_test::plain_orders.load);
}
static inline void ringside_store(uint32_t* at, uint32_t value) {
  Explored::store(at, value, ringside::model::remote_test::plain_orders.store);
}
static inline uint32_t ringside_peek(const uint32_t* at) { return Explored::load(at, ringside::Order::relaxed); }
static inline void ringside_put(uint32_t* at, uint32_t value) { Explored::store(at, value, ringside::Order::relaxed); }
static inline uint64_t ringside_peek_long(const uint64_t* at) { return Explored::load(at, ringside::Order::relaxed); }
static inline void ringside_put_long(uint64_t* at, uint64_t value) { Explored::store(at, value, ringside::Order::relaxed); }
static inline bool ringside_cas(uint32_t* at, uint32_t before, uint32_t after) {
  return Explored::cas(at, before, after) || ringside::model::remote_test::plain_orders.missed_moved;
}
#define RINGSIDE_OWN_MEMORY
#define RINGSIDE_LIGHT_FENCE() Explored::fence_light()
#define RINGSIDE_RELEASE_FENCE() Explored::fence_release()
#include <ringside/remote.h>

namespace ringside::model::remote_test {
namespace {

using namespace remote;

constexpr u32 third = 1340;  // fits behind one of `half`, also in front of a footer

// The writer of ringside/remote.h, with the names of RemoteWriter.
class PlainWriter {
 public:
  struct Reserved {
    u8* payload;
    explicit operator bool() const { return payload != nullptr; }
  };
  static u64 private_bytes(const RingLayout& r) { return r.nr_pages * sizeof(ringside_page); }
  PlainWriter(const void* blob, u8* region, void* memory, u64* time) {
    require(ringside_descriptor_check(blob, 1 << 20, ~u64{0}) == nullptr, "a good descriptor");
    ringside_ring_init(
        &ring_, blob, 0, region, static_cast<ringside_page*>(memory), [](void* t) { return ++*static_cast<u64*>(t); }, time);
  }
  void enable() { ring_.off = 0; }
  Reserved reserve(u32 size) { return {static_cast<u8*>(ringside_ring_reserve(&ring_, size))}; }
  void commit(const Reserved&) { ringside_ring_commit_event(&ring_); }
  Swapped swap_reader(u32 read) {
    u32 id = 0;
    const auto what = static_cast<Swap>(ringside_ring_swap(&ring_, read, &id));
    return {what, id};
  }

 private:
  ringside_ring ring_;
};

template <Orders O = Orders{}, Nesting N = Nesting::handlers>
using InCpp = RemoteWriter<CountingClock, N, Explored, O>;

template <class W = InCpp<>>
class RemoteModel {
 public:
  static constexpr bool plain = std::is_same_v<W, PlainWriter>;
  struct Books {
    u64 time;
    u32 numbers;  // handed out
    u32 depth, written, refused;
    bool done[64], promised[64], seen[64];
    // The reader's.
    u32 id, at;
    u64 read, lost, next;  // next: index
  };

  RemoteModel(World& world, Layout layout, u32 pages = 3)
      : b(world.make<Books>()), plan_{layout, 2, 4096, 1, pages}, writer_(world.make<W>(1)) {
    region_ = static_cast<u8*>(world.allocate(plan_.region_bytes() + 4096));
    region_ = reinterpret_cast<u8*>(align_up(reinterpret_cast<u64>(region_), u64{4096}));
    void* const blob = world.allocate(plan_.descriptor_bytes());
    pack(plan_, blob);
    Descriptor d;
    require(WildDescriptor(blob, plan_.descriptor_bytes()).check(plan_.region_bytes(), d).good(), "a good descriptor");
    void* const memory = world.allocate(W::private_bytes(d.ring(0)));
    if constexpr (plain)
      new (writer_) W(blob, region_, memory, &b->time);
    else
      new (writer_) W(d, d.ring(0), region_, memory, CountingClock{&b->time});
    writer_->enable();
    for (u32 id = 0; id < pages; ++id) {
      const int i = static_cast<int>(id);
      world.name(page(id) + 8, "commit", i);
      world.name(page(id) + 16, "data", i);
      world.name(&footer(id).reader_status, "reader_status", i);
      world.name(&footer(id).pages_touched, "position", i);
      world.name(&footer(id).entries, "base", i);
    }
  }

  bool write(u32 size) const {
    ++b->depth;
    const auto slot = writer_->reserve(size);
    if (slot) {
      const u32 number = ++b->numbers;
      Explored::store(reinterpret_cast<u32*>(slot.payload), number, Order::relaxed);
      Explored::store(reinterpret_cast<u32*>(slot.payload + size - 4), number, Order::relaxed);
      writer_->commit(slot);
      b->done[number] = true;
      ++b->written;
    } else {
      ++b->refused;
    }
    if (--b->depth == 0)
      for (u32 n = 1; n <= b->numbers; ++n) b->promised[n] |= b->done[n];
    return bool(slot);
  }

  // All that the reader page shows; false: nothing new.
  bool look() const {
    const u32 end = commit_of(b->id);
    if (end <= b->at) return false;
    b->read += walk(b->id, b->at, end, true);
    b->next = b->read + b->lost;
    b->at = end;
    return true;
  }
  // One request to the writer's side; false: nothing new.
  bool ask() const {
    const Swapped s = writer_->swap_reader(b->at);
    require(s.what != Swap::corrupt, "a good ring is not called corrupt");
    if (s.what == Swap::nothing) return false;
    if (s.what == Swap::swapped) {
      b->id = s.id;
      b->at = 0;
      const u64 lost = shown_loss(s.id);
      b->lost = plan_.layout == Layout::footers ? lost : b->lost + lost;
    }
    return true;
  }
  bool read() const { return look() || ask(); }

  u64 shown_loss(u32 id) const {
    return plan_.layout == Layout::footers ? Explored::load(&footer(id).overrun, Order::relaxed)
                                           : Explored::load(&meta().reader.lost_events, Order::relaxed);
  }
  // Which page is the reader's, as shown.
  u32 shown_place() const {
    if (plan_.layout == Layout::meta_page) return Explored::load(&meta().reader.id, Order::acquire);
    for (u32 id = 0; id < plan_.nr_pages; ++id)
      if ((Explored::load(&footer(id).reader_status, Order::acquire) & abi::footer_reader) != 0 && id != 0) return id;
    return 0;
  }

  void balance() const {
    for (u32 budget = 100; budget != 0 && (look() || ask()); --budget) {
    }
    if (b->read + b->lost != b->written)
      fail("read %llu + lost %llu, but written %u", (unsigned long long)b->read, (unsigned long long)b->lost, b->written);
    if constexpr (!plain) {
      const RingCounters c = counters<Explored>(writer_->ring());
      if (c.read != b->read || c.overrun != b->lost || c.unread != 0)
        fail("the writer's books: read %llu, overrun %llu, unread %llu", (unsigned long long)c.read,
             (unsigned long long)c.overrun, (unsigned long long)c.unread);
    }
    if (plan_.layout == Layout::meta_page)
      require(Explored::load(&meta().entries, Order::relaxed) == b->written &&
                  Explored::load(&meta().overrun, Order::relaxed) == b->lost,
              "the meta-page adds up");
  }

  // After a death: the pages alone. Everything promised that was not read before and not overwritten is there, in order.
  void survey() const {
    u64 end = 0;      // index behind the last event
    u64 found = 0, last = 0;
    bool any = false;
    const u32 reader = shown_place();
    const u64 from = Explored::load(&footer(reader).pages_touched, Order::relaxed);
    const bool stood = commit_of(reader) != 0;
    for (u64 position = 0; position < 64; ++position)
      for (u32 id = 0; id < plan_.nr_pages; ++id) {
        const u32 bytes = commit_of(id);
        if (bytes == 0 || Explored::load(&footer(id).pages_touched, Order::relaxed) != position) continue;
        if (stood && id != reader && position < from) continue;
        require(!any || last != position, "no position twice");
        const u64 base = Explored::load(&footer(id).entries, Order::relaxed);
        require(base >= end, "indices ascend");
        found += base - end;  // lost, or read before
        const u32 n = walk(id, 0, bytes, false);
        found += n;
        end = base + n;
        last = position;
        any = true;
      }
    u32 promised = 0;
    for (u32 n = 1; n <= b->numbers; ++n) promised += b->promised[n];
    if (found < promised || found > b->numbers)
      fail("%llu events told from the pages, %u promised", (unsigned long long)found, promised);
  }

  W& writer() const { return *writer_; }
  Books* const b;

 private:
  u8* page(u32 id) const { return region_ + (u64{id} + 1) * 4096; }
  abi::SubBufferHeader& header(u32 id) const { return *reinterpret_cast<abi::SubBufferHeader*>(page(id)); }
  u32 commit_of(u32 id) const {
    if constexpr (plain) return Explored::load(reinterpret_cast<const u32*>(&header(id).commit), Order::acquire);
    return abi::commit_size(Explored::load(&header(id).commit, Order::acquire));
  }
  abi::PageFooter& footer(u32 id) const { return *reinterpret_cast<abi::PageFooter*>(page(id) + 4096 - abi::footer_size); }
  abi::MetaPage& meta() const { return *reinterpret_cast<abi::MetaPage*>(region_); }

  u32 walk(u32 id, u32 from, u32 end, bool note) const {
    const auto word = [&](u32 at) {
      return Explored::load(reinterpret_cast<const u32*>(page(id) + abi::header_size + at), Order::relaxed);
    };
    u32 n = 0;
    for (u32 at = from; at < end;) {
      const u32 w = word(at), type = abi::word_type(w);
      const u32 size = type == 0                  ? 4 + word(at + 4)
                       : type < abi::type_padding ? 4 + 4 * type
                       : abi::word_delta(w) != 0  ? 4 + word(at + 4)
                                                  : end - at;
      if (size % 4 != 0 || size < 4 || size > end - at || type > abi::type_padding)
        fail("no event at data offset %u: 0x%x", at, w);
      if (type != abi::type_padding) {
        const u32 first = word(at + abi::payload_offset(size)), last = word(at + size - 4);
        if (first != last || first == 0 || first > b->numbers) fail("a torn event: %u .. %u of %u", first, last, b->numbers);
        if (note && b->seen[first]) fail("event %u was read twice", first);
        if (note) b->seen[first] = true;
        ++n;
      }
      at += size;
    }
    return n;
  }

  Plan plan_;
  W* const writer_;
  u8* region_;
};

template <class W = InCpp<>>
auto swaps_beside_writes(Layout layout, u32 before, std::vector<u32> writes, u32 reads, std::vector<u32> handlers = {}) {
  return [=](World& world) {
    RemoteModel<W> m(world, layout);
    for (u32 n = 0; n < before; ++n) m.write(half);
    world.spawn("reader", [=] {
      for (u32 n = 0; n < reads; ++n) m.read();
    });
    world.spawn("writer", [=] {
      for (const u32 size : writes) m.write(size);
    });
    for (const u32 size : handlers) world.signal("writer", [=] { m.write(size); });
    world.after([=] { m.balance(); });
  };
}

// A mapper that is told nothing sees a new reader page: then what was lost before it is there, too.
template <class W = InCpp<>>
auto mapper_beside_swaps(Layout layout) {
  return [=](World& world) {
    RemoteModel<W> m(world, layout);
    for (u32 n = 0; n < 7; ++n) m.write(half);
    world.spawn("service", [=] { m.ask(); });
    world.spawn("mapper", [=] {
      if (m.shown_place() == 0) return;
      require(m.shown_loss(m.shown_place()) != 0, "the loss is shown with the page behind it");
    });
    world.after([=] { m.balance(); });
  };
}

template <class W = InCpp<>>
auto death_of_the_writer() {
  return [](World& world) {
    RemoteModel<W> m(world, Layout::footers);
    for (u32 n = 0; n < 4; ++n) m.write(half);
    world.spawn("reader", [=] {
      for (u32 n = 0; n < 3; ++n) m.read();
    });
    world.spawn("writer", [=] {
      for (u32 n = 0; n < 3; ++n) m.write(half);
    });
    world.may_die("writer");
    world.after([=] { m.survey(); });
  };
}

const char* name(Layout l) { return l == Layout::footers ? "footers" : "meta-page"; }

TEST(RemoteModels, SwapsBesideWrites) {
  for (const Layout l : {Layout::footers, Layout::meta_page}) {
    prove((std::string("external writer, ") + name(l) + ": swaps beside writes").c_str(), {.preemptions = 2, .stale = 1},
          swaps_beside_writes(l, 3, {half, half}, 3));
    prove((std::string("external writer, ") + name(l) + ": the same, overwriting").c_str(), {.preemptions = 1, .stale = 1},
          swaps_beside_writes(l, 5, {most, half, half}, 4));
  }
}

TEST(RemoteModels, SwapsBesideNestedWrites) {
  for (const Layout l : {Layout::footers, Layout::meta_page})
    prove((std::string("external writer, ") + name(l) + ": a handler beside swaps").c_str(),
          {.preemptions = 1, .stale = 0, .signals = 1}, swaps_beside_writes(l, 4, {half}, 2, {half}));
}

TEST(RemoteModels, DeathLeavesPagesThatTellAll) {
  prove("external writer, footers: death at any access", {.preemptions = 1, .stale = 1}, death_of_the_writer());
}

TEST(RemoteModels, APageIsShownWithItsLoss) {
  for (const Layout l : {Layout::footers, Layout::meta_page})
    prove((std::string("external writer, ") + name(l) + ": a mapper beside swaps").c_str(), {.preemptions = 2, .stale = 2},
          mapper_beside_swaps(l));
}

TEST(RemoteModels, MutantsAreRefuted) {
  const Options search{.preemptions = 1, .stale = 1, .seconds = 20};
  constexpr Order relaxed = Order::relaxed;
  for (const Layout l : {Layout::footers, Layout::meta_page}) {
    refute("place_publish relaxed", {.preemptions = 2, .stale = 2, .seconds = 20},
           mapper_beside_swaps<InCpp<Orders{.place_publish = relaxed}>>(l));
    refute("remote: commit_publish relaxed", search,
           swaps_beside_writes<InCpp<Orders{.commit_publish = relaxed}>>(l, 1, {third}, 4));
    refute("remote: advance_publish relaxed", {.preemptions = 1, .stale = 1, .signals = 1, .seconds = 20},
           swaps_beside_writes<InCpp<Orders{.advance_publish = relaxed}>>(l, 1, {most}, 4, {most}));
    refute("remote: lost_overrun", search, swaps_beside_writes<InCpp<Orders{.bug = Bug::lost_overrun}>>(l, 7, {half}, 1));
    refute("remote: missed_moved", search,
           swaps_beside_writes<InCpp<Orders{.bug = Bug::missed_moved}>>(l, 4, {half, half, half}, 3));
    refute("remote: no_second_look", {.preemptions = 0, .stale = 0, .signals = 1, .seconds = 20},
           swaps_beside_writes<InCpp<Orders{.bug = Bug::no_second_look}>>(l, 0, {half}, 1, {half}));
  }
}

// ringside/remote.h: its schedules, deaths and orders.
TEST(RemoteModels, PlainC) {
  for (const Layout l : {Layout::footers, Layout::meta_page}) {
    prove((std::string("external writer in C, ") + name(l) + ": swaps beside writes").c_str(), {.preemptions = 2, .stale = 1},
          swaps_beside_writes<PlainWriter>(l, 3, {half, half}, 3));
    prove((std::string("external writer in C, ") + name(l) + ": the same, overwriting").c_str(), {.preemptions = 1, .stale = 1},
          swaps_beside_writes<PlainWriter>(l, 5, {most, half, half}, 4));
    prove((std::string("external writer in C, ") + name(l) + ": a handler beside swaps").c_str(),
          {.preemptions = 1, .stale = 0, .signals = 1}, swaps_beside_writes<PlainWriter>(l, 4, {half}, 2, {half}));
    prove((std::string("external writer in C, ") + name(l) + ": a mapper beside swaps").c_str(), {.preemptions = 2, .stale = 2},
          mapper_beside_swaps<PlainWriter>(l));
  }
  prove("external writer in C, footers: death at any access", {.preemptions = 1, .stale = 1},
        death_of_the_writer<PlainWriter>());
}

TEST(RemoteModels, MutantsOfPlainCAreRefuted) {
  const Options search{.preemptions = 1, .stale = 1, .seconds = 20};
  const auto with = [](PlainOrders orders, auto model) {
    return [=](World& world) {
      plain_orders = orders;
      model(world);
    };
  };
  for (const Layout l : {Layout::footers, Layout::meta_page}) {
    refute("remote.h: store relaxed", search,
           with({.store = Order::relaxed}, swaps_beside_writes<PlainWriter>(l, 1, {third}, 4)));
    refute("remote.h: load relaxed", {.preemptions = 2, .stale = 1, .seconds = 20},
           with({.load = Order::relaxed}, swaps_beside_writes<PlainWriter>(l, 3, {half, half}, 3)));
    refute("remote.h: missed_moved", search,
           with({.missed_moved = true}, swaps_beside_writes<PlainWriter>(l, 4, {half, half, half}, 3)));
  }
  plain_orders = {};
}

}  // namespace
}  // namespace ringside::model::remote_test
