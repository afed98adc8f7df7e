// What new users type first, coming from trace-cmd, perf, strace and bpftrace, and what it must do.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "instance/instance.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/json.hpp"
#include "sys/sys.hpp"

namespace ringside::newcomer_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;
using testing::Not;

const std::string build = RINGSIDE_BUILD_DIR "/", tool = build + "ringside";

struct Newcomer : test::BinaryTest {
  // The names of a recording's events.
  std::set<std::string> names(const std::string& arguments = "") const {
    std::set<std::string> all;
    for (const json& e : events(arguments)) all.insert(e.at("event"));
    return all;
  }
  // Makes instance `web` with the example's two kinds of events, and those of the C library's reads and opens in it.
  void make_web() {
    ASSERT_EQ(ringside("record -q -i web -o made -- true").code, 0);
    ASSERT_EQ(
        run("RINGSIDE_INSTANCE=web RINGSIDE_LIBC=io LD_PRELOAD=" + build + "libringside-libc.so " + build + "example_01_write")
            .code,
        0);
  }
};

struct NewcomerAsRoot : Newcomer {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    Newcomer::SetUp();
  }
};

// Its programs may declare the event later.
TEST_F(Newcomer, AnEventThatALiveInstanceDoesNotHaveYet) {
  make_web();
  const Outcome o = run(tool +
                        " hist event web -e net:idel --json --interval 20ms 2>said >seen & P=$!; until [ -s seen ]; do sleep "
                        "0.02; done; cat said; kill -INT $P; wait $P");
  EXPECT_THAT(o.out, HasSubstr("waiting: no event in what is live matches \"net:idel\"; did you mean net:idle?"));
  EXPECT_THAT(o.out,
              HasSubstr("no process writes to web now; waiting for one until Ctrl-C; --once: what is there, and no waiting"));
}

TEST_F(NewcomerAsRoot, AFieldThatNoLiveEventHas) {
  const Outcome o = ringside("hist size -e 'sched:*'");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("\"size\": no event of -e has it"));
}

TEST_F(NewcomerAsRoot, EventsOfPerfLeadToWhatIsLikeThem) {
  for (const auto& [event, wanted] : {std::pair{"cycles", "did you mean --sample 999?"},
                                      {"cycles:u", "--sample 999"},
                                      {"page-faults", "-e exceptions:page_fault_user"}}) {
    const Outcome o = ringside(std::string("record -e ") + event + " touch ran");
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(wanted));
    EXPECT_FALSE(fs::exists(dir + "/ran"));
  }
}

TEST_F(NewcomerAsRoot, SyscallsRunsACommandAsStraceDoes) {
  for (const char* typed :
       {"syscalls cat /nonexistent", "syscalls -c cat /nonexistent", "syscalls --sort calls -- cat /nonexistent"}) {
    const Outcome o = ringside(typed);
    EXPECT_EQ(o.code, 1) << typed << o.err;
    EXPECT_THAT(o.err, HasSubstr("ENOENT ")) << typed;  // stdout is the command's
    EXPECT_EQ(o.out, "") << typed;
  }
  Outcome o = ringside("syscalls -o table cat /etc/hostname");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, test::slurp("/etc/hostname"));
  EXPECT_EQ(o.err, "");
  EXPECT_THAT(test::slurp(dir + "/table"), HasSubstr("openat"));
  EXPECT_THAT(ringside("syscalls -o - cat /etc/hostname").out, HasSubstr("openat"));
  o = ringside("syscalls -o no/such/table touch ran");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr("cannot write no/such/table"));
  EXPECT_FALSE(fs::exists(dir + "/ran"));
  // A recording of that name comes first.
  ASSERT_EQ(ringside("record -q -e raw_syscalls -o cat -- true").code, 0);
  EXPECT_THAT(ringside("syscalls cat").out, HasSubstr("execve"));
}

TEST_F(NewcomerAsRoot, ALiveViewNamesTheRecordingBesideIt) {
  ASSERT_EQ(ringside("record -q -e sched -- true").code, 0);
  EXPECT_THAT(ringside("latency wakeup --duration 1ms").err,
              HasSubstr("the recording in this directory takes its name: ringside.data"));
}

TEST_F(NewcomerAsRoot, TheConditionNamesThePair) {
  const Outcome o = ringside("trigger 'latency wakeup > 1ns' -o snap");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("latency "));
  EXPECT_EQ(json::parse(ringside("stat snap --json").out).at("trigger").at("condition"), "latency wakeup > 1ns");
}

TEST_F(NewcomerAsRoot, TwoEventsWithACommaAsInPerf) {
  const Outcome o = ringside("record -a -e sched:sched_switch,sched_waking ls -la /etc/hostname");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("/etc/hostname"));
  EXPECT_EQ(names(), (std::set<std::string>{"sched:sched_switch", "sched:sched_waking"}));
}

TEST_F(NewcomerAsRoot, AMistypedEventEndsBeforeAnythingIsRunOrReplaced) {
  ASSERT_EQ(ringside("record --libc io dd if=/etc/hostname of=copy").code, 0);
  const size_t before = events().size();
  for (const auto& [pattern, near] : {std::pair{"sched:sched_swich", "did you mean sched:sched_switch?"},
                                      {"sched:switch", "sched:sched_switch"},
                                      {"sched_swich", "sched:sched_switch"},
                                      {"shed:sched_switch", "sched:sched_switch"},
                                      {"sched:nope", "there are sched_"},
                                      {"libc:malloc", "-u names events of programs"}}) {
    const Outcome o = ringside(std::string("record -e ") + pattern + " touch ran");
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(near));
    EXPECT_FALSE(fs::exists(dir + "/ran"));
  }
  EXPECT_EQ(events().size(), before);
  EXPECT_FALSE(fs::exists(dir + "/ringside.data.old"));
}

