// ringside manual: the man pages and the completions of shells, made from the commands' own help texts; docs/json.md.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/command.hpp"
#include "cli/overview.hpp"
#include "cli/result.hpp"
#include "sys/beneath.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

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

// "-o,--output DIR" or, for a positional, "WHERE".
std::string heading(const CLI::Option& o) {
  std::string names = o.get_positional() ? o.get_name(true) : o.get_name(false, true);
  if (!o.get_positional() && o.get_items_expected_max() != 0) names += " " + o.get_type_name();
  return names;
}

std::string title(const std::string& name, int section, const std::string& version, const std::string& about) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return fmt::format(".TH {} {} \"\" \"{}\" \"{}\"\n.SH NAME\n{} \\- {}\n", roff(upper), section, version,
                     section == 1 ? "User commands" : "Overview", roff(name), roff(about));
}

// A help text: "Title:" above indented lines is a section of its own, unchanged; other lines are paragraphs.
std::string sections(const std::string& text) {
  std::string page, rest;
  bool as_it_stands = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const bool indented = !line.empty() && line[0] == ' ', next_is = at < text.size() && text[at] == ' ';
    if (as_it_stands && !indented) page += ".fi\n";
    if (as_it_stands && !indented) as_it_stands = false;
    if (!indented && next_is && !line.empty() && line.back() == ':') {
      page += ".SH " + roff(line.substr(0, line.size() - 1)) + "\n.nf\n";
      as_it_stands = true;
    } else if (as_it_stands) {
      page += roff(line) + "\n";
    } else if (!line.empty()) {
      rest += roff(line) + "\n";
    }
  }
  if (as_it_stands) page += ".fi\n";
  return page + (rest.empty() ? "" : ".SH NOTES\n" + rest);
}

std::string options_list(CLI::App& app) {
  std::string page;
  for (const CLI::Option* o : options_of(app))
    page += fmt::format(".TP\n.B {}\n{}\n", roff(heading(*o)), roff(o->get_description()));
  return page;
}

constexpr const char* see_also = ".SH SEE ALSO\n.BR ringside (1),\n.BR ringside (7)\n";

std::string page_of(CLI::App& app, const std::string& version) {
  std::string synopsis;
  for (const CLI::Option* o : options_of(app))
    if (o->get_positional()) synopsis += o->get_required() ? " " + o->get_name(true) : " [" + o->get_name(true) + "]";
  return title("ringside-" + app.get_name(), 1, version, app.get_description()) +
         fmt::format(".SH SYNOPSIS\n.B ringside {}\n[OPTIONS]{}\n.SH OPTIONS\n", roff(app.get_name()), roff(synopsis)) +
         options_list(app) + sections(app.get_footer()) + see_also;
}

std::string about(const CLI::App& app) { return app.get_description().substr(app.get_description().find(": ") + 2); }

std::string commands_list(CLI::App& app, bool pages) {
  std::string list;
  for (const CLI::App* c : commands_of(app))
    list += (pages ? ".TP\n.BR ringside\\-" + roff(c->get_name()) + " (1)" : ".TP\n.B " + roff(c->get_name())) + "\n" +
            roff(c->get_description()) + "\n";
  return list;
}

std::string main_page(CLI::App& app) {
  return title("ringside", 1, app.version(), about(app)) + ".SH SYNOPSIS\n.B ringside\nCOMMAND [OPTIONS]\n.SH OPTIONS\n" +
         options_list(app) + ".SH COMMANDS\n" + commands_list(app, true) + sections(app.get_footer()) +
         ".SH SEE ALSO\n.BR ringside (7)\n";
}

std::string overview_page(CLI::App& app) {
  std::string page = title("ringside", 7, app.version(), "overview: events, rings, instances and recordings");
  for (const Topic& topic : overview()) page += ".SH " + roff(topic.title) + "\n" + roff(topic.text) + "\n";
  return page + ".SH COMMANDS\n" + commands_list(app, true) + ".SH SEE ALSO\n.BR ringside (1)\n";
}

