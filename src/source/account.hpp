// Where all the events are that somebody tried to write. The rings, a feed, an input, a reading and a recording have one each;
// they are added up by +=, put into words by text/units.hpp, and into JSON here.
//
//   tried   = written + refused
//   written = earlier + read + left out + own + unread + overrun + unrecorded
//
// An event that is open, or that a dead writer left open, is in no account: a ring knows its bytes only
// (Counters::unfinished_bytes).
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "source/source.hpp"

namespace ringside {

// Why an event came into no ring.
enum class Refusal : u8 {
  full,         // the ring was full, in discard mode
  nested,       // handlers filled the ring
  no_ring,      // there was no ring for it, or no memory for that: a limit, a sandbox, a handler that jumped away
  off,          // recording was off, or the ring was stopped for a snapshot
  not_brought,  // an external writer's ring for which its reader brought no memory
  unknown,      // the writer, or the file, gives no reason
};
inline constexpr std::array<Refusal, 6> all_refusals{Refusal::full, Refusal::nested,      Refusal::no_ring,
                                                     Refusal::off,  Refusal::not_brought, Refusal::unknown};
std::string_view to_string(Refusal why);  // "full", "nested", "no_ring": the keys in JSON

class RefusedCounts {
 public:
  u64& operator[](Refusal why) { return count_[static_cast<size_t>(why)]; }
  u64 operator[](Refusal why) const { return count_[static_cast<size_t>(why)]; }
  u64 sum() const {
    u64 all = 0;
    for (const u64 n : count_) all += n;
    return all;
  }
  RefusedCounts& operator+=(const RefusedCounts& more);
  RefusedCounts& operator-=(const RefusedCounts& less);  // stops at 0

 private:
  std::array<u64, all_refusals.size()> count_{};
};
RefusedCounts refused_of(const Counters& c);

struct Account {
  u64 read = 0;        // recorded, shown, added up
  u64 left_out = 0;    // read, and not wanted: by a filter, a pattern
  u64 own = 0;         // read, and not wanted: the recorder's own tasks caused them
  u64 earlier = 0;     // read or lost before this account begins; an earlier one has them
  u64 unread = 0;      // in the rings, for a later reader
  u64 overrun = 0;     // overwritten, or taken by another reader, before this one came to them: the gaps
  u64 unrecorded = 0;  // written, but the recorder could not go on
  RefusedCounts refused{};
  bool overrun_at_least = false;  // a gap has no number: `overrun` counts 1 for it
  bool refused_at_least = false;  // a writer has not reported all that it refused: `refused` may be too small
  // Why more may be missing, a sentence each: rings that could not be read, a recorder that did not finish.
  std::vector<std::string> doubts{};

  u64 written() const { return earlier + read + left_out + own + unread + overrun + unrecorded; }
  u64 tried() const { return written() + refused.sum(); }
  u64 elsewhere() const { return refused.sum() + unrecorded; }  // lost, and no gap shows where
  u64 lost() const { return overrun + elsewhere(); }
  bool proved() const { return doubts.empty(); }  // lost() is all that is missing of what was stored
  bool exact() const { return proved() && !refused_at_least && !overrun_at_least; }
  bool none_lost() const { return lost() == 0 && exact(); }
  // Why lost() may be too small, a sentence each; none if it is exact().
  std::vector<std::string> reasons() const;
  Account& operator+=(const Account& more);
};

// A recording's and a result's: every place, the reasons of refusals that there were, "at_least", "doubts".
nlohmann::ordered_json json_of(const Account& account);
// Hostile or older: what is missing, or is of another type, is 0.
Account account_from(const nlohmann::json& json);
// The fields that every result has: "lost", "proved", "account".
void add_account(nlohmann::ordered_json& result, const Account& account);

// The sum over rings.
Counters sum(const std::vector<Counters>& all);
// written = read + unread + overrun
bool adds_up(const Counters& c);

}  // namespace ringside
