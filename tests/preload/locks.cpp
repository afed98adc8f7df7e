// Locks, waits and what ends them, in known numbers: `workers` times in the main thread, in others and in a child. By pthread,
// by C11, and by C++'s classes over them.
//   locks WORKERS      each makes all calls; prints nothing
//   locks contended    prints how many ns its second thread waited for each lock, condition and semaphore, by its own clock
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace {

void need(bool holds) {
  if (!holds) _exit(100);
}
const timespec past{0, 0}, far{0x7FFFFFFF, 0};

void read_write() {
  pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
  const auto read = [&](int r) {
    need(r == 0 && pthread_rwlock_trywrlock(&lock) == EBUSY && pthread_rwlock_unlock(&lock) == 0);
  };
  read(pthread_rwlock_rdlock(&lock));  // four to read, and four that fail to write
  read(pthread_rwlock_tryrdlock(&lock));
  read(pthread_rwlock_timedrdlock(&lock, &far));
  read(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &far));
  const auto write = [&](int r) {
    need(r == 0 && pthread_rwlock_tryrdlock(&lock) == EBUSY && pthread_rwlock_unlock(&lock) == 0);
  };
  write(pthread_rwlock_wrlock(&lock));  // four to write, and four that fail to read
  write(pthread_rwlock_trywrlock(&lock));
  write(pthread_rwlock_timedwrlock(&lock, &far));
  write(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &far));
  std::shared_mutex shared;
  { const std::shared_lock held(shared); }  // one to read
  { const std::unique_lock held(shared); }  // one to write
}

void spin() {
  pthread_spinlock_t lock;
  need(pthread_spin_init(&lock, 0) == 0);
  need(pthread_spin_lock(&lock) == 0 && pthread_spin_trylock(&lock) == EBUSY && pthread_spin_unlock(&lock) == 0);
  need(pthread_spin_trylock(&lock) == 0 && pthread_spin_unlock(&lock) == 0);
}

void conditions() {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);  // a mutex_lock
  need(pthread_cond_signal(&condition) == 0 && pthread_cond_broadcast(&condition) == 0);
  need(pthread_cond_timedwait(&condition, &mutex, &past) == ETIMEDOUT);
  need(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &past) == ETIMEDOUT);
  pthread_mutex_unlock(&mutex);
  mtx_t c_mutex;
  cnd_t c_condition;
  need(mtx_init(&c_mutex, mtx_timed) == thrd_success && cnd_init(&c_condition) == thrd_success);
  need(mtx_lock(&c_mutex) == thrd_success);  // a mutex_lock
  need(cnd_signal(&c_condition) == thrd_success && cnd_broadcast(&c_condition) == thrd_success);
  need(cnd_timedwait(&c_condition, &c_mutex, &past) == thrd_timedout);
  mtx_unlock(&c_mutex);
  std::mutex m;
  std::condition_variable c;
  std::unique_lock held(m);  // a mutex_lock
  c.notify_all();
  need(c.wait_for(held, std::chrono::nanoseconds(-1)) == std::cv_status::timeout);
}

void semaphores() {
  sem_t s;
  need(sem_init(&s, 0, 0) == 0);
  errno = 7;
  need(sem_post(&s) == 0 && errno == 7 && sem_wait(&s) == 0 && errno == 7);
  need(sem_trywait(&s) == -1 && errno == EAGAIN);
  need(sem_timedwait(&s, &past) == -1 && errno == ETIMEDOUT);
  need(sem_clockwait(&s, CLOCK_MONOTONIC, &past) == -1 && errno == ETIMEDOUT);
}

// Threads that are cancelled in their waits leave nothing behind.
pthread_mutex_t cancelled_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t never = PTHREAD_COND_INITIALIZER;
std::atomic<int> unlocked = 0;
void* wait_for_ever(void* on) {
  if (on != nullptr) {
    need(sem_wait(static_cast<sem_t*>(on)) == 0);
    return nullptr;
  }
  pthread_mutex_lock(&cancelled_mutex);  // a mutex_lock
  pthread_cleanup_push(
      [](void*) {
        ++unlocked;
        pthread_mutex_unlock(&cancelled_mutex);
      },
      nullptr);
  for (;;) pthread_cond_wait(&never, &cancelled_mutex);
  pthread_cleanup_pop(0);
  return nullptr;
}
void cancel() {
  sem_t s;
  need(sem_init(&s, 0, 0) == 0);
  const int before = unlocked;
  for (sem_t* const on : {static_cast<sem_t*>(nullptr), &s}) {
    pthread_t thread;
    void* result = nullptr;
    need(pthread_create(&thread, nullptr, wait_for_ever, on) == 0);
    need(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  }
  need(unlocked <= before + 1);  // 0, if it was cancelled before
}

void all() {
  read_write();
  spin();
  conditions();
  semaphores();
}

u_int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u_int64_t>(t.tv_sec) * 1000000000 + static_cast<u_int64_t>(t.tv_nsec);
}

// The main thread holds it until another thread has asked for it, and 20 ms more.
[[gnu::noinline]] void holder(const std::function<void()>& take, const std::function<void()>& let_go,
                              const std::function<void()>& wait, const char* name) {
  std::atomic<bool> about_to = false;
  u_int64_t waited = 0;
  take();
  std::thread other([&] {
    about_to = true;
    const u_int64_t before = now();
    wait();
    waited = now() - before;
  });
  while (!about_to) sched_yield();
  usleep(20000);
  let_go();
  other.join();
  std::printf("%s %llu\n", name, static_cast<unsigned long long>(waited));
}

int contended() {
  pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
  pthread_spinlock_t spinlock;
  pthread_spin_init(&spinlock, 0);
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  bool set = false;
  sem_t s;
  sem_init(&s, 0, 0);
  const auto nothing = [] {};
  holder([&] { pthread_rwlock_rdlock(&lock); }, [&] { pthread_rwlock_unlock(&lock); },
         [&] {
           pthread_rwlock_wrlock(&lock);
           pthread_rwlock_unlock(&lock);
         },
         "rwlock_lock");
  holder([&] { pthread_spin_lock(&spinlock); }, [&] { pthread_spin_unlock(&spinlock); },
         [&] {
           pthread_spin_lock(&spinlock);
           pthread_spin_unlock(&spinlock);
         },
         "spin_lock");
  holder(
      nothing,
      [&] {
        pthread_mutex_lock(&mutex);
        set = true;
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&mutex);
      },
      [&] {
        pthread_mutex_lock(&mutex);
        while (!set) pthread_cond_wait(&condition, &mutex);
        pthread_mutex_unlock(&mutex);
      },
      "cond_wait");
  holder(
      nothing, [&] { sem_post(&s); }, [&] { sem_wait(&s); }, "sem_wait");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (std::strcmp(argv[1], "contended") == 0) return contended();
  all();
  std::vector<std::thread> threads;
  for (int i = 1; i < std::atoi(argv[1]); ++i) threads.emplace_back(all);
  for (std::thread& t : threads) t.join();
  const pid_t child = fork();
  if (child == 0) {
    all();
    cancel();
    _exit(0);
  }
  int status = 0;
  need(waitpid(child, &status, 0) == child && status == 0);
  cancel();
  return 0;
}
