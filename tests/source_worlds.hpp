// Worlds for tests of sources: each makes two rings of one kind, of `slots` sub-buffers besides the reader page, writes
// numbered events to them, and hands out their sources.
#pragma once
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
#include "writer/cpu_rings.hpp"
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

namespace ringside::test::source_conformance {

inline constexpr u32 subbuf_size = 4096, slots = 8;
inline constexpr u64 buffer_size = u64{slots} * (subbuf_size - abi::header_size);
inline constexpr u64 several = 700;  // events in more than three sub-buffers, and in less than all
inline constexpr u64 too_many = 5000;

struct Event {
  u64 number, from, until;  // its time is one of these, in the ticks of the source
};

struct Shape {
  u64 subbuf_size = 0, nr_subbufs = 0, capacity_bytes = 0;  // 0: the source does not know
};
inline Shape shape_of(const Geometry& g) { return {g.subbuf_size(), g.nr_subbufs(), u64{g.nr_slots()} * g.capacity()}; }

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
inline u64 ticks_now(ClockKind kind) { return kind == ClockKind::tsc ? TickClock{}.now() : MonoClock{}.now(); }
inline constexpr u64 off = 10'000;

// An instance that threads of this process write to, a ring each.
enum class By { reader, peek, server };
class InstanceWorld final : public World {
 public:
  InstanceWorld(Rings rings, By by)
      : by_(by), of_cpus_(rings == Rings::cpu), clock_(of_cpus_ ? best_clock() : ClockKind::mono) {
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
    return must(by_ == By::reader ? instance_->source(n)
                : by_ == By::peek ? instance_->peek(n)
                                  : served_source(connection_, n));
  }
  // A CPU's ring outlives its writers: it ends when another one takes its place, which it cannot while it is mapped.
  void end() override {
    if (of_cpus_ && by_ != By::server) must(instance_->resize(2 * buffer_size, subbuf_size));
    for (Worker& w : workers_) w.end();
  }
  Shape shape() const override { return shape_of(must(instance_->view_ring(rings_[0])).ring().geometry); }
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

template <By by>
Made cpu_world() {
  if (const RingsBecause why = why_not_cpu_rings(); why != RingsBecause::can)
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
      sources_[ring] =
          std::make_unique<MetaPageSource>(rings_[ring].map(), rings_[ring].ring.geometry, ByMetaPage{&rings_[ring]}, options);
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
    EXPECT_EQ(file.compression, as_ == Recorded::dat_7_zlib   ? "zlib"
                                : as_ == Recorded::dat_7_zstd ? "zstd"
                                : as_ == Recorded::dat_6      ? ""
                                                              : "none");
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
  LineSource(const std::vector<u8>& line, u16 ring) : Source({}, {ClockKind::counter}), line_(line) { name_.ring = ring; }
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
  bool ended() const override { return content_.ended(); }

 private:
  const std::vector<u8>& line_;
  size_t heard_ = 0;
  remote::FrameReader frames_;
  remote::StreamContent content_;
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
    auto& dump =
        dumps_.emplace_back(reinterpret_cast<u64*>(world_.region), reinterpret_cast<u64*>(world_.region + world_.bytes));
    const auto rings = remote::find_rings({Bytes{reinterpret_cast<const u8*>(dump.data()), world_.bytes}});
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
  std::unique_ptr<Source> open(u32 ring) override {
    auto sources = remote_.peek(ring).sources;
    return sources.empty() ? nullptr : std::move(sources.front());
  }
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
  std::unique_ptr<Source> open(u32 ring) override {
    return must(open_kernel_ring({mine_.dir(), cpus_[ring]}, ClockInfo{}, way_));
  }
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
// Guests, one for each ring: their program writes this number of events when it is told to go, and ends.
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

}  // namespace ringside::test::source_conformance
