// The sending end of a recording that is kept on another machine (recording_messages.hpp). A full line makes it wait, and what
// is written meanwhile waits in the rings.
#pragma once
#include <sys/uio.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>

#include "source/recording_messages.hpp"
#include "sys/sys.hpp"

namespace ringside {

class RecordingSender {
 public:
  struct Options {
    std::string to{};                                              // for messages: "tcp:board:5555"
    bool answers = true;                                           // of the receiver: a connection's; not a pipe's
    std::string host{};                                            // this machine's name
    u64 patience_ns = 30'000'000'000, hurried_ns = 3'000'000'000;  // without progress; the second one once `hurried` says so
    std::function<bool()> hurried{};                               // asked while it waits; null: never
  };
  // Says hello. The descriptor becomes non-blocking if it is a socket's.
  static result<std::shared_ptr<RecordingSender>> begin(sys::Fd line, Options options);

  // An error is the line's first one, repeated. Any thread may call these.
  result<u32> add_ring(const std::string& file);
  result<void> write(u32 file, u64 offset, const iovec* parts, int count);
  result<void> set_size(u32 file, u64 size);
  result<void> replace(const std::string& name, std::string_view text);
  // Waits until the receiver has all of it. offers: names of addresses, for which it may ask; then replace() once more.
  result<void> end(bool offers_names = false);
  const std::string& asked() const { return asked_; }  // after end()
  const std::string& to() const { return options_.to; }

 private:
  RecordingSender(sys::Fd line, Options options);
  result<void> send(messages::Head head, const iovec* parts, int count);
  result<void> send_all(iovec* parts, int count);
  result<void> wait_for(short events, const char* what);
  result<void> hear();
  std::string heard_last();
  result<std::string> take_line();
  result<void> take_answer();
  result<void> take_asked();
  tl::unexpected<Error> broken(const std::string& why);

  sys::Fd line_;
  Options options_;
  bool socket_ = false;
  std::mutex mutex_;
  u32 rings_ = 0;
  std::string heard_, asked_;  // heard: beyond the last line
  std::optional<Error> broken_;
};

}  // namespace ringside
