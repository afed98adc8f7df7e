// External writers: an event against a local ring's, a swap asked of a writer process against a bare round trip over a socket,
// and what a consumer reads a second of a writer process against a local ring.
#include <ringside/remote/process_writer.hpp>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "bench.hpp"
#include "remote/process.hpp"
#include "source/mapped.hpp"
#include "sys/sys.hpp"
#include "timeline/merge.hpp"

namespace bench {
namespace {

using namespace remote;

struct Pair {
  u64 common, a;
};

std::unique_ptr<Process> attach(const std::string& path, u64 size, u32 subbuf_size) {
  Process::Options options;
  options.buffer.size = size;
  options.buffer.subbuf_size = subbuf_size;
  options.buffer.clock.kind = ClockKind::tsc;
  usleep(5000);  // the child looks each millisecond whether the reader before has gone
  for (int tries = 0;; ++tries) {
    auto p = Process::attach(path, options);
    if (p || tries == 1000) return must(std::move(p));
    usleep(1000);
  }
}

// A process: an external writer of `events` events for each reader, and an echo on a bare socket.
struct Child {
  int bare = -1;
  pid_t pid = -1;
  std::string path;

  explicit Child(u64 events) : path("/dev/shm/ringside-bench-remote-" + std::to_string(getpid())) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return;
    bare = pair[0];
    pid = fork();
    if (pid != 0) {
      ::close(pair[1]);
      return;
    }
    ::close(pair[0]);
    std::thread([fd = pair[1]] {
      char bytes[32];
      while (recv(fd, bytes, sizeof bytes, 0) > 0 && send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {
      }
      _exit(0);
    }).detach();
    ProcessWriter<> writer({path, {}});
    for (;;) {
      auto* ring = writer.ring(0);
      for (u64 k = 0; ring != nullptr && k < events;) {
        const Pair pair_of{1, k};
        if (ring->write(&pair_of, sizeof pair_of)) ++k;
        else if (writer.ring(0) != ring) break;
      }
      while (ring != nullptr && ring->enabled()) usleep(1000);  // until this reader has gone
      usleep(1000);
    }
  }
  ~Child() {
    if (bare >= 0) ::close(bare);
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      unlink(path.c_str());
    }
  }
};

void event_row() {
  const std::string path = "/dev/shm/ringside-bench-event-" + std::to_string(getpid());
  ProcessWriter<Tsc> writer({path, {}});
  auto reader = attach(path, 1 << 20, 16384);
  must(reader->enable(true));
  LocalRing local(16384, 65);
  Writer<Tsc> own(local.ring, Tsc{});
  constexpr u64 events = 2000, blocks = 50;  // short blocks in turn: what else the machine does hits both
  std::vector<double> ratio, here, there;
  for (int i = 0; i < (quick ? 15 : 61); ++i) {
    u64 a = 0, b = 0;
    for (u64 block = 0; block < blocks; ++block) {
      const u64 from = sys::now_ns();
      for (u64 k = 0; k < events; ++k) write_pair(own, k, 1);
      const u64 between = sys::now_ns();
      for (u64 k = 0; k < events; ++k)
        if (auto* ring = writer.ring(0)) write_pair(*ring, k, 1);
      a += between - from;
      b += sys::now_ns() - between;
    }
    here.push_back(static_cast<double>(a) / (events * blocks));
    there.push_back(static_cast<double>(b) / (events * blocks));
    ratio.push_back(there.back() / here.back());
  }
  row("remote.event16_over_local", median(ratio), "x",
      text("%.2f ns in a writer process against %.2f ns, its attachment looked up each time", median(there), median(here)));
}

void swap_row() {
  constexpr u64 pages = 1500;
  Child child(pages * 150);
  char bytes[32] = {};
  std::vector<double> ratio, swaps, trips;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    auto reader = attach(child.path, pages * 4080, 4096);
    auto source = must(reader->buffer().source(0));
    must(reader->enable(true));
    while (source->counters().written < pages * 150) usleep(1000);
    u64 n = 0;
    u64 from = sys::now_ns();
    while (must(source->next())) ++n;
    const double swap = static_cast<double>(sys::now_ns() - from) / static_cast<double>(n + 1);
    from = sys::now_ns();
    for (u64 k = 0; k < n; ++k)
      if (send(child.bare, bytes, sizeof bytes, 0) < 0 || recv(child.bare, bytes, sizeof bytes, 0) < 0) return;
    const double trip = static_cast<double>(sys::now_ns() - from) / static_cast<double>(n);
    ratio.push_back(swap / trip);
    swaps.push_back(swap / 1000);
    trips.push_back(trip / 1000);
  }
  row("remote.swap_over_roundtrip", median(ratio), "x",
      text("%.1f us a sub-buffer asked of a process, %.1f us a bare round trip, on one processor", median(swaps),
           median(trips)));
}

