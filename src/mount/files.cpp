#include "mount/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <sstream>

#include "writer/ring_file.hpp"
#include "instance/ring_source.hpp"
#include "schema/format_text.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

Instance& instance(const Node& at) { return at.on->instance(); }

std::string_view stripped(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; };
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  return text;
}

template <class T>
WriteResult taken(const result<T>& done, std::string_view bytes) {
  if (!done) return tl::unexpected<Error>(done.error());
  return bytes.size();
}

Geometry sizes(const Node& at) { return geometry_of(instance(at).control()); }
Geometry ring_sizes(const Node& at, u32 ring) {
  const Geometry g = at.on->has_ring(ring) ? ring_geometry(at.on->dir(), ring, sizes(at)) : Geometry();
  return g.valid() ? g : sizes(at);
}
u64 kilobytes(const Node& at, const Geometry& g) {
  return at.on->kept_kilobytes != 0 && at.on->kept_for == g ? at.on->kept_kilobytes : u64{g.nr_slots()} * g.capacity() / 1024;
}

// tracing_on, trace_clock and their like

Text read_tracing_on(const Node& at) { return std::string(at.on->on() ? "1\n" : "0\n"); }
WriteResult write_tracing_on(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value) return invalid();
  const bool on = *value != 0, was = at.on->on();
  auto done = at.on->triggers().tracing(on);
  if (was && !on) ++at.on->woken;
  return taken(done, bytes);
}

Text read_clock(const Node& at) { return "[" + std::string(to_string(instance(at).clock().kind)) + "]\n"; }
// An instance's clock is chosen when the instance is made: by now its programs have it in their call sites. Those of the
// kernel's that show the same seconds are accepted in its place; reading the file shows the instance's own.
bool same_seconds(const Node& at, std::string_view name) {
  const ClockKind own = instance(at).clock().kind;
  if (name == to_string(own)) return true;
  if (own == ClockKind::counter) return false;
  if (name == "boot") return sys::suspended_ns() < 1'000'000;
  return name == "local" || name == "global" || name == "mono";
}
WriteResult write_clock(const Node& at, std::string_view bytes, const Client&) {
  if (!same_seconds(at, stripped(bytes))) return invalid();
  return taken(instance(at).reset(), bytes);
}

Text read_percent(const Node& at) { return std::to_string(at.on->buffer_percent) + "\n"; }
WriteResult write_percent(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value > 100) return invalid();
  at.on->buffer_percent = static_cast<u32>(*value);
  return bytes.size();
}

// Sizes, counted like the kernel's: the content of the ring's sub-buffers, without the reader page.

Text read_size(const Node& at) {
  const u64 now = kilobytes(at, sizes(at));
  const u32 rings =
      instance(at).cpu_rings() != 0 ? instance(at).cpu_rings() : at.on->cpus();  // beyond them: from before a resize
  for (u32 n = 0; n < rings; ++n)
    if (at.on->has_ring(n) && kilobytes(at, ring_sizes(at, n)) != now) return std::string("X\n");
  return std::to_string(now) + "\n";
}
WriteResult write_size(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value == 0) return invalid();
  if (*value > instance(at).control().budget / 1024 / std::max(instance(at).cpu_rings(), 1u))
    return fail(ENOMEM, "more than all rings of the instance may take");
  at.on->kept_kilobytes = 0;
  return taken(instance(at).resize(*value * 1024, sizes(at).subbuf_size()), bytes);
}
Text read_ring_size(const Node& at) { return std::to_string(kilobytes(at, ring_sizes(at, at.ring))) + "\n"; }
// Rings of threads have one size.
WriteResult write_ring_size(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value == 0) return invalid();
  if (*value > instance(at).control().budget / 1024) return fail(ENOMEM, "more than all rings of the instance may take");
  if (at.ring < instance(at).cpu_rings()) return taken(instance(at).resize_cpu(at.ring, *value * 1024), bytes);
  const Geometry now = ring_sizes(at, at.ring);
  if (subbufs_for(*value * 1024, now.subbuf_size()) != now.nr_slots() + 1)
    return fail(EOPNOTSUPP, "one ring alone cannot be resized");
  return bytes.size();
}
Text read_total_size(const Node& at) {
  u64 sum = 0;
  for (u32 n = 0; n < at.on->cpus(); ++n) sum += kilobytes(at, ring_sizes(at, n));
  return std::to_string(sum) + "\n";
}
Text read_subbuf_size(const Node& at) { return std::to_string(sizes(at).subbuf_size() / 1024) + "\n"; }
WriteResult write_subbuf_size(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value == 0 || *value > abi::largest_subbuf / 1024) return invalid();
  u32 size = abi::smallest_subbuf;
  while (size < *value * 1024) size *= 2;
  const Geometry now = sizes(at);
  if (size == now.subbuf_size()) return bytes.size();
  const u64 kept = kilobytes(at, now);
  RS_TRY(instance(at).resize(u64{now.nr_slots()} * now.capacity(), size));
  at.on->kept_kilobytes = kept;
  at.on->kept_for = sizes(at);
  return bytes.size();
}

