// A recording in progress: the data of its feeds, and each class of fault on the way.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "cli/hand_made.hpp"
#include "text/units.hpp"
#include "record/recording_run.hpp"
#include "record/source_feed.hpp"
#include "record/stream_feed.hpp"

namespace ringside::record_test {
namespace {

namespace fs = std::filesystem;
using test::Payload;
using test::SubBuffer;

// Returns the given answers: a view, nothing, or an error; counts how they are used.
class Scripted final : public Source {
 public:
  struct Step {
    std::optional<SubBufferView> view{};
    std::errc error{};
    std::string sentence{};
  };
  Scripted(u32 ring, std::vector<Step> steps, u64 written) : steps_(std::move(steps)) {
    name_.ring = ring;
    counters_.subbuf_size = 4096;
    counters_.nr_subbufs = 8;
    counters_.written = written;
  }
  result<std::optional<SubBufferView>> next() override {
    if (at_ == steps_.size()) return std::nullopt;
    const Step& step = steps_[at_++];
    if (step.error != std::errc{}) return refuse(step.error, step.sentence);
    return step.view;
  }
  void consume() override { ++consumed; }
  void put_back() override { ++put_backs; }
  Counters counters() const override {
    Counters c = counters_;
    c.read = read;
    c.unread = c.written - c.read;
    return c;
  }
  bool ended() const override { return at_ == steps_.size(); }
  u64 consumed = 0, put_backs = 0, read = 0;
  void refuse_at_least(u64 events) {
    counters_.dropped = events;
    counters_.refusals = Refusals::at_least;
  }

 private:
  std::vector<Step> steps_;
  size_t at_ = 0;
  Counters counters_;
};

struct Recordings : testing::Test {
  std::string dir = (fs::temp_directory_path() / ("ringside-record-" + std::to_string(getpid()))).string();
  void SetUp() override { fs::remove_all(dir); }
  void TearDown() override { fs::remove_all(dir); }

