// The sockets of external writers: nobody's file is removed, and one writer listens at a path.
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "remote/writer_process.hpp"

namespace ringside::test::remote_process_test {
namespace {

TEST(RemoteSockets, AWriterLeavesAnotherWritersSocketInPlace) {
  const std::string path = fresh_path();
  ProcessWriter<> first({path, {}});
  ASSERT_EQ(first.error(), 0);
  {
    ProcessWriter<> second({path, {}});
    EXPECT_EQ(second.error(), EADDRINUSE);
  }
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
}

// Every file refuses connections as a dead writer's socket does.
TEST(RemoteSockets, AWriterRemovesNoFileAtItsPath) {
  const std::string path = fresh_path(), target = path + ".target";
  const auto refused = [&] { return ProcessWriter<>({path, {}}).error(); };
  std::ofstream(path) << "precious";
  EXPECT_EQ(refused(), EEXIST);
  EXPECT_EQ(must(sys::read_file(path)), "precious");
  ASSERT_EQ(rename(path.c_str(), target.c_str()), 0);
  ASSERT_EQ(symlink(target.c_str(), path.c_str()), 0);
  EXPECT_EQ(refused(), EEXIST);
  EXPECT_EQ(must(sys::read_file(path)), "precious");
  unlink(path.c_str());
  unlink(target.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refused(), EEXIST);
  unlink(path.c_str());
}

// Both find the socket of a dead writer.
TEST(RemoteSockets, OfTwoWritersThatStartAtOnceOneListens) {
  const std::string dir = fresh_path() + ".d", path = dir + "/w";
  ASSERT_EQ(mkdir(dir.c_str(), 0700), 0);
  for (int round = 0; round < 200; ++round) {
    {
      const sys::Fd dead(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      sockaddr_un at{};
      at.sun_family = AF_UNIX;
      std::memcpy(at.sun_path, path.c_str(), path.size());
      ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0) << strerror(errno);
    }
    std::atomic<int> ready{0};
    std::unique_ptr<ProcessWriter<>> writers[2];
    const auto start = [&](int k) {
      ++ready;
      while (ready < 2) {
      }
      writers[k] = std::make_unique<ProcessWriter<>>(ProcessOptions{path, {}});
    };
    std::thread other([&] { start(1); });
    start(0);
    other.join();
    const int errors[] = {writers[0]->error(), writers[1]->error()};
    EXPECT_EQ(std::max(errors[0], errors[1]), EADDRINUSE);
    EXPECT_EQ(std::min(errors[0], errors[1]), 0);
    EXPECT_TRUE(connected(path));
    writers[0].reset();
    writers[1].reset();
    ASSERT_EQ(rmdir(dir.c_str()), 0) << "files are left";
    ASSERT_EQ(mkdir(dir.c_str(), 0700), 0);
  }
  rmdir(dir.c_str());
}

TEST(RemoteSockets, AWriterRemovesOnlyItsOwnSocketAtItsEnd) {
  const std::string path = fresh_path();
  auto first = std::make_unique<ProcessWriter<>>(ProcessOptions{path, {}});
  ASSERT_EQ(first->error(), 0);
  unlink(path.c_str());
  {
    ProcessWriter<> second({path, {}});
    ASSERT_EQ(second.error(), 0);
    first.reset();
    EXPECT_TRUE(connected(path));
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace ringside::test::remote_process_test
