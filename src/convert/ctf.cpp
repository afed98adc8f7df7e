#include "convert/ctf.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "convert/installed.hpp"
#include "stacks/judged.hpp"
#include "sys/budget.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

extern char** environ;

namespace ringside {
namespace {

namespace fs = std::filesystem;

// Text begins with a comment, packets with a magic number, in the byte order of the trace.
bool is_metadata(const fs::path& file) {
  const auto opened = open_judged(fs::absolute(file));
  char head[10] = {};
  if (!opened || ::read(opened->get(), head, sizeof head) <= 0) return false;
  return std::memcmp(head, "/* CTF 1.", 9) == 0 || std::memcmp(head, "\x57\x1d\xd1\x75", 4) == 0 ||
         std::memcmp(head, "\x75\xd1\x1d\x57", 4) == 0;
}

// LTTng's are five directories deep: NAME/ust/uid/0/64-bit. Looks at some thousand entries, no more.
bool has_metadata(const fs::path& dir, int depth, int& left) {
  if (is_metadata(dir / "metadata")) return true;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), none; depth > 0 && !error && at != none && --left > 0; at.increment(error)) {
    std::error_code gone;
    if (!at->is_symlink(gone) && at->is_directory(gone) && has_metadata(at->path(), depth - 1, left)) return true;
  }
  return false;
}

// babeltrace2 believes what the metadata claims, for example the length of an array.
void limit(pid_t child, const std::string& ctf) {
  constexpr u64 programs = u64{224} << 20;                    // what it maps, with its plugins, for any trace
  constexpr u64 least_seconds = 4, bytes_a_second = 1 << 17;  // twenty times slower than it is
  Budget budget;
  u64 size = 0;
  std::error_code error;
  int left = 100'000;
  for (fs::recursive_directory_iterator at(ctf, error), none; !error && at != none && --left > 0; at.increment(error)) {
    std::error_code gone;
    const u64 its = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    size += gone ? 0 : its;
  }
  budget.grow(size);
  const rlim_t bytes = programs + budget.bytes(), seconds = least_seconds + size / bytes_a_second;
  const rlimit memory{bytes, bytes}, time{seconds, seconds + 1};
  prlimit(child, RLIMIT_AS, &memory, nullptr);
  prlimit(child, RLIMIT_CPU, &time, nullptr);
}

// babeltrace2 opens all files below a directory, whatever they are.
result<void> judge_files(const fs::path& dir) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(dir, error), none; !error && at != none; at.increment(error)) {
    std::error_code gone;
    if (!at->is_symlink(gone) && at->is_directory(gone)) continue;
    if (const auto file = open_judged(at->path()); !file)
      return refuse(std::errc::invalid_argument, "will not read the CTF trace " + dir.string() + ": " + file.error().sentence);
  }
  return error ? fail(error.value(), "cannot list the CTF trace " + dir.string()) : result<void>();
}

}  // namespace

// The head of a paragraph is at the margin; its lines are wrapped and indented.
std::string innermost_cause(const std::string& said) {
  constexpr size_t most = 1000;
  std::istringstream in(said);
  std::string line, cause;
  while (std::getline(in, line)) {
    const size_t text = line.find_first_not_of(' ');
    if (text == std::string::npos) continue;
    if (text == 0) cause.clear();
    if (line.rfind("CAUSED BY ", 0) == 0 || line.rfind("ERROR:", 0) == 0 || cause.size() > most) continue;
    cause += (cause.empty() ? "" : " ") + line.substr(text, most);
  }
  return sys::printable(std::string_view(cause).substr(0, most));
}

bool is_ctf(const std::string& dir) {
  int left = 2000;
  std::error_code error;
  return fs::is_directory(dir, error) && has_metadata(dir, 6, left);
}

result<std::unique_ptr<CtfAsRecording>> CtfAsRecording::convert(const std::string& ctf) {
  RS_TRY(judge_files(fs::absolute(ctf)));
  std::unique_ptr<CtfAsRecording> made(new CtfAsRecording(RS_TRY(TemporaryDirectory::make("ctf", "the events of " + ctf))));
  const std::string plugin = find_babeltrace_plugin();
  std::vector<std::string> words = {"babeltrace2", "--log-level=F"};
  if (!plugin.empty()) words.push_back("--plugin-path=" + plugin);
  for (const std::string& word :
       {std::string("convert"), fs::absolute(ctf).string(), std::string("--component=sink.ringside.recording"),
        "--params=path=\"" + made->recording() + "\""})
    words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string said = made->dir_.path() + "/said";
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, said.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "babeltrace2", &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0)
    return fail(failed,
                "cannot read the CTF trace " + ctf + ": it needs the program babeltrace2 (Debian: apt install babeltrace2)");
  limit(child, ctf);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return refuse(
        std::errc::bad_message,
        "babeltrace2 cannot read the CTF trace " + ctf +
            (!WIFSIGNALED(status)          ? ""
             : WTERMSIG(status) == SIGXCPU ? " (it took more time than a trace of its size may)"
                                           : " (signal " + std::to_string(WTERMSIG(status)) + ")") +
            ": " + innermost_cause(sys::read_file(said).value_or("")) +
            (plugin.empty() ? "; ringside's plugin for it was not found: it is built where libbabeltrace2-dev is installed"
                            : ""));
  return made;
}

}  // namespace ringside
