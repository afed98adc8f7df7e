#include "source/account.hpp"

#include <algorithm>

#include "sys/json.hpp"

namespace ringside {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

u64 number(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<u64>() : 0;
}

}  // namespace

std::string_view to_string(Refusal why) {
  switch (why) {
    case Refusal::full:
      return "full";
    case Refusal::nested:
      return "nested";
    case Refusal::no_ring:
      return "no_ring";
    case Refusal::off:
      return "off";
    case Refusal::not_brought:
      return "not_brought";
    case Refusal::unknown:
      break;
  }
  return "unknown";
}

RefusedCounts& RefusedCounts::operator+=(const RefusedCounts& more) {
  for (const Refusal why : all_refusals) (*this)[why] += more[why];
  return *this;
}

RefusedCounts& RefusedCounts::operator-=(const RefusedCounts& less) {
  for (const Refusal why : all_refusals) (*this)[why] -= std::min((*this)[why], less[why]);
  return *this;
}

RefusedCounts refused_of(const Counters& c) {
  RefusedCounts refused;
  refused[c.refusals == Refusals::by_reason ? Refusal::full : Refusal::unknown] = c.dropped;
  refused[Refusal::nested] = c.commit_overrun;
  return refused;
}

std::vector<std::string> Account::reasons() const {
  std::vector<std::string> all = doubts;
  if (refused_at_least) all.emplace_back("a writer has not reported all the events that it refused");
  if (overrun_at_least) all.emplace_back("a gap does not say how many events are missing; it counts as 1");
  return all;
}

Account& Account::operator+=(const Account& more) {
  read += more.read;
  left_out += more.left_out;
  own += more.own;
  earlier += more.earlier;
  unread += more.unread;
  overrun += more.overrun;
  unrecorded += more.unrecorded;
  refused += more.refused;
  overrun_at_least = overrun_at_least || more.overrun_at_least;
  refused_at_least = refused_at_least || more.refused_at_least;
  doubts.insert(doubts.end(), more.doubts.begin(), more.doubts.end());
  return *this;
}

ordered_json json_of(const Account& a) {
  ordered_json refused = ordered_json::object(), at_least = ordered_json::array();
  for (const Refusal why : all_refusals)
    if (a.refused[why] != 0) refused[std::string(to_string(why))] = a.refused[why];
  if (a.overrun_at_least) at_least.push_back("overrun");
  if (a.refused_at_least) at_least.push_back("refused");
  return {{"tried", a.tried()},     {"written", a.written()}, {"read", a.read},
          {"left_out", a.left_out}, {"own", a.own},           {"earlier", a.earlier},
          {"unread", a.unread},     {"overrun", a.overrun},   {"unrecorded", a.unrecorded},
          {"refused", refused},     {"at_least", at_least},   {"doubts", a.doubts}};
}

Account account_from(const json& j) {
  Account a;
  if (!j.is_object()) return a;
  a.read = number(j, "read");
  a.left_out = number(j, "left_out");
  a.own = number(j, "own");
  a.earlier = number(j, "earlier");
  a.unread = number(j, "unread");
  a.overrun = number(j, "overrun");
  a.unrecorded = number(j, "unrecorded");
  if (const auto refused = j.find("refused"); refused != j.end() && refused->is_object())
    for (const Refusal why : all_refusals) a.refused[why] = number(*refused, to_string(why).data());
  if (const auto states = j.find("at_least"); states != j.end() && states->is_array())
    for (const json& state : *states) {
      a.overrun_at_least = a.overrun_at_least || state == "overrun";
      a.refused_at_least = a.refused_at_least || state == "refused";
    }
  if (const auto doubts = j.find("doubts"); doubts != j.end() && doubts->is_array())
    for (const json& doubt : *doubts)
      if (doubt.is_string()) a.doubts.push_back(doubt.get<std::string>());
  return a;
}

void add_account(ordered_json& result, const Account& account) {
  result["lost"] = account.lost();
  result["proved"] = account.exact();
  result["account"] = json_of(account);
}

Counters sum(const std::vector<Counters>& all) {
  Counters s;
  for (const Counters& c : all) {
    s.written += c.written;
    s.read += c.read;
    s.overrun += c.overrun;
    s.unread += c.unread;
    s.refusals = std::max(s.refusals, c.refusals);
    s.dropped += c.dropped;
    s.commit_overrun += c.commit_overrun;
    s.bytes += c.bytes;
    s.unfinished_bytes += c.unfinished_bytes;
    s.resident_bytes += c.resident_bytes;
  }
  return s;
}

bool adds_up(const Counters& c) { return c.written == c.read + c.unread + c.overrun; }

}  // namespace ringside
