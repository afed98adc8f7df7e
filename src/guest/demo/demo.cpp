// A guest that computes and takes timer interrupts: each step of the computation is an event that stays open while it is
// computed, so that many interrupts' events are nested in it. Argument 0: the number of steps (0: until it is stopped); 1: 1
// for steps that compute nothing, to measure the writing alone; 2: measures (results: loops, and the ticks that they took for
// rdtsc, for an event of 16 bytes, for an exit; loops of exits). Argument 2: how many events it tries that can never fit.
#include <ringside/guest/guest.hpp>

namespace ringside::guest {
namespace {

struct Step {
  Common common;
  u64 number, longest;
  u32 steps, nested;
};
struct Tick {
  Common common;
  u64 number;
  u32 inside, reserved;
};

constexpr u16 step_id = first_event, timer_id = first_event + 1;
#define COMMON_FIELDS                                                              \
  "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"         \
  "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"         \
  "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n" \
  "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"                   \
  "\tfield:unsigned long number;\toffset:8;\tsize:8;\tsigned:0;\n"
constexpr Event events[] = {
    {step_id, "guest", "step",
     "name: step\nID: 63488\nformat:\n"
     COMMON_FIELDS
     "\tfield:unsigned long longest;\toffset:16;\tsize:8;\tsigned:0;\n"
     "\tfield:unsigned int steps;\toffset:24;\tsize:4;\tsigned:0;\n"
     "\tfield:unsigned int nested;\toffset:28;\tsize:4;\tsigned:0;\n\n"
     "print fmt: \"number=%lu longest=%lu steps=%u nested=%u\", REC->number, REC->longest, REC->steps, REC->nested\n"},
    {timer_id, "guest", "timer",
     "name: timer\nID: 63489\nformat:\n"
     COMMON_FIELDS
     "\tfield:unsigned int inside;\toffset:16;\tsize:4;\tsigned:0;\n\n"
     "print fmt: \"number=%lu inside=%u\", REC->number, REC->inside\n"},
};

// The report to the monitor at the end: events tried, written, refused; ticks; ticks inside an open event.
struct Books {
  u64 tried, refused, ticks, nested;
  u32 open;
} books;

// The length of the Collatz sequence of n.
u32 collatz(u64 n) noexcept {
  u32 steps = 0;
  for (; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  return steps;
}

u64 volatile_load(const u64& word) noexcept { return __atomic_load_n(&word, __ATOMIC_RELAXED); }
void count(u64& word) noexcept { __atomic_store_n(&word, volatile_load(word) + 1, __ATOMIC_RELAXED); }

void tell(Guest& g) noexcept {
  const u64 numbers[] = {volatile_load(books.tried), volatile_load(books.refused), volatile_load(books.ticks),
                         volatile_load(books.nested)};
  for (u32 n = 0; n < 4; ++n) g.result(n, numbers[n]);
}

template <class F>
u64 ticks_of(u64 loops, F f) noexcept {
  u64 best = ~u64{0};
  for (int round = 0; round < 7; ++round) {
    const u64 start = Tsc{}.now();
    for (u64 i = 0; i < loops; ++i) f(i);
    const u64 took = Tsc{}.now() - start;
    best = took < best ? took : best;
  }
  return best;
}

int measure(Guest& g) noexcept {
  constexpr u64 loops = 200000, exits = 200;
  g.result(0, loops);
  g.result(1, ticks_of(loops, [](u64) {
    const u64 now = Tsc{}.now();
    asm volatile("" : : "r"(now));
  }));
  g.result(2, ticks_of(loops, [&](u64 i) {
    (void)g.ring().write(16, [&](u8* to) {
      __builtin_memcpy(to, &i, sizeof i);
      __builtin_memcpy(to + 8, &i, sizeof i);
    });
  }));
  g.result(3, ticks_of(exits, [](u64) { call(Call::nothing, 0); }));
  g.result(4, exits);
  return 0;
}

}  // namespace

void interrupt(Guest& g) {
  g.take_interrupts(false);
  count(books.ticks);
  const u32 inside = __atomic_load_n(&books.open, __ATOMIC_RELAXED);
  if (inside != 0) count(books.nested);
  count(books.tried);
  const bool written = g.ring().write(sizeof(Tick), [&](u8* to) {
    const Tick tick{{.type = timer_id, .pid = g.task()}, volatile_load(books.ticks), inside, 0};
    __builtin_memcpy(to, &tick, sizeof tick);
  });
  if (!written) count(books.refused);
  g.take_interrupts(true);
}

int program(Guest& g) {
  for (const Event& e : events) g.declare(e);
  g.ready();
  g.take_interrupts(true);
  if (g.argument(1) == 2) return measure(g);
  const u64 most = g.argument(0) != 0 ? g.argument(0) : ~u64{0};
  const bool bare = g.argument(1) != 0;
  u64 longest = 0;
  u32 record = 0;
  for (u64 n = 1; n <= most && !g.stopping(); ++n) {
    // The interrupt changes `tried` too.
    __atomic_fetch_add(&books.tried, 1, __ATOMIC_RELAXED);
    const u64 before = volatile_load(books.ticks);
    Reservation slot = g.ring().reserve(sizeof(Step));
    if (!slot) {
      __atomic_fetch_add(&books.refused, 1, __ATOMIC_RELAXED);
      continue;
    }
    __atomic_store_n(&books.open, 1, __ATOMIC_RELAXED);
    const u32 steps = bare ? 0 : collatz(n);
    if (steps > record) record = steps, longest = n;
    const Step step{
        {.type = step_id, .pid = g.task()}, n, longest, steps, static_cast<u32>(volatile_load(books.ticks) - before)};
    __builtin_memcpy(slot.payload, &step, sizeof step);
    __atomic_store_n(&books.open, 0, __ATOMIC_RELAXED);
    g.ring().commit(slot);
  }
  g.take_interrupts(false);
  for (u64 n = g.argument(2); n != 0; --n) {
    count(books.tried);
    if (!g.ring().write(~u32{0}, [](u8*) {})) count(books.refused);
  }
  tell(g);
  return 0;
}

}  // namespace ringside::guest
