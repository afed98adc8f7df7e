#include "probe/probes.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>

#include "analysis/names.hpp"
#include "schema/glob.hpp"
#include "stacks/elf_names.hpp"
#include "stacks/judged.hpp"
#include "stacks/usdt_notes.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr std::string_view prefixes[] = {"usdt:", "uprobe:", "kprobe:"};
constexpr const char* forms =
    "write usdt:PATH:PROVIDER:NAME, uprobe:PATH:FUNCTION, kprobe:FUNCTION; the last two take +OFFSET, %return and "
    "(ARGUMENT, ...)";
constexpr std::string_view return_mark = "%return";

tl::unexpected<Error> malformed(const std::string& text) {
  return refuse(std::errc::invalid_argument, in_quotes(text) + " is no probe: " + forms);
}

// Letters, digits and _: others become one _.
std::string word_of(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
    if (plain)
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out = "_" + out;
  return out;
}

// "/usr/lib/libstdc++.so.6" -> "libstdc"
std::string file_word(const std::string& path) {
  const std::string base = path.substr(path.rfind('/') + 1);
  return word_of(base.substr(0, base.find_first_of(".-+")));
}

// A file for the kernel, without symlinks. pid, inside: it is in the root of that process, which is not this one's.
struct ProbedFile {
  std::string path;
  i32 pid = 0;
  std::string inside{};

  result<std::unique_ptr<ElfNames>> elf() const {
    if (pid == 0) return ElfNames::open(path, "");
    return ElfNames::open(path, "", nullptr, RS_TRY(open_judged(inside, {.pid = pid})));
  }
  result<std::vector<UsdtNote>> notes() const { return pid == 0 ? usdt_notes(path) : usdt_notes(inside, {.pid = pid}); }
};

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// Follows symlinks as a process with this root does.
result<std::string> resolve_below(const std::string& root, const std::string& path) {
  std::string done, rest = path;
  for (u32 links = 0; links < 40;) {
    rest.erase(0, std::min(rest.find_first_not_of('/'), rest.size()));
    if (rest.empty()) return done;
    const std::string name = rest.substr(0, rest.find('/'));
    rest.erase(0, name.size());
    if (name == "..") done.erase(std::min(done.rfind('/'), done.size()));
    if (name == "." || name == "..") continue;
    const std::string text = sys::link_text(root + done + "/" + name);
    if (text.empty()) done += "/" + name;
    if (text.empty()) continue;
    if (text[0] == '/') done.clear();
    rest.insert(0, text + "/");
    ++links;
  }
  return fail(ELOOP, root + path + " cannot be opened");
}

// /proc/PID/root/..., /proc/PID/cwd/... and /proc/PID/exe: what the process finds there. Nothing: the path is none of these.
result<std::optional<ProbedFile>> file_of_process(const std::string& path) {
  ProbedFile file;
  int after = 0;
  char kind[5] = {};
  if (std::sscanf(path.c_str(), "/proc/%d/%4[a-z]%n", &file.pid, kind, &after) != 2 || file.pid <= 0) return std::nullopt;
  const std::string what = kind, rest = path.substr(static_cast<size_t>(after)), process = "/proc/" + std::to_string(file.pid),
                    root = process + "/root";
  if ((what != "root" && what != "cwd" && what != "exe") || (!rest.empty() && rest[0] != '/')) return std::nullopt;
  file.inside = RS_TRY(resolve_below(root, what == "root" ? rest : sys::link_text(process + "/" + what) + rest));
  file.path = root + file.inside;
  if (what == "exe" && !is_same_file(path, file.path))
    return refuse(std::errc::no_such_file_or_directory,
                  path + " is at no path of its process's root: it was removed or replaced since that started");
  if (is_same_file(file.inside, file.path)) file = {file.inside};
  return file;
}

