// record and related commands with events of the kernel.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/json.hpp"
#include "sys/sys.hpp"

namespace ringside::kernel_cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;

constexpr const char* no_namespaces = "unshare does not work here (not root, or in a chroot)";

struct KernelCli : test::BinaryTest {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    BinaryTest::SetUp();
  }
};

TEST_F(KernelCli, OneCommandsSystemCallsWithItsOwnEvents) {
  const Outcome o =
      ringside("record --libc io -u 'libc:*' -e 'syscalls:sys_enter_*' -- dd if=/dev/zero of=/dev/null bs=1 count=100");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << o.err;
  u64 calls = 0, hooks = 0, last = 0;
  i32 pid = 0;
  for (const json& e : events()) {
    EXPECT_GE(e.at("ts").get<u64>(), last);
    last = e.at("ts").get<u64>();
    const std::string name = e.at("event");
    if (name == "libc:read") {
      ++hooks;
      EXPECT_TRUE(e.contains("ring"));
      pid = e.at("tid");
    }
    if (name == "syscalls:sys_enter_read" && e.at("fields").at("count") == 1) {
      ++calls;
      EXPECT_TRUE(e.at("cpu").is_number());
      EXPECT_EQ(e.at("tid").get<i32>(), pid == 0 ? e.at("tid").get<i32>() : pid);
    }
  }
  EXPECT_EQ(calls, 100u);
  EXPECT_GE(hooks, 100u);
  const Outcome hist = ringside("hist syscalls:sys_enter_read/event -v count");
  EXPECT_EQ(hist.code, 0) << hist.err;
  EXPECT_NE(hist.out.find("syscalls:sys_enter_read"), std::string::npos);
  const json stat = json::parse(ringside("stat ringside.data --json").out);
  EXPECT_EQ(stat.at("adds_up"), true);
  EXPECT_EQ(stat.at("total").at("unread"), 0u);
}

// What this program's child does before its execve appears nowhere, and all from there on does.
TEST_F(KernelCli, ACommandBeginsWithItsExecve) {
  ASSERT_EQ(run("printf '#!/bin/sh\\nexec true\\n' > a-script; printf 'echo $$ >pid; exec true\\n' > a-plain; cp /bin/true a-true; cp "
                "/bin/true a-other; chmod 755 a-script a-plain; "
                "chown nobody a-other; chmod 4755 a-other")
                .code,
            0);
  const std::vector<std::string> once = {"sys_enter_execve", "sys_exit_execve"};
  std::vector<std::string> thrice;  // sh comes at last
  for (int n = 0; n < 3; ++n) thrice.insert(thrice.end(), once.begin(), once.end());
  // Its wait for the recorder, its start and its end; -a has them of the whole machine.
  const std::string of_a_start = "-e 'sched:sched_w*,sched:sched_process_*,syscalls:sys_*_execve,syscalls:sys_*_read' ";
  const std::pair<const char*, std::vector<std::string>> commands[] = {
      {"a-true", once}, {"./a-script", once}, {"./a-plain", thrice}, {"./a-other", once}};
  for (const char* options : {"", "-a "}) {
    for (const auto& [command, calls] : commands) {
      const std::string typed = std::string(options) + "-b 32M " + of_a_start + command;
      ASSERT_EQ(run("PATH=$PWD:$PATH " RINGSIDE_BUILD_DIR "/ringside record -q " + typed).code, 0);
      const std::vector<json> all = events();
      const std::string named = std::string(command).substr(command[0] == '.' ? 2 : 0);
      // The script without #! becomes /bin/sh, as many processes do; it has told its number.
      const auto exec = std::find_if(all.begin(), all.end(), [&](const json& e) {
        return e.value("event", "") == "sched:sched_process_exec" &&
               (named == "a-plain" ? std::to_string(e["tid"].get<i32>()) + "\n" == test::slurp(dir + "/pid")
                                   : fs::path(e["fields"]["filename"].get<std::string>()).filename() == named);
      });
      ASSERT_NE(exec, all.end()) << typed;
      const i32 tid = exec->at("tid");
      std::vector<std::string> seen;
      for (const json& e : all) {
        const std::string name = e.value("event", "");
        EXPECT_FALSE(seen.empty() && name.starts_with("sched:sched_w") && e["fields"].value("pid", -1) == tid) << typed << e;
        if (e.value("tid", 0) != tid) continue;
        if (name.starts_with("syscalls:") && seen.size() < calls.size()) seen.push_back(name.substr(9));
      }
      EXPECT_EQ(seen, calls) << typed;
      EXPECT_TRUE(std::any_of(exec, all.end(), [&](const json& e) {
        return e.value("event", "") == "sched:sched_process_exit" && e["tid"] == tid;
      })) << typed;
    }
  }
  EXPECT_EQ(ringside("record -q -e sched,syscalls ./nothing").code, 127);
  // Other processes' recordings do not wait for it, and do not have it.
  const Outcome o =
      run("sleep 600 & P=$!; " RINGSIDE_BUILD_DIR "/ringside record -q -e sched,syscalls -p $P " + kill_and_wait + "; echo $?");
  EXPECT_EQ(o.out, "0\n") << o.err;
  std::set<std::string> tasks;
  for (const json& e : events("-e syscalls,sched:sched_process_*")) tasks.insert(e.value("task", ""));
  EXPECT_EQ(tasks, std::set<std::string>{"sleep"});
}

