// The explorer against examples with known answers. "Refuted" means that an execution which the C++ memory model (or a
// signal, a death, a hostile peer) allows was found; "proved" that all within the budgets were seen and none failed.
#include <gtest/gtest.h>

#include <set>

#include "explorer.hpp"

namespace ringside::model::litmus_test {
namespace {

using M = Explored;

// ---- message passing ---------------------------------------------------------------------------------------------------

auto message_passing(Order publish, Order consume) {
  return [=](World& world) {
    auto* data = world.make<u64>();
    auto* flag = world.make<u32>();
    world.name(data, "data");
    world.name(flag, "flag");
    world.spawn("writer", [=] {
      M::store(data, u64{42}, Order::relaxed);
      M::store(flag, u32{1}, publish);
    });
    world.spawn("reader", [=] {
      if (M::load(flag, consume) == 1) require(M::load(data, Order::relaxed) == 42, "the flag says that the data is there");
    });
  };
}

TEST(MessagePassing, ReleaseAndAcquireIsProved) {
  Result r = explore({}, message_passing(Order::release, Order::acquire));
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_EQ(r.executions, 4u);  // reader first; in the middle; last, with the new flag; last, with the old one
}

TEST(MessagePassing, RelaxedStoreIsRefuted) {
  Result r = explore({}, message_passing(Order::relaxed, Order::acquire));
  EXPECT_EQ(r.failure, "does not hold: the flag says that the data is there");
  EXPECT_NE(r.trace.find("writer     store     flag           0x1 relaxed"), std::string::npos) << r;
  EXPECT_NE(r.trace.find("reader     load      data           0 relaxed, old"), std::string::npos) << r;
}

TEST(MessagePassing, RelaxedLoadIsRefuted) {
  EXPECT_FALSE(explore({}, message_passing(Order::release, Order::relaxed)).passed());
}

// Relaxed accesses with fences around them; each fence alone is not enough.
auto fenced(bool release, bool acquire) {
  return [=](World& world) {
    auto* data = world.make<u64>();
    auto* flag = world.make<u32>();
    world.spawn("writer", [=] {
      M::store(data, u64{42}, Order::relaxed);
      if (release) M::fence_release();
      M::store(flag, u32{1}, Order::relaxed);
    });
    world.spawn("reader", [=] {
      const bool there = M::load(flag, Order::relaxed) == 1;
      if (acquire) M::fence_acquire();
      if (there) require(M::load(data, Order::relaxed) == 42, "the flag says that the data is there");
    });
  };
}

TEST(MessagePassing, FencesInPairs) {
  EXPECT_TRUE(explore({}, fenced(true, true)).proved());
  EXPECT_FALSE(explore({}, fenced(true, false)).passed());
  EXPECT_FALSE(explore({}, fenced(false, true)).passed());
}

TEST(MessagePassing, WithoutOldValuesNothingIsRefuted) {
  EXPECT_TRUE(explore({.stale = 0}, message_passing(Order::relaxed, Order::relaxed)).proved());
}

// A release is continued by the read-modify-writes of others, and by nothing else.
auto release_chain(bool by_rmw) {
  return [=](World& world) {
    auto* data = world.make<u64>();
    auto* word = world.make<u64>();
    world.spawn("writer", [=] {
      M::store(data, u64{42}, Order::relaxed);
      M::store(word, u64{1}, Order::release);
    });
    world.spawn("middle", [=] {
      if (M::load(word, Order::relaxed) != 1) return;
      if (by_rmw)
        M::cas_local(word, 1, 2);
      else
        M::store(word, u64{2}, Order::relaxed);
    });
    world.spawn("reader", [=] {
      if (M::load(word, Order::acquire) == 2) require(M::load(data, Order::relaxed) == 42, "2 continues the release of 1");
    });
  };
}

TEST(ReleaseChain, ContinuesThroughAnRmw) {
  Result r = explore({}, release_chain(true));
  EXPECT_TRUE(r.proved()) << r;
}

TEST(ReleaseChain, EndsAtAStore) { EXPECT_FALSE(explore({}, release_chain(false)).passed()); }

// ---- store buffering ---------------------------------------------------------------------------------------------------

enum class Fence { none, light, heavy };

void fence(Fence kind) {
  if (kind == Fence::light) M::fence_light();
  if (kind == Fence::heavy) M::fence_heavy();
}

auto store_buffering(Fence left, Fence right) {
  return [=](World& world) {
    auto* word = world.make<u64>(2);
    auto* seen = world.make<u64>(2);
    for (int i = 0; i < 2; ++i)
      world.spawn(i == 0 ? "left" : "right", [=] {
        M::store(&word[i], u64{1}, Order::release);
        fence(i == 0 ? left : right);
        seen[i] = M::load(&word[1 - i], Order::acquire);
      });
    world.after([=] { require(seen[0] == 1 || seen[1] == 1, "one of them saw the other"); });
  };
}

TEST(StoreBuffering, LightAgainstHeavyIsProved) {
  Result r = explore({}, store_buffering(Fence::light, Fence::heavy));
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_TRUE(explore({}, store_buffering(Fence::heavy, Fence::light)).proved());
  EXPECT_TRUE(explore({}, store_buffering(Fence::heavy, Fence::heavy)).proved());
}

TEST(StoreBuffering, LessIsRefuted) {
  EXPECT_FALSE(explore({}, store_buffering(Fence::none, Fence::none)).passed());
  EXPECT_FALSE(explore({}, store_buffering(Fence::light, Fence::none)).passed());
  EXPECT_FALSE(explore({}, store_buffering(Fence::none, Fence::heavy)).passed());
  EXPECT_FALSE(explore({}, store_buffering(Fence::light, Fence::light)).passed());
}

// ---- one word ----------------------------------------------------------------------------------------------------------

TEST(Coherence, AWordNeverGoesBack) {
  bool old = false;
  Result r = explore({.preemptions = 3, .stale = 3}, [&](World& world) {
    auto* word = world.make<u64>();
    world.spawn("writer", [=] {
      for (u64 i = 1; i <= 3; ++i) M::store(word, i, Order::relaxed);
    });
    world.spawn("reader", [=, &old] {
      u64 first = M::load(word, Order::relaxed);
      u64 second = M::load(word, Order::relaxed);
      require(first <= second, "a later load sees no older value");
      old |= first < *word;
    });
  });
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_TRUE(old) << "old values were tried";
}

TEST(Coherence, CasHasOneWinner) {
  Result r = explore({}, [](World& world) {
    auto* word = world.make<u64>();
    auto* wins = world.make<u64>(2);
    for (int i = 0; i < 2; ++i)
      world.spawn(i == 0 ? "left" : "right", [=] {
        u64 expected = 0;
        wins[i] = M::cas(word, expected, u64(i + 1));
        require(wins[i] || expected == u64(2 - i), "the loser learns who won");
      });
    world.after([=] { require(wins[0] + wins[1] == 1, "one winner"); });
  });
  EXPECT_TRUE(r.proved()) << r;
}

TEST(Words, MixedSizesAndPlainStoresAreReported) {
  Result mixed = explore({}, [](World& world) {
    auto* word = world.make<u64>();
    world.name(word, "word");
    world.spawn("a", [=] {
      M::store(word, u64{1}, Order::relaxed);
      M::load(reinterpret_cast<u32*>(word) + 1, Order::relaxed);
    });
  });
  EXPECT_EQ(mixed.failure, "word+0x4: 4 bytes here overlap a word of another place or size");
  Result plain = explore({}, [](World& world) {
    auto* word = world.make<u64>(2);
    world.name(word, "word", 0);
    world.spawn("a", [=] {
      M::store(word, u64{1}, Order::relaxed);
      *word = 2;
      M::load(word, Order::relaxed);
    });
  });
  EXPECT_EQ(plain.failure, "word[0]: changed by a plain store, which the model cannot order");
}

TEST(CopyIn, CanBeTornByAWriterButNotByAMessagePassed) {
  auto copy = [](bool wait) {
    return [=](World& world) {
      auto* page = world.make<u64>(3);  // two words of 8 bytes, then two of 4
      auto* ready = world.make<u64>();
      world.spawn("writer", [=] {
        M::store(&page[0], u64{1}, Order::relaxed);
        M::store(&page[1], u64{1}, Order::relaxed);
        u32 halves[2] = {1, 1};
        M::copy_out(&page[2], halves, 8);
        M::store(ready, u64{1}, Order::release);
      });
      world.spawn("reader", [=] {
        if (wait && M::load(ready, Order::acquire) == 0) return;
        u32 got[6];
        M::copy_in(got, page, sizeof got);
        require(got[0] == got[2] && got[0] == got[4] && got[0] == got[5], "all of it or nothing");
      });
    };
  };
  Result r = explore({}, copy(true));
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_FALSE(explore({.stale = 0}, copy(false)).passed());
  EXPECT_FALSE(explore({.preemptions = 0}, copy(false)).passed());
}

// ---- signals -----------------------------------------------------------------------------------------------------------

auto counter(bool local, u32 handlers) {
  return [=](World& world) {
    auto* word = world.make<u64>();
    auto* runs = world.make<u64>();
    auto add = [=] {
      if (local)
        M::add_local(word, 1);
      else
        M::store(word, M::load(word, Order::relaxed) + 1, Order::relaxed);
      ++*runs;
    };
    world.spawn("writer", add);
    world.signal("writer", add, handlers);
    world.after([=] { require(*word == *runs, "nothing is lost"); });
  };
}

TEST(Signals, ALocalAddCannotBeSplit) {
  Result r = explore({}, counter(true, 2));
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_FALSE(explore({}, counter(false, 1)).passed());
}

TEST(Signals, ArriveAtEveryPoint) {
  u32 points = 0;  // before the first access, between the two, at the end
  Result r = explore({}, [&](World& world) {
    auto* word = world.make<u64>();
    world.spawn("writer", [=] {
      M::store(word, u64{1}, Order::relaxed);
      M::store(word, u64{2}, Order::relaxed);
    });
    world.signal("writer", [=, &points] { points |= 1u << *word; });
  });
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_EQ(points, 7u);
  EXPECT_EQ(r.executions, 4u);
}

TEST(Signals, AHandlerSharesTheViewOfItsThread) {
  Result r = explore({.stale = 8}, [](World& world) {
    auto* word = world.make<u64>();
    world.spawn("writer", [=] { M::store(word, u64{1}, Order::relaxed); });
    world.signal("writer", [=] { require(M::load(word, Order::relaxed) == *word, "its own thread's store"); });
  });
  EXPECT_TRUE(r.proved()) << r;
}

TEST(Signals, ALocalOperationMustNotMeetAnotherThread) {
  Result r = explore({}, [](World& world) {
    auto* word = world.make<u64>();
    world.spawn("writer", [=] { M::add_local(word, 1); });
    world.spawn("other", [=] { M::store(word, u64{5}, Order::release); });
  });
  EXPECT_NE(r.failure.find("races with the store"), std::string::npos) << r;
}

// ---- death, malice, spinning -------------------------------------------------------------------------------------------

TEST(Death, LeavesAPrefixAndAnHeir) {
  u32 prefixes = 0;
  Result r = explore({}, [&](World& world) {
    auto* word = world.make<u64>(2);
    auto* heir_saw = world.make<u64>();
    world.spawn("writer", [=] {
      M::store(&word[0], u64{1}, Order::relaxed);
      M::store(&word[1], u64{1}, Order::relaxed);
    });
    world.may_die("writer");
    world.on_death("writer", "heir", [=] {
      require(M::load(&word[0], Order::relaxed) >= M::load(&word[1], Order::relaxed), "stores are not reordered");
      *heir_saw = 1;
    });
    world.after([=, &prefixes, &world] {
      require(world.died("writer") == (*heir_saw == 1), "an heir after a death only");
      prefixes |= 1u << (word[0] + word[1]);
    });
  });
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_EQ(r.deaths, 2u);
  EXPECT_EQ(r.executions, 3u);
  EXPECT_EQ(prefixes, 7u);
}

TEST(Malice, StoresWhateverItWantsWhereItMay) {
  auto reader = [](bool tame) {
    return [=](World& world) {
      auto* id = world.make<u32>();
      world.spawn("reader", [=] {
        u32 wild = M::load(id, Order::acquire);
        if (!tame)
          wild = M::load(id, Order::acquire);  // checked once, loaded twice
        else if (wild >= 2)
          return;
        require(wild < 2, "a tamed id");
      });
      world.malice({id}, {1, 77}, 2);
    };
  };
  EXPECT_TRUE(explore({}, reader(true)).proved());
  EXPECT_FALSE(explore({}, reader(false)).passed());
}

TEST(Pause, LetsTheOthersRunAndReportsASpinThatNobodyEnds) {
  auto wait_for = [](u64 value) {
    return [=](World& world) {
      auto* word = world.make<u64>();
      world.spawn("waiter", [=] {
        while (M::load(word, Order::acquire) != value) M::pause();
      });
      world.spawn("writer", [=] { M::store(word, u64{1}, Order::release); });
    };
  };
  Result r = explore({}, wait_for(1));
  EXPECT_TRUE(r.proved()) << r;
  EXPECT_NE(explore({}, wait_for(2)).failure.find("stuck"), std::string::npos);
  Result stuck = explore({.stuck_allowed = true}, wait_for(2));
  EXPECT_TRUE(stuck.proved()) << stuck;
  EXPECT_EQ(stuck.stuck, stuck.executions);
}

TEST(Pause, TwoBoundedSpinsEnd) {
  Result r = explore({}, [](World& world) {
    auto* word = world.make<u64>();
    for (const char* name : {"left", "right"})
      world.spawn(name, [=] {
        for (int budget = 20; budget > 0 && M::load(word, Order::relaxed) == 0; --budget) M::pause();
      });
  });
  EXPECT_TRUE(r.proved()) << r;
}

// ---- the explorer itself -----------------------------------------------------------------------------------------------

TEST(Check, RunsAfterEveryAccess) {
  Result r = explore({}, [](World& world) {
    auto* word = world.make<u64>();
    world.spawn("writer", [=] {
      M::store(word, u64{9}, Order::relaxed);
      M::store(word, u64{0}, Order::relaxed);
    });
    world.check([=] { require(M::load(word, Order::relaxed) != 9, "never 9"); });
  });
  EXPECT_EQ(r.failure, "does not hold: never 9");
}

TEST(Replay, ReproducesTheFailure) {
  auto set_up = message_passing(Order::relaxed, Order::relaxed);
  Result found = explore({}, set_up);
  Result again = explore({.mode = Mode::replay, .replay = found.choices}, set_up);
  EXPECT_EQ(again.executions, 1u);
  EXPECT_EQ(again.failure, found.failure);
  EXPECT_EQ(again.trace, found.trace);
  EXPECT_EQ(again.choices, found.choices);
}

TEST(Replay, RandomFailuresReplayToo) {
  auto set_up = message_passing(Order::release, Order::relaxed);
  Result found = explore({.max_executions = 100000, .mode = Mode::random, .seed = 7}, set_up);
  ASSERT_FALSE(found.passed());
  EXPECT_EQ(explore({.mode = Mode::replay, .replay = found.choices}, set_up).trace, found.trace);
}

TEST(Replay, StateThatOutlivesTheWorldIsNoticed) {
  u32 runs = 0;
  Result r = explore({}, [&](World& world) { world.spawn("a", [&] { choose(2 + runs++); }); });
  EXPECT_NE(r.failure.find("state outside the world"), std::string::npos) << r;
}

// ---- switches that show nothing (sharing.hpp) -----------------------------------------------------------------------------

// A program drawn from a seed: contexts of a few accesses to a few words, where what was loaded decides what is stored and
// whether the next access happens. Some may die and have an heir, some have a handler.
class RandomProgram {
 public:
  explicit RandomProgram(u64 seed) : draw_(Mode::random, seed) {
    words_ = 2 + draw_.choose(3);
    for (u32 n = 2 + draw_.choose(2); n != 0; --n) {
      Context c{code(5), {}, {}};
      if (draw_.choose(4) == 0) c.heir = code(3);
      if (draw_.choose(4) == 0) c.handler = code(2);
      contexts_.push_back(c);
    }
  }

