// What the kernel's own tests demand of tracefs, and a mount gives: rings of processors from the start, markers where their
// writers run, options, masks, sizes of one ring, owners, triggers. docs/conformance.md lists those tests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "cli/mount_fixture.hpp"
#include "instance/instance.hpp"
#include "tick_writer.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside::mount_kernel_test {
namespace {

using namespace test;

struct MountKernel : Mount {
  const u32 cpus = static_cast<u32>(sysconf(_SC_NPROCESSORS_CONF));
  void SetUp() override {
    if (const RingsBecause why = why_not_cpu_rings(); why != RingsBecause::can)
      GTEST_SKIP() << "no rings of CPUs here, " << to_string(why);
    Mount::SetUp();
  }
  std::string cpu(u32 n) const { return top + "/per_cpu/cpu" + std::to_string(n); }
  std::string mask(u32 bits) const {
    char text[16];
    snprintf(text, sizeof text, "%x", bits);
    return text;
  }
  static std::string mode_of(const std::string& file) {
    struct stat st {};
    if (stat(file.c_str(), &st) != 0) return ended(-1);
    char text[64];
    snprintf(text, sizeof text, "%u:%u %o", st.st_uid, st.st_gid, st.st_mode & 07777);
    return text;
  }
};

// "its mapping test fails at the first open, because a mount of nothing has no ring per processor, and a marker goes to the
// ring of a thread"
TEST_F(MountKernel, AMappedRingOfAProcessorCountsMarkers) {
  start();
  for (const char* kilobytes : {"4", "8"}) {
    ASSERT_EQ(write_to(top + "/tracing_on", "0"), "1");
    ASSERT_EQ(write_to(top + "/trace", "", O_WRONLY | O_TRUNC), "0");
    ASSERT_EQ(write_to(top + "/buffer_subbuf_size_kb", kilobytes), "1");
    const OnCpu pinned(0);
    const Mapping map(cpu(0) + "/trace_pipe_raw");
    ASSERT_NE(map.base, nullptr) << strerrorname_np(errno);
    EXPECT_EQ(map.meta().subbuf_size, static_cast<u32>(atoi(kilobytes)) * 1024);
    EXPECT_EQ(map.meta().entries + map.meta().overrun + map.meta().read, 0u);
    EXPECT_EQ(map.meta().reader.id, 0u);
    ASSERT_EQ(ioctl(map.fd.get(), abi::get_reader_ioctl), 0);
    EXPECT_EQ(map.meta().reader.id, 0u) << "nothing was there to take";
    ASSERT_EQ(write_to(top + "/tracing_on", "1"), "1");
    for (int i = 0; i < 16; ++i) ASSERT_EQ(write_to(top + "/trace_marker", "0"), "1");
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(ioctl(map.fd.get(), abi::get_reader_ioctl), 0);
      EXPECT_EQ(map.meta().entries, 16u);
      EXPECT_EQ(map.meta().overrun, 0u);
      EXPECT_EQ(map.meta().read, 16u);
      EXPECT_EQ(map.meta().reader.id, 1u);
    }
  }
}

TEST_F(MountKernel, MarkersLandOnTheirWritersProcessor) {
  start();
  for (u32 n = 0; n < 10 * cpus; ++n) {
    const OnCpu pinned(static_cast<int>(n % cpus));
    ASSERT_EQ(write_to(top + "/trace_marker", "on " + std::to_string(n % cpus)), "4");
  }
  for (u32 n = 0; n < cpus; ++n) {
    const std::string trace = text_of(cpu(n) + "/trace");
    EXPECT_EQ(lines_with(trace, "tracing_mark_write: on " + std::to_string(n)), 10u) << trace;
    EXPECT_EQ(lines_with(trace, "tracing_mark_write: "), 10u) << trace;
    EXPECT_EQ(lines_with(trace, "-" + std::to_string(getpid()) + " "), 10u) << trace;
  }
}

TEST_F(MountKernel, OptionsAreKeptAndInherited) {
  start();
  std::istringstream names(text_of(top + "/trace_options"));
  for (std::string name; std::getline(names, name);) {
    const bool on = name.rfind("no", 0) != 0;
    if (!on) name.erase(0, 2);
    const std::string file = top + "/options/" + name;
    EXPECT_EQ(text_of(file), on ? "1\n" : "0\n") << name;
    EXPECT_EQ(write_to(file, on ? "0" : "1"), "1") << name;
    EXPECT_EQ(text_of(file), on ? "0\n" : "1\n") << name;
  }
  ASSERT_EQ(mkdir(web.c_str(), 0700), 0);
  EXPECT_EQ(text_of(web + "/options/raw"), "1\n");
  EXPECT_EQ(text_of(web + "/options/overwrite"), "0\n");
  EXPECT_EQ(text_of(web + "/options/event-fork"), "0\n") << "as in the kernel, not inherited";
  EXPECT_EQ(write_to(web + "/trace_marker", "x"), "EINVAL") << "markers are off";
  EXPECT_EQ(write_to(web + "/options/markers", "1"), "1");
  EXPECT_EQ(write_to(web + "/trace_marker", "x"), "1");
}

