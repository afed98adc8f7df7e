// The binary itself: help, usage errors, exit codes, and its output on a recording made by hand.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"

namespace ringside::cli_test {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::Payload;
using test::SubBuffer;

struct Cli : test::BinaryTest {
  // Two threads; one gap.
  void record() {
    auto w = test::malloc_and_packets(dir + "/ringside.data");
    ASSERT_TRUE(w) << w.error().sentence;
    SubBuffer a(1000000000), b(1500000000), c(3000000000);
    a.event(1000000000, Payload(1, 4711).put(u64{32}).put(u64{0xA0}));
    a.event(2000000000, Payload(1, 4711).put(u64{64}).put(u64{0xB0}));
    b.event(1500000000, Payload(2, 4800).put(u32{1500}));
    c.event(3000000000, Payload(2, 4800).put(u32{40}));
    ASSERT_TRUE(w->append(0, a.view()));
    ASSERT_TRUE(w->append(3, b.view()));
    ASSERT_TRUE(w->append(3, c.view(1234)));
    for (const u32 ring : {0u, 3u}) w->ring(ring).counters.written = w->ring(ring).counters.read = 2;
    w->ring(3).counters.written += 1234;
    w->ring(3).counters.overrun = 1234;
    w->meta().totals.written = 1238;
    w->meta().totals.read = 4;
    w->meta().totals.overrun = 1234;
    ASSERT_TRUE(w->finish(2000000000));
  }
};

const char* const commands[] = {"record", "report", "top",    "hist",    "latency", "watch", "trigger",
                                "stat",   "list",   "enable", "disable", "crash",   "rm",    "serve",
                                "plot",   "export", "remote", "recover", "doctor"};

TEST_F(Cli, EveryHelpHasExamples) {
  for (const char* command : commands) {
    const Outcome o = ringside(std::string(command) + " --help");
    EXPECT_EQ(o.code, 0) << command;
    EXPECT_NE(o.out.find("Examples:\n  ringside " + std::string(command)), std::string::npos) << command << o.out;
    EXPECT_EQ(o.err, "") << command;
  }
  EXPECT_NE(ringside("--help").out.find("Exit codes"), std::string::npos);
  EXPECT_EQ(ringside("--version").code, 0);
}

TEST_F(Cli, WrongUsageExitsWithTwo) {
  for (const char* arguments : {"",
                                "nonsense",
                                "report --nonsense",
                                "crash",
                                "rm",
                                "stat",
                                "hist",
                                "hist size --sort never",
                                "hist size --keys 0",
                                "record",
                                "record --mode upwards -- true",
                                "record --buffer-size many -- true",
                                "record --subbuf-size 5k -- true",
                                "record -b 16k -- true",
                                "record --libc malloc",
                                "record --libc malloc,nonsense -- true",
                                "record --clock sundial -- true",
                                "top --interval never",
                                "top --once --duration 0s",
                                "report --tid x",
                                "enable",
                                "disable -i x",
                                "report --time 5",
                                "help nothing"}) {
    const Outcome o = ringside(arguments);
    EXPECT_EQ(o.code, 2) << arguments << "\n" << o.err;
    EXPECT_EQ(o.out, "") << arguments;
    EXPECT_NE(o.err, "") << arguments;
  }
}

TEST_F(Cli, FailureExitsWithOneAndSaysWhatToDo) {
  Outcome o = ringside("report");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("ringside record --"), std::string::npos) << o.err;
  EXPECT_EQ(ringside("report /nonexistent").code, 1);
  EXPECT_EQ(ringside("crash nobody").code, 1);
  EXPECT_EQ(ringside("rm nobody").code, 1);
  EXPECT_EQ(ringside("stat nobody").code, 1);
}