result<void> write_page(const std::string& path, const std::string& text) {
  auto file = RS_TRY(sys::NewFile::create(path, 0644));
  RS_TRY(sys::write_text(file.fd(), path, text));
  return file.put_in_place();
}

result<int> write_pages(CLI::App& app, const std::string& dir) {
  if (dir.empty()) throw UsageError{"pages takes a directory, with man1 and man7 in it"};
  RS_TRY(write_page(dir + "/man1/ringside.1", main_page(app)));
  RS_TRY(write_page(dir + "/man7/ringside.7", overview_page(app)));
  for (CLI::App* c : commands_of(app))
    RS_TRY(write_page(dir + "/man1/ringside-" + c->get_name() + ".1", page_of(*c, app.version())));
  return exit_ok;
}

// The three shells ask `ringside complete SHELL LINE`. It answers with a word a line, and after a tab what that is; or :files,
// :commands.
constexpr const char* bash_completion = R"bash(# bash completion of ringside
_ringside() {
  local answer files= word=${COMP_WORDS[COMP_CWORD]}
  local -a found
  compopt -o nospace
  while IFS= read -r answer; do
    case $answer in
      :files) files=-f ;;
      :commands) files='-c -f' ;;
      *[:/,=]) COMPREPLY+=("$answer") ;;
      *) COMPREPLY+=("$answer ") ;;
    esac
  done < <("${COMP_WORDS[0]}" complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null | cut -f 1)
  [ -n "$files" ] || return 0
  # Here bash itself quotes what needs it, and puts a space or a slash behind it.
  compopt -o filenames +o nospace
  [ "$word" != = ] || word=
  word=${word#[\"\']}
  mapfile -t found < <(compgen $files -- "${word//\\/}")
  COMPREPLY=("${COMPREPLY[@]% }" "${found[@]}")
}
complete -F _ringside ringside
)bash";

constexpr const char* zsh_completion = R"zsh(#compdef ringside
_ringside() {
  local answer name
  local -a names texts open open_texts
  for answer in "${(@f)$($words[1] complete zsh "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}"; do
    name=${answer%%$'\t'*}
    case $name in
      '') ;;
      :files) compset -P '--*='; _files ;;
      :commands) _command_names -e; _files ;;
      *[:/,=]) open+=("$name"); open_texts+=("$name  ${answer#*$'\t'}") ;;
      *) names+=("$name"); texts+=("$name  ${answer#*$'\t'}") ;;
    esac
  done
  compadd -l -d texts -a names
  compadd -l -S '' -d open_texts -a open
}
if [ "$funcstack[1]" = _ringside ]; then _ringside "$@"; else compdef _ringside ringside; fi
)zsh";

constexpr const char* fish_completion = R"fish(# fish completion of ringside
function __ringside_complete
    for answer in (ringside complete fish (commandline -cp | string collect) 2>/dev/null)
        switch $answer
            case ':files'
                set -l option (string match -r -- '^--[^=]*=' (commandline -ct); or echo)
                printf '%s\n' $option(__fish_complete_path (string replace -- "$option" '' (commandline -ct)))
            case ':commands'
                __fish_complete_command
            case '*'
                echo $answer
        end
    end
end
complete -c ringside -f -a '(__ringside_complete)'
)fish";

}  // namespace

Command add_manual(CLI::App& app) {
  struct Options {
    std::string what, dir;
  };
  CLI::App* sub =
      app.add_subcommand("manual", "print a shell's completion, write the man pages into a directory, or update docs/json.md")
          ->group("");
  const auto options = std::make_shared<Options>();
  sub->add_option("WHAT", options->what, "bash, zsh, fish, pages or json")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "pages", "json"}));
  sub->add_option("DIR", options->dir, "where the pages go; the file docs/json.md");
  return {sub, [options, &app]() -> result<int> {
            if (options->what == "pages") return write_pages(app, options->dir);
            if (options->what == "json") {
              RS_TRY(write_page(options->dir, documented(RS_TRY(sys::read_file(options->dir)))));
              return exit_ok;
            }
            put(options->what == "bash" ? bash_completion : options->what == "zsh" ? zsh_completion : fish_completion);
            return exit_ok;
          }};
}

}  // namespace ringside::cli
