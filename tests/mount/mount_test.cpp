// The answers of `ringside mount`, without a kernel in between: waiters, limits, senseless requests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/abi/meta_page.hpp>
#include <ringside/base/sanitizers.hpp>
#include <ringside/remote/process_writer.hpp>
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "instance/instance.hpp"
#include "instance/ring_source.hpp"
#include "mount/server.hpp"
#include "source/get_reader_served.hpp"
#include "tick_writer.hpp"

namespace ringside::mount::mount_test {
namespace {

struct Answer {
  int error = -1;  // -1: none yet; 0: done
  std::string data;
};
class Kept final : public Reply {
 public:
  explicit Kept(Answer& to) : to_(to) {}
  void error(int number) override { to_.error = number; }
  void data(std::string_view bytes) override {
    to_.error = 0;
    to_.data = bytes;
  }
  void done() override { to_.error = 0; }

 private:
  Answer& to_;
};
struct Told final : Poller {
  explicit Told(bool& t) : told(t) {}
  void notify() override { told = true; }
  bool& told;
};

// What write_events() starts.
struct Ticks : testing::Environment {
  void SetUp() override {
    if (const char* count = std::getenv("RINGSIDE_TICKS")) test::write_ticks("web", std::strtoull(count, nullptr, 10), 0);
  }
};
[[maybe_unused]] const testing::Environment* const ticks = testing::AddGlobalTestEnvironment(new Ticks);

struct MountServer : testing::Test {
  std::string dir = std::filesystem::temp_directory_path() / ("ringside-mount-unit-" + std::to_string(getpid()));
  std::unique_ptr<Server> server;
  int maps = 0;
  u64 token = 0;
  Client me{geteuid(), getpid()};

  void SetUp() override {
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir);
    setenv("RINGSIDE_ROOT", dir.c_str(), 1);
    InstanceOptions o;
    o.name = "web";
    o.subbuf_size = 4096;
    o.clock = ClockKind::mono;
    o.rings = Rings::thread;
    must(Instance::create(o));
  }
  void TearDown() override {
    server.reset();
    EXPECT_EQ(maps, 0);
    unsetenv("RINGSIDE_ROOT");
    std::filesystem::remove_all(dir);
  }
  void start(ServerOptions o = {}, bool maps_work = true, u32 cpus = 2) {
    o.instances = {"web"};
    o.cpus = cpus;
    server = must(Server::create(o, {[this, maps_work](int) { return maps_work ? ++maps : -EPERM; }, [this](int) { --maps; }}));
  }
  // The server has threads: what one of them has locked at a fork, as the allocator of a sanitizer, stays locked in the child.
  // So the writer is this program once more.
  static void write_events(u64 count) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string(),
                      job = "RINGSIDE_TICKS=" + std::to_string(count);
    std::vector<char*> environment;
    for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
    environment.push_back(const_cast<char*>(job.c_str()));
    environment.push_back(nullptr);
    char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>("--gtest_brief=1"), nullptr};
    pid_t child = 0;
    int status = 0;
    ASSERT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment.data()), 0);
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
  }
  u64 find(const std::string& path) {
    u64 at = root_inode;
    for (size_t from = 0; from <= path.size();) {
      const size_t end = std::min(path.find('/', from), path.size());
      at = must(server->lookup(at, path.substr(from, end - from))).inode;
      from = end + 1;
    }
    return at;
  }
  u64 open(const std::string& path, int flags = O_RDONLY) { return must(server->open(find(path), flags, me)).handle; }
  void read(u64 handle, Answer& to, bool nonblocking = false, bool cached = false, size_t size = 4096) {
    server->read(handle, 0, size, nonblocking, cached, me, ++token, std::make_unique<Kept>(to));
  }
  void command(u64 handle, u32 number, Answer& to) { server->command(handle, number, me, ++token, std::make_unique<Kept>(to)); }
};

TEST_F(MountServer, AWaiterIsAnsweredOnce) {
  start();
  const u64 pipe = open("trace_pipe"), raw = open("per_cpu/cpu0/trace_pipe_raw");
  Answer a, b, c, d, e;
  read(pipe, a);
  read(raw, b);
  read(raw, c, true);
  EXPECT_EQ(a.error, -1);
  EXPECT_EQ(b.error, -1);
  EXPECT_EQ(c.error, EAGAIN);
  bool told = false;
  EXPECT_EQ(server->poll(pipe, std::make_unique<Told>(told)), 0u);
  server->turn();
  EXPECT_EQ(server->waiting(), 2u);
  server->interrupt(1);
  EXPECT_EQ(a.error, EINTR);
  server->interrupt(1);
  server->turn();
  EXPECT_EQ(server->waiting(), 1u);
  must(Instance::open("web"))->tracing(true);
  write_events(3);
  server->turn();
  EXPECT_EQ(b.error, 0);
  EXPECT_EQ(b.data.size(), 4096u);
  read(raw, d);
  server->flush(raw);
  EXPECT_EQ(d.error, 0) << "a close ends it";
  EXPECT_EQ(d.data, "");
  read(raw, e);
  server->release(raw);
  EXPECT_EQ(e.error, EBADF);
  server->turn();
  EXPECT_EQ(server->waiting(), 0u);
  read(raw, e);
  EXPECT_EQ(e.error, EBADF) << "closed by now";
}

TEST_F(MountServer, AnInterruptedWaiterIsNotAnsweredAgainAtTheEnd) {
  start();
  const u64 pipe = open("trace_pipe");
  Answer a, b;
  read(pipe, a);
  server->interrupt(token);
  EXPECT_EQ(a.error, EINTR);
  read(pipe, b);
  server.reset();
  EXPECT_EQ(a.error, EINTR);
  EXPECT_EQ(b.error, ENODEV);
}

