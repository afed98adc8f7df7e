#include <ringside/consumer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "analysis/hist.hpp"
#include "analysis/pairs.hpp"
#include "consumer/reading.hpp"
#include "export/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

TraceRecord record_of(const Event& e) {
  TraceRecord record;
  record.time = e.time;
  record.lost = e.lost;
  record.payload = {e.data, e.size};
  record.source = e.source;
  record.cpu = e.running_on;
  record.stack = e.stack;
  if (e.lost == 0) record.ids = e.id - record.number();
  return record;
}

}  // namespace

struct Consumer::State {
  std::unique_ptr<Reading> reading;
  TraceRecord record;
  std::optional<TextLines> lines;
  std::atomic<bool> stop{false};

  Trace& trace() const { return reading->trace(); }
  const RingName& ring(const Event& e) const {
    static const RingName none{};  // of an event that next() has not filled
    return e.source < trace().timeline.size() ? trace().timeline.name(e.source) : none;
  }
  // What these ask for must be known from the first event on.
  result<void> look_up_for(const std::vector<ringside::Column>& columns, const std::vector<const Filter*>& filters = {}) {
    const bool of_stacks =
        std::any_of(columns.begin(), columns.end(), [](const auto& column) { return column.of_stacks(); }) ||
        std::any_of(filters.begin(), filters.end(), [](const Filter* filter) { return filter->names("stack"); });
    if (of_stacks && !reading->joins_stacks() && reading->has_begun())
      return refuse(std::errc::invalid_argument,
                    "events were read already, without their stacks: ask for stacks before the first event");
    for (const auto& column : columns) reading->look_up_for(column);
    for (const Filter* filter : filters) reading->look_up_for(*filter);
    return {};
  }
  i32 recorded_tid(const Event& e) const {
    return e.lost != 0 ? 0 : thread_of(trace().formats.find(e.id), read_common({e.data, e.size}));
  }
};

Consumer::Consumer(std::shared_ptr<State> state) : state_(std::move(state)) {}
Consumer::Consumer(Consumer&&) noexcept = default;
Consumer& Consumer::operator=(Consumer&&) noexcept = default;
Consumer::~Consumer() = default;

result<Consumer> Consumer::open(const Options& options) {
  auto state = std::make_shared<State>();
  Reading::Options open;
  open.where = options.where;
  open.kernel = options.kernel;
  for (ringside_remote_reader* const reader : options.remotes) open.remotes.push_back(reader);
  open.make.buffer_size = options.kernel_buffer_size;
  open.make.own_events = options.own_events;
  open.filter = options.filter;
  if (!options.time.empty()) RS_TRY(open.window.parse_time(options.time));
  open.push_down = true;
  open.time.over = [stop = &state->stop] { return stop->load(std::memory_order_relaxed); };
  state->reading = RS_TRY(Reading::open(std::move(open)));
  state->reading->look_up_names();
  if (state->trace().live())
    state->reading->follow(static_cast<u64>(std::max<i64>(0, options.look_ahead.count())),
                           static_cast<u64>(std::max<i64>(0, options.duration.count())));
  return Consumer(std::move(state));
}

bool Consumer::next(Event& out) {
  TraceRecord& r = state_->record;
  Reading::Got got;
  do {
    got = state_->reading->next(r);
  } while (got == Reading::Got::other);
  if (got == Reading::Got::nothing) return false;
  out = {r.time,   r.lost, r.payload.data, static_cast<u32>(r.payload.size), got == Reading::Got::gap ? 0 : r.number(),
         r.source, r.late, r.cpu, r.stack};
  return true;
}

void Consumer::refresh() { state_->reading->refresh(); }
bool Consumer::wait() { return state_->reading->wait(5'000'000); }
void Consumer::stop() noexcept { state_->stop.store(true, std::memory_order_relaxed); }

namespace {

// wanted: 0 an integer of that many bytes, 1 a floating type, 2 a text.
result<void> check_fits(const EventType& type, const Field& field, int wanted, size_t bytes) {
  const bool text = field.kind == FieldKind::text || field.kind == FieldKind::loc_text;
  const bool fits = wanted == 2   ? text
                    : wanted == 1 ? field.kind == FieldKind::floating
                                  : field.kind == FieldKind::integer && field.size <= bytes;
  if (fits) return {};
  return refuse(std::errc::invalid_argument,
                fmt::format("{}/{} is {}, which {} cannot hold", type.full, field.name,
                            text                                ? "a text"
                            : field.kind == FieldKind::floating ? "a floating number"
                            : field.kind == FieldKind::integer  ? fmt::format("an integer of {} bytes", field.size)
                                                                : "an array",
                            wanted == 2   ? "a std::string_view"
                            : wanted == 1 ? "a floating type"
                                          : fmt::format("an integer of {} bytes", bytes)));
}

}  // namespace

