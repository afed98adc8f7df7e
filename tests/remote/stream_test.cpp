// Sub-buffers over a line: everything when nothing is lost; else everything that arrived whole, and exact gaps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ringside/remote.h>
#include <ringside/ring/writer.hpp>

#include <cstring>
#include <map>
#include <random>

#include "remote/stream.hpp"
#include "seen.hpp"
#include "ticks.hpp"

namespace ringside::test::stream_test {
namespace {

using namespace remote;
using testing::HasSubstr;

class Board {
 public:
  Board() : control(control_size(geometry) / 8 + 1), data(geometry.data_size() / 8) {
    ring = {geometry, reinterpret_cast<Control*>(control.data()), reinterpret_cast<u8*>(data.data())};
  }
  // All events of `n`, pushed now and then; frames[k]: where frame k begins.
  std::vector<u8> stream(u32 n, u32 push_each) {
    std::vector<u8> out;
    u64 time = 0;
    Writer<Ticks<0>> writer(ring, Ticks<0>{&time});
    Reader<> reader(ring);
    StreamWriter line([&](const void* bytes, u32 size) {
      const auto* const p = static_cast<const u8*>(bytes);
      if (size == sizeof(FrameHeader)) frames.push_back(out.size());
      out.insert(out.end(), p, p + size);
    });
    line.hello(2, geometry.subbuf_size(), 1000);
    line.event(9, "board", "number", "name: number\nID: 9\nformat:\n");
    std::mt19937 random(n);
    for (u32 k = 0; k < n; ++k) {
      u8 payload[200] = {};
      std::memcpy(payload, &k, sizeof k);
      time += 5;
      EXPECT_TRUE(writer.write(payload, 8 + random() % 190));
      if (k % push_each == 0) line.push(3, reader, random() % 3 == 0);
    }
    line.push(3, reader, true);
    line.end(reader);
    frames.push_back(out.size());
    return out;
  }
  // The same, by ringside/remote.h.
  std::vector<u8> stream_in_c(u32 n, u32 push_each) {
    std::vector<u8> out;
    u64 time = 0;
    std::vector<ringside_page> words(geometry.nr_subbufs());
    ringside_ring plain;
    EXPECT_TRUE(ringside_ring_init_stream(&plain, data.data(), words.data(), geometry.nr_subbufs(), geometry.subbuf_size(),
                                          [](void* t) { return *static_cast<u64*>(t); }, &time));
    ringside_stream line = {[](void* to, const void* bytes, u32 size) {
                              const auto* const p = static_cast<const u8*>(bytes);
                              static_cast<std::vector<u8>*>(to)->insert(static_cast<std::vector<u8>*>(to)->end(), p, p + size);
                            },
                            &out, 0};
    ringside_stream_hello(&line, 2, geometry.subbuf_size(), 1000);
    ringside_stream_event(&line, 9, "board", "number", "name: number\nID: 9\nformat:\n");
    std::mt19937 random(n);
    for (u32 k = 0; k < n; ++k) {
      u8 payload[200] = {};
      std::memcpy(payload, &k, sizeof k);
      time += 5;
      EXPECT_TRUE(ringside_ring_write(&plain, payload, 8 + random() % 190));
      if (k % push_each == 0) ringside_stream_push(&line, 3, &plain, random() % 3 == 0);
    }
    ringside_stream_push(&line, 3, &plain, true);
    const ringside_ring* const all[] = {&plain};
    ringside_stream_end_of(&line, all, 1);
    return out;
  }
  const Geometry geometry{4096, 6};
  std::vector<size_t> frames;

 private:
  std::vector<u64> control, data;
  Ring ring;
};

struct Got : Seen {
  u64 errors = 0, skipped = 0, missing = 0, restarts = 0;
  bool ended = false;
  Counters counters;
  size_t events = 0;
};
Got receive(const std::vector<u8>& bytes, size_t chunk) {
  Got got;
  FrameReader frames;
  StreamContent content;
  const auto hear = [&](bool last) {
    for (Frame f; frames.next(f, last);) {
      auto view = content.take(f);
      if (!view)
        ++got.errors;
      else if (*view)
        take(**view, got);
    }
  };
  for (size_t at = 0; at < bytes.size(); at += chunk) {
    frames.feed(bytes.data() + at, std::min(chunk, bytes.size() - at));
    hear(false);
  }
  hear(true);
  for (size_t k = 1; k < got.times.size(); ++k) EXPECT_GT(got.times[k], got.times[k - 1]);
  got.skipped = frames.skipped(), got.missing = frames.missing(), got.ended = content.ended(),
  got.events = content.events().size(), got.restarts = content.restarts();
  if (!content.rings().empty()) got.counters = content.rings()[0].second.counters;
  return got;
}

TEST(Streams, ACompleteStreamGivesEveryEvent) {
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{4096}, size_t{1} << 20}) {
    Board board;
    const Got got = receive(board.stream(2000, 20), chunk);
    ASSERT_EQ(got.numbers.size(), 2000u);
    for (u32 k = 0; k < 2000; ++k) EXPECT_EQ(got.numbers[k], k);
    EXPECT_EQ(got.lost + got.errors + got.skipped + got.missing, 0u);
    EXPECT_TRUE(got.ended);
    EXPECT_EQ(got.events, 1u);
  }
}

