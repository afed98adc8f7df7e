#include "mount/remote.hpp"

#include <fcntl.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/remote/messages.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "sys/thread.hpp"

namespace ringside::mount {
namespace {

constexpr auto look_every = std::chrono::milliseconds(5);         // for new events, while a request waits
constexpr auto look_after_every = std::chrono::milliseconds(500);  // whether the writer is still there
constexpr u64 alarm_lasts_ns = 100'000'000;

// For the answer to opening a file, where "no such file" would name the wrong file.
int errno_of_attaching(const Error& e) {
  switch (const int error = errno_of(e)) {
    case ENOENT:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return ENODEV;
    case EAGAIN: return ETIMEDOUT;
    default: return error;
  }
}

bool good_component(const std::string& name) {
  return !name.empty() && name.size() < 64 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 127 && c != '/'; });
}

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

// `view` and the copy in `page` belong to the server's thread while there is a view, `source` to the worker while it is busy;
// the mutex guards all else.
struct Remote::Ring {
  RingName name;
  std::unique_ptr<Source> source;
  sys::Region meta;
  std::vector<u64> page = std::vector<u64>(subbuf_bytes() / 8);
  std::optional<SubBufferView> view;  // events that no client has taken
  bool stale = false;                 // the ring was emptied: the server's thread drops the view
  u64 stamp = 0;                      // the time stamp of the last view's sub-buffer, and
  u32 position = 0;                   // how far that was read
  bool seen = false;                  // there was one
  bool busy = false, wanted = false, watched = false, ended = false;
  u64 runs = 0;  // counts the worker's
  int error = 0;
  u64 taken = 0;  // events
  mutable Counters counters;

  abi::MetaPage& words() { return *reinterpret_cast<abi::MetaPage*>(meta.data()); }
  bool has_view() const { return view && !stale; }
};

struct Remote::Life {
  std::unique_ptr<remote::Process> process;
  std::vector<std::unique_ptr<Ring>> rings;
  enum class Switch : u8 { off, on, unsure };
  std::vector<Switch> switches;  // the worker's, by event of the process; unsure: a request was not answered in time
  u32 users = 0;
  remote::Buffer& buffer() const { return process->buffer(); }
};

struct Remote::Use {
  Use(Remote& r, std::shared_ptr<Life> l) : remote(r), life(std::move(l)) {}
  ~Use() {
    const std::lock_guard lock(remote.mutex_);
    if (--life->users != 0 || remote.over_) return;
    remote.queue_.push_back({Command::What::tidy});
    remote.changed_.notify_one();
  }
  Remote& remote;
  std::shared_ptr<Life> life;
};

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
    EventInfo& known = formats_of_[e.number()];
    if (known.system == e.system && known.name == e.name && known.format == e.format) continue;
    known = e;
    formats_.add(e.number(), e.system, e.name, e.format);
  }
  if (life_ != nullptr)
    for (const auto& r : life_->rings) tasks_.add(r->name);
  return events_shown_;
}

// ---- the worker's side

void Remote::learn(remote::Process::Offer offer) {
  std::set<std::string> names;
  std::set<u16> ids;
  std::erase_if(offer.events, [&](const EventInfo& e) {
    return !good_component(e.system) || !good_component(e.name) || !ids.insert(e.id).second ||
           !names.insert(e.system + "/" + e.name).second;
  });
  events_ = std::move(offer.events);
  ++events_known_;
  can_write_ = offer.can_write;
  can_switch_events_ = offer.can_switch_events;
  if (!can_switch_events_) off_.clear();
}

