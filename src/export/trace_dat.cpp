#include "export/trace_dat.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <ringside/base/check.hpp>
#include <set>

#include "schema/format_text.hpp"
#include "source/sub_buffer_copy.hpp"
#include "source/trace_dat_format.hpp"
#include "sys/beneath.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using namespace trace_dat;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The format requires these strings with their NUL.
void put_name(std::string& out, const std::string& name) { out.append(name.c_str(), name.size() + 1); }

template <class Size>
void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<Size>(text.size()));
  out += text;
}

void put_option(std::string& out, u16 option, const std::string& data) {
  put<u16>(out, option);
  put_text<u32>(out, data);
}

// The blocks of both versions, in version 6's order.
struct Block {
  Section section;
  std::string bytes;
};
std::vector<Block> blocks_of(const TraceDat& dat, u32 subbuf_size) {
  std::string headers, ftrace, others, kallsyms, printk, comms, names;
  put_name(headers, "header_page");
  put_text<u64>(headers, header_page_text(subbuf_size));
  put_name(headers, "header_event");
  put_text<u64>(headers, std::string(header_event_text()));

  std::map<std::string, std::vector<const EventInfo*>> systems;
  for (const EventInfo& e : dat.events) systems[e.kernel || e.system != "ftrace" ? e.system : "ftrace_"].push_back(&e);
  const auto& internal = systems["ftrace"];
  put(ftrace, static_cast<u32>(internal.size()));
  for (const EventInfo* e : internal) put_text<u64>(ftrace, e->format);
  systems.erase("ftrace");
  put(others, static_cast<u32>(systems.size()));
  for (const auto& [system, events] : systems) {
    put_name(others, system);
    put(others, static_cast<u32>(events.size()));
    for (const EventInfo* e : events) put_text<u64>(others, e->format);
  }
  put_text<u32>(kallsyms, dat.kallsyms);
  put_text<u32>(printk, dat.printk_formats);
  for (const auto& [tid, comm] : dat.tasks)
    if (!comm.empty()) comms += fmt::format("{} {}\n", tid, sys::printable(comm));  // a line for each
  put_text<u64>(names, comms);
  return {{section_headers, headers},   {section_ftrace, ftrace}, {section_events, others},
          {section_kallsyms, kallsyms}, {section_printk, printk}, {section_cmdlines, names}};
}

// As trace-cmd writes it, from uname: system, host, release, machine. A recording keeps the last one.
std::string world_option(const World& world) {
  std::string out;
  const std::string_view machine = machine_of(world.architecture);
  const auto name = [](const std::string& known) { return known.empty() ? std::string("-") : known; };
  if (!machine.empty())
    put_option(out, option_uname, fmt::format("Linux {} {} {}", name(world.host), name(world.release), machine) + '\0');
  return out;
}

std::string clock_options(const ClockInfo& clock) {
  std::string out;
  put_option(out, option_trace_clock, fmt::format("[{}]", to_string(clock.kind)) + '\0');
  if (counts_ticks(clock.kind)) {
    // trace-cmd's formula: (ticks * mult >> shift) + offset, exact because base_ticks * mult has no bits below the shift.
    // trace-cmd reads the offset within tsc_to_ns itself, but does not use it.
    __extension__ using u128 = unsigned __int128;
    std::string data;
    put(data, clock.mult);
    put(data, clock.shift);
    put(data, u64{0});
    put_option(out, option_tsc_to_ns, data);
    const auto base = static_cast<u64>(u128{clock.base_ticks} * clock.mult >> clock.shift);
    put_option(out, option_offset, fmt::format("{}", static_cast<i64>(clock.base_ns - base)) + '\0');
  } else if (clock.base_ns != 0) {
    put_option(out, option_offset, fmt::format("{}", static_cast<i64>(clock.base_ns)) + '\0');
  }
  return out;
}

// What no page of the file has.
std::string statistics(const TraceDat& dat) {
  std::string lines, out;
  const auto line = [&](std::string_view key, std::string_view value) { lines += fmt::format("{}: {}\n", key, value); };
  if (const u64 refused = dat.account.refused.sum(); refused != 0) line(stat_refused, std::to_string(refused));
  if (dat.account.unrecorded != 0) line(stat_unrecorded, std::to_string(dat.account.unrecorded));
  if (dat.unordered) line(stat_unordered, "yes");
  for (const std::string& reason : dat.account.reasons()) line(stat_doubt, sys::printable(reason));
  if (!lines.empty()) put_option(out, option_cpustat, lines + '\0');
  return out;
}

