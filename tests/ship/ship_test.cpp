// ringside ship against a real server: one for all tests of this program.
#include "ship/ship.hpp"
#include "shipped/shipped_input.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <random>

#include "cpu_rings.hpp"

namespace ringside::test::ship_test {
namespace {

TEST_F(Ship, EveryEventIsARowWithItsFieldsAsColumns) {
  const u64 events = part(1);
  ASSERT_EQ(std::system(("cp -r " + dir + "/spool/part.0000001 " + dir + "/kept").c_str()), 0);
  const Outcome o = ringside("ship --spool spool --host here " + url());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("read 800 = shipped 800 + filtered 0 + spooled 0 + dropped 0; lost before"), std::string::npos) << o.err;
  EXPECT_EQ(rows(), events);
  EXPECT_FALSE(fs::exists(dir + "/spool/part.0000001"));
  // Each line of JSON again, from the rows.
  std::string answer;
  const auto client = server().client(database);
  for (const std::string table : {"app:numbers", "kern:numbers"}) {
    const auto blocks = must(client->select(
        "SELECT mono_ns, cpu, tid, task, host, a, b, c, d FROM " + clickhouse::quoted_name(table) + " ORDER BY mono_ns, tid",
        answer));
    std::multiset<std::string> there, here;
    for (const auto& block : blocks)
      for (u64 row = 0; row < block.rows; ++row) {
        std::string line;
        for (const auto& column : block.columns)
          line += (column.size == 0 ? std::string(column.texts[row]) : std::to_string(column.whole(row))) + " ";
        there.insert(line);
      }
    for (const auto& event : this->events("kept")) {
      if (!event.contains("event") || event["event"] != table) continue;
      const auto& f = event["fields"];
      here.insert(std::to_string(event["ts"].get<u64>()) + " " + (event["cpu"].is_null() ? "-1" : event["cpu"].dump()) + " " +
                  event["tid"].dump() + " " + event["task"].get<std::string>() + " here " + f["a"].dump() + " " +
                  f["b"].dump() + " " + f["c"].dump() + " " + f["d"].dump() + " ");
    }
    EXPECT_EQ(there, here) << table;
    EXPECT_GT(here.size(), 20u);
  }
  EXPECT_EQ(number("SELECT countIf(name = 'short' AND more = 'four') FROM \"app:texts\""),
            number("SELECT count() FROM \"app:texts\""));
  EXPECT_EQ(number("SELECT sum(length(list)) FROM \"app:arrays\""), 3 * number("SELECT count() FROM \"app:arrays\""));
  EXPECT_EQ(number("SELECT sum(count) FROM losses WHERE why = 'gap'"), 4 * 77u);
  EXPECT_EQ(number("SELECT count() FROM parts"), 1u);
  EXPECT_EQ(number("SELECT shipped FROM parts"), events);
}

TEST_F(Ship, WhatIsFilteredIsCounted) {
  const u64 events = part(1) + part(2);
  const Outcome o = ringside("ship --spool spool --json -F 'c < 1000000000' --keep '1/2 by tid' " + url());
  ASSERT_EQ(o.code, 0) << o.err;
  const auto books = state();
  EXPECT_EQ(nlohmann::json::parse(o.out)["filtered"], books["filtered"]);
  EXPECT_EQ(books["read"], events);
  EXPECT_EQ(books["shipped"], rows());
  EXPECT_GT(books["shipped"], 0u);
  EXPECT_EQ(books["filtered"].get<u64>() + books["shipped"].get<u64>(), events);
  EXPECT_EQ(number("SELECT count() FROM \"app:numbers\" WHERE c >= 1000000000"), 0u);
  EXPECT_EQ(ringside("ship --spool spool -F 'c <' " + url()).code, 2);
  EXPECT_EQ(ringside("ship --spool spool --keep half " + url()).code, 2);
}

TEST_F(Ship, AFieldThatIsNewOrOfAnotherTypeIsAnotherColumn) {
  small_part(1, "\tfield:u32 id;\toffset:8;\tsize:4;\tsigned:0;\n", Payload(1, 1).put(u32{5}));
  small_part(2, "\tfield:s64 id;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:u32 cpu;\toffset:16;\tsize:4;\tsigned:0;\n",
             Payload(1, 1).put(i64{-6}).put(u32{7}));
  const Outcome o = ringside("ship --spool spool " + url());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(number("SELECT countIf(id = 5 AND id_Int64 = 0 AND cpu_ = 0) FROM \"shop:order\""), 1u);
  EXPECT_EQ(number("SELECT countIf(id = 0 AND id_Int64 = -6 AND cpu_ = 7) FROM \"shop:order\""), 1u);
}

TEST_F(Ship, ASpoolThatIsFullDropsItsOldestPartAndCountsIt) {
  for (int n = 1; n <= 3; ++n) part(n, 2, 50);
  const std::string away = "clickhouse://127.0.0.1:" + std::to_string(free_port()) + "/x";
  Outcome o = ringside("ship --spool spool " + away);
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("does not answer"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("spooled 1,200"), std::string::npos) << o.err;
  // The fourth part is made by an agent that has no room for it.
  o = run("RINGSIDE_INSTANCE=shop " RINGSIDE_BUILD_DIR "/example_01_write; " RINGSIDE_BUILD_DIR
          "/ringside ship -q -i shop --spool spool --spool-size 1 --part-time 100ms --duration 300ms --fail-on-loss " +
          away);
  EXPECT_EQ(o.code, 3) << o.err;
  const auto books = state();
  EXPECT_GE(books["dropped"], 800u);
  const u64 dropped = books["dropped"];
  part(99);  // its losses tell of those
  o = ringside("ship --spool spool " + url());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(rows() + dropped, state()["read"]);
  EXPECT_EQ(number("SELECT sum(count) FROM losses WHERE why = 'spool full'"), dropped);
}

// Those of record --rotate have other names, and the same ones again in its next run.
TEST_F(Ship, PartsOfAnotherRecorderAreSentWhateverTheirNumbers) {
  u64 events = 0;
  for (int round = 0; round < 2; ++round) {
    events += part(1);
    fs::rename(dir + "/spool/part.0000001", dir + "/spool/part.0001");
    const Outcome o = ringside("ship --spool spool " + url());
    ASSERT_EQ(o.code, 0) << o.err;
  }
  EXPECT_EQ(rows(), events);
  EXPECT_EQ(state()["read"], events);
  EXPECT_EQ(state()["shipped"], events);
}

// Its host, its boot and its time of day are those of the machine that recorded it.
TEST_F(Ship, APartOfAnotherMachine) {
  const u64 events = part(1);
  const std::string file = path_of_part(1) + "/meta.json";
  auto meta = nlohmann::json::parse(slurp(file));
  meta["boot"] = "11111111-2222-3333-4444-555555555555";
  meta["world"]["host"] = "board";
  meta["wall"] = {{"offset_ns", i64{1'000'000'000'000'000'000}}, {"error_ns", 7}};
  std::ofstream(file) << meta;
  const Outcome o = ringside("ship --spool spool " + url());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(rows_where("host = 'board' AND time_ns - mono_ns = 1000000000000000000 AND error_ns = 7"), events);
  EXPECT_EQ(number("SELECT count() FROM parts WHERE host = 'board' AND boot_id LIKE '11111111-%'"), 1u);
}

TEST_F(Ship, APartThatIsRemovedByHandIsDropped) {
  const u64 removed = part(1), left = part(2);
  EXPECT_EQ(ringside("ship --spool spool clickhouse://127.0.0.1:" + std::to_string(free_port()) + "/x").code, 1);
  EXPECT_EQ(state()["read"], removed + left);
  fs::remove_all(dir + "/spool/part.0000001");
  const Outcome o = ringside("ship --spool spool " + url());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(rows(), left);
  EXPECT_EQ(state()["shipped"], left);
  EXPECT_EQ(state()["dropped"], removed);
  EXPECT_EQ(lost("gone from the spool"), removed);
}

TEST_F(Ship, ALiveInstanceIsShipped) {
  const Outcome o =
      run(RINGSIDE_BUILD_DIR "/ringside ship -i shop --spool spool --part-time 100ms --duration 1s " + url() +
          " & sleep 0.3; for n in 1 2 3; do RINGSIDE_INSTANCE=shop " RINGSIDE_BUILD_DIR "/example_01_write; done; wait $!");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(state()["shipped"], 0u);
  EXPECT_EQ(state()["shipped"], state()["read"]);
  EXPECT_EQ(state()["shipped"], rows());
}

TEST_F(Ship, WhatAKilledAgentRecordedIsShippedByTheNext) {
  const std::string agent = RINGSIDE_BUILD_DIR "/ringside ship -q -i shop --spool spool " + url(),
                    write = "RINGSIDE_INSTANCE=shop " RINGSIDE_BUILD_DIR "/example_01_write; ";
  const Outcome first = run(agent + " & until [ -e spool/now/meta.json ]; do sleep 0.02; done; " + write +
                            "until ls spool/now/*.raw; do sleep 0.02; done; " + write + "kill -9 $!; " + write + "true");
  EXPECT_TRUE(fs::exists(dir + "/spool/now")) << first.err;
  const Outcome second = run(agent + " --duration 300ms");
  ASSERT_EQ(second.code, 0) << second.err;
  const u64 written = nlohmann::json::parse(ringside("stat shop --json").out)["total"]["written"];
  EXPECT_EQ(written % 3, 0u);
  EXPECT_EQ(state()["read"], written);
  EXPECT_EQ(state()["shipped"], written);
  EXPECT_EQ(rows(), written);
}

TEST_F(Ship, ThePasswordStandsInAFileThatNobodyElseReads) {
  part(1);
  std::ofstream(dir + "/conf") << "# of the agent\nuser = agent\npassword = secret word\n";
  EXPECT_EQ(chmod((dir + "/conf").c_str(), 0644), 0);
  Outcome o = ringside("ship --spool spool --config conf " + url());
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("chmod 600 conf"), std::string::npos) << o.err;
  EXPECT_EQ(chmod((dir + "/conf").c_str(), 0600), 0);
  o = ringside("ship --spool spool --config conf " + url());
  EXPECT_EQ(o.code, 0) << o.err;
  std::ofstream(dir + "/conf") << "user = agent\npassword = wrong\n";
  part(2);
  o = ringside("ship --spool spool --config conf " + url());
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("refuses"), std::string::npos) << o.err;
  EXPECT_NE(ringside("ship --spool spool clickhouse://agent:word@127.0.0.1/x").err.find("--config"), std::string::npos);
}

