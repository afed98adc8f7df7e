#include "export/trace_dat.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ringside/abi/sub_buffer.hpp>

#include "schema/format_text.hpp"
#include "sys/sys.hpp"

namespace ringside {
namespace {

constexpr u32 most_cpus = 65536;
enum Option : u16 { done = 0, trace_clock = 4, ts_offset = 7, tsc_to_ns = 14 };

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Strings that the format wants with their NUL.
void put_name(std::string& out, const std::string& name) { out.append(name.c_str(), name.size() + 1); }

template <class Size>
void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<Size>(text.size()));
  out += text;
}

void put_option(std::string& out, Option option, const std::string& data) {
  put<u16>(out, option);
  put_text<u32>(out, data);
}

// What stands between the version and the table of CPUs.
std::string describe(const TraceDat& dat, u32 subbuf_size, u32 cpus) {
  std::string out;
  put_name(out, "header_page");
  put_text<u64>(out, header_page_text(subbuf_size));
  put_name(out, "header_event");
  put_text<u64>(out, std::string(header_event_text()));

  std::map<std::string, std::vector<const EventInfo*>> systems;
  for (const EventInfo& e : dat.events) systems[e.kernel || e.system != "ftrace" ? e.system : "ftrace_"].push_back(&e);
  const auto& internal = systems["ftrace"];
  put(out, static_cast<u32>(internal.size()));
  for (const EventInfo* e : internal) put_text<u64>(out, e->format);
  systems.erase("ftrace");
  put(out, static_cast<u32>(systems.size()));
  for (const auto& [system, events] : systems) {
    put_name(out, system);
    put(out, static_cast<u32>(events.size()));
    for (const EventInfo* e : events) put_text<u64>(out, e->format);
  }
  put_text<u32>(out, dat.kallsyms);
  put_text<u32>(out, dat.printk_formats);
  std::string comms;
  for (const auto& [tid, comm] : dat.tasks) comms += fmt::format("{} {}\n", tid, comm);
  put_text<u64>(out, comms);
  put(out, cpus);
  return out;
}

std::string clock_options(const ClockInfo& clock) {
  std::string out;
  const std::string name = fmt::format("[{}]", to_string(clock.kind));
  put_name(out, "options  ");
  put_option(out, trace_clock, name);
  if (clock.kind == ClockKind::tsc) {
    // Theirs: (ticks * mult >> shift) + offset, exact because base_ticks * mult has no bits below the shift. The offset within
    // tsc_to_ns itself is read by trace-cmd, but not used.
    __extension__ using u128 = unsigned __int128;
    std::string data;
    put(data, clock.mult);
    put(data, clock.shift);
    put(data, u64{0});
    put_option(out, tsc_to_ns, data);
    const auto base = static_cast<u64>(u128{clock.base_ticks} * clock.mult >> clock.shift);
    put_option(out, ts_offset, fmt::format("{}", static_cast<i64>(clock.base_ns - base)) + '\0');
  }
  put<u16>(out, done);
  return out;
}

result<void> write_at(int fd, const void* bytes, size_t size, u64 at, const std::string& path) {
  const auto* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = pwrite(fd, from, size, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno, "cannot write " + path);
    from += n;
    at += static_cast<u64>(n);
    size -= static_cast<size_t>(n);
  }
  return {};
}

// Removes what was not finished.
struct Unfinished {
  std::string path;
  ~Unfinished() {
    if (!path.empty()) unlink(path.c_str());
  }
};

}  // namespace

result<TraceDatSize> write_trace_dat(const std::string& path, TraceDat& dat) {
  u32 subbuf_size = page_size, cpus = 0;
  for (const auto& ring : dat.rings) {
    subbuf_size = std::max(subbuf_size, static_cast<u32>(ring->counters().subbuf_size));
    cpus = std::max(cpus, ring->name().ring + 1);
  }
  if (cpus > most_cpus) return refuse(std::errc::too_many_files_open, "a trace.dat for " + std::to_string(cpus) + " rings is more than trace-cmd can read");
  std::string head("\x17\x08\x44tracing", 10);
  put_name(head, "6");
  head += '\0';  // little endian
  head += '\x08';
  put(head, subbuf_size);
  head += describe(dat, subbuf_size, cpus) + clock_options(dat.clock);
  put_name(head, "flyrecord");
  const size_t table = head.size();
  head.append(size_t{cpus} * 16, '\0');
  put_text<u64>(head, fmt::format("[{}]", to_string(dat.clock.kind)));

  Unfinished unfinished{path + ".new"};
  const sys::Fd fd(open(unfinished.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return fail(errno, "cannot make " + unfinished.path);
  TraceDatSize size;
  const auto aligned = [&](u64 at) { return (at + subbuf_size - 1) / subbuf_size * subbuf_size; };
  u64 at = aligned(head.size());
  for (const auto& ring : dat.rings) {
    const u64 start = at;
    for (;;) {
      auto view = ring->next();
      if (!view) return tl::unexpected<Error>(view.error());
      if (!*view) break;
      // Header, data and the number of missed events; the rest is a hole. A smaller sub-buffer is one with room at its end.
      const u64 used = std::min<u64>(abi::header_size + (*view)->end + 8, ring->counters().subbuf_size);
      if (auto done_ = write_at(fd.get(), (*view)->sub_buffer, used, at, path); !done_) return tl::unexpected<Error>(done_.error());
      at += subbuf_size;
      ++size.sub_buffers;
    }
    const u64 entry[2] = {start, at - start};
    std::memcpy(head.data() + table + size_t{ring->name().ring} * 16, entry, sizeof entry);
  }
  // Rings that are not there have no data, and lie where data may lie.
  for (u32 cpu = 0; cpu < cpus; ++cpu) {
    u64 entry[2];
    std::memcpy(entry, head.data() + table + size_t{cpu} * 16, sizeof entry);
    if (entry[0] == 0) entry[0] = aligned(head.size());
    std::memcpy(head.data() + table + size_t{cpu} * 16, entry, sizeof entry);
  }
  if (auto done_ = write_at(fd.get(), head.data(), head.size(), 0, path); !done_) return tl::unexpected<Error>(done_.error());
  if (ftruncate(fd.get(), static_cast<off_t>(at)) != 0) return fail(errno, "cannot close " + path);
  if (rename(unfinished.path.c_str(), path.c_str()) != 0) return fail(errno, "cannot put " + path + " in place");
  unfinished.path.clear();
  size.bytes = at;
  return size;
}

}  // namespace ringside
