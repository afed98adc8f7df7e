// Recordings in which a stranger has written names of files: to read one acts on none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"

namespace ringside::strangers_test {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using testing::HasSubstr;

struct Strangers : test::BinaryTest {
  // A recording `rec` whose program has this path.
  void record_as(const std::string& path) {
    const size_t room = path.size() - dir.size() - 1;
    ASSERT_GT(path.size(), dir.size() + 2);
    const std::string program = dir + "/" + std::string(room, 'p');
    fs::copy_file("/bin/ls", program);
    const Outcome o = ringside("record --libc malloc --stack -o rec " + program);
    ASSERT_EQ(o.code, 0) << o.err;
    u32 changed = 0;
    for (const auto& entry : fs::directory_iterator(dir + "/rec")) {
      std::string bytes = test::slurp(entry.path());
      if (entry.path().extension() != ".raw") continue;
      for (size_t at = 0; (at = bytes.find(program, at)) != std::string::npos; ++changed)
        bytes.replace(at, room + dir.size() + 1, path);
      std::ofstream(entry.path(), std::ios::binary) << bytes;
    }
    ASSERT_NE(changed, 0u);
  }
  // The commands that name addresses.
  std::string all_readers() const {
    std::string said;
    for (const char* command : {"report -e libc:malloc rec", "flame -e libc:malloc -o page.html rec",
                                "export -e libc:malloc -o events.json rec", "plot -o plot.html rec"}) {
      const Outcome o = ringside(command);
      EXPECT_NE(o.code, 2) << command << ": " << o.err;
      said += o.out + o.err;
    }
    return said;
  }
};

TEST_F(Strangers, AKernelsRingKeepsItsSize) {
  const auto tracefs = tracefs_dir();
  if (!tracefs) GTEST_SKIP() << tracefs.error().sentence;
  const std::string instance = *tracefs + "/instances/ringside-strangers-" + std::to_string(getpid());
  if (mkdir(instance.c_str(), 0700) != 0) GTEST_SKIP() << instance << ": " << strerrorname_np(errno);
  std::ofstream(instance + "/buffer_size_kb") << "256";
  const std::string before = test::slurp(instance + "/buffer_size_kb");
  EXPECT_GE(std::stoi(before), 256);
  record_as(instance + "/free_buffer");
  EXPECT_THAT(all_readers(), HasSubstr(instance + "/free_buffer is not opened: its file system"));
  EXPECT_EQ(test::slurp(instance + "/buffer_size_kb"), before);
  EXPECT_EQ(rmdir(instance.c_str()), 0);
}

TEST_F(Strangers, AFifoIsNotWaitedFor) {
  const std::string fifo = dir + "/a-fifo-of-a-stranger";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  record_as(fifo);
  EXPECT_THAT(all_readers(), HasSubstr(fifo + " is no regular file"));
}

// babeltrace2 would open what a link in a CTF trace leads to.
TEST_F(Strangers, ACtfTraceHasFilesAlone) {
  const auto read = [&] { return ringside("report ctf").err; };
  fs::create_directory(dir + "/ctf");
  std::ofstream(dir + "/ctf/metadata") << "/* CTF 1.8 */\n";
  fs::create_symlink("/proc/self/fd/0", dir + "/ctf/stream");
  EXPECT_THAT(read(), HasSubstr("will not read the CTF trace " + dir + "/ctf: " + dir + "/ctf/stream is not opened"));
  fs::remove(dir + "/ctf/stream");
  ASSERT_EQ(mkfifo((dir + "/ctf/stream").c_str(), 0600), 0);
  EXPECT_THAT(read(), HasSubstr(dir + "/ctf/stream is no regular file"));
  fs::remove(dir + "/ctf/metadata");
  fs::create_symlink("/proc/self/maps", dir + "/ctf/metadata");
  EXPECT_THAT(read(), HasSubstr("is neither a recording"));
}

// A file that the command line names may be a symlink that a stranger has put there.
TEST_F(Strangers, AFileIsJudgedBeforeItIsOpened) {
  std::ofstream(dir + "/empty.dat").flush();
  std::ofstream(dir + "/full.dat") << "text";
  fs::create_symlink("/proc/" + std::to_string(getpid()) + "/limits", dir + "/limits.dat");
  for (const char* name : {"full", "empty", "limits"}) {
    const std::string file = dir + "/" + name + ".dat";
    const sys::Fd opened(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    ASSERT_GE(inotify_add_watch(opened.get(), file.c_str(), IN_OPEN), 0);
    for (const char* command : {"report ", "stat ", "record --libc malloc -o none -- "}) {
      if (name == std::string("full") && command == std::string("stat ")) continue;
      EXPECT_NE(ringside(command + file).code, 0) << name;
    }
    char events[4096];
    EXPECT_EQ(::read(opened.get(), events, sizeof events) > 0, name == std::string("full")) << name << " was opened";
  }
}

}  // namespace
}  // namespace ringside::strangers_test
