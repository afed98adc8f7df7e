#include "remote/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ringside/remote/messages.hpp>

#include "clock/time_namespace.hpp"
#include "source/get_reader_served.hpp"
#include "sys/as_memory_allows.hpp"
#include "sys/beneath.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside::remote {

// The connection. One request is pending at a time; a request that was not answered in time stays pending.
struct Process::Wire {
  sys::Fd socket;
  std::string who;
  std::chrono::nanoseconds patience{};
  std::weak_ptr<Buffer> buffer;
  std::mutex mutex;
  u32 sequence = 0;
  bool open = true;
  i64 receive_ns = -1;  // recv's time-out
  std::optional<Request> unanswered;
  u64 asked_ns = 0;  // when it was asked
  std::map<u32, Answer> late;  // late answers that still count, to a swap or to a reset, by ring
  bool counts_refused = false;  // the writer
  std::map<u32, u32> last;      // the rings' last counts of refused events, from a writer that has ended

  tl::unexpected<Error> over(int error, const std::string& sentence) {
    open = false;
    const bool ended = error == EPIPE || error == ECONNRESET;
    const auto whole = fail(error, who + ": " + sentence);
    if (auto b = buffer.lock()) b->gone(ended ? who + ": " + sentence : whole.value().sentence, !ended);
    return whole;
  }