// The kernel has a system "net", too.
TEST_F(NewcomerAsRoot, AFieldOfTheKernelThatTheRecordingLacks) {
  ASSERT_EQ(ringside("record --libc io dd if=/etc/hostname of=copy").code, 0);
  const Outcome o = ringside("hist prev_comm");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("no event here has a field \"prev_comm\""));
  EXPECT_THAT(o.err, HasSubstr("add -e sched:sched_switch"));
  EXPECT_THAT(ringside("hist no_such_field_anywhere").err, Not(HasSubstr("add -e")));
}
TEST_F(NewcomerAsRoot, UserEventsNeverMeanTheKernels) {
  make_web();
  const Outcome o = ringside("record -i web -u 'net:*' --duration 10ms");
  EXPECT_EQ(o.code, 0) << o.err;
  for (const std::string& name : names())
    EXPECT_TRUE(name.starts_with("net:") || name.starts_with("libc:") || name.starts_with("ringside:")) << name;
  EXPECT_EQ(names("ringside.data -e 'net:*'").size(), 2u);
  EXPECT_THAT(run("ls ringside.data").out, Not(HasSubstr("cpu0.raw")));
}

// What it takes from the rings it records, and says so before.
TEST_F(Newcomer, UserEventsOfARunningInstanceComeWithTheOthers) {
  make_web();
  const std::set<std::string> all = names("web");
  ASSERT_TRUE(all.count("libc:read") && all.size() > 2) << all.size();
  const size_t events_there = events("web").size(), reads = events("web -e libc:read").size();
  Outcome o = ringside("record -i web -u libc:read --duration 10ms");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(names(), all);
  EXPECT_EQ(events().size(), events_there);
  EXPECT_EQ(events("-e libc:read").size(), reads);
  EXPECT_THAT(o.err, HasSubstr("web has other events enabled, too: "));
  EXPECT_THAT(o.err, HasSubstr("ringside report -e libc:read shows yours alone"));
  EXPECT_THAT(o.err, HasSubstr("lost 0;"));
}

TEST_F(Newcomer, APatternThatMatchesNoDeclaredEvent) {
  make_web();
  ASSERT_EQ(ringside("record -q -i web -u libc:read --duration 1ms").code, 0);
  for (const auto& [pattern, wanted] :
       {std::pair{"'nothing:*'", "-u nothing:*: no program declared such an event; declared were "},
        {"libc:reed", "-u libc:reed: no program declared such an event; did you mean libc:read?"},
        {"libc:read,libc:reed", "did you mean libc:read?"}}) {
    const Outcome o = ringside(std::string("record -i web --duration 1 -u ") + pattern);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(wanted));
    EXPECT_FALSE(fs::exists(dir + "/ringside.data.old"));
  }
  // Nothing is declared yet, or the command will do it: told at the end.
  for (const char* typed : {"record -i new -u 'nothing:*' --duration 1ms", "record -i web -u 'nothing:*' true"}) {
    const Outcome o = ringside(typed);
    EXPECT_EQ(o.code, 0) << typed << o.err;
    EXPECT_THAT(o.err, HasSubstr("-u nothing:*: no program declared such an event")) << typed;
    EXPECT_THAT(o.err, HasSubstr("\nringside: 0 events")) << typed;
  }
}

TEST_F(Newcomer, AProgramInThisDirectoryAndAnExport) {
  ASSERT_EQ(run("cp /bin/true own-program").code, 0);
  Outcome o = ringside("record own-program");
  EXPECT_EQ(o.code, 127);
  EXPECT_THAT(o.err, HasSubstr("cannot execute own-program (the one in this directory: ./own-program)"));
  ASSERT_EQ(ringside("record -q --libc io dd if=/etc/hostname of=copy").code, 0);
  ASSERT_EQ(ringside("export -o x.pftrace").code, 0);
  EXPECT_THAT(ringside("report x.pftrace").err,
              HasSubstr("what can be read are recordings, trace.dat files, instances and CTF traces"));
}

TEST_F(Newcomer, RecoverIsForMemoryDumps) {
  make_web();
  for (const auto& [typed, wanted] : {std::pair{"recover web", "ringside crash web"},
                                      {"recover made", "made is a directory, and recover reads a memory dump"}}) {
    const Outcome o = ringside(typed);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(wanted));
  }
}

// The books of an instance are of all its time.
TEST_F(Newcomer, TwoTotalsAreExplained) {
  make_web();
  EXPECT_EQ(ringside("record -i web --duration 1ms").err.find("since it was made"), std::string::npos);
  const Outcome o = ringside("record -i web --duration 1ms");  // these were read before
  EXPECT_THAT(o.err, HasSubstr("\nringside: web since it was made: written "));
}

TEST_F(Newcomer, TheNotationOfHistInAFilter) {
  ASSERT_EQ(ringside("record -q --libc malloc,io dd if=/etc/hostname of=copy").code, 0);
  u64 large = 0;
  for (const json& e : events()) large += e.value("event", "") == "libc:malloc" && e["fields"]["size"] > 100;
  ASSERT_GT(large, 0u);
  EXPECT_EQ(events("-f 'libc:malloc/size > 100'").size(), large);
  EXPECT_EQ(events("-f '!(libc:malloc/size > 100) && event == malloc || libc:malloc/size > 100'").size(),
            events("-e libc:malloc").size());
  EXPECT_THAT(ringside("report -f 'libc:malloc/siez > 100'").err, HasSubstr("did you mean size"));
  EXPECT_THAT(ringside("report -f 'libc:maloc/size > 100'").err,
              HasSubstr("no event here matches \"libc:maloc\"; did you mean libc:malloc"));
  const Outcome o = ringside("trigger 'libc:malloc/size > 100' --libc malloc -o snap -- ls");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("triggered by: "));
  EXPECT_THAT(ringside("trigger 'libc:malloc/size > 100'").err,
              HasSubstr("a command after --, may have it, with --libc malloc"));
}

TEST_F(Newcomer, EventsOfTheCLibraryThatWereNotRecorded) {
  ASSERT_EQ(ringside("record -q " + build + "example_01_write").code, 0);
  for (const auto& [typed, wanted] : {std::pair{"hist libc:malloc/size ringside.data", "no event here matches \"libc:malloc\""},
                                      {"report -e libc:malloc", "matches \"libc:malloc\""},
                                      {"latency malloc ringside.data", "record --libc malloc"}}) {
    const Outcome o = ringside(typed);
    EXPECT_NE(o.code, 0) << typed;
    EXPECT_THAT(o.err, HasSubstr(wanted));
    EXPECT_THAT(o.err, HasSubstr("; ringside record --libc malloc COMMAND records these")) << typed;
  }
  EXPECT_THAT(ringside("report -e libc:read").err, HasSubstr("record --libc io COMMAND"));
}

