// How a thread is identified: its common_pid in events, and where its names are found. A TID is unique in its PID namespace
// only, and all containers that share an instance have a thread 7. So events of the creator's namespace carry TIDs, like the
// kernel's; events of all other namespaces carry numbers that the instance hands out (ForeignEntry). Signal-safe.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "sys/beneath.hpp"
#include "writer/process.hpp"

namespace ringside {
namespace {

using detail::this_thread;

u32 next_number(InstanceControl& c) noexcept {
  constexpr u64 most = (u64{1} << 31) - most_threads;
  return static_cast<u32>(most_threads + __atomic_fetch_add(&c.nr_foreign, u64{1}, __ATOMIC_RELAXED) % most);
}

// An entry of the table of threads. Null: the table has none, or the file system has no memory for it. The kernel is asked for
// memory once for each page: nothing takes it back, and the TIDs of a program's threads are near each other.
RINGSIDE_NOINLINE u8* ready_entry(Opened& in, u64 at, u64 size) noexcept {
  if (!in.has_threads) return nullptr;
  const SignalsOff off;  // no handler leaves open what it opens
  if (!off) return nullptr;
  const Inside inside(off);  // madvise() may be the program's, and traced
  u8* piece = __atomic_load_n(&in.threads[at / threads_piece], __ATOMIC_ACQUIRE);
  if (piece == nullptr) {
    const sys::Fd dir = in.directory();
    piece = dir ? map_threads(in, dir.get(), at / threads_piece) : nullptr;
  }
  if (piece == nullptr || !sys::populate(piece + at % threads_piece, size)) return nullptr;
  return piece + at % threads_piece;
}

template <class Entry>
Entry* entry_at(Opened& in, u64 table, u64 place) noexcept {
  const u64 at = table + place * sizeof(Entry);
  const auto page_of = [](const u8* byte) { return reinterpret_cast<u64>(byte) / page_size; };
  u8* entry = __atomic_load_n(&in.threads[at / threads_piece], __ATOMIC_ACQUIRE);
  if (entry != nullptr) entry += at % threads_piece;
  const bool backed = entry != nullptr && page_of(entry) == page_of(entry + sizeof(Entry) - 1) &&
                      page_of(entry) == __atomic_load_n(&in.backed_page, __ATOMIC_RELAXED);
  if (!backed) entry = ready_entry(in, at, sizeof(Entry));
  if (!backed && entry != nullptr) __atomic_store_n(&in.backed_page, page_of(entry + sizeof(Entry) - 1), __ATOMIC_RELAXED);
  return reinterpret_cast<Entry*>(entry);
}
ForeignEntry* foreign_entry(Opened& in, u32 number) noexcept {
  return entry_at<ForeignEntry>(in, foreign_table_at, foreign_place(number));
}

// Readers accept an entry once its first word is set. A handler may write the same entry here, and the thread is attached then:
// from then on the entry stays, wherever another handler leaves this call. So it is taken away without signals only.
template <class Entry, class Fill>
void write_entry(const Opened& in, Entry& entry, u32& first, u32 value, const Fill& fill) noexcept {
  const auto write = [&] {
    fill(entry);
    __atomic_store_n(&first, value, __ATOMIC_RELEASE);
    __atomic_fetch_add(&in.words.control->nr_threads, u64{1}, __ATOMIC_RELEASE);
  };
  if (__atomic_load_n(&first, __ATOMIC_RELAXED) == 0) return write();
  const SignalsOff off;
  __atomic_store_n(&first, 0u, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  write();
}

struct Names {
  u32 pid;
  const char *task, *process;
};
bool same(const Names& a, const Names& b) noexcept {
  return a.pid == b.pid && std::memcmp(a.task, b.task, 16) == 0 && std::memcmp(a.process, b.process, 16) == 0;
}

// Before the first event under the new names is written.
void note_change(Opened& in, u32 number, const Names& before, const Names& after) noexcept {
  if (same(before, after)) return;
  InstanceControl& c = *in.words.control;
  const u64 n = __atomic_fetch_add(&c.nr_names, u64{1}, __ATOMIC_RELAXED);
  NameEntry* const entry = entry_at<NameEntry>(in, names_table_at, n % most_changes);
  if (entry == nullptr) return;
  __atomic_store_n(&entry->sequence, u64{0}, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  entry->time = RingClockNow{in.clock.kind, &c.clock_base_ticks}.now();
  entry->number = number;
  entry->pid = after.pid;
  entry->old_pid = before.pid;
  std::memcpy(entry->task, after.task, sizeof entry->task);
  std::memcpy(entry->process, after.process, sizeof entry->process);
  std::memcpy(entry->old_task, before.task, sizeof entry->old_task);
  std::memcpy(entry->old_process, before.process, sizeof entry->old_process);
  __atomic_store_n(&entry->sequence, n + 1, __ATOMIC_RELEASE);
  __atomic_fetch_add(&c.nr_threads, u64{1}, __ATOMIC_RELEASE);
}

// The names of a number: those that it has had, and from now on others.
void write_thread(Opened& in, ThreadEntry& entry, u32 tid, const Names& now) noexcept {
  if (__atomic_load_n(&entry.tid, __ATOMIC_ACQUIRE) == tid) {
    const ThreadEntry before = entry;
    note_change(in, tid, {before.pid, before.task, before.process}, now);
  }
  write_entry(in, entry, entry.tid, tid, [&](ThreadEntry& e) {
    e.pid = now.pid;
    std::memcpy(e.task, now.task, sizeof e.task);
    std::memcpy(e.process, now.process, sizeof e.process);
  });
}

struct Foreign {
  u32 number, process;
  i32 tid, pid;
  u64 pid_namespace, start;
  const char* task;
};
void forget_foreign(Opened& in, u32 number) noexcept {
  if (ForeignEntry* const entry = foreign_entry(in, number)) __atomic_store_n(&entry->number, 0u, __ATOMIC_RELEASE);
}
void write_foreign(Opened& in, const Foreign& who) noexcept {
  ForeignEntry* const entry = foreign_entry(in, who.number);
  if (entry == nullptr) return;
  write_entry(in, *entry, entry->number, who.number, [&](ForeignEntry& e) {
    e.process = who.process;
    e.tid = static_cast<u32>(who.tid);
    e.pid = static_cast<u32>(who.pid);
    e.pid_namespace = who.pid_namespace;
    e.start = who.start;
    e.time_namespace = who.start != 0 ? sys::time_namespace() : 0;
    std::memcpy(e.task, who.task, sizeof e.task);
    std::memcpy(e.process_name, process.comm, sizeof e.process_name);
  });
}

}  // namespace

// The file was judged when the instance was opened, and no other user may write in its directory.
u8* map_threads(Opened& in, int dir, u64 n) noexcept {
  constexpr u64 size = threads_piece + largest_page;
  const sys::Fd file(openat(dir, "threads", O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  void* const made = file ? sys::map_shared(file.get(), size, n * threads_piece) : nullptr;
  u8* there = nullptr;
  if (made == nullptr ||
      __atomic_compare_exchange_n(&in.threads[n], &there, static_cast<u8*>(made), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return static_cast<u8*>(made);
  munmap(made, size);  // another thread was faster
  return there;
}

// The number of the clock of a thread's CPU time contains its TID.
i32 noted_tid() noexcept {
  clockid_t clock{};
  return pthread_getcpuclockid(pthread_self(), &clock) == 0 ? ~(clock >> 3) : 0;
}

Numbers introduce_thread(Opened& in, u64 epoch) noexcept {
  InstanceControl& c = *in.words.control;
  const bool borrowed = this_thread.borrowed != 0;  // a child of vfork, perhaps in a namespace of its own
  const u64 here = !borrowed ? in.pid_namespace : in.pid_namespace != 0 ? sys::pid_namespace() : 0;
  const i32 pid = borrowed ? getpid() : __atomic_load_n(&process.pid, __ATOMIC_ACQUIRE);
  i32 tid = !borrowed && process.tids_noted_in == sys::this_process() ? noted_tid() : 0;
  if (tid == 0) tid = sys::gettid();
  Numbers me{};
  syscall(SYS_prctl, PR_GET_NAME, me.task, 0L, 0L, 0L);  // prctl() may be the program's, and traced
  const auto numbered = [&](i32 thread, i32 process_number) {
    me.tid = thread;
    me.pid = process_number;
    return me;
  };
  if (here != 0 && here == c.pid_namespace) {
    // If a handler has forked since the epoch was loaded, these numbers may be of two processes. The thread attaches again.
    if (epoch != __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE)) return numbered(tid, pid);
    if (ThreadEntry* const entry = entry_at<ThreadEntry>(in, 0, static_cast<u32>(tid) % most_threads)) {
      write_thread(in, *entry, static_cast<u32>(tid), {static_cast<u32>(pid), me.task, process.comm});
    }
    return numbered(tid, pid);
  }
  const u64 start = sys::own_start_time();
  if (borrowed) {
    const u32 number = next_number(c);
    write_foreign(in, {number, number, tid, pid, here, start, me.task});
    return numbered(static_cast<i32>(number), static_cast<i32>(number));
  }
  u32 group = __atomic_load_n(&in.number, __ATOMIC_ACQUIRE);
  if (this_thread.numbered_at == epoch && group != 0) return numbered(this_thread.tid, static_cast<i32>(group));
  if (group == 0) {
    const u32 fresh = next_number(c);
    // Written before the number is known: the first thread overwrites it.
    if (tid != pid) write_foreign(in, {fresh, fresh, pid, pid, here, 0, process.comm});
    if (__atomic_compare_exchange_n(&in.number, &group, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      group = fresh;
    else if (tid != pid)
      forget_foreign(in, fresh);  // another thread was faster
  }
  const u32 number = tid == pid ? group : next_number(c);
  write_foreign(in, {number, group, tid, pid, here, start, me.task});
  this_thread.numbered_at = epoch;
  return numbered(static_cast<i32>(number), static_cast<i32>(group));
}

void name_thread(Opened& in, i32 number, const char* task) noexcept {
  if (is_foreign(number)) {
    ForeignEntry* const entry = foreign_entry(in, static_cast<u32>(number));
    if (entry == nullptr || __atomic_load_n(&entry->number, __ATOMIC_ACQUIRE) != static_cast<u32>(number)) return;
    const ForeignEntry before = *entry;
    const char* const of_process = before.number == before.process ? task : before.process_name;
    note_change(in, before.number, {before.process, before.task, before.process_name}, {before.process, task, of_process});
    write_entry(in, *entry, entry->number, before.number, [&](ForeignEntry& e) {
      std::memcpy(e.process_name, of_process, sizeof e.process_name);
      std::memcpy(e.task, task, sizeof e.task);
    });
    return;
  }
  ThreadEntry* const entry = entry_at<ThreadEntry>(in, 0, static_cast<u32>(number) % most_threads);
  if (entry == nullptr || __atomic_load_n(&entry->tid, __ATOMIC_ACQUIRE) != static_cast<u32>(number)) return;  // no events yet
  const ThreadEntry before = *entry;
  write_thread(in, *entry, before.tid, {before.pid, task, before.pid == before.tid ? task : before.process});
}

i32 introduce_silently(Opened& in) noexcept {
  if (in.foreign || process.tids_noted_in == 0 || process.tids_noted_in != sys::this_process()) return 0;
  const i32 tid = noted_tid();
  const u64 at = static_cast<u32>(tid) % most_threads * sizeof(ThreadEntry);
  u8* const piece = __atomic_load_n(&in.threads[at / threads_piece], __ATOMIC_ACQUIRE);
  auto* const entry = reinterpret_cast<ThreadEntry*>(piece + at % threads_piece);
  const u64 page = reinterpret_cast<u64>(entry) / page_size, last = (reinterpret_cast<u64>(entry + 1) - 1) / page_size;
  if (piece == nullptr || page != last || page != __atomic_load_n(&in.backed_page, __ATOMIC_RELAXED)) return tid;
  if (__atomic_load_n(&entry->tid, __ATOMIC_ACQUIRE) != 0) return tid;
  entry->pid = static_cast<u32>(process.pid);
  for (char* name : {entry->task, entry->process}) std::memcpy(name, process.comm, sizeof process.comm);
  __atomic_store_n(&entry->tid, static_cast<u32>(tid), __ATOMIC_RELEASE);
  __atomic_fetch_add(&in.words.control->nr_threads, u64{1}, __ATOMIC_RELEASE);
  return tid;
}

i32 introduce_other(Opened& in, i32 tid, const char* task) noexcept {
  if (!in.foreign) return tid;
  const u32 number = next_number(*in.words.control);
  write_foreign(in, {number, number, tid, tid, in.pid_namespace, 0, task});
  return static_cast<i32>(number);
}

}  // namespace ringside
