// Reports losses while a recording goes on: at the first one, then at most once a minute.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string>

namespace ringside {

class LossWatch {
 public:
  // Whether to look now: what is lost costs some system calls to ask.
  bool is_due(u64 now_ns) const { return now_ns >= look_ns_; }
  void begin_part() { told_ = 0; }  // of a rotated recording: counts begin at 0 again
  // lost, events: so far. A sentence, if there is news; advice: its last part, what would help.
  std::optional<std::string> look(u64 now_ns, u64 lost, u64 events, const std::string& advice);

 private:
  u64 look_ns_ = 0, tell_ns_ = 0, told_ = 0;
};

}  // namespace ringside
