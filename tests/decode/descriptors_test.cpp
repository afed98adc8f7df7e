// Which file a descriptor is, from hand-made calls: never a wrong one, and a number where nothing is certain.
#include "decode/descriptors.hpp"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <initializer_list>

namespace ringside::descriptors_test {
namespace {

constexpr u32 note_id = 1, enter_id = 2, exit_id = 3;
constexpr u64 at_cwd = static_cast<u32>(AT_FDCWD);
constexpr u64 cloexec = 02000000, no_flags = 0;
using Step = FileCall::Step;

struct Calls {
  Calls() {
    const World world = World::of(Architecture::x86_64);
    formats.add(note_id, "ringside", "file_call", "name: file_call\nID: 1\nformat:\n\nprint fmt: \"\"\n", world);
    const std::string common =
        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:int "
        "common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n";
    formats.add(enter_id, "raw_syscalls", "sys_enter",
                "name: sys_enter\nID: 2\nformat:\n" + common +
                    "\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\nprint fmt: \"\"\n",
                world);
    formats.add(
        exit_id, "raw_syscalls", "sys_exit",
        "name: sys_exit\nID: 3\nformat:\n" + common + "\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n",
        world);
  }
  static i64 number(const char* name) { return *syscall_number(name, Architecture::x86_64); }

  void note(Step step, i64 nr, i64 value, std::initializer_list<u64> args = {}, const std::string& text = "") {
    FileCall call;
    call.common = note_id | static_cast<u64>(tid) << 32;
    call.step = step;
    call.pid = pid;
    call.number = nr;
    call.value = value;
    std::copy(args.begin(), args.end(), call.args);
    call.text = static_cast<u32>(sizeof call | (text.size() + 1) << 16);
    std::vector<u8> payload(sizeof call + text.size() + 1);
    std::memcpy(payload.data(), &call, sizeof call);
    std::memcpy(payload.data() + sizeof call, text.data(), text.size());
    EXPECT_EQ(files.see(*formats.find(note_id), {payload.data(), payload.size()}, ++time), 0u);
  }
  // The kernel's events; what they show.
  std::string enter(const char* name, std::initializer_list<u64> args) {
    u64 words[8] = {enter_id | static_cast<u64>(tid) << 32, static_cast<u64>(number(name))};
    std::copy(args.begin(), args.end(), words + 2);
    shown = files.see(*formats.find(enter_id), {reinterpret_cast<const u8*>(words), sizeof words}, ++time);
    return std::string(files.text(shown));
  }
  std::string exit(const char* name, i64 returned) {
    const u64 words[3] = {exit_id | static_cast<u64>(tid) << 32, static_cast<u64>(number(name)), static_cast<u64>(returned)};
    shown = files.see(*formats.find(exit_id), {reinterpret_cast<const u8*>(words), sizeof words}, ++time);
    return std::string(files.text(shown));
  }
  std::string file() const { return std::string(files.file(shown)); }

  // A call as the recorder notes it; texts: of its paths.
  void call(const char* name, std::initializer_list<u64> args, i64 returned,
            std::initializer_list<std::pair<i64, const char*>> texts = {}) {
    begin(name, args, texts);
    note(Step::end, number(name), returned);
  }
  void begin(const char* name, std::initializer_list<u64> args, std::initializer_list<std::pair<i64, const char*>> texts = {}) {
    note(Step::begin, number(name), 0, args);
    for (const auto& [argument, text] : texts) note(Step::text, number(name), argument, args, text);
  }
  void open(const char* path, i64 returned, u64 flags = no_flags) {
    call("openat", {at_cwd, 0x1000, flags}, returned, {{1, path}});
  }
  std::string read(u64 descriptor) { return enter("read", {descriptor, 0x2000, 100}); }
  Calls& in(i32 thread, i32 process) {
    tid = thread, pid = process;
    return *this;
  }

