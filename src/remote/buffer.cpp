#include "remote/buffer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "remote/survey.hpp"
#include "source/mapped.hpp"
#include "sys/as_memory_allows.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside::remote {
namespace {

std::string of_ring(const std::string& who, u32 ring) { return who + ", ring " + std::to_string(ring); }

}  // namespace

// This side's state of one ring: its reader page, and how far that is read. The consumer's thread advances it; the poller only
// looks.
class RingReader {
 public:
  RingReader(Buffer& buffer, u32 ring, const Geometry& geometry, Buffer::Options::Pages memory)
      : buffer_(buffer), ring_(ring), geometry_(geometry), meta_(memory.meta), pages_(std::move(memory.by_id)) {}
  const std::vector<const u8*>& pages() const noexcept { return pages_; }
  const Geometry& geometry() const noexcept { return geometry_; }

  result<ReaderStep> next() {
    if (buffer_.is_gone()) return salvage();
    const ReaderStep here = find(0);
    if (here.read > before_) return here;
    const u64 entries = shown_entries();
    if (footers() || !asked_ || entries != entries_) {
      const u32 read = read_.load(std::memory_order_relaxed);
      if (!tells_read_) handed_out_ = read_before_ + count_events(pages_[id_.load(std::memory_order_relaxed)], read);
      auto swapped = buffer_.callbacks_.swap_reader(ring_, read);
      if (!swapped) {
        if (buffer_.is_gone()) return salvage();
        counted_ = false;
        return tl::unexpected<Error>(swapped.error());
      }
      count_refused(swapped->refused, swapped->counted);
      switch (swapped->what) {
        case Swap::nothing:
          asked_ = true;
          entries_ = entries;
          return here;
        case Swap::more: return find(0);
        case Swap::corrupt:
          return given_up(std::errc::illegal_byte_sequence,
                          "its writer found its own words in contradiction and gave the ring up");
        case Swap::swapped: {
          const u32 id = place(swapped->id);
          if (!geometry().holds(id))
            return given_up(std::errc::illegal_byte_sequence,
                            "it names sub-buffer " + std::to_string(id) + " of " + std::to_string(geometry().nr_subbufs()) +
                                " as the reader's; data read before is good");
          return turn_to(id);
        }
      }
      return given_up(std::errc::protocol_error, "it answers a swap with " + std::to_string(static_cast<u32>(swapped->what)) +
                                                     ", which means nothing");
    }
    if (buffer_.callbacks_.look_after) {
      buffer_.callbacks_.look_after();
      if (buffer_.is_gone()) return salvage();
    }
    return here;
  }

  // From a thread other than the reader's, the answer is only a hint.
  bool readable() const {
    const u32 id = id_.load(std::memory_order_relaxed);
    if (commit_of(pages_[id]) > read_.load(std::memory_order_relaxed)) return true;
    if (buffer_.is_gone()) return !ended_;
    if (!footers()) return shown_entries() != entries_.load(std::memory_order_relaxed);
    const u64 own = position_of(id);
    for (const u8* page : pages_) {
      const auto& f = footer_at(page);
      if (Hardware::load(&f.pages_touched, Order::relaxed) > own && commit_of(page) != 0) return true;
      // Before the first swap, the reader page has no position.
      if (read_.load(std::memory_order_relaxed) == 0 && commit_of(pages_[id]) == 0 && page != pages_[id] &&
          commit_of(page) != 0)
        return true;
    }
    return false;
  }

  // Counts finished, unread sub-buffers, as the kernel does for buffer_percent.
  bool is_full(int percent) const {
    if (percent <= 0) return true;
    u64 dirty = 0;
    const u64 now = reader_time();
    for (const u8* page : pages_)
      if (commit_of(page) != 0 && time_of(page) > now) ++dirty;
    return dirty * 100 >= static_cast<u64>(percent) * geometry().nr_slots();
  }

