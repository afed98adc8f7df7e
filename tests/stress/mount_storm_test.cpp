// ringside mount in a storm: threads whose signal handlers write too, and, through the mount, a client that maps and asks for
// sub-buffers (GET_READER), others that map, look and are killed, and a reader of trace_pipe. Each written event is then in one
// of four places: the first client read it, the pipe read it, it was overwritten, or it is still in its ring.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <ringside/ringside.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/meta_page.hpp>
#include <thread>

#include "instance/instance.hpp"
#include "mount/fuse/session.hpp"
#include "ring_memory.hpp"

namespace ringside::test::mount_storm_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr u32 threads = 3, contexts = 3;  // a thread, and handlers of two signals, which nest in each other
constexpr u32 nr_rings = threads * contexts;  // a thread has one for each depth of handlers that interrupt an event
constexpr u32 most_numbers = 4 * nr_rings;
constexpr u32 subbuf_size = 4096, nr_kb = 256;

struct Event {
  u32 thread, context;
  u64 sequence, check;
};
u64 check_of(const Event& e) { return (e.sequence * contexts + e.context) * threads + e.thread + 0x5bd1e995; }
constexpr const char* fields =
    "\tfield:u32 thread;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 context;\toffset:12;\tsize:4;\tsigned:0;\n"
    "\tfield:u64 sequence;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:u64 check;\toffset:24;\tsize:8;\tsigned:0;\n";
ringside_event event{"storm",
                     "tick",
                     fields,
                     "\"%u %u %llu %llu\", REC->thread, REC->context, REC->sequence, REC->check",
                     nullptr,
                     0,
                     nullptr,
                     nullptr};

// The state of other processes.
struct Shared {
  struct Writer {
    u64 written[contexts], refused;
  } by[threads];
  std::atomic<u64> handlers;
  std::atomic<u32> ready, ended;
  std::atomic<bool> stop, leave;
  std::atomic<u64> lookers, looks, lies;
};
Shared* shared;

thread_local u32 me;

constexpr u32 largest = 8 + sizeof(Event) + 3 * 24;

void write_one(u32 context, u8* payload) {
  Shared::Writer& w = shared->by[me];
  Event e{me, context, w.written[context], 0};
  e.check = check_of(e);
  std::memcpy(payload + 8, &e, sizeof e);
  if (!ringside_write(&event, payload, 8 + sizeof e + static_cast<u32>(e.sequence % 4) * 24)) {
    __atomic_fetch_add(&w.refused, 1, __ATOMIC_RELAXED);
    return;
  }
  ++w.written[context];
}

void write_one(u32 context) {
  alignas(8) u8 payload[largest] = {};
  write_one(context, payload);
}

