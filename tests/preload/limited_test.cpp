// Programs that limit themselves, or run with more rights than the process that started them, while they are traced.
#include "preload/limited.hpp"

#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <regex>
#include <set>

#include "instance/instance.hpp"
#include "instance/ring_source.hpp"
#include "own_root.hpp"
#include "seen.hpp"

namespace ringside::limited_test {
namespace {

constexpr u32 stranger = 65533;
constexpr bool strict_has_no_clock =
#if defined(__x86_64__)
    true;
#else
    false;
#endif

// A program of root's that any user may start must not open what that user names: neither an instance nor a place for one.
TEST_F(Limited, AProgramWithMoreRightsTakesNothingFromTheEnvironment) {
  struct statvfs on {};
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a setuid program";
  if (statvfs(dir.c_str(), &on) != 0 || (on.f_flag & ST_NOSUID) != 0)
    GTEST_SKIP() << dir << " is on a file system without setuid";
  const std::string as_stranger =
      "setpriv --reuid " + std::to_string(stranger) + " --regid " + std::to_string(stranger) + " --clear-groups ";
  fs::create_directory(dir + "/theirs");
  ASSERT_EQ(chown((dir + "/theirs").c_str(), stranger, stranger), 0);
  fs::create_directory(dir + "/planted");
  fs::permissions(dir + "/planted", fs::perms::owner_all);
  for (const auto& [name, mode] : {std::pair{"suid", "4755"}, {"sgid", "2755"}, {"plain", "0755"}}) {
    ASSERT_EQ(run("cp " + linked + name + " && chmod " + mode + " " + name).code, 0);
    const bool has_more = mode[0] != '0';
    // An instance of the stranger's: not even the one that it may write to.
    const std::string theirs = dir + "/theirs/" + name;
    ASSERT_EQ(run(as_stranger + "cp " RINGSIDE_BUILD_DIR "/ringside theirs/tool && " + as_stranger +
                  "theirs/tool record -q -i " + theirs + " -o theirs/none -- true")
                  .code,
              0);
    const Outcome in_theirs = run("RINGSIDE_INSTANCE=" + theirs + " " + as_stranger + "./" + name + " write 100");
    EXPECT_EQ(in_theirs.code, 0);
    EXPECT_EQ(two_numbers(in_theirs.out), (has_more ? std::pair{0l, 0l} : std::pair{100l, 0l})) << name << in_theirs.err;
    // A directory of root's.
    const Outcome planted =
        run("RINGSIDE_ROOT=" + dir + "/planted RINGSIDE_INSTANCE=x " + as_stranger + "./" + name + " write 100");
    EXPECT_EQ(planted.code, 0);
    EXPECT_EQ(planted.out, "0 0\n");
    EXPECT_TRUE(fs::is_empty(dir + "/planted")) << name;
    // The other places.
    const Outcome runtime = run("unset RINGSIDE_ROOT; XDG_RUNTIME_DIR=" + dir + "/planted RINGSIDE_INSTANCE=x " + as_stranger +
                                "./" + name + " write 1");
    EXPECT_EQ(runtime.code, 0);
    EXPECT_TRUE(fs::is_empty(dir + "/planted")) << name;
  }
}

// A program of root's that becomes root for good, and starts another one: the kernel says nothing of more rights to that.
TEST_F(Limited, RootTakesNoInstanceOfAnotherUserFromTheEnvironment) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const std::string user = std::to_string(stranger);
  fs::create_directory(dir + "/theirs");
  ASSERT_EQ(chown((dir + "/theirs").c_str(), stranger, stranger), 0);
  const std::string theirs = dir + "/theirs/x";
  ASSERT_EQ(run("cp " RINGSIDE_BUILD_DIR "/ringside " + dir + "/tool && setpriv --reuid " + user + " --regid " + user +
                " --clear-groups ./tool record -q -i " + theirs + " -o theirs/none -- true")
                .code,
            0);
  for (const std::string& environment :
       {"RINGSIDE_INSTANCE=" + theirs, "RINGSIDE_ROOT=" + dir + "/theirs RINGSIDE_INSTANCE=x"}) {
    const Outcome o = run(environment + " " + linked + "write 100");
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.out, "0 0\n") << environment;
    EXPECT_NE(o.err.find("of RINGSIDE_INSTANCE cannot be opened (this user must own it, and no other may write there)"),
              std::string::npos)
        << o.err;
  }
  const Outcome own = run("RINGSIDE_INSTANCE=own " + linked + "write 100");
  EXPECT_EQ(own.out, "100 0\n") << own.err;
}

