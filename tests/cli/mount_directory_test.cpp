// One mount of many instances: numbers and names that hold for all of them, sizes, modes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/ringside.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "cli/mount_fixture.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside::mount_directory_test {
namespace {

using namespace test;

struct MountDirectory : Mount {
  std::string of(const char* instance) const { return top + "/instances/" + instance; }
  void make(const char* instance) { ASSERT_EQ(mkdir(of(instance).c_str(), 0700), 0) << strerrorname_np(errno); }
  // A program that declares these events, SYSTEM:NAME with a field of this name, in this order.
  struct Declared {
    const char *system, *name, *field;
  };
  static void declare(const std::string& instance, const std::vector<Declared>& events) {
    const pid_t child = fork();
    if (child == 0) {
      int done = ringside_open(instance.c_str());
      for (const Declared& d : events) {
        auto* const e = new ringside_event{};
        e->system = d.system;
        e->name = d.name;
        e->format_fields = strdup(("\tfield:u64 " + std::string(d.field) + ";\toffset:8;\tsize:8;\tsigned:0;\n").c_str());
        e->print_fmt = strdup(("\"" + std::string(d.field) + "=%llu\", REC->" + d.field).c_str());
        if (done == 0) done = ringside_register(e);
      }
      _exit(done == 0 ? 0 : 1);
    }
    ASSERT_EQ(end_of(child), 0);
  }
  static std::string id(const std::string& tracing, const char* event) { return text_of(tracing + "/events/" + event + "/id"); }
};

// `trace-cmd extract -B b` decodes b's events by the formats below the top's events/: b's first event was another of a's there.
TEST_F(MountDirectory, EventsHaveOneNumberInAllInstances) {
  start();
  for (const char* name : {"a", "b", "c"}) make(name);
  declare("a", {{"one", "x", "first"}, {"one", "y", "second"}});
  declare("b", {{"two", "z", "third"}, {"one", "y", "second"}, {"one", "x", "other"}});
  declare("c", {{"one", "y", "second"}, {"two", "z", "third"}, {"one", "x", "first"}});
  EXPECT_EQ(id(of("a"), "one/y"), id(of("b"), "one/y"));
  EXPECT_EQ(id(of("a"), "one/y"), id(of("c"), "one/y"));
  EXPECT_EQ(id(of("a"), "one/x"), id(of("c"), "one/x"));
  EXPECT_EQ(id(of("b"), "two/z"), id(of("c"), "two/z"));
  const std::set<std::string> all{id(of("a"), "one/x"), id(of("a"), "one/y"), id(of("b"), "two/z"), id(of("b"), "one/x")};
  EXPECT_EQ(all.size(), 4u) << "an event with other fields is another event, and so is one with another name";
  // The top lists them all, and none of the instances has one that differs there.
  for (const char* name : {"a", "b", "c"}) {
    for (const auto& entry : fs::recursive_directory_iterator(of(name) + "/events")) {
      if (entry.path().filename() != "format") continue;
      const std::string format = text_of(entry.path()), number = text_of(entry.path().parent_path() / "id");
      bool found = false;
      for (const auto& listed : fs::recursive_directory_iterator(top + "/events"))
        if (listed.path().filename() == "format" && text_of(listed.path().parent_path() / "id") == number) {
          EXPECT_EQ(text_of(listed.path()), format);
          found = true;
        }
      EXPECT_TRUE(found) << entry.path();
    }
  }
  EXPECT_EQ(lines_with(text_of(top + "/available_events"), "one:y\n"), 1u);
  EXPECT_EQ(text_of(top + "/events/two/z/enable"), "0\n");
  ASSERT_EQ(write_to(top + "/events/two/z/enable", "1"), "1");
  EXPECT_EQ(text_of(top + "/events/two/z/enable"), "1\n");
  EXPECT_EQ(text_of(top + "/set_event"), "two:z\n");
  EXPECT_EQ(text_of(of("b") + "/events/two/z/enable"), "0\n") << "each instance has its own switches";
  ASSERT_EQ(write_to(top + "/events/two/z/filter", "third > 3"), "9");
  EXPECT_EQ(text_of(top + "/events/two/z/filter"), "third > 3\n");
}

// Its names were those of its own threads: `trace-cmd report` showed <...> for all others.
TEST_F(MountDirectory, TheTopKnowsTheThreadsOfAllInstances) {
  start();
  make("a");
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, "in-a-alone");
    _exit(write_to(of("a") + "/trace_marker", "here") == "4" ? 0 : 1);
  }
  ASSERT_EQ(end_of(child), 0);
  const std::string line = std::to_string(child) + " in-a-alone\n";
  EXPECT_EQ(lines_with(text_of(of("a") + "/saved_cmdlines"), line), 1u) << text_of(of("a") + "/saved_cmdlines");
  EXPECT_EQ(lines_with(text_of(top + "/saved_cmdlines"), line), 1u) << text_of(top + "/saved_cmdlines");
  ASSERT_EQ(write_to(top + "/saved_cmdlines_size", "1"), "1");
  EXPECT_EQ(lines_with(text_of(top + "/saved_cmdlines"), "\n"), 1u);
  EXPECT_EQ(write_to(top + "/saved_cmdlines_size", "0"), "EINVAL");
}