// The kernel tells where a thread with a ring of its own runs.
TEST_F(KernelCli, RingsOfThreadsGetTheCpuFromSchedEvents) {
  const std::string two = "sh -c 'for i in $(seq 40); do taskset -c 0 cat /etc/hostname; taskset -c 1 cat /etc/hostname; done'";
  for (const char* of : {"sched:sched_switch", "sched:sched_migrate_task"}) {
    ASSERT_EQ(ringside(std::string("record -q -a --rings thread --libc io -e ") + of + " -- " + two).code, 0);
    std::map<i32, std::set<u32>> cpus;  // of each cat
    u64 known = 0, unknown = 0;
    for (const json& e : events()) {
      if (e.at("event").get<std::string>().rfind("libc:", 0) != 0) continue;
      EXPECT_TRUE(e.at("ring").is_number());
      const bool is = e.at("cpu").is_number();
      ++(is ? known : unknown);
      if (is && e.at("task") == "cat") cpus[e.at("tid").get<i32>()].insert(e.at("cpu").get<u32>());
    }
    ASSERT_GT(known, 0u) << of;
    std::set<u32> seen;
    for (const auto& [tid, of_one] : cpus) {
      EXPECT_EQ(of_one.size(), 1u) << tid;  // taskset nails it to one
      seen.insert(of_one.begin(), of_one.end());
    }
    ASSERT_FALSE(seen.empty());
    EXPECT_LE(*seen.rbegin(), 1u);
    if (of == std::string("sched:sched_switch") && sysconf(_SC_NPROCESSORS_ONLN) > 1) {
      EXPECT_EQ(seen.size(), 2u);
    }
    const std::string text = ringside("report -e libc").out;
    EXPECT_NE(text.find(" [000] "), std::string::npos);
    EXPECT_EQ(text.find(" [---] ") != std::string::npos, unknown != 0);
    // Columns and filters mean the same.
    const json by = json::parse(ringside("top --json -F 'event ~ \"libc:*\"' --by cpu").out);
    EXPECT_EQ(by.at("without"), unknown);
    EXPECT_EQ(by.at("count"), known);
    EXPECT_EQ(json::parse(ringside("top --json -F 'event ~ \"libc:*\" && cpu == -1'").out).at("count"), unknown);
  }
}

// More threads than the kernel keeps names of, each gone at once.
TEST_F(KernelCli, ShortLivedThreadsHaveTheNamesOfTheirTime) {
  ASSERT_EQ(
      ringside("record -q -b 16M -e sched -e raw_syscalls -- sh -c 'for i in $(seq 400); do /bin/true; done; exec /bin/true'")
          .code,
      0);
  std::map<i32, std::vector<std::string>> names;  // of each thread, in their order
  u64 unnamed = 0;
  for (const json& e : events("-e raw_syscalls")) {
    const std::string task = e.at("task");
    auto& of_one = names[e.at("tid").get<i32>()];
    if (of_one.empty() || of_one.back() != task) of_one.push_back(task);
    unnamed += task.empty();
  }
  EXPECT_EQ(unnamed, 0u);
  EXPECT_GT(names.size(), 400u);
  u64 both = 0;
  for (const auto& [tid, all] : names) {
    both += all == std::vector<std::string>{"sh", "true"};
    EXPECT_TRUE(all.back() == "true" || all.back() == "seq") << tid << " " << all.back();
  }
  EXPECT_GE(both, 400u);  // each child, and at last the shell
  EXPECT_EQ(ringside("report -e raw_syscalls").out.find("<...>"), std::string::npos);
}

