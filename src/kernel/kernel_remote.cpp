#include "kernel/kernel_remote.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "kernel/clock_check.hpp"
#include "kernel/interrupted_file.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/remote_text.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/packer.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u64 measure_every_ns = 2'000'000'000;
constexpr u64 most_off_ns = 100'000'000;  // an event that is further from the moment of its reading has another clock
constexpr u32 packed_bytes = 16384;
constexpr u16 line_id = 0xFFFF;

result<void> put(const std::string& path, const std::string& text) {
  const sys::Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return fail(errno, "cannot open " + path);
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail(errno, "cannot write \"" + text + "\" to " + path);
  return {};
}

bool is_one(const std::string& path) { return sys::read_file(path).value_or("").starts_with('1'); }

std::string name_of(const std::string& dir) { return dir.substr(dir.rfind('/') + 1); }

// No file names a remote's clock. pKVM's hypervisor has the kernel's boot clock, and others, the kernel's test module among
// them, its global one; what is read is compared with the moment of its reading.
std::string clock_of(const std::string& name) { return name == "hypervisor" ? "boot" : "global"; }

}  // namespace

std::vector<KernelEvent> kernel_remote_events(const std::string& remote_dir) {
  std::vector<KernelEvent> all;
  for (const std::string& system : names_in(remote_dir + "/events"))
    for (const std::string& name : names_in(remote_dir + "/events/" + system))
      if (access((remote_dir + "/events/" + system + "/" + name + "/format").c_str(), F_OK) == 0)
        all.push_back({system, name, name_of(remote_dir)});
  return all;
}

result<EventInfo> kernel_remote_event(const std::string& remote_dir, const KernelEvent& event) {
  const std::string path = remote_dir + "/events/" + event.system + "/" + event.name;
  const RemoteEventText text(RS_TRY(sys::read_file(path + "/format")));
  EventInfo info;
  info.id = text.id();
  info.system = event.system;
  info.name = event.name;
  info.format = text.format();
  info.enabled = is_one(path + "/enable");
  info.apart = 1;
  return info;
}

u64 RemoteClock::ticks(u64 remote_ns) const {
  const auto behind = static_cast<i64>(remote_ns - last_.remote_ns),
             between = static_cast<i64>(last_.remote_ns - before_.remote_ns);
  if (between <= 0) return last_.ticks + static_cast<u64>(behind);
  __extension__ using i128 = __int128;
  return last_.ticks +
         static_cast<u64>(static_cast<i64>(i128{behind} * static_cast<i64>(last_.ticks - before_.ticks) / between));
}

// What its rings share.
struct KernelRemote::State {
  std::string dir;
  Options options;
  std::map<std::string, RemoteEventText, std::less<>> texts;  // by name
  RemoteEventText any = RemoteEventText::of_lines(line_id);
  std::optional<ClockMeter> meter;
  RemoteClock clock;
  u64 measured_ns = 0;  // CLOCK_MONOTONIC
  i64 offset_ns = 0;    // the remote's clock less that
  std::string off_clock;  // its events are not of the clock that they are taken for
  std::unique_ptr<InterruptedFile> pipe;  // trace_pipe: the lines of all CPUs
  std::map<u32, std::string> lines;       // of each CPU: not taken yet
  u64 waiting = 0;                        // their bytes
  std::string cut;                        // a line of which more has to come
  u64 seen_empty_ns = 0;                  // when nothing was there last
  bool first = true;                      // since then

  result<void> measure() {
    const ClockOffset offset = RS_TRY(meter->offset());
    const TicksAndNs now = counts_ticks(options.clock.kind) ? ticks_and_ns() : TicksAndNs{offset.at, offset.at};
    offset_ns = offset.middle();
    clock.add({now.ns + static_cast<u64>(offset_ns), now.ticks});
    measured_ns = now.ns;
    return {};
  }
  void measure_now_and_then(u64 now) {
    if (now - measured_ns > measure_every_ns && !measure()) measured_ns = now;  // it stays what it was
  }
  // Of an event that has come since nothing was there.
  void check(u64 time_ns) {
    const u64 at = time_ns - static_cast<u64>(offset_ns), now = sys::now_ns();
    if (!off_clock.empty() || (at < now + most_off_ns && at + most_off_ns > seen_empty_ns)) return;
    const u64 by = at < now ? seen_empty_ns - at : at - now;
    off_clock = "the times of " + dir + " are not of the kernel's clock " + clock_of(name_of(dir)) +
                ", for which they are taken: " + "they are " + std::to_string(by / 1'000'000) +
                " ms off, and so are the places of its events among others";
    options.notice(off_clock);
  }

