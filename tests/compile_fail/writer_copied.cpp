// A ring has one writer.
// expects: (use of deleted function|call to deleted constructor)
#include <ringside/ring/writer.hpp>

struct Clock {
  ringside::u64 now() noexcept { return 0; }
};

void call(ringside::Writer<Clock>& writer) {
#ifdef WRONG
  ringside::Writer<Clock> other = writer;
#else
  ringside::Writer<Clock>& other = writer;
#endif
  (void)other.write(nullptr, 0);
}
