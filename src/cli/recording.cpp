#include "cli/recording.hpp"

#include <fmt/format.h>

#include "cli/options.hpp"
#include "text/units.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {

void RecordingOptions::add_options(CLI::App& app, const std::string& duration, const std::string& quietly) {
  app.add_option("-o,--output", out, "directory of the recording; an older one there becomes DIR.old")->capture_default_str();
  add_compress(app, compress);
  add_duration(app, duration_ns, duration);
  app.add_flag("--fail-on-loss", fail_on_loss, "exit with 3 when events were lost");
  app.add_flag("-q,--quiet", quiet, quietly);
}

result<std::unique_ptr<RecordingRun>> new_recording(const std::string& dir, const ClockInfo& clock, bool compress) {
  RS_TRY(set_aside(dir));
  return RecordingRun::create(dir, clock, 0, compress);
}

void Told::problems(const RecordingRun& run) {
  const auto& all = run.faults().problems();
  for (; problems_ < all.size(); ++problems_) {
    if (told_.size() < 10 && told_.insert(all[problems_]).second) say(all[problems_]);
  }
}

void Told::doubts(const RecordingRun& run) {
  std::vector<std::string> fresh;
  for (const std::string& doubt : run.account().doubts) {
    if (told_.insert(doubt).second) fresh.push_back(doubt);
  }
  say_first(fresh);
}

std::string compressed_to(const RecordingRun& run) {
  const u64 bytes = run.compressed_bytes();
  if (bytes == 0) return "";
  return fmt::format("compressed to {}, 1/{:.1f}", format_size(bytes),
                     static_cast<double>(run.bytes()) / static_cast<double>(bytes));
}

void say_summary(const RecordingRun& run, const std::string& where, const std::string& books) {
  say(fmt::format("{}, {} in {} from {}; lost {}; {}", counted(run.events() - run.removed().events, "event"),
                  format_size(run.bytes() - run.removed().bytes), format_time(static_cast<double>(run.duration_ns())),
                  counted(run.rings(), "ring"), lost_summary(run.account()), where));
  if (const Removed gone = run.removed(); gone.events != 0)
    say(counted(gone.events, "older event") + ", " + format_size(gone.bytes) +
        ", were recorded and removed again (--max-size)");
  if (const std::string compressed = compressed_to(run); !compressed.empty()) say(compressed);
  say((run.events() == run.totals().read ? "" : books) + identity(run.totals()));
  if (const u64 late = run.account().unrecorded; late != 0)
    say(format_count(late) + " of the lost events were written to the rings when they could no longer be recorded");
  if (const u64 own = run.account().own; own != 0)
    say("left out: " + counted(own, "event") + " that this command caused itself; those of interrupts and of the scheduler are here");
  if (run.totals().unfinished_bytes != 0)
    say(format_size(run.totals().unfinished_bytes) + " were reserved and never committed (a writer died or is still writing)");
}

int exit_code(const RecordingRun& run, bool fail_on_loss) {
  if (!run.account().proved()) return exit_failure;
  return fail_on_loss && !run.account().none_lost() ? exit_loss : exit_ok;
}

int failed_to_start(const Error& error) {
  failed(error);
  if (error.code == std::errc::operation_canceled) return exit_signal + stop_signal();
  return error.code == std::errc::no_such_file_or_directory ? exit_not_found : exit_not_executable;
}

}  // namespace ringside::cli
