// What source.hpp promises, for each implementation of Source. A new one is proved by its row in the table `kinds`, and by a
// World (source_worlds.hpp) that makes rings with known events for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "source_worlds.hpp"

namespace ringside::test::source_conformance {
namespace {

// How an implementation may differ from what a ring's own reader does, which is what the first value of each says.
enum class Counted { when_the_next_are_asked_for, at_once, never };
enum class Ends { with_its_writer, at_once, never };
enum class Losses { counted, noticed, not_told };  // noticed: at least 1
enum class Books {
  the_rings,   // counters() are the ring's, at this moment
  its_own,     // they are those of what the source has looked at
  a_recorders, // they are the ring's at the end of the recording
  none,
};

struct Kind {
  const char* name;
  Made (*make)();
  Counted counted = Counted::when_the_next_are_asked_for;
  Ends ends = Ends::with_its_writer;
  bool grows = true;        // what is written after it was opened is seen
  Losses losses = Losses::counted;
  Books books = Books::the_rings;
  bool lags_at_end = false;  // lag_ns() is not 0 when ended() is true
  const char* needs = "";    // what some machines do not have: without it the tests are skipped
  const char* why = "";      // the reason for each difference
};

const std::vector<Kind>& kinds() {
  using enum remote::Layout;
  static const std::vector<Kind> all{
    {.name = "reader_of_a_thread",
     .make = make<InstanceWorld, Rings::thread, By::reader>,
     .lags_at_end = true,
     .why = "the ring of a dead thread may be the next thread's, so the lag is the ring's"},
        {.name = "reader_of_a_cpu",
         .make = cpu_world<By::reader>,
         .lags_at_end = true,
         .needs = "rings of CPUs",
         .why = "to know whether a CPU's ring was replaced is no promise about its writers"},
        {.name = "peek_at_a_thread",
         .make = make<InstanceWorld, Rings::thread, By::peek>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .lags_at_end = true,
         .why = "a peek consumes nothing, and nothing waits for more of it, though a later one may bring more"},
        {.name = "peek_at_a_cpu",
         .make = cpu_world<By::peek>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .lags_at_end = true,
         .needs = "rings of CPUs",
         .why = "as a peek at a thread's ring"},
        {.name = "served_ring_of_a_thread",
         .make = make<InstanceWorld, Rings::thread, By::server>,
         .counted = Counted::at_once,
         .why = "GET_READER counts all that it finds as read"},
        {.name = "served_ring_of_a_cpu",
         .make = cpu_world<By::server>,
         .counted = Counted::at_once,
         .ends = Ends::never,
         .needs = "rings of CPUs",
         .why =
             "GET_READER counts all that it finds as read; a CPU's ring outlives its writers, and is not replaced while it is "
             "mapped"},
        {.name = "meta_page",
         .make = make<MetaPageWorld, false, true>,
         .counted = Counted::at_once,
         .ends = Ends::never,
         .books = Books::its_own,
         .why =
             "GET_READER counts all that it finds as read; a meta-page does not tell whether there is a writer, and is as it "
             "was at the last call"},
        {.name = "meta_page_copied",
         .make = make<MetaPageWorld, true, true>,
         .counted = Counted::at_once,
         .ends = Ends::never,
         .books = Books::its_own,
         .why = "as meta_page"},
        {.name = "meta_page_without_room",
         .make = make<MetaPageWorld, false, false>,
         .counted = Counted::at_once,
         .ends = Ends::never,
         .losses = Losses::noticed,
         .books = Books::its_own,
         .why = "as meta_page; a full sub-buffer has no room for the number of missed events"},
        {.name = "external_writer_with_a_meta_page",
         .make = make<ExternalWorld, meta_page, false>,
         .counted = Counted::at_once,
         .why = "what was handed out may be overwritten: a swap tells the writer so"},
        {.name = "external_writer_with_footers",
         .make = make<ExternalWorld, footers, false>,
         .counted = Counted::at_once,
         .why = "what was handed out may be overwritten: a swap tells the writer so"},
        {.name = "memory_dump",
         .make = make<ExternalWorld, footers, true>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .books = Books::its_own,
         .why = "a dump does not change, and knows no reader"},
        {.name = "recording",
         .make = make<RecordingWorld, Recorded::finished>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .books = Books::a_recorders,
         .why = "a file does not change, and knows no reader"},
        {.name = "unfinished_recording",
         .make = make<RecordingWorld, Recorded::unfinished>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .books = Books::none,
         .why = "as recording; a killed recorder closed no books"},
        {.name = "trace_dat_6",
         .make = make<RecordingWorld, Recorded::dat_6>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .books = Books::none,
         .why = "as recording; an exported file has no counters"},
        {.name = "trace_dat_7",
         .make = make<RecordingWorld, Recorded::dat_7>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .books = Books::none,
         .why = "as trace_dat_6"},
        {.name = "trace_dat_7_zlib",
         .make = make<RecordingWorld, Recorded::dat_7_zlib>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .books = Books::none,
         .why = "as trace_dat_6"},
        {.name = "trace_dat_7_zstd",
         .make = make<RecordingWorld, Recorded::dat_7_zstd>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .books = Books::none,
         .why = "as trace_dat_6"},
        {.name = "line",
         .make = make<LineWorld>,
         .counted = Counted::never,
         .books = Books::its_own,
         .why = "nothing goes back along a line: its writer's reader has counted, and who listens counts what comes"},
        {.name = "external_writer_in_a_mount",
         .make = make<MountWorld>,
         .counted = Counted::never,
         .ends = Ends::at_once,
         .grows = false,
         .losses = Losses::not_told,
         .books = Books::none,
         .why = "it shows what the sub-buffers hold at a moment, as `trace` does; the ring's counters are stats'"},
        {.name = "kernel_by_read",
         .make = kernel_world<KernelWay::read>,
         .counted = Counted::at_once,
         .ends = Ends::never,
         .needs = "tracefs",
         .why = "read() counts at once; the kernel does not end"},
        {.name = "kernel_by_mapping",
         .make = kernel_world<KernelWay::map>,
         .counted = Counted::at_once,
         .ends = Ends::never,
         .needs = "tracefs",
         .why = "GET_READER counts at once; the kernel does not end"},
#if defined(__x86_64__)
        {.name = "guest_with_a_meta_page",
         .make = guest_world<meta_page>,
         .counted = Counted::at_once,
         .grows = false,
         .needs = "/dev/kvm",
         .why = "as an external writer; its program writes once"},
        {.name = "guest_with_footers",
         .make = guest_world<footers>,
         .counted = Counted::at_once,
         .grows = false,
         .needs = "/dev/kvm",
         .why = "as an external writer; its program writes once"},
#endif
  };
  return all;
}

TEST(SourceKinds, ADifferenceHasAReason) {
  for (const Kind& k : kinds()) {
    const bool differs =
        k.counted != Counted{} || k.ends != Ends{} || !k.grows || k.losses != Losses{} || k.books != Books{} || k.lags_at_end;
    EXPECT_EQ(differs, *k.why != 0) << k.name;
  }
}

// ---- The reader of the tests: each view is checked as it comes.

class Reading {
 public:
  Reading(const World& world, u32 ring, Losses losses) : world_(&world), ring_(ring), losses_(losses) {}

