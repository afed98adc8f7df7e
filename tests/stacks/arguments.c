// A program whose functions have parameters of many types, with known values: for probes with arguments.
#include <stddef.h>
#include <stdio.h>

enum colour { red, green = 7 };
struct peer {
  char name[16];
  unsigned short port;
};
struct request {
  int id;
  const char *path;
  struct peer from;
  struct peer *via;
  unsigned flag : 1, kind : 5;
  long counts[4];
  double weight;
  struct request *next;
  enum colour colour;
  _Bool ok;
  union {
    int a;
    float b;
  };
  int grid[2][3];
  int many[100];
  struct unseen *hidden;
  int level : 4;
  long long far : 40;
  int whole : 32;
};
typedef struct request request_t;
struct large {
  long words[5];
};
static long hits;

#define KEPT __attribute__((noinline, noclone))

KEPT int handle(request_t *req, size_t len, const char *text, double real, unsigned char byte, char *const *words, int seventh,
                int eighth) {
  static int calls;
  calls++;
  hits += req->id + (long)len + byte + (long)real + (words != NULL) + seventh + eighth;
  printf("%s %s\n", req->path, text);
  return req->id * 2;
}
KEPT const char *name_of(struct request *r) {
  __asm__ volatile("");
  return r->path;
}
KEPT struct request *next_of(struct request *r, int unused) {
  __asm__ volatile("");
  return r->next;
}
KEPT long by_value(struct peer p, int n) {
  __asm__ volatile("");
  return p.port + n;
}
KEPT struct large large_of(int n) {
  struct large l = {{n, n + 1}};
  __asm__ volatile("" ::"r"(&l) : "memory");
  return l;
}
KEPT double half_of(int n) {
  __asm__ volatile("");
  return n / 2.0;
}
KEPT void addressed(int x) {
  int *volatile p = &x;
  (*p)++;
}

int main(int count, char **words) {
  struct request b = {.id = -2, .path = "/second", .from = {"beta", 2}, .colour = green};
  struct request a = {.id = 5,
                      .path = "/first",
                      .from = {"alpha", 8080},
                      .via = &b.from,
                      .flag = 1,
                      .kind = 19,
                      .counts = {1, -2, 3, 4},
                      .weight = 1.5,
                      .next = &b,
                      .colour = green,
                      .ok = 1,
                      .a = 9};
  for (int i = 0; i < 3; i++) {
    handle(&a, (size_t)(40 + i), "hello, world", 1.5, (unsigned char)(200 + i), words, 70 + i, 80 + i);
    hits += name_of(&a)[0] + next_of(&a, 1)->id + by_value(a.from, i) + large_of(i).words[1] + (long)half_of(i);
    addressed(33 + i);
  }
  return hits == 1 || count > 5;
}
