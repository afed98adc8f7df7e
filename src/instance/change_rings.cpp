// What changes an instance's rings while its programs write: emptied, of another size, moved into a snapshot, given back.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "instance/instance.hpp"
#include "instance/ring_source.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/ring_file.hpp"

namespace ringside {
namespace {

// Another process gave its memory back between two reads.
bool is_gone(const Error& error) { return error.code == std::errc::no_such_file_or_directory; }

// Is there a server, which counts mappers? The count that a killed one left counts no mapper.
bool is_served(int dir) {
  const sys::Fd fd = sys::open_owned(dir, "serving", O_RDWR);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  return fd && fcntl(fd.get(), F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

}  // namespace

result<void> Instance::reset() {
  for (const RingInfo& r : rings()) {
    auto ring = view_ring(r.name.ring);
    if (!ring && is_gone(ring.error())) continue;
    if (!ring) return tl::unexpected(ring.error());
    if (auto done = ring->reset(words_, r.name.ring); !done && !ring->is_another()) return done;
  }
  words_.control->past = {};
  words_.control->refused = words_.control->refused_off = 0;
  for (u64& told : words_.control->refused_told) told = 0;
  return {};
}

result<void> Instance::reset(u32 number) {
  auto ring = RS_TRY(view_ring(number));
  const Counters before = ring.counters();
  RS_TRY(ring.reset(words_, number));
  begins_anew(before);
  return {};
}

// A ring's counters start from 0. The totals lose this ring's reported refusals; if some of its refusals were not reported yet,
// as many of other rings are reported twice.
void Instance::begins_anew(const Counters& before) {
  const RefusedCounts gone = refused_of(before);
  for (const Refusal why : counted_refusals) {
    u64& told = told_word(*words_.control, why);
    for (u64 was = __atomic_load_n(&told, __ATOMIC_RELAXED); was != 0;)
      if (__atomic_compare_exchange_n(&told, &was, was - std::min(was, gone[why]), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        break;
  }
}

result<void> Instance::unmapped(const char* what) {
  for (const RingInfo& r : rings())
    if (auto ring = view_ring(r.name.ring); ring && ring->mapped() && is_served(dir_.get()))
      return refuse(std::errc::device_or_resource_busy,
                    "ring " + std::to_string(r.name.ring) + " is mapped by a reader: " + what + " before the reader is gone");
  return {};
}

result<void> Instance::resize(u64 buffer_size, u32 subbuf_size) {
  const Geometry sized = RS_TRY(geometry_for(buffer_size, subbuf_size, words_.control->spares));
  const InstanceLock held = RS_TRY(lock());
  const auto all = rings();
  const auto has_it = [&](const RingInfo& r) { return !r.live || words_.ring(r.name.ring).sizes == short_sizes(sized); };
  if (sized == geometry() && std::all_of(all.begin(), all.end(), has_it)) return {};
  RS_TRY(unmapped("it cannot be resized"));
  give_back_aside();
  __atomic_store_n(&words_.control->sizes, pack_sizes(sized), __ATOMIC_SEQ_CST);  // before the live rings: see introduce
  for (const RingInfo& r : all) {
    if (has_it(r)) continue;
    if (!r.name.of_a_thread())
      RS_TRY(put_aside(r.name, sized));
    else if (auto ring = view_ring(r.name.ring))
      ring->give_up();
  }
  return {};
}

result<void> Instance::resize_cpu(u32 cpu, u64 buffer_size) {
  if (cpu >= cpu_rings()) return refuse(std::errc::operation_not_supported, "a thread's ring alone cannot be resized");
  const InstanceLock held = RS_TRY(lock());
  auto ring = RS_TRY(view_ring(cpu));
  const Geometry now = ring.ring().geometry;
  const Geometry sized = RS_TRY(geometry_for(buffer_size, now.subbuf_size(), words_.control->spares));
  if (sized == now) return {};
  RS_TRY(unmapped("it cannot be resized"));
  give_back_aside();
  return put_aside(name_of(cpu, words_.ring(cpu)), sized);
}

result<void> Instance::put_aside(const RingName& ring, const Geometry& geometry) {
  const Member who = members_->join(role::reader);
  const u32 number = claim_number(words_, who);
  if (number >= most_rings)
    return refuse(std::errc::no_space_on_device,
                  "the instance has " + std::to_string(most_rings) + " rings with unread events: read them first");
  const auto cpu = static_cast<u32>(ring.cpu);
  const Geometry before = RS_TRY(view_ring(cpu)).ring().geometry;
  // A process that is killed from here on leaves a retired ring: no event in it is lost.
  RingEntry& aside = words_.ring(number);
  describe_cpu_ring(aside, cpu, ~static_cast<u32>(ring.tid), before);
  __atomic_store_n(&aside.state, claim_of(who, true), __ATOMIC_RELEASE);
  if (auto done = renew(cpu, geometry, "per_cpu", number); !done) {
    __atomic_store_n(&aside.state, pack_state(RingState::empty, 0), __ATOMIC_RELEASE);
    return done;
  }
  introduce_cpu_ring(aside, RingState::retired);
  // An empty one leaves nothing. Where programs write, one of them may be in the middle of an event there: the next
  // resize gives it back.
  if (writers() == Presence::none) give_back(number);
  return {};
}

result<void> Instance::renew(u32 cpu, const Geometry& geometry, const char* to, u32 number) {
  const std::string fresh = ".fresh" + std::to_string(getpid()), place = "cpu" + std::to_string(cpu),
                    name = "cpu" + std::to_string(number);
  auto old = RS_TRY(ringside::view_ring(dir_.get(), cpu, members_));
  if (!make_cpu_ring(dir_.get(), "per_cpu/" + fresh + "/", cpu, *words_.control, geometry))
    return fail(errno, "cannot make a ring of CPU " + std::to_string(cpu));
  const sys::Fd rings = sys::open_owned(dir_.get(), "per_cpu", O_PATH | O_DIRECTORY),
                aside = sys::open_owned(dir_.get(), to, O_PATH | O_DIRECTORY);
  if (!rings || !aside) return sys::fail_beneath(errno, "cannot open " + path_ + "/" + to);
  // A writer that maps its CPU's ring finds one or the other.
  const bool there = faccessat(aside.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;  // a ring that gave its memory back
  if (renameat2(rings.get(), fresh.c_str(), rings.get(), place.c_str(), RENAME_EXCHANGE) != 0 ||
      renameat2(rings.get(), fresh.c_str(), aside.get(), name.c_str(), there ? RENAME_EXCHANGE : 0) != 0)
    return fail(errno, "cannot put a fresh ring in the place of " + path_ + "/per_cpu/" + place);
  if (there) (void)sys::remove_beneath(rings.get(), fresh.c_str());
  RingEntry& entry = words_.ring(cpu);
  describe_cpu_ring(entry, cpu, ~entry.tid + 1, geometry);
  introduce_cpu_ring(entry, RingState::live);
  switch_gate_of(name_of(cpu, entry));  // recording may have been switched since it was made
  old.give_up();  // from here on its writers take the fresh one; open events end in the old one
  return {};
}

namespace {

// A format never changes: the snapshot's formats are hard links.
result<void> link_formats(int from, int to, const std::vector<EventInfo>& events) {
  const auto link = [&](const std::string& folder, const char* file) -> result<void> {
    const sys::Fd here = sys::open_owned(from, folder.c_str(), O_PATH | O_DIRECTORY),
                  there = sys::open_owned(to, folder.c_str(), O_PATH | O_DIRECTORY);
    if (linkat(here.get(), file, there.get(), file, 0) == 0 || errno == ENOENT) return {};
    return sys::copy_owned(here.get(), file, there.get(), file);
  };
  for (const char* file : {"header_page", "header_event"})
    RS_TRY(link("events", file));
  for (const EventInfo& e : events) {
    const std::string system = "events/" + e.system, event = system + "/" + e.folder;
    for (const std::string& folder : {system, event})
      if (!sys::make_owned_directory(to, folder.c_str())) return sys::fail_beneath(errno, "cannot make snapshot/" + folder);
    for (const char* file : {"id", "format"})
      RS_TRY(link(event, file));
  }
  return {};
}

}  // namespace

namespace {

// The table of rings in a copy of `instance`: those that were taken out, ascending, and no others. Threads came meanwhile.
result<void> keep_rings(int copied, const std::vector<u32>& taken, const std::string& to) {
  u64 end = 0;
  bool good = pread(copied, &end, sizeof end, offsetof(InstanceControl, nr_rings)) == sizeof end;
  for (u32 n = 0; good && n < std::min<u64>(end, most_rings); ++n) {
    const auto at = static_cast<off_t>(ring_table_at + n * sizeof(RingEntry) + offsetof(RingEntry, state));
    u64 state = 0;
    good = pread(copied, &state, sizeof state, at) == sizeof state;
    const RingState is = state_of(state);
    const bool kept = std::binary_search(taken.begin(), taken.end(), n);
    if (kept ? is == RingState::live || is == RingState::retired : is == RingState::never || is == RingState::empty) continue;
    state = kept ? pack_state(RingState::retired, 0) : pack_state(RingState::empty, 0);  // its next owner has claimed it
    good = good && pwrite(copied, &state, sizeof state, at) == sizeof state;
  }
  return good ? result<void>() : fail(errno, "cannot write the rings of " + to);
}

}  // namespace

bool Instance::has_snapshot() const { return static_cast<bool>(sys::open_owned(dir_.get(), "snapshot/instance", O_RDONLY)); }

result<void> Instance::drop_snapshot() {
  if (!sys::remove_beneath(dir_.get(), "snapshot"))
    return sys::fail_beneath(errno, "cannot remove all of " + path_ + "/snapshot");
  return {};
}

// Moves a ring's content into the snapshot that is open as `copy`. The caller holds the reader's lock.
result<void> Instance::take_out(const RingInfo& r, RingView& ring, int copy) {
  const Counters before = ring.counters();
  if (r.name.cpu >= 0 && r.live) {
    RS_TRY(renew(r.name.ring, ring.ring().geometry, "snapshot/per_cpu", r.name.ring));
    begins_anew(before);
    return {};
  }
  const std::string folder = "per_cpu/cpu" + std::to_string(r.name.ring), to = path_ + "/snapshot/" + folder;
  if (!sys::make_owned_directory(copy, folder.c_str())) return sys::fail_beneath(errno, "cannot make " + to);
  auto taken = ring.freeze(words_, r.name.ring, [&]() -> result<void> {
    for (const std::string& file : {folder + "/ring", folder + "/trace_pipe_raw"})
      RS_TRY(sys::copy_owned(dir_.get(), file.c_str(), copy, file.c_str()));
    const u64 unlocked = 0;  // the copy was made under this process's lock
    const sys::Fd copied = sys::open_owned(copy, (folder + "/ring").c_str(), O_WRONLY);
    if (pwrite(copied.get(), &unlocked, sizeof unlocked, offsetof(Control, reader_lock)) != sizeof unlocked)
      return fail(errno, "cannot write " + to);
    return {};
  });
  if (!taken) (void)sys::remove_beneath(copy, folder.c_str());  // the copy is partial; the ring still holds everything
  else begins_anew(before);
  return taken;
}

result<std::string> Instance::snapshot() {
  // All rings are locked before the first one is taken out.
  std::vector<RingInfo> all;
  const InstanceLock held = RS_TRY(lock());
  std::vector<RingView> views;
  struct Unlock {
    std::vector<RingView>& views;
    ~Unlock() {
      for (RingView& view : views) view.unlock();
    }
  } const unlock{views};
  for (RingInfo& r : rings()) {
    auto ring = view_ring(r.name.ring);
    if (!ring && is_gone(ring.error())) continue;
    if (!ring) return tl::unexpected(ring.error());
    const bool locked = ring->lock();
    if (!locked && ring->is_another()) continue;
    if (!locked) return refuse(std::errc::device_or_resource_busy, "the ring is being read by another process");
    all.push_back(std::move(r));
    views.push_back(std::move(*ring));
  }
  RS_TRY(unmapped("no snapshot can be taken"));
  RS_TRY(drop_snapshot());
  const std::string to = path_ + "/snapshot";
  for (const char* folder : {"snapshot", "snapshot/per_cpu", "snapshot/events"})
    if (!sys::make_owned_directory(dir_.get(), folder)) return sys::fail_beneath(errno, "cannot make " + path_ + "/" + folder);
  const sys::Fd copy = sys::open_owned(dir_.get(), "snapshot", O_PATH | O_DIRECTORY);
  if (!copy) return sys::fail_beneath(errno, "cannot open " + to);
  RS_TRY(link_formats(dir_.get(), copy.get(), events()));
  // All but the rings first, under a name that is no instance yet: a full file system shows before anything is taken out.
  for (const char* file : {"gate", "set_event", "saved_cmdlines", "saved_tgids", "threads", "instance"})
    if (auto copied = sys::copy_owned(dir_.get(), file, copy.get(), std::strcmp(file, "instance") == 0 ? "instance.new" : file);
        !copied && copied.error().code != std::errc::no_such_file_or_directory)
      return tl::unexpected(copied.error());
  // After a failure, the rings that were taken out are not lost: they are the snapshot.
  result<void> done;
  std::vector<u32> taken;
  for (size_t n = 0; n < all.size() && (done = take_out(all[n], views[n], copy.get())); ++n) {
    views[n].unlock();
    taken.push_back(all[n].name.ring);
  }
  if (!done && taken.empty()) return tl::unexpected(done.error());
  const sys::Fd copied = sys::open_owned(copy.get(), "instance.new", O_RDWR);
  if (!copied) return sys::fail_beneath(errno, "cannot open " + to + "/instance.new");
  RS_TRY(keep_rings(copied.get(), taken, to));
  if (renameat(copy.get(), "instance.new", copy.get(), "instance") != 0) return sys::fail_beneath(errno, "cannot finish " + to);
  if (!done) {
    Error error = done.error();
    error.sentence += "; " + std::to_string(taken.size()) + " of " + std::to_string(all.size()) +
                      " rings had been taken out before: they are in " + to;
    return tl::unexpected(std::move(error));
  }
  return to;
}

// Claims a ring whose owner has left it, so that no other process takes it; 0: it is no such ring, or another process was
// faster. Returns the state to put back.
u64 Instance::claim_retired(u32 n) {
  RingEntry& entry = words_.ring(n);
  u64 retired = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
  if (state_of(retired) != RingState::retired) return 0;
  const u64 claimed = claim_of(members_->join(role::reader), true, clearing);
  return __atomic_compare_exchange_n(&entry.state, &retired, claimed, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? retired : 0;
}
void Instance::put_claimed(u32 n, u64 state, bool cleared) {
  RingEntry& entry = words_.ring(n);
  if (cleared) entry.tid = 0;
  __atomic_store_n(&entry.state, cleared ? pack_state(RingState::empty, 0) : state, __ATOMIC_RELEASE);
}

// Rings that a killed process was giving back.
void Instance::finish_clearing() {
  for (u32 n = 0, end = words_.nr_rings(); n < end; ++n) {
    const auto half_cleared = [&] {
      const auto ring = view_ring(n);
      return !ring && is_gone(ring.error());
    };
    if (members_->judge().settle(words_.ring(n)) != RingState::retired || !half_cleared()) continue;
    if (const u64 retired = claim_retired(n); retired != 0)
      put_claimed(n, retired, half_cleared() && clear_ring(dir_.get(), n));
  }
}

// Gives back the memory of a ring that its owner has left, if all its events were read. Returns the bytes.
u64 Instance::give_back(u32 n) {
  const u64 retired = claim_retired(n);
  if (retired == 0) return 0;
  u64 bytes = 0;
  bool cleared = false;
  if (auto ring = view_ring(n); ring && ring->lock()) {
    const Counters of = ring->counters();
    if (of.unread == 0 && (!ring->mapped() || !is_served(dir_.get()))) {
      PastTotals& past = words_.control->past;
      const auto add = [](u64& word, u64 value) { __atomic_fetch_add(&word, value, __ATOMIC_RELAXED); };
      add(past.written, of.written);
      add(past.read, of.read);
      add(past.overrun, of.overrun);
      add(past.dropped, of.dropped);
      add(past.commit_overrun, of.commit_overrun);
      add(past.unfinished_bytes, of.unfinished_bytes);
      add(past.rings, 1);
      ring->note_cleared(*words_.control);
      cleared = clear_ring(dir_.get(), n);
      bytes = cleared ? of.resident_bytes : 0;
    } else {
      ring->unlock();
    }
  }
  put_claimed(n, retired, cleared);
  return bytes;
}

// Those of earlier resizes, once they are empty.
void Instance::give_back_aside() {
  for (const RingInfo& r : rings())
    if (!r.live && r.name.cpu >= 0 && r.counters.unread == 0) give_back(r.name.ring);
}

u64 Instance::trim(bool idle) {
  finish_clearing();
  u64 bytes = 0;
  for (const RingInfo& r : rings()) {
    if (r.counters.unread != 0) continue;
    if (r.live && (!idle || members_->judge().any(role::sandboxed))) continue;
    if (r.live) {
      // Under the reader's lock: a consumer may still be walking the events that it was handed.
      if (auto ring = view_ring(r.name.ring); ring && ring->lock()) {
        bytes += ring->park();
        ring->unlock();
      }
      continue;
    }
    bytes += give_back(r.name.ring);
  }
  return bytes;
}

}  // namespace ringside