// The ids of events in the file: one space for the kernel's and the program's, and none above 32,767, because KernelShark keeps
// them in 16 signed bits. The kernel's ids stay; the program's follow them, or begin at 1.
class Ids {
 public:
  // Writes the ids into the events.
  static result<Ids> of(std::vector<EventInfo>& events) {
    Ids ids;
    u32 last = 0;
    const auto keep = [&](const EventInfo& e) { return e.kernel && e.id <= most; };
    for (const EventInfo& e : events) {
      if (keep(e)) last = std::max<u32>(last, ids.table(true)[e.id] = e.id);
    }
    for (EventInfo& e : events) {
      u16& id = ids.table(e.kernel)[e.id];
      if (!keep(e) && id == unknown) {
        if (++last > most)
          return refuse(
              std::errc::value_too_large,
              "a trace.dat for KernelShark has at most 32,767 kinds of events; these are more: export some of them (--only)");
        id = static_cast<u16>(last);
      }
      ids.changed_[e.kernel] = ids.changed_[e.kernel] || id != e.id;
      const size_t at = e.format.find("\nID: ");
      if (at != std::string::npos) e.format.replace(at + 5, e.format.find('\n', at + 5) - (at + 5), std::to_string(id));
      e.id = id;
    }
    for (const bool side : {false, true}) {
      for (const u16 id : ids.table(side)) ids.taken_[id] = true;
    }
    return ids;
  }
  bool changed(bool kernel) const { return changed_[kernel]; }
  // An id that no event of its side has stays, or becomes 0, where another event has it.
  u16 operator()(bool kernel, u16 id) const {
    const u16 now = by_id_[kernel][id];
    return now != unknown ? now : taken_[id] ? u16{0} : id;
  }

 private:
  static constexpr u32 most = 32767;
  static constexpr u16 unknown = 0;
  Ids() : by_id_{std::vector<u16>(65536, unknown), std::vector<u16>(65536, unknown)}, taken_(65536) {}
  std::vector<u16>& table(bool kernel) { return by_id_[kernel]; }
  std::vector<u16> by_id_[2];
  std::vector<bool> taken_;
  bool changed_[2] = {false, false};
};

struct Placed {
  u32 cpu = 0;
  u64 offset = 0, size = 0;
};

class DatWriter {
 public:
  DatWriter(int fd, const std::string& path, const Ids& ids, const std::function<bool()>& stop)
      : fd_(fd), path_(path), ids_(ids), stop_(stop) {}

  result<TraceDatSize> version_6(TraceDat& dat, u32 page) {
    const u32 cpus = give_cpus(dat);
    if (cpus > most_cpus) return too_many(cpus);
    std::string head = start("6", page);
    for (const Block& block : blocks_of(dat, page)) head += block.bytes;
    put(head, cpus);
    put_name(head, "options  ");
    head += world_option(dat.world) + clock_options(dat.clock) + statistics(dat);
    put<u16>(head, option_done);
    put_name(head, "flyrecord");
    const size_t table = head.size();
    head.append(size_t{cpus} * 16, '\0');
    put_text<u64>(head, fmt::format("[{}]", to_string(dat.clock.kind)));

    at_ = align_up(head.size(), u64{page});
    // Missing rings have no data, and an offset where data may lie.
    std::vector<Placed> all(cpus);
    for (u32 cpu = 0; cpu < cpus; ++cpu) all[cpu] = {cpu, at_, 0};
    for (auto& buffer : dat.buffers) {
      auto placed = RS_TRY(rings(buffer, page));
      for (const Placed& p : placed) {
        RINGSIDE_CHECK(p.cpu < cpus, "a ring's CPU is in the file's table");
        all[p.cpu] = p;
      }
    }
    for (const Placed& p : all) {
      const u64 entry[2] = {p.offset, p.size};
      std::memcpy(head.data() + table + size_t{p.cpu} * 16, entry, sizeof entry);
    }
    return finish(head);
  }

  result<TraceDatSize> version_7(TraceDat& dat, u32 page) {
    std::string head = start("7", page);
    put_name(head, "none");
    put_name(head, "");
    const size_t options_at = head.size();
    put(head, u64{0});
    std::string options;
    for (const Block& block : blocks_of(dat, page)) {
      std::string place;
      put(place, u64{head.size()});
      put_option(options, block.section, place);
      head += section(block.section, block.bytes.size()) + block.bytes;
    }
    options += world_option(dat.world) + clock_options(dat.clock) + statistics(dat);
    const u32 cpus = give_cpus(dat);
    std::string count;
    put(count, cpus);
    put_option(options, option_cpu_count, count);
    at_ = head.size();
    for (auto& buffer : dat.buffers) {
      const u32 own = page_of(buffer);
      const u64 begin = at_;
      at_ = align_up(begin + section_header_size, u64{own});
      auto placed = RS_TRY(rings(buffer, own));
      const std::string header = section(section_data, at_ - begin - section_header_size);
      RINGSIDE_CHECK(header.size() == section_header_size, "a section's header has the room that was left for it");
      RS_TRY(write(header.data(), header.size(), begin));
      std::string option;
      put(option, begin);
      put_name(option, buffer.name);
      put_name(option, to_string(dat.clock.kind));
      put(option, own);
      put(option, static_cast<u32>(placed.size()));
      for (const Placed& p : placed) {
        put(option, p.cpu);
        put(option, p.offset);
        put(option, p.size);
      }
      put_option(options, option_buffer, option);
    }
    put_option(options, option_done, std::string(sizeof(u64), '\0'));
    std::memcpy(head.data() + options_at, &at_, sizeof at_);
    options = section(section_options, options.size()) + options;
    RS_TRY(write(options.data(), options.size(), at_));
    at_ += options.size();
    return finish(head);
  }

