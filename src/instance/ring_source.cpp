#include "instance/ring_source.hpp"

#include <fcntl.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/writer.hpp>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "instance/instance.hpp"
#include "writer/ring_file.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

result<sys::Region> map_file(int folder, u32 n, const char* name, u64 size) {
  const std::string what = "per_cpu/cpu" + std::to_string(n) + "/" + name;
  sys::Fd fd = sys::open_owned(folder, name, O_RDWR);
  if (!fd) return fail(errno, "cannot open " + what);
  return sys::Region::map(fd.get(), size, true, what);
}

tl::unexpected<Error> given_back(u32 n) {
  return fail(ENOENT, "the memory of ring " + std::to_string(n) + " has just been given back");
}

struct NoClock {  // of a writer that reserves nothing
  u64 now() noexcept { return 0; }
};

// A writer says that it is inside before it reads the clock; some ns may pass until that store is visible here.
constexpr u64 store_lag = 10'000;

// Between clock and commit of an event on a CPU's ring only the host may intervene and stop the virtual processor: after a
// longer stop the event is late. A counter's time is no time.
u64 lag_of(const RingView& view, const ClockInfo& clock, bool writing) noexcept {
  if (view.of_cpu()) return clock.kind != ClockKind::counter ? 10'000'000 : Source::unknown;
  return writing ? Source::unknown : store_lag;
}

class OwnSource final : public Source {
 public:
  OwnSource(RingView view, const InstanceWords& words, RingName name, const ClockInfo& clock, std::shared_ptr<Members> members)
      : Source(std::move(name), clock), view_(std::move(view)), words_(words), members_(std::move(members)) {}
  ~OwnSource() override {
    if (view_.locked()) consume();
    view_.unlock();
  }

  result<std::optional<SubBufferView>> next() override {
    consume();
    writing_ = view_.writing();
    const bool mapped = view_.mapped();
    const Got got = view_.reader().hand_out(mapped);
    if (mapped) view_.reader().update_meta();
    if (view_.cut())
      return refuse(std::errc::io_error, "ring " + std::to_string(name_.ring) +
                                             ": its file was truncated while it was read, or its file system is full");
    if (got == Got::corrupt)
      return refuse(
          std::errc::illegal_byte_sequence,
          "ring " + std::to_string(name_.ring) + ": its control words contradict each other; what was read before is good");
    if (got == Got::nothing) {
      idle();
      return std::nullopt;
    }
    last_data_ = 0;
    handed_out_ = true;
    const ReaderView& v = view_.reader().view();
    const u8* const sub_buffer = view_.ring().subbuf(v.id);
    u64 time = reinterpret_cast<const abi::SubBufferHeader*>(sub_buffer)->time_stamp;
    if (v.begin != 0) time = abi::time_before(sub_buffer + abi::header_size, 0, v.begin, time);
    return SubBufferView{sub_buffer, v.begin, v.end, v.lost_before, time};
  }
  void consume() override {
    if (!std::exchange(handed_out_, false)) return;
    view_.reader().consume();
    if (view_.mapped()) view_.reader().update_meta();
  }
  void put_back() override { handed_out_ = false; }

  Counters counters() const override { return view_.counters(); }
  bool ended() const override {
    const RingEntry& entry = words_.ring(name_.ring);
    const u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
    if (state_of(state) != RingState::live || static_cast<i32>(entry.tid) != name_.tid)
      return state_of(state) != RingState::busy;
    return members_->judge().dead(entry);
  }
  u64 lag_ns() const override { return lag_of(view_, clock_, writing_); }

 private:
  // A second without news: the memory of events that were read can go.
  void idle() noexcept {
    const u64 now = sys::now_ns();
    if (last_data_ == 0) last_data_ = now;
    if (last_data_ == ~u64{0} || now - last_data_ < 1'000'000'000) return;
    view_.park();
    last_data_ = ~u64{0};
  }

  RingView view_;
  InstanceWords words_;
  std::shared_ptr<Members> members_;
  bool writing_ = false;
  bool handed_out_ = false;  // the reader's view is handed out, and not consumed
  u64 last_data_ = 0;  // 0: just now; all ones: parked
};

class PeekSource final : public Source {
 public:
  PeekSource(RingView view, RingName name, const ClockInfo& clock)
      : Source(std::move(name), clock),
        view_(std::move(view)),
        buffer_((view_.ring().geometry.subbuf_size() + 7) / 8),
        iterator_(view_.ring(), bytes()),
        life_(life_now()),
        passed_(iterator_.expected()) {}