TEST_F(Cli, ReportPrintsTheKernelsLines) {
  record();
  const Outcome o = ringside("report");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out,
            "         cc1plus-4711    [---]     1.000000: malloc: size=32 ptr=0xa0\n"
            "              as-4800    [---]     1.500000: in: length=1500\n"
            "         cc1plus-4711    [---]     2.000000: malloc: size=64 ptr=0xb0\n"
            "RING:3 [LOST 1234 EVENTS]\n"
            "              as-4800    [---]     3.000000: in: length=40\n");
  EXPECT_NE(o.err.find("1,234 events were lost"), std::string::npos);
}

TEST_F(Cli, ReportFilters) {
  record();
  EXPECT_EQ(
      ringside("report -e 'net:*' --tid 4800 --json").out,
      "{\"ts\":1500000000,\"cpu\":null,\"ring\":3,\"pid\":4800,\"tid\":4800,\"task\":\"as\",\"event\":\"net:in\",\"fields\":{"
      "\"length\":1500}}\n"
      "{\"ts\":3000000000,\"cpu\":null,\"ring\":3,\"lost\":1234}\n"
      "{\"ts\":3000000000,\"cpu\":null,\"ring\":3,\"pid\":4800,\"tid\":4800,\"task\":\"as\",\"event\":\"net:in\",\"fields\":{"
      "\"length\":40}}\n");
  EXPECT_EQ(ringside("report -e malloc --tid 4800").out, "RING:3 [LOST 1234 EVENTS]\n");
}

TEST_F(Cli, FiltersChooseEvents) {
  record();
  EXPECT_EQ(ringside("report -F 'size > 32 && task ~ \"cc1*\"'").out,
            "         cc1plus-4711    [---]     2.000000: malloc: size=64 ptr=0xb0\nRING:3 [LOST 1234 EVENTS]\n");
  EXPECT_EQ(
      ringside("report --filter 'length & 4 && ts < 2s || ptr == 0xA0' --json -e net:in").out,
      "{\"ts\":1500000000,\"cpu\":null,\"ring\":3,\"pid\":4800,\"tid\":4800,\"task\":\"as\",\"event\":\"net:in\",\"fields\":{"
      "\"length\":1500}}\n{\"ts\":3000000000,\"cpu\":null,\"ring\":3,\"lost\":1234}\n");
  EXPECT_EQ(nlohmann::json::parse(ringside("hist malloc/event -v size --json -F 'ptr != 0xa0'").out)["rows"][0]["size"]["sum"],
            64);
  const auto top = nlohmann::json::parse(ringside("top --json -F 'ring == 3 && source == program'").out);
  EXPECT_EQ(top["count"], 2);
  EXPECT_EQ(top["rows"].size(), 1u);
  for (const char* command : {"report", "top", "hist size"}) {
    const Outcome o = ringside(std::string(command) + " -F 'size > 1 && lenght == 3'");
    EXPECT_EQ(o.code, 2) << command;
    EXPECT_EQ(o.out, "") << command;
    EXPECT_EQ(o.err, "ringside: filter: no event here has a field \"lenght\"; did you mean length?\n"
                     "  size > 1 && lenght == 3\n              ^\n") << command;
  }
}

// A FIFO in place of a file would block its reader forever.
TEST_F(Cli, FifosAreRefused) {
  const std::string tool = "timeout 20 " RINGSIDE_BUILD_DIR "/ringside ";
  ASSERT_EQ(ringside("record -i web --libc io -o r -- cat /etc/hostname").code, 0);
  ASSERT_EQ(run("for f in printk_formats kallsyms; do rm -f r/$f; mkfifo r/$f; done").code, 0);
  Outcome o = run(tool + "report r");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find(" open: path=/etc/hostname"), std::string::npos) << o.out;
  for (const char* file : {"saved_cmdlines", "set_event", "events/libc/open/format"}) {
    ASSERT_EQ(run("rm -f root/web/" + std::string(file) + "; mkfifo root/web/" + file).code, 0);
    for (const char* command : {"top web --once --interval 50ms", "report web", "stat web"})
      EXPECT_NE(run(tool + command).code, 124) << command << ", " << file;
  }
  ASSERT_EQ(run("for f in r/ring*.raw; do rm $f; mkfifo $f; done").code, 0);
  o = run(tool + "report r");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("is no regular file"), std::string::npos) << o.err;
}