Handle open_free_buffer(const Node& at, const Opening&) {
  auto file =
      std::make_unique<TextFile>(at.on, nullptr, [](std::string_view b, const Client&) -> WriteResult { return b.size(); });
  file->at_close = [at, first = true]() mutable -> result<void> {
    if (std::exchange(first, false) && at.on->has_option("disable_on_free")) (void)at.on->triggers().tracing(false);
    RS_TRY(instance(at).unlocked());
    (void)instance(at).resize(1, sizes(at).subbuf_size());
    return {};
  };
  return file;
}

// Options. All are kept and shown. These act: overwrite, markers, record-tgid, event-fork, disable_on_free.

struct Option {
  const char* name;
  bool at_first;
};
constexpr Option trace_options[] = {{"print-parent", true},
                                    {"sym-offset", false},
                                    {"sym-addr", false},
                                    {"verbose", false},
                                    {"raw", false},
                                    {"hex", false},
                                    {"bin", false},
                                    {"block", false},
                                    {"fields", false},
                                    {"annotate", true},
                                    {"userstacktrace", false},
                                    {"sym-userobj", false},
                                    {"printk-msg-only", false},
                                    {"context-info", true},
                                    {"latency-format", false},
                                    {"record-cmd", true},
                                    {"record-tgid", false},
                                    {"overwrite", true},
                                    {"disable_on_free", false},
                                    {"irq-info", true},
                                    {"markers", true},
                                    {"event-fork", false},
                                    {"pause-on-trace", false},
                                    {"hash-ptr", true},
                                    {"stacktrace", false}};
static_assert(std::size(trace_options) <= 64);

std::optional<size_t> option_at(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(trace_options), std::end(trace_options), [&](const Option& o) { return o.name == name; });
  return found == std::end(trace_options) ? std::nullopt : std::optional<size_t>(found - trace_options);
}
bool option(const Node& at, size_t index) {
  if (trace_options[index].name == std::string_view("overwrite")) return instance(at).control().mode == 0;
  return (at.on->options >> index & 1) != 0;
}
result<void> set_option(const Node& at, std::string_view name, bool on) {
  const auto index = option_at(name);
  if (!index) return invalid();
  if (name == "overwrite") instance(at).overwrite(on);
  at.on->options = on ? at.on->options | u64{1} << *index : at.on->options & ~(u64{1} << *index);
  return {};
}
Text read_options(const Node& at) {
  std::string text;
  for (size_t i = 0; i < std::size(trace_options); ++i)
    text += (option(at, i) ? "" : "no") + std::string(trace_options[i].name) + "\n";
  return text;
}
WriteResult write_options(const Node& at, std::string_view bytes, const Client&) {
  std::string_view name = stripped(bytes);
  const bool on = name.substr(0, 2) != "no";
  if (!on) name.remove_prefix(2);
  return taken(set_option(at, name, on), bytes);
}
template <size_t index>
Text read_option(const Node& at) {
  return std::string(option(at, index) ? "1\n" : "0\n");
}
template <size_t index>
WriteResult write_option(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value > 1) return invalid();
  return taken(set_option(at, trace_options[index].name, *value == 1), bytes);
}

