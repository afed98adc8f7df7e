#include "mount/mounted.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "instance/ring_source.hpp"
#include "sys/try.hpp"

namespace ringside::mount {

Alarm::Alarm(Instance& instance, int event_fd) : instance_(instance), event_fd_(event_fd), thread_([this] { run(); }) {}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Alarm::set(u32 asked, bool late) {
  {
    const std::lock_guard lock(mutex_);
    asked_ = asked;
    late_ = late;
  }
  changed_.notify_one();
}

void Alarm::run() {
  for (;;) {
    u32 asked;
    bool late;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return over_ || asked_.has_value(); });
      if (over_) return;
      asked = *asked_;
      late = late_;
      asked_.reset();
    }
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    instance_.sleep(asked, std::chrono::milliseconds(100));
    const u64 one = 1;
    (void)!::write(event_fd_, &one, sizeof one);
  }
}

result<std::shared_ptr<Mounted>> Mounted::open(const std::string& name_or_path, int event_fd, u32 cpus) {
  std::shared_ptr<Mounted> mounted(new Mounted(RS_TRY(Instance::open(name_or_path))));
  mounted->event_fd_ = event_fd;
  mounted->fewest_cpus_ = cpus;
  struct stat st {};
  if (fstat(mounted->dir(), &st) != 0) return fail(errno, "cannot open " + mounted->path());
  mounted->inode_ = st.st_ino;
  return mounted;
}

bool Mounted::removed() const {
  struct stat here {}, now {};
  return fstatat(dir(), "instance", &here, AT_SYMLINK_NOFOLLOW) != 0 || stat(instance_->path().c_str(), &now) != 0 ||
         now.st_ino != inode_;
}

u32 Mounted::cpus() const {
  const u64 rings = std::min<u64>(__atomic_load_n(&instance_->control().nr_rings, __ATOMIC_ACQUIRE), most_rings);
  return std::max(static_cast<u32>(rings), fewest_cpus_);
}

bool Mounted::has_ring(u32 n) const {
  const InstanceControl& c = instance_->control();
  if (n >= std::min<u64>(__atomic_load_n(&c.nr_rings, __ATOMIC_ACQUIRE), most_rings)) return false;
  const InstanceWords words{const_cast<InstanceControl*>(&c)};
  const RingState state = state_of(__atomic_load_n(&words.ring(n).state, __ATOMIC_ACQUIRE));
  return state == RingState::live || state == RingState::retired;
}

result<RingView> Mounted::look(u32 ring) const {
  if (!has_ring(ring)) return fail(ENODEV, "there is no ring " + std::to_string(ring));
  return instance_->look(ring);
}

result<RingTable*> Mounted::serve() {
  if (!table_) {
    auto table = RS_TRY(RingTable::open(path()));
    table_.emplace(std::move(table));
  }
  return &*table_;
}

void Mounted::release() {
  if (users == 0) table_.reset();
}

void Mounted::refresh() {
  if (__atomic_load_n(&instance_->control().nr_events, __ATOMIC_ACQUIRE) != formats_.all().size())
    for (const EventInfo& e : instance_->events())
      if (formats_.find(e.number()) == nullptr) (void)formats_.add(e.number(), e.system, e.name, e.format);
  struct stat st {};
  const bool saved = fstatat(dir(), "saved_cmdlines", &st, AT_SYMLINK_NOFOLLOW) == 0;
  if (saved && st.st_size != names_size_) {
    names_size_ = st.st_size;  // it only grows
    for (const auto& [tid, name] : sys::cmdlines_of(instance_->read("saved_cmdlines"))) tasks_.add(Task{0, tid, name, name});
  }
  if (const u64 seen = instance_->threads_seen(); seen != threads_seen_) {
    threads_seen_ = seen;
    for (const RingName& thread : instance_->threads()) tasks_.add(thread);
  }
}

bool Mounted::filtered() const {
  return !pids.empty() || !notrace_pids.empty() || std::any_of(filters.begin(), filters.end(), [](const auto& f) { return f.second.filter.has_value(); });
}

bool Mounted::wanted(const TraceRecord& record, const RingName& ring) {
  if (record.lost != 0) return true;
  const Common common = read_common(record.payload);
  if (!pids.empty() || !notrace_pids.empty()) {
    const EventType* type = formats_.find(common.id);
    const auto has = [&](const std::set<i32>& all) { return all.count(common.tid) != 0 || all.count(tasks_.seen(common.tid, ring)) != 0; };
    const bool chosen = (pids.empty() || has(pids)) && !has(notrace_pids);
    if (!chosen && (type == nullptr || type->system != "ftrace")) return false;
  }
  const auto found = filters.find(common.id);
  return found == filters.end() || !found->second.filter || found->second.filter->matches(record, ring);
}

void Mounted::alarm(int percent, bool late) {
  try {
    if (!alarm_) alarm_ = std::make_unique<Alarm>(*instance_, event_fd_);
  } catch (const std::system_error&) {  // no thread can be had now: who waits looks again at once
    const u64 one = 1;
    (void)!::write(event_fd_, &one, sizeof one);
    return;
  }
  alarm_->set(instance_->ask(percent), late);
}

}  // namespace ringside::mount