TEST_F(MountKernel, AProcessorOutsideTheMaskRecordsNothing) {
  start();
  const u32 all = cpus >= 32 ? ~0u : (1u << cpus) - 1;
  const std::string file = top + "/tracing_cpumask", before = text_of(file);
  ASSERT_EQ(write_to(file, mask(all & ~1u)), std::to_string(mask(all & ~1u).size()));
  const auto mark = [&](int n) {
    const OnCpu pinned(n);
    return write_to(top + "/trace_marker", "x");
  };
  EXPECT_EQ(mark(0), "EBADF");
  // The mask outlasts what makes rings anew, and does not switch recording.
  EXPECT_EQ(text_of(top + "/tracing_on"), "1\n");
  EXPECT_EQ(write_to(top + "/buffer_size_kb", "64"), "2");
  EXPECT_EQ(write_to(top + "/tracing_on", "0"), "1");
  EXPECT_EQ(write_to(top + "/tracing_on", "1"), "1");
  EXPECT_EQ(write_to(top + "/snapshot", "1"), "1");
  EXPECT_EQ(mark(0), "EBADF");
  if (cpus > 1) {
    EXPECT_EQ(mark(1), "1");
  }
  EXPECT_EQ(write_to(file, before), std::to_string(before.size()));
  EXPECT_EQ(text_of(file), before);
  EXPECT_EQ(mark(0), "1");
}

TEST_F(MountKernel, OneRingIsResizedAlone) {
  start();
  const OnCpu pinned(0);
  ASSERT_EQ(write_to(top + "/trace_marker", "before"), "6");
  const std::string all = text_of(top + "/buffer_size_kb");
  EXPECT_EQ(write_to(cpu(0) + "/buffer_size_kb", "64"), "2");
  EXPECT_EQ(text_of(cpu(0) + "/buffer_size_kb"), "67\n");
  if (cpus > 1) {
    EXPECT_EQ(text_of(cpu(1) + "/buffer_size_kb"), all);
    EXPECT_EQ(text_of(top + "/buffer_size_kb"), "X\n");
  }
  ASSERT_EQ(write_to(top + "/trace_marker", "after"), "5");
  EXPECT_EQ(lines_with(text_of(top + "/trace"), "tracing_mark_write: "), 2u) << "what was in the ring stays";
  EXPECT_EQ(lines_with(text_of(cpu(0) + "/trace"), "tracing_mark_write: after"), 1u);
  EXPECT_EQ(write_to(top + "/snapshot", "1"), "1");
  EXPECT_EQ(text_of(cpu(0) + "/buffer_size_kb"), "67\n") << "a snapshot changes no size";
  EXPECT_EQ(write_to(top + "/buffer_size_kb", "64"), "2");
  EXPECT_EQ(text_of(top + "/buffer_size_kb"), "67\n");
  EXPECT_EQ(write_to(top + "/trace", "", O_WRONLY | O_TRUNC), "0");
  EXPECT_FALSE(fs::exists(cpu(cpus))) << "rings from before a resize go when they are empty";
}

TEST_F(MountKernel, ClocksThatShowTheSameSecondsAreTaken) {
  start();
  const std::string own = text_of(top + "/trace_clock");
  for (const char* clock : {"local", "global", "mono", "x86-tsc"})
    EXPECT_EQ(write_to(top + "/trace_clock", clock), std::to_string(strlen(clock))) << clock;
  for (const char* clock : {"counter", "uptime", "perf", "tai", "bogus"})
    EXPECT_NE(write_to(top + "/trace_clock", clock), std::to_string(strlen(clock))) << clock;
  EXPECT_EQ(text_of(top + "/trace_clock"), own) << "told as what it is";
}

