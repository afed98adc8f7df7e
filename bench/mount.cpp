// The mapping through `ringside mount` beside the kernel's own: what a GET_READER costs there, and how fast a client is.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/meta_page.hpp>
#include <thread>

#include "bench.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

constexpr u32 subbuf_size = 4096;
constexpr u64 events = 300'000;

// A server of its own, pinned as this process is; gone with the object.
class Mounted {
 public:
  Mounted() : dir_(std::filesystem::temp_directory_path() / ("ringside-bench-mount-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
    server_ = fork();
    if (server_ == 0) {
      execl(RINGSIDE_COMMAND, RINGSIDE_COMMAND, "mount", dir_.c_str(), nullptr);
      _exit(127);
    }
    struct statvfs st {};
    for (int i = 0; i < 500 && !ready_; ++i) {
      ready_ = access((dir_ + "/tracing_on").c_str(), F_OK) == 0 && statvfs(dir_.c_str(), &st) == 0;
      usleep(10000);
    }
  }
  ~Mounted() {
    kill(server_, SIGTERM);
    waitpid(server_, nullptr, 0);
    umount2(dir_.c_str(), MNT_DETACH);
    std::filesystem::remove(dir_);
  }
  bool ready() const { return ready_; }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
  pid_t server_ = -1;
  bool ready_ = false;
};

struct Client {
  sys::Fd fd;
  sys::Region all;
  const abi::MetaPage* meta = nullptr;
  u32 id = ~u32{0}, begin = 0;
  explicit Client(const std::string& cpu) : fd(::open((cpu + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    auto page = sys::Region::map(fd.get(), page_size, false, "the meta-page");
    if (!page) return;
    const auto* const first = reinterpret_cast<const abi::MetaPage*>(page->data());
    auto whole = sys::Region::map(fd.get(), u64{first->subbuf_size} * (first->nr_subbufs + 1), false, "the ring");
    if (!whole) return;
    all = std::move(*whole);
    meta = reinterpret_cast<const abi::MetaPage*>(all.data());
  }
  // One GET_READER, and a walk over the lengths of what it found: how many events. False: refused.
  bool step(u64& seen) {
    if (ioctl(fd.get(), abi::get_reader_ioctl) != 0) return false;
    const u32 now = meta->reader.id, end = meta->reader.read;
    if (now != id) begin = 0;
    abi::EventCursor c(all.data() + u64{meta->subbuf_size} * (now + 1) + abi::header_size, begin, end, 0);
    while (c.next()) ++seen;
    id = now;
    begin = end;
    return true;
  }
};

// Events per second of a client that maps, asks for each sub-buffer and walks the lengths of its events; 0: some were lost.
template <class Fill>
double consume(const std::string& cpu, Fill fill) {
  Client client(cpu);
  if (client.meta == nullptr || !fill()) return 0;
  u64 seen = 0;
  const u64 from = sys::now_ns();
  for (u32 empty = 0; empty < 2;) {
    const u64 before = seen;
    if (!client.step(seen)) break;
    empty = seen == before ? empty + 1 : 0;
  }
  const double rate = static_cast<double>(seen) * 1e9 / static_cast<double>(sys::now_ns() - from);
  return seen < events ? 0 : rate;
}

// The median cost of an event for its writer, in ns, over the batches written in `ms` milliseconds.
template <class Write>
double write_ns(int ms, Write write) {
  constexpr u64 batch = 1000;
  std::vector<double> cost;
  for (const u64 end = sys::now_ns() + static_cast<u64>(ms) * 1'000'000; sys::now_ns() < end;) {
    const u64 from = sys::now_ns();
    for (u64 k = 0; k < batch; ++k) write(k);
    cost.push_back(static_cast<double>(sys::now_ns() - from) / batch);
  }
  return median(std::move(cost));
}

double ioctl_ns(int fd, unsigned long number, int times) {
  const u64 from = sys::now_ns();
  for (int i = 0; i < times; ++i) (void)ioctl(fd, number);
  return static_cast<double>(sys::now_ns() - from) / times;
}

}  // namespace

void mount_rows(Instance& instance) {
  const char* const names[] = {"fuse.get_reader_over_ioctl", "fuse.map_events_per_s", "fuse.map_over_kernel",
                               "fuse.writer_cost"};
  const auto none = [&](const std::string& why) {
    for (const char* name : names) row(name, std::nullopt, "", why);
  };
  if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0) return none("wants root and /dev/fuse");
  if (!instance.resize(8 << 20, subbuf_size)) return none("the ring is in use");
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  const int here = sched_getcpu();
  pin(here);  // one processor: what the requests cost, not how long an idle one takes to wake
  // Events of 16 bytes, as those of trace_marker_raw are.
  const auto write_one = [](u64 k) {
    u64 payload[] = {0, k};
    return ringside_write(&::bench::pair.event, payload, sizeof payload);
  };
  const auto ours = [&] {
    for (u64 k = 0; k < events; ++k)
      if (!write_one(k)) return false;
    return true;
  };
  bool filled = ours();  // and so this thread has a ring of that size
  u32 ring = 0;
  for (const RingInfo& r : instance.rings())
    if (r.live && r.name.tid == sys::gettid()) ring = r.name.ring;
  {
    const Mounted mounted;
    TracefsOptions options;
    options.prefix = "ringside-bench-";
    options.buffer_size = 10 << 20;
    options.subbuf_size = subbuf_size;
    options.clock = ClockKind::mono;
    auto kernel = TracefsInstance::create(options);
    if (!mounted.ready() || !filled) {
      none("cannot mount");
    } else {
      const std::string cpu = mounted.dir() + "/instances/" + instance.name() + "/per_cpu/cpu" + std::to_string(ring);
      std::vector<double> ratio, us, rate, theirs, over;
      const sys::Fd marker(kernel ? ::open((kernel->dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC) : -1);
      const auto kernels = [&] {
        const u32 id_and_data[2] = {1, 2};
        for (u64 k = 0; k < events; ++k)
          if (::write(marker.get(), id_and_data, sizeof id_and_data) != sizeof id_and_data) return false;
        return true;
      };
      if (kernel) (void)kernel->tracing(true);
      for (int i = 0; i < (quick ? 3 : 9); ++i) {
        {
          const sys::Fd fd(::open((cpu + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
          const double empty = ioctl_ns(fd.get(), 0, 2000), asking = ioctl_ns(fd.get(), abi::get_reader_ioctl, 2000);
          ratio.push_back(asking / empty);
          us.push_back(asking / 1000);
        }
        rate.push_back(consume(cpu, ours));
        if (!kernel) continue;
        theirs.push_back(consume(kernel->dir() + "/per_cpu/cpu" + std::to_string(here), kernels));
        if (theirs.back() > 0) over.push_back(rate.back() / theirs.back());
      }
      row(names[0], median(ratio), "x",
          text("GET_READER beside command 0, which does nothing, through the mount; %.1f us", median(us)));
      row(names[1], median(rate), "1/s", "a mapping client, 4 KiB sub-buffers, on one processor with the server");
      if (over.empty())
        row(names[2], std::nullopt, "x", kernel ? "the kernel lost events" : kernel.error().sentence);
      else
        row(names[2], median(over), "x",
            text("the same client on the kernel's mapping, same events: %.1f M/s", median(theirs) / 1e6));
    }
  }
  // The writer has a processor, the server and its client share another one. Both are busy either way: processors that are two
  // threads of one core slow each other down, whatever they do. So once the client follows the writer, once a ring that nobody
  // writes to.
  int other = -1;
  for (int n = 0; n < CPU_SETSIZE && other < 0; ++n)
    if (n != here && CPU_ISSET(n, &before)) other = n;
  if (other < 0) {
    row(names[3], std::nullopt, "x", "one processor only");
  } else {
    pin(other);
    const Mounted mounted;
    pin(here);
    const sys::Fd marker(::open((mounted.dir() + "/trace_marker").c_str(), O_WRONLY | O_CLOEXEC));
    bool possible = ::write(marker.get(), "x", 1) == 1;
    const auto beside = [&](const std::string& cpu) {
      std::atomic<int> state{0};
      u64 seen = 0;
      std::thread client([&] {
        pin(other);
        Client c(cpu);
        u64 mine = 0;  // not on the writer's stack: each step would take its cache line
        for (state = c.meta != nullptr ? 1 : -1; state == 1 && c.step(mine);) {
        }
        seen = mine;
      });
      while (state == 0) usleep(100);
      const double cost = write_ns(20, write_one);
      state = -1;
      client.join();
      possible = possible && seen != 0;
      return cost;
    };
    std::vector<double> ratio, followed, not_followed;
    for (int i = 0; possible && i < (quick ? 5 : 25); ++i) {
      const std::string in_ring = "/per_cpu/cpu" + std::to_string(ring);
      followed.push_back(beside(mounted.dir() + "/instances/" + instance.name() + in_ring));
      if (::write(marker.get(), "x", 1) != 1) possible = false;
      not_followed.push_back(beside(mounted.dir() + "/per_cpu/cpu0"));
      ratio.push_back(followed.back() / not_followed.back());
    }
    if (!possible)
      row(names[3], std::nullopt, "x", "nobody could follow");
    else
      row(names[3], median(ratio), "x",
          text("an event of a writer whose ring a client follows without a pause, over one beside a client of another ring: "
               "%.1f and %.1f ns",
               median(followed), median(not_followed)));
  }
  sched_setaffinity(0, sizeof before, &before);
  for (int i = 0; i < 100 && !instance.resize(8 << 20, 16384); ++i) usleep(10000);  // the server's last mapping goes with it
}

}  // namespace bench
