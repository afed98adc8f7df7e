// The inside of a guest that writes events. Freestanding; included once, by a program that defines
//
//   int ringside::guest::program(Guest& g);             // runs on processor 0 until it returns or g.stopping()
//   void ringside::guest::interrupt(Guest& g);          // an upcall, between any two instructions of the program
//
// and is linked as a static ELF file; see docs/remote-writers.md. Build with -mgeneral-regs-only, because upcalls save no
// vector registers, and with -mno-red-zone. Global constructors do not run.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <ringside/guest/abi.hpp>
#include <ringside/remote/remote_writer.hpp>

inline void* operator new(__SIZE_TYPE__, void* at) noexcept { return at; }

namespace ringside::guest {

struct Tsc {
  u64 now() noexcept { return __builtin_ia32_rdtsc(); }
};
using Ring = remote::RemoteWriter<Tsc, remote::Nesting::handlers>;

// The kernel's common fields.
struct Common {
  u16 type;
  u8 flags = 0, preempt_count = 0;
  i32 pid = 0;
};

// The texts of an event, as in the files of tracefs.
struct Event {
  u16 id;
  const char *system, *name, *format;
};

inline void call(Call c, u32 value) noexcept {
  asm volatile("outl %0, %1" : : "a"(value), "d"(static_cast<u16>(port + static_cast<u16>(c))) : "memory");
}

class Guest {
 public:
  explicit Guest(Boot& boot) noexcept : boot_(boot), free_(boot.heap) {}

  // Ring 0 belongs to the program and its interrupt handler.
  Ring& ring(u32 index = 0) noexcept { return rings_[index]; }
  u32 nr_rings() const noexcept { return nr_rings_; }
  i32 task() const noexcept { return static_cast<i32>(boot_.task); }
  u64 argument(u32 n) const noexcept { return boot_.arguments[n & 3]; }
  void result(u32 n, u64 value) noexcept { __atomic_store_n(&boot_.results[n & 7], value, __ATOMIC_RELAXED); }
  bool stopping() const noexcept { return __atomic_load_n(&boot_.stop, __ATOMIC_RELAXED) != 0; }

  void declare(const Event& e) noexcept {
    const EventText text{e.id, 0, address(e.system), address(e.name), address(e.format)};
    call(Call::event, static_cast<u32>(address(&text)));
  }
  // All events are declared: the monitor begins to serve the rings.
  void ready() noexcept { call(Call::ready, 0); }
  void take_interrupts(bool on) noexcept { __atomic_store_n(&boot_.masked, u64{on ? 0u : 1u}, __ATOMIC_SEQ_CST); }

  // False: the monitor's data is invalid, or the heap is too small.
  bool begin() noexcept {
    if (boot_.magic != boot_magic || boot_.version != abi_version) return false;
    remote::Descriptor d;
    const auto* const blob = reinterpret_cast<const void*>(boot_.descriptor);
    if (!remote::WildDescriptor(blob, boot_.descriptor_bytes).check(boot_.region_bytes, d).good()) return false;
    nr_rings_ = d.nr_rings();
    rings_ = static_cast<Ring*>(allocate(sizeof(Ring) * nr_rings_));
    if (rings_ == nullptr) return false;
    for (u32 k = 0; k < nr_rings_; ++k) {
      void* const memory = allocate(Ring::private_bytes(d.ring(k)));
      if (memory == nullptr) return false;
      new (&rings_[k]) Ring(d, d.ring(k), reinterpret_cast<void*>(boot_.region), memory, Tsc{});
    }
    boot_.counts_refused = 1;
    return true;
  }

  // Processor 1: answers the monitor forever.
  [[noreturn]] void serve() noexcept {
    Mailbox& box = boot_.mailbox;
    for (;;) {
      call(Call::serve, 0);
      box.error = 0;
      if (box.ask == Ask::time) {
        box.value = Tsc{}.now();
        continue;
      }
      if (box.ring >= nr_rings_) {
        box.error = 22;  // EINVAL
        continue;
      }
      Ring& r = rings_[box.ring];
      switch (box.ask) {
        case Ask::enable: r.enable(); break;
        case Ask::disable: r.disable(); break;
        case Ask::swap: {
          const remote::Swapped s = r.swap_reader(static_cast<u32>(box.argument));
          box.value = static_cast<u64>(s.what);
          box.id = s.id;
          box.refused = static_cast<u32>(r.refused());
          break;
        }
        case Ask::update: r.update_footers(); break;
        case Ask::reset:  // the monitor has stopped processor 0: that is the heavy half of the fence
          if (r.quiet([] {}))
            r.reset();
          else
            box.error = 16;  // EBUSY
          break;
        default: box.error = 38;  // ENOSYS
      }
    }
  }

 private:
  static u64 address(const void* p) noexcept { return reinterpret_cast<u64>(p); }
  // Zeros, because the heap is new and nothing is given back.
  void* allocate(u64 bytes) noexcept {
    const u64 at = align_up(free_, u64{64});
    if (bytes > boot_.heap_bytes || at + bytes > boot_.heap + boot_.heap_bytes) return nullptr;
    free_ = at + bytes;
    return reinterpret_cast<void*>(at);
  }

  Boot& boot_;
  u64 free_;
  Ring* rings_ = nullptr;
  u32 nr_rings_ = 0;
};

int program(Guest& g);
void interrupt(Guest& g);

namespace detail {
alignas(Guest) inline unsigned char guest[sizeof(Guest)];
inline Guest& the_guest() noexcept { return *reinterpret_cast<Guest*>(guest); }
}  // namespace detail

}  // namespace ringside::guest

extern "C" {

[[gnu::used]] inline void ringside_guest_interrupt() { ringside::guest::interrupt(ringside::guest::detail::the_guest()); }

// Restores all registers. Aligns the stack for the call.
void ringside_guest_upcall();
asm(R"(
.text
.globl ringside_guest_upcall
ringside_guest_upcall:
  push %rbp
  mov %rsp, %rbp
  push %rax
  push %rcx
  push %rdx
  push %rbx
  push %rsi
  push %rdi
  push %r8
  push %r9
  push %r10
  push %r11
  push %r12
  push %r13
  push %r14
  push %r15
  and $-16, %rsp
  call ringside_guest_interrupt
  lea -112(%rbp), %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %r11
  pop %r10
  pop %r9
  pop %r8
  pop %rdi
  pop %rsi
  pop %rbx
  pop %rdx
  pop %rcx
  pop %rax
  pop %rbp
  popfq
  ret
)");

[[noreturn, gnu::used]] void ringside_guest_start(unsigned long processor, ringside::guest::Boot* boot) {
  using namespace ringside::guest;
  if (processor != 0) detail::the_guest().serve();
  Guest& g = *new (detail::guest) Guest(*boot);
  int status = 127;
  if (g.begin()) {
    boot->masked = 1;
    boot->upcall = reinterpret_cast<ringside::u64>(ringside_guest_upcall);
    status = program(g);
  }
  for (;;) call(Call::end, static_cast<ringside::u32>(status));
}

// The compiler may emit calls of these.
void* memcpy(void* to, const void* from, __SIZE_TYPE__ n) {
  void* const answer = to;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
  return answer;
}
void* memset(void* to, int value, __SIZE_TYPE__ n) {
  void* const answer = to;
  asm volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
  return answer;
}
}
