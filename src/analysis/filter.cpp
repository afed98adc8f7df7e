#include "analysis/filter.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <optional>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "decode/descriptors.hpp"
#include "decode/message.hpp"
#include "decode/syscalls.hpp"
#include "schema/glob.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// The field that a name means in an event; `syscall` is the number of the call, whatever its field is called.
const Field* field_of(const EventType& type, std::string_view name) {
  const Field* const field = type.field(name);
  if (field != nullptr || name != "syscall" || !type.of_syscalls) return field;
  const auto of_call = syscall_fields(type);
  return of_call ? of_call->number : nullptr;
}

constexpr i64 most_calls = 1024;

std::string no_such_call(std::string_view name, Architecture of) {
  if (of == Architecture::unknown)
    return "the trace does not say of which architecture its system calls are, so " + in_quotes(name) +
           " has no number; compare syscall with the number";
  std::vector<std::string> all;
  for (i64 number = 0; number < most_calls; ++number) {
    if (const std::string_view call = syscall_name(number, of); !call.empty()) all.emplace_back(call);
  }
  return "there is no system call " + in_quotes(name) + did_you_mean(nearest(name, all));
}

}  // namespace

// The character of a literal like 'a' or '\n'.
std::optional<char> Filter::character_in(const Value& value) {
  if (value.quote != '\'') return std::nullopt;
  if (value.text.size() == 1) return value.text[0];
  constexpr std::pair<std::string_view, char> escapes[] = {
      {"\\n", '\n'}, {"\\t", '\t'}, {"\\r", '\r'}, {"\\0", '\0'}, {"\\\\", '\\'}};
  for (const auto& [text, c] : escapes)
    if (text == value.text) return c;
  return std::nullopt;
}

std::string Filter::why_no_number(const Leaf& leaf, Op op, const Names* names) {
  const std::string& text = leaf.value.text;
  if (op == Op::time && text.starts_with('+'))
    return "ts is the time as report prints it; a time after the first event is a range: --time " +
           (leaf.compare == Compare::less || leaf.compare == Compare::less_equal ? ".." + text : text + "..");
  std::string known;
  if (names != nullptr) {
    for (const auto& [named, name] : *names) known += (known.empty() ? ", nor one of its names: " : ", ") + name;
  }
  return leaf.field + " is a number; " + in_quotes(text) + " is no number of 64 bits" + known;
}

Filter::Lowered Filter::lower_number(const Leaf& leaf, Step step, u32 bits, bool is_signed, const Names* names) {
  const Value& value = leaf.value;
  Lowered out;
  const auto refused = [&](std::string why) {
    out.kind = Lowered::Kind::refused;
    out.why = std::move(why);
    return out;
  };
  // System calls have paths in the memory of their program, which is gone.
  const bool path = leaf.field == "filename" || leaf.field == "pathname" || leaf.field == "oldname" || leaf.field == "newname";
  if (leaf.compare == Compare::glob)
    return refused("~ is for texts, and " + leaf.field + " is a number" +
                   (path ? ", the address of a path; record --libc io COMMAND has paths as texts, in libc:open" : ""));
  const __int128 one = 1;
  const __int128 min = is_signed ? -(one << (bits - 1)) : 0, max = is_signed ? (one << (bits - 1)) - 1 : (one << bits) - 1;
  const auto range = [&](__int128 low, __int128 high) {
    low = std::max(low, min);
    high = std::min(high, max);
    out.kind = Lowered::Kind::steps;
    if (low > high || (low == min && high == max)) {
      if (out.any_of.empty()) {
        out.kind = Lowered::Kind::constant;
        out.value = low <= high;
      }
      return;
    }
    step.low = static_cast<u64>(low);
    step.span = static_cast<u64>(high - low);
    out.any_of.push_back(step);
  };
  __int128 number = value.whole;
  const auto level = step.field != nullptr && step.field->is_level ? level_of(value.text) : std::nullopt;
  if (level) {  // these names have an order
    number = *level;
  } else if (value.number == Value::Number::none) {
    if (names != nullptr) {
      for (const auto& [named, name] : *names) {
        if (name != value.text) continue;
        if (leaf.compare != Compare::equal && leaf.compare != Compare::unequal)
          return refused("with a name " + leaf.field + " is compared by == and != only");
        // A value has the width of its field; a name's value has 64 bits.
        const __int128 n =
            is_signed ? static_cast<__int128>(named) : static_cast<__int128>(static_cast<u64>(named) & static_cast<u64>(max));
        range(n, n);
      }
      if (out.kind != Lowered::Kind::absent) {
        out.negated = leaf.compare == Compare::unequal;
        if (out.kind == Lowered::Kind::constant) out.value = out.value != out.negated;
        return out;
      }
    }
    const auto c = character_in(value);
    if (!c) return refused(why_no_number(leaf, step.op, names));
    number = is_signed ? i64{static_cast<signed char>(*c)} : i64{static_cast<u8>(*c)};
  }
  if (value.number == Value::Number::real)
    return refused(leaf.field + " is a whole number; " + in_quotes(value.text) + " is not, or has over 64 bits");
  if (value.is_time && step.op != Op::time && !leaf.field.ends_with("_ns"))
    return refused("a time is for ts and fields that end in _ns; " + leaf.field + " is a plain number");
  switch (leaf.compare) {
    case Compare::equal: range(number, number); break;
    case Compare::unequal:
      range(number, number);
      out.negated = true;
      break;
    case Compare::less: range(min, number - 1); break;
    case Compare::less_equal: range(min, number); break;
    case Compare::greater: range(number + 1, max); break;
    case Compare::greater_equal: range(number, max); break;
    default:
      step.mask = static_cast<u64>(number) & (bits == 64 ? ~u64{0} : (u64{1} << bits) - 1);
      step.low = 1;  // anything but 0
      step.span = ~u64{1};
      out.kind = Lowered::Kind::steps;
      out.any_of.push_back(step);
  }
  if (out.kind == Lowered::Kind::constant) out.value = out.value != out.negated;
  return out;
}

