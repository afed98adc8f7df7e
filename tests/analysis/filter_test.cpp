// Filters: the meaning of the grammar for each type of field, and the messages about mistakes.
#include "analysis/filter.hpp"

#include <gtest/gtest.h>

#include "schema/glob.hpp"
#include "cli/hand_made.hpp"

namespace ringside::filter_test {
namespace {

using test::Payload;

struct Filters : testing::Test {
  Formats formats;
  Tasks tasks;
  RingName ring{3, 700, 711, "ring's", "process", false, ""};
  u64 time = 1'500'000'000;

  void SetUp() override {
    formats.add(1, "libc", "malloc", test::malloc_format());
    formats.add(
        kernel_ids + 2, "sched", "wake",
        test::format(
            2, "wake",
            "\tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;\n\tfield:pid_t pid;\toffset:16;\tsize:4;\tsigned:1;\n"
            "\tfield:u8 prio;\toffset:20;\tsize:1;\tsigned:0;\n\tfield:char c;\toffset:21;\tsize:1;\tsigned:1;\n"
            "\tfield:u16 state;\toffset:22;\tsize:2;\tsigned:0;\n\tfield:__data_loc char[] "
            "path;\toffset:24;\tsize:4;\tsigned:0;\n"
            "\tfield:double load;\toffset:28;\tsize:8;\tsigned:0;\n\tfield:u32 list[2];\toffset:36;\tsize:8;\tsigned:0;\n"
            "\tfield:u64 wait_ns;\toffset:44;\tsize:8;\tsigned:0;\n\tfield:s64 big;\toffset:52;\tsize:8;\tsigned:1;\n",
            R"("state=%s", __print_symbolic(REC->state, { 0, "idle" }, { 1, "busy" }, { 2, "busy" }))"));
    formats.add(kernel_ids + 3, "app", "ratio",
                test::format(3, "ratio", "\tfield:float r;\toffset:8;\tsize:4;\tsigned:0;\n", R"("r=%f", REC->r)"));
    tasks.add(Task{700, 4711, "cc1plus", "g++"});
  }
  Payload wake(u16 state = 1) const {
    return Payload(2, 4711)
        .text({"make\0\0\0\0", 8})
        .put(i32{-7})
        .put(u8{100})
        .put('q')
        .put(state)
        .put(u32{60 | 6 << 16})
        .put(1.5)
        .put(u32{1})
        .put(u32{2})
        .put(u64{5'000'000})
        .put(i64{-1})
        .text({"/etc/\0", 6});
  }
  static Payload ratio(float value) { return Payload(3, 4711).put(value); }
  Payload allocation(u64 size, i32 tid = 711) const { return Payload(1, tid).put(size).put(u64{0xA0}); }

