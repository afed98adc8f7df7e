// The stacks of `ringside record --stack`, frame by frame against those that the C library's unwinder finds in the same place.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "binary.hpp"
#include "gdb.hpp"
#include "instance/instance.hpp"
#include "kernel/tracefs_instance.hpp"
#include "ringside/base/types.hpp"
#include "sys/json.hpp"

namespace ringside {
namespace {

using nlohmann::json;
using test::Outcome;
using Frames = std::vector<u64>;

struct Stacks : test::BinaryTest {
  const std::string program = RINGSIDE_BUILD_DIR "/tests/preload_stacks " RINGSIDE_BUILD_DIR
                                                 "/tests/caller_near.so " RINGSIDE_BUILD_DIR "/tests/caller_far.so";
  std::vector<json> all;
  std::map<u64, Frames> stacks;
  std::map<u64, std::string> ended;

  Outcome record(const std::string& options, const std::string& command) {
    const Outcome o = ringside("record -b 16M " + options + " -o data -- " + command);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("; refused 0"), std::string::npos) << o.err;
    read();
    return o;
  }
  void read(const std::string& where = "data") {
    all = events(where);
    std::erase_if(all, [](const json& e) { return !e.contains("event"); });  // gaps
    stacks.clear();
    for (const json& e : all) {
      if (e["event"] != "ringside:stack") continue;
      const auto frames = e["fields"]["frames"].get<Frames>();
      const auto [at, fresh] = stacks.try_emplace(e["fields"]["id"], frames);
      EXPECT_EQ(at->second, frames) << "one number, two stacks";
      ended[e["fields"]["id"]] = e["fields"]["ended"];
    }
  }
  // The frames of the libc:malloc of this many bytes, in the order of time.
  std::vector<Frames> of_malloc(u64 size) const {
    std::vector<Frames> found;
    for (const json& e : all) {
      if (e["event"] != "libc:malloc" || e["fields"]["size"] != size) continue;
      const auto at = stacks.find(e["fields"]["stack"]);
      found.push_back(at != stacks.end() ? at->second : Frames{});
    }
    return found;
  }
};

TEST_F(Stacks, FrameByFrame) {
  for (const char* rings : {"cpu", "thread"}) {
    const Outcome o = record(std::string("--libc malloc --stack=libc:malloc --rings ") + rings, program);
    std::map<u64, std::vector<Frames>> truth;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      u64 size = 0;
      words >> size;
      Frames frames;
      for (u64 frame; words >> frame;) frames.push_back(frame);
      truth[size].push_back(frames);
    }
    EXPECT_EQ(truth.size(), 14u) << o.out;
    for (const auto& [size, expected] : truth) {
      const auto found = of_malloc(size);
      ASSERT_EQ(found.size(), expected.size()) << size;
      for (size_t n = 0; n < found.size(); ++n) {
        ASSERT_FALSE(found[n].empty()) << size << ": without a stack";
        Frames callers(found[n].begin() + 1, found[n].end());
        ASSERT_EQ(callers.size(), expected[n].size()) << size;
        u32 interrupted = 0;
        for (size_t i = 0; i < callers.size(); ++i) {
          if (callers[i] == expected[n][i]) continue;
          EXPECT_EQ(callers[i], expected[n][i] + 1) << size << ", frame " << i;  // a function that a signal interrupted
          ++interrupted;
        }
        EXPECT_EQ(interrupted, size == 5007 || size == 5008 ? 1u : 0u) << size;
      }
    }
    for (const auto& [id, how] : ended) EXPECT_EQ(how, "complete") << id;
  }
}

// The stacks of 4711 bytes that the walker allocates in front of each stop, with the names that `report` gives them.
struct WalkerStacks : Stacks {
  std::vector<std::vector<std::string>> recorded(const std::string& command) {
    record("--libc malloc --stack=libc:malloc", command);
    std::vector<std::vector<std::string>> found;
    for (const json& e : all)
      if (e["event"] == "libc:malloc" && e["fields"]["size"] == 4711) found.push_back(e["stack"]);
    return found;
  }
};

