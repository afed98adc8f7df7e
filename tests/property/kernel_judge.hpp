// The two sides of the comparison with the kernel's ring: an instance of the kernel's, and a ring of ringside, mapped and served.
//
// Our writer's clock gives the kernel's own times, so times are compared, too. While the kernel's ring is mapped, an event's
// time is looked up as soon as it is written. Else it is known once the event is read, so the kernel goes through all the steps
// first; for an event that was overwritten unread, the time before its write is used.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "instance/instance.hpp"
#include "writer/ring_file.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "kernel_can.hpp"
#include "ring_memory.hpp"
#include "serve/server.hpp"
#include "source/get_reader_served.hpp"
#include "source/sub_buffer_copy.hpp"
#include "source/recording.hpp"

namespace ringside::test::kernel_judge_test {

using Image = std::vector<u8>;

// The parts of an event that the kernel chooses.
struct Stamp {
  u64 time = 0;
  u8 flags = 0, preempt_count = 1;
  const u8 *begin = nullptr, *end = nullptr;  // its payload
};

constexpr u32 common_size = 8;

// The bytes after the common fields, for trace_marker_raw: an id, which is the event's number here, then anything.
inline Image marker(u32 number, u32 size) {
  Image bytes(size);
  std::memcpy(bytes.data(), &number, sizeof number);
  for (u32 i = sizeof number; i < size; ++i) bytes[i] = static_cast<u8>((number * 7 + i) | 1);
  return bytes;
}

struct Shape {
  u32 subbuf_size;
  bool overwrite;
};
inline std::string to_string(const Shape& s) {
  return std::to_string(s.subbuf_size / 1024) + "k" + (s.overwrite ? "Overwrite" : "Discard");
}

// Up to 3 bytes after a payload are there for alignment: ours are zeros, the kernel leaves the old bytes.
inline u32 rounding(u32 size) {
  const u32 event = abi::event_size(common_size + size);
  return event - abi::payload_offset(event) - common_size - size;
}

// Walks the events added to a sub-buffer since the last call.
struct Walked {
  u64 stamp = 0, time = 0;
  u32 end = 0;
};
template <class Use>
inline void walk_new(const u8* sub_buffer, Walked& at, Use use) {
  const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(sub_buffer);
  const u32 end = abi::commit_size(header.commit);
  if (header.time_stamp != at.stamp) at = {header.time_stamp, header.time_stamp, 0};
  if (end > at.end) {
    abi::EventCursor c(sub_buffer + abi::header_size, at.end, end, at.time);
    while (c.next()) {
      u32 number = 0;
      std::memcpy(&number, c.payload().data + common_size, sizeof number);
      const u8* const payload = c.payload().data;
      use(number, Stamp{c.time(), payload[2], payload[3], payload, payload + c.payload().size});
    }
    at.time = c.time();
  }
  at.end = end;
}

class KernelSide {
 public:
  static result<std::unique_ptr<KernelSide>> create(const Shape& shape) {
    TracefsOptions options;
    options.prefix = "ringside-test-";
    options.subbuf_size = shape.subbuf_size;
    options.overwrite = shape.overwrite;
    options.clock = ClockKind::mono;
    auto made = TracefsInstance::create(options);
    if (!made) return tl::unexpected<Error>(made.error());
    return std::unique_ptr<KernelSide>(new KernelSide(std::move(*made), shape));
  }
  ~KernelSide() {
    unmap();
    raw_ = sys::Fd();
    marker_ = sys::Fd();
  }

