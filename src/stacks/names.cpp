#include "stacks/names.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <queue>

#include "decode/stack_texts.hpp"
#include "stacks/judged.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

constexpr size_t largest_perf_map = size_t{256} << 20;
constexpr const char* kept_compiled = "jit";  // in place of a build id: what a perf map names, kept with the address

std::string base_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

bool is_file(const std::string& path) {
  return !path.empty() && (path[0] == '/' || path == "[vdso]") && path.rfind("//", 0) != 0;
}
// Of memory alone: a program's file, or what a compiler that runs there has made.
bool is_memory(const std::string& path) { return path.rfind("/memfd:", 0) == 0; }

std::string perf_map_path(i32 pid) { return "/tmp/perf-" + std::to_string(pid) + ".map"; }

// Anybody may have written /tmp/perf-PID.map: it is taken from root, this user, or the user of the process, if that lives.
bool is_trusted(uid_t owner, i32 pid) { return owner == 0 || owner == geteuid() || sys::is_user_of(owner, pid); }

// The lines of a map; none: there is no such file. in: the process in whose root it is looked for; 0: this process's. problem:
// a sentence, if not all of it is used.
std::optional<std::string> read_perf_map(const std::string& path, i32 in, i32 pid, Budget& budget, std::string& problem) {
  const auto file = open_judged(path, {.pid = in});
  if (!file && file.error().code != std::errc::no_such_file_or_directory) problem = file.error().sentence;
  struct stat st {};
  if (!file || fstat(file->get(), &st) != 0) return std::nullopt;
  if (!is_trusted(st.st_uid, pid)) {
    problem = fmt::format(
        "{}{} belongs to user {}, who is neither root, nor this user, nor that of a living process {}: its "
        "names are not used; chown it, if they are right",
        path, in != 0 ? fmt::format(" of process {}", in) : "", st.st_uid, pid);
    return "";
  }
  const auto size = static_cast<u64>(st.st_size);
  budget.grow(st);
  const u64 most = std::min(largest_perf_map, budget.bytes() / 4);
  std::string text(budget.take(std::min(size, most)) ? std::min(size, most) : 0, 0);
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = read(file->get(), text.data() + have, text.size() - have);
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  text.erase(have);
  if (size <= most) return text;
  text.erase(text.rfind('\n') + 1);
  problem = fmt::format("{} has {} MiB, of which the first {} are read: newer functions have no names here", path, size >> 20,
                        most >> 20);
  return text;
}

}  // namespace

// "START SIZE name" a line, in hex. A later line replaces what it covers: code was moved, or its memory used again.
struct Names::PerfMap {
  std::string text;
  struct Line {
    u64 begin, end;
    std::string_view name;
  };
  struct Part {  // of the addresses of a line
    u64 begin, end;
    u32 line;
  };
  std::vector<Line> lines;
  std::vector<Part> parts;  // ascending; they do not overlap

  explicit PerfMap(std::string from) : text(std::move(from)) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      add(line);
    }
    cut();
  }
  const Line* find(u64 address) const {
    auto at = std::upper_bound(parts.begin(), parts.end(), address, [](u64 a, const Part& p) { return a < p.begin; });
    return at != parts.begin() && address < (--at)->end ? &lines[at->line] : nullptr;
  }

 private:
  void add(std::string_view line) {
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
      lines.push_back({begin, begin + size, sys::cut_name(text, line)});
  }
  // Goes through the addresses; at each the last line of those that cover it counts.
  void cut() {
    std::vector<u32> by_begin(lines.size());
    std::iota(by_begin.begin(), by_begin.end(), 0);
    std::stable_sort(by_begin.begin(), by_begin.end(), [&](u32 a, u32 b) { return lines[a].begin < lines[b].begin; });
    std::priority_queue<u32> covering;
    u64 at = 0;
    const auto go_to = [&](u64 end) {
      while (at < end && !covering.empty()) {
        const u32 line = covering.top();
        const u64 until = std::min(end, lines[line].end);
        if (until > at) {
          parts.push_back({at, until, line});
          at = until;
        } else {
          covering.pop();
        }
      }
      at = end;
    };
    for (const u32 line : by_begin) {
      go_to(lines[line].begin);
      covering.push(line);
    }
    go_to(~u64{0});
  }
};

