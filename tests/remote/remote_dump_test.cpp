// Rings from a memory dump, by their footers alone: whole, fragmented, and hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/remote/remote_writer.hpp>

#include "dump_files.hpp"
#include "remote/dump.hpp"
#include "remote/memory_image.hpp"
#include "seen.hpp"
#include "ticks.hpp"

namespace ringside::test::remote_dump_test {
namespace {

using namespace remote;
using testing::HasSubstr;

// The memory of a machine with two rings in it, at unknown pages.
struct Machine {
  explicit Machine(u32 subbuf_size = 4096, u32 pages = 6) : plan{Layout::footers, 2, subbuf_size, 2, pages} {
    const u64 bytes = plan.region_bytes() + 16 * page_size;
    words = std::vector<u64>(bytes / 8 + page_size / 8);
    memory = reinterpret_cast<u8*>(align_up(reinterpret_cast<u64>(words.data()), u64{page_size}));
    size = bytes;
    std::vector<u64> blob(plan.descriptor_bytes() / 8);
    pack(plan, blob.data());
    Descriptor d;
    EXPECT_TRUE(WildDescriptor(blob.data(), blob.size() * 8).check(plan.region_bytes(), d).good());
    for (u32 ring = 0; ring < 2; ++ring) {
      own[ring] = std::vector<u64>(RemoteWriter<Ticks<>>::private_bytes(d.ring(ring)) / 8 + 8);
      void* const at = reinterpret_cast<void*>(align_up(reinterpret_cast<u64>(own[ring].data()), u64{64}));
      writer[ring] = std::make_unique<RemoteWriter<Ticks<>>>(d, d.ring(ring), memory + 3 * page_size, at, Ticks<>{&time});
      writer[ring]->enable();
    }
  }
  void write(u32 ring, u64 count) {
    for (u64 k = 0; k < count; ++k) {
      const u64 payload[2] = {next[ring], 7};
      ASSERT_TRUE(writer[ring]->write(payload, 16));
      ++next[ring];
    }
  }
  abi::PageFooter& footer(u32 ring, u32 id) {
    return *reinterpret_cast<abi::PageFooter*>(memory + 3 * page_size + ring * plan.ring_bytes() +
                                               (id + 2) * u64{plan.subbuf_size} - 32);
  }
  Bytes dump() const { return {memory, size}; }

