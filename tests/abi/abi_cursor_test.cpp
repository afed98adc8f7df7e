// The cursor on hand-made bytes: each form, each malformed event, and the same walk as libtraceevent's kbuffer on random pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

extern "C" {  // the header has no such guard of its own
#include <kbuffer.h>
}
#include "writer/ring_pages.hpp"

namespace ringside::test::abi_cursor_test {
namespace {

using abi::Malformed;

struct Found {
  u64 time;
  u32 offset, size;
  friend bool operator==(const Found&, const Found&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Found& f) {
    return out << "{time " << f.time << ", offset " << f.offset << ", size " << f.size << '}';
  }
};

// The same by runs of events that are alike.
std::vector<Found> walk_alike(const u8* data, abi::EventCursor c) {
  std::vector<Found> out;
  u64 time = 0;
  while (c.next()) {
    out.push_back({time = c.time(), c.offset(), static_cast<u32>(c.payload().size)});
    abi::AlikeEvents alike(c);
    while (alike.next())
      out.push_back(
          {time += alike.delta(), static_cast<u32>(alike.payload().data - data - 4), static_cast<u32>(alike.payload().size)});
    alike.move(c);
    EXPECT_EQ(c.time(), time);
    EXPECT_EQ(c.offset(), out.back().offset);
    EXPECT_EQ(c.payload().size, out.back().size);
  }
  return out;
}

// Walks a copy in memory of exactly that length.
std::vector<Found> walk(const std::vector<u8>& bytes, u64 time, Malformed expected = Malformed::no, u32 begin = 0) {
  std::vector<u32> words(bytes.size() / 4 + 1);
  auto* copy = reinterpret_cast<u8*>(words.data() + 1) + bytes.size() / 4 * 4 - bytes.size();
  std::copy(bytes.begin(), bytes.end(), copy);
  abi::EventCursor c(copy, begin, static_cast<u32>(bytes.size()), time);
  const std::vector<Found> alike = walk_alike(copy, c);
  std::vector<Found> out;
  while (c.next()) out.push_back({c.time(), c.offset(), static_cast<u32>(c.payload().size)});
  EXPECT_EQ(alike, out);
  EXPECT_EQ(c.malformed(), expected) << abi::to_string(c.malformed());
  EXPECT_FALSE(c.next());  // stays at its end
  EXPECT_EQ(c.malformed(), expected);
  return out;
}
using All = std::vector<Found>;

TEST(AbiCursor, DataForms) {
  EXPECT_EQ(walk(page("01 00 00 00  61 62 00 00"), 7), (All{{7, 0, 4}}));
  EXPECT_EQ(walk(page("63 00 00 00  00*12  a1 00 00 00  00*4"), 7), (All{{10, 0, 12}, {15, 16, 4}}));
  EXPECT_EQ(walk(page("1c 00 00 00  00*112"), 0), (All{{0, 0, 112}}));
  EXPECT_EQ(walk(page("20 00 00 00  78 00 00 00  00*116"), 0), (All{{1, 0, 116}}));
  EXPECT_EQ(walk(page("00 00 00 00  04 00 00 00"), 9), (All{{9, 0, 0}}));       // large, with an empty payload
  EXPECT_EQ(walk(page("e1 ff ff ff  00*4"), 1), (All{{1 + 0x7FFFFFF, 0, 4}}));  // the largest delta
  EXPECT_EQ(walk({}, 1), All{});
  EXPECT_EQ(walk(page("01 00 00 00 00*4 41 00 00 00 00*4"), 7, Malformed::no, 8), (All{{9, 8, 4}}));
}

TEST(AbiCursor, TimeExtend) {
  EXPECT_EQ(walk(page("be 00 00 00  01 00 00 00  01 00 00 00  00*4"), 100), (All{{100 + (1u << 27) + 5, 8, 4}}));
  EXPECT_EQ(walk(page("1e 00 00 00  00 00 00 00  41 00 00 00  00*4"), 100), (All{{102, 8, 4}}));  // an extend of 0
  EXPECT_EQ(walk(page("fe ff ff ff  ff ff ff ff  01 00 00 00  00*4"), 0), (All{{(u64{1} << 59) - 1, 8, 4}}));
  EXPECT_EQ(walk(page("be 00 00 00  01 00 00 00"), 100), All{});  // no event follows
}

// 59 bits are stored; the top ones come from the running time, with one more if that would go back.
TEST(AbiCursor, TimeStampRecoversItsTopBits) {
  const auto at_5 = page("bf 00 00 00  00 00 00 00  01 00 00 00  00*4");
  EXPECT_EQ(walk(at_5, 3), (All{{5, 8, 4}}));
  EXPECT_EQ(walk(at_5, 9), (All{{5, 8, 4}}));  // no top bits: the stored time, even backwards
  const u64 bit = u64{1} << 59;
  EXPECT_EQ(walk(at_5, bit + 3), (All{{bit + 5, 8, 4}}));
  EXPECT_EQ(walk(at_5, bit + 9), (All{{2 * bit + 5, 8, 4}}));
  EXPECT_EQ(walk(at_5, 31 * bit + 2), (All{{31 * bit + 5, 8, 4}}));
  EXPECT_EQ(walk(page("df ff ff ff  ff ff ff ff  41 00 00 00  00*4"), 7 * bit), (All{{8 * bit - 2 + 2, 8, 4}}));
}

TEST(AbiCursor, Padding) {
  // A discarded event of 16 bytes: its delta counts.
  EXPECT_EQ(walk(page("01 00 00 00 00*4  7d 00 00 00  0c 00 00 00  00*8  41 00 00 00 00*4"), 10),
            (All{{10, 0, 4}, {15, 24, 4}}));
  // Fill to the end.
  EXPECT_EQ(walk(page("01 00 00 00 00*4  3d 00 00 00  14 00 00 00  ee*16"), 10), (All{{10, 0, 4}}));
  // The padding word ends the walk, whatever follows.
  EXPECT_EQ(walk(page("01 00 00 00 00*4  1d 00 00 00  ff ff ff ff"), 10), (All{{10, 0, 4}}));
  EXPECT_EQ(walk(page("1d 00 00 00"), 10), All{});
}

TEST(AbiCursor, EachMalformedEventIsNamed) {
  const All none;
  // header_cut: 4 bytes of a form that needs 8.
  for (const char* word : {"00 00 00 00", "3d 00 00 00", "1e 00 00 00", "1f 00 00 00"})
    EXPECT_EQ(walk(page(word), 0, Malformed::header_cut), none) << word;
  // payload_cut.
  EXPECT_EQ(walk(page("01 00 00 00"), 0, Malformed::payload_cut), none);
  EXPECT_EQ(walk(page("03 00 00 00 00*8"), 0, Malformed::payload_cut), none);
  EXPECT_EQ(walk(page("1c 00 00 00 00*108"), 0, Malformed::payload_cut), none);
  EXPECT_EQ(walk(page("00 00 00 00  08 00 00 00"), 0, Malformed::payload_cut), none);
  EXPECT_EQ(walk(page("3d 00 00 00  08 00 00 00"), 0, Malformed::payload_cut), none);
  EXPECT_EQ(walk(page("00 00 00 00  fc ff ff ff  00*64"), 0, Malformed::payload_cut), none);  // 4 + length would be 0
  EXPECT_EQ(walk(page("3d 00 00 00  fc ff ff ff  00*64"), 0, Malformed::payload_cut), none);
  // length_too_small.
  for (const char* length : {"00", "01", "03"}) {
    EXPECT_EQ(walk(page(std::string("00 00 00 00 ") + length + " 00*3"), 0, Malformed::length_too_small), none);
    EXPECT_EQ(walk(page(std::string("3d 00 00 00 ") + length + " 00*3"), 0, Malformed::length_too_small), none);
  }
  // length_unaligned: in the event, and in the bounds.
  EXPECT_EQ(walk(page("00 00 00 00  05 00 00 00  00*8"), 0, Malformed::length_unaligned), none);
  EXPECT_EQ(walk(page("3d 00 00 00  ff ff ff ff  00*8"), 0, Malformed::length_unaligned), none);
  EXPECT_EQ(walk(page("01 00 00 00  00*3"), 0, Malformed::length_unaligned), none);
  const auto words = page("01 00 00 00  00*12");
  abi::EventCursor odd(words.data(), 2, 16, 0);
  EXPECT_FALSE(odd.next());
  EXPECT_EQ(odd.malformed(), Malformed::length_unaligned);
  // Events before the malformed one are there.
  EXPECT_EQ(walk(page("21 00 00 00 00*4  41 00 00 00 00*4  02 00 00 00 00*4"), 0, Malformed::payload_cut),
            (All{{1, 0, 4}, {3, 8, 4}}));
  // Each kind has words of its own.
  std::vector<std::string> said;
  for (u8 m = 0; m <= static_cast<u8>(Malformed::length_unaligned); ++m)
    said.push_back(abi::to_string(static_cast<Malformed>(m)));
  std::sort(said.begin(), said.end());
  EXPECT_EQ(std::adjacent_find(said.begin(), said.end()), said.end());
  EXPECT_STREQ(abi::to_string(static_cast<Malformed>(200)), "?");
}

// Every cut of a good page gives a prefix of its events, then the end or an error, and nothing outside is read.
TEST(AbiCursor, ACutPageGivesAPrefixOfItsEvents) {
  const auto whole = page(
      "01 00 00 00 61 62 00 00  be 00 00 00 01 00 00 00 63 00 00 00 00*12  20 00 00 00 78 00 00 00 00*116 "
      "7d 00 00 00 0c 00 00 00 00*8  bf 00 00 00 00*4  41 00 00 00 00*4  3d 00 00 00 04 00 00 00");
  const All all = walk(whole, 1);
  ASSERT_EQ(all.size(), 4u);
  for (u32 end = 0; end < whole.size(); end += 4) {
    std::vector<u32> words(end / 4);
    if (end != 0) std::memcpy(words.data(), whole.data(), end);
    abi::EventCursor c(reinterpret_cast<u8*>(words.data()), 0, end, 1);
    size_t n = 0;
    while (c.next()) {
      ASSERT_LT(n, all.size());
      EXPECT_EQ((Found{c.time(), c.offset(), static_cast<u32>(c.payload().size)}), all[n++]);
      EXPECT_LE(c.position(), end);
    }
    const u32 stood = n == 0 ? 0 : all[n - 1].offset + (all[n - 1].size > 112 ? 8 : 4) + all[n - 1].size;
    EXPECT_LE(stood, end);
  }
}

// kbuffer's view of a sub-buffer.
struct Kbuffer {
  kbuffer* k = kbuffer_alloc(KBUFFER_LSIZE_8, KBUFFER_ENDIAN_LITTLE);
  int missed = 0;  // before the sub-buffer walked last
  ~Kbuffer() { kbuffer_free(k); }

