// Programs, the recorder, external writers and the mount on a kernel with larger pages: as preloaded pages_shim.c shows them
// one.
#include <sys/wait.h>

#include "cli/mount_fixture.hpp"
#include "source/recording.hpp"

namespace ringside::pages_cli_test {
namespace {

using namespace test;

// The environment of everything that a test starts.
struct Shim {
  explicit Shim(u32 page) {
    setenv("LD_PRELOAD", RINGSIDE_BUILD_DIR "/tests/libpages_shim.so", 1);
    setenv("PAGES_SHIM", std::to_string(page).c_str(), 1);
  }
  ~Shim() {
    unsetenv("LD_PRELOAD");
    unsetenv("PAGES_SHIM");
  }
};

struct Pages : Mount, testing::WithParamInterface<u32> {
  const Shim shim{GetParam()};
  const std::string bytes = std::to_string(GetParam());
};

void expect_books(const RecordingMeta& meta) {
  EXPECT_TRUE(meta.complete);
  EXPECT_EQ(meta.totals.written, meta.totals.read + meta.totals.overrun);
}

TEST_P(Pages, AProgramIsRecorded) {
  EXPECT_NE(ringside("doctor").out.find("of " + bytes + " bytes"), std::string::npos) << ringside("doctor").out;
  for (const std::string rings : {"cpu", "thread"}) {
    const Outcome o = ringside("record --rings " + rings + " --subbuf-size 4k --buffer-size 1M -o " + rings +
                               " -- " RINGSIDE_BUILD_DIR "/tests/many_threads 3 500");
    ASSERT_EQ(o.code, 0) << o.err;
    const auto meta = RecordingMeta::read(dir + "/" + rings);
    ASSERT_TRUE(meta) << meta.error().sentence;
    expect_books(*meta);
    EXPECT_EQ(meta->totals.written, 1500u) << o.err;
    EXPECT_EQ(meta->totals.overrun, 0u) << o.err;
    for (const RecordedRing& ring : meta->rings) EXPECT_EQ(ring.subbuf_size, GetParam());
    EXPECT_EQ(lines_with(ringside("report " + rings).out, ": number: n="), 1500u);
  }
}

TEST_P(Pages, AnExternalWriterIsRecorded) {
  for (const std::string layout : {"meta", "footers"}) {
    const Outcome o = run("rm -f w; " RINGSIDE_BUILD_DIR
                          "/example_03_remote ./w & P=$!; until [ -S w ]; do sleep 0.02; done; " RINGSIDE_BUILD_DIR
                          "/ringside remote w --rings 3 --subbuf-size 4k --layout " +
                          layout + " -o " + layout + " & R=$!; until [ $(" RINGSIDE_BUILD_DIR "/ringside report " + layout +
                          " 2>/dev/null | grep -c ': tick:') -gt 10 ]; do sleep 0.02; done; kill -TERM $R; wait $R; C=$?; kill "
                          "-9 $P; wait 2>/dev/null; exit $C");
    ASSERT_EQ(o.code, 0) << o.err;
    const auto meta = RecordingMeta::read(dir + "/" + layout);
    ASSERT_TRUE(meta) << meta.error().sentence;
    expect_books(*meta);
    EXPECT_GT(meta->totals.written, 10u);
    EXPECT_EQ(meta->rings[0].subbuf_size, GetParam());
  }
}

// A ring of a mount begins at a page and has sub-buffers of pages: clients map it, and external writers write to it.
TEST_P(Pages, TheMountHasThem) {
  const std::string socket = dir + "/rings", remote = at + "/remotes/test",
                    kilobytes = std::to_string(GetParam() / 1024) + "\n";
  const pid_t writer = fork();
  if (writer == 0) {
    execl(RINGSIDE_BUILD_DIR "/example_08_selftest", "example_08_selftest", socket.c_str(), nullptr);
    _exit(127);
  }
  const bool listens = eventually([&] { return fs::exists(socket); });
  EXPECT_TRUE(listens);
  start({"--remote", "test=" + socket});
  EXPECT_TRUE(eventually([&] { return fs::exists(remote + "/write_event"); })) << slurp(dir + "/log");
  EXPECT_EQ(text_of(remote + "/buffer_subbuf_size_kb"), kilobytes);
  EXPECT_EQ(text_of(top + "/buffer_subbuf_size_kb"), kilobytes);
  EXPECT_EQ(write_to(remote + "/tracing_on", "1"), "1");
  const OnCpu one(sched_getcpu());
  const std::string cpu = "/per_cpu/cpu" + std::to_string(sched_getcpu());
  for (const char* text : {"1", "2", "3"}) {
    EXPECT_EQ(write_to(remote + "/write_event", text), "1");
    EXPECT_EQ(write_to(top + "/trace_marker", text), "1");
  }
  EXPECT_EQ(lines_with(text_of(remote + "/trace"), "selftest id="), 3u) << text_of(remote + "/trace");
  EXPECT_EQ(lines_with(text_of(top + "/trace"), "tracing_mark_write"), 3u) << text_of(top + "/trace");
  {
    Mapping map(top + cpu + "/trace_pipe_raw");
    ASSERT_NE(map.base, nullptr) << strerrorname_np(errno);
    EXPECT_EQ(map.meta().subbuf_size, GetParam());
    EXPECT_EQ(map.meta().meta_page_size, GetParam());
    EXPECT_TRUE(map.step());
    EXPECT_EQ(map.events, 3u);
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, Pages, testing::Values(16384u, 65536u),
                         [](const auto& p) { return std::to_string(p.param / 1024) + "KiB"; });

}  // namespace
}  // namespace ringside::pages_cli_test
