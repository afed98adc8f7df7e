// A walk over a stack, with a handler that comes at each of its instructions, walks too, and leaves walks by siglongjmp.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <functional>
#include <thread>

#include "step_by_step.hpp"
#include "writer/unwind.hpp"

#if RS_TEST_STEPS

namespace ringside::test::left_walk_test {
namespace {

// 0: there is no memory, or the walk does not come to the end. anew: a walk that knows of no other.
[[gnu::noinline]] u64 number_of_this_stack(bool anew = false) {
  static StackWalk other{};
  From from;
  RS_HERE(from.at);
  from.exact = true;
  const WalkMemory memory;
  if (memory.get() == nullptr) return 0;
  if (anew) other.first = most_frames;
  StackWalk& walk = anew ? other : *memory.get();
  walk_stack(walk, from, most_frames);
  return walk.end == StackEnd::complete ? walk.id : 0;
}

// Walks that interrupt each other, by handlers of SIGUSR2, until there is no memory: how many have some. None has `held`, which
// belongs to a call that is interrupted here.
const StackWalk* volatile held = nullptr;
volatile int walks_with_room, stolen;
void interrupt(int) {
  const WalkMemory memory;
  if (memory.get() == nullptr) return;
  if (memory.get() == held) {
    stolen = stolen + 1;
    return;
  }
  walks_with_room = walks_with_room + 1;
  if (walks_with_room < 10) raise(SIGUSR2);
}
[[gnu::noinline]] int room_for_walks() {
  walks_with_room = 0;
  raise(SIGUSR2);
  return walks_with_room;
}

// A walk that uses what the last one left, and one that begins anew, give the same frames.
int wrong = 0;
volatile int twice = 2;  // so that both are one call
[[gnu::noinline]] void compare() {
  u64 number[2]{};
  for (int n = 0; n < twice; ++n) number[n] = number_of_this_stack(n == 1);
  if (number[0] != number[1] || number[0] == 0) ++wrong;
}

void use(const void* room) { asm volatile("" ::"r"(room)); }

[[gnu::noinline]] void leave_a_walk(sigjmp_buf& to, int depth) {
  const char room[1000]{};
  use(room);
  if (depth != 0) leave_a_walk(to, depth - 1);
  const WalkMemory memory;
  if (depth == 0) siglongjmp(to, 1);
}

[[gnu::noinline]] void a_walk_is_left(int depth) {
  static sigjmp_buf here;
  if (sigsetjmp(here, 1) == 0) leave_a_walk(here, depth);
}

// At every fifth step of a thread's first walk and its second one, in a new thread each time: all of them take half a minute.
struct LeftWalk : testing::Test {
  LeftWalk() {
    ready_unwind();
    wrong = 0;
    stolen = 0;
    struct sigaction action {};
    action.sa_handler = interrupt;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGUSR2, &action, nullptr);
  }
  ~LeftWalk() override { signal(SIGUSR2, SIG_DFL); }
  const Traps traps;

