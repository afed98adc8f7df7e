#include "kernel/kernel_source.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <ringside/abi/meta_page.hpp>
#include <set>
#include <utility>

#include "source/mapped.hpp"
#include "source/sub_buffer_copy.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u32 largest_subbuf = 512 * 1024;  // the kernel's largest, larger than ringside's

std::string cpu_file(const KernelRing& ring, const char* name) {
  return ring.dir + "/per_cpu/cpu" + std::to_string(ring.cpu) + "/" + name;
}

// "buffer_subbuf_size_kb" came with 6.8; before it, sub-buffers were pages.
result<u32> subbuf_size_of(const std::string& dir) {
  auto text = sys::read_file(dir + "/buffer_subbuf_size_kb");
  if (!text && text.error().code == std::errc::no_such_file_or_directory) return static_cast<u32>(sys::page_bytes());
  if (!text) return tl::unexpected<Error>(text.error());
  const u64 size = std::strtoull(text->c_str(), nullptr, 10) * 1024;
  if (!is_power_of_two(size) || size < abi::smallest_subbuf || size > largest_subbuf)
    return refuse(std::errc::bad_message, dir + "/buffer_subbuf_size_kb contains \"" + *text + "\", which is no possible size");
  return static_cast<u32>(size);
}

result<sys::Fd> open_raw(const KernelRing& ring) {
  const std::string path = cpu_file(ring, "trace_pipe_raw");
  sys::Fd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd) return fd;
  if (errno == EACCES || errno == EPERM)
    return fail(errno, "cannot read " + path + " (the kernel is traced only " + sys::as_root() + ")");
  return fail(errno, "cannot open " + path);
}

result<bool> wait_for(int fd, std::chrono::nanoseconds timeout) {
  pollfd p{fd, POLLIN, 0};
  const i64 ns = std::max<i64>(timeout.count(), 0);
  const timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
  int n = ppoll(&p, 1, &t, nullptr);
  if (n > 0 && (p.revents & POLLIN) == 0) n = ppoll(nullptr, 0, &t, nullptr);  // no ring yet: poll() returns at once
  if (n < 0) return fail(errno, "waiting for the kernel's ring");
  return n > 0;
}

// Makes the sum of all losses equal the kernel's overrun. A sub-buffer without room for the number of missed events says only
// that there were some: then the overrun counter gives the number since the last gap. The counter may have moved on past this
// sub-buffer; that excess is subtracted from the next number, so the sum is right again at the last gap.
class Losses {
 public:
  explicit Losses(const KernelRing& ring) {
    const auto before = kernel_counters(ring);
    if (before && before->read != 0) told_ = before->overrun;  // else all of the overrun is still to be reported
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
      view.lost_at_least = false;
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
      : ring_(std::move(ring)), fd_(std::move(fd)), losses_(ring_), buffer_(subbuf_size / 8) {
    name_.ring = ring_.cpu;
    name_.kernel = true;
    clock_ = clock;
  }

  result<std::optional<SubBufferView>> next() override {
    if (std::exchange(again_, false)) return last_;
    const size_t size = buffer_.size() * 8;
    const ssize_t n = ::read(fd_.get(), buffer_.data(), size);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENODEV)) return std::nullopt;  // ENODEV: no ring yet
    if (n < 0) return fail(errno, "cannot read " + path());
    if (n == 0) return std::nullopt;
    SubBufferView view;
    if (static_cast<size_t>(n) != size ||
        !view_copy(reinterpret_cast<const u8*>(buffer_.data()), size, static_cast<u32>(size), view))
      return refuse(std::errc::bad_message, path() + " gave " + std::to_string(n) + " bytes that are no sub-buffer of " +
                                                std::to_string(size) + " (was its size changed while it was read?)");
    losses_.settle(view, [this] { return counters().overrun; });
    return last_ = view;
  }
  void put_back() override { again_ = true; }
  result<bool> wait(std::chrono::nanoseconds timeout) override { return wait_for(fd_.get(), timeout); }
  int fd() const override { return fd_.get(); }
  KernelWay way() const override { return KernelWay::read; }
  Counters counters() const override { return kernel_counters(ring_).value_or(Counters{}); }
  bool ended() const override { return false; }

 private:
  std::string path() const { return cpu_file(ring_, "trace_pipe_raw"); }

  KernelRing ring_;
  sys::Fd fd_;
  Losses losses_;
  std::vector<u64> buffer_;  // one for all sub-buffers: it stays in the cache
  SubBufferView last_{};
  bool again_ = false;
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
  KernelMap(const KernelRing& ring, Mapped mapped) : mapped_(std::move(mapped)), losses_(ring) {
    name_ = mapped_.name();
    clock_ = mapped_.clock();
  }
  result<std::optional<SubBufferView>> next() override {
    if (std::exchange(again_, false)) return last_;
    auto view = mapped_.next();
    if (view && !*view) view = mapped_.next();  // the first may only have reached the end of the reader page: the second swaps
    if (view && *view) {
      losses_.settle(**view, [this] { return mapped_.meta().overrun; });
      last_ = **view;
    }
    return view;
  }
  void put_back() override { again_ = true; }
  result<bool> wait(std::chrono::nanoseconds timeout) override { return mapped_.wait(0, timeout); }
  int fd() const override { return mapped_.get().fd(); }
  KernelWay way() const override { return KernelWay::map; }
  Counters counters() const override { return mapped_.counters(); }
  bool ended() const override { return false; }

 private:
  Mapped mapped_;
  Losses losses_;
  SubBufferView last_{};
  bool again_ = false;
};

