// Hostile packets to a real server over a socket pair: it answers or hangs up on any input, and its count of mappers is right
// afterwards. Input: packets as {u8 length, bytes}; a length of 32 whose first byte is 'k' is a well-formed head with the
// fields that follow, so that mutation gets past the magic.
#include <ringside/ringside.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ringside/abi/handout.hpp>

#include "instance/instance.hpp"
#include "serve/server.hpp"

using namespace ringside;

namespace {

struct World {
  std::string dir = std::filesystem::temp_directory_path() / ("ringside-handout-fuzz-" + std::to_string(getpid()));
  std::unique_ptr<Server> server;
  World() {
    std::filesystem::create_directories(dir);
    InstanceOptions o;
    o.name = dir + "/inst";
    o.buffer_size = 1 << 16;
    o.subbuf_size = 4096;
    must(Instance::create(o));
    // A ring with events, whose writer is gone.
    if (fork() == 0) {
      if (ringside_open(o.name.c_str()) == 0) {
        ringside_event event{"fuzz", "event", "", "\"\"", nullptr, 0, nullptr, nullptr};
        ringside_register(&event);
        for (int i = 0; i < 500; ++i)
          if (u64 payload[2] = {}; !ringside_write(&event, payload, sizeof payload)) break;
      }
      _exit(0);
    }
    wait(nullptr);
    server = must(Server::create({.instance = o.name, .socket = "", .uids = {}, .gids = {}, .mode = {}, .gid = {}}));
  }
  ~World() {
    server.reset();
    std::filesystem::remove_all(dir);
  }
};

void take_answers(int fd) {
  char answer[handout::largest_answer + 1];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  for (;;) {
    iovec part{answer, sizeof answer};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0) return;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(c), sizeof file);
      close(file);
    }
    const auto& head = *reinterpret_cast<const handout::Answer*>(answer);
    if (static_cast<size_t>(n) < sizeof head || head.magic != handout::magic || head.version != handout::version) std::abort();
    const size_t right =
        head.error != 0 ? sizeof(handout::Refusal) : handout::answer_size(static_cast<handout::Kind>(head.kind));
    if (static_cast<size_t>(n) != right) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static World world;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) std::abort();
  if (!world.server->adopt(sys::Fd(pair[0]))) std::abort();
  const bool reads = size == 0 || bytes[0] % 4 != 0;  // some clients never take an answer
  for (size_t at = 1; at < size;) {
    const size_t length = std::min<size_t>(bytes[at], size - at - 1);
    char packet[256] = {};
    std::memcpy(packet, bytes + at + 1, length);
    at += 1 + length;
    if (length == 32 && packet[0] == 'k') {
      auto& r = *reinterpret_cast<handout::Request*>(packet);
      r.magic = handout::magic;
      r.version = handout::version;
      r.kind = r.kind % (handout::last_kind + 1);
      r.ring %= 4;
      r.reserved = 0;
    }
    (void)!send(pair[1], packet, length, MSG_NOSIGNAL);
    if (!world.server->turn(0)) std::abort();
    if (reads) take_answers(pair[1]);
    // The same bytes as a server's answer to any request.
    handout::Request asked{};
    std::memcpy(&asked, packet, sizeof asked);
    (void)handout::check_answer(*reinterpret_cast<const handout::Answer*>(packet), length, asked);
  }
  close(pair[1]);
  for (int i = 0; i < 50 && world.server->clients() != 0; ++i)
    if (!world.server->turn(0)) std::abort();
  if (world.server->clients() != 0) std::abort();
  return 0;
}
