// The public consumer, in C++ and C, against events recorded by hand.
#include <ringside/consumer.h>

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <ringside/consumer.hpp>
#include <set>
#include <thread>

#include "cli/hand_made.hpp"
#include "consumer/reading.hpp"
#include "kernel/tracefs_instance.hpp"
#include "random_recording.hpp"
#include "sys/json.hpp"
#include "sys/sys.hpp"

namespace ringside::consumer_test {
namespace {

struct ConsumerTest : testing::Test {
  const std::string dir = (std::filesystem::temp_directory_path() / ("ringside-consumer-" + std::to_string(getpid()))).string();
  u64 events = 0;
  void SetUp() override {
    std::filesystem::remove_all(dir);
    events = test::random_recording(dir, ClockInfo{}, 3, 4096, test::Of::both);
  }
  void TearDown() override { std::filesystem::remove_all(dir); }
  Consumer open(const std::string& filter = "") {
    Consumer::Options options;
    options.where = {dir};
    options.filter = filter;
    return must(Consumer::open(options));
  }
};

TEST_F(ConsumerTest, EveryEventOnceInOrder) {
  Consumer consumer = open();
  u64 n = 0, lost = 0, last = 0;
  consumer.run([&](const Event& e) {
    EXPECT_GE(e.time, last);
    last = e.time;
    lost += e.lost;
    if (e.lost != 0) return;
    ++n;
    EXPECT_FALSE(consumer.name(e).empty());
    EXPECT_NE(consumer.text(e).find(std::string(consumer.name(e)).substr(consumer.name(e).find(':') + 1) + ":"),
              std::string::npos)
        << consumer.text(e);
  });
  EXPECT_EQ(n, events);
  EXPECT_EQ(consumer.events(), events);
  EXPECT_EQ(consumer.lost(), lost);
  EXPECT_EQ(consumer.late(), 0u);
  EXPECT_TRUE(consumer.problems().empty());
  Event e;
  EXPECT_FALSE(consumer.next(e));
  EXPECT_FALSE(consumer.wait());
}

TEST_F(ConsumerTest, FieldsColumnsAndHistsAgree) {
  Consumer consumer = open();
  const auto b = must(consumer.field<short>("app:numbers", "b"));
  const auto d = must(consumer.field<i64>("app:numbers", "d"));
  const auto name = must(consumer.field<std::string_view>("app:texts", "name"));
  const auto more = must(consumer.field<std::string_view>("app:texts", "more"));
  auto b_column = must(consumer.column("app:numbers/b"));
  auto name_column = must(consumer.column("app:texts/name"));
  auto hist = must(consumer.hist({"event"}, {"c"}));
  u64 numbers = 0, texts = 0, with_c = 0;
  double sum = 0;
  consumer.run([&](const Event& e) {
    with_c += hist.add(e);
    if (b.in(e)) {
      ++numbers;
      EXPECT_EQ(b_column.number(e), std::optional<i64>(b(e)));
      EXPECT_EQ(name_column.text(e), std::nullopt);
      EXPECT_NE(consumer.text(e).find("d=" + std::to_string(d(e))), std::string::npos) << consumer.text(e);
      EXPECT_EQ(b_column.real(e), std::optional<double>(b(e)));
    }
    if (name.in(e)) {
      ++texts;
      EXPECT_EQ(name(e), "short");
      EXPECT_EQ(more(e), "four");
      EXPECT_EQ(name_column.text(e), std::optional<std::string_view>("short"));
    }
  });
  EXPECT_GT(numbers, 0u);
  EXPECT_GT(texts, 0u);
  u64 counted = 0;
  for (const auto& row : hist.rows()) {
    counted += row.count;
    sum += row.values[0].sum();
  }
  EXPECT_EQ(counted, with_c);
  EXPECT_GT(sum, 0);
  EXPECT_EQ(hist.evicted_keys(), 0u);
}

TEST_F(ConsumerTest, FiltersAndErrors) {
  Consumer all = open();
  u64 expected = 0, got = 0;
  const auto a = must(all.field<unsigned>("app:numbers", "a"));
  all.run([&](const Event& e) { expected += a.in(e) && a(e) > 100; });
  Consumer some = open("source == program && event == numbers && a > 100");
  some.run([&](const Event& e) { got += e.lost == 0; });
  EXPECT_EQ(got, expected);
  EXPECT_GT(got, 0u);

  const auto sentence = [](const auto& r) { return r ? std::string("fine") : r.error().sentence; };
  EXPECT_NE(sentence(some.field<int>("app:nothing", "a")).find("there is no event \"app:nothing\""), std::string::npos);
  EXPECT_NE(sentence(some.field<int>("app:numbers", "z")).find("but a, b, c, d"), std::string::npos);
  EXPECT_NE(
      sentence(some.field<int>("app:numbers", "d")).find("an integer of 8 bytes, which an integer of 4 bytes cannot hold"),
      std::string::npos);
  EXPECT_NE(sentence(some.field<int>("app:texts", "name")).find("is a text"), std::string::npos);
  EXPECT_NE(sentence(some.field<std::string_view>("app:numbers", "a")).find("is an integer"), std::string::npos);
  EXPECT_NE(sentence(some.column("nothing")).find("no event here has a field"), std::string::npos);
  EXPECT_NE(sentence(some.latency({.start = "app:numbers"})), "fine");
  Consumer::Options nowhere;
  nowhere.where = {dir + "/nowhere"};
  EXPECT_FALSE(Consumer::open(nowhere));
  nowhere.where = {dir};
  nowhere.filter = "a >";
  EXPECT_FALSE(Consumer::open(nowhere));
}

TEST_F(ConsumerTest, FieldsByOnePath) {
  Consumer consumer = open();
  const auto by_path = must(consumer.field<short>("app:numbers/b"));
  const auto by_names = must(consumer.field<short>("app:numbers", "b"));
  u64 same = 0;
  consumer.run([&](const Event& e) { same += by_path.in(e) && by_names.in(e) && by_path(e) == by_names(e); });
  EXPECT_GT(same, 0u);
  const auto wrong = consumer.field<int>("app:numbers");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().sentence, "'app:numbers' names no field: write EVENT/FIELD, as in sched:sched_switch/prev_comm");
}

// What was made of a consumer holds on to what it has opened.
TEST_F(ConsumerTest, MayBeMovedAndMayGoFirst) {
  std::optional<Consumer> first(open());
  const auto name = must(first->field<std::string_view>("app:texts/name"));
  auto column = must(first->column("app:numbers/b"));
  auto hist = must(first->hist({"event"}, {"c"}));
  auto latency = must(first->latency({.start = "app:numbers", .end = "app:texts", .by = "event"}));
  std::optional<Consumer> second(std::move(*first));
  first.reset();
  Event text, number;
  std::vector<u8> text_bytes, number_bytes;
  second->run([&](const Event& e) {
    hist.add(e);
    latency.add(e);
    Event& kept = name.in(e) ? text : number;
    std::vector<u8>& copy = name.in(e) ? text_bytes : number_bytes;
    if (e.lost != 0 || (!name.in(e) && !column.number(e))) return;
    copy.assign(e.data, e.data + e.size);
    kept = e;
    kept.data = copy.data();
  });
  const u64 events_before = second->events();
  second.reset();
  EXPECT_GT(events_before, 0u);
  EXPECT_EQ(name(text), "short");
  EXPECT_TRUE(column.number(number));
  const auto rows = hist.rows();
  ASSERT_FALSE(rows.empty());
  EXPECT_FALSE(rows[0].key[0].empty());
  EXPECT_GT(latency.counts().pairs, 0u);
  const auto groups = latency.groups();
  ASSERT_FALSE(groups.empty());
  EXPECT_EQ(groups[0].times.count() > 0, true);
}

TEST_F(ConsumerTest, TheCFormMayBeClosedInAnyOrder) {
  char error[64] = "";
  const char* const where[] = {dir.c_str(), nullptr};
  ringside_consumer_options options{};
  options.where = where;
  ringside_consumer* c = ringside_consumer_open(&options, error, sizeof error);
  ASSERT_NE(c, nullptr) << error;
  ringside_hist* hist = ringside_hist_open(c, "event", nullptr, error, sizeof error);
  ringside_latency* waits = ringside_latency_open(c, "app:numbers", "app:texts", nullptr, nullptr, error, sizeof error);
  ringside_consumer_event event;
  u64 ns = 0;
  while (ringside_consumer_next(c, &event)) {
    ringside_hist_add(hist);
    ringside_latency_add(waits, &ns);
  }
  ringside_consumer_close(c);
  EXPECT_FALSE(ringside_hist_add(hist));
  EXPECT_FALSE(ringside_latency_add(waits, &ns));
  EXPECT_GT(ringside_hist_sort(hist), 0u);
  EXPECT_GT(ringside_latency_count(waits), 0u);
  ringside_hist_close(hist);
  ringside_latency_close(waits);
}

TEST_F(ConsumerTest, TheCFormGivesTheSame) {
  Consumer consumer = open();
  auto latency = must(consumer.latency({.start = "app:numbers", .end = "app:texts"}));
  std::vector<std::string> lines;
  u64 pairs = 0;
  consumer.run([&](const Event& e) {
    lines.push_back(consumer.text(e));
    pairs += latency.add(e).has_value();
  });
  EXPECT_EQ(latency.counts().pairs, pairs);

  char error[64];
  const char* const where[] = {dir.c_str(), nullptr};
  ringside_consumer_options options{};
  options.where = where;
  ringside_consumer* c = ringside_consumer_open(&options, error, sizeof error);
  ASSERT_NE(c, nullptr) << error;
  const int number = ringside_consumer_column(c, "app:numbers/b", error, sizeof error);
  const int text = ringside_consumer_column(c, "app:texts/name", error, sizeof error);
  ASSERT_GE(number, 0);
  ASSERT_GE(text, 0);
  EXPECT_EQ(
      ringside_consumer_column(c, "app:numbers/nothing_of_that_name_is_there_at_all_not_even_nearly", error, sizeof error), -1);
  EXPECT_EQ(std::strlen(error), sizeof error - 1);
  ringside_hist* hist = ringside_hist_open(c, "task,event", "a", error, sizeof error);
  ringside_latency* waits = ringside_latency_open(c, "app:numbers", "app:texts", nullptr, nullptr, error, sizeof error);
  ASSERT_NE(hist, nullptr) << error;
  ASSERT_NE(waits, nullptr) << error;
  ringside_consumer_event event;
  size_t n = 0;
  u64 added = 0, ns = 0, c_pairs = 0;
  do {
    while (ringside_consumer_next(c, &event)) {
      ASSERT_LT(n, lines.size());
      EXPECT_EQ(ringside_consumer_line(c), lines[n++]);
      int64_t value = 0;
      double real = 0;
      if (ringside_consumer_number(c, number, &value)) {
        EXPECT_TRUE(ringside_consumer_real(c, number, &real));
        EXPECT_EQ(real, static_cast<double>(value));
        EXPECT_EQ(ringside_consumer_text(c, text), nullptr);
      } else if (const char* name = ringside_consumer_text(c, text)) {
        EXPECT_STREQ(name, "short");
      }
      added += ringside_hist_add(hist);
      c_pairs += ringside_latency_add(waits, &ns);
    }
  } while (ringside_consumer_wait(c));
  EXPECT_EQ(n, lines.size());
  EXPECT_EQ(ringside_consumer_events(c), events);
  EXPECT_EQ(c_pairs, pairs);
  EXPECT_EQ(ringside_latency_count(waits), pairs);
  u64 counted = 0;
  const size_t rows = ringside_hist_sort(hist);
  for (size_t row = 0; row < rows; ++row) {
    counted += ringside_hist_count(hist, row);
    EXPECT_NE(ringside_hist_key(hist, row, 1), nullptr);
    EXPECT_LE(ringside_hist_quantile(hist, row, .5), ringside_hist_quantile(hist, row, 1));
  }
  EXPECT_EQ(counted, added);
  EXPECT_EQ(ringside_hist_key(hist, rows, 0), nullptr);
  EXPECT_EQ(ringside_hist_key(hist, 0, 2), nullptr);
  EXPECT_FALSE(ringside_consumer_number(c, 99, nullptr));
  EXPECT_EQ(ringside_consumer_problem(c, 0), nullptr);
  ringside_latency_close(waits);
  ringside_hist_close(hist);
  ringside_consumer_close(c);
  ringside_consumer_close(nullptr);
  options.filter = "nonsense ==";
  EXPECT_EQ(ringside_consumer_open(&options, error, sizeof error), nullptr);
  EXPECT_EQ(ringside_consumer_open(&options, nullptr, 0), nullptr);
}

// Before the first next(), and after the last one, there is no event to read.
TEST_F(ConsumerTest, TheCInterfaceReadsNoEventThatIsNotThere) {
  char error[512] = "";
  const char* const where[] = {dir.c_str(), nullptr};
  ringside_consumer_options options{};
  options.where = where;
  ringside_consumer* const c = ringside_consumer_open(&options, error, sizeof error);
  ASSERT_NE(c, nullptr) << error;
  const int tid = ringside_consumer_column(c, "tid", error, sizeof error);
  const int task = ringside_consumer_column(c, "task", error, sizeof error);
  ringside_hist* const hist = ringside_hist_open(c, "event", nullptr, error, sizeof error);
  ringside_latency* const waits = ringside_latency_open(c, "app:state", "app:state", nullptr, nullptr, error, sizeof error);
  ASSERT_TRUE(hist != nullptr && waits != nullptr) << error;
  const auto expect_none = [&] {
    int64_t value = 0;
    double real = 0;
    uint64_t ns = 0;
    EXPECT_EQ(ringside_consumer_line(c), nullptr);
    EXPECT_FALSE(ringside_consumer_number(c, tid, &value));
    EXPECT_FALSE(ringside_consumer_real(c, tid, &real));
    EXPECT_EQ(ringside_consumer_text(c, task), nullptr);
    EXPECT_FALSE(ringside_hist_add(hist));
    EXPECT_FALSE(ringside_latency_add(waits, &ns));
  };
  expect_none();
  ringside_consumer_event event;
  while (ringside_consumer_next(c, &event)) continue;
  expect_none();
  EXPECT_EQ(ringside_hist_sort(hist), 0u);
  ringside_latency_close(waits);
  ringside_hist_close(hist);
  ringside_consumer_close(c);
}

// Each WHERE numbers its events by itself.
TEST_F(ConsumerTest, AFieldIsInTheEventsOfEveryWhere) {
  const std::string second = dir + "-2";
  test::random_recording(second, ClockInfo{}, 3, 4096, test::Of::both);
  Consumer::Options options;
  options.where = {dir, second};
  Consumer consumer = must(Consumer::open(options));
  const auto b = must(consumer.field<short>("app:numbers/b"));
  const auto name = must(consumer.field<std::string_view>("app:texts/name"));
  auto column = must(consumer.column("app:numbers/b"));
  std::set<u32> ids;
  consumer.run([&](const Event& e) {
    EXPECT_EQ(b.in(e), column.number(e).has_value());
    EXPECT_EQ(name.in(e), consumer.name(e) == "app:texts");
    if (name.in(e)) {
      EXPECT_EQ(name(e), "short");
    }
    if (!b.in(e)) return;
    ids.insert(e.id);
    EXPECT_EQ(b(e), column.number(e));
  });
  EXPECT_EQ(ids.size(), 2u);
  std::filesystem::remove_all(second);
}

// Two events, with a stack each; the second one's is that of the first.
void recording_with_stacks(const std::string& dir) {
  const std::string at = ";\tsize:8;\tsigned:0;\n";
  auto w = must(RecordingWriter::create(dir, ClockInfo{}));
  w.meta().events.push_back({1, "app", "work",
                             test::format(1, "work",
                                          "\tfield:u64 size;\toffset:8" + at + "\tfield:ringside_stack stack;\toffset:16" + at,
                                          R"("size=%llu", REC->size)"),
                             true});
  w.meta().events.push_back(
      {2, "ringside", "stack",
       test::format(2, "stack",
                    "\tfield:u64 id;\toffset:8" + at + "\tfield:__data_loc u64[] frames;\toffset:16;\tsize:4;\tsigned:0;\n",
                    R"("%llx", REC->id)"),
       true});
  must(w.add_ring({0, 4711, 4711, "worker", "worker"}, 4096));
  test::SubBuffer s(1000);
  s.event(1000, test::Payload(2, 4711).put(u64{77}).put(u32{20 | 16 << 16}).put(u64{0x1000}).put(u64{0x2000}));
  s.event(1100, test::Payload(1, 4711).put(u64{5}).put(u64{77}));
  s.event(1200, test::Payload(1, 4711).put(u64{6}).put(u64{77}));
  must(w.append(0, s.view(0)));
  must(w.finish(1));
}

TEST_F(ConsumerTest, ColumnsKeysAndGroupsOfStacks) {
  recording_with_stacks(dir);
  Consumer consumer = open();
  auto whole = must(consumer.column("stack"));
  auto innermost = must(consumer.column("app:work/stack[0]"));
  auto hist = must(consumer.hist({"app:work/stack[0]"}));
  auto latency = must(consumer.latency({.start = "app:work", .end = "app:work", .by = "stack[1]"}));
  u64 stacks = 0;
  consumer.run([&](const Event& e) {
    hist.add(e);
    latency.add(e);
    if (consumer.name(e) != "app:work") return;
    const std::string all(whole.text(e).value_or("none")), first(innermost.text(e).value_or("none"));
    EXPECT_TRUE(all.starts_with(first + ";")) << all << " " << first;
    EXPECT_EQ(consumer.text(e).find('\n'), std::string::npos);
    ++stacks;
  });
  EXPECT_EQ(stacks, 2u);
  ASSERT_EQ(hist.rows().size(), 1u);
  EXPECT_EQ(hist.rows()[0].count, 2u);
  EXPECT_EQ(latency.groups().size(), 1u);

  // Too late: the events that were read have no stacks.
  Consumer late = open();
  Event e;
  ASSERT_TRUE(late.next(e));
  const auto refused = late.column("stack[0]");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().sentence.find("before the first event"), std::string::npos);
  EXPECT_TRUE(late.column("task"));
}

