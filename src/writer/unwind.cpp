#include "writer/unwind.hpp"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "sys/side_stack.hpp"
#include "sys/sys.hpp"
#include "writer/process.hpp"

namespace ringside {
namespace {

// The rule for an address, in one word: the usual rule has small numbers, in units of 8 bytes.
struct Rule {
  // before_function: no table, and the next address is a function's first; usual_at_end: of a function's last byte
  enum Kind : u32 { none, usual, outermost, signal, in_full, no_table, before_function, usual_at_end } kind = none;
  bool of_fp = false;
  u32 cfa = 0;  // CFA - sp, or - fp
  u32 fp = 0;   // CFA - where the caller's fp is; 0: it is the same
  u32 ra = 0;   // the same for the return address; 0: in lr
};
constexpr u32 rule_bits = 29, most_cfa = 0x7FF;
constexpr u64 pack(const Rule& r) noexcept {
  return u64{r.kind} | u64{r.of_fp} << 3 | u64{r.cfa} << 4 | u64{r.fp} << 15 | u64{r.ra} << 22;
}
constexpr Rule unpack(u64 w) noexcept {
  return {static_cast<Rule::Kind>(w & 7), (w >> 3 & 1) != 0, static_cast<u32>(w >> 4 & most_cfa),
          static_cast<u32>(w >> 15 & 0x7F), static_cast<u32>(w >> 22 & 0x7F)};
}

// Address and rule are one word: the index and the tag together are the address's 48 bits, mixed so that they can be restored,
// and a bit says whether the word is at its index or in the place beside it.
constexpr u32 index_bits = 14;
constinit u64* rule_table = nullptr;
constinit u64 rule_generation = 1;
constexpr u64 mixed(u64 address) noexcept { return (address * 0x9E3779B97F4A7C15u) & ((u64{1} << 48) - 1); }
struct RulePlace {
  u64 index, tag;
  explicit constexpr RulePlace(u64 address) noexcept
      : index(mixed(address) >> (48 - index_bits)), tag((mixed(address) & ((u64{1} << (48 - index_bits)) - 1)) << 1) {}
  bool has(u64 word, u64 beside) const noexcept { return word >> rule_bits == (tag | beside) && (word & 7) != Rule::none; }
};

bool fits_rule(i64 bytes, u32 most) noexcept { return bytes >= 0 && bytes % 8 == 0 && bytes / 8 <= most; }

Rule rule_of(const FrameRow& row, u64 address) noexcept {
  using Where = FrameRow::Where;
  if (row.is_signal) return {.kind = Rule::signal};
  if (row.ra.where == Where::undefined) return {.kind = Rule::outermost};
  Rule r{.kind = row.function_end == address + 1 ? Rule::usual_at_end : Rule::usual, .of_fp = row.cfa_of_fp};
  const bool fp_saved = row.fp.where == Where::at_cfa, ra_saved = row.ra.where == Where::at_cfa;
  const bool simple = !row.cfa_by_expression && !row.cfa_unknown && fits_rule(row.cfa_offset, most_cfa) &&
                      (fp_saved ? fits_rule(-row.fp.offset, 0x7F) && row.fp.offset != 0 : row.fp.where == Where::same) &&
                      (ra_saved ? fits_rule(-row.ra.offset, 0x7F) && row.ra.offset != 0 : row.ra.where == Where::same);
  if (!simple) return {.kind = Rule::in_full};
  r.cfa = static_cast<u32>(row.cfa_offset / 8);
  if (fp_saved) r.fp = static_cast<u32>(-row.fp.offset / 8);
  if (ra_saved) r.ra = static_cast<u32>(-row.ra.offset / 8);
  return r;
}

// Does what takes a kilobyte of stack, to read a table, on a stack of the library's own. False: there is none.
template <class Step>
bool read_tables(const Step& step) noexcept {
  const SignalsOff off;
  return sys::on_side_stack(step);
}

[[gnu::noinline]] Rule find_rule(u64 address, u64* table) noexcept {
  const u64 generation = __atomic_load_n(&rule_generation, __ATOMIC_ACQUIRE);
  Rule rule{.kind = Rule::no_table};
  const auto read = [&]() noexcept {
    FrameRow row;
    if (find_frame_row(address, row) == FrameFound::yes) rule = rule_of(row, address);
    if (rule.kind == Rule::no_table && find_frame_row(address + 1, row) == FrameFound::yes) rule.kind = Rule::before_function;
  };
  if (!read_tables(read)) return rule;
  if (table == nullptr) return rule;
  const RulePlace place(address);
  const auto is_free = [&](u64 beside) { return __atomic_load_n(&table[place.index ^ beside], __ATOMIC_RELAXED) == 0; };
  const u64 beside = is_free(0) ? 0 : is_free(1) ? 1 : place.tag >> 1 & 1;
  u64& word = table[place.index ^ beside];
  __atomic_store_n(&word, (place.tag | beside) << rule_bits | pack(rule), __ATOMIC_SEQ_CST);
  // The code may be gone since.
  if (__atomic_load_n(&rule_generation, __ATOMIC_SEQ_CST) != generation) __atomic_store_n(&word, u64{0}, __ATOMIC_RELAXED);
  return rule;
}

RINGSIDE_INLINE Rule rule_at(u64 address) noexcept {
  u64* const table = __atomic_load_n(&rule_table, __ATOMIC_ACQUIRE);
  if (table == nullptr || address >> 48 != 0) [[unlikely]]
    return find_rule(address, nullptr);
  const RulePlace place(address);
  for (const u64 beside : {u64{0}, u64{1}}) {
    const u64 word = __atomic_load_n(&table[place.index ^ beside], __ATOMIC_RELAXED);
    if (place.has(word, beside)) [[likely]] return unpack(word);
  }
  return find_rule(address, table);
}

// ---- Memory that may be read: pages around the places where this thread's stacks are.

// Such a range in one word: its first page, and how many it has. A handler that comes between finds a range that is there.
struct Range {
  static constexpr u32 count_bits = 28;
  static constexpr u64 most = (u64{1} << count_bits) - 1;
  u64 word = 0;

