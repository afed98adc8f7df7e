// What stands below remotes/NAME: upstream's files for its remote buffers, and for each ring trace_pipe_raw and stats, which it has not.
#include <fmt/format.h>
#include <ringside/abi/event_cursor.hpp>

#include <algorithm>

#include "mount/files.hpp"
#include "schema/format_text.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

constexpr u32 in_remote = static_cast<u32>(Dir::remote);
constexpr u32 in_cpu = static_cast<u32>(Dir::remote_cpu);
constexpr u32 in_options = static_cast<u32>(Dir::remote_options);
constexpr u32 in_events = static_cast<u32>(Dir::remote_events);
constexpr u32 in_system = static_cast<u32>(Dir::remote_system);
constexpr u32 in_event = static_cast<u32>(Dir::remote_event);

std::optional<u32> only(const Place& at) { return at.dir == Dir::remote_cpu ? std::optional<u32>(at.ring) : std::nullopt; }

// A text, and commands that the writer is asked to carry out.
class CommandFile final : public OpenFile {
 public:
  using Write = std::function<result<std::shared_ptr<Job>>(std::string_view)>;
  CommandFile(std::shared_ptr<Remote> remote, TextFile::Read read, Write write)
      : OpenFile(remote), text_(std::move(remote), std::move(read), nullptr), write_(std::move(write)) {}
  result<std::optional<std::string>> read(u64 offset, size_t size) override { return text_.read(offset, size); }
  Taken write(std::string_view bytes, const Client&) override {
    job_ = RS_TRY(write_(bytes));
    return bytes.size();
  }
  std::shared_ptr<Job> job() override { return std::exchange(job_, nullptr); }

 private:
  TextFile text_;
  Write write_;
  std::shared_ptr<Job> job_;
};

Look look_at(const std::shared_ptr<Remote>& remote, std::optional<u32> ring) {
  remote->refresh();
  Look look;
  look.cpus = remote->cpus();
  look.lines = std::make_unique<TextLines>(remote->formats(), remote->tasks(), false, true);
  for (u32 n = ring.value_or(0); n < (ring ? *ring + 1 : remote->cpus()); ++n) {
    const Counters c = remote->counters(n);
    look.in_buffer += c.unread;
    look.overrun += c.overrun;
    if (auto source = remote->peek(n)) look.sources.push_back(std::move(source));
  }
  return look;
}

// `trace`: what is written to it, or cutting it, empties the rings.
class RemoteTrace final : public OpenFile {
 public:
  RemoteTrace(const std::shared_ptr<Remote>& remote, std::optional<u32> ring, bool reset)
      : OpenFile(remote), remote_(remote), ring_(ring), trace_(remote, [remote, ring] { return look_at(remote, ring); }) {
    if (reset) job_ = remote_->reset(ring_);
  }
  result<std::optional<std::string>> read(u64 offset, size_t size) override {
    trace_.uid = uid;
    return trace_.read(offset, size);
  }
  Taken write(std::string_view bytes, const Client&) override {
    job_ = remote_->reset(ring_);
    return bytes.size();
  }
  std::shared_ptr<Job> job() override { return std::exchange(job_, nullptr); }

 private:
  std::shared_ptr<Remote> remote_;
  std::optional<u32> ring_;
  TraceFile trace_;
  std::shared_ptr<Job> job_;
};

// `trace_pipe`: takes the oldest events, as long as it is known which those are.
class RemotePipe final : public OpenFile {
 public:
  RemotePipe(std::shared_ptr<Remote> remote, std::optional<u32> ring)
      : OpenFile(remote), remote_(std::move(remote)), ring_(ring), load_(remote_->load()) {
    if (ring_)
      remote_->pipes[*ring_] = true;
    else
      remote_->pipe = true;
    for (u32 n = ring_.value_or(0); n < (ring_ ? *ring_ + 1 : remote_->cpus()); ++n) lanes_.emplace_back().ring = n;
  }
  ~RemotePipe() override {
    if (ring_)
      remote_->pipes[*ring_] = false;
    else
      remote_->pipe = false;
  }
  std::shared_ptr<Job> job() override { return std::exchange(starts_, false) ? load_ : nullptr; }
  bool undecided() const override { return asking_; }
  bool over() const override { return remote_->gone(); }
  bool ready(u32) override {
    return text_.size() != 0 || std::any_of(lanes_.begin(), lanes_.end(), [this](const Lane& l) { return remote_->ready(l.ring); });
  }

