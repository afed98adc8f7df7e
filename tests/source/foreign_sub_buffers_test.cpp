// Sub-buffers of kernels of 32 bits and of big-endian machines.
#include "source/foreign_sub_buffers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "consumer/trace.hpp"
#include "export/json.hpp"
#include "export/text.hpp"
#include "foreign_dat.hpp"
#include "source/trace_dat_file.hpp"

namespace ringside::foreign_sub_buffers_test {
namespace {

namespace fs = std::filesystem;
using test::ForeignDat;
using trace_dat::ForeignSubBuffers;

struct Layout {
  bool big;
  u32 word;
};
class ForeignSubBuffersOf : public testing::TestWithParam<Layout> {
 protected:
  std::string dir = fs::temp_directory_path() / ("ringside-foreign-" + std::to_string(getpid()));
  void SetUp() override {
    fs::remove_all(dir);
    fs::create_directories(dir);
    dat.big = GetParam().big;
    dat.word = GetParam().word;
  }
  void TearDown() override { fs::remove_all(dir); }
  result<Trace> open() const {
    std::ofstream(dir + "/x.dat", std::ios::binary) << dat.bytes();
    return open_traces({dir + "/x.dat"});
  }
  // "TIME: LINE", or "TIME: lost N"; then the problems.
  std::vector<std::string> lines() const {
    Trace trace = must(open());
    std::vector<std::string> all;
    TraceRecord record;
    while (trace.timeline.next(record)) {
      fmt::memory_buffer out;
      const EventType* const type = trace.formats.find(record.number());
      if (record.lost != 0)
        fmt::format_to(std::back_inserter(out), "lost {}", record.lost);
      else if (type != nullptr)
        trace.formats.print(*type, record.payload, out);
      else
        fmt::format_to(std::back_inserter(out), "unknown {}", read_common(record.payload).tid);
      all.push_back(fmt::format("{}: {}", record.time, fmt::to_string(out)));
    }
    for (const std::string& problem : trace.timeline.problems()) all.push_back(problem);
    return all;
  }
  ForeignDat dat;
};

TEST_P(ForeignSubBuffersOf, FieldsOfAllKinds) {
  const u32 w = dat.word, at = 16 + w;
  dat.formats = {
      {"app",
       ForeignDat::format(
           "all", 300,
           ForeignDat::field("u8 a", 8, 1) + ForeignDat::field("short b", 10, 2, true) + ForeignDat::field("u32 c", 12, 4) +
               ForeignDat::field("unsigned long d", 16, w) + ForeignDat::field("u64 e", at, 8) +
               ForeignDat::field("u16 f[3]", at + 8, 6) + ForeignDat::field("char g[6]", at + 14, 6) +
               ForeignDat::field("__data_loc char[] h", at + 20, 4) + ForeignDat::field("__data_loc u32[] i", at + 24, 4) +
               ForeignDat::field("__data_loc unsigned long[] j", at + 28, 4),
           "\"a=%u b=%d c=%u d=%lx e=%llu f=%s g=%s h=%s i=%s j=%s\", REC->a, REC->b, REC->c, REC->d, REC->e, "
           "__print_array(REC->f, 3, 2), REC->g, __get_str(h), __print_array(__get_dynamic_array(i), 2, 4), "
           "__print_array(__get_dynamic_array(j), 2, " +
               std::to_string(w) + ")")}};
  const u32 behind = at + 32;
  std::string payload = dat.head(300, 7) + std::string("\x05\0", 2) + dat.number(int16_t{-2}) + dat.number(u32{0x01020304}) +
                        dat.a_long(0x0A0B0C0D) + dat.number(u64{0x1122334455667788}) + dat.number(u16{1}) +
                        dat.number(u16{0x0203}) + dat.number(u16{3}) + std::string("name\0\0", 6);
  payload +=
      dat.number(u32{5} << 16 | behind) + dat.number(u32{8} << 16 | (behind + 8)) + dat.number(2 * w << 16 | (behind + 16));
  payload +=
      std::string("text\0\0\0\0", 8) + dat.number(u32{0x01020304}) + dat.number(u32{5}) + dat.a_long(0x0708) + dat.a_long(9);
  dat.pages = {dat.sub_buffer(1000, dat.event(500, payload) + dat.event(1, dat.head(299, 8)))};
  // Lists as trace-cmd shows them.
  EXPECT_EQ(lines(), (std::vector<std::string>{"1500: a=5 b=-2 c=16909060 d=a0b0c0d e=1234605616436508552 f=1 515 3 "
                                               "g=name h=text i=16909060 5 j=1800 9",
                                               "1501: unknown 8"}));
}

// Arrays of arrays, dimensions that are no numbers, and types whose names do not say their size.
TEST_P(ForeignSubBuffersOf, ElementsOfArrays) {
  const auto field = [](auto... of) { return ForeignDat::field(of...); };
  dat.formats = {
      {"app", ForeignDat::format("all", 300,
                                 field("u8 a[2][3]", 8, 6) + field("u16 b[3][2]", 14, 12) + field("u16 c[2][1][2]", 26, 8) +
                                     field("s8 d[1][4]", 34, 4, true) + field("int e[2*2]", 40, 16, true) +
                                     field("u16 f[COUNT]", 56, 4) + field("u64 g[2][1]", 64, 16) +
                                     field("char h[3][4]", 80, 12) + field("__data_loc pid_t[] i", 92, 4) +
                                     field("__data_loc u32[2][2] j", 96, 4) + field("__data_loc u8[] k", 100, 4),
                                 "\"%u %u %u %d %d %u %llx %s %s %s %s %u\", REC->a[1][2], REC->b[2][1], REC->c[1][0][1], "
                                 "REC->d[0][3], REC->e[3], REC->f[1], REC->g[1][0], REC->h[1], "
                                 "__print_array(__get_dynamic_array(i), 2, 4), __print_array(REC->b[1], 2, 2), "
                                 "__print_array(__get_dynamic_array(k), 2, 4), ((u32 *)__get_dynamic_array(j))[3]")}};
  std::string payload = dat.head(300, 7) + std::string("\1\2\3\4\5\6", 6);
  for (const u16 n : {10, 11, 12, 13, 14, 15, 20, 21, 22, 23}) payload += dat.number(n);
  payload += std::string("\xFF\xFE\xFD\xFC\0\0", 6);
  for (const i32 n : {9, 8, 7, -6}) payload += dat.number(n);
  payload += dat.number(u16{1}) + dat.number(u16{0x0203}) + std::string(4, '\0') + dat.number(u64{1} << 40) +
             dat.number(u64{1} << 33) + std::string("one\0two\0six\0", 12) + dat.number(u32{8} << 16 | 104) +
             dat.number(u32{16} << 16 | 112) + dat.number(u32{8} << 16 | 128);
  for (const u32 n : {7U, 70000U, 1U, 2U, 3U, 4U, 5U, 6U}) payload += dat.number(n);
  dat.pages = {dat.sub_buffer(1000, dat.event(500, payload))};
  EXPECT_EQ(lines(), (std::vector<std::string>{"1500: 6 15 23 -4 -6 515 200000000 two 7 70000 12 13 5 6 4"}));
  Trace trace = must(open());
  TraceRecord record;
  ASSERT_TRUE(trace.timeline.next(record));
  fmt::memory_buffer json;
  JsonLines(trace.formats, trace.tasks).print(record, trace.timeline.name(record.source), json);
  EXPECT_THAT(fmt::to_string(json), testing::HasSubstr(R"("e":[9,8,7,-6],"f":[1,515])"));
  EXPECT_THAT(fmt::to_string(json), testing::HasSubstr(R"("h":["one","two","six"])"));
}

// What a machine has in memory: addresses and hexadecimal bytes in its order, masks as its longs.
TEST_P(ForeignSubBuffersOf, FieldsReadAsMemory) {
  const u32 w = dat.word;
  const auto field = [](auto... of) { return ForeignDat::field(of...); };
  const std::string fields =
      field("__be32 ip", 8, 4) + field("u32 host", 12, 4) + field("u64 n", 16, 8) +
      field("__u8 saddr[sizeof(struct sockaddr_in6)]", 24, 28) + field("__data_loc cpumask_t cpus", 52, 4) +
      field("u8 raw[8]", 56, 8) + field("__be16 port", 64, 2) + field("__le16 le", 66, 2) + field("u8 macs[2][6]", 68, 12) +
      field("u32 code", 80, 4) + field("__data_loc unsigned long[] mask", 84, 4) + field("u16 halves[4]", 88, 8);
  const std::pair<const char*, const char*> all[] = {
      {R"("%pI4 %pI4h", &REC->ip, &REC->host)", "10.1.2.3 192.168.0.1"},
      {R"("%4ph|%s", &REC->ip, __print_hex(&REC->ip, 3))", "0a 01 02 03|0a 01 02"},
      {R"("%pISpc", REC->saddr)", "192.168.1.9:443"},
      {R"("%s|%s", __get_cpumask(cpus), __get_bitmask(mask))", w == 8 ? "0-1,4|00000000,00000021" : "0-1,4|00000021"},
      {R"("%u %u %u", *(u32 *)REC->raw, ((u16 *)REC->raw)[3], *(u16 *)&REC->halves[0])", "5 7 258"},
      {R"("%u %u %u", ntohs(REC->port), be16_to_cpu(REC->port), le16_to_cpu(REC->le))", "443 443 7"},
      {R"("%x", get_unaligned_be32(&REC->ip))", "a010203"},
      {R"("%pM %s", REC->macs[1], __print_hex_str(REC->macs[1], 2))", "07:08:09:0a:0b:0c 0708"},
      {R"("%p4cc", &REC->code)", "NV12 little-endian (0x3231564e)"},
      {R"("%x", ((u32 *)REC->halves)[0])", dat.big ? "1020304" : "3040102"},
  };
  std::string payload = std::string("\x0A\1\2\3", 4) + dat.number(u32{0xC0A80001}) + dat.number(u64{0x0102030405060708}) +
                        dat.number(u16{2}) + std::string("\1\xBB\xC0\xA8\1\x09", 6) + std::string(20, '\0') +
                        dat.number(w << 16 | 96) + dat.number(u32{5}) + dat.number(u16{6}) + dat.number(u16{7}) +
                        std::string("\1\xBB\7\0", 4) + std::string("\1\2\3\4\5\6\7\x08\x09\x0A\x0B\x0C", 12) +
                        dat.number(u32{0x3231564E}) + dat.number(w << 16 | (96 + w)) + dat.number(u16{0x0102}) +
                        dat.number(u16{0x0304}) + dat.number(u16{5}) + dat.number(u16{6}) + dat.a_long(0x13) + dat.a_long(0x21);
  for (const auto& [print, line] : all) {
    dat.formats = {{"app", ForeignDat::format("memory", 300, fields, print)}};
    dat.pages = {dat.sub_buffer(1000, dat.event(500, dat.head(300, 7) + payload))};
    EXPECT_EQ(lines(), (std::vector<std::string>{fmt::format("1500: {}", line)})) << print;
  }
}

// C on a machine of 32 bits has longs, sizes and addresses of 32 bits.
TEST_P(ForeignSubBuffersOf, LongsOfTheMachine) {
  const u32 w = dat.word;
  const bool wide = w == 8;
  const auto field = [](auto... of) { return ForeignDat::field(of...); };
  const std::string fields = field("unsigned long a", 8, w) + field("long b", 8 + w, w, true) + field("u32 c", 8 + 2 * w, 4);
  const struct {
    const char *print, *on_64, *on_32;
  } all[] = {
      {R"("%lx %ld %lu %zx", REC->b, REC->b, REC->b, (size_t)REC->b)",
       "fffffffffffffff5 -11 18446744073709551605 fffffffffffffff5", "fffffff5 -11 4294967285 fffffff5"},
      {R"("%llx %llx %llx", (u64)~0UL, (u64)(size_t)-1, (u64)(uintptr_t)-1)",
       "ffffffffffffffff ffffffffffffffff ffffffffffffffff", "ffffffff ffffffff ffffffff"},
      {R"("%llx %llx", (u64)(1UL << 31 << 1), (u64)(REC->a << 1))", "100000000 100000002", "0 2"},
      {R"("%d %d %d", (int)sizeof(void *), (int)sizeof(size_t), (int)sizeof(long))", "8 8 8", "4 4 4"},
      {R"("%lx %lx", (unsigned long)(REC->c + 4294967295ULL), REC->c)", "100000004 5", "4 5"},
      {R"("%p %px", (void *)REC->a, (void *)REC->b)", "0x80000001 0xfffffffffffffff5", "0x80000001 0xfffffff5"},
      {R"("%pe", (void *)REC->b)", "-EAGAIN", "-EAGAIN"},
      {R"("%s", __print_flags(REC->b, "|", { 1, "a" }))", "a|0xfffffffffffffff4", "a|0xfffffff4"},
      {R"("%s", __print_symbolic(REC->b, { -11, "again" }))", "again", "again"},
  };
  for (const auto& [print, on_64, on_32] : all) {
    dat.formats = {{"app", ForeignDat::format("longs", 300, fields, print)}};
    const std::string payload =
        dat.head(300, 7) + dat.a_long(0x80000001) + dat.a_long(static_cast<u64>(-11)) + dat.number(u32{5});
    dat.pages = {dat.sub_buffer(1000, dat.event(500, payload))};
    EXPECT_EQ(lines(), (std::vector<std::string>{fmt::format("1500: {}", wide ? on_64 : on_32)})) << print;
  }
}

// Names with \r\n at the ends of lines, as a file that a Windows machine touched has them.
TEST_P(ForeignSubBuffersOf, MessagesAndNames) {
  const u32 w = dat.word;
  dat.ftrace = {{"ftrace", ForeignDat::format("bprint", 6,
                                              ForeignDat::field("unsigned long ip", 8, w) +
                                                  ForeignDat::field("const char * fmt", 8 + w, w) +
                                                  ForeignDat::field("u32 buf[]", 8 + 2 * w, 0),
                                              "\"%ps: %s\", (void *)REC->ip, REC->fmt")}};
  dat.printk = "0xc2000000 : \"%pe [%9ps]\"\r\n";
  dat.kallsyms = "c1000010 T work\r\nc1000020 T end\r\n";
  dat.cmdlines = "7 prog\r\n";
  dat.pages = {dat.sub_buffer(1000, dat.event(500, dat.head(6, 7) + dat.a_long(0xC1000010) + dat.a_long(0xC2000000) +
                                                       dat.a_long(static_cast<u64>(-22)) + dat.a_long(0xC1000010)))};
  EXPECT_EQ(lines(), (std::vector<std::string>{"1500: work: -EINVAL [     work]"}));
  const std::vector<RingName> threads = must(open_trace_dat(dir + "/x.dat")).threads;
  ASSERT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads[0].task, "prog");
}

TEST_P(ForeignSubBuffersOf, TimesPaddingAndLosses) {
  dat.formats = {{"app", ForeignDat::format("one", 300, ForeignDat::field("u32 n", 8, 4), "\"n=%u\", REC->n")}};
  const auto one = [&](u32 n, u32 delta, bool with_array = false) {
    return dat.event(delta, dat.head(300, 1) + dat.number(n), with_array);
  };
  const std::string extend = dat.event_word(30, 5) + dat.number(u32{3}),
                    stamp = dat.event_word(31, 9) + dat.number(u32{1} << 10),
                    discarded = dat.event_word(29, 7) + dat.number(u32{12}) + std::string(8, 'x'),
                    rest = dat.event_word(29, 0) + std::string(20, 'y');
  dat.pages = {dat.sub_buffer(1000, one(1, 10) + extend + one(2, 1) + discarded + one(3, 2, true)),
               dat.sub_buffer(u64{1} << 36, one(4, 0) + stamp + one(5, 4) + rest, 17)};
  const u64 third = 1000 + 10 + 5 + (u64{3} << 27) + 1 + 7 + 2, last = (u64{1} << 37) + 9 + 4;
  EXPECT_EQ(lines(), (std::vector<std::string>{"1010: n=1", std::to_string(third - 9) + ": n=2",
                                               std::to_string(third) + ": n=3", std::to_string(u64{1} << 36) + ": lost 17",
                                               std::to_string(u64{1} << 36) + ": n=4", std::to_string(last) + ": n=5"}));
}

// ftrace's own events: addresses up to the end of the event, more than their format says.
TEST_P(ForeignSubBuffersOf, StacksOfTheKernel) {
  const u32 w = dat.word, at = w == 8 ? 16 : 12;
  dat.ftrace = {{"ftrace", ForeignDat::format("kernel_stack", 4,
                                              ForeignDat::field("int size", 8, 4, true) +
                                                  ForeignDat::field("unsigned long caller[8]", at, 8 * w),
                                              "\"%ps\", (void *)REC->caller[0]")}};
  std::string payload = dat.head(4, 7) + dat.number(i32{10});
  payload.resize(at);
  for (u64 i = 1; i <= 10; ++i) payload += dat.a_long(0x81000000 + i);
  dat.pages = {dat.sub_buffer(1000, dat.event(0, payload))};
  Trace trace = must(open());
  TextLines text(trace.formats, trace.tasks);
  TraceRecord record;
  ASSERT_TRUE(trace.timeline.next(record));
  fmt::memory_buffer out;
  text.print(record, trace.timeline.name(record.source), out);
  const std::string line = fmt::to_string(out);
  for (u64 i = 1; i <= 10; ++i) EXPECT_THAT(line, testing::HasSubstr(fmt::format(" => {:#x}\n", 0x81000000 + i)));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 11) << line;
}

