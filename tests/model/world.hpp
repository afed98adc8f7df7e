// One execution at a time: its contexts, its memory, its budgets. explorer.hpp has the door and an example.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ringside/base/memory.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fiber.hpp"
#include "options.hpp"
#include "sharing.hpp"
#include "trace.hpp"
#include "weak_memory.hpp"

namespace ringside::model {

// A word that malice may hit.
struct Target {
  Target(u32* p) : address(p), size(4) {}
  Target(u64* p) : address(p), size(8) {}
  void* address;
  u32 size;
};

class World {
 public:
  using Function = std::function<void()>;

  // ---- for the set-up, which runs once per execution -------------------------------------------------------------------

  // Zeroed; at the same address in each execution; never destroyed.
  template <class T>
  T* make(size_t count = 1) {
    return static_cast<T*>(allocate(sizeof(T) * count));
  }
  void* allocate(size_t size) {
    size_t begin = arena_used_;
    arena_used_ = align_up(arena_used_ + size, size_t{64});
    if (arena_used_ > arena_size) fail("the arena is full");
    return memset(arena_ + begin, 0, size);
  }

  void spawn(const char* name, Function run) {
    Context& context = add(name);
    context.run = std::move(run);
    context.state = State::ready;
  }

  // Runs once `victim` has died, and knows all that the victim knew (the kernel told it of the death).
  void on_death(const char* victim, const char* name, Function run) {
    Context& of = find(victim);
    Context& heir = add(name);
    heir.run = std::move(run);
    if (of.heirs.empty()) heir.number = of.number;
    heir.state = State::waits;
    of.heirs.push_back(&heir);
  }

  // The handler may interrupt the context before each of its accesses and at its end, also itself and other handlers.
  void signal(const char* name, Function handler, u32 max_count = 1) {
    find(name).handlers.push_back({std::move(handler), max_count});
  }
  void may_die(const char* name) { find(name).mortal = true; }

  // At any access of anybody, one of the values may appear in one of the words.
  void malice(std::initializer_list<Target> targets, std::initializer_list<u64> values, u32 strikes = 1) {
    targets_ = targets;
    values_ = values;
    strikes_ = strikes;
  }

  // A promise that lets sharing.hpp leave out switches. Contexts share words, and books that do not influence them; nothing else.
  // They look at words through Explored only. They pause only in spins without a bound whose rounds change nothing, after an
  // access to a shared word.
  void only_words_are_shared() { words_only_ = options_.preemptions != 0 && !trace_.on; }

  void check(Function run) { check_ = std::move(run); }  // after every access; sees the newest values
  void after(Function run) { after_ = std::move(run); }  // when nothing can run; sees the newest values

  // What traces call it; the words of an array by index. Costs nothing unless an execution is traced.
  void name(const void* p, const char* what, int index = -1) { trace_.name(p, what, index); }

  // ---- for anybody, at any time ----------------------------------------------------------------------------------------

  bool died(const char* name) { return find(name).state == State::dead; }
  u32 choose(u32 n) { return choices_.choose(n); }  // a question of the test's own

  [[noreturn, gnu::format(printf, 2, 3)]] void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfail(format, arguments);
  }

  [[noreturn]] void vfail(const char* format, va_list arguments) {
    char text[512];  // not a string: this stack is left without unwinding
    vsnprintf(text, sizeof text, format, arguments);
    failure_ = text;
    leave();
  }

 protected:
  enum class State { ready, waits, done, dead };

  struct Handler {
    Function run;
    u32 left;
  };

  struct Context {
    World* world = nullptr;
    u32 number = 0;  // the first heir has that of its victim
    const char* name = "";
    Function run;
    State state = State::ready;
    Fiber fiber;
    bool busy = false;       // its fiber stands inside `run`: it must be prepared before it can start again
    bool untouched = false;  // it has not come to an access since it started
    bool mortal = false;
    u64 paused_at = 0;  // stores_ + 1 when it paused; 0: it does not pause
    u32 nesting = 0;
    View view;
    Fenced fenced;
    std::vector<Handler> handlers;
    std::vector<Context*> heirs;
  };

