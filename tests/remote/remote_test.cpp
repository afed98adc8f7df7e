// External writers: both layouts against the same sequence of events, the reader's refusals, and hostile writers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/remote.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "remote/survey.hpp"
#include "remote_world.hpp"
#include "seen.hpp"
#include "source/account.hpp"

namespace ringside::test::remote_test {
namespace {

using namespace remote;
using testing::HasSubstr;

using World = RemoteWorld;
using TestWriter = RemoteWorld::TestWriter;

Seen drain(Source& source, u64 most = ~u64{0}) {
  Seen seen;
  read_all(source, seen, 0, most);
  return seen;
}

class Remote : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Remote, testing::Values(Layout::footers, Layout::meta_page),
                         [](const auto& i) { return i.param == Layout::footers ? "footers" : "meta_page"; });

TEST_P(Remote, EventsAreReadAsTheyCome) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  EXPECT_THAT(drain(*source).numbers, testing::IsEmpty());
  for (u64 n = 0; n < 100; ++n) {
    ASSERT_TRUE(w.write(n));
    EXPECT_EQ(drain(*source).numbers, from_to(n, n + 1));
  }
  const Counters c = source->counters();
  EXPECT_EQ(c.written, 100u);
  EXPECT_EQ(c.read, 100u);
  EXPECT_EQ(c.unread, 0u);
  EXPECT_EQ(c.overrun, 0u);
}

TEST_P(Remote, OverwrittenEventsAreCountedWhereTheyWere) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  u64 next = 0, seen = 0, lost = 0;
  for (const u64 burst : {10, 3000, 1, 500, 12345, 150, 160, 2}) {
    for (u64 k = 0; k < burst; ++k) ASSERT_TRUE(w.write(next++));
    const Counters before = source->counters();
    EXPECT_EQ(before.written, next);
    EXPECT_EQ(before.written, before.read + before.unread + before.overrun);
    const Seen r = drain(*source);
    EXPECT_EQ(r.numbers.back(), next - 1);
    EXPECT_EQ(r.numbers.size() + r.lost, burst);
    seen += r.numbers.size();
    lost += r.lost;
    EXPECT_EQ(seen + lost, next);
    const Counters c = source->counters();
    EXPECT_EQ(c.written, next);
    EXPECT_EQ(c.read, seen);
    EXPECT_EQ(c.overrun, lost);
    EXPECT_EQ(c.unread, 0u);
  }
  EXPECT_GT(lost, 0u);
}

TEST(RemoteMetaPage, AnIdleRingIsNotAskedAgain) {
  World w(Layout::meta_page);
  auto source = must(w.buffer->source(0));
  w.write(1);
  EXPECT_EQ(drain(*source).numbers.size(), 1u);
  drain(*source);
  const u64 before = w.swaps;
  for (int k = 0; k < 100; ++k) drain(*source);
  EXPECT_EQ(w.swaps, before);
}

TEST_P(Remote, EventsOnTheReaderPageNeedNoCall) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  w.write(0);
  drain(*source);
  const u64 before = w.swaps;
  for (u64 n = 1; n < 50; ++n) w.write(n);
  ASSERT_TRUE(must(source->next()).has_value());
  EXPECT_EQ(w.swaps, before);
}

TEST_P(Remote, NestedEventsAppearWithTheirOuterEvent) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  const Reservation outer = w.writers[0]->reserve(8);
  const u64 number = 1;
  std::memcpy(outer.payload, &number, 8);
  EXPECT_TRUE(w.write(2));
  EXPECT_THAT(drain(*source).numbers, testing::IsEmpty());
  w.writers[0]->commit(outer);
  EXPECT_EQ(drain(*source).numbers, from_to(1, 3));
}

// A handler came behind the outer event's publication and before its end, and then the gate closed.
void leave_an_event(World& w, u64 number) {
  u64& nest = w.writers[0]->ring().control->nest;
  nest = 1;
  EXPECT_TRUE(w.write(number));
  nest = 0;
}

TEST_P(Remote, WhatAHandlerHasLeftIsPublishedBehindAClosedGate) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  w.write(1);
  leave_an_event(w, 2);
  w.writers[0]->disable();
  ASSERT_TRUE(w.writers[0]->quiet([] {}));
  EXPECT_EQ(drain(*source).numbers, from_to(1, 2));
  for (int k = 0; k < 2; ++k) w.writers[0]->publish_left();
  EXPECT_EQ(drain(*source).numbers, from_to(2, 3));
  EXPECT_EQ(source->counters().written, 2u);
  w.writers[0]->enable();
  EXPECT_TRUE(w.write(3));
  EXPECT_EQ(drain(*source).numbers, from_to(3, 4));
}

