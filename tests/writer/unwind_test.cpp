// Walks over stacks: the same frames as the C library's unwinder, however the last walk went; and no harm from stacks that
// cannot be.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <setjmp.h>

#include <random>
#include <vector>

#include "writer/unwind.hpp"

namespace ringside {
namespace {

struct Compared {
  std::mt19937_64 random{7};
  u64 walks = 0, different = 0, same_number = 0;
  std::vector<u64> last;
  u64 last_id = 0;
};

[[gnu::noinline]] void compare(Compared& c) {
  From from;
  RS_HERE(from.at);
  from.until = reinterpret_cast<u64>(__builtin_return_address(0));
  void* truth[most_frames];
  const int n = backtrace(truth, most_frames);
  const WalkMemory memory;
  ASSERT_NE(memory.get(), nullptr);
  walk_stack(*memory.get(), from, most_frames);
  std::vector<u64> frames;
  for (u32 i = 0; i < memory.get()->frames; ++i) frames.push_back(memory.get()->frame(i));
  std::vector<u64> expected;
  for (int i = 0; i < n; ++i)  // a sanitizer has a frame of its own inside
    if (const u64 frame = reinterpret_cast<u64>(truth[i]); frame == from.until || !expected.empty()) expected.push_back(frame);
  ++c.walks;
  c.different += frames != expected;
  c.same_number += (memory.get()->id == c.last_id) != (frames == c.last);
  c.last = frames;
  c.last_id = memory.get()->id;
}

void branch(Compared& c, int depth);
[[gnu::noinline]] void plain(Compared& c, int depth) {
  branch(c, depth);
  asm volatile("");
}
[[gnu::noinline]] void roomy(Compared& c, int depth) {
  volatile char* const room = static_cast<volatile char*>(__builtin_alloca(c.random() % 3000 + 16));
  room[0] = 1;
  branch(c, depth);
  branch(c, depth - 3);
  asm volatile("" ::"r"(room));
}
[[gnu::noinline]] void aligned(Compared& c, int depth) {
  alignas(64) volatile char room[100];
  room[5] = 1;
  branch(c, depth);
  asm volatile("" ::"r"(room));
}
[[gnu::noinline]] void branch(Compared& c, int depth) {
  if (depth <= 0) return;
  if (c.random() % 3 == 0) compare(c);
  switch (c.random() % 4) {
    case 0: roomy(c, depth - 1); break;
    case 1: aligned(c, depth - 1); break;
    case 2: plain(c, depth - 1); plain(c, depth - 2); break;
    default: branch(c, depth - 1); asm volatile(""); break;
  }
  if (c.random() % 3 == 0) compare(c);
}

TEST(Unwind, TheSameAsTheCLibrarys) {
  ready_unwind();
  Compared c;
  while (c.walks < 5000) branch(c, 24);
  EXPECT_EQ(c.different, 0u) << "of " << c.walks;
  EXPECT_EQ(c.same_number, 0u) << "a number stands for its frames";
  forget_rules();
  branch(c, 24);
  EXPECT_EQ(c.different, 0u);
}

// Registers and stacks that a damaged program has: the walk ends, and says why.
TEST(Unwind, GarbageDoesNoHarm) {
  ready_unwind();
  std::mt19937_64 random(11);
  std::vector<u64> stack(4096);
  const u64 begin = reinterpret_cast<u64>(stack.data());
  const u64 code[] = {reinterpret_cast<u64>(&compare) + 5,
                      reinterpret_cast<u64>(&roomy) + 20,
                      reinterpret_cast<u64>(&aligned) + 20,
                      reinterpret_cast<u64>(&backtrace) + 9,
                      0,
                      ~u64{0},
                      8,
                      begin};
  u64 ends[4] = {};
  for (int n = 0; n < 20000; ++n) {
    const auto value = [&]() -> u64 {
      switch (random() % 5) {
        case 0: return begin + random() % (stack.size() * 8) / 8 * 8;
        case 1: return code[random() % std::size(code)] + random() % 40;
        case 2: return random();
        case 3: return random() & 0x7FFFFFFFFFF8;
        default: return random() % 4096;
      }
    };
    for (int i = 0; i < 64; ++i) stack[random() % stack.size()] = value();
    From from;
    from.at = {code[random() % std::size(code)] + random() % 200, begin + random() % 2048 * 8, value(), value()};
    from.exact = random() % 2 == 0;
    if (random() % 8 == 0) from.at.sp = value();
    const WalkMemory memory;
    walk_stack(*memory.get(), from, most_frames);
    ASSERT_LE(memory.get()->frames, most_frames);
    ++ends[static_cast<u32>(memory.get()->end)];
  }
  EXPECT_GT(ends[static_cast<u32>(StackEnd::bad_frame)], 0u);
  EXPECT_GT(ends[static_cast<u32>(StackEnd::no_table)], 0u);
}

[[gnu::noinline]] void leave_a_walk(jmp_buf& back, const StackWalk*& got) {
  const WalkMemory memory;
  got = memory.get();
  longjmp(back, 1);
}

// A handler may leave the call that it interrupted, again and again at the same place.
TEST(Unwind, AWalkThatWasLeftHoldsNoMemory) {
  static jmp_buf back;
  static const StackWalk* got;
  static volatile int times = 0;
  while (times < 5) {
    if (setjmp(back) == 0) leave_a_walk(back, got);
    ASSERT_NE(got, nullptr) << times;
    times = times + 1;
  }
}

TEST(Unwind, AnyBytesAreAnExpression) {
  std::mt19937_64 random(13);
  for (int n = 0; n < 100000; ++n) {
    u8 code[24];
    for (u8& byte : code) byte = static_cast<u8>(random());
    u64 result = 0;
    (void)evaluate(
        code, random() % sizeof code, {1, 2, 3, 4}, random() % 2 == 0, 5,
        [](void*, u64, u64& value) noexcept { return value = 6, true; }, nullptr, result);
  }
#if defined(__x86_64__)
  u64 result = 0;
  const u8 plt[] = {0x77, 8,    0x80, 0,    0x3F, 0x1A,
                    0x3B, 0x2A, 0x33, 0x24, 0x22};  // of a PLT entry: sp + 8 + ((pc & 15) >= 11) * 8
  const LoadWord none = [](void*, u64, u64&) noexcept { return false; };
  EXPECT_TRUE(evaluate(plt, sizeof plt, {0x100B, 1000, 0, 0}, false, 0, none, nullptr, result));
  EXPECT_EQ(result, 1016u);
  EXPECT_TRUE(evaluate(plt, sizeof plt, {0x100A, 1000, 0, 0}, false, 0, none, nullptr, result));
  EXPECT_EQ(result, 1008u);
#endif
}

}  // namespace
}  // namespace ringside
