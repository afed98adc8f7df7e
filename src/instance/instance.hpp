// A named set of rings in shared memory: make one, open one, see what is in it, read it. The writing side is in ringside.h.
//
//   auto instance = must(Instance::open("web"));
//   for (auto& ring : instance->rings()) { auto source = must(instance->source(ring.name.ring)); ... }
//
// Instances live in $RINGSIDE_ROOT, else $XDG_RUNTIME_DIR/ringside, else /dev/shm/ringside-UID; a name with a slash is a path.
// Not signal-safe; one Instance is for one thread at a time.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "instance/pid_map.hpp"
#include "instance/ring_watch.hpp"
#include "schema/event_pattern.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"
#include "writer/maker.hpp"

namespace ringside {

class RingView;

struct RingInfo {
  RingName name;
  bool live = false;  // its thread lives; a CPU's always does
  bool corrupt = false;  // given up: its words contradict each other
  std::string problem{};  // not empty: it could not be looked at, and its counters are not known
  Counters counters;
};

enum class Presence { none, some, unknown };

// In the words of a ring's.
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
  // EEXIST if it is there; EINVAL for bad names and sizes; ENOTSUP if rings of CPUs are asked for and cannot be had.
  static result<std::unique_ptr<Instance>> create(const InstanceOptions& options);
  // An existing one of the same user.
  static result<std::unique_ptr<Instance>> open(const std::string& name_or_path);
  static std::vector<std::string> list();
  // The same; or, half_made, those that were never finished and can be nothing but removed. What dead makers left is swept. An error if the
  // directory of the instances is not to be used.
  static result<std::vector<std::string>> find(bool half_made);
  // Removes an instance. EBUSY while somebody writes to it or maps its rings, unless `force`; what was never finished by `force` alone.
  static result<void> remove(const std::string& name, bool force = false);

  ~Instance();
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  int dir() const { return dir_.get(); }
  result<std::string> read(const std::string& file) const;  // one of its files, by its path below the instance
  const ClockInfo& clock() const { return clock_; }
  const InstanceControl& control() const { return *words_.control; }

  std::vector<EventInfo> events() const;
  // Adds the pattern ("!pattern" when off), in the place of what it makes void, and applies it. Answers how many events it matches now.
  result<u32> enable(const EventPatterns& patterns, bool on);
  result<u32> enable(const std::string& list, bool on);

  std::vector<RingInfo> rings();
  // Whose rings there are, without a look at them: their files are not opened.
  std::vector<RingName> ring_names();
  // Does somebody write, or hold a ring? unknown: a writer has come of whom nobody can tell whether it lives.
  Presence writers();
  bool has_writers() { return writers() != Presence::none; }  // or it may have
  bool maker_lives() const;  // or may live
  std::vector<std::pair<i32, std::string>> tasks() const;  // saved_cmdlines: tid, name
  // Who wrote to rings of CPUs, and who of other PID namespaces wrote at all, as far as it is known. threads_seen() moves on whenever
  // there is more to know.
  std::vector<RingName> threads() const;
  // What a thread, named by the number in its events, is called in its PID namespace and here. rings() and threads() have done it.
  void locate(RingName& thread) const;
  u64 threads_seen() const { return __atomic_load_n(&words_.control->nr_threads, __ATOMIC_ACQUIRE); }
  u32 cpu_rings() const { return static_cast<u32>(words_.control->cpu_rings); }  // 0: rings of threads
  RingsBecause rings_because() const { return static_cast<RingsBecause>(words_.control->rings_because); }
  PastTotals past() const { return words_.control->past; }  // of rings whose memory was given back
  u64 refused() const { return words_.control->refused; }  // events that found no ring

  result<std::unique_ptr<Source>> source(u32 ring);  // consumes; EBUSY while another process does
  result<std::unique_ptr<Source>> peek(u32 ring);    // looks, consumes nothing

  result<void> tracing(bool on);
  bool tracing_on() const;
  // A full ring loses its oldest events (true) or refuses new ones. Rings of today and tomorrow.
  void overwrite(bool on);
  // Empties all rings and their counters. EBUSY while a writer is in the middle of an event or a ring is consumed by others; who maps a
  // ring sees the meta-page of an empty one.
  result<void> reset();
  // Rings of other sizes from now on: each thread takes a new one at its next event, each CPU gets one at once; what the old ones hold
  // stays readable.
  // EBUSY while a ring is mapped by others; EINVAL for impossible sizes.
  result<void> resize(u64 buffer_size, u32 subbuf_size);
  // Swaps all rings' content out: copies it to PATH/snapshot, an instance that can be opened like any other, and empties the
  // rings. Answers its path. EBUSY while a ring is mapped or consumed by others, or a writer stands still in mid-event. An
  // earlier snapshot is replaced. CPUs get fresh rings, nothing is copied; events written to a thread's ring while it is copied (about
  // 0.1 ms a MiB) are refused.
  result<std::string> snapshot();
  bool has_snapshot() const;
  result<void> drop_snapshot();
  // Gives back the memory of what has been read: retired rings wholly, of idle ones the sub-buffer of a thread, all but one of a CPU.
  // Answers bytes given back.
  u64 trim();

  result<RingView> look(u32 ring) const;

  // Sleeps until some ring has unread events (percent 0), or one is that full; false: timed out.
  result<bool> wait(int percent, std::chrono::nanoseconds timeout);
  // wait() in its parts, for who waits for other things as well: ask, look at the rings, then sleep until a writer has answered
  // (true) or `timeout` is over. percent: 0 to 100. sleep may be called in a thread of its own.
  u32 ask(int percent);
  bool sleep(u32 asked, std::chrono::nanoseconds timeout);

 private:
  Instance(sys::Region region, sys::Fd dir, std::shared_ptr<Members> members)
      : region_(std::move(region)), words_{reinterpret_cast<InstanceControl*>(region_.data())}, dir_(std::move(dir)), members_(std::move(members)), watch_(dir_.get(), words_) {}
  // Of this directory. members: its own, if whoever opens it has a seat already.
  static result<std::unique_ptr<Instance>> open(const std::string& path, sys::Fd dir, std::shared_ptr<Members> members);
  Geometry geometry() const noexcept { return geometry_of(*words_.control); }
  // A fresh ring for this CPU; its old one becomes ring `number` in the folder `to` of the instance. The caller holds the lock of the instance.
  result<void> renew(u32 cpu, const Geometry& geometry, const char* to, u32 number);
  u64 claim_retired(u32 n);
  void put_claimed(u32 n, u64 state, bool cleared);
  void finish_clearing();
  result<void> take_out(const RingInfo& r, RingView& ring, int copy);
  result<void> unmapped(const char* what);  // EBUSY: somebody maps a ring, so `what` is not possible
  std::string name_, path_;
  sys::Region region_;
  InstanceWords words_;
  ClockInfo clock_;
  sys::Fd dir_;
  std::shared_ptr<Members> members_;
  RingWatch watch_;
  std::unique_ptr<PidMap> pids_ = std::make_unique<PidMap>();
  sys::Fd threads_;  // the file
  u64 pid_namespace_ = 0;  // here; 0: unknown, or of another kernel
  std::atomic<bool> fenced_{false};  // the last ask() was one that no writer misses
};

}  // namespace ringside
