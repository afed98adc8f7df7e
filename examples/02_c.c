// Events from C. Watch them with `ringside record ./02_c` and `ringside report`.
#include <ringside/ringside.h>

enum verdict { ACCEPT, DROP };

RINGSIDE_EVENT(net, packet_in, (uint32_t, length), (uint64_t, flow), (const char*, device), (double, load),
               (enum verdict, verdict), (uint8_t[6], mac));
RINGSIDE_EVENT(net, idle);
RINGSIDE_SPAN(net, flush, (uint32_t, packets));

int main(void) {
  uint8_t mac[6] = {2, 0, 0, 0, 0, 1};

  ringside_span_begin("poll");
  for (uint32_t i = 0; i < 3; ++i) {
    net_packet_in(64 + i, 0x100000000 + i, "eth0", 0.5, i == 2 ? DROP : ACCEPT, mac);
    ringside_counter("queue depth", 3 - i);
  }
  ringside_instant("empty");
  net_idle();
  RINGSIDE_MARKER("took %d packets from %s", 3, "eth0");
  ringside_span_end("poll");

  RINGSIDE_FRAME("tick");  // a slice from one tick to the next
  net_flush_begin(0);
  ringside_process_counter("sockets", 2);  // of all threads together
  ringside_instant_flow("sent", 7);        // connected with other events of flow 7
  net_flush_end(3);
  return 0;
}
