#include "serve/server.hpp"

#include <linux/sockios.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "serve/listen.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using handout::Kind;
constexpr u64 second = 1'000'000'000;
constexpr u64 greeting_time = 5 * second, sending_time = 10 * second;
// Requests of one client in one turn: a flood is served, but in turn with the others.
constexpr int requests_a_turn = 8;
// The bell of an instance is a futex, which poll cannot wait for: while a client waits, the rings are checked at this interval.
constexpr int waiting_look_ms = 1;

}  // namespace

result<std::unique_ptr<Server>> Server::create(const ServerOptions& options) {
  auto table = RS_TRY(RingTable::open(options.instance));
  std::unique_ptr<Server> server(new Server(std::move(table), options));
  server->socket_ = options.socket.empty() ? server->table_.path() + "/socket" : options.socket;
  const bool others = !options.uids.empty() || !options.gids.empty();
  auto bound = RS_TRY(listen_at(server->socket_, options.mode.value_or(others ? 0666 : 0600), options.gid));
  server->listening_ = std::move(bound.socket);
  server->name_ = std::move(bound.at);
  server->inode_ = bound.inode;
  return server;
}

Server::~Server() {
  for (auto& client : clients_) drop(*client);
  struct stat st {};
  const int dir = name_.dir.get();
  if (listening_ && fstatat(dir, name_.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode) &&
      st.st_ino == inode_)
    unlinkat(dir, name_.name.c_str(), 0);
}

bool Server::allowed(int socket, u32 uid, u32 gid) const {
  if (uid == geteuid() || std::count(options_.uids.begin(), options_.uids.end(), uid) != 0) return true;
  const auto wanted = [this](u32 g) { return std::count(options_.gids.begin(), options_.gids.end(), g) != 0; };
  if (wanted(gid)) return true;
  if (options_.gids.empty()) return false;
  std::vector<gid_t> groups(65536);
  auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) return false;
  groups.resize(size / sizeof(gid_t));
  return std::any_of(groups.begin(), groups.end(), wanted);
}

bool Server::adopt(sys::Fd socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && size == sizeof peer;
  auto client = std::make_unique<Client>();
  client->socket = std::move(socket);
  client->uid = peer.uid;
  client->since_ns = sys::now_ns();
  const auto same_user = std::count_if(clients_.begin(), clients_.end(), [&](const auto& c) { return c->uid == peer.uid; });
  const char* why = nullptr;
  int error = EACCES;
  if (!known || !allowed(client->socket.get(), peer.uid, peer.gid)) {
    why = "this user may not read these rings (the option --allow-user of ringside serve decides)";
  } else if (clients_.size() >= options_.most_clients || static_cast<u32>(same_user) >= options_.most_clients_of_a_user) {
    why = "too many connections: try again later";
    error = EUSERS;
  }
  if (why != nullptr) {
    refuse_request(*client, nullptr, error, why);
    flush(*client, client->since_ns);
    return false;
  }
  clients_.push_back(std::move(client));
  return true;
}

void Server::accept_all(u64 now) {
  for (int i = 0; i < 16; ++i) {
    sys::Fd socket(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Out of descriptors: poll would return at once, forever.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) no_accept_until_ns_ = now + second / 10;
      return;
    }
    adopt(std::move(socket));
  }
}

result<void> Server::turn(int timeout_ms) {
  std::vector<pollfd> fds;
  fds.reserve(clients_.size() + 1);
  u64 now = sys::now_ns();
  bool anybody_waits = false;
  const size_t count = clients_.size();
  for (const auto& client : clients_) {
    anybody_waits = anybody_waits || client->waiting;
    const short events = !client->answer.empty() ? POLLOUT : client->waiting ? 0 : POLLIN;
    fds.push_back({client->socket.get(), events, 0});
  }
  fds.push_back({now >= no_accept_until_ns_ ? listening_.get() : -1, POLLIN, 0});
  if (anybody_waits) timeout_ms = timeout_ms < 0 ? waiting_look_ms : std::min(timeout_ms, waiting_look_ms);
  if (!clients_.empty() || no_accept_until_ns_ > now)
    timeout_ms = timeout_ms < 0 ? 1000 : std::min(timeout_ms, 1000);  // deadlines
  if (poll(fds.data(), fds.size(), timeout_ms) < 0 && errno != EINTR)
    return fail(errno, "cannot wait for the clients of " + socket_);

  now = sys::now_ns();
  for (size_t i = 0; i < count; ++i) {
    Client& client = *clients_[i];
    const short got = fds[i].revents;
    bool there = true;
    // A client that hangs up while it waits gets no answer.
    if (client.waiting && (got & (POLLHUP | POLLERR)) != 0) there = false;
    if (there && client.waiting) finish_wait(client, now);
    if (there && !client.answer.empty()) there = flush(client, now);
    if (there && client.answer.empty() && !client.waiting && (got & (POLLIN | POLLHUP | POLLERR)) != 0)
      there = read_from(client, now);
    if (there && !client.greeted && now - client.since_ns > greeting_time) there = false;
    if (!there) {
      drop(client);
      clients_[i].reset();
    }
  }
  const bool newcomers = (fds[count].revents & POLLIN) != 0;
  clients_.erase(std::remove(clients_.begin(), clients_.end(), nullptr), clients_.end());
  if (newcomers) accept_all(now);
  if (now >= look_again_ns_) {
    look_again_ns_ = now + second;
    if (table_.removed()) return refuse(std::errc::no_such_file_or_directory, "the instance " + table_.path() + " was removed");
  }
  return {};
}

