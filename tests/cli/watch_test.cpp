// watch in a real terminal: tmux to read the screen, a pty of the test's own for terminals that go away or take nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/syscall.h>

#include <functional>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"
#include "sys/sys.hpp"

namespace ringside::test::watch_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Waits for an event that must happen, on a loaded machine, too.
bool within(double seconds, const std::function<bool()>& is) {
  const u64 end = sys::now_ns() + static_cast<u64>(seconds * 1e9);
  do {
    if (is()) return true;
    usleep(20000);
  } while (sys::now_ns() < end);
  return is();
}

struct WatchTest : test::BinaryTest {
  // 30 allocations of two sizes by cc1plus, 20 packets by as; 1,234 events lost.
  void record() {
    auto w = test::malloc_and_packets(dir + "/ringside.data");
    ASSERT_TRUE(w) << w.error().sentence;
    SubBuffer a(1'000'000'000), b(1'000'000'000);
    for (u64 i = 0; i < 30; ++i)
      a.event(1'000'000'000 + i * 1'000'000, Payload(1, 4711).put(u64{i % 3 == 0 ? 64u : 32u}).put(i));
    for (u32 i = 0; i < 20; ++i) b.event(1'000'000'000 + i * 2'000'000, Payload(2, 4800).put(i));
    ASSERT_TRUE(w->append(0, a.view()));
    ASSERT_TRUE(w->append(3, b.view(1234)));
    w->ring(0).counters.written = w->ring(0).counters.read = 30;
    w->ring(3).counters.written = 1254;
    w->ring(3).counters.read = 20;
    w->ring(3).counters.overrun = 1234;
    ASSERT_TRUE(w->finish(2'000'000'000));
  }
  static std::vector<std::string> instances() {
    std::vector<std::string> out;
    for (const std::string& one : kernel_instances()) out.push_back(fs::path(one).filename());
    return out;
  }
  static bool has_instance(const std::string& name) {
    const auto all = instances();
    return std::find(all.begin(), all.end(), name) != all.end();
  }
};

// tmux with a server of its own.
struct WatchScreenTest : WatchTest {
  std::string name = "ringside-test-" + std::to_string(getpid());
  void SetUp() override {
    if (std::system("tmux -V >/dev/null 2>&1") != 0) GTEST_SKIP() << "tmux is not installed";
    WatchTest::SetUp();
  }
  void TearDown() override {
    tmux("kill-server");
    WatchTest::TearDown();
  }
  Outcome tmux(const std::string& what) const { return run("LC_ALL=C.UTF-8 tmux -u -L " + name + " -f /dev/null " + what); }
  void start(const std::string& script, const std::string& size = "-x 80 -y 24") {
    std::ofstream(dir + "/script") << "cd " << dir << "\nexport RINGSIDE_ROOT=" << dir
                                   << "/root LC_ALL=C.UTF-8\nPATH=" RINGSIDE_BUILD_DIR ":$PATH\n"
                                   << script << "\n";
    const Outcome o = tmux("new-session -d " + size + " 'exec bash --norc --noprofile " + dir + "/script'");
    ASSERT_EQ(o.code, 0) << o.err;
  }
  std::string screen() const { return tmux("capture-pane -p").out; }
  void keys(const std::string& names) const { tmux("send-keys " + names); }
  bool shows(const std::string& what, bool wanted = true) const {
    std::string last;
    const bool is = within(30, [&] { return ((last = screen()).find(what) != std::string::npos) == wanted; });
    if (!is) std::printf("%s \"%s\":\n%s\n", wanted ? "no" : "still", what.c_str(), last.c_str());
    return is;
  }
};

TEST_F(WatchScreenTest, ARecordingFromTopToBottomAndTheTerminalAsItWas) {
  record();
  start("stty -a >before; ringside watch; echo code=$?; stty -a >after; touch done; sleep 1000");
  ASSERT_TRUE(shows("F10Quit"));
  ASSERT_TRUE(shows(" 50 events"));
  for (const char* what : {"ringside watch  ringside.data", "1,234 lost", "COUNT", "libc:malloc", "60.0 %", "net:in", "40.0 %",
                           "Rate of libc:malloc"})
    EXPECT_TRUE(shows(what));
  // Other sizes, and back.
  for (const auto& [x, y] : {std::pair<size_t, size_t>{40, 10}, {200, 60}, {12, 4}, {80, 24}}) {
    tmux("resize-window -x " + std::to_string(x) + " -y " + std::to_string(y));
    if (y >= 10) {
      EXPECT_TRUE(shows("libc:malloc")) << x;
    }
    if (x >= 80) {
      EXPECT_TRUE(shows("F10Quit"));
    }
  }
  // A filter with a mistake in it, corrected.
  keys("F4 'size >' Enter");
  EXPECT_TRUE(shows("^"));
  EXPECT_TRUE(shows("Filter: size >"));
  keys("' 50' Enter");
  EXPECT_TRUE(shows(" 10 events"));
  EXPECT_TRUE(shows("filter size > 50"));
  keys("F4 C-u Enter");
  EXPECT_TRUE(shows(" 50 events"));
  // Down to the values of a field, and up again.
  keys("Enter");
  EXPECT_TRUE(shows("libc:malloc > by task"));
  keys("Enter");
  EXPECT_TRUE(shows("libc:malloc > cc1plus > fields"));
  EXPECT_TRUE(shows("Histogram, size"));
  keys("Enter");
  EXPECT_TRUE(shows("by libc:malloc/size"));
  EXPECT_TRUE(shows("66.7 %"));
  keys("Escape");
  EXPECT_TRUE(shows("> fields"));
  keys("BSpace");
  EXPECT_TRUE(shows("libc:malloc > by task"));
  keys("F1");
  EXPECT_TRUE(shows("ringside watch: keys"));
  keys("x q");
  EXPECT_TRUE(shows("code=0"));
  const std::string now = screen();
  EXPECT_NE(now.find("30 events, 1,234 lost: the numbers lack those"), std::string::npos) << now;
  EXPECT_EQ(now.find("F10Quit"), std::string::npos);
  EXPECT_TRUE(within(10, [&] { return fs::exists(dir + "/done"); }));
  EXPECT_EQ(test::slurp(dir + "/before"), test::slurp(dir + "/after"));
}

TEST_F(WatchScreenTest, StoppedContinuedAndCrashed) {
  record();
  std::ofstream(dir + "/rc") << "PS1='ready> '\nPATH=" RINGSIDE_BUILD_DIR ":$PATH\ncd " << dir << "\n";
  start("exec bash --rcfile " + dir + "/rc -i");
  ASSERT_TRUE(shows("ready>"));
  keys("'stty -a >before; ringside watch' Enter");
  ASSERT_TRUE(shows("F10Quit"));
  keys("C-z");
  ASSERT_TRUE(shows("Stopped"));
  keys("fg Enter");
  ASSERT_TRUE(shows("F10Quit"));
  keys("F4 C-u C-c");
  ASSERT_TRUE(shows("50 events, 1,234 lost"));
  keys("\"clear; sh -c 'echo pid=\\$\\$ >pid; exec ringside watch'\" Enter");
  ASSERT_TRUE(shows("F10Quit"));
  run("kill -SEGV $(sed s/pid=// pid)");
  ASSERT_TRUE(shows("ready>"));
  keys("'stty -a >after; touch done' Enter");
  ASSERT_TRUE(within(30, [&] { return fs::exists(dir + "/done"); }));
  EXPECT_EQ(test::slurp(dir + "/before"), test::slurp(dir + "/after"));
}

TEST_F(WatchTest, WithoutATerminalTablesAndJson) {
  record();
  Outcome o = ringside("watch --by task,event </dev/null");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("cc1plus  libc:malloc     30"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("50 events, 1,234 lost"), std::string::npos) << o.out;
  o = ringside("watch --json --by task -v length");
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j.at("final"), true);
  EXPECT_EQ(j.at("lost"), 1234);
  ASSERT_EQ(j.at("rows").size(), 2u);
  EXPECT_EQ(j.at("rows")[1].at("task"), "as");
  EXPECT_EQ(j.at("rows")[1].at("value").at("max"), 19);
  o = ringside("watch --json --latency net:in net:in");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(json::parse(o.out).at("all").at("value").at("max"), 2'000'000);
  EXPECT_EQ(json::parse(o.out).at("all").at("count"), 19);
  o = ringside("watch --json -e libc:malloc");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(json::parse(o.out).at("all").at("count"), json::parse(ringside("top --json -e libc:malloc").out).at("count"));
  EXPECT_EQ(json::parse(o.out).at("rows").size(), 1u);
  EXPECT_EQ(ringside("watch --by nonsense").code, 2);
  EXPECT_EQ(ringside("watch -F 'size >'").code, 2);
  EXPECT_EQ(ringside("watch --key ptr").code, 2);
}

// One that is stopped before it has read the whole recording says so.
TEST_F(WatchTest, StoppedEarlyItProvesNothing) {
  ASSERT_EQ(ringside("record -q -b 64M " RINGSIDE_BUILD_DIR "/tests/many_threads 1 2000000").code, 0);
  bool early = false;
  for (int tries = 0; tries < 50 && !early; ++tries) {
    const pid_t pid = fork();
    if (pid == 0) {
      signal(SIGINT, SIG_DFL);
      if (chdir(dir.c_str()) != 0 || freopen("seen", "w", stdout) == nullptr) _exit(126);
      execl(RINGSIDE_BUILD_DIR "/ringside", "ringside", "watch", "--json", nullptr);
      _exit(127);
    }
    const std::string maps = "/proc/" + std::to_string(pid) + "/maps";
    siginfo_t ended{};
    while (test::slurp(maps).find(".raw") == std::string::npos && ended.si_pid == 0)
      waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT);
    kill(pid, SIGINT);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    const json last = json::parse(test::slurp(dir + "/seen"));
    early = last.at("all").at("count") != 2'000'000u;
    EXPECT_EQ(last.at("proved"), !early) << last;
  }
  EXPECT_TRUE(early) << "it was never stopped in the middle";
}

TEST_F(WatchTest, LiveTablesEndWithTheWhole) {
  const Outcome o =
      run(RINGSIDE_BUILD_DIR "/ringside record -q -i web -- true; export RINGSIDE_INSTANCE=web; " RINGSIDE_BUILD_DIR
                             "/tests/signalled_writer & P=$!; for i in $(seq 500); do " RINGSIDE_BUILD_DIR
                             "/ringside stat web 2>/dev/null | grep -q 1,000 && break; sleep 0.02; done; " RINGSIDE_BUILD_DIR
                             "/ringside watch web --json --interval 100ms --duration 2s; kill $P");
  std::istringstream lines(o.out);
  std::vector<json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  ASSERT_GE(all.size(), 2u) << o.out << o.err;
  EXPECT_EQ(all.front().at("final"), false);
  EXPECT_EQ(all.back().at("final"), true);
  EXPECT_EQ(all.back().at("all").at("count"), 1000);
  EXPECT_EQ(all.back().at("rows")[0].at("event"), "unit:number");
  EXPECT_EQ(all.back().at("lost"), 0);
  EXPECT_FALSE(all.back().at("rings").empty());
}

// A system call that only these tests make: a filter by the own thread sees exactly its own calls.
constexpr const char* rare = "syscalls:sys_enter_sched_rr_get_interval";
void call(int times) {
  timespec interval{};
  for (int i = 0; i < times; ++i) syscall(SYS_sched_rr_get_interval, 0, &interval);
}

// watch on a pty of the test's own.
struct WatchPty : WatchTest {
  int terminal = -1;
  pid_t pid = -1;
  std::string seen;
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    WatchTest::SetUp();
  }
  void TearDown() override {
    if (terminal >= 0) close(terminal);
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    WatchTest::TearDown();
  }
  void start(std::vector<const char*> arguments, const char* kind = "xterm") {
    arguments.insert(arguments.begin(), {"ringside", "watch"});
    arguments.push_back(nullptr);
    winsize size{24, 80, 0, 0};
    pid = forkpty(&terminal, nullptr, nullptr, &size);
    ASSERT_GE(pid, 0);
    if (pid != 0) return;
    setenv("TERM", kind, 1);
    setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
    execv(RINGSIDE_BUILD_DIR "/ringside", const_cast<char* const*>(arguments.data()));
    _exit(127);
  }
  std::string instance() const { return "ringside-" + std::to_string(pid); }
  u64 read_by_it() const {
    u64 sum = 0;
    for (const auto& cpu : fs::directory_iterator(must(tracefs_dir()) + "/instances/" + instance() + "/per_cpu")) {
      const std::string stats = test::slurp(cpu.path().string() + "/stats");
      if (const size_t at = stats.find("read events: "); at != std::string::npos) sum += std::stoull(stats.substr(at + 13));
    }
    return sum;
  }
  // A new instance is on until it is set up: the event first, then the switch.
  bool recording() const {
    const std::string at = must(tracefs_dir()) + "/instances/" + instance();
    return test::slurp(at + "/events/syscalls/sys_enter_sched_rr_get_interval/enable").starts_with('1') &&
           test::slurp(at + "/tracing_on").starts_with('1');
  }
  // Reads its output, as long as it is wanted.
  bool look() {
    pollfd from{terminal, POLLIN, 0};
    char text[4096];
    if (poll(&from, 1, 0) != 1) return false;
    const ssize_t n = read(terminal, text, sizeof text);
    if (n > 0) seen.append(text, static_cast<size_t>(n));
    return n > 0;
  }
  bool ended(int& code) {
    const bool is = within(30, [&] {
      while (look()) {
      }
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) != pid) return false;
      code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return true;
    });
    while (look()) {
    }
    if (is) pid = -1;
    return is;
  }
};

