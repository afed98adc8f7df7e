// Programs in PID namespaces of their own that share an instance, like containers on one volume: their names from the host and
// from inside.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "binary.hpp"
#include "clock/clock.hpp"
#include "sys/json.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/layout.hpp"
#include "sys/sys.hpp"

namespace ringside::containers_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;
namespace fs = std::filesystem;

constexpr const char* in_container = "unshare -p -f --mount-proc ";
const std::string command = RINGSIDE_BUILD_DIR "/ringside";

bool eventually(const std::function<bool()>& holds) {
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20); !holds(); usleep(5000))
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

bool holds(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

struct Containers : test::BinaryTest, testing::WithParamInterface<const char*> {
  std::map<int, sys::Fd> fifos;
  std::vector<pid_t> started;

  void SetUp() override {
    test::BinaryTest::SetUp();
    if (geteuid() != 0) GTEST_SKIP() << "wants root, for unshare";
    if (run(std::string(in_container) + "true").code != 0) GTEST_SKIP() << "unshare does not work here";
    if (std::string(GetParam()) == "cpu" && why_not_cpu_rings() != RingsBecause::can)
      GTEST_SKIP() << "no rings of CPUs here, " << to_string(why_not_cpu_rings());
    setenv("RINGSIDE_RINGS", GetParam(), 1);
  }
  void TearDown() override {
    for (auto& [who, fifo] : fifos) end(who);
    for (const pid_t pid : started) waitpid(pid, nullptr, 0);
    unsetenv("RINGSIDE_RINGS");
    test::BinaryTest::TearDown();
  }
  void make_instance() { ASSERT_EQ(ringside("record -i sh -o r0 -q -- true").code, 0); }
  // A living program that has written 20 events.
  void start(int who, const std::string& how = in_container) {
    const std::string name = std::to_string(who), fifo = dir + "/fifo-" + name;
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    fifos[who] = sys::Fd(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
    const pid_t pid = fork();
    if (pid == 0) {
      const std::string all = "cd " + dir + " && RINGSIDE_ROOT=" + dir + "/root RINGSIDE_INSTANCE=sh exec " + how +
                              RINGSIDE_BUILD_DIR "/tests/container_writer " + name + " " + fifo;
      execl("/bin/sh", "sh", "-c", all.c_str(), nullptr);
      _exit(127);
    }
    started.push_back(pid);
    ASSERT_TRUE(eventually([&] { return fs::exists(dir + "/ready-" + name); })) << who;
  }
  void end(int who) { fifos[who] = sys::Fd(); }
  void wait_for_all() {
    for (const pid_t pid : started) waitpid(pid, nullptr, 0);
    started.clear();
  }
  // The numbers of a thread in this /proc, from outside to inside.
  static std::vector<i32> numbers_of(i32 tid) {
    std::istringstream lines(test::slurp("/proc/" + std::to_string(tid) + "/status"));
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("NSpid:", 0) != 0) continue;
      std::istringstream words(line.substr(6));
      std::vector<i32> all;
      for (i32 n; words >> n;) all.push_back(n);
      return all;
    }
    return {};
  }
  // Each program's 20 events belong to its two threads, under their names.
  static void expect_named(const std::vector<json>& all, int who) {
    std::map<std::string, std::set<i32>> tids;
    std::set<i32> pids;
    size_t n = 0;
    for (const json& e : all) {
      if (e["fields"]["who"] != who) continue;
      ++n;
      tids[e["task"]].insert(e["tid"].get<i32>());
      pids.insert(e["pid"].get<i32>());
    }
    const std::string name = std::to_string(who);
    EXPECT_EQ(n, 20u);
    EXPECT_EQ(pids.size(), 1u);
    ASSERT_EQ(tids.size(), 2u);
    EXPECT_EQ(tids["main-" + name], pids);
    EXPECT_EQ(tids["other-" + name].size(), 1u);
    EXPECT_NE(tids["other-" + name], pids);
  }
  // Missing: 0.
  static u64 number(const json& e, const char* field) { return e.value(field, u64{0}); }
  static i32 pid_of(const std::vector<json>& all, int who) {
    for (const json& e : all)
      if (e["fields"]["who"] == who) return e["pid"];
    return 0;
  }
};

