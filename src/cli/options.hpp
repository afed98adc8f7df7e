// Options that several commands share, and messages about what they read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "consumer/reading.hpp"

namespace ringside::cli {

// --source auto|map|read
void add_source(CLI::App& app, std::optional<KernelWay>& forced);

// -e PATTERN. words: describes these events. probes: an option may be a probe instead (probe/probes.hpp).
void add_events(CLI::App& app, std::vector<std::string>& lists, const std::string& words,
                const std::string& names = "-e,--event", bool probes = false);
// A UsageError with near names, if one of them matches no event of the kernel; an error, if the kernel cannot be asked.
// of_recorder: -u names the program's.
result<void> check_kernel_events(const EventPatterns& patterns, bool of_recorder = false);
// Their patterns. A UsageError if they are invalid.
EventPatterns parse_events(const std::vector<std::string>& lists);
u64 parse_rate(const std::string& text);  // of samples: "999", "999Hz", "1kHz"

std::string shown_where(const Trace& trace);  // its WHERE, as it was typed; of several: "all of these"
// A UsageError, if one of the patterns matches no event of the trace (with near names), it has none of the window's CPUs, or it
// begins later. Before the first record.
void check_wanted(const EventPatterns& patterns, const Window& window, Reading& reading);
// After the last record: a sentence, if no event of a recording lies in the window; else empty.
std::string none_within(const Window& window, Reading& reading);

// -i: recordings, trace.dats and instances, as WHERE.
void add_input(CLI::App& app, std::vector<std::string>& inputs);

// -k of the commands that take --latency START END.
void add_key(CLI::App& app, std::string& keys);
// --task, of those that measure pairs.
void add_task(CLI::App& app, std::string& task);
// -C, --cpu LIST, --time FROM..TO
void add_window(CLI::App& app, Window& window);
// --wall: the trace's time of day; a UsageError, if it does not say it. Nothing, if it was not `asked` for.
std::optional<WallClock> wall_of(const Trace& trace, bool asked);
// How far the times of day may be off, where that matters.
void say_wall(const Trace& trace);
// -n, --max-count
CLI::Option* add_count(CLI::App& app, u64& count, const std::string& words, u64 least = 1);
// --jobs N
void add_jobs(CLI::App& app, u32& jobs);
// --compress: of the recording that the command makes
void add_compress(CLI::App& app, bool& compress);
// How many threads read it: as many as wanted, or (0) all cores but one, each with enough to do.
u32 jobs_of(Reading& reading, u32 wanted);
// Where to cut it for them, into parts of about this size; none: one thread reads it.
std::vector<u64> seams_for(Reading& reading, u32 jobs, u64 bytes);
// --filter TEXT
CLI::Option* add_filter(CLI::App& app, std::string& text);

// The options common to all commands that read: notices are printed, and a signal ends the reading, or its wait.
Reading::Options reading_of(std::vector<std::string> where, std::string filter = "");
// Replaces the file in one step. option: how another one is named, for the error.
result<void> write_file(const std::string& path, const std::string& data, const std::string& option);
// Prints what could not be read since the last call. Returns whether there was anything, ever.
bool say_new_problems(Reading& reading);
// The same at the end of a reading, with its doubts.
bool say_problems(Reading& reading);

// "its rings are made with -b 4096k --subbuf-size 16k --mode overwrite --rings cpu --clock x86-tsc": what `record -i` would
// have to say.
std::string how_rings_are_made(const Instance& instance);

}  // namespace ringside::cli
