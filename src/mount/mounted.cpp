#include "mount/mounted.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "instance/ring_source.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

constexpr size_t most_lanes_kept = 512;  // each keeps two mappings

}  // namespace

struct Mounted::Lane {
  std::optional<RingView> own;  // unless the ring is mapped: RingTable has it open then
  u32 tid = 0;                  // of the ring's entry when it was opened: another one may be in its place by now
  RingView* locked = nullptr;
  SubBufferView shown;
  u32 events = 0;  // events in it, by the writer's count
  Error error;
};

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
    eventfd_write(event_fd_, 1);
  }
}

result<std::shared_ptr<Mounted>> Mounted::open(const std::string& name_or_path, int event_fd, u32 cpus) {
  auto instance = RS_TRY(Instance::open(name_or_path));
  instance->impatient();
  std::shared_ptr<Mounted> mounted(new Mounted(std::move(instance)));
  mounted->event_fd_ = event_fd;
  mounted->fewest_cpus_ = cpus;
  mounted->triggers_ = std::make_unique<Triggers>(*mounted->instance_, [event_fd] { eventfd_write(event_fd, 1); });
  struct stat st {};
  if (fstat(mounted->dir(), &st) != 0) return fail(errno, "cannot open " + mounted->path());
  mounted->inode_ = st.st_ino;
  return mounted;
}

Mounted::Mounted(std::unique_ptr<Instance> instance) : instance_(std::move(instance)), marker_(instance_->path()) {}
Mounted::~Mounted() = default;

result<std::shared_ptr<Mounted>> Mounted::snapshot() {
  if (auto known = snapshot_.lock(); known != nullptr && !known->removed()) return known;
  auto opened = RS_TRY(open(path() + "/snapshot", event_fd_, cpus()));
  snapshot_ = opened;
  return opened;
}

bool Mounted::removed() const {
  struct stat here {}, now {};
  if (fstatat(dir(), "instance", &here, AT_SYMLINK_NOFOLLOW) != 0 || stat(instance_->path().c_str(), &now) != 0)
    return errno == ENOENT || errno == ENOTDIR || errno == ESTALE;  // what fails for want of memory says nothing about it
  return now.st_ino != inode_;
}

u32 Mounted::cpus() const {
  auto n = instance_->words().nr_rings();
  while (n > fewest_cpus_ && !has_ring(n - 1)) --n;
  return std::max(n, fewest_cpus_);
}

bool Mounted::has_ring(u32 n) const {
  if (n >= instance_->words().nr_rings()) return false;
  const RingState state = state_of(__atomic_load_n(&instance_->words().ring(n).state, __ATOMIC_ACQUIRE));
  return state == RingState::live || state == RingState::retired;
}

RingName Mounted::name(u32 ring) const { return name_of(ring, instance_->words().ring(ring)); }

std::vector<EventName> Mounted::own_events() const {
  std::vector<EventName> all;
  const InstanceWords words = instance_->words();
  words.each_event([&](u32 number, const EventEntry& e) {
    EventName event{static_cast<u16>(abi::event_id(number)), text_in(e.system), text_in(e.name),
                    __atomic_load_n(&e.enabled, __ATOMIC_RELAXED) != 0};
    event.marker = event.system == "ftrace";
    event.folder = words.event_folder(number);
    all.push_back(std::move(event));
  });
  return all;
}

std::vector<EventName> Mounted::events() {
  std::vector<EventName> all = own_events();
  if (!others) return all;
  std::set<u16> ids;
  std::set<std::pair<std::string, std::string>> folders;
  for (const EventName& e : all) {
    ids.insert(e.id);
    folders.insert({e.system, e.folder});
  }
  // Those that a program declares here later are switched by the same patterns.
  const auto patterns = read_patterns(dir());
  const Switches switches(patterns ? *patterns : std::vector<std::string>{});
  for (const auto& other : others()) {
    for (EventName& e : other->own_events()) {
      if (!ids.insert(e.id).second) continue;
      elsewhere_[e.id] = {other, e.folder};
      e.elsewhere = true;
      e.enabled = e.marker || switches.on(e.system, e.name);
      e.folder = e.name;
      if (!folders.insert({e.system, e.folder}).second) e.folder += "." + std::to_string(e.id - abi::event_id(0));
      folders.insert({e.system, e.folder});
      all.push_back(std::move(e));
    }
  }
  return all;
}

