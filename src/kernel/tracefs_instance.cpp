#include "kernel/tracefs_instance.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "clock/clock.hpp"
#include "kernel/kernel_numbers.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/probe_group.hpp"
#include "schema/filter_clauses.hpp"
#include "source/world.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

// Declarations from libtracefs: its header (1.6) has inline functions that are no C++.
extern "C" {
void tracefs_set_loglevel(int level);
int tracefs_tracing_dir_is_mounted(bool mount, const char** path);
tracefs_instance* tracefs_instance_create(const char* name);
void tracefs_instance_free(tracefs_instance* instance);
bool tracefs_file_exists(tracefs_instance* instance, const char* name);
int tracefs_instance_set_buffer_size(tracefs_instance* instance, size_t size_kb, int cpu);
char* tracefs_error_last(tracefs_instance* instance);
}

namespace ringside {
namespace {

// The prefixes of instances that commands make.
constexpr const char* command_prefixes[] = {"ringside-",       "ringside-trigger-", "ringside-doctor-",
                                            "ringside-clock-", "ringside-numbers-", "ringside-names-"};

// tracefs creates no files and has no modes.
result<void> put(const std::string& path, const std::string& text, bool append) {
  const sys::Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC | (append ? O_APPEND : O_TRUNC)));
  if (!fd) return fail(errno, "cannot open " + path);
  const ssize_t n = ::write(fd.get(), text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size())) return fail(n < 0 ? errno : EIO, "cannot write \"" + text + "\" to " + path);
  return {};
}

// Whether create() gives such names: PREFIX, a number, and .N if that was taken.
bool is_of(const std::string& name, const std::string& prefix) {
  if (name.compare(0, prefix.size(), prefix) != 0) return false;
  const auto number = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  const std::string rest = name.substr(prefix.size());
  const size_t dot = rest.find('.');
  return number(rest.substr(0, dot)) && (dot == std::string::npos || number(rest.substr(dot + 1)));
}

// Nothing in an instance is touched before the kernel has confirmed that no process has a file of it open (else EBUSY).
// ENODEV: another process is removing it at this moment.
bool remove_unheld(const std::string& dir) { return rmdir(dir.c_str()) == 0 || errno == ENOENT || errno == ENODEV; }

