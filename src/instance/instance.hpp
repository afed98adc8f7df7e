// A named set of rings in shared memory: make one, open one, list its content, read it. The writing side is in ringside.h.
//
//   auto instance = must(Instance::open("web"));
//   for (auto& ring : instance->rings()) { auto source = must(instance->source(ring.name.ring)); ... }
//
// Instances live in $RINGSIDE_ROOT, else $XDG_RUNTIME_DIR/ringside, else /dev/shm/ringside-UID; a name with a slash is a path.
// Not signal-safe; one Instance is for one thread at a time.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "instance/pid_map.hpp"
#include "instance/ring_watch.hpp"
#include "schema/event_pattern.hpp"
#include "source/account.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"
#include "writer/maker.hpp"

namespace ringside {

class RingView;

struct RingInfo {
  RingName name;
  bool live = false;  // its thread lives; a CPU's always does
  bool corrupt = false;  // given up: its words contradict each other
  std::string problem{};  // not empty: why it could not be read; its counters are unknown
  Counters counters;
  u64 told = 0;  // of counters.overrun: those that its readers have passed
};

enum class Presence { none, some, unknown };

// The reasons that an instance counts, and the word with those that finished recordings have in their accounts.
inline constexpr std::array counted_refusals{Refusal::full, Refusal::nested, Refusal::no_ring, Refusal::off};
inline u64& told_word(InstanceControl& control, Refusal why) { return control.refused_told[static_cast<size_t>(why)]; }

// The same counters as a ring has.
inline Counters counters_of(const PastTotals& past) {
  Counters c;
  c.written = past.written;
  c.read = past.read;
  c.overrun = past.overrun;
  c.dropped = past.dropped;
  c.commit_overrun = past.commit_overrun;
  c.unfinished_bytes = past.unfinished_bytes;
  return c;
}

class Instance {
 public:
  // EEXIST if it exists; EINVAL for bad names and sizes; ENOTSUP if rings of CPUs are asked for and not available.
  static result<std::unique_ptr<Instance>> create(const InstanceOptions& options);
  // Opens an existing one of the same user.
  static result<std::unique_ptr<Instance>> open(const std::string& name_or_path);
  static std::vector<std::string> list();
  // Those of all users but this one, by path, where instances live unless RINGSIDE_ROOT says otherwise. name: only these. Only
  // root sees any.
  struct OfAnother {
    std::string path;
    uid_t user = 0;
  };
  static std::vector<OfAnother> of_others(const std::string& name = "");
  // For the end of a sentence about an instance that is not there: where those of that name are, or how to find out.
  static std::string where_else(const std::string& name_or_path);
  // The same; or, half_made, those that were never finished and can only be removed. Sweeps what dead makers left. An error if
  // the directory of the instances must not be used.
  static result<std::vector<std::string>> find(bool half_made);
  // Removes an instance. EBUSY while a process writes to it or maps its rings, unless `force`; one that was never finished
  // needs `force`.
  static result<void> remove(const std::string& name, bool force = false);

  ~Instance();
  // For a thread that serves others: a change gives up with EBUSY if another process, perhaps a stopped one, holds the
  // instance's lock. The first change waits 100 ms for it. After that has failed, changes do not wait until one has got it.
  void impatient() noexcept { impatient_ = true; }
  result<void> unlocked();  // no process is in the middle of a change
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  int dir() const { return dir_.get(); }
  result<std::string> read(const std::string& file) const;  // one of its files, by its path below the instance
  const ClockInfo& clock() const { return clock_; }
  const InstanceControl& control() const { return *words_.control; }
  InstanceWords words() const { return words_; }

