// A trace.dat of any bytes: parsed, then read to its end through the merge. Nothing outside the bytes is read, and work and
// memory are bounded by their number.
#include <cstdlib>
#include <cstring>

#include "source/trace_dat_file.hpp"
#include "timeline/merge.hpp"

using namespace ringside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  auto bytes = std::make_shared<TraceDatBytes>();
  const std::unique_ptr<u8[]> copy(new u8[size]);  // of exactly this length: a read of one byte beyond is detected
  if (size != 0) std::memcpy(copy.get(), input, size);
  bytes->path = "fuzz";
  bytes->data = copy.get();
  bytes->size = size;
  auto dat = read_trace_dat(bytes);
  if (!dat) return 0;
  Timeline timeline(std::move(dat->rings));
  TraceRecord record;
  u64 payload = 0;
  while (timeline.next(record)) {
    payload += record.payload.size + 1;
  }
  if (bytes->decompressed == 0 && payload > 2 * size) std::abort();  // events from nowhere
  return 0;
}
