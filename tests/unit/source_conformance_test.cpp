// What source.hpp promises, for each implementation of Source. A new one is proved by its row in the table `kinds`, and by a World that makes
// rings with known events for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/remote/process_writer.hpp>
#include <ringside/trace.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <list>
#include <mutex>
#include <sstream>
#include <thread>

#include "cpu_rings.hpp"
#include "export/trace_dat.hpp"
#if defined(__x86_64__)
#include "guest/guest.hpp"
#endif
#include "instance/cpu_rings.hpp"
#include "instance/instance.hpp"
#include "instance/ring_source.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "mapped_ring.hpp"
#include "mount/remote.hpp"
#include "remote/dump.hpp"
#include "remote/stream.hpp"
#include "remote_world.hpp"
#include "serve/server.hpp"
#include "source/get_reader_served.hpp"
#include "source/recording.hpp"
#include "source/trace_dat_file.hpp"
#include "trace_dat_files.hpp"

RINGSIDE_EVENT(conformance, number, (u64, n));

namespace ringside::test::source_conformance_test {
namespace {

class World;

// How an implementation may differ from what a ring's own reader does, which is what the first value of each says.
enum class Counted { when_the_next_are_asked_for, at_once, never };
enum class Ends { with_its_writer, at_once, never };
enum class Losses { counted, noticed, not_told };  // noticed: at least 1
enum class Books {
  the_rings,   // counters() are the ring's, at this moment
  its_own,     // they are those of what the source has looked at
  a_recorders, // they are the ring's at the end of the recording
  none,
};

struct Kind {
  const char* name;
  result<std::unique_ptr<World>> (*make)();
  Counted counted = Counted::when_the_next_are_asked_for;
  Ends ends = Ends::with_its_writer;
  bool grows = true;        // what is written after it was opened is seen
  Losses losses = Losses::counted;
  Books books = Books::the_rings;
  bool lags_at_end = false;  // lag_ns() is not 0 when ended() is true
  const char* needs = "";    // what some machines do not have: without it the tests are skipped
  const char* why = "";      // the reason for each difference
};

const std::vector<Kind>& kinds();

// ---- Worlds: two rings each, of `slots` sub-buffers besides the reader page.

constexpr u32 subbuf_size = 4096, slots = 8;
constexpr u64 buffer_size = u64{slots} * (subbuf_size - abi::header_size);
constexpr u64 several = 700;  // events in more than three sub-buffers, and in less than all
constexpr u64 too_many = 5000;

struct Event {
  u64 number, from, until;  // its time is one of these, in the ticks of the source
};

struct Shape {
  u64 subbuf_size = 0, nr_subbufs = 0, capacity_bytes = 0;  // 0: the source does not know
};
Shape shape_of(const Geometry& g) { return {g.subbuf_size(), g.nr_subbufs(), u64{g.nr_slots()} * g.capacity()}; }

class World {
 public:
  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;
  virtual void write(u32 ring, u64 count) = 0;
  virtual void lose(u32 ring) { write(ring, too_many); }  // more than the ring holds
  virtual std::unique_ptr<Source> open(u32 ring) = 0;
  virtual void end() {}  // the writers are gone for good
  virtual Shape shape() const = 0;
  virtual u32 number_of_ring(u32 ring) const { return ring; }

  const std::vector<Event>& written(u32 ring) const { return written_[ring]; }
  u32 number_at = 0;  // in an event's payload
  u64 first = 0;      // the number of a ring's first event

 protected:
  u64 next_number(u32 ring) const { return first + written_[ring].size(); }
  void wrote(u32 ring, u64 from, u64 until) { written_[ring].push_back({next_number(ring), from, until}); }

 private:
  std::vector<Event> written_[2];
};

using Made = result<std::unique_ptr<World>>;
template <class W, auto... arguments>
Made make() {
  return std::unique_ptr<World>(std::make_unique<W>(arguments...));
}

// A directory that goes with its world.
struct Directory {
  Directory() {
    char made[] = "/dev/shm/ringside-conformance-XXXXXX";
    path = mkdtemp(made);
  }
  ~Directory() { std::filesystem::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string path;
};

// A thread that does what it is told, and lives until it is told to end.
class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() { end(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void operator()(std::function<void()> what) {
    std::unique_lock lock(mutex_);
    what_ = std::move(what);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !what_; });
  }
  void end() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return over_ || what_; });
      if (over_) return;
      what_();
      what_ = nullptr;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> what_;
  bool over_ = false;
  std::thread thread_;
};

// This moment in a clock's ticks; two processors may differ by less than `off`.
u64 ticks_now(ClockKind kind) { return kind == ClockKind::tsc ? TickClock{}.now() : MonoClock{}.now(); }
constexpr u64 off = 10'000;