// In a chroot, or a container that does not have the directory. An instance alone that is gone went with its recorder.
TEST_F(Limited, AnInstanceThatIsInAnotherRoot) {
  const Outcome nowhere = run("RINGSIDE_INSTANCE=" + dir + "/nowhere/x " + linked + "write 1");
  EXPECT_EQ(nowhere.code, 0);
  EXPECT_NE(nowhere.err.find("its directory is not in the root or mount namespace of this program"), std::string::npos)
      << nowhere.err;
  fs::create_directory(dir + "/root");
  EXPECT_EQ(run("RINGSIDE_INSTANCE=" + dir + "/root/gone " + linked + "write 1").err, "");
}

// What makes the instance, and what writes to it, asks before a file grows: SIGXFSZ would end the program.
TEST_F(Limited, AFileSizeLimitRefusesAndKillsNoProgram) {
  for (const char* limit : {"0", "4096", "1024000", "8000000"}) {
    const std::string few = std::string("prlimit --fsize=") + limit + " ";
    const auto piped = [](const std::string& command) { return "bash -o pipefail -c '" + command + " | cat'"; };
    const Outcome alone = run("RINGSIDE_INSTANCE=new " + piped(few + linked + "write 100 2> /dev/null"));
    EXPECT_EQ(alone.code, 0) << limit << alone.err;
    EXPECT_TRUE(alone.out == "0 0\n" || fs::exists(dir + "/root/new")) << limit << alone.out;
    (void)ringside("rm -f new");
    for (const char* rings : {"cpu", "thread"}) {
      const Outcome traced =
          ringside(std::string("record -o rec --rings ") + rings + " -- " + piped(few + linked + "write 100"));
      EXPECT_TRUE(traced.code == 0 || traced.code == 3) << traced.code << traced.err;
      EXPECT_EQ(recorded("rec"), static_cast<u64>(two_numbers(traced.out).first)) << limit << rings;
      fs::remove_all(dir + "/rec");
    }
  }
  const Outcome said = run("RINGSIDE_INSTANCE=new prlimit --fsize=1024000 " + linked + "write 1");
  EXPECT_NE(said.err.find("not traced, the instance new of RINGSIDE_INSTANCE cannot be opened: File too large"),
            std::string::npos)
      << said.err;
  // Standard error is a file that may not grow.
  const Outcome full =
      run("head -c 2000000 /dev/zero > full; RINGSIDE_INSTANCE=new prlimit --fsize=1024000 " + linked + "write 1 2>> full");
  EXPECT_EQ(full.code, 0);
  // The limit comes down in the middle.
  const Outcome later = ringside("record -o rec --rings thread -- " + linked + "fsize 100 | cat");
  EXPECT_EQ(recorded("rec"), static_cast<u64>(two_numbers(later.out).first)) << later.err;
}

// A real-time program locks its memory. That neither fills the rings, nor counts them against its limit.
TEST_F(Limited, LockedMemoryIsWhatTheProgramUses) {
  const std::string in_memory = "RINGSIDE_ROOT=/dev/shm/ringside-limited-" + std::to_string(getpid());
  for (const char* rings : {"cpu", "thread"})
    for (const std::string& user : {std::string("0"), std::to_string(stranger)}) {
      if (user != "0" && geteuid() != 0) continue;
      const Outcome alone = run(limited + "mlockall " + user);
      if (alone.code == 4 && user == "0") GTEST_SKIP() << "memory cannot be locked here";
      ASSERT_EQ(alone.code, 0);
      const Outcome o =
          run("export " + in_memory +
              "; mkdir -p -m 700 $RINGSIDE_ROOT; " RINGSIDE_BUILD_DIR "/ringside record -b 64M --rings " + std::string(rings) +
              " --libc malloc -o rec -- " + limited + "mlockall " + user + "; code=$?; rm -rf $RINGSIDE_ROOT; exit $code");
      EXPECT_EQ(o.code, 0) << rings << user << o.err;
      const auto [locked, shared] = two_numbers(o.out);
      EXPECT_LT(locked, two_numbers(alone.out).first + 4096) << rings << user;
      EXPECT_LT(shared, 4096) << "KiB of rings are filled";
      // A program that is another user by now gets no ring of its own from an instance of root's: refused, and counted.
      EXPECT_GE(recorded("rec"), user == "0" || rings == std::string("cpu") ? 400u : 0u);
      fs::remove_all(dir + "/rec");
    }
}