TEST_F(Ship, TlsWithAnAuthorityOfOnesOwn) {
  if (server().https() == 0) GTEST_SKIP() << "there is no openssl (Debian: apt install openssl)";
  const u64 events = part(1);
  const auto way = [&](const std::string& host, const std::string& lines, u16 port) {
    std::ofstream(dir + "/conf") << "user = agent\npassword = secret word\n" << lines;
    EXPECT_EQ(chmod((dir + "/conf").c_str(), 0600), 0);
    return "clickhouse://" + host + ":" + std::to_string(port) + "/" + database;
  };
  const auto refused = [&](const std::string& where, const char* because) {
    for (const std::string& command : {"ship --spool spool --config conf '" + where, "report '" + where + "?config=conf"}) {
      const Outcome o = ringside(command + "'");
      EXPECT_EQ(o.code, 1) << command;
      EXPECT_NE(o.err.find(because), std::string::npos) << command << o.err;
    }
  };
  const std::string tls = "tls = yes\n", trusting = tls + "ca = " + server().file("ca.pem") + "\n";
  const u16 port = server().https();
  refused(way("localhost", tls, port), "is not trusted (SSL certificate problem: unable to get local issuer certificate)");
  refused(way("localhost", tls + "ca = " + server().file("other.pem") + "\n", port),
          "is not trusted (SSL certificate problem: ");
  refused(way("127.0.0.1", trusting, port),
          "is not trusted (SSL: no alternative certificate subject name matches target host name '127.0.0.1')");
  refused(way("localhost", tls + "ca = " + dir + "/none.pem\n", port), "`ca` in the --config file: ");
  refused(way("localhost", trusting, server().tcp()), "speaks no TLS there");
  refused(way("localhost", "", port), "if that is its port of https, write `tls = yes` into the --config file");
  const u16 expired = free_port();
  const pid_t other = spawn({"openssl", "s_server", "-accept", std::to_string(expired), "-cert", server().file("expired.pem"),
                             "-key", server().file("server.key"), "-www"},
                            dir + "/said");
  ASSERT_TRUE(wait_for([&] { return slurp(dir + "/said").find("ACCEPT") != std::string::npos; }));
  refused(way("localhost", trusting, expired), "is not trusted (SSL certificate problem: certificate has expired)");
  kill(other, SIGKILL), waitpid(other, nullptr, 0);
  const std::string good = way("localhost", trusting, port);
  ASSERT_EQ(std::system(("cp -r " + dir + "/spool/part.0000001 " + dir + "/kept").c_str()), 0);
  const Outcome o = ringside("ship --spool spool --config conf " + good);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(rows(), events);
  for (const std::string command : {"report -i ", "hist event -i "})
    EXPECT_EQ(ringside(command + "kept").out, ringside(command + "'" + good + "?config=conf'").out);
}