result<std::string> Mounted::format_of(const EventName& event) const {
  const auto text = [](const Mounted& in, const EventName& e, const std::string& folder) {
    return in.instance_->read("events/" + e.system + "/" + folder + "/format");
  };
  if (!event.elsewhere) return text(*this, event, event.folder);
  const auto at = elsewhere_.find(event.id);
  const auto in = at != elsewhere_.end() ? at->second.in.lock() : nullptr;
  if (in == nullptr) return fail(ENODEV, event.name);
  return text(*in, event, at->second.folder);
}

void Mounted::know_formats() {
  refresh();
  for (const EventName& e : events())
    if (e.elsewhere && formats_.find(e.id) == nullptr)
      if (const auto text = format_of(e)) formats_.add(e.id, e.system, e.name, *text);
}

u64 Mounted::refresh() {
  if (const u64 made = instance_->words().nr_events(); std::exchange(events_seen_, made) != made) {
    for (const EventInfo& e : instance_->events()) {
      if (!own_formats_.insert(e.number()).second) continue;
      // A neighbour's event may have had the number before, and its instance is gone.
      if (const EventType* const was = formats_.find(e.number());
          was != nullptr && (was->system != e.system || was->name != e.name))
        filters.erase(e.number());
      formats_.add(e.number(), e.system, e.name, e.format);
    }
    ++changes_;
  }
  struct stat st {};
  const bool saved = fstatat(dir(), "saved_cmdlines", &st, AT_SYMLINK_NOFOLLOW) == 0;
  if (saved && st.st_size != names_size_) {
    names_size_ = st.st_size;  // it only grows
    for (const auto& [tid, name] : sys::cmdlines_of(instance_->read("saved_cmdlines"))) tasks_.add(Task{0, tid, name, name});
    ++changes_;
  }
  if (const u64 seen = instance_->threads_seen(); seen != threads_seen_) {
    threads_seen_ = seen;
    const std::vector<RingName> threads = instance_->threads();
    for (const RingName& thread : threads) tasks_.add(thread);
    follow_forks(threads);
    ++changes_;
  }
  return changes_;
}

// The option event-fork: children of processes in the lists belong to them as well. Each thread is checked once, when it first
// writes.
void Mounted::follow_forks(const std::vector<RingName>& threads) {
  const bool follow = has_option("event-fork");
  for (const RingName& t : threads) {
    if (!born_.insert(t.tid).second || !follow) continue;
    const i32 pid = t.elsewhere.seen_pid(t.pid), parent = sys::parent_of(pid);
    for (std::set<i32>* list : {&pids, &notrace_pids})
      if (list->size() < most_pids && (list->count(pid) != 0 || (parent > 0 && list->count(parent) != 0)))
        list->insert(t.elsewhere.seen_tid(t.tid));
  }
}

// The process that writes markers waits for the instance's lock longer than the mount may wait for that process.
result<void> Mounted::start_marker() {
  if (marker_.started()) return {};
  RS_TRY(instance_->unlocked());
  return marker_.start();
}

