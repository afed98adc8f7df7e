// The real ring code over the explorer's memory, and the books that must balance.
//
//   explore(options, [](World& world) {
//     Model<> m(world, {.subbufs = 3});
//     world.spawn("writer", [=] { m.write(half); });
//     world.spawn("reader", [=] { m.read(); });
//     world.after([=] { m.balance(); });
//   });
//
// A Model is a handle, copied into every context. Its books are plain memory that only the test looks at: an event's number
// stands in the first and the last word of its payload, so a reader sees a torn, doubled or invented event at once.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <ringside/ring/check.hpp>
#include <ringside/ring/iterate.hpp>
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>

#include "explorer.hpp"

namespace ringside::model {

// Payload sizes, for sub-buffers of 4,096 bytes.
inline constexpr u32 half = 2020;   // two events, 24 bytes of padding behind them
inline constexpr u32 most = 2040;   // one event, 2,032 bytes of padding
inline constexpr u32 whole = 4072;  // one event, nothing behind it

struct CountingClock {
  u64* time;
  u64 tick = 3;  // 0: it stands still
  u64 now() noexcept { return *time += tick; }
};

enum class Fate : u8 { none, begun, written, refused, discarded };

struct Books {
  static constexpr u32 most_events = 48;
  Ring ring;
  u64 time;
  u32 events;  // numbers handed out
  u32 depth;   // writes under way
  u32 owner;   // which writer
  Fate fate[most_events];
  bool promised[most_events];  // an outermost write has returned since
  bool seen[most_events];      // read, and counted as read
  u64 read, lost, next_index;
  u32 refused;
  Watched watched;
};

struct Shape {
  u32 subbufs = 3;
  bool discard = false;
  bool checked = false;  // the invariants after each access
  u32 spares = 0;
  bool same_time = false;  // the clock stands still: every event has one time
};

template <Orders O = Orders{}, class M = Explored>
class Model {
 public:
  using W = Writer<CountingClock, M, O>;
  using R = Reader<M, O>;

  Model(World& world, const Shape& shape, const Doorbell& bell = {})
      : b(world.make<Books>()), clock_{&b->time, shape.same_time ? 0u : 3u}, bell_(bell), writers_(world.make<W>(2)) {
    world.only_words_are_shared();
    b->time = 1;
    const Geometry g(4096, shape.subbufs + shape.spares, shape.spares);
    Ring& ring = b->ring;
    ring.geometry = g;
    ring.control = static_cast<Control*>(world.allocate(control_size(g)));
    ring.data = static_cast<u8*>(world.allocate(g.data_size()));
    ring.control->mode = shape.discard;
    new (writers_) W(ring, clock_, bell_);
    name_words(world);
    if (shape.checked)
      world.check([m = *this] {
        if (const char* what = broken<M>(m.b->ring, &m.b->watched)) fail("does not hold: %s", what);
      });
  }

  // ---- writer ------------------------------------------------------------------------------------------------------------

  // The ring has a next owner.
  void new_writer() const { new (&writers_[b->owner = 1]) W(b->ring, clock_, bell_); }

  W& writer() const { return writers_[b->owner]; }

  bool write(u32 size) const {
    const u32 number = begin();
    const Reservation slot = writer().reserve(size);
    if (slot) {
      fill(slot, size, number);
      writer().commit(slot);
    }
    end(number, slot ? Fate::written : Fate::refused);
    return bool(slot);
  }

  void take_back(u32 size) const {
    const u32 number = begin();
    const Reservation slot = writer().reserve(size);
    if (slot) {
      fill(slot, size, number);
      writer().discard(slot);
    }
    end(number, slot ? Fate::discarded : Fate::refused);
  }

  // A handler of the writer for each size, which comes at any access; 0: it takes its event back. Equal ones are one that comes
  // as often: it makes no difference which of them comes.
  void handlers(World& world, const std::vector<u32>& sizes) const {
    std::map<u32, u32> times;
    for (const u32 size : sizes) ++times[size];
    for (const auto& [size, count] : times)
      world.signal(
          "writer", [m = *this, size = size] { size != 0 ? (void)m.write(size) : m.take_back(half); }, count);
  }

