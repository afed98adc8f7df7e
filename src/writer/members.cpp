#include "writer/members.hpp"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// Far past the file's end, where no other locks are but one (instance/borrowed.cpp).
constexpr off_t locks_at = off_t{1} << 40;

struct flock byte_of(u32 slot) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = locks_at + slot;
  lock.l_len = 1;
  return lock;
}

// The file systems that are known to have one table of locks for all, held as long as a mapping refers to the description. A
// file system of a network or a guest may have two tables; overlayfs maps another file than it locks.
bool is_local(int file) noexcept {
  struct statfs on {};
  if (fstatfs(file, &on) != 0) return false;
  constexpr u64 bcachefs = 0xCA451A4E, zfs = 0x2FC12FC1;
  for (const u64 type : {u64{TMPFS_MAGIC}, u64{RAMFS_MAGIC}, u64{EXT4_SUPER_MAGIC}, u64{XFS_SUPER_MAGIC},
                         u64{BTRFS_SUPER_MAGIC}, u64{F2FS_SUPER_MAGIC}, bcachefs, zfs})
    if (static_cast<u64>(on.f_type) == type) return true;
  return false;
}

enum class Held { no, yes, unknown };
Held ask(int file, u32 slot) noexcept {
  struct flock lock = byte_of(slot);
  if (fcntl(file, F_OFD_GETLK, &lock) != 0) return Held::unknown;
  return lock.l_type == F_UNLCK ? Held::no : Held::yes;
}

u64 generation_of(const ProcessEntry& entry) noexcept { return __atomic_load_n(&entry.generation, __ATOMIC_ACQUIRE); }

// Notes the owner of the entry, whose lock this process holds.
Member sign(ProcessEntry& entry, u32 slot, u32 role) noexcept {
  entry.pid = static_cast<u32>(getpid());
  entry.pid_namespace = sys::pid_namespace();
  entry.time_namespace = sys::time_namespace();
  __atomic_store_n(&entry.role, role, __ATOMIC_RELAXED);
  u64 generation = generation_of(entry) + 1;
  if (member_of(slot, generation) == nobody) ++generation;
  __atomic_store_n(&entry.generation, generation, __ATOMIC_RELEASE);
  return member_of(slot, generation);
}

}  // namespace

