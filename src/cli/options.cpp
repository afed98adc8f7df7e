#include "cli/options.hpp"

#include <fmt/format.h>

#include "analysis/names.hpp"
#include "export/units.hpp"

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

void add_events(CLI::App& app, std::vector<std::string>& lists, const std::string& words) {
  app.add_option("-e,--event", lists, words + ": SYSTEM:EVENT, SYSTEM or EVENT, with * and ? as wildcards; commas between several, or more of -e")
      ->check([](const std::string& list) {
        auto parsed = EventPatterns::parse(list);
        return parsed ? std::string() : parsed.error().sentence;
      })
      ->type_name("PATTERN")
      ->allow_extra_args(false);
}

EventPatterns parse_events(const std::vector<std::string>& lists) {
  auto parsed = EventPatterns::parse(lists);
  if (!parsed) throw UsageError{parsed.error().sentence};
  return std::move(*parsed);
}

bool EventFilter::wants(u32 id, const Formats& formats) {
  if (patterns_.empty()) return true;
  if (id >= known_.size()) known_.resize(formats.numbers());
  if (known_[id] == 0) {
    const EventType* type = formats.find(id);
    known_[id] = type != nullptr && matches(patterns_, *type) ? 2 : 1;
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
