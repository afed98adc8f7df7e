// The figures of docs/performance.md: ratios against a floor or another tool in the same run.
//   ringside_bench OUTPUT.json [--quick]
//   [time|start|scale|cpu|reader|live|wait|memory|remote|guest|mount|analyze|jobs|slice|compress|ship|stack|command|unwind|formats|face]...
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench.hpp"

namespace bench {

bool quick = false;
static nlohmann::json rows = nlohmann::json::array();

void row(const std::string& name, std::optional<double> value, const std::string& unit, const std::string& detail) {
  nlohmann::json r{{"name", name}, {"unit", unit}, {"detail", detail}};
  r["value"] = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  rows.push_back(r);
  const std::string number = value ? text("%.4g", *value) : "-";
  std::printf("%-30s %10s %-6s %s\n", name.c_str(), number.c_str(), unit.c_str(), detail.c_str());
  std::fflush(stdout);
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}
double median(std::vector<double> v) { return quantile(std::move(v), 0.5); }
double fastest(const std::vector<double>& rates) { return *std::max_element(rates.begin(), rates.end()); }

std::string text(const char* format, ...) {
  char out[200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out, sizeof out, format, arguments);
  va_end(arguments);
  return out;
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

LocalRing::LocalRing(u32 subbuf_size, u32 nr, bool discard) : ring{Geometry(subbuf_size, nr)} {
  const auto map = [](u64 size) {
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  };
  ring.control = static_cast<Control*>(map(control_size(ring.geometry)));
  ring.data = static_cast<u8*>(map(ring.geometry.data_size()));
  ring.control->mode = discard;
}
LocalRing::~LocalRing() {
  munmap(ring.control, control_size(ring.geometry));
  munmap(ring.data, ring.geometry.data_size());
}

}  // namespace bench

using namespace bench;

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--storm") == 0) return run_storm(std::strtoull(argv[2], nullptr, 10), argv[3]);
  if (argc == 3 && std::strcmp(argv[1], "--start") == 0) return run_start(argv[2]);
  if (argc < 2 || argv[1][0] == '-') {
    std::fprintf(stderr,
                 "usage: ringside_bench OUTPUT.json [--quick] "
                 "[time|log|start|scale|cpu|reader|live|wait|memory|remote|guest|mount|analyze|jobs|slice|compress|ship|stack|"
                 "command|unwind|"
                 "formats|face]...\n");
    return 2;
  }
  quick = argc > 2 && std::strcmp(argv[2], "--quick") == 0;
  const std::vector<std::string> only(argv + (quick ? 3 : 2), argv + argc);
  const auto wanted = [&](const char* name) { return only.empty() || std::find(only.begin(), only.end(), name) != only.end(); };
  char dir[] = "/dev/shm/ringside-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return 1;
  setenv("RINGSIDE_ROOT", dir, 1);
  InstanceOptions options;
  options.name = "bench";
  options.buffer_size = 8 << 20;
  options.rings = Rings::thread;
  {
    const auto instance = must(Instance::create(options));
    if (ringside_open("bench") != 0) return 1;
    must(instance->enable("bench:never*", false));
    ::bench::pair(0, 0);
    if (wanted("time")) time_rows();
    if (wanted("log")) log_rows();
    if (wanted("start")) start_rows();
    if (wanted("scale")) scale_row();
    if (wanted("wait"))
      wait_rows(*instance);  // before cpu_rows, which opens another instance: afterwards this thread has another ring
    if (wanted("cpu")) cpu_rows();
    if (wanted("reader")) reader_rows();
    if (wanted("live")) live_rows();
    if (wanted("memory")) memory_rows(*instance);
    if (wanted("remote")) remote_rows();
    if (wanted("guest")) guest_rows();
    if (wanted("mount")) mount_rows(*instance);
    if (wanted("analyze")) analyze_rows();
    if (wanted("jobs")) jobs_rows();
    if (wanted("slice")) slice_rows();
    if (wanted("compress")) compress_rows();
    if (wanted("ship")) ship_rows();
    if (wanted("stack")) stack_rows();
    if (wanted("command")) command_rows(*instance);
#ifdef RINGSIDE_UNWIND
    if (wanted("unwind")) unwind_rows();
#endif
    if (wanted("formats")) format_rows();
    if (wanted("face")) face_rows();
  }
  ringside_close();
  std::filesystem::remove_all(dir);
  std::ofstream(argv[1]) << nlohmann::json{{"rows", rows}}.dump(1) << "\n";
}
