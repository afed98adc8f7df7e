// Runs the real code under every schedule, old value, signal, death and malicious store, within small budgets.
//
//   Result result = explore({.preemptions = 2}, [](World& world) {      // runs once per execution
//     auto* word = world.make<u64>(2);                                  // zeroed, owned by the world
//     world.spawn("writer", [=] { Explored::store(&word[0], u64{7}, Order::relaxed); ... });
//     world.spawn("reader", [=] { if (Explored::load(&word[1], Order::acquire) == 1) require(..., "the data came first"); });
//     world.after([=] { require(word[1] == 1, "the flag is set"); });
//   });
//   EXPECT_TRUE(result.passed()) << result;
//
// Before each access of Explored the explorer may switch to another context, run a handler as a plain call, let malice store,
// or let the context die; each load may yield an old value. weak_memory.hpp says what the memory can do and what it cannot.
// A failure comes with its line of choices: RINGSIDE_REPLAY="1 0 2" in the environment (and --gtest_filter) runs that
// execution alone and prints its trace.
//
// Rules for tests: the set-up must do the same each time (no clocks, no random numbers, no state that outlives it); shared
// words are only touched through Explored, else the execution fails; a context that dies or fails is left where it stands
// without unwinding, so what its frames own leaks. One explore at a time, in one OS thread. Code with an unbounded spin must
// pause in it.
#pragma once
#include <chrono>
#include <cstdlib>

#include "world.hpp"

namespace ringside::model {

[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...);

class Explorer : private World {
 public:
  static Result run(const Options& options, const std::function<void(World&)>& setup) {
    Explorer explorer(options);
    active = &explorer;
    Result result = explorer.search(setup);
    active = nullptr;
    return result;
  }

 private:
  friend struct Explored;
  friend void fail(const char* format, ...);
  friend u32 choose(u32 n);

  explicit Explorer(const Options& options) {
    options_ = options;
    if (const char* line = getenv("RINGSIDE_REPLAY")) {
      options_.mode = Mode::replay;
      options_.replay = line;
    }
    choices_ = Choices(options_.mode, options_.seed, options_.replay);
  }

  Result search(const std::function<void(World&)>& user) {
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin = Clock::now();
    auto since = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    Function setup = [&] { user(*this); };
    Result result;
    bool replay = trace_.on = options_.mode == Mode::replay;
    for (bool more = true; more && failure_.empty() && result.executions < options_.max_executions;) {
      execute(setup);
      ++result.executions;
      result.accesses += steps_;
      result.deaths += deaths_;
      result.stuck += stuck_;
      if (choices_.diverged()) failure_ = "this execution met other choices than before: is there state outside the world?";
      if (!failure_.empty()) break;
      if (sharing_.learn()) {
        choices_.begin_again();
      } else {
        more = choices_.next();
        result.complete = !more && !replay;
      }
      if (result.executions % 256 == 0 && since() > options_.seconds) break;
    }
    result.seconds = since();
    result.failure = failure_;
    result.choices = choices_.line();
    if (!failure_.empty() && !trace_.on) trace_again(setup, result);
    if (result.passed() && !replay) result.choices.clear();
    for (const std::string& line : trace_.lines) result.trace += line + "\n";
    if (getenv("RINGSIDE_REPLAY") != nullptr) fprintf(stderr, "%s%s\n", result.trace.c_str(), result.failure.c_str());
    return result;
  }

  // The search keeps no trace; the failing execution is run once more with one. Names appear in the text only now.
  void trace_again(const Function& setup, Result& result) {
    choices_ = Choices(Mode::replay, 0, result.choices);
    trace_.on = true;
    failure_.clear();
    execute(setup);
    if (failure_.empty()) failure_ = result.failure + " (but not when replayed)";
    result.failure = failure_;
  }

