// Serves an instance's rings to processes that may only read them (abi/handout.hpp).
//
//   auto server = must(Server::create({.instance = "web", .socket = "/run/trace/web", .uids = {33}}));
//   while (!stop) must(server->turn(100));
//
// One thread, never blocked by a client: each has at most one request under way and one answer unsent, and is not read from
// while that answer waits. The server hangs up on a client that does not take an answer for 10 s, does not say hello within 5
// s, or sends an invalid request; its rings are then no longer mapped. The owner of the rings may run turn() itself; then it
// must not consume the same rings beside it (the reader's lock is per process).
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "serve/ring_table.hpp"
#include "sys/beneath.hpp"

namespace ringside {

struct ServerOptions {
  std::string instance;         // name or path
  std::string socket;           // empty: PATH/socket, which only this user can reach
  std::vector<u32> uids, gids;  // users and groups that may connect, beside this user; all groups of a process count
  std::optional<u32> mode;      // of the socket; default 0600, or 0666 if others may connect (SO_PEERCRED says who they are)
  std::optional<u32> gid;       // of the socket
  u32 most_clients = 128;
  u32 most_clients_of_a_user = 48;  // one user's flood leaves room for others
  u32 most_rings = 4096;            // per client
};

class Server {
 public:
  static result<std::unique_ptr<Server>> create(const ServerOptions& options);
  ~Server();

  // Answers the requests that have come in; waits at most this long for one. Fails when the instance is gone.
  result<void> turn(int timeout_ms);
  // Takes a connected SOCK_SEQPACKET socket, as if it had been accepted. False: refused.
  bool adopt(sys::Fd socket);

  const std::string& socket() const { return socket_; }
  const std::string& instance() const { return table_.path(); }
  size_t clients() const { return clients_.size(); }

 private:
  struct Client {
    sys::Fd socket;
    u32 uid = 0;
    bool greeted = false;
    u64 since_ns = 0;           // connected
    std::map<u32, bool> rings;  // open ones
    std::vector<char> answer;   // unsent
    sys::Fd file;               // sent with it
    u64 unsent_since_ns = 0;
    bool hang_up = false;                     // once the answer is sent
    std::optional<handout::Request> waiting;  // a wait under way
    u64 deadline_ns = 0;
  };
  Server(RingTable table, const ServerOptions& options) : table_(std::move(table)), options_(options) {}
  void accept_all(u64 now);
  bool allowed(int socket, u32 uid, u32 gid) const;
  bool read_from(Client& client, u64 now);  // false: gone
  void handle(Client& client, const handout::Request& request, u64 now);
  void open_ring(Client& client, const handout::Request& request);
  void finish_wait(Client& client, u64 now);
  template <class A>
  void answer(Client& client, const handout::Request& request, A a, sys::Fd file = {});
  void refuse_request(Client& client, const handout::Request* request, int error, std::string_view why);
  bool flush(Client& client, u64 now);  // false: gone
  void drop(Client& client) noexcept;

  RingTable table_;
  ServerOptions options_;
  std::string socket_;
  sys::Fd listening_;
  sys::Entry name_;
  u64 inode_ = 0;  // of the socket's name: removed at the end only if it is still this server's
  u64 no_accept_until_ns_ = 0;
  u64 look_again_ns_ = 0;  // when to check whether the instance is still there
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace ringside
