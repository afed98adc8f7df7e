// Guests: every event that they write is read, and nothing that they do harms their reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <ringside/abi/event_cursor.hpp>
#include <unistd.h>

#include <cstring>
#include <random>

#include "guest/guest.hpp"
#include "guest/image.hpp"
#include "ring_memory.hpp"

namespace ringside::test::guest_test {
namespace {

using namespace guest;
using testing::HasSubstr;

#define NEEDS_KVM() \
  if (access("/dev/kvm", R_OK | W_OK) != 0) GTEST_SKIP() << "/dev/kvm cannot be opened"

struct Seen {
  u64 steps = 0, timers = 0, last_step = 0, last_timer = 0, lost = 0, bad = 0, last_time = 0;
  void take(const SubBufferView& v) {
    lost += v.lost_before;
    abi::EventCursor c(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
    while (c.next()) {
      u16 id = 0;
      u64 number = 0;
      std::memcpy(&id, c.payload().data, sizeof id);
      std::memcpy(&number, c.payload().data + 8, sizeof number);
      u64& last = id == first_event ? last_step : last_timer;
      ++(id == first_event ? steps : timers);
      if ((id != first_event && id != first_event + 1) || number <= last || c.time() < last_time) ++bad;
      last = number;
      last_time = c.time();
    }
    bad += c.malformed() != abi::Malformed::no;
  }
};

Guest::Options options(remote::Layout layout, u64 steps, u64 size = 1 << 20) {
  Guest::Options o;
  o.buffer.size = size;
  o.buffer.layout = layout;
  o.vm.tick = std::chrono::microseconds(200);
  o.vm.arguments[0] = steps;
  o.vm.patience = std::chrono::seconds(60);
  return o;
}

// Reads until the guest has ended and nothing is left.
void read_all(Guest& g, Source& source, Seen& seen, double seconds) {
  const u64 end = sys::now_ns() + static_cast<u64>(seconds * 1e9);
  for (bool last = false;;) {
    last = !g.vm().running();
    if (sys::now_ns() > end) g.vm().request_stop();
    bool empty = false;
    for (int budget = 500; budget != 0 && !empty; --budget) {  // the guest may be faster than the reader
      auto view = source.next();
      ASSERT_TRUE(view) << view.error().sentence;
      empty = !*view;
      if (!empty) seen.take(**view);
    }
    if (last && empty) return;
    (void)g.buffer().wait(10, std::chrono::milliseconds(5));
  }
}

void run_guest(remote::Layout layout, u64 steps, u64 bare, double seconds) {
  auto o = options(layout, steps);
  o.vm.arguments[1] = bare;
  auto g = must(Guest::start(std::move(o)));
  EXPECT_EQ(g->vm().events().size(), 2u);
  auto source = must(g->buffer().source(0));
  must(g->enable(true));
  g->buffer().poll_every(std::chrono::milliseconds(2));
  g->vm().go();
  Seen seen;
  read_all(*g, *source, seen, seconds);
  EXPECT_EQ(g->vm().status(), 0) << g->vm().why();
  const u64 tried = g->vm().result_of(0), refused = g->vm().result_of(1), ticks = g->vm().result_of(2),
            nested = g->vm().result_of(3);
  const Counters n = source->counters();
  EXPECT_EQ(n.written + refused, tried);
  EXPECT_EQ(n.written, n.read + n.overrun + n.unread);
  EXPECT_EQ(n.unread, 0u);
  EXPECT_EQ(n.read, seen.steps + seen.timers);
  EXPECT_EQ(seen.lost, n.overrun);
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_EQ(ticks, g->vm().ticks());
  EXPECT_GT(ticks, 0u);
  if (steps != 0) {
    EXPECT_EQ(tried, steps + ticks);
  }
  std::printf("%llu events, %llu interrupts, %llu of them inside an event, lost %llu\n", static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(ticks), static_cast<unsigned long long>(nested),
              static_cast<unsigned long long>(seen.lost));
}

TEST(Guests, BooksBalanceWithAMetaPage) {
  NEEDS_KVM();
  run_guest(remote::Layout::meta_page, 100000, 0, 30);
}
TEST(Guests, BooksBalanceWithFooters) {
  NEEDS_KVM();
  run_guest(remote::Layout::footers, 100000, 0, 30);
}
TEST(Guests, FullSpeed) {
  NEEDS_KVM();
  run_guest(remote::Layout::meta_page, 0, 1, test_seconds(60));
}

TEST(Guests, RefusedEventsReachTheReader) {
  NEEDS_KVM();
  auto o = options(remote::Layout::meta_page, 100);
  o.vm.arguments[2] = 7;
  auto g = must(Guest::start(std::move(o)));
  auto source = must(g->buffer().source(0));
  must(g->enable(true));
  g->vm().go();
  Seen seen;
  read_all(*g, *source, seen, 30);
  g->buffer().ask_again();
  while (auto view = must(source->next())) seen.take(*view);
  const Counters n = source->counters();
  EXPECT_GE(n.dropped, 7u);
  EXPECT_EQ(n.dropped, g->vm().result_of(1));
  EXPECT_EQ(n.refusals, Refusals::in_sum);
  EXPECT_EQ(n.read + n.overrun + n.dropped, g->vm().result_of(0));
}

TEST(Guests, InterruptsNest) {
  NEEDS_KVM();
  auto o = options(remote::Layout::meta_page, 2000000, 64 << 20);
  o.vm.tick = std::chrono::microseconds(100);
  auto g = must(Guest::start(std::move(o)));
  auto source = must(g->buffer().source(0));
  must(g->enable(true));
  g->vm().go();
  Seen seen;
  read_all(*g, *source, seen, 20);
  EXPECT_GT(g->vm().result_of(3), 0u);
  EXPECT_EQ(seen.timers, g->vm().ticks());
}

TEST(Guests, ResetWhileItWrites) {
  NEEDS_KVM();
  auto g = must(Guest::start(options(remote::Layout::meta_page, 0)));
  must(g->enable(true));
  g->vm().go();
  for (int i = 0; i < 20; ++i) {
    usleep(2000);
    {
      auto source = must(g->buffer().source(0));
      Seen seen;
      for (int k = 0; k < 20; ++k)
        if (auto view = must(source->next())) seen.take(*view);
      EXPECT_EQ(seen.bad, 0u);
    }
    must(g->reset(0));
  }
  g->vm().request_stop();
  EXPECT_TRUE(g->vm().wait_end(std::chrono::seconds(60)));
  auto source = must(g->buffer().source(0));
  while (must(source->next())) {
  }
  const Counters n = source->counters();
  EXPECT_LT(n.written, g->vm().result_of(0));
  EXPECT_EQ(n.written, n.read + n.overrun + n.unread);
}

TEST(Guests, TheGuestsTimeIsMeasured) {
  NEEDS_KVM();
  auto g = must(Guest::start(options(remote::Layout::meta_page, 10)));
  const auto offset = g->tsc_offset();
  const u64 before = __builtin_ia32_rdtsc();
  const auto answer = must(g->vm().ask(Ask::time, 0, 0));
  const u64 after = __builtin_ia32_rdtsc();
  const u64 shown = answer.value - static_cast<u64>(offset.ahead);
  EXPECT_GE(shown + offset.error, before);
  EXPECT_LE(shown, after + offset.error);
}

std::vector<u8> changed(u64 at, u8 value) {
  const auto image = demo_image();
  std::vector<u8> bytes(image.begin(), image.end());
  bytes[at] = value;
  return bytes;
}

TEST(Guests, BadImagesAreRefused) {
  NEEDS_KVM();
  const auto refused = [](std::vector<u8> image) {
    auto o = options(remote::Layout::meta_page, 1);
    o.image = std::move(image);
    o.vm.patience = std::chrono::milliseconds(300);
    auto g = Guest::start(std::move(o));
    EXPECT_FALSE(g);
    return g ? std::string() : g.error().sentence;
  };
  EXPECT_THAT(refused({'#', '!'}), HasSubstr("too short"));
  EXPECT_THAT(refused(changed(0, 'x')), HasSubstr("no static ELF file"));
  EXPECT_THAT(refused(changed(16, 3)), HasSubstr("no static ELF file"));
  EXPECT_THAT(refused(changed(54, 1)), HasSubstr("program headers"));
  const auto image = demo_image();
  EXPECT_THAT(refused({image.begin(), image.begin() + 100}), HasSubstr("cut"));
  EXPECT_THAT(refused({image.begin(), image.begin() + 8000}), HasSubstr("cut"));
  // Random damage gives an error or a guest, nothing else. Only the headers are damaged: code may do anything, for any time.
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i) {
    auto o = options(remote::Layout::meta_page, 10);
    o.image = changed(random() % 0x158, static_cast<u8>(random()));
    o.vm.patience = std::chrono::milliseconds(100);
    (void)Guest::start(std::move(o));
  }
}

result<std::unique_ptr<Guest>> hostile(u64 how, u64 seed = 0, remote::Layout layout = remote::Layout::meta_page) {
  auto bytes = must(sys::read_file(RINGSIDE_BUILD_DIR "/guest-hostile.elf"));
  auto o = options(layout, how, 64 << 10);
  o.image.assign(bytes.begin(), bytes.end());
  o.vm.arguments[1] = seed;
  o.vm.patience = std::chrono::seconds(5);
  return Guest::start(std::move(o));
}

TEST(Guests, AGuestMayOverwriteItsRings) {
  NEEDS_KVM();
  for (const auto layout : {remote::Layout::meta_page, remote::Layout::footers})
    for (u64 seed = 0; seed < 10; ++seed) {
      auto g = must(hostile(1, seed, layout));
      auto source = must(g->buffer().source(0));
      g->vm().go();
      Seen seen;
      for (int i = 0; i < 200; ++i) {
        auto view = source->next();
        if (!view) {
          EXPECT_THAT(view.error().sentence, HasSubstr("ring 0"));
          break;
        }
        if (*view) seen.take(**view);
        (void)source->counters();
      }
      g->vm().request_stop();
      EXPECT_TRUE(g->vm().wait_end(std::chrono::seconds(60)));
    }
}

TEST(Guests, AMissingAnswerIsAnError) {
  NEEDS_KVM();
  auto g = hostile(2);
  ASSERT_FALSE(g);
  EXPECT_THAT(g.error().sentence, HasSubstr("does not answer"));
}
TEST(Guests, ANonsenseAnswerIsAnError) {
  NEEDS_KVM();
  auto g = must(hostile(3));
  auto on = g->enable(true);
  ASSERT_FALSE(on);
  EXPECT_THAT(on.error().sentence, HasSubstr("the guest, ring 0"));
}
TEST(Guests, AnInconsistentTimeIsAnError) {
  NEEDS_KVM();
  auto g = hostile(8);
  ASSERT_FALSE(g);
  EXPECT_THAT(g.error().sentence, HasSubstr("time goes back and forth"));
}
TEST(Guests, AGuestMayIgnoreARequestToStop) {
  NEEDS_KVM();
  auto g = must(hostile(4));
  g->vm().go();
  g->vm().request_stop();
  EXPECT_FALSE(g->vm().wait_end(std::chrono::milliseconds(100)));
}
TEST(Guests, ACrashIsReportedWithItsAddress) {
  NEEDS_KVM();
  for (const u64 how : {5, 6}) {
    auto g = must(hostile(how));
    g->vm().go();
    EXPECT_TRUE(g->vm().wait_end(std::chrono::seconds(60)));
    EXPECT_LT(g->vm().status(), 0);
    EXPECT_THAT(g->vm().why(), HasSubstr("at 0x"));
  }
}
TEST(Guests, ADeclarationOutsideOfMemoryIsAnError) {
  NEEDS_KVM();
  auto g = hostile(7);
  ASSERT_FALSE(g);
  EXPECT_THAT(g.error().sentence, HasSubstr("outside of its memory"));
}

}  // namespace
}  // namespace ringside::test::guest_test
#endif
