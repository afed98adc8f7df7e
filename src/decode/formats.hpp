// The meaning of an event's bytes: the `format` text of an event is parsed at the first question about it; after that a field
// is an offset, a size and a kind, and the event's line is a short list of steps. A kernel has 700 events, a recording a few
// dozen of them.
//
//   Formats formats;
//   formats.add(id, "libc", "malloc", text);       // takes no time
//   const EventType* type = formats.find(id);
//   formats.print(*type, payload, out);            // "size=32 ptr=0x55..." by the event's own print fmt
//
// Tolerant: a format that cannot be parsed leaves an event without fields, whose payload prints as hex. Payloads are hostile:
// no read goes beyond their size.
#pragma once
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decode/append.hpp"
#include "decode/known_texts.hpp"
#include "decode/line_template.hpp"
#include "decode/stack_texts.hpp"
#include "decode/symbols.hpp"
#include "source/source.hpp"
#include "source/world.hpp"

namespace ringside {

struct FormatContext;

enum class FieldKind : u8 {
  integer,
  floating,   // float or double
  text,       // char name[N]: up to the first NUL
  loc_text,   // __data_loc char[]: {u16 offset, u16 length} in place, the bytes at that offset
  array,      // integers or floats, `element` bytes each
  loc_array,  // the same by a __data_loc
};

struct Field {
  std::string name;
  FieldKind kind = FieldKind::integer;
  u32 offset = 0, size = 0;
  u32 element = 0;  // arrays: bytes of one element
  std::vector<u32> strides{};  // arrays of arrays: elements of one array at each level, outermost first
  u8 turned = 0;               // bytes of the big-endian numbers that became little-endian here; 0: none was big-endian
  bool is_signed = false;
  bool is_float = false;  // arrays: of floats
  bool is_composed = false;  // its text is made of several: arrays of texts, messages
  bool is_char = false;   // one character
  bool is_bool = false;
  bool is_stack = false;  // of the C type ringside_stack: the id of a stack
  bool is_rest = false;   // an array to the event's end, whatever its format says: the kernel's stacks
  bool is_probed = false;  // a text that a probe read: one without bytes, even its NUL, could not be read
  bool is_level = false;  // of the C type ringside_level: how important a message is; `symbols` has the words
  bool relative = false;                             // __rel_loc: the offset counts from the field's end
  std::vector<std::pair<i64, std::string>> symbols;  // enums: value and name
  const FormatContext* messages = nullptr;           // of trace_printk: the text is that of the format at
  u32 message_at = 0;                                // this offset of the payload, with the field's arguments
  u8 message_word = 8;                               // bytes of a long in them
  bool message_big = false;                          // they are big-endian
};

// An instruction for a stack machine, which computes a value of a print fmt from fields. Values are those of C's types, in 64
// bits.
struct ValueOp {
  static constexpr size_t deepest = 64;  // values on its stack
  static constexpr i64 is_unsigned = 1, is_narrow = 2;
  enum class Op : u8 {
    constant,
    field,
    load,  // of a common field
    length,
    element,      // of an array: the top is its index, and becomes its value; 0 outside the array
    big_element,  // the same of a field whose numbers had another size when they were turned (Field::turned)
    cast,
    negate,
    invert,
    boolean_not,
    swap,        // the bytes
    bit_length,  // where the highest bit is
    ones,        // push, or change the top
    add,
    subtract,
    multiply,
    divide,
    remainder,
    shift_left,
    shift_right,  // replace the two topmost values by one
    bit_and,
    bit_or,
    bit_xor,
    both,
    either,
    equal,
    unequal,
    less,
    less_equal,
    greater,
    greater_equal,
    jump,
    jump_if_zero  // skip `value` instructions; the second takes the top
  };
  Op op = Op::constant;
  u32 field = 0;  // index in EventType::fields; load: the offset
  i64 value = 0;  // the constant; a jump's distance; of two: is_unsigned, and is_narrow for 32 bits; the bits of cast and swap;
                  // the bytes of elements and load. Negative: with a sign
};

// How a number or a text is printed: the flags, width and precision of a conversion.
struct PrintForm {
  static constexpr i32 largest = 255;  // of a width or precision
  u8 width = 0, base = 10;
  int16_t precision = -1;  // texts: the most bytes; numbers: the least digits; negative: none
  bool left = false, zeros = false, sharp = false, plus = false, blank = false, upper = false;

