// An external writer that is a process: it listens at a path, and writes while a reader is attached. Header-only; needs POSIX
// threads.
//
//   ProcessWriter<> w({.path = "/run/app.rings", .events = events});
//   if (w.error() != 0) ...
//   if (auto* ring = w.ring(0)) ring->write(&event, sizeof event);      // null: no reader; each ring belongs to one thread
//
// Its service is a thread of its own, with descriptors of its own. A reader that leaves or comes again takes no memory from
// under a writing thread: what the thread may still look at stays, which is two or more pages a ring, and the addresses of the
// shared region. The region itself is unmapped once no event is open. The next reader whose descriptor is the same, byte for
// byte, gets all that stayed. Each other one adds to it; the reader that would make it more than 16,384 rings is refused
// (ENOMEM): their mappings are half of those that the kernel grants a process (vm.max_map_count), and the program needs some,
// too. Addresses are given up when they run out (RLIMIT_AS).
//
// A child of fork, however it was made, has nothing of its parent's rings and service, and no handler has to run for that.
// Events that it writes through its copy are refused and counted (Writer::refused), one that was open ends in memory of its
// own, and destroying the copy does nothing. The child makes a ProcessWriter of its own, at another path. See
// docs/remote-writers.md, "A fork".
#pragma once
#include <ringside/base/cxx20.hpp>
#include <ringside/base/sanitizers.hpp>

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <ringside/remote/listening_socket.hpp>
#include <ringside/remote/mapped_region.hpp>
#include <ringside/remote/messages.hpp>
#include <ringside/remote/remote_writer.hpp>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ringside::remote {

struct ProcessEvent {
  u32 id;  // the first two bytes of its payload
  std::string system, name;  // 63 bytes at most
  std::string format;        // the text of a tracefs format file; 3,839 bytes at most
};

