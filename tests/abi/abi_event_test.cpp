// Lengths and headers of events, equal to the kernel's.
#include <gtest/gtest.h>

#include "writer/ring_pages.hpp"

namespace ringside::test::abi_event_test {
namespace {

// Largest payload of a length, and that length: measured on Linux 6.18, or by the rule in between.
struct Length {
  u32 payload, total, type_len;
};
constexpr Length lengths[] = {
    {4, 8, 1},     {12, 16, 3},   {16, 20, 4},   {20, 24, 5},   {24, 28, 6},    {28, 32, 7},    {32, 36, 8},    {36, 40, 9},
    {40, 44, 10},  {44, 48, 11},  {48, 52, 12},  {52, 56, 13},  {56, 60, 14},   {60, 64, 15},   {64, 68, 16},   {68, 72, 17},
    {72, 76, 18},  {76, 80, 19},  {80, 84, 20},  {84, 88, 21},  {88, 92, 22},   {92, 96, 23},   {96, 100, 24},  {100, 104, 25},
    {104, 108, 26}, {108, 112, 27}, {112, 116, 28}, {116, 124, 0}, {120, 128, 0}, {124, 132, 0}, {128, 136, 0}, {132, 140, 0},
};
const Length& length_of(u32 payload) {
  const Length* l = lengths;
  while (l->payload < payload) ++l;
  return *l;
}

TEST(AbiEvent, Lengths) {
  for (u32 payload = 0; payload <= 130; ++payload) {
    const Length& want = length_of(payload);
    EXPECT_EQ(abi::event_size(payload), want.total) << payload;
    EXPECT_EQ(abi::payload_offset(want.total), want.type_len == 0 ? 8u : 4u) << payload;
  }
  EXPECT_EQ(abi::event_size(208), 216u);
  EXPECT_EQ(abi::event_size(212), 220u);
  EXPECT_EQ(abi::largest_payload(4080), 4072u);
  EXPECT_EQ(abi::event_size(4072), 4080u);
  EXPECT_GT(abi::event_size(4073), 4080u);
}

// Each length as the writer writes it over stale memory: header word, array[0], payload, zeros in the rounding.
TEST(AbiEvent, BytesOfEachLength) {
  for (u32 payload = 0; payload <= 130; ++payload) {
    TestRing t(3, false, 4096, 0, 0xEE);
    const Length& want = length_of(payload);
    std::vector<u8> text(payload);
    for (u32 i = 0; i < payload; ++i) text[i] = static_cast<u8>(i + 1);
    ASSERT_TRUE(t.writer.write(text.data(), payload));
    t.time += 3;
    ASSERT_TRUE(t.writer.write(text.data(), payload));

    std::string expected = "e8 03 00*6 ";
    const auto word = [&expected](u32 v) {
      for (int i = 0; i < 4; ++i) {
        constexpr const char* digits = "0123456789abcdef";
        const u32 byte = v >> (8 * i) & 255;
        expected += {digits[byte >> 4], digits[byte & 15], ' '};
      }
    };
    word(2 * want.total);
    word(0);
    for (u32 delta : {0u, 3u}) {
      word(want.type_len | delta << 5);
      if (want.type_len == 0) word(want.total - 4);
      const u32 room = want.total - (want.type_len == 0 ? 8 : 4);
      for (u32 i = 0; i < room; i += 4) {
        u32 v = 0;
        if (i < payload) std::memcpy(&v, &text[i], payload - i < 4 ? payload - i : 4);
        word(v);
      }
    }
    word(0xEEEEEEEE);
    const std::string whole = hex_page(expected);
    EXPECT_EQ(t.bytes(1, 16 + 2 * want.total + 4), whole) << payload;
  }
}

TEST(AbiEvent, LargestOnEachSubBufferSize) {
  for (u32 size = abi::smallest_subbuf; size <= abi::largest_subbuf; size *= 2) {
    TestRing t(3, false, size);
    const u32 most = t.ring.geometry.largest_payload();
    EXPECT_EQ(most, size - 24);
    std::vector<u8> text(most + 1, 0x5A);
    EXPECT_EQ(t.writer.reserve(most + 1).why, Refused::too_big);
    EXPECT_EQ(t.writer.reserve(~u32{0}).why, Refused::too_big);
    EXPECT_EQ(t.ring.control->nest, 0u);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(t.writer.write(text.data(), most));
    EXPECT_EQ(t.commit_word(1), u64{size} - 16);
    ASSERT_EQ(t.reader.get_reader(), Got::data);
    abi::EventCursor c(t.reader.data(), t.reader.view().begin, t.reader.view().end, 0);
    ASSERT_TRUE(c.next());
    EXPECT_EQ(c.payload().size, most);
    EXPECT_EQ(c.payload().data[most - 1], 0x5A);
    EXPECT_FALSE(c.next());
    EXPECT_EQ(c.malformed(), abi::Malformed::no);
    const RingCounters n = counters<>(t.ring);
    EXPECT_EQ(n.dropped + n.commit_overrun, 0u);  // an event that can never fit is no loss
  }
}

TEST(AbiEvent, CommitWord) {
  EXPECT_EQ(abi::commit_size(0xFFFFFFFF'C0000FD8), 0xFD8u);
  EXPECT_EQ(abi::commit_size(0x00000000'C0000FD8), 0xFD8u);
  EXPECT_TRUE(abi::commit_missed(0xFFFFFFFF'80000FF0));
  EXPECT_FALSE(abi::commit_stored(0xFFFFFFFF'80000FF0));
  EXPECT_TRUE(abi::commit_stored(0xC0000FD8));
  EXPECT_FALSE(abi::commit_missed(0x40000FD8));
  EXPECT_EQ(0xFD8 + abi::missed_events + abi::missed_stored, 0xFFFFFFFF'C0000FD8);
  EXPECT_EQ(abi::final_commit(4080, 4080), 4080u);
  EXPECT_EQ(abi::final_commit(4076, 4080), 4076u);  // a padding word, outside
  EXPECT_EQ(abi::final_commit(4072, 4080), 4080u);  // a padding event, inside
}

}  // namespace
}  // namespace ringside::test::abi_event_test
