// Words that name something, but not what their author means: numbers never come of them in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"

namespace ringside::test::wrong_words_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

struct NewcomerWords : test::BinaryTest {
  static constexpr u16 waking = 0xF001, wakeup = 0xF002, switching = 0xF003;

  // cc1-50 wakes sleep-60, which runs 4 us later in its place; then sleep-60 wakes cc1-50, which runs 9 us later.
  void make(const std::string& name = "s.data") {
    auto w = must(RecordingWriter::create(dir + "/" + name, calibrate(ClockKind::mono)));
    const auto text = [](const std::string& field, int at) {
      return "\tfield:char " + field + "[8];\toffset:" + std::to_string(at) + ";\tsize:8;\tsigned:0;\n";
    };
    const auto number = [](const std::string& field, int at) {
      return "\tfield:int " + field + ";\toffset:" + std::to_string(at) + ";\tsize:4;\tsigned:1;\n";
    };
    const std::string woken = text("comm", 8) + number("pid", 16);
    const std::string change = text("prev_comm", 8) + number("prev_pid", 16) + text("next_comm", 20) + number("next_pid", 28);
    for (const auto& [id, event] : {std::pair<u16, const char*>{waking, "sched_waking"}, {wakeup, "sched_wakeup"}})
      w.meta().events.push_back(
          {id, "sched", event, test::format(id, event, woken, R"("comm=%s pid=%d", REC->comm, REC->pid)"), true, false});
    w.meta().events.push_back(
        {switching, "sched", "sched_switch",
         test::format(switching, "sched_switch", change,
                      R"("%s:%d ==> %s:%d", REC->prev_comm, REC->prev_pid, REC->next_comm, REC->next_pid)"),
         true, false});
    const auto wakes = [](u16 id, i32 tid, const char* comm, i32 pid) { return Payload(id, tid).text({comm, 8}).put(pid); };
    const auto switches = [](i32 tid, const char* from, const char* to, i32 next) {
      return Payload(switching, tid).text({from, 8}).put(tid).text({to, 8}).put(next);
    };
    constexpr const char *cc1 = "cc1\0\0\0\0\0", *sleep = "sleep\0\0\0";
    const u64 t = 5'000'000'000;
    SubBuffer all(t, 4096);
    all.event(t, wakes(waking, 50, sleep, 60))
        .event(t + 1000, wakes(wakeup, 50, sleep, 60))
        .event(t + 4000, switches(50, cc1, sleep, 60))
        .event(t + 5000, wakes(waking, 60, cc1, 50))
        .event(t + 6000, wakes(wakeup, 60, cc1, 50))
        .event(t + 14'000, switches(60, sleep, cc1, 50));
    must(w.add_ring({0, 50, 50, "cc1", "cc1", false, ""}, 4096));
    must(w.append(0, all.view()));
    must(w.finish(1));
  }
  json latency(const std::string& arguments) const {
    const Outcome o = ringside("latency " + arguments + " --json");
    EXPECT_EQ(o.code, 0) << o.err;
    return json::parse(o.out);
  }
  void refuses(const std::string& typed, const std::string& wanted, int code = 2) const {
    const Outcome o = ringside(typed);
    EXPECT_EQ(o.code, code) << typed << "\n" << o.err;
    EXPECT_EQ(o.out, "") << typed;
    EXPECT_THAT(o.err, HasSubstr(wanted)) << typed;
  }
};

struct NewcomerWordsAsRoot : NewcomerWords {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    NewcomerWords::SetUp();
  }
};

