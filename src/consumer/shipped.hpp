// What `ringside ship` sent to a server, as recordings: one for each machine and boot, in a directory that lasts as long as it is used.
//
//   clickhouse://HOST[:PORT]/DATABASE?hosts=a,b&from=TIME&to=TIME&config=FILE
//
// hosts: these machines; none: all. TIME: seconds since 1970, 2026-11-24T10:00:00 (UTC), or -10m, that long ago. config: a file with user
// and password, as ship has.
#pragma once
#include <memory>
#include <optional>
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "clickhouse/server.hpp"

namespace ringside {

class ShippedAsRecording {
 public:
  enum class Times : u8 { mono, wall };  // mono: of that boot, as the machine's own recordings have them

  struct Machine {
    std::string host, boot_id;
    u64 boot = 0;      // its hash, as the rows have it
    u64 error_ns = 0;  // how far its times of day may be off
  };
  struct Place {
    clickhouse::Address address;
    clickhouse::Login login;
    i64 from_ns = INT64_MIN, to_ns = INT64_MAX;
    std::vector<std::string> hosts{};
    static result<Place> parse(const std::string& where);
  };
  // Those whose parts reach into the range.
  static result<std::vector<Machine>> machines(const Place& place);
  static result<std::unique_ptr<ShippedAsRecording>> read(const Place& place, const Machine& machine, Times times);

  ~ShippedAsRecording();
  ShippedAsRecording(const ShippedAsRecording&) = delete;
  ShippedAsRecording& operator=(const ShippedAsRecording&) = delete;
  std::string recording() const { return dir_ + "/recording"; }
  u64 filtered() const { return filtered_; }  // events of these parts that were not shipped

 private:
  explicit ShippedAsRecording(std::string dir) : dir_(std::move(dir)) {}
  std::string dir_;
  u64 filtered_ = 0;
};

}  // namespace ringside