  // False: nothing new.
  bool next(Source& source) {
    auto view = source.next();
    EXPECT_TRUE(view) << view.error().sentence;
    if (!view || !*view) return false;
    take(**view);
    return true;
  }
  void rest(Source& source) {
    while (next(source) && !testing::Test::HasFailure()) {
    }
  }
  void take(const SubBufferView& v) {
    const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(v.sub_buffer);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(v.sub_buffer) % 8, 0u);
    ASSERT_EQ(v.begin % 4, 0u);
    ASSERT_EQ(v.end % 4, 0u);
    ASSERT_LE(v.begin, v.end);
    ASSERT_LE(v.end, subbuf_size - abi::header_size);
    if (v.begin == 0) {
      ASSERT_EQ(v.time, header.time_stamp);
    }
    ASSERT_GE(v.time, last_time_);
    const u64 before = at_;
    if (losses_ == Losses::counted) at_ += v.lost_before;
    if (losses_ == Losses::not_told) {
      ASSERT_EQ(v.lost_before, 0u);
    }
    lost += v.lost_before;
    bool first = true;
    abi::EventCursor c(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
    for (; c.next(); ++at_, ++events, first = false) {
      u64 number = 0;
      ASSERT_GE(c.payload().size, world_->number_at + sizeof number);
      std::memcpy(&number, c.payload().data + world_->number_at, sizeof number);
      if (first && losses_ != Losses::counted && (losses_ == Losses::not_told || v.lost_before != 0))
        at_ = number - world_->first;
      ASSERT_LT(at_, world_->written(ring_).size());
      const Event& e = world_->written(ring_)[at_];
      ASSERT_EQ(number, e.number);
      ASSERT_GE(c.time(), e.from) << number;
      ASSERT_LE(c.time(), e.until) << number;
      ASSERT_GE(c.time(), last_time_) << number;
      last_time_ = c.time();
    }
    ASSERT_EQ(c.malformed(), abi::Malformed::no) << abi::to_string(c.malformed());
    ASSERT_EQ(c.position(), v.end);
    if (losses_ == Losses::noticed && v.lost_before != 0) {
      ASSERT_GE(at_ - before - (events - seen_before_), v.lost_before) << "more are said to be lost than are missing";
    }
    seen_before_ = events;
  }
  // The next event that is expected is number so-and-so of its ring.
  u64 at() const { return at_; }
  // The last event that was written has been seen, and what was not seen was said to be lost.
  void expect_all() const {
    EXPECT_EQ(at_, world_->written(ring_).size());
    if (losses_ == Losses::counted) {
      EXPECT_EQ(events + lost, world_->written(ring_).size());
    }
    if (losses_ == Losses::noticed && events != world_->written(ring_).size()) {
      EXPECT_GE(lost, 1u);
    }
  }
  void expect_nothing_lost() const {
    expect_all();
    EXPECT_EQ(events, world_->written(ring_).size());
    EXPECT_EQ(lost, 0u);
  }
  u64 events = 0, lost = 0;