  Counters counters() {
    Counters n;
    n.subbuf_size = geometry().subbuf_size();
    n.nr_subbufs = geometry().nr_subbufs();
    n.capacity_bytes = u64{geometry().nr_slots()} * geometry().capacity();
    n.resident_bytes = u64{geometry().subbuf_size()} * (geometry().nr_subbufs() + 1);
    const u32 id = id_.load(std::memory_order_relaxed);
    const u32 read = std::min(read_.load(std::memory_order_relaxed), geometry().capacity());
    n.read = read_before_ + count_events(pages_[id], read);
    if (buffer_.is_gone()) return left_behind(n);
    n.dropped = refused_;
    n.refusals = refusals();
    const Survey s = survey();
    u64 written = s.reader_base;
    for (const PageSeen& p : s.pages) {
      const bool own = p.id == id && s.has_reader;
      n.unread += p.events - (own ? std::min(p.events, count_events(pages_[id], read)) : 0);
      n.bytes += p.end - (own ? std::min(read, p.end) : 0);
      if (n.oldest_time == 0 && (!own || p.end > read)) n.oldest_time = p.time;
      written = std::max(written, p.base + p.events);
    }
    if (footers()) {
      n.written = std::max(written, n.read + n.unread + lost_);
      n.overrun = n.written - n.read - n.unread;
    } else {
      n.written = Hardware::load(&meta().entries, Order::relaxed);
      n.overrun = Hardware::load(&meta().overrun, Order::relaxed);
      n.unread = n.written - n.read - n.overrun;
      if (static_cast<i64>(n.unread) < 0) n.unread = 0;  // in flight
    }
    if (std::max({n.written, n.overrun, n.unread}) > buffer_.most_written()) {  // something has written over its words
      n.overrun = lost_;
      n.unread = 0;
      n.written = n.read + n.overrun;
    }
    return n;
  }

  // A reset that was not answered in time may be carried out at any later moment. Invariant: from then until the writer has
  // answered or is gone, no source of this ring exists, so this side neither reads the sub-buffers nor swaps by the state
  // before.
  result<void> reset() {
    auto done = buffer_.callbacks_.reset(ring_);
    unsettled_ = !done && (done.error().code == std::errc::timed_out || buffer_.is_gone());
    if (done) begin_anew();
    return done;
  }
  // Repeats it; without an error, what this side knows of the ring is right again. A refusal leaves the ring as it was. If the
  // writer is gone, its reader page shows whether it carried the reset out.
  result<void> settle() {
    if (unsettled_ && !buffer_.is_gone()) {
      auto done = reset();
      if (unsettled_ && !buffer_.is_gone()) return done;
    }
    if (std::exchange(unsettled_, false) && !is_as_before()) begin_anew();
    return {};
  }

  void ask_again() noexcept { asked_ = counted_ = false; }

  // Any thread.
  u64 refused() const {
    const auto last = last_refused();
    return last ? refused_by(*last) : refused_.load(std::memory_order_relaxed);
  }

  Refusals refusals() const {
    return (buffer_.is_gone() ? last_refused().has_value() : counted_) ? Refusals::in_sum : Refusals::at_least;
  }

  // Back to sub-buffer 0, with nothing read.
  void begin_anew() {
    refused_ = 0;
    id_ = 0;
    read_ = 0;
    entries_ = 0;
    lost_ = read_before_ = handed_out_ = position_ = time_ = 0;
    asked_ = tells_read_ = false;
    before_ = 0;
    queue_.clear();
    salvaging_ = ended_ = false;
    ++resets_;
  }
  u64 resets() const noexcept { return resets_; }

  // The reader page, and how much of it was handed out: where the next source begins.
  std::pair<u32, u32> start() const noexcept {
    return {id_.load(std::memory_order_relaxed), read_.load(std::memory_order_relaxed)};
  }

  u32 ring() const noexcept { return ring_; }
  Buffer& buffer() const noexcept { return buffer_; }
  bool taken = false;  // a Source for it exists

