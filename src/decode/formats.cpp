#include "decode/formats.hpp"

#include <event-parse.h>
#include <trace-seq.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <sstream>

#include "decode/compile_steps.hpp"
#include "decode/operators.hpp"
#include "decode/print_steps.hpp"

namespace ringside {
namespace {

std::mutex parsing;                       // libtraceevent's parser has global state
constexpr size_t longest_format = 65536;  // several times the kernel's longest
constexpr u32 largest_offset = 65536;     // a payload fits a sub-buffer of at most 256 KiB, its located data 16 bits

// The size of one element by the type's name, where libtraceevent does not give it.
u32 element_size(std::string_view type, u32 word_size) {
  const auto has = [&](std::string_view word) { return type.find(word) != std::string_view::npos; };
  if (has("64") || has("long long") || has("double")) return 8;
  if (has("long")) return word_size;
  if (has("32") || has("int") || has("float")) return 4;
  if (has("16") || has("short")) return 2;
  return 1;
}

// libtraceevent also calls arrays of u8 texts; here only arrays of plain char are texts.
bool is_char(std::string_view type) {
  return type.find("char") != std::string_view::npos && type.find("unsigned") == std::string_view::npos &&
         type.find("signed") == std::string_view::npos;
}

bool read_field(const tep_format_field& from, u32 word_size, Field& to) {
  if (from.offset < 0 || from.size < 0 || from.name == nullptr || from.type == nullptr) return false;
  if (static_cast<u32>(from.offset) > largest_offset || static_cast<u32>(from.size) > largest_offset) return false;
  const std::string_view type = from.type;
  const bool dynamic = (from.flags & TEP_FIELD_IS_DYNAMIC) != 0;
  const bool array = dynamic || (from.flags & TEP_FIELD_IS_ARRAY) != 0;
  to.name = from.name;
  to.offset = static_cast<u32>(from.offset);
  to.size = static_cast<u32>(from.size);
  to.is_signed = (from.flags & TEP_FIELD_IS_SIGNED) != 0;
  to.relative = (from.flags & TEP_FIELD_IS_RELATIVE) != 0;
  to.is_float = type.find("float") != std::string_view::npos || type.find("double") != std::string_view::npos;
  to.is_char = !array && to.size == 1 && is_char(type);
  to.is_stack = !array && to.size == 8 && type == "ringside_stack";
  to.is_bool = !array && to.size == 1 && type.find("bool") != std::string_view::npos;
  to.element = from.elementsize;
  if (dynamic || to.element == 0 || to.element > 8) to.element = element_size(type, word_size);
  if (array && is_char(type))
    to.kind = dynamic ? FieldKind::loc_text : FieldKind::text;
  else if (array)
    to.kind = dynamic ? FieldKind::loc_array : FieldKind::array;
  else if (to.is_float && (to.size == 4 || to.size == 8))
    to.kind = FieldKind::floating;
  else if (to.size != 1 && to.size != 2 && to.size != 4 && to.size != 8)
    to.kind = FieldKind::array, to.element = 1;  // a struct: its bytes
  return true;
}

bool all_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || static_cast<u8>(c) >= 0x20; });
}

u32 word_size_of(const World& world) { return world.word_size == 4 ? 4 : 8; }

// Files of big-endian machines are turned as they are read, but for the arguments of trace_printk.
tep_handle* new_handle(const World& world) {
  tep_set_loglevel(TEP_LOG_NONE);  // `parsed` reports the errors that it would print on stderr
  tep_handle* tep = tep_alloc();
  if (tep == nullptr) return nullptr;
  tep_set_long_size(tep, static_cast<int>(word_size_of(world)));
  tep_set_page_size(tep, page_size);
  tep_set_file_bigendian(tep, world.big_endian ? TEP_BIG_ENDIAN : TEP_LITTLE_ENDIAN);
  tep_set_local_bigendian(tep, TEP_LITTLE_ENDIAN);
  return tep;
}

// libtraceevent keeps this pointer only while it prints.
char* resolve(void* symbols, unsigned long long* address, char** module) {
  const Symbols::Symbol* symbol = static_cast<const Symbols*>(symbols)->find(*address);
  if (symbol == nullptr) return nullptr;
  static thread_local std::string name, of;
  name = symbol->name;
  of = symbol->module;
  *address = symbol->address;
  *module = of.empty() ? nullptr : of.data();
  return name.data();
}