 private:
  const World* world_;
  u32 ring_;
  Losses losses_;
  u64 at_ = 0, last_time_ = 0, seen_before_ = 0;
};

class SourceConformance : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    auto made = GetParam().make();
    if (made) {
      world = std::move(*made);
      return;
    }
    ASSERT_NE(*GetParam().needs, 0) << made.error().sentence;
    GTEST_SKIP() << "needs " << GetParam().needs << ": " << made.error().sentence;
  }
  Reading reading(u32 ring = 0) const { return Reading(*world, ring, GetParam().losses); }
  static void expect_nothing(Source& source) {
    for (int again = 0; again < 3; ++again) {
      auto view = source.next();
      ASSERT_TRUE(view) << view.error().sentence;
      ASSERT_FALSE(*view);
    }
  }
  // One view that nobody has gone on from: the number of its events.
  u64 first_view(Source& source) const {
    Reading r = reading();
    EXPECT_TRUE(r.next(source));
    EXPECT_GT(r.events, 0u);
    return r.events;
  }
  // What the next reader of ring 0 is shown: everything, or what comes behind the first `consumed` events.
  void expect_next_reader_from(u64 consumed) const {
    auto source = world->open(0);
    ASSERT_NE(source, nullptr);
    u64 events = 0;
    bool first = true;
    while (auto view = must(source->next())) {
      EXPECT_EQ(view->lost_before, 0u);
      abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
      for (; c.next(); ++events) {
        u64 number = 0;
        std::memcpy(&number, c.payload().data + world->number_at, sizeof number);
        if (first) {
          ASSERT_EQ(number, world->first + consumed);
        }
        first = false;
      }
    }
    EXPECT_EQ(events, world->written(0).size() - consumed);
  }
  std::unique_ptr<World> world;
};

