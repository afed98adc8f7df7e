// `ringside record --libc` on real programs: every call counted, and the program none the wiser.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "binary.hpp"
#include "memory_cgroup.hpp"
#include "ringside/base/types.hpp"
#include "sys/json.hpp"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;

using Strings = std::set<std::string>;
const std::string programs = RINGSIDE_BUILD_DIR "/tests/preload_";

struct Preload : test::BinaryTest {
  std::vector<json> events;
  std::string rings = "auto";

  Outcome record(const std::string& command, const std::string& libc = "malloc,io,mutex") {
    const Outcome o = ringside("record -b 64M --rings " + rings + " --libc " + libc + " -o data -- " + command);
    events.clear();
    const Outcome report = ringside("report data --json");
    EXPECT_EQ(report.code, 0) << report.err;
    std::istringstream lines(report.out);
    for (std::string line; std::getline(lines, line);) events.push_back(json::parse(line));
    EXPECT_EQ(report.err, events.empty() ? "ringside: data has no events\n" : "");
    const json stat = json::parse(ringside("stat data --json").out);
    EXPECT_EQ(stat["adds_up"], true);
    EXPECT_EQ(stat["total"]["written"], events.size()) << "lost, or left behind";
    EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("; refused 0"), std::string::npos) << o.err;
    EXPECT_TRUE(fs::is_empty(dir + "/root")) << "an instance was left behind";
    return o;
  }

  // How many `event`s have all these fields.
  size_t count(const std::string& event, const json& fields = json::object()) const {
    return static_cast<size_t>(std::count_if(events.begin(), events.end(), [&](const json& e) {
      if (e["event"] != "libc:" + event) return false;
      return std::all_of(fields.items().begin(), fields.items().end(),
                         [&](const auto& field) { return e["fields"].at(field.key()) == field.value(); });
    }));
  }

  // Frees of what `ours` accepted, in time order; each at most once.
  template <class F>
  size_t frees_of(F ours) const {
    std::set<std::pair<int, u64>> held;  // pid, address
    const auto key = [](const json& e, const char* field) { return std::pair<int, u64>(e["pid"], e["fields"][field]); };
    size_t frees = 0;
    for (const json& e : events) {
      const json& f = e["fields"];
      if (e["event"] == "libc:free")
        frees += held.erase(key(e, "ptr"));
      else if (f.contains("ptr") && ours(f))
        held.insert(key(e, "ptr"));
      if (e["event"] == "libc:realloc" && f["old"] != f["ptr"]) held.erase(key(e, "old"));
    }
    EXPECT_TRUE(held.empty());
    return frees;
  }

  // The same program's own output and exit code, without and with recording.
  Outcome same_as_alone(const std::string& command, const std::string& libc = "malloc,io,mutex") {
    const Outcome alone = run(command), recorded = record(command, libc);
    EXPECT_EQ(alone.code, recorded.code) << command << recorded.err;
    EXPECT_EQ(alone.out, recorded.out) << command;
    EXPECT_EQ(recorded.err.find(alone.err), 0u) << command << recorded.err;
    return recorded;
  }
};

// Where a cgroup limits memory, the writer asks how much is left in the middle of an event. The program's hooks and its
// cancellation are none the wiser.
TEST_F(Preload, BelowAMemoryLimitTheSame) {
  const test::MemoryCgroup group(u64{1} << 30);
  if (group.path.empty()) GTEST_SKIP() << test::no_memory_cgroup;
  const std::string inside = "sh -c 'echo $$ >" + group.path + "/cgroup.procs && exec \"$@\"' sh ",
                    reads = "dd if=/dev/zero of=/dev/null bs=1 count=3000 status=none";
  for (const char* which : {"cpu", "thread"}) {
    rings = which;
    EXPECT_EQ(record(inside + reads, "io").code, 0);
    const size_t of_limit = static_cast<size_t>(std::count_if(events.begin(), events.end(), [&](const json& e) {
      return e.dump().find("/sys/fs/cgroup/memory") != std::string::npos && e.dump().find("procs") == std::string::npos;
    }));
    EXPECT_EQ(of_limit, 0u);
    EXPECT_GE(count("read"), 3000u);
    EXPECT_EQ(record(inside + programs + "cancelled", "malloc").code, 0);
    EXPECT_GT(count("free"), 10000u);
  }
}

