// What can be read: a recording, a trace.dat, a CTF trace, what was shipped to a server, an instance, the rings that
// `ringside serve` hands out, an external writer, the live kernel. What comes next is one file, and a line in input.cpp.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/where.hpp"
#include "instance/instance.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"
#include "source/world.hpp"
#include "timeline/merge.hpp"

namespace ringside {

struct Trace;

// Samples of CPU time, by the kernel: of the whole machine, or of some processes and what they start.
struct LiveSamples {
  u64 hz = 0;  // 0: none
  std::vector<i32> pids{};
};

// The clock of a machine that sent its events to a server.
struct MachineTime {
  static constexpr u64 unknown = ~u32{0};  // an error: the clock is not synchronised
  std::string host;
  u64 error_ns = 0;  // how far its times of day may be off
};

class FileCalls;

class Input {
 public:
  explicit Input(std::string named) : where(std::move(named)) {}
  virtual ~Input() = default;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Opens it: what its events and threads mean goes to the trace, its rings to `sources`.
  virtual result<void> open(Trace& trace) = 0;
  // Another one, for another thread; what was converted or fetched for this one is not made again.
  virtual std::unique_ptr<Input> another() const = 0;
  // Before open(), for what has to be fetched first. alone: no other input is read with it.
  virtual result<void> fetch(bool /*alone*/) { return {}; }
  // Of a recording that this process writes: takes over what was added to its description.
  virtual void grow(Trace& /*trace*/, const RecordingMeta& /*now*/) {}

  // Facts, once it is open.
  virtual ClockInfo own_clock() const = 0;
  virtual const RecordingMeta* recording() const { return nullptr; }  // what its recorder has written; of a trace.dat the clock
  virtual bool is_copy_of(const Input& /*other*/) const { return false; }  // the same events, in another file
  // A recording that goes on where that one ended: the next part. Apart: there is a time between them that neither recorded.
  virtual bool goes_on_from(const Input& /*earlier*/) const { return false; }
  virtual bool is_apart_from(const Input& /*other*/) const { return false; }
  virtual std::optional<u64> recorded_events() const { return std::nullopt; }  // as its recorder counted them, if it did
  // Of its times; none: unknown, or its clock does not count seconds.
  virtual std::optional<WallClock> wall() const {
    return live() && own_clock().kind != ClockKind::counter ? std::optional(WallClock::measure()) : std::nullopt;
  }
  virtual const MachineTime* time_of_day() const { return nullptr; }  // its times are that machine's times of day
  virtual Instance* instance() const { return nullptr; }
  virtual TracefsInstance* tracefs() const { return nullptr; }  // the kernel's live events
  virtual FileCalls* files() const { return nullptr; }          // that are noted beside these
  // The changes of names that were not handed out yet.
  virtual std::vector<NameChange> take_names() { return {}; }
  virtual std::string kept_names() const { return ""; }  // KeptNames, as the recorder has looked them up
  // All that was ever written to rings which are empty again, and overwritten in any. None: it is changing just now, or the
  // input is no instance.
  struct Cleared {
    u64 written = 0, overrun = 0;
    bool operator==(const Cleared&) const = default;
  };
  virtual std::optional<Cleared> cleared() const { return std::nullopt; }
  // Events that no source of it hands out: refused, not recorded, left to a later reader; and the doubts.
  virtual Account account() const { return doubtful(); }

  // Its life.
  virtual bool live() const { return false; }              // it may still be written to
  virtual bool may_get_rings() const { return false; }     // look_for_rings() may find more
  virtual void look_for_rings(Trace& /*trace*/) {}         // opens those that are new, into the timeline
  virtual bool begins_when_opened() const { return false; }  // its writer writes nothing before
  virtual bool consumes() const { return begins_when_opened(); }  // it gives each event once
  virtual bool has_no_writer() const { return false; }     // nobody writes to it now; another one may come
  virtual void stop() {}                                   // the reader wants no later events
  virtual void leave_out(i32 /*tid*/) {}                   // what this thread of the reader causes itself
  virtual void patience(std::chrono::nanoseconds /*most*/) {}  // how long it may be waited for
  static constexpr std::chrono::seconds last_patience{2};      // for its last events
  // Sources that begin anew, whatever has been read; nothing is consumed. None: it cannot be opened again.
  virtual std::vector<std::unique_ptr<Source>> open_again() const { return {}; }

  std::string where;                               // as it was given
  std::string clock{};                             // its name
  std::string boot{};                              // of the machine; empty: unknown
  World world{};                                   // the machine; it and the boot before add_events()
  Timeline::Origin origin{};                       // origin.ids is added to the numbers of its events
  std::vector<std::unique_ptr<Source>> sources{};  // until the timeline takes them
  std::vector<std::string> doubts{};               // why more may be missing than is known

 protected:
  Account doubtful() const {
    Account of;
    of.doubts = doubts;
    return of;
  }
};

// input.cpp: what a WHERE names; a place on a server may have several machines.
result<std::vector<std::unique_ptr<Input>>> inputs_of(const Where& where);
// Before any input is opened: what opens places on a server. The library of the fleet has it (shipped/shipped_input.hpp).
void open_servers_by(result<std::vector<std::unique_ptr<Input>>> (*open)(const std::string& place));
// Each kind has its file.
std::unique_ptr<Input> recording_input(const std::string& dir);
std::unique_ptr<Input> ctf_input(const std::string& dir);
result<std::unique_ptr<Input>> file_input(const std::string& where);  // a trace.dat, or what is packed into a file
std::unique_ptr<Input> instance_input(const std::string& name);
std::unique_ptr<Input> served_input(const std::string& socket);
std::unique_ptr<Input> writer_input(const std::string& named, const std::string& socket);
std::unique_ptr<Input> kernel_input(EventPatterns patterns, const KernelChoice& choice, const TracefsOptions& make);
std::unique_ptr<Input> sample_input(const LiveSamples& choice);  // alone, without another input
std::unique_ptr<Input> kernel_remotes_input(EventPatterns patterns, u64 buffer_size);
std::unique_ptr<Input> growing_input(const std::string& dir);  // one that this process writes: grow() brings all of it

// For their files.
void add_events(Trace& trace, const Input& of, const std::vector<EventInfo>& events);

}  // namespace ringside