Member Seat::take(int dir, const InstanceWords& words, u32 role) noexcept {
  if (const Member mine = member(); mine != nobody) {
    __atomic_fetch_or(&words.process(slot_of(mine)).role, role, __ATOMIC_RELAXED);
    return mine;
  }
  sys::Fd file = sys::open_owned(dir, "instance", O_RDWR);
  if (!file || !is_local(file.get())) return nobody;
  for (u32 slot = 0; slot < most_processes; ++slot) {
    struct flock lock = byte_of(slot);
    if (fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) continue;
      return nobody;
    }
    ProcessEntry& entry = words.process(slot);
    if (!sys::populate(&entry, sizeof entry)) return nobody;  // and the lock is released with the description
    for (u32 seats = __atomic_load_n(&words.control->seats, __ATOMIC_ACQUIRE); seats <= slot;)
      if (__atomic_compare_exchange_n(&words.control->seats, &seats, slot + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        break;
    void* const page = mmap(nullptr, page_size, PROT_NONE, MAP_SHARED, file.get(), 0);
    if (page == MAP_FAILED) return nobody;
    if (!of_family_ && madvise(page, page_size, MADV_DONTFORK) != 0) {
      munmap(page, page_size);
      return nobody;
    }
    file = sys::open_owned(dir, "instance", O_RDWR);
    if (!file || ask(file.get(), slot) != Held::yes) {  // it was released with the descriptor
      munmap(page, page_size);
      return nobody;
    }
    held_ = page;
    member_ = sign(entry, slot, role);
    __atomic_store_n(&of_, sys::this_process(), __ATOMIC_RELEASE);
    return member_;
  }
  return nobody;
}

void Seat::leave() noexcept {
  if (member() != nobody) munmap(held_, page_size);
  of_ = 0;
}

result<std::shared_ptr<Members>> Members::open(int dir) {
  sys::Fd own = sys::open_beneath(dir, ".", O_PATH | O_DIRECTORY);
  sys::Fd file = own ? sys::open_owned(dir, "instance", O_RDWR) : sys::Fd();
  if (!file) return sys::fail_beneath(errno, "cannot open an instance's process table");
  auto region = RS_TRY(sys::Region::map(file.get(), instance_file_size, true, "an instance's process table"));
  return std::shared_ptr<Members>(new Members(std::move(own), std::move(file), std::move(region)));
}

u64 Members::lock_word() noexcept {
  Member mine = seat_.member();
  if (mine == nobody) mine = join(role::reader);
  return u64{mine != nobody ? words_.process(slot_of(mine)).pid : static_cast<u32>(getpid())} << 32 | mine;
}

Judge::Judge(int file, const InstanceWords& words) noexcept : file_(file), local_(is_local(file)), words_(words) {}

bool Members::has(u64 word) const noexcept {
  const Member own = seat_.member();
  const auto member = static_cast<Member>(word);
  return member != nobody ? member == own : word >> 32 == static_cast<u64>(getpid());
}

// Its entry has memory. Not, if the word is damaged.
bool Judge::has_seat(Member member) const noexcept {
  return member != nobody && slot_of(member) < __atomic_load_n(&words_.control->seats, __ATOMIC_ACQUIRE);
}

bool Judge::dead(Member member) const noexcept {
  if (!has_seat(member) || !local_) return false;
  const u32 slot = slot_of(member);
  const ProcessEntry& entry = words_.process(slot);
  if (member_of(slot, generation_of(entry)) != member) return true;
  const Held held = ask(file_, slot);
  return held == Held::no || (held == Held::yes && member_of(slot, generation_of(entry)) != member);
}

// A thread of a living process: checked in /proc, if the numbers there mean the same as to the process that noted these.
bool Judge::thread_gone(const ProcessEntry& owner, const RingEntry& entry) const noexcept {
  if (is_foreign(static_cast<i32>(entry.pid)) || is_foreign(static_cast<i32>(entry.tid)))
    return false;  // /proc has no such numbers
  if (owner.pid_namespace == 0 || owner.pid_namespace != sys::pid_namespace() || !sys::proc_is_ours()) return false;
  const auto pid = static_cast<i32>(entry.pid), tid = static_cast<i32>(entry.tid);
  if (sys::thread_gone(pid, pid)) return false;  // hidden
  if (sys::thread_gone(pid, tid)) return true;
  const u64 start = sys::start_time(pid, tid);  // 0: it cannot be read now
  return start > entry.tid_start && owner.time_namespace != 0 && owner.time_namespace == sys::time_namespace();
}

bool Judge::dead(const RingEntry& entry) const noexcept {
  if (is_of_cpu(entry) || !has_seat(entry.of)) return false;
  if (dead(entry.of)) return true;
  // Asked once more: if it died meanwhile, another process may have its numbers by now.
  return thread_gone(words_.process(slot_of(entry.of)), entry) || dead(entry.of);
}

RingState Judge::settle(RingEntry& entry) const noexcept {
  u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
  if (names_cpu(state) && state_of(state) != RingState::busy) return state_of(state);
  const bool gone =
      state_of(state) == RingState::live ? dead(entry) : state_of(state) == RingState::busy && dead(claimer_of(state));
  const RingState left = state >> 63 != 0 ? RingState::empty : RingState::retired;
  const u64 next =
      state_of(state) == RingState::live ? with_state(state, left) : pack_state(left, left == RingState::empty ? 0 : entry.tid);
  if (gone && __atomic_compare_exchange_n(&entry.state, &state, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return left;
  return state_of(state);
}

bool Judge::any(u32 roles) const noexcept {
  const u32 seats = std::min(__atomic_load_n(&words_.control->seats, __ATOMIC_ACQUIRE), most_processes);
  for (u32 slot = 0; slot < seats; ++slot) {
    const ProcessEntry& entry = words_.process(slot);
    const u64 generation = generation_of(entry);
    if (generation != 0 && (__atomic_load_n(&entry.role, __ATOMIC_RELAXED) & roles) != 0 && !dead(member_of(slot, generation)))
      return true;
  }
  return false;
}

}  // namespace ringside
