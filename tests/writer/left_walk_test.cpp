// A walk over a stack, with a handler that comes at each of its instructions, walks too, and leaves walks by siglongjmp.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <cstddef>
#include <fstream>
#include <thread>

#include "writer/step_by_step.hpp"
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

// At every eleventh step of a thread's first walk and its second one, in a new thread each time: all of them take a minute.
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
    for (; came && step < 5000; step += 11) {
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

[[gnu::noinline]] int room_at(int depth) {
  const char used[2000]{};
  use(used);
  const int room = depth != 0 ? room_at(depth - 1) : room_for_walks();
  use(used);
  return room;
}

// "Walks left in shallow frames hold both memories for ever."
TEST_F(LeftWalk, OneInAFrameThatIsNotUsedAgainHoldsNoMemory) {
  for (const int depth : {1, 5}) a_walk_is_left(depth);
  EXPECT_EQ(room_for_walks(), 2);
  for (const int depth : {1, 2}) a_walk_is_left(depth);
  EXPECT_EQ(room_at(5), 2);
  compare();
  EXPECT_EQ(wrong, 0);
}

[[gnu::noinline]] int room_below_a_large_frame() {
  char large[64000];  // not written: what was there stays
  use(large);
  const int room = room_for_walks();
  use(large);
  return room;
}

// "One outer caller without tables, and left memories stay taken": deeper calls than the left ones have their places.
TEST_F(LeftWalk, OneIsKnownAsLeftAlthoughItsOuterCallersAreHidden) {
  static volatile int room, at_once, covered, shallow, lost;
  ringside_without_tables(+[] {
    for (const int depth : {1, 2}) a_walk_is_left(depth);
    at_once = room_for_walks();
    for (const int depth : {1, 2}) a_walk_is_left(depth);
    room = room_at(5);
    for (const int depth : {10, 11}) a_walk_is_left(depth);
    covered = room_below_a_large_frame();
    // "All later calls are shallower": after some questions the addresses decide.
    for (const int depth : {10, 11}) a_walk_is_left(depth);
    for (u32 n = 0; n < 2 * most_undecided && shallow != 2; ++n) {
      shallow = room_for_walks();
      if (shallow == 0) lost = lost + 1;
    }
  });
  EXPECT_EQ(at_once, 2);
  EXPECT_EQ(room, 2);
  EXPECT_EQ(covered, 2);
  EXPECT_EQ(shallow, 2);
  EXPECT_GT(lost, 0);
}

// "A left memory stays taken beside a live call of the same name."
TEST_F(LeftWalk, ACallThatTakesTheOtherMemoryGivesUpTheOneOfItsName) {
  static sigjmp_buf here;
  static volatile int times, room;
  struct Calls {
    [[gnu::noinline]] static void first() {
      const char used[3000]{};
      use(used);
      const WalkMemory memory;
      siglongjmp(here, 1);
    }
    [[gnu::noinline]] static void second() {
      const WalkMemory memory;
      if (times == 0) siglongjmp(here, 1);
      room = room_for_walks();
    }
    [[gnu::noinline]] static void between() {
      const char used[500]{};
      use(used);
      const WalkMemory memory;
    }
    [[gnu::noinline]] static void leave_first() {
      if (sigsetjmp(here, 1) == 0) first();
    }
    [[gnu::noinline]] static void leave_second() {  // from another place, so by another name
      if (sigsetjmp(here, 1) == 0) second();
    }
  };
  Calls::leave_first();
  for (const int n : {0, 1, 2}) {
    times = n;
    if (n == 1) Calls::between();  // takes the first one's, and gives it back
    Calls::leave_second();
  }
  EXPECT_EQ(room, 1);
}

// "A handler between the last destructor and the end of a thread leaks a walk": at each step of a thread's end.
TEST_F(LeftWalk, AHandlerAtTheEndOfItsThreadLeavesNoMemory) {
  static bool came;
  const auto memory_of_this_process = [] {
    std::ifstream in("/proc/self/statm");
    u64 pages = 0;
    in >> pages;
    return pages * 4;
  };
  const auto pid_of_one = [&](int step) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    std::thread(compare).join();
    came = false;
    at_the_step = [](ucontext_t& context) {
      stop_stepping(context);
      came = true;
      (void)number_of_this_stack();
    };
    const u64 before = memory_of_this_process();
    std::thread([&] {
      compare();
      steps_to_go = step;
      stopped = false;
      go_step_by_step(true);
    }).join();
    _exit(memory_of_this_process() >= before + 60 ? 1 : came ? 0 : 2);
  };
  int step = 1, status = 0, leaks = 0;
  for (; step < 6000 && status == 0; step += 31) {  // the C library's last steps are without signals: SIGTRAP ends the process
    ASSERT_GT(waitpid(pid_of_one(step), &status, 0), 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) ++leaks, status = 0;
  }
  EXPECT_GT(step, 500);
  EXPECT_LT(step, 6000);
  EXPECT_EQ(leaks, 0);
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

// "A read fault on a freed coroutine's stack": the outermost return address is the first of a function, and the function in
// front of it ends just there, so that its table leads into the neighbour's stack.
asm(R"(
.pushsection .text
.type before_the_root,@function
before_the_root: .cfi_startproc
 subq $24,%rsp
 .cfi_adjust_cfa_offset 24
 call abort@PLT
 .cfi_endproc
.type the_root,@function
the_root: .cfi_startproc
 hlt
 .cfi_endproc
.type change_stacks,@function
change_stacks: .cfi_startproc
 pushq %rbp
 .cfi_adjust_cfa_offset 8
 pushq %rbx
 .cfi_adjust_cfa_offset 8
 movq %rsp,(%rdi)
 movq %rsi,%rsp
 popq %rbx
 .cfi_adjust_cfa_offset -8
 popq %rbp
 .cfi_adjust_cfa_offset -8
 ret
 .cfi_endproc
.popsection
)");
extern "C" void the_root() asm("the_root");
extern "C" void change_stacks(void** save, void* to) asm("change_stacks");

TEST_F(LeftWalk, ARootThatNoCallHasMadeLeadsToNoStackThatIsGone) {
  static void *home, *away;
  const auto run = [](u8* stack) {
    void** top = reinterpret_cast<void**>(stack + stack_size);
    *--top = reinterpret_cast<void*>(the_root);
    *--top = reinterpret_cast<void*>(+[] {
      (void)number_of_this_stack();
      change_stacks(&away, home);
    });
    *--top = nullptr;
    *--top = nullptr;
    change_stacks(&home, top);
  };
  u8* const low = static_cast<u8*>(mmap(nullptr, 2 * stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  run(low + stack_size);
  run(low);
  mprotect(low + stack_size, stack_size, PROT_NONE);
  run(low);
  compare();
  EXPECT_EQ(wrong, 0);
}

// "page_is_there says yes where a sandbox refuses the call."
TEST_F(LeftWalk, ASandboxThatRefusesTheQuestionAboutAPageIsNoFault) {
  const pid_t pid = fork();
  if (pid == 0) {
    const auto at = [](size_t offset) { return static_cast<u32>(offsetof(seccomp_data, args) + offset); };
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 3),
                          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(8)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{std::size(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(2);
    u8* const hole = map_stack();
    mprotect(hole, stack_size, PROT_NONE);
    From from;
    from.at = {1, reinterpret_cast<u64>(hole), reinterpret_cast<u64>(hole) + 4096, 0};
    from.exact = true;
    const WalkMemory memory;
    walk_stack(*memory.get(), from, most_frames);
    held = memory.get();  // "a running call's memory is given away where the question is refused"
    ringside_without_tables(+[] { room_for_walks(); });
    _exit(stolen != 0 ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ringside::test::left_walk_test
#endif
