// Served rings, whole path: another process, another user, hostile peers, deaths on either side.
#include "serve_world.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace ringside {
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

sys::Fd raw(const std::string& path) {
  sys::Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strcpy(at.sun_path, path.c_str());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return sys::Fd();
  const timeval patience{10, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

handout::Request request(Kind kind, u32 ring = 0, u64 argument = 0) {
  return {handout::magic, handout::version, static_cast<u16>(kind), 7, ring, 0, 0, argument};
}

TEST_F(Serve, AnotherUserReadsWhatWasWritten) {
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
      known = known || (e.system == "serve_test" && e.name == "step" && e.enabled && e.format.find("field:u64 twice;") != std::string::npos);
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
TEST_F(Serve, GetReaderStepsAreTheKernels) {
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
  step();  // catches up on the same sub-buffer
  EXPECT_EQ(a.id, 1u);
  EXPECT_EQ(a.read_events, 32u);
  shared.set(go, 20);
  ASSERT_TRUE(shared.reaches(written, 320));
  step();  // what is left of it
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
      serve_test::step(0, 0);
      REQUIRE_HERE(shared.reaches(go, 1));
      for (u64 i = 1; i < total; ++i) serve_test::step(i, 2 * i);
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

TEST_F(Serve, LossesStandWhereTheyHappened) {
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
  Child writer = this->writer([&] { write(0, total); REQUIRE_HERE(shared.reaches(go, 1)); });
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

TEST_F(Serve, MappersAreCountedWhateverBecomesOfThem) {
  create();
  Child writer = this->writer([&] { write(0, 10); pause(); });
  ASSERT_TRUE(shared.reaches(written, 10));
  {
    Child server = serve();
    auto instance = must(Instance::open(path));
    {
      auto a = must(open_served(socket));
      EXPECT_EQ(mapped(), 1u);
      auto b = must(open_served(socket));
      EXPECT_EQ(mapped(), 2u);
      auto resized = instance->resize(1 << 16, 8192);
      ASSERT_FALSE(resized);
      EXPECT_EQ(resized.error().code, std::errc::device_or_resource_busy);
      b.sources.clear();
      EXPECT_EQ(mapped(), 1u);
    }
    EXPECT_TRUE(mapped_becomes(0));
    // Killed in the middle of a request.
    Child client([&] {
      auto served = open_served(socket);
      REQUIRE_HERE(served && *served->sources[0]->next());
      shared.set(first_free, 1);
      (void)served->wait(0, 1h);
    });
    ASSERT_TRUE(shared.reaches(first_free, 1));
    EXPECT_EQ(mapped(), 1u);
    usleep(20000);
    client.kill_now();
    EXPECT_TRUE(mapped_becomes(0));
    auto second = Server::create({.instance = path, .socket = socket + "2", .uids = {}, .gids = {}, .mode = {}, .gid = {}});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, std::errc::device_or_resource_busy);
    auto last = must(open_served(socket));
    server.kill_now();
    EXPECT_EQ(mapped(), 1u);  // nobody took it back
    // The client learns of the death as an error.
    auto dead = last.sources[0]->next();
    ASSERT_FALSE(dead);
    EXPECT_FALSE(last.wait(0, 1s));
  }
  Child server = serve();  // the name of the dead one's socket is no obstacle
  EXPECT_EQ(mapped(), 0u);
  EXPECT_EQ(must(open_served(socket)).sources.size(), 1u);
}

TEST_F(Serve, ARingThatSomebodyElseConsumesIsBusy) {
  create();
  written_by_the_dead(10);
  Child consumer([&] {
    auto instance = must(Instance::open(path));
    auto source = must(instance->source(0));
    shared.set(first_free, 1);
    pause();
  });
  ASSERT_TRUE(shared.reaches(first_free, 1));
  Child server = serve();
  auto served = must(open_served(socket));
  EXPECT_TRUE(served.sources.empty());
  ASSERT_EQ(served.problems.size(), 1u);
  EXPECT_NE(served.problems[0].find("consumed by another process"), std::string::npos);
  EXPECT_EQ(mapped(), 0u);
  consumer.kill_now();
  auto source = must(served_source(served.connection, 0));  // its lock is taken over
  Checker check;
  EXPECT_TRUE(check.drain(*source));
  EXPECT_EQ(check.events, 10u);
}

TEST_F(Serve, GarbageIsRefusedAndOthersGoOn) {
  create();
  written_by_the_dead(100);
  Child server = serve();
  auto other = must(open_served(socket));
  std::vector<std::string> packets;
  const auto of = [](handout::Request r) { return std::string(reinterpret_cast<const char*>(&r), sizeof r); };
  packets.push_back("x");
  packets.push_back(of(request(Kind::hello)).substr(0, 31));
  packets.push_back(of(request(Kind::hello)) + "y");
  packets.push_back(std::string(60000, 'z'));
  packets.push_back(std::string(32, '\xFF'));
  handout::Request r = request(Kind::hello);
  r.version = 2;
  packets.push_back(of(r));
  r = request(static_cast<Kind>(99));
  packets.push_back(of(r));
  r = request(Kind::wait, 0, ~u64{0});
  packets.push_back(of(r));
  r = request(Kind::wait);
  r.percent = 101;
  packets.push_back(of(r));
  packets.push_back(of(request(Kind::get_reader)));  // without hello
  for (const std::string& packet : packets) {
    const sys::Fd fd = raw(socket);
    ASSERT_TRUE(fd);
    ASSERT_EQ(send(fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
    handout::Refusal refusal{};
    ASSERT_EQ(recv(fd.get(), &refusal, sizeof refusal, 0), static_cast<ssize_t>(sizeof refusal)) << packet.size();
    EXPECT_EQ(refusal.head.magic, handout::magic);
    EXPECT_EQ(refusal.head.error, static_cast<u32>(EPROTO));
    EXPECT_NE(refusal.why[0], 0);
    EXPECT_LE(recv(fd.get(), &refusal, sizeof refusal, 0), 0);  // hung up
    ASSERT_TRUE(must(other.connection->wait(0, 0ms)));
  }
  // What is well-formed but cannot be done is refused without a hang-up.
  auto to = must(ServedConnection::connect(socket));
  handout::RingAnswer a;
  sys::Fd file;
  auto none = to->ask(Kind::open_ring, 12345, &a, sizeof a, &file);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, std::errc::no_such_file_or_directory);
  handout::FormatAnswer f;
  EXPECT_FALSE(to->ask(Kind::read_format, 1, &f, sizeof f, nullptr, 900000));
  EXPECT_TRUE(to->ask(Kind::list_rings, 0, &a, sizeof a));
  Checker check;
  EXPECT_TRUE(check.drain(*other.sources[0])) << check.wrong;
  EXPECT_EQ(check.events, 100u);
}

TEST_F(Serve, AFloodDoesNotStopOthers) {
  create();
  Child writer = this->writer([&] { write(0, 10); pause(); });
  ASSERT_TRUE(shared.reaches(written, 10));
  Child server = serve();
  auto good = must(open_served(socket));
  // One asks without end and never listens, one connects without end, one asks for a descriptor again and again.
  Child deaf([&] {
    const sys::Fd fd = raw(socket);
    const handout::Request hello = request(Kind::hello);
    for (;;) (void)!send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL);
  });
  Child crowd([&] {
    std::vector<sys::Fd> all;
    for (;;) {
      all.push_back(raw(socket));
      if (all.size() > 200) all.clear();
    }
  });
  Child greedy([&] {
    const sys::Fd fd = raw(socket);
    for (;;)
      for (const Kind kind : {Kind::hello, Kind::open_ring, Kind::close_ring}) {
        const handout::Request r = request(kind);
        (void)!send(fd.get(), &r, sizeof r, MSG_NOSIGNAL);
      }
  });
  u64 slowest = 0;
  for (int i = 0; i < 100; ++i) {
    const u64 start = sys::now_ns();
    auto view = good.sources[0]->next();
    ASSERT_TRUE(view) << view.error().sentence;
    slowest = std::max(slowest, sys::now_ns() - start);
  }
  EXPECT_LT(slowest, 3'000'000'000u);
  deaf.kill_now();
  crowd.kill_now();
  greedy.kill_now();
  EXPECT_TRUE(mapped_becomes(1));
  sys::Fd late;
  for (int i = 0; i < 500 && !late; ++i, usleep(10000)) late = raw(socket);
  EXPECT_TRUE(open_served(socket));
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

TEST_F(Serve, ATruncatedRingIsAnErrorAndTheServerLives) {
  create();
  written_by_the_dead(100);
  Child server = serve();
  auto served = must(open_served(socket));
  ASSERT_TRUE(must(served.sources[0]->next()));
  for (const char* file : {"ring", "trace_pipe_raw"}) ASSERT_EQ(truncate((path + "/per_cpu/cpu0/" + file).c_str(), 0), 0);
  bool error = false;
  for (int i = 0; i < 3 && !error; ++i) {
    auto view = served.sources[0]->next();
    error = !view;
  }
  EXPECT_TRUE(error);
  EXPECT_FALSE(served.connection->gone());
  served.sources.clear();
  EXPECT_TRUE(ServedConnection::connect(socket));
}

TEST_F(Serve, TheInstanceGoneEndsTheServer) {
  create();
  Child server = serve();
  ASSERT_TRUE(Instance::remove(path));
  EXPECT_EQ(server.join(), 3);
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
  o.socket = dir / std::string(120, 'd') / "socket";  // longer than an address of a socket: through its directory
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
}  // namespace ringside