  World()
      : arena_(static_cast<u8*>(
            mmap(nullptr, arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (arena_ == MAP_FAILED) abort();
    outside_.is_running();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { munmap(arena_, arena_size); }

  // Returns when the execution is over, one way or another.
  void execute(const Function& setup) {
    memory_.reset();
    arena_used_ = 0;
    current_ = nullptr;
    checking_ = false;
    check_ = after_ = nullptr;
    spawned_ = strikes_ = steps_ = preempted_ = stale_ = signals_ = deaths_ = idle_ = 0;
    stores_ = 0;
    stuck_ = ahead_ = words_only_ = false;
    trace_.forget_names();
    stored_before_.clear();
    setup_ = &setup;
    if (directing_) director_.prepare([](void* self) { static_cast<World*>(self)->direct(); }, this);
    Fiber::jump(outside_, director_);
  }

  // ---- points ----------------------------------------------------------------------------------------------------------

  // Before each access: what may come in between?
  // A context that was switched back to goes straight on: what could happen to it here could happen before the switch.
  // commutes: no other context need come in between.
  void point(bool commutes = false) {
    if (ahead_) {
      ahead_ = false;
      return;
    }
    Context& me = *current_;
    if (++steps_ > options_.max_steps) fail("more than %u accesses: an endless loop?", options_.max_steps);
    for (;;) {
      u32 switches = preempted_ < options_.preemptions && !me.untouched ? count_ready(&me) : 0;
      u32 signals = count_signals(me);
      u32 strikes = strikes_ > 0 ? u32(targets_.size() * values_.size()) : 0;
      u32 deaths = me.mortal && deaths_ < options_.deaths ? 1 : 0;
      u32 others = 1 + signals + strikes + deaths;
      u32 pick = choices_.deviate(others + switches, commutes ? others : others + switches);
      if (pick == 0) break;
      if (pick >= others) {
        ++preempted_;
        switch_to(ready(pick - others, &me));
        break;
      }
      if (--pick < signals)
        deliver(me, pick);
      else if ((pick -= signals) < strikes)
        strike(pick);
      else
        die(me);
    }
    me.untouched = false;
  }

  // Notes an access that comes; whether it commutes with all that other contexts do. A check looks at every word.
  bool commutes(const void* p, Access access) {
    if (!words_only_ || !targets_.empty() || (access == Access::store && check_)) return false;
    return sharing_.commutes(p, current_->number, access);
  }
  bool fence_commutes() const { return words_only_ && targets_.empty(); }  // of one that only its own context knows of

  // The point of the next access, now: what happens here may keep the access from happening.
  void point_ahead() {
    point();
    ahead_ = true;
  }
  void no_point(bool ahead) { ahead_ = ahead; }

  // The caller spins. It runs again when somebody else has stored something, or when all the others spin as well.
  void pause() {
    Context& me = *current_;
    note("pause");
    if (++idle_ > options_.idle_pauses) {
      if (!options_.stuck_allowed) fail("stuck: %u pauses, and nobody has stored anything", options_.idle_pauses);
      stuck_ = true;
      leave();
    }
    me.paused_at = stores_ + 1;
    if (u32 n = count_ready(&me)) {
      switch_to(ready(choices_.choose(n), &me));
    } else {  // in turn, so that a bounded spin comes to its end
      for (u32 i = 0, at = index_of(me); i < spawned_; ++i) {
        at = (at + 1) % spawned_;
        if (contexts_[at]->state != State::ready) continue;
        if (contexts_[at].get() != &me) switch_to(*contexts_[at]);
        break;
      }
    }
    me.paused_at = 0;
  }

  // ---- after an access -------------------------------------------------------------------------------------------------

  void accessed(const char* what, const void* p, u64 value, const char* detail) {
    if (trace_.on) trace_.access(current_->name, current_->nesting, what, called(p), value, detail);
    checked();
  }

  void fenced(const char* what) {
    note(what);
    checked();
  }

  void event(const char* what) { note(what); }

  void checked() {
    if (!check_) return;
    checking_ = true;
    check_();
    checking_ = false;
  }

  void stored() {
    ++stores_;
    idle_ = 0;
  }

  u32 word_at(const void* p, u32 size) {
    u32 word = memory_.word(p, size);
    if (word == WeakMemory::none) fail("%s: %u bytes here overlap a word of another place or size", called(p).c_str(), size);
    if (memory_.bypassed(word)) fail("%s: changed by a plain store, which the model cannot order", called(p).c_str());
    return word;
  }

  // How old a message the load yields, within the budget.
  u32 age(u32 word) {
    if (stale_ >= options_.stale) return 0;
    u32 age = choices_.deviate(std::min(memory_.readable(word, current_->view), options_.depth));
    stale_ += age != 0;
    return age;
  }

  // By the set-up: a word of the model from the start, so that copy_in takes it for one.
  void stored_before(const void* p, u32 size) {
    if (!checking_) stored_before_.push_back({p, size});
  }

  bool modelled() const { return current_ != nullptr && !checking_; }
  Context& me() { return *current_; }
  WeakMemory& memory() { return memory_; }
  std::string called(const void* p) const { return trace_.called(p, arena_); }

  Options options_;
  Choices choices_;
  Trace trace_;
  std::string failure_;
  u32 deaths_ = 0, steps_ = 0;
  bool stuck_ = false;
  bool ahead_ = false;  // the next access has had its point
  Sharing sharing_;
  bool words_only_ = false;

 private:
  static constexpr size_t arena_size = 16 << 20;

  Context& add(const char* name) {
    if (spawned_ == contexts_.size()) contexts_.push_back(std::make_unique<Context>());
    if (spawned_ == Sharing::most_contexts) fail("more than %u contexts", Sharing::most_contexts);
    Context& context = *contexts_[spawned_];
    context.number = spawned_++;
    context.world = this;
    context.name = name;
    context.mortal = false;
    context.untouched = true;
    context.paused_at = context.nesting = 0;
    context.view.clear();
    context.fenced.clear();
    context.handlers.clear();
    context.heirs.clear();
    if (context.busy || spawned_ > prepared_)
      context.fiber.prepare([](void* p) { static_cast<Context*>(p)->world->live(*static_cast<Context*>(p)); }, &context);
    prepared_ = std::max(prepared_, spawned_);
    context.busy = false;
    return context;
  }

  Context& find(const char* name) {
    for (u32 i = 0; i < spawned_; ++i)
      if (strcmp(contexts_[i]->name, name) == 0) return *contexts_[i];
    fail("there is no context \"%s\"", name);
  }

  u32 index_of(const Context& context) const {
    u32 i = 0;
    while (contexts_[i].get() != &context) ++i;
    return i;
  }

  // Set-up and after have a fiber too, so that a failure is one jump from wherever it happens.
  [[noreturn]] void direct() {
    for (;;) {
      directing_ = true;
      (*setup_)();
      for (const auto& [address, size] : stored_before_) memory_.word(address, size);
      stored_before_.clear();
      if (u32 n = count_ready(nullptr)) resume(ready(choices_.choose(n), nullptr));
      current_ = nullptr;
      if (const void* p = memory_.bypassed()) fail("%s: changed by a plain store, which the model cannot order", called(p).c_str());
      if (after_) after_();
      directing_ = false;
      Fiber::jump(director_, outside_);
    }
  }

  [[noreturn]] void leave() {
    Fiber::jump(abandoned_, outside_);
    abort();
  }

  // A context's fiber is used again and again, so that an execution makes none.
  [[noreturn]] void live(Context& me) {
    for (;;) {
      me.busy = true;
      me.run();
      while (u32 n = count_signals(me)) {
        u32 pick = choices_.deviate(1 + n);
        if (pick == 0) break;
        deliver(me, pick - 1);
      }
      me.busy = false;
      me.state = State::done;
      next();
    }
  }

  [[noreturn]] void die(Context& me) {
    ++deaths_;
    note("dies");
    me.state = State::dead;
    for (Context* heir : me.heirs) {
      heir->state = State::ready;
      heir->view.join(me.view);
    }
    next();
    abort();
  }

  // The current context has no more to do.
  void next() {
    u32 n = count_ready(nullptr);
    if (n != 0) return resume(ready(choices_.choose(n), nullptr));
    for (u32 i = 0; i < spawned_; ++i)  // spinning, all of them: one goes on spinning
      if (contexts_[i]->state == State::ready) return resume(*contexts_[i]);
    Fiber::jump(current_->fiber, director_);
  }

  void switch_to(Context& other) {
    Context& me = *current_;
    resume(other);
    current_ = &me;
  }

  void resume(Context& other) {
    Fiber& from = current_ != nullptr ? current_->fiber : director_;
    current_ = &other;
    Fiber::jump(from, other.fiber);
  }

  bool is_ready(const Context& context) const {  // a spinning context has a reason to run only after somebody's store
    return context.state == State::ready && (context.paused_at == 0 || context.paused_at <= stores_);
  }

  u32 count_ready(const Context* except) const {
    u32 n = 0;
    for (u32 i = 0; i < spawned_; ++i) n += contexts_[i].get() != except && is_ready(*contexts_[i]);
    return n;
  }

  Context& ready(u32 pick, const Context* except) {
    for (u32 i = 0;; ++i)
      if (contexts_[i].get() != except && is_ready(*contexts_[i]) && pick-- == 0) return *contexts_[i];
  }

  u32 count_signals(const Context& context) const {
    if (signals_ >= options_.signals || context.nesting >= options_.nesting) return 0;
    u32 n = 0;
    for (const Handler& handler : context.handlers) n += handler.left > 0;
    return n;
  }

  // A handler is a plain call: same stack, same view; exactly what it is on a real thread.
  void deliver(Context& me, u32 pick) {
    size_t at = 0;
    for (;; ++at)
      if (me.handlers[at].left > 0 && pick-- == 0) break;
    --me.handlers[at].left;
    ++signals_;
    ++me.nesting;
    note("signal {");
    me.handlers[at].run();
    note("}");
    --me.nesting;
  }

  void strike(u32 pick) {
    --strikes_;
    const Target& target = targets_[pick / values_.size()];
    u64 value = values_[pick % values_.size()];
    if (target.size == 4) value = u32(value);
    memory_.store_wild(word_at(target.address, target.size), value);
    stored();
    accessed("malice", target.address, value, "");
  }

  void note(const char* what) {
    if (trace_.on) trace_.event(current_->name, current_->nesting, what);
  }

  std::vector<std::unique_ptr<Context>> contexts_;  // the first spawned_ are in use
  u32 spawned_ = 0, prepared_ = 0;
  Context* current_ = nullptr;            // nullptr: set-up or after
  Fiber outside_, director_, abandoned_;  // abandoned_ takes the place that nobody returns to
  bool directing_ = true;                 // the director must be prepared before it can start again
  const Function* setup_ = nullptr;
  Function check_, after_;
  bool checking_ = false;
  std::vector<std::pair<const void*, u32>> stored_before_;
  std::vector<Target> targets_;
  std::vector<u64> values_;
  u32 strikes_ = 0, preempted_ = 0, stale_ = 0, signals_ = 0, idle_ = 0;
  u64 stores_ = 0;
  WeakMemory memory_;
  u8* arena_;
  size_t arena_used_ = 0;
};

}  // namespace ringside::model