result<std::vector<FieldPlace>> Consumer::find_field(std::string_view event, std::string_view name, int wanted,
                                                     size_t bytes) const {
  std::vector<FieldPlace> places;
  const EventType* without = nullptr;
  for (const auto& type : state_->trace().formats.all()) {
    if (type->full != event && type->name != event) continue;
    const Field* const field = type->field(name);
    if (field == nullptr) {
      without = type.get();
      continue;
    }
    RS_TRY(check_fits(*type, *field, wanted, bytes));
    places.push_back({type->id, field->offset, field->size, field->is_signed, field});
  }
  if (!places.empty()) return places;
  if (without == nullptr)
    return refuse(std::errc::invalid_argument, "there is no event " + in_quotes(event) + " in " +
                                                   state_->trace().first().where + ", but " +
                                                   event_list(state_->trace().formats));
  std::string all;
  for (const auto& field : without->fields()) all += (all.empty() ? "" : ", ") + field.name;
  return refuse(std::errc::invalid_argument,
                without->full + " has no field " + in_quotes(name) + ", but " + (all.empty() ? "none" : all));
}

template <>
std::string_view TypedField<std::string_view>::text(const Event& e, const FieldPlace& at) const {
  return read_text({e.data, e.size}, *static_cast<const Field*>(at.field));
}

std::string_view Consumer::name(const Event& e) const {
  const EventType* type = e.lost == 0 ? state_->trace().formats.find(e.id) : nullptr;
  return type != nullptr ? std::string_view(type->full) : std::string_view();
}

int Consumer::cpu(const Event& e) const {
  const int own = state_->ring(e).its_cpu();
  return own >= 0 ? own : e.running_on;
}

int Consumer::tid(const Event& e) const { return state_->trace().tasks.seen(state_->recorded_tid(e), state_->ring(e)); }

std::string_view Consumer::task(const Event& e) const {
  return state_->trace().tasks.name(state_->recorded_tid(e), state_->ring(e));
}