  // Receives the next answer into `a`; false: none within `ns`.
  result<bool> receive(EventAnswer& a, i64 ns) {
    if (ns != receive_ns) {
      const timeval patience_of{ns / 1'000'000'000, std::max<i64>(ns % 1'000'000'000 / 1000, 1)};
      setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience_of, sizeof patience_of);
      receive_ns = ns;
    }
    const u64 deadline = sys::now_ns() + static_cast<u64>(ns);
    for (int resets = 0;;) {
      const ssize_t got = recv(socket.get(), &a, sizeof a, MSG_TRUNC);
      // A peer that closes without reading a request leaves an ECONNRESET before its last answer.
      if (got < 0 && errno == ECONNRESET && ++resets < 3) continue;
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
        if (errno == EAGAIN || sys::now_ns() >= deadline) return false;
        continue;
      }
      if (got < 0) return over(errno, "the connection broke");
      if (got == 0) return over(EPIPE, "it ended, or closed the connection");
      const bool event = got == sizeof a && (a.head.ask == Ask::event || a.head.ask == Ask::ring_name) && a.head.error == 0;
      if ((got != sizeof a.head && !event) || a.head.magic != message_magic || a.head.error < 0 || a.head.error > 4095)
        return over(EPROTO, "it answers nonsense");
      if (!is_last(a.head)) return true;
      if (!keep_last(a.head)) return over(EPROTO, "it answers nonsense");
      if (sys::now_ns() >= deadline) return false;
    }
  }
  static bool is_last(const Answer& a) { return a.ask == Ask::last && a.sequence == 0; }
  u32 nr_rings() const {
    const auto b = buffer.lock();
    return b ? b->plan().nr_rings : 0;
  }
  // A ring has one last count: false for another one, and for a ring that does not exist. So there is an end of them.
  bool keep_last(const Answer& a) {
    return a.argument < nr_rings() && last.try_emplace(static_cast<u32>(a.argument), a.refused).second;
  }
  // What it sent before it ended, as far as it may have: the last counts, a late answer, and the errno that was the reason,
  // which is answered; 0: none.
  int take_rest() {
    int resets = 0;
    for (u32 left = nr_rings() + 2; left != 0;) {
      Answer a{};
      const ssize_t got = recv(socket.get(), &a, sizeof a, MSG_DONTWAIT | MSG_TRUNC);
      if (got < 0 && (errno == EINTR || (errno == ECONNRESET && ++resets < 3))) continue;
      if (got <= 0) return 0;
      --left;
      if (got != sizeof a || a.magic != message_magic) continue;
      if (is_last(a)) (void)keep_last(a);
      else if (a.error == EBUSY) return EBUSY;
    }
    return 0;
  }

  // Keeps a late answer if it brings a new reader page, or says that the ring is empty now: then no earlier page counts.
  bool settle(const EventAnswer& a) {
    if (!unanswered || a.head.sequence != unanswered->sequence || a.head.ask != unanswered->ask) return false;
    // A late "nothing there" is outdated; a swap that happened is still valid.
    const bool swapped = a.head.ask == Ask::swap && a.head.argument == static_cast<u64>(Swap::swapped);
    if ((swapped || a.head.ask == Ask::reset) && a.head.error == 0) late[unanswered->ring] = a.head;
    unanswered.reset();
    return true;
  }

  result<void> ask(Ask what, u32 ring, u64 argument, EventAnswer& a, const std::vector<int>& files = {},
                   std::string_view text = {}) {
    const std::lock_guard lock(mutex);
    if (!open) return fail(EPIPE, who + ": it ended, or closed the connection");
    const i64 ns = patience.count();
    if (unanswered) {
      // It did not answer in time before: wait only a little longer, in case it goes on now; or for what is left of a patience
      // that has grown since.
      const i64 left = ns - static_cast<i64>(sys::now_ns() - asked_ns);
      auto got = RS_TRY(receive(a, std::max(left, std::min<i64>(ns, 10'000'000))));
      if (got && !settle(a)) return over(EPROTO, "its answer matches no request");
      if (!got) return silent(what, ring);
    }
    if (const auto it = late.find(ring); it != late.end() && it->second.ask == what) {
      a.head = it->second;
      late.erase(it);
      return refused(a);
    }
    const Request q{message_magic, what, ++sequence, ring, argument, what == Ask::attach ? takes_last : 0};
    RS_TRY(put(q, text, files));
    asked_ns = sys::now_ns();
    auto got = RS_TRY(receive(a, ns));
    if (!got) {
      unanswered = q;
      return silent(what, ring);
    }
    if (a.head.ask == Ask::attach && a.head.sequence == 0 && a.head.error == EBUSY)
      return over(EBUSY, "another reader is attached to it");
    if (a.head.sequence != q.sequence || a.head.ask != what) return over(EPROTO, "its answer matches no request");
    if (what == Ask::attach && a.head.error == EOPNOTSUPP)
      return over(EOPNOTSUPP, "its processor does not have the clock that this reader asks for; use the clock mono");
    if (what == Ask::attach && a.head.error == ENOMEM)
      return over(ENOMEM, "it has no memory for another reader's rings; restart it if many have come and gone");
    if (what == Ask::reset && a.head.error == 0) late.erase(ring);
    return refused(a);
  }

  void look_after() {
    const std::lock_guard lock(mutex);
    pollfd p{socket.get(), 0, 0};
    if (!open || poll(&p, 1, 0) <= 0 || (p.revents & (POLLHUP | POLLERR)) == 0) return;
    (void)take_rest();
    (void)over(EPIPE, "it ended, or closed the connection");
  }

  tl::unexpected<Error> silent(Ask what, u32 ring) {
    const std::string of = what >= Ask::swap && what != Ask::switch_event ? ", ring " + std::to_string(ring) : "";
    return refuse(std::errc::timed_out,
                  who + of + ": it does not answer (stopped, or busy elsewhere?); data read before is good, and it may go on");
  }
  result<void> refused(const EventAnswer& a) {
    if (a.head.error == 0) return {};
    return fail(a.head.error, who + ": it refuses");
  }

  result<void> put(const Request& q, std::string_view text, const std::vector<int>& files) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * most_files)] = {};
    iovec parts[] = {{const_cast<Request*>(&q), sizeof q}, {const_cast<char*>(text.data()), text.size()}};
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = std::size(parts);
    if (!files.empty()) {
      m.msg_control = control;
      m.msg_controllen = CMSG_SPACE(sizeof(int) * files.size());
      cmsghdr* const c = CMSG_FIRSTHDR(&m);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int) * files.size());
      std::memcpy(CMSG_DATA(c), files.data(), sizeof(int) * files.size());
    }
    ssize_t n;
    do n = sendmsg(socket.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n == static_cast<ssize_t>(sizeof q + text.size())) return {};
    if (errno == EAGAIN) return silent(q.ask, q.ring);
    const int error = errno;
    if (take_rest() == EBUSY) return over(EBUSY, "another reader is attached to it");
    errno = error;
    if (errno == EPIPE || errno == ECONNRESET) return over(errno, "it ended, or closed the connection");
    return over(errno, "it cannot be asked");
  }
};

