// From a source into its ring of a recording: the one policy for whatever may be wrong on the way, the same for all feeds.
//
//   a malformed sub-buffer           is skipped, counted and named; the source goes on
//   a source that reports an error   has ended; its error is named, its closing counters stand in the recording
//   the disk takes no more           ends the recording; what was handed out last goes back to the ring
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "source/recording.hpp"
#include "source/source.hpp"

namespace ringside {

class Faults {
 public:
  void problem(std::string sentence);              // the first ten thousand are kept, the others counted
  void skipped(u32 ring, const Error& malformed);  // a sub-buffer of the recording's ring
  void silent(std::string sentence) { silence_ = std::move(sentence); }  // of a source that may answer yet: no fault
  void full(const Error& error) { failure_ = failure_ ? failure_ : error; }
  void add(const Faults& other);

  const std::vector<std::string>& problems() const { return problems_; }
  const std::string& silence() const { return silence_; }  // the last one
  const std::optional<Error>& failure() const { return failure_; }  // the disk takes no more
  std::vector<std::string> doubts() const;                         // a sentence for each class: why more may be missing than is known

 private:
  struct Skipped {
    u64 count = 0;
    std::string first;
  };
  std::vector<std::string> problems_;
  u64 unnamed_ = 0;  // problems beside those
  std::map<u32, Skipped> skipped_;
  std::string silence_;
  std::optional<Error> failure_;
};

// What a feed accounts for at its end.
struct Books {
  Counters totals;            // of its rings, those whose memory was given back included
  u64 before = 0;             // of the events written: read or overwritten before the recording began
  u64 events = 0, bytes = 0;  // recorded
  u64 gaps = 0;               // events missing between those that were recorded
  u64 refused = 0;            // beside those that `totals` counts
  bool complete = false;      // nobody writes any more, so whatever is not in it is missing
  std::vector<std::string> doubts{};
};

enum class Drained {
  all,    // nothing is left for now
  some,   // `most` sub-buffers, and perhaps there are more; or the disk takes no more
  silent, // the source did not answer in time: Faults::silence() has its sentence
  ended,  // the source reported an error: nothing more can be had of it
};

// One sub-buffer into the recording. False: the disk takes no more.
bool put(const SubBufferView& view, RecordingWriter& writer, u32 ring, Faults& faults, Books& books);

// At most `most` sub-buffers: a writer that is faster than the reader must not keep it from the other rings. Times become `earlier` ticks
// earlier. What was recorded is added to `books`.
Drained drain(Source& source, RecordingWriter& writer, u32 ring, u64 most, Faults& faults, Books& books, u64 earlier = 0);

}  // namespace ringside
