// The reader's end of ringside/remote/stream.hpp: finds frames in bytes of which any may be missing or wrong, and counts
// missing ones. No input makes it take more than a frame's worth of memory, or stop for good.
#pragma once
#include <optional>
#include <ringside/remote/stream.hpp>
#include <vector>

#include "clock/clock.hpp"
#include "source/source.hpp"

namespace ringside::remote {

// Of a writer that counts this many ticks a second; 0: no time.
ClockInfo clock_of_ticks(u64 ticks_per_second);

struct Frame {
  FrameHeader head{};
  const u8* payload = nullptr;  // head.bytes; aligned to 8; until the next call
  u32 missing = 0;              // frames that did not arrive between the one before, or the writer's first, and this one
  bool anew = false;            // the writer began anew in between, with frame 0
};

class FrameReader {
 public:
  void feed(const u8* bytes, size_t n);
  // The next good frame. last: nothing more will be fed.
  bool next(Frame& frame, bool last = false);

  u64 skipped() const { return skipped_; }  // bytes that belong to no good frame
  // Bytes have come after the last good frame, and nothing shows yet which frames they were.
  bool open_end() const { return skipped_ != skipped_before_ || at_ != bytes_.size(); }
  u64 missing() const { return missing_; }  // frames that were sent but did not arrive whole, by their sequence numbers
  u64 frames() const { return frames_; }
  u64 repeated() const { return repeated_; }  // frames that came again, byte for byte: they are left out

 private:
  bool came_before(const FrameHeader& h);
  std::vector<u8> bytes_;
  size_t at_ = 0;
  std::vector<u64> payload_;
  u64 skipped_ = 0, missing_ = 0, frames_ = 0;
  u64 skipped_before_ = 0;  // the last good frame
  u64 checks_ = 0;          // bytes of payload that may still be checked
  u32 sequence_ = 0;  // the next frame's
  // A line may send a part of its bytes twice. The last frames by their numbers: a header's checksum covers the payload's.
  static constexpr u32 remembered = 4096;
  struct Came {
    u32 sequence = 0, header_check = 0;
    bool is = false;
  };
  std::vector<Came> came_ = std::vector<Came>(remembered);
  u64 repeated_ = 0;
  u32 again_ = 0;  // those since the last new frame
};

// Assembles the content of frames. An error concerns one frame, which is then left out.
class StreamContent {
 public:
  struct Ring {
    u64 expected = 0;
    Counters counters;
    u64 refused = 0;         // since the writer began (anew)
    bool uncertain = false;  // a frame is missing that may have been its newest
  };
  // A sub-buffer for `ring`, or nothing, for a frame of hello, events or the end.
  result<std::optional<SubBufferView>> take(const Frame& frame);

  bool known() const { return known_; }  // hello has come
  void begin_like(const ClockInfo& clock, u32 subbuf_size, const std::vector<EventInfo>& events);
  void know(const std::vector<EventInfo>& events);
  bool ended() const { return ended_; }
  u32 subbuf_size() const { return hello_.subbuf_size; }
  bool has_own_clock() const { return hello_.clock == 2; }  // the writer: it begins anew with the writer
  ClockInfo clock() const;
  const std::vector<EventInfo>& events() const { return events_; }
  const std::vector<std::pair<u16, Ring>>& rings() const { return rings_; }
  u64 restarts() const { return restarts_; }
  // The writer has counted the refused events of its rings to their end: those of the rings, and those that no ring has.
  bool counts_refused() const { return counted_; }
  u64 refused_elsewhere() const { return refused_elsewhere_; }
  bool uncertain() const;  // frames are missing, and no later one counts what was in them

 private:
  result<std::optional<SubBufferView>> sub_buffer(const Frame& frame);
  result<void> event(const Frame& frame);
  void begin_anew();  // the writer did, with event 0 of each ring
  void end(const FrameHeader& h);
  void count_refused(Ring& r, u32 told) const;
  Ring& ring(u16 number);

  StreamHello hello_{};
  std::optional<ClockInfo> assumed_;  // by begin_like()
  bool known_ = false, ended_ = false, counted_ = false;
  u64 missing_ = 0;  // frames that no gap of a ring accounts for: each may have been of a ring that sent no other
  u64 refused_elsewhere_ = 0;
  std::vector<EventInfo> events_;
  std::vector<std::pair<u16, Ring>> rings_;
  u64 restarts_ = 0;
};

}  // namespace ringside::remote
