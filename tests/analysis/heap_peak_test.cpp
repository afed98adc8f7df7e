// What was held at the highest point, beside a computation that keeps every state of the heap.
#include "analysis/heap_peak.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ringside::heap_peak_test {
namespace {

struct Block {
  u32 root = 0, stack = 0;
  u64 bytes = 0;
};
using Held = std::map<std::pair<u32, u32>, std::pair<u64, u64>>;  // by stack: bytes, blocks

Held of(const std::vector<Block>& blocks) {
  Held held;
  for (const Block& b : blocks) held[{b.root, b.stack}].first += b.bytes, ++held[{b.root, b.stack}].second;
  return held;
}

TEST(HeapPeak, IsTheFirstOfTheHighestPoints) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    HeapPeak peak;
    std::map<i64, std::vector<Block>> live;
    std::map<i64, std::pair<u64, Held>> highest;
    std::map<i64, u64> at;
    for (u64 time = 1; time <= 500; ++time) {
      const i64 process = random() % 2;
      auto& blocks = live[process];
      const bool grows = random() % 100 < (time < 200 ? 70 : 40);
      if (blocks.empty() || grows) {
        blocks.push_back({static_cast<u32>(random() % 2), static_cast<u32>(random() % 5), random() % 100});
        peak.add(process, time, blocks.back().root, blocks.back().stack, blocks.back().bytes);
      } else {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        peak.free(process, time, blocks.back().root, blocks.back().stack, blocks.back().bytes);
        blocks.pop_back();
      }
      u64 sum = 0;
      for (const Block& b : blocks) sum += b.bytes;
      if (sum > highest[process].first) highest[process] = {sum, of(blocks)}, at[process] = time;
    }
    const HeapPeak::Highest found = peak.highest();
    EXPECT_EQ(found.bytes, std::max(highest[0].first, highest[1].first));
    EXPECT_EQ(found.time, at[found.process]);
    Fold fold;
    for (const Block& b : live[found.process]) fold.add(b.root, b.stack, b.bytes);
    peak.undo(found.process, fold);
    EXPECT_EQ(fold.weight(), found.bytes);
    EXPECT_EQ(fold.count(), found.blocks);
    Held held;
    fold.each([&](const Fold::Cell& cell) { held[{cell.root, cell.stack}] = {cell.weight, cell.count}; });
    EXPECT_EQ(held, highest[found.process].second);
  }
}

TEST(HeapPeak, ChangesSinceThenStayFew) {
  HeapPeak peak;
  peak.add(1, 1, 0, 1, 1000);
  for (u64 time = 2; time < 1'200'000; ++time) {
    peak.free(1, time, 0, 1, 10);
    peak.add(1, time, 0, 1, 10);
  }
  Fold fold;
  fold.add(0, 1, 1000);
  peak.undo(1, fold);
  EXPECT_EQ(fold.weight(), 1000u);
  EXPECT_EQ(peak.highest().time, 1u);
}

}  // namespace
}  // namespace ringside::heap_peak_test
