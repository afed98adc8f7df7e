// Every system call that fails is an input: what ringside does when its n-th call of a kind fails, for each n.
//
// Whatever fails: no crash, no hang, nothing left behind, every event recorded or counted as lost, or else a sentence and an
// exit code that say so; and a traced program never notices. The same when memory is short.
// RINGSIDE_FAULTS=all takes each n and each error, RINGSIDE_FAULT=openat those of one call; without them it is a sample.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <sys/mount.h>

#include <filesystem>
#include <functional>
#include <sstream>

#include "binary.hpp"
#include "fault/short_memory.hpp"
#include "fault/supervisor.hpp"
#include "instance/instance.hpp"
#include "source/get_reader_served.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using test::Fault;
using test::Supervisor;
using test::slurp;

constexpr u64 tried = 250;  // events, by writer.cpp and remote_writer.cpp
const std::string tool = RINGSIDE_BUILD_DIR "/ringside";
const std::string program = RINGSIDE_BUILD_DIR "/tests/fault_writer";

bool all_of_them() {
  const char* wanted = std::getenv("RINGSIDE_FAULTS");
  return wanted != nullptr && std::string(wanted) == "all";
}

// Events in what a source has, and what it says was lost.
u64 count(Source& source, std::string& problem) {
  u64 events = 0;
  for (;;) {
    auto view = source.next();
    if (!view) {
      problem += view.error().sentence + "\n";
      return events;
    }
    if (!*view) return events;
    abi::EventCursor cursor((*view)->sub_buffer + 16, (*view)->begin, (*view)->end, 0);
    while (cursor.next()) ++events;
    events += (*view)->lost_before;
  }
}

u64 count(const std::string& recording, const RecordingMeta& meta, std::string& problem) {
  auto sources = open_recording(recording, meta);
  if (!sources) {
    problem += sources.error().sentence + "\n";
    return 0;
  }
  u64 events = 0;
  for (auto& source : *sources) events += count(*source, problem);
  return events;
}

// A sentence on stderr that names what was tried: not only the system's words, nor a library's.
bool says_why(const std::string& err) {
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("ringside: ", 0) != 0) continue;
    std::string sentence = line.substr(10);
    for (int e = 1; e < 134; ++e)
      if (const std::string words = strerror(e);
          sentence.size() >= words.size() && sentence.compare(sentence.size() - words.size(), words.size(), words) == 0)
        sentence.resize(sentence.size() - words.size());
    if (std::count(sentence.begin(), sentence.end(), ' ') >= 2) return true;
  }
  return false;
}
// Words of the C++ library: an exception that nobody made a sentence of.
bool leaks_a_library(const std::string& err) {
  for (const char* words : {"std::", "terminate called", "::at", "basic_string", "vector::", "what():", "filesystem error",
                            "AddressSanitizer", "runtime error"})
    if (err.find(words) != std::string::npos) return true;
  return false;
}

struct FaultTest : test::BinaryTest {
  std::string root = dir + "/root", out = dir + "/out", err = dir + "/err";
  std::set<std::string> tracefs_before;

