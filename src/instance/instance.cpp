#include "instance/instance.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "instance/cpu_rings.hpp"
#include "instance/ring_file.hpp"
#include "instance/ring_source.hpp"
#include "schema/format_text.hpp"

namespace ringside {
namespace {

bool good_name(const std::string& name) {
  if (name.empty() || name.size() > 63 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

std::string field_text(const char* text, size_t room) { return std::string(text, strnlen(text, room)); }

result<void> make_directory(const std::string& path, bool may_exist) {
  if (mkdir(path.c_str(), 0700) == 0) return {};
  if (errno == EEXIST && may_exist) {
    struct stat st {};
    if (lstat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) return fail(ENOTDIR, path + " is in the way");
    if (st.st_uid != geteuid()) return fail(EACCES, path + " belongs to another user; set RINGSIDE_ROOT to a directory of your own");
    return {};
  }
  return fail(errno, "cannot make the directory " + path);
}

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

result<void> remove_tree(const std::string& path) {
  const auto unlink_one = [](const char* at, const struct stat*, int, struct FTW*) { return ::remove(at); };
  if (nftw(path.c_str(), unlink_one, 16, FTW_DEPTH | FTW_PHYS) != 0) return fail(errno, "cannot remove all of " + path);
  return {};
}

// Takes away what did not become whole: nobody could open it.
class HalfMade {
 public:
  explicit HalfMade(const std::string& path) : path_(path) {}
  ~HalfMade() {
    if (!whole_) (void)remove_tree(path_);
  }
  HalfMade(const HalfMade&) = delete;
  HalfMade& operator=(const HalfMade&) = delete;
  void whole() { whole_ = true; }

 private:
  const std::string path_;
  bool whole_ = false;
};

// What an instance was, or was to become, when whoever made or removed it died or met an error: without its `instance`, nothing but what an
// instance has.
bool is_remainder(const std::string& path) {
  static const std::set<std::string> known{"per_cpu", "events", "set_event", "set_event.new", "gate", "instance", "threads", "saved_cmdlines", "saved_tgids",
                                           "snapshot", "serving", "socket"};
  DIR* const dir = opendir(path.c_str());
  if (dir == nullptr) return false;
  bool all_known = true, any = path.rfind(Instance::root() + "/", 0) == 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    any = true;
    all_known = all_known && known.count(name) != 0;
  }
  closedir(dir);
  return any && all_known;
}

// A quarter of RAM, and of the file system what leaves room for the words around the rings: a page that it cannot give is a
// SIGBUS in the traced program.
u64 default_budget(const std::string& path) {
  struct sysinfo info {};
  sysinfo(&info);
  const u64 memory = std::max<u64>(u64{info.totalram} * info.mem_unit / 4, u64{256} << 20);
  struct statvfs room {};
  return statvfs(path.c_str(), &room) == 0 ? std::min<u64>(memory, u64{room.f_bavail} * room.f_frsize / 4 * 3) : memory;
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

InstanceLock::InstanceLock(const std::string& path) noexcept : fd_(::open((path + "/instance").c_str(), O_RDWR | O_CLOEXEC)) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_len = 1;
  // A holder that is stopped must not stop everybody: after 2 s we go on without (what is protected is short and idempotent).
  for (int i = 0; i < 2000 && fd_ && fcntl(fd_.get(), F_OFD_SETLK, &lock) != 0; ++i) usleep(1000);
}

result<sys::Region> map_instance(const std::string& path, bool writable) {
  const std::string file = path + "/instance";
  const sys::Fd fd(::open(file.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) {
    if (errno == ENOENT) return fail(errno, "there is no instance at " + path + " (`ringside list` shows those that exist)");
    return fail(errno, "cannot open " + file);
  }
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

result<std::vector<std::string>> read_patterns(const std::string& path) {
  const auto text = sys::read_file(path + "/set_event");
  if (!text && text.error().code != std::errc::no_such_file_or_directory) return tl::unexpected(text.error());
  std::vector<std::string> patterns;
  std::istringstream lines(text ? *text : "");
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) patterns.push_back(line);
  return patterns;
}

void apply_patterns(const std::vector<std::string>& patterns, const InstanceWords& words, unsigned char* gate) {
  std::vector<unsigned> bytes(gate_bytes);
  const u64 n = std::min<u64>(__atomic_load_n(&words.control->nr_events, __ATOMIC_ACQUIRE) + 1, most_events);
  for (u32 id = 1; id <= n; ++id) {
    EventEntry& e = words.event(id);
    if (__atomic_load_n(&e.known, __ATOMIC_ACQUIRE) == 0) continue;
    const std::string full = field_text(e.system, sizeof e.system) + ":" + field_text(e.name, sizeof e.name);
    u32 on = 0;
    for (const std::string& p : patterns) {
      const bool off = p[0] == '!';
      if (fnmatch(p.c_str() + (off ? 1 : 0), full.c_str(), 0) == 0) on = off ? 0 : 1;
    }
    __atomic_store_n(&e.enabled, on, __ATOMIC_RELEASE);
    if (on != 0) ++bytes[e.gate % gate_bytes];
  }
  for (u32 i = 0; i < gate_bytes; ++i) __atomic_store_n(&gate[i], static_cast<unsigned char>(std::min(bytes[i], 255u)), __ATOMIC_RELEASE);
}

namespace {

// A new ring of a CPU in this folder of `dir`.
bool make_cpu_ring(int dir, const std::string& folder, const InstanceControl& c, const Geometry& geometry) {
  MappedRing made = map_ring_in(dir, folder.c_str(), geometry);
  if (!made) return false;
  made.ring.kind = RingKind::cpu;
  made.ring.control->mode = c.mode;
  made.ring.control->gate = c.tracing_off != 0 ? gate_off : 0;
  label_ring(made.ring);
  unmap_ring(made);
  return true;
}

std::string folder_of(u32 ring) { return "per_cpu/cpu" + std::to_string(ring) + "/"; }

void introduce_cpu_ring(RingEntry& entry, u32 cpu, u32 before, const Geometry& geometry, RingState state) {
  entry.pid = 0;
  entry.tid = ~before;
  entry.of = cpu;
  entry.tid_start = 0;
  std::memset(entry.task, 0, sizeof entry.task);
  std::memset(entry.process, 0, sizeof entry.process);
  const std::string name = "cpu" + std::to_string(cpu);
  std::memcpy(entry.task, name.data(), std::min(name.size(), sizeof entry.task));
  __atomic_store_n(&entry.sizes, short_sizes(geometry), __ATOMIC_RELAXED);
  __atomic_store_n(&entry.state, pack_state(state, entry.tid), __ATOMIC_SEQ_CST);
}

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

result<void> make_cpu_rings(const std::string& path, const InstanceWords& words, const Geometry& geometry) {
  const sys::Fd dir(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const u32 nr = possible_cpus();
  for (u32 cpu = 0; cpu < nr; ++cpu) {
    if (!make_cpu_ring(dir.get(), folder_of(cpu), *words.control, geometry)) return fail(errno, "cannot make the ring of CPU " + std::to_string(cpu) + " in " + path);
    introduce_cpu_ring(words.ring(cpu), cpu, 0, geometry, RingState::live);
  }
  words.control->cpu_rings = nr;
  words.control->nr_rings = nr;
  return {};
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
  if (o.name.find('/') == std::string::npos)
    if (auto made = make_directory(root(), true); !made) return tl::unexpected(made.error());
  if (mkdir(path->c_str(), 0700) != 0) {
    if (errno == EEXIST) return fail(errno, "the instance " + o.name + " exists (`ringside rm " + o.name + "` removes it)");
    return fail(errno, "cannot make the instance " + *path);
  }
  HalfMade half_made(*path);
  // The directory fills up, and `instance` gets its magic last: until then nobody can open it.
  for (const char* folder : {"/per_cpu", "/events"})
    if (auto made = make_directory(*path + folder, true); !made) return tl::unexpected(made.error());
  std::string patterns;
  for (const std::string& p : o.events) patterns += p + "\n";
  for (auto& [file, text] : {std::pair<const char*, std::string>{"/set_event", patterns},
                             {"/events/header_page", header_page_text(o.subbuf_size)},
                             {"/events/header_event", std::string(header_event_text())},
                             {"/gate", std::string(gate_bytes, '\0')}})
    if (auto done = sys::write_file(*path + file, text); !done) return tl::unexpected(done.error());
  const std::string file = *path + "/instance";
  {
    const sys::Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) return fail(errno, "cannot make " + file);
    if (ftruncate(fd.get(), static_cast<off_t>(instance_file_size)) != 0) return fail(errno, "cannot size " + file);
    auto region = sys::Region::map(fd.get(), instance_file_size, true, file);
    if (!region) return tl::unexpected(region.error());
    auto& c = *reinterpret_cast<InstanceControl*>(region->data());
    const ClockInfo clock = calibrate(o.clock);
    c.version = instance_version;
    c.header_bytes = sizeof c;
    const u32 spares = o.spares + (*because == RingsBecause::can ? 1 : 0);  // one for Reader::give_back
    c.sizes = pack_sizes(must(geometry_for(o.buffer_size, o.subbuf_size, spares)));
    c.spares = spares;
    c.mode = o.overwrite ? 0 : 1;
    c.clock_kind = static_cast<u32>(clock.kind);
    c.clock_mult = clock.mult;
    c.clock_shift = clock.shift;
    c.clock_base_ticks = clock.base_ticks;
    c.clock_base_ns = clock.base_ns;
    c.budget = o.budget != 0 ? o.budget : default_budget(*path);
    c.pid_namespace = sys::pid_namespace();
    c.boot = sys::boot_hash();
    c.created_ns = sys::now_ns();
    c.rings_because = static_cast<u32>(*because);
    // Without it threads of CPUs' rings and of other PID namespaces have no names; beyond RLIMIT_FSIZE there can be none.
    const sys::Fd threads(::open((*path + "/threads").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (threads && sys::may_grow_to(threads_file_size)) (void)!ftruncate(threads.get(), static_cast<off_t>(threads_file_size));
    if (*because == RingsBecause::can) {
      if (auto made = make_cpu_rings(*path, {&c}, geometry_of(c)); !made) return tl::unexpected(made.error());
    }
    auto members = Members::open(sys::Fd(::open(path->c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)).get());
    if (!members) return tl::unexpected(members.error());
    c.creator = (*members)->join(role::maker);
    __atomic_store_n(&c.magic, instance_magic, __ATOMIC_RELEASE);
    auto opened = open(*path, std::move(*members));
    if (opened) half_made.whole();
    return opened;
  }
}

result<std::unique_ptr<Instance>> Instance::open(const std::string& wanted) { return open(wanted, nullptr); }

// members: of the instance, if whoever opens it has a seat already.
result<std::unique_ptr<Instance>> Instance::open(const std::string& wanted, std::shared_ptr<Members> members) {
  auto path = instance_path(wanted);
  if (!path) return tl::unexpected(path.error());
  sys::guard_mappings();
  auto region = map_instance(*path, true);
  if (!region) return tl::unexpected(region.error());
  sys::Fd dir(::open(path->c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return fail(errno, "cannot open " + *path);
  if (members == nullptr) {
    auto opened = Members::open(dir.get());
    if (!opened) return tl::unexpected(opened.error());
    members = std::move(*opened);
  }
  std::unique_ptr<Instance> instance(new Instance(std::move(*region), std::move(dir), std::move(members)));
  instance->path_ = *path;
  instance->name_ = path->substr(path->find_last_of('/') + 1);
  instance->clock_ = clock_of(*instance->words_.control);
  instance->threads_ = sys::Fd(openat(instance->dir_.get(), "threads", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  instance->pid_namespace_ = instance->control().boot == sys::boot_hash() ? sys::pid_namespace() : 0;
  return instance;
}

Instance::~Instance() = default;

std::vector<std::string> Instance::list() {
  std::vector<std::string> names;
  if (DIR* dir = opendir(root().c_str())) {
    while (const dirent* entry = readdir(dir)) {
      struct stat st {};
      if (entry->d_name[0] != '.' && stat((root() + "/" + entry->d_name + "/instance").c_str(), &st) == 0) names.emplace_back(entry->d_name);
    }
    closedir(dir);
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

// Is the server there that counts who maps the rings? What one that was killed has counted is nobody.
bool is_served(const std::string& path) {
  const sys::Fd fd(::open((path + "/serving").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  return fd && fcntl(fd.get(), F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

}  // namespace

result<void> Instance::remove(const std::string& name, bool force) {
  auto path = instance_path(name);
  if (!path) return tl::unexpected(path.error());
  struct stat st {};
  if (stat((*path + "/instance").c_str(), &st) != 0) {
    const int error = errno;
    return error == ENOENT && is_remainder(*path) ? remove_tree(*path) : fail(error, "there is no instance " + name);
  }
  if (auto opened = open(name); opened && !force && (*opened)->has_writers())
    return refuse(std::errc::device_or_resource_busy, "the instance " + name + " is being written to (--force removes it all the same)");
  if (auto opened = open(name); opened && !force)
    if (auto free = (*opened)->unmapped("it cannot be removed"); !free) return free;
  return remove_tree(*path);
}

std::vector<EventInfo> Instance::events() const {
  std::vector<EventInfo> all;
  const u64 n = std::min<u64>(__atomic_load_n(&words_.control->nr_events, __ATOMIC_ACQUIRE), most_events);
  for (u32 id = 1; id <= n; ++id) {
    const EventEntry& e = words_.event(id);
    if (__atomic_load_n(&e.known, __ATOMIC_ACQUIRE) == 0) continue;
    EventInfo info{static_cast<u16>(abi::event_id(id)), field_text(e.system, sizeof e.system), field_text(e.name, sizeof e.name), "",
                   __atomic_load_n(&e.enabled, __ATOMIC_RELAXED) != 0};
    if (auto text = sys::read_file(path_ + "/events/" + info.system + "/" + info.name + "/format")) info.format = std::move(*text);
    all.push_back(std::move(info));
  }
  return all;
}

namespace {

// Behind all others, without the earlier lines that it makes void: whoever switches an event on and off all day leaves one line.
result<void> add_pattern(const std::string& file, const std::string& pattern, bool on) {
  const std::string line = (on ? "" : "!") + pattern + "\n";
  auto before = sys::read_file(file);
  if (!before && before.error().code != std::errc::no_such_file_or_directory) return tl::unexpected(before.error());
  std::string kept;
  std::istringstream lines(before ? *before : "");
  for (std::string one; std::getline(lines, one);)
    if (pattern != "*:*" && !one.empty() && one.substr(one[0] == '!' ? 1 : 0) != pattern) kept += one + "\n";
  if (before && kept.size() == before->size()) return sys::write_file(file, line, true);
  if (auto done = sys::write_file(file + ".new", kept + line); !done) return done;
  if (rename((file + ".new").c_str(), file.c_str()) != 0) return fail(errno, "cannot replace " + file);
  return {};
}

}  // namespace

result<u32> Instance::enable(const std::string& glob, bool on) {
  if (glob.empty() || glob.find('\n') != std::string::npos || glob[0] == '!')
    return refuse(std::errc::invalid_argument, "'" + glob + "' is no event pattern: write SYSTEM:EVENT, with * and ? as wildcards");
  const std::string pattern = glob.find(':') == std::string::npos ? glob + ":*" : glob;
  const InstanceLock lock(path_);
  if (auto done = add_pattern(path_ + "/set_event", pattern, on); !done) return tl::unexpected(done.error());
  const sys::Fd fd(::open((path_ + "/gate").c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return fail(errno, "cannot open " + path_ + "/gate");
  auto gate = sys::Region::map(fd.get(), gate_bytes, true, path_ + "/gate");
  if (!gate) return tl::unexpected(gate.error());
  auto patterns = read_patterns(path_);
  if (!patterns) return tl::unexpected(patterns.error());
  apply_patterns(*patterns, words_, gate->data());
  u32 matched = 0;
  for (const EventInfo& e : events()) matched += fnmatch(pattern.c_str(), (e.system + ":" + e.name).c_str(), 0) == 0;
  return matched;
}

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
    } else {
      info.problem = ring.error().sentence;
    }
    all.push_back(std::move(info));
  }
  return all;
}

result<RingView> Instance::look(u32 ring) const { return look_at(dir_.get(), ring, geometry(), members_); }

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
  auto all = sys::read_cmdlines(path_ + "/saved_cmdlines");
  for (RingName& thread : threads()) all.emplace_back(thread.tid, std::move(thread.task));
  return all;
}

result<std::unique_ptr<Source>> Instance::source(u32 ring) { return open_ring(*this, dir_.get(), words_, ring, geometry(), members_, true); }
result<std::unique_ptr<Source>> Instance::peek(u32 ring) { return open_ring(*this, dir_.get(), words_, ring, geometry(), members_, false); }

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
    if (!ring) return tl::unexpected(ring.error());
    if (auto done = ring->reset(); !done) return done;
  }
  words_.control->past = {};
  words_.control->refused = 0;
  return {};
}

result<void> Instance::unmapped(const char* what) {
  for (const RingInfo& r : rings())
    if (auto ring = look(r.name.ring); ring && ring->mapped() && is_served(path_))
      return refuse(std::errc::device_or_resource_busy, "ring " + std::to_string(r.name.ring) + " is mapped by a reader: " + what + " before the reader is gone");
  return {};
}

result<void> Instance::resize(u64 buffer_size, u32 subbuf_size) {
  const auto sized = geometry_for(buffer_size, subbuf_size, words_.control->spares);
  if (!sized) return tl::unexpected(sized.error());
  if (*sized == geometry()) return {};
  const InstanceLock lock(path_);
  if (auto free = unmapped("it cannot be resized"); !free) return free;
  __atomic_store_n(&words_.control->sizes, pack_sizes(*sized), __ATOMIC_SEQ_CST);  // before the looks: see introduce
  for (const RingInfo& r : rings()) {
    if (!r.live) continue;
    if (r.name.cpu < 0) {
      if (auto ring = look(r.name.ring)) ring->give_up();
      continue;
    }
    const u32 number = claim_number(words_, members_->join(role::reader));
    if (number >= most_rings) return refuse(std::errc::no_space_on_device, "the instance has " + std::to_string(most_rings) + " rings with unread events: read them first");
    const auto cpu = static_cast<u32>(r.name.cpu);
    if (auto done = renew(cpu, *sized, "per_cpu/cpu" + std::to_string(number)); !done) return done;
    introduce_cpu_ring(words_.ring(number), cpu, ~static_cast<u32>(r.name.tid), *sized, RingState::retired);
  }
  return {};
}

result<void> Instance::renew(u32 cpu, const Geometry& geometry, const std::string& to) {
  const std::string fresh = "per_cpu/.fresh" + std::to_string(getpid()), place = "per_cpu/cpu" + std::to_string(cpu);
  auto old = look_at(dir_.get(), cpu, geometry, members_);
  if (!old) return tl::unexpected(old.error());
  if (!make_cpu_ring(dir_.get(), fresh + "/", *words_.control, geometry)) return fail(errno, "cannot make a ring of CPU " + std::to_string(cpu));
  // A writer that maps its CPU's ring finds one or the other.
  const int d = dir_.get();
  const bool there = faccessat(d, to.c_str(), F_OK, 0) == 0;  // a ring that gave its memory back
  if (renameat2(d, fresh.c_str(), d, place.c_str(), RENAME_EXCHANGE) != 0 || renameat2(d, fresh.c_str(), d, to.c_str(), there ? RENAME_EXCHANGE : 0) != 0)
    return fail(errno, "cannot put a fresh ring in the place of " + path_ + "/" + place);
  if (there) {
    for (const char* file : {"/ring", "/trace_pipe_raw"}) unlinkat(d, (fresh + file).c_str(), 0);
    unlinkat(d, fresh.c_str(), AT_REMOVEDIR);
  }
  RingEntry& entry = words_.ring(cpu);
  introduce_cpu_ring(entry, cpu, ~entry.tid + 1, geometry, RingState::live);
  old->give_up();  // from here on its writers take the fresh one; what they were at lands in the old one
  return {};
}

result<std::string> Instance::snapshot() {
  const char* const no_copy = "no snapshot can be taken";
  if (auto free = unmapped(no_copy); !free) return tl::unexpected(free.error());
  const std::string to = path_ + "/snapshot";
  if (access(to.c_str(), F_OK) == 0)
    if (auto gone = remove(to, true); !gone) return tl::unexpected(gone.error());
  for (const char* folder : {"", "/per_cpu"})
    if (auto made = make_directory(to + folder, true); !made) return tl::unexpected(made.error());
  if (symlink("../events", (to + "/events").c_str()) != 0) return fail(errno, "cannot make " + to + "/events");
  const auto all = rings();
  const InstanceLock lock(path_);
  for (const RingInfo& r : all) {
    auto ring = look(r.name.ring);
    if (!ring) return tl::unexpected(ring.error());
    const std::string folder = "/per_cpu/cpu" + std::to_string(r.name.ring);
    if (r.name.cpu >= 0 && r.live) {
      if (!ring->lock()) return refuse(std::errc::device_or_resource_busy, "the ring is being read by another process");
      auto renewed = renew(r.name.ring, geometry(), "snapshot" + folder);
      ring->unlock();
      if (!renewed) return tl::unexpected(renewed.error());
      continue;
    }
    if (auto made = make_directory(to + folder, true); !made) return tl::unexpected(made.error());
    auto done = ring->freeze([&]() -> result<void> {
      if (auto free = unmapped(no_copy); !free) return free;  // once more, under the reader's lock
      for (const char* file : {"/ring", "/trace_pipe_raw"})
        if (auto copied = sys::copy_sparse(path_ + folder + file, to + folder + file); !copied) return copied;
      const u64 unlocked = 0;  // the copy was made under our lock
      const sys::Fd copy(::open((to + folder + "/ring").c_str(), O_WRONLY | O_CLOEXEC));
      if (pwrite(copy.get(), &unlocked, sizeof unlocked, offsetof(Control, reader_lock)) != sizeof unlocked) return fail(errno, "cannot write " + to + folder);
      return {};
    });
    if (!done) return tl::unexpected(done.error());
  }
  for (const char* file : {"/gate", "/set_event", "/saved_cmdlines", "/saved_tgids", "/threads"})
    if (access((path_ + file).c_str(), F_OK) == 0)
      if (auto copied = sys::copy_sparse(path_ + file, to + file); !copied) return tl::unexpected(copied.error());
  // Last, so that the snapshot can be opened only when it is whole.
  if (auto copied = sys::copy_sparse(path_ + "/instance", to + "/instance"); !copied) return tl::unexpected(copied.error());
  return to;
}

u64 Instance::trim() {
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
    RingEntry& entry = words_.ring(r.name.ring);
    u64 retired = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
    if (state_of(retired) != RingState::retired || !__atomic_compare_exchange_n(&entry.state, &retired, claim_of(members_->join(role::reader), true), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      continue;
    bool cleared = false;
    if (auto ring = look(r.name.ring); ring && ring->lock()) {
      const Counters n = ring->counters();
      if (n.unread == 0 && (!ring->mapped() || !is_served(path_))) {
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
    if (cleared) entry.tid = 0;
    __atomic_store_n(&entry.state, cleared ? pack_state(RingState::empty, 0) : retired, __ATOMIC_RELEASE);
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
