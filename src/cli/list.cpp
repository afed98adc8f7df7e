// ringside list and ringside rm: lists the instances, or the events of one, and removes instances.
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>

#include "analysis/names.hpp"
#include "cli/options.hpp"
#include "cli/result.hpp"
#include "consumer/where.hpp"
#include "probe/probes.hpp"
#include "remote/process.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"

namespace ringside::cli {
namespace {

struct ListOptions {
  std::string instance, user;
  std::vector<std::string> events, pattern_options;
  bool json = false, all = false;
};

struct SwitchOptions {
  std::string instance;
  std::vector<std::string> events;
  bool stack = false;
};

struct RmOptions {
  std::vector<std::string> names;
  bool force = false, stale = false;
};

// Of an instance, or of an external writer, which gets no rings for that.
result<std::vector<EventInfo>> events_in(const std::string& name) {
  if (const Where where = Where::of(name); where.is_writer())
    return RS_TRY(remote::Process::offer_at(where.socket, std::chrono::seconds(2))).events;
  return RS_TRY(Instance::open(name))->events();
}

constexpr Members event_of_instance = {{"", Kind::text, "", "event"},
                                       {"system", Kind::text, "its system"},
                                       {"name", Kind::text, "its name"},
                                       {"id", Kind::number, "its number", "id"},
                                       {"enabled", Kind::flag, "whether it is written", "enabled"}};
constexpr Members event_by_pattern = {{"", Kind::text, "", "event"},
                                      {"system", Kind::text, "its system"},
                                      {"name", Kind::text, "its name"},
                                      {"id", Kind::number, "its number", "id"},
                                      {"kernel", Kind::flag, "it is the kernel's"},
                                      {"fields", Kind::text, "the declarations of its fields", "fields"}};
constexpr Members one_parameter = {
    {"name", Kind::text, "its name"},
    {"type", Kind::text, "as in C"},
    {"fetch", Kind::text, "where the kernel finds it at the function's first instruction, and as what"},
    {"why", Kind::text, "instead, if the kernel finds it nowhere there"}};
constexpr Members one_function = {
    {"probe", Kind::text, "as `record -e` takes it", "probe"},
    {"", Kind::text, "", "parameters"},
    {"returns", Kind::text, "the type of its result; null without debugging information", "returns"},
    {"parameters", Kind::array, "null without debugging information; else:", nullptr, one_parameter}};
constexpr Members one_instance = {
    {"instance", Kind::text, "its name; its path, if it is another user's", "instance"},
    {"state", Kind::text,
     "`live`, `waiting`, `stale`, `unknown`, `half-made`, `unreadable`; `writer`: an external writer that has announced "
     "itself; "
     "the last three have no more keys",
     "state"},
    {"rings", Kind::number, "how many rings it has", "rings"},
    {"rings_of", Kind::text, "`cpu` or `thread`", "of"},
    {"unread", Kind::count, "events that are still in them", "unread"},
    {"resident_bytes", Kind::bytes, "what they take of the memory", "resident"},
    {"path", Kind::text, "its directory"}};
constexpr Members list_result = {
    {"[]", Kind::object, "of instances:", nullptr, one_instance},
    {"[].user", Kind::text, "with `--all` or `-U`, and as root without RINGSIDE_ROOT: whose it is"},
    {"[]", Kind::object, "with `-i`, of the events of an instance:", nullptr, event_of_instance},
    {"[]", Kind::object, "with `-e`, of events:", nullptr, event_by_pattern},
    {"[]", Kind::object, "with `uprobe:PATH:PATTERN`, of functions:", nullptr, one_function}};

// Keys are in the order of the alphabet.
void print(const Table& table, bool as_json) {
  put(as_json ? line_of(nlohmann::json(table.objects())) : table.render(colours()));
}

result<int> list_events(const ListOptions& options) {
  Table table;
  table.add(event_of_instance);
  for (const EventInfo& e : RS_TRY(events_in(options.instance)))
    table.row({e.system + ":" + e.name, e.system, e.name, e.id, e.enabled});
  print(table, options.json);
  if (table.empty()) say("no program has declared an event in " + options.instance + " yet");
  return exit_ok;
}

// The declarations of an event's own fields, from its format.
std::string fields_of(const std::string& format) {
  std::string fields;
  for (size_t at = format.find("\tfield:"); at != std::string::npos; at = format.find("\tfield:", at)) {
    at += 7;
    std::string field = format.substr(at, format.find(';', at) - at);
    if (field.find(" common_") == std::string::npos) fields += (fields.empty() ? "" : ", ") + std::move(field);
  }
  return fields;
}

// Events by pattern: the kernel's and, with -i, the instance's.
result<int> list_matching(const ListOptions& options) {
  std::vector<EventInfo> known;
  if (!options.instance.empty()) known = RS_TRY(events_in(options.instance));
  auto kernel = kernel_events();
  if (!kernel && options.instance.empty()) return tl::unexpected<Error>(kernel.error());
  Table table;
  table.add(event_by_pattern);
  const auto add = [&](const EventInfo& e, const std::string& system) {
    table.row({system + ":" + e.name, system, e.name, e.id, e.kernel, fields_of(e.format)});
  };
  const EventPatterns wanted = parse_events(options.events);
  for (const EventInfo& e : known) {
    if (wanted.matches(e.system, e.name)) add(e, e.system);
  }
  for (const KernelEvent& e : kernel ? *kernel : std::vector<KernelEvent>{}) {
    if (std::any_of(wanted.begin(), wanted.end(), [&](const EventPattern& pattern) { return names(pattern, e); }))
      add(RS_TRY(kernel_event(e)), e.shown_system());
  }
  if (!table.empty() || options.json) print(table, options.json);
  if (!table.empty()) return exit_ok;
  std::vector<std::string> there;
  for (const EventInfo& e : known) there.push_back(e.system + ":" + e.name);
  for (const KernelEvent& e : kernel ? *kernel : std::vector<KernelEvent>{}) there.push_back(e.shown());
  const EventPattern& first = *wanted.begin();
  const bool is_instance = options.instance.empty() && Instance::open(first.text()).has_value();
  throw UsageError{
      "no event matches " + first.text() +
      (is_instance ? "; the events of the instance: ringside list -i " + first.text() : near_events(first, there))};
}

// Functions that a uprobe can be at, and what it can take there.
result<int> list_functions(const ListOptions& options) {
  Table table;
  table.add(one_function);
  bool any_described = false, any_without = false;
  for (const std::string& text : options.events) {
    const Probe probe = RS_TRY(Probe::parse(text));
    if (probe.kind != Probe::Kind::uprobe || probe.has_list || probe.at_return || probe.offset != 0)
      throw UsageError{"list shows the functions that uprobe:PATH:PATTERN names, with * and ?, not " + in_quotes(text)};
    for (const ProbeableFunction& function : RS_TRY(probeable(probe))) {
      Json parameters = Json::array();
      std::string shown;
      for (const Variables::Known& known : function.parameters) {
        Json one{{"name", known.name}, {"type", known.type}};
        one[known.fetch.empty() ? "why" : "fetch"] = known.fetch.empty() ? known.why : known.fetch;
        parameters.push_back(std::move(one));
        const std::string declared = known.type + (known.type.ends_with('*') ? "" : " ") + known.name;
        shown += (shown.empty() ? "" : ", ") + (known.fetch.empty() ? "[" + declared + "]" : declared);
        any_without = any_without || known.fetch.empty();
      }
      any_described = any_described || function.is_described;
      if (function.is_described)
        table.row({function.probe, shown, function.returns, std::move(parameters)});
      else
        table.row({function.probe, Cell(nullptr, "?"), nullptr, nullptr});
    }
  }
  print(table, options.json);
  if (any_without && !options.json)
    say("[in brackets]: not there as a whole at the function's first instruction; --json says why");
  if (!any_described)
    say("?: no debugging information; install the debug symbols, build with -g, or take $arg1, $arg2:string, ...");
  return exit_ok;
}

// An instance, by the name that other commands take.
struct Found {
  std::string name, user{};
};

std::string user_name(uid_t uid) {
  const passwd* const known = getpwuid(uid);
  return known != nullptr ? known->pw_name : std::to_string(uid);
}

// Those of other users, by their paths. only: of this user alone.
result<std::vector<Found>> instances_of_others(const std::string& only) {
  if (geteuid() != 0)
    return refuse(std::errc::permission_denied,
                  "instances of other users are theirs alone; root sees them: sudo ringside list");
  if (!only.empty() && getpwnam(only.c_str()) == nullptr && only.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError{"there is no user " + in_quotes(only) + " here"};
  std::vector<Found> all;
  for (const Instance::OfAnother& one : Instance::of_others()) {
    const std::string user = user_name(one.user);
    if (only.empty() || only == user || only == std::to_string(one.user)) all.push_back({one.path, user});
  }
  return all;
}

// waiting: the process that made it lives, as a recorder does whose program has not begun, or has ended.
enum class State { live, waiting, stale, unknown };
State state_of(Instance& instance) {
  switch (instance.users()) {
    case Presence::some: return State::live;
    case Presence::unknown: return State::unknown;
    case Presence::none: break;
  }
  return instance.maker_lives() ? State::waiting : State::stale;
}
const char* to_string(State state) {
  constexpr const char* names[] = {"live", "waiting", "stale", "unknown"};
  return names[static_cast<int>(state)];
}

// The table of instances.
class Instances {
 public:
  explicit Instances(bool with_users) {
    table_.add({"user", Kind::text, with_users ? "user" : "", with_users});
    table_.add(one_instance);
  }

  void half_made(const std::string& name) {
    table_.row({user_name(geteuid()), name, "half-made"});
    say("half-made: the process that made " + name + " died or found no space; take it away with ringside rm -f " + name);
  }
  void add(const Found& one) {
    const std::string& name = one.name;
    const auto opened = Instance::open(name);
    if (!opened) {
      say(opened.error().sentence);
      return table_.row({one.user, name, "unreadable"});
    }
    const State now = state_of(**opened);
    const char* const state = to_string(now);
    seen_.insert(now);
    std::vector<Counters> counters;
    for (const RingInfo& ring : (*opened)->rings()) {
      counters.push_back(ring.counters);
      if (ring.problem.empty()) continue;
      say(name + ": " + ring.problem);
      code_ = exit_failure;
    }
    const Counters total = sum(counters);
    const char* const of = (*opened)->cpu_rings() != 0 ? "cpu" : "thread";
    table_.row({one.user, name, state, counters.size(), of, total.unread, total.resident_bytes, (*opened)->path()});
  }
  // An external writer that has announced itself: it has rings only while a reader has it.
  void add_writer(const std::string& name) {
    table_.row({user_name(geteuid()), name, "writer", Cell::absent(), Cell::absent("remote")});
  }
  // none: the message when there are no instances.
  int show(bool as_json, const std::string& none) const {
    print(table_, as_json);
    if (table_.empty()) say(none);
    if (seen_.count(State::unknown) != 0)
      say("unknown: nothing shows whether some of its writers live; if you know that they are dead: ringside rm --force "
          "NAME");
    if (seen_.count(State::waiting) != 0)
      say("waiting: no process writes to it; the one that made it, a recorder perhaps, lives");
    if (seen_.count(State::stale) != 0)
      say("stale: no process writes to it; look with ringside crash NAME, take away with ringside rm NAME");
    return code_;
  }

 private:
  Table table_;
  std::set<State> seen_;
  int code_ = exit_ok;
};

result<int> list(ListOptions options) {
  options.events.insert(options.events.end(), options.pattern_options.begin(), options.pattern_options.end());
  if (std::any_of(options.events.begin(), options.events.end(), Probe::is)) return list_functions(options);
  if (!options.events.empty()) return list_matching(options);
  if (!options.instance.empty()) return list_events(options);
  // Root has all users in view, unless RINGSIDE_ROOT names one place.
  const bool all_users = options.all || (options.user.empty() && geteuid() == 0 && std::getenv("RINGSIDE_ROOT") == nullptr);
  const bool others = all_users || !options.user.empty();
  std::vector<Found> found;
  const bool own = options.user.empty() || options.user == user_name(geteuid()) || options.user == std::to_string(geteuid());
  if (own)
    for (std::string& name : RS_TRY(Instance::find(false))) found.push_back({std::move(name), user_name(geteuid())});
  if (others && (all_users || !own))
    for (Found& more : RS_TRY(instances_of_others(options.user))) found.push_back(std::move(more));
  Instances instances(others);
  const auto half_made = own ? Instance::find(true) : result<std::vector<std::string>>(std::vector<std::string>{});
  for (const std::string& name : half_made ? *half_made : std::vector<std::string>{}) {
    std::erase_if(found, [&](const Found& f) { return f.name == name; });
    instances.half_made(name);
  }
  for (const Found& one : found) instances.add(one);
  for (const std::string& name : own ? announced_writers() : std::vector<std::string>{})
    if (remote::Process::offer_at(announced_socket(name), std::chrono::milliseconds(200))) instances.add_writer(name);
  const std::string elsewhere = geteuid() == 0 ? ", where RINGSIDE_ROOT is; those of all users: ringside list --all" : "";
  return instances.show(options.json, others ? "no instances" + (options.user.empty() ? "" : " of " + options.user)
                                             : "no instances under " + instances_root() + elsewhere);
}

// Without a name: the only one that there is.
std::string the_instance(const std::string& name) {
  if (!name.empty()) return name;
  const auto all = Instance::list();
  if (all.size() == 1) return all.front();
  throw UsageError{all.empty() ? "there is no instance" : "which instance? Name one with -i: " + short_list(all)};
}

// An event has its fields from its declaration on: those of events that are there stay as they are.
result<int> switch_stacks(Instance& instance, const EventPatterns& patterns, bool on) {
  RS_TRY(instance.choose_stacks(patterns, on));
  std::vector<std::string> with, without;
  for (const EventInfo& e : instance.events()) {
    if (is_about_stacks(e) || !patterns.matches(e.system, e.name)) continue;
    (has_stack(e) ? with : without).push_back(e.system + ":" + e.name);
  }
  const std::string from_now =
      instance.name() + ": events that are declared from now on " + (on ? "get a stack" : "get no stack");
  const auto& unreached = on ? without : with;
  say(from_now + (unreached.empty() ? ""
                                    : "; not reached, because they were declared before: " + short_list(unreached) +
                                          ". A new instance has them " + (on ? "with" : "without") +
                                          " a stack: ringside record " + (on ? "--stack " : "") + "COMMAND"));
  if (on && !with.empty())
    say(instance.name() + ": " + short_list(with) + (with.size() == 1 ? " has" : " have") + " a stack already");
  return exit_ok;
}

result<int> switch_events(const SwitchOptions& options, bool on) {
  const EventPatterns patterns = parse_events(options.events);
  const std::string name = the_instance(options.instance);
  await_instance(name);
  const auto opened = Instance::open(name);
  if (!opened) RS_TRY(not_the_kernels(name));
  if (!opened) return tl::unexpected<Error>(opened.error());
  Instance& instance = **opened;
  if (options.stack) return switch_stacks(instance, patterns, on);
  RS_TRY(instance.enable(patterns, on));
  std::vector<std::string> all, switched;
  for (const EventInfo& e : instance.events()) {
    all.push_back(e.system + ":" + e.name);
    if (patterns.matches(e.system, e.name)) switched.push_back(all.back());
  }
  if (!switched.empty()) say(instance.name() + ": " + (on ? "enabled " : "disabled ") + short_list(switched));
  for (const EventPattern& pattern : patterns) {
    const auto matches = [&](const std::string& e) {
      return pattern.matches(e.substr(0, e.find(':')), e.substr(e.find(':') + 1));
    };
    if (std::none_of(all.begin(), all.end(), matches))
      say(instance.name() + ": no program has declared an event that matches " + pattern.text() +
          " yet; one that is declared later will be " + (on ? "enabled" : "disabled") + near_events(pattern, all));
  }
  return exit_ok;
}

Command add_switch(CLI::App& app, const char* name, const char* description, bool on) {
  auto options = std::make_shared<SwitchOptions>();
  CLI::App* c = app.add_subcommand(name, description);
  c->add_option("-i,--instance", options->instance, "the instance (default: the only one there is)");
  c->add_option("PATTERN", options->events,
                "SYSTEM:EVENT, SYSTEM or EVENT, with * and ? as wildcards; several, or commas between")
      ->required();
  c->add_flag("--stack", options->stack,
              on ? "not the events: the calls that lead to them, as a field stack of events that are declared from now on"
                 : "not the events: their stacks, for events that are declared from now on");
  c->footer(
      std::string("Examples:\n  ringside ") + name +
      " -i web 'net:*'   while the program runs; ringside list -i web shows the result\n  ringside " + name +
      " malloc,free    in the only instance\n  ringside " + name +
      " --stack -i web 'net:*'   before the program starts, or loads what declares them\n"
      "--stack takes effect when an event is declared. The command lists the events that were declared before; they stay as "
      "they are.\n"
      "RINGSIDE_STACK=PATTERN, or 1 for all, in a program's environment does the same for that program's declarations.\nThe "
      "instance remembers it for programs that start later. A recorder enables the events of the kernel that it records.");
  return {c, [options, on] { return switch_events(*options, on); }};
}

// Why its maker, a recorder perhaps, still needs it; empty: it does not. One that is mapped is refused for that.
std::string needed_by_maker(const std::string& name) {
  const auto opened = Instance::open(name);
  if (!opened || !(*opened)->maker_lives() || !(*opened)->unmapped("")) return "";
  const std::string why = (*opened)->has_writers() ? "the instance " + name + " is being written to"
                                                   : "the process that made " + name + " lives, a recorder perhaps";
  return why + " (--force removes it all the same)";
}

result<int> rm(const RmOptions& options) {
  std::vector<std::string> names = options.names;
  if (names.empty() && !options.stale) throw UsageError{"which instance? Give a name, or --stale"};
  int code = exit_ok;
  if (options.stale) {
    const auto all = RS_TRY(Instance::find(false));
    for (const std::string& name : all) {
      auto opened = Instance::open(name);
      if (opened && state_of(**opened) == State::stale) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    if (const std::string why = options.force ? "" : needed_by_maker(name); !why.empty())
      code = failed(Error{std::make_error_code(std::errc::device_or_resource_busy), why});
    else if (auto gone = Instance::remove(name, options.force); !gone)
      code = failed(gone.error());
    else
      say("removed " + name);
  }
  return code;
}

}  // namespace

Members list_members() { return list_result; }

Command add_list(CLI::App& app) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* c = app.add_subcommand("list", "instances, live, waiting and stale; with -i an instance's events");
  c->add_option("-i,--instance", options->instance,
                "list the events of this instance, or external writer, and whether they are enabled");
  c->add_option("PATTERN", options->events, "the same as -e");
  add_events(*c, options->pattern_options, "list the kernel's events (and the instance's), with their fields");
  c->add_flag("--all", options->all,
              "instances of all users, by their paths: as root the default, unless RINGSIDE_ROOT is set");
  c->add_option("-U,--of-user", options->user, "instances of this user (as root)")->type_name("USER");
  add_json(*c, options->json, "one JSON array");
  c->footer(
      "Examples:\n"
      "  ringside list             all instances of this user; as root, of all users: other commands take the paths that it "
      "prints\n"
      "  ringside list -U www-data\n"
      "  ringside list 'sched:*'   the events of the kernel's scheduler\n"
      "  ringside list 'uprobe:./server:hand*'   functions of a program that record -e can probe, and their parameters\n"
      "  ringside list -i web      its events");
  return {c, [options] { return list(*options); }};
}

Command add_enable(CLI::App& app) { return add_switch(app, "enable", "enable events of an instance's programs", true); }
Command add_disable(CLI::App& app) { return add_switch(app, "disable", "disable events of an instance's programs", false); }

Command add_rm(CLI::App& app) {
  auto options = std::make_shared<RmOptions>();
  CLI::App* c = app.add_subcommand("rm", "remove instances");
  c->add_option("NAME", options->names, "instances");
  c->add_flag("-f,--force", options->force, "also while somebody writes to it, or if it was never finished");
  c->add_flag("--stale", options->stale, "all whose writers are gone");
  c->footer(
      "Examples:\n"
      "  ringside rm web          refused while web has a writer\n"
      "  ringside rm --stale      what crashed programs left");
  return {c, [options] { return rm(*options); }};
}

}  // namespace ringside::cli