// trace_printk's events name their print fmt by its address, and hold the arguments in binary. libtraceevent prints these. It
// trusts widths and precisions, and takes %ls for a pointer.
bool prints_in_bounds(const std::string& format) {
  bool in_conversion = false, modified = false;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] == '*') return false;
    if (format[at] == '%') {
      in_conversion = !in_conversion;
      modified = false;
    } else if (std::string_view("lLhzZjt").find(format[at]) != std::string_view::npos) {
      modified = true;
    } else if (std::string_view("-+ #0123456789.").find(format[at]) == std::string_view::npos) {
      if (in_conversion && modified && format[at] == 's') return false;
      in_conversion = false;
    }
    if (std::isdigit(static_cast<unsigned char>(format[at])) == 0) continue;
    const size_t end = std::min(format.find_first_not_of("0123456789", at), format.size());
    if (end - at > 3) return false;
    at = end - 1;
  }
  return true;
}

bool is_trace_printk(const tep_event& event, const World& world, const EventFormat& format) {
  if ((event.flags & TEP_EVENT_FL_ISBPRINT) == 0 || (event.flags & TEP_EVENT_FL_FAILED) != 0) return false;
  Field ignored;
  for (const tep_format_field* f = event.format.fields; f != nullptr; f = f->next)
    if (!read_field(*f, word_size_of(world), ignored)) return false;  // libtraceevent would take it all the same
  const tep_format_field* const type = event.format.common_fields;
  return type != nullptr && std::strcmp(type->name, "common_type") == 0 && type->offset == 0 && type->size == 2 &&
         format.field("ip") != nullptr && format.field("fmt") != nullptr && format.field("buf") != nullptr;
}

// libtraceevent's parser calls itself at each operator. A kernel's largest format has a thousand. Quoted ones count: nothing
// depends on the end of a quotation then.
bool nests_deeply(std::string_view text) {
  constexpr i64 most = 10'000;
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return std::string_view("([!~?:+-*/%<>=|&^").find(c) != std::string_view::npos; }) > most;
}

// Whether each event would show far more than it holds: thousands of fields have the same bytes of a payload, or long names.
bool shows_too_much(const tep_event& event) {
  constexpr u32 most_located = 64;
  constexpr u64 most_of_names = 8192;
  constexpr u64 most_bytes = 4 * largest_offset;
  u32 located = 0;
  u64 bytes = 0, names = 0;
  for (const tep_format_field* f = event.format.fields; f != nullptr; f = f->next) {
    names += f->name != nullptr ? std::strlen(f->name) : 0;
    located += (f->flags & TEP_FIELD_IS_DYNAMIC) != 0 ? 1 : 0;
    bytes += f->size > 0 ? static_cast<u64>(f->size) : 0;
  }
  return located > most_located || bytes > most_bytes || names > most_of_names;
}

// A handle of its own for each event: libtraceevent never forgets an event, and ids may be given anew.
void read_format(u32 id, const std::string& system, const std::string& text, const World& world, FormatContext& context,
                 EventFormat& to) {
  std::unique_ptr<tep_handle, TepFree> tep(new_handle(world));
  if (tep == nullptr || text.empty() || text.size() > longest_format || !all_printable(text) || nests_deeply(text)) return;
  const auto [parsed, understood] = with_parentheses(text);
  if (parsed.empty()) return;
  if (tep_parse_event(tep.get(), parsed.data(), static_cast<unsigned long>(parsed.size()), system.c_str()) != 0) return;
  tep_event* event = tep_get_first_event(tep.get());
  if (event == nullptr) return;
  if (shows_too_much(*event)) return;
  to.parsed = true;
  for (const tep_format_field* f = event->format.common_fields; f != nullptr; f = f->next)
    to.has_tid = to.has_tid || (std::strcmp(f->name, "common_pid") == 0 && f->offset == 4 && f->size == 4);
  for (const tep_format_field* f = event->format.fields; f != nullptr; f = f->next) {
    Field field;
    if (read_field(*f, word_size_of(world), field)) to.fields.push_back(std::move(field));
  }
  for (const Field& field : to.fields) {
    if (field.is_stack && to.stack == nullptr) to.stack = &field;
  }
  const bool by_tep = is_trace_printk(*event, world, to) && event->id == static_cast<int>(id & 0xFFFF);
  if (!by_tep) {
    if (!understood || !compile_steps(*event, to)) default_steps(to);
    return;
  }
  for (const auto& [address, string] : context.strings)
    if (string.size() >= 3 && prints_in_bounds(string))  // shorter: it reads before them
      tep_register_print_string(tep.get(), string.c_str(), address);
  tep_set_function_resolver(tep.get(), resolve, &context.symbols);
  to.tep = std::move(tep);
}

