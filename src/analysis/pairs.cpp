#include "analysis/pairs.hpp"

#include <algorithm>
#include <bitset>
#include <random>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "decode/role.hpp"
#include "sys/json.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr size_t longest_copy = 4096;

// Eight bytes at a time, each by wyhash's mixing step.
u64 hash_text(std::string_view text, u64 seed) {
  u64 hash = seed ^ text.size();
  for (size_t at = 0; at < text.size(); at += 8) {
    u64 part = 0;
    std::memcpy(&part, text.data() + at, std::min<size_t>(8, text.size() - at));
    const auto mixed = static_cast<unsigned __int128>(part ^ hash) * (hash ^ 0x9E3779B97F4A7C15);
    hash = static_cast<u64>(mixed) ^ static_cast<u64>(mixed >> 64) ^ seed;
  }
  return hash;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool any_has(const Formats& formats, const EventPatterns& events, std::string_view field) {
  return std::any_of(formats.all().begin(), formats.all().end(),
                     [&](const auto& type) { return matches(events, *type) && type->field(field) != nullptr; });
}

// Whether an event of the kernel and one of a program may be a pair. Each has the number of the thread in a PID namespace of
// its own.
bool pairs_kernel_and_program(const Formats& formats, const EventPatterns& starts, const EventPatterns& ends) {
  const auto any = [&](const EventPatterns& events, bool of_kernel) {
    return std::any_of(formats.all().begin(), formats.all().end(),
                       [&](const auto& type) { return ((type->id & kernel_ids) != 0) == of_kernel && matches(events, *type); });
  };
  return (any(starts, true) && any(ends, false)) || (any(starts, false) && any(ends, true));
}

// pid is the woken thread in sched_waking, and in sched_switch, which has no such field, the thread that leaves its CPU. A key
// of the same name for both must be a field of all these events, or of none.
result<void> one_meaning(const Pairs::Key& key, const EventPatterns& starts, const EventPatterns& ends,
                         const Formats& formats) {
  const std::string name(Pairs::field_of(key.start));
  if (name != Pairs::field_of(key.end) || key.start.find('/') != std::string::npos) return {};
  const Mixture mixed =
      find_mixture(name, formats, [&](const EventType& type) { return matches(starts, type) || matches(ends, type); });
  if (!mixed) return {};
  std::vector<std::string> fields;
  for (const Field& f : mixed.without->fields()) fields.push_back(f.name);
  fields = nearest(name, fields);
  for (std::string& field : fields) field = matches(ends, *mixed.without) ? name + "=" + field : field + "=" + name;
  const std::string other =
      !mixed.of_thread ? "" : "; " + name + "=" + (name == "comm" ? "task" : "common_pid") + " is that thread";
  return mistyped(std::errc::invalid_argument, mixed.without->full + " has no field " + in_quotes(name) + ", which is one of " +
                                                   mixed.with->full + "; " + mixed.rest() + " would be taken" + other +
                                                   did_you_mean(fields));
}

bool all_have(const Formats& formats, const EventPatterns& events, std::string_view field) {
  return std::all_of(formats.all().begin(), formats.all().end(),
                     [&](const auto& type) { return !matches(events, *type) || type->field(field) != nullptr; });
}

bool any_matches(const Formats& formats, const EventPatterns& events) {
  return std::any_of(formats.all().begin(), formats.all().end(), [&](const auto& type) { return matches(events, *type); });
}

// A column of these events, unless the text names its own event. "event" is which event, also if one of them has such a field.
result<Column> column_of(const std::string& events, const std::string& text, const Formats& formats, const Tasks& tasks) {
  return Column::compile(text == "event" || text.find('/') != std::string::npos ? text : events + "/" + text, formats, tasks);
}

Pairs::Copy copy_of(const TraceRecord& record, size_t most = longest_copy) {
  Pairs::Copy copy{record.time, record.lost, record.source, record.ids, record.cpu, record.stack};
  if (record.lost == 0)
    copy.payload.assign(record.payload.data, record.payload.data + std::min<size_t>(record.payload.size, most));
  return copy;
}

}  // namespace

