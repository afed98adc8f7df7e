// This process as a writer of one instance.
#pragma once
#include <pthread.h>
#include <ringside/ringside.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>
#include <ringside/thread.hpp>

#include "clock/clock.hpp"
#include "sys/sys.hpp"
#include "writer/layout.hpp"
#include "writer/members.hpp"
#include "writer/ring_file.hpp"
#include "sys/signals_off.hpp"

namespace ringside {

// An instance that this process has opened to write. It is kept forever: when it is closed, another thread may be in the middle
// of an event.
struct Opened {
  InstanceWords words;
  ClockInfo clock;
  bool has_threads = false;                 // the table of writing threads
  u8* threads[nr_threads_pieces] = {};      // what is mapped of it
  u64 backed_page = 0;                      // a page of it that has memory, by its address / page_size
  bool other_kernel = false;                // another kernel than the one that the instance was made under
  bool foreign = false;                     // of another PID namespace than the creator's: the instance numbers its threads
  u64 pid_namespace = 0;                    // of this process; 0: unknown, or of another kernel than the creator's
  u32 rings_made = 0;                       // how often a thread of this process found no ring, and had to make one
  u32 number = 0;                           // this process's, if it is foreign; 0: none of its threads has one yet
  const detail::CpuSide* side = nullptr;    // null: its rings of CPUs, if it has any, are not for this process
  dev_t device = 0;
  ino_t inode = 0;
  char path[4096] = {};  // the instance's directory: absolute
  Seat seat;
  Seat family{true};  // for children that have dropped their privileges, and get no seat of their own
  u64 seating = 0;  // the process whose thread is taking the seat now
  Opened* next = nullptr;

