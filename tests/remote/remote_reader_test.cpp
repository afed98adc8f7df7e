// The installed reader's side of an external writer: memory, callbacks and errors of the caller's own, in both layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ringside/remote.h>
#include <ringside/remote_reader.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <ringside/consumer.hpp>
#include <ringside/remote/descriptor.hpp>

#include "source/recording.hpp"

namespace ringside::test::remote_reader_test {
namespace {

using testing::HasSubstr;

constexpr char format[] =
    "name: tick\nID: 1\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:unsigned long long number;\toffset:8;\tsize:8;\tsigned:0;\n\n"
    "print fmt: \"number=%llu\", REC->number\n";
const ringside_remote_event event{1, "hv", "tick", format};

struct Tick {
  u16 type = 1;
  u8 flags = 0, preempt = 0;
  i32 pid = 1;  // of the guest: `init` here
  u64 number = 0;
};

// A writer in this process, in memory at scattered offsets of one region.
struct Writer {
  static constexpr u32 rings = 2, pages = 7, size = 4096, most = rings * (pages + 1);
  explicit Writer(u32 layout_, u32 seed = 1) : layout(layout_), region(most * size / 8) {
    std::vector<u64> places(most);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), std::mt19937(seed));
    for (u32 n = 0, at = 0; n < rings; ++n) {
      described[n] = {n, pages, places[at++] * size, offsets[n]};
      for (u64& offset : offsets[n]) offset = places[at++] * size;
    }
    blob.resize(ringside_descriptor_bytes(described, rings) / 8);
    EXPECT_STREQ(ringside_descriptor_pack(blob.data(), layout, 1, size, most * size, described, rings), nullptr);
    for (u32 n = 0; n < rings; ++n)
      ringside_ring_init(
          &ring[n], blob.data(), n, region.data(), words[n], [](void* of) { return *static_cast<u64*>(of) += 5; }, &time);
  }
  void write(u32 n, u64 count) {
    for (u64 k = 0; k < count; ++k) {
      Tick tick;
      tick.number = next[n];
      if (ringside_ring_write(&ring[n], &tick, sizeof tick)) ++next[n];
    }
  }
  ringside_remote_callbacks callbacks() {
    return {[](void* p, u32 n, u32 read, ringside_remote_answer* a) {
              auto& w = *static_cast<Writer*>(p);
              ++w.swaps;
              if (w.error != 0) return w.error;
              a->what = w.lies ? 2 : ringside_ring_swap(&w.ring[n], read, &a->id);
              if (w.lies) std::memset(reinterpret_cast<u8*>(w.region.data()) + w.described[n].meta, 0xFF, size);
              a->refused = ringside_ring_refused(&w.ring[n]);
              a->counts_refused = true;
              return 0;
            },
            [](void* p, u32 n) {
              ringside_ring_update(&static_cast<Writer*>(p)->ring[n]);
              return 0;
            },
            [](void* p, u32 n) {
              ringside_ring_reset(&static_cast<Writer*>(p)->ring[n]);
              return 0;
            },
            [](void* p, bool on) {
              for (ringside_ring& one : static_cast<Writer*>(p)->ring)
                on ? ringside_ring_enable(&one) : ringside_ring_disable(&one);
              return 0;
            },
            this};
  }
  ringside_remote_options by_descriptor() {
    ringside_remote_options o{};
    o.name = "hv";
    o.descriptor = blob.data();
    o.descriptor_bytes = blob.size() * 8;
    o.region = region.data();
    o.region_bytes = most * size;
    o.events = &event;
    o.nr_events = 1;
    o.callbacks = callbacks();
    return o;
  }
  u8* at(u64 offset) { return reinterpret_cast<u8*>(region.data()) + offset; }

  u32 layout;
  std::vector<u64> region, blob;
  u64 offsets[rings][pages], time = 0, next[rings] = {};
  ringside_ring_place described[rings];
  ringside_page words[rings][pages] = {};
  ringside_ring ring[rings];
  int error = 0;
  u32 swaps = 0;
  bool lies = false;
};

