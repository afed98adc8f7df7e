// record --libc -p: calls of the C library in a process that runs already.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <ringside/base/sanitizers.hpp>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::libc_calls_test {
namespace {

using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;

// Allocates, grows, frees, opens, reads and closes, a thousand times a second at most.
[[noreturn]] void work() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (char buffer[100];; usleep(1000)) {
    void* volatile p = malloc(43210);
    p = realloc(p, 54321);
    free(p);
    p = calloc(3, 777);
    free(p);
    free(nullptr);
    const int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    if (read(fd, buffer, 99) != 99) _exit(1);
    close(fd);
  }
}

struct LibcCallsCli : test::BinaryTest {
  pid_t child = -1;
  void SetUp() override {
    if (RINGSIDE_SANITIZED) GTEST_SKIP() << "a sanitizer's allocator is not the C library's";
    if (geteuid() != 0) GTEST_SKIP() << "wants root";
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    BinaryTest::SetUp();
    child = fork();
    if (child == 0) work();
  }
  void TearDown() override {
    if (child > 0) kill(child, SIGKILL), waitpid(child, nullptr, 0);
    BinaryTest::TearDown();
  }
  std::string pid() const { return std::to_string(child); }
};

TEST_F(LibcCallsCli, TheEventsAreThoseOfThePreloadedLibrary) {
  const Outcome o = ringside("record --libc malloc,io -p " + pid() + " -b 8M --duration 500ms");
  ASSERT_EQ(o.code, 0) << o.err;
  if (o.err.find("lost 0;") == std::string::npos) GTEST_SKIP() << o.err;
  EXPECT_THAT(o.err, HasSubstr("each process that uses this file is stopped for a microsecond or two"));
  const auto all = events();
  u64 rounds = 0;
  for (size_t n = 0; n + 7 < all.size(); ++n) {
    EXPECT_EQ(all[n].at("tid"), child);
    const auto is = [&](size_t at, const char* name) { return all[n + at].at("event") == std::string("libc:") + name; };
    const auto field = [&](size_t at, const char* name) { return all[n + at].at("fields").at(name); };
    if (!is(0, "malloc")) continue;
    ++rounds;
    EXPECT_EQ(field(0, "size"), 43210);
    ASSERT_TRUE(is(1, "realloc")) << all[n + 1];
    EXPECT_EQ(field(1, "old"), field(0, "ptr"));
    EXPECT_EQ(field(1, "size"), 54321);
    ASSERT_TRUE(is(2, "free")) << all[n + 2];
    EXPECT_EQ(field(2, "ptr"), field(1, "ptr"));
    ASSERT_TRUE(is(3, "calloc")) << all[n + 3];
    EXPECT_EQ(field(3, "nmemb"), 3);
    EXPECT_EQ(field(3, "size"), 777);
    EXPECT_GT(field(3, "duration_ns").get<u64>(), 0u);
    ASSERT_TRUE(is(4, "free")) << all[n + 4];
    EXPECT_EQ(field(4, "ptr"), field(3, "ptr"));
    ASSERT_TRUE(is(5, "open")) << all[n + 5];
    EXPECT_EQ(field(5, "path"), "/dev/zero");
    EXPECT_EQ(field(5, "flags"), O_RDONLY | O_CLOEXEC);
    ASSERT_TRUE(is(6, "read")) << all[n + 6];
    EXPECT_EQ(field(6, "fd"), field(5, "ret"));
    EXPECT_EQ(field(6, "count"), 99);
    EXPECT_EQ(field(6, "ret"), 99);
    ASSERT_TRUE(is(7, "close")) << all[n + 7];
    EXPECT_EQ(field(7, "fd"), field(5, "ret"));
    EXPECT_EQ(field(7, "ret"), 0);
  }
  EXPECT_GT(rounds, 3u);
  // The commands that know the preloaded library's events know these.
  EXPECT_THAT(ringside("latency malloc --json").out, HasSubstr("\"pairs\""));
  EXPECT_EQ(json::parse(ringside("latency malloc --json").out).at("lost"), 0);
  EXPECT_THAT(ringside("flame --leaks -o leaks.html").err, HasSubstr("allocations"));
}

TEST_F(LibcCallsCli, OneGroupAlone) {
  ASSERT_EQ(ringside("record -q --libc io -p " + pid() + " --duration 200ms").code, 0);
  const auto all = events();
  EXPECT_FALSE(all.empty());
  for (const json& event : all) EXPECT_NE(event.at("event"), "libc:malloc");
}

// It ends with the process.
TEST_F(LibcCallsCli, TheEndOfTheProcess) {
  const Outcome o =
      run(RINGSIDE_BUILD_DIR "/ringside record --libc malloc -p " + pid() +
          " 2>log & R=$!; until grep -q 'is stopped for' log; do kill -0 $R || break; sleep 0.05; done; sleep 0.5; kill " +
          pid() + "; wait $R || { cat log >&2; false; }");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(events().empty());
}

TEST_F(LibcCallsCli, WhatCannotBeProbedIsSaid) {
  EXPECT_THAT(ringside("record --libc lock -p " + pid()).err, HasSubstr("malloc and io"));
  EXPECT_THAT(ringside("record --libc malloc").err, HasSubstr("-p PID"));
  EXPECT_EQ(ringside("record --libc malloc -a").code, 2);
  if (test::slurp("/proc/2/comm") != "kthreadd\n") return;
  const Outcome o = ringside("record --libc malloc -p 2");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("process 2 uses no C library"));
}

TEST_F(LibcCallsCli, NothingStaysInTracefs) {
  ASSERT_EQ(ringside("record -q --libc malloc -p " + pid() + " --duration 100ms").code, 0);
  const std::string tracefs = must(tracefs_dir());
  EXPECT_EQ(test::slurp(tracefs + "/uprobe_events").find("call_0"), std::string::npos);
}

}  // namespace
}  // namespace ringside::libc_calls_test
