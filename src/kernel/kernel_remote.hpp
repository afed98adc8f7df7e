// The kernel's own remotes (Linux 7: tracefs remotes/NAME): firmware or a hypervisor that writes into rings which the kernel
// reads. They are no instance's: each has one set of rings, for all readers, so what is opened here is put back in the end. The
// kernel shows their events as lines; remote_text.hpp makes events of them again.
//
//   auto remote = must(KernelRemote::open("test", patterns, options));
//   must(remote->on());
//   for (auto& source : remote->sources) while (auto view = must(source->next())) ...
//   remote->off();   // then what is left is read, without waiting
#pragma once
#include <functional>
#include <memory>
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "clock/clock.hpp"
#include "kernel/kernel_events.hpp"
#include "schema/event_pattern.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"

namespace ringside {

// Those of the remote in this directory.
std::vector<KernelEvent> kernel_remote_events(const std::string& remote_dir);
// With the format of what is read here: the fields that the kernel's lines show.
result<EventInfo> kernel_remote_event(const std::string& remote_dir, const KernelEvent& event);

// A remote's clock as ticks of another one, from two moments at which both were read. Beyond them the line goes on.
class RemoteClock {
 public:
  struct Moment {
    u64 remote_ns = 0, ticks = 0;
  };
  void add(Moment next) { before_ = last_, last_ = next; }
  u64 ticks(u64 remote_ns) const;

 private:
  Moment before_, last_;
};

class KernelRemote {
 public:
  struct Options {
    u64 buffer_size = 4 << 20;  // of each CPU's ring, if the remote has none now
    ClockInfo clock{};          // its events get times of this one
    u8 first = 1;               // which external writers of a recording they are (RingName::apart)
    std::function<void(const std::string&)> notice = [](const std::string&) {};
  };
  // Each that the patterns name, with their events enabled. Empty: the patterns name none of the kernel's remotes.
  static result<std::vector<std::unique_ptr<KernelRemote>>> all(const EventPatterns& patterns, const Options& options);
  // dir: remotes/NAME of tracefs, or of something that looks like it.
  static result<std::unique_ptr<KernelRemote>> open(const std::string& dir, const EventPatterns& patterns,
                                                    const Options& options);
  ~KernelRemote();  // switches, sizes and enabled events are what they were

  const std::string& name() const { return name_; }
  const std::vector<EventInfo>& events() const { return events_; }  // all of the remote's, and "line", for what is none
  result<void> on();
  void off();
  std::vector<std::string> doubts() const;

  std::vector<std::unique_ptr<Source>> sources{};  // one for each CPU that it has a ring for

 private:
  struct State;
  class Ring;
  KernelRemote(std::string dir, const Options& options);
  result<void> hold();
  result<void> switch_events(const EventPatterns& patterns);

  std::string dir_, name_;
  std::shared_ptr<State> state_;
  std::vector<EventInfo> events_;
  sys::Fd held_;
  bool was_on_ = false, is_on_ = false, stopped_ = false;
  std::string size_before_;                // empty: it stays
  std::vector<std::string> enabled_here_;  // files
};

}  // namespace ringside
