// Served rings with peers that die, hang, flood, send garbage or cut files: the others go on, and mappers are counted right.
#include <sys/socket.h>
#include <sys/un.h>

#include "serve/serve_world.hpp"

namespace ringside::serve_hostile_test {
namespace {

using namespace std::chrono_literals;
using handout::Kind;
using test::Checker;
using test::Child;
using test::World;

struct ServeHostile : World {};

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

TEST_F(ServeHostile, MappersAreCountedThroughAnyDeath) {
  create();
  Child writer = this->writer([&] {
    write(0, 10);
    pause();
  });
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
    EXPECT_EQ(mapped(), 1u);  // the count was not taken back
    // The client learns of the death as an error.
    auto dead = last.sources[0]->next();
    ASSERT_FALSE(dead);
    EXPECT_FALSE(last.wait(0, 1s));
  }
  Child server = serve();  // the name of the dead server's socket is no obstacle
  EXPECT_EQ(mapped(), 0u);
  EXPECT_EQ(must(open_served(socket)).sources.size(), 1u);
}

TEST_F(ServeHostile, ARingWithAnotherConsumerIsBusy) {
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

TEST_F(ServeHostile, GarbageIsRefusedAndOthersGoOn) {
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
  // A well-formed but impossible request is refused without a hang-up.
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

// The kernel then reports the unread request to the client in front of the refusal.
TEST_F(ServeHostile, ARefusalIsReadThoughTheRequestBeforeItWasNot) {
  create();
  ServerOptions o;
  o.instance = path;
  o.socket = socket;
  o.most_clients = 0;
  auto server = must(Server::create(o));
  sys::Fd client = raw(socket);
  const handout::Request hello = request(Kind::hello);
  ASSERT_EQ(send(client.get(), &hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
  must(server->turn(1000));
  const auto refused = ServedConnection::over(std::move(client), "the server");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().sentence.find("too many connections"), std::string::npos) << refused.error().sentence;
}

TEST_F(ServeHostile, AFloodDoesNotStopOthers) {
  create();
  Child writer = this->writer([&] {
    write(0, 10);
    pause();
  });
  ASSERT_TRUE(shared.reaches(written, 10));
  Child server = serve();
  auto good = must(open_served(socket));
  // One client asks without end and never listens, one connects without end, one asks for a descriptor again and again.
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

TEST_F(ServeHostile, ATruncatedRingIsAnErrorAndTheServerLives) {
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

TEST_F(ServeHostile, TheServerEndsWithItsInstance) {
  create();
  Child server = serve();
  ASSERT_TRUE(Instance::remove(path));
  EXPECT_EQ(server.join(), 3);
}

}  // namespace
}  // namespace ringside::serve_hostile_test