  static void at_each_step(void (*action)()) {
    static void (*act)();
    static bool came;
    static u64 number[2];
    act = action;
    came = true;
    u64 right[2] = {0, 0};
    int step = 0;
    for (; came && step < 5000; step += 5) {
      came = false;
      number[0] = number[1] = 0;
      at_the_step = [](ucontext_t& context) {
        stop_stepping(context);
        came = true;
        act();
      };
      std::thread([&] {
        steps_to_go = step;
        stopped = false;
        if (sigsetjmp(back, 1) == 0) {
          go_step_by_step(step != 0);
          for (u64& one : number) one = number_of_this_stack();  // two calls, or one: the first steps tell
          go_step_by_step(false);
        }
        steps_to_go = 0;
        compare();
        EXPECT_EQ(room_for_walks(), 2) << step;
      }).join();
      if (step == 0) right[0] = number[0], right[1] = number[1], came = true;
      for (int n = 0; n < 2; ++n) ASSERT_TRUE(number[n] == right[n] || number[n] == 0) << step << " walk " << n;
      ASSERT_EQ(wrong, 0) << step;
    }
    EXPECT_NE(right[0], 0u);
    EXPECT_GT(step, 200);
    EXPECT_FALSE(came);
  }
};

TEST_F(LeftWalk, AHandlerWalksToo) { at_each_step(compare); }
TEST_F(LeftWalk, AHandlerLeavesIt) {
  at_each_step([] { siglongjmp(back, 1); });
  at_each_step([] { compare(), siglongjmp(back, 1); });
}
// "Two walks share one memory": the inner one is left in a handler that comes back.
TEST_F(LeftWalk, AHandlersOwnIsLeftAndTheHandlerComesBack) {
  at_each_step([] {
    for (const int depth : {0, 3, 1}) {
      a_walk_is_left(depth);
      compare();
    }
  });
}

// "free_walks unmaps a walk, then clears its pointer; a handler that takes a stack in between": at each step of a thread's end.
TEST_F(LeftWalk, AHandlerWalksWhileItsThreadEnds) {
  static pthread_key_t last;
  ASSERT_EQ(pthread_key_create(&last, [](void*) {
    go_step_by_step(false);
    steps_to_go = 0;
  }), 0);
  static bool came;
  int step = 1;
  for (came = true; came && step < 5000; ++step) {
    came = false;
    at_the_step = [](ucontext_t& context) {
      stop_stepping(context);
      came = true;
      compare();
    };
    std::thread([&] {
      compare();
      pthread_setspecific(last, &last);
      steps_to_go = step;
      stopped = false;
      go_step_by_step(true);
    }).join();
    ASSERT_EQ(wrong, 0) << step;
  }
  EXPECT_GT(step, 100);
  EXPECT_FALSE(came);
  pthread_key_delete(last);
}

// "Walks left in shallow frames hold both memories for ever."
TEST_F(LeftWalk, OneInAFrameThatIsNotUsedAgainHoldsNoMemory) {
  for (const int depth : {1, 5}) a_walk_is_left(depth);
  EXPECT_EQ(room_for_walks(), 2);
  static volatile int deep;
  const std::function<void(int)> at = [&](int depth) {
    const char room[2000]{};
    use(room);
    if (depth != 0)
      at(depth - 1);
    else
      deep = room_for_walks();
  };
  for (const int depth : {1, 2}) a_walk_is_left(depth);
  at(5);
  EXPECT_EQ(deep, 2);
  compare();
  EXPECT_EQ(wrong, 0);
}

constexpr size_t stack_size = 256 << 10;
u8* map_stack() {
  return static_cast<u8*>(mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// "A live walk is judged as left where the kernel disarms the alternate stack and this stack lies above the thread's": a
// handler comes at every seventh instruction, on such a stack.
TEST_F(LeftWalk, AHandlerOnAStackThatDisarmsLeavesItsMemoryAlone) {
  const Traps on_alternate(SA_ONSTACK);
  static bool came;
  static int step;
  const bool can = with_a_stack_that_disarms([] {
    at_the_step = [](ucontext_t& context) {
      stop_stepping(context);
      came = true;
      if (room_for_walks() == 0) ++wrong;
    };
    compare();
    for (step = 1, came = true; came && step < 20000; step += 7) {
      came = false;
      steps_to_go = step;
      stopped = false;
      go_step_by_step(true);
      {
        const WalkMemory memory;
        held = memory.get();
        From from;
        RS_HERE(from.at);
        from.exact = true;
        walk_stack(*memory.get(), from, most_frames);
        held = nullptr;
      }
      go_step_by_step(false);
    }
  });
  if (!can) GTEST_SKIP() << "this kernel does not disarm alternate stacks (before 4.7)";
  EXPECT_GT(step, 200);
  EXPECT_EQ(stolen, 0);
  EXPECT_EQ(wrong, 0);
}

// "A walk kept over a signal frame reads an unmapped stack when another walk begins alike": a handler interrupts coroutines.
TEST_F(LeftWalk, OneThatCrossedToAStackThatIsGoneIsNoHelp) {
  stack_t stack{}, before{};
  stack.ss_sp = map_stack();
  stack.ss_size = stack_size;
  ASSERT_EQ(sigaltstack(&stack, &before), 0);
  struct sigaction action {};
  action.sa_handler = [](int) { number_of_this_stack(); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  static ucontext_t home, routine;
  for (int n = 0; n < 4; ++n) {
    u8* const own = map_stack();
    getcontext(&routine);
    routine.uc_stack.ss_sp = own;
    routine.uc_stack.ss_size = stack_size - static_cast<size_t>(n) * 4096;  // its frames stand elsewhere
    routine.uc_link = &home;
    makecontext(&routine, +[] { raise(SIGUSR1); }, 0);
    swapcontext(&home, &routine);
    mprotect(own, stack_size, PROT_NONE);  // still there, so no other stack takes its place
  }
  sigaltstack(&before, nullptr);
  signal(SIGUSR1, SIG_DFL);
  compare();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace ringside::test::left_walk_test
#endif
