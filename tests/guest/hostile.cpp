// A guest that means ill. Argument 0 says how: 1 writes random bytes over its rings while it runs; 2 its service falls silent;
// 3 answers nonsense; 8 only when it is asked the time; 4 does not end; 5 crashes; 6 changes the privileged state; 7 declares
// events outside of its memory; 9 ends with argument 1 as its exit status.
#include <ringside/guest/abi.hpp>

using namespace ringside;
using namespace ringside::guest;

namespace {
void call(Call c, u32 value) noexcept {
  asm volatile("outl %0, %1" : : "a"(value), "d"(static_cast<u16>(port + static_cast<u16>(c))) : "memory");
}
u64 random_word(u64& state) noexcept {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}
}  // namespace

extern "C" void ringside_guest_start(unsigned long processor, Boot* boot) {
  const u64 what = boot->arguments[0];
  u64 state = 88172645463325252u + boot->arguments[1];
  if (processor == 1) {
    for (;;) {
      call(Call::serve, 0);
      if (what == 2)
        for (;;) asm volatile("pause");
      if (boot->mailbox.ask == Ask::time) {
        boot->mailbox.error = 0;
        boot->mailbox.value = what == 8 ? random_word(state) : __builtin_ia32_rdtsc();
        continue;
      }
      boot->mailbox.error = what == 3 ? static_cast<i32>(random_word(state)) : 0;
      boot->mailbox.id = static_cast<u32>(random_word(state)) % 8;
      const bool swaps = boot->mailbox.ask == Ask::swap && what != 9;
      boot->mailbox.value = what == 3 ? random_word(state) : swaps ? random_word(state) % 4 : 0;
    }
  }
  if (what == 7) call(Call::event, 0xFFFFFFFF);
  call(Call::ready, 0);
  if (what == 5) asm volatile("ud2");
  if (what == 9) call(Call::end, static_cast<u32>(boot->arguments[1]));
  if (what == 6) asm volatile("cli; hlt");
  while (what == 4 || __atomic_load_n(&boot->stop, __ATOMIC_RELAXED) == 0)
    if (what == 1) {
      auto* const word = reinterpret_cast<u64*>(boot->region + random_word(state) % (boot->region_bytes / 8) * 8);
      __atomic_store_n(word, random_word(state) % 3 == 0 ? random_word(state) % 4096 : random_word(state), __ATOMIC_RELAXED);
    }
  for (;;) call(Call::end, 0);
}