// A way to the server that can be bad: the answer to an insert is lost, or the insert is cut. The requests name a setting as
// `alias` has it, which the server knows.
class BadWay {
 public:
  enum class Fault { answer, request };
  BadWay(u16 to, std::map<u32, Fault> faults, std::pair<std::string, std::string> alias = {})
      : to_(to), faults_(std::move(faults)), alias_(std::move(alias)) {
    std::tie(listen_, port_) = listen_on_loopback();
    thread_ = std::thread([this] { serve(); });
  }
  ~BadWay() {
    over_ = true;
    thread_.join();
    close(listen_);
  }
  u16 port() const { return port_; }
  u32 inserts() const { return inserts_; }
  u32 with_alias() const { return with_alias_; }  // of them

 private:
  void serve() {
    std::vector<std::thread> ways;
    while (!over_) {
      pollfd p{listen_, POLLIN, 0};
      if (poll(&p, 1, 20) == 1) ways.emplace_back([this, fd = accept(listen_, nullptr, nullptr)] { relay(fd); });
    }
    for (auto& way : ways) way.join();
  }
  void relay(int client) {
    const int upstream = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::optional<Fault> fault;
    if (connect(upstream, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      std::vector<char> bytes(65536);
      while (!over_) {
        pollfd p[2] = {{client, POLLIN, 0}, {upstream, POLLIN, 0}};
        if (poll(p, 2, 20) <= 0) continue;
        if (p[0].revents != 0) {
          ssize_t n = read(client, bytes.data(), bytes.size());
          if (n <= 0) break;
          const std::string_view request(bytes.data(), static_cast<size_t>(n));
          const size_t named = alias_.first.empty() ? std::string_view::npos : request.find(alias_.first);
          if (named != std::string_view::npos) std::copy(alias_.second.begin(), alias_.second.end(), bytes.data() + named);
          if (request.find("INSERT") != std::string_view::npos) {
            if (const auto at = faults_.find(++inserts_); at != faults_.end()) fault = at->second;
            if (named != std::string_view::npos) ++with_alias_;
          }
          if (fault == Fault::request) n /= 2;
          if (write(upstream, bytes.data(), static_cast<size_t>(n)) != n || fault == Fault::request) break;
        }
        if (p[1].revents != 0) {
          const ssize_t n = read(upstream, bytes.data(), bytes.size());
          if (n <= 0 || fault == Fault::answer || write(client, bytes.data(), static_cast<size_t>(n)) != n) break;
        }
      }
    }
    close(upstream);
    close(client);
  }
  u16 to_, port_ = 0;
  std::map<u32, Fault> faults_;
  std::pair<std::string, std::string> alias_;
  int listen_ = -1;
  std::atomic<bool> over_{false};
  std::atomic<u32> inserts_{0}, with_alias_{0};
  std::thread thread_;
};

TEST_F(Ship, AnInsertWhoseAnswerIsLostIsNotRepeatedAndOneThatIsCutIs) {
  const u64 events = part(1);
  const BadWay way(server().http(), {{2, BadWay::Fault::answer}, {4, BadWay::Fault::request}});
  // With a source, an agent tries again until its time is over.
  const Outcome o = run(RINGSIDE_BUILD_DIR "/ringside ship -i nothing --spool spool --duration 60s clickhouse://127.0.0.1:" +
                        std::to_string(way.port()) + "/" + database +
                        " & while [ -e spool/part.0000001 ] && kill -0 $!; do sleep 0.05; done; kill -INT $!; wait $!");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("events wait in the spool"), std::string::npos) << o.err;
  EXPECT_GT(way.inserts(), 10u);
  EXPECT_FALSE(fs::exists(dir + "/spool/now"));
  EXPECT_EQ(rows(), events);
  EXPECT_EQ(state()["shipped"], events);
  EXPECT_EQ(number("SELECT count() FROM parts"), 1u);
}

