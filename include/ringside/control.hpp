// The instance that a program writes to, from inside the program. C++17; <ringside/ringside.h> has the same in C, and says
// more.
//
//   ringside::open_options o;
//   o.name = "web", o.ring_bytes = 16 << 20, o.when_full = ringside::when_full::discard, o.events = "log:warn,log:error,net";
//   if (const int error = ringside::open(o)) ...                       // a negative errno
//   ringside::enable("log:debug");
//   ringside::save("slow.data");                                       // what the rings hold: ringside report slow.data
//
// None of them is for signal handlers. Each may be called from any thread.
#pragma once
#include <ringside/ringside.h>
#ifndef RINGSIDE_WARNINGS
#pragma GCC system_header
#endif

#include <ringside/base/types.hpp>

namespace ringside {

enum class when_full : u32 { overwrite = RINGSIDE_OVERWRITE, discard = RINGSIDE_DISCARD };

struct open_options {
  const char* name = nullptr;  // null: of RINGSIDE_INSTANCE, else "default"; with a '/' in it, a path
  u64 ring_bytes = 0;          // of events that each ring holds; 0: 1 MiB
  ringside::when_full when_full = ringside::when_full::overwrite;
  u64 budget_bytes = 0;          // of memory that all rings may take; 0: a quarter of the machine's
  const char* events = nullptr;  // those that are enabled at first; null: all
};

// Opens the instance; makes it, with these sizes, if it is missing. All return 0, or a negative errno (ringside.h).
[[nodiscard]] inline int open(const open_options& o) noexcept {
  const ringside_options all{o.name, o.events, o.ring_bytes, o.budget_bytes, static_cast<u32>(o.when_full), 0};
  return ringside_open_with(&all, sizeof all);
}
[[nodiscard]] inline int open(const char* name) noexcept { return ringside_open(name); }
inline void close() noexcept { ringside_close(); }
inline const char* instance() noexcept { return ringside_instance(); }  // its directory; null: none is open
inline int enable(const char* events) noexcept { return ringside_enable(events); }
inline int disable(const char* events) noexcept { return ringside_disable(events); }
inline int save(const char* path) noexcept { return ringside_save(path); }

}  // namespace ringside
