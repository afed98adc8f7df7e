#include "mount/open_file.hpp"

#include <algorithm>
#include <cstring>

#include "instance/ring_source.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

constexpr size_t most_lanes_kept = 512;  // each keeps two descriptors and two mappings
u32 streams = 0;
std::map<u32, u32> streams_of;  // by user

std::string piece(std::string_view text, u64 offset, size_t size) {
  return offset >= text.size() ? "" : std::string(text.substr(offset, size));
}

// What the words of a mapped ring say is still the ring that was mapped.
bool same_ring(const RingView& view) noexcept {
  const Control& c = *view.ring().control;
  return !view.cut() && __atomic_load_n(&c.magic, __ATOMIC_ACQUIRE) == control_magic &&
         c.subbuf_size == view.ring().geometry.subbuf_size() && c.nr_subbufs == view.ring().geometry.nr_subbufs();
}

RingName name_of(const Mounted& on, u32 ring) {
  const InstanceWords words{const_cast<InstanceControl*>(&const_cast<Mounted&>(on).instance().control())};
  const RingEntry& e = words.ring(ring);
  return {ring, static_cast<i32>(e.pid), static_cast<i32>(e.tid), std::string(e.task, strnlen(e.task, 16)),
          std::string(e.process, strnlen(e.process, 16))};
}

}  // namespace

result<size_t> OpenFile::write(std::string_view, const Client&) { return fail(EINVAL, "this file is not written to"); }
result<bool> OpenFile::get_reader(bool) { return fail(ENOTTY, "this file knows no such command"); }

result<std::optional<std::string>> TextFile::read(u64 offset, size_t size) {
  if (!read_) return fail(EINVAL, "this file is not read");
  if (offset == 0) {
    auto text = RS_TRY(read_());
    text_ = std::move(text);
  }
  return piece(text_, offset, size);
}

result<size_t> TextFile::write(std::string_view bytes, const Client& client) {
  if (!write_) return fail(EINVAL, "this file is not written to");
  return write_(bytes, client);
}

TraceFile::~TraceFile() {
  if (!timeline_) return;
  --streams;
  if (--streams_of[uid] == 0) streams_of.erase(uid);
}

result<void> TraceFile::start() {
  if (!timeline_ && (streams >= most_streams || streams_of[uid] >= most_streams_of_a_user)) return fail(EBUSY, "too many traces are being read");
  if (!timeline_) {
    ++streams;
    ++streams_of[uid];
  }
  timeline_ = std::make_unique<Timeline>();
  look_ = make_look_();
  if (look_.problem) return tl::unexpected<Error>(*look_.problem);
  for (auto& source : look_.sources) timeline_->add(std::move(source));
  timeline_->hold_after(look_.until_ns);
  text_.clear();
  at_ = 0;
  any_ = done_ = false;
  started_.assign(timeline_->size(), false);
  fmt::format_to(std::back_inserter(text_),
                 "# tracer: nop\n#\n# entries-in-buffer/entries-written: {}/{}   #P:{}\n#\n"
                 "#                                _-----=> irqs-off/BH-disabled\n"
                 "#                               / _----=> need-resched\n"
                 "#                              | / _---=> hardirq/softirq\n"
                 "#                              || / _--=> preempt-depth\n"
                 "#                              ||| / _-=> migrate-disable\n"
                 "#                              |||| /     delay\n"
                 "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
                 "#              | |         |   |||||     |         |\n",
                 look_.in_buffer, look_.in_buffer + look_.overrun, look_.cpus);
  for (const std::string& sentence : look_.missing) fmt::format_to(std::back_inserter(text_), "# missing: {}\n", sentence);
  return {};
}

void TraceFile::produce(size_t size) {
  TraceRecord record;
  while (!done_ && text_.size() < size) {
    done_ = !timeline_->next(record);
    if (done_) return;
    const RingName& ring = timeline_->source(record.source).name();
    if (look_.wanted && !look_.wanted(record, ring)) continue;
    if (look_.overrun != 0 && !started_[record.source]) {
      started_[record.source] = true;
      if (any_) fmt::format_to(std::back_inserter(text_), "##### CPU {} buffer started ####\n", ring.ring);
    }
    any_ = true;
    look_.lines->print(record, ring, text_);
  }
}

