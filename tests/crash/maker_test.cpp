// A process that makes an instance is killed at each system call, or finds no space at each step: then there is no instance,
// and nothing remains. Nothing remains either if a writer comes between the system calls of a remover.
#include <gtest/gtest.h>
#include <ringside/trace.hpp>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "instance/instance.hpp"
#include "sys/sys.hpp"

RINGSIDE_EVENT(maker, number, (u64, n));

namespace ringside::test::maker_test {
namespace {

namespace fs = std::filesystem;

constinit ringside_event late_event{"maker",
                                    "late",
                                    "\tfield:unsigned long n;\toffset:8;\tsize:8;\tsigned:0;\n",
                                    "\"%lu\", REC->n",
                                    nullptr,
                                    0,
                                    nullptr,
                                    nullptr};

struct MakerTest : testing::Test {
  std::string dir, old_root;
  void SetUp() override {
    char path[] = "/dev/shm/ringside-maker-XXXXXX";
    dir = mkdtemp(path);
    if (const char* root = getenv("RINGSIDE_ROOT")) old_root = root;
    setenv("RINGSIDE_ROOT", dir.c_str(), 1);
    must(make("first"));  // facts that are looked up once are known from here on
    must(Instance::remove("first"));
  }
  void TearDown() override {
    if (!old_root.empty()) setenv("RINGSIDE_ROOT", old_root.c_str(), 1);
    fs::remove_all(dir);
  }
  static result<std::unique_ptr<Instance>> make(const std::string& name, Rings rings = Rings::automatic) {
    InstanceOptions o;
    o.name = name;
    o.rings = rings;
    o.buffer_size = 64 << 10;
    o.subbuf_size = 4096;
    return Instance::create(o);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(dir)) all.push_back(entry.path().filename());
    return all;
  }

  // A child that makes "made", stopped before its n-th system call. 0: it has ended before.
  static pid_t maker_stopped_at(int n) {
    return stopped_at(n, [] { return make("made").has_value(); });
  }
  template <class Work>
  static pid_t stopped_at(int n, Work work) {
    const pid_t child = fork();
    if (child == 0) {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      raise(SIGSTOP);
      _exit(work() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    int signal = 0;
    for (int stops = 0; stops < 2 * n - 1;) {
      ptrace(PTRACE_SYSCALL, child, nullptr, signal);
      waitpid(child, &status, 0);
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        EXPECT_EQ(status, 0);
        return 0;
      }
      const bool of_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
      stops += of_call ? 1 : 0;
      signal = of_call ? 0 : WSTOPSIG(status);
    }
    return child;
  }
};

TEST_F(MakerTest, KilledAtEachSystemCall) {
  int calls = 0, half = 0;
  for (;; ++calls) {
    const pid_t child = maker_stopped_at(calls + 1);
    if (child == 0) break;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const std::string& left : names()) half += left != "made";
    const std::vector<std::string> listed = must(Instance::find(false));
    ASSERT_TRUE(must(Instance::find(true)).empty()) << calls;
    ASSERT_EQ(names(), listed) << "killed before call " << calls;  // its remains were swept
    if (!listed.empty()) {
      ASSERT_EQ(listed, std::vector<std::string>{"made"});
      must(Instance::open("made"));
      must(Instance::remove("made"));
    }
    must(make("made"));
    must(Instance::remove("made"));
  }
  EXPECT_GT(calls, 30);
  EXPECT_GT(half, 10);
}

TEST_F(MakerTest, AnInstanceBeingMadeIsNotSwept) {
  int calls = 1;
  for (pid_t child; (child = maker_stopped_at(calls)) != 0; ++calls) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (!names().empty() && names()[0] != "made") break;  // from here to the end its directory exists
  }
  must(Instance::find(false));
  ASSERT_TRUE(names().empty());
  // After it has its lock, it is left alone; before, it begins again.
  for (int more = 0; more < 12; ++more) {
    const pid_t child = maker_stopped_at(calls + more);
    ASSERT_NE(child, 0);
    must(Instance::find(false));
    ptrace(PTRACE_DETACH, child, nullptr, nullptr);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "swept before call " << more;
    must(Instance::open("made"));
    must(Instance::remove("made"));
    EXPECT_TRUE(names().empty());
  }
}

// A writer that makes its ring and an event when `go` is readable; returns when it has the instance open.
pid_t start_writer(const std::string& path, int go) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    close(ready[0]);
    char byte = 0;
    if (ringside_open(path.c_str()) != 0 || ::write(ready[1], &byte, 1) != 1 || ::read(go, &byte, 1) != 1) _exit(1);
    maker::number(1);
    (void)ringside_register(&late_event);
    _exit(0);
  }
  close(ready[1]);
  char byte = 0;
  const bool open = ::read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  return open ? child : -1;
}