TEST_F(MountServer, LimitsArePerUser) {
  ServerOptions o;
  o.most_files = 20;
  o.most_files_of_a_user = 10;
  o.most_waiting_of_a_user = 3;
  start(o);
  const u64 raw = open("per_cpu/cpu0/trace_pipe_raw");
  Answer waits[5];
  for (Answer& w : waits) read(raw, w);
  EXPECT_EQ(waits[2].error, -1);
  EXPECT_EQ(waits[3].error, EBUSY);
  EXPECT_EQ(waits[4].error, EBUSY);
  const u64 file = find("tracing_on");
  int opened = 0;
  while (server->open(file, O_RDONLY, me)) ++opened;
  EXPECT_EQ(opened, 9);
  EXPECT_EQ(server->open(file, O_RDONLY, me).error().code.value(), EMFILE);
  EXPECT_EQ(server->count_directory(me).error().code.value(), EMFILE);
  for (u32 uid = 70000; opened < 19; ++uid, ++opened) EXPECT_TRUE(server->open(file, O_RDONLY, {uid, 1}));
  EXPECT_EQ(server->open(file, O_RDONLY, {80000, 1}).error().code.value(), ENFILE);
  server.reset();  // answers the waiters
}

TEST_F(MountServer, SenselessRequestsAreRefused) {
  start();
  write_events(3);
  must(server->write(open("snapshot", O_RDWR), "1", me));
  EXPECT_EQ(server->open(find("per_cpu/cpu0/snapshot_raw"), O_RDWR, me).error().code.value(), EACCES);
  const u64 raw = open("per_cpu/cpu0/trace_pipe_raw"), text = open("tracing_on", O_RDWR);
  Answer a;
  read(raw, a, true, true);
  EXPECT_EQ(a.error, EINVAL) << "the page cache asks for it";
  read(raw, a, true, false, 0);
  EXPECT_EQ(a.error, 0);
  server->read(text, ~u64{0}, ~size_t{0}, true, false, me, 1, std::make_unique<Kept>(a));
  EXPECT_EQ(a.error, EINVAL);
  for (const u32 number : {1u, 0x5221u, 0x40085220u, ~0u}) {
    command(raw, number, a);
    EXPECT_EQ(a.error, ENOTTY) << number;
  }
  command(text, abi::get_reader_ioctl, a);
  EXPECT_EQ(a.error, ENOTTY);
  command(12345, abi::get_reader_ioctl, a);
  EXPECT_EQ(a.error, EBADF);
  EXPECT_EQ(server->poll(12345, nullptr), static_cast<u32>(EPOLLERR));
  EXPECT_EQ(server->write(12345, "x", me).error().code.value(), EBADF);
  EXPECT_EQ(server->write(text, std::string(2 << 20, '1'), me).error().code.value(), EINVAL);
  EXPECT_EQ(server->open(find("per_cpu/cpu0/trace_pipe_raw"), O_RDWR, me).error().code.value(), EACCES);
  EXPECT_EQ(server->open(find("per_cpu"), O_RDONLY, me).error().code.value(), EISDIR);
  EXPECT_EQ(server->open(999999, O_RDONLY, me).error().code.value(), ENOENT);
  const std::string too_long(300, 'x');
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("/"), std::string("per_cpu/cpu0"), too_long})
    EXPECT_FALSE(server->lookup(root_inode, name)) << name;
  EXPECT_FALSE(server->lookup(find("tracing_on"), "x"));
  server->forget(999999, 1);
  server->forget(root_inode, ~u64{0});
  server->release(12345);
  server->interrupt(12345);
  EXPECT_TRUE(server->attributes(root_inode));
}

TEST_F(MountServer, WithoutPassthroughOnlyMappingFails) {
  start({}, false);
  write_events(3);
  const auto opened = must(server->open(find("per_cpu/cpu0/trace_pipe_raw"), O_RDONLY | O_NONBLOCK, me));
  EXPECT_EQ(opened.backing, 0);
  EXPECT_NE(server->unmapped().find("CAP_SYS_ADMIN"), std::string::npos);
  EXPECT_EQ(server->unmapped(), "") << "once";
  Answer a;
  command(opened.handle, abi::get_reader_ioctl, a);
  EXPECT_EQ(a.error, ENODEV);
  read(opened.handle, a, true);
  EXPECT_EQ(a.error, 0);
  // Nothing counts as mapped: sizes can change.
  EXPECT_TRUE(must(Instance::open("web"))->resize(1 << 16, 8192));
}

