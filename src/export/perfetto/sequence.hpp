// A sequence of packets of a Perfetto trace, and what its packets call by numbers: names, stacks, and all that is in
// stacks.
//
//   sequence.make_room();                                    // before the numbers of an event
//   u64 name = sequence.text(Sequence::name, "request");     // the same number for the same text
//   u64 stack = sequence.callstack(record.stack, stacks);    // 0: it has no frames
//   sequence.begin(packet, time);                            // the packet carries what is new
//
// Bounded: after `most` numbers it begins anew, and round() changes: older numbers no longer hold.
#pragma once
#include <array>
#include <map>
#include <protozero/pbf_writer.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "stacks/stacks.hpp"

namespace ringside::perfetto {

class Sequence {
 public:
  static constexpr size_t most = 1 << 20;
  // Texts, by their fields of InternedData.
  enum Text : u32 { category = 1, name = 2, annotation = 3, function = 5, build_id = 16, path = 17, source = 18 };

  // defaults: a message TracePacketDefaults; empty: none.
  explicit Sequence(u32 id, std::string defaults = "", size_t room = most)
      : id_(id), room_(room), defaults_(std::move(defaults)) {}

  void make_room() {
    if (last_ >= room_) [[unlikely]] clear();
  }
  u32 round() const { return round_; }
  u64 text(Text kind, std::string_view words);
  u64 callstack(u32 stack, Stacks& stacks);
  void begin(protozero::pbf_writer& packet, u64 time);  // of CLOCK_BOOTTIME

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  using Texts = std::unordered_map<std::string, u64, Hash, std::equal_to<>>;

  void clear();
  u64 frame(const Stacks::Frame& f, Stacks& stacks);
  u64 mapping(std::string_view of, std::string_view its_build_id);

  const u32 id_;
  const size_t room_;
  const std::string defaults_;
  std::string interned_;  // what the next packet carries
  std::array<Texts, source + 1> texts_;
  std::map<std::pair<u64, u64>, u64> mappings_;           // by path and build id
  std::map<std::tuple<u64, u64, u32>, u64> frames_;       // by mapping, address, function
  std::unordered_map<u32, u64> callstacks_;
  u64 last_ = 0;  // the latest number
  u32 round_ = 1;
  bool begun_ = false;
};

}  // namespace ringside::perfetto