  bool is_plain() const { return width == 0 && precision < 0 && !sharp && !plus && !blank && !upper; }
};

// One step of an event's line.
struct PrintStep {
  enum class Kind : u8 {
    literal,
    decimal,  // plain
    hex,      // plain, or with zeros in front
    number,   // in any form
    pointer,
    error,        // %pe
    character,
    floating,
    text,
    constant,     // a text in a form
    kernel_text,  // a text of the kernel, by its address
    symbol,
    flags,
    list,
    bytes,
    memory,  // print_memory.hpp
    bitmap,
    bit_ranges,
    address,
    message,  // trace_printk's
    choice
  };
  Kind kind = Kind::literal;
  u8 width = 8;  // bytes that the conversion keeps (its length modifier); list: those of an element; bitmaps: those of a long
  bool is_signed = false;
  bool distance = false, returns = false;          // address: %pS, %pB
  PrintForm form;
  u32 field = 0;                                   // index in EventType::fields
  std::string text;  // the literal, the conversion for snprintf, the separator of flags, bytes, numbers, the form of memory
  std::vector<std::pair<i64, std::string>> names;  // symbol, flags
  std::shared_ptr<KnownTexts<6>> texts;            // of such values
  std::vector<ValueOp> code;                       // computes the value (bytes: their number); empty: the value is the field's
  std::vector<ValueOp> from;                       // text, list, bytes, memory: computes the first element; empty: 0
  u32 part = 0;                                    // the bytes from there on; 0: to the end
  std::vector<PrintStep> then, otherwise;          // choice: the value selects one
  std::vector<ValueOp> star_width, star_precision;  // compute what is *; memory: the first is the number of bytes
};

// What a format text says.
struct EventFormat {
  std::vector<Field> fields;     // without the common ones
  std::vector<PrintStep> steps;
  LineTemplate line;             // the same; other() is a step
  bool parsed = false;
  bool has_tid = false;          // it has a common_pid: a hypervisor's events have none
  bool by_fields = false;        // the print fmt cannot be understood: the steps print name=value
  const Field* stack = nullptr;  // the first field that is_stack
  const Field* level = nullptr;  // the same for is_level

  const Field* field(std::string_view wanted) const;
};

class EventType;

// A format of which a part could not be understood.
struct FailedFormat {
  const EventType* type = nullptr;
  std::string sentence;
};

// What the formats of one trace share.
struct FormatContext {
  Symbols symbols;
  std::unordered_map<u64, std::string> strings;  // by address
  u32 ticks_per_second = 0;                      // of the kernel; 0: unknown
  Architecture architecture = Architecture::unknown;
  std::vector<FailedFormat> failed;
};

class EventType {
 public:
  EventType(u32 number, std::string of_system, std::string named, std::string format, const World& recorder,
            FormatContext& context);

  const u32 id;  // a kernel event's: plus kernel_ids
  const std::string system, name, full;  // full: "system:name"
  const bool of_syscalls, of_ftrace;     // by the system's name
  const World world;                     // of its recorder

  // Thread-safe.
  const EventFormat& format() const {
    if (!known_.load(std::memory_order_acquire)) [[unlikely]] parse();  // pairs with the store in parse()
    return format_;
  }
  bool parsed() const { return format().parsed; }
  bool has_tid() const { return format().has_tid; }
  const std::vector<Field>& fields() const { return format().fields; }
  const Field* field(std::string_view wanted) const { return format().field(wanted); }
  const FormatContext& context() const { return context_; }
  // Costs nothing for events whose text names no such type: the kernel's.
  const Field* stack() const { return names_a_stack_ ? format().stack : nullptr; }
  const Field* level() const { return names_a_level_ ? format().level : nullptr; }

 private:
  void parse() const;

  FormatContext& context_;  // of its machine
  const bool names_a_stack_, names_a_level_;
  mutable std::string text_;  // until it is parsed
  mutable EventFormat format_;
  mutable std::atomic<bool> known_{false};
};

class Descriptors;

class Formats {
 public:
  // Ids of programs, then those of the kernel, then those of each external writer.
  static constexpr u32 most_ids = apart_ids + (u32{most_apart} << 16);
  // Sources that number their events independently get separate ranges: the first source's numbers begin at 0, each further
  // one's at a result of more_ids(). All numbers are below numbers().
  u32 more_ids() { return std::exchange(numbers_, numbers_ + most_ids); }
  u32 numbers() const { return numbers_; }