TEST_F(MountServer, AMappedRingIsNotTrimmed) {
  start();
  write_events(3);
  const u64 raw = open("per_cpu/cpu0/trace_pipe_raw", O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(maps, 1);
  Answer a;
  read(raw, a, true);
  EXPECT_EQ(a.error, 0);
  auto instance = must(Instance::open("web"));
  EXPECT_EQ(instance->trim(), 0u) << "its thread has ended and all is read, but a client has it mapped";
  command(raw, abi::get_reader_ioctl, a);
  EXPECT_EQ(a.error, 0);
  server->release(raw);
  EXPECT_GT(instance->trim(), 0u);
}

TEST_F(MountServer, TheMapCountsOfAKilledServerHoldNothing) {
  write_events(3);
  auto instance = must(Instance::open("web"));
  auto source = must(instance->source(0));
  while (must(source->next())) {
  }
  source.reset();
  const auto set_mapped = [&] {
    const sys::Fd ring(::open((dir + "/web/per_cpu/cpu0/ring").c_str(), O_WRONLY | O_CLOEXEC));
    const u64 one = 1;
    ASSERT_EQ(pwrite(ring.get(), &one, sizeof one, offsetof(Control, mapped)), static_cast<ssize_t>(sizeof one));
  };
  set_mapped();
  EXPECT_TRUE(instance->resize(1 << 16, 8192));
  EXPECT_GT(instance->trim(), 0u) << "its thread has ended, all is read, and no process is left that could have it mapped";
}

TEST_F(MountServer, AllMappersOfARingShareOneCount) {
  start();
  write_events(3);
  const u64 inode = find("per_cpu/cpu0/trace_pipe_raw");
  const auto a = must(server->open(inode, O_RDONLY, me)), b = must(server->open(inode, O_RDONLY, me));
  EXPECT_GT(a.backing, 0);
  EXPECT_EQ(a.backing, b.backing);
  server->release(a.handle);
  EXPECT_EQ(maps, 1);
  EXPECT_FALSE(must(Instance::open("web"))->resize(1 << 16, 8192)) << "still mapped by one";
  server->release(b.handle);
  EXPECT_EQ(maps, 0);
  EXPECT_TRUE(must(Instance::open("web"))->resize(1 << 16, 8192));
}

TEST_F(MountServer, APipeTakesOnlyEventsWhoseLinesFit) {
  start();
  write_events(10);
  std::string all;
  for (size_t lines = 0; lines < 10;) {
    const u64 pipe = open("trace_pipe");
    Answer some;
    read(pipe, some, true, false, 150);
    server->release(pipe);
    ASSERT_EQ(some.error, 0) << all;
    ASSERT_EQ(some.data.back(), '\n');
    lines += static_cast<size_t>(std::count(some.data.begin(), some.data.end(), '\n'));
    all += some.data;
    EXPECT_EQ(must(Instance::open("web"))->rings()[0].counters.read, lines) << "all that were taken were given";
  }
  for (int k = 0; k < 10; ++k) EXPECT_NE(all.find("number=" + std::to_string(k) + "\n"), std::string::npos) << k << '\n' << all;
}

TEST_F(MountServer, ALossBeforeADamagedSubBufferIsToldWithTheNextEvent) {
  start();
  must(must(Instance::open("web"))->resize(1 << 14, 4096));
  write_events(2000);
  u64 lost = 0;
  {
    auto instance = must(Instance::open("web"));
    auto ring = must(instance->view_ring(0));
    ASSERT_TRUE(ring.lock());
    ASSERT_EQ(ring.reader().peek(), Got::data);
    lost = ring.reader().view().lost_before;
    std::memset(const_cast<u8*>(ring.reader().data()) + ring.reader().view().begin, 0, 8);
    ring.unlock();
  }
  ASSERT_GT(lost, 0u);
  const u64 pipe = open("trace_pipe");
  Answer some;
  read(pipe, some, true);
  EXPECT_NE(some.data.find("[LOST " + std::to_string(lost) + " EVENTS]"), std::string::npos) << some.data.substr(0, 200);
}

TEST_F(MountServer, ADamagedNumberOfRingsIsNotBelieved) {
  start();
  const sys::Fd words(::open((dir + "/web/instance").c_str(), O_WRONLY | O_CLOEXEC));
  const u64 damaged = ~u64{0};
  ASSERT_EQ(pwrite(words.get(), &damaged, sizeof damaged, offsetof(InstanceControl, cpu_rings)),
            static_cast<ssize_t>(sizeof damaged));
  EXPECT_EQ(must(Instance::open("web"))->cpu_rings(), 0u) << "it has no rings";
  Answer mask, size;
  read(open("tracing_cpumask"), mask, true);
  EXPECT_EQ(mask.data, "3\n");
  read(open("buffer_size_kb"), size, true);
  EXPECT_EQ(size.error, 0);
  EXPECT_TRUE(server->write(open("tracing_cpumask", O_WRONLY), "3", me));
}

TEST_F(MountServer, FreeBufferActsWhenItsLastDescriptorIsClosed) {
  start();
  const auto size = [&] { return geometry_of(must(Instance::open("web"))->control()).data_size(); };
  const u64 before = size(), handle = open("free_buffer", O_WRONLY);
  server->flush(handle);  // a copy was closed, as by a child at its exec
  EXPECT_EQ(size(), before);
  server->release(handle);
  EXPECT_LT(size(), before);
}

TEST_F(MountServer, OthersLeavePlacesForTracesOfRootAndTheMountsUser) {
  start();
  const u64 inode = find("trace");
  const auto begin = [&](u32 uid) {
    const u64 handle = must(server->open(inode, O_RDONLY, {uid, 1})).handle;
    Answer a;
    server->read(handle, 0, 10, true, false, {uid, 1}, ++token, std::make_unique<Kept>(a));
    return std::pair(handle, a.error);
  };
  u64 last = 0;
  for (const u32 uid : {70000u, 70001u})
    for (int k = 0; k < 8; ++k) {
      const auto [handle, error] = begin(uid);
      EXPECT_EQ(error, 0);
      last = handle;
    }
  EXPECT_EQ(begin(70000).second, EBUSY);
  EXPECT_EQ(begin(70002).second, EBUSY);
  EXPECT_EQ(begin(geteuid()).second, 0);
  EXPECT_EQ(begin(0).second, 0);
  // At its end a trace needs no place, though the file stays open.
  const auto read_on = [&](u64 offset) {
    Answer a;
    server->read(last, offset, 65536, true, false, {70001, 1}, ++token, std::make_unique<Kept>(a));
    EXPECT_EQ(a.error, 0);
    return a.data;
  };
  const size_t end = 10 + read_on(10).size();
  EXPECT_EQ(read_on(end), "");
  EXPECT_EQ(read_on(end), "");
  EXPECT_EQ(begin(70002).second, 0);
  EXPECT_EQ(begin(70002).second, EBUSY);
}

// Has an instance's lock, as a process does that is stopped in the middle of a change.
struct LockHolder {
  explicit LockHolder(const std::string& instance) : fd(::open((instance + "/instance").c_str(), O_RDWR | O_CLOEXEC)) {
    struct flock first {};
    first.l_type = F_WRLCK;
    first.l_len = 1;
    EXPECT_EQ(fcntl(fd.get(), F_OFD_SETLK, &first), 0);
  }
  void let_go() { fd = sys::Fd(); }
  sys::Fd fd;
};

TEST_F(MountServer, ATriggerThatFindsTheInstanceBusyKeepsItsCount) {
  start();
  const u64 trigger = open("events/ftrace/print/trigger", O_WRONLY), marker = open("trace_marker", O_WRONLY);
  const auto taken = [&] { return std::filesystem::exists(dir + "/web/snapshot/instance"); };
  EXPECT_TRUE(server->write(marker, "the process that writes markers runs now", me));
  EXPECT_TRUE(server->write(trigger, "snapshot:1", me));
  LockHolder holder(dir + "/web");
  EXPECT_TRUE(server->write(marker, "busy", me));
  EXPECT_FALSE(taken());
  holder.let_go();
  EXPECT_TRUE(server->write(marker, "again", me));
  EXPECT_TRUE(taken());
  Answer shown;
  read(open("events/ftrace/print/trigger"), shown, true);
  EXPECT_EQ(shown.data, "snapshot:count=0\n");
}

TEST_F(MountServer, FreeBufferWaitsForAStoppedHolderOfTheInstancesLock) {
  start();
  const auto size = [&] { return geometry_of(must(Instance::open("web"))->control()).data_size(); };
  const u64 before = size();
  LockHolder holder(dir + "/web");
  for (int k = 0; k < 3; ++k) server->release(open("free_buffer", O_WRONLY));
  server->turn();
  EXPECT_EQ(size(), before);
  holder.let_go();
  server->turn();
  const u64 freed = size();
  EXPECT_LT(freed, before);
  EXPECT_TRUE(server->write(open("buffer_size_kb", O_WRONLY), "64", me));
  server->turn();
  EXPECT_GT(size(), freed) << "it acts once";
}

TEST_F(MountServer, AStoppedHolderOfTheInstancesLockIsNotWaitedForTwice) {
  start();
  LockHolder holder(dir + "/web");
  const u64 enable = open("events/enable", O_WRONLY), size = open("buffer_size_kb", O_WRONLY),
            marker = open("trace_marker", O_WRONLY);
  for (int k = 0; k < 100; ++k) {
    EXPECT_EQ(server->write(enable, "1", me).error().code.value(), EBUSY);
    EXPECT_EQ(server->write(size, "64", me).error().code.value(), EBUSY);
    EXPECT_EQ(server->write(marker, "x", me).error().code.value(), EBUSY);
  }
  holder.let_go();
  EXPECT_TRUE(server->write(enable, "1", me));
  EXPECT_TRUE(server->write(size, "64", me));
}

TEST_F(MountServer, EventsOfACounterAreHiddenWhileRecordingIsOff) {
  must(Instance::remove("web", true));
  InstanceOptions o;
  o.name = "web";
  o.clock = ClockKind::counter;
  must(Instance::create(o));
  start();
  const auto switch_to = [&](const char* value) { EXPECT_TRUE(server->write(open("tracing_on", O_WRONLY), value, me)); };
  write_events(2);
  EXPECT_TRUE(server->write(open("events/app/tick/trigger", O_WRONLY), "traceon if number > 1000", me));
  switch_to("0");
  write_events(3);
  switch_to("1");
  write_events(4);
  Answer all;
  read(open("trace"), all, true, false, 65536);
  const auto shown = [&](u64 number) {
    size_t n = 0;
    const std::string line = "number=" + std::to_string(number) + "\n";
    for (size_t at = all.data.find(line); at != std::string::npos; at = all.data.find(line, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(shown(0), 2u) << all.data;
  EXPECT_EQ(shown(2), 1u) << "that of the last four";
  EXPECT_EQ(shown(3), 1u);
}

// External writers, in this process.
struct MountRemotes : MountServer {
  struct Tick {
    u16 type = 1, common = 0;
    i32 pid = 0;
    u64 number = 0;
  };
  static bool eventually(const std::function<bool()>& holds) {
    for (int k = 0; k < 4000; ++k, usleep(2000))
      if (holds()) return true;
    return false;
  }
  static sys::Fd listen_at(const std::string& path) {
    sys::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, path.c_str(), path.size());
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(fd.get(), 16), 0);
    return fd;
  }
  std::set<std::string> names(const std::string& path) {
    std::set<std::string> all;
    for (const Listed& l : must(server->list(path.empty() ? root_inode : find(path)))) all.insert(l.name);
    return all;
  }
  // Carries an open or a write that another thread performs to its end; returns its errno.
  int carry_out(const std::shared_ptr<Job>& job) {
    int error = -1;
    server->when(job, [&](int e) { error = e; });
    eventually([&] {
      server->turn();
      return error >= 0;
    });
    return error;
  }
  result<Opened> open_it(const std::string& path, int flags = O_RDONLY) {
    auto opened = server->open(find(path), flags, me);
    const auto job = opened ? server->job(opened->handle) : nullptr;
    return job == nullptr ? opened : server->finish(opened->handle, carry_out(job));
  }
  int write_it(const std::string& path, const std::string& text) {
    const u64 handle = open(path, O_WRONLY);
    auto done = server->write(handle, text, me);
    const auto job = done ? server->job(handle) : nullptr;
    const int error = !done ? done.error().code.value() : job == nullptr ? 0 : carry_out(job);
    server->release(handle);
    return error;
  }
  std::string text(const std::string& path) {
    const u64 handle = open(path);
    Answer a;
    read(handle, a, true);
    server->release(handle);
    return a.error != 0 ? "errno " + std::to_string(a.error) : a.data;
  }
  bool answered(const Answer& a) {
    return eventually([&] {
      server->turn();
      return a.error >= 0;
    });
  }
};

TEST_F(MountRemotes, TheTreeAndItsEvents) {
  using remote::ProcessEvent;
  std::vector<ProcessEvent> events{{1, "app", "tick", "name: tick\n"},
                                   {2, "app", "tock", "name: tock\n"},
                                   {3, "net", "in", ""},
                                   {4, "..", "x", ""},
                                   {5, "a/b", "x", ""},
                                   {6, "app", "tick", ""},
                                   {1, "app", "again", ""},
                                   {7, "", "x", ""}};
  remote::ProcessWriter<> writer({remote::announced_path("app"), events});
  ASSERT_EQ(writer.error(), 0);
  start();
  EXPECT_EQ(names("remotes"), (std::set<std::string>{"app"}));
  EXPECT_EQ(names("remotes/app"), (std::set<std::string>{"buffer_size_kb", "buffer_subbuf_size_kb", "events", "options",
                                                         "per_cpu", "trace", "trace_pipe", "tracing_on"}));
  EXPECT_EQ(names("remotes/app/per_cpu"), (std::set<std::string>{"cpu0", "cpu1"}));
  EXPECT_EQ(names("remotes/app/per_cpu/cpu1"), (std::set<std::string>{"stats", "trace", "trace_pipe", "trace_pipe_raw"}));
  EXPECT_EQ(names("remotes/app/events"), (std::set<std::string>{"app", "net", "enable", "header_event", "header_page"}));
  EXPECT_EQ(names("remotes/app/events/app"), (std::set<std::string>{"tick", "tock", "enable"}));
  EXPECT_EQ(names("remotes/app/events/net/in"), (std::set<std::string>{"enable", "format", "id"}));
  EXPECT_EQ(text("remotes/app/events/app/tock/id"), "2\n");
  EXPECT_EQ(text("remotes/app/events/app/tick/format"), "name: tick\n");
  const u64 remotes = find("remotes"), app = find("remotes/app");
  for (const char* name : {"..", ".", "", "no", "app/"}) EXPECT_FALSE(server->lookup(remotes, name)) << name;
  for (const char* name : {"instances", "remotes", "trace_marker", "set_event", "snapshot"})
    EXPECT_FALSE(server->lookup(app, name)) << name;
  EXPECT_FALSE(server->lookup(find("remotes/app/per_cpu"), "cpu2"));
  EXPECT_EQ(server->make_directory(remotes, "x", me).error().code.value(), EPERM);
  EXPECT_EQ(server->remove_directory(remotes, "app").error().code.value(), EPERM);
  EXPECT_EQ(server->open(find("remotes/app/per_cpu/cpu0/trace_pipe_raw"), O_RDWR, me).error().code.value(), EACCES);
}

TEST_F(MountRemotes, EventsAreSwitchedAtEachLevel) {
  std::map<u32, bool> on{{1, true}, {2, true}, {3, true}};
  std::atomic<int> answer{0};
  const auto writer = [&] {
    return std::make_unique<remote::ProcessWriter<>>(remote::ProcessOptions{
        .path = remote::announced_path("app"),
        .events = {{1, "app", "tick", "name: tick\n"}, {2, "app", "tock", "name: tock\n"}, {3, "net", "in", ""}},
        .switch_event = [&](u32 id, bool to) {
          if (answer == 0) on[id] = to;
          return answer.load();
        }});
  };
  auto first = writer();
  ServerOptions named;
  named.remotes = {"app=" + remote::announced_path("app")};
  start(named);
  const std::string events = "remotes/app/events/";
  const auto states = [&] {
    std::string all;
    for (const char* name : {"", "app/", "app/tick/", "app/tock/", "net/", "net/in/"}) all += text(events + name + "enable")[0];
    return all;
  };
  EXPECT_EQ(states(), "111111");
  // Kept, as the writer has no rings yet.
  EXPECT_EQ(write_it(events + "app/tock/enable", "0"), 0);
  EXPECT_EQ(states(), "XX1011");
  EXPECT_EQ(write_it(events + "app/tock/enable", "2"), EINVAL);
  EXPECT_EQ(write_it("remotes/app/tracing_on", "1"), 0);
  EXPECT_EQ(on, (std::map<u32, bool>{{1, true}, {2, false}, {3, true}}));
  EXPECT_EQ(write_it(events + "enable", "0"), 0);
  EXPECT_EQ(states(), "000000");
  EXPECT_EQ(write_it(events + "app/enable", "1\n"), 0);
  EXPECT_EQ(states(), "X11100");
  EXPECT_EQ(on, (std::map<u32, bool>{{1, true}, {2, true}, {3, false}}));
  // A refusal changes nothing.
  answer = EPERM;
  EXPECT_EQ(write_it(events + "app/tick/enable", "0"), EPERM);
  EXPECT_EQ(states(), "X11100");
  answer = 0;
  // The next writer of this name gets the same wishes, the mount's next reader none.
  first.reset();
  on = {{1, true}, {2, true}, {3, true}};
  first = writer();
  ASSERT_TRUE(eventually([&] { return write_it("remotes/app/tracing_on", "1") == 0; }));
  EXPECT_EQ(on, (std::map<u32, bool>{{1, true}, {2, true}, {3, false}}));
  EXPECT_EQ(write_it("remotes/app/tracing_on", "0"), 0);
  ASSERT_TRUE(eventually([&] { return text("remotes/app/buffer_size_kb").find("unloaded") != std::string::npos; }));
  first.reset();
  EXPECT_EQ(on, (std::map<u32, bool>{{1, true}, {2, true}, {3, true}}));
}

TEST_F(MountRemotes, AWaiterIsAnsweredOnceAndLoadingEnds) {
  remote::ProcessWriter<> writer({remote::announced_path("app"), {{1, "app", "tick", ""}}});
  start();
  const std::string cpu = "remotes/app/per_cpu/cpu0/";
  EXPECT_EQ(text("remotes/app/buffer_size_kb"), "1410 (unloaded)\n");
  const Opened pipe = must(open_it("remotes/app/trace_pipe")), raw = must(open_it(cpu + "trace_pipe_raw"));
  EXPECT_GT(raw.backing, 0);
  EXPECT_EQ(pipe.backing, 0);
  EXPECT_EQ(text("remotes/app/buffer_size_kb"), "1410 (loaded)\n");
  EXPECT_EQ(write_it("remotes/app/buffer_size_kb", "7"), EBUSY);
  EXPECT_EQ(write_it("remotes/app/tracing_on", "1"), 0);
  Answer a, b, c, d;
  read(raw.handle, a);
  read(pipe.handle, b);
  EXPECT_TRUE(eventually([&] { return server->turn(), server->waiting() == 2; }));
  server->interrupt(token);
  EXPECT_EQ(b.error, EINTR);
  read(raw.handle, c, true);
  EXPECT_TRUE(answered(c));
  EXPECT_EQ(c.error, EAGAIN) << "once the writer has been asked";
  bool told = false;
  EXPECT_EQ(server->poll(raw.handle, std::make_unique<Told>(told)), 0u);
  Tick tick;
  for (; tick.number < 10; ++tick.number) ASSERT_TRUE(writer.ring(0)->write(&tick, sizeof tick));
  EXPECT_TRUE(answered(a));
  EXPECT_EQ(a.error, 0);
  EXPECT_EQ(a.data.size(), 4096u);
  EXPECT_TRUE(told);
  EXPECT_NE(text(cpu + "stats").find("read events: "), std::string::npos);
  // GET_READER with O_NONBLOCK and no new event: it finds nothing.
  const Opened other = must(open_it(cpu + "trace_pipe_raw", O_RDONLY | O_NONBLOCK));
  EXPECT_EQ(other.backing, raw.backing);
  for (int k = 0; k < 3; ++k) {
    d.error = -1;
    command(other.handle, abi::get_reader_ioctl, d);
    EXPECT_TRUE(answered(d));
    EXPECT_EQ(d.error, 0);
  }
  EXPECT_NE(text(cpu + "stats").find("entries: 0\n"), std::string::npos) << text(cpu + "stats");
  EXPECT_NE(text(cpu + "stats").find("read events: 10\n"), std::string::npos) << text(cpu + "stats");
  EXPECT_EQ(write_it("remotes/app/tracing_on", "0"), 0);
  for (const u64 handle : {pipe.handle, raw.handle, other.handle}) server->release(handle);
  EXPECT_EQ(maps, 0);
  EXPECT_TRUE(eventually([&] { return text("remotes/app/buffer_size_kb") == "1410 (unloaded)\n"; }));
  EXPECT_TRUE(eventually([&] { return writer.ring(0) == nullptr; })) << "and the writer is free for others";
}

TEST_F(MountRemotes, SilentOrLyingWritersHoldUpNoOtherRequest) {
  // One writer accepts nothing, one answers nonsense, one is missing.
  const sys::Fd silent = listen_at(dir + "/silent"), liar = listen_at(dir + "/liar");
  std::atomic<bool> stop{false};
  std::thread lies([&] {
    while (!stop) {
      const sys::Fd fd(accept4(liar.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char request[64];
      for (u64 n = 0; fd && recv(fd.get(), request, sizeof request, 0) > 0; ++n) {
        const remote::Answer a{remote::message_magic, static_cast<remote::Ask>(n), 0xFFFFFFFF, 0, ~u64{0}, ~0u, 0};
        (void)!send(fd.get(), &a, sizeof a, MSG_NOSIGNAL);
      }
    }
  });
  ServerOptions o;
  o.remotes = {"silent=" + dir + "/silent", "liar=" + dir + "/liar", "none=" + dir + "/none"};
  o.patience = std::chrono::seconds(3);
  start(o);
  EXPECT_EQ(names("remotes"), (std::set<std::string>{"liar", "none", "silent"}));
  const auto opened = server->open(find("remotes/silent/trace_pipe"), O_RDONLY, me);
  ASSERT_TRUE(opened);
  const auto job = server->job(opened->handle);
  ASSERT_NE(job, nullptr);
  for (int k = 0; k < 20; ++k) {
    EXPECT_EQ(text("tracing_on"), "1\n");
    EXPECT_EQ(text("remotes/silent/tracing_on"), "0\n");
    EXPECT_NE(text("remotes/silent/per_cpu/cpu0/stats").find("entries: 0\n"), std::string::npos);
  }
  EXPECT_LT(job->error.load(), 0) << "all these were answered while it waited";
  EXPECT_EQ(open_it("remotes/none/trace_pipe").error().code.value(), ENODEV);
  EXPECT_EQ(open_it("remotes/liar/trace_pipe").error().code.value(), EPROTO);
  EXPECT_EQ(write_it("remotes/liar/tracing_on", "1"), EPROTO);
  const u64 on = open("remotes/silent/tracing_on", O_WRONLY);
  ASSERT_TRUE(server->write(on, "1", me));
  EXPECT_EQ(server->write(on, "1", me).error().code.value(), EBUSY) << "one at a time";
  EXPECT_EQ(carry_out(server->job(on)), ETIMEDOUT);
  server->release(on);
  EXPECT_EQ(carry_out(job), ETIMEDOUT);
  EXPECT_EQ(server->finish(opened->handle, ETIMEDOUT).error().code.value(), ETIMEDOUT);
  EXPECT_EQ(server->open_files(), 0u);
  for (const char* wrong : {"x", "=x", "x=", "a/b=x", "../x=y", "none=a"}) {
    ServerOptions bad;
    bad.instances = {"web"};
    bad.remotes = {"none=" + dir + "/none", wrong};
    EXPECT_FALSE(Server::create(bad, {})) << wrong;
  }
  stop = true;
  server.reset();
  shutdown(liar.get(), SHUT_RDWR);
  lies.join();
}

TEST_F(MountRemotes, EqualRequestsToASilentWriterWaitTogether) {
  const sys::Fd silent = listen_at(dir + "/silent");
  ServerOptions o;
  o.remotes = {"silent=" + dir + "/silent"};
  start(o);
  const u64 inode = find("remotes/silent/per_cpu/cpu0/trace_pipe_raw");
  std::vector<int> errors(12, -1);
  for (int& error : errors) {
    const Opened opened = must(server->open(inode, O_RDONLY, me));
    server->when(server->job(opened.handle),
                 [&, handle = opened.handle](int e) { error = server->finish(handle, e).error().code.value(); });
  }
  EXPECT_TRUE(eventually([&] { return server->turn(), std::count(errors.begin(), errors.end(), ETIMEDOUT) == 12; }))
      << "one after the other: 12 s";
  EXPECT_EQ(server->open_files(), 0u);
  server.reset();
}

// Each ring's answer comes in time, but all of them together would not.
TEST_F(MountRemotes, OneTimeOutCoversAllRingsOfASlowWriter) {
  const sys::Fd slow = listen_at(dir + "/slow");
  std::atomic<u32> resets{0};
  std::thread answers([&] {
    for (;;) {
      const sys::Fd fd(accept4(slow.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) return;
      remote::Request q;
      while (recv(fd.get(), &q, sizeof q, 0) > 0) {
        remote::Answer a{remote::message_magic, q.ask, q.sequence, 0, 0, 0, 0};
        if (q.ask == remote::Ask::event) a.error = ENOENT;
        if (q.ask == remote::Ask::reset) ++resets, usleep(600'000);
        if (send(fd.get(), &a, sizeof a, MSG_NOSIGNAL) < 0) break;
      }
    }
  });
  ServerOptions o;
  o.remotes = {"slow=" + dir + "/slow"};
  start(o, true, 64);
  const u64 pipe = must(open_it("remotes/slow/trace_pipe")).handle;
  EXPECT_EQ(write_it("remotes/slow/trace", "0"), ETIMEDOUT);
  EXPECT_LT(resets, 10u);
  server->release(pipe);
  server.reset();
  shutdown(slow.get(), SHUT_RDWR);
  answers.join();
}

// Opens, closes, waits, switches and empties while writers write, end and come again, and then the mount ends: every request is
// answered exactly once.
TEST_F(MountRemotes, EachRequestIsAnsweredOnceUnderLoad) {
  const std::string path = remote::announced_path("app");
  std::atomic<bool> stop{false}, found{false};
  std::thread app([&] {
    while (!stop) {
      remote::ProcessWriter<> writer({path, {{1, "app", "tick", ""}}});
      for (u32 k = 0; (k < 60 || !found) && !stop; ++k, usleep(2000))
        for (Tick tick; tick.number < 200; ++tick.number)
          if (auto* ring = writer.ring(0)) ring->write(&tick, sizeof tick);
    }
  });
  start();
  EXPECT_TRUE(eventually([&] { return names("remotes").count("app") == 1; }));
  const std::string in = "remotes/app/";
  const std::vector<std::string> paths{"trace_pipe",
                                       "trace",
                                       "tracing_on",
                                       "per_cpu/cpu0/trace_pipe_raw",
                                       "per_cpu/cpu0/stats",
                                       "per_cpu/cpu0/trace_pipe",
                                       "per_cpu/cpu1/trace_pipe_raw"};
#if RINGSIDE_TSAN
  constexpr bool resets = false;  // membarrier keeps the writer out, which the sanitizer does not know
#else
  constexpr bool resets = true;
#endif
  std::vector<u64> inodes;
  for (const std::string& name : paths) inodes.push_back(find(in + name));
  found = true;
  struct Open {
    u64 handle;
    std::string path;
  };
  std::vector<Open> files;
  std::vector<std::unique_ptr<u32>> answers;
  struct Once final : Reply {
    explicit Once(u32& n) : count(n) {}
    ~Once() override { EXPECT_EQ(count, 1u); }
    void error(int) override { ++count; }
    void data(std::string_view) override { ++count; }
    void done() override { ++count; }
    u32& count;
  };
  const auto count = [&]() -> u32& { return *answers.emplace_back(std::make_unique<u32>(0)); };
  u64 seed = 1;
  const auto draw = [&](u64 below) { return (seed = seed * 6364136223846793005 + 1442695040888963407, seed >> 33) % below; };
  u32 done = 0;
  const u64 until = sys::now_ns() + 1'500'000'000;
  while (sys::now_ns() < until || done == 0) {
    server->turn();
    if (draw(4) == 0) usleep(200);
    if (files.size() < 6) {
      const size_t which = draw(paths.size());
      const std::string& name = paths[which];
      const bool writes = name == "tracing_on" || (resets && name == "trace" && draw(4) == 0);
      const int flags = (writes ? O_RDWR | O_TRUNC : O_RDONLY) | (draw(2) == 0 ? O_NONBLOCK : 0);
      const auto opened = server->open(inodes[which], flags, me);
      if (!opened) continue;
      if (const auto job = server->job(opened->handle); job != nullptr)
        server->when(job, [&, &n = count(), handle = opened->handle, name](int error) {
          ++n;
          if (server != nullptr && server->finish(handle, error)) files.push_back({handle, name});
        });
      else
        files.push_back({opened->handle, name});
      continue;
    }
    const size_t at = draw(files.size());
    const Open f = files[at];
    switch (draw(8)) {
      case 0:
        server->flush(f.handle);
        server->release(f.handle);
        files.erase(files.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        if (f.path == "tracing_on" || (resets && f.path == "trace"))
          if (auto wrote = server->write(f.handle, draw(4) == 0 ? "0" : "1", me); wrote)
            if (const auto job = server->job(f.handle); job != nullptr)
              server->when(job, [&, &n = count()](int) { ++n, ++done; });
        break;
      case 2: server->command(f.handle, abi::get_reader_ioctl, me, ++token, std::make_unique<Once>(count())); break;
      case 3: server->interrupt(token - draw(3)); break;
      case 4: server->poll(f.handle, nullptr); break;
      default: server->read(f.handle, 0, 4096, draw(2) == 0, false, me, ++token, std::make_unique<Once>(count())); break;
    }
  }
  EXPECT_GT(done, 0u);
  server.reset();
  for (const auto& n : answers) EXPECT_EQ(*n, 1u);
  stop = true;
  app.join();
}

// Not under the thread sanitizer: membarrier keeps the writer out of a reset, which it does not know.
#if !RINGSIDE_TSAN
TEST_F(MountRemotes, APollerIsToldAtOnceAlsoAfterAReset) {
  remote::ProcessWriter<> writer({remote::announced_path("app"), {{1, "app", "tick", ""}}});
  start();
  EXPECT_EQ(write_it("remotes/app/tracing_on", "1"), 0);
  const u64 pipe = must(open_it("remotes/app/trace_pipe")).handle;
  u64 fastest_ns = ~u64{0};
  for (int round = 0; round < 5; ++round) {
    Tick tick;
    for (; tick.number < 10; ++tick.number) ASSERT_TRUE(writer.ring(0)->write(&tick, sizeof tick));
    Answer some;
    read(pipe, some, true, false, 150);  // the others stay with the mount
    ASSERT_TRUE(answered(some));
    ASSERT_EQ(write_it("remotes/app/trace", "0"), 0);
    bool told = false;
    ASSERT_EQ(server->poll(pipe, std::make_unique<Told>(told)), 0u);
    server->turn();
    const u64 from = sys::now_ns();
    ASSERT_TRUE(writer.ring(0)->write(&tick, sizeof tick));
    ASSERT_TRUE(eventually([&] {
      pollfd woken{server->wake_fd(), POLLIN, 0};
      if (poll(&woken, 1, 1000) > 0) server->turn();
      return told;
    }));
    fastest_ns = std::min(fastest_ns, sys::now_ns() - from);
    ASSERT_EQ(write_it("remotes/app/trace", "0"), 0);
  }
  EXPECT_LT(fastest_ns, 60'000'000u) << "the mount looks every 5 ms, and the alarm ends after 100 ms";
  server->release(pipe);
}

// Between a mount and a writer: forwards all requests, and all answers but those to a reset.
class Relay {
 public:
  Relay(sys::Fd listening, std::string writer)
      : listening_(std::move(listening)), writer_(std::move(writer)), thread_([this] { run(); }) {}
  ~Relay() { end(); }
  u32 resets() const { return resets_; }  // carried out
  void end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    listening_ = sys::Fd();
  }

 private:
  void run() {
    while (!over_) {
      pollfd p{listening_.get(), POLLIN, 0};
      if (poll(&p, 1, 10) != 1) continue;
      const sys::Fd reader(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
          writer = must(connect_socket(writer_, std::chrono::seconds(20), "no writer"));
      for (bool open = true; open && !over_;) {
        pollfd on[2] = {{reader.get(), POLLIN, 0}, {writer.get(), POLLIN, 0}};
        poll(on, 2, 10);
        if (on[0].revents != 0) open = forward(reader.get(), writer.get(), false);
        if (open && on[1].revents != 0) open = forward(writer.get(), reader.get(), true);
      }
    }
  }
  // With its files; false: the peer is gone.
  bool forward(int from, int to, bool answer) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * remote::most_files)] = {};
    std::vector<char> bytes(65536);
    iovec part{bytes.data(), bytes.size()};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    if (n <= 0) return false;
    part.iov_len = static_cast<size_t>(n);
    remote::Answer head{};
    std::memcpy(&head, bytes.data(), std::min(bytes.size(), sizeof head));
    if (answer && head.ask == remote::Ask::reset) return ++resets_, true;
    const bool sent = sendmsg(to, &m, MSG_NOSIGNAL) == n;
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c))
      for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, reinterpret_cast<char*>(c) + at, sizeof fd);
        close(fd);
      }
    return sent;
  }

  sys::Fd listening_;
  std::string writer_;
  std::atomic<bool> over_{false};
  std::atomic<u32> resets_{0};
  std::thread thread_;
};

