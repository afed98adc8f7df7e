// What `ringside mount` answers, without a kernel in between: who waits, limits, requests that make no sense.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/abi/meta_page.hpp>
#include <ringside/ringside.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "instance/instance.hpp"
#include "mount/server.hpp"

namespace ringside::mount {
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
    must(Instance::create(o));
  }
  void TearDown() override {
    server.reset();
    EXPECT_EQ(maps, 0);
    unsetenv("RINGSIDE_ROOT");
    std::filesystem::remove_all(dir);
  }
  void start(ServerOptions o = {}, bool maps_work = true) {
    o.instances = {"web"};
    o.cpus = 2;
    server = must(Server::create(o, {[this, maps_work](int) { return maps_work ? ++maps : -EPERM; }, [this](int) { --maps; }}));
  }
  static void write_events(u64 count) {
    const pid_t child = fork();
    if (child == 0) {
      static ringside_event event{"app", "tick", "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n", "\"n=%llu\", REC->n",
                                  ringside_gate_of("app", "tick"), 0, nullptr, nullptr};
      if (ringside_open("web") != 0 || ringside_register(&event) != 0) _exit(1);
      for (u64 i = 0; i < count; ++i)
        if (ringside_slot slot; ringside_begin(&event, 16, &slot)) {
          std::memcpy(slot.payload + 8, &i, sizeof i);
          ringside_end(&slot);
        }
      _exit(0);
    }
    int status = 0;
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

TEST_F(MountServer, WhoWaitsIsAnsweredOnce) {
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
  EXPECT_EQ(e.error, EBADF) << "not open any more";
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
}

TEST_F(MountServer, RequestsThatMakeNoSense) {
  start();
  write_events(3);
  const u64 raw = open("per_cpu/cpu0/trace_pipe_raw"), text = open("tracing_on", O_RDWR);
  Answer a;
  read(raw, a, true, true);
  EXPECT_EQ(a.error, EINVAL) << "for the page cache";
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
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("/"), std::string("per_cpu/cpu0"), too_long})
    EXPECT_FALSE(server->lookup(root_inode, name)) << name;
  EXPECT_FALSE(server->lookup(find("tracing_on"), "x"));
  server->forget(999999, 1);
  server->forget(root_inode, ~u64{0});
  server->release(12345);
  server->interrupt(12345);
  EXPECT_TRUE(server->attributes(root_inode));
}

TEST_F(MountServer, WithoutPassthroughAllButTheMappingWorks) {
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

TEST_F(MountServer, OneNumberForAllWhoMapARing) {
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

}  // namespace
}  // namespace ringside::mount