// A child of vfork has the memory of its parent, and then a program of its own at other addresses.
TEST_F(WalkerStacks, OfAChildOfVforkAndOfItsProgram) {
  if (!test::has_gdb()) GTEST_SKIP() << "there is no gdb";
  const std::string walker = RINGSIDE_BUILD_DIR "/tests/walker_O2";
  const auto gdb = test::by_gdb(walker, "vfork", 2);
  const auto ours = recorded(walker + " vfork");
  ASSERT_EQ(gdb.size(), 2u);
  ASSERT_EQ(ours.size(), 2u);
  for (size_t stop = 0; stop < 2; ++stop) {
    std::vector<test::GdbLine> names;
    for (const std::string& function : ours[stop]) names.push_back({function});
    const auto expected = test::from_capture_to_main(gdb[stop]), found = test::from_capture_to_main(names);
    ASSERT_GE(expected.size(), 14u);
    ASSERT_EQ(found.size(), expected.size()) << stop;
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i].function, expected[i].function) << "stop " << stop << ", frame " << i;
  }
  EXPECT_EQ(ours[0].end()[-1], "_start");
  EXPECT_EQ(ours[1].end()[-1], "_start");
}

TEST_F(WalkerStacks, OfAStrippedProgramAreTheDebuggersAddresses) {
  if (!test::has_gdb()) GTEST_SKIP() << "there is no gdb";
  const std::string walker = RINGSIDE_BUILD_DIR "/tests/walker_stripped";
  const auto gdb = test::by_gdb(walker, "handler");
  const auto ours = recorded(walker + " handler");
  ASSERT_EQ(gdb.size(), 1u);
  ASSERT_EQ(ours.size(), 1u);
  // Addresses in memory and in the file, of the instructions behind the calls and of the calls.
  std::vector<u64> expected, found;
  for (const test::GdbLine& line : gdb[0])
    if (line.function == "??" && !line.library) expected.push_back(line.address - 1);
  for (const std::string& function : ours[0])
    if (function.rfind("walker_stripped+", 0) == 0)
      found.push_back(std::stoull(function.substr(function.find('+') + 1), nullptr, 16));
  ASSERT_GE(expected.size(), 14u);
  ASSERT_EQ(found.size(), expected.size());
  const u64 begin = expected[1] - found[1];
  EXPECT_EQ(begin % 4096, 0u);
  for (size_t i = 1; i < found.size(); ++i)
    EXPECT_EQ(found[i] + begin, expected[i]) << "frame " << i;  // the first one stands at another call
}

// Every address of a stack lies in a map of its process that was written before the event.
TEST_F(Stacks, EveryAddressHasItsFile) {
  record("--libc malloc --stack=libc:malloc", program);
  struct Map {
    u64 start, end;
    std::string path, build_id;
  };
  std::map<i64, std::vector<Map>> maps;
  std::set<std::string> paths;
  size_t checked = 0;
  for (const json& e : all) {
    const json& f = e["fields"];
    if (e["event"] == "ringside:code_map") {
      auto& of = maps[f["pid"]];
      if (f["size"] == 0) of.clear();
      else of.push_back({f["start"], f["start"].get<u64>() + f["size"].get<u64>(), f["path"], f["build_id"]});
    }
    if (e["event"] != "libc:malloc" || f["stack"] == 0) continue;
    const auto& of = maps[e["pid"]];
    for (const u64 frame : stacks.at(f["stack"])) {
      const auto map =
          std::find_if(of.rbegin(), of.rend(), [&](const Map& m) { return frame - 1 >= m.start && frame - 1 < m.end; });
      ASSERT_NE(map, of.rend()) << std::hex << frame;
      EXPECT_TRUE(std::filesystem::exists(map->path)) << map->path;
      paths.insert(std::filesystem::path(map->path).filename());
      ++checked;
    }
  }
  EXPECT_GT(checked, 300u);
  for (const char* name : {"preload_stacks", "libc.so.6", "caller_near.so", "caller_far.so"})
    EXPECT_TRUE(paths.count(name)) << name;
}

