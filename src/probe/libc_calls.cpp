#include "probe/libc_calls.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ringside/base/check.hpp>
#include <set>
#include <sstream>

#include "kernel/kernel_source.hpp"
#include "probe/arguments.hpp"
#include "schema/format_text.hpp"
#include "source/sample_rings.hpp"
#include "stacks/elf_names.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// Neither an instance's ids, nor the kernel's, nor those of samples.
constexpr u16 first_libc_id = 0xEF11;
constexpr u32 own_subbuf_size = 16384, first_libc_ring = first_sample_ring + (1u << 15), longest_text = 4096;
constexpr size_t most_ready = 64;
constexpr size_t most_open = 8;  // calls of a thread: one that is killed, or leaves by longjmp, ends none

// As src/preload/events.hpp declares them.
struct LibcField {
  enum Kind : u8 { u64_, pointer, s32_, s64_, text } kind;
  const char* name;
};
struct LibcEvent {
  const char* name;
  std::vector<LibcField> arguments, results;  // results: of the call, at most one
  bool has_duration;
  std::vector<LibcField> fields() const {
    std::vector<LibcField> all = arguments;
    all.insert(all.end(), results.begin(), results.end());
    if (has_duration) all.push_back({LibcField::u64_, "duration_ns"});
    return all;
  }
};
const std::vector<LibcEvent>& libc_events() {
  static const std::vector<LibcEvent> all{
      {"malloc", {{LibcField::u64_, "size"}}, {{LibcField::pointer, "ptr"}}, true},
      {"calloc", {{LibcField::u64_, "nmemb"}, {LibcField::u64_, "size"}}, {{LibcField::pointer, "ptr"}}, true},
      {"realloc", {{LibcField::pointer, "old"}, {LibcField::u64_, "size"}}, {{LibcField::pointer, "ptr"}}, true},
      {"free", {{LibcField::pointer, "ptr"}}, {}, false},
      {"read", {{LibcField::s32_, "fd"}, {LibcField::u64_, "count"}}, {{LibcField::s64_, "ret"}}, true},
      {"write", {{LibcField::s32_, "fd"}, {LibcField::u64_, "count"}}, {{LibcField::s64_, "ret"}}, true},
      {"open", {{LibcField::text, "path"}, {LibcField::s32_, "flags"}}, {{LibcField::s32_, "ret"}}, true},
      {"close", {{LibcField::s32_, "fd"}}, {{LibcField::s32_, "ret"}}, false}};
  return all;
}
constexpr u32 event_free = 3;

// A function, the event that it is, and which of its arguments this has. Functions whose sizes are in memory (readv) or whose
// result is (posix_memalign) are left out.
constexpr struct {
  const char *name, *group;
  u32 event;
  u32 arguments[2];  // from 1; 0: none
} functions[] = {{"malloc", "malloc", 0, {1}},
                 {"calloc", "malloc", 1, {1, 2}},
                 {"realloc", "malloc", 2, {1, 2}},
                 {"free", "malloc", event_free, {1}},
                 {"aligned_alloc", "malloc", 0, {2}},
                 {"memalign", "malloc", 0, {2}},
                 {"valloc", "malloc", 0, {1}},
                 {"pvalloc", "malloc", 0, {1}},
                 {"read", "io", 4, {1, 3}},
                 {"pread", "io", 4, {1, 3}},
                 {"recv", "io", 4, {1, 3}},
                 {"recvfrom", "io", 4, {1, 3}},
                 {"write", "io", 5, {1, 3}},
                 {"pwrite", "io", 5, {1, 3}},
                 {"send", "io", 5, {1, 3}},
                 {"sendto", "io", 5, {1, 3}},
                 {"open", "io", 6, {1, 2}},
                 {"openat", "io", 6, {2, 3}},
                 {"close", "io", 7, {1}}};

u32 size_of(LibcField::Kind kind) { return kind == LibcField::s32_ || kind == LibcField::text ? 4 : 8; }