// While the program writes: its sub-buffers are read piece by piece, and times and order stay.
TEST_F(Newcomer, UserEventsSelectWhileTheProgramWrites) {
  ASSERT_EQ(ringside("record -q -i web -b 64k --subbuf-size 4k -o made -- true").code, 0);
  ASSERT_EQ(ringside("disable -i web '*:*'").code, 0);
  const std::string traced = "RINGSIDE_INSTANCE=web RINGSIDE_LIBC=io LD_PRELOAD=" + build + "libringside-libc.so ";
  const Outcome o =
      run(tool + " record -i web -u libc:write -o some -- sh -c 'unset RINGSIDE_LIBC LD_PRELOAD; for n in 1 2 3; do " +
          traced + "dd if=/dev/zero of=/dev/null bs=1 count=700 2>/dev/null; done'");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(names("some"), std::set<std::string>{"libc:write"});
  u64 last = 0, writes = 0, lost = 0;
  for (const json& e : report("some")) {  // losses, too
    EXPECT_GE(e.at("ts").get<u64>(), last);
    last = e.at("ts");
    lost += e.value("lost", u64{0});
    writes += e.contains("fields") && e.at("fields").value("count", 0) == 1;
  }
  if (lost == 0) {
    EXPECT_EQ(writes, 2100u);
  }
  EXPECT_EQ(ringside("stat some").code, 0);
}

TEST_F(Newcomer, AnEventThatIsNotThereIsNamedWithNearOnes) {
  ASSERT_EQ(ringside("record --libc io dd if=/etc/hostname of=copy").code, 0);
  for (const std::string command : {"report", "top", "hist event", "plot", "watch --batch"}) {
    const Outcome o =
        ringside(command + (command == "hist event" || command == "top" || command == "watch --batch" ? " ringside.data" : "") +
                 " -e libc:raed");
    EXPECT_EQ(o.code, 2) << command << o.err;
    EXPECT_THAT(o.err, HasSubstr("no event in ringside.data matches \"libc:raed\"; did you mean libc:read?")) << command;
    EXPECT_EQ(o.out, "") << command;
  }
  EXPECT_EQ(json::parse(ringside("top ringside.data -e read --json").out)["rows"].size(), 1u);
  EXPECT_EQ(json::parse(ringside("hist event ringside.data -e libc:read,libc:close --json").out)["rows"].size(), 2u);
}

// Without WHERE, events that the kernel does not have are those of ./ringside.data.
TEST_F(Newcomer, EventsOfTheRecordingNeedNoWhere) {
  ASSERT_EQ(ringside("record --libc io dd if=/etc/hostname of=copy").code, 0);
  const Outcome o = ringside("hist count -e libc:read --json");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_GT(json::parse(o.out)["count"], 0);
}

TEST_F(Newcomer, ACommandNeedsNoDashes) {
  EXPECT_EQ(ringside("record sh -c 'echo $0 $1; exit 7' --json -i").out, "--json -i\n");
  EXPECT_EQ(ringside("record -q --libc=io -bm2M ls -la").code, 2);  // a mistyped size, and nothing else
  EXPECT_EQ(ringside("record -q --libc=io -b2M sh -c 'exit 7'").code, 7);
  EXPECT_EQ(ringside("record -qo other --libc io -- sh -c 'exit 7' -la").code, 7);
  EXPECT_TRUE(fs::exists(dir + "/other/meta.json"));
  EXPECT_EQ(ringside("record -o x echo -- y").out, "-- y\n");
  EXPECT_EQ(ringside("record true --nonsense").code, 0);
}

TEST_F(Newcomer, HelpAndVersionInEveryForm) {
  EXPECT_EQ(ringside("help").out, ringside("--help").out);
  EXPECT_EQ(ringside("help record").out, ringside("record --help").out);
  EXPECT_THAT(ringside("help record").out, HasSubstr("Examples:\n  ringside record"));
  for (const char* version : {"version", "-V", "--version"})
    EXPECT_EQ(ringside(version).out.rfind("ringside ", 0), 0u) << version;
  Outcome o = ringside("recor");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("\"recor\" is no command of ringside; did you mean record"));
  EXPECT_THAT(ringside("help recrod").err, HasSubstr("did you mean record"));
  o = ringside("report --jsn");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("ringside report has no option \"--jsn\"; did you mean --json?"));
  EXPECT_THAT(ringside("record --libs io ls").err, HasSubstr("did you mean --libc?"));
  EXPECT_EQ(ringside("record --libs io ls").code, 2);
}

// "empty rows in stat"
TEST_F(Newcomer, RingsWithoutAnEventShareARowOfStat) {
  ASSERT_EQ(ringside("record -q -o none true").code, 0);
  const size_t rings = json::parse(ringside("stat none --json").out).at("rings").size();
  const std::string table = ringside("stat none").out;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4) << table;
  EXPECT_TRUE(rings < 2 || std::regex_search(table, std::regex("\n +" + std::to_string(rings) + " +rings +no event +0 ")))
      << table;
  make_web();
  EXPECT_THAT(ringside("stat web").out, testing::ContainsRegex("\n +[0-9]+  cpu[0-9]+ +live +[1-9]"));
}

TEST_F(NewcomerAsRoot, OptionsOfOtherToolsThatMeanTheSameHere) {
  // perf record -F 99 -g CMD; -F99; perf record -g -e EVENT CMD; perf record -z; trace-cmd record -P PID.
  for (const char* typed : {"-F 999 -g", "-g -F999", "-F 999"}) {
    ASSERT_EQ(ringside(std::string("record -q ") + typed + " sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'").code,
              0)
        << typed;
    EXPECT_THAT(names(), testing::Contains("ringside:sample")) << typed;
  }
  ASSERT_EQ(ringside("record -q -g -e sched:sched_process_exec true").code, 0);
  EXPECT_THAT(names(), testing::Contains("ftrace:kernel_stack"));
  ASSERT_EQ(ringside("record -q -z -e sched:sched_process_exec true").code, 0);
  EXPECT_THAT(names(), testing::Contains("sched:sched_process_exec"));
  ASSERT_EQ(run("sleep 60 & P=$!; " + tool + " record -q -e sched:sched_process_exit -P $P " + kill_and_wait).code, 0);
  EXPECT_EQ(events().size(), 1u);
}