  // The directory, opened anew: a descriptor that stays open would be visible to the program, which could close, count and
  // reuse it. Empty, errno ENOENT, if it is no longer the one that was opened. Signal-safe.
  sys::Fd directory() const noexcept;
  bool is_there() const noexcept;  // whether its path still leads to it; false: errno says why
  bool is(const struct stat& directory) const noexcept { return directory.st_dev == device && directory.st_ino == inode; }
  Member member() const noexcept {
    const Member own = seat.member();
    return own != nobody ? own : family.member();
  }
  // Registers this process as a writer if it has its seat. False: it has none.
  bool rejoin() noexcept;
  // Registers this process as a writer. If no seat is available, the instance notes it. Signals are off.
  void join() noexcept;
};

struct Process {
  Opened* opened = nullptr;  // null: no instance is open
  i32 pid = 0;
  // The process (sys::this_process) whose TIDs the C library knows, as that of its main thread shows: a raw clone is another
  // one.
  u64 tids_noted_in = 0;
  bool fenced = false;       // membarrier is available
  char comm[16] = {};
  u64 epochs = 0;            // the newest value of detail::epoch
};
extern constinit Process process;

using sys::SignalsOff;

// While it lives, this thread is in calls of the library itself; tracing those would never end, so they are dropped without a
// count. Signals are off meanwhile: the calls of a handler are the program's. Where they are not off, it does nothing.
class Inside {
 public:
  explicit Inside(const SignalsOff& off) noexcept : before_(detail::this_thread.inside) {
    if (off) detail::this_thread.inside = true;
  }
  ~Inside() { detail::this_thread.inside = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool before_;
};

// write.cpp
enum class Attached { no, cpus, own };
// The slow path of a thread's first event, and of its first after a resize, a fork or another open: from then on the thread
// writes to the rings of CPUs, or to a ring of its own at this depth, where its event is open. Null: to those of CPUs alone.
Attached attach(const u32* depth) noexcept;
void count_refused(Refused why = Refused::no_ring) noexcept;  // an event that no ring counts
constexpr bool wants_ring(Refused why) noexcept { return why == Refused::no_ring || why == Refused::moved; }
// The gate is shut while recording is off, or for a moment (a snapshot).
constexpr bool is_shut(Refused why) noexcept { return why == Refused::disabled || why == Refused::frozen; }
constexpr bool is_uncounted(Refused why) noexcept {  // false: the ring has counted it, or it is not to be recorded
  return wants_ring(why) || is_shut(why) || why == Refused::corrupt || why == Refused::interrupted || why == Refused::no_memory;
}
inline Opened* opened_now() noexcept { return __atomic_load_n(&process.opened, __ATOMIC_ACQUIRE); }
Doorbell bell_of(const InstanceWords& words) noexcept;  // wakes up all readers that wait at the instance

// thread_ring.cpp
enum class Tried { written, refused, not_here };  // not_here: the thread writes to the rings of CPUs
// For a thread that does not write to the rings of CPUs: attaches it where it has to. `as`: the thread that the event is
// written for, if not 0.
Tried write_to_own_ring(const ringside_event& event, i32 as, void* payload, u32 size) noexcept;
// Gives this thread a ring of its own at this depth, for the event that is open there. Signals are off. False: none is
// available.
bool attach_to_own_ring(u32 depth) noexcept;
// The child of a vfork has its parent's thread: it gets rings of its own, and the parent gets its rings back when it goes on,
// and releases the child's if signals are off.
void lay_own_rings_aside(const SignalsOff& off) noexcept;
void take_up_own_rings(const SignalsOff& off) noexcept;
void retire_this_thread() noexcept;
// For a sandbox: gives this thread a ring of its own, and takes the ring's memory, `most` bytes at most. 0, or an errno.
int back_own_ring(u64 most) noexcept;
bool own_ring_is_ready() noexcept;         // an event can be written to it without a system call, unless its memory ends
void forget_thread_after_fork() noexcept;  // in the child

// The ring that this thread's next event most likely goes to, and how far it is. key 0: not known yet.
struct RingNow {
  u64 key = 0, position = 0;
  u32 slots = 0;
};
RingNow own_ring_now() noexcept;

// Does its payload have the number of the caller's stack after its fields?
RINGSIDE_INLINE bool has_stack(const ringside_event& event) noexcept {
  return RINGSIDE_UNLIKELY(__atomic_load_n(&event.id, __ATOMIC_RELAXED) >> 16 != 0);
}
// As ringside_write_3_words, for such an event.
bool write_words_with_stack(ringside_event* event, const void* caller, u32 size, u64 first, u64 second, u64 third) noexcept;

// stack.cpp
// For events that carry stacks: gives `enter` the events that describe these, in the open instance; then readies the tables.
void ready_stacks(u32 depth) noexcept;
extern ringside_event* const stack_events[3];
void forget_code_maps() noexcept;  // in the child of a fork: they have its parent's number

// hand_over.cpp
// Gives the recorder that listens, if one does, the file that is mapped at these addresses, or else the one at `path`. name: as
// the code map has it. errno may change.
void hand_over(const Opened& in, const char* name, const char* path, u64 start, u64 end) noexcept;

// introduce.cpp
// A thread has another name from now on; number: of its events. One that has written none yet is asked for its name then.
// task: 16 bytes, zeros after the name.
void name_thread(Opened& in, i32 number, const char* task) noexcept;
struct Numbers {
  i32 tid, pid;
  char task[16];  // the thread's name, which is asked for once
};
// Registers this thread, and returns the numbers that its events use for it and its process: TID and PID, or numbers of the
// instance's. Signals are off, or the process is not foreign. epoch: loaded before `in`; the thread keeps its numbers until the
// next one.
Numbers introduce_thread(Opened& in, u64 epoch) noexcept;
// Maps this piece of the table of threads, for ever. Null: it cannot be mapped. Signals are off.
u8* map_threads(Opened& in, int dir, u64 n) noexcept;
i32 noted_tid() noexcept;  // this thread's TID as the C library has noted it, without a system call; 0: unknown
// The same without a system call: its TID, and its process's name. 0: nothing shows its number.
i32 introduce_silently(Opened& in) noexcept;
// The same for a thread of another process in this one's PID namespace, on behalf of which this one writes.
i32 introduce_other(Opened& in, i32 tid, const char* task) noexcept;

// registry.cpp
// The events declared so far are not registered in instances that are opened from now on.
void forget_events() noexcept;
void shut_rings() noexcept;              // every event comes to the slow path from now on
void become_child_if_forked() noexcept;  // in a child that no fork handler ran in; signal-safe
bool is_of_an_instance(std::string_view path);  // of one that this process has opened: its directory's, or a file's below it
void save_names(int dir, i32 tid, i32 pid, const char* task) noexcept;  // appends to saved_cmdlines, saved_tgids; signal-safe

}  // namespace ringside
