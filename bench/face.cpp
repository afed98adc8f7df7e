// What 100 used events in one unit cost a program: the compiler's time and the code, beside LTTng-UST's.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench.hpp"

namespace bench {
namespace {

namespace fs = std::filesystem;
constexpr int events = 100;
constexpr const char* types[] = {"u32", "u64", "cstring", "i32", "double"};
constexpr const char* values[] = {"n", "n", "\"text\"", "n", "1.5"};
constexpr const char* lttng_types[] = {"unsigned", "unsigned long", "const char *", "int", "double"};
constexpr const char* lttng_fields[] = {"integer(unsigned, ", "integer(unsigned long, ", "string(", "integer(int, ", "float(double, "};

// One to five fields, as programs have them.
int fields_of(int event) { return 1 + event % 5; }

std::string name(const char* what, int number) { return what + std::to_string(number); }

std::string ours() {
  std::string declared = "#include <ringside/trace.hpp>\n", calls;
  for (int e = 0; e < events; ++e) {
    declared += "RINGSIDE_EVENT(face, " + name("event", e);
    calls += "  face::" + name("event", e) + "(";
    for (int f = 0; f < fields_of(e); ++f) {
      declared += std::string(", (") + types[(e + f) % 5] + ", " + name("field", f) + ")";
      calls += std::string(f != 0 ? ", " : "") + values[(e + f) % 5];
    }
    declared += ");\n";
    calls += ");\n";
  }
  return declared + "void call(int n) {\n" + calls + "}\n";
}

struct Lttng {
  std::string header, calls;
};
Lttng lttng() {
  Lttng all{"#undef LTTNG_UST_TRACEPOINT_PROVIDER\n#define LTTNG_UST_TRACEPOINT_PROVIDER face\n#undef LTTNG_UST_TRACEPOINT_INCLUDE\n"
            "#define LTTNG_UST_TRACEPOINT_INCLUDE \"./events.h\"\n"
            "#if !defined(EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)\n#define EVENTS_H\n#include <lttng/tracepoint.h>\n",
            "#include \"events.h\"\nvoid call(int n) {\n"};
  for (int e = 0; e < events; ++e) {
    std::string arguments, fields, call;
    for (int f = 0; f < fields_of(e); ++f) {
      const std::string field = name("field", f);
      const int type = (e + f) % 5;
      arguments += std::string(f != 0 ? ", " : "") + lttng_types[type] + ", " + field;
      fields += std::string(" lttng_ust_field_") + lttng_fields[type] + field + ", " + field + ")";
      call += std::string(", ") + values[type];
    }
    all.header += "LTTNG_UST_TRACEPOINT_EVENT(face, " + name("event", e) + ", LTTNG_UST_TP_ARGS(" + arguments +
                  "), LTTNG_UST_TP_FIELDS(" + fields + "))\n";
    all.calls += "  lttng_ust_tracepoint(face, " + name("event", e) + call + ");\n";
  }
  all.header += "#endif\n#include <lttng/tracepoint-event.h>\n";
  all.calls += "}\n";
  return all;
}

struct Compiled {
  double seconds = 0;  // of CPU time
  double bytes = 0;    // of code and constants
};
std::optional<Compiled> compiled(const fs::path& dir, const std::string& file, const std::string& options) {
  const auto used = [] {
    rusage r{};
    getrusage(RUSAGE_CHILDREN, &r);
    return static_cast<double>(r.ru_utime.tv_sec) + static_cast<double>(r.ru_utime.tv_usec) / 1e6;
  };
  const std::string in = "cd " + dir.string() + " && ", object = file + ".o";
  Compiled best{1e9, 0};
  for (int i = 0; i < (quick ? 1 : 3); ++i) {
    const double from = used();
    if (std::system((in + "c++ -std=c++17 -O2 -c " + file + " -o " + object + " " + options + " 2>/dev/null").c_str()) != 0) return {};
    best.seconds = std::min(best.seconds, used() - from);
  }
  if (std::system((in + "size " + object + " | awk 'NR == 2 {print $1}' > bytes").c_str()) != 0) return {};
  std::ifstream(dir / "bytes") >> best.bytes;
  return best;
}

void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

}  // namespace

void face_rows() {
  const fs::path dir = fs::temp_directory_path() / ("ringside-bench-face-" + std::to_string(getpid()));
  fs::create_directories(dir);
  write(dir / "ours.cpp", ours());
  const Lttng rival = lttng();
  write(dir / "events.h", rival.header);
  write(dir / "calls.cpp", rival.calls);
  write(dir / "probes.cpp", "#define LTTNG_UST_TRACEPOINT_CREATE_PROBES\n#define LTTNG_UST_TRACEPOINT_DEFINE\n#include \"events.h\"\n");
  const auto mine = compiled(dir, "ours.cpp", "-I" RINGSIDE_INCLUDE);
  const auto calls = compiled(dir, "calls.cpp", "-I."), probes = compiled(dir, "probes.cpp", "-I.");
  fs::remove_all(dir);
  const char* const why = "no compiler c++ here";
  const bool both = calls && probes;
  row("face.compile_s", mine ? std::optional(mine->seconds) : std::nullopt, "s",
      !mine ? why
      : both ? text("CPU time for 100 used events in one unit; LTTng-UST: %.2f s, and %.2f s once for its probes", calls->seconds, probes->seconds)
             : text("CPU time for 100 used events in one unit; LTTng-UST is not installed"));
  row("face.bytes_per_event", mine ? std::optional(mine->bytes / events) : std::nullopt, "bytes",
      !mine ? why
      : both ? text("code and constants; LTTng-UST: %.0f, and %.0f for its probe", calls->bytes / events, probes->bytes / events)
             : text("code and constants; LTTng-UST is not installed"));
}

}  // namespace bench