  result<std::optional<std::string>> read(u64, size_t size) override {
    if (size == 0) return std::string();
    if (text_.size() == 0) {
      size_t ended = 0;
      asking_ = false;
      int error = 0;
      std::vector<Lane*> heap;
      for (Lane& lane : lanes_) {
        // Who has said that there is nothing, or has not answered, is not asked again before all others have been.
        if (lane.found != Found::nothing && lane.found != Found::failed) lane.found = remote_->look(lane.ring, lane.asker);
        asking_ = asking_ || lane.found == Found::asking;
        ended += lane.found == Found::ended ? 1 : 0;
        if (lane.found == Found::failed) error = remote_->error(lane.ring);
        if (lane.found == Found::data) heap.push_back(&lane);
      }
      if (asking_) return std::nullopt;
      for (Lane& lane : lanes_) lane.found = Found::asking;
      if (heap.empty() && error != 0) return fail(error, "the external writer does not answer as it should");
      if (ended == lanes_.size()) return std::string();
      take(heap, std::min<size_t>(size, 1 << 16));
      if (text_.size() == 0) {
        // As in the kernel: who has read something, and recording is off, is at the end.
        if (gave_ && heap.empty() && !remote_->on()) return std::string();
        return std::nullopt;
      }
    }
    gave_ = true;
    return take_lines(text_, size);
  }

 private:
  struct Lane {
    u32 ring = 0;
    Remote::Asker asker;
    Found found = Found::asking;
    SubBufferView view;
    RingName name;
    abi::EventCursor cursor{nullptr, 0, 0, 0};
    u32 end = 0, events = 0;  // taken
  };
  void take(std::vector<Lane*> heap, size_t size) {
    if (!lines_) {
      remote_->refresh();
      lines_.emplace(remote_->formats(), remote_->tasks(), false, true);
    }
    const auto later = [](const Lane* a, const Lane* b) { return a->cursor.time() > b->cursor.time(); };
    const std::vector<Lane*> all = heap;
    bool known = true;  // what comes next in each ring
    for (Lane* lane : all) {
      lane->view = remote_->view(lane->ring);
      lane->name = RingName{lane->ring, 0, 0, "", ""};
      lane->cursor = abi::EventCursor(lane->view.sub_buffer + abi::header_size, lane->view.begin, lane->view.end, lane->view.time);
      lane->end = lane->view.begin;
      lane->events = 0;
      if (!lane->cursor.next()) {
        lane->end = lane->view.end;
        known = false;
      }
    }
    std::make_heap(heap.begin(), heap.end(), later);
    while (known && text_.size() < size && !heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      Lane& lane = *heap.back();
      TraceRecord record{lane.cursor.time(), lane.events == 0 ? lane.view.lost_before : 0, {}, lane.ring, 0};
      if (record.lost != 0) lines_->print(record, lane.name, text_);
      record.lost = 0;
      record.payload = lane.cursor.payload();
      lines_->print(record, lane.name, text_);
      ++lane.events;
      lane.end = lane.cursor.position();
      known = lane.cursor.next();
      if (known)
        std::push_heap(heap.begin(), heap.end(), later);
      else
        lane.end = lane.view.end;
    }
    for (Lane* lane : all)
      if (lane->end != lane->view.begin) remote_->consume(lane->ring, lane->end, lane->events);
  }

