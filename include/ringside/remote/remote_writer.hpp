// The writer's end of a ring that shares nothing with its reader but the sub-buffers, and perhaps a meta-page. For a process, a
// guest, firmware. Freestanding: needs the compiler, memcpy and memset.
//
//   Descriptor d;
//   if (!WildDescriptor(blob, bytes).check(region_bytes, d).good()) ...         // what the reader sent, copied
//   RingLayout r = d.ring(0);
//   memory: RemoteWriter<>::private_bytes(r), zeros, aligned to 64, the writer's own; it outlives the writer
//   RemoteWriter<Clock> w(d, r, region, memory, Clock{});                       // region: where the writer maps it
//   w.enable();
//   if (Reservation s = w.reserve(16)) { memcpy(s.payload, ...); w.commit(s); }        // on the writer's processor
//   w.swap_reader(read);                                                        // for the reader, meanwhile, on any processor
//
// It is the ring of docs/design/ring.md with its control words in private memory: the same Writer, and the same Reader, which
// runs on the reader's behalf. Published puts what the reader needs of these words into the page footers or the meta-page.
// Nothing is ever loaded from shared memory, so whatever the reader writes there harms only the reader.
//
// Three callers: the writing context (reserve, commit, discard, write; with Nesting::handlers also its interrupt handlers), the
// service (swap_reader, update_footers, reset: one at a time, on any processor, never waits for the writer), and whatever
// switches (enable, disable). An event costs what it costs in a local ring, plus one count with the meta-page. Not for two
// threads that write.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <ringside/abi/meta_page.hpp>
#include <ringside/base/memory_single.hpp>
#include <ringside/remote/descriptor.hpp>
#include <ringside/ring/clear.hpp>
#include <ringside/ring/reader.hpp>
#include <ringside/ring/writer.hpp>

namespace ringside::remote {

// handlers: code that interrupts the writer may write, at any depth. none: such an event is refused and counted as dropped.
enum class Nesting : u8 { none, handlers };

// What swap_reader did. Numbers are those of the protocol.
enum class Swap : u32 {
  nothing = 0,  // all that was written is on the reader page, and read
  more = 1,     // the reader page holds more than has been read
  swapped = 2,  // there is a new reader page
  corrupt = 3,  // the writer's own words contradict each other
};
struct Swapped {
  Swap what = Swap::nothing;
  u32 id = 0;  // of the reader page now
};

// What a reader is shown of one ring.
template <Memory M, Orders O>
class Published {
 public:
  static constexpr bool has_bell = false;
  static constexpr bool counts_too_big = true;
  static constexpr u64 gate_open = gate_remote_open;
  Published() = default;
  // meta: the shared meta-page, or a private one from which footers are made.
  Published(const Ring& ring, abi::MetaPage* meta, u32 ring_id, bool footers) noexcept
      : meta_(meta), places_(ring.places), id_(ring_id), subbuf_size_(ring.geometry.subbuf_size()), footers_(footers) {}

  RINGSIDE_INLINE void committed(u32 events) noexcept { M::add_local(&meta_->entries, events); }
  void overwrote(u32 events) noexcept {
    M::add_local(&meta_->overrun, events);
    M::add_local(&meta_->pages_lost, 1);
  }
  void touched() noexcept { M::add_local(&meta_->pages_touched, 1); }
  void clearing(u32 id) noexcept {
    if (footers_) M::store(&footer(id).reader_status, abi::reader_status(id_, 0), unordered);
  }
  void entered(u32 id, u64 position, u64 base) noexcept {
    if (!footers_) return;
    M::store(&footer(id).entries, base, unordered);
    M::store(&footer(id).pages_touched, position, unordered);
  }

  // The service's side.
  abi::MetaPage& meta() noexcept { return *meta_; }
  // The reader page is now `taken` and was `given`. lost: events lost in all before it.
  void take(u32 taken, u32 given, u64 lost) noexcept {
    if (!footers_) return M::store(&meta_->reader.id, taken, O.place_publish);  // pairs: PLACE
    M::store(&footer(taken).overrun, lost, unordered);
    M::store(&footer(taken).reader_status, abi::reader_status(id_, abi::footer_reader), O.place_publish);  // pairs: PLACE
    M::store(&footer(given).reader_status, abi::reader_status(id_, 0), unordered);
  }
  void mark(u32 id, u32 reader_bits, bool commit) noexcept {
    if (!footers_) return;
    abi::PageFooter& f = footer(id);
    M::store(&f.reader_status, abi::reader_status(id_, reader_bits), unordered);
    M::store(&f.writer_status, abi::writer_status(subbuf_size_, commit ? abi::footer_commit : 0), unordered);
  }
  // A new ring's.
  void start(u32 id) noexcept {
    if (!footers_) return;
    abi::PageFooter& f = footer(id);
    M::store(&f.entries, u64{0}, unordered);
    M::store(&f.pages_touched, u64{0}, unordered);
    M::store(&f.overrun, u64{0}, unordered);
  }