  // An empty ring. Its memory keeps its old bytes.
  void fresh(u32 slots) {
    unmap();
    raw_ = sys::Fd();
    must(mine_.tracing(false));
    const u64 kib = u64{slots} * (shape_.subbuf_size - abi::header_size) / 1024;
    if (slots != slots_) must(mine_.write("buffer_size_kb", std::to_string(kib)));
    slots_ = slots;
    must(mine_.write("trace", "0"));
    must(mine_.tracing(true));
    raw_ = sys::Fd(open((cpu_dir() + "/trace_pipe_raw").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!raw_) throw std::runtime_error("trace_pipe_raw");
  }

  bool write(u32 number, u32 size) {
    const Image bytes = marker(number, size);
    sizes_.resize(std::max<size_t>(sizes_.size(), number + 1));
    sizes_[number] = size;
    return ::write(marker_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  }

  // The next sub-buffer, or empty.
  Image read() {
    Image image(shape_.subbuf_size);
    const ssize_t n = ::read(raw_.get(), image.data(), image.size());
    if (n != static_cast<ssize_t>(image.size())) image.clear();
    return image;
  }
  // Puts zeros where the kernel leaves old bytes: rounding, and the inside of the fill padding (in ours, too: it holds rounding
  // of earlier laps).
  void clean(Image& kernel, Image& ours) const {
    u32 end = 0;
    Walked all;
    walk_new(kernel.data(), all, [&](u32 number, const Stamp& event) {
      end = static_cast<u32>(event.end - kernel.data());
      const u32 n = rounding(sizes_.at(number));
      std::memset(kernel.data() + end - n, 0, n);
    });
    end = std::max(end, abi::header_size);
    const u32 size = abi::header_size + all.end;
    if (end + 8 >= size) return;
    for (Image* image : {&kernel, &ours}) std::memset(image->data() + end + 8, 0, size - end - 8);
  }

  bool mappable() const {
    void* const at = mmap(nullptr, page_size, PROT_READ, MAP_SHARED, raw_.get(), 0);
    return at != MAP_FAILED && munmap(at, page_size) == 0;
  }
  void map() {
    auto* first = static_cast<u8*>(mmap(nullptr, page_size, PROT_READ, MAP_SHARED, raw_.get(), 0));
    if (first == MAP_FAILED) throw std::runtime_error("the kernel's ring cannot be mapped");
    const u32 n = reinterpret_cast<abi::MetaPage*>(first)->nr_subbufs;
    size_ = u64{shape_.subbuf_size} * (n + 1);
    data_ = static_cast<u8*>(mmap(nullptr, size_, PROT_READ, MAP_SHARED, raw_.get(), 0));
    munmap(first, page_size);
    if (data_ == MAP_FAILED) throw std::runtime_error("the kernel's ring cannot be mapped");
    walked_.assign(n, {});
    for (u32 id = 0; id < n; ++id) walked_[id].stamp = reinterpret_cast<const abi::SubBufferHeader*>(subbuf(id))->time_stamp;
    stale_.assign(size_, 0);
  }
  void give_memory_to(const Ring& ring) const {
    std::memcpy(ring.data + shape_.subbuf_size, data_ + shape_.subbuf_size, size_ - shape_.subbuf_size);
  }
  void unmap() {
    if (data_ != nullptr) munmap(data_, size_);
    data_ = nullptr;
  }
  // The stamp of the event that was written last.
  std::optional<Stamp> newest(u32 wanted) {
    std::optional<Stamp> found;
    for (u32 id = 0; id < walked_.size(); ++id) {
      walk_new(subbuf(id), walked_[id], [&](u32 number, const Stamp& stamp) {
        if (number == wanted) found = stamp;
      });
    }
    if (found) {
      std::fill(stale_.begin() + (found->begin - data_), stale_.begin() + (found->end - data_), 0);
      std::fill_n(stale_.begin() + (found->end - data_) - rounding(sizes_[wanted]), rounding(sizes_[wanted]), 1);
    }
    return found;
  }
  int get_reader() { return ioctl(raw_.get(), abi::get_reader_ioctl) == 0 ? 0 : errno; }
  // A whole sub-buffer, with zeros where rounding is or was.
  Image page(u32 id, const u8* data) const {
    const u64 from = u64{shape_.subbuf_size} * (id + 1);
    Image page(data + from, data + from + shape_.subbuf_size);
    for (u32 i = 0; i < page.size(); ++i)
      if (stale_[from + i] != 0) page[i] = 0;
    return page;
  }

  const abi::MetaPage& meta() const { return *reinterpret_cast<const abi::MetaPage*>(data_); }
  const u8* subbuf(u32 id) const { return data_ + u64{shape_.subbuf_size} * (id + 1); }
  const u8* data() const { return data_; }
  int raw() const { return raw_.get(); }
  std::string cpu_dir() const { return mine_.dir() + "/per_cpu/cpu0"; }
  TracefsInstance& instance() { return mine_; }
  Counters counters() const { return must(kernel_counters({mine_.dir(), 0})); }
  const Shape& shape() const { return shape_; }

 private:
  KernelSide(TracefsInstance mine, const Shape& shape)
      : mine_(std::move(mine)),
        shape_(shape),
        marker_(open((mine_.dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC)) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);  // one ring, so one order
  }

  TracefsInstance mine_;
  Shape shape_;
  u32 slots_ = 0;
  sys::Fd marker_, raw_;
  u8* data_ = nullptr;
  u64 size_ = 0;
  std::vector<Walked> walked_;
  std::vector<u32> sizes_;  // by number
  std::vector<u8> stale_;   // 1: a byte of the mapping where rounding left an old byte
};

// A ring of ringside whose clock is set.
class OurWriter {
 public:
  explicit OurWriter(const Ring& ring) : writer_(ring, Replay{&time_}) {}
  Refused write(u32 number, u32 size, const Stamp& stamp) {
    time_ = stamp.time;
    const Reservation slot = writer_.reserve(common_size + size);
    if (!slot) return slot.why;
    const u16 type = raw_data_type();
    const i32 pid = sys::gettid();
    std::memcpy(slot.payload, &type, 2);
    slot.payload[2] = stamp.flags;
    slot.payload[3] = stamp.preempt_count;
    std::memcpy(slot.payload + 4, &pid, 4);
    const Image bytes = marker(number, size);
    std::memcpy(slot.payload + common_size, bytes.data(), bytes.size());
    writer_.commit(slot);
    return Refused::no;
  }

