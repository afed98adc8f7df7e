// A place that is reserved and forgotten would hold up the ring.
// expects: nodiscard
#include <ringside/ring/writer.hpp>

struct Clock {
  ringside::u64 now() noexcept { return 0; }
};

void call(ringside::Writer<Clock>& writer) {
#ifdef WRONG
  writer.reserve(8);
#else
  writer.discard(writer.reserve(8));
#endif
}
