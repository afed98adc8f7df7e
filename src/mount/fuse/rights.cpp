#include "mount/fuse/rights.hpp"

#include <linux/capability.h>
#include <ringside/base/types.hpp>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace ringside::mount {
namespace {

void set_effective(bool on) noexcept {
  if (geteuid() == 0) return;
  const int before = errno;  // errno of the call in between
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) == 0) {
    constexpr u32 right = u32{1} << CAP_SYS_ADMIN;
    sets[0].effective = (sets[0].effective & ~right) | (on ? sets[0].permitted & right : 0);
    (void)syscall(SYS_capset, &header, sets);
  }
  errno = before;
}

}  // namespace

void put_rights_aside() noexcept { set_effective(false); }
WithRights::WithRights() noexcept { set_effective(true); }
WithRights::~WithRights() { set_effective(false); }

}  // namespace ringside::mount
