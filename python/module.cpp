// The extension ringside._ringside: what python/ringside/__init__.py is made of.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <deque>

#include "analysis/heat_map.hpp"
#include "analysis/hist.hpp"
#include "analysis/pairs.hpp"
#include "columns.hpp"
#include "decode/print_steps.hpp"
#include "pass.hpp"
#ifdef RINGSIDE_FLEET
#include "shipped/shipped_input.hpp"
#endif
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside::python {
namespace {

// An event that Python keeps: a copy of its bytes. With lost != 0 a gap.
struct Event {
  std::shared_ptr<Pass> pass;
  const EventType* type = nullptr;
  std::string payload{}, task{}, source{};
  u64 time = 0, lost = 0;
  u32 ring = 0, stack = 0;
  u16 id = 0;
  i32 cpu = -1, tid = 0, pid = 0;
  bool late = false;

  Bytes bytes() const { return {reinterpret_cast<const u8*>(payload.data()), payload.size()}; }
  const Field* field(std::string_view name) const { return type != nullptr ? type->field(name) : nullptr; }
};

// As `report --json` shows it: enums by name where the value has one.
py::object value_of_field(Bytes payload, const Field& field) {
  const auto integer = [](i64 value, bool is_signed) -> py::object {
    return is_signed ? py::object(py::int_(value)) : py::object(py::int_(static_cast<u64>(value)));
  };
  switch (field.kind) {
    case FieldKind::integer: {
      const i64 value = read_integer(payload, field);
      if (const std::string* name = symbol_of(field.symbols, value)) return to_str(*name);
      const char c = static_cast<char>(value);
      if (field.is_char) return to_str(c == 0 ? std::string_view() : std::string_view(&c, 1));
      if (field.is_bool) return py::bool_(value != 0);
      return integer(value, field.is_signed);
    }
    case FieldKind::floating: return py::float_(read_floating(payload, field));
    case FieldKind::text:
    case FieldKind::loc_text: return to_str(read_text(payload, field));
    case FieldKind::array:
    case FieldKind::loc_array: break;
  }
  const Bytes bytes = read_array(payload, field);
  py::list all;
  for (size_t at = 0; field.element != 0 && at + field.element <= bytes.size; at += field.element) {
    if (field.is_float)
      all.append(element_floating(bytes.data + at, field.element));
    else
      all.append(integer(element_integer(bytes.data + at, field.element, field.is_signed), field.is_signed));
  }
  return all;
}

py::dict fields_of(const Event& e) {
  py::dict all;
  if (e.type == nullptr) return all;
  for (const Field& field : e.type->fields()) all[to_str(field.name)] = value_of_field(e.bytes(), field);
  return all;
}

std::string name_of(const Event& e) {
  if (e.lost != 0) return "lost";
  return e.type != nullptr ? e.type->full : fmt::format("unknown:{}", e.id);
}

py::str text_of(const Event& e) {
  if (e.lost != 0) return to_str(fmt::format("{} events lost", e.lost));
  fmt::memory_buffer out;
  const auto held = e.pass->formats_held();
  if (e.type != nullptr)
    e.pass->trace().formats.print(*e.type, e.bytes(), out);
  else
    append_hex(e.bytes(), " ", out);
  return to_str({out.data(), out.size()});
}

// The names of its functions, innermost first.
py::list stack_of(const Event& e) {
  std::vector<std::string> names;
  if (e.stack != 0) {
    const auto held = e.pass->formats_held();
    names = e.pass->trace().formats.stacks()->functions(e.stack);
  }
  py::list all;
  for (const std::string& name : names) all.append(to_str(name));
  return all;
}

py::str line_of(const Event& e) {
  const std::string time = fmt::format("{}.{:06}", e.time / 1'000'000'000, e.time / 1000 % 1'000'000),
                    cpu = e.cpu < 0 ? "---" : fmt::format("{:03}", e.cpu);
  if (e.lost != 0) return to_str(fmt::format("[{}] {:>12}: {} events lost", cpu, time, e.lost));
  return to_str(fmt::format("{:>16}-{:<5} [{}] {:>12}: {}: {}", sys::printable(e.task), e.tid, cpu, time, name_of(e),
                            text_of(e).cast<std::string>()));
}

// Iterates over events; reads some at a time, without the GIL.
class Events {
 public:
  explicit Events(const Wanted& wanted) : pass_(std::make_shared<Pass>(wanted)) { pass_->reading().join_stacks(); }

  std::unique_ptr<Event> next() {
    if (ready_.empty()) {
      std::deque<Event> some;
      pass_->some(256, [&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
        some.push_back(event(record, ring, got));
      });
      ready_ = std::move(some);
      if (ready_.empty()) throw py::stop_iteration();
    }
    auto one = std::make_unique<Event>(std::move(ready_.front()));
    one->pass = pass_;
    ready_.pop_front();
    return one;
  }
  Pass& pass() { return *pass_; }

 private:
  Event event(const TraceRecord& record, const RingName& ring, Reading::Got got) const {
    Event e;
    e.time = record.time;
    e.late = record.late;
    e.ring = ring.ring;
    e.source = !ring.buffer.empty() ? ring.buffer : ring.kernel ? "kernel" : "program";
    e.stack = record.stack;
    if (got == Reading::Got::gap) {
      e.lost = record.lost;
      e.cpu = ring.its_cpu();
      return e;
    }
    const Tasks& tasks = pass_->trace().tasks;
    const Common common = read_common(record.payload);
    e.type = pass_->trace().formats.find(record.number());
    const i32 tid = thread_of(e.type, common);
    e.id = common.id;
    e.cpu = record.cpu_in(ring);
    e.tid = tasks.seen(tid, ring);
    e.pid = tasks.seen_process(tid, ring);
    e.task = tasks.name(tid, ring);
    e.payload.assign(reinterpret_cast<const char*>(record.payload.data), record.payload.size);
    return e;
  }
  std::shared_ptr<Pass> pass_;
  std::deque<Event> ready_;
};

py::dict answer(Pass& pass) {
  py::dict out;
  out["lost"] = pass.lost();
  out["events"] = pass.reading().totals().account.read;
  out["problems"] = pass.problems();
  out["notices"] = pass.notices();
  return out;
}

void refuse_field(const std::string& name, const ColumnOf::Chosen& chosen, const Trace& trace) {
  for (const auto& type : trace.formats.all()) {
    if (chosen(*type) && type->field(name) != nullptr)
      throw py::value_error(type->full + " has a field " + name +
                            ", which is also the name of the column of losses; leave out " + name + " or losses=True");
  }
}

// of: further patterns. losses: the column "lost" is the number of those lost, and a row for each.
py::tuple columns(const Wanted& wanted, const std::vector<std::string>& of, std::vector<std::string> names, bool losses) {
  Wanted both = wanted;
  if (wanted.events.empty()) both.events = of;
  Pass pass(both);
  const EventPatterns events = or_raise(EventPatterns::parse(wanted.events)), more = or_raise(EventPatterns::parse(of));
  EventFilter wants(wanted.events.empty() ? EventPatterns() : more);
  const auto chosen = [&](const EventType& type) {
    return (events.empty() || matches(events, type)) && (more.empty() || matches(more, type));
  };
  const auto& types = pass.trace().formats.all();
  const bool any = std::any_of(types.begin(), types.end(), [&](const auto& type) { return chosen(*type); });
  if (!events.empty() && !more.empty() && !any)
    throw py::value_error("none of these events is among those that open() has chosen");
  if (losses && std::find(names.begin(), names.end(), "lost") == names.end()) names.emplace_back("lost");
  else if (losses) refuse_field("lost", chosen, pass.trace());
  std::vector<std::unique_ptr<ColumnOf>> all;
  for (const std::string& name : names) {
    all.push_back(losses && name == "lost" ? ColumnOf::of_losses() : or_raise(ColumnOf::make(name, chosen, pass.trace())));
    if (all.back()->column()) pass.reading().look_up_for(*all.back()->column());
  }
  pass.run([&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
    if (got == Reading::Got::gap ? !losses : !wants.wants(record.number(), pass.trace().formats)) return;
    for (auto& column : all) column->add(record, ring);
  });
  py::dict out;
  for (size_t i = 0; i < names.size(); ++i) out[to_str(names[i])] = all[i]->take();
  return py::make_tuple(out, answer(pass));
}

py::object json_value(const nlohmann::ordered_json& value) {
  if (value.is_number_float()) return py::float_(value.get<double>());
  if (value.is_number_unsigned()) return py::int_(value.get<u64>());
  if (value.is_number()) return py::int_(value.get<i64>());
  return to_str(value.is_string() ? value.get<std::string>() : value.dump());
}

// NaN and the infinities, which JSON has as texts, are numbers, too; a stack is one text.
py::object key_value(const Column& column, const nlohmann::ordered_json& value) {
  if (column.kind() == Column::Kind::real && value.is_string()) return py::float_(std::stod(value.get<std::string>()));
  if (!value.is_array()) return json_value(value);
  std::string all;
  for (const std::string name : value) all += (all.empty() ? "" : ";") + name;
  return to_str(all);
}

void add_quantiles(py::dict& out, const std::string& name, const std::vector<const Histogram*>& all) {
  std::vector<double> sum, mean, p50, p99, real_least, real_most;
  std::vector<i64> least, most;
  std::vector<u64> unsigned_least, unsigned_most;  // the same
  bool beyond = false, negative = false, reals = false;
  for (const Histogram* h : all) {
    reals = reals || h->reals() != nullptr;
    real_least.push_back(h->least()), real_most.push_back(h->most());
    sum.push_back(h->sum()), mean.push_back(h->mean()), p50.push_back(h->quantile(.5)), p99.push_back(h->quantile(.99));
    least.push_back(h->min()), most.push_back(h->max());
    unsigned_least.push_back(static_cast<u64>(h->whole_min())), unsigned_most.push_back(static_cast<u64>(h->whole_max()));
    beyond = beyond || h->whole_max() > INT64_MAX, negative = negative || h->whole_min() < 0;
  }
  const auto put = [&](const char* what, py::object column) { out[to_str(name + "." + what)] = std::move(column); };
  put("sum", array_of(std::move(sum)));
  put("mean", array_of(std::move(mean)));
  const bool is_unsigned = beyond && !negative;
  const auto ends = [&](std::vector<double>& real, std::vector<u64>& of_unsigned, std::vector<i64>& of_signed) -> py::object {
    if (reals) return array_of(std::move(real));
    return is_unsigned ? py::object(array_of(std::move(of_unsigned))) : array_of(std::move(of_signed));
  };
  put("min", ends(real_least, unsigned_least, least));
  put("max", ends(real_most, unsigned_most, most));
  put("p50", array_of(std::move(p50)));
  put("p99", array_of(std::move(p99)));
}

py::tuple hist(const Wanted& wanted, const std::vector<std::string>& keys, const std::vector<std::string>& values,
               size_t most) {
  Pass pass(wanted);
  Hist::Options options;
  options.keys = keys;
  options.values = values;
  options.most_keys = most;
  if (std::find(keys.begin(), keys.end(), "count") != keys.end())
    throw py::value_error("count is also the name of the column of counts; name the key's event, as in EVENT/count");
  Hist table = or_raise(Hist::make(options, pass.trace().formats, pass.trace().tasks));
  for (const auto* columns : {&table.keys(), &table.values()}) {
    for (const Column& column : *columns) pass.reading().look_up_for(column);
  }
  pass.run([&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
    if (got == Reading::Got::event) table.add(record, ring);
  });
  const std::vector<Hist::Row> rows = table.rows({});
  py::dict out;
  std::vector<py::list> shown(keys.size());
  std::vector<i64> counts;
  for (const Hist::Row& row : rows) {
    for (size_t i = 0; i < keys.size(); ++i) shown[i].append(key_value(table.keys()[i], table.json(row, i)));
    counts.push_back(static_cast<i64>(row.count));
  }
  for (size_t i = 0; i < keys.size(); ++i) out[to_str(keys[i])] = shown[i];
  out["count"] = array_of(std::move(counts));
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<const Histogram*> all;
    for (const Hist::Row& row : rows) all.push_back(&row.values[i]);
    add_quantiles(out, values[i], all);
  }
  py::dict told = answer(pass);
  told["without"] = table.without();
  told["evicted_keys"] = table.evicted().keys;
  told["evicted_events"] = table.evicted().count;
  return py::make_tuple(out, told);
}

struct PairsWanted {
  std::string start{}, end{}, by{}, filter{};  // filter: a condition on these pairs
  std::vector<std::pair<std::string, std::string>> keys{};
  bool first = false;
};

Pairs pairs_of(const PairsWanted& wanted, Pass& pass) {
  Pairs::Options options;
  options.filter = wanted.filter;
  options.start = wanted.start;
  options.end = wanted.end;
  options.by = wanted.by;
  options.first = wanted.first;
  options.slowest = 0;
  for (const auto& [start, end] : wanted.keys) options.keys.push_back({start, end});
  Pairs pairs = or_raise(Pairs::make(options, pass.trace().formats, pass.trace().tasks));
  pass.reading().look_up_for(pairs);
  return pairs;
}

void tell(const Pairs::Counts& c, py::dict& told) {
  for (const auto& [name, value] :
       {std::pair("pairs", c.pairs), std::pair("left_out", c.left_out), std::pair("doubtful", c.doubtful),
        std::pair("repeated", c.repeated), std::pair("late", c.late), std::pair("evicted", c.evicted), std::pair("negative", c.negative),
        std::pair("unmatched", c.unmatched), std::pair("waiting", c.waiting)})
    told[name] = value;
}

py::tuple latency(const Wanted& wanted, const PairsWanted& which) {
  Pass pass(wanted);
  if (which.by == "ts" || which.by == "ns")
    throw py::value_error(which.by + " is also the name of a column of the answer; name the event of `by`, as in EVENT/" +
                          which.by);
  Pairs pairs = pairs_of(which, pass);
  std::vector<i64> times, took;
  std::vector<u64> groups;
  pass.run([&](const TraceRecord& record, const RingName& ring, Reading::Got) {
    if (!pairs.take(record, ring)) return;
    times.push_back(static_cast<i64>(record.time));
    took.push_back(static_cast<i64>(pairs.latency()));
    if (pairs.grouped()) groups.push_back(pairs.last_group().value_or(~u64{0}));
  });
  py::dict out;
  out["ts"] = array_of(std::move(times));
  out["ns"] = array_of(std::move(took));
  if (pairs.grouped()) {
    std::unordered_map<u64, std::string> names;
    pairs.each_group([&](u64 key, const Pairs::Group& group) { names[key] = pairs.show_group(key, group); });
    Codes codes;
    for (const u64 group : groups) {
      const auto found = names.find(group);
      found != names.end() ? codes.add(found->second) : codes.add_none();
    }
    out[to_str(which.by)] = codes.take();
  }
  py::dict told = answer(pass);
  tell(pairs.counts(), told);
  return py::make_tuple(out, told);
}

// Of a column's values (value not empty), or of latencies.
py::tuple heat(const Wanted& wanted, const std::string& value, const PairsWanted& which, size_t most_columns, u32 precision) {
  Pass pass(wanted);
  HeatMap map({.most_columns = most_columns, .precision = precision, .finest = 0});
  py::dict told;
  u64 below = 0;
  if (!value.empty()) {
    Column column = or_raise(Column::compile(value, pass.trace().formats, pass.trace().tasks));
    if (column.is_whole_stack()) throw py::value_error(value + " is a stack, and has no size");
    if (column.kind() == Column::Kind::text) throw py::value_error(value + " is a text, and has no size");
    pass.run([&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
      double real = 0;
      i64 whole = 0;
      if (got == Reading::Got::gap) return;
      if (column.kind() == Column::Kind::whole ? !column.number(record, ring, whole) : !column.real(record, ring, real)) return;
      if (column.kind() == Column::Kind::real)
        whole = real < 0 ? -1 : real > 9e18 ? i64{9'000'000'000'000'000'000} : static_cast<i64>(real);
      if (whole < 0)
        ++below;
      else
        map.add(record.time, static_cast<u64>(whole));
    });
    told = answer(pass);
    told["negative"] = below;
  } else {
    Pairs pairs = pairs_of(which, pass);
    pass.run([&](const TraceRecord& record, const RingName& ring, Reading::Got) {
      if (pairs.take(record, ring)) map.add(record.time, pairs.latency());
    });
    told = answer(pass);
    tell(pairs.counts(), told);
  }
  const u32 rows = map.rows();
  std::vector<i64> begins;
  std::vector<u64> lows, highs, counts;
  for (u32 row = 0; row < rows; ++row) lows.push_back(map.low(row)), highs.push_back(map.high(row));
  for (size_t c = 0; c < map.columns(); ++c) {
    begins.push_back(static_cast<i64>(map.begin_ns(c)));
    for (u32 row = 0; row < rows; ++row) counts.push_back(map.count(c, row));
  }
  const size_t wide = begins.size();
  py::dict out;
  out["ts"] = array_of(std::move(begins));
  out["column_ns"] = map.column_ns();
  out["low"] = array_of(std::move(lows));
  out["high"] = array_of(std::move(highs));
  out["count"] = array_of(std::move(counts)).attr("reshape")(wide, rows);
  return py::make_tuple(out, told);
}

py::tuple event_types(const Wanted& wanted) {
  Pass pass(wanted);
  const EventPatterns events = or_raise(EventPatterns::parse(wanted.events));
  py::dict out;
  for (const auto& type : pass.trace().formats.all()) {
    if (!events.empty() && !matches(events, *type)) continue;
    py::list fields;
    for (const Field& field : type->fields()) fields.append(to_str(field.name));
    out[to_str(type->full)] = fields;
  }
  return py::make_tuple(out, answer(pass));
}

}  // namespace

PYBIND11_MODULE(_ringside, m) {
#ifdef RINGSIDE_FLEET
  ringside::open_servers();
#endif
  m.doc() = "The reading side of ringside; use the package ringside.";
  py::register_exception<std::system_error>(m, "_SystemError", PyExc_OSError);
  m.attr("Error") = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
      "ringside.Error", "What was tried, on what, why it failed, what to do.", PyExc_RuntimeError, nullptr));

  py::class_<Wanted>(m, "Wanted")
      .def(py::init([](std::vector<std::string> where, std::vector<std::string> events, std::string filter, std::string time,
                       std::vector<std::string> kernel, bool follow, double look_ahead, double timeout) {
             return Wanted{
                 std::move(where), std::move(events), std::move(kernel), std::move(filter), std::move(time), follow, look_ahead,
                 timeout};
           }),
           py::arg("where"), py::arg("events"), py::arg("filter"), py::arg("time"), py::arg("kernel"), py::arg("follow"),
           py::arg("look_ahead"), py::arg("timeout"));

  py::class_<Event>(m, "Event", "An event, or a loss: then `lost` is not 0.")
      .def_readonly("ts", &Event::time, "nanoseconds, of CLOCK_MONOTONIC where the trace's clock can be converted")
      .def_property_readonly("name", &name_of, "\"sched:sched_switch\"; \"lost\": a loss")
      .def_property_readonly(
          "cpu", [](const Event& e) { return e.cpu < 0 ? py::object(py::none()) : py::object(py::int_(e.cpu)); },
          "None: unknown")
      .def_readonly("ring", &Event::ring, "N of per_cpu/cpuN")
      .def_property_readonly(
          "source", [](const Event& e) { return to_str(e.source); },
          "which of several files or buffers it is of; of one alone: kernel or program")
      .def_readonly("tid", &Event::tid, "the thread, as the reader sees it")
      .def_readonly("pid", &Event::pid, "its process")
      .def_property_readonly(
          "task", [](const Event& e) { return to_str(e.task); }, "the thread's name at that time")
      .def_readonly("lost", &Event::lost, "events lost here; 0: this is an event")
      .def_property_readonly("stack", &stack_of, "the names of its stack's functions, innermost first; none: it has no stack")
      .def_readonly("late", &Event::late, "one with a later time came before")
      .def_property_readonly("fields", &fields_of, "all fields, by name")
      .def_property_readonly("text", &text_of, "the fields as `ringside report` prints them")
      .def("__getitem__",
           [](const Event& e, const std::string& name) {
             const Field* const field = e.field(name);
             if (field == nullptr) throw py::key_error(name_of(e) + " has no field " + name);
             return value_of_field(e.bytes(), *field);
           })
      .def("__contains__", [](const Event& e, const std::string& name) { return e.field(name) != nullptr; })
      .def(
          "get",
          [](const Event& e, const std::string& name, py::object otherwise) {
            const Field* const field = e.field(name);
            return field != nullptr ? value_of_field(e.bytes(), *field) : otherwise;
          },
          py::arg("name"), py::arg("default") = py::none())
      .def("__str__", &line_of)
      .def("__repr__", [](const Event& e) { return "<ringside.Event " + name_of(e) + " at " + std::to_string(e.time) + ">"; });

  py::class_<Events>(m, "Events", "An iterator over events and losses.")
      .def(py::init<const Wanted&>())
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Events::next)
      .def_property_readonly(
          "lost", [](Events& e) { return e.pass().lost(); },
          "events lost so far: in gaps, and once all was read, all that are missing")
      .def_property_readonly("notices", [](Events& e) { return e.pass().notices(); })
      .def_property_readonly(
          "problems", [](Events& e) { return e.pass().problems(); }, "what could not be read, a sentence each");

  py::class_<PairsWanted>(m, "Pairs")
      .def(py::init([](std::string start, std::string end, std::vector<std::pair<std::string, std::string>> keys,
                       std::string by, bool first, std::string filter) {
             return PairsWanted{std::move(start), std::move(end), std::move(by), std::move(filter), std::move(keys), first};
           }),
           py::arg("start"), py::arg("end"), py::arg("keys"), py::arg("by"), py::arg("first"),
           py::arg("filter"));
  m.def("columns", &columns);
  m.def("hist", &hist);
  m.def("latency", &latency);
  m.def("heat", &heat);
  m.def("event_types", &event_types);
}

}  // namespace ringside::python
