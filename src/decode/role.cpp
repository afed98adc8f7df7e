#include "decode/role.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ringside {
namespace {

bool is_integer(const Field* f) { return f != nullptr && f->kind == FieldKind::integer; }
bool is_text(const Field* f) { return f != nullptr && (f->kind == FieldKind::text || f->kind == FieldKind::loc_text); }

// The field alone, or after a cast.
bool shows(const EventFormat& format, const PrintStep& step, std::string_view field) {
  const auto& code = step.code;
  const bool plain =
      code.empty() || (code[0].op == ValueOp::Op::field &&
                       std::all_of(code.begin() + 1, code.end(), [](const ValueOp& op) { return op.op == ValueOp::Op::cast; }));
  const u32 at = code.empty() ? step.field : code[0].field;
  return plain && at < format.fields.size() && format.fields[at].name == field;
}

}  // namespace

bool prints_ns(const EventType& type, std::string_view field) {
  const EventFormat& format = type.format();
  for (size_t i = 0; i + 1 < format.steps.size(); ++i) {
    const PrintStep &number = format.steps[i], &behind = format.steps[i + 1];
    if (number.kind == PrintStep::Kind::decimal && behind.kind == PrintStep::Kind::literal &&
        behind.text.starts_with(" [ns]") && shows(format, number, field))
      return true;
  }
  return false;
}

bool prints_address(const EventType& type, std::string_view field) {
  const EventFormat& format = type.format();
  return std::any_of(format.steps.begin(), format.steps.end(), [&](const PrintStep& step) {
    return (step.kind == PrintStep::Kind::pointer || step.kind == PrintStep::Kind::address) && shows(format, step, field);
  });
}

bool counts_ns(std::string_view field) { return field.ends_with("_ns") || field == "ts"; }

bool counts_bytes(std::string_view field) {
  return field == "size" || field == "bytes" || field.ends_with("_bytes") || field.ends_with("bytes_req") ||
         field.ends_with("bytes_alloc");
}

EventRole role_of(const EventType& type) {
  EventRole r;
  const Field* const flow = type.field("flow_id");
  r.flow = is_integer(flow) ? flow : nullptr;
  for (const Field& f : type.fields()) {
    if (r.weight == nullptr && is_integer(&f) && counts_bytes(f.name)) r.weight = &f;
  }
  const Field* const track = type.field("track_name");
  r.track = is_text(track) ? track : nullptr;
  r.value = type.field("track_event_type");
  r.name = type.field("slice_name");
  if (is_integer(r.value) && is_text(r.name)) {
    r.role = Role::span;
    const Field* const async = type.field("async_id");
    r.async = is_integer(async) ? async : nullptr;
    return r;
  }
  r.value = type.field("counter_value");
  if (is_integer(r.value) || (r.value != nullptr && r.value->kind == FieldKind::floating)) {
    const Field* const process = type.field("scope_tgid");
    r.process = is_integer(process) ? process : nullptr;
    r.role = Role::counter;
    return r;
  }
  r.value = r.name = r.track = nullptr;
  if (type.full == "ftrace:funcgraph_entry" || type.full == "ftrace:funcgraph_exit") {
    r.value = type.field("func");
    r.begins = type.name == "funcgraph_entry";
    if (is_integer(r.value)) r.role = Role::call;
    return r;
  }
  for (const Field& f : type.fields()) {
    if (!is_integer(&f) || f.name.size() < 4 || f.name.compare(f.name.size() - 3, 3, "_ns") != 0) continue;
    r.role = Role::duration;
    r.value = r.weight = &f;
    break;
  }
  return r;
}

std::string function_of(const EventRole& role, u32 id, Bytes payload, const Formats& formats) {
  const auto address = static_cast<u64>(read_integer(payload, *role.value));
  const Symbols::Symbol* const symbol = formats.symbols(id).find_first(address);
  return symbol != nullptr ? std::string(symbol->name) : fmt::format("{:#x}", address);
}

}  // namespace ringside
