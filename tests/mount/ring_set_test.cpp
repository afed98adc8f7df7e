// What each RingSet has to do, for any kind of writer. To prove a new one, list it below.
#include <gtest/gtest.h>
#include <poll.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/meta_page.hpp>
#include <ringside/remote/process_writer.hpp>
#include <ringside/trace.hpp>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "cpu_rings.hpp"
#include "own_root.hpp"
#include "writer/cpu_rings.hpp"
#include "mount/mounted.hpp"
#include "mount/remote.hpp"

RINGSIDE_EVENT(ringset, number, (u64, n));

namespace ringside::mount::ring_set_test {
namespace {

using namespace std::chrono_literals;

constexpr u64 ring_bytes = 64 << 10;
constexpr int patience_ms = 20'000;

// A process that writes numbered events when it is told to.
class WriterProcess {
 public:
  using Write = std::function<bool(u64 number)>;  // false: not now
  explicit WriterProcess(const std::function<Write()>& begin) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(to[1]);
      const Write write_one = begin();
      char ready = 1;
      if (write(from[1], &ready, 1) != 1) _exit(1);
      u64 number = 0;
      for (u64 count; read(to[0], &count, sizeof count) == sizeof count;) {
        for (const u64 end = number + count; number < end;)
          if (write_one(number)) ++number;
        if (write(from[1], &ready, 1) != 1) _exit(1);
      }
      _exit(0);
    }
    close(to[0]);
    close(from[1]);
    to_ = sys::Fd(to[1]);
    from_ = sys::Fd(from[0]);
    wait_for_it();
  }
  ~WriterProcess() {
    to_ = sys::Fd();
    waitpid(pid_, nullptr, 0);
  }
  void write_events(u64 count) const {
    ASSERT_EQ(write(to_.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
    wait_for_it();
  }

 private:
  void wait_for_it() const {
    char done;
    ASSERT_EQ(read(from_.get(), &done, 1), 1);
  }
  pid_t pid_;
  sys::Fd to_, from_;
};

enum class Kind { thread_rings, cpu_rings, external };

struct RingSets : testing::TestWithParam<Kind> {
  test::OwnRoot root;
  sys::Fd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unique_ptr<WriterProcess> writer;
  std::shared_ptr<RingSet> set;
  std::shared_ptr<void> use;
  u32 ring = 0;  // the one that is written
  Asker asker;
  u64 lost = 0;

  void SetUp() override {
    if (GetParam() == Kind::cpu_rings && why_not_cpu_rings() != RingsBecause::can)
      GTEST_SKIP() << "no rings of CPUs here, " << to_string(why_not_cpu_rings());
    GetParam() == Kind::external ? start_external() : start_instance();
    set->refresh();
  }
  void TearDown() override {
    use.reset();
    set.reset();
    writer.reset();
  }
  void start_instance() {
    InstanceOptions o;
    o.name = "unit";
    o.buffer_size = ring_bytes;
    o.subbuf_size = 4096;
    o.clock = GetParam() == Kind::cpu_rings ? best_clock() : ClockKind::mono;
    o.rings = GetParam() == Kind::cpu_rings ? Rings::cpu : Rings::thread;
    must(Instance::create(o));
    const u32 cpu = test::allowed_cpus().back();
    if (GetParam() == Kind::cpu_rings) ring = cpu;
    writer = std::make_unique<WriterProcess>([cpu] {
      if (!test::pin(0, cpu) || ringside_open("unit") != 0) _exit(1);
      return [](u64 n) {
        ringset::number(n);
        return true;
      };
    });
    set = must(Mounted::open("unit", event.get(), ring + 2));
  }
  void start_external() {
    const std::string at = root.path() + "/writer";
    writer = std::make_unique<WriterProcess>([at] {
      const auto w = std::make_shared<remote::ProcessWriter<>>(
          remote::ProcessOptions{at, {{1, "ringset", "number", "name: number\nID: 1\n"}}});
      if (w->error() != 0) _exit(1);
      return [w](u64 n) {
        const u64 payload[] = {1, n};
        auto* const one = w->ring(0);
        return one != nullptr && one->write(payload, sizeof payload);
      };
    });
    const auto remote = std::make_shared<Remote>("unit", at, 2, std::chrono::milliseconds(patience_ms), event.get());
    must(remote->kilobytes(ring_bytes / 1024));
    const auto load = remote->load(), on = remote->enable(true);
    finish(load);
    finish(on);
    use = load->use;
    set = remote;
  }
  void heard() const {
    pollfd p{event.get(), POLLIN, 0};
    ASSERT_EQ(poll(&p, 1, patience_ms), 1);
    u64 times;
    ASSERT_EQ(read(event.get(), &times, sizeof times), static_cast<ssize_t>(sizeof times));
  }
  void finish(const std::shared_ptr<Job>& job) const {
    while (job != nullptr && job->error < 0) heard();
    if (job != nullptr) {
      ASSERT_EQ(job->error, 0);
    }
  }

  Found find() {
    for (;;) {
      const Found found = set->find(ring, asker);
      if (found != Found::asking) return found;
      heard();
    }
  }
  struct Seen {
    u64 number, ns;
    u32 end;  // data offset behind it
  };
  // The events of the view.
  std::vector<Seen> events() const {
    std::vector<Seen> all;
    const SubBufferView v = set->view(ring);
    abi::EventCursor c(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
    while (c.next()) {
      u64 number;
      std::memcpy(&number, c.payload().data + 8, sizeof number);
      all.push_back({number, set->clock().to_ns(c.time()), c.position()});
    }
    EXPECT_EQ(c.malformed(), abi::Malformed::no);
    return all;
  }
  // Takes all that there is.
  std::vector<u64> take() {
    std::vector<u64> all;
    while (find() == Found::data) {
      lost += set->view(ring).lost_before;
      const auto some = events();
      for (const Seen& e : some) all.push_back(e.number);
      set->consume(ring, set->view(ring).end, static_cast<u32>(some.size()));
      set->done(ring);
    }
    return all;
  }
  static std::vector<u64> numbers(u64 from, u64 count) {
    std::vector<u64> all(count);
    std::iota(all.begin(), all.end(), from);
    return all;
  }
};

TEST_P(RingSets, EventsAreFoundOnceAndInOrder) {
  EXPECT_EQ(find(), Found::nothing);
  writer->write_events(1000);
  EXPECT_EQ(take(), numbers(0, 1000));
  EXPECT_EQ(find(), Found::nothing);
  writer->write_events(1);
  EXPECT_EQ(take(), numbers(1000, 1));
  EXPECT_EQ(find(), Found::nothing);
  EXPECT_EQ(lost, 0u);
}

TEST_P(RingSets, WhatIsNotConsumedIsFoundAgain) {
  writer->write_events(10);
  ASSERT_EQ(find(), Found::data);
  const auto first = events();
  set->done(ring);
  ASSERT_EQ(first.size(), 10u);
  ASSERT_EQ(find(), Found::data);
  EXPECT_EQ(events().size(), 10u);
  set->consume(ring, first[2].end, 3);
  set->done(ring);
  ASSERT_EQ(find(), Found::data);
  const auto rest = events();
  set->done(ring);
  ASSERT_EQ(rest.size(), 7u);
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].number, first[i + 3].number);
    EXPECT_EQ(rest[i].ns, first[i + 3].ns);
  }
}