  Formats formats;
  Descriptors files;
  i32 tid = 7, pid = 7;
  u64 time = 1000;
  u32 shown = 0;
};

TEST(Descriptors, AnOpenedFileIsNamedUntilItIsClosed) {
  Calls c;
  c.begin("openat", {at_cwd, 0x1000, 0}, {{1, "/etc/passwd"}});
  EXPECT_EQ(c.enter("openat", {at_cwd, 0x1000, 0}), "AT_FDCWD \"/etc/passwd\"");
  EXPECT_EQ(c.file(), "/etc/passwd");
  c.note(Step::end, Calls::number("openat"), 3);
  EXPECT_EQ(c.exit("openat", 3), "3</etc/passwd>");
  EXPECT_EQ(c.file(), "/etc/passwd");
  EXPECT_EQ(c.read(3), "3</etc/passwd>");
  EXPECT_EQ(c.exit("read", 100), "");
  EXPECT_EQ(c.file(), "/etc/passwd") << "the end of a call is about the file of its beginning";
  EXPECT_EQ(c.read(4), "") << "what is not known has no text";
  EXPECT_EQ(c.enter("mmap", {0, 4096, 1, 2, 3, 0}), "3</etc/passwd>");
  EXPECT_EQ(c.enter("mmap", {0, 4096, 1, 0x22, ~u64{0}, 0}), "");
  c.begin("close", {3});
  EXPECT_EQ(c.enter("close", {3}), "3</etc/passwd>") << "a call is about the descriptors before it";
  EXPECT_EQ(c.read(3), "");
  c.note(Step::end, Calls::number("close"), 0);
  EXPECT_EQ(c.read(3), "");
}

TEST(Descriptors, AFailedOpenNamesNone) {
  Calls c;
  c.open("/etc/shadow", -EACCES);
  c.open("/etc/passwd", 3);
  c.call("close", {3}, 0);
  c.note(Step::begin, Calls::number("openat"), 0, {at_cwd, 0x1000, 0});  // its path was not in memory
  c.note(Step::end, Calls::number("openat"), 3);
  EXPECT_EQ(c.read(3), "");
}

TEST(Descriptors, PathsAreOfTheirDirectory) {
  Calls c;
  c.open("data", 3);
  EXPECT_EQ(c.read(3), "3<data>") << "as it was named: nothing told the directory";
  c.note(Step::directory, 0, 0, {0, 0}, "/home/ada");
  c.open("./notes//a.txt", 4);
  EXPECT_EQ(c.read(4), "4</home/ada/notes/a.txt>");
  c.call("chdir", {0x1000}, 0, {{0, "src"}});
  c.open("b.c", 5);
  EXPECT_EQ(c.read(5), "5</home/ada/src/b.c>");
  c.open("/usr", 6);
  c.call("openat", {6, 0x1000, 0}, 7, {{1, "lib/c.so"}});
  EXPECT_EQ(c.read(7), "7</usr/lib/c.so>");
  c.call("fchdir", {6}, 0);
  c.open("bin", 8);
  EXPECT_EQ(c.read(8), "8</usr/bin>");
  c.note(Step::begin, Calls::number("chdir"), 0, {0x1000});
  c.note(Step::end, Calls::number("chdir"), 0);
  c.open("somewhere", 9);
  EXPECT_EQ(c.read(9), "9<somewhere>") << "the directory is unknown from here on";
}

TEST(Descriptors, CopiesAreTheSameFile) {
  Calls c;
  c.open("/a", 3);
  c.open("/b", 4);
  c.call("dup", {3}, 5);
  EXPECT_EQ(c.read(5), "5</a>");
  c.call("dup2", {3, 4}, 4);
  EXPECT_EQ(c.read(4), "4</a>");
  c.call("dup2", {3, 3}, 3);
  EXPECT_EQ(c.read(3), "3</a>");
  c.call("fcntl", {3, F_DUPFD, 10}, 10);
  EXPECT_EQ(c.read(10), "10</a>");
  c.call("fcntl", {3, F_GETFL}, 4);
  EXPECT_EQ(c.read(4), "4</a>") << "F_GETFL returns no descriptor";
  c.call("dup2", {99, 10}, -EBADF);
  c.call("dup", {50}, 11);
  EXPECT_EQ(c.read(11), "") << "a copy of an unknown one";
  c.call("close_range", {4, 9, 0}, 0);
  EXPECT_EQ(c.read(5), "");
  EXPECT_EQ(c.read(3), "3</a>");
}

TEST(Descriptors, ACopyOfADescriptorThatChangesMeanwhileIsUnknown) {
  Calls c;
  c.open("/a", 3);
  c.begin("dup", {3});
  c.in(8, 7).call("close", {3}, 0);
  c.in(8, 7).open("/b", 3);
  c.in(7, 7).note(Step::end, Calls::number("dup"), 4);
  EXPECT_EQ(c.read(4), "");
  EXPECT_EQ(c.read(3), "3</b>") << "threads share the descriptors";
}

// The number is free before close() has returned.
TEST(Descriptors, AnotherThreadMayGetTheNumberOfACloseThatHasNotReturned) {
  Calls c;
  c.open("/a", 3);
  c.begin("close", {3});
  c.in(8, 7).open("/b", 3);
  c.in(7, 7).note(Step::end, Calls::number("close"), 0);
  EXPECT_EQ(c.read(3), "3</b>");
}

TEST(Descriptors, AChildHasCopiesOfItsOwn) {
  Calls c;
  c.open("/a", 3);
  c.note(Step::begin, Calls::number("clone"), 0, {0x1200011});
  c.note(Step::fork, 0, 9, {0x1200011});
  c.in(9, 9).call("close", {3}, 0);
  c.open("/b", 3);
  EXPECT_EQ(c.read(3), "3</b>");
  EXPECT_EQ(c.in(7, 7).read(3), "3</a>");
  c.note(Step::fork, 0, 10, {0x10000 | 0x400 | 0x200});  // a thread
  c.in(10, 7).call("close", {3}, 0);
  EXPECT_EQ(c.in(7, 7).read(3), "");
}

TEST(Descriptors, WhatAnotherThreadOpensDuringAForkIsUnknownInTheChild) {
  Calls c;
  c.open("/a", 3);
  c.note(Step::begin, Calls::number("clone"), 0, {0x11});
  c.in(8, 7).open("/b", 4);
  c.in(7, 7).note(Step::fork, 0, 9, {0x11});
  EXPECT_EQ(c.in(9, 9).read(3), "3</a>");
  EXPECT_EQ(c.read(4), "");
  EXPECT_EQ(c.in(7, 7).read(4), "4</b>");
}

TEST(Descriptors, ExecClosesWhatItIsTo) {
  Calls c;
  c.open("/stays", 3);
  c.open("/closes", 4, cloexec);
  c.open("/set", 5);
  c.call("fcntl", {5, F_SETFD, FD_CLOEXEC}, 0);
  c.open("/unset", 6, cloexec);
  c.call("fcntl", {6, F_SETFD, 0}, 0);
  c.call("openat2", {at_cwd, 0x1000, 0x2000, 24}, 7, {{1, "/flags-in-memory"}});
  c.call("dup3", {3, 8, cloexec}, 8);
  c.note(Step::descriptor, 0, 9, {1, c.time}, "/from-proc");
  EXPECT_EQ(c.read(7), "7</flags-in-memory>");
  EXPECT_EQ(c.read(9), "9</from-proc>");
  c.call("execve", {0x1000}, -ENOENT);
  EXPECT_EQ(c.read(4), "4</closes>");
  c.begin("execve", {0x1000, 0x2000, 0}, {{0, "/bin/ls"}, {1, "ls"}, {257, "-l"}});
  EXPECT_EQ(c.enter("execve", {0x1000, 0x2000, 0}), "\"/bin/ls\" [\"ls\", \"-l\"]");
  EXPECT_EQ(c.file(), "/bin/ls");
  c.note(Step::end, Calls::number("execve"), 0);
  for (const u64 closed : {4, 5, 7, 8, 9}) EXPECT_EQ(c.read(closed), "") << closed;
  EXPECT_EQ(c.read(3), "3</stays>");
  EXPECT_EQ(c.read(6), "6</unset>");
}

TEST(Descriptors, AfterALossTheyAreNumbersUntilTheyAreSeenAgain) {
  Calls c;
  c.open("/a", 3);
  c.read(3);
  c.files.lose(0, false);  // of the kernel's events: those of files are all here
  EXPECT_EQ(c.exit("read", 1), "");
  EXPECT_EQ(c.file(), "") << "the end of another call, perhaps";
  EXPECT_EQ(c.read(3), "3</a>");
  c.files.lose(0, true);
  EXPECT_EQ(c.read(3), "");
  c.open("/b", 3);
  EXPECT_EQ(c.read(3), "3</b>");
  c.files.lose(Formats::most_ids, true);
  EXPECT_EQ(c.read(3), "3</b>") << "a loss of another recording";
}

// The process's first thread makes no call after it.
TEST(Descriptors, AfterALossThreadsOfAProcessHaveOneTable) {
  Calls c;
  c.in(7, 7).open("/a", 3);
  c.files.lose(0, true);
  c.in(8, 7).open("/b", 3);
  c.in(9, 7).call("close", {3}, 0);
  c.in(9, 7).open("/c", 3);
  EXPECT_EQ(c.in(8, 7).read(3), "3</c>");
  EXPECT_EQ(c.in(7, 7).read(3), "3</c>");
}

// A recorder asks /proc while the process goes on.
TEST(Descriptors, WhatACallHasChangedSinceTheQuestionIsNotTheAnswer) {
  Calls c;
  const u64 asked = c.time + 1;
  c.open("/new", 3);
  c.call("close", {4}, 0);
  c.note(Step::descriptor, 0, 3, {0, asked}, "/old");
  c.note(Step::descriptor, 0, 4, {0, asked}, "/closed");
  c.note(Step::descriptor, 0, 5, {0, asked}, "/known");
  EXPECT_EQ(c.read(3), "3</new>");
  EXPECT_EQ(c.read(4), "");
  EXPECT_EQ(c.read(5), "5</known>");
}

TEST(Descriptors, ADirectoryThatChangedSinceTheQuestionIsNotTheAnswer) {
  Calls c;
  const u64 asked = c.time + 1;
  c.call("chdir", {0x1000}, 0, {{0, "src"}});
  c.note(Step::directory, 0, 0, {0, asked}, "/home/ada");
  c.open("b.c", 3);
  EXPECT_EQ(c.read(3), "3<b.c>");
  c.note(Step::directory, 0, 0, {0, c.time}, "/home/ada/src");
  c.open("b.c", 4);
  EXPECT_EQ(c.read(4), "4</home/ada/src/b.c>");
}

TEST(Descriptors, SocketsHaveTheirPeer) {
  Calls c;
  c.call("socket", {AF_INET, SOCK_STREAM | cloexec, 0}, 3);
  EXPECT_EQ(c.read(3), "3<TCP>");
  c.call("connect", {3, 0x1000, 16}, -ECONNREFUSED, {{1, "10.0.0.1:80"}});
  EXPECT_EQ(c.read(3), "3<TCP>");
  c.call("connect", {3, 0x1000, 16}, -EINPROGRESS, {{1, "10.0.0.1:443"}});
  EXPECT_EQ(c.read(3), "3<TCP:[->10.0.0.1:443]>");
  c.call("socket", {AF_UNIX, SOCK_STREAM, 0}, 4);
  c.call("accept4", {4, 0, 0, cloexec}, 5);
  EXPECT_EQ(c.read(5), "5<UNIX>");
}

TEST(Descriptors, AProcessWithIoUringHasNumbersAlone) {
  Calls c;
  c.open("/a", 3);
  c.call("io_uring_setup", {8, 0x1000}, 4);
  c.open("/b", 5);
  EXPECT_EQ(c.read(3), "");
  EXPECT_EQ(c.read(5), "");
}

TEST(Descriptors, APathInALineIsPrintable) {
  Calls c;
  c.open("/tmp/a\nb\x1b[2J", 3);
  EXPECT_EQ(c.read(3).find('\n'), std::string::npos);
  EXPECT_EQ(c.read(3).find('\x1b'), std::string::npos);
  EXPECT_EQ(c.file(), "/tmp/a\nb\x1b[2J") << "filters and JSON have its bytes";
}

TEST(Descriptors, HostileNotesTellNothing) {
  Calls c;
  c.open("/a", 3);
  const EventType& type = *c.formats.find(note_id);
  std::vector<u8> payload(200, 0xFF);
  for (size_t size = 0; size <= payload.size(); ++size) c.files.see(type, {payload.data(), size}, 1);
  FileCall call;
  call.common = note_id | u64{7} << 32;
  call.step = Step::text;
  for (const u32 place : {0u, 0xFFFFFFFFu, 0x0058FFFFu, 0xFFFF0058u, 0x00010057u}) {
    call.text = place;
    c.files.see(type, {reinterpret_cast<const u8*>(&call), sizeof call}, 1);
  }
  EXPECT_EQ(c.read(3), "3</a>");
}

}  // namespace
}  // namespace ringside::descriptors_test
