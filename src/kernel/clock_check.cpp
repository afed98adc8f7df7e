#include "kernel/clock_check.hpp"

#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <ringside/abi/event_cursor.hpp>
#include <sstream>

#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u32 markers_a_visit = 20;
constexpr int visits = 2;                       // to each processor: a clock with another rate has moved in between
constexpr timespec between_visits{0, 20'000'000};

struct Bracket {
  u64 before, after;
};

// The known bounds of the offset, in ticks.
struct Bounds {
  i64 low = INT64_MIN, high = INT64_MAX;
  u32 markers = 0;
};

// Moves this thread to each processor that it may run on, and back.
class Processors {
 public:
  Processors() { sched_getaffinity(0, sizeof before_, &before_); }
  ~Processors() { sched_setaffinity(0, sizeof before_, &before_); }
  bool go_to(u32 cpu) const {
    if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &before_)) return false;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
  }

 private:
  cpu_set_t before_;
};

result<void> visit(const TracefsInstance& instance, u32 cpu, const sys::Fd& marker, ClockKind kind, Bounds& bounds) {
  auto source = RS_TRY(open_kernel_ring({instance.dir(), cpu}, ClockInfo{}, KernelWay::read));
  RingClockNow ours{kind, nullptr};
  std::vector<Bracket> brackets;
  const u32 id_and_data[2] = {};
  for (u32 i = 0; i < markers_a_visit; ++i) {
    Bracket b{ours.now(), 0};
    if (::write(marker.get(), id_and_data, sizeof id_and_data) < 0)
      return fail(errno, "cannot write to " + instance.dir() + "/trace_marker_raw");
    b.after = ours.now();
    brackets.push_back(b);
  }
  size_t at = 0;
  for (;;) {
    auto view = RS_TRY(source->next());
    if (!view) break;
    abi::EventCursor events(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
    for (; events.next() && at < brackets.size(); ++at, ++bounds.markers) {
      bounds.low = std::max(bounds.low, static_cast<i64>(events.time() - brackets[at].after));
      bounds.high = std::min(bounds.high, static_cast<i64>(events.time() - brackets[at].before));
    }
  }
  if (at != brackets.size())
    return refuse(std::errc::io_error, instance.dir() + " has " + std::to_string(at) + " of " +
                                           std::to_string(brackets.size()) + " markers that processor " + std::to_string(cpu) +
                                           " wrote");
  return {};
}

// The names in trace_clock; the one in brackets is set.
std::vector<std::string> names_of(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '[' || c == ']'; });
    names.push_back(word);
  }
  return names;
}

}  // namespace

