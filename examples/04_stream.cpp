// Firmware without shared memory: a ring of its own, and whole sub-buffers pushed over a line, here standard output:
//   ./example_04_stream | ringside stream - -o fw.data && ringside report fw.data
// An argument says how many events (default 10,000).
#include <ringside/remote/stream.hpp>
#include <ringside/ring/writer.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

using namespace ringside;

// Microseconds since the start, say.
struct Timer {
  u64* us;
  u64 now() noexcept { return *us; }
};

struct Sample {
  unsigned short type;
  unsigned char flags, preempt_count;
  int pid;
  unsigned int number, volts;
};
const char* const sample_format = R"(name: sample
ID: 7
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned int number;	offset:8;	size:4;	signed:0;
	field:unsigned int volts;	offset:12;	size:4;	signed:0;

print fmt: "number=%u volts=%u", REC->number, REC->volts
)";

// What firmware would place in its RAM: control words, meta-page, 8 sub-buffers of 4 KiB.
constexpr Geometry geometry(4096, 8);
alignas(4096) unsigned char data[4096 * 9];
alignas(64) unsigned char control[4096];
static_assert(control_size(geometry) <= sizeof control && geometry.data_size() <= sizeof data);

}  // namespace

int main(int argc, char** argv) {
  const unsigned events = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 10000;
  const Ring ring{geometry, reinterpret_cast<Control*>(control), data};
  u64 us = 0;
  Writer<Timer> writer(ring, Timer{&us});  // in tasks and interrupts of one processor
  Reader<> reader(ring);                   // in the idle task
  remote::StreamWriter line([](const void* bytes, u32 n) { std::fwrite(bytes, 1, n, stdout); });
  line.hello(2, geometry.subbuf_size(), 1000000);
  line.event(7, "board", "sample", sample_format);
  for (unsigned n = 0; n < events; ++n) {
    us += 125;
    const Sample s{7, 0, 0, 0, n, 3300 + n % 17};
    writer.write(&s, sizeof s);
    if (n % 100 == 0) line.push(0, reader, false);
  }
  line.push(0, reader, true);
  line.end(reader);
}
