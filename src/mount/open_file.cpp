#include "mount/open_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_cursor.hpp>

#include "sys/try.hpp"

namespace ringside::mount {
namespace {

constexpr size_t most_text = 1 << 16;  // made at a time

std::string piece(std::string_view text, u64 offset, size_t size) {
  return offset >= text.size() ? "" : std::string(text.substr(offset, size));
}

void drop_front(fmt::memory_buffer& text, size_t n) {
  std::memmove(text.data(), text.data() + n, text.size() - n);
  text.resize(text.size() - n);
}

// Takes whole lines off the front of `text`: at most `size` bytes, as long as one line fits.
std::string take_lines(fmt::memory_buffer& text, size_t size) {
  const std::string_view all(text.data(), text.size());
  size_t n = std::min(size, all.size());
  if (n < all.size())
    if (const size_t line = all.rfind('\n', n - 1); line != std::string_view::npos) n = line + 1;
  std::string given(all.substr(0, n));
  drop_front(text, n);
  return given;
}

// Ends what find() began, however a request ends.
struct Done {
  RingSet& on;
  u32 first, last;
  ~Done() {
    for (u32 n = first; n < last; ++n) on.done(n);
  }
};

std::unique_ptr<TextLines> lines_of(RingSet& on) {
  auto lines = std::make_unique<TextLines>(on.formats(), on.tasks(), on.clock().kind == ClockKind::counter, true);
  lines->show_processes(on.shows_processes());
  lines->show_tasks(on.text_rules().tasks);
  return lines;
}

}  // namespace

result<Written> OpenFile::write(std::string_view, const Client&) { return fail(EINVAL, "this file is not written to"); }

result<std::optional<std::string>> TextFile::read(u64 offset, size_t size) {
  if (!read_) return fail(EINVAL, "this file is not read");
  if (offset == 0) text_ = RS_TRY(read_());
  return piece(text_, offset, size);
}

result<Written> TextFile::write(std::string_view bytes, const Client& client) {
  return write_ ? write_(bytes, client) : OpenFile::write(bytes, client);
}

bool Streams::is_other(u32 uid) { return uid != 0 && uid != geteuid(); }

bool Streams::take(u32 uid) {
  if (is_other(uid) && of_others_ >= most_of_others) return false;
  u32& mine = of_users_[uid];
  if (mine >= most_of_a_user) return false;
  ++mine;
  if (is_other(uid)) ++of_others_;
  return true;
}

void Streams::give_back(u32 uid) {
  if (--of_users_[uid] == 0) of_users_.erase(uid);
  if (is_other(uid)) --of_others_;
}

TraceFile::~TraceFile() { stop(); }

void TraceFile::stop() {
  if (!timeline_) return;
  timeline_.reset();
  streams_->give_back(uid_);
}

result<Written> TraceFile::write(std::string_view bytes, const Client&) {
  if (!on().write_resets()) return bytes.size();
  return Written(bytes.size(), RS_TRY(on().reset(only_)));
}

result<void> TraceFile::start() {
  if (!timeline_ && !streams_->take(uid_)) return fail(EBUSY, "too many traces are being read");
  timeline_ = std::make_unique<Timeline>();
  text_.clear();
  end_.reset();
  at_ = 0;
  any_ = false;
  done_ = true;  // until the rings are there
  on().refresh();
  lines_ = lines_of(on());
  Peeked all = on().peek(only_);
  if (all.problem) return tl::unexpected<Error>(*all.problem);
  for (auto& source : all.sources) timeline_->add(std::move(source));
  timeline_->hold_after(all.until_ns);
  overrun_ = all.overrun;
  done_ = false;
  started_.assign(timeline_->size(), false);
  if (!on().text_rules().header) return {};
  const bool processes = on().shows_processes();
  const std::string room(processes ? 12 : 2, ' ');
  fmt::format_to(std::back_inserter(text_), "# tracer: nop\n#\n# entries-in-buffer/entries-written: {}/{}   #P:{}\n#\n",
                 all.in_buffer, all.in_buffer + all.overrun, on().cpus());
  for (const char* line : {"  _-----=> irqs-off/BH-disabled", " / _----=> need-resched", "| / _---=> hardirq/softirq",
                           "|| / _--=> preempt-depth", "||| / _-=> migrate-disable", "|||| /     delay"})
    fmt::format_to(std::back_inserter(text_), "#                            {}{}\n", room, line);
  fmt::format_to(std::back_inserter(text_),
                 "#           TASK-PID  {} CPU#  |||||  TIMESTAMP  FUNCTION\n"
                 "#              | |    {}   |   |||||     |         |\n",
                 processes ? "     TGID   " : room, processes ? "       |    " : room);
  for (const std::string& sentence : all.missing) fmt::format_to(std::back_inserter(text_), "# missing: {}\n", sentence);
  return {};
}

void TraceFile::produce(size_t size) {
  TraceRecord record;
  while (!done_ && text_.size() < size) {
    done_ = !timeline_->next(record);
    if (done_) return;
    const RingName& ring = timeline_->source(record.source).name();
    if (!on().wanted(record, ring)) continue;
    if (overrun_ != 0 && !started_[record.source] && on().text_rules().header) {
      started_[record.source] = true;
      if (any_) fmt::format_to(std::back_inserter(text_), "##### CPU {} buffer started ####\n", ring.ring);
    }
    any_ = true;
    lines_->print(record, ring, text_);
  }
}

// What other clients may use is given back, though the file may stay open for long.
std::string TraceFile::end() {
  end_ = at_;
  stop();
  return {};
}

result<std::optional<std::string>> TraceFile::read(u64 offset, size_t size) {
  if (offset != 0 && end_ && offset >= *end_) return std::string();
  if (offset == 0 || !timeline_) RS_TRY(start());
  if (offset < at_) return fail(EINVAL, "a trace is read from its start on");
  // The text before `offset` was read: a reader that skips pays for it a piece at a time.
  while (at_ < offset) {
    produce(most_text);
    const size_t skipped = std::min<u64>(offset - at_, text_.size());
    if (skipped == 0) return end();
    drop_front(text_, skipped);
    at_ += skipped;
    if (at_ < offset && offset - at_ > (u64{1} << 24)) return fail(EINVAL, "a trace is read from its start on");
  }
  produce(size);
  return text_.size() == 0 && size != 0 ? end() : piece({text_.data(), text_.size()}, 0, size);
}

struct PipeFile::Lane {
  u32 ring = 0;
  Asker asker{};
  Found found = Found::asking;
  RingName name{};
  // After Found::data:
  SubBufferView view{};
  abi::EventCursor cursor{nullptr, 0, 0, 0};
  u32 end = 0, events = 0;  // taken from the view
  u64 time = 0;             // ns of the event under the cursor
  u64 lost = 0;             // events lost before earlier views, which had no event to print them with