TEST_P(Containers, ProgramsWithTheSamePidAreToldApart) {
  make_instance();
  start(1);
  start(2);
  start(3, "");  // on the host
  const auto live = events("sh");
  for (int who = 1; who <= 3; ++who) expect_named(live, who);
  ASSERT_EQ(ringside("record -i sh -o r --duration 100ms").code, 0);
  const auto all = events("r");
  ASSERT_EQ(all.size(), 60u);
  for (int who = 1; who <= 3; ++who) expect_named(all, who);
  std::set<u64> namespaces;
  for (const json& e : all) {
    const auto numbers = numbers_of(e["tid"]);
    if (e["fields"]["who"] == 3) {
      EXPECT_FALSE(e.contains("ns_pid")) << e;
      EXPECT_EQ(numbers, std::vector<i32>{e["tid"].get<i32>()});
      continue;
    }
    EXPECT_EQ(number(e, "ns_pid"), 1u) << e;
    EXPECT_EQ(numbers, (std::vector<i32>{e["tid"].get<i32>(), static_cast<i32>(number(e, "ns_tid"))})) << e;
    EXPECT_EQ(number(e, "ns_tid") == 1, e["task"].get<std::string>()[0] == 'm') << e;
    namespaces.insert(number(e, "pid_namespace"));
  }
  EXPECT_EQ(namespaces.size(), 2u);
  // As text.
  const std::string text = ringside("report r").out;
  for (int who = 1; who <= 2; ++who)
    EXPECT_TRUE(holds(text, "main-" + std::to_string(who) + "-" + std::to_string(pid_of(all, who)) + "(1) ")) << text;
  EXPECT_TRUE(holds(text, "main-3-" + std::to_string(pid_of(all, 3)) + " ")) << text;
  EXPECT_TRUE(json::parse(ringside("stat sh --json").out)["adds_up"]);
}

TEST_P(Containers, TopFiltersAndStatTakeTheNumbersOfTheHost) {
  make_instance();
  start(1);
  start(2);
  const auto all = events("sh");
  const i32 first = pid_of(all, 1), second = pid_of(all, 2);
  ASSERT_NE(first, second);
  const auto by = [&](const std::string& key) {
    std::map<std::string, int> counts;
    const json rows = json::parse(ringside("top r --by " + key + " --json").out)["rows"];
    for (const json& row : rows) counts[row[key].is_string() ? row[key].get<std::string>() : row[key].dump()] = row["count"];
    return counts;
  };
  ASSERT_EQ(ringside("record -i sh -o r --duration 100ms").code, 0);
  const std::string one = std::to_string(first), two = std::to_string(second);
  EXPECT_EQ(by("process"),
            (std::map<std::string, int>{{"container_write-" + one + "(1)", 20}, {"container_write-" + two + "(1)", 20}}))
      << ringside("top r --by process").out;
  EXPECT_EQ(by("thread")["main-1-" + one + "(1)"], 10);
  EXPECT_EQ(by("tid")[two], 10);
  for (const std::string& filter : {"--tid " + one, "-F 'pid == " + one + "'", "-F 'tid == " + one + " && who == 1'"}) {
    const auto some = events(filter + " r");
    EXPECT_EQ(some.size(), 10u) << filter;
    for (const json& e : some) EXPECT_EQ(e["task"], "main-1") << filter;
  }
  EXPECT_EQ(events("-F 'tid == 1' r").size(), 0u);
  if (std::string(GetParam()) != "thread") return;
  const json rings = json::parse(ringside("stat sh --json").out)["rings"];
  std::set<i32> pids;
  for (const json& ring : rings) {
    EXPECT_EQ(number(ring, "ns_pid"), 1u) << ring;
    pids.insert(ring["pid"].get<i32>());
  }
  EXPECT_EQ(pids, (std::set<i32>{first, second}));
  EXPECT_TRUE(holds(ringside("stat sh").out, "main-1-" + one + "(1) ")) << ringside("stat sh").out;
}

