// The worker's side of a Remote: it attaches to the writer, asks it, and waits for its answers, so that the server never does.
#include <algorithm>
#include <ringside/remote/messages.hpp>
#include <set>

#include "mount/remote_parts.hpp"

namespace ringside::mount {
namespace {

constexpr auto look_every = std::chrono::milliseconds(5);          // for new events, while a request waits
constexpr auto look_after_every = std::chrono::milliseconds(500);  // whether the writer is still there

// For the answer to opening a file, where "no such file" would name the wrong file.
int errno_of_attaching(const Error& e) {
  switch (const int error = errno_of(e)) {
    case ENOENT:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return ENODEV;
    case EAGAIN:
      return ETIMEDOUT;
    default:
      return error;
  }
}

bool good_component(const std::string& name) {
  return !name.empty() && name.size() < 64 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 127 && c != '/'; });
}

}  // namespace

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
        return r->watched && !r->has_view() && !r->ended && life_->buffer().readable(r->name.ring);
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

// The ring's source, unless it has one: a reset took it away, and while that is not answered there is no new one.
int Remote::make_source(Life& life, Ring& r) {
  if (r.source != nullptr) return 0;
  auto source = life.buffer().source(r.name.ring);
  if (!source) return errno_of(source.error());
  r.source = std::move(*source);
  return 0;
}

// The caller holds the mutex, and has not taken a view yet.
void Remote::note_reset(Life& life, Ring& r) {
  if (const u64 resets = life.buffer().resets(r.name.ring); std::exchange(r.resets, resets) != resets) r.begin_anew();
}

// Checks a ring once, and may ask the writer.
void Remote::ask(Ring& r, std::unique_lock<std::mutex>& lock) {
  r.wanted = false;
  if (r.view || r.ended) {
    ++r.runs;
    return;
  }
  r.busy = true;
  const std::shared_ptr<Life> life = life_;
  lock.unlock();
  std::optional<SubBufferView> view;
  int error = make_source(*life, r);
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
  note_reset(*life, r);
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
  const remote::Buffer& buffer = life_->buffer();
  // Without a source, a reset is pending.
  return r.ended || (r.source == nullptr && !buffer.is_gone()) ? 0 : buffer.counters(r.name.ring).unread;
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
    r->name.apart = 0;  // no other events are in this set: their numbers are their ids
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
    case Command::What::disable:
      return switch_off();
    case Command::What::reset: {
      const int error = reset_rings(c.ring);
      tidy();
      return error;
    }
    case Command::What::tidy:
      tidy();
      return 0;
    case Command::What::write: {
      if (life_ == nullptr || gone() || *c.ring >= cpus_) return ENODEV;
      auto done = life_->process->write(*c.ring, c.text);
      return done ? 0 : gone() ? ENODEV : errno_of(done.error());
    }
    case Command::What::event_on:
    case Command::What::event_off:
      return switch_events(c);
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
      if (r.source != nullptr) r.counters = r.source->counters();
      r.busy = true;  // `source` is the worker's now
    }
    Ring& r = *life->rings[n];
    int error = 0;
    if (!gone) {
      r.source.reset();
      if (auto done = life->buffer().reset(n); !done) error = errno_of(done.error());
      if (const int made = make_source(*life, r); error == 0) error = made;
    }
    const std::lock_guard lock(mutex_);
    r.busy = false;
    ++r.runs;
    note_reset(*life, r);
    if (r.source == nullptr) r.error = error;
    if (gone) {
      r.stale = r.view.has_value();
      r.ended = true;
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