TEST_P(ForeignSubBuffersOf, FalseSizesEndTheRingWithASentence) {
  dat.formats = {{"app", ForeignDat::format("one", 300, ForeignDat::field("u32 n", 8, 4), "\"n=%u\", REC->n")}};
  const std::string good = dat.event(1, dat.head(300, 1) + dat.number(u32{1}));
  for (const std::string& bad : {dat.event_word(28, 1) + "abcd", dat.event_word(0, 1) + dat.number(u32{2}) + "abcd",
                                 dat.event_word(0, 1) + dat.number(~u32{3}) + "abcd",
                                 dat.event_word(29, 1) + dat.number(u32{0}), dat.event_word(30, 1)}) {
    dat.pages = {dat.sub_buffer(1000, good + bad)};
    const auto all = lines();
    ASSERT_EQ(all.size(), 2u) << testing::PrintToString(all);
    EXPECT_EQ(all[0], "1001: n=1");
    EXPECT_THAT(all[1], testing::HasSubstr("cpu 0"));
  }
  dat.pages = {dat.sub_buffer(1000, std::string(4096 - 8 - dat.word, '\0'))};
  dat.pages[0].replace(8, dat.word, dat.a_long(5000));
  EXPECT_THAT(lines().at(0), testing::HasSubstr("claims 5000 bytes of data"));
}

