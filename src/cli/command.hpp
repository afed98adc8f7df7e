// The parts that all commands share: exit codes, output, registration.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::cli {

// The one place for exit codes. `record` forwards its command's code, so scripts can put it before any command.
enum Exit : int {
  exit_ok = 0,
  exit_failure = 1,
  exit_usage = 2,
  exit_loss = 3,              // with --fail-on-loss
  exit_not_triggered = 4,     // trigger: the end came first
  exit_not_executable = 126,  // the shell's code
  exit_not_found = 127,
  exit_signal = 128,  // plus the signal's number
};



// A command registers its options and returns the function to run: that returns the exit code, or an error to print
// (exit_failure).
using Run = std::function<result<int>()>;
struct Command {
  CLI::App* app;
  Run run;
};

Command add_record(CLI::App& app);
Command add_report(CLI::App& app);
Command add_log(CLI::App& app);
Command add_crash(CLI::App& app);
Command add_stat(CLI::App& app);
Command add_list(CLI::App& app);
Command add_enable(CLI::App& app);
Command add_disable(CLI::App& app);
Command add_rm(CLI::App& app);
Command add_serve(CLI::App& app);
Command add_mount(CLI::App& app);
Command add_top(CLI::App& app);
Command add_hist(CLI::App& app);
Command add_watch(CLI::App& app);
Command add_latency(CLI::App& app);
Command add_syscalls(CLI::App& app);
Command add_states(CLI::App& app);
Command add_plot(CLI::App& app);
Command add_flame(CLI::App& app);
Command add_trigger(CLI::App& app);
Command add_export(CLI::App& app);
Command add_remote(CLI::App& app);
Command add_recover(CLI::App& app);
Command add_guest(CLI::App& app);
Command add_collect(CLI::App& app);
Command add_stream(CLI::App& app);
Command add_ship(CLI::App& app);
Command add_doctor(CLI::App& app);
// After all others:
Command add_manual(CLI::App& app);
Command add_complete(CLI::App& app);

// stderr: "ringside: sentence".
void say(std::string_view sentence);
void say_memory_is_short();  // takes none
void say_first(const std::vector<std::string>&
                   sentences);   // the first ten and their total number: a thousand rings may have one problem each
int failed(const Error& error);  // prints it; returns exit_failure, or exit_usage if it was mistyped

// Writes to stdout: all of it, or false when the reader has gone, or its disk is full, which is reported (the caller then just
// ends). `out` is emptied.
bool put(std::string_view data);
void put_into(int fd);  // instead of stdout, from here on; the caller keeps it open
bool all_put();  // false: it failed, and not because its reader has gone; that was reported

bool on_terminal(int fd);
bool colours();  // stdout is a terminal and NO_COLOR is not set

// A usage error found after parsing: exit_usage, with a pointer to --help.
struct UsageError {
  std::string sentence;
};

// --subbuf-size, as parsed: a UsageError if no sub-buffer is that large.
void check_subbuf_size(u64 bytes);

// Options that take 64k, 8M, 1G and 10s, 5ms, 3us.
CLI::Option* add_size(CLI::App& app, const std::string& names, u64& value, const std::string& description);
CLI::Option* add_time(CLI::App& app, const std::string& names, u64& ns, const std::string& description);
// --duration: for a command that would otherwise go on. Never 0.
CLI::Option* add_duration(CLI::App& app, u64& ns, const std::string& description);

}  // namespace ringside::cli