// Words of other tools, and a command line that lacks something: one sentence, and where to read on.
TEST_F(Newcomer, AWrongCommandLineSaysWhatToType) {
  ASSERT_EQ(ringside("record -q --libc malloc,io dd if=/etc/hostname of=copy").code, 0);
  for (const auto& [typed, wanted] :
       {std::pair{"script", "did you mean report? See ringside --help\n"},
        {"strace ls", "did you mean syscalls?"},
        {"record -v ls", "all that there is to say is said without it"},
        {"record -l vfs_read ls", "-e kprobe:FUNCTION"},
        {"record -c ls", "what the command starts is followed without it"},
        {"record -F -e sched ls", "a command is recorded alone"},
        {"report -g", "ringside flame adds them up"},
        {"report --sort comm", "ringside hist KEY"},
        {"trigger libc:reed --libc io -- ls", "\"libc:reed\": --libc traces no such call; did you mean "},
        {"trigger 'libc:fopen if ret == 0' --libc io -- ls", "\"libc:fopen\": --libc traces no such call; did you mean open?"},
        {"record -C 0 ls", "did you mean --filter 'cpu == 0'?"},
        {"record -m 1M ls", "did you mean --buffer-size?"},
        {"convert", "did you mean export?"},
        {"snapshot", "did you mean trigger?"},
        {"sched", "did you mean latency wakeup?"},
        {"diff a b", "did you mean flame --against?"},
        {"lock", "did you mean flame --contention?"},
        {"record -F 'prev_prio < 100' ls", "filters are -f"},
        {"record -d 1 ls", "did you mean --duration 1s?"},
        {"record -R stacktrace ls", "did you mean --kstack?"},
        {"record -p function ls", "--pid takes the number of a process, not \"function\"; see"},
        {"record -p 1,x ls", "--pid takes the number of a process"},
        {"record -p 1 --duration 1ms", "of process 1: name events of the kernel with -e, take --sample 999"},
        {"report --comm sleep", "did you mean --filter 'task == NAME'?"},
        {"export --json", "did you mean --output FILE.json?"},
        {"list -e nope:nope", "no event matches nope:nope"},
        {"report --jsn", "did you mean --json? See ringside report --help\n"},
        {"report -p 3", "did you mean --tid?"},
        {"report -n", "--max-count needs a value; see ringside report --help\n"},
        {"--hlep", "ringside has no option \"--hlep\"; did you mean --help?"},
        {"report --json=foo", "--json takes no value"},
        {"top -n -1", "--max-count: \"-1\" is no positive number"},
        {"crash -n 18446744073709551616", "--max-count: \"18446744073709551616\" is no positive number"},
        {"report -n x", "--max-count: \"x\" is no positive number"},
        {"report -n 0", "--max-count: \"0\" is no positive number"},
        {"report -n 1.5", "--max-count: \"1.5\" is no positive number"},
        {"stat", "ringside: ringside stat needs WHERE; see ringside stat --help\n"},
        {"-v", "ringside has no option \"-v\""},
        {"latency syscalls -- ls", "ringside: ringside latency has no use for \"ls\""},
        {"latency wakup", "did you mean wakeup?"},
        {"latency wakup ringside.data", "did you mean wakeup?"},
        {"export ringside.data x.json", "did you mean -o x.json?"},
        {"export", "did you mean -o FILE?"},
        {"trigger 'latency > 1us'", "as in 'latency wakeup > 1ms'"},
        {"trigger 'latency wakup > 1us'", "did you mean wakeup?"}}) {
    const Outcome o = ringside(typed);
    EXPECT_EQ(o.code, 2) << typed << o.err;
    EXPECT_EQ(o.err.rfind("ringside: ", 0), 0u) << typed << o.err;
    EXPECT_THAT(o.err, HasSubstr(wanted)) << typed;
    EXPECT_EQ(o.out, "") << typed;
  }
  // Where no recording is.
  const Outcome alone = run("mkdir -p nowhere && cd nowhere && " RINGSIDE_BUILD_DIR "/ringside");
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("Subcommands:"));
  for (const auto& [filter, wanted] : {std::pair{"ts > +0.5s", "--time +0.5s.."},
                                       {"size > 1 && ts < +0.5s", "--time ..+0.5s"}})
    EXPECT_THAT(ringside(std::string("report -F '") + filter + "'").err, HasSubstr(wanted));
  EXPECT_EQ(ringside("report -F 'comm == \"a: b\"'").code, 0);
  EXPECT_THAT(ringside("record 'ls | wc -l'").err, HasSubstr("sh -c 'ls | wc -l'"));
  EXPECT_THAT(ringside("hist libc:free/size ringside.data").err,
              HasSubstr("\"libc:free/size\": there is no such field; libc:free has ptr"));
  EXPECT_THAT(ringside("report nope.data").err, HasSubstr("there is no recording, trace.dat or instance nope.data"));
  EXPECT_THAT(ringside("report /dev/null").err, HasSubstr("/dev/null is neither a recording nor a trace.dat nor an instance"));
}

// trace-cmd's first line. A file for other tools is a file, as of export.
TEST_F(NewcomerAsRoot, AFileOfAnotherFormatIsAFile) {
  Outcome o = ringside("record -o trace.dat -e sched ls");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(fs::is_regular_file(dir + "/trace.dat"));
  EXPECT_THAT(ringside("report trace.dat").out, HasSubstr("sched_switch: "));
  o = ringside("record -o all.json --libc io dd if=/etc/hostname of=copy");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(fs::is_regular_file(dir + "/all.json"));
}

TEST_F(NewcomerAsRoot, CommasBetweenProcesses) {
  const Outcome o = run("sleep 60 & A=$!; sleep 60 & B=$!; " + tool +
                        " record -p $A,$B -e sched --duration 10ms; code=$?; kill $A $B; exit $code");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(ringside("record -p 1,4194304 -e sched --duration 1ms").err, HasSubstr("there is no process 4194304"));
  EXPECT_THAT(ringside("record -p 4194304").err, HasSubstr("there is no process 4194304"));
}

