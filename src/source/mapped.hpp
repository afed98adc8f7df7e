// The consumer of any ring that is mapped in the kernel's layout: a meta-page, then the sub-buffers by id. Rings differ only in
// how the next reader page is asked for:
//
//   MappedSource<ServedGetReader> source(std::move(region), geometry, std::move(get), options);
//   while (auto view = must(source.next())) walk(*view);
//
// A GetReader's get_reader() does the same as TRACE_MMAP_IOCTL_GET_READER: it either catches up on the reader page or swaps
// once, and counts all that it found as read. The mapping and everything in it belongs to the other side: the id is checked
// against this side's geometry, every length is clamped, each word is loaded once. Events are shown in place, so another
// mapper's swap or a hostile peer may change them during the walk: the walk stays inside its bounds in any case, and
// Options::copies takes the bytes out of the peer's reach first (for consumers with more rights than the peer).
//
// Cost: one get_reader() a call. Not for several threads at once.
#pragma once
#include <algorithm>
#include <chrono>
#include <concepts>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/meta_page.hpp>
#include <ringside/base/memory_hardware.hpp>
#include <ringside/ring/geometry.hpp>

#include "source/source.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {

// The result of a get_reader().
struct ReaderStep {
  bool placed = false;  // id and read are set here, as one pair; else they are loaded from the meta-page
  u32 id = 0, read = 0;
  u64 lost = 0;        // events lost before these, if the other side reports them beside the sub-buffer
  bool lost_at_least = false;  // SubBufferView::lost_at_least
  bool ended = false;  // the writer was gone for good before this call looked
};

template <class G>
concept GetReader = requires(G& g, int percent, std::chrono::nanoseconds timeout) {
  { g.get_reader() } -> std::same_as<result<ReaderStep>>;
  { g.wait(percent, timeout) } -> std::same_as<result<bool>>;  // false: timed out
};

template <GetReader G>
class MappedSource final : public Source {
 public:
  struct Options {
    RingName name;
    ClockInfo clock;
    bool copies = false;
    // The meta-page's position when the ring was opened: others have read the events before it. Empty: use the meta-page's.
    std::optional<std::pair<u32, u32>> start;
    std::vector<const u8*> pages{};  // the sub-buffers, where the region does not have them
  };

  // region: the whole mapping, or a first part that holds all sub-buffers of `geometry`.
  MappedSource(sys::Region region, const Geometry& geometry, G get, Options options)
      : Source(std::move(options.name), options.clock),
        region_(std::move(region)),
        geometry_(geometry),
        get_(std::move(get)),
        pages_(std::move(options.pages)),
        copies_(options.copies) {
    const auto [id, read] = options.start ? *options.start : place();
    if (!geometry_.holds(id)) return;
    id_ = id;
    read_ = clamp(read);
    stamp_ = header(id).time_stamp;
    begin_ = 0;
    time_ = stamp_;
  }

  result<std::optional<SubBufferView>> next() override {
    auto step = RS_TRY(get_.get_reader());
    if (region_.cut()) return refuse(std::errc::io_error, who() + ": its file was truncated while it was read");
    ended_ = step.ended;
    const auto [id, read] = step.placed ? std::pair{step.id, step.read} : place();
    if (!geometry_.holds(id))
      return refuse(std::errc::illegal_byte_sequence, who() + ": its meta-page names sub-buffer " + std::to_string(id) +
                                                          " of " + std::to_string(geometry_.nr_subbufs()) +
                                                          ": what was read before is good");
    const u8* const bytes = page(id);
    const u64 commit = Hardware::load(&header(id).commit, Order::acquire);
    const u64 stamp = Hardware::load(&header(id).time_stamp, Order::relaxed);
    // One call may return to the same sub-buffer after a lap (a ring whose other sub-buffers hold only padding).
    const bool fresh = id != id_ || stamp != stamp_;
    const u32 begin = fresh ? 0 : read_;
    const u32 end = clamp(std::min(read, abi::commit_size(commit)));
    if (end <= begin) {
      if (fresh) note(id, stamp, 0, 0, stamp);
      return std::nullopt;
    }
    u64 lost = step.lost;
    bool at_least = step.lost_at_least;
    if (begin == 0 && abi::commit_missed(commit) && !at_least) {
      if (const auto stored = missed(bytes, commit))
        lost = *stored;
      else if (lost == 0)
        lost = 1, at_least = true;
    }
    const u8* shown = bytes;
    if (copies_) {
      copy_.resize(geometry_.subbuf_size() / 8);
      Hardware::copy_in(copy_.data(), bytes, abi::header_size);
      copy_[0] = stamp;
      Hardware::copy_in(reinterpret_cast<u8*>(copy_.data()) + abi::header_size + begin, bytes + abi::header_size + begin,
                        end - begin);
      shown = reinterpret_cast<const u8*>(copy_.data());
    }
    // The time before `begin`: continues from the start of the last view.
    const u64 time = begin == 0 ? stamp : abi::time_before(bytes + abi::header_size, begin_, begin, time_);
    note(id, stamp, begin, end, time);
    return SubBufferView{shown, begin, end, lost, time, at_least};
  }

