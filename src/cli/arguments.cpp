#include "cli/arguments.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "analysis/names.hpp"
#include "cli/command_file.hpp"
#include "cli/presets.hpp"
#include "consumer/where.hpp"

namespace ringside::cli {
namespace {

// Names in other tools.
constexpr std::pair<std::string_view, const char*> other_commands[] = {{"script", "report"},
                                                                       {"show", "report"},
                                                                       {"dump", "report"},
                                                                       {"trace", "record"},
                                                                       {"strace", "syscalls"},
                                                                       {"convert", "export"},
                                                                       {"profile", "flame"},
                                                                       {"annotate", "flame"},
                                                                       {"start", "enable"},
                                                                       {"stop", "disable"},
                                                                       {"events", "list"},
                                                                       {"view", "plot"},
                                                                       {"snapshot", "trigger"},
                                                                       {"logs", "log"},
                                                                       {"tail", "log --follow"},
                                                                       {"sched", "latency wakeup"},
                                                                       {"diff", "flame --against"},
                                                                       {"extract", "export"},
                                                                       {"lock", "flame --contention"},
                                                                       {"mem", "flame --leaks"}};
constexpr std::pair<std::string_view, const char*> other_options[] = {{"-T", "--kstack"},
                                                                      {"-C", "--filter 'cpu == 0'"},
                                                                      {"--cpu", "--filter 'cpu == 0'"},
                                                                      {"-t", "--pid"},
                                                                      {"-p", "--tid"},
                                                                      {"-s", "--sort"},
                                                                      {"-m", "--buffer-size"},
                                                                      {"--to", "--output"},
                                                                      {"-d", "--duration 1s"},
                                                                      {"--comm", "--filter 'task == NAME'"},
                                                                      {"-R", "--kstack"},
                                                                      {"--json", "--output FILE.json"},
                                                                      {"--from", "--time FROM.."},
                                                                      {"--since", "--time FROM.."},
                                                                      {"--until", "--time ..TO"}};

// Options that other tools have, and that mean nothing here by themselves.
constexpr struct {
  std::string_view command, option;
  const char* sentence;
} habits[] = {
    {"record", "-F",
     "a rate of samples follows it, as in perf: -F 999; filters are -f, and a command is recorded alone without trace-cmd's "
     "-F"},
    {"record", "-v",
     "all that there is to say is said without it; which events to leave out, as by trace-cmd's -v, is said by -f"},
    {"record", "-l", "a function of the kernel's is a probe: -e kprobe:FUNCTION"},
    {"record", "-c",
     "what the command starts is followed without it; the rate of samples, which perf gives as a period, is --sample"},
    {"report", "-g", "the calls are printed with each event that has them; ringside flame adds them up"},
    {"report", "--sort", "report prints events, as perf script does; ringside hist KEY and ringside flame add them up"}};

template <size_t n>
std::vector<std::string> other_name(const std::pair<std::string_view, const char*> (&names)[n], std::string_view word) {
  const auto* const found = std::find_if(names, names + n, [&](const auto& name) { return name.first == word; });
  return found == names + n ? std::vector<std::string>{} : std::vector<std::string>{found->second};
}

// Of a command that takes both: no WHERE.
bool is_program(const std::string& word) {
  const Where where = Where::now(word);
  return where.is_nothing() ? find_command(word).has_value()
                            : where.is_file() && access(word.c_str(), X_OK) == 0;
}

}  // namespace

const CLI::App* command_of(const CLI::App& app, const std::string& name) {
  const auto all = app.get_subcommands([&](const CLI::App* c) { return c->get_name() == name; });
  return all.empty() ? nullptr : all.front();
}

const CLI::Option* option_of(const CLI::App& command, const std::string& word, bool& wants) {
  wants = false;
  const auto takes = [](const CLI::Option& o) { return o.get_items_expected_max() != 0; };
  if (word.size() > 2 && word[1] == '-') {
    const size_t equal = word.find('=');
    const CLI::Option* const o = command.get_option_no_throw(word.substr(0, equal));
    wants = o != nullptr && takes(*o) && equal == std::string::npos;
    return o;
  }
  const CLI::Option* o = nullptr;
  for (size_t at = 1; at < word.size(); ++at) {
    o = command.get_option_no_throw(std::string("-") + word[at]);
    if (o == nullptr) return nullptr;
    if (!takes(*o)) continue;
    wants = at + 1 == word.size();
    break;
  }
  return o;
}

std::vector<std::string> arguments_of(int argc, const char* const* argv, const CLI::App& app) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return words;
  if (words[0] == "version" || words[0] == "-V") words[0] = "--version";
  if (words[0] == "help") {
    words.erase(words.begin());
    words.resize(std::min<size_t>(words.size(), 1));
    words.emplace_back("--help");
  }
  // -i NAME where NAME alone is meant.
  for (const char* one : {"crash", "stat", "export", "rm", "serve"}) {
    if (words[0] != one) continue;
    const auto at = std::find_if(words.begin() + 1, words.end(), [](const auto& w) { return w == "-i" || w == "--instance"; });
    bool wants = false;
    if (at != words.end() && option_of(*command_of(app, one), *at, wants) == nullptr) words.erase(at);
  }
  // An optional value before -- must be joined to its option: the parser would take -- for it.
  for (size_t at = 1; words[0] == "trigger" && at + 2 < words.size() && words[at] != "--"; ++at) {
    const bool snapshot = words[at] == "-o" || words[at] == "--snapshot" || words[at] == "--output";
    if (snapshot && words[at + 1] == "--") {  // without a value it means the default, as nothing does
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(at--));
      continue;
    }
    if (!snapshot || words[at + 1].empty() || words[at + 1][0] == '-') continue;
    words[at] = "--snapshot=" + words[at + 1];
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  if (words[0] != "record" && words[0] != "syscalls" && words[0] != "trigger") return words;
  const CLI::App& command = *command_of(app, words[0]);
  bool condition = words[0] == "trigger";  // the first word is CONDITION
  for (size_t at = 1; at < words.size(); ++at) {
    if (words[0] == "record" && words[at].starts_with("-F")) {  // perf's rate
      const bool joined = words[at].size() > 2;
      const std::string rate = joined ? words[at].substr(2) : at + 1 < words.size() ? words[at + 1] : "";
      if (rate.find_first_of("0123456789") == 0) words[at] = joined ? "--sample=" + rate : "--sample";
    }
    if (words[0] == "record" && words[at] == "--sample") {  // its rate may be left out
      const std::string next = at + 1 < words.size() ? words[at + 1] : "-";
      if (next[0] == '-' || (next.find_first_of("0123456789") != 0 && is_program(next))) words[at] += "=" + std::to_string(usual_rate);
    }
    if ((words[at].size() < 2 || words[at][0] != '-') && std::exchange(condition, false)) {
      // Behind --latency NAME it would be taken for END.
      const auto first = words.begin() + 1, here = words.begin() + static_cast<std::ptrdiff_t>(at);
      if (at > 2 && words[at - 2] == "--latency" && find_preset(words[at - 1]) != nullptr) std::rotate(first, here, here + 1);
      continue;
    }
    if (words[at].size() < 2 || words[at][0] != '-') {
      if (words[0] == "syscalls" && !is_program(words[at])) break;
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(at), "--");
      break;
    }
    bool wants = false;
    if (words[at] == "--" || option_of(command, words[at], wants) == nullptr) break;
    if (wants) ++at;
    if (words[at - (wants ? 1 : 0)] == "--latency" && at < words.size() && find_preset(words[at]) == nullptr)
      ++at;  // START END
  }
  return words;
}