void PrintTo(const Kind& kind, std::ostream* to) { *to << kind.name; }
std::string name_of_kind(const testing::TestParamInfo<Kind>& info) { return info.param.name; }
std::vector<Kind> kinds_that(bool (*holds)(const Kind&)) {
  std::vector<Kind> some;
  std::copy_if(kinds().begin(), kinds().end(), std::back_inserter(some), holds);
  return some;
}
INSTANTIATE_TEST_SUITE_P(Sources, SourceConformance, testing::ValuesIn(kinds()), name_of_kind);

// ---- What each source does.

TEST_P(SourceConformance, EachEventIsSeenOnceInOrderWithItsTime) {
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  r.rest(*source);
  r.expect_nothing_lost();
  expect_nothing(*source);
}

TEST_P(SourceConformance, OneEventIsSeen) {
  world->write(0, 1);
  auto source = world->open(0);
  Reading r = reading();
  r.rest(*source);
  r.expect_nothing_lost();
  expect_nothing(*source);
}

TEST_P(SourceConformance, AViewStaysAsItIsUntilTheNextCall) {
  world->write(0, several);
  auto source = world->open(0);
  const auto view = must(source->next());
  ASSERT_TRUE(view);
  const auto bytes = [&] {
    return std::string(reinterpret_cast<const char*>(view->sub_buffer) + abi::header_size + view->begin,
                       view->end - view->begin);
  };
  const std::string before = bytes();
  (void)source->counters();
  (void)source->ended();
  (void)source->lag_ns();
  EXPECT_EQ(bytes(), before);
  Reading r = reading();
  r.take(*view);
  r.rest(*source);
  r.expect_nothing_lost();
}

TEST_P(SourceConformance, WhatWasOverwrittenIsSaidToBeLostWhereItWas) {
  world->lose(0);
  auto source = world->open(0);
  Reading r = reading();
  r.rest(*source);
  r.expect_all();
  EXPECT_LT(r.events, world->written(0).size());
}

TEST_P(SourceConformance, CountersAddUp) {
  const Books books = GetParam().books;
  const auto add_up = [](const Counters& n) { EXPECT_EQ(n.written, n.read + n.unread + n.overrun); };
  world->lose(0);
  auto source = world->open(0);
  const u64 written = world->written(0).size();
  const Counters before = source->counters();
  add_up(before);
  if (books == Books::the_rings) {
    EXPECT_EQ(before.written, written);
    EXPECT_EQ(before.read, 0u);
    EXPECT_GT(before.overrun, 0u);
    EXPECT_GT(before.bytes, 0u);
  }
  Reading r = reading();
  for (bool more = true; more;) {
    more = r.next(*source);
    const Counters n = source->counters();
    add_up(n);
    if (books == Books::the_rings || books == Books::a_recorders) {
      EXPECT_EQ(n.written, written);
    }
  }
  const Counters after = source->counters();
  if (books == Books::none) {
    EXPECT_EQ(after.written, 0u);
  } else {
    EXPECT_EQ(after.written, written);
    EXPECT_EQ(after.overrun, written - r.events);
  }
  if (GetParam().counted == Counted::never && books == Books::the_rings) {
    EXPECT_EQ(after.read, 0u);
    EXPECT_EQ(after.unread, r.events);
  } else if (books != Books::none) {
    EXPECT_EQ(after.read, r.events);
    EXPECT_EQ(after.unread, 0u);
    EXPECT_LT(after.bytes, 28u) << "no more than padding";
  }
  const Shape shape = world->shape();
  EXPECT_EQ(after.subbuf_size, shape.subbuf_size);
  if (shape.nr_subbufs != 0) {
    EXPECT_EQ(after.nr_subbufs, shape.nr_subbufs);
  }
  if (shape.capacity_bytes != 0) {
    EXPECT_EQ(after.capacity_bytes, shape.capacity_bytes);
  }
}

