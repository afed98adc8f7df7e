// Calls of the C library in processes that run already, by probes of the kernel: the events of `record --libc`, each put
// together from two of the kernel's, at the call and at its return.
//
//   auto calls = must(LibcCalls::open({.pids = {4711}, .groups = {"malloc"}}, clock));
//   calls->on(); ... while (auto view = must(source->next())) ...   // of each of take_sources()
//   calls->off();   // the sources hand out the rest
//
// Nothing is done in the process. The kernel stops each process that has the file of this C library mapped for a microsecond or
// two at each of these calls and returns; those of `pids`, and of what they start, are recorded. A call that began before on(),
// or does not return before off(), is no event; a loss is counted in events of the kernel, of which a call has two.
//
// Not thread-safe.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/probe_group.hpp"
#include "source/packer.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class LibcCalls {
 public:
  struct Options {
    std::vector<i32> pids;                             // of this PID namespace, which must be the first
    std::vector<std::string> groups;                   // of malloc, io
    u64 buffer_size = 4 << 20;                         // of the kernel's rings, each
    u32 subbuf_size = 4096;                            // of the kernel's
    std::function<void(const std::string&)> notice{};  // takes messages for the user
  };
  // Errors: a process without a C library whose functions are known (a static program, musl), no privileges.
  static result<std::unique_ptr<LibcCalls>> open(const Options& options, const ClockInfo& clock);
  // The C library that a process has mapped, by a path that this process can open.
  static result<std::string> library_of(i32 pid);
  LibcCalls(const LibcCalls&) = delete;
  LibcCalls& operator=(const LibcCalls&) = delete;

  const std::vector<EventInfo>& events() const { return events_; }
  std::vector<RingName> threads();  // whose calls there were, up to now
  // A ring for each CPU. They must not outlive this object.
  std::vector<std::unique_ptr<Source>> take_sources() { return std::move(sources_); }
  result<void> on() { return instance_.tracing(true); }
  void off();
  std::vector<std::string> problems() const { return timeline_.problems(); }  // what the kernel's rings could not give

 private:
  class Ring;
  struct Probed {  // an event of the kernel
    u32 function = 0;
    bool at_return = false;
    std::vector<u32> arguments{};  // where they are in the payload
  };
  struct Call {  // that has not returned
    u32 function = 0;
    bool nested = false;  // in another one of its group: calloc in the C library's own code, for example
    u64 time = 0;
    u64 numbers[2] = {};
    std::string text{};
  };
  struct Out {  // of a CPU
    Packer packer;
    std::deque<Packer> ready{};     // the ones before it
    std::optional<Packer> shown{};  // whose view was handed out
    u64 events = 0, lost = 0;
  };
  LibcCalls(TracefsInstance instance, std::vector<i32> pids, const ClockInfo& clock);
  result<void> probe(const Options& options);
  void pump();  // until the rings have enough
  void learn_names();
  void begin_another(Out& out);
  void take(const TraceRecord& record);
  void write(Out& out, const Call& call, i32 tid, u64 result, u64 time);
  u64 ticks(u64 ns) const;

  std::optional<ProbeGroup> probes_;  // outlives the instance, which has them enabled
  TracefsInstance instance_;
  std::vector<i32> pids_;
  ClockInfo clock_;
  Timeline timeline_;
  std::map<u16, Probed> probed_;           // by the kernel's id
  std::map<i32, std::vector<Call>> open_;  // by thread; the innermost last
  std::map<i32, RingName> threads_;
  std::vector<EventInfo> events_;
  std::vector<u8> payload_;
  std::vector<Out> outs_;  // in the order of the instance's CPUs
  std::vector<std::unique_ptr<Source>> sources_;
  size_t ready_ = 0;                            // of all
  u64 pump_again_ns_ = 0, learn_again_ns_ = 0;  // not before
  bool over_ = false;
};

}  // namespace ringside