// No tracer does more here than record events. A kernel has another one beside nop, and clients rely on that: `ringside` is one
// that does no more than nop.
Text read_tracers(const Node&) { return std::string("ringside nop\n"); }
Text read_tracer(const Node& at) { return at.on->tracer + "\n"; }
WriteResult write_tracer(const Node& at, std::string_view bytes, const Client&) {
  const std::string_view name = stripped(bytes);
  if (name != "nop" && name != "ringside") return invalid();
  at.on->tracer = name;
  return bytes.size();
}
Text read_timestamp_mode(const Node&) { return std::string("[delta] absolute\n"); }
Text read_nothing(const Node&) { return std::string(); }
// Accepts only values that request nothing.
WriteResult write_nothing(const Node&, std::string_view bytes, const Client&) {
  if (!stripped(bytes).empty()) return invalid();
  return bytes.size();
}
template <std::set<i32> Mounted::* pids>
Text read_pids(const Node& at) {
  std::string text;
  for (const i32 pid : at.on.get()->*pids) text += std::to_string(pid) + "\n";
  return text;
}
template <std::set<i32> Mounted::* pids>
WriteResult write_pids(const Node& at, std::string_view bytes, const Client&) {
  std::set<i32> more = at.on.get()->*pids;
  std::istringstream words{std::string(bytes)};
  for (std::string word; words >> word;) {
    const auto value = number(word);
    if (!value || *value > 0x7FFFFFFF || more.size() >= Mounted::most_pids) return invalid();
    more.insert(static_cast<i32>(*value));
  }
  at.on.get()->*pids = std::move(more);
  return bytes.size();
}
template <std::set<i32> Mounted::* pids>
Handle open_pids(const Node& at, const Opening& how) {
  if (how.writing && how.truncate) (at.on.get()->*pids).clear();
  return std::make_unique<TextFile>(at.on, [at] { return read_pids<pids>(at); },
                                    [at](std::string_view b, const Client& c) { return write_pids<pids>(at, b, c); });
}

// A bit for each CPU, in words of eight hexadecimal digits, the most significant first.
Text read_cpumask(const Node& at) {
  const u32 cpus = at.on->mask_cpus();
  std::string text;
  for (u32 word = (cpus + 31) / 32; word-- > 0;) {
    u32 bits = 0;
    for (u32 bit = 0; bit < 32 && word * 32 + bit < cpus; ++bit) bits |= u32{instance(at).cpu_in_mask(word * 32 + bit)} << bit;
    text += text.empty() ? fmt::format("{:x}", bits) : fmt::format(",{:08x}", bits);
  }
  return text + "\n";
}
WriteResult write_cpumask(const Node& at, std::string_view bytes, const Client&) {
  const u32 cpus = at.on->mask_cpus();
  std::vector<u64> mask((cpus + 63) / 64);
  u32 bit = 0;
  const std::string_view text = stripped(bytes);
  size_t digits = 0;
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] == ',') {
      if (digits == 0 || digits > 8) return invalid();
      bit = (bit + 31) / 32 * 32;
      digits = 0;
      continue;
    }
    u32 value = 0;
    if (std::from_chars(&text[i], &text[i] + 1, value, 16).ec != std::errc()) return invalid();
    for (u32 b = 0; b < 4; ++b, ++bit) {
      if ((value >> b & 1) == 0) continue;
      if (bit >= cpus) return fail(EOVERFLOW, "there is no such CPU");
      mask[bit / 64] |= u64{1} << bit % 64;
    }
    ++digits;
  }
  if (digits > 8) return invalid();
  return taken(instance(at).set_cpumask(mask), bytes);
}

// Events

struct State {
  bool on = false, off = false;
  const char* text() const { return on && off ? "X\n" : on ? "1\n" : off ? "0\n" : "?\n"; }
};
State state_of_events(RingSet& on, const std::string& system) {
  State s;
  for (const EventName& e : on.events()) {
    if (e.marker || (!system.empty() && e.system != system)) continue;
    (e.enabled ? s.on : s.off) = true;
  }
  return s;
}
WriteResult switch_events(const Node& at, const std::string& pattern, std::string_view bytes) {
  const auto value = number(bytes);
  if (!value || *value > 1) return invalid();
  EventPatterns one;
  one.add(EventPattern(pattern));
  return taken(instance(at).enable(one, *value == 1), bytes);
}
WriteResult write_enable_all(const Node& at, std::string_view bytes, const Client&) { return switch_events(at, "*:*", bytes); }
WriteResult write_enable_system(const Node& at, std::string_view bytes, const Client&) {
  return switch_events(at, at.system + ":*", bytes);
}
WriteResult write_enable(const Node& at, std::string_view bytes, const Client&) {
  return switch_events(at, at.system + ":" + at.event.substr(0, at.event.find('.')), bytes);  // all events of that name
}

