// Everything of ringside/remote.h that firmware uses, compiled for its processors (tests/freestanding/headers).
#include <ringside/remote.h>
int use(struct ringside_ring* r, struct ringside_stream* s, const void* b, void* m, struct ringside_page* w,
        uint64_t (*c)(void*)) {
  uint32_t id;
  if (ringside_descriptor_check(b, 100, 1000)) return 1;
  ringside_ring_init(r, b, 0, m, w, c, 0);
  ringside_ring_init_stream(r, m, w, 8, 4096, c, 0);
  ringside_ring_write(r, b, 16);
  ringside_ring_swap(r, 0, &id); ringside_ring_update(r); ringside_ring_reset(r);
  ringside_stream_hello(s, 2, 4096, 1000);
  ringside_stream_event(s, 7, "a", "b", "c");
  ringside_stream_push(s, 0, r, true);
  ringside_stream_end(s);
  return 0;
}
