// Connections of TCP, by name or number of the machine.
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "sys/sys.hpp"

namespace ringside::cli {

struct TcpAddress {
  std::string host, port;
  // "board:5555", "[fe80::1%eth0]:5555". usual_host: of a port alone; empty: then there must be a host. None: it is neither.
  static std::optional<TcpAddress> parse(const std::string& text, const std::string& usual_host = "");
  std::string text() const;
};

// Within 10 seconds.
result<sys::Fd> connect_tcp(const TcpAddress& to);
struct TcpListener {
  std::vector<sys::Fd> sockets;  // non-blocking; a name may have addresses of two kinds
  std::string port;              // the one that was found for port 0
};
result<TcpListener> listen_tcp(const TcpAddress& at);
std::string peer_of(int socket);  // its address; empty: unknown

}  // namespace ringside::cli
