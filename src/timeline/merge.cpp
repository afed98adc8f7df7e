#include "timeline/merge.hpp"

#include <algorithm>
#include <ringside/base/check.hpp>
#include <utility>

namespace ringside {

Timeline::Timeline(std::vector<std::unique_ptr<Source>> sources) {
  for (auto& s : sources) add(std::move(s));
}

u32 Timeline::add(std::unique_ptr<Source> source, const Origin& origin) {
  const auto index = static_cast<u32>(lanes_.size());
  Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
  lane.name = source->name();
  if (!origin.label.empty()) lane.name.buffer = origin.label + (lane.name.buffer.empty() ? "" : "/" + lane.name.buffer);
  lane.clock = origin.clock.value_or(source->clock());
  lane.ids = lane.name.ids() + origin.ids;
  lane.name.numbering = origin.ids;
  lane.source = std::move(source);
  lane.index = index;
  running_ = false;
  if (following_) promised_ = 0;
  idle_.push_back(index);
  if (lanes_.size() * 2 > tree_.size()) {
    const std::vector<Node> before = std::move(tree_);
    tree_.assign(std::max<size_t>(before.size() * 2, 4), Node());
    for (u32 i = 0; i < tree_.size() / 2; ++i) {
      Node& leaf = tree_[tree_.size() / 2 + i];
      leaf = {i < before.size() / 2 ? before[before.size() / 2 + i].time : forever, i};
    }
    for (size_t i = tree_.size() / 2; --i != 0;) tree_[i] = tree_[2 * i + (tree_[2 * i + 1].time < tree_[2 * i].time)];
  }
  RINGSIDE_CHECK(is_power_of_two(tree_.size()) && tree_.size() / 2 >= lanes_.size(),
                 "the tournament has a leaf for each source");
  return index;
}

u64 Timeline::begin() {
  if (!idle_.empty()) ask_idle();
  return tree_.empty() ? forever : tree_[1].time;
}

static u64 time_of(const Source& source, const ClockInfo& clock, u64 sub_buffer) {
  const u64 stamp = source.time_stamp(sub_buffer);
  return stamp == 0 ? 0 : clock.to_ns(stamp);
}
u64 Timeline::time_at(const Lane& lane, u64 sub_buffer) { return time_of(*lane.source, lane.clock, sub_buffer); }
u64 Timeline::first_from(const Lane& lane, u64 time) { return first_sub_buffer(*lane.source, lane.clock, time); }

// Each time stamp may be a page to read from the disk, so it guesses: where sub-buffers fill at an even rate, six of them are
// enough. A bisection in each turn bounds their number for all others.
u64 first_sub_buffer(const Source& source, const ClockInfo& clock, u64 time) {
  u64 low = 0, high = source.sub_buffers();        // those before `low` begin earlier, those from `high` on do not
  u64 early = 0, late = 0;                         // the times of low - 1 and of high
  const auto read = [&](u64 at) {
    if (low == high) return;
    at = std::clamp(at, low, high - 1);
    const u64 begin = time_of(source, clock, at);
    if (begin < time)
      low = at + 1, early = begin;
    else
      high = at, late = begin;
  };
  read(0);
  read(high - 1);
  while (low < high) {
    const double share = static_cast<double>(time - early) / static_cast<double>(std::max(late, time) - early);
    const u64 guess = low + static_cast<u64>(share * static_cast<double>(high - low)), before = low;
    read(guess);
    read(low != before ? low : high - 1);  // the other side of the guess
    read(low + (high - low) / 2);
  }
  return low;
}

u64 Timeline::narrow(u64 from, u64 until, u64 lead) {
  RINGSIDE_CHECK(!following_, "what is still written to is not narrowed");
  const auto kernels = std::count_if(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->name.kernel; });
  u64 state_from = kernels == 0 || lead == 0 ? from : 0;
  for (const auto& lane : lanes_) {
    if (!lane->name.kernel || state_from == from || lane->source->sub_buffers() == 0) continue;
    const u64 size = std::max<u64>(lane->source->place_bytes(), 1);
    const u64 at = first_from(*lane, from), back = 1 + lead / (static_cast<u64>(kernels) * size);
    if (at > back) state_from = std::max(state_from, std::min(from, time_at(*lane, at - back)));
  }
  std::vector<bool> waits(lanes_.size());
  for (const u32 index : idle_) waits[index] = true;
  range_end_ = until;
  current_ = nullptr;
  running_ = false;
  for (const auto& lane : lanes_) {
    if (std::exchange(lane->past, false)) lane->over = false;
    if (lane->over || lane->source->sub_buffers() == 0) continue;
    const u64 first = first_from(*lane, lane->name.kernel ? state_from : from);
    lane->source->seek(first - std::min<u64>(first, 1));  // the one before may reach into the range
    lane->cursor = abi::EventCursor{nullptr, 0, 0, 0};
    lane->ahead.reset();
    lane->has_event = false;
    lane->pending_lost = lane->time = 0;
    if (!waits[lane->index]) idle_.push_back(lane->index);
    play(*lane);
  }
  return state_from;
}