  // All that its executions can end with: what each access met, and the words.
  std::set<std::vector<u64>> outcomes(const Options& options, bool leave_out, u64& executions) const {
    static const char* const names[][2] = {{"a", "a's heir"}, {"b", "b's heir"}, {"c", "c's heir"}};
    std::set<std::vector<u64>> all;
    const Result r = explore(options, [&](World& world) {
      if (leave_out) world.only_words_are_shared();
      auto* words = world.make<u64>(words_);
      auto* met = world.make<u64>(contexts_.size() * 32);
      for (size_t i = 0; i < contexts_.size(); ++i) {
        const Context& c = contexts_[i];
        u64* mine = met + i * 32;
        world.spawn(names[i][0], [=] { run(c.code, words, mine); });
        if (!c.handler.empty()) world.signal(names[i][0], [=] { run(c.handler, words, mine + 12); });
        if (c.heir.empty()) continue;
        world.may_die(names[i][0]);
        world.on_death(names[i][0], names[i][1], [=] { run(c.heir, words, mine + 20); });
      }
      world.after([=, this, &all] {
        std::vector<u64> outcome(words, words + words_);
        outcome.insert(outcome.end(), met, met + contexts_.size() * 32);
        all.insert(outcome);
      });
    });
    EXPECT_TRUE(r.proved()) << r;
    executions = r.executions;
    return all;
  }

