// An event in a thread's ring that a signal handler leaves by siglongjmp, at each of its instructions.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/trace.hpp>
#include <set>
#include <thread>
#include <utility>

#include "instance/instance.hpp"
#include "own_root.hpp"
#include "ring_memory.hpp"
#include "sys/side_stack.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/step_by_step.hpp"

#if RS_TEST_STEPS
#include "writer/process.hpp"
#include "writer/stack.hpp"

RINGSIDE_EVENT(left, number, (u64, n));

namespace ringside::test::left_event_test {
namespace {

[[gnu::noinline]] void stepped_event() {
  stopped = false;
  go_step_by_step(true);
  ::left::number(1);
  go_step_by_step(false);
}

struct LeftEvent : testing::TestWithParam<bool> {
  LeftEvent() { renew(); }
  ~LeftEvent() override { ringside_close(); }

  // An instance without rings, and this thread attached to it.
  void renew() {
    InstanceOptions o;
    o.name = "a" + std::to_string(++instances_);
    o.buffer_size = 64 << 10;
    o.overwrite = GetParam();
    o.rings = Rings::thread;
    instance = must(Instance::create(o));
    open();
    ::left::number(0);
  }
  void open() {
    ringside_close();
    ASSERT_EQ(ringside_open(("a" + std::to_string(instances_)).c_str()), 0);
  }
  // All events that anybody tried to write: published, refused by a ring, or refused without one.
  u64 accounted() {
    u64 sum = instance->refused();
    for (const RingInfo& r : instance->rings()) sum += r.counters.written + r.counters.dropped + r.counters.commit_overrun;
    return sum;
  }
  // Writes an event, and leaves it at this step.
  static void leave_at(int step) {
    at_the_step = [](ucontext_t&) { siglongjmp(back, 1); };
    steps_to_go = step;
    if (sigsetjmp(back, 1) == 0) stepped_event();
  }
  // Writes two events, and this action comes in the second one, this number of steps before its end.
  static void act_before_the_end(int steps, void (*action)(ucontext_t&)) {
    steps_to_go = 0;
    stepped_event();
    at_the_step = action;
    steps_to_go = -steps_to_go - steps;
    stepped_event();
    steps_to_go =
        0;  // it was shorter than the first one, which had a long pause in it: then the action comes in no later one either
  }
  // A handler comes at this step, and its own event is left by another one, which goes back to it. events: how many are tried,
  // this one included; 1: it did not come.
  struct Left {
    int before_its_end;
    bool inside = false;        // the other one leaves an event of its own, too
    bool then_another = false;  // the first one goes on with another event
  };
  static u64 interrupt_at(int step, const Left& plan) {
    static Left left;
    static u64 events;
    left = plan;
    events = 1;
    at_the_step = [](ucontext_t& context) {
      clear_trap(context);
      ::left::number(3);  // now there is a ring at this depth
      events += 3;
      if (sigsetjmp(inner_back, 1) == 0)
        act_before_the_end(left.before_its_end, [](ucontext_t& inside) {
          if (!left.inside) siglongjmp(inner_back, 1);
          clear_trap(inside);
          ::left::number(3);
          events += 3;
          act_before_the_end(left.before_its_end, [](ucontext_t&) { siglongjmp(inner_back, 1); });
        });
      steps_to_go = 0;  // where a pause made the event before it longer, nobody has left it, and nobody must leave a later one
      if (!left.then_another) return;
      ::left::number(3);
      ++events;
    };
    steps_to_go = step;
    stepped_event();
    return events;
  }
  static int steps_of_an_event() {
    steps_to_go = 0;
    stepped_event();
    return -steps_to_go;
  }
  // An event behind a pause has more: it looks at the clock again.
  static int steps_of_most_events() {
    int least = steps_of_an_event();
    for (int more = 0; more < 4; ++more) least = std::min(least, steps_of_an_event());
    return least;
  }
  u64 counted(const std::function<void()>& act) {
    const u64 before = accounted();
    act();
    ::left::number(2);
    return accounted() - before - 1;
  }

  OwnRoot root{true};
  std::unique_ptr<Instance> instance;

