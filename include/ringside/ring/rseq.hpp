// The restartable sequences of a CPU's ring (docs/design/cpu-rings.md): append an event (the usual one, or any), enter the next
// sub-buffer, count an event that is refused.
//
// Linux aborts a registered thread inside such a sequence when it preempts or migrates the thread, or delivers a signal to it.
// Control then goes to the abort handler, and the last store, which alone publishes, has not happened. So from its first
// instruction to its last, a sequence has the words of its CPU's ring to itself, among all threads, processes and signal
// handlers of the machine. A sequence that is cut off leaves words that the next one reads correctly.
//
// Nearly all events are usual ones. These are appended by a sequence that finds everything out itself. For the others, C++
// (cpu_writer.hpp) works out beforehand what to store where, and the sequence only asks whether that still holds: the thread
// runs on the same CPU, the gate is open, and tail and commit, which grow with every event, have the values that were seen.
// Each sequence is here once for x86-64 and once for arm64, as a list of the same steps; tests/model has them in C++. On
// arm64, the stores that publish are stlr (COMMIT, ADVANCE).
//
// Rules: the assembly reaches the thread's rseq area through the thread pointer, because a fiber may continue in another
// thread; the descriptor is never written; no calls; payloads lie in memory that was touched before. Signal-safe.
// Source: Linux Documentation and include/uapi/linux/rseq.h; glibc's __rseq_offset.
#pragma once
#include <ringside/base/ticks.hpp>
#include <ringside/ring/sequence.hpp>

namespace ringside {

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define RINGSIDE_RSEQ 1
#else
#define RINGSIDE_RSEQ 0
#endif

#if RINGSIDE_RSEQ

// Puts the descriptor {version and flags, start, length, abort handler} into its section. Labels: 1 start, 2 after the last
// store, 3 the descriptor, 4 the abort handler (the kernel checks the signature before it), 6 moved, 7 out, 9 late.
#define RS_RSEQ_DESCRIPTOR                      \
  ".pushsection __rseq_cs, \"aw?\"\n\t"         \
  ".balign 32\n3:\n\t"                          \
  ".long 0, 0\n\t.quad 1f, (2f - 1f), 4f\n\t"   \
  ".popsection\n\t"

#if defined(__x86_64__)

#define RS_RSEQ_BEGIN                            \
  RS_RSEQ_DESCRIPTOR                             \
  "leaq 3b(%%rip), %%rax\n\t"                    \
  "movq %%rax, %%fs:8(%[area])\n1:\n\t"
#define RS_RSEQ_BEGIN_GUARDED                                                                                              \
  RS_RSEQ_DESCRIPTOR                                                                                                       \
  "leaq 3b(%%rip), %%rax\n\tcmpq $1, 0(%[guard])\n\tje 1f\n\tmovq %%rax, %%fs:8(%[area])\n\tjb 6f\n"                \
  "1:\n\tcmpq %%rax, %%fs:8(%[area])\n\tjne 6f\n\tcmpq $1, 0(%[guard])\n\tje 5f\n\t"                              \
  "movl 32(%[guard]), %%eax\n\tcmpl %%eax, %%fs:4(%[area])\n\tjne 6f\n\t"                                          \
  "rdtsc\n\tshlq $32, %%rdx\n\torq %%rdx, %%rax\n\tsubq 16(%[guard]), %%rax\n\t"                                  \
  "cmpq 24(%[guard]), %%rax\n\tjae 6f\n5:\n\t"
#define RS_RSEQ_SAME_CPU "movl (%[a]), %%eax\n\tcmpl %%eax, %%fs:4(%[area])\n\tjne 6f\n\t"
#define RS_RSEQ_END                                                \
  "2:\n\txorl %[result], %[result]\n"                              \
  ".pushsection __rseq_failure, \"ax?\"\n\t"                       \
  ".byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n"                   \
  "4:\n\tmovl $2, %[result]\n\tjmp 7f\n"                           \
  "6:\n\tmovl $1, %[result]\n\tjmp 7f\n"                           \
  "9:\n\tmovl $3, %[result]\n\tjmp 7f\n\t"                         \
  ".popsection\n7:\n"

#else

#define RS_RSEQ_BEGIN                                                            \
  RS_RSEQ_DESCRIPTOR                                                             \
  "mrs x9, tpidr_el0\n\tadd x9, x9, %[area]\n\t"                                 \
  "adrp x10, 3b\n\tadd x10, x10, :lo12:3b\n\tstr x10, [x9, #8]\n1:\n\t"
#define RS_RSEQ_BEGIN_GUARDED                                                                                              \
  RS_RSEQ_DESCRIPTOR                                                                                                       \
  "mrs x9, tpidr_el0\n\tadd x9, x9, %[area]\n\tadrp x10, 3b\n\tadd x10, x10, :lo12:3b\n\t"                                 \
  "ldr x11, [%[guard], #0]\n\tcmp x11, #1\n\tb.eq 1f\n\tstr x10, [x9, #8]\n\tb.lo 6f\n"                             \
  "1:\n\tldr x12, [x9, #8]\n\tcmp x10, x12\n\tb.ne 6f\n\tcmp x11, #1\n\tb.eq 5f\n\t"                                     \
  "ldr w11, [%[guard], #32]\n\tldr w12, [x9, #4]\n\tcmp w11, w12\n\tb.ne 6f\n\t"                                     \
  "isb\n\tmrs x11, cntvct_el0\n\tldr x12, [%[guard], #16]\n\tsub x11, x11, x12\n\t"                                 \
  "ldr x12, [%[guard], #24]\n\tcmp x11, x12\n\tb.hs 6f\n5:\n\t"
#define RS_RSEQ_SAME_CPU "ldr w10, [%[a]]\n\tldr w11, [x9, #4]\n\tcmp w10, w11\n\tb.ne 6f\n\t"
#define RS_RSEQ_END                                                            \
  "2:\n\tmov %w[result], #0\n\tb 7f\n"                                         \
  "6:\n\tmov %w[result], #1\n\tb 7f\n"                                         \
  "9:\n\tmov %w[result], #3\n\tb 7f\n\t"                                       \
  ".pushsection __rseq_failure, \"ax?\"\n\t"                                   \
  ".inst 0xd428bc00\n4:\n\tmov %w[result], #2\n\tb 7f\n\t"                     \
  ".popsection\n7:\n"

#endif

// area: the offset of the thread's rseq area from the thread pointer, as in glibc's __rseq_offset.
struct Rseq {
  // The CPU that this thread runs on, 32 bits. A value above every CPU's number: the thread is not registered.
  RINGSIDE_INLINE static u32 cpu(i64 area) noexcept {
    u32 cpu;
#if defined(__x86_64__)
    asm volatile("movl %%fs:4(%[area]), %[cpu]" : [cpu] "=r"(cpu) : [area] "r"(area));
#else
    asm volatile("mrs %[t], tpidr_el0\n\tadd %[t], %[t], %[area]\n\tldr %w[t], [%[t], #4]"
                 : [t] "=&r"(area)
                 : [area] "r"(area));
    cpu = static_cast<u32>(area);
#endif
    return cpu;
  }