  // ---- readers -----------------------------------------------------------------------------------------------------------

  // GET_READER once, and a check of all of it.
  bool read(bool meta = false) const {
    R r(b->ring);
    return read(r, meta);
  }
  bool read(R& r, bool meta = false) const {
    const Got got = r.get_reader(meta);
    require(got != Got::corrupt, "a good ring is not called corrupt");
    if (got == Got::nothing) return false;
    Page page;
    walk(r.view(), b->ring.subbuf(r.view().id), page);
    count(r.view(), page);
    return true;
  }

  // Counted when consume has returned. peek: all that was found at once. by_event: each event by itself. hand_out: as
  // GET_READER for a mapper, with flags and the meta-page.
  enum class Consume : u8 { peek, by_event, hand_out };
  bool read_and_consume(R& r, Consume way = Consume::peek) const {
    const Got got = way == Consume::hand_out ? r.hand_out(true) : r.peek();
    require(got != Got::corrupt, "a good ring is not called corrupt");
    if (got == Got::nothing) return false;
    Page page;
    ReaderView v = r.view();
    walk(v, b->ring.subbuf(v.id), page);
    const u32 at_once = way == Consume::by_event ? 1 : page.n;
    for (u32 from = 0; from + at_once < page.n; ++from) {
      ReaderView one = v;
      one.end = page.ends[from];
      one.events = 1;
      r.consume(one.end - one.begin, 1);
      count(one, page, from);
      v.begin = one.end;
      v.lost_before = 0;
      ++v.first_index;
      --v.events;
    }
    r.consume(v.end - v.begin, v.events);
    count(v, page, page.n - v.events);
    if (way == Consume::hand_out) r.update_meta();
    return true;
  }

  // Does not count; nothing torn, nothing twice, and from the second page on each index is the last one's end plus what was
  // lost. looks: how often it comes back for more. lossless: nothing may be lost after the first page.
  u32 look_through(u32 pages = ~0u, u32 looks = 1, bool lossless = false) const {
    alignas(8) u8 buffer[4096];
    bool met[Books::most_events] = {};
    Iterator<M, O> it(b->ring, buffer);
    u64 next = 0;
    u32 n = 0;
    bool first = true;
    for (; looks != 0 && pages != 0; --pages) {
      const Got got = it.next();
      if (got == Got::nothing) {
        --looks;
        continue;
      }
      require(got != Got::corrupt, "a good ring is not called corrupt by an iterator");
      Page page;
      const ReaderView v = it.view();
      walk<PlainWords>(v, buffer, page);
      require(first || v.first_index == next + v.lost_before, "an iterator goes forward and counts what it misses");
      require(first || !lossless || v.lost_before == 0, "an iterator that nobody overwrites misses nothing");
      first = false;
      next = v.first_index + v.events;
      for (u32 i = 0; i < page.n; ++i) {
        require(!met[page.numbers[i]], "an iterator meets no event twice");
        met[page.numbers[i]] = true;
        ++n;
      }
    }
    return n;
  }

  // ---- at the end --------------------------------------------------------------------------------------------------------

