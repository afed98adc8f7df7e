#include "mount/remote.hpp"

#include <fcntl.h>
#include <ringside/abi/event_cursor.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "mount/remote_parts.hpp"
#include "sys/thread.hpp"

namespace ringside::mount {
namespace {

constexpr u64 alarm_lasts_ns = 100'000'000;

u64 stamp_of(const u8* sub_buffer) noexcept {
  return Hardware::load(&reinterpret_cast<const abi::SubBufferHeader*>(sub_buffer)->time_stamp, Order::relaxed);
}
u64 commit_of(const u8* sub_buffer) noexcept {
  return Hardware::load(&reinterpret_cast<const abi::SubBufferHeader*>(sub_buffer)->commit, Order::acquire);  // pairs: COMMIT
}

u32 events_of(const SubBufferView& view) {
  u32 n = 0;
  abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
  while (c.next()) ++n;
  return n;
}

// The content of a ring at one moment, one copied sub-buffer after the other. The writer goes on: what it has overwritten since
// is left out.
class PeekSource final : public Source {
 public:
  struct Page {
    u64 stamp;
    u32 id, from;
  };
  PeekSource(const u8* ring, const Geometry& geometry, std::vector<Page> pages, RingName name, ClockInfo clock,
             std::shared_ptr<void> use)
      : Source(std::move(name), clock),
        ring_(ring),
        geometry_(geometry),
        pages_(std::move(pages)),
        use_(std::move(use)),
        copy_(geometry.subbuf_size() / 8) {}
  result<std::optional<SubBufferView>> next() override {
    while (next_ < pages_.size()) {
      const Page& p = pages_[next_++];
      const u8* const from = ring_ + geometry_.offset_of(p.id);
      const u32 end = std::min(abi::commit_size(commit_of(from)), geometry_.capacity()) & ~3u;
      auto* const to = reinterpret_cast<u8*>(copy_.data());
      Hardware::copy_in(to, from, abi::header_size + end);
      Hardware::fence_acquire();
      if (end <= p.from || stamp_of(from) != p.stamp || abi::commit_size(commit_of(from)) < end) continue;
      copy_[0] = p.stamp;
      const u64 time = p.from == 0 ? p.stamp : abi::time_before(to + abi::header_size, 0, p.from, p.stamp);
      return SubBufferView{to, p.from, end, 0, time};
    }
    return std::nullopt;
  }
  Counters counters() const override { return {}; }
  bool ended() const override { return true; }

 private:
  const u8* ring_;
  Geometry geometry_;
  std::vector<Page> pages_;
  size_t next_ = 0;
  std::shared_ptr<void> use_;
  std::vector<u64> copy_;
};

}  // namespace

Remote::Remote(std::string name, std::string socket, u32 rings, std::chrono::nanoseconds patience, int event_fd)
    : name_(std::move(name)), socket_(std::move(socket)), cpus_(rings), patience_(patience), event_fd_(event_fd) {
  buffer_percent = 0;  // an external writer does not say how full its ring is: any event is enough
  thread_ = must(sys::start_thread("that asks the writer at " + socket_, [this] { run(); }));
}

Remote::~Remote() {
  std::deque<Command> left;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    left.swap(queue_);
  }
  changed_.notify_one();
  thread_.join();
}

void Remote::signal() const {
  eventfd_write(event_fd_, 1);
}

void Remote::alarm(int, bool) {
  const std::lock_guard lock(mutex_);
  if (armed_until_ns_ == 0) changed_.notify_one();
  armed_until_ns_ = sys::now_ns() + alarm_lasts_ns;
}

std::shared_ptr<Job> Remote::post(Command command) {
  auto job = command.job = std::make_shared<Job>();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(command));
  }
  changed_.notify_one();
  return job;
}
std::shared_ptr<Job> Remote::probe() { return post({Command::What::probe}); }
std::shared_ptr<Job> Remote::load() { return post({Command::What::load}); }
std::shared_ptr<Job> Remote::enable(bool on) { return post({on ? Command::What::enable : Command::What::disable}); }
result<std::shared_ptr<Job>> Remote::reset(Only only) { return post({Command::What::reset, only}); }
std::shared_ptr<Job> Remote::write_event(u32 ring, std::string_view text) {
  return post({Command::What::write, ring, std::string(text)});
}
std::shared_ptr<Job> Remote::switch_events(std::string_view system, std::string_view event, bool on) {
  return post(
      {on ? Command::What::event_on : Command::What::event_off, std::nullopt, "", std::string(system), std::string(event)});
}

Remote::Ring* Remote::ring(u32 n) const {
  return life_ != nullptr && n < life_->rings.size() ? life_->rings[n].get() : nullptr;
}