  std::shared_ptr<Remote> remote_;
  std::optional<u32> ring_;
  std::vector<Lane> lanes_;
  std::optional<TextLines> lines_;
  fmt::memory_buffer text_;
  bool gave_ = false, starts_ = true, asking_ = false;
  std::shared_ptr<Job> load_;  // keeps the rings
};

class RemoteRaw final : public MappedFile {
 public:
  RemoteRaw(std::shared_ptr<Remote> remote, u32 ring) : MappedFile(remote, ring), remote_(std::move(remote)), load_(remote_->load()) {}
  std::shared_ptr<Job> job() override { return std::exchange(starts_, false) ? load_ : nullptr; }
  bool can_be_mapped() const override { return static_cast<bool>(remote_->file(ring_)); }
  result<sys::Fd> map() override { return remote_->file(ring_); }
  void unmap() override {}
  const void* memory() const override { return remote_->memory(); }
  bool undecided() const override { return asker_.asks; }
  bool over() const override { return remote_->gone(); }
  bool ready(u32) override { return !image_.empty() || remote_->ready(ring_); }

  result<std::optional<std::string>> read(u64, size_t size) override {
    if (size == 0) return std::string();
    if (image_.empty()) {
      switch (remote_->look(ring_, asker_)) {
        case Found::asking:
        case Found::nothing: return std::nullopt;
        case Found::ended: return std::string();
        case Found::failed: return failed();
        case Found::data: break;
      }
      const SubBufferView& v = remote_->view(ring_);
      Image image = image_of(v.sub_buffer + abi::header_size, v.begin, v.end, v.time, v.lost_before, Geometry(Remote::subbuf_size, 3),
                             static_cast<u32>(std::min<size_t>(size, Remote::subbuf_size)), nullptr);
      if (image.bytes.empty()) return std::string();
      remote_->consume(ring_, image.end, image.events);
      image_ = std::move(image.bytes);
    }
    std::string given = image_.substr(0, size);
    image_.erase(0, given.size());
    return given;
  }
  result<bool> get_reader(bool must) override {
    switch (remote_->look(ring_, asker_)) {
      case Found::asking: return false;
      case Found::nothing: return must;
      case Found::ended: return fail(ENODEV, "the external writer is gone, and all of it is read");
      case Found::failed: return failed();
      case Found::data: break;
    }
    remote_->count_as_read(ring_);
    return true;
  }

 private:
  tl::unexpected<Error> failed() const { return fail(remote_->error(ring_), "the external writer does not answer as it should"); }
  std::shared_ptr<Remote> remote_;
  Remote::Asker asker_;
  std::string image_;  // the rest of a sub-buffer that a short read has left
  bool starts_ = true;
  std::shared_ptr<Job> load_;  // keeps the rings
};

Text read_on(const Place& at) { return std::string(at.remote->on() ? "1\n" : "0\n"); }
result<std::unique_ptr<OpenFile>> open_on(const Place& at, bool, bool) {
  return std::make_unique<CommandFile>(at.remote, [at] { return read_on(at); }, [at](std::string_view bytes) -> result<std::shared_ptr<Job>> {
    const auto value = number(bytes);
    if (!value) return invalid();
    if (*value == 0 && at.remote->on()) ++at.remote->woken;
    return at.remote->enable(*value != 0);
  });
}

Text read_size(const Place& at) { return fmt::format("{} ({})\n", at.remote->kilobytes(), at.remote->loaded() ? "loaded" : "unloaded"); }
Taken write_size(const Place& at, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value) return invalid();
  RS_TRY(at.remote->kilobytes(*value));
  return bytes.size();
}
// What the writer has been given cannot be changed, and it always overwrites: as the kernel answers for its remote buffers.
Text read_subbuf_size(const Place&) { return std::to_string(Remote::subbuf_size / 1024) + "\n"; }
Taken write_subbuf_size(const Place&, std::string_view bytes, const Client&) {
  if (number(bytes) != Remote::subbuf_size / 1024) return invalid();
  return bytes.size();
}
Text read_one(const Place&) { return std::string("1\n"); }
Taken write_overwrite(const Place&, std::string_view bytes, const Client&) {
  if (number(bytes) != 1) return invalid();
  return bytes.size();
}