Text read_set_event(const Node& at) {
  std::string text;
  for (const EventName& e : at.on->events())
    if (e.enabled && !e.marker) text += e.system + ":" + e.name + "\n";
  return text;
}
Text read_available(const Node& at) {
  std::string text;
  for (const EventName& e : at.on->events())
    if (!e.marker) text += e.system + ":" + e.name + "\n";
  return text;
}
// A pattern; ! switches off. EINVAL: no event matches.
result<void> set_event(const Node& at, std::string_view word) {
  const bool on = word.front() != '!';
  if (!on) word.remove_prefix(1);
  auto pattern = EventPatterns::parse(word);
  if (!pattern) return invalid();
  const auto events = at.on->events();
  EventPatterns exact;
  for (const EventPattern& one : *pattern) {
    if (one.all()) {  // also events that programs register later
      exact.add(EventPattern("*:*"));
      continue;
    }
    for (const EventName& e : events)
      if (!e.marker && one.matches(e.system, e.name)) exact.add(EventPattern(e.system + ":" + e.name));
  }
  if (exact.empty()) return invalid();
  auto done = instance(at).enable(exact, on);
  return done ? result<void>() : tl::unexpected<Error>(done.error());
}
WriteResult write_set_event(const Node& at, std::string_view bytes, const Client&) {
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t begin = bytes.find_first_not_of(" \t\r\n", done);
    if (begin == std::string_view::npos) return bytes.size();
    const size_t end = std::min(bytes.find_first_of(" \t\r\n", begin), bytes.size());
    if (auto set = set_event(at, bytes.substr(begin, end - begin)); !set) {
      if (done != 0) return done;
      return tl::unexpected<Error>(set.error());
    }
    done = end;
  }
  return bytes.size();
}
Handle open_set_event(const Node& at, const Opening& how) {
  if (how.writing && how.truncate)
    RS_TRY(instance(at).enable("*:*", false));
  return std::make_unique<TextFile>(at.on, [at] { return read_set_event(at); },
                                    [at](std::string_view b, const Client& c) { return write_set_event(at, b, c); });
}

result<EventName> event_of(const Node& at) {
  for (EventName& e : at.rings()->events())
    if (e.system == at.system && e.folder == at.event) return std::move(e);
  return fail(ENODEV, at.event);
}
Text read_id(const Node& at) { return std::to_string(RS_TRY(event_of(at)).id) + "\n"; }
Text read_format(const Node& at) { return at.on->format_of(RS_TRY(event_of(at))); }

// The text, and below it a mark where it is wrong: the last three lines of the filter's own message.
std::string complaint(std::string_view text, const Error& error) {
  std::string_view why = error.sentence;
  if (why.substr(0, 8) == "filter: ") why.remove_prefix(8);
  return std::string(text) + "\n^\nparse_error: " + std::string(why.substr(0, why.find('\n'))) + "\n";
}
Text read_filter(const Node& at) {
  const auto e = event_of(at);
  const auto found = e ? at.on->filters.find(e->id) : at.on->filters.end();
  if (found == at.on->filters.end()) return std::string("none\n");
  const EventFilterText& f = found->second;
  return !f.wrong.empty() ? f.wrong : f.text.empty() ? "none\n" : f.text + "\n";
}
result<void> set_filter(Mounted& on, const EventName& e, std::string_view text) {
  if (text == "0") {
    on.filters.erase(e.id);
    return {};
  }
  on.know_formats();
  const EventType* type = on.formats().find(e.id);
  auto filter = Filter::compile(text, on.formats(), on.tasks());
  result<void> fits = !filter ? tl::unexpected<Error>(filter.error()) : type == nullptr ? invalid() : filter->fits(*type);
  EventFilterText& f = on.filters[e.id];
  if (!fits) {
    f = {"", complaint(text.substr(0, 512), fits.error()), std::nullopt};
    return invalid();
  }
  f = {std::string(text), "", std::move(*filter)};
  return {};
}
WriteResult write_filter(const Node& at, std::string_view bytes, const Client&) {
  const EventName e = RS_TRY(event_of(at));
  const std::string_view text = stripped(bytes);
  if (text.empty() || text.size() >= page_size) return invalid();
  return taken(set_filter(*at.on, e, text), bytes);
}
Text read_system_filter(const Node&) {
  return std::string(
      "### global filter ###\n# A filter written here goes to all events of this system that have its fields.\n");
}
WriteResult write_system_filter(const Node& at, std::string_view bytes, const Client&) {
  const std::string_view text = stripped(bytes);
  if (text.empty() || text.size() >= page_size) return invalid();
  bool any = false;
  for (const EventName& e : at.on->events()) {
    if (e.system != at.system) continue;
    if (set_filter(*at.on, e, text))
      any = true;
    else
      at.on->filters.erase(e.id);
  }
  if (!any) return invalid();
  return bytes.size();
}