TEST_F(Ship, RowsOfAPartThatIsDamagedLaterAreShipped) {
  const u64 events = part(1);
  {
    const BadWay way(server().http(), {{4, BadWay::Fault::request}});
    EXPECT_EQ(ringside("ship --spool spool clickhouse://127.0.0.1:" + std::to_string(way.port()) + "/" + database).code, 1);
  }
  const u64 there = rows();
  EXPECT_GT(there, 0u);
  EXPECT_EQ(state()["sending"]["arrived"], there);
  damage(1);
  const Outcome o = ringside("ship --spool spool " + url());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(state()["shipped"], there);
  EXPECT_EQ(state()["dropped"], events - there);
}

// A server since 21.11 keeps inserts for later if a user's profile has async_insert; that of the tests is older, and has a
// setting of another name instead.
TEST_F(Ship, AServerThatMayKeepInsertsForLaterIsToldNotTo) {
  const u64 events = part(1);
  const BadWay way(server().http(), {}, {"async_insert", "send_timeout"});
  const Outcome o = ringside("ship --spool spool clickhouse://127.0.0.1:" + std::to_string(way.port()) + "/" + database);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(rows(), events);
  EXPECT_GT(way.inserts(), 10u);
  EXPECT_EQ(way.with_alias(), way.inserts());
}

// The way asks for another format than the server's own, as a server's configuration may.
TEST_F(Ship, AServerMayHaveAnotherDefaultFormat) {
  const u64 events = part(1);
  const BadWay way(server().http(), {}, {"session_timeout=60", "default_format=XML"});
  const Outcome o = ringside("ship --spool spool clickhouse://127.0.0.1:" + std::to_string(way.port()) + "/" + database);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(rows(), events);
  EXPECT_EQ(way.with_alias(), way.inserts());
}

