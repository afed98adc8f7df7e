// Calls of known numbers in threads and forked children; PER_WORKER in preload_test.cpp knows them.
// counts DIRECTORY THREADS CHILDREN
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

ssize_t __read_chk(int fd, void* to, size_t count, size_t room);
ssize_t __pread64_chk(int fd, void* to, size_t count, off64_t at, size_t room);
ssize_t __recv_chk(int fd, void* to, size_t count, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void* to, size_t count, size_t room, int flags, struct sockaddr* from, socklen_t* size);
int __open_2(const char* path, int flags);
int __openat64_2(int dir, const char* path, int flags);

static const char* directory;
static void* volatile nowhere = (void*)1;
static __thread void* volatile keep;  // the compiler must not leave out what nobody uses

#define TIMES(n) for (int i = 0; i < (n); ++i)
#define NEED(x) \
  if (!(x)) _exit(100)

static void allocate(void) {
  TIMES(100) free(keep = malloc(1001));
  TIMES(50) free(keep = calloc(7, 143));
  TIMES(30) {
    keep = malloc(1002);
    keep = realloc(keep, 2002);
    keep = realloc(keep, 3003);
    free(keep);
  }
  void* p = NULL;
  NEED(posix_memalign(&p, 64, 1003) == 0 && (uintptr_t)p % 64 == 0);
  free(p);
  free(keep = aligned_alloc(64, 1088));
  free(keep = memalign(64, 1004));
  free(keep = valloc(1005));
  free(keep = pvalloc(1006));
  free(keep = reallocarray(NULL, 7, 287));  // one realloc of 2,009
  free(NULL);                               // none
}

static void read_and_write(void) {
  char path[4096], buffer[64] = "";
  struct iovec parts[2] = {{buffer, 10}, {buffer + 10, 20}};
  strcpy(path, directory);
  strcat(path, "/XXXXXX");
  close(mkstemp(path));  // opened inside the C library: a close only
  int zero[6] = {open("/dev/zero", O_RDWR),
                 open64("/dev/zero", O_RDWR),
                 openat(AT_FDCWD, "/dev/zero", O_RDWR),
                 openat64(AT_FDCWD, "/dev/zero", O_RDWR),
                 __open_2("/dev/zero", O_RDWR),
                 __openat64_2(AT_FDCWD, "/dev/zero", O_RDWR)};
  int file = creat(path, 0600);
  NEED(file >= 0);
  TIMES(40) NEED(read(zero[0], buffer, 64) == 64 && write(zero[0], buffer, 64) == 64);
  TIMES(5) NEED(pwrite(file, buffer, 64, 0) == 64 && pwrite64(file, buffer, 64, 64) == 64 && writev(file, parts, 2) == 30);
  close(file);
  file = open(path, O_RDWR | O_CREAT, 0600);
  TIMES(5) NEED(pread(file, buffer, 64, 0) == 64 && pread64(file, buffer, 64, 0) == 64 && readv(file, parts, 2) == 30);
  TIMES(5) NEED(__read_chk(zero[0], buffer, 64, 64) == 64 && __pread64_chk(file, buffer, 64, 0, 64) == 64);
  close(file);
  TIMES(6) NEED(close(zero[i]) == 0);
  NEED(open(nowhere, O_RDONLY) == -1);  // EFAULT
  NEED(read(-1, buffer, 1) == -1 && readv(-1, nowhere, 2) == -1 && close(-1) == -1);
  unlink(path);
}

static void in_parts(void) {
  char path[4096], buffer[30] = "";
  struct iovec parts[2] = {{buffer, 3}, {buffer + 3, 14}};
  strcpy(path, directory);
  strcat(path, "/XXXXXX");
  const int file = mkstemp(path);
  unlink(path);
  NEED(pwritev(file, parts, 2, 0) == 17 && pwritev64(file, parts, 2, 17) == 17);
  NEED(pwritev2(file, parts, 2, 0, 0) == 17 && pwritev64v2(file, parts, 2, 17, 0) == 17);
  NEED(preadv(file, parts, 2, 0) == 17 && preadv64(file, parts, 2, 17) == 17);
  NEED(preadv2(file, parts, 2, 0, 0) == 17 && preadv64v2(file, parts, 2, 17, 0) == 17);
  NEED(preadv(-1, nowhere, 2, 0) == -1);
  const int copy = dup(file), other = dup3(file, copy, O_CLOEXEC);  // a close
  NEED(other == copy && dup2(file, copy) == copy && dup2(file, file) == file);  // a close and none
  close(copy);
  NEED(dup2(-1, file) == -1);  // none
  close(file);
}

static void send_and_receive(void) {
  char buffer[30] = "";
  struct iovec parts[2] = {{buffer, 4}, {buffer + 4, 15}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  int ends[2];
  NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  TIMES(2) NEED(send(ends[0], buffer, 19, 0) == 19 && sendto(ends[0], buffer, 19, 0, NULL, 0) == 19);
  NEED(sendmsg(ends[0], &message, 0) == 19);
  NEED(recv(ends[1], buffer, 19, 0) == 19 && recvfrom(ends[1], buffer, 19, 0, NULL, NULL) == 19);
  NEED(__recv_chk(ends[1], buffer, 19, 30, 0) == 19 && __recvfrom_chk(ends[1], buffer, 19, 30, 0, NULL, NULL) == 19);
  NEED(recvmsg(ends[1], &message, 0) == 19);
  NEED(recvmsg(-1, nowhere, 0) == -1 && sendmsg(-1, nowhere, 0) == -1);
  close(ends[0]);
  close(ends[1]);
}

static void lock_c11(void) {
  mtx_t own;
  const struct timespec far = {INT32_MAX, 0}, past = {0, 0};
  NEED(mtx_init(&own, mtx_timed) == thrd_success);
  NEED(mtx_lock(&own) == thrd_success && mtx_trylock(&own) == thrd_busy && mtx_timedlock(&own, &past) == thrd_timedout);
  mtx_unlock(&own);
  NEED(mtx_timedlock(&own, &far) == thrd_success);
  mtx_unlock(&own);
  mtx_destroy(&own);
}

static void lock(void) {
  static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  struct timespec far = {INT32_MAX, 0};
  TIMES(200) {
    pthread_mutex_lock(&shared);
    pthread_mutex_unlock(&shared);
  }
  TIMES(10) {
    NEED(pthread_mutex_trylock(&own) == 0);
    NEED(pthread_mutex_trylock(&own) != 0);
    pthread_mutex_unlock(&own);
    NEED(pthread_mutex_timedlock(&own, &far) == 0);
    pthread_mutex_unlock(&own);
    NEED(pthread_mutex_clocklock(&own, CLOCK_MONOTONIC, &far) == 0);
    pthread_mutex_unlock(&own);
  }
}

static void* work(void* nothing) {
  allocate();
  read_and_write();
  in_parts();
  send_and_receive();
  lock();
  lock_c11();
  return nothing;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  directory = argv[1];
  const int threads = atoi(argv[2]), children = atoi(argv[3]);
  pthread_t started[64];
  work(NULL);
  TIMES(threads) NEED(pthread_create(&started[i], NULL, work, NULL) == 0);
  TIMES(threads) pthread_join(started[i], NULL);
  TIMES(children) {
    if (fork() != 0) continue;
    NEED(pthread_create(&started[0], NULL, work, NULL) == 0);
    work(NULL);
    pthread_join(started[0], NULL);
    _exit(0);
  }
  TIMES(children) {
    int status = 0;
    NEED(wait(&status) > 0 && status == 0);
  }
  return 0;
}
