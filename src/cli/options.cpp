#include "cli/options.hpp"

#include <fmt/format.h>

#include "analysis/names.hpp"
#include "cli/units.hpp"

namespace ringside::cli {

void add_source(CLI::App& app, std::optional<KernelWay>& forced) {
  app.add_option_function<std::string>(
         "--source",
         [&forced](const std::string& text) {
           forced.reset();
           if (text != "auto") forced = text == "map" ? KernelWay::map : KernelWay::read;
         },
         "how the kernel's rings are read: auto, map (in place, Linux 6.10) or read")
      ->check(CLI::IsMember({"auto", "map", "read"}))
      ->type_name("WAY");
}

Counters sum(const std::vector<Counters>& all) {
  Counters s;
  for (const Counters& c : all) {
    s.written += c.written;
    s.read += c.read;
    s.overrun += c.overrun;
    s.unread += c.unread;
    s.dropped += c.dropped;
    s.commit_overrun += c.commit_overrun;
    s.bytes += c.bytes;
    s.unfinished_bytes += c.unfinished_bytes;
    s.resident_bytes += c.resident_bytes;
  }
  return s;
}

bool adds_up(const Counters& c) { return c.written == c.read + c.unread + c.overrun; }

std::string identity(const Counters& c) {
  return fmt::format("written {} = read {} + in the ring {} + overwritten {}{}; refused {} = ring full {} + nested {}",
                     format_count(c.written), format_count(c.read), format_count(c.unread), format_count(c.overrun),
                     adds_up(c) ? "" : " (DOES NOT ADD UP)", format_count(c.dropped + c.commit_overrun),
                     format_count(c.dropped), format_count(c.commit_overrun));
}

bool EventFilter::wants(u32 id, const Formats& formats) {
  if (globs_.empty()) return true;
  if (id >= known_.size()) known_.resize(formats.numbers());
  if (known_[id] == 0) {
    const EventType* type = formats.find(id);
    known_[id] = 1;
    for (const std::string& glob : globs_) {
      if (type != nullptr && event_matches(glob, *type)) known_[id] = 2;
    }
  }
  return known_[id] == 2;
}

CLI::Option* add_filter(CLI::App& app, std::string& text) {
  return app.add_option("-F,--filter", text, "only events that meet it, as in the kernel: 'prev_prio < 100 && comm ~ \"cc1*\"'")->type_name("TEXT");
}

void say_notices(Trace& trace) {
  say_first(trace.notices);
  trace.notices.clear();
}

size_t report_problems(const Timeline& timeline, size_t from) {
  const auto& problems = timeline.problems();
  for (size_t i = from; i < problems.size(); ++i) say(problems[i]);
  return problems.size();
}

}  // namespace ringside::cli
