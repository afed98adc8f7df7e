#include "analysis/column.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "decode/descriptors.hpp"
#include "decode/role.hpp"
#include "decode/syscalls.hpp"
#include "sys/json.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

Column::Unit unit_of(std::string_view name) {
  return counts_ns(name) ? Column::Unit::ns : counts_bytes(name) ? Column::Unit::bytes : Column::Unit::none;
}

std::string of_real(double value) { return fmt::format("{}", value == 0 ? 0 : value); }  // -0.0 is 0

// As a whole number of the same value is written, if there is one.
std::string as_whole(double value) {
  if (std::trunc(value) != value || value < -0x1p63 || value >= 0x1p64) return of_real(value);
  return value < 0 ? std::to_string(static_cast<i64>(value)) : std::to_string(static_cast<u64>(value));
}

template <class Number>
bool whole_number(std::string_view text, Number& out, int base = 10) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return code == std::errc() && end == text.data() + text.size();
}

// A value without a name, among names; as show_number() and `of_real` write it.
std::optional<long double> number_in(std::string_view text) {
  i64 with_sign = 0;
  u64 without = 0;
  double real = 0;
  if (whole_number(text, with_sign) && std::to_string(with_sign) == text) return with_sign;
  if (whole_number(text, without) && std::to_string(without) == text) return without;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (code == std::errc() && end == text.data() + text.size() && std::isfinite(real) && of_real(real) == text) return real;
  return std::nullopt;
}

// Numbers before names.
bool name_before(std::string_view a, std::string_view b) {
  const auto value = [](std::string_view text) -> std::optional<long double> {
    const bool negative = text.starts_with("-0x");
    u64 hex = 0;
    if (!negative && !text.starts_with("0x")) return number_in(text);
    if (!whole_number(text.substr(negative ? 3 : 2), hex, 16)) return std::nullopt;
    return negative ? -static_cast<long double>(hex) : static_cast<long double>(hex);
  };
  const auto x = value(a), y = value(b);
  if (x && y) return *x < *y;
  return x.has_value() != y.has_value() ? x.has_value() : a < b;
}

// The upper half of a 64-bit machine's addresses, but not small negative numbers.
bool is_kernel_address(u64 value) { return value >= 0xFFFF'8000'0000'0000 && value < 0xFFFF'FFFF'FF00'0000; }

// All events that have the field.
template <class Is>
bool each_is(const Column& column, const Formats& formats, const Is& is) {
  bool any = false;
  for (const auto& type : formats.all()) {
    if (!column.in(*type)) continue;
    const Field* const field = column.field_in(*type);
    if (field == nullptr || !is(*type, field->name)) return false;
    any = true;
  }
  return any;
}

}  // namespace

tl::unexpected<Error> Column::wrong(const std::string& why) const {
  return mistyped(std::errc::invalid_argument, in_quotes(text_) + ": " + why);
}

// How to read the column in one type of event; without a type: in most of them.
Column::Access Column::lower(const EventType* type, Kind& kind) const {
  Access access;
  access.type = type;
  access.op = Op::absent;
  if (type != nullptr && !event_.empty() && !matches(events_, *type)) return access;
  if (type == nullptr && !event_.empty()) return access;
  const Field* const own = type != nullptr ? field_of(*type) : nullptr;
  if (name_ == "stack" && (own == nullptr || own->is_stack)) {
    kind = frame_ < 0 ? Kind::whole : Kind::text;
    access.op = frame_ < 0 ? Op::stack : Op::frame;
    return access;
  }
  if (const Field* field = own; field != nullptr) {
    access.field = field;
    kind = Kind::whole;
    if (field->kind == FieldKind::integer && named_) {
      kind = Kind::text;
      access.op = shows_names() ? Op::thread : Op::named;
      access.integer = IntegerAt(field->offset, field->size, field->is_signed);
    } else if (field->kind == FieldKind::integer) {
      access.op = Op::integer;
      access.integer = IntegerAt(field->offset, field->size, field->is_signed);
    } else if (field->kind == FieldKind::floating) {
      kind = Kind::real;
      access.op = Op::real;
    } else if (field->kind == FieldKind::text || field->kind == FieldKind::loc_text) {
      kind = Kind::text;
      access.op = Op::text;
    }
    if (differs_) kind = Kind::text;
    return access;
  }
  kind = differs_ ? Kind::text : Kind::whole;
  if (name_ == "ts") access.op = Op::time;
  if (name_ == "cpu" || name_ == "CPU") access.op = Op::cpu;
  if (name_ == "ring") access.op = Op::ring;
  const bool number = name_ == "tid" || name_ == "pid" || name_ == "common_pid";
  if (number) access.op = name_ == "common_pid" ? Op::recorded : Op::tid;
  if (name_ == "thread" || (number && modifier_ == Modifier::execname)) access.op = Op::thread;
  if (name_ == "process") access.op = Op::process;
  if (named_ && (access.op == Op::thread || access.op == Op::process)) kind = Kind::text;
  if (name_ == "event" || name_ == "common_type") access.op = Op::event;
  if (access.op != Op::absent) return access;
  kind = Kind::text;
  if (name_ == "task" || name_ == "comm" || name_ == "COMM") access.op = Op::task;
  if (name_ == "cgroup") access.op = Op::cgroup;
  if (name_ == "source") access.op = Op::source;
  if (name_ == "file" && (type == nullptr || type->of_syscalls)) access.op = Op::files;
  if (name_ == "system" && type != nullptr) access.op = Op::system;
  return access;
}

