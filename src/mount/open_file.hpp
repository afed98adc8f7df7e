// What a client holds open. One class for each way of reading: a text, `trace`, `trace_pipe`, `trace_pipe_raw`; files that are only
// written to have text of their own kind, too. A read that finds nothing says so, and is asked again when a writer has moved on:
// nothing here blocks, and each call does a bounded amount of work.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "export/text.hpp"
#include "mount/mounted.hpp"
#include "timeline/merge.hpp"

namespace ringside::mount {

// Who asks, as the kernel says it.
struct Client {
  u32 uid = 0;
  i32 tid = 0;
};

class OpenFile {
 public:
  explicit OpenFile(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}
  virtual ~OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // At most `size` bytes; empty: the end; nullopt: nothing yet.
  virtual result<std::optional<std::string>> read(u64 offset, size_t size) = 0;
  // How much of it was taken.
  virtual result<size_t> write(std::string_view bytes, const Client&);
  // GET_READER, once its wait is over. False: ask again; must: whatever there is.
  virtual result<bool> get_reader(bool must);
  virtual bool is_raw() const { return false; }
  // Is there something to read: any event (percent 0), or by buffer_percent.
  virtual bool ready(u32) { return true; }
  virtual bool over() const { return false; }  // nothing will ever be written again
  // After a read or get_reader that found nothing: whether there is something is still being asked elsewhere.
  virtual bool undecided() const { return false; }
  // What goes on elsewhere for the open or the write just done, once; null: nothing.
  virtual std::shared_ptr<Job> job() { return nullptr; }
  virtual void closing() {}  // a descriptor of it was closed
  u32 uid = 0;  // who opened it
  Owner* on() const { return owner_.get(); }
  const std::shared_ptr<Owner>& shared() const { return owner_; }

 private:
  std::shared_ptr<Owner> owner_;
};

// A text that is made when it is read from its start, and commands.
class TextFile final : public OpenFile {
 public:
  using Read = std::function<result<std::string>()>;
  using Write = std::function<result<size_t>(std::string_view, const Client&)>;
  TextFile(std::shared_ptr<Owner> on, Read read, Write write) : OpenFile(std::move(on)), read_(std::move(read)), write_(std::move(write)) {}
  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  result<size_t> write(std::string_view bytes, const Client& client) override;
  std::function<void()> at_close;
  void closing() override {
    if (at_close) at_close();
  }

 private:
  Read read_;
  Write write_;
  std::string text_;
};

// What `trace` shows: rings as they are at this moment, and how to print them.
struct Look {
  std::vector<std::unique_ptr<Source>> sources;
  u64 in_buffer = 0, overrun = 0;
  u32 cpus = 0;
  u64 until_ns = ~u64{0};  // no later events
  std::unique_ptr<TextLines> lines;
  std::function<bool(const TraceRecord&, const RingName&)> wanted;  // empty: all
  std::optional<Error> problem;      // a ring could not be opened, and it is not the ring's fault: what is there would not be all
  std::vector<std::string> missing;  // rings that are damaged, a sentence each
};

// `trace`: all events, consuming none. Made while it is read, from the front on.
class TraceFile final : public OpenFile {
 public:
  TraceFile(std::shared_ptr<Owner> on, std::function<Look()> look) : OpenFile(std::move(on)), make_look_(std::move(look)) {}
  ~TraceFile() override;
  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  result<size_t> write(std::string_view bytes, const Client&) override { return bytes.size(); }

  // That are being read at a time, each with a sub-buffer's copy for each ring.
  static constexpr u32 most_streams = 16, most_streams_of_a_user = 8;

 private:
  result<void> start();
  void produce(size_t size);
  std::function<Look()> make_look_;
  Look look_;
  std::unique_ptr<Timeline> timeline_;
  std::vector<bool> started_;  // by source
  bool any_ = false, done_ = false;
  u64 at_ = 0;  // file offset of the text's first byte
  fmt::memory_buffer text_;
};

Look look_at_instance(const std::shared_ptr<Mounted>& on, std::optional<u32> only);

// Whole lines of `text`, of at most `size` bytes, as long as one fits; they are taken away.
std::string take_lines(fmt::memory_buffer& text, size_t size);

// `trace_pipe`: takes events, oldest first, one by one: what does not fit the reader's buffer stays in the rings.
class PipeFile final : public OpenFile {
 public:
  // EBUSY: somebody has it open already.
  static result<std::unique_ptr<PipeFile>> open(std::shared_ptr<Mounted> on, std::optional<u32> only);
  ~PipeFile() override;
  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  bool ready(u32 percent) override;

 private:
  struct Lane;
  PipeFile(std::shared_ptr<Mounted> on, std::optional<u32> only);
  void find_lanes();
  void take(size_t size);
  std::shared_ptr<Mounted> on_;
  std::optional<u32> only_;
  std::map<u32, std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<TextLines> lines_;
  fmt::memory_buffer text_;
  bool gave_ = false;
  u64 tasks_of_ = ~u64{0};
};

// `per_cpu/cpuN/trace_pipe_raw`, whosever the ring is.
class MappedFile : public OpenFile {
 public:
  MappedFile(std::shared_ptr<Owner> on, u32 ring) : OpenFile(std::move(on)), ring_(ring) {}
  virtual bool can_be_mapped() const = 0;
  // Counts as a mapping from now on. Answers a read-only descriptor of the meta-page and the sub-buffers.
  virtual result<sys::Fd> map() = 0;
  virtual void unmap() = 0;
  virtual const void* memory() const { return on(); }  // with the ring's number: which memory it is
  bool is_raw() const override { return true; }
  u32 ring() const { return ring_; }

 protected:
  u32 ring_;
};

// An instance's. A ring that is not there yet may be open: it comes when its thread does, but cannot be mapped then.
class RawFile final : public MappedFile {
 public:
  RawFile(std::shared_ptr<Mounted> on, u32 ring) : MappedFile(on, ring), on_(std::move(on)) {}
  ~RawFile() override;
  bool can_be_mapped() const override { return on_->has_ring(ring_); }
  result<sys::Fd> map() override;
  void unmap() override;

  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  result<bool> get_reader(bool must) override;
  bool ready(u32 percent) override;

 private:
  RingView* view();
  std::shared_ptr<Mounted> on_;
  bool mapped_ = false;
  std::optional<RingView> own_;
  std::string image_;  // the rest of a sub-buffer that a short read has left
};

// Whole events of at most `room` bytes (header included) from sub-buffer data [begin, end), as read() gives them: with the header,
// what was lost before, and zeros up to the sub-buffer's size.
struct Image {
  std::string bytes;   // empty: not even the first event fits
  u32 end = 0;         // up to here, of the data
  u32 events = 0;
};
Image image_of(const u8* data, u32 begin, u32 end, u64 time_before, u64 lost_before, const Geometry& geometry, u32 room,
               const std::function<bool(u64 time, Bytes payload)>& wanted);

// One sub-buffer as read() gives it: whole events of at most `room` bytes, header included, taken from the ring, and zeros up to its
// size. Empty: not even the first event fits. nullopt: no events. EBUSY: another process consumes them.
result<std::optional<std::string>> take_image(RingView& view, u32 room, const std::function<bool(u64 time, Bytes payload)>& wanted);

}  // namespace ringside::mount