TEST_P(Remote, AChildOfForkTouchesNoRegionForWhatAHandlerHasLeft) {
  World w(GetParam());
  w.write(1);
  leave_an_event(w, 2);
  w.writers[0]->ring().control->gate = 0;  // as the kernel wipes it
  ASSERT_EQ(mprotect(w.region, w.bytes, PROT_NONE), 0);
  EXPECT_FALSE(w.write(3));
  EXPECT_EQ(w.writers[0]->refused(), 1u);
}

TEST(RemoteWriterTest, WithoutNestingAnInnerEventIsRefusedAndCounted) {
  const Plan plan{Layout::footers, 2, 4096, 1, 4};
  std::vector<u64> blob(plan.descriptor_bytes() / 8), region_words((plan.region_bytes() + 4096) / 8);
  auto* region = reinterpret_cast<u8*>(align_up(reinterpret_cast<u64>(region_words.data()), u64{4096}));
  pack(plan, blob.data());
  Descriptor d;
  ASSERT_TRUE(WildDescriptor(blob.data(), blob.size() * 8).check(plan.region_bytes(), d).good());
  u64 time = 0;
  using W = RemoteWriter<Ticks<>, Nesting::none>;
  void* const memory = std::aligned_alloc(64, W::private_bytes(d.ring(0)));
  std::memset(memory, 0, W::private_bytes(d.ring(0)));
  {
    W w(d, d.ring(0), region, memory, Ticks<>{&time});
    EXPECT_EQ(w.reserve(8).why, Refused::disabled);
    w.enable();
    const Reservation outer = w.reserve(8);
    ASSERT_TRUE(outer);
    EXPECT_FALSE(w.reserve(8));
    EXPECT_EQ(w.ring().control->dropped, 1u);
    w.disable();
    EXPECT_FALSE(w.quiet([] {}));  // an event is open
    w.commit(outer);
    EXPECT_TRUE(w.quiet([] {}));
    EXPECT_FALSE(w.reserve(8));
  }
  std::free(memory);
}

// The writer in plain C (ringside/remote.h), one thread writing, another one swapping: each event once, in order, or counted.
TEST_P(Remote, PlainCWritesWhileAnotherThreadSwaps) {
  ringside_ring ring;
  Buffer::Options options;
  options.size = 4096 * 5;
  options.layout = GetParam();
  options.clock.kind = ClockKind::counter;
  Callbacks callbacks;
  callbacks.swap_reader = [&](u32, u32 read) -> result<SwapAnswer> {
    u32 id = 0;
    const auto what = static_cast<Swap>(ringside_ring_swap(&ring, read, &id));
    return SwapAnswer{{what, id}};
  };
  callbacks.update_footers = [&](u32) -> result<void> { return ringside_ring_update(&ring), result<void>{}; };
  callbacks.reset = [](u32) -> result<void> { return {}; };
  const auto buffer = must(Buffer::create(options, std::move(callbacks)));
  const auto& blob = buffer->descriptor();
  auto* const region =
      static_cast<u8*>(mmap(nullptr, buffer->region_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd(), 0));
  ASSERT_EQ(ringside_descriptor_check(blob.data(), blob.size() * 8, buffer->region_bytes()), nullptr);
  std::vector<ringside_page> words(ringside_ring_pages(blob.data(), 0));
  u64 time = 0;
  ringside_ring_init(&ring, blob.data(), 0, region, words.data(), [](void* t) { return ++*static_cast<u64*>(t); }, &time);
  ringside_ring_enable(&ring);
  constexpr u64 events = 200'000;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (u64 n = 0; n < events; ++n) {
      u8 payload[64] = {};
      std::memcpy(payload, &n, sizeof n);
      if (!ringside_ring_write(&ring, payload, static_cast<u32>(8 + n % 50))) ADD_FAILURE() << n;
    }
    done = true;
  });
  const auto source = must(buffer->source(0));
  u64 next = 0, lost = 0, seen = 0;
  for (bool last = false;;) {
    last = done;
    for (auto view = must(source->next()); view; view = must(source->next())) {
      lost += view->lost_before;
      next += view->lost_before;
      abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
      while (c.next()) {
        u64 n;
        std::memcpy(&n, c.payload().data, sizeof n);
        ASSERT_EQ(n, next++);
        ++seen;
      }
      ASSERT_EQ(c.malformed(), abi::Malformed::no);
    }
    if (last) break;
  }
  writer.join();
  EXPECT_EQ(seen + lost, events);
  EXPECT_EQ(source->counters().overrun, lost);
  EXPECT_EQ(ring.corrupt, 0u);
  munmap(region, buffer->region_bytes());
}

