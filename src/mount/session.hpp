// A mounted FUSE file system, by libfuse: requests come in, the Server answers them. Debian's libfuse (3.14) knows no passthrough;
// a hook on its writes puts into the answers to INIT and OPEN what it lacks: flags and, for OPEN, the number of the file that is
// mapped in the place of this one (include/uapi/linux/fuse.h, 7.40).
//
//   auto session = must(Session::mount(dir, options));
//   while (!stop && must(session->turn(200))) {}
//   // unmounted by the destructor
#pragma once
#include <memory>
#include <string>

#include "mount/server.hpp"

struct fuse_session;

namespace ringside::mount {

struct SessionOptions {
  ServerOptions server;
  bool others = false;    // users other than this one may come in (root, or user_allow_other in /etc/fuse.conf)
  bool automatic = false;  // unmounted when its last user has gone
};

class Session {
 public:
  // `dir` is an empty directory. A mount that a server which crashed has left there is taken away first.
  static result<std::unique_ptr<Session>> mount(const std::string& dir, const SessionOptions& options);
  ~Session();

  // Answers what has come in; waits at most so long for something to come. False: unmounted, by others or for want of users.
  result<bool> turn(int timeout_ms);
  Server& server() { return *server_; }
  const std::string& dir() const { return dir_; }

 private:
  Session() = default;
  bool unused();
  std::unique_ptr<Server> server_;
  fuse_session* session_ = nullptr;
  std::string dir_;
  void* buffer_ = nullptr;  // libfuse's, of requests
  bool mounted_ = false, automatic_ = false;
  u64 opened_ = 0, unused_since_ns_ = 0;
  int unmounting_ = -1;  // the process that tries
};

}  // namespace ringside::mount