std::string format_of(const LibcEvent& event, u16 id) {
  static constexpr const char* types[] = {"u64", "void *", "s32", "s64", "__data_loc char[]"};
  static constexpr const char* prints[] = {"%llu", "0x%llx", "%d", "%lld", "%s"};
  std::string fields, print, values;
  u32 at = 8;
  for (const LibcField& field : event.fields()) {
    const u32 size = size_of(field.kind);
    const std::string name = field.name;
    at = (at + size - 1) / size * size;
    fields += std::string("\tfield:") + types[field.kind] + " " + name + ";\toffset:" + std::to_string(at) +
              ";\tsize:" + std::to_string(size) +
              ";\tsigned:" + (field.kind == LibcField::s32_ || field.kind == LibcField::s64_ ? "1" : "0") + ";\n";
    at += size;
    print += (print.empty() ? "" : " ") + name + "=" + prints[field.kind];
    values += field.kind == LibcField::text ? ", __get_str(" + name + ")" : ", REC->" + name;
  }
  return format_text(event.name, id, fields, "\"" + print + "\"" + values);
}

// Where a field is in the payload, by the kernel's text; 0: it has none of this name.
u32 offset_in(const std::string& format, const std::string& field) {
  const std::string mark = " " + field + ";\toffset:";
  const size_t at = format.find(mark);
  u32 offset = 0;
  if (at != std::string::npos) std::from_chars(format.data() + at + mark.size(), format.data() + format.size(), offset);
  return offset;
}

u64 number_at(Bytes payload, u32 offset, u32 size) {
  u64 value = 0;
  if (offset != 0 && offset + size <= payload.size) std::memcpy(&value, payload.data + offset, size);
  return value;
}

std::string text_at(Bytes payload, u32 offset) {
  const auto place = static_cast<u32>(number_at(payload, offset, 4));
  const u32 begin = place & 0xFFFF, size = place >> 16;
  if (size == 0 || begin + size > payload.size) return "";
  const auto* const text = reinterpret_cast<const char*>(payload.data) + begin;
  return {text, strnlen(text, std::min(size, longest_text))};
}

}  // namespace

// ---- The rings.

class LibcCalls::Ring final : public Source {
 public:
  Ring(LibcCalls& calls, size_t index, const RingName& name) : Source(name, calls.clock_), calls_(calls), index_(index) {}
  result<std::optional<SubBufferView>> next() override {
    Out& out = calls_.outs_[index_];
    calls_.pump();
    while (!out.ready.empty()) {
      out.shown = std::move(out.ready.front());
      out.ready.pop_front();
      --calls_.ready_;
      if (out.shown->pending()) return out.shown->take();
    }
    if (!out.packer.pending()) return std::nullopt;
    return out.packer.take();
  }
  Counters counters() const override {
    const Out& out = calls_.outs_[index_];
    Counters c;
    c.read = out.events;
    c.overrun = out.lost;
    c.written = c.read + c.overrun;
    c.subbuf_size = own_subbuf_size;
    c.nr_subbufs = 64;
    c.capacity_bytes = own_subbuf_size;
    return c;
  }
  bool ended() const override { return calls_.over_; }

 private:
  LibcCalls& calls_;
  size_t index_;
};

LibcCalls::LibcCalls(TracefsInstance instance, std::vector<i32> pids, const ClockInfo& clock)
    : instance_(std::move(instance)), pids_(std::move(pids)), clock_(clock) {}

result<std::string> LibcCalls::library_of(i32 pid) {
  const std::string process = "process " + std::to_string(pid), root = "/proc/" + std::to_string(pid);
  std::istringstream lines(RS_TRY(sys::read_file(root + "/maps")));
  for (std::string line; std::getline(lines, line);) {
    const size_t path = line.find('/'), name = line.rfind('/') + 1;
    if (path == std::string::npos) continue;
    if (line.compare(name, 8, "ld-musl-") == 0)
      return refuse(std::errc::not_supported, process + " uses musl, and the probes know the GNU C library alone");
    if (line.compare(name, 8, "libc.so.") != 0 && line.compare(name, 7, "libc-2.") != 0) continue;
    if (line.ends_with(" (deleted)"))
      return refuse(std::errc::no_such_file_or_directory,
                    process + " uses a C library that was removed, as by an upgrade: nothing can probe it; start it anew");
    // The file itself, whatever the mount namespace or the root of the process is.
    return root + "/map_files/" + line.substr(0, line.find(' '));
  }
  return refuse(std::errc::not_supported,
                process + " uses no C library that could be probed: it is a static program, or one without any, as Go's");
}