TEST_F(Cli, AMountWhereInstancesLiveIsRefused) {
  ASSERT_EQ(ringside("record -i web --libc io -o r -- true").code, 0);
  ASSERT_EQ(run("mkdir -p root/m && ln -s root alias").code, 0);
  for (const char* place : {"root", "root/m", "root/web", "alias/m", "./root/"}) {
    const Outcome o = ringside(std::string("mount ") + place);
    EXPECT_EQ(o.code, 1) << place;
    EXPECT_NE(o.err.find("is where instances live; choose a directory outside"), std::string::npos) << o.err;
  }
}

TEST_F(Cli, LossesCanFailTheCommand) {
  record();
  EXPECT_EQ(ringside("report --fail-on-loss").code, 3);
}

TEST_F(Cli, CrashShowsTheLast) {
  record();
  EXPECT_EQ(ringside("crash ringside.data -n 1").out, "              as-4800    [---]     3.000000: in: length=40\n");
}

TEST_F(Cli, JsonEverywhereParses) {
  record();
  std::istringstream lines(ringside("report --json").out);
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_EQ(n, 5);
  const auto top = nlohmann::json::parse(ringside("top --json").out);
  EXPECT_EQ(top["count"], 4);
  EXPECT_EQ(top["lost"], 1234);
  const auto stat = nlohmann::json::parse(ringside("stat ringside.data --json").out);
  EXPECT_EQ(stat["total"]["written"], 1238);
  EXPECT_EQ(stat["adds_up"], true);
  EXPECT_TRUE(nlohmann::json::parse(ringside("list --json").out).is_array());
  EXPECT_TRUE(nlohmann::json::parse(ringside("doctor --json").out).is_array());
  const auto hist = nlohmann::json::parse(ringside("hist event -v malloc/size --json").out);
  EXPECT_EQ(
      hist["rows"][0],
      nlohmann::json::parse(
          R"({"event":"libc:malloc","count":2,"malloc/size":{"sum":96,"mean":48,"min":32,"p50":32,"p90":64,"p99":64,"p999":64,"max":64}})"));
  EXPECT_EQ(hist["count"], 2);
  EXPECT_EQ(hist["without"], 2);
  EXPECT_EQ(hist["lost"], 1234);
}

TEST_F(Cli, HistGroups) {
  record();
  Outcome o = ringside("hist 'libc:*/thread' -v size");
  EXPECT_NE(o.out.find("cc1plus-4711       2  96 B  48 B  32 B  64 B"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("\n2 events, 1,234 lost: the numbers lack those, quantiles within 1.6 %\n"), std::string::npos) << o.out;
  EXPECT_EQ(ringside("hist size,task --ascii").out,
            "size  task     count\n"
            "  32  cc1plus      1  ####################\n"
            "  64  cc1plus      1  ####################\n"
            "2 events have no size,task\n2 events, 1,234 lost: the numbers lack those\n");
  o = ringside("hist event -v length");
  EXPECT_NE(o.out.find("\n2 events have no length\n2 events, "), std::string::npos) << o.out;
  o = ringside("hist size -v ptr -v length");
  EXPECT_NE(o.out.find("2 events have no size\n2 events have no length\n"), std::string::npos) << o.out;
  EXPECT_EQ(nlohmann::json::parse(ringside("hist size -v ptr -v length --json").out)["without_values"],
            nlohmann::json::parse(R"({"ptr":0,"length":2})"));
  o = ringside("hist length.log2 --json");
  EXPECT_EQ(nlohmann::json::parse(o.out)["rows"],
            nlohmann::json::parse(R"([{"length.log2":32,"count":1},{"length.log2":1024,"count":1}])"))
      << o.out;
  o = ringside("hist length.buckets=100");
  EXPECT_NE(o.out.find("[1500, 1600)"), std::string::npos) << o.out;
  o = ringside("top --by task,event --json");
  EXPECT_EQ(nlohmann::json::parse(o.out)["rows"].size(), 2u) << o.out;
  o = ringside("hist malloc/colour");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("libc:malloc has size, ptr"), std::string::npos) << o.err;
  for (const char* wrong :
       {"size.log3", "size.buckets=0", "task.log2", "nothing:at_all/size", "size/", "size,ptr,length", "task -v task"}) {
    EXPECT_EQ(ringside("hist " + std::string(wrong)).code, 2) << wrong;
  }
}

