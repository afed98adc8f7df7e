// A peer that writes anything anywhere: the test starts from a ring with events, then flips words of both regions between the
// calls of reader, iterator, counters, recovery and writer. No access may leave the two regions, and every call must end.
#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/iterate.hpp>
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>

#include <cstdlib>
#include <cstring>

using namespace ringside;

namespace {
struct Clock {
  u64 n = 0;
  u64 now() noexcept { return n += 3; }
};

void walk(const u8* data, u32 begin, u32 end) {
  abi::EventCursor c(data, begin, end, 0);
  while (c.next()) {
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size < 2) return 0;
  Ring ring{Geometry(4096, 3 + input[0] % 4)};
  const u64 control_bytes = control_size(ring.geometry), data_bytes = ring.geometry.data_size();
  ring.control = static_cast<Control*>(std::aligned_alloc(64, (control_bytes + 63) / 64 * 64));
  ring.data = static_cast<u8*>(std::aligned_alloc(4096, data_bytes));
  std::memset(static_cast<void*>(ring.control), 0, control_bytes);
  std::memset(ring.data, 0, data_bytes);
  ring.control->mode = input[1] & 1;
  Writer<Clock> writer(ring, Clock{});
  Reader<> reader(ring);
  char payload[512] = {};
  for (int i = 0; i < input[1]; ++i) writer.write(payload, static_cast<u32>(i) * 7 % 400);
  auto* buffer = static_cast<u8*>(std::aligned_alloc(8, ring.geometry.subbuf_size()));
  for (size_t at = 2; at + 4 <= size; at += 4) {
    const u32 where = input[at + 1] | u32{input[at + 2]} << 8;
    const u64 value = input[at + 3];
    switch (input[at] % 9) {
      case 0: writer.write(payload, where % 500); break;
      case 1:
        if (reader.get_reader(value & 1) == Got::data) walk(reader.data(), reader.view().begin, reader.view().end);
        break;
      case 2: {
        Iterator<> it(ring, buffer);
        for (int i = 0; i < 64 && it.next() == Got::data; ++i) walk(buffer + 16, it.view().begin, it.view().end);
        break;
      }
      case 3: counters<>(ring); break;
      case 4: recover<>(ring); break;
      case 5: reader.mend(); break;
      case 6: {  // a word of control becomes anything
        auto* words = reinterpret_cast<u64*>(ring.control);
        const u64 n = control_bytes / 8;
        words[where % n] = value < 64    ? u64{1} << value
                           : value < 128 ? ~u64{0} >> (value - 64)
                                         : words[(where + value) % n] ^ value;
        break;
      }
      case 7: reinterpret_cast<u32*>(ring.data)[where % (data_bytes / 4)] = static_cast<u32>(value * 0x01010101u); break;
      case 8:
        if (reader.peek() == Got::data) {
          walk(reader.data(), reader.view().begin, reader.view().end);
          reader.consume();
        }
        break;
    }
  }
  std::free(buffer);
  std::free(ring.data);
  std::free(ring.control);
  return 0;
}