TEST_F(NewcomerWords, AKeyThatIsAFieldOfOneEventAlone) {
  make();
  refuses("latency sched_wakeup sched_switch s.data --key pid",
          "sched:sched_switch has no field \"pid\", which is one of sched:sched_wakeup; the thread that ran would be taken; "
          "pid=common_pid is that thread; did you mean ");
  const Outcome o = ringside("latency sched_wakeup sched_switch s.data --key pid");
  EXPECT_THAT(o.err, HasSubstr("pid=next_pid"));
  EXPECT_THAT(o.err, HasSubstr("These are the events of the pair \"wakeup\", whose key is pid=next_pid"));
  refuses("latency sched_switch sched_waking s.data --key comm", "comm=task is that thread");
  refuses("latency 'sched_switch,sched_waking' sched_waking s.data --key pid", "has no field \"pid\"");
  EXPECT_EQ(latency("sched_wakeup sched_switch s.data -k pid=next_pid").at("all").at("max"), 8000);
  EXPECT_EQ(latency("sched_wakeup sched_switch s.data -k pid=common_pid").at("all").at("max"), 13'000);
}

TEST_F(NewcomerWords, TheEventsOfANamedPairWithoutItsKey) {
  make();
  const std::string wanted =
      "these are the events of the pair \"wakeup\", whose key is pid=next_pid, and here it is the thread that ran";
  for (const char* start : {"sched:sched_waking", "sched_waking", "sched_wakeup"}) {
    EXPECT_THAT(ringside(std::string("latency ") + start + " sched_switch s.data").out, HasSubstr(wanted)) << start;
    EXPECT_THAT(ringside(std::string("latency ") + start + " sched_switch s.data --json").err, HasSubstr(wanted)) << start;
  }
  for (const char* typed : {"wakeup", "sched_waking sched_switch -k pid=next_pid", "sched_waking sched_switch -k common_pid",
                            "sched_waking sched_wakeup"})
    EXPECT_THAT(ringside(std::string("latency s.data ").insert(8, std::string(typed) + " ")).out, Not(HasSubstr("the pair \"")))
        << typed;
}

TEST_F(NewcomerWords, AFilterOfOneSideOfAPair) {
  make();
  for (const char* typed : {"comm == sleep", "next_comm == sleep", "prev_comm == cc1", "comm == sleep || next_comm == sleep"})
    EXPECT_EQ(latency("wakeup s.data -f '" + std::string(typed) + "'").at("all").at("max"), 4000) << typed;
  EXPECT_EQ(latency("sched_waking 'sched_switch if prev_comm == cc1' -k pid=next_pid s.data").at("all").at("max"), 4000);
  refuses("latency wakeup s.data -f 'task == nobody'", "write start/task or end/task");
  EXPECT_THAT(ringside("latency wakeup s.data -f 'comm == nobody'").out, HasSubstr("no pair meets the filter; 2 pairs do not"));
}

TEST_F(NewcomerWords, NoPairAtAll) {
  make();
  const Outcome o = ringside("latency sched_waking sched_wakeup s.data -k 'comm.hex'");
  EXPECT_NE(o.code, 0);
  const Outcome none = ringside("latency sched_wakeup sched_waking s.data -k pid --time +4us..+4.5us");
  EXPECT_THAT(none.out, HasSubstr("no pair: there was no start and no end"));
  EXPECT_THAT(none.out, Not(HasSubstr("the numbers are exact")));
  EXPECT_THAT(ringside("latency sched_wakeup sched_waking s.data -k pid").out,
              HasSubstr("no pair: no end has the key of a start before it; -k "));
}

TEST_F(NewcomerWords, OneEventAndARecording) {
  make();
  refuses("latency nope s.data",
          "\"s.data\" is a recording or a file; latency takes START END, or the NAME of a pair, before it, and \"nope\" is no "
          "name: there are wakeup");
  refuses("latency libc:read s.data", "latency takes START END");
}

TEST_F(NewcomerWords, HistWithoutItsKey) {
  make();
  refuses("hist s.data",
          "\"s.data\" is a recording or a file, and hist takes KEY before it, such as event or EVENT/FIELD: ringside hist "
          "event s.data");
  EXPECT_EQ(ringside("hist event s.data").code, 0);
  refuses("hist sched_switch s.data", "this is an event; name one of its fields, as in sched:sched_switch/");
  refuses("hist sched:sched_switch s.data", "prev_comm, prev_pid, next_comm, next_pid");
  refuses("hist next_comm prev_pid s.data", "; two keys take a comma: next_comm,prev_pid", 1);
  EXPECT_EQ(ringside("hist next_comm,prev_pid s.data").code, 0);
}

TEST_F(NewcomerWords, ReportOfNothing) {
  make();
  const auto says = [&](const std::string& typed, const std::string& wanted) {
    const Outcome o = ringside("report s.data " + typed);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, HasSubstr(wanted)) << typed;
  };
  says("-f 'pid == 1'", "0 of 6 events in s.data pass -f");
  says("-f 'pid == 1' --json", "0 of 6 events in s.data pass -f");
  says("--tid 4711", "0 of 6 events in s.data pass --tid");
  EXPECT_EQ(ringside("report s.data -f 'pid == 50'").err, "");
  ASSERT_EQ(ringside("record -q -o empty true").code, 0);
  EXPECT_THAT(ringside("report empty").err, HasSubstr("empty has no events"));
}

