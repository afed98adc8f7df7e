// External writers in processes of their own: stopped, killed, restarted, and hostile.
#include <fcntl.h>
#include <gmock/gmock.h>

#include <thread>

#include "remote/writer_process.hpp"

namespace ringside::test::remote_process_test {
namespace {

using testing::HasSubstr;

class RemoteProcess : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, RemoteProcess, layouts, layout_name);

TEST_P(RemoteProcess, EveryWrittenEventIsReadOrCounted) {
  const std::string path = fresh_path();
  const u64 count = 300000;
  WriterProcess writer(path, count);
  auto p = attach(path, GetParam());
  EXPECT_EQ(p->events().size(), 1u);
  EXPECT_EQ(p->events()[0].name, "tick");
  auto source = must(p->buffer().source(0));
  must(p->enable(true));
  Books books;
  const u64 deadline = sys::now_ns() + hang_ns;
  while (books.next < count && sys::now_ns() < deadline) books.take(*source);
  EXPECT_EQ(books.error, "");
  EXPECT_FALSE(books.torn);
  EXPECT_EQ(books.read + books.lost, count);
  const Counters c = source->counters();
  EXPECT_EQ(c.written, count);
  EXPECT_EQ(c.read, books.read);
  EXPECT_EQ(c.overrun, books.lost);
}

TEST_P(RemoteProcess, AStoppedWriterIsAnErrorInTimeAndGoesOn) {
  const std::string path = fresh_path();
  WriterProcess writer(path);
  auto p = attach(path, GetParam(), 100ms);
  auto source = must(p->buffer().source(0));
  while (!p->enable(true)) {  // on a busy machine the writer may take longer to answer
  }
  Books books;
  for (int round = 0; round < 5; ++round) {
    while (books.read < 2000u * (round + 1)) books.take(*source, 10);
    writer.stop();
    books.error = "";
    const u64 from = sys::now_ns();
    for (int k = 0; k < 10 && books.error.empty(); ++k) {  // the last answer may have been pending
      books.take(*source);
      usleep(2000);
    }
    if (books.error.empty() && GetParam() == Layout::meta_page) {  // it needs no answer if all is read
      const u64 written = source->counters().written;  // if it stopped between an event and its count, it is one behind
      EXPECT_LE(written, books.next);
      EXPECT_GE(written + 1, books.next);
    } else {
      EXPECT_THAT(books.error, HasSubstr("does not answer"));
      EXPECT_THAT(books.error, HasSubstr("ring 0"));
    }
    for (int k = 0; k < 5; ++k) (void)source->next();
    EXPECT_LT(sys::now_ns() - from, hang_ns);
    writer.send(SIGCONT);
    books.error = "";
    usleep(20000);
  }
  books.take(*source, 50);
  EXPECT_FALSE(books.torn);  // no unannounced gap
}

// A reader that looks ahead by little asks with little patience; for the last events it has more.
TEST_P(RemoteProcess, AnUnansweredRequestIsWaitedForAsLongAsPatienceHasGrown) {
  const std::string path = fresh_path();
  const u64 count = 1000;
  WriterProcess writer(path, count);
  auto p = attach(path, GetParam());
  auto source = must(p->buffer().source(0));
  must(p->enable(true));
  Books books;
  while (books.next < count) books.take(*source, 10);
  writer.stop();
  p->patience(1us);
  const auto in_vain = p->enable(true);
  ASSERT_FALSE(in_vain);
  EXPECT_EQ(in_vain.error().code, std::errc::timed_out);
  p->patience(20s);
  std::jthread later([&] {
    std::this_thread::sleep_for(100ms);
    writer.send(SIGCONT);
  });
  EXPECT_TRUE(p->enable(true));
}

TEST_P(RemoteProcess, AResetThatAStoppedWriterCarriesOutLaterBeginsTheRingAnew) {
  const std::string path = fresh_path();
  WriterProcess writer(path, ~u64{0}, 50);
  auto p = attach(path, GetParam(), 100ms);
  auto source = must(p->buffer().source(0));
  while (!p->enable(true)) {
  }
  Books before;
  while (before.read < 500) before.take(*source, 10);
  source.reset();
  writer.stop();
  const auto reset = p->buffer().reset(0);
  ASSERT_FALSE(reset);
  EXPECT_EQ(reset.error().code, std::errc::timed_out);
  EXPECT_FALSE(p->buffer().source(0)) << "what is there may be of either life";
  writer.send(SIGCONT);
  const u64 deadline = sys::now_ns() + hang_ns;
  while (source == nullptr && sys::now_ns() < deadline)
    if (auto made = p->buffer().source(0)) source = std::move(*made);
  ASSERT_NE(source, nullptr);
  std::vector<u64> numbers;
  while (numbers.size() < 500 && sys::now_ns() < deadline) {
    const auto next = source->next();
    if (!next || !*next) continue;
    EXPECT_EQ((*next)->lost_before, 0u);
    abi::EventCursor c((*next)->sub_buffer + abi::header_size, (*next)->begin, (*next)->end, 0);
    while (c.next()) {
      Event e{};
      std::memcpy(&e, c.payload().data, sizeof e);
      if (numbers.empty()) {
        EXPECT_GE(e.number, before.next);
      } else {
        ASSERT_EQ(e.number, numbers.back() + 1);
      }
      numbers.push_back(e.number);
    }
  }
  EXPECT_EQ(source->counters().read, numbers.size());
}

// Its answer to the reset is never read.
TEST_P(RemoteProcess, AWriterThatIsKilledAfterALateResetLosesNoEvent) {
  const std::string path = fresh_path();
  WriterProcess writer(path, ~u64{0}, 50);
  auto p = attach(path, GetParam(), 100ms);
  auto source = must(p->buffer().source(0));
  while (!p->enable(true)) {
  }
  Books before;
  while (before.read < 3000) before.take(*source, 10);
  source.reset();
  while (!p->enable(true)) {  // now no request is pending
  }
  writer.stop();
  const Plan& plan = p->buffer().plan();
  const auto stamps = [&] {
    std::vector<u64> all(plan.nr_pages);
    for (u32 id = 0; id < plan.nr_pages; ++id)
      all[id] = *reinterpret_cast<const volatile u64*>(p->buffer().data(0) + (id + 1) * u64{plan.subbuf_size});
    return all;
  };
  const std::vector<u64> old = stamps();
  const u64 newest = *std::max_element(old.begin(), old.end());
  ASSERT_FALSE(p->buffer().reset(0));
  writer.send(SIGCONT);
  const u64 deadline = sys::now_ns() + hang_ns;
  for (bool anew = false; !anew && sys::now_ns() < deadline; usleep(1000)) {
    const std::vector<u64> now = stamps();
    anew = std::all_of(now.begin(), now.end(), [&](u64 stamp) { return stamp == 0 || stamp > newest; }) &&
           std::any_of(now.begin(), now.end(), [](u64 stamp) { return stamp != 0; });
  }
  writer.kill();
  p->look_after();
  ASSERT_TRUE(p->buffer().is_gone());
  source = must(p->buffer().source(0));
  Books after;
  while (!source->ended() && sys::now_ns() < deadline) after.take(*source);
  EXPECT_GT(after.read, 0u);
  EXPECT_EQ(source->counters().written, after.read + after.lost);
}

TEST_P(RemoteProcess, AWriterMayBeKilledAtAnyMoment) {
  const char* const seconds = std::getenv("RINGSIDE_TEST_SECONDS");
  const int rounds = seconds != nullptr && std::atof(seconds) < 20 ? 40 : 500;
  u64 events = 0, recovered = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string path = fresh_path();
    WriterProcess writer(path);
    auto p = attach(path, GetParam(), 2s, round % 3 == 0 ? 4096 * 2 : 64 << 10);
    auto source = must(p->buffer().source(0));
    must(p->enable(true));
    Books books;
    const u64 until = sys::now_ns() + 200'000 * static_cast<u64>(round % 23);
    while (sys::now_ns() < until) books.take(*source, 1 + round % 5);
    writer.kill();
    const u64 before = books.read;
    const u64 deadline = sys::now_ns() + hang_ns;
    while (!source->ended() && sys::now_ns() < deadline) books.take(*source);
    ASSERT_TRUE(source->ended()) << books.error;
    ASSERT_FALSE(books.torn) << round;
    const Counters c = source->counters();
    ASSERT_EQ(c.read, books.read) << round;
    ASSERT_EQ(c.written, c.read + c.overrun + c.unread);
    ASSERT_EQ(c.unread, 0u);
    ASSERT_EQ(c.overrun, books.lost) << round;
    events += books.read;
    recovered += books.read - before;
  }
  RecordProperty("events", std::to_string(events));
  EXPECT_GT(recovered, 0u);
}

