// Rings whose writer is elsewhere and can be reached only by calling it: a process (remote/process.hpp), a guest. This side allocates
// the memory, describes it, and reads it in place; the writer's side is remote_writer.hpp.
//
//   Buffer::Options options;                       // size of each ring, how many, layout, clock
//   auto buffer = must(Buffer::create(options, {swap, update, reset}));
//   ... give buffer->fd() and buffer->descriptor() to the writer ...
//   auto source = must(buffer->source(0));         // as any other Source
//   while (must(buffer->wait(0, 1s))) while (auto view = must(source->next())) walk(*view);
//
// The writer may do to the memory what it likes: what is read is checked as every mapped ring is (source/mapped.hpp), and an error
// names the ring. Callbacks may fail (a writer that does not answer): then next() fails, and what was handed out is good. Once the
// writer is known to be gone (gone()), its sources give all that it had committed, told from the sub-buffers alone, and end.
// Sources, counters and callbacks belong to one thread; poke, wait and gone may be called from any.
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

// How to call the writer. Each answers within a time of its own.
struct Callbacks {
  // RemoteWriter::swap_reader there. read: data bytes of the reader page that this side has read.
  std::function<result<Swapped>(u32 ring, u32 read)> swap_reader;
  std::function<result<void>(u32 ring)> update_footers;  // layout (a)
  std::function<result<void>(u32 ring)> reset;
  // Looks, without asking, whether the writer is still there; calls Buffer::gone if not. May be missing.
  std::function<void()> look_after;
};

class RingReader;

class Buffer : public std::enable_shared_from_this<Buffer> {
 public:
  struct Options {
    u64 size = 1 << 20;  // of events, each ring
    u32 rings = 1;
    u32 subbuf_size = 4096;
    Layout layout = Layout::meta_page;
    ClockInfo clock;
    std::string who = "the external writer";
    std::vector<RingName> names;  // of the rings, as far as known
    bool copies = false;          // hand out copies: for a consumer with more rights than the writer
    bool apart = false;           // each ring in a file of its own, which others may map
  };
  static result<std::shared_ptr<Buffer>> create(const Options& options, Callbacks callbacks);
  ~Buffer();

  // Of the shared region; its size is sealed. apart: one for each ring, the region is all of them, back to back.
  int fd(size_t file = 0) const noexcept { return fds_[file].get(); }
  size_t files() const noexcept { return fds_.size(); }
  // The meta-page of a ring, to be written to: nobody reads there what a mapper is told of the reader page.
  result<sys::Region> meta_page(u32 ring) const;
  const u8* data(u32 ring) const noexcept { return data_of(ring); }  // its meta-page, then its sub-buffers
  u64 region_bytes() const noexcept { return plan_.region_bytes(); }
  const std::vector<u64>& descriptor() const noexcept { return descriptor_; }  // plan().descriptor_bytes()
  const Plan& plan() const noexcept { return plan_; }
  const Options& options() const noexcept { return options_; }

  // The consumer of a ring; one at a time.
  result<std::unique_ptr<Source>> source(u32 ring);
  // What the writer has shown so far. Asks it nothing.
  Counters counters(u32 ring) const;  // walks what is unread

  // Brings this side's view of a ring up to date, and wakes who waits if there is something to read.
  result<bool> poke(u32 ring);
  // Pokes all rings every `period`, in a thread of its own; 0: no more.
  result<void> poll_every(std::chrono::nanoseconds period);
  // Until a poke finds something to read, or the writer is gone; false: timed out. percent: at least so much of some ring.
  result<bool> wait(int percent, std::chrono::nanoseconds timeout);
  // The ring is empty afterwards, at both ends. Its writer has been disabled.
  result<void> reset(u32 ring);
  // The writer will never write again. `why`: a sentence for people.
  void gone(const std::string& why, bool broken = false);
  bool is_gone() const noexcept { return gone_.load(std::memory_order_acquire); }
  std::string why_gone() const;
  bool is_broken() const noexcept { return broken_.load(std::memory_order_acquire); }  // gone by an error, not because the writer ended
  bool readable(u32 ring) const;  // more than was read has been shown

  // What a buffer with a writer elsewhere does not do.
  result<void> write(const void* payload, u32 size);
  result<void> resize(u64 size);
  result<void> extend(u32 sub_buffers);
  result<void> extract(u32 sub_buffers);
  result<void> discard_mode(bool on);

 private:
  friend class RingReader;
  friend class RemoteGetReader;
  Buffer() = default;
  result<void> refuse_it(const std::string& what) const;
  u8* data_of(u32 ring) const noexcept;
  result<sys::Region> map(u32 ring, u64 bytes, bool writable) const;

  Options options_;
  Plan plan_;
  Geometry geometry_;
  Callbacks callbacks_;
  std::vector<sys::Fd> fds_;
  std::vector<sys::Region> regions_;  // of each file
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