void Remote::run() {
  std::unique_lock lock(mutex_);
  u64 looked_after_ns = 0;
  size_t turn = 0;  // no ring starves another
  const auto wants = [&]() -> Ring* {
    const size_t rings = life_ == nullptr ? 0 : life_->rings.size();
    for (size_t k = 0; k < rings; ++k)
      if (Ring* const r = life_->rings[(turn + k) % rings].get(); r->wanted) return r;
    return nullptr;
  };
  while (!over_) {
    if (!queue_.empty()) {
      carry_out_first(lock);
      continue;
    }
    if (Ring* const r = wants(); r != nullptr) {
      turn = r->name.ring + 1;
      ask(*r, lock);
      signal();
      continue;
    }
    const u64 now = sys::now_ns();
    if (life_ != nullptr && now - looked_after_ns > static_cast<u64>(std::chrono::nanoseconds(look_after_every).count())) {
      looked_after_ns = now;
      lock.unlock();
      tidy();
      lock.lock();
      continue;
    }
    if (armed_until_ns_ != 0 && now >= armed_until_ns_) {
      armed_until_ns_ = 0;
      if (life_ != nullptr)
        for (const auto& r : life_->rings) r->watched = false;
      signal();
      continue;
    }
    const auto called = [&] { return over_ || !queue_.empty() || wants() != nullptr; };
    if (armed_until_ns_ != 0) {
      if (changed_.wait_for(lock, look_every, called)) continue;
      // Checked, not asked: asking moves the reader page on, and clients that map it read it in their own time.
      const auto found = [this](const auto& r) {
        return r->watched && !r->view && !r->ended && life_->buffer().readable(r->name.ring);
      };
      if (life_ != nullptr && std::any_of(life_->rings.begin(), life_->rings.end(), found)) signal();
      continue;
    }
    changed_.wait_for(lock, life_ != nullptr ? look_after_every : std::chrono::hours(1),
                      [&] { return called() || armed_until_ns_ != 0; });
  }
}

// Releases the lock meanwhile.
void Remote::carry_out_first(std::unique_lock<std::mutex>& lock) {
  Command c = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  const int error = carry_out(c);
  const auto attaches = [](const Command& any) { return any.what == Command::What::load || any.what == Command::What::enable; };
  // A writer that cannot be attached is waited for once, not once for each client that has asked meanwhile.
  if (error != 0 && attaches(c) && life_ == nullptr) {
    lock.lock();
    for (const Command& other : queue_)
      if (attaches(other)) other.job->error.store(error, std::memory_order_release);
    std::erase_if(queue_, attaches);
    lock.unlock();
  }
  if (c.job != nullptr) {
    c.job->error.store(error, std::memory_order_release);
    c = {};  // perhaps the last user of the rings
    signal();
  }
  lock.lock();
}

// Checks a ring once, and may ask the writer.
void Remote::ask(Ring& r, std::unique_lock<std::mutex>& lock) {
  r.wanted = false;
  if (r.view || r.ended || r.source == nullptr) {
    ++r.runs;
    return;
  }
  r.busy = true;
  const std::shared_ptr<Life> life = life_;
  lock.unlock();
  std::optional<SubBufferView> view;
  int error = 0;
  // A page that holds nothing, or nothing new, may come before one that does.
  for (int tries = 0; tries < 4 && !view && error == 0; ++tries) {
    auto next = r.source->next();
    if (!next)
      error = errno_of(next.error());
    else if (*next && (*next)->end > (*next)->begin)
      view = **next;
    else if (r.source->ended() || !life->buffer().readable(r.name.ring))
      break;
  }
  const bool ended = !view && error == 0 && r.source->ended();
  if (view) {
    // A copy is walked, because the writer cannot change it.
    auto* const copy = reinterpret_cast<u8*>(r.page.data());
    Hardware::copy_in(copy, view->sub_buffer, abi::header_size);
    Hardware::copy_in(copy + abi::header_size + view->begin, view->sub_buffer + abi::header_size + view->begin,
                      view->end - view->begin);
    view->sub_buffer = copy;
  }
  lock.lock();
  r.busy = false;
  ++r.runs;
  r.error = error;
  r.ended = ended;
  if (life->buffer().is_gone()) on_ = false;
  if (view) {
    r.view = view;
    r.stamp = r.page[0];
    r.position = view->begin;
    r.seen = true;
  }
}

u64 Remote::unread(const Ring& r) const {
  if (r.has_view()) return 1;
  return r.ended || r.source == nullptr ? 0 : r.source->counters().unread;
}

