// Latencies: the time from a start to the end that belongs to it, matched by keys that they have in common.
//
//   auto pairs = Pairs::make({.start = "sched:sched_waking", .end = "sched:sched_switch", .keys = {{"pid", "next_pid"}}}, formats, tasks);
//   while (timeline.next(record)) {
//     if (pairs->take(record, ring)) heat.add(record.time, pairs->latency());
//   }
//   pairs->all().quantile(.99)
//
// Start and end are EVENTS [ " if " CONDITION ]: globs over SYSTEM:EVENT with commas between them, and a condition in the
// syntax of filters. Keys are columns, up to three; the default is the thread that ran (common_pid). An event may be both: then
// it ends one pair and starts the next (START = END measures periods).
//
// Calls nest: if the thread is in the key, and the events are the begin and the end of a span, or entry and return of a
// function (NAME and NAME__return or NAME_return, NAME_entry and NAME_exit), each key has a stack of starts, and an end takes
// the innermost one away. nests() says so. Each track of a thread (track_name) has spans of its own. A call may leave without
// an end (longjmp); then the next end takes its start away, and the true one of that end stays open: passed counts such starts,
// and as they may as well be calls that last on, the numbers are not exact.
//
// Other pairs have one start for each key. An end takes away the newest one, as in the kernel's histogram triggers, where every
// start sets a variable again and onmatch reads it once: an earlier start that nothing ended is counted as repeated, and the
// numbers are not exact. Options::first turns that around: the first start counts, and those that follow before the end are
// repeated ones.
//
// Options::filter is a condition on pairs (pair_condition.hpp): those that do not meet it are left out of everything.
// The numbers add up at any time:
//
//   starts = pairs + left out + repeated + evicted + negative + waiting      ends = pairs + left out + negative + unmatched
//
// Negative: the end is older than the start (a late event, or clocks that disagree); both are dropped, and measure nothing.
// Evicted: at most most_waiting starts wait, of all keys and depths; one more evicts the oldest.
//
// Losses: a lost event may have been the end that belongs to a start, and then the next end of that key gets a start that is
// not its own. So a pair is doubtful if a ring lost events between its start and its end: it may be true or a mistake. A long
// wait is more likely doubtful than a short one, so leaving them all out would hide just the latencies that are looked for.
// Doubtful pairs are counted, and marked among the slowest; Options::sure leaves them out of all(), groups() and slowest().
// Only losses of the pair's own ring matter where the key ties both events to it: the CPU, or the thread in a ring that only
// that thread writes. A loss counts at the place where its ring goes on.
//
// Memory: most_waiting starts, most_groups histograms (evicted ones are counted, KeyTable), `slowest` pairs with `context`
// records each, and as many for each ring. Texts in keys are compared by a seeded hash of 64 bits. Thread-safety: none.
//
// A trace may be cut anywhere, and each part be read by itself:
//
//   auto part = pairs.part(formats, tasks);   // each by a thread of its own
//   while (timeline.next(record)) part->take(record, ring);
//   pairs.append(*part, ring, use);           // in the order of the parts: pairs is then as if it had taken all of them
//
// Only the first event of a key in a part can meet a start that was open before; of calls each end without a start. A part
// keeps these events for append(), its edges, and as it remembers few keys, some that are not the first; those change nothing.
// Memory: the words of a start's key, 96 bytes and the payload of an end without one; of calls at most most_waiting ends.
#pragma once
#include <functional>
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/histogram.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/aged_table.hpp"
#include "analysis/column.hpp"
#include "analysis/filter.hpp"
#include "analysis/key_table.hpp"
#include "analysis/pair_condition.hpp"
#include "decode/id_table.hpp"

namespace ringside {

class Pairs {
 public:
  static constexpr size_t most_keys = 3;
  static constexpr u32 precision = 6;  // the histograms' quantiles are right within 0.8 %

  using Key = PairCondition::Key;
  // A column's field, without its event and its modifiers: "pid" of "sched:sched_wakeup/pid.hex".
  static std::string_view field_of(std::string_view column) {
    column.remove_prefix(column.rfind('/') + 1);  // none: npos + 1 is 0
    return column.substr(0, column.find('.'));
  }
  struct Sides {
    std::string start{}, end{};
  };
  struct Options {
    std::string start{}, end{};
    std::optional<Sides> otherwise{};  // in a trace that has no event of the above
    std::vector<Key> keys{};
    std::string
        by{};  // a column; "start/..." or "end/..." names its side. Else the end's field, the start's, the end's built-in name
    std::string filter{};  // a condition on pairs
    size_t most_waiting = 100'000, most_groups = 10'000;
    u32 slowest = 10;   // pairs kept
    u32 context = 0;    // records kept with each of them: the last of its ring before the end
    bool first = false, sure = false;
  };