result<std::unique_ptr<LibcCalls>> LibcCalls::open(const Options& options, const ClockInfo& clock) {
  if (!sys::pids_are_the_kernels())
    return refuse(
        std::errc::not_supported,
        "calls of a process that runs already cannot be distinguished in a PID namespace (a container): record outside of it");
  TracefsOptions make;
  make.buffer_size = options.buffer_size;
  make.subbuf_size = options.subbuf_size;
  make.clock = clock.kind;
  auto instance = RS_TRY(TracefsInstance::create(make));
  std::unique_ptr<LibcCalls> calls(new LibcCalls(std::move(instance), options.pids, clock));
  RS_TRY(calls->probe(options));
  for (const i32 pid : options.pids) {
    RS_TRY(calls->instance_.follow_process(pid));
    for (const i32 tid : numbers_in("/proc/" + std::to_string(pid) + "/task")) {
      char task[17] = {};
      sys::comm_of(pid, tid, task);
      RingName& thread = calls->threads_[tid];
      thread.pid = pid;
      thread.tid = tid;
      thread.task = task;
    }
  }
  RS_TRY(calls->instance_.write("options/event-fork", "1"));
  auto rings = RS_TRY(open_kernel_rings(calls->instance_.dir(), calls->instance_.cpus(), clock, {}));
  for (auto& source : rings.sources) {
    RingName name;
    name.cpu = source->name().its_cpu();
    name.ring = first_libc_ring + static_cast<u32>(name.cpu);
    calls->outs_.push_back({Packer(own_subbuf_size)});
    calls->sources_.push_back(std::make_unique<Ring>(*calls, calls->outs_.size() - 1, name));
    calls->timeline_.add(std::move(source));
  }
  calls->timeline_.follow();
  return calls;
}

result<void> LibcCalls::probe(const Options& options) {
  std::set<std::string> libraries, places;
  for (const i32 pid : options.pids) libraries.insert(RS_TRY(library_of(pid)));
  std::vector<ProbePoint> points;
  std::vector<std::string> notices;
  std::set<u32> used;
  std::string named;
  std::set<std::pair<u64, u64>> files;
  for (const std::string& library : libraries) {
    sys::Fd file = RS_TRY(sys::open_regular(library));
    struct stat st {};
    char name[256];
    const ssize_t length = readlink(library.c_str(), name, sizeof name);
    if (fstat(file.get(), &st) != 0 || length < 0) return fail(errno, "cannot look at " + library);
    if (!files.emplace(st.st_dev, st.st_ino).second) continue;  // two processes use it
    named += (named.empty() ? "" : ", ") + std::string(name, static_cast<size_t>(length));
    const auto elf = RS_TRY(ElfNames::open(library, "", nullptr, std::move(file)));
    for (u32 n = 0; n < std::size(functions); ++n) {
      const auto& function = functions[n];
      if (std::count(options.groups.begin(), options.groups.end(), function.group) == 0) continue;
      const LibcEvent& event = libc_events()[function.event];
      std::string list;
      for (size_t a = 0; a < event.arguments.size(); ++a)
        list += (a == 0 ? "a" : ", a") + std::to_string(a) + "=$arg" + std::to_string(function.arguments[a]) +
                (event.arguments[a].kind == LibcField::text ? ":ustring" : ":u64");
      const auto arguments = RS_TRY(parse_arguments(list));
      const std::string fetch = RS_TRY(fetch_of(arguments, nullptr, "", notices));
      for (const auto& [begin, size] : elf->named(function.name)) {
        ProbePoint point{"libc", "call_" + std::to_string(n), false, false, fmt::format("{}:{:#x}", library, begin), fetch};
        if (!places.insert(point.place).second) continue;  // two names of one function
        points.push_back(point);
        used.insert(function.event);
        if (event.results.empty()) continue;
        point.name = "return_" + std::to_string(n);
        point.at_return = true;
        point.fetch = "a0=$retval:u64";
        points.push_back(std::move(point));
      }
    }
  }
  if (points.empty()) return refuse(std::errc::not_supported, named + " has none of the functions that --libc probes");
  probes_.emplace(RS_TRY(ProbeGroup::define(instance_, points, "")));
  for (const ProbeGroup::Event& event : probes_->events()) {
    Probed probed;
    probed.at_return = event.name.starts_with("return_");
    const std::string number = event.name.substr(event.name.find('_') + 1);
    std::from_chars(number.data(), number.data() + number.size(), probed.function);
    RINGSIDE_CHECK(probed.function < std::size(functions), "a probe of the C library is one of a function");
    for (const char* const field : {"a0", "a1"}) probed.arguments.push_back(offset_in(event.info.format, field));
    probed_[event.info.id] = std::move(probed);
  }
  for (const u32 n : used) {
    EventInfo info;
    info.id = static_cast<u16>(first_libc_id + n);
    info.system = "libc";
    info.name = libc_events()[n].name;
    info.format = format_of(libc_events()[n], info.id);
    info.enabled = true;
    events_.push_back(std::move(info));
  }
  if (!options.notice) return {};
  options.notice("probing " + std::to_string(places.size()) + " functions of " + named +
                 ": each process that uses this file is stopped for a microsecond or two at each of their calls and returns, "
                 "whether its calls are recorded or not");
  return {};
}

