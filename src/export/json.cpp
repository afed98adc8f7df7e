#include "export/json.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "decode/descriptors.hpp"
#include "decode/message.hpp"
#include "decode/print_steps.hpp"
#include "export/line_exporter.hpp"
#include "sys/json.hpp"
#include "sys/text.hpp"

namespace ringside {

static void append_json_text(std::string_view text, Appender& out);

namespace {

// Bytes of the UTF-8 sequence at the start of `s`; 0: there is none (overlong, surrogate, beyond Unicode, cut).
size_t utf8_length(std::string_view s) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<u8>(s[i]) : u8{0}; };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const u8 b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (b == 0xE0 && byte(1) < 0xA0) return 0;
    return b == 0xED && byte(1) > 0x9F ? 0 : 3;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (b == 0xF0 && byte(1) < 0x90) return 0;
    return b == 0xF4 && byte(1) > 0x8F ? 0 : 4;
  }
  return 0;
}

void append_integer(i64 value, bool is_signed, Appender& out) {
  const bool quoted = needs_text(value, is_signed);
  if (quoted) out.push_back('"');
  append_decimal(value, is_signed, out);
  if (quoted) out.push_back('"');
}

void append_number(double value, u32 size, Appender& out) {
  if (std::isfinite(value))
    out.to_buffer([&](auto& to) { append_floating(value, size, to); });
  else
    append(out, "null");
}

// ["one","two"]: an array of texts.
void append_rows(Bytes payload, const Field& field, Appender& out) {
  out.push_back('[');
  for (size_t i = 0;; ++i) {
    const Bytes row = read_row(payload, field, i);
    if (row.data == nullptr) break;
    if (i != 0) out.push_back(',');
    append_json_text(text_of(row), out);
  }
  out.push_back(']');
}

void append_value(Bytes payload, const Field& field, Appender& out) {
  switch (field.kind) {
    case FieldKind::integer: {
      const i64 value = read_integer(payload, field);
      const std::string* name = symbol_of(field.symbols, value);
      const char c = static_cast<char>(value);
      if (name != nullptr)
        append_json_text(*name, out);
      else if (field.is_char)
        append_json_text(c == 0 ? std::string_view() : std::string_view(&c, 1), out);
      else if (field.is_bool)
        append(out, value != 0 ? "true" : "false");
      else
        append_integer(value, field.is_signed, out);
      break;
    }
    case FieldKind::floating:
      append_number(read_floating(payload, field), field.size, out);
      break;
    case FieldKind::text:
    case FieldKind::loc_text:
      if (field.is_composed && field.messages == nullptr) [[unlikely]] {
        append_rows(payload, field, out);
        break;
      }
      append_json_text(read_text(payload, field), out);
      break;
    case FieldKind::array:
    case FieldKind::loc_array: {
      const Bytes bytes = read_array(payload, field);
      out.push_back('[');
      for (size_t at = 0; field.element != 0 && at + field.element <= bytes.size; at += field.element) {
        if (at != 0) out.push_back(',');
        if (field.is_float)
          append_number(element_floating(bytes.data + at, field.element), field.element, out);
        else
          append_integer(element_integer(bytes.data + at, field.element, field.is_signed), field.is_signed, out);
      }
      out.push_back(']');
      break;
    }
  }
}

// "ring":3; before it the buffer, where there are several.
void append_place(const RingName& ring, fmt::memory_buffer& out) {
  if (!ring.buffer.empty()) {
    append(out, "\"buffer\":");
    append_json_text(ring.buffer, out);
    out.push_back(',');
  }
  fmt::format_to(std::back_inserter(out), "\"ring\":{}", ring.ring);
}

void append_cpu(i32 cpu, fmt::memory_buffer& out) {
  append(out, ",\"cpu\":");
  if (cpu < 0)
    append(out, "null,");
  else
    fmt::format_to(std::back_inserter(out), "{},", cpu);
}

}  // namespace

void append_json_value(Bytes payload, const Field& field, fmt::memory_buffer& buffer) {
  Appender out(buffer);
  append_value(payload, field, out);
}

