// An instance that others use, too, in the hands of one command: `record` and `trigger` take the events from its rings, and
// change for their time which events are enabled, get stacks, and whether recording is on. All of that is put back at their
// end; after a kill by the next process that opens the instance.
//
//   auto borrowed = RS_TRY(Borrowed::take(instance, "ringside record"));   // EBUSY: another command has it
//   RS_TRY(borrowed->enable(patterns));
//
// The file `borrowed` in the instance's directory says by whom, and what was before; a lock on one byte of its file `instance`
// ends with the command.
#pragma once
#include <memory>
#include <string>

#include "instance/instance.hpp"

namespace ringside {

class Borrowed {
 public:
  // by: the command, for others' sentences.
  static result<std::unique_ptr<Borrowed>> take(Instance& instance, const std::string& by);
  ~Borrowed() { (void)give_back(); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  result<void> enable(const EventPatterns& patterns);
  result<void> stacks(const EventPatterns& patterns, u32 depth);
  result<void> tracing();  // notes whether recording is on, for a command that will switch it
  // What others have changed meanwhile stays.
  result<void> give_back();

 private:
  Borrowed(Instance& instance, sys::Fd lock, std::string note)
      : instance_(instance), lock_(std::move(lock)), note_(std::move(note)) {}
  Instance& instance_;
  sys::Fd lock_;
  std::string note_;  // the file's text
};

// To be called for an instance that was opened. Does nothing while the borrower lives.
void put_back_after_death(Instance& instance);

}  // namespace ringside
