// A condition on events, in the syntax of the kernel's event filters, compiled once into tests of bytes at known offsets.
//
//   auto filter = Filter::compile("prev_prio < 100 && comm ~ \"cc1*\"", formats, tasks);
//   if (filter->matches(record, ring)) ...
//
//   filter     = clause { ";" clause }   clause = [ EVENTS ": " ] text          (schema/filter_clauses.hpp)
//   text       = all { "||" all }        all = one { "&&" one }        one = { "!" } ( "(" text ")" | comparison )
//   comparison = [ EVENT "/" ] NAME ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "&" | "~" ) VALUE
//
// EVENTS: before a clause: it is asked of these events alone, and all others pass it (sched_switch: prev_prio < 100). An
// event must pass every clause.
//
// EVENT/ before a name, as in columns: only events of this pattern meet the comparison (libc:malloc/size > 100).
// stack is the text of the event's stack: its functions, innermost first, with ; between them (stack ~ "*parse*"); stack[0] the
// innermost function, stack[1] its caller.
//
// NAME is a field of the event, else one of: stack · ts · cpu, CPU, ring · source (kernel, program, a buffer's name) · comm,
// COMM, task · pid, tid, common_pid · cgroup · file · event · system · common_type, common_flags, common_preempt_count. pid and
// tid are the thread's number as the reader sees it, common_pid is the recorded one: in other PID namespaces they differ. As in
// the kernel, an event's own field comes first, so pid in sched_wakeup is the woken thread's; COMM and common_pid always belong
// to the thread that ran. In the events of system calls `syscall` is the call, by name or number. VALUE is a number (10, -1,
// 0x1f, 017; 1.5 for floats; 5ms, 3us, 2s for ts and fields that end in _ns), a text ("...", '...' or a bare word) or a
// character
// ('c', '\n'). For an enum it may be a name from the print fmt, and for a level a name
// that has an order (level >= warn). `&`: has one of these bits.
//
// Differences from the kernel's filters: numbers compare as numbers (300 equals no byte, -1 no unsigned field; the kernel cuts
// them to the field's width), and "*1" finds the end of a text in a fixed array (in the kernel, the end of the array). An event
// that has no such field, or one of another type, never meets the comparison; `!` before it turns that around.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "decode/id_table.hpp"
#include "analysis/integer_at.hpp"
#include "decode/formats.hpp"
#include "decode/tasks.hpp"
#include "schema/event_pattern.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class Filter {
 public:
  static constexpr size_t longest = 16384;   // bytes of text
  static constexpr u32 deepest = 100;        // parentheses

  // Both must outlive it. They may grow meanwhile: an event is looked at when the first of its kind comes.
  // ENOENT: no event has such a field, so far.
  static result<Filter> compile(std::string_view text, const Formats& formats, const Tasks& tasks);

  // False: no event of this type meets it, whatever its fields say.
  bool may_match(u32 id);
  // An error if a comparison names a field that this type lacks, or one that cannot be compared so.
  result<void> fits(const EventType& type) const;

  bool matches(const TraceRecord& record, const RingName& ring) {
    const u32 id = record.number();
    if (!programs_.knows(id, version()) || programs_[id].reach - 1 >= record.payload.size) [[unlikely]]
      return matches_any(record, ring);
    const QuickStep* const steps = quick_steps_.data();
    i32 at = programs_[id].entry;
    while (at >= 0) {
      const QuickStep& step = steps[at];
      const bool met = step.meets(record.payload);
      // A branch, so that the next step does not wait for this one's loads: most comparisons mostly turn out the same.
      at = step.yes;
      if (!__builtin_expect_with_probability(met, true, 0.99)) at = step.no;
    }
    return at == accept;
  }

  // Whether the kernel's filter of the same text passes every event of this type that this filter passes: then the kernel may
  // filter, too, and unwanted events never get into the ring. False where the two differ (see above), and where the event lacks
  // a field.
  bool kernel_may(const EventType& type) const;
  const std::string& text() const { return text_; }
  // The events that the text puts before names with a /.
  static std::vector<std::string> events_in(std::string_view text);
  // Whether it compares this name.
  bool names(std::string_view name) const {
    for (const Leaf& leaf : leaves_) {
      if (leaf.field == name) return true;
    }
    return false;
  }

 private:
  friend class FilterParser;
  friend class PairCondition;
  enum class Compare : u8 { equal, unequal, less, less_equal, greater, greater_equal, bits, glob };
  struct Value {
    std::string text;
    char quote = 0;
    enum class Number : u8 { none, whole, real } number = Number::none;
    bool is_time = false;
    __int128 whole = 0;
    double real = 0;
  };
  struct Leaf {
    EventPatterns events;  // none: all
    std::string field;     // empty: it is one of these events
    bool of(const EventType& type) const { return events.empty() || events.matches(type.system, type.name); }
    i32 frame = -1;  // stack[N]
    Compare compare = Compare::equal;
    Value value;
    size_t at = 0, field_at = 0, value_at = 0, end = 0;  // in the text
  };
  struct Node {
    enum class Kind : u8 { leaf, all, any } kind = Kind::leaf;
    bool negated = false;
    u32 leaf = 0;
    std::vector<Node> children;
  };
  enum class Op : u8 { integer, time, cpu, ring, tid, floating, text, task, cgroup, source, stack, files };
  // Numbers: low <= (value & mask) <= low + span, modulo 2^64.
  struct Step {
    Op op = Op::integer;
    i32 yes = 0, no = 0;
    u32 leaf = 0;
    IntegerAt integer{};
    u64 mask = ~u64{0}, low = 0, span = 0;
    const Field* field = nullptr;
    bool meets(u64 value) const { return (value & mask) - low <= span; }
  };
  // The same step, where it reads a number of a payload that is large enough.
  struct QuickStep {
    IntegerTest meets{};
    i32 yes = 0, no = 0;
  };
  // A comparison for one type of event: no such field, not comparable so, constant, or any of these tests.
  struct Lowered {
    enum class Kind : u8 { absent, refused, constant, steps } kind = Kind::absent;
    bool value = false;
    bool negated = false;
    std::vector<Step> any_of;
    std::string why;
  };
  struct Program {
    const EventType* type = nullptr;
    i32 entry = 0;
    bool built = false;
    u64 reach = 0;  // for payloads of this size all steps are quick ones; 0: for none, or not built
  };
  static constexpr i32 accept = -1, reject = -2;

  // Into root_ and leaves_.
  result<void> parse(std::string_view text);
  // The text with a mark under it; for a long text, the part around the mark.
  static Error error_at(std::string_view text, size_t at, const std::string& why, std::errc code = std::errc::invalid_argument);

  static Lowered lower(const Leaf& leaf, const EventType* type);
  using Names = std::vector<std::pair<i64, std::string>>;  // value and name
  static std::optional<char> character_in(const Value& value);
  static std::string why_no_number(const Leaf& leaf, Op op, const Names* names);
  static Lowered lower_number(const Leaf& leaf, Step step, u32 bits, bool is_signed, const Names* names);
  static Lowered lower_calls(const Leaf& leaf, Step step, Architecture of);
  static Lowered lower_text(const Leaf& leaf, Op op, const Field* field);
  static Lowered lower_builtin(const Leaf& leaf, const EventType* type);
  static bool text_matches(const Leaf& leaf, std::string_view text);
  // The state that programs are built for: new formats change it, and threads whose numbers are not the reader's.
  u64 version() const { return formats_->version() << 1 | static_cast<u64>(tasks_->any_elsewhere()); }
  const Program& program_of(u32 id) {
    Program& program = programs_.at(id, version());
    if (!program.built) [[unlikely]] build(id, program);
    return program;
  }
  bool matches_any(const TraceRecord& record, const RingName& ring);
  void build(u32 id, Program& program);
  i32 emit(const Node& node, const EventType* type, i32 yes, i32 no);
  bool test(const Step& step, const TraceRecord& record, const RingName& ring, const EventType* type) const;

  std::string text_;
  const Formats* formats_ = nullptr;
  const Tasks* tasks_ = nullptr;
  Node root_;
  std::vector<Leaf> leaves_;
  std::vector<Step> steps_;  // the steps of all programs
  std::vector<QuickStep> quick_steps_;
  u64 built_for_ = 0;        // the version() that they are for
  IdTable<Program> programs_;
};

}  // namespace ringside