// The kernel wants quotes.
TEST_F(NewcomerAsRoot, AFilterOfTheKernelWithoutQuotes) {
  for (const char* filter :
       {"prev_comm == ls", "prev_comm ~ l*", "prev_pid > 0 && (prev_comm==ls||prev_comm == \"dd\")", "COMM == ls"}) {
    const Outcome o = ringside(std::string("record -q -e sched_switch -f '") + filter + "' -- ls");
    EXPECT_EQ(o.code, 0) << filter << o.err;
    EXPECT_GT(events().size(), 0u) << filter;
    for (const json& e : events()) EXPECT_EQ(e.at("fields").at("prev_comm"), "ls") << filter;
  }
}

TEST_F(NewcomerAsRoot, PathsOfSystemCallsAreAddresses) {
  ASSERT_EQ(ringside("record -q -e syscalls:sys_enter_openat ls").code, 0);
  EXPECT_THAT(ringside("report -f 'filename ~ \"*passwd*\"'").err,
              HasSubstr("the address of a path; record --libc io COMMAND has paths"));
}

TEST_F(NewcomerAsRoot, AnInstanceHasASystemOfTheKernels) {
  make_web();
  const Outcome o = ringside("record -i web -e 'net:*' --duration 10ms");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("-e net:* means the kernel's events; web has some of this name, too: -u net:*"));
  EXPECT_EQ(ringside("record -i web -e 'sched:*' --duration 10ms").err.find("means the kernel's"), std::string::npos);
}

TEST_F(Newcomer, EventsFromBeforeTheRecordingAreCounted) {
  make_web();
  const size_t before = events("web").size();
  ASSERT_GT(before, 1u);
  EXPECT_THAT(ringside("record -i web --duration 1ms").err,
              HasSubstr(std::to_string(before) + " events were in the rings of web when this began"));
  EXPECT_EQ(events().size(), before);
  EXPECT_THAT(ringside("record -i web --duration 1ms").err, Not(HasSubstr("when this began")));
}

// Root is not asked to know whose instance it is, and gets none of its own by mistake.
TEST_F(Newcomer, ANameOfAnotherUsersInstanceIsNoNewInstance) {
  if (geteuid() != 0) GTEST_SKIP() << "only root sees instances of other users";
  const std::string theirs = "/dev/shm/ringside-65534";
  if (run("RINGSIDE_ROOT= setpriv --reuid 65534 --clear-groups " + tool + " list").code != 0 ||
      fs::exists(theirs + "/ringside-newcomer"))
    GTEST_SKIP() << "no other user may run this";
  ASSERT_EQ(run("cd /; unset RINGSIDE_ROOT; RINGSIDE_INSTANCE=ringside-newcomer setpriv --reuid 65534 --clear-groups " + build +
                "example_01_write")
                .code,
            0);
  const Outcome o = ringside("record -i ringside-newcomer --duration 1ms");
  run("cd /; unset RINGSIDE_ROOT; setpriv --reuid 65534 --clear-groups " + tool + " rm ringside-newcomer");
  std::error_code not_empty;
  fs::remove(theirs, not_empty);
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr(theirs + "/ringside-newcomer: name it by that path"));
  EXPECT_FALSE(fs::exists(dir + "/root/ringside-newcomer"));
}

// One line, once; a recorder that has gone is no mistake of the user's.
TEST_F(Newcomer, AnInstanceThatCannotBeMadeIsReported) {
  for (const auto& [environment, words] :
       {std::pair{"RINGSIDE_INSTANCE=bad/name", "not traced, the instance bad/name of RINGSIDE_INSTANCE cannot be opened"},
        {"RINGSIDE_ROOT=$PWD/missing/root RINGSIDE_INSTANCE=x",
         "not traced, the instance x of RINGSIDE_INSTANCE cannot be opened"}}) {
    const Outcome o = run(std::string(environment) + " " + build + "example_01_write");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.err, HasSubstr(words));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
  EXPECT_EQ(run("RINGSIDE_INSTANCE=$PWD/record-1 " + build + "example_01_write").err, "");
}

// What names addresses is not shown as text, and a stack is not preceded by its number.
TEST_F(Newcomer, SamplesAreReadable) {
  ASSERT_EQ(ringside("record -q --sample 999 sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'").code, 0);
  const std::string text = ringside("report").out;
  EXPECT_THAT(text, HasSubstr("sample: count="));
  EXPECT_THAT(text, HasSubstr("\n => "));
  EXPECT_THAT(text, Not(HasSubstr("code_map: ")));
  EXPECT_THAT(text, Not(HasSubstr(" stack: ")));
  EXPECT_THAT(text, Not(HasSubstr("stack=0x")));
  EXPECT_THAT(ringside("report -e code_map").out, HasSubstr("code_map: "));
}

TEST_F(Newcomer, CommandsAndFilesOfOthersAreNamed) {
  EXPECT_THAT(ringside("stat ls").err, HasSubstr("ringside syscalls ls counts its system calls"));
  run("printf 'PERFILE2.......................' >p.data");
  EXPECT_THAT(ringside("report p.data").err, HasSubstr("p.data is a perf.data, which perf script prints"));
  EXPECT_EQ(ringside("list nope:nope").out, "");
}

TEST_F(Newcomer, AnOlderGraphIsNotReplacedByAnEmptyOne) {
  ASSERT_EQ(ringside("record -q --libc io dd if=/etc/hostname of=copy").code, 0);
  run("echo older >flame.html");
  const Outcome o = ringside("flame ringside.data");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr("flame.html was not written"));
  EXPECT_EQ(test::slurp(dir + "/flame.html"), "older\n");
  EXPECT_THAT(ringside("plot --from +35s").err, HasSubstr("no event from +35,000 ms on; "));
}

