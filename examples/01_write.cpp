// Events from C++. Watch them with `ringside record ./01_write` and `ringside report`.
#include <ringside/trace.hpp>

enum class Verdict : ringside::u8 { accept, drop };

RINGSIDE_EVENT(net, packet_in, (u32, length), (u64, flow), (std::string_view, device), (double, load), (Verdict, verdict),
               (ringside::array<u8, 6>, mac));
RINGSIDE_EVENT(net, idle);

int main() {
  ringside::array<ringside::u8, 6> mac{2, 0, 0, 0, 0, 1};

  ringside::scope poll{"poll"};
  for (unsigned i = 0; i < 3; ++i) {
    net::packet_in(64 + i, 0x1'0000'0000 + i, "eth0", 0.5, i == 2 ? Verdict::drop : Verdict::accept, mac);
    ringside::counter("queue depth", 3 - i);
  }
  ringside::instant("empty");
  net::idle();
  ringside::marker("took %d packets from %s", 3, "eth0");
}