  u64 lost_before() const { return events == 0 ? lost + view.lost_before : 0; }
};

result<std::unique_ptr<OpenFile>> PipeFile::open(const std::shared_ptr<RingSet>& on, Only only) {
  if (!on->open_pipe(only)) return fail(EBUSY, "trace_pipe is open already");
  return std::unique_ptr<OpenFile>(new PipeFile(on, only));
}

PipeFile::PipeFile(const std::shared_ptr<RingSet>& on, Only only) : OpenFile(on, on->load()), only_(only) {}
PipeFile::~PipeFile() { on().close_pipe(only_); }

// Finds the lane's next event.
void PipeFile::find(Lane& lane) {
  const ClockInfo clock = on().clock();
  while ((lane.found = on().find(lane.ring, lane.asker)) == Found::data) {
    lane.view = on().view(lane.ring);
    lane.cursor = abi::EventCursor(lane.view.sub_buffer + abi::header_size, lane.view.begin, lane.view.end, lane.view.time);
    lane.end = lane.view.begin;
    lane.events = 0;
    if (lane.cursor.next()) {
      lane.time = clock.to_ns(lane.cursor.time());
      return;
    }
    lane.lost += lane.view.lost_before;
    on().consume(lane.ring, lane.view.end, 0);  // it is not readable as events: all that the writer counted counts as read
  }
}

// The event under the cursor, after the loss that it follows.
void PipeFile::print(const Lane& lane) {
  TraceRecord record{lane.time, lane.lost_before(), {}, lane.ring, lane.name.ids()};
  if (record.lost != 0) lines_->print(record, lane.name, text_);
  record.lost = 0;
  record.payload = lane.cursor.payload();
  if (on().wanted(record, lane.name)) lines_->print(record, lane.name, text_);
}

// Makes text of the oldest events, as long as these are known. False: the writer is gone, and all is read.
result<bool> PipeFile::take(size_t size) {
  lanes_.resize(last() - first());
  if (const u64 names = on().refresh(); lines_ == nullptr || names != names_) {
    names_ = names;
    lines_ = lines_of(on());
  }
  asking_ = false;
  const Done done{on(), first(), last()};
  size_t ended = 0;
  std::optional<Error> failed;
  std::vector<Lane*> heap;
  for (Lane& lane : lanes_) {
    lane.ring = first() + static_cast<u32>(&lane - lanes_.data());
    // A ring that had nothing, or did not answer, is not asked again before all others have been.
    if (lane.found != Found::nothing && lane.found != Found::failed) find(lane);
    asking_ = asking_ || lane.found == Found::asking;
    ended += lane.found == Found::ended ? 1 : 0;
    if (lane.found == Found::failed) failed = on().error(lane.ring);
    if (lane.found != Found::data) continue;
    lane.name = on().name(lane.ring);
    heap.push_back(&lane);
  }
  const std::vector<Lane*> all = heap;
  // One of many rings that is busy or damaged does not keep the others from being read; an external writer fails as a whole.
  if (failed && heap.empty() && !asking_ && (on().asks() || (only_ && failed->code != std::errc::device_or_resource_busy))) {
    for (Lane& lane : lanes_) lane.found = Found::asking;
    return tl::unexpected<Error>(*failed);
  }
  const auto later = [](const Lane* a, const Lane* b) { return a->time > b->time; };
  std::make_heap(heap.begin(), heap.end(), later);
  const ClockInfo clock = on().clock();
  bool known = !asking_;  // the next event of each ring is known
  while (known && text_.size() < size && !heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    Lane& lane = *heap.back();
    const size_t before = text_.size();
    print(lane);
    // Only the first may be longer than the reader's buffer: what stays in `text_` is lost if the reader closes the file.
    if (before != 0 && text_.size() > size) {
      text_.resize(before);
      break;
    }
    ++lane.events;
    lane.lost = 0;
    lane.end = lane.cursor.position();
    if (lane.cursor.next()) {
      lane.time = clock.to_ns(lane.cursor.time());
    } else {
      on().consume(lane.ring, lane.view.end, lane.events);
      lane.found = Found::asking;
      if (!on().asks()) find(lane);
    }
    known = lane.found != Found::asking;
    if (lane.found == Found::data)
      std::push_heap(heap.begin(), heap.end(), later);
    else
      heap.pop_back();
  }
  for (Lane* lane : all)
    if (lane->found == Found::data && lane->events != 0) on().consume(lane->ring, lane->end, lane->events);
  for (Lane& lane : lanes_)
    if (!asking_ || lane.found == Found::data) lane.found = Found::asking;
  return ended != lanes_.size();
}

result<std::optional<std::string>> PipeFile::read(u64, size_t size) {
  if (size == 0) return std::string();
  if (text_.size() == 0) {
    const bool more = RS_TRY(take(std::min(size, most_text)));
    if (!more) return std::string();
  }
  if (text_.size() == 0) {
    // As in the kernel: a reader that has read something is at the end when recording is off.
    if (gave_ && !asking_ && !on().on() && on().text_rules().pipe_ends) return std::string();
    return std::nullopt;
  }
  gave_ = true;
  return take_lines(text_, size);
}

bool PipeFile::ready(u32 percent) {
  if (text_.size() != 0) return true;
  for (u32 n = first(); n < last(); ++n)
    if (on().ready(n, percent)) return true;
  return false;
}

result<sys::Fd> RawFile::map() {
  auto file = RS_TRY(on().map(ring_));
  mapped_ = true;
  return file;
}

void RawFile::unmap() {
  if (std::exchange(mapped_, false)) on().unmap(ring_);
}

result<std::optional<std::string>> RawFile::read(u64, size_t size) {
  if (size == 0) return std::string();
  if (rest_.empty()) {
    const u32 subbuf = on().subbuf_size(ring_);
    const Done done{on(), ring_, ring_ + 1};
    switch (on().find(ring_, asker_)) {
      case Found::asking:
      case Found::nothing: return std::nullopt;
      case Found::ended: return std::string();
      case Found::failed: return tl::unexpected<Error>(on().error(ring_));
      case Found::data: break;
    }
    std::function<bool(u64, Bytes)> wanted;
    if (on().filtered()) {
      on().refresh();
      wanted = [this, name = on().name(ring_), clock = on().clock()](u64 time, Bytes payload) {
        return on().wanted(TraceRecord{clock.to_ns(time), 0, payload, ring_, 0}, name);
      };
    }
    Copy copy = copy_of(on().view(ring_), subbuf, static_cast<u32>(std::min<size_t>(size, subbuf)), wanted);
    if (!copy.bytes.empty()) on().consume(ring_, copy.end, copy.events);
    rest_ = std::move(copy.bytes);
  }
  std::string given = rest_.substr(0, size);
  rest_.erase(0, given.size());
  return given;
}

Copy copy_of(const SubBufferView& view, u32 subbuf_size, u32 room, const std::function<bool(u64, Bytes)>& wanted) {
  Copy copy;
  room = std::min(room, subbuf_size);
  if (room <= abi::header_size) return copy;
  room -= abi::header_size;
  const u32 capacity = subbuf_size - abi::header_size;
  // Copies first: the copy does not change during the walk.
  copy.bytes.resize(subbuf_size);
  auto* const data = reinterpret_cast<u8*>(copy.bytes.data()) + abi::header_size;
  const u32 bytes = std::min(view.end - view.begin, capacity);
  std::memcpy(data, view.sub_buffer + abi::header_size + view.begin, bytes);
  u32 end = 0;
  abi::EventCursor cursor(data, 0, bytes, view.time);
  std::vector<u32> unwanted;
  while (cursor.next() && cursor.position() <= room) {
    end = cursor.position();
    ++copy.events;
    if (wanted && !wanted(cursor.time(), cursor.payload())) unwanted.push_back(cursor.offset());
  }
  if (bytes <= room) end = bytes;  // with the padding after the last event
  copy.end = view.begin + end;
  if (end == 0) {
    copy.bytes.clear();
    return copy;
  }
  for (const u32 at : unwanted) {  // like the kernel's discard: padding of the same length
    u32 word;
    std::memcpy(&word, data + at, sizeof word);
    u32 length = abi::word_type(word) * 4;
    if (length == 0) std::memcpy(&length, data + at + 4, sizeof length);
    word = abi::event_word(abi::type_padding, std::max(abi::word_delta(word), 1u));
    std::memcpy(data + at, &word, sizeof word);
    std::memcpy(data + at + 4, &length, sizeof length);
  }
  std::memset(data + end, 0, capacity - end);
  u64 commit = end;
  if (view.lost_before != 0) {
    commit += abi::missed_events;
    if (capacity - end >= 8) {
      commit += abi::missed_stored;
      std::memcpy(data + end, &view.lost_before, sizeof view.lost_before);
    }
  }
  std::memcpy(copy.bytes.data(), &view.time, sizeof view.time);
  std::memcpy(copy.bytes.data() + 8, &commit, sizeof commit);
  return copy;
}

}  // namespace ringside::mount
