// The parts of a machine's recordings that agents have shipped: each is described by the recording that it comes from, whose
// numbers of rings and events mean something in this part alone. Here they get numbers that mean the same in all parts.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "clickhouse/server.hpp"
#include "decode/formats.hpp"
#include "shipped/shipped.hpp"
#include "source/recording.hpp"

namespace ringside::shipped {

struct Part {
  std::string agent;
  u64 first = 0, last = 0;  // batches
  u32 order = 0;
  std::map<u32, u32> rings{};                            // number there (plus kernel_rings), and here
  std::map<std::pair<bool, std::string>, u32> events{};  // the kernel's?, full name; number here (plus kernel_ids)
};

class Parts {
 public:
  Parts(const ShippedAsRecording::Place& place, const ShippedAsRecording::Machine& machine, ShippedAsRecording::Times times)
      : place_(place), machine_(machine), times_(times) {}
  // Needs a directory of its own.
  result<void> read(clickhouse::Server& server, const std::string& dir);

  std::vector<Part>& all() { return parts_; }
  const std::vector<RecordedRing>& rings() const { return rings_; }
  const Formats& formats() const { return formats_; }
  bool name(const std::string& table) const { return names_.count(table) != 0; }
  bool complete() const { return complete_; }  // the recorder of each has finished
  u64 filtered() const { return filtered_; }
  u64 start_ns() const { return meta_.start_ns; }
  u64 duration_ns() const { return meta_.duration_ns; }
  const std::map<std::pair<std::string, u64>, u32>& by_batch() const { return by_batch_; }  // agent and last batch; in all()

  // The part that holds a batch; null: it has not arrived.
  Part* of(std::string_view agent, u64 batch);
  // A ring's number here. The recorder may have been killed before it listed the ring: then that has a number, and no name.
  u32 ring_of(Part& part, u32 number);
  // The number of an event that no format describes, here; none: too many types.
  std::optional<u32> number_of_unknown(bool kernel, std::string_view payload);
  // Adds the description of all parts, and their rings.
  result<void> describe(RecordingWriter& writer) const;

 private:
  using RingKey = std::tuple<bool, i32, i32, i32, std::string>;
  std::string wanted_parts() const;
  bool has_events(std::string_view agent, u64 first, u64 last) const;
  result<void> add(Part part, RecordingMeta meta, i64 offset_ns);  // of the time of day
  u32 add_ring(Part& part, const RecordedRing& ring, const RingKey& key);
  std::optional<u16> free_id(bool kernel, u32 id);

  const ShippedAsRecording::Place& place_;
  const ShippedAsRecording::Machine& machine_;
  const ShippedAsRecording::Times times_;
  RecordingMeta meta_;  // of all parts
  std::string printk_formats_, kept_names_;
  Formats formats_;
  std::vector<Part> parts_;
  Part* last_part_ = nullptr;
  std::map<std::pair<std::string, u64>, u32> by_batch_;  // agent and last batch
  std::map<std::tuple<bool, std::string, std::string>, u32> ids_;
  std::set<std::pair<bool, u32>> taken_;
  std::map<bool, u32> next_id_{{false, 1}, {true, 1}};
  std::set<std::string> names_;
  std::map<RingKey, u32> ring_numbers_;
  std::set<u32> ring_taken_;
  std::vector<RecordedRing> rings_;
  std::map<std::pair<i32, u64>, RingName> threads_;
  std::set<std::string> doubts_;  // that were reported
  u64 filtered_ = 0;
  bool complete_ = true;
};

}  // namespace ringside::shipped
