// Reading 16-byte events: swap and walk in place, against the live kernel's rings, read and mapped, and the same walk.
#include <fcntl.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/meta_page.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <sched.h>
#include <sys/ioctl.h>
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
  void walk_lengths(const u8* data, u32 at, u32 end) noexcept {
    while (at < end) {
      u32 word[2];
      __builtin_memcpy(word, data + at, sizeof word);
      const u32 type = word[0] & 31;
      if (type == 0 || (type > 0 && type < 29)) {
        ++events;
        sum += data[at + (type == 0 ? 8 : 4)];
      }
      at += type == 0 || type == 29 ? 4 + word[1] : type < 29 ? 4 + 4 * type : 8;
    }
  }
};

double per_second(const Walked& w, u64 from) {
  return static_cast<double>(w.events) * 1e9 / static_cast<double>(sys::now_ns() - from);
}

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
    auto source = must(open_kernel_ring({instance_.dir(), cpu()}, ClockInfo{}, way));
    if (!fill()) return 0;
    Walked w;
    const u64 from = sys::now_ns();
    while (const auto view = must(source->next()))
      w.walk(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
    return w.events < events ? 0 : per_second(w, from);
  }
  // The same system calls and nothing around them: no losses, no checks, a walk that knows lengths and nothing of time.
  double run_bare(KernelWay way) {
    const sys::Fd fd(::open((instance_.dir() + "/per_cpu/cpu" + std::to_string(cpu()) + "/trace_pipe_raw").c_str(),
                            O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const auto mapped = way == KernelWay::map ? sys::Region::map(fd.get(), page_size, false, "the meta-page") : sys::Region();
    const abi::MetaPage* meta = way == KernelWay::map ? reinterpret_cast<const abi::MetaPage*>(mapped->data()) : nullptr;
    const auto data =
        meta ? sys::Region::map(fd.get(), Geometry(meta->subbuf_size, meta->nr_subbufs).data_size(), false, "the ring")
             : sys::Region();
    if (!fill()) return 0;
    Walked w;
    const u64 from = sys::now_ns();
    if (meta == nullptr) {
      std::vector<u64> buffer(subbuf_size / 8);
      const auto* const image = reinterpret_cast<const u8*>(buffer.data());
      while (::read(fd.get(), buffer.data(), subbuf_size) == subbuf_size)
        w.walk_lengths(image + abi::header_size, 0, abi::commit_size(buffer[1]));
    } else {
      for (u32 empty = 0, id = ~0u, begin = 0; empty < 2 && ioctl(fd.get(), abi::get_reader_ioctl) == 0;) {
        const auto* const image = data->data() + meta->meta_page_size + u64{meta->reader.id} * subbuf_size;
        const u32 end = meta->reader.read;
        if (meta->reader.id != id) begin = 0;
        empty = end == begin ? empty + 1 : 0;
        w.walk_lengths(image + abi::header_size, begin, end);
        id = meta->reader.id;
        begin = end;
      }
    }
    return w.events < events ? 0 : per_second(w, from);
  }

 private:
  static u32 cpu() { return static_cast<u32>(sched_getcpu()); }
  bool fill() {
    const u32 id_and_data[2] = {1, 2};  // with the 8 common bytes: 16
    for (u64 k = 0; k < events; ++k)
      if (::write(marker_.get(), id_and_data, sizeof id_and_data) != sizeof id_and_data) return false;
    return true;
  }
  explicit KernelRing(TracefsInstance instance)
      : instance_(std::move(instance)),
        marker_(::open((instance_.dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC)) {}
  TracefsInstance instance_;
  sys::Fd marker_;
};

}  // namespace

void reader_rows() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(sched_getcpu());  // the marker's events stay in one ring
  auto kernel = KernelRing::make();
  std::vector<double> rate, read, map, over, ways, bare_read, bare_map, read_ratio, map_ratio;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    rate.push_back(ours());
    if (!kernel) continue;
    read.push_back(kernel->run(KernelWay::read));
    map.push_back(kernel->run(KernelWay::map));
    bare_read.push_back(kernel->run_bare(KernelWay::read));
    bare_map.push_back(kernel->run_bare(KernelWay::map));
    read_ratio.push_back(read.back() / bare_read.back());
    map_ratio.push_back(map.back() / bare_map.back());
    over.push_back(rate.back() / read.back());
    ways.push_back(read.back() / map.back());
  }
  sched_setaffinity(0, sizeof before, &before);
  row("reader.events_per_s", median(rate), "1/s", "swap and walk in place, one byte of each payload read");
  if (!kernel) {
    row("reader.over_kernel_read", std::nullopt, "x", kernel.error().sentence);
    return;
  }
  row("reader.over_kernel_read", median(over), "x",
      text("read() of trace_pipe_raw and the same walk: %.0f M/s", median(read) / 1e6));
  row("kernel.read_events_per_s", median(read), "1/s", "the kernel's ring by read(), walked");
  row("kernel.map_events_per_s", median(map), "1/s", "the kernel's ring by its mapping, walked");
  row("kernel.read_over_bare", median(read_ratio), "x",
      text("a bare loop of the same system calls: %.0f M/s", median(bare_read) / 1e6));
  row("kernel.map_over_bare", median(map_ratio), "x",
      text("a bare loop of the same system calls: %.0f M/s", median(bare_map) / 1e6));
  row("kernel.read_over_map", median(ways), "x",
      text("the kernel's ring by read() against its mapping: %.0f M/s", median(map) / 1e6));
}

}  // namespace bench