bool Remote::can_write() const {
  const std::lock_guard lock(mutex_);
  return can_write_;
}
bool Remote::loaded() const {
  const std::lock_guard lock(mutex_);
  return needed();
}
bool Remote::needed() const {
  const auto unread_ring = [this](const auto& r) { return r->busy || unread(*r) != 0; };
  return life_ != nullptr && (life_->users != 0 || on_ || std::any_of(life_->rings.begin(), life_->rings.end(), unread_ring));
}
bool Remote::on() const {
  const std::lock_guard lock(mutex_);
  return on_ && life_ != nullptr && !life_->buffer().is_gone();
}
bool Remote::gone() const {
  const std::lock_guard lock(mutex_);
  return life_ != nullptr && life_->buffer().is_gone();
}
u64 Remote::kilobytes() const {
  const std::lock_guard lock(mutex_);
  if (!needed()) return kilobytes_;
  const Geometry g(subbuf_bytes(), life_->buffer().plan().nr_pages);
  return u64{g.nr_slots()} * g.capacity() / 1024;
}
result<void> Remote::kilobytes(u64 value) {
  const std::lock_guard lock(mutex_);
  if (value == 0 || value > most_kilobytes) return fail(EINVAL, "a ring cannot have this size");
  // Both sides touch all of this memory at once.
  const u64 all = static_cast<u64>(sysconf(_SC_PHYS_PAGES)) * static_cast<u64>(sysconf(_SC_PAGESIZE));
  if (value * 1024 > all / 4 / cpus_)
    return fail(ENOMEM, "all rings together would take more than a quarter of the machine's memory");
  if (needed()) return fail(EBUSY, "the writer has the rings: switch it off, empty `trace` and close the files first");
  kilobytes_ = value;
  return {};
}
std::shared_ptr<void> Remote::use() {
  const std::lock_guard lock(mutex_);
  if (life_ == nullptr) return nullptr;
  ++life_->users;
  return std::make_shared<Use>(*this, life_);
}
std::vector<EventInfo> Remote::known_events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}
std::vector<EventName> Remote::events() {
  const std::lock_guard lock(mutex_);
  std::vector<EventName> all;
  for (const EventInfo& e : events_) all.push_back({e.id, e.system, e.name, off_.count({e.system, e.name}) == 0});
  return all;
}
RingName Remote::name(u32 n) const {
  const std::lock_guard lock(mutex_);
  const Ring* const r = ring(n);
  return r != nullptr ? r->name : RingName{n, 0, 0, "", ""};
}
const void* Remote::memory() const {
  const std::lock_guard lock(mutex_);
  return life_.get();
}
Error Remote::error(u32 n) const {
  const std::lock_guard lock(mutex_);
  const Ring* r = ring(n);
  return fail(r == nullptr    ? ENODEV
              : r->error != 0 ? r->error
                              : EIO,
              "the external writer does not answer as it should")
      .value();
}

result<Counters> Remote::counters(u32 n) {
  const std::lock_guard lock(mutex_);
  Ring* const r = ring(n);
  if (r == nullptr) return Counters{};
  if (!r->busy && r->source != nullptr) r->counters = r->source->counters();
  Counters c = r->counters;
  if (r->busy && !life_->buffer().is_gone()) {  // the writer has not answered yet: take what it shows
    c.written = Hardware::load(&r->words().entries, Order::relaxed);
    c.overrun = Hardware::load(&r->words().overrun, Order::relaxed);
    c.unread = c.written - c.read - c.overrun;
    if (static_cast<i64>(c.unread) < 0) c.unread = 0;
  }
  if (r->has_view()) {
    const u64 left = std::min<u64>(events_of(*r->view), c.read);
    c.read -= left;
    c.unread += left;
    c.bytes += r->view->end - r->view->begin;
    c.oldest_time = r->view->time;
  }
  return c;
}

Found Remote::find(u32 n, Asker& asker) {
  const std::lock_guard lock(mutex_);
  Ring* const r = ring(n);
  if (r == nullptr) return Found::ended;
  r->watched = true;
  if (std::exchange(r->stale, false)) r->view.reset();
  if (r->view || r->ended) {
    asker.asks = false;
    return r->view ? Found::data : Found::ended;
  }
  if (!asker.asks) {
    asker = {true, r->runs + (r->busy ? 2 : 1)};
    r->wanted = true;
    changed_.notify_one();
  }
  if (r->runs < asker.run) return Found::asking;
  asker.asks = false;
  return r->error != 0 ? Found::failed : Found::nothing;
}

SubBufferView Remote::view(u32 n) const {
  const std::lock_guard lock(mutex_);
  return *ring(n)->view;
}