std::string as_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    out += length != 0 ? bytes.substr(0, length) : "\ufffd";
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

void append_json_missing(u64 time, const Account& account, fmt::memory_buffer& buffer) {
  Appender out(buffer);
  append(out, "{\"ts\":");
  append_integer(static_cast<i64>(time), false, out);
  append(out, ",\"cpu\":null,\"ring\":null,\"lost\":");
  append_integer(static_cast<i64>(account.elsewhere()), false, out);
  append(out, ",\"account\":");
  append(out, json_of(account).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  append(out, "}\n");
}

static void append_json_text(std::string_view text, Appender& out) {
  const auto plain = [](char c) { return static_cast<signed char>(c) >= 0x20 && c != '"' && c != '\\' && c != 0x7F; };
  out.push_back('"');
  while (!text.empty()) {
    if (const auto end = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), plain) - text.begin()); end != 0) {
      append(out, text.substr(0, end));
      text.remove_prefix(end);
      continue;
    }
    const char c = text.front();
    size_t length = utf8_length(text);
    if (length == 0) {
      append(out, "\\ufffd");
      length = 1;
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (sys::is_control(c)) {
      append(out, fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
    } else {
      append(out, text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out.push_back('"');
}
void append_json_text(std::string_view text, fmt::memory_buffer& out) {
  Appender to(out);
  append_json_text(text, to);
}

JsonLines::Event JsonLines::describe(u32 id, const EventType* type) {
  Event e;
  fmt::memory_buffer text;
  append_json_text(type != nullptr ? type->full : fmt::format("unknown:{}", id & 0xFFFF), text);
  append(text, ",\"fields\":{");
  e.name.assign(text.data(), text.size());
  if (type == nullptr) return e;
  for (const Field& field : type->fields()) {
    text.clear();
    if (&field != &type->fields().front()) text.push_back(',');
    append_json_text(field.name, text);
    text.push_back(':');
    e.rest.literal({text.data(), text.size()});
    const bool plain = field.kind == FieldKind::integer && field.symbols.empty() && !field.is_char && !field.is_bool;
    if (plain && !(json_safe && field.size == 8))
      e.rest.number({field.offset, static_cast<u8>(field.size), 8, field.is_signed, field.is_signed});
    else
      e.rest.other(static_cast<u32>(&field - type->fields().data()));
  }
  e.rest.literal("}");
  return e;
}

const std::string& JsonLines::thread(const TraceRecord& record, i32 tid, const RingName& ring) {
  const i32 cpu = record.cpu_in(ring);
  Thread& t = threads_[(static_cast<u32>(tid) + record.source * 61) % threads_.size()];
  if (t.tid == tid && t.source == record.source && t.cpu == cpu && t.renamed == tasks_.renamed() && !t.text.empty())
    return t.text;
  t.tid = tid;
  t.source = record.source;
  t.cpu = cpu;
  t.renamed = tasks_.renamed();
  fmt::memory_buffer text;
  append_cpu(cpu, text);
  append_place(ring, text);
  if (tid == no_thread) {
    append(text, ",\"event\":");
    t.text.assign(text.data(), text.size());
    return t.text;
  }
  const Task* task = tasks_.find(tid, ring);
  const bool of_ring = ring.apart ? tid == 0 : task == nullptr && tid == ring.tid;
  const std::string name = of_ring ? ring.task : task != nullptr ? task->name : "";
  fmt::format_to(std::back_inserter(text), ",\"pid\":{},\"tid\":{},", tasks_.seen_process(tid, ring), tasks_.seen(tid, ring));
  if (const i32 parent = tasks_.parent(tid, ring); parent != 0)
    fmt::format_to(std::back_inserter(text), "\"parent\":{},", parent);
  if (task != nullptr && task->elsewhere.tid != 0)
    fmt::format_to(std::back_inserter(text), "\"ns_pid\":{},\"ns_tid\":{},\"pid_namespace\":{},", task->elsewhere.pid,
                   task->elsewhere.tid, task->elsewhere.pid_namespace);
  append(text, "\"task\":");
  append_json_text(name, text);
  append(text, ",\"event\":");
  t.text.assign(text.data(), text.size());
  return t.text;
}

void JsonLines::print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& buffer) {
  Appender out(buffer);
  append(out, "{\"ts\":");
  append_integer(static_cast<i64>(record.time), false, out);
  if (wall_) {
    append(out, ",\"wall\":\"");
    append(out, wall_text(wall_->of(record.time)));
    append(out, "\"");
  }
  if (record.lost != 0) {
    out.to_buffer([&](fmt::memory_buffer& to) {
      append_cpu(ring.its_cpu(), to);
      append_place(ring, to);
      fmt::format_to(std::back_inserter(to), ",\"lost\":{}}}\n", record.lost);
    });
    return;
  }
  const Common common = read_common(record.payload);
  const u32 number = record.number();
  const EventType* type = formats_.find(number);
  const Event& names = events_.at(number, formats_.version(), [&] { return describe(number, type); });
  append(out, thread(record, tells_no_thread(type) ? no_thread : thread_of(type, common), ring));
  append(out, names.name);
  if (type == nullptr || !type->parsed()) {
    append(out, "\"hex\":\"");
    out.to_buffer([&](auto& to) { append_hex(record.payload, " ", to); });
    append(out, "\"}}\n");
    return;
  }
  const Field* const fields = type->fields().data();
  names.rest.print(record.payload, out, [&](u32 n, Appender&) { append_value(record.payload, fields[n], out); });
  if (type->level() != nullptr) {
    fmt::memory_buffer text;
    formats_.print(*type, record.payload, text);
    const MessageParts parts = parts_of_message({text.data(), text.size()});
    if (!parts.place.empty()) {
      append(out, ",\"file\":");
      append_json_text(parts.file, out);
      append(out, ",\"line\":");
      append(out, parts.line);
    }
    append(out, ",\"message\":");
    append_json_text(parts.message, out);
  }
  const SyscallWords words = syscalls_.read(*type, record.payload);
  const Descriptors* const files = record.files != 0 ? formats_.files() : nullptr;
  const auto of_files = files != nullptr ? std::pair(files->file(record.files), files->text(record.files))
                                         : std::pair(std::string_view(), std::string_view());
  for (const auto& [key, word] : {std::pair(",\"syscall\":", words.call), std::pair(",\"error\":", words.error),
                                  std::pair(",\"file\":", of_files.first), std::pair(",\"files\":", of_files.second)}) {
    if (word.empty()) continue;
    append(out, key);
    append_json_text(word, out);
  }
  if (record.stack != 0 && formats_.stacks() != nullptr) {
    append(out, ",\"stack\":[");
    const std::vector<std::string>& calls = formats_.stacks()->functions(record.stack);
    u64 bytes = 0;
    for (const std::string& name : calls) bytes += name.size() + 3;
    if (formats_.stacks()->may_write(bytes)) {
      for (const std::string& name : calls) {
        if (&name != calls.data()) out.push_back(',');
        append_json_text(name, out);
      }
    } else {
      append_json_text(StackTexts::no_room, out);
    }
    out.push_back(']');
  }
  append(out, "}\n");
}

namespace {
class JsonExporter final : public LineExporter {
 public:
  JsonExporter(const Exported& of, Put put) : LineExporter(std::move(put)), lines_(of.formats, of.tasks) {
    lines_.show_wall(of.shown_wall());
  }

 private:
  void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) override {
    lines_.print(record, ring, out);
  }
  void print_missing(u64 time, const Account& account, fmt::memory_buffer& out) override {
    append_json_missing(time, account, out);
  }
  JsonLines lines_;
};
}  // namespace

std::unique_ptr<Exporter> json_exporter(const Exported& of, Exporter::Put put) {
  return std::make_unique<JsonExporter>(of, std::move(put));
}

}  // namespace ringside
