// CAP_SYS_ADMIN, which a program may have from its file (setcap cap_sys_admin+p) and which FUSE passthrough asks for, put aside but for
// that one call: whoever may start the program would else mount where fusermount3 does not let them. Root keeps what it has.
#pragma once

namespace ringside::mount {

// First thing in main(): threads begin with the rights of the one that starts them.
void put_rights_aside() noexcept;

// This thread has the right as long as this lives, if the program has it at all.
class WithRights {
 public:
  WithRights() noexcept;
  ~WithRights();
  WithRights(const WithRights&) = delete;
  WithRights& operator=(const WithRights&) = delete;
};

}  // namespace ringside::mount
