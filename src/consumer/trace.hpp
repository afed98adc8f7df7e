// The input of a consumer: directories of recordings, trace.dat files, what was shipped to a server, live (or dead) instances,
// external writers, the kernel; any number of them, opened the same way and merged into one timeline.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/thread_names.hpp"
#include "consumer/input.hpp"
#include "decode/formats.hpp"
#include "decode/tasks.hpp"
#include "text/units.hpp"

struct ringside_remote_reader;

namespace ringside {

struct Trace {
  std::vector<std::unique_ptr<Input>> inputs;  // at least one, the kernel's live events last; they outlive the timeline's sources
  Formats formats;
  Tasks tasks;
  Timeline timeline;
  std::vector<std::string> notices;  // remarks for the user; nothing is wrong

  // Commands that take one WHERE use this one.
  const Input& first() const { return *inputs.front(); }

  // Whose numbers of threads and addresses an input has: to be called when its world and boot are known.
  void know_machine(const Input& of);
  void know_runs();  // once all inputs are here

  // From now on later events are read, too, in order: the timeline's next() returns false while it waits. See Timeline.
  void follow(u64 look_ahead_ns);
  // Picks up new events and rings of live instances, and lets the timeline go on up to this moment.
  void refresh();
  // Of a recording that is being written (open_growing): takes over what was added to its description.
  void grow(const RecordingMeta& now);
  // Ends the waiting: hands out all that is there at this moment.
  void finish();
  // The same, and stops the kernel's events here.
  void stop();

  // use(number, payload) for each event of programs, in no order, whatever has been read already. Nothing is consumed; what
  // cannot be opened again is left out.
  void read_again(const std::function<void(u32, Bytes)>& use) const;

  // The names that the kernel's threads have before an event gives another one, of files that do not have them otherwise; found
  // once, by reading all of [from, until] ahead.
  const ThreadNames::Firsts& look_ahead(ThreadNames& names, u64 from, u64 until, const std::function<bool()>& over);
  std::shared_ptr<const ThreadNames::Firsts> first_names{};

  // What is missing beside the gaps that were read. Call it after all is read.
  Account account() const;  // of all inputs

  // The time of day of its times: its first input's that knows it.
  std::optional<WallClock> wall() const;
  bool raw_times() const;  // its clock does not count seconds
  TimeUnit unit() const { return raw_times() ? TimeUnit::ticks : TimeUnit::ns; }
  u64 now() const;         // this moment in the timeline's ns; 0: its clock does not count seconds
  bool live() const;       // any of them may still be written to
  bool has_only_just_begun() const;  // one of them writes nothing until it is opened
  bool consumes() const;             // what was read cannot be read once more: one of them gives each event once
  TracefsInstance* tracefs() const { return inputs.back()->tracefs(); }  // of the kernel's live events; null: there are none
  FileCalls* files() const { return inputs.back()->files(); }  // beside them; null: none
  // Names of the kernel's threads: those that it has seen of late (it keeps some 128).
  void learn_names();
  bool learn_name(i32 tid);  // of one that lives, or that the kernel has seen of late; false: it is unknown
  // In another PID namespace than the first: which threads of the kernel's events are in this one, as far as is known now.
  void find_here();
  // From now on events give the names of the kernel's threads. Returns the numbers of those that nothing else asked for.
  std::vector<u32> tell_names();

 private:
  bool any(bool (Input::*is)() const) const;
  void take_names();
  RingName of_kernel() const;
  void add_name(i32 tid, const std::string& name);
};

// DIR, FILE.dat or INSTANCE, or the socket of an external writer, any number of them (if none, and no events of the kernel: the
// default recording). Instances are peeked at: nothing is consumed. events: of the kernel, live, from an instance made for it;
// a pattern that names none is an error. verbose: notices say how each clock is converted.
//
// Several are merged into one order if their clocks can be converted to one: those of one boot of one machine. Others are
// refused; where the machine is unknown, a notice says that times are not converted. tsc: the same ticks are the same time,
// whatever their calibration. The kernel's other clocks (a trace.dat's: local, boot, ...) are measured now and converted; a
// notice says how well.
//
// remotes: readers of <ringside/remote_reader.h>, beside them. samples: alone.
//
// same: it was opened with these arguments and is open still, for another thread to read. What was converted or fetched for it
// is not made again.
result<Trace> open_traces(const std::vector<std::string>& wheres, const std::vector<std::string>& events = {},
                          const KernelChoice& choice = {}, bool verbose = false, TracefsOptions make = {},
                          const Trace* same = nullptr,
                          const std::vector<ringside_remote_reader*>& remotes = {}, const LiveSamples& samples = {});

// The recording in DIR, which another object of this process writes: `now` is what its writer knows. To be followed.
Trace open_growing(const std::string& dir, const RecordingMeta& now);

}  // namespace ringside
