#include "writer/maker.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "schema/event_pattern.hpp"
#include "schema/format_text.hpp"
#include "clock/tsc.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/ring_file.hpp"

namespace ringside {
namespace {

// Chooses the rings of a new instance. Refused: rings of CPUs are asked for, and something speaks against them.
result<RingsBecause> choose_rings(const InstanceOptions& o, const Geometry& geometry) {
  Rings wanted = o.rings;
  if (const char* say = sys::environment("RINGSIDE_RINGS"); say != nullptr && wanted == Rings::automatic) {
    wanted = std::strcmp(say, "cpu") == 0 ? Rings::cpu : std::strcmp(say, "thread") == 0 ? Rings::thread : Rings::automatic;
    if (wanted == Rings::automatic && std::strcmp(say, "auto") != 0)
      return refuse(std::errc::invalid_argument, std::string("RINGSIDE_RINGS is \"") + say + "\": use cpu, thread or auto");
  }
  if (wanted == Rings::thread) return RingsBecause::asked;
  RingsBecause because = why_not_cpu_rings();
  if (because == RingsBecause::can && o.budget != 0 && geometry.data_size() * possible_cpus() > o.budget)
    because = RingsBecause::budget;
  if (wanted == Rings::cpu && because != RingsBecause::can)
    return refuse(std::errc::not_supported,
                  std::string("rings of CPUs are not possible, ") + to_string(because) + "; use rings of threads");
  return because;
}

// A quarter of RAM, but no more than the file system can hold beside the words around the rings: a page that it cannot give is
// a SIGBUS in the traced program.
u64 default_budget(int dir) {
  struct sysinfo info {};
  sysinfo(&info);
  const u64 memory = std::max<u64>(u64{info.totalram} * info.mem_unit / 4, u64{256} << 20);
  struct statvfs room {};
  return fstatvfs(dir, &room) == 0 ? std::min<u64>(memory, u64{room.f_bavail} * room.f_frsize / 4 * 3) : memory;
}

std::string folder_of(u32 ring) { return "per_cpu/cpu" + std::to_string(ring) + "/"; }

result<void> make_cpu_rings(int dir, const std::string& path, const InstanceWords& words, const Geometry& geometry) {
  const u32 nr = possible_cpus();
  if (!sys::populate(&words.ring(0), nr * sizeof(RingEntry))) return fail(ENOSPC, "cannot make rings in " + path);
  for (u32 cpu = 0; cpu < nr; ++cpu) {
    if (!make_cpu_ring(dir, folder_of(cpu), cpu, *words.control, geometry))
      return fail(errno, "cannot make the ring of CPU " + std::to_string(cpu) + " in " + path);
    describe_cpu_ring(words.ring(cpu), cpu, 0, geometry);
    introduce_cpu_ring(words.ring(cpu), RingState::live);
  }
  words.control->cpu_rings = nr;
  words.control->nr_rings = nr;
  return {};
}

// Fills an empty directory. `path`: its later name. Returns the members, with this process as the maker.
result<std::shared_ptr<Members>> fill_instance(int dir, const std::string& path, const InstanceOptions& o, RingsBecause because,
                                               const Calibration& calibration) {
  for (const char* folder : {"per_cpu", "events"})
    if (!sys::make_owned_directory(dir, folder)) return fail(errno, "cannot make " + path + "/" + folder);
  std::string patterns;
  auto parsed = RS_TRY(EventPatterns::parse(o.events));
  for (const EventPattern& one : parsed)
    for (const std::string& line : one.in_full()) patterns += line + "\n";
  for (auto& [file, text] : {std::pair<const char*, std::string>{"set_event", patterns},
                             {"events/header_page", header_page_text(o.subbuf_size)},
                             {"events/header_event", std::string(header_event_text())},
                             {"gate", std::string(gate_bytes, '\0')}})
    RS_TRY(sys::write_owned(dir, file, text));
  const std::string file = path + "/instance";
  const sys::Fd fd = sys::open_owned(dir, "instance", O_RDWR | O_CREAT);
  if (!fd) return fail(errno, "cannot make " + file);
  if (!sys::set_size(fd.get(), instance_file_size)) return fail(errno, "cannot size " + file);
  auto region = RS_TRY(sys::Region::map(fd.get(), instance_file_size, true, file));
  if (!sys::populate(region.data(), sizeof(InstanceControl))) return fail(ENOSPC, "cannot make " + file);
  auto& c = *reinterpret_cast<InstanceControl*>(region.data());
  c.version = instance_version;
  c.header_bytes = sizeof c;
  const u32 spares = because == RingsBecause::can ? 1 : 0;  // one for Reader::give_back
  c.sizes = pack_sizes(must(geometry_for(o.buffer_size, o.subbuf_size, spares)));
  c.spares = spares;
  c.mode = o.overwrite ? 0 : 1;
  c.one_command = o.one_command ? 1 : 0;
  c.budget = o.budget != 0 ? o.budget : default_budget(dir);
  c.pid_namespace = sys::pid_namespace();
  c.boot = sys::boot_hash();
  c.created_ns = sys::now_ns();
  c.rings_because = static_cast<u32>(because);
  // Without it, threads that write to CPUs' rings and threads of other PID namespaces have no names; RLIMIT_FSIZE may forbid
  // it.
  const sys::Fd threads = sys::open_owned(dir, "threads", O_RDWR | O_CREAT);
  if (threads) (void)sys::set_size(threads.get(), threads_file_size);
  if (because == RingsBecause::can)
    RS_TRY(make_cpu_rings(dir, path, {&c}, geometry_of(c)));
  auto members = Members::open(dir);
  if (!members) return members;
  c.creator = (*members)->join(role::maker);
  const ClockInfo clock = calibration.finish();  // as late as possible: what came before is part of the measurement
  c.clock_kind = static_cast<u32>(clock.kind);
  c.clock_mult = clock.mult;
  c.clock_shift = clock.shift;
  c.clock_base_ticks = clock.base_ticks;
  c.clock_base_ns = clock.base_ns;
  __atomic_store_n(&c.magic, instance_magic, __ATOMIC_RELEASE);
  return members;
}

}  // namespace

result<Geometry> geometry_for(u64 buffer_size, u32 subbuf_size, u32 spares, u64 kernel_page) {
  if (!is_power_of_two(subbuf_size) || subbuf_size < abi::smallest_subbuf || subbuf_size > abi::largest_subbuf)
    return refuse(std::errc::invalid_argument, "a sub-buffer of " + std::to_string(subbuf_size) +
                                                   " bytes is not possible: use a power of two from 4k to 256k");
  if (kernel_page > abi::largest_subbuf)
    return refuse(std::errc::not_supported, "the kernel of this machine has pages of " + std::to_string(kernel_page) +
                                                " bytes, and a sub-buffer holds 256k at most");
  subbuf_size = std::max(subbuf_size, static_cast<u32>(kernel_page));
  if (buffer_size == 0 || buffer_size > (u64{64} << 30))
    return refuse(std::errc::invalid_argument,
                  "a ring of " + std::to_string(buffer_size) + " bytes is not possible: use 1 byte to 64G");
  const Geometry geometry(subbuf_size, subbufs_for(buffer_size, subbuf_size) + spares, spares);
  if (!geometry.valid())
    return refuse(std::errc::invalid_argument, "a ring of " + std::to_string(buffer_size) + " bytes has more than " +
                                                   std::to_string(most_subbufs) + " sub-buffers of " +
                                                   std::to_string(subbuf_size) + ": use larger ones");
  return geometry;
}

bool make_cpu_ring(int dir, const std::string& folder, u32 cpu, const InstanceControl& c, const Geometry& geometry) {
  MappedRing made = map_ring_in(dir, folder.c_str(), geometry, Files::ours);
  if (!made) return false;
  made.ring.kind = RingKind::cpu;
  made.ring.control->mode = c.mode;
  made.ring.control->gate = gate_wanted(c, cpu);
  // Readers read the first sub-buffer before any writer has written to it: where memory is short they find a page.
  const bool backed = sys::populate(made.ring.subbuf(place_of(made.ring.control->commit).id), abi::header_size);
  if (backed) label_ring(made.ring);
  unmap_ring(made);
  if (!backed) errno = ENOSPC;
  return backed;
}

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
void introduce_cpu_ring(RingEntry& entry, RingState state) {
  __atomic_store_n(&entry.state, pack_state(state, entry.tid), __ATOMIC_SEQ_CST);
}

u32 claim_number(const InstanceWords& words, Member who) {
  const u64 made = std::min<u64>(__atomic_load_n(&words.control->nr_rings, __ATOMIC_ACQUIRE), most_rings),
            claim = claim_of(who, false);
  for (u32 n = 0; n < made; ++n) {
    u64 state = __atomic_load_n(&words.ring(n).state, __ATOMIC_ACQUIRE);
    if (state_of(state) == RingState::empty &&
        __atomic_compare_exchange_n(&words.ring(n).state, &state, claim, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return n;
  }
  return claim_new_ring(words, claim);
}

result<void> make_instance(const InstanceOptions& o, const WholeInstance& whole) {
  auto path = RS_TRY(instance_path(o.name));
  const Geometry geometry = RS_TRY(geometry_for(o.buffer_size, o.subbuf_size, 0));
  if (o.clock == ClockKind::tsc && !tsc_evidence().usable())
    return refuse(std::errc::not_supported, std::string("the time stamp counter of this machine is not ") +
                                                (tsc_evidence().invariant ? "the same on all processors" : "invariant") +
                                                ": use the clock mono");
  if (!is_readable_here(static_cast<u32>(o.clock)))
    return refuse(std::errc::not_supported,
                  std::string("this machine does not have the clock ") + to_string(o.clock) + ": use the clock mono");
  const Calibration calibration(o.clock);
  const auto because = RS_TRY(choose_rings(o, geometry));
  auto where = RS_TRY(place_of_instance(o.name, true));
  const int parent = where.parent.get();
  sweep_unfinished(parent, where.in_root ? "" : where.name);
  const auto exists = [&]() -> tl::unexpected<Error> {
    const sys::Fd there = sys::open_beneath(parent, where.name.c_str(), O_PATH | O_DIRECTORY);
    if (there && is_half_made(there.get()))
      return fail(EEXIST, "the instance " + o.name + never_finished + o.name + "` removes it");
    return fail(EEXIST, "the instance " + o.name + " exists (`ringside rm " + o.name + "` removes it)");
  };
  struct stat st {};
  if (fstatat(parent, where.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return exists();
  auto unfinished = RS_TRY(begin_instance(where));
  const auto fill = [&]() -> result<void> {
    auto members = RS_TRY(fill_instance(unfinished.dir.get(), where.path, o, because, calibration));
    sys::Fd dir = sys::open_beneath(unfinished.dir.get(), ".", O_PATH | O_DIRECTORY);
    if (!dir) return fail(errno, "cannot open " + path);
    if (whole)
      RS_TRY(whole(path, std::move(dir), std::move(members)));
    if (renameat2(parent, unfinished.name.c_str(), parent, where.name.c_str(), RENAME_NOREPLACE) == 0) return {};
    if (errno == EEXIST) return exists();
    return fail(errno, "cannot make the instance " + path);
  };
  auto made = fill();
  if (made) return made;
  (void)sys::remove_opened(parent, unfinished.name.c_str(), unfinished.dir.get());
  return made;
}

}  // namespace ringside
