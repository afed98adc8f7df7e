#include "analysis/lock_holders.hpp"

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

void LockHolders::note(const Key& key, u32 stack) {
  if (last_.size() >= most_locks) last_.clear();
  last_[key] = stack;
}

std::optional<LockHolders::Wait> LockHolders::take(const TraceRecord& record, const RingName& ring) {
  Event& event = events_.at(record.number(), formats_.version());
  if (!event.known) [[unlikely]] find(record.number(), event);
  if (event.type == nullptr || record.lost != 0) return std::nullopt;
  const auto value = [&](const Field* field) { return static_cast<u64>(read_integer(record.payload, *field)); };
  const auto process = tasks_.process(thread_of(event.type, read_common(record.payload)), ring);
  const Key key{process, value(event.at)};
  if (event.does == Does::wake) return note(key, record.stack), std::nullopt;
  const auto at = last_.find(key);
  const Wait wait{value(event.wait), at != last_.end() ? at->second : 0, event.does == Does::wait};
  if (event.does == Does::lock && value(event.ret) == 0) note(key, record.stack);  // else it did not get it
  if (event.mutex != nullptr) note({process, value(event.mutex)}, record.stack);
  return wait;
}

}  // namespace ringside
