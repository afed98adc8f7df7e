// What `ringside ship` sent to a server, as recordings: one for each machine and boot, in a directory that lasts as long as it
// is used.
//
//   clickhouse://HOST[:PORT]/DATABASE?hosts=a,b&from=TIME&to=TIME&config=FILE
//
// hosts: these machines; none: all. TIME: seconds since 1970, 2026-11-24T10:00:00 (UTC), or -10m, that long ago. config: a file
// with user and password, as ship has.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <ringside/base/result.hpp>
#include <set>
#include <string>
#include <vector>

#include "clickhouse/server.hpp"
#include "schema/event_pattern.hpp"
#include "source/source.hpp"
#include "source/temporary_directory.hpp"

namespace ringside {

// What a table of counts needs of events: then the server adds up those that are alike. No order may matter.
struct Tallied {
  std::vector<std::string> columns{};  // as analysis/column.hpp has them
  std::string filter{};
  EventPatterns only{};  // none: all
};

class ShippedAsRecording {
 public:
  enum class Times : u8 { mono, wall };  // mono: of that boot, as the machine's own recordings have them

  struct Machine {
    static constexpr u64 unknown = ~u32{0};  // an error: the clock is not synchronised
    std::string host, boot_id;
    u64 boot = 0;                                    // its hash, as the rows have it
    u64 error_ns = 0;                                // how far its times of day may be off
    std::map<std::string, std::set<u64>> batches{};  // of each agent: those with events in the range, if there is one
  };
  struct Place {
    clickhouse::Address address;
    clickhouse::Login login;
    i64 from_ns = INT64_MIN, to_ns = INT64_MAX;
    std::vector<std::string> hosts{};
    static result<Place> parse(const std::string& where);
  };
  // Those with events in the range, and those whose parts reach into it.
  static result<std::vector<Machine>> machines(const Place& place);
  // tallied: an event stands for times_of() events that are alike in what is asked for, if the server can add them up, and for
  // one if not; the rest of it is zeros.
  static result<std::unique_ptr<ShippedAsRecording>> read(const Place& place, const Machine& machine, Times times,
                                                          const Tallied* tallied = nullptr);
  static u64 times_of(Bytes payload) {
    u64 times = 1;
    if (payload.size >= sizeof times) std::memcpy(&times, payload.data + payload.size - sizeof times, sizeof times);
    return times;
  }

  std::string recording() const { return dir_.path() + "/recording"; }
  bool tallied() const { return tallied_; }
  const std::vector<std::string>& remarks() const { return remarks_; }  // sentences about what is not in it

 private:
  explicit ShippedAsRecording(TemporaryDirectory dir) : dir_(std::move(dir)) {}
  TemporaryDirectory dir_;
  std::vector<std::string> remarks_;
  bool tallied_ = false;
};

}  // namespace ringside
