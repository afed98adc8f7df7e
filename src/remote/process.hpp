// The reader's side of a writer process (ringside/remote/process_writer.hpp): gives it rings, and sends it requests.
//
//   auto writer = must(Process::attach("/run/app.rings", options));
//   must(writer->enable(true));
//   auto source = must(writer->buffer().source(0));
//
// The process may die, hang, be stopped or lie at any moment. Each request ends within Options::patience, with an error if it
// fails; a request that was not answered in time stays pending: its answer counts when it comes, so a writer that goes on after
// a while loses nothing; a ring whose reset is pending is not read before its answer. When the connection ends, the buffer is
// gone(): committed events are read from the sub-buffers. A restarted writer is attached anew, with other rings and other
// memory.
#pragma once
#include <map>

#include "remote/buffer.hpp"
#include "schema/event_pattern.hpp"
#include "source/account.hpp"

namespace ringside::remote {

class Process {
 public:
  struct Options {
    Buffer::Options buffer;
    std::chrono::nanoseconds patience = std::chrono::seconds(2);
  };
  // Connects, sends the rings, and asks for the events. The writer is disabled. buffer.rings 0: as many as the writer has; one,
  // if it does not say.
  static result<std::unique_ptr<Process>> attach(const std::string& path, Options options);
  // The same over a connected socket. who: for errors.
  static result<std::unique_ptr<Process>> over(sys::Fd socket, const std::string& who, Options options);
  // What a writer has, and which optional requests it takes.
  struct Offer {
    std::vector<EventInfo> events;
    bool can_write = false, can_switch_events = false, can_tell_rings = false, can_name_rings = false;
  };
  // The offer of the writer that listens there. It gets no rings, and is free for the next reader afterwards.
  static result<Offer> offer_at(const std::string& path, std::chrono::nanoseconds patience);
  ~Process();

  // Asks how many events the writer had for rings that this side did not bring.
  void add_not_brought(Account& account);

  Buffer& buffer() noexcept { return *buffer_; }
  const Offer& offer() const noexcept { return offer_; }
  const std::vector<EventInfo>& events() const noexcept { return offer_.events; }
  i32 pid() const noexcept { return pid_; }  // from the kernel
  // The threads of the process, by name. Other numbers in its events are no threads of this machine (RingName::apart).
  std::vector<RingName> threads() const;
  void patience(std::chrono::nanoseconds time);  // from now on
  void look_after() const;                       // checks without a request that it is still there; else the buffer is gone()
  result<void> enable(bool on);              // off: no event is open afterwards
  // Optional requests; EOPNOTSUPP: it does not take them. event: its index in events(). text: 1,024 bytes at most (EMSGSIZE),
  // of any value; the writer makes an event of it in this ring, or answers an errno of its own. Not answered in time: it may
  // still happen.
  result<void> switch_event(u32 event, bool on);
  // Switches off those that the patterns do not name, if there are any. False: it switches all its events together.
  result<bool> choose(const EventPatterns& patterns);
  result<void> write(u32 ring, std::string_view text);

 private:
  struct Wire;
  static result<Offer> ask_events(Wire& wire, u64 most);
  static result<void> ask_rings(Wire& wire, Buffer::Options& buffer, const RingName& writer);
  void ask_not_brought();
  static constexpr u32 most_rings = 4096;
  explicit Process(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  std::shared_ptr<Wire> wire_;
  std::shared_ptr<Buffer> buffer_;
  Offer offer_;
  i32 pid_ = 0;
  bool has_more_rings_ = false;  // than this side brought, as it last said; and the events for them
  u64 not_brought_ = 0;
};

}  // namespace ringside::remote
