// The spool of an agent: a directory of finished recordings, its parts, which wait for their way to the server, and the books.
//
//   SPOOL/state.json     the agent's number, its progress and its books; replaced in one step, and synchronised
//   SPOOL/now            the recording in the making
//   SPOOL/part.0000001   finished parts, which are sent in this order and removed; part.N of another length (record --rotate -o
//   SPOOL/part)
//                        gets the next free number when an agent starts
//
//   read = shipped + filtered + dropped + spooled
//
// A full disk does not end the agent: a state that cannot be saved now is saved later, and load() determines which parts are
// left. SPOOL/room keeps room for the state.
//
// One agent at a time uses a spool, with two threads: one adds parts, the other sends them.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <set>
#include <string>
#include <vector>

#include "sys/beneath.hpp"

namespace ringside::ship {

struct SpoolBooks {
  u64 read = 0;      // events in recordings
  u64 shipped = 0;   // rows that the server has confirmed
  u64 filtered = 0;  // by -F and --keep
  u64 dropped = 0;   // with a part, because the spool was full; or not readable; or refused by the server for good
  u64 spooled = 0;   // in parts
  u64 lost = 0;      // never in a recording: what the recordings count as lost
  u64 unproved = 0;  // recordings that may have lost more: their recorder did not finish, or could not read all
  bool add_up() const { return read == shipped + filtered + dropped + spooled; }
};

// Which of a part's events are sent: one choice for the whole part, also after a restart.
struct Choice {
  std::string filter{};
  u64 keep_one_of = 1;  // of the threads
};

// The part on its way.
struct Sending {
  u64 part = 0;
  u64 first_batch = 0;
  u64 attempt = 0;  // the number of the last session's name
  Choice choice{};
  struct Dropped {
    u64 from_ns = 0, to_ns = 0, events = 0;  // by the wall clock
    std::string why{};
    u64 lost = 0;        // before they were dropped, with the part's own count; 0: its own rows say
    bool proved = true;  // that this is all
  };
  std::vector<Dropped> dropped{};   // events that went since the part before: rows of the table `losses`
  std::set<u64> refused{};          // batches that the server does not take
  u64 arrived_to = 0, arrived = 0;  // the last batch of events that the server has for certain; the events up to it
  i64 told_before = 0;              // the server has the rows of `dropped` that end before this time
};

class Spool {
 public:
  // Makes the directory if it is not there. Recordings that a killed agent left there become parts. EBUSY: another agent uses
  // it.
  static result<std::unique_ptr<Spool>> open(const std::string& dir, u64 most_bytes, std::function<u64()> now = sys::now_ns);
  ~Spool();

  const std::string& agent() const { return agent_; }  // 16 hexadecimal digits
  std::string now() const { return dir_ + "/now"; }
  std::string path_of(u64 part) const;
  SpoolBooks books() const;
  u64 bytes() const;

  // The recorder's: `now` is finished and becomes a part. Drops the oldest ones if there is no room; returns how many of their
  // events.
  result<u64> add(u64 events, u64 lost, bool proved);
  result<void> discard();  // `now`, in which nothing is
  // The disk is full: the oldest part goes, unless it is on its way. Returns how many events; none: there is no other part.
  result<std::optional<u64>> drop_oldest();
  void end();  // no more will come

  // The sender's. The oldest part, and what is known of it if it was begun before. Waits for one; none: no more will come, or
  // `timeout_ns` is over.
  std::optional<u64> next(u64 timeout_ns);
  std::optional<u64> next_after(u64 part, u64 timeout_ns);  // of those that are there, for others that read them
  bool ended() const;                                       // no more will come
  std::optional<Sending> begun() const;
  result<void> begin(const Sending& sending);
  result<u64> next_attempt();
  // A batch of events is on the server. Saved once a second: after a kill the next sender asks the server for the rest.
  result<void> arrived(u64 batch, u64 events);
  result<void> told(i64 to_ns);  // the rows of `losses` up to this time are on the server
  result<void> refused(u64 batch);
  // It is on the server, in `batches` batches, without those that it refused.
  result<void> sent(u64 shipped, u64 filtered, u64 refused, u64 batches);
  result<void> unreadable();  // the rest of it is dropped
  result<void> keep_back();   // no server gets it: others have read it, and its events count as filtered
  u64 first_batch() const;    // of the next part

 private:
  struct Part {
    std::string name{};
    u64 events = 0, bytes = 0, from_ns = 0, to_ns = 0, lost = 0;
    bool proved = true;
  };
  Spool(std::string dir, u64 most_bytes, std::function<u64()> now)
      : dir_(std::move(dir)), most_bytes_(most_bytes), now_(std::move(now)) {}
  result<void> load();
  // The steps of load().
  result<void> read_state();
  result<void> find_parts();
  result<void> take_in_unfinished();
  void count_new_parts();
  result<void> save();
  result<void> save_if_there_is_room();
  result<void> write_state();
  void keep_room();
  result<void> settle();
  result<void> settle_if_there_is_room();
  result<std::optional<u64>> drop();
  result<void> remove(const std::string& name);
  result<u64> make_room();
  result<void> take_in(std::vector<std::pair<u64, std::string>> others);
  void reconcile();
  void settle_removed();
  void take_back_dropped();
  void tell_dropped(Sending::Dropped dropped);
  result<void> close_part();
  u64 newest() const;
  Part look_at(const std::string& name) const;

  std::string dir_;
  u64 most_bytes_;
  std::function<u64()> now_;
  u64 saved_ns_ = 0;
  bool unsaved_ = false;  // batches have arrived since then
  sys::Fd folder_, lock_;
  bool room_ = false;  // SPOOL/room is there
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::string agent_;
  std::map<u64, Part> parts_;
  SpoolBooks books_;    // without `spooled`
  u64 counted_ = 0;     // the newest part that `read` has
  std::set<u64> gone_;  // parts whose events are in the books, and whose directories may still be there
  u64 next_batch_ = 1;
  std::optional<Sending> sending_;
  std::vector<Sending::Dropped> dropped_;  // not reported to the server yet
  u64 oldest_ns_ = 0;                      // when the oldest part began, as the last state says
  bool ended_ = false;
};

bool no_room(const Error& error);  // on the disk, or in the user's share of it

struct CountOfPart {
  u64 events = 0, lost = 0;
  bool proved = false;  // that no more was lost
};
// Of a recording: what its description says, or, if its recorder did not finish, what can be read.
CountOfPart count_part(const std::string& dir);

}  // namespace ringside::ship
