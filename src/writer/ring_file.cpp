#include "writer/ring_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "sys/beneath.hpp"

namespace ringside {
namespace {

sys::Fd open_sized(int dir, const char* path, u64 size, Files files) noexcept {
  sys::Fd fd = sys::open_owned(dir, path, O_RDWR);
  if (!fd && errno == ENOENT && files == Files::ours && std::strchr(path, '/') != nullptr) {
    char folder[96];
    std::strcpy(folder, path);
    *std::strrchr(folder, '/') = 0;
    if (sys::make_owned_directory(dir, folder)) fd = sys::open_owned(dir, path, O_RDWR | O_CREAT);
  }
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return {};
  if (static_cast<u64>(st.st_size) >= size) return fd;
  // Two processes that extend it at a time might shorten it, under the mapping of one of them.
  if (files != Files::ours) return errno = EINVAL, sys::Fd();
  if (!sys::set_size(fd.get(), size)) return {};
  return fd;
}

void* map_sized(int dir, const char* path, u64 size, Files files) noexcept {
  const sys::Fd fd = open_sized(dir, path, size, files);
  return fd ? sys::map_shared(fd.get(), size) : nullptr;
}

sys::Fd open_control(int dir, u32 n) noexcept {
  char path[64];
  ring_path(n, "ring", path);
  return sys::open_owned(dir, path, O_RDONLY);
}

// False, errno EINVAL: the file is too short.
template <class T>
bool get(const sys::Fd& fd, T& value, u64 at) noexcept {
  for (size_t have = 0; have < sizeof value;) {
    const ssize_t n = pread(fd.get(), reinterpret_cast<u8*>(&value) + have, sizeof value - have, static_cast<off_t>(at + have));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EINVAL;
    if (n <= 0) return false;
    have += static_cast<size_t>(n);
  }
  return true;
}

bool punch(const sys::Fd& fd, off_t from = 0) noexcept {
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return false;
  return st.st_size <= from || fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, st.st_size - from) == 0;
}

// Writes zeros to the first page, which stays.
bool clear_page(const sys::Fd& fd) noexcept {
  static constexpr u8 zeros[page_size] = {};
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return false;
  const ssize_t size = std::min<ssize_t>(st.st_size, page_size);
  return sys::write_at(fd.get(), zeros, static_cast<size_t>(size), 0);
}

}  // namespace

