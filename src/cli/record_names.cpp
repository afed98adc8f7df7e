#include "cli/record_names.hpp"

#include <unistd.h>

#include <algorithm>

#include "cli/command.hpp"
#include "consumer/keep_names.hpp"
#include "export/units.hpp"
#include "stacks/judged.hpp"

namespace ringside::cli {

void keep_stack_names(RecordingRun& run, const std::string& dir, const HandedFiles* files, bool quiet) {
  const auto& events = run.meta().events;
  const bool has_stacks = std::any_of(events.begin(), events.end(), [](const EventInfo& e) { return e.name == "code_map"; });
  if (!has_stacks || run.events() == 0) return;
  NamesToKeep how;
  how.find_file = [&](const std::string& path, i32 pid) {
    sys::Fd file = files != nullptr ? files->file(path) : sys::Fd();
    if (file || pid <= 0 || access(path.c_str(), F_OK) == 0) return file;
    return open_judged(path, {.pid = pid}).value_or(sys::Fd());  // in a mount namespace that is still there
  };
  const auto kept = keep_names(dir, how);
  if (!kept)
    say("the names of its stacks are not kept: " + kept.error().sentence);
  else if (!kept->all)
    say("not all names of its stacks are kept: that would take too long, or too much room");
  if (kept && kept->addresses != 0 && !quiet)
    say("kept the names of " + counted(kept->addresses, "address", "addresses") + " of its stacks (" +
        format_size(kept->bytes) + ")");
}

}  // namespace ringside::cli
