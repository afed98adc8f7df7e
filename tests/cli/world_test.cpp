// Traces of other machines, and of other namespaces of this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "foreign_dat.hpp"
#include "kernel/tracefs_instance.hpp"
#include "perfetto_reader.hpp"
#include "plot_page.hpp"
#include "source/recording.hpp"

namespace ringside::world_cli_test {
namespace {

using nlohmann::json;
using test::ForeignDat;
using test::Outcome;
using testing::HasSubstr;

struct World : test::BinaryTest {
  void put(const std::string& name, const ForeignDat& dat) const {
    std::ofstream(dir + "/" + name, std::ios::binary) << dat.bytes();
  }
  // On no machine these numbers are x86-64's.
  static void has_no_name_of_x86(const std::string& text) {
    for (const char* name : {"uname", "semget", "getrusage", "ptrace"}) EXPECT_THAT(text, testing::Not(HasSubstr(name)));
  }
  const std::vector<std::pair<i64, i64>> calls = {{63, 10}, {64, 3}, {98, -110}, {101, 0}};
};

TEST_F(World, SystemCallsHaveTheNamesOfTheirMachine) {
  put("arm64.dat", ForeignDat::of_calls("Linux host 6.1.0 aarch64", calls));
  const json table = json::parse(ringside("syscalls --json arm64.dat").out);
  std::set<std::string> names;
  for (const json& row : table.at("rows")) names.insert(row.at("syscall"));
  EXPECT_EQ(names, (std::set<std::string>{"read", "write", "futex", "nanosleep"}));
  EXPECT_THAT(ringside("report arm64.dat").out, HasSubstr("NR 98 = -110 # futex ETIMEDOUT"));
  EXPECT_EQ(ringside("report -f 'syscall == read' arm64.dat").out.find("NR 64"), std::string::npos);
  EXPECT_EQ(events("-f 'syscall == read' arm64.dat").size(), 2u);
  EXPECT_EQ(events("arm64.dat").at(0).at("syscall"), "read");
  EXPECT_THAT(ringside("latency syscalls arm64.dat").out, HasSubstr("\nnanosleep "));
  EXPECT_THAT(ringside("hist syscall arm64.dat").out, HasSubstr("futex"));
  for (const char* command :
       {"syscalls arm64.dat", "report arm64.dat", "latency syscalls arm64.dat", "export --format json -o - arm64.dat"})
    has_no_name_of_x86(ringside(command).out);
  ASSERT_EQ(ringside("plot -o page.html arm64.dat").code, 0);
  const std::string page = test::page_json(test::slurp(dir + "/page.html")).dump();
  EXPECT_THAT(page, HasSubstr("syscalls:nanosleep"));
  has_no_name_of_x86(page);
  ASSERT_EQ(ringside("export --format perfetto -o arm64.pftrace arm64.dat").code, 0);
  EXPECT_EQ(test::PerfettoFile(test::slurp(dir + "/arm64.pftrace")).machine, "aarch64");
}

TEST_F(World, WithoutAnArchitectureCallsAreNumbers) {
  put("none.dat", ForeignDat::of_calls("", calls));
  EXPECT_THAT(ringside("syscalls none.dat").out, HasSubstr("syscall_101"));
  for (const char* command : {"syscalls none.dat", "report none.dat", "report --json none.dat", "latency syscalls none.dat"})
    has_no_name_of_x86(ringside(command).out);
  const Outcome o = ringside("report -f 'syscall == read' none.dat");
  EXPECT_NE(o.code, 0);
  EXPECT_THAT(o.err, HasSubstr("the trace does not say of which architecture its system calls are"));
  ASSERT_EQ(ringside("export --format perfetto -o none.pftrace none.dat").code, 0);
  EXPECT_EQ(test::PerfettoFile(test::slurp(dir + "/none.pftrace")).machine, "");
}

// MIPS numbers ETIMEDOUT 145 and x86 110; up to ERANGE all are alike.
TEST_F(World, ErrorsThatArchitecturesNumberDifferentlyAreNumbers) {
  put("mips.dat", ForeignDat::of_calls("Linux host 6.1.0 mips64", {{5000, -145}, {5001, -110}, {5002, -2}}));
  const std::string report = ringside("report mips.dat").out;
  EXPECT_THAT(report, HasSubstr("NR 5000 = -145\n"));
  EXPECT_THAT(report, HasSubstr("NR 5001 = -110\n"));
  EXPECT_THAT(report, HasSubstr("NR 5002 = -2 # ENOENT\n"));
  const std::string table = ringside("syscalls mips.dat").out;
  EXPECT_THAT(table, HasSubstr("-145 1"));
  EXPECT_THAT(table, HasSubstr("ENOENT 1"));
}

// Its calls may be those that are asked for.
TEST_F(World, AFilterByNameNeedsTheArchitectureOfEachTrace) {
  put("arm64.dat", ForeignDat::of_calls("Linux host 6.1.0 aarch64", calls));
  put("none.dat", ForeignDat::of_calls("", calls));
  for (const char* both : {"arm64.dat none.dat", "none.dat arm64.dat"}) {
    const Outcome o = ringside(std::string("report -f 'syscall == read' ") + both);
    EXPECT_NE(o.code, 0);
    EXPECT_THAT(o.err, HasSubstr("does not say of which architecture its system calls are"));
  }
  EXPECT_EQ(events("-f 'syscall == 63' arm64.dat none.dat").size(), 4u);
}

// Kernels of 32 bits are in the upper half of 32 bits, that of s390x begins at 0.
TEST_F(World, StacksOfKernelsThatAreNotInTheUpperHalf) {
  for (const auto& [word, big, begin] :
       {std::tuple{u32{4}, false, u64{0xc1000000}}, {4, true, 0xc1000000}, {8, true, 0x100000}}) {
    ForeignDat dat = ForeignDat::of_calls(word == 4 ? "Linux host 6.1.0 ppc" : "Linux host 6.1.0 s390x", {}, big, word);
    dat.formats = {{"a", ForeignDat::format("at", 23, ForeignDat::field("int x", 8, 4), "\"%d\", REC->x")}};
    const u32 caller = word == 8 ? 16 : 12;
    dat.ftrace = {{"ftrace", ForeignDat::format("kernel_stack", 4,
                                                ForeignDat::field("int size", 8, 4, true) +
                                                    ForeignDat::field("unsigned long caller[8]", caller, 8 * word),
                                                "\"%ps\", (void *)REC->caller[0]")}};
    dat.kallsyms = (std::stringstream() << std::hex << begin << " T inner\n"
                                        << begin + 0x100 << " T outer\n"
                                        << begin + 0x200 << " T end\n")
                       .str();
    std::string stack = dat.head(4, 42) + dat.number(i32{3});
    stack.resize(caller);
    stack += dat.a_long(begin + 4) + dat.a_long(begin + 0x104) + dat.a_long(~u64{0});
    dat.pages = {dat.sub_buffer(1'000'000'000, dat.event(0, dat.head(23, 42) + dat.number(i32{1})) + dat.event(0, stack))};
    put("stack.dat", dat);
    EXPECT_EQ(ringside("flame --folded stack.dat").out, "prog;outer;inner 1\n") << word << big;
    EXPECT_THAT(ringside("report --json stack.dat").out, HasSubstr(R"(["inner","outer"])")) << word << big;
  }
}

// Read on another machine than it was recorded on: the directory says whose it is.
TEST_F(World, ARecordingOfAnotherMachine) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  ASSERT_EQ(ringside("record -q -e raw_syscalls -- true").code, 0);
  const auto first = [&] { return events("-f 'event == sys_exit' -n 1").at(0).value("syscall", "none"); };
  const std::string own = first();
  EXPECT_NE(own, "none");
  json meta = json::parse(test::slurp(dir + "/ringside.data/meta.json"));
  EXPECT_EQ(meta.at("world").at("byte_order"), "little");
  meta["world"]["machine"] = "unheard-of";
  std::ofstream(dir + "/ringside.data/meta.json") << meta;
  EXPECT_EQ(first(), "none");
  meta.erase("world");
  meta["boot"] = "11111111-2222-3333-4444-555555555555";
  meta["clock"]["kind"] = "mono";
  std::ofstream(dir + "/ringside.data/meta.json") << meta;
  EXPECT_EQ(first(), "none");
}

// An export tells its kernel, boot and time of day, and nothing of the machine that exports it.
TEST_F(World, AnExportTellsTheRecordersMachine) {
  auto w = must(RecordingWriter::create(dir + "/r", ClockInfo{}));
  w.meta().events.push_back({61441, "app", "malloc", test::malloc_format(61441), true});
  must(w.add_ring({0, 100, 100, "t", "p"}, 4096));
  test::SubBuffer s(5'000);
  s.event(6'000, test::Payload(61441, 100).put(u64{1}).put(u64{2}));
  must(w.append(0, s.view()));
  w.meta().world = ringside::World::of(Architecture::arm64);
  w.meta().world.release = "6.6.6-abroad";
  w.meta().world.host = "board";
  w.meta().world.suspended_ns = 7'000'000;
  w.meta().wall = WallClock{1'000'000'000'000, 1};
  must(w.finish(1));
  for (const char* file : {"r.pftrace", "r.dat", "again.pftrace"})
    ASSERT_EQ(ringside(std::string("export ") + (file[0] == 'a' ? "r.dat" : "r") + " -o " + file).code, 0);
  const test::PerfettoFile first(test::slurp(dir + "/r.pftrace")), again(test::slurp(dir + "/again.pftrace"));
  EXPECT_EQ(first.release, "6.6.6-abroad");
  EXPECT_EQ(first.machine, "aarch64");
  EXPECT_EQ(first.boottime, 7'006'000u);
  EXPECT_EQ(first.realtime, 1'000'000'006'000u);
  EXPECT_EQ(again.release, "6.6.6-abroad") << "a trace.dat has it, too";
  EXPECT_EQ(again.realtime, 0u) << "and no time of day, which is not made up";
  EXPECT_NE(test::slurp(dir + "/r.dat").find("Linux board 6.6.6-abroad aarch64"), std::string::npos);
}

TEST_F(World, FilesOfOtherByteOrdersAndWordSizes) {
  for (const auto& [big, word] : {std::pair(false, 4u), std::pair(true, 4u), std::pair(true, 8u)}) {
    ForeignDat dat;
    dat.big = big, dat.word = word;
    dat.cmdlines = "11 aa\n12 bb\n";
    const u32 state = 32, next = state + word;
    dat.formats = {
        {"sched",
         ForeignDat::format(
             "sched_switch", 314,
             ForeignDat::field("char prev_comm[16]", 8, 16) + ForeignDat::field("pid_t prev_pid", 24, 4, true) +
                 ForeignDat::field("int prev_prio", 28, 4, true) + ForeignDat::field("long prev_state", state, word, true) +
                 ForeignDat::field("char next_comm[16]", next, 16) + ForeignDat::field("pid_t next_pid", next + 16, 4, true) +
                 ForeignDat::field("int next_prio", next + 20, 4, true),
             "\"prev_comm=%s prev_pid=%d ==> next_comm=%s next_pid=%d\", REC->prev_comm, "
             "REC->prev_pid, REC->next_comm, REC->next_pid")}};
    const auto name = [](std::string text) {
      text.resize(16, '\0');
      return text;
    };
    const auto switched = [&](const std::string& from, i32 a, const std::string& to, i32 b) {
      return dat.head(314, a) + name(from) + dat.number(a) + dat.number(120) + dat.a_long(1) + name(to) + dat.number(b) +
             dat.number(120);
    };
    dat.pages = {dat.sub_buffer(1'000'000'000,
                                dat.event(0, switched("aa", 11, "bb", 12)) + dat.event(5000, switched("bb", 12, "aa", 11)))};
    put("x.dat", dat);
    const Outcome o = ringside("report x.dat");
    EXPECT_EQ(
        o.out,
        "              aa-11      [000]     1.000000: sched_switch: prev_comm=aa prev_pid=11 ==> next_comm=bb next_pid=12\n"
        "              bb-12      [000]     1.000005: sched_switch: prev_comm=bb prev_pid=12 ==> next_comm=aa "
        "next_pid=11\n")
        << o.err;
    if (run("trace-cmd report x.dat").code == 127) continue;
    std::istringstream theirs(run("trace-cmd report x.dat").out);
    size_t lines = 0;
    for (std::string line; std::getline(theirs, line);) lines += line.find("sched_switch") != std::string::npos;
    EXPECT_EQ(lines, 2u);
  }
}

// The arguments of trace_printk are packed by the size of a long, and in the machine's byte order.
TEST_F(World, TracePrintkOfOtherByteOrdersAndWordSizes) {
  for (const auto& [big, word] : {std::pair(false, 8u), std::pair(false, 4u), std::pair(true, 4u), std::pair(true, 8u)}) {
    ForeignDat dat;
    dat.big = big, dat.word = word;
    const u64 place = word == 8 ? 0xffffffff81000100 : 0xc1000100;
    const auto text = [&](u64 address, const std::string& format) {
      dat.printk += (std::stringstream() << "0x" << std::hex << address).str() + " : \"" + format + "\"\n";
    };
    text(place, R"(n %d s %s l %ld z %zu ll %llx p %p c %c h %hu star %*d\n)");
    text(place + 64, R"(alone\n)");
    dat.ftrace = {{"ftrace", ForeignDat::format("bprint", 6,
                                                ForeignDat::field("unsigned long ip", 8, word) +
                                                    ForeignDat::field("const char * fmt", 8 + word, word) +
                                                    ForeignDat::field("u32 buf[]", 8 + 2 * word, 0),
                                                "\"%ps: %s\", (void *)REC->ip, REC->fmt")},
                  {"ftrace", ForeignDat::format("bputs", 9,
                                                ForeignDat::field("unsigned long ip", 8, word) +
                                                    ForeignDat::field("const char * str", 8 + word, word),
                                                "\"%ps: %s\", (void *)REC->ip, REC->str")}};
    std::string packed = dat.number(i32{-7}) + std::string("ab\0", 3);
    for (const std::string& bytes :
         {dat.a_long(static_cast<u64>(-8)), dat.a_long(9), dat.number(u64{0x123456789a}), dat.a_long(0x1234), std::string("x"),
          dat.number(u16{65535}), dat.number(i32{4}), dat.number(i32{5})}) {
      const size_t alignment = std::min<size_t>(bytes.size(), 4);
      packed.resize((packed.size() + alignment - 1) / alignment * alignment);
      packed += bytes;
    }
    dat.pages = {dat.sub_buffer(1'000'000'000, dat.event(0, dat.head(6, 1) + dat.a_long(0x10) + dat.a_long(place) + packed) +
                                                   dat.event(0, dat.head(9, 1) + dat.a_long(0x10) + dat.a_long(place + 64)))};
    put("x.dat", dat);
    const std::string out = ringside("report x.dat").out;
    EXPECT_THAT(out, HasSubstr("bprint: 0x10: n -7 s ab l -8 z 9 ll 123456789a p 0x1234 c x h 65535 star    5\n"))
        << big << word;
    EXPECT_THAT(out, HasSubstr("bputs: 0x10: alone\n")) << big << word;
    EXPECT_EQ(events("x.dat").at(1).at("fields").at("str"), "alone");
  }
}

// Ticks are shown as ticks, by each command, and no rate is made up.
TEST_F(World, ClocksWithoutARate) {
  ForeignDat dat = ForeignDat::of_calls("Linux host 6.1.0 x86_64", {{0, 1}, {1, 2}});
  for (const char* clock : {"x86-tsc", "counter", "ppc-tb"}) {
    dat.clock = clock;
    put("x.dat", dat);
    const Outcome report = ringside("report x.dat");
    EXPECT_THAT(report.out, HasSubstr(" 1000001000: sys_enter: NR 0"));
    EXPECT_THAT(report.err, HasSubstr("ticks of the clock " + std::string(clock)));
    EXPECT_THAT(ringside("latency syscalls x.dat --slowest 1").out, HasSubstr("5,000 ticks"));
    EXPECT_THAT(ringside("syscalls x.dat").out, HasSubstr("10,000 ticks"));
    EXPECT_THAT(ringside("latency syscalls --json x.dat").out, HasSubstr("\"time_unit\":\"ticks\""));
    EXPECT_THAT(ringside("syscalls --json x.dat").out, HasSubstr("\"time_unit\":\"ticks\""));
    const json top = json::parse(ringside("top --json x.dat").out);
    EXPECT_TRUE(top.at("rows").at(0).at("rate").is_null());
    for (const char* command : {"latency syscalls --slowest 1 --heat", "syscalls", "top --once"}) {
      const std::string out = ringside(command + std::string(" x.dat")).out;
      for (const char* unit : {" us", " ms", " ns", "0/s"}) EXPECT_EQ(out.find(unit), std::string::npos) << command << out;
    }
    EXPECT_EQ(events("x.dat --time 1000001000..1000006000").size(), 2u);
    EXPECT_EQ(events("x.dat --time +5000..+6000").size(), 2u);
    EXPECT_THAT(ringside("report x.dat --time 1ms..2ms").err, HasSubstr("counts ticks"));
    EXPECT_THAT(ringside("report x.dat --time 5..6").err, HasSubstr("x.dat begins at 1000001000"));
    EXPECT_THAT(ringside("report x.dat --time 2000000000..").err, HasSubstr("first one is at 1000001000"));
    EXPECT_THAT(ringside("watch --batch x.dat").err, HasSubstr("ticks, which count no seconds"));
  }
}

TEST_F(World, ClocksThatCountNanoseconds) {
  ForeignDat dat = ForeignDat::of_calls("Linux host 6.1.0 x86_64", {{0, 1}});
  for (const char* clock : {"local", "global", "uptime", "perf", "mono", "mono_raw", "boot", "tai"}) {
    dat.clock = clock;
    put("x.dat", dat);
    EXPECT_THAT(ringside("report x.dat").out, HasSubstr(" 1.000001: sys_enter: NR 0")) << clock;
    EXPECT_THAT(ringside("syscalls x.dat").out, HasSubstr("5 us")) << clock;
  }
}

// trace-cmd record --date: its times are times of day.
TEST_F(World, ATraceDatWithADate) {
  ForeignDat dat = ForeignDat::of_calls("Linux host 6.1.0 x86_64", {{0, 1}});
  dat.clock = "local";
  dat.date_us = 1'700'000'000'000'000;
  put("x.dat", dat);
  EXPECT_THAT(run("TZ=UTC " RINGSIDE_BUILD_DIR "/ringside report --wall x.dat").out, HasSubstr("2023-11-14T22:13:21.000001"));
  EXPECT_EQ(json::parse(run("TZ=UTC " RINGSIDE_BUILD_DIR "/ringside report --wall --json -n 1 x.dat").out).at("wall"),
            "2023-11-14T22:13:21.000001000+00:00");
  EXPECT_EQ(events("x.dat --time 2023-11-14T22:13:21.000002Z..").size(), 1u);
  dat.date_us = 0;
  put("x.dat", dat);
  EXPECT_THAT(ringside("report --wall x.dat").err, HasSubstr("does not say its time of day"));
}

// One number, three machines: nothing of one is taken for another's.
TEST_F(World, NumbersOfSeveralMachinesAreApart) {
  const auto file = [&](const std::string& name, ForeignDat dat, const std::string& task, const std::string& symbol) {
    const u64 place = dat.word == 8 ? 0xffffffff81000100 : 0xc1000100;
    dat.cmdlines = "42 " + task + "\n";
    dat.formats.push_back(
        {"a", ForeignDat::format("at", 23, ForeignDat::field("unsigned long ip", 8, dat.word), "\"%pS\", (void *)REC->ip")});
    const u32 caller = dat.word == 8 ? 16 : 12;
    dat.ftrace = {{"ftrace", ForeignDat::format("kernel_stack", 4,
                                                ForeignDat::field("int size", 8, 4, true) +
                                                    ForeignDat::field("unsigned long caller[8]", caller, 8 * dat.word),
                                                "\"%ps\", (void *)REC->caller[0]")}};
    std::string stack = dat.head(4, 42) + dat.number(i32{1});
    stack.resize(caller);
    dat.pages.push_back(dat.sub_buffer(
        2'000'000'000, dat.event(0, dat.head(23, 42) + dat.a_long(place)) + dat.event(0, stack + dat.a_long(place + 4))));
    dat.kallsyms = (std::stringstream() << std::hex << place << " T " << symbol << "\n" << place + 0x1000 << " T end\n").str();
    put(name, dat);
  };
  file("a.dat", ForeignDat::of_calls("Linux one 6.1.0 aarch64", calls), "first", "of_a");
  file("b.dat", ForeignDat::of_calls("Linux two 6.1.0 s390x", calls, true), "second", "of_b");
  file("c.dat", ForeignDat::of_calls("", calls), "third", "of_c");
  const std::string all = " a.dat b.dat c.dat";
  for (const json& e : events(all.substr(1)))
    EXPECT_EQ(e.at("task"), e.at("buffer") == "a.dat" ? "first" : e.at("buffer") == "b.dat" ? "second" : "third");
  const std::string report = ringside("report" + all).out;
  for (const char* symbol : {"at: of_a+0x0", "at: of_b+0x0", "at: of_c+0x0"}) EXPECT_THAT(report, HasSubstr(symbol));
  const std::string folded = ringside("flame --folded -e a:at" + all).out;
  for (const char* stack : {"first;of_a 1", "second;of_b 1", "third;of_c 1"}) EXPECT_THAT(folded, HasSubstr(stack));
  const json latency = json::parse(ringside("latency syscalls --json --by task" + all).out);
  EXPECT_EQ(latency.at("pairs"), 3 * calls.size());
  EXPECT_EQ(latency.at("repeated"), 0u);
  EXPECT_EQ(latency.at("groups").size(), 3u);
  std::set<std::string> names;
  const json table = json::parse(ringside("syscalls --json" + all).out);
  for (const json& row : table.at("rows")) names.insert(row.at("syscall"));
  EXPECT_TRUE(names.count("read") == 1 && names.count("nanosleep") == 1 && names.count("syscall_63") == 1);
  EXPECT_EQ(table.at("all").at("calls"), 3 * calls.size());
  // Their times have nothing in common, and each command says so.
  for (const char* command : {"report", "hist event", "latency syscalls", "latency syscalls --json", "export -o all.csv"})
    EXPECT_THAT(ringside(command + all).err, HasSubstr("a.dat is of one, 6.1.0, and b.dat of two, 6.1.0: ")) << command;
  // Those of one machine are its threads.
  file("d.dat", ForeignDat::of_calls("Linux one 6.1.0 aarch64", calls), "first", "of_d");
  file("e.dat", ForeignDat::of_calls("Linux one 6.1.0 x86_64", calls), "fifth", "of_e");
  EXPECT_EQ(json::parse(ringside("hist thread --json a.dat e.dat").out).at("keys"), 2u);
  EXPECT_EQ(json::parse(ringside("hist thread --json a.dat d.dat").out).at("keys"), 1u);
  EXPECT_EQ(json::parse(ringside("hist thread --json a.dat b.dat").out).at("keys"), 2u);
}

// CLOCK_MONOTONIC of the program is 100,000 s ahead of the kernel's.
TEST_F(World, TimesOfATimeNamespaceAreTheKernels) {
  if (run("unshare -T --monotonic 100000 --fork true").code != 0) GTEST_SKIP() << "no time namespaces here, or not as root";
  const std::string inside = "unshare -T --monotonic 100000 --boottime 7 --fork";
  for (const auto& [out, where] : {std::pair{"in", inside}, {"outside", std::string()}}) {
    const Outcome o = ringside(std::string("record -q --clock mono --libc malloc -o ") + out + " " + where + " ls /");
    ASSERT_EQ(o.code, 0) << out << o.out << o.err;
  }
  const auto last = [&](const std::string& of) { return events(of).back().at("ts").get<u64>(); };
  // The second one came later, and less than a day: 100,000 s are more.
  EXPECT_LT(last("in"), last("outside"));
  EXPECT_LT(last("outside") - last("in"), u64{86'400} * 1'000'000'000);
  // The parent's and its child's events of one recording.
  const auto all = events("in");
  EXPECT_LT(all.back().at("ts").get<u64>() - all.front().at("ts").get<u64>(), u64{86'400} * 1'000'000'000);
  // And a recorder that runs inside has the kernel's time as well.
  ASSERT_EQ(run(inside + " " RINGSIDE_BUILD_DIR "/ringside record -q --clock mono --libc malloc -o within ls /").code, 0);
  ASSERT_EQ(ringside("record -q --clock mono --libc malloc -o after ls /").code, 0);
  EXPECT_LT(last("outside"), last("within"));
  EXPECT_LT(last("within"), last("after"));
}

// A program that enters one while it is traced.
TEST_F(World, AProgramThatEntersATimeNamespace) {
  if (run("unshare -T --monotonic 100000 --fork true").code != 0) GTEST_SKIP() << "no time namespaces here, or not as root";
  for (const char* rings : {"cpu", "thread"}) {
    const Outcome o =
        run("unshare -T --monotonic 100000 --fork sh -c 'echo $$ > begun; until [ -e done ]; do sleep 0.01; done' & "
            "until [ -s begun ]; do sleep 0.01; done; " RINGSIDE_BUILD_DIR
            "/ringside record -q --clock mono "
            "--libc malloc --rings " +
            std::string(rings) +
            " " RINGSIDE_BUILD_DIR
            "/tests/names_writer enter "
            "/proc/$(cat begun)/ns/time; R=$?; touch done; wait; rm begun done; exit $R");
    if (o.code == 1) GTEST_SKIP() << "this kernel lets no process enter one";
    ASSERT_EQ(o.code, 0) << o.err;
    const auto all = events("-f 'size > 7000 && size < 7003'");
    ASSERT_EQ(all.size(), 2u);
    EXPECT_LT(all[1].at("ts").get<u64>() - all[0].at("ts").get<u64>(), u64{3'600} * 1'000'000'000);
  }
}

}  // namespace
}  // namespace ringside::world_cli_test
