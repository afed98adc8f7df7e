// Which file each descriptor is at each moment of a trace, and the paths of calls: from ringside:file_call, in order of time.
//
//   Descriptors files;
//   u32 shown = files.see(*type, payload, time);   // each event; 0: it is no call, or nothing is known of its files
//   files.text(shown)                              // `3</etc/passwd>`, `AT_FDCWD</root> "passwd"`, as strace -y writes them
//   files.file(shown)                              // "/etc/passwd": the call's first path, else its first descriptor's file
//
// What is not known for certain has no text: after a loss of such events, until a call shows it again; of a process that uses
// io_uring, which opens and closes without calls. A path is the one that the program named, made absolute where its directory
// is known; links in it are not followed. Memory is bounded: beyond it nothing more is known.
//
// Numbers stay valid. Not thread-safe.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "decode/call_files.hpp"
#include "decode/syscalls.hpp"

namespace ringside {

class Descriptors {
 public:
  u32 see(const EventType& type, Bytes payload, u64 time);
  // Events were lost. ids: of the source, as in its events' numbers. of_files: of ringside:file_call.
  void lose(u32 ids, bool of_files);

  std::string_view text(u32 shown) const { return shown == 0 ? std::string_view() : shown_[shown - 1]->text; }
  std::string_view file(u32 shown) const { return shown == 0 ? std::string_view() : shown_[shown - 1]->file; }

 private:
  enum class OnExec : u8 { stays, closes, unknown };
  struct Entry {
    std::string file{};  // empty: it is not known
    OnExec on_exec = OnExec::unknown;
    u64 serial = 0, time = 0;  // of the change
  };
  struct Table {
    std::map<i32, Entry> entries;
    bool never = false;  // it changes without calls
  };
  struct Directory {
    std::string path{};  // empty: it is not known
    u64 time = 0;        // of the change
  };
  struct Call {  // of a thread: the last one
    i64 number = -1;
    const CallFiles* about = nullptr;
    u64 args[6] = {};
    std::map<i64, std::string> texts{};  // by argument, + 256 for each further one of a list
    u64 serial = 0;                      // when it began
    Entry from{};                        // of a copy: what it copies
    u32 shown = 0;                       // at its beginning
    u64 losses = 0;                      // losses_ then
  };
  struct Thread {
    i32 pid = 0;
    std::shared_ptr<Table> table;
    std::shared_ptr<Directory> directory;
    Call noted;  // as ringside:file_call reports it
    Call seen;   // as the kernel's event of its beginning does
  };
  struct Known {  // of a type of events
    bool notes = false;
    std::optional<SyscallFields> fields{};
    u32 arguments[6] = {};  // where they are; 0: there is none
  };
  struct Text {
    std::string text, file;
  };
  using Key = u64;  // a thread of a source

  const Known& known(const EventType& type);
  Thread& thread(Key key, i32 pid);
  void note(const EventType& type, Bytes payload, u64 time);
  void begin(Thread& thread, const FileCall& call, u64 time);
  void end(Thread& thread, const CallFiles& about, i64 returned, u64 time);
  void fork(Key maker, const FileCall& call);
  void take(Thread& thread, const FileCall& told, std::string_view text, u64 time);
  void set(Thread& thread, i64 descriptor, std::string file, OnExec on_exec, u64 time);
  const Entry* entry(const Thread& thread, u64 descriptor) const;
  std::string descriptor_file(const Thread& thread, u64 descriptor) const;
  std::string full(const Thread& thread, const Call& call, u32 argument) const;
  u32 show(const Thread& thread, const Call& call);
  u32 show_result(const Thread& thread, const Call& call, i64 returned);
  u32 number(std::string text, std::string file);
  void forget();

  std::unordered_map<const EventType*, Known> known_;
  std::unordered_map<Key, Thread> threads_;
  std::vector<std::unique_ptr<Text>> shown_;
  std::unordered_map<std::string, u32> numbers_;
  u64 serial_ = 0, losses_ = 0, bytes_ = 0, entries_ = 0;
};

}  // namespace ringside
