// Which machines a clickhouse:// names.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "text/units.hpp"
#include "shipped/query.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using clickhouse::BlockIn;
using clickhouse::ColumnIn;
using clickhouse::quoted_name;
using clickhouse::quoted_text;
using shipped::wanted;

constexpr i64 most_seconds = 9'200'000'000;  // before and after 1970: about as far as nanoseconds reach

result<i64> parse_when(const std::string& text) {
  const auto bad = [&] {
    return refuse(std::errc::invalid_argument,
                  "\"" + text + "\" is no time; write seconds since 1970, 2026-11-24T10:00:00 (UTC) or -10m");
  };
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (text.size() > 1 && text[0] == '-') {
    const auto ago = parse_time(text.substr(1));
    if (!ago || *ago > u64{INT64_MAX} / 2) return bad();
    return now.tv_sec * 1'000'000'000 + now.tv_nsec - static_cast<i64>(*ago);
  }
  tm date{};
  const char* const rest =
      text.size() > 10 ? strptime(text.c_str(), text[10] == 'T' ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &date) : nullptr;
  if (rest != nullptr && (*rest == 0 || std::strcmp(rest, "Z") == 0))
    return std::clamp<i64>(timegm(&date), -most_seconds, most_seconds) * 1'000'000'000;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0 && seconds < 9e9)) return bad();
  return static_cast<i64>(std::llround(seconds * 1e9));
}

}  // namespace

result<ShippedAsRecording::Place> ShippedAsRecording::Place::parse(const std::string& where) {
  Place place;
  place.address = RS_TRY(clickhouse::Address::parse(where));
  for (const auto& [name, value] : std::exchange(place.address.more, {})) {
    if (name == "from") {
      place.from_ns = RS_TRY(parse_when(value));
    } else if (name == "to") {
      place.to_ns = RS_TRY(parse_when(value));
    } else if (name == "config") {
      place.login = RS_TRY(clickhouse::Login::read(value));
    } else if (name == "hosts") {
      for (size_t at = 0; at <= value.size();) {
        const size_t end = std::min(value.find(',', at), value.size());
        if (end > at) place.hosts.push_back(value.substr(at, end - at));
        at = end + 1;
      }
    } else {
      return refuse(std::errc::invalid_argument,
                    place.address.show() + ": after the ? come hosts=, from=, to= and config=, not " + name + "=");
    }
  }
  return place;
}

result<std::vector<ShippedAsRecording::Machine>> ShippedAsRecording::machines(const Place& place) {
  const auto server = RS_TRY(clickhouse::Server::open(place.address, place.login));
  server->most_answer(u64{4} << 30);
  std::string hosts, answer;
  for (const std::string& host : place.hosts) hosts += (hosts.empty() ? "" : ", ") + quoted_text(host);
  if (!hosts.empty()) hosts = " AND host IN (" + hosts + ")";
  // An event may be older than the part that holds it, so the events themselves show which parts are wanted.
  std::map<std::pair<std::string, u64>, Machine> with_events;  // host, boot
  std::set<u64> boots;
  for (const std::string& table :
       shipped::has_range(place) ? RS_TRY(shipped::tables_of_events(*server)) : std::vector<std::string>{}) {
    const auto blocks =
        RS_TRY(server->select("SELECT host, boot, agent, batch, max(error_ns) AS error FROM " + quoted_name(table) + " WHERE " +
                                  shipped::in_range(place) + hosts + " GROUP BY host, boot, agent, batch",
                              answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *host = RS_TRY(wanted(block, "host", true)), *agent = RS_TRY(wanted(block, "agent", true)),
                     *boot = RS_TRY(wanted(block, "boot", false)), *batch = RS_TRY(wanted(block, "batch", false)),
                     *error = RS_TRY(wanted(block, "error", false));
      for (u64 row = 0; row < block.rows; ++row) {
        Machine& machine = with_events[{std::string(host->texts[row]), static_cast<u64>(boot->whole(row))}];
        machine.error_ns = std::max(machine.error_ns, static_cast<u64>(error->whole(row)));
        machine.batches[std::string(agent->texts[row])].insert(static_cast<u64>(batch->whole(row)));
        boots.insert(static_cast<u64>(boot->whole(row)));
      }
    }
  }
  const std::string reaches = shipped::parts_in_range(place);
  const auto blocks = RS_TRY(
      server->select(fmt::format("SELECT host, boot, boot_id, max({0}) AS any_reaches, max(({0}) * error_ns) AS error FROM "
                                 "parts WHERE ({0}{1}){2} GROUP BY host, boot, boot_id ORDER BY host, min(time_ns)",
                                 reaches, boots.empty() ? "" : fmt::format(" OR boot IN ({})", fmt::join(boots, ", ")), hosts),
                     answer));
  std::vector<Machine> machines;
  for (const BlockIn& block : blocks) {
    const ColumnIn *host = RS_TRY(wanted(block, "host", true)), *boot_id = RS_TRY(wanted(block, "boot_id", true)),
                   *boot = RS_TRY(wanted(block, "boot", false)), *error = RS_TRY(wanted(block, "error", false)),
                   *any = RS_TRY(wanted(block, "any_reaches", false));
    for (u64 row = 0; row < block.rows; ++row) {
      Machine machine;
      machine.host = host->texts[row];
      machine.boot_id = boot_id->texts[row];
      machine.boot = static_cast<u64>(boot->whole(row));
      machine.error_ns = static_cast<u64>(error->whole(row));
      if (const auto at = with_events.find({machine.host, machine.boot}); at != with_events.end()) {
        machine.error_ns = std::max(machine.error_ns, at->second.error_ns);
        machine.batches = std::move(at->second.batches);
      } else if (any->whole(row) == 0) {
        continue;
      }
      machines.push_back(std::move(machine));
    }
  }
  if (machines.empty())
    return refuse(std::errc::no_such_file_or_directory,
                  place.address.show() +
                      " has nothing of these machines in this time; SELECT DISTINCT host FROM parts lists the machines");
  return machines;
}

}  // namespace ringside
