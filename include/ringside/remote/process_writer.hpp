// An external writer that is a process: listens at a path, and writes while a reader is attached. Header-only, needs POSIX threads.
//
//   ProcessWriter<> w({.path = "/run/app.rings", .events = events});
//   if (w.error() != 0) ...
//   if (auto* ring = w.ring(0)) ring->write(&event, sizeof event);      // null: nobody reads; ring N belongs to one thread
//
// Its service is a thread of its own. A reader that goes, or that comes again, takes no memory from under a writing thread: what the
// thread may still look at stays, some 64 bytes a sub-buffer for each attachment; the shared region is unmapped once no event is open.
#pragma once
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <ringside/remote/messages.hpp>
#include <ringside/remote/remote_writer.hpp>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ringside::remote {

struct ProcessEvent {
  u32 id;  // the first two bytes of its payload
  std::string system, name, format;  // the text of a tracefs format file
};

// Where a writer of this name listens to be found without being told of: `ringside mount` shows it as remotes/NAME. Makes the directory. Empty if
// that cannot be: another user made it, or may write there.
inline std::string announced_path(const std::string& name) {
  const auto given = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::string(value != nullptr ? value : "");
  };
  std::string root = given("RINGSIDE_ROOT");
  if (root.empty() && !given("XDG_RUNTIME_DIR").empty()) root = given("XDG_RUNTIME_DIR") + "/ringside";
  if (root.empty()) root = "/dev/shm/ringside-" + std::to_string(geteuid());
  for (const std::string& dir : {root, root + "/.remotes"}) {
    struct stat st {};
    (void)!mkdir(dir.c_str(), 0700);
    if (lstat(dir.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0) return "";
  }
  return root + "/.remotes/" + name;
}

struct ProcessOptions {
  std::string path;  // of the socket; mode 0600: this user's readers, and root's
  std::vector<ProcessEvent> events;
};

// CLOCK_MONOTONIC, or the time stamp counter: whichever the reader asks for.
struct ProcessClock {
  u32 kind = 1;
  RS_INLINE bool at_once([[maybe_unused]] u64& ticks) const noexcept {
#if defined(__x86_64__)
    ticks = __builtin_ia32_rdtsc();
    return kind == 0;
#else
    return false;
#endif
  }
  u64 now() noexcept {
    u64 ticks;
    if (at_once(ticks)) return ticks;
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<u64>(t.tv_sec) * 1000000000 + static_cast<u64>(t.tv_nsec);
  }
};

template <class C = ProcessClock, Nesting N = Nesting::handlers>
class ProcessWriter {
 public:
  using Writer = RemoteWriter<C, N>;

  explicit ProcessWriter(ProcessOptions options) : options_(std::move(options)) {
    error_ = listen();
    if (error_ != 0) return;
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    service_ = std::thread([this] { serve(); });
  }
  ~ProcessWriter() {
    if (service_.joinable()) {
      const u64 one = 1;
      (void)!::write(stop_, &one, sizeof one);
      service_.join();
    }
    if (listening_ >= 0) {
      ::close(listening_);
      unlink(options_.path.c_str());
    }
    if (stop_ >= 0) ::close(stop_);
  }
  ProcessWriter(const ProcessWriter&) = delete;
  ProcessWriter& operator=(const ProcessWriter&) = delete;

  int error() const noexcept { return error_; }  // an errno, if the path could not be listened at

  // Null while nobody is attached, or beyond the reader's rings.
  RS_INLINE Writer* ring(u32 index) noexcept {
    const Session* s = now_.load(std::memory_order_acquire);
    return s != nullptr && index < s->rings.size() ? s->rings[index].get() : nullptr;
  }

 private:
  struct Zeros {
    void operator()(void* p) const noexcept { std::free(p); }
  };
  struct Session {
    u8* region = nullptr;
    u64 bytes = 0;
    Descriptor descriptor;
    std::vector<u64> blob;
    std::vector<std::unique_ptr<void, Zeros>> memory;
    std::vector<std::unique_ptr<Writer>> rings;
  };

