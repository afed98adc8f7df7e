#include "analysis/thread_names.hpp"

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_cursor.hpp>
#include <utility>

namespace ringside {
namespace {

// before: the field with the name that ends here, if it is another one than `name`; null: none has it.
struct Named {
  const char *event, *tid, *name, *before;
};
constexpr Named all[] = {
    {"sched:sched_switch", "prev_pid", "prev_comm", "prev_comm"},
    {"sched:sched_switch", "next_pid", "next_comm", "next_comm"},
    {"sched:sched_process_fork", "parent_pid", "parent_comm", "parent_comm"},
    {"sched:sched_process_fork", "child_pid", "child_comm", "child_comm"},
    {"sched:sched_waking", "pid", "comm", "comm"},
    {"sched:sched_wakeup", "pid", "comm", "comm"},
    {"sched:sched_wakeup_new", "pid", "comm", "comm"},
    {"sched:sched_migrate_task", "pid", "comm", "comm"},
    {"sched:sched_process_exit", "pid", "comm", "comm"},
    {"sched:sched_process_exec", "pid", "filename", nullptr},
    {"task:task_newtask", "pid", "comm", "comm"},
    {"task:task_rename", "pid", "newcomm", "oldcomm"},
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
    kind.before[kind.threads] = one.before != nullptr ? type->field(one.before) : nullptr;
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
    tasks_.rename(thread, name, tells_changes_ || begun_);
    if (in_parts_) last_[thread] = {record.time, std::string(name)};
  }
}

bool ThreadNames::tells() const {
  return std::any_of(formats_.all().begin(), formats_.all().end(), [](const auto& type) {
    return std::any_of(std::begin(all), std::end(all), [&](const Named& one) { return type->full == one.event; });
  });
}

void ThreadNames::look_ahead(Source& source, const Timeline::Origin& origin, u64 from, u64 until,
                             const std::function<bool()>& over, Firsts& firsts) {
  constexpr u64 most_beyond = 4 << 20;  // bytes: a thread that runs is mentioned soon
  RingName ring = source.name();
  if (!ring.kernel) return;
  ring.numbering = origin.ids;
  const ClockInfo clock = origin.clock.value_or(source.clock());
  const u64 first = from == 0 ? 0 : first_sub_buffer(source, clock, from);
  if (first > 1) source.seek(first - 1);  // that one may reach into the range
  TraceRecord record;
  record.ids = ring.ids() + origin.ids;
  u64 beyond = 0;
  std::vector<Tasks::Key> known(1021);  // of the last mentioned threads: most were mentioned before
  for (auto view = source.next(); view && *view && !over(); view = source.next()) {
    abi::EventCursor cursor((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
    while (cursor.next()) {
      record.payload = cursor.payload();
      const Kind& kind = kind_of(record.number());
      if (kind.threads == 0) continue;
      record.time = clock.to_ns(cursor.time());
      if (record.time < from) continue;
      for (u8 i = 0; i < kind.threads; ++i) {
        const auto tid = static_cast<i32>(kind.tid[i](record.payload));
        if (tid <= 0) continue;
        const Tasks::Key thread = tasks_.key(tid, ring);
        Tasks::Key& last = known[static_cast<u64>(thread) % known.size()];
        if (std::exchange(last, thread) == thread) continue;
        const auto [at, fresh] = firsts.try_emplace(thread);
        if (!fresh && at->second.time <= record.time) continue;
        const Field* const before = kind.before[i];
        at->second = {record.time, before != nullptr ? std::string(read_text(record.payload, *before).substr(0, longest)) : ""};
      }
    }
    if (clock.to_ns((*view)->time) > until && (beyond += (*view)->end - (*view)->begin) > most_beyond) return;
  }
}

void ThreadNames::begin(const Firsts& firsts) {
  begun_ = true;
  for (const auto& [thread, first] : firsts) tasks_.rename(thread, first.name.empty() ? "<...>" : first.name, true);
}

void ThreadNames::add(const ThreadNames& parts) {
  for (const auto& [thread, last] : parts.last_) {
    Mention& known = last_[thread];
    if (last.time < known.time) continue;
    known = last;
    tasks_.rename(thread, last.name, parts.tells_changes_ || parts.begun_);
  }
}

}  // namespace ringside