  struct Counts {
    u64 starts = 0, ends = 0;  // with a key
    u64 pairs = 0;             // that meet the condition, including doubtful ones, left out or not
    u64 left_out = 0;          // that do not
    u64 doubtful = 0, repeated = 0, evicted = 0, negative = 0, unmatched = 0, waiting = 0;
    u64 passed = 0;  // of calls: waiting starts whose inner call ended; if that left without an end, this took their own end
    u64 late = 0;    // starts and ends that came after later events: they may have missed each other
    u64 without_key = 0;       // starts and ends that have none
    u64 losses = 0, lost = 0;  // places, events
    bool exact() const { return losses == 0 && evicted == 0 && negative == 0 && repeated == 0 && passed == 0 && late == 0; }
  };
  struct Group {
    u64 count = 0;
    Histogram times{precision};
    std::string name;  // if it is a text
  };
  // A copy of a record. A start's copy has only the common fields.
  struct Copy {
    u64 time = 0;
    u64 lost = 0;
    u32 source = 0, ids = 0;
    i32 cpu = -1;   // TraceRecord::cpu
    u32 stack = 0;  // TraceRecord::stack
    std::vector<u8> payload{};
    TraceRecord record() const {
      TraceRecord r;
      r.time = time;
      r.lost = lost;
      r.payload = {payload.data(), static_cast<u32>(payload.size())};
      r.source = source;
      r.ids = ids;
      r.cpu = cpu;
      r.stack = stack;
      return r;
    }
  };
  struct Slow {
    u64 latency = 0;
    bool doubtful = false;
    std::string key;    // "next_pid=4711 ..."
    std::string group;  // its group's text
    Copy start, end;
    std::vector<Copy> context{};  // the oldest first
    u64 order = 0;                // the number of its end
  };

  // Both must outlive it. Errors: no such event, condition or column; a key whose columns differ in kind.
  static result<Pairs> make(const Options& options, const Formats& formats, const Tasks& tasks);

  bool nests() const { return nests_; }  // they are calls
  // Whether it can be made of parts: not with `first` or `context`.
  bool has_parts() const { return (!options_.first || nests_) && options_.context == 0; }
  // An empty one, for a part of the same trace with formats and tasks of its own.
  result<Pairs> part(const Formats& formats, const Tasks& tasks) const;
  // Takes over what the next part found. ring(source): of the trace; use(end): after each pair that counts and began before the
  // part. False: a table may have been too small, or a pair is kept whose stack's number means nothing here; neither Pairs is
  // of use then.
  bool append(const Pairs& part, const std::function<const RingName&(u32)>& ring,
              const std::function<void(const TraceRecord&)>& use);
  std::vector<Column> columns() const;  // of its keys and its group
  std::vector<const Filter*> conditions() const;

  // Every record of the trace in its order, losses included. True: it ended a pair that counts; see latency().
  RINGSIDE_INLINE bool take(const TraceRecord& record, const RingName& ring) {
    if (record.lost != 0) [[unlikely]] {
      lose(record);
      return false;
    }
    const u32 id = record.number();
    const Role& role = of(id);
    bool found = false;
    if (record.late) [[unlikely]]
      counts_.late += role.is_start || role.is_end;
    if (role.is_end && (!end_if_ || end_if_->matches(record, ring)))
      found = one_key_ ? end<1>(record, ring) : end<most_keys>(record, ring);
    if (role.is_start && (!start_if_ || start_if_->matches(record, ring)))
      one_key_ ? start<1>(record, ring) : start<most_keys>(record, ring);
    if (options_.context != 0) remember(record);
    return found;
  }
  // A record for the context only.
  void remember(const TraceRecord& record);

  const Options& options() const { return options_; }  // with the sides that the trace has
  u64 latency() const { return latency_; }  // ns, of the last pair
  // Its start, with the common fields alone; valid until the next call.
  TraceRecord last_start() const {
    TraceRecord start = start_;
    start.payload = {reinterpret_cast<const u8*>(&start_common_), sizeof start_common_};
    return start;
  }
  std::optional<u64> last_group() const { return last_group_; }  // its group's key; none: it has no such value
  Counts counts() const;
  const Histogram& all() const { return all_; }
  std::vector<Slow> slowest() const;  // the slowest first
  bool grouped() const { return by_.has_value(); }
  // use(key, group), in no order.
  template <class Use>
  void each_group(const Use& use) const {
    if (!by_) return;
    groups_.each([&](const KeyWords& key, const Group& group) { use(key[0], group); });
  }
  std::string show_group(u64 key, const Group& group) const;
  nlohmann::ordered_json group_json(u64 key, const Group& group) const;
  const std::string& by() const { return options_.by; }
  u64 without_group() const { return without_group_; }
  const KeyTable<Group>::Evicted& evicted_groups() const { return groups_.evicted(); }