 private:
  enum class What : u32 { load, store, cas, light, heavy, release, acquire };
  struct Step {
    What what;
    u32 word;
    Order load, store;
    bool only_if_odd;  // what was met last
  };
  using Code = std::vector<Step>;
  struct Context {
    Code code, heir, handler;
  };

  Code code(u32 most) {
    Code steps;
    for (u32 n = 1 + draw_.choose(most); n != 0; --n) {
      const u32 pick = draw_.choose(12);
      const What what = pick < 4 ? What::load : pick < 8 ? What::store : pick < 10 ? What::cas : What(3 + draw_.choose(4));
      steps.push_back({what, draw_.choose(words_), draw_.choose(2) != 0 ? Order::acquire : Order::relaxed,
                       draw_.choose(2) != 0 ? Order::release : Order::relaxed, draw_.choose(4) == 0});
    }
    return steps;
  }

  static void run(const Code& steps, u64* words, u64* met) {
    u64 last = 1;
    for (const Step& step : steps) {
      u64* const word = words + step.word;
      if (step.only_if_odd && last % 2 == 0) continue;
      switch (step.what) {
        case What::load: last = M::load(word, step.load); break;
        case What::store: M::store(word, last + 1, step.store); break;
        case What::cas: last += M::cas(word, last, last + 2); break;
        case What::light: M::fence_light(); break;
        case What::heavy: M::fence_heavy(); break;
        case What::release: M::fence_release(); break;
        case What::acquire: M::fence_acquire(); break;
      }
      *met++ = last + 1;
    }
  }