TEST_F(Stacks, DepthAndPattern) {
  record("--libc malloc --stack=libc:malloc --depth 7", program);
  const auto found = of_malloc(5001);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].size(), 7u);
  for (const json& e : all) {
    EXPECT_EQ(e["fields"].contains("stack"), e["event"] == "libc:malloc") << e;
    if (e["event"] == "ringside:stack" && e["fields"]["frames"].size() == 7) {
      EXPECT_TRUE(e["fields"]["ended"] == "depth" || e["fields"]["ended"] == "complete") << e;
    }
  }
  EXPECT_EQ(ringside("record --libc malloc --stack --depth 0 true").code, 2);
  EXPECT_EQ(ringside("record --stack=/ true").code, 2);
}

// A repeated stack costs its number alone. Without --stack nothing is added.
TEST_F(Stacks, RepeatedOnesAreWrittenOnce) {
  record("--libc malloc --stack=libc:malloc", program);
  std::map<u64, size_t> used;
  for (const json& e : all)
    if (e["event"] == "libc:malloc") ++used[e["fields"]["stack"]];
  size_t copies = 0;
  for (const json& e : all) copies += e["event"] == "ringside:stack";
  EXPECT_LE(copies, stacks.size() * 2 * std::max<size_t>(sysconf(_SC_NPROCESSORS_CONF), 1));
  record("--libc malloc", program);
  EXPECT_TRUE(stacks.empty());
  for (const json& e : all) EXPECT_FALSE(e["fields"].contains("stack")) << e;
}

// The ring goes round many times, nobody reads: each event that survives has its stack, or is older than half of the ring.
TEST_F(Stacks, OverwritingLeavesTheNewerHalfItsStacks) {
  setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
  InstanceOptions options;
  options.name = "flight";
  options.buffer_size = 64 << 10;
  options.subbuf_size = 4096;
  const auto instance = must(Instance::create(options));
  must(instance->stacks(must(EventPatterns::parse("libc:*")), 64));
  const Outcome o = run("export RINGSIDE_INSTANCE=flight RINGSIDE_LIBC=malloc LD_PRELOAD=" RINGSIDE_BUILD_DIR
                        "/libringside-libc.so; i=0; "
                        "while [ $i -lt 40 ]; do taskset -c 0 " +
                        program + " again >/dev/null; i=$((i + 1)); done");
  unsetenv("RINGSIDE_ROOT");
  ASSERT_EQ(o.code, 0) << o.err;
  read("-i flight");
  std::map<u64, std::vector<bool>> missing;  // of each ring's events, in the order of time
  for (const json& e : all)
    if (e["fields"].contains("stack"))
      missing[e["ring"]].push_back(e["fields"]["stack"] == 0 || stacks.count(e["fields"]["stack"]) == 0);
  size_t checked = 0;
  for (const auto& [ring, lacks] : missing) {
    checked += lacks.size();
    // A sub-buffer more, because positions are counted in these.
    EXPECT_EQ(std::count(lacks.begin() + static_cast<std::ptrdiff_t>(lacks.size() * 5 / 8), lacks.end(), true), 0)
        << "ring " << ring << ", of " << lacks.size();
  }
  EXPECT_GT(checked, 100u);
}

