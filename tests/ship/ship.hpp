// What the tests of ringside ship share: real servers, and a spool's recordings.
#pragma once
#include <sys/mount.h>

#include <cstdio>
#include <filesystem>

#include "binary.hpp"
#include "random_recording.hpp"
#include "ship/server.hpp"

namespace ringside::test::ship_test {
namespace fs = std::filesystem;

inline TestServer& server() {
  static TestServer one;
  return one;
}

// Of the cluster `all`, with the first one.
inline TestServer& second() {
  static TestServer one;
  return one;
}

template <class Done>
bool wait_for(const Done& done) {
  for (int n = 0; n < 6000; ++n) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A file system of 2 MiB.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& at) : at_(at) {
    std::filesystem::create_directories(at);
    mounted_ = mount("none", at.c_str(), "tmpfs", 0, "size=2m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(at_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  explicit operator bool() const { return mounted_; }

 private:
  const std::string at_;
  bool mounted_ = false;
};

// No test has killed it (Debian's 18.16 does so when tables are made or loaded beside inserts): what it said is in the test's
// output.
inline void start_again_if_ended() {
  for (TestServer* const one : {&server(), &second()}) {
    if (!one->has_ended()) continue;
    std::fprintf(stderr, "the server has ended by itself and starts again: %s\n", one->words().c_str());
    one->start();
  }
}

// An empty database of the first server, which runs from here on.
inline std::string new_database() {
  static const bool started =
      (server().use_tls(), server().configure({server().tcp(), second().tcp()}), server().start(), true);
  (void)started;
  start_again_if_ended();
  static int number = 0;
  std::string name = "t" + std::to_string(++number);
  must(server().client("default")->ask("CREATE DATABASE " + name));
  return name;
}

struct Ship : BinaryTest {
  std::string database;
  void SetUp() override {
    if (const std::string missing = TestServer::missing(); !missing.empty()) GTEST_SKIP() << missing;
    dir = in_memory("ringside-ship-" + std::to_string(getpid()));
    BinaryTest::SetUp();
    database = new_database();
  }
  void use_second() const {
    static const bool started = (second().configure({server().tcp(), second().tcp()}), second().start(), true);
    (void)started;
    must(second().client("default")->ask("CREATE DATABASE " + database));
  }
  std::string url() const { return server().url(database); }
  u64 number(const std::string& sql) const { return must(server().client(database)->count(sql)); }
  // Rows in all tables of events.
  u64 rows(const std::string& agent = "") const { return rows_where(agent.empty() ? "1" : "agent = '" + agent + "'"); }
  u64 rows_where(const std::string& condition) const {
    const auto client = server().client(database);
    std::string answer;
    u64 all = 0;
    for (const auto& block : must(client->select(
             "SELECT name FROM system.tables WHERE database = '" + database + "' AND position(name, ':') != 0", answer)))
      for (const auto& name : block.column("name")->texts)
        all += must(client->count("SELECT count() FROM " + clickhouse::quoted_name(name) + " WHERE " + condition));
    return all;
  }
  nlohmann::json state(const std::string& spool = "spool") const {
    return nlohmann::json::parse(slurp(dir + "/" + spool + "/state.json"));
  }
  // A part of a spool.
  u64 part(int number, u32 rings = 4, u32 events_per_page = 50, const std::string& spool = "spool", Of of = Of::both) const {
    fs::create_directories(dir + "/" + spool);
    char name[32];
    std::snprintf(name, sizeof name, "/part.%07d", number);
    return random_recording(dir + "/" + spool + name, {}, rings, 4096, of, events_per_page);
  }
  // One with one event.
  void small_part(int number, const std::string& fields, const Payload& payload, const std::string& event = "order") const {
    fs::create_directories(dir + "/spool");
    auto w = must(RecordingWriter::create(dir + "/spool/part." + std::to_string(number), {}));
    w.meta().events.push_back({1, "shop", event, format(1, event, fields, "\"%u\", REC->id"), true});
    must(w.add_ring({0, 1, 1, "shop", "shop"}, 4096));
    SubBuffer s(1000);
    s.event(2000, payload);
    must(w.append(0, s.view()));
    must(w.finish(1));
  }
  std::string path_of_part(int number) const {
    char name[32];
    std::snprintf(name, sizeof name, "/spool/part.%07d", number);
    return dir + name;
  }
  // A part's meta.json becomes something that is no JSON.
  void damage(int number) const { std::ofstream(path_of_part(number) + "/meta.json") << "{"; }
  std::string away() const { return "clickhouse://127.0.0.1:" + std::to_string(free_port()) + "/x"; }  // no server is there
  u64 lost(const std::string& why) const { return number("SELECT sum(count) FROM losses WHERE why = '" + why + "'"); }
};

inline const std::string id_field = "\tfield:u32 id;\toffset:8;\tsize:4;\tsigned:0;\n";

// A clock that only sleeping moves.
inline clickhouse::Time quick_time() {
  const auto now = std::make_shared<u64>(1);
  return {[now] { return *now; }, [now](u64 ns) { *now += ns; }};
}

}  // namespace ringside::test::ship_test