  static std::set<std::string> kernel_instances() {
    std::set<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator("/sys/kernel/tracing/instances", none))
      if (const std::string name = entry.path().filename(); name.rfind("ringside-", 0) == 0) names.insert(name);
    return names;
  }
  static std::set<std::string> below(const std::string& path) {
    std::set<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(path, none)) names.insert(entry.path().filename());
    return names;
  }

  void SetUp() override {
    BinaryTest::SetUp();
    setenv("RINGSIDE_ROOT", root.c_str(), 1);
    setenv("LD_PRELOAD", RINGSIDE_BUILD_DIR "/tests/libfault_begin.so", 1);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  void TearDown() override {
    for (const char* name : {"RINGSIDE_ROOT", "LD_PRELOAD", "RINGSIDE_INSTANCE", "RINGSIDE_RINGS", "RINGSIDE_REMOTE"})
      unsetenv(name);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    BinaryTest::TearDown();
  }

  // One run of the scenario: prepare(), the command under the supervisor, beside() meanwhile, then judge(its exit code) says
  // what is wrong; empty: nothing.
  struct Scenario {
    std::string role;
    std::vector<std::string> command;
    std::function<void()> prepare = [] {};
    std::function<void(pid_t)> beside = [](pid_t) {};
    std::function<std::string(int)> judge;
    std::set<std::string> kept_in_root{}, kept{},
        kept_if_failed{};  // files that may be there afterwards; the last if a call failed
    std::function<void()> next = [] {};  // the next command, which removes what this one left because a call failed
    std::string begun{};   // how files begin that a program which is killed meanwhile leaves behind; empty: there are none
  };

  // Null: there is enough.
  test::ShortMemory* memory = nullptr;
  bool failed(const Supervisor& supervisor) const { return supervisor.injected() || (memory != nullptr && memory->failed); }

  std::string once(const Scenario& s, Supervisor& supervisor) {
    fs::remove_all(root);
    for (const std::string& name : below(dir)) fs::remove_all(dir + "/" + name);
    fs::create_directories(root);
    s.prepare();
    const auto before = kernel_instances();
    if (supervisor.start(s.command, dir, out, err) < 0) return std::string("seccomp: ") + strerrorname_np(errno);
    s.beside(supervisor.child());
    const int code = supervisor.wait();
    std::string wrong;
    const auto complain = [&](const std::string& what) { wrong += "  " + what + "\n"; };
    if (code == -1) complain("it hung");
    // To clean up takes memory, too: without, it leaves what a killed one leaves.
    const bool cut_off = memory != nullptr && memory->failed && code != 0;
    if (!supervisor.alone() && !cut_off) complain("it left processes running");
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    supervisor.end();
    if (memory != nullptr) memory->role[0] = 0;  // whatever else the judge runs has enough
    if (slurp("/proc/self/mounts").find(dir) != std::string::npos) {
      if (!cut_off) complain("left behind: a mount");
      umount2((dir + "/m").c_str(), MNT_DETACH);
    }
    if (code == -1) return wrong + slurp(err);
    if (failed(supervisor) && !std::ranges::includes(s.kept_in_root, below(root))) s.next();
    if (code > 128) complain("signal " + std::to_string(code - 128));
    const std::string log = slurp(err);
    if (leaks_a_library(log)) complain("words of a library on stderr");
    if (code != 0 && !says_why(log)) complain("exit code " + std::to_string(code) + " without a reason");
    // What stays must be said; and of an instance that was said to stay, `rm` finishes what was begun.
    const auto said = [&](const std::string& name) {
      return log.find(name) != std::string::npos &&
             (log.find("stays") != std::string::npos || log.find("cannot remove") != std::string::npos);
    };
    for (const std::string& file : below(root)) {
      if (s.kept_in_root.count(file) != 0) continue;
      const size_t begun = file[0] == '.' ? file.rfind(".new-") : std::string::npos;  // what was begun has another name
      const std::string name = begun != std::string::npos ? file.substr(1, begun - 1) : file;
      if (!said(name) && !cut_off) complain("left behind: root/" + file);
      if (auto gone = Instance::remove(root + "/" + name, cut_off || log.find("--force") != std::string::npos); !gone)
        complain("cannot be removed: " + gone.error().sentence);
    }
    for (const std::string& name : below(dir))
      if (name != "root" && name != "out" && name != "err" && s.kept.count(name) == 0 && !cut_off &&
          !(failed(supervisor) && (s.kept_if_failed.count(name) != 0 || (!s.begun.empty() && name.starts_with(s.begun)))) &&
          !said(name))
        complain("left behind: " + name);
    for (const std::string& name : kernel_instances()) {
      const std::string ours = "-" + std::to_string(supervisor.child());
      if (before.count(name) != 0 || name.size() < ours.size() ||
          name.compare(name.size() - ours.size(), ours.size(), ours) != 0)
        continue;
      if (!said(name) && !cut_off) complain("left behind: the kernel's instance " + name);
      rmdir(("/sys/kernel/tracing/instances/" + name).c_str());
    }
    if (std::string judged = s.judge(code); !judged.empty()) complain(judged);
    return wrong.empty() ? "" : wrong + "  it said: " + log + slurp(out);
  }

  // All faults of the scenario's own calls.
  void inject(const Scenario& s) {
    std::map<const Fault*, unsigned> counts;
    {
      Supervisor plain(s.role, nullptr, 0);
      const std::string wrong = once(s, plain);
      if (wrong.find("seccomp: ") == 0) GTEST_SKIP() << wrong;
      ASSERT_EQ(wrong, "") << "nothing failed";
      counts = plain.counts();
      ASSERT_FALSE(counts.empty());
    }
    std::map<int, std::vector<std::pair<const Fault*, unsigned>>> kinds;  // by the call's number
    for (const auto& [fault, calls] : counts) kinds[fault->number].emplace_back(fault, calls);
    unsigned runs = 0, hits = 0;
    // True: a call failed. False: the scenario is over before its n-th one.
    const auto fails = [&](const Fault* fault, unsigned n, unsigned calls) {
      Supervisor supervisor(s.role, fault, n);
      const std::string wrong = once(s, supervisor);
      ++runs;
      hits += supervisor.injected() ? 1 : 0;
      EXPECT_EQ(wrong, "") << test::to_string(*fault, n) << " of " << calls << " (" << supervisor.where() << ")";
      return supervisor.injected();
    };
    const char* const only = std::getenv("RINGSIDE_FAULT");
    for (const auto& [number, errors] : kinds) {
      if (only != nullptr && std::string(only) != errors.front().first->call) continue;
      if (all_of_them() || only != nullptr) {
        for (const auto& [fault, calls] : errors)
          for (unsigned n = 1; n <= 2 * calls + 4 && fails(fault, n, calls); ++n) {
          }
        continue;
      }
      // The first calls with each error in turn, then ever wider steps, and the last one.
      unsigned most = 0;
      for (const auto& [fault, calls] : errors) most = std::max(most, calls);
      const auto wider = [&](unsigned n) { return n < most && n > most / 4 ? most : 2 * n; };
      for (unsigned k = 0, n = 1; k < errors.size() || n <= errors[k % errors.size()].second;
           n = k < errors.size() ? n + 1 : wider(n), ++k)
        if (const auto& [fault, calls] = errors[k % errors.size()]; n <= calls) fails(fault, n, calls);
    }
    EXPECT_GT(hits, 0u);
    std::printf("%u runs, in %u of them a call failed\n", runs, hits);
    if (s.role == "ringside" && only == nullptr) starve(s);
  }

  // Memory is short at its n-th request, and for good when what that one gave back is taken. Steps grow from the end of a run,
  // where it has the most in its hands.
  void starve(const Scenario& s) {
    const std::string path = dir + ".memory";
    const sys::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(ftruncate(file.get(), 4096), 0);
    auto map = must(sys::Region::map(file.get(), 4096, true, path));
    memory = new (map.data()) test::ShortMemory{};
    setenv("LD_PRELOAD", RINGSIDE_BUILD_DIR "/tests/libfault_begin.so:" RINGSIDE_BUILD_DIR "/tests/libfault_memory.so", 1);
    setenv("RINGSIDE_SHORT_MEMORY", path.c_str(), 1);
    const auto run = [&](u64 n, i64 left) {
      s.role.copy(memory->role, sizeof memory->role - 1);
      memory->fails_at = n;
      memory->left = left;
      memory->calls = 0;
      memory->failed = false;
      Supervisor nothing(s.role, nullptr, 0);
      return once(s, nothing);
    };
    EXPECT_EQ(run(~u64{0}, 0), "") << "memory is counted";
    const u64 calls = memory->calls;
    unsigned runs = 0, hits = 0;
    for (u64 back = 1; back < calls; back = all_of_them() ? back + 1 : 4 * back) {
      for (const i64 left : {i64{1} << 20, i64{0}}) {
        EXPECT_EQ(run(calls - back, left), "") << "memory: request " << calls - back << " of " << calls << ", then " << left;
        ++runs;
        hits += memory->failed ? 1 : 0;
      }
    }
    EXPECT_GT(hits, 0u);
    std::printf("%u runs, in %u of them memory was short\n", runs, hits);
    memory = nullptr;
    unsetenv("RINGSIDE_SHORT_MEMORY");
    fs::remove(path);
  }

  // What the events of this instance add up to, and what is wrong with it.
  static std::string books(const std::string& name, u64 more = 0) {
    auto instance = Instance::open(name);
    if (!instance) return instance.error().sentence;
    const PastTotals past = (*instance)->past();
    u64 total = more + (*instance)->refused() + past.written + past.dropped + past.commit_overrun;
    std::string problem, each = std::to_string(total - more) + " refused";
    for (const RingInfo& ring : (*instance)->rings()) {
      auto source = (*instance)->source(ring.name.ring);
      if (!source) return source.error().sentence;
      const u64 events = count(**source, problem);
      total += events + ring.counters.dropped + ring.counters.commit_overrun;
      each += ", " + std::to_string(events) + " in ring " + std::to_string(ring.name.ring);
    }
    if (total != tried) problem += std::to_string(total) + " events: " + each;
    return problem;
  }

  // Of `record`: what it says it has, what is in the recording, and what it lost.
  std::string recorded(const std::string& recording, bool kernel = false, u64 wrote = tried) {
    const std::string log = slurp(err);
    const auto meta = RecordingMeta::read(recording);
    if (!meta) return meta.error().sentence;
    for (const EventInfo& e : meta->events)
      if (e.format.empty()) return "no format of " + e.system + ":" + e.name;
    std::string problem;
    const u64 events = count(recording, *meta, problem);
    const auto number = [&](const std::string& behind, bool in_front) {
      size_t at = log.rfind(behind);
      if (at == std::string::npos) return u64{0};
      if (in_front) at = log.find_last_not_of("0123456789,", at - 1) + 1; else at += behind.size();
      std::string digits;
      for (; at < log.size() && (std::isdigit(log[at]) != 0 || log[at] == ','); ++at)
        if (log[at] != ',') digits += log[at];
      return digits.empty() ? u64{0} : u64{std::stoull(digits)};
    };
    const u64 said = number(log.find(" events, ") != std::string::npos ? " events, " : " events in ", true),
              lost = number("; lost ", false);
    if (!problem.empty()) return problem;
    if (kernel && log.find("the kernel could not be asked") != std::string::npos) kernel = false;
    const u64 all =
        kernel ? wrote + 3 : wrote;  // two threads and a process began; more, if the recorder's own are not kept out
    if (said != events && said + lost != events)
      return "it says " + std::to_string(said) + ", the recording has " + std::to_string(events);
    if (kernel ? said + lost < all : said + lost != all)
      return std::to_string(said) + " recorded, " + std::to_string(lost) + " lost";
    return log.find("DOES NOT ADD UP") != std::string::npos ? "the books" : "";
  }
  // Of `record` that failed: a recording that is closed and has no doubts tells of all events that the program tried.
  std::string closed(const std::string& recording, bool kernel) {
    const auto meta = RecordingMeta::read(recording);
    if (!meta || !meta->complete || !meta->account.exact() || kernel || slurp(out) != "tried 250\n") return "";
    std::string problem;
    const u64 events = meta->account.elsewhere() + count(recording, *meta, problem);
    return events == tried ? problem : problem + "a closed recording tells of " + std::to_string(events) + " events";
  }
  // The program itself has noticed nothing.
  std::string program_fine(int code) const {
    if (code != 0) return "the program failed: " + std::to_string(code);
    return slurp(out) == "tried 250\n" ? "" : "the program did not get through";
  }
};

