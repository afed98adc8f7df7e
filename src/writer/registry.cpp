// Events by id and name, how this process opens an instance, and what happens to it at fork.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "schema/event_pattern.hpp"
#include "schema/format_text.hpp"
#include "sys/beneath.hpp"
#include "sys/side_stack.hpp"
#include "sys/sys.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/event_number.hpp"
#include "writer/maker.hpp"
#include "writer/patterns.hpp"
#include "writer/process.hpp"
#include "writer/sandbox.hpp"
#include "writer/unwind.hpp"

// Weak: a static program has neither, and no objects that can be unloaded.
extern "C" [[gnu::weak]] decltype(dlopen) dlopen;
extern "C" [[gnu::weak]] decltype(dladdr) dladdr;

namespace ringside {

constinit Process process;

namespace {

constinit pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
constinit ringside_event* all_events = nullptr;  // under `opening`; a stack, never popped
constinit Opened* all_opened = nullptr;          // the same

// Runs one step at a time that opens, closes or registers. Without signals, so that no handler forks in the middle. A child of a
// fork that ran no handlers is known as such before the epoch moves on. Returns what the step returns, -ENOMEM, or -EPERM in a sandbox.
template <class Step>
int opening_step(Step step) noexcept {
  const SignalsOff off;
  if (!off) return -EPERM;
  const Inside inside(off);
  int done = -ENOMEM;
  const auto alone = [&]() noexcept {
    pthread_mutex_lock(&opening);
    if (detail::this_thread.borrowed == 0) become_child_if_forked();
    try {
      done = step();
    } catch (const std::bad_alloc&) {
      done = -ENOMEM;
    }
    pthread_mutex_unlock(&opening);
  };
  (void)sys::on_side_stack(alone);
  return done;
}

// Which events get their caller's stack as a field after their own: set_stack of the instance, and RINGSIDE_STACK.
struct StackChoice {
  Switches events;
  u32 depth = usual_depth;
};
StackChoice stacks_of(int dir) {
  std::vector<std::string> lines;
  u32 depth = usual_depth;
  if (auto read = dir >= 0 ? read_patterns(dir, "set_stack") : result<std::vector<std::string>>()) lines = std::move(*read);
  std::erase_if(lines, [&](const std::string& line) {
    if (line.rfind("depth=", 0) != 0) return false;
    depth = static_cast<u32>(std::strtoul(line.c_str() + 6, nullptr, 10));
    return true;
  });
  if (const char* const here = sys::environment("RINGSIDE_STACK"); here != nullptr) {
    if (auto some = EventPatterns::parse(std::strcmp(here, "1") == 0 ? "*:*" : here))
      for (const EventPattern& one : *some) lines.push_back(one.text());
  }
  return {Switches(lines), depth};
}

// After the event's fixed fields; 0: there is no room.
u32 stack_place(const std::string& fields) {
  u32 end = RINGSIDE_COMMON_SIZE;
  for (const char* at = std::strstr(fields.c_str(), "offset:"); at != nullptr; at = std::strstr(at + 1, "offset:")) {
    const char* const size = std::strstr(at, "size:");
    if (size != nullptr)
      end = std::max(end, static_cast<u32>(std::strtoul(at + 7, nullptr, 10) + std::strtoul(size + 5, nullptr, 10)));
  }
  end = align_up(end, 8u);
  return end + 8 + RINGSIDE_FIELDS_MAX <= RINGSIDE_PAYLOAD_MAX ? end : 0;
}
std::string stack_line(u32 at) {
  return at != 0 ? "\tfield:ringside_stack stack;\toffset:" + std::to_string(at) + ";\tsize:8;\tsigned:0;\n" : "";
}
bool is_about_stacks(const ringside_event& e) { return &e == stack_events[0] || &e == stack_events[1]; }

bool is_listed(const ringside_event& event) noexcept {
  for (const ringside_event* e = all_events; e != nullptr; e = e->next)
    if (e == &event) return true;
  return false;
}

// Makes the event one of those that each instance gets. True: it was not.
bool list(ringside_event& event) {
  if (is_listed(event)) return false;
  event.next = all_events;
  all_events = &event;
  return true;
}

// The event's object must stay: it is listed, and its enable word is loaded until the end. Events of one object come together.
void pin(const ringside_event& event) {
  static constinit const void* last = nullptr;
  Dl_info info;
  if (dladdr == nullptr || dlopen == nullptr || dladdr(&event, &info) == 0 || info.dli_fname == nullptr) return;
  if (info.dli_fbase == std::exchange(last, info.dli_fbase)) return;
  (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);  // fails for the program itself, which stays anyway
}

bool fits(const char* name) noexcept {
  const size_t n = std::strlen(name);
  return n > 0 && n < sizeof(EventEntry::name) && std::strchr(name, '/') == nullptr && name[0] != '.';
}

// Takes the underscore off a declared name's end; the copy stays, as its event does.
bool make_plain(const char*& name) noexcept {
  const size_t size = ringside_plain_length(name);
  if (name[size] == 0) return true;
  const char* const copy = strndup(name, size);
  if (copy != nullptr) name = copy;
  return copy != nullptr;
}

// As the call sites have it: by the names that were declared. Those that are plain by now would lose another underscore.
u32 gate_of(const ringside_event& e) {
  if (e.fields == nullptr) return ringside_gate_of(e.system, e.name);
  return ringside_gate_of((std::string(e.system) + '_').c_str(), (std::string(e.name) + '_').c_str());
}

// To the program's user: no caller gets the error, and a recorder sees only a program that writes nothing.
void complain(const std::string& sentence, int error) {
  const std::string line = std::string("ringside: ") + program_invocation_short_name + " (" + std::to_string(getpid()) +
                           "): " + sentence + ": " + std::strerror(error) + "\n";
  // A pipe that nobody reads, a file that may not grow: a signal, which would hit the program.
  sigset_t ours, before, pending;
  sigemptyset(&ours);
  for (const int one : {SIGPIPE, SIGXFSZ}) sigaddset(&ours, one);
  pthread_sigmask(SIG_BLOCK, &ours, &before);
  sigpending(&pending);
  for (const int one : {SIGPIPE, SIGXFSZ})
    if (sigismember(&pending, one) == 1) sigdelset(&ours, one);  // the program's
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0 && (errno == EPIPE || errno == EFBIG)) {
    const timespec none{};
    sigtimedwait(&ours, nullptr, &none);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Gives events their ids in the open instance, under its lock. What the instance says of all events is read once.
class Entering {
 public:
  explicit Entering(const Opened& in)
      : in_(in), dir_(in.directory()), no_dir_(dir_ ? 0 : errno), lock_(dir_.get()), stacks_(stacks_of(dir_.get())),
        patterns_(read_patterns(dir_.get())) {}
  // Also for events that were there: the process that made them may have ended before it came here.
  ~Entering() {
    if (patterns_) apply_patterns(*patterns_, in_.words, ringside_gate);
  }
  Entering(const Entering&) = delete;
  Entering& operator=(const Entering&) = delete;

  int enter(ringside_event& e);
  int enter_or_complain(ringside_event& e);

 private:
  int make(const ringside_event& e, const EventTexts& texts, u64 hash, u32 stack_at, u32& id);
  sys::Fd make_folder(const ringside_event& e, const char* folder);  // events/SYSTEM/FOLDER; empty: errno has the reason

  const Opened& in_;
  const sys::Fd dir_;
  const int no_dir_;  // errno's word
  const InstanceLock lock_;
  const StackChoice stacks_;
  const result<std::vector<std::string>> patterns_;
  std::optional<EventNumbers> numbers_;  // once an event is made
  bool full_ = false;                    // the instance has no number for an event
  std::string system_name_;  // of system_, the last one's folder
  sys::Fd system_;
};

int Entering::enter(ringside_event& e) {
  const InstanceWords& words = in_.words;
  const u32 last = words.last_event();
  const EventTexts texts = texts_of(e);
  const bool has_stack = texts.fields.find("\tfield:ringside_stack ") != std::string::npos;
  u32 stack_at = !has_stack && stacks_.events.on(e.system, e.name) && !is_about_stacks(e) ? stack_place(texts.fields) : 0;
  const auto hash_with = [&](u32 at) { return sys::hash(texts.print, sys::hash(texts.fields + stack_line(at))); };
  const u64 hash = hash_with(stack_at);
  // Another program may have declared it when it was to have a stack, or when it was not. One with other fields is another
  // event of this name.
  const u32 other_place = stack_at != 0 || has_stack ? 0 : stack_place(texts.fields);
  const u64 other_hash = hash_with(other_place);
  u32 id = 0;
  for (u32 i = 1; i <= last && id == 0; ++i) {
    const EventEntry& entry = words.event(i);
    if (__atomic_load_n(&entry.known, __ATOMIC_ACQUIRE) == 0 ||  // a process died in the middle
        (entry.format_hash != hash && entry.format_hash != other_hash) ||
        std::strncmp(entry.system, e.system, sizeof entry.system) != 0 ||
        std::strncmp(entry.name, e.name, sizeof entry.name) != 0)
      continue;
    id = i;
    if (entry.format_hash != hash) stack_at = other_place;
  }
  if (stack_at != 0 || has_stack) {
    for (ringside_event* const* about = stack_events; *about != nullptr; ++about) {
      if (const int done = (*about)->id == 0 ? enter(**about) : 0; done != 0) return done;
      list(**about);
    }
    ready_stacks(stacks_.depth);
  }
  if (const int done = id == 0 ? make(e, texts, hash, stack_at, id) : 0; done != 0) return done;
  __atomic_store_n(&e.id, abi::event_id(id) | stack_at << 16, __ATOMIC_RELEASE);
  static const u32 always = 1;  // what events refer to is written whenever these are
  __atomic_store_n(&e.enabled, is_about_stacks(e) ? &always : &words.event(id).enabled, __ATOMIC_RELEASE);
  return 0;
}

// Makes the entry and the files of an event that the instance does not have.
int Entering::make(const ringside_event& e, const EventTexts& texts, u64 hash, u32 stack_at, u32& id) {
  const InstanceWords& words = in_.words;
  if (!dir_) return -no_dir_;
  if (!patterns_) return -errno_of(patterns_.error());
  EventEntry made{};
  std::strncpy(made.system, e.system, sizeof made.system - 1);
  std::strncpy(made.name, e.name, sizeof made.name - 1);
  made.format_hash = hash;
  made.gate = gate_of(e);
  words.each_event([&](u32, const EventEntry& other) {
    if (std::strcmp(other.name, made.name) == 0 && std::strcmp(other.system, made.system) == 0) made.namesake = 1;
  });
  if (!numbers_) numbers_.emplace(dir_.get());
  id = numbers_->choose(words, made);
  if (id == 0) return full_ = true, -ENOSPC;
  const u32 last = words.last_event();
  if (id > last && !sys::populate(&words.event(last + 1), (id - last) * sizeof made)) return -ENOSPC;  // those between, too
  EventEntry& entry = words.event(id);
  entry = made;
  if (!in_.is_there()) return -errno;  // renamed, to be removed: nothing more is made in it
  const sys::Fd folder = make_folder(e, words.event_folder(id).c_str());
  if (!folder) return -errno;
  for (const auto& [file, text] :
       {std::pair{"id", std::to_string(abi::event_id(id)) + "\n"},
        {"format", format_text(e.name, abi::event_id(id), texts.fields + stack_line(stack_at), texts.print)}})
    if (auto done = sys::write_owned(folder.get(), file, text); !done) return -errno_of(done.error());
  __atomic_store_n(&entry.known, 1u, __ATOMIC_RELEASE);
  __atomic_store_n(&words.control->events, (u64{words.nr_events()} + 1) << 32 | std::max(last, id), __ATOMIC_RELEASE);
  return 0;
}

sys::Fd Entering::make_folder(const ringside_event& e, const char* folder) {
  if (system_name_ != e.system) {
    const std::string path = std::string("events/") + e.system;
    system_ = sys::make_owned_directory(dir_.get(), path.c_str());
    if (!system_ && errno == ENOENT && sys::make_owned_directory(dir_.get(), "events"))
      system_ = sys::make_owned_directory(dir_.get(), path.c_str());
    system_name_ = system_ ? e.system : "";
    if (!system_) return {};
  }
  return sys::make_owned_directory(system_.get(), folder);
}

int Entering::enter_or_complain(ringside_event& e) {
  const int done = enter(e);
  if (full_) {
    static constinit const Opened* said = nullptr;  // once: no other event has room either
    if (std::exchange(said, &in_) != &in_)
      complain(std::string("the event ") + e.system + ":" + e.name + " and other new ones are not traced, the instance " +
                   in_.path + " has its " + std::to_string(most_events) +
                   " events, also those of earlier builds; `ringside rm " + in_.path + "` removes it with what it recorded",
               ENOSPC);
  } else if (done != 0 && done != -ENOENT)  // gone: so is its recorder
    complain(
        std::string("the event ") + e.system + ":" + e.name + " is not traced, the instance " + in_.path + " cannot take it",
        -done);
  return done;
}

void next_epoch() noexcept {
  __atomic_store_n(&detail::epoch.now, __atomic_add_fetch(&process.epochs, u64{1}, __ATOMIC_RELAXED), __ATOMIC_RELEASE);
}

// Other threads read these results; at the first open and in a new child there are no others.
void know_process() noexcept {
  process.pid = getpid();
  process.fenced = sys::register_fence();
}

// Finds out how this process relates to the instance.
void know_place(Opened& in) noexcept {
  in.pid_namespace = in.other_kernel ? 0 : sys::pid_namespace();
  in.foreign = in.pid_namespace == 0 || in.pid_namespace != in.words.control->pid_namespace;
  __atomic_store_n(&in.number, 0u, __ATOMIC_RELEASE);
  __atomic_store_n(&in.rings_made, 0u, __ATOMIC_RELAXED);
}

void say_limits(const Opened& in) noexcept {
  if (!process.fenced) __atomic_fetch_or(&in.words.control->impaired, lacks::fence, __ATOMIC_SEQ_CST);
}

// The thread that forks now: its errno, which the child has, too, and how it took signals. Under `opening`. Signals are off
// until it has forked: a handler that forks would wait for the lock, and one that leaves by siglongjmp would keep it.
constinit const int* forker = nullptr;
constinit sys::Signals forkers_signals;

void before_fork() {
  SignalsOff off;
  if (!off) return;
  const Inside inside(off);
  pthread_mutex_lock(&opening);
  __atomic_store_n(&forker, &errno, __ATOMIC_RELAXED);
  // No fork while a seat is being taken either: the child would have its lock, too.
  if (const Opened* const in = process.opened)
    for (int i = 0; i < 1000 && __atomic_load_n(&in->seating, __ATOMIC_ACQUIRE) == sys::this_process(); ++i) sched_yield();
  forkers_signals = off.keep();
}
// False: it was in a sandbox when it forked.
bool end_forking() noexcept {
  if (__atomic_load_n(&forker, __ATOMIC_RELAXED) != &errno) return false;
  __atomic_store_n(&forker, nullptr, __ATOMIC_RELAXED);
  return true;
}
void after_fork_parent() {
  if (!end_forking()) return;
  const SignalsOff off(forkers_signals);
  const Inside inside(off);
  pthread_mutex_unlock(&opening);
}
void become_child() noexcept {
  forget_thread_after_fork();
  if (process.epochs == 0) return;
  know_process();
  forget_code_maps();
  bool mono = false;
  for (Opened* one = all_opened; one != nullptr; one = one->next) {
    know_place(*one);
    mono = mono || one->clock.kind == ClockKind::mono;
  }
  if (mono) look_at_time_namespace();  // a child may have another one
  if (process.opened != nullptr) say_limits(*process.opened);
  next_epoch();
}
void after_fork_child() {
  if (!end_forking()) return;  // it inherits the sandbox; its events are refused
  __atomic_store_n(&calling, 1u, __ATOMIC_SEQ_CST);  // of its parent's threads, this one is here
  const SignalsOff off(forkers_signals);
  const Inside inside(off);
  pthread_mutex_init(&opening, nullptr);
  if (process.tids_noted_in != 0) process.tids_noted_in = sys::this_process();
  become_child();
}

bool has_thread_table(int dir) noexcept {
  const sys::Fd fd = sys::open_owned(dir, "threads", O_RDWR);
  struct stat st {};
  return fd && fstat(fd.get(), &st) == 0 && static_cast<u64>(st.st_size) >= threads_file_size;
}

void register_all(const Opened& in) {
  if (all_events == nullptr) return;
  Entering entering(in);
  for (ringside_event* e = all_events; e != nullptr; e = e->next)
    if (e->id == 0) entering.enter_or_complain(*e);
}

// This process's record of the instance in this directory; made the first time. Null: errno says why.
Opened* look_up(int dir, const char* path) {
  static auto& regions = *new std::vector<sys::Region>;
  struct stat st {};
  if (fstat(dir, &st) != 0) return nullptr;
  for (Opened* one = all_opened; one != nullptr; one = one->next)
    if (one->is(st)) return one;
  auto words = map_instance(dir, path, true);
  if (!words) {
    errno = errno_of(words.error());
    return nullptr;
  }
  auto* const control = reinterpret_cast<InstanceControl*>(words->data());
  if (!is_readable_here(control->clock_kind)) {
    __atomic_fetch_add(&control->without_clock, 1u, __ATOMIC_RELAXED);
    errno = EOPNOTSUPP;
    return nullptr;
  }
  regions.push_back(std::move(*words));
  auto* const made = new Opened;
  made->words.control = control;
  made->clock = clock_of(*made->words.control);
  if (made->clock.kind == ClockKind::mono) look_at_time_namespace();
  made->has_threads = has_thread_table(dir);
  made->other_kernel = made->words.control->boot != sys::boot_hash();
  // A thread that begins later maps its own piece, unless the process has dropped the right to.
  for (const u32 later : {u32{0}, u32{threads_piece / sizeof(ThreadEntry)}})
    if (made->has_threads)
      (void)map_threads(*made, dir, (static_cast<u32>(getpid()) + later) % most_threads * sizeof(ThreadEntry) / threads_piece);
  made->device = st.st_dev;
  made->inode = st.st_ino;
  know_place(*made);
  std::strcpy(made->path, path);
  made->side = open_cpu_side(*made);
  made->next = all_opened;
  return all_opened = made;
}

// file: -1 for zeros. By the system call: a thread that reads there meanwhile finds either, and both are right; the thread
// sanitizer need not judge.
bool map_gate(int file) noexcept {
  const int how = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  return sys::raw_mmap(ringside_gate, gate_bytes, how | MAP_FIXED, file) != MAP_FAILED;
}

const char* name_in_environment() noexcept { return sys::environment("RINGSIDE_INSTANCE"); }

// choose: how it is made, if it is not there yet. Only then are there options: their clock takes a test of the processors.
template <class Choose>
int open_locked(const char* name, const Choose& choose) {
  const char* const from_environment = name_in_environment();
  const std::string wanted = name != nullptr ? name : from_environment != nullptr ? from_environment : "default";
  auto path = instance_path(wanted);
  if (!path) return -errno_of(path.error());
  struct stat st {};
  if (const Opened* const now = process.opened; now != nullptr) {
    const bool same = stat(path->c_str(), &st) == 0 && now->is(st);
    return name == nullptr || same ? 0 : -EBUSY;
  }
  // A setuid program that has become root for good hands the environment of its caller on.
  const sys::Role role = name == nullptr ? sys::Role::root : sys::Role::instance;
  auto dir = open_instance_directory(wanted, role);
  if (!dir && dir.error().code != std::errc::no_such_file_or_directory) return -errno_of(dir.error());
  if (!dir) {
    // A path in the environment is that of a recorder, which may be gone: no process would clean up a new instance.
    if (name == nullptr && wanted.find('/') != std::string::npos) return -ENOENT;
    InstanceOptions options;
    choose(options);
    options.name = wanted;
    if (auto done = make_instance(options); !done && done.error().code != std::errc::file_exists) return -errno_of(done.error());
    dir = open_instance_directory(wanted, role);
    if (!dir) return -errno_of(dir.error());
  }
  char absolute[PATH_MAX];  // the program may change its directory
  if (realpath(path->c_str(), absolute) == nullptr) return -errno;
  const sys::Fd gate = sys::open_owned(dir->get(), "gate", O_RDWR);
  if (!gate) return -errno;
  if (process.epochs == 0) {
    know_process();
    if (noted_tid() == getpid()) process.tids_noted_in = sys::this_process();
    sys::own_comm(process.comm);
  }
  Opened* const in = look_up(dir->get(), absolute);
  if (in == nullptr) return -errno;
  (void)in->family.take(dir->get(), in->words, role::opener);
  if (!map_gate(gate.get())) return -ENOMEM;
  say_limits(*in);
  static const bool once = pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0;
  (void)once;
  madvise(&detail::epoch, sizeof detail::epoch, MADV_WIPEONFORK);
  tell_preloaded_copy();
  // No thread attaches before `opened` is set, and by then the events have their ids.
  register_all(*in);
  __atomic_store_n(&detail::cpu_side, in->side, __ATOMIC_RELEASE);
  __atomic_store_n(&process.opened, in, __ATOMIC_RELEASE);
  next_epoch();
  return 0;
}

// First all threads stop writing as before, then the words that they would write change.
void detach() noexcept {
  __atomic_store_n(&process.opened, nullptr, __ATOMIC_RELEASE);
  next_epoch();
  __atomic_store_n(&detail::cpu_side, nullptr, __ATOMIC_RELEASE);
  for (ringside_event* e = all_events; e != nullptr; e = e->next) {
    static const u32 never = 0;
    __atomic_store_n(&e->enabled, &never, __ATOMIC_RELEASE);
  }
}

void close_locked() noexcept {
  Opened* const in = process.opened;
  if (in == nullptr) return;
  detach();
  retire_this_thread();
  map_gate(-1);
  for (ringside_event* e = all_events; e != nullptr; e = e->next) __atomic_store_n(&e->id, 0u, __ATOMIC_RELEASE);
  // The seat stays: other threads have rings in there until they end.
  if (const Member own = in->seat.member(); own != nobody)
    __atomic_fetch_and(&in->words.process(slot_of(own)).role, ~role::writer, __ATOMIC_RELAXED);
  // The family's goes, unless children write by it: this process has closed the instance, and needs it no longer.
  if (const Member all = in->family.member();
      all != nobody && (__atomic_load_n(&in->words.process(slot_of(all)).role, __ATOMIC_RELAXED) & role::writer) == 0)
    in->family.leave();
}

// An instance goes with its recorder, and the directory above it stays.
bool is_in_another_root(const std::string& path) {
  const std::string above = path.substr(0, path.rfind('/'));
  return !above.empty() && access(above.c_str(), F_OK) != 0 && errno == ENOENT;
}

// With RINGSIDE_INSTANCE in the environment a program that uses the library is traced from its start: from the declaration of
// its first event, which comes before its static constructors.
[[gnu::constructor]] void open_from_environment() {
  static constinit u32 done_before = 0;  // a byte's exchange is a function of libatomic on riscv64
  if (__atomic_exchange_n(&done_before, 1u, __ATOMIC_RELAXED) != 0) return;
  const char* const name = name_in_environment();
  const int done = name != nullptr ? ringside_open(nullptr) : 0;
  if (done == -EOPNOTSUPP)
    complain(std::string("not traced, this processor does not have the clock of the instance ") + name +
                 "; make it with --clock mono",
             -done);
  else if (done == -ENOENT && name[0] == '/' && !is_in_another_root(name))
    return;  // a recorder's full path that is gone: so is the recorder
  else if (done != 0)
    complain(std::string("not traced, the instance ") + name + " of RINGSIDE_INSTANCE cannot be opened" +
                 (done == -EACCES   ? " (this user must own it, and no other may write there)"
                  : done == -ENOENT ? " (its directory is not in the root or mount namespace of this program)"
                                    : ""),
             -done);
}

int switch_events(const char* events, bool on) noexcept {
  if (no_system_calls()) return -EPERM;
  return opening_step([&] {
    const Opened* const in = process.opened;
    if (in == nullptr) return -ENOENT;
    const auto patterns = EventPatterns::parse(events != nullptr ? events : "");
    if (!patterns || !can_be_lines(*patterns)) return -EINVAL;
    const sys::Fd dir = in->directory();
    if (!dir) return -errno;
    const InstanceLock lock(dir.get());
    const auto before = read_patterns(dir.get());
    if (!before) return -errno_of(before.error());
    std::string text;
    for (const std::string& line : *before) text += line + "\n";
    const std::string now = with_patterns(text, *patterns, on, true);
    if (const auto done = now != text ? replace_file(dir.get(), "set_event", now) : result<void>(); !done)
      return -errno_of(done.error());
    apply_patterns(lines_of(now), in->words, ringside_gate);
    return 0;
  });
}

}  // namespace

void shut_rings() noexcept { next_epoch(); }

void become_child_if_forked() noexcept {
  if (!no_system_calls() && __atomic_load_n(&process.epochs, __ATOMIC_RELAXED) != 0 &&
      __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE) == 0)
    become_child();
}

bool is_of_an_instance(std::string_view path) {
  return opening_step([&] {
           for (const Opened* one = all_opened; one != nullptr; one = one->next)
             if (path.starts_with(one->path) && (path.size() == std::strlen(one->path) || path[std::strlen(one->path)] == '/'))
               return 1;
           return 0;
         }) == 1;
}

void forget_events() noexcept {
  opening_step([] {
    all_events = nullptr;
    return 0;
  });
}

bool Opened::rejoin() noexcept {
  const Member own = seat.member();
  if (own != nobody) __atomic_fetch_or(&words.process(slot_of(own)).role, role::writer, __ATOMIC_RELAXED);
  return own != nobody;
}

void Opened::join() noexcept {
  if (rejoin()) return;
  // One thread at a time. A child that was forked meanwhile finds its parent's number there. A thread that does not go on (a
  // debugger, a dead child of vfork) must not stop the others: they have no seat then.
  const u64 own = sys::this_process();
  u64 who = 0;
  bool ours = false;
  for (int tries = 0;
       tries < 10'000 && !(ours = __atomic_compare_exchange_n(&seating, &who, own, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
       ++tries) {
    if (who != own) continue;
    if (seat.member() != nobody) return;
    sched_yield();
    who = 0;
  }
  if (const sys::Fd dir = ours ? directory() : sys::Fd(); !dir || seat.take(dir.get(), words, role::writer) == nobody) {
    if (const Member all = family.member(); all != nobody)
      __atomic_fetch_or(&words.process(slot_of(all)).role, role::writer, __ATOMIC_RELAXED);
    else
      __atomic_fetch_or(&words.control->impaired, lacks::seat, __ATOMIC_SEQ_CST);
  }
  if (ours) __atomic_store_n(&seating, u64{0}, __ATOMIC_RELEASE);
}

bool Opened::is_there() const noexcept {
  struct stat st {};
  if (stat(path, &st) != 0) return false;
  if (is(st)) return true;
  errno = ENOENT;
  return false;
}

sys::Fd Opened::directory() const noexcept {
  sys::Fd dir(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat st {};
  if (!dir || fstat(dir.get(), &st) != 0) return {};
  if (!is(st)) return errno = ENOENT, sys::Fd();
  return dir;
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
    if (fd) (void)sys::append(fd.get(), line, static_cast<size_t>(at - line), 4 << 20);
  };
  append("saved_cmdlines", tid, task, strnlen(task, 16));
  char text[12];
  append("saved_tgids", tid, text, static_cast<size_t>(std::to_chars(text, text + sizeof text, pid).ptr - text));
}

}  // namespace ringside

