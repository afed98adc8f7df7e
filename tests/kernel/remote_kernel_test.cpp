// The kernel's own remotes, by a directory with their files: switches, times, gaps, and what stays behind. cli.KernelRemotes
// reads a kernel's.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernel/kernel_remote.hpp"
#include "own_root.hpp"
#include "seen.hpp"
#include "sys/sys.hpp"

namespace ringside::test::remote_kernel_test {
namespace {

namespace fs = std::filesystem;

u64 boot_ns() {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

struct KernelRemoteTest : testing::Test {
  OwnRoot root;
  const std::string dir = root.path() + "/hypervisor";  // its clock can be read without privileges
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(dir + "/" + file).parent_path());
    std::ofstream(dir + "/" + file) << text;
  }
  std::string get(const std::string& file) const { return sys::read_file(dir + "/" + file).value_or("?"); }
  void make(const std::string& lines) const {
    put("buffer_size_kb", "7 (unloaded)\n");
    put("tracing_on", "0\n");
    for (const std::string name : {"enter", "exit"}) {
      put("events/hypervisor/" + name + "/enable", "0\n");
      put("events/hypervisor/" + name + "/format",
          "name: " + name + "\nID: " + (name == "enter" ? "1" : "2") +
              "\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
              "\tfield:u64 id;\toffset:2;\tsize:8;\tsigned:0;\n\nprint fmt: \"id=%llu\", REC->id\n");
    }
    fs::create_directories(dir + "/per_cpu/cpu1");
    put("trace_pipe", lines);
  }
  static std::string line(u64 ns, u64 id, const std::string& name = "enter") {
    char text[128];
    std::snprintf(text, sizeof text, "[001]\t%5llu.%06llu: %s id=%llu\n", static_cast<unsigned long long>(ns / 1'000'000'000),
                  static_cast<unsigned long long>(ns % 1'000'000'000 / 1000), name.c_str(),
                  static_cast<unsigned long long>(id));
    return text;
  }
  std::unique_ptr<KernelRemote> open(const std::string& patterns, KernelRemote::Options options = {}) const {
    return must(KernelRemote::open(dir, must(EventPatterns::parse(patterns)), options));
  }
};

TEST_F(KernelRemoteTest, EventsAndGapsOfACpu) {
  const u64 now = boot_ns() / 1000 * 1000;
  std::string lines;
  for (u64 id = 1; id <= 2000; ++id) lines += line(now + id * 1000, id);
  lines += "CPU:1 [LOST 300 EVENTS]\n" + line(now + 2'500'000, 2301) + line(now + 2'500'000, 2302, "exit") + "[001]\t" +
           std::to_string(now / 1'000'000'000 + 1) + ".000000: UNKNOWN id=9\n";
  make(lines);
  const auto remote = open("remotes/*");
  ASSERT_EQ(remote->sources.size(), 1u);
  Source& ring = *remote->sources[0];
  EXPECT_EQ(ring.name().its_cpu(), 1);
  Seen seen;
  remote->off();  // from here on it is read to its end
  read_all(ring, seen, 2);
  EXPECT_TRUE(ring.ended());
  ASSERT_EQ(seen.numbers.size(), 2003u) << seen.error;
  for (u64 id = 1; id <= 2000; ++id) EXPECT_EQ(seen.numbers[id - 1], id);
  EXPECT_EQ(seen.numbers[2000], 2301u);
  EXPECT_EQ(seen.numbers[2001], 2302u);
  EXPECT_EQ(seen.gaps, "300@2301 ");
  const Counters c = ring.counters();
  EXPECT_EQ(c.read, 2003u);
  EXPECT_EQ(c.overrun, 300u);
  EXPECT_EQ(c.written, 2303u);
  // Their clock is the recording's, CLOCK_MONOTONIC, by what was measured.
  const u64 ahead = boot_ns() - sys::now_ns();
  for (u64 id = 1; id <= 2000; ++id)
    EXPECT_NEAR(static_cast<double>(seen.times[id - 1]), static_cast<double>(now + id * 1000 - ahead), 1e6);
  EXPECT_TRUE(remote->doubts().empty()) << remote->doubts().front();
}

TEST_F(KernelRemoteTest, WhatThePatternsNameIsSwitchedOnAndAllIsPutBack) {
  make("");
  {
    KernelRemote::Options options;
    options.buffer_size = 64 << 10;
    const auto remote = open("remotes/hypervisor:enter", options);
    must(remote->on());
    EXPECT_EQ(get("tracing_on").front(), '1');
    EXPECT_EQ(get("buffer_size_kb").substr(0, 2), "64");
    EXPECT_EQ(get("events/hypervisor/enter/enable").front(), '1');
    EXPECT_EQ(get("events/hypervisor/exit/enable").front(), '0');
    put("buffer_size_kb", "64 (loaded)\n");
    const auto second = KernelRemote::open(dir, must(EventPatterns::parse("remotes/*")), options);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, std::errc::device_or_resource_busy);
    put("buffer_size_kb", "64 (unloaded)\n");
  }
  EXPECT_EQ(get("tracing_on").front(), '0');
  EXPECT_EQ(get("buffer_size_kb").front(), '7');
  EXPECT_EQ(get("events/hypervisor/enter/enable").front(), '0');
}

TEST_F(KernelRemoteTest, RingsInUseStayAndSoDoesWhatIsOn) {
  make("");
  put("buffer_size_kb", "7 (loaded)\n");
  put("tracing_on", "1\n");
  put("events/hypervisor/enter/enable", "1\n");
  std::string said;
  {
    KernelRemote::Options options;
    options.notice = [&](const std::string& sentence) { said = sentence; };
    const auto remote = open("remotes/*", options);
    must(remote->on());
    remote->off();
    EXPECT_EQ(get("tracing_on").front(), '1');
  }
  EXPECT_NE(said.find("has rings already, of 7 KiB"), std::string::npos) << said;
  EXPECT_EQ(get("tracing_on").front(), '1');
  EXPECT_EQ(get("buffer_size_kb"), "7 (loaded)\n");
  EXPECT_EQ(get("events/hypervisor/enter/enable").front(), '1');
  EXPECT_EQ(get("events/hypervisor/exit/enable").front(), '0');
}

// No file tells a remote's clock: one that it cannot have had is told.
TEST_F(KernelRemoteTest, AnotherClockIsToldByTheMomentOfReading) {
  for (const i64 off : {-3'600, 3'600}) {
    fs::remove(dir + "/trace_pipe");
    make("");
    fs::remove(dir + "/trace_pipe");
    ASSERT_EQ(mkfifo((dir + "/trace_pipe").c_str(), 0600), 0);
    const sys::Fd writer(::open((dir + "/trace_pipe").c_str(), O_RDWR | O_CLOEXEC));
    std::vector<std::string> said;
    KernelRemote::Options options;
    options.notice = [&](const std::string& sentence) { said.push_back(sentence); };
    const auto remote = open("remotes/*", options);
    Seen seen;
    read_all(*remote->sources[0], seen, 2);  // it is seen empty
    const std::string late = line(boot_ns() + static_cast<u64>(off * 1'000'000'000), 1);
    ASSERT_EQ(write(writer.get(), late.data(), late.size()), static_cast<ssize_t>(late.size()));
    remote->off();
    read_all(*remote->sources[0], seen, 2);
    EXPECT_EQ(seen.numbers.size(), 1u);
    ASSERT_EQ(remote->doubts().size(), 1u) << off;
    EXPECT_EQ(said, remote->doubts());
    EXPECT_NE(said[0].find("not of the kernel's clock boot"), std::string::npos) << said[0];
  }
}

TEST(RemoteClock, FollowsTheLineThroughTwoMoments) {
  RemoteClock clock;
  clock.add({1'000'000, 500});
  clock.add({2'000'000, 3'500});  // 3 ticks each us
  EXPECT_EQ(clock.ticks(1'000'000), 500u);
  EXPECT_EQ(clock.ticks(2'000'000), 3'500u);
  EXPECT_EQ(clock.ticks(3'000'000), 6'500u);
  EXPECT_EQ(clock.ticks(1'500'000), 2'000u);
}

}  // namespace
}  // namespace ringside::test::remote_kernel_test
