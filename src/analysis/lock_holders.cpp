#include "analysis/lock_holders.hpp"

#include <algorithm>

namespace ringside {

void LockHolders::find(u32 id, Event& event) const {
  constexpr struct {
    const char *event, *at;
    Does does;
  } all[] = {{"libc:mutex_lock", "mutex", Does::lock}, {"libc:rwlock_lock", "rwlock", Does::lock},
             {"libc:spin_lock", "spin", Does::lock},   {"libc:cond_wait", "cond", Does::wait},
             {"libc:sem_wait", "sem", Does::wait},     {"libc:cond_signal", "cond", Does::wake},
             {"libc:sem_post", "sem", Does::wake}};
  event.known = true;
  const EventType* const type = formats_.find(id);
  if (type == nullptr || type->system != "libc") return;
  const auto integer = [type](const char* name) {
    const Field* const field = type->field(name);
    return field != nullptr && field->kind == FieldKind::integer ? field : nullptr;
  };
  for (const auto& one : all) {
    if (type->full != one.event) continue;
    event.does = one.does;
    event.at = integer(one.at);
    event.wait = integer("wait_ns");
    event.ret = integer("ret");
    event.mutex = one.does == Does::wait ? integer("mutex") : nullptr;
    const bool whole = one.does == Does::wake || (event.wait != nullptr && event.ret != nullptr);
    if (event.at != nullptr && whole) event.type = type;
  }
}

void LockHolders::note(const Key& key, const TraceRecord& record) {
  if (last_.size() >= most_locks) last_.clear();
  last_[key] = {record.stack, record.time};
}

std::optional<LockHolders::Wait> LockHolders::take(const TraceRecord& record, const RingName& ring) {
  Event& event = events_.at(record.number(), formats_.version());
  if (!event.known) [[unlikely]] find(record.number(), event);
  if (event.type == nullptr || record.lost != 0) return std::nullopt;
  const auto value = [&](const Field* field) { return static_cast<u64>(read_integer(record.payload, *field)); };
  const auto process = tasks_.process(thread_of(event.type, read_common(record.payload)), ring);
  const Key key{process, value(event.at)};
  if (event.does == Does::wake) return note(key, record), std::nullopt;
  const bool got = value(event.ret) == 0;
  Wait wait{value(event.wait), 0, event.does == Does::wait};
  if (const auto at = last_.find(key); at != last_.end()) {
    // A semaphore keeps a post for a later wait; a condition keeps no signal.
    const bool before = event.mutex != nullptr && at->second.time < record.time - std::min(record.time, wait.ns);
    if (!wait.woken || (got && !before)) wait.other = at->second.stack;
  }
  if (event.does == Does::lock && got) note(key, record);
  if (event.mutex != nullptr) note({process, value(event.mutex)}, record);
  return wait;
}

}  // namespace ringside
