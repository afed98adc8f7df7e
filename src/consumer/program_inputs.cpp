// Programs that write now: an instance, the rings that a server hands out of one, an external writer.
#include <filesystem>
#include <optional>
#include <set>

#include "analysis/names.hpp"
#include "consumer/input.hpp"
#include "consumer/trace.hpp"
#include "text/units.hpp"
#include "remote/process.hpp"
#include "source/get_reader_served.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// Opens the rings that are new among `names`. open(ring): its source.
class ComingRings {
 public:
  template <class Open>
  void add(Trace& trace, const Input& of, const std::vector<RingName>& names, const Open& open) {
    for (const RingName& name : names) {
      trace.tasks.add(name, of.origin.ids);
      // A CPU's ring that was moved aside is open already under the CPU's number. A ring that fails is noted, too, so it is
      // reported once.
      if (!known_.insert({name.place(), name.cpu >= 0 ? name.tid : 0}).second) continue;
      if (auto source = open(name.ring))
        trace.timeline.add(std::move(*source), of.origin);
      else
        trace.timeline.add_problem(source.error().sentence + "; its events are not here");
    }
  }

 private:
  std::set<std::pair<u32, i32>> known_;  // by number or CPU, and owner
};

class InstanceInput : public Input {
 public:
  using Input::Input;
  result<void> open(Trace& trace) override;
  std::unique_ptr<Input> another() const override { return instance_input(where); }
  ClockInfo own_clock() const override { return instance_->clock(); }
  Instance* instance() const override { return instance_.get(); }
  bool live() const override { return true; }
  bool may_get_rings() const override { return true; }
  bool has_no_writer() const override { return instance_->writers() == Presence::none; }
  void look_for_rings(Trace& trace) override;
  std::vector<NameChange> take_names() override { return instance_->names(names_seen_); }
  std::optional<Cleared> cleared() const override;
  Account account() const override;
  std::vector<std::unique_ptr<Source>> open_again() const override;

 private:
  result<void> why_not(const Error& error) const;
  std::unique_ptr<Instance> instance_;
  ComingRings rings_;
  u64 threads_seen_ = 0, names_seen_ = 0;
};

// Does it name events of the kernel?
bool is_event(const std::string& text) {
  const auto patterns = EventPatterns::parse(text);
  if (!patterns) return false;
  const auto known = kernel_events();
  return known && std::any_of(patterns->begin(), patterns->end(), [&](const auto& p) { return means_kernel(p, *known); });
}

result<void> InstanceInput::why_not(const Error& error) const {
  std::error_code none;
  if (std::filesystem::is_directory(where, none))
    return refuse(std::errc::invalid_argument,
                  where + " is neither a recording (it has no meta.json) nor an instance (" + error.sentence + ")");
  if (where == default_recording) {
    const auto names = Instance::list();
    return refuse(std::errc::no_such_file_or_directory,
                  "there is no recording ./" + where + "; make one with: ringside record -- COMMAND" +
                      (names.empty() ? "" : "; or name an instance: " + short_list(names)));
  }
  if (std::filesystem::exists(where, none))
    return refuse(std::errc::invalid_argument, where + " is neither a recording nor a trace.dat nor an instance");
  if (error.code == std::errc::no_such_file_or_directory && where.find('/') == std::string::npos)
    return refuse(std::errc::no_such_file_or_directory,
                  "there is no recording, trace.dat or instance " + where +
                      (is_event(where) ? "; an event of this name is chosen by -e " + where : Instance::where_else(where)));
  return tl::unexpected<Error>(error);
}

result<void> InstanceInput::open(Trace& trace) {
  auto opened = Instance::open(where);
  if (!opened) return why_not(opened.error());
  instance_ = std::move(*opened);
  trace.tasks.are_here();
  clock = to_string(instance_->clock().kind);
  boot = sys::boot_id();
  world = World::own();
  return {};
}

void InstanceInput::look_for_rings(Trace& trace) {
  add_events(trace, *this, instance_->events());
  if (const u64 seen = instance_->threads_seen(); seen != threads_seen_) {
    threads_seen_ = seen;
    for (const RingName& thread : instance_->threads()) trace.tasks.add(thread, origin.ids);
  }
  rings_.add(trace, *this, instance_->ring_names(), [&](u32 ring) { return instance_->peek(ring); });
}

std::optional<Input::Cleared> InstanceInput::cleared() const {
  const InstanceWords words = instance_->words();
  for (u32 n = 0, end = words.nr_rings(); n < end; ++n)
    if (is_clearing(__atomic_load_n(&words.ring(n).state, __ATOMIC_ACQUIRE))) return std::nullopt;
  const InstanceControl& c = *words.control;
  return Cleared{__atomic_load_n(&c.cleared_written, __ATOMIC_ACQUIRE), __atomic_load_n(&c.cleared_overrun, __ATOMIC_ACQUIRE)};
}