  static_assert(offsetof(Guard, run) == 0 && offsetof(Guard, now) == 8 && offsetof(Guard, since) == 16 &&
                offsetof(Guard, limit) == 24 && offsetof(Guard, cpu) == 32);  // an asm may have 30 operands
#define RS_FIELD(T, member) [member] "i"(offsetof(T, member))
#define RS_APPEND_FIELDS                                                                                                       \
  RS_FIELD(Append, control), RS_FIELD(Append, tail), RS_FIELD(Append, commit), RS_FIELD(Append, before),                       \
      RS_FIELD(Append, after), RS_FIELD(Append, last), RS_FIELD(Append, limit), RS_FIELD(Append, given),                       \
      RS_FIELD(Append, time), RS_FIELD(Append, stamp), RS_FIELD(Append, at), RS_FIELD(Append, extend), RS_FIELD(Append, head), \
      RS_FIELD(Append, delta_mask), RS_FIELD(Append, tail_bytes), RS_FIELD(Append, to), RS_FIELD(Append, from),                \
      RS_FIELD(Append, size), RS_FIELD(Append, committed), RS_FIELD(Append, committed_after)
#define RS_ENTER_FIELDS                                                                                                     \
  RS_FIELD(Enter, control), RS_FIELD(Enter, tail), RS_FIELD(Enter, next_tail), RS_FIELD(Enter, commit),                     \
      RS_FIELD(Enter, before), RS_FIELD(Enter, committed), RS_FIELD(Enter, committed_final), RS_FIELD(Enter, real_end),     \
      RS_FIELD(Enter, end), RS_FIELD(Enter, pad0), RS_FIELD(Enter, pad1), RS_FIELD(Enter, padding), RS_FIELD(Enter, fresh), \
      RS_FIELD(Enter, base), RS_FIELD(Enter, header), RS_FIELD(Enter, last)
#define RS_REFUSE_FIELDS RS_FIELD(Refuse, control), RS_FIELD(Refuse, tail), RS_FIELD(Refuse, word)
#define RS_USUAL_FIELDS(nr_cpus)                                                                                              \
  [nr] "i"(offsetof(CpuRings, nr_cpus)), [places] "i"(offsetof(CpuRings, place)), RS_FIELD(CpuPlace, control),               \
      RS_FIELD(CpuPlace, first), [stride] "i"(offsetof(CpuPlace, subbuf_size)), RS_FIELD(CpuPlace, nr_subbufs),               \
      RS_FIELD(CpuPlace, capacity), [id_mask] "i"(id_mask), [record_size] "i"(sizeof(Record)),                                \
      [records] "i"(sizeof(Control)), [data] "i"(abi::header_size), [delta_limit] "i"(abi::delta_limit), RS_CONTROL_FIELDS,   \
      RS_RECORD_FIELDS
#define RS_SHAPE_FIELDS RS_FIELD(Shape, grow), RS_FIELD(Shape, head), RS_FIELD(Shape, payload_at), RS_FIELD(Shape, size), RS_FIELD(Shape, tail_bytes)
#define RS_CONTROL_FIELDS [gate] "i"(offsetof(Control, gate)), [place] "i"(offsetof(Control, commit)), [open] "i"(gate_cpu_open)
#define RS_RECORD_FIELDS                                                                                              \
  [r_times] "i"(offsetof(Record, reserve)), [r_committed] "i"(offsetof(Record, committed)), [r_base] "i"(offsetof(Record, base))