u32 claim_new_ring(const InstanceWords& words, u64 claim) noexcept {
  u64& made = words.control->nr_rings;
  for (u64 n = __atomic_load_n(&made, __ATOMIC_ACQUIRE); n < most_rings; n = __atomic_load_n(&made, __ATOMIC_ACQUIRE)) {
    RingEntry& entry = words.ring(static_cast<u32>(n));
    if (!sys::populate(&entry, sizeof entry)) break;
    u64 never = 0, counted = n;
    const bool ours = __atomic_compare_exchange_n(&entry.state, &never, claim, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    // Counted after the claim, by any process that comes here.
    __atomic_compare_exchange_n(&made, &counted, n + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    if (ours) return static_cast<u32>(n);
  }
  return most_rings;
}

void ring_path(u32 n, const char* name, char* out) noexcept {
  std::memcpy(out, "per_cpu/cpu", 11);
  out += 11;
  out = std::to_chars(out, out + 10, n).ptr;
  *out++ = '/';
  std::strcpy(out, name);
}

MappedRing map_ring(int dir, u32 n, const Geometry& geometry, Files files) noexcept {
  char folder[64];
  ring_path(n, "", folder);
  return map_ring_in(dir, folder, geometry, files);
}

MappedRing map_ring_in(int dir, const char* folder, const Geometry& geometry, Files files) noexcept {
  MappedRing mapped;
  mapped.ring.geometry = geometry;
  mapped.control_bytes = control_size(geometry);
  mapped.data_bytes = geometry.data_size();
  char path[96];
  std::strcpy(stpcpy(path, folder), "trace_pipe_raw");
  mapped.ring.data = static_cast<u8*>(map_sized(dir, path, mapped.data_bytes, files));
  if (mapped.ring.data == nullptr) return {};
  std::strcpy(stpcpy(path, folder), "ring");
  mapped.ring.control = static_cast<Control*>(map_sized(dir, path, mapped.control_bytes, files));
  if (mapped.ring.control == nullptr) {
    const int error = errno;
    munmap(mapped.ring.data, mapped.data_bytes);
    errno = error;
    return {};
  }
  if (!sys::populate(mapped.ring.control, mapped.control_bytes)) {
    unmap_ring(mapped);
    errno = ENOSPC;
    return {};
  }
  mapped.ring.kind = kind_of(*mapped.ring.control);
  return mapped;
}

void label_ring(const Ring& ring) noexcept {
  Control& c = *ring.control;
  const Geometry& geometry = ring.geometry;
  c.version = control_version;
  c.header_bytes = sizeof(Control);
  c.record_bytes = sizeof(Record);
  c.subbuf_size = geometry.subbuf_size();
  c.nr_subbufs = geometry.nr_subbufs();
  c.nr_slots = geometry.nr_slots();
  c.kind = static_cast<u64>(ring.kind);
  c.life = sys::now_ns();
  if (ring.kind == RingKind::cpu) c.gate |= gate_cpu_open;
  __atomic_store_n(&c.magic, control_magic, __ATOMIC_RELEASE);
}

sys::Fd open_ring(int dir, u32 n) noexcept {
  char folder[64];
  ring_path(n, "", folder);
  return sys::open_owned(dir, folder, O_PATH | O_DIRECTORY);
}

MappedRing map_whole_ring(int dir, u32 n) noexcept {
  const sys::Fd folder = open_ring(dir, n);
  const Geometry geometry = folder ? ring_geometry_in(folder.get(), {}) : Geometry();
  return geometry.valid() ? map_ring_in(folder.get(), "", geometry, Files::there) : MappedRing{};
}

Geometry ring_geometry(int dir, u32 n, const Geometry& fresh) noexcept {
  const sys::Fd folder = open_ring(dir, n);
  if (!folder) return errno == ENOENT ? fresh : Geometry();
  return ring_geometry_in(folder.get(), fresh);
}

Geometry ring_geometry_in(int folder, const Geometry& fresh) noexcept {
  const sys::Fd fd = sys::open_owned(folder, "ring", O_RDONLY);
  if (!fd) return errno == ENOENT ? fresh : Geometry();
  Control head{};
  if (!get(fd, head, 0)) return {};
  if (head.magic == 0) return fresh;
  if (head.magic != control_magic || head.version != control_version || head.record_bytes != sizeof(Record) ||
      head.nr_slots + 1 > head.nr_subbufs || head.nr_slots == 0) {
    errno = EINVAL;
    return {};
  }
  return Geometry(head.subbuf_size, head.nr_subbufs, head.nr_subbufs - head.nr_slots - 1);
}

bool seems_read(int dir, u32 n) noexcept {
  const sys::Fd fd = open_control(dir, n);
  Control head{};
  Record record{};
  if (!fd || !get(fd, head, 0) || !get(fd, record, sizeof head + place_of(head.commit).id * sizeof record)) return false;
  return record.base + committed_of(record.committed).events <= head.state[head.reader_generation & 1].expected;
}

void unmap_ring(MappedRing& mapped) noexcept {
  if (!mapped) return;
  munmap(mapped.ring.data, mapped.data_bytes);
  munmap(mapped.ring.control, mapped.control_bytes);
  mapped = {};
}

u64 resident_bytes(int dir, u32 n) noexcept {
  u64 bytes = 0;
  const sys::Fd folder = open_ring(dir, n);
  for (const char* name : {"ring", "trace_pipe_raw"}) {
    struct stat st {};
    if (folder && fstatat(folder.get(), name, &st, AT_SYMLINK_NOFOLLOW) == 0) bytes += static_cast<u64>(st.st_blocks) * 512;
  }
  return bytes;
}

void forget_ring(MappedRing& at) noexcept {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  mmap(at.ring.data, at.data_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  mmap(at.ring.control, at.control_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
}

void switch_gate(Control& control, u64 gate) noexcept {
  __atomic_fetch_or(&control.gate, gate, __ATOMIC_SEQ_CST);
  __atomic_fetch_and(&control.gate, ~(gate_of_instance & ~gate), __ATOMIC_SEQ_CST);
}

bool clear_ring(int dir, u32 n) noexcept {
  char path[64];
  ring_path(n, "ring", path);
  const sys::Fd control = sys::open_owned(dir, path, O_RDWR);
  Control head{};
  if (!get(control, head, 0)) return false;
  // The mark goes first: a process that finds the reader's lock free again finds no mark either. No mark means that a process
  // was killed in here.
  const bool marked = head.magic == control_magic;
  head.magic = 0;
  if (!sys::write_at(control.get(), &head.magic, sizeof head.magic, offsetof(Control, magic))) return false;
  // Threads may still map a CPU's ring that was moved aside and load its gate: zeros are there, not a hole.
  const bool gate_stays = !marked || kind_of(head) == RingKind::cpu;
  if ((gate_stays && !clear_page(control)) || !punch(control, gate_stays ? page_size : 0)) return false;
  ring_path(n, "trace_pipe_raw", path);
  return punch(sys::open_owned(dir, path, O_RDWR));
}

}  // namespace ringside