// The sums of samples by function follow the work, which is 3 to 1; threads and children are sampled, too.
TEST_F(Stacks, SamplesFollowTheTime) {
  const std::string spin = dir + "/spin.c";
  std::ofstream(spin) << R"(
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>
volatile unsigned long x;
static volatile sig_atomic_t urgent;
static void on_urgent(int n) { (void)n; ++urgent; }
__attribute__((noinline)) void work(long n) { for (long i = 0; i < n; i++) x += i; }
__attribute__((noinline)) void more(void) { work(720000000); x++; }
__attribute__((noinline)) void less(void) { work(240000000); x++; }
static void* thread(void* p) { less(); return p; }
int main(void) {
  signal(SIGURG, on_urgent);
  pthread_t t; pthread_create(&t, 0, thread, 0); pthread_join(t, 0);
  more(); less();
  raise(SIGURG);
  const int child = fork();
  if (child == 0) { less(); _exit(0); }
  int status = 0;
  waitpid(child, &status, 0);
  return urgent != 1 || status != 0 ? 1 : 0;
})";
  ASSERT_EQ(run("gcc -O1 -no-pie -o spin spin.c -pthread && nm spin >symbols").code, 0);
  std::map<u64, std::string> functions;
  std::ifstream symbols(dir + "/symbols");
  for (std::string line; std::getline(symbols, line);) {
    std::istringstream words(line);
    u64 address = 0;
    std::string type, name;
    if (words >> std::hex >> address >> type >> name && (type == "T" || type == "t")) functions[address] = name;
  }
  record("--sample 999", "./spin");
  std::map<std::string, double> time;
  std::set<json> tids;
  for (const json& e : all) {
    if (e["event"] != "ringside:sample") continue;
    tids.insert(e["tid"]);
    const auto at = stacks.find(e["fields"]["stack"]);
    if (at == stacks.end()) continue;
    for (const u64 frame : at->second) {
      const auto function = functions.upper_bound(frame - 1);
      if (function == functions.begin() || frame > 0x1000000) continue;
      time[std::prev(function)->second] += e["fields"]["count"].get<double>();
    }
  }
  EXPECT_EQ(tids.size(), 3u);
  ASSERT_GT(time["less"], 0);
  const double share = time["more"] / (time["more"] + time["less"]);
  EXPECT_GT(share, 0.3);  // 0.5 is the truth
  EXPECT_LT(share, 0.7);
  EXPECT_GE(time["work"], 0.9 * (time["more"] + time["less"]));
}

// Main programs whose segments have others between them: the dynamic linker gives one segment for an address, which has no
// ELF header. In static programs it gives no tables either.
TEST_F(Stacks, OfProgramsInPieces) {
  std::ofstream(dir + "/gaps.c") << R"(
#include <stdlib.h>
static void* volatile kept;
__attribute__((noinline)) void inner(void) { kept = malloc(4711); }
__attribute__((noinline)) void outer(void) { inner(); free(kept); }
int main(void) { outer(); return 0; })";
  for (const char* page : {"0x1000", "0x10000", "0x200000"}) {
    ASSERT_EQ(run(std::string("gcc -O0 -Wl,-z,separate-code,-z,max-page-size=") + page + " -o gaps gaps.c").code, 0);
    record("--libc malloc --stack=libc:malloc", "./gaps");
    const std::string folded = ringside("flame --folded --root none -e libc:malloc -f 'size == 4711' data").out;
    EXPECT_NE(folded.find("_start;"), std::string::npos) << page << folded;
    EXPECT_NE(folded.find(";main;outer;inner 1\n"), std::string::npos) << page << folded;
  }
  std::ofstream(dir + "/alone.c") << R"(
#include <ringside/ringside.h>
RINGSIDE_EVENT(alone, tick, (int, n));
__attribute__((noinline)) void inner(void) { alone_tick(1); __asm__ volatile(""); }
__attribute__((noinline)) void outer(void) { inner(); __asm__ volatile(""); }
int main(void) { outer(); return 0; })";
  ASSERT_EQ(run("gcc -O0 -c -I " RINGSIDE_SOURCE_DIR "/include alone.c && g++ -static -o alone alone.o " RINGSIDE_BUILD_DIR
                "/libringside.a")
                .code,
            0);
  record("--stack=alone:tick", "./alone");
  const std::string folded = ringside("flame --folded --root none -e alone:tick data").out;
  EXPECT_NE(folded.find(";main;outer;inner 1\n"), std::string::npos) << folded;
}

// Two libraries in turn at the same addresses: with calls at different places, and at the same.
TEST_F(Stacks, OfLibrariesThatTakeEachOthersPlace) {
  std::ofstream(dir + "/library.c") << R"(
#include <stdlib.h>
static void* volatile kept;
#ifdef MOVED
int unused(int a) { for (int i = 0; i < a; i++) a ^= i * 7 + (a >> 3); return a; }
#endif
__attribute__((noinline)) void INNER(void) { kept = malloc(4711); free(kept); }
__attribute__((noinline)) void run(void) { INNER(); __asm__(""); })";
  std::ofstream(dir + "/loads.c") << R"(
