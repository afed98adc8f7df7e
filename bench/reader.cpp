// Reading 16-byte events: swap and walk in place, against read() of the live kernel's ring and the same walk.
#include <fcntl.h>
#include <ringside/abi/event_cursor.hpp>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.hpp"
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

// A tracefs instance with one ring that holds what is written to its raw marker.
class KernelRing {
 public:
  KernelRing() : path_("/sys/kernel/tracing/instances/ringside-bench-" + std::to_string(getpid())) {
    if (access("/sys/kernel/tracing/instances", F_OK) != 0) mount("nodev", "/sys/kernel/tracing", "tracefs", 0, nullptr);
    made_ = mkdir(path_.c_str(), 0700) == 0;
    cpu_ = sched_getcpu();
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &before_);
    CPU_ZERO(&set);
    CPU_SET(cpu_, &set);
    sched_setaffinity(0, sizeof set, &set);
    ready_ = made_ && put("/buffer_subbuf_size_kb", std::to_string(subbuf_size / 1024)) && put("/buffer_size_kb", "10240");
    marker_ = sys::Fd(::open((path_ + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC));
    pipe_ = sys::Fd(::open((path_ + "/per_cpu/cpu" + std::to_string(cpu_) + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  ~KernelRing() {
    marker_ = {};
    pipe_ = {};
    sched_setaffinity(0, sizeof before_, &before_);
    if (made_) rmdir(path_.c_str());
  }
  bool ready() const { return ready_ && marker_ && pipe_; }
  // Events per second of read() and walk.
  double run() {
    const u32 id_and_data[2] = {1, 2};  // with the 8 common bytes: 16
    for (u64 k = 0; k < events; ++k)
      if (::write(marker_.get(), id_and_data, sizeof id_and_data) != sizeof id_and_data) return 0;
    std::vector<u64> buffer(subbuf_size / 8);
    auto* const bytes = reinterpret_cast<u8*>(buffer.data());
    Walked w;
    const u64 from = sys::now_ns();
    while (::read(pipe_.get(), bytes, subbuf_size) > 0)
      w.walk(bytes + abi::header_size, 0, static_cast<u32>(buffer[1] & abi::commit_mask), buffer[0]);
    return w.events < events ? 0 : per_second(w, from);
  }

 private:
  bool put(const char* file, const std::string& value) { return sys::write_file(path_ + file, value).has_value(); }
  std::string path_;
  bool made_ = false, ready_ = false;
  int cpu_ = 0;
  cpu_set_t before_;
  sys::Fd marker_, pipe_;
};

}  // namespace

void reader_rows() {
  KernelRing kernel;
  std::vector<double> rate, kernels, ratio;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    rate.push_back(ours());
    if (!kernel.ready()) continue;
    kernels.push_back(kernel.run());
    ratio.push_back(kernels.back() > 0 ? rate.back() / kernels.back() : 0);
  }
  row("reader.events_per_s", median(rate), "1/s", "swap and walk in place, one byte of each payload read");
  if (ratio.empty())
    row("reader.over_kernel_read", std::nullopt, "x", "no tracefs here, or no right to make an instance in it");
  else
    row("reader.over_kernel_read", median(ratio), "x", text("read() of trace_pipe_raw and the same walk: %.0f M/s", median(kernels) / 1e6));
}

}  // namespace bench