// Bytes of stack by call, as the program prints them.
std::map<std::string, long> stack_used(const std::string& text) {
  std::map<std::string, long> used;
  std::istringstream lines(text);
  std::string call;
  for (long bytes = 0; lines >> call >> bytes;) used[call] = bytes;
  return used;
}

// Handlers on small alternate stacks, and coroutines.
TEST_F(Preload, ACallTakesOneKilobyteOfStackMore) {
  const test::MemoryCgroup group(u64{300} << 20);
  const std::string enter = group.path.empty() ? "" : "sh -c 'echo $$ >" + group.path + "/cgroup.procs && exec \"$@\"' sh ";
  const Outcome alone = run(programs + "painted");
  ASSERT_EQ(alone.code, 0);
  const auto before = stack_used(alone.out);
  ASSERT_EQ(before.size(), 7u);
  for (const auto& [options, most] : std::map<std::string, long>{{"", 1024}, {"--stack", 2048}})
    for (const char* which : {"auto", "thread"})
      for (const std::string& where : {std::string(), enter}) {
        const Outcome o = ringside("record --libc malloc,io,lock -o data " + options + " --rings " + which + " -- " + where +
                                   programs + "painted");
        EXPECT_EQ(o.code, 0) << options << which << o.err;
        const auto used = stack_used(o.out);
        EXPECT_EQ(used.size(), before.size());
        for (const auto& [call, bytes] : used) EXPECT_LE(bytes - before.at(call), most) << call << ' ' << options << ' ' << which;
      }
}

TEST_F(Preload, EveryCallIsCounted) {
  constexpr size_t threads = 6, children = 3, workers = 1 + threads + 2 * children;
  fs::create_directories(dir + "/files");
  EXPECT_EQ(record(programs + "counts files " + std::to_string(threads) + " " + std::to_string(children)).code, 0);

  for (const auto& [size, times] :
       std::map<int, size_t>{{1001, 100}, {1002, 30}, {1003, 1}, {1004, 1}, {1005, 1}, {1006, 1}, {1088, 1}})
    EXPECT_EQ(count("malloc", {{"size", size}}), times * workers) << size;
  EXPECT_EQ(count("calloc", {{"nmemb", 7}, {"size", 143}}), 50 * workers);
  for (const auto& [size, times] : std::map<int, size_t>{{2002, 30}, {3003, 30}, {2009, 1}})
    EXPECT_EQ(count("realloc", {{"size", size}}), times * workers) << size;
  const std::set<json> sizes{143, 1001, 1002, 1003, 1004, 1005, 1006, 1088, 2002, 2009, 3003};
  EXPECT_EQ(frees_of([&](const json& f) { return sizes.count(f["size"]) != 0; }), 186 * workers);

  EXPECT_EQ(count("open"), 9 * workers);
  EXPECT_EQ(count("open", {{"path", "/dev/zero"}, {"flags", 2}}), 6 * workers);
  EXPECT_EQ(count("open", {{"path", ""}, {"ret", -1}}), workers);
  EXPECT_EQ(count("close"), 16 * workers);
  EXPECT_EQ(count("close", {{"ret", -1}}), workers);
  EXPECT_EQ(count("read"), 78 * workers);
  EXPECT_EQ(count("read", {{"count", 30}, {"ret", 30}}), 5 * workers);
  EXPECT_EQ(count("read", {{"count", 17}, {"ret", 17}}), 4 * workers);
  EXPECT_EQ(count("read", {{"count", 19}, {"ret", 19}}), 5 * workers);
  EXPECT_EQ(count("write"), 65 * workers);
  EXPECT_EQ(count("write", {{"count", 17}, {"ret", 17}}), 4 * workers);
  EXPECT_EQ(count("write", {{"count", 19}, {"ret", 19}}), 5 * workers);
  EXPECT_EQ(count("write", {{"count", 64}, {"ret", 64}}), 50 * workers);
  EXPECT_EQ(count("mutex_lock"), 244 * workers);
  EXPECT_EQ(count("mutex_lock", {{"ret", 0}}), 232 * workers);
  EXPECT_EQ(count("mutex_lock", {{"ret", EBUSY}}), 11 * workers);
  EXPECT_EQ(count("mutex_lock", {{"ret", ETIMEDOUT}}), workers);

  std::set<json> tids;
  for (const json& e : events) tids.insert(e["tid"]);
  EXPECT_EQ(tids.size(), workers);

  for (const char* event : {"malloc", "realloc", "read", "mutex_lock"}) {
    const char* field = event == std::string("mutex_lock") ? "wait_ns" : "duration_ns";
    const json hist = json::parse(ringside("hist libc:" + std::string(event) + "/event data --json -v " + field).out);
    EXPECT_EQ(hist["count"], count(event)) << event;
  }
}

