// Random worlds of writers, kills, filters, pauses, recorders and live readings: each event that a writer tried to write has one
// place in the accounts of the recordings, and the readings of those say the same; and of what was tried while a live reading
// went on, in that reading's.
#include <gtest/gtest.h>
#include <ringside/ringside.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <ringside/trace.hpp>

#include "consumer/reading.hpp"
#include "instance/instance.hpp"
#include "own_root.hpp"
#include "property/rounds.hpp"
#include "record/instance_feed.hpp"
#include "record/recording_run.hpp"
#include "sys/json.hpp"
#include "writer/cpu_rings.hpp"

RINGSIDE_EVENT(account, kept, (u64, n));
RINGSIDE_EVENT(account, other, (u64, n));

namespace ringside::account_test {
namespace {

// Shared with the writers. An event of a writer that was killed may have been written, or not: begun - ended of them.
struct Tried {
  std::atomic<u64> begun{0}, ended{0};
};

class World {
 public:
  World(u64 seed, Rings rings) : random_(seed) {
    InstanceOptions options;
    options.name = "account";
    options.rings = rings;
    options.buffer_size = 64 << 10;
    options.overwrite = random_() % 2 == 0;
    options.subbuf_size = 4096;
    instance = must(Instance::create(options));
    tried_ = new (mmap(nullptr, sizeof(Tried), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Tried;
  }
  ~World() { munmap(tried_, sizeof(Tried)); }
  u64 between(u64 least, u64 most) { return least + random_() % (most - least + 1); }

  // A process with a thread or two writes up to a few times what a ring holds.
  void write() {
    const u64 events = between(0, 6000);
    const pid_t child = fork();
    if (child == 0) {
      if (ringside_open("account") != 0) _exit(1);
      for (u64 n = 0; n < events; ++n) one(n);
      _exit(0);
    }
    if (between(0, 3) == 0) {
      while (tried_->begun < events / 2 && waitpid(child, nullptr, WNOHANG) == 0) sched_yield();
      if (kill(child, SIGKILL) == 0) ++kills;
    }
    while (waitpid(child, nullptr, 0) == child) continue;
  }
  void pause_or_go_on() {
    paused_ = !paused_;
    must(instance->tracing(!paused_));
  }

  // Takes part of what is there, beside writers, or all of it.
  void record(const std::string& dir, bool all) {
    auto run = must(RecordingRun::create(dir, instance->clock()));
    InstanceFeed feed(*instance, between(0, 1) == 0 ? must(EventPatterns::parse("account:kept")) : EventPatterns{});
    must(run->add(feed));
    for (u64 rounds = all ? 1 : between(0, 3); rounds > 0; --rounds) {
      write();
      run->poll();
    }
    must(run->finish());
    const Account& account = run->account();
    EXPECT_TRUE(account.exact()) << account.reasons().front();
    EXPECT_EQ(account.written(), run->totals().written);
    if (all) {
      EXPECT_EQ(account.unread, 0u);
    }
    compare(dir, account);
    sum += account;
    sum.unread = account.unread;  // the next recording takes them
  }

  // A live reading beside a writer takes nothing. What it counts beyond one that nobody writes beside was tried meanwhile.
  void read() {
    const Account before = read_live([] {});
    EXPECT_EQ(before.refused.sum(), 0u);
    const u64 least_before = least(), most_before = most(), kills_before = kills;
    const Account now = read_live([this] { write(); });
    EXPECT_GE(now.tried() + kills - kills_before, before.tried() + least() - least_before)
        << json_of(before).dump() << json_of(now).dump();
    EXPECT_LE(now.tried(), before.tried() + most() - most_before);
  }

  // All that the writers tried, from least to most.
  u64 least() const { return tried_->ended; }
  u64 most() const { return tried_->begun; }

  std::unique_ptr<Instance> instance;
  Account sum;
  u64 kills = 0;

 private:
  void one(u64 n) {
    ++tried_->begun;
    n % 3 == 0 ? ::account::other(n) : ::account::kept(n);
    ++tried_->ended;
  }
  template <class Meanwhile>
  static Account read_live(Meanwhile meanwhile) {
    Reading::Options options;
    options.where = {"account"};
    const auto reading = must(Reading::open(std::move(options)));
    reading->follow(0);
    reading->begin_books();
    meanwhile();
    reading->take_rest([](const auto&...) {});
    const Totals& totals = reading->complete();
    Account account = totals.account;
    EXPECT_TRUE(account.exact()) << account.reasons().front();
    account.earlier += totals.lost_earlier;
    return account;
  }
  void compare(const std::string& dir, const Account& recorded) {
    Reading::Options options;
    options.where = {dir};
    const auto reading = must(Reading::open(std::move(options)));
    reading->run([](const auto&...) {});
    const Account& read = reading->complete().account;
    EXPECT_EQ(read.read, recorded.read);
    EXPECT_EQ(read.lost(), recorded.lost());
    for (const Refusal why : all_refusals) EXPECT_EQ(read.refused[why], recorded.refused[why]) << to_string(why);
    EXPECT_TRUE(read.exact());
  }

  std::mt19937_64 random_;
  Tried* tried_;
  bool paused_ = false;
};

class AccountProperty : public testing::TestWithParam<Rings> {};

TEST_P(AccountProperty, TriedIsTheSumOfThePlaces) {
  if (GetParam() == Rings::cpu && why_not_cpu_rings() != RingsBecause::can) GTEST_SKIP() << to_string(why_not_cpu_rings());
  for (u64 seed = 0; seed < test::rounds(40) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const test::OwnRoot root;
    World world(seed, GetParam());
    for (u64 step = 0, steps = world.between(1, 6); step < steps; ++step) {
      switch (world.between(0, 4)) {
        case 0:
          world.pause_or_go_on();
          break;
        case 1:
          world.record(root.path() + "/r" + std::to_string(step), false);
          break;
        case 2:
          world.read();
          break;
        default:
          world.write();
      }
    }
    world.record(root.path() + "/last", true);
    // sum.earlier has what the recordings before have counted already.
    const u64 tried = world.sum.tried() - world.sum.earlier;
    EXPECT_GE(tried, world.least());
    EXPECT_LE(tried, world.most());
    EXPECT_LE(world.most() - world.least(), world.kills);
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, AccountProperty, testing::Values(Rings::cpu, Rings::thread),
                         [](const auto& tested) { return tested.param == Rings::cpu ? "cpu" : "thread"; });

}  // namespace
}  // namespace ringside::account_test
