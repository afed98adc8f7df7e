// ringside mount: clients that wait, map, read sub-buffers, and do all of that side by side.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/meta_page.hpp>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "cli/mount_fixture.hpp"
#include "instance/instance.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"
#include "tick_writer.hpp"

namespace ringside::mount_test {
namespace {

using namespace test;

TEST_F(Mount, ABlockedReaderIsWokenInterruptedAndLeftBehind) {
  start();
  const OnCpu pinned(0);
  ASSERT_EQ(mkdir(web.c_str(), 0700), 0);
  const auto reader = [&](const std::string& file) {
    const pid_t child = fork();
    if (child == 0) {
      struct sigaction quiet {};
      quiet.sa_handler = [](int) {};
      sigaction(SIGUSR1, &quiet, nullptr);
      const int fd = ::open(file.c_str(), O_RDONLY);
      char some[4096];
      const ssize_t n = read(fd, some, sizeof some);
      _exit(n > 0                                                           ? 10
            : n == 0                                                        ? 11
            : errno == EINTR                                                ? 12
            : errno == ECONNABORTED || errno == ENOTCONN || errno == ENODEV ? 13
                                                                            : 14);
    }
    return child;
  };
  const auto blocked = [](pid_t p) {  // in the request, and not before it
    std::ifstream in("/proc/" + std::to_string(p) + "/syscall");
    std::string call;
    in >> call;
    return call == "0";  // read; or "running"
  };
  for (const char* file : {"/trace_pipe", "/per_cpu/cpu0/trace_pipe", "/per_cpu/cpu0/trace_pipe_raw"}) {
    pid_t child = reader(web + file);
    ASSERT_TRUE(eventually([&] { return blocked(child); }));
    kill(child, SIGUSR1);
    EXPECT_EQ(end_of(child), 12) << file;
    child = reader(web + file);
    ASSERT_TRUE(eventually([&] { return blocked(child); }));
    EXPECT_EQ(write_to(web + "/trace_marker", "x"), "1");
    EXPECT_EQ(end_of(child), 10) << file;
    child = reader(web + file);
    ASSERT_TRUE(eventually([&] { return blocked(child); }));
    kill(child, SIGKILL);
    EXPECT_EQ(end_of(child), 128 + SIGKILL) << file;
  }
  const pid_t last = reader(web + "/trace_pipe");
  ASSERT_TRUE(eventually([&] { return blocked(last); }));
  kill(server, SIGTERM);
  EXPECT_EQ(end_of(server), 0);
  server = -1;
  EXPECT_EQ(end_of(last), 13);
  EXPECT_FALSE(mounted());
}

TEST_F(Mount, MapsTheLivePages) {
  start({"--cpus", "64"});
  const OnCpu pinned(0);
  make_web();
  const std::string cpu = web + "/per_cpu/cpu0", raw = cpu + "/trace_pipe_raw";
  ASSERT_EQ(end_of(start_tick_writer("web", 1000)), 0);
  Mapping map(raw);
  ASSERT_NE(map.base, nullptr) << strerrorname_np(errno) << test::slurp(dir + "/log");
  EXPECT_EQ(map.meta().meta_struct_len, 80u);
  EXPECT_EQ(map.meta().subbuf_size, 4096u);
  for (u64 before = ~u64{0}; before != map.events;) {
    before = map.events;
    ASSERT_TRUE(map.step());
    ASSERT_TRUE(map.step());
  }
  EXPECT_EQ(map.events, 1000u);
  EXPECT_TRUE(map.ordered);
  EXPECT_EQ(stats(cpu).read, 1000u);
  EXPECT_EQ(map.meta().entries, 1000u);
  // It cannot be opened for writing.
  EXPECT_EQ(ended(::open(raw.c_str(), O_RDWR)), "EACCES");
  EXPECT_EQ(ended(::open(raw.c_str(), O_WRONLY)), "EACCES");
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(mprotect(const_cast<u8*>(map.base), 4096, PROT_READ | PROT_WRITE), -1);
  // Commands.
  int pair[2];
  EXPECT_EQ(ended(ioctl(map.fd.get(), 0)), "0");
  EXPECT_EQ(ended(ioctl(map.fd.get(), _IO('R', 0x21))), "ENOTTY");
  EXPECT_EQ(ended(ioctl(map.fd.get(), _IOW('R', 0x20, u64), pair)), "ENOTTY");
  EXPECT_EQ(ended(ioctl(sys::Fd(::open((cpu + "/stats").c_str(), O_RDONLY)).get(), abi::get_reader_ioctl)), "ENOTTY");
  // A pipe that would bypass the server gets an error.
  ASSERT_EQ(::pipe(pair), 0);
  const sys::Fd in(pair[0]), out(pair[1]);
  EXPECT_EQ(ended(splice(map.fd.get(), nullptr, out.get(), nullptr, 4096, SPLICE_F_NONBLOCK)), "EINVAL");
  // The pages themselves: a writer's commit is visible without a request.
  const pid_t writer = start_tick_writer("web", ~u64{0}, 1000);
  const auto live = [&]() -> std::string {
    for (u32 n = 0; fs::exists(web + "/per_cpu/cpu" + std::to_string(n)); ++n)
      if (stats(web + "/per_cpu/cpu" + std::to_string(n)).entries > 0) return web + "/per_cpu/cpu" + std::to_string(n);
    return "";
  };
  ASSERT_TRUE(eventually([&] { return !live().empty(); }));
  {
    const Mapping other(live() + "/trace_pipe_raw");
    ASSERT_NE(other.base, nullptr);
    const auto committed = [&] {
      u64 sum = 0;
      for (u32 id = 0; id < other.meta().nr_subbufs; ++id)
        sum += abi::commit_size(Hardware::load(
            &reinterpret_cast<const abi::SubBufferHeader*>(other.base + (id + 1) * 4096)->commit, Order::acquire));
      return sum;
    };
    const u64 before = committed(), entries = other.meta().entries;
    EXPECT_TRUE(eventually([&] { return committed() > before; }));
    EXPECT_EQ(other.meta().entries, entries) << "the meta-page moves with GET_READER alone";
  }
  kill(writer, SIGKILL);
  end_of(writer);
  // A ring that does not exist yet has nothing to map; GET_READER says so.
  const sys::Fd none(::open((top + "/per_cpu/cpu63/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, none.get(), 0), MAP_FAILED);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(ended(ioctl(none.get(), abi::get_reader_ioctl)), "ENODEV");
  char some[4096];
  EXPECT_EQ(ended(read(none.get(), some, sizeof some)), "EAGAIN");
}

TEST_F(Mount, WhileItIsMappedNothingMoves) {
  start();
  const OnCpu pinned(0);
  make_web();
  ASSERT_EQ(end_of(start_tick_writer("web", 100)), 0);
  const auto instance = must(Instance::open("web"));
  {
    const Mapping map(web + "/per_cpu/cpu0/trace_pipe_raw");
    ASSERT_NE(map.base, nullptr);
    EXPECT_EQ(write_to(web + "/buffer_size_kb", "64"), "EBUSY");
    EXPECT_EQ(write_to(web + "/buffer_subbuf_size_kb", "8"), "EBUSY");
    EXPECT_EQ(write_to(web + "/buffer_subbuf_size_kb", "4"), "1");
    EXPECT_EQ(write_to(web + "/snapshot", "1"), "EBUSY");
    EXPECT_EQ(instance->resize(1 << 16, 8192).error().code, std::errc::device_or_resource_busy);
    EXPECT_EQ(rmdir(web.c_str()), -1);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(ringside("serve web").code, 1) << "one server alone counts the mappers";
    const Outcome rm = ringside("rm web");
    EXPECT_EQ(rm.code, 1);
    EXPECT_NE(rm.err.find("is mapped by a reader"), std::string::npos) << rm.err;
    EXPECT_EQ(write_to(web + "/trace", "", O_WRONLY | O_TRUNC), "0");
  }
  ASSERT_TRUE(eventually([&] { return write_to(web + "/buffer_size_kb", "64") == "2"; }));
  EXPECT_EQ(text_of(web + "/buffer_size_kb"), cpu_rings() ? "67\n" : "X\n") << "a thread's ring is resized at its next event";
  ASSERT_EQ(end_of(start_tick_writer("web", 10)), 0);
  EXPECT_EQ(write_to(web + "/snapshot", "1"), "1");
  EXPECT_EQ(lines_with(text_of(web + "/snapshot"), ": tick: "), 10u);
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: "), 0u);
  EXPECT_EQ(write_to(web + "/snapshot", "0"), "1");
  EXPECT_EQ(lines_with(text_of(web + "/snapshot"), ": tick: "), 0u);
  EXPECT_EQ(rmdir(web.c_str()), 0) << strerrorname_np(errno);
}

TEST_F(Mount, WaitsByBufferPercent) {
  start();
  const OnCpu pinned(0);
  make_web();
  ASSERT_EQ(write_to(web + "/buffer_size_kb", "16"), "2");  // 5 sub-buffers
  const std::string third_of_a_page(1300, 'x');
  const auto mark = [&] { ASSERT_EQ(write_to(web + "/trace_marker", third_of_a_page), "1300"); };
  mark();
  const sys::Fd fd(::open((web + "/per_cpu/cpu0/trace_pipe_raw").c_str(), O_RDONLY));
  ASSERT_TRUE(fd);
  pollfd ready{fd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 50), 0) << "one event is not half of it";
  write_to(web + "/buffer_percent", "0");
  EXPECT_EQ(poll(&ready, 1, 10000), 1);
  EXPECT_EQ(ready.revents, POLLIN);
  write_to(web + "/buffer_percent", "50");
  std::atomic<int> got{-1};
  std::thread blocked([&] { got = ioctl(fd.get(), abi::get_reader_ioctl); });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(got, -1) << "it waits";
  // Again if it came before the thread's call.
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(ended(ioctl(fd.get(), 0)), "0");
    return got != -1;
  }));
  blocked.join();
  EXPECT_EQ(got, 0) << "command 0 wakes all";
  got = -1;
  std::thread again([&] { got = poll(&ready, 1, 20000); });
  for (int i = 0; i < 4; ++i) mark();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(got, -1) << "two of five";
  for (int i = 0; i < 5; ++i) mark();
  again.join();
  EXPECT_EQ(got, 1) << "half full";
  std::thread last([&] { got = ioctl(fd.get(), abi::get_reader_ioctl); });
  last.join();
  EXPECT_EQ(got, 0);
}

// read() returns whole sub-buffers; the rest stays; the loss is on the next one.
// The same events into a ring of the kernel's and into ringside's: at each fill poll says the same, for any buffer_percent.
TEST_F(Mount, PollsAtTheKernelsFill) {
  auto kernel = tracefs_dir();
  if (!kernel) GTEST_SKIP() << kernel.error().sentence;
  TracefsOptions make;
  make.prefix = "ringside-mount-";
  make.clock = ClockKind::mono;
  auto theirs = TracefsInstance::create(make);
  if (!theirs) GTEST_SKIP() << theirs.error().sentence;
  start();
  make_web();
  ASSERT_TRUE(theirs->write("buffer_size_kb", "16"));
  ASSERT_TRUE(theirs->tracing(true));
  ASSERT_EQ(write_to(web + "/buffer_size_kb", "16"), "2");
  cpu_set_t first, all;
  sched_getaffinity(0, sizeof all, &all);
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  ASSERT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
  const std::string half_a_page(1900, 'x');
  const std::string where[] = {theirs->dir(), web};
  sys::Fd files[2];
  std::string seen[2];
  for (int event = 0; event < 14; ++event) {
    for (int k = 0; k < 2; ++k) {
      ASSERT_EQ(write_to(where[k] + "/trace_marker", half_a_page), "1900");
      if (!files[k]) files[k] = sys::Fd(::open((where[k] + "/per_cpu/cpu0/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK));
      seen[k] += std::to_string(event) + ":";
      for (const char* percent : {"0", "1", "20", "21", "40", "50", "60", "61", "80", "81", "100"}) {
        write_to(where[k] + "/buffer_percent", percent);
        pollfd p{files[k].get(), POLLIN, 0};
        seen[k] += poll(&p, 1, 0) == 1 ? std::string(" ") + percent : " -";
      }
      seen[k] += "\n";
      char image[4096];
      if (event % 5 == 4) {
        EXPECT_GT(read(files[k].get(), image, sizeof image), 0);
      }
    }
  }
  EXPECT_EQ(seen[1], seen[0]);
  sched_setaffinity(0, sizeof all, &all);
}

TEST_F(Mount, ReadsSubBuffers) {
  start();
  make_web();
  for (const char* size : {"4", "8", "64"}) {
    ASSERT_EQ(write_to(web + "/trace", "", O_WRONLY | O_TRUNC), "0");
    ASSERT_EQ(write_to(web + "/buffer_subbuf_size_kb", size), std::to_string(std::strlen(size)));
    ASSERT_EQ(write_to(web + "/buffer_size_kb", "256"), "3");
    const u32 subbuf = static_cast<u32>(std::atoi(size)) * 1024;
    const u64 written = 40000;
    ASSERT_EQ(end_of(start_tick_writer("web", written)), 0);
    u64 read_events = 0, lost = 0, overrun = 0;
    for (u32 n = 0; fs::exists(web + "/per_cpu/cpu" + std::to_string(n)); ++n) {
      const std::string cpu = web + "/per_cpu/cpu" + std::to_string(n);
      overrun += stats(cpu).overrun;
      const sys::Fd fd(::open((cpu + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK));
      std::vector<u64> image(subbuf / 8);
      ssize_t got;
      while ((got = read(fd.get(), image.data(), subbuf)) > 0) {
        ASSERT_EQ(got, static_cast<ssize_t>(subbuf));
        const u64 commit = image[1];
        const auto* const data = reinterpret_cast<const u8*>(image.data() + 2);
        if (abi::commit_missed(commit)) {
          u64 missed = 0;
          ASSERT_TRUE(abi::commit_stored(commit) || abi::commit_size(commit) + 24 > subbuf);
          if (abi::commit_stored(commit)) std::memcpy(&missed, data + abi::commit_size(commit), 8);
          lost += missed;
        }
        abi::EventCursor c(data, 0, abi::commit_size(commit), image[0]);
        while (c.next()) ++read_events;
        ASSERT_EQ(c.malformed(), abi::Malformed::no);
      }
      EXPECT_EQ(ended(got), "EAGAIN");
      EXPECT_EQ(read(fd.get(), image.data(), 0), 0);
      EXPECT_EQ(stats(cpu).entries, 0u);
    }
    EXPECT_GT(overrun, 0u);
    EXPECT_EQ(read_events + overrun, written) << size;
    EXPECT_LE(lost, overrun);
  }
  // The first call's count limits what is taken.
  ASSERT_EQ(write_to(web + "/trace", "", O_WRONLY | O_TRUNC), "0");
  ASSERT_EQ(end_of(start_tick_writer("web", 1000)), 0);
  u32 asked = 0;
  for (u32 n = 0; fs::exists(web + "/per_cpu/cpu" + std::to_string(n)); ++n) {
    const std::string cpu = web + "/per_cpu/cpu" + std::to_string(n);
    const u64 entries = stats(cpu).entries;
    if (entries < 2) continue;
    ++asked;
    const sys::Fd fd(::open((cpu + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK));
    u64 some[8] = {};
    EXPECT_EQ(read(fd.get(), some, 16), 0);
    EXPECT_EQ(read(fd.get(), some, 48), 48);
    EXPECT_TRUE(some[1] == 20 || some[1] == 28) << "one event, perhaps with a time extend: " << some[1];
    EXPECT_EQ(stats(cpu).read, 1u);
    EXPECT_EQ(stats(cpu).entries, entries - 1);
  }
  EXPECT_NE(asked, 0u);
}

// A page that is gone, or that a full file system cannot give, is a SIGBUS in the thread that answers.
TEST_F(Mount, ACutRingIsAnErrorAndKillsNoServer) {
  start();
  make_web();
  ASSERT_EQ(end_of(start_tick_writer("web", 1000)), 0);
  const sys::Fd trace(::open((web + "/trace").c_str(), O_RDONLY | O_CLOEXEC)),
      pipe(::open((web + "/trace_pipe").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char some[4096];
  EXPECT_GT(read(pipe.get(), some, sizeof some), 0);
  for (const auto& entry : fs::recursive_directory_iterator(dir + "/root/web/per_cpu"))
    if (entry.path().filename() == "trace_pipe_raw") fs::resize_file(entry.path(), 0);
  for (const sys::Fd* fd : {&trace, &pipe})
    for (int k = 0; k < 1000 && read(fd->get(), some, sizeof some) > 0; ++k) {
    }
  text_of(web + "/trace");
  stats(web + "/per_cpu/cpu0");
  EXPECT_TRUE(mounted());
  EXPECT_EQ(waitpid(server, nullptr, WNOHANG), 0) << "the server is dead";
}

// Two mappers, a reader of trace_pipe, a client that dies with its mapping, a writer at full speed: nothing is counted twice,
// and all losses are reported.
TEST_F(Mount, SeveralClientsAndExactBooks) {
  start();
  make_web();
  ASSERT_EQ(write_to(web + "/buffer_percent", "0"), "1");
  ASSERT_EQ(end_of(start_tick_writer("web", 1)), 0);
  const std::string cpu = web + "/per_cpu/cpu0", raw = cpu + "/trace_pipe_raw";
  const pid_t dying = fork();
  if (dying == 0) {
    Mapping map(raw);
    for (;;) map.step();
  }
  const u64 count = 3'000'000;
  const pid_t writer = start_tick_writer("web", count);
  std::atomic<bool> over{false};
  std::atomic<u64> by_pipe{0}, bad{0};
  const auto mapper = [&] {
    Mapping map(raw);
    if (map.base == nullptr) {
      ++bad;
      return;
    }
    while (!over)
      if (!map.step()) ++bad;
  };
  std::thread a(mapper), b(mapper), pipe([&] {
    const sys::Fd fd(::open((web + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK));
    std::vector<char> some(1 << 16);
    while (!over) {
      const ssize_t n = read(fd.get(), some.data(), some.size());
      if (n > 0)
        by_pipe += static_cast<u64>(std::count(some.begin(), some.begin() + n, '\n'));
      else if (errno != EAGAIN)
        ++bad;
      else
        std::this_thread::sleep_for(1ms);
    }
  });
  std::this_thread::sleep_for(200ms);
  kill(dying, SIGKILL);
  end_of(dying);
  EXPECT_EQ(end_of(writer), 0);
  std::this_thread::sleep_for(50ms);
  over = true;
  a.join();
  b.join();
  pipe.join();
  EXPECT_EQ(bad, 0u);
  EXPECT_GT(by_pipe, 0u);
  u64 sum = 0;
  for (u32 n = 0; fs::exists(web + "/per_cpu/cpu" + std::to_string(n)); ++n) {
    const Stats s = stats(web + "/per_cpu/cpu" + std::to_string(n));
    sum += s.entries + s.overrun + s.read + s.dropped;
  }
  EXPECT_EQ(sum, count + 1);
  EXPECT_TRUE(eventually([&] { return write_to(web + "/buffer_size_kb", "64") == "2"; })) << "all mappers are gone";
}

}  // namespace
}  // namespace ringside::mount_test