u32 Names::intern(CodeFunction function) {
  if (function.kind != CodeFunction::Kind::remark && !budget_.step((function.name.size() + function.path.size()) / 8)) {
    ++beyond_;
    return remark(std::string(StackTexts::no_room));
  }
  std::string key = function.name + '\n' + function.path + '\n' + static_cast<char>('0' + static_cast<int>(function.kind));
  if (const auto known = function_numbers_.find(key); known != function_numbers_.end()) return known->second;
  const u64 size = sizeof(CodeFunction) + 2 * key.size() + function.module.size() + function.source.size() + 128;
  if (function.kind != CodeFunction::Kind::remark && !budget_.take(size)) {
    ++beyond_;
    return remark(std::string(StackTexts::no_room));
  }
  const auto [at, fresh] = function_numbers_.try_emplace(std::move(key), static_cast<u32>(functions_.size()));
  if (fresh) functions_.push_back(std::move(function));
  return at->second;
}

u32 Names::remark(const std::string& text) { return intern({text, "", "", "", CodeFunction::Kind::remark}); }

u32 Names::source_number(const std::string& source) {
  if (!source_numbers_.contains(source) && !budget_.take(2 * source.size() + 128)) return 0;
  const auto [at, fresh] = source_numbers_.try_emplace(source, static_cast<u32>(sources_.size()));
  if (fresh) sources_.push_back(source);
  return at->second;
}

Names::Span Names::beyond() {
  ++beyond_;
  places_.push_back({remark(std::string(StackTexts::no_room)), 0, 0, 0, 0, false});
  return {static_cast<u32>(places_.size() - 1), 1};
}

Names::Span Names::keep(const std::vector<CodePlace>& places) {
  if (places.size() > 1 && !budget_.take(2 * places.size() * sizeof(CodePlace))) return beyond();
  const Span span{static_cast<u32>(places_.size()), static_cast<u32>(places.size())};
  places_.insert(places_.end(), places.begin(), places.end());
  return span;
}

std::span<const CodePlace> Names::at(u32 space, u64 address, u32 machine, bool kernel) {
  const auto [at, fresh] = known_.try_emplace({kernel ? u64{machine} << 33 : u64{space} + 1, address});
  if (fresh) {
    const Span span = kernel ? in_kernel(address, machine) : look_up(space, address, machine);
    at->second = span;  // the table does not grow meanwhile
  }
  return {places_.data() + at->second.begin, at->second.size};
}

Names::Span Names::look_up(u32 space, u64 address, u32 machine) {
  const CodeMap* const map = maps_.find(space, address);
  const i32 pid = maps_.pid(space);
  if (map == nullptr || !is_file(maps_.file(map->file).path)) return by_perf_map(pid, address, machine);
  const u64 offset = address - map->start + map->offset;
  return is_program(map->file, offset, pid) ? in_file(map->file, offset, pid) : by_perf_map(pid, address, machine);
}

bool Names::is_program(u32 file, u64 offset, i32 pid) {
  const CodeFile& code = maps_.file(file);
  if (only_asks_ || !is_memory(code.path)) return true;
  const KeptNames* const kept = machines_[code.machine].kept.get();
  return (kept != nullptr &&
          (!kept->at(code.path, code.build_id, offset).empty() || kept->knows_no_name(code.path, code.build_id, offset))) ||
         elf_of(file, pid) != nullptr;
}

Names::Span Names::in_kernel(u64 address, u32 machine) {
  if (address == trampoline) return keep({{remark("[FTRACE TRAMPOLINE]"), 0, 0, 0, 0, false}});
  const Symbols* const kernel = machines_[machine].kernel;
  const Symbols::Symbol* const symbol = kernel != nullptr ? kernel->find_first(address) : nullptr;
  if (symbol == nullptr) return unnamed(fmt::format("[kernel]+{:#x}", address), "[kernel]");
  CodeFunction function{sys::printable(symbol->name), sys::printable(symbol->module), "", "", CodeFunction::Kind::kernel};
  function.path = function.module.empty() ? "[kernel]" : "[" + function.module + "]";
  const u64 size = kernel->end_of(*symbol) - symbol->address;
  return keep({{intern(std::move(function)), 0, address - symbol->address, size, 0, false}});
}