  bool meets(const std::string& text, const Payload& payload, bool kernel) {
    auto filter = Filter::compile(text, formats, tasks);
    EXPECT_TRUE(filter) << (filter ? "" : filter.error().sentence);
    if (!filter) return false;
    ring.kernel = kernel;
    TraceRecord record;
    record.time = time;
    record.payload = payload;
    record.ids = ring.ids();
    return filter->matches(record, ring);
  }
  bool woken(const std::string& text) { return meets(text, wake(), true); }
  bool allocated(const std::string& text, u64 size = 32, i32 tid = 711) { return meets(text, allocation(size, tid), false); }
  std::string error(const std::string& text) {
    auto filter = Filter::compile(text, formats, tasks);
    EXPECT_FALSE(filter) << text;
    return filter ? "" : filter.error().sentence;
  }
};

TEST_F(Filters, SystemCallsAreChosenByAGlobOverTheirNames) {
  World world;
  world.architecture = Architecture::x86_64;
  formats.add(kernel_ids + 5, "raw_syscalls", "sys_enter",
              test::format(5, "sys_enter", "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n", R"("NR %ld", REC->id)"), world);
  const auto called = [&](const std::string& text, i64 number) { return meets(text, Payload(5, 4711).put(number), true); };
  const i64 read = 0, stat = 4, fstat = 5, newfstatat = 262, statx = 332;
  for (const i64 call : {stat, fstat, newfstatat, statx}) EXPECT_TRUE(called("syscall ~ \"*stat*\"", call)) << call;
  EXPECT_FALSE(called("syscall ~ \"*stat*\"", read));
  EXPECT_FALSE(called("syscall ~ \"*stat*\"", -1));
  EXPECT_FALSE(called("!(syscall ~ \"*stat*\")", fstat));
  EXPECT_TRUE(called("!(syscall ~ \"*stat*\")", read));
  EXPECT_TRUE(called("sys_enter/syscall ~ \"st?t\"", stat));
  EXPECT_FALSE(called("syscall ~ \"st?t\"", fstat));
  EXPECT_NE(error("syscall ~ \"*nope*\"").find("no system call matches \"*nope*\""), std::string::npos);
}

// As in columns: libc:malloc/size.
TEST_F(Filters, AnEventInFrontOfAName) {
  for (const char* yes : {"libc:malloc/size == 32", "malloc/size > 31", "libc:*/size < 33", "libc:malloc/event == malloc",
                          "libc:malloc/tid == 711", "! sched:wake/prio == 100", "!(sched:wake/prio > 0)",
                          "sched:wake/prio == 100 || libc:malloc/size == 32", "(libc:malloc/size == 32)"})
    EXPECT_TRUE(allocated(yes)) << yes;
  for (const char* no : {"libc:malloc/size != 32", "sched:wake/tid == 711", "sched:wake/event == malloc",
                         "sched:wake/cpu >= 0 && size == 32", "!libc:malloc/size == 32"})
    EXPECT_FALSE(allocated(no)) << no;
  EXPECT_TRUE(woken("wake/path == \"/etc/\""));
  EXPECT_NE(error("libc:maloc/size == 1").find("no event here matches \"libc:maloc\"; did you mean libc:malloc?"),
            std::string::npos);
  EXPECT_NE(error("libc:malloc/prio == 1").find("\"libc:malloc\" has no field \"prio\""), std::string::npos);
  EXPECT_EQ(error("sched:wake/size == 1").find("did you mean size"), std::string::npos);
  for (const char* wrong : {"/size == 1", "libc:malloc/ == 1", "libc:malloc/", "a b/size == 1", "libc:malloc/size/", "//"})
    EXPECT_NE(error(wrong), "") << wrong;
  EXPECT_EQ(Filter::events_in("libc:malloc/size > 1 && sched:wake/prio > 2 && cpu == 0"),
            (std::vector<std::string>{"libc:malloc", "sched:wake"}));
  EXPECT_TRUE(Filter::events_in("size > 1 &&").empty());
}

// A clause is asked of its events alone; others pass it.
TEST_F(Filters, EventsInFrontOfAClause) {
  for (const char* yes :
       {"malloc: size == 32", "libc:*: size == 32 || size == 33", "wake: prio == 1", "wake: prio == 1; size == 32",
        "malloc: size > 31; malloc: size < 33", "wake,malloc: tid == 711", "malloc: size == 32;"})
    EXPECT_TRUE(allocated(yes)) << yes;
  for (const char* no : {"malloc: size == 33", "malloc: size > 31; malloc: size < 32", "wake: prio == 1; size == 33"})
    EXPECT_FALSE(allocated(no)) << no;
  EXPECT_FALSE(woken("wake: prio == 1"));
  EXPECT_TRUE(woken("malloc: size == 33; wake: comm == \"make\""));
  EXPECT_FALSE(woken("comm == \"a;b\""));
  for (const auto& [text, why] : {std::pair{"wke: prio == 1", "did you mean sched:wake"},
                                  {"wake: ", "the text ends"},
                                  {"wake: prio == 1; ", "the text ends"},
                                  {"wake:prio == 1", "a space after"},
                                  {"wake: (prio == 1; size == 2)", "this ( has no )"}})
    EXPECT_NE(error(text).find(why), std::string::npos) << text << "\n" << error(text);
}

TEST_F(Filters, NumbersOfEachKind) {
  for (const char* yes :
       {"size == 32", "size==0x20", "size == 040", "size != 33", "size < 33", "size <= 32", "size > 31", "size >= 32",
        "size & 0x60", "size > -1", "size != -1", "size == 3.2e1", "size < 18446744073709551615", "ptr == 0xA0", "ptr == 0Xa0"})
    EXPECT_TRUE(allocated(yes)) << yes;
  for (const char* no : {"size == 33", "size != 32", "size < 32", "size > 32", "size & 0x1f", "size == -1", "size < 0"})
    EXPECT_FALSE(allocated(no)) << no;
  EXPECT_TRUE(allocated("size == 18446744073709551615", ~u64{0}));
  EXPECT_FALSE(allocated("size == -1", ~u64{0}));
  EXPECT_TRUE(allocated("size & -9223372036854775808", u64{1} << 63));
}

TEST_F(Filters, SmallAndSignedFields) {
  for (const char* yes : {"pid == -7", "pid < 0", "pid >= -7", "pid > -8", "pid & 0x80000000", "prio == 100", "prio < 300",
                          "prio != 356", "prio > -5", "big == -1", "big < 0", "big & 0x8000000000000000",
                          "big > -9223372036854775808", "c == 'q'", "c == 113", "c != '\\n'"})
    EXPECT_TRUE(woken(yes)) << yes;
  for (const char* no : {"pid > 0", "pid == 4294967289", "pid & 0x8000000000000000", "prio == 356", "prio > 300",
                         "prio == -156", "big > 0", "c == 'r'"})
    EXPECT_FALSE(woken(no)) << no;
}

TEST_F(Filters, Texts) {
  for (const char* yes : {"comm == \"make\"", "comm == 'make'", "comm == make", "comm != \"mak\"", "comm ~ \"m*\"",
                          "comm ~ '?ak[a-e]'", "path == \"/etc/\"", "path ~ \"*c/\"", "comm ~ make", "comm ~ m*"})
    EXPECT_TRUE(woken(yes)) << yes;
  for (const char* no : {"comm == \"make \"", "comm == \"\"", "comm ~ \"ake\"", "comm ~ \"M*\"", "path != '/etc/'"})
    EXPECT_FALSE(woken(no)) << no;
}

TEST_F(Filters, FloatsNamesAndTimes) {
  for (const char* yes : {"load == 1.5", "load > 1", "load < 15e-1 || load >= 1.5", "state == busy", "state == \"busy\"",
                          "state != idle", "state == 1", "wait_ns == 5ms", "wait_ns < 5.1ms", "wait_ns == 5000us",
                          "wait_ns >= 0.005s", "ts == 1.5s", "ts == 1500000000", "ts < 1501ms"})
    EXPECT_TRUE(woken(yes)) << yes;
  EXPECT_TRUE(meets("state == busy", wake(2), true));
  EXPECT_FALSE(meets("state != busy", wake(2), true));
  EXPECT_FALSE(meets("state == busy", wake(3), true));
  EXPECT_FALSE(woken("load != 1.5"));
  for (const char* yes : {"r == 0.1", "r <= 0.1", "r >= 0.1", "r < 1e300", "r != 1e300"})
    EXPECT_TRUE(meets(yes, ratio(0.1F), true)) << yes;
  for (const char* no : {"r != 0.1", "r < 0.1", "r > 0.1", "r == 0.10000001", "r == 1e300"})
    EXPECT_FALSE(meets(no, ratio(0.1F), true)) << no;
  EXPECT_FALSE(meets("r == 1e300", ratio(INFINITY), true));
  time = 12'345'678'901'234'567;
  EXPECT_TRUE(woken("ts == 12345678.901234567s"));
  EXPECT_FALSE(woken("ts == 12345678.901234568s"));
}

TEST_F(Filters, NamesThatEveryEventHas) {
  for (const char* yes :
       {"cpu == 3", "CPU == 3", "ring == 3", "source == kernel", "source != \"program\"", "COMM == cc1plus", "task ~ cc1*",
        "tid == 4711", "common_pid == 4711", "event == wake", "event == sched:wake", "event ~ \"sched:*\"", "event ~ w*",
        "system == sched", "common_type == 2", "common_flags == 0", "common_preempt_count < 1"})
    EXPECT_TRUE(woken(yes)) << yes;
  for (const char* yes : {"comm == \"ring's\"", "pid == 711", "source == program", "system != sched", "event == malloc",
                          "cpu == -1", "cpu != 3", "ring == 3"})
    EXPECT_TRUE(allocated(yes)) << yes;
  EXPECT_TRUE(allocated("task == cc1plus", 1, 4711));
  EXPECT_TRUE(allocated("task == '<...>'", 1, 4712));
  // The event's own fields come first, as in the kernel.
  EXPECT_FALSE(woken("comm == cc1plus"));
  EXPECT_FALSE(woken("pid == 4711"));
  ring.buffer = "second";
  EXPECT_TRUE(woken("source == second && source == kernel"));
}

TEST_F(Filters, AComparisonWithAMissingFieldIsFalse) {
  for (const char* no : {"prio == 100", "prio != 100", "prio & 1", "path ~ '*'"}) EXPECT_FALSE(allocated(no)) << no;
  EXPECT_TRUE(allocated("!(prio == 100)"));
  EXPECT_TRUE(allocated("prio == 1 || size == 32"));
  EXPECT_TRUE(allocated("!prio == 1 && size == 32"));
  // An undeclared event.
  EXPECT_FALSE(meets("size == 32 || event ~ '*'", Payload(9, 1), false));
  EXPECT_TRUE(meets("tid == 1", Payload(9, 1), false));
}

TEST_F(Filters, NotBindsTighterThanAndAndAndThanOr) {
  EXPECT_TRUE(allocated("size == 32 || size == 1 && size == 2"));
  EXPECT_FALSE(allocated("(size == 32 || size == 1) && size == 2"));
  EXPECT_TRUE(allocated("size == 2 && size == 1 || size == 32"));
  EXPECT_FALSE(allocated("!size == 32 || size == 1"));
  EXPECT_TRUE(allocated("!size == 1 && size == 32"));
  EXPECT_FALSE(allocated("!(size == 1 || size == 32)"));
  EXPECT_TRUE(allocated("!!size == 32"));
  EXPECT_TRUE(allocated(" \t( ( size==32 )&&!(ptr==1))\n"));
}

TEST_F(Filters, AShortPayloadReadsAsZeros) {
  EXPECT_TRUE(meets("size == 0", Payload(1, 1).put(u32{7}), false));
  EXPECT_TRUE(meets("path == \"\" && load == 0", Payload(2, 1), true));
}

TEST_F(Filters, AnEventAddedLaterIsFiltered) {
  auto filter = must(Filter::compile("size == 7", formats, tasks));
  const Payload payload = Payload(4, 1).put(u32{7});
  TraceRecord record;
  record.payload = payload;
  EXPECT_FALSE(filter.matches(record, ring));
  formats.add(4, "net", "in",
              test::format(4, "in", "\tfield:u32 size;\toffset:8;\tsize:4;\tsigned:0;\n", R"("size=%u", REC->size)"));
  EXPECT_TRUE(filter.matches(record, ring));
}

TEST_F(Filters, MistakesAreMarkedAndNearNamesSuggested) {
  EXPECT_EQ(error("size > 1 && prioo < 3"),
            "filter: no event here has a field \"prioo\"; did you mean prio?\n  size > 1 && prioo < 3\n              ^");
  EXPECT_NE(error("sized == 1").find("did you mean size?"), std::string::npos);
  EXPECT_EQ(error("nothingofthekind == 1").find("did you mean"), std::string::npos);
  const std::pair<const char*, const char*> mistakes[] = {{"", "the text ends"},
                                                          {"size", "expected a comparison"},
                                                          {"size ==", "the text ends"},
                                                          {"size == 1 &&", "the text ends"},
                                                          {"size = 1", "expected a comparison"},
                                                          {"size && ptr", "expected a comparison"},
                                                          {"(size == 1", "this ( has no )"},
                                                          {"size == 1)", "there is no ("},
                                                          {"size == 1 ptr == 2", "expected && or ||"},
                                                          {"size == 1 & 2", "expected && or ||"},
                                                          {"(size == 1 ptr == 2)", "expected ), && or ||"},
                                                          {"comm == \"make", "no end"},
                                                          {"size == ()", "expected a value"},
                                                          {"== 1", "expected a field's name"},
                                                          {"1 == size", "expected a field's name"},
                                                          {"size ~ \"3*\"", "~ is for texts"},
                                                          {"path < \"a\"", "by ==, != and ~ only"},
                                                          {"size == many", "\"many\" is no number of 64 bits"},
                                                          {"size == 08", "no number of 64 bits"},
                                                          {"size == 18446744073709551616", "no number of 64 bits"},
                                                          {"size == -9223372036854775809", "no number of 64 bits"},
                                                          {"size == 1.5", "whole number"},
                                                          {"state == asleep", "nor one of its names: idle, busy"},
                                                          {"state < busy", "by == and != only"},
                                                          {"size == 5ms", "a time is for ts"},
                                                          {"load & 1", "floating"},
                                                          {"list == 1", "array of sched:wake"},
                                                          {"size == 1 || || size == 2", "expected a field's name"},
                                                          {"event < 3", "by ==, != and ~ only"},
                                                          {"cpu ~ 1*", "~ is for texts"}};
  for (const auto& [text, why] : mistakes) EXPECT_NE(error(text).find(why), std::string::npos) << text << "\n" << error(text);
}

TEST_F(Filters, NestingAndLengthAreBounded) {
  const auto nested = [](u32 n) { return std::string(n, '(') + "size == 32" + std::string(n, ')'); };
  EXPECT_TRUE(allocated(nested(Filter::deepest)));
  EXPECT_NE(error(nested(Filter::deepest + 1)).find("nested deeper than 100"), std::string::npos);
  EXPECT_NE(error(std::string(Filter::longest, '(')).find("nested deeper"), std::string::npos);
  EXPECT_NE(error(std::string(Filter::longest + 1, '!')).find("are the most"), std::string::npos);
  EXPECT_TRUE(allocated(std::string(10000, '!') + "size == 32"));
  std::string chain = "size == 1";
  while (chain.size() + 13 < Filter::longest) chain += " || size == 1";
  EXPECT_FALSE(allocated(chain));
  EXPECT_TRUE(allocated(chain, 1));
}

TEST(Glob, HostilePatternsEnd) {
  std::string pattern;
  for (int i = 0; i < 2000; ++i) pattern += "*a";
  EXPECT_FALSE(glob_matches(pattern + "b", std::string(4000, 'a')));
  EXPECT_TRUE(glob_matches("[", "["));
  EXPECT_TRUE(glob_matches("a[b", "a[b"));
  EXPECT_TRUE(glob_matches("\\*", "*"));
  EXPECT_FALSE(glob_matches("\\*", "x"));
  EXPECT_TRUE(glob_matches("[]x]", "]"));
  EXPECT_TRUE(glob_matches("[!a-c]*", "dog"));
}

}  // namespace
}  // namespace ringside::filter_test
