// A program whose own events are USDT probes. Its values stand in registers, in memory and in the code.
#define RINGSIDE_USDT
#include <ringside/trace.hpp>

#include <cstdlib>

enum class Colour : short { red = -3 };

RINGSIDE_EVENT(shop, order, (u32, id), (i64, balance), (double, total), (cstring, customer), (ringside::array<u8, 4>, code),
               (bool, paid), (Colour, colour));
RINGSIDE_EVENT(shop, none);
RINGSIDE_EVENT(shop, wide, (u8, a1), (u16, a2), (i16, a3), (i32, a4), (u64, a5), (const void*, a6), (u8, a7), (u8, a8),
               (u8, a9), (u8, a10), (u8, a11), (u8, a12));
RINGSIDE_EVENT(shop, wider, (u8, a1), (u8, a2), (u8, a3), (u8, a4), (u8, a5), (u8, a6), (u8, a7), (u8, a8), (u8, a9), (u8, a10),
               (u8, a11), (u8, a12), (u8, a13));

template <class T>
[[gnu::noinline]] void from_a_template(T value) {
  shop::order(7, value, 0.5, "template", {1, 2, 3, 4}, false, Colour::red);
}

int main(int count, char** words) {
  const unsigned rounds = count > 1 ? static_cast<unsigned>(std::atoi(words[1])) : 3;
  for (unsigned i = 0; i < rounds; ++i)
    shop::order(i, -long{i}, 1.5 * i, "Ada", {1, 2, 3, static_cast<unsigned char>(i)}, i % 2 != 0, Colour::red);
  from_a_template(1);
  from_a_template(2L);
  shop::none();
  shop::wide(1, 2, -3, -4, 5, nullptr, 7, 8, 9, 10, 11, static_cast<unsigned char>(count));
  shop::wider(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
}