// 300 MiB of addresses are enough for the threads that start in them untraced.
TEST_F(Limited, AddressesAreTakenAsTheyAreUsed) {
  const auto [alone, size] = two_numbers(run(limited + "threads 20").out);
  ASSERT_EQ(alone, 20);
  for (const char* rings : {"cpu", "thread"}) {
    const Outcome traced =
        ringside(std::string("record --libc malloc -b 256k -o rec --rings ") + rings + " -- " + limited + "threads 20");
    const auto [started, traced_size] = two_numbers(traced.out);
    EXPECT_EQ(started, 20) << rings << traced.err;
    EXPECT_GE(recorded("rec"), 20u * 200u);
    fs::remove_all(dir + "/rec");
  }
}

// Its events go to a ring of its own from then on.
TEST_F(Limited, AThreadThatLosesItsRegistrationGoesOn) {
  const Outcome o = ringside("record -o rec --rings cpu -- " + linked + "unregistered 100000");
  if (o.code == 77) GTEST_SKIP() << "no restartable sequences here";
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "200000 0\n");
  EXPECT_EQ(recorded("rec"), 200000u);
}

// A filter that kills for any call but its five: events go on in the memory that is there, without a call.
TEST_F(Limited, AProgramInASandboxWritesOn) {
  for (const auto& [way, rings] :
       {std::pair{"filter", "cpu"}, {"threads", "cpu"}, {"filter", "thread"}, {"dispatch", "cpu"}, {"dispatch", "thread"}}) {
    const u64 before = 100'000, attempts = way == std::string("threads") ? 6 * before : 2 * before;
    const Outcome o = ringside(std::string("record -o rec -b 16M --rings ") + rings + " -- " + linked + way + " 100000");
    if (o.code == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(o.code, 0) << way << o.err;
    EXPECT_EQ(o.out, std::to_string(attempts) + " 0 0\n") << way;
    EXPECT_EQ(recorded("rec"), attempts) << way;
    EXPECT_NE(o.err.find("; refused 0"), std::string::npos) << o.err;
    fs::remove_all(dir + "/rec");
  }
}

// Where that is not possible, each event is refused, and counted: in strict mode, with rings that are too large for the given
// bytes, in threads that have no ring, in children.
TEST_F(Limited, AProgramInASandboxCountsWhatItCannotWrite) {
  struct Case {
    const char *way, *rings;
    u64 written, refused;
    int answer;
  };
  std::vector<Case> cases{
      Case{"too-small", "cpu", 10'000, 10'000, -ENOSPC}, Case{"too-small", "thread", 10'000, 10'000, -ENOSPC},
      Case{"strict", "cpu", 10'000, 10'000, 0},          Case{"strict", "thread", 10'000, 10'000, 0},
      Case{"threads", "thread", 20'000, 40'000, 0},      Case{"fork", "cpu", 20'000, 10'000, 0},
      Case{"fork", "thread", 20'000, 10'000, 0}};
  if (strict_has_no_clock)
    for (const char* rings : {"cpu", "thread"}) cases.push_back({"counter", rings, 10'000, 10'000, 0});
  for (const Case& c : cases) {
    const Outcome o = ringside(std::string("record -o rec --rings ") + c.rings + " -- " + linked + c.way + " 10000");
    if (o.code == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(o.code, 0) << c.way << o.err;
    EXPECT_EQ(o.out, std::to_string(c.written) + " " + std::to_string(c.refused) + " " + std::to_string(c.answer) + "\n")
        << c.way;
    EXPECT_EQ(recorded("rec"), c.written) << c.way;
    EXPECT_NE(o.err.find("lost " + std::to_string(c.refused / 1000) + ",000 (that came into no ring);"), std::string::npos)
        << c.way << o.err;
    fs::remove_all(dir + "/rec");
  }
}

// The filter comes for all threads at once (TSYNC), wherever they are.
TEST_F(Limited, ThreadsThatAreConfinedTogetherWriteOn) {
  for (const char* rings : {"cpu", "thread"})
    for (const char* options : {"", "--stack "})
      for (int times = 0; times < 5; ++times) {
        const Outcome o = ringside(std::string("record -o rec -b 16M ") + options + "--rings " + rings + " -- " + linked +
                                   "together " + std::to_string(20 + times * 200));
        if (o.code == 77) GTEST_SKIP() << "no seccomp here";
        ASSERT_EQ(o.code, 0) << rings << options << times << o.err;
        const auto [done, tried] = two_numbers(o.out);
        EXPECT_EQ(done, 0) << rings << options << times << o.err;
        if (*options == 0) {
          EXPECT_EQ(counted(o.err, "ringside: ") + counted(o.err, "; lost "), tried) << rings << times << o.err;
        }
        fs::remove_all(dir + "/rec");
      }
}

// The same for a program that knows nothing of it.
TEST_F(Limited, AnUnmodifiedProgramInASandboxIsRecorded) {
  for (const char* options : {"", "--stack ", "--sample 1000 "})
    for (const char* way : {"strict", "filter", "listener"})
      for (const char* rings : {"cpu", "thread"}) {
        const Outcome o =
            ringside(std::string("record -o rec --libc io ") + options + "--rings " + rings + " -- " + limited + way + " 1000");
        if (o.code == 77) GTEST_SKIP() << "no seccomp here";
        EXPECT_EQ(o.code, 0) << options << way << rings << o.err;
        EXPECT_EQ(o.out, "done\n") << options << way << rings;
        (void)recorded("rec");
        u64 calls = 0;
        for (const json& event : events("rec")) calls += event["event"] == "libc:read" || event["event"] == "libc:write";
        const bool goes_on = way != std::string("strict") || !strict_has_no_clock;
        EXPECT_EQ(calls, goes_on ? 4001u : 2000u) << options << way << rings;
        EXPECT_NE(o.err.find(goes_on ? "lost 0;" : "lost 2,001 (that came into no ring);"), std::string::npos)
            << options << way << rings << o.err;
        fs::remove_all(dir + "/rec");
      }
}

// Syscall user dispatch makes a signal of each call, and a processor's counter that may not be read one of each reading.
TEST_F(Limited, AnUnmodifiedProgramMayForbidMoreThanAFilter) {
  for (const char* options : {"", "--stack ", "--sample 1000 "})
    for (const char* way : {"dispatch", "counter"})
      for (const char* rings : {"cpu", "thread"}) {
        const Outcome o = ringside(std::string("record -o rec --libc malloc ") + options + "--rings " + rings + " -- " +
                                   limited + way + " 2000");
        if (o.code == 77) continue;  // there is no such thing here
        EXPECT_EQ(o.code, 0) << options << way << rings << o.err;
        EXPECT_EQ(o.out, "done\n") << options << way << rings;
        (void)recorded("rec");
        u64 calls = 0;
        for (const json& event : events("rec")) calls += event["event"] == "libc:malloc" && event["fields"]["size"] == 4321;
        const bool goes_on = way == std::string("dispatch");
        EXPECT_EQ(calls, goes_on ? 4000u : 2000u) << options << way << rings;
        EXPECT_NE(o.err.find(goes_on ? "lost 0;" : "lost 4,000 (that came into no ring);"), std::string::npos)
            << options << way << rings << o.err;
        fs::remove_all(dir + "/rec");
      }
}

// The preloaded library sees what the program does, and tells the copy that the program is linked with.
TEST_F(Limited, AProgramThatIsLinkedAndPreloadedNeedsNoPreparation) {
  for (const char* rings : {"cpu", "thread"}) {
    const Outcome o =
        ringside(std::string("record -o rec -b 16M --libc mutex --rings ") + rings + " -- " + linked + "unprepared 20000");
    if (o.code == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(o.code, 0) << rings << o.err;
    EXPECT_EQ(o.out, "40000 0 0\n") << rings;
    u64 ticks = 0;
    for (const json& event : events("rec")) ticks += event["event"] == "linked:tick";
    EXPECT_EQ(ticks, 40'000u) << rings;
    EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << rings << o.err;
    fs::remove_all(dir + "/rec");
  }
}

// Its parent goes on; its own events are refused, and counted.
TEST_F(Limited, AChildOfVforkThatConfinesItselfIsCounted) {
  for (const char* rings : {"cpu", "thread"}) {
    const Outcome o = ringside(std::string("record -o rec --libc io --rings ") + rings + " -- " + limited + "child 1000");
    if (o.code == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(o.code, 0) << rings << o.err;
    u64 reads = 0;
    for (const json& event : events("rec")) reads += event["event"] == "libc:read";
    EXPECT_EQ(reads, 1010u) << rings;
    EXPECT_NE(o.err.find("lost 10,000 (that came into no ring);"), std::string::npos) << rings << o.err;
    fs::remove_all(dir + "/rec");
  }
}

// A thread waits for its child of vfork while the filter comes for all threads: it goes on below the filter.
TEST_F(Limited, AParentOfVforkIsConfinedWhileItWaits) {
  for (const char* rings : {"cpu", "thread"}) {
    const Outcome o = ringside(std::string("record -o rec --libc malloc --rings ") + rings + " -- " + limited + "together");
    if (o.code == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(o.code, 0) << rings << o.err;
    EXPECT_EQ(o.out, "done\n") << rings;
    u64 calls = 0;
    for (const json& event : events("rec")) calls += event["event"] == "libc:malloc" && event["fields"]["size"] == 1234;
    EXPECT_EQ(calls + (rings == std::string("cpu") ? 0u : static_cast<u64>(counted(o.err, "; lost ")) / 2), 100u)
        << rings << o.err;
    fs::remove_all(dir + "/rec");
  }
}

// The names of system calls in what strace has written.
std::set<std::string> calls_in(const std::string& log) {
  std::set<std::string> names;
  const std::regex call("^[0-9]+ +(?:<\\.\\.\\. )?([a-z_0-9]+)(?:\\(| resumed)");
  std::istringstream lines(test::slurp(log));
  std::smatch found;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_search(line, found, call)) names.insert(found[1]);
  return names;
}

// A filter is written by the guide's table: it names each call that a program makes only while it is traced.
TEST_F(Limited, TheGuideNamesAllSystemCalls) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the table has the names of x86-64";
#endif
  if (run("strace -f -o log true").code != 0) GTEST_SKIP() << "strace is not installed, or may not trace";
  std::set<std::string> named;
  std::istringstream guide(test::slurp(RINGSIDE_SOURCE_DIR "/docs/guide.md"));
  bool within = false;
  for (std::string line; std::getline(guide, line);) {
    within = line.starts_with("| when | system calls |") || (within && line.starts_with("|"));
    std::istringstream words(within ? line.substr(line.find('|', 1)) : "");
    for (std::string word; words >> word;) {
      word.erase(std::remove_if(word.begin(), word.end(), [](char c) { return isalnum(c) == 0 && c != '_'; }), word.end());
      named.insert(word);
    }
  }
  ASSERT_TRUE(named.contains("rt_sigprocmask"));
  const std::string tests = RINGSIDE_BUILD_DIR "/tests/";
  for (const std::string& program :
       {linked + "write 100", linked + "threads 100", tests + "preload_forks fork 5", tests + "preload_forks jump 5",
        tests + "preload_forks clone-vfork 5", limited + "together", limited + "filter 10"}) {
    ASSERT_EQ(run("strace -f -o log " + program).code, 0) << program;
    const std::set<std::string> alone = calls_in(dir + "/log");
    for (const char* options : {"--rings cpu", "--rings thread", "--stack --rings cpu", "--sample 1000"}) {
      const Outcome o =
          ringside("record -q --libc malloc,io,mutex -o rec " + std::string(options) + " -- strace -f -o log " + program);
      EXPECT_EQ(o.code, 0) << program << options << o.err;
      for (const std::string& name : calls_in(dir + "/log"))
        EXPECT_TRUE(alone.contains(name) || named.contains(name)) << name << ": " << program << ' ' << options;
      fs::remove_all(dir + "/rec");
    }
  }
}

// A reader that waits is not woken from a sandbox: it looks by itself, also if it has begun to wait before.
TEST_F(Limited, AReaderThatWaitsGetsTheEventsOfASandbox) {
  const test::OwnRoot root;
  InstanceOptions make;
  make.name = "web";
  make.rings = Rings::cpu;
  const auto instance = Instance::create(make);
  if (!instance) GTEST_SKIP() << instance.error().sentence;
  FILE* const writer = popen(("RINGSIDE_INSTANCE=web " + linked + "paused 1").c_str(), "w");
  ASSERT_NE(writer, nullptr);
  u64 seen = 0;
  for (u64 sent = 1; sent <= 20; ++sent) {  // the first comes before the sandbox
    if (sent > 1) {
      ASSERT_EQ(fputc('x', writer), 'x');
      ASSERT_EQ(fflush(writer), 0);
    }
    while (seen < sent) {
      ASSERT_TRUE(must((*instance)->wait(0, std::chrono::minutes(2)))) << sent;
      test::Seen events;
      for (const RingInfo& ring : (*instance)->rings()) {
        const auto source = must((*instance)->source(ring.name.ring));
        test::read_all(*source, events);
      }
      ASSERT_EQ(events.error, "");
      seen += events.numbers.size();
    }
  }
  const int status = pclose(writer);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(seen, 20u);
}

// An event is declared before every static constructor of its program.
TEST_F(Limited, StaticConstructorsWriteEvents) {
  for (const char* program : {"early", "early_shared"}) {
    const Outcome o = ringside(std::string("record -o rec -- " RINGSIDE_BUILD_DIR "/tests/") + program);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, "21\n");
    EXPECT_EQ(recorded("rec"), 21u) << program << ringside("report rec").out;
    fs::remove_all(dir + "/rec");
  }
}

}  // namespace
}  // namespace ringside::limited_test