struct Read {
  std::vector<u64> numbers[Writer::rings];
  u64 lost = 0;
  std::vector<std::string> lines, problems;
};
Read read_all(ringside_remote_reader* reader, const ringside_consumer_options* options = nullptr) {
  Read all;
  char error[512] = "";
  ringside_consumer* const c = ringside_remote_reader_consume(reader, options, error, sizeof error);
  EXPECT_NE(c, nullptr) << error;
  if (c == nullptr) return all;
  const int number = ringside_consumer_column(c, "hv:tick/number", error, sizeof error);
  EXPECT_GE(number, 0) << error;
  ringside_consumer_stop(c);
  ringside_consumer_event e;
  do {
    while (ringside_consumer_next(c, &e)) {
      all.lost += e.lost;
      if (i64 value; ringside_consumer_number(c, number, &value)) all.numbers[0].push_back(static_cast<u64>(value));
      all.lines.emplace_back(ringside_consumer_line(c));
    }
  } while (ringside_consumer_wait(c));
  for (size_t n = 0; const char* problem = ringside_consumer_problem(c, n); ++n) all.problems.emplace_back(problem);
  ringside_consumer_close(c);
  return all;
}

struct Reader {
  explicit Reader(const ringside_remote_options& o) : at(ringside_remote_reader_open(&o, error, sizeof error)) {}
  ~Reader() { ringside_remote_reader_close(at); }
  char error[512] = "";
  ringside_remote_reader* at;
};

struct RemoteReader : testing::TestWithParam<u32> {};
INSTANTIATE_TEST_SUITE_P(Layouts, RemoteReader, testing::Values(RINGSIDE_PAGE_FOOTERS, RINGSIDE_META_PAGE));

TEST_P(RemoteReader, PagesInAnyOrderByTheirOffsets) {
  for (u32 seed = 1; seed < 6; ++seed) {
    Writer w(GetParam(), seed);
    const Reader r(w.by_descriptor());
    ASSERT_NE(r.at, nullptr) << r.error;
    ASSERT_EQ(ringside_remote_reader_enable(r.at, true), 0);
    w.write(0, 300);
    w.write(1, 5000);
    EXPECT_EQ(ringside_remote_reader_poke(r.at, 0), 1);
    const Read all = read_all(r.at);
    EXPECT_EQ(all.numbers[0].size() + all.lost, 5300u);
    EXPECT_GT(all.lost, 3000u);
    EXPECT_THAT(all.problems, testing::IsEmpty());
    EXPECT_EQ(ringside_remote_reader_poke(r.at, 2), -EINVAL);
  }
}

// Pages from an allocator: each for itself, in no region.
TEST_P(RemoteReader, PagesByTheirAddresses) {
  Writer w(GetParam());
  std::vector<std::vector<void*>> pages(Writer::rings);
  std::vector<ringside_remote_ring> rings;
  for (u32 n = 0; n < Writer::rings; ++n) {
    for (const u64 offset : w.offsets[n]) pages[n].push_back(w.at(offset));
    rings.push_back({Writer::pages, w.at(w.described[n].meta), pages[n].data()});
  }
  ringside_remote_options o = w.by_descriptor();
  o.descriptor = nullptr;
  o.layout = GetParam();
  o.clock = 1;
  o.rings = rings.data();
  o.nr_rings = Writer::rings;
  const Reader r(o);
  ASSERT_NE(r.at, nullptr) << r.error;
  EXPECT_EQ(ringside_remote_reader_fd(r.at), -1);
  EXPECT_EQ(ringside_remote_reader_descriptor(r.at, nullptr), nullptr);
  ringside_remote_reader_enable(r.at, true);
  w.write(0, 1000);
  w.write(1, 10);
  EXPECT_EQ(read_all(r.at).numbers[0].size(), 1010u);
  pages[1][3] = pages[0][0];
  EXPECT_EQ(Reader(o).at, nullptr);
  EXPECT_THAT(Reader(o).error, HasSubstr("two of its pages overlap"));
  pages[1][3] = static_cast<u8*>(pages[1][2]) + 4;
  EXPECT_THAT(Reader(o).error, HasSubstr("its address is no multiple of 8"));
  rings[1].nr_pages = 2;
  EXPECT_THAT(Reader(o).error, HasSubstr("hv, ring 1: 2 sub-buffers"));
}