Look look_at_instance(const std::shared_ptr<Mounted>& on, std::optional<u32> only) {
  on->refresh();
  Instance& instance = on->instance();
  Look look;
  look.cpus = on->cpus();
  look.lines = std::make_unique<TextLines>(on->formats(), on->tasks(), instance.clock().kind == ClockKind::counter, true);
  // Writers may be faster than we are.
  look.until_ns = instance.clock().kind == ClockKind::counter ? ~u64{0} : sys::now_ns() + 10'000'000;  // as exact as ticks become ns
  look.wanted = [on](const TraceRecord& record, const RingName& ring) { return on->wanted(record, ring); };
  for (const RingInfo& r : instance.rings()) {
    if (only && r.name.ring != *only) continue;
    auto source = instance.peek(r.name.ring);
    if (!source && source.error().code == std::errc::no_such_file_or_directory) continue;  // given back just now
    if (!source && source.error().code == std::errc::invalid_argument) {
      look.missing.push_back(source.error().sentence);
      continue;
    }
    if (!source) {
      look.problem = source.error();
      break;
    }
    look.in_buffer += r.counters.unread;
    look.overrun += r.counters.overrun;
    on->tasks().add(r.name);
    look.sources.push_back(std::move(*source));
  }
  return look;
}

result<std::optional<std::string>> TraceFile::read(u64 offset, size_t size) {
  if (offset == 0 || !timeline_)
    RS_TRY(start());
  if (offset < at_) return fail(EINVAL, "a trace is read from its start on");
  // What lies before `offset` was read: a reader that skips pays for it a piece at a time.
  while (at_ < offset) {
    produce(1 << 16);
    const size_t skipped = std::min<u64>(offset - at_, text_.size());
    if (skipped == 0) return std::string();
    std::memmove(text_.data(), text_.data() + skipped, text_.size() - skipped);
    text_.resize(text_.size() - skipped);
    at_ += skipped;
    if (at_ < offset && offset - at_ > (u64{1} << 24)) return fail(EINVAL, "a trace is read from its start on");
  }
  produce(size);
  return piece({text_.data(), text_.size()}, 0, size);
}

std::string take_lines(fmt::memory_buffer& text, size_t size) {
  const std::string_view all(text.data(), text.size());
  size_t n = std::min(size, all.size());
  if (n < all.size())
    if (const size_t line = all.rfind('\n', n - 1); line != std::string_view::npos) n = line + 1;
  std::string given(all.substr(0, n));
  std::memmove(text.data(), text.data() + n, text.size() - n);
  text.resize(text.size() - n);
  return given;
}

struct PipeFile::Lane {
  Lane(RingView v, RingName n) : view(std::move(v)), name(std::move(n)) {}
  RingView view;
  RingName name;
  // While it is locked:
  abi::EventCursor cursor{nullptr, 0, 0, 0};
  ReaderView seen;
  u64 base = 0, time = 0;  // clock ticks before `seen`; ns of the event under the cursor
  u32 taken = 0, events = 0;
  bool has_event = false, locked = false;

  void begin(const ClockInfo& clock) {
    has_event = false;
    while (view.reader().peek() == Got::data) {
      seen = view.reader().view();
      const u8* const data = view.reader().data();
      const u64 stamp = reinterpret_cast<const abi::SubBufferHeader*>(data - abi::header_size)->time_stamp;
      const u64 before = seen.begin == 0 ? stamp : abi::time_before(data, 0, seen.begin, stamp);
      cursor = abi::EventCursor(data, seen.begin, seen.end, before);
      taken = events = 0;
      if (step(clock)) return;
      finish();
    }
  }
  bool step(const ClockInfo& clock) {
    has_event = cursor.next();
    if (has_event) time = clock.to_ns(cursor.time());
    return has_event;
  }
  void took() {
    taken = cursor.position() - seen.begin;
    ++events;
  }
  // All of it was taken, or cannot be understood: what the writer counted is read.
  void finish() {
    view.reader().consume(seen.end - seen.begin, seen.events);
    taken = 0;
  }
  // As far as it was taken.
  void end() {
    if (has_event && taken != 0) view.reader().consume(taken, events);
    if (locked) view.unlock();
    locked = has_event = false;
    taken = 0;
  }
};

result<std::unique_ptr<PipeFile>> PipeFile::open(std::shared_ptr<Mounted> on, std::optional<u32> only) {
  if (only ? on->ring_pipes[*only] : on->pipes != 0) return fail(EBUSY, "trace_pipe is open already");
  return std::unique_ptr<PipeFile>(new PipeFile(std::move(on), only));
}

PipeFile::PipeFile(std::shared_ptr<Mounted> on, std::optional<u32> only) : OpenFile(on), on_(std::move(on)), only_(only) {
  if (only_)
    on_->ring_pipes[*only_] = true;
  else
    on_->pipes = 1;
}