// An instance that threads of this process write to, a ring each.
enum class By { reader, peek, server };
class InstanceWorld final : public World {
 public:
  InstanceWorld(Rings rings, By by) : by_(by), of_cpus_(rings == Rings::cpu), clock_(of_cpus_ ? best_clock() : ClockKind::mono) {
    number_at = 8;
    InstanceOptions o;
    o.name = dir_.path + "/instance";
    o.buffer_size = buffer_size;
    o.subbuf_size = subbuf_size;
    o.clock = clock_;
    o.rings = rings;
    instance_ = must(Instance::create(o));
    EXPECT_EQ(ringside_open(o.name.c_str()), 0);
    const auto cpus = allowed_cpus();
    for (u32 ring = 0; ring < 2; ++ring) {
      rings_[ring] = of_cpus_ ? cpus[ring % cpus.size()] : ring;
      // A thread has a ring from its first event on.
      workers_[ring]([&] {
        if (of_cpus_) pin(0, rings_[ring]);
        conformance::number(0);
      });
    }
    must(instance_->reset());
    if (by_ != By::server) return;
    ServerOptions serve;
    serve.instance = o.name;
    serve.socket = dir_.path + "/socket";
    server_ = must(Server::create(serve));
    serving_ = std::thread([this] {
      while (!over_) must(server_->turn(1000));
    });
    connection_ = must(ServedConnection::connect(server_->socket()));
  }
  ~InstanceWorld() override {
    connection_.reset();
    over_ = true;
    if (serving_.joinable()) {
      (void)connect_socket(server_->socket(), std::chrono::seconds(5), "");  // wakes it
      serving_.join();
    }
    server_.reset();
    for (Worker& w : workers_) w.end();
    ringside_close();
  }
  void write(u32 ring, u64 count) override {
    workers_[ring]([&] {
      for (; count != 0; --count) {
        const u64 from = ticks_now(clock_) - off;
        conformance::number(next_number(ring));
        wrote(ring, from, ticks_now(clock_) + off);
      }
    });
  }
  std::unique_ptr<Source> open(u32 ring) override {
    const u32 n = rings_[ring];
    return must(by_ == By::reader ? instance_->source(n) : by_ == By::peek ? instance_->peek(n) : served_source(connection_, n));
  }
  // A CPU's ring outlives its writers: it ends when another one takes its place, which it cannot while it is mapped.
  void end() override {
    if (of_cpus_ && by_ != By::server) must(instance_->resize(2 * buffer_size, subbuf_size));
    for (Worker& w : workers_) w.end();
  }
  Shape shape() const override { return shape_of(must(instance_->look(rings_[0])).ring().geometry); }
  u32 number_of_ring(u32 ring) const override { return rings_[ring]; }

 private:
  Directory dir_;
  By by_;
  bool of_cpus_;
  ClockKind clock_;
  u32 rings_[2];
  std::unique_ptr<Instance> instance_;
  Worker workers_[2];
  std::unique_ptr<Server> server_;
  std::shared_ptr<ServedConnection> connection_;
  std::atomic<bool> over_{false};
  std::thread serving_;
};

Made cpu_world(By by) {
  if (const RingsBecause why = why_not_cpu_rings(best_clock()); why != RingsBecause::can)
    return refuse(std::errc::not_supported, std::string("no rings of CPUs here, ") + to_string(why));
  if (allowed_cpus().size() < 2) return refuse(std::errc::not_supported, "two rings of CPUs need two CPUs");
  return std::unique_ptr<World>(std::make_unique<InstanceWorld>(Rings::cpu, by));
}

// Rings in memory, whose clock stands still but for events, and now and then goes far on.
class PlainWorld : public World {
 public:
  void write(u32 ring, u64 count) override {
    MappedRing& to = rings_[ring];
    for (; count != 0; --count) {
      if (next_number(ring) % 200 == 100) to.time += u64{1} << 28;
      to.write(next_number(ring));
      wrote(ring, to.time, to.time);
    }
  }
  Shape shape() const override { return shape_of(rings_[0].ring.geometry); }

 protected:
  MappedRing rings_[2] = {MappedRing(slots + 1), MappedRing(slots + 1)};
};

class MetaPageWorld final : public PlainWorld {
 public:
  MetaPageWorld(bool copies, bool room) : copies_(copies), size_(room ? 24 : 8) {}
  // Events of 8 bytes fill a sub-buffer to its last byte: there is no room for the number of missed events.
  void write(u32 ring, u64 count) override {
    if (size_ == 24) return PlainWorld::write(ring, count);
    for (; count != 0; --count) {
      rings_[ring].write(next_number(ring), size_);
      wrote(ring, rings_[ring].time, rings_[ring].time);
    }
  }
  std::unique_ptr<Source> open(u32 ring) override {
    MetaPageSource::Options options;
    options.name.ring = ring;
    options.copies = copies_;
    return std::make_unique<MetaPageSource>(rings_[ring].map(), rings_[ring].ring.geometry, ByMetaPage{&rings_[ring]}, options);
  }

 private:
  bool copies_;
  u32 size_;
};

enum class Recorded { finished, unfinished, dat_6, dat_7, dat_7_zlib, dat_7_zstd };

// A recording of plain rings, or the file that it was exported to. It is closed at its first opening.
class RecordingWorld final : public PlainWorld {
 public:
  explicit RecordingWorld(Recorded as) : as_(as), writer_(must(RecordingWriter::create(data(), ClockInfo{}))) {
    for (u32 ring = 0; ring < 2; ++ring) {
      MetaPageSource::Options options;
      options.name = {ring, 4700, static_cast<i32>(4711 + ring), "task", "process"};
      sources_[ring] = std::make_unique<MetaPageSource>(rings_[ring].map(), rings_[ring].ring.geometry, ByMetaPage{&rings_[ring]}, options);
      must(writer_.add_ring(options.name, subbuf_size));
    }
  }
  // In the middle of what is recorded.
  void lose(u32 ring) override {
    write(ring, several / 2);
    record(ring);
    write(ring, too_many);
  }
  std::unique_ptr<Source> open(u32 ring) override {
    if (!std::exchange(closed_, true)) close();
    const auto take = [&](std::vector<std::unique_ptr<Source>> all) {
      for (auto& source : all)
        if (source->name().ring == ring) return std::move(source);
      return std::unique_ptr<Source>();
    };
    if (as_ <= Recorded::unfinished) return take(must(open_recording(data(), must(RecordingMeta::read(data())))));
    auto file = must(open_trace_dat(dat()));
    EXPECT_EQ(file.version, as_ == Recorded::dat_6 ? 6u : 7u);
    EXPECT_EQ(file.compression, as_ == Recorded::dat_7_zlib ? "zlib" : as_ == Recorded::dat_7_zstd ? "zstd" : as_ == Recorded::dat_6 ? "" : "none");
    return take(std::move(file.rings));
  }
  Shape shape() const override { return as_ == Recorded::finished ? Shape{subbuf_size, slots + 1} : Shape{subbuf_size}; }