// Nobody has a file of the writer open meanwhile.
TEST_F(MountRemotes, EventsAfterAResetWithoutAnAnswerAreKeptWhenTheWriterDies) {
  remote::ProcessWriter<> writer({dir + "/writer", {{1, "app", "tick", ""}}});
  Relay relay(listen_at(dir + "/relay"), dir + "/writer");
  ServerOptions o;
  o.remotes = {"app=" + dir + "/relay"};
  start(o);
  ASSERT_EQ(write_it("remotes/app/tracing_on", "1"), 0);
  Tick tick;
  for (; tick.number < 10; ++tick.number) ASSERT_TRUE(writer.ring(0)->write(&tick, sizeof tick));
  EXPECT_EQ(write_it("remotes/app/per_cpu/cpu0/trace", "0"), ETIMEDOUT);
  ASSERT_TRUE(eventually([&] { return relay.resets() == 1; }));
  for (; tick.number < 30; ++tick.number) ASSERT_TRUE(writer.ring(0)->write(&tick, sizeof tick));
  relay.end();
  const u64 pipe = must(open_it("remotes/app/trace_pipe")).handle;
  Answer all;
  read(pipe, all, false, false, 65536);
  ASSERT_TRUE(answered(all));
  EXPECT_EQ(std::count(all.data.begin(), all.data.end(), '\n'), 20) << all.data;
  server->release(pipe);
}
#endif