PipeFile::~PipeFile() {
  if (only_)
    on_->ring_pipes.erase(*only_);
  else
    on_->pipes = 0;
}

void PipeFile::find_lanes() {
  if (const u64 now = on_->cpus(); lines_ == nullptr || now != tasks_of_ || on_->instance().control().nr_events != on_->formats().all().size()) {
    tasks_of_ = now;
    on_->refresh();
    lines_ = std::make_unique<TextLines>(on_->formats(), on_->tasks(), on_->instance().clock().kind == ClockKind::counter, true);
  }
  for (auto at = lanes_.begin(); at != lanes_.end();) at = same_ring(at->second->view) ? std::next(at) : lanes_.erase(at);
  for (u32 n = only_.value_or(0); n < (only_ ? *only_ + 1 : on_->cpus()); ++n) {
    if (lanes_.count(n) != 0) continue;
    auto view = on_->look(n);
    if (!view) continue;
    RingName name = name_of(*on_, n);
    on_->tasks().add(name);
    lanes_.emplace(n, std::make_unique<Lane>(std::move(*view), std::move(name)));
  }
}

void PipeFile::take(size_t size) {
  const ClockInfo& clock = on_->instance().clock();
  std::vector<Lane*> heap;
  const auto later = [](const Lane* a, const Lane* b) { return a->time > b->time; };
  for (auto& [n, lane] : lanes_) {
    lane->locked = lane->view.lock();
    if (!lane->locked) continue;  // another process takes these
    lane->begin(clock);
    if (lane->has_event) heap.push_back(lane.get());
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (text_.size() < size && !heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    Lane& lane = *heap.back();
    TraceRecord record{lane.time, lane.events == 0 ? lane.seen.lost_before : 0, {}, lane.name.ring, 0};
    if (record.lost != 0) lines_->print(record, lane.name, text_);
    record.lost = 0;
    record.payload = lane.cursor.payload();
    if (on_->wanted(record, lane.name)) lines_->print(record, lane.name, text_);
    lane.took();
    if (!lane.step(clock)) {
      lane.finish();
      lane.begin(clock);
    }
    if (lane.has_event)
      std::push_heap(heap.begin(), heap.end(), later);
    else
      heap.pop_back();
  }
  for (auto& [n, lane] : lanes_) lane->end();
  while (lanes_.size() > most_lanes_kept) lanes_.erase(std::prev(lanes_.end()));
}

result<std::optional<std::string>> PipeFile::read(u64, size_t size) {
  if (size == 0) return std::string();
  if (text_.size() == 0) {
    find_lanes();
    take(std::min<size_t>(size, 1 << 16));
  }
  if (text_.size() == 0) {
    // As in the kernel: who has read something, and recording is off, is at the end.
    if (gave_ && !on_->instance().tracing_on()) return std::string();
    return std::nullopt;
  }
  gave_ = true;
  return take_lines(text_, size);
}

bool PipeFile::ready(u32 percent) {
  if (text_.size() != 0) return true;
  find_lanes();
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& l) { return ring_ready(l.second->view.ring(), percent); });
}

RawFile::~RawFile() { unmap(); }

void RawFile::unmap() {
  if (!mapped_) return;
  mapped_ = false;
  if (auto table = on_->serve()) (*table)->close(ring_);
  --on_->users;
  on_->release();
}

result<sys::Fd> RawFile::map() {
  auto table = RS_TRY(on_->serve());
  auto handed = table->open(ring_);
  if (!handed) {
    on_->release();
    return tl::unexpected<Error>(handed.error());
  }
  mapped_ = true;
  ++on_->users;
  return std::move(handed->file);
}

RingView* RawFile::view() {
  if (mapped_) {
    auto table = on_->serve();
    auto found = table ? (*table)->view(ring_) : result<RingView*>(tl::unexpected<Error>(table.error()));
    return found ? *found : nullptr;
  }
  if (own_ && !same_ring(*own_)) own_.reset();
  if (!own_)
    if (auto looked = on_->look(ring_)) own_.emplace(std::move(*looked));
  return own_ ? &*own_ : nullptr;
}

bool RawFile::ready(u32 percent) {
  if (!image_.empty()) return true;
  const RingView* v = view();
  return v != nullptr && ring_ready(v->ring(), percent);
}