struct Traced : FaultTest, testing::WithParamInterface<Rings> {};

TEST_P(Traced, AProgramNeverNotices) {
  Scenario s;
  s.role = "fault_writer";
  s.command = {program};
  s.kept_in_root = {"i"};
  s.prepare = [&] {
    InstanceOptions options;
    options.name = root + "/i";
    options.rings = GetParam();
    options.buffer_size = 64 << 10;
    options.subbuf_size = 4096;
    must(Instance::create(options));
    setenv("RINGSIDE_INSTANCE", options.name.c_str(), 1);
  };
  s.judge = [&](int code) {
    const std::string wrong = program_fine(code);
    if (!wrong.empty()) return wrong;
    // Said, that some of it is not traced: then nobody counts that.
    const std::string balance = books(root + "/i");
    return says_why(slurp(err)) ? "" : balance;
  };
  inject(s);
}

INSTANTIATE_TEST_SUITE_P(Rings, Traced, testing::Values(Rings::cpu, Rings::thread),
                         [](const auto& one) { return one.param == Rings::cpu ? "cpu" : "thread"; });

struct Record : FaultTest {
  Scenario recording(const std::string& role, std::vector<std::string> more, bool kernel = false) {
    Scenario s;
    s.role = role;
    s.command = {tool, "record", "-b", "64k", "--subbuf-size", "4k"};
    s.command.insert(s.command.end(), more.begin(), more.end());
    s.command.insert(s.command.end(), {"--", program});
    s.kept = {"ringside.data"};
    s.judge = [this, kernel](int code) -> std::string {
      if (code != 0) return closed(dir + "/ringside.data", kernel);
      if (const std::string wrong = program_fine(code); !wrong.empty()) return wrong;
      const std::string balance = recorded(dir + "/ringside.data", kernel);
      return slurp(err).find("not traced") != std::string::npos ? "" : balance;
    };
    return s;
  }
};

