#include "record/sample_feed.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "kernel/kernel_source.hpp"
#include "schema/format_text.hpp"
#include "source/sample_rings.hpp"
#include "stacks/judged.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"
#include "writer/process.hpp"
#include "writer/stack.hpp"

namespace ringside {
namespace {

// Neither an instance's ids nor the kernel's.
constexpr u16 sample_id = 0xEF01, stack_id = 0xEF02, code_map_id = 0xEF03;
constexpr u32 own_subbuf_size = 16384;
constexpr size_t longest_path = 3000;
constexpr const char* outside_name = "<outside>";  // of threads outside of this PID namespace: the kernel gives no number

u64 raw_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

std::string comm_of(i32 pid, i32 tid) {
  char name[17] = {};
  sys::comm_of(pid, tid, name);
  return name;
}

// PROCMAP_QUERY (Linux 6.11): the build id of what is at an address, from the kernel's own look at the file.
struct MapQuery {
  u64 size, flags, address;
  u64 start, end, vma_flags, page_size, offset, inode;
  u32 dev_major, dev_minor, name_size, build_id_size;
  u64 name, build_id;
};
static_assert(sizeof(MapQuery) == 104);
constexpr unsigned long map_query = _IOWR('f', 17, MapQuery);

// Empty: nothing.
std::string skipped_by(const SampleWalk& walk) {
  const auto& [files, maps, stacks] = walk.skipped();
  if (files + maps + stacks == 0) return "";
  return fmt::format(
      "{} stacks end early, and the tables of {} mapped files and {} places of files were not read: processes map "
      "more, or larger, files than can be looked at in time",
      stacks, files, maps);
}

}  // namespace

// ---- The clock.

RawToTicks::RawToTicks() : first_(measure()), last_(first_) {
  const timespec pause{0, 2'000'000};
  nanosleep(&pause, nullptr);
  now();
}

RawToTicks::Pair RawToTicks::measure() {
  Pair best;
  u64 width = ~u64{0};
  for (int i = 0; i < 16; ++i) {
    const u64 before = read_ticks(), ns = raw_ns(), after = read_ticks();
    if (after - before >= width) continue;
    width = after - before;
    best = {before + width / 2, ns};
  }
  return best;
}

void RawToTicks::now() { last_ = measure(); }

u64 RawToTicks::ticks(u64 ns) const {
  __extension__ using i128 = __int128;
  const auto since = static_cast<i64>(ns - last_.ns);
  const auto span = static_cast<i64>(last_.ns - first_.ns);
  if (span <= 0) return last_.ticks;
  return last_.ticks + static_cast<u64>(static_cast<i64>(i128{since} * static_cast<i64>(last_.ticks - first_.ticks) / span));
}

// ---- The feed.

result<std::unique_ptr<SampleFeed>> SampleFeed::create(Options options, const ClockInfo& clock) {
  if (clock.kind == ClockKind::counter)
    return refuse(std::errc::invalid_argument,
                  "the clock \"counter\" counts the program's events, so samples of the kernel have no place among them: use "
                  "--clock tsc or mono, for an instance when it is made");
  options.sampler.clock = counts_ticks(clock.kind) ? CLOCK_MONOTONIC_RAW : CLOCK_MONOTONIC;
  auto sampler = RS_TRY(PerfSampler::open(options.sampler));
  std::unique_ptr<SampleFeed> feed(new SampleFeed(std::move(sampler), std::move(options), clock));
  if (feed->options_.sampler.stack_bytes != 0) feed->walk_.emplace();
  if (counts_ticks(clock.kind)) feed->ticks_.emplace();
  return feed;
}

u64 SampleFeed::now() const {
  u64 ticks = 0;
  return ticks_of(clock_.kind, ticks) ? ticks : now_of(clock_);
}

void SampleFeed::add_out(u32 number) { outs_.push_back({number, Packer(own_subbuf_size)}); }

result<void> SampleFeed::begin(RecordingRun& run) {
  if (std::exchange(handing_over_, false)) {
    begin_account(true);
    for (Out& out : outs_) out.packer = Packer(own_subbuf_size);
    stacks_.clear();
  }
  if (outs_.empty()) {
    for (const PerfSampler::Ring& ring : sampler_->rings()) {
      const u32 number = first_sample_ring + ring.cpu();
      const auto same = std::find_if(outs_.begin(), outs_.end(), [&](const Out& out) { return out.number == number; });
      out_of_.push_back(static_cast<size_t>(same - outs_.begin()));
      if (same == outs_.end()) add_out(number);
    }
    add_out(first_sample_ring + (1u << 16));
  }
  for (const Out& out : outs_) {
    RingName name;
    name.ring = out.number;
    name.cpu = static_cast<i32>(out.number - first_sample_ring);
    if (&out == &outs_.back()) name.cpu = -1, name.pid = name.tid = getpid(), name.task = name.process = "ringside";
    RS_TRY(run.writer().add_ring(name, own_subbuf_size));
  }
  if (samples() && sampler_->sees_kernel()) run.keep_kernel_symbols(options_.notice);
  // What is mapped from here on is in the rings, or found now.
  mapped_before_ = now();
  if (!on_ && samples() && !sampler_->sees_others() && options_.notice)
    options_.notice(
        std::string("the processes outside of this container (PID namespace) cannot be distinguished from inside of it: "
                    "their samples are all of ") +
        outside_name + ", and their addresses have no names");
  if (!on_) RS_TRY(sampler_->on());
  on_ = true;
  look_at_processes(run);
  return {};
}

void SampleFeed::know(i32 pid, i32 tid, std::string_view name, u64 time) {
  const auto [at, fresh] = threads_.try_emplace(tid);
  RingName& thread = at->second;
  const auto leader = threads_.find(pid);
  if (!fresh && thread.pid == pid && thread.task == name) return;
  changed_ = true;
  const RingName before = thread;
  thread.tid = tid;
  thread.pid = pid;
  thread.task = name;
  thread.process = pid == tid || leader == threads_.end() ? thread.task : leader->second.task;
  if (time != 0 && before.tid != 0)
    names_.push_back({time, tid, pid, before.pid, false, thread.task, thread.process, before.task, before.process});
  if (names_.size() > most_name_changes) names_.pop_front();
  if (fresh) thread.cgroup = sys::cgroup_of(tid);
}

// ---- What was there before.

void SampleFeed::look_at_processes(RecordingRun& run) {
  bytes_at_look_ = bytes_so_far();
  if (options_.sampler.pids.empty()) {
    for (const i32 pid : numbers_in("/proc")) look_at(run, pid);
  } else {
    for (const i32 pid : options_.sampler.pids) look_at(run, pid);
  }
  flush(run, outs_.back());
}

// The kernel's answer is kept for each file. Empty: it has none, or knows no such question.
std::string SampleFeed::build_id_of(int maps, u64 address, const std::string& file) {
  const auto [at, fresh] = build_ids_.try_emplace(file);
  if (!fresh) return at->second;
  u8 id[32];
  MapQuery query{};
  query.size = sizeof query;
  query.address = address;
  query.build_id_size = sizeof id;
  query.build_id = reinterpret_cast<u64>(id);
  if (ioctl(maps, map_query, &query) == 0) at->second = sys::hex({id, std::min<size_t>(query.build_id_size, sizeof id)});
  return at->second;
}

void SampleFeed::look_at(RecordingRun& run, i32 pid) {
  know(pid, pid, comm_of(pid, pid));
  for (const i32 tid : numbers_in("/proc/" + std::to_string(pid) + "/task")) know(pid, tid, comm_of(pid, tid));
  const std::string path = "/proc/" + std::to_string(pid) + "/maps";
  const sys::Fd maps(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto text = maps ? sys::read_text(maps.get(), path) : result<std::string>(std::string());
  if (!text || text->empty()) return;  // it has ended, is the kernel's own, or another user's
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    u64 start = 0, end = 0, offset = 0;
    char rights[5] = {}, device[16] = {};
    unsigned long long inode = 0;
    int behind = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %15s %llu %n", &start, &end, rights, &offset, device, &inode, &behind) < 6 ||
        rights[2] != 'x' || start >= end)
      continue;
    std::string file = line.substr(std::min<size_t>(static_cast<size_t>(behind), line.size()));
    if (file.empty()) file = "//anon";  // as perf's records have it
    const std::string id = inode != 0 ? build_id_of(maps.get(), start, fmt::format("{} {} {}", device, inode, file)) : "";
    write_map(run, outs_.back(), mapped_before_, pid, start, end - start, offset, id, file, inode);
    if (!options_.sampler.pids.empty() || file.ends_with(" (deleted)")) hold(pid, start, end - start, id, file, inode);
  }
}

