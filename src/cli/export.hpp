// What `record --to FILE` needs of export.
#pragma once
#include <ringside/base/result.hpp>
#include <memory>
#include <string>

#include "source/recording.hpp"

namespace ringside::cli {

// Writes the recording `dir` into such a file. It does not end at Ctrl-C, which has ended the recording. again: a GrowingExport
// has failed; what it has written into a special file stays there, and an error says so.
result<int> export_recorded(const std::string& dir, const std::string& file, bool again);

// Such a file that grows with its recording: at any moment it holds the events up to about half a second ago, in order. The
// recording is in files, so what this one has not taken yet needs no memory.
class GrowingExport {
 public:
  // now: what the recording's writer knows. The file replaces an older one at the first event.
  static std::unique_ptr<GrowingExport> of(const std::string& dir, const std::string& file, const RecordingMeta& now);
  virtual ~GrowingExport() = default;
  // For a few milliseconds at most: meanwhile nobody reads the rings. taken_until: see Reading::grow.
  virtual result<void> advance(const RecordingMeta& now, u64 taken_until) = 0;
  // The rest, after the recording's end. The exit code.
  virtual result<int> finish(const RecordingMeta& now) = 0;
};

}  // namespace ringside::cli
