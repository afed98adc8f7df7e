#include "cli/record_options.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <utility>

#include "analysis/names.hpp"
#include "cli/arguments.hpp"
#include "cli/command_file.hpp"
#include "cli/program.hpp"
#include "cli/tcp.hpp"
#include "cli/writers.hpp"
#include "export/exporter.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"

namespace ringside::cli {
namespace {

constexpr u64 smallest_recording = 1 << 20;

// "fp", "dwarf", "dwarf,16384": how much of the user's stack a sample copies.
u32 parse_call_graph(const std::string& text) {
  constexpr u32 usual = 8192, most = 65528;
  if (text == "fp") return 0;
  if (text == "dwarf") return usual;
  u32 bytes = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with("dwarf,")) {
    const auto [at, error] = std::from_chars(text.data() + 6, end, bytes);
    if (error == std::errc() && at == end && bytes >= 8 && bytes <= most) return bytes / 8 * 8;
  }
  throw UsageError{"--call-graph takes fp, dwarf, or dwarf,BYTES with 8 to 65528 bytes of the stack, not " + text};
}

// Probes among the values of -e are no patterns.
result<void> find_probes(RecordOptions& options) {
  std::vector<std::string> notices;
  for (const std::string& text : options.kernel_events) {
    if (!Probe::is(text)) continue;
    Probe probe = RS_TRY(Probe::parse(text));
    if (probe.kind != Probe::Kind::kprobe && probe.path.find('/') == std::string::npos &&
        access(probe.path.c_str(), F_OK) != 0) {
      if (auto found = find_command(probe.path)) probe.path = *found;
    }
    for (ProbePoint& point : RS_TRY(points_of(probe, notices))) options.probes.push_back(std::move(point));
  }
  std::erase_if(options.kernel_events, [](const std::string& text) { return Probe::is(text); });
  for (const std::string& notice : notices) say(notice);
  return {};
}

// The groups of --libc that the kernel can probe.
void check_probed(const RecordOptions& options) {
  for (const std::string& group : libc_groups(options.libc))
    if (group != "malloc" && group != "io")
      throw UsageError{"--libc " + group +
                       " needs a command to preload into; of a process that runs already, -p, there are malloc and io"};
  if (!options.user.empty() || !options.user_events.empty())
    throw UsageError{"-u chooses among the events of a command or an instance, not among those of --libc with -p"};
}

}  // namespace

