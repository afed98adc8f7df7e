// ringside complete SHELL LINE: the words that can end the line, a word a line; after a tab what it is. Shells ask it
// for each Tab.
#include <algorithm>

#include "analysis/names.hpp"
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/presets.hpp"
#include "consumer/trace.hpp"

namespace ringside::cli {
namespace {

// The words of a line as a shell sees them; the last one is being typed.
struct Line {
  std::vector<std::string> words{""};
  bool quoted = false;  // inside quotes at the end: the shell takes the whole word for one
};

Line split(std::string_view text) {
  Line line;
  char quote = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0 ? c == quote : c == '\'' || c == '"')
      quote = quote != 0 ? '\0' : c;
    else if (c == '\\' && quote != '\'' && at + 1 < text.size())
      line.words.back() += text[++at];
    else if (c == ' ' && quote == 0)
      line.words.emplace_back();
    else
      line.words.back() += c;
  }
  line.quoted = quote != 0;
  const std::string last = std::move(line.words.back());
  line.words.pop_back();
  std::erase(line.words, "");
  line.words.push_back(last);
  return line;
}

class Completion {
 public:
  Completion(const CLI::App& app, std::vector<std::string> words)
      : app_(app), words_(std::move(words)), typed_(words_.back()) {}

  std::string answer(bool bash, bool quoted) {
    find();
    // bash replaces the part after the last : or =, unless it is in quotes.
    const size_t breaks = bash && !quoted ? words_.back().find_last_of(":=") : std::string::npos;
    const size_t skip = breaks == std::string::npos ? 0 : breaks + 1;
    std::string out;
    for (const auto& [word, about] : found_) {
      if (word.compare(0, typed_.size(), typed_) != 0) continue;
      const std::string whole = before_ + word;
      out += whole.substr(std::min(skip, whole.size())) + "\t" + about.substr(0, about.find('\n')) + "\n";
    }
    return out + special_;
  }

 private:
  void add(const std::string& word, const std::string& about = "") { found_.emplace(word, about); }
  void files() { special_ = ":files\n"; }