TEST_P(Remote, ResetEmptiesBothEnds) {
  World w(GetParam());
  for (u64 n = 0; n < 1000; ++n) w.write(n);
  {
    auto source = must(w.buffer->source(0));
    drain(*source, 1);
    EXPECT_FALSE(w.buffer->reset(0).has_value());  // it is being read
  }
  must(w.buffer->reset(0));
  auto source = must(w.buffer->source(0));
  EXPECT_THAT(drain(*source).numbers, testing::IsEmpty());
  for (u64 n = 0; n < 10; ++n) w.write(n);
  const Seen r = drain(*source);
  EXPECT_EQ(r.numbers, from_to(0, 10));
  EXPECT_EQ(r.lost, 0u);
}

TEST_P(Remote, AResetThatIsAnsweredLateIsSettledBeforeTheRingIsRead) {
  World w(GetParam());
  for (u64 n = 0; n < 300; ++n) w.write(n);
  const u64 seen = drain(*must(w.buffer->source(0)), 1).numbers.size();
  const auto unanswered = [](u32) -> result<void> { return refuse(std::errc::timed_out, "tester: no answer"); };
  const auto begin_reset = [&] {
    w.answer_to_reset = unanswered;
    const auto reset = w.buffer->reset(0);
    const auto source = w.buffer->source(0);
    ASSERT_FALSE(reset);
    ASSERT_FALSE(source);
    EXPECT_EQ(reset.error().code, std::errc::timed_out);
    EXPECT_EQ(source.error().code, std::errc::timed_out);
  };
  // Refused in the end: reading goes on.
  begin_reset();
  w.answer_to_reset = [](u32) -> result<void> { return fail(EBUSY, "tester: in the middle of an event"); };
  const Seen rest = drain(*must(w.buffer->source(0)));
  EXPECT_EQ(rest.numbers, from_to(seen, 300));
  // Carried out in the end, and more events were written before the answer is known.
  begin_reset();
  w.empty(0);
  for (u64 n = 1000; n < 1010; ++n) w.write(n);
  w.answer_to_reset = [](u32) { return result<void>(); };
  auto source = must(w.buffer->source(0));
  EXPECT_EQ(drain(*source).numbers, from_to(1000, 1010));
  const Counters c = source->counters();
  EXPECT_EQ(c.read, 10u);
  EXPECT_EQ(c.written, 10u);
  EXPECT_EQ(c.overrun, 0u);
  EXPECT_EQ(w.buffer->resets(0), 1u);
}

// The writer died before its answer was read, with or without the reset.
TEST_P(Remote, AResetWithoutAnAnswerIsFoundInTheRingOfADeadWriter) {
  for (const bool carried_out : {true, false}) {
    for (const bool in_time : {true, false}) {
      World w(GetParam());
      u64 next = 0, read = 0;
      for (; next < 2000; ++next) {
        w.write(next);
        if (next % 100 == 99) read += drain(*must(w.buffer->source(0))).numbers.size();
      }
      w.answer_to_reset = [&](u32) -> result<void> {
        if (carried_out) w.empty(0);
        if (in_time) return refuse(std::errc::timed_out, "tester: no answer");
        w.buffer->gone("it died");
        return fail(EPIPE, "tester: it died");
      };
      EXPECT_FALSE(w.buffer->reset(0));
      if (in_time)
        for (; next < 2010; ++next) w.write(next);
      w.buffer->gone("it died");
      EXPECT_EQ(w.buffer->counters(0).unread, next - 2000);
      auto source = must(w.buffer->source(0));
      const Seen rest = drain(*source);
      EXPECT_EQ(rest.numbers, from_to(2000, next));
      EXPECT_EQ(rest.lost, 0u);
      EXPECT_EQ(source->counters().read, rest.numbers.size() + (carried_out ? 0 : read));
      EXPECT_EQ(w.buffer->resets(0), carried_out ? 1u : 0u);
    }
  }
}

