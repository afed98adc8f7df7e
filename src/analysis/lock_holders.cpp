#include "analysis/lock_holders.hpp"

namespace ringside {

void LockHolders::find(u32 id, Event& event) const {
  event.known = true;
  const EventType* const type = formats_.find(id);
  if (type == nullptr || type->full != "libc:mutex_lock") return;
  event.mutex = type->field("mutex");
  event.wait = type->field("wait_ns");
  event.ret = type->field("ret");
  for (const Field* field : {event.mutex, event.wait, event.ret})
    if (field == nullptr || field->kind != FieldKind::integer) return;
  event.type = type;
}

std::optional<LockHolders::Wait> LockHolders::take(const TraceRecord& record, const RingName& ring) {
  Event& event = events_.at(record.number(), formats_.version());
  if (!event.known) [[unlikely]] find(record.number(), event);
  if (event.type == nullptr || record.lost != 0) return std::nullopt;
  const auto value = [&](const Field* field) { return static_cast<u64>(read_integer(record.payload, *field)); };
  const Key key{tasks_.process(thread_of(event.type, read_common(record.payload)), ring), value(event.mutex)};
  const auto at = holders_.find(key);
  const Wait wait{value(event.wait), at != holders_.end() ? at->second : 0};
  if (value(event.ret) == 0) {  // else it did not get it
    if (holders_.size() >= most_locks) holders_.clear();
    holders_[key] = record.stack;
  }
  return wait;
}

}  // namespace ringside