Text read_trigger(const Node& at) { return at.on->triggers().text(at.system, at.event); }
WriteResult write_trigger(const Node& at, std::string_view bytes, const Client&) {
  const EventName e = RS_TRY(event_of(at));
  const std::string_view text = stripped(bytes);
  if (text.empty()) return bytes.size();
  const TriggerCommand command = RS_TRY(parse_trigger(text));
  const Trigger& trigger = command.trigger;
  if (command.remove) {
    at.on->triggers().remove(at.system, at.event, trigger);
    return bytes.size();
  }
  if (!trigger.filter.empty()) {
    at.on->know_formats();
    const EventType* type = at.on->formats().find(e.id);
    auto filter = Filter::compile(trigger.filter, at.on->formats(), at.on->tasks());
    if (type == nullptr || !filter || !filter->fits(*type)) return invalid();
  }
  const auto all = at.on->events();
  const auto named = [&](const EventName& other) { return other.system == trigger.system && other.name == trigger.event; };
  if (trigger.switches_event() && std::none_of(all.begin(), all.end(), named)) return invalid();
  if (trigger.act == Trigger::Act::snapshot && at.on->mapped()) return fail(EBUSY, "a ring is mapped");
  RS_TRY(at.on->triggers().add(at.system, at.event, trigger));
  // Only written events can be seen.
  if (!e.enabled && !e.marker) RS_TRY(instance(at).enable(at.system + ":" + at.event, true));
  return bytes.size();
}

Text read_header_page(const Node& at) { return header_page_text(sizes(at).subbuf_size()); }

// Snapshots

Handle open_snapshot(const Node& at, const Opening& how);
WriteResult write_snapshot(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value) return invalid();
  if (at.dir == Dir::cpu) return invalid();  // only for all rings at once
  if (*value == 0) return taken(instance(at).drop_snapshot(), bytes);
  if (*value == 1) return taken(instance(at).snapshot(), bytes);
  if (!instance(at).has_snapshot()) return bytes.size();
  auto copy = RS_TRY(at.on->snapshot());
  return taken(copy->instance().reset(), bytes);
}
Text read_no_snapshot(const Node& at) {
  return std::string("# tracer: nop\n#\n# * Snapshot is ") +
         (instance(at).has_snapshot() || at.on->triggers().snapshots() ? "allocated" : "freed") +
         " *\n#\n# 1 takes one, 0 removes it, any other number empties it.\n";
}
Handle open_snapshot(const Node& at, const Opening& how) {
  if (how.writing)
    return std::make_unique<TextFile>(at.on, [] { return Text(std::string()); },
                                      [at](std::string_view b, const Client& c) { return write_snapshot(at, b, c); });
  if (instance(at).has_snapshot()) {
    auto copy = RS_TRY(at.on->snapshot());
    const auto rings = copy->instance().rings();
    const bool any =
        std::any_of(rings.begin(), rings.end(), [](const RingInfo& r) { return r.counters.unread != 0 || !r.problem.empty(); });
    if (any) return std::make_unique<TraceFile>(std::move(copy), at.only(), how);
  }
  return std::make_unique<TextFile>(at.on, [at] { return read_no_snapshot(at); }, nullptr);
}
Handle open_snapshot_raw(const Node& at, const Opening&) {
  if (!instance(at).has_snapshot()) return std::make_unique<TextFile>(at.on, [] { return Text(std::string()); }, nullptr);
  auto copy = RS_TRY(at.on->snapshot());
  return std::make_unique<RawFile>(std::move(copy), at.ring);
}

// Markers. The rest of a text that does not fit in one event is left to the next write.