TEST_F(Preload, OnlyTheGroupsThatWereNamed) {
  fs::create_directories(dir + "/files");
  for (const auto& [group, theirs] :
       std::map<std::string, std::set<std::string>>{{"malloc", {"malloc", "calloc", "realloc", "free"}},
                                                    {"io", {"read", "write", "open", "close"}},
                                                    {"mutex", {"mutex_lock"}},
                                                    {"lock", {"mutex_lock"}}}) {
    EXPECT_EQ(record(programs + "counts files 1 1", group).code, 0);
    std::set<std::string> seen;
    for (const json& e : events) seen.insert(e["event"].get<std::string>().substr(5));
    EXPECT_EQ(seen, theirs);
  }
}

// Read-write locks, spinning ones, conditions and semaphores, by pthread, C11 and C++; threads that are cancelled in a wait.
TEST_F(Preload, LocksAndWaitsAreCounted) {
  constexpr size_t threads = 4, workers = threads + 1;
  EXPECT_EQ(record(programs + "locks " + std::to_string(threads), "lock").code, 0);
  EXPECT_EQ(count("rwlock_lock"), 18 * workers);
  EXPECT_EQ(count("rwlock_lock", {{"write", true}}), 9 * workers);
  EXPECT_EQ(count("rwlock_lock", {{"write", true}, {"ret", EBUSY}}), 4 * workers);
  EXPECT_EQ(count("rwlock_lock", {{"write", false}, {"ret", EBUSY}}), 4 * workers);
  EXPECT_EQ(count("rwlock_lock", {{"ret", 0}}), 10 * workers);
  EXPECT_EQ(count("spin_lock"), 3 * workers);
  EXPECT_EQ(count("spin_lock", {{"ret", EBUSY}}), workers);
  EXPECT_EQ(count("cond_wait"), 4 * workers);
  EXPECT_EQ(count("cond_wait", {{"ret", ETIMEDOUT}}), 4 * workers);
  EXPECT_EQ(count("cond_signal"), 5 * workers);
  EXPECT_EQ(count("cond_signal", {{"all", true}}), 3 * workers);
  EXPECT_EQ(count("sem_post"), workers);
  EXPECT_EQ(count("sem_wait", {{"ret", 0}}), workers);
  EXPECT_EQ(count("sem_wait", {{"ret", EAGAIN}}), workers);
  EXPECT_EQ(count("sem_wait", {{"ret", ETIMEDOUT}}), 2 * workers);
  EXPECT_GE(count("mutex_lock"), 3 * workers) << "the group lock has them";
  EXPECT_EQ(record(programs + "locks 1", "mutex").code, 0);
  EXPECT_EQ(count("rwlock_lock") + count("sem_post") + count("cond_wait"), 0u);
}

