// Served rings end to end: another process, another user, the kernel's steps, exact accounts.
#include <fcntl.h>
#include <sched.h>

#include "writer/cpu_rings.hpp"
#include "serve/serve_world.hpp"

namespace ringside::serve_test {
namespace {

using namespace std::chrono_literals;
using handout::Kind;
using test::Checker;
using test::Child;
using test::nobody;
using test::World;

struct Serve : World {};

#define NEEDS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user"

TEST_F(Serve, AnotherUserReadsAllEvents) {
  NEEDS_ROOT();
  create();
  written_by_the_dead(5000);
  ServerOptions o;
  o.uids = {nobody};
  Child server = serve(o);
  Child client([&] {
    REQUIRE_HERE(test::become_nobody());
    REQUIRE_HERE(access(path.c_str(), X_OK) != 0);
    auto served = open_served(socket);
    if (!served) std::fprintf(stderr, "%s\n", served.error().sentence.c_str());
    REQUIRE_HERE(served && served->sources.size() == 1);
    REQUIRE_HERE(served->name == "inst");
    bool known = false;
    for (const EventInfo& e : served->events)
      known = known || (e.system == "serve_test" && e.name == "step" && e.enabled &&
                        e.format.find("field:u64 twice;") != std::string::npos);
    REQUIRE_HERE(known);
    Source& source = *served->sources[0];
    Checker check;
    const bool good = check.drain(source);
    if (!good) std::fprintf(stderr, "%s\n", check.wrong.c_str());
    REQUIRE_HERE(good && check.events == 5000 && check.lost == 0);
    REQUIRE_HERE(!*source.next() && source.ended());
    const Counters n = source.counters();
    REQUIRE_HERE(n.written == 5000 && n.read == 5000 && n.unread == 0);
    REQUIRE_HERE(source.name().pid > 0 && source.clock().to_ns(1) != 0);
  });
  EXPECT_EQ(client.join(), 0);
}

// What a client must know to say that nothing is missing: the counters of rings that it can no longer open.
TEST_F(Serve, RingsThatGaveTheirMemoryBackAreCounted) {
  create();
  written_by_the_dead(100);
  EXPECT_FALSE(is_served(socket));
  {
    Child server = serve();
    EXPECT_TRUE(is_served(socket));
    const auto served = must(open_served(socket));
    EXPECT_EQ(must(served.connection->counters(std::nullopt)).written, 0u);
    EXPECT_EQ(must(served.connection->counters(0)).written, 100u);
    Checker check;
    EXPECT_TRUE(check.drain(*served.sources[0])) << check.wrong;
    EXPECT_FALSE(served.connection->counters(7));
  }
  auto instance = must(Instance::open(path));
  (void)instance->trim(false);
  EXPECT_EQ(instance->past().rings, 1u);
  instance.reset();
  Child server = serve();
  const auto served = must(open_served(socket));
  EXPECT_TRUE(served.sources.empty());
  const Counters past = must(served.connection->counters(std::nullopt));
  EXPECT_EQ(past.written, 100u);
  EXPECT_EQ(past.read, 100u);
}

TEST_F(Serve, TheDescriptorIsReadOnlyForGood) {
  create();
  written_by_the_dead(10);
  ServerOptions o;
  o.uids = {nobody};
  Child server = serve(o);
  Child client([&] {
    const bool other_user = test::become_nobody();
    auto to = ServedConnection::connect(socket);
    REQUIRE_HERE(to);
    handout::RingAnswer a;
    sys::Fd file;
    REQUIRE_HERE((*to)->ask(Kind::open_ring, 0, &a, sizeof a, &file));
    const int fd = file.get();
    REQUIRE_HERE(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    void* const at = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    REQUIRE_HERE(at != MAP_FAILED);
    REQUIRE_HERE(mprotect(at, 4096, PROT_READ | PROT_WRITE) != 0 && errno == EACCES);
    REQUIRE_HERE(ftruncate(fd, 0) != 0);
    REQUIRE_HERE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
    REQUIRE_HERE(::write(fd, "x", 1) != 1 && pwrite(fd, "x", 1, 0) != 1);
    const std::string again = "/proc/self/fd/" + std::to_string(fd);
    if (other_user) {
      REQUIRE_HERE(::open(again.c_str(), O_RDWR) < 0 && errno == EACCES);
      REQUIRE_HERE(::open(again.c_str(), O_WRONLY) < 0 && errno == EACCES);
      REQUIRE_HERE(truncate(again.c_str(), 0) != 0 && errno == EACCES);
      REQUIRE_HERE(fchmod(fd, 0666) != 0 && errno == EPERM);
    }
  });
  EXPECT_EQ(client.join(), 0);
  struct stat st {};
  ASSERT_EQ(stat((path + "/per_cpu/cpu0/trace_pipe_raw").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_GT(st.st_size, 1 << 20);
  // A file that others may write to could be opened anew through /proc: it is not handed out.
  ASSERT_EQ(chmod((path + "/per_cpu/cpu0/trace_pipe_raw").c_str(), 0666), 0);
  auto to = must(ServedConnection::connect(socket));
  auto source = served_source(to, 0);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, std::errc::operation_not_permitted);
}

TEST_F(Serve, OnlyAllowedUsersAndGroups) {
  NEEDS_ROOT();
  create();
  const auto as_nobody = [&](ServerOptions o) {
    o.mode = 0666;
    Child server = serve(o);
    return Child([&] {
             REQUIRE_HERE(test::become_nobody());
             auto served = open_served(socket);
             if (served) _exit(0);
             _exit(served.error().code == std::errc::permission_denied ? 13 : 1);
           })
        .join();
  };
  EXPECT_EQ(as_nobody({}), 13);
  ServerOptions o;
  o.gids = {12345};
  EXPECT_EQ(as_nobody(o), 13);
  o.gids = {nobody};
  EXPECT_EQ(as_nobody(o), 0);
  struct stat st {};
  Child server = serve();
  ASSERT_EQ(stat(socket.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

// kernel-facts, GET_READER, and the kernel's map_test.
TEST_F(Serve, GetReaderStepsMatchTheKernels) {
  create(1 << 16);
  Child writer = this->writer([&] {
    for (u64 n = 0;; ++n) {
      REQUIRE_HERE(shared.reaches(go, n + 1));
      write(n * 16, n * 16 + 16);
    }
  });
  shared.set(go, 1);
  ASSERT_TRUE(shared.reaches(written, 16));
  Child server = serve();
  auto to = must(ServedConnection::connect(socket));
  handout::ReaderAnswer a;
  auto unmapped = to->ask(Kind::get_reader, 0, &a, sizeof a);
  ASSERT_FALSE(unmapped);
  EXPECT_EQ(unmapped.error().code.value(), ENODEV);
  handout::RingAnswer ring;
  sys::Fd file;
  ASSERT_TRUE(to->ask(Kind::open_ring, 0, &ring, sizeof ring, &file));
  EXPECT_EQ(ring.reader_id, 0u);
  EXPECT_EQ(ring.reader_read, 0u);
  auto region = must(sys::Region::map(file.get(), Geometry(ring.subbuf_size, ring.nr_subbufs).data_size(), false, "ring"));
  const auto& m = *reinterpret_cast<const abi::MetaPage*>(region.data());
  EXPECT_EQ(m.meta_page_size, 4096u);
  EXPECT_EQ(m.meta_struct_len, 80u);
  EXPECT_EQ(m.subbuf_size, 4096u);
  EXPECT_EQ(m.nr_subbufs, ring.nr_subbufs);
  const auto step = [&] {
    EXPECT_TRUE(to->ask(Kind::get_reader, 0, &a, sizeof a));
    // After the call the meta-page is up to date.
    EXPECT_EQ(m.reader.id, a.id);
    EXPECT_EQ(m.reader.read, a.read);
    EXPECT_EQ(m.entries, a.entries);
    EXPECT_EQ(m.read, a.read_events);
    EXPECT_EQ(m.overrun, a.overrun);
    EXPECT_EQ(m.reader.lost_events, 0u);
  };
  for (int i = 0; i < 2; ++i) {
    step();
    EXPECT_EQ(a.id, 1u);
    EXPECT_EQ(a.entries, 16u);
    EXPECT_EQ(a.read_events, 16u);
    EXPECT_EQ(a.overrun, 0u);
  }
  shared.set(go, 2);
  ASSERT_TRUE(shared.reaches(written, 32));
  step();  // takes the rest of the same sub-buffer
  EXPECT_EQ(a.id, 1u);
  EXPECT_EQ(a.read_events, 32u);
  shared.set(go, 20);
  ASSERT_TRUE(shared.reaches(written, 320));
  step();  // the rest of it
  EXPECT_EQ(a.id, 1u);
  step();  // one swap
  EXPECT_EQ(a.id, 2u);
  auto again = to->ask(Kind::open_ring, 0, &ring, sizeof ring, &file);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code.value(), EALREADY);
}

TEST_F(Serve, FullSpeedWithExactAccounts) {
  for (const bool overwrite : {true, false}) {
    TearDown();
    SetUp();
    create(1 << 17, 4096, overwrite);
    shared.set(go, 0);
    const u64 total = 300000;
    Child writer = this->writer([&] {
      ::serve_test::step(0, 0);
      REQUIRE_HERE(shared.reaches(go, 1));
      for (u64 i = 1; i < total; ++i) ::serve_test::step(i, 2 * i);
    });
    while (true) {
      auto i = Instance::open(path);
      if (i && !(*i)->rings().empty() && (*i)->rings()[0].counters.written == 1) break;
      usleep(1000);
    }
    Child server = serve();
    auto served = must(open_served(socket));
    ASSERT_EQ(served.sources.size(), 1u);
    Source& source = *served.sources[0];
    shared.set(go, 1);
    u64 events = 0, lost = 0;
    Checker check;
    bool ended = false;
    while (!ended) {
      ended = source.ended();
      if (overwrite) {
        ASSERT_TRUE(check.drain(source)) << check.wrong;
        continue;
      }
      for (;;) {  // refused events leave no gap in the ring's own count: only the sums can be checked
        auto view = must(source.next());
        if (!view) break;
        lost += view->lost_before;
        abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
        while (c.next()) ++events;
      }
    }
    EXPECT_EQ(writer.join(), 0);
    const Counters n = source.counters();
    EXPECT_EQ(n.unread, 0u);
    EXPECT_EQ(n.written, n.read + n.overrun);
    if (overwrite) {
      EXPECT_EQ(n.written, total);
      EXPECT_EQ(check.events + check.lost, total);
      EXPECT_EQ(check.lost, n.overrun);
    } else {
      EXPECT_EQ(lost, 0u);
      EXPECT_EQ(events, n.written);
      EXPECT_EQ(n.written + n.dropped, total);
    }
  }
}

// Two processes, one after the other, on one CPU: one ring.
TEST_F(Serve, CpuRingsAreHandedOutLikeThreadRings) {
  if (why_not_cpu_rings() != RingsBecause::can) GTEST_SKIP() << "no rings of CPUs here";
  create(1 << 20, 4096, true, Rings::cpu);
  const auto pinned = [&](u64 from, u64 to) {
    return writer([=, this] {
             cpu_set_t first;
             CPU_ZERO(&first);
             CPU_SET(0, &first);
             REQUIRE_HERE(sched_setaffinity(0, sizeof first, &first) == 0);
             write(from, to);
           }).join();
  };
  ASSERT_EQ(pinned(0, 20000), 0);
  Child server = serve();
  auto served = must(open_served(socket));
  ASSERT_EQ(served.sources.size(), possible_cpus());
  Source& source = *served.sources[0];
  EXPECT_EQ(source.name().cpu, 0);
  Checker check;
  ASSERT_TRUE(check.drain(source)) << check.wrong;
  ASSERT_EQ(pinned(20000, 100000), 0);
  ASSERT_TRUE(check.drain(source)) << check.wrong;
  EXPECT_EQ(check.events + check.lost, 100000u);
  EXPECT_FALSE(source.ended());
  const Counters n = source.counters();
  EXPECT_EQ(n.written, 100000u);
  EXPECT_EQ(n.read, check.events);
  EXPECT_EQ(n.overrun, check.lost);
  EXPECT_EQ(n.unread, 0u);
}

TEST_F(Serve, LossesAreReportedWhereTheyHappened) {
  create(1 << 14);
  written_by_the_dead(3000);
  Child server = serve();
  auto served = must(open_served(socket));
  Checker check;
  ASSERT_TRUE(check.drain(*served.sources[0])) << check.wrong;
  EXPECT_GT(check.lost, 1000u);
  EXPECT_EQ(check.lost + check.events, 3000u);
  EXPECT_EQ(served.sources[0]->counters().overrun, check.lost);
}

TEST_F(Serve, SeveralMappersSeeEverythingBetweenThem) {
  create(1 << 20);
  const u64 total = 20000;
  Child writer = this->writer([&] {
    write(0, total);
    REQUIRE_HERE(shared.reaches(go, 1));
  });
  ASSERT_TRUE(shared.reaches(written, 1));
  Child server = serve();
  const auto client = [&] {
    auto served = open_served(socket);
    REQUIRE_HERE(served && served->sources.size() == 1);
    bool ended = false;
    while (!ended) {
      ended = served->sources[0]->ended();
      for (;;) {
        auto view = served->sources[0]->next();
        REQUIRE_HERE(view);
        if (!*view) break;
        abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
        while (c.next()) {
          u64 value = 0;
          std::memcpy(&value, c.payload().data + 8, 8);
          if (value < total) shared.add(first_free + static_cast<u32>(value), 1);
        }
      }
    }
  };
  std::vector<Child> clients;
  for (int i = 0; i < 3; ++i) clients.emplace_back(client);
  ASSERT_TRUE(shared.reaches(written, total));
  shared.set(go, 1);
  for (Child& c : clients) EXPECT_EQ(c.join(), 0);
  for (u64 i = 0; i < total; ++i) ASSERT_GE(shared.get(first_free + static_cast<u32>(i)), 1u) << i;
  EXPECT_TRUE(mapped_becomes(0));
}

TEST_F(Serve, WaitSleepsUntilThereIsSomething) {
  create(1 << 16);
  Child writer = this->writer([&] {
    write(0, 1);
    REQUIRE_HERE(shared.reaches(go, 1));
    usleep(50000);
    write(1, 2);
    REQUIRE_HERE(shared.reaches(go, 2));
    write(2, 1800);
    pause();
  });
  ASSERT_TRUE(shared.reaches(written, 1));
  Child server = serve();
  auto served = must(open_served(socket));
  Checker check;
  ASSERT_TRUE(check.drain(*served.sources[0]));
  EXPECT_FALSE(must(served.wait(0, 30ms)));
  shared.set(go, 1);
  EXPECT_TRUE(must(served.wait(0, 10s)));
  ASSERT_TRUE(check.drain(*served.sources[0]));
  EXPECT_EQ(check.events, 2u);
  EXPECT_FALSE(must(served.wait(50, 30ms)));
  shared.set(go, 2);
  EXPECT_TRUE(must(served.wait(50, 10s)));
  EXPECT_FALSE(served.wait(101, 1s));
}

TEST_F(Serve, SocketsThatCannotBeMade) {
  create();
  ServerOptions o;
  o.instance = path;
  o.socket = path + "/gate";
  auto in_the_way = Server::create(o);
  ASSERT_FALSE(in_the_way);
  EXPECT_EQ(in_the_way.error().code, std::errc::file_exists);
  o.socket = dir / "none" / "socket";
  EXPECT_FALSE(Server::create(o));
  o.socket = dir / std::string(120, 'd') / "socket";  // longer than a socket's address: opened through its directory
  std::filesystem::create_directories(dir / std::string(120, 'd'));
  {
    auto made = Server::create(o);
    ASSERT_TRUE(made) << made.error().sentence;
    EXPECT_TRUE(std::filesystem::exists(o.socket));
  }
  EXPECT_FALSE(std::filesystem::exists(o.socket));
  auto nobody_there = open_served(socket);
  ASSERT_FALSE(nobody_there);
  EXPECT_NE(nobody_there.error().sentence.find("nobody serves"), std::string::npos);
}

}  // namespace
}  // namespace ringside::serve_test
