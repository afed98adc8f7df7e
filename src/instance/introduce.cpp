// Who a thread is: what stands in its events as common_pid, and what tells its names. A TID is one thread's in its PID namespace only, and all
// containers that share an instance have a thread 7. So the threads of the creator's namespace bear their TIDs, as the kernel's do; all
// others numbers of the instance's (ForeignEntry). Signal-safe.
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>

#include "instance/process.hpp"

namespace ringside {
namespace {

using detail::this_thread;

// The epoch since which this thread has its number: what it has been given stays, also with another ring.
[[gnu::tls_model("initial-exec")]] constinit thread_local u64 numbered_at = detail::not_attached;

u32 next_number(InstanceControl& c) noexcept {
  constexpr u64 most = (u64{1} << 31) - most_threads;
  return static_cast<u32>(most_threads + __atomic_fetch_add(&c.nr_foreign, u64{1}, __ATOMIC_RELAXED) % most);
}

// A reader takes an entry when its first word is there again.
template <class Entry, class Fill>
void write_entry(const InstanceWords& words, Entry& entry, u32& first, u32 value, const Fill& fill) noexcept {
  __atomic_store_n(&first, 0u, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  fill(entry);
  __atomic_store_n(&first, value, __ATOMIC_RELEASE);
  __atomic_fetch_add(&words.control->nr_threads, u64{1}, __ATOMIC_RELEASE);
}

struct Foreign {
  u32 number, process;
  i32 tid, pid;
  u64 pid_namespace, start;
  const char* task;
};
ForeignEntry& foreign_entry(u32 number) noexcept {
  return reinterpret_cast<ForeignEntry*>(reinterpret_cast<u8*>(process.threads) + foreign_table_at)[foreign_place(number)];
}
void forget_foreign(u32 number) noexcept {
  if (process.threads != nullptr) __atomic_store_n(&foreign_entry(number).number, 0u, __ATOMIC_RELEASE);
}
void write_foreign(const InstanceWords& words, const Foreign& who) noexcept {
  if (process.threads == nullptr) return;
  ForeignEntry& entry = foreign_entry(who.number);
  write_entry(words, entry, entry.number, who.number, [&](ForeignEntry& e) {
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

Numbers introduce_thread(const InstanceWords& words, bool on_cpus) noexcept {
  InstanceControl& c = *words.control;
  const bool borrowed = this_thread.borrowed != 0;  // a child of vfork, perhaps in a namespace of its own
  const u64 here = !borrowed ? process.pid_namespace : process.pid_namespace != 0 ? sys::pid_namespace() : 0;
  const i32 tid = sys::gettid(), pid = borrowed ? getpid() : process.pid;
  char task[16] = {};
  prctl(PR_GET_NAME, task);
  if (here != 0 && here == c.pid_namespace) {
    if (on_cpus && process.threads != nullptr) {
      ThreadEntry& entry = process.threads[static_cast<u32>(tid) % most_threads];
      write_entry(words, entry, entry.tid, static_cast<u32>(tid), [&](ThreadEntry& e) {
        e.pid = static_cast<u32>(pid);
        std::memcpy(e.task, task, sizeof e.task);
        std::memcpy(e.process, process.comm, sizeof e.process);
      });
    }
    return {tid, pid};
  }
  __atomic_fetch_or(&c.impaired, lacks::namespace_of_creator, __ATOMIC_SEQ_CST);
  const u64 start = sys::own_start_time();
  if (borrowed) {
    const u32 number = next_number(c);
    write_foreign(words, {number, number, tid, pid, here, start, task});
    return {static_cast<i32>(number), static_cast<i32>(number)};
  }
  const u64 epoch = __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE);
  u32 group = __atomic_load_n(&process.number, __ATOMIC_ACQUIRE);
  if (numbered_at == epoch && group != 0) return {this_thread.tid, static_cast<i32>(group)};
  if (group == 0) {
    const u32 fresh = next_number(c);
    // Before the number is known: the first thread writes over it.
    if (tid != pid) write_foreign(words, {fresh, fresh, pid, pid, here, 0, process.comm});
    if (__atomic_compare_exchange_n(&process.number, &group, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      group = fresh;
    else if (tid != pid)
      forget_foreign(fresh);  // another thread was faster
  }
  const u32 number = tid == pid ? group : next_number(c);
  write_foreign(words, {number, group, tid, pid, here, start, task});
  numbered_at = epoch;
  return {static_cast<i32>(number), static_cast<i32>(group)};
}

i32 introduce_other(const InstanceWords& words, i32 tid, const char* task) noexcept {
  if (!process.foreign) return tid;
  const u32 number = next_number(*words.control);
  write_foreign(words, {number, number, tid, tid, process.pid_namespace, 0, task});
  return static_cast<i32>(number);
}

}  // namespace ringside