std::pair<std::string, std::string> Pairs::split(std::string_view text) {
  const size_t at = text.find(" if ");
  if (at == std::string_view::npos) return {std::string(trimmed(text)), ""};
  return {std::string(trimmed(text.substr(0, at))), std::string(trimmed(text.substr(at + 4)))};
}

result<Pairs> Pairs::make(const Options& options, const Formats& formats, const Tasks& tasks) {
  Pairs pairs(options);
  // The events that a condition names belong to it.
  const auto has_side = [&](const std::string& side) {
    const auto [events, condition] = split(side);
    std::vector<std::string> all = Filter::events_in(condition);
    all.push_back(events);
    return std::all_of(all.begin(), all.end(), [&](const auto& one) { return any_matches(formats, patterns_or_none(one)); });
  };
  const auto has = [&](const std::string& start, const std::string& end) { return has_side(start) && has_side(end); };
  if (options.otherwise && !has(options.start, options.end) && has(options.otherwise->start, options.otherwise->end)) {
    pairs.options_.start = options.otherwise->start;
    pairs.options_.end = options.otherwise->end;
  }
  RS_TRY(pairs.compile(formats, tasks));
  return pairs;
}

result<Pairs> Pairs::part(const Formats& formats, const Tasks& tasks) const {
  Pairs part = RS_TRY(make(options_, formats, tasks));
  part.seed_ = seed_;
  part.edges_.emplace();
  return part;
}

// The spans of a program's categories are as ringside:span, and nest with it.
std::string Pairs::all_spans(const Formats& formats) {
  std::string all = "ringside:span";
  for (const auto& type : formats.all()) {
    const EventRole known = role_of(*type);
    if (known.role == ringside::Role::span && known.async == nullptr && type->full != "ringside:span") all += "," + type->full;
  }
  return all;
}

result<void> Pairs::compile(const Formats& formats, const Tasks& tasks) {
  formats_ = &formats;
  tasks_ = &tasks;
  of_several_machines_ = tasks.several_machines();
  of_several_runs_ = tasks.several_runs();
  std::random_device random;
  seed_ = u64{random()} << 32 | random();
  const auto side = [&](const std::string& text, std::string& events, EventPatterns& patterns,
                        std::optional<Filter>& condition) -> result<void> {
    std::string test;
    std::tie(events, test) = split(text);
    if (events.empty())
      return mistyped(std::errc::invalid_argument,
                      "a pair needs a start and an end: SYSTEM:EVENT, or \"SYSTEM:EVENT if CONDITION\"");
    if (events == "ringside:span") events = all_spans(formats);
    patterns = RS_TRY(EventPatterns::parse(events));
    if (!any_matches(formats, patterns))
      return mistyped(std::errc::no_such_file_or_directory, none_matches(events, formats));
    if (test.empty()) return {};
    condition = RS_TRY(Filter::compile(test, formats, tasks));
    return {};
  };
  RS_TRY(side(options_.start, start_events_, starts_, start_if_));
  RS_TRY(side(options_.end, end_events_, ends_, end_if_));
  if (options_.keys.empty()) options_.keys.push_back({"common_pid", "common_pid"});
  if (tasks.any_elsewhere() && pairs_kernel_and_program(formats, starts_, ends_))
    for (Key& key : options_.keys)
      if (key.start == "common_pid" && key.end == "common_pid") key = {"thread", "thread"};
  if (options_.keys.size() > most_keys)
    return mistyped(std::errc::invalid_argument, "a pair has at most " + std::to_string(most_keys) + " keys in common");
  for (const Key& key : options_.keys) {
    RS_TRY(one_meaning(key, starts_, ends_, formats));
    auto start = RS_TRY(column_of(start_events_, key.start, formats, tasks));
    auto end = RS_TRY(column_of(end_events_, key.end, formats, tasks));
    if (start.differs_from(end) && (start.kind() == end.kind() || start.differs() || end.differs())) {
      start.use_texts();
      end.use_texts();
    }
    if (start.kind() != end.kind())
      return mistyped(std::errc::invalid_argument,
                      in_quotes(key.start) + " of the start and " + in_quotes(key.end) +
                          " of the end are not both the same kind: text, floating number or whole number");
    start_keys_.push_back(std::move(start));
    end_keys_.push_back(std::move(end));
    const auto is_one = [&](std::initializer_list<std::string_view> names, const EventPatterns& events,
                            const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end() && !any_has(formats, events, name);
    };
    const auto is = [&](std::initializer_list<std::string_view> names) {
      return is_one(names, starts_, key.start) && is_one(names, ends_, key.end);
    };
    const auto on_its_cpu = [&](const EventPatterns& events, const std::string& name) {
      return is_one({"common_pid", "thread", "tid", "pid"}, events, name) || field_of(name) == "prev_pid" ||
             field_of(name) == "next_pid";
    };
    if (on_its_cpu(starts_, key.start) && on_its_cpu(ends_, key.end)) idle_keys_ |= 1u << (end_keys_.size() - 1);
    by_cpu_ = by_cpu_ || is({"cpu", "CPU"});
    by_ring_ = by_ring_ || is({"ring"});
    by_thread_ = by_thread_ || is({"common_pid", "thread", "tid", "pid"});
  }
  one_key_ = start_keys_.size() == 1;
  nests_ = by_thread_ && are_calls();
  const bool of_tracks = std::any_of(formats.all().begin(), formats.all().end(), [&](const auto& type) {
    return is_start(*type) && role_of(*type).role == ringside::Role::span && role_of(*type).track != nullptr;
  });
  if (nests_ && of_tracks) track_ = RS_TRY(Column::compile("track_name", formats, tasks));
  if (!options_.filter.empty()) {
    const PairCondition::Sides sides{start_events_, end_events_, options_.keys, by_thread_, by_cpu_, by_ring_};
    condition_.emplace(RS_TRY(PairCondition::compile(options_.filter, sides, formats, tasks)));
    asks_ = true;
  }
  return options_.by.empty() ? result<void>() : compile_by(formats, tasks);
}