TEST_F(Cli, StatOfACtfTraceNamesTheReason) {
  std::filesystem::create_directory(dir + "/x.ctf");
  std::ofstream(dir + "/x.ctf/metadata") << "/* CTF 1.8 */\n";
  const Outcome o = ringside("stat x.ctf");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("x.ctf is a CTF trace, which has events, but no counters of rings"), std::string::npos) << o.err;
}

TEST_F(Cli, StatShowsTheIdentity) {
  record();
  EXPECT_NE(ringside("stat ringside.data").out.find("written 1,238 = read 4 + in the ring 0 + overwritten 1,234;"),
            std::string::npos);
}

TEST_F(Cli, RecordPassesTheExitCodeOn) {
  EXPECT_EQ(ringside("record -- true").code, 0);
  EXPECT_EQ(ringside("record -- sh -c 'exit 7'").code, 7);
  EXPECT_EQ(ringside("record -- sh -c 'kill -9 $$'").code, 137);
  EXPECT_EQ(ringside("record -- ./nothing-there").code, 127);
  EXPECT_EQ(ringside("record -- " + dir).code, 126);
  EXPECT_NE(ringside("record -- true").err.find("0 events"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(dir + "/root")) << "a private instance was left behind";
}

TEST_F(Cli, RecordKeepsStdoutForTheCommand) {
  const Outcome o = ringside("record -- echo hello");
  EXPECT_EQ(o.out, "hello\n");
}

TEST_F(Cli, RecordDoesNotEatOptionsOfTheCommand) {
  EXPECT_EQ(ringside("record -- sh -c 'echo $0 $1' --json -i").out, "--json -i\n");
}

TEST_F(Cli, RecordRefusesADirectoryOfOthers) {
  fs::create_directories(dir + "/home");
  std::ofstream(dir + "/home/letter") << "dear";
  const Outcome o = ringside("record -o home -- true");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("letter"), std::string::npos);
  EXPECT_TRUE(fs::exists(dir + "/home/letter"));
}

// Starts a program, $w, that writes 1,000 events and waits for a signal; goes on when the recording in `dir` has them.
std::string writer_into(const std::string& dir) {
  return RINGSIDE_BUILD_DIR "/tests/signalled_writer & w=$!; until [ $(env -u RINGSIDE_INSTANCE " RINGSIDE_BUILD_DIR
                            "/ringside report " +
         dir + " 2>/dev/null | wc -l) = 1000 ]; do sleep 0.02; done; ";
}

TEST_F(Cli, FirstSignalFinishesWhatExists) {
  // A signal that a process sent to the recorder is passed on to the command, and its end is waited for.
  for (const std::string name : {"INT", "TERM"}) {
    const Outcome o = ringside("record -o " + name + " -- sh -c '" + writer_into(name) + "trap \"kill $w; wait $w; exit 6\" " + name +
                               "; kill -" + name + " $PPID; wait $w; exit 5'");
    EXPECT_EQ(o.code, 6) << o.err;
    EXPECT_NE(o.err.find("1,000 events"), std::string::npos) << o.err;
  }
}

