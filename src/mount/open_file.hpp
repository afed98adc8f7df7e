// The file that a client holds open: a text, `trace`, `trace_pipe` or `trace_pipe_raw` of a RingSet. A read that finds nothing
// says so, and is repeated when a writer has moved on: nothing here blocks, and each call does a bounded amount of work.
#pragma once
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "mount/ring_set.hpp"
#include "timeline/merge.hpp"

namespace ringside::mount {

// The client of a request, as the kernel reports it.
struct Client {
  u32 uid = 0;
  i32 tid = 0;
};

// `trace` files that are being read, each with a copy of a sub-buffer for each ring. Root and the mount's user have places of
// their own, which others cannot take.
class Streams {
 public:
  bool take(u32 uid);  // false: there is no place
  void give_back(u32 uid);

 private:
  static constexpr u32 most_of_a_user = 8, most_of_others = 16;
  static bool is_other(u32 uid);
  std::map<u32, u32> of_users_;
  u32 of_others_ = 0;
};

// How a file is opened.
struct Opening {
  bool writing = false, truncate = false;
  u32 uid = 0;
  std::shared_ptr<Streams> streams;
};

// The result of a write: how many bytes it took, and the job that it started elsewhere; the answer waits for that.
struct Written {
  Written(size_t n, std::shared_ptr<Job> j = nullptr) : bytes(n), job(std::move(j)) {}  // NOLINT: a number is one
  size_t bytes;
  std::shared_ptr<Job> job;
};

class RawFile;

class OpenFile {
 public:
  explicit OpenFile(std::shared_ptr<RingSet> on) : on_(std::move(on)) {}
  virtual ~OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // At most `size` bytes; empty: the end; nullopt: nothing yet.
  virtual result<std::optional<std::string>> read(u64 offset, size_t size) = 0;
  virtual result<Written> write(std::string_view bytes, const Client&);
  virtual RawFile* raw() { return nullptr; }  // this file, if it belongs to a ring
  // A stream has no offsets, and is ready by buffer_percent.
  virtual bool stream() const { return false; }
  // Is there something to read: any event (percent 0), or by buffer_percent.
  virtual bool ready(u32) { return true; }
  virtual bool over() const { return false; }  // no event will ever come again
  // After a read or get_reader that found nothing: another party is still being asked whether there is something.
  virtual bool undecided() const { return false; }
  // Its last descriptor was closed, whichever process had it. EBUSY: to be called again.
  virtual result<void> closed() { return {}; }
  // The job that its opening waits for, once; null: none.
  std::shared_ptr<Job> job() { return std::exchange(told_, true) ? nullptr : opening_; }
  RingSet& on() const { return *on_; }
  const std::shared_ptr<RingSet>& shared() const { return on_; }

 protected:
  OpenFile(std::shared_ptr<RingSet> on, std::shared_ptr<Job> opening) : on_(std::move(on)), opening_(std::move(opening)) {}

 private:
  std::shared_ptr<RingSet> on_;
  std::shared_ptr<Job> opening_;  // the file keeps what the job has obtained
  bool told_ = false;
};

// A text, made when it is read from its start; and commands.
class TextFile final : public OpenFile {
 public:
  using Read = std::function<result<std::string>()>;
  using Write = std::function<result<Written>(std::string_view, const Client&)>;
  TextFile(std::shared_ptr<RingSet> on, Read read, Write write)
      : OpenFile(std::move(on)), read_(std::move(read)), write_(std::move(write)) {}
  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  result<Written> write(std::string_view bytes, const Client& client) override;
  std::function<result<void>()> at_close;
  result<void> closed() override { return at_close ? at_close() : result<void>(); }

 private:
  Read read_;
  Write write_;
  std::string text_;
};

// `trace`: all events, without consuming any. Made while it is read, from the start on.
class TraceFile final : public OpenFile {
 public:
  // resetting: the job that O_TRUNC has started.
  TraceFile(std::shared_ptr<RingSet> on, Only only, const Opening& how, std::shared_ptr<Job> resetting = nullptr)
      : OpenFile(std::move(on), std::move(resetting)), only_(only), uid_(how.uid), streams_(how.streams) {}
  ~TraceFile() override;
  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  result<Written> write(std::string_view bytes, const Client&) override;

 private:
  result<void> start();
  void stop();
  std::string end();
  void produce(size_t size);
  Only only_;
  u32 uid_;
  std::shared_ptr<Streams> streams_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<TextLines> lines_;
  u64 overrun_ = 0;
  std::vector<bool> started_;  // by source
  bool any_ = false, done_ = false;
  u64 at_ = 0;  // file offset of the text's first byte
  std::optional<u64> end_;  // of the file; it has been read up to there
  fmt::memory_buffer text_;
};

// `trace_pipe`: takes events, oldest first, one by one; those that do not fit the reader's buffer stay in the rings.
class PipeFile final : public OpenFile {
 public:
  // EBUSY: it is already open.
  static result<std::unique_ptr<OpenFile>> open(const std::shared_ptr<RingSet>& on, Only only);
  ~PipeFile() override;
  result<std::optional<std::string>> read(u64 offset, size_t size) override;
  bool stream() const override { return true; }
  bool ready(u32 percent) override;
  bool over() const override { return on().gone(); }
  bool undecided() const override { return asking_; }

 private:
  struct Lane;
  PipeFile(const std::shared_ptr<RingSet>& on, Only only);
  result<bool> take(size_t size);
  void find(Lane& lane);
  void print(const Lane& lane);
  u32 first() const { return only_.value_or(0); }
  u32 last() const { return only_ ? *only_ + 1 : on().cpus(); }
  Only only_;
  std::vector<Lane> lanes_;
  std::unique_ptr<TextLines> lines_;
  u64 names_ = ~u64{0};  // RingSet::refresh() when `lines_` were made
  fmt::memory_buffer text_;
  bool gave_ = false, asking_ = false;
};

// `per_cpu/cpuN/trace_pipe_raw`: read() of whole events, or the ring's memory and GET_READER.
class RawFile final : public OpenFile {
 public:
  RawFile(const std::shared_ptr<RingSet>& on, u32 ring) : OpenFile(on, on->load()), ring_(ring) {}
  ~RawFile() override { unmap(); }
  RawFile* raw() override { return this; }
  bool stream() const override { return true; }
  bool ready(u32 percent) override { return !rest_.empty() || on().ready(ring_, percent); }
  bool over() const override { return on().gone(); }
  bool undecided() const override { return asker_.asks; }
  result<std::optional<std::string>> read(u64 offset, size_t size) override;

  // GET_READER, once its wait is over. False: ask again; must: answer with what there is.
  result<bool> get_reader(bool must) { return on().get_reader(ring_, asker_, must); }
  bool can_be_mapped() const { return on().can_be_mapped(ring_); }
  result<sys::Fd> map();  // counts as a mapping from now on
  void unmap();
  std::pair<const void*, u32> memory() const { return {on().memory(), ring_}; }

 private:
  u32 ring_;
  Asker asker_;
  bool mapped_ = false;
  std::string rest_;  // the rest of a sub-buffer after a short read
};

// Whole events of a view, of at most `room` bytes (header included), in the format that read() of trace_pipe_raw returns: the
// header, the events, the number of events lost before, and zeros up to the sub-buffer's size. Unwanted events become padding.
struct Copy {
  std::string bytes;   // empty: not even the first event fits
  u32 end = 0;         // up to this data offset of the view
  u32 events = 0;
};
Copy copy_of(const SubBufferView& view, u32 subbuf_size, u32 room, const std::function<bool(u64 time, Bytes payload)>& wanted);

}  // namespace ringside::mount