TEST_P(Remote, RingsAreIndependent) {
  World w(GetParam(), 4096 * 3, 3);
  for (u64 n = 0; n < 300; ++n) w.write(n, 16, n % 3);
  for (u32 ring = 0; ring < 3; ++ring) {
    auto source = must(w.buffer->source(ring));
    const Seen r = drain(*source);
    ASSERT_EQ(r.numbers.size(), 100u);
    EXPECT_EQ(r.numbers[1], ring + 3u);
    EXPECT_FALSE(w.buffer->source(ring).has_value());
  }
}

TEST_P(Remote, AMissingRingAndMissingCallbacksAreRefused) {
  World w(GetParam());
  Buffer& b = *w.buffer;
  EXPECT_FALSE(b.source(1).has_value());
  Callbacks none;
  EXPECT_FALSE(Buffer::create(b.options(), none).has_value());
}

TEST_P(Remote, AWaiterIsWokenByAPoke) {
  World w(GetParam());
  EXPECT_FALSE(must(w.buffer->wait(0, std::chrono::milliseconds(5))));
  w.write(1);
  w.buffer->poll_every(std::chrono::milliseconds(2));
  EXPECT_TRUE(must(w.buffer->wait(0, std::chrono::seconds(5))));
  EXPECT_FALSE(must(w.buffer->wait(100, std::chrono::milliseconds(20))));
  for (u64 n = 0; n < 10000; ++n) w.write(n);
  EXPECT_TRUE(must(w.buffer->wait(100, std::chrono::seconds(5))));
}

// All committed events are there when the writer is gone, whatever was read before, for any number of events.
TEST_P(Remote, ADeadWritersEventsAreReadFromTheSubBuffers) {
  for (const u64 first : {0, 5, 137, 700, 5000}) {
    for (const u64 then : {0, 1, 137, 300, 4000}) {
      World w(GetParam());
      auto source = must(w.buffer->source(0));
      u64 next = 0;
      for (u64 k = 0; k < first; ++k) w.write(next++);
      const Seen before = drain(*source, 2);
      for (u64 k = 0; k < then; ++k) w.write(next++);
      const Reservation open = w.writers[0]->reserve(8);  // never committed
      ASSERT_TRUE(open);
      w.buffer->gone("it died");
      const Seen r = drain(*source);
      EXPECT_TRUE(source->ended());
      EXPECT_EQ(before.numbers.size() + before.lost + r.numbers.size() + r.lost, next) << first << " " << then;
      if (!r.numbers.empty()) { EXPECT_EQ(r.numbers.back(), next - 1); }
      const Counters c = source->counters();
      EXPECT_EQ(c.read, before.numbers.size() + r.numbers.size());
      EXPECT_EQ(c.written, next);
      EXPECT_EQ(c.overrun, before.lost + r.lost);
      EXPECT_EQ(c.unread, 0u);
    }
  }
}

// The two instants at which a writer's death leaves the meta-page's counts apart.
TEST(RemoteMetaPage, ADeathBetweenTwoCountsLosesNothing) {
  for (const bool while_overwriting : {false, true}) {
    World w(Layout::meta_page);
    auto source = must(w.buffer->source(0));
    for (u64 n = 0; n < 100; ++n) w.write(n);
    const Seen before = drain(*source);
    for (u64 n = 100; n < 3000; ++n) w.write(n);
    auto& meta = *reinterpret_cast<abi::MetaPage*>(w.region);
    if (while_overwriting)
      meta.overrun += 204;  // counted, but its sub-buffer is still there
    else
      meta.entries -= 1;  // the last commit is not counted
    w.buffer->gone("it died");
    const Seen r = drain(*source);
    EXPECT_EQ(before.numbers.size() + r.numbers.size() + r.lost, 3000u);
    EXPECT_EQ(source->counters().written, 3000u);
  }
}

TEST_P(Remote, ASwapWhoseAnswerWasLostLosesNothing) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  u64 next = 0;
  for (u64 k = 0; k < 100; ++k) w.write(next++);
  EXPECT_EQ(drain(*source, 1).numbers.size(), 100u);
  for (u64 k = 0; k < 250; ++k) w.write(next++);
  const Seen more = drain(*source, 1);
  w.answer = [&](u32 ring, u32 read) -> result<SwapAnswer> {
    (void)w.writers[ring]->swap_reader(read);
    w.buffer->gone("it died");
    return fail(EPIPE, "gone");
  };
  const Seen r = drain(*source);
  EXPECT_EQ(r.numbers, from_to(100 + more.numbers.size(), next));
  EXPECT_EQ(r.lost, 0u);
}