  std::vector<std::unique_ptr<SubBuffer>> made;
  SubBufferView events(u64 time, u32 count, u64 lost = 0) {
    auto& sub_buffer = made.emplace_back(std::make_unique<SubBuffer>(time));
    for (u32 i = 0; i < count; ++i) sub_buffer->event(time + i, Payload(1, 7).put(u64{i}));
    return sub_buffer->view(lost);
  }
  SubBufferView malformed() {
    auto& sub_buffer = made.emplace_back(std::make_unique<SubBuffer>(5));
    sub_buffer->event(5, Payload(1, 7).put(u64{1})).word(0).word(4000);  // an event that is longer than the data
    return sub_buffer->view();
  }
  Scripted* add(SourceFeed& feed, u32 ring, std::vector<Scripted::Step> steps, u64 written = 0) {
    auto source = std::make_unique<Scripted>(ring, std::move(steps), written);
    Scripted* const raw = source.get();
    const RingName name = raw->name();
    feed.add({std::move(source), name});
    return raw;
  }
  std::unique_ptr<RecordingRun> run(Feed& feed) {
    auto made_run = must(RecordingRun::create(dir, ClockInfo{}));
    must(made_run->add(feed));
    return made_run;
  }
};

TEST_F(Recordings, AMalformedSubBufferIsSkippedCountedAndNamed) {
  SourceFeed feed({});
  Scripted* const source = add(feed, 3, {{events(10, 4)}, {malformed()}, {malformed()}, {events(30, 5)}});
  auto r = run(feed);
  must(r->finish());
  EXPECT_EQ(r->events(), 9u);
  EXPECT_EQ(source->consumed, 4u);
  ASSERT_EQ(r->account().doubts.size(), 1u);
  EXPECT_NE(r->account().doubts[0].find("ring3.raw"), std::string::npos) << r->account().doubts[0];
  EXPECT_NE(r->account().doubts[0].find("2 such sub-buffers were skipped"), std::string::npos) << r->account().doubts[0];
  EXPECT_FALSE(must(RecordingMeta::read(dir)).account.proved());
}

TEST_F(Recordings, ASourceThatFailsEndsWithItsClosingCountersAndTheOthersGoOn) {
  SourceFeed feed({});
  Scripted* const broken =
      add(feed, 1, {{events(10, 4)}, {{}, std::errc::io_error, "ring 1 is broken"}, {events(20, 100)}}, 104);
  add(feed, 2, {{events(10, 1)}, {}, {events(40, 2)}});
  broken->read = 4;
  auto r = run(feed);
  must(r->finish());
  EXPECT_EQ(r->events(), 4u + 3u);
  EXPECT_EQ(broken->consumed, 1u);
  EXPECT_EQ(r->account().doubts, std::vector<std::string>{"ring 1 is broken"});
  const RecordingMeta meta = must(RecordingMeta::read(dir));
  EXPECT_TRUE(meta.complete);
  EXPECT_EQ(meta.rings.at(0).counters.written, 104u);
  EXPECT_EQ(meta.rings.at(0).counters.unread, 100u);
}

TEST_F(Recordings, ASilentSourceHasEnded) {
  SourceFeed feed({});
  add(feed, 1, {{events(10, 4)}, {{}, std::errc::timed_out, "ring 1 does not answer"}, {events(20, 4)}});
  auto r = run(feed);
  must(r->finish());
  EXPECT_EQ(r->events(), 4u);
  EXPECT_EQ(r->account().doubts, std::vector<std::string>{"ring 1 does not answer"});
}

// All that was stored is proved; how much was not is a lower bound.
TEST_F(Recordings, RefusedEventsThatAWriterDoesNotTellAreALowerBound) {
  for (const u64 told : {u64{0}, u64{5}}) {
    SourceFeed feed({});
    add(feed, 1, {{events(10, 4)}}, 4)->refuse_at_least(told);
    add(feed, 2, {{events(10, 4)}}, 4);
    fs::remove_all(dir);
    auto r = run(feed);
    must(r->finish());
    const Account account = must(RecordingMeta::read(dir)).account;
    EXPECT_EQ(account.refused.sum(), told);
    EXPECT_TRUE(account.refused_at_least);
    EXPECT_TRUE(account.proved());
    EXPECT_FALSE(account.none_lost());
    EXPECT_EQ(lost_count(account), told == 0 ? "perhaps some" : "5 or more");
    EXPECT_EQ(lost_count(r->account()), lost_count(account));
  }
}

TEST_F(Recordings, AFullDiskPutsBackAndEndsTheRecording) {
  SourceFeed feed({});
  std::vector<Scripted::Step> steps(8);
  for (auto& step : steps) step.view = events(10, 100);
  Scripted* const source = add(feed, 1, std::move(steps), 800);
  auto r = run(feed);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{16384, before.rlim_max};
  const auto signalled = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const auto finished = r->finish();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, signalled);
  ASSERT_FALSE(finished);
  EXPECT_EQ(source->put_backs, 1u);
  EXPECT_EQ(source->consumed * 100, r->events());
  EXPECT_GT(r->events(), 0u);
  EXPECT_EQ(r->account().unrecorded, 800 - r->events());
  ASSERT_EQ(r->account().doubts.size(), 1u);
  EXPECT_NE(r->account().doubts[0].find("the recording ends there"), std::string::npos) << r->account().doubts[0];
}

TEST_F(Recordings, WithoutMemoryASubBufferGoesBackAsWithAFullDisk) {
  SourceFeed feed({});
  Scripted* const source = add(feed, 1, {{events(10, 4)}, {events(20, 4)}}, 8);
  auto r = run(feed);
  Taken taken;
  const auto no_memory = [](const SubBufferView&) -> SubBufferView { throw std::bad_alloc(); };
  EXPECT_EQ(r->take(*source, 1, 100, taken, 0, no_memory), Drained::some);
  EXPECT_EQ(source->put_backs, 1u);
  EXPECT_EQ(source->consumed, 0u);
  EXPECT_TRUE(r->failed());
  EXPECT_FALSE(r->finish());
  EXPECT_EQ(r->account().unrecorded, 8u);
  ASSERT_EQ(r->account().doubts.size(), 1u);
  EXPECT_EQ(r->account().doubts[0], "there is not enough memory to record; the recording ends there");
}

// A program declared an event late: it goes back, for the next reader.
TEST_F(Recordings, AnEventWhoseFormatFindsNoRoomIsNotTaken) {
  SourceFeed feed({});
  Scripted* const source = add(feed, 1, {{events(10, 4)}, {events(20, 4)}}, 8);
  auto r = run(feed);
  Taken taken;
  const auto full = [&](const SubBufferView& view) {
    r->faults().full({std::make_error_code(std::errc::no_space_on_device), "meta.json finds no room"});
    return view;
  };
  EXPECT_EQ(r->take(*source, 1, 100, taken, 0, full), Drained::some);
  EXPECT_EQ(source->put_backs, 1u);
  EXPECT_EQ(source->consumed, 0u);
  EXPECT_EQ(r->events(), 0u);
}

TEST_F(Recordings, TheDestructorFinishesARecording) {
  SourceFeed feed({{1, "app", "tick", test::format(1, "tick", "", "\"\""), true}}, {{0, 7, 7, "worker", "app"}});
  Scripted* const source = add(feed, 1, {{events(10, 4)}}, 4);
  source->read = 4;
  run(feed)->poll();
  const RecordingMeta meta = must(RecordingMeta::read(dir));
  EXPECT_TRUE(meta.complete);
  EXPECT_EQ(meta.rings.at(0).events, 4u);
  EXPECT_EQ(meta.totals.written, 4u);
  EXPECT_EQ(meta.events.size(), 1u);
  EXPECT_EQ(meta.threads.at(0).task, "worker");
}

// Found by the storm of edges under RLIMIT_AS: an exception of the destructor's own ended the process.
TEST_F(Recordings, WithoutMemoryForItsEndItStaysAsAKilledRecorderLeavesOne) {
  struct NoMemory final : Feed {
    result<void> begin(RecordingRun&) override { return {}; }
    bool poll(RecordingRun&) override { throw std::bad_alloc(); }
    void describe(RecordingMeta&) override {}
    Counters close(RecordingRun&) override { return {}; }
  } feed;
  {
    auto run = must(RecordingRun::create(dir, ClockInfo{}));
    must(run->add(feed));
    EXPECT_THROW(run->poll(), std::bad_alloc);
  }
  EXPECT_FALSE(must(RecordingMeta::read(dir)).complete);
}

// The events are left to the next recorder.
TEST_F(Recordings, ARecordingGivenUpBeforeItBeganTakesNothing) {
  SourceFeed feed({});
  Scripted* const source = add(feed, 1, {{events(10, 4)}}, 4);
  (void)run(feed);
  EXPECT_EQ(source->consumed, 0u);
  const RecordingMeta meta = must(RecordingMeta::read(dir));
  EXPECT_TRUE(meta.complete);
  EXPECT_FALSE(meta.account.proved());
  EXPECT_EQ(meta.account.unrecorded, 4u);
}

TEST_F(Recordings, LossesAreCountedOnce) {
  SourceFeed feed({});
  add(feed, 1, {{events(10, 4, 6)}, {events(20, 1, 2)}});
  auto r = run(feed);
  must(r->finish());
  EXPECT_EQ(r->account().overrun, 8u);
  EXPECT_EQ(r->account().lost(), 8u);
}

TEST_F(Recordings, TimesOfAClockThatIsAheadAreMovedBack) {
  SourceFeed feed({});
  auto source = std::make_unique<Scripted>(1, std::vector<Scripted::Step>{{events(1000, 1)}}, 1);
  const RingName name = source->name();
  feed.add({std::move(source), name, 400});
  auto r = run(feed);
  must(r->finish());
  const auto sources = must(open_recording(dir, must(RecordingMeta::read(dir))));
  EXPECT_EQ(must(sources.at(0)->next())->time, 600u);
}

// A hello of another version will never be understood; a damaged one may come whole the next time.
TEST(StreamFeeds, AnUnknownVersionEndsTheLineAndADamagedHelloDoesNot) {
  remote::StreamHello hello{2, 0, 4096, 0, 0};
  remote::Frame frame{};
  frame.head.kind = remote::FrameKind::hello;
  frame.head.bytes = sizeof hello;
  frame.payload = reinterpret_cast<const u8*>(&hello);
  StreamFeed feed;
  const auto other = feed.hear(frame);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().sentence.find("has version 2"), std::string::npos) << other.error().sentence;
  frame.head.bytes = 3;
  EXPECT_TRUE(feed.hear(frame));
  EXPECT_EQ(feed.unheard().problems().size(), 1u);
}

TEST(Faults, AreKeptUpToABound) {
  Faults faults;
  for (int n = 0; n < 10'005; ++n) faults.problem("problem " + std::to_string(n));
  EXPECT_EQ(faults.problems().size(), 10'000u);
  EXPECT_EQ(faults.doubts().back(), "and 5 more problems of that kind");
}

}  // namespace
}  // namespace ringside::record_test
