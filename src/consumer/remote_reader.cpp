// The installed reader's side of an external writer: remote::Buffer with the caller's callbacks, as an input and as a
// recording.
#include "consumer/remote_reader.hpp"

#include <ringside/remote_reader.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <ringside/consumer.hpp>

#include "consumer/c_form.hpp"
#include "consumer/trace.hpp"
#include "record/source_feed.hpp"
#include "remote/buffer.hpp"
#include "remote/stream.hpp"
#include "sys/try.hpp"

struct ringside_remote_reader {
  std::shared_ptr<ringside::remote::Buffer> buffer{};
  std::vector<ringside::EventInfo> events{};
  ringside_remote_callbacks callbacks{};
  std::string name{};
  std::atomic<bool> stopped{false};
  bool counts_time = true;  // on this machine

  ringside::result<void> enable(bool on) {
    const int error = callbacks.enable != nullptr ? callbacks.enable(callbacks.pointer, on) : 0;
    if (error == 0) return {};
    return ringside::fail(error, name + " is not " + (on ? "enabled" : "disabled"));
  }
  // Its books: what the writer refused.
  void add_refused(ringside::Account& of) const {
    of.refused[ringside::Refusal::unknown] = buffer->refused();
    of.refused_at_least = !buffer->refused_is_exact();
  }
};

namespace ringside {
namespace {

using remote::Buffer;
using remote::Layout;

constexpr u64 default_size = 4 << 20;
constexpr auto look_every = std::chrono::milliseconds(5);

class ReaderInput final : public Input {
 public:
  explicit ReaderInput(ringside_remote_reader& reader) : Input(reader.name), reader_(reader) {}
  result<void> open(Trace& trace) override {
    if (reader_.counts_time) boot = sys::boot_id();
    world = World::own();
    clock = to_string(own_clock().kind);
    add_events(trace, *this, reader_.events);
    for (u32 ring = 0; ring < reader_.buffer->plan().nr_rings; ++ring) {
      sources.push_back(RS_TRY(reader_.buffer->source(ring)));
      trace.tasks.add(sources.back()->name(), origin.ids);
    }
    return reader_.enable(true);
  }
  std::unique_ptr<Input> another() const override { return reader_input(reader_); }
  ClockInfo own_clock() const override { return reader_.buffer->options().clock; }
  bool live() const override { return true; }
  bool begins_when_opened() const override { return true; }
  void stop() override {
    (void)reader_.enable(false);
    reader_.buffer->ask_again();
  }
  Account account() const override {
    Account of = doubtful();
    reader_.add_refused(of);
    return of;
  }

