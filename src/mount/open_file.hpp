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
  explicit OpenFile(std::shared_ptr<Mounted> on) : on_(std::move(on)) {}
  virtual ~OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // At most `size` bytes; empty: the end; nullopt: nothing yet.
  virtual result<std::optional<std::string>> read(u64 offset, size_t size) = 0;
  // How much of it was taken.
  virtual result<size_t> write(std::string_view bytes, const Client&);
  // GET_READER, once its wait is over.
  virtual result<void> get_reader();
  virtual bool is_raw() const { return false; }
  // Is there something to read: any event (percent 0), or by buffer_percent.
  virtual bool ready(u32) { return true; }
  virtual void closing() {}  // a descriptor of it was closed
  u32 uid = 0;  // who opened it
  Mounted* on() const { return on_.get(); }
  const std::shared_ptr<Mounted>& shared() const { return on_; }

 protected:
  std::shared_ptr<Mounted> on_;
};

// A text that is made when it is read from its start, and commands.
class TextFile final : public OpenFile {
 public:
  using Read = std::function<result<std::string>()>;
  using Write = std::function<result<size_t>(std::string_view, const Client&)>;
  TextFile(std::shared_ptr<Mounted> on, Read read, Write write) : OpenFile(std::move(on)), read_(std::move(read)), write_(std::move(write)) {}
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

// `trace`: all events, consuming none. Made while it is read, from the front on; `only`: of one ring.
class TraceFile final : public OpenFile {
 public:
  TraceFile(std::shared_ptr<Mounted> on, std::optional<u32> only);
  ~TraceFile() override;
  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  result<size_t> write(std::string_view bytes, const Client&) override { return bytes.size(); }

  // That are being read at a time, each with a sub-buffer's copy for each ring.
  static constexpr u32 most_streams = 16, most_streams_of_a_user = 8;

 private:
  result<void> start();
  void produce(size_t size);
  std::optional<u32> only_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<TextLines> lines_;
  std::vector<bool> started_;  // by source
  bool annotate_ = false, any_ = false, done_ = false;
  u64 until_ns_ = ~u64{0};
  u64 at_ = 0;  // file offset of the text's first byte
  fmt::memory_buffer text_;
};

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
  std::optional<u32> only_;
  std::map<u32, std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<TextLines> lines_;
  fmt::memory_buffer text_;
  bool gave_ = false;
  u64 tasks_of_ = ~u64{0};
};

// `per_cpu/cpuN/trace_pipe_raw`. A ring that is not there yet may be open: it comes when its thread does, but cannot be mapped then.
class RawFile final : public OpenFile {
 public:
  RawFile(std::shared_ptr<Mounted> on, u32 ring) : OpenFile(std::move(on)), ring_(ring) {}
  ~RawFile() override;
  // Counts as a mapping from now on. Answers a read-only descriptor of the meta-page and the sub-buffers.
  result<sys::Fd> map();
  void unmap();

  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  result<void> get_reader() override;
  bool is_raw() const override { return true; }
  bool ready(u32 percent) override;
  u32 ring() const { return ring_; }

 private:
  RingView* view();
  u32 ring_;
  bool mapped_ = false;
  std::optional<RingView> own_;
  std::string image_;  // the rest of a sub-buffer that a short read has left
};

// The kernel's rule for who waits: any event that nobody has taken (0), or a ring that is so full and whose writer is off the reader's
// sub-buffer.
bool ring_ready(const Ring& ring, u32 percent) noexcept;

// One sub-buffer as read() gives it: whole events of at most `room` bytes, header included, taken from the ring, and zeros up to its
// size. Empty: not even the first event fits. nullopt: no events. EBUSY: another process consumes them.
result<std::optional<std::string>> take_image(RingView& view, u32 room, const std::function<bool(u64 time, Bytes payload)>& wanted);

}  // namespace ringside::mount