TEST_F(NewcomerWords, ACommThatIsTheFieldOfSomeEvents) {
  make();
  EXPECT_THAT(ringside("top s.data --by comm").err, HasSubstr("comm is the field of sched:sched_wa"));
  EXPECT_THAT(ringside("top s.data --by comm").err,
              HasSubstr("and the thread that ran in the rest; task is always the thread that ran"));
  EXPECT_THAT(ringside("watch --batch --by comm s.data").err, HasSubstr("comm is the field of sched:sched_wa"));
  for (const char* typed : {"top s.data --by task", "watch --batch --by task s.data", "top s.data -e sched_waking --by comm",
                            "hist sched_waking/comm s.data", "top s.data"})
    EXPECT_EQ(ringside(typed).err, "") << typed;
}

TEST_F(NewcomerWords, TheDefaultRecordingIsNamed) {
  make("ringside.data");
  for (const char* typed : {"top", "hist event", "watch --batch", "latency app:a app:b"})
    EXPECT_THAT(ringside(typed).err, HasSubstr("ringside: of the recording ringside.data\n")) << typed;
  EXPECT_EQ(ringside("top ringside.data").err, "");
}

TEST_F(NewcomerWords, AConditionOfTheCLibraryNamesItsList) {
  for (const auto& [typed, wanted] :
       {std::pair{"'libc:write if ret > 2'", "\"libc:write\" is a call of the C library: add --libc io"},
        {"'libc:free' --libc io", "add --libc io,malloc"}}) {
    refuses(std::string("trigger ") + typed + " -o trg -- touch ran", wanted);
    EXPECT_FALSE(fs::exists(dir + "/ran"));
  }
}

TEST_F(NewcomerWords, AConditionOnAFieldThatTheEventLacks) {
  const Outcome o = ringside("trigger 'libc:write if bytes > 2' --libc io -o trg -- dd if=/etc/hostname of=copy");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("no event here has a field \"bytes\""));
  const Outcome event = ringside("trigger 'unit:numbr' -o trg -- timeout 1 " RINGSIDE_BUILD_DIR "/tests/signalled_writer");
  EXPECT_EQ(event.code, 2) << event.err;
  EXPECT_THAT(event.err, HasSubstr("no event here matches \"unit:numbr\""));
}

TEST_F(NewcomerWords, TheCommandOfATriggerAsThatOfRecord) {
  for (const char* typed :
       {"--libc io --snapshot -- sh -c 'dd if=/etc/hostname of=copy'",
        "--libc io -o ringside.data sh -c 'dd if=/etc/hostname of=copy'", "--libc io sh -c 'dd if=/etc/hostname of=copy'"}) {
    const Outcome o = ringside(std::string("trigger 'libc:write if ret > 0' ") + typed);
    EXPECT_EQ(o.code, 0) << typed << o.err;
    EXPECT_THAT(o.err, HasSubstr("triggered by: ")) << typed;
    EXPECT_THAT(o.err, HasSubstr("saved ")) << typed;
    EXPECT_TRUE(fs::exists(dir + "/ringside.data/meta.json")) << typed;
    fs::remove_all(dir + "/ringside.data");
  }
  const Outcome pair = ringside("trigger 'latency > 1ns' --latency libc:read libc:write --libc io dd if=/etc/hostname of=copy");
  EXPECT_THAT(pair.err, HasSubstr("triggered by: ")) << pair.code;
}

