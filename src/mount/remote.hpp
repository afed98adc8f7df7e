// An external writer's rings (docs/remote-writers.md) as the mount shows them: remotes/NAME. They are made when somebody switches
// recording on or opens a file of their events ("loaded"), and go when nobody does, recording is off and all is read.
//
//   auto load = remote->load();                  // and when it is over:
//   switch (remote->look(0, asker)) case Found::data: walk(remote->view(0)); remote->consume(0, end, events);
//
// The writer may die, hang, lie or be stopped: only a thread of this object ever asks it, and that waits `patience` at most. All
// functions here return at once and are for one thread, the server's, which is told by its event descriptor to look again.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <ringside/abi/meta_page.hpp>
#include <string>
#include <thread>
#include <vector>

#include "decode/formats.hpp"
#include "export/tasks.hpp"
#include "mount/owner.hpp"
#include "remote/process.hpp"

namespace ringside::mount {

// What is to be read of a ring: asking: not known yet, look again; nothing: nothing when it was asked; ended: the writer is gone and
// all is read; failed: the writer did not answer, or nonsense (Remote::error).
enum class Found : u8 { data, nothing, asking, ended, failed };

class Remote final : public Owner {
 public:
  static constexpr u32 subbuf_size = 4096;
  static constexpr u64 most_kilobytes = 1 << 20;  // of one ring

  // patience: how long an answer may take. event_fd: written to when who waits should look again.
  Remote(std::string name, std::string socket, u32 rings, std::chrono::nanoseconds patience, int event_fd);
  ~Remote() override;
  void alarm(int percent, bool late) override;

  const std::string& name() const { return name_; }
  const std::string& socket() const { return socket_; }
  u32 cpus() const { return cpus_; }

  // What takes time; the job's errno is the answer. ENODEV: nobody listens. EBUSY: another reader has the writer, or there are files
  // of a dead writer open. ETIMEDOUT: it does not answer.
  std::shared_ptr<Job> probe();  // learns its events
  std::shared_ptr<Job> load();   // its `use` keeps the rings
  std::shared_ptr<Job> enable(bool on);
  std::shared_ptr<Job> reset(std::optional<u32> ring);

  bool loaded() const;
  bool on() const;
  bool gone() const;  // loaded, and the writer will never write again
  u64 kilobytes() const;
  result<void> kilobytes(u64 value);  // EINVAL, EBUSY: loaded, ENOMEM
  std::shared_ptr<void> use();        // null: not loaded
  std::vector<EventInfo> events() const;
  Counters counters(u32 ring) const;

  // Of loaded rings. One Asker for each file and ring.
  struct Asker {
    bool asks = false;
    u64 run = 0;
  };
  Found look(u32 ring, Asker& asker);
  const SubBufferView& view(u32 ring) const;            // after Found::data: what nobody has taken
  void consume(u32 ring, u32 end, u32 events);          // up to this data offset
  // All of view() counts as read, and the meta-page says so: what GET_READER does.
  void count_as_read(u32 ring);
  int error(u32 ring) const;
  bool ready(u32 ring);  // something may be there
  result<sys::Fd> file(u32 ring) const;  // of the mapping, read-only
  const void* memory() const;            // tells one writer's rings from the next one's
  std::unique_ptr<Source> peek(u32 ring) const;  // what is in the ring, consuming nothing; null: nothing

  // Of the server's thread.
  void refresh();  // formats and names, as of now
  const Formats& formats() const { return formats_; }
  const Tasks& tasks() const { return tasks_; }
  bool pipe = false;                       // trace_pipe of all rings is open
  std::vector<bool> pipes;                 // of one

 private:
  struct Ring;
  struct Life;
  struct Use;
  struct Command {
    enum class What : u8 { probe, load, enable, disable, reset, tidy } what = What::tidy;
    std::optional<u32> ring;
    std::shared_ptr<Job> job;
  };
  std::shared_ptr<Job> post(Command::What what, std::optional<u32> ring = std::nullopt);
  void run();
  int carry_out(const Command& command);
  int attach();
  int reset_rings(std::optional<u32> ring);
  void ask(Ring& ring, std::unique_lock<std::mutex>& lock);
  void tidy();
  void signal() const;
  void learn(std::vector<EventInfo> events);
  u64 unread(const Ring& ring) const;
  Ring* ring(u32 n) const;

  const std::string name_, socket_;
  const u32 cpus_;
  const std::chrono::nanoseconds patience_;
  const int event_fd_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> queue_;
  std::shared_ptr<Life> life_;
  std::vector<EventInfo> events_;
  u64 events_known_ = 0, events_shown_ = 0;  // generations: of events_, of formats_
  u64 kilobytes_ = 1410;
  bool on_ = false, over_ = false;
  bool unsure_ = false;  // the worker's: a switch was not answered in time, and may have happened
  u64 armed_until_ns_ = 0;
  Formats formats_;
  std::map<u32, EventInfo> formats_of_;  // what they were made of
  Tasks tasks_;
  std::thread thread_;
};

// The writers that are announced (remote::announced_path), and those that were named. A thread of its own sees them come and go.
class Remotes {
 public:
  // named: NAME=SOCKET, shown also while nobody listens. Waits for those that listen already, for a second at most.
  static result<std::unique_ptr<Remotes>> create(const std::vector<std::string>& named, u32 rings, std::chrono::nanoseconds patience, int event_fd);
  ~Remotes();
  std::vector<std::string> names() const;
  std::shared_ptr<Remote> find(const std::string& name) const;

 private:
  struct Known {
    std::shared_ptr<Remote> remote;
    bool named = false, there = false;
    std::string identity;  // of the socket that was asked for its events
    std::shared_ptr<Job> probe;
  };
  Remotes() = default;
  void run();
  void scan();
  void look_at(const std::string& name, const std::string& socket);
  bool shown(const Known& known) const;

  std::string dir_;
  sys::Fd open_;  // it
  u32 rings_ = 1;
  std::chrono::nanoseconds patience_{};
  int event_fd_ = -1;
  sys::Fd notices_, stop_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, Known>> known_;
  std::thread thread_;
};

}  // namespace ringside::mount
