// The part of `early` that is in C.
#include <ringside/ringside.h>

void write_early_in_c(void);

RINGSIDE_EVENT(early, in_c, (uint32_t, from));

void write_early_in_c(void) { early_in_c(2); }
