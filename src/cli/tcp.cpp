#include "cli/tcp.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "sys/try.hpp"

namespace ringside::cli {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

result<Addresses> addresses_of(const TcpAddress& of, int flags) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  const int error = getaddrinfo(of.host.c_str(), of.port.c_str(), &wanted, &found);
  Addresses all(found, freeaddrinfo);
  if (error != 0)
    return refuse(std::errc::address_not_available, "cannot find the machine " + of.host + ": " + gai_strerror(error));
  return result<Addresses>(std::move(all));
}

void set_option(int socket, int level, int option, int value) { (void)setsockopt(socket, level, option, &value, sizeof value); }

// A machine that is gone is noticed after a minute.
void watch_the_other_end(int socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// 0: it is there; an errno.
int connect_within(int socket, const addrinfo& to) {
  if (connect(socket, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd p{socket, POLLOUT, 0};
  const int n = poll(&p, 1, 10'000);
  if (n == 0) return ETIMEDOUT;
  if (n < 0) return errno;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

std::optional<TcpAddress> TcpAddress::parse(const std::string& text, const std::string& usual_host) {
  const size_t colon = text.rfind(':');
  TcpAddress address;
  address.port = colon == std::string::npos ? text : text.substr(colon + 1);
  address.host = colon == std::string::npos ? usual_host : text.substr(0, colon);
  const bool bracketed = address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (!bracketed && address.host.find_first_of("[]:") != std::string::npos) return std::nullopt;
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  unsigned port = 0;
  const char* const end = address.port.data() + address.port.size();
  const auto [at, error] = std::from_chars(address.port.data(), end, port);
  if (error != std::errc() || at != end || port > 65535 || address.host.empty()) return std::nullopt;
  return address;
}

std::string TcpAddress::text() const { return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port; }

result<sys::Fd> connect_tcp(const TcpAddress& to) {
  const auto all = RS_TRY(addresses_of(to, 0));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    sys::Fd socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = socket ? connect_within(socket.get(), *one) : errno;
    if (error != 0) continue;
    watch_the_other_end(socket.get());
    return socket;
  }
  return fail(error, "cannot connect to " + to.text() + (error == ECONNREFUSED ? ", where no ringside collect listens" : ""));
}

result<TcpListener> listen_tcp(const TcpAddress& at) {
  const auto all = RS_TRY(addresses_of(at, AI_PASSIVE));
  TcpListener made;
  made.port = at.port;
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    sys::Fd socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) {
      error = errno;
      continue;
    }
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (one->ai_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    sockaddr_storage address{};
    std::memcpy(&address, one->ai_addr, one->ai_addrlen);
    // Of port 0: the same one for all addresses.
    unsigned port = 0;
    std::from_chars(made.port.data(), made.port.data() + made.port.size(), port);
    auto& its = one->ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(address).sin_port;
    its = htons(static_cast<u16>(port));
    socklen_t size = one->ai_addrlen;
    if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(socket.get(), 64) != 0 ||
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      error = errno;
      continue;
    }
    made.port = std::to_string(ntohs(its));
    made.sockets.push_back(std::move(socket));
  }
  if (made.sockets.empty()) return fail(error, "cannot listen at " + at.text());
  return made;
}

std::string peer_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = {};
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return host;
}

}  // namespace ringside::cli
