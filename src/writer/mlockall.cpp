// mlockall, under a name of the library's own: mlockall_name.cpp gives it the C library's. A real-time program locks what it
// has in memory. The files of instances are left out: they are sparse, so locking them would fill rings that may never be
// used, and count them against the program's limit. (A mapping that comes later is left out by sys::map_shared.)
#include "writer/mlockall.hpp"

#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <new>
#include <vector>

#include "sys/side_stack.hpp"
#include "sys/sys.hpp"
#include "writer/process.hpp"

namespace ringside {
namespace {

struct Mapping {
  u64 start = 0, size = 0;
};

// The program's own. Lines "START-END PERMISSIONS OFFSET DEVICE INODE   PATH".
std::vector<Mapping> own_mappings(std::string_view maps) {
  std::vector<Mapping> own;
  for (size_t length; !maps.empty(); maps.remove_prefix(std::min(length + 1, maps.size()))) {
    length = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, length);
    const size_t path = line.find_first_of("/[");
    if (path != line.npos && (line.substr(path) == "[vsyscall]" || is_of_an_instance(line.substr(path)))) continue;
    u64 start = 0, end = 0;
    const char* const last = line.data() + line.size();
    const auto [dash, ok] = std::from_chars(line.data(), last, start, 16);
    if (ok != std::errc() || dash == last || std::from_chars(dash + 1, last, end, 16).ec != std::errc()) continue;
    own.push_back({start, end - start});
  }
  return own;
}

bool may_lock_any_size() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & 1u << CAP_IPC_LOCK) != 0;
}

int lock_by_kernel(int flags) noexcept { return static_cast<int>(syscall(SYS_mlockall, flags)); }

}  // namespace

int lock_all(int flags) noexcept {
  constexpr int later = MCL_FUTURE | MCL_ONFAULT;
  if ((flags & MCL_CURRENT) == 0 || (flags & ~(MCL_CURRENT | later)) != 0 || opened_now() == nullptr)
    return lock_by_kernel(flags);
  // True: it is done, or refused. Else the kernel says why not, or cannot be spared the rings.
  int done = 0;
  const auto lock = [&] {
    const auto maps = sys::read_file("/proc/self/maps");
    const std::vector<Mapping> own = own_mappings(maps ? *maps : "");
    u64 bytes = 0;
    for (const Mapping& one : own) bytes += one.size;
    rlimit limit{};
    if (!maps || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (bytes > limit.rlim_cur && !may_lock_any_size())) return false;
    // As the call does: what comes is locked, or is not.
    done = (flags & MCL_FUTURE) != 0 ? lock_by_kernel(flags & later) : static_cast<int>(syscall(SYS_munlockall));
    // What has no memory to lock is refused, and the kernel's own call leaves it out, too.
    for (const Mapping& one : own)
      if (done == 0)
        (void)syscall(SYS_mlock2, static_cast<size_t>(one.start), static_cast<size_t>(one.size),
                      (flags & MCL_ONFAULT) != 0 ? MLOCK_ONFAULT : 0);
    return true;
  };
  const SignalsOff off;
  const Inside inside(off);
  bool decided = false;
  const auto try_to_lock = [&]() noexcept {
    try {
      decided = lock();
    } catch (const std::bad_alloc&) {
    }
  };
  if (off) (void)sys::on_side_stack(try_to_lock);
  return decided ? done : lock_by_kernel(flags);
}

}  // namespace ringside
