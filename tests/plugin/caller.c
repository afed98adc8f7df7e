// Calls back, with a frame of its own size: two of them at one address have different tables.
#ifndef ROOM
#define ROOM 8
#endif

__attribute__((visibility("default"), noinline)) int call(int (*function)(int), int n) {
  volatile char room[ROOM];
  for (int i = 0; i < ROOM; ++i) room[i] = (char)n;
  return function(n) + room[n % ROOM];
}
