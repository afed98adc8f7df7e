// Hostile bytes as the data of a sub-buffer: the cursor stays inside, goes forward and ends.
#include <ringside/abi/event_cursor.hpp>

#include <cstdlib>
#include <cstring>
#include <vector>

using namespace ringside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 5) return 0;
  u32 begin = bytes[0] * 4u;
  std::vector<u32> words((size - 1) / 4);  // exactly as long as the readable data, so that a read of one byte more is detected
  std::memcpy(words.data(), bytes + 1, words.size() * 4);
  const auto end = static_cast<u32>(words.size() * 4);
  if (begin > end) begin = end;
  abi::EventCursor c(reinterpret_cast<const u8*>(words.data()), begin, end, 12345);
  u32 last = begin;
  u64 sum = 0;
  while (c.next()) {
    if (c.position() <= last || c.position() > end) std::abort();
    last = c.position();
    const Bytes p = c.payload();
    for (size_t i = 0; i < p.size; ++i) sum += p.data[i];
  }
  return sum == 1 ? 1 : 0;
}
