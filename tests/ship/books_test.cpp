// What an agent's books and the table `losses` say of events that did not arrive.
#include <gtest/gtest.h>

#include "ship/metrics.hpp"
#include "ship/ship.hpp"
#include "ship/spool.hpp"

namespace ringside::test::ship_test {
namespace {

constexpr u64 gaps = 4 * 77;  // of a part of random events

// Its recorder was killed before it wrote down any loss.
TEST_F(Ship, ALossOfAKilledRecorderIsCountedAndNotProved) {
  part(1);
  small_part(2, id_field, Payload(1, 1).put(u32{5}));
  for (const std::string& made : {path_of_part(1), dir + "/spool/part.2"}) {
    auto meta = nlohmann::json::parse(slurp(made + "/meta.json"));
    meta["complete"] = false;
    for (auto& ring : meta["rings"]) ring["lost"] = 0;
    std::ofstream(made + "/meta.json") << meta.dump();
  }
  const Outcome o = ringside("ship --spool spool --fail-on-loss " + url());
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_NE(o.err.find("lost before 308 or more\n"), std::string::npos) << o.err;
  EXPECT_EQ(state()["lost"], gaps);
  EXPECT_EQ(state()["unproved"], 2u);
  const auto spool = must(ship::Spool::open(dir + "/spool", u64{1} << 30));
  const std::string numbers = ship::Metrics(*spool, {}).text();
  EXPECT_NE(numbers.find("ringside_parts_unproved_total 2\n"), std::string::npos) << numbers;
}

TEST_F(Ship, NoProvedLossIsNoProofOfNone) {
  small_part(1, id_field, Payload(1, 1).put(u32{5}));
  const std::string file = dir + "/spool/part.1/meta.json";
  auto meta = nlohmann::json::parse(slurp(file));
  meta["account"]["doubts"] = {"a ring could not be read"};
  std::ofstream(file) << meta.dump();
  const Outcome o = ringside("ship --spool spool --fail-on-loss " + url());
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_NE(o.err.find("lost before perhaps some\n"), std::string::npos) << o.err;
}

TEST_F(Ship, WhatADroppedPartHadLostIsTold) {
  part(1);
  part(2);
  auto meta = nlohmann::json::parse(slurp(path_of_part(1) + "/meta.json"));
  meta["complete"] = false;
  std::ofstream(path_of_part(1) + "/meta.json") << meta.dump();
  must(must(ship::Spool::open(dir + "/spool", u64{1} << 30))->drop_oldest());
  const Outcome o = ringside("ship --spool spool " + url());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(lost("spool full"), 800u);
  EXPECT_EQ(lost("lost in a dropped part"), gaps);
  EXPECT_EQ(number("SELECT count() FROM losses WHERE why = 'perhaps: a dropped part lost more'"), 1u);
  const Outcome back = ringside("report '" + url() + "'");
  EXPECT_NE(back.err.find("1,416 or more events were lost (308 in gaps, 1,108 not recorded), 800 are here"), std::string::npos)
      << back.err;
}

// The part that was to tell of it is unreadable, or somebody removes it.
TEST_F(Ship, DroppedEventsAreToldByALaterPart) {
  for (const bool removed : {false, true}) {
    for (int n = 1; n <= 4; ++n) part(n);
    {
      const auto spool = must(ship::Spool::open(dir + "/spool", u64{1} << 30));
      must(spool->drop_oldest());
      must(spool->begin({2, spool->first_batch(), 0, {}}));
    }
    if (removed)
      fs::remove_all(path_of_part(2));
    else
      damage(2);
    const std::string before = removed ? "WHERE batch >= 1000000000 AND " : "WHERE ";
    const Outcome o = ringside("ship --spool spool " + url());
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(number("SELECT sum(count) FROM losses " + before + "why = 'spool full'"), 800u);
    EXPECT_EQ(number("SELECT sum(count) FROM losses " + before + "why = 'gone from the spool'"), 800u);
    EXPECT_EQ(state()["read"], 3200u);
    EXPECT_EQ(state()["dropped"], 1600u);
    EXPECT_EQ(state()["shipped"], 1600u);
    fs::remove_all(dir + "/spool");
  }
}

// The rows of `losses` were on the server when the part that told them went.
TEST_F(Ship, DroppedEventsThatAPartHasToldAreNotToldAgain) {
  for (const bool removed : {false, true}) {
    for (int n = 1; n <= 3; ++n) part(n);
    must(must(ship::Spool::open(dir + "/spool", u64{1} << 30))->drop_oldest());
    const auto client = server().client(database);
    must(client->ask("DROP TABLE IF EXISTS losses"));
    must(client->ask("DROP TABLE IF EXISTS parts"));
    must(client->ask("CREATE TABLE parts (other String) ENGINE = Log"));  // it takes no more columns, so the last batch fails
    EXPECT_EQ(ringside("ship --spool spool " + url()).code, 1);
    EXPECT_EQ(lost("spool full"), 800u);
    EXPECT_EQ(state()["sending"]["part"], 2u);
    if (removed)
      fs::remove_all(path_of_part(2));
    else
      damage(2);
    must(client->ask("DROP TABLE parts"));
    const Outcome o = ringside("ship --spool spool " + url());
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(lost("spool full"), 800u);
    EXPECT_EQ(state()["dropped"], 800u);
    EXPECT_EQ(state()["shipped"], 1600u);
    fs::remove_all(dir + "/spool");
  }
}

// An fsync for each of a part's hundreds of batches would take longer than sending them.
TEST_F(Ship, TheStateIsSavedOnceASecondWhileAPartIsSent) {
  part(1);
  u64 now = 1;
  const auto arrived = [&] { return state()["sending"]["arrived"].get<u64>(); };
  {
    const auto spool = must(ship::Spool::open(dir + "/spool", u64{1} << 30, [&] { return now; }));
    must(spool->begin({1, spool->first_batch(), 0, {}}));
    for (u64 batch = 1; batch <= 10; ++batch) must(spool->arrived(batch, 5));
    EXPECT_EQ(arrived(), 0u);
    now += 1'000'000'000;
    must(spool->arrived(11, 5));
    EXPECT_EQ(arrived(), 55u);
    must(spool->arrived(12, 5));
    EXPECT_EQ(arrived(), 55u);
  }
  EXPECT_EQ(arrived(), 60u);
}

// Some of its batches had arrived before.
TEST_F(Ship, EventsThatHaveArrivedAreShippedWhateverBecomesOfTheirPart) {
  enum class Fate { removed, damaged, damaged_meanwhile };
  for (const Fate fate : {Fate::removed, Fate::damaged, Fate::damaged_meanwhile}) {
    part(1);
    {
      const auto spool = must(ship::Spool::open(dir + "/spool", u64{1} << 30));
      must(spool->begin({1, spool->first_batch(), 0, {}}));
      must(spool->next_attempt());
      must(spool->arrived(1, 7));
      must(spool->arrived(1, 7));  // sent again, and it was there
      must(spool->arrived(3, 4));
      if (fate == Fate::damaged_meanwhile) must(spool->unreadable());
    }
    if (fate == Fate::removed) fs::remove_all(path_of_part(1));
    if (fate == Fate::damaged) damage(1);
    small_part(2, id_field, Payload(1, 1).put(u32{5}));
    must(server().client(database)->ask("DROP TABLE IF EXISTS losses"));
    const Outcome o = ringside("ship --spool spool " + url());
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(lost(fate == Fate::damaged_meanwhile ? "not readable" : "gone from the spool"), 789u);
    EXPECT_EQ(state()["read"], 801u);
    EXPECT_EQ(state()["shipped"], 12u);
    EXPECT_EQ(state()["dropped"], 789u);
    EXPECT_GT(state()["next_batch"], 1'000'000u);
    fs::remove_all(dir + "/spool");
  }
}

// The events that found no room are neither lost nor recorded: the next agent takes them.
TEST_F(Ship, ADiskThatIsFullAtTheEndLeavesEventsInTheirRings) {
  const std::string spool = dir + "/spool";
  const SmallDisk disk(spool);
  if (!disk) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  const auto written = [&] { return nlohmann::json::parse(ringside("stat shop --json").out)["total"]["written"].get<u64>(); };
  // It stops without room for all of these events, also if a part that failed gave its room to the next one.
  const Outcome first =
      run(RINGSIDE_BUILD_DIR "/ringside ship -i shop --json --spool spool --part-time 1h " + away() +
          " & until [ -e spool/now/meta.json ]; do sleep 0.02; done; cat /dev/zero > spool/other; "
          "RINGSIDE_INSTANCE=shop " RINGSIDE_BUILD_DIR "/tests/many_threads 1 60000; kill -INT $!; wait $!");
  const size_t begin = first.out.find('{');
  ASSERT_NE(begin, std::string::npos) << first.err;
  const auto books = nlohmann::json::parse(first.out.substr(begin, first.out.find('\n', begin) - begin));
  const u64 all = written();
  EXPECT_EQ(books["lost"], 0u) << first.err;
  EXPECT_LT(books["read"], all) << first.err;
  EXPECT_NE(first.err.find(" in the rings of shop for the next agent"), std::string::npos) << first.err;
  // Nor does an agent that finds no room at all record anything.
  const Outcome none = run("cat /dev/zero >> spool/other; " RINGSIDE_BUILD_DIR
                           "/ringside ship -i shop --spool spool --duration 200ms " +
                           away());
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("so the last events are not recorded"), std::string::npos) << none.err;
  fs::remove(spool + "/other");
  const Outcome second = ringside("ship -q -i shop --spool spool --duration 300ms " + url());
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(state()["read"], all);
  EXPECT_EQ(state()["lost"], 0u);
  // On a slow machine the rest waits in the spool for the next agents. The first one drops its oldest part, if there was time
  // to begin another.
  const auto arrived = [&] { return rows() + state()["dropped"].get<u64>(); };
  for (int tries = 0; tries < 100 && arrived() != all; ++tries)
    EXPECT_EQ(ringside("ship -q -i shop --spool spool --duration 300ms " + url()).code, 0);
  EXPECT_EQ(arrived(), all);
  EXPECT_EQ(state()["dropped"], books["dropped"]);
}

}  // namespace
}  // namespace ringside::test::ship_test
