#include "cli/options.hpp"

#include <fmt/format.h>

#include "sys/sys.hpp"
#include "watch/signals.hpp"

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

CLI::Option* add_filter(CLI::App& app, std::string& text) {
  return app.add_option("-F,--filter", text, "only events that meet it, as in the kernel: 'prev_prio < 100 && comm ~ \"cc1*\"'")->type_name("TEXT");
}

Reading::Options reading_of(std::vector<std::string> where, std::string filter) {
  Reading::Options options;
  options.where = std::move(where);
  options.filter = std::move(filter);
  options.notices = say_first;
  options.time = {sys::now_ns, sleep_ns, asked_to_stop};
  return options;
}

bool say_problems(Reading& reading) {
  return reading.each_new_problem([](const std::string& problem) { say(problem); }) != 0;
}

}  // namespace ringside::cli