TEST_F(Newcomer, AnOlderRecordingIsKept) {
  ASSERT_EQ(ringside("record --libc io dd if=/etc/hostname of=copy").code, 0);
  const size_t first = events().size();
  ASSERT_GT(first, 0u);
  // A wrong command line, or a command that is not there, moves nothing.
  for (const char* wrong : {"record --nonsense true", "record --libc nothing true", "record nothing-of-this-name",
                            "record -b 1 true", "record -e 'a b' true"}) {
    EXPECT_NE(ringside(wrong).code, 0) << wrong;
    EXPECT_EQ(events().size(), first) << wrong;
    EXPECT_FALSE(fs::exists(dir + "/ringside.data.old")) << wrong;
  }
  ASSERT_EQ(ringside("record true").code, 0);
  EXPECT_EQ(events("ringside.data.old").size(), first);
  EXPECT_EQ(events().size(), 0u);
  ASSERT_EQ(ringside("record -q --libc io dd if=/etc/hostname of=copy").code, 0);  // a second .old takes the place of the first
  EXPECT_EQ(events("ringside.data.old").size(), 0u);
  EXPECT_GT(events().size(), 0u);
  // A recorder that died in between left .old empty.
  ASSERT_EQ(run("rm ringside.data.old/*").code, 0);
  ASSERT_EQ(ringside("record true").code, 0);
  EXPECT_GT(events("ringside.data.old").size(), 0u);
  // Through a symlink: its target.
  ASSERT_EQ(run("mkdir far && ln -s far/r near").code, 0);
  ASSERT_EQ(ringside("record -q -o far/r true").code, 0);
  ASSERT_EQ(ringside("record -q -o near --libc io dd if=/etc/hostname of=copy").code, 0);
  EXPECT_TRUE(fs::exists(dir + "/far/r.old/meta.json"));
  EXPECT_GT(events("far/r").size(), 0u);
}

TEST_F(Newcomer, WhatIsNoRecordingIsNeverMovedOrRemoved) {
  ASSERT_EQ(ringside("record -q true").code, 0);
  ASSERT_EQ(run("mkdir ringside.data.old && echo dear > ringside.data.old/letter").code, 0);
  Outcome o = ringside("record touch ran");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("will not replace ringside.data.old"));
  EXPECT_FALSE(fs::exists(dir + "/ran"));
  EXPECT_TRUE(fs::exists(dir + "/ringside.data/meta.json"));
  EXPECT_TRUE(fs::exists(dir + "/ringside.data.old/letter"));
  ASSERT_EQ(run("echo dear > ringside.data/letter; mkdir empty; echo dear > file").code, 0);
  EXPECT_EQ(ringside("record touch ran").code, 1);
  EXPECT_TRUE(fs::exists(dir + "/ringside.data/letter"));
  EXPECT_EQ(ringside("record -o file touch ran").code, 1);
  EXPECT_TRUE(fs::is_regular_file(dir + "/file"));
  EXPECT_FALSE(fs::exists(dir + "/ran"));
  EXPECT_EQ(ringside("record -o empty true").code, 0);
  EXPECT_FALSE(fs::exists(dir + "/empty.old"));
}

// A program of nothing but exit(0); with a note of Go, if asked.
void make_static(const std::string& path, bool go) {
#ifdef __x86_64__
  struct {
    Elf64_Ehdr header{};
    Elf64_Phdr parts[2]{};
    Elf64_Nhdr note{4, 4, 4};
    char name[8] = "Go\0\0id";
    unsigned char code[9] = {0xB8, 60, 0, 0, 0, 0x31, 0xFF, 0x0F, 0x05};
  } file;
  std::memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_ident[EI_DATA] = ELFDATA2LSB;
  file.header.e_ident[EI_VERSION] = EV_CURRENT;
  file.header.e_type = ET_EXEC;
  file.header.e_machine = EM_X86_64;
  file.header.e_version = EV_CURRENT;
  const u64 at = 0x400000;
  file.header.e_entry = at + offsetof(decltype(file), code);
  file.header.e_phoff = offsetof(decltype(file), parts);
  file.header.e_ehsize = sizeof file.header;
  file.header.e_phentsize = sizeof(Elf64_Phdr);
  file.header.e_phnum = go ? 2 : 1;
  file.parts[0].p_type = PT_LOAD;
  file.parts[0].p_flags = PF_R | PF_X;
  file.parts[0].p_vaddr = file.parts[0].p_paddr = at;
  file.parts[0].p_filesz = file.parts[0].p_memsz = sizeof file;
  file.parts[0].p_align = 4096;
  file.parts[1].p_type = PT_NOTE;
  file.parts[1].p_offset = offsetof(decltype(file), note);
  file.parts[1].p_filesz = 20;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&file), sizeof file);
  fs::permissions(path, fs::perms(0755));
#endif
}

TEST_F(Newcomer, AnEmptyRecordingSaysWhy) {
  Outcome o = ringside("record true");
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.err, HasSubstr("true wrote no events of its own; try --libc malloc,io or, as root, -e 'sched:*'"));
  EXPECT_EQ(ringside("record -q true").err, "");
  EXPECT_EQ(ringside("record sh -c 'exit 3'").code, 3);
  ASSERT_EQ(ringside("record -q -i young --duration 10ms").code, 0);
  EXPECT_THAT(ringside("record -i young --duration 10ms").err,
              HasSubstr("no program has declared an event in young yet: start one with RINGSIDE_INSTANCE=young"));
  ASSERT_EQ(ringside("disable -i young '*'").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=young " + build + "example_01_write").code, 0);
  o = ringside("record -i young --duration 10ms");
  EXPECT_THAT(o.err, HasSubstr("no event of a program is enabled; try -u PATTERN, or ringside enable -i young PATTERN"));
  EXPECT_THAT(o.err, HasSubstr("\nringside: no event"));
  ASSERT_EQ(
      run(tool + " record -q -i tiny -u net:idle --duration 10ms; RINGSIDE_INSTANCE=tiny " + build + "example_01_write").code,
      0);
  EXPECT_EQ(events("tiny").size(), 1u);
#ifdef __x86_64__
  make_static(dir + "/still", false);
  make_static(dir + "/gob", true);
  EXPECT_THAT(ringside("record --libc io ./still").err, HasSubstr("--libc saw nothing: ./still is a static program"));
  EXPECT_THAT(ringside("record --libc io ./gob").err, HasSubstr("./gob is a Go program"));
  EXPECT_THAT(ringside("record ./gob").err,
              HasSubstr("./gob wrote no events of its own, and --libc would not see its calls: ./gob is a Go program"));
#endif
}

TEST_F(Newcomer, ASetuidProgramIsNamed) {
  struct statvfs fs {};
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  if (statvfs(dir.c_str(), &fs) == 0 && (fs.f_flag & ST_NOSUID) != 0) GTEST_SKIP() << dir << " is mounted with nosuid";
  ASSERT_EQ(run("cp \"$(command -v dd)\" su && chown 65533 su && chmod 4755 su && chmod 755 .").code, 0);
  const Outcome o = ringside("record --libc malloc,io ./su if=/dev/null of=/dev/null");
  EXPECT_THAT(o.err, HasSubstr("./su is setuid, setgid or has capabilities, so the loader preloads nothing into it"));
}

