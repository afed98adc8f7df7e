// Merges many sources into one order: a k-way merge by time.
//
//   Timeline timeline(std::move(sources));
//   TraceRecord r;
//   while (timeline.next(r)) use(r);
//   for (const std::string& p : timeline.problems()) ...   // data that could not be read
//
// A source is asked for its next sub-buffer only when the current one is used up, so every payload stays valid until the next
// call. Losses are records of their own, at the place where they happened. A source that fails or is inconsistent leaves the
// merge with a sentence in problems(); the others go on.
//
// Recordings are complete, so their order is complete. Live sources have two views:
//   at once      (the default) hands out the present records: a live source with nothing new steps aside and is asked again
//                whenever another one moves on; its next records may be older than those already handed out.
//   follow()     in order: an event is handed out once no source can bring an older one. A source that had nothing at some
//                moment promises to bring nothing older than that moment less its lag_ns(). A source whose writer is in the
//                middle of an event, or that does not answer, promises nothing: events wait for it until they are
//                Options::look_ahead_ns old, however many such sources there are. After look_ahead_ns without a promise, a
//                source no longer holds back others until it promises or answers again. Nothing blocks but a source's own
//                next(): next() returns false while events wait, so ask again a few ms later.
// An event is late if a later one was handed out before it: it is marked, counted, and handed out all the same.
//
// Cost: a run of events of one source takes two comparisons an event; a change of source is a path in a tournament tree.
// Not thread-safe.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside {

struct TraceRecord {
  u64 time = 0;  // ns
  u64 lost = 0;  // not 0: no event, but the number of events lost here
  Bytes payload{};
  u32 source = 0;  // index in the order of add()
  u32 ids = 0;     // added to the payload's id: RingName::ids() and Origin::ids
  bool late = false;  // one with a later time was handed out before
  bool lost_at_least = false;  // nobody has counted them: there may be more than `lost`
  i32 cpu = -1;       // where its thread ran, if its ring is no CPU's and a Reading knows it
  u32 stack = 0;      // the number of its stack, if a Reading joins stacks; 0: none
  u32 files = 0;      // of a system call: the number of Descriptors, if a Reading knows files; 0: none

  i32 cpu_in(const RingName& ring) const { return ring.its_cpu() >= 0 ? ring.its_cpu() : cpu; }  // -1: unknown

  // The event's number among all sources read together: the key of formats, columns and filters. Programs and kernels number
  // their events independently.
  RINGSIDE_INLINE u32 number() const {
    u16 id = 0;
    if (payload.size >= sizeof id) [[likely]] __builtin_memcpy(&id, payload.data, sizeof id);
    return ids + id;
  }
};

// Of a ring's sub-buffers, the first that begins at this time, in the clock's ns, or later; their number if none does.
u64 first_sub_buffer(const Source& source, const ClockInfo& clock, u64 time);

class Timeline {
 public:
  // A source's place among others.
  struct Origin {
    std::optional<ClockInfo> clock;  // converts its times to the timeline's; none: the source's own clock
    u32 ids = 0;                     // added to its events' ids, which other sources may use for other events
    std::string label;               // before its RingName::buffer
  };
  struct Options {
    u64 look_ahead_ns = 100'000'000;   // how long sources without a promise may delay the others
    std::function<u64()> now{};        // this moment, in the timeline's ns; none: each source's clock
  };
  static constexpr u64 forever = ~u64{0};

  Timeline() = default;
  explicit Timeline(std::vector<std::unique_ptr<Source>> sources);

  u32 add(std::unique_ptr<Source> source) { return add(std::move(source), Origin()); }
  u32 add(std::unique_ptr<Source> source, const Origin& origin);  // its index
  // The time of the first record, before the first next(); forever: there is none.
  u64 begin();
  // Leaves out sub-buffers that cannot hold a part of the range, of sources that can seek. Each of them
  // ends after its first record after the range, so a gap that reaches into the range comes. The kernel's rings begin `lead`
  // bytes earlier, all of them together. Returns the time from which on all of them are here.
  // May be called again, for a later range.
  u64 narrow(u64 from, u64 until, u64 lead = 0);
  // Times that cut the range into about `parts` parts of the same size in the files. Before the first next(); none, if a source
  // cannot be cut.
  std::vector<u64> seams(u32 parts, u64 from, u64 until) const;
  u64 last_sub_buffer() const;  // the latest time at which one begins; 0: a source cannot seek
  u64 bytes(u64 from, u64 until) const;  // of the sub-buffers of the sources that can seek
  // In order, see above. Sources that have ended are asked again, too: each read of a living ring has an end.
  void follow(Options options);
  void follow() { follow(Options()); }
  bool following() const { return following_; }
  // Asks the sources that have handed out nothing yet. Their first sub-buffer is older than whatever is written after this
  // call.
  void prefetch() { ask_idle(); }
  // Back to "at once": nothing waits. The last record's payload is no longer valid.
  void finish();
  // Holds back later records until the next call, for a caller that knows that all sources up to `time` are here. At first:
  // forever. In the "at once" view, a loss before a later event is handed out, because the writer may have overwritten
  // more since.
  void hold_after(u64 time);