result<std::unique_ptr<KernelSource>> map_ring(const KernelRing& ring, sys::Fd fd, const ClockInfo& clock) {
  const std::string what = cpu_file(ring, "trace_pipe_raw");
  auto first = RS_TRY(sys::Region::map(fd.get(), page_size, false, what));
  const auto& meta = *reinterpret_cast<const abi::MetaPage*>(first.data());
  const Geometry geometry(meta.subbuf_size, meta.nr_subbufs);
  if (!geometry.valid() || meta.meta_page_size != meta.subbuf_size)
    return refuse(std::errc::not_supported, what + " has " + std::to_string(meta.nr_subbufs) + " sub-buffers of " +
                                                std::to_string(meta.subbuf_size) +
                                                " bytes; ringside maps 3 or more of 4 to 256 KiB");
  auto whole = RS_TRY(sys::Region::map(fd.get(), geometry.data_size(), false, what));
  KernelMap::Mapped::Options options;
  options.name.ring = ring.cpu;
  options.name.kernel = true;
  options.clock = clock;
  return std::make_unique<KernelMap>(
      ring, KernelMap::Mapped(std::move(whole), geometry, KernelGetReader(ring, std::move(fd)), std::move(options)));
}

// A CPU that has not been online since the instance was made has all its files, but no ring: no event ever came and reading
// fails with ENODEV.
bool has_ring(const KernelRing& ring) {
  const auto fd = open_raw(ring);
  u64 nothing[2];  // too few bytes for an event: nothing is consumed
  return !fd || ::read(fd->get(), nothing, sizeof nothing) >= 0 || errno != ENODEV;
}

std::string why_not_mapped(const Error& error) {
  const std::string why = error.code == std::errc::no_such_device           ? "this kernel cannot map them (Linux 6.10 can)"
                          : error.code == std::errc::device_or_resource_busy ? "a snapshot of the instance is in use"
                                                                             : error.sentence;
  return "the kernel's rings are read and not mapped: " + why;
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
  auto fd = RS_TRY(open_raw(ring));
  if (way == KernelWay::map) return map_ring(ring, std::move(fd), clock);
  auto size = RS_TRY(subbuf_size_of(ring.dir));
  return std::make_unique<KernelRead>(ring, std::move(fd), size, clock);
}

result<KernelRings> open_kernel_rings(const std::string& dir, const std::vector<u32>& cpus, const ClockInfo& clock,
                                      const KernelChoice& choice) {
  KernelRings rings;
  KernelWay way = choice.forced.value_or(choice.better);
  for (const u32 cpu : cpus) {
    auto source = open_kernel_ring({dir, cpu}, clock, way);
    if (!source && way == KernelWay::map) {
      // A missing ring cannot be mapped, but it will be readable once it exists.
      const bool no_ring = source.error().code == std::errc::invalid_argument && !has_ring({dir, cpu});
      if (!no_ring && choice.forced) return tl::unexpected<Error>(source.error());
      if (!no_ring) {
        rings.notice = why_not_mapped(source.error());
        way = KernelWay::read;
      }
      source = open_kernel_ring({dir, cpu}, clock, KernelWay::read);
    }
    if (!source) return tl::unexpected<Error>(source.error());
    rings.sources.push_back(std::move(*source));
  }
  return rings;
}

std::vector<KernelConsumer> kernel_consumers(const std::string& dir) {
  std::map<std::pair<dev_t, ino_t>, u32> files;
  for (const u32 cpu : kernel_cpus(dir)) {
    struct stat st {};
    if (stat(cpu_file({dir, cpu}, "trace_pipe_raw").c_str(), &st) == 0) files[{st.st_dev, st.st_ino}] = cpu;
  }
  std::vector<KernelConsumer> all;
  for (const std::string& pid : names_in("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::set<u32> seen;
    for (const std::string& number : names_in("/proc/" + pid + "/fd")) {
      const std::string link = "/proc/" + pid + "/fd/" + number;
      const std::string target = sys::link_text(link);
      // Only then call stat(), which may take long on other file systems.
      if (!target.ends_with("/trace_pipe_raw")) continue;
      struct stat st {};
      if (stat(link.c_str(), &st) != 0) continue;
      const auto file = files.find({st.st_dev, st.st_ino});
      if (file == files.end() || !seen.insert(file->second).second) continue;
      const auto maps = sys::read_file("/proc/" + pid + "/maps");
      char comm[16] = {};
      sys::comm_of(std::stoi(pid), std::stoi(pid), comm);
      const bool mapped = maps && maps->find(target + "\n") != std::string::npos;
      all.push_back({file->second, std::stoi(pid), comm, mapped ? KernelWay::map : KernelWay::read});
    }
  }
  return all;
}

result<Counters> kernel_counters(const KernelRing& ring) {
  auto text = RS_TRY(sys::read_file(cpu_file(ring, "stats")));
  auto subbuf_size = RS_TRY(subbuf_size_of(ring.dir));
  const auto line = [&](const char* name) -> const char* {
    const std::string key = std::string(name) + ": ";
    const size_t at = text.rfind("\n" + key);
    if (at != std::string::npos) return text.c_str() + at + 1 + key.size();
    return text.compare(0, key.size(), key) == 0 ? text.c_str() + key.size() : "0";
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
  c.subbuf_size = subbuf_size;
  const u64 capacity = subbuf_size - abi::header_size;
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
  for (const std::string& name : names_in(instance_dir + "/per_cpu")) {
    unsigned cpu = 0;
    if (std::sscanf(name.c_str(), "cpu%9u", &cpu) == 1) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  DIR* const open = opendir(dir.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<i32> numbers_in(const std::string& dir) {
  std::vector<i32> out;
  for (const std::string& name : names_in(dir))
    if (const int n = std::atoi(name.c_str()); n > 0) out.push_back(n);
  return out;
}

}  // namespace ringside
