// The format of an event is on disk before an event of that kind: a recorder may be killed at any moment. Found by the storm of
// edges: "an event of the unknown id 1" in the recording of an external writer.
#include <ringside/remote/process_writer.hpp>
#include <ringside/remote/stream.hpp>

#include "record/instance_feed.hpp"
#include "record/remote_feed.hpp"
#include "record/stream_feed.hpp"
#include "instance/instance_fixture.hpp"
#include "remote/writer_process.hpp"

namespace ringside::test::recorded_formats_test {
namespace {

struct RecordedFormats : instance_test::InstanceTest {
  const std::string recording = dir + "/recording";
  std::unique_ptr<RecordingRun> run(Feed& feed) const {
    auto made = must(RecordingRun::create(recording, ClockInfo{}));
    must(made->add(feed));
    return made;
  }
  // As a killed recorder leaves it.
  bool is_on_disk(const std::string& name) const {
    const auto events = must(RecordingMeta::read(recording)).events;
    return std::any_of(events.begin(), events.end(), [&](const EventInfo& e) { return e.name == name; });
  }
};

TEST_F(RecordedFormats, OfAnExternalWriter) {
  const std::string socket = dir + "/writer";
  remote::ProcessWriter<> writer({socket, {{1, "app", "tick", "name: tick"}}});
  ASSERT_EQ(writer.error(), 0);
  RemoteFeed::Options options;
  options.socket = socket;
  RemoteFeed feed(options);
  const auto made = run(feed);
  must(feed.attach(*made));
  EXPECT_TRUE(is_on_disk("tick"));
}

// Two late events, one behind the other: the second save would come too soon after the first.
TEST_F(RecordedFormats, OfALine) {
  std::vector<u8> bytes;
  remote::StreamWriter line([&](const void* some, u32 n) {
    bytes.insert(bytes.end(), static_cast<const u8*>(some), static_cast<const u8*>(some) + n);
  });
  std::vector<u64> words(4096 / 8 + 9 * 4096 / 8);
  auto* const pages = reinterpret_cast<u8*>(align_up(reinterpret_cast<u64>(words.data()), u64{4096}));
  alignas(64) Control control[16]{};
  const Ring ring{Geometry(4096, 7), control, pages};
  struct Stopped {
    u64 now() noexcept { return 1000; }
  };
  Writer<Stopped> writer(ring, Stopped{});
  Reader<> reader(ring);
  StreamFeed feed;
  remote::FrameReader frames;
  std::unique_ptr<RecordingRun> made;
  const auto arrive = [&] {
    frames.feed(bytes.data(), bytes.size());
    bytes.clear();
    for (remote::Frame frame; frames.next(frame);) {
      must(feed.hear(frame));
      if (made == nullptr) made = run(feed);
      made->poll();
    }
  };
  line.hello(static_cast<u32>(ClockKind::mono), 4096, 1'000'000'000);
  for (u32 id = 1; id < 60; id += 2) {
    line.event(id, "board", ("one" + std::to_string(id)).c_str(), "name: one");
    line.event(id + 1, "board", ("two" + std::to_string(id)).c_str(), "name: two");
    const u64 payload = id + 1;
    ASSERT_TRUE(writer.write(sizeof payload, [&](u8* to) { std::memcpy(to, &payload, sizeof payload); }));
    line.push(0, reader, true);
    arrive();
    ASSERT_EQ(made->events(), (id + 1) / 2);
    EXPECT_TRUE(is_on_disk("two" + std::to_string(id)));
  }
}

// It may have written since it was asked to begin.
TEST_F(RecordedFormats, AWriterThatDoesNotAnswerToItsBeginningIsDoubtful) {
  const std::string socket = dir + "/writer";
  remote_process_test::WriterProcess writer(socket);
  RemoteFeed::Options options;
  options.socket = socket;
  options.attach.patience = std::chrono::milliseconds(200);
  RemoteFeed feed(options);
  const auto made = run(feed);
  while (!feed.connect()) usleep(1000);
  writer.stop();
  EXPECT_FALSE(feed.attach(*made));
  EXPECT_TRUE(feed.attached());
  must(made->finish());
  EXPECT_FALSE(made->account().exact());
  EXPECT_FALSE(made->account().doubts.empty());
}

TEST_F(RecordedFormats, OfAnEventThatAProgramDeclaresLate) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  InstanceFeed feed(*instance);
  const auto made = run(feed);
  static ringside_event late[10];
  for (ringside_event& event : late) {
    const std::string name = "late" + std::to_string(&event - late);
    event = {"late", strdup(name.c_str()), "", "\"\"", nullptr, 0, nullptr, nullptr};
    ASSERT_EQ(ringside_register(&event), 0);
    u64 payload = 0;
    ASSERT_TRUE(ringside_write(&event, &payload, sizeof payload));
    const u64 before = made->events();
    made->poll();
    ASSERT_EQ(made->events(), before + 1);
    EXPECT_TRUE(is_on_disk(name));
  }
}

}  // namespace
}  // namespace ringside::test::recorded_formats_test