Names::Span Names::unnamed(std::string text, const std::string& path) {
  ++unnamed_;
  return keep({{intern({std::move(text), base_name(path), path, "", CodeFunction::Kind::unnamed}), 0, 0, 0, 0, false}});
}

Names::Span Names::by_perf_map(i32 pid, u64 address, u32 machine) {
  const Machine& of = machines_[machine];
  const std::string path = perf_map_path(pid);
  const auto named = [&](std::string_view name, u64 offset, u64 size) {
    const Span span =
        keep({{intern({sys::printable(name), "[jit]", path, "", CodeFunction::Kind::jit}), 0, offset, size, 0, false}});
    compiled_[{u64{machine} << 32 | static_cast<u32>(pid), address}] = span;
    return span;
  };
  if (pid > 0 && of.kept != nullptr)
    if (const std::vector<ElfPlace> found = of.kept->at(path, kept_compiled, address); !found.empty())
      return named(found[0].function, found[0].offset, found[0].size);
  if (pid > 0 && of.here)
    if (const PerfMap::Line* entry = perf_map(pid).find(address))
      return named(entry->name, address - entry->begin, entry->end - entry->begin);
  return unnamed(fmt::format("{:#x}", address), "");
}

const Names::PerfMap& Names::perf_map(i32 pid) {
  auto& map = perf_maps_[pid];
  if (map == nullptr) {
    // A process in a container writes it into its own /tmp, under the number that it has there.
    std::string problem;
    const i32 inside = sys::number_inside(pid);
    const auto in_its_root = [&] { return read_perf_map(perf_map_path(inside), pid, pid, budget_, problem); };
    const bool apart = inside != 0 && inside != pid;
    auto text = apart ? in_its_root() : std::nullopt;
    if (!text) text = read_perf_map(perf_map_path(pid), 0, pid, budget_, problem);
    if (!text && inside == pid) text = in_its_root();
    map = std::make_shared<PerfMap>(text.value_or(""));
    add_problem(std::move(problem));
  }
  return *map;
}

void Names::add_problem(std::string sentence) {
  if (!sentence.empty() && problems_.size() < most_problems) problems_.push_back(std::move(sentence));
}

std::vector<std::string> Names::problems() const {
  std::vector<std::string> all = problems_;
  for (const auto& [file, names] : elves_)
    if (names != nullptr && names->left_out() != 0 && all.size() < most_problems)
      all.push_back(
          fmt::format("{} name{} of {} {} left out: {} would take more memory or time than a file of its size may; the "
                      "functions show as their symbols are written",
                      names->left_out(), names->left_out() == 1 ? "" : "s", sys::printable(maps_.file(file).path),
                      names->left_out() == 1 ? "was" : "were", names->left_out() == 1 ? "it" : "they"));
  if (beyond_ != 0)
    all.push_back(fmt::format("{} address{} left out: {} names would take more memory than a reading may; {} as {}", beyond_,
                              beyond_ == 1 ? " was" : "es were", beyond_ == 1 ? "its" : "their",
                              beyond_ == 1 ? "it shows" : "they show", StackTexts::no_room));
  return all;
}

void Names::take_kept(const std::string& text, u32 machine) {
  std::unique_ptr<KeptNames>& kept = machines_[machine].kept;
  if (kept == nullptr) kept = std::make_unique<KeptNames>();
  kept->add(text, budget_);
}

std::string Names::kept() const {
  KeptNames out;
  for (const auto& [key, span] : in_files_) {
    const CodeFile& code = maps_.file(static_cast<u32>(key.first));
    const auto elf = elves_.find(static_cast<u32>(key.first));
    const bool unnamed = span.size == 1 && functions_[places_[span.begin].function].kind == CodeFunction::Kind::unnamed;
    if (unnamed && elf != elves_.end() && elf->second != nullptr) out.add_unnamed(code.path, code.build_id, key.second);
    for (u32 i = 0; i < span.size; ++i) {
      const CodePlace& p = places_[span.begin + i];
      const CodeFunction& f = functions_[p.function];
      if (f.kind != CodeFunction::Kind::program) continue;  // it has no name
      out.add(code.path, code.build_id, key.second, {f.name, p.offset, p.size, sources_[p.file], p.line, p.inlined});
    }
  }
  for (const auto& [key, span] : compiled_) {
    const CodePlace& p = places_[span.begin];
    out.add(perf_map_path(static_cast<i32>(key.first)), kept_compiled, key.second,
            {functions_[p.function].name, p.offset, p.size, "", 0, false});
  }
  return out.text();
}