 private:
  std::string data() const { return dir_.path + "/data"; }
  std::string dat() const { return dir_.path + "/trace.dat"; }
  void record(u32 ring) {
    while (auto view = must(sources_[ring]->next())) must(writer_.append(ring, *view));
  }
  void close() {
    for (u32 ring = 0; ring < 2; ++ring) {
      record(ring);
      if (as_ != Recorded::unfinished) writer_.ring(ring).counters = sources_[ring]->counters();
    }
    if (as_ == Recorded::unfinished) return must(writer_.save());
    must(writer_.finish(1));
    if (as_ == Recorded::finished) return;
    TraceDat out;
    for (u32 ring = 0; ring < 2; ++ring) {
      auto all = must(open_recording(data(), must(RecordingMeta::read(data()))));
      if (as_ != Recorded::dat_6 || ring == 0) out.buffers.push_back({"buffer" + std::to_string(ring), {}});
      out.buffers.back().rings.push_back(std::move(all[ring]));
    }
    must(write_trace_dat(dat(), out));
    if (as_ <= Recorded::dat_7) return;
    std::stringstream bytes;
    bytes << std::ifstream(dat(), std::ios::binary).rdbuf();
    std::ofstream(dat(), std::ios::binary) << compressed(bytes.str(), as_ == Recorded::dat_7_zlib ? "zlib" : "zstd");
  }
  Directory dir_;
  Recorded as_;
  RecordingWriter writer_;
  std::unique_ptr<Source> sources_[2];
  bool closed_ = false;
};

// The line has no Source of its own: its frames, those of one ring, put together as StreamFeed does it.
class LineSource final : public Source {
 public:
  LineSource(const std::vector<u8>& line, u16 ring) : line_(line) { name_.ring = ring; }
  result<std::optional<SubBufferView>> next() override {
    frames_.feed(line_.data() + heard_, line_.size() - heard_);
    heard_ = line_.size();
    for (remote::Frame f; frames_.next(f);) {
      auto view = RS_TRY(content_.take(f));
      clock_ = content_.clock();
      if (view && f.head.ring == name_.ring) return view;
    }
    return std::nullopt;
  }
  Counters counters() const override {
    Counters n;
    for (const auto& [number, ring] : content_.rings())
      if (number == name_.ring) n = ring.counters;
    n.subbuf_size = content_.subbuf_size();
    return n;
  }
  const RingName& name() const override { return name_; }
  const ClockInfo& clock() const override { return clock_; }
  bool ended() const override { return content_.ended(); }

 private:
  const std::vector<u8>& line_;
  size_t heard_ = 0;
  remote::FrameReader frames_;
  remote::StreamContent content_;
  RingName name_;
  ClockInfo clock_{ClockKind::counter};
};

class LineWorld final : public PlainWorld {
 public:
  LineWorld() { writer_.hello(2, subbuf_size, 0); }
  void write(u32 ring, u64 count) override {
    PlainWorld::write(ring, count);
    writer_.push(static_cast<u16>(ring), *rings_[ring].reader, true);
  }
  std::unique_ptr<Source> open(u32 ring) override { return std::make_unique<LineSource>(line_, static_cast<u16>(ring)); }
  void end() override { writer_.end(); }
  Shape shape() const override { return {subbuf_size}; }

 private:
  struct Put {
    std::vector<u8>* line;
    void operator()(const void* bytes, u32 size) const {
      const auto* const p = static_cast<const u8*>(bytes);
      line->insert(line->end(), p, p + size);
    }
  };
  std::vector<u8> line_;
  remote::StreamWriter<Put> writer_{Put{&line_}};
};

// An external writer's rings; or the memory that they are in, found without the reader.
class ExternalWorld final : public World {
 public:
  ExternalWorld(remote::Layout layout, bool dumped) : world_(layout, buffer_size, 2), dumped_(dumped) {}
  void write(u32 ring, u64 count) override {
    for (; count != 0; --count) {
      EXPECT_TRUE(world_.write(next_number(ring), 24, ring));
      wrote(ring, world_.time, world_.time);
    }
  }
  // What precedes the oldest sub-buffer in a dump may have been read: only what is missing between two is known to be lost.
  void lose(u32 ring) override {
    write(ring, dumped_ ? several : too_many);
    if (dumped_) world_.footer(2, ring).writer_status = 0;  // its second sub-buffer is not in the dump
  }
  std::unique_ptr<Source> open(u32 ring) override {
    if (!dumped_) return must(world_.buffer->source(ring));
    auto& dump = dumps_.emplace_back(reinterpret_cast<u64*>(world_.region), reinterpret_cast<u64*>(world_.region + world_.bytes));
    const auto rings = remote::find_rings({reinterpret_cast<const u8*>(dump.data()), world_.bytes});
    EXPECT_EQ(rings.size(), 2u);
    return std::make_unique<remote::DumpSource>(rings[ring], ClockInfo{ClockKind::counter});
  }
  void end() override { world_.buffer->gone("the test says so"); }
  Shape shape() const override {
    const remote::Plan& plan = world_.buffer->plan();
    const Geometry g(plan.subbuf_size, plan.nr_pages, 0, plan.layout == remote::Layout::footers ? abi::footer_size : 0);
    return dumped_ ? Shape{subbuf_size} : shape_of(g);
  }