// A wait has the time that its thread waited by its own clock, and stands below the one that held the lock or ended the wait.
TEST_F(Preload, WaitsAndHolders) {
  const Outcome o = ringside("record --libc lock --stack -o data -- " + programs + "locks contended");
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream said(o.out);
  std::string name;
  const std::map<std::string, std::string> how{
      {"rwlock_lock", "-- held by"}, {"spin_lock", "-- held by"}, {"cond_wait", "-- woken by"}, {"sem_wait", "-- woken by"}};
  size_t seen = 0;
  for (u64 waited = 0; said >> name >> waited; ++seen) {
    const Outcome flame = ringside("flame data --contention --folded -f 'wait_ns > 1000000 && event == " + name + "'");
    EXPECT_EQ(std::count(flame.out.begin(), flame.out.end(), '\n'), 1) << name << flame.out;
    EXPECT_NE(flame.out.find(how.at(name) + ";"), std::string::npos) << flame.out;
    const u64 weight = std::stoull(flame.out.substr(std::min(flame.out.size() - 2, flame.out.rfind(' ') + 1)));
    EXPECT_LE(weight, waited + waited / 1000) << name;  // two clocks
    EXPECT_GE(weight, 1'000'000u) << name;
  }
  EXPECT_EQ(seen, how.size());
}

TEST_F(Preload, ACompileIsTheSame) {
  std::ofstream(dir + "/a.cpp") << "#include <string>\nstd::string twice(const std::string& s) { return s + s; }\n";
  std::ofstream(dir + "/bad.cpp") << "int main() { return nothing; }\n";
  EXPECT_EQ(run("g++ -O1 -c a.cpp -o alone.o").code, 0);
  EXPECT_EQ(record("g++ -O1 -c a.cpp -o recorded.o").code, 0);
  EXPECT_EQ(test::slurp(dir + "/alone.o"), test::slurp(dir + "/recorded.o"));
  std::set<json> tasks;
  for (const json& e : events) tasks.insert(e["task"]);
  for (const char* task : {"g++", "cc1plus", "as"}) EXPECT_TRUE(tasks.count(task)) << task;
  EXPECT_EQ(same_as_alone("g++ -O1 -c bad.cpp").code, 1);
}

TEST_F(Preload, HandlersAreRecordedWhereverTheyCome) {
  const Outcome o = record(programs + "storm");
  ASSERT_EQ(o.code, 0);
  size_t writes = 0, reads = 0, locks = 0;
  std::istringstream(o.out) >> writes >> reads >> locks;
  EXPECT_GE(writes, 300u);
  EXPECT_EQ(count("write", {{"count", 1}}), writes);
  EXPECT_EQ(count("write"), writes);
  EXPECT_EQ(count("malloc", {{"size", 77}}), writes);
  EXPECT_EQ(frees_of([](const json& f) { return f["size"] == 77; }), writes);
  EXPECT_EQ(count("read"), reads);
  EXPECT_EQ(count("mutex_lock"), locks);
}

TEST_F(Preload, AProgramMayCloseAllDescriptors) {
  for (const char* way : {"range", "loop", "raw"}) {
    fs::remove_all(dir + "/files");
    fs::create_directories(dir + "/files");
    const Outcome o = record(programs + "closer files " + way);
    EXPECT_EQ(o.code, 0) << way;
    // Its files have the numbers that they have without us, and its bytes.
    const Outcome alone = run(programs + "closer files " + way);
    EXPECT_EQ(o.out, alone.out) << way;
    EXPECT_NE(o.out.find("start: 0 1 2\n3 4 5"), std::string::npos) << o.out;
    EXPECT_EQ(o.out.find("damaged"), std::string::npos) << o.out;
    EXPECT_EQ(count("malloc", {{"size", 555}}), 61u) << way;
    std::set<json> tids;
    for (const json& e : events) tids.insert(e["tid"]);
    EXPECT_EQ(tids.size(), 3u);
  }
}

