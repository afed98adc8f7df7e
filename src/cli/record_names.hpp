// What record keeps so that the stacks of its recording have names later.
#pragma once
#include <string>

#include "record/handed_files.hpp"
#include "record/recording_run.hpp"

namespace ringside::cli {

// Of a finished recording: the names of its stacks' addresses, as long as the files can be found. files: null: none was handed
// over.
void keep_stack_names(RecordingRun& run, const std::string& dir, const HandedFiles* files, bool quiet);

}  // namespace ringside::cli