// As the kernel reads it: up to the first blank.
result<ProbedFile> probed_file(const std::string& path) {
  struct stat st {};
  const auto of_process = RS_TRY(file_of_process(path));
  ProbedFile file = of_process.value_or(ProbedFile());
  if (!of_process) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), std::free);
    if (real == nullptr) return fail(errno, path + " cannot be opened");
    file.path = real.get();
  }
  if (stat(file.path.c_str(), &st) != 0) return fail(errno, path + " cannot be opened");
  if (std::any_of(file.path.begin(), file.path.end(), [](char c) { return static_cast<u8>(c) <= ' '; }))
    return refuse(std::errc::invalid_argument, file.path +
                                                   " has a blank in its path, which the kernel's uprobe_events cannot express: "
                                                   "make a link of another name beside it and run that");
  return file;
}

result<std::vector<ProbePoint>> usdt_points(const Probe& probe, std::vector<std::string>& notices) {
  const ProbedFile file = RS_TRY(probed_file(probe.path));
  const std::string& path = file.path;
  std::vector<ProbePoint> points;
  std::set<std::string> all, left_out;
  for (const UsdtNote& note : RS_TRY(file.notes())) {
    all.insert(note.provider + ":" + note.name);
    if (!glob_matches(probe.provider, note.provider) || !glob_matches(probe.name, note.name)) continue;
    const UsdtArguments arguments = usdt_arguments(note.arguments);
    for (const std::string& one : arguments.left_out) left_out.insert(note.provider + ":" + note.name + " " + one);
    ProbePoint point;
    point.system = "sdt_" + word_of(note.provider);
    point.name = word_of(note.name);
    point.place =
        fmt::format("{}:{:#x}", path, note.offset) + (note.semaphore != 0 ? fmt::format("({:#x})", note.semaphore) : "");
    point.fetch = arguments.fetch;
    const auto same = [&](const ProbePoint& other) { return other.place == point.place && other.name == point.name; };
    if (std::none_of(points.begin(), points.end(), same)) points.push_back(std::move(point));
  }
  if (!left_out.empty())
    notices.push_back("the kernel cannot fetch these arguments, and they are left out: " +
                      short_list({left_out.begin(), left_out.end()}));
  if (!points.empty()) return points;
  if (all.empty())
    return refuse(std::errc::no_such_file_or_directory,
                  probe.path + " has no USDT probes at all; uprobe:" + probe.path + ":FUNCTION probes a function");
  return refuse(std::errc::no_such_file_or_directory,
                probe.path + " has no probe " + in_quotes(probe.provider + ":" + probe.name) +
                    near_events(EventPattern(probe.provider + ":" + probe.name), {all.begin(), all.end()}));
}

std::string event_name(const Probe& probe) {
  return word_of(probe.name) + (probe.offset != 0 ? fmt::format("_{:#x}", probe.offset) : "") +
         (probe.at_return ? "__return" : "");
}

// An IFUNC has no code of its own name. Its implementations have the name in theirs: __strlen_avx2 for strlen.
std::string chosen_by_loader(const Probe& probe, const std::vector<std::string>& all) {
  std::vector<std::string> among;
  for (const std::string& name : all) {
    if (name != probe.name && name.find(probe.name + "_") != std::string::npos) among.push_back(name);
  }
  return probe.path + ": the loader chooses " + probe.name + " when a program starts, by the processor: " +
         (among.empty() ? "probe the function that it chooses; its name is in the debug symbols, which are not installed"
                        : "probe one of " + short_list(among));
}

std::string without_variables(const std::string& path) {
  return path +
         " has no debugging information of this function: install its debug symbols, build it with -g, or say where the kernel "
         "finds an argument ($arg1 is the first integer or pointer, $arg2:string a text)";
}

result<std::string> fetch_at(const Probe& probe, ElfNames& elf, u64 begin, const std::string& path,
                             std::vector<std::string>& notices) {
  if (!probe.has_list) return probe.at_return ? "ret=$retval:s64" : "";
  const auto variables = elf.variables(begin + probe.offset, probe.offset, probe.at_return);
  auto fetch = fetch_of(probe.arguments, variables.get(), elf.doubt().empty() ? without_variables(path) : elf.doubt(), notices);
  if (!fetch) fetch.error().sentence = probe.text + ": " + fetch.error().sentence;
  return fetch;
}