int Remote::attach() {
  remote::Process::Options o;
  o.patience = patience_;
  {
    const std::lock_guard lock(mutex_);
    o.buffer.size = kilobytes_ * 1024;
  }
  o.buffer.rings = cpus_;
  o.buffer.subbuf_size = subbuf_bytes();
  o.buffer.layout = remote::Layout::meta_page;
  o.buffer.clock = calibrate(ClockKind::mono);  // tools show this clock in seconds
  o.buffer.apart = cpus_ < remote::most_files;
  auto process = remote::Process::attach(socket_, o);
  if (!process) return errno_of_attaching(process.error());
  auto life = std::make_shared<Life>();
  life->process = std::move(*process);
  for (u32 n = 0; n < cpus_; ++n) {
    auto source = life->buffer().source(n);
    auto meta = life->buffer().meta_page(n);
    if (!source || !meta) return EIO;
    auto r = std::make_unique<Ring>();
    r->name = (*source)->name();
    r->source = std::move(*source);
    r->meta = std::move(*meta);
    life->rings.push_back(std::move(r));
  }
  life->switches.assign(life->process->events().size(), Life::Switch::on);
  if (const int error = tell_switches(*life); error != 0) return error;
  const std::lock_guard lock(mutex_);
  learn(life->process->offer());
  life_ = std::move(life);
  on_ = unsure_ = false;
  return 0;
}

// The rings of a dead writer make room for those of a living one, if no client uses them.
int Remote::attach_if_none(const Command& c) {
  const auto dead = [&] {  // to `load`: and all of them are read
    const std::lock_guard lock(mutex_);
    if (life_ == nullptr || !life_->buffer().is_gone()) return false;
    return c.what != Command::What::load ||
           std::all_of(life_->rings.begin(), life_->rings.end(), [this](const auto& r) { return unread(*r) == 0; });
  };
  if (dead()) {
    std::shared_ptr<Life> old;
    const std::lock_guard lock(mutex_);
    if (life_->users != 0) return EBUSY;
    old.swap(life_);
  }
  return life_ == nullptr ? attach() : 0;
}

int Remote::switch_on() {
  const auto done = life_->process->enable(true);
  unsure_ = !done;
  if (!done) {
    tidy();
    return errno_of_attaching(done.error());
  }
  const std::lock_guard lock(mutex_);
  on_ = true;
  return 0;
}

int Remote::switch_off() {
  int error = 0;
  if (life_ != nullptr && !gone())
    if (auto done = life_->process->enable(false); !done && !life_->buffer().is_gone()) error = errno_of(done.error());
  unsure_ = error != 0;
  if (error == 0) {
    const std::lock_guard lock(mutex_);
    on_ = false;
  }
  tidy();
  return error;
}

int Remote::carry_out(const Command& c) {
  if (std::shared_ptr<Life> life; c.what != Command::What::probe) {
    {
      const std::lock_guard lock(mutex_);
      life = life_;
    }
    if (life != nullptr) life->process->look_after();
  }
  switch (c.what) {
    case Command::What::probe: {
      auto offer = remote::Process::offer_at(socket_, patience_);
      if (!offer) return errno_of_attaching(offer.error());
      const std::lock_guard lock(mutex_);
      if (life_ == nullptr) learn(std::move(*offer));
      return 0;
    }
    case Command::What::load:
      if (const int error = attach_if_none(c); error != 0) return error;
      c.job->use = use();
      return 0;
    case Command::What::enable:
      if (const int error = attach_if_none(c); error != 0) return error;
      return switch_on();
    case Command::What::disable: return switch_off();
    case Command::What::reset: {
      const int error = reset_rings(c.ring);
      tidy();
      return error;
    }
    case Command::What::tidy: tidy(); return 0;
    case Command::What::write: {
      if (life_ == nullptr || gone() || *c.ring >= cpus_) return ENODEV;
      auto done = life_->process->write(*c.ring, c.text);
      return done ? 0 : gone() ? ENODEV : errno_of(done.error());
    }
    case Command::What::event_on:
    case Command::What::event_off: return switch_events(c);
  }
  return EINVAL;
}