  // Notes *word in `seen` and spins for `rounds` rounds, to see whether the kernel aborts. moved: the word has changed since it
  // was noted, and the kernel did not abort. aborted: perhaps before it was noted; then `seen` is as before.
  RINGSIDE_INLINE static Sequence spin(i64 area, const u32* word, u32& seen, u32 rounds) noexcept {
    u32 result;
#if defined(__x86_64__)
    asm volatile(
        RS_RSEQ_BEGIN
        "movl (%[word]), %[seen]\n5:\n\tcmpl %[seen], (%[word])\n\tjne 6f\n\tdecl %[rounds]\n\tjne 5b\n\tjmp 9f\n" RS_RSEQ_END
        : [result] "=&r"(result), [rounds] "+&r"(rounds), [seen] "+&r"(seen)
        : [area] "r"(area), [word] "r"(word)
        : "rax", "memory", "cc");
#else
    asm volatile(RS_RSEQ_BEGIN
                 "ldr %w[seen], [%[word]]\n5:\n\tldr w10, [%[word]]\n\tcmp w10, %w[seen]\n\tb.ne 6f\n\tsubs %w[rounds], "
                 "%w[rounds], #1\n\tb.ne 5b\n\tb 9f\n" RS_RSEQ_END
                 : [result] "=&r"(result), [rounds] "+&r"(rounds), [seen] "+&r"(seen)
                 : [area] "r"(area), [word] "r"(word)
                 : "x9", "x10", "memory", "cc");
#endif
    return static_cast<Sequence>(result);
  }

#if defined(__x86_64__)
// All loads come before the clock is read, because nothing after rdtsc begins before it ends. All stores come after it,
// because it waits for stores before it (AMD Zen 4: 2 ns each). Finds the CPU's ring, the tail's sub-buffer (r10), where the
// event goes (r11, less the header), what `committed` will be (r8), the time of the last event (r9), and where this one's goes
// (area).
#define RS_USUAL_FIND                                                                                                          \
  /* this CPU's ring */                                                                                                        \
  "movl %%fs:4(%[area]), %%eax\n\tcmpl %c[nr](%[rings]), %%eax\n\tjae 6f\n\t"                                                  \
  "movq %c[places](%[rings],%%rax,8), %%r8\n\t"                                                                                \
  "movq %c[control](%%r8), %%r9\n\tcmpq %[open], %c[gate](%%r9)\n\tjne 6f\n\t"                                                 \
  /* the tail's sub-buffer and record */                                                                                       \
  "movl %c[place](%%r9), %%eax\n\tandl %[id_mask], %%eax\n\txorl $1, %%eax\n\tcmpq %c[nr_subbufs](%%r8), %%rax\n\tjae 6f\n\t"  \
  "movl %%eax, %%r10d\n\timulq %c[stride](%%r8), %%r10\n\taddq %c[first](%%r8), %%r10\n\t"                                     \
  "imulq %[record_size], %%rax, %%rax\n\tleaq %c[records](%%r9,%%rax), %%r9\n\t"                                               \
  /* not the first event; room; committed must be that of commit, or an event was cut off */                                   \
  "movq 8(%%r10), %%r11\n\ttestq %%r11, %%r11\n\tje 6f\n\t"                                                                    \
  "movl %[bytes], %%eax\n\taddq %%r11, %%rax\n\tjc 6f\n\tcmpq %c[capacity](%%r8), %%rax\n\tja 6f\n\t"                          \
  "movq %c[r_committed](%%r9), %%r8\n\tcmpl %%r8d, %%r11d\n\tjne 6f\n\t"                                                       \
  /* two slots for times: the last event used the one, this one uses the other */                                              \
  "movq %%r8, %[area]\n\tshrq $29, %[area]\n\tandl $8, %k[area]\n\taddq %%r9, %[area]\n\t"                                     \
  "movq %c[r_times](%[area]), %%r9\n\txorq $8, %[area]\n\t"                                                                    \
  "addq %%r10, %%r11\n\tmovq %[grow], %%rax\n\taddq %%rax, %%r8\n\t"
// Stores now (rax) and `committed`, which counts as soon as the event is published; leaves the delta in rax. `area` without the
// slot's bit is the record.
#define RS_USUAL_TICKS "rdtsc\n\tshlq $32, %%rdx\n\torq %%rdx, %%rax\n\t"
#define RS_USUAL_STAMP                                                                                                         \
  "movq %%rax, %c[r_times](%[area])\n\t"                                                                                       \
  "subq %%r9, %%rax\n\tcmpq %[delta_limit], %%rax\n\tjae 6f\n\t"                                                               \
  "andq $-9, %[area]\n\tmovq %%r8, %c[r_committed](%[area])\n\tmovl %%r8d, %%r8d\n\t"
// The event, whose delta is rax. The shape is one operand: five would need more registers than Clang has left at -O0.
#define RS_USUAL_COPY                                                                                                          \
  "movq 32(%[shape]), %%rdx\n\tmovq %%rdx, 8(%%r10,%%r8)\n\t"                                                                 \
  "shlq $5, %%rax\n\torq 8(%[shape]), %%rax\n\tmovq %%rax, %c[data](%%r11)\n\t"                                              \
  "movq 24(%[shape]), %%rdx\n\taddq 16(%[shape]), %%r11\n\taddq %%rdx, %[from]\n\taddq %%rdx, %%r11\n\t"                     \
  "negq %%rdx\n\tje 8f\n5:\n\tmovq (%[from],%%rdx), %%rax\n\tmovq %%rax, %c[data](%%r11,%%rdx)\n\taddq $8, %%rdx\n\t"       \
  "jne 5b\n8:\n\t"
#define RS_USUAL_PUBLISH "movq %%r8, 8(%%r10)\n"
  static_assert(offsetof(Shape, grow) == 0 && offsetof(Shape, head) == 8 && offsetof(Shape, payload_at) == 16 &&
                offsetof(Shape, size) == 24 && offsetof(Shape, tail_bytes) == 32);
#else
#define RS_USUAL_FIND                                                                                                          \
  "ldr w10, [x9, #4]\n\tldr w11, [%[rings], %[nr]]\n\tcmp w10, w11\n\tb.hs 6f\n\t"                                           \
  "add x11, %[rings], %[places]\n\tldr x12, [x11, x10, lsl #3]\n\t"                                                          \
  "ldr x13, [x12, %[control]]\n\tldr x10, [x13, %[gate]]\n\tcmp x10, %[open]\n\tb.ne 6f\n\t"                                 \
  "ldr w10, [x13, %[place]]\n\tand w10, w10, %[id_mask]\n\teor w10, w10, #1\n\tldr x11, [x12, %[nr_subbufs]]\n\t"            \
  "cmp x10, x11\n\tb.hs 6f\n\t"                                                                                              \
  "ldr x14, [x12, %[stride]]\n\tldr x11, [x12, %[first]]\n\tmadd x14, x14, x10, x11\n\t"                                     \
  "mov x11, %[record_size]\n\tmadd x13, x10, x11, x13\n\tadd x13, x13, %[records]\n\t"                                       \
  "ldr x15, [x14, #8]\n\tcbz x15, 6f\n\tldr w10, [%[shape], %[grow]]\n\tadds x10, x10, x15\n\tb.cs 6f\n\t"                   \
  "ldr x11, [x12, %[capacity]]\n\tcmp x10, x11\n\tb.hi 6f\n\t"                                                               \
  "ldr x16, [x13, %[r_committed]]\n\tcmp w16, w15\n\tb.ne 6f\n\t"                                                            \
  "ubfx x10, x16, #32, #1\n\tadd x11, x13, %[r_times]\n\tldr x12, [x11, x10, lsl #3]\n\teor x10, x10, #1\n\t"                \
  "add x11, x11, x10, lsl #3\n\t"                                                                                             \
  "add x15, x14, x15\n\tadd x15, x15, %[data]\n\t"
#define RS_USUAL_STAMP                                                                                                         \
  "str x10, [x11]\n\tsub x10, x10, x12\n\tmov x11, %[delta_limit]\n\tcmp x10, x11\n\tb.hs 6f\n\t"                            \
  "ldr x11, [%[shape], %[head]]\n\torr x10, x11, x10, lsl #5\n\t"                                                            \
  "ldr x11, [%[shape], %[grow]]\n\tadd x16, x16, x11\n\tadd x13, x13, %[r_committed]\n\tstlr x16, [x13]\n\tmov w16, w16\n\t"
#define RS_USUAL_COPY                                                                                                          \
  "ldr x11, [%[shape], %[tail_bytes]]\n\tadd x12, x14, x16\n\tstr x11, [x12, #8]\n\tstr x10, [x15]\n\t"                      \
  "ldr x10, [%[shape], %[payload_at]]\n\tadd x15, x15, x10\n\tldr x12, [%[shape], %[size]]\n\tlsr x12, x12, #3\n\t"          \
  "cbz x12, 8f\n5:\n\tldr x10, [%[from]], #8\n\tstr x10, [x15], #8\n\tsub x12, x12, #1\n\tcbnz x12, 5b\n8:\n\t"
#define RS_USUAL_PUBLISH "add x14, x14, #8\n\tstlr x16, [x14]\n"
#endif