  void find() {
    if (words_.size() == 1 || (words_.size() == 2 && words_[0] == "help")) {
      for (const CLI::App* c : app_.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); }))
        add(c->get_name(), c->get_description());
      if (words_.size() == 1)
        add("help", "the options of a command"), add("--version", "its version"), add("--help", "all commands");
      return;
    }
    command_ = command_of(app_, words_[0]);
    if (command_ == nullptr) return;
    const CLI::Option* waiting = nullptr;
    size_t positional = 0;
    const bool runs_command = command_->get_option_no_throw("COMMAND") != nullptr;
    for (size_t at = 1; at + 1 < words_.size(); ++at) {
      const std::string& word = words_[at];
      const bool begins = word == "--" || (words_[0] == "record" && (word.empty() || word[0] != '-'));
      if (begins && (runs_command || words_[0] == "syscalls")) {
        special_ = at + 2 == words_.size() && word == "--" ? ":commands\n" : ":files\n";
        return;
      }
      if (word.size() < 2 || word[0] != '-') {
        positionals_.push_back(word);
        ++positional;
        continue;
      }
      bool wants = false;
      const CLI::Option* const option = option_of(*command_, word, wants);
      if (!wants) continue;
      if (at + 2 == words_.size()) waiting = option;
      else if (option->check_lname("instance") || option->check_lname("input")) wheres_.push_back(words_[at + 1]);
      ++at;
    }
    if (waiting != nullptr) return value_of(*waiting);
    if (const size_t equal = typed_.find('='); typed_.compare(0, 2, "--") == 0 && equal != std::string::npos) {
      bool wants = false;
      const CLI::Option* const option = option_of(*command_, typed_, wants);
      before_ = typed_.substr(0, equal + 1);
      typed_.erase(0, equal + 1);
      if (option != nullptr) value_of(*option);
      return;
    }
    if (!typed_.empty() && typed_[0] == '-') return options();
    std::vector<const CLI::Option*> places;
    for (const CLI::Option* o : command_->get_options())
      if (o->get_positional()) places.push_back(o);
    if (places.empty()) return;
    // A place that takes one word comes first, one that takes several is the last.
    value_of(*places[std::min(positional, places.size() - 1)], positional);
  }

  void options() {
    for (const CLI::Option* o : command_->get_options()) {
      if (o->get_group().empty()) continue;
      for (const std::string& name : o->get_lnames()) add("--" + name, o->get_description());
      if (typed_ == "-")
        for (const std::string& name : o->get_snames()) add("-" + name, o->get_description());
    }
  }

  void value_of(const CLI::Option& o, size_t positional = 0) {
    const std::string type = o.get_type_name(), place = o.get_positional() ? o.get_name(true) : "";
    const auto is = [&](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(),
                         [&](const char* n) { return place == n || type == n || o.check_lname(n); });
    };
    if (const size_t from = type.find('{'), to = type.find('}'); from != std::string::npos && to != std::string::npos) {
      for (const std::string& word : split_at(type.substr(from + 1, to - from - 1), ',')) add(word);
      if (o.check_lname("sort") && words_[0] == "hist") columns();
    } else if (is({"libc"})) {
      behind_comma();
      for (const char* word : {"malloc", "io", "mutex", "lock"}) add(word);
    } else if (is({"PATTERN", "CONDITION", "stack", "kstack"})) {
      events(o.check_lname("user") || o.check_lname("stack"));
    } else if (is({"instance", "INSTANCE", "NAME"})) {
      instances();
    } else if (is({"latency", "WHAT", "START END"}) && words_[0] != "manual") {
      const bool pair_named = !positionals_.empty() && find_preset(positionals_[0]) != nullptr;
      if (o.get_positional() && (positional >= 2 || pair_named)) return where();
      if (positional == 0)
        for (const Preset& p : all_presets()) add(p.name, p.what);
      events(false);
    } else if (is({"KEY", "COLUMN", "FIELD", "count|FIELD"})) {
      columns();
    } else if (is({"WHERE", "input", "against"})) {
      where();
    } else if (place == "COMMAND") {
      special_ = ":commands\n";
    } else if (is({"FILE", "FILE.html", "DIR", "IMAGE", "FROM", "SOCKET", "output", "to", "like", "snapshot"})) {
      files();
    }
  }

  void instances() {
    for (const std::string& name : Instance::list()) add(name, "instance");
    if (typed_.find('/') != std::string::npos) files();
  }
  void where() {
    instances();
    files();
  }

  void behind_comma() {
    const size_t comma = typed_.rfind(',');
    if (comma == std::string::npos) return;
    before_ += typed_.substr(0, comma + 1);
    typed_.erase(0, comma + 1);
  }

  // The events of what the line names, else of the default recording and of all instances; and those of the kernel.
  std::vector<EventInfo> known(bool of_programs) {
    const bool makes = words_[0] == "record" || words_[0] == "trigger", kernel_only = makes && !of_programs;
    std::vector<EventInfo> all;
    if (!kernel_only) {
      std::vector<std::string> wheres = wheres_;
      if (words_[0] != "latency" && words_[0] != "hist") wheres.insert(wheres.end(), positionals_.begin(), positionals_.end());
      for (size_t at = words_[0] == "hist" ? 1 : positionals_.size(); words_[0] == "hist" && at < positionals_.size(); ++at)
        wheres.push_back(positionals_[at]);
      if (wheres.empty() && !makes && is_recording(default_recording)) wheres = {default_recording};
      if (wheres.empty()) wheres = Instance::list();
      for (const std::string& text : wheres) add_events(all, text);
    }
    const bool reads_only = words_[0] == "report" || words_[0] == "export" || words_[0] == "plot" || words_[0] == "crash" || words_[0] == "log" ||
                            words_[0] == "enable" || words_[0] == "disable";
    if (of_programs || reads_only) return all;
    const auto kernel = kernel_events();
    for (const KernelEvent& e : kernel ? *kernel : std::vector<KernelEvent>{})
      all.push_back({0, e.shown_system(), e.name, "", false, true});
    return all;
  }

  static void add_events(std::vector<EventInfo>& all, const std::string& text) {
    std::vector<EventInfo> more;
    if (auto recorded = is_recording(text) ? RecordingMeta::read(text) : result<RecordingMeta>(tl::unexpected<Error>(Error{})))
      more = std::move(recorded->events);
    else if (auto instance = Instance::open(text))
      more = (*instance)->events();
    else if (Where::now(text).is_file()) {
      const auto trace = open_traces({text});
      if (!trace) return;
      for (const auto& type : trace->formats.all()) {
        EventInfo info{0, type->system, type->name, ""};
        for (const Field& f : type->fields()) info.format += "\tfield:int " + f.name + ";";
        more.push_back(std::move(info));
      }
    }
    all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  void events(bool of_programs) {
    behind_comma();
    const bool whole = typed_.find(':') != std::string::npos;
    for (const EventInfo& e : known(of_programs)) {
      if (whole) {
        add(e.system + ":" + e.name);
        continue;
      }
      add(e.system + ":", "events of this system");
      if (!typed_.empty()) add(e.name, e.system + ":" + e.name);
    }
  }

  static std::vector<std::string> fields_of(const std::string& format) {
    std::vector<std::string> names;
    for (size_t at = format.find("\tfield:"); at != std::string::npos; at = format.find("\tfield:", at)) {
      const size_t end = std::min(format.find(';', at), format.size());
      std::string name = format.substr(at, end - at);
      name = name.substr(0, name.find('[', name.rfind(' ') == std::string::npos ? 0 : name.rfind(' ')));
      name = name.substr(name.rfind(' ') + 1);
      if (name.compare(0, 7, "common_") != 0 && !name.empty()) names.push_back(name);
      at = end;
    }
    return names;
  }

  void columns() {
    behind_comma();
    const size_t slash = typed_.find('/'), dot = typed_.find('.', slash == std::string::npos ? 0 : slash);
    if (dot != std::string::npos) {
      before_ += typed_.substr(0, dot + 1);
      typed_.erase(0, dot + 1);
      for (const char* modifier : {"log2", "buckets=", "hex", "sym", "execname", "usecs", "msecs"}) add(modifier);
      return;
    }
    if (slash == std::string::npos) {
      for (const char* name : {"event", "system", "task", "thread", "process", "cgroup", "file", "cpu", "ring", "source", "ts"})
        add(name, "of every event");
      for (const EventInfo& e : known(false)) {
        if (!typed_.empty()) add(e.system + ":" + e.name + "/", "a field of this event");
        else add(e.system + ":", "events of this system");
        for (const std::string& field : fields_of(e.format)) add(field, e.system + ":" + e.name);
      }
      return;
    }
    const EventPatterns patterns = patterns_or_none(typed_.substr(0, slash));
    before_ += typed_.substr(0, slash + 1);
    typed_.erase(0, slash + 1);
    for (EventInfo& e : known(false)) {
      if (!patterns.matches(e.system, e.name)) continue;
      if (e.format.empty())
        if (auto whole = kernel_event({e.system, e.name})) e.format = std::move(whole->format);
      for (const std::string& field : fields_of(e.format)) add(field, e.system + ":" + e.name);
    }
  }

  const CLI::App& app_;
  std::vector<std::string> words_;  // after `ringside`
  std::string before_, typed_;      // of the last word: what stays, what is being completed
  const CLI::App* command_ = nullptr;
  std::vector<std::string> wheres_, positionals_;
  std::map<std::string, std::string> found_;
  std::string special_;
};

int complete(const CLI::App& app, const std::string& shell, const std::string& text) {
  Line line = split(text);
  const auto ours = std::find_if(line.words.begin(), line.words.end() - 1,
                                 [](const std::string& w) { return w.substr(w.rfind('/') + 1) == "ringside"; });
  if (ours == line.words.end() - 1) return exit_ok;
  put(Completion(app, {ours + 1, line.words.end()}).answer(shell == "bash", line.quoted));
  return exit_ok;
}

}  // namespace

Command add_complete(CLI::App& app) {
  struct Options {
    std::string shell, line;
  };
  CLI::App* sub = app.add_subcommand("complete", "print the words that can end a command line")->group("");
  const auto options = std::make_shared<Options>();
  sub->add_option("SHELL", options->shell, "bash, zsh or fish")->required();
  sub->add_option("LINE", options->line, "up to the cursor")->required();
  return {sub, [options, &app] { return complete(app, options->shell, options->line); }};
}

}  // namespace ringside::cli