 private:
  struct Replay {
    u64* time;
    u64 now() noexcept { return *time; }
  };
  static u16 raw_data_type() {
    static const u16 id = must(kernel_event({"ftrace", "raw_data"})).id;
    return id;
  }
  u64 time_ = 0;
  Writer<Replay> writer_;
};

// An instance of ringside with one ring, served to a client that maps it.
class OurSide {
 public:
  OurSide(const Shape& shape, u32 slots)
      : shape_(shape), dir_(std::filesystem::temp_directory_path() / ("ringside-judge-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(dir_);
    InstanceOptions options;
    options.name = dir_;
    options.subbuf_size = shape.subbuf_size;
    options.buffer_size = u64{slots} * (shape.subbuf_size - abi::header_size);
    options.overwrite = shape.overwrite;
    options.clock = ClockKind::mono;
    options.rings = Rings::thread;
    instance_ = must(Instance::create(options));
    // Like a thread that makes its ring at its first event.
    region_ = must(map_instance(instance_->dir(), dir_, true));
    const InstanceWords words{reinterpret_cast<InstanceControl*>(region_.data())};
    fd_ = sys::Fd(open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    mapped_ = map_ring(fd_.get(), 0, geometry_of(*words.control), Files::ours);
    if (!mapped_) throw std::runtime_error("our ring cannot be made");
    label_ring(mapped_.ring);
    mapped_.ring.control->mode = words.control->mode;
    RingEntry& entry = words.ring(0);
    entry.pid = static_cast<u32>(getpid());
    entry.tid = static_cast<u32>(sys::gettid());
    entry.tid_start = sys::start_time(getpid(), sys::gettid());
    entry.sizes = short_sizes(mapped_.ring.geometry);
    entry.state = pack_state(RingState::live, entry.tid);
    words.control->nr_rings = 1;
    writer_.emplace(mapped_.ring);
  }
  ~OurSide() {
    unmap();
    unmap_ring(mapped_);
    instance_ = nullptr;
    std::filesystem::remove_all(dir_);
  }

  void map() {
    ServerOptions options;
    options.instance = dir_;
    server_ = must(Server::create(options));
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 || !server_->adopt(sys::Fd(pair[0])))
      throw std::runtime_error("socketpair");
    stop_ = false;
    serving_ = std::thread([this] {
      while (!stop_) (void)server_->turn(20);
    });
    client_ = must(ServedConnection::over(sys::Fd(pair[1]), "the judge's server"));
    handout::RingAnswer a;
    must(client_->ask(handout::Kind::open_ring, 0, &a, sizeof a, &data_fd_));
    data_ = must(sys::Region::map(data_fd_.get(), mapped_.ring.geometry.data_size(), false, "our ring"));
  }
  void unmap() {
    if (server_ == nullptr) return;
    client_ = nullptr;
    stop_ = true;
    serving_.join();
    server_ = nullptr;
    data_ = sys::Region();
  }
  int get_reader() {
    handout::ReaderAnswer a;
    auto done = client_->ask(handout::Kind::get_reader, 0, &a, sizeof a);
    return done ? 0 : done.error().code.value();
  }

  OurWriter& writer() { return *writer_; }
  Ring& ring() { return mapped_.ring; }
  const abi::MetaPage& meta() const { return *reinterpret_cast<const abi::MetaPage*>(data_.data()); }
  const u8* subbuf(u32 id) const { return data_.data() + u64{shape_.subbuf_size} * (id + 1); }
  const u8* data() const { return data_.data(); }
  int data_fd() const { return data_fd_.get(); }
  Instance& instance() { return *instance_; }
  ServedConnection& client() { return *client_; }

 private:
  Shape shape_;
  std::string dir_;
  std::unique_ptr<Instance> instance_;
  sys::Region region_;
  sys::Fd fd_;
  MappedRing mapped_;
  std::optional<OurWriter> writer_;
  std::unique_ptr<Server> server_;
  std::thread serving_;
  std::atomic<bool> stop_{false};
  std::shared_ptr<ServedConnection> client_;
  sys::Fd data_fd_;
  sys::Region data_;
};

// The view of our reader's sub-buffer, as sources give it.
inline std::optional<SubBufferView> read_view(Reader<>& reader) {
  if (reader.get_reader(false) != Got::data) return std::nullopt;
  const ReaderView& v = reader.view();
  SubBufferView view{reader.data() - abi::header_size, v.begin, v.end, v.lost_before, 0};
  abi::EventCursor before(reader.data(), 0, v.begin,
                          reinterpret_cast<const abi::SubBufferHeader*>(view.sub_buffer)->time_stamp);
  while (before.next()) {
  }
  view.time = before.time();
  return view;
}

// The bytes that read() of trace_pipe_raw would give of it. The kernel hands over a whole sub-buffer without its fill padding;
// when it copies event by event, the padding is an event like others.
inline Image read_image(Reader<>& reader, bool mapped) {
  auto view = read_view(reader);
  if (!view) return {};
  if (view->begin == 0 && reader.view().left && !mapped) {
    abi::EventCursor c(reader.data(), 0, view->end, view->time);
    view->end = 0;
    while (c.next()) view->end = c.position();
  }
  const u32 size = view->end - view->begin, subbuf_size = reader.ring().geometry.subbuf_size();
  Image image(subbuf_size);
  const abi::SubBufferHeader header = header_of_copy(*view, subbuf_size);
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, reader.data() + view->begin, size);
  if (abi::commit_stored(header.commit)) std::memcpy(image.data() + sizeof header + size, &view->lost_before, 8);
  return image;
}

inline std::string where(const u8* kernel, const u8* ours, u64 size) {
  u64 i = 0;
  while (i < size && kernel[i] == ours[i]) ++i;
  const auto hex = [&](const u8* bytes) {
    std::string out;
    char text[8];
    for (u64 k = i & ~u64{3}; k < std::min((i & ~u64{3}) + 32, size); ++k) {
      std::snprintf(text, sizeof text, k % 4 == 0 ? " %02x" : "%02x", bytes[k]);
      out += text;
    }
    return out;
  };
  return "byte " + std::to_string(i) + "\nkernel" + hex(kernel) + "\nours  " + hex(ours);
}
#define SAME_BYTES(kernel, ours, size, what) \
  if (std::memcmp(kernel, ours, size) != 0) RC_FAIL(std::string(what) + " differs at " + where(kernel, ours, size))

inline std::string text(const abi::MetaPage& m) {
  std::string out;
  const std::pair<const char*, u64> fields[] = {
      {"meta_page_size", m.meta_page_size}, {"struct_len", m.meta_struct_len}, {"subbuf_size", m.subbuf_size},
      {"nr_subbufs", m.nr_subbufs},         {"lost", m.reader.lost_events},    {"id", m.reader.id},
      {"reader.read", m.reader.read},       {"flags", m.flags},                {"entries", m.entries},
      {"overrun", m.overrun},               {"read", m.read},                  {"pages_lost", m.pages_lost},
      {"pages_touched", m.pages_touched}};
  for (const auto& [name, value] : fields) out += std::string(" ") + name + " " + std::to_string(value);
  return out;
}

inline void same_meta(const KernelSide& kernel, const OurSide& ours, const char* after) {
  if (std::memcmp(kernel.data(), ours.data(), kernel.shape().subbuf_size) != 0)
    RC_FAIL(std::string("meta-page after ") + after + "\nkernel" + text(kernel.meta()) + "\nours  " + text(ours.meta()));
}

// Compares both sides' counters. "bytes" and the oldest time of an emptied ring are the kernel's own: docs/conformance.md.
inline void same_counters(const KernelSide& kernel, OurSide& ours, bool caught_up) {
  const Counters k = kernel.counters();
  handout::CountersAnswer o;
  must(ours.client().ask(handout::Kind::counters, 0, &o, sizeof o));
  RC_ASSERT(o.written == k.written);
  RC_ASSERT(o.read == k.read);
  RC_ASSERT(o.overrun == k.overrun);
  RC_ASSERT(o.unread == k.unread);
  RC_ASSERT(o.dropped == k.dropped);
  RC_ASSERT(o.commit_overrun == k.commit_overrun);
  // The kernel never subtracts the padding of sub-buffers that it flagged.
  RC_ASSERT((k.overrun == 0 ? o.bytes == k.bytes : o.bytes <= k.bytes));
  if (caught_up && k.unread != 0) RC_ASSERT((o.oldest_time + 500) / 1000 == k.oldest_time / 1000);  // rounded to microseconds
}

class KernelJudge : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    auto made = KernelSide::create(GetParam());
    if (!made) GTEST_SKIP() << made.error().sentence;
    kernel_ = std::move(*made);
    kernel_->fresh(2);
    if (!kernel_->mappable()) {
      kernel_ = nullptr;
      GTEST_SKIP() << no_mapping;
    }
  }
  template <class Property>
  void check(int cases, Property property) {
    rc::detail::TestMetadata about;
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    about.id = about.description = std::string(info->test_suite_name()) + "/" + info->name();
    rc::detail::TestParams params = rc::detail::configuration().testParams;
    params.maxSuccess = std::min(params.maxSuccess, cases);
    const auto result = rc::detail::checkTestable(property, about, params);
    std::ostringstream said;
    rc::detail::printResultMessage(result, said);
    if (!result.template is<rc::detail::SuccessResult>()) FAIL() << said.str();
  }
  std::unique_ptr<KernelSide> kernel_;
};

}  // namespace ringside::test::kernel_judge_test
