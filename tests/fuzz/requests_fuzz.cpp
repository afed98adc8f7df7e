// Hostile packets to a writer process, before and after it has rings: it answers or hangs up on any of them, calls the program
// only with what the protocol allows, and takes the next reader afterwards. Input: a byte whose first bit says whether rings
// are sent first, then packets as {u8 length, bytes}; a length of 32 or more whose first byte is 'k' is a request with the
// fields that follow, and behind it a text of that length, so that mutation gets past the magic.
#include <fcntl.h>
#include <ringside/remote/process_writer.hpp>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "sys/sys.hpp"

using namespace ringside;
using namespace ringside::remote;

namespace {

constexpr u32 rings = 2;

struct World {
  const std::string path = "/tmp/ringside-requests-fuzz-" + std::to_string(getpid());
  ProcessWriter<> writer{{.path = path,
                          .events = {{1, "app", "tick", "name: tick"}, {2, "app", "tock", "name: tock"}},
                          .write =
                              [this](u32 ring, std::string_view text) {
                                if (ring >= rings || text.size() > most_text || writer.ring(ring) == nullptr) std::abort();
                                (void)writer.ring(ring)->write(text.data(), static_cast<u32>(text.size()));
                                return text.empty() ? -1 : static_cast<int>(static_cast<u8>(text[0]));
                              },
                          .switch_event =
                              [](u32 id, bool) {
                                if (id != 1 && id != 2) std::abort();
                                return 0;
                              },
                          .ring_names = {{"vcpu 0", 3}}}};
  sys::Fd blob{memfd_create("descriptor", MFD_CLOEXEC)}, region{memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  World() {
    Plan plan;
    plan.nr_rings = rings;
    plan.nr_pages = 3;
    std::vector<u64> words(plan.descriptor_bytes() / 8);
    pack(plan, words.data());
    if (writer.error() != 0 || ::write(blob.get(), words.data(), words.size() * 8) != static_cast<ssize_t>(words.size() * 8) ||
        ftruncate(region.get(), static_cast<off_t>(plan.region_bytes())) != 0 ||
        fcntl(region.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
      std::abort();
  }
};

// Sends a packet, and waits for its answer. False: the writer has hung up.
bool ask(int fd, void* packet, size_t size, msghdr m = {}) {
  iovec part{packet, size};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  if (sendmsg(fd, &m, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) return false;
  EventAnswer a;
  const ssize_t n = recv(fd, &a, sizeof a, 0);
  if (n <= 0) return false;
  if (a.head.ask == Ask::attach && a.head.sequence == 0 && a.head.error == EBUSY)
    return false;  // the reader before is still there
  Request q{};
  std::memcpy(&q, packet, std::min(size, sizeof q));
  const bool event = (q.ask == Ask::event || q.ask == Ask::ring_name) && a.head.error == 0;
  if (n != static_cast<ssize_t>(event ? sizeof a : sizeof a.head) || a.head.magic != message_magic || a.head.ask != q.ask ||
      a.head.sequence != q.sequence || a.head.error < 0 || a.head.error > 4095)
    std::abort();
  return true;
}

bool attach(int fd, const World& world) {
  Request q{message_magic, Ask::attach, 1, 0, 1, 0};
  const int files[] = {world.blob.get(), world.region.get()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  msghdr m{};
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  cmsghdr* const c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(c), files, sizeof files);
  return ask(fd, &q, sizeof q, m);
}

sys::Fd connected(const std::string& path) {
  sys::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) std::abort();
  return fd;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static World world;
  sys::Fd reader;
  Request first{message_magic, Ask::event, 1, 0, 0, 0};
  do reader = connected(world.path);
  while (!ask(reader.get(), &first, sizeof first));
  if (size != 0 && bytes[0] % 2 != 0 && !attach(reader.get(), world)) std::abort();
  for (size_t at = 1; at < size;) {
    const size_t length = std::min<size_t>(bytes[at], size - at - 1);
    u8 packet[256] = {};
    std::memcpy(packet, bytes + at + 1, length);
    at += 1 + length;
    if (length == 0) continue;  // no packet at all
    if (length >= sizeof(Request) && packet[0] == 'k') {
      Request q;
      std::memcpy(&q, packet, sizeof q);
      q.magic = message_magic;
      q.ask = static_cast<Ask>(static_cast<u32>(q.ask) % 11);
      q.ring %= rings + 1;
      if (q.ask == Ask::write) q.argument = length - sizeof q;
      std::memcpy(packet, &q, sizeof q);
    }
    if (!ask(reader.get(), packet, length)) break;
  }
  return 0;
}