// Whether this is still the file at `path`. The kernel identifies an instance by its address: if one instance is removed and
// another is made at its address while an open() waits, the open() by the first one's name opens the other one.
bool is_at(int fd, const std::string& path) {
  struct stat mine {}, there {};
  return fstat(fd, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

bool lacks_root() { return geteuid() != 0 || sys::has_own_users(); }

// Makes an instance of this name and holds it. Empty: another process has it.
result<sys::Fd> make_and_hold(const std::string& dir) {
  for (u32 tries = 0; tries < 100; ++tries) {
    if (mkdir(dir.c_str(), 0777) != 0) {
      if (errno != EEXIST)
        return fail(errno, "cannot make the tracing instance " + dir + (lacks_root() ? " (only " + sys::as_root() + ")" : ""));
      if (!remove_unheld(dir)) return sys::Fd();
      continue;
    }
    // Until it is open, another process may remove it, and another instance may take its place: the process that locks it has
    // it.
    sys::Fd held(open((dir + "/tracing_on").c_str(), O_RDONLY | O_CLOEXEC));
    if (!held && (errno == ENOENT || errno == ENODEV)) continue;
    if (!held) {
      const int error = errno;
      (void)remove_unheld(dir);
      return fail(error, "cannot open " + dir + "/tracing_on");
    }
    if (flock(held.get(), LOCK_EX | LOCK_NB) == 0 && is_at(held.get(), dir + "/tracing_on"))
      return result<sys::Fd>(std::move(held));
  }
  return sys::Fd();
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

result<std::string> tracefs_dir() {
  tracefs_set_loglevel(0);
  static const char* path = nullptr;  // the library allocates a new copy at each call and frees none
  static std::mutex asking;
  const std::lock_guard alone(asking);
  if (path == nullptr && tracefs_tracing_dir_is_mounted(geteuid() == 0, &path) < 0) path = nullptr;
  if (path == nullptr) {
    if (lacks_root())
      return refuse(std::errc::operation_not_permitted, "tracefs is not mounted: the kernel is traced only " + sys::as_root());
    return refuse(
        std::errc::no_such_device,
        "tracefs cannot be mounted on /sys/kernel/tracing: the kernel was built without tracing (CONFIG_TRACING), or this "
        "container may not mount; mount it outside: mount -t tracefs nodev /sys/kernel/tracing");
  }
  if (access((std::string(path) + "/instances").c_str(), R_OK | X_OK) != 0)
    return fail(errno, "cannot use " + std::string(path) + " (the kernel is traced only " + sys::as_root() +
                           ", or by a group: mount -o remount,gid=GROUP,mode=770 " + std::string(path) + ")");
  return std::string(path);
}

std::vector<std::string> kernel_instances() {
  auto dir = tracefs_dir();
  if (!dir) return {};
  std::vector<std::string> all = names_in(*dir + "/instances");
  for (std::string& name : all) name = *dir + "/instances/" + name;
  return all;
}

std::string find_kernel_instance(const std::string& where) {
  std::string dir = where;
  if (where.find('/') == std::string::npos) {
    auto root = tracefs_dir();
    if (!root || where.find_first_not_of('.') == std::string::npos) return "";
    dir = *root + "/instances/" + where;
  }
  return access((dir + "/per_cpu/cpu0/trace_pipe_raw").c_str(), F_OK) == 0 && access((dir + "/trace_clock").c_str(), F_OK) == 0
             ? dir
             : "";
}

u32 remove_stale_instances(const std::string& prefix) {
  u32 removed = 0;
  auto dir = tracefs_dir();
  if (!dir) return 0;
  for (const std::string& name : names_in(*dir + "/instances")) {
    const bool ours = is_of(name, prefix) || std::any_of(std::begin(command_prefixes), std::end(command_prefixes),
                                                         [&](const char* p) { return is_of(name, p); });
    if (ours && remove_unheld(*dir + "/instances/" + name)) ++removed;
  }
  return removed;
}

TracefsInstance::TracefsInstance(tracefs_instance* handle, std::string dir, sys::Fd held)
    : handle_(handle), dir_(std::move(dir)), held_(std::move(held)), cpus_(kernel_cpus(dir_)) {}

TracefsInstance::TracefsInstance(TracefsInstance&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      dir_(std::move(other.dir_)),
      held_(std::move(other.held_)),
      cpus_(std::move(other.cpus_)),
      numbers_(std::move(other.numbers_)),
      traces_functions_(other.traces_functions_) {}

TracefsInstance::~TracefsInstance() { (void)remove(); }

result<void> TracefsInstance::remove() {
  if (handle_ == nullptr) return {};
  (void)tracing(false);  // for its remaining readers
  held_ = sys::Fd();
  tracefs_instance_free(std::exchange(handle_, nullptr));
  return remove_unheld(dir_) ? result<void>{} : fail(errno, "cannot remove " + dir_);
}

result<TracefsInstance> TracefsInstance::create(const TracefsOptions& options) {
  auto root = RS_TRY(tracefs_dir());
  remove_stale_instances(options.prefix);
  remove_stale_probes();
  const std::string first = options.prefix + std::to_string(getpid());
  // A process of another PID namespace may have this process's number.
  for (u32 n = 0; n < 100; ++n) {
    const std::string name = n == 0 ? first : first + "." + std::to_string(n);
    const std::string dir = root + "/instances/" + name;
    auto held = RS_TRY(make_and_hold(dir));
    if (!held) continue;
    tracefs_instance* handle = tracefs_instance_create(name.c_str());
    if (handle == nullptr) {
      const int error = errno;
      held = sys::Fd();
      (void)remove_unheld(dir);
      return fail(error, "cannot use the tracing instance " + dir);
    }
    TracefsInstance made(handle, dir, std::move(held));
    if (made.cpus_.empty())
      return refuse(std::errc::io_error, "cannot list the rings in " + dir +
                                             "/per_cpu: this process has too few descriptors (ulimit -n) or too little memory");
    RS_TRY(made.set_up(options));
    return made;
  }
  return refuse(std::errc::device_or_resource_busy,
                "cannot make the tracing instance " + root + "/instances/" + first + ": it and its 99 followers are in use");
}

result<void> TracefsInstance::set_up(const TracefsOptions& options) {
  RS_TRY(tracing(false));
  if (auto done = write("trace_clock", to_string(options.clock)); !done) {
    if (done.error().code != std::errc::invalid_argument) return done;
    return refuse(std::errc::not_supported, "this kernel has no clock " + std::string(to_string(options.clock)) + " (" + dir_ +
                                                "/trace_clock lists those it has); take --clock mono");
  }
  if (tracefs_file_exists(handle_, "buffer_subbuf_size_kb")) {
    RS_TRY(write("buffer_subbuf_size_kb", std::to_string(options.subbuf_size / 1024)));
  }
  if (tracefs_instance_set_buffer_size(handle_, (options.buffer_size + 1023) / 1024, -1) != 0)
    return fail(errno, "cannot make rings of " + std::to_string(options.buffer_size) + " bytes on each of " +
                           std::to_string(cpus_.size()) + " processors; take smaller ones (-b)");
  (void)write("options/record-tgid", "1");  // the threads' processes; older kernels lack the option
  RS_TRY(write("options/overwrite", options.overwrite ? "1" : "0"));
  if (tracefs_file_exists(handle_, "buffer_percent")) return write("buffer_percent", std::to_string(options.buffer_percent));
  return {};
}

result<void> TracefsInstance::write(const char* file, const std::string& text, bool append) {
  return put(dir_ + "/" + file, text, append);
}

result<void> TracefsInstance::tracing(bool on) { return write("tracing_on", on ? "1" : "0"); }

std::string TracefsInstance::last_error() const {
  char* text = tracefs_error_last(handle_);
  std::string error = text != nullptr ? trimmed(text) : "";
  std::free(text);
  // "[ 5051.636833] event filter parse error: error: Field not found", and lines that point at the place.
  error.resize(std::min(error.find('\n'), error.size()));
  const size_t words = error.rfind("error: "), stamp = error.find("] ");
  if (words != error.npos) error.erase(0, words + sizeof "error: " - 1);
  else if (stamp != error.npos) error.erase(0, stamp + 2);
  return error.empty() ? error : ": " + error;
}

result<std::vector<EventInfo>> TracefsInstance::enable(const EventPattern& pattern, const std::string& filter) {
  if (pattern.of_remotes())
    return refuse(std::errc::not_supported,
                  pattern.text() +
                      ": the kernel shows the events of its remotes as text alone, and has no filters and triggers "
                      "for them; record, top, hist and latency read them");
  auto all = RS_TRY(kernel_events());
  std::map<std::string, std::pair<u32, u32>> systems;  // its events, and the selected ones
  std::vector<EventInfo> wanted;
  for (const KernelEvent& event : all) {
    if (!event.remote.empty()) continue;
    auto& [has, wants] = systems[event.system];
    ++has;
    if (!names(pattern, event)) continue;
    ++wants;
    auto info = RS_TRY(kernel_event(event));
    info.enabled = true;
    wanted.push_back(std::move(info));
  }
  if (!filter.empty()) {
    const auto clauses = RS_TRY(filter_clauses(filter));
    for (const EventInfo& event : wanted) {
      const std::string asked = filter_of(clauses, event.system, event.name);
      if (asked.empty()) continue;
      const std::string full = event.system + ":" + event.name, file = "events/" + event.system + "/" + event.name + "/filter";
      auto set = write(file.c_str(), with_quotes(asked, event.format));
      if (!set && set.error().code == std::errc::invalid_argument)
        return refuse(std::errc::invalid_argument, "the kernel does not take the filter \"" + asked + "\" for " + full +
                                                       last_error() + "; ringside list " + full +
                                                       " shows its fields, and 'EVENT: FILTER' filters one of several");
      if (!set) return tl::unexpected<Error>(set.error());
    }
  }
  // A whole system in one write: each switch patches code on all processors.
  for (const auto& [system, counts] : systems) {
    if (counts.second == 0) continue;
    if (counts.first == counts.second) {
      RS_TRY(write(("events/" + system + "/enable").c_str(), "1"));
      continue;
    }
    for (const EventInfo& event : wanted) {
      if (event.system != system) continue;
      RS_TRY(write(("events/" + system + "/" + event.name + "/enable").c_str(), "1"));
    }
  }
  return wanted;
}

result<void> TracefsInstance::record_stacks(const std::vector<EventInfo>& events,
                                            const std::function<bool(const EventInfo&)>& chosen, bool all,
                                            const std::string& filter) {
  if (all) {
    (void)write("options/userstacktrace", "1");  // a kernel may be built without it
    return write("options/stacktrace", "1");
  }
  const auto clauses = RS_TRY(filter_clauses(filter));
  for (const EventInfo& event : events) {
    if (!event.enabled || event.system == "ftrace" || !chosen(event)) continue;
    const std::string asked = filter_of(clauses, event.system, event.name);
    const std::string file = "events/" + event.system + "/" + event.name + "/trigger";
    const std::string condition = asked.empty() ? "" : " if " + with_quotes(asked, event.format);
    RS_TRY(write(file.c_str(), "stacktrace" + condition, true));
  }
  return {};
}

namespace {

constexpr const char* end_of_read = "events/syscalls/sys_exit_read/trigger";

// Before Linux 5.18 it switched the top-level buffer on.
bool traceon_is_of_the_instance() {
  utsname name{};
  uname(&name);
  int major = 0, minor = 0;
  return std::sscanf(name.release, "%d.%d", &major, &minor) == 2 && std::pair(major, minor) >= std::pair(5, 18);
}

}  // namespace

bool TracefsInstance::begin_after_read(i32 number) {
  const std::string trigger = "traceon if common_pid == " + std::to_string(number) + " && ret == 1";
  return traceon_is_of_the_instance() && write(end_of_read, trigger, true);
}

void TracefsInstance::forget_read() { (void)write(end_of_read, "!traceon", true); }

KernelNumbers* TracefsInstance::numbers() {
  if (!World::own().kernel_counts_apart()) return nullptr;
  if (numbers_ == nullptr) numbers_ = KernelNumbers::shared().value_or(nullptr);
  return numbers_.get();
}

result<i32> TracefsInstance::number_of(i32 pid, i32 tid) {
  if (!KernelNumbers::differ()) return tid;
  if (numbers_ == nullptr) numbers_ = RS_TRY(KernelNumbers::shared());
  return numbers_->of(pid, tid);
}

result<void> TracefsInstance::follow_thread(i32 pid, i32 tid, bool also) {
  const i32 number = RS_TRY(number_of(pid, tid));
  RS_TRY(write("options/event-fork", "1"));
  if (traces_functions_) RS_TRY(write("set_ftrace_pid", std::to_string(number), also));
  return write("set_event_pid", std::to_string(number), also);
}

result<void> TracefsInstance::ignore_own() {
  const i32 own = RS_TRY(number_of(getpid(), sys::gettid()));
  return write("set_event_notrace_pid", std::to_string(own), true);
}

result<void> TracefsInstance::follow_none() {
  RS_TRY(ignore_own());
  return write("set_event_pid", std::to_string(RS_TRY(number_of(getpid(), sys::gettid()))));
}

// A thread that is not followed yet may make another one meanwhile: look again until there is none.
result<void> TracefsInstance::follow_process(i32 pid) {
  if (!sys::proc_is_ours())
    return refuse(std::errc::no_such_process, "cannot find process " + std::to_string(pid) +
                                                  ": /proc shows another PID namespace than this one (mount -t proc proc /proc "
                                                  "shows it)");
  std::set<i32> followed;
  for (int round = 0; round < 16; ++round) {
    const size_t before = followed.size();
    for (const i32 tid : numbers_in("/proc/" + std::to_string(pid) + "/task"))
      if (followed.insert(tid).second) RS_TRY(follow_thread(pid, tid, true));
    if (followed.size() == before) break;
  }
  if (followed.empty()) return refuse(std::errc::no_such_process, "there is no process " + std::to_string(pid));
  return {};
}

}  // namespace ringside