result<std::vector<ProbePoint>> uprobe_points(const Probe& probe, std::vector<std::string>& notices) {
  const ProbedFile file = RS_TRY(probed_file(probe.path));
  const std::string& path = file.path;
  const auto elf = RS_TRY(file.elf());
  std::vector<ProbePoint> points;
  const std::vector<ElfFunction> found = elf->named(probe.name);
  for (const auto& [begin, size] : found) {
    if (size != 0 && probe.offset >= size) continue;
    std::string fetch = RS_TRY(fetch_at(probe, *elf, begin, path, notices));
    points.push_back({"probe_" + file_word(path), event_name(probe), false, probe.at_return,
                      fmt::format("{}:{:#x}", path, begin + probe.offset), std::move(fetch)});
  }
  if (!points.empty()) return points;
  if (!found.empty())
    return refuse(std::errc::invalid_argument,
                  fmt::format("{}: {} has {:#x} bytes, and an offset must be within them, at an instruction's first byte",
                              probe.text, probe.name, found.back().size));
  const std::vector<std::string> all = elf->functions();
  if (elf->is_chosen(probe.name)) return refuse(std::errc::invalid_argument, chosen_by_loader(probe, all));
  const std::string near = did_you_mean(nearest(probe.name, all));
  return refuse(
      std::errc::no_such_file_or_directory,
      probe.path + " has no function " + in_quotes(probe.name) +
          (near.empty() && all.empty() ? "; it has no symbols at all: install its debug symbols, or name a library of it"
                                       : near));
}

// The kernel's variables are the kernel's to find: newer ones read names and members by their BTF.
result<std::vector<ProbePoint>> kprobe_points(const Probe& probe) {
  std::string fetch = probe.at_return && !probe.has_list ? "ret=$retval:s64" : "";
  for (const ProbeArgument& one : probe.arguments) {
    if (one.kind == ProbeArgument::Kind::parameters || one.kind == ProbeArgument::Kind::variables)
      return refuse(std::errc::not_supported, probe.text + ": " + one.text + " is for uprobes: name the arguments");
    std::string text = one.kind == ProbeArgument::Kind::raw ? one.raw : one.text.substr(0, one.text.rfind(':'));
    if (one.kind == ProbeArgument::Kind::path) {
      text = text.substr(text.find('=') + 1);
      if (one.path.variable == "$ret") text = "$retval";
    }
    fetch +=
        (fetch.empty() ? "" : " ") + (one.name.empty() ? "" : one.name + "=") + text + (one.type.empty() ? "" : ":" + one.type);
  }
  return std::vector<ProbePoint>{{"probe", event_name(probe), true, probe.at_return,
                                  probe.name + (probe.offset != 0 ? fmt::format("+{}", probe.offset) : ""), fetch}};
}

// Folders have colons in their names, and functions have them and slashes: the first colon after the name of a file ends the
// path. If no file is there, the first one after the last slash.
size_t end_of_path(const std::string& rest) {
  for (size_t colon = rest.find(':'); colon != std::string::npos; colon = rest.find(':', colon + 1)) {
    struct stat st {};
    if (colon != 0 && stat(rest.substr(0, colon).c_str(), &st) == 0 && !S_ISDIR(st.st_mode)) return colon;
  }
  const size_t slash = rest.rfind('/');
  const size_t behind = rest.find(':', slash == std::string::npos ? 0 : slash);
  return behind != std::string::npos ? behind : rest.find(':');
}

// "ns::X::operator()(a, b)": where the list of arguments begins. A function's own name may end with brackets, too.
size_t begin_of_list(const std::string& text) {
  i32 depth = 0;
  if (!text.ends_with(')')) return std::string::npos;
  for (size_t i = text.size(); i-- != 0;) {
    depth += text[i] == ')' ? 1 : text[i] == '(' ? -1 : 0;
    if (depth != 0) continue;
    const bool is_of_name = std::string_view(text).substr(0, i).ends_with("operator");
    return is_of_name ? std::string::npos : i;
  }
  return std::string::npos;
}

}  // namespace

bool Probe::is(std::string_view text) {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](std::string_view prefix) { return text.rfind(prefix, 0) == 0; });
}

