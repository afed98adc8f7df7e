// The kernel as the judge of ringside's ring: the same payloads at the same times to an instance's trace_marker_raw and to a
// ring of ringside, the same calls to both readers, and then the same bytes, meta-page fields and errors. docs/conformance.md
// lists the differences.
//
// Our writer's clock gives the kernel's own times, so times are compared, too. While the kernel's ring is mapped, an event's
// time is looked up as soon as it is written. Else it is known once the event is read, so the kernel goes through all the steps
// first; for an event that was overwritten unread, the time before its write is used.
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
#include "ring_memory.hpp"
#include "serve/server.hpp"
#include "source/get_reader_served.hpp"
#include "source/sub_buffer_copy.hpp"
#include "source/recording.hpp"

namespace ringside::test::kernel_judge_test {
namespace {

using Image = std::vector<u8>;

// The parts of an event that the kernel chooses.
struct Stamp {
  u64 time = 0;
  u8 flags = 0, preempt_count = 1;
  const u8 *begin = nullptr, *end = nullptr;  // its payload
};

constexpr u32 common_size = 8;

// The bytes after the common fields, for trace_marker_raw: an id, which is the event's number here, then anything.
Image marker(u32 number, u32 size) {
  Image bytes(size);
  std::memcpy(bytes.data(), &number, sizeof number);
  for (u32 i = sizeof number; i < size; ++i) bytes[i] = static_cast<u8>((number * 7 + i) | 1);
  return bytes;
}

struct Shape {
  u32 subbuf_size;
  bool overwrite;
};
std::string to_string(const Shape& s) {
  return std::to_string(s.subbuf_size / 1024) + "k" + (s.overwrite ? "Overwrite" : "Discard");
}

// Up to 3 bytes after a payload are there for alignment: ours are zeros, the kernel leaves the old bytes.
u32 rounding(u32 size) {
  const u32 event = abi::event_size(common_size + size);
  return event - abi::payload_offset(event) - common_size - size;
}

// Walks the events added to a sub-buffer since the last call.
struct Walked {
  u64 stamp = 0, time = 0;
  u32 end = 0;
};
template <class Use>
void walk_new(const u8* sub_buffer, Walked& at, Use use) {
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
std::optional<SubBufferView> read_view(Reader<>& reader) {
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
Image read_image(Reader<>& reader, bool mapped) {
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

std::string where(const u8* kernel, const u8* ours, u64 size) {
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

std::string text(const abi::MetaPage& m) {
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

void same_meta(const KernelSide& kernel, const OurSide& ours, const char* after) {
  if (std::memcmp(kernel.data(), ours.data(), kernel.shape().subbuf_size) != 0)
    RC_FAIL(std::string("meta-page after ") + after + "\nkernel" + text(kernel.meta()) + "\nours  " + text(ours.meta()));
}

// Compares both sides' counters. "bytes" and the oldest time of an emptied ring are the kernel's own: docs/conformance.md.
void same_counters(const KernelSide& kernel, OurSide& ours, bool caught_up) {
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

enum class What { write, burst, get_reader, read };
struct Step {
  What what;
  u32 size, count;
};
void show(const std::vector<Step>& steps, std::ostream& out) {
  for (const Step& s : steps) {
    const char* names[] = {"write", "burst", "get_reader", "read"};
    out << names[static_cast<int>(s.what)] << " " << s.size << " x " << s.count << "; ";
  }
}

rc::Gen<u32> sizes(u32 subbuf_size) {
  const u32 largest = std::min(subbuf_size - abi::header_size - 16, 4096u - 64);
  return rc::gen::oneOf(rc::gen::inRange(4u, 64u), rc::gen::inRange(4u, 300u), rc::gen::inRange(4u, largest + 1),
                        rc::gen::element(4u, 8u, 100u, 104u, 105u, 108u, 112u, largest));
}
// Long from the first case on: bursts go around the ring, calls come several in a row.
rc::Gen<std::vector<Step>> steps(u32 subbuf_size, std::vector<What> calls) {
  const auto step = rc::gen::apply(
      [=](int what, u32 size, u32 count, u32 call) {
        if (what == 0) return Step{What::write, size, 1};
        if (what <= 3) return Step{What::burst, size, std::max(1u, std::min(count, 6 * subbuf_size / (size + 12)))};
        return Step{calls[call % calls.size()], 0, 1};
      },
      rc::gen::inRange(0, 10), sizes(subbuf_size), rc::gen::inRange(1u, subbuf_size / 16), rc::gen::arbitrary<u32>());
  return rc::gen::resize(120, rc::gen::container<std::vector<Step>>(rc::gen::resize(100, step)));
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
      GTEST_SKIP() << "this kernel does not map its rings (Linux 6.10 does)";
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
INSTANTIATE_TEST_SUITE_P(Kernel, KernelJudge,
                         testing::Values(Shape{4096, true}, Shape{4096, false}, Shape{8192, true}, Shape{8192, false},
                                         Shape{16384, true}, Shape{16384, false}, Shape{65536, true}, Shape{65536, false}),
                         [](const auto& shape) { return to_string(shape.param); });

// Both rings, mapped and served, step by step.
class Lockstep {
 public:
  Lockstep(KernelSide& kernel, u32 slots) : kernel_(kernel), ours_(kernel.shape(), slots), reader_(ours_.ring()) {
    kernel_.fresh(slots);
    kernel_.map();
    kernel_.give_memory_to(ours_.ring());
    ours_.map();
    same_meta(kernel_, ours_, "the first mapping");
  }

  // False: refused by both.
  bool write(u32 size) {
    const u32 number = ++number_;
    const u64 before = sys::now_ns();
    const bool taken = kernel_.write(number, size);
    const auto stamp = kernel_.newest(number);
    RC_ASSERT(taken == stamp.has_value());
    const Refused refused = ours_.writer().write(number, size, stamp.value_or(Stamp{before}));
    RC_ASSERT((refused == Refused::no) == taken);
    if (!taken) return false;
    for (u32 i = 1; i <= rounding(size); ++i) RC_ASSERT(ours_.data()[stamp->end - kernel_.data() - i] == 0);
    const u32 event = abi::event_size(common_size + size);
    u32 before_it;
    std::memcpy(&before_it, stamp->begin - abi::payload_offset(event) - abi::stamp_size, sizeof before_it);
    extends += abi::word_type(before_it) == abi::type_time_extend && stamp->time - last_ >= abi::delta_limit;
    last_ = stamp->time;
    return true;
  }
  void get_reader() {
    RC_ASSERT(kernel_.get_reader() == 0);
    RC_ASSERT(ours_.get_reader() == 0);
    (void)kernel_.newest(0);
    same_meta(kernel_, ours_, "GET_READER");
    const u32 id = kernel_.meta().reader.id;
    const Image theirs = kernel_.page(id, kernel_.data()), own = kernel_.page(id, ours_.data());
    SAME_BYTES(theirs.data(), own.data(), own.size(), "the reader page");
    flagged += abi::commit_missed(reinterpret_cast<const abi::SubBufferHeader*>(own.data())->commit);
    same_counters(kernel_, ours_, true);
  }
  // Repeats the same calls until everything is found.
  void drain() {
    for (abi::MetaPage before{}; std::memcmp(&before, &kernel_.meta(), sizeof before) != 0; get_reader())
      before = kernel_.meta();
  }
  void read() {
    Image theirs = kernel_.read(), image = read_image(reader_, true);
    RC_ASSERT(theirs.size() == image.size());
    if (!theirs.empty()) {
      kernel_.clean(theirs, image);
      SAME_BYTES(theirs.data(), image.data(), image.size(), "the copied sub-buffer");
      ++copied;
    }
    same_counters(kernel_, ours_, false);
  }
  OurSide& ours() { return ours_; }
  u64 flagged = 0, copied = 0, extends = 0;

 private:
  KernelSide& kernel_;
  OurSide ours_;
  Reader<> reader_;
  u32 number_ = 0;
  u64 last_ = 0;
};

// Advanced by GET_READER, ours by the socket's; now and then by read(), which then copies.
TEST_P(KernelJudge, Mapped) {
  u64 overrun = 0, dropped = 0, flagged = 0, copied = 0;
  check(8, [&] {
    const u32 slots = *rc::gen::inRange(2u, 6u);
    const auto script = *steps(GetParam().subbuf_size, {What::get_reader, What::get_reader, What::get_reader, What::read});
    Lockstep both(*kernel_, slots);
    for (const Step& step : script) {
      for (u32 i = 0; i < step.count && step.size != 0; ++i) both.write(step.size);
      if (step.what == What::get_reader) both.get_reader();
      if (step.what == What::read) both.read();
    }
    both.drain();
    const Counters all = kernel_->counters();
    RC_ASSERT(all.unread == 0u);
    overrun += all.overrun;
    dropped += all.dropped;
    flagged += both.flagged;
    copied += both.copied;
  });
  EXPECT_GT(copied, 10u);
  EXPECT_EQ(overrun > 1000 && flagged > 10, GetParam().overwrite);
  EXPECT_EQ(dropped > 100, !GetParam().overwrite);
  std::printf("%lu overwritten, %lu sub-buffers flagged, %lu refused, %lu copied\n", overrun, flagged, dropped, copied);
}

// The second event that a full ring refuses makes the kernel forget where the data of the preceding sub-buffer ended, and so
// hand it over with its padding: removes that padding. 0: nothing to do.
u32 forget_padding(Image& kernel, const Image& ours) {
  auto& theirs = *reinterpret_cast<abi::SubBufferHeader*>(kernel.data());
  const u32 end = abi::commit_size(reinterpret_cast<const abi::SubBufferHeader*>(ours.data())->commit);
  const u32 left = abi::commit_size(theirs.commit) - end;
  if (abi::header_size + end + left != kernel.size() || left < 8) return 0;
  const u32 padding[2] = {abi::event_word(abi::type_padding, 1), left - 4};
  if (std::memcmp(kernel.data() + abi::header_size + end, padding, sizeof padding) != 0) return 0;
  std::memset(kernel.data() + abi::header_size + end, 0, left);
  theirs.commit -= left;
  return 1;
}

// A script run by the kernel unmapped, and then by a ring of ringside at the kernel's times.
class Replayed {
 public:
  Replayed(KernelSide& kernel, u32 slots, std::vector<Step> script)
      : kernel_(kernel),
        script_(std::move(script)),
        ring_(shared_ring(kernel.shape().subbuf_size, slots + 1, !kernel.shape().overwrite)),
        writer_(ring_),
        reader_(ring_) {
    kernel_.fresh(slots);
    for (const Step& step : script_) {
      for (u32 i = 0; i < step.count && step.size != 0; ++i) {
        const u64 before = sys::now_ns();
        written_.push_back({before, kernel_.write(static_cast<u32>(written_.size()), step.size)});
      }
      if (step.what == What::read) images.push_back(kernel_.read());
    }
    do images.push_back(kernel_.read());
    while (!images.back().empty());
    for (const Image& image : images) {
      Walked all;
      if (!image.empty()) walk_new(image.data(), all, [&](u32 number, const Stamp& stamp) { stamps_[number] = stamp; });
    }
  }
  ~Replayed() { unmap(ring_); }

  // use(reader, n) for each read, the n-th of the kernel's.
  template <class Use>
  void run(Use use) {
    u32 number = 0;
    size_t next = 0;
    for (const Step& step : script_) {
      for (u32 i = 0; i < step.count && step.size != 0; ++i) {
        ++number;
        const auto stamp = stamps_.find(number);
        const Refused refused =
            writer_.write(number, step.size, stamp != stamps_.end() ? stamp->second : Stamp{written_[number].before});
        RC_ASSERT((refused == Refused::no) == written_[number].taken);
      }
      if (step.what == What::read) use(reader_, next++);
    }
    while (next < images.size()) use(reader_, next++);
    const Counters k = kernel_.counters();
    const RingCounters o = counters<>(ring_);
    RC_ASSERT(o.written == k.written);
    RC_ASSERT(o.read == k.read);
    RC_ASSERT(o.overrun == k.overrun);
    RC_ASSERT(o.dropped == k.dropped);
  }
  std::vector<Image> images;  // one for each read(), empty if there was nothing; the last one is empty

 private:
  struct Written {
    u64 before;
    bool taken;
  };
  KernelSide& kernel_;
  std::vector<Step> script_;
  Ring ring_;
  OurWriter writer_;
  Reader<> reader_;
  std::vector<Written> written_{1};
  std::map<u32, Stamp> stamps_;
};

// Not mapped: read() hands over finished sub-buffers whole, and copies from unfinished ones.
TEST_P(KernelJudge, Read) {
  u64 whole = 0, partial = 0, lost = 0, forgotten = 0;
  check(8, [&] {
    const u32 slots = *rc::gen::inRange(2u, 6u);
    Replayed both(*kernel_, slots, *steps(GetParam().subbuf_size, {What::read}));
    both.run([&](Reader<>& reader, size_t n) {
      Image& theirs = both.images[n];
      Image own = read_image(reader, false);
      RC_ASSERT(theirs.size() == own.size());
      if (theirs.empty()) return;
      kernel_->clean(theirs, own);
      if (!GetParam().overwrite) forgotten += forget_padding(theirs, own);
      SAME_BYTES(theirs.data(), own.data(), own.size(), "sub-buffer " + std::to_string(n));
      const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(own.data());
      ++(abi::commit_size(header.commit) + 400 > GetParam().subbuf_size ? whole : partial);
      lost += abi::commit_missed(header.commit);
    });
  });
  EXPECT_GT(whole, 20u);
  EXPECT_GT(partial, 5u);
  EXPECT_EQ(lost > 5, GetParam().overwrite);
  std::printf("%lu whole sub-buffers (%lu with padding), %lu partial, %lu with losses\n", whole, forgotten, partial, lost);
}

// Images with the pieces of each sub-buffer joined, and without fill padding: for the comparison with a recording.
struct Whole {
  u64 time, lost;  // ~0: some
  Image data;
  friend bool operator==(const Whole&, const Whole&) = default;
};
std::vector<Whole> put_together(const std::vector<Image>& images, const std::function<void(Image&)>& clean) {
  std::vector<Whole> all;
  u64 last = 0;
  for (Image image : images) {
    if (image.empty()) continue;
    clean(image);
    SubBufferView view;
    RC_ASSERT(view_copy(image.data(), image.size(), static_cast<u32>(image.size()), view));
    const u64 commit = reinterpret_cast<const abi::SubBufferHeader*>(image.data())->commit;
    abi::EventCursor c(image.data() + abi::header_size, 0, view.end, view.time);
    u32 end = 0;
    while (c.next()) end = c.position();
    RC_ASSERT(c.malformed() == abi::Malformed::no);
    if (end == 0) continue;
    const u8* const data = image.data() + abi::header_size;
    if (all.empty() || view.time != last || view.lost_before != 0)
      all.push_back({view.time, view.lost_before != 0 && !abi::commit_stored(commit) ? ~u64{0} : view.lost_before, {}});
    all.back().data.insert(all.back().data.end(), data, data + end);
    abi::EventCursor again(data, 0, end, view.time);
    while (again.next()) last = again.time();
  }
  return all;
}

// The recorder's file, which grows in place and keeps no padding, against all that read() gave.
TEST_P(KernelJudge, Recorded) {
  const std::string dir = std::filesystem::temp_directory_path() / ("ringside-judge-" + std::to_string(getpid()));
  check(5, [&] {
    const u32 slots = *rc::gen::inRange(2u, 6u);
    Replayed both(*kernel_, slots, *steps(GetParam().subbuf_size, {What::read}));
    std::filesystem::remove_all(dir);
    RecordingWriter writer = must(RecordingWriter::create(dir, ClockInfo{}));
    must(writer.add_ring(RingName{}, GetParam().subbuf_size));
    both.run([&](Reader<>& reader, size_t) {
      if (const auto view = read_view(reader)) must(writer.append(0, *view));
    });
    must(writer.finish(0));
    const std::string file = must(sys::read_file(dir + "/ring0.raw"));
    RC_ASSERT(file.size() % GetParam().subbuf_size == 0u);
    std::vector<Image> own;
    for (size_t at = 0; at < file.size(); at += GetParam().subbuf_size)
      own.emplace_back(file.begin() + static_cast<long>(at), file.begin() + static_cast<long>(at + GetParam().subbuf_size));
    auto theirs = put_together(both.images, [&](Image& image) { kernel_->clean(image, image); });
    auto ours = put_together(own, [](Image&) {});
    RC_ASSERT(theirs.size() == ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      if (theirs[i].lost == ~u64{0} && ours[i].lost != 0) theirs[i].lost = ours[i].lost;  // the kernel had no room for it
      RC_ASSERT(theirs[i] == ours[i]);
    }
    RC_ASSERT(writer.ring(0).events == kernel_->counters().read);
    RC_ASSERT(writer.ring(0).lost == kernel_->counters().overrun);
  });
  std::filesystem::remove_all(dir);
}

class KernelJudgeTimes : public KernelJudge {};
INSTANTIATE_TEST_SUITE_P(Kernel, KernelJudgeTimes, testing::Values(Shape{4096, true}, Shape{16384, false}),
                         [](const auto& shape) { return to_string(shape.param); });

// A delta that needs a time extend, in front of an event that then fits exactly, misses by 4 bytes, misses by 8 bytes, or does
// not fit.
TEST_P(KernelJudgeTimes, ExtendsAtTheEnd) {
  constexpr u32 size = 36, event = abi::event_size(common_size + size);
  const u32 capacity = GetParam().subbuf_size - abi::header_size;
  check(1, [&] {
    Lockstep both(*kernel_, 8);
    u32 used = 0;
    const auto gap = [] { usleep(140'000); };  // more than 2^27 ns
    for (const u32 left : {event + 8, event + 4, event, event - 4}) {
      for (u32 more = capacity - used - left; more != 0;) {
        const u32 filler = more > 116 ? 60 : more;
        both.write(filler - 4 - common_size);
        more -= filler;
      }
      gap();
      both.write(size);
      used = left == event + 8 ? 0 : event;
    }
    gap();
    both.write(size);  // in the middle of a sub-buffer
    gap();
    both.get_reader();
    both.drain();
    RC_ASSERT(both.extends == 2u);
  });
}

// The same errno for forbidden operations.
class KernelJudgeErrors : public KernelJudge {
 protected:
  static int map_error(int fd, u64 size, int protection, int flags, u64 offset = 0) {
    void* const at = mmap(nullptr, size, protection, flags, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return errno;
    munmap(at, size);
    return 0;
  }
  template <class T>
  static int code(const result<T>& r) {
    return r ? 0 : r.error().code.value();
  }
};
INSTANTIATE_TEST_SUITE_P(Kernel, KernelJudgeErrors, testing::Values(Shape{4096, true}, Shape{16384, true}),
                         [](const auto& shape) { return to_string(shape.param); });

TEST_P(KernelJudgeErrors, TheSame) {
  constexpr u32 slots = 3;
  const u64 subbuf_size = GetParam().subbuf_size, whole = subbuf_size * (slots + 2);
  kernel_->fresh(slots);
  OurSide ours(GetParam(), slots);
  EXPECT_EQ(kernel_->get_reader(), ENODEV) << "not mapped";
  kernel_->map();
  ours.map();
  handout::ReaderAnswer none;
  EXPECT_EQ(code(ours.client().ask(handout::Kind::get_reader, 1, &none, sizeof none)), ENODEV) << "not mapped";

  const sys::Fd read_only(open((kernel_->cpu_dir() + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const int kernel = read_only.get(), own = ours.data_fd();
  EXPECT_EQ(map_error(kernel, whole, PROT_READ, MAP_SHARED), 0);
  EXPECT_EQ(map_error(own, whole, PROT_READ, MAP_SHARED), 0);
  EXPECT_EQ(map_error(kernel, 1, PROT_READ, MAP_SHARED, subbuf_size), 0);
  EXPECT_EQ(map_error(own, 1, PROT_READ, MAP_SHARED, subbuf_size), 0);
  EXPECT_EQ(map_error(kernel, page_size, PROT_READ | PROT_WRITE, MAP_SHARED), EACCES);
  EXPECT_EQ(map_error(own, page_size, PROT_READ | PROT_WRITE, MAP_SHARED), EACCES);
  for (const int fd : {kernel, own}) {
    void* const at = mmap(nullptr, page_size, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED);
    EXPECT_EQ(mprotect(at, page_size, PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(errno, EACCES);
    munmap(at, page_size);
  }
  EXPECT_EQ(code(sys::Region::map(kernel, whole + subbuf_size, false, "the kernel's ring")), EINVAL) << "beyond the end";
  EXPECT_EQ(code(sys::Region::map(own, whole + subbuf_size, false, "our ring")), EINVAL) << "beyond the end";
  EXPECT_EQ(ioctl(kernel, 0x1234), -1);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(ioctl(own, 0x1234), -1);
  EXPECT_EQ(errno, ENOTTY);

  const std::string kib = std::to_string(u64{slots + 3} * subbuf_size / 1024);
  const std::string other = std::to_string(2 * subbuf_size / 1024);
  EXPECT_EQ(code(kernel_->instance().write("per_cpu/cpu0/buffer_size_kb", kib)), EBUSY);
  EXPECT_EQ(code(ours.instance().resize((slots + 3) * subbuf_size, GetParam().subbuf_size)), EBUSY);
  EXPECT_EQ(code(kernel_->instance().write("buffer_subbuf_size_kb", other)), EBUSY);
  EXPECT_EQ(code(ours.instance().resize(8 * subbuf_size, 2 * GetParam().subbuf_size)), EBUSY);
  EXPECT_EQ(code(kernel_->instance().write("buffer_subbuf_size_kb", std::to_string(subbuf_size / 1024))), 0) << "the same size";
  EXPECT_EQ(code(ours.instance().resize(slots * (subbuf_size - abi::header_size), GetParam().subbuf_size)), 0)
      << "the same size";
  if (access((kernel_->instance().dir() + "/snapshot").c_str(), F_OK) == 0) {
    EXPECT_EQ(code(kernel_->instance().write("snapshot", "1")), EBUSY);
  }
  EXPECT_EQ(code(ours.instance().snapshot()), EBUSY);
  EXPECT_EQ(kernel_->get_reader(), 0);
  EXPECT_EQ(ours.get_reader(), 0);

  ours.unmap();
  EXPECT_EQ(code(ours.instance().snapshot()), 0);
  EXPECT_EQ(code(ours.instance().resize((slots + 3) * subbuf_size, GetParam().subbuf_size)), 0);
}

// Operations that a file, which the server hands out, cannot refuse: docs/conformance.md.
TEST_P(KernelJudgeErrors, OthersOfAFile) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  kernel_->map();
  ours.map();
  const int own = ours.data_fd();
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ, MAP_PRIVATE), EPERM);
  EXPECT_EQ(map_error(own, page_size, PROT_READ, MAP_PRIVATE), 0);
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ | PROT_EXEC, MAP_SHARED), EPERM);
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ | PROT_WRITE, MAP_SHARED), EPERM) << "a file opened for writing";
  const u64 end = u64{GetParam().subbuf_size} * 5;
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ, MAP_SHARED, end), EINVAL);
  EXPECT_EQ(map_error(own, page_size, PROT_READ, MAP_SHARED, end), 0);
  EXPECT_EQ(ioctl(kernel_->raw(), abi::get_reader_ioctl), 0);
  EXPECT_EQ(ioctl(own, abi::get_reader_ioctl), -1);
  EXPECT_EQ(errno, ENOTTY);
  // A private page is the mapper's own: writes to it do not reach the ring.
  auto* const copy = static_cast<u8*>(mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, own, 0));
  ASSERT_NE(static_cast<void*>(copy), MAP_FAILED);
  copy[0] ^= 0xFF;
  EXPECT_EQ(ours.meta().meta_page_size, GetParam().subbuf_size);
  munmap(copy, page_size);
  // A part.
  for (const int fd : {kernel_->raw(), own}) {
    auto* const all = static_cast<u8*>(mmap(nullptr, end, PROT_READ, MAP_SHARED, fd, 0));
    ASSERT_NE(static_cast<void*>(all), MAP_FAILED);
    EXPECT_EQ(munmap(all + GetParam().subbuf_size, GetParam().subbuf_size), fd == own ? 0 : -1);
    munmap(all, end);
  }
  EXPECT_EQ(ours.ring().control->mapped, 1u);
}

// Consumed beside the mappers: the kernel's meta-page waits for the next GET_READER, ours does not.
TEST_P(KernelJudgeErrors, MetaAfterRead) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  kernel_->map();
  ours.map();
  ASSERT_TRUE(kernel_->write(1, 40));
  ASSERT_EQ(ours.writer().write(1, 40, {sys::now_ns()}), Refused::no);
  EXPECT_FALSE(kernel_->read().empty());
  auto source = must(ours.instance().source(0));
  EXPECT_TRUE(must(source->next()));
  source->consume();
  EXPECT_EQ(kernel_->meta().read, 0u);
  EXPECT_EQ(ours.meta().read, 1u);
  source = nullptr;
  EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
  EXPECT_EQ(text(kernel_->meta()), text(ours.meta()));
}

// Emptied while it is mapped: the meta-page is at once that of an empty ring, and new events are read as before. (The ids go on
// in another order: docs/conformance.md.)
TEST_P(KernelJudgeErrors, Reset) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  kernel_->map();
  ours.map();
  u32 number = 0;
  const auto write = [&](u32 count) {
    for (u32 i = 0; i < count; ++i) {
      ASSERT_TRUE(kernel_->write(++number, 40));
      ASSERT_EQ(ours.writer().write(number, 40, {sys::now_ns()}), Refused::no);
    }
  };
  write(1000);
  EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
  must(kernel_->instance().write("trace", "0"));
  must(ours.instance().reset());
  for (const u32 count : {0u, 10u, 10u}) {
    write(count);
    if (count != 0) {
      EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
    }
    abi::MetaPage theirs = kernel_->meta(), own = ours.meta();
    EXPECT_EQ(reinterpret_cast<const abi::SubBufferHeader*>(kernel_->subbuf(theirs.reader.id))->commit,
              reinterpret_cast<const abi::SubBufferHeader*>(ours.subbuf(own.reader.id))->commit);
    theirs.reader.id = own.reader.id = 0;
    EXPECT_EQ(text(theirs), text(own));
  }
}

// Mapped when part of a sub-buffer has been read: except for the ids, both sides agree.
TEST_P(KernelJudgeErrors, MappedLate) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  Reader<> reader(ours.ring());
  u32 number = 0;
  const auto write = [&](u32 count) {
    for (u32 i = 0; i < count; ++i) {
      ASSERT_TRUE(kernel_->write(++number, 40));
      ASSERT_EQ(ours.writer().write(number, 40, {sys::now_ns()}), Refused::no);
    }
  };
  const auto same = [&] {
    abi::MetaPage theirs = kernel_->meta(), own = ours.meta();
    theirs.reader.id = own.reader.id = 0;
    EXPECT_EQ(text(theirs), text(own));
  };
  write(16);
  EXPECT_EQ(kernel_->read().size(), read_image(reader, false).size());
  write(10);
  kernel_->map();
  ours.map();
  EXPECT_EQ(kernel_->meta().reader.id, 0u);
  EXPECT_EQ(ours.meta().reader.id, 1u);
  EXPECT_EQ(kernel_->meta().read, 16u);
  same();
  for (const u32 count : {0u, 5u, 3000u, 0u, 0u, 0u}) {
    write(count);
    EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
    same();
  }
}

}  // namespace
}  // namespace ringside::test::kernel_judge_test