#include <dlfcn.h>
int main(int count, char** library) {
  for (int i = 0; i < 100; i++) {
    void* const handle = dlopen(library[1 + i % (count - 1)], RTLD_NOW);
    if (handle == 0) return 1;
    ((void (*)(void))dlsym(handle, "run"))();
    dlclose(handle);
  }
  return 0;
})";
  ASSERT_EQ(run("gcc -O1 -o loads loads.c -ldl && gcc -O1 -fPIC -shared -DINNER=ours library.c -o ours.so && "
                "gcc -O1 -fPIC -shared -DINNER=same library.c -o same.so && "
                "gcc -O1 -fPIC -shared -DINNER=other -DMOVED library.c -o other.so")
                .code,
            0);
  for (const std::string second : {"same", "other"}) {
    record("--libc malloc --stack=libc:malloc", "./loads ./ours.so ./" + second + ".so");
    const std::string folded = ringside("flame --folded --root none -e libc:malloc -f 'size == 4711' data").out;
    EXPECT_NE(folded.find(";main;run;ours 50\n"), std::string::npos) << folded;
    EXPECT_NE(folded.find(";main;run;" + second + " 50\n"), std::string::npos) << folded;
  }
}

// The program sees the signals that it sees alone, and its threads have samples.
TEST_F(Stacks, SamplesChangeNoProgramThatUsesSignals) {
  const std::string signals = RINGSIDE_BUILD_DIR "/tests/preload_signals ";
  for (const char* which : {"waits", "handles", "installs", "c11", "coroutine", "takes", "later", "jumps"}) {
    const Outcome alone = run(signals + which);
    ASSERT_EQ(alone.code, 0) << which;
    const Outcome recorded = record("--sample 999", signals + which);
    EXPECT_EQ(recorded.out, alone.out) << which;
    const std::string folded = ringside("flame --folded --root none data").out;
    std::istringstream lines(folded);
    u64 samples = 0;
    for (std::string line; std::getline(lines, line);)
      samples += line.find(";burn") != std::string::npos ? std::stoull(line.substr(line.rfind(' ') + 1)) : 0;
    const std::set<std::string> burns_once = {"c11", "takes", "jumps"};  // where it is not blocked; "later" never does
    const u64 least = which == std::string("later") ? 0 : burns_once.count(which) != 0 ? 50 : 75;  // of 150 in each burn()
    EXPECT_GE(samples, least) << which << "\n" << folded;
    for (const char* caller : {"burn_and_send", "c11_thread"}) {
      const bool expected = which == std::string(caller[0] == 'b' ? "waits" : "c11");
      EXPECT_EQ(folded.find(";" + std::string(caller) + ";burn") != std::string::npos, expected) << folded;
    }
  }
}

// Alternate signal stacks of the usual size, of one without room for a sample, and of one without room for the kernel's frame.
TEST_F(Stacks, SamplesOnAlternateStacks) {
  for (const char* rings : {"cpu", "thread"}) {
    for (const std::string which : {"usual", "small", "tiny"}) {
      const std::string command = RINGSIDE_BUILD_DIR "/tests/preload_signals " + which;
      const Outcome alone = run(command);
      if (alone.code == 77) continue;  // this processor's registers need more than that
      ASSERT_EQ(alone.code, 0) << which;
      const Outcome recorded = record(std::string("--sample 999 --rings ") + rings, command);
      EXPECT_EQ(recorded.out, alone.out) << which;
      u64 samples = 0;
      for (const json& e : all)
        if (e["event"] == "ringside:sample") samples += e["fields"]["count"].get<u64>();
      EXPECT_GT(samples, which == "usual" ? 150u : 75u) << which << rings;  // behind the coroutine there is room
      const bool says = recorded.err.find("too small for the kernel's signal frame") != std::string::npos;
      EXPECT_EQ(says, which == "tiny") << recorded.err;
    }
  }
}