  static Range of(u64 first, u64 end) noexcept { return {first << count_bits | std::min(end - first, most)}; }
  u64 first() const noexcept { return word >> count_bits; }
  u64 end() const noexcept { return first() + (word & most); }
  bool has(u64 page) const noexcept { return page - first() < (word & most); }
};

// What a thread keeps for its walks: mapped at its first one. The memory of a second walk, in a handler that interrupts the
// first, is mapped when it is needed.
struct Walks {
  Range stack_ranges[2];
  StackWalk* second;
  StackWalk first;
};
Walks* walks_now() noexcept { return static_cast<Walks*>(detail::this_thread.walks); }

constexpr u64 page_of(u64 address) noexcept { return address / page_size; }

sys::Held look_at_page(u64 page) noexcept {
  if (page == 0 || page >> 36 != 0) return sys::Held::unmapped;  // the address of no program
  return sys::look_at(reinterpret_cast<const u32*>(page * page_size), 0);
}
bool page_is_there(u64 page) noexcept { return look_at_page(page) < sys::Held::unmapped; }

// A page that no range has: asks the kernel, and lets a range grow that is near, or begins another.
[[gnu::noinline]] bool learn(u64 page) noexcept {
  constexpr u64 near = 256;
  if (!page_is_there(page)) return false;
  Range(&stack_ranges)[2] = walks_now()->stack_ranges;
  for (Range& range : stack_ranges) {
    const Range now = range;
    const u64 first = std::min(now.first(), page), end = std::max(now.end(), page + 1);
    const bool above = page >= now.end();
    if (now.word == 0 || (above ? page - now.end() : now.first() - page) > near) continue;
    u64 at = above ? now.end() : page, to = above ? page : now.first();
    while (at < to && page_is_there(at)) ++at;
    if (at < to) continue;  // a gap: another stack
    range = Range::of(first, end);
    return true;
  }
  stack_ranges[1] = stack_ranges[0];
  stack_ranges[0] = Range::of(page, page + 1);
  return true;
}

RINGSIDE_INLINE bool readable(u64 address) noexcept {
  if (address % 8 != 0) [[unlikely]]
    return false;
  const u64 page = page_of(address);
  Range(&stack_ranges)[2] = walks_now()->stack_ranges;
  if (stack_ranges[0].has(page)) [[likely]]
    return true;
  const Range other = stack_ranges[1];
  if (!other.has(page)) return learn(page);
  stack_ranges[1] = stack_ranges[0];  // a handler that comes now finds it twice
  stack_ranges[0] = other;
  return true;
}

// Other functions' frames: the gaps between their variables are no error here.
__attribute__((no_sanitize("address", "thread", "undefined"))) inline u64 word_at(u64 address) noexcept {
  return *reinterpret_cast<const volatile u64*>(address);
}

// A walk's way to the stack. A frame that no call has made, or a frame pointer that no table confirms, may lead to a stack that
// is gone, although a range has it: from then on the kernel is asked about each page.
struct Loads {
  bool ask = walks_now() == nullptr, asked = false;
  u64 page = ~u64{0};  // is there

