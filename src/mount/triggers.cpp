#include "mount/triggers.hpp"

#include <algorithm>
#include <charconv>

#include "consumer/reading.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

constexpr const char* act_names[] = {"traceon", "traceoff", "snapshot", "enable_event", "disable_event"};
constexpr size_t most_off = 4096;  // times; the oldest are forgotten
constexpr u64 look_every_ns = 2'000'000, look_ahead_ns = 20'000'000;

tl::unexpected<Error> wrong(std::string_view text) {
  return refuse(std::errc::invalid_argument, "no trigger: " + std::string(text.substr(0, 100)));
}

std::string_view take_until(std::string_view& rest, std::string_view ends) {
  const size_t end = std::min(rest.find_first_of(ends), rest.size());
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(end);
  return taken;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool Trigger::same_kind(const Trigger& other) const {
  if (switches_event()) return other.switches_event() && system == other.system && event == other.event;
  return switches() ? other.switches() : act == other.act;
}

std::string Trigger::text() const {
  std::string line = act_names[static_cast<size_t>(act)];
  if (switches_event()) line += ":" + system + ":" + event;
  line += left ? ":count=" + std::to_string(*left) : ":unlimited";
  if (!filter.empty()) line += " if " + filter;
  return line;
}

result<TriggerCommand> parse_trigger(std::string_view text) {
  TriggerCommand command;
  Trigger& trigger = command.trigger;
  std::string_view rest = trimmed(text);
  if (!rest.empty() && rest.front() == '!') {
    command.remove = true;
    rest.remove_prefix(1);
  }
  std::string_view word = take_until(rest, " \t");
  const std::string_view name = take_until(word, ":");
  const auto* const found = std::find(std::begin(act_names), std::end(act_names), name);
  if (found == std::end(act_names)) return wrong(text);
  trigger.act = static_cast<Trigger::Act>(found - act_names);
  if (trigger.switches_event()) {
    if (word.empty()) return wrong(text);
    word.remove_prefix(1);
    trigger.system = take_until(word, ":");
    if (word.empty()) return wrong(text);
    word.remove_prefix(1);
    trigger.event = take_until(word, ":");
    if (trigger.system.empty() || trigger.event.empty()) return wrong(text);
  }
  if (command.remove) return command;  // count and filter select nothing
  if (!word.empty()) {
    word.remove_prefix(1);
    u64 count = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (code != std::errc() || end != word.data() + word.size()) return wrong(text);
    trigger.left = count;
  }
  rest = trimmed(rest);
  if (rest.empty()) return command;
  if (take_until(rest, " \t") != "if") return wrong(text);
  trigger.filter = trimmed(rest);
  if (trigger.filter.empty()) return wrong(text);
  return command;
}

Triggers::Triggers(Instance& instance, std::function<void()> acted) : instance_(instance), acted_(std::move(acted)) {}

Triggers::~Triggers() {
  over_ = true;
  if (watch_.joinable()) watch_.join();
  if (soft_off_) (void)instance_.tracing(false);  // as the client wanted it
}

result<void> Triggers::add(const std::string& system, const std::string& event, Trigger trigger) {
  {
    const std::lock_guard lock(mutex_);
    for (const Armed& a : armed_)
      if (a.system == system && a.event == event && a.trigger.same_kind(trigger))
        return fail(EEXIST, "the event has such a trigger");
    armed_.push_back({system, event, std::move(trigger), now()});
    // From now on the rings must not be off.
    if (waits_for_on() && !instance_.tracing_on()) {
      switch_to(false, now());
      RS_TRY(instance_.tracing(true));
    }
  }
  rewatch();
  return {};
}

void Triggers::remove(const std::string& system, const std::string& event, const Trigger& trigger) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(armed_,
                  [&](const Armed& a) { return a.system == system && a.event == event && a.trigger.same_kind(trigger); });
    if (soft_off_ && !waits_for_on()) {
      (void)instance_.tracing(false);
      switch_to(true, now());
    }
  }
  rewatch();
}

std::string Triggers::text(const std::string& system, const std::string& event) {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const Armed& a : armed_)
    if (a.system == system && a.event == event) all += a.trigger.text() + "\n";
  if (!all.empty()) return all;
  all = "# Available triggers:\n#";
  for (const char* name : act_names) all += std::string(" ") + name;
  return all + "\n";
}

bool Triggers::snapshots() {
  const std::lock_guard lock(mutex_);
  return std::any_of(armed_.begin(), armed_.end(), [](const Armed& a) { return a.trigger.act == Trigger::Act::snapshot; });
}

u64 Triggers::now() const {
  const ClockInfo& clock = instance_.clock();
  if (clock.kind != ClockKind::counter) return now_of(clock);
  return RingClockNow{clock.kind, &instance_.words().control->clock_base_ticks}.now();
}

bool Triggers::has_marker(const std::string& event) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(armed_.begin(), armed_.end(), [&](const Armed& a) { return of_markers(a) && a.event == event; });
}

bool Triggers::waits_for_on() const {
  return std::any_of(armed_.begin(), armed_.end(), [](const Armed& a) {
    return !of_markers(a) && a.trigger.act == Trigger::Act::traceon && a.trigger.left != 0;
  });
}

