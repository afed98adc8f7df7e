#include "cli/command.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include <ringside/abi/sub_buffer.hpp>

#include "analysis/mistyped.hpp"
#include "text/units.hpp"

namespace ringside::cli {

namespace {

std::atomic<bool> output_failed{false};
int output = STDOUT_FILENO;

bool put_to(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

void say(std::string_view sentence) { (void)put_to(STDERR_FILENO, "ringside: " + std::string(sentence) + "\n"); }

void say_memory_is_short() {
  (void)put_to(STDERR_FILENO, "ringside: not enough memory: raise ulimit -v, or make the machine's swap larger\n");
}

void say_first(const std::vector<std::string>& sentences) {
  constexpr size_t most = 10;
  for (size_t n = 0; n < std::min(sentences.size(), most); ++n) say(sentences[n]);
  if (sentences.size() > most)
    say("and " + std::to_string(sentences.size() - most) + " more of such sentences; meta.json of the recording has all");
}

int failed(const Error& error) {
  say(error.sentence);
  return is_mistyped(error) ? exit_usage : exit_failure;
}

bool put(std::string_view data) {
  if (put_to(output, data)) return true;
  const int error = errno;
  if (error != EPIPE && !output_failed.exchange(true))
    failed(fail(error, output == STDOUT_FILENO ? "cannot write to standard output" : "cannot write the table").value());
  return false;
}

void put_into(int fd) { output = fd; }

bool all_put() { return !output_failed; }

bool on_terminal(int fd) { return isatty(fd) == 1; }

bool colours() { return on_terminal(output) && std::getenv("NO_COLOR") == nullptr; }

namespace {

// wrong: what a text that cannot be parsed is not, and examples.
template <class Parse>
CLI::Option* add_number(CLI::App& app, const std::string& names, u64& value, const std::string& description, Parse parse,
                        const char* wrong) {
  return app.add_option_function<std::string>(
      names,
      [&value, names, parse, wrong](const std::string& text) {
        const auto number = parse(text);
        if (!number) throw CLI::ValidationError(names, "\"" + text + "\" is no " + wrong);
        value = *number;
      },
      description);
}

}  // namespace

CLI::Option* add_size(CLI::App& app, const std::string& names, u64& value, const std::string& description) {
  return add_number(app, names, value, description, parse_size, "size; write 65536, 64k, 8M or 1G")->type_name("SIZE");
}

void check_subbuf_size(u64 bytes) {
  if (!is_power_of_two(bytes) || bytes < abi::smallest_subbuf || bytes > abi::largest_subbuf)
    throw UsageError{"--subbuf-size must be a power of two from 4k to 256k"};
}

CLI::Option* add_time(CLI::App& app, const std::string& names, u64& ns, const std::string& description) {
  return add_number(app, names, ns, description, parse_time, "time; write 10s, 5ms or 3us")->type_name("TIME");
}

CLI::Option* add_duration(CLI::App& app, u64& ns, const std::string& description) {
  return add_time(app, "--duration", ns, description)->check([](const std::string& text) {
    return parse_time(text) == u64{0} ? "0 would be over before it begins; leave it out to go on until Ctrl-C" : std::string();
  });
}

}  // namespace ringside::cli