  // Replaces an event of the same id. Ids from numbers() on are left out.
  void add(u32 id, std::string system, std::string name, std::string format, const World& world = {});
  const EventType* find(u32 id) const {
    const u32 of = id >> 16;
    return of < by_id_.size() && by_id_[of] != nullptr ? by_id_[of][id & 0xFFFF] : nullptr;
  }
  const std::vector<std::unique_ptr<EventType>>& all() const { return types_; }
  // Changes whenever find() may return something else than before: for caches of its results. Never 0.
  u64 version() const { return version_; }
  // Events that somebody asked about, and whose format could not be understood. Each of them comes once.
  std::vector<FailedFormat> take_failed();
  // Texts that events point to, as tracefs lists them in printk_formats: `0xaddress : "text"` a line. Before the first question
  // about an event.
  void add_strings(const std::string& printk_formats, u32 ids = 0);
  // Addresses of the events from `ids` on are of the same machine as those from `machine` on (Tasks::are_of).
  void are_of(u32 ids, u32 machine) {
    if (machine != 0) machines_[ids / most_ids] = machine;
    if (machine == ids && ids != 0 && contexts_.count(ids) == 0) contexts_[ids] = std::make_unique<FormatContext>();
  }
  bool several_machines() const { return !contexts_.empty(); }
  // The kernel's HZ, for jiffies_to_msecs(). Before the first question about an event.
  void use_ticks(u32 per_second) { context_->ticks_per_second = per_second; }  // of the first machine's
  // Names for the kernel's addresses (%pS), from now on.
  Symbols& symbols(u32 ids = 0) { return context(ids).symbols; }
  const Symbols& symbols(u32 ids = 0) const { return context(ids).symbols; }
  // The texts of stacks; null: nothing reads stacks here. They must outlive it.
  StackTexts* stacks() const { return stacks_; }
  void use_stacks(StackTexts* stacks) { stacks_ = stacks; }
  // The files of system calls; null: nothing knows them here. They must outlive it.
  const Descriptors* files() const { return files_; }
  void use_files(const Descriptors* files) { files_ = files; }

  void print(const EventType& type, Bytes payload, fmt::memory_buffer& out) const;

 private:
  u32 numbers_ = most_ids;
  u64 version_ = 1;
  std::vector<std::unique_ptr<const EventType*[]>> by_id_;  // for each 65,536 ids; null: none of them is known
  std::vector<std::unique_ptr<EventType>> types_;
  FormatContext& context(u32 id) const {
    const auto at = machines_.find(id / most_ids);
    return at == machines_.end() ? *context_ : *contexts_.at(at->second);
  }
  std::unique_ptr<FormatContext> context_ = std::make_unique<FormatContext>();  // its address is in the events
  std::unordered_map<u32, u32> machines_;                                       // other ones than the first, by ids / most_ids
  std::map<u32, std::unique_ptr<FormatContext>> contexts_;                      // theirs
  StackTexts* stacks_ = nullptr;
  const Descriptors* files_ = nullptr;
};

// The event's id (as in the payload) and thread, from the common fields before it. Payloads too short yield 0.
struct Common {
  u16 id = 0;
  i32 tid = 0;  // valid if the event's type has_tid
};
inline Common read_common(Bytes payload) {  // inline: several times for each event
  Common common;
  if (payload.size >= 4) __builtin_memcpy(&common.id, payload.data, sizeof common.id);
  if (payload.size >= 8) __builtin_memcpy(&common.tid, payload.data + 4, sizeof common.tid);
  return common;
}
// Does the event name no thread, as those of a hypervisor?
inline constexpr i32 no_thread = -0x7FFFFFFF - 1;  // no thread has this number
inline bool tells_no_thread(const EventType* type) { return type != nullptr && type->parsed() && !type->has_tid(); }
// 0: the event has no thread.
inline i32 thread_of(const EventType* type, const Common& common) {
  return type == nullptr || type->has_tid() || !type->parsed() ? common.tid : 0;
}

// Fields by value. A field outside the payload reads as 0 or as an empty text.
i64 read_integer(Bytes payload, const Field& field);
constexpr std::string_view fault = "(fault)";  // the text of a probe that the kernel could not read, as in its own lines
double read_floating(Bytes payload, const Field& field);
// Several texts: with commas between them. A composed text is there until the next four are read in this thread.
std::string_view read_text(Bytes payload, const Field& field);
Bytes read_row(Bytes payload, const Field& field, size_t index);  // one text of several, with its padding; null data: the end
inline std::string_view text_of(Bytes bytes) {                    // up to the first NUL
  const auto* s = reinterpret_cast<const char*>(bytes.data);
  return {s, bytes.size == 0 ? 0 : strnlen(s, bytes.size)};
}
Bytes read_bytes(Bytes payload, const Field& field);    // those of an array or text that are there
Bytes read_array(Bytes payload, const Field& field);    // its bytes, a multiple of `element`
double read_number(Bytes payload, const Field& field);  // integer or floating, for statistics

// One element of an array.
i64 element_integer(const u8* at, u32 size, bool is_signed);
double element_floating(const u8* at, u32 size);

}  // namespace ringside