std::string Consumer::text(const Event& e) {
  State& s = *state_;
  if (!s.lines) s.lines.emplace(s.trace().formats, s.trace().tasks, s.trace().raw_times());
  fmt::memory_buffer out;
  TraceRecord record = record_of(e);
  record.stack = 0;  // it would be further lines
  s.lines->print(record, s.ring(e), out);
  std::string line(out.data(), out.size());
  if (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

u64 Consumer::events() const { return state_->reading->totals().account.read; }
u64 Consumer::lost() const { return state_->reading->totals().account.overrun; }
u64 Consumer::late() const { return state_->trace().timeline.late(); }
std::vector<std::string> Consumer::problems() const {
  std::vector<std::string> all = state_->reading->notices();
  for (std::string& doubt : missing().doubts)  // with the timeline's problems
    if (std::find(all.begin(), all.end(), doubt) == all.end()) all.push_back(std::move(doubt));
  return all;
}
Consumer::Missing Consumer::missing() const {
  const Account& all = state_->reading->complete().account;
  return {all.lost(), all.reasons()};
}

// In this order: what the consumer has opened goes last.
struct Consumer::Column::State {
  std::shared_ptr<const Consumer::State> consumer;
  ringside::Column column;

  // read(the column, the event's record and ring): T in the form that a Column reads.
  template <class T, class Read>
  std::optional<T> value(const Event& e, const Read& read) {
    T out{};
    if (e.lost != 0 || !read(column, record_of(e), consumer->ring(e), out)) return std::nullopt;
    return out;
  }
};

Consumer::Column::Column(std::unique_ptr<State> state) : state_(std::move(state)) {}
Consumer::Column::Column(Column&&) noexcept = default;
Consumer::Column::~Column() = default;

std::optional<i64> Consumer::Column::number(const Event& e) {
  return state_->value<i64>(e, [](auto& column, const auto& record, const RingName& ring, i64& out) {
    return column.kind() == ringside::Column::Kind::whole && column.number(record, ring, out);
  });
}
std::optional<double> Consumer::Column::real(const Event& e) {
  return state_->value<double>(
      e, [](auto& column, const auto& record, const RingName& ring, double& out) { return column.real(record, ring, out); });
}
std::optional<std::string_view> Consumer::Column::text(const Event& e) {
  return state_->value<std::string_view>(e, [&](auto& column, const auto& record, const RingName& ring, std::string_view& out) {
    i64 stack = 0;
    if (!column.is_whole_stack()) return column.text(record, ring, out);
    if (!column.number(record, ring, stack)) return false;
    out = state_->consumer->trace().formats.stacks()->text(static_cast<u32>(stack));
    return true;
  });
}

result<Consumer::Column> Consumer::column(const std::string& text) {
  auto made = RS_TRY(ringside::Column::compile(text, state_->trace().formats, state_->trace().tasks));
  RS_TRY(state_->look_up_for({made}));
  return Column(std::unique_ptr<Column::State>(new Column::State{state_, std::move(made)}));
}

struct Consumer::Hist::State {
  std::shared_ptr<const Consumer::State> consumer;
  ringside::Hist hist;
};

Consumer::Hist::Hist(std::unique_ptr<State> state) : state_(std::move(state)) {}
Consumer::Hist::Hist(Hist&&) noexcept = default;
Consumer::Hist::~Hist() = default;

result<Consumer::Hist> Consumer::hist(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                                      size_t most_keys) {
  ringside::Hist::Options options;
  options.keys = keys;
  options.values = values;
  options.most_keys = most_keys;
  auto made = RS_TRY(ringside::Hist::make(options, state_->trace().formats, state_->trace().tasks));
  std::vector<ringside::Column> columns = made.keys();
  columns.insert(columns.end(), made.values().begin(), made.values().end());
  RS_TRY(state_->look_up_for(columns));
  return Hist(std::unique_ptr<Hist::State>(new Hist::State{state_, std::move(made)}));
}

bool Consumer::Hist::add(const Event& e) {
  return e.lost == 0 && state_->hist.add(record_of(e), state_->consumer->ring(e));
}

std::vector<Consumer::Hist::Row> Consumer::Hist::rows() const {
  std::vector<Row> out;
  for (const auto& row : state_->hist.rows({})) {
    Row& to = out.emplace_back();
    for (size_t i = 0; i < state_->hist.keys().size(); ++i) to.key.push_back(state_->hist.show(row, i));
    to.count = row.count;
    for (size_t i = 0; i < state_->hist.values().size(); ++i) to.values.push_back(row.values[i]);
  }
  return out;
}

u64 Consumer::Hist::evicted_keys() const { return state_->hist.evicted().keys; }
u64 Consumer::Hist::evicted_events() const { return state_->hist.evicted().count; }

struct Consumer::Latency::State {
  std::shared_ptr<const Consumer::State> consumer;
  Pairs pairs;
};

Consumer::Latency::Latency(std::unique_ptr<State> state) : state_(std::move(state)) {}
Consumer::Latency::Latency(Latency&&) noexcept = default;
Consumer::Latency::~Latency() = default;

result<Consumer::Latency> Consumer::latency(const LatencyOptions& options) {
  Pairs::Options make;
  make.start = options.start;
  make.end = options.end;
  for (const auto& [start, end] : options.keys) make.keys.push_back({start, end});
  make.by = options.by;
  make.filter = options.filter;
  make.most_waiting = options.most_waiting;
  make.most_groups = options.most_groups;
  make.slowest = 0;
  auto made = RS_TRY(Pairs::make(make, state_->trace().formats, state_->trace().tasks));
  RS_TRY(state_->look_up_for(made.columns(), made.conditions()));
  return Latency(std::unique_ptr<Latency::State>(new Latency::State{state_, std::move(made)}));
}

std::optional<u64> Consumer::Latency::add(const Event& e) {
  if (!state_->pairs.take(record_of(e), state_->consumer->ring(e))) return std::nullopt;
  return state_->pairs.latency();
}

const Histogram& Consumer::Latency::all() const { return state_->pairs.all(); }

std::vector<Consumer::Latency::Group> Consumer::Latency::groups() const {
  std::vector<Group> out;
  state_->pairs.each_group([&](u64 key, const Pairs::Group& group) {
    out.push_back({state_->pairs.show_group(key, group), group.times});
  });
  std::sort(out.begin(), out.end(), [](const Group& a, const Group& b) {
    return a.times.sum() != b.times.sum() ? a.times.sum() > b.times.sum() : a.key < b.key;
  });
  return out;
}

Consumer::Latency::Counts Consumer::Latency::counts() const {
  const Pairs::Counts c = state_->pairs.counts();
  return {c.pairs, c.doubtful, c.left_out, c.repeated, c.evicted, c.negative, c.waiting, c.unmatched};
}

}  // namespace ringside

namespace ringside::testing::detail {
void remove_instance(const char* path) noexcept;  // of ringside/testing.hpp
}
void ringside::testing::detail::remove_instance(const char* path) noexcept { (void)Instance::remove(path, true); }
