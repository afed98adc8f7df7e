// The kernel determines which members are alive, independently of PIDs, times and descriptors. "Two containers share an
// instance and have the same PID", "a mere stat retires live rings", "the reader lock is taken from a live reader".
#include "writer/members.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/trace.hpp>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "instance/instance.hpp"
#include "own_root.hpp"

RINGSIDE_EVENT(members, number, (u64, n));

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

namespace ringside::members_test {
namespace {

// A process of the test that reports when it is ready, and lives until it is told to end.
class Other {
 public:
  // flags: the namespaces that it gets, and its own /proc with a PID namespace. body runs there, as its PID 1.
  Other(int flags, std::function<void()> body) {
    EXPECT_EQ(pipe2(ready_, O_CLOEXEC), 0);
    outer_ = fork();
    if (outer_ == 0) {
      signal(SIGTERM, SIG_DFL);
      if (flags != 0) {
        if (unshare(flags) != 0) leave('s');
        if ((flags & CLONE_NEWTIME) != 0) std::ofstream("/proc/self/timens_offsets") << "boottime 100000 0\n";
      }
      const pid_t inner = fork();  // a new PID or time namespace begins with the children
      if (inner != 0) {
        say_pid(inner);
        waitpid(inner, nullptr, 0);
        _exit(0);
      }
      if ((flags & CLONE_NEWPID) != 0 && ::mount("proc", "/proc", "proc", 0, nullptr) != 0) leave('s');
      body();
      leave('r', true);
    }
    close(ready_[1]);
    char word[1 + sizeof(pid_t)];
    for (size_t got = 0; got < 2 * sizeof word && !(said_ != 0 && inner_ != 0);) {
      if (::read(ready_[0], word, sizeof word) != sizeof word) break;
      got += sizeof word;
      if (word[0] == 'p')
        std::memcpy(&inner_, word + 1, sizeof inner_);
      else
        said_ = word[0];
      if (said_ == 's') break;
    }
  }
  ~Other() {
    end();
    close(ready_[0]);
  }
  bool ready() const { return said_ == 'r'; }
  bool refused() const { return said_ == 's'; }
  void end() {
    if (outer_ <= 0) return;
    if (inner_ > 0) kill(inner_, SIGKILL);
    waitpid(outer_, nullptr, 0);
    outer_ = 0;
  }

