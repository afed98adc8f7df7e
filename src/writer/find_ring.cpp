#include "writer/find_ring.hpp"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#include "sys/beneath.hpp"
#include "writer/kept_rings.hpp"

namespace ringside {
namespace {

bool all_read(const Ring& ring) noexcept {
  const RingCounters n = counters<>(ring);
  return n.unread == 0;
}

// Takes ring `n` if its entry is in `state`; busy on success.
bool claim(const TakenRing& own, RingEntry& entry, u64 state) noexcept {
  const u64 claimed = claim_of(own.in->member(), state_of(state) == RingState::retired, own.tag);
  return __atomic_compare_exchange_n(&entry.state, &state, claimed, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

// Makes a ring ready for a new owner: its writer may have died in it, or it was given up. False: not now.
bool repair(const TakenRing& own) noexcept {
  const Ring& ring = own.mapped.ring;
  Control& c = *ring.control;
  if (__atomic_load_n(&c.nest, __ATOMIC_ACQUIRE) != 0) {
    Reader<> reader(ring);
    if (reader.try_lock(u64{static_cast<u32>(process.pid)} << 32 | own.in->member()) != 0)
      return false;  // recover wants no reader beside it
    if (recover<>(ring).corrupt) c.corrupt = 1;
    reader.unlock();
  }
  __atomic_fetch_and(&c.gate, ~gate_moved, __ATOMIC_SEQ_CST);
  return c.corrupt == 0;
}

enum class Taken { no, yes, hopeless };  // hopeless: neither this ring nor any other one without memory can get some

// The writer touches the tail's sub-buffer without asking, and `recover` that of the commit position.
Taken back_tail(TakenRing& own) noexcept {
  const Ring& ring = own.mapped.ring;
  own.backing = {};  // it belongs to another ring, which could not be taken
  for (const u64* place : {&ring.control->tail, &ring.control->commit}) {
    const u32 id = place_of(__atomic_load_n(place, __ATOMIC_RELAXED)).id;
    if (!ring.geometry.holds(id)) return Taken::no;
    if (!own.backing.back(ring, id)) return Taken::hopeless;
  }
  return Taken::yes;
}

// Why a ring could not be mapped, by errno: does the next one need the same missing resource?
Taken not_mapped() noexcept {
  switch (errno) {
    case ENOMEM: case ENOSPC: case EDQUOT: case EFBIG: case EMFILE: case ENFILE: return Taken::hopeless;
    default: return Taken::no;
  }
}

// Takes ring `n`, which holds nothing, unless another thread is faster.
Taken take_empty(int dir, TakenRing& own, u32 n, u64 state, const Geometry& geometry) noexcept {
  RingEntry& entry = own.in->words.ring(n);
  if (!claim(own, entry, state)) return Taken::no;
  if (ring_geometry(dir, n, geometry) != geometry)
    (void)clear_ring(dir, n);  // its maker left it before it was live, with the sizes of that time
  own.mapped = map_ring(dir, n, geometry, Files::ours);
  Taken backed = own.mapped ? back_tail(own) : not_mapped();
  if (backed == Taken::yes && own.mapped.ring.control->corrupt == 0 && repair(own)) {
    label_ring(own.mapped.ring);
    own.number = n;
    return Taken::yes;
  }
  unmap_ring(own.mapped);
  __atomic_store_n(&entry.state, state, __ATOMIC_RELEASE);
  return backed == Taken::hopeless ? Taken::hopeless : Taken::no;
}

// Takes ring `n`, which its thread has left, if its sizes are these and all of it is read. That is checked before the claim,
// because readers do not see a claimed ring.
Taken take_retired(int dir, TakenRing& own, u32 n, u64 state, const Geometry& geometry, bool unread_too) noexcept {
  RingEntry& entry = own.in->words.ring(n);
  const auto fits = [&] { return ring_geometry(dir, n, {}) == geometry; };
  if (!fits() || (!unread_too && !seems_read(dir, n))) return Taken::no;
  own.mapped = map_ring(dir, n, geometry, Files::there);
  if (!own.mapped) return not_mapped();
  const Ring& ring = own.mapped.ring;
  const auto good = [&] { return ring.control->corrupt == 0 && (unread_too || all_read(ring)); };
  if (good() && claim(own, entry, state)) {
    if (fits() && good() && back_tail(own) == Taken::yes && repair(own)) {
      own.number = n;
      return Taken::yes;
    }
    __atomic_store_n(&entry.state, state, __ATOMIC_RELEASE);
  }
  unmap_ring(own.mapped);
  return Taken::no;
}

void give_up(const KeptRing& ring) noexcept {
  __atomic_store_n(&ring.in->words.ring(ring.number).state, pack_state(RingState::empty, 0), __ATOMIC_RELEASE);
}

// A new ring, claimed by this process. Not mapped: there was no number, or no memory for it.
KeptRing make_fresh(int dir, Opened& in, u32 tag, const Geometry& geometry) noexcept {
  KeptRing made{{}, &in, claim_new_ring(in.words, claim_of(in.member(), false, tag)), 0};
  if (made.number == most_rings) return made;
  made.state = __atomic_load_n(&in.words.ring(made.number).state, __ATOMIC_RELAXED);
  made.mapped = map_ring(dir, made.number, geometry, Files::ours);
  if (made.mapped)
    label_ring(made.mapped.ring);
  else
    give_up(made);
  return made;
}

bool use_fresh(TakenRing& own, const KeptRing& ring) noexcept {
  own.mapped = ring.mapped;
  own.number = ring.number;
  if (back_tail(own) == Taken::yes) return true;
  unmap_ring(own.mapped);
  give_up(ring);
  return false;
}

bool make(int dir, TakenRing& own, const Geometry& geometry) noexcept {
  const KeptRing made = make_fresh(dir, *own.in, own.tag, geometry);
  return made.mapped && use_fresh(own, made);
}

// Is all of it read, by its control words alone?
bool seems_read(const Ring& ring) noexcept {
  const Control& c = *ring.control;
  const u32 id = place_of(__atomic_load_n(&c.commit, __ATOMIC_RELAXED)).id;
  if (!ring.geometry.holds(id)) return false;
  const Record& record = ring.record(id);
  return record.base + committed_of(__atomic_load_n(&record.committed, __ATOMIC_RELAXED)).events <=
         c.state[c.reader_generation & 1].expected;
}

// May that number of rings become full within the budget? Only then are some made for coming threads, and used.
bool may_be_full(const InstanceControl& c, u64 rings, const Geometry& geometry) noexcept {
  return rings * geometry.data_size() <= c.budget;
}

// Does the budget allow one more ring, even if all made since the last measurement became full? Rings are sparse: only used
// memory counts, which is measured when it matters.
bool affordable(int dir, InstanceControl& c, u64 made, u64 size) noexcept {
  const auto room = [&] {
    const u64 taken = __atomic_load_n(&c.measured_bytes, __ATOMIC_RELAXED),
              then = __atomic_load_n(&c.measured_rings, __ATOMIC_RELAXED);
    return taken + (made + 1 - std::min(then, made)) * size <= c.budget;
  };
  if (room()) return true;
  u64 bytes = 0;
  for (u32 n = 0; n < made; ++n) bytes += resident_bytes(dir, n);
  __atomic_store_n(&c.measured_bytes, bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&c.measured_rings, made, __ATOMIC_RELAXED);
  return room();
}

// Rings that dead processes had claimed are empty; they are used before more are made. True: there are some.
bool settle_claims(int dir, const TakenRing& own, u32 made) noexcept {
  sys::Fd file;
  bool any = false;
  for (u32 n = 0; n < made; ++n) {
    RingEntry& entry = own.in->words.ring(n);
    const u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
    if (state_of(state) != RingState::busy || claimer_of(state) == own.in->member()) continue;
    if (!file && !(file = sys::open_owned(dir, "instance", O_RDONLY))) return false;
    any = Judge(file.get(), own.in->words).settle(entry) == RingState::empty || any;
  }
  return any;
}

}  // namespace

void give_back_claims(const TakenRing& own) noexcept {
  const u64 made = std::min<u64>(__atomic_load_n(&own.in->words.control->nr_rings, __ATOMIC_ACQUIRE), most_rings);
  for (u32 n = 0; n < made; ++n) {
    RingEntry& entry = own.in->words.ring(n);
    for (const bool holds : {false, true}) {
      u64 claimed = claim_of(own.in->member(), holds, own.tag);
      const u64 before = holds ? pack_state(RingState::retired, entry.tid) : pack_state(RingState::empty, 0);
      __atomic_compare_exchange_n(&entry.state, &claimed, before, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
  }
}

bool take_kept_ring(TakenRing& own) noexcept {
  const Geometry geometry = geometry_of(*own.in->words.control);
  const auto state_now = [&](const KeptRing& r) {
    return __atomic_load_n(&r.in->words.ring(r.number).state, __ATOMIC_ACQUIRE);
  };
  KeptRing ring;
  const auto is_ready = [&](const KeptRing& r) {
    if (r.in != own.in || r.mapped.ring.geometry != geometry || state_now(r) != r.state) return KeptRings::Use::drop;
    return seems_read(r.mapped.ring) ? KeptRings::Use::take : KeptRings::Use::keep;
  };
  while (retired_rings.take(ring, is_ready)) {
    own.mapped = ring.mapped;
    own.number = ring.number;
    RingEntry& entry = own.in->words.ring(ring.number);
    if (claim(own, entry, ring.state)) {
      const Ring& r = own.mapped.ring;
      if (r.control->magic == control_magic && r.control->corrupt == 0 && all_read(r) && back_tail(own) == Taken::yes &&
          repair(own))
        return true;
      __atomic_store_n(&entry.state, ring.state, __ATOMIC_RELEASE);
    }
    unmap_ring(own.mapped);
  }
  const auto fits = [&](const KeptRing& r) {
    if (r.in == own.in && r.mapped.ring.geometry == geometry && state_now(r) == r.state) return KeptRings::Use::take;
    if (state_now(r) == r.state) give_up(r);
    return KeptRings::Use::drop;
  };
  const InstanceControl& c = *own.in->words.control;
  return may_be_full(c, __atomic_load_n(&c.nr_rings, __ATOMIC_RELAXED), geometry) && fresh_rings.take(ring, fits) &&
         use_fresh(own, ring);
}

bool find_ring(int dir, TakenRing& own, bool keep_more) noexcept {
  InstanceControl& c = *own.in->words.control;
  const Geometry geometry = geometry_of(c);
  if (!geometry.valid()) return false;
  const auto made = [&] { return static_cast<u32>(std::min<u64>(__atomic_load_n(&c.nr_rings, __ATOMIC_ACQUIRE), most_rings)); };
  const auto take_one = [&](bool unread_too) {
    int looks = 16;  // each costs system calls
    bool memory = true;  // for rings that hold none yet
    const u32 end = made();
    for (u32 n = 0; n < end; ++n) {
      const u64 word = __atomic_load_n(&own.in->words.ring(n).state, __ATOMIC_ACQUIRE);
      const RingState state = state_of(word);
      if ((state != RingState::retired || names_cpu(word)) && (state != RingState::empty || !memory)) continue;
      if (state == RingState::retired &&
          __atomic_load_n(&own.in->words.ring(n).sizes, __ATOMIC_RELAXED) != short_sizes(geometry))
        continue;
      if (state == RingState::retired && !unread_too && --looks < 0) continue;
      const Taken taken = state == RingState::empty ? take_empty(dir, own, n, word, geometry)
                                                    : take_retired(dir, own, n, word, geometry, unread_too);
      if (taken == Taken::yes || (taken == Taken::hopeless && state == RingState::retired)) return taken;
      memory = memory && taken != Taken::hopeless;
    }
    return memory ? Taken::no : Taken::hopeless;
  };
  const auto affordable_one = [&] { return made() < most_rings && affordable(dir, c, made(), geometry.data_size()); };
  if (const Taken taken = take_one(false); taken != Taken::no) return taken == Taken::yes;
  if (settle_claims(dir, own, made()))
    if (const Taken taken = take_one(false); taken != Taken::no) return taken == Taken::yes;
  if (affordable_one()) {
    if (!make(dir, own, geometry)) return false;
    // Makes more rings, for later threads: none for a program's only thread, then twice as many each time, so that half of the
    // threads and more find one.
    const u32 before = keep_more ? __atomic_fetch_add(&own.in->rings_made, 1u, __ATOMIC_RELAXED) : 0;
    const u32 more = before == 0 ? 0 : 1u << std::min(before - 1, 3u);
    for (u32 n = 0; n < more && made() < most_rings && may_be_full(c, u64{made()} + 1, geometry); ++n) {
      const KeptRing next = make_fresh(dir, *own.in, own.tag, geometry);
      if (!next.mapped) break;
      // The memory of its first sub-buffer, too, which the kernel clears: the thread that takes it asks again, and gets it at
      // once.
      (void)sys::populate(next.mapped.ring.subbuf(place_of(0).id), geometry.subbuf_size());
      if (fresh_rings.put(next)) continue;
      MappedRing unwanted = next.mapped;
      unmap_ring(unwanted);
      give_up(next);
      break;
    }
    return true;
  }
  if (const sys::Fd file = sys::open_owned(dir, "instance", O_RDONLY); file) {
    const Judge judge(file.get(), own.in->words);
    for (u32 n = 0, end = made(); n < end; ++n) judge.settle(own.in->words.ring(n));
  }
  for (const bool unread_too : {false, true})
    if (const Taken taken = take_one(unread_too); taken != Taken::no) return taken == Taken::yes;
  return false;
}

}  // namespace ringside
