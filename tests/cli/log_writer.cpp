// A program that logs: log_writer COUNT. With SAVE in front of COUNT it opens the instance SAVE itself, and saves it to
// SAVE.data; a third argument is the events that it disables first.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ringside/control.hpp>
#include <ringside/log.hpp>
#include <string>

namespace {

struct Job {
  unsigned number;
  std::string name;
};

void work(const Job& job) {
  RINGSIDE_LOG(debug, "job {} begins", job.number);
  if (job.number % 2 == 0) RINGSIDE_LOG(info, "job {} \"{}\" is {:.1f} % done", job.number, job.name, 12.25);
  if (job.number % 4 == 0)
    RINGSIDE_LOG(warn, "{}|{:6}|{:<6}|{:>6}|{:#x}|{:05d}|{}", 0.1, 2.5, job.number, job.name, 255, -42, job.number == 0);
  RINGSIDE_LOG_FIRST(error, 2, "job {} failed: {}", job.number, std::string("no room\nfor it"));
  RINGSIDE_LOG_EVERY(trace, 3, "each third: {}", job.number);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const save = argc > 2 ? argv[1] : nullptr;
  if (save != nullptr) {
    ringside::open_options o;
    o.name = save;
    o.ring_bytes = 64 << 10;
    o.when_full = ringside::when_full::discard;
    o.events = "log:*";
    if (const int error = ringside::open(o); error != 0) return std::printf("open: %d\n", error), 1;
  }
  if (argc > 3)
    if (const int error = ringside::disable(argv[3]); error != 0) return std::printf("disable: %d\n", error), 1;
  const auto count = static_cast<unsigned>(std::atoi(argv[argc > 2 ? 2 : 1]));
  for (unsigned n = 0; n < count; ++n) work({n, "j" + std::to_string(n)});
  if (save != nullptr) {
    if (const int error = ringside::save((std::string(save) + ".data").c_str()); error != 0)
      return std::printf("save: %d\n", error), 1;
  }
  RINGSIDE_LOG(fatal, "the end");
}
