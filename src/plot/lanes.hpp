// The slices and instants of each lane (a processor, a thread, a ring's losses), in bounded memory.
//
//   Lanes lanes(200'000);
//   lanes.add(lane, {.begin = 100, .end = 180, .what = 3}, [&] { return text; });   // in any order; asks for the text if kept
//   lanes.finish();
//   for (const Slice& s : lanes.slices(lane)) ...                                   // by end, then by begin
//
// When there are more than `most`, slices that are too short to see are merged: slices of one lane and one `what` that are
// shorter than 2^shift ns and end in the same 2^shift ns become one, with their number, their summed time and the longest,
// without text. A slice that is alone there stays unchanged. If 2^20 ns are not enough, slices merge regardless of `what`. The
// level is the lowest at which at most `most` slices remain (or one for each lane), so the result does not depend on the order
// of adding.
// Memory: 2 * most slices and their texts. Cost: amortised O(log) for each, O(1) for slices that come in order of their ends
// and merge.
#pragma once
#include <ringside/base/types.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ringside::plot {

struct Slice {
  static constexpr u32 various = ~u32{0};
  u64 begin = 0, end = 0;  // ns; equal: an instant
  u32 what = 0;            // the kind of slice; `various` if merged ones differ
  u32 ring = 0;            // where it was recorded; `various` if merged ones differ
  u32 stack = 0;           // 0: none, or merged ones differ
  u32 merged = 1;          // the number of slices in this one
  u64 weight = 1;          // a count of the owner's: lost events; of one that is not merged, any number
  u64 busy = 0;            // sum of end - begin, at most 2^64 - 1
  u64 longest = 0;         // the largest end - begin
  std::string text{};
};

class Lanes {
 public:
  explicit Lanes(u64 most) : most_(most) {}

  template <class Text>
  void add(u32 lane, Slice slice, Text text) {
    if (lane >= lanes_.size()) lanes_.resize(lane + 1);
    Lane& l = lanes_[lane];
    slice.busy = slice.longest = slice.end - slice.begin;
    const u32 what = mixed() ? 0 : slice.what;
    if (what >= l.latest.size()) l.latest.resize(what + 1, none);
    u32& latest = l.latest[what];
    if (latest != none && meet(l.slices[latest], slice)) {
      merge(l.slices[latest], slice);
      return;
    }
    slice.text = text();
    latest = static_cast<u32>(l.slices.size());
    l.slices.push_back(std::move(slice));
    if (++held_ > room_) compact();
  }

  void finish();
  bool merges() const { return level_ > 0; }
  bool mixed() const { return level_ > last_by_what; }                                             // regardless of `what`
  u32 shift() const { return static_cast<u32>(level_ > last_by_what ? level_ - 2 : level_ - 1); }  // if merges()
  // After finish().
  u64 held() const { return held_; }
  u32 size() const { return static_cast<u32>(lanes_.size()); }
  const std::vector<Slice>& slices(u32 lane) const { return lanes_[lane].slices; }

 private:
  static constexpr u32 none = ~u32{0};
  // Level 0: nothing is merged; 1 to 21: 2^0 to 2^20 ns, by what; 22 to 65: 2^20 to 2^63 ns, mixed.
  static constexpr int last_by_what = 21, last_level = 65;
  struct Lane {
    std::vector<Slice> slices;
    std::vector<u32> latest;  // by `what` (mixed: one entry): its last slice in `slices`
  };
  bool is_short(const Slice& s) const { return level_ > 0 && (s.merged > 1 || (s.end - s.begin) >> shift() == 0); }
  bool meet(const Slice& a, const Slice& b) const {
    return is_short(a) && is_short(b) && (mixed() || a.what == b.what) && a.end >> shift() == b.end >> shift();
  }
  static void merge(Slice& into, const Slice& other);
  void compact();
  void merge_all();

  u64 most_, held_ = 0;
  u64 room_ = 2 * most_;
  int level_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace ringside::plot