// The terminal sends it to the command, too: nobody passes it on.
TEST_F(Cli, ATypedInterruptReachesTheCommandOnce) {
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    if (chdir(dir.c_str()) != 0) _exit(126);
    execl(RINGSIDE_BUILD_DIR "/ringside", "ringside", "record", "--", "sh", "-c",
          "n=0; trap 'n=$((n+1)); : > got' INT; : > ready; until [ -e got ]; do sleep 0.02; done; "
          "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; exit $((10 + n))",
          nullptr);
    _exit(127);
  }
  while (access((dir + "/ready").c_str(), F_OK) != 0 && waitpid(pid, nullptr, WNOHANG) == 0) usleep(2000);
  EXPECT_EQ(write(terminal, "\x03", 1), 1);
  std::string said;
  for (char part[4096];;) {
    const ssize_t n = read(terminal, part, sizeof part);  // EIO: nobody has the terminal open
    if (n <= 0) break;
    said.append(part, static_cast<size_t>(n));
  }
  close(terminal);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << said;
  EXPECT_EQ(WEXITSTATUS(status), 11) << said;
}

// A file of the recording must not get the number of a standard output that is closed: it would get the messages.
TEST_F(Cli, ClosedStandardOutputsChangeNoRecording) {
  for (const std::string closed : {"2>&-", ">&-", "<&- >&- 2>&-"}) {
    std::filesystem::remove_all(dir + "/r");
    const Outcome o = ringside("record -o r " RINGSIDE_BUILD_DIR "/tests/many_threads 2 500 " + closed);
    EXPECT_EQ(o.code, 0) << closed << o.err;
    const auto stat = nlohmann::json::parse(ringside("stat r --json").out);
    EXPECT_EQ(stat.at("total").at("read"), 1000u) << closed;
    const Outcome report = ringside("report r");
    EXPECT_EQ(report.code, 0) << closed << report.err;
    EXPECT_EQ(std::count(report.out.begin(), report.out.end(), '\n'), 1000) << closed;
  }
  EXPECT_EQ(ringside("report r >&-").code, 1);
  for (const char* text : {"--help", "record --help", "--version"})
    EXPECT_EQ(ringside(std::string(text) + " >/dev/full").code, 1) << text;
}

TEST_F(Cli, SecondSignalLeavesAtOnceAndTheRecordingIsReadable) {
  // Two signals that are pending at the same time count as one: so send until it has gone.
  const Outcome o = ringside("record -o r -- sh -c 'trap : INT; " + writer_into("r") +
                             "while kill -INT $PPID; do sleep 0.1; done 2>/dev/null; kill $w'");
  EXPECT_EQ(o.code, 128 + 2) << o.err;
  const Outcome report = ringside("report r");
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_EQ(std::count(report.out.begin(), report.out.end(), '\n'), 1000) << report.err;
}

