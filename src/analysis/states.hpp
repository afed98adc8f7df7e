// How long each thread ran, could run, waited and slept; or how long each CPU was busy, idle and in interrupts. From the
// kernel's sched_switch, sched_waking and sched_wakeup, and the entries and exits of interrupts, if they are there.
//
//   auto states = States::make(States::of_threads, 100'000, formats, tasks);
//   states->take(record, ring);          // every record in its order, losses too
//   states->each(last_ns, [](u64 key, const States::Times& times) { ... });
//
// A state whose beginning and end are in the trace is whole: counted, added up, longest and quantile. One that the trace's
// beginning, its end or a loss cuts has only a part here: it is counted and added up apart. Where a loss may have taken an
// event of a thread, its state is unknown until its next event: a running thread is shown by its own CPU's ring, all others by
// any. Where a CPU's switches do not follow each other, one is missing: the states of the two threads are unknown there. A
// trace with the switches of some threads only has many such places, and threads that are seen in part: those are left out.
// A thread that ended and a later one of the same number are two.
// Thread-safety: none.
#pragma once
#include <array>
#include <memory>
#include <ringside/log_buckets.hpp>
#include <vector>

#include "analysis/integer_at.hpp"
#include "analysis/key_table.hpp"
#include "analysis/run_state.hpp"
#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class States {
 public:
  enum Of : u8 { of_threads, of_cpus };
  using enum RunStates::State;
  // Of a CPU. In an interrupt it is neither busy nor idle.
  enum Cpu : u32 { cpu_unknown, busy, idle, interrupts };
  static constexpr u32 kinds = 7;  // RunState; a CPU has fewer

  // The times of one state. The newest ones wait side by side until they are many enough to be added up together: so a
  // switch writes one cache line here, and not one of the histogram's. Aligned, so that it is one.
  class alignas(64) Times {
   public:
    void add(u64 ns) {
      if (waiting_ == few) [[unlikely]]
        add_up();
      if (waiting_ == values_.size()) [[unlikely]]
        values_.push_back(ns);
      else
        values_[waiting_] = ns;
      ++waiting_;
    }
    void cut(u64 ns, u64 times = 1) { cuts_ += static_cast<u32>(times), cut_ns_ += ns; }
    void merge(const Times& other);
    u64 count() const { return added_up_ + waiting_; }
    u64 total() const;
    u64 longest() const;
    u64 cuts() const { return cuts_; }
    u64 cut_ns() const { return cut_ns_; }
    u64 known() const { return total() + cut_ns_; }
    double p99() const;  // exact up to `few` values, then within 1.6 %

   private:
    static constexpr size_t few = 32;
    static constexpr LogBuckets buckets{5};
    void add_up();                                             // those that wait
    void make_room(u32 lowest, u32 highest);                   // for these buckets
    u64 added_up_ = 0, total_ = 0, longest_ = 0, cut_ns_ = 0;  // total, longest: of those that are added up
    u32 cuts_ = 0;
    u16 waiting_ = 0, first_ = 0;  // first_: the first of the buckets
    // Those that wait. Once there are more than `few`, at `few` and beyond, how many are in each bucket: most threads live
    // shortly.
    std::vector<u64> values_;
  };
  using All = std::array<Times, kinds>;
  struct Life {
    u64 n = 0;                  // several threads had this number: another one for each
    const Task* was = nullptr;  // its names when it ended; null: it did not
  };

  // Errors: the trace has no sched_switch.
  static result<States> make(Of of, size_t most_threads, const Formats& formats, const Tasks& tasks);

  void take(const TraceRecord& record, const RingName& ring);

  // use(key, states, life): all that are known, with the parts of those that last on at `last_ns`. Threads by Tasks::Key, CPUs
  // by their ring. life: of a thread.
  template <class Use>
  void each(u64 last_ns, const Use& use) const {
    if (of_ == of_cpus) {
      for (u32 n = 0; n < rings_.size(); ++n) {
        if (rings_[n].seen_kernel) use(u64{n}, with_open(rings_[n].all, rings_[n].now, rings_[n].since, last_ns), Life{});
      }
      return;
    }
    threads_.each([&](const KeyWords& key, const Thread& t) {
      if (t.in_part()) return;
      All all = with_open(t.all, t.now, t.since, end_of(t, last_ns));
      if (unseen_ == 0) all[RunStates::running].cut(t.before_ns, t.before);
      use(key[0], all, Life{key[1], t.was.get()});
    });
  }

  u64 switches() const { return switches_; }
  u64 wake_ups() const { return wake_ups_; }
  u64 interrupts_seen() const { return interrupts_seen_; }
  u64 losses() const { return losses_.size() - pauses_; }
  u64 backward() const { return backward_; }  // events that are older than those before them
  u64 threads_in_part() const {
    u64 n = 0;
    threads_.each([&](const KeyWords&, const Thread& t) { n += t.in_part(); });
    return n;
  }
  u64 unseen() const { return unseen_; }  // places where a switch is missing, and no loss
  KeyTable<u64>::Evicted evicted() const { return {threads_.evicted().keys, threads_.evicted().count}; }

 private:
  static constexpr u64 nobody = ~u64{0};
  struct Kind {
    enum : u8 { not_read, other, run, wake, enter, leave } is = not_read;
    IntegerAt from, state, to;  // of run; of wake: `from` is its thread
  };
  struct Thread {
    u64 count = 0;                 // of events
    std::unique_ptr<Task> was{};   // as Life has it
    u32 switches = 0, unseen = 0;  // to it and from it; those that are missing
    bool in_part() const { return unseen * 10 > switches; }
    RunState now = RunStates::unknown;
    u32 ring = 0, losses = 0;  // those before it began
    u64 since = 0;
    u64 before = 0, before_ns = 0;  // it ran already when its CPU's ring began, or went on after a loss
    All all{};
  };
  struct Ring {
    bool seen_kernel = false;
    u64 last = 0;               // its last record
    u64 begin = 0;              // of what is known: its first one, the end of a loss
    u64 running = nobody;       // the thread that was switched to; nobody: not known
    std::vector<u64> losses{};  // where they begin
    u32 depth = 0;              // of interrupts
    u32 base = cpu_unknown, now = cpu_unknown;
    u64 since = 0;
    u64 unknown_ns = 0;  // without interrupts; the next switch shows if it was busy
    All all{};
  };

  States(Of of, size_t most, const Formats& formats, const Tasks& tasks)
      : of_(of), formats_(formats), tasks_(tasks), threads_(most) {}
  void find(u32 id, Kind& kind) const;
  void lose(Ring& ring, u64 begin, u64 end);
  void begin_run(u32 run);
  void run(const TraceRecord& record, const RingName& name, const Kind& kind, Ring& ring);
  void run_cpu(Ring& ring, bool was_idle, bool is_idle, u64 time);
  void change_cpu(Ring& ring, u32 next, u64 time);
  void miss(u64 key);
  Thread& thread(u64 key) {
    Thread& t = threads_.at({key, 0});
    if (t.was != nullptr) [[unlikely]]
      return begin_life(key);
    ++t.count;
    return t;
  }
  Thread& begin_life(u64 key);
  const std::vector<u64>& losses_of(const Thread& t) const {
    return t.now == RunStates::running ? rings_[t.ring].losses : losses_;
  }
  u64 end_of(const Thread& t, u64 time) const {
    const auto& losses = losses_of(t);
    return t.losses < losses.size() ? std::max(t.since, losses[t.losses]) : time;
  }
  static All with_open(const All& all, u32 now, u64 since, u64 until);
  void end(Thread& t, u64 time);
  void begin(Thread& t, RunState next, u64 time, u32 ring);

  Of of_;
  const Formats& formats_;
  const Tasks& tasks_;
  IdTable<Kind> kinds_;
  KeyTable<Thread> threads_;
  std::vector<Ring> rings_;
  std::vector<u64> losses_;  // of any ring; so are the ends of a run, where another one begins later
  u64 pauses_ = 0;           // these ends
  u64 lives_ = 0;            // of threads whose number another one has now
  u32 run_ = 0;              // Tasks::run() of the last event
  u64 switches_ = 0, wake_ups_ = 0, interrupts_seen_ = 0, backward_ = 0, unseen_ = 0;
};

}  // namespace ringside