TEST_P(RemoteProcess, ARestartedWriterIsAttachedAnew) {
  const std::string path = fresh_path();
  for (int life = 0; life < 3; ++life) {
    WriterProcess writer(path, 1000);
    for (int reader = 0; reader < 2; ++reader) {  // and a reader may come again
      auto p = attach(path, GetParam());
      auto source = must(p->buffer().source(0));
      if (reader != 0) continue;
      must(p->enable(true));
      Books books;
      const u64 deadline = sys::now_ns() + hang_ns;
      while (books.read < 1000 && sys::now_ns() < deadline) books.take(*source);
      EXPECT_EQ(books.read, 1000u);
      EXPECT_FALSE(books.torn);
    }
  }
}

TEST(RemoteProcesses, AWriterRefusesAClockThatItsProcessorDoesNotHave) {
  const std::string path = fresh_path();
  ProcessWriter<> writer({path, {}});
  Process::Options options;
  options.buffer.clock.kind = is_instruction(ClockKind::tsc) ? ClockKind::cntvct : ClockKind::tsc;
  const auto refused = Process::attach(path, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code.value(), EOPNOTSUPP);
  EXPECT_THAT(refused.error().sentence, HasSubstr("does not have the clock"));
  EXPECT_EQ(writer.ring(0), nullptr);
  options.buffer.clock.kind = ClockKind::mono;
  auto next = Process::attach(path, options);
  while (!next && next.error().code.value() == EBUSY) next = Process::attach(path, options);  // the first one is not gone yet
  EXPECT_TRUE(next) << "its next reader may ask for another";
}

