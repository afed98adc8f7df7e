// The rings of CPUs: the real CpuWriter, Reader and Iterator on a machine of a few CPUs with restartable sequences.
//
//   explore(options, [](World& world) {
//     CpuModel<> m(world, {.cpus = 1});
//     m.thread("a", 0, [=](u32 me) { m.write(me, half); });        // a thread that starts on CPU 0
//     m.thread("b", 0, [=](u32 me) { m.write(me, half); });
//     world.spawn("reader", [=] { m.read(0); });                   // runs elsewhere
//     world.after([=] { m.balance(); });
//   });
//
// The machine: each thread is on one CPU, and each CPU has one current thread, which alone goes on. A thread that goes on where
// another one was current takes its place; that, a migration and a signal cut off the sequence that the thread is in. The
// explorer chooses all of it before each access. A switch on one CPU is a full barrier.
//
// The books know the one true order of each ring: an event is entered where the last store of its sequence happens, with the
// time that the sequence read. An event's index must be its place there, and its time what its page says by time stamp and
// deltas.
#pragma once
#include <ringside/ring/cpu_writer.hpp>

#include "ring_model.hpp"

namespace ringside::model {

// Faults of the sequences, of the machine and of the compare-and-swaps.
enum class Plant : u8 {
  none,
  usual_first,     // the usual sequence takes a fresh sub-buffer's time word for that of an event
  no_bytes_check,  // the usual sequence takes `committed` for that of commit
  one_time,        // one time word instead of two
  other_time,      // stores the time where that of the last event is
  commit_first,    // commit before the event
  commit_before_committed,
  no_cpu_check,
  no_tail_check,
  no_commit_check,
  no_gate_check,
  tail_first,       // the tail before the fresh sub-buffer is ready
  enter_in_pieces,  // nothing cuts off the stores of enter
  committed_stays,  // of the fresh sub-buffer
  no_base,
  no_final,       // `committed` of the old sub-buffer as the last attempt left it
  slot_by_store,  // the writer's compare-and-swap of a slot is a store
  swap_by_store,  // the reader's
  not_entered,    // a free place is entered without a mark
  no_abort,
  short_compare,    // the room in 32 bits, where a corrupt commit comes out small
  plain_committed,  // arm64: no release
  plain_commit,
  plain_tail,
  no_wake_fence,  // between publishing and the check for waiting readers
  unguarded,      // the sequence does not ask for its descriptor
  armed_late,     // the descriptor is stored behind the reading of the clock
  left_armed,     // the descriptor stays behind
};

// Orders of the sequences' accesses. x86 is modelled as release and acquire, which allows more than its store buffers do.
enum class Machine : u8 { x86, arm64 };

inline constexpr u32 small = 100;  // 39 events, 24 bytes of padding
inline constexpr u32 too_big = 4092;

// The word of a thread's area that names the sequence that it is in, or comes to.
enum class RseqCs : u8 { none, usual, timed, append, refuse, enter };

// One for all explorations, and new for each execution: memories and sequences are static.
class Cpus {
 public:
  static constexpr u32 most = 2, most_threads = 5, most_events = 64;

  struct Thread {
    const void* context = nullptr;
    const View* view = nullptr;
    u32 cpu = 0;
    bool registered = true;
    bool deaf = false;     // never cut off
    bool stepped = false;  // cut off in each sequence
    bool* cut = nullptr;   // of the sequence that it is in
    RseqCs rseq_cs = RseqCs::none;
    u32 interrupted = 0;   // how often it was preempted, migrated or sent a signal
  };
  // A reading of the clock outside of a sequence.
  struct Reading {
    u64 time;
    const Thread* thread;
    u32 interrupted;  // before
  };
  struct Entry {
    u32 number;
    u64 time;
  };
  struct Log {
    Ring ring;
    u32 n;
    Entry entries[most_events];
  };

  void reset(u32 nr) {
    nr_ = nr;
    for (Thread& t : threads) t = {};
    for (Log& l : logs) l = {};
    for (u32 c = 0; c < most; ++c) current_[c] = nullptr, views_[c].clear();
    time = u64{1} << 40;
    migrations = jumps = 0;
    everybody_deaf = false;
    readings_ = 0;
    jumped_ = false;
  }

  u32 nr() const { return nr_; }

  // A reading of the clock. It may jump: back, or so far that a delta has no room.
  u64 clock() {
    if (jumps != 0 && Explored::modelled())
      if (const u32 pick = choose(4)) {
        --jumps;
        jumped_ = true;
        return time += pick == 1 ? u64(-40) : pick == 2 ? abi::delta_limit : (u64{1} << 40) + 77;
      }
    return time += 3;
  }

  // The same outside of a sequence, where the thread may be interrupted before and after it.
  u64 clock_outside() {
    point();
    const u64 now = clock();
    if (const Thread* const me = find(); me != nullptr && Explored::modelled())
      read_[readings_++ % most_readings] = {now, me, me->interrupted};
    point();
    return now;
  }
  // Not older than what this thread has run without interruption. After a jump, times are no names of readings.
  void in_time(const Thread& t, u64 at) const {
    if (jumped_) return;
    for (u32 i = readings_; i != 0 && readings_ - i < most_readings; --i) {
      const Reading& r = read_[(i - 1) % most_readings];
      if (r.thread != &t || r.time != at) continue;
      if (r.interrupted != t.interrupted) fail("an event is late: its thread was interrupted since it read the clock");
      return;
    }
  }
  // A moment between two instructions that access nothing shared.
  void point() {
    if (!Explored::modelled()) return;
    arrive();
    Explored::no_point(false);
  }

  u32 cpu_id(i64 area) const {
    const Thread& t = threads[area];
    return t.registered ? t.cpu : ~u32{1};
  }