// A client's wish is kept for later rings, if the writer fulfils it or has no rings now.
int Remote::switch_events(const Command& c) {
  const bool on = c.what == Command::What::event_on;
  std::set<std::pair<std::string, std::string>> before;
  {
    const std::lock_guard lock(mutex_);
    if (!can_switch_events_) return on ? 0 : EOPNOTSUPP;
    before = off_;
    for (const EventInfo& e : events_) {
      if ((!c.system.empty() && e.system != c.system) || (!c.event.empty() && e.name != c.event)) continue;
      if (on)
        off_.erase({e.system, e.name});
      else
        off_.insert({e.system, e.name});
    }
  }
  if (life_ == nullptr || gone()) return 0;
  const int error = tell_switches(*life_);
  if (error != 0 && !gone()) {
    const std::lock_guard lock(mutex_);
    off_ = std::move(before);
  }
  return error;
}

// Asks the writer for each event whose state there is not the wanted one.
int Remote::tell_switches(Life& life) {
  if (!life.process->offer().can_switch_events) return 0;
  const u64 deadline = sys::now_ns() + 2 * static_cast<u64>(patience_.count());  // for all: each may be answered just in time
  const std::vector<EventInfo>& events = life.process->events();
  for (u32 k = 0; k < events.size(); ++k) {
    Life::Switch wanted;
    {
      const std::lock_guard lock(mutex_);
      wanted = off_.count({events[k].system, events[k].name}) == 0 ? Life::Switch::on : Life::Switch::off;
    }
    if (life.switches[k] == wanted) continue;
    if (sys::now_ns() > deadline) return ETIMEDOUT;
    if (auto done = life.process->switch_event(k, wanted == Life::Switch::on); !done) {
      const int error = errno_of_attaching(done.error());
      if (error == ETIMEDOUT) life.switches[k] = Life::Switch::unsure;
      return error;
    }
    life.switches[k] = wanted;
  }
  return 0;
}

int Remote::reset_rings(std::optional<u32> only) {
  const bool gone = this->gone();
  const u64 deadline = sys::now_ns() + 2 * static_cast<u64>(patience_.count());
  for (u32 n = 0; n < cpus_; ++n) {
    if (only && *only != n) continue;
    if (!gone && sys::now_ns() > deadline) return ETIMEDOUT;  // one deadline for all rings: each may be answered just in time
    std::shared_ptr<Life> life;
    {
      const std::lock_guard lock(mutex_);
      life = life_;
      if (life == nullptr) return 0;
      Ring& r = *life->rings[n];
      r.busy = true;  // `source` is the worker's now
    }
    Ring& r = *life->rings[n];
    int error = 0;
    if (!gone) {
      r.source.reset();
      if (auto done = life->buffer().reset(n); !done) error = errno_of(done.error());
      if (auto source = life->buffer().source(n)) r.source = std::move(*source);
      if (r.source == nullptr) return EIO;
    }
    const std::lock_guard lock(mutex_);
    r.busy = false;
    ++r.runs;
    if (gone || error == 0) r.stale = r.view.has_value();
    if (gone) {
      r.ended = true;
    } else if (error == 0) {
      r.seen = false;
      r.position = 0;
      r.stamp = r.taken = 0;
      r.error = 0;
      r.counters = {};
    }
    if (error != 0) return error;
  }
  return 0;
}

// Is the writer still there, and its switch right? Detaches what no client needs.
void Remote::tidy() {
  std::shared_ptr<Life> old;
  if (life_ != nullptr && unsure_ && (life_->process->enable(on()) || gone())) unsure_ = false;
  if (life_ != nullptr && !gone() && std::count(life_->switches.begin(), life_->switches.end(), Life::Switch::unsure) != 0)
    (void)tell_switches(*life_);
  {
    const std::lock_guard lock(mutex_);
    if (life_ == nullptr) return;
    life_->process->look_after();
    if (life_->buffer().is_gone()) on_ = false;
    if (needed()) return;
    old.swap(life_);
  }
}

}  // namespace ringside::mount