TEST_F(ConsumerTest, TheCInterfaceRefusesWhatIsNull) {
  char error[512] = "";
  EXPECT_EQ(ringside_consumer_open(nullptr, error, sizeof error), nullptr);
  EXPECT_STREQ(error, "the argument options is NULL");
  const char* const where[] = {dir.c_str(), nullptr};
  ringside_consumer_options options{};
  options.where = where;
  ringside_consumer* const c = ringside_consumer_open(&options, error, sizeof error);
  ASSERT_NE(c, nullptr) << error;
  EXPECT_EQ(ringside_consumer_column(c, nullptr, error, sizeof error), -1);
  EXPECT_STREQ(error, "the argument text is NULL");
  EXPECT_EQ(ringside_consumer_column(nullptr, "task", error, sizeof error), -1);
  EXPECT_STREQ(error, "the argument consumer is NULL");
  EXPECT_EQ(ringside_consumer_column(c, "nothing", nullptr, 10), -1);
  EXPECT_EQ(ringside_hist_open(c, nullptr, nullptr, error, sizeof error), nullptr);
  EXPECT_STREQ(error, "the argument keys is NULL");
  EXPECT_EQ(ringside_latency_open(c, nullptr, nullptr, nullptr, nullptr, error, sizeof error), nullptr);
  EXPECT_STREQ(error, "the argument start is NULL");
  EXPECT_EQ(ringside_latency_open(c, "app:numbers", "app:texts", nullptr, "tid", error, sizeof error), nullptr);
  EXPECT_STREQ(error, "the argument start_key is NULL");
  ringside_consumer_close(c);
}