  int listen() {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    if (options_.path.empty()) return EACCES;
    if (options_.path.size() >= sizeof at.sun_path) return ENAMETOOLONG;
    std::memcpy(at.sun_path, options_.path.c_str(), options_.path.size());
    listening_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listening_ < 0) return errno;
    // A socket that a dead writer left behind is nobody's.
    if (connect(listening_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 || errno == EAGAIN) return EADDRINUSE;
    if (errno == ECONNREFUSED) unlink(options_.path.c_str());
    if (fchmod(listening_, 0600) != 0 || bind(listening_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return errno;
    if (::listen(listening_, 4) != 0) return errno;
    stop_ = eventfd(0, EFD_CLOEXEC);
    return stop_ < 0 ? errno : 0;
  }

  void serve() {
    for (;;) {
      // A reader's requests are waited for in recvmsg alone, which is faster; what else there is has time.
      pollfd on[2] = {{stop_, POLLIN, 0}, {listening_, POLLIN, 0}};
      if (poll(on, 2, reader_ >= 0 ? 0 : -1) < 0 && errno != EINTR) break;
      if (on[0].revents != 0) break;
      if (on[1].revents != 0) {
        const int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0 && reader_ >= 0) {
          const Answer busy{message_magic, Ask::attach, 0, EBUSY, 0, 0, 0};
          (void)!send(fd, &busy, sizeof busy, MSG_NOSIGNAL | MSG_DONTWAIT);
          ::close(fd);
        } else if (fd >= 0) {
          reader_ = fd;
          const timeval now_and_then{0, 50000};
          setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &now_and_then, sizeof now_and_then);
        }
      }
      for (int n = 0; reader_ >= 0 && n < 100; ++n) {
        const Next next = one_request();
        if (next == Next::gone) hang_up();
        if (next != Next::served) break;
      }
    }
    hang_up();
  }

  void hang_up() {
    detach();
    if (reader_ >= 0) ::close(reader_);
    reader_ = -1;
  }

  enum class Next { served, nothing, gone };
  Next one_request() {
    Request q{};
    Files files;
    if (const Next next = receive(q, files); next != Next::served) return next;
    EventAnswer a{};
    a.head = {message_magic, q.ask, q.sequence, 0, 0, 0, 0};
    size_t size = sizeof a.head;
    Session* const s = now_.load(std::memory_order_relaxed);
    const bool has_ring = s != nullptr && q.ring < s->rings.size();
    switch (q.ask) {
      case Ask::attach:
        a.head.error = s != nullptr ? EBUSY : q.argument != 1 ? EPROTONOSUPPORT : attach(files);
        a.head.argument = options_.events.size();
        break;
      case Ask::event: {
        if (q.ring >= options_.events.size()) {
          a.head.error = ENOENT;
          break;
        }
        const ProcessEvent& e = options_.events[q.ring];
        a.head.argument = e.id;
        e.system.copy(a.system, sizeof a.system - 1);
        e.name.copy(a.name, sizeof a.name - 1);
        e.format.copy(a.format, sizeof a.format - 1);
        size = sizeof a;
        break;
      }
      case Ask::enable:
      case Ask::disable:
        if (s == nullptr) {
          a.head.error = ENODEV;
          break;
        }
        for (auto& ring : s->rings) q.ask == Ask::enable ? ring->enable() : ring->disable();
        if (q.ask == Ask::disable && !calm(*s)) a.head.error = EBUSY;
        break;
      case Ask::swap:
        if (has_ring) {
          const Swapped got = s->rings[q.ring]->swap_reader(static_cast<u32>(q.argument));
          a.head.argument = static_cast<u64>(got.what);
          a.head.id = got.id;
        } else {
          a.head.error = ENODEV;
        }
        break;
      case Ask::update:
        if (has_ring)
          s->rings[q.ring]->update_footers();
        else
          a.head.error = ENODEV;
        break;
      case Ask::reset:
        a.head.error = has_ring ? reset(*s->rings[q.ring]) : ENODEV;
        break;
      default:
        return Next::gone;
    }
    files.close();
    ssize_t n;
    do n = send(reader_, &a, size, MSG_NOSIGNAL | MSG_DONTWAIT);  // who asks and does not listen is hung up on
    while (n < 0 && errno == EINTR);
    return n == static_cast<ssize_t>(size) ? Next::served : Next::gone;
  }

