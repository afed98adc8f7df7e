// The receiving end of a recording that another machine makes (recording_messages.hpp). The sender is a stranger: what it says
// is checked before it is done, it names no file but those of a recording, and takes memory for one message of a bounded size.
#pragma once
#include <functional>
#include <map>
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "source/recording_messages.hpp"
#include "sys/sys.hpp"

namespace ringside {

class RecordingReceiver {
 public:
  // Where the recording of this host goes: a directory that RecordingWriter could make one in. Asked once, at hello.
  using Place = std::function<result<std::string>(const std::string& host)>;
  explicit RecordingReceiver(Place place) : place_(std::move(place)) {}

  // Does what the bytes say, whatever parts they come in. An error ends it: nothing more is to be taken. Bytes after the end
  // are one, too.
  result<void> take(const u8* bytes, size_t size);
  void close() { rings_.clear(), folder_ = {}; }  // its files and its lock; nothing more is taken
  bool greeted() const { return !dir_.empty(); }
  bool ended() const { return ended_; }                // the recorder has said so
  bool offers_names() const { return offers_names_; }  // once it has ended
  void ask() { asked_ = true; }                        // the names may still come
  bool awaits_names() const { return asked_; }
  bool has_recording() const { return has_meta_; }   // false: nothing that could be read
  const std::string& dir() const { return dir_; }    // empty: no hello yet
  const std::string& host() const { return host_; }  // a name, safe as that of a file; empty: it said none

  // A name of letters, digits, '.', '-' and '_' that does not begin with '.'; of other letters '_' is left.
  static std::string safe_host(std::string_view host);

 private:
  struct Ring {
    std::string file;
    u64 size = 0;
    sys::Fd fd{};
  };
  result<void> check(const messages::Head& head) const;
  result<void> obey(const messages::Head& head, const u8* payload);
  result<void> greet(const u8* payload, u32 size);
  result<void> add_ring(std::string name);
  result<void> write(Ring& ring, u64 offset, const u8* bytes, u32 size);
  result<void> open(Ring& ring);
  result<void> replace(const std::string& name, const u8* text, u64 size);

  Place place_;
  std::string dir_, host_;
  sys::Fd folder_;
  std::vector<Ring> rings_;
  std::map<std::string, u32> numbers_;
  size_t open_ = 0;
  std::vector<u8> pending_;  // less than a message
  bool ended_ = false, has_meta_ = false, offers_names_ = false, asked_ = false;
};

}  // namespace ringside