  result<std::optional<SubBufferView>> next() override {
    writing_ = view_.writing();
    if (const u64 life = life_now(); std::exchange(life_, life) != life) {  // whatever is known of it is of another one
      iterator_ = Iterator<>(view_.ring(), bytes());
      passed_ = 0;
    }
    // Before it looks: what is consumed by now, and not found, it will never find.
    const u64 consumed = view_.reader().state().expected;
    const Got got = iterator_.next();
    if (view_.cut())
      return refuse(std::errc::io_error, "ring " + std::to_string(name_.ring) +
                                             ": its file was truncated while it was read, or its file system is full");
    if (got == Got::corrupt)
      return refuse(std::errc::illegal_byte_sequence,
                    "ring " + std::to_string(name_.ring) + ": its control words contradict each other");
    if (got == Got::nothing) {
      passed_ = std::max(passed_, consumed);
      return std::nullopt;
    }
    const ReaderView& v = iterator_.view();
    given_ += v.events + v.lost_before;
    passed_ = iterator_.expected();
    u64 time = buffer_[0];
    if (v.begin != 0) time = abi::time_before(bytes() + abi::header_size, 0, v.begin, time);
    return SubBufferView{bytes(), v.begin, v.end, v.lost_before, time};
  }
  Counters counters() const override { return view_.counters(); }
  std::optional<Passed> passed() const override { return Passed{life_now() == life_ ? passed_ : 0, given_}; }
  bool ended() const override { return true; }
  u64 lag_ns() const override { return lag_of(view_, clock_, writing_); }

 private:
  u8* bytes() noexcept { return reinterpret_cast<u8*>(buffer_.data()); }
  u64 life_now() const noexcept {
    const Control& c = *view_.ring().control;
    return __atomic_load_n(&c.magic, __ATOMIC_ACQUIRE) == control_magic ? __atomic_load_n(&c.life, __ATOMIC_RELAXED) : 0;
  }

  RingView view_;
  std::vector<u64> buffer_;
  Iterator<> iterator_;
  u64 life_, passed_, given_ = 0;
  bool writing_ = false;
};

}  // namespace

RingName name_of(u32 n, const RingEntry& entry) {
  RingName name{n, static_cast<i32>(entry.pid), static_cast<i32>(entry.tid), text_in(entry.task),
                text_in(entry.process)};
  if (is_of_cpu(entry)) name.cpu = static_cast<i32>(entry.of);
  return name;
}

result<RingView> view_ring(int dir, u32 n, const std::shared_ptr<Members>& members) {
  return look_in(open_ring(dir, n), n, members);
}

result<RingView> look_in(const sys::Fd& folder, u32 n, const std::shared_ptr<Members>& members) {
  if (!folder) return fail(errno, "cannot open the folder of ring " + std::to_string(n));
  errno = 0;
  const Geometry geometry = ring_geometry_in(folder.get(), {});
  if (!geometry.valid() && errno == 0) return given_back(n);
  if (!geometry.valid() && errno != 0 && errno != EINVAL)
    return fail(errno, "cannot open the control file of ring " + std::to_string(n));
  if (!geometry.valid())
    return refuse(std::errc::invalid_argument, "ring " + std::to_string(n) + ": its control file is missing, cut or damaged");
  auto data = RS_TRY(map_file(folder.get(), n, "trace_pipe_raw", geometry.data_size()));
  auto control = RS_TRY(map_file(folder.get(), n, "ring", control_size(geometry)));
  Ring ring;
  ring.geometry = geometry;
  ring.control = reinterpret_cast<Control*>(control.data());
  ring.data = data.data();
  ring.kind = kind_of(*ring.control);
  return RingView(ring, std::move(control), std::move(data), members);
}