TEST(RemoteProcesses, DisabledMeansThatNothingIsWritten) {
  const std::string path = fresh_path();
  WriterProcess writer(path);
  auto p = attach(path);
  for (int round = 0; round < 20; ++round) {
    must(p->enable(true));
    usleep(500);
    for (auto off = p->enable(false); !off; off = p->enable(false))
      ASSERT_EQ(off.error().code.value(), EBUSY) << off.error().sentence;  // it stands still in the middle of an event
    const u64 at_rest = p->buffer().counters(0).written;
    usleep(500);
    EXPECT_EQ(p->buffer().counters(0).written, at_rest);
  }
}

TEST(RemoteProcesses, AMissingWriterIsAnError) {
  auto p = Process::attach("/tmp/ringside-nobody", {});
  ASSERT_FALSE(p.has_value());
  EXPECT_THAT(p.error().sentence, HasSubstr("no external writer listens"));
}

// Readers by hand, for actions that Process would not take.
Request request(Ask ask, u64 argument = 0) { return {message_magic, ask, 1, 0, argument, 0}; }

// The writer lays out the files of a region by their sizes: a file that grew meanwhile would cover other mappings there.
TEST(RemoteProcesses, MemoryThatCouldChangeItsSizeIsRefused) {
  const std::string path = fresh_path();
  ProcessWriter<> writer({path, {}});
  Plan plan;
  plan.clock = static_cast<u32>(ClockKind::mono);
  plan.nr_pages = 3;
  std::vector<u64> blob(plan.descriptor_bytes() / 8);
  pack(plan, blob.data());
  for (const auto& [seals, error] :
       {std::pair{0, EPERM},
        {F_SEAL_SHRINK, EPERM},
        {F_SEAL_GROW, EPERM},
        {F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, EPERM},
        {F_SEAL_SHRINK | F_SEAL_GROW | 0x10, EPERM},  // F_SEAL_FUTURE_WRITE
        {F_SEAL_SHRINK | F_SEAL_GROW, 0}}) {
    const sys::Fd reader = connected(path), descriptor(memfd_create("descriptor", MFD_CLOEXEC)),
                  region(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(write(descriptor.get(), blob.data(), blob.size() * 8), static_cast<ssize_t>(blob.size() * 8));
    ASSERT_EQ(ftruncate(region.get(), static_cast<off_t>(plan.region_bytes())), 0);
    ASSERT_EQ(fcntl(region.get(), F_ADD_SEALS, seals), 0);
    Request q = request(Ask::attach, 1);
    const int files[] = {descriptor.get(), region.get()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
    iovec part{&q, sizeof q};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof files);
    std::memcpy(CMSG_DATA(c), files, sizeof files);
    ASSERT_EQ(sendmsg(reader.get(), &m, 0), static_cast<ssize_t>(sizeof q));
    Answer a{};
    ASSERT_EQ(recv(reader.get(), &a, sizeof a, 0), static_cast<ssize_t>(sizeof a));
    EXPECT_EQ(a.error, error) << seals;
  }
}

// The program's side of the optional requests: its answers to them, and the calls that reach it.
TEST(RemoteProcesses, AProgramWritesAndSwitchesOnRequest) {
  const std::string path = fresh_path();
  std::vector<std::pair<u32, std::string>> texts;
  std::vector<std::pair<u32, bool>> switched;
  std::mutex lock;  // the service works on after a connection's end
  int answer = 0;
  std::unique_ptr<ProcessWriter<>> writer;
  writer = std::make_unique<ProcessWriter<>>(
      ProcessOptions{.path = path,
                     .events = {{7, "app", "tick", "name: tick"}, {8, "app", "tock", "name: tock"}},
                     .write =
                         [&](u32 ring, std::string_view text) {
                           texts.emplace_back(ring, text);
                           return answer;
                         },
                     .switch_event =
                         [&](u32 id, bool on) {
                           const std::lock_guard locked(lock);
                           switched.emplace_back(id, on);
                           return answer;
                         }});
  ASSERT_EQ(writer->error(), 0);
  const auto error = [](const result<void>& done) { return done ? 0 : done.error().code.value(); };
  const auto offer = must(Process::offer_at(path, 20s));
  EXPECT_TRUE(offer.can_write && offer.can_switch_events);
  EXPECT_EQ(offer.events.size(), 2u);
  {
    auto p = attach(path);
    EXPECT_TRUE(p->offer().can_write && p->offer().can_switch_events);
    const std::string odd("a\0\n\xFF", 4), longest(most_text, 'x');
    must(p->write(0, odd));
    must(p->write(0, ""));
    must(p->write(0, longest));
    EXPECT_EQ(error(p->write(0, longest + "x")), EMSGSIZE);
    EXPECT_EQ(error(p->write(1, "x")), ENODEV) << "no such ring";
    EXPECT_EQ(texts, (std::vector<std::pair<u32, std::string>>{{0, odd}, {0, ""}, {0, longest}}));
    must(p->switch_event(1, false));
    must(p->switch_event(0, false));
    must(p->switch_event(0, true));
    EXPECT_EQ(error(p->switch_event(2, false)), ENOENT);
    EXPECT_EQ(switched, (std::vector<std::pair<u32, bool>>{{8, false}, {7, false}, {7, true}}));
    for (const auto& [given, got] : {std::pair{EINVAL, EINVAL}, {-5, EIO}, {4096, EIO}}) {
      answer = given;
      EXPECT_EQ(error(p->write(0, "x")), got);
      EXPECT_EQ(error(p->switch_event(0, false)), got);
    }
    answer = 0;
    must(p->enable(true));  // none of that has ended the connection
    const std::lock_guard locked(lock);
    switched.clear();
  }
  // The next reader finds all events on.
  auto next = attach(path);
  const std::lock_guard locked(lock);
  EXPECT_EQ(switched, (std::vector<std::pair<u32, bool>>{{8, true}}));
}

TEST(RemoteProcesses, ABusyReaderKeepsNobodyElseWaiting) {
  const std::string path = fresh_path();
  std::atomic<bool> waits{false}, answered{false}, starved{false};
  std::atomic<int> calls{0};
  const auto slow = [&](u32, std::string_view) {
    usleep(20000);
    if (!waits || ++calls != 10) return 0;
    for (int i = 0; i < 60'000 && !answered; ++i) usleep(1000);  // ten requests are longer than a glance: it has come
    starved = !answered;
    return 0;
  };
  ProcessWriter<> writer({path, {}, slow});
  auto p = attach(path);
  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over) (void)p->write(0, "x");
  });
  const sys::Fd second = connected(path);
  waits = true;
  Answer a{};
  EXPECT_EQ(recv(second.get(), &a, sizeof a, 0), static_cast<ssize_t>(sizeof a));
  EXPECT_EQ(a.error, EBUSY);
  answered = over = true;
  busy.join();
  EXPECT_FALSE(starved);
}

