// The loop over events, by a clock that the test sets.
#include "consumer/reading.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <ringside/trace.hpp>
#include <thread>

#include "own_root.hpp"
#include "random_recording.hpp"
#include "sys/json.hpp"
#include "sys/sys.hpp"

RINGSIDE_EVENT(loop, step, (u64, n));

namespace ringside::reading_test {
namespace {

using Got = Reading::Got;
constexpr u64 ms = 1'000'000;

struct ReadingTest : testing::Test {
  test::OwnRoot root;
  const std::string& dir = root.path();
  u64 now = 1000 * ms;
  bool over = false;
  std::vector<u64> sleeps;
  std::function<void()> asleep = [] {};

  Reading::Options options(const std::string& where) {
    Reading::Options o;
    o.where = {where};
    o.time.now = [this] { return now; };
    o.time.over = [this] { return over; };
    o.time.sleep = [this](u64 ns) {
      sleeps.push_back(ns);
      now += ns;
      asleep();
    };
    return o;
  }
  std::unique_ptr<Instance> instance() {
    InstanceOptions o;
    o.name = "a";
    o.rings = Rings::thread;
    auto made = must(Instance::create(o));
    EXPECT_EQ(ringside_open("a"), 0);
    return made;
  }
};

// The kernel's names stand in the recording that has the kernel's events; another one beside it has none.
TEST_F(ReadingTest, NamesOfTheKernelsFunctionsAreThoseOfTheRecordingThatHasThem) {
  for (const char* name : {"/kernel", "/program"}) {
    auto w = must(test::malloc_and_packets(dir + name));
    if (std::string_view(name) == "/kernel") must(w.keep("kallsyms", "ffffffff81000000 T do_it\nffffffff81000100 T end\n"));
    must(w.finish(1));
  }
  for (const bool first : {true, false}) {
    Reading::Options o = options(dir + (first ? "/kernel" : "/program"));
    o.where.push_back(dir + (first ? "/program" : "/kernel"));
    const auto reading = must(Reading::open(std::move(o)));
    const Symbols::Symbol* const symbol = reading->trace().formats.symbols().find(0xffffffff81000010);
    ASSERT_NE(symbol, nullptr) << first;
    EXPECT_EQ(symbol->name, "do_it");
  }
}

// Only what occurs: a kernel may have formats that nobody here understands, and nobody asks for.
TEST_F(ReadingTest, AFormatThatCannotBeUnderstoodIsTold) {
  for (const u16 id : {1, 2}) {
    const std::string where = dir + "/r" + std::to_string(id);
    auto w = must(test::malloc_and_packets(where));
    w.meta().events[0].format = "name: malloc\nrubbish";
    test::SubBuffer page(1000);
    page.event(2000, test::Payload(id, 4711).put(u64{1}).put(u64{2}));
    must(w.append(id == 1 ? 0 : 3, page.view(0)));
    must(w.finish(1));
    const auto reading = must(Reading::open(options(where)));
    const Formats& formats = reading->trace().formats;
    reading->run([&](const TraceRecord& record, const RingName&, Got) { (void)formats.find(record.number())->format(); });
    (void)reading->each_new_problem([](const std::string& problem) { ADD_FAILURE() << problem; });
    std::vector<std::string> told;
    if (id == 1) told.emplace_back("the format of libc:malloc cannot be understood: line 2 (rubbish) is no field; "
                                    "its fields appear as hex");
    EXPECT_EQ(reading->trace().notices, told);
  }
}

// Readings of one recording in several threads.
TEST(Formats, AnyThreadMayAskFirst) {
  Formats f;
  for (u32 id = 1; id <= 100; ++id) f.add(id, "libc", "malloc", test::malloc_format(static_cast<u16>(id)));
  std::atomic<u32> fields{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (const auto& type : f.all()) fields += static_cast<u32>(type->fields().size());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fields, 4 * 100 * 2u);
}

// Every event once, whatever is wanted of it, and the totals say so.
TEST_F(ReadingTest, OfARecording) {
  const u64 events = test::random_recording(dir + "/r", ClockInfo{}, 3, 4096);
  Reading::Options o = options(dir + "/r");
  o.only = must(EventPatterns::parse("app:numbers"));
  o.filter = "a > 100";
  const auto reading = must(Reading::open(std::move(o)));
  u64 n[4] = {}, lost = 0;
  reading->run([&](const TraceRecord& record, const RingName& ring, Got got) {
    ++n[static_cast<int>(got)];
    lost += record.lost;
    EXPECT_EQ(got == Got::gap, record.lost != 0);
    EXPECT_EQ(&ring, &reading->ring(record));
    if (got == Got::event) {
      EXPECT_EQ(reading->trace().formats.find(record.number())->name, "numbers");
    }
  });
  const auto count = [&](Got got) { return n[static_cast<int>(got)]; };
  EXPECT_GT(count(Got::event), 0u);
  EXPECT_GT(count(Got::gap), 0u);
  EXPECT_EQ(count(Got::event) + count(Got::other), events);
  EXPECT_EQ(reading->totals().seen(), events);
  EXPECT_EQ(reading->totals().account.read, count(Got::event));
  EXPECT_EQ(reading->totals().account.overrun, lost);
  EXPECT_EQ(reading->complete().account.overrun, lost);
  EXPECT_GT(reading->totals().seconds(), 0);
  EXPECT_FALSE(reading->wait());
  EXPECT_TRUE(sleeps.empty());
  EXPECT_FALSE(reading->cut());
}

TEST_F(ReadingTest, WhatIsCutShortIsMissing) {
  const u64 events = test::random_recording(dir + "/r", ClockInfo{}, 16, 4096);
  ASSERT_GT(events, 2048u);
  const auto reading = must(Reading::open(options(dir + "/r")));
  EXPECT_FALSE(reading->take([](const auto&...) {}, [] { return true; }));
  EXPECT_FALSE(reading->cut());  // it may go on
  over = true;
  reading->take_rest([](const auto&...) {});
  EXPECT_TRUE(reading->cut());
  EXPECT_LT(reading->totals().seen(), events);
  EXPECT_FALSE(reading->complete().account.doubts.empty());
  over = false;
  reading->take_rest([](const auto&...) {});
  EXPECT_EQ(reading->totals().seen(), events);
  EXPECT_TRUE(reading->complete().account.doubts.empty());
}

TEST_F(ReadingTest, NewEventsUntilItIsOver) {
  const auto made = instance();
  loop::step(0);
  const auto reading = must(Reading::open(options("a")));
  reading->follow(100 * ms);
  asleep = [&] {
    loop::step(sleeps.size());
    over = sleeps.size() == 3;
  };
  u64 seen = 0;
  reading->run([&](const TraceRecord& record, const RingName&, Got got) {
    ASSERT_EQ(got, Got::event);
    u64 n = 0;
    std::memcpy(&n, record.payload.data + 8, sizeof n);
    EXPECT_EQ(n, seen++);
  });
  EXPECT_EQ(seen, 4u);  // also the last one, which came when it was over
  EXPECT_TRUE(reading->stopped());
  EXPECT_EQ(sleeps, (std::vector<u64>{10 * ms, 10 * ms, 10 * ms}));
  EXPECT_FALSE(reading->wait());
}

// A recorder that consumes takes events from under a reading of the same rings: they are missing in it, and not lost.
TEST_F(ReadingTest, EventsThatAnotherReaderTook) {
  const auto made = instance();
  loop::step(0);
  const auto reading = must(Reading::open(options("a")));
  reading->follow(100 * ms);
  reading->begin_books();
  u64 steps = 1;
  asleep = [&] {
    over = sleeps.size() == 3;
    while (steps < 1000 * sleeps.size()) loop::step(steps++);
    if (sleeps.size() != 2) return;
    for (const RingInfo& ring : made->rings()) {
      const auto recorder = must(made->source(ring.name.ring));
      while (must(recorder->next())) continue;
    }
  };
  reading->run([](const auto&...) {});
  EXPECT_GT(reading->totals().account.overrun, 0u);
  EXPECT_EQ(reading->totals().seen() + reading->totals().account.overrun, steps);
  EXPECT_EQ(reading->taken_by_others(), reading->totals().account.overrun);
}

// The last events of a ring leave no gap behind them; a ring that is given back, or emptied, leaves nothing at all.
TEST_F(ReadingTest, EventsThatAnotherReaderTookAtTheEndOfARing) {
  const auto made = instance();
  loop::step(0);
  const auto take_all = [&] {
    for (const RingInfo& ring : made->rings()) {
      const auto recorder = must(made->source(ring.name.ring));
      while (must(recorder->next())) continue;
    }
  };
  u64 steps = 1;
  const auto write = [&](u64 n) {
    for (; n != 0; --n) loop::step(steps++);
  };
  const auto in_another_thread = [&] { std::thread(write, 100).join(); };
  // What stands between the reader's looks.
  const std::vector<std::function<void()>> between{
      [&] { write(10), take_all(); },
      [&] { write(20), take_all(), write(5); },
      [&] { in_another_thread(), take_all(); },
      [&] { in_another_thread(); },
      [&] { in_another_thread(), take_all(), made->trim(false); },  // a ring that it never saw
      [&] { in_another_thread(); },
      [&] { write(7), must(made->snapshot()); },
      [&] { write(3), must(made->reset()); },
      [&] { in_another_thread(), write(2), must(made->reset()); },
      [&] { write(1000), take_all(); }};
  for (size_t n = 0; n < 2 * between.size(); ++n) {
    const size_t last = n / 2 + 1;
    take_all();
    over = false;
    sleeps.clear();
    steps = 1;
    const auto reading = must(Reading::open(options("a")));
    reading->follow(100 * ms);
    if (n % 2 == 0) reading->begin_books();
    asleep = [&] {
      between[sleeps.size() - 1]();
      over = sleeps.size() == last;
    };
    reading->run([](const auto&...) {});
    const Totals& totals = reading->complete();
    const u64 lost = totals.account.overrun;
    EXPECT_EQ(totals.seen() + lost, steps - 1) << last;
    EXPECT_EQ(reading->taken_by_others(), lost) << last;
    EXPECT_EQ(reading->complete().account.overrun, lost) << "once";
    EXPECT_FALSE(totals.account.none_lost()) << last;
  }
}

// A ring that always has more.
class Busy final : public Source {
 public:
  Busy() {
    for (int n = 0; n < 100; ++n) page_.event(1000, test::Payload(1, 4711).put(u64{1}).put(u64{2}));
  }
  result<std::optional<SubBufferView>> next() override { return page_.view(0); }
  Counters counters() const override { return {}; }
  bool ended() const override { return false; }

