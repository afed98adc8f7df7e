// External writers in processes of their own, and the books of what a reader gets of them.
#pragma once
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/remote/process_writer.hpp>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "remote/process.hpp"

namespace ringside::test::remote_process_test {

using namespace remote;
using remote::Process;
using namespace std::chrono_literals;

inline constexpr u64 hang_ns = 60'000'000'000;  // no writer is that slow, on whatever machine

struct Event {
  u64 common, number;
};

inline std::string fresh_path() {
  static int n = 0;
  return "/tmp/ringside-test-" + std::to_string(getpid()) + "-" + std::to_string(++n);
}

// A writer process: `count` events, as fast as it can (or one each `pause_us`), as soon as a reader has enabled; then it waits.
class WriterProcess {
 public:
  explicit WriterProcess(std::string path, u64 count = ~u64{0}, unsigned pause_us = 0) : path_(std::move(path)) {
    pid_ = fork();
    if (pid_ == 0) {
      ProcessWriter<> writer({path_, {{1, "app", "tick", "name: tick"}}});
      if (writer.error() != 0) _exit(1);
      u64 number = 0;
      while (number < count) {
        const Event e{1, number};
        auto* ring = writer.ring(0);
        if (ring != nullptr && ring->write(&e, sizeof e)) ++number;
        if (pause_us != 0 || ring == nullptr) usleep(pause_us + 10);
      }
      for (;;) pause();
    }
    for (int i = 0; i < 2000 && access(path_.c_str(), F_OK) != 0; ++i) usleep(1000);
  }
  ~WriterProcess() { kill(); }
  void send(int signal) const { ::kill(pid_, signal); }
  void stop() const {  // stops all its threads: until one of them has taken the signal, the others go on
    ::kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    unlink(path_.c_str());
  }

 private:
  std::string path_;
  pid_t pid_;
};

inline std::unique_ptr<Process> attach(const std::string& path, Layout layout = Layout::meta_page,
                                std::chrono::nanoseconds patience = 20s, u64 size = 256 << 10) {
  Process::Options options;
  options.patience = patience;
  options.buffer.layout = layout;
  options.buffer.size = size;
  for (int tries = 0;; ++tries) {
    auto p = Process::attach(path, options);
    if (p || tries == 30'000) return must(std::move(p));
    usleep(2000);  // it does not listen yet, as its machine may be busy
  }
}

// A raw connection to the writer that listens at this path.
inline sys::Fd connected(const std::string& path) {
  sys::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  return fd;
}

struct Books {
  u64 next = 0, read = 0, lost = 0;
  bool torn = false;
  std::string error;
  // Takes the present data, at most `most` sub-buffers; false: there is none.
  bool take(Source& source, u64 most = 100000) {
    bool any = false;
    for (u64 n = 0; n < most; ++n) {
      auto view = source.next();
      if (!view) {
        error = view.error().sentence;
        return any;
      }
      if (!*view) return any;
      any = true;
      lost += (*view)->lost_before;
      next += (*view)->lost_before;
      abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, 0);
      while (c.next()) {
        Event e{};
        std::memcpy(&e, c.payload().data, sizeof e);
        torn = torn || e.common != 1 || e.number != next;
        ++next;
        ++read;
      }
      torn = torn || c.malformed() != abi::Malformed::no;
    }
    return any;
  }
};

// For tests that run with each layout of a region.
inline const auto layouts = testing::Values(Layout::footers, Layout::meta_page);
inline std::string layout_name(const testing::TestParamInfo<Layout>& i) {
  return i.param == Layout::footers ? "footers" : "meta_page";
}

}  // namespace ringside::test::remote_process_test
