// The group lock: read-write locks and spinning ones, and waits for conditions and semaphores with what ends them.
//
// An event of a lock or a wait is written when the call returns, one that ends a wait before its call: so the waker's comes
// before those of the threads that it wakes. The lock inside a condition variable is the mutex that its wait names.
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>

#include "preload/hook.hpp"

using namespace ringside::preload;
using ringside::u64;

namespace {

template <class Real>
int rwlock(const pthread_rwlock_t* lock, bool write, Real real) noexcept {
  return hooked(groups.lock, real, [=](int r, u64 ns) { libc::rwlock_lock(lock, write, ns, r); });
}
template <class Real>
int spin(const volatile void* lock, Real real) noexcept {
  return hooked(groups.lock, real, [=](int r, u64 ns) { libc::spin_lock(const_cast<const void*>(lock), ns, r); });
}
// These may be left by cancellation.
template <class Real>
int waiting(const void* condition, const void* mutex, Real real) {
  return hooked(groups.lock, real, [=](int r, u64 ns) { libc::cond_wait(condition, mutex, ns, r); });
}
template <class Real>
int waiting_c11(const void* condition, const void* mutex, Real real) {
  return hooked(groups.lock, real, [=](int r, u64 ns) { libc::cond_wait(condition, mutex, ns, number_of(r)); });
}
template <class Real>
int taking(const sem_t* semaphore, Real real) {
  return hooked(groups.lock, real, [=](int r, u64 ns) { libc::sem_wait(semaphore, ns, r == 0 ? 0 : errno); });
}

template <class Tell, class Real>
int ends_waits(Tell tell, Real real) noexcept {
  const int left = errno;
  if (wanted(groups.lock)) tell();
  errno = left;
  return real();
}

// Of x86-64 the C library has these twice; the older ones are for programs from before 2003.
#define NEXT_CONDITION(name) NEXT_VERSION(name, "GLIBC_2.3.2")

}  // namespace

HOOK int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  return rwlock(lock, false, [=] { return NEXT(pthread_rwlock_rdlock)(lock); });
}
HOOK int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
  return rwlock(lock, false, [=] { return NEXT(pthread_rwlock_tryrdlock)(lock); });
}
HOOK int pthread_rwlock_timedrdlock(pthread_rwlock_t* lock, const timespec* until) noexcept {
  return rwlock(lock, false, [=] { return NEXT(pthread_rwlock_timedrdlock)(lock, until); });
}
HOOK int pthread_rwlock_clockrdlock(pthread_rwlock_t* lock, clockid_t clock, const timespec* until) noexcept {
  return rwlock(lock, false, [=] { return NEXT(pthread_rwlock_clockrdlock)(lock, clock, until); });
}
HOOK int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  return rwlock(lock, true, [=] { return NEXT(pthread_rwlock_wrlock)(lock); });
}
HOOK int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
  return rwlock(lock, true, [=] { return NEXT(pthread_rwlock_trywrlock)(lock); });
}
HOOK int pthread_rwlock_timedwrlock(pthread_rwlock_t* lock, const timespec* until) noexcept {
  return rwlock(lock, true, [=] { return NEXT(pthread_rwlock_timedwrlock)(lock, until); });
}
HOOK int pthread_rwlock_clockwrlock(pthread_rwlock_t* lock, clockid_t clock, const timespec* until) noexcept {
  return rwlock(lock, true, [=] { return NEXT(pthread_rwlock_clockwrlock)(lock, clock, until); });
}

HOOK int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
  return spin(lock, [=] { return NEXT(pthread_spin_lock)(lock); });
}
HOOK int pthread_spin_trylock(pthread_spinlock_t* lock) noexcept {
  return spin(lock, [=] { return NEXT(pthread_spin_trylock)(lock); });
}

HOOK int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return waiting(condition, mutex, [=] { return NEXT_CONDITION(pthread_cond_wait)(condition, mutex); });
}
HOOK int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  return waiting(condition, mutex, [=] { return NEXT_CONDITION(pthread_cond_timedwait)(condition, mutex, until); });
}
HOOK int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  return waiting(condition, mutex, [=] { return NEXT(pthread_cond_clockwait)(condition, mutex, clock, until); });
}
HOOK int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  return ends_waits([=] { libc::cond_signal(condition, false); },
                    [=] { return NEXT_CONDITION(pthread_cond_signal)(condition); });
}
HOOK int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  return ends_waits([=] { libc::cond_signal(condition, true); },
                    [=] { return NEXT_CONDITION(pthread_cond_broadcast)(condition); });
}
HOOK int cnd_wait(cnd_t* condition, mtx_t* mutex) {
  return waiting_c11(condition, mutex, [=] { return NEXT(cnd_wait)(condition, mutex); });
}
HOOK int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until) {
  return waiting_c11(condition, mutex, [=] { return NEXT(cnd_timedwait)(condition, mutex, until); });
}
HOOK int cnd_signal(cnd_t* condition) {
  return ends_waits([=] { libc::cond_signal(condition, false); }, [=] { return NEXT(cnd_signal)(condition); });
}
HOOK int cnd_broadcast(cnd_t* condition) {
  return ends_waits([=] { libc::cond_signal(condition, true); }, [=] { return NEXT(cnd_broadcast)(condition); });
}

HOOK int sem_wait(sem_t* semaphore) {
  return taking(semaphore, [=] { return NEXT(sem_wait)(semaphore); });
}
HOOK int sem_trywait(sem_t* semaphore) noexcept {
  return taking(semaphore, [=] { return NEXT(sem_trywait)(semaphore); });
}
HOOK int sem_timedwait(sem_t* semaphore, const timespec* until) {
  return taking(semaphore, [=] { return NEXT(sem_timedwait)(semaphore, until); });
}
HOOK int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  return taking(semaphore, [=] { return NEXT(sem_clockwait)(semaphore, clock, until); });
}
HOOK int sem_post(sem_t* semaphore) noexcept {
  return ends_waits([=] { libc::sem_post(semaphore); }, [=] { return NEXT(sem_post)(semaphore); });
}