  // Before each access. Afterwards the access itself follows, without a point of its own.
  void arrive() {
    if (!Explored::modelled()) return;
    Thread* me = find();
    if (me == nullptr) return;
    if (migrations != 0 && nr_ > 1) {
      if (const u32 pick = choose(nr_)) {
        --migrations;
        migrate(*me, (me->cpu + pick) % nr_);
      }
    }
    Explored::point_ahead();
    goes_on(*me);
  }

  void begins(u32 thread) {
    threads[thread].context = &Explored::context();
    threads[thread].view = &Explored::context().view;
  }

  // What the kernel does to a thread that it interrupts, in a sequence or outside.
  void cut_off(Thread& t) const {
    if (t.deaf || everybody_deaf) return;
    ++t.interrupted;
    t.rseq_cs = RseqCs::none;
    if (t.cut == nullptr) return;
    Explored::note("cut off");
    *t.cut = true;
    t.cut = nullptr;
  }

  Log* log_of(const Control* c) {
    for (Log& l : logs)
      if (l.ring.control == c) return &l;
    return nullptr;
  }

  void inside(const void* p, size_t size) const {
    const auto at = reinterpret_cast<u64>(p);
    for (const Log& l : logs) {
      if (l.ring.control == nullptr) continue;
      const auto within = [&](const void* region, u64 bytes) { return at >= u64(region) && at + size <= u64(region) + bytes; };
      if (within(l.ring.control, control_size(l.ring.geometry)) || within(l.ring.data, l.ring.geometry.data_size())) return;
    }
    if (p != &nobody_waits && (p < bell || p >= bell + 2)) fail("an access outside the ring: %p", p);
  }

  bool is_slot(const u64* p) const {
    for (const Log& l : logs)
      for (u32 k = 0; l.ring.control != nullptr && k < l.ring.geometry.nr_slots(); ++k)
        if (p == &l.ring.record(k).slot) return true;
    return false;
  }
  // The word that a time has if there is only one.
  u64* one_time(const u64* p) const {
    for (const Log& l : logs)
      for (u32 id = 0; l.ring.control != nullptr && id < l.ring.geometry.nr_subbufs(); ++id)
        if (p == times(l.ring.record(id)) + 1) return times(l.ring.record(id));
    return const_cast<u64*>(p);
  }

  bool is_thread() const { return find() != nullptr; }

  Thread threads[most_threads];
  Log logs[most];
  Plant plant = Plant::none;  // of all executions until it is taken back
  u64 time = 0;
  u32 migrations = 0, jumps = 0;  // budgets
  bool everybody_deaf = false;
  const u64* bell = nullptr;

 private:
  Thread* find() const {
    const void* const me = &Explored::context();
    for (const Thread& t : threads)
      if (t.context == me) return const_cast<Thread*>(&t);
    return nullptr;
  }

  void goes_on(Thread& me) {
    Thread*& now = current_[me.cpu];
    if (now == &me) return;
    if (now != nullptr) {
      cut_off(*now);
      views_[me.cpu].join(*now->view);
    }
    now = &me;
    Explored::comes_after(views_[me.cpu]);
  }

  void migrate(Thread& me, u32 to) {
    Explored::note("migrates");
    if (current_[me.cpu] == &me) {
      views_[me.cpu].join(*me.view);
      current_[me.cpu] = nullptr;
    }
    cut_off(me);
    me.cpu = to;
  }

  static constexpr u32 most_readings = 64;
  u32 nr_ = 1, readings_ = 0;
  bool jumped_ = false;
  Reading read_[most_readings];
  Thread* current_[most] = {};
  View views_[most];
};
inline Cpus cpus;
inline bool has(Plant plant) { return cpus.plant == plant; }

// Memory of the writers, readers and iterators.
struct CpuMemory : Explored {
  template <class T>
  static T* at(T* p) {
    if (sizeof(T) == 8 && has(Plant::one_time)) return reinterpret_cast<T*>(cpus.one_time(reinterpret_cast<const u64*>(p)));
    return p;
  }
  template <class T>
  static T load(const T* p, Order o) {
    cpus.inside(p, sizeof(T));
    cpus.arrive();
    return Explored::load(at(p), o);
  }
  template <class T>
  static void store(T* p, T v, Order o) {
    cpus.inside(p, sizeof(T));
    cpus.arrive();
    Explored::store(at(p), v, o);
  }
  static bool cas(u64* p, u64& expected, u64 desired) {
    cpus.inside(p, 8);
    cpus.arrive();
    if (has(Plant::slot_by_store) || has(Plant::swap_by_store)) {
      if (Explored::modelled() && cpus.is_slot(p) && cpus.is_thread() == has(Plant::slot_by_store)) {
        Explored::store(p, desired, Order::release);
        return true;
      }
    }
    if (has(Plant::not_entered) && cpus.is_slot(p) && (expected | entered_bit) == desired) return true;
    return Explored::cas(p, expected, desired);
  }
  static void fence_light() {
    if (has(Plant::no_wake_fence)) return;
    cpus.arrive();
    Explored::fence_light();
  }
  static void fence_release() { cpus.arrive(), Explored::fence_release(); }
  static void fence_acquire() { cpus.arrive(), Explored::fence_acquire(); }
  static void fence_heavy() { cpus.arrive(), Explored::fence_heavy(); }
  static void copy_in(void* to, const void* from, size_t size) {
    cpus.inside(from, size);
    Explored::copy_in(to, from, size);
  }
};

// The steps of rseq.hpp, one by one. Bytes of 8 are stored as two words of 4 in one step; of a payload the first and the last
// word are copied. Once the sequence is cut off its accesses do not happen.
template <Machine A>
struct ModelRseq {
  static u32 cpu(i64 area) noexcept { return cpus.cpu_id(area); }