  // EVENTS and CONDITION of a start or an end.
  static std::pair<std::string, std::string> split(std::string_view text);
  // Whether an event is one of them, whatever its condition says.
  bool is_start(const EventType& type) const;
  bool is_end(const EventType& type) const;

 private:
  struct Role {
    bool known = false, is_start = false, is_end = false;
  };
  struct Waiting {
    u64 time = 0;
    u64 common = 0;  // the first eight bytes of the payload
    u32 source = 0, ids = 0;
    u32 losses = 0, ring_losses = 0;  // the numbers of losses when it came
    i32 cpu = -1;
    u32 stack = 0;
    u32 met = 0;  // what the condition says of it
    bool passed = false;  // an end took away a start above it
  };
  // A waiting start's group, where the start gives it.
  struct By {
    u64 key = 0;
    bool has = false;
    std::string text{};
  };
  struct Ring {
    u32 losses = 0;
    size_t next = 0;
    std::vector<Copy> records{};
  };
  using Words = AgedTable<Waiting>::Key;
  // Of a part: the events that may meet a start from before it.
  struct Edges {
    struct End {
      Words key{};
      u64 starts = 0;  // how much of them comes before it
      u64 time = 0, order = 0, payload = 0;  // payload: where it begins
      u32 size = 0, source = 0, ids = 0, stack = 0, losses = 0, ring_losses = 0;
      i32 cpu = -1;
    };
    Edges() {}  // NOLINT: Clang finds no implicit one while Pairs is incomplete
    std::vector<u64> starts;  // the words of their keys, one after the other
    std::vector<End> ends;
    std::vector<u8> payloads;
    std::set<Words> passes;  // keys of ends that took a start of this part away and had no other one of it below
    // Keys of late, by hash: few, so that they stay in the first cache.
    std::vector<std::pair<bool, Words>> seen = std::vector<std::pair<bool, Words>>(64);
    size_t most_open = 0;
    bool too_large = false;  // an end, or their number
  };

