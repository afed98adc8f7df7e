// What ringside ship does if a server does not take its rows, or if a part is odd: all that is good arrives.
#include <gtest/gtest.h>

#include "ship/sender.hpp"
#include "ship/ship.hpp"
#include "ship/spool.hpp"

namespace ringside::test::ship_test {
namespace {

TEST_F(Ship, FieldsThatWouldHaveOneColumnGetOneEach) {
  const std::string two =
      "\tfield:u32 cpu;\toffset:12;\tsize:4;\tsigned:0;\n\tfield:u32 cpu_;\toffset:16;\tsize:4;\tsigned:0;\n";
  small_part(1, id_field + two, Payload(1, 1).put(u32{1}).put(u32{5}).put(u32{7}));
  ASSERT_EQ(std::system(("cp -r " + dir + "/spool/part.1 " + dir + "/kept").c_str()), 0);
  const Outcome o = ringside("ship --spool spool " + url());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(number("SELECT countIf(cpu_ = 5 AND cpu__ = 7) FROM \"shop:order\""), 1u);
  for (const std::string command : {"report --json -i ", "hist cpu_ -i "}) {
    const std::string local = ringside(command + "kept").out;
    EXPECT_EQ(ringside(command + "'" + url() + "'").out, local);
    EXPECT_NE(local, "") << command;
  }
}

// Its table's directory would have a name that is too long.
TEST_F(Ship, ABatchThatTheServerNeverTakesIsDroppedAfterAWhile) {
  small_part(1, id_field, Payload(1, 1).put(u32{5}), std::string(250, 'n'));
  part(2);
  small_part(3, id_field, Payload(1, 1).put(u32{5}), std::string(250, 'n'));
  const auto spool = must(ship::Spool::open(dir + "/spool", u64{1} << 30));
  ship::Sender::Options options;
  options.to = must(clickhouse::Address::parse(url()));
  options.host = "here";
  options.time = quick_time();
  const u64 start = options.time.now();
  std::vector<std::string> said;
  options.say = [&](const std::string& sentence) { said.push_back(sentence); };
  const auto sender = must(ship::Sender::create(*spool, options));
  spool->end();
  must(sender->run());
  EXPECT_GE(options.time.now() - start, 600'000'000'000u);
  EXPECT_LT(options.time.now() - start, 700'000'000'000u);  // once for the type of events
  const ship::SpoolBooks books = spool->books();
  EXPECT_TRUE(books.add_up());
  EXPECT_EQ(books.shipped, 800u);
  EXPECT_EQ(books.dropped, 2u);
  EXPECT_EQ(rows(), 800u);
  EXPECT_EQ(lost("refused by server"), 2u);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[1].find("1 row of shop:nnn"), std::string::npos) << said[1];
}

// A batch that is given up stays so.
TEST_F(Ship, TheSpoolRemembersTheBatchesThatAServerRefused) {
  part(1);
  for (const u64 batch : {5, 6}) {
    const auto spool = must(ship::Spool::open(dir + "/spool", u64{1} << 30));
    if (batch == 5) must(spool->begin({1, spool->first_batch(), 0, {}}));
    must(spool->refused(batch));
  }
  const auto spool = must(ship::Spool::open(dir + "/spool", u64{1} << 30));
  EXPECT_EQ(spool->begun()->refused, (std::set<u64>{5, 6}));
}

TEST_F(Ship, AServerThatIsNoClickHouseGetsNothing) {
  part(1);
  const FakeServer empty("200 OK", "");
  const Outcome o = ringside("ship --spool spool " + empty.url());
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("is it a ClickHouse server?"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("shipped 0 + filtered 0 + spooled 800"), std::string::npos) << o.err;
  const auto client = must(clickhouse::Server::open(must(clickhouse::Address::parse(empty.url())), {}));
  const auto begun = client->begin_session("s");
  ASSERT_FALSE(begun);
  EXPECT_NE(begun.error().sentence.find("begins no session"), std::string::npos) << begun.error().sentence;
  // An error page is no refusal by a ClickHouse server.
  const FakeServer page("404 Not Found", "<html>");
  const auto other = must(clickhouse::Server::open(must(clickhouse::Address::parse(page.url())), {}));
  EXPECT_EQ(other->ask("SELECT 1").error().code, std::errc::io_error);
  const FakeServer odd("500 Internal Server Error", "Poco::Exception. Code: 1000, e.displayText() = Bad path syntax: /n");
  const auto refusing = must(clickhouse::Server::open(must(clickhouse::Address::parse(odd.url())), {}));
  EXPECT_EQ(refusing->ask("SELECT 1").error().code, std::errc::protocol_error);
}

TEST_F(Ship, TheEndOfASessionIsNotWaitedForWithoutALimit) {
  const FakeServer busy("500 Internal Server Error", "Code: 373, e.displayText() = DB::Exception: Session is locked");
  const clickhouse::Time time = quick_time();
  const auto client = must(clickhouse::Server::open(must(clickhouse::Address::parse(busy.url())), {}, nullptr, time));
  const u64 start = time.now();
  const auto ended = client->fence("s");
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, std::errc::timed_out);
  EXPECT_NE(ended.error().sentence.find("does not end the session"), std::string::npos) << ended.error().sentence;
  EXPECT_NEAR(static_cast<double>(time.now() - start), 122e9, 2e9);
}

// It fits other types of events, and this one's field is a text.
TEST_F(Ship, AFilterThatDoesNotSuitAPartKeepsItInTheSpool) {
  const u64 events = part(1);
  const Outcome o = ringside("ship --spool spool -F 'name > 5' " + url());
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("stay in the spool"), std::string::npos) << o.err;
  EXPECT_EQ(state()["dropped"], 0u);
  EXPECT_EQ(state()["shipped"], 0u);
  EXPECT_EQ(state()["read"], events);
  const Outcome other = ringside("ship --spool spool " + url());
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(rows(), events);
}

// The agent asks for its rows by its own columns, so they keep their names.
TEST_F(Ship, AnOwnColumnOfAnotherTypeGetsNoSecondName) {
  small_part(1, id_field, Payload(1, 1).put(u32{5}));
  must(server().client(database)->ask(
      "CREATE TABLE \"shop:order\" (time DateTime, time_ns Int64, host String, agent FixedString(16)) "
      "ENGINE = MergeTree PARTITION BY toDate(time) ORDER BY time_ns"));
  const Outcome o = ringside("ship --spool spool " + url());
  EXPECT_EQ(number("SELECT count() FROM system.columns WHERE database = '" + database +
                   "' AND table = 'shop:order' AND name LIKE 'agent_%'"),
            0u);
  // Debian's server does not convert it, newer ones do.
  if (o.code != 0) {
    EXPECT_NE(o.err.find("the column agent of the table shop:order has the type FixedString(16) there and needs String"),
              std::string::npos)
        << o.err;
    EXPECT_NE(o.err.find("spooled 1"), std::string::npos) << o.err;
  }
}

TEST_F(Ship, AWallOffsetThatCannotBeUnderstoodIsMeasuredAgain) {
  for (const char* const text : {"", "soon 5\n"}) {
    fs::remove_all(dir + "/spool");
    part(1);
    std::ofstream(path_of_part(1) + "/wall") << text;
    EXPECT_EQ(ringside("ship --spool spool " + away()).code, 1);
    std::istringstream kept(slurp(path_of_part(1) + "/wall"));
    i64 offset = 0;
    u64 error = 0;
    EXPECT_TRUE(kept >> offset >> error) << text;
  }
}

TEST_F(Ship, AKeyThatNoRecorderWritesIsNotDescribed) {
  const u64 events = part(1);
  const std::string file = path_of_part(1) + "/meta.json", text = slurp(file), deep(400'000, '[');
  std::ofstream(file) << "{\"zz\": " << deep << std::string(deep.size(), ']') << ", " << text.substr(text.find('{') + 1);
  const Outcome o = ringside("ship --spool spool " + url());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(rows(), events);
  EXPECT_EQ(number("SELECT position(description, 'zz') FROM parts"), 0u);
}

}  // namespace
}  // namespace ringside::test::ship_test