  // Everybody is done: reads the rest and adds up. After a death of the writer, call recover before.
  void balance(bool after_death = false) const {
    R r(b->ring);
    while (read_and_consume(r)) {
    }
    const RingCounters c = counters<M>(b->ring);
    u32 written = 0, promised = 0, begun = 0;
    for (u32 i = 1; i <= b->events; ++i) {
      begun += b->fate[i] == Fate::begun || b->fate[i] == Fate::written;
      written += b->fate[i] == Fate::written;
      promised += b->promised[i];
    }
    if (c.unread != 0 || c.written != c.read + c.overrun || c.read != b->read)
      fail("written %llu = read %llu (seen %llu) + unread %llu + overrun %llu", (unsigned long long)c.written,
           (unsigned long long)c.read, (unsigned long long)b->read, (unsigned long long)c.unread,
           (unsigned long long)c.overrun);
    const u64 open_loss = c.written - b->next_index;  // lost, with nothing behind it yet that would say so
    if (b->lost + open_loss != c.overrun)
      fail("the reader missed %llu + %llu, the writer overwrote %llu", (unsigned long long)b->lost,
           (unsigned long long)open_loss, (unsigned long long)c.overrun);
    if (after_death ? c.written < promised || c.written > begun : c.written != written)
      fail("%llu events in the ring's books; %u written, %u promised, %u begun", (unsigned long long)c.written, written,
           promised, begun);
    if (!after_death && b->refused != c.dropped + c.commit_overrun)
      fail("%u refused, dropped %llu + commit overrun %llu", b->refused, (unsigned long long)c.dropped,
           (unsigned long long)c.commit_overrun);
    if (c.overrun == 0)
      for (u32 i = 1; i <= b->events; ++i)
        if (b->promised[i] && !b->seen[i]) fail("event %u was committed and is nowhere", i);
    if (const char* what = broken<M>(b->ring)) fail("does not hold: %s", what);
  }

  Books* const b;

 private:
  CountingClock clock_;
  Doorbell bell_;
  W* const writers_;  // one for a thread and its handlers

  struct Page {
    u32 numbers[Books::most_events], ends[Books::most_events];  // of each event; data offset behind it
    u32 n = 0;
  };
  struct PlainWords {
    static u32 load(const u32* p, Order) { return *p; }
    static u64 load(const u64* p, Order) { return *p; }
  };

  u32 begin() const {
    if (++b->events == Books::most_events) fail("the books are full");
    ++b->depth;
    b->fate[b->events] = Fate::begun;
    return b->events;
  }
  void end(u32 number, Fate fate) const {
    b->fate[number] = fate;
    b->refused += fate == Fate::refused;
    if (--b->depth == 0)
      for (u32 i = 1; i <= b->events; ++i) b->promised[i] |= b->fate[i] == Fate::written;
  }
  static void fill(const Reservation& slot, u32 size, u32 number) {
    M::store(reinterpret_cast<u32*>(slot.payload), number, Order::relaxed);
    M::store(reinterpret_cast<u32*>(slot.payload + size - 4), number, Order::relaxed);
  }

  // The events between begin and end, header by header.
  template <class L = M>
  void walk(const ReaderView& v, const u8* sub_buffer, Page& page) const {
    const u8* const data = sub_buffer + abi::header_size;
    u64 time = v.begin == 0 ? L::load(reinterpret_cast<const u64*>(sub_buffer), Order::relaxed) : 0;
    const auto word = [&](u32 at) { return L::load(reinterpret_cast<const u32*>(data + at), Order::relaxed); };
    u32 paddings = 0;
    for (u32 at = v.begin; at < v.end;) {
      const u32 header = word(at);
      const u32 type = abi::word_type(header);
      if (v.end - at < 8 && (type == 0 || (type == abi::type_padding && abi::word_delta(header) != 0)))
        fail("no event at data offset %u: header 0x%x, end %u", at, header, v.end);
      u32 size = type == 0 ? 4 + word(at + 4) : 4 + 4 * type;
      if (type == abi::type_padding) size = abi::word_delta(header) != 0 ? 4 + word(at + 4) : v.end - at;
      if (type == abi::type_time_extend) size = 8;
      if (type == abi::type_time_stamp || size % 4 != 0 || size > v.end - at || size < 4)
        fail("no event at data offset %u: header 0x%x, size %u, end %u", at, header, size, v.end);
      time += abi::word_delta(header);
      paddings += type == abi::type_padding;  // one with a delta of 0 says 1, as the kernel's: a tick too much
      if (type < abi::type_padding) {
        const u32 first = word(at + abi::payload_offset(size)), last = word(at + size - 4);
        if (first != last || first == 0 || first > b->events || b->fate[first] == Fate::refused)
          fail("a torn event at data offset %u: %u .. %u of %u", at, first, last, b->events);
        if (b->fate[first] == Fate::discarded) fail("event %u was taken back", first);
        if (v.begin == 0 && (time == 0 || time > b->time + paddings))
          fail("event %u has the time %llu", first, (unsigned long long)time);
        page.ends[page.n] = at + size;
        page.numbers[page.n++] = first;
      }
      at += size;
    }
    if (page.n != v.events) fail("%u events said, %u found", v.events, page.n);
  }

