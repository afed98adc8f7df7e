// The rings of one instance as a server hands them out: opened once for all clients, counted as mapped while any client has
// them, and moved on under the reader's lock one request at a time (so that reset and other readers get their turn).
#pragma once
#include <map>
#include <ringside/abi/handout.hpp>

#include "writer/layout.hpp"
#include "instance/ring_source.hpp"
#include "sys/sys.hpp"

namespace ringside {

// The kernel's rule for waiting readers. percent 0: ready when there is an event that no reader has taken. Above: ready when
// that share of the sub-buffers is full and the writer has left the reader page.
bool ring_ready(const Ring& ring, u32 percent) noexcept;

class RingTable {
 public:
  // EBUSY if another server serves this instance: a single server can put Control::mapped right.
  static result<RingTable> open(const std::string& instance);
  RingTable(RingTable&&) = default;
  ~RingTable();

  handout::Hello hello() const;
  handout::RingAnswer list(u32 from) const;  // the first ring from `from` on
  result<handout::FormatAnswer> format(u32 from_id, u64 offset);

  struct Handed {
    handout::RingAnswer answer{};
    sys::Fd file;  // read-only
  };
  // Counts one more mapper. The descriptor has a description of its own: clients share no offset and no flags.
  result<Handed> open(u32 ring);
  void close(u32 ring) noexcept;  // one mapper less

  // For open rings.
  result<handout::ReaderAnswer> get_reader(u32 ring);  // `ended` stays 0
  // No event can come after the next get_reader(). Only if the last one found nothing, because it costs a file of /proc.
  bool ended(u32 ring) const noexcept;
  result<handout::CountersAnswer> counters(u32 ring) const;
  handout::CountersAnswer past() const;  // of rings that gave their memory back, and of events that found no ring
  bool ready(u32 ring, u32 percent) const noexcept;
  // For callers that read its events on this side; valid until the next call. The lock is held only during the call.
  result<RingView*> view(u32 ring);

  const std::string& path() const { return path_; }
  bool removed() const;  // the instance is gone

 private:
  struct Served {
    Served(sys::Fd f, RingView v) : folder(std::move(f)), view(std::move(v)) {}
    sys::Fd folder;  // the ring's own, even if another is in its place by now
    RingView view;
    u32 mappers = 0;
    bool idle = false;  // the last read found nothing
    u32 tid = 0;        // the ring's thread when it was opened
  };
  RingTable() = default;
  bool lock(Served& ring) noexcept;
  handout::RingAnswer describe(u32 n) const;
  result<Served*> find(u32 ring);
  void forget_dead_mappers() const;

  std::string path_;
  sys::Region region_;
  InstanceWords words_;
  sys::Fd dir_, serving_;
  std::shared_ptr<Members> members_;
  std::map<u32, Served> rings_;
  std::map<u32, std::string> formats_;
};

}  // namespace ringside