using namespace ringside;

extern "C" {

alignas(largest_page) unsigned char ringside_gate[RINGSIDE_GATE_BYTES];
static_assert(sizeof ringside_gate == largest_page);

int ringside_register(ringside_event* event) {
  if (no_system_calls()) return -EPERM;
  if (__atomic_load_n(&event->id, __ATOMIC_ACQUIRE) != 0) return 0;
  open_from_environment();
  return opening_step([&] {
    const bool declared = event->fields != nullptr && !is_listed(*event);
    if (declared && (!make_plain(event->system) || !make_plain(event->name))) return -ENOMEM;
    if (!fits(event->system) || !fits(event->name)) return -EINVAL;
    pin(*event);
    list(*event);
    return process.opened != nullptr ? Entering(*process.opened).enter_or_complain(*event) : 0;
  });
}

int ringside_open(const char* name) {
  if (no_system_calls()) return -EPERM;
  return opening_step([&] { return open_locked(name, [](InstanceOptions&) {}); });
}

int ringside_open_with(const ringside_options* options, size_t size) {
  if (no_system_calls()) return -EPERM;
  ringside_options o{};  // of a program that knows less of them, or more
  if (options == nullptr || size < sizeof o.name) return -EINVAL;
  const auto* const bytes = reinterpret_cast<const u8*>(options);
  if (std::any_of(bytes + std::min(size, sizeof o), bytes + size, [](u8 byte) { return byte != 0; })) return -EINVAL;
  std::memcpy(&o, options, std::min(size, sizeof o));
  if (o.mode > RINGSIDE_DISCARD || o.reserved != 0) return -EINVAL;
  return opening_step([&] {
    std::vector<std::string> events;
    if (o.events != nullptr) {
      const auto patterns = EventPatterns::parse(o.events);
      if (!patterns || !can_be_lines(*patterns)) return -EINVAL;
      events = lines_of(with_patterns("", *patterns, true, true));
    }
    return open_locked(o.name, [&](InstanceOptions& made) {
      if (o.ring_bytes != 0) made.buffer_size = o.ring_bytes;
      made.budget = o.budget_bytes;
      made.overwrite = o.mode == RINGSIDE_OVERWRITE;
      if (o.events != nullptr) made.events = std::move(events);
    });
  });
}

const char* ringside_instance(void) {
  const Opened* const in = opened_now();
  return in != nullptr ? in->path : nullptr;
}

int ringside_enable(const char* events) { return switch_events(events, true); }
int ringside_disable(const char* events) { return switch_events(events, false); }

void ringside_close(void) {
  if (no_system_calls()) return detach();
  opening_step([] {
    close_locked();
    return 0;
  });
}

}  // extern "C"