 private:
  ringside_remote_reader& reader_;
};

result<void> answered(int error, const char* what, const std::string& who, u32 ring) {
  if (error == 0) return {};
  return fail(error, who + ", ring " + std::to_string(ring) + " does not answer " + what);
}

remote::Callbacks callbacks_of(const ringside_remote_callbacks& c, const std::string& who) {
  remote::Callbacks out;
  out.swap_reader = [c, who](u32 ring, u32 read) -> result<remote::SwapAnswer> {
    ringside_remote_answer a{};
    RS_TRY(answered(c.swap_reader(c.pointer, ring, read, &a), "a swap", who, ring));
    remote::SwapAnswer answer;
    answer.what = static_cast<remote::Swap>(a.what);  // the reader refuses one that means nothing
    answer.id = a.id;
    answer.refused = a.refused;
    answer.counted = a.counts_refused;
    return answer;
  };
  if (c.update_footers != nullptr)
    out.update_footers = [c, who](u32 ring) { return answered(c.update_footers(c.pointer, ring), "an update", who, ring); };
  out.reset = [c, who](u32 ring) { return answered(c.reset(c.pointer, ring), "a reset", who, ring); };
  return out;
}

result<ClockInfo> clock_of(const ringside_remote_options& o, u32 number) {
  switch (number) {
    case 1:
      return ClockInfo{};
    case 2:
      return remote::clock_of_ticks(o.ticks_per_second);
    case 0:
    case 3:
      break;
    default:
      return refuse(std::errc::invalid_argument, "there is no clock " + std::to_string(number) + ": 0 to 3");
  }
  if (!is_readable_here(number))
    return refuse(std::errc::not_supported, "this machine does not have the writer's clock " + std::to_string(number));
  return calibrate(static_cast<ClockKind>(number));
}

// The caller's pages, at the offsets of its descriptor.
result<void> bring_by_descriptor(const ringside_remote_options& o, Buffer::Options& make, u32& clock) {
  if (o.region == nullptr) return refuse(std::errc::invalid_argument, "a descriptor needs its region");
  std::vector<u64> blob((o.descriptor_bytes + 7) / 8);
  std::memcpy(blob.data(), o.descriptor, o.descriptor_bytes);
  remote::Descriptor d;
  if (const remote::Verdict v = remote::WildDescriptor(blob.data(), o.descriptor_bytes).check(o.region_bytes, d); !v.good())
    return refuse(std::errc::invalid_argument, std::string("the descriptor is no good: ") + to_string(v.wrong));
  make.layout = d.layout();
  make.subbuf_size = d.subbuf_size();
  clock = d.clock();
  const auto* const base = static_cast<const u8*>(o.region);
  for (u32 index = 0; index < d.nr_rings(); ++index) {
    const remote::RingLayout ring = d.ring(index);
    Buffer::Options::Pages pages{base + ring.meta, {}};
    for (u32 id = 0; id < ring.nr_pages; ++id) pages.by_id.push_back(base + ring.pages[id]);
    make.memory.push_back(std::move(pages));
  }
  return {};
}

result<std::unique_ptr<ringside_remote_reader>> open_reader(const ringside_remote_options& o) {
  auto reader = std::make_unique<ringside_remote_reader>();
  reader->name = o.name != nullptr ? o.name : "the external writer";
  reader->callbacks = o.callbacks;
  Buffer::Options make;
  make.who = reader->name;
  make.layout = static_cast<Layout>(o.layout);
  make.subbuf_size = o.subbuf_size != 0 ? o.subbuf_size : 4096;
  make.size = o.size != 0 ? o.size : default_size;
  make.rings = o.nr_rings != 0 ? o.nr_rings : 1;
  u32 clock = o.clock;
  if (o.descriptor != nullptr) {
    RS_TRY(bring_by_descriptor(o, make, clock));
  } else if (make.layout != Layout::footers && make.layout != Layout::meta_page) {
    return refuse(std::errc::invalid_argument, "the layout is neither RINGSIDE_PAGE_FOOTERS nor RINGSIDE_META_PAGE");
  } else if (o.rings != nullptr) {
    for (u32 n = 0; n < make.rings; ++n) {
      Buffer::Options::Pages pages{static_cast<const u8*>(o.rings[n].meta), {}};
      for (u32 id = 0; id < o.rings[n].nr_pages; ++id) pages.by_id.push_back(static_cast<const u8*>(o.rings[n].pages[id]));
      make.memory.push_back(std::move(pages));
    }
  }
  make.clock = RS_TRY(clock_of(o, clock));
  make.clock_number = clock;
  reader->counts_time = clock != 2;
  const u32 rings = make.memory.empty() ? make.rings : static_cast<u32>(make.memory.size());
  for (u32 ring = 0; ring < rings; ++ring) {
    RingName name{ring, 0, 0, reader->name, reader->name};
    name.apart = 1;
    make.names.push_back(std::move(name));
  }
  for (size_t n = 0; n < o.nr_events; ++n) {
    const ringside_remote_event& e = o.events[n];
    if (e.id == 0 || e.id > 0xFFFF || e.system == nullptr || e.name == nullptr || e.format == nullptr)
      return refuse(std::errc::invalid_argument, "an event needs a number from 1 to 65535, a system, a name and a format");
    EventInfo info{static_cast<u16>(e.id), e.system, e.name, e.format, true};
    info.apart = 1;
    reader->events.push_back(std::move(info));
  }
  if (o.callbacks.swap_reader == nullptr || o.callbacks.reset == nullptr)
    return refuse(std::errc::invalid_argument, "the callbacks swap_reader and reset must be there");
  reader->buffer = RS_TRY(Buffer::create(make, callbacks_of(o.callbacks, reader->name)));
  return reader;
}

result<void> record(ringside_remote_reader& reader, const std::string& dir, u64 duration_ns) {
  Buffer& buffer = *reader.buffer;
  SourceFeed feed(reader.events);
  for (u32 ring = 0; ring < buffer.plan().nr_rings; ++ring) {
    auto source = RS_TRY(buffer.source(ring));
    RingName name = source->name();
    feed.add({std::move(source), std::move(name)});
  }
  RS_TRY(set_aside(dir));
  const auto run = RS_TRY(RecordingRun::create(dir, buffer.options().clock));
  if (!reader.counts_time) {
    run->meta().boot.clear();
    run->meta().world = {};
  }
  RS_TRY(run->add(feed));
  RS_TRY(reader.enable(true));
  const u64 start = sys::now_ns();
  const auto over = [&] {
    return reader.stopped.load(std::memory_order_relaxed) || (duration_ns != 0 && sys::now_ns() - start >= duration_ns);
  };
  while (!over() && !run->failed() && !feed.ended()) {
    run->poll();
    for (u32 ring = 0; ring < buffer.plan().nr_rings; ++ring) (void)buffer.poke(ring);
    (void)buffer.wait(wake_percent, look_every);
  }
  result<void> off;
  if (!buffer.is_gone()) {
    off = reader.enable(false);
    buffer.ask_again();
    for (int round = 0; round < 3 && !run->failed(); ++round) run->poll();
  }
  RS_TRY(run->finish());
  return off;
}

// An errno for C.
template <class Make>
int number_of(const Make& make) {
  return c_form::guarded(nullptr, 0,
                         [&]() -> std::optional<int> {
                           const result<void> done = make();
                           return done ? 0 : errno_of(done.error());
                         })
      .value_or(ENOMEM);
}

}  // namespace

std::unique_ptr<Input> reader_input(ringside_remote_reader& reader) { return std::make_unique<ReaderInput>(reader); }

}  // namespace ringside

