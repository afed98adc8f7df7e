// The promises of consumer/input.hpp, the same for every kind of input. A program instantiates the suite for the kinds that it
// has the means for, once.
#pragma once
#include <gtest/gtest.h>
#include <ringside/ringside.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <ringside/trace.hpp>
#include <string>
#include <vector>

#include "consumer/reading.hpp"
#include "export/recording_as_dat.hpp"
#include "instance/instance.hpp"
#include "own_root.hpp"
#include "record/instance_feed.hpp"
#include "record/recording_run.hpp"

RINGSIDE_EVENT(inputs, number, (u64, n));

namespace ringside::test::inputs_test {

constexpr u64 tried = 3000;

// An event named `number` whose payload is the common fields and n.
struct Number {
  u16 id;
  u16 flags = 0;
  i32 tid;
  u64 n;
};

// One kind of input, and how it gets the numbers 0 to `tried`.
class Writing {
 public:
  virtual ~Writing() = default;
  // Why this machine cannot; empty: it can.
  virtual std::string missing() const { return ""; }
  // room: for all of them.
  virtual std::string make(bool room) = 0;
  virtual void adjust(Reading::Options& /*options*/) {}
  // Once the reading is open, where nothing is written before.
  virtual void write(const Reading& /*reading*/) {}
  virtual bool keeps_oldest() const { return true; }
};

// An instance in discard mode whose ring has refused some of the events, if it has no room.
class InstanceWriting : public Writing {
 public:
  std::string make(bool room) override {
    InstanceOptions options;
    options.name = "inputs";
    options.rings = Rings::thread;
    options.clock = ClockKind::mono;
    options.buffer_size = room ? 1 << 20 : 16 << 10;
    options.subbuf_size = 4096;
    options.overwrite = false;
    instance_ = must(Instance::create(options));
    EXPECT_EQ(ringside_open("inputs"), 0);
    for (u64 n = 0; n < tried; ++n) ::inputs::number(n);
    // Its ring has no writer from here on.
    ringside_close();
    return "inputs";
  }

 protected:
  std::string recording(bool compress) {
    const std::string dir = root_.path() + "/recording";
    auto run = must(RecordingRun::create(dir, instance_->clock(), 0, compress));
    InstanceFeed feed(*instance_);
    must(run->add(feed));
    must(run->finish());
    return dir;
  }
  OwnRoot root_;
  std::unique_ptr<Instance> instance_;
};

template <bool compress>
class RecordingWriting : public InstanceWriting {
 public:
  std::string make(bool room) override {
    InstanceWriting::make(room);
    return recording(compress);
  }
};

class TraceDatWriting : public InstanceWriting {
 public:
  std::string make(bool room) override {
    InstanceWriting::make(room);
    const std::string file = root_.path() + "/trace.dat";
    must(export_recording(recording(false), file, ""));
    return file;
  }
};

struct Case {
  const char* name;
  std::unique_ptr<Writing> (*writing)();
  bool live, consumes, again, begins;  // again: open_again() gives its events once more; begins: when it is opened
  const char* number = "n";
};
template <class W>
std::unique_ptr<Writing> made() {
  return std::make_unique<W>();
}

class InputConformance : public testing::TestWithParam<Case> {
 protected:
  void begin(bool room) {
    reading.reset();
    writing.reset();  // it restores the environment
    writing = GetParam().writing();
    if (const std::string missing = writing->missing(); !missing.empty()) GTEST_SKIP() << missing;
    where = writing->make(room);
  }
  // Reads all that is there.
  void read(const std::string& filter = "") {
    if (IsSkipped()) return;
    Reading::Options options;
    options.where = {where};
    options.filter = filter;
    writing->adjust(options);
    reading.reset();
    auto opened = Reading::open(std::move(options));
    if (!opened && where.empty()) GTEST_SKIP() << opened.error().sentence;
    reading = must(std::move(opened));
    if (reading->trace().live()) reading->follow(0);
    if (!written) writing->write(*reading);
    written = true;
    numbers.clear();
    reading->take_rest([&](const TraceRecord& record, const RingName&, Reading::Got got) {
      if (got == Reading::Got::gap) return;
      const EventType* const type = reading->trace().formats.find(record.number());
      ASSERT_NE(type, nullptr);
      if (type->name != "number" && type->name != "raw_data") return;
      EXPECT_FALSE(record.late);
      Number number{};
      ASSERT_GE(record.payload.size, sizeof number);
      std::memcpy(&number, record.payload.data, sizeof number);
      EXPECT_EQ(number.tid, getpid());
      numbers.push_back(number.n);
    });
  }
  std::unique_ptr<Writing> writing;
  std::string where;
  bool written = false;
  std::unique_ptr<Reading> reading;
  std::vector<u64> numbers;
};

// 0, 1, 2, ... come once each, but for the newest in discard mode or the oldest, and what does not come is in the account.
TEST_P(InputConformance, EachEventIsReadOrHasItsPlace) {
  for (const bool room : {true, false}) {
    written = false;
    begin(room);
    read();
    if (IsSkipped()) return;
    const Account& account = reading->complete().account;
    EXPECT_TRUE(account.exact());
    EXPECT_EQ(room, account.lost() == 0);
    EXPECT_EQ(account.read, numbers.size());
    EXPECT_EQ(account.tried(), tried);
    EXPECT_EQ(account.left_out, 0u);
    const u64 first = writing->keeps_oldest() ? 0 : tried - numbers.size();
    for (u64 n = 0; n < numbers.size(); ++n) ASSERT_EQ(numbers[n], first + n);
  }
}

TEST_P(InputConformance, AFilterLeavesOutAndLosesNothing) {
  begin(true);
  read(std::string(GetParam().number) + " < 1000");
  if (IsSkipped()) return;
  const Account& account = reading->complete().account;
  EXPECT_EQ(account.read, 1000u);
  EXPECT_EQ(account.left_out, tried - 1000);
  EXPECT_TRUE(account.none_lost());
}

TEST_P(InputConformance, ItTellsItsLife) {
  begin(true);
  read();
  if (IsSkipped()) return;
  Trace& trace = reading->trace();
  ASSERT_EQ(trace.inputs.size(), 1u);
  const Input& input = *trace.inputs.front();
  EXPECT_TRUE(where.empty() || input.where == where) << input.where;
  EXPECT_EQ(input.live(), GetParam().live);
  EXPECT_EQ(input.consumes(), GetParam().consumes);
  EXPECT_EQ(input.begins_when_opened(), GetParam().begins);
  EXPECT_EQ(input.own_clock().kind, GetParam().begins ? best_clock() : ClockKind::mono);
  u64 again = 0;
  for (const auto& source : input.open_again())
    for (auto view = source->next(); view && *view; view = source->next()) ++again;
  EXPECT_EQ(again != 0, GetParam().again);
}

// A second reading of what is not consumed is the same; of what is, it has nothing.
TEST_P(InputConformance, ASecondReading) {
  begin(true);
  read();
  if (IsSkipped()) return;
  EXPECT_EQ(numbers.size(), tried);
  read();
  EXPECT_EQ(numbers.size(), GetParam().consumes ? 0 : tried);
}

TEST_P(InputConformance, ItIsThisMachines) {
  begin(true);
  read();
  if (IsSkipped()) return;
  const World own = World::own();
  const World& world = reading->trace().inputs.front()->world;
  EXPECT_EQ(world.architecture, own.architecture);
  EXPECT_EQ(world.word_size, own.word_size);
}

}  // namespace ringside::test::inputs_test
