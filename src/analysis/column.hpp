// A named value of records: tables group by it, sums add it up, pairs match a start with an end by it. Compiled once; reading
// it is a load at a known offset.
//
//   auto size = Column::compile("libc:malloc/size.log2", formats, tasks);
//   i64 value;
//   if (size->number(record, ring, value)) ...
//
//   text = [ EVENT "/" ] NAME { "." MODIFIER }
//
// EVENT is a glob over SYSTEM:EVENT or the event's name: records of other events have no such value. NAME is a field of the
// event, several with | between them (the first that the event has counts), else one of
//   stack, stack[N] · ts · cpu, CPU · ring · event, system · source · task, comm, COMM · thread, tid, pid, common_pid · process
//   · cgroup · file · common_type
// stack is the event's stack by its functions, stack[0] the innermost one, stack[1] its caller; events without one have no
// value. cpu is absent where it is unknown: rings of threads without sched events. ring is N of per_cpu/cpuN. syscall: a call
// by its name; file: the file of a call, where a recording has files. tid and pid are the thread's number as the reader sees
// it, common_pid is the recorded one: in other PID namespaces they differ. As in filters and in the kernel's histograms, a
// field comes first; but "event" alone always names the event, though sys_enter_epoll_ctl has a field of that name. MODIFIER:
//   log2         whole numbers by their power of two        buckets=N    by multiples of N
//   hex          shown in hex                               sym          shown as the kernel's function at that address
//   execname     the name of the thread with this number    usecs, msecs times, divided
//
// A column has one kind: the kind of its field in the first event that has it. An event whose field of that name has another
// kind, or is an array, has no value: is_misfit(). A key takes all kinds (use_names()). Numbers have the sign of their own
// event. Thread-safety: none; a Column caches how to read each event.
#pragma once
#include <cstring>
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "decode/id_table.hpp"
#include "analysis/integer_at.hpp"
#include "analysis/texts.hpp"
#include "decode/formats.hpp"
#include "decode/tasks.hpp"
#include "schema/event_pattern.hpp"
#include "sys/json.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class Column {
 public:
  enum class Kind : u8 { whole, real, text };
  enum class Unit : u8 { none, ns, bytes };

  // Both must outlive it. They may grow meanwhile. Errors: no event has such a field (the message suggests similar names), an
  // array, a modifier that is unknown or not for this kind.
  static result<Column> compile(std::string_view text, const Formats& formats, const Tasks& tasks);
  // For keys: where events name the values of this enum differently, the value becomes the name, a text. A value without a
  // name stays a number in json() and before(). A thread, a process or an .execname becomes a text with the name of that
  // moment: a number that another thread has later is another key. Where differs(), every value becomes a text: equal numbers
  // are one key, also a whole and a real one, and no number equals a text.
  void use_names();
  // Whether the same 64 bits mean different values in different events: fields of this name are of several kinds, or signed
  // here and unsigned with 64 bits there.
  bool differs() const;
  bool differs_from(const Column& other) const;  // the same of both
  // What use_names() does if it differs(); for a column that is compared with one that differs. Not if a modifier makes numbers
  // of the values that mean the same everywhere, as .log2 does.
  void use_texts();

  const std::string& name() const { return text_; }
  Kind kind() const { return kind_; }
  Unit unit() const { return unit_; }
  const std::string& field() const { return name_; }
  bool shows_names() const { return modifier_ == Modifier::execname; }
  bool of_tasks() const { return shows_names() || show_ == Show::thread || show_ == Show::process; }
  bool is_whole_stack() const { return show_ == Show::stack; }  // a number of StackTexts
  bool of_stacks() const { return name_ == "stack"; }  // needs records that are joined with their stacks
  bool of_fields() const;  // no event has it but as a field of its own
  bool in(const EventType& type) const { Kind kind = kind_; return lower(&type, kind).op != Op::absent; }
  // The field that it reads in events of this type; null: none.
  const Field* field_in(const EventType& type) const { Kind kind = kind_; return lower(&type, kind).field; }
  i64 bucket_width() const { return modifier_ == Modifier::linear ? step_ : 0; }  // 0: it has none
  bool buckets() const { return modifier_ == Modifier::log2 || modifier_ == Modifier::linear; }

  // False: the record has no such value, or the column is of another kind. Numbers outside the payload read as 0.
  RINGSIDE_INLINE bool number(const TraceRecord& record, const RingName& ring, i64& out) {
    const Access& access = of(record);
    if (!whole(access, record, ring, out)) return false;
    if (modifier_ != Modifier::none) [[unlikely]]
      out = modify(out, is_signed(access));
    return true;
  }
  // Whether the record's event has a field of this name that is not a value of this column: an array, another kind, or a number
  // that only a later event made possible.
  bool is_misfit(const TraceRecord& record) {
    if (!odd_) [[likely]]
      return false;
    const Op op = of(record).op;
    return op == Op::misfit || op == Op::other_sign;
  }
  bool has(const TraceRecord& record, const RingName& ring);
  bool real(const TraceRecord& record, const RingName& ring, double& out);           // reads whole numbers, too
  bool text(const TraceRecord& record, const RingName& ring, std::string_view& out);  // valid as long as the record
  // Whether the number of this record is unsigned.
  bool is_unsigned(const TraceRecord& record) { return !is_signed(of(record)); }
  // Any value as 64 bits, equal if and only if the values are: numbers as they are, reals bit by bit, texts by number.
  // The usual case of key(), without a call: false in all others.
  RINGSIDE_INLINE bool quick_key(const TraceRecord& record, u64& out) const {
    const u32 id = record.number();
    if (!plain_ || !by_id_.knows(id, formats_->version())) [[unlikely]] return false;
    const Access& access = by_id_[id];
    if (access.op == Op::integer && access.integer.within(record.payload)) [[likely]] {
      out = static_cast<u64>(access.integer.quick(record.payload));
      return true;
    }
    out = access.event;
    return access.op == Op::event;
  }
  bool key(const TraceRecord& record, const RingName& ring, Texts& texts, u64& out) {
    if (kind_ == Kind::whole) [[likely]] {
      i64 value = 0;
      const bool is = number(record, ring, value);
      out = static_cast<u64>(value);
      if (odd_) [[unlikely]]
        return is && fits(of(record), value);
      return is;
    }
    return other_key(record, ring, texts, out);
  }

  // A text that text() gave, as people see it.
  std::string_view shown(std::string_view text) const {
    return of_tasks() || differs_ ? text.substr(0, text.find('\0')) : text;
  }
  // A key as text for people: enums by name, threads as NAME-TID, buckets as "[64, 128)".
  std::string show(u64 key, const Texts& texts) const;
  // As JSON: numbers and reals as numbers, everything with a name as a text.
  nlohmann::ordered_json json(u64 key, const Texts& texts) const;
  nlohmann::ordered_json json(std::string_view text) const;  // a text that text() gave
  // Whether a key comes before another one: numbers by value, then texts alphabetically.
  bool before(u64 a, u64 b, const Texts& texts) const;
  // The value at which a bucket begins.
  i64 begin(i64 bucket) const;

 private:
  enum class Op : u8 {
    unknown,
    absent,
    misfit,  // a field without a value of this kind
    integer,
    other_sign,  // an integer in a column of the other sign: fits()
    time,
    cpu,
    ring,
    recorded,
    thread,
    tid,
    process,
    event,
    real,
    text,
    named,
    task,
    cgroup,
    source,
    system,
    stack,
    frame,
    files
  };
  enum class Modifier : u8 { none, log2, linear, hex, sym, execname, divide };
  enum class Show : u8 { plain, thread, process, event, stack, syscall };
  struct Access {
    Op op = Op::unknown;
    IntegerAt integer;
    const Field* field = nullptr;
    const EventType* type = nullptr;
    u32 event = 0;  // its number; of `event`, that of the first one of its name: several inputs, or layouts, number it anew
  };

  struct FieldKinds {
    bool any_text = false, any_real = false, any_whole = false;
    bool any_signed = false, any_unsigned = false;  // any_unsigned: with 64 bits
    bool differ() const { return any_text + any_real + any_whole > 1 || (any_signed && any_unsigned); }
    FieldKinds operator|(const FieldKinds& other) const {
      return {any_text || other.any_text, any_real || other.any_real, any_whole || other.any_whole,
              any_signed || other.any_signed, any_unsigned || other.any_unsigned};
    }
  };

  RINGSIDE_INLINE const Access& of(const TraceRecord& record) {
    const u32 id = record.number();
    Access& access = by_id_.at(id, formats_->version());
    if (access.op == Op::unknown) [[unlikely]] find(id, access);
    return access;
  }
  RINGSIDE_INLINE bool whole(const Access& access, const TraceRecord& record, const RingName& ring, i64& out) const {
    if (access.op == Op::integer) [[likely]] {
      out = access.integer(record.payload);
      return true;
    }
    switch (access.op) {
      case Op::other_sign:
        out = access.integer(record.payload);
        return true;
      case Op::time: out = static_cast<i64>(record.time); return true;
      case Op::cpu: out = record.cpu_in(ring); return out >= 0;
      case Op::ring: out = ring.place(); return true;
      case Op::recorded: out = thread_of(access.type, read_common(record.payload)); return true;
      case Op::thread: out = tasks_->key(thread_of(access.type, read_common(record.payload)), ring); return true;
      case Op::tid: out = tasks_->seen(thread_of(access.type, read_common(record.payload)), ring); return true;
      case Op::event:
        out = access.event;
        return true;
      case Op::stack: return stack_number(record, out);
      case Op::process: out = tasks_->process(thread_of(access.type, read_common(record.payload)), ring); return true;
      default: return false;
    }
  }
  static bool is_signed(const Access& access) {
    return (access.op != Op::integer && access.op != Op::other_sign) || access.field->is_signed;
  }
  bool fits(const Access& access, i64 value) const;
  bool stack_number(const TraceRecord& record, i64& out) const;
  bool other_key(const TraceRecord& record, const RingName& ring, Texts& texts, u64& out);
  void find(u32 id, Access& access);
  std::string_view name_of(const Access& access, const TraceRecord& record);
  std::string show_task(Tasks::Key key) const;  // NAME-TID
  std::string_view task_text(const Access& access, const TraceRecord& record, const RingName& ring);
  const Field* field_of(const EventType& type) const;  // null: it has none of that name
  std::optional<Architecture> architecture_of_calls() const;
  bool is_which_event() const { return event_.empty() && name_ == "event"; }
  Access lower(const EventType* type, Kind& kind) const;
  i64 modify(i64 value, bool is_signed) const;
  // The steps of compile().
  result<std::string> parse(std::string_view text);
  result<void> bind();
  result<void> take_modifier(const std::string& modifier);
  bool names_differ() const;
  FieldKinds field_kinds() const;
  tl::unexpected<Error> wrong(const std::string& why) const;
  bool is_address(u64 key) const;            // shown as one
  std::string show_modified(u64 key) const;  // by a modifier that says how
  std::string show_plain(u64 key) const;
  static std::string show_number(i64 value, bool is_signed);

  const Formats* formats_ = nullptr;
  const Tasks* tasks_ = nullptr;
  std::string text_, event_, name_;  // as written; EVENT; NAME
  EventPatterns events_;             // parsed from EVENT
  Kind kind_ = Kind::whole;
  Unit unit_ = Unit::none;
  bool plain_ = false;  // whole numbers without a modifier
  Modifier modifier_ = Modifier::none;
  Show show_ = Show::plain;
  Architecture calls_of_ = Architecture::unknown;
  bool narrow_address_ = false;  // of 32 bits, by the print fmt: no value shows it
  bool is_signed_ = true;        // any event's field is
  bool odd_ = false;             // an event was a misfit, or of the other sign
  i64 step_ = 0;
  i32 frame_ = -1;  // stack[N]
  std::vector<std::pair<i64, std::string>> symbols_;
  bool named_ = false;    // the values are names: use_names()
  bool differs_ = false;  // and texts, because events differ
  std::string number_;    // the name of a value without one
  // NAME-TID of threads or processes of late, by key.
  struct Shown {
    Tasks::Key key = 0;
    u32 life = 0;
    std::string name{}, text{};
  };
  std::vector<Shown> shown_;
  IdTable<Access> by_id_;
};

}  // namespace ringside