 private:
  abi::PageFooter& footer(u32 id) noexcept {
    return *reinterpret_cast<abi::PageFooter*>(places_[id] + subbuf_size_ - abi::footer_size);
  }
  abi::MetaPage* meta_ = nullptr;
  u8* const* places_ = nullptr;
  u32 id_ = 0, subbuf_size_ = 0;
  bool footers_ = false;
};

template <Nesting N>
struct MemoryOf {
  using type = Hardware;
};
template <>
struct MemoryOf<Nesting::none> {
  using type = SingleContext;
};

template <RingClock C, Nesting N = Nesting::handlers, Memory M = typename MemoryOf<N>::type,
          Orders O = Orders{.rings_of_cpus = false}>
class RemoteWriter {
 public:
  static constexpr u64 private_bytes(const RingLayout& r) noexcept {
    return align_up(u64{sizeof(Control)} + u64{r.nr_pages} * (sizeof(Record) + sizeof(u8*)), u64{64});
  }

  // Starts disabled. Empties the sub-buffers. memory: private_bytes(r) of zeros that nobody else sees. at(offset): the address
  // of an offset.
  template <class At>
    requires requires(At& at) { static_cast<u8*>(at(u64{0})); }
  RemoteWriter(const Descriptor& d, const RingLayout& r, At at, void* memory, C clock) noexcept
      : ring_(lay_out(d, r, at, memory)),
        footers_(d.layout() == Layout::footers),
        id_(r.id),
        shown_(ring_, footers_ ? &own_meta_ : reinterpret_cast<abi::MetaPage*>(ring_.data), r.id, footers_),
        writer_(ring_, clock, {}, shown_),
        reader_(ring_) {
    M::store(&ctl().gate, gate_remote_open | gate_off, unordered);
    empty();
  }
  RemoteWriter(const Descriptor& d, const RingLayout& r, void* region, void* memory, C clock) noexcept
      : RemoteWriter(d, r, [region](u64 offset) { return static_cast<u8*>(region) + offset; }, memory, clock) {}
  RemoteWriter(const RemoteWriter&) = delete;
  RemoteWriter& operator=(const RemoteWriter&) = delete;

  // The writing context.
  [[nodiscard]] RINGSIDE_INLINE bool reserve(u32 size, Reservation& slot) noexcept {
    if constexpr (N == Nesting::none) {
      if (M::load(&ctl().nest, unordered) != 0) [[unlikely]]
        return refuse(slot);
    }
    return writer_.reserve(size, slot);
  }
  [[nodiscard]] Reservation reserve(u32 size) noexcept {
    Reservation slot;
    (void)reserve(size, slot);
    return slot;
  }
  RINGSIDE_INLINE void commit(const Reservation& slot) noexcept { writer_.commit(slot); }
  bool discard(const Reservation& slot) noexcept { return writer_.discard(slot); }
  template <class Fill>
  RINGSIDE_INLINE bool write(u32 size, Fill fill) noexcept {
    if constexpr (N == Nesting::none) {
      if (M::load(&ctl().nest, unordered) != 0) [[unlikely]] {
        Reservation slot;
        return refuse(slot);
      }
    }
    return writer_.write(size, fill);
  }
  RINGSIDE_INLINE bool write(const void* payload, u32 size) noexcept {
    return write(size, [&](u8* to) {
      if (size != 0) __builtin_memcpy(to, payload, size);
    });
  }

  // For the service. read: data bytes of the reader page that have been read. A page is given back only when all of it has
  // been.
  [[gnu::noinline]] Swapped swap_reader(u32 read) noexcept {
    const ReaderPlace before = reader_place();
    for (;;) {  // at most twice: after consume, the second look goes to the next page
      const Got got = reader_.peek();
      const ReaderPlace own = reader_place();
      if (got == Got::corrupt) return {Swap::corrupt, before.id};
      const ReaderView& view = reader_.view();
      if (own.next != before.next) {
        // A page with only padding may have been passed. Then nothing is lost, and nothing is there yet.
        const u64 lost = got == Got::data ? view.lost_before : 0;
        note(lost);
        shown_.take(own.id, before.id, reader_.state().lost + lost);
        return {Swap::swapped, own.id};
      }
      if (got == Got::nothing) break;
      if (view.end > read) return {Swap::more, own.id};
      reader_.consume(view.end - view.begin, view.events);
    }
    note(0);
    return {Swap::nothing, before.id};
  }
  // Updates the status bits of the footers. A meta-page is always up to date.
  void update_footers() noexcept {
    if (!footers_) return;
    const auto [next, reader] = reader_place();
    const Place commit = place_of(M::load(&ctl().commit, O.advance_observe));
    const Geometry& g = ring_.geometry;
    u64 head = next + g.nr_slots() <= commit.position ? commit.position - g.nr_slots() + 1 : next;
    u32 head_id = commit.id;
    for (; head < commit.position; ++head) {
      const auto k = static_cast<u32>(head % g.nr_slots());
      const u64 slot = M::load(&ring_.record(k).slot, O.slot_observe);
      if (slot_lap(slot) != head / g.nr_slots()) continue;
      head_id = slot_id(k, slot);
      break;
    }
    for (u32 id = 0; id < g.nr_subbufs(); ++id)
      shown_.mark(id, id == reader ? abi::footer_reader : id == head_id ? abi::footer_head : 0, id == commit.id);
  }

