// Copies a source into its ring of a recording: one policy for all errors on the way, the same for all feeds.
//
//   a malformed sub-buffer           is skipped, counted and named; the source goes on
//   a source that reports an error   has ended; its error is named, its closing counters are in the recording
//   a full disk                      ends the recording; the last sub-buffer handed out goes back to the ring
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "source/account.hpp"
#include "source/recording.hpp"
#include "source/source.hpp"

namespace ringside {

class Faults {
 public:
  void problem(std::string sentence);              // the first ten thousand are kept, the others counted
  void skipped(u32 ring, const Error& malformed);  // a sub-buffer of the recording's ring
  void silent(std::string sentence) { silence_ = std::move(sentence); }  // a source may still answer: no fault
  void full(const Error& error) { failure_ = failure_ ? failure_ : error; }
  void add(const Faults& other);

  const std::vector<std::string>& problems() const { return problems_; }
  const std::string& silence() const { return silence_; }  // the last one's sentence
  const std::optional<Error>& failure() const { return failure_; }  // the disk is full
  std::vector<std::string> doubts() const;  // a sentence for each class of faults that may hide further losses

 private:
  struct Skipped {
    u64 count = 0;
    std::string first;
  };
  std::vector<std::string> problems_;
  u64 unnamed_ = 0;  // the number of further problems
  std::map<u32, Skipped> skipped_;
  std::string silence_;
  std::optional<Error> failure_;
};

// What a feed has put into a recording.
struct Taken {
  Account account;  // read, overrun; the feed adds the other places
  u64 bytes = 0;    // of events
};

enum class Drained {
  all,    // took everything that is there now
  some,   // took `most` sub-buffers, and there may be more; or the disk is full
  silent, // the source did not answer in time: Faults::silence() has its sentence
  ended,  // the source reported an error: it yields nothing more
};

// Puts one sub-buffer into the recording. False: the disk is full, perhaps since the formats of its events were saved.
bool put(const SubBufferView& view, RecordingWriter& writer, u32 ring, Faults& faults, Taken& taken);

// Takes at most `most` sub-buffers: a writer that is faster than the reader must not keep it from the other rings. Times are
// reduced by `earlier` ticks. What it took is added to `taken`. select: what to record of a sub-buffer; none: all.
using Select = std::function<SubBufferView(const SubBufferView&)>;
Drained drain(Source& source, RecordingWriter& writer, u32 ring, u64 most, Faults& faults, Taken& taken, u64 earlier = 0,
              const Select& select = nullptr);

}  // namespace ringside