// The system calls whose names match; those whose numbers follow each other are one range.
Filter::Lowered Filter::lower_calls(const Leaf& leaf, Step step, Architecture of) {
  Lowered out;
  for (i64 number = 0; number < most_calls; ++number) {
    const std::string_view name = syscall_name(number, of);
    if (name.empty() || !glob_matches(leaf.value.text, name)) continue;
    if (!out.any_of.empty() && out.any_of.back().low + out.any_of.back().span + 1 == static_cast<u64>(number)) {
      ++out.any_of.back().span;
      continue;
    }
    step.low = static_cast<u64>(number);
    step.span = 0;
    out.any_of.push_back(step);
  }
  out.kind = out.any_of.empty() ? Lowered::Kind::refused : Lowered::Kind::steps;
  if (out.any_of.empty()) out.why = "no system call matches " + in_quotes(leaf.value.text);
  return out;
}

Filter::Lowered Filter::lower_text(const Leaf& leaf, Op op, const Field* field) {
  Lowered out;
  if (leaf.compare != Compare::equal && leaf.compare != Compare::unequal && leaf.compare != Compare::glob) {
    out.kind = Lowered::Kind::refused;
    out.why = leaf.field + " is a text, and texts are compared by ==, != and ~ only";
    return out;
  }
  Step step;
  step.op = op;
  step.field = field;
  out.kind = Lowered::Kind::steps;
  out.negated = leaf.compare == Compare::unequal;
  out.any_of.push_back(step);
  return out;
}

bool Filter::text_matches(const Leaf& leaf, std::string_view text) {
  return leaf.compare == Compare::glob ? glob_matches(leaf.value.text, text) : leaf.value.text == text;
}

// The names that every event has. Without a type: as in most types.
Filter::Lowered Filter::lower_builtin(const Leaf& leaf, const EventType* type) {
  const std::string& name = leaf.field;
  Step step;
  if (name == "ts") {
    step.op = Op::time;
    return lower_number(leaf, step, 64, false, nullptr);
  }
  if (name == "cpu" || name == "CPU") {  // -1: unknown
    step.op = Op::cpu;
    return lower_number(leaf, step, 32, true, nullptr);
  }
  if (name == "ring") {
    step.op = Op::ring;
    return lower_number(leaf, step, 32, false, nullptr);
  }
  if (name == "comm" || name == "COMM" || name == "task") return lower_text(leaf, Op::task, nullptr);
  if (name == "cgroup") return lower_text(leaf, Op::cgroup, nullptr);
  if (name == "file") return type == nullptr || type->of_syscalls ? lower_text(leaf, Op::files, nullptr) : Lowered{};
  if (name == "stack") return lower_text(leaf, Op::stack, nullptr);
  if (name == "source") return lower_text(leaf, Op::source, nullptr);
  if (name == "pid" || name == "tid" || name == "common_pid") {
    if (type != nullptr && type->parsed() && !type->has_tid()) return {};
    step.integer = IntegerAt(4, 4, true);
    if (name != "common_pid") step.op = Op::tid;
    return lower_number(leaf, step, 32, true, nullptr);
  }
  if (name == "event" || name == "system") {
    Lowered out = lower_text(leaf, Op::text, nullptr);
    if (out.kind == Lowered::Kind::refused) return out;
    if (type == nullptr) return {};
    const std::string& text = name == "system"                                 ? type->system
                              : leaf.value.text.find(':') != std::string::npos ? type->full
                                                                               : type->name;
    out.kind = Lowered::Kind::constant;
    out.value = text_matches(leaf, text) != out.negated;
    return out;
  }
  if (name == "common_type") {
    step.integer = IntegerAt(0, 2, false);
    return lower_number(leaf, step, 16, false, nullptr);
  }
  if (name == "common_flags" || name == "common_preempt_count") {
    step.integer = IntegerAt(name == "common_flags" ? 2 : 3, 1, false);
    return lower_number(leaf, step, 8, false, nullptr);
  }
  return {};
}