  std::vector<EventInfo> events() const;
  // Adds the pattern ("!pattern" when off), replaces those that it makes void, and applies it. Returns how many events it
  // matches now.
  result<u32> enable(const EventPatterns& patterns, bool on);
  result<u32> enable(const std::string& list, bool on);
  // Changes the text of set_event, which then holds for all events, or set_stack, while no other process does.
  result<void> replace(const char* file, const std::function<result<std::string>(const std::string& before)>& change);
  // Events that match, and are declared from now on, get the stack of their caller as a field, of at most `depth` frames; so do
  // those that were chosen before.
  result<void> stacks(const EventPatterns& patterns, u32 depth);
  // The same, added to or taken from what was chosen before.
  result<void> choose_stacks(const EventPatterns& patterns, bool on);
  u64 threads_without_samples() const { return __atomic_load_n(&control().threads_without_samples, __ATOMIC_RELAXED); }
  u64 samples_without_room() const { return __atomic_load_n(&control().samples_without_room, __ATOMIC_RELAXED); }
  u64 threads_without_room() const { return __atomic_load_n(&control().threads_without_room, __ATOMIC_RELAXED); }
  u64 without_stack() const { return __atomic_load_n(&control().without_stack, __ATOMIC_RELAXED); }

  std::vector<RingInfo> rings();
  // The names of the rings alone: their files are not opened.
  std::vector<RingName> ring_names();
  // Does a process write, or hold a ring? unknown: there was a writer, and nothing shows whether it lives.
  Presence writers() { return present(role::writer); }
  // The same, or has it open: it may be about to write its first event.
  Presence users() { return present(role::writer | role::opener); }
  bool has_writers() { return writers() != Presence::none; }  // or it may have them
  bool maker_lives() const;  // or may live
  bool of_one_command() const { return words_.control->one_command != 0; }
  void keep() { words_.control->one_command = 0; }  // only a person removes it from here on
  u64 unread();                                     // events in its rings
  result<void> unmapped(const char* what);  // EBUSY: another process maps a ring, so `what` is not possible
  // The threads that wrote to rings of CPUs, and all threads of other PID namespaces that wrote, as far as they are known.
  // threads_seen() moves on whenever there is more to know.
  std::vector<RingName> threads() const;
  // The changes of names since the n-th, as far as they are kept; n moves on past them.
  std::vector<NameChange> names(u64& n) const;
  // Finds the numbers of a thread, given by the number in its events, in its PID namespace and here. rings() and threads() have
  // done it.
  void locate(RingName& thread) const;
  u64 threads_seen() const { return __atomic_load_n(&words_.control->nr_threads, __ATOMIC_ACQUIRE); }
  u32 cpu_rings() const { return words_.cpu_rings(); }  // 0: rings of threads
  RingsBecause rings_because() const { return static_cast<RingsBecause>(words_.control->rings_because); }
  PastTotals past() const { return words_.control->past; }  // of rings whose memory was given back
  // Processes that do not write, because their processor does not have the clock; and a sentence about those that came since
  // there were `before`: empty, if none did.
  u32 without_clock() const { return __atomic_load_n(&words_.control->without_clock, __ATOMIC_RELAXED); }
  std::string untraced(u32 before = 0) const;
  RefusedCounts refused_elsewhere() const {  // events that no ring counts
    RefusedCounts all;
    all[Refusal::no_ring] = refused_without_ring();
    all[Refusal::off] = refused_off();
    return all;
  }
  u64 refused() const { return refused_elsewhere().sum(); }
  u64 refused_without_ring() const { return __atomic_load_n(&control().refused, __ATOMIC_RELAXED); }
  u64 refused_off() const { return __atomic_load_n(&control().refused_off, __ATOMIC_RELAXED); }  // or a ring was stopped

  result<std::unique_ptr<Source>> source(u32 ring);  // consumes; EBUSY while another process does
  result<std::unique_ptr<Source>> peek(u32 ring);    // reads, consumes nothing