// The kernel keeps the names of the last 128 threads.
void LibcCalls::learn_names() {
  const std::string dir = instance_.dir() + "/../../";
  for (auto& [tid, task] : sys::cmdlines_of(sys::read_file(dir + "saved_cmdlines")))
    if (const auto at = threads_.find(tid); at != threads_.end()) at->second.task = std::move(task);
  for (const auto& [tid, pid] : sys::tgids_of(sys::read_file(dir + "saved_tgids")))
    if (const auto at = threads_.find(tid); at != threads_.end()) at->second.pid = pid;
  for (auto& [tid, thread] : threads_) {
    if (thread.pid == 0) thread.pid = tid;
    const auto process = threads_.find(thread.pid);
    thread.process = process != threads_.end() ? process->second.task : thread.task;
    if (thread.cgroup.empty()) thread.cgroup = sys::cgroup_of(tid);
  }
}

std::vector<RingName> LibcCalls::threads() {
  learn_names();
  std::vector<RingName> all;
  for (const auto& [tid, thread] : threads_) all.push_back(thread);
  return all;
}

void LibcCalls::off() {
  if (over_) return;
  (void)instance_.tracing(false);
  timeline_.finish();
  over_ = true;
}

// ---- The calls.

// The recorder's own calls are probed as well, so it reads seldom, and much at once.
void LibcCalls::pump() {
  constexpr u64 pause_ns = 10'000'000, most_ns = 50'000'000, learn_every_ns = 300'000'000;
  const u64 now = sys::now_ns();
  if (now < pump_again_ns_ && !over_) return;
  TraceRecord record;
  for (u32 n = 1; ready_ < most_ready * outs_.size() && timeline_.next(record); ++n) {
    take(record);
    if (n % 256 == 0 && sys::now_ns() - now > most_ns) break;  // events may come as fast as they are taken
  }
  pump_again_ns_ = sys::now_ns() + pause_ns;
  if (now < learn_again_ns_ && !over_) return;
  learn_again_ns_ = now + learn_every_ns;
  learn_names();
}

void LibcCalls::begin_another(Out& out) {
  out.ready.push_back(std::move(out.packer));
  ++ready_;
  out.packer = Packer(own_subbuf_size);
}

