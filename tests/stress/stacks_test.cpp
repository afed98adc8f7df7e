// Events with stacks, from threads and handlers that write the same stacks at the same time. The rings hold all of it, so each
// stack that an event refers to must be there, with as many calls as the event says.
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/trace.hpp>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "instance/instance.hpp"
#include "ring_memory.hpp"

RINGSIDE_EVENT(deep, step, (u32, calls), (u32, handler), (ringside::stack, stack));

namespace ringside::test::stacks_storm_test {
namespace {

constexpr u32 threads = 4, deepest = 24, rounds = 20'000;

[[gnu::noinline]] void descend(u32 calls, u32 left) {
  if (left == 0)
    deep::step(calls, 0, stack{});
  else
    descend(calls, left - 1);
  asm volatile("" ::: "memory");  // no call is the last thing that a function does
}

void on_signal(int) {
  const int saved = errno;
  deep::step(0, 1, stack{});
  errno = saved;
}

[[gnu::noinline]] void write_some(u32 seed) {
  std::mt19937 random(seed);
  for (u32 round = 0; round < rounds; ++round) {
    const u32 calls = random() % deepest;
    descend(calls, calls);
  }
  asm volatile("" ::: "memory");
}

void write_all() {
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval period{{0, 100}, {0, 100}}, never{};
  setitimer(ITIMER_REAL, &period, nullptr);
  pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
  std::vector<std::thread> all;
  for (u32 t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      // ThreadSanitizer has no state for a thread that begins or ends, and dies of a signal there.
      pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
      write_some(t);
      pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    });
  for (auto& t : all) t.join();
  setitimer(ITIMER_REAL, &never, nullptr);
}

struct Seen {
  std::map<u64, u32> frames;                  // by the stack's number
  std::vector<std::pair<u32, u64>> events;    // calls, the stack's number
  u64 without = 0, of_handlers = 0, copies = 0, lost = 0;
};

void read_ring(Instance& instance, u32 ring, u32 stack_id, u32 step_id, Seen& seen) {
  auto source = must(instance.source(ring));
  while (auto view = must(source->next())) {
    seen.lost += view->lost_before;
    abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
    while (c.next()) {
      const u8* const at = c.payload().data;
      u16 type;
      std::memcpy(&type, at, sizeof type);
      if (type == stack_id) {
        u64 number;
        u32 place;
        std::memcpy(&number, at + 8, sizeof number);
        std::memcpy(&place, at + 16, sizeof place);
        const auto [known, fresh] = seen.frames.emplace(number, (place >> 16) / 8);
        EXPECT_EQ(known->second, (place >> 16) / 8) << "one number, two stacks";
        seen.copies += !fresh;
      } else if (type == step_id) {
        u32 calls, handler;
        u64 number;
        std::memcpy(&calls, at + 8, sizeof calls);
        std::memcpy(&handler, at + 12, sizeof handler);
        std::memcpy(&number, at + 16, sizeof number);
        seen.without += number == 0;
        seen.of_handlers += handler;
        if (number != 0) seen.events.emplace_back(handler != 0 ? ~0u : calls, number);
      }
    }
    EXPECT_EQ(c.malformed(), abi::Malformed::no);
  }
}

void run(Rings rings_of) {
  char dir[] = "/dev/shm/ringside-stacks-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  setenv("RINGSIDE_ROOT", dir, 1);
  InstanceOptions options;
  options.name = "stacks";
  options.buffer_size = 16 << 20;
  options.rings = rings_of;
  auto instance = must(Instance::create(options));
  const pid_t writer = fork();
  if (writer == 0) {
    if (ringside_open("stacks") != 0) _exit(1);
    write_all();
    ringside_close();
    _exit(0);
  }
  int status = 1;
  waitpid(writer, &status, 0);
  EXPECT_EQ(status, 0);
  u32 stack_id = 0, step_id = 0;
  for (const EventInfo& e : instance->events()) {
    if (e.system == "ringside" && e.name == "stack") stack_id = e.id;
    if (e.system == "deep" && e.name == "step") step_id = e.id;
  }
  ASSERT_NE(stack_id, 0u);
  ASSERT_NE(step_id, 0u);
  Seen seen;
  for (const RingInfo& r : instance->rings()) read_ring(*instance, r.name.ring, stack_id, step_id, seen);
  EXPECT_EQ(seen.lost, 0u);
  EXPECT_EQ(instance->refused(), 0u);
  u64 written = 0, nowhere = 0;
  std::set<u32> around;  // the calls around descend(): the same in all threads
  for (const auto& [calls, number] : seen.events) {
    const auto frames = seen.frames.find(number);
    written += calls != ~0u;
    if (frames == seen.frames.end())
      ++nowhere;
    else if (calls != ~0u)
      around.insert(frames->second - calls);
  }
  EXPECT_EQ(written, u64{threads} * rounds) << "each event of a thread has a stack";
  EXPECT_EQ(nowhere, 0u);
  EXPECT_EQ(around.size(), 1u);
  EXPECT_GT(seen.of_handlers, 0u);
  EXPECT_GE(seen.frames.size(), deepest);
  std::printf("%zu events, %llu of handlers, %llu without a stack; %zu stacks, %llu of them again\n",
              seen.events.size() + seen.without, static_cast<unsigned long long>(seen.of_handlers),
              static_cast<unsigned long long>(seen.without), seen.frames.size(), static_cast<unsigned long long>(seen.copies));
  instance.reset();
  std::filesystem::remove_all(dir);
}

TEST(StacksStorm, RingsOfCpus) { run(Rings::automatic); }
TEST(StacksStorm, RingsOfThreads) { run(Rings::thread); }

}  // namespace
}  // namespace ringside::test::stacks_storm_test
