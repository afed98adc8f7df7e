// A thread that gets a name after its first event: the instance notes when.
#include "preload/name.hpp"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "preload/hook.hpp"
#include "writer/sandbox.hpp"

namespace ringside::preload {
namespace {

// number: of its events; 0: this thread's.
void note_name(i32 number, const char* name) noexcept {
  const int left = errno;
  Opened* const in = opened_now();
  const detail::ThisThread& self = detail::this_thread;
  if (in != nullptr && !self.inside && self.borrowed == 0 && !no_system_calls()) {
    char task[16] = {};
    memcpy(task, name, strnlen(name, sizeof task - 1));
    if (number == 0)
      number = in->foreign ? self.tid : sys::gettid();
    else if (in->foreign)
      number = 0;  // nothing shows which number another thread's events have
    if (number > 0) name_thread(*in, number, task);
  }
  errno = left;
}

}  // namespace

void thread_was_named(const char* name) noexcept { note_name(0, name); }

}  // namespace ringside::preload

HOOK int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  const int done = NEXT(pthread_setname_np)(thread, name);
  clockid_t clock{};
  if (done != 0) return done;
  if (pthread_equal(thread, pthread_self()) != 0)
    ringside::preload::thread_was_named(name);
  else if (pthread_getcpuclockid(thread, &clock) == 0)
    ringside::preload::note_name(~(clock >> 3), name);  // holds its TID
  return done;
}
