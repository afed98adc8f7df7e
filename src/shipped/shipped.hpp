// What `ringside ship` sent to a server, as recordings: one for each machine and boot, in a directory that lasts as long as it
// is used.
//
//   clickhouse://HOST[:PORT]/DATABASE?hosts=a,b&from=TIME&to=TIME&config=FILE
//
// hosts: these machines; none: all. TIME: seconds since 1970, 2026-11-24T10:00:00 (UTC), or -10m, that long ago. config: a file
// with user and password, as ship has.
#pragma once
#include <map>
#include <memory>
#include <ringside/base/result.hpp>
#include <set>
#include <string>
#include <vector>

#include "clickhouse/server.hpp"
#include "consumer/input.hpp"
#include "schema/event_pattern.hpp"
#include "source/source.hpp"
#include "source/temporary_directory.hpp"

namespace ringside {

class ShippedAsRecording {
 public:
  enum class Times : u8 { mono, wall };  // mono: of that boot, as the machine's own recordings have them

  struct Machine : MachineTime {
    std::string boot_id{};
    u64 boot = 0;                                    // its hash, as the rows have it
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
  static result<std::unique_ptr<ShippedAsRecording>> read(const Place& place, const Machine& machine, Times times);

  std::string recording() const { return dir_.path() + "/recording"; }
  const std::vector<std::string>& remarks() const { return remarks_; }  // sentences about what is not in it

 private:
  explicit ShippedAsRecording(TemporaryDirectory dir) : dir_(std::move(dir)) {}
  TemporaryDirectory dir_;
  std::vector<std::string> remarks_;
};

}  // namespace ringside
