// External writers in processes that fork: a child gets nothing of its parent's rings or service.
#include <ringside/base/sanitizers.hpp>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <functional>
#include <thread>

#include "remote/writer_process.hpp"

namespace ringside::test::remote_process_test {
namespace {

// A program of its own (`what` in a child) that listens at `path`; it does not outlive the test.
class Program {
 public:
  Program(std::string path, const std::function<int()>& what) : path_(std::move(path)), pid_(fork()) {
    if (pid_ == 0) _exit(what());
  }
  ~Program() {
    kill();
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    unlink(path_.c_str());
  }
  void kill() const { ::kill(pid_, SIGKILL); }
  int status() const {  // once it has ended; -1: it hangs
    siginfo_t end{};
    for (int k = 0; k < 300000; ++k) {  // on a busy machine a thousand forks take their time
      if (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == pid_)
        return end.si_code == CLD_EXITED ? end.si_status : 1000 + end.si_status;
      usleep(1000);
    }
    return -1;
  }

 private:
  std::string path_;
  pid_t pid_;
};

struct Way {
  const char* name;
  pid_t (*fork)();
};
void PrintTo(const Way& way, std::ostream* to) { *to << way.name; }
const Way ways[] = {{"fork", ::fork},
                    {"_Fork", ::_Fork},
                    {"clone", [] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }}};

// The exit code of a child, or the reason why it has none.
int code_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void write_some(ProcessWriter<>& writer, u64 from, u64 count) {
  for (u64 n = 0; n < count;) {
    const Event e{1, from + n};
    auto* const ring = writer.ring(0);
    if (ring != nullptr && ring->write(&e, sizeof e)) ++n;
    else usleep(10);
  }
}

// A child's use of its parent's writer, and of one of its own. Returns an exit code.
int live_as_a_child(std::unique_ptr<ProcessWriter<>>& copy, ProcessWriter<>::Writer* ring,
                    [[maybe_unused]] const std::string& own_path) {
  const u64 before = ring->refused();
  for (u64 n = 0; n < 20000; ++n) {
    const Event e{1, ~u64{0}};
    if (ring->write(&e, sizeof e) || copy->ring(0)->write(&e, sizeof e)) return 10;
  }
  if (ring->reserve(8)) return 11;
  if (ring->refused() != before + 40001) return 12;
#if !RINGSIDE_TSAN  // it allows no thread here
  {
    ProcessWriter<> own({own_path, {{1, "app", "tick", "name: tick"}}});
    if (own.error() != 0) return 13;
    auto p = Process::attach(own_path, {});
    if (!p || !(*p)->enable(true)) return 14;
    write_some(own, 0, 1000);
    auto source = must((*p)->buffer().source(0));
    Books books;
    books.take(*source);
    if (books.read != 1000 || books.torn) return 15;
  }
  if (access(own_path.c_str(), F_OK) == 0) return 16;
#endif
  copy.reset();
  return 0;
}

class RemoteForks : public testing::TestWithParam<Way> {};
#if RINGSIDE_TSAN  // it does not support the others
INSTANTIATE_TEST_SUITE_P(Ways, RemoteForks, testing::Values(ways[0]),
                         [](const auto& i) { return std::string(i.param.name + (i.param.name[0] == '_')); });
#else
INSTANTIATE_TEST_SUITE_P(Ways, RemoteForks, testing::ValuesIn(ways),
                         [](const auto& i) { return std::string(i.param.name + (i.param.name[0] == '_')); });
#endif

TEST_P(RemoteForks, AChildUsesNeitherRingsNorServiceOfItsParent) {
  const std::string path = fresh_path(), own = fresh_path();
  constexpr u64 children = 5, each = 1000;
  const Program program(path, [&] {
    auto writer = std::make_unique<ProcessWriter<>>(ProcessOptions{path, {{1, "app", "tick", "name: tick"}}});
    if (writer->error() != 0) return 1;
    write_some(*writer, 0, each);
    for (u64 k = 1; k <= children; ++k) {
      auto* const ring = writer->ring(0);
      const pid_t child = GetParam().fork();
      if (child < 0) return 2;
      if (child == 0) _exit(live_as_a_child(writer, ring, own));
      write_some(*writer, k * each, each);
      if (const int code = code_of(child); code != 0) return code;
    }
    for (;;) pause();
    return 0;
  });
  auto p = attach(path, Layout::meta_page, 2s, 1 << 20);
  auto source = must(p->buffer().source(0));
  must(p->enable(true));
  constexpr u64 count = (children + 1) * each;
  Books books;
  const u64 deadline = sys::now_ns() + hang_ns;
  while (books.next < count && sys::now_ns() < deadline) books.take(*source);
  EXPECT_EQ(books.error, "");
  EXPECT_FALSE(books.torn);
  EXPECT_EQ(books.read, count);
  const Counters c = source->counters();
  EXPECT_EQ(c.written, count);
  EXPECT_EQ(c.overrun, 0u);
  for (int again = 0; again < 3; ++again) {  // the service and its socket are still there
    p = nullptr;
    source = nullptr;
    p = attach(path);
  }
}

#if !RINGSIDE_TSAN  // there the service's descriptors are the process's
// A child that lives on holds neither its parent's connection nor its socket.
TEST_P(RemoteForks, AParentsEndIsSeenWhileAChildLives) {
  const std::string path = fresh_path();
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const sys::Fd until(fds[0]);
  sys::Fd us(fds[1]);
  {
    const Program program(path, [&] {
      ProcessWriter<> writer({path, {{1, "app", "tick", "name: tick"}}});
      write_some(writer, 0, 1000);
      const pid_t child = GetParam().fork();
      if (child == 0) {
        us = sys::Fd();
        char c;
        (void)!read(until.get(), &c, 1);  // as long as the test runs
        _exit(0);
      }
      for (u64 n = 1000;; n += 100) write_some(writer, n, 100);
      return 0;
    });
    auto p = attach(path);
    auto source = must(p->buffer().source(0));
    must(p->enable(true));
    Books books;
    while (books.next < 2000) books.take(*source);
    program.kill();
    const u64 deadline = sys::now_ns() + hang_ns;
    while (!source->ended() && sys::now_ns() < deadline) books.take(*source);
    EXPECT_TRUE(source->ended());
    EXPECT_FALSE(books.torn);
    const Counters c = source->counters();
    EXPECT_EQ(c.written, c.read + c.overrun + c.unread);
  }
  ProcessWriter<> next({path, {}});
  EXPECT_EQ(next.error(), 0);
}

// The program closes descriptors that it did not open.
TEST(RemoteProcesses, AProgramMayCloseTheWritersDescriptors) {
  const std::string path = fresh_path();
  const Program program(path, [&] {
    ProcessWriter<> writer({path, {{1, "app", "tick", "name: tick"}}});
    write_some(writer, 0, 1000);
    for (int fd = 0; fd < 1000; ++fd) close(fd);
    write_some(writer, 1000, 1000);
    for (;;) pause();
    return 0;
  });
  for (int again = 0; again < 2; ++again) {
    auto p = attach(path, Layout::meta_page, 2s, 1 << 20);
    auto source = must(p->buffer().source(0));
    must(p->enable(true));
    if (again == 1) continue;
    Books books;
    const u64 deadline = sys::now_ns() + hang_ns;
    while (books.next < 2000 && sys::now_ns() < deadline) books.take(*source);
    EXPECT_EQ(books.read, 2000u);
  }
}

// The child of vfork shares its parent's memory. (ThreadSanitizer makes a fork of it.)
TEST(RemoteProcesses, AChildOfVforkWritesForItsParent) {
  const std::string path = fresh_path();
  const Program program(path, [&] {
    ProcessWriter<> writer({path, {{1, "app", "tick", "name: tick"}}});
    for (u64 n = 0; n < 1000; n += 2) {
      write_some(writer, n, 1);
      const pid_t child = vfork();
      if (child == 0) {
        write_some(writer, n + 1, 1);
        _exit(0);
      }
      waitpid(child, nullptr, 0);
    }
    for (;;) pause();
    return 0;
  });
  auto p = attach(path);
  auto source = must(p->buffer().source(0));
  must(p->enable(true));
  Books books;
  const u64 deadline = sys::now_ns() + hang_ns;
  while (books.next < 1000 && sys::now_ns() < deadline) books.take(*source);
  EXPECT_EQ(books.read, 1000u);
  EXPECT_FALSE(books.torn);
}
#endif

// Readers that come and go keep the service in its locks and its mappings; a child forked meanwhile finishes with its copy in
// time.
TEST_P(RemoteForks, AForkMayComeWhileTheServiceIsAtWork) {
  const std::string path = fresh_path();
  const Program program(path, [&] {
    auto writer = std::make_unique<ProcessWriter<>>(ProcessOptions{path, {}});
    for (int round = 0; round < 300; ++round) {
      const pid_t child = GetParam().fork();
      if (child == 0) {
        alarm(20);
        const Event e{1, 0};
        auto* const ring = writer->ring(0);
        if (ring != nullptr && ring->write(&e, sizeof e)) _exit(10);
        writer.reset();
        _exit(0);
      }
      if (const int code = code_of(child); code != 0) return code;
    }
    return 0;
  });
  std::atomic<bool> over{false};
  std::thread readers([&] {
    while (!over) {
      Process::Options options;
      options.buffer.rings = 3;
      if (auto p = Process::attach(path, options)) (void)(*p)->enable(true);
    }
  });
  EXPECT_EQ(program.status(), 0);
  over = true;
  readers.join();
}

#if defined(__x86_64__) && !RINGSIDE_SANITIZED  // a sanitizer's run-time is stepped through, too
// A fork at each instruction of an event, in a handler of a trap: the child ends the open event after its parent has ended it,
// and is refused then; the parent's counts are exact.
volatile int steps_to_go;
volatile u64 number_of_payload;
pid_t (*volatile fork_now)();
volatile pid_t child_of_step;
sys::Fd go[2];

void on_trap(int, siginfo_t*, void* context) {
  steps_to_go = steps_to_go - 1;
  if (steps_to_go > 0) return;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
  child_of_step = fork_now();
  if (child_of_step != 0) return;
  char c;
  (void)!read(go[0].get(), &c, 1);
  number_of_payload = ~u64{0};
}

template <u32 size>
[[gnu::noinline]] bool stepped_write(ProcessWriter<>::Writer& ring, int steps) {
  steps_to_go = steps;
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | 0x100);
  const bool written = ring.write(size, [](u8* to) {
    const Event e{1, number_of_payload};
    std::memcpy(to, &e, sizeof e);
  });
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~u64{0x100});
  return written;
}