// A dlclose that unloads nothing leaves what is known.
TEST_F(Stacks, StayKnownWhereNothingIsUnloaded) {
  std::ofstream(dir + "/rounds.c") << R"(
#include <dlfcn.h>
#include <stdlib.h>
static void* volatile kept;
__attribute__((noinline)) void once(void) { kept = malloc(4711); free(kept); }
int main(void) {
  for (int i = 0; i < 100; i++) {
    once();
    dlclose(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD));
  }
  return 0;
})";
  ASSERT_EQ(run("gcc -O0 -o rounds rounds.c -ldl").code, 0);
  record("--libc malloc --stack=libc:malloc --rings thread", "./rounds");
  std::map<u64, u64> copies;
  for (const json& e : all)
    if (e["event"] == "ringside:stack") ++copies[e["fields"]["id"].get<u64>()];
  u64 mallocs = 0;
  for (const json& e : all) {
    if (e["event"] != "libc:malloc" || e["fields"]["size"] != 4711) continue;
    ++mallocs;
    EXPECT_EQ(copies[e["fields"]["stack"].get<u64>()], 1u);
  }
  EXPECT_EQ(mallocs, 100u);
}

TEST_F(Stacks, WhyThereAreNoSamplesIsSaid) {
  const std::string signals = " " RINGSIDE_BUILD_DIR "/tests/preload_signals ";
  const auto err = [&](const std::string& command) { return ringside("record --sample 10 -o data" + command).err; };
  EXPECT_NE(err(signals + "limited").find("1 thread has no samples: the kernel gave no timer; ulimit -i"), std::string::npos);
  const std::string none = err(" prlimit --sigpending=0" + signals + "limited");
  EXPECT_NE(none.find("2 threads have no samples: the kernel gave no timer"), std::string::npos) << none;
  EXPECT_EQ(none.find("CPU time"), std::string::npos) << none;
  const std::string blocked = err(signals + "blocks");
  EXPECT_NE(blocked.find(" s of CPU time and has no samples: it may block SIGURG"), std::string::npos) << blocked;
  EXPECT_NE(err(" true").find(" s of CPU time: no thread came to a sample"), std::string::npos);
  EXPECT_NE(err(" " RINGSIDE_BUILD_DIR "/tests/preload_greeter_static").find("is a static program"), std::string::npos);
  const Outcome small = ringside("record --sample 999 -o data" + signals + "small");
  if (small.code == 77) return;  // this processor's registers need more than that
  EXPECT_EQ(small.code, 0) << small.err;
  EXPECT_EQ(small.out, "back\n");
  EXPECT_NE(small.err.find("not taken: the thread's alternate signal stack was too small"), std::string::npos) << small.err;
  EXPECT_EQ(small.err.find("it may block SIGURG"), std::string::npos) << small.err;
}

// The kernel's own stacks: one behind each event that was chosen, none behind the others, with names.
TEST_F(Stacks, OfTheKernelsEvents) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  for (const char* pattern : {"--kstack", "--kstack=sys_enter_read"}) {
    const Outcome o = ringside(std::string("record -e syscalls:sys_enter_read,syscalls:sys_enter_write ") + pattern +
                               " -o data -- dd if=/dev/zero of=/dev/null bs=1 count=50");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_GT(std::filesystem::file_size(dir + "/data/kallsyms"), 1000u);
    size_t with[2] = {}, without[2] = {};
    for (const json& e : events("data")) {
      if (!e.contains("event") || (e["event"] != "syscalls:sys_enter_read" && e["event"] != "syscalls:sys_enter_write"))
        continue;
      const bool of_read = e["event"] == "syscalls:sys_enter_read", has = e.contains("stack") && !e["stack"].empty();
      ++(has ? with : without)[of_read ? 1 : 0];
      if (has) {
        EXPECT_NE(e["stack"].dump().find("syscall"), std::string::npos) << e;
      }
    }
    const bool all_of_them = pattern == std::string("--kstack");
    EXPECT_GE(with[1], 50u);
    EXPECT_EQ(without[1], 0u);
    EXPECT_EQ((all_of_them ? with : without)[0] >= 50, true);
    EXPECT_EQ((all_of_them ? without : with)[0], 0u);
  }
  EXPECT_EQ(ringside("record -e sched:sched_switch --kstack=sched_wakeup true").code, 1);
}

TEST_F(Stacks, OptionsThatCannotBe) {
  EXPECT_EQ(ringside("record --sample often -- true").code, 2);
  EXPECT_EQ(ringside("record --sample 999 -e sched").code, 2);
  EXPECT_EQ(ringside("record --kstack true").code, 2);
  EXPECT_EQ(ringside("record --stack -e sched").code, 2);
}

}  // namespace
}  // namespace ringside