 private:
  // It is not asked again, so its count of refused events may be too small.
  tl::unexpected<Error> given_up(std::errc code, const std::string& sentence) {
    counted_ = false;
    return refuse(code, of_ring(buffer_.options_.who, ring_) + ": " + sentence);
  }
  bool footers() const noexcept { return buffer_.plan_.layout == Layout::footers; }
  const abi::MetaPage& meta() const noexcept { return *reinterpret_cast<const abi::MetaPage*>(meta_); }
  u64 shown_entries() const noexcept { return Hardware::load(&meta().entries, Order::acquire); }
  const abi::PageFooter& footer_at(const u8* page) const noexcept {
    return *reinterpret_cast<const abi::PageFooter*>(page + geometry().subbuf_size() - abi::footer_size);
  }
  const abi::PageFooter& footer(u32 id) const noexcept { return footer_at(pages_[id]); }
  u64 position_of(u32 id) const noexcept { return Hardware::load(&footer(id).pages_touched, Order::relaxed); }
  u32 commit_of(const u8* page) const noexcept {
    const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(page);
    const u32 end = abi::commit_size(Hardware::load(&header.commit, Order::acquire)) & ~3u;  // pairs: COMMIT
    return std::min(end, geometry().capacity());
  }
  static u64 time_of(const u8* page) noexcept {
    return Hardware::load(&reinterpret_cast<const abi::SubBufferHeader*>(page)->time_stamp, Order::relaxed);
  }
  // The reader page has neither been emptied nor begun again since this side turned to it.
  bool is_as_before() const noexcept {
    const u32 id = id_.load(std::memory_order_relaxed);
    return time_of(pages_[id]) == time_ && (!footers() || position_of(id) == position_);
  }
  u64 reader_time() const noexcept {
    const u8* page = pages_[id_.load(std::memory_order_relaxed)];
    return commit_of(page) == 0 ? 0 : time_of(page);
  }

  // The writer's count has 32 bits. One that goes back is a lie.
  u64 refused_by(u32 told) const noexcept {
    const u64 before = refused_.load(std::memory_order_relaxed);
    const u32 more = told - static_cast<u32>(before);
    return before + (static_cast<i32>(more) > 0 ? more : 0);
  }
  void count_refused(u32 told, bool counted) noexcept {
    counted_ = counted;
    if (counted) refused_.store(refused_by(told), std::memory_order_relaxed);
  }
  std::optional<u32> last_refused() const {
    return buffer_.is_gone() && buffer_.callbacks_.last_refused ? buffer_.callbacks_.last_refused(ring_) : std::nullopt;
  }

  // The reader page's present state; `before_` is how far it had been read.
  ReaderStep find(u64 lost) {
    const u32 id = id_.load(std::memory_order_relaxed);
    before_ = read_.load(std::memory_order_relaxed);
    const u32 end = std::max(commit_of(pages_[id]), before_);
    read_.store(end, std::memory_order_relaxed);
    ReaderStep step;
    step.placed = true;
    step.id = id;
    step.read = end;
    step.lost = lost;
    return step;
  }

  // The reader page's id according to the writer, which answered `hint`.
  u32 place(u32 hint) const noexcept {
    if (!footers()) return Hardware::load(&meta().reader.id, Order::acquire);  // pairs: PLACE
    const auto is_reader = [&](u32 id) {
      return (Hardware::load(&footer(id).reader_status, Order::acquire) & abi::footer_reader) != 0;  // pairs: PLACE
    };
    if (geometry().holds(hint) && is_reader(hint)) return hint;
    for (u32 id = 0; id < geometry().nr_subbufs(); ++id)
      if (is_reader(id)) return id;
    return ~0u;
  }

  ReaderStep turn_to(u32 id) {
    u64 lost = footers() ? Hardware::load(&footer(id).overrun, Order::relaxed) - lost_
                         : Hardware::load(&meta().reader.lost_events, Order::relaxed);
    const bool is_number = lost <= buffer_.most_written();
    if (!is_number) lost = 1;
    // To walk over each sub-buffer costs a third of the time that it is read in, and not every writer counts what was read.
    const u64 told =
        footers() ? Hardware::load(&footer(id).entries, Order::relaxed) - Hardware::load(&footer(id).overrun, Order::relaxed)
                  : Hardware::load(&meta().read, Order::relaxed);
    tells_read_ = told != 0 && told <= buffer_.most_written();
    read_before_ = tells_read_ ? told : handed_out_;
    lost_ += lost;
    id_.store(id, std::memory_order_relaxed);
    read_.store(0, std::memory_order_relaxed);
    position_ = footers() ? position_of(id) : 0;
    time_ = time_of(pages_[id]);
    asked_ = false;
    ReaderStep step = find(lost);
    step.lost_at_least = !is_number;
    return step;
  }