result<void> Mounted::mark(bool raw, std::string_view bytes, i32 tid) {
  RS_TRY(start_marker());
  RS_TRY(marker_.write(raw, bytes, tid));
  const char* const name = raw ? "raw_data" : "print";
  if (!triggers_->has_marker(name)) return {};
  // The event again, as it is in the ring.
  refresh();
  std::vector<u64> event((bytes.size() + 16) / 8 + 1);
  auto* const at = reinterpret_cast<u8*>(event.data());
  for (const auto& type : formats_.all())
    if (type->system == "ftrace" && type->name == name) std::memcpy(at, &type->id, 2);
  std::memcpy(at + 4, &tid, 4);
  const u32 head = raw ? 8 : 16;
  std::memcpy(at + head, bytes.data(), bytes.size());
  TraceRecord record{};
  record.time = triggers_->now();
  record.payload = {at, static_cast<u32>(head + bytes.size() + (raw ? 0 : 1))};
  triggers_->marker(name, record, RingName{}, formats_, tasks_);
  return {};
}

result<std::shared_ptr<Job>> Mounted::reset(Only only) {
  if (!only) {
    RS_TRY(instance_->reset());
    instance_->trim(false);
  } else if (has_ring(*only)) {
    RS_TRY(instance_->reset(*only));
  }
  return nullptr;
}

Peeked Mounted::peek(Only only) {
  Peeked all;
  // Writers may be faster than this read.
  if (clock().kind != ClockKind::counter) all.until_ns = sys::now_ns() + 10'000'000;  // as exact as ticks become ns
  for (const RingInfo& r : instance_->rings()) {
    if (only && r.name.ring != *only) continue;
    auto source = instance_->peek(r.name.ring);
    if (!source && source.error().code == std::errc::no_such_file_or_directory) continue;  // given back just now
    if (!source && source.error().code == std::errc::invalid_argument) {
      all.missing.push_back(source.error().sentence);
      continue;
    }
    if (!source) {
      all.problem = source.error();
      break;
    }
    all.in_buffer += r.counters.unread;
    all.overrun += r.counters.overrun;
    tasks_.add(r.name);
    all.sources.push_back(std::move(*source));
  }
  return all;
}

// Null: the ring is not there. A ring that is not there yet may be open: it comes when its thread does.
RingView* Mounted::view_of(u32 ring) {
  const auto at = lanes_.find(ring);
  if (at != lanes_.end() && at->second.locked != nullptr) return at->second.locked;
  if (table_)
    if (auto mapped = table_->view(ring)) return *mapped;
  if (!has_ring(ring)) return nullptr;
  const u32 tid = __atomic_load_n(&instance_->words().ring(ring).tid, __ATOMIC_ACQUIRE);
  if (at != lanes_.end() && at->second.own && at->second.tid == tid && !at->second.own->cut() && !at->second.own->is_cleared())
    return &*at->second.own;
  auto looked = instance_->view_ring(ring);
  if (!looked) return nullptr;
  tasks_.add(name(ring));
  ++changes_;
  Lane& lane = lanes_[ring];
  lane.tid = tid;
  lane.own.emplace(std::move(*looked));
  return &*lane.own;
}

u32 Mounted::subbuf_size(u32 ring) {
  const RingView* const v = view_of(ring);
  return v != nullptr ? v->ring().geometry.subbuf_size() : geometry_of(instance_->control()).subbuf_size();
}

result<Counters> Mounted::counters(u32 ring) {
  if (!has_ring(ring)) return Counters{};
  auto view = RS_TRY(instance_->view_ring(ring));
  return view.counters();
}