TEST_F(Preload, EveryWayToStartAProgram) {
  for (const char* program : {"greeter", "greeter_static"})
    for (const char* libc : {"malloc,io,mutex", "io"})
      for (const char* way : {"fork", "_Fork", "raw", "vfork", "spawn", "system", "popen", "exec", "clean", "preload"}) {
        const bool is_static = program == std::string("greeter_static"),
                   replaces = Strings{"exec", "clean", "preload"}.count(way) != 0;
        const bool unseen = is_static || Strings{"clean", "preload"}.count(way) != 0;
        const Outcome o = same_as_alone(programs + "starter " + way + " " + programs + program, libc);
        EXPECT_EQ(o.code, 5) << way;
        EXPECT_EQ(o.out, "/dev/null") << way;
        EXPECT_EQ(count("write", {{"count", 9}}), unseen ? 0u : 1u) << way << program << libc;
        EXPECT_EQ(count("close", {{"fd", 62}}), replaces ? 0u : 25u) << way;
        EXPECT_EQ(count("close", {{"fd", 61}}), (Strings{"fork", "_Fork", "raw"}.count(way))) << way;
        EXPECT_EQ(count("close", {{"fd", 60}}), way == std::string("vfork") ? 1u : 0u) << way;
      }
}

TEST_F(Preload, CallsThatAreLeftHalfway) {
  EXPECT_EQ(record(programs + "leaver " + dir + "/fifo").code, 0);
  EXPECT_EQ(count("close", {{"fd", 62}}), 150u);
}

TEST_F(Preload, ExitCodesAndSignals) {
  EXPECT_EQ(record("sh -c 'exit 7'").code, 7);
  EXPECT_EQ(record("sh -c 'kill -TERM $$'").code, 128 + 15);
  EXPECT_EQ(record("sh -c 'kill -SEGV $$'").code, 128 + 11);
  // A signal for the recorder reaches the command, which ends as it likes.
  const Outcome o =
      run(RINGSIDE_BUILD_DIR
          "/ringside record --libc io -o data -- sh -c 'trap \"exit 9\" TERM; >ready; while :; do sleep 0.05; done' & "
          "while ! [ -e ready ]; do sleep 0.05; done; kill -TERM $!; wait $!");
  EXPECT_EQ(o.code, 9) << o.err;
}

TEST_F(Preload, ALimitOnFilesKillsNobody) {
  const Outcome o = ringside("record --libc malloc,io -o data -- sh -c 'ulimit -f 0; exec " + programs + "leaver fifo'");
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST_F(Preload, ARelativeRootAndAnotherDirectory) {
  const Outcome o = run("RINGSIDE_ROOT=root " RINGSIDE_BUILD_DIR "/ringside record --libc io -o data -- sh -c 'cd / && " +
                        programs + "greeter'");
  EXPECT_EQ(o.code, 5) << o.err;
  EXPECT_EQ(ringside("report data").out.find("greeter") != std::string::npos, true);
}

// PIDs there mean others here.
TEST_F(Preload, AnotherProcessNamespace) {
  if (run("unshare -pf --mount-proc true").code != 0) GTEST_SKIP() << "unshare does not work here (not root, or in a chroot)";
  const Outcome o = ringside("record --libc io -o data -- unshare -pf --mount-proc " + programs + "greeter");
  EXPECT_EQ(o.code, 5) << o.err;
  EXPECT_EQ(o.err.find("still running"), std::string::npos) << "its death is known here, too: " << o.err;
  EXPECT_NE(ringside("report data").out.find("greeter"), std::string::npos);
}

// It keeps what it has mapped.
TEST_F(Preload, AProcessThatGaveItsRightsUp) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(record(programs + "dropper", "malloc").code, 6);
  EXPECT_EQ(count("malloc", {{"size", 5}}), 20001u);
}

