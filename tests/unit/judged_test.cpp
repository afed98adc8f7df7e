// Names of files that come from a trace: what is opened, and what is not even asked.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernel/tracefs_instance.hpp"
#include "record/sample_walk.hpp"
#include "stacks/elf_names.hpp"
#include "stacks/judged.hpp"
#include "stacks/usdt_notes.hpp"

namespace ringside::judged_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Judged : testing::Test {
  const std::string dir = fs::temp_directory_path() / ("ringside-judged-" + std::to_string(getpid()));
  const std::string file = dir + "/file";
  void SetUp() override {
    fs::remove_all(dir);
    fs::create_directory(dir);
    std::ofstream(file) << "text";
  }
  void TearDown() override { fs::remove_all(dir); }
  // "text", or the error's sentence.
  static std::string text_of(const std::string& path, const JudgedPath& how = {}) {
    const auto fd = open_judged(path, how);
    return fd ? sys::read_text(fd->get(), path).value_or("cannot be read") : fd.error().sentence;
  }
};

TEST_F(Judged, ARegularFileIsRead) {
  EXPECT_EQ(text_of(file), "text");
  EXPECT_EQ(text_of(dir + "/./../" + fs::path(dir).filename().string() + "//file"), "text");
  EXPECT_EQ(text_of(file, {.pid = getpid()}), "text");
  EXPECT_EQ(open_judged(dir + "/none").error().code, std::errc::no_such_file_or_directory);
  EXPECT_THAT(text_of(file + "/none"), HasSubstr("Not a directory"));
  EXPECT_THAT(text_of("file"), HasSubstr("no absolute path"));
  EXPECT_THAT(text_of(dir + "/../file", {.pid = getpid()}), HasSubstr("may lead out"));
}

TEST_F(Judged, WhatIsNoRegularFileIsNotOpened) {
  const std::string fifo = dir + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, dir, std::string("/dev/null"), std::string("/dev/ptmx"), std::string("/")})
    EXPECT_EQ(text_of(path), path + " is no regular file");
}

// Their files act, or are made when they are opened.
TEST_F(Judged, OnlyOnOrdinaryFileSystems) {
  for (const std::string path : {"/proc/self/maps", "/proc/self/exe", "/proc/version", "/sys/kernel/uevent_seqnum"}) {
    if (access(path.c_str(), F_OK) != 0) continue;
    EXPECT_THAT(text_of(path), HasSubstr(path + " is not opened: its file system, ")) << path;
  }
  const sys::Fd open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(text_of("/proc/self/fd/" + std::to_string(open.get())), HasSubstr("its file system, proc, is none"));
  EXPECT_THAT(text_of("/proc/self/root" + file), HasSubstr("its file system, proc, is none"));
}

TEST_F(Judged, SymlinksOfRootAndOfThisUserAreFollowed) {
  fs::create_symlink(file, dir + "/whole");
  fs::create_symlink("./../" + fs::path(dir).filename().string() + "/whole", dir + "/relative");
  fs::create_symlink("relative/", dir + "/folder");
  fs::create_symlink("circle", dir + "/circle");
  fs::create_symlink("/proc/self/fd/0", dir + "/standard");
  EXPECT_EQ(text_of(dir + "/relative"), "text");
  EXPECT_THAT(text_of(dir + "/relative", {.pid = getpid()}), HasSubstr("the symlink relative on the way"));
  EXPECT_THAT(text_of(dir + "/circle"), HasSubstr("symbolic link"));
  EXPECT_THAT(text_of(dir + "/standard"), HasSubstr("its file system, proc, is none"));
  if (geteuid() != 0) GTEST_SKIP() << "only root makes another user's symlink";
  ASSERT_EQ(lchown((dir + "/whole").c_str(), 12345, 12345), 0);
  EXPECT_THAT(text_of(dir + "/relative"), HasSubstr("the symlink whole on the way was made by another user"));
}

TEST_F(Judged, ALastingNameIsOneThatNoOtherUserCanReplace) {
  const auto lasts = [](const std::string& path) {
    const auto fd = open_judged(path, {.lasting = true});
    return fd ? "yes" : fd.error().code == std::errc::no_such_file_or_directory ? "none" : "no";
  };
  EXPECT_STREQ(lasts(file), "yes");
  EXPECT_STREQ(lasts(dir + "/none"), "none");
  ASSERT_EQ(chmod(dir.c_str(), 01777), 0);
  EXPECT_STREQ(lasts(file), "yes");
  EXPECT_STREQ(lasts(dir + "/none"), "no") << "another user may put a file there";
  ASSERT_EQ(chmod(dir.c_str(), 0777), 0);
  EXPECT_STREQ(lasts(file), "no");
  EXPECT_EQ(text_of(file), "text") << "read through a descriptor, it may be replaced";
}

// Closing this file of tracefs shrinks the ring to its least size.
TEST_F(Judged, AKernelsRingKeepsItsSize) {
  const auto tracefs = tracefs_dir();
  if (!tracefs) GTEST_SKIP() << tracefs.error().sentence;
  const std::string instance = *tracefs + "/instances/ringside-judged-" + std::to_string(getpid());
  if (mkdir(instance.c_str(), 0700) != 0) GTEST_SKIP() << instance << ": " << strerrorname_np(errno);
  const auto size = [&] { return sys::read_file(instance + "/buffer_size_kb").value_or("unreadable"); };
  std::ofstream(instance + "/buffer_size_kb") << "256";
  const std::string before = size(), path = instance + "/free_buffer";
  EXPECT_GE(std::stoi(before), 256);
  EXPECT_THAT(text_of(path), HasSubstr("its file system, sysfs, is none"));
  const std::string bound = dir + "/bound";  // with ordinary directories on the way
  fs::create_directory(bound);
  if (mount(instance.c_str(), bound.c_str(), nullptr, MS_BIND, nullptr) == 0) {
    EXPECT_THAT(text_of(bound + "/free_buffer"), HasSubstr("its file system, tracefs, is none"));
    EXPECT_THAT(text_of(bound + "/free_buffer", {.pid = getpid()}), HasSubstr("its file system, tracefs, is none"));
    EXPECT_EQ(umount2(bound.c_str(), MNT_DETACH), 0);
  }
  EXPECT_FALSE(ElfNames::open(path, ""));
  EXPECT_FALSE(usdt_notes(path));
  SampleWalk walk;
  walk.map(getpid(), {0x1000, 0x2000, 0}, path, "");
  EXPECT_EQ(size(), before);
  EXPECT_EQ(rmdir(instance.c_str()), 0);
}

// A FUSE file system that nobody serves answers nothing, ever. The alarm is for a failure.
TEST_F(Judged, NothingIsAskedOfAnotherUsersFuse) {
  const sys::Fd fuse(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!fuse) GTEST_SKIP() << "/dev/fuse: " << strerrorname_np(errno);
  const std::string at = dir + "/fuse";
  fs::create_directory(at);
  const std::string options = "fd=" + std::to_string(fuse.get()) + ",rootmode=40000,user_id=12345,group_id=0,allow_other";
  if (mount("nobody", at.c_str(), "fuse", MS_NODEV | MS_NOSUID, options.c_str()) != 0)
    GTEST_SKIP() << "no FUSE mount: " << strerrorname_np(errno);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const bool refused = text_of(at + "/file").find("user 12345 answers for its file system") != std::string::npos &&
                         text_of(at).find("user 12345 answers for its file system") != std::string::npos &&
                         text_of(at + "/file", {.pid = getppid()}).find("user 12345 answers") != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(umount2(at.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace ringside::judged_test