TEST_P(Containers, ThoseInsideSeeThemselvesAndTheOthersNamespaces) {
  make_instance();
  start(1);
  start(2);
  start(3, "");
  const auto all = events("sh");
  const std::string enter = "nsenter -p -m -t " + std::to_string(pid_of(all, 1)) + " env RINGSIDE_ROOT=" + dir + "/root ";
  const Outcome inside = run(enter + command + " report sh");
  ASSERT_EQ(inside.code, 0) << inside.err;
  EXPECT_TRUE(holds(inside.out, " main-1-1  ")) << inside.out;
  struct stat st {};
  ASSERT_EQ(stat(("/proc/" + std::to_string(pid_of(all, 2)) + "/ns/pid").c_str(), &st), 0);
  EXPECT_TRUE(holds(inside.out, " main-2-1@" + std::to_string(st.st_ino) + " ")) << inside.out;
  EXPECT_TRUE(holds(inside.out, " main-3-" + std::to_string(pid_of(all, 3)) + "@" + std::to_string(sys::pid_namespace()) + " "))
      << inside.out;
  // A recording made inside shows the same here.
  ASSERT_EQ(run(enter + command + " record -i sh -o " + dir + "/inner --duration 100ms").code, 0) << test::slurp(dir + "/err");
  const auto recorded = events("inner");
  ASSERT_EQ(recorded.size(), 60u);
  for (int who = 1; who <= 3; ++who) expect_named(recorded, who);
  EXPECT_EQ(pid_of(recorded, 1), 1);
  EXPECT_TRUE(holds(ringside("report inner").out, " main-1-1  "));
}

TEST_P(Containers, AContainersOwnInstanceIsReadFromTheHost) {
  start(1);  // this one makes it
  start(2);
  start(3, "");
  const auto all = events("sh");
  for (int who = 1; who <= 3; ++who) expect_named(all, who);
  for (const json& e : all) {
    EXPECT_EQ(numbers_of(e["tid"]).size(), e["fields"]["who"] == 3 ? 1u : 2u) << e;
    if (e["fields"]["who"] == 1) {
      EXPECT_EQ(number(e, "ns_pid"), 1u);
    }
  }
  const std::string text = ringside("report sh").out;
  EXPECT_TRUE(holds(text, " main-1-" + std::to_string(pid_of(all, 1)) + "(1) ")) << text;
  EXPECT_TRUE(holds(text, " main-3-" + std::to_string(pid_of(all, 3)) + "  ")) << text;
}

TEST_P(Containers, TheDeadKeepWhatWasFoundOut) {
  make_instance();
  start(1);
  start(2);
  ASSERT_EQ(ringside("record -i sh -o r --duration 100ms").code, 0);
  const i32 before = pid_of(events("r"), 1);
  start(4);  // ends before any reader was there
  for (const int who : {1, 2, 4}) end(who);
  wait_for_all();
  EXPECT_EQ(pid_of(events("r"), 1), before);
  EXPECT_TRUE(holds(ringside("report r").out, " main-1-" + std::to_string(before) + "(1) "));
  const auto dead = events("sh");
  ASSERT_EQ(dead.size(), 20u);
  expect_named(dead, 4);
  EXPECT_GE(pid_of(dead, 4), static_cast<i32>(most_threads));
  EXPECT_EQ(number(dead[0], "ns_pid"), 1u);
  EXPECT_TRUE(holds(ringside("report sh").out, " main-4-1@" + std::to_string(number(dead[0], "pid_namespace")) + " "));
  // As made by an older ringside: the numbers alone.
  json meta = json::parse(test::slurp(dir + "/r/meta.json"));
  for (const char* list : {"threads", "rings"})
    for (json& t : meta[list])
      for (const char* field : {"ns_tid", "ns_pid", "pid_namespace", "here_tid", "here_pid", "cgroup"}) t.erase(field);
  std::ofstream(dir + "/r/meta.json") << meta;
  const auto old = events("r");
  ASSERT_EQ(old.size(), 40u);
  expect_named(old, 1);
  EXPECT_FALSE(old[0].contains("ns_pid"));
}