  Survey survey() const {
    return footers() ? survey_footers(pages_, geometry().subbuf_size(), ring_)
                     : survey_stamps(pages_, geometry(), id_.load(std::memory_order_relaxed), ring_);
  }

  // The writer is gone: reads the sub-buffers that it left, one after the other.
  result<ReaderStep> salvage() {
    if (!salvaging_) begin_salvage();
    const ReaderStep rest = find(0);
    if (rest.read > before_) return rest;
    if (queue_.empty()) {
      ended_ = true;
      ReaderStep step = rest;
      step.ended = true;
      return step;
    }
    const PageSeen p = queue_.back();
    queue_.pop_back();
    const u64 lost = footers() ? (p.base > expected_ ? p.base - expected_ : 0) : std::exchange(missing_, 0);
    lost_ += lost;
    read_before_ = footers() ? p.base - lost_ : read_before_ + count_events(pages_[id_], read_);
    expected_ = p.base + p.events;
    id_ = p.id;
    read_ = 0;
    return find(lost);
  }

  // The counters of a ring whose writer is gone: all that salvage() has given and will give.
  Counters left_behind(Counters n) {
    (void)settle();
    if (!salvaging_) begin_salvage();
    n.dropped = refused();
    n.refusals = refusals();
    const u32 end = commit_of(pages_[id_]), read = std::min<u32>(read_, end);
    n.read = read_before_ + count_events(pages_[id_], read);
    n.unread = count_events(pages_[id_], end) - count_events(pages_[id_], read);
    n.bytes = end - read;
    n.overrun = lost_ + missing_;
    u64 expected = expected_;
    for (auto p = queue_.rbegin(); p != queue_.rend(); ++p) {
      n.unread += p->events;
      n.bytes += p->end;
      if (footers() && p->base > expected) n.overrun += p->base - expected;
      expected = p->base + p->events;
    }
    n.written = n.read + n.unread + n.overrun;
    return n;
  }

  void begin_salvage() {
    salvaging_ = true;
    // A swap whose answer did not arrive: the previous page was read completely.
    if (const u32 now = place(~0u); now != id_ && geometry().holds(now) &&
                                    (footers() ? position_of(now) >= position_ : time_of(pages_[now]) > time_)) {
      (void)turn_to(now);
      read_ = before_ = 0;
    }
    const u32 id = id_;
    const bool stood = read_ != 0 || commit_of(pages_[id]) != 0;
    // Or the writer died before it could answer: this side's page is in the ring again, perhaps with new events.
    const bool moved = stood && (footers() ? position_of(id) != position_ : read_ != 0 && time_of(pages_[id]) != time_);
    const u64 own_position = footers() ? position_ : 0, own_time = moved ? time_ : time_of(pages_[id]);
    const u64 on_page = moved ? 0 : count_events(pages_[id], read_);
    Survey s = survey();
    u64 there = 0;
    for (const PageSeen& p : s.pages) {
      if (p.id == id && !moved) {
        there += p.events - std::min(p.events, on_page);
        continue;
      }
      if (stood && (footers() ? p.position <= own_position : p.time <= own_time)) continue;
      queue_.push_back(p);
      there += p.events;
    }
    std::reverse(queue_.begin(), queue_.end());
    expected_ = lost_ + read_before_ + (moved ? 0 : count_events(pages_[id], commit_of(pages_[id])));
    if (moved) {
      read_ = commit_of(pages_[id]);
      expected_ = queue_.empty() ? expected_ : queue_.back().base;
    }
    if (footers() || moved) return;
    // Two counts of overwritten events. The writer may have died between an event's commit and its count in `entries`, which
    // makes the first one too small, or between the count in `overrun` and the end of the oldest sub-buffer, which is then
    // still there.
    const u64 written = shown_entries(), known = read_before_ + on_page + lost_ + there;
    const u64 overrun = Hardware::load(&meta().overrun, Order::relaxed);
    const u64 by_entries = written > known ? written - known : 0, by_overrun = overrun > lost_ ? overrun - lost_ : 0;
    const u64 oldest = queue_.empty() ? 0 : queue_.back().events;
    missing_ = by_overrun > by_entries && by_overrun - by_entries != oldest ? by_overrun : by_entries;
  }