result<void> Pairs::compile_by(const Formats& formats, const Tasks& tasks) {
  const std::string& by = options_.by;
  const size_t slash = by.rfind('/');
  const std::string event = slash == std::string::npos ? "" : by.substr(0, slash);
  std::string name = slash == std::string::npos ? by : by.substr(slash + 1);
  const std::string field = name.substr(0, name.find('.'));
  if (event.empty())
    by_start_ = field != "event" && any_has(formats, starts_, field) &&
                (!any_has(formats, ends_, field) || (all_have(formats, starts_, field) && !all_have(formats, ends_, field)));
  else if (event == "start" || event == "end")
    by_start_ = event == "start";
  else
    by_start_ = std::none_of(formats.all().begin(), formats.all().end(), [&, of = patterns_or_none(event)](const auto& type) {
      return matches(of, *type) && is_end(*type);
    });
  if (!event.empty() && event != "start" && event != "end") name = by;
  by_ = RS_TRY(column_of(by_start_ ? start_events_ : end_events_, name, formats, tasks));
  if (by_->of_tasks() || by_->differs()) by_->use_names();
  return {};
}

// Begin and end of a span, or entry and return, by their names; each start has its end.
bool Pairs::are_calls() const {
  const auto& all = formats_->all();
  const auto returns = [&](const EventType& start, const EventType& end) {
    if (start_if_ && end_if_ && start.field("track_event_type") != nullptr && end.field("track_event_type") != nullptr)
      return true;
    if (&start == &end) return false;
    if (start.system != end.system || start.of_syscalls) return false;
    const std::string &name = start.name, &back = end.name;
    if (back.starts_with(name)) return back.substr(name.size()) == "__return" || back.substr(name.size()) == "_return";
    constexpr std::string_view entry = "_entry", exit = "_exit";
    return name.ends_with(entry) && back.ends_with(exit) &&
           name.substr(0, name.size() - entry.size()) == back.substr(0, back.size() - exit.size());
  };
  return std::all_of(all.begin(), all.end(), [&](const auto& start) {
    return !is_start(*start) ||
           std::any_of(all.begin(), all.end(), [&](const auto& end) { return is_end(*end) && returns(*start, *end); });
  });
}

