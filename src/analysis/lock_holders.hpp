// Waits for locks, conditions and semaphores, and the stack that held each lock or ended each wait, by the events of
// `record --libc lock --stack`.
//
//   if (const auto wait = holders.take(record, ring)) ...    // every event, in order
//
// The holder is the thread that locked it last before: the events of locks are in the order in which they got it. A wait for a
// condition or a semaphore is ended by the last signal or post before, whose event is written before its call. Nothing
// ended a wait that failed or timed out, and no signal from before a wait for a condition ended it.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <unordered_map>

#include "analysis/process_address.hpp"
#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class LockHolders {
 public:
  static constexpr size_t most_locks = 1'000'000;  // then all are forgotten: a live trace may run for weeks
  struct Wait {
    u64 ns = 0;
    u32 other = 0;       // the stack of the holder, or of the thread that ended it; 0: it is not known
    bool woken = false;  // by a signal or a post; else it waited for a holder
  };

  LockHolders(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks) {}
  // Nothing: the event is no lock, and no wait.
  std::optional<Wait> take(const TraceRecord& record, const RingName& ring);

 private:
  enum class Does : u8 { lock, wait, wake };
  struct Event {
    bool known;
    Does does;
    const EventType* type;         // null: another event
    const Field *at, *wait, *ret;  // at: the address of what it is about
    const Field* mutex;            // of a wait for a condition: it is locked again at its end
  };
  using Key = ProcessAddress;
  void find(u32 id, Event& event) const;
  void note(const Key& key, const TraceRecord& record);

  const Formats& formats_;
  const Tasks& tasks_;
  IdTable<Event> events_;
  struct Last {
    u32 stack = 0;
    u64 time = 0;
  };
  std::unordered_map<Key, Last, ProcessAddressHash> last_;  // what locked it, or woke its waiters, last
};

}  // namespace ringside
