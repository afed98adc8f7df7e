#include "source/get_reader_served.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "sys/as_memory_allows.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using handout::Kind;
constexpr i64 patience_ns = 5'000'000'000;

std::string text(const char* from, size_t room) { return std::string(from, strnlen(from, room)); }

// Waits until the socket can be read; 0, or an errno.
int readable(int fd, i64 ns) {
  const u64 deadline = sys::now_ns() + static_cast<u64>(ns);
  for (;;) {
    const u64 now = sys::now_ns();
    const i64 left = now >= deadline ? 0 : static_cast<i64>(deadline - now);
    pollfd p{fd, POLLIN, 0};
    const int n = poll(&p, 1, static_cast<int>((left + 999'999) / 1'000'000));
    if (n > 0) return 0;
    if (n < 0 && errno != EINTR) return errno;
    if (left == 0) return ETIMEDOUT;
  }
}

// One packet; a descriptor that came with it goes to `file`, a second one is closed. -1: errno.
ssize_t receive(int fd, void* bytes, size_t room, sys::Fd& file) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
  iovec part{bytes, room};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = -1;
  // If a peer closes with requests unread, an ECONNRESET comes before its last words: read on after it.
  for (int tries = 0; tries < 3 && n < 0; ++tries) {
    n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && errno != EINTR && errno != ECONNRESET) break;
  }
  if (n < 0) return -1;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int got = -1;
      std::memcpy(&got, CMSG_DATA(c) + at, sizeof got);
      sys::Fd one(got);
      if (!file) file = std::move(one);
    }
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    errno = EMSGSIZE;
    return -1;
  }
  return n;
}

}  // namespace

result<SocketAddress> socket_address(const std::string& path) {
  SocketAddress address;
  address.path = path;
  if (path.empty()) return refuse(std::errc::invalid_argument, "a socket needs a path");
  if (path.size() < sizeof(sockaddr_un::sun_path)) return address;
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos || path.size() - slash > 64)
    return refuse(std::errc::filename_too_long, "the name of the socket " + path + " is longer than 64 bytes");
  address.dir = sys::Fd(open(path.substr(0, slash + 1).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!address.dir) return fail(errno, "cannot open the directory of " + path);
  address.path = "/proc/self/fd/" + std::to_string(address.dir.get()) + path.substr(slash);
  return address;
}

result<sys::Fd> connect_socket(const std::string& path, std::chrono::nanoseconds patience, const std::string& nobody) {
  auto address = RS_TRY(socket_address(path));
  sys::Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return fail(errno, "cannot make a socket");
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address.path.c_str(), address.path.size() + 1);
  const timeval limit{patience.count() / 1'000'000'000, (patience.count() % 1'000'000'000) / 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return fd;
  if (errno == ECONNREFUSED || errno == ENOENT) return fail(errno, nobody);
  return fail(errno, "cannot reach " + path);
}

result<std::shared_ptr<ServedConnection>> ServedConnection::connect(const std::string& path) {
  auto fd = RS_TRY(connect_socket(path, std::chrono::nanoseconds(patience_ns),
                                  "nobody serves at " + path + " (`ringside serve INSTANCE` does)"));
  return over(std::move(fd), path);
}