TEST_P(Remote, ATimeoutIsAnErrorAndTheRestComesLater) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  for (u64 k = 0; k < 300; ++k) w.write(k);
  w.answer = [](u32, u32) -> result<SwapAnswer> { return refuse(std::errc::timed_out, "tester, ring 0: no answer"); };
  EXPECT_THAT(drain(*source).error, HasSubstr("ring 0"));
  EXPECT_EQ(source->counters().written, 300u);
  w.answer = nullptr;
  EXPECT_EQ(drain(*source).numbers, from_to(0, 300));
}

TEST_P(Remote, ErrorsFromFalseDataNameTheRing) {
  World w(GetParam(), 4096 * 3, 2);
  auto source = must(w.buffer->source(1));
  w.write(1, 16, 1);
  w.answer = [&](u32, u32) { return SwapAnswer{{Swap::swapped, 77}}; };
  if (GetParam() == Layout::meta_page)
    reinterpret_cast<abi::MetaPage*>(w.region + w.buffer->plan().ring_bytes())->reader.id = 77;
  else
    w.footer(0, 1).reader_status = 0;
  EXPECT_THAT(drain(*source).error, HasSubstr("tester, ring 1"));
  w.answer = [&](u32, u32) { return SwapAnswer{{Swap::corrupt, 0}}; };
  EXPECT_THAT(drain(*source).error, HasSubstr("ring 1"));
  w.answer = [&](u32, u32) { return SwapAnswer{{static_cast<Swap>(4), 0}}; };
  EXPECT_THAT(drain(*source).error, HasSubstr("ring 1"));
}

TEST_P(Remote, OlderWritersDoNotTellTheirRefusedEvents) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  w.answer = [&](u32 ring, u32 read) -> result<SwapAnswer> {
    return SwapAnswer{w.writers[ring]->swap_reader(read)};
  };
  w.write(1, 5000);
  w.write(2);
  EXPECT_EQ(drain(*source).numbers.size(), 1u);
  EXPECT_EQ(source->counters().dropped, 0u);
  EXPECT_EQ(source->counters().refusals, Refusals::at_least);
  EXPECT_FALSE(w.buffer->refused_is_exact());
  w.answer = nullptr;
  w.buffer->ask_again();
  (void)drain(*source);
  EXPECT_TRUE(w.buffer->refused_is_exact());
  EXPECT_EQ(source->counters().dropped, 1u);
  EXPECT_EQ(source->counters().refusals, Refusals::in_sum);
}

// What it refused since its last answer is not known.
TEST_P(Remote, AWriterThatDoesNotAnswerAnymoreLeavesALowerBound) {
  using Answer = decltype(World::answer)::result_type;
  const auto counted = [](Swap what) {
    Answer::value_type a{};
    a.what = what;
    a.refused = 9;
    a.counted = true;
    return Answer(a);
  };
  for (const Answer& worse : {Answer(refuse(std::errc::timed_out, "tester: it does not answer")), counted(Swap::corrupt),
                              counted(static_cast<Swap>(4))}) {
    World w(GetParam());
    auto source = must(w.buffer->source(0));
    w.write(1, 5000);
    w.write(2);
    EXPECT_EQ(drain(*source).numbers.size(), 1u);
    EXPECT_EQ(source->counters().dropped, 1u);
    EXPECT_EQ(source->counters().refusals, Refusals::in_sum);
    w.buffer->ask_again();
    EXPECT_EQ(source->counters().refusals, Refusals::at_least);
    w.answer = [&](u32, u32) { return worse; };
    EXPECT_FALSE(source->next());
    EXPECT_GE(source->counters().dropped, 1u);
    EXPECT_EQ(source->counters().refusals, Refusals::at_least);
  }
}

TEST_P(Remote, ACountOfRefusedEventsHas32Bits) {
  World w(GetParam());
  auto source = must(w.buffer->source(0));
  u64 refused = 0;
  w.answer = [&](u32 ring, u32 read) -> result<SwapAnswer> {
    return SwapAnswer{w.writers[ring]->swap_reader(read), static_cast<u32>(refused), true};
  };
  for (const u64 more : {u64{0x7FFFFFFF}, u64{0x7FFFFFFF}, u64{7}, u64{0}}) {
    refused += more;
    w.buffer->ask_again();
    (void)drain(*source);
    EXPECT_EQ(source->counters().dropped, refused);
  }
  refused -= 5;  // a lie
  w.buffer->ask_again();
  (void)drain(*source);
  EXPECT_EQ(source->counters().dropped, refused + 5);
}

