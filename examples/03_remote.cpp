// An external writer: a process that owns no rings. A reader brings them along, reads while this writes, and may come and go:
//   ./example_03_remote /tmp/app.rings &
//   ringside remote /tmp/app.rings --duration 2s -o app.data && ringside report app.data
// Without a path it writes to nobody for a moment and ends.
#include <ringside/remote/process_writer.hpp>
#include <time.h>

#include <cstdio>

namespace {

// The 8 common bytes of every event, then its fields.
struct Tick {
  unsigned short type;
  unsigned char flags, preempt_count;
  int pid;
  unsigned long long number, twice;
};

const char* const tick_format = R"(name: tick
ID: 1
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long long number;	offset:8;	size:8;	signed:0;
	field:unsigned long long twice;	offset:16;	size:8;	signed:0;

print fmt: "number=%llu twice=%llu", REC->number, REC->twice
)";

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "/tmp/ringside-example-" + std::to_string(getpid());
  ringside::remote::ProcessWriter<> writer({path, {{1, "app", "tick", tick_format}}});
  if (writer.error() != 0) {
    std::fprintf(stderr, "cannot listen at %s: %s\n", path.c_str(), std::strerror(writer.error()));
    return 1;
  }
  const timespec pause{0, 100000};
  for (unsigned long long n = 0; argc > 1 || n < 100; ++n) {
    const Tick tick{1, 0, 0, getpid(), n, 2 * n};
    if (auto* ring = writer.ring(0)) ring->write(&tick, sizeof tick);  // null: nobody reads
    nanosleep(&pause, nullptr);
  }
}