TEST_F(NewcomerWordsAsRoot, AConditionOfTheKernelThatCannotHold) {
  refuses("trigger 'sched_switch if nosuch > 2' -o trg -- touch ran", "no event here has a field \"nosuch\"");
  EXPECT_FALSE(fs::exists(dir + "/ran"));
  const Outcome o = ringside("trigger sched_wakup -o trg -- true");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("\"sched_wakup\": the kernel has no such event; did you mean "));
  EXPECT_THAT(o.err, HasSubstr("sched:sched_wakeup"));
}

TEST_F(NewcomerWordsAsRoot, AKeyOfTheKernelNeedsNoEvents) {
  const Outcome o = ringside("hist 'sched:sched_switch/next_pid' --duration 50ms");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("next_pid"));
  make("ringside.data");
  const Outcome recorded = ringside("hist 'kmem:kmalloc/bytes_req.log2'");
  EXPECT_THAT(
      recorded.err,
      HasSubstr(
          "\"kmem:kmalloc\" names events of the kernel, and none that is here: add -e kmem:kmalloc for the kernel, live"));
  EXPECT_THAT(ringside("hist 'kmem:*/event' ringside.data").err, HasSubstr("ringside record -e 'kmem:*' COMMAND"));
}

TEST_F(NewcomerWordsAsRoot, AnAddressOfTheKernelIsHexadecimal) {
  ASSERT_EQ(ringside("record -q -a -e kmem:kmalloc -o km ls -lR /sys/kernel/tracing/events/sched").code, 0);
  const Outcome o = ringside("hist call_site km");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("0xffff"));
  const Outcome numbers = ringside("hist call_site km --json");
  EXPECT_TRUE(json::parse(numbers.out).at("rows").at(0).at("call_site").is_number()) << numbers.out;
}

TEST_F(NewcomerWordsAsRoot, CallsByNameAsInStrace) {
  for (const char* typed :
       {"-e openat cat /etc/hostname", "-e trace=openat cat /etc/hostname", "-f 'syscall == openat' cat /etc/hostname"}) {
    const Outcome o = ringside(std::string("syscalls --json ") + typed + " | tail -1");
    ASSERT_EQ(o.code, 0) << typed << o.err;
    const json rows = json::parse(o.out.substr(o.out.find('{'))).at("rows");
    ASSERT_EQ(rows.size(), 1u) << typed;
    EXPECT_EQ(rows[0].at("syscall"), "openat");
    EXPECT_GT(rows[0].at("calls"), 0);
  }
  refuses("syscalls -f ls",
          "-f takes a FILTER, such as 'syscall == openat', and \"ls\" is none; what a command starts is always followed: "
          "ringside syscalls ls");
  const Outcome none = ringside("syscalls -e opnat touch ran");
  EXPECT_EQ(none.code, 2) << none.err;
  EXPECT_THAT(none.err, HasSubstr("there is no system call \"opnat\"; did you mean openat?"));
  EXPECT_FALSE(fs::exists(dir + "/ran"));
  ASSERT_EQ(ringside("record -q -e raw_syscalls cat /etc/hostname").code, 0);
  const Outcome o = ringside("report -f 'syscall == opnat'");
  EXPECT_NE(o.code, 0);
  EXPECT_THAT(o.err, HasSubstr("there is no system call \"opnat\"; did you mean openat"));
  EXPECT_THAT(ringside("report -f 'syscall == openat' -n 1").out, HasSubstr("openat"));
}

}  // namespace
}  // namespace ringside::test::wrong_words_test
