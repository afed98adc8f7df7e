// Rings of another party's instance, over a socket (abi/handout.hpp): the server swaps, the client reads what it may map.
//
//   auto served = must(open_served("/run/trace/web.socket"));
//   for (auto& source : served.sources) timeline.add(std::move(source));
//
// All sources of one open_served share a connection and belong to one thread. A server that dies, hangs (longer than 5 s) or
// answers nonsense makes every later call an error; what was read before is good.
#pragma once
#include <ringside/abi/handout.hpp>

#include "source/mapped.hpp"

namespace ringside {

class ServedConnection {
 public:
  static result<std::shared_ptr<ServedConnection>> connect(const std::string& path);
  // Over a socket that is already connected.
  static result<std::shared_ptr<ServedConnection>> over(sys::Fd socket, const std::string& what);

  // Sends, and waits for the answer: `size` bytes, checked. The descriptor that answers open_ring goes to `file`.
  result<void> ask(handout::Kind kind, u32 ring, void* answer, size_t size, sys::Fd* file = nullptr, u64 argument = 0,
                   u32 percent = 0);
  result<bool> wait(int percent, std::chrono::nanoseconds timeout);  // over all rings of this connection

  result<Counters> counters(std::optional<u32> ring);  // which is open here; none: of all rings that gave their memory back

  result<void> greet() { return ask(handout::Kind::hello, 0, &hello_, sizeof hello_); }
  const handout::Hello& hello() const noexcept { return hello_; }
  u32 server_uid() const noexcept { return server_uid_; }  // from the kernel
  ClockInfo clock() const noexcept;
  bool gone() const noexcept { return broken_.has_value(); }

 private:
  result<void> broken(int errno_value, const std::string& sentence);
  sys::Fd socket_;
  std::string what_;
  handout::Hello hello_{};
  u32 server_uid_ = ~0u;
  u32 sequence_ = 0;
  std::optional<Error> broken_;
};

class ServedGetReader {
 public:
  ServedGetReader(std::shared_ptr<ServedConnection> to, u32 ring) noexcept : to_(std::move(to)), ring_(ring) {}
  ServedGetReader(ServedGetReader&&) = default;
  ServedGetReader& operator=(ServedGetReader&&) = default;
  ~ServedGetReader();

  result<ReaderStep> get_reader();
  result<bool> wait(int percent, std::chrono::nanoseconds timeout) { return to_->wait(percent, timeout); }
  std::optional<Counters> counters() const {
    auto known = to_->counters(ring_);
    return known ? std::optional(*known) : std::nullopt;
  }

 private:
  std::shared_ptr<ServedConnection> to_;
  u32 ring_;
};
static_assert(GetReader<ServedGetReader>);

struct Served {
  std::shared_ptr<ServedConnection> connection;
  ClockInfo clock;
  std::string name;  // of the instance
  std::vector<std::unique_ptr<Source>> sources;
  std::vector<EventInfo> events;
  std::vector<std::string> problems;  // rings that could not be opened (another process consumes them, ...), one sentence each

  result<bool> wait(int percent, std::chrono::nanoseconds timeout) { return connection->wait(percent, timeout); }
};

// Each call returns what is there now; call again for rings and events that appeared since.
result<Served> open_served(const std::string& socket_path);
result<std::vector<RingName>> served_rings(ServedConnection& to);
result<std::unique_ptr<Source>> served_source(const std::shared_ptr<ServedConnection>& to, u32 ring);
result<std::vector<EventInfo>> served_events(ServedConnection& to);
// Does a server listen there? An external writer that does hangs up on the question.
bool is_served(const std::string& path);

// The address of a Unix socket; a path that is too long for it is reached through a descriptor of its directory, kept in `dir`.
struct SocketAddress {
  std::string path;  // at most 107 bytes
  sys::Fd dir;
};
result<SocketAddress> socket_address(const std::string& path);
// A connection to the process that listens there, within `patience`. EAGAIN: it does not accept, and its queue is full. nobody:
// the message if no process listens.
result<sys::Fd> connect_socket(const std::string& path, std::chrono::nanoseconds patience, const std::string& nobody);

}  // namespace ringside
