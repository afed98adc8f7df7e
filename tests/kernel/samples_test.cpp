// The kernel's ring of samples made by hand, and events packed into sub-buffers.
#include <elf.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <sstream>

#include "kernel/perf_ring.hpp"
#include "record/sample_feed.hpp"
#include "source/packer.hpp"
#include "stacks/sample_walk.hpp"

namespace ringside::samples_test {
namespace {

struct RingBytes {
  std::vector<u8> bytes = std::vector<u8>(256);
  u64 head = 0;

  void put(const void* from, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes[(head + i) % bytes.size()] = static_cast<const u8*>(from)[i];
    head += size;
  }
  template <class... Values>
  void record(u32 type, u16 misc, Values... values) {
    const perf_event_header header{type, misc, static_cast<u16>(sizeof(perf_event_header) + (sizeof values + ... + 0))};
    put(&header, sizeof header);
    (put(&values, sizeof values), ...);
  }
  PerfRecords from(u64 tail) const { return {bytes.data(), bytes.size(), tail, head}; }
};

struct Text8 {
  char text[8];
};
constexpr i32 pid = (1 << 22) + 70, tid = pid + 1;  // beyond all that the kernel gives

TEST(PerfRing, RecordsAreReadAlsoAcrossItsEnd) {
  RingBytes ring;
  for (u64 start = 0; start < 256; start += 8) {
    ring.head = start;
    ring.record(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, pid, tid, Text8{"server"}, pid, tid, u64{1000});
    ring.record(PERF_RECORD_SAMPLE, 0, pid, tid, u64{2000}, u64{2}, u64{0x10}, u64{0x20});
    ring.record(PERF_RECORD_FORK, 0, i32{80}, pid, i32{81}, tid, u64{3000}, i32{80}, i32{81}, u64{3000});
    ring.record(PERF_RECORD_LOST, 0, u64{1}, u64{17}, pid, tid, u64{4000});
    PerfRecords records = ring.from(start);
    auto r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->kind, PerfRecord::Kind::name);
    EXPECT_TRUE(r->exec);
    EXPECT_EQ(r->text, "server");
    EXPECT_EQ(r->tid, tid);
    EXPECT_EQ(r->time, 1000u);
    r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->kind, PerfRecord::Kind::sample);
    EXPECT_EQ(r->time, 2000u);
    ASSERT_EQ(r->chain.size, 16u);
    u64 second = 0;
    std::memcpy(&second, r->chain.data + 8, 8);
    EXPECT_EQ(second, 0x20u);
    r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->kind, PerfRecord::Kind::fork);
    EXPECT_EQ(r->pid, 80);
    EXPECT_EQ(r->maker, pid);
    r = records.next();
    ASSERT_TRUE(r);
    EXPECT_EQ(r->lost, 17u);
    EXPECT_FALSE(records.next());
    EXPECT_FALSE(records.malformed());
    EXPECT_EQ(records.tail(), ring.head);
  }
}

TEST(PerfRing, MapsHaveTheirBuildIds) {
  RingBytes ring;
  struct BuildId {
    u8 size = 20, reserved[3] = {}, id[20] = {0xAB, 1};
  };
  ring.record(PERF_RECORD_MMAP2, PERF_RECORD_MISC_MMAP_BUILD_ID, pid, tid, u64{0x1000}, u64{0x2000}, u64{0x3000}, BuildId{},
              u32{5}, u32{2}, Text8{"/bin/x"}, pid, tid, u64{9});
  const auto r = ring.from(0).next();
  ASSERT_TRUE(r);
  EXPECT_EQ(r->kind, PerfRecord::Kind::map);
  EXPECT_EQ(r->start, 0x1000u);
  EXPECT_EQ(r->size, 0x2000u);
  EXPECT_EQ(r->offset, 0x3000u);
  EXPECT_EQ(r->text, "/bin/x");
  ASSERT_EQ(r->build_id.size, 20u);
  EXPECT_EQ(r->build_id.data[0], 0xAB);
}