  inline static Explorer* active = nullptr;
};

inline Result explore(const Options& options, const std::function<void(World&)>& setup) {
  return Explorer::run(options, setup);
}

// Ends the execution, and the search with it. Anywhere inside explore: contexts, handlers, check, after.
[[noreturn]] inline void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Explorer::active->vfail(format, arguments);
}

inline void require(bool holds, const char* what) {
  if (!holds) fail("does not hold: %s", what);
}

inline u32 choose(u32 n) { return Explorer::active->choose(n); }

// The Memory of the explorer. Outside of contexts (set-up, check, after, or no exploration at all) it is plain memory.
struct Explored {
  template <class T>
  static T load(const T* p, Order order) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    if (!modelled()) return *p;
    world().point(world().commutes(p, Access::load));
    return T(load_word(p, sizeof(T), order));
  }

  template <class T>
  static void store(T* p, T value, Order order) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    if (!modelled()) {
      *p = value;
      if (Explorer::active != nullptr) Explorer::active->stored_before(p, sizeof(T));
      return;
    }
    Explorer& w = world();
    w.point(w.commutes(p, Access::store));
    u64 bits = sizeof(T) == 4 ? u32(value) : u64(value);
    w.memory().store(w.word_at(p, sizeof(T)), bits, w.me().view, w.me().fenced, order == Order::release);
    w.stored();
    w.accessed("store", p, bits, text(order));
  }

  static bool cas(u64* p, u64& expected, u64 desired) { return compare_and_swap(p, expected, desired); }
  static bool cas(u32* p, u32& expected, u32 desired) { return compare_and_swap(p, expected, desired); }

  template <class T>
  static bool compare_and_swap(T* p, T& expected, T desired) {
    if (!modelled()) return plain_cas(p, expected, desired);
    Explorer& w = world();
    w.point(w.commutes(p, Access::store));
    u32 word = w.word_at(p, sizeof(T));
    const T found = static_cast<T>(w.memory().value(word));
    bool done = found == expected;
    if (done) {
      w.memory().rmw(word, desired, w.me().view, w.me().fenced, true);
      w.stored();
    } else {
      w.memory().load(word, 0, w.me().view, w.me().fenced, true);
      expected = found;
    }
    w.accessed("cas", p, done ? desired : found, done ? "" : "failed");
    return done;
  }

  static bool cas_local(u64* p, u64 expected, u64 desired) {
    if (!modelled()) return plain_cas(p, expected, desired);
    Explorer& w = world();
    w.point(w.commutes(p, Access::store));
    u32 word = local_word(p);
    u64 found = w.memory().value(word);
    bool done = found == expected;
    if (done) {
      w.memory().rmw(word, desired, w.me().view, w.me().fenced, false);
      w.stored();
    }
    w.accessed("cas_local", p, done ? desired : found, done ? "" : "failed");
    return done;
  }

  static void add_local(u64* p, u64 delta) {
    if (!modelled()) {
      *p += delta;
      return;
    }
    Explorer& w = world();
    w.point(w.commutes(p, Access::store));
    u32 word = local_word(p);
    u64 sum = w.memory().value(word) + delta;
    w.memory().rmw(word, sum, w.me().view, w.me().fenced, false);
    w.stored();
    w.accessed("add_local", p, sum, "");
  }

  static void fence_light() {
    if (!modelled()) return;
    world().point();
    world().memory().fence_light(world().me().view);
    world().fenced("fence light");
  }

  static void program_order() {}  // here no compiler swaps anything

  static void fence_release() {
    if (!modelled()) return;
    world().point(world().fence_commutes());
    world().memory().fence_release(world().me().view, world().me().fenced);
    world().fenced("fence release");
  }

  static void fence_acquire() {
    if (!modelled()) return;
    world().point(world().fence_commutes());
    world().memory().fence_acquire(world().me().view, world().me().fenced);
    world().fenced("fence acquire");
  }

  // membarrier; not a part of Memory, because only the slow side of an edge issues it.
  static void fence_heavy() {
    if (!modelled()) return;
    world().point();
    world().memory().fence_heavy(world().me().view);
    world().fenced("fence heavy");
  }

  // Each word as an access of its own, relaxed. Bytes that nobody has stored yet have one value only and need no history; a row
  // of them is one point.
  static void copy_in(void* to, const void* from, size_t size) {
    if (!modelled()) {
      memcpy(to, from, size);
      return;
    }
    Explorer& w = world();
    auto* out = static_cast<u8*>(to);
    auto* in = static_cast<const u8*>(from);
    bool unknown = false;
    for (size_t done = 0, step; done < size; done += step) {
      const bool known = w.memory().width(u64(in + done)) != 0;
      if (known)
        w.point(w.commutes(in + done, Access::load));
      else if (!unknown)
        w.point();
      u32 width = w.memory().width(u64(in + done));
      if (!known && width != 0) w.commutes(in + done, Access::load);  // another context made it a word at this point
      unknown = width == 0;
      step = width != 0 ? width : w.memory().width(u64(in + done + 4)) != 0 ? 4 : 8;
      step = std::min(step, size - done);
      if (width == 0 && w.memory().inside_word(in + done))
        w.fail("%s: copied from its middle", w.called(in + done - 4).c_str());
      u64 value = 0;
      if (width != 0)
        value = load_word(in + done, width, Order::relaxed);
      else
        memcpy(&value, in + done, step);
      memcpy(out + done, &value, step);
    }
  }

  // The other direction, for payloads: relaxed words of 4 bytes. A plain store would be unknown to the model.
  static void copy_out(void* to, const void* from, size_t size) {
    for (size_t done = 0; done < size; done += 4) {
      u32 value;
      memcpy(&value, static_cast<const u8*>(from) + done, 4);
      store(reinterpret_cast<u32*>(static_cast<u8*>(to) + done), value, Order::relaxed);
    }
  }

  static void pause() {
    if (modelled()) world().pause();
  }

  // For a model of CPUs (cpu_model.hpp), of which each runs one of several contexts. Only inside a context.
  static void point_ahead() { world().point_ahead(); }
  static void no_point(bool ahead) { world().no_point(ahead); }
  static auto& context() { return world().me(); }

  // A switch of threads on a CPU is a full barrier: the thread that comes knows what is in `before`.
  static void comes_after(const View& before) {
    auto& me = world().me();
    me.view.join(before);
    world().memory().fence_acquire(me.view, me.fenced);
    world().memory().fence_release(me.view, me.fenced);
  }

  static void note(const char* what) { world().event(what); }
  static bool modelled() { return Explorer::active != nullptr && Explorer::active->modelled(); }

 private:
  static Explorer& world() { return *Explorer::active; }
  static const char* text(Order o) { return o == Order::relaxed ? "relaxed" : o == Order::acquire ? "acquire" : "release"; }

  template <class T>
  static bool plain_cas(T* p, T& expected, T desired) {
    if (*p == expected) return *p = desired, true;
    expected = *p;
    return false;
  }

  static u64 load_word(const void* p, u32 size, Order order) {
    Explorer& w = world();
    u32 word = w.word_at(p, size);
    u32 age = w.age(word);
    u64 value = w.memory().load(word, age, w.me().view, w.me().fenced, order == Order::acquire);
    w.accessed("load", p, value, age == 0 ? text(order) : order == Order::acquire ? "acquire, old" : "relaxed, old");
    return value;
  }

  // Without a lock prefix a store of another thread in the middle would be lost, so it must not be possible.
  static u32 local_word(u64* p) {
    Explorer& w = world();
    u32 word = w.word_at(p, 8);
    if (w.memory().readable(word, w.me().view) > 1 && !w.memory().newest_is_wild(word))
      w.fail("%s: a local operation races with the store of another context", w.called(p).c_str());
    return word;
  }
};

static_assert(Memory<Explored>);

}  // namespace ringside::model