// Agents and the server are killed at random moments; in the end each event is there once.
TEST_F(Ship, EachEventArrivesOnceWhateverIsKilled) {
  const char* const wanted = getenv("RINGSIDE_SHIP_KILLS");
  const int agents = 4, kills = wanted != nullptr ? std::atoi(wanted) : 1, parts = kills == 1 ? 3 : 12 * kills;
  std::random_device seed;
  std::atomic<int> killed{0}, left{agents};
  std::vector<u64> events(agents);
  std::vector<std::atomic<pid_t>> running(agents);
  std::vector<std::thread> threads;
  for (int agent = 0; agent < agents; ++agent) {
    const std::string spool = "spool" + std::to_string(agent);
    for (int n = 1; n <= parts; ++n) events[static_cast<size_t>(agent)] += part(n, 4, 50, spool);
    threads.emplace_back([&, agent, spool, random = std::mt19937(seed())]() mutable {
      for (int mine = 0;;) {
        const pid_t child = spawn({RINGSIDE_BUILD_DIR "/ringside", "ship", "-q", "--spool", dir + "/" + spool, url()},
                                  dir + "/said" + std::to_string(agent));
        running[static_cast<size_t>(agent)] = child;
        int status = 0;
        if (mine < kills) {
          // After a kill it waits some seconds for the end of its last insert.
          std::this_thread::sleep_for(std::chrono::microseconds(mine == 0 ? random() % 400'000 : random() % 5'000'000));
          kill(child, SIGKILL);
        }
        waitpid(child, &status, 0);
        running[static_cast<size_t>(agent)] = 0;
        if (WIFSIGNALED(status)) ++mine, ++killed;
        if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || HasFailure()) break;
      }
      --left;
    });
  }
  std::mt19937 random(seed());
  for (int n = 0; n < kills && left != 0; ++n) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (kills == 1 ? 1'000'000 : 8'000'000)));
    server().kill9();
    server().start();
  }
  while (left != 0) {
    start_again_if_ended();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (const pid_t agent : running)
      if (agent > 0 && HasFailure()) kill(agent, SIGKILL);  // there is no server for it
  }
  for (auto& thread : threads) thread.join();
  if (wanted != nullptr) std::printf("%d kills of agents\n", killed.load());
  for (int agent = 0; agent < agents; ++agent) {
    const auto books = state("spool" + std::to_string(agent));
    EXPECT_EQ(books["shipped"], events[static_cast<size_t>(agent)]) << slurp(dir + "/said" + std::to_string(agent));
    EXPECT_EQ(rows(books["agent"].get<std::string>()), events[static_cast<size_t>(agent)])
        << slurp(dir + "/said" + std::to_string(agent));
  }
  EXPECT_EQ(number("SELECT count() FROM parts"), static_cast<u64>(parts * agents));
}

// Two agents, each with a server of its own; one server dies under load, and both answer for all in the end.
TEST_F(Ship, ACluster) {
  use_second();
  u64 events = 0;
  for (int n = 1; n <= 4; ++n) events += part(n, 2, 50, "one", Of::program) + part(n, 4, 50, "two", Of::program);
  const std::string here = url(), there = second().url(database);
  const auto agent = [&](const std::string& spool, const std::string& own, const std::string& other) {
    return spawn({RINGSIDE_BUILD_DIR "/ringside", "ship", "-i", dir + "/root/" + spool, "--spool", dir + "/" + spool, "--host",
                  spool, "--schema", "cluster=all", "--other", other, own},
                 dir + "/said" + spool);
  };
  const pid_t agents[] = {agent("one", here, there), agent("two", there, here)};
  const auto shipped = [&](const std::string& spool) {
    const auto now = nlohmann::json::parse(slurp(dir + "/" + spool + "/state.json"), nullptr, false);
    return now.is_discarded() ? u64{0} : now.value("shipped", u64{0});
  };
  EXPECT_TRUE(wait_for([&] { return shipped("two") > 0; })) << slurp(dir + "/saidtwo");
  second().kill9();
  second().start();
  EXPECT_TRUE(wait_for([&] { return shipped("one") + shipped("two") == events; }))
      << slurp(dir + "/saidone") << slurp(dir + "/saidtwo");
  for (const pid_t child : agents) kill(child, SIGINT), waitpid(child, nullptr, 0);
  for (const auto& client : {server().client(database), second().client(database)}) {
    u64 all = 0;
    std::string answer;
    for (const auto& block : must(client->select("SELECT name FROM system.tables WHERE database = '" + database +
                                                     "' AND engine = 'Distributed' AND position(name, ':') != 0",
                                                 answer)))
      for (const auto& name : block.column("name")->texts)
        all += must(client->count("SELECT count() FROM " + clickhouse::quoted_name(name)));
    EXPECT_EQ(all, events);
    EXPECT_EQ(must(client->count("SELECT uniq(host) FROM \"app:numbers\"")), 2u);
    EXPECT_LT(must(client->count("SELECT count() FROM \"app:numbers_local\"")),
              must(client->count("SELECT count() FROM \"app:numbers\"")));
  }
  const Outcome both = ringside("report --json '" + there + "'");
  EXPECT_EQ(both.code, 0) << both.err;
}

// GET; the answer without its header. Empty: nobody answers.
std::string get(u16 port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    if (write(fd, request.data(), request.size()) > 0) {
      char bytes[65536];
      for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) answer.append(bytes, static_cast<size_t>(n));
    }
  }
  close(fd);
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