TEST(PerfRing, SamplesHaveRegistersAndTheCopyOfTheStack) {
  if (perf_registers == 0) GTEST_SKIP() << "the registers of this processor are not known";
  RingBytes ring;
  ring.record(PERF_RECORD_SAMPLE, 0, pid, tid, u64{2000}, u64{1}, ~u64{0} - 127, u64{PERF_SAMPLE_REGS_ABI_64}, u64{11}, u64{12},
              u64{13}, u64{16}, u64{5}, u64{6}, u64{8});
  ring.record(PERF_RECORD_SAMPLE, 0, pid, tid, u64{3000}, u64{0}, u64{PERF_SAMPLE_REGS_ABI_NONE},
              u64{0});  // a thread of the kernel
  PerfRecords records(ring.bytes.data(), ring.bytes.size(), 0, ring.head, true);
#if defined(__x86_64__)
  auto r = records.next();
  ASSERT_TRUE(r);
  EXPECT_EQ(r->chain.size, 8u);
  EXPECT_EQ(r->registers.fp, 11u);
  EXPECT_EQ(r->registers.sp, 12u);
  EXPECT_EQ(r->registers.pc, 13u);
  ASSERT_EQ(r->stack.size, 8u) << "16 were to be copied, 8 were there";
  EXPECT_EQ(r->stack.data[0], 5u);
  r = records.next();
  ASSERT_TRUE(r);
  EXPECT_EQ(r->registers.pc, 0u);
  EXPECT_EQ(r->stack.size, 0u);
  EXPECT_FALSE(records.malformed());
#endif
  // A record that ends before what it says.
  for (const u64 size : {u64{24}, u64{7}, ~u64{0}, ~u64{7}}) {
    RingBytes cut;
    cut.record(PERF_RECORD_SAMPLE, 0, pid, tid, u64{2000}, u64{0}, u64{PERF_SAMPLE_REGS_ABI_NONE}, size, u64{5}, u64{8});
    PerfRecords broken(cut.bytes.data(), cut.bytes.size(), 0, cut.head, true);
    const auto sample = broken.next();
    ASSERT_TRUE(sample);
    EXPECT_EQ(sample->stack.size, 0u) << size;
    EXPECT_TRUE(broken.malformed()) << size;
  }
}

// ---- The walk over a copy of a stack, here of this thread's own.

struct Copy {
  PerfRecord sample;
  std::vector<u8> stack;
  std::vector<u64> truth;  // by the C library; the first ones are inside of the function that makes the copy
};

// Other functions' frames: what lies between their variables is no mistake of this one.
__attribute__((noinline, no_sanitize("address", "thread", "undefined"))) Copy copy_of_this_stack(size_t bytes) {
  Copy copy;
  RS_HERE(copy.sample.registers);
  void* frames[100];
  const int n = backtrace(frames, 100);
  for (int i = 0; i < n; ++i) copy.truth.push_back(reinterpret_cast<u64>(frames[i]));
  const auto* const from = reinterpret_cast<const volatile u8*>(copy.sample.registers.sp);
  if (const u64 above = getauxval(AT_EXECFN) - copy.sample.registers.sp; above < bytes)
    bytes = above & ~u64{7};  // there the main thread's stack ends
  copy.stack.resize(bytes);
  u8* const to = copy.stack.data();
  for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
  copy.sample.pid = pid;
  copy.sample.stack = {copy.stack.data(), copy.stack.size()};
  return copy;
}
template <int depth>
[[gnu::noinline]] Copy deeper(size_t bytes) {
  if constexpr (depth == 0) {
    return copy_of_this_stack(bytes);
  } else {
    volatile char room[depth * 40];
    room[0] = 1;
    Copy copy = deeper<depth - 1>(bytes);
    room[1] = 2;
    return copy;
  }
}

void map_this_process(SampleWalk& walk, const std::string& build_id = "", u64 add_to_inode = 0) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    SampleWalk::Place place;
    char rights[5] = "", path[4096] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %lu %4095s", &place.start, &place.end, rights, &place.offset,
                    &place.inode, path) >= 4 &&
        rights[2] == 'x') {
      place.inode += add_to_inode;
      walk.map(pid, place, path, build_id);
    }
  }
}

TEST(SampleWalk, TheSameAsTheCLibrarys) {
  if (perf_registers == 0) GTEST_SKIP() << "no walks for this processor";
  SampleWalk walk;
  map_this_process(walk);
  walk.fork(pid, pid + 1);  // a child has its parent's maps
  walk.exec(pid);
  for (const Copy& copy : {deeper<0>(20000), deeper<5>(20000), deeper<12>(20000)}) {
    PerfRecord sample = copy.sample;
    sample.pid = pid + 1;
    std::vector<u64> frames;
    EXPECT_EQ(walk.frames(sample, 100, frames), StackEnd::complete);
    ASSERT_GT(frames.size(), 2u);
    const auto caller =
        std::find(copy.truth.begin(), copy.truth.end(), frames[1]);  // a sanitizer has a frame of its own inside
    EXPECT_EQ(std::vector<u64>(frames.begin() + 1, frames.end()), std::vector<u64>(caller, copy.truth.end()));
    frames.clear();
    EXPECT_EQ(walk.frames(sample, 4, frames), StackEnd::depth);
    EXPECT_EQ(frames.size(), 4u);
  }
}

