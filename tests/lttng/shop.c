// A program with LTTng-UST's tracepoints, of every kind of field.
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "shop.h"

int main(void) {
  const int list[] = {-1, 2, 3};
  for (int i = 0; i < 1000; ++i) lttng_ust_tracepoint(shop, order, i, i % 3 ? "tea" : "coffee", i / 4.0, list, (unsigned)i % 4);
  lttng_ust_tracepoint(shop, closed, 1000);
  return 0;
}
