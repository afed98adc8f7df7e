// Which arguments of system calls are descriptors and paths, by the calls' names.
//
//   const CallFiles* call = call_files(257, Architecture::x86_64);   // openat: descriptors 1 << 0, paths 1 << 1
//
// Null: the call has neither, or is unknown. Thread-safe.
#pragma once
#include <ringside/base/types.hpp>
#include <vector>

#include "source/world.hpp"

namespace ringside {

struct CallFiles {
  // What a call does to descriptors and directories when it succeeds.
  enum class Does : u8 {
    nothing, open, opens_by_structure, creat, makes_file, close, close_range, dup, dup2, dup3, fcntl, socket, accept, connect,
    exec, clone, unshare, setns, chdir, fchdir, uring,
    pair
  };
  const char* name;
  u8 descriptors;  // bit N: argument N, from 0
  u8 paths;        // the directory of a path at N is the descriptor at N - 1, if that is one
  Does does = Does::nothing;
  const char* file = nullptr;  // of makes_file and pair
  int flags = -1;               // the argument whose close_on_exec makes the descriptor close on exec
  u64 close_on_exec = 0;       // ~0: always
  bool is_needed() const { return paths != 0 || does != Does::nothing; }  // to know which files descriptors are
};

// The payload of ringside:file_call: a step of such a call, or what else decides about descriptors.
struct FileCall {
  enum class Step : u32 {
    begin,       // of a call: args
    text,        // of its argument `value`; of an argument's Nth text, where it is a list: value + 256 * N
    end,         // value: what it returned
    fork,        // a thread begins: its number, value; args[0]: the flags of clone()
    gone,        // the thread has ended
    descriptor,  // what /proc said of descriptor `value`; args[0]: 1, if it closes on exec; args[1]: the time of the question
    directory    // what /proc said of the working directory
  };
  u64 common = 0;  // the event's id, and the thread
  Step step{};
  i32 pid = 0;     // the thread's process
  i64 number = 0;  // of the call
  i64 value = 0;
  u64 args[6] = {};
  u32 text = 0;  // as __data_loc
  u32 unused = 0;
  i32 tid() const { return static_cast<i32>(common >> 32); }
};
static_assert(sizeof(FileCall) == 88);
inline constexpr const char* file_call_event = "ringside:file_call";

const std::vector<CallFiles>& all_call_files();
const CallFiles* call_files(i64 number, Architecture of);

}  // namespace ringside