result<void> Filter::fits(const EventType& type) const {
  for (const Leaf& leaf : leaves_) {
    const Lowered l = lower(leaf, &type);
    if (l.kind == Lowered::Kind::absent) return refuse(std::errc::invalid_argument, type.full + " has no field " + leaf.field);
    if (l.kind == Lowered::Kind::refused) return refuse(std::errc::invalid_argument, l.why);
  }
  return {};
}

Filter::Lowered Filter::lower(const Leaf& leaf, const EventType* type) {
  if (leaf.field.empty()) {
    Lowered named;
    named.kind = Lowered::Kind::constant;
    named.value = type != nullptr && leaf.of(*type);
    return named;
  }
  if (type != nullptr && !leaf.of(*type)) return {};
  const Field* field = type != nullptr ? field_of(*type, leaf.field) : nullptr;
  if (field == nullptr || (field->is_stack && leaf.field == "stack")) return lower_builtin(leaf, type);
  Step step;
  step.field = field;
  Lowered out;
  out.kind = Lowered::Kind::refused;
  switch (field->kind) {
    case FieldKind::integer:
      step.integer = IntegerAt(field->offset, field->size, field->is_signed);
      if (leaf.field == "syscall" && leaf.value.number == Value::Number::none && type->field(leaf.field) == nullptr) {
        const Architecture of = type->world.architecture;
        if (leaf.compare == Compare::glob && of != Architecture::unknown) return lower_calls(leaf, step, of);
        const auto number = syscall_number(leaf.value.text, of);
        if (!number) {
          out.why = no_such_call(leaf.value.text, of);
          return out;
        }
        const Names name{{*number, leaf.value.text}};
        return lower_number(leaf, step, 8 * field->size, field->is_signed, &name);
      }
      if (field->is_char && leaf.value.number == Value::Number::none && leaf.value.text.size() == 1) {  // B, "B", 'B'
        const Names name{{leaf.value.text[0], leaf.value.text}};
        return lower_number(leaf, step, 8 * field->size, field->is_signed, &name);
      }
      return lower_number(leaf, step, 8 * field->size, field->is_signed, &field->symbols);
    case FieldKind::floating:
      if (leaf.value.number == Value::Number::none || leaf.compare == Compare::glob || leaf.compare == Compare::bits ||
          leaf.value.is_time) {
        out.why = leaf.field + " is a floating number: it is compared with numbers, by == != < <= > >=";
        return out;
      }
      step.op = Op::floating;
      out.kind = Lowered::Kind::steps;
      out.negated = leaf.compare == Compare::unequal;
      out.any_of.push_back(step);
      return out;
    case FieldKind::text:
    case FieldKind::loc_text:
      return lower_text(leaf, Op::text, field);
    default:
      out.why = leaf.field + " is an array of " + type->full + ", and arrays cannot be compared";
      return out;
  }
}

