// A library that a program loads: in_library(SIZE) allocates SIZE bytes.
#include <stdlib.h>

__attribute__((noinline)) void in_library(size_t size) {
  void* volatile block = malloc(size);
  free(block);
}