// 9,000 bytes that came twice were "the writer began anew", "lost 24,684 or more".
TEST(Streams, APartThatComesTwiceIsNoNewBeginning) {
  Board board;
  const std::vector<u8> once = board.stream(2000, 20);
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 9000}, {1000, 10'000}, {4321, 4400}, {20'000, once.size()}}) {
    std::vector<u8> twice(once.begin(), once.begin() + static_cast<std::ptrdiff_t>(to));
    twice.insert(twice.end(), once.begin() + static_cast<std::ptrdiff_t>(from), once.end());
    const Got got = receive(twice, 512);
    ASSERT_EQ(got.numbers.size(), 2000u) << from;
    for (u32 k = 0; k < 2000; ++k) EXPECT_EQ(got.numbers[k], k);
    EXPECT_EQ(got.lost + got.errors + got.missing + got.restarts, 0u) << from;
  }
  // One that does begin anew sends its first frames as before.
  Board other;
  std::vector<u8> both = once;
  const std::vector<u8> again = other.stream(1000, 30);
  both.insert(both.end(), again.begin(), again.end());
  FrameReader frames;
  StreamContent content;
  frames.feed(both.data(), both.size());
  u64 events = 0;
  while (!content.ended() || events < 3000) {
    Frame f;
    if (!frames.next(f, true)) break;
    if (f.head.kind == FrameKind::sub_buffer) events += f.head.events;
    (void)content.take(f);
  }
  EXPECT_EQ(events, 3000u);
  EXPECT_EQ(frames.missing(), 0u);
  EXPECT_GT(frames.repeated(), 0u);
  EXPECT_EQ(content.restarts(), 1u);
}

// Also where the ring goes round between two pushes.
TEST(Streams, PlainCSendsTheSameBytes) {
  for (const u32 push_each : {1u, 7u, 60u, 1000u}) {
    const auto bytes = Board().stream(5000, push_each);
    ASSERT_TRUE(bytes == Board().stream_in_c(5000, push_each)) << push_each;
    EXPECT_GT(bytes.size(), 4096u);
  }
}

TEST(Streams, AWriterFasterThanTheLineHasCountedLosses) {
  Board board;
  const Got got = receive(board.stream(5000, 700), 1000);
  EXPECT_GT(got.lost, 0u);
  EXPECT_EQ(got.numbers.size() + got.lost, 5000u);
  EXPECT_EQ(got.counters.written, 5000u);
  EXPECT_EQ(got.counters.read + got.counters.overrun, 5000u);
}

