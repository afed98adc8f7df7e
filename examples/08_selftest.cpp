// An external writer with the requests that it may take: it writes an event for each text that a reader gives it, in the ring
// that the reader chooses, and the reader switches its event on and off.
//   ./example_08_selftest /tmp/selftest.rings &
//   ringside mount /mnt/trace --remote test=/tmp/selftest.rings &
//   cd /mnt/trace/remotes/test; echo 1 > tracing_on; echo 42 > write_event; cat trace
// It offers what the kernel's own test of its remote buffers needs. Without a path it ends at once.
#include <ringside/remote/process_writer.hpp>
#include <unistd.h>

#include <charconv>
#include <cstdio>

namespace {

// One common field alone: the number. What follows is not aligned.
struct [[gnu::packed]] Selftest {
  unsigned short type;
  unsigned long id;
};

const char* const selftest_format = R"(name: selftest
ID: 1
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:unsigned long id;	offset:2;	size:8;	signed:0;

print fmt: "id=%lu", REC->id
)";

}  // namespace

int main(int argc, char** argv) {
  using ringside::remote::ProcessWriter;
  const std::string path = argc > 1 ? argv[1] : "/tmp/ringside-example-" + std::to_string(getpid());
  bool is_on = true;  // used by the service's thread alone, as the rings are
  ProcessWriter<> writer({.path = path,
                          .events = {{1, "test", "selftest", selftest_format}},
                          .write = [&](unsigned ring, std::string_view text) {
                            unsigned long id = 0;
                            const char* const end = text.data() + text.size();
                            if (const auto read = std::from_chars(text.data(), end, id);
                                read.ec != std::errc() || read.ptr != end)
                              return EINVAL;
                            const Selftest event{1, id};
                            if (is_on) writer.ring(ring)->write(&event, sizeof event);  // false while recording is off
                            return 0;
                          },
                          .switch_event = [&](unsigned, bool on) {
                            is_on = on;
                            return 0;
                          }});
  if (writer.error() != 0) {
    std::fprintf(stderr, "cannot listen at %s: %s\n", path.c_str(), std::strerror(writer.error()));
    return 1;
  }
  if (argc > 1) pause();
}
