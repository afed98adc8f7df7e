// ringside doctor: what this machine offers, and what to do about what is missing.
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/preload.hpp"
#include "cli/trace.hpp"
#include "cli/units.hpp"

namespace ringside::cli {
namespace {

enum class Verdict { ok, warn, fail };

struct Finding {
  Verdict verdict;
  std::string what, found, advice;  // advice: empty when all is well
};

const char* word(Verdict v) {
  switch (v) {
    case Verdict::ok:
      return "ok";
    case Verdict::warn:
      return "warn";
    case Verdict::fail:
      return "fail";
  }
  return "?";
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding clock() {
  const std::string source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (tsc_is_invariant()) return {Verdict::ok, "clock", "tsc is invariant (kernel: " + source + ")", ""};
  return {Verdict::warn, "clock",
          "tsc is not trusted here (kernel: " + (source.empty() ? "unknown" : source) + "); mono is used",
          "an event costs about 20 ns more; on a virtual machine, ask the host for an invariant TSC"};
}

Finding fence() {
  const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0)
    return {Verdict::fail, "membarrier", "the kernel has none",
            "waiting readers need it: CONFIG_MEMBARRIER, or a seccomp rule"};
  if ((commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0)
    return {Verdict::warn, "membarrier", "no global expedited command",
            "waiting, reset and resize are slower; Linux 4.16 has it"};
  return {Verdict::ok, "membarrier", "global expedited", ""};
}

Finding map_count() {
  const std::string text = first_line("/proc/sys/vm/max_map_count");
  const u64 count = std::strtoull(text.c_str(), nullptr, 10);
  // A reader maps two regions for each ring.
  const std::string found = text + fmt::format(" mappings: about {} rings in one reader", format_count(count / 2));
  if (count >= 65530) return {Verdict::ok, "vm.max_map_count", found, ""};
  return {Verdict::warn, "vm.max_map_count", found, "for programs with many threads: sysctl vm.max_map_count=262144"};
}

Finding files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found = fmt::format("{} soft, {} hard", limit.rlim_cur, limit.rlim_max);
  if (limit.rlim_max >= 4096) return {Verdict::ok, "open files", found, ""};
  return {Verdict::warn, "open files", found, "a recorder holds one file per ring: raise the hard limit (ulimit -Hn)"};
}

// The directory itself may not exist yet: its nearest parent is on the same file system.
Finding memory() {
  std::string root = Instance::root();
  const std::string shown = root;
  struct statvfs fs {};
  while (statvfs(root.c_str(), &fs) != 0 && root.size() > 1) root = root.substr(0, std::max<size_t>(1, root.rfind('/')));
  const u64 total = u64{fs.f_blocks} * fs.f_frsize, free = u64{fs.f_bavail} * fs.f_frsize;
  const std::string found = fmt::format("{}: {} of {} free", shown, format_size(free), format_size(total));
  if (access(root.c_str(), W_OK) != 0)
    return {Verdict::fail, "shared memory", found + ", not writable",
            "set RINGSIDE_ROOT to a directory in a tmpfs that is yours"};
  if (free < (u64{64} << 20))
    return {Verdict::warn, "shared memory", found,
            "rings will soon find no room: enlarge it (mount -o remount,size=1G /dev/shm) or clean up (ringside rm --stale)"};
  return {Verdict::ok, "shared memory", found, ""};
}

Finding processors() {
  const unsigned n = std::thread::hardware_concurrency();
  if (n >= 2) return {Verdict::ok, "processors", std::to_string(n), ""};
  return {Verdict::warn, "processors", std::to_string(n), "a live reader takes turns with its writer; use larger buffers (-b)"};
}

Finding kernel() {
  utsname name{};
  uname(&name);
  int major = 0, minor = 0;
  if (std::sscanf(name.release, "%d.%d", &major, &minor) != 2)
    return {Verdict::warn, "kernel", name.release, "its version cannot be told"};
  if (major > 6 || (major == 6 && minor >= 10))
    return {Verdict::ok, "kernel", fmt::format("{}: its tracing ring buffer can be mapped", name.release), ""};
  return {Verdict::warn, "kernel", fmt::format("{}: its tracing ring buffer cannot be mapped", name.release),
          "user-space rings work all the same; mapping the kernel's needs Linux 6.10"};
}

Finding tracefs() {
  for (const char* path : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
    if (access((std::string(path) + "/trace_pipe").c_str(), F_OK) != 0) continue;
    if (access((std::string(path) + "/per_cpu/cpu0/trace_pipe_raw").c_str(), R_OK) == 0)
      return {Verdict::ok, "tracefs", std::string(path) + ", readable", ""};
    return {Verdict::warn, "tracefs", std::string(path) + ", not readable for this user",
            "only for tracing the kernel: run as root, or mount -o remount,gid=GROUP " + std::string(path)};
  }
  if (geteuid() != 0)
    return {Verdict::warn, "tracefs", "not visible for this user", "only for tracing the kernel: run as root"};
  return {Verdict::warn, "tracefs", "not mounted",
          "only for tracing the kernel: mount -t tracefs tracefs /sys/kernel/tracing (containers often forbid it)"};
}

Finding rights() {
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  return {Verdict::ok, "rights",
          fmt::format("uid {}{}; instances are private to it", geteuid(), scope.empty() ? "" : ", ptrace_scope " + scope), ""};
}

Finding preload() {
  auto found = find_preload();
  if (found) return {Verdict::ok, "record --libc", *found, ""};
  return {Verdict::warn, "record --libc", "libringside-libc.so not found", "build or install it beside ringside or in ../lib"};
}

int run(bool json) {
  const Finding findings[] = {clock(), fence(),  processors(), memory(), map_count(),
                              files(), kernel(), tracefs(),    rights(), preload()};
  nlohmann::json all = nlohmann::json::array();
  bool bad = false;
  const bool colour = colours();
  std::string text;
  for (const Finding& f : findings) {
    bad = bad || f.verdict == Verdict::fail;
    all.push_back({{"check", f.what}, {"verdict", word(f.verdict)}, {"found", f.found}, {"advice", f.advice}});
    const char* paint = !colour                      ? ""
                        : f.verdict == Verdict::ok   ? "\033[32m"
                        : f.verdict == Verdict::warn ? "\033[33m"
                                                     : "\033[31m";
    text += fmt::format("{}{:<4}{}  {:<17} {}\n", paint, word(f.verdict), colour ? "\033[0m" : "", f.what, f.found);
    if (!f.advice.empty()) text += fmt::format("{:<6}{:<17} -> {}\n", "", "", f.advice);
  }
  put(json ? all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : text);
  return bad ? exit_failure : exit_ok;
}

}  // namespace

Command add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("doctor", "what this machine offers, and what to do about what is missing");
  c->add_flag("--json", *json, "one JSON array");
  c->footer(
      "Examples:\n"
      "  ringside doctor\n"
      "  ringside doctor --json | jq '.[] | select(.verdict != \"ok\")'\n"
      "Exits with 1 when something that ringside cannot do without is missing.");
  return {c, [json] { return run(*json); }};
}

}  // namespace ringside::cli