std::string unknown_word(const std::vector<std::string>& arguments, const CLI::App& app) {
  if (arguments.empty()) return "";
  const std::string& first = arguments[0];
  std::vector<std::string> names;
  if (first[0] == '-' && app.get_option_no_throw(first) == nullptr) {
    for (const CLI::Option* o : app.get_options()) names.push_back(o->get_name());
    return "ringside has no option " + in_quotes(first) + did_you_mean(nearest(first, names));
  }
  if (first[0] != '-') {
    const CLI::App* const command = command_of(app, first);
    if (command == nullptr) {
      for (const CLI::App* c : app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); }))
        names.push_back(c->get_name());
      const auto other = other_name(other_commands, first);
      return in_quotes(first) + " is no command of ringside" + did_you_mean(other.empty() ? nearest(first, names) : other);
    }
    for (size_t at = 1; at < arguments.size() && arguments[at] != "--"; ++at) {
      const std::string word = arguments[at].substr(0, arguments[at].find('='));
      bool wants = false;
      if (word.size() < 2 || word[0] != '-' || word.find_first_of("0123456789") == 1) continue;
      if (option_of(*command, word, wants) != nullptr) {
        at += wants ? 1 : 0;
        continue;
      }
      for (const auto& habit : habits) {
        if (first == habit.command && word == habit.option)
          return "ringside " + first + " has no option " + in_quotes(word) + ": " + habit.sentence;
      }
      for (const CLI::Option* o : command->get_options()) {
        for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
      }
      auto near = other_name(other_options, word.substr(0, word[1] == '-' ? word.find('=') : 2));
      if (near.empty() || std::find(names.begin(), names.end(), near[0].substr(0, near[0].find(' '))) == names.end())
        near = word[1] == '-' ? nearest(word, names) : std::vector<std::string>{};
      return "ringside " + first + " has no option " + in_quotes(word) + did_you_mean(near);
    }
  }
  return "";
}

std::string refused(const CLI::ParseError& e, const std::vector<std::string>& arguments, const CLI::App& app) {
  const CLI::App* const command = command_of(app, arguments[0]);
  const std::string who = command == nullptr ? "ringside" : "ringside " + arguments[0], text = e.what();
  const std::string name = text.substr(0, text.find(": ")), rest = text.substr(std::min(text.size(), name.size() + 2));
  if (dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr) return who + " has no use for " + in_quotes(rest);
  if (dynamic_cast<const CLI::RequiredError*>(&e) != nullptr)
    return who + " needs " + (command == nullptr ? "a command" : text.substr(0, text.rfind(" is required")));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&e) != nullptr && text.find(" missing") != text.npos)
    return name + " needs a value";
  if (dynamic_cast<const CLI::ConversionError*>(&e) != nullptr && name == "Could not convert") {
    const size_t equal = std::min(rest.find(" = "), rest.size());
    const std::string option = rest.substr(0, equal), value = rest.substr(std::min(rest.size(), equal + 3));
    const CLI::Option* const flag = command == nullptr ? nullptr : command->get_option_no_throw(option);
    if (flag != nullptr && flag->get_items_expected_max() == 0) return option + " takes no value";
    return option + " takes " + (option == "--pid" ? "the number of a process" : "a number") + ", not " + in_quotes(value);
  }
  return text;
}

std::string with_help(const std::string& sentence, const std::string& command) {
  return sentence + (sentence.ends_with('?') ? " See ringside " : "; see ringside ") + (command.empty() ? "" : command + " ") +
         "--help";
}

}  // namespace ringside::cli
