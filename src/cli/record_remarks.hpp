// The sentences of `ringside record`: what it says of an instance before it begins, and at the end why nothing was recorded.
#pragma once
#include <string>
#include <vector>

#include "cli/record_options.hpp"
#include "instance/instance.hpp"

namespace ringside::cli {

// Does it record the kernel's events of its command alone?
inline bool follows_command(const RecordOptions& options) {
  return !options.command.empty() && !options.all_processes && options.pids.empty();
}

// Before the recording begins, about an instance that others use, too.
void say_without_stack(const RecordOptions& options, const Instance& instance);
void say_of_both(const RecordOptions& options, const Instance& instance);
// What others have enabled there is taken with the rest: then it is recorded, too.
void say_of_the_rest(const RecordOptions& options, const Instance& instance);

// A sentence for each pattern of -u that matches no event that was declared. of_writers: those of external writers.
std::vector<std::string> unmatched_user(const RecordOptions& options, const Instance& instance,
                                        const std::vector<EventInfo>& of_writers = {});
void say_incomplete(const Instance& instance);  // what the writers could not do
// Why nothing of a program was recorded, and what to try. command: its path; code: its exit code; cpu_ns: what it used.
void say_why_empty(const RecordOptions& options, const Instance& instance, const std::string& command, bool nothing_at_all,
                   int code, u64 cpu_ns);
void say_unseen_calls(const RecordOptions& options, const std::string& command);  // of --libc, if the program has its own

}  // namespace ringside::cli
