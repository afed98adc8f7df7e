// Many agents on two servers. RINGSIDE_AGENTS=1000 takes that many, and prints what they took.
#include <sys/resource.h>

#include <cmath>
#include <ringside/ringside.h>
#include <ringside/trace.hpp>

#include "ship/ship.hpp"

RINGSIDE_EVENT(fleet, tick, (u64, number), (u32, round));

namespace ringside::test::ship_test {
namespace {

struct Agent {
  std::string name;
  bool of_second = false;
  u64 written = 0;
  pid_t pid = 0;
};

// Writes `events` events into an instance, as another program.
void write_as_program(const std::string& instance, u64 events, u32 round) {
  const pid_t child = fork();
  if (child == 0) {
    if (ringside_open(instance.c_str()) != 0) _exit(1);
    for (u64 n = 0; n < events; ++n) fleet::tick(n, round);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0) << instance;
}

// Bytes that this process has for itself, and its share of those that it has with others.
u64 memory_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string word; in >> word;)
    if (u64 kb = 0; word == "Pss:" && in >> kb) return kb * 1024;
  return 0;
}

double seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; }

// Each agent has an instance and a program of its own. One server is away for a while, and again at the end; the spools of some
// of its agents are small.
TEST_F(Ship, AFleetKeepsItsBooks) {
  const char* const wanted = getenv("RINGSIDE_AGENTS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 6;
  const int part_ms = std::max(100, 10 * count);
  constexpr u64 events = 1000;
  use_second();
  setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
  std::vector<Agent> agents;
  const auto begin = std::chrono::steady_clock::now();
  for (int n = 0; n < count; ++n) {
    Agent agent{"agent" + std::to_string(n), n % 2 == 1};
    agent.pid =
        spawn({RINGSIDE_BUILD_DIR "/ringside", "ship", "-i", agent.name, "-b", "64k", "--json", "--spool",
               dir + "/" + agent.name, "--spool-size", n % 4 == 1 ? "80k" : "1g", "--part-time", std::to_string(part_ms) + "ms",
               "--host", agent.name, (agent.of_second ? second() : server()).url(database)},
              dir + "/said-" + agent.name);
    agents.push_back(agent);
  }
  const auto now = [&](const Agent& agent) {
    const auto read = nlohmann::json::parse(slurp(dir + "/" + agent.name + "/state.json"), nullptr, false);
    return read.is_object() ? read : nlohmann::json::object();
  };
  const auto taken = [&](const Agent& agent) {
    const auto books = now(agent);
    return books.value("read", u64{0}) + books.value("lost", u64{0}) == agent.written;
  };
  const auto said = [&](const Agent& agent) {
    return agent.name + ": " + now(agent).dump() + slurp(dir + "/said-" + agent.name) + "\nits server: " +
           (agent.of_second ? second() : server()).words();
  };
  for (const Agent& agent : agents)
    ASSERT_TRUE(wait_for([&] { return fs::exists(dir + "/" + agent.name + "/now/meta.json"); })) << said(agent);
  u32 round = 0;
  const auto write = [&] {
    ++round;
    for (Agent& agent : agents) {
      write_as_program(agent.name, events, round);
      agent.written += events;
    }
    for (const Agent& agent : agents) ASSERT_TRUE(wait_for([&] { return taken(agent); })) << said(agent);
  };
  write();
  second().kill9();
  for (int n = 0; n < 3; ++n) write();
  second().start();
  write();
  // All that was kept arrives.
  for (const Agent& agent : agents) {
    EXPECT_TRUE(wait_for([&] {
      start_again_if_ended();
      const auto books = now(agent);
      return books.value("read", u64{0}) == books.value("shipped", u64{0}) + books.value("dropped", u64{0});
    })) << said(agent);
  }
  u64 memory = 0;
  for (const Agent& agent : agents) memory += wanted != nullptr ? memory_of(agent.pid) : 0;
  second().kill9();
  write();
  for (const Agent& agent : agents) kill(agent.pid, SIGINT);
  std::map<std::string, u64> shipped;
  u64 read = 0, spooled = 0, dropped = 0, lost = 0, written = 0, all_shipped = 0;
  double cpu = 0;
  for (const Agent& agent : agents) {
    int status = 0;
    rusage used{};
    wait4(agent.pid, &status, 0, &used);
    EXPECT_EQ(status, 0) << said(agent);
    cpu += seconds(used.ru_utime) + seconds(used.ru_stime);
    const std::string text = slurp(dir + "/said-" + agent.name);
    const auto books = nlohmann::json::parse(
        text.substr(std::min(text.find("{\"schema"), text.size()), text.find('}') - text.find("{\"schema") + 1), nullptr,
        false);
    ASSERT_TRUE(books.is_object()) << text;
    const auto number = [&](const char* name) { return books[name].get<u64>(); };
    EXPECT_EQ(number("read"), number("shipped") + number("spooled") + number("dropped")) << said(agent);
    EXPECT_EQ(number("read") + number("lost"), agent.written) << said(agent);
    if (number("shipped") != 0) shipped[books["agent"]] = number("shipped");
    read += number("read"), spooled += number("spooled"), dropped += number("dropped"), lost += number("lost"),
        written += agent.written, all_shipped += number("shipped");
  }
  unsetenv("RINGSIDE_ROOT");
  second().start();
  std::map<std::string, u64> there;
  for (const TestServer* one : {&server(), &second()}) {
    std::string answer;
    for (const auto& block :
         must(one->client(database)->select("SELECT agent, count() AS rows FROM \"fleet:tick\" GROUP BY agent", answer)))
      for (u64 row = 0; row < block.rows; ++row)
        there[std::string(block.column("agent")->texts[row])] += static_cast<u64>(block.column("rows")->whole(row));
  }
  EXPECT_EQ(shipped, there);
  EXPECT_GT(all_shipped, 0u);
  EXPECT_GT(spooled, 0u);
  EXPECT_GT(dropped, 0u);
  if (wanted == nullptr) return;
  std::printf("%d agents in %.0f s: %lu events written = lost %lu + read %lu; read = shipped %lu + spooled %lu + dropped %lu\n",
              count, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), written, lost, read,
              all_shipped, spooled, dropped);
  std::printf("of an agent: %.2f s of CPU time, %.2f MiB\n", cpu / count, static_cast<double>(memory) / count / 1048576);
}

}  // namespace
}  // namespace ringside::test::ship_test
