// How much of its caller's stack a call of the writing library takes: each is made on a coroutine whose stack was painted
// before, in a new thread. And of static TLS.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ringside/trace.hpp>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <ringside/base/sanitizers.hpp>
#include <string>
#include <thread>

#include "instance/instance.hpp"
#include "memory_cgroup.hpp"
#include "instance/instance_fixture.hpp"

#if !RINGSIDE_SANITIZED  // a sanitizer's frames are larger, and stacks are not changed there

using Bytes24 = ringside::array<ringside::u8, 24>;
using Bytes2000 = ringside::array<ringside::u8, 2000>;
RINGSIDE_EVENT(painted, number, (u64, n));
RINGSIDE_EVENT(painted, text, (u32, n), (std::string_view, a), (cstring, b));
RINGSIDE_EVENT(painted, large, (Bytes2000, bytes), (u32, n), (Bytes24, more));

namespace ringside::test::stack_use_test {
namespace {

constexpr size_t promised = 1024, promised_with_stacks = 2048;
constexpr u8 paint = 0xA5;
alignas(16) u8 coroutine_stack[64 << 10];
ucontext_t back, there;
using Calls = void (*)(int times);
Calls calls_now = nullptr;
int times_now = 0;
const u8* caller = nullptr;

[[gnu::noinline]] void make_calls() {
  caller = static_cast<const u8*>(__builtin_frame_address(0));
  calls_now(times_now);
}

// Bytes below the frame of the code that has the calls made.
size_t stack_of(Calls calls, int times) {
  std::memset(coroutine_stack, paint, sizeof coroutine_stack);
  calls_now = calls;
  times_now = times;
  getcontext(&there);
  there.uc_stack.ss_sp = coroutine_stack;
  there.uc_stack.ss_size = sizeof coroutine_stack;
  there.uc_link = &back;
  makecontext(&there, make_calls, 0);
  swapcontext(&back, &there);
  const u8* const low =
      std::find_if(std::begin(coroutine_stack), std::end(coroutine_stack), [](u8 byte) { return byte != paint; });
  return static_cast<size_t>(caller - low);
}
size_t stack_in_new_thread(Calls calls, int times = 1) {
  size_t bytes = 0;
  std::thread([&] { bytes = stack_of(calls, times); }).join();
  return bytes;
}

const std::string long_text(3800, 'x');
const Bytes2000 many{};
const Bytes24 some{};

struct Call {
  const char* name;
  Calls make;
};
#define PAINTED_CALLS(call) [](int times) { while (times-- > 0) { call; } }
const Call calls[] = {
    {"an event of a number", PAINTED_CALLS(::painted::number(1))},
    {"an event of short texts", PAINTED_CALLS(::painted::text(1, "one", "two"))},
    {"the longest that stands on the stack", PAINTED_CALLS(::painted::text(1, std::string_view(long_text).substr(0, 26), ""))},
    {"an event of a long text", PAINTED_CALLS(::painted::text(1, long_text, nullptr))},
    {"an event of a large array", PAINTED_CALLS(::painted::large(many, 1, some))},
    {"a span", PAINTED_CALLS(ringside::scope span("name"))},
};

struct World {
  const char* name;
  Rings rings;
  bool stacks;
  size_t most() const { return stacks ? promised_with_stacks : promised; }
};
std::ostream& operator<<(std::ostream& out, const World& world) { return out << world.name; }

struct StackUse : testing::TestWithParam<World> {
  OwnRoot root{true};
  std::unique_ptr<Instance> instance;

  StackUse() {
    InstanceOptions o;
    o.name = "a";
    o.buffer_size = 256 << 10;
    o.rings = GetParam().rings;
    instance = must(Instance::create(o));
    if (GetParam().stacks) must(instance->stacks(must(EventPatterns::parse("*:*")), 64));
  }
  void open() const { ASSERT_EQ(ringside_open("a"), 0); }