std::vector<Column> Pairs::columns() const {
  std::vector<Column> columns = start_keys_;
  columns.insert(columns.end(), end_keys_.begin(), end_keys_.end());
  if (by_) columns.push_back(*by_);
  return columns;
}

std::vector<const Filter*> Pairs::conditions() const {
  std::vector<const Filter*> conditions;
  for (const auto* condition : {&start_if_, &end_if_}) {
    if (*condition) conditions.push_back(&**condition);
  }
  if (condition_) {
    for (const Filter* of_pair : condition_->filters()) conditions.push_back(of_pair);
  }
  return conditions;
}

bool Pairs::is_start(const EventType& type) const { return matches(starts_, type); }
bool Pairs::is_end(const EventType& type) const { return matches(ends_, type); }

void Pairs::find(u32 id, Role& role) const {
  const EventType* const type = formats_->find(id);
  role.known = true;
  role.is_start = type != nullptr && is_start(*type);
  role.is_end = type != nullptr && is_end(*type);
}

u64 Pairs::other_word(Column& column, const TraceRecord& record, const RingName& ring, bool& has) const {
  if (column.kind() == Column::Kind::text) {
    std::string_view text;
    has = column.text(record, ring, text) && has;
    return hash_text(text, seed_);
  }
  double real = 0;
  has = column.real(record, ring, real) && has;
  if (real == 0) real = 0;  // -0.0 is 0
  u64 bits = 0;
  std::memcpy(&bits, &real, sizeof bits);
  return bits;
}

void Pairs::tell_track(const TraceRecord& record, const RingName& ring, u64& word) {
  std::string_view track;
  if (track_->text(record, ring, track) && !track.empty()) word ^= hash_text(track, ~seed_);
}

template <size_t keys>
void Pairs::start(const TraceRecord& record, const RingName& ring) {
  Words key{};
  if (!key_of<keys>(start_keys_, record, ring, key)) {
    ++counts_.without_key;
    return;
  }
  ++counts_.starts;
  const u32 hash = waiting_.hash(key);
  u32 at = nests_ ? waiting_.none : waiting_.find<keys>(key, hash);
  if (at == waiting_.none) {
    at = waiting_.insert(key, hash);
    if (edges_) {
      if (!nests_ && is_edge<keys>(key, hash)) {
        edges_->starts.push_back(key[0]);
        if constexpr (keys > 1) edges_->starts.insert(edges_->starts.end(), key.begin() + 1, key.end());
      }
      edges_->most_open = std::max(edges_->most_open, waiting_.size());
    }
  } else {
    ++counts_.repeated;
    if (options_.first) return;
    waiting_.renew(at);
  }
  Waiting& waiting = waiting_[at];
  waiting.time = record.time;
  waiting.common = 0;
  if (record.payload.size >= sizeof waiting.common) [[likely]]
    std::memcpy(&waiting.common, record.payload.data, sizeof waiting.common);
  else
    std::memcpy(&waiting.common, record.payload.data, record.payload.size);
  waiting.source = record.source;
  waiting.ids = record.ids;
  waiting.cpu = record.cpu;
  waiting.stack = record.stack;
  if (asks_) [[unlikely]]
    waiting.met = condition_->of_start(record, ring);
  waiting.passed = false;
  waiting.losses = static_cast<u32>(counts_.losses);
  waiting.ring_losses = counts_.losses == 0 ? 0 : ring_of(record.source).losses;
  if (!by_start_) return;
  if (at >= waiting_by_.size()) waiting_by_.resize(at + 1);
  By& by = waiting_by_[at];
  by.has = true;
  by.key = word(*by_, record, ring, by.has);
  if (by_->kind() != Column::Kind::text) return;
  std::string_view text;
  by_->text(record, ring, text);
  by.text = text;
}