// Its spool's disk is full for a while: the agent goes on, drops the oldest parts, and knows of every event what became of it.
TEST_F(Ship, AFullDiskDropsTheOldestPartsAndTheAgentLivesOn) {
  const std::string spool = dir + "/spool";
  const SmallDisk disk(spool);
  if (!disk) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  const u16 port = free_port();
  const auto said = [&] { return slurp(dir + "/said"); };
  const auto write = [&] {
    run("for n in 1 2 3 4 5; do RINGSIDE_INSTANCE=shop " RINGSIDE_BUILD_DIR "/example_01_write; done");
  };
  setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
  const pid_t agent =
      spawn({RINGSIDE_BUILD_DIR "/ringside", "ship", "-i", "shop", "--json", "--spool", spool, "--part-time", "100ms",
             "--metrics", "127.0.0.1:" + std::to_string(port), "clickhouse://127.0.0.1:" + std::to_string(free_port()) + "/x"},
            dir + "/said");
  unsetenv("RINGSIDE_ROOT");
  const auto read = [&] {
    const auto now = nlohmann::json::parse(slurp(spool + "/state.json"), nullptr, false);
    return now.is_discarded() ? u64{0} : now.value("read", u64{0});
  };
  const auto waits_for = [&](const auto& done) {
    return wait_for([&] { return waitpid(agent, nullptr, WNOHANG) == agent || done(); }) && kill(agent, 0) == 0;
  };
  ASSERT_TRUE(waits_for([&] { return fs::exists(spool + "/now/meta.json"); })) << said();
  const auto written = [&] { return nlohmann::json::parse(ringside("stat shop --json").out)["total"]["written"].get<u64>(); };
  // The first part is on its way from then on, and stays.
  for (int n = 0; n < 3; ++n) {
    write();
    ASSERT_TRUE(waits_for([&] { return read() == written(); })) << said();
  }
  {
    std::atomic<bool> enough{false};
    std::thread fills([&] {  // whatever the agent gives back
      const int fd = open((spool + "/other").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      const std::string bytes(4096, 'x');
      while (!enough)
        if (::write(fd, bytes.data(), bytes.size()) < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      close(fd);
    });
    EXPECT_TRUE(waits_for([&] { return write(), said().find("the spool's oldest parts are dropped") != std::string::npos; }))
        << said();
    EXPECT_TRUE(waits_for([&] { return get(port, "/metrics").find("ringside_disk_full 1\n") != std::string::npos; })) << said();
    write();
    enough = true;
    fills.join();
  }
  fs::remove(spool + "/other");
  EXPECT_TRUE(waits_for([&] { return write(), said().find("there is room for the spool again") != std::string::npos; }))
      << said();
  const u64 all = written();
  kill(agent, SIGINT);
  int status = 0;
  waitpid(agent, &status, 0);
  EXPECT_EQ(status, 0) << said();
  const std::string text = said();
  const size_t begin = text.find('{');
  ASSERT_NE(begin, std::string::npos) << text;
  const auto books = nlohmann::json::parse(text.substr(begin, text.find('\n', begin) - begin));
  EXPECT_EQ(books["read"].get<u64>() + books["lost"].get<u64>(), all) << said();
  EXPECT_EQ(books["read"], books["spooled"].get<u64>() + books["dropped"].get<u64>()) << said();
  EXPECT_GT(books["dropped"].get<u64>(), 0u);
  const Outcome rest = ringside("ship -q --spool spool " + url());
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(rows(), books["spooled"].get<u64>()) << said();
}

TEST_F(Ship, PrometheusUnderstandsTheNumbers) {
  if (in_path("promtool").empty() || in_path("prometheus").empty())
    GTEST_SKIP() << "there is no prometheus (Debian: apt install prometheus)";
  const u64 events = part(1);
  const u16 port = free_port(), own = free_port();
  const std::string at = "127.0.0.1:" + std::to_string(port);
  const pid_t agent =
      spawn({RINGSIDE_BUILD_DIR "/ringside", "ship", "-i", dir + "/root/shop", "--spool", dir + "/spool", "--metrics", at,
             "--hist", "app:numbers/c", "--latency", "app:numbers->app:texts", "--latency", "wakeup", url()},
            dir + "/said");
  const auto has = [&](const std::string& line) { return get(port, "/metrics").find(line) != std::string::npos; };
  ASSERT_TRUE(wait_for([&] { return has("ringside_events_shipped_total " + std::to_string(events) + "\n"); }))
      << slurp(dir + "/said") << get(port, "/metrics");
  const std::string text = get(port, "/metrics");
  EXPECT_EQ(text.find("ringside_field_count{column=\"app:numbers/c\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find("ringside_field_count{column=\"app:numbers/c\"} "), std::string::npos);
  EXPECT_EQ(text.find("ringside_latency_seconds_count{pair=\"app:numbers->app:texts\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find("ringside_events_total{event=\"app:numbers\"} " +
                      std::to_string(number("SELECT count() FROM \"app:numbers\""))),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("ringside_server_up 1\n"), std::string::npos);
  std::ofstream(dir + "/metrics") << text;
  const Outcome checked = run("promtool check metrics < metrics");
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_EQ(get(port, "/"), "The numbers are at /metrics\n");
  std::ofstream(dir + "/prometheus.yml") << "scrape_configs:\n  - job_name: ringside\n    scrape_interval: 200ms\n    "
                                            "scrape_timeout: 200ms\n    static_configs: [{targets: ['"
                                         << at << "']}]\n";
  const pid_t prometheus =
      spawn({"prometheus", "--config.file=" + dir + "/prometheus.yml", "--storage.tsdb.path=" + dir + "/tsdb",
             "--web.listen-address=127.0.0.1:" + std::to_string(own)},
            dir + "/prometheus");
  EXPECT_TRUE(wait_for([&] {
    return get(own, "/api/v1/query?query=ringside_events_shipped_total").find("\"" + std::to_string(events) + "\"") !=
           std::string::npos;
  })) << slurp(dir + "/prometheus")
      << get(own, "/api/v1/targets");
  for (const pid_t child : {prometheus, agent}) kill(child, SIGINT), waitpid(child, nullptr, 0);
}

struct Numbers : BinaryTest {};

// Without a server: numbers of what is recorded, no word of a server, and no part that stays.
TEST_F(Numbers, ComeWithoutAServer) {
  const u16 port = free_port();
  setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
  const pid_t agent = spawn({RINGSIDE_BUILD_DIR "/ringside", "ship", "-i", "shop", "--json", "--spool", dir + "/spool",
                             "--part-time", "100ms", "--metrics", "127.0.0.1:" + std::to_string(port)},
                            dir + "/said");
  unsetenv("RINGSIDE_ROOT");
  ASSERT_TRUE(wait_for([&] { return !get(port, "/metrics").empty(); })) << slurp(dir + "/said");
  run("RINGSIDE_INSTANCE=shop " RINGSIDE_BUILD_DIR "/example_01_write");
  const auto filtered = [&] {
    const std::string text = get(port, "/metrics"), name = "\nringside_events_filtered_total ";
    const size_t at = text.find(name);
    return at == std::string::npos ? u64{0} : std::stoull(text.substr(at + name.size()));
  };
  EXPECT_TRUE(wait_for([&] { return filtered() > 0; })) << get(port, "/metrics") << slurp(dir + "/said");
  const std::string text = get(port, "/metrics");
  EXPECT_NE(text.find("ringside_events_total{event="), std::string::npos) << text;
  EXPECT_EQ(text.find("ringside_server_up"), std::string::npos) << text;
  kill(agent, SIGINT);
  int status = 0;
  waitpid(agent, &status, 0);
  const std::string said = slurp(dir + "/said");
  EXPECT_EQ(status, 0) << said;
  const size_t begin = said.find('{');
  ASSERT_NE(begin, std::string::npos) << said;
  const auto books = nlohmann::json::parse(said.substr(begin, said.find('\n', begin) - begin));
  EXPECT_EQ(books["read"], books["filtered"]) << said;
  EXPECT_GT(books["read"].get<u64>(), 0u);
  EXPECT_EQ(books["spooled"], 0);
}

TEST_F(Numbers, TakeNoPartThatWaitsForAServer) {
  ASSERT_EQ(ringside("record -q -i shop -o part.1 -- env RINGSIDE_INSTANCE=shop " RINGSIDE_BUILD_DIR "/example_01_write").code,
            0);
  ASSERT_EQ(run("mkdir spool && mv part.1 spool").code, 0);
  const std::string at = " --metrics 127.0.0.1:" + std::to_string(free_port());
  const Outcome o = ringside("ship -i shop --spool spool --duration 10ms" + at);
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("that wait for a server, and without one they would be lost; name the server, or another --spool"),
            std::string::npos)
      << o.err;
  EXPECT_EQ(ringside("ship --spool other" + at).code, 2);
  EXPECT_EQ(ringside("ship -i shop --spool other -F 'x == 1'" + at).code, 2);
  EXPECT_EQ(ringside("ship -i shop --spool other").code, 2);
}

// Before the first batch no server is up.
TEST_F(Numbers, AServerThatNeverAnsweredIsNotUp) {
  const u16 port = free_port();
  setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
  const pid_t agent =
      spawn({RINGSIDE_BUILD_DIR "/ringside", "ship", "-i", "shop", "--spool", dir + "/spool", "--metrics",
             "127.0.0.1:" + std::to_string(port), "clickhouse://127.0.0.1:" + std::to_string(free_port()) + "/x"},
            dir + "/said");
  unsetenv("RINGSIDE_ROOT");
  std::string text;
  EXPECT_TRUE(wait_for([&] { return !(text = get(port, "/metrics")).empty(); })) << slurp(dir + "/said");
  EXPECT_NE(text.find("ringside_server_up 0\n"), std::string::npos) << text;
  kill(agent, SIGINT);
  waitpid(agent, nullptr, 0);
}

// The dashboard asks for what the agent tells, and nothing else.
TEST(Dashboard, AsksForNumbersThatExist) {
  const auto dashboard = nlohmann::json::parse(slurp(RINGSIDE_SOURCE_DIR "/examples/fleet-dashboard.json"));
  const std::string told = slurp(RINGSIDE_SOURCE_DIR "/src/ship/metrics.cpp");
  u32 asked = 0;
  for (const auto& panel : dashboard["panels"])
    for (const auto& target : panel["targets"]) {
      const std::string expression = target["expr"];
      for (size_t at = expression.find("ringside_"); at != std::string::npos;
           at = expression.find("ringside_", at + 1), ++asked) {
        std::string name = expression.substr(at, expression.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at) - at);
        if (name.ends_with("_bucket")) name.resize(name.size() - 7);
        EXPECT_NE(told.find("\"" + name + "\""), std::string::npos) << name;
      }
    }
  EXPECT_GT(asked, 8u);
}

TEST(Service, SystemdTakesIt) {
  if (in_path("systemd-analyze").empty()) GTEST_SKIP() << "there is no systemd-analyze";
  // The program of this build stands where the service says only after an installation.
  const std::string dir = testing::TempDir() + "ringside-unit-" + std::to_string(getpid());
  fs::create_directories(dir);
  std::string text = slurp(RINGSIDE_BUILD_DIR "/ringside-ship.service");
  const size_t program = text.find("ExecStart=") + 10;
  ASSERT_GT(text.size(), program);
  text.replace(program, text.find(' ', program) - program, RINGSIDE_BUILD_DIR "/ringside");
  std::ofstream(dir + "/ringside-ship.service") << text;
  const int status =
      std::system(("systemd-analyze verify --man=no " + dir + "/ringside-ship.service >" + dir + "/said 2>&1").c_str());
  EXPECT_EQ(slurp(dir + "/said"), "");
  EXPECT_EQ(status, 0);
  fs::remove_all(dir);
}

// The questions of docs/fleet.md, about the kernel's events of this machine; the answer to the first one is also known from
// `latency`.
TEST_F(Ship, TheTenQuestionsHaveAnswers) {
  fs::create_directories(dir + "/spool");
  const auto cpus = allowed_cpus();
  const bool one_cpu = cpus.size() == 1;
  const Outcome recorded = ringside(
      "record -q -a -e 'sched,raw_syscalls' -o spool/part.1 -- "
      "sh -c 'for cpu in " +
      fmt::format("{}", fmt::join(cpus, " ")) + "; do taskset -pc $cpu $$; /bin/true; sleep 0.01; done'");
  if (recorded.code != 0) GTEST_SKIP() << "no events of the kernel here: " << recorded.err;
  ASSERT_EQ(std::system(("cp -r " + dir + "/spool/part.1 " + dir + "/kept").c_str()), 0);
  ASSERT_EQ(ringside("ship -q --spool spool --host here " + url()).code, 0);
  const auto client = server().client(database);
  std::vector<u64> rows_of;
  std::string text = slurp(RINGSIDE_SOURCE_DIR "/docs/fleet.md"), answer;
  for (size_t at = text.find("```sql\n"); at != std::string::npos; at = text.find("```sql\n", at + 1)) {
    const std::string sql = text.substr(at + 7, text.find("```", at + 7) - at - 7);
    const auto blocks = client->select(sql, answer);
    EXPECT_TRUE(blocks || (one_cpu && sql.find("sched_migrate_task") != std::string::npos)) << sql << blocks.error().sentence;
    rows_of.push_back(0);
    u64 wakeups = 0;
    for (const auto& block : blocks ? *blocks : std::vector<clickhouse::BlockIn>{}) {
      rows_of.back() += block.rows;
      if (const auto* count = block.column("wakeups"); count != nullptr)
        for (u64 row = 0; row < block.rows; ++row) wakeups += static_cast<u64>(count->whole(row));
    }
    if (rows_of.size() != 1) continue;
    const Outcome latency = ringside("latency wakeup kept --json");
    ASSERT_EQ(latency.code, 0) << latency.err;
    EXPECT_EQ(wakeups, nlohmann::json::parse(latency.out)["pairs"].get<u64>()) << latency.out.substr(0, 500);
  }
  ASSERT_EQ(rows_of.size(), 10u);
  for (size_t n = 0; n < rows_of.size(); ++n) {
    if (n != 1 && !(n == 8 && one_cpu)) {  // nothing may be lost; with one CPU no thread moves
      EXPECT_GT(rows_of[n], 0u) << "question " << n + 1;
    }
  }
}

}  // namespace
}  // namespace ringside::test::ship_test

// One case of ctest: 77 says that a part of it was skipped.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ringside::open_servers();
  const int failed = RUN_ALL_TESTS();
  return failed == 0 && testing::UnitTest::GetInstance()->skipped_test_count() != 0 ? 77 : failed;
}
