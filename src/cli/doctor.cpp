// ringside doctor: what this machine offers, and what to do about what is missing.
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/preload.hpp"
#include "clock/tsc.hpp"
#include "text/units.hpp"
#include "kernel/clock_check.hpp"
#include "sys/sys.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/maker.hpp"

namespace ringside::cli {
namespace {

enum class Verdict { ok, warn, fail };

struct Finding {
  Verdict verdict;
  std::string what, found, advice;  // advice: empty when all is well
  nlohmann::json more = nlohmann::json::object();
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

// What was found out about the time stamp counter.
std::string on_tsc(const TscEvidence& found) {
  if (!found.invariant) return "the processor's flags do not say that tsc is invariant";
  std::string text = "tsc is invariant by the processor's flags; the kernel ";
  switch (found.kernel) {
    case KernelOnTsc::uses: text += "uses it"; break;
    case KernelOnTsc::accepts: text += "lists it"; break;
    case KernelOnTsc::hypervisors: text += "uses the hypervisor's clock, which is made of it"; break;
    case KernelOnTsc::rejects: text += "rejects it"; break;
  }
  switch (found.warps) {
    case Warps::not_tested: return text + "; the processors did not meet in a test";
    case Warps::none: return text + fmt::format("; {} readings of processors in turn, none backwards", format_count(found.meetings));
    case Warps::found: return text + fmt::format("; in a test, it went back by {} ticks between processors", found.most_back);
  }
  return text;
}

Finding clock() {
  if (is_instruction(ClockKind::cntvct))
    return {Verdict::ok, "clock", "mono, which the kernel has, too; --clock cntvct is read without a call", ""};
  TscEvidence found = tsc_evidence();
  if (found.invariant && found.kernel == KernelOnTsc::uses) test_for_warps(found);
  const std::string source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::string because = fmt::format("{} (clock source {})", on_tsc(found), source.empty() ? "unknown" : source);
  if (found.warps == Warps::found && tsc_evidence().trusted())
    return {Verdict::fail, "clock", "tsc, but " + because, "use --clock mono: times of different processors do not compare"};
  if (found.trusted()) return {Verdict::ok, "clock", "tsc: " + because, ""};
  return {Verdict::warn, "clock", "mono: " + because,
          "an event costs about 20 ns more" + std::string(found.invariant ? "" : "; on a virtual machine, ask the host for an invariant TSC")};
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

// Do rings belong to CPUs? The check of Instance::create.
Finding rings() {
  const RingsBecause because = why_not_cpu_rings();
  if (because == RingsBecause::can)
    return {Verdict::ok, "rings", fmt::format("of CPUs ({} possible): restartable sequences work", possible_cpus()), ""};
  return {
      Verdict::warn, "rings", std::string("of threads, ") + to_string(because),
      because == RingsBecause::no_rseq ? "rings of CPUs need glibc 2.35 with its tunable glibc.pthread.rseq on, and Linux 4.18"
                                       : "this kernel is known to be wrong on arm64 before 7.0.14: rings of threads are safe"};
}

Finding pages() {
  const u64 page = sys::page_bytes();
  if (page <= abi::largest_subbuf)
    return {Verdict::ok, "pages", fmt::format("of {} bytes, and so is the smallest sub-buffer", page), ""};
  return {Verdict::fail, "pages", fmt::format("of {} bytes: more than the largest sub-buffer", page),
          "programs cannot be traced here; recordings can be read"};
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
  std::string root = instances_root();
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
    return {Verdict::warn, "kernel", name.release, "its version cannot be read"};
  if (major > 6 || (major == 6 && minor >= 10))
    return {Verdict::ok, "kernel", fmt::format("{}: its tracing ring buffer can be mapped", name.release), ""};
  return {Verdict::warn, "kernel", fmt::format("{}: its tracing ring buffer cannot be mapped", name.release),
          "user-space rings work all the same; mapping the kernel's needs Linux 6.10"};
}

Finding tracefs() {
  auto dir = tracefs_dir();  // mounts it, like every command that needs it
  if (!dir) return {Verdict::warn, "tracefs", "not usable, so the kernel cannot be traced", dir.error().sentence};
  if (access((*dir + "/per_cpu/cpu0/trace_pipe_raw").c_str(), R_OK) == 0)
    return {Verdict::ok, "tracefs", *dir + ", readable", ""};
  return {Verdict::warn, "tracefs", *dir + ", not readable for this user",
          "only for tracing the kernel: run " + sys::as_root() + ", or mount -o remount,gid=GROUP,mode=770 " + *dir};
}

Finding kvm() {
  if (access("/dev/kvm", R_OK | W_OK) == 0) return {Verdict::ok, "/dev/kvm", "usable: ringside guest works", ""};
  if (errno == ENOENT)
    return {Verdict::warn, "/dev/kvm", "missing",
            "only for ringside guest: no virtualisation here, or modprobe kvm_intel or kvm_amd"};
  return {Verdict::warn, "/dev/kvm", "not usable for this user", "only for ringside guest: join the group kvm"};
}

// Compares each of the kernel's clocks with the program's. It matters only that the default clock of a recording merges.
void clocks(std::vector<Finding>& all) {
  if (!tracefs_dir()) return;
  auto checks = check_kernel_clocks();
  if (!checks) {
    all.push_back({Verdict::warn, "clocks", "those of the kernel could not be measured", checks.error().sentence});
    return;
  }
  const std::string own = to_string(best_clock()), mono = to_string(ClockKind::mono);
  const auto merges = [&](const std::string& name) {
    return std::any_of(checks->begin(), checks->end(), [&](const ClockCheck& c) { return c.name == name && c.merges(); });
  };
  for (const ClockCheck& c : *checks) {
    const bool ours = c.name == own || c.name == mono;
    const std::string against = c.against == ClockKind::tsc ? "tsc" : "mono";
    const auto error = static_cast<double>(c.error_ns);
    const u64 offset = c.offset_ns < 0 ? 0 - static_cast<u64>(c.offset_ns) : static_cast<u64>(c.offset_ns);
    const std::string found = !c.constant ? fmt::format("no constant offset from {}, by {}", against, format_time(2 * error))
                                          : fmt::format("{}{} from {}, give or take {}", c.offset_ns < 0 ? "-" : "",
                                                        format_time(static_cast<double>(offset)), against, format_time(error));
    Finding finding{Verdict::ok, "clock " + c.name,
                    found + (c.merges() ? ": merges"
                             : ours     ? ": does not merge"
                                        : ": does not merge, never set"),
                    ""};
    if (ours && !c.merges()) {
      finding.verdict = c.name == own ? Verdict::fail : Verdict::warn;
      const std::string other = c.name == own ? mono : own;
      finding.advice = merges(other) ? "events of program and kernel merge with --clock " + other
                                     : "record the program and the kernel apart: their events have no common order";
    }
    finding.more = {{"clock", c.name}, {"against", against}, {"offset_ns", c.offset_ns}, {"error_ns", c.error_ns},
                    {"constant", c.constant}, {"merges", c.merges()}, {"markers", c.markers}, {"processors", c.processors}};
    all.push_back(std::move(finding));
  }
  // The existing instances.
  for (const std::string& name : Instance::list()) {
    auto instance = Instance::open(name);
    if (!instance || (*instance)->clock().kind != ClockKind::counter) continue;
    all.push_back({Verdict::warn, "instance " + name, "its clock, counter, merges with no other",
                   "remove it and make it with --clock tsc or mono"});
  }
  for (const std::string& dir : kernel_instances()) {
    const std::string clock = kernel_clock_of(dir);
    if (clock.empty() || merges(clock)) continue;
    all.push_back({Verdict::warn, "kernel instance",
                   fmt::format("{}: its clock, {}, does not merge with a program's", dir, clock),
                   fmt::format("echo {} > {}/trace_clock, which empties it", merges(own) ? own : mono, dir)});
  }
}

Finding rights() {
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  return {Verdict::ok, "rights",
          fmt::format("uid {}{}{}; instances are private to it", geteuid(), sys::has_own_users() ? " of a user namespace" : "",
                      scope.empty() ? "" : ", ptrace_scope " + scope),
          ""};
}

Finding preload() {
  auto found = find_preload();
  if (found) return {Verdict::ok, "record --libc", *found, ""};
  return {Verdict::warn, "record --libc", "libringside-libc.so not found", "build or install it beside ringside or in ../lib"};
}

int run_doctor(bool json) {
  std::vector<Finding> findings{clock(), fence(),  rings(),   pages(),  processors(), memory(), map_count(),
                                files(), kernel(), tracefs(), rights(), preload(),    kvm()};
  clocks(findings);
  nlohmann::json all = nlohmann::json::array();
  bool bad = false;
  const bool colour = colours();
  std::string text;
  for (const Finding& f : findings) {
    bad = bad || f.verdict == Verdict::fail;
    all.push_back({{"check", f.what}, {"verdict", word(f.verdict)}, {"found", f.found}, {"advice", f.advice}});
    all.back().update(f.more);
    const char* paint = !colour                      ? ""
                        : f.verdict == Verdict::ok   ? "\033[32m"
                        : f.verdict == Verdict::warn ? "\033[33m"
                                                     : "\033[31m";
    text += fmt::format("{}{:<4}{}  {:<17} {}\n", paint, word(f.verdict), colour ? "\033[0m" : "", f.what, f.found);
    if (!f.advice.empty()) text += fmt::format("{:<6}{:<17} -> {}\n", "", "", f.advice);
  }
  put(json ? line_of(all) : text);
  return bad ? exit_failure : exit_ok;
}

}  // namespace

Command add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("doctor", "what this machine offers, and what to do about what is missing");
  add_json(*c, *json, "one JSON array");
  c->footer(
      "Examples:\n"
      "  ringside doctor\n"
      "  ringside doctor --json | jq '.[] | select(.verdict != \"ok\")'\n"
      "  ringside doctor --json | jq '.[] | select(.merges) | .clock'\n"
      "As root it measures the kernel's clocks against the program's, in an instance of its own, and looks at all instances:\n"
      "events have one order where clocks merge.\n"
      "Exits with 1 when something that ringside cannot do without is missing, or when the clock that it takes by itself does "
      "not\n"
      "merge with the kernel's.");
  return {c, [json] { return run_doctor(*json); }};
}

}  // namespace ringside::cli