bool Column::of_fields() const {
  const auto& types = formats_->all();
  return std::none_of(types.begin(), types.end(), [&](const auto& type) {
    Kind kind = kind_;
    const Access access = lower(type.get(), kind);
    return access.op != Op::absent && access.field == nullptr;
  });
}

void Column::find(u32 id, Access& access) {
  Kind kind = kind_;
  access = lower(formats_->find(id), kind);
  if (kind != kind_) access.op = Op::absent;
  if (access.op == Op::absent && access.field != nullptr) access.op = Op::misfit;
  if (access.op == Op::integer && access.field->is_signed != is_signed_ && (access.field->is_signed || access.field->size == 8))
    access.op = Op::other_sign;
  odd_ = odd_ || access.op == Op::misfit || access.op == Op::other_sign;
  access.event = id;
  if (access.op == Op::event && name_ == "event" && access.type != nullptr) {
    const auto same = [&](const auto& type) { return type->full == access.type->full; };
    access.event = (*std::find_if(formats_->all().begin(), formats_->all().end(), same))->id;
  }
  // An event that came after use_names(): no name is better than that of another event.
  if (access.op == Op::integer && access.field->symbols != symbols_) symbols_.clear();
}

// Of the events that have it as a number.
bool Column::names_differ() const {
  const auto& types = formats_->all();
  return std::any_of(types.begin(), types.end(), [&](const auto& type) {
    Kind kind = kind_;
    const Access access = lower(type.get(), kind);
    return access.op == Op::integer && access.field->symbols != symbols_;
  });
}

Column::FieldKinds Column::field_kinds() const {
  FieldKinds all;
  if (name_ == "stack" || of_tasks() || show_ != Show::plain) return all;
  for (const auto& type : formats_->all()) {
    Kind kind = kind_;
    const Access access = lower(type.get(), kind);
    if (access.op == Op::absent || access.field == nullptr) continue;
    all.any_text |= kind == Kind::text;
    all.any_real |= kind == Kind::real;
    all.any_whole |= kind == Kind::whole;
    if (access.op != Op::integer) continue;
    all.any_signed |= access.field->is_signed;
    all.any_unsigned |= !access.field->is_signed && access.field->size == 8;
  }
  return all;
}

bool Column::differs() const { return differs_ || field_kinds().differ(); }
bool Column::differs_from(const Column& other) const { return (field_kinds() | other.field_kinds()).differ(); }

// Of an event of the other sign: its other half of the numbers has the bits of this column's other half.
bool Column::fits(const Access& access, i64 value) const {
  const bool has_all_bits = modifier_ == Modifier::none || modifier_ == Modifier::hex || step_ == 1;
  return access.op != Op::other_sign || value >= 0 || !has_all_bits;
}

void Column::use_names() {
  if (differs()) return use_texts();
  if (kind_ != Kind::whole || (modifier_ != Modifier::none && !shows_names())) return;
  if (!of_tasks() && (show_ != Show::plain || !names_differ())) return;
  named_ = true;
  kind_ = Kind::text;
  plain_ = false;
  by_id_ = {};
}

void Column::use_texts() {
  if (modifier_ != Modifier::none && modifier_ != Modifier::hex) return;
  named_ = differs_ = true;
  kind_ = Kind::text;
  plain_ = false;
  by_id_ = {};
}