TEST_F(MountKernel, OwnersAndModes) {
  start({"-o", "gid=100,mode=0750"});
  EXPECT_EQ(mode_of(top), "0:100 750");
  EXPECT_EQ(mode_of(top + "/events/enable"), "0:100 640");
  EXPECT_EQ(chown((top + "/events").c_str(), 65534, static_cast<gid_t>(-1)), 0);
  EXPECT_EQ(mode_of(top + "/events"), "65534:100 755");
  EXPECT_EQ(mode_of(top + "/events/enable"), "0:100 640") << "as in the kernel, each file for itself";
  EXPECT_EQ(chmod((top + "/trace_marker").c_str(), 0222), 0);
  EXPECT_EQ(mode_of(top + "/trace_marker"), "0:100 222");
  // A member of the group needs no --allow-other, and may write where the mode says so.
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(100) != 0 || setuid(65534) != 0) _exit(99);
    _exit(write_to(top + "/trace_marker", "x") == "1" && write_to(top + "/tracing_on", "0") == "open: EACCES" ? 0 : 1);
  }
  EXPECT_EQ(end_of(child), 0);
  EXPECT_EQ(chown((top + "/instances").c_str(), static_cast<uid_t>(-1), 7), 0);
  ASSERT_EQ(mkdir(web.c_str(), 0700), 0);
  EXPECT_EQ(mode_of(web + "/events/enable"), "0:7 640") << "what is made there inherits";
  EXPECT_EQ(chown((web + "/trace").c_str(), 5, 5), 0);
  ASSERT_EQ(rmdir(web.c_str()), 0);
  ASSERT_EQ(mkdir(web.c_str(), 0700), 0);
  EXPECT_EQ(mode_of(web + "/trace"), "0:7 640") << "another instance of that name";
  for (const char* bad : {"uid", "gid=", "uid=x", "mode=9", "size=1", "mode=10000"}) {
    const Outcome o = ringside(std::string("mount ") + dir + "/none -o " + bad);
    EXPECT_EQ(o.code, 2) << bad << o.err;
  }
}

// A client that reads a snapshot has the raw files of all processors open at once.
TEST_F(MountKernel, ASnapshotsRingsAreOpenTogether) {
  start();
  for (int again = 0; again < 2; ++again) {
    for (u32 n = 0; n < cpus; ++n) {
      const OnCpu pinned(static_cast<int>(n));
      ASSERT_EQ(write_to(top + "/trace_marker", "x"), "1");
    }
    ASSERT_EQ(write_to(top + "/snapshot", "1"), "1");
    std::vector<sys::Fd> raw;
    for (u32 n = 0; n < cpus; ++n) {
      raw.emplace_back(::open((cpu(n) + "/snapshot_raw").c_str(), O_RDONLY | O_NONBLOCK));
      EXPECT_TRUE(raw.back()) << strerrorname_np(errno);
      char image[4096];
      EXPECT_EQ(read(raw.back().get(), image, sizeof image), 4096);
    }
  }
}

// Triggers

TEST_F(MountKernel, TriggersOfMarkersActBeforeTheWriteReturns) {
  start();
  const std::string file = top + "/events/ftrace/print/trigger";
  EXPECT_EQ(text_of(file).rfind("# Available triggers:\n", 0), 0u);
  EXPECT_EQ(write_to(file, "traceoff:2 if buf ~ \"stop*\""), "27");
  EXPECT_EQ(text_of(file), "traceoff:count=2 if buf ~ \"stop*\"\n");
  for (const char* bad : {"traceoff", "traceon", "traceoff:x", "traceoff+0", "nothing", "snapshot if",
                          "snapshot if nofield == 1", "snapshot if buf", "enable_event", "enable_event:no:such"})
    EXPECT_EQ(write_to(file, bad), std::string(bad) == "traceoff" || std::string(bad) == "traceon" ? "EEXIST" : "EINVAL")
        << bad;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(write_to(top + "/trace_marker", "go on"), "5");
    EXPECT_EQ(text_of(top + "/tracing_on"), "1\n");
    EXPECT_EQ(write_to(top + "/trace_marker", "stop"), "4");
    EXPECT_EQ(text_of(top + "/tracing_on"), i < 2 ? "0\n" : "1\n") << "it acts twice";
    EXPECT_EQ(write_to(top + "/tracing_on", "1"), "1");
  }
  EXPECT_EQ(write_to(file, "!traceoff:count=0"), "17");
  EXPECT_EQ(text_of(file).rfind("# Available triggers:\n", 0), 0u);

  EXPECT_NE(text_of(top + "/snapshot").find("* Snapshot is freed *"), std::string::npos);
  EXPECT_EQ(write_to(file, "snapshot"), "8");
  EXPECT_NE(text_of(top + "/snapshot").find("* Snapshot is allocated *"), std::string::npos);
  {
    const Mapping none(cpu(0) + "/trace_pipe_raw");
    EXPECT_EQ(none.base, nullptr) << "a ring that a snapshot may take away is not mapped";
  }
  ASSERT_EQ(write_to(top + "/trace", "", O_WRONLY | O_TRUNC), "0");
  EXPECT_EQ(write_to(top + "/trace_marker", "click"), "5");
  EXPECT_EQ(lines_with(text_of(top + "/snapshot"), "tracing_mark_write: click"), 1u);
  EXPECT_EQ(lines_with(text_of(top + "/trace"), "tracing_mark_write: click"), 0u);
  EXPECT_EQ(write_to(file, "!snapshot"), "9");
  const Mapping map(cpu(0) + "/trace_pipe_raw");
  EXPECT_NE(map.base, nullptr);
  EXPECT_EQ(write_to(file, "snapshot"), "EBUSY");
}