void LibcCalls::take(const TraceRecord& record) {
  Out& out = outs_[record.source];
  if (record.lost != 0) {
    open_.clear();  // what was lost may be the return of any
    begin_another(out);
    out.packer.lost(record.lost);
    out.lost += record.lost;
    return;
  }
  const auto probed = probed_.find(event_id(record.payload));
  if (probed == probed_.end()) return;
  const u32 n = probed->second.function;
  const std::vector<u32>& arguments = probed->second.arguments;
  const auto& function = functions[n];
  const LibcEvent& event = libc_events()[function.event];
  const auto tid = static_cast<i32>(number_at(record.payload, 4, 4));
  if (!probed->second.at_return) {
    Call call{n, false, record.time, {}, {}};
    if (const auto [thread, fresh] = threads_.try_emplace(tid); fresh) thread->second.tid = tid;
    for (size_t a = 0; a < event.arguments.size(); ++a) {
      if (event.arguments[a].kind == LibcField::text)
        call.text = text_at(record.payload, arguments[a]);
      else
        call.numbers[a] = number_at(record.payload, arguments[a], 8);
    }
    const auto of_thread = open_.find(tid);
    const auto same = [&](const Call& other) { return functions[other.function].group == std::string_view(function.group); };
    call.nested = of_thread != open_.end() && std::any_of(of_thread->second.begin(), of_thread->second.end(), same);
    if (event.results.empty()) {
      const bool none = function.event == event_free && call.numbers[0] == 0;
      if (!call.nested && !none) write(out, call, tid, 0, record.time);
      return;
    }
    auto& calls = open_[tid];
    if (calls.size() == most_open) calls.erase(calls.begin());
    calls.push_back(std::move(call));
    return;
  }
  const auto of_thread = open_.find(tid);
  if (of_thread == open_.end()) return;
  auto& calls = of_thread->second;
  while (!calls.empty() && calls.back().function != n &&
         std::any_of(calls.begin(), calls.end(), [&](const Call& call) { return call.function == n; }))
    calls.pop_back();                                       // left by longjmp
  if (calls.empty() || calls.back().function != n) return;  // it began before all of this
  const Call call = std::move(calls.back());
  calls.pop_back();
  if (!call.nested) write(out, call, tid, number_at(record.payload, arguments[0], 8), record.time);
}

void LibcCalls::write(Out& out, const Call& call, i32 tid, u64 result, u64 time) {
  const u32 which = functions[call.function].event;
  const LibcEvent& event = libc_events()[which];
  const u64 common = static_cast<u16>(first_libc_id + which) | static_cast<u64>(static_cast<u32>(tid)) << 32;
  payload_.resize(8);
  std::memcpy(payload_.data(), &common, 8);
  u32 text_place = 0;
  const auto add = [&](const LibcField& field, u64 value) {
    const u32 size = size_of(field.kind);
    const size_t at = (payload_.size() + size - 1) / size * size;
    payload_.resize(at + size);
    if (field.kind == LibcField::text) text_place = static_cast<u32>(at);
    std::memcpy(payload_.data() + at, &value, size);
  };
  for (size_t n = 0; n < event.arguments.size(); ++n) add(event.arguments[n], call.numbers[n]);
  if (!event.results.empty()) add(event.results[0], result);
  if (event.has_duration) add({LibcField::u64_, ""}, time - call.time);
  if (text_place != 0) {
    const u32 place = static_cast<u32>(payload_.size()) | static_cast<u32>(call.text.size() + 1) << 16;
    std::memcpy(payload_.data() + text_place, &place, sizeof place);
    payload_.insert(payload_.end(), call.text.begin(), call.text.end());
    payload_.push_back(0);
  }
  ++out.events;
  const Bytes bytes{payload_.data(), payload_.size()};
  if (out.packer.add(ticks(time), bytes)) return;
  begin_another(out);
  RINGSIDE_CHECK(out.packer.add(ticks(time), bytes), "a sub-buffer holds an event of the C library");
}

// The first tick of this moment.
u64 LibcCalls::ticks(u64 ns) const {
  __extension__ using i128 = __int128;
  const i128 since = i128{static_cast<i64>(ns - clock_.base_ns)} << clock_.shift;
  return clock_.base_ticks + static_cast<u64>(static_cast<i64>((since + clock_.mult - 1) / clock_.mult));
}

}  // namespace ringside