std::string_view Column::name_of(const Access& access, const TraceRecord& record) {
  const i64 value = read_integer(record.payload, *access.field);
  for (const auto& [number, name] : access.field->symbols)
    if (number == value) return name;
  if (modifier_ == Modifier::hex)
    number_ = value < 0 && access.field->is_signed ? fmt::format("-{:#x}", -static_cast<u64>(value))
                                                   : fmt::format("{:#x}", static_cast<u64>(value));
  else
    number_ = show_number(value, access.field->is_signed);
  return number_;
}

std::string Column::show_task(Tasks::Key key) const {
  const Task* const task = tasks_->find(key);
  return fmt::format("{}-{}",
                     task == nullptr         ? "<...>"
                     : show_ == Show::thread ? task->name
                                             : task->process,
                     tasks_->show(key));
}

// NAME-TID, and after a NUL what sets apart the threads that are shown alike: of two machines, or one after the other.
std::string_view Column::task_text(const Access& access, const TraceRecord& record, const RingName& ring) {
  i64 key = 0;
  if (access.field != nullptr)
    key = tasks_->key(static_cast<i32>(access.integer(record.payload)), ring);
  else
    (void)whole(access, record, ring, key);
  const Task* const task = tasks_->find(key);
  const std::string_view name = task == nullptr          ? std::string_view("<...>")
                                : show_ == Show::process ? std::string_view(task->process)
                                                         : std::string_view(task->name);
  const u32 life = task != nullptr ? task->life : 0;
  if (shown_.empty()) shown_.resize(256);
  Shown& shown = shown_[static_cast<u64>(key) % shown_.size()];
  if (shown.key != key || shown.life != life || shown.name != name || shown.text.empty())
    shown = {key, life, std::string(name),
             fmt::format("{}{}{} {}", shows_names() ? show_modified(static_cast<u64>(key)) : show_task(key), '\0', key, life)};
  return shown.text;
}

// [EVENT/]FIELD[.MODIFIER]; the modifier is returned.
result<std::string> Column::parse(std::string_view text) {
  text_ = text;
  if (const size_t slash = text.rfind('/'); slash != std::string_view::npos) {
    event_ = text.substr(0, slash);
    events_ = patterns_or_none(event_);
    text.remove_prefix(slash + 1);
  }
  std::string_view modifier;
  if (const size_t dot = text.find('.'); dot != std::string_view::npos) {
    modifier = text.substr(dot + 1);
    text = text.substr(0, dot);
  }
  if (text.starts_with("stack[") && text.ends_with("]")) {
    if (!whole_number(text.substr(6, text.size() - 7), frame_) || frame_ < 0)
      return wrong("expected stack[N]: 0 is the innermost function, 1 its caller");
    text = "stack";
  }
  if (text.empty()) return wrong("there is no name of a field in it; expected [EVENT/]FIELD[.MODIFIER]");
  name_ = text;
  return std::string(modifier);
}