TEST_P(SourceConformance, NameAndClockStayAsTheyAre) {
  world->write(0, several);
  auto source = world->open(0);
  const RingName name = source->name();
  const ClockInfo clock = source->clock();
  EXPECT_EQ(name.ring, world->number_of_ring(0));
  const auto expect_same = [&] {
    const RingName& n = source->name();
    EXPECT_EQ(std::tie(n.ring, n.pid, n.tid, n.task, n.process, n.kernel, n.buffer, n.cpu),
              std::tie(name.ring, name.pid, name.tid, name.task, name.process, name.kernel, name.buffer, name.cpu));
    const ClockInfo& c = source->clock();
    EXPECT_EQ(std::tie(c.kind, c.mult, c.shift, c.base_ticks, c.base_ns),
              std::tie(clock.kind, clock.mult, clock.shift, clock.base_ticks, clock.base_ns));
  };
  while (must(source->next())) expect_same();
  world->end();
  expect_nothing(*source);
  expect_same();
}

TEST_P(SourceConformance, EndsWithItsWriterAfterAllThatItWrote) {
  const Ends ends = GetParam().ends;
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  EXPECT_TRUE(r.next(*source));
  EXPECT_EQ(source->ended(), ends == Ends::at_once);
  world->end();
  r.rest(*source);
  r.expect_nothing_lost();
  expect_nothing(*source);
  EXPECT_EQ(source->ended(), ends != Ends::never);
  expect_nothing(*source);
  EXPECT_EQ(source->lag_ns() == 0, source->ended() && !GetParam().lags_at_end);
}

TEST_P(SourceConformance, TwoSourcesDoNotDisturbEachOther) {
  world->write(0, several / 2);
  world->write(1, several);
  world->write(0, GetParam().grows ? several / 2 : 0);
  auto first = world->open(0), second = world->open(1);
  Reading a = reading(0), b = reading(1);
  for (bool more = true; more && !HasFailure();) {
    more = a.next(*first);
    more = b.next(*second) || more;
  }
  a.expect_nothing_lost();
  b.expect_nothing_lost();
  EXPECT_EQ(first->name().ring, world->number_of_ring(0));
  EXPECT_EQ(second->name().ring, world->number_of_ring(1));
  first.reset();
  expect_nothing(*second);
}

TEST_P(SourceConformance, AViewThatNobodyWentOnFromIsConsumedWhenTheSourceIsClosed) {
  world->write(0, several);
  const u64 seen = first_view(*world->open(0));
  expect_next_reader_from(GetParam().counted == Counted::never ? 0 : seen);
}

TEST_P(SourceConformance, WhatIsPutBackIsTheNextReaders) {
  world->write(0, several);
  u64 seen = 0;
  {
    auto source = world->open(0);
    seen = first_view(*source);
    source->put_back();
  }
  expect_next_reader_from(GetParam().counted == Counted::at_once ? seen : 0);
}

TEST_P(SourceConformance, WhatIsConsumedCannotBePutBack) {
  world->write(0, several);
  u64 seen = 0;
  {
    auto source = world->open(0);
    seen = first_view(*source);
    source->consume();
    source->put_back();
  }
  expect_next_reader_from(GetParam().counted == Counted::never ? 0 : seen);
}

// ---- What those do whose counters are the ring's.

class SourceWithTheRingsBooks : public SourceConformance {};
INSTANTIATE_TEST_SUITE_P(Sources, SourceWithTheRingsBooks,
                         testing::ValuesIn(kinds_that([](const Kind& k) { return k.books == Books::the_rings; })),
                         name_of_kind);