double per_second(Timeline& timeline, u64 from_ns) {
  TraceRecord record;
  u64 n = 0, sum = 0;
  while (timeline.next(record)) {
    ++n;
    sum += record.payload.data[8];
  }
  return sum == 1 ? 0 : static_cast<double>(n) * 1e9 / static_cast<double>(sys::now_ns() - from_ns);
}

// A ring of this process as a source, as the commands read one.
struct OwnGetReader {
  Reader<> reader;
  result<ReaderStep> get_reader() {
    const Got got = reader.get_reader(false);
    const ReaderState at = reader.state();
    return ReaderStep{true, reader_of(at.page).id, static_cast<u32>(at.bytes), got == Got::data ? reader.view().lost_before : 0,
                      false};
  }
  result<bool> wait(int, std::chrono::nanoseconds) { return false; }
};

void read_row() {
  constexpr u32 subbuf_size = 262144;
  constexpr u64 events = 1000000, size = u64{100} * subbuf_size;
  Child child(events);
  std::vector<double> ratio, here, there;
  for (int i = 0; i < (quick ? 5 : 11); ++i) {
    {
      auto reader = attach(child.path, size, subbuf_size);
      auto source = must(reader->buffer().source(0));
      must(reader->enable(true));
      while (source->counters().written < events) usleep(1000);
      Timeline timeline;
      timeline.add(std::move(source));
      there.push_back(per_second(timeline, sys::now_ns()));
    }
    const sys::Fd fd(memfd_create("bench", MFD_CLOEXEC));
    const Geometry g(subbuf_size, subbufs_for(size, subbuf_size));
    if (ftruncate(fd.get(), static_cast<off_t>(g.data_size())) != 0) return;
    auto region = must(sys::Region::map(fd.get(), g.data_size(), true, "bench"));
    std::vector<u64> control(control_size(g) / 8 + 8);
    Ring ring{g, reinterpret_cast<Control*>(align_up(reinterpret_cast<u64>(control.data()), u64{64})), region.data()};
    // As for any consumer: written by another thread, and mapped anew.
    std::thread([&] {
      Writer<Tsc> writer(ring, Tsc{});
      for (u64 k = 0; k < events; ++k) write_pair(writer, k, 1);
    }).join();
    auto mapped = must(sys::Region::map(fd.get(), g.data_size(), false, "bench"));
    Timeline timeline;
    MappedSource<OwnGetReader>::Options options;
    options.clock.kind = ClockKind::tsc;
    timeline.add(std::make_unique<MappedSource<OwnGetReader>>(std::move(mapped), g, OwnGetReader{Reader<>(ring)}, options));
    here.push_back(per_second(timeline, sys::now_ns()));
    ratio.push_back(there.back() / here.back());
  }
  row("remote.over_local_read", median(ratio), "x",
      text("%.0f M events/s of a process against %.0f M/s, sub-buffers of 256 KiB, merged in time order", median(there) / 1e6,
           median(here) / 1e6));
}

}  // namespace

void remote_rows() {
  event_row();
  // On one processor: else the scheduler's placing decides, which makes a round trip of any kind 8 us or 50.
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(0);
  swap_row();
  read_row();
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace bench