 private:
  RemoteWorld world_;
  bool dumped_;
  std::list<std::vector<u64>> dumps_;
};

// What `ringside mount` shows in `trace` of an external writer.
class MountWorld final : public World {
 public:
  MountWorld() {
    number_at = 8;
    EXPECT_EQ(writer_.error(), 0);
    must(remote_.kilobytes(buffer_size / 1024));
    const auto load = done(remote_.load());
    use_ = load->use;
    done(remote_.enable(true));
  }
  void write(u32 ring, u64 count) override {
    for (; count != 0; --count) {
      const u64 payload[3] = {1, next_number(ring), 0};
      const u64 from = ticks_now(ClockKind::mono);
      EXPECT_TRUE(writer_.ring(ring)->write(payload, sizeof payload));
      wrote(ring, from, ticks_now(ClockKind::mono));
    }
  }
  std::unique_ptr<Source> open(u32 ring) override { return remote_.peek(ring); }
  Shape shape() const override { return {}; }

 private:
  // It tells by its event descriptor when to look again.
  std::shared_ptr<mount::Job> done(std::shared_ptr<mount::Job> job) {
    for (u64 told; job->error.load() == -1;) EXPECT_EQ(::read(told_.get(), &told, sizeof told), 8);
    EXPECT_EQ(job->error.load(), 0);
    return job;
  }
  Directory dir_;
  remote::ProcessWriter<> writer_{{dir_.path + "/socket", {{1, "app", "number", ""}}}};
  sys::Fd told_{eventfd(0, EFD_CLOEXEC)};
  mount::Remote remote_{"app", dir_.path + "/socket", 2, std::chrono::seconds(20), told_.get()};
  std::shared_ptr<void> use_;
};

