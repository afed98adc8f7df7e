#include "writer/place.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

bool good_name(const std::string& name) {
  if (name.empty() || name.size() > 63 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

// The parts of an instance, in the order in which they are made; then the parts that come later. An instance that was never
// finished has no others.
bool is_part_of_instance(const std::string& name) {
  for (const char* part : {"per_cpu", "events", "set_event", "gate", "instance", "threads", "set_event.new", "saved_cmdlines",
                           "saved_tgids", "files", "serving", "socket", "snapshot"})
    if (name == part) return true;
  return false;
}

constexpr std::string_view being_made = ".new-";

bool is_being_made(const std::string& name, const std::string& as) {
  const size_t at = name.rfind(being_made);
  if (name[0] != '.' || at == std::string::npos || name.size() != at + being_made.size() + 16) return false;
  return name.find_first_not_of("0123456789abcdef", at + being_made.size()) == std::string::npos &&
         (as.empty() || name.compare(1, at - 1, as) == 0);
}

std::string unfinished_name(const std::string& name) {
  u64 random = 0;
  (void)!getrandom(&random, sizeof random, 0);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(random));
  return "." + name + std::string(being_made) + digits;
}

bool is_named(int parent, const std::string& name, int dir) noexcept {
  struct stat st {}, named {};
  return fstat(dir, &st) == 0 && fstatat(parent, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == named.st_dev &&
         st.st_ino == named.st_ino;
}

}  // namespace

const char* const never_finished = " was never finished (the process that made it died or found no space): `ringside rm -f ";

std::string instances_root() {
  if (const char* const given = sys::environment("RINGSIDE_ROOT")) return given;
  if (const char* const runtime = sys::environment("XDG_RUNTIME_DIR")) return std::string(runtime) + "/ringside";
  return "/dev/shm/ringside-" + std::to_string(geteuid());
}

result<std::string> instance_path(const std::string& wanted) {
  if (wanted.find('/') != std::string::npos) {
    if (wanted.size() > 3000) return refuse(std::errc::filename_too_long, "an instance's path is longer than 3,000 bytes");
    return wanted;
  }
  if (!good_name(wanted))
    return refuse(
        std::errc::invalid_argument,
        "'" + wanted + "' is no name for an instance: use 1 to 63 letters, digits, '-', '_' and '.', the first no '.'");
  return instances_root() + "/" + wanted;
}

namespace {
struct flock first_byte(short type) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_len = 1;
  return lock;
}
}  // namespace

InstanceLock::InstanceLock(int dir, int patience_ms) noexcept : fd_(sys::open_owned(dir, "instance", O_RDWR)) {
  struct flock lock = first_byte(F_WRLCK);
  for (int ms = 0; fd_ && !late_ && fcntl(fd_.get(), F_OFD_SETLK, &lock) != 0; ++ms)
    if (ms < patience_ms)
      usleep(1000);
    else
      late_ = true;
}

// A child of fork that ran no handlers has the lock, too: it is given back for all.
InstanceLock::~InstanceLock() {
  struct flock lock = first_byte(F_UNLCK);
  if (fd_ && !late_) fcntl(fd_.get(), F_OFD_SETLK, &lock);
}

result<InstancePlace> place_of_instance(const std::string& wanted, bool make) {
  auto path = RS_TRY(instance_path(wanted));
  InstancePlace where{{}, wanted, path, wanted.find('/') == std::string::npos};
  if (where.in_root) {
    const std::string root = instances_root();
    if (make && mkdir(root.c_str(), 0700) != 0 && errno != EEXIST) return fail(errno, "cannot make the directory " + root);
    where.parent = RS_TRY(sys::open_trusted(root, sys::Role::root));
    return where;
  }
  auto entry = RS_TRY(sys::open_parent(wanted));
  if (entry.name == ".")
    return refuse(std::errc::invalid_argument, wanted + " is no name for an instance: write its path in full");
  where.parent = std::move(entry.dir);
  where.name = std::move(entry.name);
  return where;
}

bool is_instance(int dir) noexcept {
  const sys::Fd fd = sys::open_beneath(dir, "instance", O_RDONLY);
  u64 magic = 0;
  return fd && pread(fd.get(), &magic, sizeof magic, 0) == sizeof magic && magic == instance_magic;
}

bool is_half_made(int dir) {
  if (is_instance(dir)) return false;
  const auto names = sys::names_in(dir);
  return names && std::all_of(names->begin(), names->end(), is_part_of_instance);
}

