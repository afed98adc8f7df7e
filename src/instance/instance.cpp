#include "instance/instance.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "instance/borrowed.hpp"
#include "instance/ring_source.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/ring_file.hpp"

namespace ringside {

result<std::unique_ptr<Instance>> Instance::create(const InstanceOptions& o) {
  std::unique_ptr<Instance> instance;
  RS_TRY(make_instance(o, [&](const std::string& path, sys::Fd dir, std::shared_ptr<Members> members) -> result<void> {
    instance = RS_TRY(open(path, std::move(dir), std::move(members)));
    return {};
  }));
  return instance;
}

result<std::unique_ptr<Instance>> Instance::open(const std::string& wanted) {
  auto path = RS_TRY(instance_path(wanted));
  auto dir = open_instance_directory(wanted);
  if (!dir && dir.error().code == std::errc::no_such_file_or_directory)
    return refuse(std::errc::no_such_file_or_directory, "there is no instance at " + path + where_else(wanted));
  if (!dir) return tl::unexpected(dir.error());
  auto opened = RS_TRY(open(path, std::move(*dir), nullptr));
  put_back_after_death(*opened);
  return opened;
}

result<std::unique_ptr<Instance>> Instance::open(const std::string& path, sys::Fd dir, std::shared_ptr<Members> members) {
  sys::guard_mappings();
  auto region = RS_TRY(map_instance(dir.get(), path, true));
  if (members == nullptr) {
    members = RS_TRY(Members::open(dir.get()));
  }
  std::unique_ptr<Instance> instance(new Instance(std::move(region), std::move(dir), std::move(members)));
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
  const auto parent = sys::open_trusted(instances_root(), sys::Role::root);
  if (!parent && parent.error().code == std::errc::no_such_file_or_directory) return found;
  if (!parent) return tl::unexpected(parent.error());
  sweep_unfinished(parent->get(), "");
  auto names = RS_TRY(sys::names_in(parent->get()));
  for (std::string& name : names) {
    const sys::Fd dir = name[0] != '.' ? sys::open_beneath(parent->get(), name.c_str(), O_PATH | O_DIRECTORY) : sys::Fd();
    struct stat st {};
    if (dir && (half_made ? is_half_made(dir.get()) : fstatat(dir.get(), "instance", &st, AT_SYMLINK_NOFOLLOW) == 0))
      found.push_back(std::move(name));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<Instance::OfAnother> Instance::of_others(const std::string& name) {
  std::vector<OfAnother> all;
  if (geteuid() != 0) return all;
  const auto look = [&](const std::string& folder, const std::string& start, const std::string& below) {
    const auto opened = sys::open_trusted(folder, sys::Role::other);
    const auto names = opened ? sys::names_in(opened->get()) : result<std::vector<std::string>>(std::vector<std::string>{});
    for (const std::string& user : names ? *names : std::vector<std::string>{}) {
      const std::string root = folder + "/" + user + below;
      if (user.compare(0, start.size(), start) != 0 || root == instances_root()) continue;
      const auto dir = sys::open_trusted(root, sys::Role::other);
      struct stat st {};
      if (!dir || fstat(dir->get(), &st) != 0) continue;
      const auto inside =
          name.empty() ? sys::names_in(dir->get()) : result<std::vector<std::string>>(std::vector<std::string>{name});
      for (const std::string& instance : inside ? *inside : std::vector<std::string>{})
        if (instance[0] != '.' && open(root + "/" + instance)) all.push_back({root + "/" + instance, st.st_uid});
    }
  };
  look("/dev/shm", "ringside-", "");
  look("/run/user", "", "/ringside");
  std::sort(all.begin(), all.end(), [](const OfAnother& a, const OfAnother& b) { return a.path < b.path; });
  return all;
}

std::string Instance::where_else(const std::string& name) {
  std::string out;
  if (name.find('/') == std::string::npos) {
    for (const OfAnother& other : of_others(name)) out += (out.empty() ? "; there is " : ", ") + other.path;
  }
  return !out.empty() ? out + ": name it by that path" : " (`ringside list` shows the instances)";
}

std::vector<std::string> Instance::list() { return find(false).value_or(std::vector<std::string>{}); }

result<void> Instance::remove(const std::string& name, bool force) {
  auto where = place_of_instance(name, false);
  if (!where && where.error().code == std::errc::no_such_file_or_directory)
    return refuse(std::errc::no_such_file_or_directory, "there is no instance " + name + where_else(name));
  if (!where) return tl::unexpected(where.error());
  const int parent = where->parent.get();
  const bool swept = sweep_unfinished(parent, where->name);  // these remains may have been all of it
  const sys::Fd dir = sys::open_beneath(parent, where->name.c_str(), O_PATH | O_DIRECTORY);
  if (!dir && errno == ENOENT)
    return swept ? result<void>()
                 : refuse(std::errc::no_such_file_or_directory, "there is no instance " + name + where_else(name));
  if (!dir) return sys::fail_beneath(errno, "cannot remove " + where->path);
  RS_TRY(sys::judge(dir.get(), where->path, sys::Role::instance));
  if (!is_instance(dir.get())) {
    if (!is_half_made(dir.get())) return fail(ENOENT, "there is no instance " + name);
    if (!force)
      return refuse(std::errc::no_such_file_or_directory, "the instance " + name + never_finished + name + "` removes it");
  }
  if (!force) {
    if (auto opened = open(name); opened) {
      if ((*opened)->users() != Presence::none)
        return refuse(std::errc::device_or_resource_busy,
                      "the instance " + name +
                          ((*opened)->has_writers() ? " is being written to" : " is open in a process, which may write to it") +
                          " (--force removes it all the same)");
      RS_TRY((*opened)->unmapped("it cannot be removed"));
    }
  }
  return take_away(*where, dir.get());
}

std::vector<EventInfo> Instance::events() const {
  std::vector<EventInfo> all;
  words_.each_event([&](u32 id, const EventEntry& e) {
    EventInfo info{static_cast<u16>(abi::event_id(id)), text_in(e.system), text_in(e.name), "",
                   __atomic_load_n(&e.enabled, __ATOMIC_RELAXED) != 0};
    info.folder = words_.event_folder(id);
    if (auto text = read("events/" + info.system + "/" + info.folder + "/format")) info.format = std::move(*text);
    all.push_back(std::move(info));
  });
  return all;
}

result<std::string> Instance::read(const std::string& file) const { return sys::read_owned(dir_.get(), file); }

result<InstanceLock> Instance::lock() {
  constexpr int shortly_ms = 100;
  if (!impatient_) return InstanceLock(dir_.get());
  InstanceLock held(dir_.get(), lock_was_late_ ? 0 : shortly_ms);
  lock_was_late_ = held.late();
  if (lock_was_late_)
    return refuse(std::errc::device_or_resource_busy,
                  path_ + " is being changed by another process, which does not go on (is it stopped?): try again later");
  return held;
}

result<void> Instance::unlocked() {
  RS_TRY(lock());
  return {};
}

std::vector<RingInfo> Instance::rings() {
  std::vector<RingInfo> all;
  const u32 n = words_.nr_rings();
  for (u32 i = 0; i < n; ++i) {
    RingEntry& entry = words_.ring(i);
    const RingState state = members_->judge().settle(entry);
    if (state == RingState::never || state == RingState::empty || state == RingState::busy) continue;
    RingInfo info;
    info.name = name_of(i, entry);
    locate(info.name);
    info.live = state == RingState::live;
    if (auto ring = view_ring(i)) {
      info.counters = ring->counters();
      info.told = std::min(Reader<Hardware>(ring->ring()).state().lost, info.counters.overrun);
      info.corrupt = __atomic_load_n(&ring->ring().control->corrupt, __ATOMIC_RELAXED) != 0;
    } else if (ring.error().code == std::errc::no_such_file_or_directory &&
               state_of(__atomic_load_n(&entry.state, __ATOMIC_ACQUIRE)) != state) {
      continue;  // another process gave its memory back meanwhile
    } else {
      info.problem = ring.error().sentence;
    }
    all.push_back(std::move(info));
  }
  return all;
}

result<RingView> Instance::view_ring(u32 ring) const { return ringside::view_ring(dir_.get(), ring, members_); }

std::vector<RingName> Instance::ring_names() {
  std::vector<RingName> all;
  const u32 n = words_.nr_rings();
  for (u32 i = 0; i < n; ++i) {
    RingState state = state_of(__atomic_load_n(&words_.ring(i).state, __ATOMIC_ACQUIRE));
    if (state == RingState::busy) state = members_->judge().settle(words_.ring(i));  // its claimer may be dead
    if (state != RingState::live && state != RingState::retired) continue;
    all.push_back(name_of(i, words_.ring(i)));
    locate(all.back());
  }
  return all;
}

std::string Instance::untraced(u32 before) const {
  const u32 now = without_clock();
  if (now <= before) return "";
  return std::to_string(now - before) + (now - before == 1 ? " process is" : " processes are") +
         " not traced, because the processor does not have the clock " + to_string(clock().kind) +
         "; an instance of the clock mono is for all";
}

Presence Instance::present(u32 roles) {
  const Judge judge = members_->judge();
  if (judge.any(roles)) return judge.can_tell() ? Presence::some : Presence::unknown;
  const u32 n = words_.nr_rings();
  Presence found = (words_.control->impaired & lacks::seat) != 0 ? Presence::unknown : Presence::none;
  for (u32 i = 0; i < n; ++i) {
    RingEntry& entry = words_.ring(i);
    if (judge.settle(entry) != RingState::live || is_of_cpu(entry)) continue;
    if (entry.of != nobody) return Presence::some;
    found = Presence::unknown;
  }
  return found;
}

u64 Instance::unread() {
  u64 sum = 0;
  for (const RingInfo& ring : rings()) sum += ring.counters.unread;
  return sum;
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
  RingName name{0, static_cast<i32>(e.process), static_cast<i32>(e.number), text_in(e.task),
                text_in(e.process_name)};
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
    if (pread(threads_.get(), &entry, sizeof entry, static_cast<off_t>(at)) != sizeof entry ||
        entry.number != static_cast<u32>(thread.tid))
      return;
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
    if (e.tid != 0)
      all.push_back({0, static_cast<i32>(e.pid), static_cast<i32>(e.tid), text_in(e.task), text_in(e.process)});
  });
  each_written<ForeignEntry>(threads_.get(), foreign_table_at, names_table_at, [&](const ForeignEntry& e) {
    if (e.number != 0) all.push_back(name_of(e));
  });
  for (RingName& thread : all) locate(thread);
  return all;
}

std::vector<NameChange> Instance::names(u64& n) const {
  const u64 end = __atomic_load_n(&control().nr_names, __ATOMIC_ACQUIRE);
  std::vector<NameChange> all;
  for (n = std::max(n, end - std::min<u64>(end, most_changes)); n < end; ++n) {
    const auto at = static_cast<off_t>(names_table_at + n % most_changes * sizeof(NameEntry));
    NameEntry e{}, again{};
    if (pread(threads_.get(), &e, sizeof e, at) != sizeof e || pread(threads_.get(), &again, sizeof again, at) != sizeof again)
      break;
    if (e.sequence < n + 1) break;  // it is being written, and comes with the next ones
    if (e.sequence != n + 1 || std::memcmp(&e, &again, sizeof e) != 0) continue;
    all.push_back({e.time, static_cast<i32>(e.number), static_cast<i32>(e.pid), static_cast<i32>(e.old_pid), false,
                   text_in(e.task), text_in(e.process), text_in(e.old_task), text_in(e.old_process)});
  }
  return all;
}

result<std::unique_ptr<Source>> Instance::source(u32 ring) {
  return open_ring(*this, dir_.get(), words_, ring, members_, true);
}
result<std::unique_ptr<Source>> Instance::peek(u32 ring) { return open_ring(*this, dir_.get(), words_, ring, members_, false); }

bool Instance::tracing_on() const { return __atomic_load_n(&words_.control->tracing_off, __ATOMIC_ACQUIRE) == 0; }

result<void> Instance::tracing(bool on) {
  __atomic_store_n(&words_.control->tracing_off, u64{on ? 0u : 1u}, __ATOMIC_SEQ_CST);  // before the live rings: see introduce
  switch_gates();
  return {};
}

void Instance::switch_gates() {
  for (const RingInfo& r : rings()) switch_gate_of(r.name);
}

void Instance::switch_gate_of(const RingName& ring) {
  auto view = view_ring(ring.ring);
  if (!view) return;
  const auto wanted = [&] {
    return ring.of_a_thread() ? gate_wanted(*words_.control) : gate_wanted(*words_.control, static_cast<u32>(ring.cpu));
  };
  u64 gate;
  do {  // the words may change meanwhile
    gate = wanted();
    view->gate(gate);
  } while (wanted() != gate);
}

bool Instance::cpu_in_mask(u32 cpu) const {
  const auto& off = words_.control->cpus_off;
  return cpu / 64 >= std::size(off) || (__atomic_load_n(&off[cpu / 64], __ATOMIC_SEQ_CST) >> cpu % 64 & 1) == 0;
}

result<void> Instance::set_cpumask(const std::vector<u64>& mask) {
  const auto bit = [&](u32 cpu) { return cpu / 64 < mask.size() && (mask[cpu / 64] >> cpu % 64 & 1) != 0; };
  auto& off = words_.control->cpus_off;
  const u32 cpus = cpu_rings() != 0 ? cpu_rings() : possible_cpus();
  bool all = true;
  for (u32 cpu = 0; cpu < cpus; ++cpu) all &= bit(cpu);
  if (all) {
    for (u64& word : off) __atomic_store_n(&word, u64{0}, __ATOMIC_SEQ_CST);
  } else if (cpu_rings() == 0) {
    return refuse(std::errc::invalid_argument, "rings of threads have no CPU mask: a thread writes wherever it runs");
  } else if (cpus > std::size(off) * 64) {
    return refuse(std::errc::invalid_argument, "CPUs from " + std::to_string(std::size(off) * 64) + " on cannot be left out");
  } else {
    for (u32 cpu = 0; cpu < cpus; ++cpu) {
      const u64 one = u64{1} << cpu % 64;
      if (bit(cpu))
        __atomic_fetch_and(&off[cpu / 64], ~one, __ATOMIC_SEQ_CST);
      else
        __atomic_fetch_or(&off[cpu / 64], one, __ATOMIC_SEQ_CST);
    }
  }
  switch_gates();
  return {};
}

void Instance::overwrite(bool on) {
  const u64 mode = on ? 0 : 1;
  __atomic_store_n(&words_.control->mode, static_cast<u32>(mode), __ATOMIC_SEQ_CST);  // before the live rings: see introduce
  for (const RingInfo& r : rings())
    if (auto ring = view_ring(r.name.ring); ring && r.live)
      __atomic_store_n(&ring->ring().control->mode, mode, __ATOMIC_RELEASE);
}

namespace {

// The word holds the least percentage that any reader waits for.
void ask_for(u64& word, u64 percent) noexcept {
  u64 now = __atomic_load_n(&word, __ATOMIC_RELAXED);
  while ((now == 0 || now > percent + 1) &&
         !__atomic_compare_exchange_n(&word, &now, percent + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
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
  fenced_ = sys::fence_heavy() && (words_.control->impaired & (lacks::fence | lacks::bell)) == 0;  // pairs: WAKE
  return sequence;
}

bool Instance::sleep(u32 asked, std::chrono::nanoseconds timeout) {
  i64 ns = timeout.count();
  // No membarrier, or a writer in a sandbox: a wake-up may be missed for this long.
  if (!fenced_) ns = ns < 0 ? 10'000'000 : std::min<i64>(ns, 10'000'000);
  return sys::futex_wait(&words_.control->wait.sequence, asked, ns);
}

result<bool> Instance::wait(int percent, std::chrono::nanoseconds timeout) {
  if (percent < 0 || percent > 100)
    return refuse(std::errc::invalid_argument, "a percentage of " + std::to_string(percent) + " is not possible: 0 to 100");
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
