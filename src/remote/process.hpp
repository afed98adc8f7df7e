// A writer that is a process (ringside/remote/process_writer.hpp), as this side sees it: rings that it is given, requests to it.
//
//   auto writer = must(Process::attach("/run/app.rings", options));
//   must(writer->enable(true));
//   auto source = must(writer->buffer().source(0));
//
// The process may die, hang, be stopped or lie at any moment. Each request ends within Options::patience with an error that says so;
// a request that was not answered in time stays the ring's: its answer counts when it comes, so a writer that goes on after a
// while loses nothing. When the connection ends, the buffer is gone(): what was committed is read from the sub-buffers. A
// restarted writer is attached anew: other rings, other memory.
#pragma once
#include <map>

#include "remote/buffer.hpp"

namespace ringside::remote {

class Process {
 public:
  struct Options {
    Buffer::Options buffer;
    std::chrono::nanoseconds patience = std::chrono::seconds(2);
  };
  // Connects, brings the rings along, and asks for the events. The writer is disabled.
  static result<std::unique_ptr<Process>> attach(const std::string& path, Options options);
  // Over a socket that is connected already. who: for errors.
  static result<std::unique_ptr<Process>> over(sys::Fd socket, const std::string& who, Options options);
  // The events of who listens there. It is given no rings, and free for the next reader afterwards.
  static result<std::vector<EventInfo>> events_at(const std::string& path, std::chrono::nanoseconds patience);
  ~Process();

  Buffer& buffer() noexcept { return *buffer_; }
  const std::vector<EventInfo>& events() const noexcept { return events_; }
  i32 pid() const noexcept { return pid_; }  // as the kernel says
  void patience(std::chrono::nanoseconds time);  // from now on
  void look_after() const;                       // without asking: is it still there? Else the buffer is gone()
  result<void> enable(bool on);              // off: no event is open afterwards

 private:
  struct Wire;
  static result<std::vector<EventInfo>> ask_events(Wire& wire, u64 most);
  explicit Process(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  std::shared_ptr<Wire> wire_;
  std::shared_ptr<Buffer> buffer_;
  std::vector<EventInfo> events_;
  i32 pid_ = 0;
};

}  // namespace ringside::remote
