// What a WHERE names: every kind, and which one has a name that fits several.
#include "consumer/where.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <ringside/remote/process_writer.hpp>
#include <thread>

#include "instance/instance.hpp"
#include "kernel/tracefs_instance.hpp"
#include "remote/process.hpp"
#include "serve/server.hpp"

namespace ringside::where_test {
namespace {

namespace fs = std::filesystem;
using Kind = Where::Kind;

// In a directory of its own, with instances beside it.
struct WhereTest : testing::Test {
  std::string dir, old_root, old_dir;
  void SetUp() override {
    char path[] = "/tmp/ringside-where-XXXXXX";
    dir = mkdtemp(path);
    if (const char* root = getenv("RINGSIDE_ROOT")) old_root = root;
    setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
    old_dir = fs::current_path();
    fs::create_directory(dir + "/here");
    fs::current_path(dir + "/here");
  }
  void TearDown() override {
    fs::current_path(old_dir);
    if (!old_root.empty()) setenv("RINGSIDE_ROOT", old_root.c_str(), 1);
    else unsetenv("RINGSIDE_ROOT");
    fs::remove_all(dir);
  }
  static std::string instance(const std::string& name) {
    InstanceOptions o;
    o.name = name;
    o.rings = Rings::thread;
    return must(Instance::create(o))->path();
  }
  static void file(const std::string& name) { std::ofstream(name) << "text"; }
  static void recording(const std::string& name) {
    fs::create_directories(name);
    file(name + "/meta.json");
  }
  static void socket(const std::string& name) {
    const sys::Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    name.copy(at.sun_path, sizeof at.sun_path - 1);
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  }
  static Kind kind(const std::string& text) {
    const Where where = Where::of(text);
    EXPECT_EQ(where.text, text);
    EXPECT_EQ(where.dir.empty(), where.kind != Kind::kernel) << text;
    EXPECT_EQ(Where::now(text).kind, where.kind) << text;
    return where.kind;
  }
};

TEST_F(WhereTest, Instances) {
  const std::string path = instance("web");
  EXPECT_EQ(kind("web"), Kind::instance);
  EXPECT_EQ(kind(path), Kind::instance);
  EXPECT_EQ(kind("./web"), Kind::nothing);
  EXPECT_EQ(kind(instance(dir + "/here/elsewhere")), Kind::instance);
  EXPECT_EQ(kind("./elsewhere"), Kind::instance);
  EXPECT_EQ(kind("elsewhere"), Kind::nothing);  // a word is a name of the root's
}

TEST_F(WhereTest, Recordings) {
  recording("r.data");
  for (const char* text : {"r.data", "./r.data", "r.data/"}) EXPECT_EQ(kind(text), Kind::recording) << text;
  EXPECT_EQ(kind(dir + "/here/r.data"), Kind::recording);
  recording(".");
  EXPECT_EQ(kind("."), Kind::recording);
}

TEST_F(WhereTest, Files) {
  file("trace.dat");
  std::ofstream("empty").flush();
  fs::create_symlink("trace.dat", "link");
  for (const char* text : {"trace.dat", "./trace.dat", "empty", "link"}) EXPECT_EQ(kind(text), Kind::trace_dat) << text;
}

TEST_F(WhereTest, Sockets) {
  socket("w");
  EXPECT_EQ(kind("w"), Kind::writer);
  EXPECT_EQ(kind(dir + "/here/w"), Kind::writer);
  socket("socket");
  EXPECT_EQ(kind("socket"), Kind::writer);
  EXPECT_EQ(kind("./socket"), Kind::writer);
  instance("web");
  ServerOptions o;
  o.instance = "web";
  EXPECT_EQ(kind(must(Server::create(o))->socket()), Kind::served);  // by its name alone: that server answers nothing
  o.socket = dir + "/here/s";
  const auto server = must(Server::create(o));
  std::atomic<bool> over{false};
  std::thread answering([&] {
    while (!over && server->turn(10)) continue;
  });
  EXPECT_EQ(kind("s"), Kind::served);
  over = true;
  answering.join();
}

// The question whether ringside serves there costs an external writer nothing.
TEST_F(WhereTest, AnExternalWriterStaysOne) {
  const remote::ProcessWriter<> writer({dir + "/here/w", {{1, "app", "tick", "name: tick"}}});
  ASSERT_EQ(writer.error(), 0);
  EXPECT_EQ(kind("w"), Kind::writer);
  remote::Process::Options make;
  make.buffer.size = 64 << 10;
  make.buffer.subbuf_size = 4096;
  const auto reader = remote::Process::attach("w", make);
  ASSERT_TRUE(reader) << reader.error().sentence;
  EXPECT_EQ(kind("w"), Kind::writer);  // another reader is attached
}

TEST_F(WhereTest, InstancesOfTheKernel) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  const auto kernel = must(TracefsInstance::create({.prefix = "ringside-where-"}));
  const std::string name = fs::path(kernel.dir()).filename();
  EXPECT_EQ(kind(name), Kind::kernel);
  EXPECT_EQ(kind(kernel.dir()), Kind::kernel);
  EXPECT_EQ(Where::of(name).dir, kernel.dir());
  EXPECT_NE(Where::of(name).not_to_be_read().sentence.find("cat " + kernel.dir() + "/trace "), std::string::npos);
  EXPECT_FALSE(not_the_kernels(name));
  // What is here, or ours, comes first.
  file(name);
  EXPECT_EQ(kind(name), Kind::trace_dat);
  fs::remove(name);
  recording(name);
  EXPECT_EQ(kind(name), Kind::recording);
  instance(name);
  EXPECT_EQ(kind(name), Kind::instance);
}

TEST_F(WhereTest, Nothing) {
  fs::create_directory("empty");
  ASSERT_EQ(mkfifo("pipe", 0600), 0);
  fs::create_symlink("nowhere", "dangling");
  for (const char* text : {"", ".", "..", "/", "missing", "./missing", "missing/", "/nowhere/at/all", "empty", "./empty",
                           "pipe", "dangling", "a b"})
    EXPECT_EQ(kind(text), Kind::nothing) << text;
  EXPECT_TRUE(not_the_kernels("missing"));
}

// A word is an instance first, a path is what is there.
TEST_F(WhereTest, AnInstanceAndAFileOfOneName) {
  for (const char* name : {"a", "b", "c"}) instance(name);
  recording("a");
  file("b");
  socket("c");
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(kind(name), Kind::instance) << name;
  EXPECT_EQ(kind("./a"), Kind::recording);
  EXPECT_EQ(kind("./b"), Kind::trace_dat);
  EXPECT_EQ(kind("./c"), Kind::writer);
  EXPECT_EQ(kind("a/"), Kind::recording);
}

// What cannot be opened as an instance hides no file.
TEST_F(WhereTest, AHalfMadeInstanceAndAFileOfOneName) {
  instance("web");
  fs::remove(dir + "/root/web/instance");
  EXPECT_EQ(kind("web"), Kind::nothing);
  recording("web");
  EXPECT_EQ(kind("web"), Kind::recording);
}

// A key or an event, perhaps: `hist key` once waited twice for an instance of that name.
TEST_F(WhereTest, AWordThatMayMeanSomethingElseIsNotWaitedFor) {
  const auto sleeps = [](const auto& ask) {
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    EXPECT_EQ(ask("nothing").kind, Kind::nothing);
    getrusage(RUSAGE_THREAD, &after);
    return after.ru_nvcsw - before.ru_nvcsw;
  };
  EXPECT_GE(sleeps(Where::of), 10);
  EXPECT_LT(sleeps(Where::now), 10);
}

TEST_F(WhereTest, ARecordingInAnInstancesDirectory) {
  const std::string path = instance("web");
  file(path + "/meta.json");
  EXPECT_EQ(kind(path), Kind::recording);
  EXPECT_EQ(kind("web"), Kind::instance);
}

}  // namespace
}  // namespace ringside::where_test