WriteResult write_marker(const Node& at, std::string_view bytes, const Client& client) {
  if (!at.on->has_option("markers")) return invalid();
  if (bytes.empty()) return size_t{0};
  const size_t most = std::min<size_t>(longest_marker, sizes(at).capacity() - 64) - 1;
  const std::string_view piece = bytes.substr(0, most);
  std::string text(piece);
  if (text.back() != '\n') text += '\n';
  return taken(at.on->mark(false, text, client.tid), piece);
}
WriteResult write_marker_raw(const Node& at, std::string_view bytes, const Client& client) {
  if (!at.on->has_option("markers") || bytes.size() < 4 || bytes.size() > longest_marker) return invalid();
  return taken(at.on->mark(true, bytes, client.tid), bytes);
}

// Names

// The last of each thread's lines "TID something", which are appended as threads come; limited, so that a client's text stays
// small.
std::string last_of_each(const std::string& text, size_t most_names) {
  std::set<std::string_view> seen;
  std::string out;
  std::string_view left = text;
  while (!left.empty() && seen.size() < most_names) {
    left.remove_suffix(left.back() == '\n' ? 1 : 0);
    const size_t before = left.rfind('\n');
    const std::string_view line = before == std::string_view::npos ? left : left.substr(before + 1);
    if (seen.insert(line.substr(0, line.find(' '))).second) out.append(line).append("\n");
    left = before == std::string_view::npos ? std::string_view() : left.substr(0, before + 1);
  }
  return out;
}
// By the numbers in the events and, for threads of other PID namespaces, also by the numbers in this one, as `trace` shows
// them. `line` makes the rest of the line.
template <class Line>
std::string names_in(Instance& in, const char* file, const Line& line, bool with_its_numbers) {
  const auto saved = in.read(file);
  std::string text;
  std::istringstream lines(saved ? *saved : std::string());
  for (std::string one; std::getline(lines, one);)
    if (with_its_numbers || !is_foreign(std::atoi(one.c_str()))) text += one + "\n";
  std::vector<RingName> all = in.threads();
  for (RingInfo& ring : in.rings())
    if (ring.name.of_a_thread()) all.push_back(std::move(ring.name));
  for (const RingName& t : all) {
    const i32 here = t.elsewhere.seen_tid(t.tid);
    if (with_its_numbers || here == t.tid) text += fmt::format("{} {}\n", t.tid, line(t, false));
    if (here != t.tid) text += fmt::format("{} {}\n", here, line(t, true));
  }
  return text;
}
// The file at the top has the threads of all instances. The numbers that another one gave to threads of other PID namespaces
// mean something there alone.
template <class Line>
std::string names_text(const Node& at, const char* file, const Line& line) {
  std::string text;
  if (at.on->others)
    for (const auto& other : at.on->others()) text += names_in(other->instance(), file, line, false);
  return last_of_each(text + names_in(instance(at), file, line, true), at.on->most_names);
}
Text read_cmdlines(const Node& at) {
  return names_text(at, "saved_cmdlines", [](const RingName& t, bool) { return t.task; });
}
Text read_tgids(const Node& at) {
  return names_text(at, "saved_tgids",
                    [](const RingName& t, bool here) { return std::to_string(here ? t.elsewhere.seen_pid(t.pid) : t.pid); });
}
Text read_cmdlines_size(const Node& at) { return std::to_string(at.on->most_names) + "\n"; }
WriteResult write_cmdlines_size(const Node& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value == 0 || *value > 32768) return invalid();
  at.on->most_names = static_cast<u32>(*value);
  return bytes.size();
}

Text read_readme(const Node&) {
  return std::string(
      "ringside: rings of programs, shown as the kernel's tracefs shows its own\n\n"
      "  cat trace                   what the rings hold, consuming nothing (echo > trace empties them)\n"
      "  cat trace_pipe              takes events as they come\n"
      "  echo 0 > tracing_on         no more events; 1: go on\n"
      "  echo SYSTEM:EVENT > set_event   this event alone; >> adds one, !SYSTEM:EVENT takes one away\n"
      "  echo FILTER > events/SYSTEM/EVENT/filter    what trace, trace_pipe and read() show of it; 0: all\n"
      "  echo text > trace_marker    an event of your own\n"
      "  mkdir instances/NAME        one more set of rings: RINGSIDE_INSTANCE=NAME is the programs' way in\n"
      "  per_cpu/cpuN                ring N: that of a CPU, or of a thread\n"
      "  per_cpu/cpuN/trace_pipe_raw read(), or mmap() and ioctl(TRACE_MMAP_IOCTL_GET_READER)\n");
}