  template <u32>
  static Sequence append_usual(i64 area, const CpuRings& rings, const ringside::Shape& shape, const void* payload) noexcept {
    Run run(area, RseqCs::usual);
    return usual(run, rings.nr_usual, rings, shape, payload, 0);
  }
  template <class Clock>
  static Sequence append_timed(i64 area, const CpuRings& rings, const ringside::Shape& shape, const void* payload,
                               Clock& clock, bool watch) noexcept {
    if (!watch && !has(Plant::armed_late)) arm(area, RseqCs::timed);
    const u64 now = clock.now();
    if (!watch && has(Plant::armed_late)) arm(area, RseqCs::timed);
    Run run(area, RseqCs::timed, !watch);
    return usual(run, rings.nr, rings, shape, payload, now);
  }

  static Guard arm(i64 area, bool watch) noexcept {
    if (!watch) arm(area, RseqCs::append);
    return {watch, 0, 0, 0, 0};
  }
  static void disarm(i64 area) noexcept {
    cpus.point();
    if (!has(Plant::left_armed)) cpus.threads[area].rseq_cs = RseqCs::none;
  }
  static Sequence append(i64 area, const Append& a, const Guard& guard) noexcept {
    Run run(area, RseqCs::append, guard.run == 0);
    if (run.moved) return run.leave(Sequence::moved);
    if (!has(Plant::no_cpu_check) && static_cast<u32>(a.cpu) != cpus.cpu_id(area)) return run.leave(Sequence::moved);
    if (run.load(&a.control->gate) != gate_cpu_open && !has(Plant::no_gate_check)) return run.leave(Sequence::moved);
    if (!has(Plant::no_tail_check) && run.load(&a.control->commit) != a.tail) return run.leave(Sequence::moved);
    if (!has(Plant::no_commit_check) && run.load(a.commit) != a.before) return run.leave(Sequence::moved);
    const u64 now = a.given != 0 ? a.given : cpus.clock();
    const u64 passed = now - a.last;
    if (passed >= a.limit) return run.leave(Sequence::late);
    const Out out{*a.control, a.from, now};
    run.store(has(Plant::other_time) ? other(a) : a.time, now);
    run.store(a.stamp != a.time || !has(Plant::other_time) ? a.stamp : other(a), now);
    if (has(Plant::commit_first)) run.publish(a.commit, a.after, out);
    run.store8(reinterpret_cast<u8*>(a.commit) + a.after, a.tail_bytes);
    u8* at = a.at;
    if (a.extend != 0) {
      run.store8(at, (static_cast<u32>(passed) << 5 | abi::type_time_extend) | (passed >> abi::delta_bits) << 32);
      at += abi::stamp_size;
    }
    run.store8(at, a.head | (passed & a.delta_mask) << 5);
    run.copy(a.to, a.from, a.size);
    if (has(Plant::commit_before_committed)) run.publish(a.commit, a.after, out);
    run.store(a.committed, a.committed_after, committed_order());
    if (!has(Plant::commit_first) && !has(Plant::commit_before_committed)) run.publish(a.commit, a.after, out);
    return run.leave(Sequence::done);
  }

  static Sequence refuse(i64 area, const Refuse& r) noexcept {
    Run run(area, RseqCs::refuse);
    if (static_cast<u32>(r.cpu) != cpus.cpu_id(area)) return run.leave(Sequence::moved);
    if (run.load(&r.control->gate) != gate_cpu_open) return run.leave(Sequence::moved);
    if (run.load(&r.control->commit) != r.tail) return run.leave(Sequence::moved);
    const u64 before = run.load(r.word);
    run.store(r.word, before + 1);
    return run.leave(Sequence::done);
  }
  static Sequence enter(i64 area, const Enter& e) noexcept {
    Run run(area, RseqCs::enter);
    if (static_cast<u32>(e.cpu) != cpus.cpu_id(area)) return run.leave(Sequence::moved);
    if (run.load(&e.control->gate) != gate_cpu_open && !has(Plant::no_gate_check)) return run.leave(Sequence::moved);
    if (run.load(&e.control->commit) != e.tail) return run.leave(Sequence::moved);
    if (run.load(e.commit) != e.before) return run.leave(Sequence::moved);
    if (has(Plant::enter_in_pieces) && !run.cut) cpus.threads[area].cut = nullptr;
    if (!has(Plant::no_final)) run.store(e.committed, e.committed_final, committed_order());
    run.store(e.real_end, e.end);
    run.pad(e.pad0, static_cast<u32>(e.padding), e);
    run.pad(e.pad1, static_cast<u32>(e.padding >> 32), e);
    if (has(Plant::tail_first)) run.store(&e.control->commit, e.next_tail, tail_order());
    if (!has(Plant::committed_stays)) run.store(&e.fresh->committed, u64{0});
    run.store(&times(*e.fresh)[0], u64{0});
    run.store(&times(*e.fresh)[1], u64{0});
    if (!has(Plant::no_base)) run.store(&e.fresh->base, e.base);
    run.store(&e.header->time_stamp, e.last);
    run.store(&e.header->commit, u64{0});
    if (!has(Plant::tail_first)) run.store(&e.control->commit, e.next_tail, tail_order());
    return run.leave(Sequence::done);
  }

 private:
  static constexpr bool x86 = A == Machine::x86;
  static constexpr Order stored = x86 ? Order::release : Order::relaxed;
  static Order released_unless(Plant plant) { return has(plant) ? Order::relaxed : Order::release; }
  static Order committed_order() { return released_unless(Plant::plain_committed); }
  static Order commit_order() { return released_unless(Plant::plain_commit); }
  static Order tail_order() { return released_unless(Plant::plain_tail); }