// Refused events stand in no gap, and a file with fewer events than were recorded is a doubt, told once.
TEST_F(ConsumerTest, WhatIsMissingIsMoreThanTheGaps) {
  {
    auto w = must(RecordingWriter::create(dir, ClockInfo{}));
    w.meta().events.push_back({1, "app", "malloc", test::malloc_format(1), true});
    must(w.add_ring({0, 100, 100, "t", "p"}, 4096));
    test::SubBuffer s(1000);
    s.event(1000, test::Payload(1, 100).put(u64{1}).put(u64{2}));
    must(w.append(0, s.view(5)));
    w.meta().account.refused[Refusal::unknown] = 77;
    w.meta().account.unrecorded = 3;
    must(w.finish(1));
  }
  const std::string file = dir + "/meta.json", text = must(sys::read_file(file));
  Consumer whole = open();
  whole.run([](const Event&) {});
  EXPECT_EQ(whole.lost(), 5u);
  EXPECT_EQ(whole.missing().count, 85u);
  EXPECT_TRUE(whole.missing().doubts.empty() && whole.problems().empty());

  auto meta = nlohmann::json::parse(text);
  meta["rings"][0]["events"] = 3;
  std::ofstream(file) << meta.dump();
  char error[512] = "";
  const char* const where[] = {dir.c_str(), nullptr};
  ringside_consumer_options options{};
  options.where = where;
  ringside_consumer* const c = ringside_consumer_open(&options, error, sizeof error);
  ASSERT_NE(c, nullptr) << error;
  ringside_consumer_event event;
  while (ringside_consumer_next(c, &event)) continue;
  bool proved = true;
  EXPECT_EQ(ringside_consumer_missing(c, &proved), 85u);
  EXPECT_FALSE(proved);
  ASSERT_NE(ringside_consumer_problem(c, 0), nullptr);
  EXPECT_NE(std::strstr(ringside_consumer_problem(c, 0), "2 events that were recorded are not in the files"), nullptr);
  EXPECT_EQ(ringside_consumer_problem(c, 1), nullptr);
  ringside_consumer_close(c);
}