bool is_served(const std::string& path) {
  auto socket = connect_socket(path, std::chrono::seconds(1), path);
  if (!socket) return false;
  const handout::Request hello{handout::magic, handout::version, static_cast<u16>(Kind::hello), 1, 0, 0, 0, 0};
  if (send(socket->get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EPIPE && errno != ECONNRESET)
    return false;
  alignas(8) char packet[handout::largest_answer];
  sys::Fd none;
  if (readable(socket->get(), 1'000'000'000) != 0 ||
      receive(socket->get(), packet, sizeof packet, none) < static_cast<ssize_t>(sizeof(handout::Answer)))
    return false;
  return reinterpret_cast<const handout::Answer*>(packet)->magic == handout::magic;
}

result<std::shared_ptr<ServedConnection>> ServedConnection::over(sys::Fd socket, const std::string& what) {
  sys::guard_mappings();
  auto to = std::make_shared<ServedConnection>();
  to->socket_ = std::move(socket);
  to->what_ = what;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(to->socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) to->server_uid_ = peer.uid;
  RS_TRY(to->greet());
  return to;
}

ClockInfo ServedConnection::clock() const noexcept { return clock_in(hello_); }

result<void> ServedConnection::broken(int errno_value, const std::string& sentence) {
  broken_ = fail(errno_value, what_ + ": " + sentence).value();
  socket_ = sys::Fd();
  return tl::unexpected<Error>(*broken_);
}

result<void> ServedConnection::ask(Kind kind, u32 ring, void* answer, size_t size, sys::Fd* file, u64 argument, u32 percent) {
  if (broken_) return tl::unexpected<Error>(*broken_);
  const handout::Request request{handout::magic, handout::version, static_cast<u16>(kind), ++sequence_, ring, percent, 0,
                                 argument};
  ssize_t n = -1;
  do n = send(socket_.get(), &request, sizeof request, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  const int unsent = n < 0 ? errno : 0;  // a refusal may have arrived all the same
  if (unsent != 0 && unsent != EPIPE && unsent != ECONNRESET) return broken(unsent, "the server takes no request");
  const i64 timeout = patience_ns + (kind == Kind::wait ? static_cast<i64>(argument) : 0);
  if (const int error = readable(socket_.get(), timeout); error != 0) return broken(error, "the server does not answer");
  alignas(8) char packet[handout::largest_answer];
  sys::Fd got;
  n = receive(socket_.get(), packet, sizeof packet, got);
  if (n < 0) return broken(errno, "the server's answer cannot be read");
  if (n == 0) return broken(ECONNRESET, "the server is gone");
  const auto& head = *reinterpret_cast<const handout::Answer*>(packet);
  if (const char* wrong = handout::check_answer(head, static_cast<size_t>(n), request); wrong != nullptr)
    return broken(EPROTO, wrong);
  if (head.error != 0) {
    const auto& refusal = *reinterpret_cast<const handout::Refusal*>(packet);
    return fail(static_cast<int>(head.error), what_ + ": " + text(refusal.why, sizeof refusal.why));
  }
  if (static_cast<size_t>(n) != size) return broken(EPROTO, "an answer of the wrong size");
  if (static_cast<bool>(got) != (file != nullptr))
    return broken(EPROTO, "a descriptor where none belongs, or none where one does");
  if (file != nullptr) *file = std::move(got);
  std::memcpy(answer, packet, size);
  return {};
}

result<bool> ServedConnection::wait(int percent, std::chrono::nanoseconds timeout) {
  if (percent < 0 || percent > 100)
    return refuse(std::errc::invalid_argument, "a percentage of " + std::to_string(percent) + " is not possible: 0 to 100");
  handout::WaitAnswer answer;
  const auto ns = std::min(static_cast<u64>(std::max<i64>(timeout.count(), 0)), handout::longest_wait_ns);
  RS_TRY(ask(Kind::wait, 0, &answer, sizeof answer, nullptr, ns, static_cast<u32>(percent)));
  return answer.ready != 0;
}

ServedGetReader::~ServedGetReader() {
  handout::Answer answer;
  if (to_ != nullptr) sys::as_memory_allows([&] { (void)to_->ask(Kind::close_ring, ring_, &answer, sizeof answer); });
}

result<ReaderStep> ServedGetReader::get_reader() {
  handout::ReaderAnswer answer;
  RS_TRY(to_->ask(Kind::get_reader, ring_, &answer, sizeof answer));
  ReaderStep step;
  step.placed = true;
  step.id = answer.id;
  step.read = answer.read;
  step.lost = answer.lost_events;
  step.ended = answer.ended != 0;
  return step;
}

result<Counters> ServedConnection::counters(std::optional<u32> ring) {
  handout::CountersAnswer a;
  RS_TRY(ask(ring ? Kind::counters : Kind::past, ring.value_or(0), &a, sizeof a));
  Counters n;
  n.written = a.written;
  n.read = a.read;
  n.overrun = a.overrun;
  n.unread = a.unread;
  n.dropped = a.dropped;
  n.commit_overrun = a.commit_overrun;
  n.bytes = a.bytes;
  n.unfinished_bytes = a.unfinished_bytes;
  n.oldest_time = a.oldest_time;
  n.resident_bytes = a.resident_bytes;
  n.capacity_bytes = a.capacity_bytes;
  return n;
}

namespace {

// A CPU's ring has no thread, and carries the CPU's number in its name.
RingName name_in(const handout::RingAnswer& a) {
  RingName name{a.head.ring, static_cast<i32>(a.pid), static_cast<i32>(a.tid), text(a.task, 16), text(a.process, 16)};
  if (name.tid < 0 && name.task.rfind("cpu", 0) == 0) name.cpu = std::max(std::atoi(name.task.c_str() + 3), 0);
  return name;
}

}  // namespace

result<std::vector<RingName>> served_rings(ServedConnection& to) {
  std::vector<RingName> all;
  for (u32 next = 0; next < handout::most_rings;) {
    handout::RingAnswer a;
    RS_TRY(to.ask(Kind::list_rings, next, &a, sizeof a));
    if (a.found == 0) break;
    if (a.head.ring < next || a.next <= a.head.ring || a.head.ring >= handout::most_rings)
      return refuse(std::errc::protocol_error, "the server lists ring " + std::to_string(a.head.ring) + " out of order");
    next = a.next;
    all.push_back(name_in(a));
  }
  return all;
}

result<std::unique_ptr<Source>> served_source(const std::shared_ptr<ServedConnection>& to, u32 ring) {
  handout::RingAnswer a;
  sys::Fd file;
  RS_TRY(to->ask(Kind::open_ring, ring, &a, sizeof a, &file));
  ServedGetReader get(to, ring);  // from here on this closes the ring
  const Geometry geometry(a.subbuf_size, a.nr_subbufs, a.spares);
  if (!geometry.valid() || !geometry.holds(a.reader_id))
    return refuse(std::errc::protocol_error, "the server names impossible sizes for ring " + std::to_string(ring));
  auto region = RS_TRY(sys::Region::map(file.get(), geometry.data_size(), false, "ring " + std::to_string(ring)));
  MappedSource<ServedGetReader>::Options options;
  options.name = name_in(a);
  options.clock = to->clock();
  options.copies = to->server_uid() != geteuid();
  options.start = {a.reader_id, a.reader_read};
  return std::make_unique<MappedSource<ServedGetReader>>(std::move(region), geometry, std::move(get), std::move(options));
}

result<std::vector<EventInfo>> served_events(ServedConnection& to) {
  std::vector<EventInfo> all;
  for (u32 id = 1; id <= handout::most_events; ++id) {
    EventInfo info;
    for (;;) {
      handout::FormatAnswer a;
      RS_TRY(to.ask(Kind::read_format, id, &a, sizeof a, nullptr, info.format.size()));
      if (a.id == 0) return all;
      const bool sound = a.id >= id && a.id <= handout::most_events && a.offset == info.format.size() &&
                         a.count <= sizeof a.text && a.total < (1u << 20) && a.count <= a.total - a.offset &&
                         (a.count != 0 || a.offset == a.total);
      if (a.offset > a.total || !sound)
        return refuse(std::errc::protocol_error, "the server's format of event " + std::to_string(id) + " contradicts itself");
      id = a.id;
      info.id = static_cast<u16>(abi::event_id(a.id));
      info.system = text(a.system, sizeof a.system);
      info.name = text(a.name, sizeof a.name);
      info.enabled = a.enabled != 0;
      info.format.append(a.text, a.count);
      if (info.format.size() == a.total) break;
    }
    all.push_back(std::move(info));
  }
  return all;
}

result<Served> open_served(const std::string& socket_path) {
  auto to = RS_TRY(ServedConnection::connect(socket_path));
  Served served;
  served.connection = to;
  served.clock = to->clock();
  served.name = text(to->hello().name, sizeof handout::Hello::name);
  auto events = RS_TRY(served_events(*to));
  served.events = std::move(events);
  auto rings = RS_TRY(served_rings(*to));
  for (const RingName& ring : rings) {
    auto source = served_source(to, ring.ring);
    if (source) {
      served.sources.push_back(std::move(*source));
    } else if (to->gone()) {
      return tl::unexpected<Error>(source.error());
    } else if (source.error().code != std::errc::no_such_file_or_directory) {  // else it disappeared between the two questions
      served.problems.push_back(source.error().sentence);
    }
  }
  return served;
}

}  // namespace ringside
