// Where instances live, and how their directories are opened: by the programs that write, and by those that make, read and
// remove them. A directory that another user could have made or can write to is refused (sys/beneath.hpp).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "clock/clock.hpp"
#include "schema/event_pattern.hpp"
#include "sys/beneath.hpp"
#include "writer/layout.hpp"

namespace ringside {

std::string instances_root();  // $RINGSIDE_ROOT, else $XDG_RUNTIME_DIR/ringside, else /dev/shm/ringside-UID
result<std::string> instance_path(const std::string& name_or_path);
result<sys::Fd> open_instance_directory(const std::string& name_or_path, sys::Role role = sys::Role::instance);
result<sys::Region> map_instance(int dir, const std::string& path, bool writable);
ClockInfo clock_of(const InstanceControl& control) noexcept;

// The directory that contains an instance, or will contain it.
struct InstancePlace {
  sys::Fd parent;
  std::string name, path;
  bool in_root = false;
};
// make: makes the directory of all instances if it is missing.
result<InstancePlace> place_of_instance(const std::string& name_or_path, bool make);

// An instance is made under another name, locked by its maker, and gets its own name when it is whole.
struct Unfinished {
  sys::Fd dir;  // the lock is held as long as this is open
  std::string name;
};
result<Unfinished> begin_instance(const InstancePlace& place);
// Removes what dead makers and removers left: directories with the names that those give, and with free locks. as: only those
// for this name. True: there were some.
bool sweep_unfinished(int parent, const std::string& as);
result<void> take_away(const InstancePlace& place, int dir);

bool is_instance(int dir) noexcept;
// Left by a maker that died, or ran out of space, before instances were made under another name; or its file was cut.
bool is_half_made(int dir);
bool instance_is_being_made(const std::string& name);  // it has no name yet; its maker may have died
extern const char* const never_finished;  // "... was never finished ... `ringside rm -f ": the name and ` follow

// The lines of set_event (which events are enabled) or set_stack (which get a stack when they are declared).
result<std::vector<std::string>> read_patterns(int dir, const char* file = "set_event");
// Of such lines the last one that matches decides; "!" in front: no.
class Switches {
 public:
  explicit Switches(const std::vector<std::string>& lines);
  bool on(std::string_view system, std::string_view name) const;

 private:
  std::vector<std::pair<EventPattern, bool>> all_;
};
void apply_patterns(const std::vector<std::string>& patterns, const InstanceWords& words, unsigned char* gate);

// Lets one process at a time change what an instance lists. The kernel releases it when its holder dies. A holder that is
// stopped must not stop all others: after `patience_ms` they go on without the lock, or give up. (The protected work is short
// and idempotent.)
class InstanceLock {
 public:
  explicit InstanceLock(int dir, int patience_ms = 2000) noexcept;
  ~InstanceLock();
  InstanceLock(InstanceLock&&) noexcept = default;
  bool late() const noexcept { return late_; }  // another process has it

 private:
  sys::Fd fd_;
  bool late_ = false;
};

}  // namespace ringside