  const Source& source(u32 index) const { return *lanes_[index]->source; }
  const RingName& name(u32 index) const { return lanes_[index]->name; }
  const ClockInfo& clock(u32 index) const { return lanes_[index]->clock; }
  u32 size() const { return static_cast<u32>(lanes_.size()); }
  u64 late() const { return late_; }  // events, so far

  // The next record; false: nothing now (for recordings: the end).
  bool next(TraceRecord& out) {
    if (!running_) return next_lane(out);
    Lane& lane = *current_;
    if (lane.time > until_) return next_lane(out);
    high_ = lane.time;
    give(lane, out);
    running_ = advance(lane);
    return true;
  }

  // The next record and those after it in its sub-buffer, as long as they are the next ones in the order: use(record) for
  // each, until it returns false. False: there is none now. use() must not ask the timeline. Faster than next(), which puts the
  // state of its walk back into memory each time.
  template <class Use>
  bool next_run(const Use& use) {
    TraceRecord record;
    if (!next(record)) return false;
    if (!use(static_cast<const TraceRecord&>(record)) || !running_ || current_->time > until_) return true;
    Lane& lane = *current_;
    const u64 until = until_;
    abi::EventCursor cursor = lane.cursor;
    abi::AlikeEvents alike(cursor);
    NsWalk ns(lane.clock, cursor.time(), lane.time);
    u64 time = lane.time;
    Bytes payload = cursor.payload();
    record.lost = 0;
    record.late = false;
    for (bool more = true; more && running_ && time <= until;) {
      record.time = time;
      record.payload = payload;
      more = use(static_cast<const TraceRecord&>(record));
      const u64 before = time;
      if (alike.next()) [[likely]] {
        time = ns.step(alike.delta());
        payload = alike.payload();
      } else {
        alike.move(cursor);
        lane.has_event = cursor.next();
        alike = abi::AlikeEvents(cursor);
        if (!lane.has_event) {
          running_ = false;
          break;
        }
        time = lane.clock.to_ns(cursor.time());
        ns = NsWalk(lane.clock, cursor.time(), time);
        payload = cursor.payload();
      }
      running_ = time >= before;
    }
    alike.move(cursor);
    high_ = record.time;
    lane.cursor = cursor;
    lane.time = time;
    return true;
  }

  // The events after `last`, the record that next() has just handed out, in its ring: use(n, payload) for each, with n from 0
  // on, until it returns false, a loss, or the end of what is there. Begins again with n = 0 at the end of a sub-buffer,
  // because payloads move then: also that of `last`, which stays valid as long as before.
  template <class Use>
  void look_behind(TraceRecord& last, const Use& use) {
    const Lane& lane = *lanes_[last.source];
    do {
      if (!lane.has_event && !look_into_next(last)) return;
      if (lane.pending_lost != 0) return;
      u32 n = 0;
      bool more = true;
      for (abi::EventCursor cursor = lane.cursor; more;) {
        if (!use(n++, cursor.payload())) return;
        more = cursor.next();
        if (!more && cursor.malformed() != abi::Malformed::no) return;
      }
      if (!lane.ahead) continue;
      if (!*lane.ahead || (*lane.ahead)->lost_before != 0) return;
      abi::EventCursor cursor = walk_of(**lane.ahead);
      while (cursor.next())
        if (!use(n++, cursor.payload())) return;
      return;
    } while (load_ahead(last));
  }

  // Whether the next most_between + 1 events after `last` are in its sub-buffer, and `is` names none of them by its payload.
  // Each event is asked for once, or a few times near one that is named and at the end of the sub-buffer. none_near: the same,
  // and `last` is not named either; false if nobody has asked after an earlier one.
  static constexpr u32 most_between = 8;
  template <class Is>
  bool none_behind(const TraceRecord& last, const Is& is) {
    Lane& lane = *lanes_[last.source];
    if (!lane.has_event || lane.pending_lost != 0) return false;
    if (none_near(last)) return true;
    std::array<u32, most_between + 1> offsets;  // of the last ones, by number
    u32 n = 0;
    for (abi::EventCursor cursor = lane.cursor; !is(cursor.payload());) {
      offsets[n++ % offsets.size()] = cursor.offset();
      if (!cursor.next()) break;
    }
    if (n > most_between) lane.none_until = offsets[(n - most_between) % offsets.size()];
    return none_near(last);
  }
  bool none_near(const TraceRecord& last) const {
    const Lane& lane = *lanes_[last.source];
    return lane.cursor.offset() < lane.none_until && lane.has_event;
  }

