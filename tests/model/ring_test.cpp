// The real writer and reader, searched completely within small bounds.
#include <gtest/gtest.h>

#include "ring_model.hpp"

namespace ringside::model {
namespace {

using M = Explored;

auto writer_and_reader(Shape shape, std::initializer_list<u32> sizes, u32 reads, u32 handlers = 0, u32 handler_size = half) {
  return [=, sizes = std::vector<u32>(sizes)](World& world) {
    Model<> m(world, shape);
    world.spawn("writer", [=] {
      for (u32 size : sizes) m.write(size);
    });
    if (handlers != 0) world.signal("writer", [=] { m.write(handler_size); }, handlers);
    world.spawn("reader", [=] {
      for (u32 i = 0; i < reads; ++i) m.read();
    });
    world.after([=] { m.balance(); });
  };
}

TEST(Ring, Sizes) {
  for (u32 p = 1; p <= 2; ++p)
    for (u32 s = 0; s <= 1; ++s)
      for (u32 w = 2; w <= 4; ++w) {
        std::initializer_list<u32> l2 = {most, most}, l3 = {most, most, most}, l4 = {most, most, most, most};
        Result r = explore({.preemptions = p, .stale = s, .seconds = 10}, writer_and_reader({.subbufs = 3}, w == 2 ? l2 : w == 3 ? l3 : l4, 2));
        std::cout << p << " " << s << " " << w << ": " << r;
      }
}

}  // namespace
}  // namespace ringside::model
