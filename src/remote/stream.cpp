#include "remote/stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sys/try.hpp"

namespace ringside::remote {

// For each byte that arrives, 16 of payload may be checked, so that headers with false lengths cost little. Good frames take
// one, and damaged ones, whose bytes are searched for others, three at most.
constexpr u64 checks_per_byte = 16;

void FrameReader::feed(const u8* bytes, size_t n) {
  checks_ += checks_per_byte * n;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  bytes_.insert(bytes_.end(), bytes, bytes + n);
}

bool FrameReader::came_before(const FrameHeader& h) {
  Came& at = came_[h.sequence % remembered];
  const bool before = at.is && at.sequence == h.sequence && at.header_check == h.header_check;
  at = {h.sequence, h.header_check, true};
  return before;
}

bool FrameReader::next(Frame& frame, bool last) {
  const auto is_good = [this](const FrameHeader& h, const u8* payload) {
    if (h.bytes > checks_) return false;
    checks_ -= h.bytes;
    return h.payload_check == crc32(payload, h.bytes);
  };
  while (bytes_.size() - at_ >= sizeof(FrameHeader)) {
    const u8* const here = bytes_.data() + at_;
    FrameHeader h;
    std::memcpy(&h, here, sizeof h);
    const bool headed =
        h.sync == frame_sync && h.bytes <= most_frame_bytes && h.header_check == crc32(here, sizeof h - sizeof h.header_check);
    const bool whole = headed && bytes_.size() - at_ - sizeof h >= h.bytes;
    if (headed && !whole && !last) return false;
    // One that is cut may look as if it held others: its bytes are searched.
    if (!whole || !is_good(h, here + sizeof h)) {
      ++at_, ++skipped_;
      continue;
    }
    at_ += sizeof h + h.bytes;
    skipped_before_ = skipped_;
    if (came_before(h)) {
      ++repeated_, ++again_;
      continue;
    }
    payload_.resize((h.bytes + 7) / 8);
    if (h.bytes != 0) std::memcpy(payload_.data(), here + sizeof h, h.bytes);
    const auto ahead = static_cast<i32>(h.sequence - sequence_);
    const bool anew = frames_++ != 0 && ahead < 0;
    // A writer that begins anew may send its first frames as it did before.
    const u32 again = std::exchange(again_, 0),
              missing = anew ? h.sequence - std::min(h.sequence, again) : h.sequence - sequence_;
    missing_ += missing;
    sequence_ = h.sequence + 1;
    frame = {h, reinterpret_cast<const u8*>(payload_.data()), missing, anew};
    return true;
  }
  if (last) {
    skipped_ += bytes_.size() - at_;
    at_ = bytes_.size();
  }
  return false;
}

// Frames of both can be in one recording. A writer that begins anew with other firmware may have other abilities.
static bool is_like(const StreamHello& a, const StreamHello& b) {
  return a.version == b.version && a.clock == b.clock && a.subbuf_size == b.subbuf_size &&
         a.ticks_per_second == b.ticks_per_second;
}

ClockInfo clock_of_ticks(u64 ticks_per_second) {
  ClockInfo c;
  c.kind = ClockKind::counter;
  if (ticks_per_second == 0) return c;
  // ns = ticks * mult >> shift, as exact as 32 bits allow.
  c.kind = ClockKind::tsc;
  __extension__ using u128 = unsigned __int128;
  for (c.shift = 40; c.shift > 0; --c.shift) {
    const u128 mult = ((u128{1'000'000'000} << c.shift) + ticks_per_second / 2) / ticks_per_second;
    if (mult >> 32 != 0) continue;
    c.mult = static_cast<u32>(mult);
    break;
  }
  return c;
}

void StreamContent::begin_like(const ClockInfo& clock, u32 subbuf_size, const std::vector<EventInfo>& events) {
  assumed_ = clock;
  hello_.version = stream_version;
  hello_.subbuf_size = subbuf_size;
  known_ = true;
  know(events);
}

void StreamContent::know(const std::vector<EventInfo>& events) {
  for (const EventInfo& e : events)
    if (std::none_of(events_.begin(), events_.end(), [&](const EventInfo& k) { return k.id == e.id; })) events_.push_back(e);
}

static ClockInfo clock_told(const StreamHello& hello) {
  if (hello.clock == 0) return calibrate(ClockKind::tsc);
  return hello.clock == 2 ? clock_of_ticks(hello.ticks_per_second) : ClockInfo{};
}

ClockInfo StreamContent::clock() const { return assumed_ ? *assumed_ : clock_told(hello_); }

StreamContent::Ring& StreamContent::ring(u16 number) {
  for (auto& [n, ring] : rings_)
    if (n == number) return ring;
  return rings_.emplace_back(number, Ring{}).second;
}

void StreamContent::begin_anew() {
  ++restarts_;
  for (auto& [n, ring] : rings_) ring.expected = ring.refused = 0;
}

// The writer's count has 32 bits. One that goes back is a lie, or older.
void StreamContent::count_refused(Ring& r, u32 told) const {
  const u32 more = told - static_cast<u32>(r.refused);
  if ((hello_.abilities & stream_counts_refused) == 0 || static_cast<i32>(more) <= 0) return;
  r.refused += more;
  r.counters.dropped += more;
}

void StreamContent::end(const FrameHeader& h) {
  ended_ = true;
  if (h.events == 0) return;
  u64 told = 0;
  for (const auto& [n, ring] : rings_) told += ring.refused;
  refused_elsewhere_ = h.first - std::min(h.first, told);
  if (h.events == rings_.size()) missing_ = 0;  // there is no other ring
  counted_ = restarts_ == 0 && h.events >= rings_.size();
}

bool StreamContent::uncertain() const {
  const auto is_uncertain = [](const auto& ring) { return ring.second.uncertain; };
  return missing_ != 0 || std::any_of(rings_.begin(), rings_.end(), is_uncertain);
}

result<void> StreamContent::event(const Frame& frame) {
  EventInfo e;
  u32 id = 0;
  std::string* const texts[] = {&e.system, &e.name, &e.format};
  const auto cut = [] { return refuse(std::errc::bad_message, "an event's frame is cut: it is left out"); };
  if (frame.head.bytes < sizeof id) return cut();
  std::memcpy(&id, frame.payload, sizeof id);
  u32 at = sizeof id;
  for (std::string* text : texts) {
    const auto* const from = reinterpret_cast<const char*>(frame.payload) + at;
    const size_t n = strnlen(from, frame.head.bytes - at);
    if (n == frame.head.bytes - at) return cut();
    text->assign(from, n);
    at += static_cast<u32>(n) + 1;
  }
  if (id == 0 || id > 0xFFFF || e.system.empty() || e.name.empty())
    return refuse(std::errc::bad_message,
                  "an event without a name, or with the impossible number " + std::to_string(id) + ", is left out");
  e.id = static_cast<u16>(id);
  e.enabled = true;
  const auto same = std::find_if(events_.begin(), events_.end(), [&](const EventInfo& k) { return k.id == e.id; });
  if (same == events_.end())
    events_.push_back(std::move(e));
  else if (same->format != e.format || same->name != e.name)
    return refuse(std::errc::bad_message, "event " + std::to_string(id) + " was " + same->name + " before and is " + e.name +
                                              " now; it is shown as before");
  return {};
}

result<std::optional<SubBufferView>> StreamContent::sub_buffer(const Frame& frame) {
  const std::string where = "ring " + std::to_string(frame.head.ring);
  if (!known_) return refuse(std::errc::bad_message, where + ": a sub-buffer came before any hello; it is left out");
  if (frame.head.bytes < abi::header_size || frame.head.bytes > hello_.subbuf_size)
    return refuse(std::errc::bad_message,
                  where + ": a sub-buffer of " + std::to_string(frame.head.bytes) + " bytes is left out");
  const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(frame.payload);
  const u32 end = abi::commit_size(header.commit);
  if (end > frame.head.bytes - abi::header_size)
    return refuse(std::errc::bad_message, where + ": a sub-buffer claims to be longer than its frame; it is left out");
  abi::EventCursor c(frame.payload + abi::header_size, 0, end, header.time_stamp);
  u64 events = 0;
  while (c.next()) ++events;
  if (c.malformed() != abi::Malformed::no || events != frame.head.events)
    return refuse(std::errc::bad_message,
                  where + ": a sub-buffer is left out: " +
                      (events != frame.head.events && c.malformed() == abi::Malformed::no ? "it has other events than it claims"
                                                                                          : abi::to_string(c.malformed())));
  Ring& r = ring(frame.head.ring);
  if (frame.head.first < r.expected) begin_anew();
  r.uncertain = false;
  const u64 lost = frame.head.first - r.expected;
  missing_ -= std::min(missing_, lost);  // a frame has an event at least
  r.expected = frame.head.first + events;
  r.counters.written += lost + events;
  r.counters.overrun += lost;
  r.counters.read += events;
  count_refused(r, frame.head.refused);
  return SubBufferView{frame.payload, 0, end, lost, header.time_stamp};
}

result<std::optional<SubBufferView>> StreamContent::take(const Frame& frame) {
  if (frame.anew) begin_anew();
  missing_ += frame.missing;
  if (frame.missing != 0)
    for (auto& [n, ring] : rings_) ring.uncertain = true;
  switch (frame.head.kind) {
    case FrameKind::hello: {
      StreamHello h;
      if (frame.head.bytes != sizeof h) return refuse(std::errc::bad_message, "a hello of another length is left out");
      std::memcpy(&h, frame.payload, sizeof h);
      if (h.version != stream_version)
        return refuse(std::errc::not_supported,
                      "the stream has version " + std::to_string(h.version) + ", this program knows version 1");
      if (h.clock > 2 || !is_power_of_two(h.subbuf_size) || h.subbuf_size < abi::smallest_subbuf ||
          h.subbuf_size > abi::largest_subbuf)
        return refuse(std::errc::bad_message, "a hello with an unknown clock or an impossible sub-buffer size is left out");
      if (h.clock == 0 && !is_readable_here(static_cast<u32>(ClockKind::tsc)))
        return refuse(std::errc::bad_message,
                      "a hello whose clock is x86's time stamp counter is left out, because this machine does not have it");
      if (assumed_) {
        const ClockInfo told = clock_told(h);
        if (h.subbuf_size != hello_.subbuf_size || told.kind != assumed_->kind ||
            (h.clock == 2 && (told.mult != assumed_->mult || told.shift != assumed_->shift)))
          return refuse(std::errc::bad_message,
                        "the writer says hello with another clock or size than --like has; record it anew");
      } else if (known_ && !is_like(h, hello_)) {
        return refuse(std::errc::bad_message, "the writer says hello with another clock or size than before; record it anew");
      }
      hello_ = h;
      known_ = true;
      return std::nullopt;
    }
    case FrameKind::event:
      RS_TRY(event(frame));
      return std::nullopt;
    case FrameKind::sub_buffer: return sub_buffer(frame);
    case FrameKind::end: end(frame.head); return std::nullopt;
  }
  return refuse(std::errc::bad_message,
                "a frame of the unknown kind " + std::to_string(static_cast<u32>(frame.head.kind)) + " is left out");
}

}  // namespace ringside::remote