// A reader brings as many rings as the writer says that it has. Events for further rings are counted as these are asked for.
TEST(RemoteProcesses, RingsThatAreNotBroughtAreCounted) {
  const std::string path = fresh_path();
  ProcessOptions options{path, {}};
  for (const u32 told : {0u, 3u}) {
    options.rings = told;
    ProcessWriter<> writer(options);
    ASSERT_EQ(writer.error(), 0);
    Process::Options all;
    all.buffer.rings = 0;
    all.patience = 20s;
    {
      const auto p = must(Process::attach(path, all));
      EXPECT_EQ(p->buffer().plan().nr_rings, std::max(told, 1u));
      Account account;
      p->add_not_brought(account);
      EXPECT_TRUE(account.none_lost());
      EXPECT_NE(writer.ring(0), nullptr);
      for (int n = 0; n < 7; ++n) EXPECT_EQ(writer.ring(4), nullptr);
      p->add_not_brought(account);
      EXPECT_EQ(account.refused[Refusal::not_brought], 7u);
      EXPECT_FALSE(account.exact()) << "an event that the program does not even begin is not counted";
    }
    while (writer.ring(0) != nullptr) usleep(1000);  // until it has detached
    all.buffer.rings = 1;
    const auto p = must(Process::attach(path, all));
    Account account;
    p->add_not_brought(account);
    EXPECT_EQ(account.refused.sum(), 0u) << "they are this reader's";
    EXPECT_EQ(account.exact(), told == 0);
  }
}