std::string Names::asked(u64 most_bytes) const {
  std::map<std::pair<std::string, std::string>, std::string> files;  // by build id and path
  u64 bytes = 0;
  for (const auto& [key, span] : in_files_) {
    const CodeFile& code = maps_.file(static_cast<u32>(key.first));
    const auto [at, fresh] = files.try_emplace({code.build_id, code.path});
    const std::string line = KeptNames::asking(key.second), head = fresh ? KeptNames::head(code.path, code.build_id) : "";
    bytes += line.size() + head.size();
    if (bytes > most_bytes) break;
    at->second += head + line;
  }
  std::string text;
  for (const auto& [key, lines] : files) text += lines;
  return text;
}

// The reason that is returned is that of the file at the path.
result<std::unique_ptr<ElfNames>> Names::open(const CodeFile& code, i32 pid) {
  using Elf = result<std::unique_ptr<ElfNames>>;
  const auto one_of = [&](const FindFiles& find, Elf& opened) {
    for (sys::Fd& file : find ? find(code.path, pid) : std::vector<sys::Fd>()) {
      auto one = ElfNames::open(code.path, code.build_id, &budget_, std::move(file));
      if (!one) continue;
      opened = std::move(one);
      return true;
    }
    return false;
  };
  const KeptNames* const kept = machines_[code.machine].kept.get();
  Elf opened;
  if (one_of(before_, opened)) return opened;
  if (code.build_id.empty() && kept != nullptr && kept->has_changed(code.path))
    return refuse(std::errc::bad_file_descriptor,
                  code.path + " is not the file that ran: it has changed since, and it has no build id");
  opened = ElfNames::open(code.path, code.build_id, &budget_);
  if (!opened) (void)one_of(after_, opened);
  return opened;
}

ElfNames* Names::elf_of(u32 file, i32 pid) {
  if (only_asks_) return nullptr;
  const auto [at, fresh] = elves_.try_emplace(file);
  if (fresh) {
    auto opened = open(maps_.file(file), pid);
    if (opened)
      add_problem((*opened)->doubt());
    else
      unopened_[file] = opened.error().sentence + "; its functions have no names here";
    if (opened) at->second = std::move(*opened);
  }
  return at->second.get();
}

Names::Span Names::in_file(u32 file, u64 offset, i32 pid) {
  const auto [at, fresh] = in_files_.try_emplace({file, offset});
  if (!fresh) return at->second;
  const CodeFile& code = maps_.file(file);
  const std::string path = sys::printable(code.path), module = base_name(path);
  std::vector<CodePlace> places;
  const KeptNames* const kept = machines_[code.machine].kept.get();
  std::vector<ElfPlace> found = kept != nullptr ? kept->at(code.path, code.build_id, offset) : std::vector<ElfPlace>();
  if (ElfNames* const names = found.empty() ? elf_of(file, pid) : nullptr; names != nullptr)
    found = names->at(offset);
  else if (!only_asks_ && found.empty() && (kept == nullptr || !kept->knows_no_name(code.path, code.build_id, offset)))
    add_problem(std::exchange(unopened_[file], ""));  // else the recorder found no name in the file, either
  for (ElfPlace& p : found) {
    const u32 source = source_number(p.file);
    places.push_back({intern({std::move(p.function), module, path, p.file, CodeFunction::Kind::program}), p.line, p.offset,
                      p.size, source, p.inlined});
  }
  const Span span = places.empty() ? unnamed(fmt::format("{}+{:#x}", module, offset), path) : keep(places);
  return in_files_[{file, offset}] = span;
}

}  // namespace ringside
