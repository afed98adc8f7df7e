// WHO FIFO: two threads write ten events each, then the file ready-WHO appears, and both stay until no process holds the FIFO
// open for writing.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <ringside/trace.hpp>
#include <string>
#include <thread>

RINGSIDE_EVENT(container, number, (u64, who), (u64, n));

int main(int, char** argv) {
  const std::string who = argv[1];
  const auto write = [&](const char* name) {
    prctl(PR_SET_NAME, (name + who).c_str());
    for (unsigned n = 0; n < 10; ++n) container::number(std::strtoull(who.c_str(), nullptr, 10), n);
  };
  const int fifo = open(argv[2], O_RDONLY | O_CLOEXEC);
  const auto stay = [&] {
    char byte;
    while (read(fifo, &byte, 1) > 0) {
    }
  };
  std::thread other([&] {
    write("other-");
    (void)!::close(open(("other-" + who).c_str(), O_CREAT | O_WRONLY, 0600));
    stay();
  });
  write("main-");
  while (access(("other-" + who).c_str(), F_OK) != 0) usleep(1000);
  (void)!::close(open(("ready-" + who).c_str(), O_CREAT | O_WRONLY, 0600));
  stay();
  other.join();
}
