#include "analysis/running.hpp"

namespace ringside {

void RunningThreads::find(u32 id, Kind& kind) const {
  kind.is = Kind::other;
  const EventType* const type = formats_.find(id);
  if (type == nullptr || type->system != "sched") return;
  const bool run = type->name == "sched_switch";
  if (!run && type->name != "sched_migrate_task") return;
  const Field* const from = type->field(run ? "prev_pid" : "pid");
  const Field* const to = type->field(run ? "next_pid" : "dest_cpu");
  if (from == nullptr || to == nullptr || from->kind != FieldKind::integer || to->kind != FieldKind::integer) return;
  kind.is = run ? Kind::run : Kind::migrate;
  kind.from = IntegerAt(from->offset, from->size, from->is_signed);
  kind.to = IntegerAt(to->offset, to->size, to->is_signed);
}

void RunningThreads::learn(const TraceRecord& record, const RingName& ring) {
  constexpr u32 most_cpus = 1u << 16;
  if (ring.ring >= most_cpus || tasks_.machine(ring.numbering) != 0) return;  // CPUs are those of one machine
  const auto cpu = static_cast<i32>(ring.ring);
  if (record.lost != 0) return lose(cpu);
  Kind& kind = kinds_.at(record.number(), formats_.version());
  if (kind.is == Kind::unknown) find(record.number(), kind);
  if (kind.is == Kind::other) [[likely]] return;
  const auto from = static_cast<i32>(kind.from(record.payload)), to = static_cast<i32>(kind.to(record.payload));
  if (kind.is == Kind::migrate) {
    if (to >= 0) cpus_[tasks_.key(from, ring)] = {to, true};
    return;
  }
  if (ring.ring >= on_.size()) on_.resize(ring.ring + 1);
  // A thread that was switched to here runs here no longer, whatever the switch away from it says: that may have been filtered.
  for (const Tasks::Key thread : {tasks_.key(from, ring), on_[ring.ring]}) {
    const auto at = cpus_.find(thread);
    if (at != cpus_.end() && at->second.cpu == cpu) cpus_.erase(at);
  }
  on_[ring.ring] = tasks_.key(to, ring);
  if (to != 0) cpus_[on_[ring.ring]] = {cpu, false};
}

void RunningThreads::lose(i32 cpu) {
  std::erase_if(cpus_, [cpu](const auto& one) { return one.second.cpu == cpu || one.second.by_migration; });
}

i32 RunningThreads::cpu_of(const TraceRecord& record, const RingName& ring) const {
  Tasks::Key thread = read_common(record.payload).tid;
  if (tasks_.any_elsewhere()) {
    thread = tasks_.key(static_cast<i32>(thread), ring);
    const Task* const task = tasks_.find(thread);
    if (task != nullptr && task->elsewhere.tid != 0) thread = task->elsewhere.here_tid;
  }
  const auto at = cpus_.find(thread);
  return at == cpus_.end() || thread <= 0 ? -1 : at->second.cpu;
}

}  // namespace ringside