Counters RingView::counters() const noexcept {
  const RingCounters r = ringside::counters<>(ring_);
  Counters n;
  n.written = r.written;
  n.read = r.read;
  n.overrun = r.overrun;
  n.unread = r.unread;
  n.dropped = r.dropped;
  n.commit_overrun = r.commit_overrun;
  n.bytes = r.bytes;
  n.unfinished_bytes = r.unfinished_bytes;
  n.oldest_time = r.oldest_time;
  n.resident_bytes = data_.resident_bytes() + control_.resident_bytes();
  n.subbuf_size = ring_.geometry.subbuf_size();
  n.nr_subbufs = ring_.geometry.nr_subbufs();
  n.capacity_bytes = u64{ring_.geometry.nr_slots()} * ring_.geometry.capacity();
  return n;
}

bool RingView::lock() noexcept {
  const u64 who = members_->lock_word();
  const u64 holder = reader_.try_lock(who);
  another_ = false;
  if (holder != 0 && !members_->judge().dead(static_cast<Member>(holder))) return false;
  if (holder != 0 && (another_ = is_cleared())) return false;  // its sizes are needed to repair it
  if (holder != 0 && !reader_.steal(holder, who)) return false;
  if (holder != 0 && !of_cpu()) freeze_gate(false);  // it died in the middle
  if ((another_ = is_cleared())) {  // clearing it released the lock as well
    reader_.unlock();
    return false;
  }
  locked_as_ = who;
  return true;
}

bool RingView::is_cleared() const noexcept {
  const Control& c = *ring_.control;
  const Geometry& g = ring_.geometry;
  return __atomic_load_n(&c.magic, __ATOMIC_ACQUIRE) != control_magic || c.subbuf_size != g.subbuf_size() ||
         c.nr_subbufs != g.nr_subbufs() || c.nr_slots != g.nr_slots();
}

void RingView::unlock() noexcept {
  if (locked()) reader_.unlock();
  locked_as_ = 0;
}

void RingView::gate(u64 bits) noexcept { switch_gate(*ring_.control, bits); }

void RingView::freeze_gate(bool frozen) noexcept {
  if (frozen)
    __atomic_fetch_or(&ring_.control->gate, gate_frozen, __ATOMIC_SEQ_CST);
  else
    __atomic_fetch_and(&ring_.control->gate, ~gate_frozen, __ATOMIC_SEQ_CST);
}

bool RingView::quiet() noexcept {
  return ring_.control->unfenced == 0 && sys::fence_heavy() && __atomic_load_n(&ring_.control->nest, __ATOMIC_ACQUIRE) == 0;
}

