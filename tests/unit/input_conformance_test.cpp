// The promises of consumer/input.hpp, the same for every kind of input that needs no server and no other program: a recording,
// a compressed one, a trace.dat, an instance, served rings.
#include <gtest/gtest.h>
#include <ringside/ringside.h>
#include <unistd.h>

#include <ringside/trace.hpp>
#include <thread>

#include "consumer/reading.hpp"
#include "export/recording_as_dat.hpp"
#include "instance/instance.hpp"
#include "own_root.hpp"
#include "record/instance_feed.hpp"
#include "record/recording_run.hpp"
#include "serve/server.hpp"

RINGSIDE_EVENT(inputs, number, (u64, n));

namespace ringside::input_conformance_test {
namespace {

constexpr u64 tried = 3000;

// An instance in discard mode whose ring has refused some of the `tried` events, and what is made of it.
class Written {
 public:
  explicit Written(bool room) {
    InstanceOptions options;
    options.name = "inputs";
    options.rings = Rings::thread;
    options.clock = ClockKind::mono;
    options.buffer_size = room ? 1 << 20 : 16 << 10;
    options.subbuf_size = 4096;
    options.overwrite = false;
    instance = must(Instance::create(options));
    EXPECT_EQ(ringside_open("inputs"), 0);
    for (u64 n = 0; n < tried; ++n) ::inputs::number(n);
    // Its ring has no writer from here on.
    ringside_close();
  }
  std::string recording(bool compress = false) {
    const std::string dir = root.path() + "/recording";
    auto run = must(RecordingRun::create(dir, instance->clock(), 0, compress));
    InstanceFeed feed(*instance);
    must(run->add(feed));
    must(run->finish());
    return dir;
  }
  std::string trace_dat() {
    const std::string file = root.path() + "/trace.dat";
    must(export_recording(recording(), file, ""));
    return file;
  }
  std::string serve() {
    ServerOptions options;
    options.instance = "inputs";
    options.socket = root.path() + "/socket";
    server_ = must(Server::create(options));
    serving_ = std::jthread([this](const std::stop_token& over) {
      while (!over.stop_requested()) must(server_->turn(20));
    });
    return options.socket;
  }
  test::OwnRoot root;
  std::unique_ptr<Instance> instance;

 private:
  std::unique_ptr<Server> server_;
  std::jthread serving_;
};

struct Case {
  const char* name;
  std::string (*make)(Written&);
  bool live, consumes, again;  // again: open_again() gives its events once more
};

const Case cases[] = {
    {"recording", [](Written& w) { return w.recording(); }, false, false, true},
    {"compressed", [](Written& w) { return w.recording(true); }, false, false, true},
    {"trace_dat", [](Written& w) { return w.trace_dat(); }, false, false, true},
    {"instance", [](Written&) { return std::string("inputs"); }, true, false, true},
    {"served", [](Written& w) { return w.serve(); }, true, true, false},
};

class InputConformance : public testing::TestWithParam<Case> {
 protected:
  // Reads all that is there.
  std::unique_ptr<Reading> read(const std::string& where, const std::string& filter = "") {
    Reading::Options options;
    options.where = {where};
    options.filter = filter;
    auto reading = must(Reading::open(std::move(options)));
    if (reading->trace().live()) reading->follow(0);
    numbers.clear();
    reading->take_rest([&](const TraceRecord& record, const RingName&, Reading::Got got) {
      if (got == Reading::Got::gap) return;
      const EventType* const type = reading->trace().formats.find(record.number());
      ASSERT_NE(type, nullptr);
      if (type->name != "number") return;
      EXPECT_FALSE(record.late);
      i32 tid = 0;
      std::memcpy(&tid, record.payload.data + 4, sizeof tid);
      EXPECT_EQ(tid, getpid());
      u64 n = 0;
      std::memcpy(&n, record.payload.data + 8, sizeof n);
      numbers.push_back(n);
    });
    return reading;
  }
  std::vector<u64> numbers;
};

// Discard mode keeps the oldest: 0, 1, 2, ... come once each, and what does not come is in the account.
TEST_P(InputConformance, EachEventIsReadOrHasItsPlace) {
  for (const bool room : {true, false}) {
    Written written(room);
    const auto reading = read(GetParam().make(written));
    const Account& account = reading->complete().account;
    EXPECT_TRUE(account.exact());
    EXPECT_EQ(room, account.lost() == 0);
    EXPECT_EQ(account.read, numbers.size());
    EXPECT_EQ(account.tried(), tried);
    EXPECT_EQ(account.left_out, 0u);
    for (u64 n = 0; n < numbers.size(); ++n) ASSERT_EQ(numbers[n], n);
  }
}

TEST_P(InputConformance, AFilterLeavesOutAndLosesNothing) {
  Written written(true);
  const auto reading = read(GetParam().make(written), "n < 1000");
  const Account& account = reading->complete().account;
  EXPECT_EQ(account.read, 1000u);
  EXPECT_EQ(account.left_out, tried - 1000);
  EXPECT_TRUE(account.none_lost());
}

TEST_P(InputConformance, ItTellsItsLife) {
  Written written(true);
  const std::string where = GetParam().make(written);
  const auto reading = read(where);
  Trace& trace = reading->trace();
  ASSERT_EQ(trace.inputs.size(), 1u);
  const Input& input = *trace.inputs.front();
  EXPECT_EQ(input.where, where);
  EXPECT_EQ(input.live(), GetParam().live);
  EXPECT_EQ(input.consumes(), GetParam().consumes);
  EXPECT_EQ(input.own_clock().kind, ClockKind::mono);
  EXPECT_FALSE(input.begins_when_opened());
  u64 again = 0;
  for (const auto& source : input.open_again())
    for (auto view = source->next(); view && *view; view = source->next()) ++again;
  EXPECT_EQ(again != 0, GetParam().again);
}

// A second reading of what is not consumed is the same; of what is, it has nothing.
TEST_P(InputConformance, ASecondReading) {
  Written written(true);
  const std::string where = GetParam().make(written);
  (void)read(where);
  EXPECT_EQ(numbers.size(), tried);
  (void)read(where);
  EXPECT_EQ(numbers.size(), GetParam().consumes ? 0 : tried);
}

TEST_P(InputConformance, ItIsThisMachines) {
  Written written(true);
  const auto reading = read(GetParam().make(written));
  const World own = World::own();
  const World& world = reading->trace().inputs.front()->world;
  EXPECT_EQ(world.architecture, own.architecture);
  EXPECT_EQ(world.word_size, own.word_size);
}

INSTANTIATE_TEST_SUITE_P(Inputs, InputConformance, testing::ValuesIn(cases), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace ringside::input_conformance_test