  static bool past(u32 grow, u64 commit, u64 capacity) {
    const u64 end = grow + commit;
    return has(Plant::short_compare) ? static_cast<u32>(end) > capacity : end < commit || end > capacity;
  }
  static u64* other(const Append& a) {
    Record* const rec = reinterpret_cast<Record*>(reinterpret_cast<u8*>(a.committed) - offsetof(Record, committed));
    return &times(*rec)[a.time == times(*rec)];
  }

  struct Out {
    Control& control;
    const void* payload;
    u64 now;
  };

  static void arm(i64 area, RseqCs which) noexcept {
    cpus.point();
    cpus.threads[area].rseq_cs = which;
  }

  struct Run {
    // armed: it goes on only if the descriptor still stands there.
    Run(i64 area, RseqCs which, bool armed = false) : thread(cpus.threads[area]), armed_(armed) {
      moved = armed && thread.rseq_cs != which && !has(Plant::unguarded);
      thread.rseq_cs = which;
      thread.cut = &cut;
      if (thread.stepped) cut = true;
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    ~Run() {
      if (thread.cut == &cut) thread.cut = nullptr;
      if (armed_) disarm(&thread - cpus.threads);
    }

    Sequence leave(Sequence how) const { return cut ? Sequence::aborted : how; }

    // False: cut off, and the access does not happen.
    bool step() {
      if (cut) return false;
      if (!Explored::modelled()) return true;
      cpus.arrive();
      if (cut) Explored::no_point(false);
      return !cut;
    }

    u64 load(const u64* p) {
      cpus.inside(p, 8);
      return step() ? Explored::load(CpuMemory::at(p), x86 ? Order::acquire : Order::relaxed) : 0;
    }
    void store(u64* p, u64 v, Order order = stored) {
      if (cut) return;
      cpus.inside(p, 8);
      if (step()) Explored::store(CpuMemory::at(p), v, order);
    }
    void publish(u64* commit, u64 v, const Out& out) {
      if (cut) return;
      cpus.inside(commit, 8);
      if (!step()) return;
      if (armed_) cpus.in_time(thread, out.now);
      Cpus::Log& log = *cpus.log_of(&out.control);
      if (log.n == Cpus::most_events) fail("the books are full");
      u32 number;
      memcpy(&number, out.payload, 4);
      log.entries[log.n++] = {number, out.now};
      Explored::store(commit, v, commit_order());
    }
    void store4(u8* p, u32 v) { store_bytes(p, v, false); }
    void store8(u8* p, u64 v) { store_bytes(p, v, true); }
    void copy(u8* to, const void* from, u64 size) {
      if (size == 0) return;
      const auto* const bytes = static_cast<const u8*>(from);
      u32 word;
      memcpy(&word, bytes, 4);
      store4(to, word);
      if (size < 8) return;
      memcpy(&word, bytes + size - 4, 4);
      store4(to + size - 4, word);
    }
    // A word of padding, or one on the stack of the caller.
    void pad(u32* p, u32 v, const Enter& near) {
      if (u64(p) - (u64(&near) - 4096) < 8192)
        *p = v;
      else
        store4(reinterpret_cast<u8*>(p), v);
    }

    Cpus::Thread& thread;
    bool cut = false, moved = false;

   private:
    const bool armed_;

    void store_bytes(u8* p, u64 v, bool eight) {
      if (cut) return;
      cpus.inside(p, eight ? 8 : 4);
      if (!step()) return;
      if (u64(p) % 4 != 0) {  // of a corrupt commit; the model has no such words
        Explored::no_point(false);
        return;
      }
      Explored::store(reinterpret_cast<u32*>(p), static_cast<u32>(v), stored);
      if (!eight) return;
      if (Explored::modelled()) Explored::no_point(true);
      Explored::store(reinterpret_cast<u32*>(p + 4), static_cast<u32>(v >> 32), stored);
    }
  };

  static Sequence usual(Run& run, u32 nr, const CpuRings& rings, const ringside::Shape& shape, const void* payload,
                        u64 given) noexcept {
    if (run.moved) return run.leave(Sequence::moved);
    const u32 cpu = run.thread.registered ? run.thread.cpu : ~u32{1};
    if (cpu >= nr) return run.leave(Sequence::moved);
    const CpuPlace& place = *rings.place[cpu];
    Control& c = *place.control;
    if (run.load(&c.gate) != gate_cpu_open && !has(Plant::no_gate_check)) return run.leave(Sequence::moved);
    const u32 id = place_of(run.load(&c.commit)).id;
    if (id >= place.nr_subbufs) return run.leave(Sequence::moved);
    u8* const page = place.first + id * place.subbuf_size;
    auto& header = *reinterpret_cast<abi::SubBufferHeader*>(page);
    Record& rec = reinterpret_cast<Record*>(&c + 1)[id];
    const u64 commit = run.load(&header.commit);
    if (commit == 0 && !has(Plant::usual_first)) return run.leave(Sequence::moved);
    if (past(static_cast<u32>(shape.grow), commit, place.capacity)) return run.leave(Sequence::moved);
    u64 committed = run.load(&rec.committed);
    if (static_cast<u32>(committed) != static_cast<u32>(commit)) {
      if (!has(Plant::no_bytes_check)) return run.leave(Sequence::moved);
      committed = committed >> 32 << 32 | static_cast<u32>(commit);
    }
    const u32 parity = committed >> 32 & 1;
    const u64 last = run.load(&times(rec)[parity]);
    const u64 now = given != 0 ? given : cpus.clock();
    run.store(&times(rec)[has(Plant::other_time) ? parity : parity ^ 1], now);
    if (now - last >= abi::delta_limit) return run.leave(Sequence::moved);
    committed += shape.grow;
    const auto after = static_cast<u32>(committed);
    const Out out{c, payload, now};
    if (has(Plant::commit_before_committed)) run.publish(&header.commit, after, out);
    run.store(&rec.committed, committed, committed_order());
    if (has(Plant::commit_first)) run.publish(&header.commit, after, out);
    run.store8(page + 8 + after, shape.tail_bytes);
    run.store8(page + abi::header_size + commit, shape.head | (now - last) << 5);
    run.copy(page + abi::header_size + commit + shape.payload_at, payload, shape.size);
    if (!has(Plant::commit_first) && !has(Plant::commit_before_committed)) run.publish(&header.commit, after, out);
    return run.leave(Sequence::done);
  }
};

struct ModelClock {
  bool inside = true;
  u64 now() const noexcept { return inside ? cpus.clock() : cpus.clock_outside(); }
  bool in_sequence() const noexcept { return inside; }
};

struct CpuShape {
  u32 cpus = 1;
  u32 subbufs = 3, spares = 0;
  bool discard = false;
  bool checked = false;     // the invariants after each access
  bool counter = false;     // the clock is read outside of the sequence
  bool watched = false;     // guarded by a stopwatch, for which no time passes here
  u64 time = u64{1} << 40;  // of the clock at first
};

struct CpuBooks {
  static constexpr u32 most_events = Cpus::most_events;
  struct Reading {
    bool seen[most_events];  // by index
    u64 read, lost, next_index;
    u64 first_index;  // since the last reset
    Watched watched;
  };
  u32 threads, events;
  u32 written;  // writes that answered so
  u32 open;     // writes that have not come back
  u32 full;     // refused so
  bool reset;   // the ring's count of them may be less
  u64 bell[2];
  u32 rung;
  Reading of[Cpus::most];
};

template <Orders O = Orders{}, Machine A = Machine::x86>
class CpuModel {
 public:
  using M = CpuMemory;
  using W = CpuWriter<ModelClock, ModelRseq<A>, M, O>;
  using R = Reader<M, O>;