TEST_F(MountKernel, TriggersOfAProgramsEvents) {
  start();
  make_web();
  ASSERT_EQ(end_of(start_tick_writer("web", 1)), 0);
  const std::string file = web + "/events/app/tick/trigger", on = web + "/tracing_on";
  // With a pause, so that no two events have the same time: some machines' clocks step by more than an event takes.
  const auto ticks = [&](u64 n) { ASSERT_EQ(end_of(start_tick_writer("web", n, 1)), 0); };

  ASSERT_EQ(write_to(file, "traceoff:1 if number == 5"), "25");
  ticks(3);
  ticks(10);
  EXPECT_TRUE(eventually([&] { return text_of(on) == "0\n"; }));
  EXPECT_EQ(text_of(file), "traceoff:count=0 if number == 5\n");
  ASSERT_EQ(write_to(file, "!traceoff"), "9");

  // Recording begins with an event, and ends with another.
  ASSERT_EQ(write_to(web + "/trace", "", O_WRONLY | O_TRUNC), "0");
  ASSERT_EQ(write_to(file, "traceon if number == 7"), "22");
  EXPECT_EQ(text_of(on), "0\n") << "for clients it is still off";
  ticks(5);
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: "), 0u);
  ticks(10);  // 0 to 9
  EXPECT_TRUE(eventually([&] { return text_of(on) == "1\n"; }));
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: "), 3u) << text_of(web + "/trace");
  EXPECT_EQ(lines_with(text_of(web + "/trace"), "number=7"), 1u);
  ASSERT_EQ(write_to(on, "0"), "1");
  EXPECT_EQ(text_of(on), "0\n");
  ASSERT_EQ(write_to(file, "!traceon"), "8");
  EXPECT_EQ(text_of(on), "0\n") << "now in the rings as well";
  EXPECT_FALSE(must(Instance::open("web"))->tracing_on());
  ASSERT_EQ(write_to(on, "1"), "1");

  ASSERT_EQ(write_to(web + "/trace", "", O_WRONLY | O_TRUNC), "0");
  ASSERT_EQ(write_to(file, "snapshot if number == 4"), "23");
  ticks(5);
  EXPECT_TRUE(eventually([&] { return lines_with(text_of(web + "/snapshot"), "number=4") == 1; }));
  ASSERT_EQ(write_to(file, "!snapshot"), "9");

  ASSERT_EQ(write_to(file, "disable_event:app:tick if number == 2"), "37");
  EXPECT_EQ(text_of(file), "disable_event:app:tick:unlimited if number == 2\n");
  EXPECT_EQ(write_to(file, "enable_event:app:tick"), "EEXIST");
  ticks(3);
  EXPECT_TRUE(eventually([&] { return text_of(web + "/events/app/tick/enable") == "0\n"; }));
  ASSERT_EQ(write_to(file, "!disable_event:app:tick"), "23");
  EXPECT_EQ(rmdir(web.c_str()), 0) << strerrorname_np(errno);
}

// options/event-fork: what the processes in set_event_pid start belongs to them.
TEST_F(MountKernel, ChildrenOfChosenProcessesAreChosen) {
  start();
  make_web();
  const std::string own = std::to_string(getpid());
  ASSERT_EQ(write_to(web + "/set_event_pid", own), std::to_string(own.size()));
  ASSERT_EQ(end_of(start_tick_writer("web", 4)), 0);
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: "), 0u);
  ASSERT_EQ(write_to(web + "/options/event-fork", "1"), "1");
  const pid_t child = start_tick_writer("web", 1'000'000, 5000);
  EXPECT_TRUE(eventually([&] { return lines_with(text_of(web + "/trace"), ": tick: ") >= 4; }))
      << text_of(web + "/set_event_pid");
  EXPECT_EQ(text_of(web + "/set_event_pid"),
            getpid() < child ? own + "\n" + std::to_string(child) + "\n" : std::to_string(child) + "\n" + own + "\n");
  kill(child, SIGKILL);
  end_of(child);
}

}  // namespace
}  // namespace ringside::mount_kernel_test