void Remote::consume(u32 n, u32 end, u32 events) {
  const std::lock_guard lock(mutex_);
  Ring* const r = ring(n);
  if (r == nullptr || !r->has_view()) return;
  SubBufferView& v = *r->view;
  end = std::min(end, v.end);
  if (end > v.begin) v.time = abi::time_before(v.sub_buffer + abi::header_size, v.begin, end, v.time);
  v.begin = std::max(v.begin, end);
  v.lost_before = 0;
  r->position = v.begin;
  r->taken += events;
  // Only mappers read these two words; no swap is under way, or it does not touch them while the reader page holds something.
  Hardware::store(&r->words().reader.read, r->position, Order::relaxed);
  Hardware::store(&r->words().read, r->taken, Order::relaxed);
  if (v.begin == v.end) r->view.reset();
}

// All of the view then counts as read, and the meta-page says so.
result<bool> Remote::get_reader(u32 n, Asker& asker, bool must) {
  switch (find(n, asker)) {
    case Found::asking: return false;
    case Found::nothing: return must;
    case Found::ended: return fail(ENODEV, "the external writer is gone, and all of it is read");
    case Found::failed: return tl::unexpected<Error>(error(n));
    case Found::data: break;
  }
  SubBufferView v;
  {
    const std::lock_guard lock(mutex_);
    Ring* const r = ring(n);
    v = *r->view;
    if (life_->buffer().is_gone()) {
      // Only this code sets the meta-page to the state that a dead writer left.
      const Geometry g(subbuf_bytes(), life_->buffer().plan().nr_pages);
      const u8* const data = life_->buffer().data(n);
      for (u32 id = 0; id < g.nr_subbufs(); ++id)
        if (stamp_of(data + g.offset_of(id)) == r->stamp && commit_of(data + g.offset_of(id)) != 0) {
          Hardware::store(&r->words().reader.lost_events, v.begin == 0 ? v.lost_before : 0, Order::relaxed);
          Hardware::store(&r->words().reader.id, id, Order::release);
          break;
        }
    }
  }
  consume(n, v.end, events_of(v));
  return true;
}

bool Remote::ready(u32 n, u32) {
  const std::lock_guard lock(mutex_);
  Ring* const r = ring(n);
  if (r == nullptr) return true;
  r->watched = true;
  return r->has_view() || r->ended || life_->buffer().readable(n);
}

result<sys::Fd> Remote::file(u32 n) const {
  const std::lock_guard lock(mutex_);
  if (ring(n) == nullptr) return fail(ENODEV, "the writer is not attached");
  const remote::Buffer& b = life_->buffer();
  if (!b.options().apart && n != 0) return fail(ENODEV, "this ring has no file of its own");
  sys::Fd fd(::open(("/proc/self/fd/" + std::to_string(b.fd(b.options().apart ? n : 0))).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail(errno, "cannot open the ring's memory");
  return fd;
}

Peeked Remote::peek(Only only) {
  Peeked all;
  for (u32 n = only.value_or(0); n < (only ? *only + 1 : cpus_); ++n) {
    const Counters c = *counters(n);
    all.in_buffer += c.unread;
    all.overrun += c.overrun;
    if (auto source = peek_at(n)) all.sources.push_back(std::move(source));
  }
  return all;
}

std::unique_ptr<Source> Remote::peek_at(u32 n) {
  const std::lock_guard lock(mutex_);
  Ring* const r = ring(n);
  if (r == nullptr || r->ended) return nullptr;
  const Geometry g(subbuf_bytes(), life_->buffer().plan().nr_pages);
  const u8* const data = life_->buffer().data(n);
  std::vector<PeekSource::Page> pages;
  for (u32 id = 0; id < g.nr_subbufs(); ++id) {
    const u8* const page = data + g.offset_of(id);
    const u64 stamp = stamp_of(page);
    // Sub-buffers that were given back have older stamps than the current one.
    if (abi::commit_size(commit_of(page)) == 0 || (r->seen && stamp < r->stamp)) continue;
    pages.push_back({stamp, id, r->seen && stamp == r->stamp ? r->position : 0});
  }
  if (pages.empty()) return nullptr;
  std::sort(pages.begin(), pages.end(), [](const auto& a, const auto& b) { return a.stamp < b.stamp; });
  ++life_->users;
  return std::make_unique<PeekSource>(data, g, std::move(pages), r->name, ClockInfo{},
                                      std::make_shared<Use>(*this, life_));
}

u64 Remote::refresh() {
  const std::lock_guard lock(mutex_);
  if (events_shown_ == events_known_) return events_shown_;
  events_shown_ = events_known_;
  for (const EventInfo& e : events_) {
    EventInfo& known = formats_of_[e.id];
    if (known.system == e.system && known.name == e.name && known.format == e.format) continue;
    known = e;
    formats_.add(e.id, e.system, e.name, e.format);
  }
  if (life_ != nullptr)
    for (const auto& r : life_->rings) tasks_.add(r->name);
  return events_shown_;
}

}  // namespace ringside::mount