// The child waits until the kernel is set up, and then does nothing but execute the command.
TEST_F(KernelCli, ACommandsEventsBeginWithItsExec) {
  ASSERT_EQ(ringside("record -q -e raw_syscalls -- true").code, 0);
  const auto all = events("-e raw_syscalls");
  ASSERT_GE(all.size(), 4u);
  EXPECT_EQ(all[0].at("event"), "raw_syscalls:sys_enter");
  EXPECT_EQ(all[0].at("syscall"), "execve");
  EXPECT_EQ(all[1].at("event"), "raw_syscalls:sys_exit");
  EXPECT_EQ(all[1].at("syscall"), "execve");
  EXPECT_EQ(all[1].at("fields").at("ret"), 0);
}

// -e names the kernel's events and does not affect the program's; -u chooses among these.
TEST_F(KernelCli, WhatAPatternLeavesOfTheProgram) {
  const std::string write = "dd if=/dev/zero of=/dev/null bs=1 count=3";
  const auto has = [&](const char* event) {
    return run(RINGSIDE_BUILD_DIR "/ringside report").out.find(event) != std::string::npos;
  };
  ASSERT_EQ(ringside("record -q --libc io -e syscalls:sys_enter_write -- " + write).code, 0);
  EXPECT_TRUE(has(" write: ") && has(" sys_enter_write: ") && has(" read: "));
  ASSERT_EQ(ringside("record -q --libc io -e syscalls:sys_enter_write -u libc:write -- " + write).code, 0);
  EXPECT_TRUE(has(" write: ") && has(" sys_enter_write: "));
  EXPECT_FALSE(has(" read: "));
  ASSERT_EQ(ringside("record -q --libc io -u app:packet -- " + write).code, 0);
  EXPECT_TRUE(has(" write: "));
}

TEST_F(KernelCli, OnlyChildrenAreFollowed) {
  const Outcome o = ringside("record -e syscalls:sys_enter_write -- sh -c 'sh -c \"echo a >/dev/null\"; echo b >/dev/null'");
  ASSERT_EQ(o.code, 0) << o.err;
  std::set<i32> tids;
  for (const json& e : events()) tids.insert(e.at("tid").get<i32>());
  EXPECT_EQ(tids.size(), 2u);
}

TEST_F(KernelCli, AllThreadsOfAProcessAreFollowed) {
  std::atomic<bool> over{false};
  std::set<i32> tids;
  std::mutex of_tids;
  const auto call = [&] {
    {
      const std::lock_guard held(of_tids);
      tids.insert(sys::gettid());
    }
    while (!over) syscall(SYS_getppid), usleep(1000);
  };
  std::thread threads[3];
  for (std::thread& thread : threads) thread = std::thread(call);
  const Outcome o = ringside("record -e syscalls:sys_enter_getppid -p " + std::to_string(getpid()) + " --duration 500ms");
  over = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(o.code, 0) << o.err;
  for (const json& e : events()) tids.erase(e.at("tid").get<i32>());
  EXPECT_TRUE(tids.empty());
}

// A thread's name is looked up when its first event is read: it may have ended by then.
TEST_F(KernelCli, LiveFiltersKnowTheNamesOfShortProcesses) {
  const auto count = [&](const std::string& options) {
    const Outcome o = run("cp /bin/true ./briefly; " RINGSIDE_BUILD_DIR "/ringside top -e syscalls:sys_enter_exit_group " +
                          options +
                          " --json 2>log >out.json & top=$!; until grep -qs Ctrl-C log || ! kill -0 $top 2>/dev/null; "
                          "do sleep 0.02; done; for i in 1 2 3 4 5 6 7 8 9 10; do ./briefly; done; kill -INT $top; wait $top; "
                          "cat log >&2; cat out.json");
    return json::parse(o.out);
  };
  const json chosen = count("-f 'comm == briefly'");
  EXPECT_GT(chosen.at("count"), 0u) << chosen;
  EXPECT_TRUE(chosen.at("count") == 10u || !chosen.at("proved").get<bool>()) << chosen;
}

