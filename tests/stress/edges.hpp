// Shared by the storm of edges (edges_test.cpp) and its writers (edges_writer.cpp): the event, and the ledger in which each
// writing thread counts its tries, a mapped file that survives the thread.
#pragma once
#include <fcntl.h>
#include <ringside/base/types.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace ringside::test::edges {

inline u64 mix(u64 x) {  // splitmix64: an actor's or a writer's own random stream
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}
class Random {
 public:
  explicit Random(u64 seed) : state_(seed) {}
  u64 operator()() { return mix(state_++); }
  u64 below(u64 n) { return (*this)() % n; }
  bool one_in(u64 n) { return below(n) == 0; }

 private:
  u64 state_;
};

// The payload, after the kernel's common fields.
struct Tick {
  u32 who, bytes;  // the writing thread's life; bytes of payload after it
  u64 number, check;
};
inline constexpr u32 common_bytes = 8, most_filler = 96;
inline u64 check_of(const Tick& t) { return mix(t.number * 0x10001 + t.who) ^ t.bytes; }
inline u8 filler_of(const Tick& t) { return static_cast<u8>(t.check); }
inline u32 make_tick(u8* payload, u32 who, u64 number) {
  Tick t{who, static_cast<u32>(mix(number) % (most_filler / 8 + 1)) * 8, number, 0};
  t.check = check_of(t);
  std::memset(payload, 0, common_bytes);
  std::memcpy(payload + common_bytes, &t, sizeof t);
  std::memset(payload + common_bytes + sizeof t, filler_of(t), t.bytes);
  return common_bytes + static_cast<u32>(sizeof t) + t.bytes;
}
inline bool is_tick(const u8* payload, u32 size, Tick& t) {
  if (size < common_bytes + sizeof t) return false;
  std::memcpy(&t, payload + common_bytes, sizeof t);
  if (t.check != check_of(t) || t.bytes > most_filler || size < common_bytes + sizeof t + t.bytes) return false;
  for (u32 i = 0; i < t.bytes; ++i)
    if (payload[common_bytes + sizeof t + i] != filler_of(t)) return false;
  return true;
}

enum class Where : u32 { none, cpu, thread, remote };  // the kind of rings of the instance that this writer writes to
struct Life {
  u64 before, after;      // tries begun, tries returned
  u64 written, refused;   // their results
  u32 where, serial;      // Where; the serial of the actor that started it
  u64 unused[3];
};
static_assert(sizeof(Life) == 64);
inline constexpr u32 most_lives = 1u << 20;

class Ledger {
 public:
  explicit Ledger(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || (lseek(fd, 0, SEEK_END) == 0 && ftruncate(fd, sizeof(Life) * most_lives) != 0)) std::abort();
    void* const at = mmap(nullptr, sizeof(Life) * most_lives, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED) std::_Exit(77);  // no room for the program itself
    lives_ = static_cast<Life*>(at);
  }
  // Takes a thread's own life; the first entry holds their number.
  u32 take(Where where, u32 serial) const {
    const u32 who = static_cast<u32>(__atomic_add_fetch(&lives_->before, 1, __ATOMIC_RELAXED));
    if (who >= most_lives) std::_Exit(78);
    lives_[who].serial = serial;
    __atomic_store_n(&lives_[who].where, static_cast<u32>(where), __ATOMIC_RELEASE);
    return who;
  }
  u32 count() const { return static_cast<u32>(__atomic_load_n(&lives_->before, __ATOMIC_RELAXED)) + 1; }
  Life& operator[](u32 who) const { return lives_[who]; }

 private:
  Life* lives_;
};

}  // namespace ringside::test::edges
