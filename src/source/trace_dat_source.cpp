#include "source/trace_dat_source.hpp"

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_cursor.hpp>
#include <utility>

#include "source/sub_buffer_copy.hpp"
#include "sys/try.hpp"

namespace ringside::trace_dat {
namespace {

constexpr u64 largest_chunk = u64{16} << 20;       // trace-cmd writes chunks of 40 KiB

}  // namespace

TraceDatSource::TraceDatSource(std::shared_ptr<TraceDatBytes> file, RingName name, const ClockInfo& clock, u32 subbuf_size,
                               const CpuData& data, Compression compression, const Counters& counters)
    : Source(std::move(name), clock), file_(std::move(file)), data_(data), counters_(counters), compression_(compression) {
  counters_.subbuf_size = subbuf_size;
  const u64 begin = std::min(data.offset, file_->size);
  // The size of compressed data does not include the number of chunks in front.
  const u64 size = data.size + (compression == Compression::none || data.size == 0 ? 0 : sizeof(u32));
  const u64 there = std::min(size, file_->size - begin);
  cut_ = there != size;
  all_ = rest_ = {file_->data + begin, there};
}

result<std::optional<SubBufferView>> TraceDatSource::next() {
  if (!shift_) return next_sub_buffer();
  if (!unshifted_) unshifted_ = RS_TRY(next_sub_buffer());
  if (!unshifted_) return std::nullopt;
  return next_piece();
}

// The events up to the first one that is shifted by another difference. An absolute time stamp would undo the shift, so what
// comes between two events ends a piece, too; each begins with an event.
SubBufferView TraceDatSource::next_piece() {
  SubBufferView piece = *unshifted_;
  abi::EventCursor at(piece.sub_buffer + abi::header_size, piece.begin, piece.end, piece.time);
  u64 difference = 0;
  u32 position = piece.begin;
  for (bool first = true;; first = false) {
    const u64 time = at.time();
    if (!at.next()) {
      if (first) piece.time = shift_->of(time);
      unshifted_.reset();
      return piece;
    }
    const u64 its = shift_->of(at.time()) - at.time();
    if (first) {
      difference = its;
      piece.begin = at.offset();
      piece.time = at.before() + difference;
    } else if (its != difference || at.offset() != position) {
      piece.end = position;
      *unshifted_ = {piece.sub_buffer, position, unshifted_->end, 0, time};
      return piece;
    }
    position = at.position();
  }
}

result<std::optional<SubBufferView>> TraceDatSource::next_sub_buffer() {
  if (file_->region.cut()) return refuse(std::errc::io_error, who() + "the file was truncated while it was read");
  if (pages_.size == 0) {
    RS_TRY(refill());
    if (pages_.size == 0) {
      if (!std::exchange(cut_, false)) return std::nullopt;
      return refuse(std::errc::io_error,
                    who() + "the file ends in the middle of its events: it was cut, or not written to its end");
    }
  }
  const auto size = static_cast<u32>(counters_.subbuf_size);
  const auto have = static_cast<u32>(std::min<u64>(pages_.size, size));
  const u8* const image = pages_.data;
  pages_ = {pages_.data + have, pages_.size - have};
  auto out = RS_TRY(foreign_ != nullptr ? convert(image, have) : view(image, have, size));
  const bool first = std::exchange(at_begin_, false);
  if (counters_.overrun != 0 && (first || out.lost_at_least)) [[unlikely]]
    place_overrun(out, first);
  return out;
}

// The kernel's counter knows of the same losses as the sub-buffers; it has numbers for gaps without one, and may know of more.
// The only gap without a number gets what the others lack; of several, each keeps "at least". Where there is none it is the
// ring's beginning: in overwrite mode the oldest are lost.
void TraceDatSource::place_overrun(SubBufferView& view, bool first) {
  if (!overrun_) {
    overrun_ = Overrun{};
    TraceDatSource all(file_, name_, clock_, static_cast<u32>(counters_.subbuf_size), data_, compression_, Counters{});
    all.foreign_ = foreign_;
    const u64 unpacked = file_->unpacked;  // only what is shown counts
    u64 told = 0;
    for (auto one = all.next(); one && *one; one = all.next()) {
      told += (*one)->lost_before;
      overrun_->gaps += (*one)->lost_at_least;
    }
    file_->unpacked = unpacked;
    overrun_->more = counters_.overrun - std::min(counters_.overrun, told);
  }
  if (overrun_->gaps > 1 || (overrun_->gaps == 1 ? !view.lost_at_least : !first)) return;
  view.lost_before += overrun_->more;
  if (overrun_->gaps == 1 && overrun_->more != 0) view.lost_at_least = false;
}

// A sub-buffer in place, or a copy where it is cut or not aligned.
result<SubBufferView> TraceDatSource::view(const u8* image, u32 have, u32 size) {
  if (have < size || reinterpret_cast<uintptr_t>(image) % 8 != 0) {
    page_.assign(size / 8, 0);
    std::memcpy(page_.data(), image, have);
    image = reinterpret_cast<const u8*>(page_.data());
  }
  SubBufferView view;
  if (have < abi::header_size || (!view_copy(image, have, size, view) && !cut_))
    return claims_more(view.end, have - std::min(have, abi::header_size));
  view.end = std::min(view.end, (have - abi::header_size) & ~3u);  // cut: the part that is there
  return view;
}

result<SubBufferView> TraceDatSource::convert(const u8* image, u32 have) {
  const u32 head = foreign_->data_at(), claimed = have < head ? 0 : foreign_->claimed({image, have});
  if (have < head || (claimed > have - head && !cut_)) return claims_more(claimed, have - std::min(have, head));
  const u32 size = ForeignSubBuffers::size_of(have);
  page_.assign((size + 7) / 8, 0);
  auto* const out = reinterpret_cast<u8*>(page_.data());
  foreign_->convert({image, have}, out);
  SubBufferView view;
  if (!view_copy(out, size, size, view)) return claims_more(view.end, size);
  return view;
}

tl::unexpected<Error> TraceDatSource::claims_more(u32 claimed, u32 there) const {
  return refuse(std::errc::bad_message, who() + "a sub-buffer claims " + std::to_string(claimed) + " bytes of data and has " +
                                            std::to_string(there) + "; the rest of it cannot be read");
}

u64 TraceDatSource::time_stamp(u64 index) const {
  const u8* const page = all_.data + index * counters_.subbuf_size;
  if (foreign_ != nullptr) return foreign_->time_stamp(page);
  abi::SubBufferHeader header{};
  std::memcpy(&header, page, sizeof header);
  return header.time_stamp;
}

std::string TraceDatSource::who() const {
  return file_->path + ", " + (name_.buffer.empty() ? "" : "buffer " + name_.buffer + ", ") + "cpu " +
         std::to_string(name_.ring) + ": ";
}

result<void> TraceDatSource::refill() {
  if (compression_ == Compression::none) {
    pages_ = std::exchange(rest_, Bytes{});
    return {};
  }
  Reader in(rest_, foreign_ != nullptr && foreign_->big_endian());
  if (!started_) chunks_ = rest_.size != 0 ? in.number<u32>() : 0;
  started_ = true;
  for (; chunks_ > 0 && in.ok && pages_.size == 0; --chunks_) {
    const auto packed = in.number<u32>();
    const auto size = in.number<u32>();
    const Bytes bytes = in.take(packed);
    if (!in.ok) break;
    if (size > largest_chunk || !may_expand_to(compression_, bytes, size) || !resize(size)) return damaged();
    if ((file_->unpacked += size) > file_->most_unpacked())
      return refuse(std::errc::file_too_large,
                    who() + "its compressed data would become far more than a file of its size may; the rest is not read");
    auto* const out = reinterpret_cast<u8*>(chunk_.data());
    if (!decompress(compression_, bytes, out, size)) return damaged();
    pages_ = {out, size};
  }
  rest_ = {in.at, in.left()};
  if (!in.ok) {
    rest_ = {};
    chunks_ = 0;
    if (!cut_) return damaged();
  }
  return {};
}

result<void> TraceDatSource::damaged() const {
  return refuse(std::errc::bad_message, who() + "its compressed data is damaged; the rest of it cannot be read");
}

bool TraceDatSource::resize(u32 size) {
  const u64 words = (u64{size} + 7) / 8;
  if (words <= chunk_.size()) return true;
  const u64 more = (words - chunk_.size()) * 8;
  if ((file_->decompressed += more) > file_->most_decompressed()) {
    file_->decompressed -= more;
    return false;
  }
  chunk_.resize(words);
  return true;
}

}  // namespace ringside::trace_dat
