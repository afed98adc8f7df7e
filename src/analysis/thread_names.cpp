#include "analysis/thread_names.hpp"

#include <algorithm>
#include <cstring>

namespace ringside {
namespace {

struct Named {
  const char *event, *tid, *name;
};
constexpr Named all[] = {
    {"sched:sched_switch", "prev_pid", "prev_comm"},
    {"sched:sched_switch", "next_pid", "next_comm"},
    {"sched:sched_process_fork", "parent_pid", "parent_comm"},
    {"sched:sched_process_fork", "child_pid", "child_comm"},
    {"sched:sched_waking", "pid", "comm"},
    {"sched:sched_wakeup", "pid", "comm"},
    {"sched:sched_wakeup_new", "pid", "comm"},
    {"sched:sched_migrate_task", "pid", "comm"},
    {"sched:sched_process_exit", "pid", "comm"},
    {"sched:sched_process_exec", "pid", "filename"},
    {"task:task_newtask", "pid", "comm"},
    {"task:task_rename", "pid", "newcomm"},
};
constexpr size_t longest = 15;  // a comm without its NUL
constexpr i64 clone_thread = 0x10000;

}  // namespace

void ThreadNames::find(u32 id, Kind& kind) {
  kind.known = true;
  tells_changes_ = std::any_of(formats_.all().begin(), formats_.all().end(), [](const auto& type) {
    return type->full == "sched:sched_process_exec" || type->full == "task:task_rename";
  });
  const EventType* const type = formats_.find(id);
  if (type == nullptr) return;
  for (const Named& one : all) {
    const Field* const tid = type->full == one.event ? type->field(one.tid) : nullptr;
    const Field* const name = tid != nullptr ? type->field(one.name) : nullptr;
    if (name == nullptr || tid->kind != FieldKind::integer ||
        (name->kind != FieldKind::text && name->kind != FieldKind::loc_text))
      continue;
    kind.tid[kind.threads] = IntegerAt(tid->offset, tid->size, tid->is_signed);
    kind.name[kind.threads++] = name;
    kind.is_path = std::strcmp(one.name, "filename") == 0;
  }
  const Field* const flags = type->full == "task:task_newtask" ? type->field("clone_flags") : nullptr;
  if (flags != nullptr && flags->kind == FieldKind::integer && kind.threads == 1) {
    kind.birth = Kind::by_newtask;
    kind.flags = IntegerAt(flags->offset, flags->size, flags->is_signed);
  } else if (type->full == "sched:sched_process_fork" && kind.threads == 2) {
    kind.birth = Kind::by_fork;
  }
}

void ThreadNames::learn_birth(const TraceRecord& record, const RingName& ring, const Kind& kind) {
  const bool fork = kind.birth == Kind::by_fork;
  const auto child = static_cast<i32>(kind.tid[fork ? 1 : 0](record.payload));
  const i32 maker = fork ? static_cast<i32>(kind.tid[0](record.payload)) : read_common(record.payload).tid;
  if (child <= 0 || maker <= 0 || child == maker) return;
  tasks_.begin(tasks_.key(child, ring), tasks_.key(maker, ring),
               fork                                               ? Birth::either
               : (kind.flags(record.payload) & clone_thread) != 0 ? Birth::of_thread
                                                                  : Birth::of_process);
}

void ThreadNames::learn(const TraceRecord& record, const RingName& ring, const Kind& kind) {
  if (kind.birth != Kind::no_birth) learn_birth(record, ring, kind);
  for (u8 i = 0; i < kind.threads; ++i) {
    const auto tid = static_cast<i32>(kind.tid[i](record.payload));
    std::string_view name = read_text(record.payload, *kind.name[i]);
    if (kind.is_path) name.remove_prefix(std::min(name.rfind('/') + 1, name.size()));
    name = name.substr(0, longest);
    if (tid <= 0 || name.empty()) continue;
    Told& told = told_[static_cast<u32>(tid) % told_.size()];
    if (told.tid == tid && std::string_view(told.name.data(), told.length) == name) continue;
    told.tid = tid;
    told.length = static_cast<u32>(name.size());
    std::copy(name.begin(), name.end(), told.name.begin());
    const Tasks::Key thread = tasks_.key(tid, ring);
    tasks_.rename(thread, name, tells_changes_);
    if (in_parts_) last_[thread] = {record.time, std::string(name)};
  }
}

void ThreadNames::add(const ThreadNames& parts) {
  for (const auto& [thread, last] : parts.last_) {
    Last& known = last_[thread];
    if (last.time < known.time) continue;
    known = last;
    tasks_.rename(thread, last.name, parts.tells_changes_);
  }
}

}  // namespace ringside