  // Each call as a thread's first, and then over the whole ring: every sub-buffer is new once. Returns the largest.
  static size_t most_of_all() {
    size_t most = 0;
    for (const Call& call : calls) {
      const size_t first = stack_in_new_thread(call.make);
      const size_t later = stack_in_new_thread(call.make, 5000);
      EXPECT_LE(first, GetParam().most()) << call.name << ", a thread's first event";
      EXPECT_LE(later, GetParam().most()) << call.name;
      most = std::max({most, first, later});
    }
    return most;
  }
  // In a child, whose status tells.
  template <class Prepare>
  static void expect_in_child(const Prepare& prepare) {
    const int status = instance_test::in_child([&] {
      prepare();
      _exit(most_of_all() <= GetParam().most() ? 0 : 1);
    });
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << no_memory_cgroup;
    EXPECT_EQ(status, 0);
  }
};

TEST_P(StackUse, OfEventsIsAsPromised) {
  open();
  const size_t most = most_of_all();
  RecordProperty("bytes", static_cast<int>(most));
  std::printf("%zu bytes\n", most);
}

TEST_P(StackUse, OfEventsUnderAMemoryLimitIsAsPromised) {
  const MemoryCgroup group(u64{300} << 20);
  expect_in_child([&] {
    if (group.path.empty() || !group.enter()) _exit(77);
    open();
  });
}

TEST_P(StackUse, OfAChildsEventsIsAsPromised) {
  open();
  ::painted::number(0);
  expect_in_child([] {});
}

// No thread of it has memory for its walks: large payloads stand in the library's.
TEST_P(StackUse, OfEventsInASandboxIsAsPromised) {
  expect_in_child([&] {
    open();
    ringside_prepare_sandbox(SIZE_MAX);
  });
  const u64 refused = GetParam().rings == Rings::thread ? 0 : instance->refused_without_ring();
  EXPECT_EQ(refused, 0u) << "rings of CPUs have their memory";
}

TEST_P(StackUse, OfOpeningAndClosingIsAsPromised) {
  EXPECT_LE(stack_in_new_thread([](int) { ringside_open("a"); }), promised);
  EXPECT_LE(stack_in_new_thread([](int) { ringside_close(); }), promised);
  EXPECT_LE(stack_in_new_thread([](int) { ringside_open("new"); }), promised) << "an instance is made";
  static ringside_event late{"painted", "late", "", "\"\"", nullptr, 0, nullptr, nullptr};
  late.id = 0;
  EXPECT_LE(stack_in_new_thread([](int) { ringside_register(&late); }), promised);
}

INSTANTIATE_TEST_SUITE_P(All, StackUse,
                         testing::Values(World{"cpu", Rings::automatic, false}, World{"thread", Rings::thread, false},
                                         World{"cpu_with_stacks", Rings::automatic, true},
                                         World{"thread_with_stacks", Rings::thread, true}),
                         [](const auto& world) { return std::string(world.param.name); });

using StaticTls = instance_test::InstanceTest;

// glibc has 1.5 KiB of static TLS for all that a process loads: each plug-in brings a copy of the library.
TEST_F(StaticTls, IsLeftForTwentyPlugins) {
  constexpr u64 plugins = 20;
  auto instance = make("a");
  setenv("RINGSIDE_INSTANCE", "a", 1);
  const int status = instance_test::in_child([&] {
    for (u64 n = 0; n < plugins; ++n) {
      const std::string copy = root.path() + "/plugin" + std::to_string(n) + ".so";
      std::filesystem::copy_file(RINGSIDE_BUILD_DIR "/tests/plugin.so", copy);
      void* const plugin = dlopen(copy.c_str(), RTLD_NOW);
      if (plugin == nullptr) std::fprintf(stderr, "%s\n", dlerror()), _exit(1);
      const auto work = reinterpret_cast<void (*)(unsigned long)>(dlsym(plugin, "plugin_work"));
      work(n);
      std::thread(work, n).join();
    }
    _exit(0);
  });
  unsetenv("RINGSIDE_INSTANCE");
  EXPECT_EQ(status, 0);
  EXPECT_EQ(instance_test::read_all(*instance).numbers.size(), 2 * plugins);
}

}  // namespace
}  // namespace ringside::test::stack_use_test
#endif
