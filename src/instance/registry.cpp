// Events by id and name, this process's way into an instance, and what happens to it at fork.
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "instance/cpu_rings.hpp"
#include "instance/instance.hpp"
#include "instance/process.hpp"
#include "schema/format_text.hpp"
#include "sys/beneath.hpp"

// Weak: a static program has neither, and no objects that go.
extern "C" [[gnu::weak]] decltype(dlopen) dlopen;
extern "C" [[gnu::weak]] decltype(dladdr) dladdr;

namespace ringside {

constinit Process process;

namespace {

constinit pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
constinit ringside_event* all_events = nullptr;  // under `opening`; a stack, never popped

u64 hash_of(const ringside_event& e) noexcept {
  return sys::hash(e.print_fmt, sys::hash(e.format_fields));
}

// The event's object must stay: it is listed, and its enable word is loaded until the end.
void pin(const ringside_event& event) {
  Dl_info info;
  if (dladdr != nullptr && dlopen != nullptr && dladdr(&event, &info) != 0 && info.dli_fname != nullptr)
    (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);  // the program itself is not found by this name: fine
}

bool fits(const char* name) noexcept {
  const size_t n = std::strlen(name);
  return n > 0 && n < sizeof(EventEntry::name) && std::strchr(name, '/') == nullptr && name[0] != '.';
}

// Control memories stay mapped for good: when an instance is closed, another thread may be in the middle of an event.
InstanceWords keep(sys::Region region) {
  static auto& kept = *new std::vector<sys::Region>;
  kept.push_back(std::move(region));
  return {reinterpret_cast<InstanceControl*>(kept.back().data())};
}

// Gives the event its id in the open instance. The caller holds the instance's lock.
int enter(ringside_event& e) {
  InstanceControl& c = *process.words.control;
  const u64 made = __atomic_load_n(&c.nr_events, __ATOMIC_ACQUIRE);
  const u64 hash = hash_of(e);
  u32 id = 0;
  for (u32 i = 1; i <= made && id == 0; ++i) {
    const EventEntry& entry = process.words.event(i);
    if (std::strncmp(entry.system, e.system, sizeof entry.system) != 0 || std::strncmp(entry.name, e.name, sizeof entry.name) != 0)
      continue;
    if (entry.format_hash != hash) return -EEXIST;
    id = i;
  }
  if (id == 0) {
    if (made >= most_events) return -ENOSPC;
    id = static_cast<u32>(made) + 1;
    EventEntry& entry = process.words.event(id);
    std::strncpy(entry.system, e.system, sizeof entry.system - 1);
    std::strncpy(entry.name, e.name, sizeof entry.name - 1);
    entry.format_hash = hash;
    entry.gate = e.gate;
    const sys::Fd dir = open_directory();
    const std::string system = std::string("events/") + e.system, event = system + "/" + e.name;
    (void)sys::make_owned_directory(dir.get(), system.c_str());
    (void)sys::make_owned_directory(dir.get(), event.c_str());
    (void)sys::write_owned(dir.get(), event + "/id", std::to_string(abi::event_id(id)) + "\n");
    if (!sys::write_owned(dir.get(), event + "/format", format_text(e, abi::event_id(id)))) return -EIO;
    __atomic_store_n(&entry.known, 1u, __ATOMIC_RELEASE);
    __atomic_store_n(&c.nr_events, u64{id}, __ATOMIC_RELEASE);
    apply_patterns(dir.get(), process.words, ringside_gate);
  }
  __atomic_store_n(&e.id, abi::event_id(id), __ATOMIC_RELEASE);
  __atomic_store_n(&e.enabled, &process.words.event(id).enabled, __ATOMIC_RELEASE);
  return 0;
}

void next_epoch() noexcept { __atomic_store_n(&detail::epoch.now, __atomic_add_fetch(&process.epochs, u64{1}, __ATOMIC_RELAXED), __ATOMIC_RELEASE); }

// 16 random bytes that the kernel gives to each image; a fork keeps them.
u32 this_image() noexcept {
  const auto* const random = reinterpret_cast<const char*>(getauxval(AT_RANDOM));
  const u64 h = sys::hash(random != nullptr ? std::string_view(random, 16) : std::string_view());
  return static_cast<u32>(h ^ h >> 32);
}

// Tells the instance what this process lacks.
void know_limits(InstanceControl* c) noexcept {
  process.fenced = sys::register_fence();
  if (c == nullptr) return;
  const u64 namespace_here = sys::pid_namespace();
  const u64 missing = (process.fenced ? 0 : lacks::fence) |
                      (namespace_here != 0 && namespace_here == c->pid_namespace ? 0 : lacks::namespace_of_creator);
  if (missing != 0) __atomic_fetch_or(&c->impaired, missing, __ATOMIC_SEQ_CST);
}

void before_fork() {
  const Inside inside;
  pthread_mutex_lock(&opening);
  copy_open_events();
}
void after_fork_parent() {
  const Inside inside;
  drop_copy();
  pthread_mutex_unlock(&opening);
}
void become_child() noexcept {
  forget_thread_after_fork(process.epochs + 1);
  if (process.epochs == 0) return;
  process.pid = getpid();
  know_limits(process.words.control);
  next_epoch();
}
void after_fork_child() {
  const Inside inside;
  pthread_mutex_init(&opening, nullptr);
  become_child();
}

// A program that this process was before an exec left its rings behind: their thread is ours, but not their writer.
void retire_rings_of_former_image(const InstanceWords& w) noexcept {
  const u64 n = __atomic_load_n(&w.control->nr_rings, __ATOMIC_ACQUIRE);
  for (u32 i = 0; i < n && i < most_rings; ++i) {
    RingEntry& entry = w.ring(i);
    u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
    if (state_of(state) != RingState::live || is_of_cpu(entry) || static_cast<i32>(entry.pid) != process.pid || entry.image == process.image) continue;
    const u64 retired = pack_state(RingState::retired, static_cast<u32>(state >> 32));
    __atomic_compare_exchange_n(&entry.state, &state, retired, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  }
}

// The table of who writes to rings of CPUs; null if the instance has none.
ThreadEntry* map_threads(int dir) noexcept {
  const sys::Fd fd = sys::open_owned(dir, "threads", O_RDWR);
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0 || static_cast<u64>(st.st_size) < threads_file_size) return nullptr;
  void* const at = mmap(nullptr, threads_file_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  return at == MAP_FAILED ? nullptr : static_cast<ThreadEntry*>(at);  // kept, as control memories are
}

int open_locked(const char* name) {
  const char* from_environment = std::getenv("RINGSIDE_INSTANCE");
  const std::string wanted = name != nullptr ? name : from_environment != nullptr ? from_environment : "default";
  auto path = instance_path(wanted);
  if (!path) return -path.error().code.value();
  struct stat st {};
  if (process.words.control != nullptr) {
    const bool same = stat(path->c_str(), &st) == 0 && st.st_dev == process.device && st.st_ino == process.inode;
    return name == nullptr || same ? 0 : -EBUSY;
  }
  auto dir = open_instance_directory(wanted);
  if (!dir && dir.error().code != std::errc::no_such_file_or_directory) return -dir.error().code.value();
  if (!dir) {
    // A path in the environment is that of a recorder, which may be gone: nobody would clean up a new one.
    if (name == nullptr && wanted.find('/') != std::string::npos) return -ENOENT;
    InstanceOptions options;
    options.name = wanted;
    if (auto made = Instance::create(options); !made && made.error().code != std::errc::file_exists)
      return -made.error().code.value();
    dir = open_instance_directory(wanted);
    if (!dir) return -dir.error().code.value();
  }
  auto words = map_instance(dir->get(), *path, true);
  if (!words) return -words.error().code.value();
  const sys::Fd gate = sys::open_owned(dir->get(), "gate", O_RDWR);
  if (!gate) return -errno;
  char absolute[PATH_MAX];  // the program may change its directory
  if (realpath(path->c_str(), absolute) == nullptr || fstat(dir->get(), &st) != 0) return -errno;
  if (mmap(ringside_gate, gate_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, gate.get(), 0) == MAP_FAILED) return -ENOMEM;
  const InstanceWords kept = keep(std::move(*words));
  std::strcpy(process.path, absolute);
  process.device = st.st_dev;
  process.inode = st.st_ino;
  process.clock = clock_of(*kept.control);
  process.pid = getpid();
  process.image = this_image();
  sys::comm_of(process.pid, 0, process.comm);
  know_limits(kept.control);
  static const bool once = pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0;
  (void)once;
  retire_rings_of_former_image(kept);
  process.threads = map_threads(dir->get());
  process.introduced = 0;
  __atomic_store_n(&detail::cpu_side, open_cpu_side(kept, bell_of(kept)), __ATOMIC_RELEASE);
  madvise(&detail::epoch, sizeof detail::epoch, MADV_WIPEONFORK);
  __atomic_store_n(&process.words.control, kept.control, __ATOMIC_RELEASE);
  next_epoch();
  register_all();
  return 0;
}

// With RINGSIDE_INSTANCE in the environment a program that uses the library is traced from its start.
[[gnu::constructor]] void open_from_environment() {
  if (std::getenv("RINGSIDE_INSTANCE") != nullptr) ringside_open(nullptr);
}

}  // namespace

void become_child_if_forked() noexcept {
  if (process.epochs != 0 && __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE) == 0) become_child();
}

void forget_events() noexcept {
  pthread_mutex_lock(&opening);
  all_events = nullptr;
  pthread_mutex_unlock(&opening);
}

void register_all() noexcept {
  if (process.words.control == nullptr || all_events == nullptr) return;
  const InstanceLock lock(open_directory().get());
  for (ringside_event* e = all_events; e != nullptr; e = e->next)
    if (e->id == 0) enter(*e);
}

sys::Fd open_directory() noexcept {
  sys::Fd dir(::open(process.path, O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat st {};
  const bool same = dir && fstat(dir.get(), &st) == 0 && st.st_dev == process.device && st.st_ino == process.inode;
  return same ? std::move(dir) : sys::Fd();
}

void save_names(int dir, i32 tid, i32 pid, const char* task) noexcept {
  const auto append = [dir](const char* file, i32 number, const char* text, size_t size) {
    const sys::Fd fd = sys::open_owned(dir, file, O_WRONLY | O_CREAT | O_APPEND);
    char line[48];
    char* at = std::to_chars(line, line + 12, number).ptr;
    *at++ = ' ';
    std::memcpy(at, text, size);
    at += size;
    *at++ = '\n';
    const auto length = static_cast<size_t>(at - line);
    const off_t end = fd ? lseek(fd.get(), 0, SEEK_END) : -1;
    if (end >= 0 && end < (4 << 20) && sys::may_grow_to(static_cast<u64>(end) + length)) (void)!::write(fd.get(), line, length);
  };
  append("saved_cmdlines", tid, task, strnlen(task, 16));
  char text[12];
  append("saved_tgids", tid, text, static_cast<size_t>(std::to_chars(text, text + sizeof text, pid).ptr - text));
}

}  // namespace ringside

using namespace ringside;

extern "C" {

alignas(4096) unsigned char ringside_gate[4096];

int ringside_register(ringside_event* event) {
  const Inside inside;
  if (!fits(event->system) || !fits(event->name)) return -EINVAL;
  if (__atomic_load_n(&event->id, __ATOMIC_ACQUIRE) != 0) return 0;
  pin(*event);
  pthread_mutex_lock(&opening);
  bool listed = false;
  for (const ringside_event* e = all_events; e != nullptr && !listed; e = e->next) listed = e == event;
  if (!listed) {
    event->next = all_events;
    all_events = event;
  }
  int done = 0;
  if (process.words.control != nullptr) {
    const InstanceLock lock(open_directory().get());
    done = enter(*event);
  }
  pthread_mutex_unlock(&opening);
  return done;
}

int ringside_open(const char* name) {
  const Inside inside;
  pthread_mutex_lock(&opening);
  const int done = open_locked(name);
  pthread_mutex_unlock(&opening);
  return done;
}

void ringside_close(void) {
  const Inside inside;
  pthread_mutex_lock(&opening);
  if (process.words.control != nullptr) {
    retire_this_thread();
    mmap(ringside_gate, gate_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (ringside_event* e = all_events; e != nullptr; e = e->next) {
      static const u32 never = 0;
      __atomic_store_n(&e->enabled, &never, __ATOMIC_RELEASE);
      __atomic_store_n(&e->id, 0u, __ATOMIC_RELEASE);
    }
    next_epoch();
    __atomic_store_n(&detail::cpu_side, nullptr, __ATOMIC_RELEASE);
    for (u32 n = 0; n < most_processes; ++n) {
      u64 own = static_cast<u64>(process.pid);
      if (__atomic_compare_exchange_n(&process.words.process(n).pid, &own, u64{0}, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
    }
    __atomic_store_n(&process.words.control, nullptr, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&opening);
}

}  // extern "C"
