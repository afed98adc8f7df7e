#include "serve/ring_table.hpp"

#include <fcntl.h>
#include <ringside/ring/fullness.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "instance/instance.hpp"
#include "writer/ring_file.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

std::string named(u32 ring) { return "ring " + std::to_string(ring); }

// Do the words still describe the mapped ring? It may have been given back and made anew with other sizes.
bool same_shape(const Ring& ring) noexcept {
  const Control& c = *ring.control;
  const u64 magic = __atomic_load_n(&c.magic, __ATOMIC_ACQUIRE);
  if (magic == 0) return true;  // given back; a new ring is all zeros
  return magic == control_magic && c.subbuf_size == ring.geometry.subbuf_size() && c.nr_subbufs == ring.geometry.nr_subbufs() &&
         c.nr_slots == ring.geometry.nr_slots();
}

// Not below 0: a ring that was given back meanwhile counts from 0 again.
void one_mapper_less(u64& mapped) noexcept {
  u64 now = __atomic_load_n(&mapped, __ATOMIC_RELAXED);
  while (now != 0 && !__atomic_compare_exchange_n(&mapped, &now, now - 1, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
}

bool shown(const RingEntry& entry) noexcept {
  const RingState state = state_of(__atomic_load_n(&entry.state, __ATOMIC_ACQUIRE));
  return state == RingState::live || state == RingState::retired;
}

handout::CountersAnswer answer_of(const Counters& c) {
  return {{},      c.written,          c.read,        c.overrun,        c.unread,        c.dropped, c.commit_overrun,
          c.bytes, c.unfinished_bytes, c.oldest_time, c.resident_bytes, c.capacity_bytes};
}

bool thread_lives(const Judge& judge, const RingEntry& entry) noexcept {
  return state_of(__atomic_load_n(&entry.state, __ATOMIC_ACQUIRE)) == RingState::live && !judge.dead(entry);
}

}  // namespace

result<RingTable> RingTable::open(const std::string& instance) {
  auto path = RS_TRY(instance_path(instance));
  sys::guard_mappings();
  auto dir = RS_TRY(open_instance_directory(instance));
  auto region = RS_TRY(map_instance(dir.get(), path, true));
  RingTable table;
  table.path_ = path;
  table.region_ = std::move(region);
  table.words_.control = reinterpret_cast<InstanceControl*>(table.region_.data());
  table.dir_ = std::move(dir);
  table.members_ = RS_TRY(Members::open(table.dir_.get()));
  table.serving_ = sys::open_owned(table.dir_.get(), "serving", O_RDWR | O_CREAT);
  if (!table.serving_) return sys::fail_beneath(errno, "cannot make " + path + "/serving");
  struct flock whole {};
  whole.l_type = F_WRLCK;
  if (fcntl(table.serving_.get(), F_OFD_SETLK, &whole) != 0)
    return refuse(std::errc::device_or_resource_busy, "another process serves " + path + " already");
  table.forget_dead_mappers();
  return table;
}

RingTable::~RingTable() {
  for (auto& [n, ring] : rings_)
    for (; ring.mappers != 0; --ring.mappers) one_mapper_less(ring.view.ring().control->mapped);
}

// A killed server left its clients' counts. This process holds the lock, so they count no living mapper.
void RingTable::forget_dead_mappers() const {
  const u32 n = words_.nr_rings();
  for (u32 i = 0; i < n; ++i) {
    if (!shown(words_.ring(i))) continue;
    char path[64];
    ring_path(i, "ring", path);
    const sys::Fd fd = sys::open_owned(dir_.get(), path, O_RDWR);
    u64 mapped = 0;
    const u64 none = 0;
    if (fd && pread(fd.get(), &mapped, sizeof mapped, offsetof(Control, mapped)) == sizeof mapped && mapped != 0)
      (void)!pwrite(fd.get(), &none, sizeof none, offsetof(Control, mapped));
  }
}

bool RingTable::removed() const {
  struct stat st {};
  return region_.cut() || fstatat(dir_.get(), "instance", &st, AT_SYMLINK_NOFOLLOW) != 0;
}

handout::Hello RingTable::hello() const {
  handout::Hello a{};
  const InstanceControl& c = *words_.control;
  const ClockInfo clock = clock_of(c);
  a.clock_kind = static_cast<u32>(clock.kind);
  a.clock_mult = clock.mult;
  a.clock_shift = clock.shift;
  a.clock_base_ticks = clock.base_ticks;
  a.clock_base_ns = clock.base_ns;
  a.mode = c.mode;
  const Geometry g = geometry_of(c);
  a.subbuf_size = g.subbuf_size();
  a.nr_subbufs = g.nr_subbufs();
  a.nr_rings = words_.nr_rings();
  a.nr_events = words_.nr_events();
  const std::string name = path_.substr(path_.find_last_of('/') + 1);
  std::memcpy(a.name, name.data(), std::min(name.size(), sizeof a.name - 1));
  return a;
}

handout::RingAnswer RingTable::describe(u32 n) const {
  const RingEntry& entry = words_.ring(n);
  handout::RingAnswer a{};
  a.head.ring = n;
  a.found = 1;
  a.next = n + 1;
  const Geometry g = ring_geometry(dir_.get(), n, geometry_of(*words_.control));
  a.subbuf_size = g.subbuf_size();
  a.nr_subbufs = g.nr_subbufs();
  a.spares = g.valid() ? g.nr_subbufs() - g.nr_slots() - 1 : 0;
  a.live = thread_lives(members_->judge(), entry) ? 1 : 0;
  a.pid = entry.pid;
  a.tid = entry.tid;
  std::memcpy(a.task, entry.task, sizeof a.task);
  std::memcpy(a.process, entry.process, sizeof a.process);
  return a;
}

handout::RingAnswer RingTable::list(u32 from) const {
  const u32 n = words_.nr_rings();
  for (u32 i = from; i < n; ++i)
    if (shown(words_.ring(i))) return describe(i);
  return {};
}

result<handout::FormatAnswer> RingTable::format(u32 from_id, u64 offset) {
  handout::FormatAnswer a{};
  const u32 n = words_.last_event();
  for (u32 id = std::max(from_id, 1u); id <= n; ++id) {
    const EventEntry& e = words_.event(id);
    if (__atomic_load_n(&e.known, __ATOMIC_ACQUIRE) == 0) continue;
    a.id = id;
    a.enabled = __atomic_load_n(&e.enabled, __ATOMIC_RELAXED) != 0 ? 1 : 0;
    std::memcpy(a.system, e.system, sizeof a.system);
    std::memcpy(a.name, e.name, sizeof a.name);
    a.system[sizeof a.system - 1] = a.name[sizeof a.name - 1] = 0;
    auto known = formats_.find(id);
    if (known == formats_.end()) {  // once: the text of an id never changes
      auto text = RS_TRY(sys::read_owned(dir_.get(), std::string("events/") + a.system + "/" + words_.event_folder(id) + "/format"));
      known = formats_.emplace(id, std::move(text)).first;
    }
    const std::string& text = known->second;
    if (offset > text.size())
      return refuse(std::errc::invalid_argument, "the format of event " + std::to_string(id) + " is shorter than that");
    a.total = static_cast<u32>(text.size());
    a.offset = static_cast<u32>(offset);
    a.count = static_cast<u32>(std::min<u64>(text.size() - offset, sizeof a.text));
    std::memcpy(a.text, text.data() + offset, a.count);
    return a;
  }
  return a;
}

bool RingTable::lock(Served& ring) noexcept { return ring.view.lock(); }

result<RingTable::Handed> RingTable::open(u32 n) {
  const u32 made = words_.nr_rings();
  if (n >= made || !shown(words_.ring(n))) return refuse(std::errc::no_such_file_or_directory, "there is no " + named(n));
  // During a resize another ring may take this one's place at any moment: all files are opened in its own folder.
  auto at = rings_.find(n);
  sys::Fd fresh;
  if (at == rings_.end() && !(fresh = open_ring(dir_.get(), n))) return fail(errno, "cannot open the folder of " + named(n));
  const sys::Fd& folder = at == rings_.end() ? fresh : at->second.folder;
  Handed handed;
  handed.file = sys::open_beneath(folder.get(), "trace_pipe_raw", O_RDONLY);
  struct stat st {};
  if (!handed.file || fstat(handed.file.get(), &st) != 0) return fail(errno, "cannot open the data of " + named(n));
  // A descriptor can be opened anew through /proc with the rights that the file's mode gives.
  if ((st.st_mode & 022) != 0)
    return refuse(std::errc::operation_not_permitted, "others may write to the file of " + named(n) + ": it is not handed out");

  if (at == rings_.end()) {
    auto view = RS_TRY(look_in(fresh, n, members_));
    at = rings_.emplace(n, Served(std::move(fresh), std::move(view))).first;
    at->second.tid = words_.ring(n).tid;
  }
  Served& ring = at->second;
  u64& mapped = ring.view.ring().control->mapped;
  // Counted before the lock: any process that took away or parked a sub-buffer under the lock has done so by now, and no
  // process does so after this.
  __atomic_fetch_add(&mapped, u64{1}, __ATOMIC_SEQ_CST);
  ++ring.mappers;
  const char* why = nullptr;
  if (!same_shape(ring.view.ring())) {
    why = " was made anew with other sizes: ask again when its mappers are gone";
  } else if (!lock(ring)) {
    why = " is being consumed by another process";
  }
  if (why != nullptr) {
    close(n);
    return refuse(std::errc::device_or_resource_busy, named(n) + why);
  }
  Reader<>& reader = ring.view.reader();
  reader.update_meta();
  const ReaderState state = reader.state();
  ring.view.unlock();
  handed.answer = describe(n);
  const Geometry& g = ring.view.ring().geometry;
  handed.answer.subbuf_size = g.subbuf_size();
  handed.answer.nr_subbufs = g.nr_subbufs();
  handed.answer.spares = g.nr_subbufs() - g.nr_slots() - 1;
  handed.answer.reader_id = reader_of(state.page).id;
  handed.answer.reader_read = static_cast<u32>(state.bytes);
  return handed;
}

void RingTable::close(u32 n) noexcept {
  const auto at = rings_.find(n);
  if (at == rings_.end() || at->second.mappers == 0) return;
  one_mapper_less(at->second.view.ring().control->mapped);
  if (--at->second.mappers == 0) rings_.erase(at);
}

result<RingTable::Served*> RingTable::find(u32 n) {
  const auto at = rings_.find(n);
  if (at == rings_.end()) return fail(ENODEV, named(n) + " is not mapped");
  Served& ring = at->second;
  if (ring.view.cut()) return refuse(std::errc::io_error, "a file of " + named(n) + " was truncated");
  if (!same_shape(ring.view.ring()))
    return fail(ESTALE, named(n) + " was given back and made anew with other sizes: close it and open it again");
  return &ring;
}

result<RingView*> RingTable::view(u32 n) {
  auto found = RS_TRY(find(n));
  return &found->view;
}

// Like OwnSource::ended: the ring's thread is gone, or another thread has the ring.
bool RingTable::ended(u32 n) const noexcept {
  const auto at = rings_.find(n);
  if (at == rings_.end() || !at->second.idle) return false;
  const RingEntry& entry = words_.ring(n);
  const RingState state = state_of(__atomic_load_n(&entry.state, __ATOMIC_ACQUIRE));
  if (state != RingState::live || entry.tid != at->second.tid) return state != RingState::busy;
  return !thread_lives(members_->judge(), entry);
}

result<handout::ReaderAnswer> RingTable::get_reader(u32 n) {
  auto found = RS_TRY(find(n));
  Served& ring = *found;
  handout::ReaderAnswer a{};
  if (!lock(ring)) return refuse(std::errc::device_or_resource_busy, named(n) + " is being consumed by another process");
  Reader<>& reader = ring.view.reader();
  const Got got = reader.get_reader();
  const ReaderState state = reader.state();
  ring.view.unlock();
  if (ring.view.cut()) return refuse(std::errc::io_error, "a file of " + named(n) + " was truncated");
  if (got == Got::corrupt)
    return refuse(std::errc::illegal_byte_sequence,
                  "the control words of " + named(n) + " contradict each other; what was read before is good");
  ring.idle = got == Got::nothing;
  a.id = reader_of(state.page).id;
  a.read = static_cast<u32>(state.bytes);
  a.lost_events = got == Got::data ? reader.view().lost_before : 0;
  a.entries = reader.written();
  a.overrun = reader.overrun();
  a.read_events = state.read;
  return a;
}

result<handout::CountersAnswer> RingTable::counters(u32 n) const {
  auto found = RS_TRY(const_cast<RingTable*>(this)->find(n));
  return answer_of(found->view.counters());
}

handout::CountersAnswer RingTable::past() const {
  Counters all = counters_of(words_.control->past);
  all.dropped += words_.control->refused + words_.control->refused_off;
  return answer_of(all);
}

bool RingTable::ready(u32 n, u32 percent) const noexcept {
  const auto at = rings_.find(n);
  if (at == rings_.end()) return false;
  const RingView& view = at->second.view;
  if (view.cut()) return true;  // the answer to the next request says what is wrong
  return ring_ready(view.ring(), percent);
}

bool ring_ready(const Ring& ring, u32 percent) noexcept {
  const Reader<> reader(ring);
  const ReaderState at = reader.state();
  if (reader.index() <= at.expected) return false;
  if (percent == 0) return true;
  const u64 commit = place_of(__atomic_load_n(&ring.control->commit, __ATOMIC_ACQUIRE)).position;
  return commit >= reader_of(at.page).next && is_full<Hardware>(ring, percent);
}

}  // namespace ringside