// The terminal's Ctrl-C reaches a command that is just being started as well.
TEST_F(KernelCli, AStopWhileACommandIsStarted) {
  for (const char* delay : {"0.01", "0.03", "0.06", "0.1", "0.15"}) {
    const Outcome o = run("bash -c 'set -m; " RINGSIDE_BUILD_DIR
                          "/ringside record -q -e sched:sched_switch sleep 100 & P=$!; sleep " +
                          std::string(delay) + "; kill -INT -- -$P; wait $P'");
    EXPECT_EQ(o.code, 130) << delay << ": " << o.err;
  }
}

TEST_F(KernelCli, FilterGoesToTheKernel) {
  const Outcome o = ringside("record -e syscalls:sys_enter_read -f 'count == 7' -- dd if=/dev/zero of=/dev/null bs=7 count=5");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto all = events();
  EXPECT_EQ(all.size(), 5u);
  for (const json& e : all) EXPECT_EQ(e.at("fields").at("count"), 7u);
  // Of one event among several: the others pass.
  const Outcome one = ringside(
      "record -o one -e syscalls:sys_enter_read,syscalls:sys_enter_write -f 'sys_enter_read: count == 7' -- "
      "dd if=/dev/zero of=/dev/null bs=7 count=5");
  ASSERT_EQ(one.code, 0) << one.err;
  const json reads = json::parse(ringside("hist syscalls:sys_enter_read/count one --json").out);
  ASSERT_EQ(reads.at("rows").size(), 1u) << reads;
  EXPECT_EQ(reads.at("rows")[0].at("count"), 5);
  EXPECT_GT(json::parse(ringside("hist event one -e sys_enter_write --json").out).at("count"), 5);
  const Outcome nobody = ringside("record -e syscalls:sys_enter_read -f 'sched_switch: prev_pid == 7' -- true");
  EXPECT_EQ(nobody.code, 2);
  EXPECT_NE(nobody.err.find("add it with -e"), std::string::npos) << nobody.err;
  const Outcome wrong = ringside("record -e syscalls:sys_enter_read -f 'nothing == 7' -- true");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("nothing"), std::string::npos) << wrong.err;
}

// comm from saved_cmdlines, names of addresses from kallsyms.
TEST_F(KernelCli, ThreadsAndAddressesHaveNames) {
  // The kernel saves a name at a switch, unless somebody reads the names at that moment: this command has several switches.
  ASSERT_EQ(ringside("record -q -e syscalls:sys_enter_read -e kmem:kfree -- sleep 0.05").code, 0);
  const std::string text = run(RINGSIDE_BUILD_DIR "/ringside report").out;
  EXPECT_NE(text.find(" sleep-"), std::string::npos);
  EXPECT_EQ(text.find("<...>-"), std::string::npos);
  const std::string names = run("head -1 /proc/kallsyms").out;
  if (names.rfind("0000000000000000", 0) == 0) GTEST_SKIP() << "/proc/kallsyms shows no addresses (kernel.kptr_restrict)";
  const size_t at = text.find("kfree: call_site=");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(text.compare(at + 17, 2, "0x"), 0) << text.substr(at, 80);
  EXPECT_NE(text.substr(at, 80).find("+0x"), std::string::npos) << text.substr(at, 80);
}

TEST_F(KernelCli, TheKernelAloneForSomeTime) {
  const Outcome o = ringside("record -e 'sched:*' --duration 200ms");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(events("-e sched:sched_switch").empty());
}

TEST_F(KernelCli, PatternsThatMatchNothing) {
  for (const char* arguments : {"-e sched:no_such_thing", "-e sched:sched_switch,nothing_here", "-e 'nobody:*' -f 'a == 1'"}) {
    Outcome o = ringside(std::string("record ") + arguments + " -- touch ran");
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_NE(o.err.find("the kernel has no such event"), std::string::npos) << o.err;
    EXPECT_FALSE(fs::exists(dir + "/ran"));
    EXPECT_EQ(ringside(std::string("record ") + arguments + " --duration 10ms").code, 2);
  }
}

