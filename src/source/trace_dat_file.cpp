#include "source/trace_dat_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "source/decompress.hpp"
#include "source/foreign_sub_buffers.hpp"
#include "source/time_shift.hpp"
#include "source/trace_dat_format.hpp"
#include "source/trace_dat_reader.hpp"
#include "source/trace_dat_source.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using namespace trace_dat;

constexpr u32 largest_page = 1 << 20;  // a sub-buffer's commit has 20 bits
constexpr u64 of_a_byte = 5;           // what is made of a byte of text, for example of /proc/kallsyms

std::string_view text_of(Bytes b) {
  const auto* const s = reinterpret_cast<const char*>(b.data);
  return {s, b.size == 0 ? 0 : strnlen(s, b.size)};
}

template <class Each>
void for_each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    each(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

i64 integer_of(std::string_view text) { return std::strtoll(std::string(text.substr(0, 64)).c_str(), nullptr, 0); }

struct Buffer {
  std::string name, clock;
  u32 page_size = 0;
  bool compressed = false;
  std::vector<CpuData> cpus;
};

class Parser {
 public:
  explicit Parser(std::shared_ptr<TraceDatBytes> bytes) : bytes_(std::move(bytes)), all_{bytes_->data, bytes_->size} {
    budget_.grow(all_.size);
  }

  result<TraceDatFile> run() {
    Reader in(all_);
    if (all_.size < magic_size || std::memcmp(all_.data, magic, magic_size) != 0)
      return refuse(
          std::errc::invalid_argument,
          bytes_->path +
              (all_.size >= 8 && std::memcmp(all_.data, "PERFILE2", 8) == 0 ? " is a perf.data, which perf script prints;"
                                                                            : " is no trace.dat: it begins otherwise;") +
              " what can be read are recordings, trace.dat files, instances and CTF traces");
    in.take(magic_size);
    const auto version = std::string(in.name().substr(0, 20));
    big_ = in.big = in.number<u8>() != 0;
    in.take(1);  // the size of `long` in the recorder's user space: nothing here depends on it
    page_size_ = in.number<u32>();
    if (!in.ok) return cut("in its first bytes");
    if (version != "6" && version != "7")
      return refuse(std::errc::not_supported,
                    bytes_->path + " is a trace.dat of version \"" + version + "\"; versions 6 and 7 can be read");
    if (!good_page(page_size_)) return bad("sub-buffers of " + std::to_string(page_size_) + " bytes");
    out_.version = version == "6" ? 6 : 7;
    RS_TRY(out_.version == 6 ? read_version_6(in) : read_version_7(in));
    return finish();
  }

 private:
  static bool good_page(u32 size) { return is_power_of_two(size) && size >= page_size && size <= largest_page; }
  tl::unexpected<Error> bad(const std::string& claim) const {
    return refuse(std::errc::bad_message, bytes_->path + " is damaged: it claims " + claim);
  }
  tl::unexpected<Error> cut(const std::string& where) const {
    return refuse(std::errc::bad_message, bytes_->path + " ends " + where + ": it was cut, is damaged, or was never finished");
  }
  void problem(const std::string& sentence) {
    if (out_.problems.size() < 100) out_.problems.push_back(bytes_->path + ": " + sentence);
  }

  result<void> read_version_6(Reader& in) {
    RS_TRY(read_headers(in));
    RS_TRY(read_ftrace(in));
    RS_TRY(read_events(in));
    out_.kallsyms = in.text<u32>();
    out_.printk_formats = in.text<u32>();
    read_cmdlines(in.text<u64>());
    const auto cpus = in.number<u32>();
    auto kind = in.name();
    if (!in.ok) return cut("before its events");
    if (cpus > most_cpus) return bad(std::to_string(cpus) + " CPUs");
    std::vector<std::pair<u64, std::string>> further;
    if (kind == "options  ") {
      for (u16 id = in.number<u16>(); in.ok && id != option_done; id = in.number<u16>()) {
        const Bytes data = in.take(in.number<u32>());
        Reader option(data, big_);
        if (id == option_buffer) {
          const auto offset = option.number<u64>();
          further.emplace_back(offset, option.name());
          if (!option.ok || further.size() > most_cpus) return bad("a buffer without a name");
        } else {
          read_option(id, data);
        }
      }
      kind = in.name();
    }
    if (!in.ok) return cut("in its options");
    if (kind == "latency  " && further.empty()) return only_text();
    if (kind == "flyrecord") {
      if (!read_cpu_table(in, cpus, "")) return cut("in its table of CPUs");
    } else if (kind != "latency  ") {
      return bad("\"" + std::string(kind.substr(0, 20)) + "\" where events should begin");
    }
    for (const auto& [offset, name] : further) {
      Reader there(from(offset), big_);
      if (there.name() != "flyrecord" || !read_cpu_table(there, cpus, name))
        problem("the buffer " + name + " is not where it should be");
    }
    return {};
  }

  bool read_cpu_table(Reader& in, u32 cpus, const std::string& name) {
    Buffer buffer;
    buffer.name = sys::kept_name(name);
    buffer.page_size = page_size_;
    for (u32 cpu = 0; cpu < cpus && in.ok; ++cpu) {
      buffer.cpus.push_back(in.cpu_data(cpu));
    }
    if (!in.ok) return false;
    Reader clock = in;  // newer writers only
    const auto text = clock.text<u64>();
    if (clock.ok && text.size() < 100) buffer.clock = text;
    buffers_.push_back(std::move(buffer));
    return true;
  }

  result<void> read_version_7(Reader& in) {
    out_.compression = in.name();
    in.name();  // its version
    auto options = in.number<u64>();
    if (!in.ok) return cut("in its first bytes");
    const auto known = compression_from(out_.compression);
    if (!known)
      return refuse(std::errc::not_supported,
                    bytes_->path + " is compressed with \"" + out_.compression.substr(0, 20) + "\"; zlib and zstd can be read");
    compression_ = *known;
    std::map<u16, u64> blocks;
    std::set<u64> seen;
    while (options != 0) {
      if (!seen.insert(options).second) {
        problem("its options go in a circle");
        break;
      }
      auto section = read_section(options, section_options);
      if (!section) {
        if (seen.size() == 1) return tl::unexpected<Error>(section.error());
        problem(section.error().sentence);
        break;
      }
      options = read_options(Reader(section->bytes(), big_), blocks);
    }
    using Read = result<void> (Parser::*)(Reader&);
    const auto read = [&](Section id, Read method) -> result<void> {
      const auto at = blocks.find(id);
      if (at == blocks.end()) return {};
      auto section = RS_TRY(read_section(at->second, id));
      Reader block(section.bytes(), big_);
      return (this->*method)(block);
    };
    if (blocks.count(section_headers) == 0 || blocks.count(section_events) == 0)
      return bad("events and does not describe them");
    RS_TRY(read(section_headers, &Parser::read_headers));
    RS_TRY(read(section_events, &Parser::read_events));
    for (const auto& [id, method] : std::initializer_list<std::pair<Section, Read>>{{section_ftrace, &Parser::read_ftrace},
                                                                                    {section_kallsyms, &Parser::read_kallsyms},
                                                                                    {section_printk, &Parser::read_printk},
                                                                                    {section_cmdlines, &Parser::read_names}}) {
      if (auto done = read(id, method); !done) problem(done.error().sentence);
    }
    if (buffers_.empty() && text_buffers_) return only_text();
    return {};
  }

  // Returns where the next options are; 0: nowhere.
  u64 read_options(Reader in, std::map<u16, u64>& blocks) {
    while (in.left() != 0) {
      const auto id = in.number<u16>();
      const Bytes data = in.take(in.number<u32>());
      Reader option(data, big_);
      if (!in.ok) break;
      if (id == option_done) return option.number<u64>();
      if (id == option_buffer)
        read_buffer(option);
      else if (id == option_buffer_text)
        text_buffers_ = true;
      else if (id >= section_headers && id <= section_cmdlines)
        blocks[id] = option.number<u64>();
      else
        read_option(id, data);
    }
    problem("its options do not end as options do");
    return 0;
  }

  void read_buffer(Reader& in) {
    Buffer buffer;
    const auto section = in.number<u64>();
    buffer.name = sys::kept_name(in.name());
    buffer.clock = in.name();
    buffer.page_size = in.number<u32>();
    const auto cpus = in.number<u32>();
    for (u32 i = 0; i < cpus && in.ok; ++i) {
      buffer.cpus.push_back(in.cpu_data(in.number<u32>()));
    }
    Reader header(from(section), big_);
    const auto id = header.number<u16>();
    buffer.compressed = (header.number<u16>() & section_compressed) != 0;
    if (buffer.cpus.empty()) buffer.page_size = page_size_;
    if (!in.ok || !header.ok || id != section_data || !good_page(buffer.page_size))
      problem("the buffer \"" + buffer.name.substr(0, 100) + "\" is damaged and was left out");
    else
      buffers_.push_back(std::move(buffer));
  }

  // Options that both versions have.
  void read_option(u16 id, Bytes data) {
    Reader in(data, big_);
    if (id == option_trace_clock) trace_clock_ = text_of(data);
    if (id == option_uname) {
      const std::string_view uname = text_of(data);
      architecture_ = architecture_from(uname.substr(uname.rfind(' ') + 1));
      std::istringstream words{std::string(uname)};  // system, host, release, machine
      std::string system;
      words >> system >> host_ >> release_;
      if (host_ == "-") host_.clear();
      if (release_ == "-") release_.clear();
    }
    if (id == option_date) out_.of_day = true, offset_ns_ += static_cast<u64>(integer_of(text_of(data))) * 1000;
    if (id == option_offset) offset_ns_ += static_cast<u64>(integer_of(text_of(data)));
    if (id == option_cpustat) read_stats(text_of(data));
    if (id == option_time_shift) out_.of_guest = true, shift_ = TimeShift::read(data, big_);
    if (id != option_tsc_to_ns) return;
    mult_ = in.number<u32>();
    shift_bits_ = in.number<u32>();
    if (in.ok && shift_bits_ <= 63) return;
    problem("the rate of its clock makes no sense; times are ticks");
    mult_ = 0;
  }

  // per_cpu/cpuN/stats of one CPU or several; a line in front may name the buffer.
  void read_stats(std::string_view text) {
    Counters* counters = nullptr;
    for_each_line(text, [&](std::string_view line) {
      const size_t colon = line.find(": ");
      if (colon == std::string_view::npos) return;
      const auto key = line.substr(0, colon);
      const auto value = line.substr(colon + 2);
      const auto number = static_cast<u64>(integer_of(value));
      if (key == "Buffer") stats_of_ = value;
      if (key == stat_refused) out_.account.refused[Refusal::unknown] += number;
      if (key == stat_unrecorded) out_.account.unrecorded += number;
      if (key == stat_unordered) unordered_ = true;
      if (key == stat_doubt) out_.account.doubts.emplace_back(value.substr(0, 1000));
      if (key == "CPU") counters = &stats_[{stats_of_, static_cast<u32>(number)}];
      if (counters == nullptr) return;
      if (key == "entries") counters->unread = number;
      if (key == "overrun") counters->overrun = number;
      if (key == "commit overrun") counters->commit_overrun = number;
      if (key == "bytes") counters->bytes = number;
      if (key == "dropped events") counters->dropped = number;
      if (key == "read events") counters->read = number;
      counters->written = counters->unread + counters->overrun + counters->read;
    });
  }

  struct SectionBytes {
    Bytes in_place{};
    std::vector<u8> unpacked;
    Bytes bytes() const { return unpacked.empty() ? in_place : Bytes{unpacked.data(), unpacked.size()}; }
  };

  Bytes from(u64 offset) const {
    const u64 at = std::min<u64>(offset, all_.size);
    return {all_.data + at, all_.size - at};
  }

  result<SectionBytes> read_section(u64 offset, Section wanted) const {
    const std::string what = "its section " + std::to_string(wanted) + " at " + std::to_string(offset);
    Reader in(from(offset), big_);
    const auto id = in.number<u16>();
    const auto flags = in.number<u16>();
    in.number<u32>();
    const Bytes data = in.take(in.number<u64>());
    if (!in.ok) return cut("before the end of " + what);
    if (id != wanted) return bad(what + ", where section " + std::to_string(id) + " lies");
    SectionBytes section;
    section.in_place = data;
    if ((flags & section_compressed) == 0) return section;
    Reader packed(data, big_);
    const auto packed_size = packed.number<u32>();
    const auto size = packed.number<u32>();
    const Bytes bytes = packed.take(packed_size);
    if (!packed.ok || !budget_.take(of_a_byte * size) || !may_expand_to(compression_, bytes, size))
      return bad(what + " to be compressed " + out_.compression + " data of " + std::to_string(size) + " bytes");
    section.unpacked.resize(size);
    if (!decompress(compression_, bytes, section.unpacked.data(), size))
      return bad(what + " to be compressed with " + out_.compression);
    if (size == 0) section.in_place = {};
    return section;
  }

  // "KEY NUMBER" of the line with a field.
  static std::optional<u32> of_field(std::string_view text, std::string_view field, std::string_view key) {
    const size_t at = text.find(field);
    const size_t number = at == std::string_view::npos ? at : text.find(key, at);
    if (number == std::string_view::npos) return std::nullopt;
    return static_cast<u32>(std::clamp<i64>(integer_of(text.substr(number + key.size())), 0, 1 << 20));
  }

  result<void> read_headers(Reader& in) {
    const auto page_name = in.name();
    const auto page = in.text<u64>();
    if (!in.ok || page_name != "header_page") return cut("in the description of its sub-buffers");
    in.name();
    in.text<u64>();
    if (!in.ok) return cut("in the description of its events' headers");
    const auto commit = of_field(page, "commit;", "size:"), data = of_field(page, "data;", "offset:");
    if (!commit) return bad("sub-buffers without a commit");
    if (*commit != 4 && *commit != 8) return bad("sub-buffers whose commit has " + std::to_string(*commit) + " bytes");
    long_ = *commit;
    data_at_ = data.value_or(8 + long_);
    if (data_at_ < 8 + long_ || data_at_ > 64 || (long_ == 8 && data_at_ != abi::header_size))
      return bad("sub-buffers whose data begins at " + std::to_string(data_at_));
    return {};
  }

  void add_event(std::string_view system, std::string_view format) {
    EventInfo info;
    info.system = sys::kept_name(system);
    info.format = format;
    info.enabled = info.kernel = true;
    const size_t name = info.format.rfind("name: ", 0) == 0 ? 6 : std::string::npos;
    const size_t id = info.format.find("\nID: ");
    if (name == std::string::npos || id == std::string::npos || id < name) {
      problem("a format of " + info.system.substr(0, 100) + " has no name or no ID and was left out");
      return;
    }
    info.name = sys::kept_name(std::string_view(info.format).substr(name, info.format.find_first_of("\r\n") - name));
    const i64 number = integer_of(std::string_view(info.format).substr(id + 5));
    if (number < 0 || number > 65535)
      return problem("the event " + info.name.substr(0, 100) + " has an impossible ID and was left out");
    info.id = static_cast<u16>(number);
    out_.events.push_back(std::move(info));
  }

  result<void> read_ftrace(Reader& in) { return read_formats(in, "ftrace"); }
  result<void> read_formats(Reader& in, std::string_view system) {
    for (u32 left = in.number<u32>(); left > 0 && in.ok; --left) {
      const auto format = in.text<u64>();
      if (in.ok) add_event(system, format);
    }
    if (!in.ok) return cut("in its formats of " + std::string(system.substr(0, 100)));
    return {};
  }
  result<void> read_events(Reader& in) {
    for (u32 systems = in.number<u32>(); systems > 0 && in.ok; --systems) {
      const auto system = in.name();
      RS_TRY(read_formats(in, system));
    }
    if (!in.ok) return cut("in its formats");
    return {};
  }
  template <class Size>
  result<void> read_text(Reader& in, std::string& text, const char* what) {
    text = in.text<Size>();
    if (!in.ok) return cut(std::string("in ") + what);
    return {};
  }
  result<void> read_kallsyms(Reader& in) { return read_text<u32>(in, out_.kallsyms, "its symbols"); }
  result<void> read_printk(Reader& in) { return read_text<u32>(in, out_.printk_formats, "its printk formats"); }
  // trace-cmd measures the kernel's list before it copies it: if the list shrank meanwhile, there is less than announced.
  result<void> read_names(Reader& in) {
    const auto claimed = in.number<u64>();
    const Bytes there = in.take(std::min<u64>(claimed, in.left()));
    read_cmdlines({reinterpret_cast<const char*>(there.data), there.size});
    return in.ok && there.size == claimed ? result<void>() : cut("in its names of threads");
  }

  void read_cmdlines(std::string_view text) {
    for_each_line(text, [&](std::string_view line) {
      if (line.ends_with('\r')) line.remove_suffix(1);
      const size_t digits = line.find_first_not_of(' ');
      const size_t space = line.find(' ', digits);
      if (space == std::string_view::npos) return;
      RingName thread;
      thread.kernel = true;
      thread.pid = thread.tid = static_cast<i32>(integer_of(line.substr(digits, space - digits)));
      thread.task = thread.process = sys::kept_name(line.substr(space + 1));
      out_.threads.push_back(std::move(thread));
    });
  }

  result<void> only_text() const {
    return refuse(std::errc::not_supported,
                  bytes_->path + " holds no events but the text of a latency tracer; trace-cmd report shows it");
  }

  // The kernel's clocks that count nanoseconds; the times of others are shown as plain numbers, as in trace-cmd.
  std::string clock_name(const std::string& buffers) const {
    const std::string& name = trace_clock_.empty() ? buffers : trace_clock_;
    const size_t open = name.find('[');
    return open == std::string::npos ? name : name.substr(open + 1, name.find(']', open) - open - 1);
  }
  ClockInfo clock_of(const std::string& buffers) const {
    const std::string name = clock_name(buffers);
    ClockInfo clock;
    clock.base_ns = offset_ns_;
    if (mult_ != 0) {
      clock.kind = name == to_string(ClockKind::cntvct) ? ClockKind::cntvct : ClockKind::tsc;
      clock.mult = mult_;
      clock.shift = shift_bits_;
      return clock;
    }
    static const std::set<std::string> seconds{"",    "local", "global", "perf",     "uptime",
                                               "tai", "mono",  "boot",   "mono_raw", "tsc2nsec"};
    clock.kind = seconds.count(name) != 0 ? ClockKind::mono : ClockKind::counter;
    return clock;
  }

  // A recorder of 32 bits on a kernel of 64, or under setarch, says the smaller one of two.
  World world() const {
    World world = World::of(architecture_.value_or(Architecture::unknown));
    const bool wide = long_ == 8;
    constexpr std::pair<Architecture, Architecture> wider[] = {{Architecture::i386, Architecture::x86_64},
                                                               {Architecture::arm, Architecture::arm64},
                                                               {Architecture::ppc, Architecture::ppc64},
                                                               {Architecture::s390, Architecture::s390x},
                                                               {Architecture::riscv32, Architecture::riscv64}};
    for (const auto& [small, large] : wider)
      if (wide && world.architecture == small) world = World::of(large);
    if (wide && !architecture_) {
      if (out_.clock_name == "x86-tsc" || out_.clock_name == to_string(ClockKind::tsc)) world = World::told_by(ClockKind::tsc);
      if (out_.clock_name == to_string(ClockKind::cntvct)) world = World::told_by(ClockKind::cntvct);
    }
    if (world.word_size != long_) world = {};
    world.big_endian = big_;
    world.word_size = long_;
    world.release = release_;
    world.host = host_;
    return world;
  }

  result<TraceDatFile> finish() {
    std::vector<std::pair<u64, u64>> places;
    for (const Buffer& buffer : buffers_) {
      for (const CpuData& data : buffer.cpus) {
        if (data.size == 0) continue;
        if (data.cpu >= most_cpus) return bad("a CPU " + std::to_string(data.cpu));
        if (data.offset + data.size < data.offset) return bad("a ring of " + std::to_string(data.size) + " bytes");
        places.emplace_back(data.offset, data.size);
      }
    }
    // Overlapping rings would let a small file ask for any amount of work and memory.
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < places.size(); ++i) {
      if (places[i].first - places[i - 1].first < places[i - 1].second)
        return bad("that the rings at " + std::to_string(places[i - 1].first) + " and " + std::to_string(places[i].first) +
                   " overlap");
    }
    if (places.size() > most_cpus) return bad(std::to_string(places.size()) + " rings");
    out_.clock = clock_of(buffers_.empty() ? "" : buffers_.front().clock);
    out_.clock_name = clock_name(buffers_.empty() ? "" : buffers_.front().clock);
    out_.world = world();
    const bool foreign = big_ || long_ != 8;
    if (foreign) foreign_ = std::make_shared<const ForeignSubBuffers>(out_.world, data_at_, out_.events);
    for (const Buffer& buffer : buffers_) {
      for (const CpuData& data : buffer.cpus) {
        RingName name;
        name.ring = data.cpu;
        name.kernel = true;
        name.buffer = buffer.name;
        const auto counters = stats_.find({buffer.name, data.cpu});
        auto ring = std::make_unique<TraceDatSource>(bytes_, std::move(name), clock_of(buffer.clock), buffer.page_size, data,
                                                     buffer.compressed ? compression_ : Compression::none,
                                                     counters == stats_.end() ? Counters{} : counters->second);
        if (foreign) {
          if (buffer.page_size > ForeignSubBuffers::largest)
            return bad("sub-buffers of " + std::to_string(buffer.page_size) + " bytes");
          ring->convert_by(foreign_);
        }
        if (unordered_) ring->say_unordered();
        if (out_.of_guest && data.size != 0) shift(*ring);
        out_.account.refused += refused_of(ring->counters());
        out_.rings.push_back(std::move(ring));
      }
    }
    return std::move(out_);
  }

  void shift(TraceDatSource& ring) {
    if (const auto* const by = shift_ ? shift_->on(ring.name().ring) : nullptr) return ring.shift_by(*by);
    const std::string of = shift_ ? "of CPU " + std::to_string(ring.name().ring) + " " : "";
    if (shift_ || !out_.unshifted) problem("its times " + of + "are of a guest, and are not shifted to its host's");
    out_.unshifted = true;
  }

  std::shared_ptr<TraceDatBytes> bytes_;
  Bytes all_;
  mutable Budget budget_;
  u32 page_size_ = 0;
  bool big_ = false;                // its byte order
  u32 long_ = 8;                    // bytes, in its kernel
  u32 data_at_ = abi::header_size;  // in a sub-buffer
  std::shared_ptr<const ForeignSubBuffers> foreign_;
  std::optional<Architecture> architecture_;  // as its uname says
  std::string host_, release_;                // as well
  TraceDatFile out_;
  Compression compression_ = Compression::none;
  std::vector<Buffer> buffers_;
  bool text_buffers_ = false;
  std::string trace_clock_;
  u64 offset_ns_ = 0;
  u32 mult_ = 0, shift_bits_ = 0;
  std::optional<TimeShift> shift_;  // none: of a guest whose option is damaged
  bool unordered_ = false;          // ringside exported it from rings whose times go back
  std::string stats_of_;
  std::map<std::pair<std::string, u32>, Counters> stats_;
};

}  // namespace

result<TraceDatFile> read_trace_dat(std::shared_ptr<TraceDatBytes> bytes) { return Parser(std::move(bytes)).run(); }

result<TraceDatFile> open_trace_dat(const std::string& path, const std::string& name) {
  const sys::Fd fd = RS_TRY(sys::open_data(path));
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return fail(errno, "cannot measure " + path);
  sys::guard_mappings();
  auto region = RS_TRY(sys::Region::map(fd.get(), static_cast<u64>(st.st_size), false, path));
  madvise(region.data(), region.size(), MADV_SEQUENTIAL);
  auto bytes = std::make_shared<TraceDatBytes>();
  bytes->path = name.empty() ? path : name;
  bytes->data = region.data();
  bytes->size = region.size();
  bytes->region = std::move(region);
  return read_trace_dat(std::move(bytes));
}

}  // namespace ringside