// Each try is read, lost or refused: as told by a swap, by the writer's last word at its end, and not at all.
TEST_P(RemoteProcess, RefusedEventsReachTheReader) {
  const std::string path = fresh_path();
  auto writer = std::make_unique<ProcessWriter<ProcessClock, Nesting::none>>(ProcessOptions{path, {}});
  auto p = attach(path, GetParam());
  auto source = must(p->buffer().source(0));
  auto* const ring = writer->ring(0);
  Event e{1, 0};
  const std::vector<u8> big(ring->ring().geometry.largest_payload() + 1);
  const auto write = [&](u64 good, u64 too_big, u64 nested) {
    for (; good != 0; --good, ++e.number) EXPECT_TRUE(ring->write(&e, sizeof e));
    for (; too_big != 0; --too_big) EXPECT_FALSE(ring->write(big.data(), static_cast<u32>(big.size())));
    const Reservation open = ring->reserve(sizeof e);
    ASSERT_TRUE(open);
    for (; nested != 0; --nested) EXPECT_FALSE(ring->write(&e, sizeof e));
    std::memcpy(open.payload, &e, sizeof e);
    ring->commit(open);
    ++e.number;
  };
  EXPECT_FALSE(ring->write(big.data(), static_cast<u32>(big.size())));  // disabled: nothing is missing
  must(p->enable(true));
  write(10, 3, 2);
  Books books;
  books.take(*source);
  EXPECT_FALSE(ring->write(big.data(), static_cast<u32>(big.size())));
  must(p->enable(false));
  p->buffer().ask_again();
  EXPECT_EQ(source->counters().refusals, Refusals::at_least) << "it has not answered yet";
  books.take(*source);
  EXPECT_EQ(books.read, 11u);
  EXPECT_EQ(source->counters().dropped, 6u);
  EXPECT_EQ(source->counters().refusals, Refusals::in_sum);
  must(p->enable(true));
  write(1, 4, 0);
  EXPECT_EQ(ring->refused(), 10u);
  writer.reset();
  for (u64 k = 0; k < 20'000 && !source->ended(); ++k) {
    p->look_after();
    if (!books.take(*source)) usleep(1000);
  }
  EXPECT_EQ(books.read + books.lost, 13u);
  EXPECT_EQ(source->counters().dropped, 10u);
  EXPECT_EQ(p->buffer().refused(), 10u);
  EXPECT_EQ(source->counters().refusals, Refusals::in_sum);
}

