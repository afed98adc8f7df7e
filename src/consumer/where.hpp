// What the argument WHERE of a command names, decided in one place. The first that holds:
//
//   instance   a word without a slash by which an instance of ringside can be opened; it wins over files of that name
//   recording  a directory with a meta.json
//   served     a socket at which `ringside serve` hands out an instance's rings: the one in that instance, or one that says so
//   writer     any other socket: an external writer listens there; a word without a slash, if a writer has announced it
//   trace_dat  a plain file, or a pipe that is open (-, <(COMMAND)): a trace.dat, or a tar of a recording; also packed
//   instance   a path at which one can be opened
//   kernel     an instance of the kernel's tracefs, by name or path
//   ctf        a directory of a CTF trace, or of several: LTTng's
//   shipped    clickhouse://: what `ringside ship` sent to a server; before all others
//   nothing    none of these: Instance::open() says why
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ringside {

inline constexpr const char* default_recording = "ringside.data";

struct Where {
  enum class Kind : u8 { nothing, instance, recording, served, writer, trace_dat, kernel, ctf, shipped };

  std::string text{};  // as it was given
  Kind kind = Kind::nothing;
  std::string dir{};     // of the kernel's instance
  std::string socket{};  // of an external writer

  static Where of(const std::string& text);   // waits for an instance that is not there: await_instance()
  static Where now(const std::string& text);  // does not: for words that may mean something else
  bool is_nothing() const { return kind == Kind::nothing; }
  bool is_recording() const { return kind == Kind::recording; }
  bool is_file() const { return kind == Kind::trace_dat; }
  bool is_served() const { return kind == Kind::served; }
  bool is_writer() const { return kind == Kind::writer; }
  bool is_kernel() const { return kind == Kind::kernel; }
  bool has_no_rings() const { return kind == Kind::ctf || kind == Kind::shipped; }     // events, but no counters of rings
  bool is_recorded() const { return is_recording() || is_file() || has_no_rings(); }  // nothing live
  const char* what() const;  // "an instance", ...
  // Device and inode of what it names, an instance's also by its socket: equal for each way to name it. None: it has none.
  std::optional<std::pair<u64, u64>> place() const;

  // Why an instance of the kernel's cannot be read by this name.
  Error not_to_be_read() const;
};

// The external writers that have announced themselves (remote/process_writer.hpp), by name; whether each still listens is not
// known.
std::vector<std::string> announced_writers();
std::string announced_socket(const std::string& name);  // empty: there is none

// Waits for an instance whose program has only just been started: 50 ms, and up to a second while it is being made.
void await_instance(const std::string& name);

// An error if `name` is an instance of the kernel's, for commands that take only an instance.
result<void> not_the_kernels(const std::string& name);

}  // namespace ringside