  CpuModel(World& world, const CpuShape& shape) : b(world.make<CpuBooks>()), world_(&world), rings_(rings(world)) {
    cpus.reset(shape.cpus);
    cpus.everybody_deaf = has(Plant::no_abort);
    cpus.time = shape.time;
    cpus.bell = b->bell;
    const Geometry g(4096, shape.subbufs + shape.spares, shape.spares);
    new (rings_) CpuRings{{&b->bell[0], &b->bell[1], ring_bell, b}, shape.counter ? 0 : shape.cpus, shape.cpus, {}};
    for (u32 c = 0; c < shape.cpus; ++c) {
      Ring& ring = cpus.logs[c].ring;
      ring.geometry = g;
      ring.kind = RingKind::cpu;
      ring.control = static_cast<Control*>(world.allocate(control_size(g)));
      ring.data = static_cast<u8*>(world.allocate(g.data_size()));
      ring.control->gate = gate_cpu_open;
      ring.control->mode = shape.discard;
      rings_->place[c] = new (world.make<CpuPlace>())
          CpuPlace{ring.control, ring.subbuf(0), g.subbuf_size(), g.nr_subbufs(), g.capacity(), ring};
      name_words(world, ring);
    }
    new (writer_ = static_cast<W*>(world.allocate(sizeof(W))))
        W(ModelClock{!shape.counter}, shape.watched);
    if (shape.checked) world.check([m = *this] { m.holds(&CpuModel::watched); });
  }

  // ---- writers ---------------------------------------------------------------------------------------------------------

  template <class F>
  u32 thread(const char* name, u32 cpu, F run) const {
    const u32 me = ++b->threads;  // 0 is the set-up
    if (me == Cpus::most_threads) fail("too many threads");
    cpus.threads[me].cpu = cpu;
    world_->spawn(name, [=] {
      cpus.begins(me);
      run(me);
    });
    return me;
  }

  // A handler of that thread; the kernel cuts off the sequence that it finds it in.
  template <class F>
  void handler(const char* name, u32 thread, F run) const {
    world_->signal(name, [=] {
      cpus.cut_off(cpus.threads[thread]);
      run(thread);
    });
  }

  Refused write(u32 thread, u32 size) const {
    if (++b->events == CpuBooks::most_events) fail("the books are full");
    const u32 number = b->events;
    u32 payload[1024];
    payload[0] = payload[size < 8 ? 0 : size / 8 * 2 - 1] = payload[size / 4 - 1] =
        number;  // first and last of what is copied, and of all
    ++b->open;
    const Refused why = writer_->write(*rings_, thread, payload, size);
    --b->open;
    const u32 found = entries(number);
    if (found != (why == Refused::no)) fail("event %u: answer %u, published %u times", number, unsigned(why), found);
    b->written += why == Refused::no;
    b->full += why == Refused::full;
    return why;
  }

  // By the set-up.
  void fill(u32 cpu, std::initializer_list<u32> sizes) const {
    cpus.threads[0].cpu = cpu;
    for (u32 size : sizes) write(0, size);
  }

  const Ring& ring(u32 cpu) const { return cpus.logs[cpu].ring; }
  const CpuRings& places() const { return *rings_; }
  W& writer() const { return *writer_; }

  // ---- readers ---------------------------------------------------------------------------------------------------------

  bool read(u32 cpu, bool meta = false) const {
    R r(ring(cpu));
    return read(r, cpu, meta);
  }
  bool read(R& r, u32 cpu, bool meta = false) const {
    const Got got = r.get_reader(meta);
    require(got != Got::corrupt, "a good ring is not called corrupt");
    if (got == Got::nothing) return false;
    walk<M>(cpu, r.view(), ring(cpu).subbuf(r.view().id));
    count(cpu, r.view());
    return true;
  }
  bool read_and_consume(R& r, u32 cpu) const {
    const Got got = r.peek();
    require(got != Got::corrupt, "a good ring is not called corrupt");
    if (got == Got::nothing) return false;
    const ReaderView v = r.view();
    walk<M>(cpu, v, ring(cpu).subbuf(v.id));
    r.consume(v.end - v.begin, v.events);
    count(cpu, v);
    return true;
  }

