#include "writer/sandbox.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <ringside/ringside.h>

#include "sys/side_stack.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/process.hpp"

// Weak: a static program has none, and nothing is preloaded into it.
extern "C" [[gnu::weak]] decltype(dlsym) dlsym;

namespace ringside {

namespace {

// Readers must not wait for this process to wake them: from now on they look by themselves, and those that wait are woken.
void let_readers_look(InstanceControl& c) noexcept {
  __atomic_fetch_or(&c.impaired, lacks::bell, __ATOMIC_SEQ_CST);
  const Doorbell bell = bell_of({&c});
  bell.ring(bell.context);
}

// 0: everything is there that events need.
int prepare(Opened& in, u64 most) noexcept {
  if (takes_system_call(in.clock.kind)) return ENOTSUP;
  const int failed = in.side == nullptr ? back_own_ring(most) : 0;
  if (failed != 0) return failed;
  (void)attach(nullptr);  // this thread has its name then
  const SignalsOff off;
  const Inside inside(off);
  sys::map_side_stacks();
  in.join();
  if (const Member own = in.seat.member(); own != nobody)
    __atomic_fetch_or(&in.words.process(slot_of(own)).role, role::sandboxed, __ATOMIC_SEQ_CST);
  return in.side != nullptr ? back_cpu_rings(*in.side, most) : 0;
}

}  // namespace

int enter_sandbox(u64 most) noexcept {
  if (const Sandbox now = sandbox_of_process(); now != Sandbox::none) {
    if (now == Sandbox::ready && most == 0) set_sandbox(Sandbox::shut), shut_rings();
    return EALREADY;
  }
  const int saved = errno;
  Opened* const in = opened_now();
  const int failed = in != nullptr && most != 0 ? prepare(*in, most) : 0;
  const bool ready = failed == 0 && most != 0;
  if (in != nullptr && ready) let_readers_look(*in->words.control);
  set_sandbox(ready ? Sandbox::ready : Sandbox::shut);
  wait_for_system_calls();
  if (!ready) shut_rings();
  errno = saved;
  return failed;
}

namespace {

Sandbox enter(bool clock) noexcept {
  const Sandbox before = sandbox_of_process();
  const Opened* const in = opened_now();
  if (before == Sandbox::none || clock) (void)enter_sandbox(in == nullptr || clock ? 0 : in->words.control->budget);
  return before;
}

void leave(Sandbox before) noexcept {
  set_sandbox(before);
  if (before != Sandbox::none) return;
  if (const Opened* const in = opened_now(); in != nullptr && in->seat.member() != nobody)
    __atomic_fetch_and(&in->words.process(slot_of(in->seat.member())).role, ~role::sandboxed, __ATOMIC_RELAXED);
}

}  // namespace

constinit const Confined confined{enter, leave};

void tell_preloaded_copy() noexcept {
  if (dlsym == nullptr || (sys::environment("RINGSIDE_LIBC") == nullptr && sys::environment("RINGSIDE_SAMPLE") == nullptr))
    return;
  const auto tell = reinterpret_cast<void (*)(const Confined*)>(dlsym(RTLD_DEFAULT, confine_together));
  if (tell != nullptr) tell(&confined);
}

}  // namespace ringside

extern "C" int ringside_prepare_sandbox(size_t bytes) { return -ringside::enter_sandbox(bytes); }