 private:
  test::SubBuffer page_{1000};
};

// Events that come faster than they are read leave no time to wait.
TEST_F(ReadingTest, EndsWhileMoreAndMoreEventsCome) {
  const auto made = instance();
  for (const bool has_duration : {true, false}) {
    const auto reading = must(Reading::open(options("a")));
    reading->trace().timeline.add(std::make_unique<Busy>());
    over = false;
    reading->follow(100 * ms, has_duration ? 5 * ms : 0);
    const u64 begin = now;
    TraceRecord record;
    u64 seen = 0;
    for (; !reading->stopped() && seen < 100'000; ++seen) {
      ASSERT_NE(reading->next(record), Got::nothing);
      now += 1000;
      over = !has_duration && now - begin >= 5 * ms;
    }
    EXPECT_TRUE(reading->stopped());
    EXPECT_GE(seen, 5000u);
    EXPECT_LE(seen, 5000u + 1024);
    EXPECT_TRUE(sleeps.empty());
  }
}

// It looks every so often, sooner after a check that took long, and never sleeps past the end nor `until`.
TEST_F(ReadingTest, HowLongItSleeps) {
  const auto made = instance();
  const auto reading = must(Reading::open(options("a")));
  reading->follow(100 * ms, 30 * ms);
  const u64 start = now;
  EXPECT_TRUE(reading->wait(10 * ms));
  now += 4 * ms;
  EXPECT_TRUE(reading->wait(10 * ms));
  now += 9 * ms;
  EXPECT_TRUE(reading->wait(10 * ms, now + ms / 2));
  EXPECT_EQ(sleeps, (std::vector<u64>{10 * ms, 6 * ms, ms / 2}));
  EXPECT_FALSE(reading->stopped());
  while (!reading->stopped()) ASSERT_TRUE(reading->wait(10 * ms));
  EXPECT_EQ(now, start + 30 * ms);
  const size_t slept = sleeps.size();
  EXPECT_FALSE(reading->wait(10 * ms));
  EXPECT_EQ(sleeps.size(), slept);
}

// Notices go to the caller that asked for them, else they stay; problems are told once.
TEST_F(ReadingTest, NoticesAndProblems) {
  test::random_recording(dir + "/r", ClockInfo{}, 1, 4096);
  test::random_recording(dir + "/s", ClockInfo{}, 2, 4096);
  Reading::Options o = options(dir + "/r");
  o.where.push_back(dir + "/s");
  o.verbose = true;
  const auto silent = must(Reading::open(o));
  EXPECT_FALSE(silent->trace().notices.empty());
  size_t told = 0;
  o.notices = [&](const std::vector<std::string>& notices) { told += notices.size(); };
  const auto loud = must(Reading::open(o));
  EXPECT_EQ(told, silent->trace().notices.size());
  EXPECT_TRUE(loud->trace().notices.empty());
  loud->trace().timeline.add_problem("one");
  size_t problems = 0;
  const auto count = [&](const std::string&) { ++problems; };
  EXPECT_EQ(loud->each_new_problem(count), 1u);
  EXPECT_EQ(loud->each_new_problem(count), 1u);
  EXPECT_EQ(problems, 1u);
}

// Two recordings with a pause between them are two runs; a third one that both overlap joins them.
TEST_F(ReadingTest, RecordingsThatOverlapAreOneRun) {
  const auto made = [&](const std::string& name, u64 start, u64 stop) {
    test::random_recording(dir + "/" + name, ClockInfo{}, static_cast<u32>(start), 4096);
    auto meta = nlohmann::json::parse(must(sys::read_file(dir + "/" + name + "/meta.json")));
    meta["start_ns"] = start, meta["stop_ns"] = stop;
    std::ofstream(dir + "/" + name + "/meta.json") << meta;
  };
  made("whole", 100, 1000);
  made("early", 200, 300);
  made("late", 400, 500);
  const auto runs = [&](std::initializer_list<const char*> names) {
    Reading::Options o = options(dir + "/" + *names.begin());
    for (auto name = names.begin() + 1; name != names.end(); ++name) o.where.push_back(dir + "/" + *name);
    return must(Reading::open(o))->trace().tasks.several_runs();
  };
  EXPECT_TRUE(runs({"early", "late"}));
  EXPECT_FALSE(runs({"whole", "early", "late"}));
  EXPECT_FALSE(runs({"early", "late", "whole"}));
  EXPECT_FALSE(runs({"whole", "late"}));
}

}  // namespace
}  // namespace ringside::reading_test