template <size_t... i>
constexpr auto option_files(std::index_sequence<i...>) {
  return std::array<FileType, sizeof...(i)>{
      FileType{in_options, trace_options[i].name, 0640, read_option<i>, write_option<i>, nullptr}...};
}
constexpr auto option_table = option_files(std::make_index_sequence<std::size(trace_options)>());

// name, mode, how it is read, what a write does, or how it is opened
const FileType file_types[] = {
    {in_top, "README", 0440, read_readme, nullptr, nullptr},
    {in_instance, "available_events", 0440, read_available, nullptr, nullptr},
    {in_instance, "available_tracers", 0440, read_tracers, nullptr, nullptr},
    {in_instance, "buffer_percent", 0640, read_percent, write_percent, nullptr},
    {in_instance, "buffer_size_kb", 0640, read_size, write_size, nullptr},
    {in_instance, "buffer_subbuf_size_kb", 0640, read_subbuf_size, write_subbuf_size, nullptr},
    {in_instance, "buffer_total_size_kb", 0440, read_total_size, nullptr, nullptr},
    {in_instance, "current_tracer", 0640, read_tracer, write_tracer, nullptr},
    {in_instance, "error_log", 0640, read_nothing, write_nothing, nullptr},
    {in_instance, "free_buffer", 0200, nullptr, nullptr, open_free_buffer},
    {in_top, "printk_formats", 0440, read_nothing, nullptr, nullptr},
    {in_instance, "saved_cmdlines", 0440, read_cmdlines, nullptr, nullptr},
    {in_top, "saved_cmdlines_size", 0640, read_cmdlines_size, write_cmdlines_size, nullptr},
    {in_instance, "saved_tgids", 0440, read_tgids, nullptr, nullptr},
    {in_instance, "set_event", 0640, nullptr, nullptr, open_set_event},
    {in_instance, "set_event_notrace_pid", 0640, nullptr, nullptr, open_pids<&Mounted::notrace_pids>},
    {in_instance, "set_event_pid", 0640, nullptr, nullptr, open_pids<&Mounted::pids>},
    {in_instance, "snapshot", 0640, nullptr, nullptr, open_snapshot},
    {in_instance, "timestamp_mode", 0440, read_timestamp_mode, nullptr, nullptr},
    {in_instance, "trace", 0640, nullptr, nullptr, open_trace},
    {in_instance, "trace_clock", 0640, read_clock, write_clock, nullptr},
    {in_instance, "trace_marker", 0220, nullptr, write_marker, nullptr},
    {in_instance, "trace_marker_raw", 0220, nullptr, write_marker_raw, nullptr},
    {in_instance, "trace_options", 0640, read_options, write_options, nullptr},
    {in_instance, "trace_pipe", 0440, nullptr, nullptr, open_pipe},
    {in_instance, "tracing_cpumask", 0640, read_cpumask, write_cpumask, nullptr},
    {in_instance, "tracing_on", 0640, read_tracing_on, write_tracing_on, nullptr},
    {in_events, "enable", 0640, read_enable_all, write_enable_all, nullptr},
    {in_events, "header_event", 0440, read_header_event, nullptr, nullptr},
    {in_events, "header_page", 0440, read_header_page, nullptr, nullptr},
    {in_system, "enable", 0640, read_enable_system, write_enable_system, nullptr},
    {in_system, "filter", 0640, read_system_filter, write_system_filter, nullptr},
    {in_event, "enable", 0640, read_enable, write_enable, nullptr},
    {in_event, "filter", 0640, read_filter, write_filter, nullptr},
    {in_event, "format", 0440, read_format, nullptr, nullptr},
    {in_event, "id", 0440, read_id, nullptr, nullptr},
    {in_event, "trigger", 0640, read_trigger, write_trigger, nullptr},
    {in_cpu, "buffer_size_kb", 0640, read_ring_size, write_ring_size, nullptr},
    {in_cpu, "snapshot", 0640, nullptr, nullptr, open_snapshot},
    {in_cpu, "snapshot_raw", 0440, nullptr, nullptr, open_snapshot_raw, true},
    {in_cpu, "stats", 0440, read_stats, nullptr, nullptr},
    {in_cpu, "trace", 0640, nullptr, nullptr, open_trace},
    {in_cpu, "trace_pipe", 0440, nullptr, nullptr, open_pipe},
    {in_cpu, "trace_pipe_raw", 0440, nullptr, nullptr, open_raw, true},
};

}  // namespace