result<Unfinished> begin_instance(const InstancePlace& where) {
  for (int tries = 0; tries < 100; ++tries) {
    Unfinished made{{}, unfinished_name(where.name)};
    if (mkdirat(where.parent.get(), made.name.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      return fail(errno, "cannot make the instance " + where.path);
    }
    made.dir = sys::open_beneath(where.parent.get(), made.name.c_str(), O_RDONLY | O_DIRECTORY);
    // Another process may have swept it before the lock.
    const bool is_ours = made.dir && (flock(made.dir.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
                         is_named(where.parent.get(), made.name, made.dir.get());
    const auto judged = is_ours ? sys::judge(made.dir.get(), where.path, sys::Role::root) : result<void>();
    if (is_ours && judged) return made;
    (void)unlinkat(where.parent.get(), made.name.c_str(), AT_REMOVEDIR);
    if (!judged) return tl::unexpected(judged.error());
  }
  return fail(EBUSY, "cannot make the instance " + where.path);
}

bool sweep_unfinished(int parent, const std::string& as) {
  bool any = false;
  const auto names = sys::names_in(parent);
  for (const std::string& name : names ? *names : std::vector<std::string>{}) {
    if (!is_being_made(name, as)) continue;
    const sys::Fd dir = sys::open_beneath(parent, name.c_str(), O_RDONLY | O_DIRECTORY);
    if (!dir || !sys::judge(dir.get(), name, sys::Role::root) || flock(dir.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (is_named(parent, name, dir.get())) any = sys::remove_opened(parent, name.c_str(), dir.get()) || any;
  }
  return any;
}

// First it gets a name of that kind: writers find it gone and make nothing more in it, and if this process dies, the next one
// sweeps.
result<void> take_away(const InstancePlace& where, int dir) {
  const int parent = where.parent.get();
  const std::string away = unfinished_name(where.name);
  const sys::Fd held = sys::open_beneath(dir, ".", O_RDONLY | O_DIRECTORY);
  if (!held) return fail(errno, "cannot remove " + where.path);
  (void)flock(held.get(), LOCK_EX | LOCK_NB);  // its maker may have it, and releases it soon: then another sweeper may help
  if (renameat2(parent, where.name.c_str(), parent, away.c_str(), RENAME_NOREPLACE) != 0)
    return fail(errno, "cannot remove " + where.path);
  if (!is_named(parent, away, dir)) {
    (void)renameat2(parent, away.c_str(), parent, where.name.c_str(), RENAME_NOREPLACE);
    return refuse(std::errc::device_or_resource_busy, "cannot remove " + where.path + ": something else has its name by now");
  }
  for (int tries = 0;; ++tries) {
    if (sys::remove_opened(parent, away.c_str(), dir)) return {};
    // Another process was about to make a file.
    if ((errno != ENOTEMPTY && errno != EEXIST) || tries == 100)
      return fail(errno, "cannot remove all of " + where.path + ", " + away + " is left of it");
  }
}

result<sys::Fd> open_instance_directory(const std::string& wanted, sys::Role role) {
  auto path = RS_TRY(instance_path(wanted));
  if (wanted.find('/') != std::string::npos) return sys::open_trusted(path, role);
  auto where = RS_TRY(place_of_instance(wanted, false));
  sys::Fd dir = sys::open_beneath(where.parent.get(), where.name.c_str(), O_PATH | O_DIRECTORY);
  if (!dir) return sys::fail_beneath(errno, "cannot open " + path);
  RS_TRY(sys::judge(dir.get(), path, role));
  return result<sys::Fd>(std::move(dir));
}

result<sys::Region> map_instance(int dir, const std::string& path, bool writable) {
  const std::string file = path + "/instance";
  const sys::Fd fd = sys::open_owned(dir, "instance", writable ? O_RDWR : O_RDONLY);
  const int error = errno;
  if ((fd || error == ENOENT) && is_half_made(dir))
    return refuse(std::errc::invalid_argument, path + never_finished + path + "` removes it");
  if (!fd && error == ENOENT)
    return fail(error, "there is no instance at " + path + " (`ringside list` shows those that exist)");
  if (!fd) return sys::fail_beneath(error, "cannot open " + file);
  auto region = sys::Region::map(fd.get(), instance_file_size, writable, file);
  if (!region) return region;
  const auto& c = *reinterpret_cast<const InstanceControl*>(region->data());
  if (__atomic_load_n(&c.magic, __ATOMIC_ACQUIRE) != instance_magic)
    return refuse(std::errc::invalid_argument, file + " is no instance of ringside");
  if (c.version != instance_version)
    return refuse(std::errc::not_supported, file + " has version " + std::to_string(c.version) +
                                                ", this program knows version " + std::to_string(instance_version));
  if (!geometry_of(c).valid())
    return refuse(std::errc::invalid_argument, file + " names impossible sizes: it was damaged");
  return region;
}

ClockInfo clock_of(const InstanceControl& c) noexcept { return clock_in(c); }

result<std::vector<std::string>> read_patterns(int dir, const char* file) {
  const auto text = sys::read_owned(dir, file);
  if (!text && text.error().code != std::errc::no_such_file_or_directory) return tl::unexpected(text.error());
  std::vector<std::string> patterns;
  std::istringstream lines(text ? *text : "");
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) patterns.push_back(line);
  return patterns;
}

Switches::Switches(const std::vector<std::string>& lines) {
  for (const std::string& line : lines)
    all_.emplace_back(EventPattern(std::string_view(line).substr(line[0] == '!')), line[0] != '!');
}

bool Switches::on(std::string_view system, std::string_view name) const {
  bool is = false;
  for (const auto& [pattern, switches_on] : all_)
    if (pattern.matches(system, name)) is = switches_on;
  return is;
}

void apply_patterns(const std::vector<std::string>& lines, const InstanceWords& words, unsigned char* gate) {
  const Switches switches(lines);
  std::vector<unsigned> bytes(gate_bytes);
  words.each_event([&](u32, EventEntry& e) {
    const u32 on = switches.on(text_in(e.system), text_in(e.name)) ? 1 : 0;
    __atomic_store_n(&e.enabled, on, __ATOMIC_RELEASE);
    if (on != 0) ++bytes[e.gate % gate_bytes];
  });
  for (u32 i = 0; i < gate_bytes; ++i)
    __atomic_store_n(&gate[i], static_cast<unsigned char>(std::min(bytes[i], 255u)), __ATOMIC_RELEASE);
}

bool instance_is_being_made(const std::string& name) {
  const auto where = place_of_instance(name, false);
  const auto names = where ? sys::names_in(where->parent.get()) : result<std::vector<std::string>>(std::vector<std::string>());
  return where && names &&
         std::any_of(names->begin(), names->end(), [&](const std::string& one) { return is_being_made(one, where->name); });
}

}  // namespace ringside