// libtraceevent trusts the payload to be as long as the format says, and located data to lie inside. So it gets a copy,
// followed by as many zeros as the largest offset plus the largest length can reach.
void print_by_tep(const EventFormat& format, const World& world, Bytes payload, fmt::memory_buffer& out) {
  static thread_local std::vector<u8> room(size_t{256} * 1024 + 4 * largest_offset);
  static thread_local size_t used = 0;
  const size_t size = std::min<size_t>(payload.size, size_t{256} * 1024);
  if (size != 0) std::memcpy(room.data(), payload.data, size);
  if (used > size) std::memset(room.data() + size, 0, used - size);
  used = size;
  if (world.big_endian) {  // as the file has it: the arguments were never turned
    std::reverse(room.data(), room.data() + 2);
    for (const Field& field : format.fields)
      if (field.kind == FieldKind::integer && field.offset + field.size <= room.size())
        std::reverse(room.data() + field.offset, room.data() + field.offset + field.size);
  }
  tep_record record{};
  record.size = static_cast<int>(size);
  record.data = room.data();
  trace_seq seq;
  trace_seq_init(&seq);
  tep_print_event(format.tep.get(), &seq, &record, "%s", TEP_PRINT_INFO);
  trace_seq_terminate(&seq);
  if (seq.buffer != nullptr) {
    for (const char* s = seq.buffer; *s != 0; ++s) out.push_back(static_cast<u8>(*s) < 0x20 ? ' ' : *s);
  }
  trace_seq_destroy(&seq);
}

}  // namespace

void TepFree::operator()(tep_handle* tep) const { tep_free(tep); }

const Field* EventFormat::field(std::string_view wanted) const {
  for (const Field& f : fields) {
    if (f.name == wanted) return &f;
  }
  return nullptr;
}

EventType::EventType(u32 number, std::string of_system, std::string named, std::string format, const World& recorder,
                     FormatContext& context)
    : id(number),
      system(std::move(of_system)),
      name(std::move(named)),
      full(system + ":" + name),
      of_syscalls(system == "syscalls" || system == "raw_syscalls"),
      of_ftrace(system == "ftrace"),
      world(recorder),
      context_(context),
      names_a_stack_(format.find("ringside_stack") != format.npos),
      text_(std::move(format)) {}

void EventType::parse() const {
  const std::lock_guard alone(parsing);
  if (known_.load(std::memory_order_relaxed)) return;
  EventFormat format;
  read_format(id, system, text_, world, context_, format);
  if (!format.parsed) context_.failed.push_back(this);
  format_ = std::move(format);
  text_ = std::string();
  known_.store(true, std::memory_order_release);  // pairs with the load in format()
}

void Formats::add(u32 id, std::string system, std::string name, std::string format, const World& world) {
  if (id >= numbers_) return;
  ++version_;
  if (id >= by_id_.size()) by_id_.resize(id + 1);
  types_.push_back(std::make_unique<EventType>(id, std::move(system), std::move(name), std::move(format), world, *context_));
  by_id_[id] = types_.back().get();
}

void Formats::add_strings(const std::string& printk_formats) {
  std::istringstream lines(printk_formats);
  for (std::string line; std::getline(lines, line);) {
    char* end = nullptr;
    const u64 address = std::strtoull(line.c_str(), &end, 16);
    const size_t begin = line.find('"'), last = line.rfind('"');
    if (address != 0 && begin < last) context_->strings.emplace(address, line.substr(begin + 1, last - begin - 1));
  }
}

std::vector<const EventType*> Formats::take_failed() {
  const std::lock_guard alone(parsing);
  return std::exchange(context_->failed, {});
}

void Formats::print(const EventType& type, Bytes payload, fmt::memory_buffer& out) const {
  const EventFormat& format = type.format();
  if (format.tep != nullptr) {
    print_by_tep(format, type.world, payload, out);
  } else if (!format.parsed) {
    const size_t common = std::min<size_t>(payload.size, 8);
    append_hex({payload.data + common, payload.size - common}, " ", out);
  } else {
    run_steps(format, payload, *context_, out);
  }
}

}  // namespace ringside
