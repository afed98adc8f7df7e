// Any payload, printed by lines that take lengths, indices, divisors and widths from it. The input is the number of a line and
// the payload.
#include <cstdlib>
#include <iterator>

#include "hostile_formats.hpp"

using namespace ringside;

namespace {

struct World {
  Formats formats;
  World() {
    u16 id = 0;
    for (const char* const print : test::hostile_formats) formats.add(id, "s", "x", test::hostile_format(id, print)), ++id;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const World world;
  if (size == 0) return 0;
  const std::vector<u8> payload(bytes + 1, bytes + size);  // a sanitizer checks its end
  fmt::memory_buffer line;
  world.formats.print(*world.formats.find(static_cast<u32>(bytes[0] % std::size(test::hostile_formats))),
                      {payload.data(), payload.size()}, line);
  if (line.size() > 4096 + 32 * size) std::abort();  // text from nowhere
  return 0;
}