Account InstanceInput::account() const {
  Account of = doubtful();
  of.refused = instance_->refused_elsewhere();
  of.refused += refused_of(counters_of(instance_->past()));
  if (std::string untraced = instance_->untraced(); !untraced.empty()) of.doubts.push_back(std::move(untraced));
  for (const RingInfo& ring : instance_->rings()) {
    of.refused += refused_of(ring.counters);
    if (!ring.problem.empty()) of.doubts.push_back(ring.problem);
  }
  return of;
}

std::vector<std::unique_ptr<Source>> InstanceInput::open_again() const {
  std::vector<std::unique_ptr<Source>> again;
  for (const RingName& name : instance_->ring_names()) {
    if (auto source = instance_->peek(name.ring)) again.push_back(std::move(*source));
  }
  return again;
}

// The rings follow with the first look_for_rings().
class ServedInput : public Input {
 public:
  using Input::Input;
  result<void> open(Trace& /*trace*/) override {
    server_ = RS_TRY(ServedConnection::connect(where));
    clock = to_string(server_->clock().kind);
    boot = sys::boot_id();
    world = World::own();
    return {};
  }
  std::unique_ptr<Input> another() const override { return served_input(where); }
  ClockInfo own_clock() const override { return server_->clock(); }
  bool live() const override { return true; }
  bool may_get_rings() const override { return !server_->gone(); }
  bool consumes() const override { return true; }
  void look_for_rings(Trace& trace) override {
    if (const auto names = ask(trace))
      rings_.add(trace, *this, *names, [&](u32 ring) { return served_source(server_, ring); });
    else
      trace.timeline.add_problem(names.error().sentence);
  }
  Account account() const override {
    Account of = doubtful();
    if (const auto refused = this->refused())
      of.refused = *refused;
    else
      of.doubts.push_back(refused.error().sentence);
    return of;
  }

 private:
  result<std::vector<RingName>> ask(Trace& trace) {
    RS_TRY(server_->greet());
    if (server_->hello().nr_events != events_seen_) {
      const auto events = RS_TRY(served_events(*server_));
      add_events(trace, *this, events);
      events_seen_ = events.size();
    }
    return served_rings(*server_);
  }
  // Events that never came into a ring. A ring that is not open here is among the problems.
  result<RefusedCounts> refused() const {
    RefusedCounts refused = refused_of(RS_TRY(server_->counters(std::nullopt)));
    for (const RingName& name : RS_TRY(served_rings(*server_)))
      if (const auto ring = server_->counters(name.ring)) refused += refused_of(*ring);
    return refused;
  }

  std::shared_ptr<ServedConnection> server_;
  ComingRings rings_;
  size_t events_seen_ = 0;
};

class WriterInput : public Input {
 public:
  WriterInput(const std::string& named, std::string socket) : Input(named), socket_(std::move(socket)) {}
  result<void> open(Trace& trace) override {
    remote::Process::Options make;
    make.buffer.size = 4 << 20;
    make.buffer.subbuf_size = 16384;
    make.buffer.rings = 0;  // as many as it has
    make.buffer.clock = clock_info_ = calibrate(best_clock());
    process_ = RS_TRY(remote::Process::attach(socket_, make));
    world = World::own();
    boot = sys::boot_id();
    add_events(trace, *this, process_->events());
    for (u32 ring = 0; ring < process_->buffer().plan().nr_rings; ++ring) {
      sources.push_back(RS_TRY(process_->buffer().source(ring)));
      trace.tasks.add(sources.back()->name(), origin.ids);
    }
    for (const RingName& thread : process_->threads()) trace.tasks.add(thread, origin.ids);
    clock = to_string(clock_info_.kind);
    return process_->enable(true);
  }
  std::unique_ptr<Input> another() const override { return writer_input(where, socket_); }
  ClockInfo own_clock() const override { return clock_info_; }
  bool live() const override { return true; }
  bool begins_when_opened() const override { return true; }
  void patience(std::chrono::nanoseconds most) override { process_->patience(most); }
  Account account() const override {
    Account of = doubtful();
    of.refused[Refusal::unknown] = process_->buffer().refused();
    of.refused_at_least = !process_->buffer().refused_is_exact();
    process_->add_not_brought(of);
    return of;
  }

 private:
  std::string socket_;
  std::unique_ptr<remote::Process> process_;
  ClockInfo clock_info_{};
};

}  // namespace

std::unique_ptr<Input> instance_input(const std::string& name) { return std::make_unique<InstanceInput>(name); }
std::unique_ptr<Input> served_input(const std::string& socket) { return std::make_unique<ServedInput>(socket); }
std::unique_ptr<Input> writer_input(const std::string& named, const std::string& socket) {
  return std::make_unique<WriterInput>(named, socket);
}

}  // namespace ringside