  // Sleeps until there is something to read, or the ring is `percent` full; false: timed out.
  result<bool> wait(int percent, std::chrono::nanoseconds timeout) { return get_.wait(percent, timeout); }

  Counters counters() const override {
    Counters n;
    if constexpr (requires(const G& g) {
                    { g.counters() } -> std::same_as<std::optional<Counters>>;
                  }) {
      if (auto known = get_.counters()) n = *known;
    } else {
      const abi::MetaPage& m = meta();
      n.written = Hardware::load(&m.entries, Order::relaxed);
      n.overrun = Hardware::load(&m.overrun, Order::relaxed);
      n.read = Hardware::load(&m.read, Order::relaxed);
      n.unread = n.written - n.read - n.overrun;
      if (static_cast<i64>(n.unread) < 0) n.unread = 0;
      n.capacity_bytes = u64{geometry_.nr_slots()} * geometry_.capacity();
    }
    n.subbuf_size = geometry_.subbuf_size();
    n.nr_subbufs = geometry_.nr_subbufs();
    return n;
  }
  bool ended() const override { return ended_; }
  const abi::MetaPage& meta() const noexcept { return *reinterpret_cast<const abi::MetaPage*>(region_.data()); }
  G& get() noexcept { return get_; }
  const G& get() const noexcept { return get_; }

 private:
  const u8* page(u32 id) const noexcept { return pages_.empty() ? region_.data() + geometry_.offset_of(id) : pages_[id]; }
  std::string who() const { return "ring " + std::to_string(name_.ring); }
  const abi::SubBufferHeader& header(u32 id) const noexcept { return *reinterpret_cast<const abi::SubBufferHeader*>(page(id)); }
  std::pair<u32, u32> place() const noexcept {
    const u32 id = Hardware::load(&meta().reader.id, Order::acquire);
    return {id, Hardware::load(&meta().reader.read, Order::acquire)};
  }
  u32 clamp(u32 bytes) const noexcept { return std::min(bytes, geometry_.capacity()) & ~3u; }

  void note(u32 id, u64 stamp, u32 begin, u32 end, u64 time) noexcept {
    id_ = id;
    stamp_ = stamp;
    begin_ = begin;
    read_ = end;
    time_ = time;
  }

  // The commit word says that events were missed; their number follows the data, where it fits.
  std::optional<u64> missed(const u8* bytes, u64 commit) const noexcept {
    const u32 data = abi::commit_size(commit);
    if (abi::commit_stored(commit) && data % 4 == 0 && data <= geometry_.capacity() - 8) {
      const auto* const at = reinterpret_cast<const u32*>(bytes + abi::header_size + data);
      const u64 low = Hardware::load(at, Order::relaxed);
      return u64{Hardware::load(at + 1, Order::relaxed)} << 32 | low;
    }
    return std::nullopt;
  }

  sys::Region region_;
  Geometry geometry_;
  G get_;
  std::vector<const u8*> pages_;
  bool copies_;
  u32 id_ = ~0u;              // the sub-buffer of the last view, and
  u64 stamp_ = 0;             // the time of its start
  u32 begin_ = 0, read_ = 0;  // the last view; events before read_ are consumed
  u64 time_ = 0;              // running time before begin_
  bool ended_ = false;
  std::vector<u64> copy_;
};

}  // namespace ringside