TEST_P(Containers, ATraceDatNamesThem) {
  make_instance();
  start(1);
  ASSERT_EQ(ringside("record -i sh -o r --duration 100ms").code, 0);
  const i32 pid = pid_of(events("r"), 1);
  ASSERT_EQ(ringside("export --to x.dat r").code, 0) << test::slurp(dir + "/err");
  EXPECT_TRUE(holds(ringside("report x.dat").out, " main-1-" + std::to_string(pid) + "(1)-41943"))
      << ringside("report x.dat").out;
}

TEST_P(Containers, TheMountShowsThem) {
  if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "wants /dev/fuse";
  make_instance();
  start(1);
  start(3, "");
  const auto all = events("sh");
  const std::string inner = std::to_string(pid_of(all, 1)), outer = std::to_string(pid_of(all, 3));
  fs::create_directories(dir + "/m");
  const std::string look =
      "mkdir -p m; " + command +
      " mount m --instance sh > log 2>&1 & M=$!; until [ -e m/trace ] || ! kill -0 $M 2>/dev/null; do sleep 0.1; done; ";
  const Outcome o = run(look + "cat m/trace; echo ==; cat m/saved_cmdlines; echo ==; cat m/saved_tgids; echo ==; echo " +
                        inner + " > m/set_event_pid; cat m/trace; umount m; wait");
  ASSERT_EQ(o.code, 0) << o.err << test::slurp(dir + "/log");
  std::vector<std::string> parts;
  for (size_t at = 0; at <= o.out.size();) {
    const size_t until = std::min(o.out.find("==\n", at), o.out.size());
    parts.push_back(o.out.substr(at, until - at));
    at = until + 3;
  }
  ASSERT_EQ(parts.size(), 4u) << o.out;
  EXPECT_TRUE(holds(parts[0], " main-1-" + inner + "(1) ")) << parts[0];
  EXPECT_TRUE(holds(parts[0], " main-3-" + outer + " ")) << parts[0];
  EXPECT_TRUE(holds("\n" + parts[1], "\n" + inner + " main-1\n")) << parts[1];
  // By the numbers in the raw pages, too.
  bool raw = false;
  for (u32 n = 0; n < 4; ++n) raw = raw || holds("\n" + parts[1], "\n" + std::to_string(most_threads + n) + " main-1\n");
  EXPECT_TRUE(raw) << parts[1];
  EXPECT_TRUE(holds("\n" + parts[2], "\n" + inner + " " + inner + "\n")) << parts[2];
  EXPECT_TRUE(holds(parts[3], " main-1-" + inner + "(1) ")) << parts[3];
  EXPECT_FALSE(holds(parts[3], "main-3")) << parts[3];
  // And inside, of programs on the host.
  const Outcome inside = run("unshare -p -f --mount-proc sh -c '" + look + "cat m/trace; umount m; wait'");
  EXPECT_EQ(inside.code, 0) << inside.err << test::slurp(dir + "/log");
  EXPECT_TRUE(holds(inside.out, " main-3-" + outer + "@" + std::to_string(sys::pid_namespace()) + " ")) << inside.out;
}

// Recorders with the same PID, each in its own namespace, first in sequence, then at once: each has its command's events.
TEST_P(Containers, RecordersSideBySide) {
  ASSERT_EQ(run("for i in 1 2 3; do " + std::string(in_container) + "sh -c 'exec " + command +
                " record -o r'$i' --libc io -- sh -c \"cat /etc/hostname; sleep 0.3\"' > /dev/null & done; wait")
                .code,
            0);
  for (const char* r : {"r1", "r2", "r3"}) {
    size_t opens = 0;
    for (const json& e : events(r)) opens += e["event"] == "libc:open" && e["fields"]["path"] == "/etc/hostname";
    EXPECT_EQ(opens, 1u) << r << test::slurp(dir + "/err");
  }
  EXPECT_EQ(json::parse(ringside("list --json").out).size(), 0u) << ringside("list").out;
}

INSTANTIATE_TEST_SUITE_P(Rings, Containers, testing::Values("cpu", "thread"),
                         [](const auto& of) { return std::string(of.param); });

