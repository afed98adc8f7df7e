// Has a malloc of its own, which it and its libraries call: 1,000 pieces, and their frees.
#include <stddef.h>
#include <string.h>

static char pool[1 << 22];
static size_t used;

void* malloc(size_t size) {
  void* const p = pool + used;
  used += (size + 15) / 16 * 16;
  return used <= sizeof pool ? p : NULL;
}
void free(void* p) { (void)p; }
void* calloc(size_t count, size_t size) { return malloc(count * size); }
void* realloc(void* old, size_t size) {
  void* const p = malloc(size);
  if (p != NULL && old != NULL) memmove(p, old, size);
  return p;
}

int main(void) {
  for (int n = 0; n < 1000; ++n) {
    char* volatile p = malloc(100);
    if (p == NULL) return 1;
    p[0] = 1;
    free(p);
  }
  return 0;
}