TEST_F(Record, WithRingsOfCpus) { inject(recording("ringside", {"--rings", "cpu"})); }
TEST_F(Record, WithRingsOfThreads) { inject(recording("ringside", {"--rings", "thread"})); }
TEST_F(Record, ItsProgram) { inject(recording("fault_writer", {})); }
TEST_F(Record, WithEventsOfTheKernel) {
  inject(recording("ringside", {"-e", "sched:sched_process_fork", "-u", "unit:*"}, true));
}
TEST_F(Record, Compressed) { inject(recording("ringside", {"--compress"})); }

TEST_F(Record, IntoATraceDat) {
  Scenario s = recording("ringside", {"--to", "f.dat"});
  s.kept = {"f.dat"};
  s.kept_if_failed = {"f.dat.parts"};
  s.judge = [this](int code) -> std::string {
    if (code != 0) return "";
    if (fs::exists(dir + "/f.dat.parts") && slurp(err).find("f.dat.parts") == std::string::npos)
      return "f.dat.parts stays, and it says nothing of it";
    if (const std::string wrong = program_fine(code); !wrong.empty()) return wrong;
    const test::Outcome o = ringside("report f.dat --json | grep -c number");
    return o.out == "250\n" ? "" : "the trace.dat has " + o.out + " events";
  };
  inject(s);
}

