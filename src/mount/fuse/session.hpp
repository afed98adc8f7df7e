// A mounted FUSE file system, by libfuse: requests come in, the Server answers them. Debian's libfuse (3.14) has no
// passthrough; a hook on its writes completes the answers to INIT and OPEN: flags and, for OPEN, the number of the file that is
// mapped in place of this one (include/uapi/linux/fuse.h, 7.40).
//
//   auto session = must(Session::mount(dir, options));
//   while (!stop && must(session->turn(200))) {}
//   // unmounted by the destructor
//
// Two threads: one waits for requests, and the one that calls turn() waits for writers on behalf of sleeping clients. One of
// them at a time has the Server.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "mount/server.hpp"

struct fuse_session;

namespace ringside::mount {

struct SessionOptions {
  ServerOptions server;
  bool others = false;    // users other than this one may come in (root, or user_allow_other in /etc/fuse.conf)
  bool automatic = false;  // unmounted when its last user has gone
};

// For a process that ends without its destructors: unmounts what it has mounted last. Signal-safe.
void unmount_at_once();

class Session {
 public:
  // `dir` is an empty directory. A mount that a crashed server has left there is removed first.
  static result<std::unique_ptr<Session>> mount(const std::string& dir, const SessionOptions& options);
  ~Session();

  // Answers requests that have waited for a writer; waits at most this long for one. False: it is unmounted, by another process
  // or because it is unused.
  result<bool> turn(int timeout_ms);
  std::string unmapped();  // see Server
  const std::string& dir() const { return dir_; }

 private:
  Session() = default;
  void answer();
  bool unused();
  std::mutex mutex_;  // guards all that follows, once there are two threads
  std::unique_ptr<Server> server_;
  fuse_session* session_ = nullptr;
  std::string dir_;
  bool mounted_ = false, automatic_ = false, over_ = false;
  u64 opened_ = 0, unused_since_ns_ = 0;
  int unmounting_ = -1;  // the process that is trying
  std::thread requests_;
};

}  // namespace ringside::mount
