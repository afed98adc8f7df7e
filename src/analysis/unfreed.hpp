// Memory that was allocated and not freed, by the events of `record --libc malloc`.
//
//   Unfreed unfreed(formats, tasks);
//   unfreed.take(record, ring, root, wanted);                // every event; wanted: this allocation is asked for
//   unfreed.each([](i64 process, const Unfreed::Block& block) { ... });   // what is left
//
//   allocations = frees + replaced + what is left        replaced: the same address came again, so its free is missing
//
// The numbers are those of the wanted allocations. The others are known, too, so that their frees match.
//
// The events of an allocation come when it has returned, so those of one address from two threads may be in the wrong order:
// a realloc takes away only what is older than its beginning.
#pragma once
#include <ringside/base/types.hpp>
#include <unordered_map>

#include "analysis/heap_changes.hpp"
#include "analysis/process_address.hpp"
#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class Unfreed {
 public:
  struct Block {
    u64 bytes = 0, time = 0;
    u32 stack = 0, root = 0;
    bool wanted = true;
  };
  struct Counts {
    u64 allocations = 0, frees = 0, replaced = 0;
    u64 unmatched = 0;  // frees of what was not seen being allocated
  };

  Unfreed(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks) {}

  // Whether the event is one of these.
  bool knows(u32 id) { return of(id).what != What::other; }
  void take(const TraceRecord& record, const RingName& ring, u32 root, bool wanted);
  template <class Use>
  void each(const Use& use) const {
    for (const auto& [key, block] : blocks_) {
      if (block.wanted) use(key.process, block);
    }
  }
  // From now on it takes the wanted allocations and their frees.
  void tell(HeapChanges& changes) { changes_ = &changes; }
  const Counts& counts() const { return counts_; }
  u64 left() const { return counts_.allocations - counts_.frees - counts_.replaced; }

 private:
  enum class What : u8 { unknown, other, allocates, reallocates, frees };
  struct Event {
    What what;
    const EventType* type;
    const Field *size, *count, *pointer, *old, *duration;
  };
  using Key = ProcessAddress;
  const Event& of(u32 id) {
    Event& event = events_.at(id, formats_.version());
    if (event.what == What::unknown) [[unlikely]]
      find(id, event);
    return event;
  }
  void find(u32 id, Event& event) const;
  void add(const Key& key, const Block& block);
  void free(const Key& key, u64 before, u64 time);
  void gone(const Key& key, const Block& block, u64 time);

  const Formats& formats_;
  const Tasks& tasks_;
  IdTable<Event> events_;
  std::unordered_map<Key, Block, ProcessAddressHash> blocks_;
  Counts counts_;
  HeapChanges* changes_ = nullptr;
};

}  // namespace ringside