namespace {

std::string text(const char* from, size_t room) { return std::string(from, strnlen(from, room)); }

void take_abilities(Process::Offer& offer, u32 bits) {
  offer.can_write = (bits & can_write) != 0;
  offer.can_switch_events = (bits & can_switch_events) != 0;
  offer.can_tell_rings = (bits & can_tell_rings) != 0;
  offer.can_name_rings = (bits & can_name_rings) != 0;
}

// A copy that no process can change.
result<sys::Fd> sealed(const std::vector<u64>& blob) {
  sys::Fd fd(memfd_create("ringside-descriptor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const size_t bytes = blob.size() * 8;
  if (!fd || ::write(fd.get(), blob.data(), bytes) != static_cast<ssize_t>(bytes) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    return fail(errno, "cannot put the descriptor of the rings into memory");
  return fd;
}

}  // namespace

result<std::unique_ptr<Process>> Process::attach(const std::string& path, Options options) {
  auto fd = RS_TRY(
      connect_socket(path, options.patience,
                     "no external writer listens at " + path + " (a program with ringside/remote/process_writer.hpp does)"));
  return over(std::move(fd), path, std::move(options));
}

result<std::unique_ptr<Process>> Process::over(sys::Fd socket, const std::string& who, Options options) {
  sys::guard_mappings();
  auto wire = std::make_shared<Wire>();
  wire->socket = std::move(socket);
  wire->who = who;
  wire->patience = options.patience;
  auto process = std::unique_ptr<Process>(new Process(wire));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(wire->socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) process->pid_ = peer.pid;
  if (const i64 ahead = peer.pid > 0 ? ahead_in_time_namespace(peer.pid) : 0; ahead != 0 && options.buffer.clock.kind == ClockKind::mono)
    return refuse(std::errc::not_supported, who + ": its process is in a time namespace whose CLOCK_MONOTONIC is " +
                                                std::to_string(ahead / 1'000'000'000) +
                                                " s ahead of the kernel's, so its times would be wrong; take a clock of ticks");
  options.buffer.who = who;
  if (options.buffer.rings == 0 || options.buffer.names.empty()) {
    std::string comm = "writer";
    if (auto read = sys::read_file("/proc/" + std::to_string(peer.pid) + "/comm"); read && read->size() > 1)
      comm = read->substr(0, read->size() - 1);
    RingName name{0, peer.pid, peer.pid, comm, comm};
    name.apart = 1;
    RS_TRY(ask_rings(*wire, options.buffer, name));
  }
  // The buffer's callbacks outlive this object if a source does.
  Callbacks callbacks;
  callbacks.swap_reader = [wire](u32 ring, u32 read) -> result<SwapAnswer> {
    EventAnswer a{};
    RS_TRY(wire->ask(Ask::swap, ring, read, a));
    return SwapAnswer{{a.head.argument > 3 ? static_cast<Swap>(4) : static_cast<Swap>(a.head.argument), a.head.id},
                      a.head.refused, wire->counts_refused};
  };
  callbacks.last_refused = [wire](u32 ring) -> std::optional<u32> {
    const std::lock_guard lock(wire->mutex);
    const auto last = wire->last.find(ring);
    return last != wire->last.end() ? std::optional(last->second) : std::nullopt;
  };
  callbacks.update_footers = [wire](u32 ring) {
    EventAnswer a{};
    return wire->ask(Ask::update, ring, 0, a);
  };
  callbacks.reset = [wire](u32 ring) {
    EventAnswer a{};
    return wire->ask(Ask::reset, ring, 0, a);
  };
  callbacks.look_after = [wire] { wire->look_after(); };
  auto buffer = RS_TRY(Buffer::create(options.buffer, std::move(callbacks)));
  process->buffer_ = buffer;
  wire->buffer = buffer;
  auto blob = RS_TRY(sealed(process->buffer_->descriptor()));
  std::vector<int> files{blob.get()};
  for (size_t k = 0; k < process->buffer_->files(); ++k) files.push_back(process->buffer_->fd(k));
  if (files.size() > most_files)
    return refuse(std::errc::invalid_argument,
                  who + ": more than " + std::to_string(most_files - 1) + " rings in files of their own");
  EventAnswer a{};
  RS_TRY(wire->ask(Ask::attach, 0, 1, a, files));
  if (a.head.argument > most_events)
    return refuse(std::errc::protocol_error,
                  who + ": it claims to have " + std::to_string(a.head.argument) + " events; 4,095 is the most");
  wire->counts_refused = (a.head.id & counts_refused) != 0;
  process->offer_ = RS_TRY(ask_events(*wire, a.head.argument));
  take_abilities(process->offer_, a.head.id);
  process->ask_not_brought();
  return process;
}

// Before it is attached: how many rings it has, if that is to be known, and what they are. A writer that does not say has one.
result<void> Process::ask_rings(Wire& wire, Buffer::Options& buffer, const RingName& writer) {
  auto a = std::make_unique<EventAnswer>();
  const auto known = wire.ask(Ask::event, 0, 0, *a);
  if (!known && (a->head.error == 0 || !wire.open)) return tl::unexpected<Error>(known.error());
  const u32 can = a->head.id;
  if (buffer.rings == 0 && (can & can_tell_rings) != 0) {
    RS_TRY(wire.ask(Ask::rings, 0, 0, *a));
    buffer.rings = static_cast<u32>(std::min<u64>(a->head.argument, most_rings));
  }
  buffer.rings = std::max(buffer.rings, 1u);
  if (!buffer.names.empty()) return {};
  bool named = (can & can_name_rings) != 0;
  for (u32 ring = 0; ring < buffer.rings; ++ring) {
    RingName name = writer;
    name.ring = ring;
    if (named) {
      const auto told = wire.ask(Ask::ring_name, ring, 0, *a);
      if (!told && a->head.error != ENOENT) return tl::unexpected<Error>(told.error());
      named = told.has_value();
    }
    if (named) {
      if (std::string its = sys::kept_name(text(a->name, sizeof a->name)); !its.empty()) name.task = std::move(its);
      name.cpu = static_cast<i32>(std::min<u64>(a->head.argument, most_rings)) - 1;
    }
    buffer.names.push_back(std::move(name));
  }
  return {};
}

void Process::ask_not_brought() {
  EventAnswer a{};
  const u32 brought = buffer_->plan().nr_rings;
  if (!offer_.can_tell_rings || !wire_->ask(Ask::rings, 0, 0, a) || a.head.argument <= brought) return;
  has_more_rings_ = true;
  not_brought_ = a.head.refused;
}

std::vector<RingName> Process::threads() const {
  const auto comm = [this](i32 tid) {
    char name[16] = {};
    sys::comm_of(pid_, tid, name);
    return std::string(name, strnlen(name, sizeof name));
  };
  std::vector<RingName> all;
  const std::string process = comm(pid_);
  const auto tasks = sys::open_trusted("/proc/" + std::to_string(pid_) + "/task", sys::Role::other);
  const auto tids = tasks ? sys::names_in(tasks->get()) : result<std::vector<std::string>>();
  for (const std::string& tid : tids ? *tids : std::vector<std::string>{})
    all.push_back({0, pid_, std::atoi(tid.c_str()), comm(std::atoi(tid.c_str())), process});
  return all;
}

void Process::add_not_brought(Account& account) {
  ask_not_brought();
  account.refused[Refusal::not_brought] += not_brought_;
  account.refused_at_least |= has_more_rings_;  // an event that the program does not even begin is not counted
}

// All events, or as many as it claimed to have.
result<Process::Offer> Process::ask_events(Wire& wire, u64 most) {
  Offer all;
  auto a = std::make_unique<EventAnswer>();
  const u64 deadline = sys::now_ns() + 4 * static_cast<u64>(wire.patience.count());
  for (u32 k = 0; k < most; ++k) {
    auto done = wire.ask(Ask::event, k, 0, *a);
    if (!done && a->head.error == ENOENT && most == ~u64{0}) {
      take_abilities(all, a->head.id);
      return all;
    }
    if (!done) return tl::unexpected<Error>(done.error());
    if (k >= most_events) return refuse(std::errc::protocol_error, wire.who + ": it claims to have more than 4,095 events");
    if (sys::now_ns() > deadline) return refuse(std::errc::timed_out, wire.who + ": it takes too long to send its events");
    if (a->head.argument == 0 || a->head.argument > 0xFFFF)
      return refuse(std::errc::protocol_error, wire.who + ": it gives an event the number " + std::to_string(a->head.argument));
    all.events.push_back({static_cast<u16>(a->head.argument), text(a->system, sizeof a->system), text(a->name, sizeof a->name),
                   text(a->format, sizeof a->format), true, false});
    all.events.back().apart = 1;
  }
  return all;
}

result<Process::Offer> Process::offer_at(const std::string& path, std::chrono::nanoseconds patience) {
  auto fd = RS_TRY(connect_socket(path, patience, "no external writer listens at " + path));
  Wire wire;
  wire.socket = std::move(fd);
  wire.who = path;
  wire.patience = patience;
  return ask_events(wire, ~u64{0});
}

Process::~Process() {
  if (buffer_ == nullptr) return;
  (void)buffer_->poll_every(std::chrono::nanoseconds(0));
  const std::lock_guard lock(wire_->mutex);
  wire_->open = false;
  wire_->socket = sys::Fd();
  if (!sys::as_memory_allows([this] { buffer_->gone(wire_->who + ": detached"); })) buffer_->gone("");
}

void Process::patience(std::chrono::nanoseconds time) {
  const std::lock_guard lock(wire_->mutex);
  wire_->patience = time;
}

void Process::look_after() const { wire_->look_after(); }

result<void> Process::enable(bool on) {
  EventAnswer a{};
  return wire_->ask(on ? Ask::enable : Ask::disable, 0, 0, a);
}

result<void> Process::switch_event(u32 event, bool on) {
  if (!offer_.can_switch_events) return fail(EOPNOTSUPP, wire_->who + ": it switches all its events together");
  EventAnswer a{};
  return wire_->ask(Ask::switch_event, event, on ? 1 : 0, a);
}

result<bool> Process::choose(const EventPatterns& patterns) {
  for (u32 k = 0; k < offer_.events.size() && !patterns.empty(); ++k) {
    EventInfo& event = offer_.events[k];
    if (patterns.matches(event.system, event.name)) continue;
    if (!offer_.can_switch_events) return false;
    RS_TRY(switch_event(k, false));
    event.enabled = false;
  }
  return true;
}

result<void> Process::write(u32 ring, std::string_view text) {
  if (!offer_.can_write) return fail(EOPNOTSUPP, wire_->who + ": it writes no events on request");
  if (text.size() > most_text) return fail(EMSGSIZE, wire_->who + ": the text is longer than 1,024 bytes");
  EventAnswer a{};
  return wire_->ask(Ask::write, ring, text.size(), a, {}, text);
}

}  // namespace ringside::remote