TEST_P(RemoteProcess, AKilledWritersRefusedEventsAreNotKnown) {
  const std::string path = fresh_path();
  WriterProcess writer(path, 100);
  auto p = attach(path, GetParam());
  auto source = must(p->buffer().source(0));
  must(p->enable(true));
  Books books;
  while (books.read < 100) books.take(*source);
  EXPECT_EQ(source->counters().refusals, Refusals::in_sum);
  writer.kill();
  for (u64 k = 0; k < 20'000 && !source->ended(); ++k) {
    p->look_after();
    if (!books.take(*source)) usleep(1000);
  }
  EXPECT_EQ(source->counters().refusals, Refusals::at_least);
}

// A text that was cut would give another event than the program wrote.
TEST(RemoteProcesses, AnEventThatDoesNotFitIsRefused) {
  const std::string path = fresh_path();
  const auto error = [&](const ProcessEvent& e) { return ProcessWriter<>({path, {e}}).error(); };
  EXPECT_EQ(error({1, std::string(64, 's'), "e", ""}), E2BIG);
  EXPECT_EQ(error({1, "s", std::string(64, 'n'), ""}), E2BIG);
  EXPECT_EQ(error({1, "s", "n", std::string(format_room, 'f')}), E2BIG);
  EXPECT_EQ(error({1, "s", "n", std::string("f\0g", 3)}), E2BIG);
  EXPECT_EQ(ProcessWriter<>({path, std::vector<ProcessEvent>(remote::most_events + 1, {1, "s", "n", ""})}).error(), E2BIG);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  const ProcessEvent longest{1, std::string(63, 's'), std::string(63, 'n'), std::string(format_room - 1, 'f')};
  ProcessWriter<> writer({path, {longest}});
  ASSERT_EQ(writer.error(), 0);
  const auto p = attach(path);
  EXPECT_EQ(p->events()[0].system, longest.system);
  EXPECT_EQ(p->events()[0].name, longest.name);
  EXPECT_EQ(p->events()[0].format, longest.format);
}

TEST(RemoteProcesses, AWriterMayLackTheOptionalRequests) {
  const std::string path = fresh_path();
  ProcessWriter<> writer({path, {{1, "app", "tick", "name: tick"}}});
  const auto offer = must(Process::offer_at(path, 20s));
  EXPECT_FALSE(offer.can_write || offer.can_switch_events);
  auto p = attach(path);
  for (const auto& done : {p->write(0, "x"), p->switch_event(0, false)}) {
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code.value(), EOPNOTSUPP);
  }
  must(p->enable(true));
}