// What reads a recording answers as it does when nothing fails, or says why not.
struct Reads : FaultTest, testing::WithParamInterface<const char*> {};

TEST_P(Reads, ARecording) {
  ASSERT_EQ(ringside("record -q -o " + dir + ".data -- " + program).code, 0);
  std::string expected;
  Scenario s;
  s.role = "ringside";
  std::istringstream words(GetParam());
  s.command = {tool};
  for (std::string word; words >> word;) s.command.push_back(word);
  s.prepare = [&] { fs::copy(dir + ".data", dir + "/r", fs::copy_options::recursive); };
  s.kept = {"r", "f.dat", "f.html"};
  s.judge = [&](int code) -> std::string {
    const std::string answer = fs::exists(dir + "/f.dat")    ? slurp(dir + "/f.dat")
                               : fs::exists(dir + "/f.html") ? slurp(dir + "/f.html")
                                                             : slurp(out);
    if (expected.empty()) expected = answer;
    return code != 0 || answer == expected ? ""
                                           : "another answer than usual: " + std::to_string(answer.size()) +
                                                 " bytes instead of " + std::to_string(expected.size());
  };
  inject(s);
  fs::remove_all(dir + ".data");
}

INSTANTIATE_TEST_SUITE_P(Commands, Reads,
                         testing::Values("report r", "hist unit:number/event -v n r", "stat r", "export r --to f.dat",
                                         "plot r -o f.html"),
                         [](const auto& one) {
                           std::string name(one.param);
                           name = name.substr(0, name.find(" r"));
                           name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }),
                                      name.end());
                           return name + std::to_string(one.index);
                         });

struct Remote : FaultTest {
  Scenario recording(const std::string& role) {
    Scenario s;
    s.role = role;
    s.command = {
        tool, "remote", "w", "-b", "64k", "--subbuf-size", "4k", "-o", "r", "--", RINGSIDE_BUILD_DIR "/tests/fault_remote"};
    s.kept = {"r", "w"};
    s.begun = ".w.";  // the writer's socket, if the reader ends before that has its name
    s.judge = [this](int code) -> std::string {
      if (code != 0) return "";
      const std::string said = slurp(out);  // less than 250: its reader seemed to have gone
      return said.rfind("tried ", 0) == 0 ? recorded(dir + "/r", false, std::stoull(said.substr(6)))
                                          : "the writer did not get through";
    };
    return s;
  }
};
TEST_F(Remote, TheReader) { inject(recording("ringside")); }

// An instance with the program's events, its program gone.
struct Left : FaultTest {
  void write() const {
    InstanceOptions options;
    options.name = root + "/i";
    options.buffer_size = 64 << 10;
    options.subbuf_size = 4096;
    must(Instance::create(options));
    const test::Outcome o = run("RINGSIDE_INSTANCE=" + options.name + " " + program);
    ASSERT_EQ(o.out, "tried 250\n") << o.err;
  }
  bool until(pid_t child, const std::string& words) const {
    for (int tries = 0; tries < 30'000; ++tries) {
      if (slurp(err).find(words) != std::string::npos) return true;
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child)
        return false;
      usleep(2000);
    }
    return false;
  }
};

