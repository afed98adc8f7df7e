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

INSTANTIATE_TEST_SUITE_P(Machines, ForeignSubBuffersOf, testing::Values(Layout{false, 4}, Layout{true, 4}, Layout{true, 8}),
                         [](const auto& named) {
                           return std::string(named.param.big ? "Big" : "Little") + (named.param.word == 4 ? "32" : "64");
                         });

}  // namespace
}  // namespace ringside::foreign_sub_buffers_test
