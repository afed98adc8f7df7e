#include "record/name_watch.hpp"

#include <sched.h>

#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>

#include "sys/try.hpp"

namespace ringside {

result<std::unique_ptr<NameWatch>> NameWatch::create(const ClockInfo& clock, const std::vector<i32>& pids, bool will_follow) {
  TracefsOptions make;
  make.prefix = "ringside-names-";
  make.buffer_size = 256 << 10;
  make.clock = clock.kind;
  std::unique_ptr<NameWatch> watch(new NameWatch(RS_TRY(TracefsInstance::create(make))));
  RS_TRY(watch->learn("task_newtask", watch->begun_, "comm", "clone_flags"));
  RS_TRY(watch->learn("task_rename", watch->renamed_, "newcomm", "oldcomm"));
  if (will_follow) RS_TRY(watch->instance_.follow_none());
  for (const i32 pid : pids) RS_TRY(watch->instance_.follow_process(pid));
  auto rings = RS_TRY(open_kernel_rings(watch->instance_.dir(), watch->instance_.cpus(), clock, {}));
  watch->sources_ = std::move(rings.sources);
  return watch;
}

NameWatch::~NameWatch() { sources_.clear(); }

result<void> NameWatch::remove() {
  sources_.clear();  // the instance cannot be removed while they are open
  return instance_.remove();
}

result<void> NameWatch::learn(const char* event, Kind& kind, const char* name, const char* other) {
  const auto enabled = RS_TRY(instance_.enable(EventPattern("task:" + std::string(event))));
  if (enabled.empty()) return refuse(std::errc::no_such_file_or_directory, "the kernel has no event " + std::string(event));
  const EventInfo& info = enabled.front();
  formats_.add(info.number(), info.system, info.name, info.format, World::own());
  const EventType* const type = formats_.find(info.number());
  const Field* const tid = type->field("pid");
  kind.name = type->field(name);
  const Field* const more = type->field(other);
  if (tid == nullptr || kind.name == nullptr || more == nullptr)
    return refuse(std::errc::bad_message, "the kernel's event " + std::string(event) + " lacks a field");
  kind.id = info.id;
  kind.tid = IntegerAt(tid->offset, tid->size, tid->is_signed);
  if (more->kind == FieldKind::integer)
    kind.flags = IntegerAt(more->offset, more->size, more->is_signed);
  else
    kind.old_name = more;
  return {};
}

void NameWatch::note(u64 time, Bytes payload) {
  const u16 id = event_id(payload);
  if (id != begun_.id && id != renamed_.id) return;
  const Kind& kind = id == begun_.id ? begun_ : renamed_;
  NameChange change;
  change.time = time;
  change.kernel = true;
  change.tid = static_cast<i32>(kind.tid(payload));
  change.task = std::string(read_text(payload, *kind.name));
  if (kind.old_name != nullptr) change.old_task = std::string(read_text(payload, *kind.old_name));
  if (kind.old_name == nullptr && (kind.flags(payload) & CLONE_THREAD) == 0) {
    change.pid = change.tid;
    change.process = change.task;
  }
  // The first one counts even if it changes nothing: the old name of an exec by another thread than the first is that thread's.
  if (change.tid <= 0 || (!noted_.insert(change.tid).second && change.task == change.old_task)) return;
  names_.push_back(std::move(change));
  if (names_.size() > most_name_changes) noted_.clear(), names_.pop_front();
}

void NameWatch::take() {
  for (auto& source : sources_) {
    for (auto view = source->next(); view && *view; view = source->next()) {
      abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
      while (c.next()) note(c.time(), c.payload());
    }
  }
}

}  // namespace ringside
