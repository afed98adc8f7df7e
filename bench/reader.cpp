// Reading 16-byte events: swap and walk in place, against the live kernel's rings, read and mapped, and the same walk.
#include <fcntl.h>
#include <ringside/abi/event_cursor.hpp>
#include <sched.h>
#include <unistd.h>

#include "bench.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

constexpr u32 subbuf_size = 65536;
constexpr u64 events = 300000;

struct Walked {
  u64 events = 0, sum = 0;  // one byte of each payload is read
  void walk(const u8* data, u32 begin, u32 end, u64 time) noexcept {
    abi::EventCursor c(data, begin, end, time);
    while (c.next()) {
      ++events;
      sum += c.payload().data[0];
    }
  }
};

double per_second(const Walked& w, u64 from) { return static_cast<double>(w.events) * 1e9 / static_cast<double>(sys::now_ns() - from); }

double ours() {
  LocalRing local(subbuf_size, 257);
  Writer<Tsc> writer(local.ring, Tsc{});
  for (u64 k = 0; k < events; ++k) write_pair(writer, k, k);
  Reader<> reader(local.ring);
  Walked w;
  const u64 from = sys::now_ns();
  while (reader.get_reader(false) == Got::data) {
    const ReaderView& v = reader.view();
    w.walk(reader.data(), v.begin, v.end, local.ring.header(v.id).time_stamp);
  }
  return w.sum == 1 ? 0 : per_second(w, from);
}

// A tracefs instance of our own, and what is written to its raw marker read in both ways.
class KernelRing {
 public:
  static result<KernelRing> make() {
    TracefsOptions options;
    options.prefix = "ringside-bench-";
    options.buffer_size = 10 << 20;
    options.subbuf_size = subbuf_size;
    auto instance = TracefsInstance::create(options);
    if (!instance) return tl::unexpected<Error>(instance.error());
    KernelRing ring(std::move(*instance));
    if (!ring.marker_) return fail(errno, "cannot open trace_marker_raw");
    if (auto on = ring.instance_.tracing(true); !on) return tl::unexpected<Error>(on.error());
    return ring;
  }
  // Events per second of a consumer and the walk; 0: some were lost.
  double run(KernelWay way) {
    const u32 id_and_data[2] = {1, 2};  // with the 8 common bytes: 16
    const auto cpu = static_cast<u32>(sched_getcpu());
    auto source = must(open_kernel_ring({instance_.dir(), cpu}, ClockInfo{}, way));
    for (u64 k = 0; k < events; ++k)
      if (::write(marker_.get(), id_and_data, sizeof id_and_data) != sizeof id_and_data) return 0;
    Walked w;
    const u64 from = sys::now_ns();
    while (const auto view = must(source->next())) w.walk(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
    return w.events < events ? 0 : per_second(w, from);
  }

 private:
  explicit KernelRing(TracefsInstance instance)
      : instance_(std::move(instance)), marker_(::open((instance_.dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC)) {}
  TracefsInstance instance_;
  sys::Fd marker_;
};

}  // namespace

void reader_rows() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(sched_getcpu());  // the marker's events stay in one ring
  auto kernel = KernelRing::make();
  std::vector<double> rate, read, map, over, ways;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    rate.push_back(ours());
    if (!kernel) continue;
    read.push_back(kernel->run(KernelWay::read));
    map.push_back(kernel->run(KernelWay::map));
    over.push_back(rate.back() / read.back());
    ways.push_back(read.back() / map.back());
  }
  sched_setaffinity(0, sizeof before, &before);
  row("reader.events_per_s", median(rate), "1/s", "swap and walk in place, one byte of each payload read");
  if (!kernel) {
    row("reader.over_kernel_read", std::nullopt, "x", kernel.error().sentence);
    return;
  }
  row("reader.over_kernel_read", median(over), "x", text("read() of trace_pipe_raw and the same walk: %.0f M/s", median(read) / 1e6));
  row("kernel.read_over_map", median(ways), "x", text("the kernel's ring by read() against its mapping: %.0f M/s", median(map) / 1e6));
}

}  // namespace bench
