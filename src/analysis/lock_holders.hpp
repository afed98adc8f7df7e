// Waits for mutexes, and the stack that held each, by the events of `record --libc mutex --stack`.
//
//   if (const auto wait = holders.take(record, ring)) ...    // every event, in order
//
// The holder is the thread that locked the mutex last before: the events of locks are in the order in which they got it.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <unordered_map>

#include "analysis/process_address.hpp"
#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "export/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class LockHolders {
 public:
  static constexpr size_t most_locks = 1'000'000;  // then all are forgotten: a live trace may run for weeks
  struct Wait {
    u64 ns = 0;
    u32 holder = 0;  // its stack; 0: it is not known
  };

  LockHolders(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks) {}
  // Nothing: the event is no lock of a mutex.
  std::optional<Wait> take(const TraceRecord& record, const RingName& ring);

 private:
  struct Event {
    bool known;
    const EventType* type;  // null: another event
    const Field *mutex, *wait, *ret;
  };
  using Key = ProcessAddress;
  void find(u32 id, Event& event) const;

  const Formats& formats_;
  const Tasks& tasks_;
  IdTable<Event> events_;
  std::unordered_map<Key, u32, ProcessAddressHash> holders_;
};

}  // namespace ringside
