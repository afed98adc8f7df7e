// What an external writer says of its rings; several of them in one recording, and in parts of it.
#include <ringside/remote.h>

#include <ringside/remote/process_writer.hpp>

#include "record/remote_feed.hpp"
#include "source/recording.hpp"
#include "source/sample_rings.hpp"
#include "instance/instance_fixture.hpp"

namespace ringside::test::remote_names_test {
namespace {

struct Event {
  u16 type = 1;
  u8 flags = 0, preempt = 0;
  i32 pid = 0;
  u64 number = 0;
};
const std::string format =
    "name: tick\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
    "\tfield:u64 number;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"number=%llu\", REC->number\n";

struct RemoteNames : instance_test::InstanceTest {
  std::string path(const std::string& name) const { return dir + "/" + name; }
  RemoteFeed::Options options(const std::string& socket, u8 number) const {
    RemoteFeed::Options make;
    make.socket = socket;
    make.attach.buffer.rings = 0;
    make.attach.buffer.size = 1 << 20;
    make.number = number;
    make.first_ring = first_apart_ring(number);
    return make;
  }
  std::unique_ptr<RecordingRun> run(const std::string& name, const std::vector<RemoteFeed*>& feeds) const {
    auto made = must(RecordingRun::create(path(name), ClockInfo{}));
    for (RemoteFeed* const feed : feeds) {
      must(made->add(*feed));
      must(feed->attach(*made));
    }
    return made;
  }
  static void write(remote::ProcessWriter<>& writer, u32 ring, u64 number) {
    Event e;
    e.number = number;
    while (writer.ring(ring) == nullptr || !writer.ring(ring)->enabled()) usleep(1000);
    ASSERT_TRUE(writer.ring(ring)->write(&e, sizeof e));
  }
  // The numbers of a recording's events, by ring.
  std::map<u32, std::vector<u64>> numbers(const std::string& name) const {
    std::map<u32, std::vector<u64>> all;
    const auto meta = must(RecordingMeta::read(path(name)));
    for (const auto& source : must(open_recording(path(name), meta))) {
      const u32 ring = source->name().ring;
      for (auto view = must(source->next()); view; view = must(source->next())) {
        abi::EventCursor events(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
        while (events.next()) {
          Event e{};
          std::memcpy(&e, events.payload().data, sizeof e);
          all[ring].push_back(e.number);
        }
      }
    }
    return all;
  }
};

TEST_F(RemoteNames, AWriterSaysWhatItsRingsAre) {
  remote::ProcessOptions make{path("w"), {{1, "hv", "tick", format}}};
  make.ring_names = {{"vcpu 0", 3}, {"vcpu 1", 5}, {"timer"}};
  remote::ProcessWriter<> writer(std::move(make));
  ASSERT_EQ(writer.error(), 0);
  RemoteFeed feed(options(path("w"), 1));
  const auto made = run("rec", {&feed});
  for (u32 ring = 0; ring < 3; ++ring) write(writer, ring, ring);
  must(made->finish());
  const auto meta = must(RecordingMeta::read(path("rec")));
  ASSERT_EQ(meta.rings.size(), 3u);
  const char* const names[] = {"vcpu 0", "vcpu 1", "timer"};
  const i32 cpus[] = {3, 5, -1};
  for (u32 ring = 0; ring < 3; ++ring) {
    EXPECT_EQ(meta.rings[ring].name.task, names[ring]);
    EXPECT_EQ(meta.rings[ring].name.its_cpu(), cpus[ring]);
    EXPECT_EQ(meta.rings[ring].name.apart, 1);
    EXPECT_EQ(meta.rings[ring].events, 1u);
  }
}

TEST_F(RemoteNames, InC) {
  const ringside_process_ring rings[] = {{"core", 7}, {"other", -1}};
  const ringside_process_event event = {1, "fw", "tick", format.c_str()};
  const std::string socket = path("c");
  ringside_process_options make{};
  make.path = socket.c_str();
  make.events = &event;
  make.nr_events = 1;
  make.nr_rings = 2;
  make.rings = rings;
  ringside_process* const writer = ringside_process_open(&make);
  ASSERT_NE(writer, nullptr);
  RemoteFeed feed(options(socket, 1));
  const auto made = run("rec", {&feed});
  must(made->finish());
  const auto meta = must(RecordingMeta::read(path("rec")));
  ASSERT_EQ(meta.rings.size(), 2u);
  EXPECT_EQ(meta.rings[0].name.task, "core");
  EXPECT_EQ(meta.rings[0].name.its_cpu(), 7);
  EXPECT_EQ(meta.rings[1].name.task, "other");
  ringside_process_close(writer);
  const std::string too_long(64, 'x');
  const ringside_process_ring bad[] = {{too_long.c_str(), 0}, {"", 0}};
  make.rings = bad;
  EXPECT_EQ(ringside_process_open(&make), nullptr);
  EXPECT_EQ(errno, E2BIG);
}

// Both number their events from 1: their numbers are apart.
TEST_F(RemoteNames, TwoWritersInOneRecording) {
  remote::ProcessWriter<> one({path("one"), {{1, "a", "tick", format}}}), two({path("two"), {{1, "b", "tock", format}}});
  ASSERT_EQ(one.error() + two.error(), 0);
  RemoteFeed first(options(path("one"), 1)), second(options(path("two"), 2));
  const auto made = run("rec", {&first, &second});
  for (u64 n = 0; n < 10; ++n) write(one, 0, n), write(two, 0, 100 + n);
  must(made->finish());
  EXPECT_TRUE(made->account().exact());
  const auto meta = must(RecordingMeta::read(path("rec")));
  ASSERT_EQ(meta.rings.size(), 2u);
  ASSERT_EQ(meta.events.size(), 2u);
  EXPECT_NE(meta.events[0].number(), meta.events[1].number());
  for (u32 k = 0; k < 2; ++k) EXPECT_EQ(meta.events[k].number(), meta.rings[k].name.ids() + 1);
  EXPECT_EQ(numbers("rec")[first_apart_ring(1)].size(), 10u);
  EXPECT_EQ(numbers("rec")[first_apart_ring(2)].front(), 100u);
}

// A writer that switches its events one by one writes those alone that patterns name; another one is recorded whole.
TEST_F(RemoteNames, PatternsChooseAmongAWritersEvents) {
  for (const bool switches : {true, false}) {
    const std::string socket = path(switches ? "one" : "all");
    std::map<u32, bool> on;
    remote::ProcessOptions make{socket, {{1, "a", "tick", format}, {2, "a", "tock", format}}};
    if (switches) make.switch_event = [&](u32 id, bool is) { return on[id] = is, 0; };
    remote::ProcessWriter<> writer(std::move(make));
    ASSERT_EQ(writer.error(), 0);
    RemoteFeed::Options of = options(socket, 1);
    of.events = must(EventPatterns::parse("a:tick"));
    std::string said;
    of.notice = [&](const std::string& sentence) { said = sentence; };
    RemoteFeed feed(of);
    const auto made = run("rec", {&feed});
    EXPECT_EQ(on.count(2) != 0 && !on[2], switches);
    EXPECT_EQ(on.count(1), 0u);
    EXPECT_EQ(said.empty(), switches) << said;
    EXPECT_EQ(made->described().events[1].enabled, !switches);
    must(made->finish());
  }
}

TEST_F(RemoteNames, PartsLoseNothing) {
  remote::ProcessWriter<> writer({path("w"), {{1, "a", "tick", format}}});
  ASSERT_EQ(writer.error(), 0);
  RemoteFeed feed(options(path("w"), 1));
  u64 next = 0, read = 0;
  for (int part = 0; part < 3; ++part) {
    const std::string name = "part" + std::to_string(part);
    const auto made = run(name, {&feed});
    for (int n = 0; n < 5000; ++n) {
      write(writer, 0, next++);
      if (n % 1000 == 0) made->poll();
    }
    if (part < 2) feed.hand_over();
    must(made->finish());
    read += made->account().read;
    EXPECT_TRUE(made->account().exact()) << name;
    EXPECT_EQ(made->account().overrun, 0u);
    const auto got = numbers(name)[first_apart_ring(1)];
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got.back() + 1, next) << name;
  }
  EXPECT_EQ(read, next);
}

}  // namespace
}  // namespace ringside::test::remote_names_test