// What a terminal of ten lines shows of a table of many rows: the first ones, and the sums.
TEST_F(Cli, ALiveTableFitsIntoTheTerminal) {
  ASSERT_EQ(ringside("record -q -i web -o made " RINGSIDE_BUILD_DIR "/tests/many_threads 1 100").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/tests/many_threads 1 100").code, 0);
  winsize size{10, 30, 0, 0};
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
    execl(RINGSIDE_BUILD_DIR "/ringside", "ringside", "top", "web", "--by", "n", "--interval", "20ms", nullptr);
    _exit(127);
  }
  const std::string begin = "\033[H\033[J\033[?7l";
  std::string said;
  size_t at = std::string::npos, end = std::string::npos;
  for (char part[4096]; end == std::string::npos;) {
    const ssize_t n = read(terminal, part, sizeof part);
    if (n <= 0) break;
    said.append(part, static_cast<size_t>(n));
    at = said.find(begin);
    end = at == std::string::npos ? at : said.find("\033[?7h", at);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(terminal);
  ASSERT_NE(end, std::string::npos) << said;
  const std::string picture = said.substr(at + begin.size(), end - at - begin.size());
  EXPECT_EQ(std::count(picture.begin(), picture.end(), '\n'), 9) << picture;
  EXPECT_NE(picture.find("more lines)"), std::string::npos) << picture;
  EXPECT_LT(picture.find("n "), picture.find("all ")) << picture;
  EXPECT_NE(picture.find("all "), std::string::npos) << picture;
}

TEST_F(Cli, KilledRecorderLeavesAReadableRecording) {
  const Outcome o = ringside("record -o r -- sh -c '" + writer_into("r") + "kill -KILL $PPID; kill $w'");
  EXPECT_EQ(o.code, 128 + 9);
  const Outcome report = ringside("report r");
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_EQ(std::count(report.out.begin(), report.out.end(), '\n'), 1000) << report.err;
}

TEST_F(Cli, ACommandThatCannotStartLeavesTheEventsInTheRings) {
  ASSERT_EQ(ringside("record -q -i web -o r -- true").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/example_01_write").code, 0);
  const size_t before = events("web").size();
  EXPECT_GT(before, 0u);
  EXPECT_EQ(ringside("record -i web -o s -- ./nothing-of-that-name").code, 127);
  EXPECT_EQ(events("web").size(), before);
}

// Rings that are overwritten faster than they are read: each read shows events, or says how many it missed.
TEST_F(Cli, ReportOfRingsThatOutrunItShowsEventsAndSaysWhatIsLost) {
  for (const std::string rings : {"cpu", "thread"}) {
    if (rings == "cpu" && ringside("doctor").out.find("of CPUs (") == std::string::npos) continue;
    ASSERT_EQ(ringside("record -q -i " + rings + " --rings " + rings + " -b 64k --subbuf-size 4k -o r -- true").code, 0);
    const Outcome o = run("for n in 1 2; do RINGSIDE_INSTANCE=" + rings +
                          " RINGSIDE_LIBC=io LD_PRELOAD=" RINGSIDE_BUILD_DIR
                          "/libringside-libc.so dd if=/dev/zero of=/dev/null bs=1 & writers=\"$writers $!\"; done; "
                          "until " RINGSIDE_BUILD_DIR "/ringside report " +
                          rings +
                          " 2>/dev/null | grep -q LOST; do sleep 0.02; done; "
                          "for look in 1 2 3 4 5 6; do " RINGSIDE_BUILD_DIR "/ringside report --json " +
                          rings + " 2>err.$look | grep -vc '\"lost\"' || cat err.$look; done; kill -9 $writers; wait");
    std::istringstream looks(o.out);
    for (std::string seen; std::getline(looks, seen);) EXPECT_GT(std::atoi(seen.c_str()), 0) << rings << "\n" << o.out;
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 6) << o.out;
  }
}

// Both are made from the commands' own help texts. (tests/install presses Tab in real shells.)
TEST_F(Cli, ManPagesAndCompletionKnowEveryCommand) {
  const std::string help = ringside("--help").out;
  ASSERT_EQ(run("mkdir -p man1 man7 && " RINGSIDE_BUILD_DIR "/ringside manual pages .").code, 0);
  const std::string names = ringside("complete bash 'ringside '").out, main = test::slurp(dir + "/man1/ringside.1");
  for (const char* name : {"record", "report", "top", "hist", "watch", "stat", "list", "crash", "rm", "serve", "doctor"}) {
    EXPECT_NE(help.find(std::string("\n  ") + name + " "), std::string::npos) << name;
    EXPECT_NE(main.find(std::string(".BR ringside\\-") + name + " (1)"), std::string::npos) << name;
    EXPECT_NE(test::slurp(dir + "/man1/ringside-" + name + ".1").find(std::string(".B ringside ") + name), std::string::npos)
        << name;
    EXPECT_NE(names.find(std::string(name) + "\t"), std::string::npos) << name;
  }
  EXPECT_NE(test::slurp(dir + "/man1/ringside-record.1").find("\\-\\-buffer\\-size SIZE"), std::string::npos);
  EXPECT_NE(test::slurp(dir + "/man7/ringside.7").find(".SH ENVIRONMENT"), std::string::npos);
  EXPECT_EQ(ringside("manual pages").code, 2);
  ASSERT_EQ(ringside("record -i web --libc malloc -- true").code, 0);
  const auto words = [&](const std::string& line) {
    return run(RINGSIDE_BUILD_DIR "/ringside complete zsh \"" + line + "\" | cut -f 1 | paste -sd' '").out;
  };
  EXPECT_EQ(words("ringside record --mode o"), "overwrite\n");
  EXPECT_EQ(words("ringside record --mode=o"), "--mode=overwrite\n");
  EXPECT_EQ(words("sudo ringside crash w"), "web :files\n");
  EXPECT_EQ(words("ringside report --js"), "--json --json-safe\n");
  EXPECT_EQ(words("ringside report -e libc:free,libc:mal"), "libc:free,libc:malloc\n");
  EXPECT_EQ(words("ringside enable -i web 'libc:mal"), "libc:malloc\n");
  EXPECT_EQ(words("ringside hist libc:malloc/s"), "libc:malloc/size\n");
  EXPECT_EQ(words("ringside top --by libc:malloc/size.h"), "libc:malloc/size.hex\n");
  EXPECT_EQ(words("ringside latency softirq-"), "softirq-raise\n");
  EXPECT_EQ(words("ringside record -q -- "), ":commands\n");
  EXPECT_EQ(words("ringside record gcc -"), ":files\n");
  EXPECT_EQ(words("ringside nonsense -"), "\n");
  EXPECT_EQ(words("gcc -"), "\n");
}

// It brings many libraries along, and is loaded where a server is asked.
TEST_F(Cli, LibcurlIsLoadedWhereAServerIsAsked) {
  const std::string needed = run("readelf -dW " RINGSIDE_BUILD_DIR "/ringside | grep NEEDED").out;
  EXPECT_NE(needed.find("libc.so"), std::string::npos);
  EXPECT_EQ(needed.find("curl"), std::string::npos);
  fs::create_directories(dir + "/libraries");
  std::ofstream(dir + "/libraries/libcurl.so.4");  // no library
  const test::Outcome o =
      run("LD_LIBRARY_PATH=" + dir + "/libraries " RINGSIDE_BUILD_DIR "/ringside report clickhouse://localhost:1/traces");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("libcurl"), std::string::npos) << o.err;  // built without, it says so
}