u64 RingView::park() noexcept {
  if (ring_.control->mapped != 0) return 0;
  if (of_cpu()) return park_cpu();
  const ReaderState at = reader_.state();
  const ReaderPlace own = reader_of(at.page);
  const Place commit = place_of(__atomic_load_n(&ring_.control->commit, __ATOMIC_ACQUIRE));
  if (own.next != commit.position + 1 || own.id != commit.id || !ring_.geometry.holds(own.id)) return 0;
  const u64 value = gate_park(commit.position);
  const u64 committed = __atomic_load_n(&ring_.record(own.id).committed, __ATOMIC_ACQUIRE);
  const bool all_read = committed_of(committed).bytes == at.bytes;
  u64 open = 0;
  if (!all_read || !__atomic_compare_exchange_n(&ring_.control->gate, &open, value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
    return 0;  // closed, or parked already
  // Checks the reserve word: a handler that came between a commit and its second check has left an event that is not published
  // yet.
  if (quiet() && reserve_offset(__atomic_load_n(&ring_.record(own.id).reserve, __ATOMIC_ACQUIRE)) == at.bytes &&
      __atomic_load_n(&ring_.record(own.id).committed, __ATOMIC_ACQUIRE) == committed &&
      place_of(__atomic_load_n(&ring_.control->tail, __ATOMIC_ACQUIRE)) == commit) {
    // From here on the writer leaves this sub-buffer without touching it: the gate says so.
    __atomic_fetch_add(&ring_.control->punched, u64{1}, __ATOMIC_SEQ_CST);
    const u64 before = data_.resident_bytes();
    for (const u64 where : {ring_.geometry.offset_of(own.id), u64{0}})
      data_.punch(where, ring_.geometry.subbuf_size());  // 0 is the meta-page, which no process maps
    const u64 after = data_.resident_bytes();
    return before > after ? before - after : 0;
  }
  u64 parked = value;
  __atomic_compare_exchange_n(&ring_.control->gate, &parked, u64{0}, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  return 0;
}

// The caller holds the lock of the reader, which owns the spare sub-buffer: that goes round through the free positions, and
// each sub-buffer that it replaces loses its memory.
u64 RingView::park_cpu() noexcept {
  const u64 before = data_.resident_bytes();
  const auto punch = [&](u64 offset) {
    __atomic_fetch_add(&ring_.control->punched, u64{1}, __ATOMIC_SEQ_CST);
    data_.punch(offset, ring_.geometry.subbuf_size());
  };
  reader_.give_back([&](u32 id) { punch(ring_.geometry.offset_of(id)); });
  punch(0);  // the meta-page: no process maps it
  const u64 after = data_.resident_bytes();
  return before > after ? before - after : 0;
}

void RingView::give_up() noexcept { __atomic_fetch_or(&ring_.control->gate, gate_moved, __ATOMIC_SEQ_CST); }

void RingView::note_cleared(InstanceControl& of) const noexcept {
  const Reader<> reader(ring_);
  __atomic_fetch_add(&of.cleared_written, reader.index(), __ATOMIC_RELAXED);
  __atomic_fetch_add(&of.cleared_overrun, reader.overrun(), __ATOMIC_RELAXED);
}

result<void> RingView::reset(const InstanceWords& of, u32 n) {
  if (!lock()) return refuse(std::errc::device_or_resource_busy, "the ring is being read by another process");
  auto done = freeze(of, n, [] { return result<void>{}; });
  unlock();
  return done;
}

result<void> RingView::freeze(const InstanceWords& of, u32 n, const std::function<result<void>()>& copy) {
  if (of_cpu()) {  // its writers go on: the present events are taken away, and the counters start from there
    auto copied = copy();
    if (copied) {
      reader_.restart();
      if (mapped()) reader_.update_meta();
    }
    return copied;
  }
  freeze_gate(true);
  // Its thread ended in the middle of an event: no other one takes it while the reader's lock is held.
  const bool retired = state_of(__atomic_load_n(&of.ring(n).state, __ATOMIC_ACQUIRE)) == RingState::retired;
  const bool left = retired && __atomic_load_n(&ring_.control->nest, __ATOMIC_ACQUIRE) != 0;
  bool calm = left;
  for (int i = 0; i < 100 && !calm; ++i) {
    if (i != 0) usleep(1000);
    calm = quiet();
  }
  result<void> done;
  if (calm && !left) Writer<NoClock>(ring_, {}).publish_left();
  if (calm) done = copy();
  if (calm && done) {
    note_cleared(*of.control);
    clear_words(ring_);
    if (left) __atomic_store_n(&ring_.control->nest, u64{0}, __ATOMIC_RELEASE);
    if (mapped()) reader_.update_meta();
  }
  freeze_gate(false);
  if (!calm) return refuse(std::errc::device_or_resource_busy, "a writer is in the middle of an event and does not go on");
  return done;
}

result<std::unique_ptr<Source>> open_ring(Instance& instance, int dir, const InstanceWords& words, u32 n,
                                          const std::shared_ptr<Members>& members, bool consume) {
  if (n >= most_rings || n >= __atomic_load_n(&words.control->nr_rings, __ATOMIC_ACQUIRE))
    return refuse(std::errc::no_such_file_or_directory, "there is no ring " + std::to_string(n));
  auto view = RS_TRY(view_ring(dir, n, members));
  const RingEntry& entry = words.ring(n);
  RingName name = name_of(n, entry);
  if (!consume) return std::make_unique<PeekSource>(std::move(view), std::move(name), instance.clock());
  if (!view.lock() && view.is_another()) return given_back(n);
  if (!view.locked())
    return refuse(std::errc::device_or_resource_busy, "ring " + std::to_string(n) + " is being consumed by process " +
                                                          std::to_string(view.ring().control->reader_lock >> 32));
  return std::make_unique<OwnSource>(std::move(view), words, std::move(name), instance.clock(), members);
}

}  // namespace ringside