TEST_F(Left, Served) {
  Scenario s;
  std::string answer;
  u64 read = 0;
  s.role = "ringside";
  s.command = {tool, "serve", root + "/i", "--socket", dir + "/s"};
  s.prepare = [&] { write(); read = 0; answer.clear(); };
  s.kept_in_root = {"i"};
  s.kept_if_failed = {"s"};  // the next server replaces it
  s.beside = [&](pid_t child) {
    if (until(child, "serving ")) {
      auto served = open_served(dir + "/s");
      if (!served) {
        answer = served.error().sentence;
      } else {
        for (const std::string& problem : served->problems) answer += problem;
        for (auto& source : served->sources) read += count(*source, answer);
      }
    }
    kill(child, SIGTERM);
  };
  s.judge = [&](int code) {
    if (code == 0 && answer.empty() && read != tried) return std::to_string(read) + " events read, and no complaint";
    // What was on its way to a client that got an error is read, and counted so.
    auto instance = Instance::open(root + "/i");
    if (!instance) return instance.error().sentence;
    u64 written = 0;
    for (const RingInfo& ring : (*instance)->rings()) written += ring.counters.written;
    return written == tried && read <= tried ? std::string()
                                             : std::to_string(written) + " written, " + std::to_string(read) + " read";
  };
  inject(s);
}

TEST_F(Left, Watched) {
  Scenario s;
  s.role = "ringside";
  s.command = {tool, "watch", root + "/i", "--json", "--duration", "20ms"};
  s.prepare = [&] { write(); };
  s.kept_in_root = {"i"};
  s.judge = [&](int code) -> std::string {
    return code != 0 || slurp(out).find("\"final\":true") != std::string::npos ? "" : "it did not get through";
  };
  inject(s);
}

// place: where the instance of the program is shown.
struct Mount : Left {
  void inject_mount(std::vector<std::string> more, const std::string& place, std::function<void()> next = [] {});
};

void Mount::inject_mount(std::vector<std::string> more, const std::string& place, std::function<void()> next) {
  if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "/dev/fuse: " << strerrorname_np(errno);
  Scenario s;
  std::string answer;
  u64 lines = 0;
  s.role = "ringside";
  s.command = {tool, "mount", dir + "/m"};
  s.command.insert(s.command.end(), more.begin(), more.end());
  s.next = std::move(next);
  s.prepare = [&] { write(); fs::create_directories(dir + "/m"); answer.clear(); lines = 0; };
  s.kept_in_root = {"i", ".remotes"};
  s.kept = {"m"};
  s.beside = [&](pid_t child) {
    if (until(child, "mounted ")) {
      const int fd = ::open((dir + "/m/" + place + "trace").c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) answer = strerrorname_np(errno);
      std::string text;
      char some[65536];
      for (ssize_t n; fd >= 0 && (n = ::read(fd, some, sizeof some)) != 0;) {
        if (n < 0) {
          answer = strerrorname_np(errno);
          break;
        }
        text.append(some, static_cast<size_t>(n));
      }
      if (fd >= 0) ::close(fd);
      for (size_t at = text.find("number:"); at != std::string::npos; at = text.find("number:", at + 1)) ++lines;
    }
    kill(child, SIGTERM);
  };
  s.judge = [&](int code) -> std::string {
    if (code == 0 && answer.empty() && lines != tried) return std::to_string(lines) + " lines, and no complaint";
    return books(root + "/i");
  };
  inject(s);
}

TEST_F(Mount, OfAnInstance) { inject_mount({"--instance", root + "/i"}, ""); }
// The top level is an instance of its own, which goes with it, or with the next mount.
TEST_F(Mount, OfAll) {
  inject_mount({}, "instances/i/", [&] {
    const std::string log = dir + ".next";
    EXPECT_EQ(std::system(("cd " + dir + " && mkdir -p m; " + tool + " mount m 2>" + log + " & until grep -q mounted " + log +
                           " || ! kill -0 $!; do sleep 0.01; done; kill $!; wait $!")
                              .c_str()),
              0)
        << slurp(log);
    fs::remove(log);
  });
}

}  // namespace
}  // namespace ringside
