#include "instance/instance.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "instance/cpu_rings.hpp"
#include "instance/ring_file.hpp"
#include "instance/ring_source.hpp"
#include "schema/format_text.hpp"
#include "sys/beneath.hpp"

namespace ringside {
namespace {

bool good_name(const std::string& name) {
  if (name.empty() || name.size() > 63 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

std::string field_text(const char* text, size_t room) { return std::string(text, strnlen(text, room)); }

result<Geometry> geometry_for(u64 buffer_size, u32 subbuf_size, u32 spares) {
  if (!is_power_of_two(subbuf_size) || subbuf_size < abi::smallest_subbuf || subbuf_size > abi::largest_subbuf)
    return refuse(std::errc::invalid_argument, "a sub-buffer of " + std::to_string(subbuf_size) + " bytes is not possible: use a power of two from 4k to 256k");
  if (buffer_size == 0 || buffer_size > (u64{64} << 30))
    return refuse(std::errc::invalid_argument, "a ring of " + std::to_string(buffer_size) + " bytes is not possible: use 1 byte to 64G");
  const Geometry geometry(subbuf_size, subbufs_for(buffer_size, subbuf_size) + spares, spares);
  if (!geometry.valid())
    return refuse(std::errc::invalid_argument, "a ring of " + std::to_string(buffer_size) + " bytes has more than " + std::to_string(most_subbufs) +
                                                   " sub-buffers of " + std::to_string(subbuf_size) + ": use larger ones");
  return geometry;
}

// Whose rings a new instance has. Refused: those of CPUs are asked for, and something speaks against them.
result<RingsBecause> choose_rings(const InstanceOptions& o, const Geometry& geometry) {
  Rings wanted = o.rings;
  if (const char* say = std::getenv("RINGSIDE_RINGS"); say != nullptr && wanted == Rings::automatic) {
    wanted = std::strcmp(say, "cpu") == 0 ? Rings::cpu : std::strcmp(say, "thread") == 0 ? Rings::thread : Rings::automatic;
    if (wanted == Rings::automatic && *say != 0 && std::strcmp(say, "auto") != 0)
      return refuse(std::errc::invalid_argument, std::string("RINGSIDE_RINGS is \"") + say + "\": use cpu, thread or auto");
  }
  if (wanted == Rings::thread) return RingsBecause::asked;
  RingsBecause because = why_not_cpu_rings(o.clock);
  if (because == RingsBecause::can && o.budget != 0 && geometry.data_size() * possible_cpus() > o.budget) because = RingsBecause::budget;
  if (wanted == Rings::cpu && because != RingsBecause::can)
    return refuse(std::errc::not_supported, std::string("rings of CPUs are not possible, ") + to_string(because) + "; use rings of threads");
  return because;
}

// A quarter of RAM, and of the file system what leaves room for the words around the rings: a page that it cannot give is a
// SIGBUS in the traced program.
u64 default_budget(int dir) {
  struct sysinfo info {};
  sysinfo(&info);
  const u64 memory = std::max<u64>(u64{info.totalram} * info.mem_unit / 4, u64{256} << 20);
  struct statvfs room {};
  return fstatvfs(dir, &room) == 0 ? std::min<u64>(memory, u64{room.f_bavail} * room.f_frsize / 4 * 3) : memory;
}

}  // namespace

std::string Instance::root() {
  if (const char* given = std::getenv("RINGSIDE_ROOT"); given != nullptr && *given != 0) return given;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime != 0) return std::string(runtime) + "/ringside";
  return "/dev/shm/ringside-" + std::to_string(geteuid());
}

result<std::string> instance_path(const std::string& wanted) {
  if (wanted.find('/') != std::string::npos) {
    if (wanted.size() > 3000) return refuse(std::errc::filename_too_long, "an instance's path is longer than 3,000 bytes");
    return wanted;
  }
  if (!good_name(wanted))
    return refuse(std::errc::invalid_argument, "'" + wanted + "' is no name for an instance: use 1 to 63 letters, digits, '-', '_' and '.', the first no '.'");
  return Instance::root() + "/" + wanted;
}

InstanceLock::InstanceLock(int dir) noexcept : fd_(sys::open_owned(dir, "instance", O_RDWR)) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_len = 1;
  // A holder that is stopped must not stop everybody: after 2 s we go on without (what is protected is short and idempotent).
  for (int i = 0; i < 2000 && fd_ && fcntl(fd_.get(), F_OFD_SETLK, &lock) != 0; ++i) usleep(1000);
}

namespace {

// Where an instance is, or is to be.
struct Where {
  sys::Fd parent;
  std::string name, path;
  bool in_root = false;
};

// `make`: the directory of all instances, if it is missing.
result<Where> where_is(const std::string& wanted, bool make) {
  auto path = instance_path(wanted);
  if (!path) return tl::unexpected(path.error());
  Where where{{}, wanted, *path, wanted.find('/') == std::string::npos};
  if (where.in_root) {
    const std::string root = Instance::root();
    if (make && mkdir(root.c_str(), 0700) != 0 && errno != EEXIST) return fail(errno, "cannot make the directory " + root);
    auto parent = sys::open_trusted(root, sys::Role::root);
    if (!parent) return tl::unexpected(parent.error());
    where.parent = std::move(*parent);
    return where;
  }
  auto entry = sys::open_parent(wanted);
  if (!entry) return tl::unexpected(entry.error());
  if (entry->name == ".") return refuse(std::errc::invalid_argument, wanted + " is no name for an instance: write its path in full");
  where.parent = std::move(entry->dir);
  where.name = std::move(entry->name);
  return where;
}

bool is_magic(int dir) noexcept {
  const sys::Fd fd = sys::open_beneath(dir, "instance", O_RDONLY);
  u64 magic = 0;
  return fd && pread(fd.get(), &magic, sizeof magic, 0) == sizeof magic && magic == instance_magic;
}

// What an instance is made of, in the order in which it is made; then what comes later. Nothing else may be in one that was never finished.
bool is_part_of_instance(const std::string& name) {
  for (const char* part : {"per_cpu", "events", "set_event", "gate", "instance", "threads", "set_event.new", "saved_cmdlines", "saved_tgids", "serving", "socket", "snapshot"})
    if (name == part) return true;
  return false;
}

// Left by a maker that died, or ran out of space, before instances were made under another name; or by somebody who cut its file.
bool is_half_made(int dir) {
  if (is_magic(dir)) return false;
  const auto names = sys::names_in(dir);
  return names && std::all_of(names->begin(), names->end(), is_part_of_instance);
}

// An instance is made under another name, locked by its maker, and gets its own when it is whole.
constexpr std::string_view being_made = ".new-";

bool is_being_made(const std::string& name, const std::string& as) {
  const size_t at = name.rfind(being_made);
  if (name[0] != '.' || at == std::string::npos || name.size() != at + being_made.size() + 16) return false;
  return name.find_first_not_of("0123456789abcdef", at + being_made.size()) == std::string::npos && (as.empty() || name.compare(1, at - 1, as) == 0);
}

std::string unfinished_name(const std::string& name) {
  u64 random = 0;
  (void)!getrandom(&random, sizeof random, 0);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(random));
  return "." + name + std::string(being_made) + digits;
}

struct Unfinished {
  sys::Fd dir;  // the lock is held as long as this is open
  std::string name;
};

bool is_named(int parent, const std::string& name, int dir) noexcept {
  struct stat st {}, named {};
  return fstat(dir, &st) == 0 && fstatat(parent, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == named.st_dev && st.st_ino == named.st_ino;
}

result<Unfinished> begin_instance(const Where& where) {
  for (int tries = 0; tries < 100; ++tries) {
    Unfinished made{{}, unfinished_name(where.name)};
    if (mkdirat(where.parent.get(), made.name.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      return fail(errno, "cannot make the instance " + where.path);
    }
    made.dir = sys::open_beneath(where.parent.get(), made.name.c_str(), O_RDONLY | O_DIRECTORY);
    // Somebody who sweeps may have come before the lock.
    if (!made.dir) continue;
    if (flock(made.dir.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    if (!is_named(where.parent.get(), made.name, made.dir.get())) continue;
    if (auto ours = sys::judge(made.dir.get(), where.path, sys::Role::root); !ours) return tl::unexpected(ours.error());
    return made;
  }
  return fail(EBUSY, "cannot make the instance " + where.path);
}

// Removes what makers and removers left that died: their locks are free, and the names are still those that they gave. as: of this name only. Was
// there any?
bool sweep(int parent, const std::string& as) {
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

// First it gets a name of that kind: whoever writes there finds it gone and makes nothing more in it, and if this process dies, the next one sweeps.
result<void> take_away(const Where& where, int dir) {
  const int parent = where.parent.get();
  const std::string away = unfinished_name(where.name);
  const sys::Fd held = sys::open_beneath(dir, ".", O_RDONLY | O_DIRECTORY);
  if (!held) return fail(errno, "cannot remove " + where.path);
  (void)flock(held.get(), LOCK_EX | LOCK_NB);  // its maker may still have it, and lets go soon: then somebody who sweeps may help
  if (renameat2(parent, where.name.c_str(), parent, away.c_str(), RENAME_NOREPLACE) != 0) return fail(errno, "cannot remove " + where.path);
  if (!is_named(parent, away, dir)) {
    (void)renameat2(parent, away.c_str(), parent, where.name.c_str(), RENAME_NOREPLACE);
    return refuse(std::errc::device_or_resource_busy, "cannot remove " + where.path + ": something else has its name by now");
  }
  for (int tries = 0;; ++tries) {
    if (sys::remove_opened(parent, away.c_str(), dir)) return {};
    // Somebody was about to make a file.
    if ((errno != ENOTEMPTY && errno != EEXIST) || tries == 100) return fail(errno, "cannot remove all of " + where.path + ", " + away + " is left of it");
  }
}

const char* const never_finished = " was never finished (whoever made it died or found no space): `ringside rm -f ";

}  // namespace

result<sys::Fd> open_instance_directory(const std::string& wanted) {
  auto path = instance_path(wanted);
  if (!path) return tl::unexpected(path.error());
  if (wanted.find('/') != std::string::npos) return sys::open_trusted(*path, sys::Role::instance);
  auto where = where_is(wanted, false);
  if (!where) return tl::unexpected(where.error());
  sys::Fd dir = sys::open_beneath(where->parent.get(), where->name.c_str(), O_PATH | O_DIRECTORY);
  if (!dir) return sys::fail_beneath(errno, "cannot open " + *path);
  if (auto good = sys::judge(dir.get(), *path, sys::Role::instance); !good) return tl::unexpected(good.error());
  return result<sys::Fd>(std::move(dir));
}

result<sys::Region> map_instance(int dir, const std::string& path, bool writable) {
  const std::string file = path + "/instance";
  const sys::Fd fd = sys::open_owned(dir, "instance", writable ? O_RDWR : O_RDONLY);
  const int error = errno;
  if ((fd || error == ENOENT) && is_half_made(dir)) return refuse(std::errc::invalid_argument, path + never_finished + path + "` removes it");
  if (!fd && error == ENOENT) return fail(error, "there is no instance at " + path + " (`ringside list` shows those that exist)");
  if (!fd) return sys::fail_beneath(error, "cannot open " + file);
  auto region = sys::Region::map(fd.get(), instance_file_size, writable, file);
  if (!region) return region;
  const auto& c = *reinterpret_cast<const InstanceControl*>(region->data());
  if (__atomic_load_n(&c.magic, __ATOMIC_ACQUIRE) != instance_magic) return refuse(std::errc::invalid_argument, file + " is no instance of ringside");
  if (c.version != instance_version)
    return refuse(std::errc::not_supported, file + " has version " + std::to_string(c.version) + ", this program knows version " +
                                                std::to_string(instance_version));
  if (!geometry_of(c).valid())
    return refuse(std::errc::invalid_argument, file + " names impossible sizes: it was damaged");
  return region;
}

ClockInfo clock_of(const InstanceControl& c) noexcept {
  ClockInfo info;
  info.kind = c.clock_kind <= 2 ? static_cast<ClockKind>(c.clock_kind) : ClockKind::mono;
  if (info.kind != ClockKind::tsc) return info;
  info.mult = c.clock_mult;
  info.shift = c.clock_shift & 63;
  info.base_ticks = c.clock_base_ticks;
  info.base_ns = c.clock_base_ns;
  return info;
}

result<std::vector<std::string>> read_patterns(int dir) {
  const auto text = sys::read_owned(dir, "set_event");
  if (!text && text.error().code != std::errc::no_such_file_or_directory) return tl::unexpected(text.error());
  std::vector<std::string> patterns;
  std::istringstream lines(text ? *text : "");
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) patterns.push_back(line);
  return patterns;
}

void apply_patterns(const std::vector<std::string>& lines, const InstanceWords& words, unsigned char* gate) {
  std::vector<std::pair<EventPattern, bool>> patterns;
  for (const std::string& line : lines) patterns.emplace_back(EventPattern(std::string_view(line).substr(line[0] == '!')), line[0] != '!');
  std::vector<unsigned> bytes(gate_bytes);
  const u64 n = std::min<u64>(__atomic_load_n(&words.control->nr_events, __ATOMIC_ACQUIRE) + 1, most_events);
  for (u32 id = 1; id <= n; ++id) {
    EventEntry& e = words.event(id);
    if (__atomic_load_n(&e.known, __ATOMIC_ACQUIRE) == 0) continue;
    const std::string system = field_text(e.system, sizeof e.system), name = field_text(e.name, sizeof e.name);
    u32 on = 0;
    for (const auto& [pattern, enables] : patterns)
      if (pattern.matches(system, name)) on = enables ? 1 : 0;
    __atomic_store_n(&e.enabled, on, __ATOMIC_RELEASE);
    if (on != 0) ++bytes[e.gate % gate_bytes];
  }
  for (u32 i = 0; i < gate_bytes; ++i) __atomic_store_n(&gate[i], static_cast<unsigned char>(std::min(bytes[i], 255u)), __ATOMIC_RELEASE);
}

namespace {

// A new ring of a CPU in this folder of `dir`.
bool make_cpu_ring(int dir, const std::string& folder, const InstanceControl& c, const Geometry& geometry) {
  MappedRing made = map_ring_in(dir, folder.c_str(), geometry, Files::ours);
  if (!made) return false;
  made.ring.kind = RingKind::cpu;
  made.ring.control->mode = c.mode;
  made.ring.control->gate = c.tracing_off != 0 ? gate_off : 0;
  // Readers look at the first sub-buffer before anybody has written to it: where memory is short they find a page.
  const bool backed = sys::populate(made.ring.subbuf(place_of(made.ring.control->commit).id), abi::header_size);
  if (backed) label_ring(made.ring);
  unmap_ring(made);
  if (!backed) errno = ENOSPC;
  return backed;
}

std::string folder_of(u32 ring) { return "per_cpu/cpu" + std::to_string(ring) + "/"; }

void describe_cpu_ring(RingEntry& entry, u32 cpu, u32 before, const Geometry& geometry) {
  entry.pid = 0;
  entry.tid = ~before;
  entry.of = cpu;
  entry.tid_start = 0;
  std::memset(entry.task, 0, sizeof entry.task);
  std::memset(entry.process, 0, sizeof entry.process);
  const std::string name = "cpu" + std::to_string(cpu);
  std::memcpy(entry.task, name.data(), std::min(name.size(), sizeof entry.task));
  __atomic_store_n(&entry.sizes, short_sizes(geometry), __ATOMIC_RELAXED);
}
void introduce_cpu_ring(RingEntry& entry, RingState state) { __atomic_store_n(&entry.state, pack_state(state, entry.tid), __ATOMIC_SEQ_CST); }

// A number for one more ring: of one that gave its memory back, or a new one; most_rings: there is none.
u32 claim_number(const InstanceWords& words, Member who) {
  const u64 made = std::min<u64>(__atomic_load_n(&words.control->nr_rings, __ATOMIC_ACQUIRE), most_rings);
  for (u32 n = 0; n < made; ++n) {
    u64 state = __atomic_load_n(&words.ring(n).state, __ATOMIC_ACQUIRE);
    if (state_of(state) == RingState::empty && __atomic_compare_exchange_n(&words.ring(n).state, &state, claim_of(who, false), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return n;
  }
  return claim_new_ring(words, who);
}

result<void> make_cpu_rings(int dir, const std::string& path, const InstanceWords& words, const Geometry& geometry) {
  const u32 nr = possible_cpus();
  if (!sys::populate(&words.ring(0), nr * sizeof(RingEntry))) return fail(ENOSPC, "cannot make rings in " + path);
  for (u32 cpu = 0; cpu < nr; ++cpu) {
    if (!make_cpu_ring(dir, folder_of(cpu), *words.control, geometry)) return fail(errno, "cannot make the ring of CPU " + std::to_string(cpu) + " in " + path);
    describe_cpu_ring(words.ring(cpu), cpu, 0, geometry);
    introduce_cpu_ring(words.ring(cpu), RingState::live);
  }
  words.control->cpu_rings = nr;
  words.control->nr_rings = nr;
  return {};
}

// Into an empty directory. `path`: what it will be called. Answers the members, of whom this process is the maker.
result<std::shared_ptr<Members>> fill_instance(int dir, const std::string& path, const InstanceOptions& o, RingsBecause because) {
  for (const char* folder : {"per_cpu", "events"})
    if (!sys::make_owned_directory(dir, folder)) return fail(errno, "cannot make " + path + "/" + folder);
  std::string patterns;
  auto parsed = EventPatterns::parse(o.events);
  if (!parsed) return tl::unexpected(parsed.error());
  for (const EventPattern& one : *parsed)
    for (const std::string& line : one.in_full()) patterns += line + "\n";
  for (auto& [file, text] : {std::pair<const char*, std::string>{"set_event", patterns},
                             {"events/header_page", header_page_text(o.subbuf_size)},
                             {"events/header_event", std::string(header_event_text())},
                             {"gate", std::string(gate_bytes, '\0')}})
    if (auto done = sys::write_owned(dir, file, text); !done) return tl::unexpected(done.error());
  const std::string file = path + "/instance";
  const sys::Fd fd = sys::open_owned(dir, "instance", O_RDWR | O_CREAT);
  if (!fd) return fail(errno, "cannot make " + file);
  if (ftruncate(fd.get(), static_cast<off_t>(instance_file_size)) != 0) return fail(errno, "cannot size " + file);
  auto region = sys::Region::map(fd.get(), instance_file_size, true, file);
  if (!region) return tl::unexpected(region.error());
  if (!sys::populate(region->data(), sizeof(InstanceControl))) return fail(ENOSPC, "cannot make " + file);
  auto& c = *reinterpret_cast<InstanceControl*>(region->data());
  const ClockInfo clock = calibrate(o.clock);
  c.version = instance_version;
  c.header_bytes = sizeof c;
  const u32 spares = o.spares + (because == RingsBecause::can ? 1 : 0);  // one for Reader::give_back
  c.sizes = pack_sizes(must(geometry_for(o.buffer_size, o.subbuf_size, spares)));
  c.spares = spares;
  c.mode = o.overwrite ? 0 : 1;
  c.clock_kind = static_cast<u32>(clock.kind);
  c.clock_mult = clock.mult;
  c.clock_shift = clock.shift;
  c.clock_base_ticks = clock.base_ticks;
  c.clock_base_ns = clock.base_ns;
  c.budget = o.budget != 0 ? o.budget : default_budget(dir);
  c.pid_namespace = sys::pid_namespace();
  c.boot = sys::boot_hash();
  c.created_ns = sys::now_ns();
  c.rings_because = static_cast<u32>(because);
  // Without it threads of CPUs' rings and of other PID namespaces have no names; beyond RLIMIT_FSIZE there can be none.
  const sys::Fd threads = sys::open_owned(dir, "threads", O_RDWR | O_CREAT);
  if (threads && sys::may_grow_to(threads_file_size)) (void)!ftruncate(threads.get(), static_cast<off_t>(threads_file_size));
  if (because == RingsBecause::can)
    if (auto made = make_cpu_rings(dir, path, {&c}, geometry_of(c)); !made) return tl::unexpected(made.error());
  auto members = Members::open(dir);
  if (!members) return members;
  c.creator = (*members)->join(role::maker);
  __atomic_store_n(&c.magic, instance_magic, __ATOMIC_RELEASE);
  return members;
}

}  // namespace

result<std::unique_ptr<Instance>> Instance::create(const InstanceOptions& o) {
  auto path = instance_path(o.name);
  if (!path) return tl::unexpected(path.error());
  const auto sized = geometry_for(o.buffer_size, o.subbuf_size, o.spares);
  if (!sized) return tl::unexpected(sized.error());
  const Geometry geometry = *sized;
  if (o.clock == ClockKind::tsc && !tsc_is_invariant())
    return refuse(std::errc::not_supported, "the time stamp counter of this machine is not invariant: use the clock mono");
  const auto because = choose_rings(o, geometry);
  if (!because) return tl::unexpected(because.error());
  auto where = where_is(o.name, true);
  if (!where) return tl::unexpected(where.error());
  const int parent = where->parent.get();
  sweep(parent, where->in_root ? "" : where->name);
  const auto exists = [&]() -> tl::unexpected<Error> {
    const sys::Fd there = sys::open_beneath(parent, where->name.c_str(), O_PATH | O_DIRECTORY);
    if (there && is_half_made(there.get())) return fail(EEXIST, "the instance " + o.name + never_finished + o.name + "` removes it");
    return fail(EEXIST, "the instance " + o.name + " exists (`ringside rm " + o.name + "` removes it)");
  };
  struct stat st {};
  if (fstatat(parent, where->name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return exists();
  auto unfinished = begin_instance(*where);
  if (!unfinished) return tl::unexpected(unfinished.error());
  const auto fill = [&]() -> result<std::unique_ptr<Instance>> {
    auto members = fill_instance(unfinished->dir.get(), where->path, o, *because);
    if (!members) return tl::unexpected(members.error());
    sys::Fd dir = sys::open_beneath(unfinished->dir.get(), ".", O_PATH | O_DIRECTORY);
    if (!dir) return fail(errno, "cannot open " + *path);
    auto instance = open(*path, std::move(dir), std::move(*members));
    if (!instance) return instance;
    if (renameat2(parent, unfinished->name.c_str(), parent, where->name.c_str(), RENAME_NOREPLACE) == 0) return instance;
    if (errno == EEXIST) return exists();
    return fail(errno, "cannot make the instance " + *path);
  };
  auto made = fill();
  if (made) return made;
  (void)sys::remove_opened(parent, unfinished->name.c_str(), unfinished->dir.get());
  return made;
}

result<std::unique_ptr<Instance>> Instance::open(const std::string& wanted) {
  auto path = instance_path(wanted);
  if (!path) return tl::unexpected(path.error());
  auto dir = open_instance_directory(wanted);
  if (!dir && dir.error().code == std::errc::no_such_file_or_directory)
    return fail(ENOENT, "there is no instance at " + *path + " (`ringside list` shows those that exist)");
  if (!dir) return tl::unexpected(dir.error());
  return open(*path, std::move(*dir), nullptr);
}

result<std::unique_ptr<Instance>> Instance::open(const std::string& path, sys::Fd dir, std::shared_ptr<Members> members) {
  sys::guard_mappings();
  auto region = map_instance(dir.get(), path, true);
  if (!region) return tl::unexpected(region.error());
  if (members == nullptr) {
    auto opened = Members::open(dir.get());
    if (!opened) return tl::unexpected(opened.error());
    members = std::move(*opened);
  }
  std::unique_ptr<Instance> instance(new Instance(std::move(*region), std::move(dir), std::move(members)));
  instance->path_ = path;
  instance->name_ = path.substr(path.find_last_of('/') + 1);
  instance->clock_ = clock_of(*instance->words_.control);
  instance->threads_ = sys::open_owned(instance->dir_.get(), "threads", O_RDONLY);
  instance->pid_namespace_ = instance->control().boot == sys::boot_hash() ? sys::pid_namespace() : 0;
  return instance;
}

Instance::~Instance() = default;

result<std::vector<std::string>> Instance::find(bool half_made) {
  std::vector<std::string> found;
  const auto parent = sys::open_trusted(root(), sys::Role::root);
  if (!parent && parent.error().code == std::errc::no_such_file_or_directory) return found;
  if (!parent) return tl::unexpected(parent.error());
  sweep(parent->get(), "");
  auto names = sys::names_in(parent->get());
  if (!names) return tl::unexpected(names.error());
  for (std::string& name : *names) {
    const sys::Fd dir = name[0] != '.' ? sys::open_beneath(parent->get(), name.c_str(), O_PATH | O_DIRECTORY) : sys::Fd();
    struct stat st {};
    if (dir && (half_made ? is_half_made(dir.get()) : fstatat(dir.get(), "instance", &st, AT_SYMLINK_NOFOLLOW) == 0)) found.push_back(std::move(name));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> Instance::list() { return find(false).value_or(std::vector<std::string>{}); }

namespace {

// Is the server there that counts who maps the rings? What one that was killed has counted is nobody.
bool is_served(int dir) {
  const sys::Fd fd = sys::open_owned(dir, "serving", O_RDWR);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  return fd && fcntl(fd.get(), F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

}  // namespace

result<void> Instance::remove(const std::string& name, bool force) {
  auto where = where_is(name, false);
  if (!where && where.error().code == std::errc::no_such_file_or_directory) return fail(ENOENT, "there is no instance " + name);
  if (!where) return tl::unexpected(where.error());
  const int parent = where->parent.get();
  const bool swept = sweep(parent, where->name);  // it may have been removed but for that
  const sys::Fd dir = sys::open_beneath(parent, where->name.c_str(), O_PATH | O_DIRECTORY);
  if (!dir && errno == ENOENT) return swept ? result<void>() : fail(ENOENT, "there is no instance " + name);
  if (!dir) return sys::fail_beneath(errno, "cannot remove " + where->path);
  if (auto good = sys::judge(dir.get(), where->path, sys::Role::instance); !good) return good;
  if (!is_magic(dir.get())) {
    if (!is_half_made(dir.get())) return fail(ENOENT, "there is no instance " + name);
    if (!force) return refuse(std::errc::no_such_file_or_directory, "the instance " + name + never_finished + name + "` removes it");
  }
  if (!force) {
    if (auto opened = open(name); opened) {
      if ((*opened)->has_writers())
        return refuse(std::errc::device_or_resource_busy, "the instance " + name + " is being written to (--force removes it all the same)");
      if (auto free = (*opened)->unmapped("it cannot be removed"); !free) return free;
    }
  }
  return take_away(*where, dir.get());
}

std::vector<EventInfo> Instance::events() const {
  std::vector<EventInfo> all;
  const u64 n = std::min<u64>(__atomic_load_n(&words_.control->nr_events, __ATOMIC_ACQUIRE), most_events);
  for (u32 id = 1; id <= n; ++id) {
    const EventEntry& e = words_.event(id);
    if (__atomic_load_n(&e.known, __ATOMIC_ACQUIRE) == 0) continue;
    EventInfo info{static_cast<u16>(abi::event_id(id)), field_text(e.system, sizeof e.system), field_text(e.name, sizeof e.name), "",
                   __atomic_load_n(&e.enabled, __ATOMIC_RELAXED) != 0};
    if (auto text = read("events/" + info.system + "/" + info.name + "/format")) info.format = std::move(*text);
    all.push_back(std::move(info));
  }
  return all;
}

namespace {

// Behind all others, without the earlier lines that it makes void: whoever switches an event on and off all day leaves one line.
result<void> add_pattern(int dir, const std::string& pattern, bool on) {
  const std::string line = (on ? "" : "!") + pattern + "\n";
  auto before = sys::read_owned(dir, "set_event");
  if (!before && before.error().code != std::errc::no_such_file_or_directory) return tl::unexpected(before.error());
  std::string kept;
  std::istringstream lines(before ? *before : "");
  for (std::string one; std::getline(lines, one);)
    if (pattern != "*:*" && !one.empty() && one.substr(one[0] == '!' ? 1 : 0) != pattern) kept += one + "\n";
  if (before && kept.size() == before->size()) return sys::write_owned(dir, "set_event", line, true);
  if (auto done = sys::write_owned(dir, "set_event.new", kept + line); !done) return done;
  if (renameat(dir, "set_event.new", dir, "set_event") != 0) return fail(errno, "cannot replace set_event");
  return {};
}

}  // namespace

result<std::string> Instance::read(const std::string& file) const { return sys::read_owned(dir_.get(), file); }

result<u32> Instance::enable(const EventPatterns& patterns, bool on) {
  for (const EventPattern& one : patterns)
    if (one.text().front() == '!' || one.text().find('\n') != std::string::npos)
      return refuse(std::errc::invalid_argument, "an event whose name begins with ! or has a line break in it cannot be switched");
  const InstanceLock lock(dir_.get());
  for (const EventPattern& one : patterns)
    for (const std::string& line : one.in_full())
      if (auto done = add_pattern(dir_.get(), line, on); !done) return tl::unexpected(done.error());
  const sys::Fd fd = sys::open_owned(dir_.get(), "gate", O_RDWR);
  if (!fd) return sys::fail_beneath(errno, "cannot open " + path_ + "/gate");
  auto gate = sys::Region::map(fd.get(), gate_bytes, true, path_ + "/gate");
  if (!gate) return tl::unexpected(gate.error());
  auto lines = read_patterns(dir_.get());
  if (!lines) return tl::unexpected(lines.error());
  apply_patterns(*lines, words_, gate->data());
  u32 matched = 0;
  for (const EventInfo& e : events()) matched += patterns.matches(e.system, e.name);
  return matched;
}

result<u32> Instance::enable(const std::string& list, bool on) {
  auto patterns = EventPatterns::parse(list);
  if (!patterns) return tl::unexpected(patterns.error());
  return enable(*patterns, on);
}

namespace {
// Somebody gave its memory back between two looks.
bool is_gone(const Error& error) { return error.code == std::errc::no_such_file_or_directory; }
}  // namespace

std::vector<RingInfo> Instance::rings() {
  std::vector<RingInfo> all;
  const u64 n = std::min<u64>(__atomic_load_n(&words_.control->nr_rings, __ATOMIC_ACQUIRE), most_rings);
  for (u32 i = 0; i < n; ++i) {
    RingEntry& entry = words_.ring(i);
    const RingState state = members_->judge().settle(entry);
    if (state == RingState::never || state == RingState::empty || state == RingState::busy) continue;
    RingInfo info;
    info.name = name_of(i, entry);
    locate(info.name);
    info.live = state == RingState::live;
    if (auto ring = look(i)) {
      info.counters = ring->counters();
      info.corrupt = __atomic_load_n(&ring->ring().control->corrupt, __ATOMIC_RELAXED) != 0;
    } else if (is_gone(ring.error()) && state_of(__atomic_load_n(&entry.state, __ATOMIC_ACQUIRE)) != state) {
      continue;
    } else {
      info.problem = ring.error().sentence;
    }
    all.push_back(std::move(info));
  }
  return all;
}

result<RingView> Instance::look(u32 ring) const { return look_at(dir_.get(), ring, members_); }

std::vector<RingName> Instance::ring_names() {
  std::vector<RingName> all;
  const u64 n = std::min<u64>(__atomic_load_n(&words_.control->nr_rings, __ATOMIC_ACQUIRE), most_rings);
  for (u32 i = 0; i < n; ++i) {
    RingState state = state_of(__atomic_load_n(&words_.ring(i).state, __ATOMIC_ACQUIRE));
    if (state == RingState::busy) state = members_->judge().settle(words_.ring(i));  // its claimer may be dead
    if (state != RingState::live && state != RingState::retired) continue;
    all.push_back(name_of(i, words_.ring(i)));
    locate(all.back());
  }
  return all;
}

Presence Instance::writers() {
  const Judge judge = members_->judge();
  if (judge.any(role::writer)) return Presence::some;
  const u64 n = std::min<u64>(__atomic_load_n(&words_.control->nr_rings, __ATOMIC_ACQUIRE), most_rings);
  Presence found = (words_.control->impaired & lacks::seat) != 0 ? Presence::unknown : Presence::none;
  for (u32 i = 0; i < n; ++i) {
    RingEntry& entry = words_.ring(i);
    if (judge.settle(entry) != RingState::live || is_of_cpu(entry)) continue;
    if (entry.of != nobody) return Presence::some;
    found = Presence::unknown;
  }
  return found;
}

bool Instance::maker_lives() const { return !members_->judge().dead(static_cast<Member>(words_.control->creator)); }

namespace {

// The entries of a table that ends at `end`, in a sparse file: only those that were written.
template <class Entry, class Use>
void each_written(int fd, u64 table, u64 end, const Use& use) {
  std::vector<Entry> entries(8192 / sizeof(Entry));
  constexpr u64 size = sizeof(Entry);
  for (u64 at = table; at < end;) {
    const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    const off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    if (hole < 0) return;
    const u64 until = std::min(static_cast<u64>(hole), end);
    at = std::max(at, static_cast<u64>(data));
    for (u64 from = table + (at - table) / size * size; from < until;) {
      const ssize_t got = pread(fd, entries.data(), std::min(entries.size() * size, end - from), static_cast<off_t>(from));
      if (got < static_cast<ssize_t>(size)) return;
      const u64 whole = static_cast<u64>(got) / size;
      for (u64 n = 0; n < whole; ++n) use(entries[n]);
      from += whole * size;
    }
    at = until;
  }
}

RingName name_of(const ForeignEntry& e) {
  RingName name{0, static_cast<i32>(e.process), static_cast<i32>(e.number), field_text(e.task, 16), field_text(e.process_name, 16)};
  name.elsewhere.tid = static_cast<i32>(e.tid);
  name.elsewhere.pid = static_cast<i32>(e.pid);
  name.elsewhere.pid_namespace = e.pid_namespace;
  return name;
}

}  // namespace

void Instance::locate(RingName& thread) const {
  if (thread.cpu >= 0 || thread.tid <= 0) return;
  Elsewhere& e = thread.elsewhere;
  PidMap::Start start;
  if (is_foreign(thread.tid)) {
    ForeignEntry entry{};
    const u64 at = foreign_table_at + foreign_place(static_cast<u32>(thread.tid)) * sizeof entry;
    if (pread(threads_.get(), &entry, sizeof entry, static_cast<off_t>(at)) != sizeof entry || entry.number != static_cast<u32>(thread.tid)) return;
    e = name_of(entry).elsewhere;
    start = {entry.time_namespace, entry.start};
  } else if (const u64 there = control().pid_namespace; pid_namespace_ == 0 || there != pid_namespace_) {
    e.tid = thread.tid;
    e.pid = thread.pid;
    e.pid_namespace = there;
  } else {
    return;
  }
  if (pid_namespace_ == 0 || e.pid_namespace == 0) return;
  if (e.pid_namespace == pid_namespace_) {
    e.here_tid = e.tid;
    e.here_pid = e.pid;
  } else {
    pids_->find(e, start, threads_seen());
  }
}

std::vector<RingName> Instance::threads() const {
  std::vector<RingName> all;
  each_written<ThreadEntry>(threads_.get(), 0, foreign_table_at, [&](const ThreadEntry& e) {
    if (e.tid != 0) all.push_back({0, static_cast<i32>(e.pid), static_cast<i32>(e.tid), field_text(e.task, 16), field_text(e.process, 16)});
  });
  each_written<ForeignEntry>(threads_.get(), foreign_table_at, threads_file_size, [&](const ForeignEntry& e) {
    if (e.number != 0) all.push_back(name_of(e));
  });
  for (RingName& thread : all) locate(thread);
  return all;
}

std::vector<std::pair<i32, std::string>> Instance::tasks() const {
  auto all = sys::cmdlines_of(read("saved_cmdlines"));
  for (RingName& thread : threads()) all.emplace_back(thread.tid, std::move(thread.task));
  return all;
}

result<std::unique_ptr<Source>> Instance::source(u32 ring) { return open_ring(*this, dir_.get(), words_, ring, members_, true); }
result<std::unique_ptr<Source>> Instance::peek(u32 ring) { return open_ring(*this, dir_.get(), words_, ring, members_, false); }

bool Instance::tracing_on() const { return __atomic_load_n(&words_.control->tracing_off, __ATOMIC_ACQUIRE) == 0; }

result<void> Instance::tracing(bool on) {
  __atomic_store_n(&words_.control->tracing_off, u64{on ? 0u : 1u}, __ATOMIC_SEQ_CST);  // before the looks: see introduce
  for (const RingInfo& r : rings())
    if (auto ring = look(r.name.ring)) ring->gate(on);
  return {};
}

void Instance::overwrite(bool on) {
  const u64 mode = on ? 0 : 1;
  __atomic_store_n(&words_.control->mode, static_cast<u32>(mode), __ATOMIC_SEQ_CST);  // before the looks: see introduce
  for (const RingInfo& r : rings())
    if (auto ring = look(r.name.ring); ring && r.live)
      __atomic_store_n(&ring->ring().control->mode, mode, __ATOMIC_RELEASE);
}

result<void> Instance::reset() {
  for (const RingInfo& r : rings()) {
    auto ring = look(r.name.ring);
    if (!ring && is_gone(ring.error())) continue;
    if (!ring) return tl::unexpected(ring.error());
    if (auto done = ring->reset(); !done && !ring->is_another()) return done;
  }
  words_.control->past = {};
  words_.control->refused = 0;
  return {};
}

result<void> Instance::unmapped(const char* what) {
  for (const RingInfo& r : rings())
    if (auto ring = look(r.name.ring); ring && ring->mapped() && is_served(dir_.get()))
      return refuse(std::errc::device_or_resource_busy, "ring " + std::to_string(r.name.ring) + " is mapped by a reader: " + what + " before the reader is gone");
  return {};
}

result<void> Instance::resize(u64 buffer_size, u32 subbuf_size) {
  const auto sized = geometry_for(buffer_size, subbuf_size, words_.control->spares);
  if (!sized) return tl::unexpected(sized.error());
  if (*sized == geometry()) return {};
  const InstanceLock lock(dir_.get());
  if (auto free = unmapped("it cannot be resized"); !free) return free;
  __atomic_store_n(&words_.control->sizes, pack_sizes(*sized), __ATOMIC_SEQ_CST);  // before the looks: see introduce
  for (const RingInfo& r : rings()) {
    if (!r.live) continue;
    if (r.name.cpu < 0) {
      if (auto ring = look(r.name.ring)) ring->give_up();
      continue;
    }
    const Member who = members_->join(role::reader);
    const u32 number = claim_number(words_, who);
    if (number >= most_rings) return refuse(std::errc::no_space_on_device, "the instance has " + std::to_string(most_rings) + " rings with unread events: read them first");
    const auto cpu = static_cast<u32>(r.name.cpu);
    // Who is killed from here on leaves a retired ring: nothing of the events in it is forgotten.
    RingEntry& aside = words_.ring(number);
    describe_cpu_ring(aside, cpu, ~static_cast<u32>(r.name.tid), *sized);
    __atomic_store_n(&aside.state, claim_of(who, true), __ATOMIC_RELEASE);
    if (auto done = renew(cpu, *sized, "per_cpu", number); !done) {
      __atomic_store_n(&aside.state, pack_state(RingState::empty, 0), __ATOMIC_RELEASE);
      return done;
    }
    introduce_cpu_ring(aside, RingState::retired);
  }
  return {};
}

result<void> Instance::renew(u32 cpu, const Geometry& geometry, const char* to, u32 number) {
  const std::string fresh = ".fresh" + std::to_string(getpid()), place = "cpu" + std::to_string(cpu), name = "cpu" + std::to_string(number);
  auto old = look_at(dir_.get(), cpu, members_);
  if (!old) return tl::unexpected(old.error());
  if (!make_cpu_ring(dir_.get(), "per_cpu/" + fresh + "/", *words_.control, geometry)) return fail(errno, "cannot make a ring of CPU " + std::to_string(cpu));
  const sys::Fd rings = sys::open_owned(dir_.get(), "per_cpu", O_PATH | O_DIRECTORY), aside = sys::open_owned(dir_.get(), to, O_PATH | O_DIRECTORY);
  if (!rings || !aside) return sys::fail_beneath(errno, "cannot open " + path_ + "/" + to);
  // A writer that maps its CPU's ring finds one or the other.
  const bool there = faccessat(aside.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;  // a ring that gave its memory back
  if (renameat2(rings.get(), fresh.c_str(), rings.get(), place.c_str(), RENAME_EXCHANGE) != 0 ||
      renameat2(rings.get(), fresh.c_str(), aside.get(), name.c_str(), there ? RENAME_EXCHANGE : 0) != 0)
    return fail(errno, "cannot put a fresh ring in the place of " + path_ + "/per_cpu/" + place);
  if (there) (void)sys::remove_beneath(rings.get(), fresh.c_str());
  RingEntry& entry = words_.ring(cpu);
  describe_cpu_ring(entry, cpu, ~entry.tid + 1, geometry);
  introduce_cpu_ring(entry, RingState::live);
  old->give_up();  // from here on its writers take the fresh one; what they were at lands in the old one
  return {};
}

namespace {

// A format never changes: the snapshot's are hard links.
result<void> link_formats(int from, int to, const std::vector<EventInfo>& events) {
  const auto link = [&](const std::string& folder, const char* file) -> result<void> {
    const sys::Fd here = sys::open_owned(from, folder.c_str(), O_PATH | O_DIRECTORY), there = sys::open_owned(to, folder.c_str(), O_PATH | O_DIRECTORY);
    if (linkat(here.get(), file, there.get(), file, 0) == 0 || errno == ENOENT) return {};
    return sys::copy_owned(here.get(), file, there.get(), file);
  };
  for (const char* file : {"header_page", "header_event"})
    if (auto linked = link("events", file); !linked) return linked;
  for (const EventInfo& e : events) {
    const std::string system = "events/" + e.system, event = system + "/" + e.name;
    for (const std::string& folder : {system, event})
      if (!sys::make_owned_directory(to, folder.c_str())) return sys::fail_beneath(errno, "cannot make snapshot/" + folder);
    for (const char* file : {"id", "format"})
      if (auto linked = link(event, file); !linked) return linked;
  }
  return {};
}

}  // namespace

bool Instance::has_snapshot() const { return static_cast<bool>(sys::open_owned(dir_.get(), "snapshot/instance", O_RDONLY)); }

result<void> Instance::drop_snapshot() {
  if (!sys::remove_beneath(dir_.get(), "snapshot")) return sys::fail_beneath(errno, "cannot remove all of " + path_ + "/snapshot");
  return {};
}

// Takes a ring out into the snapshot that is open as `copy`. Its reader's lock is ours.
result<void> Instance::take_out(const RingInfo& r, RingView& ring, int copy) {
  if (r.name.cpu >= 0 && r.live) return renew(r.name.ring, geometry(), "snapshot/per_cpu", r.name.ring);
  const std::string folder = "per_cpu/cpu" + std::to_string(r.name.ring), to = path_ + "/snapshot/" + folder;
  if (!sys::make_owned_directory(copy, folder.c_str())) return sys::fail_beneath(errno, "cannot make " + to);
  auto taken = ring.freeze([&]() -> result<void> {
    for (const std::string& file : {folder + "/ring", folder + "/trace_pipe_raw"})
      if (auto copied = sys::copy_owned(dir_.get(), file.c_str(), copy, file.c_str()); !copied) return copied;
    const u64 unlocked = 0;  // the copy was made under our lock
    const sys::Fd copied = sys::open_owned(copy, (folder + "/ring").c_str(), O_WRONLY);
    if (pwrite(copied.get(), &unlocked, sizeof unlocked, offsetof(Control, reader_lock)) != sizeof unlocked) return fail(errno, "cannot write " + to);
    return {};
  });
  if (!taken) (void)sys::remove_beneath(copy, folder.c_str());  // half a copy; all of it is still in the ring
  return taken;
}

result<std::string> Instance::snapshot() {
  // All rings are ours before the first one is taken out.
  std::vector<RingInfo> all;
  const InstanceLock lock(dir_.get());
  std::vector<RingView> views;
  struct Unlock {
    std::vector<RingView>& views;
    ~Unlock() {
      for (RingView& view : views) view.unlock();
    }
  } const unlock{views};
  for (RingInfo& r : rings()) {
    auto ring = look(r.name.ring);
    if (!ring && is_gone(ring.error())) continue;
    if (!ring) return tl::unexpected(ring.error());
    const bool locked = ring->lock();
    if (!locked && ring->is_another()) continue;
    if (!locked) return refuse(std::errc::device_or_resource_busy, "the ring is being read by another process");
    all.push_back(std::move(r));
    views.push_back(std::move(*ring));
  }
  if (auto free = unmapped("no snapshot can be taken"); !free) return tl::unexpected(free.error());
  if (auto gone = drop_snapshot(); !gone) return tl::unexpected(gone.error());
  const std::string to = path_ + "/snapshot";
  for (const char* folder : {"snapshot", "snapshot/per_cpu", "snapshot/events"})
    if (!sys::make_owned_directory(dir_.get(), folder)) return sys::fail_beneath(errno, "cannot make " + path_ + "/" + folder);
  const sys::Fd copy = sys::open_owned(dir_.get(), "snapshot", O_PATH | O_DIRECTORY);
  if (!copy) return sys::fail_beneath(errno, "cannot open " + to);
  if (auto linked = link_formats(dir_.get(), copy.get(), events()); !linked) return tl::unexpected(linked.error());
  // All but the rings first, under a name that makes no instance yet: a file system that is full says so before anything is taken out.
  for (const char* file : {"gate", "set_event", "saved_cmdlines", "saved_tgids", "threads", "instance"})
    if (auto copied = sys::copy_owned(dir_.get(), file, copy.get(), std::strcmp(file, "instance") == 0 ? "instance.new" : file);
        !copied && copied.error().code != std::errc::no_such_file_or_directory)
      return tl::unexpected(copied.error());
  // What was taken out before a failure is not lost: it is the snapshot.
  result<void> done;
  size_t taken = 0;
  for (; taken < all.size() && (done = take_out(all[taken], views[taken], copy.get())); ++taken) views[taken].unlock();
  if (!done && taken == 0) return tl::unexpected(done.error());
  if (renameat(copy.get(), "instance.new", copy.get(), "instance") != 0) return sys::fail_beneath(errno, "cannot finish " + to);
  if (!done) {
    Error error = done.error();
    error.sentence += "; " + std::to_string(taken) + " of " + std::to_string(all.size()) + " rings had been taken out before: they are in " + to;
    return tl::unexpected(std::move(error));
  }
  return to;
}

// A ring whose owner has left it, so that nobody else takes it; 0: it is no such ring, or somebody was faster. Answers the state to put back.
u64 Instance::claim_retired(u32 n) {
  RingEntry& entry = words_.ring(n);
  u64 retired = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
  if (state_of(retired) != RingState::retired) return 0;
  const u64 claimed = claim_of(members_->join(role::reader), true);
  return __atomic_compare_exchange_n(&entry.state, &retired, claimed, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? retired : 0;
}
void Instance::put_claimed(u32 n, u64 state, bool cleared) {
  RingEntry& entry = words_.ring(n);
  if (cleared) entry.tid = 0;
  __atomic_store_n(&entry.state, cleared ? pack_state(RingState::empty, 0) : state, __ATOMIC_RELEASE);
}

// Rings that somebody was killed in giving back.
void Instance::finish_clearing() {
  for (u32 n = 0, end = static_cast<u32>(std::min<u64>(__atomic_load_n(&words_.control->nr_rings, __ATOMIC_ACQUIRE), most_rings)); n < end; ++n) {
    const auto half_cleared = [&] {
      const auto ring = look(n);
      return !ring && is_gone(ring.error());
    };
    if (members_->judge().settle(words_.ring(n)) != RingState::retired || !half_cleared()) continue;
    if (const u64 retired = claim_retired(n); retired != 0) put_claimed(n, retired, half_cleared() && clear_ring(dir_.get(), n));
  }
}

u64 Instance::trim() {
  finish_clearing();
  u64 bytes = 0;
  for (const RingInfo& r : rings()) {
    if (r.counters.unread != 0) continue;
    if (r.live) {
      // Under the reader's lock: a consumer may still be walking what it has been handed.
      if (auto ring = look(r.name.ring); ring && ring->lock()) {
        bytes += ring->park();
        ring->unlock();
      }
      continue;
    }
    const u64 retired = claim_retired(r.name.ring);
    if (retired == 0) continue;
    bool cleared = false;
    if (auto ring = look(r.name.ring); ring && ring->lock()) {
      const Counters n = ring->counters();
      if (n.unread == 0 && (!ring->mapped() || !is_served(dir_.get()))) {
        PastTotals& past = words_.control->past;
        const auto add = [](u64& word, u64 value) { __atomic_fetch_add(&word, value, __ATOMIC_RELAXED); };
        add(past.written, n.written);
        add(past.read, n.read);
        add(past.overrun, n.overrun);
        add(past.dropped, n.dropped);
        add(past.commit_overrun, n.commit_overrun);
        add(past.unfinished_bytes, n.unfinished_bytes);
        add(past.rings, 1);
        cleared = clear_ring(dir_.get(), r.name.ring);
        bytes += cleared ? n.resident_bytes : 0;
      } else {
        ring->unlock();
      }
    }
    put_claimed(r.name.ring, retired, cleared);
  }
  return bytes;
}

namespace {

// The word holds the least percentage that anybody waits for.
void ask_for(u64& word, u64 percent) noexcept {
  u64 now = __atomic_load_n(&word, __ATOMIC_RELAXED);
  while ((now == 0 || now > percent + 1) && !__atomic_compare_exchange_n(&word, &now, percent + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
}

}  // namespace

u32 Instance::ask(int percent) {
  WaitWords& w = words_.control->wait;
  const u32 sequence = __atomic_load_n(&w.sequence, __ATOMIC_ACQUIRE);
  if (percent == 0)
    __atomic_store_n(&w.any, u64{1}, __ATOMIC_SEQ_CST);
  else
    ask_for(w.percent, static_cast<u64>(percent));
  fenced_ = sys::fence_heavy() && (words_.control->impaired & lacks::fence) == 0;  // pairs: WAKE
  return sequence;
}

bool Instance::sleep(u32 asked, std::chrono::nanoseconds timeout) {
  i64 ns = timeout.count();
  if (!fenced_) ns = std::min<i64>(ns, 10'000'000);  // no membarrier: a wake-up may be missed for so long
  return sys::futex_wait(&words_.control->wait.sequence, asked, ns);
}

result<bool> Instance::wait(int percent, std::chrono::nanoseconds timeout) {
  if (percent < 0 || percent > 100) return refuse(std::errc::invalid_argument, "a percentage of " + std::to_string(percent) + " is not possible: 0 to 100");
  const u64 deadline = sys::now_ns() + static_cast<u64>(std::max<i64>(timeout.count(), 0));
  for (;;) {
    if (watch_.reached(static_cast<u32>(percent))) return true;
    const u32 asked = ask(percent);
    if (watch_.reached(static_cast<u32>(percent))) return true;
    const u64 now = sys::now_ns();
    if (now >= deadline) return false;
    sleep(asked, std::chrono::nanoseconds(deadline - now));
  }
}

}  // namespace ringside
