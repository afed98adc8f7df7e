// The kernel is the judge: the same text as the filter of an instance's event passes the same events as ringside's filter.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <random>

#include "analysis/filter.hpp"
#include "cli/hand_made.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"

namespace ringside::filter_kernel_test {
namespace {

using Random = std::mt19937_64;
using Payloads = std::vector<std::vector<u8>>;

constexpr std::array<int, 4> ignored = {SIGUSR1, SIGUSR2, SIGWINCH, SIGURG};
constexpr std::array<const char*, 5> names = {"make", "cc1plus", "cc1", "a b", "exactly15 bytes"};

i32 number(Random& random) {
  switch (random() % 4) {
    case 0:
      return static_cast<i32>(random() % 4);
    case 1:
      return -static_cast<i32>(random() % 4) - 1;
    case 2:
      return static_cast<i32>(1u << random() % 32);
    default:
      return ignored[random() % 4];
  }
}

std::string comparison(Random& random) {
  constexpr std::array fields = {"sig", "errno", "code", "result", "group", "common_pid", "cpu"};
  constexpr std::array compares = {"==", "!=", "<", "<=", ">", ">=", "&"};
  if (random() % 3 == 0) {
    // No "*1": the kernel looks for such an end at the end of the array, so "cc1" in 16 bytes has none (seen on 6.18).
    constexpr std::array globs = {"cc*", "*[1]", "*1*", "?ake",   "[a-d]*",        "[!a-d]*",
                                  "*",   "cc1",  "a*b", "*bytes", "exactly15 byte"};
    const char* field = random() % 3 == 0 ? "COMM" : "comm";
    if (random() % 2 == 0) return std::string(field) + " ~ \"" + globs[random() % globs.size()] + "\"";
    return std::string(field) + (random() % 2 == 0 ? " == '" : " != '") + names[random() % names.size()] + "'";
  }
  const char* field = fields[random() % fields.size()];
  const i32 value = field == std::string_view("cpu") ? static_cast<i32>(random() % 2) : number(random);
  constexpr std::array ways = {"{}", "{:#x}", "{:#o}"};
  return std::string(field) + " " + compares[random() % (field == std::string_view("cpu") ? 6 : 7)] + " " +
         (value < 0 ? "-" : "") +
         fmt::format(fmt::runtime(ways[random() % 3]), value < 0 ? 0u - static_cast<u32>(value) : static_cast<u32>(value));
}

// No tree: the kernel decides the precedence.
std::string expression(Random& random, u32 depth) {
  if (depth == 0) return comparison(random);
  switch (random() % 6) {
    case 0:
      return "!" + comparison(random);
    case 1:
      return "!(" + expression(random, depth - 1) + ")";
    case 2:
      return "(" + expression(random, depth - 1) + ")";
    case 3:
    case 4:
      return expression(random, depth - 1) + " && " + expression(random, depth - 1);
    default:
      return expression(random, depth - 1) + "||" + expression(random, depth - 1);
  }
}

struct Side {
  TracefsInstance instance;
  std::vector<EventInfo> events;
  Timeline timeline;

  static result<std::unique_ptr<Side>> make(const char* prefix) {
    TracefsOptions options;
    options.prefix = prefix;
    options.buffer_size = 256 << 10;
    auto instance = TracefsInstance::create(options);
    if (!instance) return tl::unexpected<Error>(instance.error());
    return std::make_unique<Side>(std::move(*instance));
  }
  explicit Side(TracefsInstance made) : instance(std::move(made)) {
    events = must(instance.enable(EventPattern("signal:signal_generate"), mine));
    auto rings = must(open_kernel_rings(instance.dir(), instance.cpus(), calibrate(ClockKind::tsc), {}));
    for (auto& source : rings.sources) timeline.add(std::move(source));
    must(instance.tracing(true));
  }
  template <class Use>
  void drain(const Use& use) {
    TraceRecord record;
    while (timeline.next(record)) {
      ASSERT_EQ(record.lost, 0u);
      use(record, timeline.source(record.source).name());
    }
    ASSERT_TRUE(timeline.problems().empty()) << timeline.problems()[0];
  }

  // Signals of this thread to this process. Not all signals with this thread as "current" are its own: other programs' timers
  // also send their signals from an interrupt of any thread.
  const std::string mine = "common_pid == " + std::to_string(sys::gettid()) + " && pid == " + std::to_string(getpid());
};

TEST(FilterKernel, PassesTheSameEventsAsTheKernel) {
  if (auto events = kernel_events(); !events) GTEST_SKIP() << events.error().sentence;
  auto all = Side::make("ringside-filter-all-");
  if (!all) GTEST_SKIP() << all.error().sentence;
  auto some = must(Side::make("ringside-filter-some-"));
  Formats formats;
  for (const EventInfo& e : (*all)->events) ASSERT_TRUE(test::add(formats, e.number(), e.system, e.name, e.format));
  Tasks tasks;
  for (const int sig : ignored) std::signal(sig, SIG_IGN);
  char before[16] = "";
  prctl(PR_GET_NAME, before);
  Random random(static_cast<u64>(getpid()));
  u64 passed = 0, seen = 0;
  for (int round = 0; round < 150; ++round) {
    const std::string text = expression(random, static_cast<u32>(random() % 4));
    SCOPED_TRACE(text);
    must(some->instance.write("events/signal/signal_generate/filter", some->mine + " && (" + text + ")"));
    auto filter = Filter::compile(text, formats, tasks);
    ASSERT_TRUE(filter) << filter.error().sentence;
    const char* name = names[random() % names.size()];
    prctl(PR_SET_NAME, name);
    tasks.add(Task{getpid(), sys::gettid(), name, name});
    for (int i = 0; i < 20; ++i) {
      siginfo_t info{};
      info.si_signo = ignored[random() % 4];
      info.si_errno = number(random);
      info.si_code = number(random);
      ASSERT_EQ(syscall(SYS_rt_sigqueueinfo, getpid(), info.si_signo, &info), 0);
    }
    Payloads expected, got;
    const auto keep = [](Payloads& to, const TraceRecord& record) {
      auto& bytes = to.emplace_back(record.payload.data, record.payload.data + record.payload.size);
      bytes[2] = bytes[3] = 0;  // common_flags, common_preempt_count: an interrupt may come between the two instances
    };
    (*all)->drain([&](const TraceRecord& record, const RingName& ring) {
      ++seen;
      if (filter->matches(record, ring)) keep(expected, record);
    });
    some->drain([&](const TraceRecord& record, const RingName&) {
      keep(got, record);
    });
    ASSERT_EQ(seen, static_cast<u64>(round + 1) * 20);
    passed += got.size();
    ASSERT_TRUE(expected == got) << "ours " << expected.size() << ", the kernel's " << got.size() << ", of a thread called "
                                 << name;
  }
  prctl(PR_SET_NAME, before);
  EXPECT_GT(passed, 300u);
  EXPECT_LT(passed, 2700u);
}

}  // namespace
}  // namespace ringside::filter_kernel_test