result<void> Triggers::tracing(bool on) {
  const std::lock_guard lock(mutex_);
  if (!waits_for_on()) {
    RS_TRY(instance_.tracing(on));
    return {};
  }
  RS_TRY(instance_.tracing(true));
  switch_to(on, now());
  return {};
}

bool Triggers::tracing_on() const {
  const std::lock_guard lock(mutex_);
  return instance_.tracing_on() && !soft_off_;
}

// The lock is held.
void Triggers::switch_to(bool on, u64 time) {
  if (soft_off_ == !on) return;
  soft_off_ = !on;
  if (on) {
    off_.back().until = time;
  } else {
    if (off_.size() >= most_off) off_.erase(off_.begin());
    off_.push_back({time, ~u64{0}});
    any_off_ = true;
  }
}

bool Triggers::hidden(u64 time) {
  if (!any_off_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(off_.begin(), off_.end(), [&](const Off& o) { return time > o.from && time < o.until; });
}

bool Triggers::use_up(const Armed& armed) {
  const std::lock_guard lock(mutex_);
  for (Armed& a : armed_) {
    if (a.system != armed.system || a.event != armed.event || !a.trigger.same_kind(armed.trigger)) continue;
    if (!a.trigger.left) return true;
    if (*a.trigger.left == 0) return false;
    --*a.trigger.left;
    return true;
  }
  return false;
}

void Triggers::give_back(const Armed& armed) {
  const std::lock_guard lock(mutex_);
  for (Armed& a : armed_)
    if (a.system == armed.system && a.event == armed.event && a.trigger.same_kind(armed.trigger) && a.trigger.left)
      ++*a.trigger.left;
}

void Triggers::run(Instance& instance, const Armed& armed, u64 time) {
  if (!use_up(armed)) return;
  const auto done = act(instance, armed.trigger, time);
  if (!done && done.error().code == std::errc::device_or_resource_busy) give_back(armed);
  acted_();
}

result<void> Triggers::act(Instance& instance, const Trigger& trigger, u64 time) {
  if (trigger.act == Trigger::Act::snapshot) {
    RS_TRY(instance.snapshot());
    return {};
  }
  if (trigger.switches_event()) {
    RS_TRY(instance.enable(trigger.system + ":" + trigger.event, trigger.act == Trigger::Act::enable_event));
    return {};
  }
  const bool on = trigger.act == Trigger::Act::traceon;
  const std::lock_guard lock(mutex_);
  if (!waits_for_on() && !soft_off_) return instance.tracing(on);
  switch_to(on, time);
  return {};
}

void Triggers::marker(const std::string& event, const TraceRecord& record, const RingName& ring, const Formats& formats,
                      const Tasks& tasks) {
  std::vector<Armed> armed;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(armed_.begin(), armed_.end(), std::back_inserter(armed),
                 [&](const Armed& a) { return of_markers(a) && a.event == event; });
  }
  for (const Armed& a : armed) {
    if (!a.trigger.filter.empty()) {
      auto filter = Filter::compile(a.trigger.filter, formats, tasks);
      if (!filter || !filter->matches(record, ring)) continue;
    }
    run(instance_, a, record.time);
  }
}

// Begins to watch anew, with the present triggers.
void Triggers::rewatch() {
  over_ = true;
  if (watch_.joinable()) watch_.join();
  over_ = false;
  std::vector<Armed> armed;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(armed_.begin(), armed_.end(), std::back_inserter(armed), [](const Armed& a) { return !of_markers(a); });
  }
  if (armed.empty()) return;
  auto thread = sys::quiet_thread("that watches for triggers", [this, armed] { watch(armed); });
  if (thread) watch_ = std::move(*thread);
}

void Triggers::watch(const std::vector<Armed>& armed) {
  Reading::Options options;
  options.where = {instance_.path()};
  for (const Armed& a : armed) options.only.add(EventPattern(a.system + ":" + a.event));
  auto reading = Reading::open(std::move(options));
  auto own = Instance::open(instance_.path());  // instance_ is for the owner's thread
  if (!reading || !own) return;
  Trace& trace = (*reading)->trace();
  const u64 seen = watched_until_;  // the rings still have what the last watch has seen
  (*reading)->follow(look_ahead_ns);
  std::vector<std::optional<Filter>> filters(armed.size());
  do {
    (*reading)->take(
        [&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
          if (over_ || record.time <= seen) return;
          watched_until_ = record.time;
          if (got != Reading::Got::event) return;
          const EventType* const type = trace.formats.find(record.number());
          if (type == nullptr) return;
          for (size_t i = 0; i < armed.size(); ++i) {
            const Armed& a = armed[i];
            if (type->system != a.system || type->name != a.event || record.time < a.since) continue;
            if (!a.trigger.filter.empty()) {
              if (!filters[i])
                if (auto filter = Filter::compile(a.trigger.filter, trace.formats, trace.tasks))
                  filters[i] = std::move(*filter);
              if (!filters[i] || !filters[i]->matches(record, ring)) continue;
            }
            run(**own, a, record.time);
          }
        },
        [&] { return over_.load(); });
  } while (!over_ && (*reading)->wait(look_every_ns));
}

}  // namespace ringside::mount