// Any words in the region, at any time: no crash, no hang.
TEST_P(Remote, RandomWordsInTheRegionNeverCrash) {
  u64 seed = 1;
  const auto random = [&] { return seed = seed * 6364136223846793005 + 1442695040888963407, seed >> 33; };
  for (int round = 0; round < 60; ++round) {
    World w(GetParam());
    auto source = must(w.buffer->source(0));
    w.answer = [&](u32 ring, u32 read) -> result<SwapAnswer> {
      if (random() % 3 == 0) return SwapAnswer{{static_cast<Swap>(random() % 5), static_cast<u32>(random() % 7)}};
      return SwapAnswer{w.writers[ring]->swap_reader(read), 0, true};
    };
    for (u64 k = 0; k < 600; ++k) {
      w.write(k, 8 + k % 100);
      for (u64 n = random() % 3; n != 0; --n) {
        // At sensitive places (headers, footers, the meta-page), else anywhere.
        const u64 page = random() % (w.bytes / 4096) * 4096;
        const u64 where[] = {page + 8, page + 0, page + 4096 - 32 + random() % 4 * 8, random() % 80 & ~u64{7},
                             random() % w.bytes & ~u64{7}};
        const u64 values[] = {0, ~u64{0}, random(), u64{1} << random() % 64, 4096, 0x00FFF};
        std::memcpy(w.region + where[random() % 5], &values[random() % 6], random() % 2 == 0 ? 4 : 8);
      }
      for (int n = 0; n < 3; ++n) {
        auto view = source->next();
        if (!view) {
          EXPECT_THAT(view.error().sentence, HasSubstr("ring 0"));
          break;
        }
        if (!*view) break;
        ASSERT_LE((*view)->end, 4080u);
        abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, 0);
        while (c.next()) {
        }
      }
      if (k % 50 == 0) (void)source->counters();
    }
    w.buffer->gone("enough");
    for (int n = 0; n < 20; ++n) (void)source->next();
  }
}

TEST(RemoteDescriptor, APackedDescriptorParsesToItsPlan) {
  const Plan plan{Layout::footers, 1, 8192, 3, 5};
  std::vector<u64> blob(plan.descriptor_bytes() / 8);
  pack(plan, blob.data());
  Descriptor d;
  ASSERT_TRUE(WildDescriptor(blob.data(), blob.size() * 8).check(plan.region_bytes(), d).good());
  EXPECT_EQ(d.nr_rings(), 3u);
  EXPECT_EQ(d.layout(), Layout::footers);
  const RingLayout r = d.ring(2);
  EXPECT_EQ(r.id, 2u);
  EXPECT_EQ(r.nr_pages, 5u);
  EXPECT_EQ(r.meta, 2 * 6 * 8192u);
  EXPECT_EQ(r.pages[0], r.meta + 8192);
  EXPECT_EQ(d.geometry(5).capacity(), 8192u - 16 - 32);
}

