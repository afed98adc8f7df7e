// Files that a trace names: programs, libraries, their debug files, perf maps. Such a name is a stranger's, and opening can
// act: closing tracefs's free_buffer shrinks a ring, /dev/watchdog restarts the machine, a FIFO never answers. So every name
// that comes from a trace, or from a file that a trace names, is opened here and nowhere else (tools/check_opens):
//
//   auto file = open_judged("/usr/bin/g++");               // open to read
//   auto file = open_judged("/usr/bin/g++", {.pid = 77});  // of process 77, which may have another root
//
// The path is walked one name at a time by O_PATH, which finds files and opens none. A file is opened to read when it is known,
// through that descriptor and not by its path again, if it is a regular file, and it and all directories on the way are on
// ordinary file systems. Those are listed. A list of the others (procfs, sysfs, tracefs, ...) would let in the next one that a
// kernel brings; one that is missing in this list costs names, and the error says so.
//
// FUSE answers from a program, so only that of root or of this user is asked anything, and never this project's own mount,
// whose files act as tracefs's do. Anybody is root in a user namespace of their own, and mounts FUSE and overlayfs there. So a
// mount counts as root's only if this process's list has it, or one of a mount namespace that this user namespace owns; in
// another one only file systems that ask no other are asked. autofs mounts what it is asked for, so only what it has mounted is
// entered. A symlink counts only if root or this user made it, and never on procfs, which is no ordinary file system.
#pragma once
#include "stacks/mounts.hpp"

namespace ringside {

struct JudgedPath {
  i32 pid = 0;  // in the root of this process, where no symlink is followed; 0: in this process's
  // For a library that opens it by its path: refused also if another user could put another file there meanwhile. Then ENOENT
  // says that it will stay away, too.
  bool lasting = false;
  Mounts* mounts = nullptr;  // that are kept from path to path; null: they are read for this one
  Budget* budget = nullptr;  // for lists of mounts
};

// Whether an open file is on a file system that keeps files, and asks neither a program nor a device.
bool keeps_files(int fd);

// ENOENT: there is no such file. EPERM: it is not to be opened. EAGAIN: the budget is spent.
result<sys::Fd> open_judged(const std::string& path, const JudgedPath& how = {});

// The file that a living process has mapped at these addresses, as O_PATH: nothing is asked of its file system, and it stays
// there when its name and the process are gone. Without CAP_CHECKPOINT_RESTORE only that of the process's program, if it has
// this path. Empty: there is none, or this process may not have it.
sys::Fd hold_mapped(i32 pid, u64 start, u64 end, const std::string& path);
// The same for code that the process has mapped of a file that had this path.
sys::Fd hold_mapped(i32 pid, const std::string& path);
// A file that is held in this way, to read.
result<sys::Fd> open_held(sys::Fd held, const std::string& path, const JudgedPath& how = {});

}  // namespace ringside