  void restart(u32 cpu) const {
    R r(ring(cpu));
    r.restart();
    CpuBooks::Reading& of = b->of[cpu];
    of.read = of.lost = 0;
    of.first_index = of.next_index = r.state().expected;
    b->reset = true;
  }

  u32 give_back(R& r, u32 cpu) const {
    return r.give_back([this, cpu](u32 id) {
      abi::SubBufferHeader& header = ring(cpu).header(id);
      M::store(&header.time_stamp, u64{0}, Order::relaxed);
      M::store(&header.commit, u64{0}, Order::relaxed);
      auto* const words = reinterpret_cast<u32*>(&header + 1);
      for (u32 i = 0; i < ring(cpu).geometry.capacity() / 4; ++i)
        if (words[i] != 0) M::store(&words[i], 0u, Order::relaxed);
    });
  }

  // How many events it meets.
  u32 look_through(u32 cpu, u32 pages = ~0u, u32 looks = 1) const {
    alignas(8) u8 buffer[4096];
    Iterator<M, O> it(ring(cpu), buffer);
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
      const ReaderView v = it.view();
      walk<PlainWords>(cpu, v, buffer);
      require(first || v.first_index == next + v.lost_before, "an iterator goes forward and counts what it misses");
      first = false;
      next = v.first_index + v.events;
      n += v.events;
    }
    return n;
  }

  // ---- at the end ------------------------------------------------------------------------------------------------------

  void balance() const {
    u32 published = 0;
    u64 dropped = 0;
    for (u32 c = 0; c < cpus.nr(); ++c) {
      const Ring& r = ring(c);
      CpuBooks::Reading& of = b->of[c];
      const u64 n = cpus.logs[c].n - of.first_index;
      published += cpus.logs[c].n;
      for (u32 i = 0; i < cpus.logs[c].n; ++i)
        if (i != 0 && cpus.logs[c].entries[i].time < cpus.logs[c].entries[i - 1].time)
          fail("event %u has a time before that of the last one", i);
      RingCounters before = counters<M>(r);
      if (before.written != n || before.written != before.read + before.unread + before.overrun)
        fail("written %llu (%llu) = read %llu + unread %llu + overrun %llu", (unsigned long long)before.written,
             (unsigned long long)n, (unsigned long long)before.read, (unsigned long long)before.unread,
             (unsigned long long)before.overrun);
      if (const u32 met = look_through(c); met != before.unread)
        fail("%llu unread, an iterator meets %u", (unsigned long long)before.unread, met);
      R reader(r);
      while (read_and_consume(reader, c)) {
      }
      const RingCounters k = counters<M>(r);
      const u64 open_loss = cpus.logs[c].n - of.next_index;  // with nothing behind it yet
      if (k.written != n || k.unread != 0 || k.read != of.read || k.overrun != of.lost + open_loss ||
          k.written != k.read + k.overrun)
        fail("written %llu (%llu) = read %llu (%llu) + unread %llu + overrun %llu (%llu)", (unsigned long long)k.written,
             (unsigned long long)n, (unsigned long long)k.read, (unsigned long long)of.read, (unsigned long long)k.unread,
             (unsigned long long)k.overrun, (unsigned long long)(of.lost + open_loss));
      if (before.overrun != k.overrun || (r.control->mode != 0 && k.overrun != 0))
        fail("overrun %llu, then %llu", (unsigned long long)before.overrun, (unsigned long long)k.overrun);
      dropped += k.dropped;
      if (r.control->corrupt != 0) fail("a good ring is given up");
    }
    if (published < b->written || published > b->written + b->open)
      fail("%u published, %u written, %u open", published, b->written, b->open);
    if ((dropped < b->full && !b->reset) || dropped > b->full + b->open)
      fail("%llu dropped, %u refused, %u open", (unsigned long long)dropped, b->full, b->open);
    holds(&CpuModel::nothing);
  }

  void holds(Watched* (CpuModel::*before)(u32) const) const {
    for (u32 c = 0; c < cpus.nr(); ++c)
      if (const char* what = broken<M>(ring(c), (this->*before)(c))) fail("does not hold: %s", what);
  }

  CpuBooks* const b;

 private:
  struct PlainWords {
    static u32 load(const u32* p, Order) { return *p; }
    static u64 load(const u64* p, Order) { return *p; }
  };

  static CpuRings* rings(World& world) {
    return static_cast<CpuRings*>(world.allocate(sizeof(CpuRings) + Cpus::most * sizeof(CpuPlace*)));
  }
  static void ring_bell(void* books) noexcept { ++static_cast<CpuBooks*>(books)->rung; }
  Watched* watched(u32 cpu) const { return &b->of[cpu].watched; }
  Watched* nothing(u32) const { return nullptr; }

  static u32 entries(u32 number) {
    u32 n = 0;
    for (const Cpus::Log& log : cpus.logs)
      for (u32 i = 0; i < log.n; ++i) n += log.entries[i].number == number;
    return n;
  }

