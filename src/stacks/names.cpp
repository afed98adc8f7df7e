#include "stacks/names.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "sys/sys.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

constexpr size_t largest_perf_map = size_t{256} << 20;
constexpr u64 trampoline = 0x7FFFFFFF;  // the kernel's mark of a trampoline of ftrace

std::string base_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

bool is_file(const std::string& path) {
  return !path.empty() && (path[0] == '/' || path == "[vdso]") && path.rfind("//", 0) != 0 && path.rfind("/memfd:", 0) != 0;
}

// A regular file, as a whole; empty: it cannot be read.
std::string read_regular(const std::string& path, size_t most) {
  const sys::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return "";
  std::string text(std::min<size_t>(static_cast<size_t>(st.st_size), most), 0);
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = read(fd.get(), text.data() + have, text.size() - have);
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  text.erase(have);
  return text;
}

}  // namespace

// "START SIZE name" a line, in hex.
struct Names::PerfMap {
  std::string text;
  struct Entry {
    u64 begin, end;
    std::string_view name;
  };
  std::vector<Entry> entries;

  explicit PerfMap(std::string from) : text(std::move(from)) {
    std::string_view rest = text;
    while (!rest.empty()) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      u64 begin = 0, size = 0;
      const auto number = [&](u64& value) {
        if (line.rfind("0x", 0) == 0) line.remove_prefix(2);
        const auto [end, code] = std::from_chars(line.data(), line.data() + line.size(), value, 16);
        if (code != std::errc()) return false;
        line.remove_prefix(static_cast<size_t>(end - line.data()));
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        return true;
      };
      if (number(begin) && number(size) && !line.empty() && begin + size > begin)
        entries.push_back({begin, begin + size, line});
    }
    // Of those that begin at one address the last is the newest.
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
  }
  const Entry* find(u64 address) const {
    auto at = std::upper_bound(entries.begin(), entries.end(), address, [](u64 a, const Entry& e) { return a < e.begin; });
    for (int tries = 0; at != entries.begin() && tries < 8; ++tries) {
      --at;
      if (address < at->end) return &*at;
    }
    return nullptr;
  }
};

u32 Names::intern(CodeFunction function) {
  std::string key = function.name + '\n' + function.path + '\n' + static_cast<char>('0' + static_cast<int>(function.kind));
  const auto [at, fresh] = function_numbers_.try_emplace(std::move(key), static_cast<u32>(functions_.size()));
  if (fresh) functions_.push_back(std::move(function));
  return at->second;
}

u32 Names::remark(const std::string& text) { return intern({text, "", "", "", CodeFunction::Kind::remark}); }

u32 Names::source_number(const std::string& source) {
  const auto [at, fresh] = source_numbers_.try_emplace(source, static_cast<u32>(sources_.size()));
  if (fresh) sources_.push_back(source);
  return at->second;
}

Names::Span Names::keep(const std::vector<CodePlace>& places) {
  const Span span{static_cast<u32>(places_.size()), static_cast<u32>(places.size())};
  places_.insert(places_.end(), places.begin(), places.end());
  return span;
}

std::span<const CodePlace> Names::at(u32 space, u64 address) {
  const auto [at, fresh] = known_.try_emplace({of_kernel(address) ? 0 : u64{space} + 1, address});
  if (fresh) {
    const Span span = look_up(space, address);
    at->second = span;  // the table does not grow meanwhile
  }
  return {places_.data() + at->second.begin, at->second.size};
}

Names::Span Names::look_up(u32 space, u64 address) {
  if (of_kernel(address)) return in_kernel(address);
  if (address == trampoline) return keep({{remark("[FTRACE TRAMPOLINE]"), 0, 0, 0, 0, false}});
  const CodeMap* const map = maps_.find(space, address);
  if (map == nullptr || !is_file(maps_.file(map->file).path)) return by_perf_map(maps_.pid(space), address);
  return in_file(map->file, address - map->start + map->offset);
}

Names::Span Names::in_kernel(u64 address) {
  const Symbols::Symbol* const symbol = kernel_.find_first(address);
  if (symbol == nullptr) return unnamed(fmt::format("[kernel]+{:#x}", address), "[kernel]");
  CodeFunction function{sys::printable(symbol->name), sys::printable(symbol->module), "", "", CodeFunction::Kind::kernel};
  function.path = function.module.empty() ? "[kernel]" : "[" + function.module + "]";
  const u64 size = kernel_.end_of(*symbol) - symbol->address;
  return keep({{intern(std::move(function)), 0, address - symbol->address, size, 0, false}});
}

Names::Span Names::unnamed(std::string text, const std::string& path) {
  ++unnamed_;
  return keep({{intern({std::move(text), base_name(path), path, "", CodeFunction::Kind::unnamed}), 0, 0, 0, 0, false}});
}

Names::Span Names::by_perf_map(i32 pid, u64 address) {
  if (pid > 0) {
    if (const PerfMap::Entry* entry = perf_map(pid).find(address)) {
      const std::string path = "/tmp/perf-" + std::to_string(pid) + ".map";
      return keep({{intern({sys::printable(entry->name), "[jit]", path, "", CodeFunction::Kind::jit}), 0, address - entry->begin,
                    entry->end - entry->begin, 0, false}});
    }
  }
  return unnamed(fmt::format("{:#x}", address), "");
}

const Names::PerfMap& Names::perf_map(i32 pid) {
  auto& map = perf_maps_[pid];
  if (map == nullptr)
    map = std::make_shared<PerfMap>(read_regular("/tmp/perf-" + std::to_string(pid) + ".map", largest_perf_map));
  return *map;
}

ElfNames* Names::elf_of(u32 file) {
  const auto [at, fresh] = elves_.try_emplace(file);
  if (fresh) {
    const CodeFile& code = maps_.file(file);
    auto opened = ElfNames::open(code.path, code.build_id);
    if (opened) at->second = std::move(*opened);
    else if (problems_.size() < most_problems)
      problems_.push_back(opened.error().sentence + "; its functions have no names here");
  }
  return at->second.get();
}

Names::Span Names::in_file(u32 file, u64 offset) {
  const auto [at, fresh] = in_files_.try_emplace({file, offset});
  if (!fresh) return at->second;
  const CodeFile& code = maps_.file(file);
  const std::string path = sys::printable(code.path), module = base_name(path);
  std::vector<CodePlace> places;
  ElfNames* const names = elf_of(file);
  for (ElfPlace& p : names != nullptr ? names->at(offset) : std::vector<ElfPlace>()) {
    const u32 source = source_number(p.file);
    places.push_back({intern({std::move(p.function), module, path, p.file, CodeFunction::Kind::program}), p.line, p.offset,
                      p.size, source, p.inlined});
  }
  const Span span = places.empty() ? unnamed(fmt::format("{}+{:#x}", module, offset), path) : keep(places);
  return in_files_[{file, offset}] = span;
}

}  // namespace ringside