Taken write_enable(const Place&, std::string_view bytes, const Client&) {
  const auto value = number(bytes);
  if (!value || *value > 1) return invalid();
  if (*value == 0) return fail(EOPNOTSUPP, "an external writer's events are switched together, by tracing_on");
  return bytes.size();
}
result<EventInfo> event_of(const Place& at) {
  for (const EventInfo& e : at.remote->events())
    if (e.system == at.system && e.name == at.event) return e;
  return fail(ENODEV, at.event);
}
Text read_id(const Place& at) {
  auto e = RS_TRY(event_of(at));
  return std::to_string(e.id) + "\n";
}
Text read_format(const Place& at) {
  auto e = RS_TRY(event_of(at));
  return e.format;
}
Text read_header_page(const Place&) { return header_page_text(Remote::subbuf_size); }
Text read_header_event(const Place&) { return std::string(header_event_text()); }
Text read_stats(const Place& at) { return stats_text(at.remote->counters(at.ring), ClockInfo{}); }

result<std::unique_ptr<OpenFile>> open_trace(const Place& at, bool writing, bool truncate) {
  return std::make_unique<RemoteTrace>(at.remote, only(at), writing && truncate);
}
result<std::unique_ptr<OpenFile>> open_pipe(const Place& at, bool, bool) {
  const auto& pipes = at.remote->pipes;
  const bool taken = at.dir == Dir::remote_cpu ? pipes[at.ring] : std::find(pipes.begin(), pipes.end(), true) != pipes.end();
  if (taken || at.remote->pipe) return fail(EBUSY, "trace_pipe is open already");
  return std::make_unique<RemotePipe>(at.remote, only(at));
}
result<std::unique_ptr<OpenFile>> open_raw(const Place& at, bool, bool) { return std::make_unique<RemoteRaw>(at.remote, at.ring); }

// name, mode, what it says, what a write does, or how it is opened
const FileType file_types[] = {
    {in_remote, "buffer_size_kb", 0640, read_size, write_size, nullptr},
    {in_remote, "buffer_subbuf_size_kb", 0640, read_subbuf_size, write_subbuf_size, nullptr},
    {in_remote, "trace", 0640, nullptr, nullptr, open_trace},
    {in_remote, "trace_pipe", 0440, nullptr, nullptr, open_pipe},
    {in_remote, "tracing_on", 0640, nullptr, nullptr, open_on},
    {in_options, "overwrite", 0640, read_one, write_overwrite, nullptr},
    {in_events, "enable", 0640, read_one, write_enable, nullptr},
    {in_events, "header_event", 0440, read_header_event, nullptr, nullptr},
    {in_events, "header_page", 0440, read_header_page, nullptr, nullptr},
    {in_system, "enable", 0640, read_one, write_enable, nullptr},
    {in_event, "enable", 0640, read_one, write_enable, nullptr},
    {in_event, "format", 0440, read_format, nullptr, nullptr},
    {in_event, "id", 0440, read_id, nullptr, nullptr},
    {in_cpu, "stats", 0440, read_stats, nullptr, nullptr},
    {in_cpu, "trace", 0640, nullptr, nullptr, open_trace},
    {in_cpu, "trace_pipe", 0440, nullptr, nullptr, open_pipe},
    {in_cpu, "trace_pipe_raw", 0440, nullptr, nullptr, open_raw, true},
};

}  // namespace

void for_each_remote_file(Dir dir, const std::function<void(const FileType&)>& use) {
  for (const FileType& f : file_types)
    if ((f.in & static_cast<u32>(dir)) != 0) use(f);
}

}  // namespace ringside::mount
