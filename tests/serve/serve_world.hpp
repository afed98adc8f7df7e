// An instance, its writers, a server and clients, each a process of its own, for tests of the served rings.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <ringside/trace.hpp>

#include "instance/instance.hpp"
#include "writer/ring_file.hpp"
#include "serve/server.hpp"
#include "source/get_reader_served.hpp"

RINGSIDE_EVENT(serve_test, step, (u64, value), (u64, twice));

namespace ringside::test {

// In a child: the parent's gtest does not see a failure, but sees the exit code.
#define REQUIRE_HERE(condition)                                                        \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: in a child: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                        \
    }                                                                                  \
  } while (0)

inline constexpr u32 nobody = 65534;

class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    _exit(0);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Child() { kill_now(); }
  int join() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void kill_now(int signal = SIGKILL) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    if (signal == SIGKILL) join();
  }

 private:
  pid_t pid_;
};

// A number that all processes share, to wait for one another.
struct Shared {
  Shared() : words(static_cast<u64*>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { munmap(words, 1 << 20); }
  u64 get(u32 i) const { return __atomic_load_n(&words[i], __ATOMIC_ACQUIRE); }
  void set(u32 i, u64 v) const { __atomic_store_n(&words[i], v, __ATOMIC_RELEASE); }
  void add(u32 i, u64 v) const { __atomic_fetch_add(&words[i], v, __ATOMIC_ACQ_REL); }
  bool reaches(u32 i, u64 v, int seconds = 20) const {
    for (int n = 0; n < seconds * 1000; ++n, usleep(1000))
      if (get(i) >= v) return true;
    return false;
  }
  u64* words;
};

struct World : testing::Test {
  enum { serving, written, go, first_free = 16 };
  std::filesystem::path dir = std::filesystem::temp_directory_path() / ("ringside-serve-" + std::to_string(getpid()));
  std::string path = dir / "inst", socket = dir / "socket";
  Shared shared;

  void SetUp() override {
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir);
    chmod(dir.c_str(), 0755);  // other users reach the socket, not the instance
  }
  void TearDown() override { std::filesystem::remove_all(dir); }

  void create(u64 buffer_size = 1 << 20, u32 subbuf_size = 4096, bool overwrite = true, Rings rings = Rings::thread) {
    InstanceOptions o;
    o.name = path;
    o.buffer_size = buffer_size;
    o.subbuf_size = subbuf_size;
    o.overwrite = overwrite;
    o.rings = rings;
    auto made = Instance::create(o);
    ASSERT_TRUE(made) << made.error().sentence;
  }

  // Runs `body` with the instance open for writing.
  Child writer(const std::function<void()>& body) {
    return Child([&] {
      REQUIRE_HERE(ringside_open(path.c_str()) == 0);
      body();
    });
  }
  void write(u64 from, u64 to) {
    for (u64 i = from; i < to; ++i) {
      serve_test::step(i, 2 * i);
      shared.set(written, i + 1);
    }
  }
  // A ring with values 0 .. n-1, whose writer is gone.
  void written_by_the_dead(u64 n) {
    ASSERT_EQ(writer([&] { write(0, n); }).join(), 0);
  }

  Child serve(ServerOptions o = {}) {
    o.instance = path;
    o.socket = socket;
    shared.set(serving, 0);
    Child server([this, o] {
      auto made = Server::create(o);
      if (!made) std::fprintf(stderr, "%s\n", made.error().sentence.c_str());
      REQUIRE_HERE(made);
      shared.set(serving, 1);
      for (;;)
        if (!(*made)->turn(50)) _exit(3);
    });
    EXPECT_TRUE(shared.reaches(serving, 1));
    return server;
  }

  u64 mapped(u32 ring = 0) const {
    char file[64];
    ring_path(ring, "ring", file);
    const sys::Fd fd(::open((path + "/" + file).c_str(), O_RDONLY));
    u64 value = ~u64{0};
    EXPECT_EQ(pread(fd.get(), &value, sizeof value, offsetof(Control, mapped)), 8);
    return value;
  }
  bool mapped_becomes(u64 value) const {
    for (int n = 0; n < 5000; ++n, usleep(1000))
      if (mapped() == value) return true;
    return false;
  }
};

// Becomes another user. False: this process is not root.
inline bool become_nobody() {
  if (geteuid() != 0) return false;
  if (setgid(nobody) != 0 || setuid(nobody) != 0) return false;
  prctl(PR_SET_DUMPABLE, 1);  // else /proc/self belongs to root, and tests of it would fail for a wrong reason
  return true;
}

// Reads and checks the present events: values count up, a jump is exactly the reported loss.
struct Checker {
  u64 expected = 0, events = 0, lost = 0;
  std::string wrong;

  // False: an error, in `wrong`.
  bool drain(Source& source) {
    for (;;) {
      auto view = source.next();
      if (!view) return fail(view.error().sentence);
      if (!*view) return true;
      lost += (*view)->lost_before;
      expected += (*view)->lost_before;
      abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
      while (c.next()) {
        u64 words[3];
        std::memcpy(words, c.payload().data, sizeof words);
        if (words[1] != expected || words[2] != 2 * expected)
          return fail("value " + std::to_string(words[1]) + " instead of " + std::to_string(expected));
        ++expected;
        ++events;
      }
      if (c.malformed() != abi::Malformed::no) return fail(to_string(c.malformed()));
    }
  }
  bool fail(const std::string& why) {
    wrong = why;
    return false;
  }
};

}  // namespace ringside::test