Consumer::Options signals_of_this_thread() {
  Consumer::Options options;
  options.kernel = {"signal:signal_generate"};
  options.filter = "common_pid == " + std::to_string(sys::gettid()) + " && sig == 28";
  options.own_events = true;
  return options;
}

// Live: this thread sends signals to itself, and another thread stops it.
TEST(Consumer, TheKernelIsReadLive) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  auto consumer = must(Consumer::open(signals_of_this_thread()));
  const auto sig = must(consumer.field<int>("signal:signal_generate", "sig"));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    consumer.stop();
  });
  for (int i = 0; i < 500; ++i) raise(SIGWINCH);
  int seen = 0;
  consumer.run([&](const Event& e) {
    if (sig.in(e)) ++seen;
    EXPECT_EQ(e.lost, 0u);
  });
  other.join();
  EXPECT_EQ(seen, 500);
}

// A thread that this process did not start, and that nothing in the trace names.
TEST(Consumer, ThreadsOfTheKernelsLiveEventsHaveTheirNames) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  auto consumer = must(Consumer::open(signals_of_this_thread()));
  raise(SIGWINCH);
  consumer.stop();
  std::string name;
  consumer.run([&](const Event& e) { name = consumer.task(e); });
  EXPECT_EQ(name + "\n", must(sys::read_file("/proc/thread-self/comm")));
}