u64 options_at_first(u64 inherited) {
  u64 all = 0;
  for (size_t i = 0; i < std::size(trace_options); ++i) all |= u64{trace_options[i].at_first} << i;
  if (inherited == 0) return all;
  return inherited & ~(u64{1} << *option_at("event-fork"));
}

bool Mounted::has_option(const char* name) const {
  const auto index = option_at(name);
  return index && (options >> *index & 1) != 0;
}

std::optional<u64> number(std::string_view text) {
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  u64 value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Text read_enable_all(const Node& at) {
  const State s = state_of_events(*at.rings(), "");
  return std::string(s.on || s.off ? s.text() : "0\n");
}
Text read_enable_system(const Node& at) { return std::string(state_of_events(*at.rings(), at.system).text()); }
Text read_enable(const Node& at) {
  return std::string(RS_TRY(event_of(at)).enabled ? "1\n" : "0\n");
}

Text read_stats(const Node& at) {
  const Counters c = RS_TRY(at.rings()->counters(at.ring));
  const ClockInfo clock = at.rings()->clock();
  const auto time = [&](u64 ns) {
    return clock.kind == ClockKind::counter ? std::to_string(ns)
                                            : fmt::format("{:5}.{:06}", ns / 1'000'000'000, ns / 1000 % 1'000'000);
  };
  return fmt::format(
      "entries: {}\noverrun: {}\ncommit overrun: {}\nbytes: {}\noldest event ts: {}\nnow ts: {}\ndropped events: {}\nread "
      "events: {}\n",
      c.unread, c.overrun, c.commit_overrun, c.bytes, time(c.oldest_time != 0 ? clock.to_ns(c.oldest_time) : 0),
      time(clock.kind == ClockKind::counter ? 0 : sys::now_ns()), c.dropped, c.read);
}

Text read_header_event(const Node&) { return std::string(header_event_text()); }

Handle open_trace(const Node& at, const Opening& how) {
  std::shared_ptr<Job> resetting;
  if (how.writing && how.truncate) resetting = RS_TRY(at.rings()->reset(at.only()));
  return std::make_unique<TraceFile>(at.rings(), at.only(), how, std::move(resetting));
}
Handle open_pipe(const Node& at, const Opening&) { return PipeFile::open(at.rings(), at.only()); }
Handle open_raw(const Node& at, const Opening&) { return std::make_unique<RawFile>(at.rings(), at.ring); }

void for_each_file(const Node& in, const std::function<void(const FileType&)>& use) {
  // Markers cannot be switched; not each external writer takes texts.
  const auto hidden = [&](std::string_view name) {
    if (in.remote) return name == "write_event" && !in.remote->can_write();
    return in.on && in.dir == Dir::event && in.system == "ftrace" && name != "id" && name != "format" && name != "trigger";
  };
  const auto each = [&](std::span<const FileType> table) {
    for (const FileType& f : table)
      if ((f.in & static_cast<u32>(in.dir)) != 0 && !hidden(f.name)) use(f);
  };
  if (in.remote) return each(remote_files());
  each(file_types);
  each(option_table);
}

const FileType* file_of(const Node& in, const std::string& name) {
  const FileType* found = nullptr;
  for_each_file(in, [&](const FileType& f) {
    if (name == f.name) found = &f;
  });
  return found;
}

Handle open_file(const Node& at, const Opening& how) {
  const FileType& file = *at.file;
  if (file.open != nullptr) return file.open(at, how);
  TextFile::Read read;
  TextFile::Write write;
  if (file.read != nullptr) read = [at] { return at.file->read(at); };
  if (file.write != nullptr)
    write = [at](std::string_view bytes, const Client& client) { return at.file->write(at, bytes, client); };
  return std::make_unique<TextFile>(at.rings(), std::move(read), std::move(write));
}

}  // namespace ringside::mount