u64 Timeline::bytes(u64 from, u64 until) const {
  u64 all = 0;
  for (const auto& lane : lanes_) {
    const u64 end = first_from(*lane, until);
    all += (end - std::min(end, first_from(*lane, from))) * lane->source->place_bytes();
  }
  return all;
}

// From samples of the rings' time stamps. Each may cost a page from the disk, so few are taken: four for each part, and two for
// each lane. Between two of them a lane has its bytes evenly.
u64 Timeline::last_sub_buffer() const {
  u64 last = 0;
  for (const auto& lane : lanes_) {
    if (lane->over) continue;
    if (lane->source->sub_buffers() == 0) return 0;
    last = std::max(last, time_at(*lane, lane->source->sub_buffers() - 1));
  }
  return last;
}

std::vector<u64> Timeline::seams(u32 parts, u64 from, u64 until) const {
  struct Range {
    const Lane& lane;
    u64 first, end;
    double bytes;
  };
  std::vector<Range> ranges;
  double all = 0;
  for (const auto& lane : lanes_) {
    if (lane->over) continue;
    if (lane->source->sub_buffers() == 0) return {};
    const u64 first = first_from(*lane, from), end = first_from(*lane, until);
    if (first >= end) continue;
    ranges.push_back({*lane, first, end, static_cast<double>((end - first) * lane->source->place_bytes())});
    all += ranges.back().bytes;
  }
  if (all <= 0) return {};
  struct Turn {
    u64 time;
    double bytes_per_ns;  // more from here on
  };
  std::vector<Turn> turns;
  for (const auto& [lane, first, end, bytes] : ranges) {
    const u64 places = end - first, most = std::max<u64>(places - 1, 1),
              steps = std::clamp<u64>(static_cast<u64>(bytes * 4 * parts / all), 1, most);
    u64 at = first, begin = time_at(lane, first);
    for (u64 n = 1; n <= steps; ++n) {
      const u64 next = first + places * n / steps, later = begin + (begin != forever),
                stop = std::max(time_at(lane, std::min(next, end - 1)), later);
      const double share = static_cast<double>(next - at) / static_cast<double>(places),
                   rate = bytes * share / static_cast<double>(std::max<u64>(stop - begin, 1));
      turns.push_back({begin, rate});
      turns.push_back({stop, -rate});
      at = next;
      begin = stop;
    }
  }
  std::sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.time < b.time; });
  std::vector<u64> seams;
  double before = 0, rate = 0;
  u64 time = 0;
  u32 n = 1;
  for (const Turn& turn : turns) {
    const double until_turn = before + rate * static_cast<double>(turn.time - time);
    for (; n < parts && all * n / parts <= until_turn; ++n) {
      const double behind = rate > 0 ? (all * n / parts - before) / rate : 0;  // rounded, and so is a rate of nothing
      const u64 seam = time + static_cast<u64>(std::clamp(behind, 0., std::min(static_cast<double>(turn.time - time), 0x1p63)));
      if (seam > from && seam < until && (seams.empty() || seam > seams.back())) seams.push_back(seam);
    }
    before = until_turn;
    rate += turn.bytes_per_ns;
    time = turn.time;
  }
  return seams;
}

void Timeline::follow(Options options) {
  options_ = std::move(options);
  following_ = true;
  running_ = false;
  for (const auto& lane : lanes_)
    if (std::exchange(lane->over, false)) idle_.push_back(lane->index);
  promised_ = idle_.empty() ? forever : 0;
}

void Timeline::finish() {
  settle_current();
  following_ = false;
  ask_idle();  // their new records may be older than those that wait
}

void Timeline::hold_after(u64 time) {
  running_ = false;
  limit_ = time;
  asked_at_limit_ = 0;
}

bool Timeline::lost_at_limit(TraceRecord& out) {
  while (!following_ && limit_ != forever && asked_at_limit_ < lanes_.size()) {
    Lane& lane = *lanes_[asked_at_limit_++];
    if (lane.pending_lost == 0 || lane.time <= limit_) continue;
    out = TraceRecord{limit_, lane.pending_lost, {}, lane.index, lane.ids, false, lane.pending_at_least};
    lane.pending_lost = 0;
    if (!lane.has_event && !fetch(lane) && !lane.over) idle_.push_back(lane.index);
    play(lane);
    return true;
  }
  return false;
}