// The kernel's rings of two CPUs, fed through trace_marker_raw.
class KernelWorld final : public World {
 public:
  KernelWorld(TracefsInstance mine, KernelWay way) : mine_(std::move(mine)), way_(way) {
    number_at = 12;
    must(mine_.tracing(true));
    marker_ = sys::Fd(::open((mine_.dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_TRUE(marker_);
    const auto cpus = allowed_cpus();
    for (u32 ring = 0; ring < 2; ++ring) {
      cpus_[ring] = cpus[ring];
      workers_[ring]([&] { pin(0, cpus_[ring]); });
    }
  }
  // Its clock is CLOCK_MONOTONIC as it is read in an NMI, which may be a little off.
  void write(u32 ring, u64 count) override {
    workers_[ring]([&] {
      for (; count != 0; --count) {
        struct {
          u32 id = 0x5A5A, number[2], more[2] = {};
        } raw;
        const u64 number = next_number(ring), from = ticks_now(ClockKind::mono);
        std::memcpy(raw.number, &number, sizeof number);
        EXPECT_EQ(::write(marker_.get(), &raw, sizeof raw), static_cast<ssize_t>(sizeof raw));
        wrote(ring, from - off, ticks_now(ClockKind::mono) + off);
      }
    });
  }
  std::unique_ptr<Source> open(u32 ring) override { return must(open_kernel_ring({mine_.dir(), cpus_[ring]}, ClockInfo{}, way_)); }
  Shape shape() const override { return shape_of(Geometry(subbuf_size, slots + 2)); }  // made of whole KiB
  u32 number_of_ring(u32 ring) const override { return cpus_[ring]; }

 private:
  TracefsInstance mine_;
  KernelWay way_;
  sys::Fd marker_;
  u32 cpus_[2];
  Worker workers_[2];
};

template <KernelWay way>
Made kernel_world() {
  if (allowed_cpus().size() < 2) return refuse(std::errc::not_supported, "two of the kernel's rings need two CPUs");
  TracefsOptions options;
  options.prefix = "ringside-conformance-";
  options.clock = ClockKind::mono;
  options.buffer_size = buffer_size;
  auto mine = RS_TRY(TracefsInstance::create(options));
  RS_TRY(open_kernel_ring({mine.dir(), allowed_cpus()[0]}, ClockInfo{}, way));
  return std::unique_ptr<World>(std::make_unique<KernelWorld>(std::move(mine), way));
}

#if defined(__x86_64__)
// Guests, one for each ring: their program writes so many events when it is told to go, and ends.
class GuestWorld final : public World {
 public:
  explicit GuestWorld(remote::Layout layout) : layout_(layout) {
    number_at = 8;
    first = 1;
  }
  void write(u32 ring, u64 count) override {
    Guest& g = guest(ring, count);
    g.vm().go();
    EXPECT_TRUE(g.vm().wait_end(std::chrono::seconds(60)));
    while (count-- != 0) wrote(ring, 0, ~u64{0});  // its time stamp counter is its own
  }
  std::unique_ptr<Source> open(u32 ring) override { return must(guest(ring, 1).buffer().source(0)); }
  void end() override {
    for (auto& g : guests_)
      if (g != nullptr) g->buffer().gone("the test says so");
  }
  Shape shape() const override {
    const remote::Plan& plan = guests_[0]->buffer().plan();
    return shape_of(Geometry(plan.subbuf_size, plan.nr_pages, 0, layout_ == remote::Layout::footers ? abi::footer_size : 0));
  }
  u32 number_of_ring(u32) const override { return 0; }

 private:
  using Guest = guest::Guest;
  Guest& guest(u32 ring, u64 events) {
    if (guests_[ring] != nullptr) return *guests_[ring];
    Guest::Options o;
    o.buffer.size = buffer_size;
    o.buffer.layout = layout_;
    o.vm.tick = {};
    o.vm.arguments[0] = events;
    o.vm.arguments[1] = 1;
    o.vm.patience = std::chrono::seconds(60);
    guests_[ring] = must(Guest::start(std::move(o)));
    must(guests_[ring]->enable(true));
    return *guests_[ring];
  }
  remote::Layout layout_;
  std::unique_ptr<Guest> guests_[2];
};

template <remote::Layout layout>
Made guest_world() {
  if (access("/dev/kvm", R_OK | W_OK) != 0) return fail(errno, "/dev/kvm cannot be opened");
  return std::unique_ptr<World>(std::make_unique<GuestWorld>(layout));
}
#endif

// ---- The table.

template <By by>
Made of_cpus() {
  return cpu_world(by);
}

const std::vector<Kind>& kinds() {
  using enum remote::Layout;
  static const std::vector<Kind> all{
      {.name = "reader_of_a_thread", .make = make<InstanceWorld, Rings::thread, By::reader>, .lags_at_end = true,
       .why = "the ring of a dead thread may be the next thread's, so the lag is the ring's"},
      {.name = "reader_of_a_cpu", .make = of_cpus<By::reader>, .lags_at_end = true, .needs = "rings of CPUs",
       .why = "to know whether a CPU's ring was replaced is no promise about its writers"},
      {.name = "peek_at_a_thread", .make = make<InstanceWorld, Rings::thread, By::peek>, .counted = Counted::never, .ends = Ends::at_once,
       .lags_at_end = true, .why = "a look consumes nothing, and nobody waits for more of it, though a later one may bring more"},
      {.name = "peek_at_a_cpu", .make = of_cpus<By::peek>, .counted = Counted::never, .ends = Ends::at_once, .lags_at_end = true,
       .needs = "rings of CPUs", .why = "as a look at a thread's ring"},
      {.name = "served_ring_of_a_thread", .make = make<InstanceWorld, Rings::thread, By::server>, .counted = Counted::at_once,
       .why = "GET_READER counts all that it finds as read"},
      {.name = "served_ring_of_a_cpu", .make = of_cpus<By::server>, .counted = Counted::at_once, .ends = Ends::never, .needs = "rings of CPUs",
       .why = "GET_READER counts all that it finds as read; a CPU's ring outlives its writers, and is not replaced while it is mapped"},
      {.name = "meta_page", .make = make<MetaPageWorld, false, true>, .counted = Counted::at_once, .ends = Ends::never, .books = Books::its_own,
       .why = "GET_READER counts all that it finds as read; a meta-page does not tell whether there is a writer, and is as it was at the last look"},
      {.name = "meta_page_copied", .make = make<MetaPageWorld, true, true>, .counted = Counted::at_once, .ends = Ends::never, .books = Books::its_own,
       .why = "as meta_page"},
      {.name = "meta_page_without_room", .make = make<MetaPageWorld, false, false>, .counted = Counted::at_once, .ends = Ends::never,
       .losses = Losses::noticed, .books = Books::its_own,
       .why = "as meta_page; a full sub-buffer has no room for the number of missed events"},
      {.name = "external_writer_with_a_meta_page", .make = make<ExternalWorld, meta_page, false>, .counted = Counted::at_once,
       .why = "what was handed out may be overwritten: a swap tells the writer so"},
      {.name = "external_writer_with_footers", .make = make<ExternalWorld, footers, false>, .counted = Counted::at_once,
       .why = "what was handed out may be overwritten: a swap tells the writer so"},
      {.name = "memory_dump", .make = make<ExternalWorld, footers, true>, .counted = Counted::never, .ends = Ends::at_once, .grows = false,
       .books = Books::its_own, .why = "a dump does not change, and knows no reader"},
      {.name = "recording", .make = make<RecordingWorld, Recorded::finished>, .counted = Counted::never, .ends = Ends::at_once, .grows = false,
       .books = Books::a_recorders, .why = "a file does not change, and knows no reader"},
      {.name = "unfinished_recording", .make = make<RecordingWorld, Recorded::unfinished>, .counted = Counted::never, .ends = Ends::at_once,
       .grows = false, .books = Books::none, .why = "as recording; who was killed closed no books"},
      {.name = "trace_dat_6", .make = make<RecordingWorld, Recorded::dat_6>, .counted = Counted::never, .ends = Ends::at_once, .grows = false,
       .books = Books::none, .why = "as recording; an exported file has no counters"},
      {.name = "trace_dat_7", .make = make<RecordingWorld, Recorded::dat_7>, .counted = Counted::never, .ends = Ends::at_once, .grows = false,
       .books = Books::none, .why = "as trace_dat_6"},
      {.name = "trace_dat_7_zlib", .make = make<RecordingWorld, Recorded::dat_7_zlib>, .counted = Counted::never, .ends = Ends::at_once,
       .grows = false, .books = Books::none, .why = "as trace_dat_6"},
      {.name = "trace_dat_7_zstd", .make = make<RecordingWorld, Recorded::dat_7_zstd>, .counted = Counted::never, .ends = Ends::at_once,
       .grows = false, .books = Books::none, .why = "as trace_dat_6"},
      {.name = "line", .make = make<LineWorld>, .counted = Counted::never, .books = Books::its_own,
       .why = "nothing goes back along a line: its writer's reader has counted, and who listens counts what comes"},
      {.name = "external_writer_in_a_mount", .make = make<MountWorld>, .counted = Counted::never, .ends = Ends::at_once, .grows = false,
       .losses = Losses::not_told, .books = Books::none, .why = "it shows what the sub-buffers hold at a moment, as `trace` does; the ring's counters are stats'"},
      {.name = "kernel_by_read", .make = kernel_world<KernelWay::read>, .counted = Counted::at_once, .ends = Ends::never, .needs = "tracefs",
       .why = "read() counts at once; the kernel does not end"},
      {.name = "kernel_by_mapping", .make = kernel_world<KernelWay::map>, .counted = Counted::at_once, .ends = Ends::never, .needs = "tracefs",
       .why = "GET_READER counts at once; the kernel does not end"},
#if defined(__x86_64__)
      {.name = "guest_with_a_meta_page", .make = guest_world<meta_page>, .counted = Counted::at_once, .grows = false, .needs = "/dev/kvm",
       .why = "as an external writer; its program writes once"},
      {.name = "guest_with_footers", .make = guest_world<footers>, .counted = Counted::at_once, .grows = false, .needs = "/dev/kvm",
       .why = "as an external writer; its program writes once"},
#endif
  };
  return all;
}

TEST(SourceKinds, ADifferenceHasAReason) {
  for (const Kind& k : kinds()) {
    const bool differs = k.counted != Counted{} || k.ends != Ends{} || !k.grows || k.losses != Losses{} || k.books != Books{} || k.lags_at_end;
    EXPECT_EQ(differs, *k.why != 0) << k.name;
  }
}

// ---- The reader of the tests: each view is checked as it comes.

class Reading {
 public:
  Reading(const World& world, u32 ring, Losses losses) : world_(&world), ring_(ring), losses_(losses) {}

  // False: nothing new.
  bool next(Source& source) {
    auto view = source.next();
    EXPECT_TRUE(view) << view.error().sentence;
    if (!view || !*view) return false;
    take(**view);
    return true;
  }
  void rest(Source& source) {
    while (next(source) && !testing::Test::HasFailure()) {
    }
  }
  void take(const SubBufferView& v) {
    const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(v.sub_buffer);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(v.sub_buffer) % 8, 0u);
    ASSERT_EQ(v.begin % 4, 0u);
    ASSERT_EQ(v.end % 4, 0u);
    ASSERT_LE(v.begin, v.end);
    ASSERT_LE(v.end, subbuf_size - abi::header_size);
    if (v.begin == 0) {
      ASSERT_EQ(v.time, header.time_stamp);
    }
    ASSERT_GE(v.time, last_time_);
    const u64 before = at_;
    if (losses_ == Losses::counted) at_ += v.lost_before;
    if (losses_ == Losses::not_told) {
      ASSERT_EQ(v.lost_before, 0u);
    }
    lost += v.lost_before;
    bool first = true;
    abi::EventCursor c(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
    for (; c.next(); ++at_, ++events, first = false) {
      u64 number = 0;
      ASSERT_GE(c.payload().size, world_->number_at + sizeof number);
      std::memcpy(&number, c.payload().data + world_->number_at, sizeof number);
      if (first && losses_ != Losses::counted && (losses_ == Losses::not_told || v.lost_before != 0)) at_ = number - world_->first;
      ASSERT_LT(at_, world_->written(ring_).size());
      const Event& e = world_->written(ring_)[at_];
      ASSERT_EQ(number, e.number);
      ASSERT_GE(c.time(), e.from) << number;
      ASSERT_LE(c.time(), e.until) << number;
      ASSERT_GE(c.time(), last_time_) << number;
      last_time_ = c.time();
    }
    ASSERT_EQ(c.malformed(), abi::Malformed::no) << abi::to_string(c.malformed());
    ASSERT_EQ(c.position(), v.end);
    if (losses_ == Losses::noticed && v.lost_before != 0) {
      ASSERT_GE(at_ - before - (events - seen_before_), v.lost_before) << "more are said to be lost than are missing";
    }
    seen_before_ = events;
  }
  // The next event that is expected is number so-and-so of its ring.
  u64 at() const { return at_; }
  // The last event that was written has been seen, and what was not seen was said to be lost.
  void expect_all() const {
    EXPECT_EQ(at_, world_->written(ring_).size());
    if (losses_ == Losses::counted) {
      EXPECT_EQ(events + lost, world_->written(ring_).size());
    }
    if (losses_ == Losses::noticed && events != world_->written(ring_).size()) {
      EXPECT_GE(lost, 1u);
    }
  }
  void expect_nothing_lost() const {
    expect_all();
    EXPECT_EQ(events, world_->written(ring_).size());
    EXPECT_EQ(lost, 0u);
  }
  u64 events = 0, lost = 0;

 private:
  const World* world_;
  u32 ring_;
  Losses losses_;
  u64 at_ = 0, last_time_ = 0, seen_before_ = 0;
};

class SourceConformance : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    auto made = GetParam().make();
    if (made) {
      world = std::move(*made);
      return;
    }
    ASSERT_NE(*GetParam().needs, 0) << made.error().sentence;
    GTEST_SKIP() << "needs " << GetParam().needs << ": " << made.error().sentence;
  }
  Reading reading(u32 ring = 0) const { return Reading(*world, ring, GetParam().losses); }
  static void expect_nothing(Source& source) {
    for (int again = 0; again < 3; ++again) {
      auto view = source.next();
      ASSERT_TRUE(view) << view.error().sentence;
      ASSERT_FALSE(*view);
    }
  }
  // One view that nobody has gone on from: the number of its events.
  u64 first_view(Source& source) const {
    Reading r = reading();
    EXPECT_TRUE(r.next(source));
    EXPECT_GT(r.events, 0u);
    return r.events;
  }
  // What the next reader of ring 0 is shown: everything, or what comes behind the first `consumed` events.
  void expect_next_reader_from(u64 consumed) const {
    auto source = world->open(0);
    ASSERT_NE(source, nullptr);
    u64 events = 0;
    bool first = true;
    while (auto view = must(source->next())) {
      EXPECT_EQ(view->lost_before, 0u);
      abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
      for (; c.next(); ++events) {
        u64 number = 0;
        std::memcpy(&number, c.payload().data + world->number_at, sizeof number);
        if (first) {
          ASSERT_EQ(number, world->first + consumed);
        }
        first = false;
      }
    }
    EXPECT_EQ(events, world->written(0).size() - consumed);
  }
  std::unique_ptr<World> world;
};

void PrintTo(const Kind& kind, std::ostream* to) { *to << kind.name; }
std::string name_of_kind(const testing::TestParamInfo<Kind>& info) { return info.param.name; }
std::vector<Kind> kinds_that(bool (*holds)(const Kind&)) {
  std::vector<Kind> some;
  std::copy_if(kinds().begin(), kinds().end(), std::back_inserter(some), holds);
  return some;
}
INSTANTIATE_TEST_SUITE_P(Sources, SourceConformance, testing::ValuesIn(kinds()), name_of_kind);

// ---- What each source does.

TEST_P(SourceConformance, EachEventIsSeenOnceInOrderWithItsTime) {
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  r.rest(*source);
  r.expect_nothing_lost();
  expect_nothing(*source);
}

TEST_P(SourceConformance, OneEventIsSeen) {
  world->write(0, 1);
  auto source = world->open(0);
  Reading r = reading();
  r.rest(*source);
  r.expect_nothing_lost();
  expect_nothing(*source);
}

TEST_P(SourceConformance, AViewStaysAsItIsUntilTheNextCall) {
  world->write(0, several);
  auto source = world->open(0);
  const auto view = must(source->next());
  ASSERT_TRUE(view);
  const auto bytes = [&] { return std::string(reinterpret_cast<const char*>(view->sub_buffer) + abi::header_size + view->begin, view->end - view->begin); };
  const std::string before = bytes();
  (void)source->counters();
  (void)source->ended();
  (void)source->lag_ns();
  EXPECT_EQ(bytes(), before);
  Reading r = reading();
  r.take(*view);
  r.rest(*source);
  r.expect_nothing_lost();
}

TEST_P(SourceConformance, WhatWasOverwrittenIsSaidToBeLostWhereItWas) {
  world->lose(0);
  auto source = world->open(0);
  Reading r = reading();
  r.rest(*source);
  r.expect_all();
  EXPECT_LT(r.events, world->written(0).size());
}

TEST_P(SourceConformance, CountersAddUp) {
  const Books books = GetParam().books;
  const auto add_up = [](const Counters& n) { EXPECT_EQ(n.written, n.read + n.unread + n.overrun); };
  world->lose(0);
  auto source = world->open(0);
  const u64 written = world->written(0).size();
  const Counters before = source->counters();
  add_up(before);
  if (books == Books::the_rings) {
    EXPECT_EQ(before.written, written);
    EXPECT_EQ(before.read, 0u);
    EXPECT_GT(before.overrun, 0u);
    EXPECT_GT(before.bytes, 0u);
  }
  Reading r = reading();
  for (bool more = true; more;) {
    more = r.next(*source);
    const Counters n = source->counters();
    add_up(n);
    if (books == Books::the_rings || books == Books::a_recorders) {
      EXPECT_EQ(n.written, written);
    }
  }
  const Counters after = source->counters();
  if (books == Books::none) {
    EXPECT_EQ(after.written, 0u);
  } else {
    EXPECT_EQ(after.written, written);
    EXPECT_EQ(after.overrun, written - r.events);
  }
  if (GetParam().counted == Counted::never && books == Books::the_rings) {
    EXPECT_EQ(after.read, 0u);
    EXPECT_EQ(after.unread, r.events);
  } else if (books != Books::none) {
    EXPECT_EQ(after.read, r.events);
    EXPECT_EQ(after.unread, 0u);
    EXPECT_LT(after.bytes, 28u) << "no more than padding";
  }
  const Shape shape = world->shape();
  EXPECT_EQ(after.subbuf_size, shape.subbuf_size);
  if (shape.nr_subbufs != 0) {
    EXPECT_EQ(after.nr_subbufs, shape.nr_subbufs);
  }
  if (shape.capacity_bytes != 0) {
    EXPECT_EQ(after.capacity_bytes, shape.capacity_bytes);
  }
}

TEST_P(SourceConformance, NameAndClockStayAsTheyAre) {
  world->write(0, several);
  auto source = world->open(0);
  const RingName name = source->name();
  const ClockInfo clock = source->clock();
  EXPECT_EQ(name.ring, world->number_of_ring(0));
  const auto expect_same = [&] {
    const RingName& n = source->name();
    EXPECT_EQ(std::tie(n.ring, n.pid, n.tid, n.task, n.process, n.kernel, n.buffer, n.cpu), std::tie(name.ring, name.pid, name.tid, name.task, name.process, name.kernel, name.buffer, name.cpu));
    const ClockInfo& c = source->clock();
    EXPECT_EQ(std::tie(c.kind, c.mult, c.shift, c.base_ticks, c.base_ns), std::tie(clock.kind, clock.mult, clock.shift, clock.base_ticks, clock.base_ns));
  };
  while (must(source->next())) expect_same();
  world->end();
  expect_nothing(*source);
  expect_same();
}

TEST_P(SourceConformance, EndsWithItsWriterAfterAllThatItWrote) {
  const Ends ends = GetParam().ends;
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  EXPECT_TRUE(r.next(*source));
  EXPECT_EQ(source->ended(), ends == Ends::at_once);
  world->end();
  r.rest(*source);
  r.expect_nothing_lost();
  expect_nothing(*source);
  EXPECT_EQ(source->ended(), ends != Ends::never);
  expect_nothing(*source);
  EXPECT_EQ(source->lag_ns() == 0, source->ended() && !GetParam().lags_at_end);
}

TEST_P(SourceConformance, TwoSourcesDoNotDisturbEachOther) {
  world->write(0, several / 2);
  world->write(1, several);
  world->write(0, GetParam().grows ? several / 2 : 0);
  auto first = world->open(0), second = world->open(1);
  Reading a = reading(0), b = reading(1);
  for (bool more = true; more && !HasFailure();) {
    more = a.next(*first);
    more = b.next(*second) || more;
  }
  a.expect_nothing_lost();
  b.expect_nothing_lost();
  EXPECT_EQ(first->name().ring, world->number_of_ring(0));
  EXPECT_EQ(second->name().ring, world->number_of_ring(1));
  first.reset();
  expect_nothing(*second);
}

TEST_P(SourceConformance, AViewThatNobodyWentOnFromIsConsumedWhenTheSourceIsClosed) {
  world->write(0, several);
  const u64 seen = first_view(*world->open(0));
  expect_next_reader_from(GetParam().counted == Counted::never ? 0 : seen);
}

TEST_P(SourceConformance, WhatIsPutBackIsTheNextReaders) {
  world->write(0, several);
  u64 seen = 0;
  {
    auto source = world->open(0);
    seen = first_view(*source);
    source->put_back();
  }
  expect_next_reader_from(GetParam().counted == Counted::at_once ? seen : 0);
}

TEST_P(SourceConformance, WhatIsConsumedCannotBePutBack) {
  world->write(0, several);
  u64 seen = 0;
  {
    auto source = world->open(0);
    seen = first_view(*source);
    source->consume();
    source->put_back();
  }
  expect_next_reader_from(GetParam().counted == Counted::never ? 0 : seen);
}

// ---- What those do whose counters are the ring's.

class SourceWithTheRingsBooks : public SourceConformance {};
INSTANTIATE_TEST_SUITE_P(Sources, SourceWithTheRingsBooks, testing::ValuesIn(kinds_that([](const Kind& k) { return k.books == Books::the_rings; })),
                         name_of_kind);

TEST_P(SourceWithTheRingsBooks, EventsCountAsReadInTime) {
  const Counted counted = GetParam().counted;
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  u64 before = 0;
  while (r.next(*source)) {
    EXPECT_EQ(source->counters().read, counted == Counted::at_once ? r.events : counted == Counted::never ? 0 : before);
    before = r.events;
  }
  EXPECT_EQ(source->counters().read, counted == Counted::never ? 0 : several);
}

TEST_P(SourceWithTheRingsBooks, ConsumeCountsThemAtOnce) {
  world->write(0, several);
  auto source = world->open(0);
  Reading r = reading();
  while (r.next(*source)) {
    source->consume();
    EXPECT_EQ(source->counters().read, GetParam().counted == Counted::never ? 0 : r.events);
    source->consume();  // again: nothing
    EXPECT_EQ(source->counters().read, GetParam().counted == Counted::never ? 0 : r.events);
  }
}

// ---- What those do that see more than there was when they were opened.

class GrowingSource : public SourceConformance {};
INSTANTIATE_TEST_SUITE_P(Sources, GrowingSource, testing::ValuesIn(kinds_that([](const Kind& k) { return k.grows; })), name_of_kind);

TEST_P(GrowingSource, AnEmptyRingHasNothingNewUntilSomethingIsWritten) {
  auto source = world->open(0);
  expect_nothing(*source);
  EXPECT_EQ(source->counters().written, 0u);
  world->write(0, 3);
  Reading r = reading();
  r.rest(*source);
  r.expect_nothing_lost();
}

TEST_P(GrowingSource, WhatWasWrittenSinceComesNext) {
  auto source = world->open(0);
  Reading r = reading();
  for (const u64 count : {1, 2, 3, 50, 1, 90, 145, 1, 204, 205, 7, 340, 500, 1}) {
    world->write(0, count);
    r.rest(*source);
    r.expect_nothing_lost();
    expect_nothing(*source);
  }
}

TEST_P(GrowingSource, ViewsAndWritesAlternate) {
  auto source = world->open(0);
  Reading r = reading();
  for (u32 round = 0; round < 100; ++round) {
    world->write(0, 1 + round * 7 % 23);
    EXPECT_TRUE(r.next(*source));
  }
  r.rest(*source);
  r.expect_nothing_lost();
}

TEST_P(GrowingSource, EachLossIsToldWhereItWas) {
  auto source = world->open(0);
  Reading r = reading();
  for (const u64 count : {10, 5000, 1, 150, 3000, 160, 2}) {
    world->write(0, count);
    if (count == 150) EXPECT_TRUE(r.next(*source));  // the next loss comes behind a view
    else r.rest(*source);
  }
  r.rest(*source);
  r.expect_all();
  EXPECT_LT(r.events, world->written(0).size());
}

TEST_P(GrowingSource, AViewOutlivesTheLapsOfItsWriter) {
  world->write(0, several);
  auto source = world->open(0);
  const auto view = must(source->next());
  ASSERT_TRUE(view);
  const auto bytes = [&] { return std::string(reinterpret_cast<const char*>(view->sub_buffer) + abi::header_size + view->begin, view->end - view->begin); };
  const std::string before = bytes();
  world->write(0, too_many);
  EXPECT_EQ(bytes(), before);
  Reading r = reading();
  r.take(*view);
  r.rest(*source);
  r.expect_all();
}

TEST_P(GrowingSource, AReaderGoesOnWhereTheLastOneStopped) {
  Reading r = reading();
  for (const u64 count : {100, 30, 700, 1, 20}) {
    world->write(0, count);
    auto source = world->open(0);
    if (GetParam().counted == Counted::never) r = reading();
    r.rest(*source);
    r.expect_nothing_lost();
  }
}

}  // namespace
}  // namespace ringside::test::source_conformance_test