// 200 resizes left 402 folders, and each took longer than the one before.
TEST_F(MountDirectory, AResizedEmptyRingLeavesNothing) {
  if (!cpu_rings()) GTEST_SKIP() << "no rings of CPUs here";
  start();
  make("a");
  const auto rings = [&](const std::string& where) {
    return std::distance(fs::directory_iterator(where + "/per_cpu"), fs::directory_iterator());
  };
  const std::string kept = dir + "/root/a";
  const auto before = rings(of("a")), kept_before = rings(kept);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(write_to(of("a") + "/buffer_size_kb", i % 2 == 0 ? "100" : "200"), "3");
  EXPECT_EQ(rings(of("a")), before);
  EXPECT_LE(rings(kept), 2 * kept_before);
  // One that holds events is still there to be read.
  ASSERT_EQ(write_to(of("a") + "/trace_marker", "kept"), "4");
  ASSERT_EQ(write_to(of("a") + "/buffer_size_kb", "100"), "3");
  ASSERT_EQ(write_to(of("a") + "/buffer_size_kb", "200"), "3");
  EXPECT_EQ(lines_with(text_of(of("a") + "/trace"), ": kept"), 1u);
}

// Each number is the kernel's: 5,000 was 5,006 after a change of the sub-buffers' size.
TEST_F(MountDirectory, SizesAreTheKernels) {
  const std::string theirs = "/sys/kernel/tracing/instances/ringside-sizes-" + std::to_string(getpid());
  if (mkdir(theirs.c_str(), 0700) != 0) GTEST_SKIP() << "no instance of tracefs: " << strerrorname_np(errno);
  start();
  make("a");
  const std::pair<const char*, const char*> steps[] = {{"buffer_size_kb", "1"},        {"buffer_size_kb", "101"},
                                                       {"buffer_size_kb", "5000"},     {"buffer_subbuf_size_kb", "8"},
                                                       {"buffer_subbuf_size_kb", "4"}, {"buffer_size_kb", "16"}};
  for (const auto& [file, value] : steps) {
    const std::string ours = write_to(of("a") + "/" + file, value), kernels = write_to(theirs + "/" + file, value);
    if (kernels.find("ENOENT") != std::string::npos) continue;  // an older kernel
    EXPECT_EQ(ours, kernels);
    for (const char* shown : {"/buffer_size_kb", "/per_cpu/cpu0/buffer_size_kb"})
      EXPECT_EQ(text_of(of("a") + shown), text_of(theirs + shown)) << file << " " << value;
  }
  rmdir(theirs.c_str());
}

// Readers name a marker by the address in it: it was 0, which is the name of nothing.
TEST_F(MountDirectory, AMarkersAddressIsTracingMarkWrite) {
  u64 address = 0;
  std::ifstream symbols("/proc/kallsyms");
  for (std::string line; address == 0 && std::getline(symbols, line);)
    if (line.size() > 20 && line.compare(19, std::string::npos, "tracing_mark_write") == 0)
      address = std::strtoull(line.c_str(), nullptr, 16);
  if (address == 0) GTEST_SKIP() << "/proc/kallsyms does not show the address of tracing_mark_write";
  start();
  make("a");
  const OnCpu pinned(0);
  ASSERT_EQ(write_to(of("a") + "/trace_marker", "x"), "1");
  const sys::Fd raw(::open((of("a") + "/per_cpu/cpu0/trace_pipe_raw").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  alignas(8) u8 page[4096];
  ASSERT_EQ(read(raw.get(), page, sizeof page), 4096);
  abi::EventCursor c(page + 16, 0, static_cast<u32>(page[8] | page[9] << 8), 0);
  ASSERT_TRUE(c.next());
  u64 ip = 0;
  std::memcpy(&ip, c.payload().data + 8, sizeof ip);
  EXPECT_EQ(ip, address);
}

// Each file and directory that both have has one mode.
TEST_F(MountDirectory, ModesAreTheKernels) {
  const std::string tracefs = "/sys/kernel/tracing", theirs = tracefs + "/instances/ringside-modes-" + std::to_string(getpid());
  if (mkdir(theirs.c_str(), 0700) != 0) GTEST_SKIP() << "no instance of tracefs: " << strerrorname_np(errno);
  start();
  make("a");
  declare("a", {{"one", "x", "first"}});
  u32 compared = 0;
  std::string differ;
  const auto compare = [&](const std::string& here, const std::string& there) {
    struct stat ours {
    }, kernels{};
    if (stat(here.c_str(), &ours) != 0 || stat(there.c_str(), &kernels) != 0) return;
    ++compared;
    if (ours.st_mode != kernels.st_mode) {
      char text[512];
      snprintf(text, sizeof text, "%s %o, %s %o\n", here.c_str(), ours.st_mode, there.c_str(), kernels.st_mode);
      differ += text;
    }
  };
  const auto compare_in = [&](const std::string& here, const std::string& there) {
    if (here != top) compare(here, there);  // a mount option chooses the mode of the root
    for (const auto& entry : fs::directory_iterator(here))
      compare(entry.path(), there + "/" + entry.path().filename().string());
  };
  compare_in(top, tracefs);
  compare_in(of("a"), theirs);
  for (const char* folder : {"/options", "/events", "/per_cpu", "/per_cpu/cpu0"}) compare_in(of("a") + folder, theirs + folder);
  compare_in(of("a") + "/events/one", theirs + "/events/sched");
  compare_in(of("a") + "/events/one/x", theirs + "/events/sched/sched_switch");
  rmdir(theirs.c_str());
  EXPECT_EQ(differ, "");
  EXPECT_GT(compared, 60u);
}

}  // namespace
}  // namespace ringside::mount_directory_test