TEST(RemoteProcesses, TextsOfAnotherLengthThanTheyClaimEndTheConnection) {
  const std::string path = fresh_path();
  int calls = 0;
  ProcessWriter<> writer(
      {.path = path, .events = {{1, "app", "tick", ""}}, .write = [&](u32, std::string_view) { return ++calls, 0; }});
  struct Case {
    Ask ask;
    u64 claimed;
    size_t sent;
    int error;  // -1: the connection ends
  };
  for (const Case& c : {Case{Ask::write, 5, 5, ENODEV},
                        {Ask::write, 5, 4, -1},
                        {Ask::write, 5, 6, -1},
                        {Ask::write, ~u64{0}, 8, -1},
                        {Ask::write, most_text, most_text, ENODEV},
                        {Ask::write, most_text + 1, most_text + 1, -1},
                        {Ask::event, 3, 3, -1},
                        {Ask::switch_event, 1, 0, ENODEV},
                        {Ask::switch_event, 1, 1, -1},
                        {static_cast<Ask>(10), 0, 0, -1}}) {
    const sys::Fd reader = connected(path);
    std::vector<char> packet(sizeof(Request) + c.sent, 'x');
    const Request q = request(c.ask, c.claimed);
    std::memcpy(packet.data(), &q, sizeof q);
    ASSERT_EQ(send(reader.get(), packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
    EventAnswer a{};
    const ssize_t n = recv(reader.get(), &a, sizeof a, 0);
    EXPECT_EQ(n <= 0 ? -1 : a.head.error, c.error) << static_cast<u32>(c.ask) << " " << c.claimed << " " << c.sent;
  }
  EXPECT_EQ(calls, 0) << "there are no rings";
}

// A reader that asks and never listens does not hold the writer's service, nor its end.
TEST(RemoteProcesses, AReaderThatDoesNotListenIsHungUpOn) {
  const std::string path = fresh_path();
  auto writer = std::make_unique<ProcessWriter<>>(ProcessOptions{path, {{1, "app", "tick", ""}}});
  sys::Fd reader = connected(path);
  const Request q = request(Ask::event);
  for (int full = 0; full < 300;) {
    if (send(reader.get(), &q, sizeof q, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof q) {
      full = 0;
      continue;
    }
    if (errno != EAGAIN) break;
    ++full;
    usleep(1000);
  }
  std::atomic<bool> over{false};
  std::thread end([&] {
    writer.reset();
    over = true;
  });
  for (int k = 0; k < 5000 && !over; ++k) usleep(1000);
  EXPECT_TRUE(over);
  reader = sys::Fd();
  end.join();
}

// The program's handlers write, and a ring has one thread.
TEST(RemoteProcesses, TheServiceThreadRunsNoHandlers) {
  static std::atomic<int> ran{0};
  struct sigaction action {}, before {};
  action.sa_handler = [](int) { ++ran; };
  sigaction(SIGUSR1, &action, &before);
  ProcessWriter<> writer({fresh_path(), {}});
  sigset_t one, mask;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &one, &mask);
  kill(getpid(), SIGUSR1);  // to any thread that takes it
  usleep(20000);
  EXPECT_EQ(ran, 0);
  timespec none{};
  EXPECT_EQ(sigtimedwait(&one, nullptr, &none), SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  sigaction(SIGUSR1, &before, nullptr);
}

// Any answer to any request: an error within the time, never a crash.
TEST(RemoteProcesses, FalseAnswersAreErrorsInTime) {
  u64 seed = 7;
  const auto random = [&] { return seed = seed * 6364136223846793005 + 1442695040888963407, seed >> 33; };
  for (int round = 0; round < 300; ++round) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const u64 way = random();
    std::thread liar([fd = pair[1], way] {
      u64 state = way;
      const auto draw = [&] { return state = state * 6364136223846793005 + 1442695040888963407, state >> 33; };
      for (;;) {
        TextRequest asked{};
        const Request& q = asked.head;
        const ssize_t n = recv(fd, &asked, sizeof asked, 0);
        if (n <= 0) break;
        EventAnswer a{};
        a.head = {message_magic, q.ask, q.sequence, 0, 0, 0, 0};
        size_t size = q.ask == Ask::event || q.ask == Ask::ring_name ? sizeof a : sizeof a.head;
        if (q.ask == Ask::attach) a.head.argument = way % 3;
        if (q.ask == Ask::event) a.head.argument = 1;
        if (q.ask == Ask::attach || q.ask == Ask::event) a.head.id = static_cast<u32>(way / 4);
        if (draw() % 4 == 0) {
          switch (draw() % 7) {
            case 0: a.head.magic = static_cast<u32>(draw()); break;
            case 1: a.head.sequence += 1; break;
            case 2: a.head.error = static_cast<i32>(draw() % 10000) - 3000; break;
            case 3: size = draw() % sizeof a; break;
            case 4: a.head.argument = draw(); break;
            case 5: std::memset(a.name, 'x', sizeof a.name + sizeof a.format); break;
            default:
              a.head.ask = static_cast<Ask>(draw() % 13);
              break;
          }
        }
        if (draw() % 16 == 0) break;
        if (q.ask == Ask::swap) {
          a.head.argument = draw() % 5;
          a.head.id = static_cast<u32>(draw() % 80);
        }
        if (draw() % 40 != 0) (void)!send(fd, &a, size, MSG_NOSIGNAL);
      }
      close(fd);
    });
    {
      Process::Options options;
      options.patience = 20ms;
      options.buffer.layout = way % 2 == 0 ? Layout::footers : Layout::meta_page;
      auto p = Process::over(sys::Fd(pair[0]), "liar", options);
      if (p) {
        auto source = must((*p)->buffer().source(0));
        (void)(*p)->enable(true);
        for (int n = 0; n < 20; ++n) {
          auto view = source->next();
          if (!view) { EXPECT_THAT(view.error().sentence, HasSubstr("liar")); }
          (void)(*p)->buffer().poke(0);
          if (auto done = (*p)->write(0, "text"); !done) { EXPECT_THAT(done.error().sentence, HasSubstr("liar")); }
          if (auto done = (*p)->switch_event(0, n % 2 == 0); !done) { EXPECT_THAT(done.error().sentence, HasSubstr("liar")); }
        }
        (void)source->counters();
      } else {
        EXPECT_THAT(p.error().sentence, HasSubstr("liar"));
      }
    }
    liar.join();
  }
}

// A writer that tells its last counts without end, instead of an answer or behind the last one that it reads.
TEST(RemoteProcesses, EndlessLastCountsAreAnErrorInTime) {
  for (const bool behind : {false, true}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    bool stopped = false;
    std::thread liar([fd = pair[1], behind, &stopped] {
      Request q{};
      while (recv(fd, &q, sizeof q, 0) > 0) {
        const Answer a{message_magic, q.ask, q.sequence, 0, 0, 0, 0}, last{message_magic, Ask::last, 0, 0, 0, 0, 1};
        const bool flood = q.ask == Ask::enable;
        if (!flood || behind) (void)!send(fd, &a, sizeof a, MSG_NOSIGNAL);
        if (!flood) continue;
        if (behind) shutdown(fd, SHUT_RD);
        const u64 until = sys::now_ns() + hang_ns;
        while (!stopped && sys::now_ns() < until) stopped = send(fd, &last, sizeof last, MSG_NOSIGNAL) < 0;
        break;
      }
      close(fd);
    });
    Process::Options options;
    options.patience = std::chrono::nanoseconds(hang_ns);
    auto p = must(Process::over(sys::Fd(pair[0]), "liar", options));
    auto source = must(p->buffer().source(0));
    const auto on = p->enable(true);
    EXPECT_EQ(on.has_value(), behind);
    if (!on) { EXPECT_THAT(on.error().sentence, HasSubstr("liar: it answers nonsense")); }
    const auto off = p->enable(false);
    EXPECT_FALSE(off);
    EXPECT_TRUE(p->buffer().is_gone());
    source.reset();
    p.reset();
    liar.join();
    EXPECT_TRUE(stopped) << "the reader goes on as long as the writer does";
  }
}

}  // namespace
}  // namespace ringside::test::remote_process_test