// ---- Events.

void SampleFeed::flush(RecordingRun& run, Out& out) {
  if (!out.packer.pending() || run.failed()) return;
  put(out.packer.take(), run.writer(), out.number, run.faults(), taken_);
}

void SampleFeed::write(RecordingRun& run, Out& out, u64 time, Bytes payload) {
  if (!out.packer.add(time, payload)) {
    flush(run, out);
    out.packer.restart();
    if (!out.packer.add(time, payload)) return lose(run, out, 1);  // no sub-buffer holds it
  }
  ++out.events;
}

void SampleFeed::lose(RecordingRun& run, Out& out, u64 records) {
  if (records == 0) return;
  flush(run, out);
  out.packer.lost(records);
  out.lost += records;
}

// What was mapped before, of the whole machine, is held only where its path does not find it.
void SampleFeed::hold(i32 pid, u64 start, u64 size, std::string_view build_id, std::string_view path, u64 inode) {
  if (files_ == nullptr || size == 0 || !path.starts_with('/') || path.starts_with("//")) return;
  const std::string name(path);
  files_->hold(name, build_id.empty() ? std::to_string(inode) : std::string(build_id), pid,
               [&] { return hold_mapped(pid, start, start + size, name); });
}

void SampleFeed::write_map(RecordingRun& run, Out& out, u64 time, i32 pid, u64 start, u64 size, u64 offset,
                           std::string_view build_id, std::string_view path, u64 inode) {
  if (walk_ && size != 0) walk_->map(pid, {start, start + size, offset, inode}, path, build_id);
  path = path.substr(0, longest_path);
  constexpr u32 texts = 48;
  const u64 words[] = {code_map_id | static_cast<u64>(static_cast<u32>(pid)) << 32, static_cast<u32>(pid), start, size, offset};
  const auto id_size = static_cast<u32>(build_id.size()) + 1, path_size = static_cast<u32>(path.size()) + 1;
  const u32 places[] = {texts | id_size << 16, (texts + id_size) | path_size << 16};
  payload_.assign(texts + id_size + path_size, 0);
  std::memcpy(payload_.data(), words, sizeof words);
  std::memcpy(payload_.data() + 40, places, sizeof places);
  std::memcpy(payload_.data() + texts, build_id.data(), build_id.size());
  std::memcpy(payload_.data() + texts + id_size, path.data(), path.size());
  write(run, out, time, {payload_.data(), payload_.size()});
}