// Of any bytes, and of formats that lie: nothing is written behind what size_of() says.
TEST_P(ForeignSubBuffersOf, AnyBytesStayInBounds) {
  std::minstd_rand random(7);
  std::vector<EventInfo> events;
  for (u16 id = 0; id < 256; ++id) {
    EventInfo e;
    e.id = id;
    e.system = id % 4 == 0 ? "ftrace" : "x";
    e.name = id % 8 == 0 ? "kernel_stack" : "e";
    for (int i = 0; i < 6; ++i)
      e.format += ForeignDat::field(i % 2 == 0 ? "__data_loc u64[] a" : "u32 b[4]", static_cast<u32>(random() % 300),
                                    static_cast<u32>(random() % 80));
    events.push_back(e);
  }
  const ForeignSubBuffers pages({Architecture::unknown, dat.big, dat.word}, 8 + dat.word, events);
  for (int round = 0; round < 2000; ++round) {
    const u32 size = 64 + static_cast<u32>(random() % 4033);
    const std::unique_ptr<u8[]> page(new u8[size]);
    for (u32 i = 0; i < size; ++i) page[i] = static_cast<u8>(random() % 5 == 0 ? random() : 0x10 >> random() % 9);
    const std::string commit = dat.a_long(random() % size | (random() % 2 != 0 ? u64{3} << 30 : 0));
    std::memcpy(page.get() + 8, commit.data(), commit.size());
    const u32 most = ForeignSubBuffers::size_of(size);
    std::vector<u8> out(most + 64, 0);
    std::fill(out.begin() + most, out.end(), u8{0xAB});
    pages.convert({page.get(), size}, out.data());
    EXPECT_TRUE(std::all_of(out.begin() + most, out.end(), [](u8 byte) { return byte == 0xAB; }));
    abi::SubBufferHeader header{};
    std::memcpy(&header, out.data(), sizeof header);
    EXPECT_LE(abi::commit_size(header.commit) + abi::header_size, most);
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, ForeignSubBuffersOf,
                         testing::Values(Layout{false, 4}, Layout{true, 4}, Layout{true, 8}, Layout{false, 8}),
                         [](const auto& named) {
                           return std::string(named.param.big ? "Big" : "Little") + (named.param.word == 4 ? "32" : "64");
                         });

}  // namespace
}  // namespace ringside::foreign_sub_buffers_test