  All walk(const u8* subbuf) {
    All out;
    EXPECT_EQ(kbuffer_load_subbuffer(k, const_cast<u8*>(subbuf)), 0);
    missed = kbuffer_missed_events(k);  // valid only until the first step
    unsigned long long time = 0;
    for (void* event = kbuffer_read_event(k, &time); event != nullptr; event = kbuffer_next_event(k, &time)) {
      const auto size = static_cast<u32>(kbuffer_event_size(k));
      const auto at = static_cast<u32>(static_cast<u8*>(event) - subbuf) - 16;
      out.push_back({time, at - (size > 112 ? 8 : 4), size});
    }
    return out;
  }
};

All ours(const u8* subbuf) {
  abi::SubBufferHeader header;
  std::memcpy(&header, subbuf, sizeof header);
  abi::EventCursor c(subbuf + 16, 0, abi::commit_size(header.commit), header.time_stamp);
  const All alike = walk_alike(subbuf + 16, c);
  All out;
  while (c.next()) out.push_back({c.time(), c.offset(), static_cast<u32>(c.payload().size)});
  EXPECT_EQ(c.malformed(), Malformed::no);
  EXPECT_EQ(alike, out);
  return out;
}

// Random valid bytes, of every form.
TEST(AbiCursor, AgreesWithKbufferOnRandomBytes) {
  std::mt19937_64 random(20260101);
  Kbuffer k;
  size_t events = 0;
  for (int round = 0; round < 3000; ++round) {
    alignas(8) u8 subbuf[4096] = {};
    u64 now = random() >> (4 + random() % 40);  // kbuffer does not carry into the top bits, so stay clear of them
    now &= (u64{1} << 56) - 1;
    std::memcpy(subbuf, &now, 8);
    u32 at = 0;
    const auto put = [&](u32 word) {
      std::memcpy(subbuf + 16 + at, &word, 4);
      at += 4;
    };
    const auto small = [&] { return static_cast<u32>(random() % (u64{1} << (1 + random() % 27))); };
    const u32 goal = static_cast<u32>(random() % 4081) & ~3u;
    while (at < goal) {
      const u32 left = 4080 - at;
      const u32 delta = small();
      switch (random() % 12) {
        case 0:  // time extend
          if (left < 8) break;
          put(30 | delta << 5);
          put(static_cast<u32>(random() % 64));
          break;
        case 1: {  // time stamp, ahead of everything so far
          if (left < 8) break;
          now = (u64{1} << 57) + random() % (u64{1} << 50);
          put(31 | static_cast<u32>(now & (abi::delta_limit - 1)) << 5);
          put(static_cast<u32>(now >> 27));
          break;
        }
        case 2: {  // discarded
          const u32 size = 8 + static_cast<u32>(random() % 32) * 4;
          if (left < size) break;
          put(29 | (delta | 1) << 5);
          put(size - 4);
          at += size - 8;
          break;
        }
        case 3: {  // large
          const u32 size = 8 + 113 + static_cast<u32>(random() % 800);
          const u32 total = align_up(size, 4u);
          if (left < total) break;
          put(delta << 5);
          put(total - 4);
          at += total - 8;
          break;
        }
        default: {
          const u32 words = 1 + static_cast<u32>(random() % 28);
          if (left < 4 + words * 4) break;
          put(words | delta << 5);
          at += words * 4;
        }
      }
      if (random() % 64 == 0 && 4080 - at >= 8) {  // filled to its end
        const u32 rest = 4080 - at;
        put(29 | 1 << 5);
        put(rest - 4);
        at = 4080;
      }
      if (left < 8) break;
    }
    const u64 commit = at;
    std::memcpy(subbuf + 8, &commit, 8);
    const All a = ours(subbuf), b = k.walk(subbuf);
    ASSERT_EQ(a, b) << "round " << round;
    events += a.size();
  }
  EXPECT_GT(events, 30000u);
}

// Sub-buffers from the writer, with nesting, discarded events, long pauses and losses.
TEST(AbiCursor, AgreesWithKbufferOnWrittenPages) {
  std::mt19937_64 random(20260102);
  Kbuffer k;
  u64 pages = 0, missed = 0;
  for (int round = 0; round < 150; ++round) {
    TestRing t(3 + static_cast<u32>(random() % 3), false, round % 4 == 0 ? 8192 : 4096);
    std::vector<u8> text(4096, 0xA5);
    for (int step = 0; step < 600; ++step) {
      t.time += random() % 100;
      if (random() % 50 == 0) t.time += random() % (u64{1} << 40);
      const u32 size = static_cast<u32>(random() % (random() % 8 == 0 ? 1500 : 130));
      const Reservation outer = t.writer.reserve(size);
      ASSERT_TRUE(outer);
      if (random() % 6 == 0) {
        t.time += random() % 3;
        t.writer.write(text.data(), static_cast<u32>(random() % 200));
      }
      if (random() % 6 == 0)
        t.writer.discard(outer);
      else
        t.writer.commit(outer);
      if (random() % 90 != 0) continue;
      while (t.reader.get_reader() == Got::data) {
        const ReaderView& v = t.reader.view();
        const u8* subbuf = t.ring.subbuf(v.id);
        const All a = ours(subbuf), b = k.walk(subbuf);
        ASSERT_EQ(a, b) << "round " << round << " step " << step;
        ++pages;
        const u64 word = t.commit_word(v.id);
        if (v.begin == 0 && v.left && v.lost_before != 0) {
          ++missed;
          ASSERT_TRUE(abi::commit_missed(word));
          // kbuffer knows the loss only if its first step is at the very start, not after padding or a time extend.
          if (!a.empty() && a[0].offset == 0) {
            ASSERT_EQ(k.missed, abi::commit_stored(word) ? static_cast<int>(v.lost_before) : -1);
          }
        }
      }
    }
  }
  EXPECT_GT(pages, 1000u);
  EXPECT_GT(missed, 100u);
}

}  // namespace
}  // namespace ringside::test::abi_cursor_test
