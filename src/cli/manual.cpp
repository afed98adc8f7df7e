// ringside manual: the man page and the shell's completion, made from the commands' own help texts.
#include <fmt/format.h>

#include "cli/command.hpp"

namespace ringside::cli {
namespace {

std::string roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_start = c == '\n';
  }
  return out;
}

std::vector<CLI::App*> commands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App* c) { return !c->get_group().empty(); });
}
std::vector<CLI::Option*> options_of(CLI::App& app) {
  return app.get_options([](CLI::Option* o) { return !o->get_group().empty(); });
}

bool takes_value(const CLI::Option& o) { return o.get_items_expected_max() != 0; }

// "-o,--output DIR" or, for a positional, "WHERE".
std::string heading(const CLI::Option& o) {
  std::string names = o.get_positional() ? o.get_name(true) : o.get_name(false, true);
  if (!o.get_positional() && takes_value(o)) names += " " + o.get_type_name();
  return names;
}

void options_page(std::string& page, CLI::App& app) {
  for (const CLI::Option* o : options_of(app))
    page += fmt::format(".TP\n.B {}\n{}\n", roff(heading(*o)), roff(o->get_description()));
  page += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(app.get_footer()));
}

std::string man_page(CLI::App& app) {
  std::string page = fmt::format(".TH RINGSIDE 1 \"\" \"{}\" \"User commands\"\n.SH NAME\nringside \\- {}\n.SH SYNOPSIS\n.B ringside\nCOMMAND [OPTIONS]\n",
                                 app.version(), roff(app.get_description().substr(app.get_description().find(": ") + 2)));
  page += ".SH DESCRIPTION\n";
  options_page(page, app);
  page += ".SH COMMANDS\n";
  for (CLI::App* c : commands_of(app)) {
    std::string positionals;
    for (const CLI::Option* o : options_of(*c))
      if (o->get_positional()) positionals += o->get_required() ? " " + o->get_name(true) : " [" + o->get_name(true) + "]";
    page += fmt::format(".SS ringside {} [OPTIONS]{}\n{}\n", c->get_name(), roff(positionals), roff(c->get_description()));
    options_page(page, *c);
  }
  return page;
}

// The values of "TEXT:{a,b}", or nothing.
std::string choices(const CLI::Option& o) {
  const std::string type = o.get_type_name();
  const size_t from = type.find('{'), to = type.find('}');
  if (from == std::string::npos || to == std::string::npos) return {};
  std::string words = type.substr(from + 1, to - from - 1);
  for (char& c : words)
    if (c == ',') c = ' ';
  return words;
}

std::string bash_completion(CLI::App& app) {
  std::string names, cases;
  for (CLI::App* c : commands_of(app)) {
    names += c->get_name() + " ";
    std::string words, values;
    for (const CLI::Option* o : options_of(*c)) {
      if (o->get_positional()) continue;
      std::string pattern;
      for (const std::string& name : o->get_snames()) pattern += (pattern.empty() ? "-" : "|-") + name;
      for (const std::string& name : o->get_lnames()) {
        pattern += (pattern.empty() ? "--" : "|--") + name;
        words += "--" + name + " ";
      }
      if (!takes_value(*o)) continue;
      const std::string known = choices(*o);
      const std::string action = o->check_lname("instance") ? "-W \"$(_ringside_instances)\""
                                 : o->check_lname("output") ? "-d"
                                                            : "-W \"" + known + "\"";
      values += fmt::format("        {}) COMPREPLY=($(compgen {} -- \"$word\")); return ;;\n", pattern, action);
    }
    cases += fmt::format("    {})\n      case $previous in\n{}      esac\n      options=\"{}\"\n      ;;\n", c->get_name(), values, words);
  }
  return fmt::format(R"bash(# bash completion of ringside; in zsh after: autoload -U bashcompinit && bashcompinit
_ringside_instances() {{
  ringside list --json 2>/dev/null | sed -n 's/.*"instance":"\([^"]*\)".*/\1/p'
}}
_ringside() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} options="" i
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{0}--help --version" -- "$word"))
    return
  fi
  for ((i = 2; i < COMP_CWORD; ++i)); do
    [ "${{COMP_WORDS[i]}}" = -- ] && COMPREPLY=($(compgen -c -f -- "$word")) && return
  done
  case $command in
{1}  esac
  if [[ $word = -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    COMPREPLY=($(compgen -d -W "$(_ringside_instances)" -- "$word"))
  fi
}}
complete -o filenames -F _ringside ringside
)bash",
                     names, cases);
}

}  // namespace

Command add_manual(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("manual", "print the man page or the bash completion")->group("");
  const auto what = std::make_shared<std::string>();
  sub->add_option("WHAT", *what, "man or bash")->required()->check(CLI::IsMember({"man", "bash"}));
  return {sub, [what, &app] {
            put(*what == "man" ? man_page(app) : bash_completion(app));
            return exit_ok;
          }};
}

}  // namespace ringside::cli