  Buffer& buffer_;
  u32 ring_;
  Geometry geometry_;
  const u8* meta_;
  std::vector<const u8*> pages_;
  std::atomic<u32> id_{0}, read_{0};  // the reader page, and how many bytes of it were handed out
  u32 before_ = 0;
  std::atomic<u64> entries_{0};  // the meta-page's number when the writer last answered that there is nothing
  bool asked_ = false;
  bool unsettled_ = false;  // a reset was not answered in time
  u64 resets_ = 0;          // those that the writer has carried out
  u64 position_ = 0, time_ = 0;  // the reader page's
  std::atomic<u64> refused_{0};  // events that the writer refused, as of its last answer to a swap
  bool counted_ = false;         // the last question was answered, with a count
  u64 lost_ = 0;         // events lost in all, before the reader page
  u64 read_before_ = 0;  // events handed out in all, before the reader page
  bool tells_read_ = false;  // the writer counts them
  u64 handed_out_ = 0;       // the same number by this side, as of the last swap, while the writer does not
  bool salvaging_ = false;
  std::atomic<bool> ended_{false};
  u64 expected_ = 0, missing_ = 0;
  std::vector<PageSeen> queue_;  // the last one is next
};

// The GET_READER of a MappedSource.
class RemoteGetReader {
 public:
  RemoteGetReader(std::shared_ptr<Buffer> buffer, std::shared_ptr<RingReader> ring)
      : buffer_(std::move(buffer)), ring_(std::move(ring)) {}
  RemoteGetReader(RemoteGetReader&&) = default;
  RemoteGetReader& operator=(RemoteGetReader&&) = default;
  ~RemoteGetReader() {
    if (ring_ != nullptr) ring_->taken = false;
  }
  result<ReaderStep> get_reader() { return ring_->next(); }
  result<bool> wait(int percent, std::chrono::nanoseconds timeout) { return buffer_->wait(percent, timeout); }
  std::optional<Counters> counters() const { return ring_->counters(); }

 private:
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<RingReader> ring_;
};
static_assert(GetReader<RemoteGetReader>);

result<std::shared_ptr<Buffer>> Buffer::create(const Options& options, Callbacks callbacks) {
  if (!callbacks.swap_reader || !callbacks.reset || (options.layout == Layout::footers && !callbacks.update_footers))
    return refuse(std::errc::invalid_argument, options.who +
                                                   ": a buffer for an external writer needs its callbacks swap_reader, reset"
                                                   " and, with page footers, update_footers");
  auto buffer = std::shared_ptr<Buffer>(new Buffer);
  buffer->options_ = options;
  buffer->callbacks_ = std::move(callbacks);
  RS_TRY(options.memory.empty() ? buffer->allocate(options) : buffer->bring(options));
  return buffer;
}

result<void> Buffer::bring(const Options& options) {
  const bool footers = options.layout == Layout::footers;
  plan_ = {options.layout, 0, options.subbuf_size, static_cast<u32>(options.memory.size()), 0};
  std::vector<const u8*> all;
  for (u32 ring = 0; ring < plan_.nr_rings; ++ring) {
    const Options::Pages& pages = options.memory[ring];
    const Geometry geometry(options.subbuf_size, static_cast<u32>(pages.by_id.size()), 0, footers ? abi::footer_size : 0);
    if (!geometry.valid())
      return refuse(std::errc::invalid_argument,
                    of_ring(options.who, ring) + ": " + std::to_string(pages.by_id.size()) + " sub-buffers of " +
                        std::to_string(options.subbuf_size) +
                        " bytes make no ring: it has at least 3, of a power of two from 4096 to 262144 bytes");
    all.insert(all.end(), pages.by_id.begin(), pages.by_id.end());
    if (!footers) all.push_back(pages.meta);
    plan_.nr_pages = std::max(plan_.nr_pages, geometry.nr_subbufs());
    rings_.push_back(std::make_shared<RingReader>(*this, ring, geometry, pages));
  }
  std::sort(all.begin(), all.end());
  for (size_t n = 0; n < all.size(); ++n) {
    if (all[n] == nullptr || reinterpret_cast<u64>(all[n]) % 8 != 0)
      return refuse(std::errc::invalid_argument, options.who + ": a page is missing, or its address is no multiple of 8");
    if (n != 0 && all[n] - all[n - 1] < static_cast<std::ptrdiff_t>(options.subbuf_size))
      return refuse(std::errc::invalid_argument, options.who + ": two of its pages overlap");
  }
  return {};
}

