// Puts aside CAP_SYS_ADMIN for all but one call. A program may have it from its file (setcap cap_sys_admin+p), and FUSE
// passthrough asks for it; with it, any user who may start the program could mount where fusermount3 forbids it. Root keeps
// what it has.
#pragma once

namespace ringside::mount {

// First thing in main(): threads begin with the rights of the thread that starts them.
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