TEST_F(Newcomer, EventsAreEnabledAndDisabledFromOutside) {
  EXPECT_EQ(ringside("enable 'net:*'").code, 2);
  ASSERT_EQ(ringside("record -q -i web --duration 10ms").code, 0);
  const std::string write = "RINGSIDE_INSTANCE=web " + build + "example_01_write";
  EXPECT_THAT(ringside("disable packet_in").err, HasSubstr("web: no program has declared an event that matches packet_in yet"));
  ASSERT_EQ(run(write).code, 0);
  EXPECT_EQ(names("web").count("net:packet_in"), 0u);
  EXPECT_EQ(names("web").count("net:idle"), 1u);
  Outcome o = ringside("enable -i web packet_in");
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.err, HasSubstr("web: enabled net:packet_in\n"));
  ASSERT_EQ(run(write).code, 0);
  EXPECT_EQ(names("web").count("net:packet_in"), 1u);
  EXPECT_THAT(ringside("disable -i web pakcet_in").err, HasSubstr("did you mean net:packet_in?"));
  EXPECT_THAT(ringside("list -i web 'net:*'").out, HasSubstr("net:packet_in"));
  EXPECT_EQ(ringside("enable").code, 2);
  ASSERT_EQ(ringside("record -q -i other --duration 10ms").code, 0);
  o = ringside("enable 'net:*'");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("Name one with -i: other, web"));
}

TEST_F(NewcomerAsRoot, ListTakesAPattern) {
  const Outcome o = ringside("list 'sched:*'");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("sched:sched_switch"));
  EXPECT_THAT(ringside("list '*wakeup*'").out, HasSubstr("sched:sched_wakeup"));
  const Outcome wrong = ringside("list sched:sched_swich");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean sched:sched_switch?"));
}

TEST_F(Newcomer, TheRingsOfAnInstanceThatIsThereStayAsTheyAre) {
  const std::string same = " -i web -b 64k --subbuf-size 8k --mode discard --rings thread --clock mono ";
  ASSERT_EQ(ringside("record -q -o a" + same + "true").code, 0);
  EXPECT_EQ(ringside("record -q -o b" + same + "true").code, 0);
  EXPECT_EQ(ringside("record -q -o c -i web -b 64k true").code, 0);
  for (const std::string other : {"-b 64M", "--subbuf-size 16k", "--mode overwrite", "--rings cpu", "--clock counter"}) {
    const Outcome o = ringside("record -i web -o d " + other + " touch ran");
    EXPECT_EQ(o.code, 2) << other;
    EXPECT_THAT(o.err, HasSubstr("this instance is there already, and its rings stay as they are, so not \"" + other + "\""));
    // It says what they are, in the words of the options; stat knows the same.
    const std::string begin = "its rings are made with ", text = o.err.substr(std::min(o.err.find(begin), o.err.size()));
    const std::string made = text.substr(std::min(begin.size(), text.size()), text.find(". Leave") - begin.size());
    EXPECT_EQ(ringside("record -q -o b -i web " + made + " true").code, 0) << o.err;
    EXPECT_THAT(made, HasSubstr("--subbuf-size 8k --mode discard --rings thread --clock mono"));
    EXPECT_THAT(ringside("stat web").err, HasSubstr(begin + made));
  }
  EXPECT_FALSE(fs::exists(dir + "/ran") || fs::exists(dir + "/d"));
}

// A script's background jobs inherit SIGINT as ignored.
TEST_F(Newcomer, InterruptEndsABackgroundJob) {
  const std::string begun = "until [ -e r/meta.json ]; do sleep 0.02; done; ";
  Outcome o = run(tool + " record -i web -o r & P=$!; " + begun + "kill -INT $P; wait $P");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("0 events"));
  // With a command: it is asked to end, and its exit code stands.
  o = run("rm -r r; " + tool +
          " record -o r sh -c 'trap \"exit 6\" TERM; touch up; while :; do sleep 0.05; done' & P=$!; until [ -e up ]; do sleep "
          "0.02; done; kill -INT $P; wait $P");
  EXPECT_EQ(o.code, 6) << o.err;
  o = run(tool +
          " top web --json --interval 20ms > seen & P=$!; until [ -s seen ]; do sleep 0.02; done; kill -INT $P; wait $P");
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST_F(NewcomerAsRoot, AProcessThatIsNotThere) {
  const Outcome o = run("sh -c 'echo $$ > gone'; " + tool + " record -e sched:sched_switch -p $(cat gone) --duration 10s");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("there is no process "));
  EXPECT_FALSE(fs::exists(dir + "/ringside.data"));
  EXPECT_EQ(ringside("record -e sched:sched_switch -p -3 --duration 10s").code, 2);
}

TEST_F(Newcomer, AnInstanceThatIsJustBeingMade) {
  ASSERT_EQ(run("mkdir -m 700 root/.app.new-0123456789abcdef && mkdir later").code, 0);
  // Its maker puts it in place while `stat` waits.
  ASSERT_EQ(run("RINGSIDE_ROOT=$PWD/later " + tool + " record -q -i app --duration 10ms").code, 0);
  const Outcome o = run("(sleep 0.2; mv later/app root/app) & " + tool + " stat app; wait");
  EXPECT_EQ(o.code, 0) << o.err;
  const u64 begun = sys::now_ns();
  EXPECT_EQ(ringside("stat nobody").code, 1);
  EXPECT_LT(sys::now_ns() - begun, 900'000'000u);
}

