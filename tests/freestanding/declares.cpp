// What a C++ program declares: C++17 and C++20, no warnings (tests/freestanding/headers).
#include <ringside/trace.hpp>
#include <string>
#include <sys/socket.h>

RINGSIDE_EVENT(net, packet_in, (u32, length), (std::string_view, device), (std::string, path), (ringside::array<u8, 6>, mac));
RINGSIDE_EVENT(net, idle);
RINGSIDE_EVENT(socket_, delete_, (u32, class_));  // socket() is a function here

namespace {
struct Flags {
  unsigned kind : 3;
  bool set;
};
template <class T>
void generic(T t) {
  RINGSIDE_TRACE("generic", "value", ("t", t));
}
}  // namespace

int main() {
  int n = 4;
  std::string text = "abc";
  char* const p = text.data();
  const char array[8] = "array";
  Flags flags{1, true};
  net::packet_in(1500, "eth0", text, {1, 2, 3, 4, 5, 6});
  net::idle();
  socket_::delete_(1);
  RINGSIDE_TRACE("net", "dropped", ("length", n), ("text", text), ("literal", "literal"), ("p", p), ("address", &n),
                 ("kind", flags.kind), ("set", flags.set), ("array", array), ("null", nullptr));
  if (n != 0)
    RINGSIDE_TRACE("net", "up");
  else
    RINGSIDE_TRACE("net", "down", ("n", n > 2 ? 1 : 2));
  generic(1);
  generic(2.5);
  generic(std::string_view("x"));
  [&] { RINGSIDE_TRACE("net", "lambda", ("n", n)); }();
  ringside::scope scope{"parse"};
  ringside::counter("depth", 3);
  RINGSIDE_MARKER("hello %d", 3);
}