// This moment in the timeline's ns. A counter's numbers are no times, so nothing waits for them.
u64 Timeline::moment(const Lane& lane) const {
  if (options_.now) return options_.now();
  return lane.clock.kind == ClockKind::counter ? forever : now_of(lane.clock);
}

// Loads the lane's next sub-buffer that has an event or a loss. False: nothing now.
bool Timeline::fetch(Lane& lane) {
  RINGSIDE_CHECK(!lane.over && !lane.has_event,
                 "only a source that has not ended is asked, and only when its sub-buffer is used up");
  lane.has_event = false;
  for (;;) {
    if (lane.time > range_end_ && lane.source->sub_buffers() != 0) {
      lane.over = lane.past = true;
      return false;
    }
    if (lane.cursor.malformed() != abi::Malformed::no) {
      problems_.push_back((lane.name.kernel || lane.name.cpu >= 0 ? "cpu " : "ring ") + std::to_string(lane.name.place()) +
                          ": a sub-buffer is malformed at offset " + std::to_string(lane.cursor.position()) + ": " +
                          abi::to_string(lane.cursor.malformed()) + "; the rest of it was skipped");
      lane.cursor = abi::EventCursor{nullptr, 0, 0, 0};
    }
    const u64 asked = following_ ? moment(lane) : 0;
    const bool ended = lane.source->ended();  // asked first: data written before the end is still to come
    auto view =
        lane.ahead ? result<std::optional<SubBufferView>>(*std::exchange(lane.ahead, std::nullopt)) : lane.source->next();
    const bool timed_out = !view && view.error().code == std::errc::timed_out, no_answer = timed_out && following_;
    if (!view && !(timed_out && lane.silent)) problems_.push_back(view.error().sentence);
    lane.silent = timed_out;
    lane.asked = asked;
    if (!view || !*view) {
      lane.over = !no_answer && (!view || (ended && !following_));
      if (lane.over || !following_) return false;
      const u64 lag = no_answer ? Source::unknown : lane.source->lag_ns();
      if (lag != Source::unknown || lane.well) lane.since = asked;
      lane.well = lag != Source::unknown;
      if (!lane.well && !no_answer) lane.busy_at = asked;
      if (lane.well) lane.horizon = std::max(lane.horizon, asked == forever ? forever : asked - std::min(asked, lag));
      return false;
    }
    lane.well = true;
    lane.horizon = std::max(lane.horizon, lane.busy_at);  // later events began after these were committed: after busy_at
    const SubBufferView& v = **view;
    lane.cursor = walk_of(v);
    lane.none_until = 0;
    lane.pending_lost = v.lost_before;
    lane.pending_at_least = v.lost_at_least;
    lane.time = 0;
    advance(lane);
    if (lane.has_event) return true;
    if (lane.pending_lost != 0) {
      lane.time = lane.clock.to_ns(v.time);
      return true;
    }
  }
}

// Asks all idle lanes, and computes the time before which they can bring nothing more.
void Timeline::ask_idle() {
  size_t kept = 0;
  promised_ = forever;
  for (size_t i = 0; i < idle_.size(); ++i) {
    Lane& lane = *lanes_[idle_[i]];
    // Asking a source that does not answer takes time, so it is asked once in a look_ahead_ns, and once more at the end.
    const bool wait = following_ && lane.silent && moment(lane) - lane.asked < options_.look_ahead_ns;
    if (!wait && fetch(lane)) {
      play(lane);
      continue;
    }
    if (lane.over) continue;
    idle_[kept++] = lane.index;
    const u64 now = following_ ? moment(lane) : 0, ahead = options_.look_ahead_ns;
    if (following_ && now - lane.since < ahead)
      promised_ = std::min(promised_, lane.well ? lane.horizon : std::max(lane.horizon, now - std::min(now, ahead)));
  }
  RINGSIDE_CHECK(kept <= lanes_.size(), "a source is idle once");
  idle_.resize(kept);
}

// What node `at` may reach before its sibling of this time: less, if that is the left one. (At time 0 either comes first.)
static u64 just_before(u64 time, size_t at) { return time - (at & u64{time != 0}); }