TEST_P(RingSets, TimesAreNanosecondsOfTheMonotonicClock) {
  constexpr u64 slack = 1'000'000;
  const u64 before = sys::now_ns();
  writer->write_events(10);
  const u64 after = sys::now_ns();
  ASSERT_EQ(find(), Found::data);
  u64 last = before - slack;
  for (const Seen& e : events()) {
    EXPECT_GE(e.ns, last);
    last = e.ns;
  }
  EXPECT_LE(last, after + slack);
  set->done(ring);
}

TEST_P(RingSets, CountersAddUp) {
  writer->write_events(100);
  ASSERT_EQ(find(), Found::data);
  set->consume(ring, events()[39].end, 40);
  set->done(ring);
  const Counters c = must(set->counters(ring));
  EXPECT_EQ(c.unread, 60u);
  EXPECT_EQ(c.read, 40u);
  EXPECT_EQ(c.overrun, 0u);
  EXPECT_GT(c.bytes, 0u);
}

TEST_P(RingSets, LostEventsAreCounted) {
  writer->write_events(20'000);
  const std::vector<u64> found = take();
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(found.size() + lost, 20'000u);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.back(), 19'999u);
  EXPECT_EQ(must(set->counters(ring)).overrun, lost);
}

TEST_P(RingSets, ARingIsReadyWhileItHasEvents) {
  EXPECT_FALSE(set->ready(ring, 0));
  writer->write_events(1);
  EXPECT_TRUE(set->ready(ring, 0));
  EXPECT_EQ(take().size(), 1u);
  EXPECT_FALSE(set->ready(ring, 0));
}

TEST_P(RingSets, AlarmsTellOfEventsThatCome) {
  while (find() != Found::nothing) {
  }
  u64 times;
  (void)!read(event.get(), &times, sizeof times);
  set->alarm(0, false);
  writer->write_events(1);
  while (!set->ready(ring, 0)) {
    set->alarm(0, false);
    heard();
  }
  EXPECT_EQ(take(), numbers(0, 1));
}

TEST_P(RingSets, PeekingTakesNothing) {
  writer->write_events(500);
  for (int twice = 0; twice < 2; ++twice) {
    Peeked all = set->peek(std::nullopt);
    EXPECT_FALSE(all.problem) << all.problem->sentence;
    EXPECT_EQ(all.in_buffer, 500u);
    EXPECT_EQ(all.overrun, 0u);
    std::vector<u64> found;
    for (const auto& source : all.sources)
      while (const auto view = must(source->next())) {
        abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
        while (c.next()) {
          u64 number;
          std::memcpy(&number, c.payload().data + 8, sizeof number);
          found.push_back(number);
        }
      }
    EXPECT_EQ(found, numbers(0, 500));
  }
  // Of CPUs, the next ring is there, too.
  EXPECT_TRUE(set->peek(ring + 1000).sources.empty());
  EXPECT_EQ(take(), numbers(0, 500));
}

TEST_P(RingSets, ResetEmptiesARingAndAllOfThem) {
  writer->write_events(100);
  for (const Only only : {Only(ring), Only()}) {
    finish(must(set->reset(only)));
    EXPECT_EQ(find(), Found::nothing);
    const Counters c = must(set->counters(ring));
    EXPECT_EQ(c.unread + c.read + c.overrun, 0u);
    writer->write_events(10);
  }
  EXPECT_EQ(take(), numbers(110, 10));
}

TEST_P(RingSets, ARingIsMappedAndGetReaderMovesIt) {
  writer->write_events(300);
  ASSERT_TRUE(set->can_be_mapped(ring));
  const sys::Fd fd = must(set->map(ring));
  const auto map = must(sys::Region::map(fd.get(), 4096, false, "ring"));
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  const auto& meta = *reinterpret_cast<const abi::MetaPage*>(map.data());
  ASSERT_EQ(meta.subbuf_size, set->subbuf_size(ring));
  const u64 size = u64{meta.subbuf_size} * (meta.nr_subbufs + 1);
  const auto whole = must(sys::Region::map(fd.get(), size, false, "ring"));
  std::vector<u64> found;
  u32 id = meta.reader.id, read = meta.reader.read;
  while (found.size() < 300) {
    for (;;) {
      const bool done = must(set->get_reader(ring, asker, true));
      if (done) break;
      heard();
    }
    if (meta.reader.id != id) read = 0;
    id = meta.reader.id;
    abi::EventCursor c(whole.data() + u64{meta.subbuf_size} * (id + 1) + abi::header_size, read, meta.reader.read, 0);
    while (c.next()) {
      u64 number;
      std::memcpy(&number, c.payload().data + 8, sizeof number);
      found.push_back(number);
    }
    read = meta.reader.read;
  }
  EXPECT_EQ(found, numbers(0, 300));
  EXPECT_EQ(must(set->counters(ring)).read, 300u);
  EXPECT_EQ(find(), Found::nothing);
  set->unmap(ring);
}

TEST_P(RingSets, ARingThatIsNotThereHasNothing) {
  const u32 absent = ring + 1;
  ASSERT_LT(absent, set->cpus());
  Asker a;
  Found found;
  while ((found = set->find(absent, a)) == Found::asking) heard();
  EXPECT_EQ(found, Found::nothing);
  set->done(absent);
  EXPECT_FALSE(set->ready(absent, 0));
  EXPECT_EQ(must(set->counters(absent)).written, 0u);
  EXPECT_EQ(set->subbuf_size(absent), 4096u);
}

TEST_P(RingSets, EventsHaveFormats) {
  writer->write_events(1);
  set->refresh();
  const auto all = set->events();
  const auto one =
      std::find_if(all.begin(), all.end(), [](const EventName& e) { return e.system == "ringset" && e.name == "number"; });
  ASSERT_NE(one, all.end());
  const EventType* const type = set->formats().find(one->id);
  ASSERT_NE(type, nullptr);
  EXPECT_EQ(type->name, "number");
  const u64 now = set->refresh();
  EXPECT_EQ(set->refresh(), now);
}

// A snapshot and a resize put fresh rings in the places of those that were read: "all later reads see the old file, for the
// life of the mount".
TEST_P(RingSets, ARingThatIsReplacedIsFoundAgain) {
  if (GetParam() == Kind::external) return;  // its rings are never replaced
  Instance& instance = static_cast<Mounted&>(*set).instance();
  writer->write_events(10);
  EXPECT_EQ(take(), numbers(0, 10));
  writer->write_events(10);
  must(instance.snapshot());
  writer->write_events(10);
  EXPECT_EQ(take(), numbers(20, 10));
  must(instance.resize(4 * ring_bytes, 8192));
  writer->write_events(10);
  if (GetParam() == Kind::thread_rings) ring = 1;  // a thread takes one more
  EXPECT_EQ(take(), numbers(30, 10));
  EXPECT_EQ(set->subbuf_size(ring), 8192u);
  EXPECT_FALSE(set->ready(ring, 0));
}

// A reader that goes on while another process consumes the ring gets EBUSY, and nothing worse afterwards.
TEST_P(RingSets, ABusyRingSaysSo) {
  if (GetParam() == Kind::external) return;  // one reader at a time has it
  Instance& instance = static_cast<Mounted&>(*set).instance();
  writer->write_events(10);
  {
    const auto other = must(Instance::open(instance.path()));
    const auto source = must(other->source(ring));
    EXPECT_EQ(find(), Found::failed);
    EXPECT_EQ(set->error(ring).code, std::errc::device_or_resource_busy);
    set->done(ring);
  }
  EXPECT_EQ(take(), numbers(0, 10));
}

TEST_P(RingSets, EachRingHasOnePipeAtMost) {
  EXPECT_TRUE(set->open_pipe(0));
  if (!set->text_rules().one_pipe) {  // upstream's remote buffers have any number
    EXPECT_TRUE(set->open_pipe(0));
    EXPECT_TRUE(set->open_pipe(std::nullopt));
    return;
  }
  EXPECT_FALSE(set->open_pipe(0));
  EXPECT_FALSE(set->open_pipe(std::nullopt));
  EXPECT_TRUE(set->open_pipe(1));
  set->close_pipe(0);
  set->close_pipe(1);
  EXPECT_TRUE(set->open_pipe(std::nullopt));
  EXPECT_FALSE(set->open_pipe(1));
  set->close_pipe(std::nullopt);
  EXPECT_TRUE(set->open_pipe(1));
}

INSTANTIATE_TEST_SUITE_P(All, RingSets, testing::Values(Kind::thread_rings, Kind::cpu_rings, Kind::external),
                         [](const auto& kind) {
                           return std::string(kind.param == Kind::thread_rings ? "instance_of_threads"
                                              : kind.param == Kind::cpu_rings  ? "instance_of_cpus"
                                                                               : "external_writer");
                         });

}  // namespace
}  // namespace ringside::mount::ring_set_test