 private:
  void put(char what, pid_t pid) const {
    char word[1 + sizeof pid] = {what};
    std::memcpy(word + 1, &pid, sizeof pid);
    (void)!::write(ready_[1], word, sizeof word);
  }
  void say_pid(pid_t inner) const { put('p', inner); }
  [[noreturn]] void leave(char what, bool stay = false) const {
    put(what, 0);
    while (stay) pause();
    _exit(1);
  }
  int ready_[2] = {-1, -1};
  pid_t outer_ = -1, inner_ = 0;
  char said_ = 0;
};

class MembersTest : public testing::TestWithParam<Rings> {
 protected:
  void SetUp() override {
    InstanceOptions o;
    o.name = "a";
    o.rings = GetParam();
    o.buffer_size = 64 << 10;
    instance_ = must(Instance::create(o));
  }
  void TearDown() override {
    ringside_close();
    instance_ = nullptr;
  }
  static void write(u64 first, u64 count) {
    if (ringside_open("a") != 0) _exit(1);
    for (u64 i = 0; i < count; ++i) members::number(first + i);
  }
  u64 events() {
    u64 all = 0;
    for (const RingInfo& r : instance_->rings()) all += r.counters.written;
    return all;
  }
  test::OwnRoot root_;
  std::unique_ptr<Instance> instance_;
};

#define SKIP_WITHOUT_NAMESPACES(other) \
  if ((other).refused()) GTEST_SKIP() << "no namespaces here (not root?)"; \
  ASSERT_TRUE((other).ready())

constexpr int own_pids = CLONE_NEWPID | CLONE_NEWNS;

TEST_P(MembersTest, TwoContainersWithTheSamePid) {
  Other one(own_pids, [] { write(0, 10); });
  SKIP_WITHOUT_NAMESPACES(one);
  {
    // Another container with the same numbers writes, reads and looks.
    Other two(own_pids, [] {
      write(100, 10);
      auto own = must(Instance::open("a"));
      for (const RingInfo& r : own->rings())
        if (!r.live) _exit(1);
    });
    SKIP_WITHOUT_NAMESPACES(two);
    EXPECT_EQ(instance_->writers(), Presence::some);
    for (const RingInfo& r : instance_->rings()) EXPECT_TRUE(r.live) << r.name.ring;
    if (GetParam() == Rings::thread) {
      EXPECT_EQ(instance_->rings().size(), 2u);
    }
  }
  EXPECT_EQ(instance_->writers(), Presence::some);
  one.end();
  EXPECT_EQ(instance_->writers(), Presence::none);
  EXPECT_EQ(events(), 20u);
}

TEST_P(MembersTest, ALookFromAnotherTimeNamespaceRetiresNothing) {
  write(0, 10);
  Other other(CLONE_NEWTIME, [] {
    auto own = must(Instance::open("a"));
    if (own->writers() != Presence::some) _exit(1);
    for (const RingInfo& r : own->rings())
      if (!r.live) _exit(1);
  });
  SKIP_WITHOUT_NAMESPACES(other);
  for (const RingInfo& r : instance_->rings()) EXPECT_TRUE(r.live);
}

TEST_P(MembersTest, TheReadersLockHoldsInEveryNamespace) {
  write(0, 10);
  for (const int flags : {own_pids, CLONE_NEWTIME, own_pids | CLONE_NEWTIME}) {
    Other reader(flags, [] {
      auto own = must(Instance::open("a"));
      static std::vector<std::unique_ptr<Source>> sources;
      for (const RingInfo& r : own->rings()) sources.push_back(must(own->source(r.name.ring)));
      (void)own.release();
    });
    SKIP_WITHOUT_NAMESPACES(reader);
    const auto rings = instance_->rings();
    ASSERT_FALSE(rings.empty());
    for (const RingInfo& r : rings) EXPECT_FALSE(instance_->source(r.name.ring).has_value());
    Other second(own_pids, [] {
      auto own = must(Instance::open("a"));
      if (own->source(0).has_value()) _exit(1);
    });
    SKIP_WITHOUT_NAMESPACES(second);
    reader.end();
    for (const RingInfo& r : rings) EXPECT_TRUE(instance_->source(r.name.ring).has_value()) << "a dead reader is replaced";
  }
}

TEST_P(MembersTest, ClosedDescriptorsChangeNothing) {
  Other writer(0, [] {
    write(0, 10);
    for (int fd = 3; fd < 1024; ++fd)
      if (fcntl(fd, F_GETFD) >= 0 &&
          std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string().rfind("pipe", 0) != 0)
        close(fd);
  });
  ASSERT_TRUE(writer.ready());
  EXPECT_EQ(instance_->writers(), Presence::some);
  writer.end();
  EXPECT_EQ(instance_->writers(), Presence::none);
}

TEST_P(MembersTest, AChildIsNoWriterBecauseItsParentWas) {
  // The parent dies, the child goes on living: by fork and by a raw clone.
  for (const bool raw : {false, true}) {
    int child_of[2];
    ASSERT_EQ(pipe(child_of), 0);
    pid_t child = 0;
    {
      Other parent(0, [&] {
        write(0, 10);
        const auto pid = raw ? static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) : fork();
        if (pid == 0)
          for (;;) pause();
        (void)!::write(child_of[1], &pid, sizeof pid);
      });
      ASSERT_TRUE(parent.ready());
      ASSERT_EQ(::read(child_of[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
      EXPECT_EQ(instance_->writers(), Presence::some);
    }
    EXPECT_EQ(instance_->writers(), Presence::none) << "the child has written nothing";
    EXPECT_EQ(instance_->users(), Presence::some) << "and may do so at any moment";
    kill(child, SIGKILL);
    close(child_of[0]);
    close(child_of[1]);
  }
}

TEST_P(MembersTest, ExecEndsAWriter) {
  const pid_t child = fork();
  if (child == 0) {
    write(0, 10);
    execl("/bin/sleep", "sleep", "1000", static_cast<char*>(nullptr));
    _exit(1);
  }
  std::string name;
  while (name != "sleep") std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
  // It has its name before its first instruction, and the old program is gone by then.
  while (instance_->writers() != Presence::none) sched_yield();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(events(), 10u);
}

TEST_P(MembersTest, SlotsAreReusedAndTheirFormerOwnersStayDead) {
  auto members = must(Members::open(sys::Fd(::open((root_.path() + "/a").c_str(), O_PATH | O_DIRECTORY)).get()));
  std::vector<Member> seen;
  for (int i = 0; i < 20; ++i) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto own = must(Members::open(sys::Fd(::open((root_.path() + "/a").c_str(), O_PATH | O_DIRECTORY)).get()));
      const Member mine = own->join(role::reader);
      (void)!::write(told[1], &mine, sizeof mine);
      _exit(0);  // without leaving
    }
    Member member = nobody;
    ASSERT_EQ(::read(told[0], &member, sizeof member), static_cast<ssize_t>(sizeof member));
    waitpid(child, nullptr, 0);
    close(told[0]);
    close(told[1]);
    ASSERT_NE(member, nobody);
    seen.push_back(member);
    EXPECT_EQ(slot_of(member), slot_of(seen[0])) << "the first one that is free";
    for (const Member one : seen) EXPECT_TRUE(members->judge().dead(one));
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, MembersTest, testing::Values(Rings::automatic, Rings::thread),
                         [](const auto& param) { return param.param == Rings::thread ? "Thread" : "Cpu"; });

}  // namespace
}  // namespace ringside::members_test