  result<void> tracing(bool on);
  bool tracing_on() const;
  // Which rings of CPUs record while recording is on; one bit for each, the first CPU is the lowest bit of the first word.
  // EINVAL: the instance has rings of threads, and the mask leaves out a CPU.
  result<void> set_cpumask(const std::vector<u64>& mask);
  bool cpu_in_mask(u32 cpu) const;
  // A full ring loses its oldest events (true) or refuses new ones. For present and later rings.
  void overwrite(bool on);
  // Empties all rings and their counters. EBUSY while a writer is in the middle of an event or another process consumes a ring;
  // mappers of a ring see the meta-page of an empty one.
  result<void> reset();
  result<void> reset(u32 ring);  // this one
  // Rings of other sizes from now on: each thread takes a new one at its next event, each CPU gets one at once; the events in
  // the old ones stay readable. EBUSY while another process maps a ring; EINVAL for impossible sizes.
  result<void> resize(u64 buffer_size, u32 subbuf_size);
  // The same for the ring of one CPU. EOPNOTSUPP: the instance has rings of threads.
  result<void> resize_cpu(u32 cpu, u64 buffer_size);
  // Swaps all rings' content out: moves it to PATH/snapshot, an instance that can be opened like any other, and empties the
  // rings. Returns its path. EBUSY while another process maps or consumes a ring, or a writer is stopped in mid-event. An
  // earlier snapshot is replaced. CPUs get fresh rings without a copy; events written to a thread's ring while it is copied
  // (about 0.1 ms a MiB) are refused.
  result<std::string> snapshot();
  bool has_snapshot() const;
  result<void> drop_snapshot();
  // Gives back memory of events that were read: retired rings wholly; of idle rings, a thread's sub-buffer, and all but one of
  // a CPU's. idle: false leaves idle rings as they are. Returns the bytes given back.
  u64 trim(bool idle = true);

  result<RingView> view_ring(u32 ring) const;

  // Sleeps until some ring has unread events (percent 0), or one is this full; false: timed out.
  result<bool> wait(int percent, std::chrono::nanoseconds timeout);
  // The parts of wait(), for callers that wait for other things as well: ask, read the rings, then sleep until a writer has
  // answered (true) or `timeout` is over. percent: 0 to 100. sleep may be called in a thread of its own.
  u32 ask(int percent);
  bool sleep(u32 asked, std::chrono::nanoseconds timeout);

 private:
  Instance(sys::Region region, sys::Fd dir, std::shared_ptr<Members> members)
      : region_(std::move(region)),
        words_{reinterpret_cast<InstanceControl*>(region_.data())},
        dir_(std::move(dir)),
        members_(std::move(members)),
        watch_(dir_.get(), words_) {}
  // The one in this directory. members: its members, if the caller has a seat already.
  static result<std::unique_ptr<Instance>> open(const std::string& path, sys::Fd dir, std::shared_ptr<Members> members);
  Geometry geometry() const noexcept { return geometry_of(*words_.control); }
  // Makes a fresh ring for this CPU; its old one becomes ring `number` in the folder `to` of the instance. The caller holds the
  // lock of the instance.
  result<void> renew(u32 cpu, const Geometry& geometry, const char* to, u32 number);
  // The same, with a number for the old ring, which stays readable.
  result<void> put_aside(const RingName& ring, const Geometry& geometry);
  result<InstanceLock> lock();
  result<void> apply_events();
  Presence present(u32 roles);
  void switch_gates();
  void switch_gate_of(const RingName& ring);
  u64 claim_retired(u32 n);
  u64 give_back(u32 n);
  void give_back_aside();
  void put_claimed(u32 n, u64 state, bool cleared);
  void finish_clearing();
  result<void> take_out(const RingInfo& r, RingView& ring, int copy);
  void begins_anew(const Counters& before);
  std::string name_, path_;
  sys::Region region_;
  InstanceWords words_;
  ClockInfo clock_;
  sys::Fd dir_;
  std::shared_ptr<Members> members_;
  RingWatch watch_;
  std::unique_ptr<PidMap> pids_ = std::make_unique<PidMap>();
  sys::Fd threads_;  // the file
  u64 pid_namespace_ = 0;  // this process's; 0: unknown, or of another kernel
  bool impatient_ = false, lock_was_late_ = false;
  std::atomic<bool> fenced_{false};  // no writer misses the last ask()
};

}  // namespace ringside