  // A sentence for each failure to read; the caller that adds sources adds one for each source that could not be opened.
  const std::vector<std::string>& problems() const { return problems_; }
  void add_problem(std::string sentence) { problems_.push_back(std::move(sentence)); }

 private:
  struct Lane {
    std::unique_ptr<Source> source;
    abi::EventCursor cursor{nullptr, 0, 0, 0};
    ClockInfo clock;
    u64 time = 0;          // ns of the event under the cursor
    u64 pending_lost = 0;  // losses to hand out before it
    bool pending_at_least = false;  // SubBufferView::lost_at_least
    u64 horizon = 0;       // idle: nothing older than this will come
    u64 since = 0;         // idle: the moment of that promise, or of the first question without one
    u64 asked = 0;         // the moment of the last question
    u64 busy_at = 0;       // the moment of the last question that found its writer in the middle of an event
    u32 none_until = 0;    // none_behind is true for an event before this offset in the sub-buffer
    u32 index = 0;
    u32 ids = 0;
    bool has_event = false;
    bool over = false;    // ended or failed: never asked again
    bool past = false;    // over, because it is past the range
    bool well = true;     // its last answer was data or a promise
    bool silent = false;  // it did not answer
    RingName name;
    // look_behind has asked for the next sub-buffer; what was left of this one is in `rest`, at the same offsets.
    std::optional<result<SubBufferView>> ahead{};
    std::vector<u8> rest{};
  };
  // A node of the tournament: the earlier of its two children, the left one if they are equal; so equal times come in the order
  // of the sources, and the same recording always prints the same.
  struct Node {
    u64 time = forever;  // forever: the lane has nothing
    u32 lane = 0;
  };

  static void give(const Lane& lane, TraceRecord& out) {
    out.time = lane.time;
    out.lost = 0;
    out.payload = lane.cursor.payload();
    out.source = lane.index;
    out.ids = lane.ids;
    out.late = false;
    out.cpu = -1;
    out.stack = 0;
  }
  // Steps within the sub-buffer (the payload handed out stays valid until fetch). False: it is used up, or its time went back.
  bool advance(Lane& lane) {
    const u64 before = lane.time;
    lane.has_event = lane.cursor.next();
    if (!lane.has_event) return false;
    lane.time = lane.clock.to_ns(lane.cursor.time());
    return lane.time >= before;
  }
  bool next_lane(TraceRecord& out);
  void refill_current();
  bool look_into_next(TraceRecord& last);
  bool load_ahead(TraceRecord& last);
  void keep(TraceRecord& last);
  static abi::EventCursor walk_of(const SubBufferView& view) {
    return {view.sub_buffer + abi::header_size, view.begin, view.end, view.time};
  }
  bool lost_at_limit(TraceRecord& out);
  bool fetch(Lane& lane);
  void settle_current();
  void ask_idle();
  static u64 first_from(const Lane& lane, u64 time);
  static u64 time_at(const Lane& lane, u64 sub_buffer);
  void play(const Lane& lane);
  u64 runner_up(u32 lane) const;
  u64 moment(const Lane& lane) const;

  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Node> tree_;  // [1]: the earliest; the leaves from tree_.size() / 2 on, by lane
  std::vector<u32> idle_;   // lanes that had nothing at the last question
  std::vector<std::string> problems_;
  Options options_;
  bool following_ = false;
  Lane* current_ = nullptr;  // the lane being read: its leaf is out of date
  bool running_ = false;     // the current lane may go on up to until_
  u64 until_ = 0;
  u64 high_ = 0;             // the latest time handed out
  u64 promised_ = forever;   // following: idle lanes will bring nothing older
  u64 limit_ = forever;      // hold_after
  u64 range_end_ = forever;  // narrow: what is later is not wanted
  u32 asked_at_limit_ = 0;   // lost_at_limit: lanes asked so far, once each
  u64 late_ = 0;
  std::vector<u8> kept_;     // a payload whose sub-buffer was given back (look_behind)
};

}  // namespace ringside