const Field* Column::field_of(const EventType& type) const {
  if (is_which_event()) return nullptr;
  const Field* field = nullptr;
  for (std::string_view rest = name_; field == nullptr && !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    field = type.field(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (field != nullptr || name_ != "syscall" || !type.of_syscalls) return field;
  const auto of_call = syscall_fields(type);
  return of_call ? of_call->number : nullptr;
}

// None: not in every event that has it the number of a system call. Unknown, too, where several machines have it: a number may
// mean two calls.
std::optional<Architecture> Column::architecture_of_calls() const {
  std::optional<Architecture> one;
  for (const auto& type : formats_->all()) {
    const Field* const field = event_.empty() || matches(events_, *type) ? field_of(*type) : nullptr;
    if (field == nullptr) continue;
    const auto of_call = syscall_fields(*type);
    if (!of_call || of_call->number != field) return std::nullopt;
    one = !one || *one == type->world.architecture ? type->world.architecture : Architecture::unknown;
  }
  return one;
}

// The first field of that name that has a single value; else a column that every event has.
result<void> Column::bind() {
  bool any_event = event_.empty(), array = false;
  std::string fields;
  std::vector<std::string> names;
  const EventType* last = nullptr;
  for (const auto& type : formats_->all()) {
    if (!event_.empty() && !matches(events_, *type)) continue;
    any_event = true;
    last = type.get();
    if (!event_.empty()) {
      for (const Field& f : type->fields()) names.push_back(f.name);
    }
    const Field* const field = field_of(*type);
    if (field != nullptr && !(name_ == "stack" && field->is_stack)) {
      if (lower(type.get(), kind_).op != Op::absent) {
        is_signed_ = field_kinds().any_signed;
        symbols_ = field->symbols;
        if (const auto architecture = architecture_of_calls()) {
          show_ = Show::syscall;
          calls_of_ = *architecture;
        }
        return {};
      }
      array = true;
    } else if (!event_.empty() && fields.empty()) {
      for (const Field& f : type->fields()) fields += (fields.empty() ? "" : ", ") + f.name;
      fields = "; " + type->full + " has " + (fields.empty() ? "no fields" : fields);
    }
  }
  if (!any_event) return wrong(none_matches(event_, *formats_));
  if (array) return wrong(in_quotes(name_) + " is an array, and an array has no single value");
  if (const auto is = std::find_if(formats_->all().begin(), formats_->all().end(),
                                   [&](const auto& type) { return name_ == type->name || name_ == type->full; });
      event_.empty() && is != formats_->all().end() && !is_builtin(name_)) {
    std::vector<std::string> own;
    for (const Field& f : (*is)->fields()) own.push_back(f.name);
    return wrong(own.empty() ? "this is an event, and has no fields"
                             : "this is an event; name one of its fields, as in " + (*is)->full + "/" + own[0] + ": " +
                                   short_list(own));
  }
  if (!is_builtin(name_) && name_ != "thread" && name_ != "process")
    return wrong(event_.empty() ? "no event here has a field " + in_quotes(name_) + near_names(name_, *formats_)
                                : "there is no such field" + did_you_mean(nearest(name_, names)) + fields);
  if (lower(last, kind_).op == Op::absent && name_ != "system") return wrong(in_quotes(name_) + " is for filters only");
  if (name_ == "thread") show_ = Show::thread;
  if (name_ == "process") show_ = Show::process;
  if (name_ == "event") show_ = Show::event;
  if (name_ == "stack" && frame_ < 0) show_ = Show::stack;
  return {};
}

result<void> Column::take_modifier(const std::string& modifier) {
  if (kind_ != Kind::whole) return wrong("." + modifier + " is for whole numbers");
  symbols_.clear();
  show_ = Show::plain;
  if (modifier.starts_with("buckets=")) {
    if (!whole_number(std::string_view(modifier).substr(8), step_) || step_ < 1)
      return wrong("buckets= needs a whole number, 1 or more");
    modifier_ = Modifier::linear;
  } else if (modifier == "log2") {
    modifier_ = Modifier::log2;
  } else if (modifier == "hex") {
    modifier_ = Modifier::hex;
  } else if (modifier == "sym") {
    modifier_ = Modifier::sym;
  } else if (modifier == "execname") {
    modifier_ = Modifier::execname;
  } else if (modifier == "usecs" || modifier == "msecs") {
    if (unit_ != Unit::ns)
      return wrong("." + modifier + " is for ts, fields that end in _ns and those that their event prints in ns");
    modifier_ = Modifier::divide;
    step_ = modifier == "usecs" ? 1000 : 1000000;
    unit_ = Unit::none;
  } else {
    return wrong("there is no ." + modifier + "; there are log2, buckets=N, hex, sym, execname, usecs and msecs");
  }
  return {};
}

result<Column> Column::compile(std::string_view text, const Formats& formats, const Tasks& tasks) {
  Column c;
  c.formats_ = &formats;
  c.tasks_ = &tasks;
  const std::string modifier = RS_TRY(c.parse(text));
  RS_TRY(c.bind());
  c.unit_ = unit_of(c.name_);
  if (c.unit_ == Unit::none && c.kind_ == Kind::whole && each_is(c, formats, prints_ns)) c.unit_ = Unit::ns;
  c.narrow_address_ = c.kind_ == Kind::whole && each_is(c, formats, [](const EventType& type, std::string_view field) {
                        return type.world.word_size == 4 && prints_address(type, field);
                      });
  if (!modifier.empty()) RS_TRY(c.take_modifier(modifier));
  c.plain_ = c.kind_ == Kind::whole && c.modifier_ == Modifier::none;
  return c;
}

bool Column::real(const TraceRecord& record, const RingName& ring, double& out) {
  const Access& access = of(record);
  if (access.op == Op::real) {
    out = read_floating(record.payload, *access.field);
    return true;
  }
  i64 value = 0;
  if (!number(record, ring, value)) return false;
  out = is_signed(access) ? static_cast<double>(value) : static_cast<double>(static_cast<u64>(value));
  return true;
}

bool Column::has(const TraceRecord& record, const RingName& ring) {
  i64 whole = 0;
  double number = 0;
  std::string_view name;
  return kind_ == Kind::whole  ? this->number(record, ring, whole)
         : kind_ == Kind::real ? real(record, ring, number)
                               : text(record, ring, name);
}

bool Column::stack_number(const TraceRecord& record, i64& out) const {
  StackTexts* const stacks = formats_->stacks();
  if (stacks == nullptr || record.stack == 0) return false;
  out = stacks->same_names(record.stack);
  return true;
}

bool Column::text(const TraceRecord& record, const RingName& ring, std::string_view& out) {
  const Access& access = of(record);
  switch (access.op) {
    case Op::text:
      out = read_text(record.payload, *access.field);
      if (differs_) {  // a NUL keeps it apart from the number that is written alike
        (number_ = out) += '\0';
        out = number_;
      }
      return true;
    case Op::real:
      if (!differs_) return false;
      number_ = as_whole(read_floating(record.payload, *access.field));
      out = number_;
      return true;
    case Op::named:
      out = name_of(access, record);
      return true;
    case Op::thread:
    case Op::process:
      out = task_text(access, record, ring);
      return true;
    case Op::task:
      out = tasks_->name(thread_of(access.type, read_common(record.payload)), ring);
      return true;
    case Op::cgroup:
      out = tasks_->cgroup(thread_of(access.type, read_common(record.payload)), ring);
      return true;
    case Op::files:
      if (record.files == 0 || formats_->files() == nullptr) return false;
      out = formats_->files()->file(record.files);
      return !out.empty();
    case Op::source:
      out = !ring.buffer.empty() ? std::string_view(ring.buffer)
            : ring.kernel        ? std::string_view("kernel")
                                 : std::string_view("program");
      return true;
    case Op::system:
      out = access.type->system;
      return true;
    case Op::frame: {
      StackTexts* const stacks = formats_->stacks();
      if (stacks == nullptr || record.stack == 0) return false;
      const auto& functions = stacks->functions(record.stack);
      if (static_cast<size_t>(frame_) >= functions.size()) return false;
      out = functions[static_cast<size_t>(frame_)];
      return true;
    }
    default: {
      i64 value = 0;
      if (!differs_ || !whole(access, record, ring, value)) return false;
      number_ = std::to_string(value);
      out = number_;
      return true;
    }
  }
}

bool Column::other_key(const TraceRecord& record, const RingName& ring, Texts& texts, u64& out) {
  if (kind_ == Kind::real) {
    double value = 0;
    if (!real(record, ring, value)) return false;
    if (value == 0) value = 0;  // -0.0 is 0
    std::memcpy(&out, &value, sizeof out);
    return true;
  }
  std::string_view value;
  if (!text(record, ring, value)) return false;
  out = texts.number(value);
  return true;
}

i64 Column::modify(i64 value, bool is_signed) const {
  const auto floor_divide = [](i64 a, i64 b) { return a / b - (a % b < 0 ? 1 : 0); };
  switch (modifier_) {
    case Modifier::log2: {
      if (value < 0 && !is_signed) return 64;
      const u64 size = value < 0 ? ~static_cast<u64>(value) : static_cast<u64>(value);
      return value < 0 ? -1 - static_cast<i64>(std::bit_width(size)) : static_cast<i64>(std::bit_width(size));
    }
    case Modifier::linear:
    case Modifier::divide:
      return is_signed ? floor_divide(value, step_) : static_cast<i64>(static_cast<u64>(value) / static_cast<u64>(step_));
    default:
      return value;
  }
}

i64 Column::begin(i64 bucket) const {
  if (modifier_ == Modifier::linear) return static_cast<i64>(static_cast<u64>(bucket) * static_cast<u64>(step_));
  if (bucket > 0) return bucket == 1 ? 1 : static_cast<i64>(u64{1} << (bucket - 1));
  return bucket == 0 ? 0 : bucket <= -64 ? INT64_MIN : -(i64{1} << (-bucket - 1));
}

std::string Column::show_number(i64 value, bool is_signed) {
  return is_signed ? std::to_string(value) : std::to_string(static_cast<u64>(value));
}

std::string Column::show(u64 key, const Texts& texts) const {
  if (kind_ == Kind::text) return std::string(shown(texts.text(key)));
  if (kind_ == Kind::real) {
    double value = 0;
    std::memcpy(&value, &key, sizeof value);
    return of_real(value);
  }
  return modifier_ == Modifier::none || modifier_ == Modifier::divide ? show_plain(key) : show_modified(key);
}

std::string Column::show_modified(u64 key) const {
  const auto value = static_cast<i64>(key);
  switch (modifier_) {
    case Modifier::log2:
      if (value == 0 || value == -1) return value == 0 ? "0" : "-1";
      if (value > 0) return value >= 64 ? "[2^63, 2^64)" : fmt::format("[{}, {})", u64{1} << (value - 1), u64{1} << value);
      return value <= -64 ? "[-2^63, -2^62)" : fmt::format("[{}, {})", -(i64{1} << (-value - 1)), -(i64{1} << (-value - 2)));
    case Modifier::linear:
      return is_signed_
                 ? fmt::format("[{}, {})", static_cast<__int128>(value) * step_, (static_cast<__int128>(value) + 1) * step_)
                 : fmt::format("[{}, {})", static_cast<unsigned __int128>(key) * static_cast<u64>(step_),
                               (static_cast<unsigned __int128>(key) + 1) * static_cast<u64>(step_));
    case Modifier::sym:
      // With several machines nothing shows whose address it is.
      if (const auto* const symbol = formats_->several_machines() ? nullptr : formats_->symbols().find(key))
        return fmt::format("{}+{:#x}", symbol->name, key - symbol->address);
      return fmt::format("{:#x}", key);
    case Modifier::execname: {
      const Task* const task = tasks_->find(value);
      return task != nullptr ? task->name : fmt::format("<{}>", value);
    }
    default:
      return fmt::format("{:#x}", key);
  }
}

bool Column::is_address(u64 key) const {
  return !is_signed_ && modifier_ == Modifier::none && (narrow_address_ || is_kernel_address(key));
}

std::string Column::show_plain(u64 key) const {
  const auto value = static_cast<i64>(key);
  switch (show_) {
    case Show::thread:
    case Show::process:
      return show_task(value);
    case Show::event: {
      const EventType* type = formats_->find(static_cast<u32>(value));
      return type != nullptr ? type->full : fmt::format("unknown:{}", value & 0xFFFF);
    }
    case Show::stack: {
      constexpr size_t most = 100;
      std::string line;
      for (const std::string& name : formats_->stacks()->functions(static_cast<u32>(key))) {
        if (line.size() + name.size() > most && !line.empty()) return line + " < ...";
        line += (line.empty() ? "" : " < ") + name;
      }
      return line;
    }
    case Show::syscall:
      return syscall_shown(value, calls_of_);
    case Show::plain:
      break;
  }
  for (const auto& [number, symbol] : symbols_) {
    if (number == value) return symbol;
  }
  if (is_address(key)) return fmt::format("{:#x}", key);
  return show_number(value, is_signed_);
}

nlohmann::ordered_json Column::json(u64 key, const Texts& texts) const {
  const bool plain = kind_ == Kind::whole && show_ == Show::plain &&
                     (modifier_ == Modifier::none || modifier_ == Modifier::divide || buckets());
  const auto whole = static_cast<i64>(key);
  if (show_ == Show::stack) return formats_->stacks()->functions(static_cast<u32>(key));
  if (named_) return json(texts.text(key));
  const bool address = plain && is_address(key);
  const std::string text = plain && buckets() ? show_number(begin(whole), is_signed_ && whole <= 0)
                           : address          ? show_number(whole, is_signed_)
                                              : show(key, texts);
  const bool number = kind_ == Kind::real ? text.find_first_of("ni") == std::string::npos
                                          : plain && (buckets() || symbols_.empty() || text == show_number(whole, is_signed_));
  return number ? nlohmann::ordered_json::parse(text) : nlohmann::ordered_json(text);
}

nlohmann::ordered_json Column::json(std::string_view text) const {
  if (named_ && !of_tasks() && modifier_ == Modifier::none && number_in(text)) return nlohmann::ordered_json::parse(text);
  return shown(text);
}

bool Column::before(u64 a, u64 b, const Texts& texts) const {
  if (named_) return name_before(texts.text(a), texts.text(b));
  if (kind_ == Kind::text) return texts.text(a) < texts.text(b);
  if (kind_ == Kind::real) {
    double x = 0, y = 0;
    std::memcpy(&x, &a, sizeof x);
    std::memcpy(&y, &b, sizeof y);
    return x < y;
  }
  return is_signed_ ? static_cast<i64>(a) < static_cast<i64>(b) : a < b;
}

}  // namespace ringside