  explicit Pairs(const Options& options) : options_(options), waiting_(options.most_waiting), groups_(options.most_groups) {}
  result<void> compile(const Formats& formats, const Tasks& tasks);
  static std::string all_spans(const Formats& formats);
  result<void> compile_by(const Formats& formats, const Tasks& tasks);
  bool are_calls() const;
  const Role& of(u32 id) {
    Role& role = roles_.at(id, formats_->version());
    if (!role.known) [[unlikely]] find(id, role);
    return role;
  }
  void find(u32 id, Role& role) const;
  Ring& ring_of(u32 source) {
    if (source >= rings_.size()) [[unlikely]] rings_.resize(source + 1);
    return rings_[source];
  }
  RINGSIDE_INLINE u64 word(Column& column, const TraceRecord& record, const RingName& ring, bool& has) const {
    if (column.kind() != Column::Kind::whole) [[unlikely]] return other_word(column, record, ring, has);
    u64 quick = 0;
    if (column.quick_key(record, quick)) [[likely]] return quick;
    i64 value = 0;
    has = column.number(record, ring, value) && has;
    return static_cast<u64>(value);
  }
  u64 other_word(Column& column, const TraceRecord& record, const RingName& ring, bool& has) const;
  // keys, here and below: 1, or most_keys where there are more.
  template <size_t keys>
  RINGSIDE_INLINE bool key_of(std::vector<Column>& columns, const TraceRecord& record, const RingName& ring, Words& out) {
    bool has = true;
    out = {word(columns[0], record, ring, has), 0, 0};  // no loop, so that the key stays in registers
    if constexpr (keys > 1) {
      out[1] = word(columns[1], record, ring, has);
      if (columns.size() > 2) out[2] = word(columns[2], record, ring, has);
    }
    if (idle_keys_ != 0) {
      if (out[0] == 0) [[unlikely]]
        tell_zero(0, ring, out[0]);
      if constexpr (keys > 1) {
        if (out[1] == 0 && columns.size() > 1) tell_zero(1, ring, out[1]);
        if (out[2] == 0 && columns.size() > 2) tell_zero(2, ring, out[2]);
      }
    }
    if (track_) [[unlikely]]
      tell_track(record, ring, out[0]);
    if (of_several_machines_) [[unlikely]]
      out[0] ^= tasks_->machine(ring.numbering) * seed_of_machines;
    if (of_several_runs_ && ring.kernel) [[unlikely]]
      out[0] ^= tasks_->run(ring.numbering) * seed_of_runs;
    return has;
  }
  void tell_track(const TraceRecord& record, const RingName& ring, u64& word);
  // Each CPU has an idle thread of its own, and all of them have the number 0; so have the writers that name no thread.
  void tell_zero(u32 key, const RingName& ring, u64& word) const {
    if ((idle_keys_ >> key & 1) == 0) return;
    if (ring.kernel)
      word = ~u64{ring.ring};
    else if (ring.apart != 0)
      word = u64{ring.numbering + ring.ids()} << 32 | 1;
  }
  template <size_t keys>
  void start(const TraceRecord& record, const RingName& ring);
  template <size_t keys>
  bool end(const TraceRecord& record, const RingName& ring);
  // Whether an event that met no start of this part may meet one from before it. Not, if it is known that another one of its
  // key came since the part began.
  template <size_t keys>
  RINGSIDE_INLINE bool is_edge(const Words& key, u32 hash) {
    auto& [known, seen] = edges_->seen[hash % edges_->seen.size()];
    const bool again = known && (keys == 1 ? seen[0] == key[0] : same_key(seen, key));
    known = true;
    seen = key;
    return !again;
  }
  template <size_t keys>
  void append_edges(const Edges& edges, const std::function<const RingName&(u32)>& ring,
                    const std::function<void(const TraceRecord&)>& use);
  template <size_t keys>
  [[gnu::noinline]] void pass(const Words& key, u32 hash);
  void add_end(const Words& key, const TraceRecord& record);
  void take_over(const Pairs& part);
  bool fits() const {
    return waiting_.evicted() == 0 && groups_.evicted().keys == 0 && !keeps_stacks_ && !(edges_ && edges_->too_large);
  }
  static bool slower(const Slow& a, const Slow& b);
  bool is_slow(u64 latency, u64 order) const {
    if (slowest_.size() < options_.slowest) return true;
    if (options_.slowest == 0 || latency < slowest_.front().latency) return false;
    return latency > slowest_.front().latency || order < slowest_.front().order;
  }
  void admit(Slow slow);
  void lose(const TraceRecord& record);
  const Group* group(const TraceRecord& record, const RingName& ring, u32 at, u64& key);
  void keep(const TraceRecord& record, const RingName& ring, const Waiting& waiting, Slow slow);
  bool on_one_ring(const RingName& ring) const {
    return by_ring_ || (by_cpu_ && !ring.of_a_thread()) || (by_thread_ && ring.of_a_thread());
  }

  Options options_;
  static constexpr u64 seed_of_machines = 0x9E3779B97F4A7C15;  // equal numbers of two machines are two keys
  const Formats* formats_ = nullptr;
  const Tasks* tasks_ = nullptr;
  static constexpr u64 seed_of_runs = 0xC2B2AE3D27D4EB4F;  // a start of one run has no end in another
  bool of_several_machines_ = false, of_several_runs_ = false;
  std::string start_events_, end_events_;
  EventPatterns starts_, ends_;
  std::optional<Filter> start_if_, end_if_;
  std::vector<Column> start_keys_, end_keys_;
  std::optional<Column> by_;
  bool one_key_ = true, nests_ = false, asks_ = false;  // asks_: there is a condition_
  bool by_start_ = false;
  std::optional<Column> track_{};  // spans nest on their track: track_name, which not all of them have
  u32 idle_keys_ = 0;              // bits of keys that are the thread of the event's CPU
  bool by_ring_ = false, by_cpu_ = false, by_thread_ = false;  // the key has both events' ring, CPU, thread
  u64 seed_ = 0;                             // for hashing texts
  IdTable<Role> roles_;
  AgedTable<Waiting> waiting_;
  std::vector<By> waiting_by_;  // by place; empty: the end gives the group
  KeyTable<Group> groups_;
  Histogram all_{precision};
  std::vector<Slow> slowest_;                // a heap, the fastest on top
  std::vector<Ring> rings_;
  Counts counts_;
  u64 latency_ = 0, without_group_ = 0, order_ = 0;
  bool keeps_stacks_ = false;     // among the slowest
  std::optional<Edges> edges_{};  // it is a part
  u64 start_common_ = 0;
  TraceRecord start_;
  std::optional<u64> last_group_;
  std::optional<PairCondition> condition_;
};

}  // namespace ringside