  static u32 page_of(const TraceDatBuffer& buffer) {
    u32 page = page_size;
    for (const auto& ring : buffer.rings) page = std::max(page, static_cast<u32>(ring->counters().subbuf_size));
    return page;
  }

 private:
  static tl::unexpected<Error> too_many(u64 rings) {
    return refuse(std::errc::too_many_files_open,
                  "a trace.dat for " + std::to_string(rings) + " rings is more than trace-cmd can read");
  }
  static std::string start(const char* version, u32 page) {
    std::string head(magic, magic_size);
    put_name(head, version);
    head += '\0';  // little endian
    head += '\x08';
    put(head, page);
    return head;
  }
  static std::string section(u16 id, u64 size) {
    std::string out;
    put(out, id);
    put<u16>(out, 0);
    put(out, ~u32{0});  // without a name
    put(out, size);
    return out;
  }

  result<void> write(const void* bytes, size_t size, u64 at) const {
    const auto* from = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t n = pwrite(fd_, from, size, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(errno, "cannot write " + path_);
      from += n;
      at += static_cast<u64>(n);
      size -= static_cast<size_t>(n);
    }
    return {};
  }

  // Empty: it is not the expected file.
  static sys::Fd open_whole(const SubBufferFile& whole) {
    const auto at = sys::open_parent(whole.path);
    sys::Fd file = at ? sys::open_beneath(at->dir.get(), at->name.c_str(), O_RDONLY) : sys::Fd();
    struct stat st {};
    const bool same = file && fstat(file.get(), &st) == 0 && st.st_dev == whole.device && st.st_ino == whole.inode;
    return same ? std::move(file) : sys::Fd();
  }

  // Whether a file's sub-buffers can be copied unchanged.
  static bool sound(const SubBufferFile& whole, const sys::Fd& file, u32 page) {
    if (whole.size % page != 0) return false;
    for (u64 at = 0; at < whole.size; at += page) {
      abi::SubBufferHeader header{};
      if (pread(file.get(), &header, sizeof header, static_cast<off_t>(at)) != sizeof header) return false;
      if (abi::commit_size(header.commit) > page - abi::header_size) return false;
      if (is_zeros(header)) return false;  // a gap
    }
    return true;
  }

  bool stopped() const { return stop_ && stop_(); }

