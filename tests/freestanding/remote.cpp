// An external writer without a C library. With -DCODE: each thing that one does, as one function; their size is what a guest or
// a firmware pays. Else a whole program: packs a descriptor, checks it, writes, swaps, resets. Ends with 0, or with the number
// of the step that went wrong.
#include <ringside/remote/remote_writer.hpp>

#ifdef CODE
using namespace ringside;
using namespace ringside::remote;
struct Cycles {
  u64 now() noexcept { return __builtin_ia32_rdtsc(); }
};
using W = RemoteWriter<Cycles>;
inline void* operator new(size_t, void* at) noexcept { return at; }
extern "C" {
Wrong attach(W* at, const void* blob, u64 bytes, void* region, u64 region_bytes, u32 ring, void* memory) {
  Descriptor d;
  if (const Verdict v = WildDescriptor(blob, bytes).check(region_bytes, d); !v.good()) return v.wrong;
  new (at) W(d, d.ring(ring), region, memory, Cycles{});
  return Wrong::no;
}
bool reserve(W& w, u32 size, Reservation& slot) { return w.reserve(size, slot); }
void commit(W& w, const Reservation& slot) { w.commit(slot); }
bool discard(W& w, const Reservation& slot) { return w.discard(slot); }
u64 swap_reader(W& w, u32 read) {
  const Swapped s = w.swap_reader(read);
  return u64{static_cast<u32>(s.what)} << 32 | s.id;
}
void update_footers(W& w) { w.update_footers(); }
void reset(W& w) { w.reset(); }
void enable(W& w) { w.enable(); }
void disable(W& w) { w.disable(); }
bool quiet(W& w) {
  return w.quiet([] {});
}
}
#else

extern "C" void* memcpy(void* to, const void* from, size_t n) {
  auto* t = static_cast<unsigned char*>(to);
  auto* f = static_cast<const unsigned char*>(from);
  for (size_t i = 0; i < n; ++i) asm volatile("" : : "r"(t[i] = f[i]) : "memory");
  return to;
}
extern "C" void* memset(void* to, int value, size_t n) {
  auto* t = static_cast<unsigned char*>(to);
  for (size_t i = 0; i < n; ++i) asm volatile("" : : "r"(t[i] = static_cast<unsigned char>(value)) : "memory");
  return to;
}

namespace {

using namespace ringside;
using namespace ringside::remote;

struct Ticks {
  u64 n = 0;
  u64 now() noexcept { return ++n; }
};
constexpr Plan plan(Layout layout) { return {layout, 2, 4096, 2, 4}; }
alignas(4096) u8 region[plan(Layout::footers).region_bytes()];
alignas(64) u8 memory[2][1024];
alignas(8) u8 blob[plan(Layout::footers).descriptor_bytes()];

template <Nesting N>
int use(Layout layout) {
  pack(plan(layout), blob);
  Descriptor d;
  if (!WildDescriptor(blob, sizeof blob).check(sizeof region, d).good()) return 1;
  memset(memory, 0, sizeof memory);
  using Writer = RemoteWriter<Ticks, N>;
  if (Writer::private_bytes(d.ring(1)) > sizeof memory[1]) return 2;
  Writer w(d, d.ring(1), region, memory[1], Ticks{});
  const u64 payload[2] = {1, 2};
  if (w.write(payload, sizeof payload)) return 3;  // disabled
  w.enable();
  for (u64 k = 0; k < 2000; ++k)
    if (!w.write(payload, sizeof payload)) return 4;
  const Reservation open = w.reserve(8);
  if (!open || !w.discard(open)) return 5;
  const Swapped got = w.swap_reader(0);
  if (got.what != Swap::swapped || got.id == 0) return 6;
  w.update_footers();
  w.disable();
  if (!w.quiet([] {})) return 7;
  w.reset();
  return w.swap_reader(0).what == Swap::nothing ? 0 : 8;
}

}  // namespace

#if defined(__x86_64__)
#define RS_ENTRY __attribute__((force_align_arg_pointer, noreturn))
#else
#define RS_ENTRY __attribute__((noreturn))
#endif
extern "C" RS_ENTRY void _start() {
  int bad = use<Nesting::handlers>(Layout::footers);
  if (bad == 0) bad = use<Nesting::handlers>(Layout::meta_page);
  if (bad == 0) bad = use<Nesting::none>(Layout::footers);
  if (bad == 0) bad = use<Nesting::none>(Layout::meta_page);
#if defined(__x86_64__)
  asm volatile("syscall" : : "a"(231), "D"(bad) : "rcx", "r11", "memory");
#else
  register long number asm("x8") = 94;
  register long status asm("x0") = bad;
  asm volatile("svc 0" : : "r"(number), "r"(status) : "memory");
#endif
  __builtin_unreachable();
}
#endif
