// An external writer at $RINGSIDE_REMOTE: 250 events once somebody reads, and how many it tried.
#include <ringside/remote/process_writer.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

struct Tick {
  unsigned short type;
  unsigned char flags, preempt_count;
  int pid;
  unsigned long long number;
};

const char* const tick_format = R"(name: tick
ID: 1
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long long number;	offset:8;	size:8;	signed:0;

print fmt: "number=%llu", REC->number
)";

}  // namespace

int main() {
  ringside::remote::ProcessWriter<> writer({std::getenv("RINGSIDE_REMOTE"), {{1, "app", "tick", tick_format}}});
  if (writer.error() != 0) {
    std::fprintf(stderr, "cannot listen: %s\n", std::strerror(writer.error()));
    return 1;
  }
  unsigned long long written = 0;
  for (int patience = 0; written < 250 && patience < 5000; ++patience) {
    const Tick tick{1, 0, 0, getpid(), written};
    if (auto* ring = writer.ring(0); ring != nullptr && ring->enabled())
      while (written < 250 && (ring->write(&tick, sizeof tick), true)) ++written;
    else
      usleep(1000);
  }
  syscall(5001, 1);  // the supervisor leaves this alone
  std::printf("tried %llu\n", written);
}
