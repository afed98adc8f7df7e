#include "kernel/kernel_source.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ringside/abi/meta_page.hpp>

#include "source/image.hpp"
#include "source/mapped.hpp"

namespace ringside {
namespace {

constexpr u32 largest_subbuf = 512 * 1024;  // of the kernel, which is more than of ours

std::string cpu_file(const KernelRing& ring, const char* name) {
  return ring.dir + "/per_cpu/cpu" + std::to_string(ring.cpu) + "/" + name;
}

// "buffer_subbuf_size_kb" came with 6.8; before it, sub-buffers were pages.
result<u32> subbuf_size_of(const std::string& dir) {
  auto text = sys::read_file(dir + "/buffer_subbuf_size_kb");
  if (!text && text.error().code == std::errc::no_such_file_or_directory) return static_cast<u32>(page_size);
  if (!text) return tl::unexpected<Error>(text.error());
  const u64 size = std::strtoull(text->c_str(), nullptr, 10) * 1024;
  if (!is_power_of_two(size) || size < abi::smallest_subbuf || size > largest_subbuf)
    return refuse(std::errc::bad_message, dir + "/buffer_subbuf_size_kb says \"" + *text + "\", which cannot be");
  return static_cast<u32>(size);
}

result<sys::Fd> open_raw(const KernelRing& ring) {
  const std::string path = cpu_file(ring, "trace_pipe_raw");
  sys::Fd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd) return fd;
  if (errno == EACCES || errno == EPERM) return fail(errno, "cannot read " + path + " (tracing the kernel needs root)");
  return fail(errno, "cannot open " + path);
}

result<bool> wait_for(int fd, std::chrono::nanoseconds timeout) {
  pollfd p{fd, POLLIN, 0};
  const i64 ns = std::max<i64>(timeout.count(), 0);
  const timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
  const int n = ppoll(&p, 1, &t, nullptr);
  if (n < 0) return fail(errno, "waiting for the kernel's ring");
  return n > 0;
}

// Sees to it that all losses together are the kernel's overrun. A sub-buffer without room for the number of missed events says
// only that there were some: then the overrun counter says how many since the last. It may have moved on past this sub-buffer;
// what it ran ahead is taken off the next number, so the sum is right again at the last gap.
class Losses {
 public:
  explicit Losses(const KernelRing& ring) {
    const auto before = kernel_counters(ring);
    if (before && before->read != 0) told_ = before->overrun;  // else all of it is still to be told
  }
  template <class Overrun>
  void settle(SubBufferView& view, Overrun overrun) {
    if (view.lost_before == 0) return;
    const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(view.sub_buffer);
    const bool exact = abi::commit_stored(header.commit);
    if (!exact || ahead_) {
      const u64 now = overrun();
      const u64 untold = now > told_ ? now - told_ : 0;
      view.lost_before = exact ? std::min(view.lost_before, untold) : untold;
      ahead_ = true;
    }
    told_ += view.lost_before;
  }

 private:
  u64 told_ = 0;
  bool ahead_ = false;
};

class KernelRead final : public KernelSource {
 public:
  KernelRead(KernelRing ring, sys::Fd fd, u32 subbuf_size, const ClockInfo& clock)
      : ring_(std::move(ring)), fd_(std::move(fd)), clock_(clock), losses_(ring_), buffer_(subbuf_size / 8) {
    name_.ring = ring_.cpu;
    name_.kernel = true;
  }

  result<std::optional<SubBufferView>> next() override {
    const size_t size = buffer_.size() * 8;
    const ssize_t n = ::read(fd_.get(), buffer_.data(), size);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (n < 0) return fail(errno, "cannot read " + path());
    if (n == 0) return std::nullopt;
    SubBufferView view;
    if (static_cast<size_t>(n) != size ||
        !view_image(reinterpret_cast<const u8*>(buffer_.data()), size, static_cast<u32>(size), view))
      return refuse(std::errc::bad_message, path() + " gave " + std::to_string(n) + " bytes that are no sub-buffer of " +
                                                std::to_string(size) + " (was its size changed while it was read?)");
    losses_.settle(view, [this] { return counters().overrun; });
    return view;
  }
  result<bool> wait(std::chrono::nanoseconds timeout) override { return wait_for(fd_.get(), timeout); }
  int fd() const override { return fd_.get(); }
  Counters counters() const override { return kernel_counters(ring_).value_or(Counters{}); }
  const RingName& name() const override { return name_; }
  const ClockInfo& clock() const override { return clock_; }
  bool ended() const override { return false; }

 private:
  std::string path() const { return cpu_file(ring_, "trace_pipe_raw"); }

  KernelRing ring_;
  sys::Fd fd_;
  RingName name_;
  ClockInfo clock_;
  Losses losses_;
  std::vector<u64> buffer_;  // one for all sub-buffers: it stays in the cache
};

class KernelGetReader {
 public:
  KernelGetReader(KernelRing ring, sys::Fd fd) : ring_(std::move(ring)), fd_(std::move(fd)) {}
  result<ReaderStep> get_reader() {
    if (ioctl(fd_.get(), abi::get_reader_ioctl) == 0 || errno == EINTR || errno == EAGAIN) return ReaderStep{};
    return fail(errno, "cannot get the next sub-buffer of " + cpu_file(ring_, "trace_pipe_raw"));
  }
  // The percentage is the instance's buffer_percent.
  result<bool> wait(int, std::chrono::nanoseconds timeout) { return wait_for(fd_.get(), timeout); }
  std::optional<Counters> counters() const {
    auto counters = kernel_counters(ring_);
    return counters ? std::optional<Counters>(*counters) : std::nullopt;
  }
  int fd() const { return fd_.get(); }

