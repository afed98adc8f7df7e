#include "export/otlp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "decode/id_table.hpp"
#include "decode/print_steps.hpp"
#include "decode/role.hpp"
#include "export/json.hpp"

namespace ringside {
namespace {

constexpr size_t most_waiting = 16'384;  // finished spans and events of a thread
constexpr size_t most_open = 512;        // spans of a thread that have begun
constexpr size_t full_line = 256 << 10;

u64 mixed(u64 a, u64 b) {
  u64 x = a ^ (b + 0x9E3779B97F4A7C15 + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Of `digits` hexadecimal digits, not all 0; else empty.
std::string id_text(std::string_view text, size_t digits) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'F' ? static_cast<char>(c | 0x20) : c;
  const bool good = out.size() == digits && out.find_first_not_of("0123456789abcdef") == std::string::npos &&
                    out.find_first_not_of('0') != std::string::npos;
  return good ? out : "";
}

void append_text(std::string_view text, std::string& out) {
  fmt::memory_buffer buffer;
  append_json_text(text, buffer);
  out.append(buffer.data(), buffer.size());
}

void attribute(std::string_view key, const std::string& value, std::string& out) {
  out += out.empty() ? "{\"key\":" : ",{\"key\":";
  append_text(key, out);
  out += ",\"value\":" + value + "}";
}
std::string text_value(std::string_view text) {
  std::string out = "{\"stringValue\":";
  append_text(text, out);
  return out + "}";
}
// OTLP has signed integers alone; larger ones are texts.
std::string integer_value(i64 value, bool is_signed) {
  if (!is_signed && value < 0) return text_value(fmt::format("{}", static_cast<u64>(value)));
  return fmt::format("{{\"intValue\":\"{}\"}}", value);
}
std::string real_value(double value) {
  if (value != value) return "{\"doubleValue\":\"NaN\"}";
  if (value - value != 0) return value > 0 ? "{\"doubleValue\":\"Infinity\"}" : "{\"doubleValue\":\"-Infinity\"}";
  return fmt::format("{{\"doubleValue\":{}}}", value);
}

std::string value_of(Bytes payload, const Field& field) {
  switch (field.kind) {
    case FieldKind::integer: {
      const i64 value = read_integer(payload, field);
      if (const std::string* name = symbol_of(field.symbols, value)) return text_value(*name);
      if (field.is_bool) return value != 0 ? "{\"boolValue\":true}" : "{\"boolValue\":false}";
      const char c = static_cast<char>(value);
      if (field.is_char) return text_value(c == 0 ? std::string_view() : std::string_view(&c, 1));
      return integer_value(value, field.is_signed);
    }
    case FieldKind::floating:
      return real_value(read_floating(payload, field));
    case FieldKind::text:
    case FieldKind::loc_text:
      return text_value(read_text(payload, field));
    case FieldKind::array:
    case FieldKind::loc_array:
      break;
  }
  std::string out;
  const Bytes bytes = read_array(payload, field);
  for (size_t at = 0; field.element != 0 && at + field.element <= bytes.size; at += field.element) {
    out += out.empty() ? "" : ",";
    out += field.is_float ? real_value(element_floating(bytes.data + at, field.element))
                          : integer_value(element_integer(bytes.data + at, field.element, field.is_signed), field.is_signed);
  }
  return "{\"arrayValue\":{\"values\":[" + out + "]}}";
}

struct Span {
  u64 begin = 0, end = 0;
  bool is_event = false;  // without a length
  std::string name{}, attributes{};
  std::string trace{}, id{}, parent{};  // empty: they follow from where it lies
  bool unfinished = false;
  u64 lost = 0;
  std::vector<Span> inner{};
  size_t size = 1;  // with what lies in it
  u32 depth = 1;
};
struct OpenSpan {
  Span span;
  u64 function = 0;  // of a call
  u64 left = 0;      // when one ended that began before it: it ends later, or a longjmp or an exception left it; 0: none has
};
struct SpansOfThread {
  std::vector<OpenSpan> open;
  std::deque<Span> done;  // by their ends
  size_t waiting = 0;
  Tasks::Key process = 0;
};

class OtlpExporter final : public Exporter {
 public:
  OtlpExporter(const Exported& of, Put put)
      : formats_(of.formats), tasks_(of.tasks), world_(of.world), wall_(of.wall), put_(std::move(put)) {}

  result<void> add(const TraceRecord& record, const RingName& ring) override {
    last_ = std::max(last_, record.time);
    ++count_;
    if (record.lost != 0)
      lose(record, ring);
    else
      add_event(record, ring);
    return spans_bytes_ >= full_line ? put_out() : result<void>();
  }
  // A line of the spans that have their parents, or can get none.
  result<void> put_out() override {
    if (spans_.empty()) return {};
    std::string line = "{\"resourceSpans\":[";
    for (const auto& [process, spans] : spans_) {
      if (line.back() == '}') line += ",";
      line += "{\"resource\":{\"attributes\":[" + resource(process) +
              "]},\"scopeSpans\":[{\"scope\":{\"name\":\"ringside\"},\"spans\":[" + spans + "]}]}";
    }
    spans_.clear();
    spans_bytes_ = 0;
    return put_(line + "]}\n");
  }
  result<void> add_missing(u64 time, const Account& account) override {
    last_ = std::max(last_, time);
    Span span{time, time};
    span.name = "lost events";
    span.lost = account.elsewhere();
    for (const std::string& reason : account.reasons()) attribute("ringside.reason", text_value(reason), span.attributes);
    emit(span, 0, "", "");
    return {};
  }
  result<void> finish() override {
    for (auto& [key, thread] : threads_) {
      while (!thread.open.empty()) leave(thread, thread.open.rbegin());
      release(thread, 0);
    }
    for (auto& [id, span] : apart_) {
      span.end = last_;
      span.unfinished = true;
      emit(span, id.first.first, "", "");
    }
    apart_.clear();
    if (spans_.empty() && count_ == 0) return put_("{\"resourceSpans\":[]}\n");
    return put_out();
  }

 private:
  struct Known {
    const EventType* type = nullptr;
    EventRole role{};
  };

  const Known& known(u32 id) {
    return events_.at(id, formats_.version(), [&] {
      Known event{formats_.find(id)};
      if (event.type != nullptr) event.role = role_of(*event.type);
      return event;
    });
  }

  void add_event(const TraceRecord& record, const RingName& ring) {
    const Known& event = known(record.number());
    const Common common = read_common(record.payload);
    const i32 tid = tells_no_thread(event.type) ? 0 : thread_of(event.type, common);
    const bool on_track = event.role.role == Role::span && event.role.track != nullptr && event.role.async == nullptr;
    SpansOfThread& thread = threads_[{tasks_.key(tid, ring), tid == 0 && ring.kernel ? ring.ring + 1 : 0,
                                      on_track ? std::string(read_text(record.payload, *event.role.track)) : std::string()}];
    thread.process = tasks_.process(tid, ring);
    names_[thread.process] = {tasks_.seen_process(tid, ring), process_name(tid, ring)};
    Span span{record.time, record.time, true, event.type != nullptr ? event.type->full : fmt::format("unknown:{}", common.id),
              ""};
    attribute("thread.id", integer_value(tasks_.seen(tid, ring), true), span.attributes);
    attribute("thread.name", text_value(tasks_.name(tid, ring)), span.attributes);
    if (const i32 cpu = record.cpu_in(ring); cpu >= 0) attribute("cpu", integer_value(cpu, true), span.attributes);
    if (event.type == nullptr) return finished(thread, std::move(span));
    for (const Field& field : event.type->fields()) read_field(record.payload, field, event.role, span);
    if (event.type->level() != nullptr) {
      fmt::memory_buffer text;
      formats_.print(*event.type, record.payload, text);
      attribute("message", text_value({text.data(), text.size()}), span.attributes);
    }
    place(record, event, thread, std::move(span));
  }

  void read_field(Bytes payload, const Field& field, const EventRole& role, Span& span) {
    const bool is_text = field.kind == FieldKind::text || field.kind == FieldKind::loc_text;
    const auto digits = [&](size_t count) {
      if (is_text) return id_text(read_text(payload, field), count);
      const bool is_number = field.kind == FieldKind::integer && count == 16;
      return is_number ? id_text(fmt::format("{:016x}", static_cast<u64>(read_integer(payload, field))), 16) : std::string();
    };
    if (field.name == "trace_id") span.trace = digits(32);
    if (field.name == "span_id") span.id = digits(16);
    if (field.name == "parent_span_id") span.parent = digits(16);
    if (field.name == "traceparent" && is_text) {
      const std::string_view text = read_text(payload, field);  // "00-TRACE-PARENT-01"
      if (text.size() >= 55 && text[2] == '-' && text[35] == '-' && text[52] == '-') {
        span.trace = id_text(text.substr(3, 32), 32);
        span.parent = id_text(text.substr(36, 16), 16);
      }
    }
    if (&field != role.name && (role.role != Role::span || &field != role.value))
      attribute(field.name, value_of(payload, field), span.attributes);
  }

  // As its event says: it has ended, begins a span, ends one, or has no length.
  void place(const TraceRecord& record, const Known& event, SpansOfThread& thread, Span span) {
    const EventRole& role = event.role;
    if (role.role == Role::duration) {
      const i64 took = read_integer(record.payload, *role.value);
      const bool fits = !(took < 0 && role.value->is_signed) && static_cast<u64>(took) <= record.time;
      span.is_event = !fits;
      if (fits) span.begin = record.time - static_cast<u64>(took);
      return finished(thread, std::move(span));
    }
    if (role.role == Role::span) {
      const auto kind = static_cast<char>(read_integer(record.payload, *role.value));
      if (const std::string_view name = read_text(record.payload, *role.name); !name.empty()) span.name = name;
      if (role.async != nullptr && (kind == 'B' || kind == 'E'))
        return of_any_thread(record, role, kind, thread, std::move(span));
      if (kind == 'B') return open(thread, std::move(span), 0);
      const auto its = std::find_if(thread.open.rbegin(), thread.open.rend(), [&](const OpenSpan& o) {
        return o.function == 0 && (read_text(record.payload, *role.name).empty() || o.span.name == span.name);
      });
      if (kind == 'E' && its != thread.open.rend()) return close(thread, record.time, span.attributes, its);
    }
    if (role.role == Role::call) {
      const auto function = static_cast<u64>(read_integer(record.payload, *role.value));
      span.name = function_of(role, record.number(), record.payload, formats_);
      if (role.begins) return open(thread, std::move(span), function);
      const auto its =
          std::find_if(thread.open.rbegin(), thread.open.rend(), [&](const OpenSpan& o) { return o.function == function; });
      if (its != thread.open.rend()) {  // the ends of those in it are missing
        for (auto left = its - thread.open.rbegin() + 1; left != 0; --left) close(thread, record.time, "");
        return;
      }
    }
    finished(thread, std::move(span));
  }

  // A span with an id begins on one thread and ends on another one of its process; it is no thread's child.
  void of_any_thread(const TraceRecord& record, const EventRole& role, char kind, SpansOfThread& thread, Span span) {
    const auto id = std::make_pair(std::make_pair(thread.process, read_integer(record.payload, *role.async)), span.name);
    const auto open = apart_.find(id);
    if (kind == 'B') {
      if (open != apart_.end() || apart_.size() >= most_waiting) return finished(thread, std::move(span));
      span.is_event = false;
      apart_.emplace(id, std::move(span));
      return;
    }
    if (open == apart_.end()) return finished(thread, std::move(span));
    Span whole = std::move(open->second);
    apart_.erase(open);
    whole.end = record.time;
    add_attributes(whole, span.attributes);
    emit(whole, thread.process, "", "");
  }

  void open(SpansOfThread& thread, Span span, u64 function) {
    if (thread.open.size() >= most_open) {
      const auto left = std::find_if(thread.open.rbegin(), thread.open.rend(), [](const OpenSpan& o) { return o.left != 0; });
      if (left == thread.open.rend()) return finished(thread, std::move(span));
      leave(thread, left);
    }
    span.is_event = false;
    thread.open.push_back({std::move(span), function});
  }
  using Open = std::vector<OpenSpan>;
  void close(SpansOfThread& thread, u64 time, const std::string& more) { close(thread, time, more, thread.open.rbegin()); }
  void close(SpansOfThread& thread, u64 time, const std::string& more, Open::reverse_iterator its) {
    for (auto after = thread.open.rbegin(); after != its; ++after)
      if (after->left == 0) after->left = time;
    Span span = std::move(its->span);
    thread.open.erase(std::next(its).base());
    span.end = time;
    if (!more.empty()) add_attributes(span, more);
    finished(thread, std::move(span));
  }
  // Its end is missing.
  void leave(SpansOfThread& thread, Open::reverse_iterator its) {
    const u64 left = its->left;
    its->span.unfinished = true;
    if (left == 0) return close(thread, last_, "", its);
    Span span = std::move(its->span);
    thread.open.erase(std::next(its).base());
    span.end = left;
    const auto around = [&](auto& spans) {
      const auto found = std::find_if(spans.begin(), spans.end(), [&](const Span& one) {
        return !one.is_event && one.begin <= span.begin && left <= one.end;
      });
      return found == spans.end() ? nullptr : &*found;
    };
    if (Span* outer = around(thread.done); outer != nullptr) {
      ++outer->size, ++thread.waiting;
      while (Span* const inner = around(outer->inner)) outer = inner;
      return outer->inner.push_back(std::move(span));
    }
    number(span);
    emit(span, thread.process, "", "");
  }
  // Values of its end are its results: of its begin there are those that it lacks there.
  static void add_attributes(Span& span, const std::string& of_end) {
    const std::string of_begin = std::exchange(span.attributes, of_end);
    for (size_t at = 0; at < of_begin.size();) {
      const size_t next = std::min(of_begin.find(",{\"key\":", at), of_begin.size());
      const std::string one = of_begin.substr(at, next - at);
      if (span.attributes.find(one.substr(0, one.find(",\"value\":") + 1)) == std::string::npos) span.attributes += "," + one;
      at = next + 1;
    }
  }

  // What has ended since it began lies in it.
  void finished(SpansOfThread& thread, Span span) {
    std::vector<Span> inner;
    while (!span.is_event && !thread.done.empty() && thread.done.back().begin >= span.begin &&
           thread.done.back().depth < most_open) {
      span.depth = std::max(span.depth, thread.done.back().depth + 1);
      span.size += thread.done.back().size;
      inner.push_back(std::move(thread.done.back()));
      thread.done.pop_back();
    }
    span.inner.assign(std::make_move_iterator(inner.rbegin()), std::make_move_iterator(inner.rend()));
    thread.waiting += 1;
    thread.done.push_back(std::move(span));
    if (thread.waiting > most_waiting) release(thread, most_waiting / 2);
  }
  // Without waiting any longer for their parents, but for those that have begun.
  void release(SpansOfThread& thread, size_t keep) {
    for (OpenSpan& open : thread.open) number(open.span);
    while (!thread.done.empty() && thread.waiting > keep) {
      const Span span = std::move(thread.done.front());
      thread.done.pop_front();
      thread.waiting -= std::min(thread.waiting, span.size);
      std::string trace, parent;
      for (const OpenSpan& open : thread.open) {
        if (open.span.begin > span.begin) break;
        if (open.left != 0 && open.left <= span.begin) continue;
        trace = open.span.trace.empty() ? trace : open.span.trace;
        parent = open.span.id;
      }
      if (!parent.empty() && trace.empty()) trace = thread.open.front().span.trace = new_trace(thread.open.front().span);
      emit(span, thread.process, trace, parent);
    }
  }

  u64 seed(const Span& span) {
    u64 x = std::hash<std::string>()(world_.host);
    for (const char c : span.name) x = mixed(x, static_cast<u8>(c));
    return mixed(mixed(x, span.begin), ++numbered_);
  }
  void number(Span& span) {
    if (span.id.empty()) span.id = fmt::format("{:016x}", std::max<u64>(seed(span), 1));
  }
  std::string new_trace(const Span& span) {
    const u64 high = seed(span);
    return fmt::format("{:016x}{:016x}", high, std::max<u64>(mixed(high, span.end), 1));
  }

  u64 wall_ns(u64 time) const { return wall_ ? static_cast<u64>(std::max<i64>(wall_->of(time), 0)) : time; }

  void emit(const Span& span, Tasks::Key process, std::string trace, std::string parent) {
    Span its = {span.begin, span.end, span.is_event, "", "", span.trace, span.id, span.parent};
    if (its.trace.empty()) its.trace = trace.empty() ? new_trace(span) : trace;
    if (its.parent.empty() && its.trace == trace) its.parent = parent;  // of another trace: a link would be all
    if (its.id.empty()) its.id = fmt::format("{:016x}", std::max<u64>(seed(span), 1));
    std::string text = "{\"traceId\":\"" + its.trace + "\",\"spanId\":\"" + its.id + "\"";
    if (!its.parent.empty()) text += ",\"parentSpanId\":\"" + its.parent + "\"";
    text += ",\"name\":";
    append_text(span.name, text);
    text += fmt::format(",\"kind\":1,\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\"", wall_ns(span.begin),
                        wall_ns(span.end));
    std::string attributes = span.attributes;
    if (span.unfinished) attribute("ringside.unfinished", "{\"boolValue\":true}", attributes);
    if (span.lost != 0) attribute("ringside.lost", integer_value(static_cast<i64>(span.lost), true), attributes);
    text += ",\"attributes\":[" + attributes + "]";
    std::string events;
    for (const Span& one : span.inner) {
      if (!is_plain_event(one, its.trace)) continue;
      events += events.empty() ? "{\"timeUnixNano\":\"" : ",{\"timeUnixNano\":\"";
      events += std::to_string(wall_ns(one.begin)) + "\",\"name\":";
      append_text(one.name, events);
      events += ",\"attributes\":[" + one.attributes + "]}";
    }
    if (!events.empty()) text += ",\"events\":[" + events + "]";
    if (span.lost != 0) text += fmt::format(",\"status\":{{\"code\":2,\"message\":\"{} events were lost here\"}}", span.lost);
    std::string& out = spans_[process];
    out += (out.empty() ? "" : ",") + text + "}";
    spans_bytes_ += text.size();
    for (const Span& one : span.inner)
      if (!is_plain_event(one, its.trace)) emit(one, process, its.trace, its.id);
  }
  // One with a trace of its own is a span there.
  static bool is_plain_event(const Span& span, const std::string& trace) {
    return span.is_event && (span.trace.empty() || span.trace == trace);
  }

  void lose(const TraceRecord& record, const RingName& ring) {
    Span span{record.time, record.time};
    span.name = "lost events";
    span.lost = record.lost;
    attribute("ring", integer_value(ring.ring, true), span.attributes);
    const Tasks::Key process = ring.kernel || ring.cpu >= 0 ? 0 : tasks_.process(ring.tid, ring);
    emit(span, process, "", "");
  }

  std::string process_name(i32 tid, const RingName& ring) const {
    const Task* const task = tasks_.find(tid, ring);
    return task != nullptr ? task->process : ring.process;
  }
  std::string resource(Tasks::Key process) const {
    std::string out;
    const auto known = names_.find(process);
    const bool named = known != names_.end() && !known->second.second.empty();
    attribute("service.name", text_value(named ? known->second.second : process == 0 ? "kernel" : "unknown"), out);
    if (known != names_.end()) attribute("process.pid", integer_value(known->second.first, true), out);
    if (!world_.host.empty()) attribute("host.name", text_value(world_.host), out);
    return out;
  }

  const Formats& formats_;
  const Tasks& tasks_;
  const World world_;
  const std::optional<WallClock> wall_;
  Put put_;
  IdObjects<Known> events_;
  u64 last_ = 0, count_ = 0, numbered_ = 0;
  std::map<std::tuple<Tasks::Key, u32, std::string>, SpansOfThread> threads_;  // by idle thread's CPU + 1, and by track
  std::map<std::pair<std::pair<Tasks::Key, i64>, std::string>, Span> apart_;
  std::map<Tasks::Key, std::pair<i32, std::string>> names_;  // of processes: the number and the name
  std::map<Tasks::Key, std::string> spans_;                  // by process, of the next line
  size_t spans_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Exporter> otlp_exporter(const Exported& of, Exporter::Put put) {
  return std::make_unique<OtlpExporter>(of, std::move(put));
}

}  // namespace ringside