// Each second has a budget: what does not fit is skipped, counted, and followed in the next.
TEST(SampleWalk, AProcessOfManyFilesTakesItsShareOfASecond) {
  if (perf_registers == 0) GTEST_SKIP() << "no walks for this processor";
  const Copy copy = deeper<5>(20000);
  u64 now = 5'000'000'000;
  SampleWalk walk([&now] { return now; });
  map_this_process(walk);
  // Other processes map files that are ELF files by their first bytes, and run in each of them.
  const std::string folder = std::filesystem::temp_directory_path() / ("ringside-many-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const u64 files = 3000;
  for (u64 i = 0; i < files; ++i) {
    const std::string path = folder + "/" + std::to_string(i);
    std::ofstream(path) << "\x7f"
                           "ELF";
    walk.map(pid + 7, {0x10000 * (i + 1), 0x10000 * (i + 1) + 0x1000, 0}, path, "");
  }
  std::vector<u64> frames;
  u64 followed = 0;
  for (u64 i = 0; i < files; ++i) {
    PerfRecord sample;
    sample.pid = pid + 7;
    sample.registers = {0x10000 * (i + 1) + 8, 0x100000, 0x100000, 0};
    frames.clear();
    const u64 before = walk.skipped().stacks;
    (void)walk.frames(sample, 64, frames);
    EXPECT_EQ(frames.size(), 1u);
    followed += walk.skipped().stacks == before ? 1 : 0;
  }
  EXPECT_GT(followed, 100u);
  EXPECT_LT(followed, files) << "a second is not for all of them";
  EXPECT_EQ(walk.skipped().stacks, files - followed);
  frames.clear();
  EXPECT_EQ(walk.frames(copy.sample, 100, frames), StackEnd::no_table) << "nothing is left of this second";
  now += 1'000'000'000;
  frames.clear();
  EXPECT_EQ(walk.frames(copy.sample, 100, frames), StackEnd::complete);
  EXPECT_GT(frames.size(), 2u);
  std::filesystem::remove_all(folder);
}

// A segment of 256 MiB that is a hole, as ten files have it: nothing of it is read, and memory is not taken for it.
TEST(SampleWalk, TablesThatAreHolesAreNotRead) {
  if (perf_registers == 0) GTEST_SKIP() << "no walks for this processor";
  const std::string folder = std::filesystem::temp_directory_path() / ("ringside-holes-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  const u64 size = u64{256} << 20;
  const Elf64_Phdr parts[] = {{PT_LOAD, PF_R | PF_X, 0, 0, 0, size, size, 4096},
                              {PT_GNU_EH_FRAME, PF_R, 0x1000, 0x1000, 0, 16, 16, 4}};
  SampleWalk walk;
  for (u64 i = 0; i < 10; ++i) {
    const std::string path = folder + "/" + std::to_string(i);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(&header), sizeof header)
        .write(reinterpret_cast<const char*>(parts), sizeof parts);
    std::filesystem::resize_file(path, size);
    walk.map(pid, {0x100000 * (i + 1), 0x100000 * (i + 1) + 0x1000, 0}, path, "");
  }
  const auto resident = [] {
    std::ifstream in("/proc/self/statm");
    u64 all = 0, pages = 0;
    in >> all >> pages;
    return pages * page_size;
  };
  const u64 before = resident();
  for (u64 i = 0; i < 10; ++i) {
    PerfRecord sample;
    sample.pid = pid;
    sample.registers = {0x100000 * (i + 1) + 8, 0x1000, 0x1000, 0};
    std::vector<u64> frames;
    EXPECT_NE(walk.frames(sample, 64, frames), StackEnd::complete);
  }
  EXPECT_LT(resident(), before + (u64{16} << 20));
  std::filesystem::remove_all(folder);
}

TEST(SampleWalk, WhatCannotBeFollowedEndsIt) {
  if (perf_registers == 0) GTEST_SKIP() << "no walks for this processor";
  const Copy copy = deeper<12>(20000);
  std::vector<u64> frames;
  SampleWalk without;
  EXPECT_NE(without.frames(copy.sample, 100, frames), StackEnd::complete) << "no maps";
  EXPECT_GE(frames.size(), 1u);
  SampleWalk other_files;
  map_this_process(other_files, "0123456789abcdef0123456789abcdef01234567");
  frames.clear();
  EXPECT_NE(other_files.frames(copy.sample, 100, frames), StackEnd::complete);
  SampleWalk other_inodes;
  map_this_process(other_inodes, "", 1);
  frames.clear();
  EXPECT_NE(other_inodes.frames(copy.sample, 100, frames), StackEnd::complete);
  SampleWalk walk;
  map_this_process(walk);
  PerfRecord cut = copy.sample;
  cut.stack.size = 2000;
  frames.clear();
  EXPECT_EQ(walk.frames(cut, 100, frames), StackEnd::depth) << "the copy ends before the stack";
  EXPECT_GT(frames.size(), 2u);
  EXPECT_LT(frames.size(), copy.truth.size());
  // Stacks and registers of any content.
  std::mt19937_64 random(5);
  Copy hostile = copy;
  for (int round = 0; round < 20'000; ++round) {
    for (int i = 0; i < 8; ++i) {
      const u64 word = random() % 2 == 0   ? copy.truth[random() % copy.truth.size()] + random() % 64
                       : random() % 2 == 0 ? hostile.sample.registers.sp + random() % 8000
                                           : random();
      std::memcpy(hostile.stack.data() + random() % (hostile.stack.size() / 8) * 8, &word, 8);
    }
    hostile.sample.registers = {copy.truth[random() % copy.truth.size()] + random() % 64,
                                copy.sample.registers.sp + random() % 4000, copy.sample.registers.sp + random() % 4000,
                                random()};
    hostile.sample.stack = {hostile.stack.data(), hostile.stack.size()};
    frames.clear();
    (void)walk.frames(hostile.sample, 64, frames);
    ASSERT_LE(frames.size(), 64u);
  }
  // A thread of the kernel has none.
  frames.clear();
  EXPECT_EQ(walk.frames(PerfRecord{}, 64, frames), StackEnd::complete);
  EXPECT_TRUE(frames.empty());
}

TEST(PerfRing, WhatDoesNotAddUpIsCounted) {
  for (const u16 size : {0, 4, 9, 248, 65528}) {  // of a record that says so
    RingBytes ring;
    const perf_event_header header{PERF_RECORD_SAMPLE, 0, size};
    ring.put(&header, sizeof header);
    PerfRecords records = ring.from(0);
    EXPECT_FALSE(records.next()) << size;
    EXPECT_TRUE(records.malformed()) << size;
    EXPECT_EQ(records.tail(), ring.head) << size;
  }
  RingBytes ring;
  ring.record(PERF_RECORD_SAMPLE, 0, pid, tid, u64{1}, u64{1} << 61);  // more frames than bytes
  ring.record(PERF_RECORD_COMM, 0);
  PerfRecords records = ring.from(0);
  EXPECT_EQ(records.next()->kind, PerfRecord::Kind::other);
  EXPECT_EQ(records.next()->kind, PerfRecord::Kind::other);
  EXPECT_TRUE(records.malformed());
  EXPECT_EQ(records.tail(), ring.head);
  PerfRecords beyond(ring.bytes.data(), ring.bytes.size(), 0, 1000);
  EXPECT_FALSE(beyond.next());
  EXPECT_TRUE(beyond.malformed());
}

TEST(Packing, EventsComeBackWithTheirTimes) {
  Packer packer(4096);
  std::vector<std::pair<u64, std::vector<u8>>> in, out;
  u64 time = u64{1} << 60;
  std::vector<u64> ends;
  for (u32 i = 0; i < 300; ++i) {
    time += i % 7 == 0 ? u64{1} << 33 : i;
    const std::vector<u8> payload(8 + i * 11 % 900, static_cast<u8>(i));
    const Bytes bytes{payload.data(), payload.size()};
    const auto read = [&] {
      const SubBufferView view = packer.take();
      abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
      while (c.next()) out.push_back({c.time(), std::vector<u8>(c.payload().data, c.payload().data + payload.size())});
      EXPECT_EQ(c.malformed(), abi::Malformed::no);
      return view.begin;
    };
    if (!packer.add(time, bytes)) {
      packer.restart();
      ASSERT_TRUE(packer.add(time, bytes));
    }
    read();
    in.push_back({time, payload});
  }
  EXPECT_EQ(in.size(), out.size());
  EXPECT_TRUE(in == out);
  const std::vector<u8> large(4100);
  EXPECT_FALSE(packer.holds(large.size()));
  packer.restart();
  EXPECT_FALSE(packer.add(time, {large.data(), large.size()}));
  ASSERT_TRUE(packer.add(time, {large.data(), 8}));
  packer.take();
  packer.lost(5);
  ASSERT_TRUE(packer.add(time - 100, {large.data(), 8}));  // a time that goes back is the last one's
  const SubBufferView view = packer.take();
  EXPECT_EQ(view.lost_before, 5u);
  abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
  ASSERT_TRUE(c.next());
  EXPECT_EQ(c.time(), time);
  EXPECT_FALSE(packer.pending());
}

// Whatever the rate: what was read between two readings of the ticks lies between them.
TEST(RawTime, BecomesTicksOfThatMoment) {
  RawToTicks clock;
  for (int i = 0; i < 100; ++i) {
    timespec t{};
    const u64 before = read_ticks();
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    const u64 after = read_ticks();
    clock.now();
    const u64 ticks = clock.ticks(static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec));
    constexpr u64 slack = 10'000;  // of ticks: some microseconds
    EXPECT_GT(ticks + slack, before);
    EXPECT_LT(ticks, after + slack);
  }
}

}  // namespace
}  // namespace ringside::samples_test