  // The usual event: it is not the first of its sub-buffer, there is room, and less than abi::delta_limit ticks have passed.
  // moved: it is not usual. known: the payload's size, if it is known at compile time and at most most_known; head and size of
  // the shape are made from it.
  template <u32 known = 0>
  RINGSIDE_INLINE static Sequence append_usual(i64 area, const CpuRings& rings, const Shape& shape,
                                               const void* payload) noexcept {
    static_assert(known % 4 == 0 && known <= most_known);
    u32 result;
#if defined(__x86_64__)
    if constexpr (known != 0) {
      asm volatile(
          RS_RSEQ_BEGIN RS_USUAL_FIND RS_USUAL_TICKS RS_USUAL_STAMP
          "shll $5, %%eax\n\torl %[head], %%eax\n\tmovl %%eax, %c[data](%%r11)\n\t"
          ".if %c[bytes] - 4 - %c[size]\n\tmovl $0, %c[data] - 4 + %c[bytes](%%r11)\n\t.endif\n\t"
          ".set .Lringside_at, 0\n\t.rept %c[size] / 8\n\tmovq .Lringside_at(%[from]), %%rax\n\t"
          "movq %%rax, %c[data] + 4 + .Lringside_at(%%r11)\n\t.set .Lringside_at, .Lringside_at + 8\n\t.endr\n\t"
          ".if %c[size] & 4\n\tmovl .Lringside_at(%[from]), %%eax\n\tmovl %%eax, %c[data] + 4 + "
          ".Lringside_at(%%r11)\n\t.endif\n\t" RS_USUAL_PUBLISH RS_RSEQ_END
          : [result] "=&a"(result), [area] "+&r"(area)
          : [rings] "r"(&rings), [from] "r"(payload), [size] "i"(known), [bytes] "i"(abi::event_size(known)),
            [grow] "i"(u64{1} << 32 | abi::event_size(known)), [head] "i"(abi::event_word((abi::event_size(known) - 4) / 4, 0)),
            RS_USUAL_FIELDS(nr_usual)
          : "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    } else {
      asm volatile(RS_RSEQ_BEGIN RS_USUAL_FIND RS_USUAL_TICKS RS_USUAL_STAMP RS_USUAL_COPY RS_USUAL_PUBLISH RS_RSEQ_END
                   : [result] "=&a"(result), [area] "+&r"(area), [from] "+&r"(payload)
                   : [rings] "r"(&rings), [bytes] "m"(shape.grow), [grow] "m"(shape.grow), [shape] "r"(&shape), RS_USUAL_FIELDS(nr_usual)
                   : "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    }
#else
    asm volatile(RS_RSEQ_BEGIN RS_USUAL_FIND "isb\n\tmrs x10, cntvct_el0\n\t" RS_USUAL_STAMP RS_USUAL_COPY RS_USUAL_PUBLISH
                     RS_RSEQ_END
                 : [result] "=&r"(result), [from] "+&r"(payload)
                 : [area] "r"(area), [rings] "r"(&rings), [shape] "r"(&shape), RS_USUAL_FIELDS(nr_usual), RS_SHAPE_FIELDS
                 : "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "memory", "cc");
#endif
    return static_cast<Sequence>(result);
  }

  // The same by a clock that a call reads (clock.now()). `rings.nr` CPUs are served. watch: by the stopwatch.
  template <class Clock>
  RINGSIDE_INLINE static Sequence append_timed(i64 area, const CpuRings& rings, const Shape& shape, const void* payload,
                                               Clock& clock, bool watch) noexcept {
    Guard g = guard(area, watch);
    if (!watch) append_usual_at(area, rings, shape, payload, g);
    g.now = clock.now();
    const Sequence end = append_usual_at(area, rings, shape, payload, complete(g));
    disarm(area);
    return end;
  }

  // Any event. What it is given has been found out, and a.given read from the clock, since arm(): if this thread was interrupted
  // meanwhile, it has moved. Each arm() is followed by append() or disarm().
  RINGSIDE_INLINE static Guard arm(i64 area, bool watch) noexcept {
    const Guard g = guard(area, watch);
    if (!watch) append_at(area, nullptr, g);
    return g;
  }
  RINGSIDE_INLINE static Sequence append(i64 area, const Append& a, Guard g) noexcept {
    const Sequence end = append_at(area, &a, complete(g));
    disarm(area);
    return end;
  }
  // A handler leaves nothing that the sequence it interrupted would take for its own.
  RINGSIDE_INLINE static void disarm(i64 area) noexcept {
#if defined(__x86_64__)
    asm volatile("movq $0, %%fs:8(%[area])" ::[area] "r"(area) : "memory");
#else
    asm volatile("mrs %[t], tpidr_el0\n\tadd %[t], %[t], %[area]\n\tstr xzr, [%[t], #8]"
                 : [t] "=&r"(area)
                 : [area] "r"(area)
                 : "memory");
#endif
  }

  RINGSIDE_INLINE static Sequence refuse(i64 area, const Refuse& a) noexcept {
    static_assert(offsetof(Refuse, cpu) == 0);
    u32 result;
#if defined(__x86_64__)
    asm volatile(RS_RSEQ_BEGIN RS_RSEQ_SAME_CPU
        "movq %c[control](%[a]), %%rdx\n\t"
        "cmpq %[open], %c[gate](%%rdx)\n\tjne 6f\n\t"
        "movq %c[tail](%[a]), %%rax\n\tcmpq %%rax, %c[place](%%rdx)\n\tjne 6f\n\t"
        "movq %c[word](%[a]), %%rdx\n\tmovq (%%rdx), %%rax\n\tincq %%rax\n\tmovq %%rax, (%%rdx)\n"
        RS_RSEQ_END
        : [result] "=&r"(result)
        : [area] "r"(area), [a] "r"(&a), RS_REFUSE_FIELDS, RS_CONTROL_FIELDS
        : "rax", "rdx", "memory", "cc");
#else
    asm volatile(RS_RSEQ_BEGIN RS_RSEQ_SAME_CPU
        "ldr x12, [%[a], %[control]]\n\t"
        "ldr x10, [x12, %[gate]]\n\tcmp x10, %[open]\n\tb.ne 6f\n\t"
        "ldr x10, [%[a], %[tail]]\n\tldr x11, [x12, %[place]]\n\tcmp x10, x11\n\tb.ne 6f\n\t"
        "ldr x13, [%[a], %[word]]\n\tldr x10, [x13]\n\tadd x10, x10, #1\n\tstr x10, [x13]\n"
        RS_RSEQ_END
        : [result] "=&r"(result)
        : [area] "r"(area), [a] "r"(&a), RS_REFUSE_FIELDS, RS_CONTROL_FIELDS
        : "x9", "x10", "x11", "x12", "x13", "memory", "cc");
#endif
    return static_cast<Sequence>(result);
  }

  RINGSIDE_INLINE static Sequence enter(i64 area, const Enter& a) noexcept {
    static_assert(offsetof(Enter, cpu) == 0 && offsetof(Record, count) == offsetof(Record, reserve) + 8);
    u32 result;
#if defined(__x86_64__)
    asm volatile(RS_RSEQ_BEGIN RS_RSEQ_SAME_CPU
        "movq %c[control](%[a]), %%r8\n\t"
        "cmpq %[open], %c[gate](%%r8)\n\tjne 6f\n\t"
        "movq %c[tail](%[a]), %%rax\n\tcmpq %%rax, %c[place](%%r8)\n\tjne 6f\n\t"
        "movq %c[commit](%[a]), %%rdx\n\t"
        "movq %c[before](%[a]), %%rax\n\tcmpq %%rax, (%%rdx)\n\tjne 6f\n\t"
        // the one that is left
        "movq %c[committed](%[a]), %%rdx\n\tmovq %c[committed_final](%[a]), %%rax\n\tmovq %%rax, (%%rdx)\n\t"
        "movq %c[real_end](%[a]), %%rdx\n\tmovq %c[end](%[a]), %%rax\n\tmovq %%rax, (%%rdx)\n\t"
        "movq %c[padding](%[a]), %%rax\n\tmovq %c[pad0](%[a]), %%rdx\n\tmovl %%eax, (%%rdx)\n\t"
        "shrq $32, %%rax\n\tmovq %c[pad1](%[a]), %%rdx\n\tmovl %%eax, (%%rdx)\n\t"
        // the one that is entered
        "movq %c[fresh](%[a]), %%rdx\n\tmovq $0, %c[r_committed](%%rdx)\n\t"
        "movq $0, %c[r_times](%%rdx)\n\tmovq $0, 8+%c[r_times](%%rdx)\n\t"
        "movq %c[base](%[a]), %%rax\n\tmovq %%rax, %c[r_base](%%rdx)\n\t"
        "movq %c[header](%[a]), %%rdx\n\tmovq %c[last](%[a]), %%rax\n\tmovq %%rax, (%%rdx)\n\tmovq $0, 8(%%rdx)\n\t"
        // the tail
        "movq %c[next_tail](%[a]), %%rax\n\tmovq %%rax, %c[place](%%r8)\n"
        RS_RSEQ_END
        : [result] "=&r"(result)
        : [area] "r"(area), [a] "r"(&a), RS_ENTER_FIELDS, RS_CONTROL_FIELDS, RS_RECORD_FIELDS
        : "rax", "rdx", "r8", "memory", "cc");
#else
    asm volatile(RS_RSEQ_BEGIN RS_RSEQ_SAME_CPU
        "ldr x12, [%[a], %[control]]\n\t"
        "ldr x10, [x12, %[gate]]\n\tcmp x10, %[open]\n\tb.ne 6f\n\t"
        "ldr x10, [%[a], %[tail]]\n\tldr x11, [x12, %[place]]\n\tcmp x10, x11\n\tb.ne 6f\n\t"
        "ldr x13, [%[a], %[commit]]\n\t"
        "ldr x10, [%[a], %[before]]\n\tldr x11, [x13]\n\tcmp x10, x11\n\tb.ne 6f\n\t"
        "ldr x13, [%[a], %[committed]]\n\tldr x10, [%[a], %[committed_final]]\n\tstlr x10, [x13]\n\t"
        "ldr x13, [%[a], %[real_end]]\n\tldr x10, [%[a], %[end]]\n\tstr x10, [x13]\n\t"
        "ldr x10, [%[a], %[padding]]\n\tldr x13, [%[a], %[pad0]]\n\tstr w10, [x13]\n\t"
        "lsr x10, x10, #32\n\tldr x13, [%[a], %[pad1]]\n\tstr w10, [x13]\n\t"
        "ldr x13, [%[a], %[fresh]]\n\tstr xzr, [x13, %[r_committed]]\n\t"
        "str xzr, [x13, %[r_times]]\n\tstr xzr, [x13, 8+%[r_times]]\n\t"
        "ldr x10, [%[a], %[base]]\n\tstr x10, [x13, %[r_base]]\n\t"
        "ldr x13, [%[a], %[header]]\n\tldr x10, [%[a], %[last]]\n\tstr x10, [x13]\n\tstr xzr, [x13, #8]\n\t"
        "add x13, x12, %[place]\n\tldr x10, [%[a], %[next_tail]]\n\tstlr x10, [x13]\n"
        RS_RSEQ_END
        : [result] "=&r"(result)
        : [area] "r"(area), [a] "r"(&a), RS_ENTER_FIELDS, RS_CONTROL_FIELDS, RS_RECORD_FIELDS
        : "x9", "x10", "x11", "x12", "x13", "memory", "cc");
#endif
    return static_cast<Sequence>(result);
  }

 private:
  // The two sequences below are run twice. The first time they only store their descriptor; the clock is read; the second time
  // they go on if the descriptor is still there. The kernel takes it away also where it preempts the thread, or delivers a
  // signal to it, outside of the sequence. So the time is never older than the thread's last uninterrupted run. Both times it must
  // be the same code, with the same descriptor. The answer of the first time is moved.
  //
  // From Linux 6.19 on the kernel leaves the descriptor where the thread was preempted inside a system call, and a debugger, strace
  // or CONFIG_DEBUG_RSEQ may take it away at each one. So where the clock takes a system call, and where nothing else has helped,
  // a stopwatch replaces it: no more than a millisecond, by the counter of the same CPU, has passed since before the clock was
  // read.
  RINGSIDE_INLINE static Guard guard(i64 area, bool watch) noexcept {
    Guard g;
    g.run = watch ? 2 : 0;
    if (watch) {
#if defined(__x86_64__)
      g.limit = u64{1} << 21;  // of 1 to 4 GHz
#else
      asm("mrs %0, cntfrq_el0" : "=r"(g.limit));
      g.limit /= 1000;
#endif
      g.cpu = cpu(area);
      g.since = read_ticks();
    }
    asm volatile("" : : "r"(&g) : "memory");  // no compiler knows its words, and makes a copy of the sequence for them
    return g;
  }
  RINGSIDE_INLINE static Guard& complete(Guard& g) noexcept {
    g.run |= g.run == 0;
    asm volatile("" : : "r"(&g) : "memory");
    return g;
  }

  RINGSIDE_ONE_COPY static Sequence append_usual_at(i64 area, const CpuRings& rings, const Shape& shape, const void* payload,
                                                    const Guard& g) noexcept {
    u32 result;
#if defined(__x86_64__)
    asm volatile(RS_RSEQ_BEGIN_GUARDED RS_USUAL_FIND "movq 8(%[guard]), %%rax\n\t" RS_USUAL_STAMP RS_USUAL_COPY RS_USUAL_PUBLISH
                     RS_RSEQ_END
                 : [result] "=&a"(result), [area] "+&r"(area), [from] "+&r"(payload)
                 : [guard] "r"(&g), [rings] "r"(&rings), [bytes] "m"(shape.grow), [grow] "m"(shape.grow), [shape] "r"(&shape),
                   RS_USUAL_FIELDS(nr)
                 : "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
#else
    asm volatile(RS_RSEQ_BEGIN_GUARDED RS_USUAL_FIND "ldr x10, [%[guard], #8]\n\t" RS_USUAL_STAMP RS_USUAL_COPY RS_USUAL_PUBLISH
                     RS_RSEQ_END
                 : [result] "=&r"(result), [from] "+&r"(payload)
                 : [area] "r"(area), [guard] "r"(&g), [rings] "r"(&rings), [shape] "r"(&shape), RS_USUAL_FIELDS(nr),
                   RS_SHAPE_FIELDS
                 : "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "memory", "cc");
#endif
    return static_cast<Sequence>(result);
  }

  RINGSIDE_ONE_COPY static Sequence append_at(i64 area, const Append* a, const Guard& g) noexcept {
    static_assert(offsetof(Append, cpu) == 0);
    u32 result;
#if defined(__x86_64__)
    asm volatile(RS_RSEQ_BEGIN_GUARDED RS_RSEQ_SAME_CPU
        // what was seen still holds
        "movq %c[control](%[a]), %%r8\n\t"
        "cmpq %[open], %c[gate](%%r8)\n\tjne 6f\n\t"
        "movq %c[tail](%[a]), %%rax\n\tcmpq %%rax, %c[place](%%r8)\n\tjne 6f\n\t"
        "movq %c[commit](%[a]), %%r8\n\t"
        "movq %c[before](%[a]), %%rax\n\tcmpq %%rax, (%%r8)\n\tjne 6f\n\t"
        // now, and what has passed
        "movq %c[given](%[a]), %%rax\n\ttestq %%rax, %%rax\n\tjne 5f\n\t"
        "rdtsc\n\tshlq $32, %%rdx\n\torq %%rdx, %%rax\n5:\n\t"
        "movq %%rax, %%rdx\n\tsubq %c[last](%[a]), %%rdx\n\tcmpq %c[limit](%[a]), %%rdx\n\tjae 9f\n\t"
        "movq %c[time](%[a]), %%r9\n\tmovq %%rax, (%%r9)\n\t"
        "movq %c[stamp](%[a]), %%r9\n\tmovq %%rax, (%%r9)\n\t"
        // the event: a time extend, the header, the payload
        "movq %c[after](%[a]), %%rcx\n\tmovq %c[tail_bytes](%[a]), %%rax\n\tmovq %%rax, (%%r8,%%rcx)\n\t"
        "movq %c[at](%[a]), %%r9\n\t"
        "cmpq $0, %c[extend](%[a])\n\tje 5f\n\t"
        "movl %%edx, %%eax\n\tshll $5, %%eax\n\torl $30, %%eax\n\tmovl %%eax, (%%r9)\n\t"
        "movq %%rdx, %%rax\n\tshrq $27, %%rax\n\tmovl %%eax, 4(%%r9)\n\taddq $8, %%r9\n5:\n\t"
        "andq %c[delta_mask](%[a]), %%rdx\n\tshlq $5, %%rdx\n\torq %c[head](%[a]), %%rdx\n\tmovq %%rdx, (%%r9)\n\t"
        "movq %c[to](%[a]), %%r9\n\tmovq %c[from](%[a]), %%rax\n\tmovq %c[size](%[a]), %%rcx\n\t"
        "shrq $3, %%rcx\n\tje 8f\n"
        "5:\n\tmovq (%%rax), %%rdx\n\tmovq %%rdx, (%%r9)\n\taddq $8, %%rax\n\taddq $8, %%r9\n\tdecq %%rcx\n\tjne 5b\n8:\n\t"
        // counted, then published
        "movq %c[committed](%[a]), %%r9\n\tmovq %c[committed_after](%[a]), %%rax\n\tmovq %%rax, (%%r9)\n\t"
        "movq %c[after](%[a]), %%rax\n\tmovq %%rax, (%%r8)\n"
        RS_RSEQ_END
        : [result] "=&r"(result)
        : [area] "r"(area), [a] "r"(a), [guard] "r"(&g), RS_APPEND_FIELDS, RS_CONTROL_FIELDS
        : "rax", "rcx", "rdx", "r8", "r9", "memory", "cc");
#else
    asm volatile(RS_RSEQ_BEGIN_GUARDED RS_RSEQ_SAME_CPU
                 "ldr x12, [%[a], %[control]]\n\t"
                 "ldr x10, [x12, %[gate]]\n\tcmp x10, %[open]\n\tb.ne 6f\n\t"
                 "ldr x10, [%[a], %[tail]]\n\tldr x11, [x12, %[place]]\n\tcmp x10, x11\n\tb.ne 6f\n\t"
                 "ldr x12, [%[a], %[commit]]\n\t"
                 "ldr x10, [%[a], %[before]]\n\tldr x11, [x12]\n\tcmp x10, x11\n\tb.ne 6f\n\t"
                 "ldr x13, [%[a], %[given]]\n\tcbnz x13, 5f\n\tisb\n\tmrs x13, cntvct_el0\n5:\n\t"
                 "ldr x10, [%[a], %[last]]\n\tsub x14, x13, x10\n\tldr x10, [%[a], %[limit]]\n\tcmp x14, x10\n\tb.hs 9f\n\t"
                 "ldr x10, [%[a], %[time]]\n\tstr x13, [x10]\n\t"
                 "ldr x10, [%[a], %[stamp]]\n\tstr x13, [x10]\n\t"
                 "ldr x11, [%[a], %[after]]\n\tldr x10, [%[a], %[tail_bytes]]\n\tstr x10, [x12, x11]\n\t"
                 "ldr x15, [%[a], %[at]]\n\t"
                 "ldr x10, [%[a], %[extend]]\n\tcbz x10, 5f\n\t"
                 "lsl w10, w14, #5\n\torr w10, w10, #28\n\torr w10, w10, #2\n\tstr w10, [x15]\n\t"
                 "lsr x10, x14, #27\n\tstr w10, [x15, #4]\n\tadd x15, x15, #8\n5:\n\t"
                 "ldr x10, [%[a], %[delta_mask]]\n\tand x14, x14, x10\n\tldr x10, [%[a], %[head]]\n\torr x14, x10, x14, lsl "
                 "#5\n\tstr x14, [x15]\n\t"
                 "ldr x15, [%[a], %[to]]\n\tldr x13, [%[a], %[from]]\n\tldr x14, [%[a], %[size]]\n\t"
                 "lsr x14, x14, #3\n\tcbz x14, 8f\n"
                 "5:\n\tldr x10, [x13], #8\n\tstr x10, [x15], #8\n\tsub x14, x14, #1\n\tcbnz x14, 5b\n8:\n\t"
                 "ldr x15, [%[a], %[committed]]\n\tldr x10, [%[a], %[committed_after]]\n\tstlr x10, [x15]\n\t"
                 "ldr x10, [%[a], %[after]]\n\tstlr x10, [x12]\n" RS_RSEQ_END
                 : [result] "=&r"(result)
                 : [area] "r"(area), [a] "r"(a), [guard] "r"(&g), RS_APPEND_FIELDS, RS_CONTROL_FIELDS
                 : "x9", "x10", "x11", "x12", "x13", "x14", "x15", "memory", "cc");
#endif
    return static_cast<Sequence>(result);
  }
};

#undef RS_REFUSE_FIELDS
#undef RS_FIELD
#undef RS_USUAL_FIELDS
#undef RS_USUAL_FIND
#undef RS_USUAL_TICKS
#undef RS_USUAL_STAMP
#undef RS_USUAL_COPY
#undef RS_USUAL_PUBLISH
#undef RS_SHAPE_FIELDS
#undef RS_APPEND_FIELDS
#undef RS_ENTER_FIELDS
#undef RS_CONTROL_FIELDS
#undef RS_RECORD_FIELDS
#undef RS_RSEQ_BEGIN
#undef RS_RSEQ_BEGIN_GUARDED
#undef RS_RSEQ_SAME_CPU
#undef RS_RSEQ_END
#undef RS_RSEQ_DESCRIPTOR

#endif  // RINGSIDE_RSEQ

}  // namespace ringside