  void count(const ReaderView& v, const Page& page, u32 from = 0) const {
    for (u32 i = from; i < from + v.events; ++i) {
      if (b->seen[page.numbers[i]]) fail("event %u was read twice", page.numbers[i]);
      b->seen[page.numbers[i]] = true;
    }
    if (v.first_index != b->next_index + v.lost_before)
      fail("index %llu after %llu, %llu lost", (unsigned long long)v.first_index, (unsigned long long)b->next_index,
           (unsigned long long)v.lost_before);
    b->next_index = v.first_index + v.events;
    b->read += v.events;
    b->lost += v.lost_before;
  }

  void name_words(World& world) const {
    Control& c = *b->ring.control;
    const Geometry& g = b->ring.geometry;
    world.name(&c.gate, "gate");
    world.name(&c.mode, "mode");
    world.name(&c.tail, "tail");
    world.name(&c.nest, "nest");
    world.name(&c.last_time, "last_time");
    world.name(&c.commit, "commit");
    world.name(&c.overrun, "overrun");
    world.name(&c.pages_lost, "pages_lost");
    world.name(&c.pages_touched, "pages_touched");
    world.name(&c.commit_overrun, "commit_overrun");
    world.name(&c.dropped, "dropped");
    world.name(&c.reader_lock, "reader_lock");
    world.name(&c.reader_generation, "generation");
    world.name(&c.intent, "intent");
    for (int s = 0; s < 2; ++s) {
      world.name(&c.state[s].page, "state.page", s);
      world.name(&c.state[s].bytes, "state.bytes", s);
      world.name(&c.state[s].events, "state.events", s);
      world.name(&c.state[s].expected, "state.expected", s);
      world.name(&c.state[s].read, "state.read", s);
      world.name(&c.state[s].lost, "state.lost", s);
    }
    for (u32 id = 0; id < g.nr_subbufs(); ++id) {
      Record& rec = b->ring.record(id);
      const int i = static_cast<int>(id);
      world.name(&rec.slot, "slot", i);
      world.name(&rec.reserve, "reserve", i);
      world.name(&rec.count, "count", i);
      world.name(&rec.committed, "committed", i);
      world.name(&rec.base, "base", i);
      world.name(&rec.real_end, "real_end", i);
      world.name(&b->ring.header(id).time_stamp, "header.time", i);
      world.name(&b->ring.header(id).commit, "header.commit", i);
      world.name(b->ring.subbuf(id) + 16, "data", i);
    }
  }
};

// Searched completely and never failed; one line for the report.
inline void prove(const char* what, Options options, const std::function<void(World&)>& setup) {
  options.seconds = 240;  // a slow machine proves as much as a fast one
  const Result r = explore(options, setup);
  printf("  proved   %9llu executions %6.2f s  %s\n", (unsigned long long)r.executions, r.seconds, what);
  EXPECT_TRUE(r.proved()) << what << ": " << r;
}

// Must fail; the failing choices are the report.
inline void refute(const char* what, const Options& options, const std::function<void(World&)>& setup) {
  const Result r = explore(options, setup);
  std::string choices;  // "0*17 2 1"
  u32 zeros = 0;
  for (char c : r.choices + " x") {
    if (c == ' ') continue;
    if (c == '0') {
      ++zeros;
      continue;
    }
    if (zeros != 0) choices += "0*" + std::to_string(zeros) + " ";
    zeros = 0;
    if (c != 'x') choices += std::string(1, c) + " ";
  }
  printf("  refuted  %9llu executions %6.2f s  %s: %s [%s]\n", (unsigned long long)r.executions, r.seconds, what,
         r.failure.c_str(), choices.c_str());
  EXPECT_FALSE(r.passed()) << what << " survives: " << r;
}

}  // namespace ringside::model
