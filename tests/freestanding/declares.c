// What a C program declares: no warnings in any mode (tests/freestanding/headers).
#include <ringside/ringside.h>
enum verdict { ACCEPT, DROP };
RINGSIDE_EVENT(net, packet_in, (uint32_t, length), (uint64_t, flow), (const char*, device), (double, load),
               (enum verdict, verdict), (uint8_t[6], mac), (int, class_));
RINGSIDE_EVENT(net, idle);
RINGSIDE_EVENT(net_, delete_, (int, default_));
int main(void) {
  uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
  net_packet_in(64, 1, "eth0", 0.5, DROP, mac, 1);
  net_idle();
  net__delete_(3);
  ringside_counter("queue depth", 3);
  RINGSIDE_MARKER("took %d packets from %s", 3, "eth0");
  if (net_packet_in_enabled()) return 1;
  return 0;
}
