#include "analysis/states.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ringside {

void States::Times::make_room(u32 lowest, u32 highest) {
  constexpr u32 step = 1 << buckets.precision;  // so that it grows seldom
  lowest &= ~(step - 1);
  highest |= step - 1;
  if (values_.size() <= few) {
    first_ = static_cast<u16>(lowest);
    values_.resize(few + highest + 1 - lowest);
    return;
  }
  const u32 end = first_ + static_cast<u32>(values_.size() - few);
  if (highest >= end) values_.resize(values_.size() + highest + 1 - end);
  if (lowest < first_) values_.insert(values_.begin() + few, first_ - lowest, 0);
  first_ = std::min(first_, static_cast<u16>(lowest));
}

void States::Times::add_up() {
  if (waiting_ == 0) return;
  const auto [least, most] = std::minmax_element(values_.begin(), values_.begin() + waiting_);
  longest_ = std::max(longest_, *most);
  make_room(buckets.of(*least), buckets.of(*most));
  u64* const counts = values_.data() + few;
  for (u32 n = 0; n < waiting_; ++n) {
    total_ += values_[n];
    ++counts[buckets.of(values_[n]) - first_];
  }
  added_up_ += std::exchange(waiting_, u16{0});
}

void States::Times::merge(const Times& other) {
  if (other.added_up_ != 0) {
    const auto many = static_cast<u32>(other.values_.size() - few);
    make_room(other.first_, other.first_ + many - 1);
    for (u32 n = 0; n < many; ++n) values_[few + other.first_ - first_ + n] += other.values_[few + n];
    added_up_ += other.added_up_;
    total_ += other.total_;
    longest_ = std::max(longest_, other.longest_);
  }
  for (u32 n = 0; n < other.waiting_; ++n) add(other.values_[n]);
  cuts_ += other.cuts_;
  cut_ns_ += other.cut_ns_;
}

u64 States::Times::total() const { return std::accumulate(values_.begin(), values_.begin() + waiting_, total_); }

u64 States::Times::longest() const {
  u64 longest = longest_;
  for (u32 n = 0; n < waiting_; ++n) longest = std::max(longest, values_[n]);
  return longest;
}

double States::Times::p99() const {
  if (added_up_ == 0) return static_cast<double>(longest());  // the last one of so few
  Times all = *this;
  all.add_up();
  u64 left = rank_of(.99, all.added_up_);
  size_t n = few;
  for (; n < all.values_.size() && all.values_[n] < left; ++n) left -= all.values_[n];
  const auto bucket = all.first_ + static_cast<u32>(n - few);
  const auto low = static_cast<double>(buckets.low(bucket)), high = static_cast<double>(buckets.high(bucket));
  return std::min(low + (high - low) / 2, static_cast<double>(all.longest_));
}

result<States> States::make(Of of, size_t most, const Formats& formats, const Tasks& tasks) {
  const auto& types = formats.all();
  if (std::none_of(types.begin(), types.end(), [](const auto& type) { return type->full == "sched:sched_switch"; }))
    return refuse(std::errc::no_such_file_or_directory,
                  "there is no sched:sched_switch, which has the states of threads and CPUs");
  return States(of, most, formats, tasks);
}

void States::find(u32 id, Kind& kind) const {
  kind.is = Kind::other;
  const EventType* const type = formats_.find(id);
  if (type == nullptr) return;
  const auto at = [&](const char* name, IntegerAt& to) {
    const Field* const field = type->field(name);
    if (field == nullptr || field->kind != FieldKind::integer) return false;
    to = IntegerAt(field->offset, field->size, field->is_signed);
    return true;
  };
  if (type->full == "sched:sched_switch") {
    if (at("prev_pid", kind.from) && at("prev_state", kind.state) && at("next_pid", kind.to)) kind.is = Kind::run;
  } else if (type->full == "sched:sched_waking" || type->full == "sched:sched_wakeup" ||
             type->full == "sched:sched_wakeup_new") {
    if (at("pid", kind.from)) kind.is = Kind::wake;
  } else if (type->system == "irq" || type->system == "irq_vectors") {
    if (type->name.ends_with("_entry")) kind.is = Kind::enter;
    if (type->name.ends_with("_exit")) kind.is = Kind::leave;
  }
}

States::All States::with_open(const All& all, u32 now, u64 since, u64 until) {
  All out;
  for (u32 n = 1; n < kinds; ++n) out[n].merge(all[n]);
  if (now != 0 && until > since) out[now].cut(until - since);
  return out;
}

void States::end(Thread& t, u64 time) {
  if (t.now == unknown) return;
  const u64 until = end_of(t, time);
  if (t.losses < losses_of(t).size()) {
    if (until > t.since) t.all[t.now].cut(until - t.since);
  } else if (time >= t.since) {
    t.all[t.now].add(time - t.since);
  } else {
    ++backward_;
  }
  t.now = unknown;
}

void States::begin(Thread& t, RunState next, u64 time, u32 ring) {
  t.now = next;
  t.since = time;
  t.ring = ring;
  t.losses = static_cast<u32>(losses_of(t).size());
}

// The thread that had this number has ended, and is kept under another key.
States::Thread& States::begin_life(u64 key) {
  Thread gone = std::exchange(threads_.at({key, 0}), Thread{});
  threads_.at({key, ++lives_}) = std::move(gone);
  Thread& t = threads_.at({key, 0});
  t.count = 1;
  return t;
}

void States::miss(u64 key) {
  if (key == 0) return;
  Thread& t = thread(key);
  ++t.unseen;
  t.now = unknown;
}