  // From this caller on. Its callee's frame was read.
  void ask_from(const Registers& caller) noexcept {
    const u64 callee = page_of(caller.sp - 1);
    if (!ask && (walks_now()->stack_ranges[0].has(callee) || walks_now()->stack_ranges[1].has(callee))) page = callee;
    ask = true;
  }

  RINGSIDE_INLINE bool operator()(u64 address, u64& value) noexcept {
    if (ask ? !is_there(address) : !readable(address)) return false;
    value = word_at(address);
    return true;
  }
  [[gnu::noinline]] bool is_there(u64 address) noexcept {
    if (address % 8 != 0) return false;
    if (page_of(address) == page) return true;
    asked = true;
    if (!page_is_there(page_of(address))) return false;
    page = page_of(address);
    return true;
  }
};
bool load_word(void* loads, u64 address, u64& value) noexcept { return (*static_cast<Loads*>(loads))(address, value); }

constinit u64 left_out_start = 0, left_out_end = 0;

RINGSIDE_INLINE u64 hashed(u64 callers, u64 frame) noexcept {
  return ((callers << 27 | callers >> 37) ^ frame) * 0xC2B2AE3D27D4EB4Fu;
}
constexpr u64 no_callers = 0x27D4EB2F165667C5u;

// The frame of code that has no table, by the frame pointer.
bool step_by_fp(Registers& r, StackWalk::Step& s, Loads& load) noexcept {
  load.ask = true;
  s.fixed = false;
  u64 ra, fp;
  if (r.fp < r.sp || r.fp - r.sp > (u64{8} << 20) || !load(r.fp + 8, ra) || !load(r.fp, fp)) return false;
  r = {ra & code_bits, r.fp + 16, fp, 0};
  return true;
}

// The rules that do not fit into Rule.
[[gnu::noinline]] bool step_in_full(Registers& r, u64 address, bool exact, Loads& load) noexcept {
  FrameRow row;
  FrameFound found = FrameFound::no_row;
  const auto read = [&]() noexcept { found = find_frame_row(address, row); };
  if (!read_tables(read) || found != FrameFound::yes) return false;
  if (row.function_end == address + 1 && !exact) load.ask_from(r);
  return step_by_row(row, r, load_word, &load);
}

bool is_signal_return([[maybe_unused]] u64 pc) noexcept {
#if defined(__aarch64__)  // the vDSO's has no table: mov x8, #139; svc #0
  MappedObject object;
  return find_object(pc, object) && page_is_there(page_of(pc)) && page_is_there(page_of(pc + 7)) &&
         *reinterpret_cast<const u64*>(pc) == 0xD4000001D2801168u;
#else
  return false;
#endif
}

// `range`: where the words are, most likely.
RINGSIDE_INLINE bool is_unchanged(const StackWalk::Step& s, Range range) noexcept {
  const auto has = [&](u64 address, u64 value) {
    return address == 0 || ((range.has(page_of(address)) || readable(address)) && word_at(address) == value);
  };
  return s.fixed && has(s.ra_at, s.ra) && has(s.fp_at, s.fp_value);
}

pthread_key_t walk_key;
bool has_walk_key = false;

// ThreadSanitizer's state of a thread ends in the last round of its destructors: instrumented code must not run there.
constexpr u32 rounds = PTHREAD_DESTRUCTOR_ITERATIONS - RINGSIDE_TSAN;

// Comes in each round of a thread's destructors, because those of others and handlers may walk until the last one.
void free_walks(void*) {
  const SignalsOff off;
  if (!off) return;
  if (auto* const walks = static_cast<Walks*>(std::exchange(detail::this_thread.walks, nullptr))) {
    if (walks->second != nullptr) sys::raw_munmap(walks->second, sizeof *walks->second);
    sys::raw_munmap(walks, sizeof *walks);
  }
  if (++detail::this_thread.walk_ends < rounds) pthread_setspecific(walk_key, &detail::this_thread);
}
[[gnu::constructor(101)]] void make_walk_key() { has_walk_key = pthread_key_create(&walk_key, free_walks) == 0; }

// Zeros, by the system call alone; null: there is no memory.
template <class T>
T* map_zeros() noexcept {
  const int saved = errno;
  void* const at = sys::raw_mmap(nullptr, sizeof(T), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  errno = saved;
  return at != MAP_FAILED ? static_cast<T*>(at) : nullptr;
}

[[gnu::noinline]] Walks* make_walks() noexcept {
  const SignalsOff off;
  if (!off) return nullptr;
  if (Walks* const there = walks_now()) return there;  // a handler has made them
  if (detail::this_thread.walk_ends >= rounds) return nullptr;
  auto* const walks = map_zeros<Walks>();
  if (walks == nullptr) return nullptr;
  walks->first.first = most_frames;
  detail::this_thread.walks = walks;
  // A key beyond the first 32 would allocate, perhaps in a handler. Then the memory stays when the thread ends.
  if (has_walk_key && walk_key < 32) pthread_setspecific(walk_key, &detail::this_thread);
  return walks;
}

[[gnu::noinline]] StackWalk* make_second(Walks& walks) noexcept {
  const SignalsOff off;
  if (!off) return nullptr;
  if (walks.second != nullptr) return walks.second;
  auto* const walk = map_zeros<StackWalk>();
  if (walk != nullptr) walk->first = most_frames;
  return walks.second = walk;
}

// False: the return address of this call is no longer in its frame.
bool may_return(CallName call) noexcept {
  const u64 at = call.frame() + 8;
  const sys::Held page = at % 8 == 0 ? look_at_page(page_of(at)) : sys::Held::unmapped;
  return page == sys::Held::unknown || (page != sys::Held::unmapped && call.returns_to(word_at(at) & code_bits));
}

// Whether the call that has this memory was left. A walk is made ever less often where none finds out.
bool is_left(StackWalk& walk, CallName asks) noexcept {
  const CallName call{walk.call};
  if (call.word == 0) return true;
  if (walk.undecided > most_undecided && !std::has_single_bit(++walk.undecided)) return false;
  const Running running = is_running(call);
  if (running != Running::unknown) return running == Running::no;
  // Its frame may be on a stack that is not used again, so after some questions addresses decide.
  return !may_return(call) || (++walk.undecided >= most_undecided && sys::was_left(call.frame(), asks.frame()));
}

}  // namespace

// The memory for a call; null: there is none.
[[gnu::noinline]] static StackWalk* find_walk(CallName call) noexcept {
  Walks* const walks = walks_now() != nullptr ? walks_now() : make_walks();
  if (walks == nullptr) return nullptr;
  StackWalk &first = walks->first, *second = walks->second;
  // Each call of this name is over: this one has its frame.
  for (StackWalk* const walk : {&first, second})
    if (walk != nullptr && walk->call == call.word) walk->call = 0;
  if (first.call == 0) return &first;
  if (second == nullptr) second = make_second(*walks);
  if (second != nullptr && second->call == 0) return second;
  for (StackWalk* const walk : {&first, second})
    if (walk != nullptr && is_left(*walk, call)) return walk;
  return nullptr;
}

// A plain store takes it: the handlers that came since the word was loaded have returned, so the walks that they began are done
// or left.
WalkMemory::WalkMemory(CallName call) noexcept : walk_(nullptr), call_(call) {
  Walks* const walks = walks_now();
  if (walks == nullptr || walks->first.call != 0 || (walks->second != nullptr && walks->second->call != 0)) [[unlikely]]
    walk_ = find_walk(call);
  else
    walk_ = &walks->first;
  if (walk_ == nullptr) return;
  walk_->undecided = 0;
  walk_->call = call.word;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

WalkMemory::~WalkMemory() {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (walk_ != nullptr && walk_->call == call_.word) walk_->call = 0;
}

void ready_unwind() noexcept {
  if (__atomic_load_n(&rule_table, __ATOMIC_ACQUIRE) != nullptr) return;
  void* const table = mmap(nullptr, sizeof(u64) << index_bits, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table != MAP_FAILED) __atomic_store_n(&rule_table, static_cast<u64*>(table), __ATOMIC_RELEASE);
}

void forget_rules() noexcept {
  // A walk that begins before the table is empty may keep an old rule's frame: not under the last generation.
  __atomic_fetch_add(&rule_generation, u64{1}, __ATOMIC_SEQ_CST);
  u64* const table = __atomic_load_n(&rule_table, __ATOMIC_ACQUIRE);
  for (u32 i = 0; table != nullptr && i < u32{1} << index_bits; ++i) __atomic_store_n(&table[i], u64{0}, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&rule_generation, u64{1}, __ATOMIC_SEQ_CST);
}

void leave_out(u64 start, u64 end) noexcept { left_out_start = start, left_out_end = end; }

From interrupted(const void* ucontext) noexcept {
  From from;
  from.exact = true;
  const auto& c = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  from.at = {static_cast<u64>(c.gregs[REG_RIP]), static_cast<u64>(c.gregs[REG_RSP]), static_cast<u64>(c.gregs[REG_RBP]), 0};
#elif defined(__aarch64__)
  from.at = {c.pc, c.sp, c.regs[29], c.regs[30]};
#else
  (void)c;
#endif
  return from;
}

namespace {

// The steps of this memory's last walk: the outer ones are often this one's, too.
struct LastWalk {
  const StackWalk& walk;
  u32 next;            // the next of its steps that may be the one here
  u32 changed_to = 0;  // the step before this one has changed

  // A walk that ended early, or was cut off by a longjmp, is no help.
  LastWalk(const StackWalk& w, u64 rules) noexcept
      : walk(w), next(w.first < most_frames && w.rules == rules && w.end == StackEnd::complete ? w.first : most_frames) {}

  // Are the steps from here on those from `next` on, and is there room for them? A step whose words are unchanged leads to the
  // next one, so each word that is read here is one that a walk from here would read.
  RINGSIDE_INLINE bool continues(const Registers& r, bool exact, u32 room) noexcept {
    while (next < most_frames && walk.step[next].sp < r.sp) ++next;
    if (next == most_frames) return false;
    const StackWalk::Step& s = walk.step[next];
    if (s.sp != r.sp || s.pc != r.pc || s.fp != r.fp || s.exact || exact) return false;
    if (next < changed_to || most_frames - next > room) return false;
    const Range range = walks_now()->stack_ranges[0];
    for (u32 n = next; n < most_frames; ++n) {
      if (is_unchanged(walk.step[n], range)) continue;
      changed_to = n + 1;
      return false;
    }
    return true;
  }
};

constexpr u64 red_zone = 128;  // bytes below sp that no handler touches

RINGSIDE_INLINE bool step_by_rule(const Rule& rule, Registers& r, StackWalk::Step& s, Loads& load) noexcept {
  const u64 cfa = (rule.of_fp ? r.fp : r.sp) + rule.cfa * u64{8};
  u64 ra = r.lr, fp = r.fp;
  bool good = cfa > r.sp || (cfa == r.sp && rule.ra == 0 && ra != 0);
  if (good && rule.ra != 0) s.ra_at = cfa - rule.ra * u64{8}, good = s.ra_at >= r.sp && load(s.ra_at, ra), s.ra = ra;
  // The last instructions of a function have taken it from the stack already, where it still lies below sp.
  if (good && rule.fp != 0)
    s.fp_at = cfa - rule.fp * u64{8}, good = s.fp_at + red_zone >= r.sp && load(s.fp_at, fp), s.fp_value = fp;
  if (rule.ra == 0) s.fixed = false;
  if (good) r = {ra & code_bits, cfa, fp, 0};
  return good;
}

enum class Stepped : u8 { to_caller, by_frame_pointer, over_signal, no_caller, bad_frame, no_table };
// From a frame, whose code has this address and rule, to its caller's. Notes what it read. exact: as in From.
RINGSIDE_INLINE Stepped step_out(Registers& r, u64 address, bool exact, const Rule& rule, StackWalk::Step& s,
                                 Loads& load) noexcept {
  if (rule.kind == Rule::usual) [[likely]]
    return step_by_rule(rule, r, s, load) ? Stepped::to_caller : Stepped::bad_frame;
  if (rule.kind == Rule::usual_at_end) {
    // The address after a call that does not return, or the beginning of a function, and no call led to it.
    if (!exact) load.ask_from(r);
    return step_by_rule(rule, r, s, load) ? Stepped::to_caller : Stepped::bad_frame;
  }
  // A return address at the beginning of a function was put there by code such as makecontext: no call led to it.
  if (rule.kind == Rule::outermost || (rule.kind == Rule::before_function && !exact)) return Stepped::no_caller;
  if (rule.kind == Rule::signal || (rule.kind == Rule::no_table && is_signal_return(r.pc))) {
    s.fixed = false;
    return step_over_signal(r, load_word, &load) ? Stepped::over_signal : Stepped::bad_frame;
  }
  if (rule.kind == Rule::in_full) {
    s.fixed = false;
    return step_in_full(r, address, exact, load) ? Stepped::to_caller : Stepped::bad_frame;
  }
  return step_by_fp(r, s, load) ? Stepped::by_frame_pointer : Stepped::no_table;
}

[[gnu::noinline]] bool is_by_sp(u64 address) noexcept {
  bool by_sp = false;
  const auto read = [&]() noexcept {
    FrameRow row;
    by_sp = find_frame_row(address, row) == FrameFound::yes && !row.cfa_by_expression && !row.cfa_unknown && !row.cfa_of_fp;
  };
  return read_tables(read) && by_sp;
}

// Looks for a call on the stack, at this place. Without the cache: its rules may be those of code that was unloaded.
template <class IsIt>
Running find_running(u64 place, const IsIt& is_it) noexcept {
  constexpr u32 most_steps = 1 << 16;
  constexpr u64 most_by_fp = 4096;  // bytes of a frame; beyond that it may be a step to another stack
  Registers r{};
  RS_HERE(r);
  Loads loads;
  bool exact = true, interrupted = false, by_tables = true;
  for (u32 n = 0; n < most_steps && r.pc != 0; ++n) {
    StackWalk::Step unused;
    const Registers callee = r;
    const u64 address = r.pc - (exact ? 0 : 1);
    const Rule rule = find_rule(address, nullptr);
    const Stepped stepped = step_out(r, address, exact, rule, unused, loads);
    const bool was_exact = std::exchange(exact, stepped == Stepped::over_signal);
    interrupted |= exact;
    by_tables &= stepped != Stepped::by_frame_pointer;
    if (stepped == Stepped::no_caller) return by_tables ? Running::no : Running::unknown;
    if (stepped > Stepped::no_caller) return Running::unknown;
    if (exact) continue;
    if (is_it(callee, r, interrupted)) return Running::yes;
    // Another call has this place, if that is certainly its frame.
    const u64 size = r.sp - callee.sp;
    const bool is_small = (rule.kind == Rule::usual || rule.kind == Rule::usual_at_end) && size < most_by_fp;
    if (by_tables && !was_exact && place - callee.sp < size && (is_small || is_by_sp(address))) return Running::no;
  }
  return r.pc == 0 && by_tables ? Running::no : Running::unknown;
}

}  // namespace

Running is_running(CallName call) noexcept {
  return find_running(call.frame(), [&](const Registers& r, const Registers& caller, bool) {
    // Its frame pointer may be lost on the way; x86's is 16 bytes before the caller's frame, if that is not aligned.
    const bool is_it = r.fp == call.frame() || caller.sp == call.frame() + 16;
    return is_it && call.frame() - r.sp < caller.sp - r.sp && call.returns_to(caller.pc);
  });
}

Running is_interrupted_at(uintptr_t address) noexcept {
  constexpr u64 most_size = 4096;  // a frame beyond that is a step to another stack
  return find_running(address, [&](const Registers& r, const Registers& caller, bool interrupted) {
    return interrupted && caller.sp - r.sp < most_size && address - r.sp < caller.sp - r.sp;
  });
}

namespace {

// The walk's result: these fresh steps, and the last walk's from `joined` on.
RINGSIDE_INLINE void put_together(StackWalk& walk, u32 count, u32 joined) noexcept {
  u32 at = joined;
  u64 hash = at < most_frames ? walk.step[at].hash : no_callers;
  while (count != 0) {
    StackWalk::Step& s = walk.step[--at];
    s = walk.fresh[--count];
    s.hash = hash = hashed(hash, s.frame);
  }
  walk.frames = most_frames - at;
  hash ^= hash >> 32;
  hash *= 0x9E3779B97F4A7C15u;
  hash ^= hash >> 29;
  walk.id = hash != 0 ? hash : 1;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  walk.first = at;
}

}  // namespace

void walk_stack(StackWalk& walk, const From& from, u32 depth) noexcept {
  depth = std::min(depth, most_frames);
  Registers r = from.at;
  bool exact = from.exact, recording = from.until == 0;
  const u64 rules = __atomic_load_n(&rule_generation, __ATOMIC_ACQUIRE);
  LastWalk last(walk, rules);
  Loads loads;
  walk.first = most_frames;  // until this walk is complete
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  u32 count = 0, skipped = 0, joined = most_frames;
  StackEnd end = StackEnd::complete;
  do {
    if (!recording) {
      recording = r.pc == from.until;
      if (!recording && ++skipped == 32) break;
    }
    const bool own = count == 0 && from.until != 0 && r.pc - left_out_start < left_out_end - left_out_start;
    const bool record = recording && !own;
    if (record && !loads.ask && last.continues(r, exact, depth - count)) {
      joined = last.next;
      break;
    }
    if (record && count == depth) {
      end = StackEnd::depth;
      break;
    }
    StackWalk::Step unrecorded;
    StackWalk::Step& s = record ? walk.fresh[count++] : unrecorded;
    s.pc = r.pc, s.sp = r.sp, s.fp = r.fp, s.exact = exact, s.fixed = true;
    s.ra_at = s.fp_at = 0;
    s.frame = r.pc + (exact && count != 1 ? 1 : 0);
    const u64 address = r.pc - (exact ? 0 : 1);
    const Stepped stepped = step_out(r, address, exact, rule_at(address), s, loads);
    if (loads.ask) [[unlikely]]
      s.fixed &= !loads.asked;
    exact = false;
    if (stepped <= Stepped::by_frame_pointer) [[likely]]
      continue;
    if (stepped != Stepped::over_signal) {
      end = stepped == Stepped::no_caller  ? StackEnd::complete
            : stepped == Stepped::no_table ? StackEnd::no_table
                                           : StackEnd::bad_frame;
      break;
    }
    exact = true;
    last.next = most_frames;  // another stack, perhaps
  } while (r.pc != 0);
  if (count == 0 && joined == most_frames) {  // the caller is known in any case
    const u64 caller = from.until != 0 ? from.until : from.at.pc;
    walk.fresh[0] = {caller, 0, 0, 0, 0, 0, 0, caller, 0, false, false};
    count = 1;
    end = StackEnd::no_table;
  }
  walk.end = end;
  walk.rules = rules;
  put_together(walk, count, joined);
}

}  // namespace ringside