bool Server::read_from(Client& client, u64 now) {
  for (int i = 0; i < requests_a_turn && client.answer.empty() && !client.waiting; ++i) {
    handout::Request request{};
    // MSG_TRUNC: the packet's true size. No room for descriptors: the kernel closes any that a client sends.
    const ssize_t n = recv(client.socket.get(), &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (const char* wrong = handout::check_request(request, static_cast<size_t>(n)); wrong != nullptr) {
      refuse_request(client, nullptr, EPROTO, wrong);
      client.hang_up = true;
    } else {
      handle(client, request, now);
    }
    if (!client.answer.empty() && !flush(client, now)) return false;
  }
  return true;
}

void Server::handle(Client& client, const handout::Request& request, u64 now) {
  const auto kind = static_cast<Kind>(request.kind);
  if (!client.greeted && kind != Kind::hello) {
    refuse_request(client, &request, EPROTO, "say hello first");
    client.hang_up = true;
    return;
  }
  const auto forward = [&](auto&& done) {
    if (done)
      answer(client, request, *done);
    else
      refuse_request(client, &request, errno_of(done.error()), done.error().sentence);
  };
  const bool of_a_ring = kind == Kind::get_reader || kind == Kind::counters || kind == Kind::close_ring;
  if (of_a_ring && client.rings.count(request.ring) == 0)
    return refuse_request(client, &request, ENODEV,
                          "ring " + std::to_string(request.ring) + " is not mapped by this connection");
  switch (kind) {
    case Kind::hello:
      client.greeted = true;
      return answer(client, request, table_.hello());
    case Kind::list_rings:
      return answer(client, request, table_.list(request.ring));
    case Kind::open_ring:
      return open_ring(client, request);
    case Kind::get_reader: {
      const bool ended = table_.ended(request.ring);  // asked before the ring is read
      auto done = table_.get_reader(request.ring);
      if (done) done->ended = ended ? 1 : 0;
      return forward(std::move(done));
    }
    case Kind::counters:
      return forward(table_.counters(request.ring));
    case Kind::past:
      return answer(client, request, table_.past());
    case Kind::read_format:
      return forward(table_.format(request.ring, request.argument));
    case Kind::close_ring:
      table_.close(request.ring);
      client.rings.erase(request.ring);
      return answer(client, request, handout::Answer{});
    case Kind::wait:
      client.waiting = request;
      client.deadline_ns = now + request.argument;
      return finish_wait(client, now);
  }
}

void Server::open_ring(Client& client, const handout::Request& request) {
  if (client.rings.count(request.ring) != 0)
    return refuse_request(client, &request, EALREADY, "this connection has that ring open");
  if (client.rings.size() >= options_.most_rings)
    return refuse_request(client, &request, EMFILE,
                          "no more than " + std::to_string(options_.most_rings) + " rings for one connection");
  // Descriptors under way count against this user: a client that does not take them must not use up the limit for the others.
  int untaken = 0;
  if (ioctl(client.socket.get(), SIOCOUTQ, &untaken) == 0 && untaken != 0)
    return refuse_request(client, &request, EBUSY, "take the answers to earlier requests first");
  auto handed = table_.open(request.ring);
  if (!handed) return refuse_request(client, &request, errno_of(handed.error()), handed.error().sentence);
  client.rings[request.ring] = true;
  answer(client, request, handed->answer, std::move(handed->file));
}

void Server::finish_wait(Client& client, u64 now) {
  const auto percent = client.waiting->percent;
  const bool ready =
      std::any_of(client.rings.begin(), client.rings.end(), [&](const auto& r) { return table_.ready(r.first, percent); });
  if (!ready && now < client.deadline_ns) return;
  handout::WaitAnswer a{};
  a.ready = ready ? 1 : 0;
  const handout::Request request = *client.waiting;
  client.waiting.reset();
  answer(client, request, a);
}

template <class A>
void Server::answer(Client& client, const handout::Request& request, A a, sys::Fd file) {
  auto& head = *reinterpret_cast<handout::Answer*>(&a);
  const u32 ring = head.ring != 0 ? head.ring : request.kind == static_cast<u16>(Kind::list_rings) ? 0 : request.ring;
  head = {handout::magic, handout::version, request.kind, request.sequence, 0, ring, 0};
  const auto* const bytes = reinterpret_cast<const char*>(&a);
  client.answer.assign(bytes, bytes + sizeof a);
  client.file = std::move(file);
  client.unsent_since_ns = 0;
}

void Server::refuse_request(Client& client, const handout::Request* request, int error, std::string_view why) {
  handout::Refusal r{};
  r.head = {handout::magic, handout::version, 0, 0, static_cast<u32>(error > 0 && error < 4096 ? error : EIO), 0, 0};
  if (request != nullptr) {
    r.head.kind = request->kind;
    r.head.sequence = request->sequence;
    r.head.ring = request->ring;
  }
  std::memcpy(r.why, why.data(), std::min(why.size(), sizeof r.why - 1));
  const auto* const bytes = reinterpret_cast<const char*>(&r);
  client.answer.assign(bytes, bytes + sizeof r);
  client.file = sys::Fd();
  client.unsent_since_ns = 0;
}

bool Server::flush(Client& client, u64 now) {
  iovec part{client.answer.data(), client.answer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (client.file) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = client.file.get();
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  const ssize_t n = sendmsg(client.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) return false;
    if (client.unsent_since_ns == 0) client.unsent_since_ns = now;
    return now - client.unsent_since_ns <= sending_time;
  }
  client.answer.clear();
  client.file = sys::Fd();
  return !client.hang_up;
}

void Server::drop(Client& client) noexcept {
  for (const auto& [ring, open] : client.rings) table_.close(ring);
  client.rings.clear();
}

}  // namespace ringside