template <size_t keys>
bool Pairs::end(const TraceRecord& record, const RingName& ring) {
  Words key{};
  if (!key_of<keys>(end_keys_, record, ring, key)) {
    ++counts_.without_key;
    return false;
  }
  ++order_;
  const u32 hash = waiting_.hash(key), at = waiting_.find<keys>(key, hash);
  if (at == waiting_.none && edges_ && (nests_ || is_edge<keys>(key, hash))) {
    add_end(key, record);
    return false;
  }
  ++counts_.ends;
  if (at == waiting_.none) {
    ++counts_.unmatched;
    return false;
  }
  const Waiting& waiting = waiting_[at];
  if (record.time < waiting.time) {
    ++counts_.negative;
    waiting_.erase(at);
    return false;
  }
  const u64 latency = std::min<u64>(record.time - waiting.time, INT64_MAX);
  if (asks_ && !condition_->met(waiting.met, latency, record, ring)) [[unlikely]] {
    ++counts_.left_out;
    waiting_.erase(at);
    if (nests_) pass<keys>(key, hash);
    return false;
  }
  ++counts_.pairs;
  bool doubtful = waiting.losses != static_cast<u32>(counts_.losses);
  if (doubtful && waiting.source == record.source && on_one_ring(ring))
    doubtful = waiting.ring_losses != ring_of(record.source).losses;
  counts_.doubtful += doubtful;
  const bool counts = !doubtful || !options_.sure;
  if (counts) {
    latency_ = latency;
    all_.add(static_cast<i64>(latency_));
    start_common_ = waiting.common;
    start_.time = waiting.time;
    start_.stack = waiting.stack;
    start_.source = waiting.source;
    start_.ids = waiting.ids;
    u64 by = 0;
    const Group* const mine = by_ ? group(record, ring, at, by) : nullptr;
    last_group_ = mine != nullptr ? std::optional(by) : std::nullopt;
    if (is_slow(latency_, order_))
      keep(record, ring, waiting, Slow{latency_, doubtful, "", mine != nullptr ? show_group(by, *mine) : "", {}, {}, {}});
  }
  waiting_.erase(at);
  if (nests_) pass<keys>(key, hash);
  return counts;
}

// An end took the innermost start away: the next one below, which may be of an earlier part, was passed.
template <size_t keys>
void Pairs::pass(const Words& key, u32 hash) {
  if (const u32 below = waiting_.find<keys>(key, hash); below != waiting_.none)
    waiting_[below].passed = true;
  else if (edges_ && is_edge<keys>(key, hash))
    edges_->passes.insert(key);
}

template void Pairs::start<1>(const TraceRecord&, const RingName&);
template void Pairs::start<Pairs::most_keys>(const TraceRecord&, const RingName&);
template bool Pairs::end<1>(const TraceRecord&, const RingName&);
template bool Pairs::end<Pairs::most_keys>(const TraceRecord&, const RingName&);

// Null: the pair has no such value.
const Pairs::Group* Pairs::group(const TraceRecord& record, const RingName& ring, u32 at, u64& by) {
  bool has = true;
  by = by_start_ ? waiting_by_[at].key : word(*by_, record, ring, has);
  if (by_start_) has = waiting_by_[at].has;
  if (!has) {
    ++without_group_;
    return nullptr;
  }
  Group& group = groups_.at({by, 0});
  if (group.count++ == 0 && by_->kind() == Column::Kind::text) {
    std::string_view text;
    if (by_start_)
      text = waiting_by_[at].text;
    else
      by_->text(record, ring, text);
    group.name = text;
  }
  group.times.add(static_cast<i64>(latency_));
  return &group;
}

// The slower one; of equal ones the one that ended first.
bool Pairs::slower(const Slow& a, const Slow& b) { return a.latency != b.latency ? a.latency > b.latency : a.order < b.order; }

void Pairs::admit(Slow slow) {
  if (slowest_.size() == options_.slowest) {
    std::pop_heap(slowest_.begin(), slowest_.end(), slower);
    slowest_.pop_back();
  }
  slowest_.push_back(std::move(slow));
  std::push_heap(slowest_.begin(), slowest_.end(), slower);
}