  struct Files {
    int fd[most_files];
    size_t n = 0;
    ~Files() { close(); }
    void close() {
      while (n != 0) ::close(fd[--n]);
    }
  };
  Next receive(Request& q, Files& files) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * most_files)];
    iovec part{&q, sizeof q};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    ssize_t n;
    do n = recvmsg(reader_, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return Next::nothing;
    if (n >= 0)
      for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
          for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0) && files.n < most_files; at += sizeof(int))
            std::memcpy(&files.fd[files.n++], CMSG_DATA(c) + at, sizeof(int));
    return n == sizeof q && q.magic == message_magic && (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 ? Next::served : Next::gone;
  }

  static int attach_problem(const Files& files, u64& blob_bytes, u64& region_bytes) {
    struct stat st {};
    if (files.n < 2 || fstat(files.fd[0], &st) != 0) return EBADF;
    blob_bytes = static_cast<u64>(st.st_size);
    if (blob_bytes < sizeof(DescriptorHeader) || blob_bytes > 1u << 30) return EINVAL;
    for (size_t k = 1; k < files.n; ++k) {
      // Memory that could be cut under us would kill us; what grew before it is mapped would lie on what is behind the region.
      constexpr int sized = F_SEAL_SHRINK | F_SEAL_GROW;
      const int seals = fcntl(files.fd[k], F_GET_SEALS);
      if (seals < 0 || (seals & sized) != sized) return EPERM;
      if (fstat(files.fd[k], &st) != 0) return EBADF;
      if (st.st_size <= 0 || st.st_size % 4096 != 0 || st.st_size > INT64_MAX - static_cast<i64>(region_bytes)) return EINVAL;
      region_bytes += static_cast<u64>(st.st_size);
    }
    return 0;
  }

  // The region in one piece: null if that fails, and errno.
  static u8* map_region(const Files& files, u64 bytes) {
    void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    u8* to = static_cast<u8*>(at);
    for (size_t k = 1; k < files.n; ++k) {
      struct stat st {};
      if (fstat(files.fd[k], &st) != 0 ||
          mmap(to, static_cast<size_t>(st.st_size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, files.fd[k], 0) == MAP_FAILED) {
        const int error = errno;
        munmap(at, bytes);
        errno = error;
        return nullptr;
      }
      to += st.st_size;
    }
    return static_cast<u8*>(at);
  }

  int attach(const Files& files) {
    u64 blob_bytes = 0, region_bytes = 0;
    if (const int error = attach_problem(files, blob_bytes, region_bytes); error != 0) return error;
    auto session = std::make_unique<Session>();
    Session& s = *session;
    s.blob.resize((blob_bytes + 7) / 8);
    if (pread(files.fd[0], s.blob.data(), blob_bytes, 0) != static_cast<ssize_t>(blob_bytes)) return EINVAL;
    if (!WildDescriptor(s.blob.data(), blob_bytes).check(region_bytes, s.descriptor).good()) return EINVAL;
    s.region = map_region(files, region_bytes);
    if (s.region == nullptr) return errno;
    s.bytes = region_bytes;
    C clock{};
    if constexpr (requires { clock.kind; }) clock.kind = s.descriptor.clock();
    for (u32 k = 0; k < s.descriptor.nr_rings(); ++k) {
      const RingLayout ring = s.descriptor.ring(k);
      const u64 bytes = Writer::private_bytes(ring);
      s.memory.emplace_back(std::aligned_alloc(64, bytes));
      if (s.memory.back() == nullptr) {
        munmap(s.region, region_bytes);
        return ENOMEM;
      }
      std::memset(s.memory.back().get(), 0, bytes);
      s.rings.push_back(std::make_unique<Writer>(s.descriptor, ring, s.region, s.memory.back().get(), clock));
    }
    sessions_.push_back(std::move(session));
    now_.store(sessions_.back().get(), std::memory_order_release);
    return 0;
  }

  static void heavy() noexcept { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }
  template <class Q>
  static bool patiently(Q quiet) {
    for (int i = 0; i < 100; ++i) {
      if (quiet()) return true;
      usleep(1000);
    }
    return false;
  }
  static bool calm(Session& s) {
    return patiently([&] {
      for (auto& ring : s.rings)
        if (!ring->quiet(heavy)) return false;
      return true;
    });
  }
  static int reset(Writer& ring) {
    const bool was = ring.enabled();
    ring.disable();
    const bool quiet = patiently([&] { return ring.quiet(heavy); });
    if (quiet) ring.reset();
    if (was) ring.enable();
    return quiet ? 0 : EBUSY;
  }

  // A thread that is in the middle of an event keeps the region.
  void detach() {
    Session* const s = now_.load(std::memory_order_relaxed);
    if (s == nullptr) return;
    for (auto& ring : s->rings) ring->disable();
    now_.store(nullptr, std::memory_order_release);
    if (calm(*s)) munmap(s->region, s->bytes);
  }

  ProcessOptions options_;
  int listening_ = -1, reader_ = -1, stop_ = -1, error_ = 0;
  std::atomic<Session*> now_{nullptr};
  std::vector<std::unique_ptr<Session>> sessions_;  // those before: a thread may be about to look at their private words
  std::thread service_;
};

}  // namespace ringside::remote
