// Whose a file is: an instance's (mounted.hpp), an external writer's (remote.hpp). What the server needs to know of either.
#pragma once
#include <atomic>
#include <cerrno>
#include <memory>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>

namespace ringside::mount {

// To answer a client with.
inline int errno_of(const Error& e) { return e.code.value() > 0 ? e.code.value() : EIO; }

class Owner {
 public:
  virtual ~Owner() = default;
  virtual bool removed() const { return false; }  // another one may have its name by now
  // Somebody waits: for any event (0), or for a ring to be so full. The caller looks once more afterwards. late: the last alarm was
  // for nobody.
  virtual void alarm(int percent, bool late) = 0;

  u32 buffer_percent = 50;
  // Everybody who waits goes on (a generation, as the kernel's wake-all): tracing_on 1 -> 0, command 0.
  u64 woken = 0;
};

// What another thread does for a request, which is answered when it is over.
struct Job {
  std::atomic<int> error{-1};  // -1: it goes on; 0: done; else an errno
  std::shared_ptr<void> use;   // what it has got, for as long as it is used; set before `error` is
};

}  // namespace ringside::mount