void SampleFeed::take_sample(RecordingRun& run, const PerfRecord& record, Out& out) {
  constexpr u32 frames_at = 24;
  const u64 time = time_of(record);
  const u64 common = static_cast<u64>(static_cast<u32>(record.tid)) << 32;
  payload_.assign(frames_at, 0);
  const size_t most = record.chain.size / 8;
  for (size_t i = 0; i < most; ++i) {
    u64 address = 0;
    std::memcpy(&address, record.chain.data + 8 * i, 8);
    if (address == 0 || address >= perf_contexts) continue;
    payload_.insert(payload_.end(), reinterpret_cast<const u8*>(&address), reinterpret_cast<const u8*>(&address) + 8);
  }
  const size_t kernel = (payload_.size() - frames_at) / 8;
  StackEnd end = kernel >= sampler_->depth() ? StackEnd::depth : StackEnd::complete;
  if (walk_ && kernel < sampler_->depth()) {
    frames_.clear();
    end = walk_->frames(record, sampler_->depth() - kernel, frames_);
    payload_.insert(payload_.end(), reinterpret_cast<const u8*>(frames_.data()),
                    reinterpret_cast<const u8*>(frames_.data() + frames_.size()));
  }
  const auto bytes = static_cast<u32>(payload_.size() - frames_at);
  u64 stack = 0;
  if (bytes != 0) {
    stack = sys::hash({reinterpret_cast<const char*>(payload_.data()) + frames_at, bytes}) | 1;
    if (stacks_.insert(stack).second) {
      const u64 words[] = {common | stack_id, stack, frames_at | u64{bytes} << 16 | static_cast<u64>(end) << 32};
      std::memcpy(payload_.data(), words, sizeof words);
      write(run, out, time, {payload_.data(), payload_.size()});
    }
  }
  const u64 sample[] = {common | sample_id, stack, 1};
  write(run, out, time, {reinterpret_cast<const u8*>(sample), 20});
}

