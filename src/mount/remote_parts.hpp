// What a Remote's two sides share: the server's thread (remote.cpp) and the worker that asks the writer (remote_worker.cpp).
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "mount/remote.hpp"

namespace ringside::mount {

// `view` and the copy in `page` belong to the server's thread while there is a view, `source` to the worker while it is busy;
// the mutex guards all else.
struct Remote::Ring {
  RingName name;
  std::unique_ptr<Source> source;
  sys::Region meta;
  std::vector<u64> page = std::vector<u64>(subbuf_bytes() / 8);
  std::optional<SubBufferView> view;  // events that no client has taken
  bool stale = false;                 // the ring was emptied: the server's thread drops the view
  u64 stamp = 0;                      // the time stamp of the last view's sub-buffer, and
  u32 position = 0;                   // how far that was read
  bool seen = false;                  // there was one
  bool busy = false, wanted = false, watched = false, ended = false;
  u64 runs = 0;  // counts the worker's
  int error = 0;
  u64 taken = 0;  // events
  u64 resets = 0;  // Buffer::resets, when this ring last began anew
  mutable Counters counters;

  abi::MetaPage& words() { return *reinterpret_cast<abi::MetaPage*>(meta.data()); }
  bool has_view() const { return view && !stale; }
  // The writer has emptied the ring, and this side still has its state before that. A view may have been consumed since then,
  // so the two words for mappers are cleared once more; no swap is under way.
  void begin_anew() {
    stale = view.has_value();
    seen = false;
    position = 0;
    stamp = taken = 0;
    error = 0;
    counters = {};
    Hardware::store(&words().reader.read, u32{0}, Order::relaxed);
    Hardware::store(&words().read, u64{0}, Order::relaxed);
  }
};

struct Remote::Life {
  std::unique_ptr<remote::Process> process;
  std::vector<std::unique_ptr<Ring>> rings;
  enum class Switch : u8 { off, on, unsure };
  std::vector<Switch> switches;  // the worker's, by event of the process; unsure: a request was not answered in time
  u32 users = 0;
  remote::Buffer& buffer() const { return process->buffer(); }
};

struct Remote::Use {
  Use(Remote& r, std::shared_ptr<Life> l) : remote(r), life(std::move(l)) {}
  ~Use() {
    const std::lock_guard lock(remote.mutex_);
    if (--life->users != 0 || remote.over_) return;
    remote.queue_.push_back({Command::What::tidy});
    remote.changed_.notify_one();
  }
  Remote& remote;
  std::shared_ptr<Life> life;
};

}  // namespace ringside::mount
