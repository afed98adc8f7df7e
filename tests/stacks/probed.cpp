// A program with probes whose places and values are known. Prints how often its probe with a semaphore was listened to.
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

extern "C" {
__attribute__((section(".probes"), used, visibility("hidden"))) volatile unsigned short probed_semaphore = 0;
}

#if defined(__x86_64__)
// As <sys/sdt.h> makes them.
#define PROBE(name, semaphore, arguments, ...)                                                      \
  __asm__ volatile("990: nop\n"                                                                     \
                   ".pushsection .note.stapsdt,\"\",\"note\"\n"                                     \
                   ".balign 4\n"                                                                    \
                   ".4byte 992f-991f, 994f-993f, 3\n"                                               \
                   "991: .asciz \"stapsdt\"\n"                                                      \
                   "992: .balign 4\n"                                                               \
                   "993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                              \
                   ".asciz \"probed\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n"             \
                   "994: .balign 4\n"                                                               \
                   ".popsection\n"                                                                  \
                   ".ifndef _.stapsdt.base\n"                                                       \
                   ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"          \
                   ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"                                 \
                   "_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n"                            \
                   ".popsection\n"                                                                  \
                   ".endif\n" ::__VA_ARGS__)
#else
#define PROBE(name, semaphore, arguments, ...) ((void)0)
#endif

extern "C" __attribute__((noinline)) long probed_work(long n) {
  __asm__ volatile("");
  return n * n;
}

namespace probed {
__attribute__((noinline)) void overloaded(int) { __asm__ volatile(""); }
__attribute__((noinline)) void overloaded(char) { __asm__ volatile(""); }
}  // namespace probed

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 3;
  long sum = 0;
  int listened = 0;
  for (int i = 0; i < rounds; ++i) {
    struct {
      int padding, value;
    } stored = {0, -i};
    unsigned char byte = static_cast<unsigned char>(250 + i);
    double real = i;
    (void)byte, (void)real, (void)stored;
    PROBE("round", "0", "-4@%0 8@$77 -4@4(%1) 1@%2 8f@%3 -2@$-5", "r"(i), "r"(&stored), "q"(byte), "x"(real), "m"(stored));
    listened += probed_semaphore != 0;
    PROBE("listened", "probed_semaphore", "-4@%0", "r"(i));
    PROBE("listened", "probed_semaphore", "-4@$1000", "r"(i));
    PROBE("listened", "probed_semaphore", "8@%0", "r"(sum));
    sum += probed_work(i);
    probed::overloaded(1);
    probed::overloaded('c');
    if (count > 2) usleep(static_cast<unsigned>(std::atoi(words[2])));
  }
  std::printf("%ld %d\n", sum, listened);
}