// Eleven events in two rings of CPUs, and one of a thread: 1.0 s to 2.0 s.
struct NewcomerInTime : Newcomer {
  void SetUp() override {
    Newcomer::SetUp();
    auto w = test::malloc_and_packets(dir + "/ringside.data");
    ASSERT_TRUE(w) << w.error().sentence;
    test::SubBuffer a(1'000'000'000), b(1'050'000'000);
    for (u64 n = 0; n <= 10; ++n)
      (n % 2 == 0 ? a : b).event(1'000'000'000 + n * 100'000'000, test::Payload(1, 4711).put(n).put(u64{0xA0}));
    ASSERT_TRUE(w->append(0, a.view()));
    ASSERT_TRUE(w->append(3, b.view()));
    w->ring(0).name.cpu = 0;
    w->ring(3).name.cpu = 3;
    ASSERT_TRUE(w->finish(2'000'000'000));
  }
  size_t count(const std::string& arguments) const { return events(arguments).size(); }
};

TEST_F(NewcomerInTime, ATimeRange) {
  EXPECT_EQ(count(""), 11u);
  EXPECT_EQ(count("--time 1.2s..1.5s"), 4u);
  EXPECT_EQ(count("--time 1.2..1.5"), 4u);
  EXPECT_EQ(count("--time +0.2s..+500ms"), 4u);
  EXPECT_EQ(count("--time 1.9.."), 2u);
  for (const char* as_perf : {"--time 1.2,1.5", "--time=1.2,1.5"}) EXPECT_EQ(count(as_perf), 4u) << as_perf;
  EXPECT_EQ(count("--time 1.9,"), 2u);
  EXPECT_EQ(count("--time ,+0.05s"), 1u);
  EXPECT_EQ(count("--time ..+0.05s"), 1u);
  EXPECT_EQ(json::parse(ringside("top --json --time +0.2s..+0.5s").out)["count"], 4);
  EXPECT_EQ(json::parse(ringside("hist size --json --time 1.2..1.5").out)["count"], 4);
  EXPECT_EQ(
      json::parse(ringside("latency libc:malloc libc:malloc --key ptr --json --time 1.2..1.5 -i ringside.data").out)["starts"],
      4);
  for (const char* command : {"report", "top", "hist size"}) {
    const Outcome o = ringside(command + std::string(" --time 0.2..0.5"));
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, HasSubstr("ringside.data begins at 1.000000 s, after this range; --time ..+0.5s is counted from there"));
  }
  EXPECT_THAT(ringside("plot --time +0.2s..+0.5s").err, HasSubstr("ringside: 4 events"));
  for (const char* wrong : {"1.2", "..", "a..b", "2..1", ",", "2,1", "1,2,3", "+1s..+0.5s"})
    EXPECT_EQ(ringside(std::string("report --time ") + wrong).code, 2) << wrong;
}

TEST_F(NewcomerInTime, ProcessorsInputsAndCounts) {
  EXPECT_EQ(count("--cpu 0"), 6u);
  EXPECT_EQ(count("--cpu 3"), 5u);
  EXPECT_EQ(count("-C 0"), 6u);
  EXPECT_EQ(count("-C0,2-3 --stdio"), 11u);
  EXPECT_EQ(json::parse(ringside("top -C 3 --json").out)["count"], 5);
  EXPECT_EQ(count("--cpu 0,2-3"), 11u);
  EXPECT_EQ(count("--cpu 1,3"), 5u);
  for (const char* command : {"report", "report --json", "top", "hist size",
                              "latency libc:malloc libc:malloc --key ptr -i ringside.data", "plot", "export -o x.json"}) {
    const Outcome o = ringside(command + std::string(" --cpu 1"));
    EXPECT_EQ(o.code, 2) << command;
    EXPECT_THAT(o.err, HasSubstr("no event in ringside.data is known to be of such a CPU; there are 0, 3")) << command;
    EXPECT_EQ(o.out, "") << command;
  }
  EXPECT_THAT(ringside("plot --cpu 3").err, HasSubstr("ringside: 5 events"));
  EXPECT_EQ(json::parse(ringside("top --json --cpu 3").out)["count"], 5);
  for (const char* wrong : {"x", "1-", "3-1", "", "99999999"})
    EXPECT_EQ(ringside(std::string("report --cpu '") + wrong + "'").code, 2) << wrong;
  EXPECT_EQ(count("-n 3"), 3u);
  EXPECT_EQ(count("--max-count 3 --cpu 0 -f 'size > 2'"), 3u);
  ASSERT_EQ(run("mv ringside.data other").code, 0);
  EXPECT_EQ(count("-i other"), 11u);
  EXPECT_EQ(json::parse(ringside("top -i other --json").out)["count"], 11);
  EXPECT_EQ(json::parse(ringside("hist size -i other --json --max-count 2").out)["rows"].size(), 2u);
  EXPECT_THAT(ringside("plot -i other").err, HasSubstr("ringside: 11 events"));
  EXPECT_EQ(ringside("export other -o x.dat").code, 0);
  EXPECT_TRUE(fs::exists(dir + "/x.dat"));
}

TEST_F(NewcomerInTime, AFieldThatTheWantedEventsLack) {
  Outcome o = ringside("hist length -e libc:malloc");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("\"length\": no event of -e has it"));
  o = ringside("top --by siez -e libc:malloc");
  EXPECT_NE(o.code, 0);
  EXPECT_EQ(ringside("hist size,cpu -e libc:malloc").code, 0);
}

// One letter for a filter.
TEST_F(NewcomerInTime, TheSameLetterForAFilterEverywhere) {
  for (const char* letter : {"-f", "-F", "--filter"}) {
    const std::string filter = std::string(" ") + letter + " 'size < 3'";
    EXPECT_EQ(count(filter), 3u);
    EXPECT_EQ(json::parse(ringside("top --json" + filter).out)["count"], 3);
    EXPECT_EQ(json::parse(ringside("hist size --json" + filter).out)["count"], 3);
    const std::string of_starts = std::string(" ") + letter + " 'start/size < 3'";
    EXPECT_EQ(ringside("latency libc:malloc libc:malloc --key ptr --json ringside.data" + of_starts).code, 0);
    EXPECT_THAT(ringside("plot" + filter).err, HasSubstr("ringside: 3 events"));
  }
}

TEST_F(NewcomerAsRoot, ATriggersDirectoryInFrontOfTheCommand) {
  for (const char* option : {"-o", "--snapshot"}) {
    const Outcome o =
        ringside(std::string("trigger 'signal:signal_generate if sig == 28' ") + option + " seen -- sh -c 'kill -WINCH $$'");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(fs::exists(dir + "/seen/meta.json")) << o.err;
  }
}

}  // namespace
}  // namespace ringside::newcomer_test