result<std::vector<ClockCheck>> check_kernel_clocks() {
  TracefsOptions options;
  options.prefix = "ringside-doctor-";
  options.buffer_size = 64 * 1024;
  options.clock = ClockKind::mono;
  auto instance = RS_TRY(TracefsInstance::create(options));
  auto names = RS_TRY(sys::read_file(instance.dir() + "/trace_clock"));
  const sys::Fd marker(open((instance.dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC));
  if (!marker) return fail(errno, "cannot open " + instance.dir() + "/trace_marker_raw");
  RS_TRY(instance.tracing(true));
  const ClockInfo tsc = calibrate(ClockKind::tsc);
  const Processors processors;
  std::vector<ClockCheck> all;
  for (const std::string& name : names_of(names)) {
    ClockCheck check;
    check.name = name;
    check.against = name == to_string(ClockKind::tsc) ? ClockKind::tsc : ClockKind::mono;
    RS_TRY(instance.write("trace_clock", name));
    Bounds bounds;
    for (int i = 0; i < visits; ++i) {
      if (i != 0) nanosleep(&between_visits, nullptr);
      check.processors = 0;
      for (const u32 cpu : instance.cpus()) {
        if (!processors.go_to(cpu)) continue;
        ++check.processors;
        RS_TRY(visit(instance, cpu, marker, check.against, bounds));
      }
    }
    const auto ns = [&](i64 ticks) {
      return check.against == ClockKind::tsc
                 ? static_cast<i64>(tsc.to_ns(tsc.base_ticks + static_cast<u64>(ticks)) - tsc.base_ns)
                 : ticks;
    };
    check.markers = bounds.markers;
    check.constant = bounds.low <= bounds.high;
    const i64 low = ns(std::min(bounds.low, bounds.high)), high = ns(std::max(bounds.low, bounds.high));
    check.offset_ns = low + (high - low) / 2;
    check.error_ns = static_cast<u64>(high - low + 1) / 2;
    all.push_back(std::move(check));
  }
  return all;
}

namespace {

ClockOffset offset_by_reading(clockid_t id) {
  Bounds bounds;
  const auto read = [](clockid_t which) {
    timespec t{};
    clock_gettime(which, &t);
    return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
  };
  u64 at = 0;
  for (int i = 0; i < 100; ++i) {
    const u64 before = read(CLOCK_MONOTONIC), its = read(id);
    at = read(CLOCK_MONOTONIC);
    bounds.low = std::max(bounds.low, static_cast<i64>(its - at));
    bounds.high = std::min(bounds.high, static_cast<i64>(its - before));
  }
  return {std::min(bounds.low, bounds.high), std::max(bounds.low, bounds.high), at};
}

}  // namespace

struct ClockMeter::Markers {
  TracefsInstance instance;
  sys::Fd file;
};

ClockMeter::ClockMeter(ClockMeter&&) noexcept = default;
ClockMeter::~ClockMeter() = default;

result<ClockMeter> ClockMeter::of(const std::string& name) {
  static const std::pair<const char*, clockid_t> readable[] = {
      {"mono", CLOCK_MONOTONIC}, {"mono_raw", CLOCK_MONOTONIC_RAW}, {"boot", CLOCK_BOOTTIME}, {"tai", CLOCK_TAI}};
  ClockMeter meter;
  for (const auto& [known, id] : readable)
    if (name == known) meter.readable_ = id;
  if (meter.readable_) return meter;
  if (name != "local" && name != "global" && name != "perf" && name != "uptime")
    return refuse(std::errc::not_supported, "the clock " + name + " has no time that could be converted");
  TracefsOptions options;
  options.prefix = "ringside-clock-";
  options.buffer_size = 64 * 1024;
  options.clock = ClockKind::mono;
  auto instance = RS_TRY(TracefsInstance::create(options));
  RS_TRY(instance.write("trace_clock", name));
  sys::Fd marker(open((instance.dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC));
  if (!marker) return fail(errno, "cannot open " + instance.dir() + "/trace_marker_raw");
  RS_TRY(instance.tracing(true));
  meter.markers_ = std::make_unique<Markers>(Markers{std::move(instance), std::move(marker)});
  return meter;
}

result<ClockOffset> ClockMeter::offset() {
  if (markers_ == nullptr) return offset_by_reading(*readable_);
  const Processors processors;
  Bounds bounds;
  for (const u32 cpu : markers_->instance.cpus()) {
    if (!processors.go_to(cpu)) continue;
    RS_TRY(visit(markers_->instance, cpu, markers_->file, ClockKind::mono, bounds));
  }
  return ClockOffset{std::min(bounds.low, bounds.high), std::max(bounds.low, bounds.high), sys::now_ns()};
}

result<ClockConversion> measure_clock(const std::string& name) {
  auto meter = RS_TRY(ClockMeter::of(name));
  const auto first = RS_TRY(meter.offset());
  const timespec pause{0, 200'000'000};
  nanosleep(&pause, nullptr);
  const auto last = RS_TRY(meter.offset());
  ClockConversion c;
  c.error_ns = static_cast<u64>(last.high - last.low + 1) / 2;
  // The rate is 1 as long as one offset fits both; its error is the range that the measurements leave open.
  const auto apart = static_cast<double>(last.at - first.at);
  const auto least = static_cast<double>(last.low - first.high) / apart,
             most = static_cast<double>(last.high - first.low) / apart;
  const double drift = least <= 0 && most >= 0 ? 0 : (least + most) / 2;
  c.drift_ppm = name == "mono" ? 0 : std::max(most - drift, drift - least) * 1e6;
  c.clock = line(last.at + static_cast<u64>(last.middle()), last.at, 1 / (1 + drift));
  return c;
}

std::string kernel_clock_of(const std::string& instance_dir) {
  const auto text = sys::read_file(instance_dir + "/trace_clock");
  const size_t mark = text ? text->find('[') : std::string::npos;
  return mark == std::string::npos ? "" : text->substr(mark + 1, text->find(']') - mark - 1);
}

}  // namespace ringside
