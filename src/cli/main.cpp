// ringside: record, report and look after rings. Data goes to stdout, everything else to stderr.
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <sstream>

#include "cli/arguments.hpp"
#include "cli/child.hpp"
#include "cli/command.hpp"
#include "cli/glance.hpp"
#include "cli/overview.hpp"
#ifdef RINGSIDE_FLEET
#include "shipped/shipped_input.hpp"
#endif
#ifdef RINGSIDE_MOUNT
#include "mount/fuse/rights.hpp"
#endif
#include "sys/budget.hpp"
#include "sys/sys.hpp"
#include "watch/signals.hpp"

namespace {

// What ends in good order after a lack of memory needs some itself.
std::atomic<void*> reserve{nullptr};

void give_reserve_back() {
  std::free(reserve.exchange(nullptr));
  throw std::bad_alloc();
}

// Memory was short on another thread, or again in a destructor, or where the C++ library lets nothing through: then there may
// be no current exception. What this process leaves is what a killed one leaves.
void end_without_memory() {
  bool memory_was_short = reserve == nullptr;
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    memory_was_short = true;
  } catch (...) {
    __gnu_cxx::__verbose_terminate_handler();
  }
  if (!memory_was_short) std::abort();
  ringside::leave_at_once(ringside::cli::exit_failure, ringside::cli::say_memory_is_short);
}

}  // namespace

// How much of the usual a reading may take.
static bool take_budget() {
  const char* const text = ringside::sys::environment("RINGSIDE_BUDGET");
  if (text == nullptr) return true;
  const char* const end = text + std::strlen(text);
  ringside::u64 percent = 0;
  const auto [at, code] = std::from_chars(text, end, percent);
  if (code != std::errc() || at != end || percent == 0 || percent > ringside::Budget::most_percent) return false;
  ringside::Budget::percent = percent;
  return true;
}

namespace ringside::cli {
namespace {

constexpr struct {
  std::string_view name;
  Command (*add)(CLI::App& app);
} all_commands[] = {{"record", add_record}, {"report", add_report},   {"log", add_log},           {"top", add_top},
                    {"hist", add_hist},     {"latency", add_latency}, {"syscalls", add_syscalls}, {"states", add_states},
                    {"watch", add_watch},   {"trigger", add_trigger}, {"stat", add_stat},         {"list", add_list},
                    {"crash", add_crash},   {"enable", add_enable},   {"disable", add_disable},   {"rm", add_rm},
                    {"serve", add_serve},   {"mount", add_mount},     {"plot", add_plot},         {"flame", add_flame},
                    {"export", add_export}, {"remote", add_remote},   {"recover", add_recover},   {"guest", add_guest},
                    {"stream", add_stream}, {"collect", add_collect}, {"ship", add_ship},         {"doctor", add_doctor}};

// The command that the first word names, or that `help` is asked about, alone: to register the options of all is a fifth of the
// time that a start takes. All of them where none is named, and for `manual` and `complete`, which print them.
std::vector<Command> commands_for(int argc, const char* const* argv, CLI::App& app) {
  const std::string_view first = argc > 1 ? argv[1] : "", name = first == "help" && argc > 2 ? argv[2] : first;
  std::vector<Command> added;
  for (const auto& command : all_commands) {
    if (command.name == name) return {command.add(app)};
  }
  for (const auto& command : all_commands) added.push_back(command.add(app));
  added.push_back(add_manual(app));
  added.push_back(add_complete(app));
  return added;
}

}  // namespace
}  // namespace ringside::cli

int main(int argc, char** argv) {
  using namespace ringside::cli;
  std::set_terminate(end_without_memory);
  reserve = std::malloc(1 << 20);
  std::set_new_handler(give_reserve_back);
  ringside::sys::obey_environment();
  ringside::sys::open_standard_files();
  ringside::sys::guard_all_mappings();
  if (!take_budget()) {
    std::cerr << "ringside: RINGSIDE_BUDGET is no number of percent from 1 to 10000\n";
    return ringside::cli::exit_usage;
  }
#ifdef RINGSIDE_MOUNT
  ringside::mount::put_rights_aside();
#endif
#ifdef RINGSIDE_FLEET
  ringside::open_servers();
#endif
  CLI::App app{"ringside: the Linux tracing ring buffer outside the kernel", "ringside"};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", std::string("ringside ") +
#ifdef RINGSIDE_VERSION
                                           RINGSIDE_VERSION
#else
                                           "0.1.0"
#endif
  );
  app.get_formatter()->column_width(34);
  app.footer(std::string("Examples:\n"
                         "  ringside record --libc malloc,io make        record what a build allocates and reads\n"
                         "  ringside report | less                       look at it, in time order\n"
                         "  ringside top                                 which events are the most frequent ones\n"
                         "  ringside                                     what is in the recording here, and what to ask next\n"
                         "  ringside doctor                              what this machine offers\n"
                         "  ringside help record                         a command's options\n"
                         "\n") +
             common_rules());

  const std::vector<Command> commands = commands_for(argc, argv, app);
  const std::vector<std::string> arguments = arguments_of(argc, argv, app);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // the parser takes them from the back
  } catch (const CLI::ParseError& e) {
    if (arguments.empty() && can_glance()) {
      const auto code = glance();
      return !code ? failed(code.error()) : all_put() ? *code : exit_failure;
    }
    if (arguments.empty()) {
      std::cerr << app.help();
      return exit_usage;
    }
    const bool asked_for_help = e.get_exit_code() == 0;
    if (const std::string unknown = unknown_word(asked_for_help ? std::vector<std::string>{arguments[0]} : arguments, app);
        !unknown.empty()) {
      say(with_help(unknown, command_of(app, arguments[0]) != nullptr ? arguments[0] : ""));
      return exit_usage;
    }
    if (asked_for_help) {  // or for the version
      std::ostringstream text;
      app.exit(e, text);
      put(text.str());
      return all_put() ? exit_ok : exit_failure;
    }
    say(with_help(refused(e, arguments, app), command_of(app, arguments[0]) != nullptr ? arguments[0] : ""));
    return exit_usage;
  }
  ringside::cli::raise_file_limit();
  ringside::sys::survive_file_limit();
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    try {
      const auto code = command.run();
      if (!code) return failed(code.error());
      return *code == exit_ok && !all_put() ? exit_failure : *code;
    } catch (const UsageError& e) {
      say(with_help(e.sentence, command.app->get_name()));
      return exit_usage;
    } catch (const std::bad_alloc&) {
      say_memory_is_short();
    } catch (const std::system_error& e) {
      say(e.what());
    } catch (const std::exception& e) {
      say(std::string("this is a bug of ringside's, not yours; please report it: ") + e.what());
    }
    return exit_failure;
  }
  return exit_usage;
}