// Updates a lane's leaf, and the path to the top.
void Timeline::play(const Lane& lane) {
  size_t at = tree_.size() / 2 + lane.index;
  RINGSIDE_DEBUG_CHECK(at < tree_.size(), "each source has a leaf");
  Node best{lane.has_event || lane.pending_lost != 0 ? std::min(lane.time, forever - 1) : forever, lane.index};
  tree_[at] = best;
  for (; at > 1; at /= 2) {
    const Node other = tree_[at ^ 1];
    // Without a branch, which no processor could predict. At equal times the left one takes it.
    const u64 takes = -u64{just_before(other.time, at) < best.time};
    best.time ^= (best.time ^ other.time) & takes;
    best.lane ^= (best.lane ^ other.lane) & static_cast<u32>(takes);
    tree_[at / 2] = best;
  }
}

// The time up to which the winner may go on. At equal times, a lane to its left goes first.
u64 Timeline::runner_up(u32 lane) const {
  u64 until = forever;
  for (size_t at = tree_.size() / 2 + lane; at > 1; at /= 2) until = std::min(until, just_before(tree_[at ^ 1].time, at));
  return until;
}

// Puts the current lane back into the tree.
void Timeline::settle_current() {
  if (current_ == nullptr) return;
  const Lane& lane = *current_;
  if (!lane.has_event) [[unlikely]]
    refill_current();
  current_ = nullptr;
  running_ = false;
  play(lane);
}

void Timeline::refill_current() {
  Lane& lane = *std::exchange(current_, nullptr);
  if (fetch(lane)) return;
  if (!following_ && !idle_.empty()) ask_idle();
  if (!lane.over) idle_.push_back(lane.index);
  if (!lane.over && following_) promised_ = std::min(promised_, lane.horizon = std::max(lane.horizon, lane.time));
}

// Its payload stays valid when its sub-buffer is given back.
void Timeline::keep(TraceRecord& last) {
  if (last.payload.data != kept_.data()) kept_.assign(last.payload.data, last.payload.data + last.payload.size);
  last.payload = {kept_.data(), last.payload.size};
}

// The lane's next sub-buffer, which the next call of next() would load. False: nothing now.
bool Timeline::look_into_next(TraceRecord& last) {
  if (current_ == nullptr || current_->index != last.source) return false;
  keep(last);
  const Lane& lane = *current_;
  settle_current();
  return lane.has_event;
}

// Asks for the lane's next sub-buffer while this one has events. False: there is none now, or it has been asked for.
bool Timeline::load_ahead(TraceRecord& last) {
  Lane& lane = *lanes_[last.source];
  if (lane.ahead) return false;
  keep(last);
  if (const abi::EventCursor at = lane.cursor; at.data() != lane.rest.data()) {
    lane.rest.resize(at.end());
    std::copy(at.data() + at.offset(), at.data() + at.end(), lane.rest.data() + at.offset());
    lane.cursor = abi::EventCursor(lane.rest.data(), at.offset(), at.end(), at.before());
    lane.cursor.next();
  }
  auto view = lane.source->next();
  if (view && !*view) return false;  // it is asked again in its turn
  lane.ahead = view.map([](const auto& v) { return *v; });
  return true;
}

bool Timeline::next_lane(TraceRecord& out) {
  settle_current();
  if (lanes_.empty()) return false;
  const auto waits = [&] { return tree_[1].time == forever || tree_[1].time > std::min(promised_, limit_); };
  bool ahead = false;
  if (waits()) {
    ask_idle();
    if (waits()) {
      // A time in the future belongs to another clock: no source will ever reach it.
      const Lane& lane = *lanes_[tree_[1].lane];
      const u64 soon = moment(lane) + options_.look_ahead_ns;
      ahead = following_ && tree_[1].time != forever && tree_[1].time <= limit_ && tree_[1].time > soon &&
              soon >= options_.look_ahead_ns;
      if (!ahead) return lost_at_limit(out);
    }
  }
  Lane& lane = *lanes_[tree_[1].lane];
  RINGSIDE_DEBUG_CHECK(lane.has_event || lane.pending_lost != 0, "the winner of the tournament has something to give");
  current_ = &lane;
  until_ = std::min({runner_up(lane.index), promised_, limit_});
  const bool late = lane.time < high_;
  if (!late && !ahead) high_ = lane.time;
  if (lane.pending_lost != 0) {
    out = TraceRecord{lane.time, lane.pending_lost, {}, lane.index, lane.ids, late, lane.pending_at_least};
    lane.pending_lost = 0;
    running_ = lane.has_event && !late;
    return true;
  }
  give(lane, out);
  out.late = late;
  late_ += late;
  running_ = advance(lane) && !late;
  return true;
}

}  // namespace ringside