// A cgroup of the unified hierarchy that the test makes.
struct Cgroups : Containers {
  std::string cgroup;
  void SetUp() override {
    Containers::SetUp();
    if (IsSkipped()) return;
    for (const char* root : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}) {
      if (access((std::string(root) + "/cgroup.controllers").c_str(), F_OK) != 0) continue;
      cgroup = std::string(root) + "/ringside-test-" + std::to_string(getpid());
      break;
    }
    if (cgroup.empty() || (mkdir(cgroup.c_str(), 0755) != 0))
      GTEST_SKIP() << "no unified hierarchy of cgroups that a test may add to";
  }
  void TearDown() override {
    Containers::TearDown();
    const bool gone = cgroup.empty() || eventually([&] { return rmdir(cgroup.c_str()) == 0; });
    EXPECT_TRUE(gone) << cgroup;
  }
};

TEST_P(Cgroups, AreAColumnLiveAndRecorded) {
  make_instance();
  const std::string name = "/" + cgroup.substr(cgroup.rfind('/') + 1);
  start(1, "sh -c 'echo 0 > " + cgroup + "/cgroup.procs && exec \"$@\"' sh " + in_container);
  start(2);
  const std::string filter = "-F 'cgroup == \"" + name + "\"' ";
  const auto expect_one = [&](const std::string& where) {
    const auto some = events(filter + where);
    EXPECT_EQ(some.size(), 20u) << where;
    for (const json& e : some) EXPECT_EQ(e["fields"]["who"], 1) << where;
    const auto others = events("-F 'cgroup != \"" + name + "\"' " + where);
    EXPECT_EQ(others.size(), 20u) << where;
  };
  expect_one("sh");
  ASSERT_EQ(ringside("record -i sh -o r --duration 100ms").code, 0);
  for (const int who : {1, 2}) end(who);
  wait_for_all();
  expect_one("r");
  std::map<std::string, int> counts;
  const json table = json::parse(ringside("top r --by cgroup --json").out);
  for (const json& row : table["rows"]) counts[row["cgroup"]] = row["count"];
  EXPECT_EQ(counts[name], 20) << table;
  EXPECT_EQ(counts.size(), 2u) << table;
  EXPECT_TRUE(holds(ringside("hist cgroup r").out, name)) << ringside("hist cgroup r").out << test::slurp(dir + "/err");
  EXPECT_EQ(ringside("report -F 'cgroup > 3' r").code, 2);
  // Unknown is an empty text.
  json meta = json::parse(test::slurp(dir + "/r/meta.json"));
  for (const char* list : {"threads", "rings"})
    for (json& t : meta[list]) t.erase("cgroup");
  std::ofstream(dir + "/r/meta.json") << meta;
  EXPECT_EQ(events("-F 'cgroup == \"\"' r").size(), 40u);
}

INSTANTIATE_TEST_SUITE_P(Rings, Cgroups, testing::Values("cpu", "thread"),
                         [](const auto& of) { return std::string(of.param); });

TEST(Cgroup, TheUnifiedOneOrTheLongest) {
  EXPECT_EQ(sys::cgroup_in("0::/user.slice/a.scope\n"), "/user.slice/a.scope");
  EXPECT_EQ(sys::cgroup_in("4:memory:/docker/0123456789\n3:cpu:/docker\n0::/system.slice\n"), "/system.slice");
  EXPECT_EQ(sys::cgroup_in("4:memory:/docker/01\n3:cpu,cpuacct:/a\n0::/\n"), "/docker/01");
  EXPECT_EQ(sys::cgroup_in("1:name=systemd:/a:b\n"), "/a:b");
  EXPECT_EQ(sys::cgroup_in("0::/\n"), "/");
  EXPECT_EQ(sys::cgroup_in(""), "");
  EXPECT_EQ(sys::cgroup_in("nonsense\n1:\n"), "");
  EXPECT_NE(sys::cgroup_of(getpid()), "");
  EXPECT_EQ(sys::cgroup_of(0), "");
}

}  // namespace
}  // namespace ringside::containers_cli_test
