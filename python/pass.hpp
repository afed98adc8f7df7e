// One reading of a trace for Python. What takes long runs without the interpreter's lock (GIL); Ctrl-C ends it.
#pragma once
#include <pybind11/pybind11.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "consumer/reading.hpp"

namespace ringside::python {

namespace py = pybind11;

struct Wanted {
  std::vector<std::string> where{}, events{}, kernel{};
  std::string filter{}, time{};
  bool follow = false;
  double look_ahead = 0.1, timeout = 0;  // seconds; timeout 0: none
};

// Throws ringside.Error with the error's sentence.
[[noreturn]] void raise(const Error& error);
template <class T>
T or_raise(result<T>&& r) {
  if (!r) raise(r.error());
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

// Text of a trace: bytes that are no UTF-8 become U+FFFD.
py::str to_str(std::string_view text);

class Pass {
 public:
  explicit Pass(const Wanted& wanted);

  // use(record, ring, got) for everything wanted, events and gaps, without the GIL.
  template <class Use>
  void run(const Use& use) {
    const Turn turn(*this);
    {
      const py::gil_scoped_release released;
      do {
        u64 n = 0;
        for (Reading::Got got = reading_->next(record_); got != Reading::Got::nothing; got = reading_->next(record_)) {
          if (got != Reading::Got::other) use(static_cast<const TraceRecord&>(record_), reading_->ring(record_), got);
          if (++n % (1 << 20) == 0 && interrupted()) break;
        }
      } while (!interrupted_ && reading_->wait());
    }
    throw_if_interrupted();
    over_ = true;
  }
  // The next ones, `most` at most; waits until there is one. False: there will be none.
  template <class Use>
  bool some(size_t most, const Use& use) {
    const Turn turn(*this);
    bool more = true;
    {
      const py::gil_scoped_release released;
      for (size_t n = 0; n == 0 && more && !interrupted_;) {
        const bool all = look(n, most, use);
        if (n == 0) all ? more = wait() : interrupted();
      }
    }
    throw_if_interrupted();
    over_ = over_ || !more;
    return more;
  }

  Reading& reading() { return *reading_; }
  const Trace& trace() const { return reading_->trace(); }
  std::vector<std::string> problems();
  u64 lost();  // in gaps; once all was read, also refused and unrecorded ones
  const std::vector<std::string>& notices();
  // What was handed out reads the formats while another thread may read on. With the GIL; it is free while this waits, because
  // a thread that holds the formats may ask for it.
  std::unique_lock<std::mutex> formats_held() {
    const py::gil_scoped_release released;
    return hold();
  }

 private:
  // One that waits gets its turn between two looks of the thread that reads.
  std::unique_lock<std::mutex> hold() {
    const std::lock_guard next(next_);
    return std::unique_lock(formats_);
  }
  // Looks at some records, so that Ctrl-C and other threads are not kept waiting. True: there are no more now.
  template <class Use>
  bool look(size_t& n, size_t most, const Use& use) {
    const auto held = hold();
    for (u32 looked = 0; n < most && looked < 1 << 16; ++looked) {
      const Reading::Got got = reading_->next(record_);
      if (got == Reading::Got::nothing) return true;
      if (got == Reading::Got::other) continue;
      use(static_cast<const TraceRecord&>(record_), reading_->ring(record_), got);
      ++n;
    }
    return false;
  }
  void throw_if_interrupted() {
    if (std::exchange(interrupted_, false)) throw py::error_already_set();  // the next call goes on
  }
  // One thread at a time: others may run while this one reads.
  struct Turn {
    explicit Turn(Pass& pass) : at(pass) {
      if (pass.busy_) throw std::runtime_error("another thread reads from this already; open the trace once for each thread");
      pass.busy_ = true;
    }
    ~Turn() { at.busy_ = false; }
    Pass& at;
  };
  bool wait();
  bool interrupted();

  std::mutex next_, formats_;
  std::unique_ptr<Reading> reading_;
  std::vector<std::string> notices_;
  TraceRecord record_;
  bool busy_ = false, interrupted_ = false, over_ = false;
};

}  // namespace ringside::python