// Its output is not read, and the rings are filled several times over: it counts every event, and ends when it is told to.
TEST_F(WatchPty, AStoppedTerminalLosesNothing) {
  const std::string filter = "common_pid == " + std::to_string(sys::gettid());
  start(
      {"-e", rare, "--interval", "100ms", "-F", filter.c_str(), "--by", "ts.msecs"});  // a screen that changes all the time
  ASSERT_TRUE(within(30, [&] { return recording(); }));
  constexpr u64 burst = 40'000, bursts = 8;  // 40 bytes each, 12 MiB in all; a ring has 4 MiB
  const u64 before = read_by_it();
  for (u64 i = 1; i <= bursts; ++i) {
    call(burst);
    ASSERT_TRUE(within(30, [&] { return read_by_it() + 1000 >= before + i * burst; })) << i << ": " << read_by_it();
  }
  // It really hangs there.
  EXPECT_TRUE(within(30, [&] {
    for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
      if (test::slurp(thread.path().string() + "/syscall").rfind(std::to_string(SYS_write) + " ", 0) == 0) return true;
    }
    return false;
  }));
  const std::string name = instance();
  kill(pid, SIGTERM);
  // Its output is read only now: the instance is gone by then.
  EXPECT_TRUE(within(30, [&] { return !has_instance(name); }));
  int code = -1;
  ASSERT_TRUE(ended(code));
  EXPECT_EQ(code, 0);
  if (seen.find("320,000 events, none lost") == std::string::npos)
    std::printf("%s\n", seen.substr(seen.size() > 3000 ? seen.size() - 3000 : 0).c_str());
  EXPECT_NE(seen.find("320,000 events, none lost"), std::string::npos);
}