  // Empties the ring; the reader begins again, at sub-buffer 0. The writer must be disabled and quiet.
  void reset() noexcept {
    clear_words(ring_, gate_remote_open);
    empty();
  }

  // Switching. After disable() no event begins. One that is open may still be committed; quiet() says when none is. heavy: the
  // other half of the writer's light fence (membarrier in a process; nothing if this runs on the writer's own processor).
  void enable() noexcept { __atomic_fetch_and(&ctl().gate, ~gate_off, gate_publish); }
  void disable() noexcept { __atomic_fetch_or(&ctl().gate, gate_off, gate_publish); }
  bool enabled() const noexcept { return (M::load(&ctl().gate, unordered) & gate_off) == 0; }
  template <class Heavy>
  bool quiet(Heavy heavy) const noexcept {
    heavy();  // pairs: GATE
    return M::load(&ctl().nest, O.quiet_observe) == 0;  // pairs: QUIET
  }
  // Publishes what a handler wrote when the gate was about to close. The writer must be disabled and quiet.
  void publish_left() noexcept { writer_.publish_left(); }

  u32 id() const noexcept { return id_; }
  // Events that were refused: there was no room for a nested one (Nesting::none: it was nested), it can never fit, or it is
  // of a child of fork, because the ring is the parent's. Final once the writer is disabled and quiet.
  u64 refused() const noexcept { return M::load(&ctl().dropped, unordered) + M::load(&ctl().commit_overrun, unordered); }
  const Ring& ring() const noexcept { return ring_; }

 private:
  Control& ctl() const noexcept { return *ring_.control; }
  [[gnu::noinline]] ReaderPlace reader_place() const noexcept { return reader_of(reader_.state().page); }
  template <class At>
  static Ring lay_out(const Descriptor& d, const RingLayout& r, At& at, void* memory) noexcept {
    Ring ring{d.geometry(r.nr_pages), static_cast<Control*>(memory), at(r.meta)};
    auto* const places = reinterpret_cast<u8**>(&ring.record(r.nr_pages));
    for (u32 id = 0; id < r.nr_pages; ++id) places[id] = at(r.pages[id]);
    ring.places = places;
    return ring;
  }
  RINGSIDE_NOINLINE bool refuse(Reservation& slot) noexcept {
    M::add_local(&ctl().dropped, 1);
    slot = {};
    slot.why = Refused::full;
    return false;
  }

  void note(u64 lost) noexcept {
    abi::MetaPage& meta = shown_.meta();
    const ReaderState at = reader_.state();
    M::store(&meta.reader.lost_events, lost, unordered);
    M::store(&meta.reader.read, static_cast<u32>(at.bytes), unordered);
    M::store(&meta.read, at.read, unordered);
  }

  void empty() noexcept {
    const Geometry& g = ring_.geometry;
    abi::MetaPage& meta = shown_.meta();
    M::store(&meta.meta_page_size, g.subbuf_size(), unordered);
    M::store(&meta.meta_struct_len, u32{sizeof meta}, unordered);
    M::store(&meta.subbuf_size, g.subbuf_size(), unordered);
    M::store(&meta.nr_subbufs, g.nr_subbufs(), unordered);
    M::store(&meta.reader.lost_events, u64{0}, unordered);
    for (u64* word = &meta.flags; word <= &meta.pages_touched; ++word) M::store(word, u64{0}, unordered);
    M::store(&meta.reader.read, u32{0}, unordered);
    for (u32 id = 0; id < g.nr_subbufs(); ++id) {
      M::store(&ring_.header(id).time_stamp, u64{0}, unordered);
      M::store(&ring_.header(id).commit, u64{0}, unordered);
      shown_.start(id);
      shown_.mark(id, id == 0 ? abi::footer_reader : id == 1 ? abi::footer_head : 0, id == 1);
    }
    M::store(&meta.reader.id, u32{0}, O.place_publish);  // pairs: PLACE
  }

  Ring ring_;
  bool footers_;
  u32 id_;
  abi::MetaPage own_meta_{};
  Published<M, O> shown_;
  Writer<C, M, O, Published<M, O>> writer_;
  Reader<M, O> reader_;
};

}  // namespace ringside::remote