// Refused and counted; ring numbers are not used up by trying.
TEST_F(Preload, AProcessThatGaveItsRightsUpGetsNoRingOfItsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Outcome o = ringside("record --rings thread --libc malloc -o data -- " + programs + "dropper");
  EXPECT_EQ(o.code, 6) << o.err;
  EXPECT_NE(o.err.find("40,000 of the lost events came into no ring"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("from 1 ring;"), std::string::npos) << o.err;
}

// Two copies of the library in one process: neither takes the other's rings for those of a former program.
TEST_F(Preload, AProgramThatUsesTheLibraryItself) {
  for (const char* of : {"auto", "thread"}) {
    rings = of;
    EXPECT_EQ(record(RINGSIDE_BUILD_DIR "/example_02_c").code, 0);
    std::map<std::string, size_t> seen;
    std::set<json> used;
    for (const json& e : events) {
      ++seen[e["event"]];
      used.insert(e["ring"]);
    }
    EXPECT_EQ(seen["net:packet_in"], 3u);
    EXPECT_GT(seen["libc:malloc"], 0u);
    if (rings == "thread") {
      EXPECT_EQ(used.size(), 2u);
    }
  }
}

TEST_F(Preload, APathThatLdPreloadCannotTake) {
  fs::create_directories(dir + "/a b");
  fs::copy(RINGSIDE_BUILD_DIR "/ringside", dir + "/a b");
  fs::copy(RINGSIDE_BUILD_DIR "/libringside-libc.so", dir + "/a b");
  const Outcome o = run("'a b/ringside' record --libc io -- true");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("install ringside elsewhere"), std::string::npos) << o.err;
}

// A daemon that the command left behind starts programs when the recording is long over.
TEST_F(Preload, WithoutItsInstanceNothingIsMade) {
  const Outcome o =
      run("RINGSIDE_INSTANCE=" + dir + "/root/gone RINGSIDE_LIBC=io LD_PRELOAD=" RINGSIDE_BUILD_DIR "/libringside-libc.so " +
          programs + "greeter");
  EXPECT_EQ(o.code, 5);
  EXPECT_EQ(o.err, "");
  EXPECT_TRUE(fs::is_empty(dir + "/root"));
}

// AddressSanitizer's runtime refuses any library in front of it.
TEST_F(Preload, WhatEndsAProgramWithAddressSanitizer) {
  const std::string program = programs + "greeter_asan";
  if (!fs::exists(program)) GTEST_SKIP() << "the compiler has no AddressSanitizer here";
  if (run("readelf -d " + program + " | grep -q libasan").code != 0) GTEST_SKIP() << "its runtime is not a library here";
  const Outcome o = ringside("record --libc malloc -o data -- " + program);
  EXPECT_NE(o.code, 0);
  EXPECT_NE(o.err.find("is built with AddressSanitizer (libasan.so"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("ASAN_OPTIONS=verify_asan_link_order=0"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("made none of the calls"), std::string::npos) << o.err;
  const Outcome told = run("ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 " RINGSIDE_BUILD_DIR
                           "/ringside record --libc malloc,io -o data -- " +
                           program);
  EXPECT_EQ(told.code, 5) << told.err;
  EXPECT_EQ(told.err.find("AddressSanitizer"), std::string::npos) << told.err;
  EXPECT_NE(ringside("report data").out.find(" write: "), std::string::npos) << told.err;
}

TEST_F(Preload, AProgramWithAMallocOfItsOwn) {
  for (const char* libc : {"malloc", "malloc,io"}) {
    const Outcome o = record(programs + "own_malloc", libc);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("own_malloc defines "), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("malloc"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("--libc sees none of its calls of these"), std::string::npos) << o.err;
    EXPECT_EQ(o.err.find("made none of the calls"), std::string::npos) << o.err;
  }
  EXPECT_EQ(record(programs + "counts").err.find("defines"), std::string::npos);
}

}  // namespace
}  // namespace ringside
