// One reading of a trace for Python. What takes long runs without the interpreter's lock (GIL); Ctrl-C ends it.
#pragma once
#include <pybind11/pybind11.h>

#include <mutex>
#include <string>
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
    if (interrupted_) throw py::error_already_set();
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
        {
          const std::lock_guard lock(formats_);
          Reading::Got got = Reading::Got::other;
          for (; n < most && (got = reading_->next(record_)) != Reading::Got::nothing;) {
            if (got == Reading::Got::other) continue;
            use(static_cast<const TraceRecord&>(record_), reading_->ring(record_), got);
            ++n;
          }
        }
        if (n == 0) more = wait();
      }
    }
    if (interrupted_) throw py::error_already_set();
    over_ = over_ || !more;
    return more;
  }

  Reading& reading() { return *reading_; }
  const Trace& trace() const { return reading_->trace(); }
  std::vector<std::string> problems();
  u64 lost();  // in gaps; once all was read, also refused and unrecorded ones
  const std::vector<std::string>& notices();
  std::mutex& formats_lock() { return formats_; }

 private:
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

  std::mutex formats_;  // events that were handed out read the formats while another thread may read on
  std::unique_ptr<Reading> reading_;
  std::vector<std::string> notices_;
  TraceRecord record_;
  bool busy_ = false, interrupted_ = false, over_ = false;
};

}  // namespace ringside::python