// The kernel gets the filter where it has the same meaning there.
TEST(Consumer, FiltersArePushedDown) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  Trace trace = must(open_traces({}, {"signal:signal_generate", "sched:sched_switch"}));
  const auto kernels = [&](const char* event) {
    return sys::read_file(trace.tracefs()->dir() + "/events/" + event + "/filter").value_or("");
  };
  for (const char* text :
       {"sig == 28 && comm != \"x\" || common_pid > 1", "!(sig & 0xff) && errno < -1", "pid == 5 || cpu == 0"}) {
    EXPECT_EQ(push_down(must(Filter::compile(text, trace.formats, trace.tasks)), trace), 1u) << text;
    EXPECT_EQ(kernels("signal/signal_generate"), text + std::string("\n"));
    EXPECT_EQ(kernels("sched/sched_switch"), "none\n") << text;
  }
  // The kernel does not get a filter that would have another meaning there, or none.
  for (const char* text : {"sig != 300000000000", "sig == 28 && ts > 5", "comm ~ \"*x\" && sig > 0",
                           "sig > 1.5e1 || event == wake", "task == \"x\"", "sig == 28 && prev_prio > 3"}) {
    EXPECT_EQ(push_down(must(Filter::compile(text, trace.formats, trace.tasks)), trace), 0u) << text;
  }
}

}  // namespace
}  // namespace ringside::consumer_test