  // A page from its start: events in front of the view have been seen, those in it must be what the books say.
  template <class L>
  void walk(u32 cpu, const ReaderView& v, const u8* sub_buffer) const {
    const Cpus::Log& log = cpus.logs[cpu];
    const u8* const data = sub_buffer + abi::header_size;
    const auto word = [&](u32 at) { return L::load(reinterpret_cast<const u32*>(data + at), Order::relaxed); };
    u64 time = L::load(reinterpret_cast<const u64*>(sub_buffer), Order::relaxed);
    u32 n = 0;
    bool first = true;
    for (u32 at = 0; at < v.end;) {
      const u32 header = word(at), type = abi::word_type(header), left = v.end - at;
      if (left < 8 && (type == 0 || type > abi::type_padding || (type == abi::type_padding && abi::word_delta(header) != 0)))
        fail("no event at data offset %u: header 0x%x, end %u", at, header, v.end);
      u32 size = type == 0 ? 4 + word(at + 4) : 4 + 4 * type;
      if (type == abi::type_padding) size = abi::word_delta(header) != 0 ? 4 + word(at + 4) : left;
      if (type == abi::type_time_extend) {
        size = 8;
        time += u64{word(at + 4)} << abi::delta_bits;
      }
      if (type == abi::type_time_stamp || size % 4 != 0 || size > left || size < 4)
        fail("no event at data offset %u: header 0x%x, size %u, end %u", at, header, size, v.end);
      time += abi::word_delta(header);
      if (type < abi::type_padding) {
        if (first && abi::word_delta(header) != 0) fail("the first event's time is not the time stamp");
        first = false;
        if (at >= v.begin) {
          const u64 index = v.first_index + n++;
          const u32 begin = word(at + abi::payload_offset(size)), end = word(at + size - 4);
          if (index >= log.n) fail("the event at index %llu was not written: %u", (unsigned long long)index, begin);
          const Cpus::Entry& entry = log.entries[index];
          if (begin != end || begin != entry.number)
            fail("a torn event at data offset %u: %u .. %u, it is %u", at, begin, end, entry.number);
          if (time != entry.time)
            fail("event %u has the time %llu, it was %llu", begin, (unsigned long long)time, (unsigned long long)entry.time);
        }
      }
      at += size;
    }
    if (n != v.events) fail("%u events said, %u found", v.events, n);
  }

  void count(u32 cpu, const ReaderView& v) const {
    CpuBooks::Reading& of = b->of[cpu];
    for (u64 i = v.first_index; i < v.first_index + v.events; ++i) {
      if (of.seen[i]) fail("event at index %llu was read twice", (unsigned long long)i);
      of.seen[i] = true;
    }
    if (v.first_index != of.next_index + v.lost_before)
      fail("index %llu after %llu, %llu lost", (unsigned long long)v.first_index, (unsigned long long)of.next_index,
           (unsigned long long)v.lost_before);
    of.next_index = v.first_index + v.events;
    of.read += v.events;
    of.lost += v.lost_before;
  }

  static void name_words(World& world, const Ring& ring) {
    Control& c = *ring.control;
    world.name(&c.gate, "gate");
    world.name(&c.mode, "mode");
    world.name(&c.commit, "tail");
    world.name(&c.dropped, "dropped");
    world.name(&c.backwards, "backwards");
    world.name(&c.corrupt, "corrupt");
    world.name(&c.reader_generation, "generation");
    world.name(&c.intent, "intent");
    for (int s = 0; s < 2; ++s) world.name(&c.state[s].page, "state.page", s);
    for (u32 id = 0; id < ring.geometry.nr_subbufs(); ++id) {
      Record& rec = ring.record(id);
      const int i = static_cast<int>(id);
      world.name(&rec.slot, "slot", i);
      world.name(times(rec), "time0", i);
      world.name(times(rec) + 1, "time1", i);
      world.name(&rec.committed, "committed", i);
      world.name(&rec.base, "base", i);
      world.name(&rec.real_end, "real_end", i);
      world.name(&ring.header(id).time_stamp, "header.time", i);
      world.name(&ring.header(id).commit, "header.commit", i);
      world.name(ring.subbuf(id) + 16, "data", i);
    }
  }

