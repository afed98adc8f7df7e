// Stacks: an event that has one beside libunwind's walk alone, its bytes, and whole programs under record beside heaptrack and
// perf.
#include <fcntl.h>
#include <libunwind.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "bench.hpp"
#include "pages.hpp"
#include "stacks/elf_names.hpp"
#include "sys/sys.hpp"

RINGSIDE_EVENT(bench, with_stack, (u64, a), (ringside::stack, stack));
RINGSIDE_EVENT(bench, without_stack, (u64, a));

namespace bench {
namespace {

constexpr u64 calls = 100'000;
constexpr int frames_wanted = 26;

template <class Body>
double ns_each(Body body) {
  const u64 start = cpu_ns();
  for (u64 i = 0; i < calls; ++i) body(i);
  return static_cast<double>(cpu_ns() - start) / calls;
}
[[gnu::noinline]] double event_ns() {
  return ns_each([](u64 i) { ::bench::with_stack(i, ringside::stack{}); });
}
[[gnu::noinline]] double plain_ns() {
  return ns_each([](u64 i) { ::bench::without_stack(i); });
}
int frames = 0;
[[gnu::noinline]] double unwind_ns() {
  void* frame[128];
  return ns_each([&](u64) { frames = unw_backtrace(frame, 128); });
}
[[gnu::noinline]] int depth_ns() {
  void* frame[128];
  return unw_backtrace(frame, 128);
}
template <class Result>
[[gnu::noinline]] Result deeper(int depth, Result (*body)()) {
  const Result result = depth > 0 ? deeper(depth - 1, body) : body();
  asm volatile("");
  return result;
}

struct Took {
  double wall = 0, cpu = 0;
  bool good = false;
};
Took shell(const std::string& command) {
  const u64 from = sys::now_ns();
  rusage before{}, after{};
  getrusage(RUSAGE_CHILDREN, &before);
  const int status = std::system((command + " >/dev/null 2>&1").c_str());
  getrusage(RUSAGE_CHILDREN, &after);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
  return {static_cast<double>(sys::now_ns() - from) / 1e9,
          seconds(after.ru_utime) + seconds(after.ru_stime) - seconds(before.ru_utime) - seconds(before.ru_stime), status == 0};
}

// The same command in turns, with `ours` and `theirs` in front.
void compare(const char* name, const std::string& ours, const std::string& theirs, const std::string& command, bool wall,
             const char* what) {
  struct Times {
    std::vector<double> wall, cpu;
    double median_of(bool wanted_wall) const { return median(wanted_wall ? wall : cpu); }
  } own, other, alone;
  std::vector<double> ratio;
  const auto add = [&](Times& times, const Took& took) {
    times.wall.push_back(took.wall);
    times.cpu.push_back(took.cpu);
    return took.good;
  };
  for (int i = 0; i < (quick ? 1 : 5); ++i) {
    const bool a = add(own, shell(ours + command)), b = add(other, shell(theirs + command));
    if (!a || !b)
      return row(name, std::nullopt, "x", b ? "record failed, or lost events" : "the other tool is not installed, or failed");
    add(alone, shell(command));
    ratio.push_back((wall ? own.wall : own.cpu).back() / (wall ? other.wall : other.cpu).back());
  }
  row(name, median(ratio), "x",
      text("%s: %.2f s against %.2f s, alone %.2f s; %s: %.2f, %.2f and %.2f s", what, own.median_of(wall),
           other.median_of(wall), alone.median_of(wall), wall ? "CPU time" : "wall time", own.median_of(!wall),
           other.median_of(!wall), alone.median_of(!wall)));
}

// The addresses of a compiler's own code in perf's samples: named here, with inlined functions and lines where the file has
// them, and by `perf report`, which names functions alone, and also reads the samples.
void names_beside_perf(const std::string& at, const std::string& compiler) {
  const char* const name = "symbols.over_perf";
  const std::string file = "-i " + at + "/named ";
  if (!shell("perf record -q -g -F 9999 -o " + at + "/named " + compiler).good ||
      !shell("sh -c 'perf script --show-mmap-events " + file + "-F comm,pid,tid,ip >" + at + "/addresses 2>/dev/null'").good)
    return row(name, std::nullopt, "x", "perf is not installed, or failed");
  std::ifstream lines(at + "/addresses");
  u64 start = 0, size = 0, offset = 0;
  std::string path;
  std::set<u64> addresses;
  for (std::string line; std::getline(lines, line);) {
    unsigned long long from = 0, length = 0, where = 0;
    const size_t map = line.find(": [0x"), code = line.find("r-xp /");
    if (map != std::string::npos && code != std::string::npos && line.ends_with("/cc1plus") &&
        std::sscanf(line.c_str() + map, ": [%llx(%llx) @ %llx", &from, &length, &where) == 3) {
      start = from, size = length, offset = where, path = line.substr(code + 5);
      continue;
    }
    char* end = nullptr;
    const u64 address = std::strtoull(line.c_str(), &end, 16);
    if (address - start < size && *(end + std::strspn(end, " ")) == 0) addresses.insert(address - start + offset);
  }
  std::vector<double> own, other;
  u64 named = 0;
  for (int i = 0; i < (quick ? 1 : 5) && !addresses.empty(); ++i) {
    const u64 from = cpu_ns();
    auto elf = ElfNames::open(path, "");
    if (!elf) return row(name, std::nullopt, "x", elf.error().sentence);
    named = 0;
    for (const u64 address : addresses) named += !(*elf)->at(address).empty();
    own.push_back(static_cast<double>(cpu_ns() - from) / 1e9);
    other.push_back(shell("perf report " + file + "--stdio --no-children -g none -s sym").cpu);
  }
  if (own.empty()) return row(name, std::nullopt, "x", "perf saw no address of the compiler");
  row(name, median(own) / median(other), "x",
      text("%zu addresses of a compiler's samples, %llu of them named, its file opened anew: %.1f ms of CPU time; perf report "
           "of the samples: %.1f ms",
           addresses.size(), static_cast<unsigned long long>(named), median(own) * 1e3, median(other) * 1e3));
}

}  // namespace

void unwind_rows() {
  // The walks' first passes read tables.
  const int own = deeper(0, depth_ns);
  const int depth = std::max(frames_wanted - own, 0);
  std::vector<double> event, plain, unwind, ratio;
  deeper(depth, event_ns);
  for (int i = 0; i < (quick ? 5 : 51); ++i) {
    plain.push_back(deeper(depth, plain_ns));
    event.push_back(deeper(depth, event_ns));
    unwind.push_back(deeper(depth, unwind_ns));
    ratio.push_back(event.back() / unwind.back());
  }
  row("stack.event_over_unwind", median(ratio), "x",
      text("%.1f ns for an event with its stack, %.1f ns for unw_backtrace alone of %d frames; the same event without: %.1f ns",
           median(event), median(unwind), frames, median(plain)));

  char dir[] = "/dev/shm/ringside-bench-stack-XXXXXX";
  if (mkdtemp(dir) == nullptr) return;
  const std::string at = dir;
  std::ofstream(at + "/a.cpp")
      << "#include <algorithm>\n#include <iostream>\n#include <map>\n#include <string>\n#include <vector>\n"
         "int main(int c, char** v) { std::map<std::string, std::vector<int>> m; for (int i = 0; i < c; ++i) "
         "m[v[i]].push_back(i); std::cout << m.size(); }\n";
  // Bytes of a recording for each event more, where all stacks are the same.
  std::ofstream(at + "/same.c") << "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 100000; ++i) { void* volatile p "
                                   "= malloc(9); (void)p; } }\n";
  const auto bytes = [&](const char* option) -> double {
    if (!shell(std::string(RINGSIDE_COMMAND) + " record -q -b 64M -o " + at + "/same --libc malloc " + option + " -- " + at +
               "/a.out")
             .good)
      return 0;
    double sum = 0;
    for (const auto& file : std::filesystem::directory_iterator(at + "/same"))
      if (file.path().extension() == ".raw") sum += static_cast<double>(file.file_size());
    return sum;
  };
  if (shell("gcc -O1 -o " + at + "/a.out " + at + "/same.c").good) {
    const double with = bytes("--stack=libc:malloc"), without = bytes("");
    row("stack.repeat_bytes", (with - without) / 1e5, "bytes",
        text("more for each of 100,000 allocations at one place; without stacks %.1f bytes each", without / 1e5));
  }
  const bool made = shell("g++ -E " + at + "/a.cpp -o " + at + "/a.ii").good;
  const std::string compiler = "$(g++ -print-prog-name=cc1plus) -quiet -O1 " + at + "/a.ii -o /dev/null";
  const std::string record = std::string(RINGSIDE_COMMAND) + " record -q -b 8M --fail-on-loss -o " + at + "/data ";
  if (made) {
    compare("malloc.over_heaptrack", record + "--libc malloc --stack=libc:malloc,libc:calloc,libc:realloc -- ",
            "heaptrack -o " + at + "/heaptrack ", compiler, true,
            "wall time of a compiler, each of 300,000 allocations with its stack");
    names_beside_perf(at, compiler);
    compare("sample.over_perf", record + "--sample 999 -- ", "perf record -q -g -F 999 -o " + at + "/perf.data ", compiler,
            false, "CPU time of a compiler and its recorder");
  }
  std::filesystem::remove_all(at);
}

}  // namespace bench