  // Takes what has come. False: nothing.
  result<bool> take_lines() {
    constexpr u64 most_waiting = 64 << 20;  // of CPUs whose ring nobody reads
    if (pipe == nullptr || waiting > most_waiting) return false;
    const u64 now = sys::now_ns();
    measure_now_and_then(now);
    char part[1 << 16];
    std::string text = std::exchange(cut, {});
    for (bool all = false; !all && text.size() < 1 << 20;) {
      const size_t n = RS_TRY(pipe->read(part, sizeof part));
      text.append(part, n);
      all = n == 0;
      if (all && text.empty()) seen_empty_ns = now, first = true;
    }
    const size_t whole = pipe->ended() ? text.size() : text.rfind('\n') + 1;
    cut = text.substr(whole);
    std::string_view rest = std::string_view(text).substr(0, whole);
    while (!rest.empty()) {
      const std::string_view before = rest;
      const auto line = take_remote_line(rest);
      if (line->event && std::exchange(first, false)) check(line->time_us * 1000);
      auto to = lines.find(line->cpu);
      if (to == lines.end()) to = lines.begin();
      to->second += before.substr(0, before.size() - rest.size());
      if (!to->second.ends_with('\n')) to->second += '\n';
    }
    waiting += whole;
    return whole != 0;
  }
};

// The lines of a CPU, out of those of all.
class KernelRemote::Ring final : public Source {
 public:
  Ring(std::shared_ptr<State> state, u32 cpu, RingName name)
      : Source(std::move(name), state->options.clock), state_(std::move(state)), cpu_(cpu), packer_(packed_bytes) {}

  result<std::optional<SubBufferView>> next() override {
    if (std::exchange(again_, false)) return last_;
    for (;;) {
      if (pack() || (rest_.empty() && packer_.pending())) {
        last_ = packer_.take();
        counters_.read += std::exchange(packed_, 0);
        counters_.overrun += last_.lost_before;
        counters_.written = counters_.read + counters_.overrun;
        return last_;
      }
      if (state_->lines[cpu_].empty() && !RS_TRY(state_->take_lines())) return std::nullopt;
      text_ = std::exchange(state_->lines[cpu_], {});
      state_->waiting -= text_.size();
      rest_ = text_;
      if (rest_.empty()) return std::nullopt;
    }
  }
  void put_back() override { again_ = true; }
  Counters counters() const override {
    Counters c = counters_;
    c.subbuf_size = packed_bytes;
    c.nr_subbufs = std::max<u64>(state_->options.buffer_size / packed_bytes, 1) * 4;  // of what is read at once
    c.capacity_bytes = state_->options.buffer_size;
    return c;
  }
  bool ended() const override {
    return (state_->pipe == nullptr || state_->pipe->ended()) && state_->lines[cpu_].empty() && rest_.empty();
  }
  u64 lag_ns() const override { return ended() ? 0 : 200'000'000; }  // the kernel looks every 100 ms

 private:
  // True: there is one to take before the next line.
  bool pack() {
    if (restart_ && !packer_.pending()) packer_.restart(), restart_ = false;
    while (!rest_.empty()) {
      std::string_view behind = rest_;
      const auto line = take_remote_line(behind);
      if (!line->event && line->lost != 0) {
        if (packer_.pending()) return true;
        packer_.restart();  // a gap comes before a sub-buffer
        packer_.lost(line->lost);
        rest_ = behind;
        continue;
      }
      fill(*line);
      if (!packer_.add(state_->clock.ticks(time_us_ * 1000), {payload_.data(), payload_.size()})) {
        restart_ = true;
        if (packer_.pending()) return true;
        packer_.restart();
        continue;
      }
      ++packed_;
      rest_ = behind;
    }
    return false;
  }
  void fill(const RemoteLine& line) {
    if (line.event) time_us_ = line.time_us;
    const size_t end = std::min(line.text.find(' '), line.text.size());
    const auto text = line.event ? state_->texts.find(line.text.substr(0, end)) : state_->texts.end();
    if (text != state_->texts.end() && text->second.read(line.text.substr(std::min(end + 1, line.text.size())), payload_))
      return;
    constexpr size_t most = packed_bytes / 2;
    (void)state_->any.read(line.text.substr(0, most), payload_);
  }

  std::shared_ptr<State> state_;
  u32 cpu_;
  std::string text_;
  std::string_view rest_{};  // of it
  Packer packer_;
  std::vector<u8> payload_;
  Counters counters_{};
  SubBufferView last_{};
  u64 time_us_ = 0, packed_ = 0;
  bool again_ = false, restart_ = false;
};

KernelRemote::KernelRemote(std::string dir, const Options& options)
    : dir_(std::move(dir)), name_(name_of(dir_)), state_(std::make_shared<State>()) {
  state_->dir = dir_;
  state_->options = options;
}

result<std::vector<std::unique_ptr<KernelRemote>>> KernelRemote::all(const EventPatterns& patterns, const Options& options) {
  std::vector<std::unique_ptr<KernelRemote>> all;
  const std::string root = RS_TRY(tracefs_dir()) + "/remotes/";
  for (const std::string& name : names_in(root)) {
    const auto events = kernel_remote_events(root + name);
    const bool named = std::any_of(patterns.begin(), patterns.end(), [&](const EventPattern& pattern) {
      return std::any_of(events.begin(), events.end(), [&](const KernelEvent& e) { return names(pattern, e); });
    });
    if (!named) continue;
    Options of_one = options;
    if (options.first + all.size() > most_apart)
      return refuse(std::errc::argument_list_too_long, "a recording takes the events of " + std::to_string(most_apart) +
                                                           " remotes and external writers at most: name fewer");
    of_one.first = static_cast<u8>(options.first + all.size());
    all.push_back(RS_TRY(open(root + name, patterns, of_one)));
  }
  return all;
}

