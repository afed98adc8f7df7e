#include "cli/record_remarks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "cli/command_file.hpp"
#include "text/units.hpp"

namespace ringside::cli {
namespace {

std::string joined(const EventPatterns& patterns) {
  std::string out;
  for (const EventPattern& one : patterns) out += (out.empty() ? "" : ",") + one.text();
  return out;
}

// cpu_ns: what the command used.
std::string why_no_samples(const RecordOptions& options, const std::string& preload_fails, u64 cpu_ns) {
  const std::string& name = options.command.front();
  if (!preload_fails.empty()) return "--sample saw nothing: " + preload_fails + "; -a --sample, as root, samples by the kernel";
  if (cpu_ns < 2 * (1'000'000'000 / options.sample_hz) + 20'000'000)
    return fmt::format(
        "{} used {:.3f} s of CPU time: no thread came to a sample, which is due after 1/{} s of a thread's "
        "time, and taken at the kernel's next tick",
        name, static_cast<double>(cpu_ns) / 1e9, options.sample_hz);
  return fmt::format(
      "{} used {:.2f} s of CPU time and has no samples: it may block SIGURG, the signal that takes them, or, by "
      "system calls of its own, replace its handler, or start programs that cannot be preloaded; "
      "-a --sample, as root, or -p PID --sample samples by the kernel",
      name, static_cast<double>(cpu_ns) / 1e9);
}

// Calls of --libc that the program defines itself. Empty: all go to the C library, as far as its file shows.
std::string unseen_calls(const RecordOptions& options, const std::string& command) {
  std::vector<std::string> wanted;
  for (const std::string& call : options.libc.empty() || command.empty() ? std::vector<std::string>() : libc_calls())
    if (libc_traces(options.libc, call))
      wanted.push_back((libc_traces("lock", call) && call.rfind("sem_", 0) != 0 ? "pthread_" : "") + call);
  const std::vector<std::string> own = calls_of_its_own(command, wanted);
  return own.empty() ? ""
                     : command + " defines " + short_list(own) + " itself (its dynamic symbols have " +
                           (own.size() == 1 ? "it" : "them") + "): --libc sees none of its calls of " +
                           (own.size() == 1 ? "it" : "these");
}

}  // namespace

std::vector<std::string> unmatched_user(const RecordOptions& options, const Instance& instance,
                                        const std::vector<EventInfo>& of_writers) {
  std::vector<std::string> declared, sentences;
  for (const EventInfo& e : of_writers) declared.push_back(e.system + ":" + e.name);
  for (const EventInfo& e : instance.events()) declared.push_back(e.system + ":" + e.name);
  for (const EventPattern& pattern : options.user) {
    if (std::any_of(declared.begin(), declared.end(),
                    [&](const std::string& e) { return pattern.matches(e.substr(0, e.find(':')), e.substr(e.find(':') + 1)); }))
      continue;
    std::string near = near_events(pattern, declared);
    if (near.empty()) near = declared.empty() ? "; none was declared at all" : "; declared were " + short_list(declared);
    sentences.push_back("-u " + pattern.text() + ": no program declared such an event" + near);
  }
  return sentences;
}

void say_why_empty(const RecordOptions& options, const Instance& instance, const std::string& command, bool nothing_at_all,
                   int code, u64 cpu_ns) {
  const std::string name = !options.command.empty() ? options.command.front()
                           : options.probes_libc()  ? "process " + std::to_string(options.pids.front())
                                                    : "";
  const auto events = instance.events();
  const bool enabled = std::any_of(events.begin(), events.end(), [](const EventInfo& e) { return e.enabled; });
  if (!instance.tracing_on()) {
    say("recording is off in " + instance.name() + ": echo 1 > tracing_on in its mount turns it on");
  } else if (!events.empty() && !enabled) {
    say("no event of a program is enabled" +
        (options.user.empty()
             ? "; try -u PATTERN, or ringside enable -i " + instance.name() + " PATTERN"
             : ": none of the " + std::to_string(events.size()) + " that were declared matches -u " + joined(options.user)));
  } else if (const std::string reason = command.empty() ? "" : why_preload_fails(command);
             !options.libc.empty() && !reason.empty()) {
    say("--libc saw nothing: " + reason + "; try events of the kernel, as root: -e 'syscalls:*'");
  } else if (const std::string ended = code == exit_ok || command.empty() ? "" : why_sanitizer_ends(command);
             (!options.libc.empty() || (options.sample_hz != 0 && !options.kernel_samples())) && !ended.empty()) {
    say(name + " ended with code " + std::to_string(code) + ": " + ended);
  } else if (!options.libc.empty()) {
    if (nothing_at_all && unseen_calls(options, command).empty())
      say(name + " made none of the calls that --libc " + options.libc + " traces");
  } else if (nothing_at_all && options.sample_hz != 0 && !options.kernel_samples()) {
    if (instance.threads_without_samples() + instance.samples_without_room() + instance.threads_without_room() == 0)
      say(why_no_samples(options, reason, cpu_ns));  // else that is said
  } else if (nothing_at_all && events.empty() && !options.command.empty()) {
    say(name + " wrote no events of its own" +
        (reason.empty() ? "; try --libc malloc,io or, as root, "
                        : ", and --libc would not see its calls: " + reason + "; try, as root, ") +
        "-e 'sched:*'");
  } else if (nothing_at_all && events.empty() && !options.instance.empty()) {
    say("no program has declared an event in " + instance.name() + " yet: start one with RINGSIDE_INSTANCE=" + instance.name());
  } else if (nothing_at_all && !events.empty()) {
    say(counted(events.size(), "event was", "events were") + " declared, and none was written in this time");
  }
  if (!options.stacks.empty() && options.kernel_stacks.empty() && options.wants_kernel() && !nothing_at_all)
    say("--stack is about events of programs, and none was written; -g records the calls that led to events of the kernel, "
        "too");
  if (nothing_at_all && options.wants_kernel())
    say((options.kernel.empty() ? (options.probes.empty() ? "none of the functions of --graph" : "none of the probes")
                                : "none of the kernel's events " + joined(options.kernel)) +
        " happened" + (options.filter.empty() ? "" : " with " + options.filter) +
        (options.pids.empty() && !follows_command(options) ? "" : " in these processes; -a records all processes"));
}

void say_unseen_calls(const RecordOptions& options, const std::string& command) {
  if (const std::string unseen = unseen_calls(options, command); !unseen.empty()) say(unseen);
}

// Events that --stack names and that were declared before they could have one.
void say_without_stack(const RecordOptions& options, const Instance& instance) {
  for (const EventInfo& e : instance.events()) {
    if (is_about_stacks(e) || !options.stacks.matches(e.system, e.name) || has_stack(e)) continue;
    say("--stack: " + e.system + ":" + e.name + " was declared without a stack and stays so; a new instance has it with one");
  }
}

void say_incomplete(const Instance& instance) {
  if (const u64 homeless = instance.refused_without_ring(); homeless != 0)
    say(format_count(homeless) +
        " of the lost events came into no ring: the memory for rings is used up (-b makes them smaller), the instance was out "
        "of "
        "reach, a ring was given up (ringside stat), a signal handler left the event by longjmp before it was written, the "
        "event "
        "was too large or had a value that does not fit its field, or the program had forbidden itself system calls (seccomp) "
        "or "
        "shares its memory with another process (clone)");
  if (const u64 without = instance.without_stack(); without != 0)
    say(counted(without, "stack was", "stacks were") +
        " not taken: a signal handler interrupted the walk over one, twice, there was no memory for it, or the program had "
        "forbidden itself system calls (seccomp)");
  if (const u64 threads = instance.threads_without_samples(); threads != 0)
    say(counted(threads, "thread has", "threads have") +
        " no samples: the kernel gave no timer; ulimit -i bounds all timers and pending signals of a user");
  if (const u64 without = instance.samples_without_room(); without != 0)
    say(counted(without, "sample was", "samples were") +
        " not taken: the thread's alternate signal stack was too small; 8 KiB are enough");
  if (const u64 threads = instance.threads_without_room(); threads != 0)
    say(counted(threads, "thread has", "threads have") +
        " no samples, or not all: the alternate signal stack was too small for the kernel's signal frame; 8 KiB are enough");
}

// A system of the kernel's and one of the program's may have the same name.
void say_of_both(const RecordOptions& options, const Instance& instance) {
  if (!options.user.empty()) return;
  const auto events = instance.events();
  for (const EventPattern& pattern : options.kernel) {
    if (std::any_of(events.begin(), events.end(), [&](const EventInfo& e) { return pattern.matches(e.system, e.name); }))
      say("-e " + pattern.text() + " means the kernel's events; " + instance.name() + " has some of this name, too: -u " +
          pattern.text() + " records only these of it");
  }
}

void say_of_the_rest(const RecordOptions& options, const Instance& instance) {
  std::vector<std::string> names;
  for (const EventInfo& e : instance.events())
    if (e.enabled && !options.user.matches(e.system, e.name) && !is_about_stacks(e)) names.push_back(e.system + ":" + e.name);
  if (!names.empty())
    say(instance.name() + " has other events enabled, too: " + short_list(names) +
        ". They are taken from its rings with yours, and all are recorded; ringside report -e " + joined(options.user) +
        " shows yours alone");
}

}  // namespace ringside::cli
