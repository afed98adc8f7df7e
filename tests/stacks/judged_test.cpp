// Names of files that come from a trace: what is opened, and what is not even asked.
#include "stacks/judged.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "kernel/tracefs_instance.hpp"
#include "stacks/elf_names.hpp"
#include "stacks/sample_walk.hpp"
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

// What is held by O_PATH stays when its name goes, and is judged as a path is.
TEST_F(Judged, AFileThatIsHeld) {
  const auto text = [&](const char* path) {
    const auto fd = open_held(sys::Fd(open(path, O_PATH | O_CLOEXEC)), "it", {.pid = getpid()});
    return fd ? sys::read_text(fd->get(), "it").value_or("cannot be read") : fd.error().sentence;
  };
  EXPECT_EQ(text(file.c_str()), "text");
  EXPECT_EQ(text("/dev/null"), "it is no regular file");
  EXPECT_THAT(text("/proc/version"), HasSubstr("it is not opened: its file system, "));
  const sys::Fd memory(memfd_create("m", MFD_CLOEXEC));  // in no list of mounts
  ASSERT_EQ(write(memory.get(), "text", 4), 4);
  EXPECT_EQ(text(("/proc/self/fd/" + std::to_string(memory.get())).c_str()), "text");

  const sys::Fd mapped(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  void* const code = mmap(nullptr, 4, PROT_READ | PROT_EXEC, MAP_PRIVATE, mapped.get(), 0);
  ASSERT_NE(code, MAP_FAILED);
  for (const bool removed : {false, true}) {
    if (removed) fs::remove(file);
    if (geteuid() != 0) continue;  // only with CAP_CHECKPOINT_RESTORE
    const auto fd = open_held(hold_mapped(getpid(), file), file, {.pid = getpid()});
    EXPECT_TRUE(fd && sys::read_text(fd->get(), file).value_or("") == "text") << removed;
  }
  munmap(code, 4);
  EXPECT_FALSE(hold_mapped(getpid(), file));
  EXPECT_TRUE(hold_mapped(getpid(), fs::read_symlink("/proc/self/exe")));
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
  if (::mount(instance.c_str(), bound.c_str(), nullptr, MS_BIND, nullptr) == 0) {
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
  if (::mount("nobody", at.c_str(), "fuse", MS_NODEV | MS_NOSUID, options.c_str()) != 0)
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

// A process in mount and user namespaces of its own, as any user makes them: `inside` runs there, then it waits for the end.
struct OtherSpaces {
  pid_t pid = 0;
  std::string problem = "unknown";  // empty: it is ready

  template <class Inside>
  explicit OtherSpaces(int spaces, const Inside& inside) {
    int ready[2], end[2];
    if (pipe(ready) != 0 || pipe(end) != 0) return;
    const std::string map = "0 " + std::to_string(geteuid()) + " 1", groups = "0 " + std::to_string(getegid()) + " 1";
    pid = fork();
    if (pid == 0) {
      close(end[1]);
      std::string why = unshare(spaces) == 0 ? "" : std::string("unshare: ") + strerrorname_np(errno);
      if (why.empty() && (spaces & CLONE_NEWUSER) != 0) {
        std::ofstream("/proc/self/setgroups") << "deny";
        std::ofstream("/proc/self/uid_map") << map;
        std::ofstream("/proc/self/gid_map") << groups;
        if (geteuid() != 0) why = "no map of users";
      }
      if (why.empty() && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) why = strerrorname_np(errno);
      if (why.empty()) why = inside();
      (void)!write(ready[1], why.c_str(), why.size());
      close(ready[1]);
      char none;
      _exit(read(end[0], &none, 1) == 0 ? 0 : 1);
    }
    close(ready[1]), close(end[0]);
    end_ = sys::Fd(end[1]);
    char text[1000];
    const ssize_t n = read(ready[0], text, sizeof text);
    close(ready[0]);
    problem.assign(text, n > 0 ? static_cast<size_t>(n) : 0);
  }
  ~OtherSpaces() {
    end_ = {};
    if (pid > 0) waitpid(pid, nullptr, 0);
  }

 private:
  sys::Fd end_;
};

std::string mounted(const char* type, const std::string& at, const std::string& options) {
  fs::create_directories(at);
  return ::mount("test", at.c_str(), type, 0, options.c_str()) == 0 ? "" : std::string(type) + ": " + strerrorname_np(errno);
}

// Serves a FUSE file system with one empty directory, by the requests' layout, until it is asked for its size (statfs) or for
// "file" a second time: nothing is answered from then on.
struct Fuse {
  sys::Fd fd;
  std::atomic<bool> silent{false};

  void serve() {
    std::vector<char> buffer(1 << 20);
    for (ssize_t n; (n = read(fd.get(), buffer.data(), buffer.size())) > 0;) {
      fuse_in_header in;
      std::memcpy(&in, buffer.data(), sizeof in);
      if (silent) continue;
      if (in.opcode == FUSE_FORGET || in.opcode == FUSE_BATCH_FORGET || in.opcode == FUSE_INTERRUPT) continue;
      char answer[256] = {};
      size_t size = 0;
      fuse_attr attributes{};
      attributes.ino = 1;
      attributes.mode = S_IFDIR | 0755;
      attributes.nlink = 2;
      if (in.opcode == FUSE_INIT) {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION, out.minor = 31, out.max_write = 4096;
        std::memcpy(answer, &out, size = sizeof out);
      } else if (in.opcode == FUSE_GETATTR) {
        fuse_attr_out out{};
        out.attr_valid = 1, out.attr = attributes;
        std::memcpy(answer, &out, size = sizeof out);
      } else if (in.opcode == FUSE_STATFS) {
        fuse_statfs_out out{};
        out.st.namelen = 255, out.st.bsize = 4096;
        std::memcpy(answer, &out, size = sizeof out);
      } else if (in.opcode == FUSE_OPENDIR || in.opcode == FUSE_OPEN) {
        size = sizeof(fuse_open_out);
      }
      fuse_out_header out{};
      out.unique = in.unique;
      out.error = size != 0 ? 0 : in.opcode == FUSE_LOOKUP ? -ENOENT : in.opcode == FUSE_RELEASEDIR ? 0 : -ENOSYS;
      out.len = static_cast<u32>(sizeof out + size);
      std::vector<char> all(out.len);
      std::memcpy(all.data(), &out, sizeof out);
      std::memcpy(all.data() + sizeof out, answer, size);
      (void)!write(fd.get(), all.data(), all.size());
    }
  }
};

// Anybody is root in a user namespace. What is asked of overlayfs there, it asks of the FUSE below, with the rights of its
// mounter: the kernel's rule that root may not be held up by a user's FUSE does not hold.
TEST_F(Judged, NothingIsAskedOfAnOverlayInAnotherUserNamespace) {
  const OtherSpaces user(CLONE_NEWUSER | CLONE_NEWNS, [&]() -> std::string {
    if (auto problem = mounted("tmpfs", dir, ""); !problem.empty()) return problem;
    auto* const fuse = new Fuse{sys::Fd(open("/dev/fuse", O_RDWR | O_CLOEXEC))};
    if (!fuse->fd) return std::string("/dev/fuse: ") + strerrorname_np(errno);
    auto problem = mounted("fuse", dir + "/low",
                           "fd=" + std::to_string(fuse->fd.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other");
    if (!problem.empty()) return problem;
    std::thread([fuse] { fuse->serve(); }).detach();
    for (const char* const name : {"/up", "/work"}) fs::create_directories(dir + name);
    problem = mounted("overlay", dir + "/over", "lowerdir=" + dir + "/low,upperdir=" + dir + "/up,workdir=" + dir + "/work");
    if (!problem.empty()) return problem;
    std::ofstream(dir + "/up/there") << "text";
    fuse->silent = true;
    return "";
  });
  if (!user.problem.empty()) GTEST_SKIP() << user.problem;
  const auto refused = [&](const std::string& path, const std::string& why) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string said = text_of(path, {.pid = user.pid});
      if (said.find(why) == said.npos) std::fprintf(stderr, "%s: %s\n", path.c_str(), said.c_str());
      _exit(said.find(why) != said.npos ? 0 : 1);
    }
    // A request that FUSE's program has read holds the child up until that program ends, whatever signal comes.
    int status = -1;
    for (int tries = 0; waitpid(child, &status, WNOHANG) == 0; ++tries) {
      if (tries == 600) kill(user.pid, SIGKILL);
      usleep(100'000);
    }
    return status == 0;
  };
  EXPECT_TRUE(refused(dir + "/over/file", "in another user namespace its file system, overlay at " + dir + "/over"));
  EXPECT_TRUE(refused(dir + "/over", "in another user namespace its file system, overlay at " + dir + "/over"));
  EXPECT_TRUE(
      refused(dir + "/low/file", "a user of another user namespace answers for its file system, FUSE at " + dir + "/low"));
  // A user's process may stay in this mount namespace and take the root of another one.
  EXPECT_EQ(text_of("/etc/passwd", {.pid = user.pid}), text_of("/etc/passwd")) << "other file systems are read";
}

// Containers of this user namespace have overlayfs as their root.
TEST_F(Judged, AnOverlayOfThisUserNamespaceIsRead) {
  const OtherSpaces container(CLONE_NEWNS, [&]() -> std::string {
    if (auto problem = mounted("tmpfs", dir, ""); !problem.empty()) return problem;
    for (const char* const name : {"/low", "/up", "/work"}) fs::create_directories(dir + name);
    std::ofstream(dir + "/low/file") << "below";
    return mounted("overlay", dir + "/over", "lowerdir=" + dir + "/low,upperdir=" + dir + "/up,workdir=" + dir + "/work");
  });
  if (!container.problem.empty()) GTEST_SKIP() << container.problem;
  EXPECT_EQ(text_of(dir + "/over/file", {.pid = container.pid}), "below");
}

// A process may have 100,000 mounts. Its list is read once, to a most size, and again only when it has changed.
TEST_F(Judged, AListOfMountsIsReadOnceUntilItChanges) {
  // In a mount namespace of its own: what other tests mount would change the list.
  if (unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    GTEST_SKIP() << "no mount namespace here, or not as root";
  const std::string go = dir + "/go", gone = dir + "/gone";
  ASSERT_EQ(mkfifo(go.c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(gone.c_str(), 0600), 0);
  const OtherSpaces user(CLONE_NEWUSER | CLONE_NEWNS, [&]() -> std::string {
    if (auto problem = mounted("tmpfs", dir + "/m", ""); !problem.empty()) return problem;
    for (int i = 0; i < 300; ++i) {
      const std::string at = dir + "/m/" + std::to_string(i);
      std::ofstream(at) << "text";
      if (::mount(at.c_str(), at.c_str(), nullptr, MS_BIND, nullptr) != 0) return std::string("bind: ") + strerrorname_np(errno);
    }
    std::thread([go, gone, at = dir + "/m/new"] {
      std::string word;
      std::ifstream(go) >> word;
      std::ofstream(gone) << mounted("tmpfs", at, "") << "\n";
    }).detach();
    return "";
  });
  if (!user.problem.empty()) GTEST_SKIP() << user.problem;
  Mounts mounts;
  Budget budget;
  const JudgedPath how{.pid = user.pid, .mounts = &mounts, .budget = &budget};
  EXPECT_EQ(text_of(dir + "/m/0", how), "text");
  const u64 read = mounts.read(), steps = budget.steps();
  EXPECT_EQ(read, 2u) << "this process's and its";
  EXPECT_LT(steps, Budget().steps() - 300 * 50) << "the lists are taken from the budget";
  for (int i = 0; i < 300; ++i) EXPECT_EQ(text_of(dir + "/m/" + std::to_string(i), how), "text");
  EXPECT_EQ(mounts.read(), read);
  EXPECT_EQ(budget.steps(), steps);
  // A new mount may have the number of one that is gone.
  std::ofstream(go) << "go\n";
  std::string none;
  std::getline(std::ifstream(gone) >> std::noskipws, none);
  ASSERT_EQ(none, "");
  EXPECT_THAT(text_of(dir + "/m/new/none", how), HasSubstr("No such file"));
  EXPECT_EQ(mounts.read(), read + 1);
  // What is beyond a most size is not listed, and is not opened then.
  Mounts few(64);
  EXPECT_THAT(text_of(dir + "/m/0", {.pid = user.pid, .mounts = &few}), HasSubstr("in no list of mounts that can be read"));
  Mounts others;
  Budget spent(1 << 20, 5000);
  EXPECT_EQ(open_judged(dir + "/m/0", {.pid = user.pid, .mounts = &others, .budget = &spent}).error().code,
            std::errc::resource_unavailable_try_again);
}

// Root's own FUSE, that nobody serves: a walk gives up, and goes on where it can.
TEST_F(Judged, AFileSystemThatDoesNotAnswerHoldsNoWalkUp) {
  if (perf_registers == 0) GTEST_SKIP() << "no walks for this processor";
  sys::Fd fuse(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!fuse) GTEST_SKIP() << "/dev/fuse: " << strerrorname_np(errno);
  const std::string at = dir + "/fuse";
  const auto problem = mounted("fuse", at, "fd=" + std::to_string(fuse.get()) + ",rootmode=40000,user_id=0,group_id=0");
  if (!problem.empty()) GTEST_SKIP() << problem;
  SampleWalk walk(sys::now_ns, 10'000'000);
  walk.map(getpid(), {0x10000, 0x11000, 0}, at + "/file", "");
  walk.map(getpid(), {0x20000, 0x21000, 0}, file, "");
  const auto follow = [&](u64 pc) {
    PerfRecord sample;
    sample.pid = getpid();
    sample.registers = {pc, 0x100000, 0x100000, 0};
    std::vector<u64> frames;
    (void)walk.frames(sample, 64, frames);
    EXPECT_EQ(frames.size(), 1u);
  };
  follow(0x10008);
  EXPECT_EQ(walk.skipped().files, 1u);
  EXPECT_EQ(walk.skipped().stacks, 1u);
  follow(0x20008);
  EXPECT_EQ(walk.skipped().stacks, 2u) << "the thread still waits for the other file";
  fuse = {};
  EXPECT_EQ(umount2(at.c_str(), MNT_DETACH), 0);
  u64 before = 0;
  do {
    before = walk.skipped().stacks;
    follow(0x20008);
  } while (walk.skipped().stacks != before);
}

}  // namespace
}  // namespace ringside::judged_test
