// remotes/ of `ringside mount`: external writers in processes of their own, killed, stopped and started again under it.
#include <fcntl.h>
#include <poll.h>
#include <ringside/remote/process_writer.hpp>
#include <sys/wait.h>

#include <regex>

#include "cli/mount_fixture.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside::mount_remote_test {
namespace {

using namespace test;

struct Tick {
  u16 type = 1;
  u8 flags = 0, preempt_count = 0;
  i32 pid = 0;
  u64 number = 0;
};
constexpr const char* tick_format =
    "name: tick\nID: 1\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:u64 number;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"number=%llu\", REC->number\n";

struct MountRemote : Mount {
  std::string app = at + "/remotes/app";
  pid_t writer = -1;

  // Starts a process that writes `count` events to each of its rings in turn, at full speed, on each SIGUSR1.
  void start_app(u64 count, u32 rings = 1) {
    setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
    const std::string path = remote::announced_path("app");
    static volatile sig_atomic_t asked;
    asked = 0;
    writer = fork();
    if (writer != 0) {
      ASSERT_TRUE(eventually([&] { return fs::exists(path); }));
      return;
    }
    signal(SIGUSR1, [](int) { asked = asked + 1; });
    remote::ProcessWriter<> w({path, {{1, "app", "tick", tick_format}}});
    if (w.error() != 0) _exit(1);
    Tick tick;
    tick.pid = getpid();
    for (int done = 0;; ++done) {
      while (asked == done) usleep(200);
      for (u64 to = tick.number + count; tick.number < to;)
        if (auto* ring = w.ring(static_cast<u32>(tick.number % rings)); ring != nullptr && ring->write(&tick, sizeof tick))
          ++tick.number;
        else
          usleep(100);
    }
  }
  void write_some() const { kill(writer, SIGUSR1); }
  void kill_app() {
    if (writer <= 0) return;
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    writer = -1;
  }
  void TearDown() override {
    kill_app();
    Mount::TearDown();
  }
  // It is there, and its events are known.
  void appears() const { ASSERT_TRUE(eventually([&] { return fs::exists(app + "/events/app/tick"); })) << slurp(dir + "/log"); }
  std::string cpu(u32 n) const { return app + "/per_cpu/cpu" + std::to_string(n); }
};

// The numbers in lines of `trace` or `trace_pipe`.
std::vector<u64> numbers(const std::string& text) {
  std::vector<u64> all;
  for (size_t at = text.find("number="); at != std::string::npos; at = text.find("number=", at + 1))
    all.push_back(std::strtoull(text.c_str() + at + 7, nullptr, 10));
  return all;
}
bool consecutive(const std::vector<u64>& all, u64 from) {
  for (const u64 n : all)
    if (n != from++) return false;
  return true;
}
// The content of a file until `enough` lines of events have come, or it ends, or fails.
std::string take(const sys::Fd& fd, size_t enough) {
  std::string all;
  char some[16384];
  for (size_t lines = 0; lines < enough;) {
    const ssize_t n = read(fd.get(), some, sizeof some);
    if (n <= 0) return all + "\n" + ended(n);
    all.append(some, static_cast<size_t>(n));
    lines += lines_with(std::string(some, static_cast<size_t>(n)), "number=");
  }
  return all;
}

TEST_F(MountRemote, HasUpstreamsLayout) {
  start();
  EXPECT_TRUE(fs::is_directory(at + "/remotes"));
  EXPECT_TRUE(fs::is_empty(at + "/remotes"));
  start_app(5, 2);
  appears();
  for (const char* file :
       {"tracing_on", "buffer_size_kb", "trace_pipe", "trace", "events/enable", "events/header_page", "events/header_event",
        "events/app/enable", "events/app/tick/enable", "events/app/tick/id", "events/app/tick/format", "per_cpu/cpu0/trace",
        "per_cpu/cpu0/trace_pipe", "per_cpu/cpu0/trace_pipe_raw", "per_cpu/cpu0/stats"})
    EXPECT_TRUE(fs::exists(app + "/" + file)) << file;
  EXPECT_FALSE(fs::exists(at + "/instances/remotes"));
  EXPECT_EQ(text_of(app + "/events/app/tick/id"), "1\n");
  EXPECT_EQ(text_of(app + "/events/app/tick/format"), tick_format);
  EXPECT_EQ(text_of(app + "/events/header_page"), text_of(at + "/events/header_page"));
  EXPECT_EQ(text_of(app + "/buffer_size_kb"), "1410 (unloaded)\n");
  EXPECT_EQ(text_of(app + "/tracing_on"), "0\n");
  EXPECT_EQ(write_to(app + "/buffer_size_kb", "0"), "EINVAL");
  EXPECT_EQ(write_to(app + "/buffer_size_kb", "x"), "EINVAL");
  EXPECT_EQ(write_to(app + "/buffer_size_kb", "64"), "2");
  EXPECT_EQ(text_of(app + "/buffer_size_kb"), "64 (unloaded)\n");

  EXPECT_EQ(write_to(app + "/tracing_on", "1"), "1");
  EXPECT_EQ(text_of(app + "/tracing_on"), "1\n");
  EXPECT_NE(text_of(app + "/buffer_size_kb").find(" (loaded)\n"), std::string::npos);
  // The sizes of rings that the writer already has cannot be changed.
  EXPECT_EQ(write_to(app + "/buffer_size_kb", "128"), "EBUSY");
  EXPECT_EQ(write_to(app + "/buffer_subbuf_size_kb", "8"), "EINVAL");
  EXPECT_EQ(write_to(app + "/options/overwrite", "0"), "EINVAL");
  EXPECT_EQ(write_to(app + "/options/overwrite", "1"), "1");
  EXPECT_EQ(write_to(app + "/events/app/tick/enable", "0"), "EOPNOTSUPP");
  EXPECT_EQ(write_to(app + "/trace_marker", "x"), "open: ENOENT");
  EXPECT_EQ(write_to(app + "/write_event", "1"), "open: ENOENT") << "this writer takes no texts";
  EXPECT_EQ(write_to(cpu(0) + "/trace_pipe", "x"), "EINVAL");
  for (const int flags : {O_WRONLY, O_RDWR}) EXPECT_EQ(ended(::open((cpu(0) + "/trace_pipe_raw").c_str(), flags)), "EACCES");

  write_some();
  ASSERT_TRUE(eventually([&] { return numbers(text_of(app + "/trace")).size() == 5; })) << text_of(app + "/trace");
  const std::string trace = text_of(app + "/trace");
  EXPECT_TRUE(consecutive(numbers(trace), 0)) << trace;
  EXPECT_TRUE(std::regex_match(trace, std::regex("(\\[00[01]\\]\t {0,4}[0-9]+\\.[0-9]{6}: tick number=[0-4]\n){5}"))) << trace;
  EXPECT_EQ(text_of(app + "/trace"), trace) << "nothing was consumed";
  EXPECT_EQ(numbers(text_of(cpu(1) + "/trace")), (std::vector<u64>{1, 3}));
  EXPECT_EQ(stats(cpu(0)).entries, 3u);
  // Emptied: one ring, then all.
  EXPECT_EQ(write_to(cpu(1) + "/trace", "", O_WRONLY | O_TRUNC), "0");
  EXPECT_EQ(numbers(text_of(app + "/trace")), (std::vector<u64>{0, 2, 4}));
  EXPECT_EQ(write_to(app + "/trace", "\n"), "1");
  EXPECT_EQ(text_of(app + "/trace").find("number="), std::string::npos);
  EXPECT_EQ(stats(cpu(0)).entries, 0u);
  write_some();
  ASSERT_TRUE(eventually([&] { return numbers(text_of(app + "/trace")).size() == 5; }));
  {
    const sys::Fd pipe(::open((app + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK));
    ASSERT_TRUE(pipe);
    const sys::Fd others[] = {sys::Fd(::open((app + "/trace_pipe").c_str(), O_RDONLY)),
                              sys::Fd(::open((cpu(0) + "/trace_pipe").c_str(), O_RDONLY))};
    EXPECT_TRUE(others[0] && others[1]) << "any number of clients; each event goes to one";
    const std::string text = take(pipe, 5);
    EXPECT_TRUE(consecutive(numbers(text), 5)) << text;
    char some[100];
    EXPECT_EQ(ended(read(pipe.get(), some, sizeof some)), "EAGAIN");
    // Loaded while it is read, though off and empty.
    EXPECT_EQ(write_to(app + "/tracing_on", "0"), "1");
    EXPECT_NE(text_of(app + "/buffer_size_kb").find(" (loaded)\n"), std::string::npos);
    EXPECT_EQ(ended(read(pipe.get(), some, sizeof some)), "EAGAIN") << "switching off is not the end";
  }
  EXPECT_TRUE(eventually([&] { return text_of(app + "/buffer_size_kb") == "64 (unloaded)\n"; }))
      << text_of(app + "/buffer_size_kb");
  // When the writer goes, its name goes, too.
  kill(writer, SIGKILL);
  fs::remove(dir + "/root/.remotes/app");
  EXPECT_TRUE(eventually([&] { return !fs::exists(app); }));
}

TEST_F(MountRemote, EveryEventOnceAndTheBooksBalance) {
  start_app(15000, 2);
  start();
  appears();
  ASSERT_EQ(write_to(app + "/tracing_on", "1"), "1");
  {
    const sys::Fd pipe(::open((app + "/trace_pipe").c_str(), O_RDONLY));
    ASSERT_TRUE(pipe);
    u64 next = 0;
    for (int round = 0; round < 3; ++round) {
      write_some();
      const std::string text = take(pipe, 15000);
      // In order of time within a ring; between rings, as far as both had events when they were read.
      std::vector<u64> all = numbers(text), last{0, 0};
      ASSERT_EQ(all.size(), 15000u) << text.substr(text.size() - std::min<size_t>(text.size(), 200));
      for (const u64 n : all) {
        EXPECT_TRUE(last[n % 2] == 0 || n == last[n % 2] + 2);
        last[n % 2] = n;
      }
      std::sort(all.begin(), all.end());
      EXPECT_TRUE(consecutive(all, next));
      next += 15000;
      EXPECT_EQ(text.find("LOST"), std::string::npos);
    }
    for (u32 n = 0; n < 2; ++n) {
      const Stats s = stats(cpu(n));
      EXPECT_EQ(s.entries, 0u);
      EXPECT_EQ(s.overrun, 0u);
      EXPECT_EQ(s.read, 22500u);
    }
  }
  // A ring that is too small: the loss is announced where it happened.
  ASSERT_EQ(write_to(app + "/tracing_on", "0"), "1");
  ASSERT_TRUE(eventually([&] { return write_to(app + "/buffer_size_kb", "16") == "2"; }));
  ASSERT_EQ(write_to(app + "/tracing_on", "1"), "1");
  write_some();
  ASSERT_TRUE(eventually([&] {
    const Stats a = stats(cpu(0)), b = stats(cpu(1));
    return a.entries + a.overrun + b.entries + b.overrun == 15000;
  }));
  const Stats before = stats(cpu(0));
  EXPECT_GT(before.overrun, 0u);
  const sys::Fd pipe(::open((cpu(0) + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK));
  const std::string text = take(pipe, 15000);
  std::smatch lost;
  u64 sum = 0, gaps = 0;
  for (auto from = text.cbegin(); std::regex_search(from, text.cend(), lost, std::regex("LOST ([0-9]+) EVENTS"));
       from = lost[0].second) {
    sum += std::stoull(lost[1]);
    ++gaps;
  }
  EXPECT_EQ(numbers(text).size() + sum, 7500u) << text.substr(0, 300);
  EXPECT_GE(gaps, 1u);
  const Stats after = stats(cpu(0));
  EXPECT_EQ(after.overrun, sum);
  EXPECT_EQ(after.read, numbers(text).size());
  EXPECT_EQ(after.entries, 0u);
}

TEST_F(MountRemote, ReadsAndMapsSubBuffers) {
  start_app(4000, 2);
  start({"--remote", "named=" + dir + "/root/.remotes/app"});
  appears();
  EXPECT_TRUE(fs::exists(at + "/remotes/named/events/app/tick/id"));
  ASSERT_EQ(write_to(app + "/tracing_on", "1"), "1");
  EXPECT_EQ(write_to(at + "/remotes/named/tracing_on", "1"), "EBUSY") << "one reader at a time";
  write_some();
  ASSERT_TRUE(eventually([&] { return stats(cpu(0)).entries + stats(cpu(1)).entries == 4000; }));
  const auto walk = [&](const sys::Fd& raw, u64 stop) {  // by read()
    u64 n = 0;
    alignas(8) u8 image[4096];
    while (n < stop) {
      const ssize_t got = read(raw.get(), image, sizeof image);
      if (got != sizeof image) {
        EXPECT_EQ(ended(got), "EAGAIN");
        break;
      }
      const u64 commit = reinterpret_cast<abi::SubBufferHeader*>(image)->commit;
      EXPECT_FALSE(abi::commit_missed(commit));
      abi::EventCursor c(image + 16, 0, abi::commit_size(commit), 0);
      while (c.next()) n += reinterpret_cast<const Tick*>(c.payload().data)->number % 2 == 1 ? 1 : 10000;
      EXPECT_EQ(c.malformed(), abi::Malformed::no);
    }
    return n;
  };
  {
    const sys::Fd raw(::open((cpu(1) + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK));
    ASSERT_TRUE(raw);
    EXPECT_EQ(walk(raw, 1000) >= 1000, true);
    EXPECT_GE(stats(cpu(1)).read, 1000u);
  }
  // Reads the rest by the mapping, from the second ring's own file.
  const u64 read_before = stats(cpu(1)).read;
  Mapping map(cpu(1) + "/trace_pipe_raw");
  ASSERT_NE(map.base, nullptr) << strerrorname_np(errno) << slurp(dir + "/log");
  EXPECT_EQ(map.meta().subbuf_size, 4096u);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(mprotect(const_cast<u8*>(map.base), 4096, PROT_READ | PROT_WRITE), -1);
  const auto drain = [&] {
    for (u64 before = ~u64{0}; before != map.events;) {
      before = map.events;
      for (int k = 0; k < 2; ++k) ASSERT_TRUE(map.step()) << strerrorname_np(errno);
    }
  };
  drain();
  EXPECT_EQ(map.events, 2000 - read_before);
  EXPECT_TRUE(map.ordered);
  EXPECT_EQ(map.meta().read, 2000u);
  EXPECT_EQ(stats(cpu(1)).read, 2000u);
  EXPECT_EQ(stats(cpu(1)).entries, 0u);
  // A client that waits, by poll and by GET_READER.
  fcntl(map.fd.get(), F_SETFL, 0);
  pollfd p{map.fd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  write_some();
  EXPECT_EQ(poll(&p, 1, 10000), 1);
  ASSERT_TRUE(eventually([&] { return stats(cpu(1)).entries == 2000; }));
  fcntl(map.fd.get(), F_SETFL, O_NONBLOCK);
  char none;
  (void)!read(map.fd.get(), &none, 0);
  drain();
  EXPECT_EQ(map.events, 4000 - read_before);
  // A program that does not know ringside.
  const Outcome o = run("timeout 20 " RINGSIDE_BUILD_DIR "/tests/mapping_client " + cpu(0) + "/trace_pipe_raw");
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_EQ(lines_with(o.out, "\n20 ") + lines_with(o.out, "\n16 "), 4000u) << o.out.substr(0, 300);
  EXPECT_EQ(stats(cpu(0)).read, 4000u);
}

// What the kernel demands of its remote buffers.
struct MountSelftest : Mount {
  std::string test = at + "/remotes/test";
  pid_t writer = -1;
  void SetUp() override {
    Mount::SetUp();
    if (IsSkipped()) return;
    const std::string socket = dir + "/rings";
    writer = fork();
    if (writer == 0) {
      execl(RINGSIDE_BUILD_DIR "/example_08_selftest", "example_08_selftest", socket.c_str(), nullptr);
      _exit(127);
    }
    ASSERT_TRUE(eventually([&] { return fs::exists(socket); }));
    start({"--remote", "test=" + socket});
    ASSERT_TRUE(eventually([&] { return fs::exists(test + "/write_event"); })) << slurp(dir + "/log");
    ASSERT_EQ(write_to(test + "/buffer_size_kb", "7"), "1");
    ASSERT_EQ(write_to(test + "/tracing_on", "1"), "1");
  }
  void TearDown() override {
    if (writer > 0) {
      kill(writer, SIGKILL);
      waitpid(writer, nullptr, 0);
    }
    Mount::TearDown();
  }
  std::string size() const { return text_of(test + "/buffer_size_kb"); }
  std::string cpu(int n) const { return test + "/per_cpu/cpu" + std::to_string(n); }
  void write_events(u64 from, u64 to) const {
    const sys::Fd file(::open((test + "/write_event").c_str(), O_WRONLY));
    for (u64 n = from; n <= to; ++n) {
      const std::string text = std::to_string(n) + "\n";
      ASSERT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
  }
  // Takes the lines that are there now.
  static std::string taken(const std::string& pipe) {
    const sys::Fd fd(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
    std::string all;
    char some[16384];
    for (ssize_t n; (n = read(fd.get(), some, sizeof some)) > 0;) all.append(some, static_cast<size_t>(n));
    return all;
  }
  // The IDs of lines, each of which must be upstream's, with times that ascend.
  static std::vector<u64> ids(const std::string& text, int cpu = -1) {
    std::vector<u64> all;
    static const std::regex line("\\[([0-9]{3})\\]\t( *[0-9]+)\\.([0-9]{6}): selftest id=([0-9]+)");
    std::istringstream lines(text);
    std::smatch m;
    u64 before = 0;
    for (std::string one; std::getline(lines, one);) {
      EXPECT_TRUE(std::regex_match(one, m, line)) << one;
      if (m.empty()) break;
      const u64 us = std::stoull(m[2]) * 1000000 + std::stoull(m[3]);
      EXPECT_GE(us, before) << one;
      before = us;
      if (cpu >= 0) { EXPECT_EQ(std::stoi(m[1]), cpu) << one; }
      EXPECT_GE(m[2].length(), 5) << one;
      all.push_back(std::stoull(m[4]));
    }
    return all;
  }
  static std::vector<u64> range(u64 from, u64 to) {
    std::vector<u64> all;
    for (; from <= to; ++from) all.push_back(from);
    return all;
  }
};

TEST_F(MountSelftest, ReadsConsumeOrDoNot) {
  const OnCpu one(sched_getcpu());
  write_events(1, 8);
  EXPECT_EQ(ids(text_of(test + "/trace")), range(1, 8));
  EXPECT_EQ(ids(text_of(test + "/trace")), range(1, 8));
  EXPECT_EQ(ids(taken(test + "/trace_pipe")), range(1, 8));
  EXPECT_EQ(text_of(test + "/trace"), "");
  EXPECT_EQ(taken(test + "/trace_pipe"), "");
  write_events(16, 32);
  EXPECT_EQ(ids(text_of(test + "/trace")), range(16, 32));
  EXPECT_EQ(write_to(test + "/trace", "0"), "1");
  EXPECT_EQ(text_of(test + "/trace"), "");
  write_events(1, 8);
  EXPECT_EQ(ids(text_of(test + "/trace")), range(1, 8));
  // Too many: the oldest are not there, and trace_pipe announces it.
  EXPECT_EQ(write_to(test + "/trace", "0"), "1");
  write_events(1, 1000);
  std::vector<u64> left = ids(text_of(test + "/trace"));
  ASSERT_FALSE(left.empty());
  EXPECT_GT(left.front(), 1u);
  EXPECT_EQ(left, range(left.front(), 1000));
  const std::string pipe = taken(test + "/trace_pipe");
  std::smatch lost;
  ASSERT_TRUE(std::regex_search(pipe, lost, std::regex("^CPU:([0-9]+) \\[LOST ([0-9]+) EVENTS\\]\n"))) << pipe.substr(0, 100);
  EXPECT_EQ(std::stoi(lost[1]), sched_getcpu());
  const u64 first = std::stoull(lost[2]) + 1;
  EXPECT_EQ(ids(lost.suffix()), range(first, 1000));
  // Losses are forgotten with a reset.
  write_events(1, 1000);
  EXPECT_EQ(write_to(test + "/trace", "0"), "1");
  write_events(7890, 7890);
  EXPECT_EQ(ids(taken(test + "/trace_pipe")), range(7890, 7890));
}

// The first two that this thread may run on, or the only one.
std::vector<int> two_cpus() {
  cpu_set_t mine;
  sched_getaffinity(0, sizeof mine, &mine);
  std::vector<int> cpus;
  for (int n = 0; n < CPU_SETSIZE && cpus.size() < 2; ++n)
    if (CPU_ISSET(n, &mine)) cpus.push_back(n);
  return cpus;
}

TEST_F(MountSelftest, EventsLandInTheRingOfTheClientsCpu) {
  const std::vector<int> cpus = two_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  const auto write_on_each = [&] {
    for (const int n : cpus) {
      const OnCpu pinned(n);
      write_events(static_cast<u64>(n), static_cast<u64>(n));
    }
  };
  write_on_each();
  for (const int n : cpus) {
    EXPECT_EQ(ids(text_of(cpu(n) + "/trace"), n), range(static_cast<u64>(n), static_cast<u64>(n)));
    EXPECT_EQ(ids(taken(cpu(n) + "/trace_pipe"), n), range(static_cast<u64>(n), static_cast<u64>(n)));
  }
  // A reset of one ring leaves the other one alone.
  write_on_each();
  EXPECT_EQ(write_to(cpu(cpus[0]) + "/trace", "0"), "1");
  EXPECT_EQ(text_of(cpu(cpus[0]) + "/trace"), "");
  const auto second = static_cast<u64>(cpus[1]);
  EXPECT_EQ(ids(taken(test + "/trace_pipe"), cpus[1]), range(second, second));
}

// Each possible processor has a ring from the start, and keeps it while the processor is away: no ring comes or goes.
TEST_F(MountSelftest, AProcessorThatComesLaterHasItsRing) {
  const u32 possible = possible_cpus();
  EXPECT_TRUE(fs::exists(cpu(static_cast<int>(possible) - 1))) << "online or not";
  EXPECT_FALSE(fs::exists(cpu(static_cast<int>(possible))));
  const std::vector<int> cpus = two_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  const auto check_read = [&] {
    write_events(1, 8);
    EXPECT_EQ(ids(text_of(test + "/trace")), range(1, 8));
    EXPECT_EQ(ids(taken(test + "/trace_pipe")), range(1, 8));
  };
  {
    const OnCpu here(cpus[0]);  // no client runs on the other one
    check_read();
    EXPECT_EQ(text_of(cpu(cpus[1]) + "/trace"), "");
    EXPECT_EQ(taken(cpu(cpus[1]) + "/trace_pipe"), "");
    // The rings are made anew while it is away.
    EXPECT_EQ(write_to(test + "/tracing_on", "0"), "1");
    EXPECT_TRUE(eventually([&] { return size() == "7 (unloaded)\n"; })) << size();
    EXPECT_EQ(write_to(test + "/tracing_on", "1"), "1");
    check_read();
  }
  const OnCpu there(cpus[1]);
  write_events(1, 8);
  EXPECT_EQ(ids(text_of(cpu(cpus[1]) + "/trace"), cpus[1]), range(1, 8));
  EXPECT_EQ(ids(taken(cpu(cpus[1]) + "/trace_pipe"), cpus[1]), range(1, 8));
}

TEST_F(MountSelftest, RingsAreThereWhileTheyAreNeeded) {
  EXPECT_EQ(size(), "7 (loaded)\n");
  EXPECT_EQ(write_to(test + "/tracing_on", "0"), "1");
  EXPECT_EQ(size(), "7 (unloaded)\n");
  EXPECT_EQ(write_to(test + "/write_event", "1"), "ENODEV");
  {
    const sys::Fd pipe(::open((test + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK));
    EXPECT_EQ(size(), "7 (loaded)\n");
    EXPECT_EQ(write_to(test + "/write_event", "1"), "1") << "as any event while recording is off";
    char c;
    EXPECT_EQ(ended(read(pipe.get(), &c, 1)), "EAGAIN");
  }
  EXPECT_TRUE(eventually([&] { return size() == "7 (unloaded)\n"; })) << size();
  EXPECT_EQ(write_to(test + "/tracing_on", "1"), "1");
  write_events(1, 1);
  EXPECT_EQ(write_to(test + "/tracing_on", "0"), "1");
  EXPECT_EQ(size(), "7 (loaded)\n");
  EXPECT_EQ(write_to(test + "/trace", "\n"), "1");
  EXPECT_EQ(size(), "7 (unloaded)\n");
  EXPECT_EQ(write_to(test + "/buffer_size_kb", "4096"), "4");
  EXPECT_EQ(write_to(test + "/tracing_on", "1"), "1");
  EXPECT_NE(size().find(" (loaded)\n"), std::string::npos);
}

TEST_F(MountSelftest, TextsAreTheWritersToJudge) {
  struct stat st {};
  ASSERT_EQ(stat((test + "/write_event").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0200u);
  for (const std::string& wrong :
       {std::string("x"), std::string("-1"), std::string("\n"), std::string("1 "), std::string("1\0", 2),
        std::string("99999999999999999999"), std::string(1025, '0'), std::string(100000, '1')})
    EXPECT_EQ(write_to(test + "/write_event", wrong), "EINVAL") << wrong.substr(0, 30);
  EXPECT_EQ(text_of(test + "/trace"), "");
  EXPECT_EQ(write_to(test + "/write_event", std::string(1023, '0') + "7\n"), "1025");
  EXPECT_EQ(ids(taken(test + "/trace_pipe")), range(7, 7));
  // Events that are off are not written.
  for (const char* which : {"/events/enable", "/events/test/enable", "/events/test/selftest/enable"}) {
    EXPECT_EQ(text_of(test + which), "1\n");
    EXPECT_EQ(write_to(test + which, "0"), "1");
    EXPECT_EQ(text_of(test + "/events/enable"), "0\n");
    EXPECT_EQ(write_to(test + "/write_event", "8"), "1");
    EXPECT_EQ(text_of(test + "/trace"), "");
    EXPECT_EQ(write_to(test + which, "1"), "1");
  }
  // For rings to come, too.
  EXPECT_EQ(write_to(test + "/events/enable", "0"), "1");
  EXPECT_EQ(write_to(test + "/tracing_on", "0"), "1");
  EXPECT_EQ(size(), "7 (unloaded)\n");
  EXPECT_EQ(write_to(test + "/tracing_on", "1"), "1");
  EXPECT_EQ(write_to(test + "/write_event", "8"), "1");
  EXPECT_EQ(text_of(test + "/trace"), "");
  EXPECT_EQ(write_to(test + "/events/test/selftest/enable", "1"), "1");
  EXPECT_EQ(write_to(test + "/write_event", "9"), "1");
  EXPECT_EQ(ids(text_of(test + "/trace")), range(9, 9));
}

// A client that has asked once reads the meta-page afterwards, in its own time: the reader page stays until the next request.
TEST_F(MountRemote, TheReaderPageMovesOnDemandAlone) {
  start_app(150);
  start();
  appears();
  ASSERT_EQ(write_to(app + "/tracing_on", "1"), "1");
  Mapping map(cpu(0) + "/trace_pipe_raw");
  ASSERT_NE(map.base, nullptr) << strerrorname_np(errno) << slurp(dir + "/log");
  const auto more = [&](u64 unread) {
    write_some();
    ASSERT_TRUE(eventually([&] { return stats(cpu(0)).entries == unread; }));
  };
  more(150);
  while (map.events < 150) ASSERT_TRUE(map.step());
  more(150);  // the reader page has no room for all of them
  ASSERT_TRUE(map.step());
  const u64 before = map.events;
  ASSERT_GT(before, 150u);
  ASSERT_LT(before, 300u);
  pollfd p{map.fd.get(), POLLIN, 0};
  for (int k = 0; k < 20; ++k) {  // the server watches the ring for clients that poll
    poll(&p, 1, 0);
    usleep(5000);
  }
  EXPECT_EQ(map.meta().reader.id, map.id);
  EXPECT_EQ(map.meta().read, before);
  while (map.events < 300) ASSERT_TRUE(map.step());
  EXPECT_TRUE(map.ordered);
}

TEST_F(MountRemote, AResetThatAStoppedWriterCarriesOutLaterEmptiesTheRing) {
  start_app(1000);
  start();
  appears();
  ASSERT_EQ(write_to(app + "/tracing_on", "1"), "1");
  write_some();
  ASSERT_TRUE(eventually([&] { return stats(cpu(0)).entries == 1000; }));
  const sys::Fd pipe(::open((app + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK));
  std::string before, after;
  // Reads on while the writer may be late to answer, until it has nothing left.
  const auto drain = [&](std::string& to) {
    return eventually([&] {
      char some[1024];
      ssize_t n;
      while ((n = read(pipe.get(), some, sizeof some)) > 0) to.append(some, static_cast<size_t>(n));
      return n < 0 && errno == EAGAIN;
    });
  };
  char one[100];
  ASSERT_TRUE(eventually([&] { return read(pipe.get(), one, sizeof one) > 0; }));
  kill(writer, SIGSTOP);
  waitpid(writer, nullptr, WUNTRACED);
  EXPECT_EQ(write_to(app + "/trace", "0"), "ETIMEDOUT");
  kill(writer, SIGCONT);
  ASSERT_TRUE(drain(before));
  EXPECT_LT(numbers(before).size(), 500u) << "the events that the mount had taken before";
  write_some();
  ASSERT_TRUE(eventually([&] { return stats(cpu(0)).entries == 1000; }));
  ASSERT_TRUE(drain(after));
  EXPECT_TRUE(consecutive(numbers(after), 1000)) << after.substr(0, 200);
  EXPECT_EQ(numbers(after).size(), 1000u);
  const Stats s = stats(cpu(0));
  EXPECT_EQ(s.read, 1000u);
  EXPECT_EQ(s.entries + s.overrun, 0u);
}

TEST_F(MountRemote, AStoppedOrDeadWriterBlocksNoClient) {
  start_app(20000);
  start({"--patience", "4s"});
  appears();
  ASSERT_EQ(write_to(app + "/buffer_size_kb", "1410"), "4");
  ASSERT_EQ(write_to(app + "/tracing_on", "1"), "1");
  write_some();
  ASSERT_TRUE(eventually([&] { return stats(cpu(0)).entries == 20000; }));
  kill(writer, SIGSTOP);
  const auto blocked = [&](const std::string& file, bool command) {
    const pid_t child = fork();
    if (child == 0) {
      const int fd = ::open(file.c_str(), O_RDONLY);
      char some[65536];
      for (u64 n = 0; n < 100000; ++n) {
        const ssize_t got = command ? ioctl(fd, abi::get_reader_ioctl) : read(fd, some, sizeof some);
        if (got < 0) _exit(errno == ETIMEDOUT ? 20 : errno == ENODEV ? 21 : 22);
        if (got == 0 && !command) _exit(23);
      }
      _exit(24);
    }
    return child;
  };
  // Requests that only the writer can answer get an error, all at the same time; all others are answered meanwhile.
  const sys::Fd early(::open((cpu(0) + "/trace_pipe_raw").c_str(), O_RDONLY));
  ASSERT_TRUE(early);
  const auto from = std::chrono::steady_clock::now();
  const pid_t a = blocked(cpu(0) + "/trace_pipe", false), b = blocked(cpu(0) + "/trace_pipe_raw", false),
              c = blocked(cpu(0) + "/trace_pipe_raw", true);
  std::chrono::steady_clock::duration slowest{};
  u64 asked = 0;
  pid_t left[] = {a, b, c};
  int codes[3] = {-1, -1, -1};
  while (std::find(std::begin(codes), std::end(codes), -1) != std::end(codes) &&
         std::chrono::steady_clock::now() - from < 120s) {
    const auto one = std::chrono::steady_clock::now();
    EXPECT_EQ(text_of(at + "/tracing_on"), "1\n");
    EXPECT_EQ(stats(cpu(0)).overrun, 0u);
    slowest = std::max(slowest, std::chrono::steady_clock::now() - one);
    ++asked;
    for (int k = 0; k < 3; ++k)
      if (int status = 0; codes[k] == -1 && waitpid(left[k], &status, WNOHANG) == left[k]) codes[k] = WEXITSTATUS(status);
  }
  for (const int code : codes) EXPECT_EQ(code, 20);
  EXPECT_LT(slowest, 4s) << "that is how long the writer is waited for";
  EXPECT_GT(asked, 5u);
  EXPECT_EQ(write_to(app + "/tracing_on", "0"), "ETIMEDOUT");
  // It goes on, and nothing was lost.
  kill(writer, SIGCONT);
  u64 found = stats(cpu(0)).read;
  {
    const sys::Fd pipe(::open((app + "/trace_pipe").c_str(), O_RDONLY));
    std::string text;  // requests get an error at once until the writer has run again
    EXPECT_TRUE(eventually([&] {
      text += take(pipe, 20000 - found - numbers(text).size());
      return numbers(text).size() >= 20000 - found;
    }));
    EXPECT_TRUE(consecutive(numbers(text), found)) << found;
    EXPECT_EQ(numbers(text).size(), 20000 - found);
    EXPECT_EQ(stats(cpu(0)).read, 20000u);
    // It dies while a client waits: the remaining events are read, then there is an end.
    EXPECT_EQ(text_of(app + "/tracing_on"), "1\n") << "what was not answered did not happen";
    write_some();
    ASSERT_TRUE(eventually([&] { return stats(cpu(0)).entries == 20000; }));
    kill_app();
    const std::string rest = take(pipe, 100000);
    EXPECT_TRUE(consecutive(numbers(rest), 20000));
    EXPECT_EQ(numbers(rest).size(), 20000u);
    EXPECT_EQ(rest.substr(rest.size() - 2), "\n0") << "the end of the file";
    const Stats s = stats(cpu(0));
    EXPECT_EQ(s.read, 40000u);
    EXPECT_EQ(s.entries + s.overrun, 0u);
    EXPECT_EQ(text_of(app + "/tracing_on"), "0\n");
    EXPECT_EQ(ioctl(early.get(), abi::get_reader_ioctl), -1);
    EXPECT_EQ(errno, ENODEV);
    pollfd p{early.get(), POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, 0), 1);
    EXPECT_NE(p.revents & POLLHUP, 0);
    EXPECT_EQ(write_to(app + "/tracing_on", "1"), "EBUSY") << "files of the dead one are open";
  }
  const_cast<sys::Fd&>(early) = sys::Fd();
  EXPECT_TRUE(eventually([&] { return write_to(app + "/tracing_on", "1") == "ENODEV"; })) << "nobody listens";
  EXPECT_EQ(ended(::open((app + "/trace_pipe").c_str(), O_RDONLY)), "ENODEV");
  // Another writer starts.
  start_app(3000);
  ASSERT_TRUE(eventually([&] { return write_to(app + "/tracing_on", "1") == "1"; }));
  write_some();
  const sys::Fd pipe(::open((app + "/trace_pipe").c_str(), O_RDONLY));
  EXPECT_TRUE(consecutive(numbers(take(pipe, 3000)), 0));
}

}  // namespace
}  // namespace ringside::mount_remote_test
