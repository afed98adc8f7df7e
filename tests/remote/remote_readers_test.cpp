// External writers whose readers come and go, without end and under a process's limits.
#include <gmock/gmock.h>
#include <ringside/base/sanitizers.hpp>
#include <sys/resource.h>

#include <fstream>
#include <set>
#include <thread>

#include "refused_call.hpp"
#include "remote/writer_process.hpp"

namespace ringside::test::remote_process_test {
namespace {

using testing::HasSubstr;

class NextReader : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, NextReader, layouts, layout_name);

TEST(RemoteReaders, OneReaderAtATime) {
  const std::string path = fresh_path();
  WriterProcess writer(path, ~u64{0}, 1000);
  auto p = attach(path);
  auto second = Process::attach(path, {});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().sentence, HasSubstr("another reader"));
  p = nullptr;
  (void)attach(path);
}

long mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

// A thread writes all the time, also to the ring of a reader that has gone.
TEST_P(NextReader, TheNextReaderGetsWhatTheOneBeforeLeft) {
  const std::string path = fresh_path();
  ProcessWriter<> writer({path, {}});
  ASSERT_EQ(writer.error(), 0);
  u64 accepted = 0, written = 0;
  std::jthread thread([&](const std::stop_token& stop) {
    ProcessWriter<>::Writer* ring = nullptr;
    while (!stop.stop_requested()) {
      const Event e{1, accepted};
      if (ring != nullptr && ring->write(&e, sizeof e)) ++accepted;
      else if (auto* const now = writer.ring(0)) ring = now;
    }
  });
  std::set<void*> rings;
  long before = 0;
  for (int reader = 0; reader < 300; ++reader) {
    auto p = attach(path, GetParam());
    auto* const ring = writer.ring(0);
    ASSERT_NE(ring, nullptr);
    rings.insert(ring);
    if (reader % 3 != 0) {  // it never enables: nothing is written, and nothing refused that counts
      EXPECT_EQ(ring->refused(), 0u);
      continue;
    }
    auto source = must(p->buffer().source(0));
    Books books;
    books.next = written;
    must(p->enable(true));
    for (int k = 0; k < 50 || (reader == 0 && books.read == 0); ++k) books.take(*source, 3);  // on a busy machine, too
    for (auto off = p->enable(false); !off; off = p->enable(false))
      ASSERT_EQ(off.error().code.value(), EBUSY) << off.error().sentence;  // it stands still in the middle of an event
    while (books.take(*source)) {
    }
    const Counters c = source->counters();
    EXPECT_EQ(books.error, "");
    EXPECT_FALSE(books.torn);
    EXPECT_EQ(books.read, c.read);
    EXPECT_EQ(books.read + books.lost, c.written);
    written += c.written;
    if (reader == 30) before = mappings();
  }
  EXPECT_LT(rings.size(), 20u) << "others only where the thread stood still while it was being refused";
  EXPECT_LT(mappings(), before + 100);
  thread.request_stop();
  thread.join();
  EXPECT_GT(accepted, 0u);
  EXPECT_EQ(accepted, written);
}

TEST_P(NextReader, AnOpenEventKeepsTheMemoryOfItsReader) {
  const std::string path = fresh_path();
  ProcessWriter<> writer({path, {}});
  const auto write = [](auto& ring, u64 number) {
    const Event e{1, number};
    return ring.write(&e, sizeof e);
  };
  auto p = attach(path, GetParam());
  must(p->enable(true));
  auto* const first = writer.ring(0);
  ASSERT_TRUE(first != nullptr && write(*first, 0));
  const Reservation open = first->reserve(sizeof(Event));
  ASSERT_TRUE(open);
  std::memset(open.payload, 0, sizeof(Event));

  p = nullptr;
  p = attach(path, GetParam());
  must(p->enable(true));
  auto* const second = writer.ring(0);
  EXPECT_NE(second, first);
  std::memset(open.payload, 1, sizeof(Event));
  first->commit(open);
  EXPECT_FALSE(write(*first, 1));
  EXPECT_TRUE(write(*second, 0));
  Books books;
  books.take(*must(p->buffer().source(0)));
  EXPECT_EQ(books.read, 1u);

  p = nullptr;
  p = attach(path, GetParam());
  must(p->enable(true));
  ASSERT_EQ(writer.ring(0), first) << "its event has ended";
  for (u64 number = 0; number < 100'000; ++number) ASSERT_TRUE(write(*first, number));
  Books again;
  again.take(*must(p->buffer().source(0)));
  EXPECT_FALSE(again.torn);
  EXPECT_EQ(again.read + again.lost, 100'000u);
}

#if !RINGSIDE_SANITIZED  // a sanitizer's run-time takes more addresses than that
// Addresses that wait for a reader are given up for another one's.
TEST(RemoteReaders, ReadersOfEverDifferentSizesFitIntoALimitOfAddresses) {
  const std::string path = fresh_path();
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit limit{2ul << 30, 2ul << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    ProcessWriter<> writer({path, {}});
    for (;;) pause();
  }
  for (u64 reader = 0; reader < 12; ++reader) {
    const u64 size = (256 + reader) << 20;
    EXPECT_TRUE(attach(path, Layout::meta_page, 20s, size)) << reader;
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  unlink(path.c_str());
}
#endif

// Without the fence no ring is known to be quiet: nothing is unmapped or used again under the thread that writes.
TEST(RemoteReaders, AWriterWhoseSandboxRefusesTheFenceKeepsWhatItWritesTo) {
  const std::string path = fresh_path();
  const pid_t pid = fork();
  if (pid == 0) {
    if (!test::refuse_call(SYS_membarrier, ENOSYS)) _exit(1);
    ProcessWriter<> writer({path, {}});
    ProcessWriter<>::Writer* ring = nullptr;
    for (u64 number = 0;;) {
      const Event e{1, number};
      if (ring != nullptr && ring->write(&e, sizeof e)) ++number;
      else if (auto* const now = writer.ring(0); now != ring && now != nullptr) ring = now, number = 0;
    }
  }
  for (int reader = 0; reader < 5; ++reader) {
    auto p = attach(path);
    auto source = must(p->buffer().source(0));
    must(p->enable(true));
    Books books;
    while (books.read + books.lost < 1000) books.take(*source, 3);
    EXPECT_FALSE(books.torn);
    const auto off = p->enable(false);
    ASSERT_FALSE(off);
    EXPECT_EQ(off.error().code.value(), EBUSY) << off.error().sentence;
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, WNOHANG), 0) << status;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  unlink(path.c_str());
}

// What a thread may still look at stays, two mappings a ring; the program needs some of its own.
TEST(RemoteReaders, AWriterRefusesReadersBeforeItsMappingsAreUsedUp) {
  const std::string path = fresh_path();
  ProcessWriter<> writer({path, {}});
  Process::Options options;
  options.patience = std::chrono::minutes(1);  // under a sanitizer a thousand rings take seconds
  options.buffer.rings = 1024;
  options.buffer.subbuf_size = 4096;
  options.buffer.size = 8192;
  int readers = 0;
  for (;;) {
    auto next = Process::attach(path, options);
    if (next) {
      ++readers;
      --options.buffer.rings;  // other rings than those of the reader before
      continue;
    }
    if (next.error().code.value() == EBUSY) continue;  // the one before is not gone yet
    EXPECT_EQ(next.error().code.value(), ENOMEM);
    EXPECT_THAT(next.error().sentence, HasSubstr("restart it")) << next.error().sentence;
    break;
  }
  EXPECT_EQ(readers, 16);
}

}  // namespace
}  // namespace ringside::test::remote_process_test
