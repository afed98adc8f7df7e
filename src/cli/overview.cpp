#include "cli/overview.hpp"

namespace ringside::cli {

namespace {

constexpr const char* instances =
    "An instance is a set of rings in shared memory, with a name; a recording is a directory (ringside.data): meta.json\n"
    "and one file a ring, whose sub-buffers follow each other. Reading an instance consumes nothing; only record does.\n";
constexpr const char* streams_and_units =
    "Data goes to stdout, everything else to stderr. Sizes are written 65536, 64k, 8M or 1G, times 10s, 5ms or 3us.\n";
constexpr const char* environment_variables =
    "RINGSIDE_ROOT: where instances live (else $XDG_RUNTIME_DIR/ringside, else /dev/shm/ringside-UID); nobody but you may "
    "write\n"
    "there. Root works on another user's instance if it is named by its path: ringside list. RINGSIDE_INSTANCE: what a "
    "program\n"
    "that uses the library writes to; one that has more rights than its caller (setuid) takes nothing from the "
    "environment.\n"
    "RINGSIDE_BUDGET: what reading names and formats may take, in percent of the usual (1 to 10000), where a message says that\n"
    "some were left out. NO_COLOR: no colours.\n";
constexpr const char* codes =
    "0 fine, 1 failure (also: something could not be read, or not be recorded), 2 wrong usage, 3 events lost with\n"
    "--fail-on-loss, 4 never triggered; record, syscalls: their command's code.";

}  // namespace

std::string common_rules() { return std::string(streams_and_units) + instances + environment_variables + "Exit codes: " + codes; }

std::vector<Topic> overview() {
  return {
      {"DESCRIPTION",
       "Programs declare events and write them into rings in shared memory: one ring for each CPU, as in the Linux kernel, or "
       "one for\n"
       "each thread. The bytes are the kernel's. Other processes read those rings in place while the programs run, or after "
       "their\n"
       "death. Events of programs, of the C library's calls in any program, of the kernel and of external writers are put into "
       "one\n"
       "order of time. Every lost event is counted."},
      {"WHERE EVENTS COME FROM",
       "A program that includes <ringside/trace.hpp> (C++, ringside-trace(3)) or <ringside/ringside.h> (C, ringside(3)). Any "
       "program whose\n"
       "calls of the C library are traced: record --libc malloc,io,lock. The kernel, as root: record -e PATTERN. A guest, "
       "another process or\n"
       "firmware that writes the rings by itself: guest, remote, stream, recover."},
      {"INSTANCES AND RECORDINGS", std::string(instances) + streams_and_units},
      {"WHERE",
       "Commands that read take any number of WHERE: a recording, a trace.dat (also trace-cmd's), an instance by its name or "
       "path, the\n"
       "socket of ringside serve or of an external writer, or what was shipped to a server: clickhouse://HOST/DATABASE, or a "
       "part of\n"
       "it: clickhouse://db/traces?hosts=web1,web2&from=-10m (also to=TIME, config=FILE). The default is ringside.data in this "
       "directory."},
      {"EVENTS",
       "A PATTERN is SYSTEM:EVENT, SYSTEM or EVENT, with * and ? as wildcards, and commas between several. In record -e names "
       "events of the\n"
       "kernel and -u those of programs; elsewhere -e names any event that is there. A pattern that matches nothing ends with "
       "near names."},
      {"COLUMNS",
       "A column is [EVENT/]FIELD[.MODIFIER], for example libc:malloc/size.log2. FIELD is a field of the event, or one of "
       "event, system, task,\n"
       "thread, process, cgroup, cpu, ring, syscall, file, source, ts. Modifiers: .log2, .buckets=N, .hex, .sym, .execname, "
       ".usecs, "
       ".msecs."},
      {"FILTERS",
       "-f takes the kernel's language, for example 'prev_prio < 100 && comm ~ \"cc1*\"'; beside it times with units "
       "('duration_ns > 5ms'), the\n"
       "columns above, and EVENT/FIELD for the field of one event."},
      {"ENVIRONMENT", environment_variables},
      {"EXIT STATUS", codes},
      {"COMPLETION",
       "The shells bash, zsh and fish complete commands, options, events, fields, instances and the names of pairs."},
  };
}

}  // namespace ringside::cli