void Pairs::keep(const TraceRecord& record, const RingName& ring, const Waiting& waiting, Slow slow) {
  keeps_stacks_ = keeps_stacks_ || waiting.stack != 0 || record.stack != 0;
  slow.order = order_;
  for (size_t i = 0; i < end_keys_.size(); ++i) {
    Column& column = end_keys_[i];
    const std::string& end = options_.keys[i].end;
    const std::string& name = end.find('|') == end.npos ? end : options_.keys[i].start;
    bool has = true;
    if (name == "common_pid" && tasks_->any_elsewhere()) {  // people know the number that they see
      slow.key +=
          (i == 0 ? "tid=" : " tid=") + tasks_->show(tasks_->key(static_cast<i32>(word(column, record, ring, has)), ring));
      continue;
    }
    slow.key += (i == 0 ? "" : " ") + name.substr(0, name.find('.')) + "=";
    std::string_view text;
    if (column.kind() == Column::Kind::text && column.text(record, ring, text))
      slow.key += column.shown(text);
    else
      slow.key += column.show(word(column, record, ring, has), {});
  }
  slow.start = Copy{waiting.time, 0, waiting.source, waiting.ids, waiting.cpu, waiting.stack};
  slow.start.payload.resize(sizeof waiting.common);
  std::memcpy(slow.start.payload.data(), &waiting.common, sizeof waiting.common);
  slow.end = copy_of(record);
  const Ring& last = ring_of(record.source);
  for (size_t i = 0; i < last.records.size(); ++i) slow.context.push_back(last.records[(last.next + i) % last.records.size()]);
  admit(std::move(slow));
}

void Pairs::add_end(const Words& key, const TraceRecord& record) {
  Edges& e = *edges_;
  e.too_large = e.too_large || record.payload.size > longest_copy || (nests_ && e.ends.size() == options_.most_waiting);
  if (e.too_large) return;
  const u32 size = std::min<u32>(record.payload.size, longest_copy);
  e.ends.push_back({key, e.starts.size(), record.time, order_, e.payloads.size(), size, record.source, record.ids, record.stack,
                    static_cast<u32>(counts_.losses), ring_of(record.source).losses, record.cpu});
  e.payloads.insert(e.payloads.end(), record.payload.data, record.payload.data + size);
}

bool Pairs::append(const Pairs& part, const std::function<const RingName&(u32)>& ring,
                   const std::function<void(const TraceRecord&)>& use) {
  if (!part.fits() || waiting_.size() + part.edges_->most_open > options_.most_waiting) return false;
  one_key_ ? append_edges<1>(*part.edges_, ring, use) : append_edges<most_keys>(*part.edges_, ring, use);
  take_over(part);
  return fits();
}

template <size_t keys>
void Pairs::append_edges(const Edges& edges, const std::function<const RingName&(u32)>& ring,
                         const std::function<void(const TraceRecord&)>& use) {
  const u64 order = order_, losses = counts_.losses;
  // Of a part's many starts hardly any meets one that waits: these bits say no to most of the others.
  std::bitset<65536> waits_perhaps;
  if (!edges.starts.empty())
    waiting_.each([&](u32 at) { waits_perhaps.set(waiting_.hash(waiting_.key(at)) % waits_perhaps.size()); });
  const u64* next = edges.starts.data();
  for (const Words& key : edges.passes) {
    if (const u32 below = waiting_.find<keys>(key, waiting_.hash(key)); below != waiting_.none) waiting_[below].passed = true;
  }
  const auto starts_before = [&](size_t end) {
    while (next != edges.starts.data() + end) {
      Words key{};
      for (size_t i = 0; i < keys; ++i) key[i] = *next++;
      const u32 hash = waiting_.hash(key);
      if (!waits_perhaps[hash % waits_perhaps.size()]) continue;
      const u32 waits = waiting_.find<keys>(key, hash);
      if (waits == waiting_.none) continue;
      ++counts_.repeated;
      waiting_.erase(waits);
    }
  };
  for (const Edges::End& late : edges.ends) {
    starts_before(late.starts);
    TraceRecord record;
    record.time = late.time;
    record.payload = {edges.payloads.data() + late.payload, late.size};
    record.source = late.source;
    record.ids = late.ids;
    record.cpu = late.cpu;
    record.stack = late.stack;
    // With the numbers that were true when it came.
    const u32 ring_losses = ring_of(late.source).losses;
    order_ = order + late.order - 1;
    counts_.losses = losses + late.losses;
    ring_of(late.source).losses += late.ring_losses;
    if (end<keys>(record, ring(late.source))) use(record);
    ring_of(late.source).losses = ring_losses;
  }
  starts_before(edges.starts.size());
  order_ = order;
  counts_.losses = losses;
}