// Like trace-cmd's: a system or an event by its name alone.
TEST_F(KernelCli, APatternMeansTheSameWhereverItIsTaken) {
  const std::string program = " -- sh -c 'read x < /dev/null; true'";
  for (const char* pattern : {"sched_switch", "sched", "sched:sched_switch", "sched:,irq:*"}) {
    const Outcome o = ringside(std::string("record -a -o r -e ") + pattern + program);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(ringside("report r -e " + std::string(pattern)).out.find(": sched_switch: "), std::string::npos) << pattern;
    const Outcome listed = ringside(std::string("list -e ") + pattern);
    EXPECT_NE(listed.out.find("sched:sched_switch"), std::string::npos) << listed.err;
  }
  const Outcome o = ringside("record --libc io -o p -u libc" + program);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(ringside("report p").out.find(": read: "), std::string::npos) << o.err;
  for (const char* command : {"record -e '!a' -- true", "report -e 'a b' p", "list -e ''", "trigger -e ',' 'a == 1'"})
    EXPECT_EQ(ringside(command).code, 2) << command;
}

TEST_F(KernelCli, NothingStaysInTracefs) {
  const std::string record = "record -e sched:sched_switch ", note = "echo $PPID >>recorders";
  ASSERT_EQ(ringside(record + "-q -- sh -c '" + note + "; true'").code, 0);
  // Killed in the middle: the next run removes its instance.
  run(RINGSIDE_BUILD_DIR "/ringside " + record + "-a -- sh -c '" + note + "; kill -KILL $PPID; sleep 1'");
  ASSERT_EQ(ringside(record + "-q -o again -- sh -c '" + note + "; true'").code, 0);
  std::ifstream in(dir + "/recorders");
  const std::vector<std::string> pids{std::istream_iterator<std::string>(in), {}};
  EXPECT_EQ(pids.size(), 3u);
  const auto stay = [&] {
    return std::any_of(pids.begin(), pids.end(), [](const std::string& pid) {
      return fs::exists(must(tracefs_dir()) + "/instances/ringside-" + pid);
    });
  };
  // Somebody may have read a file in one of them at its end: the next run removes it, too.
  for (int more = 0; more < 3 && stay(); ++more) ASSERT_EQ(ringside("record -q -o more -- true").code, 0);
  EXPECT_FALSE(stay());
  // The events that the killed one had written are readable.
  EXPECT_EQ(ringside("report").code, 0);
}

// A recorder in a PID namespace of its own, which cannot see the host's processes, and with the same number as another one.
TEST_F(KernelCli, ContainersLeaveEachOtherAlone) {
  if (run("unshare -p -f --mount-proc true").code != 0) GTEST_SKIP() << no_namespaces;
  const std::string tool = RINGSIDE_BUILD_DIR "/ringside",
                    inside = "unshare -p -f --mount-proc " + tool + " record -e syscalls:sys_enter_getppid -a ";
  const Outcome o = run(tool +
                        " record -e sched:sched_switch -a -o host -- sh -c 'touch begun; until [ -e over ]; do sleep 0.1; "
                        "done' > host.log 2>&1 & P=$!; at=" +
                        must(tracefs_dir()) +
                        "/instances/ringside-$P; export RINGSIDE_ROOT=$PWD/root1; until [ -e begun ]; do sleep 0.02; done; " +
                        inside + "-o one -- sleep 1 & A=$!; export RINGSIDE_ROOT=$PWD/root2; " + inside +
                        "-o two -- sleep 1 & B=$!; wait $A && wait $B && cat $at/tracing_on "
                        "$at/events/sched/sched_switch/enable; touch over; wait $P");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "1\n1\n") << o.err << test::slurp(dir + "/host.log");
}