result<Filter> Filter::compile(std::string_view text, const Formats& formats, const Tasks& tasks) {
  Filter filter;
  filter.formats_ = &formats;
  filter.tasks_ = &tasks;
  RS_TRY(filter.parse(text));
  for (const Leaf& leaf : filter.leaves_) {
    if (leaf.field.empty()) {
      const auto& all = formats.all();
      if (std::any_of(all.begin(), all.end(), [&](const auto& type) { return leaf.of(*type); })) continue;
      return tl::unexpected<Error>(
          error_at(text, leaf.at, none_matches(leaf.events.begin()->text(), formats), std::errc::no_such_file_or_directory));
    }
    const bool builtin = is_builtin(leaf.field) && (leaf.field != "file" || formats.files() != nullptr);
    bool fits = false, known = builtin && leaf.events.empty(), any = leaf.events.empty();
    std::string why;
    std::vector<std::string> names;  // of the fields of events that are named
    const auto check = [&](const EventType* type) {
      const Lowered lowered = lower(leaf, type);
      if (lowered.kind != Lowered::Kind::refused)
        fits = true;
      else if (why.empty())
        why = lowered.why;
    };
    if (known) check(nullptr);
    const bool calls = leaf.field == "syscall" && leaf.value.number == Value::Number::none;
    for (const auto& type : formats.all()) {
      if (!leaf.of(*type)) continue;
      // Of one trace among several: its calls may be the one that is asked for.
      if (calls && type->world.architecture == Architecture::unknown && type->field(leaf.field) == nullptr &&
          field_of(*type, leaf.field) != nullptr)
        return tl::unexpected<Error>(error_at(text, leaf.value_at, no_such_call(leaf.value.text, Architecture::unknown)));
      if (fits) continue;
      any = true;
      if (!leaf.events.empty())
        for (const Field& f : type->fields()) names.push_back(f.name);
      if (field_of(*type, leaf.field) == nullptr && (!builtin || leaf.events.empty())) continue;
      known = true;
      check(type.get());
    }
    if (!known) {
      return tl::unexpected<Error>(error_at(
          text, leaf.at,
          !any ? none_matches(text.substr(leaf.at, text.find('/', leaf.at) - leaf.at), formats)
               : (leaf.events.empty() ? "no event here has a field "
                                      : in_quotes(text.substr(leaf.at, text.find('/', leaf.at) - leaf.at)) + " has no field ") +
                     in_quotes(leaf.field) +
                     (leaf.events.empty() ? near_names(leaf.field, formats) : did_you_mean(nearest(leaf.field, names))),
          std::errc::no_such_file_or_directory));
    }
    if (!fits) return tl::unexpected<Error>(error_at(text, leaf.value_at, why));
  }
  filter.text_ = text;
  return filter;
}

bool Filter::may_match(u32 id) {
  const Program& program = program_of(id);
  std::vector<bool> accepts(steps_.size());  // a step leads to earlier ones only
  const auto may = [&](i32 at) { return at == accept || (at >= 0 && accepts[static_cast<size_t>(at)]); };
  for (size_t i = 0; i < steps_.size(); ++i) accepts[i] = may(steps_[i].yes) || may(steps_[i].no);
  return may(program.entry);
}

std::vector<std::string> Filter::events_in(std::string_view text) {
  Filter filter;
  std::vector<std::string> events;
  if (!filter.parse(text)) return events;
  for (const Leaf& leaf : filter.leaves_) {
    for (const EventPattern& event : leaf.events) events.push_back(event.text());
  }
  return events;
}

bool Filter::kernel_may(const EventType& type) const {
  return std::all_of(leaves_.begin(), leaves_.end(), [&](const Leaf& leaf) {
    if (!leaf.events.empty()) return false;
    const Field* field = type.field(leaf.field);
    const Value& value = leaf.value;
    if (field == nullptr) {
      if (leaf.field == "comm" || leaf.field == "COMM") return value.quote != 0 && leaf.compare != Compare::glob;
      return (leaf.field == "common_pid" || leaf.field == "cpu" || leaf.field == "CPU") &&
             value.number == Value::Number::whole && !value.is_time && value.whole >= 0 && value.whole <= INT32_MAX;
    }
    if (field->kind == FieldKind::text || field->kind == FieldKind::loc_text)
      return value.quote != 0 && (leaf.compare != Compare::glob || field->kind == FieldKind::loc_text);
    // Only numbers that the field can hold: the kernel cuts others to its width.
    const u32 bits = 8 * field->size;
    if (field->kind != FieldKind::integer || value.number != Value::Number::whole || value.is_time || bits > 64) return false;
    const __int128 one = 1;
    return field->is_signed ? value.whole >= -(one << (bits - 1)) && value.whole < one << (bits - 1)
                            : value.whole >= 0 && value.whole < one << bits;
  });
}

