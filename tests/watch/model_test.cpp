// The screen of `ringside watch` without a terminal: what is counted, what keys do, what stands where.
#include <gtest/gtest.h>

#include <random>

#include "cli/hand_made.hpp"
#include "watch/screen.hpp"

namespace ringside::cli::model_test {
namespace {

using test::Payload;
using testing::Test;

// Each stack has its functions; 2 and 3 have the same.
struct SomeStacks final : StackTexts {
  std::vector<std::vector<std::string>> all{{}, {"leaf", "middle", "main"}, {"parse", "main"}, {"parse", "main"}};
  std::vector<std::string> texts{"", "leaf;middle;main", "parse;main", "parse;main"};
  const std::vector<std::string>& functions(u32 stack) override { return all[stack]; }
  std::string_view text(u32 stack) override { return texts[stack]; }
  u32 same_names(u32 stack) override { return stack == 3 ? 2 : stack; }
  void append_lines(u32, fmt::memory_buffer&) override {}
};

// A host that counts what it is given; a new question counts all of it again, as a recording does.
struct Host final : WatchHost {
  Formats formats;
  Tasks tasks;
  std::vector<RingName> rings{{0, 700, 4711, "cc1plus", "g++", false, ""}, {1, 800, 4800, "as", "as", false, ""}};
  struct Given {
    u64 time, lost;
    u32 ring;
    Payload payload;
    u32 stack = 0;
  };
  SomeStacks stacks;
  std::vector<Given> given;
  std::optional<WatchModel> model;
  bool live = false;
  u64 interval_ns = 1'000'000'000;
  size_t most_keys = 1000;

  Host() {
    formats.add(1, "libc", "malloc", test::malloc_format());
    formats.add(
        2, "net", "in",
        test::format(2, "in",
                     "\tfield:u32 length;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:char "
                     "device[8];\toffset:12;\tsize:8;\tsigned:0;\n\tfield:u64 wait_ns;\toffset:20;\tsize:8;\tsigned:0;\n",
                     R"("length=%u", REC->length)"));
    for (const RingName& ring : rings) tasks.add(ring);
    formats.use_stacks(&stacks);
    EXPECT_TRUE(count({}, true));
  }
  void give(u64 time, u32 ring, const Payload& payload, u64 lost = 0, u32 stack = 0) {
    given.push_back({time, lost, ring, payload, stack});
    take(given.back());
  }
  void take(const Given& g) {
    TraceRecord record;
    record.time = g.time;
    record.lost = g.lost;
    record.source = g.ring;
    record.payload = g.payload;
    record.stack = g.stack;
    model->take(record, rings[g.ring]);
  }
  void allocation(u64 time, u64 size, u32 ring = 0) { give(time, ring, Payload(1, rings[ring].tid).put(size).put(u64{0xA0})); }
  void packet(u64 time, u32 length, const char* device, u64 wait_ns, u32 ring = 1) {
    std::string name(device);
    name.resize(8);
    give(time, ring, Payload(2, rings[ring].tid).put(length).text(name).put(wait_ns));
  }
  void lose(u64 time, u64 lost) { give(time, 0, Payload(0, 0), lost); }