  mutable Choices draw_;
  u32 words_ = 0;
  std::vector<Context> contexts_;
};

TEST(Sharing, LeavingSwitchesOutLosesNoOutcome) {
  u64 all = 0, some = 0, fewer = 0;
  for (u64 seed = 1; seed <= 100; ++seed) {
    const RandomProgram program(seed);
    const Options options{.preemptions = 1 + u32(seed % 2), .stale = u32(seed / 2 % 2), .signals = 1, .deaths = 1};
    u64 full = 0, reduced = 0;
    const auto expected = program.outcomes(options, false, full);
    ASSERT_EQ(program.outcomes(options, true, reduced), expected) << "seed " << seed;
    all += full;
    some += reduced;
    fewer += reduced < full;
  }
  printf("%llu executions instead of %llu, fewer in %llu of 100 programs\n", (unsigned long long)some,
         (unsigned long long)all, (unsigned long long)fewer);
  EXPECT_GT(fewer, 50u);
}

// The first execution knows no word of another context.
TEST(Sharing, AWordThatIsFoundToBeSharedBeginsTheSearchAgain) {
  const auto program = [](bool leave_out) {
    return [=](World& world) {
      if (leave_out) world.only_words_are_shared();
      auto* words = world.make<u64>(2);
      world.spawn("writer", [=] {
        M::store(&words[0], u64{1}, Order::relaxed);
        M::store(&words[1], u64{1}, Order::relaxed);
        M::store(&words[0], u64{2}, Order::relaxed);
      });
      world.spawn("reader", [=] {
        if (M::load(&words[1], Order::relaxed) != 1) return;
        require(M::load(&words[0], Order::relaxed) != 1, "the word is read between its two stores");
      });
    };
  };
  EXPECT_FALSE(explore({.stale = 0}, program(false)).passed());
  const Result r = explore({.stale = 0}, program(true));
  EXPECT_FALSE(r.passed());
  EXPECT_FALSE(r.trace.empty());
  EXPECT_EQ(explore({.stale = 0, .mode = Mode::replay, .replay = r.choices}, program(true)).failure, r.failure);
}

// In the middle of a copy the other context makes what is copied a word, and a handler has looked at it before.
TEST(Sharing, AWordThatBeginsInACopyIsShared) {
  for (const bool leave_out : {false, true}) {
    const Result r = explore({.stale = 0, .signals = 1}, [=](World& world) {
      if (leave_out) world.only_words_are_shared();
      auto* words = world.make<u64>(4);  // k, p, x, what the handler saw
      world.spawn("a", [=] {
        if (M::load(&words[0], Order::relaxed) != 1) return;
        M::store(&words[2], u64{1}, Order::relaxed);
        M::store(&words[1], u64{1}, Order::relaxed);
      });
      world.spawn("b", [=] {
        M::store(&words[0], u64{1}, Order::relaxed);
        u64 copy = 0;
        M::copy_in(&copy, &words[1], 8);
        require(words[3] == 0 || copy != 0, "the copy is not older than what the handler saw");
      });
      world.signal("b", [=] { words[3] = M::load(&words[2], Order::relaxed); });
    });
    EXPECT_FALSE(r.passed()) << leave_out;
  }
}

TEST(Sharing, AWordThatAPlainStoreChangesIsNoticed) {
  for (const bool leave_out : {false, true}) {
    const Result r = explore({}, [=](World& world) {
      if (leave_out) world.only_words_are_shared();
      auto* words = world.make<u64>(2);
      world.spawn("a", [=] {
        M::store(&words[0], u64{1}, Order::relaxed);
        M::store(&words[0], u64{2}, Order::relaxed);
      });
      world.spawn("b", [=] {
        M::load(&words[1], Order::relaxed);
        words[0] = 9;
      });
    });
    EXPECT_NE(r.failure.find("changed by a plain store"), std::string::npos) << r;
  }
}

TEST(Explorer, IsDeterministicAndFast) {
  auto set_up = [](World& world) {
    auto* word = world.make<u64>(2);
    world.spawn("writer", [=] {
      for (u64 i = 1; i <= 4; ++i) {
        M::store(&word[0], i, Order::relaxed);
        M::store(&word[1], i, Order::release);
      }
    });
    world.signal("writer", [=] { M::add_local(&word[0], 0); });
    world.spawn("reader", [=] {
      for (int i = 0; i < 4; ++i) {
        u64 least = M::load(&word[1], Order::acquire);
        require(M::load(&word[0], Order::relaxed) >= least, "data before flag");
      }
    });
  };
  Result first = explore({}, set_up);
  Result second = explore({}, set_up);
  EXPECT_TRUE(first.proved()) << first;
  EXPECT_EQ(first.executions, second.executions);
  EXPECT_EQ(first.accesses, second.accesses);
  RecordProperty("executions", std::to_string(first.executions));
  RecordProperty("executions_per_second", std::to_string(u64(double(first.executions) / first.seconds)));
  printf("%llu executions, %.0f/s\n", static_cast<unsigned long long>(first.executions),
         double(first.executions) / first.seconds);
}

}  // namespace
}  // namespace ringside::model::litmus_test