void States::lose(Ring& ring, u64 begin, u64 end) {
  losses_.push_back(begin);
  ring.losses.push_back(begin);
  ring.running = nobody;
  ring.begin = end;
  if (ring.now != cpu_unknown && begin > ring.since) ring.all[ring.now].cut(begin - ring.since);
  ring.now = ring.base = cpu_unknown;
  ring.since = end;
  ring.unknown_ns = 0;
  ring.depth = 0;
}

// Nobody recorded the time before it: what lasted at the end of the other run has no known end.
void States::begin_run(u32 run) {
  run_ = run;
  for (Ring& ring : rings_) {
    if (!ring.seen_kernel) continue;
    lose(ring, ring.last, ring.last);
    ++pauses_;
  }
}

void States::change_cpu(Ring& ring, u32 next, u64 time) {
  if (ring.now == next) return;
  const u64 ns = time > ring.since ? time - ring.since : 0;
  if (ring.now == cpu_unknown)
    ring.unknown_ns += ns;
  else
    ring.all[ring.now].add(ns);
  ring.now = next;
  ring.since = time;
}

void States::run_cpu(Ring& ring, bool was_idle, bool is_idle, u64 time) {
  const bool first = ring.base == cpu_unknown;
  ring.base = is_idle ? idle : busy;
  ring.depth = 0;  // nothing is switched in an interrupt: its exit is missing
  change_cpu(ring, ring.base, time);
  if (first && ring.unknown_ns != 0) ring.all[was_idle ? idle : busy].cut(std::exchange(ring.unknown_ns, 0));
}

void States::run(const TraceRecord& record, const RingName& name, const Kind& kind, Ring& ring) {
  ++switches_;
  const auto prev = static_cast<i32>(kind.from(record.payload)), next = static_cast<i32>(kind.to(record.payload));
  const u64 left = prev > 0 ? static_cast<u64>(tasks_.key(prev, name)) : 0;
  const u64 to = next > 0 ? static_cast<u64>(tasks_.key(next, name)) : 0;
  const bool first = ring.running == nobody, unseen = !first && ring.running != left;
  const u64 expected = std::exchange(ring.running, to);
  unseen_ += unseen;
  if (of_ == of_cpus) return run_cpu(ring, left == 0, to == 0, record.time);
  if (unseen) [[unlikely]]
    miss(expected), miss(left);
  // What the second one of the two needs is on its way while the first one is looked at.
  if (const Thread* const next_one = threads_.known({to, 0})) __builtin_prefetch(&next_one->all[next_one->now]);
  if (left != 0) {
    Thread& t = thread(left);
    ++t.switches;
    if (t.now == running && t.ring != record.source && t.losses == losses_of(t).size()) [[unlikely]] {
      ++backward_;  // it runs on another CPU already
    } else {
      if (t.now == running || t.losses < losses_of(t).size()) end(t, record.time);
      if (first && record.time > ring.begin) ++t.before, t.before_ns += record.time - ring.begin;
      const i64 state = kind.state(record.payload);
      begin(t, state_after(state), record.time, record.source);
      if (has_ended(state)) [[unlikely]] {
        const Task* const task = tasks_.find(static_cast<Tasks::Key>(left));
        t.was = std::make_unique<Task>(task != nullptr ? *task : Task{prev, prev, "<...>", "<...>"});
      }
    }
  }
  if (to != 0) {
    Thread& t = thread(to);
    ++t.switches;
    if (t.now == running && t.losses == losses_of(t).size()) [[unlikely]]
      ++backward_, t.now = unknown;
    end(t, record.time);
    begin(t, running, record.time, record.source);
  }
}

void States::take(const TraceRecord& record, const RingName& name) {
  if (!name.kernel) return;
  if (tasks_.several_runs()) [[unlikely]] {
    if (const u32 run = tasks_.run(name.numbering); run != run_) begin_run(run);
  }
  if (record.source >= rings_.size()) [[unlikely]]
    rings_.resize(record.source + 1);
  Ring& ring = rings_[record.source];
  if (!ring.seen_kernel) [[unlikely]] {
    ring.seen_kernel = true;
    ring.begin = ring.since = ring.last = record.time;
  }
  const u64 last = std::exchange(ring.last, record.time);
  if (record.lost != 0) [[unlikely]]
    return lose(ring, std::min(last, record.time), record.time);
  Kind& kind = kinds_.at(record.number(), formats_.version());
  if (kind.is == Kind::not_read) [[unlikely]]
    find(record.number(), kind);
  switch (kind.is) {
    case Kind::run:
      return run(record, name, kind, ring);
    case Kind::wake: {
      ++wake_ups_;
      const auto tid = static_cast<i32>(kind.from(record.payload));
      if (tid <= 0 || of_ == of_cpus) return;
      Thread& t = thread(static_cast<u64>(tasks_.key(tid, name)));
      if (t.losses < losses_of(t).size()) end(t, record.time);
      // A thread that runs on was woken before it slept; the second event of a wake-up says nothing new.
      if (t.now == running || t.now == runnable || t.now == preempted) return;
      end(t, record.time);
      return begin(t, runnable, record.time, record.source);
    }
    case Kind::enter:
      ++interrupts_seen_;
      ++ring.depth;
      return change_cpu(ring, interrupts, record.time);
    case Kind::leave:
      if (ring.depth != 0 && --ring.depth == 0) change_cpu(ring, ring.base, record.time);
      return;
    default:
      return;
  }
}

}  // namespace ringside