// What does not depend on what was before.
void Pairs::take_over(const Pairs& part) {
  part.waiting_.each([&](u32 theirs) {
    const Words& key = part.waiting_.key(theirs);
    const u32 at = waiting_.insert(key, waiting_.hash(key));
    Waiting& here = waiting_[at] = part.waiting_[theirs];
    here.losses += static_cast<u32>(counts_.losses);
    here.ring_losses += ring_of(here.source).losses;
    if (!by_start_) return;
    if (at >= waiting_by_.size()) waiting_by_.resize(at + 1);
    waiting_by_[at] = part.waiting_by_[theirs];
  });
  part.groups_.each([&](const KeyWords& key, const Group& group) {
    Group& here = groups_.at(key);
    if (here.count == 0) here.name = group.name;
    here.count += group.count;
    here.times.merge(group.times);
  });
  all_.merge(part.all_);
  for (Slow slow : part.slowest_) {
    slow.order += order_;
    if (is_slow(slow.latency, slow.order)) admit(std::move(slow));
  }
  order_ += part.order_;
  without_group_ += part.without_group_;
  for (u32 source = 0; source < part.rings_.size(); ++source) ring_of(source).losses += part.rings_[source].losses;
  const auto add = [&](auto... which) { ((counts_.*which += part.counts_.*which), ...); };
  add(&Counts::starts, &Counts::ends, &Counts::pairs, &Counts::left_out, &Counts::doubtful, &Counts::repeated,
      &Counts::negative, &Counts::unmatched, &Counts::late, &Counts::without_key, &Counts::losses, &Counts::lost);
}

void Pairs::lose(const TraceRecord& record) {
  ++counts_.losses;
  counts_.lost += record.lost;
  ++ring_of(record.source).losses;
  if (options_.context != 0) remember(record);
}

void Pairs::remember(const TraceRecord& record) {
  if (options_.context == 0) return;
  Ring& ring = ring_of(record.source);
  if (ring.records.size() < options_.context) {
    ring.records.push_back(copy_of(record));
    return;
  }
  Copy& copy = ring.records[ring.next];
  ring.next = (ring.next + 1) % options_.context;
  copy.time = record.time;
  copy.lost = record.lost;
  copy.ids = record.ids;
  copy.cpu = record.cpu;
  copy.stack = record.stack;
  copy.payload.clear();
  if (record.lost == 0)
    copy.payload.assign(record.payload.data, record.payload.data + std::min<size_t>(record.payload.size, longest_copy));
}

Pairs::Counts Pairs::counts() const {
  Counts counts = counts_;
  counts.evicted = waiting_.evicted();
  counts.waiting = waiting_.size();
  if (nests_) waiting_.each([&](u32 at) { counts.passed += waiting_[at].passed; });
  return counts;
}

std::vector<Pairs::Slow> Pairs::slowest() const {
  std::vector<Slow> out = slowest_;
  std::sort(out.begin(), out.end(), slower);
  return out;
}

std::string Pairs::show_group(u64 key, const Group& group) const {
  return by_->kind() == Column::Kind::text ? std::string(by_->shown(group.name)) : by_->show(key, {});
}

nlohmann::ordered_json Pairs::group_json(u64 key, const Group& group) const {
  if (by_->kind() == Column::Kind::text) return by_->json(group.name);
  return by_->json(key, {});
}

}  // namespace ringside