result<std::unique_ptr<KernelRemote>> KernelRemote::open(const std::string& dir, const EventPatterns& patterns,
                                                         const Options& options) {
  if (options.clock.kind == ClockKind::counter)
    return refuse(std::errc::invalid_argument, "the clock \"counter\" has no time, so the events of " + dir +
                                                   " cannot be put into one order with others: use --clock tsc or mono");
  std::unique_ptr<KernelRemote> remote(new KernelRemote(dir, options));
  State& state = *remote->state_;
  for (const KernelEvent& event : kernel_remote_events(dir)) {
    auto format = RS_TRY(sys::read_file(dir + "/events/" + event.system + "/" + event.name + "/format"));
    state.texts.emplace(event.name, RemoteEventText(format));
    remote->events_.push_back(RS_TRY(kernel_remote_event(dir, event)));
  }
  remote->events_.push_back({line_id, remote->name_, "line", state.any.format(), true, false});
  for (EventInfo& event : remote->events_) event.apart = options.first;
  RS_TRY(remote->hold());
  state.meter.emplace(RS_TRY(ClockMeter::of(clock_of(remote->name_))));
  RS_TRY(state.measure());
  usleep(200'000);
  RS_TRY(state.measure());
  const std::string size = RS_TRY(sys::read_file(dir + "/buffer_size_kb"));  // "7 (unloaded)"
  const std::string before = std::to_string(std::strtoull(size.c_str(), nullptr, 10)),
                    wanted = std::to_string(options.buffer_size >> 10);
  if (size.find("(unloaded)") != size.npos) {
    RS_TRY(put(dir + "/buffer_size_kb", wanted));
    remote->size_before_ = before;
  } else if (before != wanted) {
    options.notice(dir + " has rings already, of " + before +
                   " KiB: they stay; they can be made anew while nobody reads them and " + dir + "/tracing_on is 0");
  }
  remote->was_on_ = is_one(dir + "/tracing_on");
  RS_TRY(remote->switch_events(patterns));
  auto pipe = InterruptedFile::open(dir + "/trace_pipe");
  if (!pipe && pipe.error().code == std::errc::not_enough_memory)
    return refuse(std::errc::not_enough_memory,
                  dir + " has no memory for rings of " + wanted + " KiB on each CPU; take smaller ones (-b)");
  state.pipe = RS_TRY(std::move(pipe));
  for (const u32 cpu : kernel_cpus(dir)) {
    state.lines[cpu] = "";
    RingName name;
    name.ring = cpu;
    name.cpu = static_cast<i32>(cpu);
    name.task = name.process = remote->name_;
    name.apart = options.first;
    remote->sources.push_back(std::make_unique<Ring>(remote->state_, cpu, std::move(name)));
  }
  return remote;
}

result<void> KernelRemote::hold() {
  held_ = sys::Fd(::open((dir_ + "/tracing_on").c_str(), O_RDONLY | O_CLOEXEC));
  if (!held_) return fail(errno, "cannot open " + dir_ + "/tracing_on");
  if (flock(held_.get(), LOCK_EX | LOCK_NB) == 0) return {};
  held_ = sys::Fd();
  return refuse(std::errc::device_or_resource_busy,
                "another ringside reads " + dir_ + ", and each of its events goes to one reader: wait for the end of that one");
}

result<void> KernelRemote::switch_events(const EventPatterns& patterns) {
  for (EventInfo& event : events_) {
    const bool wanted = event.name != "line" && std::any_of(patterns.begin(), patterns.end(), [&](const EventPattern& pattern) {
                          return pattern.of_remotes() && pattern.matches(event.system, event.name);
                        });
    if (!wanted || event.enabled) continue;
    const std::string file = dir_ + "/events/" + event.system + "/" + event.name + "/enable";
    RS_TRY(put(file, "1"));
    enabled_here_.push_back(file);
    event.enabled = true;
  }
  return {};
}

result<void> KernelRemote::on() {
  if (auto done = put(dir_ + "/tracing_on", "1"); !done) return done;
  is_on_ = true;
  return {};
}

void KernelRemote::off() {
  if (std::exchange(is_on_, false) && !was_on_) (void)put(dir_ + "/tracing_on", "0");
  if (state_->pipe != nullptr && !std::exchange(stopped_, true)) state_->pipe->stop();
}

std::vector<std::string> KernelRemote::doubts() const {
  return state_->off_clock.empty() ? std::vector<std::string>() : std::vector{state_->off_clock};
}

KernelRemote::~KernelRemote() {
  if (!held_) return;
  off();
  sources.clear();
  state_->pipe = nullptr;
  for (const std::string& file : enabled_here_) (void)put(file, "0");
  if (!size_before_.empty()) (void)put(dir_ + "/buffer_size_kb", size_before_);  // EBUSY: unread events keep the rings
}

}  // namespace ringside
