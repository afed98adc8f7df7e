// Bytes from a line. Half of the runs correct the checksums, so that the code after their check is reached.
#include <cstring>
#include <vector>

#include "remote/stream.hpp"

using namespace ringside;
using namespace ringside::remote;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size < 2) return 0;
  std::vector<u8> bytes(input + 2, input + size);
  if (input[0] % 2 != 0)
    for (size_t at = 0; at + sizeof(FrameHeader) <= bytes.size();) {
      FrameHeader h;
      std::memcpy(&h, &bytes[at], sizeof h);
      h.sync = frame_sync;
      h.bytes %= 4200;
      if (bytes.size() - at - sizeof h < h.bytes) break;
      h.payload_check = crc32(bytes.data() + at + sizeof h, h.bytes);
      h.header_check = crc32(reinterpret_cast<const u8*>(&h), sizeof h - sizeof h.header_check);
      std::memcpy(&bytes[at], &h, sizeof h);
      at += sizeof h + h.bytes;
    }
  FrameReader frames;
  StreamContent content;
  const size_t chunk = 1 + input[1] * 16;
  for (size_t at = 0; at < bytes.size(); at += chunk) {
    frames.feed(bytes.data() + at, bytes.size() - at < chunk ? bytes.size() - at : chunk);
    for (Frame f; frames.next(f, at + chunk >= bytes.size());) {
      auto view = content.take(f);
      if (!view || !*view) continue;
      abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, 0);
      while (c.next()) {
      }
    }
  }
  (void)content.clock().to_ns(12345);
  return 0;
}