TEST_F(Cli, RecordOfANamedInstanceLeavesIt) {
  EXPECT_EQ(ringside("record -i web -- true").code, 0);
  EXPECT_NE(ringside("list").out.find("web"), std::string::npos);
  EXPECT_EQ(ringside("rm web").code, 0);
  EXPECT_EQ(ringside("list").out.find("web"), std::string::npos);
}

// "list calls a running recording stale, and rm destroys it": a recorder whose program has written nothing.
TEST_F(Cli, ARecordersInstanceIsNotStaleBeforeItsProgramWrites) {
  const std::string tool = RINGSIDE_BUILD_DIR "/ringside ";
  const Outcome o = run("mkfifo go; " + tool + "record -q sh -c 'read x < go' & until " + tool +
                        "list 2> said | grep record-; do sleep 0.05; done; cat said; N=$(" + tool +
                        "list --json 2> /dev/null | grep -o 'record-[0-9]*' | head -1); " + tool + "rm $N; echo $?; " + tool +
                        "rm --stale; echo > go; wait; " + tool + "list");
  EXPECT_NE(o.out.find(" waiting "), std::string::npos) << o.out << o.err;
  EXPECT_NE(o.out.find("waiting: no process writes to it"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("\n1\n"), std::string::npos) << o.out;
  EXPECT_NE(o.err.find("lives, a recorder perhaps"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("removed"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace ringside::cli_test