// Each word of a good descriptor set to wrong values, with a right checksum: the error is found, with its ring.
TEST(RemoteDescriptor, EachWrongWordIsFound) {
  const Plan plan{Layout::meta_page, 1, 4096, 2, 4};
  const u64 size = plan.descriptor_bytes();
  const auto judge = [&](auto change) {
    std::vector<u64> blob(size / 8);
    pack(plan, blob.data());
    auto* const bytes = reinterpret_cast<u8*>(blob.data());
    change(*reinterpret_cast<DescriptorHeader*>(bytes), reinterpret_cast<RingHeader*>(bytes + 48),
           reinterpret_cast<RingHeader*>(bytes + 48 + 16 + 32));
    reinterpret_cast<DescriptorHeader*>(bytes)->checksum = checksum_of(bytes, size);
    Descriptor d;
    const Verdict v = WildDescriptor(bytes, size).check(plan.region_bytes(), d);
    EXPECT_EQ(v.good(), d.nr_rings() == 2);
    const char* const in_c = ringside_descriptor_check(bytes, size, plan.region_bytes());
    EXPECT_STREQ(in_c != nullptr ? in_c : "nothing is wrong", to_string(v.wrong));
    return std::pair{v.wrong, v.index};
  };
  using H = DescriptorHeader;
  using R = RingHeader*;
  const auto pages = [](R r) { return reinterpret_cast<u64*>(r + 1); };
  EXPECT_EQ(judge([](H&, R, R) {}).first, Wrong::no);
  EXPECT_EQ(judge([](H& h, R, R) { h.magic = 1; }).first, Wrong::magic);
  EXPECT_EQ(judge([](H& h, R, R) { h.version = 2; }).first, Wrong::version);
  EXPECT_EQ(judge([](H& h, R, R) { h.bytes += 8; }).first, Wrong::length);
  EXPECT_EQ(judge([](H& h, R, R) { h.layout = 3; }).first, Wrong::layout);
  EXPECT_EQ(judge([](H& h, R, R) { h.clock = last_clock_kind + 1; }).first, Wrong::clock);
  EXPECT_EQ(judge([](H& h, R, R) { h.subbuf_size = 5000; }).first, Wrong::subbuf_size);
  EXPECT_EQ(judge([](H& h, R, R) { h.region_bytes += 1; }).first, Wrong::region);
  EXPECT_EQ(judge([](H& h, R, R) { h.nr_rings = 0; }).first, Wrong::no_rings);
  EXPECT_EQ(judge([](H& h, R, R) { h.nr_rings = 1; }).first, Wrong::trailing);
  EXPECT_EQ(judge([](H& h, R, R) { h.nr_rings = 3; }), (std::pair{Wrong::cut, 2u}));
  EXPECT_EQ(judge([](H&, R, R b) { b->id = 0; }), (std::pair{Wrong::same_id, 1u}));
  EXPECT_EQ(judge([](H&, R a, R) { a->id = 2; }), (std::pair{Wrong::id_order, 1u}));
  EXPECT_EQ(judge([](H&, R, R b) { b->id = 1u << 24; }), (std::pair{Wrong::large_id, 1u}));
  EXPECT_EQ(judge([](H&, R, R b) { b->nr_pages = 2; }), (std::pair{Wrong::few_pages, 1u}));
  EXPECT_EQ(judge([](H&, R, R b) { b->nr_pages = 5; }), (std::pair{Wrong::cut, 1u}));
  EXPECT_EQ(judge([](H&, R, R b) { b->nr_pages = ~0u; }), (std::pair{Wrong::many_pages, 1u}));
  EXPECT_EQ(judge([&](H&, R, R b) { pages(b)[1] += 16; }), (std::pair{Wrong::unaligned, 1u}));
  EXPECT_EQ(judge([&](H&, R, R b) { pages(b)[1] = pages(b)[0]; }), (std::pair{Wrong::overlap, 1u}));
  EXPECT_EQ(judge([&](H&, R a, R b) { b->meta = a->meta; }), (std::pair{Wrong::overlap, 1u}));
  EXPECT_EQ(judge([&](H&, R, R b) { pages(b)[3] += 4096; }), (std::pair{Wrong::beyond, 1u}));
  EXPECT_EQ(judge([&](H&, R, R b) { pages(b)[3] = ~u64{4095}; }), (std::pair{Wrong::beyond, 1u}));
  // Without a right checksum nothing is accepted, nor is any part of the blob.
  std::vector<u64> blob(size / 8);
  pack(plan, blob.data());
  Descriptor d;
  for (u64 cut = 0; cut < size; cut += 8) EXPECT_FALSE(WildDescriptor(blob.data(), cut).check(~u64{0}, d).good());
  for (u64 k = 0; k < size * 8; ++k) {
    blob[k / 64] ^= u64{1} << k % 64;
    EXPECT_FALSE(WildDescriptor(blob.data(), size).check(~u64{0}, d).good()) << k;
    blob[k / 64] ^= u64{1} << k % 64;
  }
}

