// What an instance shares between its processes, beside the rings. A directory (mode 0700) that mirrors tracefs:
//
//   NAME/instance                         InstanceControl, ring table, event table, process table (this page)
//   NAME/threads                          threads that wrote: by tid (ThreadEntry); of other PID namespaces (ForeignEntry);
//                                         and when a number got another name (NameEntry)
//   NAME/gate                             4,096 bytes: per hash of "system:event", how many events are enabled
//   NAME/per_cpu/cpuN/ring                the control region of ring N; with rings of CPUs the first are those of CPU N
//   NAME/per_cpu/cpuN/trace_pipe_raw      its data region: exactly the kernel's mapping
//   NAME/events/SYSTEM/EVENT/{id,format}
//   NAME/set_event                        the patterns that enable events, one a line
//   NAME/set_stack                        the patterns of events that get their caller's stack as a field; "depth=N"
//   NAME/files                            a socket: while a recorder listens, programs hand over the files of their code
//   NAME/saved_cmdlines, saved_tgids      "tid name", "tid pid": of the writers
//
// All files are sparse: a page costs memory only once it is written.
#pragma once
#include <algorithm>
#include <cstring>
#include <iterator>
#include <ringside/ring/control.hpp>
#include <string>

namespace ringside {

inline constexpr u64 instance_magic = 0x0154534E49474E52;  // "RNGINST\1"
inline constexpr u32 instance_version = 7;
inline constexpr u32 most_rings = 65536;
inline constexpr u32 most_events = 4095;  // numbers 1 .. 4095; their ids are abi::event_id
inline constexpr u32 gate_bytes = 4096;

// Which readers wait. Writers load `any` on each commit and `percent` on each finished sub-buffer.
struct WaitWords {
  u64 any;      // a reader waits for any event
  u64 percent;  // a reader waits until a ring is this full: percent + 1
  u32 sequence;  // the futex; moves on at each wake-up
  u32 reserved;
};

// What the process of some writer lacks: without it a conclusion is not valid. Bits of InstanceControl::impaired.
namespace lacks {
inline constexpr u64 fence = 1;  // membarrier: a closed gate and nest == 0 mean that no writer is inside
inline constexpr u64 seat = 2;   // a seat (members.hpp): if there is none, no process writes
inline constexpr u64 bell = 4;   // the right to wake readers (sandbox.hpp), which look by themselves
}  // namespace lacks

// Counters of rings whose memory was given back.
struct PastTotals {
  u64 written, read, overrun, dropped, commit_overrun, unfinished_bytes, rings;
};

// Why an instance has the rings that it has.
enum class RingsBecause : u32 {
  asked = 0,       // the maker asked for them
  can = 1,         // rings of CPUs, because nothing spoke against them; all other values mean rings of threads
  no_rseq = 2,     // the C library or the kernel has no restartable sequences
  no_abort = 3,    // the kernel did not abort one when it should have
  budget = 5,      // the CPUs' rings would not fit into the memory that the rings may take
};

struct alignas(64) InstanceControl {
  u64 magic;
  u32 version, header_bytes;
  u64 sizes;  // for rings made from now on: subbuf_size | nr_subbufs << 32; one word, so that a resize is one store
  u32 spares;
  u32 mode;  // 0 overwrite, 1 discard
  u32 clock_kind, clock_mult, clock_shift;
  u32 without_clock;  // processes that do not write here, because their processor does not have the clock
  u64 clock_base_ticks, clock_base_ns;
  u64 budget;  // bytes of memory that the rings may take
  u64 measured_bytes, measured_rings;  // the bytes and the number of rings at the last measurement
  u64 creator, created_ns;  // creator: a Member
  u64 tracing_off;  // 0: recording
  u64 nr_rings;     // ring numbers handed out so far
  u64 events;       // how many there are << 32 | the highest number, as they have gaps (event_number.hpp): one store for both
  u64 pid_namespace;  // of the creator
  u64 impaired;       // bits of `lacks`
  u64 refused;        // events that came into no ring: budget, no room, a sandbox, left by longjmp, while a ring was made
  u64 cpu_rings;      // rings 0 to cpu_rings - 1 are those of the CPUs; 0: each thread has its own
  u64 boot;  // hash of the boot that it was made in: CPU numbers, PID namespaces and locks of other boots do not count; 0:
             // unknown
  u32 rings_because;  // RingsBecause
  u32 seats;          // entries of the process table that were ever taken: their numbers are below this
  u64 nr_threads;     // threads that have registered themselves
  u64 nr_foreign;     // numbers handed out to threads and processes of other PID namespaces
  WaitWords wait;
  PastTotals past;
  u64 cpus_off[16];  // a bit for each CPU whose ring records nothing; CPUs beyond record
  u64 stacks_again;  // moves on when a reader begins: writers write each stack once more, because it may not see the older
                     // copies
  u64 without_stack;  // stacks that could not be taken; the events may have been refused, too
  u64 one_command;    // 1: made for one command, which removes it; a later one does if that was killed, and all was read
  u64 refused_told[4];  // refused events that finished recordings have in their accounts: full, nested, no ring, off (Refusal)
  u64 threads_without_samples;  // --sample: the kernel gave them no timer
  u64 samples_without_room;     // --sample: the alternate signal stack was too small to take them
  u64 threads_without_room;     // --sample: the kernel's signal frame does not fit on their alternate signal stack
  u64 refused_off;              // events that came while recording was off, or while their ring was stopped
  u64 nr_names;                 // changes of names that were noted so far
  u64 wants_files;              // 1: a recorder takes the files of mapped code at the socket `files` (hand_over.cpp)
  u64 cleared_written, cleared_overrun;  // of threads' rings that were emptied, and of all that were given back; they only grow
};
static_assert(sizeof(InstanceControl) <= 4096);

// The bits of a ring's gate that the instance decides: of a thread's ring, and of this CPU's.
inline constexpr u64 gate_of_instance = gate_off | gate_masked;
inline u64 gate_wanted(const InstanceControl& c) noexcept {
  return __atomic_load_n(&c.tracing_off, __ATOMIC_SEQ_CST) != 0 ? gate_off : 0;
}
inline u64 gate_wanted(const InstanceControl& c, u32 cpu) noexcept {
  const u32 word = cpu / 64;
  const bool masked =
      word < std::size(c.cpus_off) && (__atomic_load_n(&c.cpus_off[word], __ATOMIC_SEQ_CST) >> cpu % 64 & 1) != 0;
  return gate_wanted(c) | (masked ? gate_masked : 0);
}

// The sizes of rings made now; invalid if the file was damaged.
inline Geometry geometry_of(const InstanceControl& c) noexcept {
  const u64 sizes = __atomic_load_n(&c.sizes, __ATOMIC_ACQUIRE);
  return Geometry(static_cast<u32>(sizes), static_cast<u32>(sizes >> 32), c.spares);
}
constexpr u64 pack_sizes(const Geometry& g) noexcept { return g.subbuf_size() | u64{g.nr_subbufs()} << 32; }

// state: which party owns the ring.
enum class RingState : u32 {
  never = 0,
  live = 1,     // a thread writes to it
  retired = 2,  // its thread ended; readable; may be reused
  busy = 3,     // it is being made ready, or its memory is being given back
  empty = 4,    // all zeros again
};
struct RingEntry {
  u64 state;  // RingState | a tag << 8 | tid << 32, so that a late change fails
  u32 pid, tid;  // as in its events; for a CPU's ring: 0, and ~ (how many rings that CPU had before), which no thread has
  u32 of;  // Member: the process that owns it; for a CPU's ring: the CPU
  u32 sizes;  // log2 of subbuf_size << 27 | nr_subbufs, for a ring that is live or retired
  u64 tid_start;  // the thread's start is not later, in ticks as /proc shows it: a thread of that number that began later is
                  // another one
  char task[16], process[16];
};
static_assert(sizeof(RingEntry) == 64);
constexpr u64 pack_state(RingState s, u32 tid) noexcept { return static_cast<u64>(s) | u64{tid} << 32; }
// Is it a CPU's ring? From the state of a ring that is live or retired. No thread has such a number.
constexpr bool names_cpu(u64 state) noexcept { return state >> 63 != 0; }

// A process in one instance: its entry in the process table, and the entry's generation (modulo 2^19). nobody: it has no entry,
// so nothing shows whether it lives.
using Member = u32;
inline constexpr Member nobody = 0;
inline constexpr u32 most_processes = 4096;
constexpr Member member_of(u32 slot, u64 generation) noexcept {
  const u32 owner = static_cast<u32>(generation & 0x7FFFF);
  return owner != 0 ? slot | owner << 12 : nobody;
}
constexpr u32 slot_of(Member member) noexcept { return member & (most_processes - 1); }

constexpr u64 state_tag(u64 any) noexcept { return (any & 0xFFFFFF) << 8; }
inline constexpr u32 clearing = 0xFFFFFF;  // the tag of a claim whose claimer gives the ring's memory back
// A claim of a ring that holds nothing (yet, or no longer): if its claimer dies, the ring is empty, not retired. tag: sets it
// apart from other claims of the same claimer.
constexpr u64 claim_of(Member claimer, bool holds_something, u32 tag = 0) noexcept {
  return pack_state(RingState::busy, claimer) | (holds_something ? 0 : u64{1} << 63) | state_tag(tag);
}
constexpr bool is_clearing(u64 state) noexcept {
  return static_cast<RingState>(state & 0xFF) == RingState::busy && state_tag(clearing) == (state & state_tag(clearing));
}
constexpr Member claimer_of(u64 state) noexcept { return static_cast<u32>(state >> 32) & 0x7FFFFFFF; }
constexpr u32 short_sizes(const Geometry& g) noexcept {
  return static_cast<u32>(__builtin_ctz(g.subbuf_size())) << 27 | g.nr_subbufs();
}
static_assert(most_subbufs < u32{1} << 27);
constexpr RingState state_of(u64 word) noexcept { return static_cast<RingState>(word & 0xFF); }
constexpr u64 with_state(u64 word, RingState s) noexcept { return (word & ~u64{0xFF}) | static_cast<u64>(s); }

// The text of a field of any entry here, whatever its bytes are.
template <size_t room>
inline std::string text_in(const char (&field)[room]) {
  return std::string(field, strnlen(field, room));
}

struct EventEntry {
  u32 enabled;  // the exact word that call sites load
  u32 gate;     // its byte in the gate file
  u32 known;    // 1 once the names are complete
  u32 namesake;  // 1: an event with other fields had this name first
  char system[64], name[64];
  u64 format_hash;  // FNV-1a of fields and print format: the same name with other fields is another event
};
static_assert(sizeof(EventEntry) == 152);

inline constexpr bool is_of_cpu(const RingEntry& entry) noexcept { return static_cast<i32>(entry.tid) < 0; }

namespace role {
inline constexpr u32 writer = 1;
inline constexpr u32 reader = 2;  // consumes
inline constexpr u32 maker = 4;   // of the instance
inline constexpr u32 sandboxed = 8;  // a writer that can ask for no memory: what it has stays
inline constexpr u32 opener = 16;  // has it open, or is a child of fork of one that had; it may not have written yet
}  // namespace role

// The process that has the entry, or had it last. The entry's lock shows whether it lives (members.hpp).
struct ProcessEntry {
  u64 generation;  // counts the owners of this entry
  u64 pid_namespace, time_namespace;  // inodes; 0: unknown
  u64 reserved;
  u32 pid, role;
  u64 reserved_too[3];
};
static_assert(sizeof(ProcessEntry) == 64);

// A thread that has written: at its tid modulo most_threads.
struct ThreadEntry {
  u32 tid, pid;
  char task[16], process[16];
  u64 reserved;
};
static_assert(sizeof(ThreadEntry) == 48);
inline constexpr u32 most_threads = 1u << 22;  // pid_max of a kernel of 64 bits

// A thread or process of another PID namespace than the creator's, or of an unknown one. Its TID may be that of another thread,
// so its events carry a number of its own: above all TIDs, and never handed out again. The table holds the newest, each at
// (number - most_threads) modulo most_foreign.
struct ForeignEntry {
  u32 number;       // 0: free, or being written
  u32 process;      // the number of its process; a process's first thread has the same number
  u32 tid, pid;     // in its namespace
  u64 pid_namespace;  // its inode; 0: unknown
  u64 time_namespace, start;  // /proc shows a thread's start in the time namespace of the process that reads it; 0: unknown
  char task[16], process_name[16];
};
static_assert(sizeof(ForeignEntry) == 72);
inline constexpr u32 most_foreign = 65536;
constexpr bool is_foreign(i32 number) noexcept { return number >= static_cast<i32>(most_threads); }

// A number of events (a TID, or one of the instance's) got another name: its thread has named itself, its process has executed
// another program, or another thread has the number now. The n-th change is at n modulo most_changes, so the table has the
// newest.
struct NameEntry {
  u64 sequence;  // n + 1; 0: it is being written
  u64 time;      // by the instance's clock: events of this number from here on have the new names
  u32 number, pid, old_pid, reserved;
  char task[16], process[16], old_task[16], old_process[16];
};
static_assert(sizeof(NameEntry) == 96);
inline constexpr u32 most_changes = 65536;

inline constexpr u64 foreign_table_at = u64{most_threads} * sizeof(ThreadEntry);
inline constexpr u64 names_table_at = foreign_table_at + u64{most_foreign} * sizeof(ForeignEntry);
inline constexpr u64 threads_file_size = names_table_at + u64{most_changes} * sizeof(NameEntry);
// A process maps the pieces of the file in which its threads are, each with a page of the next piece, which may hold the end
// of its last entry.
inline constexpr u64 threads_piece = 256 << 10, nr_threads_pieces = (threads_file_size + threads_piece - 1) / threads_piece;
constexpr u64 foreign_place(u32 number) noexcept { return (number - most_threads) % most_foreign; }

inline constexpr u64 ring_table_at = 4096;
inline constexpr u64 event_table_at = ring_table_at + u64{most_rings} * sizeof(RingEntry);
inline constexpr u64 process_table_at = event_table_at + u64{most_events + 1} * sizeof(EventEntry);
inline constexpr u64 instance_file_size =
    (process_table_at + u64{most_processes} * sizeof(ProcessEntry) + page_size - 1) / page_size * page_size;

struct InstanceWords {
  InstanceControl* control = nullptr;
  // How many entries are in use, whatever the shared word says.
  u32 nr_rings() const noexcept {
    return static_cast<u32>(std::min<u64>(__atomic_load_n(&control->nr_rings, __ATOMIC_ACQUIRE), most_rings));
  }
  u32 cpu_rings() const noexcept {
    return static_cast<u32>(std::min<u64>(__atomic_load_n(&control->cpu_rings, __ATOMIC_RELAXED), nr_rings()));
  }
  u32 nr_events() const noexcept { return static_cast<u32>(__atomic_load_n(&control->events, __ATOMIC_ACQUIRE) >> 32); }
  u32 last_event() const noexcept {
    return std::min(static_cast<u32>(__atomic_load_n(&control->events, __ATOMIC_ACQUIRE)), most_events);
  }
  RingEntry& ring(u32 n) const noexcept {
    return reinterpret_cast<RingEntry*>(reinterpret_cast<u8*>(control) + ring_table_at)[n];
  }
  ProcessEntry& process(u32 n) const noexcept {
    return reinterpret_cast<ProcessEntry*>(reinterpret_cast<u8*>(control) + process_table_at)[n];
  }
  EventEntry& event(u32 id) const noexcept {
    return reinterpret_cast<EventEntry*>(reinterpret_cast<u8*>(control) + event_table_at)[id];
  }
  // The folder of an event below events/SYSTEM: its name, with its number after a dot if one with other fields had the name
  // first.
  std::string event_folder(u32 id) const {
    const EventEntry& own = event(id);
    return text_in(own.name) + (own.namesake != 0 ? "." + std::to_string(id) : "");
  }
  // The known events, in the order of their ids: use(id, entry). Entries after the last one may have no memory, and a full
  // file system gives them none.
  template <class Use>
  void each_event(const Use& use) const {
    const u32 n = last_event();
    for (u32 id = 1; id <= n; ++id)
      if (EventEntry& entry = event(id); __atomic_load_n(&entry.known, __ATOMIC_ACQUIRE) != 0) use(id, entry);
  }
};

}  // namespace ringside