void Filter::build(u32 id, Program& program) {
  if (built_for_ != version()) steps_.clear(), quick_steps_.clear();  // all programs are forgotten
  built_for_ = version();
  const size_t first = steps_.size();
  program.type = formats_->find(id);
  program.entry = emit(root_, program.type, accept, reject);
  program.built = true;
  program.reach = 1;
  for (size_t i = first; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const bool quick = program.reach != 0 && step.op == Op::integer && IntegerTest::can(step.integer, step.mask);
    program.reach = quick ? std::max(program.reach, step.integer.reach()) : 0;
    quick_steps_.push_back({{step.integer, step.mask, step.low, step.span}, step.yes, step.no});
  }
}

bool Filter::matches_any(const TraceRecord& record, const RingName& ring) {
  const Program& program = program_of(record.number());
  i32 at = program.entry;
  while (at >= 0) {
    const Step& step = steps_[static_cast<size_t>(at)];
    const bool met = step.op == Op::integer ? step.meets(static_cast<u64>(step.integer(record.payload)))
                                            : test(step, record, ring, program.type);
    at = met ? step.yes : step.no;
  }
  return at == accept;
}

// Back to front, so that a step's successors are known when it is made. Each comparison's steps appear once.
i32 Filter::emit(const Node& node, const EventType* type, i32 yes, i32 no) {
  if (node.negated) std::swap(yes, no);
  if (node.kind != Node::Kind::leaf) {
    i32 next = node.kind == Node::Kind::all ? yes : no;
    for (size_t i = node.children.size(); i-- != 0;)
      next = node.kind == Node::Kind::all ? emit(node.children[i], type, next, no) : emit(node.children[i], type, yes, next);
    return next;
  }
  Lowered lowered = lower(leaves_[node.leaf], type);
  if (lowered.kind == Lowered::Kind::constant) return lowered.value ? yes : no;
  if (lowered.kind != Lowered::Kind::steps) return no;
  if (lowered.negated) std::swap(yes, no);
  i32 next = no;
  for (Step& step : lowered.any_of) {
    step.leaf = node.leaf;
    if (step.op == Op::tid && !tasks_->any_elsewhere()) step.op = Op::integer;
    step.yes = yes;
    step.no = next;
    next = static_cast<i32>(steps_.size());
    steps_.push_back(step);
  }
  return next;
}

// The tests that need more than a number of the payload. A field outside the payload reads as 0 or as an empty text, as it is
// printed.
bool Filter::test(const Step& step, const TraceRecord& record, const RingName& ring, const EventType* type) const {
  const Leaf& leaf = leaves_[step.leaf];
  switch (step.op) {
    case Op::integer:
      break;  // matches() has tested it
    case Op::time:
      return step.meets(record.time);
    case Op::ring:
      return step.meets(ring.place());
    case Op::cpu:
      return step.meets(static_cast<u64>(i64{record.cpu_in(ring)}));
    case Op::tid:
      return step.meets(static_cast<u64>(i64{tasks_->seen(thread_of(type, read_common(record.payload)), ring)}));
    case Op::floating: {
      // A float is printed by the shortest decimal that gives it: 0.1 is the float next to it.
      const double real = leaf.value.real, value = read_floating(record.payload, *step.field);
      const bool rounded = step.field->size == 4 && std::abs(real) <= FLT_MAX;
      const double wanted = rounded ? static_cast<double>(static_cast<float>(real)) : real;
      switch (leaf.compare) {
        case Compare::less:
          return value < wanted;
        case Compare::less_equal:
          return value <= wanted;
        case Compare::greater:
          return value > wanted;
        case Compare::greater_equal:
          return value >= wanted;
        default:
          return value == wanted;
      }
    }
    case Op::text:
      return text_matches(leaf, read_text(record.payload, *step.field));
    case Op::task:
      return text_matches(leaf, tasks_->name(thread_of(type, read_common(record.payload)), ring));
    case Op::cgroup:
      return text_matches(leaf, tasks_->cgroup(thread_of(type, read_common(record.payload)), ring));
    case Op::files:
      return record.files != 0 && formats_->files() != nullptr && text_matches(leaf, formats_->files()->file(record.files));
    case Op::stack: {
      StackTexts* const stacks = formats_->stacks();
      if (stacks == nullptr || record.stack == 0) return false;
      if (leaf.frame < 0) return text_matches(leaf, stacks->text(record.stack));
      const auto& functions = stacks->functions(record.stack);
      return static_cast<size_t>(leaf.frame) < functions.size() &&
             text_matches(leaf, functions[static_cast<size_t>(leaf.frame)]);
    }
    case Op::source:
      return text_matches(leaf, ring.kernel ? "kernel" : "program") ||
             (!ring.buffer.empty() && text_matches(leaf, ring.buffer));
  }
  return false;
}

}  // namespace ringside