 private:
  const Traps traps_;
  int instances_ = 0;
};

// "A handler leaves behind the commit, and the ring stays: the next event that is left vanishes from the books."
TEST_P(LeftEvent, IsCountedOnceAtEachInstruction) {
  const int steps = steps_of_most_events(), middle = steps / 2;
  ASSERT_GT(steps, 50);
  u64 noted = 0;
  for (int step = GetParam() ? 1 : 4; step <= steps; step += step < middle && step + 7 > middle ? middle - step : 7) {
    SCOPED_TRACE(std::to_string(step) + " of " + std::to_string(steps));
    // Left before it has noted itself, it is not known to have been tried; from then on it is.
    const u64 one = counted([&] { leave_at(step); });
    ASSERT_LE(noted, one);
    ASSERT_LE(one, 1u);
    noted = one;
    if (step == middle) {
      ASSERT_EQ(one, 1u);
    }
    ASSERT_EQ(counted([&] {
                leave_at(step);
                ::left::number(3);
                leave_at(middle);
              }),
              one + 2);
    u64 tried = 0;
    const u64 all = counted([&] { tried = interrupt_at(step, {steps - middle}); });
    ASSERT_EQ(all, tried);
  }
}

// "A handler that came while the call began or ended, and came back: what was left inside of it was counted twice, or never,
// and the ring of that was not given up."
TEST_P(LeftEvent, IsCountedOnceInsideOfAHandlerThatComesBack) {
  const int steps = steps_of_most_events(), half = steps / 2;
  const Left left = GetParam() ? Left{half, false, true} : Left{half, true, false};
  for (int step = 1; step <= steps; step += 3) {
    if (step % 16 == 0) renew();  // a ring stays for each event that was left
    u64 tried = 0;
    const u64 all = counted([&] { tried = interrupt_at(step, left); });
    ASSERT_EQ(all, tried) << step << " of " << steps;
  }
}

// "A reset takes the ring's counts back, and what is left afterwards is published and counted as refused."
TEST_P(LeftEvent, IsCountedOnceBehindAReset) {
  ASSERT_TRUE(instance->reset());
  const int steps = steps_of_an_event();  // more than those of the events behind it
  int tried = 0;
  for (int step = steps; step > 0; --step, ++tried) {
    for (u64 n = 0; n < 5; ++n) ::left::number(n);
    if (!instance->reset()) break;  // the one before was left in the middle
    ASSERT_EQ(counted([&] { leave_at(step); }), 1u) << step << " of " << steps;
  }
  EXPECT_GT(tried, 20);
}

// "The note of an event was gone while its thread took a ring: left there, it was not counted."
TEST_P(LeftEvent, IsCountedOnceWhileItsThreadAttaches) {
  const std::function<void()> detaching[] = {
      [&] { open(); },
      [&, small = false]() mutable {
        small = !small;
        ASSERT_TRUE(instance->resize(small ? 32 << 10 : 64 << 10, 4096));
      },
  };
  for (const auto& detach : detaching) {
    detach();
    const int steps = steps_of_an_event();
    ASSERT_GT(steps, 100);
    u64 noted = 0;
    for (int step = 1; step <= steps; step += 29) {
      SCOPED_TRACE(std::to_string(step) + " of " + std::to_string(steps));
      renew();  // a ring stays for each event that was left
      detach();
      const u64 one = counted([&] { leave_at(step); });
      ASSERT_LE(noted, one);
      ASSERT_LE(one, 1u);
      noted = one;
      if (one == 0) {  // it had not noted itself yet, which it does before it attaches
        ASSERT_LT(step, steps / 4);
        continue;
      }
      detach();
      u64 tried = 0;
      const u64 all = counted([&] { tried = interrupt_at(step, {30}); });
      ASSERT_EQ(all, tried);
    }
  }
}

// "A live event is judged as left, counted twice, and a ring retired each time": the kernel disarms the handler's stack, which
// lies above the thread's, so addresses alone say that the thread's event was left.
TEST_P(LeftEvent, IsOpenWhileAHandlerRunsOnAStackThatDisarms) {
  const Traps traps(SA_ONSTACK);
  static int steps;
  static u64 tried;
  static bool hidden;  // "A live event is counted as left" where code without tables hides it from the handler
  const bool can = with_a_stack_that_disarms([] {
    static void (*const inner)() = [] { ::left::number(3); };
    at_the_step = [](ucontext_t&) {
      ++tried;
      hidden ? ringside_without_tables(inner) : inner();
    };
    steps_to_go = 0;
    stepped_event();  // attaches
    steps = steps_of_an_event();
    tried = 3;
    for (const bool one : {false, true}) {
      hidden = one;
      for (int step = 1; step <= steps; ++step) {
        steps_to_go = step;
        stepped_event();
        ++tried;
      }
    }
  });
  if (!can) GTEST_SKIP() << "this kernel does not disarm alternate stacks (before 4.7)";
  ASSERT_GT(steps, 100);
  EXPECT_GT(tried, 500u);
  EXPECT_EQ(accounted(), tried);
  EXPECT_LE(instance->rings().size(), 3u);
}

// "The cost of each later event": one that was left deep, under callers without tables, is counted all the same, before its
// thread ends and while no other code has its stack.
TEST_P(LeftEvent, OneThatNoWalkFindsIsCountedAfterSomeOthers) {
  static u64 before, at_once, later;
  static LeftEvent* self;
  self = this;
  const Traps traps;
  ringside_without_tables(+[] {
    struct Deep {
      [[gnu::noinline]] static void leave(int depth, int step) {
        char room[1000];
        asm volatile("" ::"r"(room) : "memory");
        depth != 0 ? leave(depth - 1, step) : leave_at(step);
        asm volatile("" ::"r"(room) : "memory");
      }
    };
    const int steps = steps_of_most_events();
    before = self->accounted();
    Deep::leave(20, steps / 2);
    at_once = self->instance->refused();
    for (u32 n = 0; n < 2 * most_undecided; ++n) ::left::number(n);
    later = self->instance->refused();
  });
  EXPECT_EQ(at_once, 0u);
  EXPECT_EQ(later, 1u);
  EXPECT_EQ(accounted(), before + 1 + 2 * most_undecided);
}

// "maps_begun stays set": of all later events each would write its stack again.
TEST_P(LeftEvent, OneThatIsLeftWhileCodeMapsBeginLeavesTheNextToBeginThem) {
  const auto take_a_stack = [](bool stepped) {
    From from;
    RS_HERE(from.at);
    from.exact = true;
    go_step_by_step(stepped);
    const u64 id = stack_of(from);
    go_step_by_step(false);
    return id;
  };
  InstanceOptions o;
  o.name = "stacks";
  o.buffer_size = 8 << 20;
  o.rings = Rings::thread;
  instance = must(Instance::create(o));
  must(instance->stacks(must(EventPatterns::parse("left:number")), usual_depth));
  ringside_close();
  ASSERT_EQ(ringside_open("stacks"), 0);
  ::left::number(0);
  static volatile int times = 2;  // so that all are one call
  const auto written_by_the_last = [&] {
    u64 before = 0;
    for (int n = 0; n < times; ++n) {
      before = accounted();
      take_a_stack(false);
    }
    return accounted() - before;
  };
  const auto forget_all = [] {
    forget_code_maps();
    ++opened_now()->words.control->stacks_again;
  };
  forget_all();
  steps_to_go = 0;
  stopped = false;
  EXPECT_NE(take_a_stack(true), 0u);
  const int steps = -steps_to_go;  // most of them write the maps behind the first one
  ASSERT_GT(steps, 10000);
  for (int step = 1; step < 9000; step += 151) {
    forget_all();
    at_the_step = [](ucontext_t&) { siglongjmp(back, 1); };
    stopped = false;
    steps_to_go = step;
    if (sigsetjmp(back, 1) == 0) take_a_stack(true);
    steps_to_go = 0;
    ASSERT_EQ(written_by_the_last(), 0u) << step << " of " << steps;
  }
}

TEST_P(LeftEvent, IsCountedOnceWhereNoRingIsAvailable) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  open();
  setrlimit(RLIMIT_NOFILE, &none);
  const auto counted_now = [&] { return instance->refused(); };
  const int steps = steps_of_an_event();
  u64 noted = 0;
  for (int i = 0; i < 2 * steps; i += 3) {
    const u64 at_first = counted_now();
    leave_at(i % steps + 1);
    ::left::number(2);
    const u64 one = counted_now() - at_first - 1;
    if (i % steps < 3) noted = 0;
    EXPECT_LE(noted, one) << i % steps + 1 << " of " << steps;
    EXPECT_LE(one, 1u) << i % steps + 1 << " of " << steps;
    noted = one;
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(noted, 1u);
}

// "The child of a fork without handlers counted it, too."
TEST_P(LeftEvent, IsCountedByTheParentOfAFork) {
  const int steps = steps_of_most_events();
  for (pid_t (*const forked)() : {fork, _Fork})
    for (const int step : {steps / 2, steps - 10}) {
      ASSERT_EQ(counted([&] {
                  leave_at(step);
                  const pid_t child = forked();
                  if (child == 0) {
                    ::left::number(3);
                    _exit(0);
                  }
                  waitpid(child, nullptr, 0);
                }),
                2u);
    }
}

// "A child of a fork without handlers, whose thread ended or which closed the instance before it wrote, retired its parent's
// ring."
TEST_P(LeftEvent, AChildThatWritesNothingLeavesItsParentsRing) {
  for (const bool closes : {false, true}) {
    std::thread([&] {
      ::left::number(3);
      const auto live = [&] {
        const auto rings = instance->rings();
        return std::count_if(rings.begin(), rings.end(), [](const RingInfo& r) { return r.live; });
      };
      const auto before = live();
      const pid_t child = _Fork();
      if (child == 0) {
        if (closes) {
          ringside_close();
          _exit(0);
        }
        std::atexit([] { _exit(0); });
        pthread_exit(nullptr);
      }
      waitpid(child, nullptr, 0);
      EXPECT_EQ(live(), before) << (closes ? "close" : "end");
    }).join();
  }
}

// "A program that was killed in the middle of an event: its instance could not be reset, nor a snapshot be taken."
TEST_P(LeftEvent, TheRingOfAThreadThatDiedInOneIsTakenOutAndReset) {
  const int steps = steps_of_most_events();
  for (const bool takes_out : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      ::left::number(3);
      at_the_step = [](ucontext_t&) { _exit(0); };
      steps_to_go = steps / 2;
      stepped_event();
      _exit(1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    if (takes_out) {
      const auto taken = instance->snapshot();
      ASSERT_TRUE(taken) << taken.error().sentence;
    } else {
      const auto done = instance->reset();
      ASSERT_TRUE(done) << done.error().sentence;
    }
    EXPECT_EQ(accounted(), 0u);
    EXPECT_EQ(counted([] { ::left::number(3); }), 1u);
  }
}

// A child of vfork, which ends in the middle of its second event, or while it attaches for the first.
void child_ends_at(int step, bool in_second) {
  at_the_step = [](ucontext_t&) { _exit(0); };
  const pid_t child = vfork();
  if (child == 0) {
    if (in_second) ::left::number(3);
    steps_to_go = step;
    stepped_event();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

// "A child of vfork noted its events over those of its parent."
TEST_P(LeftEvent, IsCountedOnceAroundAVfork) {
  static int ends_at, steps;
  steps = steps_of_most_events();
  for (const int step : {steps / 2, steps - 25})
    for (ends_at = steps / 2; ends_at < steps; ends_at += 23) {
      SCOPED_TRACE(std::to_string(step) + ", " + std::to_string(ends_at) + " of " + std::to_string(steps));
      const auto around = [&](bool leaves) {
        static bool then_leaves;
        then_leaves = leaves;
        at_the_step = [](ucontext_t& context) {
          context.uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(trap_flag);
          child_ends_at(ends_at, true);
          if (then_leaves) siglongjmp(back, 1);
        };
        steps_to_go = step;
        if (sigsetjmp(back, 1) == 0) stepped_event();
      };
      ASSERT_EQ(counted([&] { around(false); }), 3u);
      ASSERT_EQ(counted([&] { around(true); }), 3u);
    }
}

// Where a step runs that takes much stack.
const void* side_stack() {
  const void* at = nullptr;
  EXPECT_TRUE(sys::on_side_stack([&]() noexcept { at = __builtin_frame_address(0); }));
  return at;
}

// "After a child of vfork that was killed while it took a ring, its parent's thread was refused for ever."
TEST_P(LeftEvent, AChildOfVforkThatEndsWhileItAttachesLeavesNothing) {
  steps_without_signals = true;
  bool completed = false;
  const void* const stack = side_stack();
  for (int step = 1000; step < 60'000 && !completed; step += 400) {
    child_ends_at(step, false);
    EXPECT_EQ(side_stack(), stack) << step << ": the child's stays in use";
    int state = PTHREAD_CANCEL_DISABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    EXPECT_EQ(state, PTHREAD_CANCEL_ENABLE) << step;
    const u64 refused = instance->refused();
    open();
    EXPECT_EQ(counted([] { ::left::number(3); }), 1u) << step;
    EXPECT_EQ(instance->refused(), refused) << step;
    ASSERT_TRUE(instance->reset());  // what is read is taken again
    EXPECT_LE(instance->control().nr_rings, 3u) << step << ": a ring is lost with each child";
    completed = steps_to_go > 0;
  }
  steps_without_signals = false;
  EXPECT_TRUE(completed) << "the last child came to its end";
}

// "The next events went to the ring of the child, with the child's number; the thread could never be cancelled again; and the
// next child shared the rings of its parent."
TEST_P(LeftEvent, AVforkThatAHandlerLeavesEndsThere) {
  struct sigaction action {}, before {};
  action.sa_handler = [](int) { siglongjmp(back, 1); };
  sigaction(SIGUSR1, &action, &before);
  const int steps = steps_of_most_events();
  const i32 tid = detail::this_thread.tid;
  for (int i = 0; i < 2; ++i) {
    const u64 all = counted([&] {
      if (sigsetjmp(back, 1) == 0) {
        if (vfork() == 0) {
          ::left::number(3);
          kill(getppid(), SIGUSR1);  // comes when the parent goes on
          _exit(0);
        }
        ADD_FAILURE() << "the handler comes first";
      }
      int state = PTHREAD_CANCEL_DISABLE;
      pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
      EXPECT_EQ(state, PTHREAD_CANCEL_ENABLE);
      while (waitpid(-1, nullptr, 0) > 0) {
      }
      if (i == 1) child_ends_at(steps / 2, true);
    });
    EXPECT_EQ(all, i == 1 ? 3u : 1u);
    EXPECT_EQ(detail::this_thread.borrowed, 0u);
    EXPECT_EQ(detail::this_thread.tid, tid);
  }
  sigaction(SIGUSR1, &before, nullptr);
}

// "Left before there was a child, the next events went to other rings, and a later vfork took back rings that were gone."
TEST_P(LeftEvent, AHandlerLeavesVforkAtEachInstruction) {
  static pid_t parent;
  static bool was_left, had_child;
  parent = getpid();
  const i32 tid = detail::this_thread.tid;
  int step = 0, before_the_child = 0, behind_it = 0;
  do {
    SCOPED_TRACE(++step);
    was_left = true;
    had_child = false;
    at_the_step = [](ucontext_t&) {
      if (getpid() == parent) siglongjmp(back, 1);
    };
    steps_to_go = step;
    const u64 all = counted([] {
      if (sigsetjmp(back, 1) != 0) return;
      go_step_by_step(true);
      if (vfork() == 0) {
        go_step_by_step(false);
        had_child = true;
        ::left::number(3);
        goes_on_when_signals_are_on = true;  // in the parent
        _exit(0);
      }
      go_step_by_step(false);
      was_left = false;
    });
    ASSERT_EQ(all, had_child ? 1u : 0u);
    ASSERT_EQ(detail::this_thread.borrowed, 0u);
    ASSERT_EQ(detail::this_thread.tid, tid);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    if (was_left) ++(had_child ? behind_it : before_the_child);
  } while (was_left || steps_to_go <= 0);
  EXPECT_GT(before_the_child, 10);
  EXPECT_GT(behind_it, 5);
}

// A thread's first event on rings of CPUs, and a handler at each instruction until the thread is attached.
struct FirstEvent : testing::Test {
  using Written = std::map<i32, std::multiset<u64>>;  // numbers, by thread
  OwnRoot root{true};
  std::unique_ptr<Instance> instance;
  const Traps traps;
  void SetUp() override {
    if (why_not_cpu_rings() != RingsBecause::can)
      GTEST_SKIP() << "no rings of CPUs here, " << to_string(why_not_cpu_rings());
    InstanceOptions o;
    o.name = "a";
    o.rings = Rings::cpu;
    instance = must(Instance::create(o));
    if (!opens) return;
    ASSERT_EQ(ringside_open("a"), 0);
    ::left::number(0);
    read();
  }
  void TearDown() override { ringside_close(); }
  bool opens = true;
  Written read() {
    Written all;
    for (const RingInfo& r : instance->rings()) {
      auto source = must(instance->source(r.name.ring));
      while (auto view = must(source->next())) {
        EXPECT_EQ(view->lost_before, 0u);
        abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
        while (c.next()) {
          u64 n;
          i32 tid;
          std::memcpy(&n, c.payload().data + 8, 8);
          std::memcpy(&tid, c.payload().data + 4, 4);
          all[tid].insert(n);
        }
      }
    }
    return all;
  }
  // For each step this action, in a new thread, which then writes event 4; expected: what is written, of this thread and of the
  // child.
  void at_each_step(void (*action)(ucontext_t&), const std::multiset<u64>& expected, const std::multiset<u64>& of_child = {}) {
    static bool attached;
    static void (*act)(ucontext_t&);
    act = action;
    int step = 1;
    for (attached = false; !attached && step < 3000; ++step) {
      at_the_step = [](ucontext_t& context) {
        stop_stepping(context);
        attached = detail::this_thread.on_cpus();
        if (!attached) act(context);
      };
      i32 tid = 0;
      child = 0;
      std::thread([&] {
        tid = gettid();
        steps_to_go = step;
        if (sigsetjmp(back, 1) == 0) stepped_event();
        ::left::number(4);
        if (child == getpid()) _exit(0);
      }).join();
      if (child != 0) waitpid(child, nullptr, 0);
      Written wanted{{tid, attached ? std::multiset<u64>{1, 4} : expected}};
      if (!attached && !of_child.empty()) wanted[child] = of_child;
      ASSERT_EQ(read(), wanted) << step;
      const auto threads = instance->threads();
      for (const RingName& t : threads) ASSERT_TRUE(t.tid != child || t.pid == child) << step;
      for (const auto& [thread, numbers] : wanted)
        ASSERT_TRUE(std::any_of(threads.begin(), threads.end(), [&, id = thread](const RingName& t) {
          return t.tid == id && t.pid == (id == tid ? getpid() : id);
        })) << step;
    }
    EXPECT_TRUE(attached);
    EXPECT_GT(step, 100);
  }
  inline static pid_t child = 0;
};

TEST_F(FirstEvent, AHandlerWritesOneOfItsOwn) {
  at_each_step([](ucontext_t&) { ::left::number(3); }, {1, 3, 4});
}
TEST_F(FirstEvent, AHandlerLeavesIt) {
  at_each_step([](ucontext_t&) { siglongjmp(back, 1); }, {4});
  at_each_step([](ucontext_t&) { ::left::number(3), siglongjmp(back, 1); }, {3, 4});
}
// The second one finds the thread attached by the first one.
TEST_F(FirstEvent, AHandlerLeavesItAfterAnotherOneHasWritten) {
  at_each_step([](ucontext_t& context) {
    ::left::number(3);
    at_the_step = [](ucontext_t&) { siglongjmp(back, 1); };
    steps_to_go = 6;
    stopped = false;
    context.uc_mcontext.gregs[REG_EFL] |= static_cast<greg_t>(trap_flag);
  }, {3, 4});
}
// No entry with the TID of a child and the PID of its parent is left where the child ends before it attaches.
TEST_F(FirstEvent, AHandlerForksAndTheChildEndsBeforeItAttaches) {
  at_each_step([](ucontext_t&) {
    const pid_t made = _Fork();
    child = made != 0 ? made : getpid();
    if (made == 0) ends_without_signals = child;
  }, {1, 4});
}
// Each instruction has one of the ways in turn, another one in each run; all of them where the stress tests run a minute or
// more.
TEST_F(FirstEvent, AHandlerForks) {
  static pid_t (*const ways[])() = {[] { return fork(); }, [] { return _Fork(); },
                                    [] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }};
  static size_t turn, stride;
  const bool all = test_seconds(6) >= 60;
  stride = all ? 0 : 1;
  const auto first = static_cast<size_t>(getpid());
  for (size_t way = 0; way < (all ? std::size(ways) : 1); ++way) {
    SCOPED_TRACE(first + way);
    turn = first + way;
    at_each_step(
        [](ucontext_t&) {
          const pid_t made = ways[std::exchange(turn, turn + stride) % std::size(ways)]();
          child = made != 0 ? made : getpid();
          if (made == 0) ::left::number(3);
        },
        {1, 4}, {1, 3, 4});
    turn = first + way;
    at_each_step(
        [](ucontext_t&) {
          const pid_t made = ways[std::exchange(turn, turn + stride) % std::size(ways)]();
          child = made != 0 ? made : getpid();
        },
        {1, 4}, {1, 4});
  }
}

// The C library has noted another TID for the main thread than for the one that opens the instance.
struct FirstOpen : FirstEvent {
  FirstOpen() { opens = false; }
};
TEST_F(FirstOpen, IsInAnotherThreadOfAChildOfARawClone) {
  const auto made = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (made == 0) {
    std::thread([] { ringside_open("a"); }).join();
    ::left::number(1);
    ::left::number(2);
    _exit(0);
  }
  waitpid(made, nullptr, 0);
  EXPECT_EQ(read(), (Written{{made, {1, 2}}}));
}

// To a process in a PID namespace of its own "a" is foreign, and "b" is not. The thread has the same number in "a" each time,
// and a handler opens "a" again during the first event in "b".
TEST_F(FirstOpen, IsOfAnotherNamespaceInAHandler) {
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(77);
    const pid_t inner = fork();
    if (inner == 0) {
      InstanceOptions o;
      o.name = "b";
      o.rings = Rings::cpu;
      const auto b = must(Instance::create(o));
      const auto open = [](const char* name) { ringside_close(), ringside_open(name); };
      open("b");
      ::left::number(0);
      static bool came;
      int step = 1;
      for (came = true; came && step < 3000; step += 5) {
        came = false;
        open("a");
        ::left::number(0);
        open("b");
        at_the_step = [](ucontext_t& context) {
          stop_stepping(context);
          came = !detail::this_thread.on_cpus();
          if (!came) return;
          ringside_close();
          ringside_open("a");
          ::left::number(3);
        };
        steps_to_go = step;
        stepped_event();
        ::left::number(4);
      }
      _exit(step > 100 && !came ? 0 : 1);
    }
    int status = 1;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 1;
  waitpid(outer, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no namespaces here";
  ASSERT_EQ(status, 0);
  const Written written = read();
  ASSERT_EQ(written.size(), 1u) << "one number for one thread";
  EXPECT_GE(written.begin()->first, static_cast<i32>(most_threads));
}

INSTANTIATE_TEST_SUITE_P(Rings, LeftEvent, testing::Bool(), [](const auto& at) { return at.param ? "overwrite" : "discard"; });

}  // namespace
}  // namespace ringside::test::left_event_test

namespace ringside::sys {
[[gnu::noinline]] static u64 set_mask_of_stepped(u64 mask) noexcept {
  sigset_t wanted{}, before{};
  std::memcpy(&wanted, &mask, sizeof mask);
  (void)test::set_mask(SIG_SETMASK, &wanted, &before);
  std::memcpy(&mask, &before, sizeof mask);
  return mask;
}
// Other tests measure the stack that it takes.
u64 set_signal_mask(u64 mask) noexcept {
  if (test::nr_traps != 0) return set_mask_of_stepped(mask);
  u64 before = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, sizeof before);
  return before;
}
}  // namespace ringside::sys
extern "C" int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return ringside::test::set_mask(how, set, old);
}
#endif