  World* world_;
  CpuRings* const rings_;
  W* writer_ = nullptr;
};

using Sizes = std::vector<u32>;

// Threads a, b, c beside readers of CPU 0's ring.
struct CpuPlan {
  CpuShape shape = {};
  Sizes on = {0, 0, 0};  // their CPUs
  u32 migrations = 0, jumps = 0;
  bool deaf = false;  // a is never cut off
  Sizes before = {};
  u32 read_before = 0;
  std::vector<Sizes> writes = {};
  Sizes handlers = {};
  u32 reads = 0;
  bool meta = false;
  bool restart = false, give_back = false;  // by the reader, at its end
  u32 looks = 0;
  bool deaths = false;       // of threads
  bool reader_dies = false;  // another one goes on
};

inline const char* const thread_names[] = {"a", "b", "c"};

template <Orders O = Orders{}, Machine A = Machine::x86>
auto on_cpus(const CpuPlan& plan) {
  return [=](World& world) {
    CpuModel<O, A> m(world, plan.shape);
    for (u32 c = 0; c < plan.shape.cpus; ++c)
      for (u32 size : plan.before) m.fill(c, {size});
    for (u32 i = 0; i < plan.read_before; ++i) m.read(0);
    for (u32 i = 0; i < plan.writes.size(); ++i) {
      const u32 me = m.thread(thread_names[i], plan.on[i], [=](u32 self) {
        for (u32 size : plan.writes[i]) m.write(self, size);
      });
      if (i == 0) cpus.threads[me].deaf = plan.deaf;
      if (plan.deaths) world.may_die(thread_names[i]);
      if (i == 0)
        for (u32 size : plan.handlers) m.handler(thread_names[i], me, [=](u32 self) { m.write(self, size); });
    }
    if (plan.reads != 0 || plan.restart || plan.give_back) {
      using R = typename CpuModel<O, A>::R;
      const auto read = [=](R& r) {
        for (u32 i = 0; i < plan.reads; ++i) plan.meta ? m.read(r, 0, true) : m.read_and_consume(r, 0);
        if (plan.restart) m.restart(0);
        if (plan.give_back) m.give_back(r, 0);
      };
      world.spawn("reader", [=] {
        R r(m.ring(0));
        r.try_lock(1);
        read(r);
      });
      if (plan.reader_dies) {
        world.may_die("reader");
        world.on_death("reader", "second reader", [=] {
          R r(m.ring(0));
          if (const u64 holder = r.try_lock(2)) require(r.steal(holder, 2), "nobody else steals");
          read(r);
        });
      }
    }
    if (plan.looks != 0) world.spawn("iterator", [=] { m.look_through(0, plan.looks); });
    cpus.migrations = plan.migrations;
    cpus.jumps = plan.jumps;
    world.after([=] {
      cpus.migrations = cpus.jumps = 0;
      m.balance();
    });
  };
}

// A thread has seen the tail and is moved to another CPU; the page is left, taken and flagged; it looks at the page's commit.
inline const CpuPlan flags_beside_a_late_writer{.shape = {.cpus = 2, .counter = true},
                                                .migrations = 1,
                                                .before = {whole, whole, half},
                                                .writes = {{half}, {whole}},
                                                .reads = 1,
                                                .meta = true};

// All is read. The place behind the next one holds a sub-buffer that was written; a spare one is exchanged for it while threads
// come there.
inline CpuPlan giving_back() {
  return {.shape = {.subbufs = 4, .spares = 1},
          .before = {half, half, half, half, half},
          .read_before = 3,
          .writes = {{whole, whole}},
          .give_back = true};
}

// A reader that waits for an event sees it, or the doorbell rings.
inline void sleeper(World& world) {
  using Model = CpuModel<Orders{}, Machine::arm64>;
  Model m(world, {});
  m.fill(0, {small});
  bool* const saw = world.make<bool>();
  m.thread("a", 0, [=](u32 me) { m.write(me, small); });
  world.spawn("sleeper", [=] {
    Explored::store(&m.b->bell[0], u64{1}, Order::relaxed);
    Explored::fence_heavy();
    *saw = published<Model::M, Orders{}>(m.ring(0), 1, false, {}).events == 2;
  });
  world.after([=] { require(*saw || m.b->rung != 0, "a sleeper sees the event, or is rung for"); });
}

// What an index counts, who acquired it can read.
inline void counted_is_seen(World& world) {
  using Model = CpuModel<Orders{}, Machine::arm64>;
  Model m(world, {});
  m.fill(0, {small});
  m.thread("a", 0, [=](u32 me) {
    for (int i = 0; i < 3; ++i) m.write(me, small);
  });
  world.spawn("stranger", [=] {
    const u64 counted = Model::R(m.ring(0)).index();
    require(published<Model::M, Orders{}>(m.ring(0), 1, false, {}).events >= counted, "what is counted can be seen");
  });
  world.after([=] { m.balance(); });
}

// A peer stores what it likes: into one word, or into two that belong together.
inline constexpr u64 all_ones = ~u64{0};

inline auto hostile(u32 strikes, void (*run)(const CpuModel<>&, u32)) {
  return [=](World& world) {
    CpuModel<> m(world, {.spares = 1});
    m.fill(0, {half, half, half});
    m.read(0);
    m.fill(0, {half});
    const Ring& ring = m.ring(0);
    Control& c = *ring.control;
    ReaderState& state = c.state[c.reader_generation & 1];
    const u32 id = place_of(c.commit).id;
    Record &rec = ring.record(id), &other = ring.record((id + 1) % 3);
    if (strikes == 1)
      world.malice(
          {&c.commit,
           &c.gate,
           &c.mode,
           &c.intent,
           &c.spare,
           &c.exchange,
           &c.reader_generation,
           &state.page,
           &state.bytes,
           &state.events,
           &state.expected,
           &ring.record(0).slot,
           &ring.record(1).slot,
           times(rec),
           times(rec) + 1,
           &rec.committed,
           &rec.base,
           &rec.real_end,
           &other.committed,
           &other.real_end,
           times(other),
           &ring.header(id).commit,
           &ring.header(id).time_stamp,
           &ring.header((id + 1) % 3).commit,
           &ring.header((id + 2) % 3).commit},
          {0, 1, all_ones, all_ones - 1, 0xFFFFF, 0x1000FFFFF, u64{1} << 20, u64{1} << 63, 4078, 4080, 0xFFFFFFF0, 0x7FFFFFFF},
          1);
    else
      world.malice({&rec.committed, &ring.header(id).commit}, {0xFFFFFFF0, 0x7FFFFFFF, 4078}, strikes);
    m.thread("victim", 0, [=](u32 me) { run(m, me); });
  };
}

inline void hostile_write(const CpuModel<>& m, u32 me) {
  u32 payload[1024] = {};
  for (u32 size : {half, most, small}) m.writer().write(m.places(), me, payload, size);
}

// A controller shuts the gate between look and sequence.
inline void shut_gate(World& world) {
  CpuModel<> m(world, {});
  m.fill(0, {half});
  u32* const begun = world.make<u32>(3);  // writes begun after the gate was shut, and their answers
  world.spawn("controller", [=] {
    Explored::store(&m.ring(0).control->gate, gate_off | gate_cpu_open, Order::release);
    begun[0] = cpus.logs[0].n;
  });
  for (u32 i = 0; i < 2; ++i)
    m.thread(thread_names[i], 0, [=](u32 me) {
      for (u32 n = 0; n < 2; ++n) {
        const bool shut = begun[0] != 0;
        const Refused why = m.write(me, half);
        require(why == Refused::no || why == Refused::disabled, "written or disabled");
        require(!shut || why == Refused::disabled, "a shut gate refuses");
      }
    });
  world.after([=] {
    require(cpus.logs[0].n <= begun[0] + 1, "one sequence may have been under way");
    m.balance();
  });
}

}  // namespace ringside::model
