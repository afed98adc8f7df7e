// Rings of an external writer that is reached only by calls: a process (remote/process.hpp), a guest. This side allocates the
// memory, describes it, and reads it in place; the writer's side is remote_writer.hpp.
//
//   Buffer::Options options;                       // size of each ring, their number, layout, clock
//   auto buffer = must(Buffer::create(options, {swap, update, reset}));
//   ... give buffer->fd() and buffer->descriptor() to the writer ...
//   auto source = must(buffer->source(0));         // like any other Source
//   while (must(buffer->wait(0, 1s))) while (auto view = must(source->next())) walk(*view);
//
// The writer is hostile: reads are checked like those of every mapped ring (source/mapped.hpp), and an error names the ring.
// Callbacks may fail (a writer that does not answer): then next() fails, and the data handed out before is good. Once the
// writer is known to be gone (gone()), its sources give all that it had committed, from the sub-buffers alone, and end.
// Sources, counters and callbacks belong to one thread; any thread may call poke, wait and gone.
#pragma once
#include <ringside/remote/remote_writer.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "source/source.hpp"
#include "sys/sys.hpp"

namespace ringside::remote {

// What a writer reports of a swap.
struct SwapAnswer : Swapped {
  u32 refused = 0;       // events that the ring has refused so far, modulo 2^32, if the writer
  bool counted = false;  // counts them
};

// Calls to the writer. Each has its own time-out.
struct Callbacks {
  // Calls RemoteWriter::swap_reader. read: data bytes of the reader page that this side has read.
  std::function<result<SwapAnswer>(u32 ring, u32 read)> swap_reader;
  std::function<result<void>(u32 ring)> update_footers;  // layout (a)
  std::function<result<void>(u32 ring)> reset;
  // Checks, without a request, whether the writer is still there; calls Buffer::gone if not. May be missing.
  std::function<void()> look_after;
  // Of a writer that is gone: the last count of the ring's refused events (as SwapAnswer::refused), if sent at its end. May
  // be missing.
  std::function<std::optional<u32>(u32 ring)> last_refused{};
};

class RingReader;

class Buffer : public std::enable_shared_from_this<Buffer> {
 public:
  struct Options {
    u64 size = 1 << 20;  // bytes of events in each ring
    u32 rings = 1;
    u32 subbuf_size = 4096;
    Layout layout = Layout::meta_page;
    ClockInfo clock;
    std::string who = "the external writer";
    std::vector<RingName> names;  // the rings' names, as far as known
    bool copies = false;          // hand out copies: for a consumer with more rights than the writer
    bool apart = false;           // each ring in its own file, which others may map
    std::optional<u32> clock_number{};  // in the descriptor; none: that of `clock`
    // Memory of the caller's instead, for each ring: then size, rings and apart mean nothing, there is no file and no
    // descriptor, and it stays until the buffer and its sources are gone. Aligned to 8.
    struct Pages {
      const u8* meta = nullptr;  // layout (b)
      std::vector<const u8*> by_id{};
    };
    std::vector<Pages> memory{};
  };
  static result<std::shared_ptr<Buffer>> create(const Options& options, Callbacks callbacks);
  ~Buffer();

  // A file of the shared region; its size is sealed. apart: one file for each ring, and the region is all of them, back to
  // back.
  int fd(size_t file = 0) const noexcept { return fds_[file].get(); }
  size_t files() const noexcept { return fds_.size(); }
  // A ring's meta-page, writable: neither side reads its fields that inform mappers of the reader page.
  result<sys::Region> meta_page(u32 ring) const;
  const u8* data(u32 ring) const noexcept { return data_of(ring); }  // its meta-page, then its sub-buffers
  u64 region_bytes() const noexcept { return plan_.region_bytes(); }
  const std::vector<u64>& descriptor() const noexcept { return descriptor_; }  // plan().descriptor_bytes()
  const Plan& plan() const noexcept { return plan_; }
  const Options& options() const noexcept { return options_; }

  // The consumer of a ring; one at a time. ETIMEDOUT: a reset before it has not been answered yet.
  result<std::unique_ptr<Source>> source(u32 ring);
  // What the writer has published so far, without a request.
  Counters counters(u32 ring) const;  // walks the unread sub-buffers
  u64 refused() const;                // of all rings, as of the last swaps; any thread
  bool refused_is_exact() const;      // the writer gave it in each of these; for the sources' thread

  // The sources ask the writer once more when they have read everything, as its refused events are not seen otherwise; until it
  // answers, their number is a lower bound (Refusals::at_least). For the sources' thread.
  void ask_again();
  // Updates this side's view of a ring, and wakes waiters if there is something to read.
  result<bool> poke(u32 ring);
  // Pokes all rings every `period`, in a thread of its own; 0 stops it.
  result<void> poll_every(std::chrono::nanoseconds period);
  // Waits until a poke finds something to read, or the writer is gone; false: timed out. percent: some ring must be that full.
  result<bool> wait(int percent, std::chrono::nanoseconds timeout);
  // Empties the ring at both ends. Its writer must be disabled. Not answered in time: it happens before the ring is read again.
  result<void> reset(u32 ring);
  u64 resets(u32 ring) const;  // how often that has happened
  // The writer will never write again. `why`: a sentence for people.
  void gone(const std::string& why, bool broken = false);
  bool is_gone() const noexcept { return gone_.load(std::memory_order_acquire); }
  std::string why_gone() const;
  bool is_broken() const noexcept {
    return broken_.load(std::memory_order_acquire);
  }                               // gone because of an error, not because the writer ended
  bool readable(u32 ring) const;  // unread data has been published

 private:
  friend class RingReader;
  friend class RemoteGetReader;
  Buffer() = default;
  result<void> bring(const Options& options);
  result<void> allocate(const Options& options);
  u8* data_of(u32 ring) const noexcept;
  // More than any writer can have written since then: an event takes a nanosecond at least. What counts more is no count.
  u64 most_written() const noexcept { return (u64{1} << 32) + sys::now_ns() - created_ns_; }
  result<sys::Region> map(u32 ring, u64 bytes, bool writable) const;

  const u64 created_ns_ = sys::now_ns();
  Options options_;
  Plan plan_;
  Callbacks callbacks_;
  std::vector<sys::Fd> fds_;
  std::vector<sys::Region> regions_;  // one for each file
  std::vector<u64> descriptor_;
  std::vector<std::shared_ptr<RingReader>> rings_;
  std::atomic<bool> gone_{false}, broken_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string why_gone_;
  u64 pokes_ = 0;
  std::chrono::nanoseconds period_{0};
  std::thread poller_;
};

}  // namespace ringside::remote