// Makes all rings of this thread: an event whose payload is not there yet is interrupted by the next one.
thread_local u8* absent;
thread_local u32 depth;
void write_at_all_depths() {
  const u32 context = depth++;
  write_one(context);
  if (depth == contexts) return;
  u8* const pages = static_cast<u8*>(mmap(nullptr, 2 * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  absent = pages + page_size;
  mprotect(absent, page_size, PROT_NONE);
  write_one(context, absent - 8 - sizeof(Event));  // the second event is longer than the room in front of that page
}
void on_absent(int) {
  if (depth == contexts) signal(SIGSEGV, SIG_DFL);  // not one of this test's faults
  mprotect(absent, page_size, PROT_READ | PROT_WRITE);
  write_at_all_depths();
}

void on_signal(int number) {
  const int saved = errno;
  shared->handlers.fetch_add(1, std::memory_order_relaxed);
  write_one(number == SIGRTMIN ? 1 : 2);
  errno = saved;
}

void write_all(u32 thread) {
  me = thread;
  write_at_all_depths();
  ++shared->ready;
  timer_t timers[2];
  for (int i = 0; i < 2; ++i) {
    sigevent to{};
    to.sigev_notify = SIGEV_THREAD_ID;
    to.sigev_signo = SIGRTMIN + i;
    to._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    const itimerspec period{{0, 170'000 + 30'000 * i}, {0, 170'000}};
    if (timer_create(CLOCK_MONOTONIC, &to, &timers[i]) != 0 || timer_settime(timers[i], 0, &period, nullptr) != 0) _exit(2);
  }
  while (!shared->stop)
    for (int i = 0; i < 1000; ++i) write_one(0);
  for (timer_t t : timers) timer_delete(t);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ++shared->ended;
  while (!shared->leave) usleep(1000);  // its ring is not given back before the final count
}

// Runs `what` in a child that does not outlive this process.
pid_t start(const std::function<void()>& what) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  what();
  _exit(0);
}

struct Mapped {
  sys::Fd fd;
  sys::Region all;
  explicit Mapped(const std::string& cpu) : fd(::open((cpu + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    auto page = sys::Region::map(fd.get(), page_size, false, "the meta-page");
    if (!page) return;
    const auto* const m = reinterpret_cast<const abi::MetaPage*>(page->data());
    if (auto whole = sys::Region::map(fd.get(), u64{m->subbuf_size} * (m->nr_subbufs + 1), false, "the ring"))
      all = std::move(*whole);
  }
  explicit operator bool() const { return all.data() != nullptr; }
  const abi::MetaPage& meta() const { return *reinterpret_cast<const abi::MetaPage*>(all.data()); }
  const u8* sub_buffer(u32 id) const { return all.data() + (u64{id} + 1) * subbuf_size; }
};

// Maps all rings, looks at their pages as they change, and is killed in the middle of it: again and again.
void look_and_die(const std::vector<std::string>& cpus) {
  for (unsigned n = 0; !shared->leave; ++n) {
    const pid_t looker = start([&] {
      std::vector<std::unique_ptr<Mapped>> maps;
      for (const std::string& cpu : cpus) {
        maps.push_back(std::make_unique<Mapped>(cpu));
        if (!*maps.back()) ++shared->lies;
      }
      ++shared->lookers;
      for (;;)
        for (const auto& m : maps) {
          const u32 nr = m->meta().nr_subbufs;
          if (m->meta().subbuf_size != subbuf_size || __atomic_load_n(&m->meta().reader.id, __ATOMIC_ACQUIRE) >= nr)
            ++shared->lies;
          for (u32 id = 0; id < nr; ++id) {
            const auto* const h = reinterpret_cast<const abi::SubBufferHeader*>(m->sub_buffer(id));
            if (abi::commit_size(__atomic_load_n(&h->commit, __ATOMIC_ACQUIRE)) > subbuf_size - abi::header_size)
              ++shared->lies;
          }
          shared->looks += nr;
          usleep(200);
        }
    });
    usleep(20'000 + n % 7 * 10'000);
    kill(looker, SIGKILL);
    waitpid(looker, nullptr, 0);
  }
}

// The events that were taken out, in their order.
struct Taken {
  u64 next[most_numbers][contexts] = {}, newest[threads][contexts] = {}, count[threads] = {}, torn = 0, backwards = 0;
  void add(const Event& e, size_t ring) {
    if (ring >= most_numbers || e.thread >= threads || e.context >= contexts || e.check != check_of(e)) {
      ++torn;
      return;
    }
    u64 &at = next[ring][e.context], &all = newest[e.thread][e.context];
    if (e.sequence < at) ++backwards;  // repeated, or out of order
    at = e.sequence + 1;
    all = std::max(all, at);
    ++count[e.thread];
  }
};

struct Stats {
  u64 entries = 0, overrun = 0, commit_overrun = 0, dropped = 0, read = 0;
};
Stats stats(int fd) {
  char text[1024];
  const ssize_t n = pread(fd, text, sizeof text - 1, 0);
  text[std::max<ssize_t>(n, 0)] = '\0';
  const auto value = [&](const char* name) {
    const char* const at = std::strstr(text, name);
    EXPECT_NE(at, nullptr) << name << text;
    return at != nullptr ? std::strtoull(at + std::strlen(name), nullptr, 10) : 0;
  };
  return {value("entries: "), value("\noverrun: "), value("commit overrun: "), value("dropped events: "),
          value("read events: ")};
}

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 6000; ++i, usleep(5000))
    if (holds()) return true;
  return false;
}

// The rings in use. Others are prepared for threads to come: how many depends on how these threads ran.
struct RingFiles {
  std::vector<std::string> cpus;
  std::vector<u32> numbers;
  std::vector<sys::Fd> books;

  explicit RingFiles(const std::string& web) {
    for (u32 n = 0; n < most_numbers && cpus.size() < nr_rings; ++n) {
      const std::string cpu = web + "/per_cpu/cpu" + std::to_string(n);
      sys::Fd book(::open((cpu + "/stats").c_str(), O_RDONLY | O_CLOEXEC));
      if (!book || stats(book.get()).entries == 0) continue;
      cpus.push_back(cpu);
      numbers.push_back(n);
      books.push_back(std::move(book));
    }
  }
  Stats sums() const {
    Stats all;
    for (const sys::Fd& book : books) {
      const Stats s = stats(book.get());
      all.overrun += s.overrun;
      all.dropped += s.dropped + s.commit_overrun;
      all.entries += s.entries;
      all.read += s.read;
    }
    return all;
  }
};

// Two consumers take from all rings. While one takes, the other does not: so each one's events are known exactly.
struct Consumers {
  const RingFiles& rings;
  std::mutex taking{};
  std::atomic<bool> over{false}, pipe_waits{false};
  Taken taken{};
  u64 by_mapper = 0, by_pipe = 0, bad = 0, asked = 0, pipe_reads = 0, lost = 0;

  struct MappedRing {
    Mapped map;
    u64 read = 0, pipe_reads = ~u64{0};
  };

  void map_and_ask() {
    std::vector<std::unique_ptr<MappedRing>> maps;
    for (const std::string& cpu : rings.cpus) maps.push_back(std::make_unique<MappedRing>(MappedRing{Mapped(cpu)}));
    while (!over) {
      u64 found = 0;
      for (u32 n = 0; n < nr_rings; ++n) {
        while (pipe_waits) usleep(20);
        const std::lock_guard lock(taking);
        const u64 fresh = ask(*maps[n], n);
        found += fresh;
        by_mapper += fresh;
      }
      if (found == 0) usleep(200);
    }
  }
  // GET_READER for one ring; the number of events that are new.
  u64 ask(MappedRing& r, u32 n) {
    if (!r.map) return ++bad, 0;
    if (r.pipe_reads != pipe_reads) r.read = stats(rings.books[n].get()).read;
    r.pipe_reads = pipe_reads;
    if (ioctl(r.map.fd.get(), abi::get_reader_ioctl) != 0) ++bad;
    ++asked;
    const abi::MetaPage& meta = r.map.meta();
    const u64 fresh = meta.read - std::exchange(r.read, meta.read);
    std::vector<Event> events;
    abi::EventCursor c(r.map.sub_buffer(meta.reader.id) + abi::header_size, 0, meta.reader.read, 0);
    while (c.next()) std::memcpy(&events.emplace_back(), c.payload().data + 8, sizeof(Event));
    if (c.malformed() != abi::Malformed::no || fresh > events.size()) return ++bad, 0;
    for (size_t i = events.size() - fresh; i < events.size(); ++i) taken.add(events[i], rings.numbers[n]);
    return fresh;
  }

  void read_pipe(const std::string& path) {
    const sys::Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    std::vector<char> text(100'000);  // enough for everything that one read takes out: nothing is left in between
    while (!over) {
      pollfd ready{fd.get(), POLLIN, 0};
      if (poll(&ready, 1, 100) != 1) continue;
      pipe_waits = true;
      const std::lock_guard lock(taking);
      pipe_waits = false;
      ++pipe_reads;
      const ssize_t n = read(fd.get(), text.data(), text.size());
      if (n < 0 && errno != EAGAIN) ++bad;
      if (n > 0) take_lines({text.data(), static_cast<size_t>(n)});
    }
  }
  void take_lines(std::string_view text) {
    for (size_t end; !text.empty(); text.remove_prefix(end + 1)) {
      end = text.find('\n');
      if (end == std::string_view::npos) {
        ++bad;
        return;
      }
      take_line(std::string(text.substr(0, end)));
    }
  }
  void take_line(const std::string& line) {
    if (const size_t at_lost = line.find("[LOST "); at_lost != std::string::npos) {
      lost += std::strtoull(&line[at_lost + 6], nullptr, 10);
      return;
    }
    const size_t at_event = line.find(": tick: "), at_ring = line.find('[');
    Event e{};
    unsigned long long sequence, check;
    if (at_event == std::string::npos || at_ring == std::string::npos ||
        std::sscanf(&line[at_event + 8], "%u %u %llu %llu", &e.thread, &e.context, &sequence, &check) != 4) {
      ++bad;
      return;
    }
    e.sequence = sequence;
    e.check = check;
    taken.add(e, std::strtoul(&line[at_ring + 1], nullptr, 10));
    ++by_pipe;
  }

  // The remaining events, by copies; how many they are.
  u64 copy_rest() {
    u64 copied = 0;
    for (size_t n = 0; n < rings.cpus.size(); ++n) {
      const sys::Fd raw(::open((rings.cpus[n] + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
      std::vector<u64> image(subbuf_size / 8);
      while (::read(raw.get(), image.data(), subbuf_size) == subbuf_size) {
        abi::EventCursor c(reinterpret_cast<const u8*>(image.data()) + abi::header_size, 0, abi::commit_size(image[1]), 0);
        for (; c.next(); ++copied) {
          Event e;
          std::memcpy(&e, c.payload().data + 8, sizeof e);
          taken.add(e, rings.numbers[n]);
        }
        EXPECT_EQ(c.malformed(), abi::Malformed::no);
      }
    }
    return copied;
  }
};

volatile sig_atomic_t server_stops;

void serve_mount(const std::string& at) {
  struct sigaction on_end {};
  server_stops = 0;
  on_end.sa_handler = [](int) { server_stops = 1; };
  sigaction(SIGTERM, &on_end, nullptr);
  auto session = mount::Session::mount(at, {});
  if (!session) std::fprintf(stderr, "%s\n", session.error().sentence.c_str());
  while (session && server_stops == 0) {
    auto on = (*session)->turn(200);
    if (!on || !*on) break;
  }
}

void write_storm() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 2; ++i) sigaction(SIGRTMIN + i, &action, nullptr);
  action.sa_handler = on_absent;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  if (ringside_open("web") != 0 || ringside_register(&event) != 0) _exit(1);
  std::vector<std::thread> all;
  for (u32 t = 0; t < threads; ++t) all.emplace_back(write_all, t);
  for (std::thread& t : all) t.join();
}

class MountStorm : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "/dev/fuse: " << strerrorname_np(errno);
    if (geteuid() != 0) GTEST_SKIP() << "FUSE passthrough needs root";
    fs::create_directories(at);
    const char* const before = getenv("RINGSIDE_ROOT");
    root_before = before != nullptr ? before : "";
    setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
    shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    new (shared) Shared{};
  }
  void TearDown() override {
    if (shared == nullptr) return;
    shared->stop = shared->leave = true;
    for (const pid_t child : {looking, writing}) end(child, 0);
    end(server, SIGTERM);
    while (umount2(at.c_str(), MNT_DETACH) == 0) {
    }
    munmap(shared, sizeof *shared);
    shared = nullptr;
    fs::remove_all(dir);
    root_before.empty() ? unsetenv("RINGSIDE_ROOT") : setenv("RINGSIDE_ROOT", root_before.c_str(), 1);
  }
  static void end(pid_t child, int number) {
    if (child <= 0) return;
    if (number != 0) kill(child, number);
    if (eventually([&] { return waitpid(child, nullptr, WNOHANG) != 0; })) return;
    ADD_FAILURE() << "a process did not end";
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  void begin(bool overwrite) {
    InstanceOptions options;
    options.name = "web";
    options.buffer_size = nr_kb << 10;
    options.subbuf_size = subbuf_size;
    options.clock = ClockKind::mono;
    options.rings = Rings::thread;
    options.overwrite = overwrite;
    must(Instance::create(options));
    server = start([&] { serve_mount(at); });
    ASSERT_TRUE(eventually([&] {
      struct statvfs st {};
      return statvfs(at.c_str(), &st) == 0 && access((web + "/tracing_on").c_str(), F_OK) == 0;
    }));
    writing = start(write_storm);
    ASSERT_TRUE(eventually([] { return shared->ready == threads; }));
  }
  // Both consumers take for half of the test's time; then the writers fill their rings once more, and stop.
  void consume(Consumers& by) {
    std::thread mapper([&] { by.map_and_ask(); });
    std::thread pipe([&] { by.read_pipe(web + "/trace_pipe"); });
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(test_seconds(60) / 2);
    while (std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(10ms);
    // On a busy machine some may not have had a turn yet.
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(by.taking);
      return by.by_mapper > 0 && by.by_pipe > 0 && shared->lookers > 0 && shared->looks > 0 && shared->handlers > 0;
    }));
    by.over = true;
    mapper.join();
    pipe.join();
    std::this_thread::sleep_for(20ms);
    shared->stop = true;
    ASSERT_TRUE(eventually([] { return shared->ended == threads; }));
  }
  // The events of each thread and context, as its writer counted them and as they were taken out.
  static void check_threads(const Taken& taken, bool overwrite) {
    for (u32 t = 0; t < threads; ++t) {
      u64 of_thread = 0;
      for (u32 c = 0; c < contexts; ++c) {
        const u64 written = shared->by[t].written[c];
        of_thread += written;
        // The last event of each context is there: nothing was overwritten since.
        EXPECT_LE(taken.newest[t][c], written);
        if (!overwrite) {
          EXPECT_EQ(taken.newest[t][c], written);
        }
      }
      if (!overwrite) {
        EXPECT_EQ(taken.count[t], of_thread) << "of thread " << t;
      }
    }
  }

  std::string root_before, dir = "/dev/shm/ringside-mount-storm-" + std::to_string(getpid()), at = dir + "/m",
                           web = at + "/instances/web";
  pid_t server = -1, writing = -1, looking = -1;
};
INSTANTIATE_TEST_SUITE_P(Mount, MountStorm, testing::Bool(),
                         [](const auto& overwrite) { return overwrite.param ? "Overwrite" : "Discard"; });

TEST_P(MountStorm, TheBooksBalance) {
  const bool overwrite = GetParam();
  ASSERT_NO_FATAL_FAILURE(begin(overwrite));
  const RingFiles rings(web);
  ASSERT_EQ(rings.cpus.size(), nr_rings);
  {
    const sys::Fd raw(::open((rings.cpus[0] + "/trace_pipe_raw").c_str(), O_RDONLY | O_CLOEXEC));
    const auto page = sys::Region::map(raw.get(), page_size, false, "the meta-page");
    if (!page && page.error().code.value() == ENODEV) GTEST_SKIP() << "this kernel has no FUSE passthrough (Linux 6.9 has)";
  }
  looking = start([&] { look_and_die(rings.cpus); });
  Consumers by{rings};
  ASSERT_NO_FATAL_FAILURE(consume(by));
  const Stats s = rings.sums();
  EXPECT_EQ(s.read, by.by_mapper + by.by_pipe);
  const u64 copied = by.copy_rest();
  check_threads(by.taken, overwrite);
  u64 written = 0, refused = 0;
  for (const Shared::Writer& w : shared->by) {
    for (const u64 n : w.written) written += n;
    refused += w.refused;
  }
  EXPECT_EQ(by.bad, 0u);
  EXPECT_EQ(by.taken.torn, 0u);
  EXPECT_EQ(by.taken.backwards, 0u);
  EXPECT_EQ(copied, s.entries);
  EXPECT_EQ(written, by.by_mapper + by.by_pipe + s.overrun + s.entries);
  EXPECT_EQ(refused, s.dropped);
  EXPECT_LE(by.lost, s.overrun);
  EXPECT_EQ(shared->lies, 0u);
  if (overwrite) {
    EXPECT_GT(s.overrun, 0u);
  } else {
    EXPECT_EQ(s.overrun, 0u);
  }
  const auto n = [](u64 value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu events of %u threads, %llu handlers: %llu by GET_READER (%llu), %llu by trace_pipe (%llu reads), %llu overrun, "
      "%llu inside; "
      "%llu refused; %llu mappers killed\n",
      n(written), threads, n(shared->handlers), n(by.by_mapper), n(by.asked), n(by.by_pipe), n(by.pipe_reads), n(s.overrun),
      n(s.entries), n(refused), n(shared->lookers));
}

}  // namespace
}  // namespace ringside::test::mount_storm_test