  View view(const std::string& chosen, bool everything) override {
    WatchStatus status;
    status.where = "web";
    status.clock = "mono";
    status.live = live;
    status.ended = !live;
    status.interval_ns = interval_ns;
    if (live) status.rings = {{"cpu0", .25}, {"cpu1", 1}};
    return {model->picture(chosen, everything), status};
  }
  result<void> count(const WatchQuery& query, bool again) override {
    auto made = WatchModel::make(query, {most_keys, live}, formats, tasks);
    if (!made) return tl::unexpected<Error>(made.error());
    model.emplace(std::move(*made));
    if (again) {
      for (const Given& g : given) take(g);
    }
    return {};
  }
  std::optional<WatchQuery> deeper(const std::string& id) override { return model->deeper(id); }
  std::vector<std::string> fields(const std::string& id, bool numbers) override { return model->fields(id, numbers); }
  void interval(u64 ns) override { interval_ns = ns; }
};

struct Watch : Test {
  Host host;
  WatchScreen screen{host, Glyphs::unicode};
  void SetUp() override {
    for (u32 i = 0; i < 100; ++i) host.allocation(1'000'000'000 + i * 10'000'000, 1u << (i % 8));
    for (u32 i = 0; i < 40; ++i)
      host.packet(1'500'000'000 + i * 10'000'000, 1500, i % 4 == 0 ? "eth1" : "eth0", 1000 * (i + 1));
    host.lose(1'900'000'000, 1234);
  }
  std::string text(size_t width = 80, size_t height = 24) {
    screen.update();
    return screen.frame(width, height).text();
  }
  void keys(std::string_view text) {
    for (const char c : text) screen.key(static_cast<KeyCode>(c));
  }
  bool shows(const std::string& what) {
    const bool is = text().find(what) != std::string::npos;
    if (!is) std::printf("no \"%s\" in:\n%s", what.c_str(), text().c_str());
    return is;
  }
  const WatchRow& row(const WatchPicture& p, const std::string& name) {
    for (const WatchRow& r : p.rows) {
      if (r.names[0] == name) return r;
    }
    ADD_FAILURE() << "no row " << name;
    return p.rows[0];
  }
};

TEST_F(Watch, CountsOfARecording) {
  const WatchPicture p = host.model->picture("");
  ASSERT_EQ(p.rows.size(), 2u);
  EXPECT_EQ(row(p, "libc:malloc").count, 100u);
  EXPECT_EQ(row(p, "net:in").count, 40u);
  EXPECT_EQ(p.all.count, 140u);
  EXPECT_EQ(p.account.overrun, 1234u);
  EXPECT_NEAR(p.seconds, .99, 1e-9);
  EXPECT_NEAR(row(p, "libc:malloc").rate, 100 / .99, .01);
  EXPECT_NEAR(row(p, "net:in").share, 40. / 140, 1e-9);
  // The slices hold every event, however often they were made wider.
  for (const WatchRow& r : p.rows) {
    double sum = 0;
    for (const double rate : r.rates) sum += rate * p.slot_seconds;
    EXPECT_NEAR(sum, static_cast<double>(r.count), 1e-6) << r.names[0];
  }
}

TEST_F(Watch, IntervalsOfALiveSource) {
  host.live = true;
  ASSERT_TRUE(host.count({}, false));
  for (int tick = 1; tick <= 300; ++tick) {
    for (int i = 0; i < tick; ++i) host.allocation(1, 8);
    host.model->tick(.5);
  }
  host.allocation(1, 8);
  const WatchPicture p = host.model->picture("");
  EXPECT_EQ(p.rows[0].count, 300u * 301 / 2 + 1);
  EXPECT_EQ(p.rows[0].rate, 600);
  ASSERT_EQ(p.rows[0].rates.size(), WatchModel::slots - 1);
  for (size_t i = 0; i < p.rows[0].rates.size(); ++i)
    EXPECT_EQ(p.rows[0].rates[i], 2. * static_cast<double>(300 - (WatchModel::slots - 2) + i));
  EXPECT_EQ(p.seconds, 150);
}

TEST_F(Watch, ValuesAndLatencies) {
  ASSERT_TRUE(host.count({.by = "device", .value = "wait_ns"}, true));
  WatchPicture p = host.model->picture("eth1");
  EXPECT_EQ(p.without, 100u);
  EXPECT_EQ(row(p, "eth1").values, 10u);
  EXPECT_EQ(row(p, "eth1").max, 37000);
  EXPECT_NEAR(row(p, "eth1").p50, 17000, 17000 * .016);
  EXPECT_EQ(row(p, "eth0").values, 30u);
  ASSERT_EQ(p.values.size(), 1u);
  EXPECT_EQ(p.values["eth1"]->histogram.count(), 10u);
  EXPECT_EQ(p.values["eth1"]->heat.count(), 10u);
  EXPECT_EQ(host.model->picture("", true).values.size(), 2u);
  EXPECT_FALSE(host.count({.by = "device", .value = "device"}, true));  // a text

  WatchQuery query;
  query.by = "event";
  query.latency.emplace();
  query.latency->start = query.latency->end = "net:in";
  ASSERT_TRUE(host.count(query, true));
  p = host.model->picture("");
  EXPECT_EQ(p.value, "latency");
  EXPECT_EQ(p.all.count, 39u);
  EXPECT_EQ(p.rows[0].max, 10'000'000);
}

TEST_F(Watch, DrillsDownAndComesBack) {
  EXPECT_TRUE(shows("by event"));
  screen.key(Key::enter);
  EXPECT_TRUE(shows("libc:malloc > by task"));
  EXPECT_TRUE(shows("cc1plus"));
  screen.key(Key::enter);
  EXPECT_TRUE(shows("libc:malloc > cc1plus > fields"));
  EXPECT_TRUE(shows("size"));
  screen.key(Key::enter);
  EXPECT_TRUE(shows("by libc:malloc/size"));
  EXPECT_EQ(host.model->picture("").rows.size(), 8u);
  EXPECT_EQ(host.model->picture("").all.count, 100u);
  screen.key(Key::enter);  // size 1: the fields of those
  EXPECT_TRUE(shows("fields"));
  EXPECT_EQ(host.model->picture("").all.count, 13u);
  for (int i = 0; i < 4; ++i) screen.key(i % 2 == 0 ? Key::escape : Key::backspace);
  EXPECT_TRUE(shows("by event"));
  EXPECT_EQ(host.model->picture("").all.count, 140u);
  screen.key(Key::escape);  // the top
  EXPECT_TRUE(shows("by event"));
}

TEST_F(Watch, AFilterIsCorrectedWhereItIsWrong) {
  text();
  screen.key(Key::f(4));
  keys("size > ");
  screen.key(Key::enter);
  EXPECT_TRUE(shows("Filter: size >"));
  EXPECT_TRUE(shows("filter: "));
  EXPECT_TRUE(shows("^"));
  EXPECT_EQ(host.model->picture("").all.count, 140u);
  keys("64");
  EXPECT_FALSE(text().find("^") != std::string::npos);
  screen.key(Key::enter);
  EXPECT_TRUE(shows("filter size > 64"));
  EXPECT_EQ(host.model->picture("").all.count, 12u);
  keys("\\");
  screen.key(Key::control('u'));
  screen.key(Key::enter);
  EXPECT_EQ(host.model->picture("").all.count, 140u);
}

TEST_F(Watch, PausedTheScreenStandsStill) {
  host.live = true;
  ASSERT_TRUE(host.count({.by = "event", .value = "wait_ns"}, true));
  host.model->tick(1);
  text();
  keys(" ");
  const std::string before = text();
  EXPECT_NE(before.find("PAUSED"), std::string::npos);
  for (int i = 0; i < 1000; ++i) host.packet(3'000'000'000, 1, "eth0", 5);
  host.model->tick(1);
  EXPECT_EQ(text(), before);
  // Another row: as it was then, too.
  screen.key(Key::down);
  EXPECT_TRUE(shows("40 mean"));
  keys("p");
  EXPECT_TRUE(shows("1,140 events"));
}

TEST_F(Watch, KeysFieldsSortAndSearch) {
  text();
  keys("k");
  EXPECT_TRUE(shows("A row for each"));
  keys("t");
  screen.key(Key::enter);
  EXPECT_TRUE(shows("by task"));
  keys("f");
  EXPECT_TRUE(shows("Histogram of"));
  keys("w");
  screen.key(Key::enter);
  EXPECT_EQ(host.model->query().value, "wait_ns");
  EXPECT_TRUE(shows("P99"));
  EXPECT_TRUE(shows("Histogram, wait_ns of"));
  screen.key(Key::tab);
  EXPECT_TRUE(shows("Heat map"));
  keys(">");
  keys("n");
  screen.key(Key::enter);
  const std::string by_name = text();
  EXPECT_LT(by_name.find("\nas "), by_name.find("\ncc1plus"));
  keys("I");
  EXPECT_GT(text().find("\nas "), text().find("\ncc1plus"));
  keys("/as");
  EXPECT_TRUE(shows("Search: as"));
  screen.key(Key::enter);
  screen.key(Key::enter);
  EXPECT_TRUE(shows("as > by event"));
  keys("k");
  screen.key(Key::end);
  screen.key(Key::enter);
  screen.key(Key::control('u'));
  keys("nonsense");
  screen.key(Key::enter);
  EXPECT_TRUE(shows("A row for each: nonsense"));
  screen.key(Key::escape);
  keys("+");
  EXPECT_EQ(host.interval_ns, 2'000'000'000u);
  keys("--");
  EXPECT_EQ(host.interval_ns, 500'000'000u);
  keys("h");
  EXPECT_TRUE(shows("F4, \\"));
  keys("x");
  EXPECT_FALSE(screen.quit());
  keys("q");
  EXPECT_TRUE(screen.quit());
}

TEST_F(Watch, EverythingFitsIn80x24) {
  host.live = true;
  ASSERT_TRUE(host.count({.by = "event", .value = "wait_ns"}, true));
  host.model->tick(1);
  const std::string all = text();
  for (const char* what : {"ringside watch", "140 events", "1,234 lost", "cpu0", "cpu1", "by event", "COUNT", "RATE", "P99",
                           "libc:malloc", "net:in", "Histogram", "F1Help", "F10Quit"})
    EXPECT_NE(all.find(what), std::string::npos) << what << "\n" << all;
}

size_t width_of(const Line& line) {
  size_t n = 0;
  for (const Span& span : line) {
    for (const char c : span.text) {
      n += (c & 0xC0) != 0x80 ? 1 : 0;
      EXPECT_GE(static_cast<unsigned char>(c), 0x20);
    }
  }
  return n;
}

// Whatever is typed, whatever the size: as many lines as asked for, none wider, and nobody falls over.
TEST_F(Watch, AnyKeyAtAnySize) {
  std::mt19937 random(1);
  const KeyCode special[] = {Key::tab,  Key::enter,  Key::enter, Key::escape,  Key::backspace, Key::up,
                             Key::down, Key::left,   Key::right, Key::page_up, Key::page_down, Key::home,
                             Key::end,  Key::remove, Key::none,  0x1F600,      0x301,          0};
  for (int life = 0; life < 20; ++life) {
    host.live = life % 2 == 0;
    ASSERT_TRUE(host.count({}, true));
    const Glyphs glyphs = life % 3 == 0 ? Glyphs::ascii : Glyphs::unicode;
    WatchScreen monkey(host, glyphs);
    for (int i = 0; i < 150 && !monkey.quit(); ++i) {
      const u32 what = random() % 4;
      KeyCode code = what == 0   ? special[random() % std::size(special)]
                     : what == 1 ? Key::f(1 + random() % 9)
                     : what == 2 ? 0x20 + random() % 0x60
                                 : static_cast<KeyCode>("kf/\\>pz+-\x15wtsI"[random() % 14]);
      if (code == 'q' || code == 'Q') code = 'a';
      monkey.key(code);
      if (host.live && i % 7 == 0) host.model->tick(.1);
      monkey.update();
      const size_t width = 1 + random() % (i % 5 == 0 ? 300 : 100), height = 1 + random() % 70;
      const Frame frame = monkey.frame(width, height);
      ASSERT_EQ(frame.lines.size(), height);
      for (const Line& line : frame.lines) ASSERT_LE(width_of(line), width) << frame.text();
      ASSERT_LT(frame.cursor_x, static_cast<int>(width));
      if (glyphs == Glyphs::ascii) {
        for (const char c : frame.text()) ASSERT_LT(static_cast<unsigned char>(c), 0x80) << frame.text();
      }
    }
  }
}

TEST_F(Watch, HostileNamesDriveNoTerminal) {
  host.packet(2'100'000'000, 1, "\033[2J\xFF\a", 1);
  ASSERT_TRUE(host.count({.by = "device"}, true));
  EXPECT_TRUE(shows("?[2J??"));
  EXPECT_EQ(fitted("a\xC2\x9B"
                   "1m",
                   6, Glyphs::unicode),
            "a?1m  ");
  EXPECT_EQ(fitted("grün", 3, Glyphs::ascii), "gr?");
  EXPECT_EQ(fitted("abc", 5, Glyphs::ascii, true), "  abc");
}

// As sys_enter_epoll_ctl has one.
TEST_F(Watch, AFieldThatIsCalledEvent) {
  host.formats.add(3, "app", "odd",
                   test::format(3, "odd", "\tfield:u32 event;\toffset:8;\tsize:4;\tsigned:0;\n", R"("event=%u", REC->event)"));
  host.give(1'990'000'000, 0, Payload(3, 4711).put(u32{77}));
  ASSERT_TRUE(host.count({}, true));
  EXPECT_EQ(row(host.model->picture(""), "app:odd").count, 1u);
  EXPECT_EQ(row(host.model->picture(""), "libc:malloc").count, 100u);
  ASSERT_TRUE(host.count({.by = "app:odd/event"}, true));
  EXPECT_EQ(row(host.model->picture(""), "77").count, 1u);
}

TEST_F(Watch, TopStacks) {
  for (u32 i = 0; i < 30; ++i) host.give(1'700'000'000 + i, 0, Payload(1, 4711).put(u64{8}).put(u64{0xA0}), 0, 1);
  for (u32 i = 0; i < 20; ++i) host.give(1'800'000'000 + i, 1, Payload(1, 4800).put(u64{16}).put(u64{0xA0}), 0, 2 + i % 2);
  EXPECT_TRUE(shows("by event"));
  keys("s");
  EXPECT_TRUE(shows("by stack"));
  EXPECT_TRUE(shows("leaf < middle < main"));
  EXPECT_TRUE(shows("parse < main"));
  EXPECT_TRUE(shows("140 without key"));
  // The chosen one, a line for each call; Tab hides it, and shows it again.
  EXPECT_TRUE(shows(" Stack: 30 events, 60.0 %"));
  EXPECT_TRUE(shows("    leaf\n => middle\n => main\n"));
  screen.key(Key::down);
  EXPECT_TRUE(shows("    parse\n => main\n"));
  EXPECT_TRUE(shows(" Stack: 20 events"));
  screen.key(Key::tab);
  EXPECT_TRUE(shows("Rate of parse < main"));
  screen.key(Key::tab);
  EXPECT_EQ(text().find("Stack:"), std::string::npos);
  screen.key(Key::tab);
  EXPECT_TRUE(shows("    parse\n => main\n"));
  // Into it: the events with these functions, whatever their stacks' numbers.
  screen.key(Key::enter);
  EXPECT_TRUE(shows("stack parse > by event"));
  EXPECT_EQ(host.model->picture("").all.count, 20u);
  screen.key(Key::enter);
  EXPECT_TRUE(shows("stack parse > libc:malloc > by task"));
  EXPECT_TRUE(shows("as "));
  screen.key(Key::escape);
  screen.key(Key::escape);
  EXPECT_TRUE(shows("    parse\n => main\n"));
  // Filtered and paused as any other view.
  screen.key(Key::f(4));
  keys("stack ~ \"*leaf*\"");
  screen.key(Key::enter);
  EXPECT_EQ(host.model->picture("").all.count, 30u);
  keys(" ");
  EXPECT_TRUE(shows("PAUSED"));
  EXPECT_TRUE(shows("    leaf\n => middle\n => main\n"));
  keys("ps");
  EXPECT_TRUE(shows("by event"));
  EXPECT_TRUE(shows("filter stack ~"));
}

TEST_F(Watch, TopStacksOfOneEvent) {
  host.give(1'700'000'000, 0, Payload(1, 4711).put(u64{8}).put(u64{0xA0}), 0, 1);
  screen.update();
  screen.key(Key::enter);  // libc:malloc
  keys("s");
  EXPECT_TRUE(shows("libc:malloc > by stack"));
  EXPECT_TRUE(shows("leaf < middle < main"));
  keys("s");
  EXPECT_TRUE(shows("libc:malloc > by task"));
}

TEST_F(Watch, WithoutStacksItSaysWhoRecordsThem) {
  screen.update();
  keys("s");
  EXPECT_TRUE(shows("no event here has a stack: ringside record --stack"));
}

TEST_F(Watch, ManyKeysAreBounded) {
  host.most_keys = 500;
  ASSERT_TRUE(host.count({.by = "size"}, true));
  for (u64 i = 0; i < 10'000; ++i) host.allocation(1'000'000'000 + i, i);
  const WatchPicture p = host.model->picture("");
  EXPECT_LE(p.keys, 500u);
  EXPECT_GT(p.evicted_keys, 0u);
  u64 sum = 0;
  for (const WatchRow& r : p.rows) sum += r.count;
  EXPECT_EQ(sum + p.evicted_events + p.without, p.all.count);
  EXPECT_TRUE(shows("keys given up"));
}

}  // namespace
}  // namespace ringside::cli::model_test