 private:
  KernelRing ring_;
  sys::Fd fd_;
};

class KernelMap final : public KernelSource {
 public:
  using Mapped = MappedSource<KernelGetReader>;
  KernelMap(const KernelRing& ring, Mapped mapped) : mapped_(std::move(mapped)), losses_(ring) {}
  result<std::optional<SubBufferView>> next() override {
    auto view = mapped_.next();
    if (view && *view) losses_.settle(**view, [this] { return mapped_.meta().overrun; });
    return view;
  }
  result<bool> wait(std::chrono::nanoseconds timeout) override { return mapped_.wait(0, timeout); }
  int fd() const override { return mapped_.get().fd(); }
  Counters counters() const override { return mapped_.counters(); }
  const RingName& name() const override { return mapped_.name(); }
  const ClockInfo& clock() const override { return mapped_.clock(); }
  bool ended() const override { return false; }

 private:
  Mapped mapped_;
  Losses losses_;
};

result<std::unique_ptr<KernelSource>> map_ring(const KernelRing& ring, sys::Fd fd, const ClockInfo& clock) {
  const std::string what = cpu_file(ring, "trace_pipe_raw");
  auto first = sys::Region::map(fd.get(), page_size, false, what);
  if (!first) return tl::unexpected<Error>(first.error());
  const auto& meta = *reinterpret_cast<const abi::MetaPage*>(first->data());
  const Geometry geometry(meta.subbuf_size, meta.nr_subbufs);
  if (!geometry.valid() || meta.meta_page_size != meta.subbuf_size)
    return refuse(std::errc::not_supported, what + " has " + std::to_string(meta.nr_subbufs) + " sub-buffers of " +
                                                std::to_string(meta.subbuf_size) + " bytes; ringside maps 3 or more of 4 to 256 KiB");
  auto whole = sys::Region::map(fd.get(), geometry.data_size(), false, what);
  if (!whole) return tl::unexpected<Error>(whole.error());
  KernelMap::Mapped::Options options;
  options.name.ring = ring.cpu;
  options.name.kernel = true;
  options.clock = clock;
  return std::make_unique<KernelMap>(
      ring, KernelMap::Mapped(std::move(*whole), geometry, KernelGetReader(ring, std::move(fd)), std::move(options)));
}

// "seconds.micros" or plain ticks, by the instance's clock.
u64 time_from(const char* text) {
  char* end = nullptr;
  const u64 whole = std::strtoull(text, &end, 10);
  return *end == '.' ? whole * 1'000'000'000 + std::strtoull(end + 1, nullptr, 10) * 1000 : whole;
}

}  // namespace

const char* to_string(KernelWay way) noexcept { return way == KernelWay::read ? "read" : "map"; }

result<std::unique_ptr<KernelSource>> open_kernel_ring(const KernelRing& ring, const ClockInfo& clock, KernelWay way) {
  auto fd = open_raw(ring);
  if (!fd) return tl::unexpected<Error>(fd.error());
  if (way == KernelWay::map) return map_ring(ring, std::move(*fd), clock);
  auto size = subbuf_size_of(ring.dir);
  if (!size) return tl::unexpected<Error>(size.error());
  return std::make_unique<KernelRead>(ring, std::move(*fd), *size, clock);
}

result<Counters> kernel_counters(const KernelRing& ring) {
  auto text = sys::read_file(cpu_file(ring, "stats"));
  if (!text) return tl::unexpected<Error>(text.error());
  auto subbuf_size = subbuf_size_of(ring.dir);
  if (!subbuf_size) return tl::unexpected<Error>(subbuf_size.error());
  const auto line = [&](const char* name) -> const char* {
    const std::string key = std::string(name) + ": ";
    const size_t at = text->rfind("\n" + key);
    if (at != std::string::npos) return text->c_str() + at + 1 + key.size();
    return text->compare(0, key.size(), key) == 0 ? text->c_str() + key.size() : "0";
  };
  const auto number = [&](const char* name) { return std::strtoull(line(name), nullptr, 10); };
  Counters c;
  c.unread = number("entries");
  c.overrun = number("overrun");
  c.commit_overrun = number("commit overrun");
  c.bytes = number("bytes");
  c.dropped = number("dropped events");
  c.read = number("read events");
  c.written = c.unread + c.overrun + c.read;
  c.oldest_time = time_from(line("oldest event ts"));
  c.subbuf_size = *subbuf_size;
  const u64 capacity = *subbuf_size - abi::header_size;
  if (auto kb = sys::read_file(cpu_file(ring, "buffer_size_kb"))) {
    const u64 slots = (std::strtoull(kb->c_str(), nullptr, 10) * 1024 + capacity - 1) / capacity;  // shown rounded down
    c.nr_subbufs = slots + 1;
    c.capacity_bytes = slots * capacity;
    c.resident_bytes = c.nr_subbufs * c.subbuf_size;
  }
  return c;
}

std::vector<u32> kernel_cpus(const std::string& instance_dir) {
  std::vector<u32> cpus;
  DIR* d = opendir((instance_dir + "/per_cpu").c_str());
  if (d == nullptr) return cpus;
  while (const dirent* entry = readdir(d)) {
    unsigned cpu = 0;
    if (std::sscanf(entry->d_name, "cpu%9u", &cpu) == 1) cpus.push_back(cpu);
  }
  closedir(d);
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

}  // namespace ringside