Found Mounted::find(u32 ring, Asker&) {
  RingView* const v = view_of(ring);
  if (v == nullptr) return Found::nothing;
  Lane& lane = lanes_[ring];
  const auto failed = [&](std::errc code, const char* why) {
    done(ring);
    lanes_[ring].error = refuse(code, "ring " + std::to_string(ring) + why).value();
    return Found::failed;
  };
  if (lane.locked == nullptr && !v->lock()) {
    if (v->is_another()) return Found::nothing;  // it has just been given back
    return failed(std::errc::device_or_resource_busy, " is being consumed by another process");
  }
  lane.locked = v;
  switch (v->reader().peek()) {
    case Got::corrupt: return failed(std::errc::io_error, ": its control words contradict each other");
    case Got::data: break;
    default: done(ring); return Found::nothing;
  }
  const ReaderView seen = v->reader().view();
  const u8* const data = v->reader().data();
  const u64 stamp = reinterpret_cast<const abi::SubBufferHeader*>(data - abi::header_size)->time_stamp;
  lane.shown = {data - abi::header_size, seen.begin, seen.end, seen.lost_before,
                seen.begin == 0 ? stamp : abi::time_before(data, 0, seen.begin, stamp)};
  lane.events = seen.events;
  return Found::data;
}

SubBufferView Mounted::view(u32 ring) const { return lanes_.at(ring).shown; }

void Mounted::consume(u32 ring, u32 end, u32 events) {
  const Lane& lane = lanes_.at(ring);
  lane.locked->reader().consume(end - lane.shown.begin, end == lane.shown.end ? lane.events : std::min(events, lane.events));
}

void Mounted::done(u32 ring) {
  const auto at = lanes_.find(ring);
  if (at == lanes_.end()) return;
  if (RingView* const v = std::exchange(at->second.locked, nullptr)) v->unlock();
  if (lanes_.size() > most_lanes_kept) lanes_.erase(at);
}

Error Mounted::error(u32 ring) const {
  const auto at = lanes_.find(ring);
  return at != lanes_.end() ? at->second.error : Error{};
}

bool Mounted::ready(u32 ring, u32 percent) {
  const RingView* const v = view_of(ring);
  const bool is_ready = v != nullptr && ring_ready(v->ring(), percent);
  done(ring);
  return is_ready;
}

result<sys::Fd> Mounted::map(u32 ring) {
  if (!table_) table_.emplace(RS_TRY(RingTable::open(path())));
  auto handed = table_->open(ring);
  if (!handed) {
    if (mappings_ == 0) table_.reset();
    return tl::unexpected<Error>(handed.error());
  }
  ++mappings_;
  return std::move(handed->file);
}

void Mounted::unmap(u32 ring) {
  table_->close(ring);
  if (--mappings_ == 0) table_.reset();
}

// The ring may be mapped by any client: not of necessity through this descriptor.
result<bool> Mounted::get_reader(u32 ring, Asker&, bool) {
  if (!table_) return fail(ENODEV, "the ring is not mapped");
  RS_TRY(table_->get_reader(ring));
  return true;
}

bool Mounted::filtered() const {
  return triggers_->any_hidden() || !pids.empty() || !notrace_pids.empty() ||
         std::any_of(filters.begin(), filters.end(), [](const auto& f) { return f.second.filter.has_value(); });
}

bool Mounted::wanted(const TraceRecord& record, const RingName& ring) {
  if (record.lost != 0) return true;
  if (triggers_->hidden(record.time)) return false;
  const Common common = read_common(record.payload);
  if (!pids.empty() || !notrace_pids.empty()) {
    const EventType* type = formats_.find(common.id);
    const auto has = [&](const std::set<i32>& all) {
      return all.count(common.tid) != 0 || all.count(tasks_.seen(common.tid, ring)) != 0;
    };
    const bool chosen = (pids.empty() || has(pids)) && !has(notrace_pids);
    if (!chosen && (type == nullptr || type->system != "ftrace")) return false;
  }
  const auto found = filters.find(common.id);
  return found == filters.end() || !found->second.filter || found->second.filter->matches(record, ring);
}

void Mounted::alarm(int percent, bool late) {
  try {
    if (!alarm_) alarm_ = std::make_unique<Alarm>(*instance_, event_fd_);
  } catch (const std::system_error&) {  // no thread is available now: the waiting request checks again at once
    eventfd_write(event_fd_, 1);
    return;
  }
  alarm_->set(instance_->ask(percent), late);
}

}  // namespace ringside::mount