result<Probe> Probe::parse(const std::string& text) {
  Probe probe;
  probe.text = text;
  size_t kind = 0;
  while (kind < std::size(prefixes) && text.rfind(prefixes[kind], 0) != 0) ++kind;
  if (kind == std::size(prefixes)) return malformed(text);
  probe.kind = static_cast<Kind>(kind);
  std::string rest = text.substr(prefixes[kind].size());
  if (probe.kind == Kind::usdt) {
    const size_t second = rest.rfind(':'),
                 first = second == 0 || second == std::string::npos ? std::string::npos : rest.rfind(':', second - 1);
    if (first == std::string::npos || first == 0 || second == first + 1 || second + 1 == rest.size()) return malformed(text);
    probe.path = rest.substr(0, first);
    probe.provider = rest.substr(first + 1, second - first - 1);
    probe.name = rest.substr(second + 1);
    return probe;
  }
  if (probe.kind == Kind::uprobe) {
    const size_t colon = end_of_path(rest);
    if (colon == std::string::npos || colon == 0) return malformed(text);
    probe.path = rest.substr(0, colon);
    rest.erase(0, colon + 1);
  }
  if (const size_t list = begin_of_list(rest); list != std::string::npos) {
    probe.has_list = true;
    auto arguments = parse_arguments(std::string_view(rest).substr(list + 1, rest.size() - list - 2));
    if (!arguments) return refuse(std::errc::invalid_argument, text + ": " + arguments.error().sentence);
    probe.arguments = std::move(*arguments);
    rest.erase(list);
  }
  if (rest.ends_with(return_mark)) {
    probe.at_return = true;
    rest.erase(rest.size() - return_mark.size());
  }
  if (const size_t plus = rest.rfind('+');
      plus != std::string::npos && plus + 1 < rest.size() && rest[plus + 1] >= '0' && rest[plus + 1] <= '9') {
    const bool hex = rest.compare(plus + 1, 2, "0x") == 0;
    const char* const begin = rest.data() + plus + 1 + (hex ? 2 : 0);
    const auto [end, code] = std::from_chars(begin, rest.data() + rest.size(), probe.offset, hex ? 16 : 10);
    if (code != std::errc() || end != rest.data() + rest.size() || probe.offset > u64{1} << 40) return malformed(text);
    rest.erase(plus);
  }
  if (probe.at_return && probe.offset != 0)
    return refuse(std::errc::invalid_argument, in_quotes(text) + ": %return is of a whole function and takes no offset");
  const bool blank = std::any_of(rest.begin(), rest.end(), [](char c) { return static_cast<u8>(c) < ' '; });
  if (rest.empty() || blank || (probe.kind == Kind::kprobe && word_of(rest) != rest && rest.find('.') == std::string::npos))
    return malformed(text);
  probe.name = rest;
  return probe;
}

result<std::vector<ProbePoint>> points_of(const Probe& probe, std::vector<std::string>& notices) {
  if (probe.kind == Probe::Kind::usdt) return usdt_points(probe, notices);
  return probe.kind == Probe::Kind::uprobe ? uprobe_points(probe, notices) : kprobe_points(probe);
}

result<std::vector<ProbeableFunction>> probeable(const Probe& probe) {
  const ProbedFile file = RS_TRY(probed_file(probe.path));
  const auto elf = RS_TRY(file.elf());
  std::vector<ProbeableFunction> out;
  for (const auto& [name, place] : elf->matching(probe.name)) {
    ProbeableFunction one{"uprobe:" + probe.path + ":" + name};
    const auto variables = out.size() < most_described ? elf->variables(place.begin, 0, false) : std::unique_ptr<Variables>();
    if (variables != nullptr) {
      one.is_described = true;
      one.parameters = variables->all();
      std::erase_if(one.parameters, [](const Variables::Known& known) { return !known.is_parameter; });
      one.returns = variables->returns();
    }
    out.push_back(std::move(one));
  }
  if (!out.empty()) return out;
  return refuse(std::errc::no_such_file_or_directory, probe.path + " has no function that matches " + in_quotes(probe.name) +
                                                          did_you_mean(nearest(probe.name, elf->functions())));
}

}  // namespace ringside
