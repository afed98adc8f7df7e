#include "kernel/probe_group.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>

#include "schema/filter_clauses.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr size_t longest_name = 63;  // the kernel's

const char* file_of(bool in_kernel) { return in_kernel ? "kprobe_events" : "uprobe_events"; }

std::string base_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "ringside-1234.1" -> "ringside_1234_1"
std::string group_of(std::string instance) {
  std::replace_if(
      instance.begin(), instance.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return instance;
}

// Whether group_of() gives such names to instances of recorders.
bool is_recorders(const std::string& group) {
  constexpr std::string_view prefix = "ringside_";
  return group.rfind(prefix, 0) == 0 && group.size() > prefix.size() &&
         group.find_first_not_of("0123456789_", prefix.size()) == std::string::npos;
}

// While one process holds it, no other one takes a group for stale that is only just defined.
result<sys::Fd> lock(const std::string& root, bool in_kernel, int how = LOCK_EX) {
  const std::string path = root + "/" + file_of(in_kernel);
  sys::Fd fd(open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));  // O_TRUNC would remove everybody's definitions
  if (!fd && errno == ENOENT)
    return refuse(std::errc::not_supported,
                  fmt::format("this kernel has no {}: there is no {}",
                              in_kernel ? "kprobes (CONFIG_KPROBE_EVENTS)" : "uprobes (CONFIG_UPROBE_EVENTS)", path));
  if (!fd)
    return fail(errno,
                "cannot open " + path + (geteuid() != 0 || sys::has_own_users() ? " (only " + sys::as_root() + ")" : ""));
  if (flock(fd.get(), how) != 0 && (how & LOCK_NB) != 0) return fail(errno, path + " is locked");
  return fd;
}

// False: errno says why.
bool put_line(int fd, const std::string& line) {
  return ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// Whether the kernel lists the function of a place, "MODULE:FUNCTION+OFFSET": newer ones refuse another one with EINVAL
// (Linux 6.12), older ones with ENOENT.
bool has_function(const std::string& place) {
  const std::string of_module = place.substr(place.find(':') + 1), function = of_module.substr(0, of_module.find('+'));
  const std::string symbols = sys::read_file("/proc/kallsyms").value_or("");
  if (symbols.empty() || function.starts_with("0x")) return true;
  for (const char end : {'\n', '\t'})
    if (symbols.find(" " + function + end) != symbols.npos) return true;
  return false;
}

// The events of groups of recorders: "p:GROUP/NAME PLACE ..." or "p4:".
std::set<std::pair<std::string, std::string>> defined_by_recorders(const std::string& path) {
  std::set<std::pair<std::string, std::string>> found;
  const auto text = sys::read_file(path);
  std::istringstream lines(text ? *text : "");
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':'), slash = line.find('/', colon), end = line.find(' ', slash);
    if (colon == std::string::npos || slash == std::string::npos) continue;
    std::string group = line.substr(colon + 1, slash - colon - 1);
    if (is_recorders(group))
      found.emplace(std::move(group), line.substr(slash + 1, end == std::string::npos ? end : end - slash - 1));
  }
  return found;
}

// Of recorders that are gone. An instance is there before its definitions, so these are read first.
std::set<std::pair<std::string, std::string>> stale(const std::string& root, bool in_kernel) {
  auto all = defined_by_recorders(root + "/" + file_of(in_kernel));
  if (all.empty()) return all;
  std::set<std::string> living;
  for (const std::string& dir : kernel_instances()) living.insert(group_of(base_of(dir)));
  std::erase_if(all, [&](const auto& one) { return living.count(one.first) != 0; });
  return all;
}

// fd: the locked file of definitions.
void remove_stale(const std::string& root, int fd, bool in_kernel) {
  for (const auto& [group, name] : stale(root, in_kernel)) (void)put_line(fd, "-:" + group + "/" + name);
}

// "arg1=%di:s32 arg2=..." -> "arg1:s32 arg2:..."
std::string shape_of(const std::string& fetch) {
  std::string out;
  std::istringstream words(fetch);
  for (std::string word; words >> word;)
    out += word.substr(0, word.find('=')) + word.substr(std::min(word.rfind(':'), word.size())) + " ";
  return out;
}

}  // namespace

