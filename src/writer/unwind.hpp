// The calls that led to a place in this thread: a walk over its stack, by the compilers' tables (call_frame.hpp).
//
// A cache of the process keeps the rule for an address, in one word. Each thread keeps the words that its last walk read: a
// walk that comes to a frame of the last one compares the words read from there on, and is done. Both give exactly the result
// of a full walk. No lock, no allocation (a thread's first walk maps memory). Signal-safe: a handler that interrupts a walk
// uses memory of its own.
//
// The memory of a walk belongs to the call that `call` names. Another call finds it in use in two cases: it runs in a handler
// that interrupted that call, or that call was left by longjmp. A walk over all callers shows which.
#pragma once
#include <signal.h>

#include "writer/call_frame.hpp"

namespace ringside {

inline constexpr u32 most_frames = 400;
inline constexpr u32 usual_depth = 64;

// How a walk ended. In the events: ringside:stack/ended.
enum class StackEnd : u32 {
  complete,  // at the frame that has no caller
  depth,     // more frames than were asked for
  no_table,  // no table for an address, and no frame pointer either
  bad_frame  // an impossible frame: it points outside the stack
};

// Memory of one walk. Only unwind.cpp knows its content, except for the result and the room for an event.
struct StackWalk {
  u64 id;  // of the frames' content; never 0
  u32 frames;
  StackEnd end;
  u64 rules;  // the cache's generation
  u64 call;  // the CallName of the call that has this memory; 0: none
  u32 undecided;  // how often no walk could find out whether that call was left
  struct Step {
    u64 pc, sp, fp;             // before the step
    u64 ra_at, ra, fp_at, fp_value;  // what it read; fp_at 0: nothing
    u64 frame;                  // as it is recorded
    u64 hash;                   // of this frame and its callers'
    bool exact, fixed;          // fixed: its result depends on what is named here alone
  };
  u32 first;  // of step[]: the innermost; the outermost is the last
  Step step[most_frames];
  Step fresh[most_frames];
  alignas(8) u8 payload[4000];

  u64 frame(u32 n) const noexcept { return step[first + n].frame; }
};

// Where a walk starts.
struct From {
  Registers at;
  bool exact = false;         // pc is the next instruction of an interrupted function, not a return address
  u64 until = 0;              // leaves out the frames inside of this return address; 0: none
};
#if defined(__x86_64__)
#define RS_HERE(r) asm volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2" : "=r"((r).pc), "=r"((r).sp), "=r"((r).fp))
#elif defined(__aarch64__)
#define RS_HERE(r) asm volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30" : "=r"((r).pc), "=r"((r).sp), "=r"((r).fp), "=r"((r).lr))
#else
#define RS_HERE(r) (void)(r)
#endif
From interrupted(const void* ucontext) noexcept;

// Reserves the cache. Not for signal handlers. Without it walks still work.
void ready_unwind() noexcept;
// Code was loaded or unloaded.
void forget_rules() noexcept;
// Frames of this code are left out at a stack's inner end: the code of the library that calls.
void leave_out(u64 start, u64 end) noexcept;

// A call of a function that keeps a frame pointer, in one word: its frame, and some bits of the address to which it returns.
struct CallName {
  u64 word;
  static CallName of(const void* frame, const void* returns_to) noexcept {
    return {reinterpret_cast<u64>(frame) << 16 | bits_of(reinterpret_cast<u64>(returns_to))};
  }
  u64 frame() const noexcept { return word >> 16; }
  bool returns_to(u64 address) const noexcept { return bits_of(address) == (word & 0xFFFF); }

 private:
  static u64 bits_of(u64 address) noexcept { return (address & code_bits) * 0x9E3779B97F4A7C15u >> 48; }
};

// Whether this thread will return to a call: to this one; or to one that a signal handler interrupted and whose frame has this
// address. unknown: some code has no tables. Signal-safe; costs a walk.
enum class Running : u8 { yes, no, unknown };
inline constexpr u32 most_undecided = 16;  // answers `unknown` to one thread, before addresses decide
Running is_running(CallName call) noexcept;
Running is_interrupted_at(uintptr_t address) noexcept;

// A walk's memory for as long as it lives; null: two walks are interrupted already, or there is no memory. For locals of the
// function that walks.
class WalkMemory {
 public:
  // Not the address of a local: the address sanitizer gives those places outside the stack.
  RINGSIDE_INLINE WalkMemory() noexcept : WalkMemory(CallName::of(__builtin_frame_address(0), __builtin_return_address(0))) {}
  ~WalkMemory();
  WalkMemory(const WalkMemory&) = delete;
  WalkMemory& operator=(const WalkMemory&) = delete;
  StackWalk* get() const noexcept { return walk_; }

 private:
  explicit WalkMemory(CallName call) noexcept;
  StackWalk* walk_;
  CallName call_;
};

void walk_stack(StackWalk& walk, const From& from, u32 depth) noexcept;

}  // namespace ringside
