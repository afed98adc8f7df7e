#include "cli/options.hpp"

#include <fmt/format.h>

#include "analysis/names.hpp"
#include "kernel/tracefs_instance.hpp"
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

void add_events(CLI::App& app, std::vector<std::string>& lists, const std::string& words, const std::string& names) {
  app.add_option(names, lists, words + ": SYSTEM:EVENT, SYSTEM or EVENT, with * and ? as wildcards; commas between several, or more of these options")
      ->check([](const std::string& list) {
        auto parsed = EventPatterns::parse(list);
        return parsed ? std::string() : parsed.error().sentence;
      })
      ->type_name("PATTERN")
      ->allow_extra_args(false);
}

result<void> check_kernel_events(const EventPatterns& patterns, bool of_recorder) {
  const auto known = kernel_events();
  if (!known) return tl::unexpected<Error>(known.error());
  for (const EventPattern& pattern : patterns) {
    if (names_some(pattern, *known)) continue;
    std::vector<std::string> all;
    for (const KernelEvent& e : *known) all.push_back(e.system + ":" + e.name);
    throw UsageError{"-e " + pattern.text() + ": the kernel has no such event" + near_events(pattern, all) + (of_recorder ? "; -u names events of programs" : "")};
  }
  return {};
}

EventPatterns parse_events(const std::vector<std::string>& lists) {
  auto parsed = EventPatterns::parse(lists);
  if (!parsed) throw UsageError{parsed.error().sentence};
  return std::move(*parsed);
}

void check_events(const EventPatterns& patterns, const Trace& trace) {
  if (std::string sentence = unmatched(patterns, trace.formats, trace.opened.size() == 1 ? trace.first().where.text : "all of these"); !sentence.empty())
    throw UsageError{sentence};
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