  // The file system copies (or only shares: XFS, Btrfs). False: it cannot, or was stopped; the caller writes all of it again.
  bool copy(const SubBufferFile& whole, const sys::Fd& file) const {
    constexpr u64 most = 256 << 20;  // between two looks at stop
    loff_t from = 0, to = static_cast<loff_t>(at_);
    while (static_cast<u64>(from) < whole.size && !stopped()) {
      const ssize_t n = copy_file_range(file.get(), &from, fd_, &to, std::min(most, whole.size - static_cast<u64>(from)), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
    }
    return static_cast<u64>(from) == whole.size;
  }

  // Sorts a buffer's rings by CPU number, a CPU's older rings first; returns the numbers. A number that no file can have is
  // replaced by a free one.
  static std::vector<u32> give_cpus(TraceDatBuffer& buffer) {
    const auto place = [](const std::unique_ptr<Source>& ring) { return std::pair(ring->name().place(), ring->name().ring); };
    std::sort(buffer.rings.begin(), buffer.rings.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
    std::set<u32> taken;
    for (const auto& ring : buffer.rings) taken.insert(ring->name().place());
    std::vector<u32> cpus;
    u32 next = 0;
    for (const auto& ring : buffer.rings) {
      u32 cpu = ring->name().place();
      if (cpu >= most_cpus) {
        while (taken.count(next) != 0) ++next;
        cpu = next++;
      }
      cpus.push_back(cpu);
    }
    return cpus;
  }

  // The same for all buffers; the largest number, and one.
  static u32 give_cpus(TraceDat& dat) {
    u32 cpus = 0;
    for (auto& buffer : dat.buffers) {
      for (const u32 cpu : give_cpus(buffer)) cpus = std::max(cpus, cpu + 1);
    }
    return cpus;
  }

  result<std::vector<Placed>> rings(TraceDatBuffer& buffer, u32 page) {
    std::vector<Placed> placed;
    const std::vector<u32> cpus = give_cpus(buffer);
    if (cpus.size() > most_cpus) return too_many(cpus.size());
    for (size_t i = 0; i < cpus.size(); ++i) {
      auto& ring = buffer.rings[i];
      const u64 begin = at_;
      const auto own = ring->counters().subbuf_size;
      RINGSIDE_CHECK(own <= page && at_ % page == 0, "a sub-buffer lies on pages of the file, and is no larger than one");
      const auto whole = ring->sub_buffer_file();
      const bool renumber = ids_.changed(ring->name().kernel);
      const sys::Fd file = whole && own == page && !renumber ? open_whole(*whole) : sys::Fd();
      if (file && sound(*whole, file, page) && copy(*whole, file)) {
        at_ += whole->size;
      } else {
        for (;;) {
          if (stopped()) return refuse(std::errc::interrupted, path_ + " was not written: interrupted");
          auto view = RS_TRY(ring->next());
          if (!view) break;
          // Header, data and the number of missed events; the rest is a hole. A smaller sub-buffer is stored with room at its
          // end.
          const u64 used = std::min<u64>(abi::header_size + view->end + 8, own);
          const u8* bytes = renumber ? renumbered(*view, ring->name().kernel, used) : view->sub_buffer;
          RS_TRY(write(view->lost_before != 0 ? with_gap(*view, bytes, used, static_cast<u32>(own)) : bytes, used, at_));
          at_ += page;
        }
      }
      size_.sub_buffers += (at_ - begin) / page;
      if (placed.empty() || placed.back().cpu != cpus[i]) placed.push_back({cpus[i], begin, 0});
      placed.back().size = at_ - placed.back().offset;
      ring = nullptr;  // its file is closed: there may be thousands
    }
    return placed;
  }

  // The gap before it is in its bytes, or is put there.
  const u8* with_gap(const SubBufferView& view, const u8* from, u64 used, u32 subbuf_size) {
    abi::SubBufferHeader header{};
    std::memcpy(&header, from, sizeof header);
    if (abi::commit_missed(header.commit)) return from;
    gap_.assign(from, from + used);
    header = header_of_copy(view, subbuf_size);
    if (abi::commit_stored(header.commit))
      std::memcpy(gap_.data() + abi::header_size + view.end, &view.lost_before, sizeof view.lost_before);
    std::memcpy(gap_.data(), &header, sizeof header);
    return gap_.data();
  }

  // A copy with the file's ids in its events.
  const u8* renumbered(const SubBufferView& view, bool kernel, u64 used) {
    copy_.resize(used / sizeof(u64) + 1);
    auto* const bytes = reinterpret_cast<u8*>(copy_.data());
    std::memcpy(bytes, view.sub_buffer, used);
    u8* const data = bytes + abi::header_size;
    abi::EventCursor events(data, view.begin, view.end, view.time);
    while (events.next()) {
      u16 id = 0;
      const Bytes payload = events.payload();
      if (payload.size < sizeof id) continue;
      std::memcpy(&id, payload.data, sizeof id);
      id = ids_(kernel, id);
      std::memcpy(data + (payload.data - data), &id, sizeof id);
    }
    return bytes;
  }

  result<TraceDatSize> finish(const std::string& head) {
    RINGSIDE_CHECK(head.size() <= at_, "the head of a file ends before its data");
    RS_TRY(write(head.data(), head.size(), 0));
    if (ftruncate(fd_, static_cast<off_t>(at_)) != 0) return fail(errno, "cannot close " + path_);
    size_.bytes = at_;
    return size_;
  }

  int fd_;
  const std::string& path_;
  const Ids& ids_;
  const std::function<bool()>& stop_;
  std::vector<u8> gap_;
  std::vector<u64> copy_;  // of a sub-buffer
  u64 at_ = 0;             // where the next sub-buffer goes
  TraceDatSize size_;
};

}  // namespace

result<TraceDatSize> write_trace_dat(const std::string& path, TraceDat& dat) {
  const Ids ids = RS_TRY(Ids::of(dat.events));
  auto file = RS_TRY(sys::NewFile::replace(path));
  u32 page = page_size;
  for (const auto& buffer : dat.buffers) page = std::max(page, DatWriter::page_of(buffer));
  DatWriter writer(file.fd(), path, ids, dat.stop);
  auto size = dat.buffers.size() <= 1 ? writer.version_6(dat, page) : writer.version_7(dat, page);
  if (!size) return size;
  RS_TRY(file.put_in_place());
  return size;
}

}  // namespace ringside