TEST_F(MakerTest, RemovedUnderAWriter) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  int calls = 1;
  for (bool more = true; more; ++calls) {
    must(make("made", Rings::thread));
    const pid_t writer = start_writer(dir + "/made", go[0]);
    ASSERT_GT(writer, 0);
    const pid_t remover = stopped_at(calls, [] { return Instance::remove("made", true).has_value(); });
    more = remover != 0;
    int status = -1;
    ASSERT_EQ(::write(go[1], "g", 1), 1);
    waitpid(writer, &status, 0);
    EXPECT_EQ(status, 0) << "written before call " << calls;
    if (!more) break;
    ptrace(PTRACE_DETACH, remover, nullptr, nullptr);
    waitpid(remover, &status, 0);
    EXPECT_EQ(status, 0) << "written before call " << calls;
    ASSERT_EQ(names(), std::vector<std::string>{}) << "written before call " << calls;
  }
  EXPECT_TRUE(names().empty());
  EXPECT_GT(calls, 30);
  for (const int end : go) close(end);
}

// The next remover removes the remains of a killed one, and `rm` reports that the instance is gone.
TEST_F(MakerTest, RemoverKilledAtEachSystemCall) {
  for (int calls = 1;; ++calls) {
    must(make("made"));
    const pid_t remover = stopped_at(calls, [] { return Instance::remove("made").has_value(); });
    if (remover == 0) break;
    kill(remover, SIGKILL);
    waitpid(remover, nullptr, 0);
    if (!names().empty()) must(Instance::remove("made"));
    ASSERT_EQ(names(), std::vector<std::string>{}) << "killed before call " << calls;
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(MakerTest, ManyMakeAndSweep) {
  const char* const given = std::getenv("RINGSIDE_TEST_SECONDS");
  const u64 end = sys::now_ns() + (given != nullptr ? std::strtoull(given, nullptr, 10) : 10) * 300'000'000;
  std::vector<pid_t> children;
  for (int n = 0; n < 4; ++n) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const std::string name = "m" + std::to_string(n);
    while (sys::now_ns() < end) {
      if (n == 0 && !Instance::find(false)) _exit(1);
      if (n != 0 && (!make(name) || !Instance::open(name) || !Instance::remove(name))) _exit(2);
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(names().empty());
}

#if defined(__x86_64__)
// "Where the new directory could not be opened or looked at, it stayed under its hidden name."
TEST_F(MakerTest, ACallThatFailsLeavesNothing) {
  int failed = 0;
  for (int n = 1;; ++n) {
    const pid_t child = maker_stopped_at(n);
    if (child == 0) break;
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    const u64 call = registers.orig_rax;
    if (call != SYS_unlinkat && call != SYS_exit_group) {  // without these nothing is removed, and nothing ends
      registers.orig_rax = ~u64{0};
      ptrace(PTRACE_SETREGS, child, nullptr, &registers);
      ptrace(PTRACE_SYSCALL, child, nullptr, 0);
      waitpid(child, nullptr, 0);
      registers.rax = static_cast<u64>(-ENOMEM);
      ptrace(PTRACE_SETREGS, child, nullptr, &registers);
    }
    ptrace(PTRACE_CONT, child, nullptr, 0);
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << "call " << call << ", number " << n << ": status " << status;
    failed += WEXITSTATUS(status);
    const std::vector<std::string> whole{"made"};
    ASSERT_EQ(names(), WEXITSTATUS(status) == 0 ? whole : std::vector<std::string>{}) << "call " << call << ", number " << n;
    if (WEXITSTATUS(status) == 0) must(Instance::remove("made"));
  }
  EXPECT_GT(failed, 10);
}
#endif

// 0: done, and at least 5 sizes were too small; else the line that went wrong.
int find_no_space(const std::string& dir, const char* limit, const std::function<bool()>& make) {
  for (int room = 1, refused = 0; room < 1000; ++room) {
    const std::string options = std::string(limit) + "=" + std::to_string(room) + ",mode=0700";
    if (mount("ringside-test", dir.c_str(), "tmpfs", 0, options.c_str()) != 0) return __LINE__;
    const bool made = make();
    const size_t left = static_cast<size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
    umount2(dir.c_str(), MNT_DETACH);
    if (made) return refused >= 5 ? 0 : __LINE__;
    if (left != 0) return __LINE__;
    ++refused;
  }
  return __LINE__;
}

TEST_F(MakerTest, NoSpaceAtEachStep) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can mount a small file system";
  for (const char* limit : {"nr_blocks", "nr_inodes"}) {
    const pid_t child = fork();
    if (child == 0) {
      if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(200);
      _exit(find_no_space(dir, limit, [] { return make("made").has_value(); }));
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 200) GTEST_SKIP() << "no mount namespace here (in a chroot?)";
    EXPECT_EQ(status, 0) << limit << ": line " << WEXITSTATUS(status) << ", signal " << WTERMSIG(status);
  }
}

}  // namespace
}  // namespace ringside::test::maker_test