result<void> Buffer::allocate(const Options& options) {
  Buffer& b = *this;
  // A ring begins at a page of the kernel, so that it can be mapped alone: its sub-buffers are no smaller.
  const bool possible = Geometry(options.subbuf_size, fewest_subbufs).valid();
  const u32 subbuf_size = possible ? std::max(options.subbuf_size, static_cast<u32>(sys::page_bytes())) : options.subbuf_size;
  b.options_.subbuf_size = subbuf_size;
  const u32 usable = subbuf_size - (options.layout == Layout::footers ? abi::footer_size : 0);
  b.plan_ = {options.layout, options.clock_number.value_or(static_cast<u32>(options.clock.kind)), subbuf_size, options.rings,
             0};
  if (Geometry(subbuf_size, fewest_subbufs).valid()) b.plan_.nr_pages = subbufs_for(options.size, usable);
  if (!b.plan_.valid())
    return refuse(std::errc::invalid_argument,
                  options.who + ": " + std::to_string(options.rings) + " rings of " + std::to_string(options.size) +
                      " bytes in sub-buffers of " + std::to_string(options.subbuf_size) +
                      " cannot be made; sub-buffers have a power of two from 4096 to 262144 bytes");
  b.descriptor_.resize(b.plan_.descriptor_bytes() / 8);
  pack(b.plan_, b.descriptor_.data());
  const Geometry geometry(subbuf_size, b.plan_.nr_pages, 0, options.layout == Layout::footers ? abi::footer_size : 0);
  const u32 files = options.apart ? options.rings : 1;
  const u64 bytes = b.plan_.region_bytes() / files;
  for (u32 file = 0; file < files; ++file) {
    sys::Fd fd(memfd_create("ringside-remote", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) return fail(errno, "cannot make shared memory for " + options.who);
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
        fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || fchmod(fd.get(), 0600) != 0)
      return fail(errno, "cannot size " + std::to_string(bytes) + " bytes of shared memory for " + options.who);
    auto region = RS_TRY(sys::Region::map(fd.get(), bytes, false, "the shared memory of " + options.who));
    b.fds_.push_back(std::move(fd));
    b.regions_.push_back(std::move(region));
  }
  for (u32 ring = 0; ring < options.rings; ++ring) {
    Options::Pages memory{data_of(ring), {}};
    for (u32 id = 0; id < geometry.nr_subbufs(); ++id) memory.by_id.push_back(memory.meta + geometry.offset_of(id));
    b.rings_.push_back(std::make_shared<RingReader>(b, ring, geometry, std::move(memory)));
  }
  return {};
}

Buffer::~Buffer() { (void)poll_every(std::chrono::nanoseconds(0)); }

u8* Buffer::data_of(u32 ring) const noexcept {
  return options_.apart ? regions_[ring].data() : regions_[0].data() + ring * plan_.ring_bytes();
}
result<sys::Region> Buffer::map(u32 ring, u64 bytes, bool writable) const {
  return sys::Region::map(fd(options_.apart ? ring : 0), bytes, writable, of_ring(options_.who, ring),
                          options_.apart ? 0 : ring * plan_.ring_bytes());
}
result<sys::Region> Buffer::meta_page(u32 ring) const { return map(ring, 4096, true); }

result<std::unique_ptr<Source>> Buffer::source(u32 ring) {
  if (ring >= rings_.size())
    return refuse(std::errc::no_such_file_or_directory, options_.who + " has no ring " + std::to_string(ring));
  RingReader& r = *rings_[ring];
  if (r.taken) return refuse(std::errc::device_or_resource_busy, of_ring(options_.who, ring) + " has a consumer already");
  RS_TRY(r.settle());
  // A mapping of its own, as the buffer may go before the source; the caller's memory stays as long as both.
  sys::Region mapped;
  if (options_.memory.empty()) mapped = RS_TRY(map(ring, plan_.ring_bytes(), false));
  r.taken = true;
  MappedSource<RemoteGetReader>::Options options;
  options.name = ring < options_.names.size() ? options_.names[ring] : RingName{ring, 0, 0, "", ""};
  options.clock = options_.clock;
  options.copies = options_.copies;
  options.start = r.start();
  if (!options_.memory.empty()) options.pages = r.pages();
  return std::make_unique<MappedSource<RemoteGetReader>>(std::move(mapped), r.geometry(),
                                                         RemoteGetReader(shared_from_this(), rings_[ring]), options);
}

