// Which files may be opened below a directory that another user may have made.
#include "sys/beneath.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "refused_call.hpp"

namespace ringside::sys::beneath_test {
namespace {

namespace fs = std::filesystem;

// In this process, makes openat2 unknown, as on an old kernel, or forbidden, as by an old list of system calls.
void without_openat2(u32 error) {
  if (!test::refuse_call(SYS_openat2, error) || syscall(SYS_openat2, 0, nullptr, nullptr, 0) != -1 ||
      errno != static_cast<int>(error))
    _exit(99);
}

// openat2_error 0: unchanged. Runs in a child, which keeps the filter; returns 0, or the line that went wrong.
template <class F>
int in_child(u32 openat2_error, F work) {
  const pid_t child = fork();
  if (child == 0) {
    if (openat2_error != 0) without_openat2(openat2_error);
    _exit(work());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

struct BeneathTest : testing::TestWithParam<u32> {
  std::string dir;
  Fd at;
  void SetUp() override {
    char path[] = "/tmp/ringside-beneath-XXXXXX";
    dir = mkdtemp(path);
    fs::create_directories(dir + "/in/a/b");
    fs::create_directories(dir + "/out");
    write("in/a/b/file", "inside");
    write("out/file", "outside");
    at = Fd(::open((dir + "/in").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { fs::remove_all(dir); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(dir + "/" + file) << text; }
  void link(const std::string& to, const std::string& name) const { fs::create_symlink(to, dir + "/in/" + name); }
};
#define REFUSED(path, flags) \
  if (open_beneath(at.get(), path, flags)) return __LINE__ & 0x7F

TEST_P(BeneathTest, OnlyRegularFilesInsideAreOpened) {
  link("b", "a/same");
  link("../../out", "a/out");
  link(dir + "/out/file", "file");
  link("file", "a/b/beside");
  ASSERT_EQ(mkfifo((dir + "/in/fifo").c_str(), 0600), 0);
  EXPECT_EQ(in_child(GetParam(), [&] {
    const auto text = read_beneath(at.get(), "a/b/file");
    if (!text || *text != "inside") return 1;
    if (!open_beneath(at.get(), "a/b/", O_PATH | O_DIRECTORY) || !open_beneath(at.get(), "a", O_RDONLY | O_DIRECTORY)) return 2;
    alarm(10);  // for an open that waits
    for (const int flags : {O_RDONLY, O_RDWR, O_WRONLY | O_TRUNC}) {
      REFUSED("a/same/file", flags);
      REFUSED("a/out/file", flags);
      REFUSED("file", flags);
      REFUSED("a/b/beside", flags);
      REFUSED("../out/file", flags);
      REFUSED("a/../../out/file", flags);
      REFUSED((dir + "/out/file").c_str(), flags);
      REFUSED("fifo", flags);
      REFUSED("a", flags);
      REFUSED("missing", flags);
      REFUSED("", flags);
    }
    REFUSED("a/same", O_PATH | O_DIRECTORY);
    REFUSED("..", O_PATH | O_DIRECTORY);
    REFUSED("a/b/file", O_PATH | O_DIRECTORY);
    REFUSED("file", O_RDWR | O_CREAT);
    REFUSED("../out/new", O_RDWR | O_CREAT);
    return 0;
  }), 0);
  EXPECT_FALSE(fs::exists(dir + "/out/new"));
  std::ifstream outside(dir + "/out/file");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(outside), {}), "outside");
}

TEST_P(BeneathTest, NewFilesBelongToTheOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can work in another user's directory";
  ASSERT_EQ(chown((dir + "/in").c_str(), 65533, 65532), 0);
  link(dir + "/out", "led");
  EXPECT_EQ(in_child(GetParam(), [&] {
    if (open_owned(at.get(), "a/b/file", O_RDONLY) || errno != EPERM) return 1;  // root's, in a directory of 65533
    if (!make_owned_directory(at.get(), "mine") || !make_owned_directory(at.get(), "mine")) return 2;
    if (!write_owned(at.get(), "mine/file", "text") || !write_owned(at.get(), "mine/file", "more", true)) return 3;
    const auto text = read_owned(at.get(), "mine/file");
    if (!text || *text != "textmore") return 4;
    if (!write_owned(at.get(), "mine/file", "short") || *read_owned(at.get(), "mine/file") != "short") return 5;
    if (make_owned_directory(at.get(), "led/made") || make_owned_directory(at.get(), "led") ||
        make_owned_directory(at.get(), "../out/made"))
      return 6;
    if (!copy_owned(at.get(), "mine/file", at.get(), "mine/copy") || *read_owned(at.get(), "mine/copy") != "short") return 7;
    return 0;
  }), 0);
  for (const char* name : {"mine", "mine/file", "mine/copy"}) {
    struct stat st {};
    ASSERT_EQ(lstat((dir + "/in/" + name).c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 65533u);
    EXPECT_EQ(st.st_gid, 65532u);
    EXPECT_EQ(st.st_mode & 077, 0u);
  }
  ASSERT_EQ(chmod((dir + "/in/mine/file").c_str(), 0620), 0);
  EXPECT_FALSE(open_owned(at.get(), "mine/file", O_RDONLY));
  EXPECT_FALSE(fs::exists(dir + "/out/made"));
}

TEST_P(BeneathTest, AnOutputIsOpenedAsItWasFound) {
  const std::string fifo = dir + "/in/fifo", other = dir + "/in/other", file = dir + "/out/file";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto to = Output::at(fifo);
  ASSERT_TRUE(to && to->special);
  const auto unread = to->open(false);
  ASSERT_TRUE(unread) << unread.error().sentence;
  EXPECT_FALSE(*unread) << "nobody reads it";
  {
    const Fd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const auto opened = to->open(false);
    ASSERT_TRUE(opened && *opened);
    EXPECT_EQ(fcntl(opened->get(), F_GETFL) & O_NONBLOCK, 0);
  }
  link(file, "led");
  ASSERT_EQ(mkfifo(other.c_str(), 0600), 0);
  const Fd reader(::open(other.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  for (const std::string& instead : {dir + "/in/led", file, other}) {
    ASSERT_EQ(renameat2(AT_FDCWD, instead.c_str(), AT_FDCWD, fifo.c_str(), RENAME_EXCHANGE), 0);
    EXPECT_FALSE(to->open(false)) << instead;
    ASSERT_EQ(renameat2(AT_FDCWD, instead.c_str(), AT_FDCWD, fifo.c_str(), RENAME_EXCHANGE), 0);
  }
  std::ifstream outside(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(outside), {}), "outside");
}

TEST_P(BeneathTest, RemovesOnlyFilesInside) {
  link("../out", "out");
  link(dir + "/out", "a/out");
  const Fd outer(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(
      in_child(GetParam(), [&] { return remove_beneath(outer.get(), "in") && remove_beneath(outer.get(), "missing") ? 0 : 1; }),
      0);
  EXPECT_FALSE(fs::exists(dir + "/in"));
  EXPECT_TRUE(fs::exists(dir + "/out/file"));
}

TEST_P(BeneathTest, ATooDeepDirectoryIsNotRemoved) {
  std::string deep = dir + "/in";
  for (int n = 0; n < 40; ++n) deep += "/d";
  fs::create_directories(deep);
  const Fd outer(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(in_child(GetParam(), [&] { return remove_beneath(outer.get(), "in") || errno != ELOOP ? 1 : 0; }), 0);
}

TEST_P(BeneathTest, SymlinksOfOtherUsersAreNotFollowed) {
  fs::create_symlink(dir + "/in", dir + "/way");
  fs::create_symlink("way/a", dir + "/way2");
  fs::create_symlink("loop", dir + "/loop");
  EXPECT_EQ(in_child(GetParam(), [&] {
    for (const std::string& path : {dir + "/in/a", dir + "/way/a", dir + "/way2", dir + "//way/./a/../a/"})
      if (!open_trusted(path, Role::root)) return 1;
    if (open_trusted(dir + "/loop/x", Role::other) || open_trusted(dir + "/in/a/b/file", Role::other) ||
        open_trusted("", Role::other))
      return 2;
    return 0;
  }), 0);
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's symlink";
  ASSERT_EQ(lchown((dir + "/way").c_str(), 65533, 65533), 0);
  EXPECT_EQ(in_child(GetParam(), [&] {
    const auto led = open_trusted(dir + "/way2", Role::other);
    return led || led.error().sentence.find("made by another user") == std::string::npos ? 1 : 0;
  }), 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, BeneathTest, testing::Values(0u, u32{ENOSYS}, u32{EPERM}), [](const auto& test) {
  return test.param == 0 ? "AsItIs" : test.param == ENOSYS ? "Old" : "Filtered";
});

}  // namespace
}  // namespace ringside::sys::beneath_test