TEST_F(MountRemotes, RingsFitIntoMemory) {
  remote::ProcessWriter<> writer({remote::announced_path("app"), {}});
  start({}, true, 252);
  const u64 quarter = static_cast<u64>(sysconf(_SC_PHYS_PAGES)) * 4 / 4 / 252;  // KiB for each ring
  const std::string size = "remotes/app/buffer_size_kb";
  EXPECT_EQ(write_it(size, std::to_string(quarter + 1)), quarter >= 1 << 20 ? EINVAL : ENOMEM);
  EXPECT_EQ(write_it(size, "64"), 0);
  EXPECT_EQ(text(size), "64 (unloaded)\n");
}

TEST_F(MountRemotes, GoneWritersMakeRoom) {
  std::filesystem::create_directory(dir + "/.remotes");
  std::vector<sys::Fd> dead;
  for (int k = 0; k < 256; ++k) dead.push_back(listen_at(dir + "/.remotes/app-" + std::to_string(k)));
  start();
  EXPECT_TRUE(eventually([&] { return names("remotes").size() == 256; }));
  for (int k = 0; k < 256; ++k) unlink((dir + "/.remotes/app-" + std::to_string(k)).c_str());
  EXPECT_TRUE(eventually([&] { return names("remotes").empty(); }));
  remote::ProcessWriter<> late({remote::announced_path("late"), {}});
  EXPECT_TRUE(eventually([&] { return names("remotes") == std::set<std::string>{"late"}; }));
}

TEST_F(MountRemotes, FormatsThatStayTheSameAreLearntOnce) {
  const std::string path = dir + "/app";
  sys::Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Remote remote("app", path, 1, std::chrono::seconds(1), event.get());
  const auto ask = [&] {
    int error = EBUSY;
    while (error == EBUSY) {  // the connection before is not gone yet
      const auto job = remote.probe();
      EXPECT_TRUE(eventually([&] { return job->error.load() >= 0; }));
      error = job->error;
    }
    EXPECT_EQ(error, 0);
    remote.refresh();
  };
  const std::string format =
      "name: tick\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\nprint fmt: \"\"\n";
  for (const char* name : {"tick", "tick", "tock"}) {
    remote::ProcessWriter<> writer({path, {{1, "app", name, format}}});
    ASSERT_EQ(writer.error(), 0);
    for (int k = 0; k < 3; ++k) ask();
    ASSERT_NE(remote.formats().find(1), nullptr);
    EXPECT_EQ(remote.formats().find(1)->name, name);
  }
  EXPECT_EQ(remote.formats().all().size(), 2u);
}

}  // namespace
}  // namespace ringside::mount::mount_test