TEST_P(SourceWithTheRingsBooks, EventsCountAsReadInTime) {
  const Counted counted = GetParam().counted;
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  u64 before = 0;
  while (r.next(*source)) {
    EXPECT_EQ(source->counters().read, counted == Counted::at_once ? r.events : counted == Counted::never ? 0 : before);
    before = r.events;
  }
  EXPECT_EQ(source->counters().read, counted == Counted::never ? 0 : several);
}

TEST_P(SourceWithTheRingsBooks, ConsumeCountsThemAtOnce) {
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  while (r.next(*source)) {
    source->consume();
    EXPECT_EQ(source->counters().read, GetParam().counted == Counted::never ? 0 : r.events);
    source->consume();  // again: nothing
    EXPECT_EQ(source->counters().read, GetParam().counted == Counted::never ? 0 : r.events);
  }
}

// ---- What those do that see more than there was when they were opened.

class GrowingSource : public SourceConformance {};
INSTANTIATE_TEST_SUITE_P(Sources, GrowingSource, testing::ValuesIn(kinds_that([](const Kind& k) { return k.grows; })),
                         name_of_kind);

TEST_P(GrowingSource, AnEmptyRingHasNothingNewUntilSomethingIsWritten) {
  auto source = world->open(0);
  expect_nothing(*source);
  EXPECT_EQ(source->counters().written, 0u);
  world->write(0, 3);
  Reading r = reading();
  r.rest(*source);
  r.expect_nothing_lost();
}

TEST_P(GrowingSource, WhatWasWrittenSinceComesNext) {
  auto source = world->open(0);
  Reading r = reading();
  for (const u64 count : {1, 2, 3, 50, 1, 90, 145, 1, 204, 205, 7, 340, 500, 1}) {
    world->write(0, count);
    r.rest(*source);
    r.expect_nothing_lost();
    expect_nothing(*source);
  }
}

TEST_P(GrowingSource, ViewsAndWritesAlternate) {
  auto source = world->open(0);
  Reading r = reading();
  for (u32 round = 0; round < 100; ++round) {
    world->write(0, 1 + round * 7 % 23);
    EXPECT_TRUE(r.next(*source));
  }
  r.rest(*source);
  r.expect_nothing_lost();
}

TEST_P(GrowingSource, EachLossIsToldWhereItWas) {
  auto source = world->open(0);
  Reading r = reading();
  for (const u64 count : {10, 5000, 1, 150, 3000, 160, 2}) {
    world->write(0, count);
    if (count == 150) EXPECT_TRUE(r.next(*source));  // the next loss comes behind a view
    else r.rest(*source);
  }
  r.rest(*source);
  r.expect_all();
  EXPECT_LT(r.events, world->written(0).size());
}

TEST_P(GrowingSource, AViewOutlivesTheLapsOfItsWriter) {
  world->write(0, several);
  auto source = world->open(0);
  const auto view = must(source->next());
  ASSERT_TRUE(view);
  const auto bytes = [&] {
    return std::string(reinterpret_cast<const char*>(view->sub_buffer) + abi::header_size + view->begin,
                       view->end - view->begin);
  };
  const std::string before = bytes();
  world->write(0, too_many);
  EXPECT_EQ(bytes(), before);
  Reading r = reading();
  r.take(*view);
  r.rest(*source);
  r.expect_all();
}

TEST_P(GrowingSource, AReaderGoesOnWhereTheLastOneStopped) {
  Reading r = reading();
  for (const u64 count : {100, 30, 700, 1, 20}) {
    world->write(0, count);
    auto source = world->open(0);
    if (GetParam().counted == Counted::never) r = reading();
    r.rest(*source);
    r.expect_nothing_lost();
  }
}

}  // namespace
}  // namespace ringside::test::source_conformance