TEST_P(RemoteReader, MemoryBySize) {
  ringside_remote_options o{};
  o.layout = GetParam();
  o.clock = 1;
  o.size = 1 << 16;
  Writer own(GetParam());
  o.events = &event;
  o.nr_events = 1;
  o.callbacks = own.callbacks();
  const Reader r(o);
  ASSERT_NE(r.at, nullptr) << r.error;
  size_t bytes = 0;
  const void* const blob = ringside_remote_reader_descriptor(r.at, &bytes);
  const u64 region_bytes = ringside_get64(blob, 32);
  ASSERT_STREQ(ringside_descriptor_check(blob, bytes, region_bytes), nullptr);
  void* const region = mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ringside_remote_reader_fd(r.at), 0);
  ASSERT_NE(region, MAP_FAILED);
  std::vector<ringside_page> words(ringside_ring_pages(blob, 0));
  ringside_ring_init(
      &own.ring[0], blob, 0, region, words.data(), [](void* of) { return *static_cast<u64*>(of) += 5; }, &own.time);
  ringside_remote_reader_enable(r.at, true);
  own.write(0, 500);
  EXPECT_EQ(read_all(r.at).numbers[0].size(), 500u);
  munmap(region, region_bytes);
}

TEST_P(RemoteReader, ARecordingCountsEachEvent) {
  const std::string dir = std::filesystem::temp_directory_path() / ("ringside-reader-" + std::to_string(getpid()));
  Writer w(GetParam());
  const Reader r(w.by_descriptor());
  ringside_remote_reader_enable(r.at, true);
  w.write(0, 3000);
  w.write(1, 20);
  ringside_remote_reader_stop(r.at);
  char error[512] = "";
  ASSERT_TRUE(ringside_remote_reader_record(r.at, dir.c_str(), 0, error, sizeof error)) << error;
  const RecordingMeta meta = must(RecordingMeta::read(dir));
  EXPECT_TRUE(meta.complete);
  EXPECT_EQ(meta.account.read + meta.account.overrun, 3020u);
  EXPECT_TRUE(meta.account.proved()) << meta.text(1);
  ASSERT_EQ(meta.rings.size(), 2u);
  EXPECT_TRUE(meta.rings[0].name.apart);
  // The writer is gone in the middle: the rest is read from its sub-buffers.
  Writer other(GetParam());
  const Reader dead(other.by_descriptor());
  ringside_remote_reader_enable(dead.at, true);
  other.write(0, 700);
  ringside_remote_reader_gone(dead.at, "killed");
  ASSERT_TRUE(ringside_remote_reader_record(dead.at, dir.c_str(), 0, error, sizeof error)) << error;
  EXPECT_EQ(must(RecordingMeta::read(dir)).account.read, 700u);
  std::filesystem::remove_all(dir);
  std::filesystem::remove_all(dir + ".old");
}

// The guest's PID 1 is no thread of this machine.
TEST_P(RemoteReader, AGuestsThreadsHaveNoNamesOfThisMachine) {
  Writer w(GetParam());
  const Reader r(w.by_descriptor());
  ringside_remote_reader_enable(r.at, true);
  w.write(0, 1);
  const Read all = read_all(r.at);
  ASSERT_EQ(all.lines.size(), 1u);
  EXPECT_THAT(all.lines[0], HasSubstr("<...>-1 "));
}

TEST_P(RemoteReader, AWriterThatFailsOrLies) {
  Writer w(GetParam());
  const Reader r(w.by_descriptor());
  ringside_remote_reader_enable(r.at, true);
  w.write(0, 2000);
  w.error = EIO;
  const Read all = read_all(r.at);
  EXPECT_THAT(all.numbers[0], testing::IsEmpty());
  EXPECT_THAT(all.problems, testing::Contains(HasSubstr("hv, ring 0 does not answer a swap")));
  if (GetParam() != RINGSIDE_META_PAGE) return;
  Writer liar(GetParam());
  const Reader of_liar(liar.by_descriptor());
  ringside_remote_reader_enable(of_liar.at, true);
  liar.write(0, 2000);
  liar.lies = true;
  const Read lies = read_all(of_liar.at);
  EXPECT_THAT(lies.numbers[0], testing::IsEmpty());
  EXPECT_THAT(lies.problems, testing::Contains(HasSubstr("it names sub-buffer 4294967295 of 7 as the reader's")));
}

