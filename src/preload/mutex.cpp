// The group mutex: locks with their waiting time. Those that a wait for a condition takes again are not recorded.
#include <pthread.h>

#include "preload/hook.hpp"

using namespace ringside::preload;
using ringside::u64;

namespace {

template <class Real>
int locking(const pthread_mutex_t* mutex, Real real) noexcept {
  return hooked(groups.mutex, real, [=](int r, u64 ns) { libc::mutex_lock(mutex, ns, r); });
}

template <class Real>
int locking_c11(const mtx_t* mutex, Real real) noexcept {
  return hooked(groups.mutex, real, [=](int r, u64 ns) { libc::mutex_lock(mutex, ns, number_of(r)); });
}

}  // namespace

HOOK int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return locking(mutex, [=] { return NEXT(pthread_mutex_lock)(mutex); });
}
HOOK int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  return locking(mutex, [=] { return NEXT(pthread_mutex_trylock)(mutex); });
}
HOOK int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) noexcept {
  return locking(mutex, [=] { return NEXT(pthread_mutex_timedlock)(mutex, until); });
}
HOOK int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) noexcept {
  return locking(mutex, [=] { return NEXT(pthread_mutex_clocklock)(mutex, clock, until); });
}

HOOK int mtx_lock(mtx_t* mutex) {
  return locking_c11(mutex, [=] { return NEXT(mtx_lock)(mutex); });
}
HOOK int mtx_trylock(mtx_t* mutex) {
  return locking_c11(mutex, [=] { return NEXT(mtx_trylock)(mutex); });
}
HOOK int mtx_timedlock(mtx_t* mutex, const timespec* until) {
  return locking_c11(mutex, [=] { return NEXT(mtx_timedlock)(mutex, until); });
}