// The region may lie anywhere in the writer's memory, and the sub-buffers may have holes between them.
TEST(RemoteDescriptor, SubBuffersMayBeScattered) {
  const Plan plan{Layout::meta_page, 2, 4096, 1, 4};
  std::vector<u64> blob(plan.descriptor_bytes() / 8);
  pack(plan, blob.data());
  auto& h = *reinterpret_cast<DescriptorHeader*>(blob.data());
  auto* const pages = blob.data() + 6 + 2;
  h.region_bytes = 20 * 4096;
  for (u32 k = 0; k < 4; ++k) pages[k] = (3 + 4 * k) * u64{4096};
  h.checksum = checksum_of(reinterpret_cast<u8*>(blob.data()), blob.size() * 8);
  std::vector<u64> words(21 * 512);
  auto* const region = reinterpret_cast<u8*>(align_up(reinterpret_cast<u64>(words.data()), u64{4096}));
  Descriptor d;
  ASSERT_TRUE(WildDescriptor(blob.data(), blob.size() * 8).check(h.region_bytes, d).good());
  u64 time = 0;
  void* const memory = std::aligned_alloc(64, TestWriter::private_bytes(d.ring(0)));
  std::memset(memory, 0, TestWriter::private_bytes(d.ring(0)));
  {
    TestWriter w(d, d.ring(0), region, memory, Ticks<>{&time});
    w.enable();
    const u64 payload[2] = {7, 8};
    for (int k = 0; k < 250; ++k) ASSERT_TRUE(w.write(payload, 16));
    const Swapped got = w.swap_reader(0);
    EXPECT_EQ(got.what, Swap::swapped);
    EXPECT_EQ(got.id, 1u);
    EXPECT_EQ(count_events(region + pages[1], 4080), 204u);
  }
  for (u32 k = 0; k < 20; ++k) {
    if (k == 0 || k % 4 == 3) continue;
    for (u32 at = 0; at < 4096; ++at) ASSERT_EQ(region[k * 4096 + at], 0) << k;
  }
  std::free(memory);
}

// The kernel's bytes, followed by the footer.
TEST(RemoteFooters, BytesOfAPage) {
  World w(Layout::footers);
  w.time = 0x1122334455667700;
  w.write(0x0807060504030201, 8);
  w.writers[0]->update_footers();
  const u8* const p = w.page(1);
  const u8 expected[] = {0x02, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 16, 0, 0, 0, 0, 0, 0, 0,  //
                         0x03, 0,    0,    0,    1,    2,    3,    4,    5,  6, 7, 8, 0, 0, 0, 0};
  EXPECT_EQ(std::memcmp(p, expected, sizeof expected), 0);
  EXPECT_EQ(w.footer(1).writer_status, 0x52530000u | abi::footer_commit);
  EXPECT_EQ(w.footer(1).reader_status, abi::footer_head);
  EXPECT_EQ(w.footer(0).reader_status, abi::footer_reader);
  for (u64 k = 0; k < 5000; ++k) w.write(k);
  auto source = must(w.buffer->source(0));
  (void)must(source->next());
  w.writers[0]->update_footers();
  u32 heads = 0, readers = 0, commits = 0;
  for (u32 id = 0; id < w.buffer->plan().nr_pages; ++id) {
    heads += (w.footer(id).reader_status & abi::footer_head) != 0;
    readers += (w.footer(id).reader_status & abi::footer_reader) != 0;
    commits += (w.footer(id).writer_status & abi::footer_commit) != 0;
  }
  EXPECT_EQ(heads, 1u);
  EXPECT_EQ(readers, 1u);
  EXPECT_EQ(commits, 1u);
}

// Something wrote over the counters in shared memory: a number that no writer can have reached is none.
TEST(RemoteMetaPage, ImpossibleCountersAreNotBelieved) {
  RemoteWorld world(remote::Layout::meta_page);
  const auto source = must(world.buffer->source(0));
  auto& meta = *reinterpret_cast<abi::MetaPage*>(world.region);
  u64 read = 0, lost = 0;
  bool at_least = false;
  const auto take = [&] {
    for (auto view = source->next(); view && *view; view = source->next()) {
      lost += (*view)->lost_before;
      at_least = at_least || (*view)->lost_at_least;
      abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
      while (c.next()) ++read;
    }
  };
  for (u64 n = 0; n < 100; ++n) world.write(n);
  take();
  for (u64 n = 0; n < 400; ++n) world.write(n);
  world.answer = [&](u32 ring, u32 bytes) -> result<remote::SwapAnswer> {
    const remote::Swapped did = world.writers[ring]->swap_reader(bytes);
    meta.reader.lost_events = ~u64{0} - 12345;
    meta.overrun = ~u64{0} - 12345;
    return remote::SwapAnswer{did, 0, true};
  };
  take();
  EXPECT_TRUE(at_least);
  EXPECT_LT(lost, 10u);
  const Counters c = source->counters();
  EXPECT_EQ(c.overrun, lost);
  EXPECT_EQ(c.read, read);
  EXPECT_TRUE(adds_up(c));
}

}  // namespace
}  // namespace ringside::test::remote_test