TEST(RemoteReader, EachFaultHasItsSentence) {
  Writer w(RINGSIDE_META_PAGE);
  const auto why = [](const ringside_remote_options& o) { return std::string(Reader(o).error); };
  ringside_remote_options o = w.by_descriptor();
  EXPECT_EQ(why(o), "");
  o.region_bytes -= 4096;
  EXPECT_THAT(why(o), HasSubstr("the descriptor is no good: it describes more memory than there is"));
  o = w.by_descriptor();
  o.region = nullptr;
  EXPECT_THAT(why(o), HasSubstr("a descriptor needs its region"));
  o = w.by_descriptor();
  o.callbacks.swap_reader = nullptr;
  EXPECT_THAT(why(o), HasSubstr("the callbacks swap_reader and reset must be there"));
  o = w.by_descriptor();
  o.descriptor = nullptr;
  EXPECT_THAT(why(o), HasSubstr("the layout is neither RINGSIDE_PAGE_FOOTERS nor RINGSIDE_META_PAGE"));
  o = w.by_descriptor();
  const ringside_remote_event nameless{1, nullptr, "tick", format};
  o.events = &nameless;
  EXPECT_THAT(why(o), HasSubstr("an event needs a number"));
  EXPECT_EQ(ringside_remote_reader_open(nullptr, nullptr, 0), nullptr);
  ringside_remote_reader_close(nullptr);
}

// Both sides judge a descriptor alike, in C and in C++.
TEST(RemoteReader, DescriptorsInAnyOrder) {
  const auto judge = [](const std::vector<u64>& blob, u64 region) {
    remote::Descriptor d;
    const remote::Verdict v = remote::WildDescriptor(blob.data(), blob.size() * 8).check(region, d);
    const char* const in_c = ringside_descriptor_check(blob.data(), blob.size() * 8, region);
    EXPECT_STREQ(in_c, v.good() ? nullptr : to_string(v.wrong));
    return v.wrong;
  };
  const auto pack = [](std::vector<u64> offsets, u64 region) {
    const ringside_ring_place one{7, static_cast<u32>(offsets.size()) - 1, offsets[0], offsets.data() + 1};
    std::vector<u64> blob(ringside_descriptor_bytes(&one, 1) / 8);
    (void)ringside_descriptor_pack(blob.data(), 2, 1, 4096, region, &one, 1);
    return blob;
  };
  const u64 region = 100 * 4096;
  EXPECT_EQ(judge(pack({0, 8192, 4096, 12288}, region), region), remote::Wrong::no);
  EXPECT_EQ(judge(pack({12288, 8192, 4096, 0}, region), region), remote::Wrong::no);
  EXPECT_EQ(judge(pack({12288, 8192, 4096, 8192}, region), region), remote::Wrong::overlap);
  EXPECT_EQ(judge(pack({0, 4096, 8192, 0}, region), region), remote::Wrong::overlap);
  EXPECT_EQ(judge(pack({0, 4096, 8192, 100 * 4096}, region), region), remote::Wrong::beyond);
  EXPECT_EQ(judge(pack({0, 4096, 8192, 100}, region), region), remote::Wrong::unaligned);
  std::vector<u64> many(4095);
  for (u64 n = 0; n < many.size(); ++n) many[n] = n * 4096;
  EXPECT_EQ(judge(pack(many, 4095 * 4096), 4095 * 4096), remote::Wrong::no);
  std::swap(many[4093], many[4094]);
  EXPECT_EQ(judge(pack(many, 4095 * 4096), 4095 * 4096), remote::Wrong::no);
  const std::vector<u64> blob = pack({12288, 8192, 4096, 0}, region);
  const ringside_ring_place back = ringside_descriptor_unpack(blob.data(), 0);
  EXPECT_EQ(back.id, 7u);
  EXPECT_EQ(back.nr_pages, 3u);
  EXPECT_EQ(back.meta, 12288u);
  EXPECT_EQ(back.pages[2], 0u);
}

}  // namespace
}  // namespace ringside::test::remote_reader_test
