// The promises of consumer/input.hpp, the same for every kind of input that needs no other program: a recording, a compressed
// one, a trace.dat, an instance, served rings, an external writer, the live kernel.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/ringside.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <ringside/remote/process_writer.hpp>
#include <ringside/trace.hpp>
#include <thread>

#include "consumer/reading.hpp"
#include "export/recording_as_dat.hpp"
#include "instance/instance.hpp"
#include "own_root.hpp"
#include "record/instance_feed.hpp"
#include "record/recording_run.hpp"
#include "serve/server.hpp"
#include "sys/sys.hpp"

RINGSIDE_EVENT(inputs, number, (u64, n));

namespace ringside::input_conformance_test {
namespace {

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
  test::OwnRoot root_;
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

class ServedWriting : public InstanceWriting {
 public:
  std::string make(bool room) override {
    InstanceWriting::make(room);
    ServerOptions options;
    options.instance = "inputs";
    options.socket = root_.path() + "/socket";
    server_ = must(Server::create(options));
    serving_ = std::jthread([this](const std::stop_token& over) {
      while (!over.stop_requested()) must(server_->turn(20));
    });
    return options.socket;
  }

 private:
  std::unique_ptr<Server> server_;
  std::jthread serving_;
};

// The reader brings the rings, which have room for some 200,000 of these events.
class ExternalWriting : public Writing {
 public:
  std::string make(bool room) override {
    room_ = room;
    const std::string socket = root_.path() + "/writer";
    static const std::string format =
        "name: number\nID: 1\nformat:\n"
        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
        "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
        "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
        "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
        "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"n=%llu\", REC->n\n";
    remote::ProcessOptions options{socket, {{1, "inputs", "number", format}}};
    options.rings = 1;
    writer_ = std::make_unique<remote::ProcessWriter<>>(options);
    EXPECT_EQ(writer_->error(), 0);
    return socket;
  }
  bool keeps_oldest() const override { return false; }
  void write(const Reading& /*reading*/) override {
    for (u64 n = 0; n < tried; ++n) {
      // Each is padded to a sixth of a sub-buffer where there is no room for all.
      u8 bytes[2800] = {};
      const Number number{1, 0, getpid(), n};
      std::memcpy(bytes, &number, sizeof number);
      auto* const ring = writer_->ring(0);
      ASSERT_NE(ring, nullptr);
      EXPECT_TRUE(ring->write(bytes, room_ ? sizeof number : sizeof bytes));
    }
  }

 private:
  bool room_ = true;
  test::OwnRoot root_;
  std::unique_ptr<remote::ProcessWriter<>> writer_;
};

// Nothing but what is written to trace_marker_raw, from one CPU.
class KernelWriting : public Writing {
 public:
  KernelWriting() { sched_getaffinity(0, sizeof before_, &before_); }
  ~KernelWriting() override { sched_setaffinity(0, sizeof before_, &before_); }
  std::string make(bool room) override {
    room_ = room;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    return "";
  }
  void adjust(Reading::Options& options) override {
    options.where = {};
    options.kernel = {"sched:sched_process_exec"};
    options.make.prefix = "ringside-test-";
    options.make.only_followed = true;
    options.make.overwrite = false;
    options.make.buffer_size = room_ ? 1 << 20 : 16 << 10;
  }
  void write(const Reading& reading) override {
    const sys::Fd marker(open((reading.trace().inputs.front()->where + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(marker);
    // The marker's id is the number. A full ring refuses it: EBADF.
    for (u64 n = 0; n < tried; ++n) {
      const bool done = ::write(marker.get(), &n, sizeof n) == static_cast<ssize_t>(sizeof n);
      ASSERT_TRUE(done || (!room_ && errno == EBADF)) << strerror(errno);
    }
  }

 private:
  bool room_ = true;
  cpu_set_t before_{};
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

const Case cases[] = {
    {"recording", made<RecordingWriting<false>>, false, false, true, false},
    {"compressed", made<RecordingWriting<true>>, false, false, true, false},
    {"trace_dat", made<TraceDatWriting>, false, false, true, false},
    {"instance", made<InstanceWriting>, true, false, true, false},
    {"served", made<ServedWriting>, true, true, false, false},
    {"writer", made<ExternalWriting>, true, true, false, true},
    {"kernel", made<KernelWriting>, true, true, false, true, "id"},
};

class InputConformance : public testing::TestWithParam<Case> {
 protected:
  void begin(bool room) {
    reading.reset();
    writing.reset();  // it restores the environment
    writing = GetParam().writing();
    where = writing->make(room);
  }
  // Reads all that is there.
  void read(const std::string& filter = "") {
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

INSTANTIATE_TEST_SUITE_P(Inputs, InputConformance, testing::ValuesIn(cases), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace ringside::input_conformance_test