// Events on all CPUs at full speed, and no time for the consumer to catch up: Ctrl-C still ends it, and recorded plus lost
// events are all that the kernel counted.
TEST_F(KernelCli, CtrlCUnderAStorm) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> storm;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i)
    storm.emplace_back([&, i] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(i, &one);
      sched_setaffinity(0, sizeof one, &one);
      while (!stop) syscall(SYS_getppid);
    });
  for (const char* command : {"record -e 'syscalls:*' -e 'sched:*' -b 64k -o small",
                              "record -e 'syscalls:*' -e 'sched:*' -b 1M -o large", "top -e 'syscalls:*' --interval 100ms"}) {
    // Lasts a second from when its instance of tracefs records (a new one is on until it is set up); a shell's background jobs
    // would ignore Ctrl-C.
    const Outcome o = run("env --default-signal=INT " RINGSIDE_BUILD_DIR "/ringside " + std::string(command) + " & P=$!; at=" +
                          must(tracefs_dir()) + "/instances/ringside-$P; for i in $(seq 1000); do " +
                          "grep -sq X $at/events/enable && grep -sq 1 $at/tracing_on && break; sleep 0.02; done; " +
                          "sleep 1; kill -INT $P; B=$(date +%s); wait $P && { test $(($(date +%s) - B)) -lt 20 || " +
                          "{ echo it took 20 s to end >&2; false; }; }");
    EXPECT_EQ(o.code, 0) << command << "\n" << o.err;
  }
  stop = true;
  for (std::thread& thread : storm) thread.join();
  for (const char* name : {"small", "large"}) {
    const json meta = json::parse(test::slurp(dir + "/" + name + "/meta.json"));
    EXPECT_EQ(meta.at("complete"), true);
    u64 recorded = 0, lost = 0, own = 0;
    for (const json& ring : meta.at("rings")) {
      const json& counters = ring.at("counters");
      EXPECT_EQ(counters.at("unread"), 0u);
      EXPECT_EQ(ring.at("lost"), counters.at("overrun"));
      EXPECT_EQ(counters.at("read").get<u64>() + ring.at("lost").get<u64>(), counters.at("written").get<u64>());
      own += counters.at("read").get<u64>() - ring.at("events").get<u64>();
      recorded += ring.at("events").get<u64>();
      lost += ring.at("lost").get<u64>();
    }
    EXPECT_EQ(own, meta.at("account").at("own").get<u64>()) << "the recorder's own, left out";
    EXPECT_GT(recorded, 10000u);
    if (std::string(name) == "small") {
      EXPECT_GT(lost, 0u);
    }
    std::printf("%s: %lu recorded, %lu lost\n", name, recorded, lost);
  }
}