using namespace ringside;
using c_form::all_there;
using c_form::guarded;
using c_form::tell;

extern "C" {

ringside_remote_reader* ringside_remote_reader_open(const ringside_remote_options* options, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> ringside_remote_reader* {
    if (!all_there({{"options", options}}, error, error_size)) return nullptr;
    auto reader = open_reader(*options);
    if (reader) return reader->release();
    tell(reader.error().sentence, error, error_size);
    return nullptr;
  });
}

void ringside_remote_reader_close(ringside_remote_reader* reader) { delete reader; }

int ringside_remote_reader_fd(const ringside_remote_reader* reader) {
  return reader->buffer->files() == 0 ? -1 : reader->buffer->fd();
}

const void* ringside_remote_reader_descriptor(const ringside_remote_reader* reader, size_t* bytes) {
  const std::vector<u64>& blob = reader->buffer->descriptor();
  if (bytes != nullptr) *bytes = blob.size() * sizeof(u64);
  return blob.empty() ? nullptr : blob.data();
}

int ringside_remote_reader_poke(ringside_remote_reader* reader, uint32_t ring) {
  bool readable = false;
  const int error = number_of([&]() -> result<void> {
    readable = RS_TRY(reader->buffer->poke(ring));
    return {};
  });
  return error != 0 ? -error : readable ? 1 : 0;
}

int ringside_remote_reader_poll_every(ringside_remote_reader* reader, uint64_t ns) {
  return number_of([&] { return reader->buffer->poll_every(std::chrono::nanoseconds(ns)); });
}

int ringside_remote_reader_enable(ringside_remote_reader* reader, bool on) {
  return number_of([&] { return reader->enable(on); });
}

int ringside_remote_reader_reset(ringside_remote_reader* reader, uint32_t ring) {
  return number_of([&] { return reader->buffer->reset(ring); });
}

void ringside_remote_reader_gone(ringside_remote_reader* reader, const char* why) {
  (void)number_of([&]() -> result<void> {
    reader->buffer->gone(why != nullptr ? why : reader->name + " is gone");
    return {};
  });
}

void ringside_remote_reader_stop(ringside_remote_reader* reader) { reader->stopped.store(true, std::memory_order_relaxed); }

ringside_consumer* ringside_remote_reader_consume(ringside_remote_reader* reader, const ringside_consumer_options* options,
                                                  char* error, size_t error_size) {
  return c_form::open_consumer(options, reader, error, error_size);
}

bool ringside_remote_reader_record(ringside_remote_reader* reader, const char* dir, uint64_t duration_ns, char* error,
                                   size_t error_size) {
  return guarded(error, error_size, [&] {
    if (!all_there({{"reader", reader}, {"dir", dir}}, error, error_size)) return false;
    const auto done = record(*reader, dir, duration_ns);
    if (!done) tell(done.error().sentence, error, error_size);
    return done.has_value();
  });
}

}  // extern "C"