TEST_F(WatchPty, ATerminalThatGoesAway) {
  start({"-e", rare});
  ASSERT_TRUE(within(30, [&] { return look() && seen.find("F10") != std::string::npos; }));
  const std::string name = instance();
  EXPECT_TRUE(has_instance(name));
  close(terminal);
  terminal = -1;
  int status = 0;
  ASSERT_TRUE(within(30, [&] { return waitpid(pid, &status, WNOHANG) == pid; }));
  pid = -1;
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 129);
  EXPECT_FALSE(has_instance(name));
}

TEST_F(WatchPty, PausedItGoesOnCounting) {
  const std::string filter = "common_pid == " + std::to_string(sys::gettid());
  start({"-e", rare, "--interval", "100ms", "--ascii", "-F", filter.c_str()});
  // On a screen that is redrawn (Ctrl-L): otherwise only the differences are written.
  const auto shows = [&](const std::string& what) {
    return within(30, [&] {
      seen.clear();
      EXPECT_EQ(write(terminal, "\f", 1), 1);
      within(1, [&] { return look() && seen.find("F10") != std::string::npos; });
      return seen.find(what) != std::string::npos;
    });
  };
  ASSERT_TRUE(within(30, [&] { return recording(); }));
  call(1111);
  ASSERT_TRUE(shows("1,111")) << seen;
  ASSERT_EQ(write(terminal, " ", 1), 1);
  ASSERT_TRUE(shows("PAUSED"));
  const u64 before = read_by_it();
  call(2222);
  ASSERT_TRUE(within(30, [&] { return read_by_it() >= before + 2222; }));
  usleep(300000);
  ASSERT_TRUE(shows("1,111")) << seen;
  seen.clear();
  ASSERT_EQ(write(terminal, "q", 1), 1);
  int code = -1;
  ASSERT_TRUE(ended(code));
  EXPECT_EQ(code, 0);
  EXPECT_NE(seen.find("3,333 events, none lost: the numbers are exact"), std::string::npos) << seen;
}

TEST_F(WatchPty, ATerminalThatIsUnknown) {
  start({"-e", rare, "--interval", "50ms", "--duration", "200ms"}, "dumb");
  int code = -1;
  ASSERT_TRUE(ended(code));
  EXPECT_EQ(code, 0);
  EXPECT_NE(seen.find("plain tables instead"), std::string::npos) << seen;
  EXPECT_NE(seen.find(" events, none lost"), std::string::npos) << seen;
}

}  // namespace
}  // namespace ringside::test::watch_test