result<void> check(RecordOptions& options) {
  RS_TRY(find_writers(options.instance, options.remotes));
  if (!options.libc.empty()) (void)libc_groups(options.libc);
  if (options.files && !options.names_kernel()) options.kernel_events = {"raw_syscalls"};
  if (options.files && options.clock.empty()) options.clock = "mono";
  if (options.files && options.clock != "mono") throw UsageError{"--files needs --clock mono: BPF programs read no other one"};
  FunctionChoice& functions = options.functions;
  if (functions.functions.empty() && functions.tracer != FunctionChoice().tracer)
    throw UsageError{"--tracer belongs to --graph"};
  if (!functions.functions.empty() && options.depth != RecordOptions().depth) functions.depth = options.depth;
  if (!options.sample.empty()) options.sample_hz = parse_rate(options.sample);
  if (options.sample_hz != 0 && options.command.empty() && !options.all_processes && options.pids.empty())
    throw UsageError{"--sample needs a command, whose threads it interrupts; -a samples the whole machine, -p a process"};
  const auto chosen = [](const std::string& given) {  // "true": the option without a pattern
    return given.empty() ? EventPatterns() : parse_events({given == "true" ? "*:*" : given});
  };
  if (!options.call_graph.empty()) {
    options.stack_bytes = parse_call_graph(options.call_graph);
    if (!options.kernel_samples())
      throw UsageError{
          "--call-graph is about the kernel's samples, --sample with -a or -p; the samples of a command follow tables as they "
          "are"};
  }
  const bool nothing_named = !options.names_kernel() && options.user_events.empty() && options.libc.empty();
  if (options.calls && options.sample_hz == 0 && nothing_named && !options.command.empty() && options.instance.empty())
    options.sample_hz = usual_rate;                    // as perf record -g does
  else if (options.calls && options.sample_hz == 0) {  // samples have them by themselves
    if (options.stack.empty() && !(options.command.empty() && options.instance.empty())) options.stack = "true";
    if (options.kstack.empty() && !options.kernel_events.empty()) options.kstack = "true";
  }
  options.stacks = chosen(options.stack);
  options.kernel_stacks = chosen(options.kstack);
  if (!options.stacks.empty() && options.command.empty() && options.instance.empty())
    throw UsageError{
        "--stack is about events of a program: give a command, or an instance with -i; --kstack is for those of the kernel"};
  if (!options.kernel_stacks.empty() && options.kernel_events.empty())
    throw UsageError{"--kstack is about events of the kernel: name them with -e"};
  for (const i32 pid : options.pids) {
    if (pid <= 0) throw UsageError{"--pid takes the number of a process, not " + std::to_string(pid)};
    if (kill(pid, 0) != 0 && errno == ESRCH)
      return refuse(std::errc::no_such_process, "there is no process " + std::to_string(pid) + " here; nothing was recorded");
  }
  if (!options.libc.empty() && options.command.empty() && options.pids.empty())
    throw UsageError{"--libc needs a command to preload into, or -p PID, a process that runs already"};
  if (options.probes_libc()) check_probed(options);
  const bool nothing =
      options.wants_nothing() && !options.names_kernel() && !options.kernel_samples() && !options.probes_libc();
  if (nothing && !options.pids.empty())
    throw UsageError{
        "nothing to record of process " + std::to_string(options.pids.front()) +
        ": name events of the kernel with -e, take --sample 999 for its calls, or --libc malloc,io for those of the C "
        "library"};
  if (nothing)
    throw UsageError{
        "nothing to record: give a command, an instance with -i, an external writer with --remote, or events of the kernel "
        "with "
        "-e"};
  if (options.all_processes && !options.pids.empty()) throw UsageError{"--all and --pid contradict each other"};
  check_subbuf_size(options.subbuf_size);
  if (options.buffer_size < 2 * options.subbuf_size)
    throw UsageError{"--buffer-size must hold at least two sub-buffers of " + format_size(options.subbuf_size)};
  // Files of other tools: -o FILE as in export.
  const ExportFormat* const other = export_format_of_file(options.out);
  if (options.to.empty() && other != nullptr && other->of != ExportFormat::Of::ctf && !is_recording(options.out))
    options.to = options.out;
  options.rotation.check();
  if (options.max_size != 0 && options.max_size < smallest_recording)
    throw UsageError{"--max-size takes at least " + format_size(smallest_recording)};
  if (options.rotation.wanted() && options.max_size != 0)
    throw UsageError{"--rotate and --max-size contradict each other: --rotate 64M --keep 15 bounds the parts"};
  if (goes_elsewhere(options)) {
    if (options.to != "-" && !TcpAddress::parse(options.to.substr(tcp_prefix.size())))
      throw UsageError{"--to takes tcp:HOST:PORT, where ringside collect listens, not " + options.to};
    const char* const without = options.rotation.wanted() ? "--rotate"
                                : options.max_size != 0   ? "--max-size"
                                : options.compress        ? "--compress"
                                                          : nullptr;
    if (without != nullptr)
      throw UsageError{std::string(without) + " is about files here, and --to " + options.to +
                       " makes none: the collector keeps all that comes"};
    if (options.to == "-" && isatty(STDOUT_FILENO) != 0)
      throw UsageError{"--to - writes to standard output, which is a terminal: pipe it into ringside collect -"};
  }
  if (options.rotation.wanted() && !options.to.empty())
    throw UsageError{"--rotate makes recordings, --to one trace.dat; ringside export makes one of each part"};
  if (options.compress && options.max_size != 0)
    throw UsageError{
        "--compress and --max-size contradict each other, as compressed events have no place of their own: --rotate 64M --keep "
        "15 bounds compressed parts"};
  if (options.compress && !options.to.empty())
    throw UsageError{
        "--compress makes a recording, --to one file of another format; ringside export makes one of a compressed recording"};
  RS_TRY(find_probes(options));
  options.kernel = parse_events(options.kernel_events);
  options.user = parse_events(options.user_events);
  if (!options.user.empty() && options.command.empty() && options.instance.empty() && options.remotes.empty())
    throw UsageError{"-u names events of a program: give a command, an instance with -i, or an external writer with --remote"};
  if (!options.kernel.empty()) RS_TRY(check_kernel_events(options.kernel, true));
  options.kernel_remotes = options.kernel.of_remotes(true);
  options.kernel = options.kernel.of_remotes(false);
  const bool of_processes =
      (!options.pids.empty() && !options.probes_libc()) || (options.all_processes && options.kernel_remotes.empty());
  if (!options.wants_kernel() && (!options.filter.empty() || (!options.kernel_samples() && of_processes)))
    throw UsageError{
        "--filter, --pid and --all are about events of the kernel: name them with -e; --pid and --all also about --sample"};
  if (goes_elsewhere(options)) {
    options.out = options.to;
  } else if (!options.to.empty()) {
    std::error_code none;
    if (std::filesystem::is_directory(options.to, none))
      throw UsageError{"--to takes a file, and " + options.to + " is a directory"};
    if (const ExportFormat* const to = export_format_of_file(options.to); to != nullptr && to->of == ExportFormat::Of::ctf)
      throw UsageError{"--to makes no CTF trace; ringside export makes one of a recording"};
    options.out = parts_of(options.to);
  }
  return {};
}