  Plan plan;
  std::vector<u64> words, own[2];
  u8* memory;
  u64 size, time = 0, next[2] = {0, 0};
  std::unique_ptr<RemoteWriter<Ticks<>>> writer[2];
};

Seen read(const DumpedRing& ring) {
  Seen seen;
  DumpSource source(ring, ClockInfo{});
  read_all(source, seen);
  EXPECT_EQ(source.counters().read, seen.numbers.size());
  return seen;
}

TEST(RemoteDump, TwoRingsInOrder) {
  for (const u32 subbuf_size : {4096u, 16384u}) {
    Machine m(subbuf_size);
    m.write(0, 100);
    m.write(1, 7000);
    const auto rings = find_rings({m.dump()});
    ASSERT_EQ(rings.size(), 2u);
    EXPECT_EQ(rings[0].subbuf_size, subbuf_size);
    EXPECT_EQ(read(rings[0]).numbers.size(), 100u);
    const Seen f = read(rings[1]);
    ASSERT_FALSE(f.numbers.empty());
    EXPECT_EQ(f.numbers.back(), 6999u);
    EXPECT_EQ(f.numbers.front(), 7000u - f.numbers.size());
    EXPECT_EQ(f.lost, f.numbers.front()) << "overwritten before a reader came";
    EXPECT_EQ(DumpSource(rings[1], ClockInfo{}).counters().written, 7000u);
    EXPECT_THAT(rings[1].survey.problems, testing::IsEmpty());
  }
}

TEST(RemoteDump, OnlyTheReaderPageIsShownAgain) {
  Machine m;
  m.write(0, 900);
  u32 read_bytes = 0;
  for (int pages = 0; pages < 3; ++pages) {
    const Swapped s = m.writer[0]->swap_reader(read_bytes);
    ASSERT_EQ(s.what, Swap::swapped);
    read_bytes = 4080;
  }
  const auto rings = find_rings({m.dump()});
  const Seen f = read(rings[0]);
  EXPECT_TRUE(rings[0].survey.has_reader);
  EXPECT_EQ(f.numbers.front() % 202, 0u);  // begins with a whole sub-buffer
  EXPECT_EQ(f.numbers.back(), 899u);
  EXPECT_EQ(f.numbers.size(), 900 - f.numbers.front());
}

TEST(RemoteDump, MissingPagesAreGaps) {
  Machine m;
  m.write(0, 1000);
  m.footer(0, 2).writer_status = 0;  // position 1: not in the dump
  const Seen f = read(find_rings({m.dump()})[0]);
  EXPECT_EQ(f.numbers.size() + f.lost, 1000u);
  EXPECT_GT(f.lost, 190u);
}

TEST(RemoteDump, ContradictionsAreNamedAndLeftOut) {
  Machine m;
  m.write(0, 1000);
  m.footer(0, 2).pages_touched = m.footer(0, 3).pages_touched;
  auto rings = find_rings({m.dump()});
  ASSERT_EQ(rings[0].survey.problems.size(), 1u);
  EXPECT_THAT(rings[0].survey.problems[0], HasSubstr("both claim position"));
  m.footer(0, 2).pages_touched = 1;
  m.footer(0, 3).entries = 5;
  rings = find_rings({m.dump()});
  ASSERT_FALSE(rings[0].survey.problems.empty());
  EXPECT_THAT(rings[0].survey.problems[0], HasSubstr("its first event is number 5"));
  const auto at = reinterpret_cast<u64*>(&m.footer(0, 1)) - (4096 - 32) / 8;
  at[1] = 0xFFFF0;  // commit
  rings = find_rings({m.dump()});
  EXPECT_THAT(rings[0].survey.problems[0], HasSubstr("claims 1048560 bytes"));
}

TEST(RemoteDump, TwoWritersWithTheSameRingAreAProblem) {
  Machine m, other;
  m.write(0, 3000);
  for (u32 read_bytes = 0, pages = 0; pages < 3; ++pages, read_bytes = 4080) (void)m.writer[0]->swap_reader(read_bytes);
  other.write(0, 100);
  (void)other.writer[0]->swap_reader(0);
  EXPECT_THAT(find_rings({m.dump()})[0].survey.problems, testing::IsEmpty());
  std::vector<u64> both((m.size + other.size) / 8);
  std::memcpy(both.data(), m.memory, m.size);
  std::memcpy(both.data() + m.size / 8, other.memory, other.size);
  const auto rings = find_rings({Bytes{reinterpret_cast<const u8*>(both.data()), both.size() * 8}});
  ASSERT_FALSE(rings[0].survey.problems.empty());
  EXPECT_THAT(rings[0].survey.problems[0], HasSubstr("two reader pages for ring 0"));
}

// Nothing was found in qemu's dump-guest-memory, nor with -z.
TEST(RemoteDump, DumpsOfOtherTools) {
  for (const u32 subbuf_size : {4096u, 16384u}) {
    Machine m(subbuf_size);
    m.write(0, 100);
    m.write(1, 7000);
    const u64 cut = 3 * page_size + m.plan.ring_bytes();
    const std::string whole = kdump(m.dump(), true);
    for (const auto& [file, format] : {std::pair<std::string, std::string>{elf_core(m.dump(), cut, 0x3E8), "an ELF core"},
                                       {elf_core(m.dump(), cut, 0x3E5), "an ELF core"},
                                       {kdump(m.dump(), false), "a kdump"},
                                       {whole, "a kdump"},
                                       {flattened(whole), "a kdump, as a pipe takes it"},
                                       {std::string(reinterpret_cast<const char*>(m.memory), m.size), "raw"}}) {
      const AlignedFile aligned(file);
      const MemoryImage image = must(MemoryImage::of(aligned.bytes()));
      EXPECT_EQ(image.format(), format);
      EXPECT_THAT(image.problems(), testing::IsEmpty());
      const auto rings = find_rings(image.pieces());
      ASSERT_EQ(rings.size(), 2u) << format;
      EXPECT_EQ(read(rings[0]).numbers.size(), 100u);
      const Seen second = read(rings[1]);
      EXPECT_EQ(second.numbers.size() + second.lost, 7000u);
      EXPECT_THAT(rings[1].survey.problems, testing::IsEmpty());
    }
  }
}

TEST(RemoteDump, DamagedDumpsAreNamed) {
  Machine m;
  m.write(0, 1000);
  const std::string elf = elf_core(m.dump(), 8 * page_size, 0x3E8), compressed = kdump(m.dump(), true),
                    piped = flattened(compressed);
  std::mt19937_64 random(11);
  for (const std::string& good : {elf, compressed, piped}) {
    for (int round = 0; round < 300; ++round) {
      std::string bad = good;
      if (round % 3 == 0) bad.resize(random() % bad.size());
      for (u64 n = random() % 8; n > 0 && bad.size() > 600; --n)
        bad[random() % (round % 2 == 0 ? 600 : bad.size())] = static_cast<char>(random());
      if (bad.size() < page_size) continue;
      const AlignedFile aligned(bad);
      const auto image = MemoryImage::of(aligned.bytes());
      if (!image) {
        EXPECT_FALSE(image.error().sentence.empty());
        continue;
      }
      for (const DumpedRing& ring : find_rings(image->pieces())) {
        DumpSource source(ring, ClockInfo{});
        for (auto view = source.next(); view && *view; view = source.next()) ASSERT_LE((*view)->end, ring.subbuf_size);
      }
    }
  }
  const AlignedFile cut(compressed.substr(0, 3 * page_size));
  ASSERT_FALSE(MemoryImage::of(cut.bytes()));
  EXPECT_THAT(MemoryImage::of(cut.bytes()).error().sentence, HasSubstr("the dump is damaged: it ends in its bitmaps"));
}

// A page of the machine may be in the dump twice, and one of them older.
TEST(RemoteDump, TwoCopiesOfOneWriterAreOne) {
  Machine m;
  m.write(0, 500);
  std::vector<u64> earlier(m.size / 8);
  std::memcpy(earlier.data(), m.memory, m.size);
  m.write(0, 30);
  std::vector<u64> both(earlier);
  both.insert(both.end(), reinterpret_cast<const u64*>(m.memory), reinterpret_cast<const u64*>(m.memory + m.size));
  for (const bool swapped : {false, true}) {
    const Bytes older{reinterpret_cast<const u8*>(earlier.data()), m.size};
    const auto rings = swapped ? find_rings({m.dump(), older}) : find_rings({older, m.dump()});
    ASSERT_EQ(rings.size(), 2u);
    for (const DumpedRing& ring : rings) EXPECT_THAT(ring.survey.problems, testing::IsEmpty());
    EXPECT_EQ(read(rings[0]).numbers.size(), 530u);
  }
}

// Any bytes flipped: found rings stay inside the dump, walks end, nothing crashes.
TEST(RemoteDump, FlippedBytesNeverCrash) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 400; ++round) {
    Machine m(round % 2 == 0 ? 4096 : 8192);
    m.write(0, 1 + random() % 2000);
    m.write(1, 1 + random() % 300);
    if (round % 3 == 0) (void)m.writer[0]->swap_reader(0);
    for (u64 n = 1 + random() % 40; n != 0; --n) {
      const u64 page = random() % (m.size / page_size) * page_size;
      const u64 where =
          random() % 3 == 0 ? random() % m.size : page + (random() % 2 == 0 ? random() % 16 : page_size - 1 - random() % 32);
      m.memory[where] = random() % 2 == 0 ? static_cast<u8>(random()) : static_cast<u8>(m.memory[where] ^ 1u << random() % 8);
    }
    for (const DumpedRing& ring : find_rings({m.dump()})) {
      u64 last = 0;
      for (const PageSeen& p : ring.survey.pages) {
        ASSERT_GE(p.sub_buffer, m.memory);
        ASSERT_LE(p.sub_buffer + ring.subbuf_size, m.memory + m.size);
        ASSERT_LE(p.end, ring.subbuf_size - 48);
        ASSERT_GE(p.base, last);
        last = p.base + p.events;
      }
      DumpSource source(ring, ClockInfo{});
      while (auto view = *source.next()) {
        abi::EventCursor c(view->sub_buffer + 16, view->begin, view->end, view->time);
        while (c.next()) {
        }
      }
      const Counters c = source.counters();
      EXPECT_EQ(c.written, c.read + c.unread + c.overrun);
    }
  }
}

}  // namespace
}  // namespace ringside::test::remote_dump_test