void SampleFeed::take(RecordingRun& run, const PerfRecord& record, Out& out) {
  using Kind = PerfRecord::Kind;
  switch (record.kind) {
    case Kind::sample:
      if (record.tid == 0 && sampler_->sees_others()) break;  // the CPU is idle
      if (record.tid == 0) know(0, 0, outside_name);
      take_sample(run, record, out);
      break;
    case Kind::map:
      if (record.pid <= 0 || record.size == 0) break;
      write_map(run, out, time_of(record), record.pid, record.start, record.size, record.offset, sys::hex(record.build_id),
                record.text, record.inode);
      hold(record.pid, record.start, record.size, sys::hex(record.build_id), record.text, record.inode);
      break;
    case Kind::name:
      if (record.tid <= 0) break;  // outside of this PID namespace
      know(record.pid, record.tid, record.text, time_of(record));
      if (record.exec && walk_) walk_->exec(record.pid);
      if (record.exec) write_map(run, out, time_of(record), record.pid, 0, 0, 0, "", "");
      break;
    case Kind::fork:
      if (record.tid <= 0) break;
      if (const auto maker = threads_.find(record.maker); maker != threads_.end())
        know(record.pid, record.tid, std::string(maker->second.task), time_of(record));
      if (record.pid == record.maker || record.pid != record.tid) break;
      if (walk_) walk_->fork(record.maker, record.pid);
      write_map(run, out, time_of(record), record.pid, 0, 0, static_cast<u32>(record.maker), "", "fork");
      break;
    case Kind::exit:
      if (walk_ && record.pid == record.tid) walk_->exit(record.pid);
      break;
    case Kind::lost:
      lose(run, out, record.lost);
      out.told_lost += record.lost;
      break;
    case Kind::throttled:
      ++throttled_;
      break;
    case Kind::other:
      break;
  }
}

bool SampleFeed::poll(RecordingRun& run) {
  if (run.failed()) {
    if (std::exchange(on_, false)) (void)sampler_->on(false);
    return false;
  }
  if (ticks_) ticks_->now();
  // In the order of time, as far as it is known: a walk takes the maps of its moment.
  std::vector<PerfSampler::Ring>& rings = sampler_->rings();
  std::vector<PerfRecords> records;
  std::vector<std::optional<PerfRecord>> next;
  for (const PerfSampler::Ring& ring : rings) {
    records.push_back(ring.records());
    next.push_back(records.back().next());
  }
  for (;;) {
    size_t first = rings.size();
    for (size_t i = 0; i < rings.size(); ++i)
      if (next[i] && (first == rings.size() || next[i]->time < next[first]->time)) first = i;
    if (first == rings.size()) break;
    take(run, *next[first], outs_[out_of_[first]]);
    next[first] = records[first].next();
  }
  for (size_t i = 0; i < rings.size(); ++i) {
    malformed_ += records[i].malformed();
    rings[i].consume(records[i]);
  }
  for (Out& out : outs_) flush(run, out);
  // The oldest part of the recording goes, and with it what names the rest.
  if (options_.max_size != 0 && bytes_so_far() - bytes_at_look_ > options_.max_size / 4) {
    stacks_.clear();
    mapped_before_ = now();
    look_at_processes(run);
  }
  return std::exchange(changed_, false);
}

void SampleFeed::describe(RecordingMeta& meta) {
  const auto add = [&](u16 id, const auto& event) {
    meta.events.push_back({id, event.system, event.name, format_text(event, id), true});
  };
  if (samples()) {
    const std::string format = format_text("sample", sample_id, sample_fields, sample_print);
    meta.events.push_back({sample_id, "ringside", "sample", format, true});
    add(stack_id, *stack_events[0]);
  }
  add(code_map_id, *stack_events[1]);
  add_unknown(meta, threads_);
  meta.names.insert(meta.names.end(), names_.begin(), names_.end());
}

Counters SampleFeed::close(RecordingRun& run) {
  if (!handing_over_ && std::exchange(on_, false)) (void)sampler_->on(false);
  if (!run.failed()) (void)poll(run);
  std::vector<u64> lost(outs_.size());
  for (size_t i = 0; i < out_of_.size(); ++i) lost[out_of_[i]] += sampler_->rings()[i].lost();
  std::vector<Counters> all;
  for (size_t i = 0; i < outs_.size(); ++i) {
    Out& out = outs_[i];
    // Losses after the last record are only in the counts.
    if (lost[i] > out.told_lost) lose(run, out, lost[i] - std::exchange(out.told_lost, lost[i]));
    flush(run, out);
    Counters c;
    c.written = out.events + out.lost;
    c.read = out.events;
    c.overrun = out.lost;
    c.subbuf_size = own_subbuf_size;
    run.writer().ring(out.number).counters = c;
    all.push_back(c);
  }
  complete_ = !handing_over_;
  if (throttled_ != 0)
    taken_.account.doubts.push_back(
        fmt::format("the kernel held samples back {} times, as they took too much of a CPU: ask for fewer in a second, or see "
                    "kernel.perf_cpu_time_max_percent",
                    throttled_));
  if (walk_)
    if (const std::string skipped = skipped_by(*walk_); !skipped.empty()) taken_.account.doubts.push_back(skipped);
  if (malformed_ != 0)
    taken_.account.doubts.push_back(fmt::format("the kernel's rings of samples held {} malformed records", malformed_));
  return sum(all);
}

}  // namespace ringside