// Bytes are dropped, flipped and inserted. Each event comes once, in order, unchanged; the gaps between events add up.
TEST(Streams, ADamagedLineLosesOnlyCountedEvents) {
  std::mt19937 random(1);
  u64 whole = 0, resynchronised = 0;
  for (int round = 0; round < 300; ++round) {
    Board board;
    std::vector<u8> bytes = board.stream(500, 20);
    const size_t safe = board.frames[2];  // a careful writer repeats hello and event
    for (u32 damage = random() % 6; damage-- > 0;) {
      const size_t at = safe + random() % (bytes.size() - safe);
      const size_t n = std::min<size_t>(1 + random() % 50, bytes.size() - at);
      const auto where = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      switch (random() % 3) {
        case 0: bytes.erase(where, where + static_cast<std::ptrdiff_t>(n)); break;
        case 1: bytes[at] ^= static_cast<u8>(1 << random() % 8); break;
        case 2: bytes.insert(where, n, static_cast<u8>(random())); break;
      }
    }
    const Got got = receive(bytes, 1 + random() % 3000);
    EXPECT_EQ(got.errors, 0u) << "a checksum lets nothing through";
    u32 next = 0;
    u64 gaps = 0;
    for (const u64 number : got.numbers) {
      ASSERT_GE(number, next);
      gaps += number - next;
      next = number + 1;
    }
    EXPECT_EQ(got.lost, gaps);
    EXPECT_EQ(got.counters.written, next);
    whole += got.numbers.size() == 500;
    resynchronised += got.skipped != 0 && got.ended;
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(resynchronised, 100u);
}

// A writer's line in C, all of whose bytes end up in `bytes`.
ringside_stream line_into(std::vector<u8>& bytes) {
  return {[](void* to, const void* from, u32 size) {
            const auto* const p = static_cast<const u8*>(from);
            static_cast<std::vector<u8>*>(to)->insert(static_cast<std::vector<u8>*>(to)->end(), p, p + size);
          },
          &bytes, 0};
}

// Each try is read, lost or refused: also what was refused behind the last frame of a ring, or in a ring without one.
TEST(Streams, RefusedEventsReachTheReader) {
  std::vector<u64> memory(4 * 4096 / 8);
  std::vector<ringside_page> words(4);
  ringside_ring rings[2];
  u64 time = 0;
  for (ringside_ring& ring : rings)
    EXPECT_TRUE(ringside_ring_init_stream(&ring, memory.data(), words.data(), 4, 4096,
                                          [](void* t) { return *static_cast<u64*>(t); }, &time));
  std::vector<u8> bytes;
  ringside_stream line = line_into(bytes);
  std::vector<u8> big(5000);
  ringside_stream_hello(&line, 2, 4096, 1000);
  EXPECT_FALSE(ringside_ring_write(&rings[0], big.data(), 5000));
  EXPECT_TRUE(ringside_ring_write(&rings[0], big.data(), 100));
  ringside_stream_push(&line, 0, &rings[0], true);
  const size_t before_the_end = bytes.size();
  EXPECT_FALSE(ringside_ring_write(&rings[0], big.data(), 5000));
  EXPECT_FALSE(ringside_ring_write(&rings[1], big.data(), 5000));
  const ringside_ring* const all[] = {&rings[0], &rings[1]};
  ringside_stream_end_of(&line, all, 2);
  FrameReader frames;
  StreamContent content;
  frames.feed(bytes.data(), before_the_end);
  for (Frame f; frames.next(f);) EXPECT_TRUE(content.take(f));
  ASSERT_EQ(content.rings().size(), 1u);
  EXPECT_EQ(content.rings()[0].second.counters.dropped, 1u);
  EXPECT_FALSE(content.counts_refused());
  frames.feed(bytes.data() + before_the_end, bytes.size() - before_the_end);
  for (Frame f; frames.next(f);) EXPECT_TRUE(content.take(f));
  EXPECT_TRUE(content.counts_refused());
  EXPECT_EQ(content.rings()[0].second.counters.dropped, 1u);
  EXPECT_EQ(content.refused_elsewhere(), 2u);
}

// Rings that the end does not count may have refused more than their last frames say.
TEST(Streams, AnEndThatCountsFewerRingsProvesNothing) {
  std::vector<u64> memory[2] = {std::vector<u64>(4 * 4096 / 8), std::vector<u64>(4 * 4096 / 8)};
  std::vector<ringside_page> words[2] = {std::vector<ringside_page>(4), std::vector<ringside_page>(4)};
  ringside_ring rings[2];
  u64 time = 0;
  std::vector<u8> bytes;
  ringside_stream line = line_into(bytes);
  std::vector<u8> big(5000);
  ringside_stream_hello(&line, 2, 4096, 1000);
  for (u16 k = 0; k < 2; ++k) {
    EXPECT_TRUE(ringside_ring_init_stream(&rings[k], memory[k].data(), words[k].data(), 4, 4096,
                                          [](void* t) { return *static_cast<u64*>(t); }, &time));
    EXPECT_TRUE(ringside_ring_write(&rings[k], big.data(), 100));
    ringside_stream_push(&line, k, &rings[k], true);
  }
  EXPECT_FALSE(ringside_ring_write(&rings[1], big.data(), 5000));
  const ringside_ring* const all[] = {&rings[0]};
  ringside_stream_end_of(&line, all, 1);
  FrameReader frames;
  StreamContent content;
  frames.feed(bytes.data(), bytes.size());
  for (Frame f; frames.next(f);) EXPECT_TRUE(content.take(f));
  EXPECT_EQ(content.rings().size(), 2u);
  EXPECT_TRUE(content.ended());
  EXPECT_FALSE(content.counts_refused());
}

// Frames of sub-buffers with one event each, behind a hello. {sequence, ring, index of the event}
struct Sent {
  u32 sequence;
  u16 ring;
  u64 first;
};
bool is_uncertain(const std::vector<Sent>& sent, u32 rings_at_end = 0) {
  FrameReader frames;
  StreamContent content;
  const auto frame = [&](FrameKind kind, u32 sequence, u16 ring, u64 first, u32 events, const void* payload, u32 bytes) {
    FrameHeader h{frame_sync, kind, ring, sequence, bytes, first, events, crc32(static_cast<const u8*>(payload), bytes), 0, 0};
    h.header_check = crc32(reinterpret_cast<const u8*>(&h), sizeof h - 4);
    frames.feed(reinterpret_cast<const u8*>(&h), sizeof h);
    frames.feed(static_cast<const u8*>(payload), bytes);
  };
  const StreamHello hello{stream_version, 2, 4096, 0, 1000};
  const u32 page[] = {100, 0, 8, 0, abi::event_word(1, 0), 0};
  u32 last = 0;
  frame(FrameKind::hello, 0, 0, 0, 0, &hello, sizeof hello);
  for (const Sent& s : sent) {
    frame(FrameKind::sub_buffer, s.sequence, s.ring, s.first, 1, page, sizeof page);
    last = s.sequence;
  }
  if (rings_at_end != 0) frame(FrameKind::end, last + 1, 0, 0, rings_at_end, nullptr, 0);
  for (Frame f; frames.next(f);) EXPECT_TRUE(content.take(f));
  return content.uncertain();
}

// New firmware on the same line counts its refused events, or no longer does; another clock is not comparable.
TEST(Streams, AHelloMayComeAgainWithOtherAbilities) {
  FrameReader frames;
  StreamContent content;
  u32 sequence = 0;
  const auto hello = [&](const StreamHello& its) {
    FrameHeader h{frame_sync, FrameKind::hello, 0, sequence++, sizeof its, 0, 0,
                  crc32(reinterpret_cast<const u8*>(&its), sizeof its), 0, 0};
    h.header_check = crc32(reinterpret_cast<const u8*>(&h), sizeof h - 4);
    frames.feed(reinterpret_cast<const u8*>(&h), sizeof h);
    frames.feed(reinterpret_cast<const u8*>(&its), sizeof its);
    Frame f;
    EXPECT_TRUE(frames.next(f));
    return content.take(f).has_value();
  };
  EXPECT_TRUE(hello({stream_version, 2, 4096, 0, 1000}));
  EXPECT_TRUE(hello({stream_version, 2, 4096, stream_counts_refused, 1000}));
  EXPECT_TRUE(hello({stream_version, 2, 4096, 0, 1000}));
  EXPECT_FALSE(hello({stream_version, 2, 4096, 0, 1001}));
  EXPECT_FALSE(hello({stream_version, 1, 4096, 0, 1000}));
  EXPECT_FALSE(hello({stream_version, 2, 8192, 0, 1000}));
}

TEST(Streams, MissingFramesThatNoGapAccountsForAreADoubt) {
  EXPECT_FALSE(is_uncertain({{1, 0, 0}, {2, 0, 1}, {3, 1, 0}}));
  EXPECT_FALSE(is_uncertain({{1, 0, 0}, {3, 0, 2}}));
  EXPECT_TRUE(is_uncertain({{1, 0, 0}, {3, 0, 1}, {4, 0, 2}})) << "ring 1's only frame, while ring 0 goes on";
  EXPECT_FALSE(is_uncertain({{1, 0, 0}, {3, 0, 1}, {4, 1, 1}})) << "ring 1's next frame tells";
  EXPECT_FALSE(is_uncertain({{1, 0, 0}, {3, 0, 1}}, 1)) << "there is no ring 1";
  EXPECT_TRUE(is_uncertain({{1, 0, 0}, {3, 0, 1}}, 2));
  EXPECT_TRUE(is_uncertain({{1, 0, 0}, {2, 1, 0}, {4, 0, 2}})) << "perhaps ring 1's newest";
}

TEST(Streams, FramesBeforeTheFirstOneAreMissing) {
  FrameReader frames;
  StreamHello hello{stream_version, 2, 4096, 0, 1000};
  for (const u32 sequence : {3u, 4u}) {
    FrameHeader h{frame_sync, FrameKind::hello, 0, sequence, sizeof hello, 0, 0,
                  crc32(reinterpret_cast<const u8*>(&hello), sizeof hello), 0, 0};
    h.header_check = crc32(reinterpret_cast<const u8*>(&h), sizeof h - 4);
    frames.feed(reinterpret_cast<const u8*>(&h), sizeof h);
    frames.feed(reinterpret_cast<const u8*>(&hello), sizeof hello);
  }
  StreamContent content;
  Frame f;
  ASSERT_TRUE(frames.next(f));
  EXPECT_EQ(f.missing, 3u);
  EXPECT_FALSE(f.anew);
  EXPECT_TRUE(content.take(f));
  ASSERT_TRUE(frames.next(f));
  EXPECT_EQ(f.missing, 0u);
  EXPECT_TRUE(content.take(f));
  EXPECT_TRUE(content.uncertain());
}

// Each of these headers claims the longest payload, of which all others are a part.
TEST(Streams, FalseLengthsCostLittle) {
  FrameHeader h{frame_sync, FrameKind::sub_buffer, 0, 0, most_frame_bytes, 0, 1, 0, 0, 0};
  h.header_check = crc32(reinterpret_cast<const u8*>(&h), sizeof h - 4);
  FrameReader frames;
  for (int k = 0; k < 100'000; ++k) frames.feed(reinterpret_cast<const u8*>(&h), sizeof h);
  Frame f;
  EXPECT_FALSE(frames.next(f, true));
  const auto bytes = Board().stream(100, 20);
  frames.feed(bytes.data(), bytes.size());
  EXPECT_TRUE(frames.next(f)) << "good frames behind them are found";
}

TEST(Streams, ContradictingFramesAreRefused) {
  Board board;
  const auto bytes = board.stream(100, 20);
  const auto refused = [&](size_t frame, auto change) {
    FrameReader frames;
    StreamContent content;
    std::string sentence;
    for (size_t k = 0; k + 1 < board.frames.size(); ++k) {
      std::vector<u8> one(bytes.begin() + static_cast<std::ptrdiff_t>(board.frames[k]),
                          bytes.begin() + static_cast<std::ptrdiff_t>(board.frames[k + 1]));
      if (k == frame) {
        FrameHeader h;
        std::memcpy(&h, one.data(), sizeof h);
        change(h, one);
        h.payload_check = crc32(one.data() + sizeof h, h.bytes);
        h.header_check = crc32(reinterpret_cast<const u8*>(&h), sizeof h - 4);
        std::memcpy(one.data(), &h, sizeof h);
      }
      frames.feed(one.data(), one.size());
      for (Frame f; frames.next(f);)
        if (auto view = content.take(f); !view && sentence.empty()) sentence = view.error().sentence;
    }
    return sentence;
  };
  using Bytes = std::vector<u8>;
  EXPECT_THAT(refused(0, [](FrameHeader&, Bytes& b) { b[40] = 9; }), HasSubstr("version 9"));
  EXPECT_THAT(refused(0, [](FrameHeader&, Bytes& b) { b[40 + 8] = 1; }), HasSubstr("hello"));
  EXPECT_THAT(refused(0, [](FrameHeader& h, Bytes&) { h.kind = FrameKind::end; }), HasSubstr("before any hello"));
  EXPECT_THAT(refused(1, [](FrameHeader&, Bytes& b) { b.back() = 'x'; }), HasSubstr("cut"));
  EXPECT_THAT(refused(1, [](FrameHeader&, Bytes& b) { b[40] = b[41] = 0; }), HasSubstr("impossible number"));
  EXPECT_THAT(refused(2, [](FrameHeader& h, Bytes&) { ++h.events; }), HasSubstr("other events"));
  EXPECT_THAT(refused(2, [](FrameHeader&, Bytes& b) { b[40 + 10] = 0x0F; }), HasSubstr("longer than its frame"));
  EXPECT_THAT(refused(2, [](FrameHeader&, Bytes& b) { b[40 + 16] = 0, b[40 + 20] = 1, b[40 + 21] = b[40 + 22] = 0; }),
              HasSubstr("left out"));
  EXPECT_THAT(refused(2, [](FrameHeader& h, Bytes&) { h.kind = static_cast<FrameKind>(77); }), HasSubstr("unknown kind 77"));
}

TEST(Streams, ChecksumsAreThoseOfEthernet) {
  EXPECT_EQ(crc32(reinterpret_cast<const u8*>("123456789"), 9), 0xCBF43926u);
}

}  // namespace
}  // namespace ringside::test::stream_test
