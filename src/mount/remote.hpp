// An external writer's rings (docs/remote-writers.md) as the mount shows them: remotes/NAME. They are made when a client
// switches recording on or opens a file of their events ("loaded"), and go when no such file is open, recording is off and all
// is read.
//
// The writer may die, hang, lie or be stopped: only a thread of this object ever asks it, and that waits `patience` at most.
// All functions here return at once and are for one thread, the server's; its event descriptor asks it to check again.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <ringside/abi/meta_page.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "mount/ring_set.hpp"
#include "remote/process.hpp"

namespace ringside::mount {

class Remote final : public RingSet {
 public:
  static u32 subbuf_bytes() { return static_cast<u32>(sys::page_bytes()); }  // upstream's: a page
  static constexpr u64 most_kilobytes = 1 << 20;  // for one ring

  // patience: how long an answer may take. event_fd: written to when waiting requests should check again.
  Remote(std::string name, std::string socket, u32 rings, std::chrono::nanoseconds patience, int event_fd);
  ~Remote() override;

  const std::string& socket() const { return socket_; }

  // Slow operations; the job's errno is the answer. ENODEV: no writer listens. EBUSY: another reader has the writer, or files
  // of a dead writer are open. ETIMEDOUT: it does not answer.
  std::shared_ptr<Job> probe();  // learns its events
  std::shared_ptr<Job> enable(bool on);
  // Lets the writer make an event of a text (most_text bytes at most) in this ring. ENODEV: not loaded, or no such ring;
  // EOPNOTSUPP: it takes none; else the writer's answer.
  std::shared_ptr<Job> write_event(u32 ring, std::string_view text);
  // Switches events, of this system and name unless these are empty; kept for the next time that rings are loaded. EOPNOTSUPP:
  // the writer switches all its events together, by enable().
  std::shared_ptr<Job> switch_events(std::string_view system, std::string_view event, bool on);
  bool can_write() const;

  bool loaded() const;  // no longer as soon as no client needs the rings, though the writer may still have them for a moment
  u64 kilobytes() const;
  result<void> kilobytes(u64 value);  // EINVAL, EBUSY: loaded, ENOMEM
  std::shared_ptr<void> use();        // null: not loaded
  std::vector<EventInfo> known_events() const;

  // The functions of a RingSet:
  u32 cpus() const override { return cpus_; }
  RingName name(u32 ring) const override;
  ClockInfo clock() const override { return {}; }  // the rings have ns
  u32 subbuf_size(u32) override { return subbuf_bytes(); }
  result<Counters> counters(u32 ring) override;
  bool on() const override;
  TextRules text_rules() const override { return {.header = false, .tasks = false, .one_pipe = false, .pipe_ends = false}; }
  bool gone() const override;  // loaded, and the writer will never write again
  u64 refresh() override;
  std::vector<EventName> events() override;
  std::shared_ptr<Job> load() override;  // its `use` keeps the rings
  result<std::shared_ptr<Job>> reset(Only only) override;
  bool write_resets() const override { return true; }  // like upstream's
  Peeked peek(Only only) override;
  Found find(u32 ring, Asker& asker) override;
  bool asks() const override { return true; }
  SubBufferView view(u32 ring) const override;
  void consume(u32 ring, u32 end, u32 events) override;
  Error error(u32 ring) const override;
  bool ready(u32 ring, u32 percent) override;
  bool can_be_mapped(u32 ring) const override { return static_cast<bool>(file(ring)); }
  result<sys::Fd> map(u32 ring) override { return file(ring); }
  const void* memory() const override;  // differs for the next writer's rings
  result<bool> get_reader(u32 ring, Asker& asker, bool must) override;
  void alarm(int percent, bool late) override;

 private:
  struct Ring;
  struct Life;
  struct Use;
  struct Command {
    enum class What : u8 { probe, load, enable, disable, reset, tidy, write, event_on, event_off } what = What::tidy;
    std::optional<u32> ring{};
    std::string text{};            // write
    std::string system{}, event{};  // event_on, event_off
    std::shared_ptr<Job> job{};
  };
  std::shared_ptr<Job> post(Command command);
  void run();
  int carry_out(const Command& command);
  void carry_out_first(std::unique_lock<std::mutex>& lock);
  int attach_if_none(const Command& command);
  int switch_on();
  int switch_off();
  int attach();
  int reset_rings(std::optional<u32> ring);
  static int make_source(Life& life, Ring& ring);
  static void note_reset(Life& life, Ring& ring);
  int switch_events(const Command& c);
  int tell_switches(Life& life);
  void ask(Ring& ring, std::unique_lock<std::mutex>& lock);
  void tidy();
  void signal() const;
  void learn(remote::Process::Offer offer);
  u64 unread(const Ring& ring) const;
  result<sys::Fd> file(u32 ring) const;
  std::unique_ptr<Source> peek_at(u32 ring);  // null: it is empty
  Ring* ring(u32 n) const;
  bool needed() const;  // the caller holds the mutex

  const std::string name_, socket_;
  const u32 cpus_;
  const std::chrono::nanoseconds patience_;
  const int event_fd_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> queue_;
  std::shared_ptr<Life> life_;
  std::vector<EventInfo> events_;
  bool can_write_ = false, can_switch_events_ = false;
  std::set<std::pair<std::string, std::string>> off_;  // system and name of events that clients have switched off
  u64 events_known_ = 0, events_shown_ = 0;  // generations: of events_, of formats_
  u64 kilobytes_ = 1410;
  bool on_ = false, over_ = false;
  bool unsure_ = false;  // for the worker: a switch was not answered in time, and may have happened
  u64 armed_until_ns_ = 0;
  std::map<u32, EventInfo> formats_of_;  // the source of `formats_`
  std::thread thread_;
};

// The announced writers (remote::announced_path), and those given by name. A thread of its own sees them come and go.
class Remotes {
 public:
  // named: NAME=SOCKET, shown also while no writer listens. Waits for those that listen already, for a second at most.
  static result<std::unique_ptr<Remotes>> create(const std::vector<std::string>& named, u32 rings,
                                                 std::chrono::nanoseconds patience, int event_fd);
  ~Remotes();
  std::vector<std::string> names() const;
  std::shared_ptr<Remote> find(const std::string& name) const;

 private:
  struct Known {
    std::shared_ptr<Remote> remote;
    bool named = false, there = false;
    std::string identity;  // the socket that was asked for its events
    std::shared_ptr<Job> probe;
  };
  Remotes() = default;
  void run();
  bool scan();  // false: some have not answered yet
  void check_socket(const std::string& name, const std::string& socket);
  bool shown(const Known& known) const;

  std::string dir_;
  sys::Fd open_;  // the same directory, open
  u32 rings_ = 1;
  std::chrono::nanoseconds patience_{};
  int event_fd_ = -1;
  sys::Fd notices_, stop_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, Known>> known_;
  std::thread thread_;
};

}  // namespace ringside::mount