void add_options(CLI::App& app, RecordOptions& options) {
  app.add_option("-i,--instance", options.instance, "instance to record; made if it is not there (default: a private one)");
  app.add_option("--remote", options.remotes,
                 "an external writer, by its socket or the name that it has announced: its events beside the others; may be "
                 "repeated. Without a command, the recording ends when they have ended")
      ->allow_extra_args(false);
  add_events(app, options.kernel_events, "events of the kernel", "-e,--event", true);
  app.add_option(
         "--graph", options.functions.functions,
         "calls of the kernel's functions with these names (* and ? are wildcards), from entry to return; --depth: at most "
         "this many below each other, where the kernel can bound that for one recorder (as root, Linux 6.11 and later)")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->type_name("FUNCTION");
  app.add_option("--tracer", options.functions.tracer, "of --graph: function records calls without their ends")
      ->check(CLI::IsMember({"function_graph", "function"}))
      ->capture_default_str();
  add_events(app, options.user_events,
             "of the program's events, and of external writers', only these (default: all); with -i they are enabled for this "
             "time, and what else is enabled "
             "there is recorded, too",
             "-u,--user");
  app.add_option_function<std::vector<std::string>>(
         "-f,--filter",
         [&options](const std::vector<std::string>& all) {
           options.filter.clear();
           for (const std::string& one : all) options.filter += (options.filter.empty() ? "" : "; ") + one;
         },
         "kernel events only if FILTER, in the kernel's language: \"prio < 100\"; of one event among several: \"sched_switch: "
         "prev_prio < 100\", and the others pass")
      ->allow_extra_args(false)
      ->type_name("FILTER");
  app.add_option("-p,-P,--pid", options.pids,
                 "kernel events and samples of this process and what it starts; may be repeated, or have commas. Without a "
                 "command, the recording ends when they have ended")
      ->allow_extra_args(false)
      ->delimiter(',');
  app.add_flag("-a,--all", options.all_processes,
               "kernel events and samples of all processes (default with a command: only its), except those of ringside itself "
               "and of interrupts that come while it runs");
  add_source(app, options.source);
  app.add_option(
         "--libc", options.libc,
         "trace calls of the C library in all processes: malloc, io, mutex, lock; none in static and Go programs, and none "
         "that the library makes itself: fopen shows no open. Without a command, and with -p: malloc and io of a process that "
         "runs already, by the kernel's probes (as root)")
      ->type_name("LIST");
  app.add_flag(
      "-g", options.calls,
      "with the calls that led to each event: --stack for the program's, --kstack for the kernel's; where nothing else "
      "is named, --sample");
  app.add_flag("--stack", options.stack, "with the calls that led to each of the program's events; --stack=PATTERN: to these");
  app.add_flag("--kstack", options.kstack,
               "with the kernel's calls that led to each of its events; --kstack=PATTERN: to these");
  app.add_option("--depth", options.depth, "of --stack and --sample: at most this many calls, the innermost ones")
      ->check(CLI::Range(1, 400))
      ->capture_default_str();
  app.add_option("--sample", options.sample,
                 "interrupt each thread of the command RATE times in a second of its CPU time (default: 999), and record "
                 "its calls (at most once a tick of the kernel's; `count` says how many of them one record is); with -a or -p "
                 "each CPU, by the kernel, with the kernel's calls, too")
      ->type_name("RATE");
  app.add_option(
         "--call-graph", options.call_graph,
         "how samples of -a and -p find a program's callers: fp, by frame pointers (default); dwarf or dwarf,BYTES, by the "
         "compilers' tables, which nearly all code has: the kernel copies BYTES (8192) of the stack into each sample")
      ->type_name("HOW");
  const auto of_rings = [&options](const std::string& name, CLI::Option* option) {
    return option->each([&options, name](const std::string& value) { options.of_rings[name] = value; });
  };
  app.add_flag(
      "--files", options.files,
      "note which file each descriptor is, and the paths of system calls, for report, hist, syscalls --by file and file "
      "in -f: a BPF program reads them at the calls (as root; without -e, raw_syscalls are recorded)");
  of_rings("-b",
           add_size(app, "-b,--buffer-size", options.buffer_size, "size of each ring, of a CPU or a thread (default 4M)"));
  of_rings("--rings",
           app.add_option("--rings", options.rings,
                          "whose: cpu, shared by all processes; thread, one for each; auto: of CPUs where the system has what "
                          "they need"))
      ->check(CLI::IsMember({"auto", "cpu", "thread"}))
      ->capture_default_str();
  of_rings("--subbuf-size",
           add_size(app, "--subbuf-size", options.subbuf_size, "size of a sub-buffer, 4k to 256k (default 16k)"));
  of_rings("--mode", app.add_option("--mode", options.mode, "when a ring is full: overwrite the oldest, or discard the new"))
      ->check(CLI::IsMember({"overwrite", "discard"}))
      ->capture_default_str();
  of_rings("--clock",
           app.add_option("--clock", options.clock,
                          "tsc (x86-64), cntvct (arm64), mono or counter (default: tsc where it is invariant, else mono)"));
  const auto not_a_directory = [](const ExportFormat& format) { return format.of != ExportFormat::Of::ctf; };
  app.add_option("-o,--output", options.out,
                 "directory of the recording; an older recording becomes DIR.old. A FILE with one of these endings is the same "
                 "as --to: " + export_format_endings(not_a_directory))
      ->capture_default_str();
  app.add_option(
         "--to", options.to,
         "record into one file instead: a .tar of the recording, with its names; a trace.dat for trace-cmd, KernelShark and "
         "ringside report; or a file that grows meanwhile: " +
             export_format_endings([](const ExportFormat& format) { return format.grows(); }) +
             ". Or to another machine, without a disk here: tcp:HOST:PORT, where ringside collect listens, or - for a pipe "
             "into "
             "ringside collect - (the command's own output then goes to standard error)")
      ->type_name("FILE")
      ->excludes("--output");
  add_size(app, "--max-size", options.max_size,
           "of the recording: then the oldest events go, and are counted; it stays readable at any moment");
  add_compress(app, options.compress);
  options.rotation.add_options(app);
  add_duration(app, options.duration_ns, "stop after this time");
  app.add_flag("--fail-on-loss", options.fail_on_loss, "exit with 3 when events were lost");
  add_wait(app, options.wait);
  app.add_flag("-q,--quiet", options.quiet, "no summary");
  app.add_option("COMMAND", options.command, "what to run; options before it are ringside's")->type_name("");
  app.footer(
      "Examples:\n"
      "  ringside record ./server                       a program that uses ringside/trace.hpp or ringside.h\n"
      "  ringside record --libc malloc,io g++ -c a.cpp  any program, and all that it starts\n"
      "  ringside record --libc malloc --stack ./server     and which calls led there\n"
      "  ringside record --sample 999 ./server              where its CPU time goes\n"
      "  ringside record -a --sample 999 --duration 10s     where all CPUs' time goes, kernel included (as root); then: "
      "ringside flame\n"
      "  ringside record -a --sample 199 --call-graph dwarf --duration 10s   the same, with the callers of code without frame "
      "pointers\n"
      "  ringside record --libc malloc,io -p 4711 --duration 10s   the same of a process that runs already (as root)\n"
      "  ringside record -i web -u 'net:*' --duration 10s   some events of a program that is running\n"
      "  ringside record -e sched_switch,'syscalls:sys_enter_*' ls   with events of the kernel (as root)\n"
      "  ringside record -e 'irq:*' --duration 1s           the kernel alone, all processes\n"
      "  ringside record -e usdt:/usr/bin/python3:python:'gc__*' python3 a.py   the probes of a program (as root)\n"
      "  ringside record -e uprobe:./server:handle -e uprobe:./server:handle%return ./server   calls of a function, and their "
      "ends\n"
      "  ringside record -e 'uprobe:./server:handle(req->id, req->path, len)' ./server   with its arguments, by debugging "
      "information\n"
      "  ringside record --graph 'vfs_*' ls                 calls in the kernel; then: ringside latency functions\n"
      "  ringside record -e 'remotes/hypervisor:*' -e 'kvm:*' --duration 10s   the kernel's own remotes, beside the kernel\n"
      "  ringside record -e sched --to trace.dat make       as a trace.dat\n"
      "  ringside record -e sched --to make.pftrace make    for https://ui.perfetto.dev\n"
      "  ringside record -i web --to web.json & tail -F web.json     events as lines, half a second later\n"
      "  ringside record -i web --max-size 1G               the last 1 GiB, for days; ringside report reads it meanwhile\n"
      "  ringside record --to tcp:desk:5555 -e sched ./server     on a board without a disk; on desk: ringside collect "
      "0.0.0.0:5555\n"
      "  ringside record -e sched --compress --duration 60s   in a fifth of the space, or less\n"
      "  ringside record -i web --rotate 60s --keep 10      the last 10 minutes, in parts: ringside report ringside.data*\n"
      "-e names events of the kernel, -u those of programs; without -u all enabled events of the programs are recorded. Those "
      "of --libc\n"
      "stay on, unless a pattern of -u names libc. The first word that is no option begins the command; -- may come before "
      "it.\n"
      "-e also takes probes, one an option: usdt:PATH:PROVIDER:NAME (event sdt_PROVIDER:NAME, its arguments arg1, arg2, ...), "
      "and\n"
      "uprobe:PATH:FUNCTION and kprobe:FUNCTION (probe_FILE:FUNCTION, probe:FUNCTION), both with +OFFSET or %return "
      "(NAME__return,\n"
      "with ret). (ARGUMENT, ...) at the end of these two makes fields: a variable, req->id, p.name, counts[2], *words, $ret "
      "after\n"
      "%return, $params (all parameters), $vars; [NAME=] comes before, [:TYPE] after it (u32, s64, x8, string; char * is a "
      "string\n"
      "by itself). ringside list 'uprobe:./server:hand*' shows functions and their parameters. Without debugging information:\n"
      "$arg1, $arg2:string, or the kernel's own words (%di, +8(%sp):u32).\n"
      "OFFSET must be the first byte of an instruction: in the middle of one, the probe changes it. The kernel "
      "stops the program there for about a microsecond. They are removed at the end.\n"
      "Instances of the kernel's that others made are never read, as that would take their events away: -i names ringside's.\n"
      "--sample needs 7 KiB of the stack of a thread that has no alternate signal stack; coroutines must have that left. "
      "A handler\n"
      "on an alternate stack must leave that, too: the kernel ends a program that has no room for its frame. Threads\n"
      "that block SIGURG on purpose, not with all signals, have no samples.\n"
      "--libc malloc: malloc, calloc, realloc, free and what allocates by alignment; strdup, new and others call these.\n"
      "io: read and write with their p, v and pv forms, recv and send with from, to and msg, open, openat, creat, close, dup2\n"
      "and dup3 as close of an open descriptor; close_range shows no close.\n"
      "mutex: pthread_mutex_lock, mtx_lock, and their try and timed forms. lock: these, pthread_rwlock_*, pthread_spin_lock, "
      "waits "
      "for\n"
      "conditions and semaphores (pthread_cond_*, cnd_*, sem_*) and what ends them, also where C++'s classes call them. "
      "C++20's "
      "semaphores,\n"
      "latches and atomic waits are futexes alone, which ringside syscalls -e futex shows.\n"
      "--libc sees calls into the C library, not those inside it: fread shows no read, fopen no open. Static programs run "
      "unseen.\n"
      "--libc with -p: the kernel stops each process that uses the file of this C library for a microsecond or two at each of "
      "these\n"
      "calls and returns, and -p chooses whose are recorded. Calls inside the library are seen, too; posix_memalign and those "
      "of "
      "io\n"
      "with arrays (readv, recvmsg) are not. A call that began before is no event, and a loss counts twice for each call.\n"
      "A running instance's rings are read from their oldest events on: what nobody has read yet is recorded, too, and its "
      "number is said.\n"
      "The exit code is the command's, 128 + N after signal N. The first Ctrl-C finishes what exists, the second leaves at\n"
      "once; the recording is readable either way. A disk that is full, or a file at ulimit -f, ends the recording and not "
      "the\n"
      "command. The exit code is then 1, if the command's is 0; so it is where a ring could not be read. With --to the rings "
      "go to\n"
      "FILE.parts, a recording, and into FILE: at the end, or for .pftrace, .json and .csv meanwhile, unless --max-size bounds "
      "it.");
}

}  // namespace ringside::cli
