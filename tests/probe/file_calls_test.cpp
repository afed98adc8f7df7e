// The files of a living process, from the notes of its calls: /proc is the judge.
#include "probe/file_calls.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>

#include "decode/descriptors.hpp"

namespace ringside::file_calls_test {
namespace {

std::string link_of(pid_t pid, int descriptor) {
  char text[4096];
  const ssize_t size =
      readlink(("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor)).c_str(), text, sizeof text);
  return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
}

// Connected to an abstract address; what lies after it in memory is no part of it.
int connected(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memset(address.sun_path, 'x', sizeof address.sun_path);
  address.sun_path[0] = '\0';
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  const int served = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
  return bind(served, at, size) == 0 && listen(served, 1) == 0 && connect(client, at, size) == 0 ? client : -1;
}

[[noreturn]] void work(int inherited) {
  (void)dup2(open("/dev/null", O_RDONLY), 0);
  raise(SIGSTOP);  // until its calls are noted
  (void)dup2(connected("ringside-" + std::to_string(getpid())), 106);
  const int a = open("/etc/passwd", O_RDONLY), b = open("/etc/group", O_RDONLY);
  (void)dup2(a, 100);
  (void)dup2(inherited, 101);
  (void)dup2(b, 102);
  (void)fcntl(b, F_DUPFD, 103);
  if (chdir("/usr") == 0) (void)dup2(open("lib", O_RDONLY | O_DIRECTORY), 104);
  (void)dup2(a, 105);
  close(105);
  const int read_only = open("/etc/hostname", O_RDONLY);
  (void)dup2(read_only, 102);
  if (fork() == 0) {
    close(100);
    (void)open("/etc/nothing-here", O_RDONLY);
    _exit(0);
  }
  raise(SIGSTOP);
  _exit(0);
}

TEST(FileCalls, AreWhatProcSays) {
  auto opened = FileCalls::open({}, calibrate(ClockKind::mono));
  if (!opened) {
    ASSERT_EQ(opened.error().sentence.find("refuses the BPF program"), std::string::npos) << opened.error().sentence;
    GTEST_SKIP() << opened.error().sentence;
  }
  FileCalls& calls = **opened;
  auto sources = calls.take_sources();
  ASSERT_EQ(sources.size(), 1u);
  const int inherited = open("/etc/hosts", O_RDONLY);
  ASSERT_GE(inherited, 0);
  const pid_t child = fork();
  if (child == 0) work(inherited);
  close(inherited);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  const auto followed = calls.follow(child);
  ASSERT_TRUE(followed) << followed.error().sentence;
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  calls.off();

  Formats formats;
  const EventInfo note = FileCalls::event();
  formats.add(note.number(), note.system, note.name, note.format, World::own());
  formats.add(kernel_ids + 1, "raw_syscalls", "sys_enter",
              "name: sys_enter\nID: 1\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:long "
              "id;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:unsigned long "
              "args[6];\toffset:16;\tsize:48;\tsigned:0;\n\nprint fmt: \"\"\n",
              World::own());
  Descriptors files;
  u64 time = 0, notes = 0;
  for (auto view = sources[0]->next(); view && *view; view = sources[0]->next()) {
    EXPECT_EQ((*view)->lost_before, 0u);
    abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
    for (; c.next(); ++notes) {
      EXPECT_GE(c.time(), time);
      time = c.time();
      files.see(*formats.find(note.number()), c.payload(), c.time());
    }
  }
  EXPECT_EQ(sources[0]->counters().read, notes);
  const auto file = [&](int descriptor) {
    const u64 words[8] = {1 | static_cast<u64>(child) << 32,
                          static_cast<u64>(*syscall_number("read", World::own().architecture)), static_cast<u64>(descriptor)};
    return std::string(
        files.file(files.see(*formats.find(kernel_ids + 1), {reinterpret_cast<const u8*>(words), sizeof words}, ++time)));
  };
  for (const int descriptor : {0, 100, 101, 102, 103}) EXPECT_EQ(file(descriptor), link_of(child, descriptor)) << descriptor;
  EXPECT_EQ(file(102), "/etc/hostname");
  EXPECT_EQ(file(101), "/etc/hosts");
  EXPECT_EQ(file(104), "/usr/lib");
  EXPECT_EQ(file(105), "");
  EXPECT_EQ(file(106), "UNIX:[->@ringside-" + std::to_string(child) + "]");
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
}

}  // namespace
}  // namespace ringside::file_calls_test
