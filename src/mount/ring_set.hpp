// The rings that a directory of the mount shows: an instance's (mounted.hpp) or an external writer's (remote.hpp). The files of
// rings (open_file.hpp) and the server know nothing else of either. Each set must pass tests/mount/ring_set_test.cpp.
//
//   switch (rings.find(0, asker)) case Found::data: walk(rings.view(0)), rings.consume(0, end, events);
//   rings.done(0);
//
// All functions return at once and are for one thread, the server's. A set that must first ask another party answers
// Found::asking, and makes the server's event descriptor readable when it knows.
#pragma once
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "decode/formats.hpp"
#include "decode/tasks.hpp"
#include "export/text.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"

namespace ringside::mount {

// Work of another thread for a request, which is answered when the work is over.
struct Job {
  std::atomic<int> error{-1};  // -1: it is running; 0: done; else an errno
  std::shared_ptr<void> use;   // what the job has obtained, for as long as it is used; set before `error` is
};

// Whether a ring has events to read. asking: not known yet, check again; nothing: the ring had none when it was asked; ended:
// the writer is gone and all is read; failed: RingSet::error says why.
enum class Found : u8 { data, nothing, asking, ended, failed };

// A question to a ring that has not been answered yet. One for each open file and ring.
struct Asker {
  bool asks = false;
  u64 run = 0;
};

// The rings at this moment, and how to print them: `trace`.
struct Peeked {
  std::vector<std::unique_ptr<Source>> sources;
  u64 in_buffer = 0, overrun = 0;
  u64 until_ns = ~u64{0};            // no later events
  std::optional<Error> problem;      // a ring could not be opened, and it is not the ring's fault: the events would not be all
  std::vector<std::string> missing;  // damaged rings, a sentence each
};

struct EventName {
  u16 id = 0;
  std::string system, name;
  bool enabled = true;
  bool marker = false;  // written by trace_marker and trace_marker_raw: always on
  std::string folder = name;  // below events/SYSTEM; another one where two events have this name
  bool elsewhere = false;     // another instance of the mount has it, this one has not
};

// How `trace` and `trace_pipe` look. Those of upstream's remote buffers have lines of ring, time and event alone.
struct TextRules {
  bool header = true;
  bool tasks = true;
  bool one_pipe = true;   // a ring's trace_pipe has one client at a time
  bool pipe_ends = true;  // ... and ends when recording is off and all is read
};

// One ring, or all.
using Only = std::optional<u32>;

class RingSet {
 public:
  virtual ~RingSet() = default;

  virtual u32 cpus() const = 0;  // rings 0 to cpus() - 1 are shown, even if they do not exist
  virtual RingName name(u32 ring) const = 0;
  virtual ClockInfo clock() const = 0;
  virtual u32 subbuf_size(u32 ring) = 0;
  virtual result<Counters> counters(u32 ring) = 0;
  virtual bool on() const = 0;                    // recording is on
  virtual bool shows_processes() const { return false; }  // lines of text have a column of process IDs
  virtual TextRules text_rules() const { return {}; }
  virtual bool gone() const { return false; }     // the writer will never write again
  virtual bool removed() const { return false; }  // another set may have its name by now

  // Updates formats and names; the returned number changes when they have changed.
  virtual u64 refresh() = 0;
  const Formats& formats() const { return formats_; }
  Tasks& tasks() { return tasks_; }
  // Does the mount show this event? It hides events that a filter excludes; the rings hold all written events.
  virtual bool filtered() const { return false; }
  virtual bool wanted(const TraceRecord&, const RingName&) { return true; }
  virtual std::vector<EventName> events() = 0;  // all that have a format

  // The job that opening a file of the rings waits for, and keeps while it is open; null: none.
  virtual std::shared_ptr<Job> load() { return nullptr; }
  // Empties rings. Null: done.
  virtual result<std::shared_ptr<Job>> reset(Only only) = 0;
  virtual bool write_resets() const { return false; }  // does a write to `trace` empty the rings, too?
  virtual Peeked peek(Only only) = 0;

  // Reading. After Found::data: view() has the events that no client has taken; done() must follow before the request is
  // answered.
  virtual Found find(u32 ring, Asker& asker) = 0;
  virtual bool asks() const { return false; }  // find() may answer Found::asking; asking may move the reader page on
  virtual SubBufferView view(u32 ring) const = 0;
  virtual void consume(u32 ring, u32 end, u32 events) = 0;  // up to this data offset of the view
  virtual void done(u32) {}
  virtual Error error(u32 ring) const = 0;
  virtual bool ready(u32 ring, u32 percent) = 0;  // something may be there; percent: see buffer_percent

  // Mapping. map() counts one more mapping, and returns a read-only descriptor of the meta-page and the sub-buffers.
  virtual bool can_be_mapped(u32 ring) const = 0;
  virtual result<sys::Fd> map(u32 ring) = 0;
  virtual void unmap(u32) {}
  virtual const void* memory() const { return this; }  // differs for another mapping of ring N
  // False: ask again. must: the wait is over, answer with what there is.
  virtual result<bool> get_reader(u32 ring, Asker& asker, bool must) = 0;

  // A client waits: for any event (0), or until a ring is this full. The caller checks once more afterwards. late: the last
  // alarm helped no waiting client.
  virtual void alarm(int percent, bool late) = 0;

  u32 buffer_percent = 50;
  // All waiters go on (a generation, like the kernel's wake-all): tracing_on 1 -> 0, command 0.
  u64 woken = 0;

  // trace_pipe of one ring, or of all.
  bool open_pipe(Only only);
  void close_pipe(Only only);

 protected:
  Formats formats_;
  Tasks tasks_;

 private:
  bool all_pipes_ = false;
  std::set<u32> pipes_;
};

}  // namespace ringside::mount