result<std::optional<std::string>> RawFile::read(u64, size_t size) {
  if (size == 0) return std::string();
  if (image_.empty()) {
    RingView* const v = view();
    if (v == nullptr) return std::nullopt;
    const u32 subbuf = v->ring().geometry.subbuf_size();
    const auto room = static_cast<u32>(std::min<size_t>(size, subbuf));
    std::function<bool(u64, Bytes)> wanted;
    if (on_->filtered()) {
      on_->refresh();
      wanted = [this, name = name_of(*on_, ring_)](u64 time, Bytes payload) {
        return on_->wanted(TraceRecord{time, 0, payload, ring_, 0}, name);
      };
    }
    auto image = take_image(*v, room, wanted);
    if (!image) return image;
    if (!*image) return std::nullopt;
    image_ = std::move(**image);
  }
  std::string given = image_.substr(0, size);
  image_.erase(0, given.size());
  return given;
}

result<bool> RawFile::get_reader(bool) {
  if (!on_->serving()) return fail(ENODEV, "the ring is not mapped");
  auto table = RS_TRY(on_->serve());
  auto mapped = table->view(ring_);  // by anybody: not of necessity through this descriptor
  if (!mapped) return tl::unexpected<Error>(mapped.error());
  RingView& v = **mapped;
  if (!v.lock()) return refuse(std::errc::device_or_resource_busy, "the ring is being consumed by another process");
  const Got got = v.reader().get_reader();
  v.unlock();
  if (got == Got::corrupt || v.cut()) return refuse(std::errc::io_error, "the words of the ring contradict each other, or its file was cut");
  return true;
}

Image image_of(const u8* from, u32 begin, u32 until, u64 before, u64 lost, const Geometry& g, u32 room,
               const std::function<bool(u64, Bytes)>& wanted) {
  Image image;
  if (room <= abi::header_size) return image;
  room -= abi::header_size;
  // A copy first: what is walked does not change under the walk.
  image.bytes.resize(g.subbuf_size());
  auto* const data = reinterpret_cast<u8*>(image.bytes.data()) + abi::header_size;
  const u32 bytes = until - begin;
  std::memcpy(data, from + begin, bytes);
  u32 end = 0;
  abi::EventCursor cursor(data, 0, bytes, before);
  std::vector<u32> unwanted;
  while (cursor.next() && cursor.position() <= room) {
    end = cursor.position();
    ++image.events;
    if (wanted && !wanted(cursor.time(), cursor.payload())) unwanted.push_back(cursor.offset());
  }
  if (bytes <= room) end = bytes;  // with the padding behind the last one
  image.end = begin + end;
  if (end == 0) {
    image.bytes.clear();
    return image;
  }
  for (const u32 at : unwanted) {  // as the kernel discards: padding of the same length
    u32 word;
    std::memcpy(&word, data + at, sizeof word);
    u32 length = abi::word_type(word) * 4;
    if (length == 0) std::memcpy(&length, data + at + 4, sizeof length);
    word = abi::event_word(abi::type_padding, std::max(abi::word_delta(word), 1u));
    std::memcpy(data + at, &word, sizeof word);
    std::memcpy(data + at + 4, &length, sizeof length);
  }
  std::memset(data + end, 0, g.capacity() - end);
  u64 commit = end;
  if (lost != 0) {
    commit += abi::missed_events;
    if (g.capacity() - end >= 8) {
      commit += abi::missed_stored;
      std::memcpy(data + end, &lost, sizeof lost);
    }
  }
  std::memcpy(image.bytes.data(), &before, sizeof before);
  std::memcpy(image.bytes.data() + 8, &commit, sizeof commit);
  return image;
}

result<std::optional<std::string>> take_image(RingView& view, u32 room, const std::function<bool(u64, Bytes)>& wanted) {
  if (room <= abi::header_size) return std::string();
  if (!view.lock()) return refuse(std::errc::device_or_resource_busy, "the ring is being consumed by another process");
  struct Unlock {
    RingView& v;
    ~Unlock() { v.unlock(); }
  } const unlock{view};
  Reader<>& reader = view.reader();
  const Got got = reader.peek();
  if (got == Got::corrupt) return refuse(std::errc::io_error, "the control words of the ring contradict each other");
  if (got == Got::nothing) return std::nullopt;
  const ReaderView v = reader.view();
  const Geometry& g = view.ring().geometry;
  const u8* const data = reader.data();
  const u64 stamp = reinterpret_cast<const abi::SubBufferHeader*>(data - abi::header_size)->time_stamp;
  const u64 before = v.begin == 0 ? stamp : abi::time_before(data, 0, v.begin, stamp);
  Image image = image_of(data, v.begin, v.end, before, v.lost_before, g, room, wanted);
  if (image.bytes.empty()) return std::string();
  reader.consume(image.end - v.begin, image.end == v.end ? v.events : image.events);
  return std::move(image.bytes);
}

}  // namespace ringside::mount