// The path at which a writer of this name is found without being named: `ringside mount` shows it as remotes/NAME. Makes the
// directory. Empty if that is impossible, because another user made it or may write there. A program that runs with more rights
// than the process that started it (setuid) takes no directory from the environment.
inline std::string announced_path(const std::string& name) {
  const auto given = [](const char* variable) {
    const char* const value = secure_getenv(variable);
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

struct ProcessRing {
  std::string name;  // 63 bytes at most; what report shows for events without a thread
  i32 cpu = -1;      // whose events it holds; -1: of several
};

struct ProcessOptions {
  std::string path;  // of the socket; mode 0600: for readers of this user and of root
  std::vector<ProcessEvent> events;
  // Requests that a program may take, or leave empty: a reader then does not offer them. They are called on the service's
  // thread, which has no handlers and none of the program's descriptors; they must be quick and throw nothing. Each answers 0
  // or an errno, which is the reader's answer.
  //
  // Makes an event of a text and writes it into this ring, which must then belong to the service's thread, or passes it to the
  // ring's thread. The ring is there, but perhaps not enabled. The text is the reader's: up to most_text bytes of any value.
  std::function<int(u32 ring, std::string_view text)> write{};
  // Starts or stops writing the event with this number. All events are on when a reader attaches, and again when it has gone.
  std::function<int(u32 id, bool on)> switch_event{};
  // The number of rings that the program writes to, which a reader brings along. 0: not known before ring() is called.
  u32 rings = 0;
  // What the first of them are; then `rings` may be 0.
  std::vector<ProcessRing> ring_names{};
};

// CLOCK_MONOTONIC or the processor's counter, as the reader asks. A clock that this processor does not have refuses the reader.
struct ProcessClock {
  u32 kind = static_cast<u32>(ClockKind::mono);
  RINGSIDE_INLINE bool at_once(u64& ticks) const noexcept { return ticks_of(static_cast<ClockKind>(kind), ticks); }
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

  explicit ProcessWriter(ProcessOptions options) : service_(new Service(std::move(options), now_, not_brought_)) {}
  ~ProcessWriter() {
    if (service_->is_ours()) delete service_;
    else service_->abandon();
  }
  ProcessWriter(const ProcessWriter&) = delete;
  ProcessWriter& operator=(const ProcessWriter&) = delete;

  // 0, or an errno if there is no service. EADDRINUSE: another writer listens at the path. EEXIST: a file that is no socket
  // is there; it stays. E2BIG: an event's text or a ring's name does not fit, or there are more than 4,095 events.
  int error() const noexcept { return service_->error(); }

  // Null while no reader is attached, or if the reader has fewer rings: then the call counts as an event that is lost. The
  // address does not identify the reader.
  RINGSIDE_INLINE Writer* ring(u32 index) noexcept {
    const Session* s = Hardware::load(&now_, session_observe);
    if (RINGSIDE_LIKELY(s != nullptr && index < s->rings.size())) return s->rings[index].get();
    if (s != nullptr) not_brought_.count(index);
    return nullptr;
  }

 private:
  struct Session {
    explicit Session(u64 bytes) noexcept : region(bytes) {}
    detail::MappedRegion region;
    Descriptor descriptor;
    std::vector<u64> blob;
    std::vector<std::unique_ptr<detail::Zeros>>
        memory;  // control words: fork wipes the gate, and copies all from the writer's words on
    std::vector<std::unique_ptr<Writer>> rings;
  };

  // Since a reader attached. Any thread and handler.
  struct NotBrought {
    u64 rings = 0;  // the largest index that was asked for in vain, plus 1
    u64 events = 0;
    RINGSIDE_NOINLINE void count(u64 index) noexcept {
      for (u64 was = Hardware::load(&events, unordered); !Hardware::cas(&events, was, was + 1);) continue;
      for (u64 was = Hardware::load(&rings, unordered); was <= index && !Hardware::cas(&rings, was, index + 1);) continue;
    }
    void clear() noexcept {
      Hardware::store(&rings, u64{0}, unordered);
      Hardware::store(&events, u64{0}, unordered);
    }
  };

  class Service {
   public:
    Service(ProcessOptions options, Session*& now, NotBrought& not_brought)
        : options_(std::move(options)), now_(now), not_brought_(not_brought) {
      if (!fit(options_.events) || !fit(options_.ring_names)) {
        error_ = E2BIG;
        return;
      }
      if (ours_.get() == nullptr || (stop_ = eventfd(0, EFD_CLOEXEC)) < 0) {
        error_ = errno;
        return;
      }
      *ours_.get() = 1;
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
      const auto live = [](void* service) -> void* {
        static_cast<Service*>(service)->live();
        return nullptr;
      };
      error_ = -1;
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's handlers may write, but not on this thread
      const int error = pthread_create(&thread_, nullptr, live, this);
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      has_thread_ = error == 0;
      if (has_thread_)
        error_.wait(-1);
      else
        error_ = error;
    }
    ~Service() {
      if (has_thread_) {
        const u64 one = 1;
        (void)!::write(stop_, &one, sizeof one);
        pthread_join(thread_, nullptr);
      }
      if (stop_ >= 0) ::close(stop_);
    }
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    int error() const noexcept { return error_; }
    bool is_ours() const noexcept { return !has_thread_ || *ours_.get() == 1; }
    // In a child of fork: the thread does not exist, and may have held any lock. So nothing is done, and nothing freed.
    void abandon() noexcept {
      next_abandoned_ = abandoned_;
      abandoned_ = this;
    }

   private:
    void live() {
      own_descriptors();
      detail::ListeningSocket socket(options_.path);
      const int error = socket.listen();
      error_ = error;
      error_.notify_all();
      if (error == 0) {
        serve(socket.fd());
        socket.unlink();
      }
    }

    // The thread has a table of descriptors of its own: no child of fork inherits them, and the program neither closes them nor
    // runs out of its own. If the kernel refuses that, they are the process's; also under ThreadSanitizer, which knows only one
    // table.
    void own_descriptors() const noexcept {
#if defined(SYS_close_range) && !RINGSIDE_TSAN
      const unsigned stop = static_cast<unsigned>(stop_);
      if (syscall(SYS_close_range, stop + 1, ~0u, CLOSE_RANGE_UNSHARE) == 0 && stop != 0)
        syscall(SYS_close_range, 0u, stop - 1, 0u);
#endif
    }

    static constexpr int glance_ms = 50;

    void serve(int listening) {
      for (;;) {
        // With a reader attached, wait in recvmsg alone, which is faster. Everything else waits for two of its time-outs and
        // one request at most.
        pollfd on[2] = {{stop_, POLLIN, 0}, {listening, POLLIN, 0}};
        if (poll(on, 2, reader_ >= 0 ? 0 : -1) < 0 && errno != EINTR) break;
        if (on[0].revents != 0) break;
        if (on[1].revents != 0) {
          const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
          if (fd >= 0 && reader_ >= 0) {
            const Answer busy{message_magic, Ask::attach, 0, EBUSY, 0, 0, 0};
            (void)!send(fd, &busy, sizeof busy, MSG_NOSIGNAL | MSG_DONTWAIT);
            ::close(fd);
          } else if (fd >= 0) {
            reader_ = fd;
            const timeval now_and_then{0, glance_ms * 1000};
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &now_and_then, sizeof now_and_then);
          }
        }
        for (const u64 until = now_ms() + glance_ms; reader_ >= 0 && now_ms() < until;) {
          const Next next = one_request();
          if (next == Next::gone) hang_up();
          if (next != Next::served) break;
        }
      }
      hang_up();
    }

    static u64 now_ms() noexcept {
      timespec t;
      clock_gettime(CLOCK_MONOTONIC, &t);
      return static_cast<u64>(t.tv_sec) * 1000 + static_cast<u64>(t.tv_nsec) / 1'000'000;
    }

    void hang_up() {
      detach();
      for (size_t k = 0; k < off_.size(); ++k)
        if (off_[k]) (void)options_.switch_event(options_.events[k].id, true);
      off_.clear();
      if (reader_ >= 0) ::close(reader_);
      reader_ = -1;
    }

    enum class Next { served, nothing, gone };
    Next one_request() {
      TextRequest asked;
      const Request& q = asked.head;
      Files files;
      if (const Next next = receive(asked, files); next != Next::served) return next;
      EventAnswer a{};
      a.head = {message_magic, q.ask, q.sequence, 0, 0, 0, 0};
      size_t size = sizeof a.head;
      Session* const s = Hardware::load(&now_, unordered);
      const bool has_ring = s != nullptr && q.ring < s->rings.size();
      switch (q.ask) {
        case Ask::attach:
          if (s == nullptr) not_brought_.clear();
          a.head.error = s != nullptr ? EBUSY : q.argument != 1 ? EPROTONOSUPPORT : attach_if_room(files);
          a.head.argument = options_.events.size();
          a.head.id = abilities();
          takes_last_ = a.head.error == 0 && (q.takes & takes_last) != 0;
          break;
        case Ask::rings:
          a.head.argument = std::max<u64>(std::max<u64>(options_.rings, options_.ring_names.size()),
                                          Hardware::load(&not_brought_.rings, unordered));
          a.head.refused = static_cast<u32>(Hardware::load(&not_brought_.events, unordered));
          break;
        case Ask::event:
          if (describe_event(q.ring, a)) size = sizeof a;
          break;
        case Ask::ring_name:
          a.head.error = q.ring < options_.ring_names.size() ? 0 : ENOENT;
          if (a.head.error == 0) {
            const ProcessRing& ring = options_.ring_names[q.ring];
            a.head.argument = ring.cpu < 0 ? 0 : static_cast<u64>(ring.cpu) + 1;
            ring.name.copy(a.name, sizeof a.name - 1);
            size = sizeof a;
          }
          break;
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
            a.head.refused = static_cast<u32>(s->rings[q.ring]->refused());
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
        case Ask::switch_event:
          a.head.error = s == nullptr ? ENODEV : switch_event(q);
          break;
        case Ask::write:
          a.head.error = !options_.write ? EOPNOTSUPP
                         : has_ring      ? errno_of(options_.write(q.ring, {asked.text, static_cast<size_t>(q.argument)}))
                                         : ENODEV;
          break;
        default:
          return Next::gone;
      }
      files.close();
      ssize_t n;
      do n = send(reader_, &a, size, MSG_NOSIGNAL | MSG_DONTWAIT);  // a reader that does not receive is hung up on
      while (n < 0 && errno == EINTR);
      return n == static_cast<ssize_t>(size) ? Next::served : Next::gone;
    }

    // A reader gets the texts whole, each with its NUL.
    static bool fit(const std::vector<ProcessEvent>& events) {
      const auto fits = [](const std::string& text, size_t room) {
        return text.size() < room && text.find('\0') == std::string::npos;
      };
      return events.size() <= most_events && std::all_of(events.begin(), events.end(), [&](const ProcessEvent& e) {
        return fits(e.system, sizeof(EventAnswer::system)) && fits(e.name, sizeof(EventAnswer::name)) &&
               fits(e.format, sizeof(EventAnswer::format));
      });
    }
    static bool fit(const std::vector<ProcessRing>& rings) {
      return rings.size() <= most_attached && std::all_of(rings.begin(), rings.end(), [](const ProcessRing& ring) {
               return ring.name.size() < sizeof(EventAnswer::name) && ring.name.find('\0') == std::string::npos;
             });
    }
    bool describe_event(u32 n, EventAnswer& a) const {
      a.head.id = abilities();
      a.head.error = n < options_.events.size() ? 0 : ENOENT;
      if (a.head.error != 0) return false;
      const ProcessEvent& e = options_.events[n];
      a.head.argument = e.id;
      e.system.copy(a.system, sizeof a.system - 1);
      e.name.copy(a.name, sizeof a.name - 1);
      e.format.copy(a.format, sizeof a.format - 1);
      return true;
    }
    u32 abilities() const noexcept {
      return (options_.write ? can_write : 0) | (options_.switch_event ? can_switch_events : 0) | counts_refused |
             can_tell_rings | can_name_rings;
    }
    static int errno_of(int answer) noexcept { return answer >= 0 && answer <= 4095 ? answer : EIO; }
    int switch_event(const Request& q) {
      if (!options_.switch_event) return EOPNOTSUPP;
      if (q.ring >= options_.events.size()) return ENOENT;
      if (q.argument > 1) return EINVAL;
      const int error = errno_of(options_.switch_event(options_.events[q.ring].id, q.argument == 1));
      off_.resize(options_.events.size());
      if (error == 0) off_[q.ring] = q.argument == 0;
      return error;
    }

    struct Files {
      int fd[most_files];
      size_t n = 0;
      ~Files() { close(); }
      void close() {
        while (n != 0) ::close(fd[--n]);
      }
    };
    Next receive(TextRequest& asked, Files& files) {
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * most_files)];
      const Request& q = asked.head;
      iovec part{&asked, sizeof asked};
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
      if (n < static_cast<ssize_t>(sizeof q) || q.magic != message_magic || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return Next::gone;
      const u64 text = static_cast<u64>(n) - sizeof q;
      return text == (q.ask == Ask::write ? q.argument : 0) ? Next::served : Next::gone;
    }

    static int attach_problem(const Files& files, u64& blob_bytes, u64& region_bytes) {
      struct stat st {};
      if (files.n < 2 || fstat(files.fd[0], &st) != 0) return EBADF;
      blob_bytes = static_cast<u64>(st.st_size);
      if (blob_bytes < sizeof(DescriptorHeader) || blob_bytes > 1u << 30) return EINVAL;
      for (size_t k = 1; k < files.n; ++k) {
        // Seals: a file that is cut after it was mapped would kill us; one that grew before would be mapped over what is after
        // the region. One that cannot be written cannot be mapped.
        constexpr int sized = F_SEAL_SHRINK | F_SEAL_GROW, fixed = F_SEAL_WRITE | 0x10;  // F_SEAL_FUTURE_WRITE
        const int seals = fcntl(files.fd[k], F_GET_SEALS);
        if (seals < 0 || (seals & sized) != sized || (seals & fixed) != 0) return EPERM;
        if (fstat(files.fd[k], &st) != 0) return EBADF;
        if (st.st_size <= 0 || static_cast<u64>(st.st_size) % detail::page_bytes() != 0 ||
            st.st_size > INT64_MAX - static_cast<i64>(region_bytes))
          return EINVAL;
        region_bytes += static_cast<u64>(st.st_size);
      }
      return 0;
    }

    int attach_if_room(const Files& files) {
      int error = try_to_attach(files);
      if (error == ENOMEM && give_up_addresses()) error = try_to_attach(files);
      return error == EDQUOT ? ENOMEM : error;
    }
    int try_to_attach(const Files& files) {
#if defined(__cpp_exceptions)
      try {
        return attach(files);
      } catch (const std::bad_alloc&) {
        return ENOMEM;
      }
#else
      return attach(files);
#endif
    }
    // EDQUOT: there are too many rings.
    int attach(const Files& files) {
      u64 blob_bytes = 0, region_bytes = 0;
      if (const int error = attach_problem(files, blob_bytes, region_bytes); error != 0) return error;
      std::vector<u64> blob((blob_bytes + 7) / 8);
      if (pread(files.fd[0], blob.data(), blob_bytes, 0) != static_cast<ssize_t>(blob_bytes)) return EINVAL;
      if (Session* const earlier = earlier_one(blob, region_bytes); earlier != nullptr) return attach_again(*earlier, files);
      auto session = std::make_unique<Session>(region_bytes);
      Session& s = *session;
      s.blob = std::move(blob);
      if (!WildDescriptor(s.blob.data(), blob_bytes).check(region_bytes, s.descriptor).good()) return EINVAL;
      if (attached_ + s.descriptor.nr_rings() > most_attached) return EDQUOT;
      if (const int error = s.region.map(files.fd + 1, files.n - 1); error != 0) return error;
      C clock{};
      if constexpr (requires { clock.kind; }) {
        if (!is_readable_here(s.descriptor.clock())) return EOPNOTSUPP;
        clock.kind = s.descriptor.clock();
      }
      for (u32 k = 0; k < s.descriptor.nr_rings(); ++k) {
        const RingLayout ring = s.descriptor.ring(k);
        constexpr u64 wiped = offsetof(Control, tail);  // the gate among them
        s.memory.push_back(std::make_unique<detail::Zeros>(wiped, Writer::private_bytes(ring) - wiped));
        if (s.memory.back()->get() == nullptr) return ENOMEM;
        s.rings.push_back(std::make_unique<Writer>(
            s.descriptor, ring, [&](u64 offset) { return s.region.at(offset); }, s.memory.back()->get(), clock));
      }
      sessions_.push_back(std::move(session));
      attached_ += s.descriptor.nr_rings();
      Hardware::store(&now_, sessions_.back().get(), session_publish);
      return 0;
    }

    // The rings of an earlier reader with this descriptor, if no event is open in them; else null.
    Session* earlier_one(const std::vector<u64>& blob, u64 region_bytes) noexcept {
      for (const auto& s : sessions_)
        if (s->region.has_addresses() && s->region.bytes() == region_bytes && s->blob == blob && quiet(*s)) return s.get();
      return nullptr;
    }
    bool give_up_addresses() noexcept {
      bool any = false;
      for (const auto& s : sessions_) any = s->region.give_up() || any;
      return any;
    }
    // As reset() does beside a writing thread, which may have looked up its ring long before, and writes to it once it is
    // enabled again.
    int attach_again(Session& s, const Files& files) noexcept {
      if (const int error = s.region.map(files.fd + 1, files.n - 1); error != 0) {
        s.region.unmap();
        return error;
      }
      for (auto& ring : s.rings) ring->reset();
      Hardware::store(&now_, &s, session_publish);
      return 0;
    }

    // Where the kernel refuses the fence (a sandbox), no ring is known to be quiet.
    static bool quiet(const Writer& ring) noexcept {
      return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0 && ring.quiet([] {});
    }
    template <class Q>
    static bool patiently(Q quiet) {
      for (int i = 0; i < 100; ++i) {
        if (quiet()) return true;
        usleep(1000);
      }
      return false;
    }
    // All rings are disabled. Each is quiet once it has been so: later visits are refused. Some looks may fall on such a visit.
    static bool quiet(Session& s) noexcept {
      return std::all_of(s.rings.begin(), s.rings.end(), [](auto& ring) {
        for (int looks = 0; looks < 20; ++looks)
          if (quiet(*ring)) return true;
        return false;
      });
    }
    static bool calm(Session& s) {
      if (!patiently([&] { return quiet(s); })) return false;
      for (auto& ring : s.rings) ring->publish_left();
      return true;
    }
    static int reset(Writer& ring) {
      const bool was = ring.enabled();
      ring.disable();
      const bool is_quiet = patiently([&] { return quiet(ring); });
      if (is_quiet) ring.reset();
      if (was) ring.enable();
      return is_quiet ? 0 : EBUSY;
    }

    // The region stays mapped if a thread is in the middle of an event.
    void detach() {
      Session* const s = Hardware::load(&now_, unordered);
      if (s == nullptr) return;
      for (auto& ring : s->rings) ring->disable();
      Hardware::store<Session*>(&now_, nullptr, session_publish);
      const bool is_calm = calm(*s);
      if (is_calm && takes_last_) tell_last(*s);
      is_calm ? s->region.unmap() : s->region.keep();
    }
    // The last counts, which no swap will report. In vain if it is the reader that has gone.
    void tell_last(Session& s) const {
      for (size_t k = 0; k < s.rings.size(); ++k) {
        const Answer a{message_magic, Ask::last, 0, 0, k, 0, static_cast<u32>(s.rings[k]->refused())};
        if (send(reader_, &a, sizeof a, MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(sizeof a)) return;
      }
    }

    ProcessOptions options_;
    Session*& now_;
    NotBrought& not_brought_;
    const detail::Zeros ours_{1, 0};  // 1; 0 in a child of fork
    std::vector<bool> off_;  // events that the reader has switched off, by index; or empty
    bool takes_last_ = false;  // the reader
    int reader_ = -1, stop_ = -1;
    std::atomic<int> error_{0};  // -1: not known yet
    static constexpr u64 most_attached = 16384;
    u64 attached_ = 0;                                // rings in
    std::vector<std::unique_ptr<Session>> sessions_;  // all: a thread may be about to look at an earlier one's private words
    pthread_t thread_{};
    bool has_thread_ = false;
    Service* next_abandoned_ = nullptr;
    inline static Service* abandoned_ = nullptr;
  };

  Session* now_ = nullptr;
  NotBrought not_brought_;
  Service* const service_;
};

}  // namespace ringside::remote