TEST_F(KernelCli, ListTopAndStat) {
  Outcome o = ringside("list -e sched:sched_switch --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json listed = json::parse(o.out);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_NE(listed[0].at("fields").get<std::string>().find("prev_pid"), std::string::npos);
  EXPECT_EQ(ringside("list -e nobody:nothing").code, 2);

  o = ringside("top -e 'sched:*' --once --interval 200ms --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(json::parse(o.out).at("count").get<u64>(), 0u);
  EXPECT_EQ(ringside("top -e nobody:nothing --once").code, 2);

  TracefsOptions options;
  options.prefix = "ringside-test-";
  auto mine = must(TracefsInstance::create(options));
  const std::string name = fs::path(mine.dir()).filename();
  o = ringside("stat --json " + name);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(json::parse(o.out).at("rings").size(), mine.cpus().size());
  EXPECT_EQ(ringside("stat " + mine.dir()).code, 0);
}

// Reading a ring takes its events away. So rings that others made are not read, by any name and command.
TEST_F(KernelCli, InstancesOfOthersAreNeverConsumed) {
  TracefsOptions options;
  options.prefix = "ringside-test-";
  auto others = must(TracefsInstance::create(options));
  must(others.tracing(true));
  must(others.write("trace_marker", "theirs"));
  must(others.tracing(false));
  const std::string name = fs::path(others.dir()).filename();
  for (const std::string& where : {name, others.dir()}) {
    for (const std::string command :
         {"report ", "top ", "top --once ", "hist x ", "crash ", "serve ", "rm ", "record --duration 10ms -i ", "record -i "}) {
      const Outcome o = ringside(command + where + (command == "record -i " ? " -- true" : ""));
      EXPECT_EQ(o.code, 1) << command << where << o.err;
      EXPECT_NE(o.err.find(name), std::string::npos) << o.err;
      const bool reads = command != "serve " && command != "rm ";
      EXPECT_EQ(reads, o.err.find("ringside stat") != std::string::npos) << command << o.err;
    }
    const json stat = json::parse(ringside("stat --json " + where).out);
    EXPECT_EQ(stat.at("total").at("unread"), 1u);
  }
  EXPECT_NE(must(sys::read_file(others.dir() + "/trace")).find("theirs"), std::string::npos);
  EXPECT_EQ(ringside("list").out.find(name), std::string::npos);  // nor was an instance of ringside's made
}

// In a mount namespace of its own, where tracefs is not mounted.
const char* const unmounted =
    "unshare -m sh -c 'umount -lR /sys/kernel/debug; umount /sys/kernel/tracing; ! test -e /sys/kernel/tracing/instances && ";

TEST_F(KernelCli, TracefsIsMountedWhereItIsNot) {
  if (run("unshare -m true").code != 0) GTEST_SKIP() << no_namespaces;
  Outcome o = run(std::string(unmounted) + "exec " RINGSIDE_BUILD_DIR
                                           "/ringside record -e syscalls:sys_enter_read -f \"count == 7\" -- "
                                           "dd if=/dev/zero of=/dev/null bs=7 count=5'");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(events().size(), 5u);
  // Root without the right to mount, as in a container.
  o = run(std::string(unmounted) + "exec setpriv --bounding-set -sys_admin " RINGSIDE_BUILD_DIR
                                   "/ringside list -e sched:sched_switch'");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("mount -t tracefs"), std::string::npos) << o.err;
}

TEST_F(KernelCli, WithoutRightsTheErrorSaysWhatToDo) {
  fs::copy_file(RINGSIDE_BUILD_DIR "/ringside", dir + "/ringside");  // other users may not be able to enter the build directory
  fs::permissions(dir + "/ringside", fs::perms(0755));
  fs::permissions(dir, fs::perms(0777));
  const std::string nobody = geteuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups " : "";
  for (const std::string command : {"list -e sched:sched_switch", "record -o x -e sched:sched_switch --duration 10ms",
                                    "top -e sched:sched_switch --once"}) {
    const Outcome o = run(nobody + "env RINGSIDE_ROOT=" + dir + "/nobody ./ringside " + command);
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_NE(o.err.find("only as root"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("gid=GROUP"), std::string::npos) << o.err;
  }
  if (run("unshare -m true").code != 0) return;
  const Outcome o = run(std::string(unmounted) + "exec " + nobody + "./ringside list -e sched:sched_switch'");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.err.find("not mounted"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("only as root"), std::string::npos) << o.err;
}

// Simulates other machines: see kernel_shim.c.
std::string shim(const std::string& environment) {
  return environment + " LD_PRELOAD=" RINGSIDE_BUILD_DIR "/tests/libkernel_shim.so " RINGSIDE_BUILD_DIR "/ringside ";
}

TEST_F(KernelCli, BothWaysOfReadingGetEveryEvent) {
  for (const char* way : {"auto", "map", "read"}) {
    const Outcome o = ringside(std::string("record --source ") + way +
                               " -e syscalls:sys_enter_read -f 'count == 7' -- dd if=/dev/zero of=/dev/null bs=7 count=3000");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << o.err;
    EXPECT_EQ(events().size(), 3000u);
    const json stat = json::parse(ringside("stat ringside.data --json").out);
    u64 rings = 0;
    for (const json& ring : stat.at("rings")) {
      if (!ring.value("kernel", false)) continue;
      EXPECT_EQ(ring.at("source"), std::string(way) == "map" ? "map" : "read");
      ++rings;
    }
    EXPECT_GT(rings, 0u);
  }
  EXPECT_EQ(ringside("record --source splice -e sched:sched_switch -- true").code, 2);
}

TEST_F(KernelCli, StatShowsHowARunningRecorderReads) {
  Outcome o = run(
      RINGSIDE_BUILD_DIR
      "/ringside record -q --source map -a -e sched:sched_switch -- sh -c 'touch begun; until [ -e over ]; do sleep 0.02; "
      "done' & me=$!; "
      "until [ -e begun ]; do sleep 0.02; done; " RINGSIDE_BUILD_DIR "/ringside stat --json ringside-$me; " RINGSIDE_BUILD_DIR
      "/ringside stat --json ringside.data; " RINGSIDE_BUILD_DIR "/ringside stat ringside-$me; echo $me; touch over; wait");
  std::istringstream lines(o.out);
  std::string line;
  std::getline(lines, line);
  const json live = json::parse(line).at("rings");
  std::getline(lines, line);
  const json recorded = json::parse(line).at("rings");
  ASSERT_FALSE(live.empty());
  for (const json& ring : live) {
    EXPECT_EQ(ring.at("source"), "map");
    EXPECT_EQ(ring.at("readers").size(), 1u);
    EXPECT_NE(o.out.find("\n" + ring.at("readers").at(0).dump() + "\n"), std::string::npos) << o.out;
  }
  for (const json& ring : recorded) EXPECT_EQ(ring.value("source", ""), ring.value("kernel", false) ? "map" : "");
  EXPECT_NE(o.out.find("live, map"), std::string::npos) << o.out;
  EXPECT_NE(o.err.find("consumes it, source: map"), std::string::npos) << o.err;
}

TEST_F(KernelCli, WhereMappingFailsTheRingsAreRead) {
  const auto lines_about_it = [](const Outcome& o) {
    u64 n = 0;
    for (size_t at = o.err.find("read and not mapped"); at != std::string::npos; at = o.err.find("read and not mapped", at + 1))
      ++n;
    return n;
  };
  const std::string top = "top --json --once --interval 200ms -e sched:sched_switch";
  Outcome o = run(shim("KERNEL_SHIM_MMAP=19") + top);  // ENODEV
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(lines_about_it(o), 1u) << o.err;
  EXPECT_NE(o.err.find("Linux 6.10"), std::string::npos) << o.err;
  EXPECT_GT(json::parse(o.out).at("count").get<u64>(), 0u);
  o = run(shim("KERNEL_SHIM_MMAP=16") + top);  // EBUSY
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(lines_about_it(o), 1u) << o.err;
  EXPECT_NE(o.err.find("snapshot"), std::string::npos) << o.err;
  o = run(shim("KERNEL_SHIM_MMAP=16") + "top --source read " + top.substr(4));
  EXPECT_EQ(lines_about_it(o), 0u) << o.err;
  o = run(shim("KERNEL_SHIM_MMAP=16") + "record -e sched:sched_switch -- true");  // bulk is read anyway
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(lines_about_it(o), 0u) << o.err;
  o = run(shim("KERNEL_SHIM_MMAP=16") + "record --source map -e sched:sched_switch -- true");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.err.find("trace_pipe_raw"), std::string::npos) << o.err;
}

// A CPU that was offline when the instance was made has a directory and no ring.
TEST_F(KernelCli, AProcessorWithoutARingIsWaitedForAtNoCost) {
  for (const char* way : {"read", "map"}) {
    const u64 begun = sys::now_ns();
    const Outcome o =
        run(shim("KERNEL_SHIM_ABSENT=0 KERNEL_SHIM_UP=" + dir + "/up KERNEL_SHIM_LOG=" + dir + "/polls") + "record --source " +
            way + " -e syscalls:sys_enter_read -f 'count == 7' -- sh -c '" + "unset LD_PRELOAD; sleep 0.7; touch " + dir +
            "/up; sleep 0.7; taskset -c 0 dd if=/dev/zero of=/dev/null bs=7 count=500'");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(events().size(), 500u);
    const u64 polls = std::stoull(test::slurp(dir + "/polls")), ms = (sys::now_ns() - begun) / 1'000'000;
    EXPECT_GT(polls, 0u);
    EXPECT_LT(polls, 100 + ms / 10) << "it spins";
    fs::remove(dir + "/up");
  }
}

TEST_F(KernelCli, DoctorChecksTheClocksOfAllSources) {
  TracefsOptions options;
  options.prefix = "ringside-test-";
  auto other = must(TracefsInstance::create(options));
  const auto checks = [&] {
    const Outcome o = ringside("doctor --json");
    EXPECT_EQ(o.code, 0) << o.err;
    return json::parse(o.out);
  };
  const auto advice_about = [](const json& all, const std::string& what) -> std::string {
    for (const json& c : all) {
      if (c.at("found").get<std::string>().find(what) != std::string::npos ||
          c.at("check").get<std::string>().find(what) != std::string::npos)
        return c.at("advice");
    }
    return "none";
  };
  must(other.write("trace_clock", "x86-tsc"));
  json all = checks();
  EXPECT_EQ(advice_about(all, other.dir()), "none");
  u64 merging = 0;
  for (const json& c : all) merging += c.value("merges", false) && (c.at("clock") == "mono" || c.at("clock") == "x86-tsc");
  EXPECT_GT(merging, 0u);
  must(other.write("trace_clock", "counter"));
  ASSERT_EQ(ringside("record -q --clock counter -i odd --duration 10ms").code, 0);
  all = checks();
  EXPECT_NE(advice_about(all, other.dir()).find(other.dir() + "/trace_clock"), std::string::npos);
  EXPECT_NE(advice_about(all, "instance odd").find("tsc or mono"), std::string::npos);
  // Clocks that cannot merge are not recorded together.
  for (const char* command :
       {"record -i odd -e sched:sched_switch --duration 10ms", "record --clock counter -e sched:sched_switch -- true"}) {
    const Outcome o = ringside(command);
    EXPECT_EQ(o.code, 1) << command;
    EXPECT_NE(o.err.find("--clock tsc or mono"), std::string::npos) << o.err;
  }
}

}  // namespace
}  // namespace ringside::kernel_cli_test
