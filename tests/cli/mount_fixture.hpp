// A mount of the real binary, and helper functions for its tests.
#pragma once
#include <fcntl.h>
#include <sched.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/meta_page.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "binary.hpp"
#include "clock/clock.hpp"
#include "sys/sys.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside::test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

inline bool eventually(const std::function<bool()>& holds, std::chrono::milliseconds patience = 20s) {
  for (const auto end = std::chrono::steady_clock::now() + patience; !holds(); std::this_thread::sleep_for(5ms))
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

// Do instances that the mount makes have rings of CPUs? They have one sub-buffer more than the kernel's: a spare one.
inline bool cpu_rings() { return why_not_cpu_rings() == RingsBecause::can; }

// The outcome of a system call in a word: its result, or its errno.
inline std::string ended(ssize_t result) { return result >= 0 ? std::to_string(result) : strerrorname_np(errno); }

inline std::string write_to(const std::string& file, const std::string& text, int flags = O_WRONLY) {
  const sys::Fd fd(::open(file.c_str(), flags | O_CLOEXEC));
  return fd ? ended(write(fd.get(), text.data(), text.size())) : "open: " + ended(-1);
}
inline std::string text_of(const std::string& file) {
  const sys::Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "open: " + ended(-1);
  std::string all;
  char some[8192];
  for (ssize_t n; (n = read(fd.get(), some, sizeof some)) != 0;) {
    if (n < 0) return ended(n);
    all.append(some, static_cast<size_t>(n));
  }
  return all;
}
inline size_t lines_with(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

inline int end_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Stats {
  u64 entries = 0, overrun = 0, dropped = 0, read = 0;
};
inline Stats stats(const std::string& cpu) {
  Stats s;
  std::istringstream text(text_of(cpu + "/stats"));
  for (std::string line; std::getline(text, line);) {
    const size_t colon = line.find(": ");
    const u64 value = std::strtoull(line.c_str() + colon + 2, nullptr, 10);
    if (line.rfind("entries", 0) == 0) s.entries = value;
    if (line.rfind("overrun", 0) == 0) s.overrun = value;
    if (line.rfind("dropped", 0) == 0) s.dropped = value;
    if (line.rfind("read", 0) == 0) s.read = value;
  }
  return s;
}

// A client of the mapping, like one of the kernel's: meta-page, sub-buffers, GET_READER.
struct Mapping {
  sys::Fd fd;
  const u8* base = nullptr;
  size_t size = 0;
  u32 id = 0, seen = 0;
  u64 events = 0, lost = 0, last = 0;
  bool ordered = true;

  explicit Mapping(const std::string& file, int flags = O_NONBLOCK) : fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | flags)) {
    if (!fd) return;
    void* const page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (page == MAP_FAILED) return;
    const auto* const meta = static_cast<const abi::MetaPage*>(page);
    size = u64{meta->subbuf_size} * (meta->nr_subbufs + 1);
    void* const all = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    munmap(page, 4096);
    if (all == MAP_FAILED) return;
    base = static_cast<const u8*>(all);
    id = this->meta().reader.id;
    seen = this->meta().reader.read;
  }
  ~Mapping() {
    if (base != nullptr) munmap(const_cast<u8*>(base), size);
  }
  const abi::MetaPage& meta() const { return *reinterpret_cast<const abi::MetaPage*>(base); }
  // One GET_READER; false: it failed. Counts the events that it found.
  bool step() {
    if (ioctl(fd.get(), abi::get_reader_ioctl) != 0) return false;
    const u32 now = meta().reader.id, end = meta().reader.read;
    const u8* const sub_buffer = base + (u64{now} + 1) * meta().subbuf_size;
    const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(sub_buffer);
    if (now != id) {
      id = now;
      seen = 0;
      if (abi::commit_missed(header.commit)) {
        u64 missed = 1;
        if (abi::commit_stored(header.commit)) std::memcpy(&missed, sub_buffer + 16 + abi::commit_size(header.commit), 8);
        lost += missed;
      }
    }
    if (end <= seen) return true;
    abi::EventCursor c(sub_buffer + 16, seen, end, 0);
    while (c.next()) {
      u64 number;
      std::memcpy(&number, c.payload().data + 8, sizeof number);
      ordered = ordered && (events == 0 || number > last);
      last = number;
      ++events;
    }
    seen = end;
    return true;
  }
};

// This thread and the processes that it starts run on one CPU meanwhile, so that their events are in one ring.
struct OnCpu {
  explicit OnCpu(int cpu) {
    sched_getaffinity(0, sizeof before, &before);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnCpu() { sched_setaffinity(0, sizeof before, &before); }
  cpu_set_t before;
};

struct Mount : test::BinaryTest {
  std::string at = dir + "/m";
  std::string top = at, web = at + "/instances/web";
  pid_t server = -1;

  void SetUp() override {
    if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "/dev/fuse: " << strerrorname_np(errno);
    if (geteuid() != 0) GTEST_SKIP() << "FUSE passthrough wants root";
    BinaryTest::SetUp();
    setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
    fs::create_directories(at);
  }
  void TearDown() override {
    if (server > 0) {
      kill(server, SIGTERM);
      if (!eventually([&] { return waitpid(server, nullptr, WNOHANG) == server; }, 5s)) {
        kill(server, SIGKILL);
        waitpid(server, nullptr, 0);
      }
    }
    for (int i = 0; i < 4 && umount2(at.c_str(), MNT_DETACH) == 0; ++i) {
    }
    unsetenv("RINGSIDE_ROOT");
    BinaryTest::TearDown();
  }
  void start(std::vector<std::string> arguments = {}) {
    server = fork();
    if (server == 0) {
      std::vector<std::string> words{RINGSIDE_BUILD_DIR "/ringside", "mount", at};
      words.insert(words.end(), arguments.begin(), arguments.end());
      std::vector<char*> argv;
      for (std::string& w : words) argv.push_back(w.data());
      argv.push_back(nullptr);
      const int log = ::open((dir + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(log, 2);
      signal(SIGINT, SIG_DFL);
      execv(argv[0], argv.data());
      _exit(127);
    }
      ASSERT_TRUE(eventually([&] { return mounted() || waitpid(server, nullptr, WNOHANG) != 0; })) << test::slurp(dir + "/log");
    ASSERT_TRUE(mounted()) << test::slurp(dir + "/log");
  }
  // An instance made by mkdir, with all events on.
  void make_web() {
    ASSERT_EQ(mkdir(web.c_str(), 0700), 0) << strerrorname_np(errno);
    ASSERT_EQ(write_to(web + "/events/enable", "1"), "1");
  }
  bool mounted() const {
    struct statvfs st {};  // asked of the server; a file's status may be cached
    return statvfs(at.c_str(), &st) == 0 && fs::exists(at + "/tracing_on");
  }
};

}  // namespace ringside::test
