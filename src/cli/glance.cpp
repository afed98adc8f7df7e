// ringside without a command, beside a recording: what is in it, and three commands that ask it more.
#include "cli/glance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/live.hpp"
#include "cli/table.hpp"
#include "consumer/trace.hpp"
#include "decode/role.hpp"
#include "text/units.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

constexpr size_t most_shown = 4, most_hints = 3;

struct Hint {
  const char *command, *what;
};

// Those that fit the events best come first; the last two fit any.
std::vector<Hint> hints(const std::map<u32, u64>& counts, const Formats& formats) {
  const auto any = [&](auto is) {
    return std::any_of(counts.begin(), counts.end(), [&](const auto& one) {
      const EventType* const type = formats.find(one.first);
      return type != nullptr && is(*type);
    });
  };
  const auto has = [&](std::string_view full) { return any([&](const EventType& type) { return type.full == full; }); };
  std::vector<Hint> all;
  if (has("sched:sched_switch") && (has("sched:sched_waking") || has("sched:sched_wakeup")))
    all.push_back({"ringside latency wakeup", "how long threads waited for a processor"});
  if (any([](const EventType& type) { return type.of_syscalls; }))
    all.push_back({"ringside syscalls", "system calls: how many, how long, which failed"});
  if (any([](const EventType& type) { return role_of(type).role == Role::span; }))
    all.push_back({"ringside latency span", "how long the program's spans took"});
  if (has("libc:malloc")) all.push_back({"ringside hist libc:malloc/size.log2", "the sizes that were allocated"});
  if (any([](const EventType& type) { return type.stack() != nullptr; }))
    all.push_back({"ringside flame", "where the events came from: ./flame.html"});
  if (all.size() >= most_hints) all.resize(most_hints - 1);
  all.push_back({"ringside report | less", "each event, in time order"});
  all.push_back({"ringside plot -o page.html", "the whole as a page for a browser"});
  if (all.size() > most_hints) all.resize(most_hints);
  return all;
}

}  // namespace

bool can_glance() { return is_recording(default_recording); }

result<int> glance() {
  Trace trace = RS_TRY(open_traces({}));
  std::map<u32, u64> counts;
  u64 events = 0, first = ~u64{0}, last = 0;
  TraceRecord record;
  while (trace.timeline.next(record)) {
    if (record.lost != 0) continue;
    ++counts[record.number()];
    ++events;
    first = std::min(first, record.time);
    last = std::max(last, record.time);
  }
  std::string head = fmt::format("{}: {} of {}", default_recording, counted(events, "event", "events"),
                                 counted(counts.size(), "kind", "kinds"));
  if (events != 0 && !trace.raw_times()) head += " in " + format_time(static_cast<double>(last - first));
  if (const auto wall = trace.wall(); wall && events != 0) head += ", from " + wall_second(wall->of(first) / 1'000'000'000);
  put(head + "\n\n");
  std::vector<std::pair<u64, u32>> order;
  for (const auto& [number, count] : counts) order.emplace_back(count, number);
  std::sort(order.begin(), order.end(), std::greater<>());
  Table table({{"count", Kind::number}, {"event"}});
  for (size_t i = 0; i < std::min(order.size(), most_shown); ++i) {
    const EventType* const type = trace.formats.find(order[i].second);
    table.row({format_count(order[i].first), type != nullptr ? type->full : std::to_string(order[i].second)});
  }
  if (order.size() > most_shown) table.row({"", fmt::format("({} more: ringside top)", order.size() - most_shown)});
  if (!table.empty()) put(table.render(colours()));
  const Account account = trace.account();
  put(fmt::format("{} lost{}\n\n", account.none_lost() ? "none" : lost_count(account), lost_places(account)));
  for (const Hint& hint : hints(counts, trace.formats)) put(fmt::format("{:<36} {}\n", hint.command, hint.what));
  return exit_ok;
}

}  // namespace ringside::cli