Counters Buffer::counters(u32 ring) const { return ring < rings_.size() ? rings_[ring]->counters() : Counters{}; }
void Buffer::ask_again() {
  for (const auto& ring : rings_) ring->ask_again();
}
u64 Buffer::refused() const {
  u64 all = 0;
  for (const auto& ring : rings_) all += ring->refused();
  return all;
}
bool Buffer::refused_is_exact() const {
  return std::all_of(rings_.begin(), rings_.end(), [](const auto& ring) { return ring->refusals() == Refusals::in_sum; });
}
bool Buffer::readable(u32 ring) const { return ring < rings_.size() && rings_[ring]->readable(); }

result<bool> Buffer::poke(u32 ring) {
  if (ring >= rings_.size()) return refuse(std::errc::invalid_argument, options_.who + " has no ring " + std::to_string(ring));
  result<void> done;
  if (plan_.layout == Layout::footers && !is_gone()) done = callbacks_.update_footers(ring);
  const bool ready = rings_[ring]->readable();
  {
    const std::lock_guard lock(mutex_);
    ++pokes_;
  }
  if (ready) changed_.notify_all();
  if (!done && !is_gone()) return tl::unexpected<Error>(done.error());
  return ready;
}

result<void> Buffer::poll_every(std::chrono::nanoseconds period) {
  {
    const std::lock_guard lock(mutex_);
    period_ = period;
  }
  changed_.notify_all();
  if (period.count() == 0) {
    if (poller_.joinable()) poller_.join();
    return {};
  }
  if (poller_.joinable()) return {};
  auto thread = sys::start_thread("that asks the writer for events", [this] {
    for (;;) {
      std::chrono::nanoseconds every;
      {
        std::unique_lock lock(mutex_);
        every = period_;
        if (every.count() == 0) return;
        if (changed_.wait_for(lock, every, [&] { return period_ != every; })) continue;
      }
      for (u32 ring = 0; ring < rings_.size(); ++ring)
        sys::as_memory_allows([&] { (void)poke(ring); });  // the ring's reader gets the errors
    }
  });
  if (!thread) return tl::unexpected<Error>(thread.error());
  poller_ = std::move(*thread);
  return {};
}

result<bool> Buffer::wait(int percent, std::chrono::nanoseconds timeout) {
  const auto ready = [&] {
    if (is_gone()) return true;
    return std::any_of(rings_.begin(), rings_.end(), [&](const auto& r) { return r->readable() && r->is_full(percent); });
  };
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, ready);
}

result<void> Buffer::reset(u32 ring) {
  if (ring >= rings_.size()) return refuse(std::errc::invalid_argument, options_.who + " has no ring " + std::to_string(ring));
  if (rings_[ring]->taken)
    return refuse(std::errc::device_or_resource_busy, of_ring(options_.who, ring) + " is being read; close its source first");
  if (is_gone()) return refuse(std::errc::owner_dead, why_gone());
  RS_TRY(rings_[ring]->settle());
  return rings_[ring]->reset();
}

u64 Buffer::resets(u32 ring) const { return ring < rings_.size() ? rings_[ring]->resets() : 0; }

void Buffer::gone(const std::string& why, bool broken) {
  {
    const std::lock_guard lock(mutex_);
    if (!gone_.load(std::memory_order_relaxed)) {
      broken_.store(broken, std::memory_order_release);
      gone_.store(true, std::memory_order_release);
      sys::as_memory_allows([&] { why_gone_ = why; });
    }
  }
  changed_.notify_all();
}

std::string Buffer::why_gone() const {
  const std::lock_guard lock(mutex_);
  return why_gone_;
}

}  // namespace ringside::remote