// 0, or the number of the fault. Goes on until an event has fewer instructions than the steps.
template <u32 size>
int at_each_instruction(ProcessWriter<>& writer, u64& number) {
  int beyond = 0;
  for (int step = 1; beyond < 8; ++step) {
    auto* const ring = writer.ring(0);
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return 3;
    go[0] = sys::Fd(fds[0]);
    go[1] = sys::Fd(fds[1]);
    number_of_payload = number++;
    child_of_step = -1;
    fork_now = ways[step % 3].fork;
    const bool written = stepped_write<size>(*ring, step);
    if (child_of_step == 0) {  // whether its event was refused already depends on the instruction
      const Event e{1, ~u64{0}};
      const u64 before = ring->refused();
      if (ring->write(&e, sizeof e) || ring->write(&e, sizeof e)) _exit(20);
      _exit(ring->refused() == before + 2 ? 0 : 21);
    }
    if (!written) return 4;
    if (child_of_step < 0) {
      ++beyond;
      continue;
    }
    beyond = 0;
    (void)!write(go[1].get(), "x", 1);
    if (const int code = code_of(child_of_step); code != 0) return code;
  }
  return 0;
}

class SteppedForks : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, SteppedForks, layouts, layout_name);

TEST_P(SteppedForks, AForkMayComeAtEachInstructionOfAnEvent) {
  const std::string path = fresh_path();
  const sys::Fd numbers(memfd_create("numbers", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(numbers.get(), 4096), 0);
  auto* const count = static_cast<u64*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, numbers.get(), 0));
  const Program program(path, [&] {
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, nullptr);
    ProcessWriter<> writer({path, {{1, "app", "tick", "name: tick"}}});
    write_some(writer, 0, 1);
    u64 number = 1;
    int wrong = at_each_instruction<sizeof(Event)>(writer, number);
    if (wrong == 0) wrong = at_each_instruction<1500>(writer, number);  // every other event leaves its sub-buffer
    *count = number;
    return wrong;
  });
  auto p = attach(path, GetParam(), 10s, 8 << 20);
  auto source = must(p->buffer().source(0));
  must(p->enable(true));
  ASSERT_EQ(program.status(), 0);
  Books books;
  books.take(*source);
  EXPECT_FALSE(books.torn);
  EXPECT_EQ(books.read, *count);
  EXPECT_GT(*count, 200u);
  RecordProperty("forks", std::to_string(*count));
  munmap(count, 4096);
}
#endif

}  // namespace
}  // namespace ringside::test::remote_process_test