void remove_stale_probes() {
  const auto root = tracefs_dir();
  if (!root) return;
  for (const bool in_kernel : {false, true}) {
    if (stale(*root, in_kernel).empty()) continue;
    if (const auto fd = lock(*root, in_kernel, LOCK_EX | LOCK_NB)) remove_stale(*root, fd->get(), in_kernel);
  }
}

void ProbeGroup::remove() {
  const auto root = defined_.empty() ? result<std::string>("") : tracefs_dir();
  for (const Defined& one : defined_) {
    if (!root) break;
    if (const auto fd = lock(*root, one.in_kernel)) (void)put_line(fd->get(), "-:" + name_ + "/" + one.name);
  }
  defined_.clear();
}

result<ProbeGroup> ProbeGroup::define(TracefsInstance& instance, const std::vector<ProbePoint>& points,
                                      const std::string& filter) {
  const auto root = RS_TRY(tracefs_dir());
  const auto clauses = RS_TRY(filter_clauses(filter));
  ProbeGroup group(group_of(base_of(instance.dir())));
  std::set<std::string> names;
  std::vector<std::string> of_event;  // by event: its shape
  sys::Fd locked[2];                  // until the events are enabled, or what was defined is to be removed
  std::set<std::string> lines;
  for (const ProbePoint& point : points) {
    if (!lines.insert((point.at_return ? "r " : "p ") + point.place + " " + point.system + ":" + point.name).second)
      continue;  // asked for twice
    sys::Fd& fd = locked[point.in_kernel];
    if (!fd) {
      fd = RS_TRY(lock(root, point.in_kernel));
      remove_stale(root, fd.get(), point.in_kernel);
    }
    const std::string shape = point.system + ":" + point.name + (point.in_kernel ? " k" : " u") +
                              (point.at_return ? "r " : "p ") + shape_of(point.fetch);
    const auto known = std::find(of_event.begin(), of_event.end(), shape);
    std::string name = known != of_event.end() ? group.defined_[static_cast<size_t>(known - of_event.begin())].name : "";
    if (known == of_event.end()) {
      const std::string full = (point.system + "__" + point.name).substr(0, longest_name - 6);
      name = full;
      for (u32 n = 1; names.count(name) != 0; ++n) name = full + "_" + std::to_string(n);
      std::string shown = point.name;
      const auto is_taken = [&] {
        return std::any_of(group.events_.begin(), group.events_.end(),
                           [&](const Event& e) { return e.system == point.system && e.name == shown; });
      };
      for (u32 n = 1; is_taken(); ++n) shown = point.name + "_" + std::to_string(n);
      names.insert(name);
      group.events_.push_back({{}, point.system, shown});
    }
    const std::string line = std::string(point.at_return ? "r" : "p") + ":" + group.name_ + "/" + name + " " + point.place +
                             (point.fetch.empty() ? "" : " " + point.fetch);
    if (!put_line(fd.get(), line)) {
      const int error = errno;
      return fail(error,
                  "the kernel takes no probe \"" + line + "\"" +
                      (point.in_kernel && (error == ENOENT || !has_function(point.place)) ? ": it has no such function" : ""));
    }
    if (known == of_event.end()) {
      of_event.push_back(shape);
      group.defined_.push_back({point.in_kernel, name});
    }
  }
  for (size_t i = 0; i < group.events_.size(); ++i) {
    const std::string asked = filter_of(clauses, group.events_[i].system, group.events_[i].name);
    auto enabled = instance.enable(EventPattern(group.name_ + ":" + group.defined_[i].name), asked);
    if (enabled && enabled->size() != 1)
      enabled = refuse(std::errc::no_such_file_or_directory,
                       "the kernel shows no event " + group.name_ + ":" + group.defined_[i].name);
    if (!enabled) {
      (void)instance.write(("events/" + group.name_ + "/enable").c_str(), "0");
      return tl::unexpected<Error>(enabled.error());
    }
    group.events_[i].info = std::move(enabled->front());
  }
  return group;
}

}  // namespace ringside
